"""Two freshly imaged Sparks become a proven, serving pair; and stay so over a second run and a reboot.

The tests of this file run in order on one pair: wrong input first (the hosts are still untouched), then the story.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rig import ROOT, differences

from .conftest import Pair

pytestmark = pytest.mark.lab

# Everything that site.yml may leave behind; a refused run must leave none of it.
TRACES = "/etc/gb10-fleet /etc/systemd/system/gb10-vllm.service /etc/apt/preferences.d/10-gb10-nvidia"


def refused(pair: Pair, finding: str, fact: str, *args: str, host: str = "spark-a") -> None:
    """site.yml stops in doctor: the finding, its fact and the host are named, and no host was touched."""
    run = pair.play(*args)
    assert run.rc != 0
    assert run.changed == 0, "doctor must refuse before anything changes"
    assert finding in run.output, f"finding {finding} is not named"
    assert fact in run.output, f"the fact ({fact}) is not named"
    assert host in run.output
    assert "TASK [gb10.fleet.kernel_parameters" not in run.output, "the run went on after doctor"
    for name in pair.hosts:
        left = pair.ssh(name, f"ls -d {TRACES} 2>/dev/null || true").strip()
        assert left == "", f"{name} was changed: {left}"


class TestDoctorRefuses:
    def test_misspelt_variable(self, pair: Pair) -> None:
        refused(pair, "unknown_variable", "fabric_mut", "-e", "fabric_mut=9000")

    def test_unknown_ssh_host_key(self, pair: Pair, tmp_path: Path) -> None:
        empty = tmp_path / "known_hosts"
        empty.touch()
        common = f"-oUserKnownHostsFile={empty} -oStrictHostKeyChecking=yes -oControlPath=none"
        refused(pair, "host_key", "spark-a", "-e", f"ansible_ssh_common_args='{common}'")

    def test_no_sudo(self, pair: Pair) -> None:
        for host in pair.hosts:
            pair.ssh(
                host,
                "sudo useradd -m -s /bin/bash guest && sudo cp -r ~/.ssh ~guest/ && sudo chown -R guest: ~guest/.ssh",
            )
        refused(pair, "no_sudo", "sudo", "-e", "ansible_user=guest")
        for host in pair.hosts:
            pair.ssh(host, "sudo userdel -rf guest 2>/dev/null || true")

    def test_no_rdma_device(self, pair: Pair) -> None:
        pair.ssh("spark-a", "for l in $(ls /sys/class/infiniband); do sudo rdma link delete $l; done")
        refused(pair, "no_rdma", "RDMA")
        pair.ssh("spark-a", "sudo systemctl restart lab-rails.service")

    def test_rail_without_a_cable(self, pair: Pair) -> None:
        pair.lab("cut", "spark-a", "p0")
        refused(pair, "no_carrier", "enp1s0f0np0")
        pair.lab("mend")

    def test_not_a_spark(self, pair: Pair) -> None:
        pair.ssh(
            "spark-b",
            "sudo mv /etc/dgx-release /etc/dgx-release.away; echo OptiPlex >/tmp/product;"
            "sudo mount --bind /tmp/product /sys/class/dmi/id/product_name",
        )
        refused(pair, "not_a_spark", "OptiPlex", host="spark-b")
        pair.ssh(
            "spark-b", "sudo umount /sys/class/dmi/id/product_name; sudo mv /etc/dgx-release.away /etc/dgx-release"
        )

    def test_full_disk(self, pair: Pair) -> None:
        pair.ssh("spark-b", "sudo fallocate -l $(($(df --output=avail -B1 / | tail -1) - 52428800)) /filler")
        refused(pair, "disk_full", "/", host="spark-b")
        pair.ssh("spark-b", "sudo rm /filler")

    def test_powered_off(self, pair: Pair) -> None:
        """A host that does not answer stops the run for all, which Ansible's own any_errors_fatal does not do."""
        run = pair.play("-e", '{"ansible_port": 1}', "--limit", "spark-b", playbook="playbooks/doctor.yml")
        assert run.rc != 0
        assert "unreachable" in run.output and "spark-b" in run.output


class TestProvision:
    def test_the_state_before_is_kept(self, pair: Pair) -> None:
        """For the last test of this file, which undoes everything."""
        pair.before.update({host: pair.snapshot(host) for host in pair.hosts})

    def test_check_on_untouched_hosts_is_clean(self, pair: Pair) -> None:
        run = pair.play("--check", "--diff")
        assert run.rc == 0
        assert run.changed > 0, "check mode must predict the changes"
        for host in pair.hosts:
            assert pair.ssh(host, f"ls -d {TRACES} 2>/dev/null || true").strip() == "", "check mode changed the host"

    def test_first_run_ends_in_a_proven_serving_pair(self, pair: Pair) -> None:
        run = pair.play()
        assert run.rc == 0
        evidence = pair.evidence()
        assert evidence["verdict"] == "healthy", evidence["verdict"]
        assert set(evidence["hosts"]) == set(pair.hosts)

    def test_what_an_operator_would_look_at(self, pair: Pair) -> None:
        for index, host in enumerate(pair.hosts):
            state = pair.ssh(
                host,
                "cat /sys/class/net/enp1s0f0np0/mtu /sys/class/net/enP2p1s0f0np0/mtu;"
                "ip -br -4 addr show enp1s0f0np0; apt-mark showhold; systemctl is-active gb10-vllm docker;"
                "sudo docker ps --format '{{.Names}} {{.Image}}'",
            )
            assert state.count("9000\n") == 2
            assert f"192.168.100.1{index}/24" in state
            assert "nvidia-driver-580-open" in state
            assert state.count("active") == 2 and "inactive" not in state
            assert "gb10-vllm" in state

    def test_second_run_changes_nothing(self, pair: Pair) -> None:
        run = pair.play()
        assert run.rc == 0
        assert {host: row["changed"] for host, row in run.recap.items() if row["changed"]} == {}

    def test_run_after_a_reboot_changes_nothing(self, pair: Pair) -> None:
        pair.reboot()
        run = pair.play()
        assert run.rc == 0
        assert {host: row["changed"] for host, row in run.recap.items() if row["changed"]} == {}
        assert pair.evidence()["verdict"] == "healthy"

    @pytest.mark.browser
    def test_the_page_shows_the_pair(self, pair: Pair, tmp_path: Path) -> None:
        chromium = shutil.which("chromium")
        if chromium is None:
            pytest.skip("chromium is not installed")
        page = (ROOT / "evidence/latest/index.html").resolve()
        quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
        argv = [chromium, "--headless", "--no-sandbox", "--disable-gpu", *quiet, f"--user-data-dir={tmp_path}"]
        env = {**os.environ, "HOME": str(tmp_path)}
        done = subprocess.run(
            [*argv, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, env=env
        )
        dom = done.stdout
        assert "<svg" in dom
        for text in (*pair.hosts, "healthy", "enp1s0f0np0", "enP2p1s0f0np0", "192.168.100.10"):
            assert text in dom, f"the page does not show {text}"


class TestCutCable:
    def test_is_named_in_the_evidence_and_gone_when_mended(self, pair: Pair) -> None:
        pair.lab("cut", "spark-b", "p0")
        # A cluster without its fabric does not come back by itself, so there is nothing to wait for.
        run = pair.play("-e", '{"vllm_ready_timeout": 10}', playbook="playbooks/validate.yml")
        assert run.rc != 0
        assert "no carrier on port p0 (enp1s0f0np0, enP2p1s0f0np0)" in run.output
        assert pair.evidence()["verdict"] == "unhealthy"

        pair.lab("mend")
        for host in pair.hosts:
            pair.ssh(host, "sudo systemctl reset-failed gb10-vllm; sudo systemctl restart gb10-vllm")
        assert pair.play(playbook="playbooks/validate.yml").rc == 0
        assert pair.evidence()["verdict"] == "healthy"


RAIL, PROFILE = "enp1s0f0np0", "nm_profile:gb10-enp1s0f0np0"
# What Debian's policy leaves of a purged package, and what Docker's engine made while it ran: its bridge lives until
# the next boot, and NetworkManager has a profile in memory for it.
LEFT_BEHIND = {
    *("file /etc/group", "file /etc/gshadow"),
    *("link docker0", "profile docker0", "file /etc/cni", "file /etc/cni/net.d"),
}


def rails_that_drifted() -> dict[str, list[str]]:
    """Of the last scan, what the role fabric would repair, by host.

    The role vllm may be named as well: a rail without its address takes the model's server down, on both hosts.
    """
    hosts = json.loads((ROOT / "evidence/drift/drift.json").read_text())["hosts"]
    found = {host: [row["resource"] for row in said["changes"].get("fabric", [])] for host, said in hosts.items()}
    return {host: rows for host, rows in found.items() if rows}


class TestTruth:
    """What tests/fleet proves on containers, for what takes a machine: rails, Docker, vLLM."""

    @pytest.mark.parametrize(
        "cause",
        [
            f"ip link set {RAIL} mtu 1500",
            f"nmcli connection modify gb10-{RAIL} 802-3-ethernet.mtu 1500",
            f"nmcli connection delete gb10-{RAIL}",
        ],
        ids=["MTU live", "MTU on disk", "profile deleted"],
    )
    def test_a_drifted_rail_is_named_and_repaired_alone(self, pair: Pair, cause: str) -> None:
        pair.ssh("spark-a", f"sudo {cause}")
        assert pair.play(playbook="playbooks/drift.yml").rc != 0, "drift must not look like success"
        assert rails_that_drifted() == {"spark-a": [PROFILE]}
        repaired = pair.play(playbook="playbooks/state.yml")
        assert repaired.rc == 0
        assert repaired.recap["spark-a"]["changed"] > 0
        pair.play(playbook="playbooks/drift.yml")
        assert rails_that_drifted() == {}

    def test_a_secret_of_the_inventory_is_not_told(self, pair: Pair, tmp_path: Path) -> None:
        sentinel = "sentinel-4be1-of-the-pair-tests"
        variables = tmp_path / "secret.json"
        variables.write_text(json.dumps({"vllm_api_key": sentinel}))
        run = pair.play("--check", "--diff", "-vvv", "-e", f"@{variables}", playbook="playbooks/state.yml", show=False)
        assert run.rc == 0
        assert "file:/etc/gb10-fleet/vllm.env" in run.output
        assert sentinel not in run.output
        for host in pair.hosts:
            search = (
                f"sudo grep -rlsa {sentinel[:-1]}[s] /etc /run /tmp /var/log /var/lib/gb10-fleet /home /root || true"
            )
            assert pair.ssh(host, search) == ""

    def test_undo_leads_back_to_the_day_before(self, pair: Pair) -> None:
        consents = {"fabric_allow_activation": True, "docker_allow_restart": True}
        run = pair.play("-e", "gb10_undo=all", "-e", json.dumps(consents), playbook="playbooks/undo.yml")
        assert run.rc == 0
        for host in pair.hosts:
            rows = differences(pair.before[host], pair.snapshot(host))
            assert [row for row in rows if row.partition(":")[0] not in LEFT_BEHIND] == []
            traces = f"ls -d {TRACES} /var/lib/gb10-fleet/manifest.json 2>/dev/null || true"
            assert pair.ssh(host, traces) == ""
