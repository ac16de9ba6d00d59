"""A cache that a real vLLM compiled on one host, and that another host starts with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import warm
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import parse_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.life import Life
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.status import Notify, Status
from ansible_collections.gb10.fleet.plugins.module_utils.serving import host_files, host_tools, warm_cache
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import container as vllm_container

from tests.realvllm.real import BIN, LONGEST_S
from tests.support.model_daemon import Daemon
from tests.support.ports import free_port
from tests.support.unit_log import settings

LARGEST_RATIO = 0.7  # of a warm start to the cold one of the same run
SHELF = "/var/cache/gb10-warm/vllm"
MARKER = "/var/cache/gb10-files/models--tiny@main.json"
IMAGE = {"RootFS": {"Layers": ["sha256:1"]}, "Os": "linux", "Architecture": "amd64", "Config": {}}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a container of its own needs root")


class Host:
    """One host: its containers, its shelf, and the unit that serves."""

    def __init__(self, root: Path, model: Path) -> None:
        self.root, self.model, self.port = root, model, free_port()
        self.docker = root / "bin/docker"
        stand_in = Path(__file__).with_name("container.py").read_text()
        for path, text in (
            ("bin/docker", stand_in.replace("/usr/bin/python3", sys.executable, 1)),
            ("bin/image.json", json.dumps(IMAGE)),
            ("proc/driver/nvidia/version", "NVRM version: 580.142\n"),
            ("proc/meminfo", "MemAvailable: 99999999 kB\n"),
            ("usr/local/sbin/gb10-memory-gate", "#!/bin/sh\necho enough\n"),
            ("usr/local/sbin/gb10-drop-caches", "#!/bin/sh\necho dropped\n"),
            (MARKER, json.dumps({"commit": "c" * 40})),
        ):
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            target.chmod(0o755)
        (root / "run/gb10-loading").mkdir(parents=True)

    def argv(self, container: str, *more: str) -> list[str]:
        """`docker run` of vLLM with compilation."""
        environment = {**vllm_container.WARM_HOME, "HF_HUB_OFFLINE": "1", "VLLM_HOST_IP": "127.0.0.1"}
        served = ["--served-model-name", "tiny", "--max-num-seqs", "4", "--host", "127.0.0.1", "--port", str(self.port)]
        return [
            *(str(self.docker), "run", *more, "--name", container),
            *(word for name, value in environment.items() for word in ("--env", f"{name}={value}")),
            *("--entrypoint", "vllm", "image", "serve", str(self.model), *served),
        ]

    def cache(self, flags: str = "f" * 64) -> warm_cache.WarmCache:
        said = {"shelf": SHELF, "flags": flags, "markers": [MARKER], "budget_gib": 4, "image": "image"}
        return warm_cache.WarmCache(said, lambda *_: None, self.run, self.root)

    def run(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        words = [str(self.docker), *argv[1:]] if argv[0] == "docker" else argv
        return host_tools.command(words, **options)

    def request(self) -> dict[str, Any]:
        making = self.root / "var/cache/gb10-warm/making"
        argv = self.argv("gb10-warm-cache", "--detach", "--network", "none", "--volume", f"{making}:/root/.cache")
        return {
            **{"argv": argv, "container": "gb10-warm-cache", "memory_gib": 1, "ready_s": LONGEST_S, "answer_s": 300},
            **{"served_name": "tiny", "url": f"http://127.0.0.1:{self.port}", "health": "/health"},
        }

    def unit(self, flags: str = "f" * 64) -> Life:
        wish = {"shelf": SHELF, "flags": flags, "markers": [MARKER]}
        raw = settings() | {"argv": self.argv("gb10-vllm"), "cache": str(self.root), "warm": wish, "load_s": LONGEST_S}
        config, notify = parse_config(json.dumps(raw)), Notify("")
        return Life(config, Status(self.root / "status.json", notify, config.digest), notify, self.root)

    def starts(self) -> tuple[float, dict[str, Any]]:
        """The seconds until its unit serves, and what the status says."""
        life, status = self.unit(), self.root / "status.json"
        thread, began = threading.Thread(target=life.run), time.monotonic()
        thread.start()
        try:
            while document_in(status).get("phase") != "ready":
                assert thread.is_alive() and time.monotonic() - began < LONGEST_S, document_in(status)
                time.sleep(0.1)
            return time.monotonic() - began, document_in(status)
        finally:
            life.stop()
            thread.join(LONGEST_S)


@needs_root
def test_what_one_host_compiled_another_one_starts_with(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    for name, value in {**quiet, "PATH": f"{BIN}:{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(host_files, "RUN", tmp_path / "run")
    first, second = Host(tmp_path / "a", trained), Host(tmp_path / "b", trained)

    told = first.cache().make(first.request())
    cold_s = told["cache"]["cold_s"]
    daemon = Daemon(tmp_path / "daemon", {warm_cache.PART: str(first.cache().shelf)})
    try:
        taken = second.cache().take(told, "127.0.0.1", daemon.port, "sesame")
    finally:
        daemon.stop()
    assert taken["cache"] == told["cache"]

    warm_s, status = second.starts()
    print(f"cold {cold_s:.0f} s, warm {warm_s:.0f} s: {warm_s / cold_s:.2f}; {told['cache']['size'] / 1e6:.1f} MB")
    record_property("ratio", round(warm_s / cold_s, 2))
    assert status["warm"] == {"key": told["key"], "cold_s": cold_s}
    assert warm_s <= LARGEST_RATIO * cold_s
    # The container wrote to its own layer only.
    assert warm.sum_of(warm.archive(second.cache().shelf, told["key"])) == told["cache"]["sha256"]

    # Another flag, image, driver or commit: the old cache is not served.
    assert second.cache("0" * 64).read()["cache"] is None
    for path, text in (
        ("bin/image.json", json.dumps({**IMAGE, "RootFS": {"Layers": ["sha256:2"]}})),
        ("proc/driver/nvidia/version", "NVRM version: 580.178\n"),
        (MARKER, json.dumps({"commit": "d" * 40})),
    ):
        file = second.root / path.lstrip("/")
        former = file.read_text()
        file.write_text(text)
        assert second.cache().read()["cache"] is None
        life = second.unit()
        life._check_image()
        assert list(life._argv()) == second.argv("gb10-vllm") and life.status.warm["cold_s"] is None  # type: ignore[index]
        file.write_text(former)
    assert second.cache().read()["cache"] == told["cache"]
