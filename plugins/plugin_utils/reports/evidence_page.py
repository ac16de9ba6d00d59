# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence as a page: what its template shows, in words and numbers ready to print."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from ansible_collections.gb10.fleet.plugins.module_utils.reading.services import load_seconds
from ansible_collections.gb10.fleet.plugins.plugin_utils.fabric import verdicts
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import machine_name
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.cabling import AS_PLANNED
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import evidence as release_evidence
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import placement, usage
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.judge import (
    HEALTHY,
    INCOMPLETE,
    UNHEALTHY,
    Record,
    gid_port,
    services_of,
    title_of,
    title_of_service,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.picture import draw

GIB = 2**30
ARCHITECTURE, RAIL_DRIVER = "aarch64", "mlx5_core"  # of every Spark

TEMPLATES = Path(__file__).parent / "templates"


def pages(*folders: Path) -> jinja2.Environment:
    """The template engine of a page, which keeps what it has compiled and escapes every text."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


_PAGES = pages(TEMPLATES)
_TONES = {"ok": "ok", "warn": "warn", "error": "bad"}
_VERDICT_TONES = {HEALTHY: "ok", INCOMPLETE: "warn", UNHEALTHY: "bad"}


def render(document: Mapping[str, Any]) -> str:
    """The page: one file, no script, nothing fetched from elsewhere. The template engine escapes every text."""
    return _PAGES.get_template("evidence.html.j2").render(page_model(document))


_Uses = Mapping[tuple[str, str], usage.Usage]


def page_model(document: Mapping[str, Any]) -> Record:
    """Return what the template shows, in words and numbers ready to print."""
    hosts, clusters = document["hosts"], document["clusters"]
    findings = [finding for proof in hosts.values() for finding in proof["findings"]]
    pairings = [pairing for cluster in clusters for pairing in cluster["pairings"]]
    warnings = warnings_of(document)
    uses = {(use.service, use.host): use for use in usage.of_document(document)}
    return {
        "tone": _VERDICT_TONES[document["verdict"]],
        "verdict": document["verdict"],
        "headline": _headline(document),
        "created": _moment(document["created"]),
        "reasons": _grouped(document["reasons"]),
        "clusters": [_cluster_model(cluster, hosts, uses) for cluster in clusters],
        "hosts": [
            _host_model(name, hosts[name], tone)
            for cluster in clusters
            for name, tone in _host_tones(cluster, hosts).items()
        ],
        "placement": placement.model(hosts),
        "rails": [
            _rail_model(name, profile, hosts[name], cluster["pairings"])
            for cluster in clusters
            for name in cluster["hosts"]
            for profile in hosts[name]["profiles"]
        ],
        "pairings": [_pairing_model(pairing) for pairing in pairings],
        "accepted": [finding for finding in findings if finding["accepted"]],
        "warnings": warnings,
        "warned": f"{len(warnings)} warning{'s' if len(warnings) != 1 else ''}" if warnings else None,
        "virtual": virtual(document),
        "since": document["since"] and {**document["since"], "created": _moment(document["since"]["created"])},
        "meta": {str(key).replace("_", " "): value for key, value in document["meta"].items() if value is not None},
    }


def _moment(text: str) -> str:
    return text.replace("T", " ").replace("Z", " UTC")


def warnings_of(document: Mapping[str, Any]) -> list[Record]:
    """All of them; the same warning of many hosts is one, and says them all."""
    hosts = document["hosts"]
    pairings = [pairing for cluster in document["clusters"] for pairing in cluster["pairings"]]
    groups: dict[tuple[str, str, str], Record] = {}
    findings = [finding for proof in hosts.values() for finding in proof["findings"]]
    for warning in (
        *(each for each in findings if each["severity"] == "warn" and not each["accepted"]),
        *(_pairing_warning(pairing) for pairing in pairings if pairing["severity"] == "warn"),
        *(warning for name, proof in hosts.items() for warning in _gid_warnings(name, proof)),
        *(warning for name, proof in hosts.items() for warning in _remarks(name, proof)),
    ):
        group = groups.setdefault((warning["id"], warning["fact"], warning["way_out"]), {**warning, "hosts": []})
        group["hosts"].append(warning["host"])
    return [{**group, "host": ", ".join(dict.fromkeys(group["hosts"]))} for group in groups.values()]


def virtual(document: Mapping[str, Any]) -> list[str]:
    """The hosts that are no Sparks, whatever they say of themselves: a Spark is arm64, and its rails are ConnectX-7."""
    found = []
    for name, proof in document["hosts"].items():
        facts = proof["facts"]
        drivers = {rail.get("driver") for rail in facts.get("rails", [])} - {None}
        if facts and (facts["architecture"] not in (None, ARCHITECTURE) or drivers - {RAIL_DRIVER}):
            found.append(name)
    return found


def _grouped(reasons: Sequence[Mapping[str, Any]]) -> list[Record]:
    """One bad host on a switch spoils many pairings: the same trouble with the same way out is said once."""
    groups: dict[tuple[str, str], Record] = {}
    for reason in reasons:
        group = groups.setdefault((reason["what"], reason["way_out"] or reason["text"]), {**reason, "where": []})
        group["where"].append(reason["where"])
    return [{**group, "where": sorted(group["where"])} for group in groups.values()]


def _headline(document: Mapping[str, Any]) -> str:
    count = len(document["hosts"])
    sparks = f"{count} Sparks" if count != 1 else "One Spark"
    if document["verdict"] == HEALTHY:
        return f"{sparks}, proven and serving"
    reasons = len(_grouped(document["reasons"]))
    things = f"{reasons} thing{'s' if reasons != 1 else ''}"
    return f"{sparks}: {things} {'missing' if document['verdict'] == INCOMPLETE else 'wrong'}"


def _cluster_model(cluster: Mapping[str, Any], hosts: Mapping[str, Any], uses: _Uses) -> Record:
    links = [_link_model(link, cluster) for link in cluster["links"]]
    # What stands under a host's name in the picture.
    places = [(host, (hosts[host]["facts"].get("ssh") or {}).get("local_address") or "") for host in cluster["hosts"]]
    measured = [f"{title_of(pairing)}: {pairing['verdict']}, {pairing['text']}" for pairing in cluster["pairings"]]
    topologies = {"none": "no fabric", "pair": "pair", "ring": "ring", "switch": "switched"}
    return {
        "name": cluster["name"],
        "tone": _VERDICT_TONES[cluster["verdict"]],
        "verdict": cluster["verdict"],
        "topology": topologies.get(cluster["topology"], cluster["topology"]),
        "count": len(cluster["hosts"]),
        "matrix": _matrix(cluster),
        "picture": draw(cluster["topology"], places, links, _host_tones(cluster, hosts)),
        "alt": "; ".join(measured) or f"{', '.join(cluster['hosts'])} without a fabric",
        "services": [_serving_model(each, uses) for each in services_of(cluster)],
    }


def _matrix(cluster: Mapping[str, Any]) -> list[Record] | None:
    """Hosts x hosts: for each two the sum of all their links, under the worst of their verdicts."""
    if not cluster["pairings"]:
        return None
    between: dict[frozenset[str], list[Mapping[str, Any]]] = {}
    for pairing in cluster["pairings"]:
        between.setdefault(frozenset(_names(pairing)), []).append(pairing)
    hosts = cluster["hosts"]
    return [
        {"host": host, "cells": [_cell(between.get(frozenset((host, other)), ()), host == other) for other in hosts]}
        for host in hosts
    ]


def _cell(pairings: Sequence[Mapping[str, Any]], same: bool) -> Record:
    if not pairings:
        return {"text": "" if same else "-", "verdict": "" if same else "no link", "tone": "plain"}
    worst_one = max(pairings, key=lambda pairing: verdicts.SEVERITIES.index(pairing["severity"]))
    figures = [pairing["figures"]["gbps"] for pairing in pairings if pairing["figures"]["gbps"] is not None]
    return {
        "text": _number(sum(figures)) if figures else "none",
        "verdict": worst_one["verdict"].replace("_", " "),
        "tone": _TONES[worst_one["severity"]],
    }


def _host_tones(cluster: Mapping[str, Any], hosts: Mapping[str, Any]) -> dict[str, str]:
    pairings = cluster["pairings"]
    return {name: "bad" if _is_blamed(name, hosts[name], pairings) else "ok" for name in cluster["hosts"]}


def _is_blamed(host: str, proof: Mapping[str, Any], pairings: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether most of what involves this host went wrong: one bad host must not paint its neighbours red."""
    own = [pairing["severity"] == "error" for pairing in pairings if host in _names(pairing)]
    blocked = any(finding["severity"] == "error" and not finding["accepted"] for finding in proof["findings"])
    return blocked or (bool(own) and sum(own) * 2 > len(own))


def _names(pairing: Mapping[str, Any]) -> tuple[str, str]:
    return pairing["server"]["host"], pairing["client"]["host"]


def _link_model(link: Mapping[str, Any], cluster: Mapping[str, Any]) -> Record:
    own = [pairing for pairing in cluster["pairings"] if pairing["link"] == link["name"]]
    faults = {(cable["host"], cable["port"]): cable for cable in cluster["cabling"] if cable["verdict"] != AS_PLANNED}
    spokes = {}
    for end in link["ends"]:
        mine = [pairing for pairing in own if end["host"] in _names(pairing)]
        fault = faults.get((end["host"], end["port"]))
        spokes[end["host"]] = {"port": end["port"], **_spoke(mine), **_broken(fault, mine)}
    fault = next((faults[key] for end in link["ends"] if (key := (end["host"], end["port"])) in faults), None)
    return {"ends": link["ends"], "spokes": spokes, **_label(own), **_broken(fault, own)}


def _broken(fault: Mapping[str, Any] | None, pairings: Sequence[Mapping[str, Any]]) -> Record:
    """Return how a cable is drawn that leads elsewhere; nothing where its bandwidth came through all the same."""
    if fault is None or any(pairing["figures"]["gbps"] is not None for pairing in pairings):
        return {}
    found = ", ".join(f"{end['host']} {end['port']}" for end in fault["found"])
    return {
        "broken": True,
        "tone": "bad",
        "label": [f"leads to {found}" if found else "nobody there", fault["verdict"].replace("_", " ")],
    }


def _spoke(pairings: Sequence[Mapping[str, Any]]) -> Record:
    """On a spoke there is room for the sum only."""
    if not pairings:
        return _label(pairings)
    middle = _middle(pairings)
    total = middle["figures"]["gbps"]
    figure = "no figure" if total is None else f"{_number(total)} Gb/s"
    return {**_label(pairings), "label": [figure, middle["verdict"].replace("_", " ")]}


def _middle(pairings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    ordered = sorted(pairings, key=lambda pairing: verdicts.SEVERITIES.index(pairing["severity"]))
    return ordered[(len(ordered) - 1) // 2]


def _label(pairings: Sequence[Mapping[str, Any]]) -> Record:
    """Return what to write on a cable: each rail's Gb/s of the one pairing, or the middle one of several."""
    if not pairings:
        return {"label": ["not measured"], "tone": "warn"}
    middle = _middle(pairings)
    rails = [rail["gbps"] for rail in middle["figures"]["rails"] if rail["gbps"] is not None]
    figure = " + ".join(_number(gbps) for gbps in rails) + " Gb/s" if rails else "no figure"
    return {"label": [figure, middle["verdict"].replace("_", " ")], "tone": _TONES[middle["severity"]]}


def _number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "none"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _host_model(name: str, proof: Mapping[str, Any], tone: str) -> Record:
    facts = proof["facts"]
    card = {"name": name, "cluster": proof["cluster"], "tone": tone}
    if not facts:
        return {**card, "product": "could not be read", "rows": {}}
    product, gpu, driver, docker = facts["product"], facts["gpu"], facts["driver"], facts["docker"]
    release = product["dgx_release"] or {}
    memory, free, temperature = facts["memory_bytes"], facts.get("memory_available_bytes"), gpu["temperature_c"]
    free_memory = "" if free is None else f", {free / GIB:.1f} free"
    ssh = facts["ssh"]["interface"], facts["ssh"]["local_address"]
    rows = {
        "System": facts["os"]["pretty"],
        "DGX OS": release.get("DGX_OTA_VERSION") or release.get("DGX_SWBUILD_VERSION"),
        "Release": release_evidence.line(proof["release"]) if proof.get("release") else None,
        "Kernel": facts["kernel"],
        "Driver": driver["module_loaded"] or driver["userland"],
        "GPU": gpu["name"],
        "GPU temperature": None if temperature is None else f"{temperature:.0f} °C",
        "Memory": None if memory is None else f"{memory / GIB:.1f} GiB{free_memory}",
        **{f"Free on {disk['mount']}": free_disk(disk) for disk in facts["disks"]},
        "Docker": docker["version"],
        "Held packages": len(facts["holds"]) or None,
        "Management": " ".join(filter(None, ssh)) or None,
    }
    vendor, model = (product["dmi_vendor"] or "") if product["dmi_name"] else "", machine_name(product)
    return {
        **card,
        "product": model if model.startswith(vendor) else f"{vendor} {model}",
        "rows": {label: value for label, value in rows.items() if value is not None},
    }


def free_disk(disk: Mapping[str, Any]) -> str:
    return f"{disk['free_bytes'] / GIB:.0f} of {disk['size_bytes'] / GIB:.0f} GiB"


def _rail_model(
    host: str, profile: Mapping[str, Any], proof: Mapping[str, Any], pairings: Sequence[Mapping[str, Any]]
) -> Record:
    gids = proof["gids"] or {}
    own = [pairing for pairing in pairings if pairing["link"] == profile["link"] and host in _names(pairing)]
    figures = [rail["gbps"] for pairing in own for rail in _rails_of(host, profile, pairing)]
    measured = [gbps for gbps in figures if gbps is not None]
    gbps = statistics.median(measured) if measured else None
    pings = [ping for ping in proof["pings"] if ping["interface"] == profile["netdev"]]
    answered = [ping for ping in pings if ping["ok"]]
    rtts = [ping["rtt_ms"] for ping in answered if ping["rtt_ms"] is not None]
    port = gid_port({host: dict(proof)}, {"host": host, **profile})
    label, middle = _label(own), _middle(own) if own else None
    found = next((rail for rail in gids.get("rails", []) if rail["netdev"] == profile["netdev"]), None)
    return {
        "host": host,
        "port": profile["port"],
        "netdev": profile["netdev"],
        "hca": profile["hca"],
        "address": profile["cidr"],
        "gid": (gids.get("by_address", {}).get(profile["address"], {}).get("v2") or {}).get("index"),
        "nccl": None if found is None or found["agrees"] else _nccl_takes(found["nccl_index"]),
        "mtu": port.get("mtu") or profile["mtu"],
        "ping": f"{len(answered)} of {len(pings)}" + (f", {statistics.median(rtts):.2f} ms" if rtts else ""),
        "ping_tone": "ok" if pings and len(answered) == len(pings) else "bad" if pings else "warn",
        "gbps": None if gbps is None else _number(gbps),
        "port_gbps": middle and _number(middle["figures"]["gbps"]),
        "least": middle and _number(middle["least_gbps"]),
        "verdict": label["label"][-1],
        "tone": label["tone"],
    }


def _nccl_takes(index: int | None) -> str:
    return "NCCL takes none" if index is None else f"NCCL takes {index}"


def _rails_of(host: str, profile: Mapping[str, Any], pairing: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rails of a pairing are named after the server's netdevs."""
    server = pairing["server"]["host"]
    named = [profile["netdev"]] if host == server else [p["netdev"] for p in profile["peers"] if p["host"] == server]
    return [rail for rail in pairing["figures"]["rails"] if rail["netdev"] in named]


def _pairing_model(pairing: Mapping[str, Any]) -> Record:
    total = pairing["figures"]["gbps"]
    return {
        "title": title_of(pairing),
        "rails": " + ".join(_number(rail["gbps"]) for rail in pairing["figures"]["rails"]),
        "latency": " + ".join(_number(us) for rail in pairing["figures"]["rails"] if (us := rail.get("latency_us"))),
        "gbps": None if total is None else _number(total),
        "gbytes": None if total is None else f"{total / 8:.2f}",
        "least": _number(pairing["least_gbps"]),
        "verdict": pairing["verdict"].replace("_", " "),
        "tone": _TONES[pairing["severity"]],
    }


def _pairing_warning(pairing: Mapping[str, Any]) -> Record:
    return {
        "host": title_of(pairing),
        "id": pairing["verdict"],
        "fact": pairing["text"],
        "way_out": pairing["way_out"],
    }


def _remarks(host: str, proof: Mapping[str, Any]) -> list[Record]:
    """What a unit says of itself that is not as it should be, though it serves."""
    said = [remark for served in services_of(proof) if (remark := served.get("remark"))]
    return [{"host": host, "id": each["verdict"], "fact": each["text"], "way_out": each["way_out"]} for each in said]


def _gid_warnings(host: str, proof: Mapping[str, Any]) -> list[Record]:
    """Return what show_gids remarks: no verdict by itself, but what a person should know before trusting an index."""
    return [
        {
            "host": host,
            "id": remark["name"],
            "fact": f"{remark['where']}: {remark['text']}",
            "way_out": remark["way_out"],
        }
        for remark in (proof["gids"] or {}).get("remarks", [])
    ]


def _serving_model(serving: Mapping[str, Any], uses: _Uses) -> Record:
    use = usage.of_evidence(serving)
    title, models = title_of_service(serving), ", ".join(serving["served_models"])
    rate = serving["tokens_per_s"]
    return {
        "tone": "ok" if serving["verdict"] == "serving" else "bad",
        "verdict": serving["verdict"].replace("_", " "),
        "text": serving["text"],
        "model": ": ".join(each for each in (title, models) if each),
        "use": [_step(step) for step in usage.steps(uses[use.service, use.host])] if use else [],
        "answers": [{**answer, "took": f"{answer['seconds']:.2f} s"} for answer in serving["answers"]],
        "rows": {
            **dict(api_rows(serving)),
            **({} if rate is None else {"Speed": f"{rate:.1f} tokens/s"}),
            **dict(start_rows(serving)),
        },
    }


def _step(step: usage.Step) -> Record:
    return {"title": step.title, "text": "\n".join(step.lines), "note": step.note}


def start_rows(serving: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A warm start beside the cold one that made its cache."""
    warm, took = serving.get("warm"), load_seconds(serving.get("phases"))
    if warm and took is not None and warm["cold_s"] is not None:
        yield "Start", f"{took:.0f} s with its warm cache, {warm['cold_s']:.0f} s without"
    elif warm and took is not None:
        yield "Start", f"{took:.0f} s; there is no warm cache for it (journalctl -u its unit says why)"


def api_rows(serving: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where the API answers: to clients, and on the host that has it."""
    api = serving.get("api")
    if api and api["gateway"]:
        yield "API", f"{api['gateway']}/v1"
    if api:
        yield f"API on {api['host']}", f"{api['url']}/v1"
