"""The catalog's loader, and that what stands in the catalog keeps its promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

ROOT = Path(__file__).parents[2]


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "x.yml").write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "catalog").glob("*.yml")))
def test_every_file_loads_and_carries_its_evidence(name: str) -> None:
    assert catalog.load(name)


@pytest.mark.parametrize("missing", ["source", "date", "confidence"])
def test_a_value_without_evidence_is_refused_by_path(tmp_path: Path, missing: str) -> None:
    entry = {"value": "1", "source": "s", "date": '"2026-11-21"', "confidence": "vendor"}
    del entry[missing]
    root = written(tmp_path, "list:\n  - {" + ", ".join(f"{key}: {value}" for key, value in entry.items()) + "}\n")
    with pytest.raises(catalog.CatalogError, match=rf"x\.yml\.list\[0\]: .* has no {missing}"):
        catalog.load("x", root)


def test_dates_are_text_and_must_be_dates(tmp_path: Path) -> None:
    root = written(tmp_path, "a: {value: 1, source: s, date: 2026-11-21, confidence: vendor}\n")
    assert catalog.load("x", root)["a"]["date"] == "2026-11-21"
    for wrong in ("yesterday", "2099-13-45", "2026-11-32"):
        (root / "catalog" / "x.yml").write_text(f"a: {{value: 1, source: s, date: '{wrong}', confidence: vendor}}\n")
        catalog.load.cache_clear()
        with pytest.raises(catalog.CatalogError, match="not a date"):
            catalog.load("x", root)


@pytest.mark.parametrize(
    ("text", "says"), [("- 1\n", "mapping"), ("a: [\n", "not YAML"), ("a: 2099-13-45\n", "not YAML: month")]
)
def test_what_is_no_catalog_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(catalog.CatalogError, match=says):
        catalog.load("x", written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(catalog.CatalogError, match=r"catalog/x\.yml: No such file"):
        catalog.load("x", tmp_path)


def test_a_catalog_and_the_roles_are_read_once(tmp_path: Path) -> None:
    root = written(tmp_path, "a: 1\n")
    first = catalog.load("x", root)
    (root / "catalog" / "x.yml").unlink()
    assert catalog.load("x", root) is first
    assert catalog.declared_variables() is catalog.declared_variables()


def test_the_version_is_that_of_the_collection() -> None:
    """Of galaxy.yml in a checkout, of MANIFEST.json where the collection is installed."""
    source = next(file for file in (ROOT / "MANIFEST.json", ROOT / "galaxy.yml") if file.exists())
    assert catalog.collection_version() in source.read_text()
    assert re.fullmatch(r"[0-9]+[.][0-9]+[.][0-9]+", catalog.collection_version())


def test_declared_variables_of_the_roles() -> None:
    declared = catalog.declared_variables()
    assert declared.variables["fabric_topology"]["default"] == "none"
    assert "gb10_cluster" in declared.variables
    assert "fabric_" in declared.prefixes and "gb10_" in declared.prefixes
