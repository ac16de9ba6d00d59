"""Two freshly imaged Sparks become a proven, serving pair; and stay so over a second run and a reboot.

The tests of this file run in order on one pair: wrong input first (the hosts are still untouched), then the story.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT, Pair

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
