"""A restart of Docker names the containers of others beforehand, and starts them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import ApplyError
from ansible_collections.gb10.fleet.plugins.module_utils.reading import containers
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed

from tests.support.fake_host import FakeHost
from tests.support.systemd import FakeSystemd

JSON = "/etc/docker/daemon.json"
CONSENT = "docker_allow_restart"
TRAIN = {"Names": ["/train"], "Image": "pytorch:24.10"}
OURS = {"Names": ["/gb10-vllm"], "Image": "vllm"}


def resources(text: str) -> list[dict[str, Any]]:
    return [
        {"file": JSON, "content": text},
        {"unit": "docker.service", "state": "started", "restart_on": [JSON], "consent": CONSENT},
    ]


@pytest.fixture
def said() -> dict[str, Any]:
    """What Docker answers, by resource."""
    return {"/info": {"LiveRestoreEnabled": False}, "/containers/json": [TRAIN, OURS, {"Names": []}, "junk"]}


@pytest.fixture
def host(tmp_path: Path, said: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost(tmp_path)
    FakeSystemd(host).add("docker.service", active="active", file="enabled")
    host.on("docker start", "")
    host.converge(resources("{}"), **{CONSENT: True})
    monkeypatch.setattr(containers, "ask", lambda _host, resource: said[resource])
    host.file("/run/docker.pid", "77")
    host.file("/proc/77/stat", "")
    host.calls.clear()
    return host


def test_they_are_named_before_the_restart_and_started_again_behind_it(host: FakeHost) -> None:
    outcome = host.both(resources('{"debug": true}'), **{CONSENT: True})
    assert outcome.ends == ["train (pytorch:24.10)"]
    acts = [line for line in host.commands() if line.startswith(("systemctl restart", "docker"))]
    assert acts == ["systemctl restart docker.service", "docker start train"]


def test_what_waits_for_consent_names_them_and_ends_none(host: FakeHost) -> None:
    outcome = host.both(resources('{"debug": true}'))
    assert [item["action"] for item in outcome.pending] == ["restart"]
    assert outcome.ends == ["train (pytorch:24.10)"]
    assert host.commands("docker") == []


def test_without_a_restart_docker_is_not_asked(host: FakeHost, said: dict[str, Any]) -> None:
    said.clear()
    assert host.both(resources("{}")).ends == []


def test_live_restore_keeps_them_by_itself(host: FakeHost, said: dict[str, Any]) -> None:
    said["/info"]["LiveRestoreEnabled"] = True
    assert host.both(resources('{"debug": true}'), **{CONSENT: True}).ends == []
    assert host.commands("docker") == []


@pytest.mark.parametrize("answer", [None, [], {}, "text", 5])
def test_an_answer_of_another_kind_is_no_container(host: FakeHost, said: dict[str, Any], answer: Any) -> None:
    said["/info"] = said["/containers/json"] = answer
    assert containers.ended_with_docker(HostReader(system=host.system)) == []


def test_one_that_does_not_start_again_is_named(host: FakeHost) -> None:
    host.on("docker start train", Completed(("docker",), 1, "", "Error: No such container: train"))
    with pytest.raises(ApplyError, match=r"did not start again: train \(pytorch:24.10\): Error: No such container"):
        host.converge(resources('{"debug": true}'), **{CONSENT: True})
    assert host.converge(resources('{"debug": true}'), **{CONSENT: True}).changes == [], "the restart itself is done"


def test_they_are_started_again_where_the_run_fails(host: FakeHost) -> None:
    host.on("systemctl restart docker.service", Completed(("systemctl",), 1, "", "job failed"))
    with pytest.raises(ApplyError, match="job failed"):
        host.converge(resources('{"debug": true}'), **{CONSENT: True})
    assert host.commands("docker") == ["docker start train"]
