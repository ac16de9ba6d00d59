"""A Spark with several services: each has its own reading, and each verdict names its service."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks import timeline
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import judge
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics import findings
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import life, log
from ansible_collections.gb10.fleet.plugins.module_utils.reading import boots, kernel_log
from ansible_collections.gb10.fleet.plugins.module_utils.reading import journal as said_by
from ansible_collections.gb10.fleet.plugins.module_utils.reading.counters import parse
from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import collect
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.why import answer

from tests.support import health
from tests.support.attacker import tally
from tests.support.health import NOW, RULES, event, gpu, problem, reading, sample

STATUS = {"phase": "failed", "failures": 1,
          "failure": {"verdict": "killed", "text": "it was killed", "at": "2026-11-23T11:00:00Z"}}  # fmt: skip


def host_with(root: Path, *names: str, said: list[Sequence[str]] | None = None) -> HostReader:
    """Settings and status of each; commands are kept in `said`, and fail."""
    for name in names:
        long = "vllm" if name == "vllm" else f"vllm-{name}"
        (root / "etc/gb10-fleet").mkdir(parents=True, exist_ok=True)
        (root / f"etc/gb10-fleet/{long}.json").write_text(json.dumps({"argv": ["--port", "8000"]}))
        (root / f"run/gb10-{long}").mkdir(parents=True)
        (root / f"run/gb10-{long}/status.json").write_text(json.dumps({**STATUS, "phase": name}))

    def fails(argv: Sequence[str], _stdin: str | None, _timeout: float) -> Completed:
        if said is not None:
            said.append(argv)
        return Completed(tuple(argv), 1, stderr="no")

    return replace(HostReader(), system=System(root, fails))


def counters(host: HostReader, name: str) -> Any:
    running = {"chat": 2, "embed": 5}.get(name, 1)
    return lambda: parse(f"vllm:num_requests_running {running}\nvllm:generation_tokens_total 7\n")


def line(message: str, unit: str, at_s: int) -> str:
    return json.dumps({"__REALTIME_TIMESTAMP": str(at_s * 10**6), "_BOOT_ID": "b", "MESSAGE": message,
                       "_SYSTEMD_UNIT": unit})  # fmt: skip


def test_each_service_is_read_by_itself(tmp_path: Path) -> None:
    found = collect(host_with(tmp_path, "chat", "embed", "vllm"), server=counters)
    assert problem(found) is None
    assert {name: service["phase"] for name, service in found["services"].items()} == {
        "chat": "chat", "embed": "embed", "vllm": "vllm"}  # fmt: skip
    servings = found["samples"][0]["servings"]
    assert {name: serving["running"] for name, serving in servings.items()} == {"chat": 2, "embed": 5, "vllm": 1}
    assert (found["service"], found["samples"][0]["serving"]) == (None, None)
    assert not [path for path in found["unknown"] if path.startswith("serv")]


def test_one_service_keeps_its_form(tmp_path: Path) -> None:
    found = collect(host_with(tmp_path, "vllm"), server=counters)
    assert "services" not in found and "servings" not in found["samples"][0]
    assert (found["service"]["phase"], found["samples"][0]["serving"]["running"]) == ("vllm", 1)
    assert found["samples"][0]["steady_s"] > 0


def test_what_cannot_be_read_has_the_name_of_its_service(tmp_path: Path) -> None:
    host = host_with(tmp_path, "chat", "embed")
    (tmp_path / "etc/gb10-fleet/vllm-chat.json").write_text("{")
    (tmp_path / "run/gb10-vllm-chat/status.json").write_text("{")
    unknown = collect(host)["unknown"]
    assert unknown["servings.chat"] == "/etc/gb10-fleet/vllm-chat.json is not what the role writes"
    assert unknown["services.chat"] == "/run/gb10-vllm-chat/status.json is not what the unit writes"


def test_the_journal_is_asked_for_all_units(tmp_path: Path) -> None:
    said: list[Sequence[str]] = []
    host = host_with(tmp_path, "chat", said=said)
    (tmp_path / "var/log/journal/x").mkdir(parents=True)
    kernel_log.read_events(
        replace(host, system=System(tmp_path, lambda argv, *_: (said.append(argv), Completed((), 0))[1])), NOW
    )
    units = {"_SYSTEMD_UNIT=gb10-vllm.service", "_SYSTEMD_UNIT=gb10-vllm-chat.service"}
    assert any(units <= {*each} for each in said)
    assert any({f"_SYSTEMD_UNIT={unit}" for unit in said_by.GUARDS} <= {*each} for each in said)
    boots._last_lines(host, "b")
    assert units <= set(said[-1])


def journal_of(texts: Sequence[str], patterns: list[str]) -> Callable[..., Completed]:
    """As journalctl, of lines of the kernel: what fits the pattern, from the newest on."""

    def journal(argv: Sequence[str], *_: object) -> Completed:
        (pattern,) = (word.removeprefix("--grep=") for word in argv if word.startswith("--grep="))
        (most,) = (int(word.removeprefix("--lines=")) for word in argv if word.startswith("--lines="))
        patterns.append(pattern)
        if "_TRANSPORT=kernel" not in argv:
            return Completed((), 1)
        fits = [(at_s, text) for at_s, text in enumerate(texts, 1) if re.search(pattern, text)]
        rows = [
            json.dumps({"__REALTIME_TIMESTAMP": str(at_s * 10**6), "_BOOT_ID": "b", "MESSAGE": text})
            for at_s, text in reversed(fits[-most:])
        ]
        return Completed((), 0, "\n".join(rows))

    return journal


LINES_OF_FAULTS = (
    "Insufficient stack space to handle exception!",
    "NVRM: GPU0 _kgspBootGspRm: (the GPU is likely in a bad state and may need to be reset)",
    "NVRM: GPU0 kfspPollForResponse_IMPL: FSP command timed out",
    "NVRM: The NVIDIA GPU 000f:01:00.0\nNVRM: (PCI ID: 10de:2e12) installed in this system is not supported by the",
    "nvidia 000f:01:00.0: Device config space inaccessible; unable to restore",
    "nvme0n1: Write(0x1) @ LBA 8, 8 blocks, Internal Error (sct 0x0 / sc 0x6) DNR ",
    "pcieport 0004:00:00.0: DPC: containment event, status:0x1f11, ERR_NONFATAL received from 0004:01:00.0",
    "[Hardware Error]: GHES: python3:4242: synchronous unrecoverable error (SIGBUS)",
    "mlx5_core 0000:01:00.0: f:1:(pid 7): wait vital failed with error code: -110",
    "cx7-pcie-hotplug MTKP0001:00: Cable removal",
)


def test_no_line_that_is_often_there_hides_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login has its processes killed at a limit of its own, and its programs fail, as often as it likes."""
    (tmp_path / "var/log/journal/x").mkdir(parents=True)
    monkeypatch.setattr(kernel_log, "MOST_LINES", 300)
    often = (
        "Memory cgroup out of memory: Killed process 1 (x) total-vm:1kB",
        "NVRM: API mismatch: the client has the version 1",
        *(f"NVRM: Xid (PCI:000f:01:00): {xid}, pid=1, name=x, x" for xid in (7, 11, 13, 31, 43, 109)),
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from x",
        "neighbour: ndisc_cache: neighbor table overflow!",  # it asks for addresses that nobody has
        "nf_conntrack: nf_conntrack: table full, dropping packet",  # of any network namespace
        "EXT4-fs error (device dm-7): ext4_lookup:1789: inode #2: x",  # an image of its own, broken
        *LINES_OF_FAULTS,
    )
    named = "Out of memory: Killed process {0} (x{0}) total-vm:1kB"  # it fills the host's memory again and again
    for own, below in (("dm-7", "loop0"), ("dm-0", "nvme0n1p3"), ("md3", "nvme1n1p3")):
        (tmp_path / f"sys/block/{own}/slaves/{below}").mkdir(parents=True)
    faults = (
        "NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:000f:01:00): 144, pid=9, name=dm-9, x",  # a program of the login's own, by its name
        "EXT4-fs error (device nvme7n1p2): ext4_lookup:1789: inode #2: comm dm-9: x",
        "EXT4-fs (dm-0): Remounting filesystem read-only",
        "md/raid1:md3: Disk failure on nvme1n1p3, disabling device.",
    )
    flood = [text for at in range(60) for text in (*often, *[named.format(7 * at + each) for each in range(7)])]
    patterns: list[str] = []
    host = HostReader(system=System(tmp_path, journal_of([*faults, *flood], patterns)))
    events = kernel_log.read_events(host, NOW)
    assert all(each[0] == "^" for each in patterns), "tried at each letter it takes too long"
    assert len(patterns) < 8
    seen = {event["key"] for event in events if event["kind"] in ("xid", "disk")}
    hard = {"79", "144", "nvme7n1p2", "dm-0", "nvme1n1p3"}
    tally("a login that hides a fault from gb10 why", len(hard), len(hard - seen))
    assert hard < seen
    monkeypatch.setattr(findings, "MOST_EVENTS", 5)
    kept = findings.of_history({"events": events, "boots": None}, {})["events"]
    assert {each["key"] for each in kept[: len(hard)]} == hard
    assert len(kept) <= 5 * len({kernel_log.topic(each["text"]) for each in kept})


def test_an_answer_that_is_cut_off_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program whose name has an odd byte makes long lines: journalctl writes such a message as a list of numbers."""
    (tmp_path / "var/log/journal/x").mkdir(parents=True)
    monkeypatch.setattr(kernel_log, "LARGEST_TEXT", 5000)
    long = "Memory cgroup out of memory: Killed process 9 (x) " + "x" * 500
    texts = ["NVRM: Xid (PCI:000f:01:00): 79, x", *[long] * 50]
    events = kernel_log.read_events(HostReader(system=System(tmp_path, journal_of(texts, []))), NOW)
    tally("a login that hides a fault by long lines", 1, int(events[0]["key"] != "79"))
    assert [each["key"] for each in events] == ["79", "Memory cgroup"]


def test_a_log_that_fills_each_answer_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "var/log/journal/x").mkdir(parents=True)
    monkeypatch.setattr(kernel_log, "MOST_LINES", 20)
    monkeypatch.setattr(kernel_log, "MOST_QUESTIONS", 2)
    texts = [f"NVRM: Xid (PCI:000f:01:00): {xid}, x" for xid in range(1, 200)] * 2
    host = HostReader(system=System(tmp_path, journal_of(texts, [])))
    with pytest.raises(Unknown, match="fills 2 answers of 20 lines"):
        kernel_log.read_events(host, NOW)


@pytest.mark.parametrize("text", LINES_OF_FAULTS)
def test_a_topic_is_asked_for_by_its_own_lines_alone(text: str) -> None:
    row, key = kernel_log.topic(text) or (0, "")
    assert re.match(kernel_log._pattern(row, key), text)
    assert not key or not re.match(kernel_log._pattern(row, f"{key}1"), text)


def test_what_a_daemon_ends_for_want_of_memory_takes_no_fault_from_the_metrics() -> None:
    """It names the program that it ends, which is a login's own word, so each is an event of its own."""
    said = [
        event("xid", NOW - 900, "79"),
        *(event("oom_daemon", NOW - 800 + at, f"x{at}") for at in range(400)),
    ]
    kept = findings.of_history({"events": said, "boots": None}, {})["events"]
    tally("a login that hides a fault from the metrics", 1, int(kept[0]["kind"] != "xid"))
    assert kept[0]["kind"] == "xid" and len(kept) == findings.MOST_EVENTS + 1


@pytest.mark.parametrize(
    "fails", [f"=^(?:{kernel_log.GREP})", f"={kernel_log.OWN_GREP}", f"={kernel_log.GUARD_GREP}", "--boot"]
)
@pytest.mark.parametrize(
    ("rc", "words"), [(124, "journalctl did not end within 20 s"), (1, "Failed to open it"), (-9, "exit status -9")]
)
def test_a_journal_that_does_not_answer_is_no_sound_one(tmp_path: Path, fails: str, rc: int, words: str) -> None:
    """A login can fill it, and has then also filled the kernel's own buffer: that one tells of no fault."""
    (tmp_path / "var/log/journal/x").mkdir(parents=True)

    def run(argv: Sequence[str], _stdin: str | None, _timeout: float) -> Completed:
        if argv[0] == "dmesg":
            return Completed(tuple(argv), 0, "[    1.000000] Memory cgroup out of memory: Killed process 9 (x)")
        silent = any(word.removeprefix("--grep").startswith(fails) for word in argv)
        return Completed(tuple(argv), rc if silent else 1, "", words if silent and rc > 0 else "")

    host = replace(HostReader(), system=System(tmp_path, run))
    with pytest.raises(Unknown) as unknown:
        kernel_log.read_events(host, NOW, this_boot=True)
    assert str(unknown.value) == f"journalctl failed: {words}"


def test_a_file_that_a_loss_of_power_has_left_is_no_failure(tmp_path: Path) -> None:
    """journald has put it aside, and each call of journalctl says so for as long as it is there."""
    (tmp_path / "var/log/journal/x").mkdir(parents=True)
    words = "Journal file /var/log/journal/x/system@0006.journal~ is truncated, ignoring file.\n"
    host = HostReader(system=System(tmp_path, lambda argv, *_: Completed(tuple(argv), 1, "", words)))
    assert kernel_log.read_events(host, NOW) == []


def test_a_host_without_a_journal_has_the_buffer_of_its_kernel(tmp_path: Path) -> None:
    said = {"dmesg": Completed((), 0, "[    1.000000] NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.")}
    host = HostReader(system=System(tmp_path, lambda argv, *_: said.get(argv[0], Completed((), 127, ""))))
    assert [event["key"] for event in kernel_log.read_events(host, NOW)] == ["79"]
    said["dmesg"] = Completed((), 1, "", "dmesg: read kernel buffer failed: Operation not permitted")
    with pytest.raises(Unknown, match=r"no journal, .* dmesg: read kernel buffer failed"):
        kernel_log.read_events(host, NOW)


@pytest.mark.parametrize(("below", "own"), [("nvme0n1p3", True), ("loop0", False), ("sda1", False), ("dm-1", False)])
def test_a_file_system_on_what_a_login_has_unlocked_is_not_the_disk_of_the_host(
    tmp_path: Path, below: str, own: bool
) -> None:
    """A stick, or at the desktop an image: with LUKS it is a dm-N as the host's own disk is."""
    stacks = {"dm-5": below, "dm-1": "md127", "md127": "loop0", "dm-2": "dm-3", "dm-3": "nvme0n1p3"}
    for name, lower in stacks.items():
        (tmp_path / f"sys/block/{name}/slaves" / lower).mkdir(parents=True)
    lines = [f"EXT4-fs error (device {name}): ext4_lookup:1789: inode #2: x" for name in [*stacks, "dm-9"]]
    text = "\n".join(f"[    1.{at:06}] {line}" for at, line in enumerate(lines))
    said = {"dmesg": Completed((), 0, text)}
    host = HostReader(system=System(tmp_path, lambda argv, *_: said.get(argv[0], Completed((), 1, ""))))
    seen = [event["key"] for event in kernel_log.read_events(host, NOW)]
    tally("a login that makes the disk of its host look broken", 1, int("dm-5" in seen and not own))
    assert seen == ["dm-5"] * own + ["dm-2", "dm-3"]


def test_no_line_of_a_container_hides_one_of_the_kernel(tmp_path: Path) -> None:
    """A client can have vLLM log long lines, and as many as it likes. An Xid and the unit's own lines stay."""
    unit = "gb10-vllm.service"
    xid = {**json.loads(line("NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.", unit, 1))}
    del xid["_SYSTEMD_UNIT"]
    own = [line("gb10-vllm: engine_died: " + "x" * 500, unit, 2 + number) for number in range(2000)]
    hostile = [line("Kernel panic " + "x" * 40_000, unit, 3000 + number) for number in range(2000)]

    def journal(argv: Sequence[str], _stdin: str | None, _timeout: float) -> Completed:
        """As journalctl: what fits the pattern, from the newest on."""
        (pattern,) = (word.removeprefix("--grep=") for word in argv if word.startswith("--grep="))
        (most,) = (int(word.removeprefix("--lines=")) for word in argv if word.startswith("--lines="))
        asked = [*([json.dumps(xid)] if "_TRANSPORT=kernel" in argv else [])]
        asked += [*own, *hostile] if f"_SYSTEMD_UNIT={unit}" in argv else []
        found = [each for each in asked if re.search(pattern, json.loads(each)["MESSAGE"])]
        return Completed(tuple(argv), 0 if found else 1, "\n".join(found[::-1][:most]))

    (tmp_path / "var/log/journal/x").mkdir(parents=True)
    events = kernel_log.read_events(replace(HostReader(), system=System(tmp_path, journal)), NOW)
    assert [(event["kind"], event["key"]) for event in events] == [("xid", "79"), ("service", "engine_died")]
    assert 1000 < events[1]["count"] <= 1500 and events[1]["last_s"] == 2001


def test_a_line_names_its_service_and_is_counted_with_it() -> None:
    text = "gb10-vllm: engine_died: it ended"
    units = ("gb10-vllm.service", "gb10-vllm-chat.service", "gb10-vllm-embed.service", "gb10-vllm-embed.service")
    told = kernel_log.parse_journal("\n".join(line(text, unit, at_s) for at_s, unit in enumerate(units, 1)))
    assert [(one["text"].partition(":")[0], one.get("service"), one["count"]) for one in told] == [
        ("gb10-vllm", None, 1), ("gb10-vllm-chat", "chat", 1), ("gb10-vllm-embed", "embed", 2)]  # fmt: skip
    assert {one["key"] for one in told} == {"engine_died"}
    (other,) = said_by.lines(line("Running: 1 reqs", "gb10-vllm-chat.service", 1))
    assert other["MESSAGE"] == "gb10-vllm-chat: Running: 1 reqs"


def test_the_unit_and_who_reads_its_lines_know_them_by_the_same_words() -> None:
    """They travel apart, so neither imports the other."""
    assert said_by.OWN == log.OWN
    assert said_by.CONTAINER_STREAM == log.SPEAKER
    assert f'say("{kernel_log.LISTENS}' in Path(life.__file__).read_text()


@pytest.mark.parametrize("unit", ["gb10-vllm.service", "gb10-vllm-chat.service"])
@pytest.mark.parametrize(
    "text",
    [
        'ERROR the model "NVRM: Xid (PCI:000f:01:00): 79, off the bus" does not exist',
        *("Kernel panic - not syncing", "gpu_dead: NVRM: Xid (PCI:0): 79, x", "gb10-vllm-chat: gpu_dead: x"),
    ],
)
def test_what_a_container_says_is_no_word_of_the_kernel_nor_of_its_unit(unit: str, text: str) -> None:
    """A client with a key can have vLLM log what it likes."""
    assert kernel_log.parse_journal(line(text, unit, 1)) == []


def test_the_engine_that_hangs_is_named() -> None:
    samples = [
        sample(NOW + 100 * place, gpu=gpu(2300, 20.0, 96),
               servings={"chat": health.serving(3, 100), "embed": health.serving(3, 100 + place), "vllm": None})
        for place in range(3)
    ]  # fmt: skip
    record = reading(samples, processes=[{"pid": 1, "memory_mib": 90000}], unknown={"servings.vllm": "no port"})
    assert problem(record) is None
    said = judge("spark-a", record, RULES)  # type: ignore[arg-type]
    (hung,) = said.findings
    assert hung.fact.startswith("chat: 3 requests run")
    assert "restart --no-block gb10-vllm-chat`" in hung.way_out and "`journalctl -u gb10-vllm-chat`" in hung.way_out
    assert said.unsure["engine_hung"] == "vllm: the server's counters are unknown: no port"


def test_each_service_tells_its_failure_once() -> None:
    kept = {"phase": "starting", "since": None, "failures": 1, "verdict": "killed", "text": "it was killed",
            "at": timeline.utc(NOW - 300).replace(" ", "T") + "Z"}  # fmt: skip
    told = {**event("service", NOW - 300, "killed", "gb10-vllm-chat: killed: it was killed"), "service": "chat"}
    record = reading(services={"chat": kept, "embed": kept}, events=[told])
    entries = [entry.text for entry in timeline.build(record, 0) if entry.kind == "service"]  # type: ignore[arg-type]
    assert sorted(entries) == ["gb10-vllm-chat: killed: it was killed", "gb10-vllm-embed: killed: it was killed"]


def test_a_cause_names_the_unit_of_the_service_that_it_is_about() -> None:
    samples = [
        sample(NOW + 100 * place, gpu=gpu(2300, 20.0, 96), servings={"chat": health.serving(3, 100)})
        for place in range(3)
    ]
    record = reading(samples, processes=[{"pid": 1, "memory_mib": 90000}])
    (hung, *_) = answer("spark-a", record, RULES, 14).causes  # type: ignore[arg-type]
    assert hung.id == "engine_hung" and "restart --no-block gb10-vllm-chat` on the first host" in hung.way_out
    assert "`journalctl -u gb10-vllm-chat`" in hung.way_out
    for service, unit in (("chat", "gb10-vllm-chat"), (None, "gb10-vllm")):
        said = event("service", NOW - 300, "start_failed", f"{unit}: start_failed: exit status 1")
        told = {**said, "service": service} if service else said
        (failed,) = answer("spark-a", reading(events=[told]), RULES, 14).causes  # type: ignore[arg-type]
        assert failed.id == "service_failed" and f"`journalctl -u {unit}` has" in failed.way_out


def test_a_stream_of_a_container_speaks_for_nobody() -> None:
    """Its lines may say anything; the name of the stream is the unit's to give. U+2028 tears no entry."""
    common = {"__REALTIME_TIMESTAMP": "1795420800000000", "_BOOT_ID": "0" * 32, "_SYSTEMD_UNIT": "gb10-vllm.service"}
    forged = {**common, "MESSAGE": "gb10-vllm: gpu_dead: x\u2028y", "SYSLOG_IDENTIFIER": "gb10-container"}
    own = {**forged, "SYSLOG_IDENTIFIER": "gb10-vllm"}
    text = "\n".join(json.dumps(entry, ensure_ascii=False) for entry in (forged, own))
    assert [entry["speaker"] for entry in said_by.lines(text)] == [said_by.CONTAINER, said_by.UNIT]
