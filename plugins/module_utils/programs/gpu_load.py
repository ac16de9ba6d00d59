# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the GPU busy with matrix products: `python3 gpu_load.py SECONDS SIZE`, where torch is.

It needs nothing of this project: programs/load_run.py gives it to the Python of an image on standard input. Says BUSY
once the first products are through, and in the end what it did. Its exit status says why it could not.
"""

from __future__ import annotations

import json
import sys
import time

BUSY, DONE = "GB10-LOAD: busy", "GB10-LOAD: done "
NO_TORCH, NO_GPU, NO_MEMORY = 3, 4, 5
AT_ONCE = 8  # products between two looks at the clock


def main(argv: list[str]) -> int:
    seconds, size = float(argv[0]), int(argv[1])
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError:
        return NO_TORCH
    if not torch.cuda.is_available():
        return NO_GPU
    try:
        left, right, product = (torch.randn(size, size, device="cuda").to(torch.bfloat16) for __ in range(3))
    except torch.cuda.OutOfMemoryError:
        return NO_MEMORY

    def multiply() -> None:
        for __ in range(AT_ONCE):
            torch.mm(left, right, out=product)
        torch.cuda.synchronize()

    multiply()  # the first one loads kernels
    sys.stdout.write(f"{BUSY}\n")
    sys.stdout.flush()
    began, products = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        multiply()
        products += AT_ONCE
    took_s = time.monotonic() - began
    told = {
        "products": products,
        "seconds": round(took_s, 2),
        "teraflops": round(2e-12 * size**3 * products / took_s, 1),
    }
    sys.stdout.write(DONE + json.dumps(told) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
