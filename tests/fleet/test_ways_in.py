"""Who does not get into a host, or may not become root there, is told so by name, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet

pytestmark = pytest.mark.lab

GUEST = "useradd -m -s /bin/bash guest; cp -r ~spark/.ssh ~guest/; chown -R guest: ~guest/.ssh"


@pytest.fixture
def guest(fleet: Fleet) -> Iterator[str]:
    """A user whom SSH lets in, and sudo does not know."""
    for host in fleet.hosts:
        fleet.shell(host, GUEST)
    yield "guest"
    for host in fleet.hosts:
        fleet.shell(host, "userdel -rf guest 2>/dev/null || true")


def refused(fleet: Fleet, finding: str, fact: str, *args: str) -> None:
    """site.yml ends in the doctor, which names each host, the finding and the fact. No host was touched."""
    before = {host: fleet.manifest(host) for host in fleet.hosts}
    run = fleet.site(*args, playbook="site.yml")
    assert run.rc != 0 and run.changed == 0
    assert "TASK [gb10.fleet.kernel_parameters" not in run.output, "the run went on after the doctor"
    for host in fleet.hosts:
        assert f"{host}: {finding}: {fact}" in run.output
        assert fleet.manifest(host) == before[host], f"{host} was changed"


def test_an_unknown_ssh_host_key(fleet: Fleet, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.touch()
    common = f"-oUserKnownHostsFile={empty} -oStrictHostKeyChecking=yes -oControlPath=none"
    refused(fleet, "host_key", "the SSH host key is unknown", "-e", f"ansible_ssh_common_args='{common}'")


def test_no_sudo(fleet: Fleet, guest: str) -> None:
    refused(fleet, "no_sudo", "sudo was refused", "-e", f"ansible_user={guest}")


def test_a_host_that_does_not_answer(fleet: Fleet) -> None:
    """It stops the run for all, which Ansible's own any_errors_fatal does not do."""
    silent = fleet.hosts[-1]
    run = fleet.play(*fleet.words, "-e", '{"ansible_port": 1}', "--limit", silent, playbook="playbooks/doctor.yml")
    assert run.rc != 0
    assert "unreachable" in run.output and silent in run.output
