"""The services of a host as its units and files have them, and whether memory came back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import services
from ansible_collections.gb10.fleet.plugins.module_utils.reading.services import GIB, Memory
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import MANIFEST
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System

from tests.support.world import NoClock

SHOWN = {
    "gb10-vllm.service": ("active", "enabled", "@1795420800"),
    "gb10-vllm-embed.service": ("inactive", "disabled", ""),
}
ARGV = [
    "/usr/bin/docker",
    "run",
    "--port",
    "6379",
    "img",
    "serve",
    "org/model",
    "--served-model-name",
    "m",
    "--port",
    "8000",
]
MEMINFO = {
    **{"MemTotal": 100, "MemFree": 40, "MemAvailable": 60, "Buffers": 1, "Cached": 20, "AnonPages": 8, "Slab": 1},
    **{"KernelStack": 0, "PageTables": 0, "Percpu": 0, "Hugetlb": 0, "Shmem": 0},
}


class Host:
    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, NoClock()
        self.file("/proc/meminfo", meminfo())

    def file(self, path: str, content: Any) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content if isinstance(content, str) else json.dumps(content))

    def run(self, argv: Any, stdin: Any, timeout: float) -> Completed:
        assert argv[:3] == ["systemctl", "show", "--timestamp=unix"]
        keys = ("ActiveState", "UnitFileState", "StateChangeTimestamp")
        blocks = [
            "\n".join(f"{key}={value}" for key, value in zip(keys, SHOWN[unit], strict=True)) for unit in argv[5:]
        ]
        return Completed(tuple(argv), 0, "\n\n".join(blocks) + "\n")

    @property
    def system(self) -> System:
        return System(self.root, self.run, self.clock, privileged=True)


def meminfo(**gib: int) -> str:
    return "".join(f"{name}: {count * GIB // 1024} kB\n" for name, count in {**MEMINFO, **gib}.items())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_host_without_services_is_not_asked(host: Host) -> None:
    host.file("/etc/systemd/system/gb10-wish-gb10-vllm.service", "")
    assert services.read(host.system) == []


def test_one_service_and_many(host: Host) -> None:
    for unit in SHOWN:
        host.file(f"/etc/systemd/system/{unit}", "[Service]\n")
    join = {"rank": 1, "members": [{"name": "spark-a", "address": "x"}, {"name": "spark-b", "address": "y"}]}
    host.file("/etc/gb10-fleet/vllm.json", {"argv": ARGV, "memory_gib": 96, "join": join})
    host.file(
        "/run/gb10-vllm/status.json", {"phase": "ready", "phases": {"waiting": 99, "weights": 300, "graphs": 40.5}}
    )
    host.file("/etc/gb10-fleet/vllm-embed.json", {"argv": [], "memory_gib": 8, "join": None})
    host.file("/run/gb10-vllm-embed/status.json", "{")
    wish = {"who": "a@b", "since": "2026-11-23T06:00:00Z", "until": ""}
    manifest = {"format": 1, "resources": {}, "unfinished": None, "wishes": {"unit:gb10-vllm-embed.service": wish}}
    host.file(MANIFEST, manifest)
    embed, vllm = services.read(host.system)
    assert (vllm["name"], vllm["state"], vllm["enabled"], vllm["since"]) == ("vllm", "active", True, 1795420800)
    assert (vllm["model"], vllm["served_name"], vllm["port"], vllm["memory_gib"]) == ("org/model", "m", 8000, 96)
    assert vllm["url"] == "http://127.0.0.1:8000"
    assert (vllm["phase"], vllm["load_s"], vllm["wish"]) == ("ready", 340.5, None)
    assert (vllm["members"], vllm["rank"]) == (["spark-a", "spark-b"], 1)
    assert (embed["name"], embed["container"], embed["phase"]) == ("embed", "gb10-vllm-embed", None)
    assert embed["wish"] == {"unit": "gb10-vllm-embed.service", **wish, "shown": ""}
    assert (embed["model"], embed["port"], embed["since"], embed["load_s"]) == (None, None, None, None)


@pytest.mark.parametrize(
    "written",
    [
        {"argv": 7},
        {"serves": 1},
        {"serves": {}, "api": {}},
        {"join": [1]},
        {"join": {"members": 3}},
        {"join": {"members": [{}]}},
        {"join": {"rank": "x"}},
    ],
    ids=str,
)
def test_settings_that_somebody_else_wrote_hide_no_service(host: Host, written: dict[str, Any]) -> None:
    host.file("/etc/systemd/system/gb10-vllm.service", "[Service]\n")
    host.file("/etc/gb10-fleet/vllm.json", written)
    (vllm,) = services.read(host.system)
    assert (vllm["state"], vllm["model"], vllm["members"], vllm["rank"]) == ("active", None, [], 0)


def test_hidden_memory_is_what_no_account_has(host: Host) -> None:
    assert services.memory(host.system) == {"total": 100 * GIB, "available": 60 * GIB, "hidden": 30 * GIB}
    host.file("/proc/meminfo", "MemTotal: 1 kB\n")
    assert services.memory(host.system) is None


@pytest.mark.parametrize(
    ("hidden", "others", "verdict"),
    [
        (0, 0, "memory_returned"),
        (7, 0, "memory_returned"),
        (8, 0, "memory_not_returned"),
        (40, 0, "memory_not_returned"),
        (40, 40, "memory_returned"),  # another service has it
        (50, 40, "memory_not_returned"),
    ],
)
def test_memory_in_use_by_nobody_did_not_return(hidden: int, others: int, verdict: str) -> None:
    before, after = 10 * GIB, Memory(total=100 * GIB, available=60 * GIB, hidden=hidden * GIB)
    said = services.judge(before, after, 40, others, 8)
    assert said["verdict"] == verdict
    assert said["text"].startswith("60 GiB are available, 10 before; the service was given 40")
    assert bool(said["way_out"]) == (verdict == "memory_not_returned")


def test_it_is_waited_for_and_not_longer_than_needed(host: Host) -> None:
    class Frees(NoClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.time >= 5:
                host.file("/proc/meminfo", meminfo(MemFree=70))

    host.clock = Frees()
    assert services.returned(host.system, None, 30, 0, 8, 60)["verdict"] == "memory_returned"
    assert host.clock.time == 5
    host.file("/proc/meminfo", meminfo())
    host.clock = NoClock()
    assert services.returned(host.system, None, 30, 0, 8, 60)["verdict"] == "memory_not_returned"
    assert host.clock.time == 60


@pytest.mark.parametrize("phases", [None, "x", {}, {"waiting": 3, "starting": 2}])
def test_a_load_that_is_not_known(phases: Any) -> None:
    assert services.load_seconds(phases) is None


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("192.0.2.7", "192.0.2.7"), ("::", "[::1]")],  # noqa: S104 - no socket
)
def test_a_server_is_asked_where_it_listens(tmp_path: Path, host: str, url: str) -> None:
    made = Host(tmp_path)
    made.file("/etc/systemd/system/gb10-vllm.service", "")
    made.file("/etc/gb10-fleet/vllm.json", {"argv": [*ARGV, "--host", host]})
    (found,) = services.read(made.system)
    assert found["url"] == f"http://{url}:8000"


@pytest.mark.parametrize(
    ("words", "tools"),
    [([], False), (["--tool-call-parser", "hermes"], True), (["--tool-call-parser=qwen3_coder"], True)],
)
def test_whether_a_model_calls_tools_stands_in_its_command_line(host: Host, words: list[str], tools: bool) -> None:
    host.file("/etc/systemd/system/gb10-vllm.service", "[Service]\n")
    for more in ({}, {"serves": {"model": "org/model", "name": "m"}, "api": None}):  # vLLM, and another engine
        host.file("/etc/gb10-fleet/vllm.json", {"argv": [*ARGV, *words], **more})
        assert services.read(host.system)[0]["tools"] is tools
