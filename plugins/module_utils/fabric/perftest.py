# SPDX-License-Identifier: GPL-3.0-or-later
"""The language of perftest's ``ib_write_bw`` and ``ib_write_lat``: their command line, report and errors. Pure.

The text table is read, because every version prints it the same way, and only some print valid JSON. Exit status 1
stands for every failure, so failures are classified by their text.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import RUN_FABRIC

# Debian 12 has 4.5 (which calls itself 6.06), Ubuntu 24.04 has 24.01 (6.20), Debian 13 has 25.01 (6.24).
MIB_IN_GIGABITS = 8 * 2**20 / 1e9
LARGEST_QUOTE = 240


@dataclass(frozen=True)
class Test:
    """One end of one measurement, as a round of the fabric plan asks for it."""

    __test__ = False  # not a test class of pytest

    name: str
    end: str  # "server" or "client"
    device: str
    address: str  # IPv4 of this end's rail; its RoCE v2 GID is measured
    peer: str  # IPv4 of the other end's rail; a client connects to it, both ends check that it answered
    port: int  # TCP port on which the ends meet
    qps: int
    message_bytes: int
    duration_s: int
    qp_timeout: int  # a lost packet is missed after 4.096 us * 2^this; perftest's default is 14 (67 ms)


@dataclass(frozen=True)
class Report:
    """What perftest measured. ``gbps`` is Gb/s (10^9 bit), the addresses are those of the GIDs it used."""

    gbps: float
    message_bytes: int
    iterations: int
    qps: int | None
    mtu: int | None
    gid_index: int | None
    device: str | None
    link_type: str | None
    local_address: str | None
    remote_address: str | None

    @property
    def gbytes_per_s(self) -> float:
        """GB/s (10^9 byte)."""
        return self.gbps / 8


@dataclass(frozen=True)
class Fault:
    """Why a measurement has no result: a name, what was seen, and the way out."""

    name: str
    text: str
    way_out: str


def parse_version(output: str) -> tuple[int, int] | None:
    """Read 'Version: 6.20' (``ib_write_bw -V`` prints it and exits 1)."""
    match = re.search(r"Version\s*:\s*(\d{1,4})\.(\d{1,4})", output)
    return (int(match.group(1)), int(match.group(2))) if match else None


def argv(executable: str, test: Test, *, ib_port: int, gid_index: int | str) -> list[str]:
    """The command line of one end. Everything but device, GID index, port of the HCA and host is equal on both ends."""
    size = ["-q", str(test.qps), "-s", str(test.message_bytes), "-D", str(test.duration_s)]
    return _argv(executable, test, ib_port, gid_index, *size, "-u", str(test.qp_timeout), "-F", "--report_gbits")


def argv_of_latency(executable: str, test: Test, *, ib_port: int, gid_index: int | str) -> list[str]:
    """The same rail with messages of perftest's own size and number, 1000 of 2 bytes: half a round trip each."""
    return _argv(executable, test, ib_port, gid_index, "-u", str(test.qp_timeout), "-F")


def _argv(executable: str, test: Test, ib_port: int, gid_index: int | str, *own: str) -> list[str]:
    command = [executable, "-d", test.device, "-i", str(ib_port), "-x", str(gid_index), "-p", str(test.port), *own]
    return [*command, test.peer] if test.end == "client" else command


SETTINGS = re.compile(r"RDMA_Write BW Test")
# Its figure is the sum of both directions.
BIDIRECTIONAL = re.compile(r"^[ \t]*RDMA_\w{1,16} Bidirectional ", re.MULTILINE)
ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
TABLE_HEADER = re.compile(r"^[ \t]*#bytes[ \t]+#iterations[ \t]+BW peak\[(?P<unit>[^\]]{1,16})\]", re.MULTILINE)
TABLE_ROW = re.compile(
    r"^[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t]+(\d{1,12}\.\d{1,9})[ \t]+(\d{1,12}\.\d{1,9})\s", re.MULTILINE
)
LATENCY_HEADER = re.compile(
    r"^[ \t]*#bytes[ \t]+#iterations[ \t]+t_min\[usec\][ \t]+t_max\[usec\][ \t]+t_typical\[usec\]", re.MULTILINE
)
LATENCY_ROW = re.compile(r"^[ \t]*2[ \t]+\d{1,9}(?:[ \t]+\d{1,9}\.\d{1,9}){2}[ \t]+(\d{1,9}\.\d{1,9})\s", re.MULTILINE)
GID_LINE = r"^[ \t]*{end} address:[^\n]*\n[ \t]*GID:[ \t]{{1,16}}(?P<gid>[0-9:]{{16,80}})[ \t]*$"


def parse_text(output: str) -> Report | None:
    """Read the report from what perftest printed; None if there is no complete one, or it is of another test."""
    text = _plain(output)
    header = TABLE_HEADER.search(text)
    row = TABLE_ROW.search(text + "\n", header.end()) if header else None
    factor = {"Gb/sec": 1.0, "MB/sec": MIB_IN_GIGABITS, "MiB/sec": MIB_IN_GIGABITS}.get(
        header["unit"] if header else ""
    )
    if row is None or factor is None or _other_test(text):
        return None
    return Report(
        gbps=round(float(row.group(4)) * factor, 6),
        message_bytes=int(row.group(1)),
        iterations=int(row.group(2)),
        qps=_number(_field(text, "Number of qps")),
        mtu=_number(_field(text, "Mtu")),
        gid_index=_number(_field(text, "GID index")),
        device=_field(text, "Device"),
        link_type=_field(text, "Link type"),
        local_address=_gid_address(text, "local"),
        remote_address=_gid_address(text, "remote"),
    )


def parse_latency(output: str, test: Test) -> float | None:
    """Half a round trip in us, the median, of the rail of this test; None where it has no figure, or another rail's."""
    text = _plain(output)
    header = LATENCY_HEADER.search(text)
    row = LATENCY_ROW.search(text + "\n", header.end()) if header else None
    if row is None or (_gid_address(text, "local"), _gid_address(text, "remote")) != (test.address, test.peer):
        return None
    return float(row.group(1)) or None  # 0: it could not time its clock


def _plain(output: str) -> str:
    return ANSI.sub("", output).replace("\r", "")


def _other_test(text: str) -> Fault | None:
    """A table that is not of one size in one direction: no row of it is what a rail carries."""
    way_out = WAYS_OUT["other_test"]
    if BIDIRECTIONAL.search(text):
        return Fault("other_test", "perftest measured both directions, and its figure is their sum", way_out)
    header = TABLE_HEADER.search(text)
    sizes = {row[1] for row in TABLE_ROW.finditer(text + "\n", header.end())} if header else set()
    if len(sizes) > 1:
        return Fault("other_test", f"perftest measured {len(sizes)} message sizes, and none of them counts", way_out)
    return None


def _field(text: str, name: str) -> str | None:
    match = re.search(rf"(?:^|\t|  ) {{0,4}}{re.escape(name)}[ \t]*:[ \t]*(\S{{1,64}})", text, re.MULTILINE)
    return match.group(1) if match else None


def _number(text: str | None) -> int | None:
    match = re.match(r"\d{1,9}", text or "")
    return int(match.group()) if match else None


def _gid_address(text: str, end: str) -> str | None:
    """The address behind '00:…:255:255:192:168:200:13': perftest prints the bytes of a GID in decimal."""
    match = re.search(GID_LINE.format(end=end), text, re.MULTILINE)
    parts = match["gid"].split(":") if match else []
    if len(parts) != 16 or not all(part.isdecimal() and int(part) < 256 for part in parts):
        return None
    address = ipaddress.IPv6Address(bytes(int(part) for part in parts))
    return str(address.ipv4_mapped or address)


# Those of the faults that no text of perftest names by itself.
WAYS_OUT = {
    "other_test": "run ib_write_bw with one size (-s) and without -a and -b, as the command of this result has it",
    "no_report": "compare show_gids on both hosts and ping the peer over the rail; UDP port 4791 must be open",
    "unreadable": "compare `ib_write_bw -V` with the versions that the module documents",
    "died": "see `journalctl -k` for the out-of-memory killer or a crash, then run it again",
    "failed": "run the command of this result by hand on both hosts",
    "mtu_mismatch": "set the same MTU on both rails (fabric_mtu)",
    "wrong_path": "an address moved during the run, or another process answered on the port: run it again",
    "timeout": "check that the peer is up and its rail answers ping",
    "unreachable": "check that the rail answers ping and the firewall lets the port pass",
    "not_listening": "run its command by hand on this host",
    "no_client": "see why the peer's end of this test failed",
    "no_device": "compare the plan with show_gids",
    "no_gid": f"give the rail its address: {RUN_FABRIC}, then compare with show_gids",
}
NO_RDMA = Fault(
    "no_rdma",
    "the host has no RDMA device",
    "plug the cable in (the ConnectX-7 is not on the bus without one), then check `lspci` and `lsmod | grep mlx5_ib`; "
    "where `rdma link` shows it, the package ibverbs-providers is missing",
)
MISSING_PACKAGE = Fault(
    "missing_package", "ib_write_bw is not installed", "install the package perftest (the role fabric does it)"
)
RETRY_WAY_OUT = "check the MTU at both ends and on the switch, that UDP port 4791 is open, and the cable"
# "Failed status 12: wr_id 0", since 25.10 "Failed status-transport retry counter exceeded (12): wr_id 0".
STATUS = re.compile(r"Failed status(?: |-[^\n(]{0,80}\()(\d{1,3})(?!\d)")
FLUSHED = 5  # what waited when the queue pair was closed; what closed it is said by another status
_LOCAL = (
    "this host's adapter or driver refused a transfer",
    "see `dmesg | grep mlx5` on this host, reboot it with the cable in, then measure again",
)
_REMOTE = (
    "the peer's adapter refused a transfer",
    "see the peer's end of this test, and that nobody else runs a test there on this port; both hosts need the same "
    "version of perftest; then measure again",
)
_PEER_LATE = (
    "the peer was not ready to receive",
    "see the peer's end of this test, and that the peer is idle; then measure again",
)
_NO_ANSWER = ("packets left and no answer came", RETRY_WAY_OUT)
_CLOSED = (
    "the connection was closed while transfers waited: the link went away, or the other end ended",
    "see the peer's end of this test, and `dmesg | grep mlx5` on both hosts for a link that went down; check the cable",
)
# libibverbs' ibv_wc_status: (IBV_WC_..., what it means and the way out). Those of datagrams do not occur in this test.
COMPLETIONS = {
    1: ("LOC_LEN_ERR", _LOCAL),
    2: ("LOC_QP_OP_ERR", _LOCAL),
    4: ("LOC_PROT_ERR", _LOCAL),
    FLUSHED: ("WR_FLUSH_ERR", _CLOSED),
    7: ("BAD_RESP_ERR", _REMOTE),
    8: ("LOC_ACCESS_ERR", _LOCAL),
    9: ("REM_INV_REQ_ERR", _REMOTE),
    10: ("REM_ACCESS_ERR", _REMOTE),
    11: ("REM_OP_ERR", _REMOTE),
    12: ("RETRY_EXC_ERR", _NO_ANSWER),
    13: ("RNR_RETRY_EXC_ERR", _PEER_LATE),
    16: ("REM_ABORT_ERR", _REMOTE),
    19: ("FATAL_ERR", _LOCAL),
    20: ("RESP_TIMEOUT_ERR", _NO_ANSWER),
    21: ("GENERAL_ERR", _LOCAL),
}
# The name that this one has had from the beginning.
RETRY_EXCEEDED = {"RETRY_EXC_ERR": "retry_exceeded"}
# (text of perftest 4.5 to 26.04, fault), the specific before the general. The quoted line goes in front of the text.
KNOWN_FAULTS = tuple(
    (re.compile(pattern), fault)
    for pattern, fault in (
        (r"error while loading shared libraries", MISSING_PACKAGE),
        (
            # Of the drivers of other vendors libibverbs says the same, and works.
            r"(?:symbol lookup|relocation) error|version `\S{1,64} not found|"
            r"couldn't load driver '(?:\S{0,200}/)?(?:lib)?mlx5",
            Fault(
                "mixed_libraries",
                "perftest and the libraries of RDMA are not of one source",
                "`dpkg -l perftest libibverbs1 ibverbs-providers librdmacm1` shows them: all are to be Ubuntu's, or "
                "all of DOCA, and none below /usr/local",
            ),
        ),
        (
            # The last one since 26.01, which compares the options of both ends.
            r"Invalid Command or flag|unrecognized option|not compatible with versions older|mismatch: local=",
            Fault(
                "version_mismatch",
                "perftest does not accept what it was given",
                "install the same perftest version on both hosts",
            ),
        ),
        (
            r"IB device \S{1,64} not found",
            Fault(
                "no_device",
                "the RDMA device is not there",
                "compare with `rdma link`; a ConnectX-7 function is missing until its cable is in; where it is there, "
                "the package ibverbs-providers is missing",
            ),
        ),
        (r"Did not detect devices|Unable to find the Infiniband/RoCE device", NO_RDMA),
        (
            r"state is Down|Couldn't set the link layer",
            Fault("port_down", "the port has no link", "check the cable at both ends and that the peer is powered on"),
        ),
        (
            r"Couldn't listen to port|Failed to bind socket|Address already in use",
            Fault(
                "port_busy",
                "another process has the TCP port",
                "find it with `ss -ltnp` and end it, most likely an ib_write_bw that somebody left running",
            ),
        ),
        (
            r"Incompatibility issue with GID types",
            Fault(
                "gid_family",
                "the two ends use GIDs of different families or versions",
                "compare the output of show_gids on both hosts; both must have the rail's IPv4 as a RoCE v2 GID",
            ),
        ),
        (
            r"Failed to modify QP \S{0,32} ?to RTR|Unable to Connect the HCA's through the link",
            Fault(
                "gid_unroutable",
                "the chosen GID cannot reach the peer's",
                "compare the rail addresses of both hosts: they must be in one subnet",
            ),
        ),
        (
            r"Failed status[ -]|Completion with error",  # which of them it is, its status says
            Fault(
                "completion_error",
                "the adapter reports a transfer that failed",
                "see the peer's end of this test, and `dmesg | grep mlx5` on both hosts; then measure again",
            ),
        ),
        (
            r"Couldn't allocate MR|[Ff]ailed to create mr|Cannot allocate memory|size might be too big",
            Fault("memlock", "memory could not be pinned", "run as root, or raise memlock to unlimited"),
        ),
        (
            r"Couldn't get context for the device",
            Fault(
                "no_access",
                "the RDMA device could not be opened",
                "run as root, and see `ls -l /dev/infiniband` (uverbs0 and so on: `modprobe ib_uverbs` makes them)",
            ),
        ),
        (
            r"Problem in resolving basic address",
            Fault("resolve", "the address of the peer is not usable", "give the peer's IPv4 rail address"),
        ),
        (
            r"Couldn't connect to|Unable to init the socket connection|Connection refused"
            r"|Unable to open file descriptor for socket connection",
            Fault(
                "refused",
                "nobody listened at the peer's address in time",
                "see why the peer's end of this test failed; check that the rail answers ping and the firewall lets "
                "the TCP port pass",
            ),
        ),
        (
            r"Couldn't read remote address|Failed to exchange data|Couldn't (?:read|send) reports"
            r"|Couldn't send local address|Couldn't write to socket|Unable to (?:read|write)",
            Fault(
                "peer_died",
                "the other end went away during the test",
                "see the peer's end of this test; if both merely stopped, compare the perftest versions",
            ),
        ),
        (
            r"Can't produce a report",
            Fault("no_report", "perftest measured nothing", "give the test more time (duration_s)"),
        ),
    )
)


def classify(output: str, status: int) -> Fault:
    """Name the failure of a perftest that ended by itself."""
    text = _plain(output)
    for pattern, fault in KNOWN_FAULTS:
        match = pattern.search(text)
        if match and fault.name == "completion_error":
            return _completion(text, match, fault)
        if match:
            return replace(fault, text=f"{fault.text} (perftest: {_line_around(text, match)!r})")
    quote = next((line.strip() for line in reversed(text.splitlines()) if line.strip(" -")), "nothing")
    other = _other_test(text) if status == 0 else None
    if other:
        return other
    if status == 0 and SETTINGS.search(text):
        return Fault(
            "no_report",
            "perftest printed its settings and no result, as it does when its packets do not arrive",
            WAYS_OUT["no_report"],
        )
    if status == 0:
        return Fault(
            "unreadable",
            f"perftest succeeded, but its report could not be read (last line: {quote[:LARGEST_QUOTE]!r})",
            WAYS_OUT["unreadable"],
        )
    if status < 0:
        return Fault(
            "died",
            f"perftest was killed by signal {-status}",
            WAYS_OUT["died"],
        )
    return Fault(
        "failed",
        f"perftest exited with {status} (last line: {quote[:LARGEST_QUOTE]!r})",
        WAYS_OUT["failed"],
    )


def _completion(text: str, seen: re.Match[str], unnamed: Fault) -> Fault:
    """The failed transfer by its status: the first that is no mere consequence of another."""
    found = list(STATUS.finditer(text))
    match = next((one for one in found if int(one.group(1)) != FLUSHED), found[0] if found else seen)
    quote = f"perftest: {_line_around(text, match)!r}"
    number = int(match.group(1)) if found else None
    if number not in COMPLETIONS:
        return replace(unnamed, text=f"{unnamed.text} ({quote})")
    name, (means, way_out) = COMPLETIONS[number]
    return Fault(RETRY_EXCEEDED.get(name, name.lower()), f"{means} (IBV_WC_{name}, {quote})", way_out)


def _line_around(text: str, match: re.Match[str]) -> str:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return text[start : end if end >= 0 else None].strip()[:LARGEST_QUOTE]


def check_mtu(report: Report, ib_mtu: int | None) -> Fault | None:
    """perftest silently takes the smaller path MTU of the two ends; ``ib_mtu`` is what this end's port allows."""
    if not report.mtu or not ib_mtu or report.mtu >= ib_mtu:
        return None
    return Fault(
        "mtu_mismatch",
        f"the ends agreed on a path MTU of {report.mtu} bytes, this one allows {ib_mtu}: the peer's MTU is smaller",
        WAYS_OUT["mtu_mismatch"],
    )


def timed(report: Report, duration_s: int) -> Report:
    """Give a figure to a report that has 0 beside transfers that arrived: perftest could not time its own clock.

    When it starts it compares the counter of the CPU with the time of day. On a busy host both do not agree; then it
    prints "Correlation coefficient", and with -F it goes on and multiplies by 0. It counts for the duration without a
    quarter (whole seconds) at either end, by an alarm of the kernel (linux-rdma/perftest, 2014 to 2026: `catch_alarm`,
    `margin`). So the count alone says the same. On a busy virtual machine it was 7 % off, 2026-11-29.
    """
    if report.gbps or not report.iterations:
        return report
    counted_s = duration_s - 2 * (duration_s // 4)
    return replace(report, gbps=round(report.iterations * report.message_bytes * 8 / 1e9 / counted_s, 6))


def check_ends(test: Test, report: Report) -> Fault | None:
    """A good figure proves nothing about the rail unless the GIDs are those of the two rail addresses."""
    if (report.local_address, report.remote_address) == (test.address, test.peer):
        return None
    return Fault(
        "wrong_path",
        f"measured {report.local_address} to {report.remote_address} instead of {test.address} to {test.peer}",
        WAYS_OUT["wrong_path"],
    )
