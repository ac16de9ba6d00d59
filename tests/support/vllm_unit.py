"""A host with the program of the vLLM unit, and a server that stands for vLLM."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import parse_config, sha256
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.life import NO_MORE, Life
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.seal import PROTOCOL, Seal, keyed
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.status import Status
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import NOT_AGAIN
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

ROOT = Path(__file__).parents[2]

# Its folder holds what it plays: `log` is what the container says, `more` what it says later,
# `code` how it leaves, once that file is there. `pid` is of what plays its server.
DOCKER = """#!/bin/sh
cd "${0%/*}" || exit 9
echo "$*" >>calls
case $1 in
  version) [ ! -e down ] || { echo "Cannot connect to the Docker daemon"; exit 1; };;
  image) [ ! -e no-image ] || { echo "Error: No such image"; exit 1; };;
  container) [ -e running ] || { echo "No such container"; exit 1; }; cat pid 2>/dev/null || cat running;;
  stop | rm) [ -e deaf ] || rm -f running;;
  run)
    [ ! -e refused ] || { echo "docker: Error response from daemon: unresolvable CDI devices" >&2
      echo "See 'docker run --help'." >&2; exit 125; }
    echo $$ >running.new && mv running.new running
    cat log
    while [ -e running ]; do
      [ ! -e more ] || { cat more; rm more; }
      [ ! -e code ] || { rm -f running; exit "$(cat code)"; }; sleep 0.02
    done
    exit 137;;
esac
"""
GATE = '#!/bin/sh\necho "memory gate: $1 GiB wanted"; [ ! -e "$0.short" ]\n'
LOADED = """Starting to load model openai/gpt-oss-120b...
Loading safetensors checkpoint shards:  33% Completed | 1/3\rLoading safetensors checkpoint shards: 100% Completed | 3/3
Model loading took 65.9 GiB memory and 41.10 seconds
Graph capturing finished in 8 secs, took 0.71 GiB
INFO:     Application startup complete.
"""
SECRET = b"0" * 64 + b" " + b"5" * 64  # of the cluster
QUICK = {
    "heartbeat": 0.05, "silence": 3.0, "greeting": 0.5, "retry": 0.05, "gate": 20.0, "stop": 1.0, "gone": 30.0,
    "door": 30.0, "fault_memory": 3600.0,
}  # fmt: skip
SLOW_S = 30.0  # a machine that does much else is slow; nothing is judged by it


# What a container may print to pass for its unit.
FORGED = "gb10-vllm: gpu_dead: the GPU is gone"
SPOKEN = (
    FORGED, f"<6>{FORGED}", f"x\0{FORGED}", f"\0{FORGED}", f" \t{FORGED}", f"\x1b[0m{FORGED}", f"\x0b\x0c{FORGED}",
    f"x\u2028{FORGED}", f"x\u0085{FORGED}", f"\x1b]0;x\x07{FORGED}", f"\u00a0{FORGED}",
)  # fmt: skip


def free_port() -> int:
    with socket.create_server(("127.0.0.11", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def wait_until(what: Callable[[], Any], why: str = "") -> Any:
    until = time.monotonic() + SLOW_S
    while not (found := what()):
        assert time.monotonic() < until, why or "it did not happen"
        time.sleep(0.01)
    return found


def patterns(kind: str) -> list[list[str]]:
    name = "phase" if kind == "phases" else "verdict"
    return [[entry[name], entry["value"]] for entry in catalog.load("units")["vllm_log"][kind]]


class Host:
    """One host below a folder: its docker, its programs, its sysfs, and the life of its unit in a thread."""

    def __init__(self, root: Path, rank: int = 0, size: int = 1, port: int = 0, **other: Any) -> None:
        self.root, self.rank = root, rank
        self.docker, self.sbin = root / "bin/docker", root / "usr/local/sbin"
        for path, text in (
            (self.docker, DOCKER),
            (self.sbin / "gb10-memory-gate", GATE),
            (self.sbin / "gb10-drop-caches", "#!/bin/sh\necho dropped\n"),
            (root / "usr/bin/systemctl", '#!/bin/sh\necho "$*" >>"$0.asked"\n'),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        (root / "run/gb10-loading").mkdir(parents=True, exist_ok=True)
        self.play("log", LOADED)
        (root / "join.key").write_bytes(SECRET)
        self.raw: dict[str, Any] = {
            "service": "vllm",
            "container": "gb10-vllm",
            "argv": [str(self.docker), "run", "--name", "gb10-vllm", "image", "serve"],
            "image": "image",
            "memory_gib": 7,
            "cache": str(root),
            "disk_gib": 0,
            "faults": 3,
            "load_s": 1800,
            "ready_url": None,
            "api": None,
            "env_file": None,
            "gid_file": None,
            "warm": None,
            "rails": [],
            "join": {
                "rank": rank,
                "members": [{"name": f"spark-{'abc'[n]}", "address": f"127.0.0.{11 + n}"} for n in range(size)],
                "port": port,
                "key": str(root / "join.key"),
                "settings": {"vllm_model": "a/b", "vllm_image": "i"},
            }
            if size > 1
            else None,
            "timing": QUICK,
            "phases": patterns("phases"),
            "failures": patterns("failures"),
            "places": patterns("places"),
            "remarks": patterns("remarks"),
            "measures": {},
            "measured": [each["value"] for each in catalog.load("units")["vllm_log"]["measured"]],
            "docker_said": [[each["verdict"], each["value"]] for each in catalog.load("units")["docker_said"]["run"]],
            "gone": [entry["value"] for entry in catalog.load("units")["vllm_log"]["gone"]],
        } | other
        self.path = root / "status.json"
        self.notified: list[str] = []
        self.life: Life | None = None
        self.codes: list[int] = []

    def play(self, name: str, text: str = "") -> None:
        """For a file that somebody watches: there with all of its content, or not there."""
        new = self.docker.with_name(f".{name}")
        new.write_text(text)
        new.rename(self.docker.with_name(name))

    def rail(self, carrier: str = "1", gid: str = "::ffff:192.168.100.10") -> None:
        """Give it one rail, as it is now."""
        self.raw["rails"] = [
            {
                "netdev": "enp1",
                "hca": "roce",
                "hca_port": 1,
                "gid": "::ffff:192.168.100.10",
                "address": "192.168.100.10",
            }
        ]
        for name, text in (("net/enp1/carrier", carrier), ("infiniband/roce/ports/1/gids/3", gid)):
            path = self.root / "sys/class" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    def start(self) -> Host:
        self.notified.clear()
        text = json.dumps(self.raw)
        config = parse_config(text)

        def notify(*lines: str) -> None:
            self.notified.extend(lines)

        self.life = life = Life(config, Status(self.path, notify, config.digest), notify, self.root)  # type: ignore[arg-type]
        self.thread = threading.Thread(target=lambda: self.codes.append(life.run()))
        self.thread.start()
        return self

    def stop(self) -> int:
        assert self.life
        self.life.stop()
        return self.end()

    def end(self) -> int:
        self.thread.join(SLOW_S)
        assert not self.thread.is_alive(), f"it does not end: {self.status}"
        assert not self.docker.with_name("running").exists(), "a container outlives its unit"
        return self.codes[-1]

    @property
    def status(self) -> dict[str, Any]:
        return document_in(self.path)

    @property
    def active(self) -> bool:
        return "READY=1" in self.notified

    @property
    def calls(self) -> list[str]:
        return self.docker.with_name("calls").read_text().splitlines()

    def runs(self) -> int:
        calls = self.docker.with_name("calls")
        return sum(line.startswith("run") for line in self.calls) if calls.exists() else 0

    def given_back(self) -> int:
        """How often systemd was told to forget its starts."""
        asked = self.root / "usr/bin/systemctl.asked"
        lines = asked.read_text().splitlines() if asked.exists() else []
        assert set(lines) <= {"reset-failed gb10-vllm.service"}
        return len(lines)

    def verdict(self) -> str:
        """That of the end, which systemd is told as a failure."""
        code, failure = self.end(), self.status["failure"]
        assert code == (NO_MORE if failure["verdict"] in NOT_AGAIN else 1)
        assert self.status["phase"] == "failed" and failure["way_out"]
        return str(failure["verdict"])

    def waits_for(self, verdict: str, text: str = "") -> None:
        def waits() -> bool:
            waiting = self.status.get("waiting") or {}
            return waiting.get("verdict") == verdict and text in waiting["text"]

        wait_until(waits, f"{self.status} is not {verdict}: {text}")
        assert not self.active

    def reaches(self, phase: str) -> None:
        wait_until(lambda: self.status.get("phase") == phase, f"{self.status} is not {phase}")


def in_a_process(host: Host) -> subprocess.Popen[bytes]:
    """The same life, in a process of its own."""
    unit = Life.__module__.rpartition(".")[0]
    code = (
        f"import signal, sys; from pathlib import Path; from {unit}.config import parse_config\n"
        f"from {unit}.life import Life; from {unit}.status import Notify, Status\n"
        "root = Path(sys.argv[1]); config = parse_config((root / 'vllm.json').read_text()); notify = Notify('')\n"
        "life = Life(config, Status(root / 'status.json', notify, config.digest), notify, root)\n"
        "signal.signal(signal.SIGTERM, life.stop); sys.exit(life.run())"
    )
    (host.root / "vllm.json").write_text(json.dumps(host.raw))
    environment = {
        **os.environ,
        "PYTHONPATH": str(catalog.collection_root().parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.Popen([sys.executable, "-c", code, str(host.root)], env=environment, stdout=subprocess.DEVNULL)


class Speaker:
    """One side of a connection that knows the secret, or believes so."""

    def __init__(self, connection: socket.socket, calls: bool = True, secret: bytes = SECRET) -> None:
        self.connection, self.seal = connection, Seal(secret, calls)
        connection.settimeout(SLOW_S)
        self.lines = connection.makefile("rb")
        connection.sendall(self.seal.opening)
        assert self.seal.meet(self.lines.readline().rstrip(b"\n"))

    def __enter__(self) -> Speaker:
        return self

    def __exit__(self, *_: object) -> None:
        self.lines.close()
        self.connection.close()

    def say(self, *messages: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it may have hung up already
            self.connection.sendall(b"".join(map(self.seal.seal, messages)))

    def hear(self) -> dict[str, Any] | None:
        return self.seal.open(self.lines.readline().rstrip(b"\n"))


def hello_of(host: Host, rank: int = 1) -> dict[str, Any]:
    said = host.raw["join"]["settings"].items()
    settings = {name: keyed(SECRET, name, sha256(json.dumps(value))) for name, value in said}
    return {"hello": PROTOCOL, "rank": rank, "settings": settings}


def knock(host: Host, data: bytes, source: str = "127.0.0.12") -> socket.socket:
    connection = socket.create_connection(("127.0.0.11", host.raw["join"]["port"]), SLOW_S, (source, 0))
    with contextlib.suppress(OSError):  # it may have hung up already
        connection.sendall(data)
    return connection


def hung_up(connection: socket.socket) -> bool:
    """Whether the other side closes; what it says before is no matter."""
    with connection:
        connection.settimeout(SLOW_S)
        with contextlib.suppress(ConnectionError):
            while connection.recv(4096):
                pass
        return True


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Callable[..., list[Host]]]:
    made: list[Host] = []

    def make(size: int = 1, **other: Any) -> list[Host]:
        port = free_port()
        made.extend(Host(tmp_path / f"host{rank}", rank, size, port, **other) for rank in range(size))
        return made[-size:]

    yield make
    for host in made:
        if host.life:
            host.docker.with_name("deaf").unlink(missing_ok=True)
            host.life.stop()
    for host in made:
        if host.life:
            host.thread.join(SLOW_S)
