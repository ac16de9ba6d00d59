"""From measured runs to a table, the bars they are held against, and a plot. Pure: no I/O."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from benchmarks.meter import Cost

Kind = Literal["first", "packages there", "no change"]
Quantity = Literal["wall_s", "controller_cpu_s", "hosts_cpu_s", "memory_mb"]


@dataclass(frozen=True)
class Run:
    """One measured run of one way on so many hosts.

    `first` changes fresh hosts, `packages there` fresh hosts that have the packages; the others find nothing to do.
    """

    way: str
    hosts: int
    kind: Kind
    cost: Cost


@dataclass(frozen=True)
class Bar:
    """A goal of the project, what was measured for it, and whether it holds."""

    name: str
    value: float
    sense: Literal["at most", "at least"]
    limit: float

    @property
    def holds(self) -> bool:
        return self.value <= self.limit if self.sense == "at most" else self.value >= self.limit


class Results:
    """Medians of the runs. What was not measured is None."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = list(runs)

    def of(self, way: str, hosts: int, quantity: Quantity, kind: Kind = "no change") -> float | None:
        found = [getattr(r.cost, quantity) for r in self.runs if (r.way, r.hosts, r.kind) == (way, hosts, kind)]
        return median(found) if found else None

    def count(self, way: str, hosts: int, kind: Kind = "no change") -> int:
        return sum((r.way, r.hosts, r.kind) == (way, hosts, kind) for r in self.runs)

    @property
    def ways(self) -> list[str]:
        return list(dict.fromkeys(run.way for run in self.runs))

    @property
    def sizes(self) -> list[int]:
        return sorted({run.hosts for run in self.runs if run.kind == "no change"})

    def ratio(self, way: str, other: str, hosts: int, quantity: Quantity, kind: Kind = "no change") -> float | None:
        mine, theirs = self.of(way, hosts, quantity, kind), self.of(other, hosts, quantity, kind)
        return mine / theirs if mine is not None and theirs else None

    def slope(self, way: str, few: int, many: int, quantity: Quantity) -> float | None:
        """What one more host costs between two sizes."""
        low, high = self.of(way, few, quantity), self.of(way, many, quantity)
        return (high - low) / (many - few) if low is not None and high is not None else None


def document(part: Any, indent: str = "\n") -> str:
    """JSON with a line for each entry: a run, a bar, a host."""
    inner = f"{indent} "
    if isinstance(part, list) and any(isinstance(each, dict) for each in part):
        return f"[{inner}{f',{inner}'.join(map(json.dumps, part))}{indent}]"
    if isinstance(part, dict) and any(isinstance(each, (dict, list)) for each in part.values()):
        entries = (f"{json.dumps(name)}: {document(each, inner)}" for name, each in part.items())
        return f"{{{inner}{f',{inner}'.join(entries)}{indent}}}"
    return json.dumps(part)


def bars(results: Results) -> list[Bar]:
    """The goals that the measured runs can answer."""
    found: list[Bar] = []

    def bar(name: str, value: float | None, sense: Literal["at most", "at least"], limit: float) -> None:
        if value is not None:
            found.append(Bar(name, value, sense, limit))

    def inverse(value: float | None) -> float | None:
        return 1 / value if value else None

    ratio, of = results.ratio, results.of
    for hosts, limit in ((10, 2.2), (30, 1.8), (60, 1.8)):
        bar(f"site.yml / floor, wall, N={hosts}", ratio("ours", "floor", hosts, "wall_s"), "at most", limit)
    for hosts, limit in ((10, 1.7), (30, 1.4), (60, 1.3)):
        bar(f"drift scan / floor, wall, N={hosts}", ratio("drift", "floor", hosts, "wall_s"), "at most", limit)
    bar("gb10 status --hosts / bare SSH, wall, N=60", ratio("status", "ssh", 60, "wall_s"), "at most", 2)
    bar("two of 30 dead: gb10 ps / gb10 drift, wall", ratio("ps-dead", "drift-dead", 30, "wall_s"), "at most", 1.3)
    for hosts in (10, 30, 60):
        bar(f"site.yml / pyinfra, wall, N={hosts}", ratio("ours", "pyinfra", hosts, "wall_s"), "at most", 0.4)
        cpu = ratio("ours", "pyinfra", hosts, "controller_cpu_s")
        bar(f"site.yml / pyinfra, controller CPU, N={hosts}", cpu, "at most", 1.0)
    for quantity, name, limit in (("wall_s", "wall", 40), ("controller_cpu_s", "controller CPU", 20)):
        times = inverse(ratio("ours", "idiomatic", 10, quantity))  # type: ignore[arg-type]
        bar(f"idiomatic / site.yml, {name}, N=10", times, "at least", limit)
    first: Kind
    for first in ("first", "packages there"):
        times = inverse(ratio("ours", "pyinfra", 10, "wall_s", first))
        name = "first converge" if first == "first" else "first converge, packages there"
        bar(f"{name}: pyinfra / site.yml, wall, N=10", times, "at least", 3)
    bar("controller CPU of one more host, s", results.slope("ours", 10, 60, "controller_cpu_s"), "at most", 0.15)
    for hosts in (10, 30, 60):
        spent = of("ours", hosts, "hosts_cpu_s")
        bar(f"CPU on each host, N={hosts}, s", spent and spent / hosts, "at most", 0.20)
    bar("controller memory, N=60, MB", of("ours", 60, "memory_mb"), "at most", 450)
    near, far = (results.slope("ours", *sizes, "controller_cpu_s") for sizes in ((10, 30), (30, 60)))
    # Linear within the noise of two differences of medians.
    bar("one more host at 60 / at 30, controller CPU", far / near if near and far else None, "at most", 1.25)
    return found


def table(results: Results) -> str:
    """Medians and ratios as Markdown: it reads as it is, and goes into docs as it is."""
    measured = ("wall s", "controller CPU s", "hosts CPU s", "memory MB")
    head = ("N", "way", "runs", *measured, "wall / floor", "wall / pyinfra")
    rows: list[Sequence[str]] = []
    cases: list[tuple[int, Kind]] = [(hosts, "no change") for hosts in results.sizes]
    cases += sorted({(run.hosts, run.kind) for run in results.runs if run.kind != "no change"})
    for hosts, kind in cases:
        for way in results.ways:
            if runs := results.count(way, hosts, kind):
                costs = [results.of(way, hosts, quantity, kind) for quantity in _QUANTITIES]
                rivals = [results.ratio(way, rival, hosts, "wall_s", kind) for rival in ("floor", "pyinfra")]
                title = str(hosts) if kind == "no change" else f"{hosts}, {kind}"
                rows.append((title, way, str(runs), *map(_number, costs), *map(_number, rivals)))
    return _markdown(head, rows)


def bar_table(found: Iterable[Bar]) -> str:
    rows = [(b.name, _number(b.value), f"{b.sense} {b.limit:g}", "PASS" if b.holds else "MISS") for b in found]
    return _markdown(("goal", "measured", "bar", ""), rows)


_QUANTITIES: tuple[Quantity, ...] = ("wall_s", "controller_cpu_s", "hosts_cpu_s", "memory_mb")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [head, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [
        "| " + " | ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


# -- plot --------------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 44
GAP = 64
# Told apart by people who see no red or green, too (Okabe and Ito's palette), and by the names at the lines' ends.
COLOURS = {
    "floor": "#555555",
    "ours": "#0072b2",
    "drift": "#56b4e9",
    "pyinfra": "#e69f00",
    "mitogen": "#cc79a7",
    "tuned": "#009e73",
    "idiomatic": "#d55e00",
}


def plot(results: Results) -> str:
    """Cost against N on logarithmic axes, wall left and controller CPU right: a line up by 45 degrees is linear."""
    half = (WIDTH - GAP) / 2
    parts = [
        _panel(results, "wall_s", "wall time, s", 0, half),
        _panel(results, "controller_cpu_s", "controller CPU, s", half + GAP, half),
    ]
    style = "text{font:12px sans-serif;fill:#222}.grid{stroke:#ddd}.axis{stroke:#888}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Cost of a run with nothing to change, against the number of hosts"><style>{style}</style>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _panel(results: Results, quantity: Quantity, title: str, x: float, width: float) -> str:
    lines = {
        way: [(n, value) for n in results.sizes if (value := results.of(way, n, quantity))] for way in results.ways
    }
    values = [value for points in lines.values() for _, value in points]
    if not values:
        return ""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, right, bottom = x + LEFT, x + width - RIGHT - 54, HEIGHT - BOTTOM
    span = math.log10(max(2, *results.sizes))

    def across(hosts: float) -> float:
        return left + math.log10(hosts) / span * (right - left)

    def up(value: float) -> float:
        return bottom - (math.log10(value) - low) / max(high - low, 1) * (bottom - TOP)

    text = [f'<text x="{left}" y="{TOP - 16}" font-weight="bold">{title}</text>']
    for power in range(low, high + 1):
        y = up(10**power)
        text.append(f'<line class="grid" x1="{left:.0f}" x2="{right:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        text.append(f'<text x="{left - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for hosts in results.sizes:
        text.append(f'<text x="{across(hosts):.1f}" y="{bottom + 18}" text-anchor="middle">{hosts}</text>')
    text.append(f'<text x="{(left + right) / 2:.0f}" y="{bottom + 36}" text-anchor="middle">hosts</text>')
    text.append(f'<line class="axis" x1="{left:.0f}" x2="{right:.0f}" y1="{bottom}" y2="{bottom}"/>')
    drawn = {way: points for way, points in lines.items() if points}
    labels = _apart({way: up(points[-1][1]) for way, points in drawn.items()})
    for way, points in drawn.items():
        text.append(_line(way, [(across(n), up(value)) for n, value in points], labels[way]))
    return "".join(text)


def _line(way: str, points: Sequence[tuple[float, float]], label: float) -> str:
    colour = COLOURS.get(way, "#222")
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    name = f'<text x="{points[-1][0] + 8:.1f}" y="{label + 4:.1f}" style="fill:{colour}">{way}</text>'
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}{name}'


def _apart(wanted: dict[str, float]) -> dict[str, float]:
    """Heights of labels, moved down where they would lie on each other."""
    placed: dict[str, float] = {}
    previous = -math.inf
    for way in sorted(wanted, key=wanted.__getitem__):
        previous = placed[way] = max(wanted[way], previous + 14)
    return placed
