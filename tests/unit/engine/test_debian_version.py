"""Versions as dpkg compares them; each pair was asked of `dpkg --compare-versions` 1.21."""

from __future__ import annotations

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system.debian_version import newer_than


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("1.10-1", "1.9-1"),
        ("1.19.0-1", "1.19-1"),
        ("1.19-1", "1.19~rc.1-1"),
        ("1.19~rc.2-1", "1.19~rc.1-1"),
        ("1.19~rc.1-1", "1.19~~-1"),
        ("1.19a-1", "1.19-1"),
        ("1.19+b-1", "1.19a-1"),
        ("1.19.1-1", "1.19-1+deb12"),
        ("1.19-1.1", "1.19-1"),
        ("1.19-1", "1.19"),
        ("1:0.1-1", "9.9-9"),
        ("5:29.2.1-1~ubuntu.24.04~noble", "5:29.2.1-1~ubuntu.22.04~jammy"),
        ("5:29.2.1-2~a", "5:29.2.1-1~z"),
        ("1.0-1-1", "1.0-0-9"),
        ("1.01", "0"),
    ],
)
def test_the_newer_one(newer: str, older: str) -> None:
    assert newer_than(newer, older)
    assert not newer_than(older, newer)


@pytest.mark.parametrize(("one", "other"), [("1.0", "1.0-0"), ("1.0", "0:1.00"), ("1.", "1.0"), ("1-a", "1-a0")])
def test_the_same_in_other_words(one: str, other: str) -> None:
    assert not newer_than(one, other)
    assert not newer_than(other, one)


@pytest.mark.parametrize("text", ["", "latest", "v1.2", "5:", "a:1", "1.2 ", "1.2*", "1.2-", "1_2"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="is no version of a package"):
        newer_than("1", text)
