# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that a vendor's own apt repository offers: which version a host gets, and who brings the repository.

The roles docker and container_toolkit share both rules. A newer version stays, because going back would take its
security fixes away. A source of our own comes only where no other one offers the package: two definitions of one
repository stop every apt command.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system import debian_version
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View


@dataclass(frozen=True)
class Source:
    """A definition of the repository that the role may bring."""

    file: str
    brought: bool
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True)
class VendorPackages:
    """The packages that a role takes from a vendor. Its variables are `<role>_version` and `<role>_source`."""

    role: str
    package: str  # the one that stands for all of them
    vendor: str  # in the catalog's and the variable's words; its name as `<role>_source` always brings the source
    whose: str  # the vendor in a sentence

    @property
    def file(self) -> str:
        return f"/etc/apt/sources.list.d/gb10-{self.role.replace('_', '-')}.sources"

    def installed(self, view: View) -> str | None:
        version: str | None = view.facts["packages"].get(self.package)
        return version

    def version(self, view: View, asked: str) -> str:
        """The version to have: the one asked for, or a newer one that is installed."""
        installed = self.installed(view) or "0"
        try:
            version = installed if debian_version.newer_than(installed, asked) else asked
        except ValueError as error:
            raise SettingsError(f"{self.role}_version: {error}") from error
        if "-" not in asked:  # 29, or 29.2.1: a part of what apt calls it
            usual = catalog.load("software")[self.role]["value"]
            raise SettingsError(
                f"{self.role}_version is '{asked}', and apt calls no version of {self.package} so. Write it as apt does"
                f" (`apt-cache madison {shlex.quote(self.package)}`), for example {usual}, or leave it out."
            )
        return version

    def source(self, view: View, choice: str) -> Source:
        """Tell whether the role brings a source; `choice` is auto, host (never) or the vendor (always)."""
        offered_by: Sequence[str] = catalog.load("software")[f"{self.role}_repository"]["offered_by"]
        sources = view.facts["apt_sources"]
        others: list[Mapping[str, Any]] = [entry for entry in sources["entries"] if entry["file"] != self.file]
        if choice == self.vendor:
            rivals = [entry["file"] for entry in others if f"//{offered_by[0]}" in entry["uri"]]
            return Source(self.file, brought=True, refusals=self._refusals(rivals))
        # A source that is brought stays: what it offers is installed by now.
        is_ours = len(others) < len(sources["entries"])
        # A known source counts before apt has fetched its lists as well.
        is_offered = (
            self.installed(view) is not None
            or self.package in sources["offered"]
            or any(uri in entry["uri"] for entry in others for uri in offered_by)
        )
        return Source(self.file, brought=choice == "auto" and (is_ours or not is_offered))

    def _refusals(self, rivals: Sequence[str]) -> tuple[str, ...]:
        if not rivals:
            return ()
        variable, files = f"{self.role}_source", ", ".join(dict.fromkeys(rivals))
        return (
            f"{variable} is {self.vendor}, and {files} defines {self.whose} repository already: a second definition"
            f" with another key file would stop every apt command. Set {variable} to 'auto', or remove that file"
            " first.",
        )
