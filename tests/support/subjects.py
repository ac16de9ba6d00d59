"""A healthy host for the doctor, with what a test changes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.probe import CATALOGS

from tests.support.proofs import facts

CATALOG = {name: catalog.load(name) for name in CATALOGS}
DECLARED = catalog.Declared(
    {
        "fabric": {
            "fabric_topology": {"type": "str", "choices": ["none", "pair", "ring", "switch"], "default": "none"},
            "fabric_ports": {"type": "list", "elements": "str", "choices": ["p0", "p1"], "default": ["p0"]},
            "fabric_mtu": {"type": "int", "default": 9000},
            "fabric_network": {"type": "str", "default": "192.168.100.0/22"},
            **{f"fabric_{name}": {"type": "dict", "default": {}} for name in ("rails", "test", "thresholds")},
            "share": {"type": "float"},
            "fast": {"type": "bool"},
        },
        "driver": {
            "driver_allow_move": {"type": "bool", "default": False},
            "driver_host_set": {"type": "str", "default": "installed"},
        },
        "vllm": {"vllm_model": {"type": "str"}},
    }
)
MODEL = "openai/gpt-oss-120b"
PAIR = {"gb10_cluster": "pair1", "fabric_topology": "pair", "vllm_model": MODEL}
GROUPS = {"pair1": ["spark-a", "spark-b"], "ring1": ["spark-a", "spark-b", "spark-c"], "one": ["spark-a"]}


def subject(
    variables: Mapping[str, Any] | None = None, groups: Mapping[str, Sequence[str]] = GROUPS, **changed: Any
) -> Subject:
    """A healthy host of a pair; `changed` replaces facts, nested ones by mapping."""
    own = facts()
    for key, value in changed.items():
        own[key] = {**own.get(key, {}), **value} if isinstance(value, dict) else value
    return Subject("spark-a", own, PAIR if variables is None else variables, groups, CATALOG, DECLARED)
