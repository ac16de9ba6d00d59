"""An owner's own Docker and firewall, as Debian's real packages install them: what is read, said, opened and undone.

A root of its own, over this machine's (overlayfs), and a network of its own. It takes root, overlayfs and a mirror.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.host_firewalls import read_firewalls
from ansible_collections.gb10.fleet.plugins.module_utils.reading.other_docker import read_others
from ansible_collections.gb10.fleet.plugins.module_utils.reading.software import database_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import docker

from tests.support.proofs import HOSTS, facts

NETWORK = f"gb10-{os.getpid()}"
SERVES = {
    "fabric_topology": "pair", "fabric_network": "192.168.96.0/20", "gateway_address": "192.0.2.11",
    "firewall_allow_host_rules": True,
}  # fmt: skip
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("apt-get"), reason="takes root and apt"),
]


def call(*argv: str, check: bool = True) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert not check or done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    return done.stdout


def installed(base: Path, *packages: str) -> Iterator[Path]:
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", base], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        upper, work, top = (base / name for name in ("upper", "work", "top"))
        for folder in (upper, work, top):
            folder.mkdir()
        call("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", str(top))
        for kind, place in (("proc", "proc"), ("tmpfs", "run"), ("tmpfs", "dev")):
            call("mount", "-t", kind, kind, str(top / place))
        call("mknod", "-m", "666", str(top / "dev/null"), "c", "1", "3")
        call("mknod", "-m", "666", str(top / "dev/urandom"), "c", "1", "9")
        (top / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")  # nothing starts
        (top / "usr/sbin/policy-rc.d").chmod(0o755)
        call("chroot", str(top), "apt-get", "-y", "--no-install-recommends", "install", *packages)
        (top / "usr/bin/systemctl").unlink(missing_ok=True)
        (top / "usr/bin/systemctl").write_text("#!/bin/sh\necho running\n")
        (top / "usr/bin/systemctl").chmod(0o755)
        (top / "var/lib/gb10-fleet").mkdir(parents=True, exist_ok=True)
        call("ip", "netns", "add", NETWORK)
        yield top
    finally:
        call("ip", "netns", "delete", NETWORK, check=False)
        call("umount", "-R", str(base))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield from installed(tmp_path, "docker.io", "ufw")


@pytest.fixture
def other_root(tmp_path: Path) -> Iterator[Path]:
    """With a firewalld that runs. systemd's link for its unit is made by hand."""
    for top in installed(tmp_path, "podman-docker", "firewalld", "dbus"):
        (top / "run/dbus").mkdir()
        units = top / "run/systemd/units"
        units.mkdir(parents=True)
        (units / "invocation:firewalld.service").symlink_to("0123")
        inside = ["ip", "netns", "exec", NETWORK, "chroot", str(top)]
        bus, firewall = (["dbus-daemon", "--system", "--nofork", "--nopidfile"], ["firewalld", "--nofork", "--nopid"])
        children = []
        try:
            for argv, ready in (
                (bus, ["test", "-S", "/run/dbus/system_bus_socket"]),
                (firewall, ["firewall-cmd", "--state"]),
            ):
                children.append(
                    subprocess.Popen([*inside, *argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                )
                until = time.monotonic() + 60
                while subprocess.run([*inside, *ready], capture_output=True, check=False).returncode:
                    assert time.monotonic() < until and children[-1].poll() is None, f"{argv[0]} does not come up"
                    time.sleep(0.2)
            yield top
        finally:
            for child in reversed(children):
                child.terminate()
                child.wait(30)


def in_root(root: Path, *argv: str) -> str:
    """In its own network: nothing of it reaches this machine's rules."""
    return call("ip", "netns", "exec", NETWORK, "chroot", str(root), *argv)


def test_debians_docker_and_ufw(root: Path) -> None:
    found, refusal = other_docker(root, "docker.io")
    assert found["version"] and {"docker.io", "containerd", "runc"} <= set(found["packages"])
    assert refusal.startswith(
        f"docker.io {found['version']} is installed, and this role would put docker-ce in its place"
    )
    assert "no container runs in it" in refusal and "leave docker out of gb10_roles" in refusal
    for words in ("--force enable", "allow 22/tcp", "allow 8443/tcp"):
        in_root(root, "ufw", *words.split())
    opened_and_closed_again(root)


def test_podmans_docker_and_firewalld(other_root: Path) -> None:
    found, refusal = other_docker(other_root, "podman-docker")
    assert found["version"] and "podman-docker" in found["packages"] and found["containers"] is None
    assert f"podman-docker {found['version']} is installed" in refusal and "is not known" in refusal
    in_root(other_root, "firewall-cmd", "--permanent", "--add-port=8443/tcp")
    in_root(other_root, "firewall-cmd", "--reload")
    opened_and_closed_again(other_root)
    listed = in_root(other_root, "firewall-cmd", "--list-all")
    assert "8443/tcp" in listed, "what the owner opened stays open"


def other_docker(root: Path, kind: str) -> tuple[dict[str, Any], str]:
    """What is read of it, and what the role docker refuses for it."""
    host = HostReader(System(root))
    others = read_others(host, database_of(host))
    (found,) = [dict(each) for each in others if each["kind"] == kind]
    known = {**facts("spark-a"), "packages": {}, "other_docker": others}
    (refusal,) = docker.plan(View("spark-a", known)).refusals
    return found, refusal


def opened_and_closed_again(root: Path) -> None:
    """By consent, and only what we added goes again."""
    program = root / "usr/local/sbin/gb10-host-firewall"
    before = rules(root)
    made, findings = planned(root)
    assert "what arrives by enp1s0f0np0" in findings[0]["fact"] and "8443" not in findings[0]["fact"]
    program.write_text(made)
    in_root(root, "sh", "/usr/local/sbin/gb10-host-firewall", "open")
    again, findings = planned(root)
    assert findings == [] and again == made, "what is open stays wanted"
    in_root(root, "sh", "/usr/local/sbin/gb10-host-firewall", "close")
    assert rules(root) == before


def rules(root: Path) -> list[Any]:
    (found,) = read_firewalls(HostReader(System(root, privileged=True)))
    return list(found["allowed"])


def planned(root: Path) -> tuple[str, list[dict[str, Any]]]:
    """The program that the role writes, and its findings, of a pair whose first host this is."""
    host, *members = HOSTS["pair"]
    firewalls = read_firewalls(HostReader(System(root, privileged=True)))
    known = {**facts(host), "ssh_ports": [22], "host_firewalls": firewalls}
    view = View(host, known, SERVES, [host, *members], {name: facts(name) for name in members}, {members[0]: SERVES})
    made = render("firewall", view)
    (content,) = [one["content"] for one in made.resources if one.get("file") == "/usr/local/sbin/gb10-host-firewall"]
    return content, [dict(each) for each in made.findings if each["id"] == "host_firewall"]
