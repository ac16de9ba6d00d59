# SPDX-License-Identifier: GPL-3.0-or-later
"""The Dockerfile of a build. Pure text.

BuildKit's own frontend reads it, so none is pulled. The objects of a build tree lie in a cache of BuildKit: a build
that was ended goes on there. Only what is copied into the last stage reaches the image.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from ansible_collections.gb10.fleet.plugins.module_utils.images.ingredients import Patch, Wheel

_OUT, _BUILD, _SOURCE, _WHEEL = "/gb10-out", "/gb10-build", "/gb10-unpacked", "/gb10-wheel"
_TOOLS = "/gb10-tools.txt"
_PIP = "PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install"  # Debian's Python asks for this word; it is the image's own


def _run(text: str, mounts: Sequence[str] = (), *, fetches: bool = False) -> str:
    """A step; without a network, where it needs to fetch nothing."""
    words = [*(() if fetches else ("--network=none",)), *(f"--mount={mount}" for mount in mounts), "set -eu;", text]
    return f"RUN {' '.join(words)}"


def _text(lines: Sequence[str]) -> str:
    """Quotes of the shell keep a line break, and here each line is a step of its own."""
    if any(char in line for line in lines for char in "\n\r"):
        raise ValueError("a step of the Dockerfile has a line break")
    return "\n".join(lines) + "\n"


def of_kernels(
    architectures: str,
    jobs: int,
    environment: Mapping[str, str],
    link: tuple[str, str],
    tools: Mapping[str, Sequence[str]],
    source: str,
    files: Mapping[str, str],
    cache: str,
) -> str:
    """Compile in a stage of its own; of it only these files go into the base: by the extension's name their path."""
    name, target = (shlex.quote(each) for each in link)
    link_up = f"if [ ! -e {name} ] && [ -e {target} ]; then mkdir -p $(dirname {name}); ln -s {target} {name}; fi"
    compile_ = (
        f"python3 -m tarfile -e {shlex.quote(f'/gb10-source/{source}')} {_SOURCE}; "
        f"cp -a --update {_SOURCE}/*/. {_BUILD}/; cd {_BUILD}; rm -rf dist; "
        f"python3 setup.py --quiet bdist_wheel; python3 -m zipfile -e dist/*.whl {_WHEEL}; mkdir {_OUT}; "
        # Exactly one file of each, or cp fails.
        f"for name in {' '.join(sorted(files))}; do cp {_WHEEL}/vllm/$name.*.so {_OUT}/$name.so; done; "
        f"chmod 755 {_OUT}/*"
    )
    pins = [" ".join([pin, *(f"--hash=sha256:{each}" for each in sums)]) for pin, sums in tools.items()]
    pip = f"{_PIP} --quiet --no-cache-dir --no-deps --only-binary=:all: --require-hashes"
    mounts = [
        f"type=cache,id={cache},target={_BUILD},sharing=locked",
        "type=bind,from=source,target=/gb10-source",
    ]
    lines = [
        "ARG BASE",
        "FROM ${BASE} AS builder",
        "USER root",
        'SHELL ["/bin/sh", "-c"]',
        *(f"ENV {key}={json.dumps(value)}" for key, value in environment.items()),
        _run(link_up),
        _run(f"printf '%s\\n' {shlex.join(pins)} >{_TOOLS}; {pip} --requirement {_TOOLS}", fetches=True),
        # After the tools: another number of jobs fetches none of them again.
        f"ENV TORCH_CUDA_ARCH_LIST={json.dumps(architectures)} MAX_JOBS={json.dumps(str(jobs))}",
        _run(compile_, mounts, fetches=True),
        "FROM ${BASE}",
        *(f"COPY --from=builder {json.dumps([f'{_OUT}/{key}.so', path])}" for key, path in sorted(files.items())),
    ]
    return _text(lines)


def of_overlay(site: str, wheels: Sequence[Wheel], patches: Sequence[Patch], user: str) -> str:
    """Put wheels and patches over the base. Nothing is resolved, and nothing is fetched. Its settings stay as they are:
    a base without a user gets none."""
    lines = ["ARG BASE", "FROM ${BASE}", *(["USER root"] if user else [])]
    if wheels:
        names = shlex.join(f"/gb10-wheels/{each.name}" for each in wheels)
        pip = f"{_PIP} --no-deps --no-index --no-cache-dir --no-compile --force-reinstall"
        lines.append(_run(f"{pip} {names}", ["type=bind,from=wheels,target=/gb10-wheels"]))
    for each in patches:
        text = f"patch --directory={shlex.quote(site)} --strip=1 --forward --batch --no-backup-if-mismatch"
        mount = "type=bind,from=patches,target=/gb10-patches"
        lines.append(_run(f"{text} --input={shlex.quote(f'/gb10-patches/{each.name}')}", [mount]))
    if user:
        lines.append(f"USER {user}")
    return _text(lines)
