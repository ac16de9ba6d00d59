# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether driver, kernel modules and the kernel that boots next belong together. Says so, and repairs nothing.

The failure that it looks for is quiet: an upgrade moves the kernel without its prebuilt NVIDIA modules, or the userland
without the kernel; everything goes on, and the next boot has no GPU.

`judge` is pure. What it judges is read from files, apart from one `modinfo` where modules are compressed, and apt's
candidates. The engine reads its facts of the driver here, and the role `coherence` puts this very file on the host as
the program of a timer: so it imports the standard library only, and knows nothing of the rest of the project.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

Verdict = dict[str, str]  # id, severity (error, warn), fact, way_out
Run = Callable[[Sequence[str]], str]  # a command's stdout; empty where it failed

BRANCH = "580"  # as catalog/host_sets.yml: the branch that a Spark stays on
IDS = (
    "coherent", "userland_newer", "module_newer", "next_kernel_without_module", "next_kernel_other_module",
    "next_kernel_incomplete", "proprietary_flavour", "module_not_loaded", "hold_lost", "invalid_pin", "mixed_userland",
    "candidate_not_580", "candidates_unknown", "pending_reboot", "no_driver", "fallback_kernel_without_module",
)  # fmt: skip
# A host may stay like this: a move of the driver leaves the former kernel, GRUB's fallback, without its modules.
HARMLESS = ("coherent", "fallback_kernel_without_module")

MANIFEST = "/var/lib/gb10-fleet/manifest.json"
PREFERENCES = "/etc/apt/preferences"
OUR_PREFERENCES = f"{PREFERENCES}.d/10-gb10-nvidia"
COMMAND_DEADLINE_S = 30.0
# Bytes of any file but dpkg's and ours; modules.dep has 0.8 million. Files of /proc/sys refuse a read of 4 MiB.
MAX_READ = 2 * 1024 * 1024
MAX_SECTION = 1024 * 1024  # bytes of an ELF section; real ones have some 5,000

_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")
# Which package tells the version of the userland, most telling first: libnvidia-compute carries libcuda itself.
_USERLAND = (r"libnvidia-compute(-\d+)?\Z", r"nvidia-utils(-\d+)?\Z", r"nvidia-driver(-\d+)?(-open)?\Z")
# The packages that are built from one driver version, with the branch in their names or (from 590 on) without. Firmware
# of several versions may lie side by side, and the fabric manager's are released on their own.
_FAMILY = re.compile(
    r"(?!.*-(firmware|fabricmanager|imex|nscq)-)(lib)?nvidia-(.+-)?\d{3}(-.+)?\Z"
    r"|libnvidia-(cfg1|common|compute|decode|encode|extra|fbc1|gl|gpucomp)\Z"
    r"|nvidia-(driver|driver-open|driver-cuda|open|compute-utils|kernel-common|utils)\Z|cuda-drivers(-.+)?\Z"
    r"|xserver-xorg-video-nvidia-\d{3}(-.+)?\Z"
)
# How GRUB's default may be spelled, but for a literal.
_ONCE, _SAVED = ("${next_entry}", "$next_entry"), ("${saved_entry}", "$saved_entry")
_IMAGE = re.compile(r"(?:vmlinu[xz]|kernel|Image)-(.+)\Z")
# Names of packages with `(a|b)`, `(a)?`, `.`, `.*`, `[0-9]` and `[0-9]{3}` in them.
_ALIKE = re.compile(
    r"\^?(?:[a-z0-9-]|\.\*?|\[0-9\](?:\{[1-9]\})?|\("
    r"|(?<=[a-z0-9.*\]})?-])(?:\)\??|\|(?=[a-z0-9.\[(-])))+\$?\Z"
)
# At worst Python tries a name's length to the power of the stars, and 2 to that of the choices.
_SHORT, _STARS, _CHOICES = 200, 3, 10
_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)
_PART = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|([^'"\\]+)""", re.DOTALL)


# -- reading -----------------------------------------------------------------------------------------------------------


def read_driver(root: Path, packages: Mapping[str, str], holds: Collection[str], run: Run) -> dict[str, Any]:
    """The facts of the driver. `packages`: {name: version} of at least those of NVIDIA and its kernels."""
    running = _text(root, "/proc/sys/kernel/osrelease").strip()
    listed, chosen, missing = read_grub(root)
    trees = [name for name in _names(root, "/lib/modules") if f"linux-image-{name}" in packages]
    images = [found[1] for found in map(_IMAGE.match, _names(root, "/boot")) if found]
    releases = sorted({*trees, *images})
    modules = _modules(root, [*releases, *([running] if running not in releases else [])], run)
    loaded = _VERSION.search(_text(root, "/proc/driver/nvidia/version").partition("\n")[0])
    here = modules.get(running, {})
    return {
        "userland": _userland(root, packages),
        "module_on_disk": here.get("version"),
        "module_loaded": loaded[1] if loaded else None,
        "license": here.get("license"),
        "kernels": [
            {
                "release": release,
                "module": modules[release].get("version"),
                "license": modules[release].get("license"),
                "flavour": flavour(modules[release].get("license")),
                "listed": release in listed,
            }
            for release in releases
        ],
        "next_kernel": chosen,
        "next_missing": missing,
        "pins": read_pins(root),
        "unheld": read_unheld(root, packages, holds),
    }


def flavour(license_: str | None) -> str | None:
    """The open module's licence is `Dual MIT/GPL`, the proprietary one's `NVIDIA`, which does not start a GB10
    (RmInitAdapter fails with 580.173.02: Start9Labs/start-technologies issue 3693, 2026-08-20)."""
    return None if not license_ else "open" if "GPL" in license_ else "proprietary"


def _text(root: Path, absolute: str, limit: int = MAX_READ) -> str:
    """A text file; empty where it cannot be read. `limit` in bytes; -1: as long as it is."""
    try:
        with (root / absolute.lstrip("/")).open("rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def _names(root: Path, absolute: str) -> list[str]:
    try:
        return sorted(os.listdir(root / absolute.lstrip("/")))  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        return []


def _userland(root: Path, packages: Mapping[str, str]) -> str | None:
    for pattern in _USERLAND:
        for name, version in packages.items():
            found = _VERSION.search(version) if re.match(pattern, name) else None
            if found:
                return found[1]
    # A driver of the .run installer is in no package: its library's name tells.
    libraries = (root / "usr/lib").glob("*-linux-gnu/libcuda.so.*.*")
    return next((str(path).partition(".so.")[2] for path in sorted(libraries)), None)


def _modules(root: Path, releases: Sequence[str], run: Run) -> dict[str, dict[str, str]]:
    """What `modinfo -k RELEASE nvidia` says of each kernel; it is asked only about compressed modules, all at once."""
    found: dict[str, dict[str, str]] = {release: {} for release in releases}
    compressed = {}
    for release in releases:
        base = f"/lib/modules/{release}"
        module = _listed_module(_text(root, f"{base}/modules.dep"))
        if module is None:
            continue
        if not module.endswith(".ko"):
            compressed[f"{base}/{module}"] = release
            continue
        try:
            with (root / base.lstrip("/") / module).open("rb") as file:
                entries = elf_section(file, b".modinfo").decode(errors="replace").split("\0")
        except (OSError, ValueError, IndexError, struct.error, OverflowError):
            continue
        found[release] = {key: value for key, sign, value in (entry.partition("=") for entry in entries) if sign}
    about: dict[str, str] = {}
    for line in run(["modinfo", *compressed]).splitlines() if compressed else ():
        key, _, value = line.partition(":")
        if key == "filename":
            about = found.get(compressed.get(value.strip(), ""), {})
        about.setdefault(key, value.strip())
    return found


def _listed_module(dependencies: str) -> str | None:
    """The file that modprobe takes for `nvidia`, out of a kernel's modules.dep."""
    place = -1
    while (place := dependencies.find("/nvidia.ko", place + 1)) >= 0:
        module = dependencies[dependencies.rfind("\n", 0, place) + 1 :].partition(":")[0]
        if "/" not in module[module.find("/nvidia.ko") + 1 :] and " " not in module:
            return module  # and no line of another one that depends on it
    return None


def elf_section(file: BinaryIO, name: bytes) -> bytes:
    """The contents of a section of a 64-bit little-endian ELF file; ValueError if it has none of that name."""
    header = file.read(64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", header, 0x28)
    size, count, names = struct.unpack_from("<HHH", header, 0x3A)
    file.seek(table)
    rows = file.read(size * count)
    # name, type, flags, address, offset, size
    sections = [struct.unpack_from("<IIQQQQ", rows, size * row) for row in range(count)]
    file.seek(sections[names][4])
    texts = file.read(min(sections[names][5], MAX_SECTION))
    for section in sections:
        if texts[section[0] :].partition(b"\0")[0] == name:
            file.seek(section[4])
            return file.read(min(section[5], MAX_SECTION))
    raise ValueError(f"no section {name!r}")


# -- GRUB --------------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """An entry of GRUB's menu: what it boots, or (a submenu) what is below it."""

    title: str
    id: str
    image: list[str]  # the path of the kernel, if it has one
    initrd: list[str]  # the paths of what is loaded beside it
    below: list[Any] | None


class Grub(NamedTuple):
    """What GRUB's menu says."""

    listed: set[str]  # the kernels in it
    next_kernel: str | None  # the one it boots next; None without GRUB, if that entry boots no Linux, or if unknown
    missing: list[str]  # the files of that entry that are not there, or empty


def read_grub(root: Path) -> Grub:
    menu, default = parse_menu(_text(root, "/boot/grub/grub.cfg"))
    variables = parse_environment(_text(root, "/boot/grub/grubenv"))
    # GRUB's menu ends with this file, if there is one: the operator's own entries, and maybe another default.
    own = re.search(r"(?m)^[^#\n]*\b(menuentry|submenu|default)\b", _text(root, "/boot/grub/custom.cfg"))
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
    """grubenv: NAME=VALUE lines, filled up with `#`."""
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
            entry = Entry(words[1], _id(words), [], [], [] if words[0] == "submenu" else None)
            above = open_blocks[-1].below if open_blocks else menu
            if above is not None:
                above.append(entry)
            open_blocks.append(entry)
        elif words[-1] == "{":
            open_blocks.append(Entry("", "", [], [], None))
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
    """Which entry GRUB looks for: the one for a single boot, else the default, which may be a saved one."""
    if default in _SAVED:
        default = variables.get("prev_saved_entry") or variables.get("saved_entry") or "0"
    return variables.get("next_entry") or default


def choose(menu: Sequence[Entry], path: str) -> Entry | None:
    """The entry that GRUB boots for a default like `0`, `1>2`, a title or an identifier.

    What is not in the menu stands for the first entry. A `>` that belongs to a title is written twice.
    """
    while menu:
        head, _, path = re.sub(r"(?<!>)>(?!>)", "\0", path).partition("\0")
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
    found = _IMAGE.match(name)
    if found is None:
        try:
            found = _IMAGE.match(os.readlink(root / "boot" / name).rpartition("/")[2])  # noqa: PTH115
        except (OSError, ValueError):
            return None
    return found[1] if found else None


# -- apt ---------------------------------------------------------------------------------------------------------------


def preference_files(root: Path) -> list[str]:
    """The files of apt's preferences, in the order in which apt reads them."""
    folder = f"{PREFERENCES}.d"
    # Of the folder apt reads names without an extension, and those that end in .pref.
    parts = [name for name in _names(root, folder) if re.match(r"[A-Za-z0-9_-]+(\.pref)?\Z", name)]
    return [PREFERENCES, *(f"{folder}/{name}" for name in parts)]


def read_pins(root: Path) -> list[dict[str, str]]:
    """Regular expressions of apt's preferences that it cannot read: it only warns then, and the stanza is void."""
    found = []
    for path in preference_files(root):
        stanzas = re.sub(r"\n[ \t]+", " ", re.sub(r"(?m)^#.*\n?", "", _text(root, path)))
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
        alike = re.compile(expression, re.IGNORECASE if texts else 0)
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
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


def read_unheld(root: Path, packages: Mapping[str, str], holds: Collection[str]) -> list[str] | None:
    """The packages that the role `driver` has put on hold, and that are not any more; None where it never ran."""
    try:
        resources = json.loads(_text(root, MANIFEST, limit=-1))["resources"].values()
        ours = [item["declared"] for item in resources if "driver" in item["roles"] and not item["orphan"]]
        held = [item for item in ours if "hold" in item and item.get("state", "held") == "held"]
        lost = [name for name in packages if name not in holds and any(_covers(item, name) for item in held)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, re.error):
        return None
    return sorted(lost) if held else None


def _covers(hold: Mapping[str, Any], name: str) -> bool:
    if not hold.get("match"):
        return bool(hold["hold"] == name)
    matches, excepted = (
        any(re.search(pattern, name) for pattern in hold.get(key) or ()) for key in ("match", "except")
    )
    return matches and not excepted


def read_candidates(root: Path, packages: Mapping[str, str], run: Run) -> dict[str, str] | None:
    """The version that apt would install next, of the driver's packages: of those installed, and with our pins in place
    of all that apt knows. None where apt does not answer: it knows at least what is installed."""
    known = set(packages)
    if (root / OUR_PREFERENCES.lstrip("/")).exists():
        named = run(["apt-cache", "pkgnames"]).split()
        if not named:
            return None
        known.update(named)
    asked = sorted(name for name in known if _FAMILY.match(name))
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


# -- judging -----------------------------------------------------------------------------------------------------------


def judge(facts: Mapping[str, Any], more: Sequence[Verdict] = ()) -> list[Verdict]:
    """Named verdicts on a host, worst first; `coherent` alone where there is nothing to say.

    `facts`: kernel, packages and driver of the Spark's facts. `more`: what is known besides, see `judge_candidates`.
    """
    driver = facts["driver"]
    if not driver["userland"]:
        return [_error("no_driver", "no NVIDIA driver is installed", "install the 580 set that DGX OS offers")]
    then = against_the_next_boot(facts)
    now = list(_now(facts, mends=bool(driver["next_kernel"]) and not then))
    if now and driver["next_kernel"] == facts["kernel"]:  # the same kernel boots again: it is the same fault
        then = [verdict for verdict in then if verdict["id"] != "next_kernel_other_module"]
    found = [*now, *then, *_fallbacks(facts), *more]
    if driver["unheld"]:
        fact = f"no longer on hold: {_listing(driver['unheld'])} (dpkg -i and --allow-change-held-packages clear holds)"
        found.append(_warn("hold_lost", fact, "run site.yml: the role driver holds the set again"))
    for pin in driver["pins"]:
        fact = f"apt cannot read {pin['problem']} in {pin['file']}, and ignores what it pins"
        found.append(_warn("invalid_pin", fact, "write it as a POSIX extended regular expression; look-ahead is none"))
    found.sort(key=lambda verdict: verdict["severity"])  # error before warn
    return found or [_verdict("coherent", "info", f"driver {driver['userland']}, its modules and kernels agree", "")]


def coherent(verdicts: Sequence[Verdict]) -> bool:
    return all(verdict["id"] in HARMLESS for verdict in verdicts)


def against_the_next_boot(facts: Mapping[str, Any]) -> list[Verdict]:
    """Why the next boot would fail, or have no GPU. Where GRUB does not tell, any kernel may be the next."""
    driver, running = facts["driver"], facts["kernel"]
    if not driver["userland"]:
        return judge(facts)
    kernels = {kernel["release"]: kernel for kernel in driver["kernels"]}
    here = {"release": running, "module": driver["module_on_disk"], "flavour": flavour(driver["license"])}
    if driver["next_kernel"]:
        release = driver["next_kernel"]
        gone = {"release": release, "module": None, "flavour": None}  # GRUB's menu may be older than what is installed
        candidates = [kernels.get(release) or (here if release == running else gone)]
    else:
        candidates = list(kernels.values()) or [here]
    found = []
    for kernel in candidates:
        release, module = kernel["release"], kernel["module"]
        boots = f"GRUB boots {release} next" if driver["next_kernel"] else f"{release} may boot next"
        package = f"linux-modules-nvidia-{BRANCH}-open-{release}"
        if module is None:
            fact = f"{boots}, which has no nvidia module: no GPU after that"
            way_out = f"install {package}, or remove that kernel; do not reboot before"
            found.append(_error("next_kernel_without_module", fact, way_out))
        elif module != driver["userland"]:
            fact = f"{boots}, whose module is {module}; the userland is {driver['userland']}: no GPU after that"
            way_out = f"install {package} of {driver['userland']}, or move the set as a whole; do not reboot before"
            found.append(_error("next_kernel_other_module", fact, way_out))
        if kernel["flavour"] == "proprietary":
            fact = f"the nvidia module of kernel {release} is the proprietary one, which does not start a GB10"
            way_out = f"install {package} and nvidia-driver-{BRANCH}-open in its place"
            found.append(_error("proprietary_flavour", fact, way_out))
    if driver["next_missing"]:
        fact = f"GRUB boots an entry next that loads {_listing(driver['next_missing'])}, which is missing or empty"
        mend = f"dpkg --configure -a, update-initramfs -c -k {driver['next_kernel'] or 'all'}, update-grub"
        way_out = f"make room in /boot if it is full, then {mend}; do not reboot before"
        found.append(_error("next_kernel_incomplete", fact, way_out))
    return [*found, *_mixed(facts["packages"])]


def _now(facts: Mapping[str, Any], mends: bool) -> Iterator[Verdict]:
    """The running kernel: its module on the disk and in memory, and the userland. `mends`: whether a reboot helps."""
    driver, running = facts["driver"], facts["kernel"]
    userland, due = driver["userland"], driver["next_kernel"]
    modules = {"module on disk": driver["module_on_disk"], "module loaded": driver["module_loaded"]}
    other = next((version for version in modules.values() if version and version != userland), None)
    parts = ", ".join(f"{name} {version}" for name, version in modules.items() if version)
    kernels = {kernel["release"]: kernel for kernel in driver["kernels"]}
    if other and mends:
        fact = f"a reboot into {due} is missing: userland {userland}, {parts}"
        yield _warn(
            "pending_reboot", fact, "reboot (playbook gb10.fleet.reboot): the GPU is not to be relied on until then"
        )
    elif other:
        newer = _numbers(userland) > _numbers(other)
        fact = (
            f"the {'userland' if newer else 'kernel module'} is ahead: userland {userland}, {parts} (kernel {running})"
        )
        way_out = (
            f"bring both to one version (linux-modules-nvidia-{BRANCH}-open-{running}, and the userland), then reboot"
        )
        yield _error("userland_newer" if newer else "module_newer", fact, way_out)
    # A kernel that is not in GRUB's menu was not booted by GRUB, and its menu tells nothing about it.
    elif mends and due != running and kernels.get(running, {}).get("listed"):
        fact = f"kernel {running} runs, and GRUB boots {due} next"
        yield _warn("pending_reboot", fact, "reboot when it suits (playbook gb10.fleet.reboot)")
    if driver["module_on_disk"] == userland and not driver["module_loaded"]:
        fact = f"kernel {running} has the nvidia module {userland}, and it is not loaded: no GPU now"
        yield _error("module_not_loaded", fact, "modprobe nvidia; if that fails, dmesg | grep -i nvrm says why")
    if flavour(driver["license"]) == "proprietary" and due not in (None, running):
        fact = f"the nvidia module of the running kernel {running} is the proprietary one, which does not start a GB10"
        yield _error("proprietary_flavour", fact, "install the -open flavour of the driver")


def _fallbacks(facts: Mapping[str, Any]) -> Iterator[Verdict]:
    driver = facts["driver"]
    known = (driver["next_kernel"], facts["kernel"])
    for kernel in driver["kernels"] if driver["next_kernel"] else ():
        if kernel["listed"] and kernel["release"] not in known and kernel["module"] != driver["userland"]:
            has = f"the nvidia module {kernel['module']}" if kernel["module"] else "no nvidia module"
            fact = f"GRUB's menu also offers {kernel['release']}, which has {has}: no GPU if somebody chooses it"
            yield _warn("fallback_kernel_without_module", fact, "for rescue only; remove it once it is not needed")


def _mixed(packages: Mapping[str, str]) -> Iterator[Verdict]:
    versions: dict[str, list[str]] = {}
    for name, text in packages.items():
        found = _VERSION.search(text) if _FAMILY.match(name) else None
        if found:
            versions.setdefault(found[1], []).append(name)
    if len(versions) > 1:
        common = max(versions, key=lambda version: len(versions[version]))
        others = [f"{name} {version}" for version, names in versions.items() if version != common for name in names]
        fact = f"the driver's packages are of several versions: {_listing(others)}, the others {common}"
        yield _error(
            "mixed_userland", fact, f"bring all of them to one version of branch {BRANCH}; do not reboot before"
        )


def judge_candidates(candidates: Mapping[str, str] | None, files: Sequence[str]) -> list[Verdict]:
    """What apt would install next; None: it does not say. `files`: the preferences that it reads, in this order."""
    if candidates is None:
        fact = "apt does not say what it would install next: apt-cache gives no answer"
        return [
            _warn("candidates_unknown", fact, "`apt-cache policy` says why; repair that, nothing guards the branch now")
        ]
    leaving = [f"{name} {version}" for name, version in candidates.items() if _branch(version) != BRANCH]
    if not leaving:
        return []
    way_out = "run site.yml: the role driver writes the pins that prevent it"
    if OUR_PREFERENCES in files:
        before = " or ".join(files[: files.index(OUR_PREFERENCES)])
        way_out = "`apt-cache policy` names the pin that lets them in; site.yml writes the role driver's anew"
        if before:
            way_out = f"a stanza that apt reads before {OUR_PREFERENCES} lets them in: remove it from {before}"
    return [_error("candidate_not_580", f"apt would leave branch {BRANCH}: {_listing(leaving)}", way_out)]


def _branch(version: str) -> str:
    """`580` of `1:580.142-0ubuntu0.24.04.1`."""
    return re.split(r"\D", version.rpartition(":")[2], maxsplit=1)[0]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _listing(names: Sequence[str]) -> str:
    shown = 6
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(sorted(names)[:shown]) + more


def _verdict(id_: str, severity: str, fact: str, way_out: str) -> Verdict:
    return {"id": id_, "severity": severity, "fact": fact, "way_out": way_out}


def _error(id_: str, fact: str, way_out: str) -> Verdict:
    return _verdict(id_, "error", fact, way_out)


def _warn(id_: str, fact: str, way_out: str) -> Verdict:
    return _verdict(id_, "warn", fact, way_out)


# -- the gate, by itself -----------------------------------------------------------------------------------------------


def read_packages(root: Path) -> tuple[dict[str, str], list[str]]:
    """Installed packages with their versions, and those on hold, out of dpkg's status file."""
    text = (root / "var/lib/dpkg/status").read_text(encoding="utf-8", errors="replace")
    packages, holds = {}, []
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"(?m)^(Package|Status|Version): (.*)$", block))
        want, _, state = (fields.get("Status", "").split() + [""] * 3)[:3]
        if fields.get("Package") and state in ("installed", "unpacked", "half-configured", "triggers-pending"):
            packages[fields["Package"]] = fields.get("Version", "")
            if want == "hold":
                holds.append(fields["Package"])
    return packages, holds


def gate(root: Path, run: Run) -> dict[str, Any]:
    """Everything about one host: `coherent`, `verdicts`, and what they follow from. OSError without dpkg."""
    installed, holds = read_packages(root)
    packages = {name: version for name, version in installed.items() if re.search(r"nvidia|^linux-|^cuda-", name)}
    facts = {
        "kernel": _text(root, "/proc/sys/kernel/osrelease").strip(),
        "packages": packages,
        "driver": read_driver(root, packages, holds, run),
    }
    files = [path for path in preference_files(root) if (root / path.lstrip("/")).exists()]
    verdicts = judge(facts, judge_candidates(read_candidates(root, packages, run), files))
    return {
        "coherent": coherent(verdicts),
        "verdicts": verdicts,
        "against_a_boot": against_the_next_boot(facts),
        "kernel": facts["kernel"],
        "driver": facts["driver"],
    }


def _run(argv: Sequence[str]) -> str:
    import subprocess

    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_DEADLINE_S,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def read_gate() -> dict[str, Any]:
    """The gate of this host."""
    return gate(Path("/"), _run)


def main() -> int:
    """One line of JSON; 0: coherent, 1: not, 2: it cannot be told."""
    try:
        said = read_gate()
    except OSError as error:
        print(f"gb10-driver-coherence: {error}", file=sys.stderr)
        return 2
    print(json.dumps({key: said[key] for key in ("coherent", "verdicts")}, ensure_ascii=False))
    return 0 if said["coherent"] else 1


if __name__ == "__main__":
    sys.exit(main())
