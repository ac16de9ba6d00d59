"""Two freshly imaged Sparks become a proven, serving pair; and stay so over a second run and a reboot.

The tests of this file run in order on one pair: wrong input first (the hosts are still untouched), then the story.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.support.baseline import compare, declared
from tests.support.lab_pair import LEFT_BEHIND, PROFILE, RAIL, TRACES, Pair, rails_that_drifted
from tests.support.rig import ROOT, Play, differences

pytestmark = pytest.mark.lab

# Everything that site.yml may leave behind; a refused run must leave none of it.


def refused(pair: Pair, *said: tuple[str, str, str], args: tuple[str, ...] = ()) -> None:
    """site.yml stops in doctor and names each of (host, finding, fact), and no host was touched."""
    run = pair.play(*args)
    assert run.rc != 0
    assert run.changed == 0, "doctor must refuse before anything changes"
    for host, finding, fact in said:
        assert host in run.output
        assert finding in run.output, f"finding {finding} of {host} is not named"
        assert fact in run.output, f"the fact ({fact}) of {host} is not named"
    assert "TASK [gb10.fleet.kernel_parameters" not in run.output, "the run went on after doctor"
    for name in pair.hosts:
        left = pair.ssh(name, f"ls -d {TRACES} 2>/dev/null || true").strip()
        assert left == "", f"{name} was changed: {left}"


class TestDoctorRefuses:
    """Who does not get in, or may not become root, is asked on containers: tests/fleet/test_ways_in.py."""

    def test_everything_that_is_wrong_in_one_run(self, pair: Pair) -> None:
        pair.ssh("spark-a", "for l in $(ls /sys/class/infiniband); do sudo rdma link delete $l; done")
        pair.ssh(
            "spark-b",
            "sudo fallocate -l $(($(df --output=avail -B1 / | tail -1) - 52428800)) /filler;"
            "sudo mv /etc/dgx-release /etc/dgx-release.away; echo OptiPlex >/tmp/product;"
            "sudo mount --bind /tmp/product /sys/class/dmi/id/product_name",
        )
        pair.lab("cut", "spark-a", "p0")
        refused(
            pair,
            ("spark-a", "no_rdma", "RDMA"),
            ("spark-a", "unknown_variable", "fabric_mut"),
            ("spark-b", "disk_full", "/"),
            ("spark-b", "not_a_spark", "OptiPlex"),
            ("spark-b", "no_carrier", "enp1s0f0np0"),
            args=("-e", "fabric_mut=9000"),
        )
        pair.lab("mend")
        pair.ssh(
            "spark-b",
            "sudo umount /sys/class/dmi/id/product_name; sudo mv /etc/dgx-release.away /etc/dgx-release;"
            "sudo rm /filler",
        )
        pair.ssh("spark-a", "sudo systemctl restart lab-rails.service")


class TestProvision:
    def test_the_state_before_is_kept(self, pair: Pair) -> None:
        """For the last test of this file, which undoes everything."""
        pair.before.update({host: pair.snapshot(host) for host in pair.hosts})

    @pytest.mark.long  # reads all files of two hosts on an emulated CPU
    def test_what_hosts_offer_before_is_kept(self, pair: Pair) -> None:
        pair.offered.update({host: pair.baseline(host) for host in pair.hosts})

    def test_check_on_untouched_hosts_is_clean_and_tells_no_secret(self, pair: Pair, tmp_path: Path) -> None:
        sentinel = "sentinel-4be1-of-the-pair-tests"
        variables = tmp_path / "secret.json"
        variables.write_text(json.dumps({"vllm_api_key": sentinel}))
        run = pair.play("--check", "--diff", "-vvv", "-e", f"@{variables}", show=False)
        assert run.rc == 0
        assert run.changed > 0, "check mode must predict the changes"
        assert "file:/etc/gb10-fleet/vllm.env" in run.output
        assert sentinel not in run.output
        search = f"sudo grep -rlsa {sentinel[:-1]}[s] /etc /run /tmp /var/log /var/lib/gb10-fleet /home /root || true"
        for host in pair.hosts:
            assert pair.ssh(host, f"ls -d {TRACES} 2>/dev/null || true").strip() == "", "check mode changed the host"
            assert pair.ssh(host, search) == ""

    def test_first_run_ends_in_a_proven_serving_pair(self, pair: Pair) -> None:
        run = pair.play()
        assert run.rc == 0
        evidence = pair.evidence()
        assert evidence["verdict"] == "healthy", evidence["verdict"]
        assert set(evidence["hosts"]) == set(pair.hosts)

    @pytest.mark.long
    def test_hosts_have_got_what_is_declared_and_nothing_else(self, pair: Pair) -> None:
        for host in pair.hosts:
            said = compare(pair.offered[host], pair.baseline(host), declared(), catalog.ROLES, {})
            assert said.undeclared == (), f"{host} has what catalog/baseline.yml does not declare"
            assert said.absent == (), f"{host} lacks what catalog/baseline.yml declares"

    def test_what_an_operator_would_look_at(self, pair: Pair) -> None:
        for index, host in enumerate(pair.hosts):
            state = pair.ssh(
                host,
                "cat /sys/class/net/enp1s0f0np0/mtu /sys/class/net/enP2p1s0f0np0/mtu;"
                "ip -br -4 addr show enp1s0f0np0; apt-mark showhold; sudo gb10-vllm; echo by hand: $?;"
                "systemctl is-active gb10-vllm docker;"
                "sudo docker ps --format '{{.Names}} {{.Image}}'",
            )
            assert state.count("9000\n") == 2
            assert f"192.168.100.1{index}/24" in state
            assert "nvidia-driver-580-open" in state
            assert "by hand: 2" in state, "a life of its own would have ended the container"
            assert state.count("active") == 2 and "inactive" not in state
            assert "gb10-vllm" in state

    def test_image_and_model_came_to_the_cluster_once(self, pair: Pair) -> None:
        digest = pair.image.partition("@sha256:")[2][:12]
        for host in pair.hosts:
            marker = json.loads(pair.ssh(host, "sudo sh -c 'cat /var/cache/gb10-files/*.json'"))
            assert marker["model"] == "openai/gpt-oss-120b" and len(marker["commit"]) == 40
            assert digest in pair.ssh(host, f"sudo docker image ls --format '{{{{.Tag}}}}' gb10-fleet/vllm:{digest}")
            left = pair.ssh(
                host, "systemctl list-units --plain --no-legend 'gb10-files-*'; sudo ls /run/gb10-fleet/files"
            )
            assert left.split() == ["lock"], "no daemon, no password, no token"
        asked = f"sudo docker image inspect {pair.image} >/dev/null 2>&1 && echo pulled || echo never"
        assert [pair.ssh(host, asked).strip() for host in pair.hosts] == ["pulled", "never"]

    def test_second_run_changes_nothing(self, pair: Pair) -> None:
        run = pair.play()
        assert run.rc == 0
        assert {host: row["changed"] for host, row in run.recap.items() if row["changed"]} == {}

    @pytest.mark.long  # 5 minutes; TestReboot has more of it
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


@pytest.mark.long  # 3 minutes; above the doctor refuses a rail without a cable
class TestCutCable:
    def test_is_named_in_the_evidence_and_gone_when_mended(self, pair: Pair) -> None:
        pair.lab("cut", "spark-b", "p0")
        # The model is down as long as the cable is out: there is nothing to wait for.
        run = pair.play("-e", '{"vllm_ready_timeout": 10}', playbook="playbooks/validate.yml")
        assert run.rc != 0
        assert "no carrier on port p0 (enp1s0f0np0, enP2p1s0f0np0)" in run.output
        assert pair.evidence()["verdict"] == "unhealthy"

        pair.lab("mend")
        for host in pair.hosts:
            # It comes back by itself. Other tests of this hour may have used up the starts that systemd grants.
            pair.ssh(host, "sudo systemctl reset-failed gb10-vllm; sudo systemctl start --no-block gb10-vllm")
        # A container that starts leaves an emulated CPU nothing for a measurement: one rail of two carried 0.0 Gb/s.
        pair.until("spark-a", 'sudo grep -q \'"phase": "ready"\' /run/gb10-vllm/status.json')
        assert pair.play(playbook="playbooks/validate.yml").rc == 0
        assert pair.evidence()["verdict"] == "healthy"


# What Debian's policy leaves of a purged package, and what Docker's engine made while it ran: its bridge lives until
# the next boot, and NetworkManager has a profile in memory for it.


class TestTruth:
    """What tests/fleet proves on containers, for what takes a machine: rails, Docker, vLLM."""

    @pytest.mark.parametrize(
        "cause",
        [
            pytest.param(f"ip link set {RAIL} mtu 1500", id="MTU live"),
            pytest.param(f"nmcli connection modify gb10-{RAIL} 802-3-ethernet.mtu 1500", id="MTU on disk"),
            pytest.param(f"nmcli connection delete gb10-{RAIL}", id="profile deleted"),
        ],
    )
    @pytest.mark.long  # tests/fleet/test_drift.py shows the three on containers; here each takes more than a minute
    def test_a_drifted_rail_is_named_and_repaired_alone(self, pair: Pair, cause: str) -> None:
        pair.ssh("spark-a", f"sudo {cause}")
        assert pair.play(playbook="playbooks/drift.yml").rc != 0, "drift must not look like success"
        assert rails_that_drifted() == {"spark-a": [PROFILE]}
        repaired = pair.play(playbook="playbooks/converge.yml")
        assert repaired.rc == 0
        assert repaired.recap["spark-a"]["changed"] > 0
        pair.play(playbook="playbooks/drift.yml")
        assert rails_that_drifted() == {}

    def test_undo_leads_back_to_the_day_before(self, pair: Pair) -> None:
        consents = {"fabric_allow_activation": True, "docker_allow_restart": True}
        run = pair.play("-e", "gb10_undo=all", "-e", json.dumps(consents), playbook="playbooks/undo.yml")
        assert run.rc == 0
        for host in pair.hosts:
            rows = differences(pair.before[host], pair.snapshot(host))
            assert [row for row in rows if row.partition(":")[0] not in LEFT_BEHIND] == []
            traces = f"ls -d {TRACES} /var/lib/gb10-fleet/manifest.json 2>/dev/null || true"
            assert pair.ssh(host, traces) == ""


OPERATOR = "guest"
MEMORY_ROLES = ["page_cache", "memory_protection"]
FILL = "rm -f /var/tmp/filler; dd if=/dev/zero of=/var/tmp/filler bs=1M count=400 conv=fsync 2>/dev/null"
CACHED_KIB = "grep ^Cached: /proc/meminfo | tr -dc 0-9"
MIB = 1024  # KiB
GUARD = "ExecStartPost=-/usr/bin/systemctl start --no-block gb10-page-cache-guard@toy.service"
TOY = f"[Service]\\nType=exec\\nExecStart=/bin/sleep 900\\n{GUARD}\\n"
# A machine of the lab has 2 to 3 GiB in all, so memory counts as short at any time.
TOY_GUARD = "READY_URL=http://127.0.0.1:8123/\\nSERVING=/\\nLIMIT_S=600\\nMEMFREE_LOW_GIB=64\\nWORTH_GIB=0.2\\n"


def within(limit_s: int, condition: str) -> str:
    """Shell that waits for a condition, and fails when it does not come."""
    return f"timeout {limit_s} sh -c 'until {condition}; do sleep 0.2; done'"


@pytest.mark.long
class TestPageCache:
    """Memory on machines with a kernel of their own: the page cache is filled, and goes. Hosts end as they were."""

    def test_the_roles_apply_and_change_nothing_the_second_time(self, pair: Pair) -> None:
        for host in pair.hosts:
            pair.ssh(host, f"id {OPERATOR} 2>/dev/null || sudo useradd -m -s /bin/bash {OPERATOR}")
        asked = json.dumps({"gb10_roles": MEMORY_ROLES, "page_cache_operators": [OPERATOR]})
        for changes in (True, False):
            run = pair.play("-e", asked, playbook="playbooks/converge.yml")
            assert run.rc == 0
            assert {row["changed"] > 0 for row in run.recap.values()} == {changes}

    def test_an_operator_drops_the_cache_and_may_do_nothing_else(self, pair: Pair) -> None:
        full = int(pair.ssh("spark-a", f"{FILL}; {CACHED_KIB}"))
        assert full > 400 * MIB
        as_operator = f"sudo -u {OPERATOR} sudo -n systemctl"
        pair.ssh("spark-a", f"{as_operator} start gb10-drop-caches.service")
        assert int(pair.ssh("spark-a", CACHED_KIB)) < full - 300 * MIB
        for other in (
            "start ssh.service",
            "stop gb10-drop-caches.service",
            "start gb10-drop-caches.service ssh.service",
        ):
            tried = pair.lab("ssh", "spark-a", f"{as_operator} {other}", check=False)
            assert tried.rpartition("\n")[2] != "rc=0", other
        said = pair.ssh("spark-a", "sudo journalctl -u gb10-drop-caches -o cat --no-pager")
        assert "page cache dropped: before MemFree" in said and "; after MemFree" in said

    def test_the_guard_drops_while_a_model_loads_and_not_while_it_serves(self, pair: Pair) -> None:
        pair.ssh("spark-a", f"printf '{TOY}' | sudo tee /etc/systemd/system/toy.service; sudo mkdir -p /etc/gb10-fleet")
        pair.ssh("spark-a", f"printf '{TOY_GUARD}' | sudo tee /etc/gb10-fleet/guard-toy.env")
        pair.ssh("spark-a", "sudo systemctl daemon-reload; sudo systemctl start toy")
        try:
            gone = within(240, f"test $({CACHED_KIB}) -lt {300 * MIB}")
            for _ in range(2):
                pair.ssh("spark-a", f"{FILL}; {gone}", timeout=400)
            serve = "sudo systemd-run --quiet --unit=toy-api python3 -m http.server 8123 --bind 127.0.0.1"
            ended = within(60, "! systemctl --quiet is-active gb10-page-cache-guard@toy")
            pair.ssh("spark-a", f"{serve}; {ended}")
            assert int(pair.ssh("spark-a", f"{FILL}; {CACHED_KIB}")) > 400 * MIB, "dropped while a model serves"
            said = pair.ssh("spark-a", "sudo journalctl -u gb10-page-cache-guard@toy -o cat --no-pager")
            assert said.count("page cache dropped: before MemFree") >= 2
            assert "page cache guard: ready after" in said
        finally:
            pair.ssh("spark-a", "sudo systemctl stop toy toy-api; sudo rm -f /etc/systemd/system/toy.service")
            pair.ssh(
                "spark-a", "sudo rm -f /etc/gb10-fleet/guard-toy.env /var/tmp/filler; sudo systemctl daemon-reload"
            )
            pair.ssh("spark-a", "sudo rmdir --ignore-fail-on-non-empty /etc/gb10-fleet")

    def test_ssh_and_the_operator_are_protected_in_the_kernel(self, pair: Pair) -> None:
        groups = ("user.slice", "system.slice", "system.slice/ssh.service")
        protected = pair.ssh("spark-a", "; ".join(f"cat /sys/fs/cgroup/{group}/memory.min" for group in groups)).split()
        assert [int(size) >> 20 for size in protected] == [1024, 512, 128]
        assert "memory_recursiveprot" in pair.ssh("spark-a", "grep cgroup2 /proc/mounts"), "else sessions have none"
        pair.ssh("spark-a", "sudo systemctl restart ssh")
        assert pair.ssh("spark-a", "cat /proc/$$/oom_score_adj").strip() == "-500"
        listener = "cat /proc/$(systemctl show ssh -p MainPID --value)/oom_score_adj"
        assert pair.ssh("spark-a", f"sudo sh -c '{listener}'").strip() == "-1000"

    def test_undo_takes_it_away_again(self, pair: Pair) -> None:
        assert pair.play("-e", f"gb10_undo={','.join(MEMORY_ROLES)}", playbook="playbooks/undo.yml").rc == 0
        for host in pair.hosts:
            # The kernel keeps the old figure until the next boot: systemd leaves what no unit sets any more.
            assert pair.ssh(host, "systemctl show user.slice -p MemoryMin --value").strip() == "0"
            pair.ssh(host, f"sudo userdel -rf {OPERATOR} 2>/dev/null || true")


CONSENT = '{"reboot_allow": true, "reboot_wait": 600}'
MODULE = "/lib/modules/6.17.0-1014-nvidia/kernel/nvidia-580-open/nvidia.ko"
TIMER = "gb10-driver-coherence.timer"


@pytest.mark.long
class TestReboot:
    """With consent, never into a boot without GPU, one host after the other, and everything back."""

    @staticmethod
    def boots(pair: Pair) -> dict[str, str]:
        return {host: pair.ssh(host, "cat /proc/sys/kernel/random/boot_id") for host in pair.hosts}

    def refused(self, pair: Pair, *words: str, consent: bool = True) -> None:
        before = self.boots(pair)
        run = pair.play(*(("-e", CONSENT) if consent else ()), playbook="playbooks/reboot.yml")
        assert run.rc != 0
        for word in words:
            assert word in run.output
        assert run.changed == 0
        assert self.boots(pair) == before

    def test_the_gate_is_on_the_hosts(self, pair: Pair) -> None:
        run = pair.play("-e", '{"gb10_roles": ["driver", "coherence"]}', playbook="playbooks/converge.yml")
        assert run.rc == 0
        for host in pair.hosts:
            assert '"coherent": true' in pair.ssh(host, f"sudo gb10-driver-coherence && systemctl is-active {TIMER}")

    def test_without_consent_nothing_happens(self, pair: Pair) -> None:
        self.refused(pair, "reboot_allow is false", consent=False)

    def test_check_says_what_it_would_do(self, pair: Pair) -> None:
        before = self.boots(pair)
        run = pair.play("--check", playbook="playbooks/reboot.yml")
        assert run.rc == 0
        assert "would be rebooted" in run.output
        assert TIMER in run.output
        assert self.boots(pair) == before

    def test_a_boot_without_gpu_is_refused(self, pair: Pair) -> None:
        pair.ssh("spark-a", f"sudo mv {MODULE} {MODULE}.away; sudo depmod 6.17.0-1014-nvidia")
        self.refused(pair, "next_kernel_without_module", "6.17.0-1014-nvidia")
        pair.ssh("spark-a", f"sudo mv {MODULE}.away {MODULE}; sudo depmod 6.17.0-1014-nvidia")

    def test_both_are_back_as_they_were(self, pair: Pair) -> None:
        before = self.boots(pair)
        run = pair.play("-e", CONSENT, playbook="playbooks/reboot.yml")
        assert run.rc == 0
        after = self.boots(pair)
        for host in pair.hosts:
            assert before[host] != after[host]
            rails = "cat /sys/class/net/enp1s0f0np0/carrier /sys/class/net/enP2p1s0f0np0/carrier"
            assert pair.ssh(host, f"{rails}; systemctl is-active {TIMER}").split() == ["1", "1", "active"]
        run = pair.play("-e", '{"gb10_roles": ["driver", "coherence"]}', playbook="playbooks/converge.yml")
        assert run.changed == 0, "a reboot is no drift"

    def test_what_is_not_back_is_named(self, pair: Pair) -> None:
        """Rails that nothing brings up after the boot, and a timer that nobody starts."""
        pair.ssh("spark-a", f"sudo systemctl disable lab-rails.service {TIMER}")
        run = pair.play("-e", CONSENT, "--limit", "spark-a", playbook="playbooks/reboot.yml")
        pair.ssh("spark-a", f"sudo systemctl enable --now lab-rails.service {TIMER}")
        assert run.rc != 0
        for words in ("rails_gone: enp1s0f0np0", f"unit_down: {TIMER} ran before"):
            assert words in run.output
        assert "cold start" not in run.output


DAEMON = "/etc/docker/daemon.json"
DOCKER_ROLES = ["docker", "container_toolkit"]
# The simulated GPU stands for /dev/null, which every container may open. So a second device goes in beside it, of a
# major number that nobody has here (195, the real driver's): what opening it says tells whether the container may.
PROBE = """
cdiVersion: 0.6.0
kind: gb10.test/probe
devices:
  - name: "0"
    containerEdits:
      deviceNodes:
        - path: /dev/gb10-probe
          type: c
          major: 195
          minor: 0
"""
ALLOWED, DENIED = "No such device or address", "Operation not permitted"


@pytest.mark.long
class TestDocker:
    """Docker's configuration and a container with a GPU, after everything of ours was undone above."""

    def test_foreign_keys_survive_and_a_second_run_changes_nothing(self, pair: Pair) -> None:
        theirs = {"debug": True, "labels": ["rack=7"], "features": {"theirs": True}, "log-driver": "journald"}
        pair.ssh("spark-a", f"sudo mkdir -p /etc/docker; echo '{json.dumps(theirs)}' | sudo tee {DAEMON}")
        for changes in (True, False):
            run = self.play(pair)
            assert run.rc == 0
            assert {row["changed"] > 0 for row in run.recap.values()} == {changes}
        merged = json.loads(pair.ssh("spark-a", f"cat {DAEMON}"))
        assert {key: merged[key] for key in ("debug", "labels", "log-driver")} == {
            "debug": True, "labels": ["rack=7"], "log-driver": "journald",
        }  # fmt: skip
        assert merged["features"] == {"theirs": True, "cdi": True}

    def test_a_container_keeps_its_gpu_over_a_daemon_reload(self, pair: Pair) -> None:
        """With the role's cgroup driver, to which systemd has nothing to say; and beside it with systemd's.

        A CDI device stands in the container's specification, so from 1.1.7 on runc tells systemd of it
        (opencontainers/runc#3671). What NVIDIA's older hook adds to the cgroup by itself, systemd does not know: that
        is what a reload takes, and why the role refuses this driver.
        """
        pair.ssh("spark-a", f"sudo mkdir -p /etc/cdi; echo '{PROBE}' | sudo tee /etc/cdi/gb10-probe.yaml")
        try:
            for driver in ("cgroupfs", "systemd"):
                self.start(pair, driver)
                assert self.looks(pair) == ALLOWED
                pair.ssh("spark-a", "sudo systemctl daemon-reload")
                assert self.looks(pair) == ALLOWED, f"with {driver} a reload takes the GPU"
            refusal = self.play(pair, docker_allow_restart=False)
            assert refusal.rc != 0
            assert "Docker runs with the cgroup driver systemd" in refusal.output
        finally:
            pair.ssh("spark-a", "sudo docker rm -f gb10-gpu; sudo rm -f /etc/cdi/gb10-probe.yaml")
            assert self.play(pair).rc == 0
        assert pair.ssh("spark-a", "sudo docker info --format '{{.CgroupDriver}}'").strip() == "cgroupfs"

    def test_a_container_may_not_open_what_it_was_not_given(self, pair: Pair) -> None:
        """That the probe can tell the difference at all."""
        pair.ssh("spark-a", f"sudo docker run -d --name gb10-gpu --entrypoint sleep {pair.image} infinity")
        pair.ssh("spark-a", "sudo docker exec gb10-gpu mknod /dev/gb10-probe c 195 0")
        said = pair.ssh("spark-a", "sudo docker exec gb10-gpu sh -c ': </dev/gb10-probe' 2>&1 || true")
        assert DENIED in said
        pair.ssh("spark-a", "sudo docker rm -f gb10-gpu")

    def test_a_broken_daemon_json_is_refused_with_the_old_one_in_place(self, pair: Pair) -> None:
        self.start(pair)
        state = f"sudo cat {DAEMON}; sudo docker inspect --format '{{{{.State.StartedAt}}}}' gb10-gpu"
        before = pair.ssh("spark-a", state)
        options = {"insecure-registries": [pair.registry], "gb10-no-such-option": True}
        run = self.play(pair, docker_daemon_options=options)
        assert run.rc != 0
        assert f"file:{DAEMON}" in run.output and "gb10-no-such-option" in run.output
        assert pair.ssh("spark-a", state) == before

        pair.ssh("spark-a", f"sudo cp {DAEMON} /var/tmp/daemon.json; echo '{{broken' | sudo tee {DAEMON}")
        try:
            run = self.play(pair)
            assert run.rc != 0 and run.changed == 0
            assert f"file:{DAEMON}: is not JSON" in run.output
            assert pair.ssh("spark-a", f"cat {DAEMON}").strip() == "{broken"
        finally:
            pair.ssh("spark-a", f"sudo mv /var/tmp/daemon.json {DAEMON}")
        assert pair.ssh("spark-a", state) == before
        pair.ssh("spark-a", "sudo docker rm -f gb10-gpu")

    def test_a_description_for_another_driver_is_written_anew(self, pair: Pair) -> None:
        path = "/var/run/cdi/nvidia.yaml"
        library = pair.ssh("spark-a", f"grep -o '/libcuda[.]so[.].*' {path}").strip()
        pair.ssh("spark-a", f"sudo sed -i 's|{library}|/libcuda.so.580.126.09|' {path}")
        run = self.play(pair)
        assert run.rc == 0
        assert pair.ssh("spark-a", f"grep -o '/libcuda[.]so[.].*' {path}").strip() == library
        assert self.play(pair).changed == 0

    def test_undo_gives_daemon_json_back(self, pair: Pair) -> None:
        consents = json.dumps({"docker_allow_restart": True})
        run = pair.play("-e", f"gb10_undo={','.join(DOCKER_ROLES)}", "-e", consents, playbook="playbooks/undo.yml")
        assert run.rc == 0
        assert json.loads(pair.ssh("spark-a", f"cat {DAEMON}"))["features"] == {"theirs": True}
        pair.ssh("spark-a", f"sudo rm {DAEMON}")

    # -- how

    def play(self, pair: Pair, **variables: Any) -> Play:
        asked = {"gb10_roles": DOCKER_ROLES, "docker_allow_restart": True, **variables}
        return pair.play("-e", json.dumps(asked), playbook="playbooks/converge.yml")

    def start(self, pair: Pair, driver: str = "cgroupfs") -> None:
        """A container with the GPU and the probe, under this cgroup driver."""
        pair.ssh("spark-a", "sudo docker rm -f gb10-gpu 2>/dev/null || true")
        if driver != "cgroupfs":
            edit = f"sudo sed -i 's/native.cgroupdriver=[a-z]*/native.cgroupdriver={driver}/' {DAEMON}"
            pair.ssh("spark-a", f"{edit}; sudo systemctl restart docker")
        devices = "--device nvidia.com/gpu=all"
        if "probe" in pair.ssh("spark-a", "ls /etc/cdi 2>/dev/null || true"):
            devices += " --device gb10.test/probe=0"
        pair.ssh("spark-a", f"sudo docker run -d --name gb10-gpu {devices} --entrypoint sleep {pair.image} infinity")
        assert "GB10" in pair.ssh("spark-a", "sudo docker exec gb10-gpu nvidia-smi -L")

    def looks(self, pair: Pair) -> str:
        """What the container hears when it opens its devices."""
        assert "GB10" in pair.ssh("spark-a", "sudo docker exec gb10-gpu nvidia-smi -L")
        said = pair.ssh("spark-a", "sudo docker exec gb10-gpu sh -c ': </dev/gb10-probe' 2>&1 || true")
        return next((words for words in (ALLOWED, DENIED) if words in said), said)
