"""An owner's own Docker, firewall, clock, network and apt, as Debian's real packages install them.

What is read and said of them, opened and undone. What no registry of ours has is made here, and its test says so. A
root of its own, over this machine's (overlayfs), and a network of its own. It takes root, overlayfs and a mirror.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.converge import converge
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import Outcome, Run, parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.reading.apt_preferences import OF_VENDORS, read_earlier
from ansible_collections.gb10.fleet.plugins.module_utils.reading.host_firewalls import read_firewalls
from ansible_collections.gb10.fleet.plugins.module_utils.reading.other_docker import read_others
from ansible_collections.gb10.fleet.plugins.module_utils.reading.port_owners import read_owners
from ansible_collections.gb10.fleet.plugins.module_utils.reading.running import read_clock
from ansible_collections.gb10.fleet.plugins.module_utils.reading.software import (
    PACKAGES,
    database_of,
    read_apt_sources,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, HostError, System, run_command
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import vendor_updates
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.host_checks import check_time_source
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import docker

from tests.support.proofs import HOSTS, facts
from tests.support.subjects import PAIR, subject

NETWORK = f"gb10-{os.getpid()}"
SERVES = {
    "fabric_topology": "pair", "fabric_network": "192.168.96.0/20", "gateway_address": "192.0.2.11",
    "firewall_allow_host_rules": True,
}  # fmt: skip
RAIL = "enp1s0f0np0"
BUS = ("dbus-daemon --system --nofork --nopidfile", "test -S /run/dbus/system_bus_socket")
PROFILE = [{
    "nm_profile": f"gb10-{RAIL}", "uuid": "9eaac294-5289-5c0d-a38f-2ee88226a986", "interface": RAIL, "mtu": 1500,
    "addresses": ["192.168.100.10/24"], "consent": "fabric_allow_activation",
}]  # fmt: skip
NETIF = ("", "links", "leases", "lldp")  # below /run/systemd/netif, as networkd's unit makes them
SNAP = "/var/lib/snapd/snaps/docker_3265.snap"
ARCHIVE = "/srv/archive"
DOCKERS = ("docker-ce", "docker-ce-cli")
TOOLKIT = tuple(name for name in OF_VENDORS if "nvidia" in name)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("apt-get"), reason="takes root and apt"),
]


def call(*argv: str | Path, check: bool = True) -> str:
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


def runs(top: Path, unit: str) -> None:
    """The link that systemd keeps for a unit that is up."""
    units = top / "run/systemd/units"
    units.mkdir(parents=True, exist_ok=True)
    (units / f"invocation:{unit}.service").symlink_to("0123")


@contextlib.contextmanager
def started(top: Path, *daemons: tuple[str, str]) -> Iterator[None]:
    """Each daemon, once the command beside it says that the one before is there."""
    (top / "run/dbus").mkdir(exist_ok=True)
    inside = ["ip", "netns", "exec", NETWORK, "chroot", str(top)]
    children = []
    try:
        for daemon, ready in daemons:
            children.append(
                subprocess.Popen([*inside, *daemon.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            until = time.monotonic() + 60
            while subprocess.run([*inside, *ready.split()], capture_output=True, check=False).returncode:
                assert time.monotonic() < until and children[-1].poll() is None, f"{daemon} does not come up"
                time.sleep(0.2)
        yield
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait(30)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield from installed(tmp_path, "docker.io", "ufw")


@pytest.fixture
def other_root(tmp_path: Path) -> Iterator[Path]:
    """With a firewalld that runs. systemd's link for its unit is made by hand."""
    for top in installed(tmp_path, "podman-docker", "firewalld", "dbus"):
        runs(top, "firewalld")
        firewall = "firewalld --nofork --nopid", "firewall-cmd --state"
        with started(top, BUS, firewall):
            yield top


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


def test_each_of_debians_time_daemons_is_the_clocks_source(tmp_path: Path) -> None:
    """apt itself exchanges one for the other. None is started: it would set this machine's clock."""
    for top in installed(tmp_path, "systemd-timesyncd"):
        for package, unit in (
            *(("systemd-timesyncd", "systemd-timesyncd"), ("ntpsec", "ntpsec"), ("chrony", "chrony")),
            ("openntpd", "openntpd"),
        ):
            call("chroot", top, "apt-get", "-y", "--no-install-recommends", "install", package)
            assert (top / f"lib/systemd/system/{unit}.service").exists(), "the name that the package gives its unit"
            (free,) = check_time_source(subject(clock=read_clock(HostReader(System(top)))))
            assert "no time daemon runs" in free.fact and "ntpsec" in free.way_out
            runs(top, unit)
            clock = read_clock(HostReader(System(top)))
            assert clock["source"] == unit
            assert [finding.id for finding in check_time_source(subject(clock=clock))] == (
                ["clock_free"] if unit == "systemd-timesyncd" else []
            )
            (top / f"run/systemd/units/invocation:{unit}.service").unlink()


def test_a_rail_that_networkd_has_is_refused_and_given_back(tmp_path: Path) -> None:
    """A real systemd-networkd, with a `.network` file that names the rail by a pattern; the way out as it is told."""
    for top in installed(tmp_path, "systemd", "dbus"):
        for name, far in ((RAIL, "far0"), ("enP7s7", "far1")):
            call("ip", "-n", NETWORK, "link", "add", "name", name, "type", "veth", "peer", "name", far)
            call("ip", "-n", NETWORK, "link", "set", far, "up")
        call("nsenter", f"--net=/run/netns/{NETWORK}", "mount", "-t", "sysfs", "-o", "ro", "sysfs", top / "sys")
        in_root(top, "install", "-d", "-o", "systemd-network", *(f"/run/systemd/netif/{name}" for name in NETIF))
        files = top / "etc/systemd/network"
        files.mkdir(exist_ok=True)
        (files / "20-cx7.network").write_text("[Match]\nName=enp1s0f0np*\n\n[Network]\nAddress=192.168.100.77/24\n")
        assert claimed(top) == [], "it does not run"
        with started(top, BUS, ("/lib/systemd/systemd-networkd", "networkctl status enp1s0f0np0")):
            until(lambda: "192.168.100.77" in addresses())
            runs(top, "systemd-networkd")
            assert [(each["interface"], each["file"]) for each in claimed(top)] == [
                (RAIL, "/etc/systemd/network/20-cx7.network")
            ]
            refusal = fabric_refusal(top)
            assert f"{RAIL} belongs to /etc/systemd/network/20-cx7.network already (systemd-networkd)" in refusal
            *lines, file, reload = re.findall("`(.+?)`|into (/.+?),", refusal)
            (top / file[1].lstrip("/")).write_text("\n".join(line for line, _file in lines) + "\n")
            in_root(top, *reload[0].removeprefix("sudo ").split())
            until(lambda: "192.168.100.77" not in addresses())
            assert claimed(top) == [] and fabric_refusal(top) == ""


def test_networkd_alone_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Without NetworkManager; then beside a real one, where the same plan is foretold."""
    for top in installed(tmp_path, "network-manager", "dbus"):
        call("ip", "-n", NETWORK, "link", "add", "name", RAIL, "type", "veth", "peer", "name", "far0")
        call("nsenter", f"--net=/run/netns/{NETWORK}", "mount", "-t", "sysfs", "-o", "ro", "sysfs", top / "sys")
        with started(top, BUS, ("NetworkManager --no-daemon", "nmcli general status")):
            outcome = checked(top, PROFILE, fabric_allow_activation=True)
            assert [change["action"] for change in outcome.changes] == ["create"]
        (top / "usr/bin/nmcli").unlink()
        with pytest.raises(HostError, match=r"NetworkManager is not installed.*leave fabric out of gb10_roles"):
            checked(top, PROFILE, fabric_allow_activation=True)


def test_the_snap_of_docker_beside_debians_snapd(tmp_path: Path) -> None:
    """snapd is real. The snap is packed here, by `snap pack`, because the store cannot be reached."""
    for top in installed(tmp_path, "snapd"):
        host = HostReader(System(top))
        assert read_others(host, database_of(host)) == [], "snapd alone is no Docker"
        meta = top / "srv/docker/meta"
        meta.mkdir(parents=True)
        (meta / "snap.yaml").write_text(
            "name: docker\nversion: '28.4.0'\nsummary: as in the store\ndescription: made here\nbase: core22\n"
            "apps:\n  dockerd: {command: bin/dockerd, daemon: simple}\n"
        )
        (meta.parent / "bin").mkdir()
        (meta.parent / "bin/dockerd").write_text("#!/bin/sh\n")
        (meta.parent / "bin/dockerd").chmod(0o755)
        in_root(top, "snap", "pack", "/srv/docker", "/var/lib/snapd/snaps", "--filename=docker_3265.snap")
        found, refusal = other_docker(top, "snap")
        assert found["version"] is None and "the snap docker is installed" in refusal, "installed and not mounted"
        (top / "snap/docker").mkdir(parents=True)
        in_root(top, "unsquashfs", "-quiet", "-no-progress", "-d", "/snap/docker/3265", SNAP)  # in place of its mount
        (top / "snap/docker/current").symlink_to("3265")
        found, refusal = other_docker(top, "snap")
        assert found["version"] == "28.4.0" and found["containers"] == []
        assert "the snap docker 28.4.0 is installed, and no container runs in it" in refusal
        assert "`sudo snap remove docker`" in refusal and "leave docker out of gb10_roles" in refusal


def test_apts_pins_and_the_toolkit_of_cuda_and_landscape(tmp_path: Path) -> None:
    """apt and its preferences are real. The packages are made here and served by CUDA's name."""
    for top in installed(tmp_path, "apt"):
        call("ip", "-n", NETWORK, "link", "set", "lo", "up")
        cuda, ours = f"http://{vendor_updates.CUDA}", "http://packages.example"
        served(top, cuda, *(f"{name}=1.20.0-1" for name in TOOLKIT), "cuda-toolkit-13-1=13.1.0-1")
        served(
            top,
            ours,
            *(f"{name}=1.19.0-1" for name in TOOLKIT),
            *(f"{name}=29.2.1" for name in DOCKERS),
            "containerd.io=2.2.0",
        )
        served(top, ours, "docker-ce=27.5.1", "docker-ce-cli=27.5.1", "landscape-client=24.02")
        with started(top, (f"python3 -m http.server --directory {ARCHIVE} 80", "apt-get update -eany")):
            assert offered(top, "nvidia-container-toolkit") == "1.20.0-1", "apt takes the newest of all sources"
            (toolkit,) = of_vendors(top)
            assert toolkit.id == "toolkit_of_cuda" and "/etc/apt/sources.list.d/cuda.list" in toolkit.fact
            preferences = top / "etc/apt/preferences.d"
            (preferences / "cuda").write_text("\n".join(re.findall("`([A-Z].+?)`", toolkit.way_out)) + "\n")
            assert offered(top, "nvidia-container-toolkit") == "1.19.0-1", "the stanza that was told"
            assert offered(top, "cuda-toolkit-13-1") == "13.1.0-1" and of_vendors(top) == []

            (preferences / "owner").write_text("Package: docker-ce\nPin: version 27*\nPin-Priority: 1001\n")
            assert offered(top, "docker-ce") == "27.5.1"
            (pin,) = of_vendors(top)
            assert pin.id == "apt_pin" and "/etc/apt/preferences.d/owner gives docker-ce to version 27*" in pin.fact
            outcome = checked(top, [{"package": name, "version": "29.2.1"} for name in DOCKERS])
            assert len(outcome.changes) == len(DOCKERS), "an exact version of ours all the same"

            (preferences / "owner").write_text("Package: containerd.io\nPin: release *\nPin-Priority: -1\n")
            before = sorted(top.joinpath("var/lib/dpkg/info").iterdir())
            with pytest.raises(HostError, match=r"containerd\.io"):
                checked(top, [{"package": "docker-ce", "version": "29.2.1"}, {"package": "containerd.io"}])
            assert sorted(top.joinpath("var/lib/dpkg/info").iterdir()) == before

            (preferences / "owner").unlink()
            in_root(top, "apt-get", "-y", "install", "landscape-client")
            (landscape,) = of_vendors(top)
            assert landscape.id == "landscape" and "landscape-client 24.02 is installed" in landscape.fact


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


def until(holds: Callable[[], bool]) -> None:
    last = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < last
        time.sleep(0.2)


def addresses() -> str:
    return call("ip", "-n", NETWORK, "-4", "address", "show", "dev", RAIL)


def claimed(top: Path) -> list[Any]:
    ports = [{"name": name, "mac": None, "driver": "mlx5_core"} for name in (RAIL, "enP7s7")]
    return [owner for owner in read_owners(System(top), ports) if owner["interface"] == RAIL]


def fabric_refusal(top: Path) -> str:
    host, other = HOSTS["pair"]
    said = {"fabric_topology": "pair", "fabric_allow_activation": True}
    known = {**facts(host), "port_owners": claimed(top)}
    view = View(host, known, said, [host, other], {other: facts(other)}, {other: said})
    return "".join(render("fabric", view).refusals)


def checked(top: Path, resources: list[dict[str, Any]], **consents: bool) -> Outcome:
    """What the engine foretells of the real host, as `site --check` asks it; it raises what it refuses."""

    def inside(argv: Sequence[str], given: str | None, timeout_s: float) -> Completed:
        return run_command(["ip", "netns", "exec", NETWORK, "chroot", str(top), *argv], given, timeout_s)

    run = Run("somebody@controller 1 2026-11-21T05:00:00Z", "0.2.0")
    documents = parse_documents([("demo", resources)], consents)
    return converge(documents, System(top, inside), run, check_mode=True)


def of_vendors(top: Path) -> list[Finding]:
    system = System(top)
    host = HostReader(system)
    database = database_of(host)
    packages = {name: package.version for name, package in database.installed.items() if PACKAGES.match(name)}
    sources, pins = read_apt_sources(host, database), read_earlier(system, list(packages))
    judged = subject(
        {**PAIR, "gb10_roles": ["container_toolkit"]}, packages=packages, apt_sources=sources, apt_preferences=pins
    )
    return [finding for check in vendor_updates.CHECKS for finding in check(judged)]


def offered(top: Path, package: str) -> str:
    (version,) = re.findall(r"Candidate: (\S+)", in_root(top, "env", "LC_ALL=C", "apt-cache", "policy", package))
    return str(version)


def served(top: Path, address: str, *packages: str) -> None:
    """Made packages behind an address of the root's own, and nothing else for apt."""
    name, _slash, path = address.removeprefix("http://").partition("/")
    folder = top / ARCHIVE.lstrip("/") / path
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "Packages").open("a") as index:
        for package in packages:
            built = folder / f"{package.replace('=', '_')}.deb"
            control = top / "srv/made/DEBIAN/control"
            control.parent.mkdir(parents=True, exist_ok=True)
            label, _sign, version = package.partition("=")
            control.write_text(
                f"Package: {label}\nVersion: {version}\nArchitecture: all\nMaintainer: lab\nDescription: made\n"
            )
            call("dpkg-deb", "--build", control.parents[1], built)
            digest = hashlib.sha256(built.read_bytes()).hexdigest()
            index.write(f"{control.read_text()}Filename: ./{built.name}\nSize: {built.stat().st_size}\n")
            index.write(f"SHA256: {digest}\n\n")
    apt = top / "etc/apt"
    (apt / "sources.list").unlink(missing_ok=True)
    for former in apt.glob("sources.list.d/*"):
        if former.name not in ("cuda.list", "ours.list"):
            former.unlink()
    file = "cuda.list" if address.endswith(vendor_updates.CUDA) else "ours.list"
    (apt / "sources.list.d" / file).write_text(f"deb [trusted=yes] {address} ./\n")
    with (top / "etc/hosts").open("a") as hosts:
        hosts.write(f"127.0.0.1 {name}\n")
