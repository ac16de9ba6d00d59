"""`gb10 up` at a terminal: from machines that nothing has touched to an answer with a tool call, no file edited.

A pair from a laptop, whose cable is a real wire (no RDMA flows: ib_write_bw is a stand-in), and one Spark on itself.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gb10_fleet.up.cli import STEPS
from tests.fleet.fleet import Fleet
from tests.fleet.owner import ANSWERS, KEYS, PASSWORD, SET_UP, Owner, OwnerOnSpark

pytestmark = pytest.mark.lab

KILLED_AT = (
    "Apply the state of host", "Give the rails", "Fetch | Pull the image", "Close the cluster's ports",
    "Prove | Wait until the model",
)  # fmt: skip
CALL = {"name": "weather", "arguments": '{"city": "Paris"}'}


@pytest.fixture
def on_spark(cleared: Fleet, tmp_path: Path) -> Iterator[OwnerOnSpark]:
    host = cleared.hosts[0]
    owner = OwnerOnSpark(cleared, tmp_path, host)
    owner.begin([host], cable=False)
    owner.bring()
    yield owner
    owner.end([host])


@pytest.fixture
def laptop(cleared: Fleet, tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(cleared, tmp_path)
    owner.begin(cleared.hosts, cable=True)
    yield owner
    owner.end(cleared.hosts)


def test_a_spark_sets_itself_up(on_spark: OwnerOnSpark) -> None:
    """No address, no host key: a password and a yes."""
    status, screen = on_spark.up(until="starting the model")
    assert on_spark.asked == [PASSWORD, SET_UP] and status != 0, screen
    status, screen = on_spark.up()
    assert status == 0 and "How to use " in screen, screen
    assert on_spark.tool_call(on_spark.host) == CALL
    status, screen = on_spark.up()
    assert status == 0 and "Nothing to do" in screen and on_spark.asked == [PASSWORD], screen


@pytest.mark.long  # eight minutes; the other two show the rest
def test_a_pair_from_a_laptop(laptop: Owner) -> None:
    """Three questions; killed at five places, it goes on; then there is nothing to do, and every command finds it."""
    first, second = laptop.fleet.hosts
    addresses = [laptop.fleet.address(host) for host in (first, second)]
    asked, screens = [], []
    for place in KILLED_AT:
        status, screen = laptop.up(*addresses, until=STEPS[place])
        asked.append(laptop.asked)
        screens.append(screen)
        assert status != 0 and STEPS[place] in screen, screen
    assert asked == [[KEYS, PASSWORD, SET_UP], *[[PASSWORD]] * 4], asked
    screen = screens[0]
    assert f"a pair, {first} p0 to {second} p0" in screen, screen
    assert "and allow fabric_allow_activation" in screen and screen.count("GiB to download") == 3, screen
    status, screen = laptop.up()
    assert laptop.asked == [PASSWORD] and status == 0, screen
    # What was killed while it waited for the model may have ended by itself since.
    assert "Going on" in screens[1] and "How to use " in screen, screen
    assert laptop.tool_call(first) == CALL
    shown = laptop.gb10("ps", "-kK")
    assert shown.returncode == 0 and shown.stdout.count("ready") == 2, shown.stdout + shown.stderr
    status, screen = laptop.up()
    assert status == 0 and "Nothing to do" in screen, screen
    shared = laptop.gb10("share", "phone", "--yes", "--json", "-kK", "--", *laptop.words)
    assert shared.returncode == 0, shared.stdout + shared.stderr
    said = json.loads(shared.stdout)
    assert said["addresses"] == [f"https://{laptop.fleet.address(first)}:8443/v1"]
    assert models(said, "") == "401" and models(said, said["key"]) == "200"
    taken = laptop.gb10("share", "--revoke", "phone", "-kK", "--", *laptop.words)
    assert taken.returncode == 0 and "port 8443 is closed again" in taken.stdout, taken.stdout + taken.stderr
    assert models(said, said["key"]) == "000"


def models(said: dict[str, Any], key: str) -> str:
    """Ask the gateway for its models as that client would, by the file that it trusts; the HTTP status."""
    argv = ["curl", "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", said["trust"], "-H", "@-"]
    done = subprocess.run(
        [*argv, f"{said['addresses'][0]}/models"],
        input=f"Authorization: Bearer {key}",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.long  # two minutes; the other one says yes to the same screen
def test_a_no_changes_nothing(cleared: Fleet, tmp_path: Path) -> None:
    host = cleared.hosts[0]
    owner = Owner(cleared, tmp_path)
    owner.begin([host], cable=False)
    for wrong, said in (
        ({KEYS: "n"}, "nothing was changed"),
        ({PASSWORD: "wrong"}, "not let in"),
        ({SET_UP: "n"}, "nothing was changed"),
    ):
        status, screen = owner.up(cleared.address(host), answers={**ANSWERS, **wrong})
        assert status != 0 and said in screen, screen
    assert cleared.manifest(host) is None and not (tmp_path / "config").exists()
    owner.end([host])
