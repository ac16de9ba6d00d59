"""`gb10 plan --service NAME[=GIB]`: a plan for an entry of vllm_services, and for the memory that it may take."""

from __future__ import annotations

import math
from dataclasses import replace

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service_entries
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Flags
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Given, canonical

_SHARE = "--gpu-memory-utilization"


def asked(said: str, flags: Flags, memory_bytes: float, given: Given) -> tuple[dict[str, str | None], Given]:
    """The flags with the share of the host that the service may take, and what was named with it."""
    if not said:
        return dict(flags), given
    name, equals, gib = said.partition("=")
    if not service_entries.is_name(name):
        raise typer.BadParameter(
            f"--service {name!r} is no name of a service: 1 to 31 small letters, digits and -, such as embed"
        )
    given = replace(given, service=name)
    if not equals:
        return dict(flags), given
    most = memory_bytes / memory_fit.GIB
    if _SHARE in map(canonical, flags):
        raise typer.BadParameter(f"--service {said} and --set {_SHARE.lstrip('-')} say the same; leave one out")
    if not 0 < (wanted := _number(gib)) < most:
        raise typer.BadParameter(
            f"--service {said}: {gib or 'nothing'} is no number of GiB above 0 and below MemTotal, which is {most:.1f}"
        )
    share = math.floor(wanted / most * 1000) / 1000  # as the role counts it
    return {**flags, _SHARE: f"{share:.3f}"}, replace(given, service_gib=wanted)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
