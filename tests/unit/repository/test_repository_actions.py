"""Every module that runs on a host has an action of ours in front of it, and no action repeats its documentation."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction, documented

from scripts.gates import ROOT

PLUGINS = ROOT / "plugins"
ACTIONS = sorted(path.stem for path in (PLUGINS / "action").glob("*.py"))
CARE = ("_execute_module", "_low_level_execute_command", "_parse_returned_data")


def runs_on_a_host(module: Path) -> bool:
    """Any other is documentation alone: its action does all of it on the controller, or asks the engine."""
    return any(isinstance(node, ast.Name) and node.id == "AnsibleModule" for node in ast.walk(_tree(module)))


def without_a_front(plugins: Path) -> list[str]:
    """The modules whose answers Ansible would take as they come."""
    return [
        path.stem
        for path in sorted((plugins / "modules").glob("*.py"))
        if runs_on_a_host(path) and not (plugins / "action" / path.name).is_file()
    ]


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_every_module_of_a_host_has_an_action_in_front() -> None:
    hosts = [path.stem for path in (PLUGINS / "modules").glob("*.py") if runs_on_a_host(path)]
    assert {"spark_facts", "image_info", "model_files"} <= set(hosts) and "doctor" not in hosts
    assert without_a_front(PLUGINS) == []


def test_a_module_without_one_is_named(tmp_path: Path) -> None:
    for name, text in {"told": "", "asked": "AnsibleModule({})", "new": "module = AnsibleModule({})"}.items():
        for folder in ("modules", "action"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "modules" / f"{name}.py").write_text(text)
    (tmp_path / "action/asked.py").touch()
    assert without_a_front(tmp_path) == ["new"]


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_takes_care_and_reads_the_documentation(name: str) -> None:
    action = importlib.import_module(f"ansible_collections.gb10.fleet.plugins.action.{name}").ActionModule
    assert issubclass(action, OwnAction)
    for method in CARE:
        assert getattr(action, method) is getattr(OwnAction, method), f"{name} has a {method} of its own"
    options = documented(name) if action._has_options else {}
    assert action._documented == {key: option for key, option in options.items() if key not in action.own}
    text = (PLUGINS / "action" / f"{name}.py").read_text(encoding="utf-8")
    assert "argument_spec" not in text, "its options are those of its documentation"


@pytest.mark.parametrize("name", ACTIONS)
def test_what_an_action_reads_is_what_ansible_doc_shows(name: str) -> None:
    text = next(
        ast.literal_eval(node.value)
        for node in _tree(PLUGINS / "modules" / f"{name}.py").body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "DOCUMENTATION"
    )  # fmt: skip
    shown = yaml.safe_load(text).get("options") or {}
    read = documented(name)
    assert read.keys() == shown.keys()
    for option, said in shown.items():
        assert read[option] == {key: value for key, value in said.items() if key not in ("description", "suboptions")}
