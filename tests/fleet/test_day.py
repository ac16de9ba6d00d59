"""A day of an operator, by the command alone: one thing breaks, the first line tells what, and a run mends just that.

What needs Docker, rails or a GPU is in tests/lab; apt's lock, kills and passwords have files of their own here.
"""

from __future__ import annotations

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
        ("overridden", "override.conf changes this unit", "systemctl revert"),
        "systemctl revert gb10-drop-caches.service; systemctl daemon-reload",
    ),
    Break(
        "a later file wins at the next boot",
        f"sed -n 's/ = .*/ = 7/p' {SYSCTLS} | head -1 >{LATER}",
        ("overridden", f"{LATER} comes later and sets 7 at the next boot"),
        f"rm {LATER}",
    ),
]


def gb10(fleet: Fleet, command: str, *words: str, timeout: int = 300) -> subprocess.CompletedProcess[str]:
    argv = [GB10, command, *words, "-i", str(fleet.inventory), *limit(fleet, command), "--", "-e", f"@{HERE}/vars.yml"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)


def limit(fleet: Fleet, command: str) -> list[str]:
    return [] if command == "bundle" else ["--limit", ",".join(fleet.hosts)]


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
    argv = [GB10, "site", "-i", str(quiet.inventory), *limit(quiet, "site"), "--", "-e", f"@{HERE}/vars.yml"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(4)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 130, out + err
    assert "interrupted" in err and "no group" not in out + err
    print(f"Ctrl-C: {err.strip().splitlines()[-1]}")
    assert quiet.site().rc == 0


def test_a_wrong_key_is_the_same_in_drift_and_doctor(quiet: Fleet, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    for command in ("drift", "doctor"):
        for host in quiet.hosts:  # sshd turns away for a while whoever failed, so ours would not be asked for its key
            quiet.shell(host, "systemctl restart ssh")
        argv = [GB10, command, "-i", str(quiet.inventory), *limit(quiet, command)]
        more = ["-e", f"ansible_ssh_private_key_file={tmp_path}/key", "-e", f"@{HERE}/vars.yml"]
        more += ["-e", "ansible_ssh_extra_args='-o ControlPath=none -o IdentitiesOnly=yes'"]
        done = subprocess.run([*argv, "--", *more], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 3, done.stdout + done.stderr
        assert "permission" in done.stdout and "power" not in done.stdout, done.stdout


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
