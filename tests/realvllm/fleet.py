"""Two Sparks on loopback with real services behind real gateways and a router, and OpenAI's library as their client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe
from ansible_collections.gb10.fleet.plugins.module_utils.serving.canary import QUESTIONS, Question
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in

from tests.realvllm.real import ANSWERS, LONGEST_S, Real, is_ours
from tests.support.ports import free_port
from tests.support.router_fleet import KEY, Fleet, Spark

CLIENT = Path(os.environ.get("GB10_OPENAI", ""))  # the folder with the Python that has OpenAI's library
CHAT, EMBED = "tiny/chat", "tiny/embed"
KINDS = {CHAT: "answers", EMBED: "vectors"}
WORDS = {
    CHAT: ("--max-model-len", "2048"),
    EMBED: ("--max-model-len", "2048", "--runner", "pooling", "--convert", "embed"),
}
WISH = Path(__file__).parents[2] / "playbooks/wish.yml"
LOADS = ("formation", "weights", "graphs")
# Two cores for three servers: none of them gets one for itself.
_UNBOUND = "VLLM_CPU_OMP_THREADS_BIND=nobind"


@dataclass
class RealSpark(Spark):
    """A host whose services are units around a real vLLM. `model_of`: the folder of a model by its kind."""

    folder: Path = Path()
    model_of: Callable[[str], Path] = field(default=lambda _kind: Path())
    lives: dict[str, Real] = field(default_factory=dict)

    def start(self, gap_s: float) -> None:
        """All services at once, as at a boot."""
        for model, port in zip(self.models, self.ports, strict=True):
            name = model.rpartition("/")[2]
            self.lives[model] = Real(
                self.folder / name,
                *WORDS[model],
                **{"model": self.model_of(KINDS[model]), "host": self.folder, "port": port, "served": model},
                **{"environment": (_UNBOUND, f"VLLM_API_KEY={self.key(model)}"), "service": name, "load_s": LONGEST_S},
            )
            self.serving(model).parent.parent.mkdir(parents=True, exist_ok=True)
            self.serving(model).parent.symlink_to(self.lives[model].path.parent)
        (self.folder / "run/gb10-loading").mkdir(parents=True)
        for life in self.lives.values():
            life.start()
        for life in self.lives.values():
            life.reaches("ready")

    def key(self, model: str) -> str:
        """What the service itself wants to hear; the gateway says it."""
        said = self.variables()
        keys = {said["vllm_model"]: said["vllm_api_key"]}
        keys |= {entry["model"]: entry["api_key"] for entry in said["vllm_services"].values()}
        return str(keys[model])

    def kill(self) -> None:
        for life in self.lives.values():
            if life.thread.is_alive():
                life.life.stop()
        for life in self.lives.values():
            life.thread.join(LONGEST_S)

    def stop(self, model: str) -> None:
        """What systemd does at a stop."""
        self.lives[model].life.stop()
        assert self.lives[model].end() == 0

    def again(self, model: str) -> None:
        self.lives[model].again()
        self.lives[model].reaches("ready")

    def proof(self, model: str, questions: Sequence[Question] = QUESTIONS) -> server_probe.Proof:
        life = self.lives[model]
        ask = server_probe.http_client(f"http://127.0.0.1:{life.port}", self.key(model), is_ours)
        return server_probe.probe(ask, model, timeout_s=LONGEST_S, answer_timeout_s=LONGEST_S, questions=questions)


class Watch:
    """Which services of a host load at the same moment, and what each one waits for, many times a second."""

    def __init__(self, spark: RealSpark) -> None:
        self.spark, self.together, self.waited = spark, set[frozenset[str]](), dict[str, str]()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self) -> None:
        while not self.ended.wait(0.05):
            said = {model: document_in(life.path) for model, life in [*self.spark.lives.items()]}
            self.together.add(frozenset(model for model, status in said.items() if status.get("phase") in LOADS))
            waits = {model: status.get("waiting") for model, status in said.items()}
            self.waited |= {model: wait["verdict"] for model, wait in waits.items() if wait}

    def end(self) -> None:
        self.ended.set()
        self.thread.join()


@contextmanager
def running(models: Mapping[str, Sequence[str]], model_of: Callable[[str], Path]) -> Iterator[tuple[Fleet, Watch]]:
    """Gateways, a router and real services; what was seen of the loads of the first host."""
    folder = Path(tempfile.mkdtemp(prefix="gb10r"))
    sparks: list[Spark] = [
        RealSpark(
            *(name, f"127.0.0.{number}", tuple(here), tuple(free_port() for _ in here)),
            folder=folder / f"host-{name}", model_of=model_of,
        )
        for number, (name, here) in enumerate(models.items(), 1)
    ]  # fmt: skip
    fleet = Fleet(folder, sparks, 0, ())
    fleet.patience_s = LONGEST_S
    head = sparks[0]
    assert isinstance(head, RealSpark)
    watch = Watch(head)
    try:
        fleet.start()
        watch.end()
        yield fleet, watch
    finally:
        watch.end()
        fleet.close()
        shutil.rmtree(folder, ignore_errors=True)


def settings(fleet: Fleet, questions: Sequence[str], **more: Any) -> dict[str, Any]:
    """Of caller.py: the address of the fleet, and what its models were taught."""
    return asked(f"https://{fleet.head.address}:{fleet.head.gateway_port}/v1", fleet.ca, questions, **more)


def asked(url: str, ca: Path, questions: Sequence[str], **more: Any) -> dict[str, Any]:
    """Two clients of each kind, who stop at once when they are told to, unless `more` says otherwise."""
    chat = [CHAT, *([question, answer] for question, answer in zip(questions, ANSWERS, strict=True))]
    who = {"clients": ["stream", "whole", "embed"] * 2, "lengths": [96], "least": 0}
    return {"url": url, "key": KEY, "ca": str(ca), "chat": chat, "embed": EMBED, **who, **more}


def answered(tally: Mapping[str, int]) -> int:
    """How many requests of a caller were."""
    return tally["whole"] + tally["streamed"] + tally["embedded"]


class Caller:
    """OpenAI's library at work, in a process and an environment of its own."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        argv = [str(CLIENT / "python"), str(Path(__file__).with_name("caller.py")), json.dumps(said)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stdout.readline() == "begun\n"

    def end(self) -> dict[str, Any]:
        out, _ = self.process.communicate(timeout=LONGEST_S)
        return dict(json.loads(out))


def once(program: str, said: Mapping[str, Any]) -> Any:
    """What a few lines with OpenAI's library print, as JSON. `said` is there, and `client()`."""
    here = str(Path(__file__).parent)
    head = f"import json, sys, time, openai; sys.path.insert(0, {here!r}); from caller import client\n"
    text = f"{head}said = json.loads(sys.argv[1])\n{program}"
    done = subprocess.run(
        [str(CLIENT / "python"), "-c", text, json.dumps(said)], capture_output=True, text=True, timeout=LONGEST_S
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


class Shows(Protocol):
    """Who can say what `gb10-router show` says."""

    def show(self) -> list[dict[str, Any]]: ...


def requests(fleet: Shows) -> dict[tuple[str, str], int]:
    """How many each replica has got since the router began, by model and host."""
    return {(each["model"], each["host"]): each["requests"] for each in fleet.show()}


def served_between(before: Mapping[tuple[str, str], int], after: Mapping[tuple[str, str], int]) -> dict[str, int]:
    return {f"{model} on {host}": count - before[model, host] for (model, host), count in after.items()}


def _commands(verb: str) -> list[list[str]]:
    """What playbooks/wish.yml has a router do, in its order, in front of the stop or after the start."""
    (play,) = yaml.safe_load(WISH.read_text())
    argvs = [task["ansible.builtin.command"]["argv"] for task in play["tasks"] if "ansible.builtin.command" in task]
    return [argv[1:] for argv in argvs if argv[:2] == ["gb10-router", verb]]


def _run(fleet: Fleet, verb: str, host: str, model: str) -> None:
    names = {"{{ inventory_hostname }}": host, "{{ __wish_mine.served_name }}": model, "{{ __wish_left_s }}": "60"}
    found = _commands(verb)
    assert found
    for argv in found:
        done = fleet.router(*(names.get(word, word) for word in argv))
        assert done.returncode == 0 or ("--wait" not in argv and done.returncode == 3), done.stdout + done.stderr


def withdraw(fleet: Fleet, host: str, model: str) -> None:
    """As `gb10 stop` does in front of the stop: no new requests, then wait for those under way."""
    _run(fleet, "drain", host, model)


def rejoin(fleet: Fleet, host: str, model: str) -> None:
    _run(fleet, "ready", host, model)
    place = next(each["model"] for each in fleet.show() if each["model"] == model.replace("/", "-"))
    until = time.monotonic() + LONGEST_S
    while next(e["state"] for e in fleet.show() if (e["model"], e["host"]) == (place, host)) != "ready":
        assert time.monotonic() < until, fleet.show()
        time.sleep(0.2)
