# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the catalog knows the model: a misspelt id would be found out only by the download, after an hour of work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject


def check_model(subject: Subject) -> Iterator[Finding]:
    """Said once, by the first host of a cluster. A warning where a known id is near, else information."""
    name, roles = subject.setting("vllm_model"), subject.setting("gb10_roles")
    serves = roles is None or "vllm" in roles
    if not (serves and name and isinstance(name, str)) or subject.host in subject.members[1:]:
        return
    # Imported where a host serves: the catalog of models takes a while to read.
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models

    if models.find(name) or models.in_recipes(name) or subject.setting("vllm_model_facts"):
        return  # of facts the rules of the role speak
    near = models.nearest(name)
    advice = f"did you mean {' or '.join(near)}?" if near else "`gb10 plan --all` lists those that it has;"
    found = subject.warn(
        "unknown_model",
        f"vllm_model {name} is not in the catalog, so nobody has checked that it exists and fits",
        f"{advice} If {name} is right, gb10_accept keeps it, with your reason",
    )
    yield found if near else replace(found, severity="info")
