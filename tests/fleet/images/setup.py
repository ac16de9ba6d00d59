"""A stand-in of vLLM's setup.py: it really compiles each extension, with the C compiler of the base.

Code for a GPU takes nvcc, so the kernels are made up: as many entries of the wanted architecture as the wheel of 0.19.0
has. Everything else of an extension is real: machine code, the module that Python imports, and the ELF file around it.
"""

import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

KERNELS = {"_C": 48, "_C_stable_libtorch": 3, "_moe_C": 13}
VERSION = "0.19.0"
SOURCE = """
extern void *PyModule_Create2(void *, int);
static const unsigned char kernels[] __attribute__((section(".nv_fatbin"), used)) = {%(kernels)s};
static struct {
    long count; void *type, *init; long index; void *copy; const char *name, *text; long size; void *rest[5];
} module = {1, 0, 0, 0, 0, "%(name)s", kernels, -1};
void *PyInit_%(name)s(void) { return PyModule_Create2(&module, 1013); }
"""


def fat_binary(architecture: int, count: int) -> bytes:
    """As nvcc lays one out: a header, and an entry with a cubin for each kernel."""
    code = b"\x7fELF stand-in    "
    entry = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x0101, 64, len(code), 0, 0, 0, 0, architecture, 0, 0, 0x11, 0, 0) + code
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) * count) + entry * count


def compiled(name: str, folder: Path) -> Path:
    """For the first architecture of TORCH_CUDA_ARCH_LIST."""
    architecture = int(os.environ["TORCH_CUDA_ARCH_LIST"].split(";")[0].replace(".", ""))
    kernels = ",".join(map(str, fat_binary(architecture, KERNELS[name])))
    source, target = folder / f"{name}.c", folder / f"{name}.abi3.so"
    source.write_text(SOURCE % {"name": name, "kernels": kernels})
    subprocess.run(["tcc", "-shared", "-nostdlib", "-o", target, source], check=True)
    return target


def main() -> None:
    dist = Path("dist")
    dist.mkdir()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(dist / f"vllm-{VERSION}.whl", "w") as wheel:
        for name in KERNELS:
            file = compiled(name, Path(folder))
            wheel.write(file, f"vllm/{file.name}")


if sys.argv[-1] == "bdist_wheel":
    main()
