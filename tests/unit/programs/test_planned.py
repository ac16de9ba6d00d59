"""gb10-planned: what it writes, and that each piece of work ends."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs import planned

TWICE: list[object] = ["collect", "collect"]
SETTINGS = {"planned": {"s": 3600, "after_s": 600}, "every_s": {"now": 15}}


@pytest.fixture(name="folder", autouse=True)
def fixture_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "metrics.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "planned").mkdir()
    monkeypatch.setattr(planned, "SETTINGS", tmp_path / "metrics.json")
    monkeypatch.setattr(planned, "FOLDER", tmp_path / "planned")
    return tmp_path / "planned"


def told(*argv: str) -> tuple[int, list[object]]:
    heard = list[object]()
    return planned.main(argv, lambda: heard.append("collect"), heard.append), heard


def test_work_has_an_end_that_comes_nearer_when_it_is_over(folder: Path) -> None:
    assert told("begin", "reboot") == (0, TWICE)
    until = planned.ends(folder)["reboot"]
    assert abs(until - time.time() - 3600) < 5
    assert told("end", "reboot") == (0, TWICE[:1])
    assert abs(planned.ends(folder)["reboot"] - time.time() - 600) < 5


@pytest.mark.parametrize(
    ("others", "waited_s"),
    [
        ({}, 17),
        ({"rollout": 3590}, 7),  # it began ten seconds ago, and Prometheus asks meanwhile
        ({"rollout": 2400, "service": 3599}, 0),
        ({"service": 500}, 17),  # over, or soon: a boot may last longer
        ({"rollout": 7000}, 17),  # of a clock that was wrong
    ],
)
def test_who_boots_waits_until_prometheus_knows(folder: Path, others: dict[str, int], waited_s: int) -> None:
    for word, left_s in others.items():
        (folder / word).write_text(f"{time.time() + left_s:.0f}\n")
    status, heard = told("begin", "reboot", "--seen")
    assert (status, heard[:2]) == (0, TWICE)
    (waited,) = heard[2:]
    assert isinstance(waited, float) and abs(waited - waited_s) < 2


def test_each_work_has_an_end_of_its_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told("begin", "rollout")
    told("begin", "reboot")
    told("end", "reboot")
    ends = planned.ends(folder)
    assert ends["rollout"] > ends["reboot"] + 2000
    (folder / "forgotten").write_text("1000\n")
    (folder / "garbage").write_text("soon\n")
    assert told("show") == (0, [])
    assert json.loads(capsys.readouterr().out) == ends


def test_what_was_not_begun_is_not_ended_and_what_is_over_goes(folder: Path) -> None:
    assert told("end", "rollout") == (0, ["collect"])
    assert planned.ends(folder) == {}
    (folder / "forgotten").write_text("1000\n")
    told("begin", "reboot")
    assert [path.name for path in folder.iterdir()] == ["reboot"]


@pytest.mark.parametrize("word", ["../x", "", "Reboot", ".new", "a" * 50])
def test_work_is_a_word(word: str) -> None:
    with pytest.raises(SystemExit) as ended:
        told("begin", word)
    assert ended.value.code == 2


def test_a_collector_that_does_not_come_leaves_it_to_the_timer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(argv: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(argv, 60)

    for fault in (late, lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError(2, "no", "systemctl"))):
        monkeypatch.setattr(subprocess, "run", fault)
        assert planned.main(["begin", "reboot"]) == 0
    assert list(planned.ends(folder)) == ["reboot"]


def test_an_end_that_only_a_wrong_clock_has_set_goes_with_the_next_work(folder: Path) -> None:
    (folder / "rollout").write_text("4102444800\n")
    told("begin", "reboot")
    assert list(planned.ends(folder)) == ["reboot"]


def test_a_time_without_an_end_is_none(folder: Path) -> None:
    (folder / "endless").write_text("9" * 5000)
    assert told("begin", "reboot")[0] == 0 and list(planned.ends(folder)) == ["reboot"]


def test_a_host_that_cannot_write_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.rmdir()
    assert told("begin", "reboot") == (1, [])
    assert "alerts do not wait" in capsys.readouterr().err
