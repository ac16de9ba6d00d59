"""Passwords that somebody types once for a command of `gb10`, which may run ansible-playbook many times.

They stay in the memory of this process. ansible-playbook reads each from a named pipe in the private folder of its run:
no argument, no environment, no file that a killed run leaves behind.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

CONNECTION, BECOME, VAULT = "--connection-password-file", "--become-password-file", "--vault-password-file"
# By the option of ansible-playbook that takes it from a file.
typed: dict[str, str] = {}


_OPENS = {CONNECTION: "SSH", BECOME: "sudo", VAULT: "the vault"}


def question(options: Sequence[str], more: str = "") -> str:
    """The question for one password that opens all of these."""
    return f"Password for {' and '.join(_OPENS[option] for option in options)}{more}:"


def ask(*options: str) -> None:
    """Ask on the terminal for one password that opens all of these. That of SSH may be that of sudo."""
    ssh = typed.get(CONNECTION, "") if options == (BECOME,) else ""
    secret = getpass.getpass(f"{question(options, ' (Enter: the same)' if ssh else '')} ") or ssh
    if secret:
        typed.update(dict.fromkeys(options, secret))


def options() -> str:
    """Return what the next command has to say to be let in as this one was: " -kK", " -k -K", " -K" or nothing."""
    letters = [f"-{letter}" for letter, option in (("k", CONNECTION), ("K", BECOME)) if option in typed]
    if len(letters) == 2 and typed[CONNECTION] == typed[BECOME]:
        return " -kK"  # one question
    return "".join(f" {each}" for each in letters)


@contextlib.contextmanager
def handed_over(folder: Path) -> Iterator[list[str]]:
    """The options with which ansible-playbook gets them, once each, while the context lasts."""
    pipes = {option: folder / option.strip("-") for option in typed}
    with contextlib.ExitStack() as stack:
        for option, pipe in pipes.items():
            stack.enter_context(_piped(pipe, typed[option]))
        yield [word for option, pipe in pipes.items() for word in (option, str(pipe))]


@contextlib.contextmanager
def held_back(option: str) -> Iterator[None]:
    """Keep one from the playbooks that run meanwhile."""
    secret = typed.pop(option, "")
    try:
        yield
    finally:
        typed.update({option: secret} if secret else {})


# Ansible forbids ssh to ask where it has no password itself. Of two words on an option ssh takes the first.
_MAY_ASK = {
    "BatchMode": "no",
    "NumberOfPasswordPrompts": "1",
    "PasswordAuthentication": "yes",
    "KbdInteractiveAuthentication": "yes",
    "PreferredAuthentications": "publickey,password,keyboard-interactive",
}
# ssh may ask for other things too, as whether a host key is right: no password is the answer to those. And it asks
# again, by the next method, where the password was wrong: the pipe is gone then, or it would be waited for.
_ASKED = """#!/bin/sh
case $1 in *assword*) IFS= read -r word < {pipe} && rm -f {pipe} && printf '%s\\n' "$word" ;; *) exit 1 ;; esac
"""


@contextlib.contextmanager
def for_ssh(command: Sequence[str]) -> Iterator[tuple[list[str], dict[str, str] | None]]:
    """A command line of ssh and its environment, with which it has the typed password where the host wants one."""
    secret = typed.get(CONNECTION)
    if not secret or Path(command[0]).name != "ssh":
        yield [*command], None
        return
    with tempfile.TemporaryDirectory(prefix="gb10-ssh-") as folder:  # only this user can look into it
        pipe, program = Path(folder, "password"), Path(folder, "asked")
        program.write_text(_ASKED.format(pipe=shlex.quote(str(pipe))), encoding="utf-8")
        program.chmod(0o700)
        words = [word for name, value in _MAY_ASK.items() for word in ("-o", f"{name}={value}")]
        asks = {"SSH_ASKPASS": str(program), "SSH_ASKPASS_REQUIRE": "force"}
        with _piped(pipe, secret):
            yield [command[0], *words, *command[1:]], {**os.environ, **asks}


@contextlib.contextmanager
def _piped(pipe: Path, secret: str) -> Iterator[None]:
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
