"""What a run says of its proof: the playbooks converge, site and validate over an ssh that plays the hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.plays import Plays

SITE = "- ansible.builtin.import_playbook: gb10.fleet.site\n"
CONVERGE = "- ansible.builtin.import_playbook: gb10.fleet.converge\n"
VALIDATE = "- ansible.builtin.import_playbook: gb10.fleet.validate\n"
A = {"spark-a": {"ansible_host": "kind-ok"}}
OURS: dict[str, Any] = {"gb10_roles": ["page_cache", "firewall"], "ansible_become": False}
STARTED = {"role": "vllm", "resource": "unit:gb10-vllm.service", "action": "start", "detail": "inactive -> active"}
WRITTEN = {"role": "page_cache", "resource": "file:/x", "action": "create", "detail": "absent"}
LOADING = "spark-a: loading, not proven: `gb10 validate`"
CHANGED = "spark-a: changed, not proven: `gb10 validate`"


@pytest.fixture
def plays(tmp_path: Path) -> Plays:
    return Plays(tmp_path)


def play(plays: Plays, playbook: str, *args: str, **says: Any) -> str:
    plays.host("ok", **says)
    rc, output = plays.play(A, playbook, *args, **OURS)
    assert rc == 0, output
    return " ".join(output.split())


@pytest.mark.parametrize(
    ("playbook", "args", "changes", "said"),
    [
        (SITE, ("--skip-tags", "validate"), [STARTED], LOADING),
        (SITE, ("--tags", "serving"), [STARTED], LOADING),
        (SITE, ("--tags", "page_cache"), [WRITTEN], CHANGED),
        (CONVERGE, (), [STARTED], LOADING),
    ],
)
def test_a_run_without_a_proof_says_so(
    plays: Plays, playbook: str, args: tuple[str, ...], changes: list[dict[str, str]], said: str
) -> None:
    output = play(plays, playbook, *args, changes=changes)
    assert output.count(said) == 1, output


def test_a_run_that_proves_says_nothing_of_the_kind(plays: Plays) -> None:
    output = play(plays, SITE, changes=[STARTED])
    assert "not proven:" not in output
    assert (plays.tmp_path / "evidence/latest/index.html").exists()


@pytest.mark.parametrize("playbook", [SITE, VALIDATE])
def test_a_check_runs_no_proof_and_says_so(plays: Plays, playbook: str) -> None:
    output = play(plays, playbook, "--check", changes=[STARTED])
    assert output.count("not proven: a check runs no proof") == 1
    assert "Write the evidence" not in output and "Look at the host" not in output
    assert not (plays.tmp_path / "evidence").exists()


SKIP = ("--skip-tags", "validate")


@pytest.mark.parametrize(
    ("playbook", "args", "said"),
    [
        (SITE, SKIP, 1),
        (SITE, ("--tags", "page_cache"), 1),
        (CONVERGE, (), 1),
        (SITE, (*SKIP, "--check"), 0),
        # A typed password: each host is asked by its own doctor.
        (SITE, (*SKIP, "--become-password-file", "typed"), 1),
        (SITE, (*SKIP, "-e", "gb10_recap=changed"), 1),
    ],
)
def test_an_unchanged_run_beside_a_model_that_loads_says_so(
    plays: Plays, playbook: str, args: tuple[str, ...], said: int
) -> None:
    """The second run: nothing to do, and the model that the first one started is not there yet."""
    (plays.tmp_path / "typed").write_text("x\n")
    plays.host("ok", facts={"model_phase": "weights", "root": True})
    plays.known(A)
    rc, output = plays.play(A, playbook, *args, **OURS)
    flat = " ".join(output.split())
    assert rc == 0 and "changed=1" not in flat and flat.count(LOADING) == said, output


def test_an_unchanged_run_beside_a_model_that_serves_is_silent(plays: Plays) -> None:
    for phase in ("ready", "failed", None):
        plays.host("ok", facts={"model_phase": phase})
        assert "not proven" not in play(plays, SITE, *SKIP)
