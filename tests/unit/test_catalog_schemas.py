"""Every file of the catalog that has a schema in catalog/schema keeps to it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

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
        ({"date": "2026-13-01"}, "2026-13-01"),
        ({"date": "2026-11-45"}, "2026-11-45"),
        ({"confidence": "single_source", "severity": "error"}, "error"),
    ],
)
def test_the_schema_of_rules_sees_what_is_wrong(change: dict[str, Any], says: str) -> None:
    content = copy.deepcopy(catalog.load("rules"))
    content["rules"][0].update(change)
    assert says in " ".join(faults("rules", content))


def dates(node: Any) -> Iterator[str]:
    """Every `date` below."""
    if isinstance(node, dict):
        yield from (str(node[key]) for key in node if key == "date")
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from dates(value)


@pytest.mark.parametrize("name", sorted({*SCHEMAS, *(path.stem for path in (ROOT / "catalog").glob("*.yml"))}))
def test_no_date_is_in_the_future(name: str) -> None:
    """A date says when somebody looked; one to come would never be too old for `gb10 catalog check`."""
    latest = datetime.now(timezone(timedelta(hours=14))).date()  # somewhere it is this day already
    said = [text for content in contents(name).values() for text in dates(content)]
    assert [text for text in said if date.fromisoformat(text) > latest] == []
