"""A day of an operator, by the command alone: one thing breaks, the first line tells what, and a run mends just that.

Services, waiting for apt, kills, rollouts and a restart of Docker have files of their own here. What needs rails or
the power of a host is in tests/lab.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fleet.fleet import HERE, Fleet
from tests.fleet.typist import CLEAR, PREPARE

pytestmark = [pytest.mark.lab, pytest.mark.long]

GB10 = str(Path(sys.executable).parent / "gb10")
GATE = "/usr/local/sbin/gb10-memory-gate"
DROP_IN = "/etc/systemd/system/gb10-drop-caches.service.d"
SYSCTLS = "/etc/sysctl.d/90-gb10-kernel_parameters.conf"
LATER = "/etc/sysctl.d/99-mine.conf"


class Break(NamedTuple):
    """`says`: words of the line that `gb10 drift` begins with for the host. `mended`: by a run, or by `hand`."""

    name: str
    cause: str
    says: tuple[str, ...]
    hand: str = ""


BREAKS = [
    Break("a program is edited", f"echo '# hello' >>{GATE}", ("page_cache", GATE)),
    Break("our sysctls are edited", f"echo >{SYSCTLS}", ("kernel_parameters", SYSCTLS)),
    Break("a hold is taken off", "apt-mark -q unhold nvidia-driver-580-open", ("driver", "hold:driver-set")),
    Break(
        "a unit is changed by systemctl edit",
        f"mkdir -p {DROP_IN}; printf '[Service]\\nNice=5\\n' >{DROP_IN}/override.conf; systemctl daemon-reload",
        ("overridden", "override.conf changes this unit", "`rm` it"),
        f"rm {DROP_IN}/override.conf; systemctl daemon-reload",
    ),
    Break(
        "a later file wins at the next boot",
        f"sed -n 's/ = .*/ = 7/p' {SYSCTLS} | head -1 >{LATER}",
        ("overridden", f"{LATER} comes later and sets 7 at the next boot"),
        f"rm {LATER}",
    ),
]


class Fault(NamedTuple):
    """What no manifest tells. `says`: by command its exit status, and words of the line that is not of a sound host."""

    name: str
    cause: str
    cure: str
    says: dict[str, tuple[int, str]]


SCENARIO, STORE, SBIN = "/run/gb10-lab/gpu-scenario", "/var/lib/docker", "/usr/local/sbin"
FAULTS = [
    Fault(
        "a disk is at 99 %",
        f"mkdir -p {STORE}; mount -t tmpfs -o size=100m tmpfs {STORE}; fallocate -l 99M {STORE}/full",
        f"umount {STORE}",
        {
            "doctor": (4, f"error: disk_full: {STORE} (file system {STORE}) has 0.0 GiB free"),
            "site": (4, f"disk_full: {STORE} (file system {STORE}) has 0.0 GiB free"),
        },
    ),
    Fault(
        "the GPU is absent",
        f"echo absent >{SCENARIO}",
        f"echo idle >{SCENARIO}",
        {
            "doctor": (4, "error: gpu_absent: the driver finds no GPU: No devices were found"),
            "why": (0, "error: gpu_absent: the driver finds no GPU"),
            "top": (0, "error: gpu_absent: the driver finds no GPU"),
            "site": (4, "gpu_absent: the driver finds no GPU: No devices were found"),
        },
    ),
    Fault(
        "the GPU is throttled",
        f"echo throttled >{SCENARIO}",
        f"echo idle >{SCENARIO}",
        {
            "doctor": (0, ""),
            "why": (0, "very likely: the power supply has fallen back and holds the GPU at its lowest clocks"),
            "top": (0, "507 MHz low"),
        },
    ),
    Fault(
        "the GPU hangs",
        f"echo hung >{SCENARIO}",
        f"echo idle >{SCENARIO}",
        {
            "doctor": (4, "error: gpu_silent: nvidia-smi hangs: nvidia-smi did not end within"),
            "why": (0, "error: gpu_silent: nvidia-smi hangs"),
            "top": (0, "error: gpu_silent: nvidia-smi hangs"),
            "site": (4, "gpu_silent: nvidia-smi hangs: nvidia-smi did not end within"),
        },
    ),
]


def gb10(
    fleet: Fleet, command: str, *words: str, more: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """`more`: for Ansible."""
    hosts = [] if command in ("bundle", "why") else ["--limit", ",".join(fleet.hosts)]
    argv = [GB10, command, *words, "-i", str(fleet.inventory), *hosts, "--", "-e", f"@{HERE}/vars.yml", *more]
    environ = {**os.environ, **environment}
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, env=environ)


def told(name: str, command: str, done: subprocess.CompletedProcess[str], words: str) -> None:
    """See that a line has the words, and print it for the table of the day: pytest -s."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if words in line]
    assert lines, done.stdout + done.stderr
    print(f"{name}: {command}: {lines[0]}")


@pytest.fixture
def quiet(converged: Fleet) -> Iterator[Fleet]:
    """Hosts on which nothing drifts, before the test and after it."""
    yield converged
    done = gb10(converged, "drift")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", BREAKS, ids=[case.name for case in BREAKS])
def test_the_first_line_tells_and_a_run_mends_just_that(quiet: Fleet, case: Break) -> None:
    host = quiet.hosts[0]
    quiet.shell(host, case.cause)
    scan = gb10(quiet, "drift")
    assert scan.returncode == 5, scan.stdout + scan.stderr
    (line,) = (line for line in scan.stdout.splitlines() if any(word in line for word in case.says[-1:]))
    assert [word for word in case.says if word not in scan.stdout] == [], scan.stdout
    print(f"{case.name}: {line.strip()}")  # the table of the day: pytest -s
    if case.hand:
        quiet.shell(host, case.hand)
    else:
        run = quiet.site()
        assert run.rc == 0, run.output
        assert run.recap[host]["changed"] >= 1 and run.recap[quiet.hosts[1]]["changed"] == 0


def test_ctrl_c_in_a_changing_run_is_said_and_the_same_run_goes_on(quiet: Fleet) -> None:
    host = quiet.hosts[0]
    quiet.shell(host, f"rm {GATE}")
    argv = [GB10, "site", "-i", str(quiet.inventory), "--limit", ",".join(quiet.hosts), "--", "-e", f"@{HERE}/vars.yml"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(4)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 130, out + err
    assert "interrupted" in err and "no group" not in out + err
    print(f"Ctrl-C: {err.strip().splitlines()[-1]}")
    assert quiet.site().rc == 0


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_what_is_no_drift_is_told_by_others_and_no_run_makes_it_worse(quiet: Fleet, fault: Fault) -> None:
    host = quiet.hosts[0]
    before = quiet.manifest(host)
    quiet.shell(host, fault.cause)
    try:
        for command, (status, words) in fault.says.items():
            done = gb10(quiet, command, *([host] if command == "why" else []))
            assert done.returncode == status, done.stdout + done.stderr
            told(fault.name, command, done, words)
        assert gb10(quiet, "drift").returncode == 0 and quiet.manifest(host) == before
    finally:
        quiet.shell(host, fault.cure)
    assert quiet.site().changed == 0, "what is over needs no repair"


def test_a_clock_that_is_off_by_two_hours(quiet: Fleet, tmp_path: Path) -> None:
    """Ours: a container has the clock of this machine, and between the two it is the same."""
    ahead = "import time\nreal = time.time\ntime.time = lambda: real() + 7200\n"
    (tmp_path / "sitecustomize.py").write_text(ahead)
    for command in ("doctor", "site"):
        done = gb10(quiet, command, PYTHONPATH=str(tmp_path))
        assert done.returncode == 0, done.stdout + done.stderr
        told("the clock is off by two hours", command, done, "clock_differs: this host's clock is ")
        assert "s behind the controller's" in done.stdout


def test_a_disk_that_is_full_in_the_middle_of_a_run(quiet: Fleet) -> None:
    """The folder of our programs has a small disk of its own, with what was there."""
    host, small = quiet.hosts[0], "/run/small"
    quiet.shell(
        host,
        f"mkdir {small}; mount -t tmpfs -o size=2m tmpfs {small}; cp -a {SBIN}/. {small}; mount --bind {small} {SBIN}\n"
        f"rm {GATE}; dd if=/dev/zero of={SBIN}/full bs=1k 2>/dev/null || true",
    )
    try:
        run = quiet.site()
        assert run.rc == 2 and run.recap[host]["failed"] == 1
        lines = [line for line in run.output.splitlines() if "No space left on device" in line]
        assert f"{host}: file:{GATE}: " in lines[0] and "then run the same again" in lines[0], lines
        print(f"the disk is full in the middle: site: {lines[0]}")
        quiet.shell(host, f"rm {SBIN}/full")
        again = quiet.site()
        assert again.rc == 0 and again.recap[host]["changed"] == 1
    finally:
        quiet.shell(host, f"umount {SBIN}; umount {small}; rmdir {small}")


def test_a_wrong_password_of_sudo(quiet: Fleet) -> None:
    for host in quiet.hosts:
        quiet.shell(host, PREPARE)
    try:
        user = ("-e", "ansible_user=typist", "-e", "ansible_become_password=wrong")
        for command, status in (("drift", 3), ("doctor", 4), ("site", 4)):
            done = gb10(quiet, command, more=user)
            assert done.returncode == status, done.stdout + done.stderr
            told("a wrong sudo password", command, done, "sudo was refused: Incorrect sudo password")
            assert "the password that this run has is wrong" in done.stdout + done.stderr
    finally:
        for host in quiet.hosts:
            quiet.shell(host, CLEAR)


def test_a_wrong_key_is_the_same_in_drift_and_doctor(quiet: Fleet, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    for command in ("drift", "doctor"):
        for host in quiet.hosts:  # sshd turns away for a while whoever failed, so ours would not be asked for its key
            quiet.shell(host, "systemctl restart ssh")
        key = ("-e", f"ansible_ssh_private_key_file={tmp_path}/key")
        options = ("-e", "ansible_ssh_extra_args='-o ControlPath=none -o IdentitiesOnly=yes'")
        done = gb10(quiet, command, more=(*key, *options))
        assert done.returncode == 3, done.stdout + done.stderr
        told("a wrong key", command, done, "permission")
        assert "power" not in done.stdout, done.stdout


def test_a_lock_of_apt_that_somebody_holds(quiet: Fleet) -> None:
    """A run waits for it by itself: test_apt_faults.py."""
    host = quiet.hosts[0]
    holder = quiet.start(host, "python3", "-", "20", program=(HERE / "on_host/hold_locks.py").read_bytes())
    assert holder.stdout is not None and holder.stdout.readline() == b"armed\n"
    try:
        done = gb10(quiet, "doctor")
        assert done.returncode == 0, done.stdout + done.stderr
        told("apt's lock is held", "doctor", done, "apt_lock: process ")
    finally:
        assert holder.wait(timeout=60) == 0


def test_a_role_is_undone_and_comes_back(quiet: Fleet) -> None:
    undone = gb10(quiet, "undo", "page_cache")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert quiet.shell(quiet.hosts[0], f"ls {GATE} 2>&1 || true").endswith("No such file or directory\n")
    assert quiet.site().rc == 0


def test_a_bundle_of_a_live_host_and_a_dead_one(quiet: Fleet, tmp_path: Path) -> None:
    live, dead = quiet.hosts[0], quiet.hosts[1]
    hosts = tmp_path / "dead.yml"
    hosts.write_text(f"all: {{hosts: {{{dead}: {{ansible_host: 192.0.2.254, ansible_ssh_timeout: 2}}}}}}\n")
    inventories = ["-i", str(quiet.inventory), "-i", str(hosts)]
    argv = [GB10, "bundle", live, dead, "--out", str(tmp_path / "x.tar.gz"), *inventories]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        texts = {entry.name: archive.extractfile(entry).read().decode() for entry in archive}  # type: ignore[union-attr]
    assert "host-2: nothing: " in texts["CONTENTS.txt"]
    assert {"host-1/facts.json", "host-1/health.json", "host-1/units.log"} <= set(texts)
    whole = "\n".join([*texts, *texts.values()])
    for name in (live, dead, quiet.address(live)):
        assert name not in whole, whole[max(0, whole.index(name) - 200) :][:400]
