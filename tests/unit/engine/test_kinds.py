"""Every kind of resource by its example: parsed, converged, found again by drift, undone, and documented."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.engine.kinds import KINDS
from ansible_collections.gb10.fleet.plugins.modules import host_state

from tests.support import kinds
from tests.support.kinds import DECLARABLE, EXAMPLES, FLEET, FOLDER, fields_of, parsed
from tests.support.rig import ROOT
from tests.support.world import CONSENTS, World

ENGINE = ROOT / "plugins/module_utils/engine"
ALLOWED = dict.fromkeys(CONSENTS, True)


def test_an_example_is_of_a_kind_that_there_is() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(DECLARABLE)


@pytest.mark.parametrize("kind", DECLARABLE)
def test_the_shapes_of_an_example_hold_every_field(kind: str) -> None:
    """So that no field is left out of the tests with hostile values, which go through the shapes."""
    assert {key for good in EXAMPLES[kind]["good"].values() for key in good} - {kind} == fields_of(kind)


@pytest.mark.parametrize("kind", DECLARABLE)
def test_a_kind_converges_drifts_and_goes_back(kind: str, tmp_path: Path) -> None:
    """Check mode foretells it, a second run has nothing to do, what somebody changes is named, and undo is exact."""
    found = EXAMPLES[kind]
    world = World(tmp_path)
    world.stand(found.get("host", {}))
    before = world.digest()
    documents = [{"role": "demo", "resources": found["wanted"]}]
    label = parsed(kind, found["wanted"][0])[0].label

    def done(verb: str = "converge", **more: Any) -> dict[str, Any]:
        said = world.ask(documents if verb == "converge" else [], verb=verb, consents=ALLOWED, **more)
        assert said["error"] is None, said["error"]
        return said

    foretold = done(check=True)
    assert world.digest() == before
    made = done()
    assert made["changes"] == foretold["changes"] and label in places(made)
    assert world.digest() != before
    assert done()["changes"] == [] and done("drift")["changes"] == []

    world.meddle(found["meddle"])
    assert label in places(done("drift"))
    said = world.ask([], verb="undo", consents=ALLOWED, check=True)
    if "as_before" not in found["meddle"]:
        assert label in (said["error"] or {"message": "nothing"})["message"], "what somebody changed is theirs"
    assert label in places(done())
    assert label in places(done("undo"))
    assert done("drift")["known"] is False
    assert world.digest() == before


@pytest.mark.parametrize("kind", DECLARABLE)
def test_another_value_is_the_same_resource(kind: str, tmp_path: Path) -> None:
    """The name is the place and never the value: else the former value would be left behind as an orphan."""
    found = EXAMPLES[kind]
    world = World(tmp_path)
    world.stand(found.get("host", {}))
    before = world.digest()
    label = parsed(kind, found["wanted"][0])[0].label
    for resources in (found["wanted"], found["instead"]):
        said = world.ask([{"role": "demo", "resources": resources}], consents=ALLOWED)
        assert said["error"] is None, said["error"]
        assert label in places(said)
        assert said["orphans"] == []
    assert world.ask([], verb="undo", consents=ALLOWED)["error"] is None
    assert world.digest() == before


@pytest.mark.parametrize("kind", DECLARABLE)
def test_an_example_has_no_key_that_nobody_reads(kind: str) -> None:
    """tests/support/kinds.py explains each; tests/support/world.py refuses what it does not know of a host."""
    assert set(EXAMPLES[kind]) <= set(re.findall(r"^(\w+) {2,}", kinds.__doc__ or "", re.MULTILINE))


def places(said: dict[str, Any]) -> list[str]:
    return [row["resource"] for row in [*said["changes"], *said["pending"]]]


# ------------------------------------------------------------------------------------------------------- documentation


def described() -> dict[str, set[str]]:
    """{kind: what the documentation of host_state sets as code in its paragraph}"""
    paragraphs = yaml.safe_load(host_state.DOCUMENTATION)["options"]["resources"]["description"]
    found = {}
    for paragraph in paragraphs:
        if start := re.match(r"C\((\w+)\): ", paragraph):
            found[start[1]] = set(re.findall(r"C\((\w+)\)", paragraph)) - {start[1]}
    return found


def listed() -> dict[str, set[str]]:
    """{kind: what the list of resources in the architecture writes as `field:` or as `field default ...`}"""
    pages = [ROOT / "docs/architecture/documents-and-engine.md", ROOT / "docs/architecture.md"]
    text = next(page.read_text() for page in pages if page.exists())
    found: dict[str, set[str]] = {}
    for block in re.findall(r"```yaml\n(- file: .*?)```", text, re.DOTALL):
        for resource in re.split(r"^- ", block, flags=re.MULTILINE)[1:]:
            kind = resource.partition(":")[0]
            names = re.findall(r"\b(\w+):|\b(\w+), (\w+) default\b|\b(\w+) default\b", resource)
            found.setdefault(kind, set()).update(*names)
    return found


@pytest.mark.parametrize("kind", DECLARABLE)
def test_the_module_documents_every_field(kind: str) -> None:
    assert sorted(fields_of(kind) - described().get(kind, set())) == []


@pytest.mark.parametrize("kind", DECLARABLE)
def test_the_architecture_lists_every_field(kind: str) -> None:
    assert sorted(fields_of(kind) - listed().get(kind, set())) == []


def test_no_kind_is_documented_that_there_is_not() -> None:
    assert set(described()) == set(listed()) == set(DECLARABLE)


def test_the_glossary_names_every_kind() -> None:
    """By the last word of its name: a NetworkManager profile is `nm_profile`."""
    row = re.search(r"^\| resource \| [^|]*: an? ([^|]*) \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert row
    named = [words.split()[-1] for words in re.split(", | or ", row[1])]
    assert sorted(named) == sorted(kind.rpartition("_")[2] for kind in DECLARABLE)


# --------------------------------------------------------------------------------------------------------- the engine


@pytest.mark.parametrize("name", ["engine", "converge", "drift", "undo"])
def test_the_engine_asks_no_kind_by_name(name: str) -> None:
    """A kind has verbs for what is special about it."""
    tree = ast.parse((ENGINE / f"{name}.py").read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and ".resources." in f"{node.module}." and node.module
        if not node.module.endswith(".common")
        for alias in node.names
    }
    assert imported <= {"gone_again"}, "undo takes away the directories that were made"
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert not texts & set(KINDS)


@pytest.mark.parametrize("path", sorted(ENGINE.rglob("*.py")), ids=lambda path: str(path.relative_to(ENGINE)))
def test_a_file_of_the_engine_has_one_job(path: Path) -> None:
    """The counts are no aim of their own: what is longer has a part that can be named."""
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 60, node.name


# ---------------------------------------------------------------------------------------------------------- the fleet


@pytest.mark.parametrize("kind", DECLARABLE)
def test_the_fleet_has_each_kind_and_lets_it_drift(kind: str) -> None:
    assert any(kind in row for row in EXAMPLES[kind].get("fleet", [])), "a resource of the kind for the containers"
    assert EXAMPLES[kind].get("drifts"), "a way in which it drifts there"
    declared = {next(f"{name}:{row[name]}" for name in DECLARABLE if name in row) for row in FLEET}
    for drift in EXAMPLES[kind]["drifts"].values():
        own = [label for label in drift["resources"] if not label.startswith("file:/etc/modules-load.d/gb10-extra")]
        assert set(own) <= declared
