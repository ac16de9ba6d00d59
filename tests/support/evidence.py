"""The schema of evidence.json."""

from __future__ import annotations

import json

from tests.support.proofs import ROOT

SCHEMA = json.loads((ROOT / "plugins/plugin_utils/reports/schemas/evidence.schema.json").read_text())
