"""The process that tests/support/starter.py forks plays from. It gets a play in a line, and answers its exit code.

A fork is ansible-playbook from its first line to the end of its interpreter. What it would read first and no play can
change is read here, once for all of them: Ansible's modules; which settings it has, and where its own plugins have
moved; what its plugins say of their settings. That is YAML, and two thirds of the CPU seconds of a play with one task.
Ansible compiles each module of a collection anew. Here that is done once for each text; one that a test has changed is
compiled in its play. The values of settings are read in the fork, from its own environment.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import sys
from pathlib import Path
from types import CodeType
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
    for path in (Path(__file__).parents[2] / "plugins").rglob("*.py"):
        _collection_finder.compile(path.read_bytes(), str(path), "exec", flags=0, dont_inherit=True)
    for kind in _WITH_SETTINGS:
        list(getattr(loader, f"{kind}_loader").all(class_only=True))
    return constants.config._plugins


def _compiled(known: dict[bytes, CodeType], source: bytes, filename: str, mode: str, **words: Any) -> CodeType:
    """A traceback names the file that had this text first: the checkout's, where a test's collection has a link."""
    if source not in known:
        known[source] = compile(source, filename, mode, **words)
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
