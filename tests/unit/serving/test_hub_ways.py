"""The recipes of docs/registries.md for model files, with the hub's own library: a mirror, a proxy, a shared cache."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_tools import HUB

pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONTENT = b'{"architectures": ["LlamaForCausalLM"]}\n'
BLOB = hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT, usedforsecurity=False).hexdigest()
MODEL = "me/mine"


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub with one file, or a proxy before one: that one hears whole addresses, and CONNECT for https."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        path = urlsplit(self.path).path
        if "/resolve/" in path:
            return self._answer(CONTENT, {"ETag": f'"{BLOB}"', "X-Repo-Commit": COMMIT})
        file = {"path": "config.json", "size": len(CONTENT)}
        if "/tree/" in path:
            return self._answer(json.dumps([{"type": "file", "oid": BLOB, **file}]).encode())
        siblings = [{"rfilename": "config.json", "size": len(CONTENT), "blobId": BLOB}]
        return self._answer(json.dumps({"id": MODEL, "sha": COMMIT, "siblings": siblings}).encode())

    do_HEAD = do_GET

    def do_CONNECT(self) -> None:
        self.asked.append(f"CONNECT {self.path}")
        self.send_error(502)

    def _answer(self, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(200)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_words: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[tuple[list[str], str]]:
    """What it was asked, and its address."""
    handler = type("Handler", (Hub,), {"asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler.asked, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def tool(step: str, home: Path, **environment: str) -> dict[str, Any]:
    """What runs in the image, with `vllm_environment` as it is set there."""
    asked = {"step": step, "model": MODEL, "revision": "main", "paths": ["config.json"]}
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, "-c", HUB, json.dumps(asked)],
        env={**kept, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def files(home: Path) -> list[bytes]:
    return [path.read_bytes() for path in home.rglob("snapshots/*/config.json")]


def test_a_mirror_of_the_hub_lists_and_gives_the_files(hub: tuple[list[str], str], tmp_path: Path) -> None:
    asked, address = hub
    listed = tool("list", tmp_path, HF_ENDPOINT=address)
    assert listed["commit"] == COMMIT
    assert listed["files"] == [{"path": "config.json", "size": len(CONTENT), "hash": BLOB}]
    assert tool("download", tmp_path, HF_ENDPOINT=address) == {}
    assert files(tmp_path) == [CONTENT] and asked


def test_a_proxy_is_asked_for_everything(hub: tuple[list[str], str], tmp_path: Path) -> None:
    """Towards a hub over http, for this proxy can speak no TLS; of https it hears where to."""
    asked, address = hub
    assert tool("download", tmp_path, HF_ENDPOINT="http://hub.invalid", HTTP_PROXY=address) == {}
    assert files(tmp_path) == [CONTENT] and all(" http://hub.invalid/" in line for line in asked)
    asked.clear()
    failed = tool("list", tmp_path, HF_ENDPOINT="https://hub.invalid", HTTPS_PROXY=address)
    assert failed["error"] and set(asked) == {"CONNECT hub.invalid:443"}
    assert tool("list", tmp_path, HF_ENDPOINT=address, HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="127.0.0.1")["commit"]


def test_a_shared_cache_is_loaded_once(hub: tuple[list[str], str], tmp_path: Path) -> None:
    asked, address = hub
    assert tool("download", tmp_path, HF_ENDPOINT=address) == {}
    asked.clear()
    assert tool("download", tmp_path, HF_ENDPOINT=address) == {}
    assert not [line for line in asked if line.startswith("GET") and "/resolve/" in line], (
        "the second host loads nothing"
    )
