# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd units: enabled, running, and restarted when what they read has changed, if the operator lets us.

A restart that is owed outlives this run: it may wait for consent, or the run may be killed between the new file and
the restart. So it is written down before the first change, together with the unit's invocation ID. systemd gives a
new ID at every start, so a restart by hand or a reboot settles the debt by itself.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    STARTS,
    STOPS,
    Fields,
    Kind,
    Pending,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_content import meaning
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_resource import File
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_states import (
    DOWN,
    Live,
    read_units,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import NOT_ENDED, HostError, System

OWED_RESTARTS = "/var/lib/gb10-fleet/owed-restarts.json"
LOADED = "/run/gb10-fleet/loaded.json"  # not for longer than a boot: that starts every unit anew
STAMPS = "/var/lib/systemd/timers"  # when each timer with Persistent= last elapsed
START_TIMEOUT_S = 3600.0  # systemd's own TimeoutStartSec decides; this only ends a run that nobody would end otherwise

SETTLE_S = 1.0  # systemd calls a simple service started before its program has had the time to fail

SOCKET = r"[A-Za-z0-9][A-Za-z0-9:_.\\@-]*(?<!@)\.socket\Z"
UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.\\@-]*(?<!@)\.(service|socket|timer|path|mount|target|slice)\Z")
_INPUT = r"(?!.*(\{\{|\{%))(/[^/]|package:[a-z0-9])[ -~]*\Z"
_WAITS = r"(?!.*(\{\{|\{%))/[^/][ -~]*\Z"
_ARGUMENT = r"(?!.*(\{\{|\{%))[!-~][ -~]*\Z"
_JOURNAL_LINES = 15
PROBE_DEADLINE_S = 30.0  # of a busy host; some ms on an idle one
_ON_DISK = ("unmask", "enable", "disable")  # links that systemd reads at its next reload; `mask` waits for a stop


@dataclass(frozen=True)
class Unit(Resource):
    KIND = "unit"

    enabled: bool | None = None
    state: str = ""  # started, stopped, or empty for whatever it is
    restart_on: tuple[str, ...] = ()
    reload_on: tuple[str, ...] = ()  # what it can be told to read again, while it goes on with its work
    at_next_start: tuple[str, ...] = ()  # files, and FILE#KEY of a JSON object: not needed while it is up
    probe: tuple[str, ...] = ()  # succeeds while what the unit has set up still stands
    consent: str | None = None
    wait: bool = True  # false for one that is up only when something beyond this host is, too
    resting: bool | None = None  # true: it stands still by a wish until somebody starts it; null: of no layout
    woken_by: str = ""  # the socket whose first request starts it; until then it is asleep
    masked: bool = False  # only an undo masks
    lenient: bool = False  # an undo: a unit that has gone with its package or file is no error

    @property
    def stage(self) -> int:
        return STARTS if self.state == "started" or (self.woken_by and not self.state) else STOPS

    @property
    def inputs(self) -> tuple[str, ...]:
        """`restart_on` as labels of resources."""
        return _labels(self.restart_on)

    @property
    def read_again(self) -> tuple[str, ...]:
        """`reload_on` as labels of resources."""
        return _labels(self.reload_on)

    @property
    def can_wait(self) -> tuple[str, ...]:
        """`at_next_start` as labels of resources."""
        return _labels(name.partition("#")[0] for name in self.at_next_start)


@dataclass(frozen=True)
class UnitState:
    live: Mapping[str, Live]
    owed: Mapping[str, str]  # unit -> invocation that has not seen its new inputs
    lost: Mapping[str, str] = field(default_factory=dict)  # unit that runs -> what its probe has against it
    loaded: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # unit -> {file: what it said when it was read}
    now: Mapping[str, str] = field(default_factory=dict)  # file that such a unit reads -> what it says now


class UnitKind(Kind[Unit, UnitState]):
    name = Unit.KIND

    def parse(self, index: int, fields: Fields) -> Unit:
        resource = Unit(
            index=index,
            name=fields.name(UNIT, "the full name of a unit, such as docker.service"),
            enabled=fields.flag("enabled"),
            state=fields.choice("state", ("started", "stopped"), ""),
            restart_on=fields.lines("restart_on", _INPUT, "an absolute path or package:NAME"),
            reload_on=fields.lines("reload_on", _INPUT, "an absolute path or package:NAME"),
            at_next_start=fields.lines("at_next_start", _WAITS, "an absolute path, or one with #KEY behind it"),
            probe=fields.lines("probe", _ARGUMENT, "one argument of a command"),
            consent=fields.consent(),
            wait=fields.flag("wait") is not False,
            resting=fields.flag("resting"),
            woken_by=fields.line("woken_by", "", SOCKET, "the full name of a socket, such as gb10-wake@vllm.socket"),
        )
        if resource.woken_by and (resource.state or resource.enabled):
            key = "state" if resource.state else "enabled"
            raise fields.fail(key, "a unit with woken_by is neither started nor enabled by a run")
        if resource.resting and resource.state != "started" and not resource.woken_by:
            raise fields.fail("resting", "only a unit that is started, or woken by a socket, can rest")
        if resource.probe and resource.state == "stopped":
            raise fields.fail("probe", "a unit that is stopped has nothing to stand")
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[Unit]) -> UnitState:
        names = [resource.name for resource in resources]
        live = read_units(system, names)
        probed = [resource for resource in resources if resource.probe and live[resource.name].running]
        done = {resource.name: system.run(resource.probe, timeout=PROBE_DEADLINE_S) for resource in probed}
        lost = {
            name: f"what it has set up {'cannot be seen' if answer.rc == NOT_ENDED else 'is not'}: {answer.words}"
            for name, answer in done.items()
            if answer.rc != 0
        }
        known = read_loaded(system)
        loaded = {name: known[name][1] for name in names if name in known and known[name][0] == live[name].reading}
        now = {path: _says(system, path) for inputs in loaded.values() for path in inputs}
        return UnitState(live, read_owed(system), lost, loaded, now)

    def plan(self, resources: Sequence[Unit], state: UnitState, plan: Plan) -> None:
        for resource in resources:
            live = state.live[resource.name]
            gone = live.load == "not-found"
            if gone and not resource.lenient and resource.state != "stopped" and not _may_appear(resource, plan):
                raise HostError(
                    f"{resource.label}: systemd has no such unit, and nothing earlier in the document brings it"
                )
            if not (gone and resource.lenient and live.active in DOWN):
                self._plan_unit(resource, state, plan)

    def _plan_unit(self, resource: Unit, state: UnitState, plan: Plan) -> None:
        live, owed = state.live[resource.name], state.owed.get(resource.name)

        def step(action: str, detail: str) -> None:
            plan.steps.append(Step(resource, action, detail))

        def disrupt(action: str, detail: str) -> None:
            if plan.consented(resource.consent):
                step(action, detail)
            else:
                plan.pending.append(Pending(resource, action, resource.consent or "", detail))

        starts = resource.state == "started" and not live.running
        # What shall end up masked is unmasked only to be started; it may run on as it is.
        unmasks = live.load == "masked" and bool(
            starts if resource.masked else resource.enabled or resource.state == "started"
        )
        if live.reload_owed:
            step("reload", "systemd still uses an older unit file")
        if unmasks:
            step("unmask", "masked")
        if resource.enabled and live.file_state not in ("enabled", "alias"):
            step("enable", f"{live.file_state or 'absent'} -> enabled")
        if resource.enabled is False and live.file_state in ("enabled", "enabled-runtime", "alias"):
            step("disable", f"{live.file_state} -> disabled")
        if resource.state == "stopped" and live.active not in DOWN:
            # A document that stops a unit says so in plain words; that an undo stops one has to be consented to.
            (disrupt if resource.lenient else step)("stop", f"{live.active} -> inactive")
        if starts:
            step("start", f"{live.active} -> active")
        elif live.running and resource.state != "stopped" and (unmasks or live.load != "masked"):
            changed = _changed(resource, live, plan)
            due = bool(changed) or (owed is not None and owed == live.invocation)
            if due and not _has_read(resource, state, plan):
                disrupt("restart", f"changed: {', '.join(changed) or 'in an earlier run'}")
            elif (rewritten := [label for label in resource.read_again if plan.changed(label)]) and not _has_read(
                resource, state, plan
            ):
                step("read again", f"changed: {', '.join(rewritten)}")
            elif resource.name in state.lost:
                # Not `restart`: that follows from another difference, and this is one of its own.
                disrupt("repair", f"it is up, and {state.lost[resource.name]}")
        if resource.masked and (unmasks or live.load != "masked"):
            step("mask", "as before")

    def prepare(self, system: System, plan: Plan, state: UnitState) -> None:
        # What was not read again because the run was killed is made up for by a restart.
        restarts = [step.resource.name for step in plan.steps if step.action in ("restart", "read again")]
        restarts += [pending.resource.name for pending in plan.pending if pending.action == "restart"]
        new = {name: state.live[name].invocation for name in restarts}
        if new and new.items() - state.owed.items():
            write_owed(system, {**state.owed, **new})

    def apply(self, system: System, steps: Sequence[Step[Unit]], state: UnitState, progress: Progress) -> None:
        """What is about files comes first, then one reload for all of it: that is most of what units cost a host."""
        carried_out: list[Step[Unit]] = []
        try:
            for step in self._carry_out(system, steps, progress):
                carried_out.append(step)  # also those before a failure
        finally:  # told in the order of the plan
            progress.done.extend(step for step in steps if any(step is done for done in carried_out))
        begun = [step.resource for step in steps if step.action in ("start", "restart", "repair")]
        # A program can fail after systemd has called its service started; a timer has none.
        if any(unit.name.endswith(".service") for unit in begun):
            system.clock.sleep(SETTLE_S)
        read = [step.resource for step in carried_out if step.action in ("start", "restart", "repair", "read again")]
        note_loaded(system, [unit for unit in read if _files_of(unit)])

    def _carry_out(self, system: System, steps: Sequence[Step[Unit]], progress: Progress) -> Iterator[Step[Unit]]:
        """Each step once it is done."""
        refused: HostError | None = None
        linked = False
        for place, step in enumerate(steps):
            if step.action in _ON_DISK:
                try:
                    self._run(system, step, [step.action, "--no-reload"])
                except HostError as error:
                    # What stands before it is done all the same: a gateway that fails must not keep a firewall down.
                    refused, steps = error, steps[:place]
                    break
                linked = True
                yield step
        if linked or progress.unit_files or any(step.action == "reload" for step in steps):
            daemon_reload(system, progress)
        for step in steps:
            if step.action in _ON_DISK:
                continue
            if step.action != "reload":
                self._act(system, step, _verb(step, step.resource, progress))
            yield step
        if refused is not None:
            raise refused

    def _act(self, system: System, step: Step[Unit], verb: str) -> None:
        name = step.resource.name
        if verb in ("start", "restart"):
            # A unit that has failed too often would refuse for a while, although its inputs are right now.
            system.run(["systemctl", "reset-failed", name])
        commands = [[verb]]
        if not step.resource.wait and verb in ("start", "restart"):
            # The end is waited for, so that what runs afterwards has the new inputs; only the start is not.
            commands = [["stop"]] if verb == "restart" else []
            commands.append(["start", "--no-block"])
        for command in commands:
            self._run(system, step, command)
        if step.action in ("restart", "read again"):
            owed = dict(read_owed(system))
            owed.pop(name, None)
            write_owed(system, owed)

    def _run(self, system: System, step: Step[Unit], command: Sequence[str]) -> None:
        done = system.run(["systemctl", *command, step.resource.name], timeout=START_TIMEOUT_S)
        if done.rc != 0:
            said = f"systemctl {command[0]} failed: {done.words}"
            raise HostError(f"{step.resource.label}: {said}{self.explain(system, step)}")

    def record(self, resource: Unit, state: UnitState) -> dict[str, Any]:
        """A oneshot service comes and goes by itself, and so does one that requests start: of that it says nothing."""
        live = state.live[resource.name]
        active = None if live.type == "oneshot" or resource.woken_by else "active" if live.running else "inactive"
        return {"load": live.load, "file_state": live.file_state, "active": active}

    def restore(self, resource: Unit, record: Mapping[str, Any]) -> list[Resource]:
        """What was not there is stopped and disabled; whoever brought it takes it away afterwards.

        Of a timer systemd keeps a stamp, which outlives the timer.
        """
        states = {"active": "started", "inactive": "stopped", None: ""}
        gone, masked = record["load"] == "not-found", record["load"] == "masked"
        enabled = True if record["file_state"] in ("enabled", "alias") else None
        if gone or masked or record["file_state"] in ("disabled", "enabled-runtime"):
            enabled = False
        state = "stopped" if gone else states[record["active"]]
        former = replace(resource, enabled=enabled, state=state, masked=masked, probe=(), lenient=True)
        stamp = File(resource.index, f"{STAMPS}/stamp-{resource.name}", resource.role, state="absent")
        return [former, stamp] if gone and resource.name.endswith(".timer") else [former]

    def untouched(self, resource: Unit, left: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
        """A unit that shall run, and does not, may have crashed; one with a wish came and went with that."""
        stood = {**left, **_as_declared(resource)}
        return live in (left, stood) or (resource.state == "started" and {**live, "active": "active"} in (left, stood))

    def settle(self, system: System, plan: Plan, progress: Progress) -> None:
        if progress.packages_moved:
            # A package brings or takes unit files as well, and not each one tells systemd.
            progress.unit_files.update(resource.name for resource in plan.document if isinstance(resource, Unit))
        settle_unit_files(system, progress)
        if progress.units_gone:
            # Without its file a unit that has failed would stay so until the next boot, and nobody owns it.
            system.run(["systemctl", "reset-failed", "--", *sorted(progress.units_gone)])

    def explain(self, system: System, step: Step[Unit]) -> str:
        """The last words of the unit in the journal."""
        argv = ["journalctl", "-u", step.resource.name, "-n", str(_JOURNAL_LINES), "-o", "cat", "--no-pager"]
        journal = system.run(argv).stdout.strip()
        return f"\nIts last lines in the journal:\n{journal}" if journal else ""


def daemon_reload(system: System, progress: Progress) -> None:
    system.ask(["systemctl", "daemon-reload"])
    progress.unit_files.clear()


def settle_unit_files(system: System, progress: Progress) -> None:
    """Reload systemd if it still works with an older version of a changed unit file.

    Not for a unit that it does not know yet: it reads that one when somebody starts it. A reload is not free, because
    with systemd as Docker's cgroup driver it takes the GPU from running containers.
    """
    if progress.unit_files:
        owed = system.ask(["systemctl", "show", "--property=NeedDaemonReload", "--", *sorted(progress.unit_files)])
        if "NeedDaemonReload=yes" in owed.splitlines():
            daemon_reload(system, progress)


def read_owed(system: System) -> dict[str, str]:
    """The restarts that are owed; a damaged record counts as empty: it is no reason to restart anything."""
    try:
        record = json.loads(system.text(OWED_RESTARTS) or "{}")
        return {str(unit): str(invocation) for unit, invocation in record.items()}
    except (ValueError, AttributeError):
        return {}


def write_owed(system: System, owed: Mapping[str, str]) -> None:
    system.write(OWED_RESTARTS, (json.dumps(owed, indent=2, sort_keys=True) + "\n").encode(), mode=0o600)


def read_loaded(system: System) -> dict[str, tuple[str, dict[str, str]]]:
    """{unit: (its reading, {file: what it said then})}, of units that we have started; damaged, it counts as empty."""
    try:
        record = json.loads(system.text(LOADED) or "{}")
        return {str(unit): (str(reading), dict(inputs)) for unit, (reading, inputs) in record.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def note_loaded(system: System, units: Sequence[Unit]) -> None:
    """Write down what these units, which have just begun, have read."""
    if not units:
        return
    names = [unit.name for unit in units]
    live = read_units(system, names)
    read = {
        unit.name: (live[unit.name].reading, {path: _says(system, path) for path in _files_of(unit)}) for unit in units
    }
    known = read_loaded(system)
    # Not replaced as a whole: half of it counts as nothing, and then the units are restarted as if it were not there.
    file = system.private_directory(posixpath.dirname(LOADED)) / posixpath.basename(LOADED)
    file.write_text(json.dumps({**known, **read}) + "\n", encoding="utf-8")


def _labels(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"file:{name}" if name.startswith("/") else name for name in names)


def _changed(unit: Unit, live: Live, plan: Plan) -> list[str]:
    """Return the changed inputs that are worth a restart. One that is on its way up loses nothing by it."""
    if live.active == "activating":
        return [label for label in dict.fromkeys((*unit.inputs, *unit.can_wait)) if plan.changed(label)]
    beside: dict[str, set[str]] = {}
    for name in unit.at_next_start:
        path, __, key = name.partition("#")
        beside.setdefault(f"file:{path}", set()).add(key)
    steps = [step for step in plan.steps if step.resource.label in unit.inputs]
    matter = {step.resource.label for step in steps if not _same_but(step, beside.get(step.resource.label, set()))}
    return [label for label in unit.inputs if label in matter]


def _same_but(step: Step[Any], keys: Collection[str]) -> bool:
    """Return whether an object in JSON stays as it is, but for these of its keys."""
    try:
        before, after = (json.loads(text or "") for text in (step.before, step.after))
        return bool(keys) and _without(before, keys) == _without(after, keys)
    except (ValueError, AttributeError, RecursionError):
        return False


def _without(present: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in present.items() if key not in keys}


def _files_of(unit: Unit) -> list[str]:
    """What it reads, at its start or again."""
    whole = (name for name in unit.at_next_start if "#" not in name)
    return [name for name in (*unit.restart_on, *unit.reload_on, *whole) if name.startswith("/")]


def _says(system: System, path: str) -> str:
    try:
        return meaning(system.path(path).read_bytes())
    except OSError:
        return ""


def _has_read(unit: Unit, state: UnitState, plan: Plan) -> bool:
    """Return whether all that it reads will stand, after the steps of the plan, as it did when the unit read it."""
    read = state.loaded.get(unit.name, {})
    if len(_files_of(unit)) < len((*unit.inputs, *unit.read_again)) or read.keys() != set(_files_of(unit)):
        return False  # of a package there is no telling
    left = {step.resource.name: step.leaves for step in plan.steps if step.resource.KIND == "file"}
    return all(left.get(path, state.now[path]) == said for path, said in read.items())


def _as_declared(unit: Unit) -> dict[str, str]:
    """What the declaration says of its record, and no run of ours leaves otherwise."""
    said = {} if unit.enabled is None else {"file_state": "enabled" if unit.enabled else "disabled"}
    active = {"started": "active", "stopped": "inactive"}
    return {**said, "active": active[unit.state]} if unit.state else said


def _verb(step: Step[Unit], resource: Unit, progress: Progress) -> str:
    """What systemctl is told: to repair is to restart.

    A unit that stood still when the run began may have been started meanwhile by its package, with its old inputs:
    a restart brings it up with the new ones either way.
    """
    if step.action == "repair":
        return "restart"
    if step.action == "read again":
        return "reload"
    inputs = (*resource.inputs, *resource.read_again, *resource.can_wait)
    if step.action == "start" and any(done.resource.label in inputs for done in progress.done):
        return "restart"
    return step.action


def _may_appear(resource: Unit, plan: Plan) -> bool:
    """Return whether a package or a unit file earlier in the document can bring the unit."""
    template = re.sub(r"@[^.]*\.", "@.", resource.name)
    for step in plan.steps:
        if step.resource.index < resource.index and (
            step.resource.KIND == "package"
            or (step.resource.KIND == "file" and step.resource.name.rpartition("/")[2] in (resource.name, template))
        ):
            return True
    return False
