"""Which machines the places are, and which of them share a host key.

DGX Sparks left the factory with identical SSH host keys (CVE-2026-24218): whoever connects cannot tell two machines
with one key apart, so they are refused. One machine at two addresses has one key rightly. The boot id, which the kernel
draws at random at each start, says which of the two it is.

`judge` decides and does no I/O.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.addresses import is_address

from gb10_fleet.discover.host_keys import Keys, fingerprint, known_hosts_lines
from gb10_fleet.discover.places import NAME, SSH_PORT, Place
from gb10_fleet.home import KNOWN_HOSTS

if TYPE_CHECKING:
    from gb10_fleet.discover.asking import Answer

WAY_OUT = (
    "on each of them but one, at its own console: sudo sh -c 'rm /etc/ssh/ssh_host_*_key* && ssh-keygen -A && "
    "systemctl restart ssh' (NVIDIA bulletin 5835), take the old key out of every known_hosts (ssh-keygen -R ADDRESS), "
    "then discover again"
)

# What Ansible and our inventory call something else: its own groups, the controller, the group of all Sparks. A host of
# that name would take in the variables of the others.
_RESERVED = re.compile(r"(all|ungrouped|localhost|sparks|(pair|ring|switch)\d+)\Z")  # the last ones are clusters
_BY_ADDRESS = "spark-"  # and the address: the name of a machine without a usable one


@dataclass(frozen=True)
class Machine:
    """One Spark: its name in the inventory, the place to manage it from, and all places where it answers."""

    name: str
    place: Place
    also: Sequence[Place]
    keys: Keys
    facts: Mapping[str, Any]

    @property
    def product(self) -> str:
        """Return what it says it is, for a person; no control characters, for it goes into a comment."""
        product, release = self.facts["product"], self.facts["product"]["dgx_release"] or {}
        version = release.get("DGX_OTA_VERSION") or release.get("DGX_SWBUILD_VERSION")
        system = f"DGX OS {version}" if version else self.facts["os"]["pretty"] or "a system without a name"
        return output.printable(f"{output.machine_name(product)}, {system}")

    @property
    def fingerprints(self) -> dict[str, str]:
        return {kind: fingerprint(key) for kind, key in sorted(self.keys.items())}

    @property
    def fingerprint(self) -> str:
        """The one to compare: Ed25519's, where there is one."""
        kind, shown = min(self.fingerprints.items(), key=lambda item: "ed25519" not in item[0])
        return f"{shown} ({kind})"


@dataclass(frozen=True)
class Members:
    """Who is in an inventory already. Secrets go by name there, so no word of a host gives it a name of another one."""

    places: Mapping[Place, str] = field(default_factory=dict)  # where each is managed
    keys: Mapping[str, str] = field(default_factory=dict)  # whose host key it is
    taken: Collection[str] = ()  # all names that any source has, in lower case

    def name(self, group: Sequence[Answer]) -> str | None:
        """By its host key, wherever it answers; else by its place, where nobody is vouched for with another key."""
        by_key = [self.keys[key] for answer in group for key in answer.keys.values() if key in self.keys]
        by_place = [self.places[answer.place] for answer in group if answer.place in self.places]
        return next(iter([*by_key, *by_place]), None)


@dataclass(frozen=True)
class Duplicate:
    """One host key on several machines."""

    fingerprint: str
    machines: Sequence[str]

    def __str__(self) -> str:
        return (
            f"{', '.join(self.machines)}: one and the same SSH host key, {self.fingerprint} (CVE-2026-24218):"
            " whoever holds one of them can stand in for the others"
        )


@dataclass(frozen=True)
class Discovery:
    """The Sparks that were found, and what stands in two places.

    `others` are no Sparks, `locked` let nobody in, `silent` were named and do not answer.
    """

    sparks: Sequence[Machine]
    others: Sequence[Place]
    locked: Mapping[Place, str]
    silent: Sequence[Place]
    duplicates: Sequence[Duplicate]


def judge(asked: Sequence[Place], answers: Sequence[Answer], members: Members | None = None) -> Discovery:
    """Machines out of places, and keys that several of them have."""
    machines: dict[str, list[Answer]] = {}
    known: dict[str, str] = {}
    for answer in answers:
        machines.setdefault(_identity(answer, known), []).append(answer)
    groups = {identity: group for identity, group in machines.items() if group[0].spark}
    names = _names(groups, members or Members())
    answered = {answer.place for answer in answers}
    return Discovery(
        sorted((_machine(names[identity], group) for identity, group in groups.items()), key=lambda one: one.name),
        [answer.place for answer in answers if answer.facts and not answer.spark],
        {answer.place: answer.silence for answer in answers if not answer.facts},
        [place for place in asked if place.named and place not in answered],
        list(_duplicates(machines, names)),
    )


def _identity(answer: Answer, known: dict[str, str]) -> str:
    """What is the same of one machine: its boot id, with a host key. A host may say the boot id of another one.

    Of one that let nobody in, each place has to count as a machine of its own. `known`: identities, by boot id and key.
    """
    if not answer.facts:
        return f"at {answer.place}"
    marks = [f"{answer.facts['boot_id']} {key}" for key in sorted(answer.keys.values()) or [""]]
    found = next((known[mark] for mark in marks if mark in known), marks[0])
    known |= dict.fromkeys(marks, found)
    return found


def _names(groups: Mapping[str, Sequence[Answer]], members: Members) -> dict[str, str]:
    """A member has its name. Others: the host name where it is sound, free and nobody else's; else by the address."""
    hostnames = {identity: str((group[0].facts or {}).get("hostname")) for identity, group in groups.items()}
    by_address = {
        identity: _BY_ADDRESS + re.sub(r"[^A-Za-z0-9]+", "-", str(_first(group).place)).strip("-")
        for identity, group in groups.items()
    }
    said = Counter(name.lower() for name in (*hostnames.values(), *by_address.values()))
    names: dict[str, str] = {}
    for identity, group in groups.items():
        name = members.name(group)
        if name and name not in names.values():
            names[identity] = name
    taken = {*members.taken, *(name.lower() for name in names.values())}
    for identity in [each for each in groups if each not in names]:
        name = hostnames[identity]
        if not _is_free(name) or said[name.lower()] > 1 or name.lower() in taken:
            name = next(one for one in _numbered(by_address[identity]) if one.lower() not in taken)
        names[identity] = name
        taken.add(name.lower())
    return names


def _numbered(name: str) -> Iterator[str]:
    """Yield also what to call it where another one had the address before."""
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(2))


def _is_free(name: str) -> bool:
    # An address is that of another machine, perhaps; 127.1 and 2130706433 are addresses, too.
    is_address = re.fullmatch(r"[0-9.]+|0[xX][0-9A-Fa-f.xX]+", name)
    return bool(NAME.match(name)) and not _RESERVED.match(name.lower()) and not is_address


def _machine(name: str, group: Sequence[Answer]) -> Machine:
    first = _first(group)
    also = [answer.place for answer in group if answer is not first]
    return Machine(name, first.place, also, first.keys, first.facts or {})


def _first(group: Sequence[Answer]) -> Answer:
    """Managed from the first place that is an address of its own, and no rail: the fabric's addresses will change."""
    return min(group, key=lambda answer: (not is_its_own(answer), _over_a_rail(answer)))


def is_its_own(answer: Answer) -> bool:
    """Tell whether the machine has the address at which it was asked: anybody may hand a connection on to it."""
    own = (answer.facts or {})["ssh"].get("local_address")
    return own in (None, answer.place.address) or not is_address(answer.place.address)


def _over_a_rail(answer: Answer) -> bool:
    facts = answer.facts or {}
    return facts["ssh"].get("interface") in {rail["netdev"] for rail in facts.get("rails") or ()}


def _duplicates(machines: Mapping[str, Sequence[Answer]], names: Mapping[str, str]) -> Iterator[Duplicate]:
    """Keys of several machines of which one at least is a Spark; what the neighbours share is not ours to judge.

    Anybody may announce himself and show a key. So one that lets nobody in counts where a person has named it.
    """
    owners: dict[str, dict[str, str]] = {}
    for identity, group in machines.items():
        if not any(answer.facts or answer.place.named for answer in group):
            continue
        shown = ", ".join(str(answer.place) for answer in group)
        shown = f"{names[identity]} ({shown})" if identity in names else shown
        for key in {key for answer in group for key in answer.keys.values()}:
            owners.setdefault(key, {})[identity] = shown
    reported = set()
    for key, group_of in owners.items():
        whose = tuple(group_of.values())
        if len(whose) > 1 and any(identity in names for identity in group_of) and whose not in reported:
            reported.add(whose)  # three types of key on the same machines are one trouble
            yield Duplicate(fingerprint(key), whose)


# -- files -------------------------------------------------------------------------------------------------------------


def inventory(sparks: Collection[Machine], user: str | None, now: datetime) -> str:
    """The inventory as a person would begin it. Every value is quoted as JSON, which YAML reads."""
    lines = [
        f"# Found by gb10 discover on {now:%Y-%m-%d}. Yours from now on: discover writes over it with --force only.",
        "# Nobody has vouched for these host keys yet. Compare each fingerprint at the host's own console:",
        "#   ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
        "# Hosts that are to serve one model together go into a group of their own (docs/inventory.md).",
        "all:",
        "  children:",
        "    sparks:",
        "      hosts:",
    ]
    for spark in sparks:
        also = f"; also at {', '.join(map(str, spark.also))}" if spark.also else ""
        lines += [f"        # {spark.product}{also}", f"        # {spark.fingerprint}"]
        lines += [f"        {json.dumps(spark.name)}:", f"          ansible_host: {json.dumps(spark.place.address)}"]
        lines += [f"          ansible_port: {spark.place.port}"] if spark.place.port != SSH_PORT else []
    lines += ["      vars:"]
    lines += [f"        ansible_user: {json.dumps(user)}"] if user else []
    lines += [
        "        # Only these keys are believed.",
        f"""        ansible_ssh_common_args: '-o UserKnownHostsFile="\\"{{{{ inventory_dir }}}}/{KNOWN_HOSTS}\\""'""",
        "        # vllm_model: openai/gpt-oss-120b      what to serve; the doctor asks for it",
        "        # vllm_image: name@sha256:...          another image than the default one",
    ]
    return "\n".join([*lines, ""])


def write(found: Discovery, file: Path, user: str | None, now: datetime) -> None:
    """Inventory and host keys, each whole or not at all; the keys first, for the inventory names their file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    keys = {spark.place: spark.keys for spark in found.sparks}
    output.write(file.with_name(KNOWN_HOSTS), "".join(known_hosts_lines(keys)))
    output.write(file, inventory(found.sparks, user, now))
