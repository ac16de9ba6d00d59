# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the catalog knows the model: a misspelt id would be found out only by the download, after an hour of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject


def check_model(subject: Subject) -> Iterator[Finding]:
    """Said once, by the first host of a cluster. A warning where a known id is near, else information."""
    roles = subject.setting("gb10_roles")
    if (roles is not None and "vllm" not in roles) or subject.host in subject.members[1:]:
        return
    yield from _check("vllm_model", subject.setting("vllm_model"), subject.setting("vllm_model_facts"), subject)
    said = subject.setting("vllm_services")
    for service, entry in said.items() if isinstance(said, Mapping) else ():
        if isinstance(entry, Mapping):  # else the plan says what is wrong with it
            where = f"vllm_services.{service}.model"
            yield from _check(where, entry.get("model"), entry.get("model_facts"), subject)


def _check(where: str, name: Any, facts: Any, subject: Subject) -> Iterator[Finding]:
    if not (name and isinstance(name, str)):
        return
    # Imported where a host serves: the catalog of models takes a while to read.
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models

    if models.find(name) or models.in_recipes(name) or facts:
        return  # of facts the rules of the role speak
    near = models.nearest(name)
    advice = f"did you mean {' or '.join(near)}? If" if near else "`gb10 plan --all` lists those that it has; if"
    yield subject.say(
        "unknown_model",
        f"{where} {name} is not in the catalog, so nobody has checked that it exists and fits",
        f"{advice} {name} is right, gb10_accept keeps it, with your reason",
        None if near else "info",
    )
