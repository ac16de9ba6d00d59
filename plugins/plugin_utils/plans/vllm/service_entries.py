# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of `vllm_services`: which keys one has, what is wrong with it, and what of it may be shown.

What may be a secret stays away from errors and reports: a text of another form than expected may hold one.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import known as engines
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.engine import Engine

VLLM, CONTAINER = "vllm", "container"
VARIABLE = "vllm_services"
SHORT = "vllm"  # the service that `vllm_model` and its siblings declare
_PREFIX = "vllm_"
# What an entry says beside the role's variables, each without the prefix.
_OF_A_SERVICE: catalog.Options = {
    "kind": {"type": "str", "choices": [VLLM, CONTAINER]},
    "engine": {"type": "str", "choices": list(engines.ENGINES)},
    "hosts": {"type": "list", "elements": "str"},
    "span": {"type": "str", "choices": ["cluster", "host"]},
    "memory_gib": {"type": "float"},
}
# What an entry of another container than vLLM's says, and what it must say: nobody can work that out.
_OF_A_CONTAINER: catalog.Options = {"args": {"type": "list", "elements": "str"}, "health": {"type": "str"}}
_ASKED_OF_A_CONTAINER = ("image", "port", "served_model_name", "memory_gib")
# All that a container is told of the role's variables.
_USED_BY_A_CONTAINER = {
    *("image", "allow_tag", "registry_username", "registry_password", "port", "served_model_name", "environment"),
    *("mounts", "allow_mounts", "security_options", "allow_security_options", "ulimits"),
    *("memory_gate_gib", "ready_timeout", "on_demand"),
}
_TOLD_APART = {"model", "gpu_memory_utilization"}  # each with a refusal of its own
_FREE_WORDS = {"args", "extra_args", "environment"}  # anything may stand there
_FORMS = ("list", "dict")
# From the server's root: without an empty part, which another host's name would follow, and without `..`.
_PATH = re.compile(r"(?!.*/[.]{1,2}(/|\Z))/([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*/?)?\Z")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?\Z")
_EXAMPLE = "{model: openai/gpt-oss-20b, port: 8001}"


def engine_of(entry: Mapping[Any, Any]) -> Engine:
    """The engine of an entry; one that is none is told by `mistakes`."""
    return engines.ENGINES.get(str(entry.get("engine", engines.VLLM)), engines.ENGINES[engines.VLLM])


def takes_key(entry: Mapping[Any, Any]) -> bool:
    """Tell whether the host's key is for it: what another container than an engine asks for is its own."""
    return bool(entry.get("kind", VLLM) == VLLM)


def key_of(entry: Mapping[Any, Any], common: str) -> str:
    """The key that a service is asked with: its own, else the host's where that is for it; empty: none."""
    return str(entry.get("api_key", common if takes_key(entry) else "") or "")


def is_name(name: str) -> bool:
    """Tell whether an entry may be called so."""
    return name != SHORT and _NAME.match(name) is not None


def of(variables: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The entries of a host by their names; what is none is told by `mistakes`."""
    said = variables.get(VARIABLE, {})
    if not isinstance(said, Mapping):
        return {}
    return {name: entry for name, entry in said.items() if isinstance(name, str) and isinstance(entry, Mapping)}


def here(variables: Mapping[str, Any], host: str) -> Iterator[str]:
    """Yield the names of the entries that are for this host."""
    for name, entry in of(variables).items():
        wanted = entry.get("hosts")
        if wanted is None or {*map(str, wanted)} & {host, *variables.get("group_names", ()), "all"}:
            yield name


def may_be_shown(entry: Mapping[Any, Any], key: Any) -> bool:
    """Tell whether the value of a key is no secret for certain."""
    options = _options(entry)
    if key not in options or key in _FREE_WORDS or options[key].get("no_log"):
        return False
    return not settings.mistakes({key: options[key]}, {key: entry[key]})


def mistakes(variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the entries by themselves, each by its whole name."""
    said = variables.get(VARIABLE, {})
    if not isinstance(said, Mapping):
        yield from settings.mistakes(catalog.declared_variables().roles["vllm"], {VARIABLE: said})
        return
    for name, entry in said.items():
        where = f"{VARIABLE}.{_in_yaml(name)}"
        if not isinstance(name, str):
            yield f"{where}: the name is no text. Put it in quotes, or choose another."
        elif not is_name(name):
            yield (
                f"{where}: a service is named by up to 31 small letters, digits and '-', and {SHORT} is the one of "
                "vllm_model. Choose another name."
            )
        elif not isinstance(entry, Mapping):
            yield f"{where} is not a mapping. Write its model and what else it has, for example {_EXAMPLE}."
        else:
            yield from _of_keys(where, entry)


def _options(entry: Mapping[Any, Any]) -> catalog.Options:
    """The keys that an entry may have."""
    declared = catalog.declared_variables().roles["vllm"]
    options = {name.removeprefix(_PREFIX): option for name, option in declared.items() if name != VARIABLE}
    own = _OF_A_CONTAINER if entry.get("kind") == CONTAINER else engine_of(entry).keys
    return {**options, **_OF_A_SERVICE, **own}


def _of_keys(where: str, entry: Mapping[Any, Any]) -> Iterator[str]:
    options = _options(entry)
    for key in ("kind", "engine"):  # they decide what other keys there are
        if entry.get(key) is not None and (wrong := _of_a_value(f"{where}.{key}", options[key], entry[key])):
            yield from wrong
            return
    yield from _strange(where, [key for key in entry if key not in options], options)
    known = {key: value for key, value in entry.items() if key in options}
    for key in [key for key, value in known.items() if value is None]:
        yield f"{where}.{key} is empty. Give it a value, or leave it out."
    given = {key: value for key, value in known.items() if value is not None}
    of_each = [text for key, value in given.items() for text in _of_a_value(f"{where}.{key}", options[key], value)]
    yield from of_each
    if entry.get("kind") == CONTAINER:
        yield from _of_a_container(where, entry, options)
    elif engine_of(entry) is not engines.ENGINES[engines.VLLM]:
        yield from () if of_each else _of_an_engine(where, entry)
    elif not {"model", "vllm_model"} & {key for key, value in entry.items() if value or value is None}:
        yield f"{where}.model is missing. Name the Hugging Face id of the model to serve."
    if {"memory_gib", "gpu_memory_utilization"} <= entry.keys():
        yield f"{where} has memory_gib and gpu_memory_utilization, which say the same. Leave one out."
    if "memory_gib" in given and not of_each and float(given["memory_gib"]) <= 0:
        yield f"{where}.memory_gib is {given['memory_gib']}. Say how many GiB it takes of its host, for example 8."


def _strange(where: str, keys: list[Any], options: catalog.Options) -> Iterator[str]:
    if not keys:
        return
    meant = [key.removeprefix(_PREFIX) for key in keys if isinstance(key, str)]
    instead = ", ".join(near for key in meant for near in difflib.get_close_matches(key, options, n=1, cutoff=0.8))
    yield (
        f"{where} has {', '.join(map(_in_yaml, keys))}, which is no variable of the role vllm without its prefix, and "
        f"none of {', '.join(_OF_A_SERVICE)}.{f' Write {instead}.' if instead else ' Leave it out.'}"
    )


def _of_a_value(name: str, option: Mapping[str, Any], value: Any) -> list[str]:
    """A list or a mapping may hold a secret, and so may what stands in its place."""
    unseen = {"no_log": True} if option.get("type") in _FORMS or isinstance(value, (list, tuple, Mapping)) else {}
    return settings.mistakes({name: {**option, **unseen}}, {name: value})


def _of_a_container(where: str, entry: Mapping[Any, Any], options: catalog.Options) -> Iterator[str]:
    missing = [key for key in _ASKED_OF_A_CONTAINER if entry.get(key, "") == ""]
    if missing:
        yield f"{where} is of kind container and has no {', '.join(missing)}. Nobody can work that out: say it."
    if entry.get("span") == "cluster":
        yield f"{where}.span is cluster, and a container runs on one host. Leave it out."
    if "engine" in entry:
        yield f"{where}.engine is of a model that the role serves, and a container brings its own. Leave one out."
    if entry.get("model"):
        yield f"{where}.model is what vLLM fetches. A container brings its own, or gets it by mounts: leave it out."
    used = {*_USED_BY_A_CONTAINER, *_OF_A_SERVICE, *_OF_A_CONTAINER, *_TOLD_APART}
    if unused := [key for key in entry if key in options and key not in used]:
        yield (
            f"{where} is of kind container and has {', '.join(unused)}, which only vLLM is told. Leave it out, or say "
            "it in args."
        )
    if not _PATH.match(str(entry.get("health", "/health"))):
        yield f"{where}.health is {entry['health']!r}. Name the path that answers 200 when it serves, such as /health."


def _of_an_engine(where: str, entry: Mapping[Any, Any]) -> Iterator[str]:
    """Of another engine than vLLM: what it needs, what it cannot have, and what it says itself of the rest."""
    engine, given = engine_of(entry), {key: value for key, value in entry.items() if value is not None}
    if missing := [key for key in engine.needs if given.get(key, "") == ""]:
        yield f"{where} is of {engine.title} and has no {', '.join(missing)}. Nobody can work that out: say it."
    for key in [key for key in given if key in engine.refuses]:
        yield f"{where}.{key}: {engine.title} cannot have it: {engine.refuses[key]}. Leave it out."
    if entry.get("span") == "cluster" and not engine.address_variable:
        yield f"{where}.span is cluster, and {engine.title} serves on one host here. Leave it out."
    yield from (f"{where}: {text}" for text in engine.mistakes(given))


def _in_yaml(key: Any) -> str:
    """A key as the inventory has it."""
    return key if isinstance(key, str) else json.dumps(key, default=str)
