# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounts of people: groups and users with numbers that are the same on all hosts, changed by Debian's own programs.

Numbers are never changed, because files keep the old ones: what speaks against a number is named, and refused. A home
is never removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    Fields,
    Kind,
    Limits,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
_NAMED = "a name of small letters, digits, _ and -, 32 characters at most"
_PATH = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+\Z")
_NUMBER = Limits(1000, 2**31 - 1)  # below are those of the system; what is for people, says the plan of the role
_LOOK_S = 300.0  # through all files of the root file system, before a number is given away for the first time
_MOST = 5  # files that an error names
# Containers have accounts of their own: what their images hold belongs to nobody here.
_LAYERS = ("/var/lib/docker", "/var/lib/containerd")


@dataclass(frozen=True)
class Group(Resource):
    KIND = "account_group"

    gid: int = 0
    state: str = "present"


@dataclass(frozen=True)
class User(Resource):
    """`groups` beside the own one: all of them; None leaves those that are there."""

    KIND = "account"

    uid: int = 0
    group: str = ""
    groups: tuple[str, ...] | None = None
    shell: str = ""
    home: str = ""
    state: str = "present"

    @property
    def place(self) -> str:
        return self.home or f"/home/{self.name}"


@dataclass(frozen=True)
class Account:
    """One of /etc/passwd."""

    uid: int
    gid: int
    home: str
    shell: str


@dataclass(frozen=True)
class Accounts:
    """What the host has. `strays`: by number, files that would change hands; `busy`: processes by account."""

    users: Mapping[str, Account]
    groups: Mapping[str, int]
    members: Mapping[str, frozenset[str]]  # by the name of a group
    strays: Mapping[int, Sequence[str]]
    busy: Mapping[str, Sequence[str]]
    login: str  # the account by which Ansible has come; empty where root itself has

    def group_of(self, gid: int) -> str:
        return next((name for name, number in self.groups.items() if number == gid), str(gid))

    def groups_of(self, user: str) -> tuple[str, ...]:
        return tuple(sorted(name for name, members in self.members.items() if user in members))


def accounts_of(system: System) -> Accounts:
    """The accounts of the host's own files."""
    users: dict[str, Account] = {}
    for name, number, gid, home, shell in (
        (row[0], row[2], row[3], row[5], row[6]) for row in _rows(system, "passwd") if len(row) > 6
    ):
        if number.isdigit() and gid.isdigit():
            users.setdefault(name, Account(int(number), int(gid), home, shell))
    groups = [(row[0], int(row[2]), row[3]) for row in _rows(system, "group") if len(row) > 3 and row[2].isdigit()]
    members = {name: frozenset(filter(None, said.split(","))) for name, _gid, said in groups}
    return Accounts(users, {name: gid for name, gid, _said in groups}, members, {}, {}, _login(system, users))


def _login(system: System, users: Mapping[str, Account]) -> str:
    """sudo names it; with su or doas the kernel has kept whose login it was."""
    number = (system.text("/proc/self/loginuid") or "").strip()
    return os.environ.get("SUDO_USER") or next((name for name, it in users.items() if str(it.uid) == number != "0"), "")


def _rows(system: System, database: str) -> list[list[str]]:
    return [line.split(":") for line in (system.text(f"/etc/{database}") or "").splitlines()]


def _files_of(system: System, test: str, numbers: Mapping[int, str]) -> dict[int, list[str]]:
    """The first files of each number, outside of the folder that may be of that number."""
    found: dict[int, list[str]] = {}
    for number, home in numbers.items():
        pruned = [word for path in (*_LAYERS, home) for word in ("-path", path, "-o")][:-1]
        argv = ["find", "/", "-xdev", "(", *pruned, ")", "-prune", "-o", test, str(number), "-print"]
        # The first lines suffice, and without them nobody waits for the rest.
        done = system.run(
            ["sh", "-c", f'"$@" 2>/dev/null | head -n {_MOST}', "sh", *argv],
            timeout=_LOOK_S,
        )
        if done.rc != 0:
            raise HostError(f"whose files have the number {number} could not be looked up: {done.words}; run it again")
        found[number] = done.stdout.splitlines()
    return found


def _change(system: System, resource: Resource, argv: Sequence[str]) -> None:
    done = system.run(argv)
    if done.rc != 0:
        raise HostError(f"{resource.label}: {argv[0]}: {done.words}")


class GroupKind(Kind[Group, Accounts]):
    name = Group.KIND

    def parse(self, index: int, fields: Fields) -> Group:
        state = fields.choice("state", ("present", "absent"), "present")
        gid = fields.number("gid", _NUMBER) if state == "present" or fields.has("gid") else 0
        resource = Group(index=index, name=fields.name(NAME, _NAMED), gid=gid, state=state)
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[Group]) -> Accounts:
        state = accounts_of(system)
        new = {each.gid: "/home" for each in resources if each.state == "present" and each.name not in state.groups}
        return replace(state, strays=_files_of(system, "-gid", new))

    def plan(self, resources: Sequence[Group], state: Accounts, plan: Plan) -> None:
        for resource in resources:
            gid = state.groups.get(resource.name)
            if resource.state == "absent":
                if gid is not None:
                    plan.steps.append(Step(resource, "remove", f"gid {gid}"))
            elif gid is None:
                _is_free(resource, resource.gid, "gid", state.groups, state.strays)
                plan.steps.append(Step(resource, "create", f"gid {resource.gid}"))
            elif gid != resource.gid:
                raise HostError(_other_number(resource, "gid", gid, resource.gid, f"groupmod -g {resource.gid}"))

    def apply(self, system: System, steps: Sequence[Step[Group]], state: Accounts, progress: Progress) -> None:
        for step in steps:
            resource = step.resource
            if step.action == "create":
                _change(system, resource, ["groupadd", "--gid", str(resource.gid), resource.name])
            elif resource.name in accounts_of(system).groups:  # an own group goes with its account
                _change(system, resource, ["groupdel", resource.name])
            progress.done.append(step)

    def record(self, resource: Group, state: Accounts) -> dict[str, Any]:
        return {"gid": state.groups.get(resource.name)}

    def restore(self, resource: Group, record: Mapping[str, Any]) -> list[Resource]:
        gid = record["gid"]
        if gid is None or resource.state == "absent":
            return [replace(resource, state="absent")]
        return [replace(resource, gid=gid)]


class UserKind(Kind[User, Accounts]):
    name = User.KIND

    def parse(self, index: int, fields: Fields) -> User:
        state = fields.choice("state", ("present", "absent"), "present")
        resource = User(
            index=index,
            name=fields.name(NAME, _NAMED),
            uid=fields.number("uid", _NUMBER) if state == "present" or fields.has("uid") else 0,
            group=fields.line("group", "", NAME, _NAMED),
            groups=fields.lines("groups", NAME, _NAMED) if fields.has("groups") else None,
            shell=fields.line("shell", "", _PATH, "an absolute path"),
            home=fields.line("home", "", _PATH, "an absolute path"),
            state=state,
        )
        if state == "present" and not resource.group:
            raise fields.fail("group", f"expected {_NAMED}, found nothing")
        if resource.name == "root":
            raise fields.fail("account", "root is no account for this; name another")
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[User]) -> Accounts:
        state = accounts_of(system)
        new = {each.uid: each.place for each in resources if each.state == "present" and each.name not in state.users}
        going = [each.name for each in resources if each.state == "absent" and each.name in state.users]
        busy = {name: system.run(["ps", "-o", "pid=", "-U", name]).stdout.split() for name in going}
        return replace(state, strays=_files_of(system, "-uid", new), busy=busy)

    def plan(self, resources: Sequence[User], state: Accounts, plan: Plan) -> None:
        for resource in resources:
            there = state.users.get(resource.name)
            if resource.state == "absent":
                if there is not None:
                    _may_go(resource, state)
                    plan.steps.append(Step(resource, "remove", f"uid {there.uid}; {there.home} stays"))
                continue
            _has_groups(resource, state, plan)
            if there is None:
                taken = {name: account.uid for name, account in state.users.items()}
                _is_free(resource, resource.uid, "uid", taken, state.strays)
                plan.steps.append(Step(resource, "create", f"uid {resource.uid}"))
                continue
            if there.uid != resource.uid:
                way = f"usermod -u {resource.uid}"
                raise HostError(_other_number(resource, "uid", there.uid, resource.uid, way))
            differs = _differences(resource, there, state)
            if differs:
                plan.steps.append(Step(resource, "update", "; ".join(differs)))

    def apply(self, system: System, steps: Sequence[Step[User]], state: Accounts, progress: Progress) -> None:
        for step in steps:
            resource = step.resource
            if step.action == "remove":
                _change(system, resource, ["userdel", resource.name])
            else:
                shell = resource.shell or ("/bin/bash" if step.action == "create" else "")
                options = ["--gid", resource.group, *(["--shell", shell] if shell else [])]
                if resource.groups is not None:
                    options += ["--groups", ",".join(resource.groups)]
                if step.action == "create":
                    options += ["--uid", str(resource.uid), "--create-home", "--home-dir", resource.place]
                program = "useradd" if step.action == "create" else "usermod"
                _change(system, resource, [program, *options, resource.name])
            progress.done.append(step)

    def record(self, resource: User, state: Accounts) -> dict[str, Any]:
        there = state.users.get(resource.name)
        if there is None:
            return {}
        return {
            "uid": there.uid,
            "group": state.group_of(there.gid),
            "groups": list(state.groups_of(resource.name)),
            "shell": there.shell,
            "home": there.home,
        }

    def restore(self, resource: User, record: Mapping[str, Any]) -> list[Resource]:
        """What the role took from a person stays taken: an account, and a group that it had."""
        if not record or resource.state == "absent":
            return [replace(resource, state="absent")]
        left = record["groups"] if resource.groups is None else {*record["groups"]} & {*resource.groups}
        return [replace(resource, **{**record, "groups": tuple(sorted(left))})]


def _differences(resource: User, there: Account, state: Accounts) -> list[str]:
    differs = []
    group = state.group_of(there.gid)
    if group != resource.group:
        differs.append(f"group {group} -> {resource.group}")
    if resource.shell and resource.shell != there.shell:
        differs.append(f"shell {there.shell or 'none'} -> {resource.shell}")
    groups = state.groups_of(resource.name)
    if resource.groups is not None and {*groups} != {*resource.groups}:
        gone = sorted({*groups} - {*resource.groups})
        if gone and resource.name == state.login:
            raise HostError(
                f"{resource.label}: Ansible comes by this account, and it would leave the groups {', '.join(gone)};"
                " name them in its groups, or come by another account"
            )
        differs.append(f"groups {','.join(groups) or 'none'} -> {','.join(sorted(resource.groups)) or 'none'}")
    return differs


def _has_groups(resource: User, state: Accounts, plan: Plan) -> None:
    """A group is there, or comes from an earlier step."""
    coming = {step.resource.name for step in plan.steps if step.resource.KIND == Group.KIND and step.action == "create"}
    missing = sorted({resource.group, *(resource.groups or ())} - {*state.groups} - coming)
    if missing:
        raise HostError(
            f"{resource.label}: this host has no group {', '.join(missing)}; declare it with its number in"
            " accounts_groups, or leave it out"
        )


def _may_go(resource: User, state: Accounts) -> None:
    if resource.name == state.login:
        raise HostError(f"{resource.label}: Ansible comes by this account; come by another one to remove it")
    busy = state.busy.get(resource.name, ())
    if busy:
        raise HostError(
            f"{resource.label}: its processes {', '.join(busy[:_MOST])} run; end them"
            f" (`loginctl terminate-user {resource.name}`) and run it again"
        )


def _is_free(
    resource: Resource, number: int, word: str, taken: Mapping[str, int], strays: Mapping[int, Sequence[str]]
) -> None:
    """A number that nobody has, and no file either: else files of another owner would change hands."""
    holder = next((name for name, held in taken.items() if held == number), None)
    if holder is not None:
        raise HostError(
            f"{resource.label}: {word} {number} is {holder}'s on this host; take a number that is free on all hosts"
        )
    files = strays.get(number, ())
    if files:
        raise HostError(
            f"{resource.label}: files of another owner have {word} {number} on this host: {', '.join(files)}. They"
            f" would become {resource.name}'s: give them to somebody (`find / -xdev -{word} {number}` has them all),"
            " or take another number"
        )


def _other_number(resource: Resource, word: str, has: int, wanted: int, way: str) -> str:
    return (
        f"{resource.label} has {word} {has} on this host, and the inventory says {wanted}. Its files would keep {has}:"
        f" `find / -xdev -{word} {has}` names them. Say {has} in the inventory, if all hosts can have that; else run"
        f" `{way} {resource.name}` there, and give it these files"
    )
