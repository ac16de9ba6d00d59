# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of one proof: document, page and metrics, put in place in one step."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.folders import planted_above
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_page, metrics


def summary(document: Mapping[str, Any]) -> str:
    """The verdict and its reasons, for a person to read."""
    count = len(document["hosts"])
    lines = [f"{document['verdict']}: {count} host{'s' if count != 1 else ''}, {document['created']}"]
    for reason in document["reasons"]:
        lines += reason_lines(reason)
    return "\n".join(lines)


def reason_lines(reason: Mapping[str, Any]) -> list[str]:
    """Of a verdict; a text that has its way out in it comes alone. What a host says begins no line of its own."""
    way_out = [f"    Fix: {reason['way_out']}"] if reason["way_out"] else []
    return [" ".join(f"{reason['where']}: {reason['what']}: {reason['text']}".split()), *way_out]


def stats(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a task returns for AWX to keep as artifacts of the job, as the module set_stats would."""
    found = {key: document[key] for key in ("created", "verdict", "reasons")}
    return {"data": {"gb10_evidence": {**found, "hosts": [*document["hosts"]]}}, "per_host": False, "aggregate": False}


DOCUMENT, PAGE, METRICS = "evidence.json", "index.html", "metrics.prom"
SAME_SECOND = 100  # proofs


def before(directory: Path) -> dict[str, Any] | None:
    """The document of the last proof in that folder, if there is one that can be read."""
    return document_in(directory / "latest" / DOCUMENT) or None


def refuse(directory: Path) -> None:
    """Raise ValueError where nothing can be written into that folder, or into the nearest that is there above it."""
    theirs = planted_above(directory)
    there = theirs or next(folder for folder in (directory, *directory.parents) if folder.exists())
    if theirs:
        why = "is another login's, where anybody may write"
    elif not there.is_dir():
        why = "is no folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        why = "may not be written to"
    else:
        return
    raise ValueError(
        f"gb10_evidence_directory is {directory}, and {there} {why}: name a folder that this user may write to, or"
        " leave it out (then it is ./evidence)"
    )


def write(document: Mapping[str, Any], directory: Path) -> Path:
    """Put document and page into a new directory named by the document's time, then point `latest` to it.

    Both appear complete or not at all. A second proof in the same second, of another run, has a number behind the time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=directory))
    try:
        output.write(building / DOCUMENT, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        output.write(building / PAGE, evidence_page.render(document))
        output.write(building / METRICS, metrics.render(document))
        building.chmod(0o755)
        target = _put(building, directory / re.sub("[-:]", "", document["created"]))
    finally:
        shutil.rmtree(building, ignore_errors=True)
    output.point_latest(target)
    return target


def _put(building: Path, target: Path) -> Path:
    """Give it its name, or the first one behind it that is free."""
    for number in range(1, SAME_SECOND):
        name = target if number == 1 else target.with_name(f"{target.name}-{number}")
        try:
            return building.rename(name)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
