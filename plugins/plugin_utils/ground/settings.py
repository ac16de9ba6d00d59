# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a role on one host: its public variables, of the types that its argument specification declares.

Ansible's own validator converts them, once: "9000" from a survey is a number, "true" is true. What it cannot convert is
an error that names the variable. A planner states the variables that it reads as a frozen dataclass, one field for each
public variable of the role, under the same name:

    @dataclass(frozen=True)
    class PageCacheSettings(RoleSettings, role="page_cache"):
        page_cache_operators: tuple[str, ...]
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

if TYPE_CHECKING:
    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

# Ansible would split a text at its commas, or read it as JSON or as k=v: a person may have meant either.
_CONTAINERS: Mapping[str, Any] = {"list": (list, tuple), "dict": Mapping}
_KINDS: Mapping[str, str] = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list", "dict": "a mapping",
}  # fmt: skip
# What holds secrets further down is never shown; each with an example of its form.
_NEVER_SHOWN: Mapping[str, str] = {"vllm_services": "{chat: {model: openai/gpt-oss-20b, port: 8001}}"}
_LONGEST = 80  # characters of a value that an error shows
_Settings = TypeVar("_Settings", bound="RoleSettings")


class SettingsError(ValueError):
    """A variable that is not of its declared type; one line for each, which names it."""


class RoleSettings:
    """Base of the settings of a role: each field is a public variable of it."""

    role: ClassVar[str]

    def __init_subclass__(cls, *, role: str) -> None:
        cls.role = role


def read(cls: type[_Settings], given: Mapping[str, Any]) -> _Settings:
    """The settings of a role, from the variables of a host; SettingsError where one is of another type."""
    values = converted(cls.role, given)
    return cls(**{each.name: _frozen(values[each.name]) for each in fields(cls)})  # type: ignore[arg-type]


def converted(role: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All public variables of a role, defaults filled in, in Python's own types."""
    options = catalog.declared_variables().roles[role]
    own = {name: given[name] for name in options if name in given}
    wrong = mistakes(options, own)
    if wrong:
        raise SettingsError("; ".join(wrong))
    values: dict[str, Any] = json.loads(_converted(role, json.dumps(_ordered(own), default=str)))
    return values


def _ordered(given: Any) -> Any:
    """The same for hosts that say the same; keys of YAML may be of any type, and those cannot be compared."""
    if isinstance(given, Mapping):
        keys = {key: key if isinstance(key, (str, int, float)) or key is None else str(key) for key in given}
        return {keys[key]: _ordered(given[key]) for key in sorted(given, key=str)}
    return [_ordered(each) for each in given] if isinstance(given, (list, tuple)) else given


@cache
def _converted(role: str, own: str) -> str:
    """Hosts of one group say the same; each gets a copy of its own."""
    validator = _validator(catalog.declared_variables().roles[role])
    return json.dumps(validator.validate(json.loads(own)).validated_parameters)


def _validator(options: Mapping[str, Any]) -> ArgumentSpecValidator:
    # Here, for `gb10` imports this file, and must not wait for Ansible.
    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

    return ArgumentSpecValidator(options)


def value(name: str, option: Mapping[str, Any], given: Any) -> Any:
    """One variable as its role gets it; one with a mistake as it is."""
    if _mistakes(name, option, given):
        return given
    return _validator({name: dict(option)}).validate({name: given}).validated_parameters[name]


def mistakes(options: catalog.Options, values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the types and choices of these values; a line for each, which names its variable."""
    return [text for name, value in values.items() for text in _mistakes(name, options[name], value)]


def _mistakes(name: str, option: Mapping[str, Any], value: Any) -> list[str]:
    from ansible.module_utils.errors import ArgumentTypeError, ElementError

    kind = option.get("type", "str")
    if kind == "raw":  # whoever reads it says what it may be
        return []
    fits = (
        isinstance(value, _CONTAINERS[kind]) if kind in _CONTAINERS else not isinstance(value, (list, tuple, Mapping))
    )
    if kind in ("int", "float") and not _is_number(value):
        fits = False
    of_texts = kind == "list" and option.get("elements") == "str" and "choices" not in option  # those name themselves
    if fits and of_texts and not all(map(_is_text, value)):
        return [f"{name} holds an item that is no text: a list, a mapping or nothing. Write a text for each"]
    # A default is sound by itself, and one that is not given is not the operator's.
    spec = {key: part for key, part in option.items() if key != "default"}
    errors = _validator({name: spec}).validate({name: value}).errors.errors if fits else []
    if errors and (inner := [text for part in _parts(name, option, value) for text in _mistakes(*part)]):
        return inner
    if fits and not any(isinstance(error, (ArgumentTypeError, ElementError)) for error in errors):
        return [str(error) for error in errors]
    if name in _NEVER_SHOWN:
        return [f"{name} is not a mapping. Write each service under its name, for example {_NEVER_SHOWN[name]}."]
    said = repr(value) if len(repr(value)) <= _LONGEST else f"{repr(value)[:_LONGEST]}..."
    shown = "not" if option.get("no_log") else f"{'the text ' if isinstance(value, str) else ''}{said}, and must be"
    return [f"{name} is {shown} {_KINDS.get(kind, 'a text')}"]


def _parts(name: str, option: Mapping[str, Any], value: Any) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Yield name, option and value of each entry of a list of mappings, or of each key of a mapping."""
    hidden = {"no_log": True} if option.get("no_log") else {}
    if isinstance(value, list) and option.get("elements") == "dict":
        each = {"type": "dict", "options": option.get("options"), **hidden}
        for number, entry in enumerate(value, 1):
            label = entry.get("name") if isinstance(entry, Mapping) else None
            yield f"{name}[{label if isinstance(label, str) and label else number}]", each, entry
    elif isinstance(value, Mapping):
        for key, part in (option.get("options") or {}).items():
            if key in value:
                yield f"{name}.{key}", {**part, **hidden}, value[key]


def _is_number(value: Any) -> bool:
    """Tell whether a figure has an end; what is no figure at all says Ansible's validator."""
    try:
        return not isinstance(value, bool) and math.isfinite(float(value))  # a bool is an int to Python alone
    except OverflowError:
        return False
    except (TypeError, ValueError):
        return True


def _is_text(value: Any) -> bool:
    return value is not None and not isinstance(value, (list, tuple, Mapping))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
