"""What the roles would hand to the engine, rendered as Ansible renders it, without a host."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template
from ansible_collections.gb10.fleet.plugins.module_utils.engine import Document, parse_document
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.fabric_plan import plan

ROOT = Path(__file__).parents[2]
DIGEST = "registry.example/vllm@sha256:" + "0" * 64


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    """What ansible-playbook does at its start: names such as ansible.builtin.template resolve."""
    init_plugin_loader([str(ROOT / "collections")])  # type: ignore[no-untyped-call]


def rails() -> list[dict[str, Any]]:
    names = [("enp1s0f0np0", "rocep1s0f0"), ("enP2p1s0f0np0", "roceP2p1s0f0")]
    return [
        {"netdev": netdev, "hca": hca, "hca_port": 1, "port": "p0", "twin_index": index}
        for index, (netdev, hca) in enumerate(names)
    ]


def facts(**other: Any) -> dict[str, Any]:
    packages = {
        "nvidia-driver-580-open": "580.142-0ubuntu0.24.04.1",
        "linux-modules-nvidia-580-open-nvidia-hwe-24.04": "6.17.0-1014.14+1000",
    }
    return {
        "kernel": "6.17.0-1014-nvidia",
        "memory_bytes": 130662436864,
        "packages": packages,
        "holds": [],
        "rails": rails(),
        "ssh": {"interface": "enP7s7"},
        "default_route_interfaces": ["enP7s7"],
        "interfaces": [{"name": "enP7s7", "addresses": ["192.0.2.11/24"]}],
    } | other


def templar(role: str, host: str = "spark-a", **variables: Any) -> Templar:
    """A templar that sees what a task of this role sees."""
    folder = ROOT / "roles" / role
    loader = DataLoader()  # type: ignore[no-untyped-call]
    loader.set_basedir(str(folder))
    scope: dict[str, Any] = {
        "role_path": str(folder),
        "ansible_search_path": [str(folder)],
        "inventory_hostname": host,
        "groups": {"pair1": ["spark-a", "spark-b"]},
        "ansible_facts": {"gb10_spark": facts()},
    }
    for part in ("defaults", "vars"):
        if (folder / part / "main.yml").exists():
            scope |= loader.load_from_file(str(folder / part / "main.yml"), trusted_as_template=True)
    return Templar(loader, variables=scope | variables)


def evaluate(templar: Templar, expression: str) -> Any:
    return templar.template(trust_as_template("{{ " + expression + " }}"))


def vllm(host: str = "spark-a", **variables: Any) -> Templar:
    topology = "pair" if "gb10_cluster" in variables else "none"
    members = ["spark-a", "spark-b"] if topology == "pair" else [host]
    fabric = plan(topology, members, {member: facts() for member in members})
    given = {"vllm_image": DIGEST, "vllm_model": "openai/gpt-oss-120b", "__fabric_plan": fabric} | variables
    return templar("vllm", host, **given)


def unit(templar: Templar) -> str:
    text: str = evaluate(templar, "lookup('ansible.builtin.template', 'templates/gb10-vllm.service.j2')")
    return text


def exec_start(text: str) -> list[str]:
    """The words of ExecStart, split and unescaped as systemd.service(5) says."""
    line = text.replace("\\\n", " ").split("ExecStart=")[1].splitlines()[0]
    assert not re.search(r"[%$]", line.replace("%%", "").replace("$$", "")), "systemd would expand it"
    words = re.findall(r'"((?:[^"\\]|\\.)*)"(?=\s|$)|(\S+)', line)
    plain = (re.sub(r"\\(.)", r"\1", quoted) if quoted or not bare else bare for quoted, bare in words)
    return [word.replace("%%", "%").replace("$$", "$") for word in plain]


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def refusals(role: str, templar: Templar) -> list[str]:
    """What the preflight of a role says, evaluated as its assertion does."""
    tasks = DataLoader().load_from_file(  # type: ignore[no-untyped-call]
        str(ROOT / "roles" / role / "tasks" / "preflight.yml"), trusted_as_template=True
    )
    variables = next(task["vars"] for task in tasks if "ansible.builtin.assert" in task)
    templar.available_variables = {**templar.available_variables, **variables}
    found: list[str] = evaluate(templar, f"__{role}_refusals")
    return found


PAIR: dict[str, Any] = {"gb10_cluster": "pair1", "hostvars": {"spark-a": {}, "spark-b": {}}}
ALONE: dict[str, Any] = {"hostvars": {"spark-a": {}}}


def test_sound_inputs_are_not_refused() -> None:
    assert refusals("vllm", vllm(**PAIR)) == []
    assert refusals("vllm", vllm(**ALONE)) == []
    assert refusals("driver", templar("driver")) == []
    assert refusals("docker", templar("docker")) == []


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
        ({"vllm_image": "vllm/vllm-openai:latest"}, "names no digest"),
        ({"vllm_image": "vllm/vllm-openai:latest", "vllm_allow_tag": "false"}, "names no digest"),
        ({"vllm_image": DIGEST + "\n"}, "incomplete digest"),
        ({"vllm_image": "nvcr.io/nvidia/vllm@sha256:...", "vllm_allow_tag": True}, "incomplete digest"),
        ({"vllm_gpu_memory_utilization": 0.95}, "at most 0.9"),
        ({"vllm_host": "0.0.0.0"}, "reverse proxy"),  # noqa: S104
        ({"vllm_extra_args": ["--api-key=x"]}, "--api-key"),
        ({"vllm_extra_args": ["--api_key", "x"]}, "--api-key"),
        *(({"vllm_extra_args": [flag]}, "the role sets itself") for flag in ("-tp", "-tp=2", "-pp", "-n", "-n2", "-r")),
        ({"vllm_extra_args": ["a\nExecStartPre=/bin/false"]}, "line break"),
        ({"vllm_environment": {"A": "x\ny"}}, "line break"),
        *(({"vllm_environment": {name: "x"}}, "secrets go into") for name in ("HF_TOKEN", "token", "S3_APIKEY_ID")),
        ({"vllm_environment": {"A B": "x"}}, "Names are letters"),
        ({"vllm_tensor_parallel_size": 3}, "does not divide"),
        ({"vllm_api_key": "a\nB=c"}, "line break"),
        ({"vllm_api_key": "open sesame"}, "without blanks"),
        ({"vllm_huggingface_token": "hf_sésame"}, "without blanks"),
        *(({"vllm_cache_directory": path}, "directory of its own") for path in REFUSED_DIRECTORIES),
    ],
)
def test_wrong_inputs_are_refused_with_the_host_and_the_way_out(given: dict[str, Any], says: str) -> None:
    found = refusals("vllm", vllm(**(PAIR | given)))
    assert [text for text in found if says in text]
    assert all(text.startswith("spark-a: ") for text in found)
    assert len(found) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"vllm_environment": {"TOKENIZERS_PARALLELISM": "false", "VLLM_MAX_TOKENS": 1}},
        {"vllm_extra_args": ["-q", "fp8", "-dp=2", "--node-name", "--chat-template", "a_b"]},
        {"vllm_cache_directory": "/home/spark/.cache/gb10"},
        {"vllm_cache_directory": "/data"},
        {"vllm_host": "::", "vllm_api_key": "!sesame~"},
        {"vllm_gpu_memory_utilization": "0.85", "vllm_tensor_parallel_size": "1"},
    ],
)
def test_what_only_looks_wrong_is_not_refused(given: dict[str, Any]) -> None:
    assert refusals("vllm", vllm(**(PAIR | given))) == []


def test_a_tag_needs_consent() -> None:
    tag = "vllm/vllm-openai:v0.19.0"
    for consent in (True, "true", "yes"):
        assert refusals("vllm", vllm(vllm_image=tag, vllm_allow_tag=consent, **ALONE)) == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("vllm_model", "a/c"),
        ("vllm_image", "other"),
        ("vllm_extra_args", ["--max-num-seqs", "4"]),
        ("vllm_tensor_parallel_size", 1),
        ("vllm_master_port", 29502),
        ("vllm_max_model_len", 4096),
        ("vllm_served_model_name", "b"),
        ("vllm_gpu_memory_utilization", 0.7),
    ],
)
def test_hosts_of_a_cluster_must_agree_and_what_differs_is_named(variable: str, value: Any) -> None:
    different = {"spark-a": {}, "spark-b": {variable: value}}
    (found,) = refusals("vllm", vllm(**(PAIR | {"hostvars": different})))
    assert f"do not agree on {variable}. " in found


def test_a_default_that_one_host_spells_out_is_no_difference() -> None:
    same = {"spark-a": {}, "spark-b": {"vllm_max_model_len": 0, "vllm_extra_args": []}}
    assert refusals("vllm", vllm(**(PAIR | {"hostvars": same}))) == []


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
    assert evaluate(vllm(vllm_host=host), "__vllm_url") == url


def test_the_cache_directory_is_stated_without_owner_and_mode() -> None:
    entry = evaluate(vllm(vllm_cache_directory="/data/models"), "__vllm_resources")[0]
    assert entry == {"file": "/data/models", "state": "directory"}


def test_the_secrets_are_one_secret_file_that_restarts_the_unit() -> None:
    path = "/etc/gb10-fleet/vllm.env"
    given = {"vllm_api_key": "sesame", "vllm_huggingface_token": "hf_sesame"}
    resources = evaluate(vllm(**given), "__vllm_resources")
    assert [entry for entry in resources if entry.get("file") == path] == [
        {"file": path, "secret": True, "mode": "0600", "content": "VLLM_API_KEY=sesame\nHF_TOKEN=hf_sesame\n"}
    ]
    assert path in resources[-1]["restart_on"]
    assert {"file": path, "secret": True, "state": "absent"} in evaluate(vllm(), "__vllm_resources")


@pytest.mark.parametrize(
    ("variables", "packages", "says"),
    [
        ({"driver_host_set": "nonsense"}, {}, "does not list"),
        ({}, {"nvidia-driver-580-open": "590.48.01-1"}, "keeps branch 580"),
        (
            {"driver_host_set": "ubuntu24.04-580.142-6.17.0-1014"},
            {"nvidia-driver-580-open": "580.178.04-1"},
            "moves no",
        ),
    ],
)
def test_the_driver_role_refuses_what_it_cannot_keep(
    variables: dict[str, Any], packages: dict[str, str], says: str
) -> None:
    known = facts(packages=facts()["packages"] | packages)
    found = refusals("driver", templar("driver", ansible_facts={"gb10_spark": known}, **variables))
    assert len(found) == 1
    assert says in found[0]


def test_a_host_without_driver_is_refused() -> None:
    nothing = facts(packages={}, kernel="6.8.0-generic")
    found = refusals("driver", templar("driver", ansible_facts={"gb10_spark": nothing}))
    assert ["none" in found[0], "no kernel" in found[1]] == [True, True]


def test_docker_is_exchanged_only_with_consent() -> None:
    def docker(version: str, **variables: Any) -> Templar:
        return templar("docker", ansible_facts={"gb10_spark": facts(packages={"docker-ce": version})}, **variables)

    older, newer = "5:28.3.3-1~ubuntu.24.04~noble", "5:29.5.1-1~ubuntu.24.04~noble"
    assert "docker_allow_restart" in refusals("docker", docker(older))[0]
    assert "docker_allow_restart" in refusals("docker", docker(older, docker_allow_restart="false"))[0]
    assert refusals("docker", docker(older, docker_allow_restart=True)) == []
    assert refusals("docker", docker(newer)) == []
    assert evaluate(docker(newer), "__docker_wanted") == newer
    versioned = [entry for entry in evaluate(docker(newer), "__docker_engine") if "version" in entry]
    assert [(entry["package"], entry["consent"]) for entry in versioned] == [
        ("docker-ce", "docker_allow_restart"),
        ("docker-ce-cli", "docker_allow_restart"),
    ]


def test_a_hold_of_somebody_else_on_docker_is_named_before_it_fails() -> None:
    known = facts(packages={"docker-ce": "5:28.3.3-1~ubuntu.24.04~noble"}, holds=["containerd.io", "docker-ce", "vim"])
    spark = {"ansible_facts": {"gb10_spark": known}}
    (found,) = refusals("docker", templar("docker", docker_allow_restart=True, **spark))
    assert "`sudo apt-mark unhold containerd.io docker-ce`" in found
    assert not any("hold" in entry for entry in evaluate(templar("docker"), "__docker_engine"))


def blacklisted(role: str, package: str) -> bool:
    """As unattended-upgrades does it: re.match of each entry."""
    text = evaluate(templar(role), "lookup('ansible.builtin.template', 'templates/apt-conf.j2')")
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
    ("options", "default"),
    [
        ({}, {"log-driver": "local"}),
        ({"debug": True}, {"log-driver": "local"}),
        ({"log-driver": "journald"}, {}),
        ({"log-opts": {"tag": "x"}}, {}),
    ],
)
def test_docker_gets_a_log_driver_only_where_nobody_chose_one(options: Any, default: Any) -> None:
    resources = evaluate(templar("docker", docker_daemon_options=options), "__docker_engine")
    daemon = next(entry for entry in resources if entry.get("file") == "/etc/docker/daemon.json")
    assert daemon["default_json"] == default
    assert daemon["merge_json"].keys() == {"features", "exec-opts"} | options.keys()


def test_a_single_spark_serves_without_cluster_arguments() -> None:
    words = exec_start(unit(vllm()))
    assert words[:3] == ["/usr/bin/docker", "run", "--rm"]
    assert words[words.index("--entrypoint") : words.index("--served-model-name")] == [
        "--entrypoint", "vllm", DIGEST, "serve", "openai/gpt-oss-120b",
    ]  # fmt: skip
    assert after(words, "--served-model-name") == "openai/gpt-oss-120b"
    assert after(words, "--host") == "127.0.0.1"
    assert after(words, "--gpu-memory-utilization") == "0.8"
    assert not {"--nnodes", "--headless", "--cap-add", "--max-model-len", "--env-file"} & set(words)


@pytest.mark.parametrize(("host", "rank", "address"), [("spark-a", "0", "10"), ("spark-b", "1", "11")])
def test_a_pair_meets_on_the_fabric(host: str, rank: str, address: str) -> None:
    words = exec_start(unit(vllm(host, gb10_cluster="pair1")))
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


def test_hosts_that_do_not_share_layers_are_pipeline_stages() -> None:
    words = exec_start(unit(vllm(gb10_cluster="pair1", vllm_tensor_parallel_size=1)))
    assert (after(words, "--tensor-parallel-size"), after(words, "--pipeline-parallel-size")) == ("1", "2")


@pytest.mark.parametrize("argument", ['{"a": "50% of $HOME"}', "back\\slash", 'a "quoted" word', "", "; rm -rf", "%n"])
def test_an_argument_reaches_vllm_unchanged(argument: str) -> None:
    words = exec_start(unit(vllm(vllm_extra_args=["--option", argument])))
    assert after(words, "--option") == argument


def test_secrets_stay_out_of_the_unit() -> None:
    rendered = vllm(vllm_api_key="sesame", vllm_huggingface_token="hf_sesame")  # noqa: S106
    assert "sesame" not in unit(rendered)
    assert "--env-file" in exec_start(unit(rendered))
    assert evaluate(rendered, "__vllm_secrets") == {"VLLM_API_KEY": "sesame", "HF_TOKEN": "hf_sesame"}


def test_the_memory_gate_follows_the_share_that_vllm_takes() -> None:
    assert "/usr/local/sbin/gb10-memory-gate 97\n" in unit(vllm())
    assert "/usr/local/sbin/gb10-memory-gate 60\n" in unit(vllm(vllm_gpu_memory_utilization=0.5))
    assert "/usr/local/sbin/gb10-memory-gate 7\n" in unit(vllm(vllm_memory_gate_gib=7))


def test_flags_of_the_role_are_recognised_in_both_spellings() -> None:
    arguments = ["--port=9000", "--headless", "--max_num-seqs", "4"]
    assert evaluate(vllm(vllm_extra_args=arguments), "__vllm_flags_twice") == ["--port", "--headless"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    page_cache = templar("page_cache")
    drop = evaluate(page_cache, "lookup('ansible.builtin.template', 'templates/gb10-drop-caches.service.j2')")
    serve = unit(vllm(gb10_cluster="pair1", vllm_extra_args=["50%", "$HOME", "a b"]))
    files = []
    for name, text in {"gb10-drop-caches.service": drop, "gb10-vllm.service": serve}.items():
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
    text = evaluate(templar("page_cache"), "lookup('ansible.builtin.template', 'templates/gb10-memory-gate.j2')")
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
    "nvidia-kernel-common", "nvidia-kernel-open-dkms", "nvidia-dkms-open", "nvidia-firmware", "nvidia-modprobe",
    "libnvidia-compute", "libnvidia-gl", "libnvidia-decode", "libnvidia-encode", "libnvidia-extra", "libnvidia-cfg1",
    "libnvidia-fbc1", "libnvidia-common", "cuda-drivers", "cuda-drivers-590", "cuda-drivers-fabricmanager",
]  # fmt: skip
FREE = [
    "libnvidia-egl-wayland1", "libnvidia-egl-gbm1", "nvidia-prime", "nvidia-repo-keys", "nvidia-settings",
    "nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container1", "libnvidia-container-tools",
    "nvidia-system-core", "nvidia-spark-run-apt-upgrade-once", "nvidia-fs-dkms", "nvidia-cuda-toolkit",
    "nvidia-nsight-systems-2025.3.2", "libnvidia-ml-dev", "cuda-toolkit-13-1", "docker-ce",
]  # fmt: skip
PREFERENCES = [
    # package, version, priority that its stanza gives
    ("libnvidia-compute-580", "580.142-0ubuntu0.24.04.1", 990),
    ("nvidia-modprobe", "580.142-0ubuntu0.24.04.1", 990),
    ("libnvidia-compute-580", "580.178.04-0ubuntu0.24.04.1", -1),
    *((name, "590.48.01-1ubuntu1", -1) for name in DRIVER),
    *((name, "590.48.01-1ubuntu1", None) for name in FREE),
    ("linux-nvidia-hwe-24.04", "6.17.0-1014.14", 990),
    ("linux-nvidia-hwe-24.04", "7.0.0-1025.25", -1),
    ("linux-image-nvidia-hwe-24.04", "6.17.0-1014.14", 990),
    ("linux-modules-nvidia-580-open-6.17.0-1014-nvidia", "6.17.0-1014.14+1000", 990),
    ("linux-image-6.17.0-1032-nvidia", "6.17.0-1032.32", -1),
    ("linux-modules-nvidia-590-open-nvidia-hwe-24.04", "6.17.0-1032.32", -1),
    ("linux-image-generic", "6.8.0-100.100", None),
]


def stanzas() -> list[dict[str, str]]:
    text: str = evaluate(templar("driver"), "lookup('ansible.builtin.template', 'templates/apt-preferences.j2')")
    blocks = re.split(r"\n\s*\n", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    fields = (dict(line.split(": ", 1) for line in block.strip().splitlines()) for block in blocks)
    return [stanza for stanza in fields if stanza]


def matches(pattern: str, package: str) -> bool:
    """Whether the POSIX extended regular expression matches, asked of grep: apt knows no others, Python knows more."""
    return subprocess.run(["grep", "-Eiq", pattern], input=package, text=True, check=False).returncode == 0


def priority(package: str, version: str) -> int | None:
    """As apt_preferences(5): the first specific stanza that matches name and version decides."""
    for stanza in stanzas():
        patterns = re.findall(r"/(.*?)/(?=\s|$)", stanza["Package"])
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
    assert len(stanzas()) == 4
    assert all(int(stanza["Pin-Priority"]) < 1000 for stanza in stanzas())


def test_the_host_set_is_read_from_the_host() -> None:
    installed = {"userland": "580.142-0ubuntu0.24.04.1", "kernel": "6.17.0-1014"}
    assert evaluate(templar("driver"), "__driver_installed") == installed
    without_modules = facts(packages={}, kernel="6.17.0-1020-nvidia")
    spark = templar("driver", ansible_facts={"gb10_spark": without_modules})
    assert evaluate(spark, "__driver_installed") == {"userland": "", "kernel": "6.17.0-1020"}


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
        *((name, True) for name in DRIVER),
        *((name, False) for name in FREE),
    ],
)
def test_holds_and_unattended_upgrades_go_by_the_same_names(package: str, held: bool) -> None:
    assert any(re.search(pattern, package) for pattern in evaluate(templar("driver"), "__driver_hold")) == held
    assert blacklisted("driver", package) == held


@pytest.mark.parametrize(
    ("installed", "wanted"),
    [(None, "1.19.0-1"), ("1.18.2-1", "1.19.0-1"), ("1.19.0-1", "1.19.0-1"), ("1.19.1-1", "1.19.1-1")],
)
def test_a_newer_container_toolkit_stays(installed: str | None, wanted: str) -> None:
    packages = {"nvidia-container-toolkit": installed} if installed else {}
    spark = templar("container_toolkit", ansible_facts={"gb10_spark": facts(packages=packages)})
    assert evaluate(spark, "__container_toolkit_wanted") == wanted


def test_kernel_parameters_come_from_the_catalog_and_can_be_replaced() -> None:
    extra = {"net.ipv4.conf.all.arp_announce": 1, "vm.swappiness": 10}
    sysctls = evaluate(templar("kernel_parameters", kernel_parameters_extra=extra), "__kernel_parameters_sysctls")
    assert {entry["sysctl"]: entry["value"] for entry in sysctls} == {
        "net.ipv4.conf.all.arp_ignore": "1",
        "net.ipv4.conf.all.arp_announce": "1",
        "vm.swappiness": "10",
    }


def test_the_fabric_document_holds_one_profile_for_each_rail() -> None:
    both = {host: facts() for host in ("spark-a", "spark-b")}
    fabric = templar("fabric", "spark-b", __fabric_plan=plan("pair", ["spark-a", "spark-b"], both))
    text = evaluate(fabric, "lookup('ansible.builtin.template', 'templates/resources.yml.j2')")
    document = yaml.safe_load(text)
    profiles = [resource for resource in document if "nm_profile" in resource]
    assert [profile["addresses"] for profile in profiles] == [["192.168.100.11/24"], ["192.168.101.11/24"]]
    assert {profile["mtu"] for profile in profiles} == {9000}
    environment = next(resource for resource in document if resource.get("file") == "/etc/gb10-fleet/nccl.env")
    assert "NCCL_IB_ADDR_RANGE=192.168.100.0/23\n" in environment["content"]


def documents(role: str, templar: Templar) -> list[Document]:
    """The documents of a role's main tasks, parsed by the engine."""
    tasks = DataLoader().load_from_file(  # type: ignore[no-untyped-call]
        str(ROOT / "roles" / role / "tasks" / "main.yml"), trusted_as_template=True
    )
    found = []
    for task in tasks:
        if "gb10.fleet.host_state" in task:
            resources = [dict(entry) for entry in templar.template(task["gb10.fleet.host_state"]["resources"])]
            for entry in resources:
                if "template" in entry:
                    path = f"templates/{entry.pop('template')}"
                    entry["content"] = evaluate(templar, f"lookup('ansible.builtin.template', '{path}')")
            found.append(parse_document(role, resources, {}))
    return found


@pytest.mark.parametrize(
    "role", ["driver", "docker", "container_toolkit", "kernel_parameters", "page_cache", "fabric", "vllm"]
)
def test_the_engine_accepts_what_the_role_wants(role: str) -> None:
    both = {host: facts() for host in ("spark-a", "spark-b")}
    fabric = plan("pair", ["spark-a", "spark-b"], both)
    given = PAIR | {"__fabric_plan": fabric}
    if role == "vllm":
        given |= {"vllm_image": DIGEST, "vllm_model": "a/b", "vllm_api_key": "sesame"}
    assert all(document.resources for document in documents(role, templar(role, **given)))


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
