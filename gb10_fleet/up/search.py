"""Finds the Sparks, has a person vouch for new host keys, and logs in: with keys, else with one password."""

from __future__ import annotations

import getpass
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import MAY_NOT
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import counted

from gb10_fleet import inventory_lines, passwords
from gb10_fleet.discover import asking, host_keys, machines, password, places
from gb10_fleet.discover.asking import Answer
from gb10_fleet.discover.host_keys import Keys
from gb10_fleet.discover.machines import Machine, Members
from gb10_fleet.discover.places import Place
from gb10_fleet.home import KNOWN_HOSTS
from gb10_fleet.playbook import Outcome
from gb10_fleet.up.people import Person, Stop, is_yes

HERE = Place("localhost", named=False)
TRIES = 3  # of a password, as sudo
_REFUSED = r"permission denied|sudo was refused"
_RELEASE = Path("/etc/dgx-release")
_OWN_KEYS = Path("/etc/ssh")
_USER_KNOWN_HOSTS = Path("~/.ssh/known_hosts").expanduser()
_CONSOLE = "on its own screen, `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints it"


@dataclass(frozen=True)
class Found:
    """The Sparks, and the host keys of those that are reached over SSH."""

    sparks: Sequence[Machine]
    keys: Mapping[Place, Keys]


def find(
    where: Sequence[Place], user: str | None, fingerprints: Collection[str], known: Path, seconds: float,
    words: Sequence[str], person: Person, *, local: bool, members: Members,
) -> Found:  # fmt: skip
    """`where`: places that somebody named; empty: this machine if it is a Spark, else multicast DNS.

    `known`: host keys that were vouched for in an earlier run. `local`: this machine may be one of the hosts.
    """
    own = _own() if local else None
    if own is None and not where:
        person.say(f"Looking for Sparks on this network ({seconds:g} s; or name their addresses: gb10 up ADDRESS...)")
    asked = [*where] if where or own else places.browse(seconds)
    keys = host_keys.keys_of(asked)
    shown = {members.keys[key] for own_keys in keys.values() for key in own_keys.values() if key in members.keys}
    moved = {place for place, name in members.places.items() if name in shown}  # or there; its key will be proven
    _refuse_silent([place for place in asked if place.named and place not in keys and place not in moved])
    answers = asking.ask(keys, user)
    if not own and not answers:
        raise Stop("no Spark was found; name their addresses: gb10 up ADDRESS...", Outcome.failed)
    first = machines.judge(asked, [*([own] if own else []), *answers], members)
    _refuse_shared(first)
    _refuse_others([place for place in first.others if place.named])
    sparks = {place for spark in first.sparks for place in (spark.place, *spark.also)} - {HERE}
    wanted = [one for one in answers if one.place in sparks or one.facts is None]
    mine = _vouched(wanted, keys, fingerprints, known, first.sparks, person)
    locked = [one.place for one in wanted if one.facts is None and one.place in mine]
    opened = [one for one in answers if one.facts is not None and one.place in mine]
    if locked:
        opened += _with_password({place: keys[place] for place in locked}, user, words, person)
    found = machines.judge([], [*([own] if own else []), *opened], members)
    _refuse_shared(found)
    _refuse_others([place for place in found.others if place.named])
    if not found.sparks:
        raise Stop("no Spark was found; name their addresses: gb10 up ADDRESS...", Outcome.failed)
    _see_members(found.sparks, members, person)
    return Found(found.sparks, {spark.place: spark.keys for spark in found.sparks if spark.place != HERE})


def members_of(folder: Path, hosts: Mapping[Place, str]) -> Members:
    """Who is in the inventory of this folder: its hosts by place, the host keys that lie beside them, and all names."""
    keys = {
        key: name
        for place, name in hosts.items()
        for key in _by_kind(_lines(place, folder / KNOWN_HOSTS)).values()
    }  # fmt: skip
    return Members(hosts, keys, {name.lower() for name in inventory_lines.names(folder)})


def _see_members(sparks: Sequence[Machine], members: Members, person: Person) -> None:
    """Say who has moved, and who is not called as it says. Nobody drops out of the inventory without a word."""
    found = {spark.name: spark for spark in sparks}
    lost = [f"{name} ({place})" for place, name in members.places.items() if name not in found]
    if lost:
        raise Stop(
            f"{', '.join(lost)}: in the inventory, and nobody has answered there as this host. Nothing was changed",
            Outcome.refused,
        )
    for place, name in members.places.items():
        if place not in (found[name].place, *found[name].also):
            person.say(f"{name} was at {place}; its host key answers at {found[name].place} now")
    for spark in sparks:
        said = str(spark.facts.get("hostname"))
        if spark.name not in members.places.values() and said.lower() in members.taken:
            person.say(f"{spark.place} says that it is {said}, a name that the inventory has; so it is {spark.name}")


def _own() -> Answer | None:
    """This machine, if it is a Spark."""
    if sys.platform != "linux" or not Path("/usr/bin/python3").exists():
        return None
    keys = {}
    for file in sorted(_OWN_KEYS.glob("ssh_host_*_key.pub")):
        kind, text, *_ = [*file.read_text(encoding="ascii", errors="replace").split(), "", ""]
        keys[kind] = text
    answer = asking.here(HERE, keys)
    if answer.facts is None and _RELEASE.exists():
        raise Stop(f"this Spark: {answer.silence}. Nothing was changed", Outcome.failed)
    return answer if answer.spark else None


def _vouched(
    wanted: Sequence[Answer], keys: Mapping[Place, Keys], fingerprints: Collection[str], known: Path,
    sparks: Sequence[Machine], person: Person,
) -> set[Place]:  # fmt: skip
    """Return the places whose host keys are known, or that a person has just said yes to.

    A key that is not the known one ends the command where a person named the place; else the place is left out.
    """
    names = {place: spark for spark in sparks for place in (spark.place, *spark.also)}
    vouched, new = set[Place](), list[Place]()
    for place in (one.place for one in wanted):
        named = {host_keys.fingerprint(key) for key in keys[place].values()} & set(fingerprints)
        try:
            said = {file: _lines(place, file) for file in (known, _USER_KNOWN_HOSTS)}
            _refuse_revoked(place, keys[place], said)
            # A fingerprint vouches for a key, and not for its place: the host of the inventory there has another one.
            known_here = _is_known(place, keys[place], {known: said[known]} if named else said) or bool(named)
        except Stop as stop:  # anybody may announce an address that another machine had
            if place.named:
                raise
            person.say(f"Left out: {stop}")
            continue
        if known_here:
            vouched.add(place)
        else:
            new.append(place)
    if not new:
        return vouched
    person.say("", f"Host keys that are new to this machine. Compare each with the Spark's own ({_CONSOLE}):")
    for number, place in enumerate(new, 1):
        what = names[place].name if place in names else "asks for a password"
        ed25519 = min(keys[place].items(), key=lambda item: "ed25519" not in item[0])
        person.say(f"  {number}  {place}  {host_keys.fingerprint(ed25519[1])} ({ed25519[0]})  {what}")
    which = "Is this your Spark, with its key? [y]es or [n]o:"
    if len(new) > 1:
        which = "Are these your Sparks, with their keys? [y]es, [n]o, or the numbers of those that are, such as `1 2`:"
    by_number = {str(number): place for number, place in enumerate(new, 1)}

    def chosen(said: str) -> set[Place] | None:
        if is_yes(said):
            return set(new)
        words = re.findall(r"[^ ,]+", said)
        return {by_number[word] for word in words} if words and by_number.keys() >= set(words) else None

    return vouched | person.choose(which, "say --fingerprint SHA256:... for each", chosen)


def _is_known(place: Place, keys: Keys, said: Mapping[Path, Sequence[str]]) -> bool:
    """Tell whether the key was vouched for before; Stop where another key was. `said`: by file, of that place."""
    for file, lines in said.items():
        known = {kind: key for kind, key in _by_kind(lines).items() if kind in keys}
        if any(keys[kind] != key for kind, key in known.items()):
            raise Stop(
                f"{place}: its host key is not the one in {file}: the Spark was set up anew, or another machine "
                f"answers. Compare it ({_CONSOLE}). If it is the Spark, "
                f"`ssh-keygen -R {shlex.quote(place.known_as)} -f {shlex.quote(str(file))}`, then run again",
                Outcome.refused,
            )
        if known:
            return True
    return False


def _by_kind(lines: Sequence[str]) -> dict[str, str]:
    rows = [line.split()[:3] for line in lines if not line.startswith("@")]
    return {row[1]: row[2] for row in rows if len(row) == 3}


def _refuse_revoked(place: Place, keys: Keys, said: Mapping[Path, Sequence[str]]) -> None:
    """As ssh does: a key that is marked @revoked opens nothing, whoever else vouches for it."""
    for file, lines in said.items():
        for line in lines:
            if line.startswith("@revoked") and set(line.split()[3:4]) & set(keys.values()):
                raise Stop(
                    f"{place}: its host key was revoked in {file}, so anybody may have it. Give the Spark new host "
                    "keys, then run again",
                    Outcome.refused,
                )


def _lines(place: Place, file: Path) -> list[str]:
    """What a file of host keys says of a place."""
    if not file.is_file():
        return []
    argv = ["ssh-keygen", "-F", place.known_as, "-f", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    return [line for line in done.stdout.splitlines() if line and not line.startswith("#")]


def _with_password(
    keys: Mapping[Place, Keys], user: str | None, words: Sequence[str], person: Person
) -> Sequence[Answer]:
    """Log in where no key opens. One password for SSH and for sudo: on a Spark they are the same user's."""
    if password.given(words):
        answers = password.ask(keys, user, words)
        if all(one.facts is not None for one in answers):
            return answers
    for _ in range(TRIES):
        secret = person.secret(
            f"Password of {user or getpass.getuser()} on {counted(len(keys), 'Spark')}, for SSH and sudo:",
            "log in with a key (ssh-copy-id), or say -- --connection-password-file FILE --become-password-file FILE",
        )
        passwords.typed |= {passwords.CONNECTION: secret, passwords.BECOME: secret}
        person.begin("logging in")
        answers = password.ask(keys, user, words)
        if all(one.facts is not None for one in answers):
            return answers
        silent = [one for one in answers if one.facts is None]
        if barred := [str(one.place) for one in silent if MAY_NOT.search(one.silence)]:
            raise Stop(
                f"{', '.join(barred)}: this user may not use sudo. Log in as one who may (gb10 up -u USER), or let this"
                " one (a file in /etc/sudoers.d). Nothing was changed",
                Outcome.unreachable,
            )
        if not all(re.search(_REFUSED, one.silence, re.IGNORECASE) for one in silent):
            person.say(*(f"{one.place}: {one.silence}" for one in silent))
            break  # another password would not help
        person.say(f"{', '.join(str(one.place) for one in silent)}: wrong password, or wrong user")
        passwords.typed.clear()
    raise Stop("not let in; nothing was changed. Another user: gb10 up -u USER", Outcome.unreachable)


def _refuse_silent(silent: Sequence[Place]) -> None:
    if unknown := [str(place) for place in silent if not _has_address(place)]:
        raise Stop(
            f"{', '.join(unknown)}: no address has this name (`getent hosts NAME`); write the address, or the name "
            "with .local behind it. Nothing was changed",
            Outcome.unreachable,
        )
    if silent:
        names = ", ".join(map(str, silent))
        raise Stop(
            f"{names}: no answer over SSH; check power, network and the address. Nothing was changed",
            Outcome.unreachable,
        )


def _has_address(place: Place) -> bool:
    try:
        return bool(socket.getaddrinfo(place.address, place.port))
    except (OSError, UnicodeError):
        return False


def _refuse_others(others: Sequence[Place]) -> None:
    if others:
        raise Stop(
            f"{', '.join(map(str, others))}: is no DGX Spark; leave it out. Nothing was changed", Outcome.refused
        )


def _refuse_shared(found: machines.Discovery) -> None:
    if found.duplicates:
        said = "; ".join(map(str, found.duplicates))
        raise Stop(f"{said}. Fix: {machines.WAY_OUT}", Outcome.refused)
