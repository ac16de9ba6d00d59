"""From a blank image with a seed to the fleet, hands off: Debian's cloud-init, `gb10 seed` and `gb10 enrol`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.blank import THERE, Blank
from tests.support.rig import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.long]

NAME = "spark-a"
PLAY = [{"hosts": "sparks", "gather_facts": False, "become": True, "roles": ["gb10.fleet.accounts"]}]


@pytest.fixture
def blank(tmp_path: Path) -> Iterator[Blank]:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    machine = Blank(tmp_path)
    yield machine
    machine.end()


def run(program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [str(Path(sys.executable).with_name(program)), *map(str, words)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_from_a_seed_to_the_fleet(blank: Blank, tmp_path: Path) -> None:
    """A stranger with the right name is refused, the seeded machine let in, and a new installation noticed."""
    key, inventory, seeds = tmp_path / "key", tmp_path / "inventory", tmp_path / "seeds"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    variables = {
        "ansible_user": "nvidia",
        "ansible_ssh_private_key_file": str(key),
        "gb10_seed_keys": [public],
        "gb10_seed_system": {"timezone": "Europe/Berlin"},
        "accounts_users": [{"name": "alice", "uid": 5001, "keys": [public]}],
    }
    inventory.mkdir()
    sparks = {"hosts": {NAME: {"ansible_host": THERE}}, "vars": variables}
    (inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"sparks": sparks}}}))
    made = run("gb10", "seed", "--out", seeds, "-i", inventory)
    assert made.returncode == 0, made.stdout + made.stderr
    enrol = ("enrol", seeds, "-i", inventory, "--no-site", "--minutes", "0.1")

    blank.boot(None, NAME)
    refused = run("gb10", *enrol)
    assert refused.returncode == 4 and "a stranger, or the Spark did not start from its stick" in refused.stdout, (
        refused
    )
    assert not (inventory / "host_vars").exists()

    said = blank.boot(seeds / NAME)
    assert "Datasource DataSourceNoCloud" in said, said
    let_in = run("gb10", *enrol)
    assert let_in.returncode == 0 and f"{NAME}: enrolled" in let_in.stdout, (let_in.stdout, let_in.stderr, said)
    (play := tmp_path / "play.json").write_text(json.dumps(PLAY))
    for changed in (True, False):
        done = run("ansible-playbook", "-i", inventory, play)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("changed=1 " in done.stdout) is changed, done.stdout
    login = ("ssh", "-i", key, "-o", f"UserKnownHostsFile={inventory}/known_hosts.txt", "-o", "BatchMode=yes")
    asked = subprocess.run(
        [*login, f"alice@{THERE}", "id -u; hostname; cat /etc/timezone"], capture_output=True, text=True, check=False
    )
    assert asked.stdout.split() == ["5001", NAME, "Europe/Berlin"], asked

    blank.boot(seeds / NAME)
    again = run("gb10", *enrol)
    assert again.returncode == 0 and "set up anew since" in again.stdout, again.stdout + again.stderr
