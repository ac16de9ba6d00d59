# SPDX-License-Identifier: GPL-3.0-or-later
"""An image as an archive of `docker save`, or as a folder in the OCI layout: its configuration and its layers.

An archive is read forwards in one pass, as it comes out of a pipe. Its manifest may come last, so every blob is looked
at when it comes by, and the manifest then says which of them are the layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from ansible_collections.gb10.fleet.plugins.module_utils.images import layers, tar
from ansible_collections.gb10.fleet.plugins.module_utils.images.budget import LONGEST_DOCUMENT, document, of_image
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.images.layers import Layer
from ansible_collections.gb10.fleet.plugins.module_utils.images.streams import Reader, buffered, unpacked
from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget

_DEPTH = 4  # of an index in an index
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
_WANTED = ("linux", "arm64")
_WAY_OUT = "give an archive of `docker save IMAGE`, or a folder in the OCI layout (`skopeo copy ... oci:FOLDER`)"
Load = Callable[[str], Any]  # a document by its path; None where there is none


@dataclass(frozen=True)
class Image:
    """An image that was read. `layers`: the lowest first."""

    config: Mapping[str, Any]
    layers: list[Layer]
    names: list[str]
    digest: str | None  # of the manifest, where the layout says it


@dataclass(frozen=True)
class _Parts:
    config: str
    layers: list[str]
    names: list[str]
    digest: str | None = None


@dataclass
class _Blobs:
    """What has come by."""

    budget: Budget
    documents: dict[str, bytes] = field(default_factory=dict)
    layers: dict[str, Layer | ImageError] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def keep(self, member: tar.Member) -> None:
        body = buffered(member.body)
        head = body.peek(262)[:262]
        if head[:1] in (b"{", b"[") and not head.endswith(b"ustar"):
            self.documents[member.path] = body.read(LONGEST_DOCUMENT)
            self.budget.spend("characters", len(self.documents[member.path]))
            return
        try:
            self.layers[member.path] = layers.of_archive(body, self.budget)
        except ImageError as error:  # it matters only if it is one of the layers
            if error.name == "too_much":
                raise
            self.layers[member.path] = error

    def document(self, path: str) -> Any:
        raw = self.documents.get(self.links.get(path, path))
        return None if raw is None else _json(raw, path, self.budget)

    def layer(self, path: str) -> Layer | None:
        found = self.layers.get(self.links.get(path, path))
        if isinstance(found, ImageError):
            raise found
        self.budget.spend("nodes", 1 + len(found.taken) if found else 1)  # a manifest may name one again and again
        return found


def of_path(path: Path) -> Image:
    """The image of a file or folder. OSError where it cannot be opened."""
    if path.is_dir():
        return _of_folder(path, of_image())
    with path.open("rb") as file:
        return of_stream(file)


def of_stream(source: Reader) -> Image:
    """The image of an archive."""
    blobs = _Blobs(budget := of_image())
    with unpacked(source, budget) as stream:
        for member in tar.members(stream, budget):
            if member.kind in (tar.LINK, tar.HARD_LINK):
                beside = member.path.rpartition("/")[0] if member.kind == tar.LINK else ""
                blobs.links[member.path] = tar.plain(f"{beside}/{member.target}")
            elif member.kind == tar.FILE:
                blobs.keep(member)
    return _image(blobs.document, blobs.layer)


def _of_folder(root: Path, budget: Budget) -> Image:
    def read(path: str, how: Callable[[BinaryIO], Any]) -> Any:
        file = root / tar.plain(path)
        if not file.is_file():  # a pipe or a device would never end
            return None
        with file.open("rb") as opened:
            return how(opened)

    return _image(
        lambda path: read(path, lambda file: _json(file.read(LONGEST_DOCUMENT), path, budget)),
        lambda path: read(path, lambda file: layers.of_archive(file, budget)),
    )


def _image(load: Load, layer: Callable[[str], Layer | None]) -> Image:
    parts = _parts(load)
    config, found = _object(load(parts.config), "its configuration"), []
    for path in parts.layers:
        one = layer(path)
        if one is None:
            raise ImageError("bad_image", f"the layer {path} is not in it")
        found.append(one)
    return Image(config, found, parts.names, parts.digest)


def _parts(load: Load) -> _Parts:
    saved = load("manifest.json")
    if saved is not None:
        return _of_docker(saved)
    index = load("index.json")
    if index is None:
        raise ImageError("no_image", "neither manifest.json nor index.json is in it", _WAY_OUT)
    return _of_oci(index, load, _DEPTH)


def _of_docker(saved: Any) -> _Parts:
    images = [_object(each, "manifest.json") for each in _list(saved, "manifest.json")]
    if len(images) != 1:
        all_names = ", ".join(str(name) for each in images for name in each.get("RepoTags") or [])
        raise ImageError("bad_image", f"it has {len(images)} images ({all_names})", "save one image by itself")
    paths = [tar.plain(str(path)) for path in _list(images[0].get("Layers"), "Layers")]
    names = [str(name) for name in _list(images[0].get("RepoTags") or [], "RepoTags")]
    return _Parts(tar.plain(str(images[0].get("Config"))), paths, names)


def _of_oci(index: Any, load: Load, depth: int) -> _Parts:
    """Of several platforms ours, else the first one that is here and no attestation."""
    entries = [_object(each, "an index") for each in _list(_object(index, "an index").get("manifests"), "manifests")]
    there = [each for each in entries if depth and "unknown" not in _platform(each) and load(_named(each)) is not None]
    if not there:
        raise ImageError("no_image", "its index names no image that is in it", _WAY_OUT)
    chosen = next((each for each in there if _platform(each) == _WANTED), there[0])
    manifest = _object(load(_named(chosen)), "the manifest")
    if "manifests" in manifest:
        return _of_oci(manifest, load, depth - 1)
    blobs = [_object(each, "a layer") for each in _list(manifest.get("layers"), "layers")]
    name = _object(chosen.get("annotations") or {}, "annotations").get("org.opencontainers.image.ref.name")
    config = _named(_object(manifest.get("config"), "the manifest"))
    return _Parts(config, [_named(each) for each in blobs], [str(name)] if name else [], str(chosen["digest"]))


def _platform(entry: dict[str, Any]) -> tuple[Any, Any]:
    platform = _object(entry.get("platform") or {}, "a platform")
    return platform.get("os"), platform.get("architecture")


def _named(entry: dict[str, Any]) -> str:
    """The path of the blob whose digest an entry has."""
    digest = str(entry.get("digest"))
    match = _DIGEST.match(digest)
    if not match:
        raise ImageError("bad_image", f"{digest[:80]!r} is no digest")
    return f"blobs/sha256/{match.group(1)}"


def _json(raw: bytes, path: str, budget: Budget) -> Any:
    try:
        return document(raw, budget)
    except (ValueError, RecursionError):
        raise ImageError("bad_image", f"{path} is not JSON") from None


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ImageError("bad_image", f"{what} is missing, or is no object")
    return cast("dict[str, Any]", value)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ImageError("bad_image", f"{what} is missing, or is no list")
    return value
