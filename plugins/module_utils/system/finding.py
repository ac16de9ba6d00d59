# SPDX-License-Identifier: GPL-3.0-or-later
"""One finding of the doctor, and what a connection that failed comes down to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One statement about one host; severity is error, warn or info. `way_out` is empty where `fact` says it."""

    id: str
    severity: str
    host: str
    fact: str
    way_out: str
    accepted: str | None = None

    @property
    def blocks(self) -> bool:
        return self.severity == "error" and self.accepted is None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        advice = f"\n    Fix: {self.way_out}" if self.way_out else ""
        return f"{self.host}: {self.id}: {self.fact}{advice}"


# Findings of a host with which there was no contact at all: Ansible calls it unreachable.
NO_CONTACT = frozenset({"host_key", "permission", "unreachable"})
# Characters of what a host said that are judged, the last ones. It may write without an end, and a pattern that begins
# anew at each of its words takes time by their square.
_JUDGED = 4000
_SAID = re.compile(
    r"(?P<host>\S+): (?P<id>unreachable|host_key|permission|no_sudo|unreadable): (?P<fact>.+)\n"
    r" +Fix: (?P<way_out>.+)"
)


def said_by(text: str) -> Finding | None:
    """The finding behind a connection that failed, out of the message that a task has made of it."""
    found = _SAID.fullmatch(text)
    return Finding(severity="error", **found.groupdict()) if found else None


# How ssh ends where it does not take a key, and what it says of a jump host's. What a host says, as in a banner, comes
# before ssh's last words. The name is the address that ssh went to, or the alias: a word that no shell changes.
_END = r"(?:\s|\\r)"  # of a line; ssh's have a carriage return, which `printable` shows
_HOST_KEY = re.compile(
    rf"(?:host key (?:is known )?for (?P<name>(?!-)[\w.:%@\[\]-]{{1,300}}),? (?:has changed |was revoked )?and you have"
    rf" requested strict checking\.{_END}+)?host key verification failed\.{_END}*"
    rf"(?:kex_exchange_identification: (?:read: )?connection (?:closed by remote host|reset by peer){_END}+"
    rf"connection (?:closed|reset) by unknown port 65535{_END}*)?\Z",
    re.I,
)
_HOST_KEY_OF_ANSIBLE = re.compile(
    r"(Task failed: )?Using a SSH password instead of a key is not possible because Host Key checking is enabled\. .*"
    r"to manage this host\.( \(exit status 1\))?"
)
_DENIED = re.compile(r"permission denied \(|too many authentication failures", re.I)  # so ssh says it, and no program
_BY_PASSWORD = re.compile(
    r"permission denied \([\w,-]*(password|keyboard-interactive)", re.I
)  # the host would take one
# What is wrong before anybody logs in, and what helps.
_NO_SSHPASS = "must install the sshpass program"  # so Ansible says it, before it asks any host
_BEFORE_LOGIN = (
    (
        re.compile(_NO_SSHPASS),
        "this machine has no sshpass, by which your ansible.cfg wants a password typed",
        "install sshpass here, take `password_mechanism = sshpass` out of ansible.cfg, or use a key",
    ),
    (
        re.compile(r"password (has expired|change required)|account (has expired|is (currently )?not available)", re.I),
        "the account lets nobody in",
        "log in by hand once, for a new password is asked for; where it has no shell or has ended, set ansible_user to"
        " another one (`chage -l USER` and `getent passwd USER` on the host tell)",
    ),
    (
        re.compile(r"no matching [\w ]{3,40} found", re.I),
        "ssh here and sshd there have no algorithm in common",
        "bring the older of the two up to date; `ssh -vv` shows what each offers",
    ),
    (
        re.compile(
            r"bad owner or permissions on|bad configuration option|unsupported option \"|"
            r"\bssh\S*config\S*:? line \d+: (?!Applying)",
            re.I,
        ),
        "ssh here cannot read its own configuration",
        "correct the file and the line that ssh names; its owner must be root or you, and nobody else may write it",
    ),
    (
        re.compile(r"too long for unix domain socket|controlpath too long", re.I),
        "the path of ssh's control socket is too long",
        "set `control_path_dir` of ansible.cfg to a short folder that only you may write to, as `~/.cp`",
    ),
    (
        re.compile(r"bad permissions|unprotected private key|load key \".*\": |incorrect passphrase", re.I),
        "ssh cannot use the private key",
        "the key must be whole, and its owner's alone: `chmod 600` its file (ansible_ssh_private_key_file)",
    ),
    (
        re.compile(r"\btailscale: (?!(command )?not found)|\btailscale ssh (requires|check)", re.I),
        "Tailscale's own sshd answers, which asks its policy and no key",
        "let ansible_user in by a rule of the tailnet's `ssh` with `accept`, or set ansible_host"
        " to an address outside of the tailnet",
    ),
)
# So ssh calls the other end where a program or a jump host makes the connection.
_BETWEEN = r"(by|to) unknown port 65535"
# The connection is there, and ends before a login.
_TURNED_AWAY = re.compile(rf"kex_exchange_identification: (?!banner line)(?!.*{_BETWEEN})", re.I | re.S)
_WRONG = re.compile(r"incorrect (\w+ )?password", re.I)
_NO_PASSWORD = "add -K (--ask-become-pass) and type the password of sudo, or -kK where SSH wants it too"  # noqa: S105
_WRONG_SUDO = (
    "the password that this run has is wrong: type it anew (-K; where it is not that of SSH, -k -K), or correct it"
    " where the inventory has it"
)
# Whoever adds -k alone meets the refusal of sudo next.
BY_TYPING = ", or add -kK and type the password of SSH and sudo (-k -K: two of them)"
# Why no login came about where something answers, and what helps.
_NO_LOGIN = (
    (
        re.compile(r"system is (booting up|going down)|pam_nologin", re.I),
        "the host lets nobody in yet",
        "the host starts or stops: wait some minutes",
    ),
    (
        # As mkdir and a shell say it there. Of this machine ssh says "could not create", and Python a number.
        re.compile(
            r"cannot create [^\n]{1,300}: (no space left on device|disk quota exceeded|read-only file system)", re.I
        ),
        "no file can be written on the host",
        "free room there (`df -h`, `journalctl --disk-usage`); where a disk can only be read, `journalctl -k` says why",
    ),
    (
        re.compile(
            r"banner exchange: .*invalid format|banner line contains|bad remote protocol version|"
            r"protocol major versions|invalid ssh identification|bad packet length|corrupted mac|"
            r"ssh_dispatch_run_fatal: .*(authentication code|signature|libcrypto|invalid|incomplete)",
            re.I,
        ),
        "what answers is no sound sshd",
        "another program may have that port, or a device in between changes what passes: compare ansible_host and"
        " ansible_port",
    ),
    (
        re.compile(_BETWEEN, re.I),
        "what ssh goes through to the host ended",
        "`ssh -G HOST` names it (ProxyCommand, ProxyJump): it must be installed here and answer by itself; where it"
        " does, look at the host",
    ),
)
# What sudo itself says is a refusal. None are: a host name that it cannot resolve, a limit that it cannot set, and a
# Python that is not there.
MAY_NOT = re.compile(r"not in the sudoers|may not run sudo|not allowed to (execute|run sudo)", re.I)
_SUDO = re.compile(
    rf"missing \w+ password|incorrect \w+ password|a (terminal|password) is required|{MAY_NOT.pattern}|"
    r"sudo: (command )?not found|command not found: sudo|waiting for privilege escalation|"
    r"\bsudo(-rs)?: (?!unable to (resolve|send)|setrlimit|\S*python|unable to execute \S*python)[\w/'\"]",
    re.I,
)
# Other ways to become root, by their own words; and a shell that has no such program. Of Python it says so below.
_BECOME = re.compile(
    r"\b(?P<by>su|doas|dzdo|pbrun|pfexec|ksu): (?!\S+@)[\w ]*(authenti|authoriz|not permitted|permission denied|"
    r"terminal|tty|not found)|sh: (\d+: |line \d+: )?(exec: )?(?P<program>(?!\S*python)[\w./-]+): "
    r"((command )?not found|no such file|permission denied \(exit status 126\))",
    re.I,
)
# What Ansible puts before the words of ssh; each version has its own.
_BEFORE_SSH = re.compile(
    r"\A(Task failed: )?(Failed to connect to the host via ssh: |"
    r"Data could not be sent to remote host \S+ Make sure this host can be reached over ssh: )?"
)
FIX = re.compile(r"\bfix:", re.I)  # in words of a host, which advises nobody in our name
_PYTHON = re.compile(r"interpreter.*not found|python.*(not found|no such file)|no such file.*python", re.I | re.S)


def unadvised(text: str) -> str:
    """Words of a stranger, such as a host, a switch or whoever made a model: none stand behind `Fix:`, as ours do."""
    return FIX.sub("fix,", text)


def try_by_hand(host: str, *options: str) -> str:
    """A command that reaches the host as the run does: with its address, user and key, and without its Python."""
    return " ".join(("ansible", host, "-i INVENTORY", *options, "-m raw -a true"))


def from_failure(
    host: str, text: str, answered: bool = False, cluster: str = "CLUSTER", size: int = 0, others: bool = True
) -> Finding:
    """The finding behind a connection that failed, or behind facts that a host which answered did not give.

    ``cluster`` is what a --limit names to leave the host out together with its cluster, of ``size`` hosts (0: nobody
    knows). ``others``: whether there are hosts besides to go on with.
    """
    said = unadvised(_BEFORE_SSH.sub("", " ".join(text.split()), count=1)[-300:]) or "no reason given"
    text = text[-_JUDGED:]
    early = not answered or _NO_SSHPASS in text
    if early and (ours := next((each for each in _BEFORE_LOGIN if each[0].search(text)), None)):
        return Finding("permission", "error", host, f"{ours[1]}: {said}", f"{ours[2]}; {try_by_hand(host)} must work")
    unknown = None if answered else _HOST_KEY.search(text)
    if unknown or _HOST_KEY_OF_ANSIBLE.fullmatch(text.strip()):
        way_out = _to_know(unknown["name"] if unknown and unknown["name"] else "ADDRESS")
        return Finding("host_key", "error", host, f"the SSH host key is unknown or has changed: {said}", way_out)
    began = answered or not re.search(_BETWEEN, text, re.I)  # else a shell that says something is this machine's
    if began and _SUDO.search(text):
        typed = f"{_WRONG_SUDO if _WRONG.search(text) else _NO_PASSWORD}; or let this user run sudo without a password"
        allowed = "set ansible_user to one who may use sudo, or let this one" if MAY_NOT.search(text) else typed
        way_out = f"{allowed} (a file in /etc/sudoers.d); check with: {try_by_hand(host, '--become', '-K')}"
        return Finding("no_sudo", "error", host, f"sudo was refused: {said}", way_out)
    if began and (became := _BECOME.search(text)):
        way_out = (
            "check ansible_become_method, ansible_become_exe and the password (-K, --ask-become-pass) of this host; "
            f"check with: {try_by_hand(host, '--become', '-K')}"
        )
        by = became["by"] or became["program"]
        return Finding("no_sudo", "error", host, f"{by} did not make us root: {said}", way_out)
    if _PYTHON.search(text):
        way_out = "install python3 on the host, or set ansible_python_interpreter to the one it has"
        return Finding("unreadable", "error", host, f"no usable Python answered: {said}", way_out)
    if answered:
        way_out = "run once more with -vvv for the whole answer; if the host is sound, this is a defect of gb10-fleet"
        return Finding("unreadable", "error", host, f"the host's facts could not be read: {said}", way_out)
    without = f"; to go on without it, leave its whole cluster out (--limit '!{cluster}')" if others else ""
    if _DENIED.search(text):
        typed = BY_TYPING if _BY_PASSWORD.search(text) else ""
        way_out = f"check ansible_user and its key: {try_by_hand(host)} must work{typed}{without}"
        return Finding("permission", "error", host, f"the host does not let us in: {said}", way_out)
    if _TURNED_AWAY.search(text):
        way_out = (
            "sshd does so for a while after failed logins (PerSourcePenalties) and where too many come at once "
            f"(MaxStartups): check ansible_user and its key, wait a minute, then {try_by_hand(host)} must work{without}"
        )
        return Finding("permission", "error", host, f"the host closes the connection before a login: {said}", way_out)
    if theirs := next((each for each in _NO_LOGIN if each[0].search(text)), None):
        way_out = f"{theirs[2]}; {try_by_hand(host)} must work{without}"
        return Finding("unreachable", "error", host, f"{theirs[1]}: {said}", way_out)
    way_out = f"check power, network, ansible_host and ansible_user: {try_by_hand(host)} must work"
    if size == 2:
        way_out += "; if it is dead for good, docs/inventory.md (One Spark of a pair is dead) has the other one serve"
    way_out += without
    return Finding("unreachable", "error", host, f"the host did not answer over SSH: {said}", way_out)


def _to_know(name: str) -> str:
    """How to take a host key; `name` as ssh writes it, with its port where that is not 22."""
    asked = re.sub(r"\[(.+)\]:(\d+)", r"-p \2 \1", name).split()
    return (
        "compare the fingerprint on the host's own console (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub),"
        f" then put it into known_hosts in place of the former one (`ssh-keyscan {shlex.join(asked)}`);"
        " do not switch host key checking off"
    )


_WITHOUT_IT = re.compile(r"; to go on without it, leave its whole cluster out \(--limit '!(.+)'\)\Z")


def together(ways: Sequence[str], all_silent: bool = False) -> tuple[list[str], str]:
    """These ways out, and one --limit for all silent hosts in place of one in each; empty where one at most has it.

    ``all_silent``: no host answered, so there is none to go on with.
    """
    if all_silent:
        return [_WITHOUT_IT.sub("", way) for way in ways], ""
    clusters = [found[1] for way in ways if (found := _WITHOUT_IT.search(way))]
    if len(clusters) < 2:
        return [*ways], ""
    limit = ",".join(f"!{cluster}" for cluster in dict.fromkeys(clusters))
    without = f"to go on without them, leave their whole clusters out (--limit '{limit}')"
    return [_WITHOUT_IT.sub("", way) for way in ways], without
