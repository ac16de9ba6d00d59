# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of every action of ours.

It reads its options from the documentation of its module. What a host answers is bounded before it is parsed, and its
text cannot steer a terminal: in results, in warnings and in errors.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleError
from ansible.module_utils.json_utils import _filter_non_json_lines
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, effort, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import cleaned, printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice, bounds

SHOWN = 1000  # characters of what came where an answer should be
WARNINGS_LIMIT = 2**16  # characters of all warnings of one answer, as JSON
_NOTICES = ("warnings", "deprecations")
_SHOWN_OF_ALL = {"msg", "exception", *_NOTICES}
_OF_ONE_LINE = {"ansible_facts", *_NOTICES}
# What Ansible itself would act on, or says itself. The first one is of async_wrapper: its files outlive the call.
_KEPT_INTERNAL = "_ansible_suppress_tmpdir_delete"
_ORDERS = ("add_host", "add_group", "ansible_facts", "ansible_stats", "timedout", "diff")  # no module of ours has one
_OF_AN_OPTION = ("type", "elements", "choices", "default", "required")


class _NoAnswer(Exception):
    """Past what Ansible makes of an answer, a dictionary or, in ansible-core 2.21, an object. `said`: the failure."""

    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__()
        self.said = said


class OwnAction(ActionBase):
    """Ansible's base, with the options of the module and with care for what a host says."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = False
    own: tuple[str, ...] = ()  # options of the module that the action itself fills in
    facts: tuple[str, ...] = ()  # facts that the module may set; no other reaches Ansible
    _has_options = True
    conditions: ClassVar[dict[str, Any]] = {}  # between options, in the words of Ansible's argument specification
    _documented: ClassVar[dict[str, dict[str, Any]]] = {}
    _asked = "the host"  # by name, once a module is asked for

    def __init_subclass__(cls, **more: Any) -> None:
        """Read the documentation when the action is imported: once, before Ansible forks."""
        super().__init_subclass__(**more)
        if cls.__name__ == "ActionModule" and cls._has_options:
            options = documented(cls.__module__.rpartition(".")[2])
            cls._documented = {name: option for name, option in options.items() if name not in cls.own}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge the arguments of the task, an error names the option; then act."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        options: dict[str, Any] = {}
        if self._has_options:
            __, options = self.validate_argument_spec(argument_spec=self._documented, **self.conditions)  # type: ignore[no-untyped-call]
        result.update(self._act(task_vars or {}, options))
        return result

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """The result of the task."""
        raise NotImplementedError

    def _execute_module(self, *, task_vars: dict[str, Any], **more: Any) -> dict[str, Any]:  # type: ignore[override]
        """Run a module; a host that says too much, or something else than an answer, fails by name."""
        self._asked = str(self._task.delegate_to or task_vars["inventory_hostname"])
        try:
            with bounds.named(self._asked), _plainly():
                said: dict[str, Any] = super()._execute_module(task_vars=task_vars, **more)
        except _NoAnswer as nothing:
            return nothing.said
        return said

    def _low_level_execute_command(self, *args: Any, **more: Any) -> dict[str, Any]:
        bounds.count_pipes_of(type(self._connection))
        with effort.memory(), _plainly():
            done: dict[str, Any] = super()._low_level_execute_command(*args, **more)  # type: ignore[no-untyped-call]
            bounds.fit(done.get("stdout"))
            if len(errors := str(done.get("stderr") or "")) > bounds.ERRORS_LIMIT:
                raise effort.TooMuch(effort.too_much("standard error", bounds.ERRORS_LIMIT))
        return {**done, "stderr": printable(errors, "\n\t")}

    def _parse_returned_data(self, res: dict[str, Any], profile: str) -> dict[str, Any]:
        """What a module wrote. Ansible shows what stands around the JSON, and believes what is in it: both go first."""
        try:
            answer = sound(res.get("stdout", ""))
        except ValueError as error:
            raise _NoAnswer(self._without_answer(res, str(error))) from error
        facts = answer.get("ansible_facts")
        answer = {key: value for key, value in answer.items() if not _is_order(key)}
        if self.facts and isinstance(facts, dict):
            answer["ansible_facts"] = {key: value for key, value in facts.items() if key in self.facts}
        parsed: dict[str, Any] = super()._parse_returned_data({**res, "stdout": json.dumps(answer)}, profile)
        return parsed

    def _without_answer(self, res: Mapping[str, Any], why: str) -> dict[str, Any]:
        """A failure, with the end of what came in place of an answer."""
        ends = {key: printable(str(res.get(key) or "").strip()[-SHOWN:], "\n\t") for key in ("stdout", "stderr")}
        finding = from_failure(self._asked, " / ".join(filter(None, ends.values())) or why, answered=True)
        said = {f"module_{key}": end for key, end in ends.items()}
        msg = f"{self._asked}: {finding.fact}; {finding.way_out}"
        return {"failed": True, "msg": msg, "rc": res.get("rc"), "_ansible_parsed": False, **said}


def guard_ansible() -> None:
    """Judge modules of others as ours, as far as Ansible goes by what they say, in each process forked from here on.

    An answer is counted before it is parsed, and what Ansible shows of it is plain. No statistics are taken, and no
    fact of a module that is not named for facts. Ansible takes both of any module. Where facts are variables, they
    overrule the inventory, those of a delegated task that of another host. AWX makes variables of the statistics, and
    those of another form than Ansible's end the run of all hosts. Of a module for facts none has the name of a variable
    of ours.
    """
    if ActionBase._execute_module is not _without_ours:
        _believing.append((ActionBase._execute_module, ActionBase._parse_returned_data))
        ActionBase._execute_module = _without_ours  # type: ignore[assignment, method-assign]
        ActionBase._parse_returned_data = _parsed_plainly  # type: ignore[assignment, method-assign]


# A task that asks one host in the name of each other one, and needs no more of its answer than whether it obeyed: as a
# list of lines, 4 MiB are 70 MiB here, for each of those hosts.
_BRIEF = "__gb10_brief"
_STATUS = ("rc", "changed", "failed", "skipped", "unreachable", "_ansible_parsed")
_WORDS = ("msg", "stdout", "stderr")
_FOR_FACTS = re.compile(r"(^|[._])facts?(_[^.]*)?$|(^|\.)(setup|facter|getent|ohai)$")
_FOUND = "discovered_interpreter_"  # by Ansible itself, with any module
_JOB, _JOB_LENGTH = "ansible_job_id", 100  # Ansible says it whenever it asks how far a job is
_believing: list[tuple[Any, Any]] = []  # Ansible's own way to run a module, and to parse its answer, once replaced


def _without_ours(action: ActionBase, module_name: str | None = None, *args: Any, **more: Any) -> dict[str, Any]:
    with bounds.by_name(str(action._task.delegate_to or (more.get("task_vars") or {}).get("inventory_hostname"))):
        answer: dict[str, Any] = _believing[0][0](action, module_name, *args, **more)
    answer.pop("ansible_stats", None)  # set_stats itself asks no host
    if action._task.vars.get(_BRIEF):
        status = {key: answer[key] for key in _STATUS if isinstance(answer.get(key), int)}
        answer = {**status, **{key: str(answer[key])[-SHOWN:] for key in _WORDS if key in answer}}
    if _JOB in answer:
        answer[_JOB] = printable(str(answer[_JOB])[:_JOB_LENGTH])
    if "diff" in answer:
        answer["diff"] = effort.quick(answer["diff"])
    facts = answer.get("ansible_facts")
    if isinstance(facts, Mapping) and facts and not isinstance(action, OwnAction):
        ours = catalog.declared_variables().variables
        # `package`, `service` and `reboot` ask `setup` for what they need to know.
        says_facts = any(_FOR_FACTS.search(str(name)) for name in (action._task.action, module_name))
        answer["ansible_facts"] = {
            name: fact
            for name, fact in facts.items()
            if str(name).startswith(_FOUND) or (says_facts and not str(name).startswith("gb10_") and name not in ours)
        }
    return answer


def _parsed_plainly(action: ActionBase, res: dict[str, Any], *profile: Any) -> dict[str, Any]:
    """Of an answer with more values or levels than one may have nothing is parsed: TooMuch."""
    if not isinstance(action, OwnAction):
        res = {**res, "stdout": _plain_json(str(res.get("stdout", "")))}
    parsed: dict[str, Any] = _believing[0][1](action, res, *profile)
    return parsed


def _plain_json(stdout: str) -> str:
    """The JSON in what a module of Ansible's wrote, without what stands around it; all of it where there is none."""
    try:
        answer = schema.parsed(_filter_non_json_lines(stdout, objects_only=True)[0])
    except schema.TooMany as error:
        raise effort.TooMuch(str(error)) from None
    except RecursionError:
        raise effort.TooMuch(bounds.TOO_DEEP) from None
    except ValueError:
        return stdout  # Ansible says so
    bounds.fit(answer)
    shown = {key: advice.plain(answer[key]) for key in _SHOWN_OF_ALL & answer.keys()}
    return json.dumps({**_typed(answer), **shown})


def _typed(said: Any) -> Any:
    """Objects of Ansible's own, such as the tag that a value is deprecated, are plain: it shows their texts."""
    if isinstance(said, dict):
        return advice.plain(said) if "__ansible_type" in said else {key: _typed(one) for key, one in said.items()}
    return [_typed(one) for one in said] if isinstance(said, list) else said


def documented(module: str) -> dict[str, dict[str, Any]]:
    """The options of a module of ours, as Ansible's argument specification."""
    path = catalog.collection_root() / "plugins" / "modules" / f"{module}.py"
    options = _documentation(path).get("options") or {}
    return {name: {key: said[key] for key in _OF_AN_OPTION if key in said} for name, said in options.items()}


def _documentation(path: Path) -> dict[str, Any]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    values = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    said: dict[str, Any] = catalog.plain_yaml(ast.literal_eval(values["DOCUMENTATION"]))
    return said


def sound(stdout: str) -> dict[str, Any]:
    """The answer of a module in what it wrote, whatever a login shell wrote around it.

    ValueError where there is none; TooMuch where it takes more or is deeper than one may.
    """
    line = next((line for line in reversed(stdout.splitlines()) if line.startswith("{")), "")
    try:
        answer = json.loads(line)
    except RecursionError:
        raise effort.TooMuch(bounds.TOO_DEEP) from None
    bounds.fit(answer)
    clean = {printable(key): cleaned(said, "" if key in _OF_ONE_LINE else "\n\t") for key, said in answer.items()}
    bounds.fit(clean)  # once more: a control character is four and more by now
    clean = advice.plain(clean)  # any of it may be quoted in what we say
    if (length := sum(len(json.dumps(clean.get(key))) for key in _NOTICES)) > WARNINGS_LIMIT:
        clean = {key: said for key, said in clean.items() if key not in _NOTICES}
        clean["warnings"] = [f"the host sent {length} characters of warnings, and may send {WARNINGS_LIMIT}; left out"]
    return clean


def _is_order(key: str) -> bool:
    return key in _ORDERS or (key.startswith("_ansible") and key != _KEPT_INTERNAL)


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Errors of Ansible quote what a host said, an SSH banner for example: they keep their kind, in plain text."""
    try:
        yield
    except AnsibleError as error:
        said = str(error)
        if said == (plain := advice.plain(printable(said, "\n\t"))):
            raise
        raise type(error)(plain) from None
