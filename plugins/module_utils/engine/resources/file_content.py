# SPDX-License-Identifier: GPL-3.0-or-later
"""What a file should hold, given what stands there, and both sides as a diff may show them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_resource import File, Found
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.json_merge import (
    canonical,
    merge,
    noted_part,
    part,
    taken_out,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, sha256

_HIDDEN = "(secret)\n"


def is_known(resource: File, found: Found | None) -> bool:
    """Return whether the wanted content is at hand: given, or known by its digest and there already."""
    return not resource.sha256 or (found is not None and digest(found.content) == resource.sha256)


def digest(content: bytes) -> str:
    """What stands for a content that nobody may see."""
    return sha256(content)


def meaning(content: bytes) -> str:
    """What a content says to its reader, as a digest: of JSON the layout does not count."""
    try:
        return digest(json.dumps(json.loads(content), sort_keys=True).encode())
    except (ValueError, RecursionError):
        return digest(content)


def wanted_content(resource: File, found: Found | None) -> bytes:
    """The content that the file should have, given what stands there; nothing where only a digest is known."""
    if resource.sha256:
        return found.content if found is not None and is_known(resource, found) else b""
    if not resource.is_json and resource.ours is None:
        return resource.content or b""
    if resource.ours is not None:
        former = resource.content
        rest = taken_out_of(resource, found)
        if former is not None and (found is None or _same_json(former, rest)):
            return former
        return _laid_out(resource, found, rest)
    present = parsed(resource, found)
    merged = merge(present, resource.merge_json or {})
    return _laid_out(resource, found, {**merged, **lacking(resource, merged)})


def lacking(resource: File, merged: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults for an object that has all else."""
    if any(key in merged for key in resource.default_unless):
        return {}
    return {key: value for key, value in (resource.default_json or {}).items() if key not in merged}


def _laid_out(resource: File, found: Found | None, wanted: Mapping[str, Any]) -> bytes:
    if found is not None and found.content.strip() and canonical(wanted) == canonical(parsed(resource, found)):
        return found.content  # same meaning: whoever laid it out keeps the layout
    return (json.dumps(wanted, indent=2, ensure_ascii=False) + "\n").encode()


def taken_out_of(resource: File, found: Found | None) -> dict[str, Any]:
    return taken_out(parsed(resource, found), resource.ours or {})


def _same_json(content: bytes, value: Mapping[str, Any]) -> bool:
    """Return whether a former content, which may have been empty, means this."""
    try:
        return canonical(json.loads(content) if content.strip() else {}) == canonical(value)
    except ValueError:
        return False


def parsed(resource: File, found: Found | None) -> dict[str, Any]:
    """The object in a JSON file; an empty one where there is nothing."""
    if found is None or not found.content.strip():
        return {}
    try:
        present = json.loads(found.content)
    except ValueError as error:
        said = "" if resource.secret else f" ({error})"
        raise HostError(f"{resource.label}: is not JSON{said}; repair it or move it away") from None
    if not isinstance(present, dict):
        raise HostError(f"{resource.label}: is JSON, but not an object; repair it or move it away")
    return present


def texts(resource: File, before: bytes | None, after: bytes | None) -> tuple[str | None, str | None]:
    """Both sides for the diff; secrets and bytes that are no text are named, not shown.

    Of a JSON object only our part: the rest may hold passwords of somebody.
    """
    if resource.secret:
        # Two different texts, so that the diff shows the change and nothing of it.
        changed = "(secret, changed)\n" if before is not None else _HIDDEN
        return (None if before is None else _HIDDEN), (None if after is None else changed)
    if resource.is_json or resource.ours is not None:
        ours = noted_part(resource.ours) if resource.ours is not None else {}
        ours = merge({**(resource.default_json or {}), **ours}, resource.merge_json or {})
        return _part(ours, before), _part(ours, after)
    texts: list[str | None] = []
    for side in (before, after):
        try:
            texts.append(None if side is None else side.decode())
        except UnicodeDecodeError:
            texts.append("(binary)\n")
    return texts[0], texts[1]


def _part(ours: Mapping[str, Any], content: bytes | None) -> str | None:
    """What a JSON object holds in our places, as text."""
    if content is None:
        return None
    held = part(json.loads(content) if content.strip() else {}, ours)
    return json.dumps(held, indent=2, ensure_ascii=False) + "\n"
