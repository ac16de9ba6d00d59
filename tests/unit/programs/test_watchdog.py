"""The watchdog: what is a hang and what is none, over generated series; one restart, kept evidence, no loop."""

from __future__ import annotations

import errno
import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks.hang import Look, Rules, follow, verdict
from ansible_collections.gb10.fleet.plugins.module_utils.programs.watchdog import main as watchdog
from ansible_collections.gb10.fleet.plugins.module_utils.reading.counters import Counters, Service

from tests.support.attacker import tally

RULES = Rules(after_s=180, power_w=30, gap_s=60, breaker_s=21600, busy_percent=80, held_clock_mhz=1800)
EACH, EVERY_S, SPAN_S = 20, 15, 1800
Make = Callable[[random.Random, int], dict[str, Any]]  # number of the look -> what differs from a server at work


def series(make: Make, dice: random.Random) -> list[Look]:
    tokens, at_s, looks = float(dice.randint(0, 10**6)), float(dice.randint(0, 10**6)), []
    prompts = float(dice.randint(0, 10**6))
    for number in range(SPAN_S // EVERY_S):
        said = make(dice, number)
        tokens += said.pop("grows", dice.randint(1, 900))
        prompts += said.pop("takes", 0)
        at_s += EVERY_S + dice.uniform(0, 2) + said.pop("late", 0)
        own = {"at_s": at_s, "phase": "ready", "life": "1", "running": float(dice.randint(1, 8)), "tokens": tokens,
               "prompts": prompts, "power_w": dice.uniform(40, 92)}  # fmt: skip
        looks.append(Look(**{**own, **said}))
    return looks


def hangs(dice: random.Random, **more: Any) -> dict[str, Any]:
    return {"grows": 0, "power_w": dice.uniform(4, 29), **more}


HEALTHY: dict[str, Make] = {
    "sustained load": lambda d, n: {},
    "a long idle": lambda d, n: {"grows": 0, "running": 0.0, "power_w": d.uniform(3.5, 7)},
    "a long prefill": lambda d, n: {"grows": 0},
    "a prefill that pauses": lambda d, n: {"grows": 0, "power_w": d.uniform(40, 90) if n % 8 else d.uniform(5, 20)},
    "decoding for one at little power": lambda d, n: {"grows": d.randint(1, 300), "power_w": d.uniform(14, 29)},
    "slow, a token in two minutes": lambda d, n: {"grows": int(n % 8 == 0), "power_w": 20.0},
    "prompts without tokens, at little power": lambda d, n: {"grows": 0, "takes": 500, "power_w": 20.0},
    "a prefill while the clock is held": lambda d, n: hangs(d, clock_mhz=1500.0, busy_percent=96.0),
    "a prefill beside a power fault": lambda d, n: hangs(d, clock_mhz=d.uniform(481, 858), busy_percent=96.0),
    "loads for half an hour": lambda d, n: hangs(d, phase=d.choice(["weights", "graphs", "formation"])),
    "waits for its peers": lambda d, n: hangs(d, phase="waiting", running=None, tokens=None),
    "power unknown": lambda d, n: hangs(d, power_w=None),
    "the server does not answer": lambda d, n: hangs(d, running=None, tokens=None),
    "restarts by itself every two minutes": lambda d, n: hangs(d, life=str(n // 8)),
    "nobody looked in between": lambda d, n: hangs(d, late=100),
    "idle with stops of a minute": lambda d, n: hangs(d, running=float(n % 10 < 4)),
}
FAULTY: dict[str, Make] = {
    "spins": lambda d, n: hangs(d, power_w=d.uniform(16, 27)),
    "dead and idle": lambda d, n: hangs(d, power_w=d.uniform(3.5, 7)),
    "dead, at the clock of an idle GPU": lambda d, n: hangs(d, clock_mhz=208.0, busy_percent=0.0),
    "spins at a full clock": lambda d, n: hangs(d, clock_mhz=2411.0, busy_percent=96.0),
    "hangs after a while": lambda d, n: hangs(d) if n > 60 else {},
    "hangs, prompts unknown": lambda d, n: hangs(d, prompts=None),
    "hangs, now and then a request gives up": lambda d, n: hangs(d, running=float(d.randint(1, 4))),
}


def verdicts(looks: Sequence[Look]) -> list[str]:
    still, found = None, []
    for look in looks:
        still = follow(still, look, RULES)
        found.append(verdict(still, (), look.at_s, RULES))
    return found


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_no_hang(name: str) -> None:
    dice = random.Random(name)  # noqa: S311 - the same series each time
    wrong = sum("hung" in verdicts(series(HEALTHY[name], dice)) for _ in range(EACH))
    assert wrong == 0


@pytest.mark.parametrize("name", FAULTY)
def test_what_is_one(name: str) -> None:
    dice = random.Random(name)  # noqa: S311
    seen = [verdicts(series(FAULTY[name], dice)) for _ in range(EACH)]
    assert sum("hung" in found for found in seen) == EACH
    first = [found.index("hung") for found in seen]
    assert all(number * EVERY_S >= RULES.after_s * EVERY_S / (EVERY_S + 2) for number in first), "too early"


def test_a_restart_closes_the_way_for_hours_also_by_a_clock_that_was_set_back() -> None:
    still = watchdog.Still(0, 200, "1", 5, 5)
    assert verdict(still, (), 1000, RULES) == "hung"
    assert verdict(still, (1000,), 1000 + 21599, RULES) == "open"
    assert verdict(still, (1000,), 1000 + 21600, RULES) == "hung"
    assert verdict(still, (99_999,), 1000, RULES) == "open"
    assert verdict(watchdog.Still(0, 179, "1", 5, 5), (), 1000, RULES) == "still"


@pytest.mark.parametrize(
    "own", [{"power_w": float("nan")}, {"power_w": -5.0}, {"running": float("nan")}, {"running": -1.0}]
)
def test_what_is_no_number_is_no_hang(own: dict[str, float]) -> None:
    still = None
    look = Look(0.0, "ready", "1", 2.0, 5.0, 5.0, 10.0)._replace(**own)
    for number in range(100):
        still = follow(still, look._replace(at_s=float(number * EVERY_S)), RULES)
    assert still is None


class Host:
    """A host with one service, or several. `counters`: what its servers say."""

    def __init__(self, root: Path, *names: str) -> None:
        self.root, self.now, self.power = root, 0.0, "20.5, 208, 0\n"
        self.phase, self.failing = "ready", False
        self.ran: list[str] = []
        self.asked: list[str] = []
        self.counters: dict[str, Counters] = {}
        (root / "etc/gb10-fleet").mkdir(parents=True)
        for number, name in enumerate(names):
            short = name == "vllm"
            file = "vllm.json" if short else f"vllm-{name}.json"
            (root / "etc/gb10-fleet" / file).write_text(json.dumps({"argv": ["--port", str(8000 + number)]}))
            self.counters[name] = {"running": 2.0, "generated_tokens": 100.0, "prompt_tokens": 7.0}
            self.status(name)

    def status(self, name: str, attempt: int = 1) -> None:
        folder = self.root / "run" / ("gb10-vllm" if name == "vllm" else f"gb10-vllm-{name}")
        folder.mkdir(parents=True, exist_ok=True)
        status = {"phase": self.phase, "attempt": attempt, "since": "then"}
        (folder / "status.json").write_text(json.dumps(status))

    def run(self, argv: Sequence[str], seconds: float) -> tuple[int, str]:
        self.ran.append(" ".join(argv))
        if argv[0] == "systemctl":
            return (1, "no such unit") if self.failing else (0, "")
        return (0, self.power) if argv == watchdog.GPU else (0, f"what {argv[0]} says of {argv[-1]}")

    def ask(self, service: Service, seconds: float) -> Counters:
        self.asked.append(service.name)
        return self.counters[service.name]

    def patrol(self, times: int, services: Sequence[str] = (), kept: int = 2) -> list[str]:
        config = {"services": list(services), "rules": RULES._asdict(), "kept": kept}
        world = watchdog.World(self.root, self.run, self.ask, lambda: self.now, lambda: 1_800_000_000 + self.now)
        said = []
        for _ in range(times):
            self.now += EVERY_S
            said += watchdog.patrol(config, world)
        return said

    @property
    def restarts(self) -> list[str]:
        return [line for line in self.ran if line.startswith("systemctl")]


def test_a_gpu_that_is_held_low_is_no_hang(tmp_path: Path) -> None:
    """300,000 tokens at 19 W take minutes."""
    host = Host(tmp_path, "vllm")
    host.power = "19.1, 695, 96\n"
    (said,) = host.patrol(40)
    assert "no hang: the GPU is busy at 695 MHz, so its power of 19.1 W does not tell" in said and host.restarts == []
    host.power = "19.1, 2411, 96\n"
    assert len(host.patrol(14)) == len(host.restarts) == 1


def test_a_veto_is_said_once_for_each_time_that_nothing_moves(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm")
    host.power = "85.3, 2411, 96\n"
    assert host.patrol(12) == []
    (said,) = host.patrol(200)
    assert said == (
        "gb10-vllm.service: no token came for 180 s, and that is no hang: the GPU takes 85.3 W, so it works;"
        " it is left alone"
    )
    host.counters["vllm"] = {**host.counters["vllm"], "generated_tokens": 200.0}
    assert host.patrol(12) == [] and len(host.patrol(100)) == 1 and not host.restarts


def test_a_hang_is_restarted_once_and_its_evidence_kept(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm")
    assert host.patrol(12) == [] and host.restarts == []
    (said,) = host.patrol(1)
    assert said.startswith("gb10-vllm.service hangs: 2 requests run, no token came for 180 s, and the GPU takes 20.5 W")
    assert host.restarts == ["systemctl restart --no-block gb10-vllm.service"]
    (folder,) = (tmp_path / "var/lib/gb10-watchdog/evidence").iterdir()
    assert folder.name == "vllm@20270115T080315Z"
    assert {path.name for path in folder.iterdir()} == {*watchdog.EVIDENCE, "seen.json", "status.json"}
    assert (folder / "journal.txt").read_text() == "what journalctl says of --unit=gb10-vllm.service"
    assert json.loads((folder / "seen.json").read_text())["look"]["running"] == 2
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_it_hangs_again_and_is_left_alone_for_hours_and_that_is_said_once(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm")
    host.patrol(13)
    host.status("vllm", attempt=2)
    said = host.patrol(400)
    assert len(said) == 1 and "again, within 6 h of a restart: it is left alone" in said[0]
    assert len(host.restarts) == 1
    assert host.patrol(1500) == [] and len(host.restarts) == 1, "a person has to look, also six hours later"
    host.counters["vllm"] = {**host.counters["vllm"], "generated_tokens": 200.0}
    assert len(host.patrol(14)) == 1 and len(host.restarts) == 2, "it worked, and hangs once more"


def test_the_breaker_outlives_boot_and_timer_and_what_stood_still_does_not(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm")
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("one")
    host.patrol(10)
    boot.write_text("two")
    assert host.patrol(12) == []
    assert len(host.patrol(1)) == 1
    boot.write_text("three")
    host.patrol(100)
    assert len(host.restarts) == 1


def test_a_load_is_never_interrupted_and_nobody_is_asked(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm")
    host.phase = "weights"
    host.status("vllm")
    assert host.patrol(200) == [] and not host.restarts and not host.asked


@pytest.mark.parametrize(
    "power",
    ["[N/A]\n", "", "garbage\n", "85.3\n", "nan\n", "-1e400\n", "-5.0\n", "1e1\n", "1_0\n", "9" * 5000, "\u0661\n"],
)
def test_without_a_known_low_power_nothing_is_restarted(tmp_path: Path, power: str) -> None:
    host = Host(tmp_path, "vllm")
    host.power = power
    assert host.patrol(200) == [] and not host.restarts


def test_each_service_is_judged_by_itself_and_only_those_that_are_named(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm", "chat", "small")
    host.counters["chat"] = {**host.counters["chat"], "running": 0.0}
    assert len(host.patrol(20)) == 2
    assert {line.split()[-1] for line in host.restarts} == {"gb10-vllm.service", "gb10-vllm-small.service"}
    other = Host(tmp_path / "other", "vllm", "chat")
    other.patrol(20, services=["chat"])
    assert other.restarts == ["systemctl restart --no-block gb10-vllm-chat.service"] and set(other.asked) == {"chat"}


def test_a_restart_that_systemd_refuses_is_no_reason_for_another(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm")
    host.failing = True
    said = host.patrol(40)
    assert said[0].endswith("systemctl failed: no such unit") and len(host.restarts) == 1


def test_a_disk_without_room_keeps_no_engine_hanging_and_restarts_it_once(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm", "chat")
    lasting = tmp_path / "var/lib/gb10-watchdog"
    lasting.parent.mkdir(parents=True)
    lasting.write_text("no folder")
    said = host.patrol(13)
    assert len(said) == len(host.restarts) == 2 and "what was seen could not be kept (Not a directory)" in said[0]
    assert all("left alone" in line for line in host.patrol(200)) and len(host.restarts) == 2
    lasting.unlink()
    host.patrol(1)
    assert not list((tmp_path / "run/gb10-watchdog").iterdir())
    host.patrol(100)
    assert len(host.restarts) == 2, "there is room again, and the restart is still known"


def test_without_any_room_nothing_is_restarted_and_the_others_are_watched(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm", "chat")
    for folder in ("var/lib/gb10-watchdog/.chat.json.new", "run/gb10-watchdog/.chat.json.new"):
        (tmp_path / folder).mkdir(parents=True)
    said = host.patrol(13)
    assert host.restarts == ["systemctl restart --no-block gb10-vllm.service"]
    assert sum("gb10-vllm-chat.service is not watched" in line for line in said) == 13


def test_a_full_disk_takes_no_evidence_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest made way for one that was empty, and the journal said where that is."""
    host, write = Host(tmp_path, "vllm"), Path.write_text
    folder = tmp_path / "var/lib/gb10-watchdog/evidence"

    def full(path: Path, text: str, **more: Any) -> int:
        if path.name == "journal.txt":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text, **more)

    for _ in range(2):
        host.patrol(13)
        host.now += 30_000
    there = {path: sorted(file.read_text() for file in path.iterdir()) for path in folder.iterdir()}
    monkeypatch.setattr(Path, "write_text", full)
    (said,) = host.patrol(13)
    assert "what was seen could not be kept (No space left on device)" in said and len(host.restarts) == 3
    assert {path: sorted(file.read_text() for file in path.iterdir()) for path in folder.iterdir()} == there


def test_a_clock_that_was_set_back_takes_no_new_evidence(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm")
    folder = tmp_path / "var/lib/gb10-watchdog/evidence"
    clocks = [host.now + 3e7, host.now + 3e7 + 30_000, host.now, host.now + 30_000]
    for at in clocks:
        host.now = at
        (tmp_path / "var/lib/gb10-watchdog/vllm.json").unlink(missing_ok=True)
        host.patrol(13)
    assert [path.name[:13] for path in sorted(folder.iterdir())] == ["vllm@20270115", "vllm@20270115"]


def test_evidence_is_bounded(tmp_path: Path) -> None:
    host = Host(tmp_path, "vllm")
    for _ in range(4):
        host.patrol(13)
        host.now += 30_000
    assert len(host.restarts) == 4
    assert len(list((tmp_path / "var/lib/gb10-watchdog/evidence").iterdir())) == 2


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"still": [1], "restarts": [], "boot": "", "verdict": ""}', "[" * 99_999),
        '{"still": ["x", "y", "1 then", 100.0, 7.0], "restarts": [], "boot": "", "verdict": ""}',
        pytest.param(f'{{"still": null, "restarts": [{10**400}], "boot": "", "verdict": ""}}', id="400 digits"),
        pytest.param(
            f'{{"still": [{10**400}, 1, "1 then", 100.0, 7.0], "restarts": [], "boot": "", "verdict": ""}}', id="still"
        ),
    ],
)
def test_a_damaged_state_counts_nothing(tmp_path: Path, text: str) -> None:
    host = Host(tmp_path, "vllm")
    path = tmp_path / "var/lib/gb10-watchdog/vllm.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert host.patrol(12) == [] and len(host.patrol(1)) == 1


def test_a_host_without_an_api_asks_nobody(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.patrol(3) == [] and host.ran == []


def test_a_command_that_says_too_much_is_ended_and_the_evidence_says_so() -> None:
    """journalctl repeats what a container has written."""
    code, text = watchdog._run([sys.executable, "-c", "while True: print('x' * 2**16)"], 60)
    tally("a container fills the watchdog's memory by its journal", 1, int(len(text) > 1000))
    assert code and "64 MiB" in text and len(text) < 1000


def test_a_command_that_says_little_is_kept_with_its_errors() -> None:
    program = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    assert watchdog._run([sys.executable, "-c", program], 60) == (3, "out\nerr\n")
    assert watchdog._run(["/nowhere/x"], 60) == (127, "/nowhere/x: No such file or directory")
    assert watchdog._run(["sleep", "60"], 0.2) == (124, "sleep did not end within 0.2 s")
