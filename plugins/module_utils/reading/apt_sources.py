# SPDX-License-Identifier: GPL-3.0-or-later
"""Where apt gets its packages from, read from its files: which sources there are, and which of them contradict.

Two definitions of one archive with different `Signed-By` keep every apt command from working, `apt-get update`
included. What counts as one archive, and as different, was measured with apt 2.6 (`apt-get indextargets`): same site,
path and suite, whatever the scheme, a slash at the end, user, components or `deb-src`; compared is the text of the
option. A definition without the option is in conflict with an earlier one that has it, and not the other way round.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System, sha256

SOURCES_LIST = "/etc/apt/sources.list"
SOURCES_PARTS = "/etc/apt/sources.list.d"
LISTS = "/var/lib/apt/lists"

# apt passes over files with other characters or endings (a backup, dpkg's leftovers).
_PART = re.compile(r"[A-Za-z0-9_.-]+\.(list|sources)\Z")
_OPTIONS = re.compile(r"\[([^\]]*)\]")
_URL = re.compile(r"[a-z0-9+.-]+:(?://)?(?P<rest>.*)\Z")
# Up to the last @ of the authority; where a slash in the password ends that too early, what is no `host:port` tells it.
_CREDENTIALS = re.compile(r"//(?:[^/\s:\[]+:(?!\d*/)\S*|[^/\s]*)@")
_QUERY = re.compile(r"\?\S*")
# apt's own names of architectures, by the kernel's.
_ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}
_ARMOUR, _EMBEDDED = "BEGIN PGP", "a key in the file"
WAY_OUT = (
    "keep one of the definitions (the vendor's own, if it is there), and remove the other or give it `Enabled: no`"
)


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


@dataclass(frozen=True)
class Source:
    """One archive and suite of one definition that apt reads. `signed_by` is the option's text, empty without one."""

    file: str
    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str

    @property
    def archive(self) -> tuple[str, str]:
        """What apt holds for one archive: site and path, and the suite."""
        return _place(self.uri), self.suite

    def as_fact(self) -> AptSource:
        return {
            "file": self.file,
            "uri": self.uri,
            "suite": self.suite,
            "components": list(self.components),
            "signed_by": key_of(self) or None,
        }


def read_sources(system: System) -> list[Source]:
    """All sources in the order in which apt reads them."""
    machine = os.uname().machine
    architecture = _ARCHITECTURES.get(machine, machine)
    parts = [f"{SOURCES_PARTS}/{name}" for name in system.names(SOURCES_PARTS) if _PART.match(name)]
    found: list[Source] = []
    for file in (SOURCES_LIST, *parts):
        text = system.text(file) or ""
        found += (
            parse_deb822(file, text, architecture)
            if file.endswith(".sources")
            else parse_list(file, text, architecture)
        )
    return found


def parse_list(file: str, text: str, architecture: str) -> list[Source]:
    """The one-line format: `deb [option=value ...] uri suite component ...`."""
    found = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        options = _OPTIONS.search(line)
        words = _OPTIONS.sub(" ", line, count=1).split() if options else line.split()
        if len(words) < 3 or words[0] not in ("deb", "deb-src"):
            continue
        given = dict(word.partition("=")[::2] for word in options[1].split()) if options else {}
        signed_by = {key.lower(): value for key, value in given.items()}.get("signed-by", "")
        uri = _expanded(words[1], architecture)
        found.append(Source(file, uri, _expanded(words[2], architecture), tuple(words[3:]), signed_by))
    return found


def parse_deb822(file: str, text: str, architecture: str) -> list[Source]:
    """The stanza format: every URI of a stanza with every suite of it."""
    found = []
    for stanza in _stanzas(text):
        if stanza.get("enabled", "yes").lower() in ("no", "false", "without", "off", "disable", "0"):
            continue
        if not set(stanza.get("types", "").split()) & {"deb", "deb-src"}:
            continue
        signed_by = stanza.get("signed-by", "")
        for uri in stanza.get("uris", "").split():
            for suite in stanza.get("suites", "").split():
                components = tuple(stanza.get("components", "").split())
                suite = _expanded(suite, architecture)
                found.append(Source(file, _expanded(uri, architecture), suite, components, signed_by))
    return found


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    """Field names in lower case; the lines of a folded value are joined by spaces."""
    stanza: dict[str, str] = {}
    field = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if stanza:
                yield stanza
            stanza, field = {}, ""
        elif line[0] in " \t":
            stanza[field] = f"{stanza.get(field, '')} {line.strip()}".strip()
        else:
            field, _colon, value = line.partition(":")
            field = field.strip().lower()
            stanza[field] = value.strip()


def _expanded(text: str, architecture: str) -> str:
    """Without the name, password and query of a URI: facts go into evidence, and evidence gets shared."""
    return _CREDENTIALS.sub("//", _QUERY.sub("", text.replace("$(ARCH)", architecture)))


def _place(uri: str) -> str:
    match = _URL.match(uri)
    return (match["rest"] if match else uri).rstrip("/")


def conflicts(sources: Sequence[Source]) -> list[Conflict]:
    """The archives that apt will not read, with the files that contradict each other."""
    first: dict[tuple[str, str], Source] = {}
    found: dict[tuple[str, str], Conflict] = {}
    for source in sources:
        known = first.get(source.archive)
        if known is None or not known.signed_by:
            first[source.archive] = source
        elif source.signed_by != known.signed_by:
            conflict = found.setdefault(
                source.archive,
                {"uri": known.uri, "suite": known.suite, "files": [known.file], "signed_by": [shown(known)]},
            )
            conflict["files"].append(source.file)
            conflict["signed_by"].append(shown(source))
    return list(found.values())


def told(found: Iterable[Mapping[str, Any]]) -> str:
    """Conflicts in words."""
    facts = []
    for conflict in found:
        files = [f"{file} (Signed-By: {key})" for file, key in zip(conflict["files"], conflict["signed_by"])]
        facts.append(f"{conflict['uri']} {conflict['suite']} is defined by {' and '.join(files)}")
    return f"{'; '.join(facts)}: no apt command works with two different Signed-By for one source"


def key_of(source: Source) -> str:
    """The path of the key, or the digest of one that stands in the file: facts are sent, kept and shown."""
    if _ARMOUR not in source.signed_by:
        return source.signed_by
    return f"sha256:{sha256(' '.join(source.signed_by.split()).encode())}"


def shown(source: Source) -> str:
    """The key as a message may name it."""
    if _ARMOUR in source.signed_by:
        return _EMBEDDED
    return source.signed_by or "none"


def offered(system: System, sources: Iterable[Source], names: Sequence[str]) -> list[str]:
    """Those of the packages that apt's own lists name, of the sources that there are now.

    Lists that apt keeps compressed cannot be searched here and count as silent. It takes a pass over files of some
    80 MB on a full Ubuntu, so it is for packages that are not installed.
    """
    if not names:
        return []
    starts = tuple(_list_name(source) for source in sources)
    wanted = {name: f"\nPackage: {name}\n".encode() for name in names}
    found = set()
    for name in system.names(LISTS):
        if name.endswith("_Packages") and name.startswith(starts):
            found |= _named_in(system, f"{LISTS}/{name}", wanted)
    return sorted(found)


def _list_name(source: Source) -> str:
    """How the names of an archive's lists begin: apt makes underscores of slashes and quotes what would be special."""
    place = re.sub(r"[\\|{}\[\]<>\"^~_=!@#$%&*]", lambda match: f"%{ord(match[0]):02x}", _place(source.uri))
    suite = "" if source.suite.endswith("/") else f"dists/{source.suite}/"
    return f"{place}/{suite}".replace("/", "_")


def _named_in(system: System, path: str, wanted: Mapping[str, bytes]) -> set[str]:
    import mmap  # only a host without these packages needs it

    try:
        with system.path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return {
                name
                for name, stanza in wanted.items()
                if content.find(stanza) >= 0 or content[: len(stanza) - 1] == stanza[1:]
            }
    except (OSError, ValueError):  # an empty file cannot be mapped
        return set()
