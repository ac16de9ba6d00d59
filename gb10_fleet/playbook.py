"""One playbook run through ansible-runner, and its outcome as one of five words.

ansible-runner keeps what it ran, its environment and every event in files, secrets included. So each run gets a
private directory (mode 0700) that is removed afterwards, events come through a pipe (callback/gb10_events.py) and are
never stored, and Ansible's output goes to the terminal only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import NO_CONTACT, Finding, from_failure
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import said_by as said_by_host
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output

from gb10_fleet import home, passwords, stopping
from gb10_fleet.ansible_runs import ansible_run
from gb10_fleet.beat import Beat
from gb10_fleet.inventory_lines import NO_YAML, yaml_mistake
from gb10_fleet.rollout import locks, words
from gb10_fleet.rollout.journal import place
from gb10_fleet.untold import Untold

# Values of the variable `__gb10_step`, by which plays and tasks of ours are known; names are for people. A failure in
# the first two comes before anything changes. The others are plays of a rollout: before the work one fetches image and
# model, and one stops the model; after it one says which hosts came through, and one starts the model again.
DOCTOR, REFUSE = "doctor", "refuse"
FETCH, DRAIN, ROLL_CALL, SERVE, KEPT_OUT, PLANNED = "fetch", "drain", "roll_call", "serve", "kept_out", "planned"
STEP = "__gb10_step"
# Characters of what a host says about a failure: enough to know what it was, and no megabytes in journal and report.
SAID_LIMIT = 4000
NO_HOST = "the inventory has no group `sparks` (or gb10_hosts names another): docs/inventory.md"
KILLED = "ansible-playbook was killed; perhaps this machine has too little memory"
TIMED_OUT = "it took longer than it may"
_LISTS_THEM = "--graph` lists them"
_READS_IT = "the inventory holds a vault: -J asks for its password, -- --vault-password-file FILE reads it"
_BY_ITSELF = "and said nothing: run the same with -- -vvv"
_NO_TARGET = re.compile(r"lookup plugin 'gb10\.fleet\.target' failed: (.+)")
_NOT_PARSED = re.compile(r"failed to parse inventory source (/.*?)\s*\Z")
_NOT_YAML, _NO_KEY = "YAML parsing failed", "no vault secrets"
_FAILED = ("runner_on_failed", "runner_item_on_failed", "runner_on_unreachable")
_DECIDE = ("gb10.fleet.doctor", "gb10.fleet.plan", "gb10.fleet.host_state")  # on this machine, out of our documents
_BRING = ("gb10.fleet.site", "gb10.fleet.converge")
_RESULTS = ("runner_on_ok", "runner_on_failed", "runner_on_unreachable", "runner_on_skipped")
_ERROR = ("[ERROR]", "ERROR!")
_BANNERS = ("PLAY RECAP", "TASK [")  # a play reads the variables of its hosts before its first task


class Outcome(IntEnum):
    """The end of a run; the value is the exit status of `gb10`."""

    done = 0
    failed = 2
    unreachable = 3
    refused = 4
    drift = 5
    partial = 6  # of a rollout: some hosts are done, and it stopped before the rest
    unfinished = 7  # of status: nobody is at work, and a run is not at its end or has left a model stopped
    interrupted = 130  # by Ctrl-C, SIGTERM, or a terminal that went away


@dataclass(frozen=True)
class Order:
    """A playbook to run, on which hosts, and how. `timeout_s` None: as long as it takes.

    `asks`: the modules whose results the command reads, and of each the key that only an answer has. A task of another
    module has the value of its `__gb10_step` in place of the module.
    """

    playbook: str
    inventories: Sequence[str]
    limit: str | None = None
    check: bool = False
    diff: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)
    words: Sequence[str] = ()  # of the command line, for ansible-playbook as they are
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: int | None = None
    asks: Mapping[str, str] = field(default_factory=dict)

    @property
    def lists(self) -> bool:
        """Tell whether Ansible only lists what it would do, and asks no host."""
        return bool(self.words) and words.lists(words.read(self.words))

    @property
    def shows(self) -> bool:
        """Tell whether a person has asked Ansible to say more than the command does: with -v, --diff or --check."""
        options = words.read(self.words) if self.words else None
        asked = options and (options.verbosity or options.diff or options.check)
        return bool(self.check or self.diff or asked)

    @property
    def only_checks(self) -> bool:
        """Tell whether it changes nothing."""
        return self.check or (bool(self.words) and bool(words.read(self.words).check))

    def cmdline(self, variables: Path, more: Sequence[str] = ()) -> str:
        """The options; the variables are in that file, for a command line is everybody's to read."""
        mine = ["--check"] if self.check else []
        mine += ["--diff"] if self.diff else []
        mine += ["--extra-vars", f"@{variables}"] if self.variables else []
        return shlex.join([*mine, *more, *self.words])


class Trouble(NamedTuple):
    """The first thing that went wrong with a host: `kind` is failed, ignored or unreachable."""

    kind: str
    text: str


@dataclass
class Report:
    """All that the events of a run said."""

    stats: dict[str, dict[str, int]] = field(default_factory=dict)  # {"ok": {host: count}, "dark": {...}, ...}
    findings: list[dict[str, Any]] = field(default_factory=list)
    refused: bool = False
    evidence: str | None = None
    drift: dict[str, Any] = field(default_factory=dict)  # the result of gb10.fleet.drift
    asks: Mapping[str, str] = field(default_factory=dict)  # of the order
    # The last of each host for what it asks; empty where none came.
    answers: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    messages: dict[str, list[str]] = field(default_factory=dict)  # of what failed, by host
    untold: Untold = field(default_factory=Untold, repr=False)
    silent: dict[str, Finding] = field(default_factory=dict)  # hosts that gave no answer to a task that says no more
    errors: list[str] = field(default_factory=list)  # of Ansible itself, before any task, line by line
    changes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # these three: by host, of the engine
    pending: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    orphans: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    lacks: dict[str, list[str]] = field(default_factory=dict)  # by host: consents that our own decisions wait for
    unchanged: list[str] = field(default_factory=list)  # unchanged hosts: no task was theirs alone
    no_target: str = ""  # why there was no host to work on, in our words: Ansible shows the playbook around them
    tasks: bool = False  # whether one has begun
    over: bool = False  # whether Ansible came to its end, so that its counts are of all hosts
    listed: bool = False  # whether Ansible was only asked to list, so that no host has a result
    # These four are of what came before the roll call of a rollout, and of the call. `through`: hosts that answered it,
    # so Ansible went on with them to the end; None: there was none.
    seen: set[str] = field(default_factory=set)
    through: set[str] | None = None
    called: set[str] = field(default_factory=set)  # hosts that it asked for
    troubles: dict[str, Trouble] = field(default_factory=dict)
    kept_out: dict[str, str] = field(default_factory=dict)  # hosts that a router did not take back, and which
    busy: set[str] = field(default_factory=set)  # hosts in a task that has no result of theirs yet
    timed_out: bool = False
    canceled: bool = False
    killed: bool = False  # by somebody else, perhaps for its memory

    def take(self, event: dict[str, Any]) -> bool:
        """Look at one event, ours or a line of ansible-runner's. Returns False: do not store it."""
        data = event.get("event_data", {})
        result = data.get("res", {})
        kind, action = event.get("event"), data.get("resolved_action")
        if kind == "runner_on_start":
            self.busy.add(data["host"])
        elif kind in _RESULTS:
            self.busy.discard(data["host"])
        if kind == "playbook_on_stats":
            self.over = True
            self.stats = {key: value for key, value in data.items() if isinstance(value, dict)}
        elif action in ("gb10.fleet.doctor", "gb10.fleet.probe"):
            self._take_findings(result)
        elif (action, kind) == ("gb10.fleet.undo", "runner_on_unreachable") and (
            silent := said_by_host(str(result.get("msg", "")))
        ):
            self._take_findings({"findings": [silent.as_dict()]})
        elif action == "gb10.fleet.evidence":
            self.evidence = result.get("directory", self.evidence)
        elif action == "gb10.fleet.drift" and "hosts" in result:
            self.drift = result
        if action in _DECIDE and (lacks := result.get("lacks")):
            known = self.lacks.setdefault(data["host"], [])
            known += [name for name in lacks if name not in known]
        for asked in (action, data.get("step") if kind == "runner_on_ok" else ""):  # else `msg` is Ansible's own
            if asked in self.asks and self.asks[asked] in result:
                self.answers[asked][data["host"]] = result
        if kind in ("runner_on_failed", "runner_on_unreachable") and data.get("step") in (DOCTOR, REFUSE):
            self.refused = True
        if kind == "runner_on_failed" and data.get("step") == KEPT_OUT:
            self.kept_out[data["host"]] = _brief(result, "a router did not take it back")
        if kind in _FAILED and not data.get("ignore_errors"):
            reason = said_by(event, "it failed and gave no reason")
            if found := no_answer(event):
                self.silent.setdefault(data["host"], found)
            # Of a refusal in the second undo task, or of a table that is there already, once is enough.
            in_table = action == "gb10.fleet.drifted" or reason == self.drift.get("msg")
            if reason not in (known := self.messages.setdefault(data["host"], [])) and not in_table:
                known.append(reason)
        self._take_state(data, result)
        self._take_error(event)
        if kind in _RESULTS and self.through is None:
            self._take_result(str(kind), event)
        return False

    def _take_findings(self, result: Mapping[str, Any]) -> None:
        """The probe has those of all hosts; the doctor of a host says them once more."""
        for one in (result, *result.get("judged", {}).values()):
            self.findings += self.untold.of("findings", one.get("findings", []))

    def _take_result(self, kind: str, event: Mapping[str, Any]) -> None:
        data = event["event_data"]
        result, host, step = data.get("res", {}), data["host"], data.get("step")
        if step == ROLL_CALL and kind == "runner_on_ok":
            call = json.loads(result["msg"])
            self.through, self.called = set(call["through"]), set(call["called"])
            return
        if step not in (FETCH, PLANNED, DRAIN):
            self.seen.add(host)
        # One that is silent, or a router, which is told of by a task of its own.
        asked_another = data.get("ignore_errors") and (kind == "runner_on_unreachable" or step == DRAIN)
        waits = data.get("resolved_action") in _DECIDE and result.get("waits_for")
        if waits or asked_another:
            return  # the trouble is that of another host
        if kind in ("runner_on_failed", "runner_on_unreachable"):
            word = "ignored" if data.get("ignore_errors") else kind.removeprefix("runner_on_")
            text = said_by(event, "it gave no reason")
            self.troubles.setdefault(host, Trouble(word, f"{data.get('task', 'a task')}: {text}"))

    def _take_state(self, data: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        action, host = data.get("resolved_action"), data.get("host", "")
        probes = {}  # an unchanged host gets no other call
        if action == "gb10.fleet.probe":
            probes, self.unchanged = result.get("probes", {}), result.get("unchanged", [])
        elif action == "gb10.fleet.doctor":
            probes = {host: result.get("ansible_facts", {}).get("gb10_probe", {})}
        if action in ("gb10.fleet.host_state", "gb10.fleet.undo") and data.get("step") != REFUSE:
            self._add(host, result)
        for name, probe in probes.items():
            self._add(name, {key: probe.get(key, []) for key in ("pending", "orphans")})

    def _add(self, host: str, result: Mapping[str, Any]) -> None:
        for key, known in (("changes", self.changes), ("pending", self.pending), ("orphans", self.orphans)):
            if found := self.untold.of(f"{key} {host}", result.get(key, [])):
                known.setdefault(host, []).extend(found)

    def _take_error(self, event: Mapping[str, Any]) -> None:
        """Take a line that Ansible says outside of plays and tasks; an error may have several."""
        kind, line = event.get("event"), str(event.get("stdout", "")).strip()
        self.tasks = self.tasks or kind == "playbook_on_task_start" or line.startswith(_BANNERS)
        is_error = line.startswith(_ERROR)
        if kind in ("verbose", "error") and line and not self.tasks and (is_error or self.errors):
            self.errors.append(line)

    def outcome(self, status: int) -> Outcome:
        """The one word for Ansible's exit status and what the events said; of a run that was cut short, only that."""
        if self.cut:
            return Outcome.interrupted if self.canceled else Outcome.failed
        if status == 0:
            # No host at all is no success: a mistyped inventory, or one without the group that the playbooks work on.
            return Outcome.done if self.hosts or self.listed else Outcome.failed
        if self.drift:
            return Outcome.unreachable if self.drift["silent"] else Outcome.drift
        if self.stats.get("dark") or {finding["id"] for finding in self.blocking} & NO_CONTACT:
            return Outcome.unreachable
        return Outcome.refused if self.refused else Outcome.failed

    @property
    def blocking(self) -> list[Mapping[str, Any]]:
        """Return the errors that nobody has accepted."""
        return [one for one in self.findings if one.get("severity") == "error" and not one.get("accepted")]

    @property
    def cut(self) -> bool:
        """Tell whether it ended on the way: then what is missing in it means nothing."""
        return self.canceled or self.timed_out or self.killed

    @property
    def hosts(self) -> dict[str, dict[str, int]]:
        """Counts by host, under the names that Ansible's recap uses. That one leaves out hosts without a task."""
        words = {"ok": "ok", "changed": "changed", "dark": "unreachable", "failures": "failed"}
        names = {host for key in words for host in self.stats.get(key, {})}
        counts = {host: {word: self.stats.get(key, {}).get(host, 0) for key, word in words.items()} for host in names}
        unchanged = {"ok": 1, "changed": 0, "unreachable": 0, "failed": 0}
        return dict(sorted(({name: dict(unchanged) for name in self.unchanged} | counts).items()))


def no_answer(event: Mapping[str, Any]) -> Finding | None:
    """Return what a host that gave no answer comes down to, unless the task has said it already."""
    data = event.get("event_data", {})
    message = str(data.get("res", {}).get("msg", ""))
    ours = str(data.get("resolved_action")).startswith("gb10.fleet.") and "Fix: " in message
    if event.get("event") != "runner_on_unreachable" or ours:
        return None
    cluster, others = data.get("cluster") or data["host"], data.get("others", True)
    return from_failure(data["host"], message, cluster=cluster, size=data.get("size", 0), others=others)


def said_by(event: Mapping[str, Any], silent: str) -> str:
    """The reason for a failure. Of a host that gave no answer the doctor's words, and not those of its connection."""
    if found := no_answer(event):
        return found.fact
    data = event.get("event_data", {})
    reason = _brief(data.get("res", {}), silent)
    lacks = _NOT_SET.fullmatch(reason) if data.get("before_any_host") else None  # a host may say so, too
    if not lacks:
        return reason
    variable = _OF_KEYWORDS.get(lacks[1], f"ansible_{lacks[1]}")
    return f"{reason}. Fix: set {lacks[2]} in the inventory, or correct {variable} there"


# What a variable of a connection names, and nobody has set: Ansible calls it by the keyword of a play.
_NOT_SET = re.compile(r"Task failed: Error processing keyword '(\w{1,40})': '(\w{1,100})' is undefined")
_OF_KEYWORDS = {"remote_addr": "ansible_host", "remote_user": "ansible_user"}


def _brief(result: Mapping[str, Any], silent: str) -> str:
    reason = str(result.get("msg") or result.get("censored") or silent)
    return reason if len(reason) <= SAID_LIMIT else f"{reason[:SAID_LIMIT]} ... ({len(reason)} characters)"


Runner = Callable[..., Any]
Watch = Callable[[Mapping[str, Any]], None]
_BEAT_S = 10
SECOND = {"event": "second"}  # another second has gone by; no event of Ansible's


def run(
    order: Order,
    *,
    quiet: bool = False,
    runner: Runner = ansible_run,
    watch: Watch | None = None,
    cancel: Callable[[], bool] | None = None,
    folder: Path | None = None,
) -> tuple[Outcome, Report]:
    """Run a playbook from the current folder, so that its ansible.cfg and its relative paths hold.

    `watch` sees every event, and SECOND once a second; without it, who waits at a terminal is told that a quiet run
    goes on. `folder` gets the private directory. `cancel` is asked once a second whether to end it; else a signal does.
    """
    watch = watch or _heartbeat(quiet)
    report = Report(listed=order.lists, asks=order.asks)
    one_at_a_time = threading.Lock()  # our events come on a thread, ansible-runner's lines do not

    def handle(event: dict[str, Any]) -> bool:
        with one_at_a_time:
            stored = report.take(event)
            watch(event)
            return stored

    def ended() -> bool:
        with one_at_a_time:
            watch(SECOND)
        return canceled()

    with (
        tempfile.TemporaryDirectory(prefix="gb10-", dir=folder) as private,
        passwords.handed_over(Path(private)) as secrets,
        _known_at_work(order),
        _signals() if cancel is None else contextlib.nullcontext(cancel) as canceled,
    ):
        output.write(variables := Path(private, "variables.yml"), _no_templates(order.variables), secret=True)
        result = runner(
            private_data_dir=private,
            project_dir=str(Path.cwd()),
            playbook=order.playbook,
            inventory=home.resolved(order.inventories),
            limit=order.limit,
            cmdline=order.cmdline(variables, secrets) or None,
            envvars={**_environment(quiet), **order.environment},
            settings={"suppress_output_file": True, "pexpect_timeout": 1},
            event_handler=handle,
            cancel_callback=ended,
            timeout=order.timeout_s,
            quiet=quiet,
        )
        # A signal may come between the last look and the end of Ansible: whoever sent it wants no next step.
        report.canceled = getattr(result, "status", None) == "canceled" or (cancel is None and canceled())
    # They come in the order in which hosts answer.
    report.answers.update({module: dict(sorted(said.items())) for module, said in report.answers.items()})
    status = _end_of(result, report, order)
    if found := [match[1] for line in report.errors if (match := _NO_TARGET.search(line))]:
        report.no_target, report.errors = found[0], found[:1]
    report.errors += [*_unknown(order, report.errors), *_unread(order, report.errors)]
    return report.outcome(status), report


def _known_at_work(order: Order) -> contextlib.AbstractContextManager[None]:
    """What brings the inventory to the hosts has read it before: who takes a key back meanwhile has to know."""
    if order.playbook not in _BRING or order.only_checks or order.lists:
        return contextlib.nullcontext()
    return locks.beside(place(order.inventories) / locks.SHARED)


def _heartbeat(quiet: bool) -> Watch:
    """Say on standard error that a run which shows nothing goes on."""
    beat = Beat(_BEAT_S)

    def tell(_event: Mapping[str, Any]) -> None:
        if seconds := beat.due():
            print(f"waiting for the hosts, for {seconds}", file=sys.stderr, flush=True)

    alone = threading.current_thread() is threading.main_thread()  # else a screen is drawn beside it
    return tell if quiet and alone and sys.stderr.isatty() else lambda _event: None


def _no_templates(variables: Mapping[str, Any]) -> str:
    """Write variables so that none is a template: some are words of a host, and a template runs on this machine."""
    plain = json.loads(json.dumps(dict(variables)))
    return f"--- !unsafe\n{yaml.safe_dump(plain, sort_keys=False)}"


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Tell whether a signal asks for the end. Only the main thread hears them."""
    heard: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                before[number] = signal.signal(number, lambda number, _frame: heard.append(number))
    try:
        yield lambda: bool(heard)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unknown(order: Order, errors: Sequence[str]) -> list[str]:
    """Return which host it was that Ansible did not find: its own line names none."""
    if order.limit is None or not any("leaves us with no hosts" in line for line in errors):
        return []
    where = [word for name in order.inventories for word in ("-i", name)]
    return [f"{order.limit} is no host or group there; `ansible-inventory {shlex.join(where)} {_LISTS_THEM}"]


def _unread(order: Order, errors: Sequence[str]) -> list[str]:
    """Return what Ansible's own line leaves out of an inventory that it could not read: the place, or the way out."""
    found = [Path(match[1]) for line in errors if (match := _NOT_PARSED.search(line)) and Path(match[1]).is_file()]
    if any(_NOT_YAML in line for line in errors):
        folders = map(home.folder_of, order.inventories)
        found += [folder / kind for folder in folders for kind in ("group_vars", "host_vars")]
    said = [mistake for path in found if (mistake := yaml_mistake(path))]
    if any(_NO_KEY in line for line in errors):
        said.append(_READS_IT)
    return said


def ours(report: Report) -> list[str]:
    """Return what we say of a run that did not begin or did not end, beside Ansible's own words."""
    words = (NO_HOST, KILLED, TIMED_OUT, stopping.INTERRUPTED, stopping.READ_ONLY, report.no_target)
    ends = (_LISTS_THEM, _BY_ITSELF, _READS_IT, NO_YAML)
    return [line for line in report.errors if line in words or line.endswith(ends)]


def _environment(quiet: bool) -> dict[str, str]:
    # The command's own Ansible comes first: `gb10` may be called by path, without an activated environment.
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"}
    if not sys.stdout.isatty():
        environment |= {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
    # An inventory that is not understood is no smaller fleet. And with pipelining a module needs no file on the host,
    # so a disk that is full is looked at as well; `ansible_pipelining` of the inventory goes before.
    for name in ("ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED", "ANSIBLE_PIPELINING"):
        if name not in os.environ:
            environment[name] = "1"
    environment["ANSIBLE_SSH_EXTRA_ARGS"] = home.ssh_extra_args()
    if quiet:  # nobody sees them, and they cost Ansible more than our events do
        environment |= {"ANSIBLE_DISPLAY_OK_HOSTS": "0", "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "0"}
    return environment


def _end_of(result: Any, report: Report, order: Order) -> int:
    """The exit status of Ansible, with what the report says of a run that was cut short or found nobody."""
    status = 1 if result.rc is None else int(result.rc)
    report.timed_out = getattr(result, "status", None) == "timeout"
    report.killed = (result.rc is None or status < 0) and not (report.timed_out or report.canceled)  # a signal
    if report.cut:
        # What Ansible itself said on the way, it said because it was ended.
        reads = order.check or order.lists or order.playbook in stopping.READING
        ended = stopping.READ_ONLY if reads else stopping.INTERRUPTED
        report.errors.insert(0, ended if report.canceled else TIMED_OUT if report.timed_out else KILLED)
        return max(status, 1)
    # With an ansible.cfg that makes an error of it, Ansible has said so itself, in its own words.
    if not report.hosts and not report.listed and all("host pattern, ignoring" in line for line in report.errors):
        by_itself = f"ansible-playbook ended with status {status} {_BY_ITSELF}"
        report.errors.append(NO_HOST if report.over or report.errors or status == 0 else by_itself)
    return status
