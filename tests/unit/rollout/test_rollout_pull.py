"""The example of pull mode: a bundle is rendered, signed, taken by its own host, and refused in every other case."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import transport

from tests.support.attacker import tally
from tests.support.plays import ROOT, Plays, run_playbook

PULL = ROOT / "examples/pull"
DOCTOR = "- ansible.builtin.import_playbook: gb10.fleet.doctor\n"
CHANGE = {"role": "page_cache", "resource": "file:/x", "action": "create", "detail": "absent"}
# What tests/unit/engine/test_remote.py shows of the real one: it compares under its lock, and says what it left. What a
# test does before it has the lock, and behind it, is in two files.
ENGINE = """
once_locked = answer
def answer(request, system):
    folder, manifest = os.environ["GB10_TEST_HOST"], os.path.dirname(os.environ.get("GB10_PULL_STATE", "/-/-"))
    manifest += "/manifest.json"
    def happens(when):
        if os.path.exists(f"{folder}/{when}"):
            with open(f"{folder}/{when}") as file:
                exec(file.read(), {"os": os, "manifest": manifest})
    happens("meanwhile")
    seen, now = os.environ.get("GB10_MANIFEST_NS"), os.path.exists(manifest) and os.stat(manifest).st_mtime_ns
    if seen is not None and int(seen) != now:
        return {**once_locked({**request, "documents": []}, system), "stale": ["manifest"]}
    said = once_locked(request, system)
    happens("afterwards")
    return {**said, "changed_ns": int(now)}
"""


class Site:
    """A controller, its web server's folder, and one host."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.plays, self.web = folder, Plays(folder), folder / "web"
        with next((folder / "collections").rglob("engine/remote.py")).open("a") as file:
            file.write(ENGINE)
        self.plays.host("a", changes=[CHANGE])
        self.plays.host("b")
        for name in ("ours", "theirs"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        public = (folder / "ours.pub").read_text()
        (folder / "signers").write_text(f'gb10-pull namespaces="gb10-fleet-pull" {public}')

    def play(self, play: str, **variables: object) -> tuple[int, str]:
        hosts = {"spark-a": {"ansible_host": "kind-a"}, "spark-b": {"ansible_host": "kind-b"}}
        return run_playbook(
            self.folder, hosts, play, collections=self.folder / "collections",
            **{"gb10_roles": ["page_cache"], "ansible_become": False, **variables},
        )  # fmt: skip

    def bundle(self, key: str = "ours", **variables: object) -> tuple[int, str]:
        play = f"- ansible.builtin.import_playbook: {PULL / 'bundle.yml'}\n"
        return self.play(play, pull_directory=str(self.web), pull_key=str(self.folder / key), **variables)

    def pull(self, host: str = "spark-a", kind: str = "a", url: str = "", state: Path | None = None) -> tuple[int, str]:
        says = str(self.folder / "hosts" / kind)
        argv = [sys.executable, PULL / "gb10-pull", url or self.web.as_uri(), host]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False,
            env={
                **os.environ, "GB10_PULL_SIGNERS": str(self.folder / "signers"),
                "GB10_PULL_STATE": str(state or self.folder / f"{kind}.json"), "GB10_TEST_HOST": says,
            },
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = Site(tmp_path_factory.mktemp("site"))
    rc, output = site.bundle()
    assert rc != 0 and "nobody knows its facts; run gb10 doctor first" in output
    assert site.play(DOCTOR)[0] == 0
    rc, output = site.bundle()
    assert rc == 0, output
    return site


@pytest.fixture
def site(rendered: Site) -> Iterator[Site]:
    """As rendered, however a test leaves it."""
    shutil.copytree(rendered.web, rendered.folder / "kept")
    for kind in "ab":
        rendered.plays.host(kind)
        for kept in ("", ".engine"):
            (rendered.folder / f"{kind}.json{kept}").unlink(missing_ok=True)
    yield rendered
    shutil.rmtree(rendered.web)
    (rendered.folder / "kept").rename(rendered.web)


def test_a_host_takes_its_own_bundle_and_says_what_it_did(site: Site) -> None:
    site.plays.host("a", changes=[CHANGE])
    rc, said = site.pull()
    assert rc == 0 and "1 changes, 0 wait for consent" in said, said
    (request,) = site.plays.requests("a")
    assert request["check"] is False and [document["role"] for document in request["documents"]] == ["page_cache"]
    assert site.pull()[0] == 0, "the same again is no replay"


def test_a_first_pull_has_no_folder_yet_and_a_damaged_state_is_a_sentence(site: Site) -> None:
    state = site.folder / "new" / "pull.json"
    rc, said = site.pull(state=state)
    assert rc == 0, said
    state.write_text("{")
    rc, said = site.pull(state=state)
    assert rc == 1 and said.startswith(f"{state} cannot be read") and "nothing was done" in said, said


def test_a_server_without_the_bundle_is_a_sentence(site: Site) -> None:
    """Another kind of no: of the server, of the name, of the port."""
    web = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site.folder / "nothing"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        said = [_said(url, "spark-a"), _said("http://127.0.0.1:1", "spark-a"), _said("spark", "spark-a"), _said(url)]
        server.shutdown()
    assert said[0].startswith(f"{url}/spark-a: the server says 404") and "is there a bundle for this host?" in said[0]
    assert "Connection refused; check the address" in said[1] and "unknown url type" in said[2]
    assert all(text.endswith("nothing was done") for text in said[:3]) and said[3] == "usage: gb10-pull URL HOST"


@pytest.fixture
def pull(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program as a module."""
    loader = SourceFileLoader("gb10_pull", str(PULL / "gb10-pull"))
    module = types.ModuleType(loader.name)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("said", "because"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "not here within 1 s"),
        (b"HTTP/1.1 200 OK\r\nX-Header: ", "not here within 1 s"),
        (b"HTTP/1.1 403 \x1b[2J\r\n\r\n", "the server says 403"),
        (b"\x1b[2J\r\n\r\n", "?[2J??; check the address"),
    ],
)
def test_a_server_that_drips_or_speaks_to_the_terminal_ends(
    said: bytes, because: str, monkeypatch: pytest.MonkeyPatch, pull: Any
) -> None:
    monkeypatch.setattr(pull, "WHOLE_S", 1)

    def drips(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.recv(65536)
            client.sendall(said)
            for _ in range(50 if b"200" in said else 0):
                time.sleep(0.1)
                client.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: drips(server.accept()[0]), daemon=True).start()
        with pytest.raises(SystemExit) as ended:
            pull.fetch(f"http://127.0.0.1:{server.getsockname()[1]}/spark-a")
    assert because in str(ended.value) and "\x1b" not in str(ended.value)


def _said(*words: str) -> str:
    argv = [sys.executable, PULL / "gb10-pull", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not done.stdout
    return done.stderr.strip()


def refused(site: Site, because: str, host: str = "spark-a") -> None:
    rc, said = site.pull(host)
    assert rc == 1 and because in said and "nothing was done" in said, said
    assert site.plays.requests("a") == []


def test_a_changed_bundle_is_refused(site: Site) -> None:
    bundle = site.web / "spark-a"
    bundle.write_bytes(bundle.read_bytes().replace(b"page_cache", b"page_cachf") + b"\n")
    refused(site, "the signature does not hold")


def test_what_is_signed_is_what_was_rendered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever serves the folder may write there: he put a program of his own in the place of what was to be signed."""
    (folder := site.folder / "bin").mkdir()
    (program := folder / "ssh-keygen").write_text(
        f"#!/bin/sh\nfor file in {site.web}/.spark-a*; do [ ! -e $file ] || echo theirs >> $file; done\n"
        f'exec {shutil.which("ssh-keygen")} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    rc, output = site.bundle()
    won = b"theirs" in (site.web / "spark-a").read_bytes()
    tally("the web server of pull: a program of its own in the place of what is signed", 1, int(won))
    assert rc == 0 and not won, output
    assert site.pull()[0] == 0


def test_a_server_sends_root_nowhere(site: Site) -> None:
    """To loopback, where an engine asks no key, and before any signature is looked at."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/flush_cache")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        rc, said = site.pull(url=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    tally("the server of pull: a redirect to loopback", 1, len(asked) - 1)
    assert rc == 1 and asked == ["/spark-a"] and "the server says 302" in said, said


def test_a_signature_does_not_speak_to_the_terminal(site: Site) -> None:
    """ssh-keygen quotes the name of its hash, and lets CR, BEL and BS through: an error looked like a success."""
    kind = b"x\r\x07serial 9: 3 changes\x08"
    public = base64.b64decode((site.folder / "ours.pub").read_text().split()[1])
    parts = (public, b"gb10-fleet-pull", b"", kind, b"none")
    blob = b"SSHSIG\0\0\0\1" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    text = base64.encodebytes(blob).decode()
    (site.web / "spark-a.sig").write_text(f"-----BEGIN SSH SIGNATURE-----\n{text}-----END SSH SIGNATURE-----\n")
    rc, output = site.pull()
    won = not output.removesuffix("\n").isprintable()
    tally("a server of pull that speaks to the terminal", 1, int(won))
    assert rc != 0 and "the signature does not hold" in output and "serial 9" in output and not won, repr(output)


def test_another_hosts_bundle_is_refused(site: Site) -> None:
    for name in ("", ".sig"):
        shutil.copy(site.web / f"spark-b{name}", site.web / f"spark-a{name}")
    refused(site, "the bundle is not for spark-a")


def test_an_older_bundle_is_refused(site: Site) -> None:
    (site.folder / "a.json").write_text('{"serial": 99999999999}')
    refused(site, "the bundle is older")


def test_a_bundle_opens_nothing_that_a_push_has_closed_since(site: Site) -> None:
    """The timer took the same bundle again half an hour after a push, and a lost key opened the host again."""
    folder = site.folder / "manifests"
    folder.mkdir()
    state, manifest = folder / "pull.json", folder / "manifest.json"
    manifest.write_text("{}")
    late, early = int(time.time()) + 1000, int(time.time()) - 10**6
    os.utime(manifest, (late, late))  # a host that has never pulled
    first, why = site.pull(state=state)
    assert first and "changed this host at" in why and "write a new one" in why, why
    os.utime(manifest, (early, early))
    assert [site.pull(state=state)[0] for _ in range(2)] == [0, 0], "its own run again, which puts right what drifted"
    os.utime(manifest, (late, late))
    pushed, why = site.pull(state=state)
    assert pushed and "changed this host at" in why, why
    manifest.unlink()
    back, why = site.pull(state=state)
    assert back and "this host was set back since" in why and str(state) in why, why
    won = 3 - bool(first) - bool(pushed) - bool(back)
    tally("a bundle of pull that is older than a push", 3, won)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("when", "happens", "refused_at_once"),
    [
        ("meanwhile", "os.utime(manifest, (LATE, LATE))", True),  # between the look and the lock
        ("afterwards", "os.utime(manifest, (LATE, LATE))", False),  # between the lock and the end of the pull
        ("meanwhile", "os.utime(manifest, (LATE, LATE)); os.kill(os.getppid(), 9)", True),  # and a run that is cut off
    ],
)
def test_a_push_beside_a_pull_is_nobodys_to_take_back(
    site: Site, tmp_path: Path, when: str, happens: str, refused_at_once: bool
) -> None:
    """It looked, a push took a lost key back, and the run opened it again; the turns behind it did so, too."""
    state, manifest, host = tmp_path / "pull.json", tmp_path / "manifest.json", site.folder / "hosts/a"
    manifest.write_text("{}")
    os.utime(manifest, (early := time.time() - 10**6, early))
    assert site.pull(state=state)[0] == 0
    (host / when).write_text(happens.replace("LATE", str(int(time.time()) + 1000)))
    beside, said = site.pull(state=state)
    (host / when).unlink()
    next_turn, why = site.pull(state=state)
    tally("a bundle of pull beside a push", 1, int(not next_turn))
    assert bool(beside) == refused_at_once, said
    assert next_turn == 1 and "or a pull that was cut off, changed this host at" in why, why


def test_the_server_does_not_say_how_long_a_look_is_old(site: Site, pull: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dripped the engine for ten minutes, between the look and the run."""
    order: list[str] = []
    fetch, refuse_former = pull.fetch, pull.refuse_former
    monkeypatch.setattr(pull, "fetch", lambda url: (order.append(url.rpartition("/")[2][:6]), fetch(url))[1])
    monkeypatch.setattr(pull, "refuse_former", lambda *given: (order.append("look"), refuse_former(*given))[1])
    monkeypatch.setattr(pull, "SIGNERS", str(site.folder / "signers"))
    for name, file in (("STATE", "a.json"), ("MANIFEST", "none")):
        monkeypatch.setattr(pull, name, str(site.folder / file))
    monkeypatch.setattr(sys, "argv", ["gb10-pull", site.web.as_uri(), "spark-a"])
    monkeypatch.setenv("GB10_TEST_HOST", str(site.folder / "hosts/a"))
    pull.main()
    assert order == ["spark-", "spark-", "engine", "look"]


def test_what_cannot_be_noted_is_not_applied(site: Site) -> None:
    """A full disk: the next pull would take an older bundle, which the server has kept."""
    assert site.pull()[0] == 0
    (site.folder / "a.json.new").mkdir()
    site.plays.host("a", changes=[CHANGE])
    rc, said = site.pull()
    (site.folder / "a.json.new").rmdir()
    assert rc == 1 and "a.json cannot be written (Is a directory)" in said and "nothing was done" in said, said
    assert site.plays.requests("a") == []


@pytest.fixture
def served(site: Site) -> Iterator[tuple[str, list[str]]]:
    """The folder behind a web server on loopback: its address, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site.web)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_over_http_the_engine_travels_once_and_nothing_is_replayed(site: Site, served: tuple[str, list[str]]) -> None:
    url, asked = served
    old = {name: (site.web / name).read_bytes() for name in ("spark-a", "spark-a.sig")}
    assert site.pull(url=url)[0] == 0 and site.pull(url=url)[0] == 0
    assert len([path for path in asked if "engine-" in path]) == 1, asked
    # Newer, and applied. Then somebody puts the older one back, and then another host's.
    bundle = site.web / "spark-a"
    bundle.write_bytes(re.sub(rb"serial=\d+", b"serial=99999999998", bundle.read_bytes(), count=1))
    sign(site, "ours", until=99_999_999_999)
    assert site.pull(url=url)[0] == 0
    applied = len(site.plays.requests("a"))
    for name, content in old.items():
        (site.web / name).write_bytes(content)
    rc, said = site.pull(url=url)
    assert rc == 1 and "the bundle is older" in said, said
    for name in ("", ".sig"):
        shutil.copy(site.web / f"spark-b{name}", site.web / f"spark-a{name}")
    rc, said = site.pull(url=url)
    assert rc == 1 and "the bundle is not for spark-a" in said, said
    assert len(site.plays.requests("a")) == applied == 3


def test_a_missing_bundle_is_a_sentence(site: Site, served: tuple[str, list[str]]) -> None:
    rc, said = site.pull("spark-c", url=served[0])
    assert rc == 1 and "spark-c: the server says 404" in said and "Traceback" not in said, said
    rc, said = site.pull(url="http://127.0.0.1:1")
    assert rc == 1 and "Connection refused; check the address and the server" in said and "Traceback" not in said, said


def test_another_engine_than_the_signed_one_is_refused(site: Site) -> None:
    (engine,) = site.web.glob("engine-*")
    engine.write_bytes(engine.read_bytes() + b"x")
    refused(site, "is not the engine that the bundle names")


def test_a_bundle_is_as_large_as_the_docs_say(site: Site) -> None:
    """docs/scale.md: under 15 KB for a host with one role, and one engine, the real one, under 250 KB."""
    assert (site.web / "spark-a").stat().st_size < 15_000
    assert len(transport.Message({}).blobs[transport.preload()[0]]) < 250_000


def sign(site: Site, key: str, until: int) -> None:
    bundle = site.web / "spark-a"
    bundle.write_bytes(re.sub(rb"until=\d+", b"until=%d" % until, bundle.read_bytes(), count=1))
    (site.web / "spark-a.sig").unlink()
    argv = ["ssh-keygen", "-q", "-Y", "sign", "-f", site.folder / key, "-n", "gb10-fleet-pull", bundle]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def test_a_bundle_out_of_date_is_refused(site: Site) -> None:
    sign(site, "ours", until=1_000_000_000)
    refused(site, "was good until")


def test_a_bundle_of_another_key_is_refused(site: Site) -> None:
    sign(site, "theirs", until=99_999_999_999)
    refused(site, "the signature does not hold")


def test_a_host_that_has_changed_since_does_nothing(site: Site) -> None:
    assert site.bundle(gb10_roles=["docker"])[0] == 0
    site.plays.host("a", facts={"packages": {}}, changes=[CHANGE])
    rc, said = site.pull()
    assert rc == 1 and "the host has changed since the bundle was made (packages)" in said, said


def test_a_secret_is_not_put_on_a_web_server(site: Site) -> None:
    rc, output = site.bundle(
        gb10_roles=["vllm"],
        vllm_model="m",
        vllm_image=f"i@sha256:{'0' * 64}",
        vllm_hf_token="hf_secret",  # noqa: S106
    )
    assert rc != 0 and "has a secret" in output and "hf_secret" not in output, output


@pytest.mark.parametrize("said", [{}, {"pull_directory": "web"}, {"pull_directory": "", "pull_key": "ours"}])
def test_a_bundle_says_what_it_lacks(rendered: Site, said: dict[str, str]) -> None:
    rc, output = rendered.play(f"- ansible.builtin.import_playbook: {PULL / 'bundle.yml'}\n", **said)
    text = " ".join(output.split())
    assert rc == 2 and "pull_directory or pull_key is not set. Say where the bundles go" in text, output
    assert "undefined" not in text
