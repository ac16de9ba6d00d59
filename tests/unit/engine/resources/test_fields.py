"""Values that somebody would break out of a field with: refused by the name of the field, before anything is read."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import DocumentError

from tests.support.kinds import EXAMPLES, GOOD

PROFILE: dict[str, Any] = GOOD["nm_profile"]


def words(shape: str) -> tuple[str, ...]:
    """The fields of an example that end up as a word of a command line, in a path or in a regular expression.

    Those that may hold other text are named as harmless there.
    """
    other = {field for found in EXAMPLES.values() for field in found.get("harmless", {}).get(shape, {})}
    fields = []
    for field, value in GOOD[shape].items():
        listed = isinstance(value, list) and value
        name = f"{field}[]" if listed else field
        if name not in other or (shape, field) == ("sysctl", "value"):
            fields += [f"{field}[0]"] if listed else [field]
    return tuple(fields)


# A good resource and such fields.
WORDS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    *((good, words(shape)) for shape, good in GOOD.items()),
    ({"file": "/etc/a", "content": "", "validate": ["test", "-s", "%s"]}, ("validate[0]",)),
    ({"hold": "bash"}, ("hold",)),
]
HOSTILE = {
    "newline": "a\nb",
    "NUL": "a\0b",
    "expression": "{{ 7 * 7 }}",
    "statement": "{% x %}",
    "dash": "-rf",
    "long option": "--root=/",
    "ten megabytes": "x" * 10_000_000,
    "invalid UTF-8": "a\udc80",
    "escape": "\x1b[2J",
    "right to left": "a\u202eb",
}
# The others may hold what is harmless inside of their line: a dash within arguments, a dot in an expression.
LINES: list[tuple[dict[str, Any], str]] = [
    ({"file": "/etc/a", "content": "", "validate": ["test", "-s", "%s"]}, "validate[1]"),
    ({"file": "/etc/a", "state": "expected", "otherwise": "it is missing"}, "otherwise"),
    ({"hold": "a-set", "match": ["^a$"]}, "match[0]"),
    ({"hold": "a-set", "match": ["^a$"], "except": ["^b$"]}, "except[0]"),
    ({"unit": "a.service", "restart_on": ["/etc/a"]}, "restart_on[0]"),
]


def refusal(resource: dict[str, Any], field: str, value: str) -> str:
    key, bracket, place = field.partition("[")
    items = list(resource[key]) if bracket else []
    if bracket:
        items[int(place[:-1])] = value
    with pytest.raises(DocumentError) as caught:
        parse_documents([("demo", [{**resource, key: items if bracket else value}])], {})
    return str(caught.value)


def is_named(said: str, field: str) -> bool:
    return said.startswith(f"resources[0].{field}: ") and said.isprintable() and len(said) < 1000


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    ("resource", "field"), [(resource, field) for resource, fields in WORDS for field in fields], ids=lambda value: None
)
def test_a_word_is_a_word(resource: dict[str, Any], field: str, value: str) -> None:
    assert is_named(refusal(resource, field, value), field)


@pytest.mark.parametrize("name", [name for name in HOSTILE if name not in ("dash", "long option")])
@pytest.mark.parametrize(("resource", "field"), LINES, ids=lambda value: None)
def test_a_line_is_one_line_of_plain_text(resource: dict[str, Any], field: str, name: str) -> None:
    assert is_named(refusal(resource, field, HOSTILE[name]), field)


@pytest.mark.parametrize(
    ("resource", "field", "value"),
    [
        ({"file": "/etc/a", "content": ""}, "file", "/etc/../a"),
        ({"file": "/etc/a", "content": ""}, "file", "/etc/./a"),
        ({"file": "/etc/a", "content": ""}, "file", "//etc/a"),
        ({"sysctl": "net.core.rmem_max", "value": "1"}, "sysctl", "net/../../etc.passwd"),
        ({"kernel_module": "rdma_cm"}, "kernel_module", "../rdma_cm"),
        ({"unit": "a.service"}, "unit", "../a.service"),
        (PROFILE, "interface", ".."),
        (PROFILE, "interface", "a/b"),
        (PROFILE, "addresses[0]", "192.0.2.256/24"),
        (PROFILE, "addresses[0]", "192.0.2.1/33"),
        (PROFILE, "addresses[0]", "192.0.2.01/24"),
        (PROFILE, "addresses[0]", "2001:db8::1/64"),
    ],
)
def test_no_way_out_of_a_directory_and_no_address_that_is_none(
    resource: dict[str, Any], field: str, value: str
) -> None:
    assert is_named(refusal(resource, field, value), field)


@pytest.mark.parametrize("key", ["addresses", "mtu", "replace_foreign"])
def test_a_profile_that_shall_be_absent_wants_nothing_else(key: str) -> None:
    gone = {name: PROFILE[name] for name in ("nm_profile", "uuid", "interface", "consent")}
    parse_documents([("demo", [{**gone, "state": "absent"}])], {})
    with pytest.raises(DocumentError, match=rf"resources\[0\].{key}: a nm_profile resource has no such key"):
        parse_documents([("demo", [{**gone, "state": "absent", key: PROFILE.get(key, True)}])], {})
