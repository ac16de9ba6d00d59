"""Runs of site.yml that are killed at random moments, and what the next run makes of it.

Each round starts from hosts that `undo` has brought back to where they were. The kill takes ansible-playbook on the
controller, the engine on every host, or the engine with all that it has started (apt, dpkg, nmcli, systemctl). Right
after it, every file that is ours holds the old or the new content and nothing else; after the next run the host and
its manifest are as an undisturbed run leaves them. Used by test_kill.py (a few kills) and `make campaign` (a hundred).
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.fleet.fleet import HERE, PYTHON, Fleet
from tests.support.rig import ROOT, Play, differences

QUIET_LIMIT_S = 120  # for what a killed controller leaves on the hosts to come to its end

_RUNNING = """
for pid in $(ls /proc | grep '^[0-9]*$'); do
	words=$(tr '\\0' ' ' </proc/$pid/cmdline 2>/dev/null) || continue
	case "$words" in
	*"-I -S -c import sys;"*|apt-get\\ *|dpkg\\ *|/usr/bin/dpkg\\ *) echo "$words" ;;
	esac
done
"""


class Campaign:
    victims: tuple[str, ...] = ("engine", "engine and children", "ansible-playbook")

    def __init__(self, fleet: Fleet, seed: int, say: Callable[[str], None] = print) -> None:
        self.fleet, self.say = fleet, say
        self.chance = random.Random(seed)  # noqa: S311  # moments, not keys
        self.kills = self.misses = 0

    def run(self, kills: int) -> None:
        """Rounds until that many kills; AssertionError at the first thing that is not as it should be."""
        self._undisturbed()
        rounds = 0
        while self.kills < kills:
            victim = self.victims[rounds % len(self.victims)]
            rounds += 1
            self._round(rounds, victim)
            assert self.misses <= 10 + kills, "most kills hit nothing: the moments are chosen badly"
        self.say(f"{self.kills} kills in {rounds} rounds, {self.misses} came too late: every next run converged")

    def _undisturbed(self) -> None:
        """What a run leads to if nobody disturbs it, and how long it takes."""
        self._on_all(self.fleet.clear)
        self.before = self._on_all(self.fleet.snapshot)
        started = time.monotonic()
        done = self._play()
        self.duration_s = time.monotonic() - started
        assert done.rc == 0, done.output[-4000:]
        self.wanted = self._on_all(self.fleet.snapshot)
        self.manifests = self._on_all(self._lasting)
        self.say(f"an undisturbed run takes {self.duration_s:.0f} s")

    def _play(self) -> Play:
        return self.fleet.site(show=False)

    def _round(self, number: int, victim: str) -> None:
        self._on_all(self._undo)
        if victim == "ansible-playbook":
            told = self._kill_playbook()
        else:
            told = self._kill_engines(children=victim != "engine")
        self._on_all(self._until_quiet)
        self._on_all(self._look_at_the_pieces)
        done = self.fleet.site(show=False)
        assert done.rc == 0, f"round {number} ({told}): the next run fails:\n{done.tasks[-6000:]}"
        self._on_all(self._compare)
        self.say(f"round {number}: {told}: converged")

    def _kill_playbook(self) -> str:
        moment = self.chance.uniform(0.3, self.duration_s)
        argv, env = self.fleet.ansible(*self.fleet.arguments, playbook=self.fleet.playbook)
        child = subprocess.Popen(
            argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            child.wait(moment)
            self.misses += 1
            return f"ansible-playbook had ended before {moment:.2f} s"
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            self.kills += 1
            return f"ansible-playbook killed after {moment:.2f} s"

    def _kill_engines(self, children: bool) -> str:
        """On all hosts, nearly at once: a host that fails ends the play, and later kills would hit nothing."""
        strike = (HERE / "on_host/strike.py").read_bytes()
        armed, limit_s = {}, self.duration_s + 5
        moment = self.chance.uniform(0, 0.8 * self.duration_s)
        for host in self.fleet.hosts:
            words = (str(moment + self.chance.uniform(0, 0.5)), str(int(children)), str(limit_s))
            armed[host] = self.fleet.start(host, PYTHON, "-", *words, program=strike)
            assert armed[host].stdout.readline() == b"armed\n"  # type: ignore[union-attr]
        self.fleet.site(show=False)
        told = []
        for host, child in armed.items():
            output, errors = child.communicate(timeout=limit_s + 30)
            assert child.returncode == 0, errors
            struck = json.loads(output.splitlines()[-1])
            self.kills += bool(struck["killed"])
            self.misses += not struck["killed"]
            at = "; ".join(struck["at"]) or "nothing"
            told.append(f"{host} {struck['after_s']} s {len(struck['killed'])} processes, running {at}")
        return f"engine{' and children' if children else ''}: {', '.join(told)}"

    # -- one host

    def _until_quiet(self, host: str) -> None:
        deadline = time.monotonic() + QUIET_LIMIT_S
        while left := self.fleet.shell(host, _RUNNING).strip():
            assert time.monotonic() < deadline, f"{host}: still at work: {left}"
            time.sleep(0.5)

    def _look_at_the_pieces(self, host: str) -> None:
        """Old or new, never half of it; `json` fails at half a manifest."""
        self.fleet.manifest(host)
        now, old, new = self.fleet.snapshot(host), self.before[host], self.wanted[host]
        for label in self.manifests[host]["resources"]:
            if label.startswith("file:"):
                name = f"file {label.removeprefix('file:')}"
                assert now.get(name) in (old.get(name), new.get(name)), f"{host}: {label}: {now.get(name)}"

    def _compare(self, host: str) -> None:
        rows = differences(self.wanted[host], self.fleet.snapshot(host))
        assert rows == [], f"{host}: not as an undisturbed run leaves it: {rows}"
        wanted, found = ({**it.pop("resources"), **it} for it in (dict(self.manifests[host]), self._lasting(host)))
        other = {
            key: (wanted.get(key), found.get(key)) for key in {*wanted, *found} if wanted.get(key) != found.get(key)
        }
        assert other == {}, f"{host}: another manifest than that of an undisturbed run, in: {other}"
        left = self.fleet.shell(host, "find / -xdev -name '.gb10-new.*'")
        assert left == "", f"{host}: temporary files are left: {left}"

    def _undo(self, host: str) -> None:
        said = self.fleet.engine(host, "undo")
        assert said["error"] is None, f"{host}: undo: {said['error']}"
        rows = differences(self.before[host], self.fleet.snapshot(host))
        assert rows == [], f"{host}: not as before the first run: {rows}"

    def _lasting(self, host: str) -> dict[str, Any]:
        """The manifest without the times, which differ between any two runs."""
        manifest = self.fleet.manifest(host)
        assert manifest is not None, f"{host} has no manifest"
        for entry in manifest["resources"].values():
            for role in entry["roles"].values():
                role.pop("applied")
        return manifest

    def _on_all(self, work: Callable[[str], Any]) -> dict[str, Any]:
        with ThreadPoolExecutor(max_workers=8) as pool:
            return dict(zip(self.fleet.hosts, pool.map(work, self.fleet.hosts), strict=True))
