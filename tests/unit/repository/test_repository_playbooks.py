"""Every play of a playbook takes its hosts by the lookup that bounds what Ansible's own modules take of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml

from scripts.gates import ROOT

BOUNDED = "{{ lookup('gb10.fleet.target') }}"


def unbounded(paths: Iterable[Path]) -> list[str]:
    """The playbooks with a play that names hosts in another way."""
    return [
        path.stem
        for path in sorted(paths)
        for play in yaml.safe_load(path.read_text(encoding="utf-8"))
        if "ansible.builtin.import_playbook" not in play and play.get("hosts") != BOUNDED
    ]


def test_every_play_takes_its_hosts_by_the_bounded_lookup() -> None:
    playbooks = [ROOT / "site.yml", *(ROOT / "playbooks").glob("*.yml")]
    assert len(playbooks) > 20
    assert unbounded(playbooks) == []


def test_a_play_with_hosts_of_its_own_is_named(tmp_path: Path) -> None:
    for name, hosts in {"ours": [BOUNDED], "all": ["all"], "second": [BOUNDED, "sparks"]}.items():
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump([{"hosts": each} for each in hosts]))
    assert unbounded(tmp_path.glob("*.yml")) == ["all", "second"]
