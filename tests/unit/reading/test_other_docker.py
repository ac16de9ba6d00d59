"""Docker that did not come from Docker's own packages."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.other_docker import _rootless, read_others
from ansible_collections.gb10.fleet.plugins.module_utils.reading.software import database_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

from tests.support.attacker import tally

PACKAGES = {"docker.io": "27.5.1-0ubuntu3~24.04.2", "containerd": "1.7.27-0ubuntu1~24.04.1", "vim": "2:9.1"}


def host_with(root: Path, *packages: str) -> HostReader:
    entry = "Package: {}\nStatus: install ok installed\nArchitecture: arm64\nVersion: {}\n"
    write(root, "var/lib/dpkg/status", "\n".join(entry.format(name, PACKAGES.get(name, "1")) for name in packages))
    return HostReader(System(root))


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


def others(host: HostReader) -> list[dict[str, object]]:
    return [dict(each) for each in read_others(host, database_of(host))]


def test_dockers_own_packages_are_no_other(tmp_path: Path) -> None:
    assert others(host_with(tmp_path, "docker-ce", "containerd.io", "vim")) == []


def test_ubuntus_with_what_leaves_beside_it(tmp_path: Path) -> None:
    (found,) = others(host_with(tmp_path, "docker.io", "containerd", "vim"))
    wanted = {"kind": "docker.io", "version": "27.5.1", "packages": ["docker.io", "containerd"], "containers": []}
    assert found == wanted


def test_it_names_the_containers_that_run(tmp_path: Path, monkeypatch) -> None:
    host = host_with(tmp_path, "docker.io")
    write(tmp_path, "run/docker.pid", str(os.getpid()))
    (tmp_path / f"proc/{os.getpid()}").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)  # a socket has a name of 107 bytes at most
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("run/docker.sock")
    listening.listen(1)
    monkeypatch.setattr(type(host), "path", lambda self, name: Path(name.lstrip("/")))
    said = json.dumps([{"Names": ["/web"]}, {"Names": ["/a\nb"]}])

    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(f"HTTP/1.0 200 OK\r\n\r\n{said}".encode())

    server = threading.Thread(target=answer)
    server.start()
    (found,) = others(host)
    server.join(10)
    listening.close()
    assert found["containers"] == ["a?b", "web"]


def test_a_snap_and_a_users_own(tmp_path: Path) -> None:
    host = host_with(tmp_path, "vim")
    write(tmp_path, "snap/docker/current/meta/snap.yaml", "name: docker\nversion: '28.4.0'\n")
    write(tmp_path, "run/user/1000/docker.pid", "4711")
    found = others(host)
    assert [(each["kind"], each["version"]) for each in found] == [("snap", "28.4.0"), ("rootless", None)]


@pytest.mark.parametrize("trap", ["pipe", "link to a device", "link to a file", "file without an end"])
def test_root_opens_nothing_in_a_users_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str) -> None:
    """A pipe held up each run of the fleet; a link made root open a device, or read /dev/zero into all of memory."""
    host = host_with(tmp_path, "vim")
    write(tmp_path, "somewhere", "4711")
    pid = tmp_path / "run/user/1000/docker.pid"
    pid.parent.mkdir(parents=True)
    if trap == "pipe":
        os.mkfifo(pid)
    elif trap == "file without an end":
        pid.touch()
        os.truncate(pid, 2**40)
    else:
        pid.symlink_to("/dev/zero" if trap == "link to a device" else tmp_path / "somewhere")
    opened: list[str] = []

    def refuse(path: str, *_: object, **__: object) -> int:
        opened.append(str(path))
        raise PermissionError(path)

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("os.open", refuse)
    found = _rootless(host)
    monkeypatch.undo()
    tally("a trap in a user's folder that root looks into", 1, len(opened))
    assert not opened
    assert bool(found) is (trap == "file without an end"), "it is a file, and looks as one of a daemon"


def test_podmans_stand_in(tmp_path: Path) -> None:
    (found,) = others(host_with(tmp_path, "podman-docker"))
    assert (found["kind"], found["containers"]) == ("podman-docker", None)


def test_a_snap_that_is_installed_and_not_mounted(tmp_path: Path) -> None:
    write(tmp_path, "var/lib/snapd/snaps/docker_3265.snap", "")
    write(tmp_path, "var/lib/snapd/snaps/dockerish_1.snap", "")
    (found,) = others(host_with(tmp_path, "vim"))
    assert (found["kind"], found["version"]) == ("snap", None)
