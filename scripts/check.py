"""`make check`: linters, types and unit tests, which need neither root nor a lab. Takes about 3 minutes on 2 cores.

`--packages` has the gates of what is published, which `make test` has too.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from scripts.forge import forge
from scripts.gates import BIN, ROOT, WORK, Gate, GateFailed, run_all, summarise
from scripts.links import on_the_forge, relink

UNITS = ROOT / "tests/unit"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
NEWEST_PYTHON, NEWEST_CORE = "3.13", "2.21"
# Each ansible-core that the index has of those we promise, and a Python that runs it.
_CORES = {"2.19": "3.11", "2.20": "3.12", "2.21": "3.13", "2.22": "3.13"}
_PYLINT_FROM_A_FORGE = ("2.22",)  # its candidate asks for a commit of dill on a forge, which no index has

# The top level of the collection, as it is published. Everything else in the checkout is in build_ignore.
SHIPPED = {"CHANGELOG.rst", "LICENSE", "README.md", "catalog", "changelogs", "meta", "playbooks", "plugins", "roles"}
# Shipped too, although galaxy.yml ignores its folder: your own inventories, with their secrets, stand beside it.
_EXAMPLES = Path("inventory/example")
_GENERATED = {"FILES.json", "MANIFEST.json"}
# What the wheel maps to ansible_collections/gb10/fleet.
WHEEL_FOLDERS = ("catalog", "meta", "playbooks", "plugins", "roles")
_OF_SDIST = {".gitignore", "PKG-INFO", "pyproject.toml", "scripts/wheel_hook.py"}
_PYROMA = 8  # of 10: the project has no address for mail, and invents none
_WHEEL_FILES = ("CHANGELOG.rst", "README.md", "galaxy.yml")  # the last one for the collection's version

# Sanity tests that another gate does better, or that have nothing to look at here.
_SANITY_LEFT_OUT = (
    "changelog",  # pins old sphinx tools; antsibull-changelog lints the fragments in a gate of its own
    "pslint",  # there is no PowerShell
    "pylint",  # 100 CPU s; `make test-all` has it, and test_sanity_names.py most of its faults
    "shellcheck",  # no shell script in the collection
    "yamllint",  # a gate of its own, with our rules
)
# Unit tests that start Ansible, 2 s each, or servers: part of `make test`, once. By their file names, without `.py`;
# and those that play with the checkout's folder of collections, which is not beside what was installed.
_PLAYS = ("test_*_action", "test_*_passwords", "test_benchmark_play", "test_callbacks", "test_fabric_play",
          "test_moments", "test_playbook_events", "test_proof_play", "test_real_prometheus", "test_recap",
          "test_rollout_ara", "test_rollout_canaries", "test_rollout_cli", "test_rollout_drain", "test_router*",
          "test_target")  # fmt: skip
_OF_THE_CHECKOUT = re.compile(r"^from tests\.support\.plays import .*\brun_playbook\b", re.MULTILINE)
# Unit tests of what is in the checkout only: by the packages that they or their helpers import, and by their folders.
_CHECKOUT = re.compile(r"^\s*(?:from|import) (?:benchmarks|gb10_fleet|lab|scripts)\b", re.MULTILINE)
_CHECKOUT_FOLDERS = {"cli", "lab", "repository", "rollout"}
# No pytest-xdist: each of its processes collects all tests. With two of them the collection's tests need 174 CPU
# seconds instead of 128.
_QUIETLY = ("-q",)


def _as_owner() -> dict[str, Any]:
    """Of a checkout that somebody else has (a container, sudo): git runs what its configuration names, there as him."""
    if os.geteuid():
        return {}
    owner = ROOT.stat()
    return {
        "user": owner.st_uid,
        "group": owner.st_gid,
        "extra_groups": [],
        "env": {**os.environ, "HOME": "/"},  # root's own is closed to him
    }


def source_files() -> list[Path]:
    """Tracked files and new ones that git does not ignore, relative to the checkout."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        **_as_owner(),
    ).stdout
    paths = (Path(name) for name in sorted(set(listing.split("\0"))) if name)
    return [path for path in paths if (ROOT / path).is_file() or (ROOT / path).is_symlink()]


def export(target: Path) -> Path:
    """What a fresh clone would hold, with the changes that are not committed yet: a real path, and no leftovers."""
    shutil.rmtree(target, ignore_errors=True)
    for path in source_files():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target / path, follow_symlinks=False)
    return target


def stage(source: Path, ref: str = "main") -> Path:
    """Makes packages of an export complete: links of the README work elsewhere, the example inventory is shipped."""
    galaxy, readme = source / "galaxy.yml", source / "README.md"
    text = galaxy.read_text(encoding="utf-8")
    repository = yaml.safe_load(text)["repository"]
    galaxy.write_text(text.replace("\n  - inventory\n", "\n"), encoding="utf-8")
    readme.write_text(
        relink(readme.read_text(encoding="utf-8"), Path("README.md"), lambda path: on_the_forge(path, repository, ref)),
        encoding="utf-8",
    )
    return source


def shipped(path: Path) -> bool:
    return path.parts[0] in SHIPPED or path.is_relative_to(_EXAMPLES)


def ruff(gate: Gate) -> None:
    gate.run("ruff", "check", ".")
    gate.run("ruff", "format", "--check", ".")


def mypy(gate: Gate) -> None:
    # By package, because the collection's files have one name only: the one that Ansible gives them.
    gate.run("mypy", "-p", "ansible_collections.gb10.fleet.plugins", "-p", "gb10_fleet", "-p", "lab", "-p", "scripts",
             "-p", "benchmarks")  # fmt: skip


def yamllint(gate: Gate) -> None:
    gate.run("yamllint", "--strict", ".")


def ansible_lint(gate: Gate) -> None:
    gate.run("ansible-lint", "--offline", "--strict", "--nocolor")


def changelog(gate: Gate) -> None:
    gate.run("antsibull-changelog", "lint")


def units(gate: Gate, elsewhere: frozenset[Path] = frozenset()) -> None:
    """Those that need the checkout. All others run in the installed collection, where each can do less."""
    _in_processes(gate, 2, sorted(_checkout_tests() - _plays() - elsewhere), "pytest")


def _plays() -> set[Path]:
    named = {path for pattern in _PLAYS for path in UNITS.rglob(f"{pattern}.py")}
    return named | {path for path in UNITS.rglob("test_*.py") if _OF_THE_CHECKOUT.search(path.read_text())}


def _checkout_tests() -> set[Path]:
    helpers = (path.stem for path in (ROOT / "tests/support").glob("*.py") if _CHECKOUT.search(path.read_text()))
    with_helper = re.compile(rf"^from tests\.support(?:\.| import )(?:{'|'.join(helpers)})\b", re.MULTILINE)
    texts = ((path, path.read_text()) for path in UNITS.rglob("test_*.py"))
    return {
        path
        for path, text in texts
        if path.relative_to(UNITS).parts[0] in _CHECKOUT_FOLDERS or _CHECKOUT.search(text) or with_helper.search(text)
    }


def collection(gate: Gate) -> None:
    """Build what Galaxy would get, look into it, install it in an empty path, and look at it there as Galaxy would."""
    fleet, alone = installed(gate, WORK / "collection")
    syntax_check(gate, alone)
    # ansible-test asks git which files there are, and the checkout's git would answer: none, this folder is ignored.
    gate.run("git", "init", "--quiet", fleet)
    (fleet / ".gitignore").write_text("tests/output/\n", encoding="utf-8")  # what ansible-test itself writes
    sanity(gate, fleet)


def installed(gate: Gate, work: Path) -> tuple[Path, dict[str, str]]:
    """The collection as Galaxy would bring it, and the environment in which it is the only one."""
    source = stage(export(work / "source"))
    built, path = work / "built", work / "installed"
    for leftover in (built, path):
        shutil.rmtree(leftover, ignore_errors=True)
    gate.run("ansible-galaxy", "collection", "build", "--output-path", built, cwd=source)
    (tarball,) = built.glob("gb10-fleet-*.tar.gz")
    with tarfile.open(tarball) as archive:
        names = {member.name for member in archive if member.isfile()}
    _expect_exactly(names - _GENERATED, {str(path) for path in source_files() if shipped(path)}, tarball)
    # Only that path, or the checkout (editable, so found through Python) would be taken for the installed collection.
    alone = {"ANSIBLE_COLLECTIONS_PATH": str(path), "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false"}
    gate.run("ansible-galaxy", "collection", "install", "--offline", tarball, cwd=work, env=alone)
    return path / "ansible_collections/gb10/fleet", alone


def collection_units(gate: Gate, elsewhere: frozenset[Path] = frozenset()) -> None:
    """The unit tests of the collection, on what was installed. One that needs the checkout fails: it is not there.

    With the newest Python and ansible-core that we promise: those of the checkout run with this one. Plain pytest,
    because ansible-test starts a process for each test, which is most of the time that it takes.
    """
    work = WORK / "units"
    fleet, alone = installed(gate, work)
    path = _newest_environment(gate)
    syntax_check(gate, {**alone, **path}, _bin(path) / "ansible-playbook")
    left_out = _checkout_tests() | _plays() | elsewhere
    for folder in ("tests", "docs"):  # tests compare code with the contract in docs/architecture.md
        shutil.copytree(
            ROOT / folder,
            fleet / folder,
            ignore=lambda where, names: {it for it in names if Path(where) / it in left_out or it == "__pycache__"},
        )
    shutil.copy(ROOT / "pyproject.toml", fleet)  # pytest's settings
    python = _environment_without_checkout(gate, work / "venv", _bin(path) / "python")
    files = sorted((fleet / "tests/unit").rglob("test_*.py"))
    _in_processes(gate, 3, files, python, "-m", "pytest", cwd=fleet, env={**alone, "PYTHONPATH": str(fleet.parents[2])})


def _in_processes(
    gate: Gate,
    count: int,
    files: Sequence[Path],
    *pytest: str | Path,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
) -> None:
    """A share of the files in each. Half of their time they wait: for a limit that is tested, a child, a server."""

    def share(number: int, gate: Gate) -> None:
        gate.run(*pytest, *files[number::count], *_QUIETLY, "-p", "no:cacheprovider", cwd=cwd, env=env, tests=True)

    gate.side_by_side([partial(share, number) for number in range(min(count, len(files)))])


def _environment_without_checkout(gate: Gate, environment: Path, like: Path) -> Path:
    """The packages of `like` without the checkout, which is a .pth file in their folder: Python reads none there."""
    gate.run(like, "-m", "venv", "--clear", "--without-pip", environment)
    python = environment / "bin/python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages, own = (gate.run(each, "-c", ask).strip() for each in (like, python))
    Path(own, "packages.pth").write_text(f"{packages}\n")
    playbook = python.with_name("ansible-playbook")
    playbook.write_text(f"#!{python}\nfrom ansible.cli.playbook import main\n\nmain()\n")
    playbook.chmod(0o755)
    return python


def _expect_exactly(found: set[str], wanted: set[str], where: Path) -> None:
    missing, foreign = sorted(wanted - found), sorted(found - wanted)
    if missing or foreign:
        raise GateFailed(f"{where.name}: missing {missing or 'nothing'}, not wanted {foreign or 'nothing'}")


def syntax_check(gate: Gate, env: dict[str, str], command: str | Path = "ansible-playbook") -> None:
    """The playbook by its name, from a folder that has no ansible.cfg."""
    gate.run(command, "gb10.fleet.site", "--syntax-check", "-i", "spark-a,", cwd=WORK, env=env)


def sanity(gate: Gate, fleet: Path) -> None:
    """`ansible-test sanity`, offline, and proof that it looked at every module rather than at nothing."""
    home = WORK / "ansible-test-home"  # ansible-test keeps its environments under ~, for all projects alike
    _bring_pip(home)
    left_out = [word for name in _SANITY_LEFT_OUT for word in ("--skip-test", name)]
    config = os.environ.get("XDG_CONFIG_HOME", str(Path.home() / ".config"))  # the user's pip settings still hold
    output = gate.run(
        "ansible-test", "sanity", "--venv", "--python", PYTHON, "--color", "no", "-v", *left_out,
        cwd=fleet, env={"HOME": str(home), "XDG_CONFIG_HOME": config},
    )  # fmt: skip
    # A run for each type of plugin.
    commands = re.findall(r"^Run command: .*/validate-modules/validate\.py .*$", output, re.MULTILINE)
    seen = set(re.findall(r"plugins/modules/\w+\.py", " ".join(commands)))
    modules = {f"plugins/modules/{path.name}" for path in (fleet / "plugins/modules").glob("*.py")}
    if not seen or seen != modules:
        raise GateFailed(f"validate-modules looked at {len(seen)} of {len(modules)} modules")
    gate.say(f"validate-modules looked at {len(seen)} modules")


def whole_sanity(gate: Gate, core: str) -> None:
    """`ansible-test sanity` as a reviewer runs it: nothing left out, no file of ignores."""
    python = _find_python(_CORES[core])
    if python is None:
        gate.excused.append(f"no python{_CORES[core]} on PATH or in ~/.pyenv: not looked at with ansible-core {core}")
        return
    work = WORK / f"sanity-{core}"
    fleet, _alone = installed(gate, work)
    if ignores := list(fleet.glob("tests/sanity/ignore*")):
        raise GateFailed(f"a file of ignores is shipped: {ignores[0].name}")
    gate.run("git", "init", "--quiet", fleet)
    (fleet / ".gitignore").write_text("tests/output/\n", encoding="utf-8")
    gate.run(python, "-m", "venv", "--clear", work / "venv")
    bin_ = work / "venv/bin"
    gate.run(bin_ / "python", "-m", "pip", "install", "--quiet", "--pre", f"ansible-core~={core}.0rc0")
    home = work / "home"
    _bring_pip(home, bin_ / "python", _CORES[core])
    left_out = ["--skip-test", "pylint"] if core in _PYLINT_FROM_A_FORGE else []
    config = os.environ.get("XDG_CONFIG_HOME", str(Path.home() / ".config"))
    gate.run(
        bin_ / "ansible-test", "sanity", "--venv", "--python", _CORES[core], "--color", "no", *left_out,
        cwd=fleet, env={"HOME": str(home), "XDG_CONFIG_HOME": config, "PATH": f"{bin_}:{os.environ['PATH']}"},
    )  # fmt: skip


def importer(gate: Gate) -> None:
    """galaxy-importer over what Galaxy would get, with flake8; and that it refuses a version below 1.0.0 if told to."""
    work = WORK / "importer"
    installed(gate, work)
    (tarball,) = (work / "built").glob("gb10-fleet-*.tar.gz")
    gate.run(sys.executable, "-m", "venv", "--clear", work / "venv")
    python = work / "venv/bin/python"
    gate.run(python, "-m", "pip", "install", "--quiet", "galaxy-importer")
    path = {"PATH": f"{python.parent}:{os.environ['PATH']}", "HOME": str(work)}
    said = {}
    for strict in (False, True):
        settings = work / f"importer-{strict}.cfg"
        settings.write_text(f"[galaxy-importer]\nRUN_FLAKE8 = True\nREQUIRE_V1_OR_GREATER = {strict}\n")
        try:
            gate.run(
                python, "-m", "galaxy_importer.main", tarball, cwd=work,
                env={**path, "GALAXY_IMPORTER_CONFIG": str(settings)},
            )  # fmt: skip
            said[strict] = True
        except GateFailed:
            said[strict] = False
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    if not said[False]:
        raise GateFailed("galaxy-importer refuses the collection: see its last line")
    if said[True] != (int(version.split(".")[0]) >= 1):
        raise GateFailed(f"REQUIRE_V1_OR_GREATER and the version {version} do not agree")
    # A line ends as the formatter has it (E203, E704, W503); flake8 reads a filter's YAML as Python (E999).
    pattern = r"^WARNING: .*\.py:\d+:\d+: (?!E203|E704|W503)[A-Z]\d+ .*"
    if others := [line for line in gate.log if re.match(pattern, line)]:
        raise GateFailed(f"flake8 of galaxy-importer: {others[0]}")


def _bring_pip(home: Path, interpreter: str | Path = sys.executable, python: str = PYTHON) -> None:
    """Spare ansible-test its download of a script that installs pip: Python brings pip itself.

    The name of the cached script carries the version that this ansible-test would fetch.
    """
    ask = "from ansible_test._internal import python_requirements as p; import types; "
    ask += f"print(p.get_venv_packages(types.SimpleNamespace(version={python!r}))['pip'])"
    answer = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=True)
    script = home / ".ansible/test/cache" / f"get_pip_{answer.stdout.strip().replace('.', '_')}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text('import ensurepip\n\nensurepip.bootstrap()\nprint("pip comes from ensurepip")\n')


def distributions(gate: Gate, source: Path, into: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it, as an index and its users do. Return both."""
    gate.run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", into, cwd=source)
    (sdist,) = into.glob("gb10_fleet-*.tar.gz")
    gate.run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", into, sdist)
    (built,) = into.glob("gb10_fleet-*.whl")
    return sdist, built


def wheel(gate: Gate) -> None:
    """Build sdist and wheel from a clean export, and use them where there is nothing but what they ask for."""
    work = WORK / "wheel"
    source = stage(export(work / "source"))
    shutil.rmtree(work / "dist", ignore_errors=True)
    sdist, built = distributions(gate, source, work / "dist")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    files = source_files()
    folders = (*WHEEL_FOLDERS, "gb10_fleet", *_WHEEL_FILES, "LICENSE")
    wanted = {str(path) for path in files if path.parts[0] in folders or path.is_relative_to(_EXAMPLES)}
    _expect_exactly(inside - _OF_SDIST, wanted, sdist)
    with zipfile.ZipFile(built) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    brought = (
        path for path in files if path.parts[0] in (*WHEEL_FOLDERS, *_WHEEL_FILES) or path.is_relative_to(_EXAMPLES)
    )
    wanted = {f"ansible_collections/gb10/fleet/{path}" for path in brought}
    wanted |= {str(path) for path in files if path.parts[0] == "gb10_fleet"}
    _expect_exactly(names, wanted, built)
    as_others_see_it(gate, source, sdist, built)
    python = bare_environment(gate) / "bin/python"
    gate.run(python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", built)
    gate.run(python, "-m", "pip", "check")
    gate.run(python.with_name("gb10"), "--version", cwd=WORK)
    path = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    syntax_check(gate, path, python.with_name("ansible-playbook"))
    listed = gate.run(python.with_name("ansible-galaxy"), "collection", "list", "gb10.fleet", cwd=WORK, env=path)
    if not re.search(r"gb10\.fleet +\d", listed):
        raise GateFailed("the collection in the wheel has no version")


def as_others_see_it(gate: Gate, source: Path, sdist: Path, built: Path) -> None:
    """The tools with which strangers judge a distribution."""
    gate.run("twine", "check", "--strict", sdist, built)
    gate.run("pyroma", "--min", str(_PYROMA), sdist)
    # It builds the sdist of its own, and asks git which files there are.
    gate.run("git", "init", "--quiet", source)
    gate.run("git", "add", "--all", cwd=source)
    gate.run("check-manifest", "--no-build-isolation", source)


def bare_environment(gate: Gate) -> Path:
    """The wheel's run-time dependencies and nothing else; kept until they change."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        dependencies: list[str] = tomllib.load(file)["project"]["dependencies"]
    digest = hashlib.sha256(json.dumps([dependencies, sys.version]).encode()).hexdigest()[:12]
    environment = WORK / f"wheel/venv-{digest}"
    with _locked(environment.parent):  # the rehearsal of a release wants it at the same time
        _fill(gate, environment, dependencies)
    return environment


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Whoever else wants what is made here waits until it is done."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill(gate: Gate, environment: Path, dependencies: list[str]) -> None:
    if not (environment / "complete").exists():
        gate.run(sys.executable, "-m", "venv", "--clear", environment)
        gate.run(environment / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile", *dependencies)
        (environment / "complete").touch()


def every_unit(gate: Gate, path: Mapping[str, str] = MappingProxyType({})) -> None:
    """All unit tests but the plays, as the checkout has them: with this Python, or with that of a PATH."""
    left_out = [f"--ignore={path}" for path in sorted(_plays())]
    gate.run(_bin(path) / "pytest", "tests/unit", *_QUIETLY, "-p", "no:cacheprovider", *left_out, env=path, tests=True)


def every_unit_on_the_newest(gate: Gate) -> None:
    if path := _newest_environment(gate):
        every_unit(gate, path)


def plays(gate: Gate, part: int, parts: int, elsewhere: frozenset[Path]) -> None:
    """A part of the unit tests that start Ansible, with the newest one: the lab's tests run with this environment's."""
    path = _newest_environment(gate)
    files = sorted(_plays() - elsewhere)[part::parts]
    gate.run(_bin(path) / "pytest", *files, *_QUIETLY, "-m", "not long", "-p", "no:cacheprovider", env=path, tests=True)


def _bin(path: Mapping[str, str]) -> Path:
    """Where the programs of that environment are; of this one where it says nothing."""
    return Path(path["PATH"].partition(":")[0]) if path else BIN


def _newest_environment(gate: Gate) -> dict[str, str]:
    """The PATH of an environment with the newest Python and ansible-core; empty where this is it, or there is none."""
    if PYTHON == NEWEST_PYTHON:
        return {}
    interpreter = _find_python(NEWEST_PYTHON)
    if interpreter is None:
        # Debian 12 has no newer Python than 3.11, so this skip is no failure there; it is never silent.
        gate.excused.append(f"no python{NEWEST_PYTHON} on PATH or in ~/.pyenv: ansible-core {NEWEST_CORE} NOT tested")
        return {}
    environment = ROOT / f".venv-{NEWEST_PYTHON}"
    stamp = environment / ".installed-dev"
    with _locked(WORK / "newest"):  # two gates want it
        if not stamp.exists() or stamp.stat().st_mtime < (ROOT / "pyproject.toml").stat().st_mtime:
            gate.run(ROOT / "scripts/venv", environment, "dev", interpreter)
    path = {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    version = gate.run(environment / "bin/ansible-playbook", "--version", env=path)
    if f"core {NEWEST_CORE}." not in version:
        raise GateFailed(f"{environment.name} has another ansible-core than {NEWEST_CORE}: {version.splitlines()[0]}")
    return path


def _find_python(version: str) -> str | None:
    """A Python that truly runs (a shim on PATH may not)."""
    shims = [found for found in [shutil.which(f"python{version}")] if found]
    for candidate in [*shims, *map(str, Path.home().glob(f".pyenv/versions/{version}*/bin/python{version}"))]:
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def promtool() -> None:
    """Bring Prometheus' own tester beside the tools of the environment, where apt has it. It takes no root.

    Without it the tests of the rules skip, and fail in CI.
    """
    path = f"{BIN}:{os.environ['PATH']}"
    if shutil.which("promtool", path=path) or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, check=False)
        for package in Path(folder).glob("prometheus_*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
            shutil.copy2(Path(folder) / "usr/bin/promtool", BIN)


def gates(elsewhere: frozenset[Path] = frozenset()) -> list[Gate]:
    """Quick ones first, for an early word; then the long ones.

    `elsewhere`: files of unit tests that another gate runs on this very Python, so that none here does.
    """
    return [
        Gate("ruff", ruff),
        Gate("unit tests of the collection", partial(collection_units, elsewhere=elsewhere)),
        Gate("unit tests of the checkout", partial(units, elsewhere=elsewhere)),
        Gate("yamllint", yamllint, patient=True),
        Gate("changelog fragments", changelog, patient=True),
        Gate("files for the forge", forge, patient=True),
        Gate("ansible-lint, production", ansible_lint, patient=True),
        Gate("mypy, strict", mypy, patient=True),
    ]


def packages() -> list[Gate]:
    """Of what is published. They read no source that the gates above do not read, so they can wait for `make test`."""
    return [
        Gate("collection: build, install, sanity", collection, patient=True),
        Gate("wheel: build, install, run", wheel, patient=True),
    ]


def each_python() -> list[Gate]:
    """Of `make test-all`: each unit test on the oldest and on the newest Python. In the gates each runs on one."""
    oldest = Gate(f"all unit tests, Python {PYTHON}", every_unit)
    newest = Gate(f"all unit tests, Python {NEWEST_PYTHON}, ansible-core {NEWEST_CORE}", every_unit_on_the_newest)
    return [oldest] if PYTHON == NEWEST_PYTHON else [oldest, newest]


def each_core() -> list[Gate]:
    """Of `make test-all`: what a reviewer of the collection runs."""
    return [Gate(f"sanity, whole, ansible-core {core}", partial(whole_sanity, core=core)) for core in _CORES]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.check")
    parser.add_argument("--each-core", action="store_true", help="ansible-test sanity, whole, on each ansible-core")
    parser.add_argument("--each-python", action="store_true", help="all unit tests, on two Pythons, and nothing else")
    parser.add_argument("--importer", action="store_true", help="galaxy-importer with flake8, and nothing else")
    parser.add_argument("--packages", action="store_true", help="what is published, and nothing else")
    started = time.monotonic()
    args = parser.parse_args()
    if args.packages:
        chosen, about = packages(), "about 2 minutes"
    elif args.importer:
        chosen, about = [Gate("galaxy-importer, with flake8", importer)], "about 5 minutes"
    elif args.each_core:
        chosen, about = each_core(), "about 15 minutes"
    elif args.each_python:
        chosen, about = each_python(), "about 6 minutes"
    else:
        promtool()
        chosen, about = gates(), "about 3 minutes on 2 cores"
    print(f"{len(chosen)} gates, three at a time; {about}.", flush=True)
    return summarise(run_all(chosen, workers=3), started)


if __name__ == "__main__":
    sys.exit(main())
