"""requirements-hashed.txt holds all that a controller installs, for each Python and machine, and knows no index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

import pytest
from packaging.markers import Environment, Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import hashes

TEXT = hashes.FILE.read_text(encoding="utf-8")
WANTED = hashes.wanted(hashes.project())
_PIN = re.compile(r"(?P<name>\S+)==(?P<version>\S+)(?: ; (?P<marker>.*?))? \\\n(?P<hashes>(?:    --hash=.*\n)+)")
_HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


@dataclass(frozen=True)
class Pin:
    name: str
    version: str
    marker: str | None

    def applies(self, environment: Environment) -> bool:
        return self.marker is None or Marker(self.marker).evaluate({**environment})


PINS = [Pin(canonicalize_name(it["name"]), it["version"], it["marker"]) for it in _PIN.finditer(TEXT)]


def environment(python: str, system: str, machine: str) -> Environment:
    here = default_environment()
    here["python_version"], here["python_full_version"] = python, f"{python}.0"
    here["sys_platform"], here["platform_machine"] = system, machine
    return here


ENVIRONMENTS = [
    environment(python, system, machine)
    for python in ("3.11", "3.12", "3.13")
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
]


def pinned(name: str, where: Environment) -> str | None:
    found = [pin.version for pin in PINS if pin.name == canonicalize_name(name) and pin.applies(where)]
    assert len(found) <= 1, f"{name} is there {len(found)} times for {where}"
    return found[0] if found else None


def test_the_file_is_pins_with_hashes_and_nothing_else() -> None:
    assert TEXT.startswith(hashes.HEAD)
    assert _PIN.sub("", TEXT.removeprefix(hashes.HEAD)) == ""
    for found in _PIN.finditer(TEXT):
        assert all(_HASH.fullmatch(line) for line in found["hashes"].splitlines()), found["name"]
    assert "://" not in TEXT and "index" not in TEXT


@pytest.mark.parametrize("text", WANTED)
def test_what_the_project_asks_for_is_there_everywhere(text: str) -> None:
    wanted = Requirement(text)
    for where in ENVIRONMENTS:
        version = pinned(wanted.name, where)
        assert version is not None, f"`make hashes`: {wanted.name} is missing for {where}"
        assert wanted.specifier.contains(version), f"`make hashes`: {wanted.name} {version} is not {wanted.specifier}"


def test_what_these_ask_for_is_there_too() -> None:
    """As far as the very versions are installed here, whose own needs are known without a network."""
    here, seen = default_environment(), 0
    for name, needs in _needs(here):
        for need in needs:
            assert pinned(need.name, here) is not None, f"`make hashes`: {name} needs {need.name}"
            seen += 1
    assert seen


def _needs(here: Environment) -> Iterator[tuple[str, list[Requirement]]]:
    """Each installed package of the file, with what it asks for on this machine, without extras."""
    for pin in PINS:
        try:
            found = metadata.distribution(pin.name)
        except metadata.PackageNotFoundError:
            continue
        if found.version == pin.version and pin.applies(here):
            needs = [Requirement(text) for text in found.requires or ()]
            yield pin.name, [it for it in needs if it.marker is None or it.marker.evaluate({**here, "extra": ""})]
