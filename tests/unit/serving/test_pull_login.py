"""The credentials of a registry on their way to Docker, with a stand-in for its client and with the real one."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.docker_login import docker_login
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.pull_fault import pull_fault

from tests.support.attacker import tally
from tests.support.plays import ROOT, run_playbook

ACCOUNT, PASSWORD = "$oauthtoken", "sesame-of-the-registry"  # the account that nvcr.io wants
IMAGE = "registry.example:5000/vllm@sha256:" + "0" * 64
# Says what it was called with and what lies in its configuration, as the test wants to know it.
DOCKER = """#!{python}
import json, os, stat, sys
folder = os.environ.get("DOCKER_CONFIG")
seen = {{"argv": sys.argv[1:], "folder": folder, "environment": dict(os.environ)}}
if folder:
    config = os.path.join(folder, "config.json")
    seen["modes"] = [stat.S_IMODE(os.stat(path).st_mode) for path in (folder, config)]
    seen["config"] = json.load(open(config))
json.dump(seen, open({said!r}, "w"))
print("what docker says", file=sys.stderr)
sys.exit({status})
"""
PLAY = """
- hosts: sparks
  gather_facts: false
  tasks:
    - ansible.builtin.include_tasks: pull.yml
    - ansible.builtin.debug:
        msg: "RC={{ __vllm_image_pulled.rc }}"
"""
HOSTS = {"spark-a": {"ansible_connection": "local"}}


def pull(folder: Path, *words: str, **variables: Any) -> str:
    """Play the role's tasks, with a folder of the test in the place of /run. Returns the output at -vvv."""
    run = folder / "run"
    run.mkdir()
    text = (ROOT / "roles/vllm/tasks/pull.yml").read_text()
    assert text.count("path: /run\n") == 1
    (folder / "pull.yml").write_text(text.replace("path: /run\n", f"path: {run}\n").replace("poll: 10", "poll: 1"))
    # Ansible looks for a job in the home that the system knows, and the job keeps it in $HOME.
    said: dict[str, Any] = {"ansible_async_dir": str(folder / "jobs"), "vllm_services": {}}
    said["__vllm_service"] = {"name": "vllm", "files": {"image": IMAGE}, "registry_login": True}
    said |= {"vllm_registry_username": "", "vllm_registry_password": "", **variables}
    rc, output = run_playbook(folder, HOSTS, PLAY, "-vvv", "--diff", *words, **said)
    assert rc == 0, output
    assert list(run.iterdir()) == [], "nothing of the credentials stays"
    return output


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> Path:
    said = folder / "said.json"
    (folder / "bin").mkdir()
    program = folder / "bin/docker"
    program.write_text(DOCKER.format(python=sys.executable, said=str(said), status=status))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    return said


LOGIN = {"vllm_registry_username": ACCOUNT, "vllm_registry_password": PASSWORD}


@pytest.mark.parametrize("status", [0, 1])
def test_docker_has_the_credentials_for_the_pull_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    said = stand_in(tmp_path, monkeypatch, status)
    output = pull(tmp_path, **LOGIN)
    seen = json.loads(said.read_text())
    assert f"RC={status}" in output
    assert seen["argv"] == ["pull", "--quiet", IMAGE]
    assert seen["modes"] == [0o700, 0o600]
    word = base64.b64encode(f"{ACCOUNT}:{PASSWORD}".encode()).decode()
    assert seen["config"] == {"auths": {"registry.example:5000": {"auth": word}}}
    assert not Path(seen["folder"]).exists()
    for secret in (PASSWORD, word):
        assert secret not in output and secret not in json.dumps(seen["environment"])
        left = [
            path for path in tmp_path.rglob("*") if path.is_file() and path not in (said, tmp_path / "inventory.yml")
        ]
        assert not [path for path in left if secret.encode() in path.read_bytes()]


def test_without_an_account_docker_pulls_as_the_host_is_logged_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = stand_in(tmp_path, monkeypatch)
    assert "RC=0" in pull(tmp_path)
    seen = json.loads(said.read_text())
    assert (seen["argv"], seen["folder"]) == (["pull", "--quiet", IMAGE], None)


ENDLESS = """#!/bin/sh
exec sleep 300
"""
FULL = """#!/bin/sh
printf 'Avail\\n 40000M\\n  1023M\\n'
"""


def test_a_pull_that_fills_the_disk_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry may send more than the image that is pinned has, and Docker looks at the end alone."""
    stand_in(tmp_path, monkeypatch)
    for name, text in (("docker", ENDLESS), ("df", FULL)):
        program = tmp_path / "bin" / name
        program.write_text(text)
        program.chmod(0o755)
    began = time.monotonic()
    output = pull(tmp_path, **LOGIN)
    tally("a registry that sends without an end: Docker's disk", 1, int(time.monotonic() - began > 60))
    assert time.monotonic() - began < 60
    (fault,) = {line for line in output.splitlines() if '"stderr": "no space left on device' in line}
    found = pull_fault({"rc": 143, "stderr": fault}, IMAGE)
    assert found and found["verdict"] == "disk_full"
    assert "RC=143" in output


def test_another_registry_gets_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = stand_in(tmp_path, monkeypatch)
    service = {"name": "rerank", "files": {"image": "docker.io/x/y"}, "registry_login": False}
    pull(tmp_path, **LOGIN, __vllm_service=service)
    assert json.loads(said.read_text())["folder"] is None


@pytest.mark.parametrize(
    ("image", "key"),
    [
        ("nvcr.io/nvidia/vllm:26.04-py3", "nvcr.io"),
        (IMAGE, "registry.example:5000"),
        ("vllm/vllm-openai:v0.19.0", "https://index.docker.io/v1/"),
        ("debian", "https://index.docker.io/v1/"),
    ],
)
def test_the_registry_is_the_one_of_the_image(image: str, key: str) -> None:
    auths = json.loads(docker_login(image, "name", "pass"))["auths"]
    assert list(auths) == [key] and base64.b64decode(auths[key]["auth"]) == b"name:pass"


# -- Docker's own client, and a daemon that only listens ---------------------------------------------------------------


class Daemon(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.logins: list[dict[str, Any]] = []
        super().__init__(str(path), Answer)


class Answer(BaseHTTPRequestHandler):
    server: Daemon
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "client"

    def do_HEAD(self) -> None:
        self.say("")

    def do_GET(self) -> None:
        self.say("OK")

    def do_POST(self) -> None:
        word = self.headers.get("X-Registry-Auth", "")
        self.server.logins.append(json.loads(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)) or "{}"))
        self.say('{"status": "Status: Downloaded"}\n')

    def say(self, text: str) -> None:
        self.send_response(200)
        for name, value in {"Api-Version": "1.44", "OSType": "linux", "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    server = Daemon(tmp_path / "docker.sock")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.skipif(shutil.which("docker") is None, reason="there is no client of Docker on this machine")
def test_docker_s_own_client_sends_them_to_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: Daemon
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    output = pull(tmp_path, **LOGIN)
    assert "RC=0" in output, output
    (login,) = daemon.logins
    assert (login["username"], login["password"]) == (ACCOUNT, PASSWORD)
    assert login["serveraddress"] == "registry.example:5000"
