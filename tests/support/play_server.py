"""The process that tests/support/starter.py forks plays from. It gets a play in a line, and answers its exit code.

A fork is ansible-playbook from its first line to the end of its interpreter. What it would read first and no play can
change is read here, once for all of them: Ansible's modules; which settings it has, and where its own plugins have
moved; what its plugins say of their settings. That is YAML, and two thirds of the CPU seconds of a play with one task.
Ansible compiles each module of a collection anew, and our collection reads its catalogs and compiles its documents in
each run. Here that is done once for each text; one that a test has changed is read in its play. Our modules themselves
are imported in the fork, and so are the values of settings, from its own environment.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import ansible
import yaml
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
_ROOT = Path(__file__).parents[2]
# Behind the text of render.py: Jinja has compiled what is in our documents.
_RENDER = "plugin_utils/documents/render.py"
_TRANSLATED = b"\nimport __main__\n_COMPILED.update(__main__.translated)\n"
translated: dict[str, Any] = {}
_OUR_LOADERS = (yaml.SafeLoader, getattr(yaml, "CSafeLoader", None))


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
        _collection_finder.compile(path.read_bytes(), str(path), "exec", flags=0, dont_inherit=True)
    yaml.load = functools.partial(_loaded, yaml.load, {})
    translated.update(_documents())
    for kind in _WITH_SETTINGS:
        list(getattr(loader, f"{kind}_loader").all(class_only=True))
    return constants.config._plugins


def _documents() -> dict[str, Any]:
    """What Jinja makes of our documents, by the text. Of our modules none stays."""
    sys.path.insert(0, str(_ROOT / "collections"))
    render = importlib.import_module("ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render")
    render.preload()
    sys.path.pop(0)
    for name in [name for name in sys.modules if name.partition(".")[0] == "ansible_collections"]:
        del sys.modules[name]
    return dict(render._COMPILED)


def _loaded(load: Callable[..., Any], known: dict[tuple[str, Any], bytes], stream: Any, Loader: Any) -> Any:
    """YAML of ours, by its text; each reader gets values of its own."""
    if not isinstance(stream, str) or Loader not in _OUR_LOADERS:
        return load(stream, Loader=Loader)
    if (stream, Loader) not in known:
        known[stream, Loader] = pickle.dumps(load(stream, Loader=Loader))
    return pickle.loads(known[stream, Loader])  # noqa: S301 - dumped in the line before


def _compiled(known: dict[bytes, CodeType], source: bytes, filename: str, mode: str, **words: Any) -> CodeType:
    """A traceback names the file that had this text first: the checkout's, where a test's collection has a link."""
    if source not in known:
        more = _TRANSLATED if filename.endswith(_RENDER) else b""
        known[source] = compile(source + more, filename, mode, **words)
    return known[source]


def become_a_play(settings: Settings, folder: str, environment: dict[str, str], argv: list[str]) -> None:
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
    sys.argv = argv
    playbook.main()


def main() -> None:
    settings = read_once()
    gc.freeze()
    for line in sys.stdin:
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        become_a_play(settings, *json.loads(line))


if __name__ == "__main__":
    main()
