# SPDX-License-Identifier: GPL-3.0-or-later
"""What a build comes down to: a document for programs, lines for people. Pure but for `write`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.acceptance import Verdict
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.build_plan import BuildPlan

SCHEMA_VERSION = 1
_VERSION = re.compile(r"\d[\w.+-]{0,99}\Z", re.ASCII)


def document(plan: BuildPlan, host: str, base: str, verdict: Verdict, image: str, at: str) -> dict[str, Any]:
    """All that was judged, with its figures."""
    return {
        "schema_version": SCHEMA_VERSION,
        "created": at,
        "host": host,
        "base": base,
        "image": image,
        "verdict": verdict.id,
        "accepted": verdict.accepted,
        "plan": {key: value for key, value in asdict(plan).items() if key not in ("refusals", "verdict")},
        "checks": [{**asdict(each), "good": each.good} for each in verdict.checks],
    }


def write(told: Mapping[str, Any], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{told['plan']['inputs'][:12]}.json"
    output.write(path, json.dumps(told, indent=2) + "\n")
    return path


def serve_lines(image: str, digests: Sequence[str], version: str | None) -> Iterator[str]:
    """What to put into the inventory. The version: no catalog knows this image."""
    yield "it may serve; put this into the inventory:"
    yield f"    vllm_image: {next(iter(digests), image)}"
    if _VERSION.match(version or ""):  # it is the builder's word, and somebody pastes it
        yield f"    vllm_version: {version}"
    if digests:
        return
    yield "    vllm_allow_tag: true    # this Docker gives a built image no digest; its tag is that of what went in"
