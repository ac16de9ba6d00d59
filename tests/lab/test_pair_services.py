"""A service of a cluster beside a service of one host, on machines: each is lost and comes back by itself.

The server is simulated; real are Docker's engine, systemd, the kernels and the cable. Runs on the pair of the files
before it, or alone.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.lab_pair import Pair
from tests.support.rig import Play

pytestmark = [pytest.mark.lab, pytest.mark.long]

BIG = {"model": "openai/gpt-oss-120b", "memory_gib": 70}
SMALL = {"model": "openai/gpt-oss-20b", "memory_gib": 20, "port": 8001, "span": "host", "hosts": ["spark-a"]}
BOTH = {"big": BIG, "small": SMALL}
CLUSTER, NEIGHBOUR = (("big", "spark-a"), ("big", "spark-b")), (("small", "spark-a"),)
# A lab machine has 2 GiB, and the system of a Spark keeps more than that. What these two say they have is a Spark's.
MEMORY = """set -e
cat >{program} <<'END'
#!/bin/sh -e
sed -E 's/^(MemTotal|MemFree|MemAvailable): .*/\\1: 125000000 kB/' /proc/meminfo >/run/lab-meminfo
mount --bind /run/lab-meminfo /proc/meminfo
END
chmod 755 {program}
cat >{unit} <<'END'
[Unit]
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={program}
[Install]
WantedBy=sysinit.target
END
systemctl daemon-reload
systemctl enable --now --quiet lab-meminfo.service
grep -q '^MemTotal: 125000000 kB' /proc/meminfo
"""
PROGRAM, UNIT = "/usr/local/sbin/lab-meminfo", "/etc/systemd/system/lab-meminfo.service"
NO_MEMORY = f"systemctl disable --now lab-meminfo.service; umount -l /proc/meminfo; rm -f {UNIT} {PROGRAM}"
BACK_S = 600  # an emulated machine boots in 80 s, and loads two models one after the other
Lives = dict[tuple[str, str], str]


def play(pair: Pair, services: dict[str, Any], playbook: str = "site.yml") -> Play:
    return pair.play("-e", json.dumps({"vllm_model": "", "vllm_services": services}), playbook=playbook)


def root(pair: Pair, host: str, script: str) -> None:
    text = base64.b64encode(script.encode()).decode()
    pair.ssh(host, f"echo {text} | base64 -d | sudo sh", timeout=300)


def life(pair: Pair, service: str, host: str) -> str:
    """Systemd's mark of this life of its unit, once it is ready; empty before."""
    unit = f"gb10-vllm-{service}"
    ask = (
        f'systemctl is-active --quiet {unit} && sudo grep -q \'"phase": "ready"\' /run/{unit}/status.json'
        f" && systemctl show -p InvocationID --value {unit}"
    )
    said = pair.lab("ssh", host, ask, check=False, timeout=60)
    return said.split()[0] if said.endswith("rc=0") else ""


def ready(pair: Pair, anew: Lives | None = None) -> Lives:
    """The lives of all, once all are ready: those of `anew` in another life than then."""
    until = time.monotonic() + BACK_S
    while True:
        lives = {each: life(pair, *each) for each in (*CLUSTER, *NEIGHBOUR)}
        if all(lives.values()) and all(lives[each] != before for each, before in (anew or {}).items()):
            return lives
        assert time.monotonic() < until, (lives, anew)
        time.sleep(3)


def of(lives: Lives, *which: tuple[str, str]) -> Lives:
    return {each: lives[each] for each in which}


@pytest.fixture(scope="module")
def both(pair: Pair) -> Iterator[Pair]:
    for host in pair.hosts:
        root(pair, host, MEMORY.replace("{unit}", UNIT).replace("{program}", PROGRAM))
    run = play(pair, BOTH)
    assert run.rc == 0
    yield pair
    for host in pair.hosts:  # nothing of it runs beside the files after this one
        root(pair, host, f"systemctl disable --now gb10-vllm-big.service; {NO_MEMORY}")


def test_both_are_served_and_proven(both: Pair) -> None:
    evidence = both.evidence()
    assert evidence["verdict"] == "healthy"
    answered = [served for cluster in evidence["clusters"] for served in cluster["services"]]
    assert {served["service"]: served["verdict"] for served in answered} == dict.fromkeys(BOTH, "serving")
    ready(both)


def test_a_killed_rank_takes_its_cluster_down_and_not_its_neighbour(both: Pair) -> None:
    before = ready(both)
    both.ssh("spark-b", "sudo docker kill gb10-vllm-big")
    after = ready(both, of(before, *CLUSTER))
    assert of(after, *NEIGHBOUR) == of(before, *NEIGHBOUR)


def test_a_killed_service_of_one_host_leaves_the_cluster_alone(both: Pair) -> None:
    before = ready(both)
    both.ssh("spark-a", "sudo docker kill gb10-vllm-small")
    after = ready(both, of(before, *NEIGHBOUR))
    assert of(after, *CLUSTER) == of(before, *CLUSTER)


def test_both_come_back_after_a_reboot_of_the_host_that_has_both(both: Pair) -> None:
    before = ready(both)
    both.lab("ssh", "spark-a", "sudo systemctl reboot", check=False)
    ready(both, before)
    assert play(both, BOTH, "playbooks/validate.yml").rc == 0


def test_one_is_taken_back_and_the_cluster_does_not_notice(both: Pair) -> None:
    before = ready(both)
    run = play(both, {"big": BIG})
    assert run.rc == 0
    # What it said of itself is in /run until the next boot.
    files = "ls /etc/systemd/system /etc/gb10-fleet | grep vllm-small"
    left = f"{files}; sudo docker ps --all --format '{{{{.Names}}}}'"
    assert both.ssh("spark-a", left).split() == ["gb10-vllm-big"]
    assert {each: life(both, *each) for each in CLUSTER} == of(before, *CLUSTER)
