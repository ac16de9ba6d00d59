"""The fabric of a pair under every kind of trouble: each has its name, leaves nothing running, and is gone when mended.

Runs on the pair of test_pair.py, after it (files run in the order of their names) or alone, with the role fabric only.
`GB10_CUTS=20` cuts the management network twenty times instead of twice; each takes two to three minutes.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from lab.network import NAMESPACE
from lab.topology import topology
from tests.rig import ROOT, Play

from .conftest import Pair
from .test_pair import PROFILE, RAIL, rails_that_drifted

pytestmark = [pytest.mark.lab, pytest.mark.long]

ONLY_FABRIC = ("-e", '{"gb10_roles": ["fabric"]}')
MANAGEMENT = "enP7s7"
CUTS = int(os.environ.get("GB10_CUTS", "2"))
# What NetworkManager and netplan keep, byte for byte.
FOLDERS = "/etc/NetworkManager/system-connections /etc/netplan"
FILES = f"sudo sh -c 'find {FOLDERS} -type f 2>/dev/null | sort | xargs sha256sum'"
NOTHING_RUNS = "! pgrep -x ib_write_bw && test -z \"$(sudo systemctl list-units --no-legend 'gb10-guard-*')\""


def site(pair: Pair, *args: str) -> Play:
    return pair.play(*ONLY_FABRIC, *args)


def state(pair: Pair, *args: str) -> Play:
    return pair.play(*ONLY_FABRIC, *args, playbook="playbooks/state.yml")


def validate(pair: Pair) -> Play:
    return pair.play(*ONLY_FABRIC, playbook="playbooks/validate.yml")


def reasons(pair: Pair) -> set[str]:
    return {reason["what"] for reason in pair.evidence()["reasons"]}


def wire(mtu: int) -> None:
    """How large a frame may be that reaches spark-b's rail."""
    (host,) = (item for item in topology("pair").hosts if item.name == "spark-b")
    outer = next(nic.outer for nic in host.nics if nic.name == RAIL)
    subprocess.run(["ip", "-n", NAMESPACE, "link", "set", outer, "mtu", str(mtu)], check=True)


def clean(pair: Pair) -> None:
    """Nothing is left running, nothing is left to change, everything is proven."""
    for host in pair.hosts:
        pair.ssh(host, NOTHING_RUNS)
    again = site(pair)
    assert again.rc == 0
    assert again.changed == 0
    assert pair.evidence()["verdict"] == "healthy"


@pytest.fixture(scope="module", autouse=True)
def _rails(pair: Pair) -> Iterator[None]:
    """Rails as planned, and confirmed over a new connection."""
    assert site(pair).rc == 0
    yield


class TestProof:
    def test_second_run_changes_nothing(self, pair: Pair) -> None:
        clean(pair)

    def test_cables_figures_and_matrix_are_in_the_evidence(self, pair: Pair) -> None:
        (cluster,) = pair.evidence()["clusters"]
        assert {cable["verdict"] for cable in cluster["cabling"]} == {"as_planned"}
        assert len(cluster["cabling"]) == 2
        figures = (ROOT / "evidence/latest/metrics.prom").read_text()
        assert "gb10_rail_gbps{" in figures and 'verdict="as_planned"} 1' in figures
        assert 'class="matrix"' in (ROOT / "evidence/latest/index.html").read_text()

    def test_the_measurement_agrees_with_perftest_by_hand(self, pair: Pair) -> None:
        """One rail alone, three times each; TCG is noisy, so within half."""
        options = "-d rocep1s0f0 -x 1 -q 4 -s 65536 -D 4 -F --report_gbits"
        by_hand = []
        for _ in range(3):
            server = f"sudo systemd-run --quiet --collect --unit=by-hand ib_write_bw {options} -p 19000"
            pair.ssh("spark-a", server)
            client = (
                f"for i in 1 2 3 4 5 6; do sudo ib_write_bw {options} -p 19000 192.168.100.10 && break; sleep 2; done"
            )
            lines = pair.ssh("spark-b", client).splitlines()
            (row,) = [line.split() for line in lines if line.strip().startswith("65536")]
            by_hand.append(float(row[3]))
        (cluster,) = pair.evidence()["clusters"]
        rails = [rail["gbps"] for pairing in cluster["pairings"] for rail in pairing["figures"]["rails"]]
        total, alone = sum(rails), sorted(by_hand)[1]
        assert 0.5 < total / alone < 2.0, f"both rails at once {rails}, one alone by hand {by_hand}"


class TestTrouble:
    def test_no_carrier_on_one_side_changes_nothing_where_it_is_accepted(self, pair: Pair) -> None:
        pair.lab("cut", "spark-a", "p0")
        run = state(pair, "-e", '{"gb10_accept": {"no_carrier": "the cable is away for a test"}}')
        pair.lab("mend")
        assert run.rc == 0
        assert run.changed == 0
        clean(pair)

    def test_wrong_mtu_on_one_end(self, pair: Pair) -> None:
        pair.ssh("spark-b", f"sudo ip link set {RAIL} mtu 1500")
        assert validate(pair).rc != 0
        assert reasons(pair) & {"ping_mtu", "ping_timeout"}
        assert state(pair).rc == 0
        clean(pair)

    def test_an_mtu_that_does_not_pass_the_cable_is_not_kept(self, pair: Pair) -> None:
        """Small packets pass and large ones do not: named, taken back at once, and proven."""
        pair.ssh("spark-a", f"sudo nmcli connection modify gb10-{RAIL} 802-3-ethernet.mtu 4000")
        drifted = pair.ssh("spark-a", FILES)
        wire(1500)
        run = state(pair)
        wire(9000)
        assert run.rc != 0
        assert "but to small ones: the MTU is smaller" in run.output
        assert "the network is back to how it was before" in run.output
        assert pair.ssh("spark-a", FILES) == drifted
        assert state(pair).rc == 0
        clean(pair)

    def test_an_address_stolen_by_another_profile(self, pair: Pair) -> None:
        thief = f"nmcli connection add type ethernet con-name thief ifname {RAIL} ipv4.method manual"
        pair.ssh("spark-a", f"sudo {thief} ipv4.addresses 192.168.100.10/24 && sudo nmcli connection up thief")
        run = state(pair)
        assert run.rc != 0
        assert run.changed == 0
        assert f"{RAIL} belongs to " in run.output and "thief" in run.output
        pair.ssh("spark-a", "sudo nmcli connection delete thief")
        assert state(pair).rc == 0
        clean(pair)

    def test_a_netplan_file_is_refused_by_its_name(self, pair: Pair) -> None:
        text = f"network: {{version: 2, renderer: networkd, ethernets: {{{RAIL}: {{dhcp4: true}}}}}}"
        pair.ssh("spark-b", f"sudo mkdir -p /etc/netplan && echo '{text}' | sudo tee /etc/netplan/40-cx7.yaml")
        run = state(pair)
        pair.ssh("spark-b", "sudo rm /etc/netplan/40-cx7.yaml && sudo rmdir --ignore-fail-on-non-empty /etc/netplan")
        assert run.rc != 0
        assert run.changed == 0
        assert f"{RAIL} belongs to /etc/netplan/40-cx7.yaml already" in run.output
        clean(pair)

    def test_a_second_ipv4(self, pair: Pair) -> None:
        pair.ssh("spark-a", f"sudo ip address add 192.0.2.77/24 dev {RAIL}")
        pair.play(playbook="playbooks/drift.yml")
        assert rails_that_drifted() == {"spark-a": [PROFILE]}
        assert validate(pair).rc != 0
        assert "foreign_address" in reasons(pair)
        assert state(pair).rc == 0
        clean(pair)

    def test_perftest_missing(self, pair: Pair) -> None:
        pair.ssh("spark-b", "sudo mv /usr/bin/ib_write_bw /usr/bin/ib_write_bw.away")
        run = validate(pair)
        pair.ssh("spark-b", "sudo mv /usr/bin/ib_write_bw.away /usr/bin/ib_write_bw")
        assert run.rc != 0
        assert "ib_write_bw is not installed" in run.output
        clean(pair)

    def test_a_busy_port(self, pair: Pair) -> None:
        pair.ssh("spark-a", "sudo systemd-run --quiet --unit=busy python3 -m http.server 18515 && sleep 3")
        run = validate(pair)
        pair.ssh("spark-a", "sudo systemctl stop busy")
        assert run.rc != 0
        results = [test for test in pair.evidence()["hosts"]["spark-a"]["bandwidth"] if test["fault"]]
        assert {test["fault"]["name"] for test in results} == {"port_busy"}
        clean(pair)

    def test_the_peer_is_powered_off_during_the_test(self, pair: Pair) -> None:
        argv, env = pair.ansible(*ONLY_FABRIC, playbook="playbooks/validate.yml")
        with subprocess.Popen(
            argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as run:
            pair.ssh(
                "spark-a",
                "for i in $(seq 300); do pgrep -x ib_write_bw && exit 0; sleep 0.5; done; exit 1",
                timeout=300,
            )
            time.sleep(2)
            pair.lab("power-off", "spark-b")
            output, _ = run.communicate(timeout=900)
        print(output[-8000:])
        assert run.returncode != 0
        assert pair.evidence()["verdict"] != "healthy"
        pair.ssh("spark-a", NOTHING_RUNS)
        pair.lab("power-on", "spark-b")
        clean(pair)


# Waits until the change is made and unconfirmed, takes the management address away, and notes when it is back.
# With `restart` NetworkManager restarts before that, and forgets its checkpoint.
CUT = f"""
until systemctl list-units --no-legend "gb10-guard-*-word.timer" | grep -q .; do sleep 0.1; done
[ "$1" = restart ] && systemctl restart NetworkManager && sleep 2
date +%s.%N >/run/cut-at
nmcli connection modify {MANAGEMENT} ipv4.addresses 203.0.113.99/24
nmcli connection up {MANAGEMENT}
ip address flush dev {MANAGEMENT} to 198.18.0.0/15
until ip -4 address show dev {MANAGEMENT} | grep -q 198.18.7; do sleep 0.2; done
date +%s.%N >/run/back-at
"""


class TestCannotLockYouOut:
    @pytest.mark.parametrize("number", range(CUTS))
    def test_management_is_cut_while_the_rails_change(self, pair: Pair, number: int) -> None:
        restart = "restart" if number % 2 else "no"
        pair.ssh("spark-a", f"sudo nmcli connection delete gb10-{RAIL}; sudo rm -f /run/cut-at /run/back-at")
        before = pair.ssh("spark-a", FILES)
        pair.ssh("spark-a", f"sudo systemd-run --quiet --collect --unit=cutter sh -c '{CUT}' cut {restart}")
        run = state(pair)
        assert run.rc != 0, "a change that nobody could confirm was kept"
        assert "the network is back to how it was before" in run.output, "the way back was not proven"
        assert pair.ssh("spark-a", FILES) == before
        cut_at, back_at = (float(line) for line in pair.ssh("spark-a", "cat /run/cut-at /run/back-at").split())
        assert back_at - cut_at <= (120 if restart == "restart" else 90) + 10
        assert state(pair).rc == 0
        clean(pair)
