"""The log of vLLM's unit, with the lines and figures of the catalog."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import Timing, parse_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.log import Log, verdict_of_end
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog


def settings() -> dict[str, Any]:
    """Those of the unit on a host alone, as the role writes them."""
    units = catalog.load("units")
    said, figures = units["vllm_log"], units["supervisor"]
    return {
        **{
            "service": "vllm",
            "faults": 3,
            "load_s": 1,
            "ready_url": None,
            "container": "gb10-vllm",
            "argv": ["docker"],
            "image": "image",
            "memory_gib": 1,
            "cache": "/",
        },
        **{"disk_gib": 0, "api": None, "env_file": None, "gid_file": None, "warm": None, "rails": [], "join": None},
        "timing": {name: figures[name]["value"] for name in Timing._fields},
        "phases": [[each["phase"], each["value"]] for each in said["phases"]],
        "failures": [[each["verdict"], each["value"]] for each in said["failures"]],
        "places": [[each["verdict"], each["value"]] for each in said["places"]],
        "measures": {},
        "measured": [each["value"] for each in said["measured"]],
        "remarks": [[each["verdict"], each["value"]] for each in said["remarks"]],
        "docker_said": [[each["verdict"], each["value"]] for each in units["docker_said"]["run"]],
        "gone": [each["value"] for each in said["gone"]],
    }


def new_log() -> Log:
    return Log(parse_config(json.dumps(settings())), [])


def read(*lines: str, log: Log | None = None) -> Log:
    log = log or new_log()
    for line in lines:
        if line.strip():
            log.feed(line)
    return log


def verdict_of_docker(said: str) -> str:
    """Of a `docker run` that Docker itself refused."""
    return verdict_of_end(125, read(said), 0).verdict
