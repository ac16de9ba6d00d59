"""What a bundle says of its owner: nothing, and the same thing always in the same word."""

from __future__ import annotations

import time

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.disguise import REMOVED, Disguise

from tests.support.attacker import tally

HOME = "/home" + "/"  # no file of the project names a folder of somebody's


@pytest.fixture
def disguise() -> Disguise:
    names = {"host": ["spark-a", "spark-ab"], "cluster": ["lab"], "user": ["jane"], "domain": ["corp.example"]}
    return Disguise(names)


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
        ("Serial Number: 1423X99, product_serial=1423X99", "Serial Number: serial-1, product_serial=serial-1"),
        ("Serial Number:      S7XNNF0X123456, sn        : S7XNNF0X123456 of mn",
         "Serial Number:      serial-1, sn        : serial-1 of mn"),
        ("/dev/disk/by-id/nvme-SAMSUNG_MZALC4T0HBL1_S7XNNF0X123456-part2: x, wwid eui.0025385b21404321",
         "/dev/disk/by-id/disk-1 x, wwid disk-2"),
        (r"dev-disk-by\x2did-nvme\x2dSAMSUNG_S7XNNF0X123456.device wwn-0x5002538f42a1b2c3",
         r"dev-disk-by\x2did-disk-1 disk-2"),
        ("sn: none, product_serialx=abcdefg, USB device strings: Mfr=1, Product=2, SerialNumber=3",) * 2,
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
        ("IN=enP7s7 OUT= MAC=4c:bb:47:00:00:01:02:00:00:00:00:07:08:00 SRC=192.0.2.7 DST=192.0.2.11",
         "IN=enP7s7 OUT= MAC=mac-1:mac-2:08:00 SRC=network-1.7 DST=network-1.11"),
        ("4c:bb:47:00:00:01: up, enx4cbb47000001, mac:4C-BB-47-00-00-01, id 01:4c:bb:47:00:00:01",
         "mac-1: up, enxmac-1, mac:mac-1, id mac-2:01"),
        ("guid 4cbb:4703:0000:0001, from fe80::4ebb:47ff:fe00:1: x", "guid id-1, from address6-1: x"),
        ("::ffff:192.0.2.7:54321 of 192.0.2.11", "::ffff:network-1.7:54321 of network-1.11"),
        ("spark-ab.nip.io, 192.0.2.11.nip.io, 11.2.0.192.in-addr.arpa", "host-2, network-1.11.nip.io, arpa-1"),
        ("linux-generic 5.15.0.94.91, 28.45.4028",) * 2,
        ("spark-a-rail0 and gb10_spark-a of my-spark-ab, not spark-abc",
         "host-1-rail0 and gb10_host-1 of my-host-2, not spark-abc"),
        ("ntp.corp.example of corp.example and thecorp.example", "ntp.domain-1 of domain-1 and thecorp.example"),
        ("password=correcthorse", f"password={REMOVED}"),
        ("Authorization: Basic abcdefghijkl", f"Authorization: Basic {REMOVED}"),
        ("AWS_SECRET_ACCESS_KEY=abcdefghijkl AWS_ACCESS_KEY_ID=AKIAABCDEFGHIJKLMNOP",
         f"AWS_SECRET_ACCESS_KEY={REMOVED} AWS_ACCESS_KEY_ID={REMOVED}"),
        ("passphrase: hunter two", f"passphrase: {REMOVED} two"),
        ("github_pat_11ABCDEFG0abcdefgh, gho_abcdefghij12, eyJhbGciOi.eyJzdWIi.c2ln", "key-1, key-2, key-3"),
        ("GET https://cdn.example/x?Signature=ab~c&Key-Pair-Id=K2&part=3",
         f"GET https://cdn.example/x?Signature={REMOVED}&Key-Pair-Id={REMOVED}&part=3"),
        ("request chatcmpl-1: prompt: None, prompt_token_ids: [9, 8], lora: None",
         f"request chatcmpl-1: prompt: None, prompt_token_ids: {REMOVED}"),
        ("1 validation error, input_value='my illness', x", f"1 validation error, input_value: {REMOVED}"),
        (r'{"e": "no way to\n192.0.2.11 of\tspark-a\nhf_abcdefghijkl\u000aspark-ab"}',
         r'{"e": "no way to\nnetwork-1.11 of\thost-1\nkey-1\u000ahost-2"}'),
        ("GET /x?instance%3Dspark-a%3A9100%26at%3D192.0.2.11 \x1b[31m192.0.2.12\x1b[0m [1;36mspark-a",
         "GET /x?instance%3Dhost-1%3A9100%26at%3Dnetwork-1.11 \x1b[31mnetwork-1.12\x1b[0m [1;36mhost-1"),
        ("at a%3Dhf_abcdefghijkl, api_key%3Dabc and Authorization%3A%20Bearer%20abc123456789",
         f"at a%3Dkey-1, api_key%3D{REMOVED} and Authorization%3A{REMOVED}"),
        (r'"{\\\"api_key\\\": \\\"abc123456789\\\"}"', rf'"{{\\\"api_key\\\": {REMOVED}'),
        ("client_secret_key=abcdefghijkl secret_key: abcdefghijkl credentials=abcdefghijkl",
         f"client_secret_key={REMOVED} secret_key: {REMOVED} credentials={REMOVED}"),
        (r'request: "{\"messages\": [{\"content\": \"my illness\"}]}"', r'request: "{\"messages\"' f": {REMOVED}"),
        ('{"reasoning_content": "my illness"} x', f'{{"reasoning_content": {REMOVED}'),
        ("Generated response cmpl-1 (streaming delta): output: 'my illness', output_token_ids: [1]",
         f"Generated response cmpl-1 (streaming delta): {REMOVED}"),
        ("OCI runtime create failed, output: 'no such device', prompt%20tokens: 5, unrecognized arguments: --x",) * 2,
        ("tokens: 12, max_tokens=4096, token id 5, secrets are kept, key: value, password prompt",) * 2,
        ('a gb10_gateway[81]: 192.0.2.9 "laptop" "/v1/x" 200 12 B 0.3 s',
         'a gb10_gateway[81]: network-1.9 "client-1" "/v1/x" 200 12 B 0.3 s'),
        ('haproxy[9]: "qwen-8b" "gone-x" 200 8 B 30 ms and "q" "spark-a:asleep" -1 8 B 30 ms',
         'haproxy[9]: "qwen-8b" "host-3" 200 8 B 30 ms and "q" "host-1:asleep" -1 8 B 30 ms'),
        ("generated 12345678 tokens, prompt throughput: 5.0 tokens/s",) * 2,
    ],
)  # fmt: skip
def test_a_text(disguise: Disguise, text: str, says: str) -> None:
    assert disguise.text(text) == says


WHOSE = (
    *(
        "spark-a",
        "spark-a.corp.example",
        "ntp.corp.example",
        "192.0.2.11",
        "fe80::4ebb:47ff:fe00:1",
        "4c:bb:47:00:00:01",
    ),
    *("hf_abcdefghijkl", "jane.doe@corp.example", "5b0a0a44-6a51-4b21-9a3c-2f60c3d0a001", "a1" * 16, "jane", "lab"),
    *("enx4cbb47000001", "wwn-0x5002538f42a1b2c3", "eyJhbGciOi.eyJzdWIi.c2ln", "11.2.0.192.in-addr.arpa"),
)
ESCAPES = (*(rf"{slashes}{letter}" for slashes in ("\\", "\\\\", "\\" * 4) for letter in 'nrtbfv"/'),
           r"\u000a", r"\u001B", r"\x0a", r"\x1b", r"\x7f", "%0A", "%20", "%2f", "%3D", "%3a", "%26",
           "\x1b[0m", "\x1b[1;36m", r"\x1b[38;5;12m", "?[0;0m", "[31m")  # fmt: skip


def test_what_stands_behind_an_escape_is_known_too(disguise: Disguise) -> None:
    """The letter that ends an escape is no part of the word behind it: before, each of these stayed as it was."""
    tried = [
        (what, f"x{escape}{what}{behind}") for what in WHOSE for escape in ESCAPES for behind in ("", " y", r"\n", '"')
    ]
    stayed = [text for what, text in tried if what in disguise.text(text)]
    tally("what tells whose hosts these are, behind an escape", len(tried), len(stayed))
    assert not stayed, stayed[:9]
    assert all(disguise.text(f"x{escape}y") == f"x{escape}y" for escape in ESCAPES)


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


@pytest.mark.parametrize(
    "word",
    [
        "z",
        "token=",
        "spark-a.",
        "01234567-",
        "text=",
        "://a:",
        "-----BEGIN ",
        "1.1.",
        ":",
        "4c:",
        "?key=",
        "a.",
        "corp.",
        "secret_",
    ],
)
def test_the_time_grows_with_the_text_and_no_faster(disguise: Disguise, word: str) -> None:
    """A log is written by whom it is about. Each of these once took minutes, or may where a pattern starts anew."""
    text = word * (2**18 // len(word))
    began = time.process_time()
    disguise.text(text)
    took = time.process_time() - began
    tally("a text that a pattern follows again and again", 1, int(took > 20))
    assert took < 20
