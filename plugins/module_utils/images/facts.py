# SPDX-License-Identifier: GPL-3.0-or-later
"""What an image is, from its configuration and the files that a container of it sees. Pure; absent is None."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from email.parser import HeaderParser
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images import layers, places
from ansible_collections.gb10.fleet.plugins.module_utils.images.layers import Layer
from ansible_collections.gb10.fleet.plugins.module_utils.images.places import Seen

HIDDEN = "(hidden)"
_SECRET = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|KEY)(?:_?\d+)?$", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # of a package index or a proxy: account and password
_LONGEST_VERSION = 100
# Python finds it: it is no copy in uv's store, and in no other package.
_INSTALLED = re.compile(r"^(.*(?:site|dist)-packages)/[^/]+/[^/]+$")
_OWNED = re.compile(r"-packages/([^/.]+)")
_PYTHON = re.compile(r"/python(\d+\.\d+)/")
_OF_TORCH = re.compile(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", re.MULTILINE)
_NCCL_PACKAGE = re.compile(r"nvidia-nccl-cu\d+")
# Packages that have a fact of their own under `versions`; the key is the fact.
_NAMED = {
    "vllm": "vllm",
    "torch": "torch",
    "transformers": "transformers",
    "ray": "ray",
    "flashinfer": "flashinfer-python",
    "triton": "triton",
}


def of(reference: str, source: str, config: Mapping[str, Any], found: Sequence[Layer]) -> dict[str, Any]:
    """The facts of an image that was read as `source`: of `config` as OCI has it, and of the files of its layers."""
    files = layers.shown(found)
    packages, sites = _packages(files)
    told = config.get("config")
    inside = told if isinstance(told, dict) else {}
    pairs = (word.partition("=") for word in _words(inside.get("Env")))
    environment = {name: HIDDEN if value and _SECRET.search(name) else value for name, __, value in pairs}
    vllm = next(iter(sites), None)
    torch = (files[path].text for path in sorted(files) if places.TORCH.search(path) and _INSTALLED.match(path))
    return {
        "reference": reference,
        "source": source,
        "layers": len(found),
        "bytes": sum(each.bytes for each in found),
        **{name: _text(config.get(name)) for name in ("architecture", "os", "created")},
        "entrypoint": _words(inside.get("Entrypoint")),
        "command": _words(inside.get("Cmd")),
        "environment": environment,
        "user": str(inside.get("User") or ""),
        "working_directory": str(inside.get("WorkingDir") or ""),
        "on_build": _words(inside.get("OnBuild")),
        "versions": {
            **{fact: (packages.get(name) or {}).get("version") for fact, name in _NAMED.items()},
            "cuda": _toolkit(files) or environment.get("CUDA_VERSION"),
            "torch_cuda": next((version for text in torch for version in _OF_TORCH.findall(text)), None),
            "nccl": next((told["version"] for name, told in packages.items() if _NCCL_PACKAGE.fullmatch(name)), None),
            "python": next(iter(_PYTHON.findall(f"/{vllm}/")), None) if vllm else None,
        },
        "packages": {name: told["version"] for name, told in sorted(packages.items())},
        "vllm_folders": [f"/{site}/vllm" for site in sites],
        "vllm_requires": (packages.get("vllm") or {}).get("requires", []),
        "nccl": _nccl(files),
        "extensions": list(_extensions(files)),
        "caches": list(_caches(files)),
    }


def _text(told: Any) -> str | None:
    """None of what is no text: a number may be none in JSON, and no type of ours holds it."""
    return told if isinstance(told, str) else None


def _words(told: Any) -> list[str]:
    """Without what an address says of who asks there."""
    return [_IN_ADDRESS.sub(HIDDEN, str(word)) for word in told] if isinstance(told, list) else []


def _packages(files: Mapping[str, Seen]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Name, version and requirements of each package; and the folders that have vLLM, whose packages go first."""
    by_site: dict[str, dict[str, dict[str, Any]]] = {}
    for path, seen in sorted(files.items()):
        if places.PACKAGE.search(path) and _INSTALLED.match(path):
            name, told = _package(seen.text)
            if name:
                by_site.setdefault(posixpath.dirname(posixpath.dirname(path)), {})[name] = told
    sites = [site for site, packages in by_site.items() if "vllm" in packages]
    merged: dict[str, dict[str, Any]] = {}
    for site in sorted(by_site, key=lambda each: each not in sites):
        merged = {**by_site[site], **merged}
    return merged, sites


def _package(text: str) -> tuple[str, dict[str, Any]]:
    """Of a METADATA file."""
    said = HeaderParser().parsestr(text)
    name, version = str(said.get("Name", "")), str(said.get("Version", "")).strip()
    known = {"version": version if 0 < len(version) <= _LONGEST_VERSION else None}
    return re.sub(r"[-_.]+", "-", name).strip().lower(), {
        **known,
        "requires": list(map(str, said.get_all("Requires-Dist", []))),
    }


def _toolkit(files: Mapping[str, Seen]) -> str | None:
    """Of the toolkit in /usr/local; of several the newest."""
    found: list[str] = []
    for path, seen in files.items():
        if places.TOOLKIT.search(path):
            try:
                version = str(json.loads(seen.text)["cuda"]["version"])
            except (KeyError, TypeError, ValueError, RecursionError):
                continue
            found += [version] if len(version) <= _LONGEST_VERSION else []
    return max(found, key=lambda version: [int(part) for part in re.findall(r"\d+", version)], default=None)


def _nccl(files: Mapping[str, Seen]) -> dict[str, Any]:
    libraries, conf = [], {}
    for path, seen in sorted(files.items()):
        match = places.NCCL_LIBRARY.search(path)
        if match:
            libraries.append({"path": f"/{path}", "version": match.group(1)})
        if places.NCCL_CONF.search(path):
            lines = (line.strip() for line in seen.text.splitlines())
            conf[f"/{path}"] = [line for line in lines if line and not line.startswith("#")]
    return {"libraries": libraries, "conf": conf}


def _extensions(files: Mapping[str, Seen]) -> Iterator[dict[str, Any]]:
    for path, seen in sorted(files.items()):
        if seen.code is None and not seen.error:
            continue
        code = seen.code
        yield {
            "path": f"/{path}",
            "name": posixpath.basename(path).partition(".")[0],
            "owner": _owner(path),
            "bytes": seen.size,
            "cubins": dict(sorted(code.cubins.items())) if code else {},
            "ptx": dict(sorted(code.ptx.items())) if code else {},
            "compressed": code.compressed if code else 0,
            "error": seen.error or None,
        }


def _owner(path: str) -> str:
    cache = places.cache_of(path)
    if cache:
        return cache
    match = _OWNED.search(path)
    if match:
        return match.group(1)
    return "CUDA toolkit" if path.startswith("usr/local/cuda") else "system"


def _caches(files: Mapping[str, Seen]) -> Iterator[dict[str, Any]]:
    sizes: dict[tuple[str, str], list[int]] = {}
    cubins: dict[tuple[str, str], Counter[str]] = {}
    for path, seen in files.items():
        for name, pattern in places.CACHES:
            match = pattern.search(path)
            if match:
                key = (name, f"/{path[: match.end()].rstrip('/')}")
                sizes.setdefault(key, []).append(seen.size)
                cubins.setdefault(key, Counter()).update(seen.code.cubins if seen.code else {})
                break
    for (name, folder), each in sorted(sizes.items()):
        counts = dict(sorted(cubins[name, folder].items()))
        yield {"name": name, "folder": folder, "files": len(each), "bytes": sum(each), "cubins": counts}
