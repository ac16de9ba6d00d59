# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documentation of an action says that has the engine change a host; its own entries come before these."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  action:
    description: Prepares the request on the controller; the engine works on the host.
    support: full
  check_mode:
    description: Says what would change, changes nothing. The refusals are those of a real run.
    support: full
  platform:
    description: Target OS of the action.
    support: full
    platforms: posix
"""
