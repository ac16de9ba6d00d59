# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of the role vllm for its image: what Docker needs to pull it, and why it could not be pulled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.docker_login import docker_login
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.pull_fault import pull_fault


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"docker_login": docker_login, "pull_fault": pull_fault}
