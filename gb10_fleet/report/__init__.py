"""What a rollout did, as one JSON document and one page: `put` writes both beside the journal.

The document is the journal's record of the run, and over it what its proofs and the last drift scan say of each host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.folders import ForeignLink
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output

from gb10_fleet.home import document_here
from gb10_fleet.report import model
from gb10_fleet.rollout.journal import Journal

DOCUMENT, PAGE = "report.json", "index.html"
EVIDENCE = "evidence.json"
DRIFT = Path("evidence/drift/drift.json")  # where `gb10 drift` leaves it, from the current folder

Record = dict[str, Any]


def of(journal: Journal, run: str | None = None, drift: Path = DRIFT) -> Record:
    """The document of a run, or of the latest one. A proof or a scan that is not there any more is left out."""
    record = journal.record(run)
    at = Path(record["order"]["directory"])  # from where it was ordered, what its paths are relative to
    proofs = {
        wave["wave"]: document_in(at / wave["evidence"] / EVIDENCE) for wave in record["waves"] if wave["evidence"]
    }
    return model.build(record, journal.events(record["run"]), proofs, document_here(drift), datetime.now(UTC))


def put(journal: Journal, run: str | None = None) -> Path:
    """Write document and page of a run into `reports/` beside its journal. Returns the page."""
    document = of(journal, run)
    folder = journal.folder / "reports" / document["run"]
    if folder.resolve() != journal.folder.resolve() / "reports" / document["run"]:
        raise ForeignLink(str(folder))  # of a folder that somebody has handed over
    return write(document, folder)


def write(document: Mapping[str, Any], folder: Path) -> Path:
    """Each file whole or not at all; a run that went on gets them anew."""
    from gb10_fleet.report import page  # templates and Ansible, which every other command would pay for

    folder.mkdir(parents=True, exist_ok=True)
    output.write(folder / DOCUMENT, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    output.write(folder / PAGE, page.render(document, folder))
    return folder / PAGE
