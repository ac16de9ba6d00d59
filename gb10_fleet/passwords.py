"""Passwords that somebody types once for a command of `gb10`, which may run ansible-playbook many times.

They stay in the memory of this process. ansible-playbook reads each from a named pipe in the private folder of its run:
no argument, no environment, no file that a killed run leaves behind.
"""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import ssh_password

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
            stack.enter_context(ssh_password.piped(pipe, typed[option]))
        yield [word for option, pipe in pipes.items() for word in (option, str(pipe))]


@contextlib.contextmanager
def held_back(option: str) -> Iterator[None]:
    """Keep one from the playbooks that run meanwhile."""
    secret = typed.pop(option, "")
    try:
        yield
    finally:
        typed.update({option: secret} if secret else {})


def for_ssh(command: Sequence[str]) -> contextlib.AbstractContextManager[tuple[list[str], dict[str, str] | None]]:
    """A command line of ssh and its environment, with which it has the typed password where the host wants one."""
    return ssh_password.given(command, typed.get(CONNECTION, ""))
