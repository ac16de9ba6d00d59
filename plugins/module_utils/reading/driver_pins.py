# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt's preferences say of the driver, and what apt would install next."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import has_the_drivers_version
from ansible_collections.gb10.fleet.plugins.module_utils.system.root_files import names_in, read_text

Run = Callable[[Sequence[str]], str]  # a command's stdout; empty where it failed
PREFERENCES = "/etc/apt/preferences"
OUR_PREFERENCES = f"{PREFERENCES}.d/10-gb10-nvidia"
# Names of packages with `(a|b)`, `(a)?`, `.`, `\.`, `.*`, `[0-9]` and `[0-9]{3}` in them.
_ALIKE = re.compile(
    r"\^?(?:[a-z0-9-]|\\?\.|\.\*|\[0-9\](?:\{[1-9]\})?|\("
    r"|(?<=[a-z0-9.*\]})?-])(?:\)\??|\|(?=[a-z0-9.\[(-])))+\$?\Z"
)
# At worst Python tries a name's length to the power of the stars, and 2 to that of the choices.
_SHORT, _STARS, _CHOICES = 200, 3, 10


class Pin(TypedDict):
    file: str
    problem: str


def preference_files(root: Path) -> list[str]:
    """The files of apt's preferences, in the order in which apt reads them."""
    folder = f"{PREFERENCES}.d"
    # Of the folder apt reads names without an extension, and those that end in .pref.
    parts = [name for name in names_in(root, folder) if re.match(r"[A-Za-z0-9_-]+(\.pref)?\Z", name)]
    return [PREFERENCES, *(f"{folder}/{name}" for name in parts)]


def read_pins(root: Path) -> list[Pin]:
    """Regular expressions of apt's preferences that it cannot read: it only warns then, and the stanza is void."""
    found: list[Pin] = []
    for path in preference_files(root):
        stanzas = re.sub(r"\n[ \t]+", " ", re.sub(r"(?m)^#.*\n?", "", read_text(root, path)))
        for field, values in re.findall(r"(?im)^(package|pin):(.*)$", stanzas):
            words = values.split()
            for word in map(without_architecture, words) if field.lower() == "package" else words:
                problem = posix(word[1:-1])[0] if re.match(r"/.*/\Z", word) else None
                if problem:
                    found.append({"file": path, "problem": f"{word}: {problem}"})
    return found


def without_architecture(word: str) -> str:
    """A word of a `Package:` field without `src:` before, and without what is behind the last colon, as apt cuts it."""
    bare = word[len("src:") :] if word.startswith("src:") else word
    return bare.rpartition(":")[0] or bare


def posix(expression: str, texts: Collection[str] = ()) -> tuple[str | None, list[str]]:
    """What the C library, whose regular expressions apt uses, has against a POSIX extended one; and where it is found.

    Python's own reads many otherwise (`**`, `[[:`), and may ponder one for years. Without ctypes: found everywhere.
    """
    if _read_alike(expression):
        if not texts:
            return None, []
        alike = re.compile(expression, re.IGNORECASE)
        return None, [text for text in texts if alike.search(text)]
    try:
        import ctypes  # takes 3 ms, which only a host with such expressions has to pay
    except ImportError:
        return None, list(texts)
    library = ctypes.CDLL(None)
    compiled, said = ctypes.create_string_buffer(512), ctypes.create_string_buffer(200)
    extended, ignore_case, no_places = 1, 2, 8
    source = expression.encode(errors="replace").replace(b"\0", b"")
    error = library.regcomp(compiled, source, extended | ignore_case | no_places)
    if error:
        library.regerror(error, compiled, said, len(said))
        return said.value.decode(errors="replace"), []
    found = [text for text in texts if library.regexec(compiled, text.encode(errors="replace"), 0, None, 0) == 0]
    library.regfree(compiled)
    return None, found


def _read_alike(expression: str) -> bool:
    """Whether Python and the C library mean the same by it, and neither can ponder it: all that we write ourselves."""
    choices = expression.count("|") + expression.count("?")
    if len(expression) > _SHORT or expression.count("*") > _STARS or choices > _CHOICES or not _ALIKE.match(expression):
        return False
    # Of what is alike, nothing else can be wrong. To compile it takes ten times as long.
    depth = 0
    for sign in expression:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return depth == 0


def read_candidates(root: Path, packages: Mapping[str, str], run: Run) -> dict[str, str] | None:
    """The version that apt would install next, of the driver's packages: of those installed, and with our pins in place
    of all that apt knows. None where apt does not answer: it knows at least what is installed."""
    known = set(packages)
    if (root / OUR_PREFERENCES.lstrip("/")).exists():
        named = run(["apt-cache", "pkgnames"]).split()
        if not named:
            return None
        known.update(named)
    asked = sorted(name for name in known if has_the_drivers_version(name))
    candidates: dict[str, str] = {}
    answered = set()
    name = ""
    for line in run(["apt-cache", "policy", *asked]).splitlines() if asked else ():
        if not line.startswith(" "):
            name = line.partition(":")[0]
            answered.add(name)
        elif line.startswith("  Candidate: ") and "(none)" not in line:
            candidates[name] = line.partition(": ")[2]
    installed = {name for name in asked if name in packages}
    return None if asked and not (answered and installed <= answered) else candidates
