"""Timelines and causes: which cause comes first, how sure it is, and what is said for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks import timeline
from ansible_collections.gb10.fleet.plugins.module_utils.reading import kernel_lines
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import SILENT_GPU
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import WAYS_OUT
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.why import Answer, answer

from tests.support import health
from tests.support.health import (
    FORMER,
    GIB,
    MEMORY,
    NOW,
    RULES,
    Record,
    boot,
    event,
    gpu,
    problem,
    reading,
    sample,
    upgrade,
)
from tests.support.signs import STOPPED

DAY = 86400
END = NOW - 3700  # of the former boot
GONE = {**MEMORY, "free_bytes": 50 * GIB, "available_bytes": 60 * GIB}


def why(record: Record, days: float = 14) -> Answer:
    assert problem(record) is None
    return answer("spark-a", record, RULES, days)  # type: ignore[arg-type]


def unclean(*lines: str) -> list[Record]:
    return [boot(FORMER, END - DAY, END, clean=False, lines=lines), boot(health.BOOT, NOW - 3600, NOW)]


def causes(record: Record) -> list[tuple[str, str]]:
    return [(cause.id, cause.sure) for cause in why(record).causes]


def test_a_healthy_host_has_no_cause() -> None:
    found = why(reading())
    assert (found.causes, found.judgement.findings) == ([], [])
    assert [entry.kind for entry in found.timeline] == ["boot", "shutdown", "boot"]


FAULT = [sample(NOW - 5 + place, gpu=gpu(507, 12, 96)) for place in range(6)]


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"boots": unclean()}, ("power_off", "likely")),
        ({"boots": unclean("gb10-vllm: Running: 1 reqs, prompt throughput")}, ("power_off", "very likely")),
        # An SSD that never lost its power speaks against it.
        ({"boots": unclean(), "disks": [health.disk(unsafe_shutdowns=0)]}, ("power_off", "possible")),
        ({"boots": [boot("a", END - 9 * 3600, END - 8 * 3600, clean=False), *unclean("vllm serves")]},
         ("power_off", "very likely")),
        ({"boots": unclean(), "events": [event("panic", END - 2, of_boot=FORMER)]}, ("kernel_failed", "very likely")),
        ({"boots": unclean(), "events": [event("critical_temperature", END - 2, of_boot=FORMER)]},
         ("overheated", "very likely")),
        ({"boots": unclean(), "events": [event("driver_memory", END - 60, of_boot=FORMER, count=40)]},
         ("memory_wedge", "very likely")),
        # Two lines come at a healthy start, and explain no end.
        ({"boots": unclean(), "events": [event("driver_memory", END - 60, of_boot=FORMER, count=2)]},
         ("power_off", "likely")),
        # What came first led to the rest.
        ({"boots": unclean(), "events": [event("pcie_error", END - 9, of_boot=FORMER),
                                         event("panic", END - 5, of_boot=FORMER)]}, ("pcie_fatal", "likely")),
        ({"boots": unclean(), "events": [event("panic", END - 9, of_boot=FORMER),
                                         event("pcie_error", END - 5, of_boot=FORMER)]},
         ("kernel_failed", "very likely")),
        ({"boots": unclean(), "events": [event("pcie_error", END - 5, of_boot=FORMER)]}, ("pcie_fatal", "likely")),
        # A fault long before the end is not the end's.
        ({"boots": unclean(), "events": [event("pcie_error", END - 9000, of_boot=FORMER)]}, ("power_off", "likely")),
        ({"events": [event("xid", NOW - 60, "119")], "apt": [upgrade(NOW - DAY, "linux-image-x", "1", "2")]},
         ("torn_update", "likely")),
        ({"events": [event("xid", NOW - 60, "119"), event("xid", NOW - 59, "120"), event("xid", NOW - 58, "154")]},
         ("gpu_lost", "likely")),
        ({"events": [event("xid", NOW - 60, "119", "NVRM: Xid (PCI:000f:01:00): 119, pid=3, name=KMS thread, x")]},
         ("gpu_lost", "very likely")),
        ({"events": [event("xid", NOW - 60, "79")]}, ("gpu_lost", "likely")),
        ({"events": [event("oom_kill", NOW - 60, "python3")]}, ("memory_short", "likely")),
        ({"events": [event("service", NOW - 60, "refused_flag")]}, ("service_failed", "possible")),
        ({"samples": FAULT}, ("power_fault", "very likely")),
        ({"samples": [sample(memory={**MEMORY, "cma_free_bytes": 9 * GIB})]}, ("kho", "very likely")),
        ({"samples": [sample(memory=GONE)]}, ("memory_kept", "very likely")),
        ({"samples": [sample(gpu=health.silent("mismatch"))]}, ("gpu_mismatch", "very likely")),
        ({"samples": [sample(gpu=health.silent("silent"))]}, ("gpu_lost", "likely")),
    ],
)  # fmt: skip
def test_the_likeliest_cause(changes: Record, first: tuple[str, str]) -> None:
    assert causes(reading(**changes))[0] == first


def test_a_change_of_firmware_speaks_against_a_torn_update() -> None:
    torn = {"events": [event("xid", NOW - 60, "119")], "apt": [upgrade(NOW - DAY, "linux-image-x", "1", "2")]}
    firmware = [event("firmware", NOW - 2 * DAY, "BIOS 1"), event("firmware", NOW - DAY, "BIOS 2")]
    before, after = why(reading(**torn)), why(reading(**{**torn, "events": [*firmware, *torn["events"]]}))
    torn_before, torn_after = ({cause.id: cause.score for cause in found.causes} for found in (before, after))
    assert torn_after["torn_update"] < torn_before["torn_update"]
    assert "firmware_changed" in [entry.kind for entry in after.timeline]


def test_a_change_long_before_is_not_suspected() -> None:
    events = [event("xid", NOW - 60, "119")]
    near = why(reading(events=events, apt=[upgrade(NOW - 2 * DAY, "nvidia-driver-580-open", "1", "2")]))
    far = why(reading(events=events, apt=[upgrade(NOW - 5 * DAY, "nvidia-driver-580-open", "1", "2")]))
    assert (near.causes[0].id, far.causes[0].id) == ("torn_update", "gpu_lost")
    assert any("nvidia-driver-580-open 1 -> 2" in sign for sign in near.causes[0].signs)


def test_a_change_after_a_fault_is_not_its_cause() -> None:
    xid = event("xid", NOW - DAY, "119")
    kernels = [event("kernel", NOW - 5 * DAY, "6.17"), event("kernel", NOW - 60, "7.0")]
    after = why(reading(events=[kernels[0], xid, kernels[1]], samples=FAULT))
    assert "torn_update" not in [cause.id for cause in after.causes]


@pytest.mark.parametrize(
    ("free_gib", "verdict", "first"),
    [
        (3, "disk_full", ("no_space", "very likely")),
        (0.2, "failed", ("no_space", "very likely")),
        # An image has no room; what failed for another reason did not fail for that.
        (15, "killed", ("service_failed", "possible")),
        (0.2, None, ("no_space", "very likely")),
        (15, None, ("disk_full", "possible")),
    ],
)
def test_a_full_disk_comes_first_where_something_failed_for_want_of_room(
    free_gib: float, verdict: str | None, first: tuple[str, str]
) -> None:
    failures = [event("service", NOW - 60, verdict, f"gb10-vllm: {verdict}: it failed")] if verdict else []
    stopped = [{**STOPPED, "state": "failed"}] if verdict and verdict != "killed" else []
    record = reading(rooms=[health.room("/var/lib/docker", free_gib)], events=failures, stopped=stopped)
    assert causes(record)[0] == first


@pytest.mark.parametrize(("served_s", "because"), [(10 * 3600, False), (30 * 3600, True), (None, True)])
def test_a_change_after_which_the_service_was_well_is_not_why_it_failed(served_s: float | None, because: bool) -> None:
    """It served with the driver that was installed a day before, and was killed a minute ago."""
    failed = event("service", NOW - 60, "killed", "gb10-vllm: killed: it was killed: exit 137")
    served = [event("serves", NOW - served_s, text="gb10-vllm: the container listens: x")] if served_s else []
    found = why(reading(events=[*served, failed], apt=[upgrade(NOW - DAY, "nvidia-driver-580-open", "1", "2")]))
    assert found.causes[0].id == "service_failed"
    assert any("nvidia-driver" in sign for sign in found.causes[0].signs) is because
    assert any(entry.kind == "apt" for entry in found.timeline), "it is still told"


def test_a_fault_that_was_there_before_a_change_does_not_come_from_it() -> None:
    moved = [upgrade(NOW - DAY, "nvidia-driver-580-open", "1", "2")]
    again = [event("xid", NOW - 2 * DAY, "119"), event("xid", NOW - 60, "119")]
    assert causes(reading(events=again[1:], apt=moved))[0][0] == "torn_update"
    assert "torn_update" not in [id_ for id_, _sure in causes(reading(events=again, apt=moved))]


def test_a_last_line_that_is_an_event_is_told_once() -> None:
    record = reading(boots=unclean("oom_kill python3"), events=[event("oom_kill", END - 1, "python3", of_boot=FORMER)])
    assert [entry.text for entry in why(record).timeline].count("oom_kill python3") == 1


def test_the_timeline_is_in_order_and_ends_where_it_is_told_to() -> None:
    events = [
        event("kernel", NOW - 20 * DAY, "6.17.0-1014-nvidia"),
        event("kernel", NOW - 9 * DAY, "6.17.0-1014-nvidia"),
        event("kernel", NOW - 2 * DAY, "7.0.0-1019-nvidia"),
        event("oom_kill", NOW - 60, "python3", count=4),
    ]
    record = reading(
        events=events, apt=[upgrade(NOW - 3 * DAY, "linux-image-7.0", "6", "7")], boots=unclean("last words")
    )
    told = [(entry.kind, entry.text) for entry in why(record).timeline]
    assert [kind for kind, _text in told] == [
        "apt", "kernel_changed", "boot", "last_line", "unclean_end", "boot", "oom_kill",
    ]  # fmt: skip
    assert told[1][1] == "kernel 6.17.0-1014-nvidia became 7.0.0-1019-nvidia"
    assert told[-1][1].endswith("(4 times)")
    assert [entry.kind for entry in why(record, days=0.5).timeline] == ["last_line", "unclean_end", "boot", "oom_kill"]


@pytest.mark.parametrize(
    ("verdicts", "first"), [(["peer_lost"], "peer_gone"), (["rail_down", "peer_lost"], "rail_fault")]
)
def test_a_spark_that_is_gone_is_the_cause_that_its_peer_names(verdicts: list[str], first: str) -> None:
    failures = [event("service", NOW - 60, verdict, f"gb10-vllm: {verdict}: it says so") for verdict in verdicts]
    rails = [health.rail(state="DOWN")]
    found = why(reading([sample(NOW - 1, rails=rails), sample(rails=rails)], events=failures))
    assert (found.causes[0].id, found.causes[0].sure) == (first, "likely")


def test_a_failure_of_the_service_is_told_once() -> None:
    service = {"phase": "starting", "since": None, "failures": 1, "verdict": "engine_died", "text": "it ended",
               "at": "2026-11-23T06:00:00Z"}  # fmt: skip
    for events in ([], [event("service", NOW - 300, "engine_died")]):
        found = why(reading(service=service, events=events))
        assert [entry.kind for entry in found.timeline].count("service") == 1
        assert found.causes[0].id == "service_failed"


def test_a_time_that_no_calendar_has_ends_nothing() -> None:
    found = why(reading(events=[event("oom_kill", 1e17, "python3")]), days=14)
    assert found.as_dict()["timeline"][-1]["at"] == "an impossible time"


def test_the_answer_is_json() -> None:
    record = json.loads(json.dumps(why(reading(boots=unclean())).as_dict()))
    assert record["causes"][0]["id"] == "power_off"
    assert record["timeline"][-1]["at"] == "2026-11-23 07:00:00"
    assert record["findings"][0]["way_out"]
    assert set(record["findings"][0]) == {"id", "severity", "host", "fact", "way_out", "accepted"}


@pytest.mark.parametrize(
    ("package", "text"),
    [
        ({"action": "install", "before": None, "after": "2"}, "docker-ce 2 installed"),
        ({"action": "remove", "before": "1", "after": None}, "docker-ce 1 removed"),
        ({"action": "downgrade", "before": "2", "after": "1"}, "docker-ce 2 -> 1"),
    ],
)
def test_moves_of_packages(package: Record, text: str) -> None:
    change = {"at_s": NOW - 60, "command": "", "packages": [{"name": "docker-ce", **package}], "others": 0}
    assert why(reading(apt=[change])).timeline[-1].text == f"{text} (no command)"


def test_a_unit_that_stands_still_is_said_before_what_happened_once() -> None:
    failed = event("service", NOW - 3000, "peer_lost", "gb10-vllm: peer_lost: spark-b is gone")
    found = why(reading(events=[failed], stopped=[STOPPED]))
    assert (found.causes[0].id, found.causes[0].sure) == ("unit_stopped", "very likely")
    assert found.causes[0].signs[0] == "gb10-vllm.service is inactive and disabled, and the role vllm wants it started"
    wished = why(reading(stopped=[{**STOPPED, "wish": "ada@laptop until 07:00 CET"}]))
    assert wished.causes == []
    (told,) = wished.judgement.findings
    assert told.severity == "info" and told.fact.endswith(": stopped by ada@laptop until 07:00 CET")


@pytest.mark.parametrize(
    ("phase", "since", "ended"),
    # The clock of the second was set back in between: that it serves is so now, whatever the clock said then.
    [("ready", 600, True), ("ready", 6000, True), ("weights", 600, False)],
)
def test_a_failure_of_a_service_that_serves_again_is_no_cause(phase: str, since: float, ended: bool) -> None:
    failed = event("service", NOW - 3000, "peer_lost", "gb10-vllm: peer_lost: spark-b is gone")
    at = timeline.utc(NOW - since).replace(" ", "T") + "Z"
    service = {"phase": phase, "since": at, "failures": 0, "verdict": None, "text": None, "at": None}
    found = why(reading(events=[failed], service=service))
    assert [cause.id for cause in found.causes] == ([] if ended else ["peer_gone", "service_failed"])
    assert any(entry.key == "peer_lost" for entry in found.timeline), "it is still told"


@pytest.mark.parametrize(("state", "told"), [("ACTIVE", False), ("DOWN", True)])
def test_a_cable_that_is_mended_is_no_cause_of_a_service_that_loads_again(state: str, told: bool) -> None:
    failed = event("service", NOW - 600, "rail_down", "gb10-vllm: rail_down: enp1s0f0np0 has no link")
    service = {"phase": "weights", "since": None, "failures": 1, "verdict": None, "text": None, "at": None}
    rails = [health.rail(state=state)]
    found = why(reading([sample(NOW - 1, rails=rails), sample(rails=rails)], events=[failed], service=service))
    assert ("rail_fault" in [cause.id for cause in found.causes]) is told
    assert "service_failed" in [cause.id for cause in found.causes], "it failed, and does not serve yet"


def test_of_many_packages_only_those_count_that_matter_and_five_are_named() -> None:
    names = [f"lib{number}" for number in range(30)] + ["nvidia-driver-580-open"]
    packages = [{"name": name, "action": "upgrade", "before": "1", "after": "2"} for name in names]
    change = {"at_s": NOW - 3600, "command": "apt upgrade", "packages": packages, "others": 3}
    found = why(reading(apt=[change], events=[event("xid", NOW - 60, "119")]))
    assert found.timeline[-2].text.endswith("lib4 1 -> 2, and 29 others (apt upgrade)")
    signs = [sign for cause in found.causes for sign in cause.signs]
    assert "nvidia-driver-580-open 1 -> 2" in signs and not any("lib0" in sign for sign in signs)


# -- the catalog -------------------------------------------------------------------------------------------------------


def test_every_sign_of_a_cause_is_one_that_can_be_there() -> None:
    kinds = {kind for kind, _pattern in kernel_lines.KINDS}
    known = {
        *("unclean_boot", "unclean_again", "silent_end", "end_serving", "service_failed", "log_xid"),
        *("disk_lost_power", "disk_kept_power", "display_thread", "gpu_back", "heat_throttled", "power_brake"),
        *("pcie_ssd", "pcie_gpu", "disk_hot", "untold_kill", "no_space", "disk_full"),
        *("rail_loss", "start_hung", "own_limit", "guard_rebooted", "guard_saw"),
        *("kernel_changed", "firmware_changed", "driver_changed"),
        *(f"service_{verdict}" for verdict in WAYS_OUT),
        *(f"{word}_{kind}" for kind in kinds for word in ("end", "log")),
        *(f"xid_{number}" for number in RULES.xids),
        *(f"gpu_{state}" for state in SILENT_GPU),
        *("power_fault", "gpu_hot", "gpu_throttled", "soc_hot", "engine_hung", "unit_stopped", "kho", "disk_worn"),
        *("memory_not_returned", "memory_fragmented", "memory_pressure", "page_cache_pressure"),
        *("rail_degraded", "rail_errors", "rail_gone", "rail_down", "gpu_clock_low", "slow_steps"),
    }
    named = {
        sign for cause in RULES.causes for role in ("all", "any", "supports", "against") for sign in cause.get(role, ())
    }
    assert named - known == set()


def test_every_event_of_the_catalog_is_a_kind_of_the_reader() -> None:
    kinds = {kind for kind, _pattern in kernel_lines.KINDS} - {"kernel", "firmware", "driver"}
    signs, read = {name for name in RULES.signs if name.startswith("log_")}, {f"log_{kind}" for kind in kinds}
    assert signs == read, (
        f"catalog/health.yml has no signs {sorted(read - signs)}, and KINDS of reading/kernel_lines.py no kinds of"
        f" {sorted(signs - read)}"
    )


def test_the_manual_explains_every_finding() -> None:
    page = (Path(__file__).parents[3] / "docs/health.md").read_text(encoding="utf-8")
    folder = catalog.collection_root() / "plugins/module_utils/checks"
    code = "".join(path.read_text() for path in folder.glob("*_checks.py"))
    given = set(re.findall(r"patient\.say\(\s*\"(\w+)\"", code))
    given |= {f"gpu_{state}" for state in SILENT_GPU}
    given |= {name for name in RULES.signs if name.startswith("log_")}
    explained, signs = set(re.findall(r"^### (\w+)$", page, re.MULTILINE)), set(RULES.signs)
    assert explained == signs, (
        f"run python -m scripts.pages: docs/health.md differs from catalog/health.yml in {sorted(explained ^ signs)}"
    )
    assert given == signs, (
        f"catalog/health.yml has no signs {sorted(given - signs)}, and no detector gives {sorted(signs - given)}"
    )


def test_every_limit_is_used() -> None:
    plugins = catalog.collection_root() / "plugins"
    folders = (plugins / "module_utils/checks", plugins / "plugin_utils/health")
    code = "".join(path.read_text() for folder in folders for path in folder.glob("*.py"))
    told = {sign["least"] for sign in RULES.signs.values() if "least" in sign}
    assert [name for name in catalog.load("health")["limits"] if f'"{name}"' not in code and name not in told] == []


def test_the_words_of_sureness_reach_down_to_nothing() -> None:
    leasts = [level["least"] for level in RULES.sure]
    assert leasts == sorted(leasts, reverse=True)
    assert leasts[-1] == 0
