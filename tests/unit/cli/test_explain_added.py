"""`gb10 explain` says of a service what nobody set, with the reason."""

from __future__ import annotations

from gb10_fleet import explain

PLAN = {
    "findings": [],
    "services": [
        {"name": "vllm", "added": [{"text": "--max-num-seqs 4", "because": "vLLM's blog"}]},
        {"name": "own", "added": []},
    ],
}


def said(plan: object) -> list[str]:
    decided = {"settings": [], "plan": plan, "refusals": [], "wishes": {}, "resources": []}
    return list(explain.lines({"spark-a": {"uncertain": [], "roles": {"vllm": decided}}}, defaults=False))


def test_each_flag_that_nobody_set_has_its_reason() -> None:
    lines = said(PLAN)
    at = lines.index("  vllm: nobody set these, the plan of the model did (vllm_flags: none leaves them out)")
    assert lines[at + 1] == "    --max-num-seqs 4  vLLM's blog"
    assert not [line for line in lines if line.startswith("  own:")]


def test_without_a_plan_nothing_is_added() -> None:
    assert not [line for line in said(None) if "nobody set" in line]
