# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Live kernel state: sysctls and modules. To survive a reboot they are files too, which the engine derives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.module_utils.resources.common import (
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.resources.files import File
from ansible_collections.gb10.fleet.plugins.module_utils.system import HostError, System

_SYSCTL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_/-]+)+\Z")
_VALUE = re.compile(r"[^\s#;-][^#;]*\Z|-[0-9]+\Z")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")


@dataclass(frozen=True)
class Sysctl(Resource):
    KIND = "sysctl"

    value: str = ""

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


def _may_appear(resource: Sysctl, plan: Plan) -> bool:
    """Whether something earlier in the document can bring the setting: a module, or a package with one."""
    return any(
        step.resource.KIND in (Module.KIND, "package") and step.resource.index < resource.index for step in plan.steps
    )


@dataclass(frozen=True)
class Module(Resource):
    KIND = "kernel_module"

    @property
    def kernel_name(self) -> str:
        return self.name.replace("-", "_")


class ModuleKind(Kind[Module, frozenset[str]]):
    name = Module.KIND

    def parse(self, index: int, fields: Fields) -> Module:
        resource = Module(index=index, name=fields.name(_MODULE, "the name of a kernel module"))
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[Module]) -> frozenset[str]:
        """The names of the modules that the kernel has, loaded or built in."""
        loaded = [line.split()[0] for line in (system.text("/proc/modules") or "").splitlines() if line]
        release = (system.text("/proc/sys/kernel/osrelease") or "").strip()
        built_in = (system.text(f"/lib/modules/{release}/modules.builtin") or "").split()
        names = [*loaded, *(path.rpartition("/")[2].partition(".")[0] for path in built_in)]
        return frozenset(name.replace("-", "_") for name in names)

    def plan(self, resources: Sequence[Module], state: frozenset[str], plan: Plan) -> None:
        for resource in resources:
            if resource.kernel_name not in state:
                plan.steps.append(Step(resource, "load", "not loaded"))

    def apply(self, system: System, steps: Sequence[Step[Module]], state: frozenset[str], progress: Progress) -> None:
        for step in steps:
            done = system.run(["modprobe", step.resource.name])
            if done.rc != 0:
                raise HostError(f"{step.resource.label}: modprobe: {done.words}")
            progress.done.append(step)


def persistence(role: str, resources: Sequence[Resource]) -> list[File]:
    """The files that set the sysctls and load the modules of a document at boot, at the place of the first of each."""
    note = f"# Written by gb10.fleet for the role {role}.\n"
    files = []
    sysctls = [resource for resource in resources if isinstance(resource, Sysctl)]
    if sysctls:
        lines = "".join(f"{sysctl.name} = {sysctl.value}\n" for sysctl in sysctls)
        files.append(File(sysctls[0].index, f"/etc/sysctl.d/90-gb10-{role}.conf", content=note + lines))
    modules = [resource for resource in resources if isinstance(resource, Module)]
    if modules:
        lines = "".join(f"{module.name}\n" for module in modules)
        files.append(File(modules[0].index, f"/etc/modules-load.d/gb10-{role}.conf", content=note + lines))
    return files
