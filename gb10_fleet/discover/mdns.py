"""Finds Sparks: who answers SSH where, with which host keys, and which machine that is.

DGX Sparks left the factory with identical SSH host keys (CVE-2026-24218): whoever connects cannot tell two machines
with one key apart, so they are refused. One machine at two addresses has one key rightly. The boot id, which the kernel
draws at random at each start, says which of the two it is.

`judge` decides and does no I/O.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import json
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog, output
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import findings
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import facts_schema, probe, scan, transport
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.run import RUN
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import drift_report

SSH_PORT = 22
MOST_PLACES = 4096  # a /20; more is a mistyped prefix
KEYSCAN_TIMEOUT_S = 5  # for one connection; ssh-keyscan makes them side by side
LOGIN_TIMEOUT_S = 30  # for one host, all of it
CONCURRENCY = 50
# Where a Spark announces it; NVIDIA's own script discover-sparks (playbook connect-two-sparks) browses the same.
SERVICE = "_ssh._tcp.local."
KEY_TYPES = ("ed25519", "ecdsa", "rsa")
KNOWN_HOSTS = "known_hosts.txt"  # Ansible reads no .txt in the folder of an inventory
WAY_OUT = (
    "on each of them but one, at its own console: sudo sh -c 'rm /etc/ssh/ssh_host_*_key* && ssh-keygen -A && "
    "systemctl restart ssh' (NVIDIA bulletin 5835), take the old key out of every known_hosts (ssh-keygen -R ADDRESS), "
    "then discover again"
)

# A name goes into a command line and into the inventory, where it would be a template or an option.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
# What Ansible and our inventory call something else: its own groups, the controller, the group of all Sparks. A host of
# that name would take in the variables of the others.
_RESERVED = frozenset({"all", "ungrouped", "localhost", "sparks"})
_BY_ADDRESS = "spark-"  # and the address: the name of a machine without a usable one
_RANGE = re.compile(r"(\d+\.\d+\.\d+\.)(\d+)-(\d+)\Z")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")

Keys = Mapping[str, str]  # {"ssh-ed25519": the key in base64}


class BadPlace(ValueError):
    """A text that is no address; says which and why."""


@dataclass(frozen=True)
class Place:
    """Where SSH may answer. `named`: somebody asked for this very one, so its silence is worth a word."""

    address: str
    port: int = SSH_PORT
    named: bool = field(default=True, compare=False)

    def __str__(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return self.address if self.port == SSH_PORT else f"{address}:{self.port}"

    @property
    def known_as(self) -> str:
        """As ssh writes it in known_hosts."""
        return self.address if self.port == SSH_PORT else f"[{self.address}]:{self.port}"


@dataclass(frozen=True)
class Answer:
    """What one place said: its host keys, then its facts and whether they are a Spark's, or why there are none."""

    place: Place
    keys: Keys
    facts: Mapping[str, Any] | None = None
    spark: bool = False
    silence: str = ""


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
        """What it says it is, for a person; no control characters, for it goes into a comment."""
        product, release = self.facts["product"], self.facts["product"]["dgx_release"] or {}
        words = [str(product["dmi_name"] or "unknown").replace("_", " ")]
        version = release.get("DGX_OTA_VERSION") or release.get("DGX_SWBUILD_VERSION")
        words += [f"DGX OS {version}"] if version else [str(self.facts["os"]["pretty"])]
        return output.printable(", ".join(words))

    @property
    def fingerprints(self) -> dict[str, str]:
        return {kind: fingerprint(key) for kind, key in sorted(self.keys.items())}

    @property
    def fingerprint(self) -> str:
        """The one to compare: Ed25519's, where there is one."""
        kind, shown = min(self.fingerprints.items(), key=lambda item: "ed25519" not in item[0])
        return f"{shown} ({kind})"


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
    """Who was found. `others` are no Sparks, `locked` let nobody in, `silent` were named and do not answer."""

    sparks: Sequence[Machine]
    others: Sequence[Place]
    locked: Mapping[Place, str]
    silent: Sequence[Place]
    duplicates: Sequence[Duplicate]


# -- where to look -----------------------------------------------------------------------------------------------------


def places(words: Iterable[str]) -> list[Place]:
    """Addresses, names, ranges (192.0.2.11-20), networks (192.0.2.0/24), each with :PORT if need be; @FILE has more."""
    found: dict[Place, Place] = {}
    for word in words:
        for place in _from_file(Path(word[1:])) if word.startswith("@") else _places(word):
            found.setdefault(place, place)
            if len(found) > MOST_PLACES:
                raise BadPlace(f"{word}: more than {MOST_PLACES} addresses; name a smaller network")
    return list(found)


def _from_file(path: Path) -> list[Place]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadPlace(f"{path} cannot be read: {error}") from None
    words = [line.partition("#")[0].strip() for line in lines]
    return places(word for word in words if word and not word.startswith("@"))


def _places(word: str) -> Iterator[Place]:
    where, port = _split_port(word)
    if match := _RANGE.match(where):
        first, last = int(match[2]), int(match[3])
        if not first <= last <= 255:
            raise BadPlace(f"{word}: a range goes upwards and ends at 255")
        for number in range(first, last + 1):
            yield Place(_address(f"{match[1]}{number}", word), port, named=False)
    elif "/" in where:
        try:
            network = ipaddress.ip_network(where, strict=False)
        except ValueError as error:
            raise BadPlace(f"{word}: {error}") from None
        if network.num_addresses > MOST_PLACES:
            raise BadPlace(f"{word}: {network.num_addresses} addresses; at most {MOST_PLACES}")
        for address in network.hosts():
            yield Place(str(address), port, named=False)
    elif _NAME.match(where) and not re.fullmatch(r"[\d.]+", where):
        yield Place(where, port)
    else:
        yield Place(_address(where, word), port)


def _split_port(word: str) -> tuple[str, int]:
    match = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?|([^:]*):(\d+)", word)
    if match is None:
        return word, SSH_PORT
    port = int(match[2] or match[4] or SSH_PORT)
    if not 0 < port < 2**16:
        raise BadPlace(f"{word}: a port is a number from 1 to 65535")
    return match[1] or match[3], port


def _address(text: str, word: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise BadPlace(f"{output.printable(word)}: neither an address nor a name of a host") from None


def browse(seconds: float, interfaces: Sequence[str] | None = None) -> list[Place]:
    """Everything that announces SSH by multicast DNS within so many seconds; IPv4, for fabric and API are."""
    # Only who asks for it pays: the import takes longer than all of a scan of one host.
    from zeroconf import InterfaceChoice, IPVersion, ServiceBrowser, ServiceStateChange, Zeroconf

    seen: set[str] = set()

    def heard(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is not ServiceStateChange.Removed:
            seen.add(name)

    zeroconf = Zeroconf(interfaces=list(interfaces) if interfaces else InterfaceChoice.All, ip_version=IPVersion.V4Only)
    found: dict[Place, Place] = {}
    try:
        browser = ServiceBrowser(zeroconf, SERVICE, handlers=[heard])
        time.sleep(seconds)
        browser.cancel()
        for name in sorted(seen):
            info = zeroconf.get_service_info(SERVICE, name, timeout=1000)
            for address in info.parsed_addresses(IPVersion.V4Only) if info else ():
                place = Place(address, (info.port if info else None) or SSH_PORT, named=False)
                found.setdefault(place, place)
    finally:
        zeroconf.close()
    return sorted(found, key=lambda place: (ipaddress.ip_address(place.address), place.port))


# -- asking ------------------------------------------------------------------------------------------------------------


def keys_of(asked: Sequence[Place], keyscan: str = "ssh-keyscan") -> dict[Place, dict[str, str]]:
    """The host keys of every place that answers SSH."""
    found: dict[Place, dict[str, str]] = {}
    for port in sorted({place.port for place in asked}):
        here = {place.known_as: place for place in asked if place.port == port}
        argv = [keyscan, "-T", str(KEYSCAN_TIMEOUT_S), "-p", str(port), "-t", ",".join(KEY_TYPES), "-f", "-"]
        lines = "".join(f"{place.address}\n" for place in here.values())
        done = subprocess.run(argv, input=lines, capture_output=True, text=True, errors="replace", check=False)
        for line in done.stdout.splitlines():
            parts = line.split()
            if len(parts) == 3 and parts[0] in here and _is_key(parts[1], parts[2]):
                found.setdefault(here[parts[0]], {})[parts[1]] = parts[2]
    return found


def _is_key(kind: str, text: str) -> bool:
    """Whether it is what it says: the blob of a key begins with its own type (RFC 4253, 6.6)."""
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    name = kind.encode(errors="replace")
    return blob.startswith(len(name).to_bytes(4, "big") + name)


def fingerprint(key: str) -> str:
    """As `ssh-keygen -lf` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(key)).digest()).decode().rstrip("=")


def ssh_options(known_hosts: Path) -> dict[str, str]:
    """Options of ssh towards hosts that nobody has vouched for."""
    return {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "ConnectTimeout": str(KEYSCAN_TIMEOUT_S),
        "ForwardAgent": "no",
        "ControlPath": "none",  # a master of an earlier run has seen other keys, or none
    }


def check_user(user: str | None) -> None:
    if user is not None and not _USER.match(user):
        raise BadPlace(f"{output.printable(user)}: no name of a user")


def ask(
    keys: Mapping[Place, Keys],
    user: str | None,
    *,
    ssh: str = "ssh",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Answer]:
    """Log in at every place whose keys are known, and have the engine say its facts. Changes nothing, needs no root.

    Only the key that the scan saw is taken: who answers now with another one is another machine.
    """
    check_user(user)
    request = {
        "verb": "drift", "check": True, "facts": {"paths": []}, "project": catalog.collection_version(), "run": RUN,
    }  # fmt: skip
    message = transport.Message(request)
    with tempfile.TemporaryDirectory(prefix="gb10-discover-") as folder:
        known_hosts = Path(folder) / "known_hosts"
        known_hosts.write_text("".join(known_hosts_lines(keys)), encoding="ascii")
        words = [word for name, value in ssh_options(known_hosts).items() for word in ("-o", f"{name}={value}")]
        words += ["-l", user] if user else []
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


def _answer(place: Place, keys: Keys, reply: scan.Reply) -> Answer:
    try:
        return answer(place, keys, transport.parse(reply.stdout)["facts"])
    except facts_schema.WrongFact as error:
        return _wrong(place, keys, error)
    except (ValueError, KeyError, TypeError, AttributeError):  # no answer, or not one of ours
        return silent(place, keys, reply)


def _wrong(place: Place, keys: Keys, error: facts_schema.WrongFact) -> Answer:
    said = f"{error}; if the machine is sound, this is a defect of gb10-fleet"
    return Answer(place, keys, silence=output.printable(said))


def answer(place: Place, keys: Keys, facts: Mapping[str, Any]) -> Answer:
    """Of a machine that has said its facts; KeyError or TypeError where they are not ours."""
    if facts is not None and (wrong := facts_schema.missing(facts)):
        return _wrong(place, keys, facts_schema.WrongFact(wrong))
    if not (facts["boot_id"] and facts["ssh"]):
        raise KeyError("boot_id, ssh")
    return Answer(place, keys, facts, is_spark(facts))


def silent(place: Place, keys: Keys, reply: scan.Reply) -> Answer:
    """Of one that has not, and why."""
    silence = drift_report.judge(reply, None, LOGIN_TIMEOUT_S, reply.host)["silence"]
    way_out = _ways_in(place).get(silence["reason"], silence["way_out"])
    return Answer(place, keys, silence=output.printable(f"{silence['text']}; {way_out}"))


def _ways_in(place: Place) -> dict[str, str]:
    """What to do where a password is missing or wrong, by the reason."""
    return {
        "permission": f"check the user (-u) and its key, or type its password: gb10 discover -k {place}",
        "no_sudo": f"check the password of sudo; without -K, discover needs no root: gb10 discover {place}",
    }


# -- what it means -----------------------------------------------------------------------------------------------------


def is_spark(facts: Mapping[str, Any]) -> bool:
    """What the doctor will say of it; the reason why discovery has no list of products of its own."""
    catalogs = {name: catalog.load(name) for name in probe.CATALOGS}
    subject = findings.Subject("", facts, {}, {}, catalogs, catalog.declared_variables())
    return all(finding.id != "not_a_spark" for finding in findings.evaluate_facts(subject))


def judge(asked: Sequence[Place], answers: Sequence[Answer]) -> Discovery:
    """Machines out of places, and keys that several of them have."""
    machines: dict[str, list[Answer]] = {}
    for answer in answers:
        # Of one that let nobody in, each place has to count as a machine of its own.
        identity = str(answer.facts["boot_id"]) if answer.facts else f"at {answer.place}"
        machines.setdefault(identity, []).append(answer)
    groups = {identity: group for identity, group in machines.items() if group[0].spark}
    names = _names(groups)
    answered = {answer.place for answer in answers}
    return Discovery(
        sorted((_machine(names[identity], group) for identity, group in groups.items()), key=lambda one: one.name),
        [answer.place for answer in answers if answer.facts and not answer.spark],
        {answer.place: answer.silence for answer in answers if not answer.facts},
        [place for place in asked if place.named and place not in answered],
        list(_duplicates(machines, names)),
    )


def _names(groups: Mapping[str, Sequence[Answer]]) -> dict[str, str]:
    """Host names where they are sound, free and nobody else's, whatever the case; else the address, which is."""
    said = {identity: str((group[0].facts or {}).get("hostname")) for identity, group in groups.items()}
    by_address = {
        identity: _BY_ADDRESS + re.sub(r"[^A-Za-z0-9]+", "-", str(group[0].place)).strip("-")
        for identity, group in groups.items()
    }
    taken = Counter(name.lower() for name in (*said.values(), *by_address.values()))
    return {
        identity: name if _is_free(name) and taken[name.lower()] == 1 else by_address[identity]
        for identity, name in said.items()
    }


def _is_free(name: str) -> bool:
    return bool(_NAME.match(name)) and name.lower() not in _RESERVED and not _is_address(name)


def _is_address(name: str) -> bool:
    """Of another machine, perhaps; 127.1 and 2130706433 are addresses, too."""
    return bool(re.fullmatch(r"[0-9.]+|0[xX][0-9A-Fa-f.xX]+", name))


def _machine(name: str, group: Sequence[Answer]) -> Machine:
    """Managed from the first place that is no rail of the fabric: the fabric's addresses will change."""
    first = next((answer for answer in group if not _over_a_rail(answer)), group[0])
    also = [answer.place for answer in group if answer is not first]
    return Machine(name, first.place, also, first.keys, first.facts or {})


def _over_a_rail(answer: Answer) -> bool:
    facts = answer.facts or {}
    return facts["ssh"].get("interface") in {rail["netdev"] for rail in facts.get("rails") or ()}


def _duplicates(machines: Mapping[str, Sequence[Answer]], names: Mapping[str, str]) -> Iterator[Duplicate]:
    """Keys of several machines of which one at least is a Spark; what the neighbours share is not ours to judge."""
    owners: dict[str, dict[str, str]] = {}
    for identity, group in machines.items():
        shown = ", ".join(str(answer.place) for answer in group)
        shown = f"{names[identity]} ({shown})" if identity in names else shown
        for key in {key for answer in group for key in answer.keys.values()}:
            owners.setdefault(key, {})[identity] = shown
    said = set()
    for key, group_of in owners.items():
        whose = tuple(group_of.values())
        if len(whose) > 1 and any(identity in names for identity in group_of) and whose not in said:
            said.add(whose)  # three types of key on the same machines are one trouble
            yield Duplicate(fingerprint(key), whose)


# -- files -------------------------------------------------------------------------------------------------------------


def known_hosts_lines(keys: Mapping[Place, Keys]) -> Iterator[str]:
    for place, own in keys.items():
        for kind, key in sorted(own.items()):
            yield f"{place.known_as} {kind} {key}\n"


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
    own = {spark.place: spark.keys for spark in found.sparks}
    output.write(file.with_name(KNOWN_HOSTS), "".join(known_hosts_lines(own)))
    output.write(file, inventory(found.sparks, user, now))
