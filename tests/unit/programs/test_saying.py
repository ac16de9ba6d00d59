"""What a program does when the journal does not take its lines: journald closes a stream that it has no room for."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.gates import ROOT

P = "ansible_collections.gb10.fleet.plugins.module_utils.programs"
SAYS = {
    "a served model": f"from {P}.vllm_unit.status import say",
    "the host guard": f"from {P}.host_guard import say",
    "the watchdog": f"from {P}.watchdog.main import say",
    "the recorder": f"from {P}.recorder.keep import say",
}


@pytest.mark.parametrize("imported", SAYS.values(), ids=SAYS)
def test_a_program_goes_on_and_ends_well_where_journald_takes_no_line(imported: str) -> None:
    """Exit status 120 of the host guard, for what could not be written at its end, rebooted the host."""
    ours, journald = socket.socketpair()
    journald.close()
    program = f"{imported}\nsay('one')\nsay('two')\nopen('/dev/stderr', 'w').write('goes on')"
    with ours:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=ours, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (0, "goes on")


def test_the_page_cache_guard_does_its_work_where_journald_takes_no_line(tmp_path: Path) -> None:
    """It ended at its first line, and the load had no guard."""
    text = (ROOT / "roles/page_cache/templates/gb10-page-cache-guard.j2").read_text()
    program = tmp_path / "guard.py"
    program.write_text(text.partition("}}\n")[2].partition("if __name__")[0] + "say('one')\nsay('two')\nos._exit(3)")
    ours, journald = socket.socketpair()
    journald.close()
    with ours:
        done = subprocess.run([sys.executable, program], stdout=ours, check=False)
    assert done.returncode == 3 and "print(" not in text.replace("print(text, flush=True)", "")
