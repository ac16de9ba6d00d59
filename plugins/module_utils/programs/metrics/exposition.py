# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples as Prometheus' text format 0.0.4, for node_exporter's textfile collector. Pure but for `replace`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.system import folders

from .families import FAMILIES

Samples = list[tuple[str, dict[str, str], float]]  # name, labels, value


def sample(name: str, value: float | None, **labels: str | None) -> Samples:
    """One sample, or none where the value is unknown. A label that is unknown is left out."""
    if value is None:
        return []
    return [(name, {key: text for key, text in labels.items() if text is not None}, float(value))]


def render(samples: Iterable[tuple[str, Mapping[str, str], float]]) -> str:
    """By families in their order; of two samples with the same labels the last one counts."""
    found: dict[str, dict[str, str]] = {}
    for name, labels, value in samples:
        series = ",".join(f'{key}="{escaped(text)}"' for key, text in sorted(labels.items()))
        found.setdefault(name, {})[series] = f"{value:.15g}"
    lines = []
    for name, (kind, about, _source) in FAMILIES.items():
        if name in found:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [
                f"{name}{{{series}}} {value}" if series else f"{name} {value}" for series, value in found[name].items()
            ]
    return "\n".join([*lines, ""])


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def replace(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, and never a part. node_exporter reads what ends in .prom.

    Root writes here, so only where nobody else can put a link.
    """
    parent = str(path.parent)
    if not folders.only_ours(parent):
        raise PermissionError(errno.EPERM, "root writes no metrics into a folder that somebody else can change", parent)
    with folders.folder(parent) as place:
        new = f".{path.name}.new"
        folders.remove_file(new, place)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=place)
        # A name of sysfs that is no UTF-8 must not cost the whole file.
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a descriptor
            os.fchmod(descriptor, 0o644)  # node_exporter is no root
            file.write(text)
        os.replace(new, path.name, src_dir_fd=place, dst_dir_fd=place)
