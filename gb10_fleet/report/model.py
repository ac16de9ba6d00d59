"""The document of a run: what the journal has, and what proofs and drift scan say of each host. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

FLOOR = "security_floor"  # the doctor's finding of a component below its security floor

Record = dict[str, Any]


def build(
    record: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    proofs: Mapping[int, Mapping[str, Any] | None],
    drift: Mapping[str, Any] | None,
    now: datetime,
) -> Record:
    """`proofs` are the evidence documents by wave; a drift scan from before the run says nothing about it."""
    scanned = drift if drift and record["created"] and str(drift.get("created", "")) >= record["created"] else None
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
    """Return what was found out about one host; null for what nobody looked at."""
    name = host["host"]
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
