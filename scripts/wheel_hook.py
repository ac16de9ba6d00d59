"""What a wheel holds beside the folders of the collection: the files at its top, from which Ansible reads the version.

An editable installation must not have them: Ansible would take the folder they are in for the collection.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = ("README.md", "CHANGELOG.rst", "galaxy.yml")


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling calls it before each build of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"].update({name: f"ansible_collections/gb10/fleet/{name}" for name in FILES})
