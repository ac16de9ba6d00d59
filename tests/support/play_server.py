"""The process that tests/support/starter.py forks plays from. It gets a play in a line, and answers its exit code.

A fork is ansible-playbook from its first line to the end of its interpreter. What it would read first and no play can
change is read here, once for all of them: Ansible's modules; which settings it has, and where its own plugins have
moved; what its plugins say of their settings. That is YAML, and two thirds of the CPU seconds of a play with one task.
Ansible compiles each module of a collection anew. Here that is done once for each text; one that a test has changed is
compiled in its play. The values of settings are read in the fork, from its own environment.

The modules that our plugins import, our catalogs and our documents are half of what is left of a play. They are read
here, too, and a play whose collection differs in none of them has them from here. Where one of them cannot be imported,
or has changed since, each play imports its own, and says itself what is wrong.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import ansible
from ansible import constants
from ansible.cli import playbook
from ansible.config.manager import ConfigManager
from ansible.plugins import loader
from ansible.utils.collection_loader import _collection_finder

# Ansible and our collection import these in a play.
_MODULES = (
    "ansible.executor.playbook_executor", "ansible.executor.task_queue_manager", "ansible.parsing.yaml.dumper",
    "ansible.playbook.handler_task_include", "ansible.plugins.filter.core", "ansible.plugins.filter.mathstuff",
    "ansible.plugins.strategy.linear", "ansible.plugins.test.core", "concurrent.futures.thread", "http.client",
    "multiprocessing.popen_fork", "multiprocessing.synchronize", "resource", "ssl", "urllib.request",
)  # fmt: skip
# Kinds of plugins with settings of their own, of which a play loads some. Not those of variables: once one is loaded
# here, no play finds its group_vars.
_WITH_SETTINGS = ("become", "cache", "callback", "connection", "inventory", "shell")

Settings = dict[str, dict[str, Any]]  # by type and name of the plugin
Modules = dict[str, ModuleType]  # by name
Stamp = dict[str, tuple[int, int]]  # of each file, when it was written and how long it is
_ROOT = Path(__file__).parents[2]
_COLLECTION = "ansible_collections/gb10/fleet"
_PLUGINS = f"{_COLLECTION}/plugins".replace("/", ".")
# What those modules read, and where they are.
_READ = ("catalog", "roles", "galaxy.yml", "plugins/module_utils", "plugins/plugin_utils")
_ENGINE = "plugins/module_utils/engine/remote.py"  # of Plays its own, and nobody imports it on a controller


def read_once() -> Settings:
    """What no play can change. Answers which settings the plugins have."""
    for name in _MODULES:
        importlib.import_module(name)
    folder = Path(ansible.__file__).parent / "config"
    reads = functools.cache(functools.partial(ConfigManager._read_config_yaml_file, constants.config))
    ConfigManager._read_config_yaml_file = lambda _, path: reads(path)
    reads(f"{folder}/base.yml")
    # A hook of Ansible's, and its words for a collection: it may keep what it has read under them.
    _collection_finder._meta_yml_to_dict = functools.cache(_collection_finder._meta_yml_to_dict)
    moved = (folder / "ansible_builtin_runtime.yml").read_bytes()
    _collection_finder._meta_yml_to_dict(moved, ("ansible.builtin", "runtime.yml"))
    _collection_finder.compile = functools.partial(_compiled, {})
    for path in (_ROOT / "plugins").rglob("*.py"):
        with contextlib.suppress(SyntaxError, ValueError):  # the play that imports it says so
            _collection_finder.compile(path.read_bytes(), str(path), "exec", flags=0, dont_inherit=True)
    for kind in _WITH_SETTINGS:
        list(getattr(loader, f"{kind}_loader").all(class_only=True))
    return constants.config._plugins


def import_ours() -> Modules:
    """What our plugins import, as Ansible imports it, with what it reads. Nothing, where an import fails."""
    finder = _collection_finder._AnsibleCollectionFinder([str(_ROOT / "collections")], scan_sys_paths=False)
    finder._install()
    _forget()  # ansible-core 2.21 has taken the package from elsewhere
    try:
        for path in sorted((_ROOT / "plugins/plugin_utils").rglob("[!_]*.py")):
            importlib.import_module(".".join((_PLUGINS, *path.relative_to(_ROOT / "plugins").with_suffix("").parts)))
        render = sys.modules[f"{_PLUGINS}.plugin_utils.documents.render"]
        render.preload()
        for path in _ROOT.glob("roles/*/desired.yml"):
            for entry in render.load(path.parent.name).resources:
                if entry.template is not None:
                    render.compiled(entry.template)
        sys.modules[f"{_PLUGINS}.plugin_utils.catalog"].declared_variables()
        ours = {name: module for name, module in sys.modules.items() if name.startswith(_PLUGINS)}
    except Exception:  # whatever a module raises: a play that imports it shows it
        ours = {}
    finder._remove()
    _forget()
    return ours


def _forget() -> None:
    for name in [name for name in sys.modules if name.startswith("ansible_collections")]:
        del sys.modules[name]


def stamp() -> Stamp:
    """Tells whether a file has changed since. Before each play, so it takes some ms only."""
    found = {}
    walks = map(os.walk, (f"{_ROOT}/{name}" for name in _READ))
    for folder, _, names in itertools.chain([(f"{_ROOT}", [], ["galaxy.yml"])], *walks):
        for path in (f"{folder}/{name}" for name in names if name[0] != "." and not name.endswith(".pyc")):
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile, as an editor's file
                said = Path(path).stat()
                found[path] = (said.st_mtime_ns, said.st_size)
    return found


def _same(here: Path, there: Path) -> bool:
    """Whether a file or a folder is the other, or a folder of links that lead to all that is in the other."""
    if here.resolve() == there.resolve() or here.as_posix().endswith(_ENGINE):
        return True
    if here.is_symlink() or not (here.is_dir() and there.is_dir()):
        return False
    names = {path.name for folder in (here, there) for path in folder.iterdir()}
    return all(_same(here / name, there / name) for name in names if name != "__pycache__" and name[0] != ".")


def _beside(words: Sequence[str], collections: str) -> bool:
    """Whether another collection of ours is beside the playbook: Ansible takes that one first."""
    beside = (Path(word).parent / "collections" / _COLLECTION for word in words if Path(word).is_file())
    return any(path.exists() and path.resolve() != Path(collections, _COLLECTION).resolve() for path in beside)


def take_ours(ours: Modules, collections: str, words: Sequence[str]) -> None:
    """Our modules are imported, in the collection of this play; a run of its own begins."""
    if not ours or _beside(words, collections):
        return
    if not all(_same(Path(collections, _COLLECTION, name), _ROOT / name) for name in _READ):
        return
    run = ours[f"{_PLUGINS}.plugin_utils.hosts.run"]
    before = run.RUN
    try:
        vars(run).update(RUN=run.name(), _SECRET=os.urandom(32))
    except ValueError:  # it has no name in this environment, as the play finds out
        return
    for module in ours.values():
        module.__file__ = f"{module.__file__}".replace(f"{_ROOT}/collections", collections)
        if hasattr(module, "__path__"):
            module.__path__ = [str(Path(module.__file__).parent)]
        if getattr(module, "RUN", None) is before:
            vars(module).update(RUN=run.RUN)
    sys.modules.update(ours)


def _compiled(known: dict[bytes, CodeType], source: bytes, filename: str, mode: str, **words: Any) -> CodeType:
    """A traceback names the file that had this text first: the checkout's, where a test's collection has a link."""
    if source not in known:
        known[source] = compile(source, filename, mode, **words)
    return known[source]


def become_a_play(settings: Settings, ours: Modules, folder: str, environment: dict[str, str], argv: list[str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for target, streams in ((os.open(os.devnull, os.O_RDONLY), (0,)), (os.open("output", os.O_RDWR), (1, 2))):
        for stream in streams:
            os.dup2(target, stream)
        os.close(target)
    importlib.reload(constants)
    for kind, plugins in settings.items():
        for name, options in plugins.items():
            constants.config.initialize_plugin_configuration_definitions(kind, name, options)
    take_ours(ours, environment.get("ANSIBLE_COLLECTIONS_PATH", ""), argv[1:])
    sys.argv = argv
    playbook.main()


def main() -> None:
    before = stamp()
    settings, ours = read_once(), import_ours()
    gc.freeze()
    for line in sys.stdin:
        if ours and stamp() != before:
            ours = {}
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        become_a_play(settings, ours, *json.loads(line))


if __name__ == "__main__":
    main()
