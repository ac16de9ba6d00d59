"""A host leaves the fleet: nothing of ours stays on it, and the key of the fleet opens it no more."""

from __future__ import annotations

import json

import pytest

from tests.fleet.fleet import Fleet
from tests.support.rig import differences

pytestmark = pytest.mark.lab

FIND = "find /etc /usr/local /var/lib /var/cache -name '*gb10*' -prune"
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIretired+key/of/the/fleet="


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
