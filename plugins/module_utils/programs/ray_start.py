# SPDX-License-Identifier: GPL-3.0-or-later
"""Ray on one host of a cluster, and on the first host vLLM on top of it. The role vllm runs it inside the container.

    gb10-ray-start --hosts A,B --own B --port 6379 --timeout 1800 [OPTION OF ray start ...]
    gb10-ray-start --hosts A,B --own A --port 6379 --timeout 1800 [OPTION OF ray start ...] -- vllm serve MODEL ...

It is the container's one process and ends with what it started: with vLLM's status on the first host (the head), with
Ray's on the others. It uses of Ray what has been alike since 2.9: `ray start --block`, which ends when a part of Ray
on this host has died, and `ray.nodes()`. What `ray status` prints was written for people, is rewritten from version to
version, and is some seconds old.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import IO, Any

NO_RAY = 3  # exit status
TOKEN_SINCE = (2, 52)  # docs.ray.io, token authentication: an older Ray does not look at RAY_AUTH_MODE
POLL_S = 1.0
WATCH_S = 5.0
CONNECT_S = 3.0
# Of an unreachable head. Ray's nodes themselves wait 60 s for one that comes back; this one cannot, for what it knows
# dies with it.
SILENCE_S = 30.0
STOP_S = {"vllm": 15.0, "nodes": 1.0, "ray": 8.0}  # to end by itself, in this order; `docker stop` allows 30 s in all


class End(Exception):
    """The launcher ends with this status; the text says why."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text)
        self.status = status


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line; what is not ours in front of `--` goes to `ray start`, what is behind it is vLLM's."""
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="gb10-ray-start", allow_abbrev=False)
    parser.add_argument("--hosts", required=True, type=lambda text: text.split(","))
    parser.add_argument("--own", required=True)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--timeout", required=True, type=float)
    parser.add_argument("--unit", default="gb10-vllm")
    options, rest = parser.parse_known_args(words[:cut])
    options.ray = rest
    options.command = words[cut + 1 :]
    if options.own not in options.hosts:
        parser.error(f"--own {options.own} is not in --hosts {','.join(options.hosts)}")
    if (options.own == options.hosts[0]) != bool(options.command):
        parser.error("the first of --hosts, and no other, takes a command after --")
    return options


def start_words(options: argparse.Namespace) -> list[str]:
    """The command line of `ray start` on this host."""
    head = f"{options.hosts[0]}:{options.port}"
    role = (
        ["--head", f"--port={options.port}", "--include-dashboard=false"] if options.command else [f"--address={head}"]
    )
    return ["ray", "start", *role, f"--node-ip-address={options.own}", "--block", "--disable-usage-stats", *options.ray]


def knows_token(version: str) -> bool:
    """Return whether this Ray asks for the token."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is None or (int(found[1]), int(found[2])) >= TOKEN_SINCE


def ray_version() -> str | None:
    """The version of the Ray in this image, without importing it; None without Ray."""
    if not shutil.which("ray"):
        return None
    try:
        return importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def answers(address: str, port: int) -> bool:
    """Return whether somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=CONNECT_S):
        return True
    return False


def say(text: str) -> None:
    """One line for the journal."""
    sys.stdout.write(f"gb10-ray-start: {text}\n")
    sys.stdout.flush()


def watch(address: str) -> None:
    """Print the addresses of Ray's living nodes again and again, one JSON list a line; ends when Ray does.

    A process of its own: an answer that hangs, or Ray's driver that takes its process along, ends nothing else.
    """
    ray: Any = importlib.import_module("ray")
    while True:
        try:
            ray.init(address=address, logging_level="ERROR", log_to_driver=False)
            break
        except Exception as error:  # what it raises while the head comes up differs between versions
            sys.stderr.write(f"not yet: {error}\n")
            sys.stderr.flush()
            time.sleep(POLL_S)
    while True:
        sys.stdout.write(json.dumps([node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]) + "\n")
        sys.stdout.flush()
        time.sleep(POLL_S)


class Launcher:
    """The children of this process, and the one queue that all news come through."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.head = options.hosts[0]
        self.deadline = time.monotonic() + options.timeout
        # Its put() may be called in a handler of signals while this process is in get().
        self.news: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> int:
        """The exit status, when everything that was started has ended."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _frame: self.news.put(("signal", number)))
        try:
            return self._lead() if self.options.command else self._follow()
        except End as end:
            if str(end):
                say(str(end))
            return end.status
        finally:
            self._stop()

    def _why(self) -> str:
        return f"`journalctl -u {self.options.unit}` there says why"

    def _lead(self) -> int:
        """Ray's head, then vLLM as soon as every host is a living node, until one of them ends."""
        wanted, alive, stopping = set(self.options.hosts), set[str](), False
        self._start("ray", start_words(self.options))
        self._start("nodes", [sys.executable, __file__, "watch", f"{self.head}:{self.options.port}"], heard=True)
        while True:
            serving = "vllm" in self.children
            kind, what = self._next(None if serving else self.deadline - time.monotonic())
            if kind == "nodes":
                alive = set(what)
                lost = ", ".join(sorted(wanted - alive))
                if serving and lost and not stopping:
                    raise End(1, f"{lost} is no longer a living node of Ray; {self._why()}")
                if not serving and not lost:
                    say(f"all {len(wanted)} hosts are nodes of Ray")
                    environment = {**os.environ, "RAY_ADDRESS": f"{self.head}:{self.options.port}"}
                    self._start("vllm", self.options.command, environment)
            elif kind == "signal" and serving:
                stopping = True
                self.children["vllm"].send_signal(what)
            elif kind == "signal":
                return 0
            elif kind == "nothing":
                missing = ", ".join(sorted(wanted - alive))
                raise End(
                    1,
                    f"after {self.options.timeout:g} s {missing} is no node of Ray at {self.head}:{self.options.port}; "
                    f"{self._why()}",
                )
            elif what[0] == "vllm":
                return int(what[1])
            else:
                self._ended(*what)

    def _follow(self) -> int:
        """A node of Ray as soon as the head is there, until it ends or the head is gone."""
        head, port = self.head, self.options.port
        while not answers(head, port):
            if time.monotonic() > self.deadline:
                raise End(1, f"Ray's head {head}:{port} did not answer for {self.options.timeout:g} s")
            if self._next(POLL_S)[0] == "signal":
                return 0
        self._start("ray", start_words(self.options))
        heard = time.monotonic()
        while True:
            kind, what = self._next(WATCH_S)
            if kind == "signal":
                return 0
            if kind == "ended":
                self._ended(*what)
            if answers(head, port):
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_S:
                raise End(1, f"Ray's head {head}:{port} is gone, for {SILENCE_S:g} s")

    def _ended(self, name: str, status: int) -> None:
        """A part that must live as long as this process has ended."""
        what = {"ray": "`ray start`", "nodes": "the watch over Ray's nodes"}[name]
        where = "" if self.options.command else f"; {self.head} is Ray's head, see there too"
        raise End(status or 1, f"{what} has ended on {self.options.own} with status {status}{where}")

    def _next(self, seconds: float | None) -> tuple[str, Any]:
        """The next piece of news; ("nothing", None) when there was none for so long."""
        try:
            return self.news.get(timeout=None if seconds is None else max(0.0, seconds))
        except Empty:
            return "nothing", None

    def _start(
        self, name: str, words: Sequence[str], environment: dict[str, str] | None = None, heard: bool = False
    ) -> None:
        try:
            child = subprocess.Popen(  # pylint: disable=ansible-bad-function
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if heard else None, env=environment
            )
        except OSError as error:
            raise End(1, f"{words[0]} cannot be started: {error.strerror}") from error
        self.children[name] = child
        threading.Thread(target=self._wait, args=(name, child), daemon=True).start()

    def _wait(self, name: str, child: subprocess.Popen[bytes]) -> None:
        if child.stdout is not None:
            self._listen(child.stdout)
        status = child.wait()
        self.news.put(("ended", (name, status if status >= 0 else 128 - status)))

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            with contextlib.suppress(ValueError):  # whatever else a library prints
                nodes = json.loads(line)
                if isinstance(nodes, list):
                    self.news.put(("nodes", nodes))

    def _stop(self) -> None:
        """End what still runs. `ray start --block` takes all of Ray on this host with it, as `ray stop` would."""
        for name, seconds in STOP_S.items():
            child = self.children.get(name)
            if child is None:
                continue
            child.terminate()
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.kill()


def main(argv: Sequence[str]) -> int:
    """Run by the container; the exit status."""
    if argv[:1] == ["watch"]:
        watch(argv[1])
    options = parse(argv)
    version = ray_version()
    if version is None:
        say("this image has no Ray: use vllm_executor: mp or an image with Ray")
        return NO_RAY
    if not knows_token(version):
        say(f"WARNING: Ray {version} asks for no token, as 2.52 does: who reaches its ports runs code on this host")
    return Launcher(options).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
