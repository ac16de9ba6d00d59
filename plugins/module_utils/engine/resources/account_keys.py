# SPDX-License-Identifier: GPL-3.0-or-later
"""One SSH key that opens one account, in files that its owner may change, too: the other lines are his.

They lie where their owner can put anything, so no link is followed.
"""

from __future__ import annotations

import binascii
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.accounts import (
    Account,
    Accounts,
    User,
    accounts_of,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system import folders
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System, set_access

# alice ssh-ed25519 AAAA...: the account, and the key without its comment
_KEY = re.compile(r"[a-z_][a-z0-9_-]{0,31} [a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}\Z")
_BETWEEN = re.compile(r"[ \t]+")
_WITHIN = re.compile(r"[\r\f\v]+")  # sshd leaves it out of a key
_BLOB = re.compile(r"AAAA[A-Za-z0-9+/]{56,}={0,2}\Z")  # with the name of a type first, and no key is shorter
_FOLDER = ".ssh"
_FILES = ("authorized_keys", "authorized_keys2")  # sshd reads both
_LARGEST = 1 << 20  # characters of such a file; its owner may write as many as his disk takes


@dataclass(frozen=True)
class Key(Resource):
    """`absent`: this line goes, and no other."""

    KIND = "account_key"

    state: str = "present"

    @property
    def user(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def line(self) -> str:
        return self.name.partition(" ")[2]

    @cached_property
    def meant(self) -> str | list[bytes]:
        return _meant(self.line.split()[1])

    def is_in(self, line: str) -> bool:
        """Tell whether a line of the file has this key, however it is written, with whatever options and comment."""
        return any(_meant(word) == self.meant for word in _BETWEEN.split(_read(line)))


@dataclass(frozen=True)
class Keys:
    """The lines of each account's files."""

    accounts: Accounts
    lines: Mapping[str, Sequence[str]]


class KeyKind(Kind[Key, Keys]):
    name = Key.KIND

    def parse(self, index: int, fields: Fields) -> Key:
        resource = Key(
            index=index,
            name=fields.name(_KEY, "an account and a public key, as alice ssh-ed25519 AAAA..."),
            state=fields.choice("state", ("present", "absent"), "present"),
        )
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[Key]) -> Keys:
        accounts = accounts_of(system)
        users = {each.user for each in resources if each.user in accounts.users}
        homes = {user: accounts.users[user].home for user in users}
        return Keys(
            accounts,
            {user: [line for file in _FILES for line in _lines(system, home, file)] for user, home in homes.items()},
        )

    def plan(self, resources: Sequence[Key], state: Keys, plan: Plan) -> None:
        moves = {step.resource.name: step.action for step in plan.steps if step.resource.KIND == User.KIND}
        left = {user: [line for line in lines if _read(line)] for user, lines in state.lines.items()}
        for resource in resources:
            present = any(map(resource.is_in, state.lines.get(resource.user, ())))
            if resource.state == "present" and not present:
                if resource.user not in state.accounts.users and moves.get(resource.user) != "create":
                    raise HostError(f"{resource.label}: this host has no such account; declare it in accounts_users")
                plan.steps.append(Step(resource, "create", "no such line"))
                left.setdefault(resource.user, []).append(resource.line)
            elif resource.state == "absent" and present:
                left[resource.user] = [line for line in left[resource.user] if not resource.is_in(line)]
                plan.steps.append(Step(resource, "remove", "the account stays"))
        login = state.accounts.login
        gone = next((step.resource for step in plan.steps if _takes_from(step, login)), None)
        if gone is not None and not left[login]:
            raise HostError(
                f"{gone.label}: Ansible comes by this account, and no key would be left; give it another key first"
            )

    def apply(self, system: System, steps: Sequence[Step[Key]], state: Keys, progress: Progress) -> None:
        users = accounts_of(system).users
        for step in steps:
            resource = step.resource
            account = users.get(resource.user)
            if account is not None:  # it may have gone in the same undo, and its file is nobody's then
                for file in _FILES[:1] if resource.state == "present" else _FILES:
                    lines = _lines(system, account.home, file)
                    left = [line for line in lines if not resource.is_in(line)]
                    if resource.state == "present":
                        left.append(resource.line)
                    if left != lines:
                        _write(system, resource, account, file, left)
            progress.done.append(step)

    def record(self, resource: Key, state: Keys) -> dict[str, Any]:
        return {"there": any(map(resource.is_in, state.lines.get(resource.user, ())))}

    def restore(self, resource: Key, record: Mapping[str, Any]) -> list[Resource]:
        """A key that was taken out opens nothing again; it may have had options, and nobody keeps those."""
        stays = record["there"] and resource.state == "present"
        return [replace(resource, state="present" if stays else "absent")]


def _read(line: str) -> str:
    """What sshd reads of a line: nothing of a comment, and nothing behind a NUL."""
    read = line.partition("\0")[0].lstrip(" \t")
    return "" if read.startswith("#") else read.rstrip()


def _meant(word: str) -> str | list[bytes]:
    """What OpenSSH compares of a key: its parts behind the type, which has several names, without zeros in front.

    Of what is no key the word itself.
    """
    word = _WITHIN.sub("", word)
    if not _BLOB.match(word):
        return word
    try:
        key = binascii.a2b_base64(word)
    except binascii.Error:
        return word
    parts, at = [], 0
    while at < len(key):
        begins, at = at + 4, at + 4 + int.from_bytes(key[at : at + 4], "big")
        parts.append(key[begins:at].lstrip(b"\0"))
    return parts[1:] if at == len(key) and len(parts) > 1 else word


def _takes_from(step: Step[Any], user: str) -> bool:
    return isinstance(step.resource, Key) and step.action == "remove" and step.resource.user == user


def _lines(system: System, home: str, name: str) -> list[str]:
    """The lines of a file as sshd reads them; none where there is none.

    Where Python ends a line as well, at a form feed or U+2028, a comment would become a key.
    """
    place = f"{home}/{_FOLDER}/{name}"
    try:
        with system.folder_of(place) as parent:
            descriptor = folders.open_file(name, parent)
        with os.fdopen(descriptor, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            linked = os.fstat(descriptor).st_nlink > 1
            text = file.read(_LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise HostError(f"{place} cannot be read: {error.strerror}; put a plain file there") from None
    if linked:  # what is in it would become the account's own
        raise HostError(f"{place} is a hard link to another file; put a plain file there")
    if len(text) > _LARGEST:
        raise HostError(f"{place} is larger than 1 MiB; shorten it")
    return text.removesuffix("\n").split("\n") if text else []


def _write(system: System, resource: Key, account: Account, name: str, lines: Sequence[str]) -> None:
    folder = f"{account.home}/{_FOLDER}"
    try:
        with system.folder_of(folder) as parent:
            new = folders.status_of(_FOLDER, parent) is None
            made = folders.make_folder(_FOLDER, parent, 0o700)
            try:
                if new:
                    set_access(made, 0o700, account.uid, account.gid)
                there = folders.status_of(name, made)
                mode = stat.S_IMODE(there.st_mode) if there else 0o600
                if not lines:
                    folders.remove_file(name, made)
            finally:
                os.close(made)
        if lines:
            content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
            system.write(f"{folder}/{name}", content, mode=mode, owner=str(account.uid), group=str(account.gid))
    except OSError as error:
        raise HostError(f"{resource.label}: {folder}: {error.strerror}") from None
