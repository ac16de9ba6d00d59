# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of a file in a document."""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import openpgp
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    MAX_CONTENT,
    DocumentError,
    Fields,
    Limits,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_resource import ACCESS, File

# A template that nobody rendered is no name of anything.
_ABSOLUTE = r"/[^/](?!.*(\{\{|\{%))"
_MODE = r"[0-7]{3,4}\Z"
_ACCOUNT = r"([a-z_][a-z0-9_-]*\$?|[0-9]{1,10})\Z"
_ID = Limits(0, 2**32 - 2)  # the one above stands for "leave it as it is"
_ARGUMENT = r"(?!.*(\{\{|\{%))[ -~]+\Z"
_COMMAND = r"[A-Za-z0-9/]"
_FINGERPRINT = r"[0-9A-F]{40}\Z"
_TEXT = r"(?!.*(\{\{|\{%))[!-~]+\Z"
_DIGEST = r"[0-9a-f]{64}\Z"
_MAX_NESTING = 32


def parse_file(index: int, fields: Fields, state: str) -> File:
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
    with_files, with_all = (_of_a_directory(fields, key, state) for key in ("with_files", "with_all"))
    resource = File(
        index=index,
        name=parse_path(fields),
        state=state,
        content=content,
        merge_json=merge_json,
        default_json=default_json,
        default_unless=default_unless,
        owner=_account(fields, "owner", "an account name"),
        group=_account(fields, "group", "a group name"),
        mode=int(fields.line("mode", default_mode, _MODE, "a quoted octal mode such as '0644'"), 8),
        validate=_parse_validate(fields, state),
        secret=secret,
        stated=frozenset(key for key in ACCESS if fields.has(key)),
        sha256=sha256,
        with_files=with_files,
        with_all=with_all,
    )
    fields.finish()
    return resource


def _of_a_directory(fields: Fields, key: str, state: str) -> bool:
    given = bool(fields.flag(key))
    if given and state != "directory":
        raise fields.fail(key, "is for a directory")
    return given


def _account(fields: Fields, key: str, expected: str) -> str:
    account = fields.line(key, "root", _ACCOUNT, expected)
    if account.isdigit():
        fields.within(key, int(account), _ID)
    return account


def parse_path(fields: Fields) -> str:
    path = fields.name(_ABSOLUTE, "an absolute path")
    if posixpath.normpath(path) != path or not path.isprintable():
        raise fields.fail(fields.kind, f"expected a path without '..', '.', '//' or a slash at the end, found {path!a}")
    return path


def _parse_content(fields: Fields, secret: bool) -> tuple[bytes | None, str]:
    """The content, or for a secret out of the manifest its digest."""
    try:
        text = fields.content("content")
    except DocumentError as refusal:
        digest = None
        with contextlib.suppress(DocumentError):
            digest = fields.mapping("content") if secret else None
        if digest is None or set(digest) != {"sha256"} or not re.match(_DIGEST, str(digest["sha256"])):
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
    if arguments and not re.match(_COMMAND, arguments[0]):
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
