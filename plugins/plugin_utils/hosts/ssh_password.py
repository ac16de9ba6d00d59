# SPDX-License-Identifier: GPL-3.0-or-later
"""A password that ssh types for itself. It passes through a named pipe: no argument, no environment, no file.

Ansible has a way of its own, whose helper answers every ssh below it. `to_own_ssh` has it answer the first one alone.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

# Ansible forbids ssh to ask where it has no password itself. Of two words on an option ssh takes the first.
_MAY_ASK = {
    "BatchMode": "no",
    "NumberOfPasswordPrompts": "1",
    "PasswordAuthentication": "yes",
    "KbdInteractiveAuthentication": "yes",
    "PreferredAuthentications": "publickey,password,keyboard-interactive",
}
# The ssh to a jump host has the same environment: it is a child of ours, and the password is for the host behind it.
# Where a file is copied, ours is a child of sftp or scp.
_OWN_ALONE = """#!/bin/sh
if [ -r /proc/$PPID/stat ]; then
    read -r _ _ _ by _ < /proc/$PPID/stat
    read -r _ name _ above _ < /proc/$by/stat
else
    by=$(($(ps -o ppid= -p $PPID))) && name=$(ps -o comm= -p $by) above=$(ps -o ppid= -p $by)
fi
case $name in *sftp*|*scp*) by=$above ;; esac
[ $((by)) -eq {own} ] || exit 1
"""
# ssh may ask for other things too, as whether a host key is right: no password is the answer to those. And it asks
# again, by the next method, where the password was wrong: the pipe is gone then, or it would be waited for.
_ASKED = f"""{_OWN_ALONE}
case $1 in *assword*) IFS= read -r word < {{pipe}} && rm -f {{pipe}} && printf '%s\\n' "$word" ;; *) exit 1 ;; esac
"""
_OWN, _HELPER = "GB10_SSH_OF", "GB10_SSH_ASKPASS"


@contextlib.contextmanager
def given(command: Sequence[str], secret: str) -> Iterator[tuple[list[str], dict[str, str] | None]]:
    """A command line of ssh and its environment, with which it has the password where the host wants one.

    Another command, or an empty password, changes nothing.
    """
    if not secret or Path(command[0]).name != "ssh":
        yield [*command], None
        return
    with tempfile.TemporaryDirectory(prefix="gb10-ssh-") as folder:  # only this user can look into it
        pipe, program = Path(folder, "password"), Path(folder, "asked")
        program.write_text(_ASKED.format(pipe=shlex.quote(str(pipe)), own=os.getpid()), encoding="utf-8")
        program.chmod(0o700)
        words = [word for name, value in _MAY_ASK.items() for word in ("-o", f"{name}={value}")]
        asks = {"SSH_ASKPASS": str(program), "SSH_ASKPASS_REQUIRE": "force"}
        with piped(pipe, secret):
            yield [command[0], *words, *command[1:]], {**os.environ, **asks}


@contextlib.contextmanager
def piped(pipe: Path, secret: str) -> Iterator[None]:
    """Give it to the first reader of a named pipe, while the context lasts."""
    os.mkfifo(pipe, 0o600)
    threading.Thread(target=_write, args=(pipe, secret), daemon=True).start()
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):  # its reader may have removed it
            os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))  # nobody has read it: its writer waits for a reader


def _write(pipe: Path, secret: str) -> None:
    with contextlib.suppress(OSError), os.fdopen(os.open(pipe, os.O_WRONLY), "wb") as stream:  # or nobody reads it
        stream.write(secret.encode() + b"\n")


def to_own_ssh(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of an ssh that this process starts: Ansible's helper answers that one, and none to a jump host.

    `folder` is this run's own.
    """
    if not (helper := environment.get("SSH_ASKPASS")):
        return {**environment}
    program = folder / "gb10-asked"
    if not program.exists():
        # Others of this run may write it at the same moment: processes, and threads of one.
        new = folder / f"gb10-asked-{os.getpid()}-{threading.get_ident()}"
        new.write_text(f'{_OWN_ALONE.format(own=f"${_OWN}")}exec "${_HELPER}" "$@"\n', encoding="utf-8")
        new.chmod(0o700)
        new.replace(program)
    return {**environment, "SSH_ASKPASS": str(program), _HELPER: helper, _OWN: str(os.getpid())}
