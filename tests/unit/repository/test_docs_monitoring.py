"""What docs/monitoring.md has for pasting, is right when it is pasted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.template import trust_as_template as trusted
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import monitoring

from tests.support import runbooks
from tests.support.proofs import facts

ROOT = Path(__file__).parents[3]
SPARKS = {"spark-a": "192.0.2.11", "spark-b": "192.0.2.12", "spark-c": "192.0.2.13"}


def blocks() -> list[dict[str, Any]]:
    section = (ROOT / "docs/monitoring.md").read_text().partition("## A Prometheus that the role brings")[2]
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", section.partition("\n## ")[0], re.S)]


def test_each_page_has_a_walk_and_the_docs_name_it() -> None:
    said = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8").partition("`tests/fleet/test_night.py` follows")[2]
    named = re.findall(r"Gb10\w+", said.partition("- Not tried: a Spark")[0])
    assert sorted(named) == sorted(runbooks.PAGES)
    file = (ROOT / "tests/fleet/test_night.py").read_text(encoding="utf-8")
    assert {*re.findall(r'"(Gb10\w+)"', file)} == {*runbooks.PAGES}


def test_the_server_asks_each_other_host_once_and_is_let_in(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        yaml.safe_dump({"sparks": {"hosts": {name: {"ansible_host": at} for name, at in SPARKS.items()}}})
    )
    loader = DataLoader()
    files = [str(tmp_path / "hosts.yml")]
    inventory = InventoryManager(loader=loader, sources=files)
    manager = VariableManager(loader=loader, inventory=inventory)
    hostvars = HostVars(inventory, manager, loader)

    def filled(host: str, variables: dict[str, Any]) -> dict[str, Any]:
        named = inventory.get_host(host)
        templar = Templar(loader=loader, variables={**manager.get_vars(host=named), "hostvars": hostvars})
        given = {name: trusted(value) if isinstance(value, str) else value for name, value in variables.items()}
        return {name: templar.template(value) for name, value in given.items()}

    for_all, for_one, *more = blocks()
    known = {host: filled(host, for_all) for host in SPARKS}
    (every,) = (filled("spark-a", each) for each in more)
    for targets, asked in ((for_one, ["spark-a", "spark-b"]), (every, ["spark-a", "spark-b", "spark-c"])):
        own = {**known["spark-a"], **filled("spark-a", {**for_one, **targets})}
        plan = monitoring.plan(View("spark-a", facts(), own, inventory={**known, "spark-a": own}))
        assert plan.refusals == ()
        assert [(it.host, it.address) for it in plan.targets] == [(host, f"{SPARKS[host]}:9100") for host in asked]
