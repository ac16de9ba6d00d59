# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documentation of every module says that does one step of an action; a module's own entries come before."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  action:
    description: The controller bounds the answer of the host, and takes control characters out of its text.
    support: full
  diff_mode:
    description: There is no text to differ.
    support: none
  platform:
    description: Target operating systems.
    platforms: linux
    support: full
"""
