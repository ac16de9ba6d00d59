"""Two real services on one host, replicas on two, gateways and the router in front, OpenAI's own library as the client.

The Sparks are two addresses of the loopback. NGINX, HAProxy and `gb10-router` are real and work with the files that the
role gateway writes; each service is a unit around a real vLLM. Needs `GB10_REAL_VLLM`, and `GB10_OPENAI` for the folder
with the Python of an environment that has the extra `openai`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import services
from ansible_collections.gb10.fleet.plugins.module_utils.serving.canary import QUESTIONS
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in

from tests.realvllm import fleet as real_fleet
from tests.realvllm.fleet import CHAT, CLIENT, EMBED, Caller, RealSpark, Watch, once
from tests.support import router_fleet
from tests.support.router_fleet import Fleet

pytestmark = [
    pytest.mark.skipif(router_fleet.MISSING, reason=router_fleet.WHY),
    pytest.mark.skipif(not (CLIENT / "python").is_file(), reason="GB10_OPENAI names no folder with a Python"),
]
PROMPTS = [asked.prompt for asked in QUESTIONS]
Services = tuple[Fleet, Watch]


@pytest.fixture(name="both", scope="module")
def fixture_both(taught: Callable[[str], Path], quiet: None) -> Iterator[Services]:
    with real_fleet.running({"spark-a": [CHAT, EMBED], "spark-b": [CHAT]}, taught) as running:
        yield running


def real(fleet: Fleet, name: str) -> RealSpark:
    spark = fleet.spark(name)
    assert isinstance(spark, RealSpark)
    return spark


def said_to(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}")


def test_two_loads_never_meet_on_a_host(both: Services) -> None:
    _, watch = both
    assert {frozenset({CHAT}), frozenset({EMBED})} <= watch.together, "both were seen"
    assert frozenset({CHAT, EMBED}) not in watch.together
    assert [*watch.waited.values()] == ["another_loads"], watch.waited


@pytest.mark.parametrize(
    ("host", "model", "names"),
    [
        ("spark-a", CHAT, [asked.name for asked in QUESTIONS]),
        ("spark-b", CHAT, [asked.name for asked in QUESTIONS]),
        ("spark-a", EMBED, ["embedding"]),
    ],
)
def test_each_service_passes_the_proof_of_its_kind(both: Services, host: str, model: str, names: list[str]) -> None:
    proof = real(both[0], host).proof(model)
    assert (proof.verdict, proof.served_models) == ("serving", (model,)), proof
    assert [answer["name"] for answer in proof.answers] == names


def test_the_openai_library_reaches_each_service_by_the_name_of_its_model(both: Services) -> None:
    fleet, _ = both
    before = real_fleet.requests(fleet)
    said = once(
        "api = client(said)\n"
        "chat = api.chat.completions.create(model=said['chat'][0], temperature=0, max_tokens=64,"
        " messages=[{'role': 'user', 'content': said['chat'][1][0]}])\n"
        "vectors = api.embeddings.create(model=said['embed'], input=['one', 'two'])\n"
        "print(json.dumps({'models': sorted(m.id for m in api.models.list()), 'chat': [chat.model,"
        " chat.choices[0].message.content], 'vectors': [vectors.model, [len(v.embedding) for v in vectors.data]]}))",
        real_fleet.settings(fleet, PROMPTS),
    )
    assert said == {"models": [CHAT, EMBED], "chat": [CHAT, "42"], "vectors": [EMBED, [128, 128]]}
    found = real_fleet.served_between(before, real_fleet.requests(fleet))
    assert found["tiny-embed on spark-a"] == 1
    assert found["tiny-chat on spark-a"] + found["tiny-chat on spark-b"] == 1


REFUSED = """
try:
    api = client(said)
    api.chat.completions.create(model=said['chat'][0], messages=[{'role': 'user', 'content': 'a'}], max_tokens=1)
    print(json.dumps('answered'))
except openai.OpenAIError as error:
    print(json.dumps([type(error).__name__, repr(error.__cause__ or error)]))
"""


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ("key", "AuthenticationError", "a key is needed"),
        ("model", "NotFoundError", f"there are {CHAT}, {EMBED}"),
        ("ca", "APIConnectionError", "CERTIFICATE_VERIFY_FAILED"),
    ],
)
def test_the_library_is_told_what_is_wrong(both: Services, wrong: str, error: str, text: str) -> None:
    """TLS and the key are looked at, by both sides."""
    fleet, _ = both
    said = real_fleet.settings(fleet, PROMPTS)
    if wrong == "ca":
        said["ca"] = None
    elif wrong == "key":
        said["key"] = "a-key-that-nobody-was-given-0123456789"
    else:
        said["chat"][0] = "tiny/none"
    found = once(REFUSED, said)
    assert found[0] == error and text in found[1], found


def roll(fleet: Fleet, times: dict[str, float]) -> None:
    """Each replica of the chat model in turn, as a wish and a rollout do it: drain, stop, start, prove, rejoin."""
    for name in ("spark-a", "spark-b"):
        spark = real(fleet, name)
        real_fleet.withdraw(fleet, name, CHAT)
        began = time.monotonic()
        spark.stop(CHAT)
        spark.again(CHAT)
        times[name] = round(time.monotonic() - began, 1)
        assert spark.proof(CHAT, QUESTIONS[:1]).verdict == "serving"
        real_fleet.rejoin(fleet, name, CHAT)


def test_a_rolling_restart_under_load_loses_no_request(both: Services, capsys: pytest.CaptureFixture[str]) -> None:
    fleet, _ = both
    embed, before = real(fleet, "spark-a").lives[EMBED].pid, real_fleet.requests(fleet)
    caller, times = Caller(real_fleet.settings(fleet, PROMPTS)), dict[str, float]()
    try:
        roll(fleet, times)
    finally:
        tally = caller.end()
    served = real_fleet.served_between(before, real_fleet.requests(fleet))
    said_to(capsys, f"rolling restart of two replicas: {tally}; served: {served}; stop to ready: {times} s")
    assert (tally["failed"], tally["cut"]) == (0, 0), tally["words"]
    assert min(tally["whole"], tally["streamed"], tally["embedded"]) > 0
    asked = tally["whole"] + tally["streamed"] + tally["embedded"]
    assert sum(served.values()) == asked, "each request has reached one replica, and none a second one"
    assert served["tiny-embed on spark-a"] == tally["embedded"] and min(served.values()) > 0
    assert real(fleet, "spark-a").lives[EMBED].pid == embed, "its neighbour was not started again"


WAITED = """
api, errors = client(said), []
began = time.monotonic()
api.embeddings.create(model=said['embed'], input='a')
gap, last = 0.0, time.monotonic()
while time.monotonic() - began < 1500:
    try:
        api.embeddings.create(model=said['embed'], input='a')
    except openai.APIStatusError as error:
        errors.append([error.status_code, error.response.headers.get('retry-after')])
        time.sleep(0.5)
        continue
    gap, last = max(gap, time.monotonic() - last), time.monotonic()
    if errors:
        break
    time.sleep(0.1)
print(json.dumps({'gap': gap, 'errors': errors}))
"""


def test_the_time_without_service_of_a_single_replica_is_its_load(
    both: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    """Meanwhile its clients hear that it is away and when to ask again, and nothing breaks off."""
    fleet, _ = both
    spark, found = real(fleet, "spark-a"), dict[str, Any]()
    asking = threading.Thread(target=lambda: found.update(once(WAITED, real_fleet.settings(fleet, PROMPTS))))
    before = real_fleet.requests(fleet)
    asking.start()
    while real_fleet.served_between(before, real_fleet.requests(fleet))["tiny-embed on spark-a"] < 2:
        time.sleep(0.2)
    real_fleet.withdraw(fleet, "spark-a", EMBED)
    spark.stop(EMBED)
    spark.again(EMBED)
    real_fleet.rejoin(fleet, "spark-a", EMBED)
    asking.join()
    load_s = services.load_seconds(document_in(spark.lives[EMBED].path)["phases"])
    said_to(capsys, f"without service {found['gap']:.1f} s, the load took {load_s} s; {len(found['errors'])} times 503")
    assert {tuple(error) for error in found["errors"]} == {(503, "5")}
    assert load_s is not None and found["gap"] >= load_s


def test_without_the_drain_a_stop_is_noticed(both: Services, capsys: pytest.CaptureFixture[str]) -> None:
    """So what the tests above count can be seen at all. The last test: the replica stays down."""
    fleet, _ = both
    caller = Caller(real_fleet.settings(fleet, PROMPTS, clients=["stream"] * 8))  # one is under way at any moment
    real(fleet, "spark-b").stop(CHAT)
    tally = caller.end()
    said_to(capsys, f"a stop without the drain: {tally}")
    assert tally["failed"] + tally["cut"] > 0, tally
