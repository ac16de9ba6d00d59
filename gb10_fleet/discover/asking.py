"""Logs in where SSH answers, and has the engine say the facts."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import Facts
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import findings
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, output, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import probe, scan, transport, verbs
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import drift_report

from gb10_fleet.discover.host_keys import Keys, known_hosts_lines, ssh_options
from gb10_fleet.discover.places import BadPlace, Place

LOGIN_TIMEOUT_S = 30  # for one host, all of it
CONCURRENCY = 50
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")


@dataclass(frozen=True)
class Answer:
    """The answer of one place: its host keys, and its facts or why there are none."""

    place: Place
    keys: Keys
    facts: Mapping[str, Any] | None = None
    spark: bool = False
    silence: str = ""


def ask(
    keys: Mapping[Place, Keys],
    user: str | None,
    *,
    ssh: str = "ssh",
    options: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Answer]:
    """Log in at every place whose keys are known, and have the engine say its facts. Changes nothing, needs no root.

    Only the key that the scan saw is taken: who answers now with another one is another machine.
    """
    if user is not None and not _USER.match(user):
        raise BadPlace(f"{output.printable(user)}: no name of a user")
    message = transport.Message(verbs.request("drift", check=True, facts={"paths": []}))
    with tempfile.TemporaryDirectory(prefix="gb10-discover-") as folder:
        known_hosts = Path(folder) / "known_hosts"
        known_hosts.write_text("".join(known_hosts_lines(keys)), encoding="ascii")
        words = [word for name, value in ssh_options(known_hosts).items() for word in ("-o", f"{name}={value}")]
        words += [*(["-l", user] if user else []), *options]
        remote = transport.command(transport.DEFAULT_INTERPRETER)
        by_name = {str(place): place for place in keys}
        targets = [
            scan.Target(
                name,
                (ssh, *words, "-p", str(place.port), place.address, remote),
                message.program(),
                reply=message.reply,
            )
            for name, place in by_name.items()
        ]
        replies = scan.ask(targets, concurrency=CONCURRENCY, timeout_s=LOGIN_TIMEOUT_S, progress=progress)
    return [_answer(by_name[reply.host], keys[by_name[reply.host]], reply) for reply in replies]


def here(place: Place, keys: Keys) -> Answer:
    """Ask the machine that this runs on, without SSH."""
    message = transport.Message(verbs.request("drift", check=True, facts={"paths": []}))
    remote = transport.command(transport.DEFAULT_INTERPRETER)
    target = scan.Target(str(place), ("sh", "-c", remote), message.program(), reply=message.reply)
    (reply,) = scan.ask([target], concurrency=1, timeout_s=LOGIN_TIMEOUT_S, progress=lambda done, total: None)
    return _answer(place, keys, reply)


def _answer(place: Place, keys: Keys, reply: scan.Reply) -> Answer:
    try:
        return answer(place, keys, transport.parse(reply.stdout)["facts"])
    except schema.WrongFact as error:
        return _wrong(place, keys, error)
    except (ValueError, KeyError, TypeError, AttributeError):  # no answer, or not one of ours
        return silent(place, keys, reply)


def _wrong(place: Place, keys: Keys, error: schema.WrongFact) -> Answer:
    said = f"{error}; if the machine is sound, this is a defect of gb10-fleet"
    return Answer(place, keys, silence=output.printable(said))


def answer(place: Place, keys: Keys, facts: Mapping[str, Any]) -> Answer:
    """Of a machine that has said its facts; KeyError or TypeError where they are not ours."""
    if facts is not None and (wrong := schema.missing(facts, Facts, "facts")):
        return _wrong(place, keys, schema.WrongFact(wrong))
    if not (facts["boot_id"] and facts["ssh"]):
        raise KeyError("boot_id, ssh")
    return Answer(place, keys, facts, is_spark(facts))


def silent(place: Place, keys: Keys, reply: scan.Reply, limit_s: float = LOGIN_TIMEOUT_S) -> Answer:
    """Of one that has not, and why."""
    silence = drift_report.judge(reply, None, limit_s, reply.host, others=False)["silence"]
    way_out = _ways_in(place).get(silence["reason"], silence["way_out"])
    return Answer(place, keys, silence=output.printable(f"{silence['text']}; {way_out}"))


def _ways_in(place: Place) -> dict[str, str]:
    """Return what to do, by the reason: where a password is missing or wrong, and where a host is slow."""
    return {
        "permission": f"check the user (-u) and its key, or type its password: gb10 discover -k {place}",
        "timeout": "look whether the host is overloaded or hangs, then ask it again",
        "no_sudo": f"check the password of sudo; without -K, discover needs no root: gb10 discover {place}",
    }


def is_spark(facts: Mapping[str, Any]) -> bool:
    """Tell what the doctor will say of it; the reason why discovery has no list of products of its own."""
    catalogs = {name: catalog.load(name) for name in probe.CATALOGS}
    subject = Subject("", facts, {}, {}, catalogs, catalog.declared_variables())
    return all(finding.id != "not_a_spark" for finding in findings.evaluate_facts(subject))
