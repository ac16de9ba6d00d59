# SPDX-License-Identifier: GPL-3.0-or-later
"""One host in one task, as doctor and host_state see it: its variables, its cluster, its facts, the call to it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import Facts
from ansible_collections.gb10.fleet.plugins.module_utils.system.consent import give
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, limits, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import RUN, before_forks
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice, last_facts, target, transport

REPLACES = "fabric_replace_foreign"  # is asked for like a consent, too


def said_now(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a host as Ansible gets them, with the name of the run: a fact cache may keep them for later ones."""
    return {"gb10_spark": facts, "gb10_run": RUN}


def preload() -> None:
    """Everything that is the same for all hosts. What is damaged is said by the task that needs it."""
    with contextlib.suppress(documents.RenderError, catalog.CatalogError, OSError, SyntaxError):
        documents.preload()
        transport.preload()
        catalog.collection_version()
        catalog.declared_variables()
    before_forks()


class _Lazy(Mapping[str, Any]):
    """A mapping over another one, whose values are made when they are first asked for."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    def __contains__(self, name: object) -> bool:
        return name in self._raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


class Variables(_Lazy):
    """A host's variables in Python's own types."""

    def __init__(self, raw: Mapping[str, Any], template: Callable[[Any], Any]) -> None:
        super().__init__(raw)
        self._template = template
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            raw = self._raw[name]
            self._known[name] = documents.plain(raw if _is_literal(raw) else self._template(raw))
        return self._known[name]


class Inventory(_Lazy):
    """The variables of every host of the inventory."""

    def __getitem__(self, host: str) -> Variables:
        return Variables(self._raw[host], lambda value: value)


def _is_literal(value: Any) -> bool:
    """Return whether Ansible's templating, which is slow, would give back the same."""
    if value is None or isinstance(value, (bool, int, float)):
        return True
    if isinstance(value, str):
        return "{" not in value
    if isinstance(value, dict):
        return all(_is_literal(key) and _is_literal(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(_is_literal(item) for item in value)
    return False  # an encrypted value, for example


class Host:
    """The host that a task runs for."""

    asked: Container[str] = ()  # the consents that the last request named

    def __init__(self, action: ActionBase, task_vars: Mapping[str, Any], templar: Any = None) -> None:
        """`templar`: for a host that is not the one of the action's own task."""
        target.refuse_inventory(task_vars)
        self._action = action
        self._task_vars = task_vars
        self.name = str(task_vars["inventory_hostname"])
        self.variables = Variables(task_vars, (templar or action._templar).template)

    @property
    def facts(self) -> dict[str, Any] | None:
        """What the host said in this run."""
        return _facts_in(self._task_vars)

    @property
    def last_facts(self) -> dict[str, Any] | None:
        """What the host said in this run, or else in an earlier one."""
        return self.facts or last_facts.read(self.name, self._address)

    @cached_property
    def _address(self) -> str:
        return str(self.variables.get("ansible_host", self.name))

    @property
    def roles(self) -> list[str]:
        """The roles that this host gets, in the order of work."""
        wanted = self.variables.get("gb10_roles", catalog.ROLES)
        return [role for role in catalog.ROLES if isinstance(wanted, (list, tuple)) and role in wanted]

    @cached_property
    def members(self) -> list[str]:
        """The hosts of the cluster. One that is not in the group it names stands alone; doctor says what is wrong."""
        group = self._task_vars.get("groups", {}).get(str(self.variables.get("gb10_cluster")), ())
        return [str(member) for member in group] if self.name in group else [self.name]

    def render(
        self, roles: Sequence[str], facts: Mapping[str, Any], *, looking: bool = False
    ) -> tuple[View, list[documents.Rendered]]:
        """The documents of the roles. Why one cannot be rendered is a refusal.

        `looking`: the other members of the cluster are looked at in the very same task, so what they said last time has
        to do, and no host is refused for it. To apply takes what they said in this run: addresses follow from it.
        """
        view = self.view(facts, looking=looking)
        rendered = []
        for role in roles:
            try:
                rendered.append(documents.render(role, view))
            except documents.RenderError as error:
                rendered.append(documents.Rendered(role, refusals=[str(error)]))
        return view, rendered

    def view(self, facts: Mapping[str, Any], *, looking: bool = False) -> View:
        """What planners see of this host and its cluster; `looking` as for `render`."""
        hostvars = self._task_vars["hostvars"]
        others = [member for member in self.members if member != self.name]
        # What hostvars gives is evaluated, each host's variables among themselves.
        given = {member: Variables(hostvars[member], lambda value: value) for member in others}
        now = {member: _facts_in(hostvars.raw_get(member)) for member in others}
        peers = dict(now)
        for member in others if looking else ():
            peers[member] = now[member] or last_facts.read(member, str(given[member].get("ansible_host", member)))
        return View(
            self.name,
            advice.quotable(facts),
            self.variables,
            self.members,
            {member: advice.quotable(known) for member, known in peers.items() if known},
            given,
            certain=not looking or all(now.values()),
            groups=self._task_vars.get("groups", {}),
            inventory=Inventory(hostvars),
        )

    def refusals(self, rendered: Sequence[documents.Rendered]) -> list[str]:
        """What speaks against the roles, each text with the name of this host."""
        if gone := self.waits_for(rendered):
            who = ", ".join(gone)
            return [f"{self.name}: waits for {who} of its cluster, which failed earlier in this run: mend that first"]
        return [named(self.name, text) for document in rendered for text in _against(document)]

    def waits_for(self, rendered: Sequence[documents.Rendered]) -> list[str]:
        """Members that failed earlier in this run, where nothing but their facts is missing.

        This host has no fault of its own then: it only stands beside them.
        """
        missing = {name for document in rendered for name in document.unknown}
        gone = {*self._task_vars["ansible_play_hosts_all"]} - {*self._task_vars["ansible_play_hosts"]}
        own_fault = any(document.refusals for document in rendered)
        return sorted(missing) if missing <= gone and not own_fault else []

    def read_facts(self) -> dict[str, Any]:
        """The facts of now, by a call that does nothing else."""
        answer = self.converge([], check=True)
        if answer["error"]:
            raise AnsibleActionFail(f"{self.name}: {answer['error']['message']}")
        facts: dict[str, Any] = answer["facts"]
        return facts

    def converge(
        self,
        sent: Sequence[Mapping[str, Any]],
        *,
        check: bool,
        expect: Mapping[str, str] | None = None,
        consents: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One call to the engine; without documents it only says the facts. They are kept for the next run."""
        request = self.request(sent, check=check, expect=expect, consents=consents)
        self.asked = request["consents"]
        return self.heard(transport.call(self._action, request, self._task_vars))

    def request(
        self,
        sent: Sequence[Mapping[str, Any]],
        *,
        check: bool,
        expect: Mapping[str, str] | None = None,
        consents: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """What the engine is asked."""
        orphans = self._setting("gb10_orphans") or "show"
        # What a role no longer declares may need a consent that no document names.
        removes = [document["role"] for document in sent if documents.removes_orphans(document["role"])]
        takes_back = sent and (orphans == "remove" or removes)
        asked = _consents_in(sent) | (declared_consents() if takes_back else set())
        return {
            "verb": "converge",
            "check": check,
            "documents": sent,
            "consents": said_consents(self.variables, asked, consents or {}),
            "expect": expect or {},
            "facts": {"paths": list(limits.own_minimums(self._setting("gb10_minimum_free_gib"))), **self._models()},
            "project": catalog.collection_version(),
            "run": RUN,
            "orphans": orphans,
            "removes": removes,
        }

    def _models(self) -> dict[str, list[str]]:
        """The folders of models that this machine does not know: the host says what lies there."""
        if "vllm" not in self.roles or not (self._setting("vllm_model") or self._setting("vllm_services")):
            return {}
        # Imported where a host serves: the catalog of models takes a while to read.
        from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import on_host

        found = on_host.of_services(self._setting, catalog.declared_variables().variables)
        return {"models": found} if found else {}

    def heard(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The engine's answer, of which the next run remembers the facts."""
        if answer.get("facts"):
            if wrong := schema.missing(answer["facts"], Facts, "facts"):  # their types were judged as they came
                raise transport.NoAnswer(self.name, printable(wrong))
            last_facts.write(self.name, self._address, answer["facts"])
        return answer

    def _setting(self, name: str) -> Any:
        """A variable of ours; where it does not evaluate, doctor has said so, and wants the facts all the same."""
        with contextlib.suppress(AnsibleError):
            return self.variables.get(name)
        return None


def documents_of(rendered: Sequence[documents.Rendered]) -> list[dict[str, Any]]:
    """What is to be sent of them: the documents that nothing speaks against."""
    return [
        {"role": document.role, "resources": document.resources}
        for document in rendered
        if not document.refusals and not document.unknown
    ]


def check_roles(names: Iterable[str]) -> None:
    """Refuse a name that is no role of ours."""
    for name in names:
        if name not in catalog.ROLES:
            known = ", ".join(catalog.ROLES)
            raise AnsibleActionFail(f"roles: {name} is no role of this collection; there are {known}")


def _against(document: documents.Rendered) -> list[str]:
    """What speaks against a role, missing facts of its cluster among it."""
    missing = (
        f"the role {document.role} needs the facts of {', '.join(document.unknown)}, read in this run: "
        "run without --limit and serial, with gb10.fleet.doctor or gb10.fleet.spark_facts on the whole cluster first"
    )
    return document.refusals + ([missing] if document.unknown else [])


def named(host: str, text: str) -> str:
    """A refusal with the name of its host, once: the plan of a cluster names the host that it is about itself."""
    return text if text.startswith((f"{host}: ", f"{host} ")) else f"{host}: {text}"


def warnings(host: str, answer: Mapping[str, Any], asked: Container[str]) -> list[str]:
    """What an operator has to know of an answer that is no failure. `asked`: the consents that the request named."""
    waiting = [
        f"{host}: {item['resource']}: {item['action']} waits for your consent: {give(item['consent'])}"
        if item.get("consent") in asked
        else f"{host}: {item['resource']}: {item['action']} waits for a consent that it was not asked about: give none,"
        " and look at that host"
        for item in answer["pending"]
    ]
    left = [
        f"{host}: {item['resource']}: the role {item['role']} declares it no longer, and it may stay; "
        "-e gb10_orphans=remove removes it"
        for item in answer["orphans"]
    ]
    return waiting + left


def _facts_in(variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a host said in this run."""
    known = variables.get("ansible_facts", {})
    return documents.plain(known["gb10_spark"]) if known.get("gb10_run") == RUN and known["gb10_spark"] else None


def _consents_in(sent: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names of the consents that documents ask for."""
    return {
        resource["consent"]
        for document in sent
        for resource in (document["resources"] if isinstance(document["resources"], list) else ())
        if isinstance(resource, dict) and isinstance(resource.get("consent"), str)
    }


def declared_consents() -> set[str]:
    """The names of every consent that a role of the collection knows."""
    options = catalog.declared_variables().variables
    return {name for name, option in options.items() if option["type"] == "bool" and "_allow_" in name}


def asked_for() -> set[str]:
    """The names of all that an operator is asked for before something of theirs stops."""
    return declared_consents() | {REPLACES}


def lacking(rendered: Sequence[documents.Rendered], answer: Mapping[str, Any] | None = None) -> dict[str, list[str]]:
    """`lacks`: what a run on the host waits for by our own decisions, of `asked_for`; nothing where there is none.

    A role's refusal may quote the host, so it names those of the role alone. In its own words a host may only name what
    its documents ask for.
    """
    found = {
        name
        for made in rendered
        for text in made.refusals
        for name in _mentioned(asked_for(), text)
        if name.startswith(f"{made.role}_")
    }
    if answer:
        of_fabric = {REPLACES for made in rendered if made.role == "fabric"}
        said = answer["error"]["message"] if answer["error"] else ""
        waits = {item.get("consent") for item in answer["pending"]}.union(_mentioned(asked_for(), said))
        found |= waits & (_consents_in(documents_of(rendered)) | of_fabric)
    return {"lacks": sorted(found)} if found else {}


def _mentioned(names: Iterable[str], text: str) -> set[str]:
    return {name for name in names if re.search(rf"\b{name}\b", text)}


def said_consents(variables: Mapping[str, Any], names: Iterable[str], given: Mapping[str, Any]) -> dict[str, bool]:
    """The operator's word for each, and for those given with the task; not set means no."""
    values = {name: variables.get(name, False) for name in names} | dict(given)
    return {name: consent(name, value) for name, value in sorted(values.items())}


def consent(name: str, value: Any) -> bool:
    """A consent as text, for example from the command line: "false" must not pass for true, nor "maybe" for false."""
    try:
        return bool(boolean(value, strict=True))
    except TypeError:
        raise AnsibleActionFail(f"{name}: expected true or false, found {value!r}") from None
