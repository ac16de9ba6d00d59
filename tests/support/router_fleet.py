"""Gateways, a router and replicas of a few Sparks on loopback: NGINX and HAProxy as the role gateway writes them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.programs import router as program
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from tests.support.ports import free_port

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
NGINX, HAPROXY = shutil.which("nginx", path=_PATH), shutil.which("haproxy", path=_PATH)
MISSING = not (NGINX and HAPROXY and shutil.which("openssl"))
WHY = "THE ROUTER IS NOT TESTED: needs nginx, haproxy and openssl on this machine"
KEY, FLEET_KEY = "a-key-of-the-tests-and-of-nothing-else", "another-key-that-opens-replicas-only"
READY_S = 60.0
_REPLICA = Path(__file__).parent / "replica.py"
BARE: dict[str, Any] = {"packages": {}, "installed_by_us": [], "memory_bytes": 130663231488}


@dataclass
class Spark:
    """One host: its address on loopback, its models, its processes. The first model is the short form's."""

    name: str
    address: str
    models: tuple[str, ...]
    ports: tuple[int, ...]
    gateway_port: int = field(default_factory=free_port)
    replicas: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    sleeps: frozenset[str] = frozenset()  # models that their first request starts
    home: Path = Path()  # where its files are

    @property
    def port(self) -> int:
        return self.ports[0]

    def start(self, gap_s: float) -> None:
        for model in self.models:
            if model not in self.sleeps:
                self.serve(model, gap_s)
        for model, replica in self.replicas.items():
            await_port("127.0.0.1", self.ports[self.models.index(model)], replica)

    def serve(self, model: str, gap_s: float = 0.005) -> None:
        """Start the server of a model, if it is not up."""
        if model not in self.replicas:
            port = self.ports[self.models.index(model)]
            argv = [sys.executable, str(_REPLICA), str(port), self.name, "--gap", str(gap_s), "--model", model]
            self.replicas[model] = subprocess.Popen(argv)
            self.serving(model).parent.mkdir(parents=True, exist_ok=True)
            self.serving(model).touch()

    def kill(self) -> None:
        for model in list(self.replicas):
            self.kill_one(model)

    def kill_one(self, model: str) -> None:
        self.serving(model).unlink()
        replica = self.replicas.pop(model)
        replica.terminate()
        replica.wait(READY_S)

    def serving(self, model: str) -> Path:
        """What its unit says of its port."""
        return self.home / f"run/gb10-{self.stem(model)}/serving"

    def stem(self, model: str) -> str:
        """Of the names of its service."""
        number = self.models.index(model)
        return f"vllm-more{number - 1}" if number else "vllm"

    def variables(self) -> dict[str, Any]:
        more = zip(self.models[1:], self.ports[1:], strict=True)
        return {
            "vllm_model": self.models[0],
            "vllm_lora": [{"name": f"{self.models[0]}-sql", "model": "acme/sql-lora"}],
            "vllm_port": self.port,
            "vllm_api_key": f"key-of-{self.models[0]}".replace("/", "-"),
            "vllm_on_demand": self.models[0] in self.sleeps,
            "vllm_services": {
                f"more{number}": {
                    "model": model,
                    "port": port,
                    "api_key": f"key-of-{model}",
                    "on_demand": model in self.sleeps,
                }
                for number, (model, port) in enumerate(more)
            },
        }


class Fleet:
    """Sparks with a gateway each; the first one has the router, and `alone` have none. Use `running`."""

    patience_s = READY_S * 2  # for a command of the router, a drain among them

    def __init__(self, folder: Path, sparks: list[Spark], gap_s: float, alone: Sequence[str]) -> None:
        self.folder, self.sparks, self.gap_s, self.alone = folder, sparks, gap_s, alone
        self.processes: list[subprocess.Popen[bytes]] = []
        self.haproxy: subprocess.Popen[bytes] | None = None
        for spark in sparks:
            spark.home = folder / spark.name

    @property
    def head(self) -> Spark:
        return self.sparks[0]

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def spark(self, name: str) -> Spark:
        return next(spark for spark in self.sparks if spark.name == name)

    def start(self) -> None:
        certificates(self.ca, {spark.name: spark.address for spark in self.sparks})
        (self.folder / "router").mkdir()
        (self.folder / "kept").mkdir()
        for spark in self.sparks:
            spark.start(self.gap_s)
            self._start_nginx(spark)
        self._start_haproxy()

    def variables(self) -> dict[str, dict[str, Any]]:
        shared = {
            "gateway_keys": {"laptop": KEY},
            "gateway_fleet": ["sparks"],
            "gateway_fleet_key": FLEET_KEY,
            "gateway_fleet_ca": str(self.ca),
        }
        return {
            spark.name: {
                "gateway_address": spark.address,
                "gateway_port": spark.gateway_port,
                "gateway_certificate": str(self.folder / f"{spark.name}.pem"),
                "gateway_certificate_key": str(self.folder / f"{spark.name}.key"),
                **spark.variables(),
                **shared,
                **({"gateway_fleet": []} if spark.name in self.alone else {}),
            }
            for spark in self.sparks
        }

    def document(self, spark: Spark) -> dict[str, str]:
        """The files of a host, by name."""
        given = self.variables()
        view = View(
            spark.name,
            BARE,
            given[spark.name],
            groups={"sparks": [name for name in given if name not in self.alone]},
            inventory=given,
        )
        made = render("gateway", view)
        assert not made.refusals, made.refusals
        return {entry["file"]: entry["content"] for entry in made.resources if "content" in entry}

    def write(self, spark: Spark) -> Path:
        """A host's files with the paths of this test; a worker of another user could not enter its folder."""
        home = self.folder / spark.name
        (home / "router").mkdir(parents=True, exist_ok=True)
        for path, text in self.document(spark).items():
            for old, new in (
                ("/run/gb10-router/", f"{self.folder}/router/"),
                ("/var/lib/gb10-router/", f"{self.folder}/kept/"),
                ("/run/gb10-gateway/router/", f"{home}/router/"),
                ("/run/gb10-wake/", f"{home}/wake/"),
                ("/run/gb10-vllm", f"{home}/run/gb10-vllm"),
                ("/etc/gb10-fleet/", f"{home}/"),
                ("/var/lib/gb10-fleet/", f"{home}/"),
                ("syslog:server=unix:/dev/log,nohostname,tag=gb10_gateway,severity=debug", f"{home}/strangers.log"),
                ("syslog:server=unix:/dev/log,nohostname,tag=gb10_gateway,severity=notice", f"{home}/heard.log"),
                ("syslog:server=unix:/dev/log,nohostname,tag=gb10_gateway", f"{home}/access.log"),
                ("user www-data;\n", "user root;\n" if os.geteuid() == 0 else ""),
                ("    user haproxy\n    group haproxy\n", ""),
                ("    maxconn 16384\n", "    maxconn 2000\n"),  # a sandbox has fewer files
                (" user www-data mode 600", " mode 600"),
            ):
                text = text.replace(old, new)
            (home / Path(path).name).write_text(text)
        return home

    def _start_nginx(self, spark: Spark) -> None:
        home = self.write(spark)
        argv = [NGINX, "-e", "stderr", "-c", home / "gateway.conf", "-g", f"daemon off; pid {home}/pid;"]
        with (home / "stderr").open("wb") as stderr:
            running = subprocess.Popen([str(each) for each in argv], stderr=stderr)
        self.processes.append(running)
        await_port(spark.address, spark.gateway_port, running)

    def _start_haproxy(self, *, all_ready: bool = True) -> None:
        home, folder = self.folder / self.head.name, self.folder / "router"
        assert self.router("fit").returncode == 0  # as ExecStartPre of the unit
        with (folder / "log").open("wb") as log:
            argv = [str(HAPROXY), "-Ws", "-f", str(home / "router.cfg"), "-S", f"{folder}/master.sock,mode,600"]
            self.haproxy = subprocess.Popen(argv, stdout=log, stderr=log, env=self._environment())
        self.processes.append(self.haproxy)
        until = time.monotonic() + READY_S
        while not (self.all_ready() if all_ready else self.show()):
            assert self.haproxy.poll() is None and time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.1)

    def _environment(self) -> dict[str, str]:
        """As its unit has it."""
        unit = (self.folder / self.head.name / "gb10-router.service").read_text().splitlines()
        words = [word for line in unit if line.startswith("Environment=") for word in line.partition("=")[2].split()]
        return {**os.environ, **dict(word.split("=", 1) for word in words)}

    def router(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`gb10-router` as it lies on the host."""
        argv = [sys.executable, str(program.__file__), "--folder", str(self.folder / "router")]
        argv += ["--kept", str(self.folder / "kept")]
        argv += ["--config", str(self.folder / self.head.name / "router.cfg"), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=self.patience_s)

    def show(self) -> list[dict[str, Any]]:
        done = self.router("show")
        return list(json.loads(done.stdout)) if done.returncode == 0 else []

    def all_ready(self) -> bool:
        found = self.show()
        return bool(found) and all(replica["state"] in ("ready", "asleep") for replica in found)

    def await_state(self, host: str, state: str) -> None:
        until = time.monotonic() + READY_S
        while {replica["state"] for replica in self.show() if replica["host"] == host} != {state}:
            assert time.monotonic() < until, f"{host} is not {state}: {self.show()}"
            time.sleep(0.1)

    def reload(self) -> None:
        """As ExecReload of the unit does."""
        assert self.haproxy is not None
        before = self.workers()
        assert self.router("save").returncode == 0
        self.haproxy.send_signal(signal.SIGUSR2)
        until = time.monotonic() + READY_S
        while not (self.workers() and self.workers()[0] not in before):
            assert time.monotonic() < until, (self.folder / "router/log").read_text()
            time.sleep(0.1)

    def boot_the_router(self) -> None:
        """Its host loses its power: what is in /run is gone."""
        assert self.haproxy is not None
        self.haproxy.kill()
        self.haproxy.wait()
        self.processes.remove(self.haproxy)
        for path in (self.folder / "router").iterdir():
            path.unlink()
        self._start_haproxy(all_ready=False)

    def workers(self) -> list[int]:
        try:
            newest, old = program.Router(self.folder / "router", self.folder / "kept")._workers()
        except program.RouterError:
            return []
        return [newest, *old]

    def close(self) -> None:
        for spark in self.sparks:
            spark.kill()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(READY_S / 6)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(READY_S)


@contextmanager
def running(
    models: Mapping[str, Sequence[str]],
    gap_s: float = 0.005,
    alone: Sequence[str] = (),
    sleeps: Collection[str] = (),
) -> Iterator[Fleet]:
    """A fleet with these models by host; those of `sleeps` are not up."""
    folder = Path(tempfile.mkdtemp(prefix="gb10r"))
    sparks = [
        Spark(
            name, f"127.0.0.{number}", tuple(here), tuple(free_port() for _ in here), sleeps=frozenset(sleeps) & {*here}
        )
        for number, (name, here) in enumerate(models.items(), 1)
    ]
    with at_work(Fleet(folder, sparks, gap_s, alone), folder) as fleet:
        yield fleet


@contextmanager
def at_work(fleet: Fleet, folder: Path) -> Iterator[Fleet]:
    """Started, and gone with its folder."""
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.close()
        shutil.rmtree(folder, ignore_errors=True)


def certificates(bundle: Path, hosts: Mapping[str, str]) -> None:
    """One for each host, by its name and address, with its key; beside them all in the one file `bundle`."""
    made = []
    for name, address in hosts.items():
        made.append(bundle.parent / f"{name}.pem")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},IP:{address}",
             "-out", made[-1], "-keyout", made[-1].with_suffix(".key")],
            check=True, capture_output=True,
        )  # fmt: skip
    bundle.write_text("".join(each.read_text() for each in made))


def await_port(address: str, port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + READY_S
    while True:
        assert process.poll() is None and time.monotonic() < until, f"nothing listens at {address}:{port}"
        try:
            socket.create_connection((address, port), timeout=READY_S).close()
        except OSError:
            time.sleep(0.05)
            continue
        return
