"""Files for the forge and for pre-commit say the same as the project. Their schemas are a gate of `make check`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import check
from scripts.gates import Gate

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps() -> list[dict[str, Any]]:
    return [step for path in WORKFLOWS for job in read(path)["jobs"].values() for step in job["steps"]]


class Recorder(Gate):
    """Writes down what a gate would run."""

    def run(self, *argv: str | Path, **_: Any) -> str:
        self.log.append(" ".join(map(str, argv)))
        return ""


def test_pre_commit_runs_what_make_check_runs() -> None:
    gate = Recorder("recorder", lambda _: None)
    for quick in (check.ruff, check.yamllint, check.changelog, check.mypy):
        quick(gate)
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    assert [hook["entry"].removeprefix(".venv/bin/") for hook in local["hooks"]] == gate.log


def test_the_matrix_holds_the_versions_that_the_project_promises() -> None:
    from packaging.specifiers import SpecifierSet

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (core,) = [it for it in project["dependencies"] if it.startswith("ansible-core")]
    matrix = read(ROOT / ".github/workflows/checks.yml")["jobs"]["check"]["strategy"]["matrix"]
    promised = SpecifierSet(core.removeprefix("ansible-core"))
    newest = int(check.NEWEST_CORE.removeprefix("2."))
    # One more is let in: its candidate was tried by hand, and users have it on the day of its release.
    assert [minor for minor in range(15, 30) if f"2.{minor}" in promised][-1] <= newest + 1
    assert [f"2.{minor}" for minor in range(15, newest + 1) if f"2.{minor}" in promised] == matrix["core"]
    assert matrix["core"][-1] == check.NEWEST_CORE and matrix["python"][-1] == check.NEWEST_PYTHON
    assert all(python in SpecifierSet(project["requires-python"]) for python in matrix["python"])


def test_actions_are_pinned_by_commit_with_their_version_beside() -> None:
    for path in WORKFLOWS:
        used = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
        assert used
        for line in used:
            name, _, version = line.partition("  # ")
            assert len(name.partition("@")[2]) == 40 and version.startswith("v"), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_do_nothing_but_read(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {}
    assert all(job["permissions"] == {"contents": "read"} for job in workflow["jobs"].values())
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


def test_workflows_run_what_the_makefile_and_the_scripts_have() -> None:
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for step in steps():
        for line in step.get("run", "").splitlines():
            words = line.split()
            if words[:1] == ["make"]:
                assert f"\n{words[1]}:" in targets, line
            if words[:1] and words[0].startswith("scripts/"):
                assert (ROOT / words[0]).is_file(), line


def test_what_has_never_run_says_so() -> None:
    for path in [*WORKFLOWS, ROOT / ".github/dependabot.yml"]:
        assert "Never run on a public forge" in path.read_text(encoding="utf-8"), path.name
