# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves a vendor tree over HTTP: `/apt/` as files, `/v2/` as a registry one can pull from.

The registry follows the pull half of the OCI distribution specification: the version check, manifests by tag or digest,
blobs by digest, GET and HEAD. Nothing can be written.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lab.vendor.oci import MANIFEST_TYPE

REGISTRY_PATH = re.compile(r"/v2/(?P<name>[a-z0-9/._-]+)/(?P<kind>manifests|blobs)/(?P<reference>[\w.:-]+)")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    tree: Path

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if path in ("/v2", "/v2/"):
            self.send_bytes(HTTPStatus.OK, b"{}")
        elif path.startswith("/v2/"):
            self.registry(path)
        elif path.startswith("/apt/"):
            self.send_file(path.lstrip("/"), "application/octet-stream")
        else:
            self.send_bytes(HTTPStatus.NOT_FOUND, b"this server has /apt/ and /v2/\n", "text/plain")

    def registry(self, path: str) -> None:
        match = REGISTRY_PATH.fullmatch(path)
        if not match:
            return self.refuse("NAME_UNKNOWN", path)
        name, kind, reference = match["name"], match["kind"], match["reference"]
        folder = f"registry/{name}/{kind}"
        if kind == "manifests" and ":" not in reference:
            pointer = self.inside(f"{folder}/{reference}")
            if pointer is None:
                return self.refuse("MANIFEST_UNKNOWN", path)
            reference = pointer.read_text()
        if self.inside(f"{folder}/{reference}") is None:
            return self.refuse("MANIFEST_UNKNOWN" if kind == "manifests" else "BLOB_UNKNOWN", path)
        media_type = MANIFEST_TYPE if kind == "manifests" else "application/octet-stream"
        return self.send_file(f"{folder}/{reference}", media_type, {"Docker-Content-Digest": reference})

    def refuse(self, code: str, path: str) -> None:
        body = json.dumps({"errors": [{"code": code, "message": f"nothing at {path}"}]}).encode()
        self.send_bytes(HTTPStatus.NOT_FOUND, body)

    def inside(self, relative: str) -> Path | None:
        """The file at that place of the tree, if there is one and it does not lead out of `apt` or `registry`."""
        path = (self.tree / relative).resolve()
        served = self.tree / Path(relative).parts[0]
        return path if path.is_relative_to(served) and path.is_file() else None

    def send_file(self, relative: str, media_type: str, headers: dict[str, str] | None = None) -> None:
        path = self.inside(relative)
        if path is None:
            return self.send_bytes(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain")
        with path.open("rb") as source:
            self.begin(HTTPStatus.OK, path.stat().st_size, media_type, headers)
            if self.command == "GET":
                shutil.copyfileobj(source, self.wfile, 1 << 20)
        return None

    def send_bytes(self, status: HTTPStatus, body: bytes, media_type: str = "application/json") -> None:
        self.begin(status, len(body), media_type)
        if self.command == "GET":
            self.wfile.write(body)

    def begin(self, status: HTTPStatus, size: int, media_type: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(size))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        print(f"{self.log_date_time_string()} {self.client_address[0]} {format % args}", file=sys.stderr, flush=True)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # thirty hosts may run apt at once


def make_server(tree: Path, address: str, port: int) -> Server:
    """A bound server; port 0 takes a free one, see `server_port`."""
    return Server((address, port), type("TreeHandler", (Handler,), {"tree": tree.resolve()}))
