# SPDX-License-Identifier: GPL-3.0-or-later
"""An image in the Docker of this host, read without a container and without running any of it.

Docker has two stores. With overlay2 the layers are folders, and reading the few files that matter costs seconds; there
`docker save` would first write the whole image to the disk a second time. With containerd's store the layers are
archives, which `docker save` hands out as they lie there; the image is read once, and not written.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from ansible_collections.gb10.fleet.plugins.module_utils.images import archive, facts, layers
from ansible_collections.gb10.fleet.plugins.module_utils.images.budget import of_image
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.images.layers import Layer
from ansible_collections.gb10.fleet.plugins.module_utils.images.streams import Reader
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_tools import Command, command
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import last_words

Save = Callable[[str], "contextlib.AbstractContextManager[Reader]"]


def read(reference: str, run: Command = command, save: Save | None = None) -> dict[str, Any]:
    """The facts of an image in the local Docker."""
    return examined(reference, run, save)[0]


def examined(
    reference: str, run: Command = command, save: Save | None = None
) -> tuple[dict[str, Any], list[Layer], dict[str, Any]]:
    """The facts of an image in the local Docker, its layers, and what `docker image inspect` says of it."""
    told = inspect(reference, run)
    folders = _folders(told)
    if folders:
        budget = of_image()
        source, found = "overlay2", [layers.of_folder(folder, budget) for folder in folders]
        config: Mapping[str, Any] = {
            "architecture": told.get("Architecture"),
            "os": told.get("Os"),
            "created": told.get("Created"),
            "config": told.get("Config"),
        }
    else:
        with (save or saved)(told["Id"]) as stream:
            image = archive.of_stream(stream)
        source, found, config = "docker save", image.layers, image.config
    read_ = {
        **facts.of(reference, source, config, found),
        "id": told["Id"],
        "digests": [str(each) for each in told.get("RepoDigests") or []],
        "names": [str(each) for each in told.get("RepoTags") or []],
    }
    return read_, found, told


def of_path(path: Path) -> dict[str, Any]:
    """The facts of an image as an archive or a folder."""
    image = archive.of_path(path)
    source = "OCI folder" if path.is_dir() else "archive"
    more = {"id": None, "digests": [image.digest] if image.digest else [], "names": image.names}
    return {**facts.of(str(path), source, image.config, image.layers), **more}


def inspect(reference: str, run: Command) -> dict[str, Any]:
    done = run(["docker", "image", "inspect", "--", reference])
    if done.returncode == 0:
        try:
            return cast("dict[str, Any]", json.loads(done.stdout)[0])
        except (ValueError, IndexError):
            raise ImageError("failed", "`docker image inspect` said no JSON", "see `docker version`") from None
    said = last_words(done.stderr, 2)
    if "no such image" in said.lower():
        raise ImageError("no_such_image", f"{reference} is not in this Docker", f"`docker pull {reference}`")
    way_out = "give an archive of the image instead, or name a host that has Docker"
    raise ImageError("no_docker", f"`docker image inspect`: {said}", way_out)


def _folders(told: Mapping[str, Any]) -> list[Path]:
    """The layers of an image in overlay2's store, the lowest first; empty for another store."""
    driver = told.get("GraphDriver") or {}
    data = driver.get("Data") or {}
    if driver.get("Name") != "overlay2" or not data.get("UpperDir"):
        return []
    below = [each for each in str(data.get("LowerDir") or "").split(":") if each]
    return [Path(each) for each in reversed([str(data["UpperDir"]), *below])]


@contextlib.contextmanager
def saved(image: str) -> Iterator[Reader]:
    """What `docker save` gives out."""
    with tempfile.TemporaryFile() as said:
        try:
            child = subprocess.Popen(  # pylint: disable=ansible-bad-function
                ["docker", "save", "--", image], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
            )
        except OSError as error:
            raise ImageError("no_docker", f"docker: {error.strerror}", "install Docker there") from None
        stdout = cast(IO[bytes], child.stdout)
        with child:  # waits for its end
            try:
                yield stdout
            except BaseException as error:
                if not isinstance(error, ImageError) or stdout.read(1):
                    child.kill()
                    raise
                if child.wait() == 0:  # else Docker ended in the middle, and its own word is better
                    raise
        if child.returncode:
            said.seek(0)
            text = last_words(said.read().decode("utf-8", "replace"), 2)
            raise ImageError("failed", f"`docker save`: {text}", "mend what it says, then run again")
