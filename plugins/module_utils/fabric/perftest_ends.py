# SPDX-License-Identifier: GPL-3.0-or-later
"""Run this host's ends of the bandwidth tests of one round, all at once, and leave nothing behind.

The other ends run on other hosts at the same time, started by the same task. The pairing timeout bounds both: a server
waits for its client, and a client tries until its server listens. perftest's sockets have no timeouts. So an end that
has met its peer gets the duration of its test and some time more, and a deadline bounds everything.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable

from ansible_collections.gb10.fleet.plugins.module_utils.fabric import perftest
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.gids import HcaPort, Sysfs, find_address
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.perftest import Fault, Test
from ansible_collections.gb10.fleet.plugins.module_utils.reading.sockets import sockets_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.arguments import MEASURING, check_ipv4, check_ranges
from ansible_collections.gb10.fleet.plugins.module_utils.system.children import Child, Children

POLL_S = 0.05
RETRY_S = 0.5
VERSION_TIMEOUT_S = 5.0
# A client's last attempt may have started just before the pairing timeout; it gets this long to connect or be refused.
LAST_ATTEMPT_S = 5.0
# Of a test that has met its peer, beyond its duration: soft-RoCE takes long to set up and to empty its queues.
OVERTIME_S = 60.0
# Latency is measured when the bandwidth is known, by both hosts of a round at about the same time.
LATENCY_S = 20.0
OUTPUT_TAIL = 2000
TCP_ESTABLISHED, TCP_LISTEN = "01", "0A"
_SETTINGS = frozenset({"lifespan"})  # how long a reading is kept, in ms: no counter

Clock = Callable[[], float]
Counters = Callable[[str, int], Mapping[str, int]]  # of a device and the number of its port


def tcp_states(pid: int, port: int, proc_root: str = "/proc") -> set[str]:
    """The states of the TCP sockets that *this process* has on a port, its own or the peer's.

    Asking by connecting would use up the single connection that perftest accepts. And a foreign listener would look
    like ours.
    """
    own = {str(mark.inode) for mark in sockets_of([pid], Path(proc_root))}
    states = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"{proc_root}/net/{table}").read_text(encoding="ascii", errors="replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[9] in own:
                local, remote, state = fields[1:4]
                if f"{port:04X}" in (local.rpartition(":")[2], remote.rpartition(":")[2]):
                    states.add(state)
    return states


def read_counters(sysfs: Sysfs, device: str, port: int) -> dict[str, int]:
    """All that the driver counts, by its own names."""
    folder = f"class/infiniband/{device}/ports/{port}/hw_counters"
    texts = {name: sysfs.read(f"{folder}/{name}") or "" for name in sysfs.names(folder) if name not in _SETTINGS}
    return {name: int(text) for name, text in sorted(texts.items()) if text.isdecimal()}


def _compared(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, list[int]]:
    """Both readings of every counter that is not 0."""
    return {name: [before.get(name, 0), last] for name, last in after.items() if last}


def parse_tests(raw: Sequence[Mapping[str, Any]], *, pairing_timeout_s: int, deadline_s: int) -> list[Test]:
    """Check the arguments of a round and say what is wrong with the first bad one."""
    tests = [Test(**entry) for entry in raw]
    for number, test in enumerate(tests):
        where = f"tests[{number}]"
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", test.device):
            raise ValueError(f"{where}.device {test.device!r} is no name of an RDMA device, such as rocep1s0f0")
        check_ipv4(where, test, ("address", "peer"))
        if test.address == test.peer:
            raise ValueError(
                f"{where}.peer {test.peer} is this end's own address, and a test with itself proves no link: "
                "give the rail address of the other host"
            )
        check_ranges(where, test, (("port", 1, 65535), *MEASURING))
    meetings = [(test.end, test.port if test.end == "server" else (test.peer, test.port)) for test in tests]
    for number, meeting in enumerate(meetings):
        if meeting in meetings[:number]:
            raise ValueError(f"tests[{number}].port {tests[number].port} is taken by an earlier test of this host")
    need = pairing_timeout_s + max((test.duration_s for test in tests), default=0)
    if pairing_timeout_s < 1 or deadline_s <= need:
        raise ValueError(
            f"deadline_s {deadline_s} must be larger than pairing_timeout_s plus the longest test ({need} s)"
        )
    return tests


class _End:
    """One end from its start to its result; ``step()`` moves it on and never waits. ``port`` is this end's HCA port."""

    def __init__(
        self,
        test: Test,
        port: HcaPort,
        command: Sequence[str],
        children: Children,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self.test = test
        self.port = port
        self._read_counters = counters
        self._counters = counters(port.device, port.port)
        self.command = list(command)
        self.result: dict[str, Any] | None = None
        self._children = children
        self._clock = clock
        self._started = clock()
        self._listening_after_s: float | None = None
        self._paired_at: float | None = None
        self._attempts = 0
        self._retry_at = 0.0
        self._child: Child | None = None
        self._start()

    def again(self, executable: str) -> _Latency:
        """The same rail with ``ib_write_lat``, started at once."""
        gid_index = self.command[self.command.index("-x") + 1]
        command = perftest.argv_of_latency(executable, self.test, ib_port=self.port.port, gid_index=gid_index)
        return _Latency(self.test, self.port, command, self._children, self._clock, lambda _device, _port: {})

    def _start(self) -> None:
        self._attempts += 1
        self._child = self._children.start(self.command)

    def step(self, pairing_until: float, until: float) -> None:
        now = self._clock()
        if self._child is None:
            if now >= self._retry_at:
                self._start()
        elif self._child.finished():
            self._ended(now < pairing_until)
        elif now >= until or (
            self._paired_at is not None and now >= self._paired_at + self.test.duration_s + OVERTIME_S
        ):
            self._stop("timeout", "the test did not end in time")
        elif self._paired_at is None:
            self._watch_pairing(self._child, now, pairing_until)

    def _watch_pairing(self, child: Child, now: float, pairing_until: float) -> None:
        states = tcp_states(child.pid, self.test.port)
        if TCP_LISTEN in states and self._listening_after_s is None:
            self._listening_after_s = round(now - self._started, 3)
        if TCP_ESTABLISHED in states:
            self._paired_at = now
        if TCP_ESTABLISHED in states or now < pairing_until:
            return
        if self.test.end == "client":
            if now >= pairing_until + LAST_ATTEMPT_S:
                self._stop("unreachable", f"no connection to {self.test.peer}, TCP port {self.test.port}")
        elif self._listening_after_s is None:
            self._stop("not_listening", "perftest started and never listened")
        else:
            self._stop("no_client", f"{self.test.peer} never connected")

    def _stop(self, name: str, text: str) -> None:
        if self._child is not None:
            self._child.close()
            self._conclude(self._child.output, Fault(name, text, perftest.WAYS_OUT[name]), None)

    def _ended(self, may_retry: bool) -> None:
        child = self._child
        if child is None:
            return
        status = child.close()
        report, fault = self._read(child.output, status)
        if fault and fault.name == "refused" and self.test.end == "client" and may_retry:
            self._child = self._paired_at = None
            self._retry_at = self._clock() + RETRY_S
            return
        self._conclude(child.output, fault, report)

    def _read(self, output: str, status: int) -> tuple[perftest.Report | None, Fault | None]:
        report = perftest.parse_text(output)
        if report is None or status != 0:
            return report, perftest.classify(output, status)
        fault = perftest.check_ends(self.test, report) or perftest.check_mtu(report, self.port.ib_mtu)
        return perftest.timed(report, self.test.duration_s), fault

    def _conclude(self, output: str, fault: Fault | None, report: perftest.Report | None) -> None:
        valid = fault is None or fault.name == "mtu_mismatch"  # a figure of this rail, if of one that is set up wrong
        self.result = _result(
            self.test,
            self.command,
            fault,
            attempts=self._attempts,
            listening_after_s=self._listening_after_s,
            figures={**asdict(report), "gbytes_per_s": round(report.gbytes_per_s, 3)} if report and valid else None,
            output=output[-OUTPUT_TAIL:] if fault else "",
            counters=_compared(self._counters, self._read_counters(self.port.device, self.port.port)),
        )


class _Latency(_End):
    """The same for small messages: a figure, or none. No verdict hangs by it."""

    def _read(self, output: str, status: int) -> tuple[None, Fault | None]:
        return None, perftest.classify(output, status) if status else None

    def _conclude(self, output: str, fault: Fault | None, report: perftest.Report | None) -> None:
        self.result = {"latency_us": None if fault else perftest.parse_latency(output, self.test)}


def told(results: Sequence[Mapping[str, Any]]) -> str:
    """What failed, for a person to read; empty where nothing did."""
    faults = ((each["name"], each["fault"]) for each in results if each["fault"])
    return "\n".join(f"{name}: {said['name']}: {said['text']}\n    Fix: {said['way_out']}" for name, said in faults)


def _result(test: Test, command: Sequence[str], fault: Fault | None, **more: Any) -> dict[str, Any]:
    blank: dict[str, Any] = {
        "perftest": None,
        "attempts": 0,
        "listening_after_s": None,
        "figures": None,
        "output": "",
        "counters": {},
        "latency_us": None,
    }
    return {
        **asdict(test),
        "state": "failed" if fault else "ok",
        "command": list(command),
        "fault": asdict(fault) if fault else None,
        **blank,
        **more,
    }


def _counters(device: str, port: int) -> Mapping[str, int]:
    return read_counters(Sysfs(), device, port)


def planned(tests: Sequence[Test], hcas: Sequence[HcaPort]) -> list[dict[str, Any]]:
    """What would run, for check mode; an address that is no GID yet stands in the place of its index."""
    results = []
    for test in tests:
        found = find_address(hcas, test.device, test.address)
        ib_port, gid_index = (found[0].port, str(found[1].index)) if found else (1, f"<GID of {test.address}>")
        command = perftest.argv("ib_write_bw", test, ib_port=ib_port, gid_index=gid_index)
        results.append({**_result(test, command, None), "state": "planned"})
    return results


def run_ends(
    tests: Sequence[Test],
    hcas: Sequence[HcaPort],
    *,
    executable: str | None,
    pairing_timeout_s: float,
    deadline_s: float,
    latency: str | None = None,
    clock: Clock = time.monotonic,
    counters: Counters | None = None,
) -> tuple[str | None, list[dict[str, Any]]]:
    """Run all ends and return perftest's own version ('6.20') and one result for each test, in their order.

    ``latency`` is perftest's ``ib_write_lat``; without it no latency is measured.
    """
    if executable is None:
        return None, [_result(test, [], perftest.MISSING_PACKAGE) for test in tests]
    with Children() as children:
        started = clock()
        asked = children.start([executable, "-V"])  # beside the tests: starting it takes a slow host as long as a test
        ends: list[_End | dict[str, Any]] = []
        for test in tests:
            found = find_address(hcas, test.device, test.address)
            if found is None:
                ends.append(_result(test, [], _no_gid(test, hcas)))
                continue
            command = perftest.argv(executable, test, ib_port=found[0].port, gid_index=found[1].index)
            ends.append(_End(test, found[0], command, children, clock, counters or _counters))
        _run([end for end in ends if isinstance(end, _End)], started + pairing_timeout_s, started + deadline_s)
        version = _version(asked, clock)
        results = [end.result or {} if isinstance(end, _End) else end for end in ends]
        if latency:
            again = [
                end.again(latency)
                for end in ends
                if isinstance(end, _End) and end.result is not None and end.result["state"] == "ok"
            ]
            _run(again, clock() + LATENCY_S / 2, min(clock() + LATENCY_S, started + deadline_s))
            of = {end.test.name: end.result or {} for end in again}
            results = [{**result, **of.get(result["name"], {})} for result in results]
    own = f"{version[0]}.{version[1]:02d}" if version else None
    return own, [{**result, "perftest": own} for result in results]


def _run(ends: Sequence[_End], pairing_until: float, until: float) -> None:
    running = list(ends)
    while running:
        for end in running:
            end.step(pairing_until, until)
        running = [end for end in running if end.result is None]
        if running:
            time.sleep(POLL_S)


def _version(child: Child, clock: Clock) -> tuple[int, int] | None:
    until = clock() + VERSION_TIMEOUT_S
    while not child.finished() and clock() < until:
        time.sleep(POLL_S)
    child.close()
    return perftest.parse_version(child.output)


def _no_gid(test: Test, hcas: Sequence[HcaPort]) -> Fault:
    if not hcas:
        return perftest.NO_RDMA
    own = next((hca for hca in hcas if hca.device == test.device), None)
    if own is None:
        present = ", ".join(hca.device for hca in hcas)
        text = f"there is no RDMA device {test.device}, only {present}"
        return Fault("no_device", text, perftest.WAYS_OUT["no_device"])
    return Fault(
        "no_gid",
        f"{test.address} is no RoCE v2 GID of {test.device} ({own.netdev or 'no netdev'})",
        perftest.WAYS_OUT["no_gid"],
    )
