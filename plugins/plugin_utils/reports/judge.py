# SPDX-License-Identifier: GPL-3.0-or-later
"""What the proof measured, judged: the evidence document. Pure; schemas/evidence.schema.json describes its shape."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.fabric.gids import subnet_of
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import RUN_FABRIC
from ansible_collections.gb10.fleet.plugins.plugin_utils.fabric import verdicts
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import addressing, cabling
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import services
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import placement, rail_errors

SCHEMA_VERSION = 1
HEALTHY, UNHEALTHY, INCOMPLETE = "healthy", "unhealthy", "incomplete"
# What Ansible adds to a module's result for itself.
ANSIBLE_KEYS = frozenset({"invocation", "changed", "failed", "skipped", "stdout_lines", "ansible_facts", "warnings"})
# Characters of a host's part, as JSON; a sound one has some 30,000. Parts of it stand in the document up to six times,
# and a document that is too long nobody reads again (texts.py): one host would take the proof of all others.
LARGEST_PART = 2**19
_PLANNED = ("cluster", "topology", "serves", "units", "thresholds", "unreachable")  # of our own making
_UNSAID = {"name": "failed", "text": "no answer, and its host does not say why", "way_out": "gb10 why says how it is"}

Record = dict[str, Any]


def build(
    hosts: Mapping[str, Mapping[str, Any]], meta: Mapping[str, Any], thresholds: Mapping[str, Any], now: datetime
) -> Record:
    """The evidence document of one proof. `thresholds` is the content of catalog/thresholds.yml."""
    counters = thresholds["error_counters"]["value"]
    proofs = {name: _proof(name, _bounded(name, proof), counters) for name, proof in hosts.items()}
    clusters = [_cluster(name, members, thresholds) for name, members in _by_cluster(proofs).items()]
    return {
        "schema_version": SCHEMA_VERSION,
        "created": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "verdict": worst(cluster["verdict"] for cluster in clusters),
        "reasons": [reason for cluster in clusters for reason in cluster["reasons"]],
        "since": None,
        "meta": dict(meta),
        "clusters": clusters,
        "hosts": proofs,
    }


def worst(found: Iterable[str]) -> str:
    """The verdict of a whole; a whole without parts is not proven."""
    return max(found, key=(HEALTHY, INCOMPLETE, UNHEALTHY).index, default=INCOMPLETE)


def _bounded(name: str, proof: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a host that says too much, that it does."""
    size = len(json.dumps(proof))
    if size <= LARGEST_PART:
        return proof
    fact = f"its part of the proof has {size} characters, and no sound one has {LARGEST_PART}"
    way_out = "find out on the host what says so much, then run the playbook validate again"
    said = {"id": "proof_too_large", "severity": "error", "host": name, "fact": fact, "way_out": way_out}
    planned = {key: proof[key] for key in _PLANNED if key in proof}
    return {**planned, "facts": {}, "findings": [{**said, "accepted": None}]}


def _proof(name: str, proof: Mapping[str, Any], counters: Sequence[str]) -> Record:
    """One host's part, complete and without what Ansible adds to results (or says in place of one)."""
    bandwidth = list(proof.get("bandwidth") or [])
    return {
        "cluster": proof.get("cluster") or name,
        "topology": proof.get("topology") or "none",
        "serves": bool(proof.get("serves", True)),
        "units": None if proof.get("units") is None else dict(proof["units"]),
        "thresholds": dict(proof.get("thresholds") or {}),
        "facts": dict(proof["facts"]),
        "findings": [*(proof.get("findings") or []), *rail_errors.findings(name, bandwidth, counters)],
        "profiles": list(proof.get("profiles") or []),
        "gids": _without_ansible(proof.get("gids")),
        "heard": None if proof.get("heard") is None else list(proof["heard"]),
        "pings": list(proof.get("pings") or []),
        "bandwidth": bandwidth,
        "unreachable": bool(proof.get("unreachable")),
        "serving": _without_ansible(proof.get("serving")),
        "services": [found for each in proof.get("services") or () if (found := _without_ansible(each))],
        **({"placed": placement.kept(proof["placed"])} if proof.get("placed") else {}),
        **({"release": dict(proof["release"])} if proof.get("release") else {}),
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
    served = [each for proof in members.values() for each in services_of(proof)]
    unproven = _unproven(name, links, pairings, members, served)
    cables = _cabling(members)
    wrong = _wrong(name, cables, pairings, members, served)
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
        "serving": served[0] if served else None,
        "services": served,
    }


def services_of(part: Mapping[str, Any]) -> list[Record]:
    """Return what the services of a host or cluster answered; `serving` is the first, and alone in older evidence."""
    return [*(part.get("services") or ([part["serving"]] if part["serving"] else []))]


def title_of_service(served: Mapping[str, Any]) -> str:
    """Its name, where its host may have others."""
    name = served.get("service", services.SHORT)
    return "" if name == services.SHORT else f"{name} on {served['api']['host']}"


def _numbers(thresholds: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[dict[str, float], str | None]:
    """Return what to judge by.

    Evidence must not be lost for a wrong number of the operator's: it is said, and ours count.
    """
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
    """Return where each port of the plan leads; of a host that did not listen, only what others heard."""
    heard = {host: proof["heard"] for host, proof in members.items() if proof["heard"] is not None}
    return cabling.judge({host: proof["profiles"] for host, proof in members.items()}, heard) if heard else []


def _pairings(members: Mapping[str, Record], thresholds: Mapping[str, float]) -> list[Record]:
    """Return what was measured between two hosts over one link: both ends put together again, and judged."""
    pairings: dict[tuple[str, str, str], Record] = {}
    rails: dict[tuple[str, str, str], dict[int, verdicts.MeasuredRail]] = {}
    for (link, twin_index, *__), (server, client, results) in _measured(members).items():
        key = (link, server["host"], client["host"])
        pairings[key] = {
            "link": link,
            "server": {"host": server["host"], "port": server["port"]},
            "client": {"host": client["host"], "port": client["port"]},
        }
        read = tuple(_end(members, end) for end in (server, client))
        rails.setdefault(key, {})[twin_index] = _rail(server["netdev"], results, read)
    switched = next(iter(members.values()))["topology"] == "switch"
    found = []
    for key, pairing in pairings.items():
        of_twins = [rail for __, rail in sorted(rails[key].items())]
        verdict = verdicts.judge_port(of_twins, thresholds, switched=switched)
        found.append({**pairing, "least_gbps": thresholds["port_min_gbps"], **asdict(verdict)})
    return found


def _measured(members: Mapping[str, Record]) -> dict[tuple[Any, ...], tuple[Record, Record, dict[str, Record]]]:
    """Server and client of each test of the plan, and the results of both ends, each in its host's own words alone."""
    tests: dict[tuple[Any, ...], tuple[Record, Record, dict[str, Record]]] = {}
    for host, proof in members.items():
        for result in proof["bandwidth"]:
            if (ends := _ends(host, proof["profiles"], result)) is not None:  # else measured by hand
                server, client, link, twin_index = ends
                test = tests.setdefault((link, twin_index, server["host"], client["host"]), (server, client, {}))
                test[2][result["end"]] = {**result, "host": host}
    return tests


def _ends(host: str, profiles: Sequence[Record], result: Mapping[str, Any]) -> tuple[Record, Record, str, int] | None:
    """Server and client of a test as {host, port, netdev, hca}, its link and its twin index, out of the plan."""
    profile = next((item for item in profiles if item["address"] == result["address"]), None)
    peer = next((item for item in profile["peers"] if item["address"] == result["peer"]), None) if profile else None
    if profile is None or peer is None:
        return None
    here, there = {"host": host, **profile}, dict(peer)
    server, client = (here, there) if result["end"] == "server" else (there, here)
    return server, client, profile["link"], profile["twin_index"]


def _end(members: Mapping[str, Record], end: Mapping[str, Any]) -> verdicts.End:
    port = gid_port(members, end)
    speed = port.get("speed_mbps")
    return verdicts.End(
        end["host"],
        end["netdev"],
        subnets=tuple(_subnets(port)),
        pcie_width=port.get("pcie_width"),
        link_gbps=speed / 1000 if speed else None,
    )


def _rail(netdev: str, results: Mapping[str, Record], read: tuple[verdicts.End, ...]) -> verdicts.MeasuredRail:
    """One rail of a pairing. Both ends print the same figure; a fault at either end is a fault of the rail."""
    both = [results[end] for end in ("client", "server") if end in results]
    faults = [result["fault"] for result in both if result["fault"]]
    cause = verdicts.cause(faults, [result.get("perftest") for result in both])
    figures: Mapping[str, Any] = next((result["figures"] for result in both if result["figures"]), {})
    return verdicts.MeasuredRail(
        netdev=netdev,
        gbps=None if cause else figures.get("gbps"),
        fault={**cause, "text": _told(both, cause)} if cause else None,
        ends=read,
        mtu=figures.get("mtu"),
        latency_us=next((us for result in both if (us := result.get("latency_us"))), None),
    )


def _told(both: Sequence[Record], cause: Mapping[str, str]) -> str:
    """What an end says stands in quotes, with none in it: so it puts no words into the mouth of the other one."""
    faulty = [end for end in both if end["fault"] is cause]
    told = [] if faulty else [cause["text"]]  # ours, of both
    if not faulty or cause["name"] in verdicts.CONSEQUENCES:  # what the other end says is then the next question
        faulty += [end for end in both if end not in faulty]
    for end in faulty:
        said = (end["fault"] or {}).get("text", "").replace('"', "'")
        told.append(f'{end["host"]} says "{said}"' if end["fault"] else f"{end['host']} has no fault")
    return "; ".join(told)


def _subnets(port: Mapping[str, Any]) -> list[str]:
    """The subnets that a port has an address in, a /24 where no route tells; the plan gives every rail its own."""
    addresses = (text for text in port.get("addresses", []) if ":" not in text)
    return sorted({subnet_of(text, port.get("subnets", []))[0] for text in addresses})


def gid_port(members: Mapping[str, Record], end: Mapping[str, Any]) -> Record:
    """Return what show_gids said about a port; it was read after the fabric was applied, unlike doctor's facts."""
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
    served: Sequence[Record],
) -> list[Record]:
    """Return what should have been measured and was not."""
    measured = {pairing["link"] for pairing in pairings}
    unmeasured = [_said(link) for link in links if link["name"] not in measured]
    unpinged = [host for host, proof in members.items() if proof["profiles"] and not proof["pings"]]
    unseen = [host for host, proof in members.items() if not proof["facts"] and not proof["findings"]]
    unasked = _unasked(name, members, served)
    again = "run the playbook validate on all hosts of the cluster"
    return [
        *(_reason(host, "unmeasured", "the host was not read", again) for host in unseen),
        *(_reason(link, "unmeasured", "the bandwidth was not measured", again) for link in unmeasured),
        *(_reason(host, "unmeasured", "the rails were not pinged", again) for host in unpinged),
        *(_reason(where, "unmeasured", "no model was asked", again) for where in unasked),
    ]


def _said(link: Mapping[str, Any]) -> str:
    """Name a cable by its two ends, as where it was measured; those of a switch have one name."""
    ends = [f"{end['host']} {end['port']}" for end in link["ends"]]
    return " to ".join(ends) if len(ends) == 2 else str(link["name"])


def _unasked(name: str, members: Mapping[str, Record], served: Sequence[Record]) -> list[str]:
    """The services that were to answer and were not asked, without those that the operator has stopped: a finding
    says that. A proof that broke off before the plan names no units; then one answer of the cluster is enough."""
    found = []
    for host, proof in members.items():
        asked = {each.get("service", services.SHORT) for each in services_of(proof)}
        for service, unit in (proof["units"] or {}).items():
            if service not in asked and not _stopped(proof, unit):
                found.append(name if service == services.SHORT else f"{service} on {host}")
    without = [proof for proof in members.values() if proof["units"] is None and proof["serves"]]
    if not served and any(not _stopped(proof, "gb10-vllm.service") for proof in without):
        found.append(name)
    return list(dict.fromkeys(found))


def _stopped(proof: Mapping[str, Any], unit: str) -> bool:
    return any(wish["unit"] == unit for wish in proof["facts"].get("wishes") or [])


def _wrong(
    name: str,
    cables: Sequence[Record],
    pairings: Sequence[Record],
    members: Mapping[str, Record],
    served: Sequence[Record],
) -> list[Record]:
    """Return what was measured and is not as it should be."""
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
                where, fault = f"{host} {ping['interface']} to {ping['peer']}", ping["fault"] or _UNSAID
                wrong.append(_reason(where, f"ping_{fault['name']}", fault["text"], fault["way_out"]))
    for pairing in pairings:
        if pairing["severity"] == "error":
            wrong.append(_reason(title_of(pairing), pairing["verdict"], pairing["text"], pairing["way_out"]))
    for each in served:
        if each["verdict"] != "serving":
            wrong.append(_reason(title_of_service(each) or name, each["verdict"], each["text"], each["way_out"]))
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
        addresses = gid_port({host: dict(proof)}, {"host": host, **profile}).get("addresses", [])
        foreign = [text for text in addresses if ":" not in text and text != profile["address"]]
        if foreign:
            text = f"{profile['netdev']} also has {', '.join(foreign)}; planned is {profile['address']} alone"
            way_out = f"find out who sets it, then {RUN_FABRIC}, which takes it away"
            reasons.append(_reason(f"{host} {profile['netdev']}", "foreign_address", text, way_out))
    return reasons


def title_of(pairing: Mapping[str, Any]) -> str:
    """`spark-a p0 to spark-b p0`."""
    return " to ".join(f"{pairing[end]['host']} {pairing[end]['port']}" for end in ("server", "client"))
