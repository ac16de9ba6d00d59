"""What every planner promises: settings as the role's argument specification has them, a frozen plan, no Jinja."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import plan as plans
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings

ROOM = Path(plans.__file__).parent
PACKAGE = plans.__name__.rpartition(".")[0]
MODULES = [import_module(f"{PACKAGE}.{path.stem}") for path in sorted(ROOM.glob("*.py"))]
SETTINGS = RoleSettings.__subclasses__()
PLANNED = [role for role in catalog.declared_variables().roles if (ROOM / f"{role}.py").is_file()]
SIMPLE = {"str": str, "path": str, "int": int, "float": float, "bool": bool, "raw": Any}


def fits(hint: Any, option: Mapping[str, Any]) -> bool:
    """Whether a field of this type takes whatever Ansible's validator makes of the option."""
    accepted = get_args(hint) if type(None) in get_args(hint) else (hint,)
    if (type(None) in accepted) != (option.get("default") is None and not option.get("required")):
        return False
    (kind,) = (part for part in accepted if part is not type(None))
    if option.get("type") == "list":
        of, *rest = get_args(kind) or (None,)
        return get_origin(kind) is tuple and rest == [...] and _takes(of, option.get("elements", "raw"))
    return _takes(kind, option.get("type", "str"))


def _takes(kind: Any, declared: str) -> bool:
    return get_origin(kind) in (dict, Mapping) if declared == "dict" else kind is SIMPLE[declared]


@pytest.mark.parametrize("cls", SETTINGS, ids=lambda cls: cls.__name__)
def test_settings_are_the_variables_of_the_role(cls: type[RoleSettings]) -> None:
    options = catalog.declared_variables().roles[cls.role]
    assert is_dataclass(cls)
    assert {each.name for each in fields(cls)} == set(options)
    hints = get_type_hints(cls)
    assert {name: hints[name] for name, option in options.items() if not fits(hints[name], option)} == {}
    with pytest.raises(FrozenInstanceError):
        object.__new__(cls).__setattr__(next(iter(options)), None)


def test_each_role_has_its_settings_once() -> None:
    roles = [cls.role for cls in SETTINGS]
    assert sorted(roles) == sorted(set(roles))
    assert "driver" in roles


@pytest.mark.parametrize("role", PLANNED)
def test_a_planner_gives_a_frozen_plan_of_its_role(role: str) -> None:
    planner = import_module(f"{PACKAGE}.{role}").plan
    result = get_type_hints(planner)["return"]
    assert result.__name__.lower() == f"{role.replace('_', '')}plan"
    assert issubclass(result, plans.RolePlan)
    assert is_dataclass(result) and all(each.kw_only for each in fields(result))
    assert result.__module__ == planner.__module__


@pytest.mark.parametrize("role", PLANNED)
def test_no_planner_needs_jinja(role: str) -> None:
    """Decisions are plain Python: nothing of Ansible's filters and tests."""
    tree = ast.parse((ROOM / f"{role}.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in imported if name.split(".")[0] in ("ansible", "jinja2")]


@pytest.mark.parametrize(
    ("hint", "option", "expected"),
    [
        (str, {"type": "str", "default": ""}, True),
        (str, {"default": ""}, True),
        (int, {"type": "str", "default": ""}, False),
        (bool, {"type": "int", "default": 1}, False),
        (str, {"type": "str"}, False),
        (str, {"type": "str", "required": True}, True),
        (str | None, {"type": "str"}, True),
        (str | None, {"type": "str", "default": ""}, False),
        (tuple[str, ...], {"type": "list", "elements": "str", "default": []}, True),
        (tuple[int, ...], {"type": "list", "elements": "str", "default": []}, False),
        (list[str], {"type": "list", "elements": "str", "default": []}, False),
        (tuple[Mapping[str, Any], ...], {"type": "list", "elements": "dict", "default": []}, True),
        (Mapping[str, Any], {"type": "dict", "default": {}}, True),
        (str, {"type": "dict", "default": {}}, False),
    ],
)
def test_a_wrong_type_is_noticed(hint: Any, option: Mapping[str, Any], expected: bool) -> None:
    assert fits(hint, option) is expected
