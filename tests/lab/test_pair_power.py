"""The plug of a Spark is pulled in the middle of a load: what its peer has kept of it tells its last second.

Besides: what the recorder costs, and that nothing else is lost where it is killed. Runs on the pair of test_pair.py or
alone. `GB10_PULLS=10` pulls ten times, in turn on both hosts; a round is some 90 s, most of it the boot.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import lifecycle
from tests.support.lab_pair import Pair
from tests.support.rig import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.long]

PULLS = int(os.environ.get("GB10_PULLS", "1"))
SAID = {
    "gb10_roles": ["kernel_parameters", "fabric", "flight_recorder"],
    "fabric_allow_activation": True,
    "flight_recorder_enabled": True,
    "flight_recorder_key": "k" * 32,
}
ONLY_RECORDER = ("-e", json.dumps(SAID))
LOAD = (
    "sudo systemctl stop load 2>/dev/null;"
    " sudo systemd-run --quiet --collect --unit=load --nice=5 sh -c 'while :; do :; done'"
)
# A sample each second, so the last one is younger than that when it is written; an emulated machine may be late by one.
YOUNGEST_S = 2.0
LOADED_PERCENT = 96  # what the simulated GPU says of itself
TELL = "import time\nwhile True: print(time.time()); time.sleep(0.1)"
HOLE_S = 4.0  # of a host that sent all the while: what was on its way to a keeper that was killed
UNITS = ("gb10-recorder-send", "gb10-recorder-keep")
MINUTE_S = 60
# The bars: of a core, and of bytes on the rail in a minute.
MOST_OF_A_CORE, MOST_BYTES = 0.01, 1_000_000
# Plain work of the same size everywhere: how much slower an emulated CPU is than this machine's. Reading /proc and an
# HMAC, of which the recorder has more, are slower still by a larger factor.
YARDSTICK = """
import time
began = time.process_time()
for number in range(10**6):
    number * number % 7
print(time.process_time() - began)
"""
# Some 20 kB/s of lines that are the kernel's own, which those of a user in /dev/kmsg are not: the help of SysRq.
FLOOD = "sh -c 'while :; do for line in 1 2 3 4 5; do echo h >/proc/sysrq-trigger; done; sleep 0.1; done'"
COUNTED = "sudo journalctl _SYSTEMD_INVOCATION_ID=$(systemctl show --value --property=InvocationID count) --output=cat"
COUNT = "sh -c 'n=0; while :; do echo $n; n=$((n + 1)); sleep 1; done'"


@pytest.fixture(scope="module", autouse=True)
def _recorder(pair: Pair) -> Iterator[None]:
    assert pair.play(*ONLY_RECORDER, "--skip-tags", "validate").rc == 0
    for host in pair.hosts:
        pair.ssh(host, "sync")  # what the role wrote is not what the plug may take
    yield
    assert pair.play(*ONLY_RECORDER, "-e", "gb10_undo=flight_recorder", playbook="playbooks/undo.yml").rc == 0


class Clock:
    """What a host says of its own time, ten times a second, until it is gone."""

    def __init__(self, host: str, folder: Path) -> None:
        self._heard = folder / "clock"
        argv = [sys.executable, "-m", "lab", "ssh", host, f"python3 -uc '{TELL}'"]
        with self._heard.open("wb") as out:
            self._child = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out)

    @property
    def heard(self) -> list[str]:
        return self._heard.read_text().splitlines()

    def last(self) -> float:
        """The last that was heard."""
        return float(self.heard[-1])

    def end(self) -> None:
        self._child.kill()
        self._child.wait()


def kept(pair: Pair, host: str) -> list[dict[str, Any]]:
    """What the other host has of this one."""
    (peer,) = set(pair.hosts) - {host}
    text = pair.ssh(peer, f"sudo cat /var/lib/gb10-recorder/{host}.jsonl 2>/dev/null | tr -d '\\0'")
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):  # cut, where the plug of that host was pulled
            found.append(json.loads(line))
    return found


def why(pair: Pair, host: str) -> dict[str, Any]:
    """As somebody asks in the morning."""
    command = [Path(sys.executable).parent / "gb10", "why", host, "-i", pair.inventory, "--json", "--", *ONLY_RECORDER]
    done = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    (found,) = json.loads(done.stdout)["hosts"]
    return dict(found)


def counted(pair: Pair, host: str) -> tuple[float, float, int]:
    """Of one moment: seconds since its boot, those of its CPU for both units, and bytes that left on the rail."""
    to = json.loads(pair.ssh(host, "cat /etc/gb10-fleet/recorder.json"))["to"]["address"]
    ask = f"""
        cut -d' ' -f1 /proc/uptime
        systemctl show --value --property=CPUUsageNSec {" ".join(UNITS)}
        cat /sys/class/net/$(ip route get {to} | grep -o 'dev [^ ]*' | cut -d' ' -f2)/statistics/tx_bytes"""
    uptime, send, keep, sent = pair.ssh(host, ask).split()
    return float(uptime), (int(send) + int(keep)) / 1e9, int(sent)


def in_a_minute(pair: Pair, host: str) -> tuple[float, float]:
    """Of a core, and bytes: both for a minute of the host's own clock."""
    began, cpu, sent = counted(pair, host)
    time.sleep(MINUTE_S)
    ended, cpu_after, sent_after = counted(pair, host)
    return (cpu_after - cpu) / (ended - began), (sent_after - sent) * MINUTE_S / (ended - began)


def slower(pair: Pair, host: str) -> float:
    """How many times as long the CPU of a host works as this machine's."""
    here = subprocess.run(["/usr/bin/python3", "-"], input=YARDSTICK, capture_output=True, text=True, check=True)
    text = base64.b64encode(YARDSTICK.encode()).decode()
    return float(pair.ssh(host, f"echo {text} | base64 -d | python3 -")) / float(here.stdout)


def test_it_costs_next_to_nothing(pair: Pair) -> None:
    """An emulated CPU is slower than a real one by a factor, which is measured beside. nvidia-smi is a stand-in."""
    for host in pair.hosts:
        before = slower(pair, host)
        share, sent_bytes = in_a_minute(pair, host)
        factor = min(before, slower(pair, host))
        print(
            f"{host}: {share:.2%} of an emulated core, which is {factor:.1f} times slower than this machine's:"
            f" {share / factor:.3%} of a core; {sent_bytes / 1000:.0f} kB a minute on the rail"
        )
        assert share / factor < MOST_OF_A_CORE
        assert sent_bytes < MOST_BYTES


def test_a_flood_of_the_kernel_stays_within_a_megabyte_a_minute(pair: Pair) -> None:
    host = pair.hosts[0]
    pair.ssh(host, f"sudo systemd-run --quiet --collect --unit=flood {FLOOD}")
    try:
        _, sent_bytes = in_a_minute(pair, host)
    finally:
        pair.ssh(host, "sudo systemctl stop flood")
    print(f"{host}: {sent_bytes / 1000:.0f} kB a minute on the rail in a flood")
    assert any(line.get("dropped") for line in kept(pair, host)), "no flood: nothing was dropped"
    assert sent_bytes < MOST_BYTES


def test_a_killed_recorder_loses_no_other_data(pair: Pair) -> None:
    """What was kept stays, the other host's record and the journals have no hole, and both units come back."""
    killed, other = pair.hosts
    for host in pair.hosts:
        pair.ssh(host, f"sudo systemd-run --quiet --collect --unit=count {COUNT}")
    had = {host: kept(pair, host) for host in pair.hosts}
    for unit in UNITS:
        pair.ssh(killed, f"sudo systemctl kill --kill-whom=all --signal=KILL {unit}")
    for host in pair.hosts:
        last_s = had[host][-1]["at_s"]
        pair.until(killed, f"systemctl is-active {' '.join(UNITS)}", limit_s=120)
        deadline = time.monotonic() + 120
        while kept(pair, host)[-1]["at_s"] < last_s + 30:
            assert time.monotonic() < deadline, f"the record of {host} does not go on"
            time.sleep(3)
    for host in pair.hosts:
        now = kept(pair, host)
        assert now[: len(had[host])] == had[host], f"of {host} something that was kept is gone"
        print(f"{host}: the longest hole in its record is {hole(now[len(had[host]) - 1 :]):.1f} s")
        numbers = list(map(int, pair.ssh(host, COUNTED).split()))
        assert numbers == list(range(len(numbers))) and len(numbers) > 30, f"the journal of {host} has a hole"
        pair.ssh(host, "sudo systemctl stop count")
    after = kept(pair, other)[len(had[other]) - 1 :]
    assert hole(after) < HOLE_S, f"{other}, which still sent, has a hole in its record"


def hole(lines: list[dict[str, Any]]) -> float:
    """The longest time between two lines."""
    times = [line["at_s"] for line in lines]
    return max(after - before for before, after in itertools.pairwise(times))


@pytest.fixture(scope="module")
def pulls() -> dict[str, list[tuple[float, float]]]:
    """Of each host: when its plug was pulled, and the last that its peer had of it then; both by its own clock."""
    return {}


@pytest.mark.parametrize("pull", range(PULLS))
def test_the_peer_has_the_last_second_before_the_plug_was_pulled(
    pair: Pair, pulls: dict[str, list[tuple[float, float]]], pull: int, tmp_path: Path
) -> None:
    host = pair.hosts[(pull + 1) % len(pair.hosts)]
    pair.lab("gpu", host, "loaded")
    pair.ssh(host, LOAD)
    clock = Clock(host, tmp_path)
    begun = kept(pair, host)
    deadline = time.monotonic() + 120
    # A busy emulated host takes seconds until it says its first time.
    while not (clock.heard and any(line.get("utilization_percent", 0) > 90 for line in kept(pair, host)[len(begun) :])):
        assert time.monotonic() < deadline, f"the peer keeps nothing of {host} under load"
        time.sleep(1)
    lifecycle.power_off(host)
    lines = kept(pair, host)
    pair.lab("power-on", host)
    pair.until(host, "systemctl is-active gb10-recorder-send")
    pulled = clock.last()
    clock.end()
    pulls.setdefault(host, []).append((pulled, max(line["at_s"] for line in lines)))

    last_s = max(line["at_s"] for line in lines if line.get("utilization_percent") == LOADED_PERCENT)
    print(f"{host}: pulled at {pulled:.2f}, last sample at {last_s:.2f}: {pulled - last_s:.2f} s before")
    assert pulled - last_s < YOUNGEST_S


def test_why_tells_the_last_second_of_each_pull(pair: Pair, pulls: dict[str, list[tuple[float, float]]]) -> None:
    assert pulls
    for host, ends in pulls.items():
        told = why(pair, host)
        samples = [
            entry
            for entry in told["timeline"]
            if entry["kind"] == "recorded" and f"{LOADED_PERCENT} % busy" in entry["text"]
        ]
        shown = [max(entry["at_s"] for entry in samples if entry["at_s"] <= last_s) for _, last_s in ends]
        late = [round(pulled - at_s, 2) for (pulled, _), at_s in zip(ends, shown, strict=True)]
        print(f"{host}: gb10 why shows a sample of {late} s before each pull")
        assert max(late) < YOUNGEST_S
        assert told["causes"][0]["id"] == "power_off", told["causes"]
