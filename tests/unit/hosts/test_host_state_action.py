"""host_state in real ansible-playbook runs: what the controller's half renders, sends, refuses and shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.support.plays import FACTS, Plays

HIDDEN = "hunter2hunter2"
A = {"spark-a": {"ansible_host": "kind-ok"}}
DOCKER = ["page_cache", "docker"]


@pytest.fixture
def plays(tmp_path: Path) -> Plays:
    return Plays(tmp_path)


def task(**arguments: Any) -> dict[str, Any]:
    return {"gb10.fleet.host_state": arguments, "register": "done"}


NAMED = {"gb10.fleet.host_state": {"role": "demo", "resources": [{"file": "/etc/x", "content": "x"}]}, "diff": True}
SHOWN = {
    "ansible.builtin.debug": {
        "msg": "done={{ done | dict2items | rejectattr('key', 'eq', 'ansible_facts') | items2dict | to_json }}"
    }
}


def play(plays: Plays, *tasks: dict[str, Any], args: tuple[str, ...] = (), **variables: Any) -> tuple[int, str]:
    """Exit code and output, blanks joined, for lines are folded."""
    content = [{"hosts": "sparks", "gather_facts": False, "tasks": list(tasks)}]
    rc, output = plays.play(A, content, *args, **variables)
    return rc, " ".join(output.split())


def done(plays: Plays, *args: str, variables: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    """The result of one task that succeeds."""
    content = [{"hosts": "sparks", "gather_facts": False, "tasks": [task(**arguments), SHOWN]}]
    rc, output = plays.play(A, content, *args, **(variables or {}))
    assert rc == 0, output
    line = next(line for line in output.splitlines() if "done=" in line)
    result: dict[str, Any] = json.loads(json.loads(line.strip().removeprefix('"msg":').strip()).removeprefix("done="))
    return result


def test_roles_take_a_call_for_the_facts_once_and_then_one_call_for_all(plays: Plays) -> None:
    assert done(plays, roles=DOCKER)["remote_calls"] == 2
    asked, applied = plays.requests()
    assert (asked["documents"], asked["check"]) == ([], True)
    assert [document["role"] for document in applied["documents"]] == DOCKER
    assert (applied["check"], applied["verb"], applied["orphans"]) == (False, "converge", "show")
    assert set(applied["expect"]) == {"packages", "docker", "other_docker", "apt_sources"}
    assert applied["project"] == catalog.collection_version() and "@" in applied["run"]
    plays.host("ok")
    assert done(plays, roles=DOCKER)["remote_calls"] == 1
    assert len(plays.requests()) == 1


def test_facts_that_no_longer_hold_cost_a_second_call_with_those_of_now(plays: Plays) -> None:
    done(plays, roles=["docker"])
    newer = "5:99.0.0-1~ubuntu.24.04~noble"
    plays.host("ok", facts={"packages": {**FACTS["packages"], "docker-ce": newer}})
    assert done(plays, roles=["docker"])["remote_calls"] == 2
    guess, now = plays.requests()
    version = [next(r["version"] for r in q["documents"][0]["resources"] if "version" in r) for q in (guess, now)]
    assert version[0] != newer and version[1] == newer


def test_kept_facts_that_no_plan_can_be_made_of_cost_a_call_and_no_more(plays: Plays) -> None:
    plays.host("ok", facts={"docker": 7})
    plays.known(A)
    plays.host("ok")
    assert done(plays, roles=["docker"])["remote_calls"] == 2


def test_facts_that_never_hold_end_the_run(plays: Plays) -> None:
    engine = plays.tmp_path / "collections/ansible_collections/gb10/fleet/plugins/module_utils/engine/remote.py"
    engine.write_text(engine.read_text().replace("stale = [", 'facts["packages"] = {"x": str(os.getpid())}; stale = ['))
    rc, output = play(plays, task(roles=["docker"]))
    assert rc == 2 and "its facts changed with every call (packages)" in output
    assert len(plays.requests()) == 3


REFUSED = {"packages": {**FACTS["packages"], "docker-ce": "5:20.0.0-1"}}


def test_a_refusal_by_outdated_facts_is_checked_and_one_by_those_of_now_changes_nothing(plays: Plays) -> None:
    plays.host("ok", facts=REFUSED)
    rc, output = play(plays, task(roles=DOCKER))
    assert rc == 2 and "spark-a: docker-ce 5:20.0.0-1 is installed" in output
    assert [request["documents"] for request in plays.requests()] == [[]], "a document was sent"
    plays.host("ok")
    assert done(plays, roles=DOCKER)["remote_calls"] == 2


def test_a_plan_reads_facts_only_where_this_run_has_none_and_never_changes_a_thing(plays: Plays) -> None:
    refuse = {"gb10.fleet.plan": {"roles": DOCKER}}
    for _ in range(2):
        rc, output = play(plays, refuse)
        assert rc == 0, output
    assert [request["documents"] for request in plays.requests()] == [[], []], "facts of last time refuse nothing"
    plays.host("ok", facts=REFUSED)
    rc, output = play(plays, {"gb10.fleet.doctor": {"refuse": False}}, refuse)
    assert rc == 2 and "docker-ce 5:20.0.0-1 is installed" in output
    assert len(plays.requests()) == 2, "the doctor's"


def test_the_facts_after_a_change_are_those_of_the_host(plays: Plays) -> None:
    show = {"ansible.builtin.debug": {"msg": "now {{ ansible_facts['gb10_spark'].kernel }}"}}
    assert f"now {FACTS['kernel']}" in play(plays, task(role="demo", resources=[{"hold": "demo"}]), show)[1]


RESOURCES: list[dict[str, Any]] = [
    {"file": "/etc/x", "template": "x.j2"},
    {"file": "/etc/y", "content": "{{ word }}\n", "mode": "0600", "owner": None},
    {"package": "docker-ce", "consent": "demo_consent"},
]


def test_a_task_that_says_diff_names_its_changes_also_without_the_option(plays: Plays) -> None:
    """As those of our roles do: the log of a night tells what happened."""
    changes = [{"role": "demo", "resource": "file:/etc/x", "action": "create", "detail": "absent"}]
    plays.host("ok", changes=changes, diff=[{"prepared": "the engine's own"}])
    content = [{"hosts": "sparks", "gather_facts": False, "tasks": [NAMED]}]
    _, output = plays.play(A, content)
    assert "\nspark-a  demo  file:/etc/x  create: absent\n" in output
    _, output = plays.play(A, content, "--diff")
    assert "the engine's own" in output and "create: absent" not in output


def test_inline_resources_are_sent_as_a_document_of_their_role(plays: Plays) -> None:
    (plays.tmp_path / "templates").mkdir()
    (plays.tmp_path / "templates" / "x.j2").write_text("{% if true %}\nis {{ word }}\n{% endif %}\n")
    changes = [{"role": "demo", "resource": "file:/etc/x", "action": "create", "detail": "absent"}]
    diff = [{"prepared": "file:/etc/x: create"}]
    plays.host("ok", changes=changes, diff=diff)
    result = done(plays, "--diff", role="demo", resources=RESOURCES, variables={"word": "{{ 'w' * 2 }}"})
    (request,) = plays.requests()
    (document,) = request["documents"]
    assert document["role"] == "demo"
    assert document["resources"] == [
        {"file": "/etc/x", "content": "is ww\n"},
        {"file": "/etc/y", "content": "ww\n", "mode": "0600", "owner": None},
        {"package": "docker-ce", "consent": "demo_consent"},
    ]
    assert (request["consents"], request["expect"]) == ({"demo_consent": False}, {})
    assert result["changed"] and result["changes"] == changes and result["diff"] == diff
    assert (result["remote_calls"], result["subprocesses"]) == (1, 3)
    assert "diff" not in done(plays, "--check", role="demo", resources=RESOURCES, variables={"word": "w"})
    assert plays.requests()[-1]["check"] is True


@pytest.mark.parametrize(("value", "says"), [("false", False), ("no", False), ("True", True), ("1", True)])
def test_a_consent_may_be_text(plays: Plays, value: str, says: bool) -> None:
    resources = RESOURCES[2:]
    done(plays, "-e", f"demo_consent={value}", role="demo", resources=resources)
    done(plays, role="demo", resources=resources, consents={"demo_consent": value})
    assert [request["consents"] for request in plays.requests()] == [{"demo_consent": says}] * 2


@pytest.mark.parametrize("value", ["maybe", ""])
def test_a_consent_that_is_no_boolean_is_refused_by_name(plays: Plays, value: str) -> None:
    wanted = f"demo_consent: expected true or false, found '{value}'"
    for args, consents in ((("-e", f"demo_consent={value}"), {}), ((), {"demo_consent": value})):
        rc, output = play(plays, task(role="demo", resources=RESOURCES[2:], consents=consents), args=args)
        assert rc == 2 and wanted in output
    assert plays.requests() == []


def test_the_consents_of_a_role_are_its_variables(plays: Plays) -> None:
    done(plays, roles=["docker"], variables={"docker_allow_restart": True})
    assert plays.requests()[-1]["consents"] == {"docker_allow_restart": True}


def test_what_is_left_over_is_removed_with_every_consent_that_was_given(plays: Plays) -> None:
    said = {"gb10_orphans": "remove", "fabric_allow_activation": True, "docker_allow_restart": "{{ 1 == 1 }}"}
    done(plays, roles=["page_cache"], variables=said)
    assert plays.requests()[0]["consents"] == {}, "without documents nothing is removed"
    consents = plays.requests()[-1]["consents"]
    assert consents["fabric_allow_activation"] is consents["docker_allow_restart"] is True
    assert all("_allow_" in name for name in consents) and not all(consents.values())


def test_what_waits_for_consent_or_is_left_over_is_a_warning(plays: Plays) -> None:
    pending = [{"role": "demo", "resource": "unit:x.service", "action": "restart", "consent": "demo_consent"}]
    plays.host("ok", pending=pending, orphans=[{"role": "demo", "resource": "file:/y"}])
    rc, output = play(plays, task(role="demo", resources=RESOURCES[2:]))
    assert rc == 0
    assert "spark-a: unit:x.service: restart waits for your consent: set demo_consent: true in" in output
    assert "spark-a: file:/y: the role demo declares it no longer, and it may stay; -e gb10_orphans=remove" in output


def test_a_host_names_no_consent_that_it_was_not_asked_about(plays: Plays) -> None:
    waits = {"role": "demo", "resource": "unit:x.service", "action": "restart"}
    plays.host("ok", pending=[{**waits, "consent": "gb10_switch_allow_apply"}, waits])
    rc, output = play(plays, task(role="demo", resources=RESOURCES[2:]))
    assert rc == 0 and "gb10_switch_allow_apply" not in output
    assert "spark-a: unit:x.service: restart waits for a consent that it was not asked about" in output


def test_an_error_of_the_engine_fails_the_host_and_keeps_what_was_changed(plays: Plays) -> None:
    changes = [{"role": "demo", "resource": "file:/etc/x", "action": "create", "detail": "absent"}]
    plays.host("ok", changes=changes, error={"kind": "apply", "message": "unit:x.service: did not start"})
    rescue = {"block": [task(role="demo", resources=RESOURCES[2:])], "rescue": [SHOWN]}
    rc, output = play(plays, rescue)
    assert rc == 0, output
    assert "spark-a: unit:x.service: did not start" in output
    assert '\\"changed\\": true' in output and "file:/etc/x" in output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "one of the following is required: resources, roles"),
        ({"roles": ["docker"], "resources": []}, "mutually exclusive"),
        ({"roles": ["docker", "dokcer"]}, "roles: dokcer is no role of this collection; there are kernel_parameters,"),
        ({"resources": {"file": "/x"}}, "resources: expected a list"),
        ({"resources": [{"file": "/x", "template": "a.j2", "content": ""}]}, "resources[0].template: is for a file"),
        ({"resources": [{"unit": "x", "template": "a.j2"}]}, "resources[0].template: expected the name of a template"),
        ({"resources": [{"file": "/x", "template": 5}]}, "resources[0].template: expected the name of a template"),
        ({"resources": []}, "role: expected the name of a role"),
        ({"role": "Our-Files", "resources": []}, "role: expected the name of a role"),
        ({"role": "ours", "resources": ["x"]}, "resources[0]: expected a mapping with one of the keys file, package,"),
        (
            {"role": "ours", "resources": [{"flie": "/x"}]},
            "resources[0]: expected exactly one of the keys file, package,",
        ),
        ({"role": "ours", "resources": [{"file": "/x", "unit": "x.service"}]}, "found file and unit"),
    ],
)
def test_wrong_arguments_are_refused_before_the_host_is_touched(
    plays: Plays, arguments: dict[str, Any], says: str
) -> None:
    rc, output = play(plays, task(**arguments))
    assert rc == 2 and says in output
    assert plays.requests() == []


@pytest.mark.parametrize("engine", ["works", "refuses", "is silent"])
def test_no_output_shows_a_secret(plays: Plays, engine: str) -> None:
    if engine == "refuses":
        plays.host("ok", error={"kind": "request", "message": "resources[0].mode: expected an octal"})
    host = {"spark-a": {"ansible_host": "kind-garbled" if engine == "is silent" else "kind-ok"}}
    tasks = [
        task(role="demo", resources=[{"file": "/etc/key", "secret": True, "content": "{{ hidden }}"}]),
        task(roles=["vllm"]),
    ]
    content = [{"hosts": "sparks", "gather_facts": False, "ignore_errors": True, "tasks": tasks}]
    (plays.tmp_path / "vars.json").write_text(json.dumps({"hidden": f"{HIDDEN}\n", "vllm_api_key": HIDDEN}))
    _, output = plays.play(host, content, "--diff", "-vvv", "-e", "@vars.json")
    assert HIDDEN not in output
    assert "fatal: [spark-a]" in output or engine == "works", "the failure was not seen"
    assert engine == "is silent" or HIDDEN in json.dumps(plays.requests()), "the secret never travelled"
    for path in (plays.tmp_path / "cache").rglob("*"):
        assert not path.is_file() or HIDDEN.encode() not in path.read_bytes()


def test_an_encrypted_value_is_sent_in_clear_text(plays: Plays) -> None:
    (plays.tmp_path / "password").write_text("p")
    from ansible.parsing.vault import VaultLib, VaultSecret

    secret = VaultSecret(b"p")
    cipher = VaultLib().encrypt(HIDDEN, secret=secret).decode()
    text = "vllm_api_key: !vault |\n" + "".join(f"  {line}\n" for line in cipher.splitlines())
    (plays.tmp_path / "secret.yml").write_text(text)
    done(plays, "-e", "@secret.yml", "--vault-password-file", "password", roles=["vllm"])
    (content,) = [
        r["content"] for r in plays.requests()[-1]["documents"][0]["resources"] if r.get("secret") and "content" in r
    ]
    assert HIDDEN in content


def test_the_real_engine_takes_what_is_sent(tmp_path: Path) -> None:
    """In check mode, on this machine."""
    plays = Plays(tmp_path)
    engine = tmp_path / "collections/ansible_collections/gb10/fleet/plugins/module_utils/engine/remote.py"
    engine.unlink()
    engine.symlink_to(Path(__file__).parents[3] / "plugins" / "module_utils" / "engine" / "remote.py")
    (tmp_path / "key").write_text(f"old {HIDDEN}")
    resources = [
        {"file": str(tmp_path / "key"), "secret": True, "content": HIDDEN},
        {"file": "/tmp/../x", "state": "absent"},
    ]
    rc, output = play(plays, task(role="demo", resources=resources), args=("--check", "--diff", "-vvv"))
    assert HIDDEN not in output
    assert rc == 2 and "resources[1].file" in output, output
    rc, output = play(plays, task(role="demo", resources=resources[:1]), args=("--check", "--diff", "-vvv"))
    assert HIDDEN not in output
    assert f"file:{tmp_path}/key" in output or "root" in output
