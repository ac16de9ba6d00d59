"""Made-up proofs of a pair, a ring and a switched fleet, in the shape that the playbook hands to gb10.fleet.evidence.

`python -m tests.support.proofs DIRECTORY` writes their pages, to be looked at.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import shown
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.addressing import plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.measuring import rounds
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_page, judge

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 21, 1, 30, 0, tzinfo=UTC)
HOSTS = {
    "pair": ["spark-a", "spark-b"],
    "ring": ["spark-a", "spark-b", "spark-c"],
    "switch": [f"spark-{number}" for number in range(1, 9)],
    "none": ["spark-a"],
}


def facts(host: str = "spark-a") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "tests/fixtures/facts/spark.json").read_text())
    number = ord(host[-1]) - (ord("a") if host[-1].isalpha() else ord("1"))
    content["ssh"]["local_address"] = f"192.0.2.{11 + number % 26}"  # each host has its own
    return {**content, "hostname": host}


def thresholds() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "catalog/thresholds.yml").read_text())
    return content


def proof(topology: str, gbps: Mapping[str, float] | None = None) -> dict[str, dict[str, Any]]:
    """Every host's proof; `gbps` sets the figure of all tests that involve a host (Gb/s per rail; 98 otherwise)."""
    names = HOSTS[topology]
    network = "192.168.96.0/20" if topology == "ring" else "192.168.100.0/22"
    planned = plan(topology, names, {name: facts(name) for name in names}, network=network)
    fabric = shown(planned)
    hosts = {name: _host(name, names, topology, fabric["hosts"][name]["profiles"]) for name in names}
    for tests in rounds(planned):
        for host, ends in tests.items():
            hosts[host]["bandwidth"] += [_measured(end, gbps or {}) for end in ends]
    hosts[names[0]]["serving"] = {**SERVING, "changed": False, "invocation": {"module_args": {"api_key": "secret"}}}
    return hosts


def _host(name: str, names: Sequence[str], topology: str, profiles: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "cluster": f"{topology}1",
        "topology": topology,
        "thresholds": {},
        "facts": facts(name),
        "findings": [],
        "profiles": list(profiles),
        "gids": {
            "ports": [
                {"device": item["hca"], "port": 1, "mtu": 9000, "pcie_width": 4, "addresses": [item["address"]]}
                for item in profiles
            ],
            "by_address": {
                item["address"]: {"v2": {"device": item["hca"], "port": 1, "index": 3}} for item in profiles
            },
            "rails": [
                {
                    "netdev": item["netdev"], "address": item["address"], "device": item["hca"], "port": 1,
                    "index": 3, "nccl_index": 3, "agrees": True,
                }
                for item in profiles
            ],
            "remarks": [],
            "changed": False,
        },
        "pings": [
            {
                "name": f"{item['netdev']} to {peer['host']}", "interface": item["netdev"], "source": item["address"],
                "peer": peer["address"], "size_bytes": 8972, "count": 3, "ok": True, "sent": 4, "received": 4,
                "rtt_ms": 0.06 + 0.01 * names.index(peer["host"]), "fault": None,
            }
            for item in profiles
            for peer in item["peers"]
        ],
        "heard": [
            {
                "netdev": item["netdev"], "port": item["port"], "host": peer["host"],
                "there_netdev": peer["netdev"], "there_port": peer["port"],
            }
            for item in profiles
            for peer in item["peers"]
        ],
        "bandwidth": [],
        "serving": None,
    }  # fmt: skip


def _measured(test: Mapping[str, Any], gbps: Mapping[str, float]) -> dict[str, Any]:
    figure = min((value for host, value in gbps.items() if f"{host}:" in test["name"]), default=98.02)
    figures = {"gbps": figure, "gbytes_per_s": figure / 8, "mtu": 4096, "local_address": test["address"]}
    return {**test, "state": "ok", "fault": None, "latency_us": 1.47, "figures": figures}


SERVING: dict[str, Any] = {
    "verdict": "serving",
    "text": "openai/gpt-oss-120b answered 2 test questions correctly",
    "way_out": "",
    "ready_after_s": 0.4,
    "served_models": ["openai/gpt-oss-120b"],
    "answers": [
        {
            "name": "sum", "question": "What is 19 plus 23? Answer with the number only.", "answer": "42",
            "seconds": 0.38, "completion_tokens": 3, "tokens_per_s": 7.9, "fault": None, "verdict": None,
        },
        {
            "name": "copy", "question": "Repeat this passage word for word: The harbour was quiet before sunrise.",
            "answer": "The harbour was quiet before sunrise.", "seconds": 2.1, "completion_tokens": 98,
            "tokens_per_s": 46.7, "fault": None, "verdict": None,
        },
    ],
    "tokens_per_s": 46.7,
    "api": {"host": "spark-a", "url": "http://127.0.0.1:8000", "gateway": "https://192.0.2.11:8443"},
}  # fmt: skip

WARNING = {
    "id": "security_floor", "severity": "warn", "host": "spark-a", "accepted": None,
    "fact": "NVIDIA Container Toolkit is 1.19.0, below 1.19.1 (CVE-2026-24260)",
    "way_out": "move nvidia-container-toolkit to 1.19.1 or later as soon as the host's archive offers it",
}  # fmt: skip
ACCEPTED = {
    "id": "disk_full", "severity": "error", "host": "spark-b", "accepted": "a larger disk comes, until Friday",
    "fact": "/var/lib/docker (file system /) has 11.0 GiB free, needed are 20 GiB", "way_out": "free space",
}  # fmt: skip


def services() -> dict[str, dict[str, Any]]:
    """A model over a pair, and embeddings on both hosts; the operator has stopped the reranker of the first."""
    hosts = proof("pair")
    serving = {key: value for key, value in hosts["spark-a"]["serving"].items() if key != "invocation"}
    for rank, (name, host) in enumerate(hosts.items()):
        own = [
            _placed("big", list(hosts), rank, "openai/gpt-oss-120b", 8000, 64.5),
            _placed("embed", [name], 0, EMBED, 8010, 9.0),
        ]
        answers = [serving | {"service": "big"}] if rank == 0 else []
        api = {"host": name, "url": "http://127.0.0.1:8010", "gateway": f"https://192.0.2.1{rank + 1}:8443"}
        answers.append(
            {**serving, "service": "embed", "served_models": [EMBED], "answers": [], "tokens_per_s": None, "api": api}
        )
        answers[-1]["text"] = f"{EMBED} turns sentences into vectors, and neighbours are near"
        host.update(serving=answers[0], services=answers, placed={"services": own, "reserve_gib": 12.0})
    hosts["spark-a"]["placed"]["services"].append(
        _placed("rerank", ["spark-a"], 0, "BAAI/bge-reranker-v2-m3", 8020, 6.0)
    )
    hosts["spark-a"]["facts"]["wishes"] = [{"unit": "gb10-vllm-rerank.service"}]
    return hosts


EMBED = "Qwen/Qwen3-Embedding-0.6B"


def _placed(name: str, members: Sequence[str], rank: int, model: str, port: int, gib: float) -> dict[str, Any]:
    return {
        "name": name, "kind": "vllm", "unit": f"gb10-vllm-{name}.service", "rank": rank, "members": list(members),
        "served_name": model, "port": port, "memory_gib": gib, "argv": ["--env", "HF_TOKEN"],
    }  # fmt: skip


def documents() -> dict[str, dict[str, Any]]:
    """Named evidence documents: good ones, and ones with each kind of trouble."""
    remarks = proof("pair")
    remarks["spark-a"]["findings"], remarks["spark-b"]["findings"] = [WARNING], [ACCEPTED]
    unplugged = copy.deepcopy(proof("ring"))
    fault = {"name": "timeout", "text": "nothing answered", "way_out": "check the cable and the peer"}
    for ping in unplugged["spark-b"]["pings"][:2]:
        ping.update(ok=False, received=0, rtt_ms=None, fault=fault)
    cut = copy.deepcopy(proof("ring"))
    for host, port in (("spark-a", "p1"), ("spark-b", "p0")):
        cut[host]["heard"] = [said for said in cut[host]["heard"] if said["port"] != port]
    peers = {item["address"] for item in cut["spark-a"]["profiles"] if item["port"] == "p1"}
    peers |= {item["address"] for item in cut["spark-b"]["profiles"] if item["port"] == "p0"}
    for host in cut.values():
        host["bandwidth"] = [test for test in host["bandwidth"] if test["address"] not in peers]
    machines = proof("pair")
    for host in machines.values():
        host["facts"]["architecture"] = "x86_64"
        host["findings"] = [{**WARNING, "host": host["facts"]["hostname"]}]
    hosts = {
        "pair": remarks,
        "pair-virtual": machines,
        "ring-cut": cut,
        "pair-degraded": proof("pair", {"spark-b": 13.23}),
        "ring": proof("ring"),
        "ring-unplugged": unplugged,
        "switch": proof("switch"),
        "switch-one-bad": proof("switch", {"spark-3": 12.8}),
        "single": proof("none"),
        "services": services(),
    }
    meta = {"gb10_fleet": "0.1.0", "ansible_core": "2.19.14", "inventory": "inventory/lab"}
    return {name: judge.build(proofs, meta, thresholds(), NOW) for name, proofs in hosts.items()}


if __name__ == "__main__":
    for name, document in documents().items():
        target = Path(sys.argv[1]) / f"{name}.html"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(evidence_page.render(document))
        print(target, document["verdict"], *document["reasons"][:3], sep="\n  ")


def spark(gib: float = 121.7, driver: str = "580.142", host: str = "spark-a") -> dict[str, Any]:
    """Return the facts of a host with this much memory and this driver."""
    known = facts(host)
    return {**known, "memory_bytes": int(gib * 2**30), "driver": {**known["driver"], "userland": driver}}
