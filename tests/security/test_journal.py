"""A container speaks to a real journald as its unit passes it on: no entry is one of the unit's. Takes root.

journald runs in a mount namespace of its own, with nothing in its /run. The lines come as a container writes them, as
if the unit had cleaned none of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import log

from scripts.gates import ROOT
from tests.support.attacker import tally
from tests.support.vllm_unit import FORGED, SPOKEN

JOURNALD = Path("/lib/systemd/systemd-journald")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not JOURNALD.exists() or not shutil.which("journalctl"), reason="needs root and journald"
)
SPEAKS = """
import sys
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import log
with log.stream("gb10-vllm-chat") as journal:
    assert journal is not sys.stdout
    print(sys.stdin.read(), file=journal, flush=True)
"""
# Ends with a line of the unit itself, as systemd has its output go to the journal.
ENDS = (
    SPEAKS
    + """
import socket, time
time.sleep(1)
with socket.socket(socket.AF_UNIX) as own:
    own.connect(log.JOURNAL)
    own.sendall(b"gb10-vllm\\ngb10-vllm-chat.service\\n6\\n0\\n0\\n0\\n0\\nthe end\\n")
"""
)
# The last line is waited for: journald reads when it comes to it, and knows no unit of a process that is gone by then.
SCRIPT = """
mount -t tmpfs none /run && mkdir -p /run/log/journal /run/systemd/journal /run/systemd/journald.conf.d
echo "[Journal]\nRateLimitBurst=$2" >/run/systemd/journald.conf.d/limit.conf
{journald} & journald=$!
within() {{ for _ in $(seq 500); do "$@" && return; sleep 0.05; done; return 1; }}
said() {{ journalctl -D /run/log/journal _SYSTEMD_UNIT=gb10-vllm-chat.service -o json --no-pager; }}
whole() {{ said | grep -q '"the end"'; }}
exec 3<&0
within test -S /run/systemd/journal/stdout && {{ {python} -c "$1
import time; time.sleep(60)" <&3 & within whole && said; }}
code=$?; kill $! $journald; wait $journald; exit $code
"""


def spoken(program: str, lines: list[str], burst: int) -> list[dict[str, str]]:
    """What journald has of the unit."""
    script = SCRIPT.format(journald=JOURNALD, python=sys.executable)
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", program, str(burst)],
        input="\n".join(lines), env={**os.environ, "JOURNAL_STREAM": "1:1"}, cwd=ROOT,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def test_a_real_journald_takes_no_line_of_a_container_for_one_of_its_unit() -> None:
    entries = spoken(SPEAKS, [*SPOKEN, "the end"], 10000)
    assert len(entries) > len(SPOKEN) and any(str(entry["MESSAGE"]).startswith(FORGED) for entry in entries)
    own = [entry for entry in entries if entry["SYSLOG_IDENTIFIER"] != log.SPEAKER or entry["PRIORITY"] != "7"]
    tally("a container that speaks as its unit: verdicts in the journal", len(SPOKEN), len(own))
    assert own == []


def test_a_container_that_talks_without_end_hides_no_line_of_its_unit() -> None:
    """journald takes so many lines of a unit in half a minute, up to six times the limit, counted by severity."""
    entries = spoken(ENDS, [f"INFO: 127.0.0.1:{number} GET /health" for number in range(1000)], 50)
    assert len(entries) < 500, "journald has a limit"
    assert [entry["MESSAGE"] for entry in entries if entry["SYSLOG_IDENTIFIER"] == "gb10-vllm"] == ["the end"]
