# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's look at all hosts of a play, in one task: Ansible's process for each host costs more than the look.

Each host then gets what was found out as the result of its own doctor, so that it is refused, shown and counted as a
host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import silence
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable, some
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host, probe, scan, target, transport
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_files

# Seconds. The engine may wait for a lock, the GPU and apt, tens of them in all; a host that hangs holds up nobody.
TIMEOUT_S = 300
COMPARED = ("machine_digest", "boot_id", "rails", "interfaces")  # the facts of other hosts by which a host is judged

_Said = tuple[scan.Reply, "dict[str, Any] | ValueError"]  # what a host wrote, and what of it is an answer


class ActionModule(OwnAction):
    """Look at all hosts."""

    BYPASS_HOST_LOOP = True

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        target.refuse_inventory(task_vars)
        names: list[str] = list(task_vars["ansible_current_hosts"])
        limits: dict[str, Any] = {}
        folder = host.Host(self, task_vars).variables.get("gb10_evidence_directory")
        with _refusals():
            # What is written last, after an hour perhaps. Of a value that is no text the doctor speaks.
            if isinstance(folder, str):
                evidence_files.refuse(Path.cwd() / folder)
            most = silence.most(options["unreachable_max"], len(names))
        judged, clusters = self._look(task_vars, names, limits)
        with _refusals():
            silence.refuse_several(limits)
        unchanged = [
            name
            for name, members in clusters.items()
            if all(_probe(judged.get(member, {})).get("unchanged") for member in members)
        ]
        without = silence.tolerated(judged, most)
        for name in without:
            judged[name]["msg"] = silence.without(judged[name])
        beside = [name for name in names if name not in without and set(clusters.get(name, ())) & set(without)]
        warnings = [*_folded(judged), *_without(without, beside)]
        loading = [name for name in unchanged if _probe(judged[name]).get("loading")]
        left_out = unchanged if options["recap"] == "changed" else []
        return {
            **_of_the_left_out({name: judged.pop(name) for name in left_out}),
            "warnings": warnings,
            "changed": False,
            "unchanged": unchanged,
            "loading": loading,
            "judged": judged,
            "tolerated": without,
            "beside": beside,
            "msg": f"{len(unchanged)} of {len(names)} hosts are as they should be",
        }

    def _look(
        self, task_vars: Mapping[str, Any], names: Sequence[str], limits: dict[str, Any]
    ) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
        """The doctor's result for each host that could be asked, and the hosts of its cluster.

        `limits`: what each of them says of silent hosts, which is for all of the run.
        """
        judged: dict[str, dict[str, Any]] = {}
        members: dict[str, list[str]] = {}
        # A password that was typed for this run is with Ansible, and only the task of a host gets it.
        if self._play_context.password or self._play_context.become_pass:
            return judged, members
        questions: dict[str, tuple[probe.Question, scan.Target]] = {}
        forks = int(task_vars["ansible_forks"])

        def ask(targets: Iterable[scan.Target]) -> dict[str, _Said]:
            found = scan.ask(targets, concurrency=forks, timeout_s=TIMEOUT_S, progress=_progress)
            return {reply.host: (reply, _answer(reply)) for reply in found}

        said = ask(self._targets(task_vars, names, questions, limits))
        questions |= (more := dict(_with_new_facts(questions, said)))
        said |= ask(target for __, target in more.values())
        heard = _compared({name: answer for name, (__, answer) in said.items()})
        for name, (reply, answer) in said.items():
            asked, __ = questions[name]
            # An answer that nobody understands fails the host's own doctor: one host, not the look at all of them.
            with contextlib.suppress(Exception):
                judged[name] = _judged(asked, reply, answer, heard)
                members[name] = asked.host.members
        return judged, members

    def _targets(
        self,
        task_vars: Mapping[str, Any],
        names: Sequence[str],
        questions: dict[str, tuple[probe.Question, scan.Target]],
        limits: dict[str, Any],
    ) -> Iterator[scan.Target]:
        """How to ask each host. One that cannot be asked from here is left to its own doctor."""
        routes = scan.Routes(self)
        for name in names:
            # As the host's own task would see them: those of the play are among them.
            variables = task_vars["hostvars"]._variable_manager.get_vars(
                play=self._task.play, host=task_vars["hostvars"]._inventory.get_host(name), task=self._task
            )
            with contextlib.suppress(Exception):  # one host, not the look at all of them
                own = host.Host(self, variables, self._templar.copy_with_new_env(available_variables=variables))
                limit = own.variables.get(silence.VARIABLE, 0)
                asked = probe.prepare(own, variables, int(task_vars["ansible_forks"]))
                remote = transport.command_of(routes, variables)
                target = routes.target(name, variables, remote, transport.Message(asked.request))
                questions[name], limits[name] = (asked, target), limit
            if name in questions:
                yield questions[name][1]


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise AnsibleActionFail(str(error)) from None


def _with_new_facts(
    questions: Mapping[str, tuple[probe.Question, scan.Target]], said: Mapping[str, _Said]
) -> Iterator[tuple[str, tuple[probe.Question, scan.Target]]]:
    """Yield the second question to each host whose documents follow from what it has just said."""
    heard = {}
    for name, (__, answer) in said.items():  # all of them before any is rendered: they see each other
        with contextlib.suppress(Exception):  # its own doctor says so
            if not isinstance(answer, ValueError):
                heard[name] = questions[name][0].host.heard(answer)
    for name, answer in heard.items():
        asked, target = questions[name]
        with contextlib.suppress(Exception):
            if more := probe.again(asked, answer):
                message = transport.Message(more.request)
                yield name, (more, replace(target, program=message.program(), reply=message.reply))


def _answer(reply: scan.Reply) -> dict[str, Any] | ValueError:
    """The answer of a host, or why it is none."""
    try:
        return transport.parse(reply.stdout)
    except ValueError as error:
        return error


def _compared(answers: Mapping[str, dict[str, Any] | ValueError]) -> dict[str, dict[str, Any]]:
    """What each host said of itself; of an answer that nobody understands, nothing."""
    found = {}
    for name, answer in answers.items():
        with contextlib.suppress(KeyError, TypeError):
            if not isinstance(answer, ValueError):
                found[name] = {key: answer["facts"][key] for key in COMPARED}
    return found


def _judged(
    asked: probe.Question,
    reply: scan.Reply,
    said: dict[str, Any] | ValueError,
    heard: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The doctor's result for one host."""
    answer = failure = None
    try:
        if isinstance(said, ValueError):
            raise said
        answer = asked.host.heard(said)
    except transport.NoAnswer as error:
        failure = asked.failure(error.said, answered=True)
    except schema.WrongFact as error:
        failure = asked.failure(printable(str(error)), answered=True)
    except ValueError as error:
        text = transport.instead(reply.stdout, reply.stderr, str(error))
        if reply.status is None:
            failure = asked.failure(f"no answer within {TIMEOUT_S} s: {text}")
        elif reply.status == scan.SSH_FAILED:
            failure = asked.failure(text)
        else:
            failure = asked.failure(f"{text} (exit status {reply.status})", answered=True)
    return probe.judge(asked.called(reply.began, reply.ended, heard), answer, failure, refuse=True)


def _probe(judged: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = judged.get("ansible_facts", {}).get("gb10_probe", {})
    return found


def _of_the_left_out(judged: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What there is to say of hosts that get no task of their own."""
    return {
        "left_out": list(judged),
        "findings": [finding for one in judged.values() for finding in one["findings"]],
        "probes": {name: one["ansible_facts"]["gb10_probe"] for name, one in judged.items()},
    }


def _folded(judged: Mapping[str, dict[str, Any]]) -> list[str]:
    """The warnings of all hosts, taken out of their results; each begins with its host. What several share, once."""
    hosts: dict[str, list[str]] = {}
    for name, one in judged.items():
        for text in one.pop("warnings", []):
            hosts.setdefault(text.removeprefix(f"{name}: "), []).append(name)
    return [f"{some(names)}: {text}" for text, names in hosts.items()]


def _without(silent: Sequence[str], beside: Sequence[str]) -> Iterator[str]:
    """What the run does without, where gb10_unreachable_max lets it go on."""
    if silent:
        yield f"{some(silent)}: no answer; the run goes on, for gb10_unreachable_max allows it"
    if beside:
        yield f"{some(beside)}: left alone, for a host of the same cluster gives no answer"


def _progress(done: int, total: int) -> None:
    Display().display(f"look: {done} of {total} hosts answered", stderr=True)  # stdout is the callbacks'


host.preload()
