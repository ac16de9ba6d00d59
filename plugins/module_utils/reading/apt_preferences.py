# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of apt's preferences decide before ours do.

For each version the first stanza decides that names the package and matches the version. A stanza for all packages
(`*`) comes after those, whatever its priority. /etc/apt/preferences is read first, then preferences.d by name.
Measured with `apt-cache policy` of apt 3.0, the spellings of names also with 2.6.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterator
from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading import driver_pins as apt
from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import BRANCH
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

# Packages that a host need not have for a pattern to bring them in: other drivers, whose names have
# another branch or (from 590 on) none, and kernels.
FOREIGN = (
    *(
        "cuda-drivers",
        "nvidia-driver",
        "nvidia-driver-open",
        "nvidia-open",
        "libnvidia-compute",
        "nvidia-kernel-common",
    ),
    *(
        name.format(branch)
        for branch in (590, 595, 600, 610)
        for name in (
            *("cuda-drivers-{}", "nvidia-driver-{}", "nvidia-driver-{}-open", "nvidia-open-{}", "libnvidia-compute-{}"),
            "linux-modules-nvidia-{}-open-nvidia-hwe-24.04",
        )
    ),
    *("linux-nvidia-hwe-24.04", "linux-image-nvidia-hwe-24.04", "linux-image-7.0.0-1025-nvidia"),
)
# The names of sources that build them.
SOURCES = (
    *(f"nvidia-graphics-drivers-{BRANCH}", "nvidia-graphics-drivers-590", "linux-nvidia", "linux-nvidia-6.17"),
    *("linux-meta-nvidia-6.17", "linux-restricted-modules-nvidia-6.17", "linux-signed-nvidia-6.17"),
)

# What the roles docker and container_toolkit install.
OF_VENDORS = (
    *("docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin"),
    *("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"),
)

_OF_THE_DRIVER = re.compile(r".*nvidia|cuda-drivers")


class Preference(TypedDict):
    file: str
    package: str
    pin: str
    priority: int


def read_earlier(system: System, names: Collection[str]) -> list[Preference]:
    """What is read before ours and names one of these packages, or another driver: for each the file, the pin, and its
    priority. Of vendors' packages, of which ours say nothing, in any file."""
    return [
        {"file": file, "package": name, "pin": stanza.get("pin", ""), "priority": _number(stanza.get("pin-priority"))}
        for file in apt.preference_files(system.root)
        for stanza in parse(system.text(file) or "")
        for name in covers(stanza["package"], sorted({*names, *OF_VENDORS}))
        if file < apt.OUR_PREFERENCES or name in OF_VENDORS
    ]


def parse(text: str) -> Iterator[dict[str, str]]:
    """The stanzas of one file, their fields in lower case."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for block in re.split(r"\n[ \t]*(?:\n[ \t]*)+", "\n".join(lines)):
        joined = re.sub(r"\n[ \t]+", " ", block).splitlines()
        fields = {
            key.strip().lower(): " ".join(value.split()) for key, __, value in (ln.partition(":") for ln in joined)
        }
        if fields.get("package"):
            yield fields


def covers(field: str, names: Collection[str]) -> list[str]:
    """Which packages a `Package:` field names: by name, glob, /regular expression/, or source (given back as it is)."""
    covered: set[str] = set()
    for word in field.split() if field.strip() != "*" else ():  # beside other words `*` is a glob
        bare = apt.without_architecture(word)
        is_pattern = _is_expression(bare) or any(sign in bare for sign in "*?[")
        if word.startswith("src:"):  # behind it, a pattern means the names of packages as well
            if _matching(bare, (*SOURCES, *FOREIGN)) if is_pattern else _OF_THE_DRIVER.match(bare):
                covered.add(word)
        elif is_pattern:
            covered.update(_matching(bare, names))
            covered.update(_matching(bare, FOREIGN)[:1])  # one is enough to say so
        elif bare in names or _OF_THE_DRIVER.match(bare):
            covered.add(bare)
    return sorted(covered)


def _is_expression(word: str) -> bool:
    return word.startswith("/") and word.endswith("/")


def _matching(pattern: str, names: Collection[str]) -> list[str]:
    """As apt does it: in the C library, and without regard to case."""
    if _is_expression(pattern):
        return apt.posix(pattern[1:-1], names)[1]
    if "[" not in pattern and "\\" not in pattern:
        return fnmatch.filter(names, pattern.lower())
    try:
        import ctypes  # costs 3 ms; only these two signs mean something else to Python
    except ImportError:
        return list(names)
    fnmatch_as_c, glob, fold_case = ctypes.CDLL(None).fnmatch, pattern.encode(errors="replace"), 16
    return [name for name in names if fnmatch_as_c(glob, name.encode(), fold_case) == 0]


def _number(text: str | None) -> int:
    try:
        return int(text or "0")
    except ValueError:
        return 0
