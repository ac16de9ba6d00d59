"""Where a server is asked, and who reaches it."""

from __future__ import annotations

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("192.0.2.1", False), ("spark-a", False), ("", False),  # noqa: S104
    ],
)  # fmt: skip
def test_who_reaches_it(host: str, loopback: bool) -> None:
    assert addresses.is_loopback(host) == loopback


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"),  # noqa: S104
        ("2001:db8::7", "[2001:db8::7]"), ("spark-a.example", "spark-a.example"),
    ],
)  # fmt: skip
def test_where_it_is_asked_on_the_host_itself(host: str, asked: str) -> None:
    assert addresses.asked_on_the_host(host) == asked
