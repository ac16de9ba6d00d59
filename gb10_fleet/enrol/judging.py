"""Whether a machine that answers is the host of a seed. Pure: host keys and facts go in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import machine_name

from gb10_fleet.discover.host_keys import Keys, fingerprint
from gb10_fleet.discover.machines import is_its_own
from gb10_fleet.discover.places import Place
from gb10_fleet.seed.store import Seed

if TYPE_CHECKING:
    from gb10_fleet.discover.asking import Answer

ED25519 = "ssh-ed25519"


class State(Enum):
    """Of a host that is awaited."""

    waiting = "waiting"  # nothing answers yet, or it does not let us in yet
    refused = "refused"  # somebody answers, and is not this host
    there = "there"


@dataclass(frozen=True)
class Known:
    """What is kept of a host that was enrolled."""

    public_key: str
    machine: str | None  # digest of the machine id: another one after each installation
    macs: Sequence[str]
    product: str
    since: str
    replaced: bool = False  # it took the name over from another board


@dataclass(frozen=True)
class Verdict:
    """What was found of one host; `text` is for a person."""

    state: State
    text: str
    place: Place | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def holders(seed: Seed, keys: Mapping[Place, Keys]) -> list[Place]:
    """The places that answer with the key of the seed, and with no other one of its type."""
    return [place for place, known in keys.items() if known.get(ED25519) == seed.blob]


def judge(
    seed: Seed,
    own: Collection[Place],
    keys: Mapping[Place, Keys],
    answers: Mapping[Place, Answer],
    known: Known | None = None,
    *,
    new_board: bool = False,
) -> Verdict:
    """`own`: places that are this host's by address or name. `answers`: of those that hold its key."""
    mine = holders(seed, keys)
    if not mine:
        return _without_key(own, keys, known)
    found = [answers[place] for place in mine if place in answers and answers[place].facts is not None]
    if not found:
        said = next((answers[place].silence for place in mine if place in answers), "not asked yet")
        return Verdict(State.waiting, f"its key is right at {mine[0]}, and it lets nobody in yet: {said}")
    boots = {str((one.facts or {})["boot_id"]): one for one in found}
    if len(boots) > 1:
        names = ", ".join(str(one.place) for one in boots.values())
        return _refused(f"two machines have its key ({names}): both started from its stick. Set up one of them anew")
    own_first = min(found, key=lambda one: not is_its_own(one))  # anybody may hand a connection on to it
    return _board(seed, own_first, known, new_board=new_board)


def _refused(text: str) -> Verdict:
    return Verdict(State.refused, text)


def _without_key(own: Collection[Place], keys: Mapping[Place, Keys], known: Known | None) -> Verdict:
    for place in own:
        if shown := keys.get(place):
            print_ = fingerprint(shown.get(ED25519) or next(iter(shown.values())))
            if known:
                return _refused(
                    f"{place} answers with another host key, {print_}, than the host that was enrolled on "
                    f"{known.since}: it was set up anew without its stick, or another machine has its address. "
                    "Set it up with its stick, or make a new seed: gb10 seed --force"
                )
            return _refused(
                f"{place} answers with another host key, {print_}, than the one of its seed: a stranger, or the Spark "
                "did not start from its stick. Put the stick in and set it up anew, or free the address"
            )
    return Verdict(State.waiting, "nothing answers yet")


def _board(seed: Seed, answer: Answer, known: Known | None, *, new_board: bool) -> Verdict:
    facts = answer.facts or {}
    macs = macs_of(facts)
    if not answer.spark:
        return _refused(f"{answer.place} has its key and is no DGX Spark; keep its stick apart")
    if facts["hostname"] != seed.name:
        return Verdict(
            State.waiting,
            f"{answer.place} has its key and calls itself {facts['hostname']} still; "
            "if it stays so, `cloud-init status --long` there says why",
        )
    if seed.mac and seed.mac not in macs:
        return _refused(
            f"{answer.place} has its key and not its MAC {seed.mac} ({', '.join(macs)}): the stick of another Spark. "
            "Correct gb10_seed_mac, or change the sticks and set both up anew"
        )
    if known and not set(known.macs) & set(macs) and not new_board:
        return _refused(
            f"{answer.place} is another board than the one that was enrolled on {known.since}: none of its MACs "
            f"({', '.join(known.macs)}) is there. If it takes that one's place: --new-board {seed.name}"
        )
    text = f"{answer.place}, {product_of(facts)}"
    if known and known.machine != facts.get("machine_digest"):
        text += f"; set up anew since {known.since}"
    return Verdict(State.there, text, answer.place, facts)


def not_new(answer: Answer, known: Known | None) -> str:
    """Why a machine cannot take the place of a host; empty where it can. `known`: the host, if it was enrolled."""
    if answer.facts is None:
        return f"{answer.place} lets nobody in: {answer.silence}"
    if not answer.spark:
        return f"{answer.place} is no DGX Spark"
    if known and answer.keys.get(ED25519) == known.public_key.split()[1]:
        return f"{answer.place} has the host key of the board that it replaces: a copy of its disk. Set it up anew"
    if known and set(known.macs) & set(macs_of(answer.facts)):
        return f"{answer.place} is the same board, set up anew: enrol it again with a new seed (gb10 seed --force)"
    return ""


def known_of(public_key: str, facts: Mapping[str, Any], day: str, *, replaced: bool = False) -> Known:
    return Known(public_key, facts.get("machine_digest"), macs_of(facts), product_of(facts), day, replaced)


def macs_of(facts: Mapping[str, Any]) -> list[str]:
    return sorted({str(one["mac"]).lower() for one in facts["interfaces"] if one["mac"]})


def product_of(facts: Mapping[str, Any]) -> str:
    return machine_name(facts["product"])
