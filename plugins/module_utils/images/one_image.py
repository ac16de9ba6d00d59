# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive of an image that a peer has made, on its way into the Docker of this host.

Docker loads all images that an archive holds, and takes their names from it: those of other containers too. So what
reaches Docker is written anew from what we read. It is one image, and we say what it is called. What it unpacks to is
counted before.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any, Callable, cast

from ansible_collections.gb10.fleet.plugins.module_utils.images import tar
from ansible_collections.gb10.fleet.plugins.module_utils.images.budget import LONGEST_DOCUMENT, of_image
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.images.layer_sizes import unpacked_bytes
from ansible_collections.gb10.fleet.plugins.module_utils.images.streams import CHUNK, buffered
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import need_room
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError, last_words

_STORE = Path("/var/lib/docker")
_END = bytes(2 * tarfile.BLOCKSIZE)
# Before Docker 25 a layer that an archive has twice is a link.
_LAYER, _TWICE = re.compile(r"[0-9a-f]{64}/layer\.tar\Z"), re.compile(r"\.\./[0-9a-f]{64}/layer\.tar\Z")


def load(path: Path, name: str, argv: tuple[str, ...] = ("docker", "load", "--quiet")) -> None:
    """FilesError where it is not one image, or Docker does not take it; then nothing of it has a name here."""
    try:
        need_room(_STORE, unpacked_bytes(path), f"{name}, unpacked,", "free some space there")
    except ImageError as error:
        raise _refused(name, error) from None
    with tempfile.TemporaryFile() as said:
        # Docker takes nothing of an archive whose end it has not seen.
        with subprocess.Popen(  # pylint: disable=ansible-bad-function
            argv, stdin=subprocess.PIPE, stdout=said, stderr=said, env={**os.environ, "LC_ALL": "C"}
        ) as child:
            try:
                with contextlib.suppress(BrokenPipeError):
                    pour(path, name, cast("IO[bytes]", child.stdin))
            except BaseException as error:
                child.kill()
                if not isinstance(error, ImageError):
                    raise
                raise _refused(name, error) from None
            with contextlib.suppress(BrokenPipeError):
                child.communicate()
        if child.returncode:
            said.seek(0)
            text = f"`{' '.join(argv[:2])}`: {last_words(said.read().decode('utf-8', 'replace'))}"
            raise FilesError("failed", text, "mend what it says, then run again")


def _refused(name: str, error: ImageError) -> FilesError:
    text = f"the archive that should be {name} is not that image alone ({error.said.partition('; ')[0]})"
    return FilesError("image_differs", text, "see what the host is that it came from")


def pour(path: Path, name: str, into: IO[bytes]) -> None:
    """The files of the archive, and in place of its lists of images ours."""
    lists: dict[str, Callable[[bytes], Any]] = {
        "manifest.json": lambda raw: _docker(_one(raw, ()), name),
        "index.json": lambda raw: _oci(_one(raw, ("manifests",)), name),
        "oci-layout": lambda _raw: {"imageLayoutVersion": "1.0.0"},
    }
    done: set[str] = set()
    with path.open("rb") as file:
        for member in tar.members(buffered(file), of_image()):
            if member.kind == tar.FOLDER or member.path == "repositories":  # Docker makes folders; that list is older
                continue
            if member.path in done:
                raise ImageError("bad_image", f"{member.path} is in it twice")
            done.add(member.path)
            if member.kind == tar.LINK and _LAYER.match(member.path) and _TWICE.match(member.target):
                into.write(_head(member.path, 0, member.target))
            elif member.kind != tar.FILE:
                raise ImageError("bad_image", f"{member.path[:80]!a} is no file")
            elif member.path in lists:
                said = member.body.read(LONGEST_DOCUMENT) or b""
                _write(into, member.path, json.dumps(lists[member.path](said)).encode())
            else:
                into.write(_head(member.path, member.size))
                shutil.copyfileobj(member.body, into, CHUNK)
                into.write(bytes(-member.size % tarfile.BLOCKSIZE))
    if not done & {"manifest.json", "index.json"}:
        raise ImageError("bad_image", "it says of no image what it is")
    into.write(_END)


def _one(raw: bytes, way: tuple[str, ...]) -> dict[str, Any]:
    """The one image of a list of images."""
    try:
        listed = json.loads(raw)
        for key in way:
            listed = listed[key]
        (image,) = listed
        return dict(image)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ImageError("bad_image", "its list of images is none of one image") from None


def _docker(image: dict[str, Any], name: str) -> list[dict[str, Any]]:
    layers = image.get("Layers")
    if not isinstance(layers, list):
        raise ImageError("bad_image", "its list of layers is none")
    return [{"Config": str(image.get("Config")), "RepoTags": [name], "Layers": [str(each) for each in layers]}]


def _oci(image: dict[str, Any], name: str) -> dict[str, Any]:
    tag = name.partition(":")[2]
    named = {"io.containerd.image.name": f"docker.io/{name}", "org.opencontainers.image.ref.name": tag}
    what = {key: image[key] for key in ("mediaType", "digest", "size", "platform") if key in image}
    return {"schemaVersion": 2, "manifests": [{**what, "annotations": named}]}


def _write(into: IO[bytes], path: str, body: bytes) -> None:
    into.write(_head(path, len(body)) + body + bytes(-len(body) % tarfile.BLOCKSIZE))


def _head(path: str, size: int, target: str = "") -> bytes:
    head = tarfile.TarInfo(path)
    head.size, head.mode, head.linkname = size, 0o644, target
    head.type = tarfile.SYMTYPE if target else tarfile.REGTYPE
    return head.tobuf(tarfile.PAX_FORMAT)
