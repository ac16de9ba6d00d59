# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between a proof and the one before it, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.judge import services_of, title_of_service

Record = dict[str, Any]

# What is said of a host: the label, and where its facts have it.
_FACTS = {
    "kernel": ("kernel",),
    "driver": ("driver", "module_loaded"),
    "Docker": ("docker", "version"),
    "DGX OS": ("product", "dgx_release", "DGX_OTA_VERSION"),
}
NOTICED = 0.05  # of a figure: less is noise between two runs


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> Record:
    """`{created, changes}`: of which proof, and a line for each thing that is not as it was there."""
    return {"created": before["created"], "changes": [*_clusters(before, now), *_hosts(before, now)]}


def same_fleet(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Two proofs of other hosts, as of two waves, have nothing to compare."""
    return before.get("schema_version") == now["schema_version"] and bool(before["hosts"].keys() & now["hosts"].keys())


def _clusters(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    known, found = ({cluster["name"]: cluster for cluster in each["clusters"]} for each in (before, now))
    for word, names in (("before", found.keys() - known.keys()), ("now", known.keys() - found.keys())):
        if names:
            yield f"not proven {word}: {output.some(sorted(names))}"
    for name, cluster in found.items():
        if (old := known.get(name)) is None:
            continue
        for word, hosts in (
            ("new", [host for host in cluster["hosts"] if host not in old["hosts"]]),
            ("gone", [host for host in old["hosts"] if host not in cluster["hosts"]]),
        ):
            if hosts:
                yield f"{name}: {word}: {', '.join(hosts)}"
        if old["verdict"] != cluster["verdict"]:
            yield f"{name}: {old['verdict']} before, {cluster['verdict']} now"
        yield from _measured(old, cluster)
        yield from _services(name, old, cluster)


def _measured(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    def by_ends(cluster: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        return {
            " to ".join(f"{item[end]['host']} {item[end]['port']}" for end in ("server", "client")): item
            for item in cluster["pairings"]
        }

    known = by_ends(before)
    for title, pairing in by_ends(now).items():
        if title not in known:
            continue
        old, new = known[title]["figures"]["gbps"], pairing["figures"]["gbps"]
        moved = (old is None) != (new is None) or bool(old and new and abs(new - old) > NOTICED * old)
        if moved or known[title]["verdict"] != pairing["verdict"]:
            yield f"{title}: {_gbps(old)} ({_word(known[title])}) before, {_gbps(new)} ({_word(pairing)}) now"


def _word(judged: Mapping[str, Any]) -> str:
    return str(judged["verdict"]).replace("_", " ")


def _gbps(value: float | None) -> str:
    return "no figure" if value is None else f"{value:.1f} Gb/s"


def _services(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Each by its name and host."""
    known, found = (
        {title_of_service(each) or f"{name}, model": each for each in services_of(cluster)} for cluster in (before, now)
    )
    for title in dict.fromkeys([*known, *found]):
        yield from _served(title, known.get(title), found.get(title))


def _served(title: str, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> Iterator[str]:
    words = [
        "not asked" if said is None else ", ".join(filter(None, (_word(said), ", ".join(said["served_models"]))))
        for said in (before, now)
    ]
    if words[0] != words[1]:
        yield f"{title}: {words[0]} before, {words[1]} now"


def _hosts(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, proof in now["hosts"].items():
        old = before["hosts"].get(name)
        if old is None:
            continue
        for label, path in _FACTS.items():
            was, is_ = (_at(facts, path) for facts in (old["facts"], proof["facts"]))
            if was is not None and is_ is not None and was != is_:
                yield f"{name}: {label} {was} before, {is_} now"
        was_found, is_found = ({finding["id"] for finding in each["findings"]} for each in (old, proof))
        for word, ids in (("new finding", is_found - was_found), ("finding gone", was_found - is_found)):
            if ids:
                yield f"{name}: {word}: {', '.join(sorted(ids))}"


def _at(facts: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = facts
    for key in path:
        found = (found or {}).get(key)
    return found
