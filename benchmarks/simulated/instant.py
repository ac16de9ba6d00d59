"""A connection to a Spark that does not exist and answers at once, so that what is measured is the controller alone.

With GB10_SIMULATED_S, each command takes that many seconds, as one that changes something does.
"""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

from ansible.plugins.connection import ConnectionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.transport import MARKER

DOCUMENTATION = """
name: instant
short_description: a simulated Spark that answers at once
description: Every command succeeds and says nothing; the engine says the facts of a Spark and that nothing is to do.
author: gb10-fleet contributors
"""

ROOT = Path(__file__).resolve().parents[2]


@cache
def answer() -> bytes:
    """What the engine of a healthy host says that has nothing to do."""
    facts = json.loads((ROOT / "tests/fixtures/facts/spark.json").read_text(encoding="utf-8"))
    said: dict[str, Any] = {
        "facts": {**facts, "cdi": ["/var/run/cdi/nvidia.yaml"]},
        **{key: [] for key in ("stale", "changes", "pending", "orphans", "diff", "wishes", "ends")},
        **{"known": True, "recorded": True, "guard": None, "error": None, "subprocesses": 0},
    }
    return f"\n{MARKER}{json.dumps(said)}\n".encode()


class Connection(ConnectionBase):
    transport = "instant"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        if in_data:
            return 0, answer(), b""
        time.sleep(float(os.environ.get("GB10_SIMULATED_S", "0")))
        return 0, b"", b""

    def put_file(self, in_path: str, out_path: str) -> Any:
        raise NotImplementedError

    def fetch_file(self, in_path: str, out_path: str) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self._connected = False
