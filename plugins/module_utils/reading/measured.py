# SPDX-License-Identifier: GPL-3.0-or-later
"""What the starts of the services took on this host; programs/vllm_unit/measured.py writes it.

It changes only where a figure moves or something else is served, so that a role may use it.
"""

from __future__ import annotations

import re
from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

FOLDER = "/var/lib/gb10-measured"  # StateDirectory= of the unit: a file for each service
_FILE = r"([a-z0-9][a-z0-9-]{0,63})\.json\Z"
_ABOUT = {"image": str, "model": str, "revision": str, "hosts": int, "share": str, "batch": dict, "words": dict}
MOST = 8  # starts of different models, images or flags that a service remembers


class StartAbout(TypedDict):
    image: str
    model: str
    revision: str
    hosts: int
    share: str
    batch: dict[str, str]
    words: dict[str, str]


class Start(TypedDict):
    about: StartAbout
    figures: dict[str, float]
    at: str


def read_measured(host: HostReader) -> dict[str, list[Start]]:
    """Return the starts of each service, the last one first; what is not as the unit writes it is left out."""
    files = {found[1]: name for name in host.names(FOLDER) if (found := re.match(_FILE, name))}
    kept = {service: _starts(host.system.text(f"{FOLDER}/{name}")) for service, name in sorted(files.items())}
    return {service: starts for service, starts in kept.items() if starts}


def _starts(text: str | None) -> list[Start]:
    starts = document(text).get("starts")
    found = [_start(each) for each in starts[:MOST]] if isinstance(starts, list) else []
    return [each for each in found if each]


def _start(said: Any) -> Start | None:
    """Of what is there what is asked for, and nothing for one that is damaged."""
    try:
        about, figures = said["about"], said["figures"]
        sound = all(isinstance(about[name], kind) for name, kind in _ABOUT.items()) and isinstance(said["at"], str)
    except (TypeError, KeyError):
        return None
    if not sound or not isinstance(figures, dict):
        return None
    numbers = all(isinstance(each, (int, float)) for each in figures.values())
    texts = [about[name] for name, kind in _ABOUT.items() if kind is str]
    texts += [text for name in ("batch", "words") for pair in about[name].items() for text in pair]
    # What the controller cleans would arrive as another text than it is here.
    if not numbers or not all(isinstance(each, str) and each.isprintable() for each in (*texts, said["at"])):
        return None
    kept: Any = {name: about[name] for name in _ABOUT}
    return {"about": kept, "figures": dict(figures), "at": said["at"]}
