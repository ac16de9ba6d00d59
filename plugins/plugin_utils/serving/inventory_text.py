# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of a plan as YAML that can be pasted into an inventory. A consent is for the reader to give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import plan_lines
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import sources

# Why a variable needs a consent of its own, by that consent.
CONSENTS = {
    "vllm_allow_tag": "the tag of the image can move; or name the image by its digest",
    "vllm_allow_mounts": "the container gets these folders of the host",
    "vllm_allow_security_options": "the container loses a part of Docker's confinement",
}
_NEEDS = {"vllm_mounts": "vllm_allow_mounts", "vllm_security_options": "vllm_allow_security_options"}
# A path of ours may be none of the hosts, so the reader has to look before the container gets it.
_MOUNTED = (
    "# vllm_mounts: {}   # with vllm_allow_mounts: true; the folder is on each host, and the container sees no other"
)

_PORT = "# port: 8001   # each service of a host has its own; without this line it is 8000"


def consents(variables: Mapping[str, Any]) -> list[str]:
    """The consents that these variables need."""
    image = variables.get("vllm_image", "@sha256:")
    found = [] if "@sha256:" in image else ["vllm_allow_tag"]
    return found + [consent for name, consent in _NEEDS.items() if variables.get(name)]


def lines(variables: Mapping[str, Any]) -> list[str]:
    """A line for each variable, and one, commented out, for each consent."""
    said = [f"{name}: {plan_lines.yaml(value)}" for name, value in variables.items()]
    said += [f"# {name}: true   # consent: {CONSENTS[name]}" for name in consents(variables)]
    named = (variables.get("vllm_model", ""), variables.get("vllm_speculative", {}).get("model", ""))
    mounts = [f"{folder}:{folder}:ro" for folder in named if sources.is_path(folder)]
    return said + ([_MOUNTED.format(plan_lines.yaml(mounts))] if mounts else [])


def entry(service: str, variables: Mapping[str, Any]) -> list[str]:
    """The same as an entry of vllm_services, whose keys have no prefix."""
    said = [
        line.replace("vllm_", "") if line.startswith("#") else line.removeprefix("vllm_") for line in lines(variables)
    ]
    said += [] if "vllm_port" in variables else [_PORT]
    return ["vllm_services:", f"  {service}:", *(f"    {line}" for line in said)]
