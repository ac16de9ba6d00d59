"""The moments of a rollout: which wave it is at, and which step of it. Its journal and callback/gb10_moments say so."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# In the order of a wave. `begin` and `gate` are the journal's; between them lies one ansible-playbook.
STEPS = ("begin", "fetch", "planned", "drain", "work", "roll_call", "serve", "proof", "gate")
CALLBACK = Path(__file__).parent / "callback"


class Moment(NamedTuple):
    """Moments are in the order of the run."""

    wave: int
    step: int

    def __str__(self) -> str:
        return f"wave {self.wave} {STEPS[self.step]}"


class Moments:
    """What the present attempt has written down so far: the one that began after `start`."""

    def __init__(self, state: Path) -> None:
        self.file, self.journal = state / "moments", state / "journal.db"
        self.file.touch()
        self.before: tuple[str, int] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {"ANSIBLE_CALLBACK_PLUGINS": str(CALLBACK), "GB10_TEST_MOMENTS": str(self.file)}

    def start(self) -> None:
        self.before = self._attempt()

    def seen(self) -> list[tuple[Moment, float]]:
        """All of it in order, with the time of each (s). The n-th step that began is the n-th ansible-playbook."""
        attempt = self._attempt()
        if attempt is None or attempt == self.before:
            return []
        playbooks = list(self._playbooks(f"{attempt[0]}/{attempt[1]}").values())
        found, number = list[tuple[Moment, float]](), 0
        for kind, wave, at in self._events(attempt[0]):
            found.append((Moment(wave, STEPS.index("begin" if kind == "step_begun" else "gate")), at))
            if kind == "step_begun" and number < len(playbooks):
                found += [(Moment(wave, STEPS.index(step)), when) for step, when in playbooks[number]]
                number += 1
        return found

    def now(self) -> Moment | None:
        return max((moment for moment, _ in self.seen()), default=None)

    def _attempt(self) -> tuple[str, int] | None:
        """The latest run, and its attempt."""
        rows = self._ask("SELECT run, attempt FROM run ORDER BY rowid DESC LIMIT 1")
        return (str(rows[0][0]), int(rows[0][1])) if rows else None

    def _events(self, run: str) -> list[tuple[str, int, float]]:
        """`(kind, wave, seconds)` of the last attempt; the journal has whole seconds."""
        rows = self._ask("SELECT kind, wave, strftime('%s', at) FROM event WHERE run = ? ORDER BY id", run)
        last = max((place for place, row in enumerate(rows) if row[0] in ("begun", "resumed")), default=0)
        return [(row[0], row[1], float(row[2])) for row in rows[last:] if row[0] in ("step_begun", "gate")]

    def _playbooks(self, attempt: str) -> dict[int, list[tuple[str, float]]]:
        """The plays of each ansible-playbook, by its process."""
        found: dict[int, list[tuple[str, float]]] = {}
        for line in self.file.read_text(encoding="utf-8").splitlines():
            whose, process, step, at = json.loads(line)
            if whose == attempt:
                found.setdefault(process, []).append((step, at))
        return found

    def _ask(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        if not self.journal.exists():
            return []
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(self.journal, timeout=10)) as db:
            return db.execute(query, values).fetchall()
        return []


class Plan:
    """When to kill: spread over all moments of an undisturbed run, each as long as it took there."""

    def __init__(self, seen: Sequence[tuple[Moment, float]], ended: float, chance: random.Random) -> None:
        starts = dict(reversed(seen))  # the first play of several in a step
        ordered = sorted(starts)
        ends = [*(starts[moment] for moment in ordered[1:]), ended]
        # The journal's own moments are short, and it has whole seconds.
        self.lasts = {moment: max(0.1, end - starts[moment]) for moment, end in zip(ordered, ends, strict=True)}
        self.chance, self.left = chance, list[Moment]()

    def take(self, count: int) -> list[Moment]:
        """So many, in order. All have had their turn before one comes again."""
        taken: list[Moment] = []
        while len(taken) < count:
            if not self.left:
                self.left = self.chance.sample(sorted(self.lasts), len(self.lasts))
            taken.append(self.left.pop())
        return sorted(taken)

    def delay(self, moment: Moment) -> float:
        return self.chance.uniform(0, self.lasts[moment])


class Tally:
    """Where the kills have hit: how often in each step, and how often some hosts were done and some not."""

    def __init__(self) -> None:
        self.kills, self.mixed = Counter[str](), Counter[str]()

    def add(self, moment: Moment | None, states: Mapping[str, str]) -> None:
        step = STEPS[moment.step] if moment else "before the first wave"
        done = sum(state == "done" for state in states.values())
        self.kills[step] += 1
        self.mixed[step] += 0 < done < len(states)

    def lines(self) -> list[str]:
        total, mixed = self.kills.total(), self.mixed.total()
        rows = [
            f"{step:>21}: {count:3} kills ({100 * count / total:.0f} %), {self.mixed[step]} with some hosts done"
            for step in ("before the first wave", *STEPS)
            if (count := self.kills[step])
        ]
        return [*rows, f"{mixed} of {total} kills hit with some hosts done and some not"] if total else []


def wait_for(moments: Moments, target: Moment, ended: Callable[[], bool], poll_s: float = 0.02) -> bool:
    """Until the run is there, or past it. `ended()` is true when it is over."""
    while not ended():
        now = moments.now()
        if now is not None and now >= target:
            return True
        time.sleep(poll_s)
    return False
