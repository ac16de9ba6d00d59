"""The collection in a project that is not ours, built, installed and run as a stranger would, beside Ansible's modules.

Its ansible.cfg has no pipelining, its groups are its own, its hosts are behind a bastion, on another port, of a user
whose sudo wants a password; the inventory is a script, stdout is JSON, and the callback junit listens.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.check import NEWEST_PYTHON, export, stage
from tests.fleet.fleet import HERE, Fleet
from tests.fleet.typist import CLEAR, MARK, PREPARE, SUDO
from tests.support.rig import ROOT

pytestmark = pytest.mark.lab

PORT = 2222
OPEN = f"""
printf 'Port 22\\nPort {PORT}\\n' >/etc/ssh/sshd_config.d/01-foreign.conf
systemctl restart ssh
"""
CLOSE = "rm -f /etc/ssh/sshd_config.d/01-foreign.conf; systemctl restart ssh"
CONFIG = """[defaults]
inventory = hosts
collections_path = {collections}
callbacks_enabled = ansible.builtin.junit
stdout_callback = ansible.posix.json
remote_user = typist
[ssh_connection]
pipelining = False
"""
SSH_CONFIG = """Host bastion
  HostName {bastion}
  User spark
Host *
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile {known_hosts}
"""
OWN = [
    {
        "hosts": "workers", "gather_facts": False, "become": True,
        "tasks": [
            {"ansible.builtin.ping": None},
            {"ansible.builtin.copy": {"content": "ours\n", "dest": "/etc/foreign", "mode": "0644"}},
        ],
    }
]  # fmt: skip
ROLE = [{"hosts": "workers", "gather_facts": False, "become": True, "roles": ["gb10.fleet.page_cache"]}]


@dataclass(frozen=True)
class Run:
    rc: int
    stdout: str
    stderr: str

    @property
    def stats(self) -> dict[str, dict[str, int]]:
        """The recap. All of stdout is one JSON object, or this fails."""
        found: dict[str, dict[str, int]] = json.loads(self.stdout)["stats"]
        return found

    @property
    def changed(self) -> int:
        return sum(host["changed"] for host in self.stats.values())

    def like(self, other: Run) -> bool:
        """Whether a job that only looks at exit status and recap sees the same: who is well, and who is not."""
        bad = [
            {name: {word for word in ("failures", "unreachable") if host[word]} for name, host in run.stats.items()}
            for run in (self, other)
        ]
        return self.rc == other.rc and bad[0] == bad[1]


class Project:
    def __init__(self, folder: Path, fleet: Fleet, programs: Path, packages: Path) -> None:
        """`programs` and `packages`: those of the Ansible that runs."""
        self.folder, self.programs, self.hosts = folder, programs, fleet.hosts
        lab = yaml.safe_load((fleet.inventory / "hosts.yml").read_text())["all"]
        places = {host: lab["children"]["sparks"]["hosts"][host]["ansible_host"] for host in self.hosts}
        options = shlex.split(lab["vars"]["ansible_ssh_common_args"])
        known = Path(next(word for word in options if "UserKnownHostsFile" in word).partition("=")[2]).read_text()
        lines = [line.split(maxsplit=1) for line in known.splitlines()]
        ours = [f"[{place}]:{PORT} {key}" for place in places.values() for names, key in lines if place in names]
        self.write("known_hosts", known + "\n".join(ours) + "\n")
        key = lab["vars"]["ansible_ssh_private_key_file"]
        bastion = places[self.hosts[0]]
        self.write("ssh_config", SSH_CONFIG.format(bastion=bastion, key=key, known_hosts=folder / "known_hosts"))
        self.write("ansible.cfg", CONFIG.format(collections=f"{folder}/collections:{packages}"))
        own = {"ansible_port": PORT, "ansible_ssh_common_args": f"-F {folder}/ssh_config -o ProxyJump=bastion"}
        settings = yaml.safe_load((HERE / "vars.yml").read_text())
        settings |= {"gb10_roles": ["kernel_parameters", "page_cache"], "docker_users": ["nobody"]}
        listed = {
            "workers": {"hosts": [*self.hosts], "vars": {**settings, **own}},
            "_meta": {"hostvars": {host: {"ansible_host": place} for host, place in places.items()}},
        }
        self.write("hosts", f"#!{sys.executable}\nprint({json.dumps(json.dumps(listed))})\n").chmod(0o755)
        self.write("own.yml", json.dumps(OWN))
        self.write("role.yml", json.dumps(ROLE))
        self.write("password", f"{SUDO}\n").chmod(0o600)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def call(self, *argv: str) -> Run:
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHON"))}
        environ |= {"HOME": str(self.folder / "home"), "PATH": f"{self.programs}:{os.environ['PATH']}"}
        environ |= {"JUNIT_OUTPUT_DIR": str(self.folder / "junit"), "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "0"}
        done = subprocess.run(
            [str(self.programs / argv[0]), *argv[1:]], cwd=self.folder, env=environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert MARK.decode() not in done.stdout + done.stderr
        return Run(done.returncode, done.stdout, done.stderr)

    def play(self, playbook: str, *args: str) -> Run:
        words = ["-e", "gb10_hosts=workers", "--become-password-file", "password"]
        return self.call("ansible-playbook", playbook, *words, *args)

    def good(self, playbook: str, *args: str) -> Run:
        """A run after which all is well, as in one of Ansible's modules."""
        shutil.rmtree(self.folder / "junit", ignore_errors=True)
        run = self.play(playbook, *args)
        assert run.rc == 0, f"{run.stdout[-3000:]}\n{run.stderr}"
        assert run.stats.keys() == set(self.hosts)
        assert all(not host["failures"] and not host["unreachable"] and host["ok"] for host in run.stats.values())
        (report,) = (self.folder / "junit").glob("*.xml")
        suites = ElementTree.parse(report).getroot()  # noqa: S314 - Ansible has written it
        assert suites.findall(".//testcase") and not suites.findall(".//failure")
        return run


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Galaxy would get."""
    source, built = stage(export(tmp_path_factory.mktemp("source"))), tmp_path_factory.mktemp("built")
    argv = [str(Path(sys.executable).with_name("ansible-galaxy")), "collection", "build", "--output-path", str(built)]
    subprocess.run(argv, cwd=source, check=True, capture_output=True)
    (found,) = built.glob("gb10-fleet-*.tar.gz")
    return found


@pytest.fixture(scope="module")
def doors(cleared: Fleet) -> Iterator[Fleet]:
    for host in cleared.hosts:
        cleared.shell(host, PREPARE + OPEN)
    yield cleared
    for host in cleared.hosts:
        cleared.shell(host, f"{CLEAR}; {CLOSE}; rm -f /etc/foreign")


def installed(doors: Fleet, tarball: Path, folder: Path, programs: Path, packages: Path) -> Project:
    (folder / "home").mkdir()
    project = Project(folder, doors, programs, packages)
    words = ["collection", "install", "--offline", "-p", str(folder / "collections"), str(tarball)]
    done = project.call("ansible-galaxy", *words)
    assert done.rc == 0, done.stdout + done.stderr
    return project


@pytest.fixture(scope="module")
def project(doors: Fleet, tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder, programs = tmp_path_factory.mktemp("project"), Path(sys.executable).parent
    return installed(doors, tarball, folder, programs, Path(sysconfig.get_path("purelib")))


def everything(project: Project) -> None:
    """Each playbook, and one role alone; each second run changes nothing."""
    project.good("gb10.fleet.doctor")
    site = ("gb10.fleet.site", "--skip-tags", "validate")
    assert project.good(*site, "--check", "--diff").changed
    assert project.good(*site).changed
    assert project.good(*site).changed == 0
    project.good("gb10.fleet.drift")
    assert project.good("gb10.fleet.undo", "-e", "gb10_undo=page_cache").changed == len(project.hosts)
    assert project.good("role.yml", "--check").changed == len(project.hosts)
    assert project.good("role.yml").changed == len(project.hosts)
    assert project.good("role.yml").changed == 0
    assert project.good("gb10.fleet.undo", "-e", "gb10_undo=all").changed == len(project.hosts)


@pytest.mark.long  # two minutes; the sandbox of the collection's unit tests is another project, too
def test_a_project_that_is_not_ours(project: Project) -> None:
    project.good("own.yml")
    assert project.good("own.yml").changed == 0
    everything(project)


@pytest.mark.long
@pytest.mark.parametrize(
    "words", [("-e", "ansible_port=2223"), ("--become-password-file", "wrong")], ids=["away", "no sudo"]
)
@pytest.mark.parametrize("playbook", ["doctor", "site", "drift", "undo"])
def test_what_goes_wrong_looks_as_with_modules_of_ansible(
    project: Project, playbook: str, words: tuple[str, ...]
) -> None:
    project.write("wrong", "nobody's\n")
    ours: list[Any] = ["-e", "gb10_undo=all"] if playbook == "undo" else []
    own, run = project.play("own.yml", *words), project.play(f"gb10.fleet.{playbook}", *ours, *words)
    assert own.rc and run.like(own), f"{own.rc} {own.stats}, but {run.rc} {run.stats}: {run.stdout[-2000:]}"


@pytest.mark.long
def test_the_newest_ansible_does_the_same(doors: Fleet, tarball: Path, tmp_path: Path) -> None:
    python = ROOT / f".venv-{NEWEST_PYTHON}/bin/python"
    if not python.exists():
        pytest.skip(f"no {python.parents[1].name}: make check makes it, where there is a Python {NEWEST_PYTHON}")
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    everything(installed(doors, tarball, tmp_path, python.parent, packages))
