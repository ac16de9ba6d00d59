# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an image could not be pulled, by name: pure, out of what Docker says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# The first one that matches; Docker wraps what the registry, the network and the disk say in sentences of its own.
FAULTS = (
    (
        "disk_full",
        r"no space left on device",
        "`docker system df` shows what can go (`docker image prune`); an image needs 20 GB and more on Docker's disk",
    ),
    (
        "unauthorized",
        r"unauthorized|authentication required|denied|forbidden|no basic auth credentials|\b40[13]\b",
        "set vllm_registry_username and vllm_registry_password (from a vault) to an account that may pull it, or"
        " `sudo docker login REGISTRY` on the host; some registries say this of a name that does not exist",
    ),
    (
        "image_missing",
        r"manifest (for .+ )?(unknown|not found)|repository .+ not found|name unknown|: not found",
        "the registry has no such image: compare vllm_image with catalog/images.yml",
    ),
    (
        "registry_unreachable",
        r"no such host|server misbehaving|dial tcp|connection (refused|reset)|network is unreachable|no route to host"
        r"|timeout|deadline exceeded|request canceled|certificate|server gave HTTP response|unexpected EOF|proxyconnect"
        r"|toomanyrequests|\b(429|50\d)\b",
        "`curl -sI https://REGISTRY/v2/` on the host shows name, route, proxy and certificate; Docker has its own proxy"
        " settings (`docker info`)",
    ),
    (
        "docker_down",
        r"cannot connect to the docker daemon|is the docker daemon running",
        "`systemctl status docker` says why",
    ),
)
LONGEST_TEXT = 400
DOCKER_HUB = "docker.io"


def pull_fault(pulled: Mapping[str, Any], image: str) -> dict[str, str] | None:
    """`{verdict, text, way_out}` of a `docker pull` that failed, None of one that did not."""
    if pulled.get("rc") == 0:
        return None
    said = " ".join(str(pulled.get("stderr") or pulled.get("msg") or pulled.get("stdout") or "it says nothing").split())
    text = f"docker pull {image}: {said[:LONGEST_TEXT]}"
    for verdict, pattern, way_out in FAULTS:
        if re.search(pattern, said, re.IGNORECASE):
            return {"verdict": verdict, "text": text, "way_out": way_out.replace("REGISTRY", registry(image))}
    return {"verdict": "pull_failed", "text": text, "way_out": "pull it by hand on the host, and see what Docker says"}


def registry(image: str) -> str:
    """The host that Docker asks for an image: the first part of its name, if that can be one."""
    first, slash, _ = image.partition("/")
    named = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return first if named else DOCKER_HUB
