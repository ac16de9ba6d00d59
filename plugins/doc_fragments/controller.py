# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documentation of an action says that works on the controller; its own entries come before these."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  action:
    description: Runs on the controller.
    support: full
  check_mode:
    description: Changes nothing, with or without C(check_mode).
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
  platform:
    description: Target OS of the action.
    support: full
    platforms: posix
"""

    # One task for all hosts of the play.
    SCAN = r"""
attributes:
  action:
    description: Runs on the controller, and asks all hosts itself.
    support: full
  bypass_host_loop:
    description: Runs once for all hosts of the play.
    support: full
"""
