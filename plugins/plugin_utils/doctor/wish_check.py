# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor says of services that stand still because the operator said so, or until they are asked."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.stop_requests import is_asleep, said_of


def check_wishes(subject: Subject) -> Iterator[Finding]:
    found = subject.facts.get("wishes") or []
    wishes = [wish for wish in found if not is_asleep(wish)]
    if sleepers := [wish["unit"] for wish in found if is_asleep(wish)]:
        way_out = "nothing to repair: a request through the gateway starts it; `gb10 start SERVICE` does so now"
        yield subject.say("asleep", f"{', '.join(sleepers)}: asleep, starts when asked", way_out)
    if wishes:
        fact = "; ".join(f"{wish['unit']}: {said_of(wish)}" for wish in wishes)
        way_out = "nothing to repair: runs leave it stopped; `gb10 start SERVICE` ends it"
        yield subject.say("stopped_by_wish", fact, way_out)


CHECKS = (check_wishes,)
