# SPDX-License-Identifier: GPL-3.0-or-later
"""Live kernel state: sysctls and modules. To survive a reboot they are files too, which `persist` makes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_SYSCTL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_/-]+)+\Z")
_VALUE = re.compile(r"(?![-#;])(?!.*[#;{])[!-~][ -~]*\Z|-[0-9]+\Z")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")


@dataclass(frozen=True)
class Sysctl(Resource):
    KIND = "sysctl"

    value: str = ""
    lenient: bool = False  # an undo: a setting that went with its module is no error

    @property
    def path(self) -> str:
        """Below /proc/sys the dots are slashes; a dot in an interface's name is written as a slash in the sysctl's."""
        return "/proc/sys/" + self.name.translate(str.maketrans("./", "/."))


class SysctlKind(Kind[Sysctl, Mapping[str, "str | None"]]):
    name = Sysctl.KIND

    def parse(self, index: int, fields: Fields) -> Sysctl:
        resource = Sysctl(
            index=index,
            name=fields.name(_SYSCTL, "a sysctl such as net.ipv4.ip_forward"),
            value=" ".join(fields.scalar("value", _VALUE, "a value").split()),
        )
        if set(resource.path.split("/")) & {".", ".."}:
            raise fields.fail("sysctl", f"expected a sysctl such as net.ipv4.ip_forward, found {resource.name!r}")
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[Sysctl]) -> dict[str, str | None]:
        values = {}
        for resource in resources:
            text = system.text(resource.path)
            values[resource.name] = None if text is None else " ".join(text.split())
        return values

    def plan(self, resources: Sequence[Sysctl], state: Mapping[str, str | None], plan: Plan) -> None:
        for resource in resources:
            live = state[resource.name]
            if live is None and resource.lenient:
                continue
            if live is None and not _may_appear(resource, plan):
                raise HostError(f"{resource.label}: this kernel has no such setting ({resource.path} is missing)")
            if live != resource.value:
                detail = f"live {'absent' if live is None else live} -> {resource.value}"
                plan.steps.append(Step(resource, "update", detail))

    def apply(
        self, system: System, steps: Sequence[Step[Sysctl]], state: Mapping[str, str | None], progress: Progress
    ) -> None:
        for step in steps:
            resource = step.resource
            try:
                with system.path(resource.path).open("r+", encoding="ascii") as setting:  # never creates a file
                    setting.write(resource.value + "\n")
            except OSError as error:
                raise HostError(
                    f"{resource.label}: the kernel refuses {resource.value!r} ({error.strerror}); inside a"
                    " container the setting belongs to the host outside"
                ) from None
            progress.done.append(step)

    def record(self, resource: Sysctl, state: Mapping[str, str | None]) -> dict[str, Any]:
        return {"value": state[resource.name]}

    def restore(self, resource: Sysctl, record: Mapping[str, Any]) -> list[Resource]:
        """A setting that was not there goes with the module that brought it."""
        return [] if record["value"] is None else [replace(resource, value=record["value"], lenient=True)]

    def persist(self, role: str, resources: Sequence[Sysctl]) -> list[tuple[int, dict[str, Any]]]:
        lines = "".join(f"{sysctl.name} = {sysctl.value}\n" for sysctl in resources)
        return [(resources[0].index, {"file": f"/etc/sysctl.d/90-gb10-{role}.conf", "content": _note(role) + lines})]


def _may_appear(resource: Sysctl, plan: Plan) -> bool:
    """Return whether something earlier in the document can bring the setting: a module, or a package with one."""
    return any(
        step.resource.KIND in (Module.KIND, "package") and step.resource.index < resource.index for step in plan.steps
    )


@dataclass(frozen=True)
class Module(Resource):
    """`absent`: not loaded at boot by us, and unloaded unless something uses it."""

    KIND = "kernel_module"

    state: str = "present"

    @property
    def kernel_name(self) -> str:
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Modules:
    """The modules that the kernel has, loaded or built in, and those of them that could be unloaded now."""

    present: frozenset[str]
    unused: frozenset[str]


class ModuleKind(Kind[Module, Modules]):
    name = Module.KIND

    def parse(self, index: int, fields: Fields) -> Module:
        resource = Module(
            index=index,
            name=fields.name(_MODULE, "the name of a kernel module"),
            state=fields.choice("state", ("present", "absent"), "present"),
        )
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[Module]) -> Modules:
        # rdma_cm 163840 2 rdma_ucm,ib_iser, Live 0x0: name, size, users, modules among them (or [permanent]), state
        rows = [line.split() for line in (system.text("/proc/modules") or "").splitlines() if line]
        unused = {row[0] for row in rows if row[2:4] == ["0", "-"]}
        release = (system.text("/proc/sys/kernel/osrelease") or "").strip()
        built_in = (system.text(f"/lib/modules/{release}/modules.builtin") or "").split()
        names = [*(row[0] for row in rows), *(path.rpartition("/")[2].partition(".")[0] for path in built_in)]
        return Modules(frozenset(name.replace("-", "_") for name in names), frozenset(unused))

    def plan(self, resources: Sequence[Module], state: Modules, plan: Plan) -> None:
        for resource in resources:
            if resource.state == "present" and resource.kernel_name not in state.present:
                plan.steps.append(Step(resource, "load", "not loaded"))
            elif resource.state == "absent" and resource.kernel_name in state.unused:
                plan.steps.append(Step(resource, "unload", "loaded, and nothing uses it"))

    def apply(self, system: System, steps: Sequence[Step[Module]], state: Modules, progress: Progress) -> None:
        for step in steps:
            options = ["-r"] if step.action == "unload" else []
            done = system.run(["modprobe", *options, step.resource.name])
            if done.rc == 0:
                progress.done.append(step)
            elif step.action == "unload" and "in use" in done.words:
                # Somebody was faster. It stays until the next boot, as one does that was in use from the start.
                progress.done.append(replace(step, detail="in use, stays until the next boot"))
            else:
                raise HostError(f"{step.resource.label}: modprobe: {done.words}")

    def record(self, resource: Module, state: Modules) -> dict[str, Any]:
        return {"loaded": resource.kernel_name in state.present}

    def restore(self, resource: Module, record: Mapping[str, Any]) -> list[Resource]:
        return [replace(resource, state="present" if record["loaded"] else "absent")]

    def persist(self, role: str, resources: Sequence[Module]) -> list[tuple[int, dict[str, Any]]]:
        lines = "".join(f"{module.name}\n" for module in resources if module.state == "present")
        wish = {"content": _note(role) + lines} if lines else {"state": "absent"}
        return [(resources[0].index, {"file": f"/etc/modules-load.d/gb10-{role}.conf", **wish})]


def _note(role: str) -> str:
    return f"# Written by gb10.fleet for the role {role}.\n"
