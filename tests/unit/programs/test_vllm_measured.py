"""What the unit keeps of a start: vLLM's own figures, from real logs and from the words of other versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import measured
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import parse_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.turn import Turn
from ansible_collections.gb10.fleet.plugins.module_utils.reading.measured import FOLDER, MOST, read_measured
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

from tests.support.unit_log import read
from tests.support.vllm_unit import Host, wait_until

LOGS = Path(__file__).parents[2] / "fixtures/vllm_logs"
GB10 = "(EngineCore pid=212) INFO 08-07 21:50:32 [gpu_model_runner.py:5347] "
USAGE = "Free memory on device (118.2/121.63 GiB) on startup. Desired GPU memory utilization is (0.8, 97.3 GiB). "
# The line, and what it says; "NN" are versions of vLLM.
SAID: dict[str, tuple[str, dict[str, float]]] = {
    "0.26 on a GB10": (
        f"{GB10}Model loading took 18.21 GiB memory and 105.313616 seconds",
        {"weights_gib": 18.21, "load_s": 105.313616},
    ),
    "the newer runner": ("Model loading took 7.64 GiB and 32.9 seconds", {"weights_gib": 7.64, "load_s": 32.9}),
    "the cache": ("Available KV cache memory: 16.46 GiB", {"kv_gib": 16.46}),
    "a pinned cache": (
        "Initial free memory 118.0 GiB, reserved 12.0 GiB memory for KV Cache as specified by kv_cache_memory_bytes",
        {"pinned_gib": 12.0},
    ),
    "its tokens": (
        "GPU KV cache size: 992,584 tokens, Maximum concurrency for 262,144 tokens per request: 3.79x",
        {"kv_tokens": 992584, "length": 262144, "sequences": 3.79},
    ),
    "graphs": ("Graph capturing finished in 12 secs, took 0.44 GiB", {"graphs_gib": 0.44}),
    "0.19": (
        f"{USAGE}Actual usage is 15.27 GiB for weight, 0.51 GiB for peak activation, 0.11 GiB for non-torch memory",
        {"activations_gib": 0.51, "non_torch_gib": 0.11},
    ),
    "0.32": (
        f"{USAGE}Actual usage is 16.4 GiB for consumed memory (weights + non-torch), 0.51 GiB for peak activation, and",
        {"consumed_gib": 16.4, "activations_gib": 0.51},
    ),
    "another line": ("INFO: 127.0.0.1 - GET /v1/models took 3 GiB", {}),
    "no number": ("Model loading took 1.2.3 GiB memory and 9 seconds", {"load_s": 9}),
}


@pytest.mark.parametrize(("line", "figures"), SAID.values(), ids=SAID)
def test_a_line_says_its_figures(line: str, figures: dict[str, float]) -> None:
    assert read(line).measured.figures == figures


def test_a_real_start_is_measured_up_to_its_end() -> None:
    log = read(*(LOGS / "good.log").read_text(encoding="utf-8").splitlines())
    wanted = {"kv_gib": 1.0, "kv_tokens": 2097152, "length": 2048, "sequences": 1024, "init_s": 22.46, "read_s": 0}
    assert log.phase == "ready" and log.measured.figures == wanted
    assert read("Available KV cache memory: 3 GiB", log=log).measured.figures == wanted, "a request may say anything"


ABOUT = {"image": "i", "model": "a/b", "revision": "main", "hosts": 1, "share": "0.8", "batch": {}, "words": {}}


def kept(file: Path) -> list[dict[str, Any]]:
    return measured.kept(file.read_text())


def one(weights: float, **about: Any) -> dict[str, Any]:
    return measured.start({**ABOUT, **about}, {"weights_gib": weights}, {"weights": 9.5})


def test_noise_is_not_written_and_what_moved_is(tmp_path: Path) -> None:
    """The file is a fact of the host, and each change of it costs the next run a call."""
    file = tmp_path / "vllm.json"
    assert measured.keep(file, one(18.2)) and file.stat().st_mode & 0o777 == 0o600
    assert not measured.keep(file, one(18.6))
    assert measured.keep(file, one(20)) and [each["figures"]["weights_gib"] for each in kept(file)] == [20]
    assert measured.keep(file, one(20, model="c/d")), "another model"
    assert [each["about"]["model"] for each in kept(file)] == ["c/d", "a/b"]
    for number in range(20):
        measured.keep(file, one(1, model=str(number)))
    assert len(kept(file)) == MOST


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"starts": 1}',
        '{"starts": [1, {"about": 1}]}',
        '{"starts": [{"about": {}, "figures": {"weights_gib": "1"}}]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_none_and_begins_anew(tmp_path: Path, text: str) -> None:
    file = tmp_path / "var/lib/gb10-measured/vllm.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    reader = HostReader(system=System(tmp_path))
    assert read_measured(reader) == {}
    assert measured.keep(file, one(18.2)) and list(read_measured(reader)) == ["vllm"]


def test_a_host_says_what_was_kept_and_nothing_that_would_arrive_otherwise(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER.lstrip("/")
    folder.mkdir(parents=True)
    assert read_measured(HostReader(system=System(tmp_path))) == {}
    measured.keep(folder / "chat.json", one(18.2))
    measured.keep(folder / "chat.json", one(1, words={"--x": "a\x1b"}))
    (start,) = read_measured(HostReader(system=System(tmp_path)))["chat"]
    assert (start["about"], start["figures"]) == (ABOUT, {"weights_gib": 18.2})
    (folder / "NO.json").write_text("{}")
    assert list(read_measured(HostReader(system=System(tmp_path)))) == ["chat"]


def test_what_the_host_gave_is_that_of_this_service_alone(tmp_path: Path) -> None:
    """A neighbour that loads later would be taken for it."""
    host = Host(tmp_path, measures=ABOUT)
    meminfo, turn = host.root / "proc/meminfo", Turn(host.root / "turn", "vllm")
    meminfo.parent.mkdir(parents=True, exist_ok=True)
    keeper = measured.Keeper(parse_config(json.dumps(host.raw)), host.root, turn)
    figures: dict[str, float] = {}

    def seen(available_gib: int) -> float:
        meminfo.write_text(f"MemTotal: {128 * 2**20} kB\nMemAvailable: {available_gib * 2**20} kB\n")
        keeper.looked = float("-inf")
        keeper.look(figures, {}, "i")
        return figures.get("host_gib", -1)

    assert turn.take()
    meminfo.write_text(f"MemTotal: {128 * 2**20} kB\nMemAvailable: {120 * 2**20} kB\n")
    keeper.begins()
    assert [seen(40), seen(36), seen(50)] == [80.0, 84.0, 84.0]
    turn.end()
    assert seen(35) == 85.0, "nobody else has loaded"
    assert Turn(host.root / "turn", "embed").take() and seen(10) == 85.0


def test_the_unit_keeps_what_its_start_took(tmp_path: Path) -> None:
    host = Host(tmp_path, measures=ABOUT)
    file = host.root / FOLDER.lstrip("/") / "vllm.json"
    file.parent.mkdir(parents=True)
    (host.root / "proc").mkdir(exist_ok=True)
    (host.root / "proc/meminfo").write_text("MemTotal:       4194304 kB\nMemAvailable:   2097152 kB\n")
    host.start().reaches("ready")
    wait_until(file.exists)
    (start,) = kept(file)
    assert start["about"]["model"] == "a/b" and set(start["seconds"]) >= {"starting", "formation"}
    assert start["figures"] == {
        **{"weights_gib": 65.9, "load_s": 41.1, "graphs_gib": 0.71},
        **{"host_gib": 0.0, "total_gib": 4.0},
    }
    assert json.loads(file.read_text()).keys() == {"starts"}
    assert host.stop() == 0
