"""The engine's own dataclasses do what the standard library's do, as far as they go."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine import structs
from ansible_collections.gb10.fleet.plugins.module_utils.engine.system import sha256

COLLECTIONS = Path(structs.__file__).parents[6]  # of the checkout, or where it is installed


def made(library: Any) -> SimpleNamespace:
    """The same classes, by one library or the other."""
    dataclass: Callable[..., Any] = library.dataclass

    @dataclass(frozen=True)
    class Base:
        KIND: ClassVar[str]
        index: int
        name: str
        role: str = ""

        @property
        def label(self) -> str:
            return f"{self.KIND}:{self.name}"

    @dataclass(frozen=True)
    class File(Base):
        KIND = "file"
        content: bytes | None = None
        stated: frozenset[str] = frozenset()

    @dataclass
    class Plan:
        steps: list[str] = library.field(default_factory=list)
        note: str = ""

    return SimpleNamespace(Base=Base, File=File, Plan=Plan, replace=library.replace)


BOTH = pytest.mark.parametrize("made", [made(structs), made(dataclasses)], ids=["ours", "the standard's"])


@BOTH
def test_fields_are_those_of_all_classes_in_order(made: Any) -> None:
    file = made.File(3, "/etc/a", content=b"x")
    assert (file.index, file.name, file.role, file.content, file.stated) == (3, "/etc/a", "", b"x", frozenset())
    assert file.label == "file:/etc/a"
    assert list(vars(file)) == ["index", "name", "role", "content", "stated"]
    assert repr(file).endswith("File(index=3, name='/etc/a', role='', content=b'x', stated=frozenset())")


@BOTH
def test_equal_are_those_of_one_class_with_equal_fields(made: Any) -> None:
    assert made.File(1, "a") == made.File(1, "a")
    assert made.File(1, "a") != made.File(1, "b")
    assert made.File(1, "a") != made.Base(1, "a")
    assert made.File(1, "a") != 1
    assert len({made.File(1, "a"), made.File(1, "a"), made.File(2, "a")}) == 2


@BOTH
def test_replace_makes_another_one(made: Any) -> None:
    file = made.File(1, "a")
    assert made.replace(file, index=2, role="demo") == made.File(2, "a", "demo")
    assert file == made.File(1, "a")
    with pytest.raises(TypeError):
        made.replace(file, colour="red")


@BOTH
def test_what_is_frozen_stays(made: Any) -> None:
    with pytest.raises(AttributeError):
        made.File(1, "a").index = 2
    with pytest.raises(AttributeError):
        del made.File(1, "a").index


@BOTH
def test_what_is_not_frozen_has_lists_of_its_own(made: Any) -> None:
    first, second = made.Plan(), made.Plan(note="x")
    first.steps.append("a")
    first.note = "y"
    assert (first.steps, second.steps, first.note, second.note) == (["a"], [], "y", "x")
    assert made.Plan.__hash__ is None


@BOTH
@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ((), {}),
        ((1,), {}),
        ((1, "a", "", None, frozenset(), 6), {}),
        ((1, "a"), {"colour": "red"}),
        ((1,), {"index": 1}),
    ],
)
def test_wrong_arguments_are_refused(made: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        made.File(*positional, **named)


def test_the_digest_is_the_usual_one() -> None:
    assert sha256(b"abc") == hashlib.sha256(b"abc").hexdigest()


def test_the_hash_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is missing costs a search of Python's whole path."""
    sha256(b"abc")
    sought: list[str] = []

    class Listening:
        def find_spec(self, name: str, *_: Any) -> None:
            sought.append(name)

    monkeypatch.setattr(sys, "meta_path", [Listening(), *sys.meta_path])
    sha256(b"abc")
    assert sought == []


def tuples(library: Any) -> Any:
    class Pair(library.NamedTuple):  # type: ignore[misc]
        """Two, of which one may be left out."""

        first: int
        second: str = "b"

        def __str__(self) -> str:
            return f"{self.first}{self.second}"

    return Pair


@pytest.mark.parametrize("library", [structs, typing])
def test_a_named_tuple_is_one(library: Any) -> None:
    pair = tuples(library)
    one = pair(1)
    assert one == (1, "b") and str(one) == "1b" and [*one] == [1, "b"] and hash(one) == hash((1, "b"))
    assert one._replace(second="c") == pair(first=1, second="c") and one._asdict() == {"first": 1, "second": "b"}
    assert (pair._fields, pair.__name__, pair.__doc__) == (("first", "second"), "Pair", tuples(typing).__doc__)
    for wrong in ((), (1, "b", 2)):
        with pytest.raises(TypeError):
            pair(*wrong)
    with pytest.raises(AttributeError):
        one.second = "d"


def test_what_takes_long_is_not_imported() -> None:
    """Of what a host imports in each call, typing alone would be a tenth."""
    room = "ansible_collections.gb10.fleet.plugins.module_utils"
    code = f"import sys; sys.path.insert(0, {str(COLLECTIONS)!r}); from {room}.bootstrap import install, texts; " \
           f"from {room}.health import glance; print(*sys.modules)"  # fmt: skip
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    slow = {"typing", "dataclasses", "socket", "ctypes", "hashlib", "subprocess", "signal"}
    assert slow.isdisjoint(done.stdout.split())


def test_a_look_ends_without_what_takes_long() -> None:
    """pathlib loads urllib and ipaddress, a tenth of what a look at a host costs; subprocess costs a fifth."""
    room = "ansible_collections.gb10.fleet.plugins.module_utils"
    code = f"import sys; sys.path.insert(0, {str(COLLECTIONS)!r}); from {room}.health import glance; " \
           "glance.look(glance.HostReader()); print(*sys.modules)"  # fmt: skip
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert f"{room}.engine.commands" in done.stdout.split()
    assert {"pathlib", "subprocess"}.isdisjoint(done.stdout.split())
