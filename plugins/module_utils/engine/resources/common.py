# SPDX-License-Identifier: GPL-3.0-or-later
"""What every kind of resource shares: the shape of a kind and of a planned step, and how fields are read."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, Union

from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import Entry
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

Pattern = Union[str, re.Pattern[str]]  # text is compiled when it is first asked

MAX_LINE = 4096
MAX_CONTENT = 1024 * 1024  # bytes; configuration is small, so a larger value is a mistake or an attack
CONSENT = re.compile(r"[a-z_][a-z0-9_]*\Z")
_NOT_IN_A_LINE = re.compile(r"[\0-\x1f\x7f]")

# The order of an undo. What is to stop stops before anything is taken from under it, and what is to run starts last;
# holds give way before the packages move and come back after them; apt's sources stay until that is over.
STOPS, GIVES_WAY, REST, PACKAGES, COMES_BACK, SOURCES, STARTS = range(7)
# What roles may begin with is done in front of everything else: where apt gets packages, then all packages at once.
LEADING_SOURCE, LEADING_PACKAGE = 1, 2


class Limits(NamedTuple):
    """The least and the greatest number that a field takes."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"a number from {self.low} to {self.high}"


KERNEL_NUMBER = Limits(
    -(2**63), 2**64 - 1
)  # no setting of the kernel holds more, and Python may refuse to write it out


class DocumentError(Exception):
    """The document is wrong; the text names the field, as `resources[3].mode`."""


@dataclass(frozen=True)
class Resource:
    """One thing with a desired state. `index` is its place among all documents, which is the order of work.

    `role` is the one that declares it (the first, where several say the same); the engine fills it in.
    """

    KIND: ClassVar[str]

    index: int
    name: str
    role: str = ""

    @property
    def label(self) -> str:
        return f"{self.KIND}:{self.name}"

    @property
    def identities(self) -> tuple[str, ...]:
        """What no other resource of the documents may share."""
        return (self.label,)

    @property
    def leading(self) -> int:
        """Not 0 for what is done in front of everything else where a document begins with it."""
        return 0

    @property
    def stage(self) -> int:
        """When its turn comes in an undo."""
        return REST

    @property
    def inputs(self) -> tuple[str, ...]:
        """Labels of what has to be declared before it."""
        return ()

    @property
    def read_again(self) -> tuple[str, ...]:
        """Labels of what it reads again while it goes on; declared before it, too."""
        return ()

    @property
    def can_wait(self) -> tuple[str, ...]:
        """The labels of what a unit that is up need not hear of before its next start."""
        return ()

    @property
    def prerequisites(self) -> tuple[Resource, ...]:
        """What the host needs in order before anybody reads or changes it. Nobody declares that."""
        return ()

    @property
    def own_path(self) -> str:
        """The file that it is: parents are made for it, and a killed run may leave an unfinished one beside it."""
        return ""

    def claimed(self, declared: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the manifest may keep of its declaration."""
        return declared


R = TypeVar("R", bound=Resource)
S = TypeVar("S")


@dataclass(frozen=True)
class Step(Generic[R]):
    """One planned change of one resource. `before` and `after` are texts to compare, where the kind has them.

    `leaves`: of a file, what it says afterwards (`file_content.meaning`); empty where there is none then.
    """

    resource: R
    action: str
    detail: str
    before: str | None = None
    after: str | None = None
    leaves: str = ""

    def as_change(self) -> dict[str, str]:
        return {
            "role": self.resource.role,
            "resource": self.resource.label,
            "action": self.action,
            "detail": self.detail,
        }

    def as_diff(self) -> dict[str, str]:
        """One entry of Ansible's `diff` list."""
        if self.before is None and self.after is None:
            return {"prepared": f"{self.resource.label}: {self.action}: {self.detail}\n"}
        header = f"{self.resource.label} ({self.action})"
        return {
            "before_header": header,
            "after_header": header,
            "before": self.before or "",
            "after": self.after or "",
        }


@dataclass(frozen=True)
class Pending:
    """A change that the operator has not consented to; `consent` is the variable that would allow it.

    `detail`: what differs, as of a step.
    """

    resource: Resource
    action: str
    consent: str
    detail: str = ""

    def as_result(self) -> dict[str, str]:
        return {
            "role": self.resource.role,
            "resource": self.resource.label,
            "action": self.action,
            "consent": self.consent,
        }


@dataclass(frozen=True)
class Prediction:
    """The packages that will be installed after the package steps; not `complete` if apt could not be asked."""

    packages: frozenset[str]
    complete: bool


@dataclass
class Plan:
    """What is to be done and what waits for consent. Each kind adds its part; later kinds see the earlier ones'."""

    consents: Mapping[str, bool]
    document: Sequence[Resource]
    steps: list[Step[Any]] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    prediction: Prediction | None = None  # None: the package steps change nothing

    def consented(self, consent: str | None) -> bool:
        return consent is None or self.consents.get(consent, False)

    def changed(self, label: str) -> bool:
        return any(step.resource.label == label for step in self.steps)


@dataclass
class Progress:
    """What a running apply leaves for later steps."""

    done: list[Step[Any]] = field(default_factory=list)
    unit_files: set[str] = field(default_factory=set)  # units, as patterns, whose files changed under systemd
    units_gone: set[str] = field(default_factory=set)  # units, as patterns, whose file was removed
    lists_stale: bool = False  # apt's sources changed, its package lists are old
    packages_moved: bool = False


class Fields:
    """The attributes of one resource, taken one by one with their rules; `finish` refuses what nobody took.

    An attribute that is null counts as not given, so that a role can pass `omit` or a default of null.
    """

    def __init__(self, raw: Mapping[Any, Any], where: str, kind: str, consents: Mapping[str, bool]) -> None:
        self._consents = consents
        self._raw = {key: value for key, value in raw.items() if value is not None}
        self._left = set(self._raw)
        self.where = where
        self.kind = kind

    def fail(self, key: str, problem: str) -> DocumentError:
        return DocumentError(f"{self.where}.{key}: {problem}")

    def has(self, key: str) -> bool:
        return key in self._raw

    def _take(self, key: str) -> Any:
        self._left.discard(key)
        return self._raw.get(key)

    def name(self, pattern: Pattern, expected: str) -> str:
        """The identity of the resource, which is the value of its kind's key."""
        return self.line(self.kind, "", pattern, expected)

    def line(self, key: str, default: str, pattern: Pattern, expected: str) -> str:
        """One line of text that matches; `expected` says in words what would."""
        value = self._take(key)
        if value is None:
            if key == self.kind:
                raise self.fail(key, f"expected {expected}, found nothing")
            return default
        return self._checked_line(key, value, pattern, expected)

    def _checked_line(self, key: str, value: Any, pattern: Pattern, expected: str) -> str:
        if not isinstance(value, str):
            raise self.fail(key, f"expected {expected}, found {type_name(value)}")
        if len(value) > MAX_LINE:
            raise self.fail(key, f"expected {expected}, found {len(value)} characters")
        if _NOT_IN_A_LINE.search(value) or not _is_unicode(value):
            raise self.fail(key, f"expected {expected}, found control or invalid characters in {shown(value)}")
        if re.match(pattern, value) is None:
            raise self.fail(key, f"expected {expected}, found {shown(value)}")
        return str(value)

    def lines(self, key: str, pattern: Pattern, expected: str) -> tuple[str, ...]:
        value = self._take(key)
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)):
            raise self.fail(key, f"expected a list, found {type_name(value)}")
        return tuple(self._checked_line(f"{key}[{place}]", item, pattern, expected) for place, item in enumerate(value))

    def content(self, key: str) -> str | None:
        """Text of any number of lines."""
        value = self._take(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.fail(key, f"expected text, found {type_name(value)}")
        if "\0" in value or not _is_unicode(value):
            raise self.fail(key, "the text holds a NUL or is not valid UTF-8")
        if len(value.encode()) > MAX_CONTENT:
            raise self.fail(key, f"the text is longer than {MAX_CONTENT} bytes")
        return str(value)

    def flag(self, key: str) -> bool | None:
        value = self._take(key)
        if value is not None and not isinstance(value, bool):
            raise self.fail(key, f"expected true or false, found {type_name(value)}")
        return value

    def choice(self, key: str, choices: Collection[str], default: str) -> str:
        value = self._take(key)
        if value is None:
            return default
        if not isinstance(value, str) or value not in choices:
            raise self.fail(key, f"expected one of {', '.join(choices)}, found {shown(value)}")
        return str(value)

    def number(self, key: str, limits: Limits) -> int:
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, f"expected {limits}, found {shown(value)}")
        return self.within(key, value, limits)

    def within(self, key: str, value: int, limits: Limits) -> int:
        """A number, wherever in the field it stands; a regular expression says of text what it looks like, no more."""
        if not limits.low <= value <= limits.high:
            raise self.fail(key, f"expected {limits}, found {shown(value)}")
        return value

    def mapping(self, key: str) -> dict[str, Any] | None:
        value = self._take(key)
        if value is None:
            return None
        if not isinstance(value, dict) or not value:
            raise self.fail(key, f"expected a mapping with at least one key, found {type_name(value)}")
        return value

    def scalar(self, key: str, pattern: Pattern, expected: str) -> str:
        """Text, or a number in its place, because YAML makes one of an unquoted 1."""
        value = self._raw.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            self._take(key)
            return str(self.within(key, value, KERNEL_NUMBER))
        text = self.line(key, "", pattern, expected)
        if not text:
            raise self.fail(key, f"expected {expected}, found nothing")
        return text

    def consent(self) -> str | None:
        return self.line("consent", "", CONSENT, "the name of a variable") or None

    def consented(self, consent: str | None) -> bool:
        return consent is None or self._consents.get(consent, False)

    def finish(self) -> None:
        if self._left:
            extra = sorted(self._left, key=str)[0]
            raise self.fail(shown(extra).strip("'"), f"a {self.kind} resource has no such key")


def _is_unicode(text: str) -> bool:
    """Surrogates are what Python makes of bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def type_name(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", bool: "true/false", int: "a number", float: "a number"}
    for kind, name in names.items():
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return name
    return type(value).__name__


def shown(value: Any) -> str:
    """A value as an error message may quote it: short, printable, and whatever it is."""
    try:
        return ascii(value[:80] if isinstance(value, str) else value)[:80]
    except (ValueError, RecursionError):  # a number with thousands of digits, a list in a list in a list ...
        return type_name(value)


class Kind(ABC, Generic[R, S]):
    """One kind of resource: parse its attributes, read the host in one batch, plan without I/O, apply.

    For the manifest it also says how a resource stands, and what would bring that back. The other verbs have a default
    that is right for most kinds; the engine asks them and never for a kind's name.
    """

    name: ClassVar[str]
    declarable: ClassVar[bool] = True  # whether a document may name it
    proven: ClassVar[bool] = False  # whether a change counts only once `prove` has seen it work

    @abstractmethod
    def parse(self, index: int, fields: Fields) -> R:
        """The resource that the fields describe, or DocumentError."""

    @abstractmethod
    def read(self, system: System, resources: Sequence[R]) -> S:
        """Everything the plan needs, with as few reads and commands as the kind allows."""

    @abstractmethod
    def plan(self, resources: Sequence[R], state: S, plan: Plan) -> None:
        """Add the steps that lead from the state to the desired one. Pure; HostError if there is no way."""

    def prepare(self, system: System, plan: Plan, state: S) -> None:
        """Called once before the first change of any kind."""

    @abstractmethod
    def apply(self, system: System, steps: Sequence[Step[R]], state: S, progress: Progress) -> None:
        """Carry out consecutive steps of this kind, recording each in `progress.done` once it is true."""

    @abstractmethod
    def record(self, resource: R, state: S) -> dict[str, Any]:
        """Return how the resource stands on the host, in a state that `read` gave for it. Pure; plain JSON values.

        Two records of one resource are equal exactly if nobody touched it in between, so a record holds everything
        that `apply` may change and nothing that changes by itself (process and invocation IDs, counters, transitions).
        It is complete enough for `restore`, also where the resource does not exist. It depends on the state and not on
        what the resource wants, except that of a secret it holds the SHA-256 of the content and never the content.
        """

    @abstractmethod
    def restore(self, resource: R, record: Mapping[str, Any]) -> list[Resource]:
        """The resources, in the order of work, whose desired state is that record. Pure.

        `resource` is what was declared, with its consent. HostError, with the way out, if there is no way back: the
        content of a secret is not kept. What has gone meanwhile in the course of the same undo is no error.
        """

    def before(self, resource: R, record: Mapping[str, Any], state: S) -> Mapping[str, Any]:
        """What is known of how a resource stood before us, now that a step of ours is about to change it. Pure."""
        return record

    def untouched(self, resource: R, left: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
        """Whether a resource can have come from one record to the other without anybody having changed what we put.

        Pure. Only a kind whose resources change by themselves, or are ours in part, has more to say than equality.
        """
        return left == live

    def persist(self, role: str, resources: Sequence[R]) -> list[tuple[int, dict[str, Any]]]:
        """What makes the resources of a role outlast a boot: resources as a document has them, each with its place."""
        return []

    def settle(self, system: System, plan: Plan, progress: Progress) -> None:
        """Called once after the last step of any kind."""

    def prove(self, system: System, resources: Sequence[R]) -> None:
        """HostError unless they do what they are for."""

    def stands_unproven(self, resource: R, state: S) -> bool:
        """Return whether one that nobody could prove is ours all the same, because it stands as declared."""
        return False

    def noted(self, system: System, steps: Sequence[Step[R]]) -> Sequence[str] | None:
        """What has to be known from before these steps to tell by `brought` what came along; None: nothing will."""
        return None

    def brought(self, system: System, noted: Sequence[str], names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """{name of a resource: what came along with it since}"""
        return {}

    def unwanted(self, system: System, taken: Mapping[str, Entry], staying: Mapping[str, Entry]) -> set[str]:
        """Of what came along with those that an undo takes, by name, what nobody wants besides."""
        return set()

    def without(self, resource: R, name: str) -> list[Resource]:
        """The resources that take away what came along with this one."""
        return []

    def explain(self, system: System, step: Step[R]) -> str:
        """What the host says about a step that did not hold; empty where there is nothing to ask."""
        return ""
