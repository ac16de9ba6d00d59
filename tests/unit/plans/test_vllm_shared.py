"""What the services of a host share: folders, the programs that run them, and files that none of them needs."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.programs import modules_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service as vllm_service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.shared import Folder, Unused

from tests.support.service_plans import CHAT, EMBED, GATEWAY, HEAR, view

MODELS, SETTINGS = Folder("/var/cache/gb10-vllm"), Folder("/etc/gb10-fleet")
COMPILED = Folder("/var/cache/gb10-compiled", "0700")
BY_CHAT, BY_EMBED = (Folder(f"{COMPILED.path}/by-image/vllm-{name}", with_all=True) for name in ("chat", "embed"))
WARM = {"span": "host", "warm_cache_gib": 20}
RAY = {"executor": "ray", "ray_token": "0123456789abcdef" * 2}
RAY_START = "/usr/local/lib/gb10-fleet/gb10-ray-start"


def planned(entries: dict[str, Any], hosts: int = 1, **variables: Any) -> vllm.VllmPlan:
    plan = vllm.plan(view(entries, hosts=hosts, **variables))
    assert plan.refusals == plan.joint_refusals == ()
    return plan


def warm(*names: str) -> tuple[Folder, ...]:
    made: list[Folder] = []
    for top in ("/var/cache/gb10-warm", "/var/lib/gb10-warm"):
        made += [Folder(top, "0700"), *(Folder(f"{top}/{name}", "0700", with_files=True) for name in names)]
    return tuple(made)


@pytest.mark.parametrize(
    ("entries", "folders"),
    [
        ({}, (SETTINGS,)),
        ({"chat": CHAT}, (MODELS, COMPILED, BY_CHAT, SETTINGS)),
        ({"chat": CHAT, "embed": EMBED}, (MODELS, COMPILED, BY_CHAT, BY_EMBED, SETTINGS)),
        # It compiles to where the models are, and might leave a setuid program there for a login.
        ({"chat": CHAT | {"fetch": False}}, (Folder(MODELS.path, "0700"), SETTINGS)),
        (
            {"chat": CHAT | {"fetch": False}, "embed": EMBED},
            (Folder(MODELS.path, "0700"), COMPILED, BY_EMBED, SETTINGS),
        ),
        ({"chat": CHAT | {"fetch": False, "cache_directory": "/srv/m"}}, (Folder("/srv/m"), SETTINGS)),  # yours
        ({"chat": CHAT | WARM}, (MODELS, *warm("vllm-chat"), SETTINGS)),
        ({"chat": CHAT | WARM, "embed": EMBED}, (MODELS, COMPILED, BY_EMBED, *warm("vllm-chat"), SETTINGS)),
        ({"chat": CHAT | WARM, "embed": EMBED | WARM}, (MODELS, *warm("vllm-chat", "vllm-embed"), SETTINGS)),
        (
            {"chat": CHAT | {"mounts": ["/srv/plugins:/plugins:ro"], "allow_mounts": True}},
            (MODELS, Folder("/srv/plugins"), COMPILED, BY_CHAT, SETTINGS),
        ),
    ],
)
def test_the_folders_follow_from_the_services(entries: dict[str, Any], folders: tuple[Folder, ...]) -> None:
    assert planned(entries).folders == folders


@pytest.mark.parametrize(
    ("entries", "hosts", "more"),
    [
        ({"chat": CHAT}, 1, []),
        ({"chat": CHAT}, 2, []),
        ({"chat": CHAT | RAY}, 2, [(RAY_START, "programs/ray_start", "#!/usr/bin/python3\n")]),
        (
            {"chat": CHAT | {"on_demand": True}},
            1,
            [("/usr/local/sbin/gb10-wake", "programs/wake", "#!/usr/bin/python3 -ISB\n")],
        ),
    ],
)
def test_a_program_is_there_where_a_service_needs_it(
    entries: dict[str, Any], hosts: int, more: list[tuple[str, ...]]
) -> None:
    programs = planned(entries, hosts, **GATEWAY).programs
    found = [(each.path, each.source, each.first_line) for each in programs if each.mode == "0755"]
    assert found == more
    imported = [each for each in programs if each.mode is None]
    assert len(imported) + len(more) == len(programs) and not any(each.first_line for each in imported)
    assert [each.source for each in imported] == list(modules_of(vllm_service.PROGRAM))


@pytest.mark.parametrize(
    ("entries", "hosts", "needed"),
    [
        ({"chat": CHAT}, 1, set()),
        ({"chat": CHAT | {"api_key": "sesame"}}, 1, {"/etc/gb10-fleet/vllm-chat.env"}),
        ({"chat": CHAT}, 2, {"/etc/gb10-fleet/join-chat.key"}),
        ({"chat": CHAT | RAY}, 2, {"/etc/gb10-fleet/join-chat.key", "/etc/gb10-fleet/ray.token", RAY_START}),
    ],
)
def test_what_no_service_needs_goes(entries: dict[str, Any], hosts: int, needed: set[str]) -> None:
    plan = planned(entries, hosts)
    secrets = ("/etc/gb10-fleet/vllm-chat.env", "/etc/gb10-fleet/join-chat.key", "/etc/gb10-fleet/ray.token")
    of_none = [*(Unused(path, secret=True) for path in secrets), Unused(RAY_START)]
    assert plan.unused == tuple(each for each in of_none if each.path not in needed)
    assert plan.ray == ("chat" if RAY_START in needed else "")


def test_of_each_service_its_own_files_go() -> None:
    unused = {each.path for each in planned({"chat": CHAT | {"api_key": "sesame"}, "hear": HEAR}).unused}
    assert {"/etc/gb10-fleet/vllm-hear.env", "/etc/gb10-fleet/join-hear.key"} <= unused
    assert "/etc/gb10-fleet/vllm-chat.env" not in unused
