# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes into a build, as it lies on the builder: a source, wheels and patches; and what the builder has to give.

Their folders may be somebody else's. So each is one file, proven by its SHA-256: no tool of root's works in such a
folder, where it would take that owner's configuration.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ansible_collections.gb10.fleet.plugins.module_utils.images import tar
from ansible_collections.gb10.fleet.plugins.module_utils.images.budget import of_image
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.images.streams import buffered, unpacked
from ansible_collections.gb10.fleet.plugins.module_utils.reading.memory import lines
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_tools import Command, command
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import CHUNK, existing
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

# `git archive` begins with a header for all files, and says the commit there.
_COMMENT, _HEAD = re.compile(rb".{156}g.{355}\d+ comment=([0-9a-f]{40})\n", re.DOTALL), 1024
_VERSION = re.compile(r"vllm-(\d[\w.+]*)\Z")
_CHANGED = re.compile(r"^\+\+\+ (?:b/)?([^\t\n]+)", re.MULTILINE)
_BUILDX = re.compile(r"\bv?(\d+\.\d+\.\d+)")
_MOST_TEXT = 4 << 20
_MOST_FILES = 200_000  # of a source; vLLM's has some 6,000
MOST_BYTES = 16 << 30  # of a file; the largest wheels have 3 GB
_STORES = ("/var/lib/docker", "/var/lib/containerd")


@dataclass(frozen=True)
class Ingredient:
    """A file on the builder."""

    path: str
    sha256: str

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)


@dataclass(frozen=True)
class Source(Ingredient):
    """An archive of vLLM's source; what it does not say of itself is empty."""

    commit: str = ""
    version: str = ""


@dataclass(frozen=True)
class Wheel(Ingredient):
    """A wheel of an overlay. `tops`: what it installs below the folder of packages; `scripts`: below bin."""

    bytes: int
    package: str
    version: str
    tops: Sequence[str]
    scripts: Sequence[str] = ()


@dataclass(frozen=True)
class Patch(Ingredient):
    """A patch of an overlay. `files`: what it changes, below the folder of packages."""

    files: Sequence[str]
    text: str


@dataclass(frozen=True)
class Builder:
    """The host that builds. `serving`: what runs there and has taken its share of the memory."""

    memory_bytes: int
    available_bytes: int
    cores: int
    free_bytes: int  # where Docker keeps its images
    buildx: str | None
    serving: Sequence[str] = ()


def copied(path: str, into: IO[bytes]) -> str:
    """The SHA-256 of the very bytes that were copied: the file's owner may change it at any time."""
    total = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would keep us waiting
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no plain file")
        left = status.st_size
        if left > MOST_BYTES:
            raise OSError(f"{path} is larger than {MOST_BYTES >> 30} GiB")
        while left and (chunk := file.read(min(CHUNK, left))):  # it may grow for ever
            total.update(chunk)
            into.write(chunk)
            left -= len(chunk)
    into.flush()
    return total.hexdigest()


def source(given: Mapping[str, Any]) -> Source:
    """An archive of vLLM's source: that of a release, or what `git archive` makes of a commit."""
    way_out = "give a release's .tar.gz, or what `git archive --prefix=vllm-VERSION/ COMMIT` writes"
    with _proven(given, "source") as file:
        try:
            commit, top = _of_archive(file)
        except (OSError, EOFError, zlib.error, ImageError):
            text = f"{given['path']} is no archive of one folder with a setup.py"
            raise ImageError("bad_source", text, way_out) from None
    version = _VERSION.match(top)
    return Source(given["path"], given["sha256"], commit, version.group(1) if version else "")


def _of_archive(file: IO[bytes]) -> tuple[str, str]:
    """Its commit, empty where it says none, and the name of its folder; EOFError where no setup.py is in that."""
    with unpacked(file, budget := of_image()) as stream:
        archive = buffered(stream)
        commit = _COMMENT.match(archive.peek(_HEAD)[:_HEAD])
        paths = [member.path for member in islice(tar.members(archive, budget), _MOST_FILES)]
    top = paths[0].partition("/")[0] if paths else ""
    if f"{top}/setup.py" not in paths:
        raise EOFError
    return commit.group(1).decode() if commit else "", top


class _Told(Distribution):
    """What a wheel says of itself. A zipfile.Path would make a name of each folder above each of its files."""

    def __init__(self, archive: zipfile.ZipFile, info: str) -> None:
        self._archive, self._info = archive, info

    def read_text(self, filename: str) -> str | None:
        try:
            entry = self._archive.getinfo(f"{self._info}/{filename}")
        except KeyError:
            return None
        if entry.file_size > _MOST_TEXT:
            raise zipfile.BadZipFile
        return self._archive.read(entry).decode("utf-8", "replace")

    def locate_file(self, path: Any) -> Path:
        raise NotImplementedError  # it is not installed


def wheel(given: Mapping[str, Any]) -> Wheel:
    """`given`: `path`, and the `sha256` that it must have."""
    try:
        with _proven(given, "wheel") as file, zipfile.ZipFile(file) as archive:
            size = file.seek(0, os.SEEK_END)
            parts = [name.split("/", 3) for name in archive.namelist()]
            info = next(top for top, *rest in parts if top.endswith(".dist-info") and rest == ["METADATA"])
            told = _Told(archive, info)
            package, version = (str(told.metadata[key] or "") for key in ("Name", "Version"))
            scripts = {each.name for each in told.entry_points if each.group == "console_scripts"}
    except (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, StopIteration):
        raise ImageError("bad_wheel", f"{given['path']} is no wheel", "give the path of a .whl file") from None
    scripts |= {rest[1] for top, *rest in parts if top.endswith(".data") and len(rest) == 2 and rest[0] == "scripts"}
    return Wheel(
        path=given["path"],
        sha256=given["sha256"],
        bytes=size,
        package=re.sub(r"[-_.]+", "-", package).lower(),
        version=version,
        tops=sorted({top for top, *__ in parts if not top.endswith((".dist-info", ".data"))}),
        scripts=sorted(scripts - {""}),
    )


def patch(given: Mapping[str, Any]) -> Patch:
    with _proven(given, "patch") as file:
        text = file.read(_MOST_TEXT).decode("utf-8", "replace")
    files = sorted({each.strip() for each in _CHANGED.findall(text)} - {"/dev/null"})
    if not files or any(set(each.split("/")) & {"", ".."} for each in files):
        raise ImageError(
            "bad_patch", f"{given['path']} names no file below the packages", "give a patch with a/ and b/"
        )
    return Patch(given["path"], given["sha256"], files, text)


def _proven(given: Mapping[str, Any], what: str) -> IO[bytes]:
    """A copy that nobody else can change, at its begin."""
    copy = tempfile.TemporaryFile(dir="/var/tmp")  # noqa: SIM115 - without a name; /tmp may be memory
    try:
        found = copied(given["path"], copy)
    except OSError as error:
        text = f"the {what} {given['path']} cannot be read ({error.strerror or 'it is no plain file'})"
        raise ImageError(f"no_{what}", text, "put it on the builder") from None
    if found != given["sha256"]:
        text = f"the {what} {given['path']} has another SHA-256 than its entry says"
        raise ImageError("checksum_wrong", text, "fetch it again, or correct its entry")
    copy.seek(0)
    return copy


def builder() -> Builder:
    """What this host has for a build."""
    memory = lines(System())
    done = command(["docker", "buildx", "version"])
    version = _BUILDX.search(done.stdout) if done.returncode == 0 else None
    stores = [os.statvfs(existing(Path(each))) for each in _STORES if Path(each).exists() or each == _STORES[0]]
    return Builder(
        memory_bytes=memory["MemTotal"],
        available_bytes=memory["MemAvailable"],
        cores=os.cpu_count() or 1,
        free_bytes=min(each.f_bavail * each.f_frsize for each in stores),
        buildx=version.group(1) if version else None,
        serving=serving(),
    )


def serving(run: Command = command) -> list[str]:
    """Containers that run and have the GPU, or are a service of ours."""
    listed = run(["docker", "ps", "--quiet"]).stdout.split()
    if not listed:
        return []
    done = run(["docker", "inspect", *listed])
    try:
        told = json.loads(done.stdout)
    except ValueError:
        return []
    return sorted(str(each["Name"]).lstrip("/") for each in told if _holds(each))


def _holds(container: Mapping[str, Any]) -> bool:
    host = container.get("HostConfig") or {}
    devices = [*(host.get("DeviceRequests") or []), *(host.get("Devices") or [])]
    gpu = any("nvidia" in json.dumps(each) or "gpu" in json.dumps(each) for each in devices)
    return gpu or str(container.get("Name", "")).startswith("/gb10-vllm")
