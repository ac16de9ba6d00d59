# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of the journal, as journalctl gives them, and who says each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import LATEST_S

SHORT_BOOT = 12  # characters of a boot id that are kept
# Who says a line of a unit. What its container says is nobody's word: a client may have said it before.
UNIT, CONTAINER, GUARD = "unit", "container", "guard"
CONTAINER_STREAM = "gb10-container"  # as SPEAKER of vllm_unit/log.py; a test compares them
# Programs that kill for want of memory before the kernel has to.
GUARDS = ("earlyoom.service", "systemd-oomd.service")
OWN = "gb10-vllm: "  # as in vllm_unit/log.py, which lets no line of a container begin so; a test compares them
_UNIT = re.compile(r"(gb10-vllm-[a-z0-9-]+)\.service\Z")


def lines(text: str) -> Iterator[dict[str, Any]]:
    """The entries of `journalctl --output=json` that are whole, each with `at_s` and MESSAGE as text.

    The line of one of vllm_services gets its unit's name in front. `speaker` is None of a line of no unit.
    """
    for line in text.split("\n"):  # U+2028 in a message ends no entry
        try:
            entry = json.loads(line)
            at_s = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        if not 0 <= at_s < LATEST_S:
            continue
        message = entry.get("MESSAGE")
        if isinstance(message, list):  # bytes that are no UTF-8
            message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
                "utf-8", "replace"
            )
        boot, text = str(entry.get("_BOOT_ID"))[:SHORT_BOOT], str(message or "")
        told = {"boot": boot, "MESSAGE": _of_unit(text, entry), "speaker": _speaker(text, entry)}
        yield {**entry, "at_s": at_s, **told}


def _speaker(message: str, entry: dict[str, Any]) -> str | None:
    unit = entry.get("_SYSTEMD_UNIT")
    if unit is None:  # journald says whose a line is, and nobody else can
        return None
    if unit in GUARDS:
        return GUARD
    if entry.get("SYSLOG_IDENTIFIER") == CONTAINER_STREAM:  # the unit gives the container this stream and no other
        return CONTAINER
    return UNIT if message.startswith(OWN) else CONTAINER


def _of_unit(message: str, entry: dict[str, Any]) -> str:
    unit = str(entry.get("_SYSTEMD_UNIT"))
    if unit in GUARDS:
        return f"{unit[: -len('.service')]}: {message}"
    named = _UNIT.match(unit)
    if not named:
        return message
    return f"{named[1]}: {message[len(OWN) :] if message.startswith(OWN) else message}"
