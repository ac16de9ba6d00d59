"""What the docker role decides about the daemon, and what needs consent; versions and sources: test_vendor_packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.software import read_docker
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import docker
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.docker import CGROUPFS, DockerPlan

OLDER = {"packages": {"docker-ce": "5:28.3.3-1~u"}}
SYSTEMD_WANTED = {"docker_daemon_options": {"exec-opts": ["native.cgroupdriver=systemd"]}}


def planned(facts: dict[str, Any] | None = None, **settings: Any) -> DockerPlan:
    bare = {
        "packages": {},
        "holds": [],
        "docker": {"running": False, "cgroup_driver": None},
        "apt_sources": {"entries": [], "conflicts": [], "offered": ["docker-ce"]},
    }
    return docker.plan(View("spark-a", {**bare, **(facts or {})}, settings))


def running(cgroup_driver: str | None) -> dict[str, Any]:
    return {"docker": {"running": True, "cgroup_driver": cgroup_driver}}


@pytest.mark.parametrize(
    ("facts", "settings", "says"),
    [
        ({}, {}, []),
        (OLDER, {}, ["Set docker_version to '5:28.3.3-1~u' to keep what is there"]),
        (OLDER, {"docker_version": "5:28.3.3-1~u"}, []),
        (OLDER, {"docker_version": "5:28.3.2-1~u"}, []),
        (OLDER, {"docker_allow_restart": "true"}, []),
        (
            OLDER | {"holds": ["vim", "docker-ce-cli", "containerd.io"]},
            {"docker_allow_restart": True},
            ["`sudo apt-mark unhold docker-ce-cli containerd.io`"],
        ),
        (OLDER | {"holds": ["docker-ce"]}, {}, ["docker_allow_restart to true to exchange", "on hold"]),
        ({"holds": ["docker-ce"]}, {}, []),
        (running("cgroupfs"), {}, []),
        (running("systemd"), {}, ["Docker runs with the cgroup driver systemd"]),
        (running("systemd"), {"docker_allow_restart": True}, []),
        (running("systemd"), SYSTEMD_WANTED, []),
        (running("systemd"), {"docker_daemon_options": {"exec-opts": None}}, []),
        ({"docker": {"running": False, "cgroup_driver": "systemd"}}, {}, []),
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


def test_docker_of_a_snap_is_found_and_comes_first(tmp_path: Path) -> None:
    for name in ("var/lib/snapd/snaps/docker_3265.snap", "proc/77/status"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "run/snap.docker").mkdir(parents=True)
    (tmp_path / "run/snap.docker/docker.pid").write_text("77\n")
    found = read_docker(HostReader(System(tmp_path)), {})
    assert (found["present"], found["running"], found.get("snap")) == (True, True, True)
    assert any("snap remove docker" in refusal for refusal in planned({"docker": found}).refusals)
    (tmp_path / "var/lib/snapd/snaps/docker_3265.snap").unlink()
    assert "snap" not in read_docker(HostReader(System(tmp_path)), {})
