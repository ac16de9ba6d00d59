"""The programs of several files, as roles install them: a launcher in sbin and a folder that it imports."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.programs import installed, modules_of, source
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

LIBRARY = "/usr/local/lib/gb10-fleet"
FACTS: dict[str, Any] = {
    "memory_bytes": 130662436864,
    "packages": {},
    "rails": [],
    "kernel": "6.17.0-1014-nvidia",
    "driver": {"userland": "580.142", "module_loaded": "580.142"},
}
MODEL = {"vllm_image": f"example/vllm@sha256:{'0' * 64}", "vllm_model": "openai/gpt-oss-120b"}
PROGRAMS = {
    "vllm_unit": ("vllm", "/usr/local/sbin/gb10-vllm"),
    "coherence": ("coherence", "/usr/local/sbin/gb10-driver-coherence"),
}
programs = pytest.mark.parametrize("package", PROGRAMS)


def resources(package: str) -> list[dict[str, Any]]:
    document = render(PROGRAMS[package][0], View("spark-a", FACTS, MODEL))
    assert not document.refusals
    parse_documents([(document.role, document.resources)], {})
    return document.resources


def needed(package: str) -> tuple[str, ...]:
    return modules_of(f"programs/{package}/main")


def files(package: str) -> dict[str, str]:
    return {entry["file"]: entry["content"] for entry in resources(package) if "content" in entry}


def run(package: str, root: Path) -> subprocess.CompletedProcess[str]:
    """The program as it is on a host, below `root`, started as its first line says; as a unit of Type=notify."""
    launcher = PROGRAMS[package][1]
    for path, text in files(package).items():
        if path == launcher or path.startswith(f"{LIBRARY}/{package}/"):
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text.replace(LIBRARY, str(root / LIBRARY.lstrip("/"))))
    program = root / launcher.lstrip("/")
    interpreter, _, options = program.read_text().partition("\n")[0].partition(" ")
    assert interpreter == "#!/usr/bin/python3"
    environment = {**os.environ, "NOTIFY_SOCKET": "@gb10-nobody"}
    return subprocess.run(
        [sys.executable, options, program], env=environment, capture_output=True, text=True, check=False
    )


@programs
def test_every_source_is_installed_and_nothing_else(package: str) -> None:
    found = {path: text for path, text in files(package).items() if path.startswith(f"{LIBRARY}/{package}/")}
    assert found == {installed(package, module): source(module) for module in needed(package)}
    (launcher,) = (entry for entry in resources(package) if entry.get("file") == PROGRAMS[package][1])
    assert launcher["mode"] == "0755"


def test_each_of_its_sources_counts_from_the_next_start_of_the_unit() -> None:
    (unit,) = (entry for entry in resources("vllm_unit") if "unit" in entry)
    sources = {path for path in files("vllm_unit") if path.startswith(f"{LIBRARY}/vllm_unit/")}
    assert len(sources) > 1 and sources | {"/usr/local/sbin/gb10-vllm"} <= set(unit["at_next_start"])
    assert not any("/usr/local" in path for path in unit["restart_on"]), "a newer collection would stop the model"


def test_a_unit_that_is_up_reads_none_of_its_sources_again() -> None:
    """They may be those of another version by then."""
    for module in needed("vllm_unit"):
        functions = [node for node in ast.walk(ast.parse(source(module))) if isinstance(node, ast.FunctionDef)]
        later = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.ImportFrom)]
        assert not [node.module for node in later if node.level or "gb10" in str(node.module)], module


@programs
def test_a_source_imports_the_standard_library_and_ours_only(package: str) -> None:
    ours = "ansible_collections.gb10.fleet.plugins.module_utils."
    for module in needed(package):
        for node in ast.walk(ast.parse(source(module))):
            if isinstance(node, ast.Import):
                assert {name.name.partition(".")[0] for name in node.names} <= sys.stdlib_module_names, module
            elif isinstance(node, ast.ImportFrom) and not node.level and not f"{node.module}.".startswith(ours):
                assert (node.module or "").partition(".")[0] in sys.stdlib_module_names, module


def test_the_gate_runs_isolated(tmp_path: Path) -> None:
    done = run("coherence", tmp_path)
    assert done.returncode in (0, 1, 2), done.stderr
    if done.returncode == 2:
        assert done.stderr.startswith("gb10-driver-coherence: ")
    else:
        said = json.loads(done.stdout)
        assert said["coherent"] == (done.returncode == 0)
        assert said["verdicts"]


def test_the_unit_runs_isolated(tmp_path: Path) -> None:
    """Without settings it ends with a verdict; on a machine that serves it is not started."""
    if Path("/etc/gb10-fleet/vllm.json").exists():
        pytest.skip("this machine has settings of gb10-vllm")
    done = run("vllm_unit", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("gb10-vllm: bad_settings: /etc/gb10-fleet/vllm.json")


@programs
def test_a_program_leaves_no_compiled_files(package: str, tmp_path: Path) -> None:
    """An undo removes the folder, so it holds what the role put there and nothing else."""
    run(package, tmp_path)
    left = {f"/{path.relative_to(tmp_path)}" for path in (tmp_path / LIBRARY.lstrip("/")).rglob("*") if path.is_file()}
    assert left == {installed(package, module) for module in needed(package)}
