"""catalog/baseline.yml: how two reads of a host are compared with it, and that all roles' documents keep to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from tests.support.baseline import Comparison, Row, compare, declared
from tests.support.proofs import facts

GIVEN: dict[str, Any] = {
    "fabric_topology": "none",
    "vllm_model": "openai/gpt-oss-120b",
    "vllm_allow_tag": True,
    "gateway_address": "192.0.2.11",
    "gateway_plain_http": True,
    "gateway_keys": {"laptop": "a" * 40},
    "page_cache_operators": ["operator"],
    "monitoring_enabled": True,
    "monitoring_server": True,
    "monitoring_grafana": True,
}
SYSTEMD = "/etc/systemd/system/"
# What packages bring and what a model opens is in no document: tests/fleet/test_baseline.py reads a host.
FROM_DOCUMENTS = ("sudoers", "units", "unit_changes", "kernel_parameters", "cron", "nftables")


# -- the comparison

ROWS = [
    Row("listening", "tcp {gateway_address}:{gateway_port} nginx", "gateway", "with keys"),
    Row("listening", "tcp *:<100-200> worker", "vllm", "while it serves"),
    Row("units", "gb10-firewall.service enabled", "firewall"),
    Row("kernel_parameters", "net.a = 1", "kernel_parameters"),
]
SETTINGS = {"gateway_address": "192.0.2.1", "gateway_port": 8443}
SOUND = {"units": ["gb10-firewall.service enabled"], "kernel_parameters": ["net.a = 1"]}
ALL_ROLES = {row.role for row in ROWS}


def compared(before: dict[str, list[str]], after: dict[str, list[str]], **more: Any) -> Comparison:
    return compare(before, after, ROWS, more.get("roles", ALL_ROLES), more.get("settings", SETTINGS))


@pytest.mark.parametrize(
    "entry",
    ["tcp 192.0.2.1:8443 nginx", "tcp 0.0.0.0:100 worker", "tcp ::1:200 worker"],
)
def test_what_is_declared_may_come(entry: str) -> None:
    assert compared({}, {**SOUND, "listening": [entry]}) == Comparison((), ())


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("listening", "tcp 0.0.0.0:8443 nginx"),  # another address
        ("listening", "tcp 192.0.2.1:8443 nginx2"),
        ("listening", "tcp 192x0.2.1:8443 nginx"),  # a dot is a dot
        ("listening", "tcp 0.0.0.0:99 worker"),
        ("listening", "tcp 0.0.0.0:201 worker"),
        ("units", "gb10-firewall.service static"),
        ("units", "tcp 192.0.2.1:8443 nginx"),  # declared, but of another kind
        ("setuid", "/usr/bin/ours 4755 0:0"),  # a kind without rows
        ("kernel_parameters", "net.a = 2"),
    ],
)
def test_all_else_is_undeclared(kind: str, entry: str) -> None:
    after = {**SOUND, kind: [*SOUND.get(kind, ()), entry]}
    assert compared(SOUND, after) == Comparison((f"{kind}: {entry}",), ())


def test_what_was_there_before_is_somebody_elses() -> None:
    theirs = {"listening": ["tcp 0.0.0.0:22 sshd"], "setuid": ["/usr/bin/su 4755 0:0"]}
    assert compared(theirs, {**theirs, **SOUND}) == Comparison((), ())


def test_what_is_declared_for_every_host_must_be_there() -> None:
    said = compared(SOUND, {"units": SOUND["units"]})
    assert said == Comparison((), ("kernel_parameters: net.a = 1",))


def test_a_role_that_did_not_run_neither_must_nor_may() -> None:
    said = compared({}, SOUND, roles={"firewall"})
    assert said == Comparison(("kernel_parameters: net.a = 1",), ())


def test_a_variable_without_a_value_stands_for_anything() -> None:
    said = compared({}, {**SOUND, "listening": ["tcp 198.51.100.7:8443 nginx"]}, settings={"gateway_port": 8443})
    assert not said.undeclared


# -- the file


def entries() -> Iterator[tuple[str, str]]:
    """What the documents of all roles add, as the reader of a host would write it."""
    known = facts()
    known = {**known, "packages": {name: it for name, it in known["packages"].items() if not name.startswith("nginx")}}
    for role in catalog.ROLES:
        document = render(role, View("spark-a", known, GIVEN, ["spark-a"]))
        assert not document.refusals
        for resource in document.resources:
            if "sysctl" in resource:
                yield "kernel_parameters", f"{resource['sysctl']} = {resource['value']}"
            if resource.get("state", "") != "absent" and "content" in resource:
                yield from _of_file(resource["file"], resource["content"])


def _of_file(path: str, content: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in content.splitlines() if line and not line.startswith("#")]
    if path.startswith(SYSTEMD):
        name = path.removeprefix(SYSTEMD)
        state = "enabled" if "[Install]" in lines else "static"
        yield ("unit_changes", name) if "/" in name else ("units", f"{name} {state}")
    if path.startswith("/etc/sudoers"):
        yield from (("sudoers", f"{path}: {line}") for line in lines)
    if path.startswith("/etc/cron"):
        yield from (("cron", f"{path}: {line}") for line in lines)
    if path.endswith(".nft"):
        skeleton = content.partition("flush table")[0]  # behind it are the rules, in the same chains
        for name, hook in re.findall(r"^    chain (\w+) \{(?:\n +type filter hook (\w+))?", skeleton, re.MULTILINE):
            yield "nftables", f"inet gb10_fleet {name} {hook}".rstrip()


def test_the_documents_add_what_is_declared_and_nothing_else() -> None:
    after: dict[str, list[str]] = {kind: [] for kind in FROM_DOCUMENTS}
    for kind, entry in entries():
        after[kind].append(entry)
    rows = [row for row in declared() if row.kind in FROM_DOCUMENTS]
    said = compare({}, after, rows, catalog.ROLES, GIVEN)
    assert said.undeclared == ()
    assert [row for row in said.absent if "nvidia-cdi-refresh" not in row] == []  # of a package


def test_every_row_names_a_role_and_variables_that_exist() -> None:
    variables = catalog.declared_variables().variables
    for row in declared():
        assert row.role in catalog.ROLES, row
        assert set(re.findall(r"\{(\w+)\}", row.name)) <= set(variables), row


def test_nothing_of_ours_gives_rights_away() -> None:
    """A row here would be a decision about the security of every host."""
    assert [row for row in declared() if row.kind in ("setuid", "world_writable", "cron")] == []
