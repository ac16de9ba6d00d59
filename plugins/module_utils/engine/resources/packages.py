# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages, installed or removed in one apt transaction, and only what was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import apt_errors
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources import dependencies, rebuilds
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    LEADING_PACKAGE,
    PACKAGES,
    Fields,
    Kind,
    Pending,
    Plan,
    Prediction,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.dpkg import (
    APT_OPTIONS,
    PACKAGE,
    Simulation,
    in_order,
    run_locked,
    simulate,
    wait_for_dpkg,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_paths import is_apt_source
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.holds import Hold
from ansible_collections.gb10.fleet.plugins.module_utils.reading import apt_sources
from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import (
    STATUS,
    Database,
    Installed,
    read_automatic,
    read_database,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.consent import give
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import Entry
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_VERSION = re.compile(r"[0-9][A-Za-z0-9.+:~-]*\*?\Z")


@dataclass(frozen=True)
class Package(Resource):
    KIND = "package"

    state: str = "present"
    version: str = ""  # empty: any; with * behind: any that starts so
    consent: str | None = None
    allowed: bool = True  # whether the operator lets an installed version be exchanged or removed
    purge: bool = False  # only an undo removes the package's configuration, too
    way_back: bool = False  # an undo: what apt does not know by now, no update of its lists will bring

    @property
    def leading(self) -> int:
        return LEADING_PACKAGE

    @property
    def stage(self) -> int:
        return PACKAGES

    @property
    def prerequisites(self) -> tuple[Resource, ...]:
        return (in_order(self.role),)

    def accepts(self, version: str) -> bool:
        if self.version.endswith("*"):
            return version.startswith(self.version[:-1])
        return version == self.version or not self.version

    @property
    def argument(self) -> str:
        """As apt-get install wants it: a minus behind the name removes."""
        if self.state == "absent":
            return f"{self.name}-"
        return f"{self.name}={self.version}" if self.version else self.name


@dataclass(frozen=True)
class PackageState:
    """`known` and `simulation` are asked only if a package is not as wanted; no simulation where it would be wrong.

    `closed`: installed packages that the operator has not consented to touch, with the variable that would. `misfits`:
    installed packages of a wanted version that were built for what this transaction takes away.
    """

    database: Database
    known: Mapping[str, frozenset[str]]
    simulation: Simulation | None
    closed: Mapping[str, str]
    conflicts: Sequence[Mapping[str, Any]] = ()  # of apt's sources; asked only if a package is not as wanted
    misfits: frozenset[str] = frozenset()
    culprits: frozenset[str] = frozenset()  # of a transaction that is refused: the packages to which that is due

    def drift(self, resource: Package) -> tuple[str, str] | None:
        """Action and detail of what differs."""
        installed = self.database.installed.get(resource.name)
        if installed is not None and resource.name in self.misfits:
            return "exchange", f"{installed.version}, built for another version -> {resource.version}"
        return _drift(resource, installed)


class PackageKind(Kind[Package, PackageState]):
    name = Package.KIND

    def parse(self, index: int, fields: Fields) -> Package:
        consent = fields.consent()
        resource = Package(
            index=index,
            name=fields.name(PACKAGE, "the name of a package"),
            state=fields.choice("state", ("present", "absent"), "present"),
            version=fields.line("version", "", _VERSION, "a version, or the start of one with * behind"),
            consent=consent,
            allowed=fields.consented(consent),
        )
        if resource.version and resource.state == "absent":
            raise fields.fail("version", "state absent removes every version")
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[Package]) -> PackageState:
        database = system.once(read_database)
        closed = {
            resource.name: resource.consent or ""
            for resource in resources
            if not resource.allowed and resource.name in database.installed
        }
        drifted = [
            resource
            for resource in resources
            if resource.name not in closed and _drift(resource, database.installed.get(resource.name))
        ]
        misfits = _misfits(system, resources, drifted, database)
        drifted += [resource for resource in resources if resource.name in misfits and resource.name not in closed]
        known = ask_policy(system, [resource.name for resource in drifted if resource.state == "present"])
        conflicts = apt_sources.conflicts(apt_sources.read_sources(system)) if drifted else []
        blind = not drifted or conflicts or database.unfinished or _unknown(drifted, known)
        simulation = None if blind else _simulate(system, drifted, database)
        state = PackageState(database, known, simulation, closed, conflicts, misfits)
        return replace(state, culprits=_culprits(system, drifted, simulation, state)) if simulation else state

    def plan(self, resources: Sequence[Package], state: PackageState, plan: Plan) -> None:
        drifted: list[Package] = []
        for resource in resources:
            installed = state.database.installed.get(resource.name)
            drift = state.drift(resource)
            if drift is None:
                continue
            action, detail = drift
            if installed is not None and installed.held and not (_freed(resource, plan) or _own_hold(resource, plan)):
                raise HostError(
                    f"{resource.label}: {installed.version} is on hold and the document wants"
                    f" {resource.version or resource.state}; if that is meant, free it with `apt-mark unhold"
                    f" {resource.name}` and run again"
                )
            if resource.name in state.closed:
                plan.pending.append(Pending(resource, action, state.closed[resource.name], detail))
                continue
            if _unknown([resource], state.known):
                if resource.way_back:
                    raise HostError(
                        f"{resource.label}: {resource.version or 'it'} stood here before, and no apt source offers it"
                        f" (offered versions: {_offered(resource, state.known)}); install it by hand, or give apt a"
                        " source that has it and run `apt-get update`, then run again"
                    )
                detail += " (apt does not know it yet: its lists are updated first)"
            plan.steps.append(Step(resource, action, detail))
            drifted.append(resource)
        if drifted:
            # Sources or pins that change before the packages do would change apt's answer: it is not asked to foretell.
            last = max(resource.index for resource in drifted)
            sources = [step for step in plan.steps if is_apt_source(step.resource.name)]
            if state.conflicts and not any(step.resource.index < last for step in sources):
                told = f"{drifted[0].label}: apt_sources_conflict: {apt_sources.told(state.conflicts)}"
                raise HostError(f"{told}; {apt_sources.WAY_OUT}")
            trusted = None if any(step.resource.index < last for step in sources) else state.simulation
            if trusted is not None and not (plan.pending and drifted[0].way_back):
                # An undo that waits for consent changes nothing, and apt was asked for less than all of it: what
                # it would remove besides is what waits, and no person has to remove that by hand.
                _refuse(drifted, trusted, state)
            plan.prediction = predict(drifted, state.database, trusted)

    def prepare(self, system: System, plan: Plan, state: PackageState) -> None:
        """What lists of apt's are too old to tell is refused before anything is written."""
        wanted = [step.resource for step in plan.steps if isinstance(step.resource, Package)]
        if not _unknown(wanted, state.known) or state.database.unfinished:
            return
        if any(is_apt_source(step.resource.name) for step in plan.steps):  # what apt says follows from them
            return
        _update_lists(system, wanted)
        simulation = _simulate(system, wanted, state.database)
        _refuse(wanted, simulation, replace(state, culprits=_culprits(system, wanted, simulation, state)))

    def apply(self, system: System, steps: Sequence[Step[Package]], state: PackageState, progress: Progress) -> None:
        wanted = [step.resource for step in steps]
        if progress.lists_stale or (_unknown(wanted, state.known) and _unknown(wanted, _known(system, wanted))):
            _update_lists(system, wanted)
            progress.lists_stale = False
        simulation = _simulate(system, wanted, state.database)
        _refuse(wanted, simulation, state)
        labels = ", ".join(package.label for package in wanted)
        held = _held(wanted, system.once(read_database))
        argv = _install(_exact(system, wanted), held)
        if all(package.state == "present" for package in wanted):
            # What apt would do was asked before it had the lock, and whoever had it may have changed the answer.
            argv.append("--no-remove")
        if simulation.installs and (simulation.removes or simulation.installs & set(state.database.installed)):
            # What runs is exchanged or taken away only once everything that takes its place is here.
            done = run_locked(system, [*argv[:2], "--download-only", *argv[2:]])
            if done.rc != 0:
                raise HostError(
                    f"{labels}: the download failed, and no package was changed: {apt_errors.explained(done, system)}"
                )
            wait_for_dpkg(system)
            system.forget()
            state = replace(state, database=system.once(read_database))
            _refuse(wanted, _simulate(system, wanted, state.database), state)
        done = run_locked(system, argv)
        _hold_again(system, held)
        if done.rc != 0:
            raise HostError(f"{labels}: apt-get install failed: {apt_errors.explained(done, system)}")
        purged = [package.name for package in wanted if package.purge]
        if purged and not _purges(wanted):
            done = run_locked(system, ["dpkg", "--purge", *purged])
            if done.rc != 0:
                raise HostError(f"package:{purged[0]}: dpkg --purge {' '.join(purged)} failed: {done.words}")
        system.forget()
        progress.packages_moved = True
        progress.done.extend(steps)

    def record(self, resource: Package, state: PackageState) -> dict[str, Any]:
        """Not whether it is held: that is for the resource to know which holds it."""
        installed = state.database.installed.get(resource.name)
        residual = {"residual": True} if resource.name in state.database.residual else {}
        return {"version": installed and installed.version, **residual}

    def restore(self, resource: Package, record: Mapping[str, Any]) -> list[Resource]:
        """A version that was never ours to choose stays as it is."""
        if record["version"] is None:
            return [replace(purged(resource, resource.name), purge="residual" not in record)]
        version = record["version"] if resource.version or resource.state == "absent" else ""
        return [replace(resource, state="present", version=version, way_back=True)]

    def untouched(self, resource: Package, left: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
        """A package of any version is upgraded with the host."""
        before, now = left["version"], live["version"]
        return before == now or not (resource.version or before is None or now is None)

    def noted(self, system: System, steps: Sequence[Step[Package]]) -> Sequence[str] | None:
        installs = any(step.action != "remove" for step in steps)
        return sorted(system.once(read_database).installed) if installs else None

    def brought(self, system: System, noted: Sequence[str], names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        installed = system.once(read_database).installed
        return dependencies.brought_along(system.text(STATUS) or "", installed, noted, names)

    def unwanted(self, system: System, taken: Mapping[str, Entry], staying: Mapping[str, Entry]) -> set[str]:
        """The packages that no other of ours brought or declares, and nobody asked for by name."""
        kept = {name for entry in staying.values() for name in entry.brought}
        names = {name for entry in taken.values() for name in entry.brought} - kept
        if not names:
            return set()
        unwanted = {name for name in names & read_automatic(system) if name not in staying}
        installed = system.once(read_database).installed
        # What goes, or goes back to a version that did without them, needs none of them.
        leaving = {
            name
            for name, entry in taken.items()
            if name in installed and entry.before["version"] != installed[name].version
        }
        return unwanted - dependencies.still_needed(system.text(STATUS) or "", installed, unwanted | leaving)

    def without(self, resource: Package, name: str) -> list[Resource]:
        return [purged(resource, name)]


def purged(package: Package, name: str) -> Package:
    """The removal of `name`, which is the package itself or one that came along with it."""
    return replace(package, name=name, state="absent", version="", purge=True, way_back=True)


def predict(drifted: Sequence[Package], database: Database, simulation: Simulation | None) -> Prediction:
    """The installed packages afterwards: what apt says it would do, or without its word only what was asked for."""
    added = {package.name for package in drifted if package.state == "present"}
    removed = {package.name for package in drifted if package.state == "absent"}
    if simulation is not None:
        added |= simulation.installs
        removed |= simulation.removes
    return Prediction(frozenset((set(database.installed) | added) - removed), complete=simulation is not None)


def ask_policy(system: System, names: Sequence[str]) -> dict[str, frozenset[str]]:
    """The versions that apt knows of each package."""
    return parse_policy(system.run(["apt-cache", "policy", *names]).stdout) if names else {}


def _known(system: System, wanted: Sequence[Package]) -> dict[str, frozenset[str]]:
    return ask_policy(system, [package.name for package in wanted if package.state == "present"])


def parse_policy(text: str) -> dict[str, frozenset[str]]:
    known: dict[str, set[str]] = {}
    versions: set[str] = set()
    for line in text.splitlines():
        if line and not line.startswith(" "):
            versions = known.setdefault(line.rstrip(":"), set())
        else:
            # " *** 1.2-3 500" or "     1.2-3 500"; the lines of the sources below a version are indented deeper.
            match = re.match(r" (?:\*\*\*|   ) (\S+) -?\d+(?: |\Z)", line)
            if match:
                versions.add(match.group(1))
    return {name: frozenset(found) for name, found in known.items()}


def _drift(resource: Package, installed: Installed | None) -> tuple[str, str] | None:
    """Action and detail of what differs."""
    if resource.state == "absent":
        return None if installed is None else ("remove", installed.version)
    if installed is None:
        return "install", resource.version or "any version"
    if not resource.accepts(installed.version):
        return "exchange", f"{installed.version} -> {resource.version}"
    return None


def _unknown(wanted: Iterable[Package], known: Mapping[str, frozenset[str]]) -> list[Package]:
    """The packages that apt cannot install with the lists it has."""
    unknown = []
    for package in wanted:
        versions = known.get(package.name, frozenset())
        if package.state == "present" and not any(map(package.accepts, versions)):
            unknown.append(package)
    return unknown


def _offered(package: Package, known: Mapping[str, frozenset[str]]) -> str:
    return ", ".join(sorted(known.get(package.name, ()))) or "none"


def _freed(resource: Package, plan: Plan) -> bool:
    """Return whether something earlier in the document takes the package's hold away."""
    return any(
        isinstance(other, Hold) and other.index < resource.index and other.frees(resource.name)
        for other in plan.document
    )


def _own_hold(resource: Package, plan: Plan) -> bool:
    """Return whether the hold is one that these documents keep themselves, on a package that moves with a consent.

    The transaction takes the hold away, so it is put back at its end.
    """
    return bool(resource.consent) and any(
        isinstance(other, Hold) and other.covers([resource.name]) for other in plan.document
    )


def _update_lists(system: System, wanted: Sequence[Package]) -> None:
    """A source that does not answer is no reason to stop, as long as the others have what is wanted.

    apt itself sees it the same way: where it still has an older list, it ends with a warning and success.
    """
    done = run_locked(system, ["apt-get", "update"])
    known = _known(system, wanted)
    unknown = _unknown(wanted, known)
    for package in unknown:
        text = (
            f"{package.label}: no apt source offers {package.version or 'it'} (offered versions:"
            f" {_offered(package, known)})"
        )
        if done.rc != 0 or apt_errors.find(done.stderr) is not None:
            ended = "failed" if done.rc != 0 else "warned"
            raise HostError(f"{text}, and apt-get update {ended}: {apt_errors.explained(done, system)}")
        raise HostError(f"{text}; correct the version or the sources under /etc/apt")


def _held(wanted: Sequence[Package], database: Database) -> list[str]:
    return [package.name for package in wanted if package.name in database.holds]


def _hold_again(system: System, names: Sequence[str]) -> None:
    """apt takes the hold of what it exchanges, also where it fails halfway."""
    system.forget()
    installed = system.once(read_database).installed if names else {}
    lines = [f"{name} hold\n" for name in names if name in installed and not installed[name].held]
    if lines:
        run_locked(system, ["dpkg", "--set-selections"], stdin="".join(lines))
        system.forget()


def _install(wanted: Sequence[Package], held: Sequence[str] = ()) -> list[str]:
    # An exact version is the operator's word, also where it is the older one.
    options = ["--allow-downgrades"] if any(package.version for package in wanted) else []
    options += ["--allow-change-held-packages"] if held else []
    options += ["--purge"] if _purges(wanted) else []
    arguments = [package.argument for package in wanted]
    return ["apt-get", "install", *APT_OPTIONS, "--no-install-recommends", *options, *arguments]


def _purges(wanted: Iterable[Package]) -> bool:
    """Return whether apt's purge, which is for all that it removes, is right."""
    removed = [package.purge for package in wanted if package.state == "absent"]
    return bool(removed) and all(removed)


def _simulate(system: System, wanted: Sequence[Package], database: Database) -> Simulation:
    """What apt would do; a hold that the document takes away before is still there when the plan is made."""
    return simulate(system, _install(_exact(system, wanted), _held(wanted, database)))


def _exact(system: System, wanted: Sequence[Package]) -> list[Package]:
    """With the version that each `1.2*` means; apt itself takes the highest, whatever that was built for."""
    open_ = [package.name for package in wanted if package.version.endswith("*")]
    if not open_:
        return list(wanted)
    offers = rebuilds.parse(system.run(["apt-cache", "show", *open_]).stdout)
    try:
        chosen = rebuilds.choose({package.name: package.version for package in wanted}, offers)
    except rebuilds.NoneFits as none:
        raise HostError(
            f"package:{none.name}: no offered version fits the rest of the move: {none}; choose a set whose modules an"
            " apt source offers, or add the source"
        ) from None
    return [replace(package, version=chosen.get(package.name, package.version)) for package in wanted]


def _misfits(
    system: System, resources: Sequence[Package], drifted: Sequence[Package], database: Database
) -> frozenset[str]:
    """Installed packages of a wanted start that depend on what this transaction exchanges."""
    versions = {package.name: package.version for package in drifted if package.state == "present"}
    open_ = [each for each in resources if each.version.endswith("*") and each.name in database.installed]
    found = rebuilds.parse(system.text(STATUS) or "") if versions and open_ else {}
    return frozenset(
        package.name
        for package in open_
        for groups in found.get(package.name, {}).values()
        if package.name not in versions and not rebuilds.fits(groups, versions)
    )


def _refuse(wanted: Sequence[Package], simulation: Simulation, state: PackageState) -> None:
    """A conflict must never take away what nobody asked to remove, for example the running driver.

    Nor may a dependency exchange what is on hold or waits for the operator's consent.
    """
    if why := _objection(wanted, simulation, state):
        labels = (package.label for package in wanted if not state.culprits or package.name in state.culprits)
        raise HostError(f"{', '.join(labels)}: {why}")


def _culprits(system: System, wanted: Sequence[Package], simulation: Simulation, state: PackageState) -> frozenset[str]:
    """The packages that apt could not install by themselves either; of a transaction without an objection none."""
    if len(wanted) < 2 or not _objection(wanted, simulation, state):
        return frozenset()
    alone = ((package.name, [package]) for package in wanted)
    return frozenset(
        name for name, one in alone if _objection(one, _simulate(system, one, state.database), state)
    ).difference({package.name for package in wanted if package.state == "absent"})


def _objection(wanted: Sequence[Package], simulation: Simulation, state: PackageState) -> str:
    if simulation.error:
        return (
            "apt has no way to install this (`apt-mark showhold` lists the holds and `apt-cache policy` the versions"
            f" and pins): {simulation.error}"
        )
    declared = {package.name for package in wanted if package.state == "absent"}
    surprising = sorted(simulation.removes - declared)
    if surprising:
        return f"apt would also remove {', '.join(surprising)}; remove those yourself first if that is meant"
    for name in sorted(simulation.installs & set(state.closed)):
        return (
            f"apt would also exchange {name}, which needs your consent: {give(state.closed[name])}; or"
            " choose versions that go with the installed one"
        )
    for name in sorted(simulation.installs & set(state.database.holds) - {package.name for package in wanted}):
        return f"apt would also exchange {name}, which is on hold; `apt-mark unhold` frees it"
    return ""
