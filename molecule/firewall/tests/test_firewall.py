"""The rules under systemd: what opens them, and what must not. Packets of peers, clients and rogues: tests/unit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]

ROOT = Path(__file__).resolve().parents[3]
GUARDED, DECLARED, OTHER = (29501, 33333), 40000, 8123
UNIT = "gb10-firewall.service"
LISTENER = """
import signal, socket, sys
both = {"family": socket.AF_INET6, "dualstack_ipv6": True}
sockets = [socket.create_server(("::", int(port)), **both) for port in sys.argv[1:]]
signal.pause()
"""


@pytest.fixture(autouse=True)
def listener(host: Host) -> Iterator[None]:
    """Something that listens on all addresses, as torch does, for the time of one test."""
    ports = " ".join(map(str, (*GUARDED, DECLARED, OTHER)))
    host.check_output(f"systemd-run --quiet --unit=listener /usr/bin/python3 -c '{LISTENER}' {ports}")
    host.check_output(f"for i in $(seq 50); do ss -Hltn sport = :{OTHER} | grep -q . && break; sleep 0.1; done")
    yield
    host.check_output("systemctl stop listener.service")


def reached(host: Host) -> set[int]:
    """From here, which is outside."""
    address = host.ansible.get_variables()["ansible_host"]
    found = set()
    for port in (22, *GUARDED, DECLARED, OTHER):
        try:
            with socket.create_connection((address, port), timeout=0.5):
                found.add(port)
        except TimeoutError:
            pass
    return found


CLOSED = {22, DECLARED, OTHER}


def test_only_declared_ports_are_open_from_outside(host: Host) -> None:
    assert reached(host) == CLOSED
    assert host.service(UNIT).is_enabled


def test_the_host_reaches_its_own_ports(host: Host) -> None:
    for port in GUARDED:
        assert host.addr("127.0.0.1").port(port).is_reachable


def test_restarts_in_a_row_leave_no_port_open_and_other_tables_alone(host: Host) -> None:
    host.check_output("nft add table inet foreign")
    for _ in range(6):
        host.check_output(f"systemctl restart {UNIT}")
    assert reached(host) == CLOSED
    host.check_output("nft delete table inet foreign")


def handles(host: Host) -> dict[str, list[str]]:
    """The kernel's numbers of the table, of its chains and of its rules: what is made anew gets a new one."""
    lines = host.check_output("nft --handle list table inet gb10_fleet").splitlines()
    found: dict[str, list[str]] = {"table": [], "chain": [], "rule": []}
    for line in lines:
        kind = line.split()[0] if line.strip() else ""
        if " # handle " in line and kind not in ("counter", "set"):
            found[kind if kind in found else "rule"].append(line.rpartition(" ")[2])
    return found


def test_a_restart_changes_the_rules_and_never_takes_table_and_chains_away(host: Host) -> None:
    before = handles(host)
    host.check_output(f"systemctl restart {UNIT}")
    after = handles(host)
    assert len(after["table"]) == 1 and len(after["chain"]) == 10 and after["table"] == before["table"]
    assert after["chain"] == before["chain"]
    assert len(after["rule"]) == len(before["rule"]) > 5 and not set(after["rule"]) & set(before["rule"])


def drift(host: Host, evidence: Path) -> str:
    """What the playbook drift says of a host where something differs."""
    inventory = ROOT / os.environ.get("GB10_MOLECULE_INVENTORY", "inventory/lab/fleet")
    name = host.ansible.get_variables()["inventory_hostname"]
    argv = [Path(sys.executable).parent / "ansible-playbook", "playbooks/drift.yml", "-i", inventory, "--limit", name]
    evidence_there = ["-e", f"gb10_evidence_directory={evidence}"]
    done = subprocess.run([*argv, *evidence_there], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_a_flushed_table_is_noticed_and_comes_back(host: Host, tmp_path: Path) -> None:
    host.check_output("nft flush ruleset")
    assert set(GUARDED) <= reached(host), "the test can see an open port"
    assert host.service(UNIT).is_running, "systemd does not notice"
    assert host.run("/usr/local/sbin/gb10-firewall holds").rc == 1
    said = drift(host, tmp_path)
    assert UNIT in said and "what it has set up is not" in said, said
    host.check_output(f"systemctl reload {UNIT}")
    assert host.run("/usr/local/sbin/gb10-firewall holds").rc == 0
    assert reached(host) == CLOSED


@pytest.mark.parametrize("verb", ["start", "restart", "reload", "stop"])
def test_what_flushes_everything_brings_it_back(host: Host, verb: str) -> None:
    """In this order: started from standing still, and standing still at the end, as before."""
    host.check_output(f"systemctl {verb} nftables.service")
    host.check_output("for i in $(seq 50); do /usr/local/sbin/gb10-firewall holds && break; sleep 0.1; done")
    assert reached(host) == CLOSED


def test_the_model_does_not_start_without_the_rules(host: Host) -> None:
    drop_in = host.file("/etc/systemd/system/gb10-vllm.service.d/50-gb10-firewall.conf").content_string
    (command,) = (line.partition("=")[2] for line in drop_in.splitlines() if line.startswith("ExecStartPre="))
    assert host.run(command).rc == 0
    host.check_output(f"systemctl stop {UNIT}")
    assert host.run(command).rc != 0
    assert set(GUARDED) <= reached(host), "a stop takes the rules away"
    host.check_output(f"systemctl start {UNIT}")
