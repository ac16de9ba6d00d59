# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the simulated vLLM image as a static OCI registry tree, without any container engine.

registry/<name>/manifests/<tag>              the digest of a manifest
registry/<name>/manifests/sha256:<hex>       the manifest itself
registry/<name>/blobs/sha256:<hex>           config and layer
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

from lab.architecture import ARCHITECTURES
from lab.vendor.packages import FILES

NAME, TAG = "gb10-lab/vllm-sim", "0.19.0"
RAY = "2.54.0"  # as files/ray says of itself
# The same layer under another configuration, and so another digest: a new image to move to.
REBUILT = f"{TAG}-rebuilt"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
# What a server in a container never opens. An emulated CPU unpacks, hashes and packs the rest several times.
_PYTHON = "usr/lib/python3.13"
_MODULES = (  # of Python, each with its bytecode
    "_pydecimal", "curses", "dbm", "doctest", "ensurepip", "idlelib", "lib2to3", "pydoc", "pydoc_data", "sqlite3",
    "test", "tkinter", "turtle", "turtledemo", "unittest", "venv", "wsgiref", "xmlrpc",
)  # fmt: skip
_ENCODINGS = (  # each is the beginning of some names
    "big5", "cp1", "cp5", "cp7", "cp8", "cp9", "euc", "gb", "hz", "iso", "johab", "koi8", "kz", "mac_", "palmos",
    "ptcp", "shift", "tis",
)  # fmt: skip
_COMPILED = ("_codecs_", "_curses", "_dbm", "_sqlite3", "_test", "readline", "xx")
_SHARED = (
    "gconv/", "libdb-5", "libmvec", "libncurses", "libpam", "libreadline", "libsqlite3", "libsystemd", "perl-base/",
    "security/",
)  # fmt: skip
TRIMMED = (
    "boot/",
    "dev/",
    "proc/",
    "sys/",
    "usr/share/doc/",
    "usr/share/man/",
    "usr/share/info/",
    "usr/share/locale/",
    "usr/share/lintian/",
    "usr/share/zoneinfo/",
    "usr/share/common-licenses/",
    "usr/share/pixmaps/",
    "usr/share/perl5/",
    "usr/bin/dpkg",
    "usr/bin/localedef",
    "usr/sbin/ldconfig",
    "usr/lib/systemd/",
    "usr/lib/udev/",
    *(f"usr/lib/{known.kernel}-linux-gnu/{name}" for known in ARCHITECTURES.values() for name in _SHARED),
    *(f"{_PYTHON}/lib-dynload/{name}" for name in _COMPILED),
    *(f"{_PYTHON}/encodings/{place}{name}" for name in _ENCODINGS for place in ("", "__pycache__/")),
    *(f"{_PYTHON}/{name}" for module in _MODULES for name in (f"{module}/", f"{module}.py", f"__pycache__/{module}.")),
    "var/lib/apt/",
    "var/lib/dpkg/",
    "var/cache/",
    "var/log/",
)


def layer(root: Path) -> tuple[bytes, str]:
    """The image's one layer, gzip compressed, and the digest of its uncompressed form (the diff id).

    Times and owners are fixed, so that the same input gives the same digest.
    """
    plain = io.BytesIO()
    with tarfile.open(root) as source, tarfile.open(fileobj=plain, mode="w") as target:
        for member in source:
            path = member.name.removeprefix("./")
            if path.startswith(TRIMMED):
                continue
            member.mtime = 0
            target.addfile(member, source.extractfile(member) if member.isreg() else None)
        additions = {
            "usr/bin/vllm": ((FILES / "vllm").read_bytes(), 0o755),
            "usr/lib/python3/dist-packages/huggingface_hub.py": ((FILES / "huggingface_hub.py").read_bytes(), 0o644),
            "usr/lib/python3/dist-packages/vllm/__init__.py": (f'__version__ = "{TAG}"\n'.encode(), 0o644),
            # One file is the command and the module: what it says of the cluster is what its nodes know.
            "usr/bin/ray": ((FILES / "ray").read_bytes(), 0o755),
            "usr/lib/python3/dist-packages/ray/__init__.py": ((FILES / "ray").read_bytes(), 0o644),
            f"usr/lib/python3/dist-packages/ray-{RAY}.dist-info/METADATA": (
                f"Metadata-Version: 2.1\nName: ray\nVersion: {RAY}\n".encode(),
                0o644,
            ),
        }
        for path, (content, mode) in additions.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            target.addfile(entry, io.BytesIO(content))
    data = plain.getvalue()
    return gzip.compress(data, compresslevel=6, mtime=0), digest(data)


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def build(registry: Path, root: Path, architecture: str) -> str:
    """Write the registry tree; returns `name@sha256:...` of the image TAG."""
    blobs, manifests = registry / NAME / "blobs", registry / NAME / "manifests"
    blobs.mkdir(parents=True)
    manifests.mkdir()
    compressed, diff_id = layer(root)

    def blob(data: bytes, media_type: str) -> dict[str, str | int]:
        (blobs / digest(data)).write_bytes(data)
        return {"mediaType": media_type, "digest": digest(data), "size": len(data)}

    for tag in (TAG, REBUILT):
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": blob(json.dumps(_config(tag, diff_id, architecture)).encode(), CONFIG_TYPE),
            "layers": [blob(compressed, LAYER_TYPE)],
        }
        data = json.dumps(manifest).encode()
        (manifests / digest(data)).write_bytes(data)
        (manifests / tag).write_text(digest(data))
    return f"{NAME}@{(manifests / TAG).read_text()}"


def _config(tag: str, diff_id: str, architecture: str) -> dict[str, object]:
    return {
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": ["vllm", "serve"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONUNBUFFERED=1"],
            "WorkingDir": "/vllm-workspace",
            "Labels": {"org.opencontainers.image.title": NAME, "org.opencontainers.image.version": tag},
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "gb10-fleet lab"}],
    }
