"""The load of our own: when there is none, that its container always ends, and what the detector then tells."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import judge
from ansible_collections.gb10.fleet.plugins.module_utils.programs import gpu_load
from ansible_collections.gb10.fleet.plugins.module_utils.programs import load_run as load
from ansible_collections.gb10.fleet.plugins.module_utils.reading.counters import Counters, parse
from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import collect
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, System, run_command

from gb10_fleet import why
from tests.support.attacker import tally
from tests.support.health import GIB, RULES, Record, gpu, problem, sample, serving

IMAGE = "registry.example/vllm@sha256:0"
WISH = load.Wish(IMAGE, seconds=5, size=64, free_gib=6, start_s=20, idle_percent=10)
UNDER_LOAD = "NVIDIA GB10, 580.142, P0, 60, [N/A], {power}, {clock}, 3003, 96, 0x0000000000000000"
IDLE = UNDER_LOAD.replace("96", "0")
# What Docker does, as far as the load needs it: a container that ends by itself, or is removed.
DOCKER = """#!/bin/bash
echo "$*" >>{place}/calls
case $1 in
  image) [ -e {place}/image ];;
  rm) touch {place}/removed;;
  run) cat >{place}/program; {run}
esac
"""
WORKS = f"""touch {{place}}/busy; echo "{gpu_load.BUSY}"
    while [ ! -e {{place}}/removed ] && [ ! -e {{place}}/through ]; do sleep 0.05; done
    echo '{gpu_load.DONE}{{{{"products": 80, "seconds": 5.0, "teraflops": 61.5}}}}'"""


class Host:
    """A host with a made-up Docker and a GPU that is busy while its container runs."""

    def __init__(self, place: Path, run: str = WORKS) -> None:
        self.place, self.gpu = place, (2418, 86.2)
        self.docker = place / "docker"
        self.docker.write_text(DOCKER.format(place=place, run=run.format(place=place)))
        self.docker.chmod(0o755)
        (place / "image").touch()
        (place / "proc").mkdir()
        (place / "proc/meminfo").write_text(f"MemTotal: {121 * 2**20} kB\nMemAvailable: {100 * 2**20} kB\n")
        system = System(place, self.command, Clock(), privileged=True)
        self.reader = replace(HostReader(), system=system)
        self.load = load.Load(self.reader, WISH, str(self.docker))

    def command(self, argv: Any, stdin: str | None, timeout: float) -> Completed:
        if argv[0] == str(self.docker):
            return run_command(argv, stdin, timeout)
        if argv[0] != "nvidia-smi":
            return Completed(tuple(argv), 127)
        busy = (self.place / "busy").exists() and not (self.place / "removed").exists()
        clock, power = self.gpu
        return Completed(tuple(argv), 0, (UNDER_LOAD if busy else IDLE).format(clock=clock, power=power) + "\n")

    def service(self, *, up: bool = True) -> None:
        folder = self.place / "etc/gb10-fleet"
        folder.mkdir(parents=True)
        (folder / "vllm.json").write_text(json.dumps({"image": "own/image", "argv": ["--port", "8000"]}))
        if up:
            unit = self.place / "run/systemd/units/invocation:gb10-vllm.service"
            unit.parent.mkdir(parents=True)
            unit.symlink_to("x")

    def read(self, server: Callable[..., Any] | None = None, after: int | None = None) -> Record:
        """With six samples; `after` so many the program is through."""
        seen = self.load.watch

        def watch(one: Record) -> None:
            seen(one)
            if one["gpu"]["utilization_percent"]:
                self.counted = getattr(self, "counted", 0) + 1
            if after is not None and getattr(self, "counted", 0) >= after:
                (self.place / "through").touch()

        self.load.watch = watch  # type: ignore[method-assign]
        more = {"server": server} if server else {}
        return collect(self.reader, 6, 0.01, loaded=self.load, **more)

    def calls(self) -> list[str]:
        file = self.place / "calls"
        return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def judged(reading: Record) -> tuple[list[str], bool]:
    """Findings of the GPU's clock, and whether the detector can tell at all."""
    reading = {**reading, "clock": {"epoch_s": None, "source": None, "synchronized": None}}
    assert problem(reading) is None
    found = judge("spark-a", reading, RULES)  # type: ignore[arg-type]
    named = [each.id for each in found.findings if each.id in ("power_fault", "gpu_clock_low")]
    return named, "power_fault" not in found.unsure


@pytest.mark.parametrize(("speaks", "findings"), [((2418, 86.2), []), ((507, 12.0), ["power_fault"])])
def test_a_load_tells_a_fault_from_idleness(tmp_path: Path, speaks: tuple[int, float], findings: list[str]) -> None:
    host = Host(tmp_path)
    host.gpu = speaks
    reading = host.read(after=6)
    assert judged(reading) == (findings, True)
    told = {"products": 80, "seconds": 5.0, "teraflops": 61.5}
    assert reading["load"] == {"state": "ended", "reason": None, "image": IMAGE, "told": told}
    assert host.calls() == ["image", "run", "rm"]
    assert (tmp_path / "program").read_text() == Path(gpu_load.__file__).read_text()
    (run,) = (line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("run"))
    assert {"--network=none", "--pull=never", "--read-only", "--cap-drop=ALL"} <= set(run.split())
    assert run.endswith(f"--entrypoint=timeout {IMAGE} -k 5 30 python3 - 5 64")


def test_on_a_real_gpu_the_load_is_seen_and_no_fault_is(shown: Record) -> None:
    busy = [each["gpu"] for each in shown["samples"][1:]]
    assert all(each["utilization_percent"] >= 98 and each["reasons"] == ["sw_power_cap"] for each in busy)
    assert shown["load"]["state"] == "ended" and shown["load"]["told"]["teraflops"] == 682.2
    assert judged(shown) == ([], True)


@pytest.fixture
def shown() -> Record:
    """Of an H100 with driver 580.159.04; tests/fixtures/health/h100/README.md."""
    file = Path(__file__).parents[2] / "fixtures/health/h100/reading-load.json"
    reading: Record = json.loads(file.read_text())
    return reading


def test_at_idle_nobody_can_tell(tmp_path: Path) -> None:
    assert judged(collect(Host(tmp_path).reader, 6, 0.01)) == ([], False)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (sample(gpu=gpu(2418, 86, 96)), "the GPU works already, 96 % of the time"),
        (sample(gpu=gpu(busy=None)), "the GPU does not say whether it works already: its utilization is unknown"),
        (sample(gpu={**gpu(), "state": "absent"}), "the GPU does not answer (absent)"),
        (sample(memory={**sample()["memory"], "available_bytes": 5 * GIB}), "less than 6 GiB of memory are available"),
        (sample(serving=serving(running=1)), "requests run on gb10-vllm"),
        (sample(serving={**serving(), "waiting": 2}), "requests run on gb10-vllm"),
        (sample(servings={"a": serving(), "b": serving(running=1)}), "requests run on gb10-vllm-b"),
        (sample(), "gb10-vllm is up and does not say whether it works"),
    ],
)
def test_where_no_load_may_be(tmp_path: Path, before: Record, said: str) -> None:
    host = Host(tmp_path)
    host.service()
    host.load.begin(before)
    host.load.end()
    assert (host.load.state, host.load.reason) == ("refused", said)
    assert host.calls() == []


FLOODS = """touch {place}/busy; yes "$(head -c 1000 /dev/zero | tr '\\0' x)" | head -c 300000000
    while [ ! -e {place}/removed ]; do sleep 0.05; done"""


def test_an_image_that_talks_without_end_fills_no_memory_of_root(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    host = Host(tmp_path, FLOODS)
    host.load = load.Load(host.reader, WISH._replace(start_s=3), str(host.docker))
    host.load.begin(sample())
    host.load.end()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    tally("an image floods root, who keeps its GPU busy", 1, int(grown > 100_000))
    assert host.load.state == "failed" and grown < 100_000  # KiB


@pytest.mark.parametrize(
    "said", ["[" * 4000, "7", '{"teraflops": "many"}', '{"teraflops": NaN}', '{"teraflops": 1e999}']
)
def test_what_is_no_figure_of_a_load_is_none(tmp_path: Path, said: str) -> None:
    kept = said.replace("{", "{{").replace("}", "}}")  # the script is a form to fill in
    run = f"""touch {{place}}/busy; echo "{gpu_load.BUSY}"; echo '{gpu_load.DONE}{kept}'
    while [ ! -e {{place}}/removed ]; do sleep 0.05; done"""
    host = Host(tmp_path, run)
    host.load.begin(sample())
    host.load.end(at_once=True)
    assert (host.load.state, host.load.told) == ("ended", {})


def test_an_idle_service_lends_its_image(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.service()
    host.load = load.Load(host.reader, WISH._replace(image=None, seconds=0.1), str(host.docker))
    host.load.begin(sample(serving=serving()))
    assert (host.load.state, host.load.image) == ("running", "own/image")
    (tmp_path / "through").touch()
    host.load.end()
    assert host.load.state == "ended"


def test_without_an_image_there_is_none(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.load = load.Load(host.reader, WISH._replace(image=None), str(host.docker))
    host.load.begin(sample())
    assert host.load.reason == "no service of this host has an image: name one with --image"
    host.load = load.Load(host.reader, WISH._replace(image="--help"), str(host.docker))
    host.load.begin(sample())
    assert host.load.reason == "the image '--help' begins with a dash, so Docker would read it as an option"
    assert host.calls() == []
    (tmp_path / "image").unlink()
    host.load = load.Load(host.reader, WISH, str(host.docker))
    host.load.begin(sample())
    assert host.load.reason.startswith(f"the image {IMAGE} is not on this host")
    assert host.calls() == ["image"], "an image is never pulled"


def test_a_service_that_gets_work_has_the_gpu_for_itself(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.service()
    running = iter([0, 0, 0, 1, 1, 1, 1])

    def ask() -> Counters:
        return parse(f"vllm:num_requests_running {next(running)}\nvllm:generation_tokens_total 5\n")

    reading = host.read(lambda *_words: ask)
    assert reading["load"]["state"] == "ended"
    assert reading["load"]["reason"] == "it was ended early: requests run on gb10-vllm"
    assert [one["gpu"]["utilization_percent"] for one in reading["samples"]] == [96, 96, 96, 0, 0, 0]
    assert host.calls().count("rm") >= 1


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (f"exit {gpu_load.NO_TORCH}", "its Python has no torch"),
        (f"exit {gpu_load.NO_GPU}", "its torch sees no GPU"),
        ("exit 124", "it was not ready in time"),
        ("echo docker: no such runtime; exit 125", "docker: no such runtime"),
        ("exit 1", "it ended without a word"),
    ],
)
def test_a_load_that_does_not_start_says_why(tmp_path: Path, run: str, said: str) -> None:
    host = Host(tmp_path, run)
    reading = host.read()
    assert (reading["load"]["state"], reading["load"]["reason"]) == ("failed", said)
    assert host.calls()[-1] == "rm"
    assert judged(reading) == ([], False)


def test_one_that_never_gets_ready_is_removed(tmp_path: Path) -> None:
    host = Host(tmp_path, "while [ ! -e {place}/removed ]; do sleep 0.05; done")
    host.load = load.Load(host.reader, WISH._replace(start_s=0.3), str(host.docker))
    host.load.begin(sample())
    assert (host.load.state, host.load.reason) == ("failed", "it was not ready in time")
    assert host.calls()[-1] == "rm"


def test_it_removes_no_container_but_its_own(tmp_path: Path) -> None:
    names = []
    for part in ("one", "other"):
        (place := tmp_path / part).mkdir()
        host = Host(place, "echo the name is in use; exit 125")
        host.read()
        run, remove = (line for line in (place / "calls").read_text().splitlines() if line.split()[0] in ("run", "rm"))
        (name,) = (word.removeprefix("--name=") for word in run.split() if word.startswith("--name="))
        assert remove.split() == ["rm", "--force", "--volumes", name]
        names.append(name)
    assert names[0] != names[1] and all(name.startswith("gb10-load-") for name in names)


def program(tmp_path: Path, torch: str | None) -> subprocess.CompletedProcess[str]:
    """The program as a container gets it: on standard input, with nothing of ours beside it."""
    folder = tmp_path / "torch.py"
    folder.write_text(torch if torch is not None else "raise ImportError\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-", "0.05", "16"], input=Path(gpu_load.__file__).read_text(), env=environment, text=True,
        capture_output=True, check=False,
    )  # fmt: skip


TORCH = """
from types import SimpleNamespace
class Out(Exception): pass
cuda = SimpleNamespace(is_available=lambda: {gpu}, OutOfMemoryError=Out, synchronize=lambda: None)
bfloat16, calls = "bfloat16", []
def randn(*size, device):
    {memory}
    return SimpleNamespace(to=lambda kind: (size, kind))
def mm(left, right, out):
    assert left == right == out == ((16, 16), "bfloat16")
"""


@pytest.mark.parametrize(
    ("torch", "status"),
    [
        (None, gpu_load.NO_TORCH),
        (TORCH.format(gpu=False, memory="pass"), gpu_load.NO_GPU),
        (TORCH.format(gpu=True, memory="raise Out"), gpu_load.NO_MEMORY),
    ],
)
def test_the_program_says_why_it_cannot(tmp_path: Path, torch: str | None, status: int) -> None:
    done = program(tmp_path, torch)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr


def test_the_program_works_for_its_time(tmp_path: Path) -> None:
    done = program(tmp_path, TORCH.format(gpu=True, memory="pass"))
    busy, end = done.stdout.splitlines()
    assert (done.returncode, busy) == (0, gpu_load.BUSY), done.stderr
    told = json.loads(end.removeprefix(gpu_load.DONE))
    assert told["products"] % gpu_load.AT_ONCE == 0 and told["seconds"] >= 0.05


def test_what_the_command_asks_for() -> None:
    wish = why.variables(0, load=True, image="x")
    assert load.Wish(**wish["gb10_why_load"]) == load.Wish("x", 10, 8192, 6, 90, 10)
    assert "image" not in why.variables(0, load=True)["gb10_why_load"]
    assert wish["gb10_why_samples"] >= RULES.limits["busy_readings"]
