# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM has said of models on this host, as serving/engine_answer.py keeps it: one answer to each question."""

from __future__ import annotations

import json
from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

FOLDER = "/var/cache/gb10-engine"
MOST = 32  # answers that a host keeps
LARGEST = 65536  # bytes of one; a sound one has some 2000
MOST_VALUES = 2000  # of one; a sound one has some 100
# Levels of a question, whose flags are the operator's, and of what code in a container says. A fact that is deeper ends
# each reading of this host.
_DEEPEST = {"question": 30, "said": 4}
_QUESTION = {"images": list, "model": str, "revision": str, "flags": dict}


class KeptAnswer(TypedDict):
    """The controller judges what is in both: plugin_utils/serving/engine.py."""

    question: dict[str, object]
    said: dict[str, object]


def read_answers(host: HostReader) -> list[KeptAnswer]:
    """Return what vLLM has answered; what is not as it is written here is left out, and so is silence."""
    names = sorted(name for name in host.names(FOLDER) if name.endswith(".json"))[:MOST]
    kept = (answer_in(host.system.text(f"{FOLDER}/{name}")) for name in names)
    return [each for each in kept if each and "silent" not in each["said"]]


def answer_in(text: str | None) -> KeptAnswer | None:
    """Return the answer in a file; None where it is damaged, or of another form than any answer."""
    if not text or len(text) > LARGEST or sum(map(text.count, ",[{")) > MOST_VALUES:
        return None
    try:
        kept = json.loads(text)
        question, said = kept["question"], kept["said"]
        if not all(isinstance(question[name], kind) for name, kind in _QUESTION.items()) or not isinstance(said, dict):
            return None
        asked = {name: question[name] for name in _QUESTION}
        return {"question": _plain(asked, _DEEPEST["question"]), "said": _plain(said, _DEEPEST["said"])}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _plain(value: Any, levels: int) -> Any:
    """Return the same without control characters: the controller replaces them, and would know another fact than it.

    ValueError where there are more levels.
    """
    if isinstance(value, str):
        return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in value)
    if isinstance(value, (dict, list)) and not levels:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {_plain(name, 0): _plain(each, levels - 1) for name, each in value.items()}
    return [_plain(each, levels - 1) for each in value] if isinstance(value, list) else value
