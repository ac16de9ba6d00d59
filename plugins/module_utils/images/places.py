# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files of an image say something, and what of them is kept. Knows names, and no image."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from typing import BinaryIO, cast

from ansible_collections.gb10.fleet.plugins.module_utils.images import cubins
from ansible_collections.gb10.fleet.plugins.module_utils.images.streams import CHUNK
from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget

# Python's packages, also in uv's store, to which it links what it installs; the CUDA toolkit's own file; what NCCL
# reads at each start.
PACKAGE = re.compile(r"(?:^|/)[^/]+(?:\.dist-info/METADATA|\.egg-info/PKG-INFO)$")
TORCH = re.compile(r"(?:^|/)torch/version\.py$")
TOOLKIT = re.compile(r"^usr/local/cuda[^/]*/version\.json$")
NCCL_CONF = re.compile(r"^(?:etc/nccl\.conf|root/\.nccl\.conf|home/[^/]+/\.nccl\.conf)$")
NCCL_LIBRARY = re.compile(r"(?:^|/)libnccl\.so\.(\d+\.\d+\.\d+)$")
_TEXTS = (PACKAGE, TORCH, TOOLKIT, NCCL_CONF)
_CODE = re.compile(r"\.(?:so(?:\.[0-9.]+)?|cubin)$")
# Kernels, graphs and tunings that were made before the first request, by who made them; the first that fits.
CACHES = (
    ("FlashInfer AOT", re.compile(r"-packages/(?:flashinfer_jit_cache|flashinfer/data/aot|flashinfer/aot)/")),
    ("FlashInfer cubins", re.compile(r"-packages/flashinfer_cubin/|(?:^|/)\.?cache/flashinfer/.*cubins/")),
    ("FlashInfer JIT", re.compile(r"(?:^|/)\.cache/flashinfer/")),
    ("torch.compile of vLLM", re.compile(r"(?:^|/)\.cache/vllm/torch_(?:aot_)?compile")),
    ("vLLM", re.compile(r"(?:^|/)\.cache/vllm/")),
    ("Triton", re.compile(r"(?:^|/)\.triton/cache/")),
    ("Inductor", re.compile(r"(?:^|/)torchinductor_[^/]*/")),
    ("DeepGEMM", re.compile(r"(?:^|/)\.deep_gemm/")),
    ("TileLang", re.compile(r"(?:^|/)\.tilelang/cache/")),
    ("CUDA driver", re.compile(r"(?:^|/)\.nv/ComputeCache/")),
)
# Bounds: of a text; of what is looked through in memory and not on the disk.
MOST_TEXT, SMALL = 1 << 20, 8 << 20
MOST_CODE = 16 << 30  # of a library that goes to the disk meanwhile; the largest known have 3 GB
_ELF = b"\x7fELF"
_WORK = "/var/tmp"  # noqa: S108 - files without a name; /tmp may be memory, which is the GPU's


@dataclass(frozen=True)
class Seen:
    """A file that says something. `error` says why its code could not be read."""

    size: int
    text: str = ""
    code: cubins.Code | None = None
    error: str = ""


def cache_of(path: str) -> str | None:
    return next((name for name, pattern in CACHES if pattern.search(path)), None)


def says(path: str) -> bool:
    """Return whether a file of this name may say something."""
    patterns = (*_TEXTS, _CODE, NCCL_LIBRARY)
    return any(pattern.search(path) for pattern in patterns) or cache_of(path) is not None


def look(path: str, size: int, body: BinaryIO, budget: Budget) -> Seen | None:
    """What this file says; None where nothing. `body` is read forwards, unless it is a file on the disk."""
    if any(pattern.search(path) for pattern in _TEXTS):
        text = body.read(min(size, MOST_TEXT)).decode("utf-8", "replace")
        kept = text.split("\n\n", 1)[0] if PACKAGE.search(path) else text
        budget.spend("characters", len(kept))
        return Seen(size, kept)
    if _CODE.search(path):
        head = body.read(min(size, len(_ELF)))
        if head == _ELF:
            code, error = _code(head, size, body, budget)
            if code or error:
                return Seen(size, code=code, error=error)
    return Seen(size) if cache_of(path) or NCCL_LIBRARY.search(path) else None


def _code(head: bytes, size: int, body: BinaryIO, budget: Budget) -> tuple[cubins.Code | None, str]:
    try:
        if body.seekable():
            return cubins.of(body, budget), ""
        if size > MOST_CODE:
            return None, f"too_many: it has {size} bytes, more than {MOST_CODE}"
        with tempfile.SpooledTemporaryFile(SMALL, dir=_WORK) as kept:  # the table of an ELF file is at its end
            kept.write(head)
            shutil.copyfileobj(body, kept, CHUNK)
            return cubins.of(cast("BinaryIO", kept), budget), ""
    except cubins.CubinError as error:
        return None, str(error)
