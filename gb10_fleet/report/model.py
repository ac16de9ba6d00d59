"""The document of a run: what the journal has, and what proofs and drift scan say of each host. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.values import Matching, Parsed
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema

from gb10_fleet.rollout.written import moment_of

FLOOR = "security_floor"  # the doctor's finding of a component below its security floor

Record = dict[str, Any]


class Scan(TypedDict):
    """Of the file of a scan what is told of all hosts."""

    created: Annotated[str, Parsed(moment_of, "a time like 2026-11-21T01:02:03Z")]
    clean: int
    drifted: list[str]
    silent: list[str]


class Link(TypedDict):
    gbps: float | None
    peer: str
    verdict: str
    severity: Annotated[str, Matching(re.compile(r"(ok|warn|error)\Z"), "ok, warn or error")]


class Drift(TypedDict):
    state: str
    what: list[str]


class Found(TypedDict):
    """What was found out about one host; null for what nobody looked at, and for what no file of ours says."""

    verdict: Annotated[str, Matching(re.compile(r"(healthy|incomplete|unhealthy)\Z"), "a verdict")] | None
    link: Link | None
    tokens_per_s: float | None
    floors: list[str] | None
    drift: Drift | None


_NOTHING: Found = {"verdict": None, "link": None, "tokens_per_s": None, "floors": None, "drift": None}


def build(
    record: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    proofs: Mapping[int, Mapping[str, Any] | None],
    drift: Mapping[str, Any] | None,
    now: datetime,
) -> Record:
    """`proofs` are the evidence documents by wave; a drift scan from before the run says nothing about it."""
    is_scan = schema.problem(drift, Scan, "drift") is None
    scanned = drift if drift and is_scan and record["created"] and drift["created"] >= record["created"] else None
    return {
        **record,
        "generated": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "events": [dict(event) for event in events],
        "drift": {key: scanned[key] for key in ("created", "clean", "drifted", "silent")} if scanned else None,
        "hosts": {
            host["host"]: _host(host, proofs.get(wave["wave"]) or {}, (scanned or {}).get("hosts", {}))
            for wave in record["waves"]
            for host in wave["hosts"]
        },
    }


def _host(host: Mapping[str, Any], proof: Mapping[str, Any], scanned: Mapping[str, Any]) -> Record:
    try:
        found = _found(host["host"], proof, scanned)
    except (LookupError, TypeError, ValueError, AttributeError):
        return {**_NOTHING}
    return {**_NOTHING} if schema.problem(found, Found, "host") else found


def _found(name: str, proof: Mapping[str, Any], scanned: Mapping[str, Any]) -> Record:
    cluster = next((item for item in proof.get("clusters", ()) if name in item["hosts"]), None)
    findings = proof["hosts"][name]["findings"] if cluster else []
    drift = scanned.get(name)
    return {
        "verdict": cluster["verdict"] if cluster else None,
        "link": _slowest(name, cluster["pairings"]) if cluster else None,
        "tokens_per_s": (cluster["serving"] or {}).get("tokens_per_s") if cluster else None,
        "floors": [finding["fact"] for finding in findings if finding["id"] == FLOOR] if cluster else None,
        "drift": {"state": drift["state"], "what": list(_drifted(drift))} if drift else None,
    }


def _slowest(host: str, pairings: Sequence[Mapping[str, Any]]) -> Record | None:
    """The weakest link of a host: the one that the proof judges worst, and of those the slowest. Gb/s, all rails."""
    of_host = [item for item in pairings if host in (item["server"]["host"], item["client"]["host"])]
    if not of_host:
        return None
    ranks = ("ok", "warn", "error")
    weakest = max(of_host, key=lambda item: (ranks.index(item["severity"]), -(item["figures"]["gbps"] or 0)))
    peer = next(item["host"] for item in (weakest["server"], weakest["client"]) if item["host"] != host)
    return {"gbps": weakest["figures"]["gbps"], "peer": peer, **{key: weakest[key] for key in ("verdict", "severity")}}


def _drifted(found: Mapping[str, Any]) -> Iterator[str]:
    for role, changes in found["changes"].items():
        for change in changes:
            yield f"{role}: {change['resource']}: {change['action']}"
    if found["silence"]:
        yield f"{found['silence']['reason']}: {found['silence']['text']}"
