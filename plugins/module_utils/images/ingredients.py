# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes into a build, as it lies on the builder: sources, wheels and patches; and what the builder has to give."""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.reading.memory import lines
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_tools import Command, command
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import CHUNK, existing
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

_CHANGED = re.compile(r"^\+\+\+ (?:b/)?([^\t\n]+)", re.MULTILINE)
_BUILDX = re.compile(r"\bv?(\d+\.\d+\.\d+)")
_MOST_TEXT = 4 << 20
_STORES = ("/var/lib/docker", "/var/lib/containerd")


def sha256(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            total.update(chunk)
    return total.hexdigest()


def tree(root: Path) -> str:
    """The digest of all files below a folder, but for git's own: what a build gets to see."""
    total = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if each != ".git")
        for name in sorted(files):
            path = Path(folder) / name
            what = f"-> {path.readlink()}" if path.is_symlink() else sha256(path) if path.is_file() else "-"
            total.update(f"{path.relative_to(root)}\0{what}\0".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def source(path: str, run: Command = command) -> dict[str, Any]:
    """A checkout of git, or a released archive that was unpacked."""
    if not Path(path).is_dir():
        raise ImageError("no_source", f"vllm_image_source {path} is no folder of the builder", "check vLLM out there")

    def git(*words: str) -> str:
        done = run(["git", "-c", "safe.directory=*", "-C", path, *words])
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "HEAD") if (Path(path) / ".git").exists() else ""
    told = {"path": path, "commit": commit, "tag": "", "version": "", "dirty": False, "digest": tree(Path(path))}
    if commit:
        return {
            **told,
            "tag": git("describe", "--tags", "--exact-match"),
            "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    with contextlib.suppress(OSError):
        head = (Path(path) / "PKG-INFO").read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0]
        told["version"] = next(iter(re.findall(r"^Version: (\S+)$", head, re.MULTILINE)), "")
    return told


def wheel(given: Mapping[str, Any]) -> dict[str, Any]:
    """`given`: `path`, and the `sha256` that it must have."""
    path = _proven(given, "wheel")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            info = next(name for name in names if name.endswith(".dist-info/METADATA"))
            head = archive.read(info).decode("utf-8", "replace").split("\n\n", 1)[0]
            entries = info.replace("METADATA", "entry_points.txt")
            points = archive.read(entries).decode("utf-8", "replace") if entries in names else ""
    except (OSError, zipfile.BadZipFile, StopIteration):
        raise ImageError("bad_wheel", f"{path} is no wheel", "give the path of a .whl file") from None
    fields = dict(re.findall(r"^(Name|Version): (\S+)$", head, re.MULTILINE))
    tops = {name.split("/")[0] for name in names}
    return {
        "name": path.name,
        "path": str(path),
        "sha256": given["sha256"],
        "bytes": path.stat().st_size,
        "package": re.sub(r"[-_.]+", "-", fields.get("Name", "")).lower(),
        "version": fields.get("Version", ""),
        "tops": sorted(each for each in tops if not each.endswith((".dist-info", ".data"))),
        "scripts": sorted({*_scripts(points), *_shipped(names)}),
    }


def _scripts(points: str) -> list[str]:
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    with contextlib.suppress(configparser.Error):
        parser.read_string(points)
    return parser.options("console_scripts") if parser.has_section("console_scripts") else []


def _shipped(names: Sequence[str]) -> list[str]:
    parts = (name.split("/") for name in names)
    return [each[2] for each in parts if len(each) == 3 and each[0].endswith(".data") and each[1] == "scripts"]


def patch(given: Mapping[str, Any]) -> dict[str, Any]:
    path = _proven(given, "patch")
    text = path.read_bytes()[:_MOST_TEXT].decode("utf-8", "replace")
    files = sorted({each.strip() for each in _CHANGED.findall(text)} - {"/dev/null"})
    if not files or any(each.startswith("/") or ".." in each.split("/") for each in files):
        raise ImageError("bad_patch", f"{path} names no file below the packages", "give a patch with a/ and b/")
    return {"name": path.name, "path": str(path), "sha256": given["sha256"], "files": files, "text": text}


def _proven(given: Mapping[str, Any], what: str) -> Path:
    path = Path(str(given["path"]))
    if not path.is_file():
        raise ImageError(f"no_{what}", f"the {what} {path} is not on the builder", "put it there")
    if sha256(path) != given["sha256"]:
        text = f"the {what} {path} has another SHA-256 than its entry says"
        raise ImageError("checksum_wrong", text, f"fetch it again, or correct vllm_image_{what}s")
    return path


def builder(run: Command = command) -> dict[str, Any]:
    """What this host has for a build."""
    memory = lines(System())
    done = run(["docker", "buildx", "version"])
    version = _BUILDX.search(done.stdout) if done.returncode == 0 else None
    return {
        "memory_bytes": memory["MemTotal"],
        "available_bytes": memory["MemAvailable"],
        "cores": os.cpu_count() or 1,
        "free_bytes": min(_free(Path(each)) for each in _STORES if Path(each).exists() or each == _STORES[0]),
        "buildx": version.group(1) if version else None,
        "serving": serving(run),
    }


def _free(path: Path) -> int:
    status = os.statvfs(existing(path))
    return status.f_bavail * status.f_frsize


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
