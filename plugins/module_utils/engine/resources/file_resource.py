# SPDX-License-Identifier: GPL-3.0-or-later
"""A file as it is wanted, and what stands at its path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    LEADING_SOURCE,
    REST,
    SOURCES,
    Resource,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_paths import belongs_to_apt
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import sha256

ACCESS = ("owner", "group", "mode")


@dataclass(frozen=True)
class File(Resource):
    """A file with `content`, or one with a JSON object that is merged into, or a directory, or nothing.

    `merge_json` is what the object must hold; `default_json` gives top-level keys that it lacks otherwise, unless it
    has one of `default_unless`. `with_files` is of a directory whose plain files are the role's own: they go with it.
    `with_all` is of one where everything is, however deep.
    `stated` are the parts of owner, group and mode that the document names itself. The manifest has `sha256` in place
    of a content that it must not keep: enough to compare. An undo is the `way_back`: it leaves a directory with
    something in it, and only it puts back a link to `target` or takes what is `ours` out of a JSON object.
    """

    KIND = "file"

    state: str = "present"
    content: bytes | None = None
    merge_json: Mapping[str, Any] | None = None
    default_json: Mapping[str, Any] | None = None
    default_unless: tuple[str, ...] = ()
    owner: str = "root"
    group: str = "root"
    mode: int = 0o644
    validate: tuple[str, ...] = ()
    secret: bool = False
    stated: frozenset[str] = frozenset()
    sha256: str = ""
    target: str = ""
    with_files: bool = False
    with_all: bool = False
    way_back: bool = False
    ours: Mapping[str, Any] | None = None

    @property
    def leading(self) -> int:
        return LEADING_SOURCE if belongs_to_apt(self.name) else 0

    @property
    def stage(self) -> int:
        return SOURCES if belongs_to_apt(self.name) else REST

    @property
    def own_path(self) -> str:
        return self.name

    def claimed(self, declared: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self.secret or self.content is None:
            return declared
        return {**declared, "content": {"sha256": sha256(self.content)}}

    @property
    def is_json(self) -> bool:
        return self.merge_json is not None or self.default_json is not None

    @property
    def may_be_somebodys(self) -> bool:
        """Return whether it is ours in part only, so that what nobody states about its access stays as it is."""
        return self.state == "directory" or self.is_json or self.ours is not None


@dataclass(frozen=True)
class Found:
    """What stands at a path; `content` of a regular file, `entries` of a directory."""

    type: str  # file | directory | link | device, pipe or socket
    owner: str
    group: str
    mode: int
    content: bytes = b""
    entries: tuple[str, ...] = ()
    target: str = ""  # of a link
    folders: tuple[str, ...] = ()  # those of the entries that are directories

    @property
    def words(self) -> str:
        return f"a link to {self.target!a}" if self.type == "link" else f"a {self.type}"
