# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the boxes and cables of a fabric picture go. Geometry only: the page's template draws (and escapes) it.

Units are those of the SVG's viewBox. The width is small, so that the text stays readable on a phone: WIDTH, or what a
pair takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WIDTH = 560.0
BOX_WIDTH, BOX_HEIGHT = 136.0, 66.0
MARGIN = 10.0
GAP = 22.0
SWITCH_WIDTH = 44.0
PORT = 42.0  # of a cable, at each end beside its label: where the port's name stands
STUB = 0.17  # of a broken cable's length, at each end
# Width of a bold letter of the widest font of the page, DejaVu Sans, in parts of its size; other letters are average.
FIGURE_SIZE = 14.0
LETTER = 0.68
LETTERS = {**dict.fromkeys("0123456789", 0.7), **dict.fromkeys(" .,:'il/-", 0.39), **dict.fromkeys("+mwMWG@%", 1.0)}


def text_width(text: str) -> float:
    """At most as wide as this is a line of a label."""
    return sum(LETTERS.get(letter, LETTER) for letter in text) * FIGURE_SIZE


@dataclass(frozen=True)
class Box:
    """A host, or the switch. x and y are the upper left corner."""

    x: float
    y: float
    width: float
    height: float
    name: str
    below: str
    tone: str

    @property
    def centre(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass(frozen=True)
class Cable:
    """A line between two points, with the port's name near each end and a label in the middle."""

    start: tuple[float, float]
    end: tuple[float, float]
    ports: tuple[tuple[float, float, str], ...]
    label: tuple[float, float]
    lines: tuple[str, ...]
    tone: str
    broken: bool = False

    @property
    def label_width(self) -> float:
        return max(text_width(line) for line in self.lines) + 10

    @property
    def stubs(self) -> tuple[tuple[tuple[float, float], tuple[float, float]], ...]:
        """Return what is drawn of a cable that joins nothing: an end at each port."""
        (x1, y1), (x2, y2) = self.start, self.end
        dx, dy = (x2 - x1) * STUB, (y2 - y1) * STUB
        return ((x1, y1), (x1 + dx, y1 + dy)), ((x2, y2), (x2 - dx, y2 - dy))

    @property
    def label_height(self) -> float:
        return 17.0 * len(self.lines) + 8


@dataclass(frozen=True)
class Picture:
    """One cluster."""

    height: float
    boxes: list[Box]
    cables: list[Cable] = field(default_factory=list)
    switch: Box | None = None
    width: float = WIDTH


Host = tuple[str, str]  # name, and what stands below it
Links = Sequence[
    Mapping[str, Any]
]  # ends, label, tone, broken; of a switch also spokes: {host: {port, label, tone, broken}}


def draw(topology: str, hosts: Sequence[Host], links: Links, tones: Mapping[str, str]) -> Picture:
    """The picture of one cluster: side by side, around a ring, or left and right of a switch."""
    if topology == "switch":
        return _switched(hosts, links, tones)
    if len(hosts) > 2:
        return _ring(hosts, links, tones)
    return _side_by_side(hosts, links, tones)


def _look(link: Mapping[str, Any]) -> tuple[tuple[str, ...], str, bool]:
    return tuple(link["label"]), link["tone"], link.get("broken", False)


def _box(x: float, y: float, host: Host, tones: Mapping[str, str], height: float = BOX_HEIGHT) -> Box:
    return Box(x, y, BOX_WIDTH, height, *host, tones[host[0]])


def _side_by_side(hosts: Sequence[Host], links: Links, tones: Mapping[str, str]) -> Picture:
    height = max(130.0, 64.0 * len(links) + 16)
    widest = max((text_width(line) for link in links for line in link["label"]), default=0.0)
    left = MARGIN + BOX_WIDTH
    right = left + max(widest + 2 * PORT, 2 * MARGIN)
    width = (right if len(hosts) == 2 else MARGIN) + BOX_WIDTH + MARGIN
    places = [MARGIN, right]
    boxes = [_box(x, MARGIN, host, tones, height) for x, host in zip(places, hosts, strict=False)]
    cables = []
    for index, link in enumerate(links):
        y = MARGIN + height * (index + 1) / (len(links) + 1)
        ports = {end["host"]: end["port"] for end in link["ends"]}
        named = ((left + 18, y - 10, ports[boxes[0].name]), (right - 18, y - 10, ports[boxes[1].name]))
        cables.append(Cable((left, y), (right, y), named, (width / 2, y), *_look(link)))
    return Picture(height + 2 * MARGIN, boxes, cables, width=width)


def _ring(hosts: Sequence[Host], links: Links, tones: Mapping[str, str]) -> Picture:
    radius_x = WIDTH / 2 - BOX_WIDTH / 2 - MARGIN
    radius_y = max(150.0, 40.0 * len(hosts))
    centre_y = radius_y + BOX_HEIGHT / 2 + MARGIN
    boxes = {}
    for index, host in enumerate(hosts):
        angle = 2 * math.pi * index / len(hosts) - math.pi / 2  # the first host on top, then clockwise
        x = WIDTH / 2 + radius_x * math.cos(angle) - BOX_WIDTH / 2
        boxes[host[0]] = _box(x, centre_y + radius_y * math.sin(angle) - BOX_HEIGHT / 2, host, tones)
    cables = []
    for link in links:
        first, second = link["ends"]
        start = _edge(boxes[first["host"]], boxes[second["host"]].centre)
        end = _edge(boxes[second["host"]], boxes[first["host"]].centre)
        named = ((*_along(start, end, 22), first["port"]), (*_along(end, start, 22), second["port"]))
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        cables.append(Cable(start, end, named, middle, *_look(link)))
    return Picture(max(box.y for box in boxes.values()) + BOX_HEIGHT + MARGIN, list(boxes.values()), cables)


def _edge(box: Box, towards: tuple[float, float]) -> tuple[float, float]:
    """Return where the line from the box's centre to a point leaves the box."""
    x, y = box.centre
    dx, dy = towards[0] - x, towards[1] - y
    scale = min(box.width / 2 / abs(dx) if dx else math.inf, box.height / 2 / abs(dy) if dy else math.inf)
    return (x + dx * scale, y + dy * scale) if math.isfinite(scale) else (x, y)


def _along(start: tuple[float, float], end: tuple[float, float], distance: float) -> tuple[float, float]:
    """A point near `start` on the way to `end`, moved aside (always to the same side of the page) off the line."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    side = 14.0 if dx < 0 or (dx == 0 and dy < 0) else -14.0
    return start[0] + (dx * distance - dy * side) / length, start[1] + (dy * distance + dx * side) / length + 5


def _switched(hosts: Sequence[Host], links: Links, tones: Mapping[str, str]) -> Picture:
    """Hosts left and right of the switch, so that the picture grows downwards and stays readable."""
    room = (WIDTH - SWITCH_WIDTH) / 2 - BOX_WIDTH - MARGIN - 10  # between a host and the switch
    looks = [
        {name: (spoke["port"], *_look({**spoke, "label": _folded(spoke["label"], room)}))
         for name, spoke in link["spokes"].items()}
        for link in links
    ]  # fmt: skip
    most = max((len(look[1]) for each in looks for look in each.values()), default=2)
    row = max(BOX_HEIGHT, (17.0 * most + 14) * len(links)) + GAP
    rows = math.ceil(len(hosts) / 2)
    switch = Box((WIDTH - SWITCH_WIDTH) / 2, MARGIN, SWITCH_WIDTH, rows * row - GAP, "switch", "", "plain")
    boxes, cables = [], []
    for index, host in enumerate(hosts):
        on_left, y = index % 2 == 0, MARGIN + (index // 2) * row
        box = _box(MARGIN if on_left else WIDTH - BOX_WIDTH - MARGIN, y, host, tones, row - GAP)
        boxes.append(box)
        near, far = (box.x + box.width, switch.x) if on_left else (box.x, switch.x + switch.width)
        towards = 1.0 if on_left else -1.0
        for number, each in enumerate(looks):
            if host[0] not in each:
                continue
            name, lines, tone, broken = each[host[0]]
            at = y + box.height * (number + 1) / (len(links) + 1)
            port = (near - 15 * towards, at + 5, name)
            cables.append(Cable((near, at), (far, at), (port,), ((near + far) / 2, at), lines, tone, broken))
    return Picture(switch.height + 2 * MARGIN, boxes, cables, switch)


def _folded(lines: Sequence[str], room: float) -> list[str]:
    """The same words in as many lines as it takes, so that the label lies over nothing."""
    return [part for line in lines for part in ([line] if text_width(line) + 10 <= room else line.split())]
