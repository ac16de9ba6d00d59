"""Users whose sudo, su or SSH wants a password: every playbook takes it, and nobody else hears of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import HERE, Fleet
from tests.fleet.rollouts import GB10
from tests.fleet.typist import CLEAR, MARK, PREPARE, ROOT_OWN, SSH, SUDO
from tests.support.rig import ROOT, Play

pytestmark = pytest.mark.lab

ROLES = ["kernel_parameters", "page_cache"]


class Operator:
    """Runs of a user with passwords, which this controller's process table is searched for meanwhile."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet, self.folder = fleet, folder
        self.words = ["-e", f"@{HERE / 'vars.yml'}", "-e", f"@{self.file('ours', {'gb10_roles': ROLES})}"]
        self.password("typist", SUDO)

    def password(self, user: str, secret: str) -> None:
        for host in self.fleet.hosts:
            self.fleet.root(host, "chpasswd", program=f"{user}:{secret}\n".encode())

    def file(self, name: str, content: object) -> Path:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def play(self, playbook: str, *args: str, **variables: object) -> Play:
        own = self.file("own", {"ansible_user": "typist", **variables})
        hosts = ",".join(self.fleet.hosts)
        with Watch() as watch:
            run = self.fleet.play(*self.words, "-e", f"@{own}", "--limit", hosts, "-vvv", *args, playbook=playbook)
        assert watch.seen == set(), "in a process list"
        assert MARK.decode() not in run.output, "on the screen"
        return run

    def drift(self, *args: str, **variables: object) -> dict[str, str]:
        """The state of each host, in the scan that this way in gives."""
        self.play("playbooks/drift.yml", *args, **variables)
        report = json.loads((ROOT / "evidence/drift/drift.json").read_text())
        assert MARK.decode() not in json.dumps(report)
        return {
            name: str((host["silence"] or host).get("text", host["state"])) for name, host in report["hosts"].items()
        }


class Watch:
    """Looks for the passwords in arguments and environment of every process, as often as it can."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.05):
            for file in (path / name for path in Path("/proc").glob("[0-9]*") for name in ("cmdline", "environ")):
                try:
                    if MARK in file.read_bytes():
                        self.seen.add(str(file))
                except OSError:
                    pass


@pytest.fixture(scope="module")
def operator(cleared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    for host in cleared.hosts:
        cleared.shell(host, PREPARE)
    yield Operator(cleared, tmp_path_factory.mktemp("operator"))
    for host in cleared.hosts:
        cleared.shell(host, CLEAR)


def vault(operator: Operator, name: str, secret: str) -> tuple[str, ...]:
    """The arguments with which a variable comes from a vault."""
    words = operator.file("vault-password", "of-the-vault\n")
    program = str(Path(sys.executable).with_name("ansible-vault"))
    done = subprocess.run(
        [program, "encrypt_string", "--vault-password-file", str(words), "--stdin-name", name],
        input=secret, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return "-e", f"@{operator.file('vault.yml', done.stdout)}", "--vault-password-file", str(words)


def test_every_playbook_takes_a_password_of_sudo(operator: Operator) -> None:
    """From a vault: check mode, first run, second run, drift that is there, and undo."""
    words = vault(operator, "ansible_become_password", SUDO)
    hosts = operator.fleet.hosts
    check = operator.play("tests/fleet/state.yml", *words, "--check", "--diff")
    assert check.rc == 0 and check.changed, check.output
    first = operator.play("tests/fleet/state.yml", *words)
    assert first.rc == 0 and first.changed, first.output
    second = operator.play("tests/fleet/state.yml", *words)
    assert second.rc == 0 and second.changed == 0, second.output
    assert operator.drift(*words) == dict.fromkeys(hosts, "clean")
    operator.fleet.shell(hosts[0], "rm /etc/sysctl.d/90-gb10-kernel_parameters.conf")
    assert operator.drift(*words) == dict(zip(hosts, ("drift", "clean"), strict=True))
    undone = operator.play("playbooks/undo.yml", *words, "-e", "gb10_undo=page_cache")
    assert undone.rc == 0 and undone.changed == len(hosts), undone.output
    assert operator.play("tests/fleet/state.yml", *words).rc == 0


def test_a_password_of_the_run_is_that_of_all_hosts(operator: Operator) -> None:
    clean = dict.fromkeys(operator.fleet.hosts, "clean")
    right, wrong = operator.file("right", f"{SUDO}\n"), operator.file("wrong", "no password of anybody\n")
    assert operator.drift("--become-password-file", str(right)) == clean
    said = operator.drift("--become-password-file", str(wrong))
    assert all("ncorrect sudo password" in text for text in said.values()), said


def test_a_password_opens_ssh(operator: Operator) -> None:
    """Without a key, and the password of sudo is the same."""
    operator.password("typist", SSH)
    no_key = {"ansible_ssh_private_key_file": "/dev/null", "ansible_ssh_extra_args": "-oPubkeyAuthentication=no"}
    try:
        right = str(operator.file("right", f"{SSH}\n"))
        words = ("--connection-password-file", right, "--become-password-file", right)
        assert operator.drift(*words, **no_key) == dict.fromkeys(operator.fleet.hosts, "clean")
        own = {"ansible_password": SSH, "ansible_become_password": SSH, **no_key}
        assert operator.drift(**own) == dict.fromkeys(operator.fleet.hosts, "clean")
        doctor = operator.play("playbooks/doctor.yml", **own)
        assert doctor.rc == 0, doctor.output
        validate = operator.play("playbooks/validate.yml", *words, **no_key)
        assert validate.rc == 0 and "verdict" in validate.output, validate.output
    finally:
        operator.password("typist", SUDO)


def test_su_is_a_way_to_root_as_well(operator: Operator) -> None:
    own = {"ansible_become_method": "su", "ansible_become_password": ROOT_OWN}
    assert operator.drift(**own) == dict.fromkeys(operator.fleet.hosts, "clean")
    site = operator.play("playbooks/site.yml", **own)
    assert site.rc == 0, site.output


def test_a_benchmark_asks_the_model_with_a_password(operator: Operator) -> None:
    """No container serves: that is what the host itself says, and only root is heard."""
    serves = {"gb10_roles": ["vllm"], "vllm_model": "openai/gpt-oss-120b"}
    served = operator.file("serves", serves)
    words = ("-e", f"@{served}", "--become-password-file", str(operator.file("right", f"{SUDO}\n")))
    run = operator.play("playbooks/benchmark.yml", *words)
    assert run.rc != 0 and "is not measured, for it does not serve" in run.output, run.output
    assert "not_listening" in run.output


def gb10(operator: Operator, *words: str, secret: str, **variables: object) -> subprocess.CompletedProcess[str]:
    """The command, which asks where there is no terminal on its standard input."""
    own = operator.file("own", {"ansible_user": "typist", **variables})
    limit = ["--limit", ",".join(operator.fleet.hosts)]
    argv = [*GB10, *words, *limit, "-i", str(operator.fleet.inventory), "--", *operator.words, "-e", f"@{own}"]
    with Watch() as watch:
        done = subprocess.run(
            argv, cwd=ROOT, env=dict(os.environ), input=secret, capture_output=True, text=True, check=False,
            start_new_session=True,
        )  # fmt: skip
    assert watch.seen == set() and MARK.decode() not in done.stdout + done.stderr
    return done


def test_gb10_asks_for_it_once(operator: Operator) -> None:
    done = gb10(operator, "drift", "-K", secret=f"{SUDO}\n")
    assert done.returncode == 0 and "2 clean" in done.stdout, done.stdout + done.stderr


@pytest.mark.long
def test_a_rollout_of_several_waves_asks_once(operator: Operator, tmp_path: Path) -> None:
    waves = ["--canary", "1", "--soak", "0", "--state", str(tmp_path), "--no-prove", "--no-drain"]
    done = gb10(operator, "rollout", "tests/fleet/state.yml", *waves, "-K", secret=f"{SUDO}\n")
    assert done.returncode == 0 and "2 done" in done.stdout, done.stdout + done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and MARK in path.read_bytes()]
