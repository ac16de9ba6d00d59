# SPDX-License-Identifier: GPL-3.0-or-later
"""What `docker login` would write, for one registry: pure."""

from __future__ import annotations

import base64
import json

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.pull_fault import DOCKER_HUB, registry

# Docker's name for its own registry in its configuration.
_KEYS = {DOCKER_HUB: "https://index.docker.io/v1/"}


def docker_login(image: str, username: str, password: str) -> str:
    """The config.json with which Docker may pull this image."""
    place = registry(image)
    word = base64.b64encode(f"{username}:{password}".encode()).decode()
    return json.dumps({"auths": {_KEYS.get(place, place): {"auth": word}}})
