# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of host_state: renders templates, looks up the role and the operator's consents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.template import trust_as_template


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        resources = arguments.get("resources")
        if isinstance(resources, list):  # anything else is for the module to refuse
            arguments["resources"] = [self._rendered(index, raw) for index, raw in enumerate(resources)]
            stated = arguments.get("consents") or {}
            if isinstance(stated, dict):
                consents = {**self._consents(resources, variables), **stated}
                arguments["consents"] = {name: _boolean(name, value) for name, value in consents.items()}
        arguments.setdefault("role", str(variables.get("ansible_role_name", "")).rpartition(".")[2])
        answer = self._execute_module(
            module_name="gb10.fleet.host_state",
            module_args=arguments,
            # The contents of files are nothing for the journal of the host, where modules log their arguments.
            task_vars={**variables, "ansible_no_target_syslog": True},
        )
        result.update(answer)
        result.pop("invocation", None)  # it repeats the whole document
        return result

    def _rendered(self, index: int, raw: Any) -> Any:
        """The resource with `content` in place of `template`."""
        if not isinstance(raw, dict) or raw.get("template") is None:
            return raw
        where = f"resources[{index}].template"
        name = raw["template"]
        if "file" not in raw or not isinstance(name, str):
            raise AnsibleActionFail(f"{where}: expected the name of a template, for a file resource")  # type: ignore[no-untyped-call]
        if any(raw.get(key) is not None for key in ("content", "merge_json", "default_json")):
            raise AnsibleActionFail(f"{where}: a file with a template has no content, merge_json or default_json")  # type: ignore[no-untyped-call]
        source = Path(self._find_needle("templates", name))  # type: ignore[no-untyped-call]
        text = trust_as_template(self._loader.get_text_file_contents(str(source)))
        templar = self._templar.copy_with_new_env(searchpath=[str(source.parent)])
        content = templar.template(text, escape_backslashes=False, overrides={"trim_blocks": True})
        return {**{key: value for key, value in raw.items() if key != "template"}, "content": str(content)}

    def _consents(self, resources: list[Any], variables: dict[str, Any]) -> dict[str, Any]:
        """The values of the variables that the resources name as consent; not set means no."""
        names = [raw.get("consent") for raw in resources if isinstance(raw, dict)]
        return {name: self._templar.template(variables.get(name, False)) for name in names if isinstance(name, str)}


def _boolean(name: str, value: Any) -> bool:
    """A consent as text, for example from the command line: "false" must not pass for true, nor "maybe" for false."""
    try:
        return bool(boolean(value, strict=True))  # type: ignore[no-untyped-call]
    except TypeError:
        raise AnsibleActionFail(f"{name}: expected true or false, found {value!r}") from None  # type: ignore[no-untyped-call]
