"""Every play of a playbook takes its hosts by the lookup that bounds what Ansible's own modules take of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.filter import serving
from ansible_collections.gb10.fleet.plugins.module_utils.reading.services import MOST_SERVICES
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import file_step, target

from scripts.gates import ROOT
from tests.support.attacker import tally

BOUNDED = "{{ lookup('gb10.fleet.target') }}"
_NEEDS = re.compile(r", '(gb10_\w+)'")  # what the command sets whose part the playbook is


def unbounded(paths: Iterable[Path]) -> list[str]:
    """The playbooks with a play that names hosts in another way."""
    return [
        path.stem
        for path in sorted(paths)
        for play in yaml.safe_load(path.read_text(encoding="utf-8"))
        if "ansible.builtin.import_playbook" not in play and _NEEDS.sub("", str(play.get("hosts"))) != BOUNDED
    ]


def test_every_play_takes_its_hosts_by_the_bounded_lookup() -> None:
    playbooks = [ROOT / "site.yml", *(ROOT / "playbooks").glob("*.yml")]
    assert len(playbooks) > 20
    assert unbounded(playbooks) == []


def test_a_part_of_a_command_that_is_played_by_itself_says_what_it_lacks() -> None:
    """It was told that a variable is undefined, or to set it in the inventory, or nothing: the task had `no_log`."""
    made = {"gb10_plan", "gb10_explained"}  # by a task of the same play
    for path in (ROOT / "playbooks").glob("*.yml"):
        text = re.sub(r"(?m)(^|\s)#.*", "", path.read_text(encoding="utf-8"))
        used = {*re.findall(r"\b(gb10_[a-z_]+[a-z])\b(?!\.fleet)", text)} - {*catalog.declared_variables().variables}
        spared = {
            name
            for name in used
            if re.search(rf"\b{name}\b[\w.]* (\| default|is defined)|default\({name}\b|'{name}'", text)
        }
        needs = {*_NEEDS.findall(text)}
        assert used - spared - made <= needs <= used, path.name
    with pytest.raises(target.NoTarget, match=r"^gb10_b is not set\. This playbook is a part of a command of gb10"):
        target.require(["gb10_a", "gb10_b"], {"gb10_a": 1})


def test_a_play_with_hosts_of_its_own_is_named(tmp_path: Path) -> None:
    for name, hosts in {"ours": [BOUNDED], "all": ["all"], "second": [BOUNDED, "sparks"]}.items():
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump([{"hosts": each} for each in hosts]))
    assert unbounded(tmp_path.glob("*.yml")) == ["all", "second"]


# Of commands that ask or switch several hosts at once; converge.yml has the time of a wave.
WITH_AN_END = (
    *("bundle", "drain", "enrol", "look", "planned", "power", "rejoin", "release", "serve", "switch", "why", "wish"),
    *("benchmark", "explain", "fetch", "power_switch", "undo", "validate", "withdraw"),
)


def endless(name: str) -> list[str]:
    """The plays whose tasks have no end of their own: a host that says nothing for ever would hold up all others."""
    plays = yaml.safe_load((ROOT / f"playbooks/{name}.yml").read_text(encoding="utf-8"))
    own = [play for play in plays if "ansible.builtin.import_playbook" not in play]
    assert own
    return [play["name"] for play in own if not 0 < play.get("timeout", 0) <= 900]


@pytest.mark.parametrize("name", WITH_AN_END)
def test_a_host_that_says_nothing_holds_up_nobody_for_ever(name: str) -> None:
    found = endless(name)
    tally("a host that says nothing for ever", 1, len(found))
    assert found == []


def test_a_host_that_lists_units_without_an_end_holds_up_nobody() -> None:
    """Each is a step with an end of its own: 400,000 of them would have taken two days."""
    lines = (f"gb10-vllm-{number}.service enabled enabled" for number in range(100_000))
    rows = serving.rows(lines)
    plays = {name: (ROOT / f"playbooks/{name}.yml").read_text(encoding="utf-8") for name in ("drain", "serve")}
    raw = [name for name, text in plays.items() if "map('split')" in text or "gb10.fleet.unit_rows" not in text]
    tally("a host that lists units without an end", 3, len(raw) + (len(rows) > 100))
    # Of a loop each item has the time of a task: 64 units and 15 minutes were 16 hours.
    loops = [task["name"] for text in plays.values() for task in yaml.safe_load(text)[0]["tasks"] if "loop" in task]
    tally("a host that lists units, and hangs at each of them", 1, len(loops))
    assert not loops
    assert len(rows) == 2 * MOST_SERVICES and rows[0] == ["gb10-vllm-0.service", "enabled", "enabled"]
    assert not raw


def _paced(task: dict[str, Any]) -> bool:
    return any("{" in str(said.get("every_s")) for said in task.values() if isinstance(said, dict))


def hurried(plays: Any) -> list[str]:
    """The tasks that work for as long as somebody asks for, and would be cut off by the end of their play."""
    found = [task for play in plays if "timeout" in play for task in play["tasks"]]
    return [task["name"] for task in found if "timeout" not in task and ("async" in task or _paced(task))]


@pytest.mark.parametrize("name", WITH_AN_END)
def test_what_is_asked_to_take_long_has_an_end_of_its_own(name: str) -> None:
    """An action of ours waits itself for what it began in the background: the limit of the play would end it."""
    assert hurried(yaml.safe_load((ROOT / f"playbooks/{name}.yml").read_text(encoding="utf-8"))) == []


def test_in_gb10_fetch_a_host_that_fails_ends_no_other_one() -> None:
    """Nothing is stopped there; in a rollout something will be."""
    rollout, ahead = yaml.safe_load((ROOT / "playbooks/fetch.yml").read_text(encoding="utf-8"))
    assert (rollout["any_errors_fatal"], ahead["any_errors_fatal"]) == (True, False)
    same = ("hosts", "tags", "tasks", "timeout", "vars")
    assert [rollout[key] for key in same] == [ahead[key] for key in same]


def tasks_of(found: Any) -> Iterator[dict[str, Any]]:
    """Those in its blocks as well."""
    for task in found:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part, []))


def steps(path: str) -> dict[str, int]:
    """The steps of a role that move files, with the end of each; 0: that of the play which includes them."""
    tasks = tasks_of(yaml.safe_load((ROOT / path).read_text(encoding="utf-8")))
    asked = [
        (task, task[name])
        for task in tasks
        for name in ("gb10.fleet.model_files", "gb10.fleet.warm_cache")
        if name in task
    ]
    return {said["step"]: task.get("timeout", 0) for task, said in asked}


@pytest.mark.parametrize("path", ["files_of_service", "warm", "image"])
def test_a_download_may_take_a_day_and_a_question_no_longer_than_others(path: str) -> None:
    """All tasks of `gb10 fetch` had a day, so a host that said nothing held the others for as long."""
    found = steps(f"roles/vllm/tasks/{path}.yml")
    short = {step: end for step, end in found.items() if step in ("read", "withdraw")}
    long = {step: end for step, end in found.items() if step not in short}
    assert found and not any(short.values()) and all(end > file_step.LIMIT_S for end in long.values())


def test_a_host_that_hangs_in_a_site_is_waited_for_as_long_as_in_a_wave() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/converge.yml").read_text(encoding="utf-8"))
    most = catalog.load("rollout")["defaults"]["timeout_s"]["value"]
    (look,) = yaml.safe_load((ROOT / "playbooks/doctor.yml").read_text(encoding="utf-8"))
    asks = [task for task in look["tasks"] if "gb10.fleet.doctor" in task and "any_errors_fatal" not in task]
    tally("a host that says nothing for ever", 2, int(play.get("timeout") != most) + ("timeout" not in asks[0]))
    assert play["timeout"] == most
    assert [task["timeout"] for task in asks] == [900] and "timeout" not in look, "one task asks all hosts"
    (pull,) = (
        task for task in tasks_of(yaml.safe_load((ROOT / "roles/vllm/tasks/pull.yml").read_text())) if "async" in task
    )
    assert f" {pull['timeout'] - 300} " in pull["async"]


def test_who_waits_for_a_boot_ends_also_where_the_host_hangs_in_a_look() -> None:
    """A look over ssh has no end of its own: the others stood halted, and nobody gave them power."""
    waits = [
        task
        for file in [*(ROOT / "playbooks").glob("*.yml"), *(ROOT / "roles").glob("*/tasks/*.yml")]
        for one in yaml.safe_load(file.read_text(encoding="utf-8"))
        for task in tasks_of(one.get("tasks", [one]))
        if "gb10.fleet.await_boot" in task
    ]
    without = [task["name"] for task in waits if " + 300 " not in str(task.get("timeout"))]
    tally("a host that says nothing for ever", len(waits), len(without))
    assert len(waits) == 4 and not without


@pytest.mark.parametrize("path", ["vllm/tasks/prove_service", "benchmark/tasks/step"])
def test_what_a_role_polls_has_longer_than_a_question(path: str) -> None:
    """The end of the play that includes it would end a model that loads, or a load test."""
    polled = [task for task in yaml.safe_load((ROOT / f"roles/{path}.yml").read_text("utf-8")) if "async" in task]
    assert polled and all(task.get("timeout") for task in polled)


def test_a_first_start_has_longer_than_a_question() -> None:
    (play,) = (one for one in yaml.safe_load((ROOT / "playbooks/enrol.yml").read_text("utf-8")) if "tasks" in one)
    assert play["tasks"][0].get("timeout", 0) > play["timeout"]


def test_a_doctor_that_asks_a_host_by_itself_waits_for_no_answer_for_ever() -> None:
    """It does where a password was typed: the look at all of them, which has an end, cannot ask it then."""
    (play,) = yaml.safe_load((ROOT / "playbooks/doctor.yml").read_text(encoding="utf-8"))
    asks = [task for task in play["tasks"] if "omit" in str(task.get("gb10.fleet.doctor"))]
    assert len(asks) == 1 and 0 < asks[0].get("timeout", 0) <= 900


def test_to_switch_power_waits_for_no_answer_for_ever() -> None:
    """Its other tasks have limits of their own, and a boot takes longer."""
    plays = yaml.safe_load((ROOT / "playbooks/power_switch.yml").read_text(encoding="utf-8"))
    asked = [task for play in plays for task in play["tasks"] if "ansible.builtin.command" in task]
    assert len(asked) == 2 and all(task.get("timeout") for task in asked)


def test_a_router_that_hangs_is_waited_for_once_and_not_once_for_each_host() -> None:
    """Hosts ask it five at a time."""
    plays = [yaml.safe_load((ROOT / f"playbooks/{it}.yml").read_text("utf-8"))[0] for it in ("withdraw", "rejoin")]
    asked = {task["name"]: task.get("timeout") for play in plays for task in play["tasks"] if "delegate_to" in task}
    long = [name for name, limit in asked.items() if limit not in (30, "{{ __withdraw_left_s | int + 30 }}")]
    tally("a router that says nothing for ever", len(asked), len(long))
    assert len(asked) == 4 and not long


def test_a_host_that_hangs_after_its_boot_keeps_no_other_from_its_model() -> None:
    back = yaml.safe_load((ROOT / "roles/reboot/tasks/back.yml").read_text(encoding="utf-8"))
    asked = [task for task in _tasks(back) if {"ansible.builtin.command", "gb10.fleet.spark_facts"} & task.keys()]
    without = [task["name"] for task in asked if not task.get("timeout")]
    tally("a host that says nothing for ever", len(asked), len(without))
    assert len(asked) == 4 and not without


def _tasks(blocks: Any) -> Iterator[dict[str, Any]]:
    for task in blocks:
        yield task
        for part in ("block", "rescue"):
            yield from _tasks(task.get(part, ()))


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


def test_no_task_on_this_machine_becomes_root() -> None:
    """`ansible_become` of an inventory overrules the keyword: sudo was asked for here, with the -K of the hosts."""
    found = {
        path.stem: task["vars"].get("ansible_become")
        for path in (ROOT / "playbooks").glob("*.yml")
        for play in yaml.safe_load(path.read_text(encoding="utf-8"))
        for task in _tasks(play.get("tasks", []))
        if task.get("vars", {}).get("ansible_connection") == "local"
    }
    assert found == {"seed": False, "switch": False}
