"""`gb10 rollout` on a fleet of containers, and what becomes of it when it is killed at any of its moments.

The kill takes `gb10` alone, whose ansible-playbook then goes on as an orphan, or all that it has started, as a power
cut of the controller would. The moments are those of an undisturbed run: each step of each wave has its turn, and the
kill comes at random within it. `gb10 resume` follows at once. Used by test_rollout.py (a few kills) and `python -m
scripts.campaign --rollout --kills 50 --hosts 30`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.fleet.fleet import HERE, PYTHON, Fleet
from tests.fleet.kills import Campaign
from tests.fleet.moments import Moment, Moments, Plan, Tally, wait_for
from tests.support.rig import ROOT, Play

GB10 = [sys.executable, "-c", "from gb10_fleet.cli import main; main()"]
PLAYBOOK = "tests/fleet/site.yml"
SERVING = "tests/fleet/serving.yml"
STOP = "/run/gb10-test-stop"
UNIT = "gb10-vllm.service"
ENDED = "it had ended"
# In place of model and Docker: one takes the signal by which a drain announces itself, the other has every image.
MODEL = f"""
cat >/usr/local/bin/docker <<'END'
#!/bin/sh
case "$*" in "image inspect"*) echo '[{{"RootFS": {{"Layers": []}}, "Size": 1}}]';; esac
END
chmod 755 /usr/local/bin/docker
cat >/etc/systemd/system/{UNIT} <<'END'
[Service]
ExecStart=/bin/sh -c 'trap "" USR1; exec sleep infinity'
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload && systemctl enable --quiet --now {UNIT}
"""
NO_MODEL = f"""
systemctl disable --quiet --now {UNIT} || true
rm -f /etc/systemd/system/{UNIT} /usr/local/bin/docker
systemctl daemon-reload
"""


class Gb10:
    """The command, with a journal of its own."""

    def __init__(self, fleet: Fleet, state: Path, *words: str) -> None:
        """`words`: for ansible-playbook."""
        self.fleet, self.state = fleet, state
        self.words = (*fleet.words, *words)
        self.inventories: tuple[Path, ...] = (fleet.inventory,)
        self.more: dict[str, str] = {}  # of the environment

    def argv(self, command: str, *args: str) -> list[str]:
        inventories = [word for path in self.inventories for word in ("-i", str(path))]
        return [*GB10, command, *args, *inventories, "--state", str(self.state), "--json"]

    def serve(self) -> None:
        """From now on the hosts have the role vllm, to be drained and served; the work is done with the others."""
        said = yaml.safe_load((HERE / "vars.yml").read_text())
        roles = said.pop("gb10_roles")
        roles = json.loads(Path(self.fleet.words[-1][1:]).read_text())["gb10_roles"] if self.fleet.own_roles else roles
        variables, inventory = self.state / "serving.json", self.state / "serving.yml"
        variables.write_text(json.dumps({**said, "fleet_roles": roles, "vllm_fetch": False}))
        inventory.write_text(json.dumps({"all": {"vars": {"gb10_roles": [*roles, "vllm"]}}}))
        self.words = ("-e", f"@{variables}")
        self.inventories = (self.fleet.inventory, inventory)

    def plan(self, playbook: str = PLAYBOOK) -> list[str]:
        return [*self.argv("rollout", playbook, "--plan"), *self._waves, "--", *self.words]

    def rollout(self, playbook: str = PLAYBOOK, *args: str) -> list[str]:
        return [*self.argv("rollout", playbook, *args), *self._waves, "--", *self.words]

    def resume(self) -> list[str]:
        return self.argv("resume")

    def rollback(self, run: str) -> list[str]:
        return self.argv("rollback", run)

    @property
    def _waves(self) -> list[str]:
        """A canary, then more and more; no time is spent on waiting between waves."""
        sizes = ["--canary", "1", "--growth", "10%", "--growth", "50%", "--growth", "100%", "--soak", "0"]
        return [*sizes, "--limit", ",".join(self.fleet.hosts)]

    @property
    def environment(self) -> dict[str, str]:
        python = [str(ROOT / "collections"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**self.fleet.ansible()[1], **self.more, "PYTHONPATH": os.pathsep.join(python)}

    def start(self, argv: Sequence[str], output: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        """A session of its own: whoever kills it with all it has started hits nobody else."""
        return subprocess.Popen(
            argv, cwd=ROOT, env=self.environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT if output != subprocess.PIPE else output,
        )  # fmt: skip

    def run(self, argv: Sequence[str], timeout: int = 3600) -> tuple[int, dict[str, Any]]:
        """Exit status and report."""
        child = self.start(argv)
        output, errors = child.communicate(timeout=timeout)
        try:
            return child.returncode, json.loads(output)
        except ValueError:
            raise AssertionError(f"{' '.join(argv[3:])}: no JSON, but: {output[-3000:]}{errors[-3000:]}") from None


def states(report: dict[str, Any]) -> dict[str, str]:
    """{host: its state} in the record of a run."""
    return {host["host"]: host["state"] for wave in report["waves"] for host in wave["hosts"]}


class RolloutCampaign(Campaign):
    victims = ("gb10", "gb10 and all it has started")

    def __init__(
        self,
        fleet: Fleet,
        state: Path,
        seed: int,
        say: Callable[[str], None] = print,
        in_a_row: int = 1,
        *,
        serving: bool = False,
    ) -> None:
        """`in_a_row`: kills of one rollout, the first of `gb10 rollout` and the others of each `gb10 resume` after.

        `serving`: around the work the hosts are drained and served, and not proven, for they have no model.
        """
        super().__init__(fleet, seed, say)
        self.gb10, self.in_a_row, self.serving = Gb10(fleet, state), in_a_row, serving
        self.moments, self.tally = Moments(state), Tally()
        self.gb10.more = self.moments.environment
        if serving:
            self.gb10.serve()

    def run(self, kills: int) -> None:
        try:
            super().run(kills)
        finally:
            for line in self.tally.lines():  # also of a campaign that was cut short
                self.say(line)
            self._on_all(lambda host: self.fleet.shell(host, NO_MODEL))
        mixed, total = self.tally.mixed.total(), self.tally.kills.total()
        assert 2 * mixed >= total, "most kills hit before any host was done, or after all were"

    def _undisturbed(self) -> None:
        if self.serving:
            self._on_all(lambda host: self.fleet.shell(host, MODEL))
        super()._undisturbed()
        self.plan = Plan(self.moments.seen(), time.time(), self.chance)
        self.say(f"its moments: {', '.join(map(str, sorted(self.plan.lasts)))}")

    def _play(self) -> Play:
        self.moments.start()
        status, report = self.gb10.run(self._rollout())
        return Play(status, json.dumps(report, indent=1))

    def _rollout(self) -> list[str]:
        return self.gb10.rollout(SERVING, "--no-prove") if self.serving else self.gb10.rollout()

    def _round(self, number: int, victim: str) -> None:
        self._on_all(self._undo)
        watchers = self._on_all(self._watch)
        before = self._stand().get("run")
        told, stands = list[str](), list[dict[str, Any]]()
        for target in self.plan.take(self.in_a_row):
            told.append(self._kill(self._next(stands), target, children=victim != "gb10"))
            stands += [stand for stand in [self._stand()] if stand.get("run") != before]
            self.say(f"    {told[-1]}")
            if not told[-1].startswith(ENDED):
                self.tally.add(self.moments.now(), states(stands[-1]) if stands else {})
        status, report = self.gb10.run(self._next(stands))
        if stands and stands[-1]["outcome"] == "done":  # there was nothing left to resume
            assert status == 4, report
            status, report = self.gb10.run(self.gb10.argv("status"))
        self._on_all(self._until_quiet)  # what an orphan still wants to write counts, too
        writers = self._stop(watchers)
        done = [sum(state == "done" for state in states(stand).values()) for stand in stands]
        words = f"round {number} ({victim}: {', '.join(told)}; hosts done by then: {done})"
        assert status == 0, f"{words}: it ends with {status}:\n{json.dumps(report, indent=1)[-4000:]}"
        assert set(states(report)) == set(self.fleet.hosts) and set(states(report).values()) == {"done"}, words
        for host, names in writers.items():
            in_turn = [name for name, _ in itertools.groupby(names)]
            assert len(in_turn) == len(set(in_turn)), f"{words}: {host}: two writers took turns: {names}"
            for stand in stands:
                later = [name for name in in_turn if _attempt(name, stand["run"]) > stand["attempt"]]
                assert states(stand)[host] != "done" or not later, f"{words}: {host} was done, then written: {names}"
        self._on_all(self._compare)
        if self.serving:
            units = self._on_all(lambda host: self.fleet.shell(host, f"systemctl is-active {UNIT} || true").strip())
            assert set(units.values()) == {"active"}, f"{words}: a model is left stopped: {units}"
        self.say(f"{words}: resumed, converged, one writer at a time")

    def _next(self, stands: Sequence[dict[str, Any]]) -> list[str]:
        return self.gb10.resume() if stands else self._rollout()

    def _kill(self, argv: Sequence[str], target: Moment, children: bool) -> str:
        self.moments.start()
        child = self.gb10.start(argv, subprocess.DEVNULL)
        if wait_for(self.moments, target, lambda: child.poll() is not None):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(self.plan.delay(target))
        if child.poll() is not None:
            self.misses += 1
            return f"{ENDED} before {target}"
        victims = [child.pid, *(_descendants(child.pid) if children else [])]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.wait()
        self.kills += 1
        return f"{len(victims)} killed at {self.moments.now()}"

    def _stand(self) -> dict[str, Any]:
        """The record of the latest run at that moment: one that is killed early does not come into the journal."""
        return self.gb10.run(self.gb10.argv("status"))[1]

    # -- one host

    def _watch(self, host: str) -> subprocess.Popen[bytes]:
        program = (HERE / "on_host/writers.py").read_bytes()
        child = self.fleet.start(host, PYTHON, "-", STOP, "7200", program=program)
        assert child.stdout is not None and child.stdout.readline() == b"armed\n"
        return child

    def _stop(self, watchers: dict[str, subprocess.Popen[bytes]]) -> dict[str, list[str]]:
        self._on_all(lambda host: self.fleet.shell(host, f"touch {STOP}"))
        return {host: json.loads(child.communicate(timeout=30)[0]) for host, child in watchers.items()}


def _attempt(writer: str, run: str) -> int:
    """Which attempt at that run it was, as the lock names it; 0: none."""
    found = re.search(rf" rollout {re.escape(run)} attempt (\d+)", writer)
    return int(found[1]) if found else 0


def _descendants(pid: int) -> list[int]:
    try:
        tasks = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    children = [int(child) for task in tasks for child in task]
    return [*children, *(grandchild for child in children for grandchild in _descendants(child))]
