# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what the proof measured to a verdict, a JSON document and a page.

`build` decides and does no I/O; `write` puts the files in place in one step. The shape of the document is described in
schemas/evidence.schema.json.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import verdicts
from ansible_collections.gb10.fleet.plugins.module_utils.facts.readings import RUN_FABRIC
from ansible_collections.gb10.fleet.plugins.plugin_utils import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import addressing, cabling
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import metrics
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.picture import draw

SCHEMA_VERSION = 1
HEALTHY, UNHEALTHY, INCOMPLETE = "healthy", "unhealthy", "incomplete"
GIB = 2**30
# What Ansible adds to a module's result for itself.
ANSIBLE_KEYS = frozenset({"invocation", "changed", "failed", "skipped", "stdout_lines", "ansible_facts", "warnings"})

Record = dict[str, Any]


# -- the document ------------------------------------------------------------------------------------------------------


def build(
    hosts: Mapping[str, Mapping[str, Any]], meta: Mapping[str, Any], thresholds: Mapping[str, Any], now: datetime
) -> Record:
    """The evidence document of one proof. `thresholds` is the content of catalog/thresholds.yml."""
    proofs = {name: _proof(name, proof) for name, proof in hosts.items()}
    clusters = [_cluster(name, members, thresholds) for name, members in _by_cluster(proofs).items()]
    return {
        "schema_version": SCHEMA_VERSION,
        "created": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "verdict": worst(cluster["verdict"] for cluster in clusters),
        "reasons": [reason for cluster in clusters for reason in cluster["reasons"]],
        "meta": dict(meta),
        "clusters": clusters,
        "hosts": proofs,
    }


def worst(found: Iterable[str]) -> str:
    """The verdict of a whole; a whole without parts is not proven."""
    return max(found, key=(HEALTHY, INCOMPLETE, UNHEALTHY).index, default=INCOMPLETE)


def _proof(name: str, proof: Mapping[str, Any]) -> Record:
    """One host's part, complete and without what Ansible adds to results (or says in place of one)."""
    return {
        "cluster": proof.get("cluster") or name,
        "topology": proof.get("topology") or "none",
        "serves": bool(proof.get("serves", True)),
        "thresholds": dict(proof.get("thresholds") or {}),
        "facts": dict(proof["facts"]),
        "findings": list(proof.get("findings") or []),
        "profiles": list(proof.get("profiles") or []),
        "gids": _without_ansible(proof.get("gids")),
        "heard": None if proof.get("heard") is None else list(proof["heard"]),
        "pings": list(proof.get("pings") or []),
        "bandwidth": list(proof.get("bandwidth") or []),
        "unreachable": bool(proof.get("unreachable")),
        "serving": _without_ansible(proof.get("serving")),
    }


def _without_ansible(result: Mapping[str, Any] | None) -> Record | None:
    if not result or result.get("unreachable"):
        return None
    return {key: value for key, value in result.items() if key not in ANSIBLE_KEYS}


def _by_cluster(proofs: Mapping[str, Record]) -> dict[str, dict[str, Record]]:
    clusters: dict[str, dict[str, Record]] = {}
    for name, proof in proofs.items():
        clusters.setdefault(proof["cluster"], {})[name] = proof
    return clusters


def _cluster(name: str, members: Mapping[str, Record], thresholds: Mapping[str, Any]) -> Record:
    first = next(iter(members.values()))
    links = _links(members)
    numbers, refused = _numbers(thresholds, first["thresholds"])
    pairings = _pairings(members, numbers)
    serving = next((proof["serving"] for proof in members.values() if proof["serving"]), None)
    unproven = _unproven(name, links, pairings, members, serving)
    cables = _cabling(members)
    wrong = _wrong(name, cables, pairings, members, serving)
    wrong += [_reason(name, "bad_variable", refused, "correct fabric_thresholds in the inventory")] if refused else []
    return {
        "name": name,
        "topology": first["topology"],
        "hosts": list(members),
        "verdict": UNHEALTHY if wrong else INCOMPLETE if unproven else HEALTHY,
        "reasons": wrong + unproven,
        "links": links,
        "cabling": cables,
        "pairings": pairings,
        "serving": serving,
    }


def _numbers(thresholds: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[dict[str, float], str | None]:
    """What to judge by. Evidence must not be lost for a wrong number of the operator's: it is said, and ours count."""
    try:
        return verdicts.thresholds_from(thresholds, own), None
    except verdicts.ThresholdError as error:
        return verdicts.thresholds_from(thresholds), f"{error}; judged by catalog/thresholds.yml"


def _links(members: Mapping[str, Record]) -> list[Record]:
    """Cables and switches of the plan: `{name, ends: [{host, port}]}`."""
    links: dict[str, Record] = {}
    for host, proof in members.items():
        for profile in proof["profiles"]:
            link = links.setdefault(profile["link"], {"name": profile["link"], "ends": []})
            end = {"host": host, "port": profile["port"]}
            if end not in link["ends"]:
                link["ends"].append(end)
    return list(links.values())


def _cabling(members: Mapping[str, Record]) -> list[Record]:
    """Where each port of the plan leads; of a host that did not listen, only what others heard."""
    heard = {host: proof["heard"] for host, proof in members.items() if proof["heard"] is not None}
    return cabling.judge({host: proof["profiles"] for host, proof in members.items()}, heard) if heard else []


def _pairings(members: Mapping[str, Record], thresholds: Mapping[str, float]) -> list[Record]:
    """What was measured between two hosts over one link: both ends put together again, and judged."""
    pairings: dict[tuple[str, str, str], Record] = {}
    rails: dict[tuple[str, str, str], dict[int, verdicts.Rail]] = {}
    for results in _results_by_test(members).values():
        ends = _ends(members, results)
        if ends is None:
            continue  # measured by hand, outside the plan
        server, client, link, twin_index = ends
        key = (link, server["host"], client["host"])
        pairings[key] = {
            "link": link,
            "server": {"host": server["host"], "port": server["port"]},
            "client": {"host": client["host"], "port": client["port"]},
        }
        read = tuple(_end(members, end) for end in (server, client))
        rails.setdefault(key, {})[twin_index] = _rail(server["netdev"], results, read)
    return [
        {**pairing, **asdict(verdicts.judge_port([rails[key][twin] for twin in sorted(rails[key])], thresholds))}
        for key, pairing in pairings.items()
    ]


def _results_by_test(members: Mapping[str, Record]) -> dict[str, dict[str, Record]]:
    """The results of ib_write_bw as `{test name: {"server" or "client": result with its host}}`."""
    tests: dict[str, dict[str, Record]] = {}
    for host, proof in members.items():
        for result in proof["bandwidth"]:
            tests.setdefault(result["name"], {})[result["end"]] = {"host": host, **result}
    return tests


def _ends(members: Mapping[str, Record], results: Mapping[str, Record]) -> tuple[Record, Record, str, int] | None:
    """Server and client of a test as {host, port, netdev, hca}, its link and its twin index, out of the plan."""
    result = results.get("server") or results["client"]
    host = result["host"]
    profile = next((item for item in members[host]["profiles"] if item["address"] == result["address"]), None)
    peer = next((item for item in profile["peers"] if item["address"] == result["peer"]), None) if profile else None
    if profile is None or peer is None:
        return None
    here, there = {"host": host, **profile}, dict(peer)
    server, client = (here, there) if result["end"] == "server" else (there, here)
    return server, client, profile["link"], profile["twin_index"]


def _end(members: Mapping[str, Record], end: Mapping[str, Any]) -> verdicts.End:
    port = _gid_port(members, end)
    return verdicts.End(end["host"], end["netdev"], tuple(_subnets(port)), port.get("pcie_width"))


def _rail(netdev: str, results: Mapping[str, Record], read: tuple[verdicts.End, ...]) -> verdicts.Rail:
    """One rail of a pairing. Both ends print the same figure; a fault at either end is a fault of the rail."""
    both = [results[end] for end in ("client", "server") if end in results]
    faults = [result["fault"] for result in both if result["fault"]]
    cause = verdicts.cause(faults, [result.get("perftest") for result in both])
    faulty = next((result for result in both if result["fault"] is cause), both[0])
    figures: Mapping[str, Any] = next((result["figures"] for result in both if result["figures"]), {})
    return verdicts.Rail(
        netdev=netdev,
        gbps=None if cause else figures.get("gbps"),
        fault={**cause, "text": f"{faulty['host']}: {cause['text']}"} if cause else None,
        ends=read,
        mtu=figures.get("mtu"),
    )


def _subnets(port: Mapping[str, Any]) -> list[str]:
    """The /24s that a port has an address in; the plan gives every rail its own."""
    addresses = (ipaddress.ip_address(text) for text in port.get("addresses", []))
    return sorted({str(ipaddress.ip_network(f"{item}/24", strict=False)) for item in addresses if item.version == 4})


def _gid_port(members: Mapping[str, Record], end: Mapping[str, Any]) -> Record:
    """What show_gids said about a port; it was read after the fabric was applied, unlike doctor's facts."""
    proof = members.get(end["host"])
    ports = (proof["gids"] or {}).get("ports", []) if proof else []
    return next((port for port in ports if port["device"] == end["hca"]), {})


def _reason(where: str, what: str, text: str, way_out: str) -> Record:
    return {"where": where, "what": what, "text": text, "way_out": way_out}


def _unproven(
    name: str,
    links: Sequence[Record],
    pairings: Sequence[Record],
    members: Mapping[str, Record],
    serving: Record | None,
) -> list[Record]:
    """What should have been measured and was not."""
    measured = {pairing["link"] for pairing in pairings}
    unmeasured = [link["name"] for link in links if link["name"] not in measured]
    unpinged = [host for host, proof in members.items() if proof["profiles"] and not proof["pings"]]
    unseen = [host for host, proof in members.items() if not proof["facts"] and not proof["findings"]]
    unasked = not serving and any(proof["serves"] for proof in members.values())
    again = "run the playbook validate on all hosts of the cluster"
    return [
        *(_reason(host, "unmeasured", "the host was not looked at", again) for host in unseen),
        *(_reason(link, "unmeasured", "the bandwidth was not measured", again) for link in unmeasured),
        *(_reason(host, "unmeasured", "the rails were not pinged", again) for host in unpinged),
        *([_reason(name, "unmeasured", "no model was asked", again)] if unasked else []),
    ]


def _wrong(
    name: str,
    cables: Sequence[Record],
    pairings: Sequence[Record],
    members: Mapping[str, Record],
    serving: Record | None,
) -> list[Record]:
    """What was measured and is not as it should be."""
    carried = {
        (pairing[end]["host"], pairing[end]["port"])
        for pairing in pairings
        if pairing["severity"] != "error"
        for end in ("server", "client")
    }
    wrong = [
        _reason(f"{cable['host']} {cable['port']}", cable["verdict"], cable["text"], cable["way_out"])
        for cable in cables
        # A switch may keep the calls to itself: what carries its bandwidth is not silent.
        if cable["verdict"] == cabling.WRONG_CABLE
        or (cable["verdict"] == cabling.SILENT and (cable["host"], cable["port"]) not in carried)
    ]
    for host, proof in members.items():
        for finding in proof["findings"]:
            if finding["severity"] == "error" and not finding["accepted"]:
                wrong.append(_reason(host, finding["id"], finding["fact"], finding["way_out"]))
        if proof["unreachable"]:
            way_out = "see whether it has power and its management network is up, then run the playbook validate again"
            wrong.append(_reason(host, "unreachable", "the host stopped answering during the proof", way_out))
        wrong += _foreign_owners(host, proof)
        wrong += _foreign_addresses(host, proof)
        for ping in proof["pings"]:
            if not ping["ok"]:
                where, fault = f"{host} {ping['interface']} to {ping['peer']}", ping["fault"]
                wrong.append(_reason(where, f"ping_{fault['name']}", fault["text"], fault["way_out"]))
    for pairing in pairings:
        if pairing["severity"] == "error":
            wrong.append(_reason(title_of(pairing), pairing["verdict"], pairing["text"], pairing["way_out"]))
    if serving and serving["verdict"] != "serving":
        wrong.append(_reason(name, serving["verdict"], serving["text"], serving["way_out"]))
    return wrong


def _foreign_owners(host: str, proof: Mapping[str, Any]) -> list[Record]:
    """Files that claim a rail beside the planned profile: which of the two a boot brings up is chance."""
    ours = {profile["netdev"]: profile["uuid"] for profile in proof["profiles"]}
    return [
        _reason(f"{host} {owner.netdev}", "foreign_owner", owner.text, f"{owner.way_out}; then {RUN_FABRIC}")
        for owner in addressing.foreign_owners(proof["facts"], ours)
    ]


def _foreign_addresses(host: str, proof: Mapping[str, Any]) -> list[Record]:
    """IPv4 addresses of a rail beside the planned one: each takes a GID, and may be the one that software picks."""
    reasons = []
    for profile in proof["profiles"]:
        addresses = _gid_port({host: dict(proof)}, {"host": host, **profile}).get("addresses", [])
        foreign = [text for text in addresses if ":" not in text and text != profile["address"]]
        if foreign:
            text = f"{profile['netdev']} also has {', '.join(foreign)}; planned is {profile['address']} alone"
            way_out = f"find out who sets it, then {RUN_FABRIC}, which takes it away"
            reasons.append(_reason(f"{host} {profile['netdev']}", "foreign_address", text, way_out))
    return reasons


def title_of(pairing: Mapping[str, Any]) -> str:
    """`spark-a p0 to spark-b p0`."""
    return " to ".join(f"{pairing[end]['host']} {pairing[end]['port']}" for end in ("server", "client"))


def summary(document: Mapping[str, Any]) -> str:
    """The verdict and its reasons, for a person to read."""
    count = len(document["hosts"])
    lines = [f"{document['verdict']}: {count} host{'s' if count != 1 else ''}, {document['created']}"]
    for reason in document["reasons"]:
        lines += [f"{reason['where']}: {reason['what']}: {reason['text']}", f"    way out: {reason['way_out']}"]
    return "\n".join(lines)


# -- files -------------------------------------------------------------------------------------------------------------

DOCUMENT, PAGE, METRICS = "evidence.json", "index.html", "metrics.prom"


def write(document: Mapping[str, Any], directory: Path) -> Path:
    """Put document and page into a new directory named by the document's time, then point `latest` to it.

    Both appear complete or not at all; a second proof in the same second replaces the first.
    """
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / re.sub("[-:]", "", document["created"])
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=directory))
    try:
        (building / DOCUMENT).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (building / PAGE).write_text(render(document), encoding="utf-8")
        (building / METRICS).write_text(metrics.render(document), encoding="utf-8")
        building.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    output.point_latest(target)
    return target


# -- the page ----------------------------------------------------------------------------------------------------------

_TONES = {"ok": "ok", "warn": "warn", "error": "bad"}
_VERDICT_TONES = {HEALTHY: "ok", INCOMPLETE: "warn", UNHEALTHY: "bad"}


def render(document: Mapping[str, Any]) -> str:
    """The page: one file, no script, nothing fetched from elsewhere. The template engine escapes every text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("evidence.html.j2").render(page_model(document))


def page_model(document: Mapping[str, Any]) -> Record:
    """What the template shows, in words and numbers ready to print."""
    hosts, clusters = document["hosts"], document["clusters"]
    findings = [finding for proof in hosts.values() for finding in proof["findings"]]
    pairings = [pairing for cluster in clusters for pairing in cluster["pairings"]]
    return {
        "tone": _VERDICT_TONES[document["verdict"]],
        "verdict": document["verdict"],
        "headline": _headline(document),
        "created": str(document["created"]).replace("T", " ").replace("Z", " UTC"),
        "reasons": _grouped(document["reasons"]),
        "clusters": [_cluster_model(cluster, hosts) for cluster in clusters],
        "hosts": [
            _host_model(name, hosts[name], tone)
            for cluster in clusters
            for name, tone in _host_tones(cluster, hosts).items()
        ],
        "rails": [
            _rail_model(name, profile, hosts[name], cluster["pairings"])
            for cluster in clusters
            for name in cluster["hosts"]
            for profile in hosts[name]["profiles"]
        ],
        "pairings": [_pairing_model(pairing) for pairing in pairings],
        "accepted": [finding for finding in findings if finding["accepted"]],
        "warnings": [
            *(finding for finding in findings if finding["severity"] == "warn" and not finding["accepted"]),
            *(_pairing_warning(pairing) for pairing in pairings if pairing["severity"] == "warn"),
            *(warning for name, proof in hosts.items() for warning in _gid_warnings(name, proof)),
        ],
        "meta": {str(key).replace("_", " "): value for key, value in document["meta"].items() if value is not None},
    }


def _grouped(reasons: Sequence[Mapping[str, Any]]) -> list[Record]:
    """One bad host on a switch spoils many pairings: the same trouble with the same way out is said once."""
    groups: dict[tuple[str, str], Record] = {}
    for reason in reasons:
        group = groups.setdefault((reason["what"], reason["way_out"]), {**reason, "where": []})
        group["where"].append(reason["where"])
    return list(groups.values())


def _headline(document: Mapping[str, Any]) -> str:
    count = len(document["hosts"])
    sparks = f"{count} Sparks" if count != 1 else "One Spark"
    if document["verdict"] == HEALTHY:
        return f"{sparks}, proven and serving"
    reasons = len(_grouped(document["reasons"]))
    things = f"{reasons} thing{'s' if reasons != 1 else ''}"
    return f"{sparks}: {things} {'missing' if document['verdict'] == INCOMPLETE else 'wrong'}"


def _cluster_model(cluster: Mapping[str, Any], hosts: Mapping[str, Any]) -> Record:
    links = [_link_model(link, cluster["pairings"]) for link in cluster["links"]]
    places = [(host, _place(hosts[host])) for host in cluster["hosts"]]
    topologies = {"none": "no fabric", "pair": "pair", "ring": "ring", "switch": "switched"}
    return {
        "name": cluster["name"],
        "tone": _VERDICT_TONES[cluster["verdict"]],
        "verdict": cluster["verdict"],
        "topology": topologies.get(cluster["topology"], cluster["topology"]),
        "count": len(cluster["hosts"]),
        "matrix": _matrix(cluster),
        "picture": draw(cluster["topology"], places, links, _host_tones(cluster, hosts)),
        "alt": _picture_in_words(cluster),
        "serving": _serving_model(cluster["serving"]),
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


def _place(proof: Mapping[str, Any]) -> str:
    """What stands under a host's name in the picture."""
    return (proof["facts"].get("ssh") or {}).get("local_address") or ""


def _host_tones(cluster: Mapping[str, Any], hosts: Mapping[str, Any]) -> dict[str, str]:
    pairings = cluster["pairings"]
    return {name: "bad" if _is_blamed(name, hosts[name], pairings) else "ok" for name in cluster["hosts"]}


def _is_blamed(host: str, proof: Mapping[str, Any], pairings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether most of what involves this host went wrong, so that one bad host does not paint its neighbours red."""
    own = [pairing["severity"] == "error" for pairing in pairings if host in _names(pairing)]
    blocked = any(finding["severity"] == "error" and not finding["accepted"] for finding in proof["findings"])
    return blocked or (bool(own) and sum(own) * 2 > len(own))


def _names(pairing: Mapping[str, Any]) -> tuple[str, str]:
    return pairing["server"]["host"], pairing["client"]["host"]


def _link_model(link: Mapping[str, Any], pairings: Sequence[Mapping[str, Any]]) -> Record:
    own = [pairing for pairing in pairings if pairing["link"] == link["name"]]
    spokes = {
        end["host"]: {"port": end["port"], **_spoke([pairing for pairing in own if end["host"] in _names(pairing)])}
        for end in link["ends"]
    }
    return {"ends": link["ends"], "spokes": spokes, **_label(own)}


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
    """What to write on a cable: each rail's Gb/s of the one pairing, or the middle one of several."""
    if not pairings:
        return {"label": ["not measured"], "tone": "warn"}
    middle = _middle(pairings)
    rails = [rail["gbps"] for rail in middle["figures"]["rails"] if rail["gbps"] is not None]
    figure = " + ".join(_number(gbps) for gbps in rails) + " Gb/s" if rails else "no figure"
    return {"label": [figure, middle["verdict"].replace("_", " ")], "tone": _TONES[middle["severity"]]}


def _picture_in_words(cluster: Mapping[str, Any]) -> str:
    measured = [f"{title_of(pairing)}: {pairing['verdict']}, {pairing['text']}" for pairing in cluster["pairings"]]
    return "; ".join(measured) or f"{', '.join(cluster['hosts'])} without a fabric"


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
    memory, temperature = facts["memory_bytes"], gpu["temperature_c"]
    rows = {
        "System": facts["os"]["pretty"],
        "DGX OS": release.get("DGX_OTA_VERSION") or release.get("DGX_SWBUILD_VERSION"),
        "Kernel": facts["kernel"],
        "Driver": driver["module_loaded"] or driver["userland"],
        "GPU": gpu["name"],
        "GPU temperature": None if temperature is None else f"{temperature:.0f} °C",
        "Memory": None if memory is None else f"{memory / GIB:.1f} GiB",
        "Docker": docker["version"],
        "Held packages": len(facts["holds"]) or None,
        "Management": _management(facts),
    }
    vendor, model = product["dmi_vendor"] or "", (product["dmi_name"] or "unknown").replace("_", " ")
    return {
        **card,
        "product": model if model.startswith(vendor) else f"{vendor} {model}",
        "rows": {label: value for label, value in rows.items() if value is not None},
    }


def _management(facts: Mapping[str, Any]) -> str | None:
    """Interface and address of the SSH session."""
    return " ".join(filter(None, (facts["ssh"]["interface"], facts["ssh"]["local_address"]))) or None


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
    port = _gid_port({host: dict(proof)}, {"host": host, **profile})
    label = _label(own)
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
        "gbytes": None if gbps is None else f"{gbps / 8:.2f}",
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
        "gbps": None if total is None else _number(total),
        "gbytes": None if total is None else f"{total / 8:.2f}",
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


def _gid_warnings(host: str, proof: Mapping[str, Any]) -> list[Record]:
    """What show_gids remarks: no verdict by itself, but what a person should know before trusting an index."""
    return [
        {
            "host": host,
            "id": remark["name"],
            "fact": f"{remark['where']}: {remark['text']}",
            "way_out": remark["way_out"],
        }
        for remark in (proof["gids"] or {}).get("remarks", [])
    ]


def _serving_model(serving: Mapping[str, Any] | None) -> Record | None:
    if serving is None:
        return None
    rate = serving["tokens_per_s"]
    return {
        "tone": "ok" if serving["verdict"] == "serving" else "bad",
        "verdict": serving["verdict"].replace("_", " "),
        "text": serving["text"],
        "model": ", ".join(serving["served_models"]),
        "answers": [{**answer, "took": f"{answer['seconds']:.2f} s"} for answer in serving["answers"]],
        "speed": None if rate is None else f"{rate:.1f} tokens/s",
    }
