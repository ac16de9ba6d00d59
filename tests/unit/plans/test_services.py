"""Several services of a host: what an entry overlays, where it runs, what its files are called, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.reading import services as on_host
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import plan as plans
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import firewall
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import services

from tests.support.proofs import facts
from tests.support.service_plans import CHAT, EMBED, GATEWAY, HEAR, IMAGE, PAIR, after, document, made, view

ROOT = Path(__file__).parents[3]


def test_each_service_has_its_names_and_the_short_form_keeps_its_own() -> None:
    found = made({"embed": EMBED}, vllm_model="openai/gpt-oss-120b", vllm_gpu_memory_utilization=0.6)
    assert list(found) == ["vllm", "embed"]
    short, embed = found.values()
    assert (short.unit, short.config, short.env_file) == (
        "gb10-vllm.service", "/etc/gb10-fleet/vllm.json", "/etc/gb10-fleet/vllm.env",
    )  # fmt: skip
    assert (short.status_file, short.join_file) == ("/run/gb10-vllm/status.json", "/etc/gb10-fleet/join.key")
    assert (embed.unit, embed.container, embed.config, embed.env_file, embed.status_file, embed.join_file) == (
        "gb10-vllm-embed.service", "gb10-vllm-embed", "/etc/gb10-fleet/vllm-embed.json",
        "/etc/gb10-fleet/vllm-embed.env", "/run/gb10-vllm-embed/status.json", "/etc/gb10-fleet/join-embed.key",
    )  # fmt: skip
    assert after(embed.argv, "--name") == embed.program["container"] == "gb10-vllm-embed"
    assert not {*short.restart_on} & {
        embed.config,
        embed.env_file,
        embed.join_file,
        f"/etc/systemd/system/{embed.unit}",
    }


@pytest.mark.parametrize(
    ("host", "entry", "logs_in"),
    [
        ({"vllm_image": IMAGE}, {}, True),
        ({"vllm_image": IMAGE}, {"image": "registry.example/other@sha256:" + "1" * 64}, True),
        ({"vllm_image": IMAGE}, {"image": "docker.io/x/other@sha256:" + "1" * 64}, False),
        ({"vllm_image": IMAGE}, {"image": "x/y@sha256:" + "1" * 64, "registry_username": "me"}, True),
        ({"vllm_image": IMAGE}, {"image": "x/y@sha256:" + "1" * 64, "registry_username": ""}, False),
        ({}, {"image": "registry.example/other@sha256:" + "1" * 64}, True),
    ],
)
def test_the_account_of_a_registry_goes_to_no_other(host: dict[str, Any], entry: dict[str, Any], logs_in: bool) -> None:
    seen = view({"chat": CHAT | {"registry_password": entry.get("registry_username", "word")} | entry})
    del seen.variables["vllm_image"]  # type: ignore[attr-defined]
    seen.variables.update({"vllm_registry_username": "robot", "vllm_registry_password": "word"} | host)  # type: ignore[attr-defined]
    assert [each.registry_login for each in vllm.plan(seen).services] == [logs_in]


@pytest.mark.parametrize(
    ("other", "logs_in"),
    [
        ({"image": "registry.example/b@sha256:" + "1" * 64}, {"chat", "embed"}),
        ({"image": "evil.example/b@sha256:" + "1" * 64}, set()),
        ({}, set()),  # of the role's own image, on Docker Hub
        ({"image": "evil.example/b@sha256:" + "1" * 64, "registry_username": ""}, {"chat"}),
    ],
)
def test_an_account_of_nobody_knows_which_registry_goes_to_none(other: dict[str, Any], logs_in: set[str]) -> None:
    """Both registries got it: a host without vllm_image says no registry."""
    first = CHAT | {"image": "registry.example/a@sha256:" + "1" * 64}
    seen = view({"chat": first, "embed": EMBED | {"registry_password": other.get("registry_username", "word")} | other})
    del seen.variables["vllm_image"]  # type: ignore[attr-defined]
    seen.variables.update({"vllm_registry_username": "robot", "vllm_registry_password": "word"})  # type: ignore[attr-defined]
    assert {each.name for each in vllm.plan(seen).services if each.registry_login} == logs_in


@pytest.mark.parametrize(
    ("one", "two", "refused"),
    [
        ("a/x@sha256:" + "0" * 64, "b/y@sha256:" + "0" * 12 + "1" * 52, True),
        ("a/x@sha256:" + "0" * 64, "mirror.example/x@sha256:" + "0" * 64, False),  # the same one
        ("a/x@sha256:" + "0" * 64, "a/x@sha256:" + "1" * 64, False),
        ("a/x:1", "a-x:1", True),
        ("a/x:1", "a/x:1", False),
    ],
)
def test_two_images_that_a_host_would_call_alike_are_refused(one: str, two: str, refused: bool) -> None:
    """Nobody pulled the second one: the first one's container ran in its place, and with its key."""
    entries = {"chat": CHAT | {"image": one, "allow_tag": True}, "embed": EMBED | {"image": two, "allow_tag": True}}
    told = [text for text in vllm.plan(view(entries)).refusals if "would be called as" in text]
    assert bool(told) is refused


def test_an_entry_overlays_the_host_but_takes_nothing_of_its_model() -> None:
    of_the_host = {
        "vllm_model": "openai/gpt-oss-120b", "vllm_served_model_name": "big", "vllm_model_revision": "v1",
        "vllm_environment": {"A": "1"}, "vllm_ready_timeout": 99, "vllm_gpu_memory_utilization": 0.6,
    }  # fmt: skip
    found = made({"embed": EMBED | {"extra_args": ["--seed", "1"]}}, **of_the_host)
    short, embed = found["vllm"], found["embed"]
    assert (embed.served_name, embed.files.revision, embed.port) == ("Qwen/Qwen3-Embedding-0.6B", "main", 8001)
    assert (short.served_name, short.files.revision, short.port) == ("big", "v1", 8000)
    assert embed.ready_timeout == 99 and "A=1" in embed.argv and after(embed.argv, "--seed") == "1"
    assert "--seed" not in short.argv
    assert after(embed.argv, "--gpu-memory-utilization") == "0.065", "8 of 121.7 GiB, rounded down"
    assert embed.memory_gib == 8 and embed.program["memory_gib"] == 8


@pytest.mark.parametrize(
    ("hosts", "here"),
    [(None, PAIR), (["spark-a"], PAIR[:1]), (["near"], PAIR[:1]), (["sparks"], PAIR), (["all"], PAIR), ([], ())],
)
def test_a_service_is_on_the_hosts_that_it_names(hosts: list[str] | None, here: tuple[str, ...]) -> None:
    entry = EMBED | ({} if hosts is None else {"hosts": hosts})
    assert tuple(host for host in PAIR if "embed" in made({"embed": entry}, host)) == here


@pytest.mark.parametrize("host", PAIR)
def test_a_service_of_a_cluster_stands_beside_one_of_a_host(host: str) -> None:
    found = made({"chat": CHAT, "embed": EMBED | {"span": "host"}}, host, hosts=2)
    chat, embed = found["chat"], found["embed"]
    assert (chat.members, chat.rank) == (PAIR, PAIR.index(host)) and chat.program["rails"]
    assert chat.join_for and chat.program["join"]["key"] == "/etc/gb10-fleet/join-chat.key"
    assert (embed.members, embed.rank) == ((host,), 0)
    assert embed.program["join"] is None and embed.join_for == "" and "/dev/infiniband" not in embed.argv


def test_the_secret_of_a_named_service_is_kept_by_its_own_fact() -> None:
    first = made({"chat": CHAT}, hosts=2)["chat"]
    key = {"for": first.join_for, "sha256": "1" * 64}
    seen = view({"chat": CHAT}, hosts=2)
    for known in (seen.own_facts, *seen.peers.values()):
        known["join_keys"] = {"chat": key}  # type: ignore[index]
        known["join_key"] = {"for": first.join_for, "sha256": "2" * 64}  # type: ignore[index]
    assert vllm.plan(seen).services[0].join_kept == {"sha256": "1" * 64}


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"vllm": CHAT}, "vllm_services.vllm: a service is named by"),
        ({"Chat": CHAT}, "vllm_services.Chat: a service is named by"),
        ({"a/b": CHAT}, "vllm_services.a/b: a service is named by"),
        ({"chat": "x"}, "vllm_services.chat is not a mapping. Write its model"),
        (
            {"chat": CHAT | {"port": "eighty"}},
            "vllm_services.chat.port is the text 'eighty', and must be a whole number",
        ),
        ({"chat": CHAT | {"extra_args": "--x"}}, "vllm_services.chat.extra_args is not a list"),
        ({"chat": CHAT | {"api_key": []}}, "vllm_services.chat.api_key is not a text"),
        ({"chat": CHAT | {"executor": "uni"}}, "value of vllm_services.chat.executor must be one of: mp, ray"),
        ({"chat": CHAT | {"span": "all"}}, "value of vllm_services.chat.span must be one of: cluster, host"),
        ({"chat": CHAT | {"kind": "tgi"}}, "value of vllm_services.chat.kind must be one of"),
        ({"chat": CHAT | {"memory_gib": "much"}}, "vllm_services.chat.memory_gib is the text 'much'"),
        ({"chat": CHAT | {"vllm_port": 1}}, "vllm_services.chat has vllm_port, which is no variable"),
        ({"chat": CHAT | {"services": {}}}, "vllm_services.chat has services, which is no variable"),
        ({"chat": {"port": 1}}, "vllm_services.chat.model is missing"),
        ({"chat": CHAT | {"gpu_memory_utilization": 0.5}}, "which say the same"),
        ({"chat": CHAT | {"hosts": ["spark-z"]}}, "vllm_services.chat.hosts names spark-z, and the inventory has no"),
        ({"chat": CHAT | {"hosts": ["near"]}}, "vllm_services.chat spans the cluster, and spark-b has no such service"),
    ],
)
def test_an_entry_that_is_not_as_it_must_be_is_named(entries: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError) as raised:
        vllm.plan(view(entries, hosts=2))
    assert text in str(raised.value) and "Traceback" not in str(raised.value)


def test_what_speaks_against_a_service_names_it() -> None:
    plan = vllm.plan(view({"chat": CHAT, "embed": EMBED | {"image": "a/b:latest"}}))
    (text,) = plan.refusals
    assert text.startswith("embed: vllm_image a/b:latest names no digest")


def test_an_empty_list_of_services_is_none_and_no_list_is_a_question() -> None:
    assert vllm.plan(view({})).services == () and vllm.plan(view({})).refusals == ()
    assert vllm.plan(View("spark-a", facts(), {"vllm_image": IMAGE})).refusals


def test_adding_or_changing_a_service_changes_no_file_of_another() -> None:
    one, two, changed = (
        {each["file"]: each for each in document(entries).resources if "file" in each}
        for entries in ({"chat": CHAT}, {"chat": CHAT, "embed": EMBED}, {"chat": CHAT, "embed": EMBED | {"port": 8009}})
    )
    assert {path: two[path] for path in one} == one
    assert {path for path in two if two[path] != changed[path]} == {
        "/etc/gb10-fleet/vllm-embed.json", "/etc/gb10-fleet/guard-gb10-vllm-embed.env",
    }  # fmt: skip
    (unit,) = (
        each
        for each in document({"chat": CHAT, "embed": EMBED}).resources
        if each.get("unit", "").endswith("chat.service")
    )
    assert not [path for path in unit["restart_on"] if "embed" in path]


def test_each_service_has_its_own_secrets_and_no_plan_shows_one() -> None:
    entries = {"chat": CHAT | {"api_key": "sesame"}, "embed": EMBED}
    found = {each["file"]: each for each in document(entries, vllm_api_key="open").resources if "file" in each}
    assert found["/etc/gb10-fleet/vllm-chat.env"]["content"] == "VLLM_API_KEY=sesame\n"
    assert found["/etc/gb10-fleet/vllm-embed.env"]["content"] == "VLLM_API_KEY=open\n"
    shown = json.dumps(plans.shown(vllm.plan(view(entries, vllm_api_key="open"))))
    assert "sesame" not in shown and '"open"' not in shown


def test_the_unit_of_a_service_runs_it_by_name() -> None:
    found = {each["file"]: each for each in document({"chat": CHAT}).resources if "file" in each}
    text = found["/etc/systemd/system/gb10-vllm-chat.service"]["content"]
    for line in (
        "ExecStart=/usr/local/sbin/gb10-vllm chat", "RuntimeDirectory=gb10-vllm-chat gb10-loading",
        "ExecStopPost=-/usr/bin/docker rm --force gb10-vllm-chat",
        "ExecStartPost=-/usr/bin/systemctl start --no-block gb10-page-cache-guard@gb10-vllm-chat.service",
    ):  # fmt: skip
        assert line in text.splitlines()
    assert services.Names("chat").unit == "gb10-vllm-chat.service"


def test_another_container_is_a_service_with_the_same_confinement() -> None:
    found = made({"chat": CHAT, "hear": HEAR}, hosts=2)
    chat, hear = found["chat"], found["hear"]
    assert (hear.kind, hear.members, hear.rank, hear.served_name, hear.memory_gib) == (
        "container", ("spark-a",), 0, "whisper", 6,
    )  # fmt: skip
    assert hear.argv[-3:] == (hear.image_name, "--port", "8002") and "THREADS=4" in hear.argv
    words = " ".join(hear.argv)
    for confined in ("--cap-drop ALL", "no-new-privileges", "--name gb10-vllm-hear", "--oom-score-adj 1000"):
        assert confined in words and confined.replace("hear", "chat") in " ".join(chat.argv)
    assert not {"DAC_OVERRIDE", "--volume", "--env-file", "--entrypoint"} & {*hear.argv}
    assert hear.program["ready_url"] == "http://127.0.0.1:8002/v1/health" and hear.program["memory_gib"] == 6
    assert chat.program["ready_url"] is None
    assert (hear.files.fetch, hear.files.model, hear.secrets) == (False, "", ())


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        *(
            ({key: value for key, value in HEAR.items() if key != left_out}, f"has no {left_out}.")
            for left_out in ("image", "port", "served_model_name", "memory_gib")
        ),
        (HEAR | {"span": "cluster"}, "vllm_services.hear.span is cluster, and a container runs on one host"),
        (HEAR | {"model": "a/b"}, "vllm_services.hear.model is what vLLM fetches"),
        (HEAR | {"health": "health"}, "vllm_services.hear.health is 'health'"),
        (CHAT | {"args": []}, "vllm_services.hear has args, which is no variable"),
    ],
)
def test_what_a_container_must_and_must_not_say(entry: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError) as raised:
        vllm.plan(view({"hear": entry}, hosts=2))
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"image": "registry.example/hear:latest"}, "hear: vllm_image registry.example/hear:latest names no digest"),
        ({"args": ["a\nb"]}, "hear: args or environment hold a line break"),
        ({"args": ["http://me:sesame@proxy"]}, "hear: a URL in args holds a password"),
        ({"environment": {"TOKEN": "x"}}, "secrets go into"),
        ({"mounts": ["/srv/models:/models:ro"]}, "vllm_allow_mounts"),
        ({"security_options": ["seccomp=unconfined"]}, "vllm_allow_security_options"),
        ({"memory_gib": 118}, "its services take"),
    ],
)
def test_a_container_is_confined_and_counted_as_any_service(more: dict[str, Any], text: str) -> None:
    refusals = vllm.plan(view({"hear": HEAR | more})).refusals
    assert any(text in each for each in refusals), refusals


def test_the_port_of_a_container_is_closed_wherever_it_listens() -> None:
    guarded = firewall.plan(view({"chat": CHAT, "hear": HEAR})).guarded
    assert "8002" in guarded and "8000" not in guarded


def test_every_service_waits_for_the_rules() -> None:
    units = firewall.plan(view({"chat": CHAT, "hear": HEAR})).units
    assert units == ("gb10-vllm-chat.service", "gb10-vllm-hear.service", "gb10-gateway.service")


@pytest.mark.parametrize(("host", "names"), [("spark-a", ["chat", "embed"]), ("spark-b", ["chat", "embed", "rerank"])])
def test_the_example_of_many_services_fits(host: str, names: list[str]) -> None:
    read = yaml.safe_load((ROOT / "inventory/example/many/hosts.yml").read_text())
    (cluster,) = read["all"]["children"]["sparks"]["children"].values()
    assert list(cluster["hosts"]) == list(PAIR)
    seen = view(cluster["vars"]["vllm_services"], host, 2)
    plan = vllm.plan(seen)
    assert (plan.refusals, plan.joint_refusals) == ((), ()) and [each.name for each in plan.services] == names
    assert not [each for each in plan.findings if "reranker_as_chat" in str(each)]


def test_ray_of_a_named_service_knows_its_unit() -> None:
    by_ray = {"executor": "ray", "ray_token": "x" * 32}
    named = made({"chat": CHAT | by_ray}, hosts=2)["chat"].argv
    assert after(named, "--unit") == "gb10-vllm-chat" and named.index("--unit") < named.index("--")
    short = {f"vllm_{name}": value for name, value in by_ray.items()}
    assert "--unit" not in made({}, hosts=2, vllm_model="openai/gpt-oss-120b", **short)["vllm"].argv


def test_a_service_on_demand_is_put_there_and_not_started() -> None:
    sleeper = EMBED | {"on_demand": True}
    document = render("vllm", view({"chat": CHAT, "embed": sleeper}, **GATEWAY))
    assert not document.refusals
    units = [each for each in document.resources if "unit" in each]
    assert [(each["unit"], each["enabled"], each.get("state"), each.get("woken_by")) for each in units] == [
        ("gb10-wake@vllm-embed.socket", True, "started", None),
        ("gb10-vllm-chat.service", True, "started", None),
        ("gb10-vllm-embed.service", False, None, "gb10-wake@vllm-embed.socket"),
    ]
    files = {each["file"]: str(each.get("content")) for each in document.resources if "file" in each}
    assert "Wants=gb10-%i.service" in files["/etc/systemd/system/gb10-wake@.service"]
    assert "ListenStream=/run/gb10-wake/%i.sock" in files["/etc/systemd/system/gb10-wake@.socket"]
    assert "--load 300 --least 5" in files["/etc/systemd/system/gb10-wake@.service"]


def test_without_one_on_demand_there_is_nothing_to_wake() -> None:
    document = render("vllm", view({"chat": CHAT, "embed": EMBED}, **GATEWAY))
    assert not [each for each in document.resources if "wake" in str(each.get("unit", each.get("file")))]


def test_the_short_form_and_a_container_may_sleep_too() -> None:
    found = made({}, vllm_model="openai/gpt-oss-120b", vllm_on_demand=True, **GATEWAY)
    assert (found["vllm"].on_demand, found["vllm"].socket) == (True, "gb10-wake@vllm.socket")
    other = {"kind": "container", "image": IMAGE, "port": 8003, "served_model_name": "x", "memory_gib": 4}
    assert made({"x": other | {"on_demand": True}}, **GATEWAY)["x"].on_demand


def test_a_container_has_its_name_on_the_host_so_that_a_stop_drains_it() -> None:
    other = {"kind": "container", "image": IMAGE, "port": 8003, "served_model_name": "hear", "memory_gib": 4}
    found = on_host._settings(json.loads(json.dumps(made({"x": other})["x"].program)))
    assert (found["served_name"], found["port"], found["url"]) == ("hear", 8003, "http://127.0.0.1:8003")


@pytest.mark.parametrize(
    ("hosts", "entry", "variables", "says"),
    [
        (1, EMBED, {}, "embed: on_demand is true, and this host has no gateway"),
        (2, EMBED, GATEWAY, "embed: on_demand is true, and it spans spark-a, spark-b"),
        (2, EMBED | {"span": "host"}, GATEWAY, ""),
    ],
)
def test_where_no_request_could_start_it_it_is_refused(
    hosts: int, entry: dict[str, Any], variables: dict[str, Any], says: str
) -> None:
    refused = vllm.plan(view({"embed": entry | {"on_demand": True}}, hosts=hosts, **variables)).refusals
    assert says in refused[0] if says else not refused, refused


def test_what_sleeps_counts_in_the_budget() -> None:
    large = CHAT | {"memory_gib": 100}
    refused = vllm.plan(
        view({"chat": large, "embed": EMBED | {"memory_gib": 20, "on_demand": True}}, **GATEWAY)
    ).refusals
    assert "its services take 120.0 GiB" in refused[0]
