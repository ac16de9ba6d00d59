"""What widens the container of vLLM: said to Docker with a consent, and refused by name without it."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest

from tests.support.vllm_plans import alone, paired

HOME = "/home/x"  # of somebody on the host
MOUNT = "/var/cache/gb10-triton:/root/.triton"
IO_URING = ["seccomp=unconfined", "apparmor=unconfined"]


def refused(**variables: Any) -> str:
    (text,) = alone(**variables).refusals
    return text


def said(argv: tuple[str, ...], option: str) -> list[str]:
    return [value for word, value in itertools.pairwise(argv) if word == option]


@pytest.mark.parametrize(
    ("variables", "option", "words"),
    [
        ({"vllm_mounts": [MOUNT], "vllm_allow_mounts": True}, "--volume", [MOUNT]),
        ({"vllm_mounts": [f"{MOUNT}:ro"], "vllm_allow_mounts": True}, "--volume", [f"{MOUNT}:ro"]),
        ({"vllm_security_options": IO_URING, "vllm_allow_security_options": True}, "--security-opt", IO_URING),
        ({"vllm_ulimits": {"stack": 67108864, "nofile": "1:2"}}, "--ulimit", ["nofile=1:2", "stack=67108864"]),
    ],
)  # fmt: skip
def test_it_reaches_docker_beside_what_the_role_says(variables: dict[str, Any], option: str, words: list[str]) -> None:
    before, after = said(alone().argv, option), said(alone(**variables).argv, option)
    assert [word for word in after if word not in before] == words
    assert [word for word in after if word not in words] == before, "what the role says stays"
    assert set(words) <= set(said(paired(**variables).argv, option))


def test_the_folders_of_the_host_are_made() -> None:
    assert alone(vllm_mounts=[MOUNT], vllm_allow_mounts=True).folders == ("/var/cache/gb10-triton",)
    assert alone().folders == ()


@pytest.mark.parametrize(
    ("variables", "consent"),
    [
        ({"vllm_mounts": [MOUNT]}, "vllm_allow_mounts"),
        ({"vllm_security_options": IO_URING}, "vllm_allow_security_options"),
    ],
)
def test_without_the_consent_it_is_refused_by_name(variables: dict[str, Any], consent: str) -> None:
    text = refused(**variables)
    assert next(iter(variables)) in text and f"set {consent} to true" in text
    assert alone(**variables, **{consent: True}).refusals == ()


@pytest.mark.parametrize(
    "mount",
    [
        "/a", "a:/b", "/a:b", "/a:/b:rw", "/a:/b:ro:x", "/a/../etc:/b", "/a/:/b", "/a:/b/", "/a:/b\n", "/a:", ":/b",
        "/:/b",
        "/etc/gb10-fleet:/b", "/etc:/b", "/run/docker.sock:/b", "/var/run:/b", "/dev:/b", "/root/.ssh:/b", "/home:/b",
        "/home/x:/b", "/var/lib/docker/volumes:/b", "/var/cache:/b", "/usr/local:/b", "/sys/class:/b", "/proc/1:/b",
        "/var/cache/gb10-vllm:/b", "/var/cache/gb10-vllm/huggingface:/b", "/var/cache/gb10-files:/b",
        "/var/spool/cron/crontabs:/b", "/var/lib/dpkg/info:/b", "/var/lib/systemd/linger:/b", "/var/lib/sudo:/b",
        "/var/lib/cloud/scripts:/b", "/var/backups:/b", "/var/log/journal:/b:ro", "/var/cache/debconf:/b:ro",
        "/home/x/.ssh:/b", "/home/x/.config/systemd:/b", "/snap/x:/b", "/opt/nvidia/spark-ota-check:/b", "/lib32:/b",
        "/a:/root/.cache", "/a:/root/.cache/huggingface/hub", "/a:/root/.cache/huggingface/hub/models--x",
        "/a:/usr/lib",
        "/a:/root", "/a:/gb10-ray-start", "/a:/proc",
    ],
)  # fmt: skip
def test_a_folder_that_is_not_ones_own_is_refused_with_the_consent_too(mount: str) -> None:
    assert "vllm_mounts" in refused(vllm_mounts=[mount], vllm_allow_mounts=True)


@pytest.mark.parametrize(
    "mount",
    [
        "/srv/models:/models:ro", "/mnt/models/llm:/models", "/a:/root/.cache/vllm", "/var/lib/models:/models",
        f"{HOME}/models:/models", f"{HOME}/.cache/triton:/triton", "/opt/models:/models", "/var/tmp/x:/x",
    ],
)  # fmt: skip
def test_a_folder_of_ones_own_is_taken(mount: str) -> None:
    assert alone(vllm_mounts=[mount], vllm_allow_mounts=True).refusals == ()


@pytest.mark.parametrize("option", ["no-new-privileges=false", "systempaths=unconfined", "seccomp", "seccomp=", "a b"])
def test_only_what_confines_the_calls_can_be_said(option: str) -> None:
    assert repr(option) in refused(vllm_security_options=[option], vllm_allow_security_options=True)


@pytest.mark.parametrize(("name", "value"), [("memlock", 1), ("files", 1), ("nofile", "many"), ("nofile", "1:2:3")])
def test_a_limit_is_one_of_dockers(name: str, value: Any) -> None:
    assert f"vllm_ulimits holds {name}: {value}" in refused(vllm_ulimits={name: value})


def test_the_context_that_fits_is_a_length() -> None:
    argv = alone(vllm_max_model_len=-1).argv
    assert said(argv, "--max-model-len") == ["auto"]
    assert "vllm_max_model_len is -2" in refused(vllm_max_model_len=-2)


@pytest.mark.parametrize("word", ["--api-k=sesame", "--hos", "--max_model", "--served"])
def test_a_shortened_flag_of_the_roles_own_is_refused_too(word: str) -> None:
    assert "which the role sets itself" in refused(vllm_extra_args=[word])
    assert "sesame" not in refused(vllm_extra_args=[word])


def test_a_separator_and_flags_of_others_are_no_short_forms() -> None:
    assert alone(vllm_extra_args=["--enforce-eager", "--max-num-seqs", "4"]).refusals == ()


def test_a_date_of_yaml_is_its_text() -> None:
    wish = {"method": "ngram", "tokens": 3, "further": {"since": datetime.date(2026, 1, 1)}}
    (config,) = said(alone(vllm_speculative=wish).argv, "--speculative-config")
    assert '"since": "2026-01-01"' in config
