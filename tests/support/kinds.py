"""The example of each kind of resource, tests/examples/<kind>.yml: what every test that goes through all kinds reads.

good       a good resource for each shape of the kind; together they hold every field that the parser knows
harmless   by shape and field (`field[]`: an item of its list): which hostile values are fine there, and why
host       the simulated host, before: `files`, `packages`, `offers`, `units` ([enabled or not, active or not]),
           `network`, and `commands`: how a command begins -> the `files` that it writes, what it `says`, its `rc`. A
           new key is a branch of `World.stand` in tests/support/world.py, and a word of `HOST` there
wanted     resources that change this host
instead    what the inventory says later in their place: the first of `wanted` with another value, under the same name
meddle     what somebody does to it afterwards, so that the first of `wanted` differs: `files`, or a command to `run`;
           `as_before` where that is also how it stood before us, as with what has two states only
random     resources for random documents, on hosts that stand as `host`: for each field its choices, `field?` is left
           out now and then: `- {sysctl: [net.ipv4.ip_forward], value: ["0", "1"]}`
fleet      resources for the containers of tests/fleet, where the examples of all kinds are one document (by file name)
drifts     by name: a shell command that causes a drift there, the resources that then differ, how to `tidy` up
benchmark  resources that the benchmarks must know, if a role that they measure has the kind
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.engine.kinds import KINDS
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Fields, Resource

from tests.support.rig import ROOT

FOLDER = ROOT / "tests/examples"
DECLARABLE = [name for name, kind in KINDS.items() if kind.declarable]


def example(kind: str) -> dict[str, Any]:
    path = FOLDER / f"{kind}.yml"
    assert path.exists(), f"{path.relative_to(ROOT)} is missing: the kind {kind} has no example"
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


EXAMPLES: dict[str, dict[str, Any]] = {kind: example(kind) for kind in DECLARABLE}
# By the shape: `file` is one, `json` another.
GOOD: dict[str, dict[str, Any]] = {shape: good for found in EXAMPLES.values() for shape, good in found["good"].items()}
# As tests/fleet/extra.yml puts them together.
FLEET: list[dict[str, Any]] = [row for kind in sorted(EXAMPLES) for row in EXAMPLES[kind].get("fleet", [])]


class Asked(Fields):
    """Fields that remember which of them the parser has asked for."""

    def __init__(self, raw: Mapping[Any, Any], kind: str) -> None:
        super().__init__(raw, kind, kind, {})
        self.names: set[str] = set()

    def has(self, key: str) -> bool:
        self.names.add(key)
        return super().has(key)

    def _take(self, key: str) -> Any:
        self.names.add(key)
        return super()._take(key)


def parsed(kind: str, resource: Mapping[str, Any]) -> tuple[Resource, set[str]]:
    fields = Asked(resource, kind)
    return KINDS[kind].parse(0, fields), fields.names


@functools.cache
def fields_of(kind: str) -> frozenset[str]:
    """Every field that the parser of a kind knows, without the one that names it."""
    return frozenset().union(*(parsed(kind, good)[1] for good in EXAMPLES[kind]["good"].values())) - {kind}
