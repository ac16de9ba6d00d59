# SPDX-License-Identifier: GPL-3.0-or-later
"""Components below the version that closes a known hole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import upstream_version
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.floors import faults, is_faulty

FLOOR = "security_floor"


def check_security_floors(subject: Subject) -> Iterator[Finding]:
    """Each component below its floor, once: as it is installed, as a variable would install it, or as in the image."""
    floors = subject.catalog["security_floors"]
    contents = _image_contents(subject, floors["images"])
    for entry in floors["floors"]:
        each = ((fault, _below_floor(subject, fault, contents)) for fault in faults(entry))
        entry, found = next(((fault, found) for fault, found in each if found), (entry, None))
        if found:
            state, way_out = found
            fact = f"{entry['component']} {state}, below {entry['value']} ({entry['advisory']}, {entry['date']})"
            yield subject.say(FLOOR, fact, way_out)


def components(facts: Iterable[str]) -> str:
    """Return what these findings are about, for a line that sums them up."""
    return ", ".join(dict.fromkeys(fact.partition(" is ")[0] for fact in facts))


def _below_floor(subject: Subject, entry: Mapping[str, Any], contents: Mapping[str, str]) -> tuple[str, str] | None:
    """State and way out of a component that is below its floor."""
    floor, (pin, wait) = str(entry["value"]), _pin_below(subject, entry)
    better = f"{floor} or later as soon as the host's archive offers it"
    package = next((name for name in entry["packages"] if name in subject.facts["packages"]), None)
    if package:
        installed = upstream_version(subject.facts["packages"][package])
        guide = f"; {entry['guide']} says how" if "guide" in entry else ""
        way_out = f"{pin}: {wait}set it to {better}" if pin else f"move {package} to {better}{guide}"
        return (f"is {installed}", way_out) if is_faulty(installed, entry) else None
    if pin:
        other = _other_docker(subject) if entry.get("role") == "docker" else None
        return (
            f"{f'is there as {other}' if other else 'is not installed'}, and {pin}",
            f"set {entry['pin']} to {better}",
        )
    inside = contents.get(entry["component"])
    if inside and is_faulty(inside, entry):
        image, default = subject.setting("vllm_image"), subject.catalog["software"]["vllm_image"]
        why = f" (our default: {default['below_floor']})" if image == default["value"] else ""
        return (
            f"is {inside} in {image}{why}",
            f"set vllm_image to one with {floor} or later; keep vllm_host on loopback",
        )
    return None


def _other_docker(subject: Subject) -> str | None:
    others = (f"{each['kind']} {each['version'] or ''}".strip() for each in subject.facts.get("other_docker") or [])
    return next(others, None)


def _pin_below(subject: Subject, entry: Mapping[str, Any]) -> tuple[str, str]:
    """A variable that asks for less than the floor, and why: `docker_version asks for 29.2.1 (...)`; else nothing.

    And what may be done in place of setting it, where our own default asks.
    """
    role = entry.get("role", "")
    pin = str(subject.setting(entry["pin"]) or "") if role in subject.roles else ""
    if not pin or not is_faulty(upstream_version(pin), entry):
        return "", ""
    reference = subject.catalog["software"].get(role, {})
    asks = f"{entry['pin']} asks for {upstream_version(pin)}"
    if pin == reference.get("value"):
        return f"{asks} (our default: {reference['below_floor']})", "leave it until our default moves, or "
    return f"{asks} (set in the inventory)", ""


def _image_contents(subject: Subject, images: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """Versions by component in the image that the host serves with, where the catalog knows the image."""
    image = str(subject.setting("vllm_image") or "") if "vllm" in subject.roles else ""
    for entry in images:
        match = re.fullmatch(entry["value"], image)
        if match:
            return {**entry.get("contains", {}), **match.groupdict()}
    return {}


CHECKS = (check_security_floors,)
