"""Both ends of a measurement, with real processes: a stand-in for ib_write_bw that listens and connects on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import perftest_ends
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.gids import HcaPort, Sysfs, make_gid
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.perftest import Test
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.perftest_ends import read_counters
from ansible_collections.gb10.fleet.plugins.module_utils.system.children import Children
from ansible_collections.gb10.fleet.plugins.modules import ib_write_bw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fitting import misfit
from tests.support.ports import free_port

SERVER_ADDRESS, CLIENT_ADDRESS = "127.0.0.1", "127.0.0.2"
HEAD = f"#!{sys.executable} -SE\n"
# Behaves like perftest where the runner looks: -V exits 1, the server takes one connection, both print the same table.
STAND_IN = (
    HEAD
    + r"""
import socket, sys
if "-V" in sys.argv:
    print("Version: 6.20")
    sys.exit(1)
def option(name): return sys.argv[sys.argv.index(name) + 1]
port, peer = int(option("-p")), None if sys.argv[-1].startswith("-") else sys.argv[-1]
def gid(address): return "00:" * 10 + "255:255:" + ":".join("%02d" % int(part) for part in address.split("."))
if peer:
    try:
        connection = socket.create_connection((peer, port), 5)
    except OSError:
        print("Couldn't connect to %s:%d" % (peer, port), file=sys.stderr)
        sys.exit(1)
    local, remote = "127.0.0.2", "127.0.0.1"
else:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("", port))
    except OSError:
        print("Couldn't listen to port %d" % port, file=sys.stderr)
        sys.exit(1)
    listener.listen(1)
    connection = listener.accept()[0]
    listener.close()
    local, remote = "127.0.0.1", "127.0.0.2"
connection.sendall(b"x")
connection.recv(1)
print(" Mtu             : 4096[B]\n GID index       : %s" % option("-x"))
print(" local address: LID 0000\n GID: %s\n remote address: LID 0000\n GID: %s" % (gid(local), gid(remote)))
print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
print(" 65536      5000           0.00               97.51              0.1\n")
"""
)


def install(folder: Path, script: str) -> str:
    path = folder / "ib_write_bw"
    path.write_text(script, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def hca(address: str) -> HcaPort:
    gid = make_gid(3, f"::ffff:{address}", "RoCE v2", "lo")
    assert gid is not None
    blank: dict[str, Any] = dict.fromkeys(HcaPort.__dataclass_fields__)
    return HcaPort(**{**blank, "device": "rocep1s0f0", "port": 1, "netdev": "lo", "slots": 4, "gids": (gid,)})


@pytest.fixture
def port() -> int:
    return free_port()


def make_test(end: str, port: int) -> Test:
    own, peer = (SERVER_ADDRESS, CLIENT_ADDRESS) if end == "server" else (CLIENT_ADDRESS, SERVER_ADDRESS)
    return Test("rail", end, "rocep1s0f0", own, peer, port, qps=4, message_bytes=65536, duration_s=2, qp_timeout=14)


def test_counters_are_read_before_and_after_a_test(tmp_path: Path, port: int) -> None:
    # Names and "lifespan" as mlx5 has them below hw_counters; 10 is the lifespan's default.
    folder = tmp_path / "class/infiniband/rocep1s0f0/ports/1/hw_counters"
    folder.mkdir(parents=True)
    for name, text in {"lifespan": "10", "out_of_sequence": "4", "packet_seq_err": "0", "np_cnp_sent": "x"}.items():
        (folder / name).write_text(f"{text}\n")
    readings = []

    def counters(device: str, number: int) -> dict[str, int]:
        readings.append(read_counters(Sysfs(str(tmp_path)), device, number))
        (folder / "out_of_sequence").write_text("129\n")
        return readings[-1]

    executable = install(tmp_path, STAND_IN)
    tests = [make_test("server", port)]
    hcas = [hca(SERVER_ADDRESS)]
    (result,) = perftest_ends.run_ends(
        tests, hcas, executable=executable, pairing_timeout_s=1, deadline_s=20, counters=counters
    )[1]
    assert readings[0] == {"out_of_sequence": 4, "packet_seq_err": 0}
    assert result["counters"] == {"out_of_sequence": [4, 129]}, "also of a test that failed"


def run(executable: str | None, *tests: Test, pairing: float = 10, deadline: float = 20) -> list[dict[str, Any]]:
    hcas = [hca(test.address) for test in tests]
    limits = {"pairing_timeout_s": pairing, "deadline_s": deadline}
    version, results = perftest_ends.run_ends(tests, hcas, executable=executable, **limits)
    assert misfit("ib_write_bw", {"version": version, "tests": results}) is None
    return results


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split())

    before = children()  # of other tests of this process
    yield
    assert children() - before == set()


def test_both_ends_meet_whoever_starts_first(tmp_path: Path, port: int) -> None:
    executable = install(tmp_path, STAND_IN)
    # The client is started first, so it is refused at least once before the server listens.
    client, server = run(executable, make_test("client", port), make_test("server", port))
    for result in (client, server):
        assert (result["state"], result["fault"], result["output"]) == ("ok", None, "")
        assert result["figures"]["gbps"] == 97.51
        assert result["figures"]["gbytes_per_s"] == 12.189
        assert (result["figures"]["mtu"], result["figures"]["gid_index"]) == (4096, 3)
        assert result["perftest"] == "6.20"
    assert (client["figures"]["local_address"], client["figures"]["remote_address"]) == (CLIENT_ADDRESS, SERVER_ADDRESS)
    assert server["command"][-1] == "--report_gbits", "a server is not given a host"


def test_version_is_reported(tmp_path: Path) -> None:
    executable = install(tmp_path, STAND_IN)
    assert perftest_ends.run_ends([], [], executable=executable, pairing_timeout_s=1, deadline_s=2) == ("6.20", [])


def test_a_client_stops_trying(tmp_path: Path, port: int) -> None:
    # A shell, for it starts within the time to pair also where a Python does not.
    refused = f'#!/bin/sh\n[ $1 = -V ] || echo "Couldn\'t connect to {SERVER_ADDRESS}:{port}" >&2\nexit 1\n'
    (result,) = run(install(tmp_path, refused), make_test("client", port), pairing=1.5)
    assert (result["state"], result["fault"]["name"]) == ("failed", "refused")
    assert result["attempts"] >= 2
    assert f":{port}" in result["output"]


def test_a_server_stops_waiting(tmp_path: Path, port: int) -> None:
    (result,) = run(install(tmp_path, STAND_IN), make_test("server", port), pairing=1)
    assert result["fault"]["name"] == "no_client"
    assert 0 <= result["listening_after_s"] < 1


def test_a_foreign_listener_is_not_our_server(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perftest_ends, "VERSION_TIMEOUT_S", 1)
    with socket.socket() as foreign:
        foreign.bind(("", port))
        foreign.listen(1)
        (result,) = run(install(tmp_path, STAND_IN), make_test("server", port))
        assert result["fault"]["name"] == "port_busy"
        (result,) = run(install(tmp_path, HEAD + "import time\ntime.sleep(60)"), make_test("server", port), pairing=0.3)
        assert result["fault"]["name"] == "not_listening"


def test_a_hanging_client_is_ended(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perftest_ends, "VERSION_TIMEOUT_S", 0.1)
    monkeypatch.setattr(perftest_ends, "LAST_ATTEMPT_S", 0.1)
    hang = HEAD + "import time\nprint('banner', flush=True)\ntime.sleep(60)"
    (result,) = run(install(tmp_path, hang), make_test("client", port), pairing=0.3)
    assert result["fault"]["name"] == "unreachable"


def test_a_test_that_never_ends_meets_the_deadline(tmp_path: Path, port: int) -> None:
    stuck = STAND_IN.replace("connection.recv(1)", "import time; time.sleep(60)")
    results = run(
        install(tmp_path, stuck), make_test("server", port), make_test("client", port), pairing=1.5, deadline=2
    )
    assert [result["fault"]["name"] for result in results] == ["timeout", "timeout"]


def test_grandchildren_are_ended_too(tmp_path: Path, port: int) -> None:
    pid_file = tmp_path / "pid"
    script = HEAD + (
        "import subprocess, sys, time\n"
        "if '-V' in sys.argv: sys.exit(1)\n"
        f"child = subprocess.Popen([{sys.executable!r}, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    run(install(tmp_path, script), make_test("client", port), pairing=1, deadline=1.5)
    wait_until(lambda: gone(Path(f"/proc/{pid_file.read_text(encoding='ascii')}")))


def test_ten_megabytes_of_garbage(tmp_path: Path, port: int) -> None:
    script = HEAD + "import os\nfor _ in range(160): os.write(1, b'\\x1b[31m\\xff junk' * 6554)"
    (result,) = run(install(tmp_path, script), make_test("client", port))
    assert result["fault"]["name"] == "unreadable"
    assert len(result["output"]) <= perftest_ends.OUTPUT_TAIL


def test_a_report_before_much_output_is_kept(tmp_path: Path, port: int) -> None:
    chatty = STAND_IN + "\nprint('x' * 300000)"
    results = run(install(tmp_path, chatty), make_test("server", port), make_test("client", port))
    assert [result["state"] for result in results] == ["ok", "ok"]


def test_the_wrong_end_answered(tmp_path: Path, port: int) -> None:
    script = STAND_IN.replace('local, remote = "127.0.0.2", "127.0.0.1"', 'local, remote = "127.0.0.2", "10.9.9.9"')
    server, client = run(install(tmp_path, script), make_test("server", port), make_test("client", port))
    assert server["state"] == "ok"
    assert client["fault"]["name"] == "wrong_path" and client["figures"] is None


def test_a_smaller_mtu_at_the_peer_is_a_fault_with_figures(tmp_path: Path, port: int) -> None:
    executable = install(tmp_path, STAND_IN.replace("4096[B]", "1024[B]"))
    tests = [make_test("server", port), make_test("client", port)]
    hcas = [replace(hca(tests[0].address), ib_mtu=4096), replace(hca(tests[1].address), device="other", ib_mtu=1024)]
    tests[1] = replace(tests[1], device="other")
    _version, (large, small) = perftest_ends.run_ends(
        tests, hcas, executable=executable, pairing_timeout_s=10, deadline_s=20
    )
    assert (large["state"], large["fault"]["name"], large["figures"]["gbps"]) == ("failed", "mtu_mismatch", 97.51)
    assert (small["state"], small["fault"]) == ("ok", None)


def test_a_test_that_met_its_peer_does_not_get_the_whole_deadline(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perftest_ends, "OVERTIME_S", -1.5)  # with 2 s of test: half a second
    stuck = install(tmp_path, STAND_IN.replace("connection.recv(1)", "import time; time.sleep(60)"))
    started = time.monotonic()
    results = run(stuck, make_test("server", port), make_test("client", port), pairing=30, deadline=50)
    assert [result["fault"]["name"] for result in results] == ["timeout", "timeout"]
    assert time.monotonic() - started < 25


def test_a_peer_that_dies_is_named(tmp_path: Path, port: int) -> None:
    script = STAND_IN.replace(
        'connection.sendall(b"x")',
        "import os, signal\nif not peer: os.kill(os.getpid(), signal.SIGKILL)\nconnection.sendall(b'x')",
    ).replace(
        "connection.recv(1)",
        "\ntry: assert connection.recv(1)\n"
        'except (AssertionError, OSError): sys.exit("ethernet_read_keys: Couldn\'t read remote address")',
    )
    server, client = run(install(tmp_path, script), make_test("server", port), make_test("client", port))
    assert (server["fault"]["name"], client["fault"]["name"]) == ("died", "peer_died")


def test_both_rails_of_a_port_at_once(tmp_path: Path, port: int) -> None:
    executable, second = install(tmp_path, STAND_IN), free_port()
    tests = [make_test(end, number) for end in ("server", "client") for number in (port, second)]
    results = run(executable, *tests)
    assert [(result["state"], result["port"]) for result in results] == [
        *[("ok", port), ("ok", second)],
        *[("ok", port), ("ok", second)],
    ]


def test_missing_package(port: int) -> None:
    (result,) = run(None, make_test("client", port))
    assert (result["fault"]["name"], result["command"]) == ("missing_package", [])


def test_missing_gid_device_and_rdma(tmp_path: Path, port: int) -> None:
    executable = install(tmp_path, STAND_IN)
    test = make_test("client", port)
    for hcas, name in (([hca("10.0.0.1")], "no_gid"), ([], "no_rdma")):
        _version, (result,) = perftest_ends.run_ends(
            [test], hcas, executable=executable, pairing_timeout_s=1, deadline_s=2
        )
        assert result["fault"]["name"] == name


def test_check_mode_runs_nothing(port: int) -> None:
    ready, missing = perftest_ends.planned(
        [make_test("server", port), make_test("client", port)], [hca(SERVER_ADDRESS)]
    )
    assert ready["state"] == missing["state"] == "planned"
    assert ready["command"][5:7] == ["-x", "3"]
    assert missing["command"][6] == f"<GID of {CLIENT_ADDRESS}>"


def test_tcp_states_of_a_process_only(port: int) -> None:
    with socket.socket() as listener:
        listener.bind(("", port))
        assert perftest_ends.tcp_states(os.getpid(), port) == set()
        listener.listen(1)
        assert perftest_ends.tcp_states(os.getpid(), port) == {"0A"}
        assert perftest_ends.tcp_states(1, port) == set(), "another process's socket is not ours"
        with socket.create_connection((SERVER_ADDRESS, port)):
            assert perftest_ends.tcp_states(os.getpid(), port) == {"0A", "01"}
    assert perftest_ends.tcp_states(2**22 + 1, port) == set()


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.booleans())
def test_any_table_of_sockets_is_readable(tmp_path: Path, content: bytes, header: bool) -> None:
    proc = tmp_path / "proc"
    (proc / "net").mkdir(parents=True, exist_ok=True)
    (proc / "7/fd").mkdir(parents=True, exist_ok=True)
    if not (proc / "7/fd/3").is_symlink():
        (proc / "7/fd/3").symlink_to("socket:[4711]")
    (proc / "net/tcp").write_bytes(b"header\n" * header + content)
    assert perftest_ends.tcp_states(7, 18515, str(proc)) <= {"0A", "01"}


def test_termination_ends_the_children(tmp_path: Path) -> None:
    # The runner in a process of its own, told to stop: what it started must go with it.
    code = (
        "import sys, os, time, signal\n"
        f"sys.path[:0] = {[str(Path(entry).absolute()) for entry in sys.path if entry]!r}\n"
        "from ansible_collections.gb10.fleet.plugins.module_utils.system.children import Children\n"
        "with Children() as children:\n"
        "    child = children.start(['sleep', '60'])\n"
        "    print(child.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 128 + 15, done.stderr
    assert not Path(f"/proc/{done.stdout.strip()}").exists()


@pytest.mark.parametrize("when", ["the command runs", "the command is about to run"])
def test_a_killed_runner_leaves_nothing(tmp_path: Path, when: str) -> None:
    # SIGKILL gives the runner no chance to do anything. The second case: it is gone before the kernel knows our wish.
    pause = "import time; time.sleep(60)" if when == "the command runs" else "os.kill(os.getpid(), signal.SIGKILL)"
    setpriv = tmp_path / "setpriv"
    if when != "the command runs":
        setpriv.write_text(f'#!/bin/sh\nsleep 1\nexec {shutil.which("setpriv")} "$@"\n', encoding="utf-8")
        setpriv.chmod(0o755)
    code = (
        "import sys, os, signal\n"
        f"sys.path[:0] = {[str(Path(entry).absolute()) for entry in sys.path if entry]!r}\n"
        "from ansible_collections.gb10.fleet.plugins.module_utils.system.children import Children\n"
        "with Children() as children:\n"
        "    print(children.start(['sleep', '60']).pid, flush=True)\n"
        f"    {pause}\n"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as runner:
        assert runner.stdout is not None
        child = Path(f"/proc/{runner.stdout.readline().strip()}")
        wait_until(lambda: when != "the command runs" or "sleep" in (child / "cmdline").read_text().split("\0")[0])
        runner.send_signal(signal.SIGKILL)
    wait_until(lambda: gone(child))


def wait_until(reached: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.02)


def gone(process: Path) -> bool:
    try:
        return (process / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_output_is_bounded() -> None:
    with Children() as children:
        child = children.start([sys.executable, "-SEc", "print('a' * 100000 + 'b' * 100000)"])
        while not child.finished():
            pass
        assert child.close() == 0
    assert len(child.output) == 2 * 65536
    assert child.output[0] == "a" and child.output.rstrip()[-1] == "b"


GOOD = {
    "name": "rail",
    "end": "server",
    "device": "rocep1s0f0",
    "address": "192.168.100.10",
    "peer": "192.168.100.11",
    "port": 18515,
    "qps": 4,
    "message_bytes": 65536,
    "duration_s": 10,
    "qp_timeout": 14,
}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"device": "-x"}, "device"),
        ({"device": "a/../b"}, "device"),
        ({"peer": "--help"}, "peer"),
        ({"address": "fe80::1"}, "address"),
        ({"port": 0}, "port"),
        ({"qps": 0}, "qps"),
        ({"qp_timeout": 0}, "qp_timeout"),
        ({"duration_s": 1}, "duration_s"),
        ({"message_bytes": 2**31}, "message_bytes"),
    ],
)
def test_bad_input_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=rf"tests\[1\]\.{field}"):
        perftest_ends.parse_tests([{**GOOD, "port": 1}, {**GOOD, **change}], pairing_timeout_s=60, deadline_s=180)


def test_a_test_of_an_address_with_itself_is_refused() -> None:
    # Such a loopback was seen to give 371 Gb/s, and no cable was in it.
    with pytest.raises(ValueError, match=r"tests\[0\]\.peer 192\.\S+ is this end's own address.*the other host"):
        perftest_ends.parse_tests([{**GOOD, "peer": GOOD["address"]}], pairing_timeout_s=60, deadline_s=180)


def test_ports_and_times_must_fit() -> None:
    with pytest.raises(ValueError, match="port 18515 is taken"):
        perftest_ends.parse_tests([GOOD, GOOD], pairing_timeout_s=60, deadline_s=180)
    with pytest.raises(ValueError, match="larger than pairing_timeout_s"):
        perftest_ends.parse_tests([GOOD], pairing_timeout_s=60, deadline_s=70)
    assert len(perftest_ends.parse_tests([GOOD, {**GOOD, "port": 1}], pairing_timeout_s=60, deadline_s=180)) == 2


def test_the_example_by_hand_has_both_ends() -> None:
    task = yaml.safe_load(ib_write_bw.EXAMPLES)[1]
    [written] = task["gb10.fleet.ib_write_bw"]["tests"]

    def end(host: str) -> Test:
        seen = {"inventory_hostname": host, **task["vars"]}
        shown = {key: jinja2.Template(str(value)).render(seen) for key, value in written.items()}
        [test] = perftest_ends.parse_tests(
            [
                {
                    **shown,
                    "port": written["port"],
                    "qps": 4,
                    "message_bytes": 1048576,
                    "duration_s": 10,
                    "qp_timeout": 14,
                }
            ],
            pairing_timeout_s=60,
            deadline_s=180,
        )
        return test

    server, client = end("spark-a"), end("spark-b")
    assert (server.end, client.end, server.name) == ("server", "client", client.name)
    assert (server.address, server.peer) == (client.peer, client.address)


def test_faults_are_told_with_their_way_out() -> None:
    fault = {"name": "port_down", "text": "rocep1s0f0 is down", "way_out": "plug the cable in"}
    results = [{"name": "p0", "fault": fault}, {"name": "p1", "fault": None}]
    assert perftest_ends.told(results) == "p0: port_down: rocep1s0f0 is down\n    Fix: plug the cable in"
    assert not perftest_ends.told(results[1:])


COLUMNS = "BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
ROW = "65536      5000           0.00               97.51              0.1"
LATENCY = STAND_IN.replace(COLUMNS, "t_min[usec] t_max[usec] t_typical[usec]").replace(ROW, "2 1000 1.40 6.81 1.47")
HANGS = HEAD + "import time; time.sleep(60)"


def with_latency(tmp_path: Path, script: str, *tests: Test, bandwidth: str = STAND_IN) -> list[dict[str, Any]]:
    executable = install(tmp_path, bandwidth)
    (tmp_path / "lat").mkdir()
    latency = install(tmp_path / "lat", script)
    hcas = [hca(test.address) for test in tests]
    limits = {"pairing_timeout_s": 10, "deadline_s": 30}
    version, results = perftest_ends.run_ends(tests, hcas, executable=executable, latency=latency, **limits)
    assert misfit("ib_write_bw", {"version": version, "tests": results}) is None
    return results


def both(port: int) -> tuple[Test, Test]:
    return replace(make_test("client", port), name="its client"), make_test("server", port)


def test_latency_is_measured_after_the_bandwidth(tmp_path: Path, port: int) -> None:
    results = with_latency(tmp_path, LATENCY, *both(port))
    assert [(each["figures"]["gbps"], each["latency_us"]) for each in results] == [(97.51, 1.47)] * 2


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", HEAD + "print('nothing')", HANGS])
def test_without_a_latency_the_bandwidth_stands(
    tmp_path: Path, port: int, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perftest_ends, "LATENCY_S", 0.2)
    results = with_latency(tmp_path, script, *both(port))
    assert [(each["state"], each["fault"], each["latency_us"]) for each in results] == [("ok", None, None)] * 2


def test_a_rail_that_failed_is_not_asked_for_its_latency(tmp_path: Path, port: int) -> None:
    asked, fails = tmp_path / "asked", "#!/bin/sh\nexit 1\n"
    (result,) = with_latency(tmp_path, f"#!/bin/sh\ntouch {asked}\n", make_test("server", port), bandwidth=fails)
    assert (result["state"], result["latency_us"], asked.exists()) == ("failed", None, False)
