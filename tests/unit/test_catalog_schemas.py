"""Every file of the catalog that has a schema in catalog/schema keeps to it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog

ROOT = Path(__file__).parents[2]
SCHEMAS = sorted(path.stem for path in (ROOT / "catalog/schema").glob("*.json"))


def schema(name: str) -> Any:
    return json.loads((ROOT / f"catalog/schema/{name}.json").read_text(encoding="utf-8"))


def faults(name: str, content: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema(name), format_checker=jsonschema.FormatChecker())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(content)]


def contents(name: str) -> dict[str, Any]:
    """One YAML file, or a folder of JSON files."""
    if (ROOT / f"catalog/{name}.yml").exists():
        return {name: catalog.load(name)}
    files = sorted((ROOT / "catalog" / name).glob("*.json"))
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in files}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_file_keeps_to_its_schema(name: str) -> None:
    found = contents(name)
    assert found, f"catalog/schema/{name}.json describes nothing"
    for content in found.values():
        assert faults(name, content) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"severity": "fatal"}, "fatal"),
        ({"match": {"flag": {"--port": "set"}}}, "flag"),
        ({"match": {"flags": {"--port": "absent"}}}, "absent"),
        ({"versions": "0.19"}, "0.19"),
        ({"sources": []}, "[]"),
        ({"confidence": "single_source", "severity": "error"}, "error"),
    ],
)
def test_the_schema_of_rules_sees_what_is_wrong(change: dict[str, Any], says: str) -> None:
    content = copy.deepcopy(catalog.load("rules"))
    content["rules"][0].update(change)
    assert says in " ".join(faults("rules", content))
