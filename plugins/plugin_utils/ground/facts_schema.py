# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What facts look like: the types below are the schema, and `problem` compares an answer with them on arrival.

A host may be sick or hostile, so everything behind this may rely on the types. Keys that are not named here pass:
nothing reads them. What each fact means: docs/architecture/facts.md.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NotRequired,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from ansible_collections.gb10.fleet.plugins.module_utils.reading.types import Clock, MemoryBlocks

SHOWN = 60  # characters of a wrong value
_MOST = 2**63  # of a number; the kernel has no larger ones


class WrongFact(ValueError):
    """A value of a host that is missing or of another type than it must be; the text names it."""


class Parsed(NamedTuple):
    """A text that this function takes."""

    parse: Callable[[str], object]
    wanted: str

    def holds(self, value: Any) -> bool:
        try:
            self.parse(value)
        except ValueError:
            return False
        return True


class Between(NamedTuple):
    """A number within these limits."""

    least: float
    most: float

    @property
    def wanted(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"

    def holds(self, value: Any) -> bool:
        return bool(self.least <= value <= self.most)


Cidr = Annotated[str, Parsed(ipaddress.ip_interface, "an address")]
Address = Annotated[str, Parsed(ipaddress.ip_address, "an address")]


class Os(TypedDict):
    id: str | None
    version_id: str | None
    pretty: str | None


class Product(TypedDict):
    dmi_vendor: str | None
    dmi_name: str | None
    dmi_family: str | None
    dgx_release: dict[str, str] | None


class Disk(TypedDict):
    mount: str
    size_bytes: int
    free_bytes: int


class Ssh(TypedDict):
    interface: str | None
    way_back: NotRequired[str | None]
    local_address: Address | None
    peer_address: Address | None


class Interface(TypedDict):
    name: str
    mac: str | None
    mtu: int | None
    carrier: bool | None
    operstate: str | None
    driver: str | None
    addresses: list[Cidr]
    phys_port_name: str | None
    phys_switch_id: NotRequired[str | None]
    pci: str | None
    speed_mbps: int | None
    lower: NotRequired[list[str]]


class Route(TypedDict):
    interface: str | None
    cidr: Cidr


class Rail(TypedDict):
    netdev: str
    hca: str
    hca_port: int | None
    port: str | None
    twin_index: int | None
    carrier: bool | None
    mtu: int | None
    driver: str | None
    pci: str | None
    phys_switch_id: NotRequired[str | None]
    addresses: list[Cidr]
    state: str | None
    master: NotRequired[str | None]


class PortOwner(TypedDict):
    interface: str
    file: str
    name: str | None
    uuid: str | None
    renderer: str | None


class Gpu(TypedDict):
    present: bool
    name: str | None
    driver: str | None
    temperature_c: float | None
    power_w: float | None
    query_error: str | None


class Kernel(TypedDict):
    release: str
    module: str | None
    license: str | None
    flavour: str | None
    listed: bool


class Pin(TypedDict):
    file: str
    problem: str


class Driver(TypedDict):
    userland: str | None
    module_on_disk: str | None
    module_loaded: str | None
    license: str | None
    kernels: list[Kernel]
    next_kernel: str | None
    next_missing: list[str]
    pins: list[Pin]
    unheld: list[str] | None
    secure_boot: bool | None
    rejected: str | None


class Preference(TypedDict):
    file: str
    package: str
    pin: str
    priority: int


class Apt(TypedDict):
    lock_held_by: int | None
    dpkg_interrupted: bool


class AptSource(TypedDict):
    file: str
    uri: str
    suite: str
    components: list[str]
    signed_by: str | None


class Conflict(TypedDict):
    uri: str
    suite: str
    files: list[str]
    signed_by: list[str]


class AptSources(TypedDict):
    entries: list[AptSource]
    conflicts: list[Conflict]
    offered: list[str]


class Docker(TypedDict):
    present: bool
    version: str | None
    running: bool
    cgroup_driver: str | None


class Wish(TypedDict):
    unit: str
    who: str
    since: str
    until: str
    shown: str


class StartAbout(TypedDict):
    image: str
    model: str
    revision: str
    hosts: int
    share: str
    batch: dict[str, str]
    words: dict[str, str]


class Start(TypedDict):
    about: StartAbout
    figures: dict[str, float]
    at: str


class ModelFolder(TypedDict):
    names: list[str]
    texts: dict[str, str]
    weights_bytes: int | None


# Functional: one key is a word of Python.
JoinKey = TypedDict("JoinKey", {"for": str, "sha256": str})


class Facts(TypedDict):
    hostname: str | None
    boot_id: str | None
    kernel: str
    kho_off: NotRequired[bool | None]
    architecture: str
    memory_bytes: int
    os: Os
    product: Product
    root: bool
    disks: list[Disk]
    ssh: Ssh
    ssh_ports: list[int]
    default_route_interfaces: list[str]
    routes: NotRequired[list[Route]]
    interfaces: list[Interface]
    rails: list[Rail]
    port_owners: NotRequired[list[PortOwner]]
    gpu: Gpu
    driver: Driver
    packages: dict[str, str]
    installed_by_us: list[str]
    holds: list[str]
    apt_preferences: list[Preference]
    apt: Apt
    apt_sources: AptSources
    docker: Docker
    cdi: list[str]
    sysctls: dict[str, int | None]
    oom_daemons: list[str]
    vendor_updates: list[str]
    cdi_driver: str | None
    memory_available_bytes: NotRequired[int | None]
    memory_pinned_bytes: NotRequired[int | None]
    memory_blocks: NotRequired[MemoryBlocks | None]
    clock: Clock
    machine_digest: NotRequired[str | None]
    join_key: NotRequired[JoinKey | None]
    join_keys: NotRequired[dict[str, JoinKey | None]]
    model_phase: NotRequired[str | None]
    wishes: NotRequired[list[Wish]]
    measured: NotRequired[dict[str, list[Start]]]
    model_folders: NotRequired[dict[str, ModelFolder | None]]


def problem(facts: object) -> str | None:
    """The first fact that is missing or of another type than it must be, in words; None where all are sound."""
    return missing(facts) or unsound(facts)


def missing(facts: object) -> str | None:
    """The first fact of a whole answer that is not there."""
    return _missing(facts, Facts, "facts")


def unsound(facts: object) -> str | None:
    """The first fact of those that are there which is of another type than it must be."""
    return _of_those_there(facts, Facts, "facts")


def differs(value: object, kind: Any, where: str) -> str | None:
    """The same for an answer of another type, named `where`."""
    return _problem(value, kind, where)


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}


@cache
def _keys(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Of each key of a mapping its name, its type, and whether it has to be there."""
    # The types of what travels to a host cannot import NotRequired there.
    hints = get_type_hints(kind, localns={"NotRequired": NotRequired}, include_extras=True)
    return tuple((key, _bare(hint), get_origin(hint) is not NotRequired) for key, hint in hints.items())


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


def _problem(value: object, kind: Any, where: str) -> str | None:
    if is_typeddict(kind):
        return _missing(value, kind, where) or _of_those_there(value, kind, where)
    origin, inner = _parts(kind)
    if origin is Annotated:
        wrong = _problem(value, inner[0], where)
        return wrong or (None if inner[1].holds(value) else _wrong(value, inner[1].wanted, where))
    if origin in (Union, UnionType):
        choices = [choice for choice in inner if choice is not NoneType]
        return None if value is None else _problem(value, choices[0], where)
    if origin is list:
        if not isinstance(value, list):
            return _wrong(value, "a list", where)
        return _first(_problem(item, inner[0], f"{where}[{number}]") for number, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            return _wrong(value, "a mapping", where)
        return _first(_problem(item, inner[1], f"{where}.{key}"[:SHOWN]) for key, item in value.items())
    return None if _is(value, kind) else _wrong(value, _NAMES[kind], where)


def _missing(value: object, kind: Any, where: str) -> str | None:
    if not isinstance(value, dict):
        return _wrong(value, "a mapping", where)
    return _first(f"{where}.{key} is missing" for key, _, needed in _keys(kind) if needed and key not in value)


def _of_those_there(value: object, kind: Any, where: str) -> str | None:
    if not isinstance(value, dict):
        return _wrong(value, "a mapping", where)
    return _first(_problem(value[key], hint, f"{where}.{key}") for key, hint, _ in _keys(kind) if key in value)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is NotRequired else hint


def _is(value: object, kind: type) -> bool:
    """A truth value is no number here, and a number that no kernel has is none either."""
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if isinstance(value, (int, float)):
        return isinstance(value, (int, float) if kind is float else kind) and abs(value) < _MOST
    return isinstance(value, kind)


def _wrong(value: object, wanted: str, where: str) -> str:
    shown = repr(value)
    return f"{where} is {shown[:SHOWN]}{'...' if len(shown) > SHOWN else ''}, and must be {wanted}"


def _first(problems: Any) -> str | None:
    return next((found for found in problems if found), None)
