"""What enrolment keeps: the address and the host key of each host in the inventory, and a list of who was enrolled."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import bytes_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output, schema

from gb10_fleet.discover.host_keys import known_hosts_lines
from gb10_fleet.discover.places import SSH_PORT, Place
from gb10_fleet.ending import unread
from gb10_fleet.enrol.judging import ED25519, Known
from gb10_fleet.home import KNOWN_HOSTS, known_hosts_option

FILE = "gb10-enrolled.yml"
LEDGER = "enrolled.json"
PATIENCE_S = 30.0  # who writes there takes a moment; but whoever may read a folder may hold its lock
_POLL_S = 0.05
_KINDS = (".yml", ".yaml", ".json", "")


class NotWritable(Exception):
    """The inventory takes no file of ours; the text says why and what to do."""


def folder_of(inventories: list[str]) -> Path:
    first = Path(inventories[0])
    if not first.exists():
        raise NotWritable(f"{first} is a list of hosts and no file; write an inventory (docs/inventory.md)")
    return first if first.is_dir() else first.parent


def refuse_hidden(folder: Path, host: str) -> None:
    """Ansible ignores `host_vars/HOST.yml` beside a folder `host_vars/HOST`, without a word."""
    for kind in _KINDS:
        file = folder / "host_vars" / f"{host}{kind}"
        if file.is_file():
            raise NotWritable(f"{file} would be hidden by a folder beside it; move it to host_vars/{host}/main.yml")


def variables(place: Place, known_hosts: Path, common_args: str) -> dict[str, Any]:
    """Return how the host is reached. Of two options of a name ssh takes the first one, so ours comes first."""
    own = f"-o {shlex.quote(known_hosts_option(known_hosts))}"
    others = common_args.removeprefix(own).strip()
    found: dict[str, Any] = {"ansible_host": place.address}
    found |= {"ansible_port": place.port} if place.port != SSH_PORT else {}
    return {**found, "ansible_ssh_common_args": f"{own} {others}".strip()}


def write(folder: Path, hosts: Mapping[str, tuple[str, Place, str]]) -> None:
    """Host keys first, for the variables name their file; each file whole or not at all.

    `hosts`: of each its key in base64, its place, and the options of ssh that it has.
    """
    known_hosts = (folder / KNOWN_HOSTS).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with _in_turn(folder):
        _write(folder, known_hosts, hosts)


@contextlib.contextmanager
def _in_turn(folder: Path) -> Iterator[None]:
    """Wait until nobody else writes there, but not for ever: what one has read, another must not change meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + PATIENCE_S
        while not _taken(descriptor):
            if time.monotonic() >= until:
                raise NotWritable(
                    f"{folder}: another process has kept it locked for {PATIENCE_S:g} s, so nothing was written there; "
                    f"run again when it has ended (`sudo fuser -v {shlex.quote(str(folder))}` names it)"
                )
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _write(folder: Path, known_hosts: Path, hosts: Mapping[str, tuple[str, Place, str]]) -> None:
    new = {place: {ED25519: blob} for blob, place, _ in hosts.values()}
    names = {place.known_as for place in new}
    kept = known_hosts.read_text(encoding="utf-8").splitlines(keepends=True) if known_hosts.exists() else []
    kept = [line for line in kept if line.partition(" ")[0] not in names]
    output.write(known_hosts, "".join([*kept, *known_hosts_lines(new)]))
    for name, (_, place, common_args) in hosts.items():
        refuse_hidden(folder, name)
        file = folder / "host_vars" / name / FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(variables(place, known_hosts, common_args), sort_keys=False, width=10_000)
        output.write(file, f"---\n# Written by gb10 enrol; the next enrolment of this host writes it anew.\n{text}")


def forget(folder: Path, host: str, address: str, port: int) -> None:
    """Believe no key of that address any more, and keep nothing that an enrolment wrote."""
    known_hosts = folder / KNOWN_HOSTS
    if known_hosts.exists():
        name = Place(address, port).known_as
        with _in_turn(folder):
            kept = known_hosts.read_text(encoding="utf-8").splitlines(keepends=True)
            output.write(known_hosts, "".join(line for line in kept if line.partition(" ")[0] != name))
    (folder / "host_vars" / host / FILE).unlink(missing_ok=True)


def ledger(state: Path) -> dict[str, Known]:
    """Who was enrolled, by host."""
    file = state / LEDGER
    try:
        said = json.loads(bytes_of(file))
        if wrong := schema.problem(said, dict[str, Known], "hosts"):
            raise ValueError(wrong)
        return {name: Known(**one) for name, one in said.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise NotWritable(
            f"{file} cannot be read: {unread(error)}; correct it, or move it away and enrol again"
        ) from None


def keep(state: Path, new: Mapping[str, Known | None]) -> None:
    """Write these beside those that are there; None takes one away."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _in_turn(state):
        known = {**ledger(state), **new}
        listed = json.dumps({name: asdict(one) for name, one in sorted(known.items()) if one}, indent=2)
        output.write(state / LEDGER, f"{listed}\n")
