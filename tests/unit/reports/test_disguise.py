"""What a bundle says of its owner: nothing, and the same thing always in the same word."""

from __future__ import annotations

import time

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.disguise import REMOVED, Disguise

from tests.support.attacker import tally

HOME = "/home" + "/"  # no file of the project names a folder of somebody's


@pytest.fixture
def disguise() -> Disguise:
    return Disguise({"host": ["spark-a", "spark-ab"], "cluster": ["lab"], "user": ["jane"]})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("spark-ab waits for spark-a.corp.example, and SPARK-A", "host-2 waits for host-1, and host-1"),
        ("collab of lab: labs", "collab of cluster-1: labs"),
        ("192.0.2.11/24 and 192.0.2.12 and 198.51.100.7", "network-1.11/24 and network-1.12 and network-2.7"),
        ("it waits for 192.0.2.11. Fix", "it waits for network-1.11. Fix"),
        ("at 127.0.0.1:8000, 0.0.0.0, ::1, mask 255.255.255.0", "at 127.0.0.1:8000, 0.0.0.0, ::1, mask 255.255.255.0"),
        ("fe80::4ebb:47ff:fe00:1 by 4c:bb:47:00:00:01", "address6-1 by mac-1"),
        ("2026-11-28T12:34:56+0000 12:34:56 000f:01:00.0", "2026-11-28T12:34:56+0000 12:34:56 000f:01:00.0"),
        ("GPU-5b0a0a44-6a51-4b21-9a3c-2f60c3d0a001", "GPU-id-1"),
        ("Serial Number: 1423X99, serial=1423X99", "Serial Number: serial-1, serial=serial-1"),
        ("docker-ce 5:29.5.1-1~ubuntu.24.04~noble, 580.178.04, 6.17.0-1014-nvidia",) * 2,
        ("image sha256:" + "a1" * 32, "image sha256:" + "a1" * 32),
        ("key " + "a1" * 32, "key id-1"),
        ("Authorization: Bearer abc123456789", f"Authorization: Bearer {REMOVED}"),
        ("--api-key=sk-verysecret1 x", f"--api-key={REMOVED} x"),
        ("uses hf_abcdefghijkl", "uses key-1"),
        ("https://me:pa55@mirror.example/x", f"https://{REMOVED}@mirror.example/x"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nend", f"{REMOVED}\nend"),
        ("request cmpl-1: prompt: 'my illness is', params: x\nnext", f"request cmpl-1: prompt: {REMOVED}\nnext"),
        (f"mail jane.doe@corp.example of jane in {HOME}jane/x and {HOME}joe/y",
         f"mail mail-1 of user-1 in {HOME}user-1/x and {HOME}user-2/y"),
        ("generated 12345678 tokens, prompt throughput: 5.0 tokens/s",) * 2,
    ],
)  # fmt: skip
def test_a_text(disguise: Disguise, text: str, says: str) -> None:
    assert disguise.text(text) == says


def test_a_document(disguise: Disguise) -> None:
    document = {
        "spark-a": [{"address": "192.0.2.11", "vllm_api_key": "x", "serial": "A1", "machine_digest": "A1"}],
        "count": 3,
        "none": None,
        "again": ("192.0.2.11", "spark-a"),
        "tokens": "12",
        "gateway_keys": {"spark-a": "words that are no number", "more": ["open sesame"]},
        "flight_recorder_key": "open sesame",
    }
    assert disguise.value(document) == {
        "host-1": [
            {"address": "network-1.11", "vllm_api_key": REMOVED, "serial": "serial-1", "machine_digest": "serial-1"}
        ],
        "count": 3,
        "none": None,
        "again": ["network-1.11", "host-1"],
        "tokens": "12",
        "gateway_keys": {"host-1": REMOVED, "more": [REMOVED]},
        "flight_recorder_key": REMOVED,
    }


@pytest.mark.parametrize("word", ["z", "token=", "spark-a.", "01234567-", "text=", "://a:", "-----BEGIN ", "1.1.", ":"])
def test_the_time_grows_with_the_text_and_no_faster(disguise: Disguise, word: str) -> None:
    """A log is written by whom it is about. Each of these once took minutes, or may where a pattern starts anew."""
    text = word * (2**18 // len(word))
    began = time.process_time()
    disguise.text(text)
    took = time.process_time() - began
    tally("a text that a pattern follows again and again", 1, int(took > 20))
    assert took < 20
