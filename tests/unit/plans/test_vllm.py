"""The plan of vLLM, on dataclasses: what follows from the settings, what is refused, and what needs the fabric."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import plan as plans
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import container as vllm_container
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import vllm

from tests.support.proofs import facts
from tests.support.services import only_service
from tests.support.vllm_plans import PAIR, SAID, alone, paired, settings

TOKEN = "0123456789abcdef" * 2
RAY = {"vllm_executor": "ray", "vllm_ray_token": TOKEN}


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({}, "served_name", "openai/gpt-oss-120b"),
        ({"vllm_served_model_name": "gpt"}, "served_name", "gpt"),
        ({}, "url", "http://127.0.0.1:8000"),
        ({"vllm_host": "0.0.0.0", "vllm_api_key": "k", "vllm_port": 9}, "url", "http://127.0.0.1:9"),  # noqa: S104
        ({"vllm_host": "2001:db8::7", "vllm_api_key": "k"}, "url", "http://[2001:db8::7]:8000"),
        ({}, "secrets", ()),
        ({"vllm_api_key": "k", "vllm_huggingface_token": "h"}, "secrets", ("VLLM_API_KEY",)),
        ({"vllm_huggingface_token": "h", "vllm_fetch": False}, "secrets", ("HF_TOKEN",)),
        ({}, "image_name", "gb10-fleet/vllm:000000000000"),
        ({"vllm_image": "a/b:1", "vllm_allow_tag": True}, "image_name", "gb10-fleet/vllm:tag-a-b-1"),
    ],
)
def test_what_follows_from_the_settings(given: dict[str, Any], name: str, value: Any) -> None:
    made = alone(**given)
    assert made.refusals == made.joint_refusals == ()
    assert getattr(made, name) == value


@pytest.mark.parametrize(
    ("given", "hosts", "names"),
    [
        ({}, 1, ["vllm_port"]),
        ({}, 2, ["vllm_port", "vllm_join_port", "vllm_transfer_port", "vllm_master_port"]),
        (RAY, 2, ["vllm_port", "vllm_join_port", "vllm_transfer_port", "vllm_ray_port"]),
    ],
)
def test_the_ports_that_are_in_use(given: dict[str, Any], hosts: int, names: list[str]) -> None:
    assert list(settings(**given).ports_in_use(hosts)) == names


@pytest.mark.parametrize("host", PAIR)
def test_ranks_meet_on_the_fabric(host: str) -> None:
    made = paired(host)
    assert (made.rank, made.members) == (PAIR.index(host), PAIR)
    words = dict(zip(made.argv, made.argv[1:], strict=False))
    assert words["--master-addr"] == made.program["join"]["members"][0]["address"] == "192.168.100.10"
    assert made.program["argv"] == list(made.argv) and len(made.program["rails"]) == 2


@pytest.mark.parametrize(
    ("account", "password", "said"),
    [
        ("$oauthtoken", "sesame", None),
        ("", "", None),
        ("robot", "", "vllm_registry_username is set and vllm_registry_password is not"),
        ("", "sesame", "vllm_registry_password is set and vllm_registry_username is not"),
        ("a:b", "sesame", "holds a colon"),
        ("robot", "sesame\n", "line break"),
    ],
)
def test_credentials_of_a_registry_are_both_or_none(account: str, password: str, said: str | None) -> None:
    made = alone(vllm_registry_username=account, vllm_registry_password=password)
    assert [said in text for text in made.refusals if said] == ([True] if said else [])
    assert (made.refusals == ()) == (said is None)
    assert "sesame" not in json.dumps(plans.shown(made))


def keyed(*keys: dict[str, str] | None, **variables: Any) -> list[ServicePlan]:
    """The plans of a pair whose hosts hold these keys."""
    said = SAID | {"fabric_topology": "pair"} | variables
    known = {host: facts(host) | {"join_key": key} for host, key in zip(PAIR, keys, strict=True)}
    return [
        only_service(View(host, known[host], said, PAIR, {other: known[other]}, {other: said}))
        for host, other in (PAIR, PAIR[::-1])
    ]


def test_the_secret_of_a_cluster_is_kept_while_all_have_it_and_new_with_each_change() -> None:
    first, other = keyed(None, None)
    assert first.join_for == other.join_for and len(first.join_for) == 64
    assert first.join_kept == other.join_kept == {} and first.program["join"]["key"] == "/etc/gb10-fleet/join.key"
    held = {"for": first.join_for, "sha256": "1" * 64}
    assert [plan.join_kept for plan in keyed(held, dict(held))] == [{"sha256": "1" * 64}] * 2
    for mine, theirs in ((held, None), (None, held), (held, held | {"sha256": "2" * 64}), (held | {"for": "x"},) * 2):
        assert [plan.join_kept for plan in keyed(mine, theirs)] == [{}, {}]
    moved = keyed(held, held, vllm_max_model_len=4096)
    assert [plan.join_kept for plan in moved] == [{}, {}] and moved[0].join_for != first.join_for
    assert (alone().join_for, alone().join_kept) == ("", {})


@pytest.mark.parametrize("pair", [False, True])
def test_a_container_that_serves_fetched_files_reads_them_without_power_over_files(pair: bool) -> None:
    argv = (paired() if pair else alone()).argv
    words = " ".join(argv)
    assert "--cap-drop ALL" in words and "DAC_OVERRIDE" not in words and "FOWNER" not in words
    assert [argv[at + 1] for at, word in enumerate(argv) if word == "--volume"] == [
        f"{alone().compiled}:/root/.cache",
        "/var/cache/gb10-vllm/huggingface/hub:/root/.cache/huggingface/hub:ro",
    ]
    argv = alone(vllm_fetch=False, vllm_cache_directory="/srv/models").argv
    assert "--cap-add DAC_OVERRIDE --cap-add FOWNER" in " ".join(argv)
    assert argv[argv.index("--volume") + 1] == "/srv/models:/root/.cache"
    assert alone().program["cache"] == "/var/cache/gb10-compiled"
    assert alone(vllm_fetch=False).program["cache"] == "/var/cache/gb10-vllm"


def test_the_files_are_those_of_the_unit() -> None:
    made = alone(vllm_environment={"HF_ENDPOINT": "https://hub.example"}, vllm_model_revision="v1")
    assert (made.files.name, made.files.revision) == (made.program["image"], "v1")
    assert made.files.environment == {**vllm_container.HUB_HOME, "HF_ENDPOINT": "https://hub.example"}


def test_a_fabric_that_cannot_be_planned_hides_no_other_refusal() -> None:
    made = paired(peers=False, vllm_model="")
    assert ["Name the Hugging Face id" in text for text in made.refusals] == [True]
    assert ["no facts of spark-b" in text for text in made.joint_refusals] == [True]
    assert made.argv == () and made.files.port == 29502


def test_what_a_person_wants_counts_over_what_the_role_sets_and_the_token_over_both() -> None:
    said = settings(**RAY, vllm_environment={"HF_HOME": "/data", "RAY_AUTH_MODE": "none"})
    made = vllm_container.environment(vllm.ENGINE, said, {"VLLM_HOST_IP": "HOST"})
    assert (made["HF_HOME"], made["RAY_AUTH_MODE"], made["VLLM_HOST_IP"]) == ("/data", "token", "HOST")


def test_a_plan_may_be_shown() -> None:
    made = paired(**RAY, vllm_api_key="sesame", vllm_huggingface_token="hf_sesame", vllm_fetch=False)  # noqa: S106
    shown = json.dumps(plans.shown(made))
    assert made.argv and not any(secret in shown for secret in ("sesame", TOKEN))


# --- what the rules of serving ask about the container

OPTIONS = vllm_container.docker_options(settings(), 2)
WORDS = vllm_container.ray_words(settings(), "192.0.2.1", ["192.0.2.1"])


def test_the_container_of_a_cluster_has_nothing_that_a_rule_is_against() -> None:
    assert vllm_container.traits(OPTIONS, WORDS) == frozenset()


@pytest.mark.parametrize(
    ("more", "trait"),
    [
        (["--privileged"], "privileged"),
        (["--memory=100g"], "memory_limit"),
        (["--restart", "always"], "restart_policy"),
        (["-p", "8000:8000"], "published_port"),
        (["--detach"], "detached"),
    ],
)
def test_a_word_of_docker_run_is_a_trait(more: list[str], trait: str) -> None:
    assert vllm_container.traits([*OPTIONS, *more], WORDS) == {trait}


def test_what_is_left_out_is_a_trait() -> None:
    assert vllm_container.traits(vllm_container.docker_options(settings(), 1), []) == {"no_infiniband", "no_memlock"}
    without = [word for word in WORDS if not word.startswith("--object-store-memory")]
    assert vllm_container.traits(OPTIONS, without) == {"ray_object_store_default"}


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ("--privileged", "privileged"),
        ("--memory=100g", "container_memory_limit"),
        ("--restart=always", "restart_policy"),
        ("--publish=8000:8000", "published_port"),
        ("--detach", "detached"),
    ],
)
def test_a_rule_about_the_container_judges_the_one_that_would_start(
    monkeypatch: pytest.MonkeyPatch, option: str, rule: str
) -> None:
    def objections() -> str:
        made = paired()
        return " ".join([*made.refusals, *(str(each["id"]) for each in made.findings)])

    assert rule not in objections()
    own = vllm_container.docker_options
    monkeypatch.setattr(vllm_container, "docker_options", lambda *given: [*own(*given), option])
    assert rule in objections()


@pytest.mark.parametrize(("dropped", "rule"), [("/dev/infiniband", "no_infiniband"), ("IPC_LOCK", "no_infiniband")])
def test_rdma_in_the_container_is_judged(monkeypatch: pytest.MonkeyPatch, dropped: str, rule: str) -> None:
    assert paired().refusals == ()
    own = vllm_container.docker_options
    monkeypatch.setattr(
        vllm_container, "docker_options", lambda *given: [word for word in own(*given) if word != dropped]
    )
    assert [text.split(":")[0] for text in paired().refusals] == [f"rule {rule}"]


def test_the_store_of_ray_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ray_object_store" not in {each["id"] for each in paired(**RAY).findings}
    own = vllm_container.ray_words
    monkeypatch.setattr(
        vllm_container,
        "ray_words",
        lambda *given: [word for word in own(*given) if not word.startswith("--object-store-memory")],
    )
    assert "ray_object_store" in {each["id"] for each in paired(**RAY).findings}
