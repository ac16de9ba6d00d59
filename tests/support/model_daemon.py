"""Hosts with an rsync daemon that hands a model on, and a Docker that stands for the real one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.action import model_files as model_files_action
from ansible_collections.gb10.fleet.plugins.module_utils.serving import (
    host_files,
    host_tools,
    model_folder,
    model_listing,
    rsync,
)
from ansible_collections.gb10.fleet.plugins.module_utils.serving.image_identity import fingerprint
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import RUN
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import long_step

from lab.vendor.packages import FILES
from tests.support.ports import free_port
from tests.support.role_documents import facts

MODEL = "acme/tiny"
COMMIT = "a" * 40
DEADLINE_S = 60.0
Tell = Callable[[str, int, int], None]


def quiet(*_: Any) -> None:
    pass


def blob(path: str, data: bytes) -> model_listing.Blob:
    return model_listing.Blob(path, len(data), hashlib.sha256(data).hexdigest())


SMALL = b"{}\n"
CONTENT = {"config.json": SMALL, "a/model.safetensors": os.urandom(300_000), "b.safetensors": os.urandom(200_000)}
TINY = model_listing.Model(
    MODEL,
    "main",
    COMMIT,
    (
        model_listing.Blob("config.json", 3, hashlib.sha1(b"blob 3\0" + SMALL).hexdigest()),  # noqa: S324
        *(blob(path, data) for path, data in CONTENT.items() if path != "config.json"),
    ),
)


class Docker:
    """What `docker` would do on one host: images by name; the rest of a command is done for real."""

    def __init__(self, images: dict[str, dict[str, Any]], hub: dict[str, str] | None = None) -> None:
        self.images = images
        self.hub = hub or {}
        self.ran: list[list[str]] = []
        self.stopped = False

    def __call__(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.ran.append(list(argv))
        rc, out, err = 0, "", ""
        match list(argv):
            case ["docker", "image", "inspect", name]:
                rc, out = (0, json.dumps([self.images[name]])) if name in self.images else (1, "")
            case ["docker", "image", "rm", name]:
                del self.images[name]
            case ["docker", "tag", name, other]:
                self.images[other] = self.images[name]
            case ["docker", "save", "--output", path, name]:
                Path(path).write_text(json.dumps({name: self.images[name]}))
            case ["docker", "run", *words]:
                cache = words[words.index("--volume") + 1].removesuffix(":/root/.cache")
                place = {"HF_HOME": f"{cache}/huggingface", "PYTHONPATH": str(FILES), **self.hub}
                for line in Path(words[words.index("--env-file") + 1]).read_text().splitlines():
                    place |= dict([line.split("=", 1)])
                done = subprocess.run(
                    [sys.executable, *words[words.index("-c") :]],
                    env=place,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                rc, out, err = done.returncode, done.stdout, done.stderr
            case ["systemctl", "show", *_]:
                out = "1\n"
            case ["docker" | "systemctl" | "systemd-run", *_]:
                pass
            case _:
                return host_tools.command(argv, **options)
        return subprocess.CompletedProcess(list(argv), rc, out, err)

    def load(self, path: Path, name: str) -> None:
        """What is named in the archive; images/one_image.py has tests of its own."""
        self.ran.append(["docker", "load", name])
        self.images |= json.loads(path.read_text())


def image(layers: str = "sha256:1", **config: Any) -> dict[str, Any]:
    return {"Id": f"sha256:{layers}", "Size": 1000, "RootFS": {"Layers": [layers]}, "Config": config}


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host_files, "RUN", tmp_path / "run")
    monkeypatch.setattr(host_files, "DOCKER", tmp_path)
    return tmp_path / "run"


def host(tmp_path: Path, name: str, docker: Docker, tell: Tell = quiet, **said: Any) -> host_files.Files:
    """Its cache is `.cache` of a home of its own; its daemon holds the port that it is told to hold."""
    (tmp_path / name / ".cache").mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {
        "image": "i@sha256:1",
        "name": "gb10-fleet/vllm:1",
        "model": MODEL,
        "revision": "main",
        "exclude": ["original/", "metal/"],
        "cache": str(tmp_path / name / ".cache"),
        "fetch": True,
        "environment": {},
    }
    made = host_files.Files({**told, **said}, tell, docker, state=tmp_path / name / "state")
    made.listens, made.load = lambda *_: True, docker.load
    return made


def filled(own: host_files.Files, model: model_listing.Model = TINY) -> host_files.Files:
    (own.folder / "blobs").mkdir(parents=True)
    for file in model.files:
        (own.folder / "blobs" / file.hash).write_bytes(CONTENT[file.path])
    own.complete(model)
    return own


needs_rsync = pytest.mark.skipif(
    shutil.which("rsync") is None,
    reason="rsync IS NOT INSTALLED: nothing proves that files arrive",
)


class Daemon:
    """A real rsync daemon on loopback, as `offer` describes it."""

    def __init__(self, folder: Path, modules: dict[str, str], allow: str = "127.0.0.1") -> None:
        folder.mkdir(exist_ok=True)
        model_folder.write(folder / "their-secrets", f"{rsync.USER}:sesame\n")
        text = rsync.daemon_config(modules, [allow], folder / "their-secrets", folder / "their-lock")
        if os.geteuid() != 0:
            text = text.replace("use chroot = yes", "use chroot = no").replace("uid = root\ngid = root\n", "")
        (folder / "rsyncd.conf").write_text(text)
        self.port = free_port()
        self._process = subprocess.Popen(rsync.daemon_argv(folder / "rsyncd.conf", "127.0.0.1", self.port))
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("the daemon does not listen")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)


def take(own: host_files.Files, giver: host_files.Files, daemon: Daemon, *parts: str, password: str = "sesame") -> None:  # noqa: S107
    path = giver.archive(fingerprint(image()))
    archive = {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    parts = parts or ("image", "model")
    own.take({**giver.read(), "archive": archive}, parts, "127.0.0.1", daemon.port, password)


class Run:
    """The action `model_files` for the hosts of a pair, one after the other; the hosts answer as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **variables: Any) -> None:
        self.now, self.said, self.asked = 0.0, [], []  # type: ignore[var-annotated]
        self.variables = {
            "vllm_model": MODEL,
            "vllm_image": "i@sha256:" + "1" * 64,
            "fabric_topology": "pair",
        } | variables
        self.answers: list[dict[str, Any] | Exception] = []
        self.progress = [{"doing": "model from x", "done": gb * 1e9, "total": 61e9, "at": gb} for gb in (5.0, 15.0)]
        monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda *_: {})
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr("time.sleep", self.pass_time)
        monkeypatch.setattr(long_step, "Display", lambda: self)
        self.monkeypatch = monkeypatch

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def display(self, text: str, stderr: bool) -> None:
        assert stderr, "standard output belongs to what the run answers"
        self.said.append(text)

    def execute(self, module_name: str, module_args: dict[str, Any], **options: Any) -> dict[str, Any]:
        self.asked.append({"module": module_name, **module_args, "background": options.get("wrap_async", False)})
        answer = self.answers.pop(0) if self.answers else {"erased": True}
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __call__(
        self,
        host: str,
        step: str,
        given: dict[str, Any] | None = None,
        check: bool = False,
        offered: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        action = model_files_action.ActionModule.__new__(model_files_action.ActionModule)
        action._task = SimpleNamespace(check_mode=check, async_val=0)  # type: ignore[assignment]
        action._templar = SimpleNamespace(template=lambda value: value)  # type: ignore[assignment]
        self.monkeypatch.setattr(
            action,
            "validate_argument_spec",
            lambda **_: (None, {"step": step, "service": "vllm", "given": given or {}, "offered": offered or {}}),
        )
        self.monkeypatch.setattr(action, "_execute_module", self.execute)
        told = [json.dumps(line) for line in self.progress]
        self.monkeypatch.setattr(
            action, "_low_level_execute_command", lambda _: {"stdout": told.pop(0) if told else "", "rc": 0}
        )

        class Hostvars(dict[str, Any]):
            raw_get = dict.__getitem__

        every = {
            name: {"inventory_hostname": name, "gb10_cluster": "pair1", **self.variables}
            | {"ansible_facts": {"gb10_spark": facts(), "gb10_run": RUN}}
            for name in ("spark-a", "spark-b")
        }
        groups = {"pair1": ["spark-a", "spark-b"]}
        return action.run(task_vars={**every[host], "hostvars": Hostvars(every), "groups": groups})


STARTED = {"ansible_job_id": "j1", "results_file": "/root/.ansible_async/j1", "started": True, "finished": False}

NOTHING: dict[str, Any] = {"image": None, "model": None, "pull": True}
HELD: dict[str, Any] = {"image": {"fingerprint": "1" * 64, "bytes": 20e9}, "model": TINY.as_dict(), "pull": False}
