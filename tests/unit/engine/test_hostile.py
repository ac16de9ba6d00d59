"""Values that somebody would put into a document to break out of it: every one in every field of every kind.

Refused with the name of the field before anything is read, or harmless and then `HARMLESS` says why. The same for the
fields of a request. Then a fuzz of the plan: random documents on random hosts.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.engine.remote import answer
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import DocumentError
from ansible_collections.gb10.fleet.plugins.module_utils.engine.system import Clock, Completed, System

# ------------------------------------------------------------------------------------------------------------- values


def nested(levels: int) -> Any:
    """Deeper than Python's recursion goes; built and compared without recursion."""
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: dict[str, Any] = {
    "newline": "a\nb",
    "carriage return": "a\rb",
    "NUL": "a\0b",
    "escape sequence": "\x1b[2Ja",
    "line separator": "a\u2028b",
    "right-to-left": "a\u202eb",
    "expression": "{{ 7 * 7 }}",
    "statement": "{% for x in y %}",
    "shell": "$(touch /tmp/x); `id` | tee &",
    "dash": "-rf",
    "long option": "--root=/",
    "ten megabytes": "x" * 10_000_000,
    "invalid UTF-8": "a\udc80b",
    "parent": "../../etc/shadow",
    "parent inside": "/etc/../etc/shadow",
    "blank": " ",
    "empty": "",
    "percent": "%s%n",
    "number": 7,
    "huge number": 10**5000,
    "negative number": -1,
    "fraction": 0.5,
    "not a number": float("nan"),
    "true": True,
    "list": ["a"],
    "mapping": {"a": "b"},
    "mapping with a number as key": {1: "b"},
    "bytes": b"a",
    "object": object(),
    "nesting": nested(20_000),
}
TEXT = {name for name, value in HOSTILE.items() if isinstance(value, str)}

PROFILE = {
    "nm_profile": "gb10-enp1s0f0np0",
    "uuid": "6f0c8f5e-8d44-5d0b-9b55-0d9a8b7f0001",
    "interface": "enp1s0f0np0",
    "addresses": ["192.0.2.1/30"],
    "mtu": 9000,
    "replace_foreign": False,
    "consent": "fabric_allow_activation",
}
# One good resource for each shape; together they hold every attribute that a document may have.
GOOD: dict[str, dict[str, Any]] = {
    "file": {
        "file": "/etc/a.conf",
        "content": "x\n",
        "state": "present",
        "owner": "root",
        "group": "root",
        "mode": "0644",
        "secret": False,
        "validate": ["test", "-s", "%s"],
    },
    "json": {"file": "/etc/a.json", "merge_json": {"a": 1}, "default_json": {"b": 2}, "default_unless": ["c"]},
    "expected": {"file": "/etc/a.conf", "state": "expected", "otherwise": "it is missing"},
    "package": {"package": "docker-ce", "version": "5:29.1.0-1~noble", "state": "present", "consent": "docker_restart"},
    "hold": {"hold": "driver-set", "state": "held", "match": ["^nvidia-"], "except": ["container"]},
    "unit": {
        "unit": "docker.service",
        "enabled": True,
        "state": "started",
        "restart_on": [],
        "consent": "docker_allow_restart",
    },
    "sysctl": {"sysctl": "net.ipv4.conf.all.arp_ignore", "value": "1"},
    "kernel_module": {"kernel_module": "rdma_cm", "state": "present"},
    "nm_profile": PROFILE,
}

FIELDS = [(shape, field) for shape, good in GOOD.items() for field in good]
# (shape, field) -> the hostile values that are fine there, and why. `field[]`: as an item of a list.
PLAIN = {"shell", "dash", "long option", "parent", "parent inside", "percent"}
FLAG = ({"true"}, "is a flag")
HARMLESS: dict[tuple[str, str], tuple[set[str], str]] = {
    ("file", "content"): (
        TEXT - {"NUL", "ten megabytes", "invalid UTF-8"},
        "goes into the file as it is; nothing of ours reads it",
    ),
    ("file", "secret"): FLAG,
    ("file", "validate[]"): (
        {*PLAIN, "blank"},
        "is an argument of a command that the document names; there is no shell",
    ),
    ("json", "merge_json"): ({"mapping"}, "is a mapping"),
    ("json", "default_json"): ({"mapping"}, "is a mapping"),
    ("json", "default_unless"): ({"list"}, "is a list of keys"),
    ("json", "default_unless[]"): (PLAIN - {"shell"}, "is a key that is looked for in an object"),
    ("expected", "otherwise"): (PLAIN, "is only said to a person"),
    ("hold", "match"): ({"list"}, "is a list of expressions"),
    ("hold", "match[]"): ({*PLAIN, "blank"}, "is an expression that is searched in names of installed packages"),
    ("hold", "except"): ({"list"}, "is a list of expressions"),
    ("hold", "except[]"): ({*PLAIN, "blank"}, "is an expression that is searched in names of installed packages"),
    ("unit", "enabled"): FLAG,
    ("sysctl", "value"): (
        {"parent", "parent inside", "percent", "number", "negative number"},
        "goes into the kernel's file as it is, and into a line of sysctl.d",
    ),
    ("nm_profile", "replace_foreign"): FLAG,
}
# The same for the fields of a request.
REQUEST_HARMLESS: dict[str, set[str]] = {
    "check": {"true"},
    "roles": {"list"},
}


def everything_in(shape: str, field: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in HOSTILE.items():
        yield name, {**GOOD[shape], field: value}


def refusal(resource: Mapping[str, Any]) -> str | None:
    try:
        parse_documents([("demo", [resource])], {})
    except DocumentError as error:
        return str(error)
    return None


@pytest.mark.parametrize("shape", GOOD)
def test_the_good_ones_are_good(shape: str) -> None:
    assert refusal(GOOD[shape]) is None


@pytest.mark.parametrize(("shape", "field"), FIELDS, ids=lambda value: value)
def test_hostile_values_are_refused_by_the_name_of_their_field(shape: str, field: str) -> None:
    accepted = set()
    for name, resource in everything_in(shape, field):
        said = refusal(resource)
        if said is None:
            accepted.add(name)
            continue
        assert said.startswith(f"resources[0].{field}"), f"{name}: {said[:200]}"
        assert said.isprintable(), f"{name}: an error message must not carry what it refuses into a terminal"
        assert len(said) < 6000, f"{name}: the message quotes {len(said)} characters"
    harmless, _why = HARMLESS.get((shape, field), (set(), ""))
    assert accepted == harmless


@pytest.mark.parametrize(
    ("shape", "field"), [(shape, field) for shape, field in FIELDS if isinstance(GOOD[shape][field], list)]
)
def test_hostile_items_of_lists_are_refused_by_their_place(shape: str, field: str) -> None:
    accepted = set()
    for name, value in HOSTILE.items():
        said = refusal({**GOOD[shape], field: [*GOOD[shape][field], value]})
        if said is None:
            accepted.add(name)
            continue
        assert said.startswith(f"resources[0].{field}[{len(GOOD[shape][field])}]"), f"{name}: {said[:200]}"
        assert said.isprintable()
    harmless, _why = HARMLESS.get((shape, f"{field}[]"), (set(), ""))
    assert accepted == harmless


# ----------------------------------------------------------------------------------------------------- the whole engine


def request(documents: Any, **more: Any) -> dict[str, Any]:
    return {
        "verb": "converge",
        "check": False,
        "documents": documents,
        "consents": {},
        "expect": {},
        "facts": None,
        "project": "0.2.0",
        "run": "somebody@controller 1 2026-11-21T00:00:00Z",
        "orphans": "show",
        "roles": None,
        **more,
    }


class World:
    """A simulated host: files below a folder; packages, holds, units and modules as commands and files show them."""

    def __init__(self, root: Path, chance: random.Random | None = None) -> None:
        self.root = root
        self.calls: list[list[str]] = []
        self.offers: dict[str, list[str]] = {}
        self.packages: dict[str, str] = {}
        self.held: set[str] = set()
        self.units: dict[str, dict[str, str]] = {}
        self.invocations = 0
        self.file("/etc/passwd", f"root:x:{os.getuid()}:{os.getgid()}::/root:/bin/sh\n")
        self.file("/etc/group", f"root:x:{os.getgid()}:\n")
        self.file("/proc/modules", "")
        for folder in ("/run", "/var/lib"):
            self.path(folder).mkdir(parents=True)
        if chance is not None:
            self.make_up(chance)
        self.write_status()

    def make_up(self, chance: random.Random) -> None:
        """Any state that a host may be in when the engine comes for the first time."""
        for path in PATHS:
            usual = "directory" if path == "/etc/gb10-fleet" else "json" if path.endswith(".json") else "other"
            odd = ("ours", "json", "binary", "directory", "link")
            what = chance.choice(("nothing", usual)) if chance.random() < 0.8 else chance.choice(odd)
            if what == "directory":
                self.path(path).mkdir(parents=True, exist_ok=True)
                if chance.random() < 0.5:
                    self.file(f"{path}/inside", "x")
            elif what == "link":
                self.path(path).parent.mkdir(parents=True, exist_ok=True)
                self.path(path).symlink_to("/nowhere")
            elif what != "nothing":
                text = {"ours": "a\n", "other": "b\n", "json": '{"a": {"x": 1}, "c": [1]}', "binary": "\xff\0"}[what]
                self.file(path, text, chance.choice((0o644, 0o600, 0o755)))
        for name in PACKAGES:
            self.offers[name] = chance.sample(VERSIONS, chance.choice((0, 3, 3, 3)))
            if chance.random() < 0.5:
                self.packages[name] = chance.choice(VERSIONS)
        self.held = {name for name in self.packages if chance.random() < 0.3}
        for name in UNITS:
            if chance.random() < 0.7:
                active = chance.choice(("active", "inactive", "failed"))
                self.units[name] = self._unit(chance.choice(("enabled", "disabled", "static", "masked")), active)
        for name in SYSCTLS:
            if chance.random() < 0.8:
                self.file("/proc/sys/" + name.replace(".", "/"), chance.choice(("0\n", "1\n", "2\n")))
        self.file("/proc/modules", "".join(f"{name} 1 0 - Live 0x0\n" for name in MODULES if chance.random() < 0.5))

    def path(self, absolute: str) -> Path:
        return self.root / absolute.lstrip("/")

    def file(self, absolute: str, content: str, mode: int = 0o644) -> None:
        target = self.path(absolute)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="latin-1")
        target.chmod(mode)

    def digest(self) -> dict[str, Any]:
        """The whole host, without what the engine keeps for itself."""
        files = {
            str(path.relative_to(self.root)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in sorted(self.root.rglob("*"))
            if not str(path.relative_to(self.root)).startswith(("run/gb10-fleet", "var/lib/gb10-fleet"))
        }
        # A unit that failed stands as still as one that was never started; one of which nothing is said need not exist.
        units = {
            name: (unit["UnitFileState"], unit["ActiveState"] == "active")
            for name, unit in self.units.items()
            if unit["UnitFileState"] != "disabled" or unit["ActiveState"] == "active"
        }
        return {"files": files, "units": units, "held": sorted(self.held)}

    @property
    def system(self) -> System:
        return System(self.root, self.run, NoClock())

    def ask(self, documents: Any, **more: Any) -> dict[str, Any]:
        return dict(answer(request(documents, **more), self.system))

    # -- commands

    def run(self, argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        self.calls.append(list(argv))
        words = [word for word in argv if not word.startswith("-")]
        command = getattr(self, "_" + "_".join(words[:2]).replace("-", "_"), None)
        command = command or getattr(self, "_" + words[0].replace("-", "_"), None)
        assert command is not None, f"unexpected command: {argv}"
        said = command(list(argv), stdin or "")
        return said if isinstance(said, Completed) else Completed(tuple(argv), 0, said)

    def _unit(self, file_state: str, active: str) -> dict[str, str]:
        return {
            "LoadState": "masked" if file_state == "masked" else "loaded",
            "ActiveState": active,
            "SubState": "running" if active == "active" else "dead",
            "UnitFileState": file_state,
            "NeedDaemonReload": "no",
            "InvocationID": f"i{self.invocations}" if active == "active" else "",
        }

    def _systemctl_show(self, argv: list[str], stdin: str) -> str:
        asked = next(word for word in argv if word.startswith("--property=")).partition("=")[2].split(",")
        nothing = {**self._unit("", "inactive"), "LoadState": "not-found"}
        blocks = []
        for name in argv[2:]:
            if name.startswith("-"):
                continue
            if "*" in name:
                blocks += [self.units[unit] for unit in fnmatch.filter(self.units, name)]
                continue
            blocks.append(self._known(name) or nothing)
        return "\n\n".join("\n".join(f"{key}={block.get(key, '')}" for key in asked) for block in blocks)

    def _known(self, name: str) -> dict[str, str] | None:
        """systemd reads the file of a unit when it is first asked for it."""
        there = self.path(f"/etc/systemd/system/{name}").is_file()
        return self.units.get(name) or (self._unit("disabled", "inactive") if there else None)

    def _systemctl(self, argv: list[str], stdin: str) -> str | Completed:
        verb, *names = [word for word in argv[1:] if not word.startswith("-")]
        for name in names:
            unit = self._known(name)
            if unit is None:
                return Completed(tuple(argv), 5, stderr=f"Unit {name} not found.")
            self.units[name] = unit
            if verb in ("enable", "disable") and unit["UnitFileState"] != "static":
                unit["UnitFileState"] = f"{verb}d"
            elif verb in ("mask", "unmask"):
                unit |= {"UnitFileState": "masked" if verb == "mask" else "disabled", "LoadState": "loaded"}
                if verb == "mask":
                    unit["LoadState"] = "masked"
            elif verb in ("start", "restart"):
                if unit["LoadState"] == "masked":
                    return Completed(tuple(argv), 1, stderr=f"Unit {name} is masked.")
                self.invocations += 1
                self.units[name] = self._unit(unit["UnitFileState"], "active")
            elif verb == "stop":
                self.units[name] = self._unit(unit["UnitFileState"], "inactive")
        return ""

    def write_status(self) -> None:
        blocks = []
        for name, version in sorted({"dpkg": "1.22", **self.packages}.items()):
            want = "hold" if name in self.held else "install"
            blocks.append(f"Package: {name}\nStatus: {want} ok installed\nArchitecture: arm64\nVersion: {version}\n")
        self.file("/var/lib/dpkg/status", "\n".join(blocks))

    def _apt_cache_policy(self, argv: list[str], stdin: str) -> str:
        lines = []
        for name in argv[2:]:
            if name in self.offers:
                lines += [f"{name}:", "  Installed: (none)", "  Version table:"]
                lines += [f"     {version} 500" for version in self.offers[name]]
        return "\n".join(lines)

    def _apt_get_update(self, argv: list[str], stdin: str) -> str:
        return ""

    def _apt_get(self, argv: list[str], stdin: str) -> str | Completed:
        verb = next(word for word in argv[1:] if not word.startswith("-"))
        lines = []
        for word in argv[1:]:
            name, _, version = word.partition("=")
            gone = name.removesuffix("-")
            if word.startswith("-") or word == verb:
                continue
            if verb in ("remove", "purge") or (name.endswith("-") and gone not in self.offers.get(name, [])):
                lines.append(("Remv", gone.removesuffix("+"), ""))
            elif not self.offers.get(name) or (version and version not in self.offers[name]):
                return Completed(tuple(argv), 100, stderr=f"E: Version '{version}' for '{name}' was not found")
            else:
                lines.append(("Inst", name, version or self.packages.get(name) or self.offers[name][0]))
        if "--simulate" not in argv and "-s" not in argv:
            for action, name, version in lines:
                if action == "Remv":
                    self.packages.pop(name, None)
                    self.held.discard(name)
                else:
                    self.packages[name] = version
            self.write_status()
        return "\n".join(f"{action} {name} ({version} repo [all])" for action, name, version in lines)

    def _dpkg(self, argv: list[str], stdin: str) -> str:
        for line in stdin.splitlines():
            name, want = line.split()
            (self.held.add if want == "hold" else self.held.discard)(name)
        self.write_status()
        return ""

    def _modprobe(self, argv: list[str], stdin: str) -> str:
        names = [line.split()[0] for line in self.path("/proc/modules").read_text().splitlines()]
        name = argv[-1].replace("-", "_")
        names = [known for known in names if known != name] if "-r" in argv else sorted({*names, name})
        self.file("/proc/modules", "".join(f"{name} 1 0 - Live 0x0\n" for name in names))
        return ""

    def _journalctl(self, argv: list[str], stdin: str) -> str:
        return ""


class NoClock(Clock):
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.mark.parametrize(("shape", "field"), FIELDS, ids=lambda value: value)
def test_the_engine_touches_nothing_for_a_hostile_value(shape: str, field: str, tmp_path: Path) -> None:
    """Through the door that the controller uses: a request error with the field, no command, no file, no traceback."""
    world = World(tmp_path)
    before = world.digest()
    harmless, _why = HARMLESS.get((shape, field), (set(), ""))
    for name, resource in everything_in(shape, field):
        if name in harmless:
            continue
        said = world.ask([{"role": "demo", "resources": [resource]}])
        assert said["error"] is not None and said["error"]["kind"] == "request", name
        assert f"resources[0].{field}" in said["error"]["message"], name
        assert "Traceback" not in said["error"]["message"]
        assert said["changes"] == []
    assert world.calls == []
    assert world.digest() == before


@pytest.mark.parametrize("field", request([]))
def test_the_fields_of_a_request_are_refused_by_their_name(field: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    before = world.digest()
    accepted = set()
    for name, value in HOSTILE.items():
        said = answer({**request([{"role": "demo", "resources": [GOOD["file"]]}]), field: value}, world.system)
        if said["error"] is None or said["error"]["kind"] != "request":
            accepted.add(name)
            continue
        assert field in said["error"]["message"], f"{name}: {said['error']['message'][:200]}"
        assert said["error"]["message"].isprintable(), name
    assert accepted == REQUEST_HARMLESS.get(field, set())
    assert world.digest() == before


# ---------------------------------------------------------------------------------------------------------------- fuzz

PATHS = ("/etc/a.conf", "/etc/b/c.json", "/etc/gb10-fleet", "/etc/systemd/system/one.service", "/usr/local/sbin/tool")
PACKAGES, VERSIONS = ("alpha", "beta", "gamma", "nvidia-x"), ("1.0", "1.1", "2.0-1")
UNITS = ("one.service", "two.service", "three.path")
SYSCTLS = ("net.ipv4.conf.all.arp_ignore", "net.ipv4.ip_forward")
MODULES = ("ib_core", "rdma_cm")
CONSENTS = ("demo_allow_restart", "demo_allow_exchange")


def make_up(chance: random.Random) -> list[dict[str, Any]]:
    """Documents of up to three roles, most of them sound, some of them in each other's way."""
    documents = []
    seen: set[str] = set()
    names = chance.sample(PACKAGES, 2)  # few, so that documents say more than one thing of the same package
    for role in chance.sample(("driver", "docker", "vllm"), chance.randint(1, 3)):
        resources = []
        for resource in (_resource(chance, names) for _ in range(chance.randint(0, 6))):
            name = str(next(iter(resource.items())))
            if name not in seen or chance.random() < 0.05:
                resources.append(resource)
            seen.add(name)
        documents.append({"role": role, "resources": resources})
    return documents


def _resource(chance: random.Random, names: Sequence[str]) -> dict[str, Any]:
    def maybe(**attributes: Any) -> dict[str, Any]:
        return {key: value for key, value in attributes.items() if chance.random() < 0.4}

    kind = chance.choice(("file", "json", "folder", "package", "hold", "holds", "unit", "sysctl", "kernel_module"))
    if kind == "file":
        access = maybe(mode=chance.choice(("0644", "0600", "0755")), secret=True)
        content = {"content": chance.choice(("a\n", "b\n", "", "{{ x }}\n"))}
        gone = chance.random() < 0.2
        return {"file": _path(chance, ""), **({"state": "absent"} if gone else {**content, **access})}
    if kind == "json":
        value = chance.choice(({"a": {"x": 2}}, {"a": [1, 2]}, {"c": [2]}, {"d": None}))
        return {"file": _path(chance, ".json"), chance.choice(("merge_json", "default_json")): value}
    if kind == "folder":
        return {"file": _path(chance, "fleet"), "state": "directory", **maybe(mode="0750")}
    if kind == "package":
        gone = chance.random() < 0.2
        more = maybe(version=chance.choice(VERSIONS), consent=chance.choice(CONSENTS))
        return {"package": chance.choice(names), **({"state": "absent"} if gone else more)}
    if kind == "hold":
        return {"hold": chance.choice(names), **maybe(state="free")}
    if kind == "holds":
        return {"hold": "set", "match": [chance.choice(("a$", "^nvidia", "."))], **maybe(**{"except": ["^beta"]})}
    if kind == "unit":
        paths = chance.sample(PATHS, 1) if chance.random() < 0.1 else []
        more = maybe(enabled=chance.random() < 0.5, state=chance.choice(("started", "stopped")), consent=CONSENTS[0])
        return {"unit": chance.choice(UNITS), "restart_on": paths, **more}
    if kind == "sysctl":
        return {"sysctl": chance.choice(SYSCTLS), "value": chance.choice(("0", "1", 2))}
    return {"kernel_module": chance.choice(MODULES), **maybe(state="absent")}


def _path(chance: random.Random, end: str) -> str:
    """Most documents say of a path what fits to what most hosts have there."""
    fitting = [path for path in PATHS if path.endswith(end or ("conf", "service", "tool"))]
    return chance.choice(fitting if chance.random() < 0.9 else PATHS)


@pytest.mark.parametrize("seed", range(40))
def test_any_document_on_any_host_is_refused_in_words_or_done_as_foretold(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check mode foretells the same thing twice and touches nothing; what was applied leaves nothing to do.

    And what was applied can be undone, unless a secret or the only package of its version went with it: the host is the
    one of before. 25 hosts and 125 documents for each seed.
    """
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    chance = random.Random(seed)  # noqa: S311  # made-up hosts, not keys
    applied = 0
    for number in range(25):
        world = World(tmp_path / str(number), chance)
        before = world.digest()
        for _ in range(4):
            _look(world, make_up(chance), _consents(chance))
        assert world.digest() == before
        documents, consents = make_up(chance), _consents(chance)
        foretold = _look(world, documents, consents)
        if foretold is None:
            continue
        outcome = world.ask(documents, consents=consents)
        if _refused(outcome, documents):
            assert not outcome["error"]["message"].startswith("hold:"), (outcome["error"], documents)
            continue
        told = [(change["role"], change["resource"], change["action"]) for change in outcome["changes"]]
        assert told == [(row["role"], row["resource"], row["action"]) for row in foretold["changes"]], documents
        assert world.ask(documents, consents=consents, check=True)["changes"] == [], documents
        undone = world.ask([], verb="undo", consents=dict.fromkeys(CONSENTS, True))
        if undone["error"] is None:
            assert world.digest() == before, documents
        elif "no apt source offers" not in undone["error"]["message"]:
            assert "of a secret" in undone["error"]["message"], documents
            assert undone["error"]["kind"] == "host" and undone["changes"] == [], "refused before the first change"
        applied += 1
    assert applied > 3, "most documents were refused, so that little was tested"


_HOLDS = [{"hold": "alpha"}, {"hold": "alpha", "state": "free"}, {"hold": "set", "match": ["^alpha"]}]
_HOLDS += [{"hold": "set", "match": ["^alpha"], "state": "free"}]
_WISHES: list[dict[str, Any]] = [{}, {"version": "1.1"}, {"version": "1.1", "consent": CONSENTS[1]}]
_WISHES += [{"state": "absent"}, {"state": "absent", "consent": CONSENTS[1]}]


@pytest.mark.parametrize("first", ["hold", "package"])
@pytest.mark.parametrize("hold", _HOLDS, ids=lambda hold: "-".join(map(str, hold.values())))
def test_a_hold_beside_its_package_is_refused_or_done_and_undone_in_one_go(
    first: str, hold: dict[str, Any], tmp_path: Path
) -> None:
    """Every pair that documents can make of the two, on every host: random documents seldom hit one."""
    done = 0
    for number, (wish, stood) in enumerate(itertools.product(_WISHES, ("absent", "there", "held"))):
        world = World(tmp_path / str(number))
        world.offers["alpha"] = list(VERSIONS)
        world.packages = {} if stood == "absent" else {"alpha": "1.0"}
        world.held = {"alpha"} if stood == "held" else set()
        world.write_status()
        before = world.digest()
        pair = [hold, {"package": "alpha", **wish}]
        # Between the two a file, so that the package is not moved in front of everything.
        between = {"file": "/etc/between", "content": "x"}
        resources = [between, *(pair if first == "hold" else pair[::-1])]
        documents = [{"role": "demo", "resources": resources}]
        consents = dict.fromkeys(CONSENTS, True)
        if world.ask(documents, consents=consents, check=True)["error"] is not None:
            assert world.digest() == before
            continue
        said = world.ask(documents, consents=consents)
        assert said["error"] is None, (documents, stood, said["error"])
        undone = world.ask([], verb="undo", consents=consents)
        assert undone["error"] is None, (documents, stood, undone["error"])
        assert world.digest() == before, (documents, stood)
        done += 1
    assert done > 3


def test_a_package_cannot_be_held_and_free(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.packages, world.offers["alpha"] = {"alpha": "1.0"}, list(VERSIONS)
    world.write_status()
    resources = [{"hold": "alpha", "state": "free"}, {"hold": "set", "match": ["^al"]}]
    said = world.ask([{"role": "demo", "resources": resources}])
    assert said["error"]["message"].startswith("hold:set: alpha shall be held, and free by hold:alpha")
    assert said["error"]["kind"] == "host" and world.held == set()


def _look(world: World, documents: Any, consents: Mapping[str, bool]) -> dict[str, Any] | None:
    """What check mode says, or None if it refuses; either way it says so twice."""
    foretold = world.ask(documents, consents=consents, check=True)
    assert foretold == world.ask(documents, consents=consents, check=True), documents
    return None if _refused(foretold, documents) else foretold


def _consents(chance: random.Random) -> dict[str, bool]:
    return {name: chance.random() < 0.7 for name in CONSENTS}


def _refused(said: Mapping[str, Any], documents: Any) -> bool:
    """Whether the engine refused; in its own words, not in those of an exception that nobody thought of."""
    if said["error"] is None:
        return False
    assert said["error"]["kind"] in ("request", "host", "apply"), documents
    assert not re.search(r"\b[A-Z]\w*(Error|Exception)\b", said["error"]["message"]), (said["error"], documents)
    return True
