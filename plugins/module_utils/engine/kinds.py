# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of resources that there are. A new one is a module in resources/ and a line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import guard
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.account_keys import KeyKind
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.accounts import GroupKind, UserKind
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Kind
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.dpkg import DpkgKind
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.expected import ExpectedKind
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.files import FileKind
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.holds import HoldKind
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.kernel import (
    ModuleKind,
    SysctlKind,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.packages import PackageKind
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.profiles import ProfileKind, checkpoint_s
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.units import UnitKind

# In the order of planning: a kind may look at the steps of those before it. The order of work is the documents'.
_KINDS: tuple[Kind[Any, Any], ...] = (
    FileKind(),
    DpkgKind(),
    PackageKind(),
    HoldKind(),
    GroupKind(),
    UserKind(),
    KeyKind(),
    ModuleKind(),
    SysctlKind(),
    ProfileKind(),
    UnitKind(),
    ExpectedKind(),
)
KINDS: Mapping[str, Kind[Any, Any]] = {kind.name: kind for kind in _KINDS}


def back_within_s(documents: Sequence[Mapping[str, Any]]) -> int:
    """Seconds within which a host has gone back to how it was, if these documents cut it off; 0 where they cannot.

    For the controller, which knows no kind.
    """
    profiles = sum(ProfileKind.name in resource for document in documents for resource in document["resources"])
    return max(checkpoint_s(profiles), guard.CONFIRM_S) + guard.NET_S + guard.ROLLBACK_S if profiles else 0
