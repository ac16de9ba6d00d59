"""perftest's language: command line, report, JSON, errors."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import perftest
from hypothesis import given, settings
from hypothesis import strategies as st

FIXTURES = Path(__file__).parents[2] / "fixtures" / "perftest"
CLIENT = perftest.Test(
    name="a:p0--b:p0/0",
    end="client",
    device="rocep1s0f0",
    address="192.168.100.11",
    peer="192.168.100.10",
    port=18515,
    qps=4,
    message_bytes=1048576,
    duration_s=10,
    qp_timeout=14,
)


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


def test_report_of_a_spark() -> None:
    report = perftest.parse_text(fixture("24.01_spark_4qp.txt"))
    assert report is not None
    assert report.gbps == 97.51
    assert report.gbytes_per_s == pytest.approx(12.18875)
    assert (report.message_bytes, report.iterations, report.qps) == (1048576, 116240, 4)
    assert (report.mtu, report.gid_index, report.device, report.link_type) == (4096, 3, "rocep1s0f0", "Ethernet")
    assert (report.local_address, report.remote_address) == ("192.168.100.11", "192.168.100.10")


def test_report_as_nvidia_published_it() -> None:
    report = perftest.parse_text(fixture("24.01_spark_nvidia_guide.txt"))
    assert report == perftest.Report(
        gbps=92.57,
        message_bytes=65536,
        iterations=882805,
        qps=1,
        mtu=1024,
        gid_index=3,
        device="rocep1s0f0",
        link_type="Ethernet",
        local_address="192.168.200.13",
        remote_address="192.168.200.12",
    )


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("24.01_spark_nvidia_guide.txt", 92.57),
        ("4.5_rxe.txt", 1585.48 * 8 * 2**20 / 1e9),  # MB/sec of old versions are MiB/s
        ("25.01_rxe_cpu.txt", 40.5 * 8 * 2**20 / 1e9),
    ],
)
def test_units(name: str, gbps: float) -> None:
    report = perftest.parse_text(fixture(name))
    assert report is not None and report.gbps == pytest.approx(gbps, abs=1e-6)


def test_colours_and_carriage_returns_do_not_matter() -> None:
    coloured = fixture("24.01_spark_4qp.txt").replace("97.51", "\x1b[1;32m97.51\x1b[0m").replace("\n", "\r\n")
    assert perftest.parse_text(coloured) == perftest.parse_text(fixture("24.01_spark_4qp.txt"))


def test_truncated_report_is_no_report() -> None:
    text = fixture("24.01_spark_4qp.txt")
    assert all(perftest.parse_text(text[:end]) is None for end in range(0, text.index(" 1048576 ") + 40, 7))


def test_version() -> None:
    assert perftest.parse_version("Version: 6.20\n") == (6, 20)
    assert perftest.parse_version("usage: nothing") is None


def test_the_command_holds_what_a_round_of_the_plan_asks_for() -> None:
    assert perftest.argv("ib_write_bw", CLIENT, ib_port=1, gid_index=3) == [
        *["ib_write_bw", "-d", "rocep1s0f0", "-i", "1", "-x", "3", "-p", "18515", "-q", "4", "-s", "1048576"],
        *["-D", "10", "-u", "14", "-F", "--report_gbits", "192.168.100.10"],
    ]


# As libibverbs says it of each driver that it cannot load, so also of those of other vendors (linux-rdma/perftest 262).
_W = "libibverbs: Warning: "
_UNLOADED = f"{_W}couldn't load driver 'lib{{0}}-rdmav34.so': lib{{0}}-rdmav34.so: cannot open shared object file\n"


@pytest.mark.parametrize(
    ("output", "name"),
    [
        (fixture("4.5_no_rdma.txt"), "no_rdma"),
        (" IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device\n", "no_device"),
        (" Port number 1 state is Down\n Couldn't set the link layer\n", "port_down"),
        ("Couldn't connect to 192.168.100.10:18515\nUnable to open file descriptor for socket connection\n", "refused"),
        ("Couldn't listen to port 18515\nUnable to open file descriptor for socket connection\n", "port_busy"),
        (" Found Incompatibility issue with GID types.\n Please Try to use a different IP version.\n", "gid_family"),
        ("Failed to modify QP 263 to RTR\n Unable to Connect the HCA's through the link\n", "gid_unroutable"),
        (" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n", "retry_exceeded"),
        (" Completion with error at client\n", "completion_error"),
        ("ethernet_read_keys: Couldn't read remote address\n", "peer_died"),
        (" Failed to exchange data between server and clients\n", "peer_died"),
        ("ethernet_read_data: Couldn't read reports\n", "peer_died"),
        ("Couldn't write to socket: Broken pipe\n", "peer_died"),
        (" num_of_qps mismatch: local=4, remote=1\n", "version_mismatch"),
        (" Failed status-transport retry counter exceeded (12): wr_id 0 syndrom 0x81\n", "retry_exceeded"),
        ("Couldn't allocate MR\nfailed to create mr\n", "memlock"),
        (" Problem in resolving basic address and port\n", "resolve"),
        (" Invalid Command or flag.\n", "version_mismatch"),
        ("ib_write_bw: error while loading shared libraries: libmlx5.so.1\n", "missing_package"),
        ("ib_write_bw: symbol lookup error: ib_write_bw: undefined symbol: mlx5dv_open_device\n", "mixed_libraries"),
        ("ib_write_bw: libibverbs.so.1: version `IBVERBS_1.14' not found (required by ib_write_bw)", "mixed_libraries"),
        ("ib_write_bw: relocation error: ib_write_bw: symbol x, version MLX5_1.7 not defined\n", "mixed_libraries"),
        (f"{_UNLOADED.format('mlx5')} IB device rocep1s0f0 not found\n", "mixed_libraries"),
        (_UNLOADED.format("mlx5").replace("'lib", "'/opt/x/lib"), "mixed_libraries"),
        (f"{_UNLOADED.format('mana')} IB device rocep1s0f0 not found\n", "no_device"),
        (f"{_UNLOADED.format('mana')}ethernet_read_keys: Couldn't read remote address\n", "peer_died"),
        (" Couldn't get context for the device\n", "no_access"),
        (
            " Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device",
            "port_down",
        ),
        ("Requested SQ size might be too big. Try reducing TX depth\n Unable to create QP.\n", "memlock"),
        ("Can't produce a report\n", "no_report"),
        ("something new\n", "failed"),
    ],
)
def test_errors_have_names(output: str, name: str) -> None:
    fault = perftest.classify(output, 1)
    assert fault.name == name
    assert fault.way_out and fault.text
    assert output.splitlines()[0].strip()[:20] in fault.text or name in ("no_rdma", "retry_exceeded") or _W in output


# The values of ibv_wc_status and the words of ibv_wc_status_str(), as rdma-core's libibverbs has them.
@pytest.mark.parametrize(
    ("status", "words", "name", "means"),
    [
        (1, "local length error", "loc_len_err", "this host's"),
        (4, "local protection error", "loc_prot_err", "this host's"),
        (5, "Work Request Flushed Error", "wr_flush_err", "closed"),
        (9, "remote invalid request error", "rem_inv_req_err", "peer's"),
        (10, "remote access error", "rem_access_err", "peer's"),
        (11, "remote operation error", "rem_op_err", "peer's"),
        (12, "transport retry counter exceeded", "retry_exceeded", "no answer"),
        (13, "RNR retry counter exceeded", "rnr_retry_exc_err", "not ready"),
        (19, "fatal error", "fatal_err", "this host's"),
        (20, "response timeout error", "resp_timeout_err", "no answer"),
        (21, "general error", "general_err", "this host's"),
        (99, "unknown", "completion_error", "99"),
    ],
)
def test_a_completion_with_an_error_is_named_by_its_status(status: int, words: str, name: str, means: str) -> None:
    old = f" Completion with error at client\n Failed status {status}: wr_id 0 syndrom 0xf9\nscnt=128, ccnt=0\n"
    new = f" Completion with error at client\n Failed status-{words} ({status}): wr_id 0 syndrom 0xf9\n"
    for output in (old, new, old.replace("\n", "\r\n")):
        fault = perftest.classify(output, 1)
        assert fault.name == name
        assert means in fault.text and f"Failed status{'-' if output is new else ' '}" in fault.text
        assert fault.way_out
        assert name in ("retry_exceeded", "completion_error") or f"IBV_WC_{name.upper()}" in fault.text
    if name != "retry_exceeded":
        assert "4791" not in fault.way_out or name == "resp_timeout_err", "that is for packets that get no answer"


def test_a_warning_is_not_the_fault() -> None:
    # perftest goes on with the smaller MTU.
    warned = "Requested mtu is higher than active mtu \nChanging to active mtu - 3\n Failed status 12: wr_id 0\n"
    assert perftest.classify(warned, 1).name == "retry_exceeded"


def test_exit_0_without_a_report_and_death_by_signal() -> None:
    assert perftest.classify("hello\n", 0).name == "unreadable"
    died = perftest.classify("", -9)
    assert (died.name, "signal 9" in died.text) == ("died", True)


SWEEP = fixture("rocm_sweep_bidirectional.txt")
ROWS = SWEEP[SWEEP.index(" 2    ") : SWEEP.index(" 8388608")]


@pytest.mark.parametrize(
    ("output", "word"),
    [
        (SWEEP, "both directions"),
        (SWEEP.replace(ROWS, ""), "both directions"),
        (SWEEP.replace("Bidirectional ", ""), "5 message sizes"),
        (SWEEP.replace("Bidirectional ", "").replace("\n", "\r\n"), "5 message sizes"),
    ],
)
def test_a_sweep_and_a_sum_of_both_directions_are_no_report(output: str, word: str) -> None:
    assert perftest.parse_text(output) is None
    fault = perftest.classify(output, 0)
    assert fault.name == "other_test" and word in fault.text and "without -a and -b" in fault.way_out


def test_one_size_in_one_direction_is_read() -> None:
    report = perftest.parse_text(SWEEP.replace("Bidirectional ", "").replace(ROWS, ""))
    assert report is not None and (report.gbps, report.message_bytes) == (204.59, 8388608)


def test_settings_without_a_result_are_named() -> None:
    # Seen on a Spark with the wrong GID index: all settings, no row, exit status 0.
    text = fixture("24.01_spark_4qp.txt")
    assert perftest.classify(text[: text.index(" #bytes")], 0).name == "no_report"


def test_ends_with_different_mtus_are_noticed() -> None:
    report = perftest.parse_text(fixture("24.01_spark_nvidia_guide.txt"))
    assert report is not None
    fault = perftest.check_mtu(report, 4096)
    assert fault is not None and fault.name == "mtu_mismatch"
    assert "1024 bytes, this one allows 4096" in fault.text
    assert perftest.check_mtu(report, 1024) is None
    assert perftest.check_mtu(report, None) is None, "an unknown MTU is no reason to complain"
    assert perftest.check_mtu(replace(report, mtu=None), 4096) is None


def test_transfers_that_perftest_could_not_time_have_the_figure_of_their_count() -> None:
    measured = perftest.parse_text(fixture("24.01_spark_4qp.txt"))  # by -D 20
    assert measured is not None and perftest.timed(measured, 20) == measured
    counted = perftest.timed(replace(measured, gbps=0.0), 20).gbps
    assert abs(counted - measured.gbps) < 0.01 * measured.gbps
    nothing = replace(measured, gbps=0.0, iterations=0)
    assert perftest.timed(nothing, 20) == nothing, "nothing arrived: no matter of clocks"


def test_both_ends_get_the_same_options() -> None:
    server = replace(CLIENT, end="server", device="roceP2p1s0f0", address=CLIENT.peer, peer=CLIENT.address)
    commands = [
        perftest.argv("ib_write_bw", test, ib_port=1, gid_index=index) for test, index in ((CLIENT, 3), (server, 5))
    ]
    client, other = commands
    assert client.pop() == "192.168.100.10"
    assert [pair for pair in zip(client, other, strict=True) if pair[0] != pair[1]] == [
        ("rocep1s0f0", "roceP2p1s0f0"),
        ("3", "5"),
    ]


def test_both_ends_must_be_the_rails() -> None:
    report = perftest.parse_text(fixture("24.01_spark_4qp.txt"))
    assert report is not None and perftest.check_ends(CLIENT, report) is None
    elsewhere = perftest.parse_text(fixture("24.01_spark_nvidia_guide.txt"))
    assert elsewhere is not None
    fault = perftest.check_ends(CLIENT, elsewhere)
    assert fault is not None and fault.name == "wrong_path" and "192.168.200.13" in fault.text


LINES = [line for path in sorted(FIXTURES.glob("*.*")) for line in path.read_text(encoding="utf-8").splitlines()]


@settings(max_examples=400)
@given(
    st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=80)), max_size=60),
    st.sampled_from(["\n", "\r\n", "\n\x1b[0m"]),
    st.integers(-64, 255),
)
def test_any_output_is_readable(lines: list[str], newline: str, status: int) -> None:
    output = newline.join(lines)
    report = perftest.parse_text(output)
    assert report is None or report.gbps >= 0
    assert perftest.classify(output, status).way_out


def test_hostile_output_is_read_in_linear_time() -> None:
    started = time.process_time()
    for piece in ("1 ", "\x1b[", " local address:", "GID: 00:", "#bytes ", ' "a": ', "[" * 10, "\n", " ", "\t"):
        text = piece * 20_000  # the runner keeps 128 KiB
        perftest.parse_text(text)
        perftest.classify(text, 1)
    assert time.process_time() - started < 5


TEXTS = [path.read_text(encoding="utf-8") for path in sorted(FIXTURES.glob("*.*"))]
ERRORS = (
    *("Couldn't connect to 10.0.0.1:18515", " Failed status 12: wr_id 0 syndrom 0x81", "Couldn't listen to port 1"),
    *(
        "\x1b[31merror\x1b[0m",
        "\x1b[",
        "\r",
        "\0\ufffd",
        "nan",
        "-nan",
        "inf",
        "1e308",
        "9" * 400,
        "[Gb/sec]",
        "#bytes",
    ),
)


def damaged(dice: random.Random) -> str:
    """One of the outputs of all versions: cut, mixed with another, coloured, repeated, or with errors in it."""
    text = dice.choice(TEXTS)
    for _step in range(dice.randrange(1, 5)):
        place, other = dice.randrange(len(text) + 1), dice.randrange(len(text) + 1)
        text = dice.choice(
            (
                text[:place],
                text[place:],
                text[:place] + text[other:],
                text[:place] + dice.choice(ERRORS) + text[place:],
                text.replace("\n", "\r\n"),
                text.replace(" ", "\t"),
                text.replace(dice.choice('0123456789.:,"{}'), dice.choice(("", "-", "\u0663", "\x1b[0m", ":"))),
                text[:place] + dice.choice(TEXTS),
            )
        )[:20_000]
    return text


def test_ten_thousand_damaged_outputs() -> None:
    dice = random.Random(5)  # noqa: S311 the same outputs each time
    started = time.process_time()
    reports = 0
    for _number in range(10_000):
        text = damaged(dice)
        report = perftest.parse_text(text)
        if report:
            reports += 1
            assert 0 <= report.gbps < 1e13 and report.iterations >= 0
            perftest.check_ends(CLIENT, report)
            perftest.check_mtu(report, 4096)
        fault = perftest.classify(text, dice.choice((0, 1, -9)))
        assert fault.name and fault.way_out and len(fault.text) < 1000
    assert 500 < reports < 9_500, "both what can be read and what cannot is among them"
    assert time.process_time() - started < 20


def test_ten_megabytes_are_read() -> None:
    filler = "\x1b[31m 65536 junk \xff :{\n" * 440_000
    started = time.process_time()
    report = perftest.parse_text(filler + fixture("24.01_spark_4qp.txt"))
    assert report is not None and report.gbps == 97.51
    assert perftest.classify(filler, 1).name == "failed"
    assert time.process_time() - started < 10


# What perftest prints of a latency, but for its last column; the line between is of a CPU whose clock moves.
LATENCY = """\
---------------------------------------------------------------------------------------
                    RDMA_Write Latency Test
 Mtu             : 4096[B]
 GID index       : 3
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0107 PSN 0x81dd10 RKey 0x1fddbc VAddr 0x000000023bd000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:100:11
 remote address: LID 0000 QPN 0x0107 PSN 0x41001a RKey 0x1fddbc VAddr 0x00000000bf9000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:100:10
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]   t_stdev[usec]   99% percentile[usec]
Conflicting CPU frequency values detected: 2200.000000 != 1040.353000. CPU Frequency is not max.
 2       1000          1.40           6.81         1.47                1.50             0.11            1.93
---------------------------------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("change", "figure"),
    [
        (("", ""), 1.47),
        (("        1.47  ", "        0.00  "), None),  # it could not time its clock
        (("168:100:10\n", "168:100:12\n"), None),  # another host answered
        (("t_typical", "t_avg"), None),  # a test by duration has other columns
        (("\n 2  ", "\n 8388608  "), None),  # a size that nobody asked for
    ],
)
def test_latency_of_the_rail_that_was_asked_for(change: tuple[str, str], figure: float | None) -> None:
    assert perftest.parse_latency(LATENCY.replace(*change) if change[0] else LATENCY, CLIENT) == figure


def test_a_latency_that_broke_off_is_none() -> None:
    end = LATENCY.index("1.47")
    assert all(perftest.parse_latency(LATENCY[:cut], CLIENT) is None for cut in range(0, end, 40))
