"""What the roles would hand to the engine, rendered as the controller renders it, without a host."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.programs import ray_start
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import config as unit_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import status
from ansible_collections.gb10.fleet.plugins.module_utils.system import service_failures as failures
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import serving_rules

from tests.support.fake_host import FakeHost
from tests.support.role_documents import content, declared, facts, rails, rendered
from tests.support.services import only_service

ROOT = Path(__file__).parents[3]
DIGEST = "registry.example/vllm@sha256:" + "0" * 64
PAIR = ("spark-a", "spark-b")


def paired(
    role: str, host: str = "spark-a", peer_says: Mapping[str, Any] | None = None, cable: str = "pair", **variables: Any
) -> Rendered:
    """The document of a role on one of two cabled Sparks, which say the same unless told otherwise."""
    (peer,) = set(PAIR) - {host}
    said = {"fabric_topology": cable} | variables
    return render(
        role,
        View(host, facts(), said, PAIR, peers={peer: facts()}, given={peer: said | dict(peer_says or {})}),
    )


def vllm(host: str = "spark-a", **variables: Any) -> Rendered:
    return rendered("vllm", host, **({"vllm_image": DIGEST, "vllm_model": "openai/gpt-oss-120b"} | variables))


def vllm_pair(host: str = "spark-a", **variables: Any) -> Rendered:
    return paired("vllm", host, **({"vllm_image": DIGEST, "vllm_model": "openai/gpt-oss-120b"} | variables))


TOKEN = "0123456789abcdef" * 2
NGC_WITH_RAY = "nvcr.io/nvidia/vllm:26.04-py3"
RAY: dict[str, Any] = {"vllm_executor": "ray", "vllm_ray_token": TOKEN}


def unit(document: Rendered) -> str:
    return content(document, "/etc/systemd/system/gb10-vllm.service")


def settings(document: Rendered) -> dict[str, Any]:
    """What the unit's program reads."""
    found: dict[str, Any] = json.loads(content(document, "/etc/gb10-fleet/vllm.json"))
    return found


def command(document: Rendered) -> list[str]:
    """The command line that the unit runs."""
    words: list[str] = settings(document)["argv"]
    return words


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_sound_inputs_are_not_refused() -> None:
    for document in (vllm(), vllm_pair(), rendered("driver"), rendered("docker"), rendered("container_toolkit")):
        assert document.refusals == []


REFUSED_DIRECTORIES = [
    "models", "", "/", "/home", "/home/spark", "/root", "/tmp", "/var", "/etc", "/usr",
    "/usr/", "//etc", "/srv/../etc", "/srv/a:b", "/srv/models\n",
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"vllm_model": ""}, "Name the Hugging Face id"),
        ({"vllm_model": "a/b\nExecStartPre=/bin/false"}, "Name the Hugging Face id"),
        ({"vllm_model": "a/b\n"}, "Name the Hugging Face id"),
        ({"vllm_model": "--host=0.0.0.0"}, "Name the Hugging Face id"),
        *(({"vllm_model": model}, "no id of the hub") for model in ("a/b:Q4_K", "a/b/c", "a/../b")),
        *(({"vllm_model_revision": name}, "Name a branch") for name in ("refs/pr/1", "a b", "-x", "main\n")),
        ({"vllm_environment": {"HF_HOME": "/data"}}, "vllm_environment sets HF_HOME"),
        ({"vllm_image": "vllm/vllm-openai:latest"}, "names no digest"),
        ({"vllm_image": "vllm/vllm-openai:latest", "vllm_allow_tag": "false"}, "names no digest"),
        ({"vllm_image": DIGEST + "\n"}, "incomplete digest"),
        ({"vllm_image": "nvcr.io/nvidia/vllm@sha256:...", "vllm_allow_tag": True}, "incomplete digest"),
        ({"vllm_gpu_memory_utilization": 0.95}, "at most 0.9"),
        ({"vllm_host": "0.0.0.0"}, "role gateway"),  # noqa: S104
        ({"vllm_extra_args": ["--api-key=x"]}, "--api-key"),
        ({"vllm_extra_args": ["--api_key", "x"]}, "--api-key"),
        *(({"vllm_extra_args": [flag]}, "the role sets itself") for flag in ("-tp", "-tp=2", "-pp", "-n", "-n2", "-r")),
        ({"vllm_extra_args": ["a\nExecStartPre=/bin/false"]}, "line break"),
        ({"vllm_environment": {"A": "x\ny"}}, "line break"),
        *(({"vllm_environment": {name: "x"}}, "secrets go into") for name in ("HF_TOKEN", "token", "S3_APIKEY_ID")),
        ({"vllm_environment": {"A B": "x"}}, "Names are letters"),
        (
            {"vllm_environment": {"HTTPS_PROXY": "http://me:sesame@proxy:3128"}},
            "HTTPS_PROXY of vllm_environment holds a password",
        ),
        ({"vllm_extra_args": ["--otlp-traces-endpoint=http://me:it@trace:4317"]}, "vllm_extra_args holds a password"),
        ({"vllm_tensor_parallel_size": 3}, "does not divide"),
        *(
            ({name: port}, "a port of its own")
            for name in ("vllm_join_port", "vllm_transfer_port", "vllm_master_port")
            for port in (0, 8000, 65536)
        ),
        ({"vllm_join_port": 29501}, "a port of its own"),
        ({"vllm_transfer_port": 29511}, "a port of its own"),
        (RAY | {"vllm_ray_port": 29502}, "a port of its own"),
        (RAY | {"vllm_join_port": 6381}, "6381, of vllm_port, "),
        ({"vllm_executor": "uni"}, "value of vllm_executor must be one of: mp, ray, got: uni"),
        *(
            ({"vllm_executor": "ray", "vllm_ray_token": bad}, "`openssl rand -hex 32`")
            for bad in ("", "short", "blank " * 8, TOKEN + "\n")
        ),
        (RAY | {"vllm_allow_tag": True, "vllm_image": "nvcr.io/nvidia/vllm:26.05-py3"}, "rule ray_missing"),
        *((RAY | ports, "one of Ray's own: 6380, ") for ports in ({"vllm_ray_port": 6380}, {"vllm_port": "10050"})),
        ({"vllm_api_key": "a\nB=c"}, "line break"),
        ({"vllm_api_key": "open sesame"}, "without blanks"),
        ({"vllm_huggingface_token": "hf_sésame"}, "without blanks"),
        *(({"vllm_cache_directory": path}, "directory of its own") for path in REFUSED_DIRECTORIES),
    ],
)
def test_wrong_inputs_are_refused_with_the_way_out(given: dict[str, Any], says: str) -> None:
    document = vllm_pair(**given)
    (found,) = document.refusals
    assert says in found
    assert document.resources == []


@pytest.mark.parametrize(
    "given",
    [
        {"vllm_environment": {"TOKENIZERS_PARALLELISM": "false", "VLLM_MAX_TOKENS": 1}},
        {"vllm_extra_args": ["-q", "mxfp4", "-dp=2", "--chat-template", "a_b"]},
        {"vllm_cache_directory": "/home/spark/.cache/gb10"},
        {"vllm_cache_directory": "/data"},
        {"vllm_model": "a/b:Q4_K", "vllm_environment": {"HF_HOME": "/data"}, "vllm_fetch": "false"},
        {"vllm_model_revision": "0" * 40},
        {"vllm_host": "::", "vllm_api_key": "!sesame~"},
        {"vllm_gpu_memory_utilization": "0.85", "vllm_tensor_parallel_size": "1"},
        RAY,
        *(
            RAY | {"vllm_allow_tag": True, "vllm_image": image}
            for image in (
                "nvcr.io/nvidia/vllm:26.04-py3",
                "vllm/vllm-openai:v0.17.1",
                "vllm-node",
                "registry.example/mine:1",
            )
        ),
    ],
)
def test_what_only_looks_wrong_is_not_refused(given: dict[str, Any]) -> None:
    assert vllm_pair(**given).refusals == []


def test_a_tag_needs_consent() -> None:
    tag = "vllm/vllm-openai:v0.19.0"
    for consent in (True, "true", "yes"):
        assert vllm(vllm_image=tag, vllm_allow_tag=consent).refusals == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("vllm_model", "a/c"),
        ("vllm_image", "other"),
        ("vllm_extra_args", ["--max-num-seqs", "4"]),
        ("vllm_tensor_parallel_size", 1),
        ("vllm_master_port", 29502),
        ("vllm_join_port", 29512),
        ("vllm_executor", "ray"),
        ("vllm_ray_port", 6500),
        ("vllm_ray_token", TOKEN),
        ("vllm_max_model_len", 4096),
        ("vllm_served_model_name", "b"),
        ("vllm_gpu_memory_utilization", 0.7),
    ],
)
def test_hosts_of_a_cluster_must_agree_and_what_differs_is_named(variable: str, value: Any) -> None:
    (found,) = vllm_pair(peer_says={variable: value}).refusals
    assert f"do not agree on {variable}. " in found


def test_a_default_that_one_host_spells_out_is_no_difference() -> None:
    assert vllm_pair(peer_says={"vllm_max_model_len": 0, "vllm_extra_args": []}).refusals == []


def test_a_cluster_without_cables_is_refused() -> None:
    (found,) = vllm_pair(cable="none").refusals
    assert "2 hosts and fabric_topology none" in found


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),  # noqa: S104
        ("::", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
        ("2001:db8::7", "http://[2001:db8::7]:8000"),
        ("spark-a.example", "http://spark-a.example:8000"),
    ],
)
def test_an_ipv6_address_stands_in_brackets_in_a_url(host: str, url: str) -> None:
    """The proof asks there."""
    assert only_service(View("spark-a", facts(), {"vllm_host": host})).url == url


def test_the_cache_directory_is_stated_without_owner_and_mode() -> None:
    document = vllm(vllm_cache_directory="/data/models")
    not_given = {"mode": None, "with_files": None, "with_all": None}
    assert declared(document, "file", "/data/models") == {"file": "/data/models", "state": "directory", **not_given}


def test_a_service_of_a_later_layout_rests_and_no_other_unit_says_so() -> None:
    several = {name: {"model": f"a/{name}", "port": 8000 + place} for place, name in enumerate(("chat", "big", "own"))}
    document = rendered(
        "vllm",
        vllm_image=DIGEST,
        vllm_services=several,
        vllm_gpu_memory_utilization=0.3,
        gb10_layouts={"split": ["chat"], "cluster": ["big"]},
    )
    assert document.refusals == []
    resting = {each["unit"]: each.get("resting") for each in document.resources if "unit" in each}
    assert resting == {"gb10-vllm-chat.service": False, "gb10-vllm-big.service": True, "gb10-vllm-own.service": None}


def test_the_secrets_are_one_secret_file_that_restarts_the_unit() -> None:
    path = "/etc/gb10-fleet/vllm.env"
    document = vllm(vllm_api_key="sesame", vllm_huggingface_token="hf_sesame", vllm_fetch=False)  # noqa: S106
    lines = "VLLM_API_KEY=sesame\nHF_TOKEN=hf_sesame\n"
    assert declared(document, "file", path) == {"file": path, "secret": True, "content": lines}
    assert path in declared(document, "unit", "gb10-vllm.service")["restart_on"]
    assert declared(vllm(), "file", path) == {"file": path, "secret": True, "state": "absent"}


@pytest.mark.parametrize(
    ("variables", "packages", "says"),
    [
        ({"driver_host_set": "nonsense"}, {}, "does not list"),
        ({}, {"nvidia-driver-580-open": "590.48.01-1"}, "keeps branch 580"),
        (
            {"driver_host_set": "ubuntu24.04-580.142-6.17.0-1014"},
            {"nvidia-driver-580-open": "580.178.04-1"},
            "To move it, ",
        ),
    ],
)
def test_the_driver_role_refuses_what_it_cannot_keep(
    variables: dict[str, Any], packages: dict[str, str], says: str
) -> None:
    known = facts(packages=facts()["packages"] | packages)
    (found,) = rendered("driver", spark=known, **variables).refusals
    assert says in found


def test_a_host_without_driver_is_refused() -> None:
    nothing = facts(packages={}, kernel="6.8.0-generic")
    found = rendered("driver", spark=nothing).refusals
    assert ["none" in found[0], "no kernel" in found[1]] == [True, True]


def test_docker_is_exchanged_only_with_consent() -> None:
    def docker(version: str, **variables: Any) -> Rendered:
        return rendered("docker", spark=facts(packages={"docker-ce": version}), **variables)

    older, newer = "5:28.3.3-1~ubuntu.24.04~noble", "5:29.5.1-1~ubuntu.24.04~noble"
    for document in (docker(older), docker(older, docker_allow_restart="false")):
        assert "docker_allow_restart" in document.refusals[0]
    assert docker(older, docker_allow_restart=True).refusals == []
    for package in ("docker-ce", "docker-ce-cli"):
        wanted = {"package": package, "version": newer, "consent": "docker_allow_restart"}
        assert declared(docker(newer), "package", package) == wanted


@pytest.mark.parametrize(
    ("docker", "variables", "refused"),
    [
        ({"running": True, "cgroup_driver": "systemd", "ends": []}, {}, True),
        ({"running": True, "cgroup_driver": "systemd", "ends": []}, {"docker_allow_restart": "false"}, True),
        ({"running": True, "cgroup_driver": "systemd", "ends": []}, {"docker_allow_restart": True}, False),
        # Wanted so, which the role leaves alone.
        (
            {"running": True, "cgroup_driver": "systemd", "ends": []},
            {"docker_daemon_options": {"exec-opts": ["native.cgroupdriver=systemd"]}},
            False,
        ),
        ({"running": True, "cgroup_driver": "cgroupfs", "ends": []}, {}, False),
        ({"running": False, "cgroup_driver": None, "ends": []}, {}, False),  # a first installation
    ],
)
def test_a_docker_that_loses_the_gpu_at_a_reload_is_changed_with_consent_only(
    docker: dict[str, Any], variables: dict[str, Any], refused: bool
) -> None:
    known = facts(docker={"present": True, "version": "29.2.1", **docker})
    refusals = rendered("docker", spark=known, **variables).refusals
    assert [("cgroup driver systemd" in text, "docker_allow_restart" in text) for text in refusals] == [
        (True, True)
    ] * refused


@pytest.mark.parametrize(("driver", "word"), [(None, "`docker info` and did not answer"), ("none", "is none")])
def test_a_docker_that_does_not_name_its_cgroup_driver_is_not_taken_for_a_safe_one(
    driver: str | None, word: str
) -> None:
    known = facts(docker={"present": True, "version": "29.2.1", "running": True, "cgroup_driver": driver, "ends": []})
    (refusal,) = rendered("docker", spark=known).refusals
    assert word in refusal and "set docker_allow_restart: true in the inventory" in refusal
    assert rendered("docker", spark=known, docker_allow_restart=True).refusals == []
    wanted_so = {"exec-opts": ["native.cgroupdriver=systemd"]}
    assert rendered("docker", spark=known, docker_daemon_options=wanted_so).refusals == []


@pytest.mark.parametrize(
    ("role", "package", "variable", "installed", "asked", "kept"),
    [
        ("docker", "docker-ce", "docker_version", "5:29.3.0-1~u", "5:29.2.1-1~u", True),
        ("docker", "docker-ce", "docker_version", "5:29.3.0~rc.1-1~u", "5:29.3.0-1~u", False),
        ("docker", "docker-ce", "docker_version", "5:28.5.0-1~u", "30.0-1~u", True),  # the epoch counts
        (
            "container_toolkit",
            "nvidia-container-toolkit",
            "container_toolkit_version",
            "1.19.0~rc.1-1",
            "1.19.0-1",
            False,
        ),
        ("container_toolkit", "nvidia-container-toolkit", "container_toolkit_version", "1.19.0-1", "1.19-1", True),
    ],
)
def test_a_newer_package_is_what_dpkg_takes_for_newer(
    role: str, package: str, variable: str, installed: str, asked: str, kept: bool
) -> None:
    known = facts(packages={package: installed})
    document = rendered(role, spark=known, docker_allow_restart=True, **{variable: asked})
    assert declared(document, "package", package)["version"] == (installed if kept else asked)


def test_what_is_no_version_is_refused_in_words() -> None:
    (found,) = rendered("docker", docker_version="latest").refusals
    assert found.startswith("docker_version: 'latest' is no version of a package, such as")


def test_a_hold_of_somebody_else_on_docker_is_named_before_it_fails() -> None:
    known = facts(packages={"docker-ce": "5:28.3.3-1~ubuntu.24.04~noble"}, holds=["containerd.io", "docker-ce", "vim"])
    (found,) = rendered("docker", spark=known, docker_allow_restart=True).refusals
    assert "`sudo apt-mark unhold containerd.io docker-ce`" in found
    assert not any("hold" in resource for resource in rendered("docker").resources)


def blacklisted(role: str, package: str) -> bool:
    """As unattended-upgrades does it: re.match of each entry."""
    text = content(rendered(role), f"/etc/apt/apt.conf.d/52gb10-{role}")
    entries = re.findall(r'^  "(.*)";$', text, re.MULTILINE)
    assert entries
    return any(re.match(entry, package) for entry in entries)


@pytest.mark.parametrize(
    ("package", "expected"),
    [("docker-ce", True), ("docker-ce-cli", True), ("containerd.io", True), ("containerd", False), ("curl", False)],
)
def test_the_automatic_upgrade_passes_docker_by(package: str, expected: bool) -> None:
    assert blacklisted("docker", package) == expected


@pytest.mark.parametrize(
    ("options", "former", "driver"),
    [
        ({}, None, "local"),
        ({"debug": True}, "{}", "local"),
        ({"log-driver": "journald"}, "{}", "journald"),
        ({"log-opts": {"tag": "x"}}, "{}", None),
        ({}, '{"log-driver": "journald"}', "journald"),
        # Those of json-file, which nobody has to name; with another driver Docker would not start.
        ({}, '{"log-opts": {"max-size": "10m", "max-file": "3"}}', None),
    ],
)
def test_docker_gets_a_log_driver_only_where_nobody_chose_one(
    options: Any, former: str | None, driver: str | None, tmp_path: Path
) -> None:
    daemon = declared(rendered("docker", docker_daemon_options=options), "file", "/etc/docker/daemon.json")
    assert daemon["merge_json"].keys() == {"features", "exec-opts"} | options.keys()
    host = FakeHost(tmp_path)
    host.on("dockerd --validate", "")
    if former is not None:
        host.file("/etc/docker/daemon.json", former)
    host.both([daemon])
    assert json.loads(host.path("/etc/docker/daemon.json").read_text()).get("log-driver") == driver


def test_fetched_files_are_served_without_a_network_and_without_a_token() -> None:
    given: dict[str, Any] = {"vllm_huggingface_token": "hf_sesame", "vllm_model_revision": "v1"}
    words = command(vllm(**given))
    assert "HF_HUB_OFFLINE=1" in words and words[words.index("--revision") + 1] == "v1"
    assert declared(vllm(**given), "file", "/etc/gb10-fleet/vllm.env")["state"] == "absent"
    by_itself = vllm(**given, vllm_fetch=False)
    assert "HF_HUB_OFFLINE=1" not in command(by_itself)
    assert "hf_sesame" in content(by_itself, "/etc/gb10-fleet/vllm.env")


def test_an_image_has_one_name_on_all_hosts() -> None:
    tags = ("nvcr.io/nvidia/vllm:26.04-py3", "host:5000/vllm", "a/" + "b" * 200 + ":1")
    names = {only_service(View("spark-a", facts(), {"vllm_image": image})).image_name for image in (DIGEST, *tags)}
    assert len(names) == len(tags) + 1
    assert all(re.fullmatch(r"gb10-fleet/vllm:[\w][\w.-]{0,127}", name) for name in names), names
    assert "gb10-fleet/vllm:tag-nvcr.io-nvidia-vllm-26.04-py3" in names


def test_a_single_spark_serves_without_cluster_arguments() -> None:
    words = command(vllm())
    assert words[:3] == ["/usr/bin/docker", "run", "--rm"]
    assert words[words.index("--entrypoint") : words.index("--served-model-name")] == [
        "--entrypoint", "vllm", "gb10-fleet/vllm:000000000000", "serve", "openai/gpt-oss-120b",
    ]  # fmt: skip
    assert after(words, "--served-model-name") == "openai/gpt-oss-120b"
    assert after(words, "--host") == "127.0.0.1"
    assert after(words, "--gpu-memory-utilization") == "0.8"
    assert not {"--nnodes", "--headless", "IPC_LOCK", "--max-model-len", "--env-file", "--privileged"} & set(words)
    assert settings(vllm())["join"] is None and settings(vllm())["rails"] == []


def test_an_image_of_ngc_starts_by_its_own_entrypoint() -> None:
    """On a driver older than the image's CUDA, vLLM ends without it: cudaErrorUnsupportedPtxVersion."""
    ngc = {"vllm_image": "nvcr.io/nvidia/vllm:26.08-py3", "vllm_allow_tag": True}
    with_ray = vllm_pair(**RAY, vllm_image=NGC_WITH_RAY, vllm_allow_tag=True)
    for document, program in ((vllm(**ngc), "vllm"), (with_ray, "python3")):
        words = command(document)
        own, image, starts = words[words.index("--entrypoint") + 1 :][:3]
        assert (own, starts) == ("/opt/nvidia/nvidia_entrypoint.sh", program) and "nvcr.io-nvidia-vllm" in image


@pytest.mark.parametrize(("host", "rank", "address"), [("spark-a", "0", "10"), ("spark-b", "1", "11")])
def test_a_pair_meets_on_the_fabric(host: str, rank: str, address: str) -> None:
    words = command(vllm_pair(host))
    assert after(words, "--node-rank") == rank
    assert (after(words, "--nnodes"), after(words, "--tensor-parallel-size")) == ("2", "2")
    assert after(words, "--master-addr") == "192.168.100.10"
    assert f"VLLM_HOST_IP=192.168.100.{address}" in words
    assert "NCCL_IB_HCA==rocep1s0f0:1,roceP2p1s0f0:1" in words
    assert ("--headless" in words) == (rank == "1")
    assert ("--port" in words) == (rank == "0")
    assert after(words, "--device") == "nvidia.com/gpu=all"
    assert "/dev/infiniband" in words
    assert "--pipeline-parallel-size" not in words


def test_the_hosts_of_a_pair_say_the_same_before_they_start() -> None:
    head, mate = (settings(vllm_pair(host, vllm_join_port=4711)) for host in ("spark-a", "spark-b"))
    assert head["join"] | {"rank": 1} == mate["join"], "else they would never start"
    assert (head["join"]["rank"], head["join"]["port"], mate["memory_gib"]) == (0, 4711, 98)
    assert head["join"]["members"] == [
        {"name": "spark-a", "address": "192.168.100.10"}, {"name": "spark-b", "address": "192.168.100.11"},
    ]  # fmt: skip
    assert [rail["netdev"] for rail in head["rails"]] == ["enp1s0f0np0", "enP2p1s0f0np0"]
    other = settings(vllm_pair(vllm_gpu_memory_utilization=0.7))["join"]["settings"]
    assert {name for name, value in other.items() if value != head["join"]["settings"][name]} == {
        "vllm_gpu_memory_utilization", "vllm_join_port",
    }  # fmt: skip
    unused = {"vllm_lora", "vllm_further_names"}  # they came later: hosts of before keep their settings and secret
    assert not unused & set(other) and "vllm_speculative" in other
    named = settings(vllm_pair(vllm_further_names=["gpt"]))["join"]["settings"]
    assert named.keys() - other.keys() == {"vllm_further_names"}
    # A number and the text of it are the same wish, as for the refusal.
    spelled = settings(vllm_pair(vllm_gpu_memory_utilization="0.8"))["join"]["settings"]
    assert spelled == settings(vllm_pair())["join"]["settings"]


def test_the_program_takes_what_the_role_writes() -> None:
    for document in (vllm(), vllm_pair(), vllm_pair("spark-b", vllm_api_key="k")):
        config = unit_config.parse_config(content(document, "/etc/gb10-fleet/vllm.json"))
        assert {phase for phase, _ in config.phases} <= set(status.PHASES)
        assert {verdict for verdict, _ in config.failures} <= set(failures.WAYS_OUT)
        assert config.timing.heartbeat + config.timing.silence <= 15, "as docs and catalog promise"


def test_the_program_is_installed_whole_and_each_of_its_files_counts_from_the_next_start(tmp_path: Path) -> None:
    document, home = vllm(), Path("/usr/local/lib/gb10-fleet")
    files = [Path(found["file"]) for found in document.resources if f"{home}/vllm_unit/" in found.get("file", "")]
    for file in files:
        target = tmp_path / file.relative_to(home)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content(document, str(file)))
    package = "ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit"
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'vllm_unit')!r}); import {package}.main"
    ran = subprocess.run([sys.executable, "-IS", "-c", program], check=False)
    assert ran.returncode == 0, "it imports a file that the role does not install"
    unit = declared(document, "unit", "gb10-vllm.service")
    assert {str(file) for file in files} <= set(unit["at_next_start"]) - set(unit["restart_on"])


def test_hosts_that_do_not_share_layers_are_pipeline_stages() -> None:
    words = command(vllm_pair(vllm_tensor_parallel_size=1))
    assert (after(words, "--tensor-parallel-size"), after(words, "--pipeline-parallel-size")) == ("1", "2")


@pytest.mark.parametrize(("host", "address"), [("spark-a", "10"), ("spark-b", "11")])
def test_with_ray_each_host_is_a_node_and_the_first_serves(host: str, address: str) -> None:
    document = vllm_pair(host, **RAY, vllm_ray_port=6500)
    words = command(document)
    start = words[words.index("--entrypoint") :]
    assert start[:4] == ["--entrypoint", "python3", "gb10-fleet/vllm:" + "0" * 12, "/gb10-ray-start"]
    options = ray_start.parse(start[4:])
    assert (options.hosts, options.own) == (["192.168.100.10", "192.168.100.11"], f"192.168.100.{address}")
    assert (options.port, options.timeout) == (6500, 1800)
    assert {"--num-gpus=1", "--object-store-memory=1073741824", "--max-worker-port=10101"} <= set(options.ray)
    assert {"RAY_memory_monitor_refresh_ms=0", "RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH=/gb10-ray.token"} <= set(
        words
    )
    assert not {"--nnodes", "--node-rank", "--master-addr", "--headless"} & set(words)
    if host == PAIR[0]:
        assert options.command[:3] == ["vllm", "serve", "openai/gpt-oss-120b"]
        assert after(options.command, "--distributed-executor-backend") == "ray"
        assert after(options.command, "--tensor-parallel-size") == "2" and "--port" in options.command
    else:
        assert not options.command


def test_what_another_version_brings_leaves_a_unit_up() -> None:
    """The log's words are the catalog's; all else of its settings says what is served."""
    document = vllm()
    unit = declared(document, "unit", "gb10-vllm.service")
    beside = {name.partition("#")[2] for name in unit["at_next_start"] if "#" in name}
    assert set(settings(document)) - beside == {
        *("api", "argv", "cache", "container", "env_file", "gid_file", "image", "join", "load_s", "memory_gib"),
        *("rails", "ready_url", "service", "warm"),
    }
    assert beside - {"metrics", "serves"} < set(settings(document)), "a name that the settings lack"


def test_the_token_of_ray_is_a_secret_file_that_restarts_the_unit() -> None:
    path, program = "/etc/gb10-fleet/ray.token", "/usr/local/lib/gb10-fleet/gb10-ray-start"
    document = vllm_pair(**RAY)
    assert declared(document, "file", path) == {"file": path, "secret": True, "content": TOKEN + "\n"}
    unit = declared(document, "unit", "gb10-vllm.service")
    assert path in unit["restart_on"] and program in unit["at_next_start"]
    assert TOKEN not in json.dumps([entry for entry in document.resources if entry.get("file") != path])
    assert f"{path}:/gb10-ray.token:ro" in command(document)
    compile(content(document, program), program, "exec")
    for gone in (path, program):
        assert declared(vllm_pair(), "file", gone)["state"] == "absent"


def test_ray_joins_hosts_and_one_host_has_none_to_join() -> None:
    (found,) = vllm(**RAY).refusals
    assert "a cluster of one" in found


def test_no_rule_misses_the_token_that_ray_has() -> None:
    assert not [found for found in vllm_pair(**RAY).findings if found["id"] == "ray_token"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"vllm_max_model_len": 4096, "vllm_extra_args": ["--max-num-seqs", 4], "vllm_served_model_name": "b"},
        {"vllm_environment": {"VLLM_LOGGING_LEVEL": "DEBUG", "NCCL_DEBUG": "INFO"}, "vllm_port": 9000},
        {"vllm_tensor_parallel_size": 1, "vllm_host": "::", "vllm_api_key": "k", "vllm_master_port": 3},
    ],
)
@pytest.mark.parametrize(("make", "host"), [(vllm, "spark-a"), (vllm_pair, "spark-a"), (vllm_pair, "spark-b")])
def test_what_is_judged_is_what_the_unit_starts(
    monkeypatch: pytest.MonkeyPatch, make: Any, host: str, given: dict[str, Any]
) -> None:
    judged: dict[str, Any] = {}
    monkeypatch.setattr(
        serving_rules,
        "judge",
        lambda _view, **asked: judged.update(asked) or serving_rules.Verdict(),
    )
    words = command(make(host, **given))
    served = words[words.index("serve") + 1 :]
    head = served.index("--master-addr") + 1 if "--master-addr" in served else None
    if head:  # the one word that comes from the plan of the fabric
        served[head] = "HEAD"
    assert [judged["model"], *map(str, judged["args"])] == served
    assert judged["image"] == DIGEST and words[words.index("serve") - 1] == "gb10-fleet/vllm:" + "0" * 12
    environment = dict(words[index + 1].split("=", 1) for index, word in enumerate(words) if word == "--env")
    of_the_rails = {"NCCL_IB_HCA", "NCCL_IB_ADDR_RANGE", "UCX_NET_DEVICES"}  # no rule looks at them
    assert set(environment) - of_the_rails == set(judged["environment"])
    assert judged["api_key"] == given.get("vllm_api_key", "")


@pytest.mark.parametrize("argument", ['{"a": "50% of $HOME"}', "back\\slash", 'a "quoted" word', "", "; rm -rf", "%n"])
def test_an_argument_reaches_vllm_unchanged(argument: str) -> None:
    words = command(vllm(vllm_extra_args=["--option", argument]))
    assert after(words, "--option") == argument


def test_secrets_stay_out_of_the_unit() -> None:
    document = vllm(vllm_api_key="sesame", vllm_huggingface_token="hf_sesame")  # noqa: S106
    others = [entry for entry in document.resources if entry.get("file") != "/etc/gb10-fleet/vllm.env"]
    assert "sesame" not in str(others)
    assert after(command(document), "--env-file") == settings(document)["env_file"] == "/etc/gb10-fleet/vllm.env"
    assert settings(vllm())["env_file"] is None


def test_the_page_cache_is_guarded_until_the_head_answers_and_for_a_start_at_most() -> None:
    guard = "gb10-page-cache-guard@gb10-vllm.service\n"
    assert f"ExecStartPost=-/usr/bin/systemctl start --no-block {guard}" in unit(vllm())
    assert f"Wants={guard}" not in unit(vllm()), "it would pull the next start forward"
    path = "/etc/gb10-fleet/guard-gb10-vllm.env"
    asked = {"127.0.0.1": "127.0.0.1", "::": "[::1]", "0.0.0.0": "127.0.0.1", "2001:db8::1": "[2001:db8::1]"}  # noqa: S104
    for host, url in asked.items():
        text = content(vllm(vllm_host=host, vllm_api_key="k", vllm_ready_timeout=60), path)
        assert text.splitlines()[1:] == [
            f"READY_URL=http://{url}:8000/health",
            "SERVING=/run/gb10-vllm/serving",
            "LIMIT_S=60",
        ]
    others = ["STATUS=/run/gb10-vllm/status.json", "LIMIT_S=1800"]
    assert content(vllm_pair("spark-b"), path).splitlines()[1:] == others, "a rank without API"


def test_the_kernel_kills_the_model_first() -> None:
    assert after(command(vllm()), "--oom-score-adj") == "1000"


def test_the_memory_gate_follows_the_share_that_vllm_takes() -> None:
    """Rounded up: with less than it asks for, vLLM ends the start."""
    assert settings(vllm())["memory_gib"] == 98
    assert settings(vllm(vllm_gpu_memory_utilization=0.6))["memory_gib"] == 74
    assert settings(vllm(vllm_memory_gate_gib=7))["memory_gib"] == 7


def test_flags_of_the_role_are_recognised_in_both_spellings() -> None:
    (found,) = vllm(vllm_extra_args=["--port=9000", "--headless", "--max_num-seqs", "4"]).refusals
    assert "holds --port, --headless, which" in found


def test_the_kernel_can_start_every_program() -> None:
    """Its first line is an interpreter and at most one argument: what follows would be part of that argument."""
    resources = [entry for role in catalog.ROLES for entry in paired(role).resources]
    programs = {entry["file"]: entry["content"] for entry in resources if entry.get("mode") in ("0755", "0700")}
    assert len(programs) >= 4
    for path, text in programs.items():
        assert re.fullmatch(r"#!(/usr)?/bin/[a-z0-9]+( -[A-Za-z]+)?", text.partition("\n")[0]), path


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    units = ("gb10-drop-caches.service", "gb10-page-cache-guard@.service")
    written = {name: content(rendered("page_cache"), f"/etc/systemd/system/{name}") for name in units}
    written["gb10-page-cache-guard@gb10-vllm.service"] = written.pop("gb10-page-cache-guard@.service")
    serve = unit(vllm_pair(vllm_extra_args=["50%", "$HOME", "a b"]))
    files = []
    for name, text in {**written, "gb10-vllm.service": serve}.items():
        files.append(tmp_path / name)
        # What the units call is not installed here, and its absence is not the question.
        text = re.sub(r"/usr/(local/sbin/gb10-[a-z-]+|bin/docker)", "/bin/true", text)
        files[-1].write_text(re.sub(r"(?m)^Requires=.*\n", "", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, files)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if str(tmp_path) in line or "gb10-" in line]
    assert not complaints


@pytest.mark.parametrize(("gib", "status", "says"), [("0", 0, "available"), ("999999", 1, "only"), ("1.5", 2, "usage")])
def test_the_memory_gate_answers(tmp_path: Path, gib: str, status: int, says: str) -> None:
    text = content(rendered("page_cache"), "/usr/local/sbin/gb10-memory-gate")
    script = tmp_path / "gate"
    script.write_text(text)
    done = subprocess.run(["sh", str(script), gib], capture_output=True, text=True, check=False)
    assert (done.returncode, says in done.stdout + done.stderr) == (status, True)


DRIVER = [
    "libnvidia-compute-580",
    "nvidia-driver-580-open",
    "nvidia-driver-580-server-open",
    "nvidia-kernel-source-590-open",
    "nvidia-firmware-580-580.142",
    "nvidia-dkms-580-open",
    "xserver-xorg-video-nvidia-580",
    # as NVIDIA's own repository names them from 590 on
    "nvidia-driver", "nvidia-driver-open", "nvidia-driver-cuda", "nvidia-open", "nvidia-utils", "nvidia-compute-utils",
    "nvidia-kernel-common", "nvidia-kernel-open-dkms", "nvidia-dkms-open", "nvidia-firmware",
    "libnvidia-compute", "libnvidia-gl", "libnvidia-decode", "libnvidia-encode", "libnvidia-extra", "libnvidia-cfg1",
    "libnvidia-fbc1", "libnvidia-common", "cuda-drivers", "cuda-drivers-590", "cuda-drivers-fabricmanager",
    "nvidia-driver-pinning-590", "libnvidia-nscq", "libnvsdm", "nvidia-fabricmanager", "nvidia-fabricmanager-580",
    "nvidia-imex",
]  # fmt: skip
FREE = [
    "libnvidia-egl-wayland1", "libnvidia-egl-gbm1", "nvidia-prime", "nvidia-repo-keys", "nvidia-settings",
    "nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container1", "libnvidia-container-tools",
    "nvidia-system-core", "nvidia-spark-run-apt-upgrade-once", "nvidia-fs-dkms", "nvidia-cuda-toolkit",
    "nvidia-modprobe", "nvidia-persistenced",  # helpers of newer branches belong to a release
    "nvidia-nsight-systems-2025.3.2", "libnvidia-ml-dev", "cuda-toolkit-13-1", "docker-ce",
]  # fmt: skip
PREFERENCES = [
    # package, version, priority that its stanza gives
    ("libnvidia-compute-580", "580.142-0ubuntu0.24.04.1", 990),
    ("nvidia-modprobe", "580.142-0ubuntu0.24.04.1", None),
    ("libnvidia-compute-580", "580.178.04-0ubuntu0.24.04.1", -1),
    *((name, "590.48.01-1ubuntu1", -1) for name in DRIVER),
    *((name, "590.48.01-1ubuntu1", None) for name in FREE),
    ("linux-nvidia-hwe-24.04", "6.17.0-1014.14", 990),
    ("linux-nvidia-hwe-24.04", "7.0.0-1025.25", -1),
    ("linux-image-nvidia-hwe-24.04", "6.17.0-1014.14", 990),
    ("linux-image-6.17.0-1014-nvidia", "6.17.0-1014.15", 990),
    ("linux-modules-nvidia-580-open-6.17.0-1014-nvidia", "6.17.0-1014.14+1", 990),
    ("linux-modules-nvidia-580-open-nvidia-hwe-24.04", "6.17.0-1014.14+1000", 990),
    ("linux-modules-nvidia-fs-6.17.0-1014-nvidia", "6.17.0-1014.14", 990),
    ("linux-modules-nvidia-fs-nvidia-hwe-24.04", "6.17.0-1014.14", 990),
    ("linux-modules-nvidia-fs-6.17.0-1032-nvidia", "6.17.0-1032.32", -1),
    ("linux-modules-nvidia-fs-nvidia-hwe-24.04", "7.0.0-1025.25", -1),
    # rebuilt for another driver, under the same name
    ("linux-modules-nvidia-580-open-nvidia-hwe-24.04", "6.17.0-1014.14+1001", -1),
    ("linux-modules-nvidia-580-6.17.0-1014-nvidia", "6.17.0-1014.14+1", -1),  # the proprietary flavour
    ("linux-modules-nvidia-590-open-6.17.0-1014-nvidia", "6.17.0-1014.14+2", -1),
    ("linux-modules-nvidia-590-open-nvidia-hwe-24.04", "6.17.0-1032.32", -1),
    ("linux-image-6.17.0-1032-nvidia", "6.17.0-1032.32", -1),
    ("linux-image-unsigned-6.17.0-1032-nvidia", "6.17.0-1032.32", -1),
    ("linux-image-6.17.0-1014-nvidia-64k", "6.17.0-1014.14", -1),
    ("linux-nvidia-64k-hwe-24.04", "6.17.0-1014.14", -1),
    ("linux-image-nvidia-hwe-24.04-edge", "7.0.0-1025.25", -1),
    ("linux-image-6.8.0-100-generic", "6.8.0-100.100", -1),
    ("linux-image-generic", "6.8.0-100.100", None),
    ("linux-headers-6.8.0-100-generic", "6.8.0-100.100", None),
    ("linux-libc-dev", "6.8.0-100.100", None),
    ("linux-firmware", "20260101", None),
    # NVIDIA's own pins refuse it already, and a priority of ours would lift it over them.
    ("nvidia-driver-pinning-580", "580-1", -1),
]


def stanzas() -> list[dict[str, str]]:
    text = content(rendered("driver"), "/etc/apt/preferences.d/10-gb10-nvidia")
    blocks = re.split(r"\n\s*\n", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    fields = (dict(line.split(": ", 1) for line in block.strip().splitlines()) for block in blocks)
    return [stanza for stanza in fields if stanza]


def matches(pattern: str, package: str) -> bool:
    """Whether the POSIX extended regular expression matches, asked of grep: apt knows no others, Python knows more."""
    return subprocess.run(["grep", "-Eiq", pattern], input=package, text=True, check=False).returncode == 0


def priority(package: str, version: str) -> int | None:
    """As apt_preferences(5): the first specific stanza that matches name and version decides."""
    for stanza in stanzas():
        patterns = [
            word[1:-1] if word.startswith("/") else f"^{re.escape(word)}$" for word in stanza["Package"].split()
        ]
        wanted = stanza["Pin"].removeprefix("version ")
        fits = wanted == "*" or (version.startswith(wanted[:-1]) if wanted.endswith("*") else version == wanted)
        if fits and any(matches(pattern, package) for pattern in patterns):
            return int(stanza["Pin-Priority"])
    return None


@pytest.mark.parametrize(("package", "version", "expected"), PREFERENCES)
def test_the_preferences_keep_the_host_set_and_let_the_rest_move(
    package: str, version: str, expected: int | None
) -> None:
    assert priority(package, version) == expected


def test_no_priority_makes_apt_downgrade() -> None:
    assert len(stanzas()) == 6
    assert all(int(stanza["Pin-Priority"]) < 1000 for stanza in stanzas())


def test_the_host_set_is_read_from_the_host() -> None:
    without_modules = facts(packages={"nvidia-kernel-common-580": "580.142-1"}, kernel="6.17.0-1020-nvidia")
    for spark, userland, kernel in (
        (facts(), "580.142-0ubuntu0.24.04.1", "6.17.0-1014"),
        (without_modules, "580.142-1", "6.17.0-1020"),
    ):
        text = content(rendered("driver", spark=spark), "/etc/apt/preferences.d/10-gb10-nvidia")
        pins = re.findall(r"^Pin: version (.*\d.*)$", text, re.MULTILINE)
        assert (pins[0], pins[1].startswith(kernel), pins[-1]) == (userland, True, f"{kernel}.*")


@pytest.mark.parametrize(
    ("package", "held"),
    [
        ("libnvidia-compute-580", True),
        ("nvidia-firmware-580-580.142", True),
        ("xserver-xorg-video-nvidia-580", True),
        ("linux-modules-nvidia-580-open-6.17.0-1014-nvidia", True),
        ("linux-image-nvidia-hwe-24.04", True),
        ("linux-nvidia-hwe-24.04", True),
        ("linux-image-generic", False),
        ("nvidia-driver-pinning-580", True),
        *((name, True) for name in DRIVER),
        *((name, False) for name in FREE),
    ],
)
def test_holds_and_unattended_upgrades_go_by_the_same_names(package: str, held: bool) -> None:
    patterns = declared(rendered("driver"), "hold", "driver-set")["match"]
    assert any(re.search(pattern, package) for pattern in patterns) == held
    assert blacklisted("driver", package) == held


@pytest.mark.parametrize(
    ("installed", "wanted"),
    [(None, "1.19.0-1"), ("1.18.2-1", "1.19.0-1"), ("1.19.0-1", "1.19.0-1"), ("1.19.1-1", "1.19.1-1")],
)
def test_a_newer_container_toolkit_stays(installed: str | None, wanted: str) -> None:
    packages = {"nvidia-container-toolkit": installed} if installed else {}
    document = rendered("container_toolkit", spark=facts(packages=packages))
    assert {resource["version"] for resource in document.resources if "package" in resource} == {wanted}


DOCKER_SOURCE, TOOLKIT_SOURCE = (
    f"/etc/apt/sources.list.d/gb10-{name}.sources" for name in ("docker", "container-toolkit")
)
SOURCED = [
    ("docker", "docker-ce", "docker", DOCKER_SOURCE, "https://download.docker.com/linux/ubuntu"),
    ("container_toolkit", "nvidia-container-toolkit", "nvidia", TOOLKIT_SOURCE,
     "https://nvidia.github.io/libnvidia-container/stable/deb/arm64"),
]  # fmt: skip


def sourced(role: str, offered: list[str], *entries: tuple[str, str], **more: Any) -> Rendered:
    rest: dict[str, Any] = {"suite": "noble", "components": [], "signed_by": None}
    known = [{"file": file, "uri": uri, **rest} for file, uri in entries]
    spark = facts(apt_sources={"entries": known, "conflicts": [], "offered": offered}, **more.pop("spark", {}))
    return rendered(role, spark=spark, **more)


def brings(document: Rendered) -> bool:
    """Key and source come together, before the packages and with the key's fingerprint."""
    assert document.refusals == []
    kinds = [next(iter(resource)) for resource in document.resources]
    files = [resource for resource in document.resources[: kinds.index("package")] if "fingerprint" in resource]
    sources = [
        resource for resource in document.resources if str(resource.get("file")).startswith("/etc/apt/sources.list.d")
    ]
    assert len(files) == len(sources) <= 1
    for key, source in zip(files, sources, strict=True):
        assert f"Signed-By: {key['file']}\n" in source["content"]
        assert key["content"].startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    return bool(sources)


@pytest.mark.parametrize(("role", "package", "vendor", "own", "uri"), SOURCED)
def test_a_source_is_brought_only_where_none_has_the_package(
    role: str, package: str, vendor: str, own: str, uri: str
) -> None:
    ubuntu = ("/etc/apt/sources.list.d/ubuntu.sources", "http://ports.example/")
    assert brings(sourced(role, [], ubuntu))
    assert not brings(sourced(role, [package], ubuntu)), "a list of apt's names it"
    assert not brings(sourced(role, [], ubuntu, spark={"packages": {package: "5:99"}})), "it is installed"
    dgx = ("/etc/apt/sources.list.d/dgx.sources", "https://repo.download.nvidia.com/baseos/ubuntu/noble/arm64/")
    assert not brings(sourced(role, [], dgx)), "a known source whose lists were never fetched"
    assert not brings(sourced(role, [], ("/etc/apt/sources.list.d/mine.list", uri)))
    # Once brought, it stays: what it offers is now installed.
    assert brings(sourced(role, [package], (own, uri), spark={"packages": {package: "5:99"}}))
    variable = f"{role}_source"
    assert not brings(sourced(role, [], ubuntu, **{variable: "host"}))
    assert brings(sourced(role, [package], dgx, (own, uri), **{variable: vendor}))
    (refusal,) = sourced(role, [], ("/etc/apt/sources.list.d/mine.list", uri), **{variable: vendor}).refusals
    assert "/etc/apt/sources.list.d/mine.list defines" in refusal and f"Set {variable} to 'auto'" in refusal


@pytest.mark.parametrize(
    ("specification", "userland", "loaded", "contains"),
    [
        ("580.126.09", "580.142", "580.142", "/libcuda.so.580.142"),
        ("580.142", "580.142", "580.142", "/libcuda.so.580.142"),
        ("580.142", "580.178.04", "580.142", None),  # a reboot is due, and it writes the file anew
        (None, "580.142", "580.142", None),  # one that names no version cannot be judged by it
        ("580.142", None, None, None),
    ],
)
def test_the_cdi_description_follows_the_driver(
    specification: str | None, userland: str | None, loaded: str | None, contains: str | None
) -> None:
    spark = facts(cdi_driver=specification, driver={"userland": userland, "module_loaded": loaded})
    document = rendered("container_toolkit", spark=spark)
    assert declared(document, "file", "/var/run/cdi/nvidia.yaml")["contains"] == contains


def test_a_cdi_description_yet_to_come_is_declared_as_the_next_run_declares_it() -> None:
    document = rendered("container_toolkit", spark=facts(cdi=[], cdi_driver=None))
    assert declared(document, "file", "/var/run/cdi/nvidia.yaml")["contains"] == "/libcuda.so.580.142"


def test_a_cdi_description_made_by_hand_is_refused() -> None:
    both = facts(cdi=["/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"])
    (found,) = rendered("container_toolkit", spark=both).refusals
    assert "/etc/cdi/nvidia.yaml" in found and found.endswith("Remove what is under /etc/cdi.")
    others = ["/etc/cdi/nvidia-gpu.json", "/etc/cdi/nvidia_old.yaml", "/etc/cdi/nvidia.yaml.bak"]
    (found,) = rendered("container_toolkit", spark=facts(cdi=[*others, "/var/run/cdi/nvidia.yaml"])).refusals
    assert "/etc/cdi/nvidia-gpu.json, /etc/cdi/nvidia_old.yaml fresh" in found
    unread = facts(cdi=["/etc/cdi/nvidia.yaml.bak", "/var/run/cdi/nvidia.yaml"])
    assert rendered("container_toolkit", spark=unread).refusals == []


def test_kernel_parameters_come_from_the_catalog_and_can_be_replaced() -> None:
    extra = {"net.ipv4.conf.all.arp_announce": 1, "vm.swappiness": 10}
    resources = rendered("kernel_parameters", kernel_parameters_extra=extra).resources
    assert {entry["sysctl"]: entry["value"] for entry in resources if "sysctl" in entry} == {
        "net.ipv4.conf.all.arp_ignore": "1",
        "net.ipv4.conf.all.arp_announce": "1",
        "vm.swappiness": "10",
    }


def test_the_fabric_document_holds_one_profile_for_each_rail() -> None:
    document = paired("fabric", "spark-b", fabric_allow_activation=True)
    profiles = [resource for resource in document.resources if "nm_profile" in resource]
    assert [profile["addresses"] for profile in profiles] == [["192.168.100.11/24"], ["192.168.101.11/24"]]
    assert {profile["mtu"] for profile in profiles} == {9000}
    assert "NCCL_IB_ADDR_RANGE=192.168.100.0/23\n" in content(document, "/etc/gb10-fleet/nccl.env")


def test_rails_that_wait_for_consent_are_refused_by_name() -> None:
    (found,) = paired("fabric").refusals
    assert found.startswith("enp1s0f0np0, enP2p1s0f0np0 waits for your consent: ")
    assert "set fabric_allow_activation: true in the inventory" in found


@pytest.mark.parametrize(
    ("renderer", "replace", "says"),
    [
        ("NetworkManager", False, "or set fabric_replace_foreign to true"),
        ("NetworkManager", True, None),
        ("networkd", True, "On this host, take enp1s0f0np0 out of /etc/netplan/40-cx7.yaml, then reboot"),
    ],
)
def test_a_port_with_another_owner_is_refused_by_the_file(renderer: str, replace: bool, says: str | None) -> None:
    claim = {"interface": "enp1s0f0np0", "file": "/etc/netplan/40-cx7.yaml", "name": None, "uuid": None}
    said = {"fabric_topology": "pair", "fabric_allow_activation": True, "fabric_replace_foreign": replace}
    own = facts(port_owners=[{**claim, "renderer": renderer}])
    document = render("fabric", View("spark-a", own, said, PAIR, peers={"spark-b": facts()}, given={"spark-b": said}))
    assert len(document.refusals) == (says is not None)
    for text in document.refusals:
        assert text.startswith("enp1s0f0np0 belongs to /etc/netplan/40-cx7.yaml already") and str(says) in text


def test_a_rail_of_networkds_own_file_has_its_way_out() -> None:
    claim = {"interface": "enp1s0f0np0", "file": "/etc/systemd/network/20-cx7.network", "name": None, "uuid": None}
    said = {"fabric_topology": "pair", "fabric_allow_activation": True, "fabric_replace_foreign": True}
    own = facts(port_owners=[{**claim, "renderer": "networkd"}])
    view = View("spark-a", own, said, PAIR, peers={"spark-b": facts()}, given={"spark-b": said})
    (text,) = render("fabric", view).refusals
    assert text.startswith("enp1s0f0np0 belongs to /etc/systemd/network/20-cx7.network already (systemd-networkd)")
    assert "`Unmanaged=yes` into /etc/systemd/network/00-enp1s0f0np0.network" in text and "netplan" not in text


def test_the_peers_of_a_rail_must_answer_before_its_change_is_kept() -> None:
    document = paired("fabric", "spark-b", fabric_allow_activation=True)
    peers = [resource["peers"] for resource in document.resources if "nm_profile" in resource]
    assert peers == [["192.168.100.10"], ["192.168.101.10"]]


def test_what_the_rails_get_is_told_while_they_wait_for_it() -> None:
    said = {"fabric_topology": "pair"}

    def coming(peers: dict[str, Any], **live: Any) -> list[str]:
        own = facts(rails=[{**rail, **live} for rail in rails()[:1]] + rails()[1:])
        made = render("fabric", View("spark-a", own, said, PAIR, peers=peers, given={"spark-b": said}))
        return [finding["fact"] for finding in made.findings if finding["id"] == "fabric_plan"]

    (told,) = coming({"spark-b": facts()})
    assert told.startswith("enp1s0f0np0 (p0): 192.168.100.10/24, MTU 9000, to spark-b p0 192.168.100.11; ")
    (told,) = coming({"spark-b": facts()}, addresses=["192.168.100.10/24"], mtu=9000)
    assert " (as it is); " in told
    assert render("fabric", View("spark-a", facts())).findings == []
    assert coming({}) == [], "no facts of the peer"


def test_without_a_fabric_the_rails_are_left_alone() -> None:
    assert rendered("fabric") == Rendered("fabric")


def test_the_engine_accepts_what_the_roles_want() -> None:
    """All of them in one plan, as site.yml sends them."""
    given: dict[str, Any] = {
        "vllm_image": DIGEST,
        "vllm_model": "a/b",
        "vllm_api_key": "sesame",
        "docker_allow_restart": False,
        "fabric_allow_activation": True,
        "monitoring_enabled": True,
        "monitoring_server": True,
        "accounts_groups": [{"name": "research", "gid": 5000}],
    }
    every = [paired(role, **given) for role in catalog.ROLES]
    assert all(document.resources and not document.refusals for document in every)
    consents = {name: value for name, value in given.items() if "_allow_" in name}
    parsed = parse_documents([(document.role, document.resources) for document in every], consents)
    assert {resource.role for resource in parsed.resources} == set(catalog.ROLES)


def in_play(expression: str, **variables: Any) -> Any:
    """What a variable of playbooks/converge.yml says."""
    loader = DataLoader()
    (play,) = loader.load_from_file(str(ROOT / "playbooks/converge.yml"), trusted_as_template=True)
    return Templar(loader, variables=play["vars"] | {"inventory_hostname": "spark-a"} | variables).template(
        play["vars"][expression]
    )


@pytest.mark.parametrize(
    ("looks", "unchanged"),
    [
        ({"spark-a": True, "spark-b": True}, True),
        ({"spark-a": True, "spark-b": False}, False),
        ({"spark-a": False, "spark-b": True}, False),
        ({"spark-a": True, "spark-b": None}, True),  # not part of this run
    ],
)
def test_a_host_is_unchanged_when_its_cluster_is(looks: dict[str, bool | None], unchanged: bool) -> None:
    hostvars = {
        host: {"ansible_facts": {} if look is None else {"gb10_probe": {"unchanged": look}}}
        for host, look in looks.items()
    }
    cluster = {"gb10_cluster": "pair1", "groups": {"pair1": list(PAIR)}, "hostvars": hostvars}
    assert in_play("__converge_unchanged", **cluster) is unchanged


def test_the_defaults_are_those_of_the_catalog() -> None:
    software = catalog.load("software")
    for role, variable, entry in [
        ("docker", "docker_version", "docker"),
        ("container_toolkit", "container_toolkit_version", "container_toolkit"),
        ("vllm", "vllm_image", "vllm_image"),
        ("vllm", "vllm_gpu_memory_utilization", "vllm_gpu_memory_utilization"),
    ]:
        defaults = yaml.safe_load((ROOT / "roles" / role / "defaults" / "main.yml").read_text())
        assert defaults[variable] == software[entry]["value"]


@pytest.mark.parametrize("name", ["host_sets", "software", "kernel_parameters"])
def test_the_catalogs_carry_their_evidence(name: str) -> None:
    assert catalog.load(name)


def gid_tables(root: Path, *indexes: int) -> Path:
    """sysfs with the addresses of spark-a at these indexes, v1 behind v2."""
    for hca, index, gid in zip(("rocep1s0f0", "roceP2p1s0f0"), indexes, ("640a", "650a"), strict=True):
        table = root / "sys/class/infiniband" / hca / "ports/1"
        for folder in ("gids", "gid_attrs/types"):
            (table / folder).mkdir(parents=True)
        for slot in range(8):
            full = f"0000:0000:0000:0000:0000:ffff:c0a8:{gid}" if slot in (index, index + 1) else ":".join(["0000"] * 8)
            (table / f"gids/{slot}").write_text(f"{full}\n")
        (table / f"gid_attrs/types/{index + 1}").write_text("IB/RoCE v1\n")
        (table / f"gid_attrs/types/{index}").write_text("RoCE v2\n")
    return root / "sys"


@pytest.mark.parametrize(
    ("indexes", "says"),
    [
        ((3, 3), None),
        ((5, 5), None),
        ((3, 5), "rocep1s0f0 port 1 has its address at index 3, roceP2p1s0f0 port 1"),
    ],
)
def test_a_fixed_gid_index_is_found_out_at_the_start_or_keeps_the_model_from_it(
    tmp_path: Path, indexes: tuple[int, int], says: str | None
) -> None:
    document = paired("fabric", fabric_allow_activation=True, fabric_fixed_gid_index=True)
    script, env = tmp_path / "gid-index", tmp_path / "env"
    script.write_text(content(document, "/usr/local/sbin/gb10-gid-index"))
    sysfs = gid_tables(tmp_path, *indexes)
    env.write_text("of last time")
    done = subprocess.run(["/bin/sh", script, env, sysfs], capture_output=True, text=True, check=False)
    if says is None:
        assert (done.returncode, done.stderr) == (0, "")
        assert env.read_text() == f"NCCL_IB_GID_INDEX={indexes[0]}\n"
    else:
        assert done.returncode == 1 and says in done.stderr
        assert not env.exists(), "an index of last time must not be used"
    document = vllm_pair(fabric_fixed_gid_index=True)
    assert after(command(document), "--env-file") == settings(document)["gid_file"] == "/run/gb10-vllm/gid.env"


def test_without_request_nobody_fixes_a_gid_index() -> None:
    document = paired("fabric", fabric_allow_activation=True)
    assert not [resource for resource in document.resources if "gid-index" in str(resource.get("file"))]
    assert settings(vllm_pair())["gid_file"] is None and "--env-file" not in command(vllm_pair())


def test_a_cluster_lets_nccl_say_why_it_fails_unless_told_otherwise() -> None:
    def said(document: Rendered) -> list[str]:
        argv = json.loads(content(document, "/etc/gb10-fleet/vllm.json"))["argv"]
        return [word for word in argv if word.startswith("NCCL_DEBUG=")]

    assert said(vllm()) == []
    assert said(vllm_pair()) == ["NCCL_DEBUG=WARN"]
    assert said(vllm_pair(vllm_environment={"NCCL_DEBUG": "INFO"})) == ["NCCL_DEBUG=INFO"]
