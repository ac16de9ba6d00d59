# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and directories: content, owner, group, mode; written whole or not at all."""

from __future__ import annotations

import binascii
import contextlib
import json
import os
import posixpath
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import openpgp
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    MAX_CONTENT,
    DocumentError,
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.json_merge import (
    canonical,
    merge,
    noted,
    noted_part,
    part,
    taken_out,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.structs import dataclass, replace
from ansible_collections.gb10.fleet.plugins.module_utils.engine.system import (
    TEMPORARY_PREFIX,
    HostError,
    System,
    set_access,
    sha256,
    sync_directory,
)

# A template that nobody rendered is no name of anything.
_ABSOLUTE = re.compile(r"/[^/](?!.*(\{\{|\{%))")
_MODE = re.compile(r"[0-7]{3,4}\Z")
_ACCOUNT = re.compile(r"([a-z_][a-z0-9_-]*\$?|[0-9]{1,10})\Z")
_ARGUMENT = re.compile(r"(?!.*(\{\{|\{%))[ -~]+\Z")
_COMMAND = re.compile(r"[A-Za-z0-9/]")
_SENTENCE = re.compile(r"(?!.*(\{\{|\{%))[!-~][ -~]+\Z")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}\Z")
_TEXT = re.compile(r"(?!.*(\{\{|\{%))[!-~]+\Z")
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.\\@-]*\.service\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_STATES = ("present", "absent", "directory", "expected")
_MAX_NESTING = 32
_WRITER_TIMEOUT_S = 300.0

_ACCESS = ("owner", "group", "mode")
_HIDDEN = "(secret)\n"

_UNIT_FILE = re.compile(
    r"/(etc|usr/local/lib)/systemd/system/"
    r"(?P<stem>([A-Za-z0-9:_.\\@-]+\.)?)(?P<type>service|socket|timer|path|mount|automount|swap|target|slice|scope|device)(\.d/[^/]+)?\Z"
)
_APT_SOURCE = re.compile(r"/etc/apt/(sources\.list|preferences|keyrings/|trusted\.gpg|auth\.conf)|/usr/share/keyrings/")
_APT_PIN = "/etc/apt/preferences"


@dataclass(frozen=True)
class File(Resource):
    """A file with `content`, or one with a JSON object that is merged into, or a directory, or nothing.

    `merge_json` is what the object must hold; `default_json` gives top-level keys that it lacks otherwise, unless it
    has one of `default_unless`. `stated` are the parts of owner, group and mode that the document names itself. The
    manifest has `sha256` in place of a content that it must not keep: enough to compare. An undo is the `way_back`: it
    leaves a directory with something in it, and only it puts back a link to `target` or takes what is `ours` out of a
    JSON object.
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
    way_back: bool = False
    ours: Mapping[str, Any] | None = None

    @property
    def is_json(self) -> bool:
        return self.merge_json is not None or self.default_json is not None

    @property
    def may_be_somebodys(self) -> bool:
        """Whether it is ours in part only, so that what nobody states about its access stays as it is."""
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

    @property
    def words(self) -> str:
        return f"a link to {self.target!a}" if self.type == "link" else f"a {self.type}"


def parse_path(fields: Fields) -> str:
    path = fields.name(_ABSOLUTE, "an absolute path")
    if posixpath.normpath(path) != path or not path.isprintable():
        raise fields.fail(fields.kind, f"expected a path without '..', '.', '//' or a slash at the end, found {path!a}")
    return path


def is_apt_source(path: str) -> bool:
    """Whether apt answers differently once this file changes: sources, pins, keys and credentials."""
    return _APT_SOURCE.match(path) is not None


def outdates_lists(path: str) -> bool:
    """Whether apt has to fetch its lists again once this file changes; a pin only weighs what they hold."""
    return is_apt_source(path) and not path.startswith(_APT_PIN)


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

    def parse(self, index: int, fields: Fields) -> Any:
        """A File, or with `state: expected` one that is not for us to write."""
        state = fields.choice("state", _STATES, "present")
        if state == "expected":
            return _parse_expected(index, fields)
        secret = bool(fields.flag("secret"))
        if secret and state == "directory":
            raise fields.fail("secret", "a directory has no content to keep secret")
        content, sha256 = _parse_content(fields, secret)
        _check_key(fields, content)
        merge_json, default_json = _json_object("merge_json", fields), _json_object("default_json", fields)
        is_json = merge_json is not None or default_json is not None
        has_content = content is not None or bool(sha256)
        if state == "present" and has_content == is_json:
            raise fields.fail(
                "content", "a present file needs exactly one of content, template, and merge_json or default_json"
            )
        if state != "present" and (has_content or is_json):
            raise fields.fail("content", f"state {state} has no content")
        default_unless = fields.lines("default_unless", _TEXT, "a key of the object")
        if default_unless and default_json is None:
            raise fields.fail("default_unless", "is for default_json")
        if secret and is_json:
            raise fields.fail("secret", "only a whole content can be one, because the manifest keeps its digest")
        default_mode = "0755" if state == "directory" else "0600" if secret else "0644"
        resource = File(
            index=index,
            name=parse_path(fields),
            state=state,
            content=content,
            merge_json=merge_json,
            default_json=default_json,
            default_unless=default_unless,
            owner=fields.line("owner", "root", _ACCOUNT, "an account name"),
            group=fields.line("group", "root", _ACCOUNT, "a group name"),
            mode=int(fields.line("mode", default_mode, _MODE, "a quoted octal mode such as '0644'"), 8),
            validate=_parse_validate(fields, state),
            secret=secret,
            stated=frozenset(key for key in _ACCESS if fields.has(key)),
            sha256=sha256,
        )
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[File]) -> dict[str, Found | None]:
        users, groups = system.account_names("passwd"), system.account_names("group")
        return {resource.name: _find(system.path(resource.name), users, groups) for resource in resources}

    def plan(self, resources: Sequence[File], state: Mapping[str, Found | None], plan: Plan) -> None:
        for resource in resources:
            removed = {step.resource.name for step in plan.steps if step.action == "remove"}
            step = plan_file(resource, state[resource.name], removed)
            if step is not None:
                plan.steps.append(step)

    def prepare(self, system: System, plan: Plan, state: Mapping[str, Found | None]) -> None:
        for step in plan.steps:
            resource = step.resource
            if isinstance(resource, File) and not _is_known(resource, state[resource.name]):
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
        present = _parsed(resource, state[resource.name])
        ours = noted(record.get("ours", {}), present, resource.merge_json or {})
        merged = merge(present, resource.merge_json or {})
        for key, value in _lacking(resource, merged).items():
            ours.setdefault(json.dumps([key]), {"put": value, "made": 0})
        return {**record, "ours": ours}

    def untouched(self, resource: File, left: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
        """Of a JSON object only our keys count."""
        if left == live or not resource.is_json or "content" not in live:
            return left == live
        try:
            found = Found("file", live["owner"], live["group"], 0, content=live["content"].encode())
            same = _desired(resource, found) == found.content
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
        former = replace(former, **access, stated=frozenset(_ACCESS))
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


@dataclass(frozen=True)
class Expected(Resource):
    """A file that somebody else writes, for example a unit of the document. It goes by the name of a file."""

    KIND = "expected"

    otherwise: str = ""  # what it means that the file is missing, and the way out
    contains: str = ""  # what stands in a file that is up to date
    written_by: str = ""  # the oneshot service that writes it
    beforehand: bool = False  # nothing in the document brings it

    @property
    def label(self) -> str:
        return f"{File.KIND}:{self.name}"


class ExpectedKind(Kind[Expected, Mapping[str, "str | None"]]):
    """Planned last, because everything earlier in the document may bring the file."""

    name = Expected.KIND

    def parse(self, index: int, fields: Fields) -> Expected:
        raise fields.fail(self.name, "is not a resource of a document; it is a file with state expected")

    def read(self, system: System, resources: Sequence[Expected]) -> dict[str, str | None]:
        return {resource.name: system.text(resource.name) for resource in resources}

    def plan(self, resources: Sequence[Expected], state: Mapping[str, str | None], plan: Plan) -> None:
        for resource in resources:
            content = state[resource.name]
            if content is not None and resource.contains in content:
                continue
            problem = "is missing" if content is None else f"is out of date: {resource.contains} is not in it"
            earlier = any(step.resource.index < resource.index for step in plan.steps)
            if resource.written_by:
                plan.steps.append(Step(resource, "refresh", f"{problem}; {resource.written_by} writes it"))
            elif resource.beforehand or not earlier:
                raise HostError(f"{resource.label}: {problem}; {resource.otherwise}")

    def apply(
        self, system: System, steps: Sequence[Step[Expected]], state: Mapping[str, str | None], progress: Progress
    ) -> None:
        for step in steps:
            resource = step.resource
            # Whatever came earlier in this run may have brought it, and another start would only cost time.
            content = system.text(resource.name)
            if content is None or resource.contains not in content:
                # One that was started too often of late would refuse for a while, although its inputs are right now.
                system.run(["systemctl", "reset-failed", resource.written_by])
                # A restart: one that is just running may have begun before the change that makes it necessary.
                done = system.run(["systemctl", "restart", resource.written_by], timeout=_WRITER_TIMEOUT_S)
                if done.rc != 0:
                    raise HostError(
                        f"{resource.label}: systemctl restart {resource.written_by} failed: {done.words};"
                        f" {resource.otherwise}"
                    )
            progress.done.append(step)

    def explain(self, system: System, step: Step[Expected]) -> str:
        return f"; {step.resource.otherwise}"

    def record(self, resource: Expected, state: Mapping[str, str | None]) -> dict[str, Any]:
        return {}

    def restore(self, resource: Expected, record: Mapping[str, Any]) -> list[Resource]:
        return []


def plan_file(resource: File, found: Found | None, removed: Collection[str]) -> Step[File] | None:
    """`removed`: what earlier steps take away."""
    if resource.state == "absent":
        return _plan_absence(resource, found, removed)
    _refuse_other_types(resource, found)
    if resource.state == "link":
        same = found is not None and found.target == resource.target
        return None if same else Step(resource, "link", f"to {resource.target!a}")
    if resource.way_back and not _is_known(resource, found):
        raise HostError(
            f"{resource.label}: what stood there cannot be brought back: of a secret, and of more than 1 MiB, only the"
            " digest was kept; put it back by hand, then run again"
        )
    if resource.ours is not None and resource.content is None and not _taken_out(resource, found):
        return None if found is None else Step(resource, "remove", found.words, *_texts(resource, found.content, None))
    if found is None:
        if resource.state == "directory":
            return Step(resource, "mkdir", _access(resource))
        return Step(resource, "create", _access(resource), *_texts(resource, None, _desired(resource, None)))
    differences = _access_differences(resource, found)
    if resource.state == "directory":
        return Step(resource, "update", "; ".join(differences)) if differences else None
    desired = _desired(resource, found)
    if desired != found.content or not _is_known(resource, found):
        differences.insert(0, "content")
        return Step(resource, "update", "; ".join(differences), *_texts(resource, found.content, desired))
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
    if any(posixpath.join(resource.name, entry) not in removed for entry in found.entries):
        if resource.way_back:
            return None
        raise HostError(f"{resource.label}: is a directory with something in it; look, then remove it by hand")
    return Step(resource, "remove", found.words, *_texts(resource, found.content, None))


def _is_known(resource: File, found: Found | None) -> bool:
    """Whether the wanted content is at hand: given, or known by its digest and there already."""
    return not resource.sha256 or (found is not None and digest(found.content) == resource.sha256)


def digest(content: bytes) -> str:
    """What stands for a content that nobody may see."""
    return sha256(content)


def _desired(resource: File, found: Found | None) -> bytes:
    """The content that the file should have, given what stands there; nothing where only a digest is known."""
    if resource.sha256:
        return found.content if found is not None and _is_known(resource, found) else b""
    if not resource.is_json and resource.ours is None:
        return resource.content or b""
    if resource.ours is not None:
        former = resource.content
        rest = _taken_out(resource, found)
        if former is not None and (found is None or _same_json(former, rest)):
            return former
        return _laid_out(resource, found, rest)
    present = _parsed(resource, found)
    merged = merge(present, resource.merge_json or {})
    return _laid_out(resource, found, {**merged, **_lacking(resource, merged)})


def _lacking(resource: File, merged: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults for an object that has all else."""
    if any(key in merged for key in resource.default_unless):
        return {}
    return {key: value for key, value in (resource.default_json or {}).items() if key not in merged}


def _laid_out(resource: File, found: Found | None, wanted: Mapping[str, Any]) -> bytes:
    if found is not None and found.content.strip() and canonical(wanted) == canonical(_parsed(resource, found)):
        return found.content  # same meaning: whoever laid it out keeps the layout
    return (json.dumps(wanted, indent=2, ensure_ascii=False) + "\n").encode()


def _taken_out(resource: File, found: Found | None) -> dict[str, Any]:
    return taken_out(_parsed(resource, found), resource.ours or {})


def _same_json(content: bytes, value: Mapping[str, Any]) -> bool:
    """Whether a former content, which may have been empty, means this."""
    try:
        return canonical(json.loads(content) if content.strip() else {}) == canonical(value)
    except ValueError:
        return False


def _parsed(resource: File, found: Found | None) -> dict[str, Any]:
    """The object in a JSON file; an empty one where there is nothing."""
    if found is None or not found.content.strip():
        return {}
    try:
        present = json.loads(found.content)
    except ValueError as error:
        said = "" if resource.secret else f" ({error})"
        raise HostError(f"{resource.label}: is not JSON{said}; repair it or move it away") from None
    if not isinstance(present, dict):
        raise HostError(f"{resource.label}: is JSON, but not an object; repair it or move it away")
    return present


def _access(resource: File) -> str:
    return f"{resource.owner}:{resource.group} {resource.mode:04o}"


def _with_kept_access(resource: File, found: Found | None) -> File:
    """What exists and is not ours alone may hold secrets of its owner: what nobody states about its access stays."""
    if not resource.may_be_somebodys or found is None:
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
    """Both sides for the diff; secrets and bytes that are no text are named, not shown.

    Of a JSON object only our part: the rest may hold passwords of somebody.
    """
    if resource.secret:
        # Two different texts, so that the diff shows the change and nothing of it.
        changed = "(secret, changed)\n" if before is not None else _HIDDEN
        return (None if before is None else _HIDDEN), (None if after is None else changed)
    if resource.is_json or resource.ours is not None:
        ours = noted_part(resource.ours) if resource.ours is not None else {}
        ours = merge({**(resource.default_json or {}), **ours}, resource.merge_json or {})
        return _part(ours, before), _part(ours, after)
    texts: list[str | None] = []
    for side in (before, after):
        try:
            texts.append(None if side is None else side.decode())
        except UnicodeDecodeError:
            texts.append("(binary)\n")
    return texts[0], texts[1]


def _part(ours: Mapping[str, Any], content: bytes | None) -> str | None:
    """What a JSON object holds in our places, as text."""
    if content is None:
        return None
    held = part(json.loads(content) if content.strip() else {}, ours)
    return json.dumps(held, indent=2, ensure_ascii=False) + "\n"


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
        return Found("directory", owner, group, mode, entries=tuple(sorted(os.listdir(path))))  # noqa: PTH208
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
    if action == "link":
        temporary = path.with_name(TEMPORARY_PREFIX + path.name)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(resource.target)
        temporary.rename(path)
        sync_directory(path.parent)
        return
    # Asked again: a package installed earlier in this run may have put something there meanwhile.
    found = _find(path, {}, {})
    _refuse_other_types(resource, found)
    resource = _with_kept_access(resource, found)
    if resource.state == "directory":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        uid, gid = system.account_id("passwd", resource.owner), system.account_id("group", resource.group)
        set_access(path, resource.mode, uid, gid)
        sync_directory(path.parent)
        return
    if resource.sha256:  # `prepare` has seen that the content is right
        uid, gid = system.account_id("passwd", resource.owner), system.account_id("group", resource.group)
        set_access(path, resource.mode, uid, gid)
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


def _parse_expected(index: int, fields: Fields) -> Expected:
    name = parse_path(fields)
    otherwise = fields.line("otherwise", "", _SENTENCE, "a sentence: what it means that the file is missing")
    if not otherwise:
        raise fields.fail("otherwise", "say what it means that the file is missing, and the way out")
    contains = fields.line("contains", "", _TEXT, "text without spaces")
    written_by = fields.line("written_by", "", _SERVICE, "the full name of a service")
    beforehand = bool(fields.flag("beforehand"))
    fields.finish()
    return Expected(index, name, otherwise=otherwise, contains=contains, written_by=written_by, beforehand=beforehand)


def _parse_content(fields: Fields, secret: bool) -> tuple[bytes | None, str]:
    """The content, or for a secret out of the manifest its digest."""
    try:
        text = fields.content("content")
    except DocumentError as refusal:
        digest = None
        with contextlib.suppress(DocumentError):
            digest = fields.mapping("content") if secret else None
        if digest is None or set(digest) != {"sha256"} or not _DIGEST.match(str(digest["sha256"])):
            raise refusal from None
        return None, str(digest["sha256"])
    return (None if text is None else text.encode()), ""


def _check_key(fields: Fields, content: bytes | None) -> None:
    """apt trusts every key of a keyring: there must be one in it, and the right one."""
    wanted = fields.line("fingerprint", "", _FINGERPRINT, "the 40 hexadecimal digits (capitals) of a key's fingerprint")
    if not wanted:
        return
    try:
        found = openpgp.fingerprints((content or b"").decode())
    except ValueError as error:
        raise fields.fail("content", f"{error}; expected the OpenPGP key {wanted}") from None
    if found != [wanted]:
        raise fields.fail("fingerprint", f"expected the key {wanted} and no other, found {', '.join(found) or 'none'}")


def _parse_validate(fields: Fields, state: str) -> tuple[str, ...]:
    arguments = fields.lines("validate", _ARGUMENT, "one argument of a command")
    if arguments and (state != "present" or not any("%s" in argument for argument in arguments[1:])):
        raise fields.fail("validate", "expected the arguments of a command with %s for the file's name")
    if arguments and not _COMMAND.match(arguments[0]):
        raise fields.fail("validate[0]", f"expected the name or path of a command, found {arguments[0]!a}")
    return arguments


def _json_object(key: str, fields: Fields) -> dict[str, Any] | None:
    value = fields.mapping(key)
    if value is None:
        return None
    try:
        for text in _texts_in(value, _MAX_NESTING):
            text.encode()
            if "\0" in text:
                raise ValueError("it holds a NUL")
        size = len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError) as error:
        raise fields.fail(key, f"is not JSON that a file can hold: {_short(error)}") from None
    if size > MAX_CONTENT:
        raise fields.fail(key, f"is longer than {MAX_CONTENT} bytes")
    return value


def _texts_in(value: Any, levels: int) -> Iterator[str]:
    """All keys and texts of a value; json.dumps would quietly turn a number as a key into text."""
    if levels < 0:
        raise ValueError(f"it is nested deeper than {_MAX_NESTING} levels")
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!a} is not text")
            yield key
            yield from _texts_in(item, levels - 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts_in(item, levels - 1)


def _short(error: Exception) -> str:
    """What is wrong; of invalid UTF-8 not the whole text, which may be a secret and 10 MB long."""
    return "it holds invalid UTF-8" if isinstance(error, UnicodeError) else str(error)[:200]
