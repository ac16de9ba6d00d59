"""Real services on two hosts of the lab, as our roles put them there, and OpenAI's own library as the client.

Units, gateways, NGINX, HAProxy and `gb10-router` are those of the roles, under a real systemd; `gb10 rollout`, `stop`
and `start` are the commands. In Docker's place units of systemd run a real vLLM. Needs root, `GB10_REAL_VLLM`, and
`GB10_OPENAI` for the folder with the Python of an environment that has the extra `openai`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.realvllm import fleet as real_fleet
from tests.realvllm.fleet import CHAT, CLIENT, EMBED, Caller, answered, once
from tests.realvllm.lab_fleet import RealFleet

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED with a real vLLM: the lab needs root"),
    pytest.mark.skipif(not (CLIENT / "python").is_file(), reason="GB10_OPENAI names no folder with a Python"),
    pytest.mark.lab,
]
LEAST = 10_000  # requests of the whole run
Counts = dict[str, int]


@pytest.fixture(name="lab", scope="module")
def fixture_lab(taught: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFleet]:
    lab = RealFleet(tmp_path_factory.mktemp("lab"), taught)
    try:
        lab.up()
        lab.watch()
        assert lab.deploy().rc == 0
        yield lab
    finally:
        lab.down()


@pytest.fixture(name="tallies", scope="module")
def fixture_tallies() -> list[Counts]:
    """What became of all requests under load, test by test."""
    return []


def said_to(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}")


def loads_never_met(lab: RealFleet) -> None:
    together, waits = lab.loads()
    assert {frozenset({"chat"}), frozenset({"embed"})} <= together, "both were seen to load"
    assert frozenset({"chat", "embed"}) not in together
    assert "another_loads" in waits


def test_two_starts_of_one_host_do_not_meet(lab: RealFleet) -> None:
    loads_never_met(lab)


def test_one_address_has_both_models_and_all_replicas(lab: RealFleet) -> None:
    lab.all_ready()
    assert {(each["model"], each["host"]) for each in lab.show()} == {
        *(("tiny-chat", host) for host in lab.hosts),
        ("tiny-embed", lab.head),
    }
    before = real_fleet.requests(lab)
    said = once(
        "api = client(said)\n"
        "def ask(**more):\n"
        "    return api.chat.completions.create(model=said['chat'][0], temperature=0,"
        " messages=[{'role': 'user', 'content': said['chat'][1][0]}], **more)\n"
        "whole = ask(max_tokens=64).choices[0].message.content\n"
        "parts = [part.choices[0].delta.content or '' for part in ask(max_tokens=64, stream=True) if part.choices]\n"
        "vectors = api.embeddings.create(model=said['embed'], input=['one', 'two'])\n"
        "print(json.dumps({'models': sorted(m.id for m in api.models.list()), 'whole': whole,"
        " 'streamed': ''.join(parts), 'vectors': [len(v.embedding) for v in vectors.data]}))",
        lab.asked(),
    )
    assert said == {"models": [CHAT, EMBED], "whole": "42", "streamed": "42", "vectors": [128, 128]}
    served = real_fleet.served_between(before, real_fleet.requests(lab))
    assert served.pop(f"tiny-embed on {lab.head}") == 1 and sum(served.values()) == 2


def test_a_stop_of_one_replica_loses_no_request_and_leaves_its_neighbour(
    lab: RealFleet, tallies: list[Counts], capsys: pytest.CaptureFixture[str]
) -> None:
    """`gb10 stop`, then `gb10 start`, while all kinds of requests come."""
    lab.all_ready()
    before, neighbour = real_fleet.requests(lab), lab.started(lab.head, "embed")
    clients = ["stream", "stream", *["whole"] * 4, *["embed"] * 2]
    caller = Caller(lab.asked(clients=clients))
    try:
        stopped = lab.gb10("stop", "chat", "--limit", lab.head, "--yes")
        state, at_stop = lab.state(CHAT, lab.head), real_fleet.requests(lab)
        begun = lab.gb10("start", "chat", "--limit", lab.head, "--yes", "--prove")
        lab.all_ready()
    finally:
        tally = caller.end()
    served = real_fleet.served_between(before, real_fleet.requests(lab))
    tallies.append(tally)
    said_to(capsys, f"stop and start of a replica: {tally}; served: {served}")
    assert (stopped.returncode, begun.returncode) == (0, 0)
    assert state != "ready" and at_stop["tiny-chat", lab.hosts[1]] > before["tiny-chat", lab.hosts[1]]
    assert (tally["failed"], tally["cut"]) == (0, 0), tally["words"]
    assert sum(served.values()) == answered(tally) and served[f"tiny-embed on {lab.head}"] == tally["embedded"] > 0
    assert min(tally["whole"], tally["streamed"]) > 0
    assert lab.started(lab.head, "embed") == neighbour, "its neighbour was not started again"


def test_a_rollout_over_both_replicas_loses_no_request(
    lab: RealFleet, tallies: list[Counts], capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed setting, by `gb10 rollout`. The last requests of the run come here."""
    lab.all_ready()
    # A rollout drains a host as a whole, so nobody asks for vectors: they have one replica.
    before = real_fleet.requests(lab)
    started = {host: lab.started(host, "chat") for host in lab.hosts}
    lab.at_once = 12
    lab.write()
    least = LEAST - sum(answered(tally) for tally in tallies)
    caller = Caller(lab.asked(clients=["stream", "stream", *["whole"] * 6], least=least))
    try:
        done = lab.rollout()
    finally:
        tally = caller.end()
    served = real_fleet.served_between(before, real_fleet.requests(lab))
    total = sum(answered(each) for each in [*tallies, tally])
    said_to(capsys, f"rollout of two replicas: {tally}; served: {served}; requests of the whole run: {total}")
    assert done.returncode == 0 and json.loads(done.stdout)["outcome"] == "done"
    assert all(lab.started(host, "chat") != started[host] for host in lab.hosts), "each has been started anew"
    assert (tally["failed"], tally["cut"]) == (0, 0), tally["words"]
    assert min(tally["whole"], tally["streamed"]) > 0
    of_chat = [served[f"tiny-chat on {host}"] for host in lab.hosts]
    assert sum(of_chat) == answered(tally), "each request has reached one replica, and none a second one"
    assert min(of_chat) > 0
    loads_never_met(lab)
    assert total >= LEAST


def test_an_engine_that_is_killed_is_noticed(lab: RealFleet, capsys: pytest.CaptureFixture[str]) -> None:
    """So what the tests above count can be seen at all. The last test: the replica stays down.

    Not by a stop: between the closed door and the signal by Docker's stand-in, a stream of that model comes to its end.
    """
    lab.all_ready()
    caller = Caller(lab.asked(clients=["stream"] * 8, lengths=[96]))  # one is under way at any moment
    lab.shell(lab.hosts[1], "systemctl kill --signal=KILL container-gb10-vllm-chat.service")
    tally = caller.end()
    said_to(capsys, f"an engine that is killed: {tally}")
    assert tally["failed"] + tally["cut"] > 0, tally
