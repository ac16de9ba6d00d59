"""The plug of a Spark is pulled in the middle of a load: what its peer has kept of it tells its last second.

Runs on the pair of test_pair.py or alone. `GB10_PULLS=10` pulls ten times, in turn on both hosts; a round is some 90 s,
most of it the boot.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab import lifecycle
from tests.support.rig import ROOT

from .conftest import Pair

pytestmark = [pytest.mark.lab, pytest.mark.long]

PULLS = int(os.environ.get("GB10_PULLS", "1"))
SAID = {
    "gb10_roles": ["kernel_parameters", "fabric", "flight_recorder"],
    "fabric_allow_activation": True,
    "flight_recorder_enabled": True,
    "flight_recorder_key": "k" * 32,
}
ONLY_RECORDER = ("-e", json.dumps(SAID))
LOAD = "sudo systemd-run --quiet --collect --unit=load --nice=5 sh -c 'while :; do :; done'"
# A sample each second, so the last one is younger than that when it is written; an emulated machine may be late by one.
YOUNGEST_S = 2.0
LOOKS_AT_THE_CLOCK = 5


@pytest.fixture(scope="module", autouse=True)
def _recorder(pair: Pair) -> Iterator[None]:
    assert pair.play(*ONLY_RECORDER, "--skip-tags", "validate").rc == 0
    for host in pair.hosts:
        pair.ssh(host, "sync")  # what the role wrote is not what the plug may take
    yield
    assert pair.play(*ONLY_RECORDER, "-e", "gb10_undo=flight_recorder", playbook="playbooks/undo.yml").rc == 0


def behind(pair: Pair, host: str) -> float:
    """Seconds to add to this machine's time for that of the host, from the fastest of some answers."""
    found = []
    for _ in range(LOOKS_AT_THE_CLOCK):
        began = time.time()
        said = float(pair.ssh(host, "date +%s.%N"))
        took = time.time() - began
        found.append((took, said - began - took / 2))
    return min(found)[1]


def kept(pair: Pair, host: str) -> list[dict[str, Any]]:
    """What the other host has of this one."""
    (peer,) = set(pair.hosts) - {host}
    lines = pair.ssh(peer, f"sudo cat /var/lib/gb10-recorder/{host}.jsonl 2>/dev/null || true").splitlines()
    return [json.loads(line) for line in lines]


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


@pytest.mark.parametrize("pull", range(PULLS))
def test_the_last_second_before_the_plug_was_pulled(pair: Pair, pull: int) -> None:
    host = pair.hosts[(pull + 1) % len(pair.hosts)]
    pair.lab("gpu", host, "loaded")
    pair.ssh(host, LOAD)
    offset = behind(pair, host)
    begun = kept(pair, host)
    deadline = time.monotonic() + 120
    while not any(line.get("utilization_percent", 0) > 90 for line in kept(pair, host)[len(begun) :]):
        assert time.monotonic() < deadline, f"the peer keeps nothing of {host} under load"
        time.sleep(1)
    pulled = time.time() + offset
    lifecycle.power_off(host)
    before = len(kept(pair, host))
    pair.lab("power-on", host)
    pair.until(host, "systemctl is-active gb10-recorder-send")

    told = why(pair, host)
    recorded = [entry for entry in told["timeline"] if entry["kind"] == "recorded"]
    assert recorded, told["timeline"][-20:]
    lines = kept(pair, host)[:before]
    last_s = max(line["at_s"] for line in lines if "utilization_percent" in line)
    print(f"{host}: pulled at {pulled:.2f}, last sample at {last_s:.2f}: {pulled - last_s:.2f} s before")
    assert pulled - last_s < YOUNGEST_S
    assert "96 % busy" in [entry["text"] for entry in recorded if "MHz" in entry["text"]][-1], recorded[-3:]
    assert recorded[-1]["at"] == datetime.fromtimestamp(max(line["at_s"] for line in lines), UTC).strftime(
        "%Y-%m-%d %H:%M:%S"
    )
    assert told["causes"][0]["id"] == "power_off", told["causes"]
