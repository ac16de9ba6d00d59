"""What the product makes of words that machines said, by the class of the words (tests/fixtures/unseen)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import judge
from ansible_collections.gb10.fleet.plugins.module_utils.engine import apt_errors
from ansible_collections.gb10.fleet.plugins.module_utils.reading import gpu, kernel_log
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.pull_fault import pull_fault

from tests.support import health, unit_log
from tests.support.health import BOOT, NOW, RULES, reading

FOLDER = Path(__file__).parents[1] / "fixtures" / "unseen"


def rows(name: str) -> Iterator[tuple[str, str, str]]:
    """Class, words, and what is right: several words where each is, none where nobody has to do anything."""
    for kind, entries in yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8")).items():
        for said, right, *_source in entries:
            yield kind, said, right


def told(kind: str, said: str) -> str:
    """The name that the product gives it; of a line of the journal none where it is information at most."""
    return {
        "kernel": _kernel,
        "oom_daemon": lambda said: _kernel(said, _SYSTEMD_UNIT="systemd-oomd.service"),
        "apt": _apt,
        "docker_run": _docker_run,
        "docker_pull": _docker_pull,
        "ssh": lambda said: from_failure("spark-a", said, answered=not said.startswith("Failed to connect")).id,
        "smi": _smi,
    }[kind](said)


def _kernel(said: str, **fields: str) -> str:
    entry = {"__REALTIME_TIMESTAMP": str(int((NOW - 60) * 1e6)), "_BOOT_ID": BOOT + "0" * 20, "MESSAGE": said, **fields}
    events = kernel_log.parse_journal(json.dumps(entry))
    absent = [health.sample(gpu=health.silent("absent"))]  # what needs a GPU that does not answer beside it
    samples = {"samples": absent} if events and events[0]["kind"] == "gpu_start" else {}
    found = judge("spark-a", reading(events=events, **samples), RULES).findings  # type: ignore[arg-type]
    loud = [one for one in found if one.id.startswith(("log_", "xid_")) and one.severity != "info"]
    if not loud and events and events[0]["kind"] == "xid":  # of a program: named, and no fault of the host
        return "xid"
    return events[0]["kind"] if loud else ""


def _apt(said: str) -> str:
    stderr, _, stdout = said.partition("\n--- stdout\n")
    text = apt_errors.explained(Completed((), 100, stdout=stdout, stderr=stderr), System(Path("/nowhere")))
    name, colon, _rest = text.partition(": ")
    return name if colon and name.replace("_", "").isalpha() and "Fix:" in text else ""


def _docker_run(said: str) -> str:
    return unit_log.verdict_of_docker(said)


def _docker_pull(said: str) -> str:
    found = pull_fault({"rc": 1, "stderr": said}, "nvcr.io/nvidia/vllm:1")
    return found["verdict"] if found else ""


def _smi(said: str) -> str:
    status, _, words = said.partition(" ")
    return str(gpu.parse(Completed((), int(status), stdout=words))[0]["state"])
