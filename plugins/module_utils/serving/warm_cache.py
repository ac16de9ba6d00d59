# SPDX-License-Identifier: GPL-3.0-or-later
"""The warm cache of a service on one host: made once, shown to others, taken from one of them.

What vLLM compiles is code that the containers of other hosts run. So only a start that nobody could ask anything makes
a cache: its container has no network, and its files are read when it is gone. They travel as one archive, and what that
is its host tells the controller. The key is worked out anew on each host (programs/vllm_unit/warm.py).
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import stat
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import warm
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.before_start import image_digest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import memory
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_files import Files
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_tools import Command, bytes_of, command
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import (
    Tell,
    gigabytes,
    need_room,
    private_folder,
    write,
)
from ansible_collections.gb10.fleet.plugins.module_utils.serving.other_canaries import FORM
from ansible_collections.gb10.fleet.plugins.module_utils.serving.rsync import Peer
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError, last_words
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

PART = "warm"  # of an offer
GIB = 1024**3
TRIES = 2
STOP_S = 60  # for vLLM to end by itself
SLACK_S = 5.0  # of a question, beside its own limit: Python starts in the container
DEEPEST = 64  # folders in each other: compilers make some ten, and each is an open descriptor while it is read
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
# Runs in the container: asks the server there. What it is asked is one line on its standard input, its answer one line.
_ASK = r"""
import base64, json, sys, urllib.error, urllib.request
asked = json.loads(sys.stdin.readline())
data = base64.b64decode(asked["data"]) if asked["data"] else None
request = urllib.request.Request(asked["url"], data, {"Content-Type": asked["type"]})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    with opener.open(request, timeout=asked["timeout_s"]) as response:
        said = {"status": response.status, "body": response.read(asked["most"]).decode("utf-8", "replace")}
except urllib.error.HTTPError as error:
    said = {"status": error.code, "body": error.read(asked["most"]).decode("utf-8", "replace")}
except OSError as error:
    said = {"status": None, "problem": "timeout" if isinstance(error, TimeoutError) else "refused"}
print(json.dumps(said))
"""


class TooLarge(Exception):
    """More than is allowed; how much, in words."""


class WarmCache:
    """The caches of one service. `said` is the plan's; `run` starts commands, `root` is another one in tests."""

    def __init__(self, said: Mapping[str, Any], tell: Tell, run: Command = command, root: Path = Path("/")) -> None:
        self.said, self.tell, self.run, self.root = said, tell, run, root
        self.wish = warm.Wish(said["shelf"], said["flags"], tuple(said["markers"]))
        self.shelf = root / str(said["shelf"]).lstrip("/")
        self.making = self.shelf.parent / "making"
        self.budget = int(said["budget_gib"]) * GIB

    def read(self) -> dict[str, Any]:
        """The key of what is here now, and the cache of that key, where there is one."""
        made = warm.now(self.wish, self._image(), self.root)
        try:
            name = warm.key(made)
        except ValueError as error:
            return {"key": "", "why": str(error), "cache": None}
        found = warm.find(self.wish, name, self.root)
        shown = {field: value for field, value in found._asdict().items() if field != "path"} if found else None
        return {"key": name, "why": "", "cache": shown}

    def _image(self) -> str:
        done = self.run(["docker", "image", "inspect", "--format", "{{json .}}", self.said["image"]])
        return image_digest(done.stdout) if done.returncode == 0 else ""

    # -- made here

    def make(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Start cold, ask, stop, and keep what was compiled. `why`, where there is no room for that now."""
        before = self.read()
        if before["cache"] or not before["key"]:
            return {"changed": False, **before}
        free = memory.lines(System(self.root)).get("MemAvailable", 0) / 2**30
        if free < request["memory_gib"]:
            why = f"{request['memory_gib']} GiB must be available to make one, and {free:.1f} are"
            return {"changed": False, **before, "why": why}
        need_room(self.shelf, self.budget, "what is compiled", "lower vllm_warm_cache_gib, or free some space")
        private_folder(private_folder(self.shelf.parent) / self.shelf.name)
        if left := self._clear():
            raise FilesError("failed", f"what an earlier start left stays: {left}", "remove it, then run again")
        private_folder(self.making)
        try:
            cold_s = self._started_cold(request)
            self._shelve(before["key"], round(cold_s, 1))
        finally:
            self.run(["docker", "rm", "--force", "--volumes", request["container"]])
            self._clear()
        return {"changed": True, **self.read()}

    def _clear(self) -> str:
        """Remove what a start left, however deep: `rm` does not recurse. Why it stays, where it does."""
        done = self.run(["rm", "--recursive", "--force", "--", str(self.making)])
        return "" if done.returncode == 0 else last_words(done.stderr)

    def _started_cold(self, request: Mapping[str, Any]) -> float:
        """Seconds until it serves. It has answered rightly, and it is gone."""
        container = request["container"]
        self.run(["docker", "rm", "--force", "--volumes", container])  # of a run that was killed
        self.run([str(self.root / "usr/local/sbin/gb10-drop-caches")])
        self.tell("starting vLLM without a cache", 0, 0)
        started = time.monotonic()
        done = self.run(request["argv"])
        if done.returncode != 0:
            raise self._failed(last_words(done.stderr))
        cold_s = 0.0

        def ask(path: str, body: Any, timeout_s: float) -> server_probe.Reply:
            nonlocal cold_s
            reply = self._ask(request, path, body, timeout_s)
            if path == request["health"] and reply.status == 200 and not cold_s:
                cold_s = time.monotonic() - started
            return reply

        proof = server_probe.probe(
            ask,
            request["served_name"],
            timeout_s=request["ready_s"],
            answer_timeout_s=request["answer_s"],
            status=lambda: self._life(container),
            health=request["health"],
        )
        if proof.verdict != "serving":
            raise self._failed(f"{proof.verdict}: {proof.text}")
        self.tell("stopping vLLM", 0, 0)
        self.run(["docker", "stop", "--time", str(STOP_S), container])
        self.run(["docker", "rm", "--force", "--volumes", container])
        self._need_gone(container)
        return cold_s

    def _need_gone(self, container: str) -> None:
        """Only Docker's own word counts: a daemon that does not answer may have left the container running."""
        found = self.run(["docker", "container", "inspect", container])
        if found.returncode == 0:
            raise self._failed(f"{container} does not end")
        if f"no such container: {container}" not in found.stderr.lower():
            raise self._failed(f"nobody knows whether {container} has ended ({last_words(found.stderr)})")

    def _ask(self, request: Mapping[str, Any], path: str, body: Any, timeout_s: float) -> server_probe.Reply:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        asked = {
            "url": f"{request['url']}{path}",
            "type": FORM if isinstance(body, bytes) else "application/json",
            "data": data and base64.b64encode(data).decode(),
            "timeout_s": timeout_s,
            "most": server_probe.LARGEST_REPLY,
        }
        done = self.run(
            # What runs there may drip, or never end: the limit that counts is out here.
            [
                *("timeout", "--kill-after=5", f"{timeout_s + SLACK_S:g}"),
                *("docker", "exec", "--interactive", request["container"], "python3", "-c", _ASK),
            ],
            input=f"{json.dumps(asked)}\n",
        )
        said = document(done.stdout)
        status, body = said.get("status"), said.get("body")
        if isinstance(status, int) and isinstance(body, str):
            return server_probe.Reply(status, body)
        return server_probe.Reply(None, problem="timeout" if said.get("problem") == "timeout" else "refused")

    def _life(self, container: str) -> dict[str, Any]:
        """A container that has ended will never answer: said in the words of the unit, so that nobody waits for it."""
        state = self.run(["docker", "inspect", "--format", "{{.State.Status}}", container])
        if state.returncode == 0 and state.stdout.strip() not in ("exited", "dead"):
            return {}
        logs = self.run(["docker", "logs", "--tail", "3", container])
        text = last_words(logs.stdout + logs.stderr)
        failure = {"verdict": "start_failed", "text": text, "way_out": "see it", "lasting": True}
        return {"phase": "failed", "failures": server_probe.FAILED_LIVES, "failure": failure}

    def _failed(self, text: str) -> FilesError:
        way_out = "see that the model serves with vllm_warm_cache_gib: 0, then run again"
        return FilesError("not_warm", f"the start that makes the warm cache failed: {text}", way_out)

    def _shelve(self, name: str, cold_s: float) -> None:
        """Of what the container wrote, the plain files: it goes where other containers run it."""
        path = warm.archive(self.shelf, name)
        size = sum(status.st_size for *__, status in plain_files(self.making))
        if not size:
            raise self._failed("vLLM compiled nothing (--enforce-eager?)")
        self.tell("keeping what is compiled", 0, size)
        new = path.with_suffix(".new")
        try:
            pack(self.making, new, self.budget)
        except TooLarge as error:
            new.unlink(missing_ok=True)
            text = f"what is compiled takes {error}, and vllm_warm_cache_gib is {self.said['budget_gib']}"
            raise FilesError("too_large", text, "raise vllm_warm_cache_gib, or set it to 0") from None
        self._place(new, path, {"cold_s": cold_s, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})

    def _place(self, new: Path, path: Path, more: Mapping[str, Any]) -> None:
        """Archive first, then what says that it is whole; and the oldest ones make room."""
        kept = [(old, old.stat().st_size, old.stat().st_mtime) for old in self.shelf.glob("*.tar")]
        for old in superseded(kept, bytes_of(new), self.budget):
            self._sum(old).unlink(missing_ok=True)
            old.unlink(missing_ok=True)
        said = {"sha256": warm.sum_of(new), "bytes": bytes_of(new), **more}
        new.chmod(0o600)
        place = self._sum(path)
        place.unlink(missing_ok=True)
        new.replace(path)
        private_folder(private_folder(place.parent.parent) / place.parent.name)
        write(place, json.dumps(said))

    def _sum(self, archive: Path) -> Path:
        return self.root / warm.sums(self.shelf, archive.stem)

    # -- between hosts

    def offer(self, ways: Sequence[Mapping[str, str]], port: int, password: str, limit_s: int) -> None:
        """Let these peers read the shelf, for `limit_s` at most."""
        carrier = self._carrier()
        carrier.beside = {PART: str(self.shelf)}
        carrier.offer([], ways, port, password, limit_s)

    def withdraw(self) -> None:
        self._carrier().withdraw()

    def take(self, told: Mapping[str, Any], address: str, port: int, password: str) -> dict[str, Any]:
        """Get the cache that a peer has, if it is the one that its host told the controller, and the one of here."""
        here = self.read()
        offered, mark = told["cache"], str(told["key"])
        if mark != here["key"] or not _SHA256.match(mark) or not _SHA256.match(str(offered["sha256"])):
            raise ValueError("the cache that is offered was made of something else")
        size = int(offered["size"])
        if size > self.budget:
            text = f"the warm cache takes {gigabytes(size)}, and vllm_warm_cache_gib is {self.said['budget_gib']}"
            raise FilesError("too_large", text, "raise vllm_warm_cache_gib, or set it to 0")
        private_folder(private_folder(self.shelf.parent) / self.shelf.name)
        need_room(self.shelf, size, "the warm cache", "lower vllm_warm_cache_gib, or free some space")
        arriving = private_folder(self.shelf.parent / "arriving")
        path, carrier = warm.archive(arriving, mark), self._carrier()
        try:
            with carrier.private("password", f"{password}\n") as secret:
                peer = Peer(address, port, secret)
                for __ in range(TRIES):
                    carrier.copy(peer, PART, [path.name], arriving, lambda: bytes_of(path), size)
                    if bytes_of(path) == size and warm.sum_of(path) == offered["sha256"]:
                        kept = {"cold_s": float(offered["cold_s"]), "at": str(offered["at"])}
                        self._place(path, warm.archive(self.shelf, mark), kept)
                        return {"changed": True, **self.read()}
                    path.unlink(missing_ok=True)
        finally:
            shutil.rmtree(arriving, ignore_errors=True)
        text = f"the warm cache that came from {address} is not the one that its host has made"
        raise FilesError("archive_differs", text, f"see there who holds TCP port {port} (`ss -ltnp`), then run again")

    def _carrier(self) -> Files:
        """Whatever brings the files of models: the same daemon, the same password, the same bounds."""
        none = {"image": "", "name": "", "model": "", "revision": "", "exclude": [], "fetch": False}
        return Files({**none, "cache": str(self.shelf), "environment": {}}, self.tell, self.run)


def carry_out(cache: WarmCache, step: str, request: Mapping[str, Any], secret: str) -> dict[str, Any]:
    """One step that changes something; `secret` is the password between hosts."""
    if step == "make":
        return cache.make(request)
    if step == "take":
        return cache.take(request["offered"], request["address"], request["port"], secret)
    if step == "offer":
        cache.offer(request["ways"], request["port"], secret, request["limit_s"])
    else:
        cache.withdraw()
    return {"changed": False}


def plain_files(top: Path) -> Iterator[tuple[str, int, os.stat_result]]:
    """Path, open descriptor and status of each plain file below a folder that a container has filled.

    Links lead out, and of a file with two names the other one may be anywhere: neither is compiled code.
    """
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield from _below(folder, "", DEEPEST)
    finally:
        os.close(folder)


def _below(folder: int, inside: str, deepest: int) -> Iterator[tuple[str, int, os.stat_result]]:
    if not deepest:
        text = f"vLLM left more than {DEEPEST} folders in each other, and no compiler does that"
        raise FilesError("too_deep", text, "see what the image and the model are; vllm_warm_cache_gib: 0 does without")
    for name in sorted(os.listdir(folder)):
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except OSError:
            continue
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                yield from _below(descriptor, f"{inside}{name}/", deepest - 1)
            elif stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                yield f"{inside}{name}", descriptor, status
        finally:
            os.close(descriptor)


def pack(top: Path, target: Path, most: int) -> None:
    """An archive of the plain files: root's, and without a bit that gives anybody power. TooLarge beyond `most` bytes.

    It is measured as it grows: a thousand empty files are a megabyte of names.
    """
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as made:
            for path, source, status in plain_files(top):
                member = tarfile.TarInfo(path)
                member.size, member.mtime = status.st_size, status.st_mtime
                member.mode = 0o755 if status.st_mode & 0o100 else 0o644
                _need(file.tell() + member.size, most)
                with os.fdopen(os.dup(source), "rb") as content:
                    made.addfile(member, content)
        _need(file.tell(), most)


def _need(size: int, most: int) -> None:
    if size > most:
        raise TooLarge(gigabytes(size))


def superseded(kept: Sequence[tuple[Path, int, float]], coming: int, budget: int) -> list[Path]:
    """The oldest archives, until all that is left fits into the budget together with the new one."""
    gone: list[Path] = []
    left = sum(size for __, size, __age in kept) + coming
    for path, size, __age in sorted(kept, key=lambda each: each[2]):
        if left <= budget:
            break
        gone.append(path)
        left -= size
    return gone
