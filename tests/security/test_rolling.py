"""Replicas are drained, restarted and put back in turn while clients keep asking: no request fails, no stream is cut.

Real NGINX and HAProxy on loopback, as the role gateway writes them, and `gb10-router` as it lies on the host. A replica
that is stopped dies at once, with all that it has begun: only the drain saves an answer.
"""

from __future__ import annotations

import asyncio
import ssl
import threading

import pytest

from tests.support import router_fleet
from tests.support.callers import Tally, keep_asking
from tests.support.router_fleet import KEY, Fleet

pytestmark = pytest.mark.skipif(router_fleet.MISSING, reason=router_fleet.WHY)
MODEL, CLIENTS = "Qwen/Qwen3-8B", 12


def roll(fleet: Fleet, rounds: int) -> None:
    """What a rollout does, host after host; in between the list of replicas is read again."""
    for _ in range(rounds):
        for spark in fleet.sparks:
            drained = fleet.router("drain", spark.name, "--wait", "60")
            assert drained.returncode == 0, drained.stdout + drained.stderr
            fleet.reload()
            spark.kill()
            spark.start(fleet.gap_s)
            assert fleet.router("ready", spark.name).returncode == 0
            fleet.await_state(spark.name, "ready")


def asked_while(fleet: Fleet, rounds: int, enough: int) -> Tally:
    """What became of the requests that were under way meanwhile."""
    tally = Tally()
    trusted = ssl.create_default_context(cafile=str(fleet.ca))
    asking = threading.Thread(
        target=lambda: asyncio.run(
            keep_asking(fleet.head.address, fleet.head.gateway_port, trusted, KEY, MODEL, CLIENTS, tally, enough)
        )
    )
    asking.start()
    try:
        roll(fleet, rounds)
    finally:
        tally.stop = True
        asking.join()
    return tally


@pytest.mark.parametrize(
    ("rounds", "enough"), [(1, 1000), pytest.param(4, 10000, marks=pytest.mark.long)], ids=["short", "whole"]
)
def test_no_request_is_lost_while_replicas_are_exchanged(
    rounds: int, enough: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with router_fleet.running({name: [MODEL] for name in ("spark-a", "spark-b", "spark-c")}) as fleet:
        tally = asked_while(fleet, rounds, enough)
    with capsys.disabled():
        print(f"\nrolling over 3 replicas, {rounds} times each: {tally}")
    assert (tally.failed, tally.cut) == (0, 0), tally.words[:5]
    assert tally.done >= enough
    assert tally.streamed > enough // 4
    assert all(tally.by_replica[spark.name] for spark in fleet.sparks)
