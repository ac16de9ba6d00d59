"""Each alert has a page that begins with what to do, and each detector an alert or a reason why not."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
from ansible import context as of_ansible
from ansible.cli.playbook import PlaybookCLI
from ansible_collections.gb10.fleet.plugins.module_utils.programs import router
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import limits
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring import rules

from gb10_fleet import cli
from tests.support import runbooks
from tests.support.runbooks import PAGES

ROOT = Path(__file__).parents[3]
ALERTS = {entry["value"]: entry for entry in rules.alerts()}


def test_each_alert_has_a_page_and_each_page_an_alert() -> None:
    assert sorted(PAGES) == sorted(ALERTS)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_a_page_says_what_is_wrong_and_names_the_next_step(alert: str) -> None:
    told, _, steps = PAGES[alert].partition("\n## By what")[0].partition("\n## Next step\n")
    assert len(told.partition("<!-- /alert -->")[2].strip()) > 60
    numbered = re.findall(r"(?m)^(\d+)\. (.+)", steps)
    assert numbered and [number for number, _text in numbered] == [str(each + 1) for each in range(len(numbered))]
    assert "`" in steps or "cable" in steps or "unplug" in steps, "a command, or a deed of the hands"


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_what_a_page_says_to_type_can_be_typed(alert: str) -> None:
    """Somebody reads it at night: whole commands, with the inventory, and with sudo where only root may."""
    typed = list(runbooks.spans(alert))
    ours = [span for span in typed if re.match(r"gb10 (?!plan)", span)]
    assert [span for span in ours if " -i inventory/mine" not in span] == []
    roots = r"(systemctl (start|restart|stop) |journalctl |docker |nvme |nvidia-smi -(lgc|rgc))"
    assert [span for span in typed if re.match(roots, span)] == [], "sudo is missing"


PLACES = {"HOST": "spark-a", "CLUSTER": "spark-a", "SERVICE": "vllm", "NAME": "vllm", "MODEL": "a/b", "RUN": "r1",
          "UNIT": "gb10-vllm.service", "PORT": "8000"}  # fmt: skip
PROGRAMS = {
    "curl", "df", "docker", "du", "free", "fwupdmgr", "grep", "journalctl", "nvidia-smi", "nvme", "poweroff", "ps",
    "ssh", "systemctl", "timedatectl",
}  # fmt: skip


@pytest.mark.parametrize(
    ("alert", "line"), [(alert, line) for alert in PAGES for line in runbooks.commands(alert, PLACES)]
)
def test_each_command_line_is_one_for_its_program(
    alert: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the parser that it is for: that of gb10, of ansible-playbook, or the shell's."""
    Path(tmp_path, "inventory/mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)
    if words[0] == "gb10":
        typer.main.get_command(cli.app).commands[words[1]].make_context(words[1], words[2:])  # type: ignore[attr-defined]
    elif words[0] == "ansible-playbook":
        asked = PlaybookCLI(words)
        asked.parse()
        (playbook,) = of_ansible.CLIARGS["args"]
        assert (ROOT / "playbooks" / f"{playbook.removeprefix('gb10.fleet.')}.yml").is_file()
        assert set().union(*map(json.loads, of_ansible.CLIARGS["extra_vars"]), set()) <= {"reboot_allow"}
    elif words[:2] == ["sudo", "gb10-router"]:
        router._options(words[2:])
    else:
        assert subprocess.run(["bash", "-n", "-c", line], check=False).returncode == 0
        assert words[words[0] == "sudo"] in PROGRAMS, f"{alert} names a program that nobody has tried"


def test_what_takes_a_service_away_brings_it_back() -> None:
    for alert, page in PAGES.items():
        for away, back in (("withdraw", "rejoin"), ("drain", "serve")):
            assert f"gb10.fleet.{away}" not in page or f"gb10.fleet.{back}" in page, alert


OVER = re.compile(
    r"alert ends|ready when it serves|gb10 validate|Gb10Heartbeat` again|shows the memory again"
    r"|may go on|case for the maker"
)
# Nothing is broken, or what is broken stays until a part is replaced.
STAYS = {"Gb10CacheFull", "Gb10DiskWorn", "Gb10RailSlowLink", "Gb10UncleanBoot"}


@pytest.mark.parametrize("alert", sorted({*ALERTS} - STAYS))
def test_a_page_says_how_one_sees_that_it_is_over(alert: str) -> None:
    assert OVER.search(" ".join(runbooks.steps(alert).split()))


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_a_page_leads_to_the_findings_of_its_alert(alert: str) -> None:
    health = (ROOT / "docs/health.md").read_text(encoding="utf-8")
    for finding in re.findall(r"health\.md#(\w+)", PAGES[alert]):
        assert finding in ALERTS[alert]["findings"] and f"### {finding}\n" in health


@pytest.mark.parametrize("alert", sorted(name for name, entry in ALERTS.items() if "expr" not in entry))
def test_a_page_names_labels_that_its_alert_has(alert: str) -> None:
    """Of a finding it has the id, and the host."""
    told = PAGES[alert].partition("\n## Next step\n")[0]
    assert {*re.findall(r"label `(\w+)`", told)} <= {"id", "instance"}


def findings() -> set[str]:
    """The ids that the detectors give; those of the log by their severity."""
    found = {name for name in limits.rules().signs if not name.startswith("log_")}
    assert len(found) > 15
    return found | {"xid_error", "xid_warn", "log_error", "log_warn"}


def test_each_detector_has_an_alert_or_a_reason_why_not() -> None:
    alerted = {finding for entry in ALERTS.values() for finding in entry["findings"]}
    silent = {name for name, sign in limits.rules().signs.items() if sign.get("no_alert")}
    assert alerted.isdisjoint(silent)
    assert alerted | silent == findings(), "catalog/health.yml: a sign has `alert` or `no_alert`"
