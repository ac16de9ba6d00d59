"""What the services of an inventory restart for, as the version before this one wrote it to their hosts.

After a release, and where a change of this is meant (its fragment says that services restart):

    python -m tests.support.former >tests/fixtures/former.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render

from tests.support.rig import ROOT
from tests.support.service_plans import CHAT, GATEWAY, HEAR, view

RECORDED = ROOT / "tests/fixtures/former.json"
DRAFTS = {"method": "ngram", "tokens": 3, "further": {"prompt_lookup_max": 4}}
ALONE = {"chat": {**CHAT, "api_key": "k" * 40, "speculative": DRAFTS}, "hear": HEAR}


def stands() -> dict[str, dict[str, dict[str, Any]]]:
    """By host its units, and by unit the files that a restart follows from."""
    views = {"alone": view(ALONE, **GATEWAY), "first of a pair": view({"chat": CHAT}, hosts=2)}
    return {name: _of_units(render("vllm", each).resources) for name, each in views.items()}


def _of_units(resources: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    files = {each["file"]: each["content"] for each in resources if "content" in each}
    found = {}
    for unit in (each for each in resources if each.get("restart_on")):
        waits = {name.partition("#")[::2] for name in unit.get("at_next_start", [])}
        found[unit["unit"]] = {
            path: _said(files[path], {key for file, key in waits if file == path})
            for path in unit["restart_on"]
            if path in files
        }
    return found


def _said(content: Any, waits: set[str]) -> Any:
    """Of settings all that cannot wait; of a text its lines."""
    try:
        return {key: value for key, value in json.loads(content).items() if key not in waits}
    except ValueError:
        purpose, __, secret = content.strip().rpartition(" ")
        # Each run draws another secret; of what it is for it keeps it.
        return purpose if len(purpose) == len(secret) == 64 else content.splitlines()


if __name__ == "__main__":
    json.dump(stands(), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
