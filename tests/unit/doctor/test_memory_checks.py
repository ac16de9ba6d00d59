"""Free memory in blocks: what the kernel says, and when the doctor warns."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.memory import parse_blocks
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.host_checks import check_blocks

from tests.support.subjects import subject

GIB = 2**30
# Two nodes with their zones; the largest column is of 2**13 pages.
BUDDY = """\
Node 0, zone      DMA      1      0      0      0      0      0      0      0      0      0      0      0      0      0
Node 0, zone   Normal    100      0      0      0      0      0      0      0      0      0      0      0      0      3
Node 1, zone   Normal      0      0      0      0      0      0      0      0      0      0      0      0      0      1
"""


def test_blocks_are_added_up_over_all_zones() -> None:
    assert parse_blocks(BUDDY, 4096) == {"free_bytes": 101 * 4096 + 4 * 32 * 2**20, "large_bytes": 4 * 32 * 2**20}
    of_64k = "Node 0, zone Normal " + " ".join(["1"] * 14)
    assert parse_blocks(of_64k, 65536) == {
        "free_bytes": sum(65536 << order for order in range(14)),
        "large_bytes": sum(65536 << order for order in range(9, 14)),
    }


def test_a_kernel_without_such_blocks_is_not_judged() -> None:
    assert parse_blocks("Node 0, zone Normal " + "9 " * 11, 4096) == {
        "free_bytes": 9 * 4096 * 2047,
        "large_bytes": None,
    }


@pytest.mark.parametrize("text", ["", "Node 0", "Node 0, zone Normal x", "no such file"])
def test_what_cannot_be_read_is_nothing(text: str) -> None:
    with pytest.raises(Unknown):
        parse_blocks(text, 4096)


@pytest.mark.parametrize(
    ("found", "fires"),
    [
        ({"free_bytes": 110 * GIB, "large_bytes": 6 * GIB}, True),
        ({"free_bytes": 110 * GIB, "large_bytes": 7 * GIB}, False),
        ({"free_bytes": 90 * GIB, "large_bytes": 0}, False),  # a model serves, or files fill the memory
        ({"free_bytes": 110 * GIB, "large_bytes": None}, False),
        (None, False),
    ],
)
def test_the_doctor_warns_where_a_start_finds_only_small_blocks(found: dict[str, Any] | None, fires: bool) -> None:
    of_host = subject()
    of_host.facts["memory_blocks"] = found  # type: ignore[index]
    texts = [f"{each.fact} {each.way_out}" for each in check_blocks(of_host)]
    assert bool(texts) == fires
    assert not fires or ("110.0 GiB" in texts[0] and "6.0 GiB" in texts[0] and "reboot" in texts[0])
