"""Every play of a playbook takes its hosts by the lookup that bounds what Ansible's own modules take of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

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


def texts(said: Any) -> Iterator[str]:
    """Each text in what a task or its variables say."""
    parts = said.values() if isinstance(said, dict) else said if isinstance(said, list) else ()
    yield from [said] if isinstance(said, str) else (text for each in parts for text in texts(each))


def at_home_as_root(plays: Any) -> Iterator[str]:
    """The tasks that name a place in somebody's home, and do not say that root does nothing there."""
    for task in plays or ():
        parts = [task.get(key) for key in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always")]
        for inner in filter(None, parts):
            yield from at_home_as_root(inner)
        own = {key: value for key, value in task.items() if value not in parts}
        if any(text.startswith("~") for text in texts(own)) and own.get("vars", {}).get("ansible_become") is not False:
            yield task.get("name", "")


def test_root_does_nothing_in_a_home() -> None:
    """Ansible's modules follow links, and look a name up twice."""
    files = [*(ROOT / "playbooks").glob("*.yml"), *(ROOT / "roles").glob("*/tasks/*.yml")]
    found = {file.stem: [*at_home_as_root(yaml.safe_load(file.read_text(encoding="utf-8")))] for file in files}
    assert {name: tasks for name, tasks in found.items() if tasks} == {}
    keys = {"name": "keys", "ansible.builtin.replace": {"path": "~ada/.ssh/authorized_keys"}}
    assert [*at_home_as_root([{"name": "x", "tasks": [{"block": [keys]}]}])] == ["keys"]
    assert [*at_home_as_root([{"tasks": [{**keys, "vars": {"ansible_become": False}}]}])] == []
