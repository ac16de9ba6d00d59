# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of the module in_use: see plugin_utils/hosts/module_front.py."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.module_front import ModuleFront


class Container(TypedDict):
    name: str
    image: str


class Listener(TypedDict):
    port: int
    who: str


class Cache(TypedDict):
    path: str
    models: list[str]


class Answer(TypedDict):
    containers: list[Container]
    listeners: list[Listener]
    cache: Cache


class ActionModule(ModuleFront):
    """Say what somebody serves on a host by hand."""

    answer = Answer
