# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and directories: content, owner, group, mode; written whole or not at all."""

from __future__ import annotations

import json
import posixpath
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.resources.common import (
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system import HostError, System, set_access, sync_directory

_ABSOLUTE = re.compile(r"/[^/]")
_MODE = re.compile(r"[0-7]{3,4}\Z")
_ACCOUNT = re.compile(r"([a-z_][a-z0-9_-]*\$?|[0-9]+)\Z")
_ANYTHING = re.compile(r".")
_STATES = ("present", "absent", "directory")

_UNIT_DIRECTORIES = ("/etc/systemd/system/", "/usr/local/lib/systemd/system/")
_APT_SOURCES = ("/etc/apt/", "/usr/share/keyrings/")


@dataclass(frozen=True)
class File(Resource):
    """A file with `content`, or one with a JSON object that `merge_json` is merged into, or a directory, or nothing."""

    KIND = "file"

    state: str = "present"
    content: str | None = None
    merge_json: Mapping[str, Any] | None = None
    owner: str = "root"
    group: str = "root"
    mode: int = 0o644
    validate: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """What stands at a path; `content` of a regular file, `empty` of a directory."""

    type: str  # file | directory | other (a link, a device, ...)
    owner: str
    group: str
    mode: int
    content: bytes = b""
    empty: bool = False


def parse_path(fields: Fields) -> str:
    path = fields.name(_ABSOLUTE, "an absolute path")
    if posixpath.normpath(path) != path:
        raise fields.fail(fields.kind, f"expected a path without '..', '.', '//' or a slash at the end, found {path!r}")
    return path


def is_apt_source(path: str) -> bool:
    """Whether apt answers differently once this file changes."""
    return path.startswith(_APT_SOURCES)


class FileKind(Kind[File, Mapping[str, "Found | None"]]):
    name = File.KIND

    def parse(self, index: int, fields: Fields) -> File:
        state = fields.choice("state", _STATES, "present")
        content, merge_json = fields.content("content"), fields.mapping("merge_json")
        if state == "present" and (content is None) == (merge_json is None):
            raise fields.fail("content", "a present file needs exactly one of content, template and merge_json")
        if state != "present" and (content is not None or merge_json is not None):
            raise fields.fail("content", f"state {state} has no content")
        if merge_json is not None:
            _refuse_unjson(merge_json, fields)
        validate = fields.lines("validate", _ANYTHING, "one argument of a command")
        if validate and (state != "present" or not any("%s" in argument for argument in validate[1:])):
            raise fields.fail("validate", "expected the arguments of a command with %s for the file's name")
        default_mode = "0755" if state == "directory" else "0644"
        resource = File(
            index=index,
            name=parse_path(fields),
            state=state,
            content=content,
            merge_json=merge_json,
            owner=fields.line("owner", "root", _ACCOUNT, "an account name"),
            group=fields.line("group", "root", _ACCOUNT, "a group name"),
            mode=int(fields.line("mode", default_mode, _MODE, "a quoted octal mode such as '0644'"), 8),
            validate=validate,
        )
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[File]) -> dict[str, Found | None]:
        users, groups = system.account_names("passwd"), system.account_names("group")
        return {resource.name: _find(system.path(resource.name), users, groups) for resource in resources}

    def plan(self, resources: Sequence[File], state: Mapping[str, Found | None], plan: Plan) -> None:
        for resource in resources:
            step = plan_file(resource, state[resource.name])
            if step is not None:
                plan.steps.append(step)

    def apply(
        self, system: System, steps: Sequence[Step[File]], state: Mapping[str, Found | None], progress: Progress
    ) -> None:
        for step in steps:
            resource = step.resource
            _apply(system, resource, step.action)
            progress.reload_owed |= resource.name.startswith(_UNIT_DIRECTORIES)
            progress.lists_stale |= is_apt_source(resource.name)
            progress.done.append(step)


def plan_file(resource: File, found: Found | None) -> Step[File] | None:
    if resource.state == "absent":
        return _plan_absence(resource, found)
    if found is not None and (found.type == "directory") != (resource.state == "directory"):
        wanted = "a directory" if resource.state == "directory" else "a file"
        raise HostError(f"{resource.label}: expected {wanted}, found a {found.type}; move it away")
    if found is None:
        if resource.state == "directory":
            return Step(resource, "mkdir", _access(resource))
        return Step(resource, "create", _access(resource), *_texts(None, _desired(resource, None)))
    if resource.state == "directory":
        differences = _access_differences(resource, found)
        return Step(resource, "update", "; ".join(differences)) if differences else None
    desired = _desired(resource, found)
    differences = _access_differences(resource, found) if found.type == "file" else ["not a regular file"]
    if desired != found.content:
        differences.insert(0, "content")
        return Step(resource, "update", "; ".join(differences), *_texts(found.content, desired))
    return Step(resource, "update", "; ".join(differences)) if differences else None


def merge(base: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` over `base`, mapping by mapping; keys that `changes` does not name survive."""
    merged = dict(base) if isinstance(base, dict) else {}
    for key, value in changes.items():
        merged[key] = merge(merged.get(key), value) if isinstance(value, dict) else value
    return merged


def _plan_absence(resource: File, found: Found | None) -> Step[File] | None:
    if found is None:
        return None
    if found.type == "directory" and not found.empty:
        raise HostError(f"{resource.label}: is a directory with something in it; look, then remove it by hand")
    return Step(resource, "remove", f"a {found.type}", *_texts(found.content, None))


def _desired(resource: File, found: Found | None) -> bytes:
    """The content that the file should have, given what stands there."""
    if resource.merge_json is None:
        return (resource.content or "").encode()
    present: Any = {}
    if found is not None and found.content.strip():
        try:
            present = json.loads(found.content)
        except ValueError as error:
            raise HostError(f"{resource.label}: is not JSON ({error}); repair it or move it away") from None
        if not isinstance(present, dict):
            raise HostError(f"{resource.label}: is JSON, but not an object; repair it or move it away")
    merged = merge(present, resource.merge_json)
    if found is not None and found.content.strip() and merged == present:
        return found.content  # same meaning: whoever laid it out keeps the layout
    return (json.dumps(merged, indent=2, ensure_ascii=False) + "\n").encode()


def _access(resource: File) -> str:
    return f"{resource.owner}:{resource.group} {resource.mode:04o}"


def _access_differences(resource: File, found: Found) -> list[str]:
    differences = []
    if found.mode != resource.mode:
        differences.append(f"mode {found.mode:04o} -> {resource.mode:04o}")
    if found.owner != resource.owner:
        differences.append(f"owner {found.owner} -> {resource.owner}")
    if found.group != resource.group:
        differences.append(f"group {found.group} -> {resource.group}")
    return differences


def _texts(before: bytes | None, after: bytes | None) -> tuple[str | None, str | None]:
    """Both sides for the diff; bytes that are no text are named, not shown."""
    texts: list[str | None] = []
    for side in (before, after):
        try:
            texts.append(None if side is None else side.decode())
        except UnicodeDecodeError:
            texts.append("(binary)\n")
    return texts[0], texts[1]


def _find(path: Path, users: Mapping[int, str], groups: Mapping[int, str]) -> Found | None:
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    owner = users.get(status.st_uid, str(status.st_uid))
    group = groups.get(status.st_gid, str(status.st_gid))
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode):
        return Found("file", owner, group, mode, content=path.read_bytes())
    if stat.S_ISDIR(status.st_mode):
        return Found("directory", owner, group, mode, empty=not any(path.iterdir()))
    return Found("other", owner, group, mode)


def _apply(system: System, resource: File, action: str) -> None:
    path = system.path(resource.name)
    if action == "remove":
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        sync_directory(path.parent)
        return
    if resource.state == "directory":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        uid, gid = system.account_id("passwd", resource.owner), system.account_id("group", resource.group)
        set_access(path, resource.mode, uid, gid)
        sync_directory(path.parent)
        return

    def check(temporary: Path) -> None:
        argv = [argument.replace("%s", str(temporary)) for argument in resource.validate]
        done = system.run(argv) if argv else None
        if done is not None and done.rc != 0:
            raise HostError(f"{resource.label}: `{argv[0]}` refuses the new content: {done.words}; the old file stands")

    # Asked again: a package installed earlier in this run may have written the JSON file meanwhile.
    found = _find(path, {}, {}) if resource.merge_json is not None else None
    system.write(
        resource.name,
        _desired(resource, found),
        mode=resource.mode,
        owner=resource.owner,
        group=resource.group,
        check=check,
    )


def _refuse_unjson(value: Mapping[str, Any], fields: Fields) -> None:
    try:
        json.dumps(value, allow_nan=False).encode()
        keys = _keys(value)
        "".join(keys).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise fields.fail("merge_json", f"is not JSON: {error}") from None


def _keys(value: Any) -> list[str]:
    """All keys below a value; json.dumps would quietly turn a number as a key into text."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
        return [*value, *(name for item in value.values() for name in _keys(item))]
    if isinstance(value, (list, tuple)):
        return [name for item in value for name in _keys(item)]
    return []
