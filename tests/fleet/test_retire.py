"""A host leaves the fleet: nothing of ours stays on it, and its key opens nothing. Or another takes its name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fleet.fleet import HERE, Fleet
from tests.support.rig import differences

pytestmark = pytest.mark.lab

GB10 = str(Path(sys.executable).with_name("gb10"))
# Root's files and those of who logs in, each with its owner and its content; .ansible is where Ansible works.
HOMES = """
home=$(getent passwd "${SUDO_USER}" | cut -d: -f6)
find /root "$home" -name .ansible -prune -o -type f -printf '%p %m %u ' -exec sha256sum {} ';' | sort
"""

FIND = "find /etc /usr/local /var/lib /var/cache -name '*gb10*' -prune"
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIretired+key/of/the/fleet="


@pytest.mark.long  # a minute; the command below runs the same playbook over SSH
def test_nothing_of_the_fleet_stays(cleared: Fleet) -> None:
    host = cleared.hosts[0]
    before, named = cleared.snapshot(host), {*cleared.shell(host, FIND).splitlines()}  # the lab has files of that name
    assert cleared.play(*cleared.words, "--limit", host, playbook=cleared.playbook).rc == 0
    file = cleared.shell(host, "getent passwd ${SUDO_USER} | cut -d: -f6").strip() + "/.ssh/authorized_keys"
    theirs = cleared.shell(host, f"cat {file}")
    cleared.shell(host, f"echo 'ssh-ed25519 {KEY} of the fleet' >>{file}; mkdir -p /var/cache/gb10-files/model")
    said = json.dumps({"gb10_retire": {"models": True, "ssh_keys": [KEY], "secrets": ["vllm_api_key", "gb10_roles"]}})
    retired = cleared.play(*cleared.words, "--limit", host, "-e", said, playbook="playbooks/retire.yml")
    assert retired.rc == 0, retired.output
    assert cleared.shell(host, f"cat {file}") == theirs
    assert {*cleared.shell(host, FIND).splitlines()} <= named
    assert differences(before, cleared.snapshot(host)) == []
    cleared.prepare(host)


def words_of(fleet: Fleet, host: str, folder: Path, **own: Any) -> list[str]:
    """An inventory of one host in a folder of its own, where what `gb10` keeps goes, too."""
    known = fleet._known
    rows = {host: {**known["children"]["sparks"]["hosts"][host], **own}}
    vars_ = {**known["vars"], **yaml.safe_load((HERE / "vars.yml").read_text())}
    folder.mkdir()
    content = {"all": {"vars": vars_, "children": {"sparks": {"hosts": rows}}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(content))
    return ["-i", str(folder)]


def gb10(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([GB10, *words], capture_output=True, text=True, timeout=300, check=False)


def test_the_command_sets_a_host_free(cleared: Fleet, tmp_path: Path) -> None:
    """/etc, packages, units, homes and keys are as before the fleet came, and its key opens the host no more."""
    host = cleared.hosts[0]
    before, homes = cleared.snapshot(host), cleared.shell(host, HOMES)
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    file = cleared.shell(host, "getent passwd ${SUDO_USER} | cut -d: -f6").strip() + "/.ssh/authorized_keys"
    cleared.shell(host, f"echo '{public}' >>{file}")
    mine = ("-e", f"ansible_ssh_private_key_file={key}")
    assert cleared.play(*cleared.words, "--limit", host, *mine, playbook=cleared.playbook).rc == 0
    words = words_of(cleared, host, tmp_path / "mine", ansible_ssh_private_key_file=str(key), gb10_seed_keys=[public])

    foretold = gb10("retire", host, *words, "--check", "--json")
    assert foretold.returncode == 0, foretold.stdout + foretold.stderr
    assert cleared.manifest(host) is not None and public in cleared.shell(host, f"cat {file}")
    retired = gb10("retire", host, *words, "--models", "--yes", "--json")
    assert retired.returncode == 0, retired.stdout + retired.stderr

    said = json.loads(retired.stdout)
    assert said["keys"] is True and json.loads(Path(said["file"]).read_text())["changes"] == said["changes"]
    assert [row["resource"] for row in said["changes"]] == [
        row["resource"] for row in json.loads(foretold.stdout)["changes"]
    ]
    assert differences(before, cleared.snapshot(host)) == []
    assert cleared.shell(host, HOMES) == homes
    argv = [
        word if word != cleared._known["vars"]["ansible_ssh_private_key_file"] else str(key) for word in _ssh(cleared)
    ]
    refused = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert refused.returncode == 255 and "Permission denied" in refused.stderr, refused.stderr
    cleared.prepare(host)


def _ssh(fleet: Fleet) -> list[str]:
    """Without the connection that the tests keep open, and with no other key."""
    first, *rest = fleet._ssh(fleet.hosts[0], "true")
    kept = [word for word in rest if not word.startswith("-oControl")]
    return [first, "-oControlPath=none", "-oIdentitiesOnly=yes", "-oIdentityAgent=none", *kept]


def test_another_board_takes_the_name(cleared: Fleet, tmp_path: Path) -> None:
    """While the old one answers nobody can; then the new one's key alone is believed, and commands find it."""
    host, other = cleared.hosts
    new = cleared.address(other)
    refused = gb10("replace", host, new, *words_of(cleared, host, tmp_path / "alive"), "--yes")
    assert refused.returncode != 0 and f"{host} still answers at" in refused.stderr, refused.stderr

    words = words_of(cleared, host, tmp_path / "dead", ansible_port=2)  # where nobody listens
    replaced = gb10("replace", host, new, *words, "--yes", "--json")
    assert replaced.returncode == 0, replaced.stdout + replaced.stderr
    told = json.loads(replaced.stdout)
    print_ = cleared.shell(other, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    assert (told["address"], told["host_key"]) == (new, print_)
    assert (tmp_path / f"dead/host_vars/{host}/gb10-enrolled.yml").is_file()
