# SPDX-License-Identifier: GPL-3.0-or-later
"""Named layouts of the same Sparks: which services run together, and what a switch stops and starts. Pure.

    gb10_layouts: {split: [chat, embed], cluster: [big]}

Services of different layouts never run together, so they need not fit together. A service of no layout always runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import names


class LayoutError(ValueError):
    """`gb10_layouts` is wrong; the text names the layout and the way out."""


class Switch(NamedTuple):
    """What a switch does, in this order. `stays`: runs before and after it, and is left alone."""

    stops: tuple[str, ...]
    starts: tuple[str, ...]
    stays: tuple[str, ...]


class Layouts(NamedTuple):
    """The layouts as one host sees them, which may have some of their services. `mistakes`: what is no layout."""

    members: Mapping[str, tuple[str, ...]]
    mistakes: tuple[str, ...] = ()

    def together(self, services: Iterable[str]) -> dict[str, tuple[str, ...]]:
        return together(self.members, services)

    def chosen(self) -> set[str]:
        return {member for members in self.members.values() for member in members}

    def resting(self, services: Iterable[str]) -> list[str]:
        """Services that do not run at first: the first layout does, and they are of others."""
        first, chosen = next(iter(self.members.values()), ()), self.chosen()
        return [each for each in services if each in chosen and each not in first]


def of_host(raw: Any, services: Collection[str] | None = None) -> Layouts:
    """`services`: those of the fleet, since other hosts may have some of a layout."""
    try:
        return Layouts(parse(raw or {}, services))
    except LayoutError as error:
        return Layouts({}, (f"{error}.",))


def parse(raw: Any, services: Collection[str] | None = None) -> dict[str, tuple[str, ...]]:
    """The layouts by name. `services`: those that there are, where that is known."""
    if not isinstance(raw, Mapping):
        raise LayoutError("gb10_layouts: write a mapping, as {split: [chat, embed], cluster: [big]}")
    found: dict[str, tuple[str, ...]] = {}
    for name, members in raw.items():
        if not isinstance(members, Sequence) or isinstance(members, str) or not members:
            raise LayoutError(f"gb10_layouts.{name}: write a list of services, as [chat, embed]")
        if strange := [member for member in members if not isinstance(member, str)]:
            raise LayoutError(
                f"gb10_layouts.{name}: {strange[0]} is no name of a service; write a list of names, as [chat, embed]"
            )
        unknown = sorted({str(member) for member in members}.difference(members if services is None else services))
        if unknown and services is not None:
            known = ", ".join(sorted(services)) or "none"
            raise LayoutError(f"gb10_layouts.{name}: no service is called {', '.join(unknown)}; there are {known}")
        if len(set(members)) < len(members):
            raise LayoutError(f"gb10_layouts.{name}: names a service twice")
        found[str(name)] = tuple(members)
    return found


def common(said: Mapping[str, Any]) -> Any:
    """`gb10_layouts` of the fleet, from that of each host. Those that have it must agree; the others have no part."""
    hosts: dict[str, list[str]] = {}
    for host, raw in said.items():
        if raw:
            hosts.setdefault(str(raw), []).append(host)
    if len(hosts) > 1:
        differs = "; ".join(f"{some(names)}: {text}" for text, names in hosts.items())
        raise LayoutError(
            f"gb10_layouts is not the same on all hosts ({differs}); write it once, for the group of them all, "
            "or choose hosts with --limit"
        )
    return next((raw for raw in said.values() if raw), {})


def without_consent(said: Mapping[str, Any], consents: Mapping[str, Any]) -> list[str]:
    """Hosts with layouts whose `gb10_layouts_by_timer` is not true."""
    return [host for host, raw in said.items() if raw and consents.get(host) is not True]


def together(layouts: Mapping[str, Sequence[str]], services: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """{layout: the services that run in it}, those of no layout in each; without layouts one, without a name, of all.

    A budget adds up each of these by itself, and the largest has to fit.
    """
    declared = list(services)
    if not layouts:
        return {"": tuple(declared)}
    chosen = {member for members in layouts.values() for member in members}
    return {
        name: tuple(each for each in declared if each in members or each not in chosen)
        for name, members in layouts.items()
    }


def fault(said: Mapping[str, Any], name: str) -> str:
    """Why nobody can switch to a layout, as far as the inventory alone tells; empty where the hosts may be asked.

    `said`: gb10_layouts of each host.
    """
    try:
        _known(parse(common(said)), name)
    except LayoutError as error:
        return str(error)
    return ""


def _known(layouts: Mapping[str, Sequence[str]], name: str) -> None:
    if name in layouts:
        return
    known = ", ".join(layouts) or "none: docs/services.md says how to write gb10_layouts"
    near = names.nearest(name, layouts, 1)
    meant = f". The nearest is {near[0]}" if near else ""
    raise LayoutError(f"no layout is called {name}; there are {known}{meant}")


def switch(
    layouts: Mapping[str, Sequence[str]], name: str, somewhere: Collection[str], everywhere: Collection[str]
) -> Switch:
    """To this layout from what runs now, on one of its hosts and on all of them. LayoutError where there is no such.

    One host that runs a service does not speak for the others that are to have it.
    """
    _known(layouts, name)
    wanted = layouts[name]
    others = dict.fromkeys(member for members in layouts.values() for member in members if member not in wanted)
    return Switch(
        stops=tuple(each for each in others if each in somewhere),
        starts=tuple(each for each in wanted if each not in everywhere),
        stays=tuple(each for each in wanted if each in everywhere),
    )


def current(layouts: Mapping[str, Sequence[str]], somewhere: Collection[str], everywhere: Collection[str]) -> str:
    """The layout that runs: all of its services, and none of another's alone. Empty where it is none of them."""
    chosen = {member for members in layouts.values() for member in members}
    return next((name for name, members in layouts.items() if chosen & {*somewhere} <= {*members} <= {*everywhere}), "")
