# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt did, by its own history: which packages of the driver, kernel and Docker moved, and when."""

from __future__ import annotations

import gzip
import re
import time
import zlib
from typing import Callable, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.software import PACKAGES
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import (
    LARGEST_TEXT,
    Unknown,
    checked,
    quoted,
    text_of,
)

FOLDER = "/var/log/apt"
MOST = 40  # of the newest
_MORE = re.compile(r"linux-(?:image|modules|firmware)|firmware|fwupd")
_ENTRY = re.compile(r"([a-z0-9][a-z0-9+.-]*)(?::\w+)? \(([^)]*)\)")
_ACTIONS = {
    "Install": "install",
    "Reinstall": "install",
    "Upgrade": "upgrade",
    "Downgrade": "downgrade",
    "Remove": "remove",
    "Purge": "remove",
}


class Package(TypedDict):
    name: str
    action: str
    before: str | None
    after: str | None


class Change(TypedDict):
    at_s: float
    command: str
    packages: list[Package]
    others: int


def read_apt_history(host: HostReader) -> list[Change]:
    """From the oldest to the newest, out of the log and the one before it."""
    texts, reason = [], None
    former = f"{FOLDER}/history.log.1.gz"
    try:
        with gzip.open(host.path(former)) as file:
            texts.append(checked(file.read(LARGEST_TEXT + 1).decode("utf-8", "replace"), former))
    except (OSError, EOFError, zlib.error, Unknown):  # absent, no gzip, damaged, empty, or without an end
        pass
    try:
        texts.append(text_of(host, f"{FOLDER}/history.log"))
    except Unknown as error:  # empty after each rotation
        reason = error
    if not texts:
        raise reason or Unknown("apt has no history")
    return parse_history("\n\n".join(texts), _local)


def _local(text: str) -> float:
    """apt writes the host's own time, without a zone."""
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


def parse_history(text: str, to_epoch: Callable[[str], float]) -> list[Change]:
    changes: list[Change] = []
    blocks = 0
    # Of two long files together the newest counts; an entry that is cut has no date, and is left out.
    for block in re.split(r"\n\s*\n", text[-LARGEST_TEXT:]):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        try:
            at_s = to_epoch(" ".join(fields["Start-Date"].split()))
        except (KeyError, ValueError, OverflowError):
            continue
        blocks += 1
        packages, others = _packages(fields)
        if packages:
            changes.append(
                {
                    "at_s": at_s,
                    "command": _command(fields.get("Commandline", "")),
                    "packages": packages,
                    "others": others,
                }
            )
    if not blocks:
        raise Unknown(f"{FOLDER}/history.log has no entries: {quoted(text[:200])}")
    return changes[-MOST:]


def _command(line: str) -> str:
    """Without options: one may name a proxy with its password."""
    return quoted(
        " ".join(word for word in line.split() if not word.startswith("-") and not re.search(r"=|::|//", word))
    )


def _packages(fields: dict[str, str]) -> tuple[list[Package], int]:
    found: list[Package] = []
    others = 0
    for field, action in _ACTIONS.items():
        for name, inner in _ENTRY.findall(fields.get(field, "")):
            if not (PACKAGES.match(name) or _MORE.match(name)):
                others += 1
                continue
            versions = [quoted(word) for word in inner.split(", ") if word != "automatic"]
            before = versions[0] if action in ("upgrade", "downgrade", "remove") and versions else None
            after = None if action == "remove" else (versions[-1] if versions else None)
            found.append({"name": name, "action": action, "before": before, "after": after})
    return found, others
