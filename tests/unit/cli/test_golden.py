"""What `doctor`, `why`, `top` and `ps` say with `--json` of recorded machines is what it was.

A change that is meant: `GB10_GOLDEN=write .venv/bin/pytest tests/unit/cli/test_golden.py`, and read the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import collect
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.findings import evaluate_facts
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import limits
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.rows import row

from gb10_fleet import services, why
from tests.support.subjects import subject

FIXTURES = Path(__file__).parents[2] / "fixtures"
GOLDEN = FIXTURES / "golden.json"
READINGS = {
    file.stem: json.loads(file.read_text()) for file in sorted((FIXTURES / "health/h100").glob("reading-*.json"))
}
SMI, IP = (FIXTURES / "facts" / name for name in ("nvidia-smi.idle.txt", "ip-batch.txt"))


def doctor(root: Path) -> dict[str, Any]:
    """A healthy Spark; one of whose files there are the packages, the release and the driver's own words alone."""
    for path, name in {
        "var/lib/dpkg/status": "dpkg-status.txt", "etc/dgx-release": "dgx-release.txt",
        "proc/driver/nvidia/version": "nvidia-version.txt",
    }.items():  # fmt: skip
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text((FIXTURES / "facts" / name).read_text())
    outputs = {"nvidia-smi": SMI.read_text(), "ip": IP.read_text()}

    def run(argv: Sequence[str], _stdin: str | None, _timeout: float) -> Completed:
        return Completed(tuple(argv), 0 if argv[0] in outputs else 127, outputs.get(argv[0], ""))

    system = System(root, run, privileged=True)
    host = HostReader(system, lambda _path: os.statvfs_result((1,) * 10), machine="aarch64", time_of_day=lambda: 0)
    read = {key: value for key, value in collect(host).items() if value is not None}
    return {
        name: [each.as_dict() for each in evaluate_facts(subject(**facts))]
        for name, facts in (("spark", {}), ("files", read))
    }


def of_why(_root: Path) -> dict[str, Any]:
    read = {host: {"health": reading} for host, reading in READINGS.items()}
    return {each.host: each.as_dict() for each in why.answers({"gb10.fleet.spark_facts": read, "kept": {}}, 14, {})}


def top(_root: Path) -> dict[str, Any]:
    looks = {
        host: [{"reading": {**reading, "samples": [sample]}, "services": []} for sample in reading["samples"]]
        for host, reading in READINGS.items()
    }
    return {host: row(host, each, None, limits.rules()).as_dict() for host, each in looks.items()}  # type: ignore[arg-type]


def ps(_root: Path) -> dict[str, Any]:
    """The services of two hosts: one serves, one starts, one stands still."""
    said = {
        **{"unit": "gb10-vllm.service", "state": "active", "enabled": True, "since": 1795401000, "phase": "ready"},
        **{"load_s": 95.0, "members": [], "memory_gib": 40, "model": "org/model", "port": 8000, "wish": None},
        **{"url": "http://127.0.0.1:8000", "served_name": "model", "rank": 0, "tools": True},
    }
    wish = {"who": "ada@laptop", "since": "x", "until": "y", "shown": "07:00 CET"}
    starts = {**said, "name": "big", "phase": "weights", "load_s": None, "members": ["spark-a", "spark-b"]}
    still = {**said, "name": "old", "state": "inactive", "phase": None, "wish": wish}
    found = services.rows(
        {"spark-a": {"services": [{**said, "name": "vllm"}, starts]}, "spark-b": {"services": [still]}},
        {"spark-a": {"members": ["spark-a", "spark-b"]}},
    )
    return {"two": services.document(found, ["spark-c"], datetime(2026, 11, 23, tzinfo=UTC))}


@pytest.mark.parametrize(("command", "asked"), {"doctor": doctor, "why": of_why, "top": top, "ps": ps}.items())
def test_what_a_command_says_of_a_recorded_machine_is_what_it_was(
    command: str, asked: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    said, stored = json.loads(json.dumps(asked(tmp_path))), json.loads(GOLDEN.read_text() if GOLDEN.exists() else "{}")
    if os.environ.get("GB10_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps({**stored, command: said}, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
        stored = {command: said}
    assert said == stored[command], "meant? GB10_GOLDEN=write .venv/bin/pytest tests/unit/cli/test_golden.py"
