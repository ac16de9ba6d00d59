"""The playbook benchmark in real ansible-playbook runs: simulated server, its own client, and GPUs as they are set."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.benchmark_play import KEY, document, gpu, plays, port, run
from tests.support.plays import Plays

__all__ = ["plays", "port"]  # fixtures


def test_a_pair_is_measured_judged_and_written_down(plays: Plays, port: int) -> None:
    code, output = run(plays, port, "-vvv")
    assert code == 0, output
    found = document(plays)
    assert found["verdict"] == "no_expectation"
    cluster = found["clusters"][0]
    assert cluster["hosts"] == ["spark-a", "spark-b"]
    assert cluster["conditions"]["quantization"] == "mxfp4"
    assert cluster["conditions"]["version"] == "0.19.0"
    assert [step["concurrency"] for step in cluster["steps"]] == [1, 2]
    for step in cluster["steps"]:
        assert 0 < step["tokens_per_s"] <= 50
        assert {host: (one["clock_mhz"], one["driver"]) for host, one in step["gpus"].items()} == {
            "spark-a": (2418, "580.142"), "spark-b": (2418, "580.142"),
        }  # fmt: skip
    # Of two prompts of 64 tokens the second finds the 32 that both have, unless both came in the same moment.
    assert cluster["steps"][0]["prefix_hit_rate"] == 0
    assert cluster["steps"][1]["prefix_hit_rate"] in (0, 0.25)
    argv = (plays.tmp_path / "argv").read_text()
    assert "bench serve" in argv and KEY not in argv
    assert KEY not in output
    assert "Requests at once: 2" in output
    assert "Requests at once: 2 (step 2 of 2, 2 requests)" in output
    said = [line for line in output.splitlines() if "at once:" in line and "tok/s in sum" in line]
    assert len(said) == 2 and "step 1 of 2, 1 at once: " in said[0] and "step 2 of 2, 2 at once: " in said[1]


def test_a_throttled_gpu_of_another_rank_is_named(plays: Plays, port: int) -> None:
    gpu(plays, "b", "507, 12.00, 52, 96, 0x0000000000000000, 580.142")
    code, output = run(plays, port, benchmark_concurrency=[1], gb10_evidence_directory="proof")
    assert code != 0
    found = json.loads((plays.tmp_path / "proof/benchmark/latest/benchmark.json").read_text())
    step = found["clusters"][0]["steps"][0]
    assert found["verdict"] == "power_fault"
    assert step["text"].startswith("spark-b: 507 MHz, 12 W, 52 C, no reason given")
    assert step["way_out"].startswith("power off spark-b,")
    assert "power_fault" in output and "power off spark-b," in output


def test_siblings_are_clusters_of_the_inventory_of_today(plays: Plays, port: int) -> None:
    """Also those that the run is not limited to. The folder has results of one that is there no more."""
    run(plays, port, benchmark_concurrency=[1])
    was, hosts = document(plays), {"far": {}, "unread": {"gb10_cluster": "{{ nothing_of_that_name }}"}}
    for number, name in enumerate(("far", "gone", "spark-a")):  # the last one is a host, and by now a part of a cluster
        folder = plays.tmp_path / f"evidence/benchmark/0000-{number}"
        folder.mkdir()
        (folder / "benchmark.json").write_text(json.dumps(was | {"clusters": [was["clusters"][0] | {"name": name}]}))
    (plays.tmp_path / "more.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    code, output = run(plays, port, "-i", "more.yml", "--limit", "sparks", benchmark_concurrency=[1])
    assert code == 0, output
    assert list(document(plays)["clusters"][0]["steps"][0]["siblings"]["tokens_per_s"]) == ["far"]


def test_check_mode_says_what_it_would_do_and_loads_nothing(plays: Plays, port: int) -> None:
    code, output = run(plays, port, "--check")
    assert code == 0, output
    assert "would answer 3 requests" in output
    assert not (plays.tmp_path / "argv").exists()
    assert not (plays.tmp_path / "evidence").exists()


WRONG = {
    "benchmark_concurrency": [1, 0],
    **dict.fromkeys(["benchmark_prompts", "benchmark_input_tokens", "benchmark_output_tokens", "benchmark_timeout"], 0),
}


def test_every_wrong_number_is_named(plays: Plays, port: int) -> None:
    code, output = run(plays, port, **WRONG, gb10_roles=["fabric"])
    assert code != 0
    for name, value in WRONG.items():
        assert f"{name} is {value}; " in output
    assert "gb10_roles has no vllm" in output


@pytest.mark.parametrize(
    ("variables", "args", "said"),
    [
        ({"benchmark_prompts": "many"}, (), "benchmark_prompts"),
        ({"vllm_max_model_len": 70}, (), "more than vllm_max_model_len, 70"),
        ({}, ("--limit", "spark-a"), "add spark-b to --limit"),
        ({"vllm_port": 1}, (), "not_listening"),
        ({"vllm_served_model_name": "other"}, (), "wrong_model"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    plays: Plays, port: int, variables: dict[str, Any], args: tuple[str, ...], said: str
) -> None:
    code, output = run(plays, port, *args, **variables)
    assert code != 0
    assert said in output
    assert not (plays.tmp_path / "argv").exists()
