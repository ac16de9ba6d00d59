"""What a program does when the journal does not take its lines: journald closes a stream that it has no room for."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

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
