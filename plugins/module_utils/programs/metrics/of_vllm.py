# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's own metrics, as they are handed on. Pure.

node_exporter throws a file away as a whole for one line that it cannot parse, and all its answers for one series that
is there twice. A model server is not trusted that far: what is handed on was read in full, a line that cannot be read
is dropped, and the type of each family is the catalog's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown

from .exposition import escaped

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S{1,40})\Z")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|\Z)')
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_NO_NUMBERS = {"NaN": math.nan, "Inf": math.inf, "+Inf": math.inf, "-Inf": -math.inf}
_PARTS = ("_bucket", "_sum", "_count")  # of a histogram; not when it was created
_LARGEST_COUNT = 2.0**63
MOST_SERIES = 1000  # of one service; vLLM has some 60 of a model, and whoever invents more fills Prometheus
# Of all services together, or a model takes its host past `scrape_bytes`; one of vLLM has some 16,000.
MOST_CHARACTERS = 2**19
Labels = tuple[tuple[str, str], ...]


def handed_on(texts: Iterable[tuple[str, str]], families: Mapping[str, str]) -> str:
    """Of all services the families with these types, each once, and every series with its service."""
    found: dict[str, dict[tuple[str, Labels], str]] = {}
    for service, text in texts:
        for family, name, labels, value in _samples(text, families):
            series = ",".join(f'{key}="{said}"' for key, said in (("service", escaped(service)), *labels))
            key = (name, (("service", service), *sorted(labels)))
            found.setdefault(family, {})[key] = f"{name}{{{series}}} {value}"
    lines = [line for family, own in found.items() for line in (f"# TYPE {family} {families[family]}", *own.values())]
    return "\n".join([*lines, ""]) if lines else ""


def few(text: str, families: Mapping[str, str], among: int = 1) -> bool:
    """Tell whether it is what one server says, among so many of the host; Unknown where it says more."""
    said, share = handed_on([("", text)], families), MOST_CHARACTERS // among
    if said.count("\n") > MOST_SERIES or len(said) > share:
        most = f"{MOST_SERIES} series or {share} characters"
        raise Unknown(f"the server's /metrics has more than {most}, and none is handed on")
    return True


def _samples(text: str, families: Mapping[str, str]) -> Iterator[tuple[str, str, Labels, str]]:
    for line in text.split("\n"):
        read = _SAMPLE.match(line)
        family = _family(read[1], families) if read else None
        labels = _labels(read[2] or "") if read and family else None
        if read and family and labels is not None and _counts(read[1], family, dict(labels), _number(read[3])):
            yield family, read[1], labels, read[3]


def _family(name: str, families: Mapping[str, str]) -> str | None:
    if families.get(name, "histogram") != "histogram":
        return name
    stems = (name[: -len(part)] for part in _PARTS if name.endswith(part))
    return next((stem for stem in stems if families.get(stem) == "histogram"), None)


def _labels(text: str) -> Labels | None:
    """None where it is not a list of labels to its end, or one has a name that is not the server's to give."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        label = _LABEL.match(text, at)
        if not label or label[1] in found or label[1] == "service" or label[1].startswith("__"):
            return None
        found[label[1]] = label[2]
        at = label.end()
    return tuple(found.items())


def _counts(name: str, family: str, labels: Mapping[str, str], value: float | None) -> bool:
    """Return whether the value is one, and of a histogram one that its part can have."""
    if value is None or name == family:
        return value is not None
    edge = _number(labels["le"]) if "le" in labels else None
    if name != f"{family}_bucket" and "le" in labels:
        return False
    if name == f"{family}_bucket" and (edge is None or math.isnan(edge)):
        return False
    return name == f"{family}_sum" or 0 <= value < _LARGEST_COUNT


def _number(text: str) -> float | None:
    """A number of Prometheus' format; None where its readers see none, or one that is too large for them."""
    if not _NUMBER.match(text):
        return _NO_NUMBERS.get(text)
    value = float(text)
    return value if math.isfinite(value) else None
