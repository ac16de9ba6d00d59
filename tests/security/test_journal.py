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
# The last line is waited for: journald reads when it comes to it.
SCRIPT = """
mount -t tmpfs none /run && mkdir -p /run/log/journal /run/systemd/journal
{journald} & journald=$!
within() {{ for _ in $(seq 200); do "$@" && return; sleep 0.05; done; return 1; }}
said() {{ journalctl -D /run/log/journal _SYSTEMD_UNIT=gb10-vllm-chat.service -o json --no-pager; }}
whole() {{ said | grep -q '"the end"'; }}
within test -S /run/systemd/journal/stdout && {python} -c "$1" && within whole && said
code=$?; kill $journald; wait $journald; exit $code
"""


def test_a_real_journald_takes_no_line_of_a_container_for_one_of_its_unit() -> None:
    script = SCRIPT.format(journald=JOURNALD, python=sys.executable)
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", SPEAKS],
        input="\n".join([*SPOKEN, "the end"]), env={**os.environ, "JOURNAL_STREAM": "1:1"}, cwd=ROOT,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(entries) > len(SPOKEN) and any(str(entry["MESSAGE"]).startswith(FORGED) for entry in entries)
    own = [entry for entry in entries if entry["SYSLOG_IDENTIFIER"] != log.SPEAKER or entry["PRIORITY"] != "6"]
    tally("a container that speaks as its unit: verdicts in the journal", len(SPOKEN), len(own))
    assert own == []
