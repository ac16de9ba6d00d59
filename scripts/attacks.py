"""`python -m scripts.attacks [--whole]`: the attackers of the tests, and how often each class of them won, as a table.

The short form is part of `make test`, the whole one of `make test-all`. Takes root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from scripts.gates import ROOT

# Where attackers are. Some of these files hold other tests, too. The first two take longest, so nobody waits for them.
TESTS = (
    "tests/unit/monitoring/test_real_prometheus.py",
    "tests/unit/rollout/test_rollout_drain.py",
    "tests/security",
    "tests/unit/cli/test_cli.py",
    "tests/unit/cli/test_cli_ask.py",
    "tests/unit/cli/test_cli_bundle.py",
    "tests/unit/cli/test_cli_discover.py",
    "tests/unit/cli/test_cli_image.py",
    "tests/unit/cli/test_cli_power.py",
    "tests/unit/cli/test_cli_retire.py",
    "tests/unit/cli/test_cli_share.py",
    "tests/unit/cli/test_cli_top.py",
    "tests/unit/cli/test_enrol.py",
    "tests/unit/cli/test_known_bad.py",
    "tests/unit/cli/test_other_logins.py",
    "tests/unit/cli/test_playbook_events.py",
    "tests/unit/cli/test_release.py",
    "tests/unit/cli/test_seed.py",
    "tests/unit/cli/test_services_cli.py",
    "tests/unit/cli/test_switch.py",
    "tests/unit/cli/test_switch_strangers.py",
    "tests/unit/cli/test_up.py",
    "tests/unit/cli/test_up_names.py",
    "tests/unit/cli/test_up_parts.py",
    "tests/unit/documents/test_gateway.py",
    "tests/unit/documents/test_router.py",
    "tests/unit/doctor/test_findings.py",
    "tests/unit/engine/resources/test_accounts.py",
    "tests/unit/engine/resources/test_places.py",
    "tests/unit/engine/resources/test_profiles.py",
    "tests/unit/engine/test_own_folders.py",
    "tests/unit/engine/test_remote.py",
    "tests/unit/serving/model_facts/test_gguf.py",
    "tests/unit/serving/model_facts/test_hostile.py",
    "tests/unit/serving/model_facts/test_sources.py",
    "tests/unit/serving/test_engine.py",
    "tests/unit/serving/test_model_files.py",
    "tests/unit/serving/test_pull_fault.py",
    "tests/unit/serving/test_pull_login.py",
    "tests/unit/serving/test_transfer_attacks.py",
    "tests/unit/images/test_build.py",
    "tests/unit/images/test_build_flow.py",
    "tests/unit/images/test_one_image.py",
    "tests/unit/programs/test_vllm_causes.py",
    "tests/unit/programs/test_vllm_door.py",
    "tests/unit/programs/test_vllm_unit.py",
    "tests/unit/reports/test_benchmark.py",
    "tests/unit/reports/test_changes.py",
    "tests/unit/reports/test_disguise.py",
    "tests/unit/reports/test_drift_report.py",
    "tests/unit/reports/test_evidence.py",
    "tests/unit/reports/test_notify.py",
    "tests/unit/programs/test_asking.py",
    "tests/unit/programs/test_join_attacks.py",
    "tests/unit/programs/test_metrics.py",
    "tests/unit/programs/test_recorder.py",
    "tests/unit/programs/test_watchdog.py",
    "tests/unit/health/test_load.py",
    "tests/unit/health/test_looks.py",
    "tests/unit/health/test_several_services.py",
    "tests/unit/health/test_signs.py",
    "tests/unit/hosts/test_advice.py",
    "tests/unit/hosts/test_bounds.py",
    "tests/unit/hosts/test_drift_action.py",
    "tests/unit/hosts/test_engine_answer.py",
    "tests/unit/hosts/test_facts_schema.py",
    "tests/unit/hosts/test_glance_action.py",
    "tests/unit/hosts/test_jump_host.py",
    "tests/unit/hosts/test_module_front.py",
    "tests/unit/hosts/test_modules_of_ansible.py",
    "tests/unit/hosts/test_wish_action.py",
    "tests/unit/monitoring/test_rules.py",
    "tests/unit/plans/test_cabling.py",
    "tests/unit/plans/test_gateway_router.py",
    "tests/unit/plans/test_monitoring.py",
    "tests/unit/plans/test_compiled.py",
    "tests/unit/plans/test_vllm_bounds.py",
    "tests/unit/power/test_plugs.py",
    "tests/unit/images/test_hostile_images.py",
    "tests/unit/images/test_acceptance.py",
    "tests/unit/reading/test_other_docker.py",
    "tests/unit/releases/test_rehearsal.py",
    "tests/unit/releases/test_scores.py",
    "tests/unit/reading/test_model_folders.py",
    "tests/unit/releases/test_trial.py",
    "tests/unit/repository/test_repository_playbooks.py",
    "tests/unit/rollout/test_gate.py",
    "tests/unit/rollout/test_rollout.py",
    "tests/unit/rollout/test_hand_edited.py",
    "tests/unit/rollout/test_handed_over.py",
    "tests/unit/rollout/test_journal.py",
    "tests/unit/rollout/test_rollout_pull.py",
)
UNIT_TESTS = frozenset(ROOT / path for path in TESTS if path.startswith("tests/unit/"))
# Half of the time they wait: for a limit that is tested, a server, a host that hangs. They are the last gate of the
# containers' half of `make test`, with both cores for them. The tests of a file share fixtures and stay together. All
# of them, with more tries, have the time to run one by one.
SIDE_BY_SIDE = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder", "--durations=15", "--durations-min=5")
WHOLE_TRIES = 10_000  # of each race; the short form has those of tests/support/attacker.py


def rows(lines: Iterable[str]) -> list[Mapping[str, int | str]]:
    """What the tests have counted, one row for each class, by its name: they come in any order."""
    found: dict[str, dict[str, int | str]] = {}
    for line in lines:
        one = json.loads(line)
        row = found.setdefault(one["class"], {"class": one["class"], "tries": 0, "wins": 0})
        for key in ("tries", "wins"):
            row[key] = int(row[key]) + one[key]
    return [found[name] for name in sorted(found)]


def table(counted: Iterable[Mapping[str, int | str]]) -> str:
    shown = [("class of attack", "tries", "wins"), *((row["class"], row["tries"], row["wins"]) for row in counted)]
    width = max(len(str(name)) for name, _, _ in shown)
    return "\n".join(f"{name:{width}} {tries:>8} {wins:>6}" for name, tries, wins in shown)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.attacks")
    parser.add_argument("--whole", action="store_true", help="all attackers, with more tries")
    whole = parser.parse_args().whole
    with tempfile.TemporaryDirectory(prefix="gb10-attacks-") as folder:
        counts = Path(folder, "counts")
        counts.touch()
        environment = {**os.environ, "GB10_ATTACKS": str(counts)}
        if whole:
            environment["GB10_ATTACK_TRIES"] = str(WHOLE_TRIES)
        chosen = ["-v"] if whole else ["-m", "not long", *SIDE_BY_SIDE]
        argv = [sys.executable, "-m", "pytest", *TESTS, *chosen]
        done = subprocess.run(argv, cwd=ROOT, env=environment, check=False, stdin=subprocess.DEVNULL)
        print(table(rows(counts.read_text(encoding="utf-8").splitlines())), flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
