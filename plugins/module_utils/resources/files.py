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
from dataclasses import dataclass, replace
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

_ACCESS = ("owner", "group", "mode")
_HIDDEN = "(secret)\n"

_UNIT_FILE = re.compile(
    r"/(etc|usr/local/lib)/systemd/system/"
    r"(?P<stem>([A-Za-z0-9:_.\\@-]+\.)?)(?P<type>service|socket|timer|path|mount|automount|swap|target|slice|scope|device)(\.d/[^/]+)?\Z"
)
_APT_SOURCES = ("/etc/apt/", "/usr/share/keyrings/")


@dataclass(frozen=True)
class File(Resource):
    """A file with `content`, or one with a JSON object that is merged into, or a directory, or nothing.

    `merge_json` is what the object must hold; `default_json` gives top-level keys that it lacks otherwise. `stated` are
    the parts of owner, group and mode that the document names itself.
    """

    KIND = "file"

    state: str = "present"
    content: str | None = None
    merge_json: Mapping[str, Any] | None = None
    default_json: Mapping[str, Any] | None = None
    owner: str = "root"
    group: str = "root"
    mode: int = 0o644
    validate: tuple[str, ...] = ()
    secret: bool = False
    stated: frozenset[str] = frozenset()

    @property
    def is_json(self) -> bool:
        return self.merge_json is not None or self.default_json is not None


@dataclass(frozen=True)
class Found:
    """What stands at a path; `content` of a regular file, `empty` of a directory."""

    type: str  # file | directory | link | device, pipe or socket
    owner: str
    group: str
    mode: int
    content: bytes = b""
    empty: bool = False
    target: str = ""  # of a link

    @property
    def words(self) -> str:
        return f"a link to {self.target!a}" if self.type == "link" else f"a {self.type}"


def parse_path(fields: Fields) -> str:
    path = fields.name(_ABSOLUTE, "an absolute path")
    if posixpath.normpath(path) != path:
        raise fields.fail(fields.kind, f"expected a path without '..', '.', '//' or a slash at the end, found {path!r}")
    return path


def is_apt_source(path: str) -> bool:
    """Whether apt answers differently once this file changes."""
    return path.startswith(_APT_SOURCES)


def unit_pattern(path: str) -> str:
    """The units that a unit file or a drop-in is for, as `systemctl show` takes them; empty if it is for none."""
    match = _UNIT_FILE.match(path)
    if match is None:
        return ""
    stem = match["stem"].rstrip(".")
    # A template is for all its instances, a stem that ends in a dash or no stem at all for all units that share it.
    return f"{stem}*.{match['type']}" if stem.endswith(("@", "-")) or not stem else f"{stem}.{match['type']}"


class FileKind(Kind[File, Mapping[str, "Found | None"]]):
    name = File.KIND

    def parse(self, index: int, fields: Fields) -> File:
        state = fields.choice("state", _STATES, "present")
        content = fields.content("content")
        merge_json, default_json = _json_object("merge_json", fields), _json_object("default_json", fields)
        is_json = merge_json is not None or default_json is not None
        if state == "present" and (content is not None) == is_json:
            raise fields.fail(
                "content", "a present file needs exactly one of content, template, and merge_json or default_json"
            )
        if state != "present" and (content is not None or is_json):
            raise fields.fail("content", f"state {state} has no content")
        secret = bool(fields.flag("secret"))
        if secret and state == "directory":
            raise fields.fail("secret", "a directory has no content to keep secret")
        validate = fields.lines("validate", _ANYTHING, "one argument of a command")
        if validate and (state != "present" or not any("%s" in argument for argument in validate[1:])):
            raise fields.fail("validate", "expected the arguments of a command with %s for the file's name")
        default_mode = "0755" if state == "directory" else "0600" if secret else "0644"
        resource = File(
            index=index,
            name=parse_path(fields),
            state=state,
            content=content,
            merge_json=merge_json,
            default_json=default_json,
            owner=fields.line("owner", "root", _ACCOUNT, "an account name"),
            group=fields.line("group", "root", _ACCOUNT, "a group name"),
            mode=int(fields.line("mode", default_mode, _MODE, "a quoted octal mode such as '0644'"), 8),
            validate=validate,
            secret=secret,
            stated=frozenset(key for key in _ACCESS if fields.has(key)),
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
            unit = unit_pattern(resource.name)
            if unit:
                progress.unit_files.add(unit)
            progress.lists_stale |= is_apt_source(resource.name)
            progress.done.append(step)


def plan_file(resource: File, found: Found | None) -> Step[File] | None:
    if resource.state == "absent":
        return _plan_absence(resource, found)
    _refuse_other_types(resource, found)
    if found is None:
        if resource.state == "directory":
            return Step(resource, "mkdir", _access(resource))
        return Step(resource, "create", _access(resource), *_texts(resource, None, _desired(resource, None)))
    differences = _access_differences(resource, found)
    if resource.state == "directory":
        return Step(resource, "update", "; ".join(differences)) if differences else None
    desired = _desired(resource, found)
    if desired != found.content:
        differences.insert(0, "content")
        return Step(resource, "update", "; ".join(differences), *_texts(resource, found.content, desired))
    return Step(resource, "update", "; ".join(differences)) if differences else None


def merge(base: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` over `base`, mapping by mapping; keys and list items that `changes` does not name survive."""
    merged = dict(base) if isinstance(base, dict) else {}
    for key, value in changes.items():
        present = merged.get(key)
        if isinstance(value, dict):
            merged[key] = merge(present, value)
        elif isinstance(value, list) and isinstance(present, list):
            ours = {_canonical(item) for item in value}
            merged[key] = [*value, *(item for item in present if _canonical(item) not in ours)]
        else:
            merged[key] = value
    return merged


def _canonical(value: Any) -> str:
    """To compare as JSON does: Python takes true for 1."""
    return json.dumps(value, sort_keys=True)


def _refuse_other_types(resource: File, found: Found | None) -> None:
    """What stands in the way belongs to somebody: to replace a link would detach whatever it leads to."""
    wanted = "directory" if resource.state == "directory" else "file"
    if found is not None and found.type != wanted:
        way_out = "name its target instead, or remove the link" if found.type == "link" else "move it away"
        raise HostError(f"{resource.label}: expected a {wanted}, found {found.words}; {way_out}")


def _plan_absence(resource: File, found: Found | None) -> Step[File] | None:
    if found is None:
        return None
    if found.type == "directory" and not found.empty:
        raise HostError(f"{resource.label}: is a directory with something in it; look, then remove it by hand")
    return Step(resource, "remove", found.words, *_texts(resource, found.content, None))


def _desired(resource: File, found: Found | None) -> bytes:
    """The content that the file should have, given what stands there."""
    if not resource.is_json:
        return (resource.content or "").encode()
    present: Any = {}
    if found is not None and found.content.strip():
        try:
            present = json.loads(found.content)
        except ValueError as error:
            said = "" if resource.secret else f" ({error})"
            raise HostError(f"{resource.label}: is not JSON{said}; repair it or move it away") from None
        if not isinstance(present, dict):
            raise HostError(f"{resource.label}: is JSON, but not an object; repair it or move it away")
    merged = merge(present, resource.merge_json or {})
    for key, value in (resource.default_json or {}).items():
        merged.setdefault(key, value)
    if found is not None and found.content.strip() and _canonical(merged) == _canonical(present):
        return found.content  # same meaning: whoever laid it out keeps the layout
    return (json.dumps(merged, indent=2, ensure_ascii=False) + "\n").encode()


def _access(resource: File) -> str:
    return f"{resource.owner}:{resource.group} {resource.mode:04o}"


def _with_kept_access(resource: File, found: Found | None) -> File:
    """A directory that exists may be somebody's: what the document does not state about its access stays."""
    if resource.state != "directory" or found is None:
        return resource
    return replace(resource, **{key: getattr(found, key) for key in _ACCESS if key not in resource.stated})


def _access_differences(resource: File, found: Found) -> list[str]:
    resource = _with_kept_access(resource, found)
    differences = []
    if found.mode != resource.mode:
        differences.append(f"mode {found.mode:04o} -> {resource.mode:04o}")
    if found.owner != resource.owner:
        differences.append(f"owner {found.owner} -> {resource.owner}")
    if found.group != resource.group:
        differences.append(f"group {found.group} -> {resource.group}")
    return differences


def _texts(resource: File, before: bytes | None, after: bytes | None) -> tuple[str | None, str | None]:
    """Both sides for the diff; secrets and bytes that are no text are named, not shown."""
    if resource.secret:
        # Two different texts, so that the diff shows the change and nothing of it.
        changed = "(secret, changed)\n" if before is not None else _HIDDEN
        return (None if before is None else _HIDDEN), (None if after is None else changed)
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
    if stat.S_ISLNK(status.st_mode):
        return Found("link", owner, group, mode, target=str(path.readlink()))
    return Found("device, pipe or socket", owner, group, mode)


def _apply(system: System, resource: File, action: str) -> None:
    path = system.path(resource.name)
    if action == "remove":
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        sync_directory(path.parent)
        return
    # Asked again: a package installed earlier in this run may have put something there meanwhile.
    found = _find(path, {}, {})
    _refuse_other_types(resource, found)
    if resource.state == "directory":
        resource = _with_kept_access(resource, found)
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        uid, gid = system.account_id("passwd", resource.owner), system.account_id("group", resource.group)
        set_access(path, resource.mode, uid, gid)
        sync_directory(path.parent)
        return

    def check(temporary: Path) -> None:
        argv = [argument.replace("%s", str(temporary)) for argument in resource.validate]
        done = system.run(argv) if argv else None
        if done is not None and done.rc != 0:
            said = "it may quote the secret, so its words are not repeated" if resource.secret else done.words
            raise HostError(f"{resource.label}: `{argv[0]}` refuses the new content: {said}; the old file stands")

    system.write(
        resource.name,
        _desired(resource, found),
        mode=resource.mode,
        owner=resource.owner,
        group=resource.group,
        check=check,
    )


def _json_object(key: str, fields: Fields) -> dict[str, Any] | None:
    value = fields.mapping(key)
    if value is None:
        return None
    try:
        json.dumps(value, allow_nan=False).encode()
        keys = _keys(value)
        "".join(keys).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise fields.fail(key, f"is not JSON: {error}") from None
    return value


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
