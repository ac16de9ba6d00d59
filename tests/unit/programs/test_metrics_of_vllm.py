"""vLLM's metrics as they are handed on: whatever a server says, node_exporter can read the file."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics.of_vllm import handed_on

FAMILIES = {"vllm:x": "gauge", "vllm:h": "histogram"}
GOOD = 'vllm:x{a="b"} 1'
KEPT = '# TYPE vllm:x gauge\nvllm:x{service="vllm",a="b"} 1\n'
BAD = (
    *('vllm:x{a="c"} 1_0', 'vllm:x{a="c"} \u0661', 'vllm:x{a="c"} 1e99999', 'vllm:x{a="c"} infinity', "vllm:x 0x10"),
    *('vllm:x{service="other"} 2', 'vllm:x{__name__="gb10_gpu_power_watts"} 2', 'vllm:x{a="c",a="d"} 2'),
    *("vllm:x{a=b} 2", 'vllm:x{a="b} 2', 'vllm:x{a="\\q"} 2', 'vllm:x{a="c"b="d"} 2', 'vllm:x{1="c"} 2'),
    *('vllm:x{a="c"} 2 gb10_gpu_power_watts{c="d"} 1', 'vllm:x{a="c"} 2 1795420800000', "vllm:x{,,} 2"),
    *('vllm:h_bucket{le="zz"} 1', 'vllm:h_bucket{le="NaN"} 1', "vllm:h_bucket 1", 'vllm:h_bucket{le="1"} -1'),
    *("vllm:h 1", "vllm:h_count NaN", "vllm:h_count 1e40", 'vllm:h_sum{le="x"} 1', "vllm:h_created 1"),
    *("vllm:x_bucket 1", "vllm:other 1", "# TYPE vllm:x foo", "# TYPE vllm:x histogram", "# HELP vllm:x \\q"),
    'vllm:x{a="\u2028# TYPE vllm:y foo\u2028',
)


def promtool(text: str) -> int:
    """3 is what it says of our and vLLM's names; what it cannot parse is 1."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not here")
    return subprocess.run(
        [program, "check", "metrics"], input=text.encode(), capture_output=True, check=False
    ).returncode


@pytest.mark.parametrize("line", BAD)
def test_a_line_that_nobody_can_read_is_dropped_and_the_others_stay(line: str) -> None:
    assert handed_on([("vllm", f"{line}\n{GOOD}\n{line}\n")], FAMILIES) == KEPT


def test_promtool_reads_what_is_handed_on() -> None:
    odd = 'vllm:x{a="\\\\ \\" \\n } 1 {\u2028\r",b="",} -1.5e-3\nvllm:x{a="i"} +Inf\nvllm:x{a="n"} NaN'
    whole = 'vllm:h_bucket{le="0.5"} 1\nvllm:h_bucket{le="+Inf"} 2\nvllm:h_sum 0.7\nvllm:h_count 2'
    text = handed_on([(name, "\n".join([odd, whole, *BAD])) for name in ("vllm", "vllm-b")], FAMILIES)
    assert promtool(text) in (0, 3)
    assert len([line for line in text.splitlines() if line.startswith("vllm:h")]) == 8


def test_a_server_cannot_change_the_type_for_the_others() -> None:
    texts = [("a", "# TYPE vllm:x histogram\nvllm:x_count 1\nvllm:x 1"), ("b", "# TYPE vllm:x gauge\nvllm:x 2")]
    assert handed_on(texts, FAMILIES) == '# TYPE vllm:x gauge\nvllm:x{service="a"} 1\nvllm:x{service="b"} 2\n'


def test_a_series_is_there_once() -> None:
    """Twice, it costs node_exporter's whole answer."""
    text = handed_on([("v", 'vllm:x{a="1",b="2"} 1\nvllm:x{b="2",a="1"} 2')], FAMILIES)
    assert text.splitlines()[1:] == ['vllm:x{service="v",b="2",a="1"} 2']
