"""Hosts that want a password: Ansible logs in, so every way in which it takes one works here as well.

A password goes to a host that nobody has vouched for yet. So it goes only where a person has pointed: to an address,
name or file of the command line, or to a host that the person has said yes to.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import scan, transport

from gb10_fleet import passwords
from gb10_fleet.discover import asking
from gb10_fleet.discover.asking import Answer
from gb10_fleet.discover.host_keys import Keys, known_hosts_lines, ssh_options
from gb10_fleet.discover.places import Place
from gb10_fleet.playbook import Order, Report, run
from gb10_fleet.rollout import words as ansible_words

PLAYBOOK = "gb10.fleet.discover"
_FILES = {passwords.CONNECTION: "ANSIBLE_CONNECTION_PASSWORD_FILE", passwords.BECOME: "ANSIBLE_BECOME_PASSWORD_FILE"}


def given(words: Sequence[str]) -> bool:
    """Tell whether Ansible has more to log in with than the keys of this user."""
    return bool(words or passwords.typed or any(os.environ.get(name) for name in _FILES.values()))


def as_root(words: Sequence[str]) -> bool:
    """Tell whether a password of sudo is there to be tried. Discovery itself needs no root."""
    options = ansible_words.read(words)
    return bool(passwords.BECOME in passwords.typed or options.become_password_file or options.become)


def ask(keys: Mapping[Place, Keys], user: str | None, words: Sequence[str]) -> list[Answer]:
    """Return what Ansible reads at each place, with the words of the command line. Only the scanned key is taken."""
    by_name = {f"place-{number}": place for number, place in enumerate(keys)}
    events: dict[str, dict[str, Any]] = {}

    def watch(event: Mapping[str, Any]) -> None:
        data = event.get("event_data", {})
        if data.get("resolved_action") == "gb10.fleet.spark_facts" and str(event["event"]).startswith("runner_on_"):
            events[data["host"]] = {"kind": event["event"], "said": data.get("res", {})}

    with tempfile.TemporaryDirectory(prefix="gb10-discover-") as folder:
        known_hosts = Path(folder, "known_hosts")
        known_hosts.write_text("".join(known_hosts_lines(keys)), encoding="ascii")
        file = Path(folder, "hosts.yml")
        file.write_text(json.dumps(_inventory(by_name, user, known_hosts)), encoding="utf-8")
        become = ("--become",) if as_root(words) else ()
        order = Order(
            PLAYBOOK, [str(file)], words=("--forks", str(asking.CONCURRENCY), *become, *words),
            environment={"ANSIBLE_CACHE_PLUGIN": "memory"},  # these names mean nothing after this run
        )  # fmt: skip
        _, report = run(order, quiet=True, watch=watch)
    return [_answer(place, keys[place], events.get(name), report) for name, place in by_name.items()]


def _inventory(places: Mapping[str, Place], user: str | None, known_hosts: Path) -> dict[str, Any]:
    # Before what ansible.cfg says of ssh: the first word on an option counts.
    options = {name: value for name, value in ssh_options(known_hosts).items() if name != "BatchMode"}
    shared = {
        "ansible_connection": "ssh",
        "ansible_ssh_args": " ".join(f"-o {name}={value}" for name, value in options.items()),
        "ansible_host_key_checking": True,
        "ansible_pipelining": True,
        "ansible_python_interpreter": transport.DEFAULT_INTERPRETER,
        **({"ansible_user": user} if user else {}),
    }
    hosts = {name: {"ansible_host": one.address, "ansible_port": one.port} for name, one in places.items()}
    return {"all": {"children": {"sparks": {"hosts": hosts, "vars": shared}}}}


def _answer(place: Place, keys: Keys, event: Mapping[str, Any] | None, report: Report) -> Answer:
    result = event["said"] if event else {}
    if facts := result.get("ansible_facts", {}).get("gb10_spark"):
        return asking.answer(place, keys, facts)
    if late := result.get("timedout"):  # Ansible's own word for a task that reached its limit
        return asking.silent(place, keys, scan.Reply(str(place), None, "", ""), late["period"])
    if event:
        status = scan.SSH_FAILED if event["kind"] == "runner_on_unreachable" else scan.REFUSED
        why = f"{result.get('msg', '')}\n{result.get('module_stderr', '')}"
        return asking.silent(place, keys, scan.Reply(str(place), status, "", why))
    why = " ".join(report.errors) or "ansible-playbook ended before it asked this host"
    return Answer(place, keys, silence=output.printable(why))


def trusted(places: Iterable[Place], confirmed: bool) -> set[Place]:
    """Return where a password may go: what was named one by one, and the rest after somebody's yes."""
    return {place for place in places if place.named or confirmed}
