"""`python -m scripts.vllm_models VERSION...`: which architectures a release of vLLM loads, as catalog/vllm_models.json.

Read from the registry of the released source, of which nothing is imported or run. The file says of each architecture
in which of the releases that were read it is. Releases that the file has stay in it.
"""

from __future__ import annotations

import ast
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from packaging.version import Version

from scripts.gates import ROOT
from scripts.vllm_cli import Source, Unknown, download, expect, written

CATALOG = ROOT / "catalog" / "vllm_models.json"
REGISTRY = "vllm.model_executor.models.registry"
# The tables of the registry, by what a model of them does.
TABLES = {
    "generate": ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS"),
    "embed": ("_EMBEDDING_MODELS", "_CROSS_ENCODER_MODELS", "_LATE_INTERACTION_MODELS", "_REWARD_MODELS"),
    "classify": ("_SEQUENCE_CLASSIFICATION_MODELS", "_TOKEN_CLASSIFICATION_MODELS"),
    "draft": ("_SPECULATIVE_DECODING_MODELS",),
}


def architectures(source: Source) -> set[str]:
    """Every name that the registry of this release knows."""
    names = source.need(REGISTRY).names
    found: set[str] = set()
    for table in (table for tables in TABLES.values() for table in tables):
        if table in names:
            found |= _keys(expect(names[table], ast.Dict))
    if not found:
        raise Unknown(f"{REGISTRY} has none of the tables that this reader knows")
    return found


def _keys(table: ast.Dict) -> set[str]:
    return {key.value for key in table.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def joined(known: dict[str, set[str]]) -> dict[str, Any]:
    """{release: architectures} as the content of the catalog: for each architecture the releases that have it."""
    releases = sorted(known, key=Version)
    names = sorted({name for each in known.values() for name in each})
    return {
        "source": "registry of the source distributions of vllm, read by scripts/vllm_models.py",
        "versions": releases,
        "architectures": {name: _spans([name in known[release] for release in releases], releases) for name in names},
    }


def _spans(there: list[bool], releases: list[str]) -> list[list[str]]:
    """[first, last] of each run of releases; the last is left out where the newest release still has it."""
    found: list[list[str]] = []
    for index, release in enumerate(releases):
        if there[index] and (index == 0 or not there[index - 1]):
            found.append([release])
        elif not there[index] and index and there[index - 1]:
            found[-1].append(releases[index - 1])
    return found


def kept(content: dict[str, Any]) -> dict[str, set[str]]:
    """{release: architectures} of a catalog."""
    releases = content["versions"]
    found: dict[str, set[str]] = {release: set() for release in releases}
    for name, spans in content["architectures"].items():
        for span in spans:
            last = span[1] if len(span) > 1 else releases[-1]
            for release in releases[releases.index(span[0]) : releases.index(last) + 1]:
                found[release].add(name)
    return found


def main(versions: list[str]) -> int:
    if not versions:
        print("Which releases? For example: python -m scripts.vllm_models 0.33.0", file=sys.stderr)
        return 2
    known = kept(json.loads(CATALOG.read_text(encoding="utf-8"))) if CATALOG.exists() else {}
    for version in versions:
        with tempfile.TemporaryDirectory() as work:
            known[version] = architectures(Source(download(version, Path(work))))
        print(f"{version}: {len(known[version])} architectures")
    CATALOG.write_text(written(joined(known)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
