"""Machines with the releases that NVIDIA has published, and the recipes of these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.score import Recipe

JULY_SET = "ubuntu24.04-580.159.03-6.17.0-1022"


def simulated(**changed: Any) -> dict[str, Any]:
    nothing = {"installs": {}, "removes": [], "error": "", "download_bytes": 0, "disk_bytes": 0}
    said = {"set_move": nothing | changed.pop("set_move", {}), "rest": nothing | changed.pop("rest", {})}
    return {"release": "OTA2607", "set": JULY_SET, "offers_back": True, "lists_age_s": 60, **said, **changed}


FIXTURES = Path(__file__).parents[1] / "fixtures/releases"
_MAY, *_SAID = (json.loads(path.read_text()) for path in sorted(FIXTURES.glob("spark-ota-*.json")))


def _as_may(said: dict[str, Any]) -> dict[str, Any]:
    """That of May, but for what is said of another."""
    names, versions = said.get("names", {}), said["versions"]
    rows = {
        part: [
            {**row, "name": names.get(row["name"], row["name"]), "version": versions.get(row["name"], row["version"])}
            for row in _MAY[part]
        ]
        for part in _MAY
        if part != "metadata"
    }
    return {"metadata": said["metadata"], **rows}


RECIPES = [Recipe(content) for content in (_MAY, *map(_as_may, _SAID))]
APRIL, MAY, JULY = sorted(RECIPES, key=lambda recipe: recipe.date)
KNOWN = json.loads((FIXTURES / "machines.json").read_text())
CAPSULE = {"name": "UEFI Device Firmware", "plugin": "uefi_capsule", "guids": ["x"], "version": "1", "offers": None}
GUIDS = {entry["name"]: entry["guid"] for entry in JULY.entries("firmware")}


def device(name: str, version: str, offers: str | None = None) -> dict[str, Any]:
    return CAPSULE | {"guids": [GUIDS[name]], "version": version, "offers": offers}


# Of NVIDIA's own board: 2.155.11, 3.5.8, 0.5.22; it knows the fused EC.
OF_NVIDIA = [device("SOCFW", "0x029B0B00"), device("EC", "0x03050800"), device("USBPD", "0x00051600")]


def machine(name: str, **changed: Any) -> dict[str, Any]:
    shared = {key: KNOWN[key] for key in ("packages", "kernel", "driver", "connectx")}
    more = {
        "fwupd": OF_NVIDIA if name == "a" else [CAPSULE],
        "held": [],
        "pinned_by_us": True,
        "recipes": [],
        "broken_recipes": [],
    }
    more |= {"command_line": [], "reboot_required": False, "disks": []}
    return {**shared, **more, **KNOWN["machines"][name], **changed}


def invented(date: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A fleet, and the same beside `evil`: it says more releases, one text more often, and the newest checker."""
    mine = [{"file": "x", "sha256": recipe.name, "content": recipe.content} for recipe in RECIPES]
    asks = {"package": [{"name": "never", "version": "9"}], "firmware": [{"name": "EC", "version": "9", "guid": "x"}]}
    lies = [{**JULY.content, **asks}]
    lies += [{**lies[0], "metadata": {**JULY.content["metadata"], "name": "OTA9901", "releaseDate": date}}]
    known = [{"name": name, "releaseDate": date} for name in ("OTA1", "July 2026", "")]  # an old one, of that date
    lies += [lies[0], lies[0], *({**lies[0], "metadata": {**JULY.content["metadata"], **each}} for each in known)]
    claims = [{"file": "x", "sha256": JULY.name, "content": content} for content in lies]
    evil = machine("a", recipes=claims, packages={**KNOWN["packages"], "nvidia-spark-ota-check": "999"})
    fleet = {"b": machine("b", recipes=mine), "c": machine("b", recipes=mine), "d": machine("b")}
    return fleet, {**fleet, "evil": evil}
