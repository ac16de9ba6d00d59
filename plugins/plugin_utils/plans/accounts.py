# SPDX-License-Identifier: GPL-3.0-or-later
"""Which people have an account on a host, with which numbers and keys, and who may become root."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings, SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
# A type and the key itself; what stands in front would be an option, and what stands behind is a comment.
_KEY = re.compile(r"((?:ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2})(?: [^\n]*)?\Z")
_SHOWN = 40  # characters of a key that an error quotes


@dataclass(frozen=True)
class AccountsSettings(RoleSettings, role="accounts"):
    accounts_users: tuple[Mapping[str, Any], ...]
    accounts_groups: tuple[Mapping[str, Any], ...]
    accounts_allow_sudo: bool


@dataclass(frozen=True)
class Group:
    name: str
    gid: int


@dataclass(frozen=True)
class User:
    """`groups` beside the own one, which has its name; None for those in which it is."""

    name: str
    uid: int
    groups: tuple[str, ...] | None
    shell: str | None


@dataclass(frozen=True, kw_only=True)
class AccountsPlan(RolePlan):
    """`keys` and `revoked` are an account and a key, as the engine names them; `leaving` accounts, whose homes stay."""

    manages: bool = False
    groups: tuple[Group, ...] = ()
    users: tuple[User, ...] = ()
    keys: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()
    sudoers: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()


def plan(view: View) -> AccountsPlan:
    settings = view.settings(AccountsSettings)
    if not settings.accounts_users and not settings.accounts_groups:
        return AccountsPlan()
    refusals = (*_mistakes(settings), *_elsewhere(view, settings))
    services = view.facts.get("account_services") or []
    if services or refusals:
        return AccountsPlan(refusals=refusals, findings=(_kept_away(services),) if services else ())
    staying = [user for user in settings.accounts_users if user["state"] == "present"]
    leaving = [user for user in settings.accounts_users if user["state"] == "absent"]
    return AccountsPlan(
        manages=True,
        groups=(
            *(Group(user["name"], gid) for user in staying if (gid := _gid(user)) is not None),
            *(Group(group["name"], group["gid"]) for group in settings.accounts_groups),
        ),
        users=tuple(User(user["name"], user["uid"], _groups(user), user.get("shell")) for user in staying),
        keys=tuple(_opening(staying, "keys")),
        revoked=(*_opening(staying, "revoked_keys"), *_opening(leaving, "keys"), *_opening(leaving, "revoked_keys")),
        sudoers=tuple(user["name"] for user in staying if user["sudo"]),
        leaving=tuple(user["name"] for user in leaving),
    )


def _gid(user: Mapping[str, Any]) -> int | None:
    gid: int | None = user.get("gid")
    return user.get("uid") if gid is None else gid


def _groups(user: Mapping[str, Any]) -> tuple[str, ...] | None:
    groups = user.get("groups")
    return None if groups is None else tuple(dict.fromkeys(groups))


def _opening(users: list[Mapping[str, Any]], field: str) -> Iterator[str]:
    for user in users:
        for key in dict.fromkeys(_bare(key) for key in user[field]):
            yield f"{user['name']} {key}"


def _bare(key: str) -> str | None:
    """A key without its comment; None for what is no key."""
    found = _KEY.match(" ".join(key.split()))
    return found[1] if found else None


def _kept_away(services: list[str]) -> Mapping[str, Any]:
    return {
        "id": "account_services",
        "severity": "warn",
        "fact": f"this host has its accounts from {', '.join(services)}, so the role accounts does nothing here",
        "way_out": "make these accounts there, and take accounts out of gb10_roles of this host",
        "accepted": None,
    }


def _mistakes(settings: AccountsSettings) -> Iterator[str]:
    """What the inventory says of one host, and cannot mean."""
    low, high = catalog.load("accounts")["numbers"]["value"]
    seen: set[str] = set()
    named = [("accounts_users", user) for user in settings.accounts_users]
    for variable, entry in (*named, *(("accounts_groups", group) for group in settings.accounts_groups)):
        name = entry["name"]
        where = f"{variable}[{name}]"
        if not _NAME.match(name) or name == "root":
            yield f"{variable} holds {name!r}. Name small letters, digits, _ and -, 32 at most, and not root."
            continue
        if name in seen:
            yield f"{where} is there twice, as a user or a group. Its account has a group of that name, too."
        seen.add(name)
        if entry.get("state") == "absent":
            continue
        if entry.get("uid", 0) is None or (variable == "accounts_users" and "uid" not in entry):
            yield f"{where} has no uid. Give it the number that it has on all hosts."
            continue
        for word, number in (("uid", entry.get("uid")), ("gid", entry.get("gid"))):
            if number is not None and not low <= number <= high:
                yield f"{where}.{word} is {number}. Take a number from {low} to {high}, which are for people."
    numbers = [(user["name"], user.get("uid")) for user in settings.accounts_users if user["state"] == "present"]
    groups = [(entry["name"], _gid(entry)) for __, entry in named if entry["state"] == "present"]
    groups += [(group["name"], group["gid"]) for group in settings.accounts_groups]
    yield from _twice("uid", numbers)
    yield from _twice("gid", groups)
    for user in settings.accounts_users:
        yield from _of_user(user, settings.accounts_allow_sudo)


def _twice(word: str, numbers: list[tuple[str, int | None]]) -> Iterator[str]:
    holders: dict[int, str] = {}
    for name, number in numbers:
        if number is not None and holders.setdefault(number, name) != name:
            yield f"{holders[number]} and {name} have the same {word} {number}. Give each its own."


def _of_user(user: Mapping[str, Any], allowed: bool) -> Iterator[str]:
    where = f"accounts_users[{user['name']}]"
    for field in ("keys", "revoked_keys"):
        for key in user[field]:
            if _bare(key) is None:
                yield f"{where}.{field} holds {key[:_SHOWN]!r}. Write a public key as in a file .pub, without options."
    both = {_bare(key) for key in user["keys"]} & {_bare(key) for key in user["revoked_keys"]} - {None}
    if both:
        yield f"{where} has a key in keys and in revoked_keys. Take it out of one of them."
    shell = user.get("shell")
    if shell is not None and not re.match(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+\Z", shell):
        yield f"{where}.shell is {shell!r}. Write the absolute path of a shell."
    wrong = [name for name in user.get("groups") or () if not _NAME.match(name)]
    if wrong:
        yield f"{where}.groups holds {', '.join(map(repr, wrong))}. Name groups."
    mighty = [name for name in user.get("groups") or () if name in catalog.load("accounts")["root_groups"]["value"]]
    if user["state"] == "present" and (user["sudo"] or mighty) and not allowed:
        by = f"is in {', '.join(mighty)}" if mighty else "has sudo"
        yield f"{where} {by}, and can become root. Set accounts_allow_sudo: true, or leave that out."


def _elsewhere(view: View, settings: AccountsSettings) -> Iterator[str]:
    """Numbers are the same on all hosts of the inventory: an archive and a share know files by numbers only."""
    for word, own in _numbers(settings).items():
        for host in view.inventory:
            if host == view.host:
                continue
            try:
                theirs = _numbers(view.of(host).settings(AccountsSettings))[word]
            except SettingsError:
                continue  # it is said of that host
            for name in sorted({*own} & {*theirs}):
                if own[name] != theirs[name]:
                    yield f"{name} has {word} {own[name]} here, and {theirs[name]} on {host}. Give it one everywhere."


def _numbers(settings: AccountsSettings) -> dict[str, dict[str, int | None]]:
    staying = [user for user in settings.accounts_users if user["state"] == "present"]
    groups = {group["name"]: group["gid"] for group in settings.accounts_groups}
    return {
        "uid": {user["name"]: user.get("uid") for user in staying},
        "gid": {**{user["name"]: _gid(user) for user in staying}, **groups},
    }
