# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings a host to the state that documents describe: renders them here, sends them in one call to the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.template import trust_as_template
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import DocumentError
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import changes

# The guess of last time, the facts of now, and once more for a host that changed in between.
CALLS = 3


class ActionModule(OwnAction):
    """Look, and apply what differs."""

    _supports_diff = True
    conditions: ClassVar = {
        "mutually_exclusive": [("resources", "roles"), ("role", "roles")],
        "required_one_of": [("resources", "roles")],
    }

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        host.check_roles(options["roles"] or ())
        self._host = host.Host(self, task_vars)
        self._consents = options["consents"]
        self._whole_diff = bool(task_vars.get("ansible_diff_mode"))
        self._calls = 0
        self._lacks: dict[str, list[str]] = {}
        self._waits_for: list[str] = []
        if options["roles"] is None:
            role = options["role"] or str(task_vars.get("ansible_role_name", "")).rpartition(".")[2]
            return self._outcome(self._inline(role, options["resources"]))
        refusals, answer = self._roles(options["roles"])
        if refusals:
            said = {"refusals": refusals, "waits_for": self._waits_for, "msg": "\n".join(refusals)}
            return {"failed": True, "changed": False, **self._lacks, **said}
        return self._outcome(answer) if answer else {"changed": False}

    def _inline(self, role: str, raw: Any) -> dict[str, Any]:
        if not isinstance(raw, (list, tuple)):
            raise AnsibleActionFail("resources: expected a list")
        resources = [self._rendered(index, resource) for index, resource in enumerate(raw)]
        try:  # what the engine would say, without a call to the host
            parse_documents([(role, resources)], {})
        except DocumentError as error:
            raise AnsibleActionFail(str(error)) from None
        return self._call([{"role": role, "resources": resources}])

    def _roles(self, roles: Sequence[str]) -> tuple[list[str], dict[str, Any] | None]:
        """What speaks against the documents of the roles, or the answer to them."""
        facts, verified = self._host.last_facts, self._host.facts is not None
        while self._calls < CALLS:
            if facts is None:
                self._calls += 1
                facts, verified = self._host.read_facts(), True
            try:
                context, rendered = self._host.render(roles, facts)
            except Exception:  # what the host said last time is a guess, and no plan may be made of it at all
                if verified:
                    raise
                facts = None
                continue
            refusals = self._host.refusals(rendered)
            if not verified and refusals:
                facts = None  # the host may be another one by now
                continue
            self._lacks = host.lacking(rendered)
            self._waits_for = self._host.waits_for(rendered)
            if refusals:
                return refusals, None
            answer = self._call(host.documents_of(rendered), expect=context.expect)
            self._lacks = host.lacking(rendered, answer)
            if not answer["stale"]:
                return [], answer
            facts, verified = answer["facts"], True
        raise AnsibleActionFail(
            f"{self._host.name}: its facts changed with every call ({', '.join(answer['stale'])}); "
            "find out what changes them, then run again"
        )

    def _call(self, sent: Sequence[Mapping[str, Any]], *, expect: Mapping[str, str] | None = None) -> dict[str, Any]:
        self._calls += 1
        return self._host.converge(sent, check=bool(self._task.check_mode), expect=expect, consents=self._consents)

    def _outcome(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        result = {key: answer[key] for key in ("changes", "pending", "orphans", "subprocesses")}
        result.update(changed=bool(answer["changes"]), remote_calls=self._calls, **self._lacks)
        if answer["error"]:
            result.update(failed=True, msg=f"{self._host.name}: {answer['error']['message']}")
            return result
        if answer["facts"]:
            result["ansible_facts"] = host.said_now(answer["facts"])
        if self._task.diff:
            result["diff"] = changes.diff(self._host.name, answer, whole=self._whole_diff)
        result["warnings"] = host.warnings(self._host.name, answer, self._host.asked)
        return result

    def _rendered(self, index: int, raw: Any) -> Any:
        """An inline resource with `content` in place of `template`."""
        where = f"resources[{index}]"
        try:
            resource = documents.plain(raw)
        except TypeError as error:
            raise AnsibleActionFail(f"{where}: {error}") from None
        if not isinstance(resource, dict) or resource.get("template") is None:
            return resource
        name = resource.pop("template")
        if "file" not in resource or not isinstance(name, str):
            raise AnsibleActionFail(f"{where}.template: expected the name of a template, for a file resource")
        if any(resource.get(key) is not None for key in documents.FILE_CONTENTS):
            raise AnsibleActionFail(f"{where}.template: is for a file without {', '.join(documents.FILE_CONTENTS)}")
        source = Path(self._find_needle("templates", name))  # type: ignore[no-untyped-call]
        text = trust_as_template(self._loader.get_text_file_contents(str(source)))
        templar = self._templar.copy_with_new_env(searchpath=[str(source.parent)])
        content = templar.template(text, escape_backslashes=False, overrides={"trim_blocks": True})
        return {**resource, "content": str(content)}


host.preload()
