# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an image could not be pulled, by name: pure, out of what Docker says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import unadvised
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

WAYS_OUT = {
    "disk_full": "`docker system df` shows what can go (`docker image prune`); an image needs 20 GB and more on"
    " Docker's disk",
    "disk_refuses": "Docker's own disk refuses, and no password helps: `docker info` names its folder (Docker Root"
    " Dir), which must be a local disk that root may write to, and not NFS",
    "unauthorized": "set vllm_registry_username and vllm_registry_password (from a vault) to an account that may pull"
    " it, or `sudo docker login REGISTRY` on the host; some registries say this of a name that does not exist",
    "wrong_platform": "the registry has this image for other processors only, and a Spark is linux/arm64: take a tag"
    " that is for arm64 (catalog/images.yml)",
    "image_missing": "the registry has no such image: compare vllm_image with catalog/images.yml",
    "registry_unreachable": "`curl -sI https://REGISTRY/v2/` on the host shows name, route, proxy and certificate;"
    " Docker has its own proxy settings (`docker info`)",
    "rate_limited": "the registry counts pulls by address or account, and answers again later: set"
    " vllm_registry_username and vllm_registry_password (from a vault) to an account with a higher limit, or wait",
    "image_damaged": "what arrived, or what Docker has kept of it, is not whole: `docker image rm` it, `sudo systemctl"
    " restart docker`, and pull again; where it comes back, a proxy in between changes it",
    "docker_down": "`systemctl status docker containerd` says why; where its socket refuses, the play needs root",
}
LONGEST_TEXT = 400
_JUDGED = 4000  # characters, the last ones: patterns follow each other again and again in a text of megabytes
DOCKER_HUB = "docker.io"
_QUERY = re.compile(r"(https?://[^\s?\"]{1,300})\?[^\s\"]*")  # signatures of a store may hold any word or number


def pull_fault(pulled: Mapping[str, Any], image: str) -> dict[str, str] | None:
    """`{verdict, text, way_out}` of a `docker pull` that failed, None of one that did not."""
    if pulled.get("rc") == 0:
        return None
    said = " ".join(str(pulled.get("stderr") or pulled.get("msg") or pulled.get("stdout") or "it says nothing").split())
    said = unadvised(_QUERY.sub(r"\1", said)[-_JUDGED:])  # our own way out stands behind it
    for known in catalog.load("units")["docker_said"]["pull"]:
        if found := re.search(known["value"], said, re.IGNORECASE):
            way_out = WAYS_OUT[known["verdict"]].replace("REGISTRY", registry(image))
            return {"verdict": known["verdict"], "text": _shown(image, said, found.start()), "way_out": way_out}
    text = _shown(image, said, len(said))
    return {"verdict": "pull_failed", "text": text, "way_out": "pull it by hand on the host, and see what Docker says"}


def _shown(image: str, said: str, counts: int) -> str:
    """The end of an error, where Docker says the cause; or from what counts on, where that stands before the end."""
    begins = min(counts, max(0, len(said) - LONGEST_TEXT))
    return f"docker pull {image}: {'... ' if begins else ''}{said[begins : begins + LONGEST_TEXT]}"


def registry(image: str) -> str:
    """The host that Docker asks for an image: the first part of its name, if that can be one."""
    first, slash, __ = image.partition("/")
    named = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return first if named else DOCKER_HUB
