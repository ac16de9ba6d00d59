"""A whole reading from a made-up root, with the lab's simulated nvidia-smi as a program: each scenario its verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import judge
from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import collect
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, System

from lab.vendor.packages import nvidia_smi
from tests.support.health import RULES, Record, problem

H100 = Path(__file__).parents[2] / "fixtures/health/h100"
DRIVER = "580.142"
BOOT = "5b0a0a446a514b219a3c2f60c3d0a001"
SMART = '{"critical_warning": 0, "avail_spare": 100, "percent_used": 2, "unsafe_shutdowns": 4}'
NA = ", ".join(["NVIDIA GB10", DRIVER, *["[N/A]"] * 7])


class Still(Clock):
    """Nobody waits."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def write(root: Path, path: str, text: str) -> None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


class Machine:
    """Commands of the host: the simulated nvidia-smi as a program, or what a test says instead."""

    def __init__(self, root: Path) -> None:
        self.root, self.lab = root, root / "run/gb10-lab"
        self.said: dict[str, Completed] = {}
        self.calls: list[Sequence[str]] = []

    def __call__(self, argv: Sequence[str], _stdin: str | None, _timeout: float) -> Completed:
        self.calls.append(argv)
        if argv[0] in self.said:
            return self.said[argv[0]]
        if argv[0] != "nvidia-smi":
            return Completed(tuple(argv), 127, stderr=f"{argv[0]}: No such file or directory")
        program = self.lab / "nvidia-smi"
        environment = {**os.environ, "GB10_LAB_RUN": str(self.lab)}
        try:
            done = subprocess.run(
                [sys.executable, program, *argv[1:]], env=environment, capture_output=True, text=True, timeout=20
            )
        except subprocess.TimeoutExpired:
            return Completed(tuple(argv), 124)
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)

    def says(self, program: str, stdout: str, rc: int = 0) -> None:
        self.said[program] = Completed((program,), rc, stdout)


@pytest.fixture(name="machine")
def fixture_machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    for name in ("meminfo", "vmstat", "uptime"):
        write(tmp_path, f"/proc/{name}", (H100 / name).read_text())
    for name in ("cpu", "memory", "io"):
        write(tmp_path, f"/proc/pressure/{name}", (H100 / f"pressure-{name}").read_text())
    with (tmp_path / "proc/meminfo").open("a") as file:
        file.write("CmaTotal:              0 kB\nCmaFree:               0 kB\n")
    write(tmp_path, "/proc/buddyinfo", f"Node 0, zone Normal{' 0' * 13} 3000\n")
    write(tmp_path, "/proc/cmdline", "root=/dev/nvme0n1p2 kho=off quiet\n")
    write(tmp_path, "/proc/sys/kernel/osrelease", "6.17.0-1014-nvidia\n")
    write(tmp_path, "/proc/sys/kernel/random/boot_id", "5b0a0a44-6a51-4b21-9a3c-2f60c3d0a001\n")
    write(tmp_path, "/sys/class/dmi/id/bios_version", "5.36_0ACUM018\n")
    sensors(tmp_path)
    write(tmp_path, "/var/log/journal/x/system.journal", "")
    write(tmp_path, "/var/log/apt/history.log", (H100 / "apt.txt").read_text())
    machine.says("nvme", SMART)
    machine.says("journalctl", json.dumps([{"boot_id": BOOT, "first_entry": 10**15, "last_entry": 2 * 10**15}]))
    file = nvidia_smi(DRIVER)
    write(tmp_path, "/run/gb10-lab/nvidia-smi", file.content.decode())
    write(tmp_path, "/run/gb10-lab/loaded-driver", DRIVER)
    return machine


def sensors(root: Path) -> None:
    for number, heat in enumerate((52000, 61300, -274000)):
        write(root, f"/sys/class/thermal/thermal_zone{number}/type", "acpitz\n")
        write(root, f"/sys/class/thermal/thermal_zone{number}/temp", f"{heat}\n")
    write(root, "/sys/class/thermal/thermal_zone0/trip_point_0_type", "critical\n")
    write(root, "/sys/class/thermal/thermal_zone0/trip_point_0_temp", "104800\n")
    for file, text in {
        "name": "spbm",
        "power1_input": "21500000",
        "power1_label": "sys_total",
        "temp1_input": "x",
    }.items():
        write(root, f"/sys/class/hwmon/hwmon3/{file}", f"{text}\n")
    write(root, "/sys/class/nvme/nvme0/model", "made up\n")
    base = "/sys/class/infiniband/rocep1s0f0"
    for file, text in {
        "device/current_link_width": "4", "device/max_link_width": "16", "device/current_link_speed": "32.0 GT/s PCIe",
        "device/max_link_speed": "32.0 GT/s PCIe", "device/net/enp1s0f0np0/mtu": "9000", "ports/1/state": "4: ACTIVE",
        "ports/1/rate": "200 Gb/sec (4X HDR)", "ports/1/counters/symbol_error": "0",
        "ports/1/counters/port_rcv_data": "123456", "ports/1/hw_counters/out_of_sequence": "7",
        "ports/1/hw_counters/lifespan": "10",
    }.items():  # fmt: skip
        write(root, f"{base}/{file}", f"{text}\n")
    write(root, "/sys/class/net/enp1s0f0np0/carrier", "1\n")
    write(root, "/sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n")  # no hardware


def read(machine: Machine, samples: int = 5) -> Record:
    clock = Still()
    host = replace(HostReader(), system=System(machine.root, machine, clock, privileged=True))
    found = collect(host, samples)
    assert problem(json.loads(json.dumps(found))) is None
    return found


def alarms(record: Record) -> list[str]:
    return [finding.id for finding in judge("spark-a", record, RULES).findings]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scenario", "found"),
    [
        ("idle", []),
        ("loaded", []),
        ("throttled", ["power_fault"]),
        ("absent", ["gpu_absent"]),
    ],
)
def test_each_scenario_gives_its_verdict_and_nothing_else(machine: Machine, scenario: str, found: list[str]) -> None:
    write(machine.root, "/run/gb10-lab/gpu-scenario", scenario)
    record = read(machine)
    assert alarms(record) == found
    assert len(record["samples"]) == 5


def test_a_driver_that_hangs_is_asked_once(machine: Machine) -> None:
    machine.says("nvidia-smi", "", 124)
    record = read(machine)
    assert alarms(record) == ["gpu_silent"]
    assert len(record["samples"]) == 1


@pytest.mark.parametrize(
    ("said", "rc", "found"),
    [
        (f"{NA}\n", 0, []),  # a row without tlimit, as this nvidia-smi has it
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.142\n", 18,
         ["gpu_mismatch"]),
        ("x" * 10_000_000, 0, ["gpu_unreadable"]),
        ("\x1b[2J" * 2_500_000, 0, ["gpu_unreadable"]),
        ("", 0, ["gpu_unreadable"]),
    ],
)  # fmt: skip
def test_answers_that_make_no_sense(machine: Machine, said: str, rc: int, found: list[str]) -> None:
    if said.startswith("NVIDIA GB10"):
        said = ", ".join(["NVIDIA GB10", DRIVER, *["[N/A]"] * 8]) + "\n"
    machine.says("nvidia-smi", said, rc)
    record = read(machine)
    assert alarms(record) == found
    assert len(json.dumps(record)) < 40_000


def test_no_driver_and_another_one(machine: Machine) -> None:
    write(machine.root, "/run/gb10-lab/loaded-driver", "580.159.03")
    assert alarms(read(machine, 1)) == ["gpu_mismatch"]
    (machine.lab / "loaded-driver").unlink()
    assert alarms(read(machine, 1)) == ["gpu_no_driver"]


def test_a_whole_reading(machine: Machine) -> None:
    record = read(machine, 2)
    assert (record["kernel"], record["kho_off"], record["firmware"]) == ("6.17.0-1014-nvidia", True, "5.36_0ACUM018")
    assert record["boot"] == BOOT[:12]
    assert record["clock_lock_mhz"] is None
    unit = "[Service]\nExecStart=/usr/local/sbin/gb10-clock-lock 300 1400\nExecStop=-/usr/bin/nvidia-smi -rgc\n"
    write(machine.root, "/etc/systemd/system/gb10-clock-lock.service", unit)
    assert read(machine, 1)["clock_lock_mhz"] == 1400
    assert [(zone["temperature_c"], zone["critical_c"]) for zone in record["zones"]] == [
        (52, 104.8), (61.3, None), (None, None),
    ]  # fmt: skip
    assert record["hwmon"] == [{"chip": "spbm", "label": "sys_total", "unit": "power_w", "value": 21.5}]
    assert record["disks"][0]["used_percent"] == 2
    (rail,) = record["samples"][0]["rails"]
    assert (rail["hca"], rail["netdev"], rail["state"], rail["carrier"]) == (
        "rocep1s0f0", "enp1s0f0np0", "ACTIVE", True,
    )  # fmt: skip
    assert (rail["pcie"]["width"], rail["rate_gbps"], rail["counters"]) == (4, 200, {"out_of_sequence": 7})
    assert record["boots"][0]["clean"] is None
    assert "tlimit" in "".join(record["unknown"])
    assert record["uptime_s"] == 62.64


def test_an_empty_host_gives_only_reasons(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.says("nvidia-smi", "", 127)
    record = read(machine, 1)
    assert alarms(record) == ["gpu_no_program"]
    nothing: dict[str, Any] = {name: record[name] for name in ("zones", "hwmon", "disks", "boots", "events", "apt")}
    assert set(nothing.values()) == {None}
    assert set(nothing) <= {path.partition(".")[0] for path in record["unknown"]}


def test_unclean_boots_come_with_their_last_lines(machine: Machine) -> None:
    former = "a" * 32
    listing = json.dumps(
        [
            {"boot_id": former, "first_entry": 10**15, "last_entry": 10**15 + 10**9},
            {"boot_id": BOOT, "first_entry": 2 * 10**15, "last_entry": 3 * 10**15},
        ]
    )
    line = {"__REALTIME_TIMESTAMP": str(10**15 + 10**9), "_BOOT_ID": former, "MESSAGE": "the last words"}

    def journal(argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        if argv[0] != "journalctl":
            return machine(argv, stdin, timeout)
        if "--list-boots" in argv:
            return Completed(tuple(argv), 0, listing)
        return Completed(tuple(argv), 0, json.dumps(line) if f"_BOOT_ID={former}" in argv else "")

    host = replace(HostReader(), system=System(machine.root, journal, Still(), privileged=True))
    first, second = collect(host)["boots"]
    assert (first["clean"], [each["text"] for each in first["last_lines"]]) == (False, ["the last words"])
    assert (second["clean"], second["last_lines"]) == (None, [])


@pytest.mark.parametrize("garbage", ["", "x" * 10_000_000, "9" * 100_000, "9" * 30, "[[[[", "{}", "\0"])
def test_garbage_in_every_file_and_from_every_program(machine: Machine, garbage: str) -> None:
    for path in [path for path in machine.root.rglob("*") if path.is_file() and "gb10-lab" not in path.parts]:
        path.write_text(garbage[:1_100_000])
    for program in ("nvidia-smi", "journalctl", "nvme", "smartctl", "dmesg"):
        machine.says(program, garbage)
    record = read(machine, 1)
    assert alarms(record) == ["gpu_unreadable"]
    assert len(json.dumps(record)) < 20_000
