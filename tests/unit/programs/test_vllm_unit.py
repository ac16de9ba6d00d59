"""The unit's program: real sockets on loopback, real processes, and a `docker` that plays a container."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import door, main
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import log as container_log
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import parse_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.life import NO_MORE, Life
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.log import Log, read_lines, verdict_of_end
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.status import Notify, Status
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_status import parse_status
from ansible_collections.gb10.fleet.plugins.module_utils.system import service_failures as failures
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document, document_in
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.attacker import tally
from tests.support.unit_log import new_log
from tests.support.vllm_unit import (
    DOCKER,
    FORGED,
    LOADED,
    QUICK,
    ROOT,
    SLOW_S,
    SPOKEN,
    Host,
    Speaker,
    hello_of,
    hosts,
    hung_up,
    in_a_process,
    knock,
    wait_until,
)

__all__ = ["hosts"]  # the fixture


# -- one host ----------------------------------------------------------------------------------------------------------


def test_one_life(hosts: Callable[..., list[Host]], capfd: pytest.CaptureFixture[str]) -> None:
    (host,) = hosts()
    host.start().reaches("ready")
    wait_until(lambda: host.active)
    assert host.stop() == 0
    texts = [line for line in host.notified if line.startswith("STATUS=")]
    assert [text for text in texts if "%" in text] == ["STATUS=loading weights 33 %", "STATUS=loading weights 100 %"]
    assert texts.index("STATUS=loading weights 100 %") < texts.index("STATUS=serving")
    assert host.status["phases"].keys() == {"starting", "formation", "weights", "graphs", "ready"}
    assert (host.status["phase"], host.status["failures"], host.status["attempt"]) == ("stopped", 0, 1)
    assert host.path.stat().st_mode & 0o777 == 0o644
    verbs = [line.split()[0] for line in host.calls if not line.startswith("container")]
    assert verbs == ["version", "rm", "image", "run", "stop", "rm"]
    assert "run --name gb10-vllm image serve" in host.calls, "exactly what the role said"
    out = capfd.readouterr().out
    assert "Graph capturing finished in 8 secs" in out, "the journal has the container's lines"
    assert sum("checkpoint shards" in line for line in out.splitlines()) == 2, "a progress bar is lines"


def test_a_container_that_changes_its_mind_for_ever_holds_up_no_stop() -> None:
    """Each change is an event, and the end of the container or a stop comes behind those that wait."""
    log = new_log()
    told = sum(log.feed(f"Loading safetensors checkpoint shards:  {n % 2}% Completed") for n in range(20_000))
    tally("a container holds up the stop of its unit with its percentages", 1, int(told > container_log.MOST_STEPS))
    assert told == container_log.MOST_STEPS and log.percent == "1"
    assert log.feed("Model loading took 65.9 GiB memory and 41.10 seconds"), "another phase is told all the same"


def test_the_gateway_gets_its_leave_when_the_container_listens_and_loses_it_with_it(
    hosts: Callable[..., list[Host]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "kin", lambda process, proc: [os.getpid()] if process else [])
    with socket.create_server(("127.0.0.11", 0)) as before:
        address, port = before.getsockname()
    (host,) = hosts(api={"address": address, "port": port})
    serving = host.root / "serving"
    serving.touch()  # its unit was killed
    host.start().reaches("ready")
    wait_until(lambda: host.active)
    assert not serving.exists()
    with socket.create_server((address, port)):
        wait_until(serving.exists)
        host.play("code", "1")
        assert host.verdict() and not serving.exists()
        host.docker.with_name("code").unlink()
        host.start()
        wait_until(serving.exists)
        assert host.stop() == 0 and not serving.exists()


def test_who_took_its_port_gets_no_leave(hosts: Callable[..., list[Host]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "kin", lambda process, proc: [process])
    looks: list[int] = []
    opens = door.Door.opens
    monkeypatch.setattr(door.Door, "opens", lambda own, process: (looks.append(process), opens(own, process))[1])
    with socket.create_server(("127.0.0.11", 0)) as thief:
        address, port = thief.getsockname()
        (host,) = hosts(api={"address": address, "port": port})
        host.start().reaches("ready")
        wait_until(lambda: sum(process > 0 for process in looks) > 3)
        assert not (host.root / "serving").exists() and host.stop() == 0


def test_a_door_that_stays_shut_is_explained_once_and_readers_of_the_status_see_it(
    hosts: Callable[..., list[Host]], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """First a thief listens, then nobody, then the container."""
    ours: list[int] = []
    monkeypatch.setattr(door, "kin", lambda process, proc: ours)
    looks: list[int] = []
    opens = door.Door.opens
    monkeypatch.setattr(door.Door, "opens", lambda own, process: (looks.append(process), opens(own, process))[1])
    with socket.create_server(("127.0.0.11", 0)) as thief:
        address, port = thief.getsockname()
        (host,) = hosts(api={"address": address, "port": port}, timing=QUICK | {"door": 0.0})
        host.start()
        assert f"(process {os.getpid()} of {pwd.getpwuid(os.getuid()).pw_name}) listens at {address}:{port}" in held(
            host, "port_busy"
        )
        shown = parse_status(json.dumps(host.status))[0]
        assert (shown["phase"], shown["verdict"], shown["failures"]) == ("waiting", "port_busy", 0)
        seen = len(looks)
        wait_until(lambda: len(looks) > seen + 3)
    assert f"nothing listens at {address}:{port}" in held(host, "not_listening")
    ours.append(os.getpid())
    with socket.create_server((address, port)):
        host.reaches("ready")
        assert (host.root / "serving").exists() and host.status["waiting"] is None
        assert host.stop() == 0
    said = [line for line in capfd.readouterr().out.splitlines() if "lets no request through" in line]
    assert [line.split(": ")[2] for line in said] == ["port_busy", "not_listening"], "each once"


def held(host: Host, verdict: str) -> str:
    """Of a server that gets no requests."""
    wait_until(lambda: (host.status.get("waiting") or {}).get("verdict") == verdict, str(host.status))
    assert host.status["failure"]["verdict"] == verdict
    return str(host.status["waiting"]["text"])


def break_docker(host: Host) -> None:
    host.play("down")


def break_image(host: Host) -> None:
    host.play("no-image")


def break_memory(host: Host) -> None:
    (host.sbin / "gb10-memory-gate.short").touch()


def take_gate(host: Host) -> None:
    (host.sbin / "gb10-memory-gate").unlink()


def break_disk(host: Host) -> None:
    host.raw["disk_gib"] = 10**9


def break_cache(host: Host) -> None:
    host.raw["cache"] = str(host.root / "gone")


def break_driver(host: Host, verdict: str = "module_not_loaded") -> None:
    said = json.dumps({"coherent": False, "verdicts": [{"id": verdict, "fact": "no GPU now", "way_out": "modprobe"}]})
    (host.sbin / "gb10-driver-coherence").write_text(f"#!/bin/sh\necho '{said}'; exit 1\n")
    (host.sbin / "gb10-driver-coherence").chmod(0o755)


def break_gid(host: Host) -> None:
    host.raw["gid_file"] = str(host.root / "gid.env")
    (host.sbin / "gb10-gid-index").write_text("#!/bin/sh\necho 'no RoCE v2 GID'; exit 1\n")
    (host.sbin / "gb10-gid-index").chmod(0o755)


@pytest.mark.parametrize(
    ("broken", "verdict", "text"),
    [
        (break_docker, "docker_down", "Cannot connect"),
        (break_image, "image_missing", "image is not on this host: Error: No such image"),
        (break_memory, "memory_short", "7 GiB wanted"),
        (take_gate, "bad_settings", "gb10-memory-gate: No such file or directory"),
        (break_disk, "disk_full", "GiB left"),
        (break_cache, "disk_full", "No such file or directory"),
        (break_driver, "driver_incoherent", "module_not_loaded: no GPU now; modprobe"),
        (break_gid, "gid_not_as_planned", "no RoCE v2 GID"),
    ],
)
def test_a_red_gate_has_its_verdict_and_no_container_starts(
    hosts: Callable[..., list[Host]], broken: Callable[[Host], None], verdict: str, text: str
) -> None:
    (host,) = hosts()
    broken(host)
    host.start()
    assert host.verdict() == verdict
    assert text in host.status["failure"]["text"]
    assert host.status["failure"]["lasting"] == (verdict in ("image_missing", "driver_incoherent", "bad_settings"))
    assert host.runs() == 0 and not host.active
    host.start()
    assert host.verdict() == verdict and (host.status["failures"], host.status["attempt"]) == (2, 2)


def test_what_the_driver_would_do_at_the_next_boot_keeps_nobody_down(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts()
    break_driver(host, "next_kernel_without_module")
    host.start().reaches("ready")


@pytest.mark.parametrize(
    ("carrier", "gid", "says"), [("0", "::ffff:192.168.100.10", "no carrier"), ("1", "::", "not have its address")]
)
def test_a_rail_that_is_down_is_awaited(hosts: Callable[..., list[Host]], carrier: str, gid: str, says: str) -> None:
    head, mate = hosts(2)
    head.rail(carrier, gid)
    mate.start()
    head.start().waits_for("rail_down", says)
    assert head.runs() == mate.runs() == 0
    head.rail()
    for host in (head, mate):
        host.reaches("ready")


@pytest.mark.parametrize(
    ("code", "log", "verdict", "text"),
    [
        (0, LOADED, "engine_died", "exit status 0"),
        (0, LOADED + "EngineCore encountered a fatal error: CUDA error\n", "engine_died", "fatal error"),
        (
            1,
            "Starting to load\nRuntimeError: Engine core initialization failed\n",
            "start_failed",
            "initialization",
        ),
        (0, "", "start_failed", "exit status 0"),
        (2, "usage: vllm serve\nvllm serve: error: unrecognized arguments: --nonsense\n", "refused_flag", "--nonsense"),
        (1, "KeyError: 'invalid tool call parser: x'\n", "refused_flag", "tool call parser"),
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n", "out_of_memory", "Tried"),
        (1, "ValueError: No available memory for the cache blocks.\n", "out_of_memory", "cache blocks"),
        (1, "OSError: [Errno 28] No space left on device\n", "disk_full", "No space"),
        (1, "huggingface_hub.errors.GatedRepoError: 403 Client Error\n", "model_missing", "403"),
        (137, LOADED, "killed", "137"),
        (127, "exec: vllm: not found\n", "image_unfit", "vllm: not found"),
    ],
)
def test_a_container_that_ends_is_a_failure_by_name(
    hosts: Callable[..., list[Host]], code: int, log: str, verdict: str, text: str
) -> None:
    (host,) = hosts()
    host.play("log", log)
    host.start()
    if log:
        wait_until(lambda: host.life and host.life.log.last and log.endswith(f"{host.life.log.last[-1]}\n"))
    host.play("code", str(code))
    assert host.verdict() == verdict
    assert text in host.status["failure"]["text"]


NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"


@pytest.mark.parametrize(("log", "code"), [(NO_KERNEL, NO_MORE), (LOADED + NO_KERNEL, 1)])
def test_only_a_start_that_would_fail_again_is_the_last(hosts: Callable[..., list[Host]], log: str, code: int) -> None:
    (host,) = hosts()
    host.play("log", log)
    host.start()
    wait_until(lambda: host.life and host.life.log.fault)
    host.play("code", "1")
    assert (host.end(), host.status["failure"]["verdict"]) == (code, "kernel_unsupported")
    unit = (ROOT / "roles/vllm/templates/gb10-vllm.service.j2").read_text()
    assert f"\nRestartPreventExitStatus={NO_MORE}\n" in unit


def test_rails_that_carry_nothing_are_said_and_it_serves_on(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts()
    host.play("log", f"NET/IB: Subnet-aware routing: overriding dev 2 with dev 0\n{LOADED}")
    host.start().reaches("ready")
    wait_until(lambda: host.status["remark"])
    assert (host.status["remark"]["verdict"], host.status["failure"]) == ("fabric_half_idle", None)
    assert host.stop() == 0


@pytest.mark.parametrize(("served", "verdict"), [("", "disk_full"), (LOADED, "engine_died")])
def test_a_container_that_outlives_its_engine_is_ended(
    hosts: Callable[..., list[Host]], served: str, verdict: str
) -> None:
    """A full disk: the engine is gone, and vLLM's server may wait for it for ever."""
    (host,) = hosts()
    host.raw["timing"] = QUICK | {"gone": 0.2}
    cause = "RuntimeError: a cause" if served else "OSError: [Errno 28] No space left on device"
    host.play("log", f"{served}EngineCore failed to start.\nTraceback (most recent call last):\n{cause}\n")
    host.start()
    assert host.verdict() == verdict
    assert "the container did not end within 0.2 s" in host.status["failure"]["text"]
    assert cause in host.status["failure"]["text"]


def test_an_error_while_the_engine_lives_ends_nothing(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts()
    host.raw["timing"] = QUICK | {"gone": 0.0}
    host.play("log", f"{LOADED}ERROR:    a request: OSError: [Errno 28] No space left on device\nthe last line\n")
    host.start().reaches("ready")
    wait_until(lambda: host.life and host.life.log.last[-1] == "the last line")
    assert host.stop() == 0 and host.status["failure"] is None


def test_a_container_that_docker_refuses(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts()
    host.play("refused")
    host.start()
    assert host.verdict() == "docker_refused"
    assert "unresolvable CDI devices" in host.status["failure"]["text"] and not host.active


def test_the_kernel_says_whether_memory_ran_out(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts()
    vmstat = host.root / "proc/vmstat"
    vmstat.parent.mkdir()
    vmstat.write_text("pgfault 1\noom_kill 4\n")
    host.start().reaches("ready")
    vmstat.write_text("pgfault 2\noom_kill 6\n")
    host.play("code", "137")
    assert host.verdict() == "out_of_memory"
    assert "killed 2 processes" in host.status["failure"]["text"]


def test_what_a_user_has_killed_by_a_limit_of_his_own_is_no_want_of_memory(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts()
    vmstat, events = host.root / "proc/vmstat", host.root / "sys/fs/cgroup/system.slice/memory.events"
    for path, text in ((vmstat, "oom_kill 4\n"), (events, "oom 1\noom_kill 1\noom_group_kill 0\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    host.start().reaches("ready")
    vmstat.write_text("oom_kill 9\n")
    host.play("code", "137")
    verdict = host.verdict()
    tally("a login names the reason why a model ended", 1, int(verdict == "out_of_memory"))
    assert verdict == "killed"
    host.docker.with_name("code").unlink()
    host.start().reaches("ready")
    events.write_text("oom 3\noom_kill 3\noom_group_kill 0\n")
    host.play("code", "137")
    assert host.verdict() == "out_of_memory" and "killed 2 processes" in host.status["failure"]["text"]


def test_a_verdict_outlives_the_life_and_ends_with_other_settings(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts()
    break_memory(host)
    host.start()
    assert host.verdict() == "memory_short"
    (host.sbin / "gb10-memory-gate.short").unlink()
    host.start().reaches("ready")
    assert host.status["failure"]["verdict"] == "memory_short" and host.status["failures"] == 0
    host.stop()
    host.raw["memory_gib"] = 8
    host.start().reaches("ready")
    assert host.status["failure"] is None and host.status["attempt"] == 3


def test_no_secret_is_passed_on(hosts: Callable[..., list[Host]], capfd: pytest.CaptureFixture[str]) -> None:
    (host,) = hosts()
    env = host.root / "vllm.env"
    env.write_text("# a comment=of ours\nVLLM_API_KEY=sesame\n")
    host.raw["env_file"] = str(env)
    host.play("log", "ERROR: api_key='sesame' of ours\n")
    host.play("code", "1")
    host.start()
    assert host.verdict() == "start_failed"
    log = host.path.with_name("last-log")
    assert log.read_text() == "ERROR: api_key='***' of ours\n" and log.stat().st_mode & 0o777 == 0o600
    assert "lines" not in host.status["failure"], "every login reads it"
    assert "sesame" not in capfd.readouterr().out + host.path.read_text()


def test_a_stop_does_not_wait_for_a_check(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts()
    (host.sbin / "gb10-drop-caches").write_text('#!/bin/sh\ntouch "$0.runs"; exec sleep 60\n')
    host.start()
    wait_until((host.sbin / "gb10-drop-caches.runs").exists)
    assert host.stop() == 0 and host.runs() == 0


def test_a_container_that_docker_still_makes_when_it_is_stopped_does_not_stay(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts()
    host.docker.write_text(DOCKER.replace("touch running", "sleep 0.5; touch running"))
    host.start()
    wait_until(host.runs)
    assert host.stop() == 0
    assert host.life and host.life.child and host.life.child.wait(SLOW_S) == 137, "it ended with its container"


def test_a_check_that_hangs_ends(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts(timing=QUICK | {"gate": 0.3})
    (host.sbin / "gb10-memory-gate").write_text("#!/bin/sh\nexec sleep 60\n")
    host.start()
    assert host.verdict() == "memory_short"
    assert "did not end within 0.3 s" in host.status["failure"]["text"]


def test_systemd_is_told_over_its_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        name = f"gb10-test-{os.getpid()}"
        systemd.bind(f"\0{name}")
        Notify(f"@{name}")("READY=1", "STATUS=serving")
        assert systemd.recv(100) == b"READY=1\nSTATUS=serving"
    Notify(f"@{name}")("READY=1")  # nobody is there any more
    Notify("")("READY=1")


def test_what_a_container_says_steers_neither_systemd_nor_a_terminal(tmp_path: Path) -> None:
    told: list[str] = []
    status = Status(tmp_path / "status.json", lambda *lines: told.extend(lines), "")  # type: ignore[arg-type]
    status.fail(failures.Failure("start_failed", "error \x1b]0;x\x07 \x9b2J\nMAINPID=1"), [])
    assert told == ["STATUS=start_failed: error ?]0;x? ?2J?MAINPID=1"]


# -- a cluster ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_start_together_in_any_order(hosts: Callable[..., list[Host]], order: tuple[int, int]) -> None:
    pair = hosts(2)
    first, second = pair[order[0]], pair[order[1]]
    second.play("log", "")  # of these two only the head's log says that it serves
    pair[0].play("log", LOADED)
    first.start().waits_for("waiting_for_peers", f"waiting for spark-{'ab'[order[1]]}")
    assert f"STATUS=waiting for spark-{'ab'[order[1]]}" in first.notified
    assert first.runs() == 0
    second.start()
    for host in pair:
        host.reaches("ready")
    wait_until(lambda: all(host.active for host in pair))
    assert [host.runs() for host in pair] == [1, 1]
    assert first.status["phases"].keys() >= {"waiting", "formation"}


def test_a_head_whose_log_says_nothing_tells_the_others_that_it_serves(
    hosts: Callable[..., list[Host]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of SGLang: the head is asked, and no other rank has an API."""
    monkeypatch.setattr(Life, "_answers", lambda life, _process: life.config.ready_url is not None)
    pair = hosts(2)
    for host in pair:
        host.raw["phases"] = []
        host.play("log", "")
    pair[0].raw["ready_url"] = "http://127.0.0.11:1/health"
    for host in pair:
        host.start()
    for host in pair:
        host.reaches("ready")


def test_a_rank_without_an_api_serves_when_the_head_says_so(hosts: Callable[..., list[Host]]) -> None:
    pair = hosts(2)
    # The head serves once the other rank's log has been read: a line that comes later is a fault of its own.
    pair[0].docker.write_text(DOCKER.replace("cat log", "while [ -e hold ]; do sleep 0.02; done; cat log"))
    pair[0].play("hold")
    pair[1].play("log", "RuntimeError: CUDA out of memory\n")
    for host in pair:
        host.start()
    wait_until(lambda: pair[1].life and pair[1].life.log.fault)
    (pair[0].docker.parent / "hold").unlink()
    for host in pair:
        host.reaches("ready")
    life = pair[1].life
    assert life and not life.log.feed("Graph capturing finished in 8 secs"), "it is beyond that"
    pair[1].play("code", "0")
    assert pair[1].verdict() == "engine_died"


@pytest.mark.parametrize("said", [{"differs": 5}, {"missing": None}, {"prepare": "x"}, {"go": []}])
def test_a_head_that_says_nonsense_is_left_and_called_again(hosts: Callable[..., list[Host]], said: Any) -> None:
    _, mate = hosts(2)
    with socket.create_server(("127.0.0.11", mate.raw["join"]["port"])) as head:
        head.settimeout(SLOW_S)
        mate.start()
        for _ in range(2):
            with Speaker(head.accept()[0], calls=False) as speaker:
                assert "hello" in (speaker.hear() or {})
                speaker.say(said)
                while speaker.connection.recv(4096):
                    pass
    assert mate.stop() == 0 and mate.runs() == 0


def test_three_wait_for_the_last_one(hosts: Callable[..., list[Host]]) -> None:
    a, b, c = hosts(3)
    b.start()
    a.start().waits_for("waiting_for_peers", "waiting for spark-c")
    b.waits_for("waiting_for_peers", "waiting for spark-c")
    c.start()
    for host in (a, b, c):
        host.reaches("ready")
    b.play("code", "1")
    assert b.verdict() == "engine_died"
    assert (a.verdict(), c.verdict()) == ("peer_lost", "peer_lost")
    assert "spark-b is gone: engine_died" in a.status["failure"]["text"]
    assert "spark-b is gone" in c.status["failure"]["text"], "told on by the head"


def test_one_that_goes_before_the_start_is_awaited_again(hosts: Callable[..., list[Host]]) -> None:
    head, mate = hosts(2)
    break_memory(mate)
    head.start()
    mate.start()
    assert mate.verdict() == "memory_short"
    head.waits_for("waiting_for_peers", "waiting for spark-b")
    assert head.runs() == 0 and head.status["failures"] == 0, "waiting uses up no start"
    (mate.sbin / "gb10-memory-gate.short").unlink()
    mate.start().reaches("ready")
    head.reaches("ready")


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stop_takes_the_other_down_too(hosts: Callable[..., list[Host]], stopped: int) -> None:
    pair = hosts(2)
    for host in pair:
        host.start()
    for host in pair:
        host.reaches("ready")
    assert pair[stopped].stop() == 0
    other = pair[1 - stopped]
    assert other.verdict() == "peer_lost"
    assert "it was stopped" in other.status["failure"]["text"]
    # systemd starts it again, and it waits for the one that was stopped.
    other.start().waits_for("waiting_for_peers")
    pair[stopped].start()
    for host in pair:
        host.reaches("ready")
    assert other.status["attempt"] == 2, "one restart for one loss"


def test_a_stop_that_was_announced_is_no_loss(hosts: Callable[..., list[Host]]) -> None:
    """What drain.yml does: all hear of it before the first one stops, so no unit fails."""
    pair = hosts(2)
    for host in pair:
        host.start()
    for host in pair:
        host.reaches("ready")
        assert host.life
        host.life.announce()
    assert pair[0].stop() == 0
    assert pair[1].end() == 0, pair[1].status
    assert pair[1].status["phase"] == "stopped" and pair[1].status["failure"] is None


@pytest.mark.parametrize(("sent", "says"), [(signal.SIGKILL, "is gone"), (signal.SIGSTOP, "nothing heard for 1 s")])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_peer_that_is_killed_or_falls_silent_takes_the_other_down(
    hosts: Callable[..., list[Host]], victim: int, sent: signal.Signals, says: str
) -> None:
    pair = hosts(2, timing=QUICK | {"silence": 1.0})
    child = in_a_process(pair[victim])
    try:
        other = pair[1 - victim].start()
        other.reaches("ready")
        child.send_signal(sent)
        assert other.verdict() == "peer_lost"
        assert says in other.status["failure"]["text"]
        assert any(line.startswith("stop") for line in other.calls), "its own container was stopped"
    finally:
        child.kill()
        child.wait()
        pair[victim].docker.with_name("running").unlink(missing_ok=True)


def test_what_comes_from_outside_costs_none_of_the_starts_for_own_faults(hosts: Callable[..., list[Host]]) -> None:
    """Systemd forgets the starts that a lost peer costs; a host that fails by itself between them still gives up."""
    head, mate = hosts(2)
    mate.play("log", f"{LOADED}ValueError: No available memory for the cache blocks.\n")
    for own in (1, 2, 3):
        head.start()
        mate.start().reaches("ready")
        mate.play("code", "1")
        assert head.verdict() == "peer_lost" and head.given_back() == own
        assert mate.end() == (1 if own < 3 else NO_MORE) and mate.given_back() == 0
        mate.docker.with_name("code").unlink()
    assert mate.status["faults"] == [], "whoever starts it next has mended it"


@pytest.mark.parametrize("outside", ["docker_down", "stop"])
def test_docker_and_a_stop_cost_no_start(hosts: Callable[..., list[Host]], outside: str) -> None:
    (host,) = hosts()
    host.start().reaches("ready")
    if outside == "stop":
        assert host.stop() == 0
    else:
        host.play("down")
        host.play("code", "1")  # a container ends with its daemon
        assert host.verdict() == "docker_down"
    assert host.given_back() == 1 and host.status["faults"] == []


def test_an_old_fault_counts_no_more(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts(timing=QUICK | {"fault_memory": 0.0})
    host.play("log", "OSError: [Errno 28] No space left on device\n")
    host.play("code", "1")
    assert [host.start().verdict() for _ in range(4)] == ["disk_full"] * 4 and host.given_back() == 0


def test_sigterm_ends_the_process_in_good_order(hosts: Callable[..., list[Host]]) -> None:
    (host,) = hosts()
    child = in_a_process(host)
    try:
        host.reaches("ready")
        child.send_signal(signal.SIGTERM)
        assert child.wait(SLOW_S) == 0
        assert host.status["phase"] == "stopped" and not host.docker.with_name("running").exists()
    finally:
        child.kill()
        child.wait()


def test_other_settings_are_named_and_nobody_starts(hosts: Callable[..., list[Host]]) -> None:
    head, mate = hosts(2)
    mate.raw["join"] = mate.raw["join"] | {"settings": {"vllm_model": "a/b", "vllm_image": "other"}}
    head.start()
    mate.start().waits_for("peers_differ", "spark-a has another vllm_image")
    head.waits_for("peers_differ", "spark-b has another vllm_image")
    assert head.runs() == mate.runs() == 0
    mate.stop()
    mate.raw["join"] = mate.raw["join"] | {"settings": head.raw["join"]["settings"]}
    mate.start().reaches("ready")
    head.reaches("ready")


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01" + bytes(range(256)),
    b"\n" * 100,
    b"{" * 100_000,
    b"[" * 100_000 + b"\n",
    b"1\n",
    json.dumps({"hello": "gb10-vllm 1", "rank": "1", "settings": {}}).encode() + b"\n",
    json.dumps({"hello": "gb10-vllm 1", "rank": True, "settings": {}}).encode() + b"\n",
    json.dumps({"hello": "gb10-vllm 1", "rank": 0, "settings": {}}).encode() + b"\n",
    json.dumps({"hello": "gb10-vllm 1", "rank": 2, "settings": {}}).encode() + b"\n",
    json.dumps({"hello": "gb10-vllm 0", "rank": 1, "settings": {}}).encode() + b"\n",
    json.dumps({"hello": "gb10-vllm 1", "rank": 1, "settings": []}).encode() + b"\n",
    b"",
]


def test_strangers_are_shown_the_door_and_nobody_else_is_disturbed(hosts: Callable[..., list[Host]]) -> None:
    head, mate = hosts(2, timing=QUICK | {"silence": 2 * SLOW_S})
    head.start().waits_for("waiting_for_peers")
    wait_until(lambda: head.life and head.life.link and head.life.link.listener)
    assert hung_up(knock(head, b"", source="127.0.0.99")), "no member has this address"
    assert all(hung_up(knock(head, data)) for data in GARBAGE), "the last one says nothing at all"
    slow = [knock(head, b'{"hello"') for _ in range(40)]
    mate.start().reaches("ready")
    head.reaches("ready")
    assert all(hung_up(knock(head, data)) for data in [*GARBAGE, b"{}\n" * 5000])
    assert all(map(hung_up, slow))
    assert head.status["phase"] == mate.status["phase"] == "ready"


def test_a_member_that_begins_anew_takes_its_own_place(hosts: Callable[..., list[Host]]) -> None:
    """A host whose power was cut is back before its old connection has fallen silent."""
    head, mate = hosts(2)
    head.start()
    wait_until(lambda: head.life and head.life.link and head.life.link.listener)
    ghost = Speaker(knock(head, b""))
    ghost.say(hello_of(head))
    head.waits_for("waiting_for_peers", "waiting for the checks of spark-b")
    mate.start().reaches("ready")  # the head called a new round for it
    head.reaches("ready")
    assert hung_up(ghost.connection)
    again = Speaker(knock(head, b""))
    again.say(hello_of(head))
    assert head.verdict() == mate.verdict() == "peer_lost"
    assert "spark-b is gone: it has begun anew" in head.status["failure"]["text"]
    again.connection.close()


def test_an_answer_to_an_earlier_round_starts_nothing(hosts: Callable[..., list[Host]]) -> None:
    head, _ = hosts(2)
    head.start()
    wait_until(lambda: head.life and head.life.link and head.life.link.listener)
    stale = [{"ready": number} for number in (0, 2, 1)]
    with Speaker(knock(head, b"")) as ghost:
        ghost.say(hello_of(head), *stale)
        wait_until(lambda: "prepare" in (ghost.hear() or {}))
        head.waits_for("waiting_for_peers", "waiting for the checks of spark-b")
        ghost.say(*stale)
        wait_until(lambda: head.life and head.life.link and head.life.link.ready_round)
        assert head.runs() == 0


def test_a_port_that_is_taken_has_its_verdict(hosts: Callable[..., list[Host]]) -> None:
    head, _ = hosts(2)
    with socket.create_server(("127.0.0.11", head.raw["join"]["port"])):
        head.start()
        assert head.verdict() == "join_port_busy"


def test_a_cable_that_comes_out_ends_it_and_is_awaited(hosts: Callable[..., list[Host]]) -> None:
    head, mate = hosts(2, timing=QUICK | {"silence": 1.0})
    head.rail()
    head.start()
    mate.start()
    head.reaches("ready")
    head.rail(carrier="0")
    assert (head.verdict(), mate.verdict()) == ("rail_down", "peer_lost")
    head.start().waits_for("rail_down")
    mate.start().waits_for("waiting_for_peers")
    head.rail()
    for host in (head, mate):
        host.reaches("ready")
        assert host.status["attempt"] == 2


# -- parts -------------------------------------------------------------------------------------------------------------


def started(*words: str) -> int:
    """As systemd starts it; main takes the address out of the environment."""
    os.environ["NOTIFY_SOCKET"] = "@gb10-nobody"
    return main.main(words)


@pytest.mark.parametrize("words", [[], ["chat"], ["status"], ["--help"]])
def test_started_by_hand_it_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """A life begins with the removal of the container that there is, and that may be the one that serves."""
    monkeypatch.setattr(main, "CONFIG", str(tmp_path / "{stem}.json"))
    monkeypatch.setattr(main, "STATUS", str(tmp_path / "status.json"))
    monkeypatch.setattr(main, "Life", None)
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert main.main(words) == 2
    assert "systemctl status 'gb10-vllm*'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_nobody_can_read_is_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "CONFIG", str(tmp_path / "vllm.json"))
    monkeypatch.setattr(main, "STATUS", str(tmp_path / "status.json"))
    for text in (None, "{", "{}", "[]"):
        if text:
            (tmp_path / "vllm.json").write_text(text)
        assert started() == 1
        assert document_in(tmp_path / "status.json")["failure"]["verdict"] == "bad_settings"


@pytest.mark.parametrize(("words", "unit"), [([], "gb10-vllm"), (["chat"], "gb10-vllm-chat")])
def test_a_way_out_names_the_unit_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], unit: str
) -> None:
    monkeypatch.setattr(main, "STATUS", str(tmp_path / "status.json"))
    monkeypatch.setattr(main, "CONFIG", str(tmp_path / "{stem}.json"))
    monkeypatch.setitem(failures.WAYS_OUT, "bad_settings", failures.WAYS_OUT["start_failed"])
    assert started(*words) == 1
    said = f"the first error in `journalctl -u {unit}` is the cause"
    assert document_in(tmp_path / "status.json")["failure"]["way_out"] == said
    assert capsys.readouterr().out.endswith(f"; {said}\n")
    assert [text for text in failures.WAYS_OUT.values() if "gb10-vllm" in text] == []


def test_a_status_that_cannot_be_written_leaves_none_of_an_earlier_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a SIGKILL `ready` stands there; with a full /run whoever reads it would take the next life for ready."""
    path = tmp_path / "status.json"
    path.write_text('{"phase": "ready"}')
    status = Status(path, Notify(""), "digest")

    def full(*_: Any, **__: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    status.enter("starting", "checking the host")
    assert not path.exists()


def test_a_named_service_has_settings_and_status_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "CONFIG", str(tmp_path / "{stem}.json"))
    monkeypatch.setattr(main, "STATUS", str(tmp_path / "{stem}-status.json"))
    (tmp_path / "vllm-chat.json").write_text("{")
    assert started("chat") == 1
    assert str(tmp_path / "vllm-chat.json") in document_in(tmp_path / "vllm-chat-status.json")["failure"]["text"]
    assert started() == 1
    assert "No such file" in document_in(tmp_path / "vllm-status.json")["failure"]["text"]


class Pipe:
    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = [chunk for chunk in chunks if chunk]

    def read1(self, _size: int) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_lines_do_not_depend_on_how_they_arrive(chunks: list[bytes]) -> None:
    whole = [line.decode("utf-8", "replace") for line in re.split(rb"[\r\n]", b"".join(chunks)) if line.strip()]
    assert list(read_lines(Pipe(chunks))) == whole


@pytest.mark.parametrize("over", range(0, 25, 4))
def test_no_secret_gets_through_where_a_long_line_is_cut(over: int) -> None:
    text = b"x" * (2 * container_log.LONGEST_LINE - over) + b"sesame-open-sesame" + b"y" * container_log.LONGEST_LINE
    chunks = [text[at : at + 4096] for at in range(0, len(text), 4096)]
    lines = [line.replace("sesame-open-sesame", "") for line in read_lines(Pipe(chunks), ["sesame-open-sesame"])]
    assert len(lines) > 1 and "s" not in "".join(lines)


def test_a_line_that_does_not_end_is_bounded() -> None:
    lines = list(read_lines(Pipe([b"x" * container_log.LONGEST_LINE] * 10)))
    assert "".join(lines) == "x" * container_log.LONGEST_LINE * 10
    assert max(map(len, lines)) <= 2 * container_log.LONGEST_LINE


@settings(max_examples=50)
@given(st.binary(max_size=80))
def test_any_message_is_an_object_or_nothing(line: bytes) -> None:
    message = document(line)
    assert message is None or isinstance(message, dict)


def test_a_line_of_the_container_is_told_from_one_of_the_unit(tmp_path: Path) -> None:
    """`gb10 why` believes the unit."""
    log = Log(parse_config(json.dumps(Host(tmp_path).raw)), ["gpu"])
    assert log.clean("gb10-vllm: gpu_dead: x") == "| gb10-vllm: ***_dead: x"
    assert log.clean("INFO gb10-vllm: x") == "INFO gb10-vllm: x"


def as_journald_reads(line: str) -> list[str]:
    """What becomes of a line of a stream: NUL ends one, and blanks around it may go (journald-stream.c)."""
    return [part.strip() for part in re.split("[\n\0\u0085\u2028]", line)]


def test_no_line_of_a_container_is_one_of_its_unit(tmp_path: Path) -> None:
    log = Log(parse_config(json.dumps(Host(tmp_path).raw)), ["sesame"])
    won = 0
    for said in SPOKEN:
        line = log.clean(said)
        won += any(part.startswith(container_log.OWN) for part in as_journald_reads(line))
        assert not re.search("[\0-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]", line), ascii(line)
    tally("a container that speaks as its unit: verdicts in the journal", len(SPOKEN), won)
    assert not won
    assert log.clean("\x1b[36m(EngineCore pid=7)\x1b[0;0m\tses\x1b[0mame") == "(EngineCore pid=7)\t***"


@pytest.mark.parametrize("key", ["sesame", "ses\\ame", "ses'ame", "ses'a\"me", 'ses"ame'])
def test_a_server_that_writes_down_its_settings_shows_no_key(tmp_path: Path, key: str) -> None:
    """SGLang does so at each start, as Python writes a text; llama.cpp and others in JSON."""
    (tmp_path / "env").write_text(f"GB10_API_KEY={key}\n")
    log = Log(parse_config(json.dumps(Host(tmp_path).raw)), container_log.read_secrets(str(tmp_path / "env")))
    said = [f"ServerArgs(api_key={key!r}, x=1)", json.dumps({"api_key": key}), key]
    shown = [line for line in map(log.clean, said) if "ame" in line or "ses" in line]
    tally("a container that speaks as its unit: a key in the journal", len(said), len(shown))
    assert not shown


def test_what_a_container_says_has_a_stream_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """journald gives each line the name that its stream began with, and no line can say another."""
    place = tmp_path / "stdout"
    with socket.socket(socket.AF_UNIX) as journald:
        journald.bind(str(place))
        journald.listen()
        monkeypatch.setattr(container_log, "JOURNAL", str(place))
        monkeypatch.delenv("JOURNAL_STREAM", raising=False)
        assert container_log.stream("gb10-vllm-chat") is sys.stdout, "nobody keeps a journal of it"
        monkeypatch.setenv("JOURNAL_STREAM", "8:1")
        with container_log.stream("gb10-vllm-chat") as said:
            print(FORGED, file=said, flush=True)
        connection, _ = journald.accept()
        with connection, connection.makefile() as heard:
            assert heard.read().splitlines() == [
                "gb10-container", "gb10-vllm-chat.service", "7", "0", "0", "0", "0", FORGED,
            ]  # fmt: skip
    assert container_log.stream("gb10-vllm-chat") is sys.stdout, "journald is not there"


def test_a_phase_never_goes_back(tmp_path: Path) -> None:
    log = Log(parse_config(json.dumps(Host(tmp_path).raw)), [])
    lines = [
        "Model loading took 3 GiB",
        "Loading safetensors checkpoint shards:  10% Completed",
        "Starting to load model x",
    ]
    assert [log.feed(line) for line in lines] == [True, False, False]
    assert log.text == container_log.TEXTS["graphs"]


def test_what_went_wrong_before_it_served_is_no_cause_of_its_end(tmp_path: Path) -> None:
    log = Log(parse_config(json.dumps(Host(tmp_path).raw)), [])
    for line in ("WARNING: CUDA out of memory, trying again", "Application startup complete."):
        log.feed(line)
    assert verdict_of_end(0, log, 0).verdict == "engine_died"


def test_every_verdict_has_a_way_out_and_stands_in_the_manual() -> None:
    manual = (ROOT / "docs/troubleshooting.md").read_text()
    assert {name for name in failures.WAYS_OUT if f"`{name}`" not in manual} == set()
    assert set(failures.LASTING) <= set(failures.WAYS_OUT)


def tables(host: Host, rails: int, slots: int = 255) -> Life:
    """A life of the unit with so many rails, each with a GID table as long as a ConnectX-7's."""
    host.raw["rails"] = []
    for number in range(rails):
        address = f"192.168.{number}.10"
        rail = {"netdev": f"enp{number}", "hca": f"roce{number}", "hca_port": 1, "address": address}
        host.raw["rails"].append({**rail, "gid": f"::ffff:{address}"})
        carrier = host.root / f"sys/class/net/enp{number}/carrier"
        carrier.parent.mkdir(parents=True)
        carrier.write_text("1\n")
        table = host.root / f"sys/class/infiniband/roce{number}/ports/1/gids"
        table.mkdir(parents=True)
        for slot in range(slots):
            (table / str(slot)).write_text(f"::ffff:{address}\n" if slot == 3 else "::\n")
    config = parse_config(json.dumps(host.raw))
    return Life(config, Status(host.path, Notify(""), config.digest), Notify(""), host.root)


@pytest.mark.parametrize(("pinned", "fault"), [("3", ""), ("-1", ""), ("5", "enp0 has its address at index 3")])
def test_a_gid_index_by_hand_must_be_that_of_each_rail(tmp_path: Path, pinned: str, fault: str) -> None:
    host = Host(tmp_path)
    host.raw["argv"] = ["docker", "run", "--env", f"NCCL_IB_GID_INDEX={pinned}", "image"]
    life = tables(host, rails=2)
    with pytest.raises(failures.Failure, match=fault) if fault else contextlib.nullcontext():
        life.rails.check_gid_by_hand(life.config.argv)


def test_a_look_at_the_rails_costs_two_reads_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 3 s while the model serves; it read the tables from their beginning, up to 255 slots of each."""
    life = tables(Host(tmp_path), rails=4)
    assert life.rails.fault() == ""
    reads: list[Path] = []
    real = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, **how: (reads.append(path), real(path, **how))[1])
    assert life.rails.fault() == ""
    assert len(reads) == 2 * 4


def test_an_address_that_moves_in_its_table_is_found_again_and_one_that_goes_is_missed(tmp_path: Path) -> None:
    life = tables(Host(tmp_path), rails=1)
    assert life.rails.fault() == ""
    table = tmp_path / "sys/class/infiniband/roce0/ports/1/gids"
    (table / "3").rename(table / "7")
    assert life.rails.fault() == ""
    (table / "7").write_text("::\n")
    assert life.rails.fault() == "enp0 does not have its address 192.168.0.10"
    (table / "9").write_text("::ffff:192.168.0.10\n")
    assert life.rails.fault() == ""
