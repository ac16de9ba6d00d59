# SPDX-License-Identifier: GPL-3.0-or-later
"""GRUB's menu: the kernels in it, and the one that boots next."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.root_files import read_text

# How GRUB's default may be spelled, but for a literal.
_ONCE, _SAVED = ("${next_entry}", "$next_entry"), ("${saved_entry}", "$saved_entry")
_ENVIRONMENT_HEAD = "# GRUB Environment Block\n"
KERNEL_FILE = re.compile(r"(?:vmlinu[xz]|kernel|Image)-([A-Za-z0-9][A-Za-z0-9+._~-]{0,199})\Z")
_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)
_PART = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|([^'"\\]+)""", re.DOTALL)


class Entry:
    """An entry of GRUB's menu: what it boots, or (a submenu) what is below it."""

    def __init__(self, title: str, identity: str, below: list[Any] | None) -> None:
        self.title, self.id, self.below = title, identity, below
        self.image: list[str] = []  # the path of the kernel, if it has one
        self.initrd: list[str] = []  # the paths of what is loaded beside it


class Grub:
    """What GRUB's menu says."""

    def __init__(self, listed: set[str], next_kernel: str | None, missing: list[str]) -> None:
        self.listed = listed  # the kernels in it
        self.next_kernel = next_kernel  # the one it boots next; None without GRUB, without Linux there, or if unknown
        self.missing = missing  # the files of that entry that are not there, or empty


def read_grub(root: Path) -> Grub:
    menu, default = parse_menu(read_text(root, "/boot/grub/grub.cfg"))
    variables = parse_environment(read_text(root, "/boot/grub/grubenv"))
    # GRUB's menu ends with this file, if there is one: the operator's own entries, and maybe another default.
    own = re.search(r"(?m)^[^#\n]*\b(menuentry|submenu|default)\b", read_text(root, "/boot/grub/custom.cfg"))
    images = {path for entry in _leaves(menu) for path in entry.image}
    releases = {path: _release(root, path) for path in images}
    path = None if own else wanted(default, variables)
    chosen = None if path is None else choose(menu, path)
    listed = {release for release in releases.values() if release}
    if chosen is None or not chosen.image:
        return Grub(listed, None, [])
    files = [*chosen.image, *chosen.initrd]
    return Grub(
        listed, releases[chosen.image[0]], [path for path in files if "$" not in path and not _is_there(root, path)]
    )


def _is_there(root: Path, path: str) -> bool:
    """Whether a file that GRUB loads has contents; its paths begin at the root of a device, maybe that of /boot."""
    below = re.sub(r"\(.*?\)", "", path).lstrip("/")
    for place in (root / below, root / "boot" / below.rpartition("/")[2]):
        try:
            if place.stat().st_size:
                return True
        except (OSError, ValueError):
            continue
    return False


def parse_environment(text: str) -> dict[str, str]:
    """grubenv: NAME=VALUE lines, filled up with `#`. GRUB takes nothing from a file that begins otherwise."""
    if not text.startswith(_ENVIRONMENT_HEAD):
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name: re.sub(r"\\(.)", r"\1", value) for name, sign, value in pairs if sign}


def parse_menu(text: str) -> tuple[list[Entry], str | None]:
    """The menu of a grub.cfg, and its default (but for the one of a single boot). None where it has several ones, for
    conditions are not read, or one that is made of variables."""
    menu: list[Entry] = []
    defaults: list[str] = []
    open_blocks: list[Entry] = []  # functions too, as entries that are in no menu
    for line in text.splitlines():
        words = [_unquoted(word) for word in _WORD.findall(line)]
        if not words or words[0].startswith("#"):
            continue
        if words[0] in ("menuentry", "submenu") and words[-1] == "{":
            entry = Entry(words[1], _id(words), [] if words[0] == "submenu" else None)
            above = open_blocks[-1].below if open_blocks else menu
            if above is not None:
                above.append(entry)
            open_blocks.append(entry)
        elif words[-1] == "{":
            open_blocks.append(Entry("", "", None))
        elif words == ["}"]:
            del open_blocks[-1:]
        elif words[0] in ("linux", "linuxefi", "linux16") and open_blocks and len(words) > 1:
            open_blocks[-1].image[:] = open_blocks[-1].image or [words[1]]
        elif words[0] in ("initrd", "initrdefi", "initrd16") and open_blocks:
            open_blocks[-1].initrd[:] = words[1:]
        elif not open_blocks:
            values = [word[len("default=") :].rstrip(";") for word in words if word.startswith("default=")]
            defaults += [value for value in values if value not in (*_ONCE, *defaults)]
    default = (defaults or ["0"])[0]
    return menu, None if len(defaults) > 1 or ("$" in default and default not in _SAVED) else default


def wanted(default: str | None, variables: Mapping[str, str]) -> str | None:
    """Return which entry GRUB looks for: the one for a single boot, else the default, which may be a saved one."""
    if default in _SAVED:
        default = variables.get("prev_saved_entry") or variables.get("saved_entry") or "0"
    return variables.get("next_entry") or default


def choose(menu: Sequence[Entry], path: str) -> Entry | None:
    """The entry that GRUB boots for a default like `0`, `1>2`, a title or an identifier.

    What is not in the menu stands for the first entry. A `>` that belongs to a title is written twice.
    """
    while menu:
        head, __, path = re.sub(r"(?<!>)>(?!>)", "\0", path).partition("\0")
        path, head = path.replace("\0", ">"), head.replace(">>", ">")
        if re.match(r"[0-9]{1,5}\Z", head):
            chosen = menu[int(head)] if int(head) < len(menu) else menu[0]
        else:
            chosen = next((entry for entry in menu if head and head in (entry.title, entry.id)), menu[0])
        if chosen.below is None:
            return chosen
        menu = chosen.below
    return None


def _leaves(menu: Sequence[Entry]) -> Iterator[Entry]:
    waiting = list(menu)
    while waiting:
        entry = waiting.pop()
        yield entry
        waiting += entry.below or ()


def _id(words: Sequence[str]) -> str:
    flags = ("--id", "$menuentry_id_option", "${menuentry_id_option}")
    return next((after for flag, after in zip(words, words[1:]) if flag in flags), "")


def _unquoted(word: str) -> str:
    parts = _PART.findall(word)
    return "".join(single + re.sub(r"\\(.)", r"\1", double) + escaped + bare for single, double, escaped, bare in parts)


def _release(root: Path, path: str) -> str | None:
    """The release of a kernel by the name of its file, or by where a link leads that has none in its name."""
    name = path.rpartition("/")[2]
    found = KERNEL_FILE.match(name)
    if found is None:
        try:
            found = KERNEL_FILE.match(os.readlink(root / "boot" / name).rpartition("/")[2])  # noqa: PTH115
        except (OSError, ValueError):
            return None
    return found[1] if found else None
