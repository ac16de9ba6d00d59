"""The dashboard: what the SDK of Grafana builds, and what its schema reads back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk is not installed")

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from scripts import monitoring_dashboard

FILE = Path(__file__).parents[3] / "roles/monitoring/files/gb10-dashboard.json"


def test_the_file_is_what_the_script_builds() -> None:
    assert FILE.read_text() == monitoring_dashboard.build(), "run python -m scripts.monitoring_dashboard"


def test_the_schema_of_the_sdk_reads_all_of_it() -> None:
    """What it would not know would be gone after a way there and back."""
    register_default_plugins()
    said = json.loads(FILE.read_text())
    back = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(said)))
    assert back == said


def test_every_panel_says_what_it_shows_in_which_unit() -> None:
    panels = [panel for panel in json.loads(FILE.read_text())["panels"] if panel["type"] != "row"]
    assert len(panels) >= 20
    for panel in panels:
        assert panel["title"] and panel["targets"] and panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
