# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and directories: content, owner, group, mode; written whole or not at all."""

from __future__ import annotations

import binascii
import errno
import json
import os
import posixpath
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    MAX_CONTENT,
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.expected import parse_expected
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_content import (
    digest,
    is_known,
    lacking,
    meaning,
    parsed,
    taken_out_of,
    texts,
    wanted_content,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_fields import parse_file
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_paths import outdates_lists, unit_pattern
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_resource import ACCESS, File, Found
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.json_merge import merge, noted
from ansible_collections.gb10.fleet.plugins.module_utils.system import folders
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import (
    TEMPORARY_PREFIX,
    HostError,
    System,
    set_access,
)

_STATES = ("present", "absent", "directory", "expected")
_EXCHANGED = (errno.ELOOP, errno.ENOTDIR, errno.EINVAL)  # a link or another thing in place of what was there
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


class FileKind(Kind[File, Mapping[str, "Found | None"]]):
    name = File.KIND

    def parse(self, index: int, fields: Fields) -> Any:
        """A File, or with `state: expected` one that is not for us to write."""
        state = fields.choice("state", _STATES, "present")
        return parse_expected(index, fields) if state == "expected" else parse_file(index, fields, state)

    def read(self, system: System, resources: Sequence[File]) -> dict[str, Found | None]:
        users, groups = system.account_names("passwd"), system.account_names("group")
        return {resource.name: _find(system, resource.name, users, groups) for resource in resources}

    def plan(self, resources: Sequence[File], state: Mapping[str, Found | None], plan: Plan) -> None:
        for resource in resources:
            removed = {step.resource.name for step in plan.steps if step.action == "remove"}
            step = plan_file(resource, state[resource.name], removed)
            if step is not None:
                is_file = resource.state == "present" and step.action != "remove"
                leaves = meaning(wanted_content(resource, state[resource.name])) if is_file else ""
                plan.steps.append(replace(step, leaves=leaves))

    def prepare(self, system: System, plan: Plan, state: Mapping[str, Found | None]) -> None:
        for step in plan.steps:
            resource = step.resource
            if isinstance(resource, File) and not is_known(resource, state[resource.name]):
                raise HostError(f"{resource.label}: only the digest of its content is known here; run its role")

    def apply(
        self, system: System, steps: Sequence[Step[File]], state: Mapping[str, Found | None], progress: Progress
    ) -> None:
        for step in steps:
            resource = step.resource
            _apply(system, resource, step.action)
            unit = unit_pattern(resource.name)
            if unit:
                progress.unit_files.add(unit)
                if step.action == "remove" and not resource.name.endswith(".conf"):  # a drop-in leaves its unit
                    progress.units_gone.add(unit)
            progress.lists_stale |= outdates_lists(resource.name)
            progress.done.append(step)

    def record(self, resource: File, state: Mapping[str, Found | None]) -> dict[str, Any]:
        """Nothing of what is absent; of a secret, and of what is too large to keep, the digest alone."""
        found = state[resource.name]
        if found is None:
            return {}
        record: dict[str, Any] = {"type": found.type, "owner": found.owner, "group": found.group}
        if found.type == "link":
            return {**record, "target": found.target}
        record["mode"] = f"{found.mode:04o}"
        if found.type != "file":
            return record
        if resource.secret or len(found.content) > MAX_CONTENT:
            return {**record, "sha256": digest(found.content)}
        try:
            return {**record, "content": found.content.decode()}
        except UnicodeDecodeError:
            return {**record, "content_base64": binascii.b2a_base64(found.content, newline=False).decode()}

    def before(self, resource: File, record: Mapping[str, Any], state: Mapping[str, Found | None]) -> Mapping[str, Any]:
        """With what our keys of a JSON object hold until now: the others are somebody's at any time."""
        if not resource.is_json:
            return record
        present = parsed(resource, state[resource.name])
        ours = noted(record.get("ours", {}), present, resource.merge_json or {})
        merged = merge(present, resource.merge_json or {})
        for key, value in lacking(resource, merged).items():
            ours.setdefault(json.dumps([key]), {"put": value, "made": 0})
        return {**record, "ours": ours}

    def untouched(self, resource: File, left: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
        """Of a JSON object only our keys count."""
        if left == live or not resource.is_json or "content" not in live:
            return left == live
        try:
            found = Found("file", live["owner"], live["group"], 0, content=live["content"].encode())
            same = wanted_content(resource, found) == found.content
        except HostError:
            return False
        return same and {**left, "content": ""} == {**live, "content": ""}

    def restore(self, resource: File, record: Mapping[str, Any]) -> list[Resource]:
        former = replace(resource, content=None, merge_json=None, default_json=None, sha256="", validate=())
        former = replace(former, way_back=True, ours=record.get("ours", {}) if resource.is_json else None)
        if resource.is_json and "type" not in record:
            return [former]
        if not record:
            return [replace(former, state="absent")]
        if record["type"] == "link":
            return [replace(former, state="link", target=record["target"])]
        access = {"owner": record["owner"], "group": record["group"], "mode": int(record["mode"], 8)}
        former = replace(former, **access, stated=frozenset(ACCESS))
        if record["type"] == "directory":
            return [replace(former, state="directory")]
        if record["type"] != "file":
            raise HostError(f"{resource.label}: was a {record['type']}, and that cannot be brought back; do it by hand")
        if "content" in record:
            return [replace(former, state="present", content=record["content"].encode())]
        if "content_base64" in record:
            return [replace(former, state="present", content=binascii.a2b_base64(record["content_base64"]))]
        if resource.is_json:
            return [former]
        return [replace(former, state="present", sha256=record["sha256"])]


def plan_file(resource: File, found: Found | None, removed: Collection[str]) -> Step[File] | None:
    """`removed`: what earlier steps take away."""
    if resource.state == "absent":
        return _plan_absence(resource, found, removed)
    _refuse_other_types(resource, found)
    if resource.state == "link":
        same = found is not None and found.target == resource.target
        return None if same else Step(resource, "link", f"to {resource.target!a}")
    if resource.way_back and not is_known(resource, found):
        raise HostError(
            f"{resource.label}: what stood there cannot be brought back: of a secret, and of more than 1 MiB, only the"
            " digest was kept; put it back by hand, then run again"
        )
    if resource.ours is not None and resource.content is None and not taken_out_of(resource, found):
        return None if found is None else Step(resource, "remove", found.words, *texts(resource, found.content, None))
    if found is None:
        if resource.state == "directory":
            return Step(resource, "mkdir", _access(resource))
        return Step(resource, "create", _access(resource), *texts(resource, None, wanted_content(resource, None)))
    differences = _access_differences(resource, found)
    if resource.state == "directory":
        return Step(resource, "update", "; ".join(differences)) if differences else None
    desired = wanted_content(resource, found)
    if desired != found.content or not is_known(resource, found):
        differences.insert(0, "content")
        return Step(resource, "update", "; ".join(differences), *texts(resource, found.content, desired))
    return Step(resource, "update", "; ".join(differences)) if differences else None


def _refuse_other_types(resource: File, found: Found | None) -> None:
    """What stands in the way belongs to somebody: to replace a link would detach whatever it leads to."""
    wanted = resource.state if resource.state in ("directory", "link") else "file"
    if found is not None and found.type != wanted:
        way_out = "name its target instead, or remove the link" if found.type == "link" else "move it away"
        raise HostError(f"{resource.label}: expected a {wanted}, found {found.words}; {way_out}")


def _plan_absence(resource: File, found: Found | None, removed: Collection[str]) -> Step[File] | None:
    if found is None:
        return None
    entries = () if resource.with_all else found.folders if resource.with_files else found.entries
    if any(posixpath.join(resource.name, entry) not in removed for entry in entries):
        if resource.way_back:
            return None
        raise HostError(f"{resource.label}: is a directory with something in it; look, then remove it by hand")
    return Step(resource, "remove", found.words, *texts(resource, found.content, None))


def _access(resource: File) -> str:
    return f"{resource.owner}:{resource.group} {resource.mode:04o}"


def _with_kept_access(resource: File, found: Found | None) -> File:
    """What exists and is not ours alone may hold secrets of its owner: what nobody states about its access stays."""
    if not resource.may_be_somebodys or found is None:
        return resource
    return replace(resource, **{key: getattr(found, key) for key in ACCESS if key not in resource.stated})


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


def _find(system: System, path: str, users: Mapping[int, str], groups: Mapping[int, str]) -> Found | None:
    try:
        with system.folder_of(path) as parent:
            return _found_in(parent, posixpath.basename(path), users, groups)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _found_in(parent: int, name: str, users: Mapping[int, str], groups: Mapping[int, str]) -> Found:
    """What is said of a file or directory is said of one and the same, also where somebody exchanges it meanwhile."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    content, target = b"", ""
    entries: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    if stat.S_ISREG(status.st_mode):
        with os.fdopen(folders.open_file(name, parent), "rb") as file:
            status, content = os.fstat(file.fileno()), file.read()
    elif stat.S_ISDIR(status.st_mode):
        status, entries, inner = _listed(name, parent)
    elif stat.S_ISLNK(status.st_mode):
        target = os.readlink(name, dir_fd=parent)
    owner = users.get(status.st_uid, str(status.st_uid))
    group = groups.get(status.st_gid, str(status.st_gid))
    kind = _TYPES.get(stat.S_IFMT(status.st_mode), "device, pipe or socket")
    return Found(kind, owner, group, stat.S_IMODE(status.st_mode), content, entries, target, inner)


def _listed(name: str, parent: int) -> tuple[os.stat_result, tuple[str, ...], tuple[str, ...]]:
    """A directory, all that is in it, and the directories among that."""
    descriptor = folders.open_folder(name, parent)
    try:
        with os.scandir(descriptor) as scan:
            entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan)
        names, inner = (name for name, __ in entries), (name for name, is_folder in entries if is_folder)
        return os.fstat(descriptor), tuple(names), tuple(inner)
    finally:
        os.close(descriptor)


def _apply(system: System, resource: File, action: str) -> None:
    if action in ("remove", "link"):
        with system.folder_of(resource.name) as parent:
            (_remove if action == "remove" else _link)(resource, parent)
            folders.sync(parent)
        return
    # Asked again: a package installed earlier in this run may have put something there meanwhile.
    found = _find(system, resource.name, {}, {})
    _refuse_other_types(resource, found)
    if resource.state == "directory" or resource.sha256:  # of a digest, `prepare` has seen that the content is right
        _give_access(system, resource)
        return
    resource = _with_kept_access(resource, found)

    def check(temporary: Path) -> None:
        argv = [argument.replace("%s", str(temporary)) for argument in resource.validate]
        done = system.run(argv) if argv else None
        if done is not None and done.rc != 0:
            said = "it may quote the secret, so its words are not repeated" if resource.secret else done.words
            raise HostError(f"{resource.label}: `{argv[0]}` refuses the new content: {said}; the old file stands")

    system.write(
        resource.name,
        wanted_content(resource, found),
        mode=resource.mode,
        owner=resource.owner,
        group=resource.group,
        check=check,
    )


def _remove(resource: File, parent: int) -> None:
    name = posixpath.basename(resource.name)
    status = folders.status_of(name, parent)
    if status is not None and stat.S_ISDIR(status.st_mode):
        if resource.with_all:
            folders.clear(name, parent)
        elif resource.with_files:
            _empty(name, parent)
        os.rmdir(name, dir_fd=parent)
    else:
        folders.remove_file(name, parent)


def _empty(name: str, parent: int) -> None:
    """A directory in it stops that: nobody of ours has made it."""
    descriptor = folders.open_folder(name, parent)
    try:
        for entry in os.listdir(descriptor):  # noqa: PTH208
            os.unlink(entry, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _link(resource: File, parent: int) -> None:
    name = posixpath.basename(resource.name)
    temporary = TEMPORARY_PREFIX + name
    folders.remove_file(temporary, parent)
    os.symlink(resource.target, temporary, dir_fd=parent)
    os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)


def _give_access(system: System, resource: File) -> None:
    """Make a directory, or look at what is there, and give it access by the descriptor: its name may be somebody's."""
    with system.folder_of(resource.name, make=True) as parent:
        name = posixpath.basename(resource.name)
        missing = folders.status_of(name, parent) is None
        try:
            open_it = folders.make_folder if resource.state == "directory" else folders.open_file
            descriptor = open_it(name, parent)
        except OSError as error:
            if error.errno not in _EXCHANGED:
                raise
            text = f"{resource.label}: somebody else puts something there ({error.strerror}); look, then run again"
            raise HostError(text) from None
        try:
            status = os.fstat(descriptor)
            found = Found(resource.state, str(status.st_uid), str(status.st_gid), stat.S_IMODE(status.st_mode))
            resource = _with_kept_access(resource, None if missing else found)
            uid, gid = system.account_id("passwd", resource.owner), system.account_id("group", resource.group)
            set_access(descriptor, resource.mode, uid, gid)
        finally:
            os.close(descriptor)
        folders.sync(parent)


def gone_again(path: str, role: str) -> list[Resource]:
    """The way back of a directory that was made for a file: it goes where it is empty."""
    return FileKind().restore(File(0, path, role, state="directory"), {})
