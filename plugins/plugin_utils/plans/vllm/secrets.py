# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be a secret among the words and the environment of a server, and how both are shown without it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import hidden

HIDDEN = "(hidden)"
PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]*@")
_NAME = re.compile(
    r"(^|_)(token|secret|password|passwd|passphrase|credentials?|api_?key|(access|private|secret|account|encryption)_?key)(_|$)",
    re.IGNORECASE,
)
_PATH = re.compile(r"/[^:]*\Z")  # a path is no secret
# A field of JSON among the words, by its name.
_FIELD = re.compile(r"(?P<name>[\"'](?P<key>[^\"']+)[\"']\s*:\s*)(?P<value>\"[^\"]*\"|'[^']*')")


def is_flag(word: str) -> bool:
    """Tell whether a word is the flag of a secret, and not of a file with one."""
    flag = word.partition("=")[0].lstrip("-").replace("-", "_")
    return word.startswith("-") and bool(_NAME.search(flag)) and not flag.endswith(("_file", "_path"))


def is_variable(name: str, value: str) -> bool:
    """Tell whether a variable of the environment holds a secret itself, and not the path of one."""
    return bool(_NAME.search(name)) and not _PATH.match(value)


def words_shown(words: Sequence[str]) -> list[str]:
    """The words of a server, where each secret is hidden."""
    return list(_words(words))


def environment_shown(environment: Mapping[Any, Any]) -> dict[Any, Any]:
    """The environment of a server, where each secret is hidden."""
    return {
        name: HIDDEN if is_variable(str(name), str(value)) else _inside(value) for name, value in environment.items()
    }


def _words(words: Sequence[str]) -> Iterator[str]:
    hides = False
    for word in map(str, words):
        flag, equals, __ = word.partition("=")
        if hides and not word.startswith("--"):
            yield HIDDEN
        else:
            yield f"{flag}={HIDDEN}" if equals and is_flag(word) else str(_inside(word))
        hides = is_flag(word) and not equals


def _inside(value: Any) -> Any:
    """A text without the secrets that it may hold somewhere; another value is none."""
    if not isinstance(value, str):
        return value
    return hidden(_FIELD.sub(_field, value))


def _field(found: re.Match[str]) -> str:
    secret = is_variable(found["key"], found["value"].strip("\"'"))
    return f'{found["name"]}"{HIDDEN}"' if secret else found[0]
