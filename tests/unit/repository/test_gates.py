"""The gates count honestly: nothing that failed, broke or did not run may look like success."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scripts import attacks, check, gates
from scripts import test as make_test
from scripts.gates import Gate, GateFailed, execute, summarise
from scripts.test import side_by_side
from tests.support.checkouts import checkout, traps

ROLES = gates.ROOT / "roles"  # of the checkout; the tests have another root
_PYTHON = re.compile(r"#!/usr/bin/python3([^'\\\n]*)")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gates, "ROOT", tmp_path)
    monkeypatch.setattr(gates, "WORK", tmp_path / ".work")
    monkeypatch.setattr(gates, "CI", False)
    return tmp_path


def says(text: str, code: int = 0, tests: bool = True) -> Gate:
    """A gate whose command prints a text and ends with a status."""
    script = f"import sys; print({text!r}); sys.exit({code})"
    return Gate("example", lambda gate: gate.run(sys.executable, "-c", script, cwd=gates.ROOT, tests=tests) and None)


@pytest.mark.parametrize(
    ("text", "code", "passed", "failed"),
    [
        ("===== 12 passed in 3.21s =====", 0, 12, 0),
        ("12 passed, 3 warnings in 3.21s (0:00:03)", 0, 12, 0),
        ("== 1 failed, 11 passed, 2 errors in 3.21s ==", 1, 11, 3),
        ("  \x1b[2m│\x1b[0m \x1b[32m===== 6 passed in 1.00s =====\x1b[0m", 0, 6, 0),  # as molecule shows it
        ("== 6 passed in 1.00s ==\n== 1 failed, 2 passed in 0.10s ==", 1, 8, 1),  # two scenarios of molecule
        ("5 passed in 1.00s", 2, 5, 1),  # passed, and the command failed all the same
        ("", 0, 0, 1),  # no summary
        ("no tests ran in 0.01s", 0, 0, 1),
    ],
)
def test_counts(text: str, code: int, passed: int, failed: int) -> None:
    gate = execute(says(text, code))
    assert (gate.passed, gate.failed) == (passed, failed)


def test_a_command_without_tests_counts_as_one() -> None:
    assert execute(says("fine", tests=False)).passed == 1


def test_a_gate_says_what_it_cost(capsys: pytest.CaptureFixture[str]) -> None:
    script = "import time\nwhile time.process_time() < 0.3: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}])"
    gate = execute(Gate("busy", lambda gate: gate.run(sys.executable, "-c", child, cwd=gates.ROOT) and None))
    assert gate.cpu_seconds >= 0.3 and f"{gate.cpu_seconds:.1f} CPU s" in capsys.readouterr().out


def test_a_skip_is_said_here_and_fails_in_continuous_integration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = "SKIPPED [1] tests/x.py:3: no chromium\n== 1 passed, 1 skipped in 0.1s =="
    here = execute(says(output))
    assert summarise([here], 0.0) == 0
    assert "SKIPPED: example: tests/x.py:3: no chromium" in capsys.readouterr().out
    monkeypatch.setattr(gates, "CI", True)
    assert execute(says(output)).failed == 1


def test_an_excused_skip_never_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(gates, "CI", True)
    gate = execute(Gate("newest", lambda gate: gate.excused.append("no such Python")))
    assert summarise([gate], 0.0) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 failed"


def test_a_gate_that_breaks_fails() -> None:
    def broken(gate: Gate) -> None:
        raise ValueError("oops")

    assert execute(Gate("broken", broken)).failed == 1


def test_the_log_is_shown_only_on_failure(capsys: pytest.CaptureFixture[str]) -> None:
    execute(says("all well", tests=False))
    assert "all well" not in capsys.readouterr().out
    execute(says("what went wrong", 3, tests=False))
    assert "what went wrong" in capsys.readouterr().out


def test_the_last_line_is_the_count(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    done = [execute(says("7 passed in 0.1s")), execute(says("1 failed, 2 passed in 0.1s", 1))]
    assert summarise(done, 0.0) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "9 passed, 1 failed"
    assert (elsewhere / ".work/count").read_text() == "9 passed, 1 failed\n"


def test_a_package_must_hold_exactly_what_it_should() -> None:
    check._expect_exactly({"a"}, {"a"}, Path("x.whl"))
    with pytest.raises(GateFailed, match=r"x\.whl: missing \['b'\], not wanted \['c'\]"):
        check._expect_exactly({"a", "c"}, {"a", "b"}, Path("x.whl"))


def test_the_export_holds_no_leftovers(tmp_path: Path) -> None:
    copy = check.export(tmp_path / "copy")
    assert (copy / "galaxy.yml").is_file()
    assert (copy / "collections/ansible_collections/gb10/fleet/plugins").is_symlink()
    assert not list(copy.rglob("__pycache__")) and not (copy / ".venv").exists()
    assert os.access(copy / "scripts/demo", os.X_OK)


def test_git_runs_as_who_owns_the_checkout_and_never_as_root_for_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configuration is the owner's, and names a program that git runs."""
    with tempfile.TemporaryDirectory() as name:  # not below pytest's own folder, which is closed to others
        Path(name).chmod(0o755)
        root = checkout(Path(name, "checkout"))
        traps(root, "id -u >ran")
        owner = os.geteuid() or 65534
        for path in (root, *root.rglob("*")):
            os.chown(path, owner, -1)
        monkeypatch.setattr(check, "ROOT", root)
        assert Path("setup.py") in check.source_files()
        assert (root / "ran").read_text() == f"{owner}\n"


def test_what_failed_comes_first_and_dots_do_not_come_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Where only the beginning of an output is kept, that must be enough to know which test it was."""
    dots = "\n".join([f"{'.' * 70} [ 34%]"] * 200)
    execute(says(f"{dots}\nE  assert 1 == 2\nFAILED tests/x.py::test_y[z] - assert 1 == 2\n1 failed in 0.1s", 1))
    _, reason, name, *rest = capsys.readouterr().out.splitlines()
    assert "exit status 1" in reason and name == "    = FAILED tests/x.py::test_y[z] - assert 1 == 2"
    assert "    | E  assert 1 == 2" in rest and not any(line.endswith("%]") for line in rest)


def test_the_closing_lines_name_each_failed_test(capsys: pytest.CaptureFixture[str]) -> None:
    """Where only the end of an output is kept, that must be enough too."""
    done = execute(says("FAILED tests/x.py::test_y[z] - assert 1 == 2\n1 failed in 0.1s", 1))
    capsys.readouterr()
    summarise([done], 0.0)
    assert capsys.readouterr().out.splitlines()[2] == "    FAILED tests/x.py::test_y[z] - assert 1 == 2"


def test_a_unit_test_that_needs_the_checkout_is_found_by_what_it_imports() -> None:
    """All others run on the installed collection."""
    names = {path.name for path in check._checkout_tests()}
    assert {"test_gates.py", "test_lab_topology.py", "test_spark_facts.py"} <= names
    assert not names & {"test_findings.py", "test_documents.py"}


def test_a_unit_test_that_plays_with_the_collection_of_the_checkout_is_a_play() -> None:
    """Its folder of collections is not beside what was installed: no plugin of ours would be found."""
    names = {path.name for path in check._plays()}
    assert {"test_jump_host.py", "test_modules_of_ansible.py", "test_recap.py"} <= names
    assert "test_role_alone.py" not in names, "it has a collection of its own, also there"


def test_the_installed_collection_is_tested_where_the_checkout_cannot_be_imported(tmp_path: Path) -> None:
    like = Path(sys.executable)
    python = check._environment_without_checkout(Gate("example", lambda gate: None), tmp_path / "venv", like)

    def run(code: str) -> int:
        return subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, check=False).returncode

    assert run("import pytest, ansible, hypothesis") == 0
    for package in ("lab", "gb10_fleet", "ansible_collections.gb10"):
        assert run(f"import {package}") == 1, f"{package} was found"
    assert subprocess.run([python.with_name("ansible-playbook"), "--version"], check=False).returncode == 0


def test_two_lanes_are_summed_up_together() -> None:
    def lane(code: int) -> list[Gate]:
        return [execute(says("===== 2 passed in 0.1s =====", code))]

    done = side_by_side((lambda: lane(1), lambda: lane(0)))
    assert [(gate.passed, bool(gate.failed)) for gate in done] == [(2, True), (2, False)]
    assert summarise(done, 0.0) == 1


def test_hosts_are_divided_so_that_no_two_groups_of_tests_share_one() -> None:
    hosts = {f"spark-0{n}": {"ansible_host": f"198.18.7.10{n}"} for n in range(1, 5)}
    sparks = {"hosts": hosts, "vars": {"fabric_topology": "none"}}
    whole = {"all": {"vars": {"ansible_user": "spark"}, "children": {"sparks": sparks}}}
    parts = make_test.divided(whole, 2)
    found = [part["all"]["children"]["sparks"] for part in parts]
    assert [list(part["hosts"]) for part in found] == [["spark-01", "spark-02"], ["spark-03", "spark-04"]]
    assert {name: it for part in found for name, it in part["hosts"].items()} == hosts
    assert all(part["all"]["vars"] == whole["all"]["vars"] and one["vars"] == sparks["vars"]
               for part, one in zip(parts, found, strict=True))  # fmt: skip


def test_the_files_of_a_group_of_their_own_are_there() -> None:
    """The other group leaves them out by these names."""
    assert all((make_test.ROOT / path).is_file() for path in make_test.MOVES)


def test_every_gate_runs_once_and_only_what_can_wait_runs_beside_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def record(gate: Gate) -> Gate:
        found.append(gate.work)
        return gate

    monkeypatch.setattr(make_test, "execute", record)
    monkeypatch.setattr(make_test, "run_all", lambda chosen, workers: [record(gate) for gate in chosen])
    with ThreadPoolExecutor(max_workers=1) as pool:  # in a thread of its own: this one keeps its priority
        lanes = {
            lane.__name__: [gate.name for gate in pool.submit(lane).result()]
            for lane in (make_test.containers, make_test.in_time, make_test.machines, make_test.patient)
        }
    assert sorted(lanes["in_time"] + lanes["patient"]) == sorted(
        [gate.name for gate in (*check.gates(), *check.packages())]
        + [
            "unit tests that start Ansible, part 1",
            "unit tests that start Ansible, part 2",
            "evidence page in a browser",
            "attackers",
        ]
        + ["release: the whole of it in a copy"]
    )
    parts = [work.keywords for work in found if isinstance(work, partial) and work.func is check.plays]
    assert [one["part"] for one in parts] == list(range(len(parts))) and {one["parts"] for one in parts} == {len(parts)}
    assert not [name for name in lanes["patient"] if "unit" in name or "pytest" in name]
    assert len(lanes["containers"]) == 4 and len(lanes["machines"]) == 1


@pytest.mark.parametrize("others", [frozenset[Path](), attacks.UNIT_TESTS], ids=["check", "test"])
def test_each_unit_test_runs_in_one_gate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, others: frozenset[Path]
) -> None:
    """Attackers among them: in `make test` in theirs, which `make check` does not have."""
    fleet = tmp_path / "ansible_collections/gb10/fleet"
    fleet.mkdir(parents=True)
    monkeypatch.setattr(check, "installed", lambda *_: (fleet, {}))
    monkeypatch.setattr(check, "_environment_without_checkout", lambda *_: tmp_path / "python")
    monkeypatch.setattr(check, "_newest_environment", lambda _: {"PATH": "/newest:/bin"})
    ran: list[str] = []
    monkeypatch.setattr(Gate, "run", lambda _, *argv, **__: ran.extend(map(str, argv)) or "")
    chosen = {gate.name: gate for gate in check.gates(others)}
    chosen["unit tests of the collection"].work(Gate("collection", lambda _: None))
    chosen["unit tests of the checkout"].work(Gate("units", lambda _: None))
    runs = {
        path: (str(path) in ran) + (fleet / path.relative_to(check.ROOT)).exists()
        for path in check.UNITS.rglob("test_*.py")
    }
    elsewhere = check._plays() | others
    assert {path for path, count in runs.items() if count != 1} == elsewhere
    assert not any(runs[path] for path in elsewhere)


def test_what_can_wait_leaves_the_cores_to_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands are idle where anything else wants a core; those of a lane beside it are as they were."""
    own = os.sched_getscheduler(0)
    ask = "import os; print('policy', os.sched_getscheduler(0))"

    def gate(name: str, **more: bool) -> Gate:
        return Gate(name, lambda it: it.run(sys.executable, "-c", ask, cwd=gates.ROOT) and None, **more)

    monkeypatch.setattr(check, "gates", lambda: [gate("waits", patient=True)])
    monkeypatch.setattr(check, "packages", list)
    monkeypatch.setattr(make_test.release, "rehearsal", lambda _: None)
    waits, _, other = side_by_side((make_test.patient, lambda: [execute(gate("machine"))]))
    assert waits.log[-1] == f"policy {os.SCHED_IDLE}"
    assert other.log[-1] == f"policy {own}" != waits.log[-1]


def test_commands_of_a_gate_keep_their_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    ask = "import sys; print('forbidden' if sys.dont_write_bytecode else 'kept')"
    gate = execute(Gate("example", lambda it: it.run(sys.executable, "-c", ask, cwd=gates.ROOT) and None))
    assert gate.log[-1] == "kept"


def test_what_root_starts_on_a_host_takes_no_module_of_its_caller() -> None:
    """`sudo -E`, or a sudo that keeps HOME, would hand PYTHONPATH or a folder of the caller's on."""
    places = [*ROLES.glob("*/desired.yml"), *ROLES.glob("*/templates/*")]
    lines = {(place, line) for place in places for line in _PYTHON.findall(place.read_text(encoding="utf-8"))}
    assert len(lines) > 5
    assert not {(place, line) for place, line in lines if not line.startswith(" -I")}
