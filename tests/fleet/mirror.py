"""A small apt repository of our own, and a server in front of it that can be told to fail as mirrors do."""

from __future__ import annotations

import subprocess
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

SERVER = "198.18.7.1"  # the controller, as the lab's hosts see it
PACKAGES = tuple(f"gb10-faults-{letter}" for letter in "abcdef")
VERSIONS = ("1.0", "2.0")
PAYLOAD = 200_000  # bytes; apt fetches in larger pieces than a few kB, and half of them must be missing
SUITES = ("good", "foreign", "expired")
PAUSE_S = 0.1  # in every postinst, so that a kill finds dpkg at work

KEYRING, SOURCES = "/etc/apt/keyrings/gb10-faults.asc", "/etc/apt/sources.list.d/gb10-faults.sources"


def run(*argv: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in argv], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


class Key:
    """A signing key that exists as long as its folder."""

    def __init__(self, name: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="gpg-"))  # short, for the agent's socket
        self._gpg = ["gpg", "--batch", "--yes", "--homedir", str(self.home), "--pinentry-mode", "loopback"]
        self._gpg += ["--passphrase", ""]
        run(*self._gpg, "--quick-generate-key", name, "ed25519", "sign", "never")
        self.public = run(*self._gpg, "--armor", "--export")
        listing = run(*self._gpg, "--with-colons", "--list-keys")
        self.fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr"))

    def sign(self, release: Path) -> None:
        run(*self._gpg, "--clearsign", "--output", release.with_name("InRelease"), release)

    def end(self) -> None:
        run("gpgconf", "--homedir", self.home, "--kill", "gpg-agent")


class Mirror:
    """`fault`: what happens to every package that is asked for: nothing, `503` or `half`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fault = ""
        self.key, self.other = Key("gb10 faults"), Key("somebody else")
        self._build()
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer((SERVER, 0), Handler)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://{SERVER}:{self._server.server_port}"

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.key.end()
        self.other.end()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = self.root / request.path.lstrip("/")
        is_package = path.suffix == ".deb"
        if not path.is_file():
            return request.send_error(404)
        if is_package and self.fault == "503":
            return request.send_error(503)
        body = path.read_bytes()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: len(body) // 2] if is_package and self.fault == "half" else body)
        return None

    def document(self, version: str = "1.0", suite: str = "good", url: str = "", **key: str) -> list[dict[str, Any]]:
        """What a role would declare: key, source, packages."""
        source = f"Types: deb\nURIs: {url or self.url}\nSuites: {suite}\nComponents: main\nSigned-By: {KEYRING}\n"
        resources: list[dict[str, Any]] = [
            {"file": KEYRING, "content": self.key.public, "fingerprint": self.key.fingerprint, **key},
            {"file": SOURCES, "content": source},
            *({"package": name, "version": version} for name in PACKAGES),
        ]
        return [{"role": "faults", "resources": resources}]

    def _build(self) -> None:
        pool = self.root / "pool"
        pool.mkdir()
        for version in VERSIONS:
            for name in PACKAGES:
                self._package(name, version, pool)
        for suite in SUITES:
            folder = self.root / "dists" / suite
            binary = folder / "main/binary-amd64"
            binary.mkdir(parents=True)
            (binary / "Packages").write_text(run("apt-ftparchive", "packages", "pool", cwd=self.root))
            fields = {"Suite": suite, "Components": "main", "Architectures": "amd64"}
            options = [f"-oAPT::FTPArchive::Release::{field}={value}" for field, value in fields.items()]
            expiry = "Valid-Until: Thu, 01 Jan 2026 00:00:00 UTC\n" if suite == "expired" else ""
            (folder / "Release").write_text(expiry + run("apt-ftparchive", *options, "release", folder))
            (self.other if suite == "foreign" else self.key).sign(folder / "Release")

    def _package(self, name: str, version: str, pool: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            root.chmod(0o755)
            (root / "DEBIAN").mkdir(mode=0o755)
            (root / "DEBIAN/control").write_text(
                f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <nobody@gb10.invalid>\n"
                f"Description: for tests of faults\n"
            )
            script = root / "DEBIAN/postinst"
            script.write_text(f"#!/bin/sh\nsleep {PAUSE_S}\n")
            script.chmod(0o755)
            payload = root / "usr/share" / name
            payload.mkdir(parents=True)
            (payload / "payload").write_bytes(bytes(version.encode()[0] ^ (i * i % 251) for i in range(PAYLOAD)))
            run("dpkg-deb", "--root-owner-group", "-Znone", "--build", root, pool)
