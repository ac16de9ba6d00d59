"""A pair loses its cable, then one of its Sparks: the other says so, serves alone as the manual has it, then both.

Real, and made up: as in test_images.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fleet.fleet import Fleet
from tests.fleet.two import INGREDIENTS, RAILS, ROLES, Two

pytestmark = [pytest.mark.lab, pytest.mark.long]

GB10 = str(Path(sys.executable).parent / "gb10")
WAIT_S = 120.0
# By command its exit status and a pattern of the line that tells. The unit fails, and then waits for its rail or peer.
CUT = {
    "drift": (5, f"nm_profile:gb10-{RAILS[0]} .*link is down"),
    "doctor": (4, f"error: no_carrier: no carrier on port p0 .{', '.join(RAILS)}"),
    "why": (0, "likely: another Spark of its cluster is gone"),  # of rails without hardware it reads no state
    "top": (0, "vllm: (failed|waiting)"),
    "ps": (0, "vllm .* (failed|waiting) "),
}


@pytest.fixture(scope="module")
def two(cleared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    hosts = Two(cleared, tmp_path_factory.mktemp("one-dead"))
    hosts.begin()
    yield hosts
    hosts.end()


def status(two: Two, host: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(two.fleet.shell(host, "cat /run/gb10-vllm/status.json"))
    return said


def until(two: Two, host: str, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What the unit of a host says of itself, once that is true."""
    end = time.monotonic() + WAIT_S
    while not true(said := status(two, host)):
        assert time.monotonic() < end, said
        time.sleep(1)
    return said


def ready(two: Two, *hosts: str) -> None:
    for host in hosts:
        until(two, host, lambda said: said["phase"] == "ready")


def inventory(two: Two, **group: Any) -> None:
    """As an operator edits it: other lines in the group of the cluster."""
    file = two.inventory / "hosts.yml"
    known = yaml.safe_load(file.read_text())
    mine = known["all"]["children"]["sparks"]["children"]["pair1"]
    mine["hosts"] = {host: mine["hosts"].get(host, {}) for host in group.pop("hosts")}
    mine["vars"] |= group
    file.write_text(yaml.safe_dump(known))


def gb10(two: Two, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [GB10, command, *words, "-i", str(two.inventory), "--", "-e", json.dumps({"gb10_roles": ROLES})]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def test_a_cable_that_is_cut_is_told_by_its_rails_and_needs_no_run(two: Two) -> None:
    two.play("converge")
    ready(two, two.first, two.second)
    try:
        for netdev in RAILS:
            subprocess.run(["ip", "-n", f"gb10-{two.second}", "link", "set", netdev, "down"], check=True)
        until(two, two.first, lambda said: said["phase"] != "ready")
        for command, (status, words) in CUT.items():
            done = gb10(two, command, *([two.first] if command == "why" else []))
            lines = [line.strip() for line in done.stdout.splitlines() if re.search(words, line)]
            assert done.returncode == status and lines, done.stdout + done.stderr
            print(f"a cable is cut: {command}: {lines[0]}")
    finally:
        for netdev in RAILS:
            subprocess.run(["ip", "-n", f"gb10-{two.second}", "link", "set", netdev, "up"], check=True)
    ready(two, two.first, two.second)
    assert two.play("converge").changed == 0


def test_one_dies_the_other_serves_alone_and_then_both_again(two: Two) -> None:
    first, second = two.first, two.second
    two.play("converge")
    ready(two, first, second)
    both = two.served()
    whole = (two.inventory / "hosts.yml").read_text()

    two.fleet.lab("power-off", second)
    lost = until(two, first, lambda said: bool(said["failure"]))["failure"]
    assert lost["verdict"] == "peer_lost" and "One Spark of a pair is dead" in json.dumps(lost), lost
    done = gb10(two, "ps")
    assert done.returncode == 3 and "One Spark of a pair is dead" in done.stderr, done.stdout + done.stderr
    print(f"one Spark is dead: ps: {done.stdout.splitlines()[1]}\none Spark is dead: ps: {done.stderr.splitlines()[0]}")
    print(f"one Spark is dead: status.json: {lost}")

    inventory(two, hosts=[first], fabric_topology="none")
    two.play("converge", "--limit", first)
    ready(two, first)
    assert "--nnodes" not in two.fleet.shell(first, "docker inspect gb10-vllm"), "it has no peer"

    two.fleet.lab("power-on", second)
    two.fleet.root(second, "python3", "-", "1", program=(INGREDIENTS / "rails.py").read_bytes())
    two.fleet.shell(second, (INGREDIENTS / "begin.sh").read_text() + "systemctl restart docker\n")
    (two.inventory / "hosts.yml").write_text(whole)
    two.play("converge")
    ready(two, first, second)
    again = two.served()
    assert {host: image for host, (image, _) in again.items()} == {host: image for host, (image, _) in both.items()}
    assert two.play("converge").changed == 0
