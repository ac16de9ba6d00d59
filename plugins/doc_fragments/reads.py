# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documentation of every module says that only reads; a module's own entries come before these."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  action:
    description: The controller bounds the answer of the host, and takes control characters out of its text.
    support: full
  check_mode:
    description: Changes nothing, in check mode or out of it.
    support: full
  diff_mode:
    description: There is nothing to differ, because nothing changes.
    support: none
  platform:
    description: Target operating systems.
    platforms: linux
    support: full
"""
