"""What the docker role decides about the daemon, and what needs consent; versions and sources: test_vendor_packages."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import docker
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.docker import CGROUPFS, DockerPlan

OLDER = {"packages": {"docker-ce": "5:28.3.3-1~u"}}
UBUNTUS = {
    "other_docker": [
        {"kind": "docker.io", "version": "27.5.1", "packages": ["docker.io", "containerd"], "containers": ["a", "b"]}
    ]
}
SNAP = {"other_docker": [{"kind": "snap", "version": "28.4.0", "packages": [], "containers": None}]}
SYSTEMD_WANTED = {"docker_daemon_options": {"exec-opts": ["native.cgroupdriver=systemd"]}}


def planned(facts: dict[str, Any] | None = None, **settings: Any) -> DockerPlan:
    bare = {
        "packages": {},
        "holds": [],
        "docker": {"running": False, "cgroup_driver": None, "ends": []},
        "apt_sources": {"entries": [], "conflicts": [], "offered": ["docker-ce"]},
    }
    return docker.plan(View("spark-a", {**bare, **(facts or {})}, settings))


def running(cgroup_driver: str | None, *ends: str) -> dict[str, Any]:
    return {"docker": {"running": True, "cgroup_driver": cgroup_driver, "ends": ends}}


@pytest.mark.parametrize(
    ("facts", "settings", "says"),
    [
        ({}, {}, []),
        (UBUNTUS, {}, ["remove docker.io, containerd; these containers would end: a, b"]),
        (UBUNTUS, {"docker_allow_restart": True}, []),
        (UBUNTUS | {"packages": {"docker-ce": "5:29.2.1-1~ubuntu.24.04~noble"}}, {}, []),
        (SNAP, {"docker_allow_restart": True}, ["`sudo snap remove docker` first"]),
        (OLDER, {}, ["To keep what is there, set docker_version to '5:28.3.3-1~u'"]),
        (OLDER, {"docker_version": "5:28.3.3-1~u"}, []),
        (OLDER, {"docker_version": "5:28.3.2-1~u"}, []),
        (OLDER, {"docker_allow_restart": "true"}, []),
        (
            OLDER | {"holds": ["vim", "docker-ce-cli", "containerd.io"]},
            {"docker_allow_restart": True},
            ["`sudo apt-mark unhold docker-ce-cli containerd.io`"],
        ),
        (OLDER | {"holds": ["docker-ce"]}, {}, ["exchange it, set docker_allow_restart: true in the inv", "on hold"]),
        ({"holds": ["docker-ce"]}, {}, []),
        (running("cgroupfs"), {}, []),
        (running("systemd"), {}, ["Docker runs with the cgroup driver systemd"]),
        (running("systemd", "a (b)", "c (d)"), {}, ["ends a (b), c (d); they are started again"]),
        (running("systemd"), {"docker_allow_restart": True}, []),
        (running("systemd"), SYSTEMD_WANTED, []),
        (running("systemd"), {"docker_daemon_options": {"exec-opts": None}}, []),
        ({"docker": {"running": False, "cgroup_driver": "systemd", "ends": []}}, {}, []),
        (running(None), {}, ["has not said with which cgroup driver"]),
        (running("none"), {}, ["and its cgroup driver is none: with systemd"]),
        (running(None), SYSTEMD_WANTED, []),
    ],
)
def test_refusals(facts: dict[str, Any], settings: dict[str, Any], says: list[str]) -> None:
    refusals = planned(facts, **settings).refusals
    assert len(refusals) == len(says)
    assert [text for text, part in zip(refusals, says, strict=True) if part not in text] == []


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {"features": {"cdi": True}, "exec-opts": [CGROUPFS]}),
        ({"features": {"a": 1}}, {"features": {"cdi": True, "a": 1}, "exec-opts": [CGROUPFS]}),
        ({"features": {"cdi": False}}, {"features": {"cdi": False}, "exec-opts": [CGROUPFS]}),
        ({"features": 5, "exec-opts": []}, {"features": 5, "exec-opts": []}),
        ({"log-opts": {"tag": "x"}}, {"features": {"cdi": True}, "exec-opts": [CGROUPFS], "log-opts": {"tag": "x"}}),
    ],
)
def test_the_operators_options_go_over_ours(given: dict[str, Any], options: dict[str, Any]) -> None:
    assert planned(docker_daemon_options=given).daemon_options == options
    assert docker.OPTIONS == {"features": {"cdi": True}, "exec-opts": [CGROUPFS]}


def test_another_docker_leaves_with_consent_and_a_users_own_stays() -> None:
    made = planned(UBUNTUS, docker_allow_restart=True)
    assert made.exchanged == ("docker.io", "containerd") and not made.findings
    own = {"other_docker": [{"kind": "rootless", "version": None, "packages": [], "containers": None}]}
    made = planned(own)
    assert (made.exchanged, made.refusals, [found["id"] for found in made.findings]) == ((), (), ["other_docker"])


def test_a_docker_that_may_stay_is_said() -> None:
    (refusal,) = planned(UBUNTUS).refusals
    assert "leave docker out of gb10_roles" in refusal and "is not installed" not in refusal
