"""Entries of `vllm_services` that are odd: each is refused by its whole name, and none shows what may be a secret."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.action import explain
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import services as gateway_services
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm

from tests.support.service_plans import EMBED, HEAR, IMAGE, PAIR, made, view

SECRET = "S3SAME"  # noqa: S105
BARE = {"model": "acme/m", "port": 8001}


def refused(entries: Any, **variables: Any) -> str:
    with pytest.raises(SettingsError) as raised:
        vllm.plan(view(entries, **variables))
    return str(raised.value)


@pytest.mark.parametrize("entry", [EMBED, HEAR], ids=["vllm", "container"])
@pytest.mark.parametrize("key", ["memory_gib", "port", "hosts", "kind", "model", "health", "ready_timeout"])
def test_a_key_without_a_value_is_refused(entry: dict[str, Any], key: str) -> None:
    if key in entry or key != "health":
        assert f"vllm_services.one.{key} is empty. Give it a value, or leave it out." in refused(
            {"one": entry | {key: None}}
        )


@pytest.mark.parametrize("key", ["engine", "kind"])
def test_an_engine_that_does_not_exist_is_all_that_is_said(key: str) -> None:
    """By which keys an entry would be judged, nobody knows then."""
    text = refused({"one": BARE | {key: "llama.cpp", "gguf": "m.gguf"}})
    assert text.startswith(f"value of vllm_services.one.{key} must be one of: ") and "gguf" not in text


@pytest.mark.parametrize("key", ["max_model_len", "gpu_memory_utilization"])
def test_a_key_of_vllm_without_a_value_is_refused(key: str) -> None:
    assert f"vllm_services.one.{key} is empty" in refused({"one": BARE | {key: None}})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "inf", 10**400])
@pytest.mark.parametrize("key", ["memory_gib", "gpu_memory_utilization"])
def test_a_figure_without_an_end_is_refused(key: str, value: Any) -> None:
    text = refused({"one": BARE | {key: value}})
    assert text.startswith(f"vllm_services.one.{key} is ") and "and must be a number" in text and len(text) < 200


@pytest.mark.parametrize("value", [0, -3, "-3", 1e300, "1e308", 122])
@pytest.mark.parametrize("entry", [BARE, HEAR], ids=["vllm", "container"])
def test_memory_that_no_host_has_is_refused_in_gib(entry: dict[str, Any], value: Any) -> None:
    text = refused({"one": entry | {"memory_gib": value}})
    assert text.startswith("vllm_services.one.memory_gib is ") and "utilization" not in text


def test_memory_is_refused_for_the_hosts_of_the_service_alone() -> None:
    alone = BARE | {"memory_gib": 122, "span": "host", "hosts": [PAIR[0]]}
    with pytest.raises(SettingsError) as raised:
        vllm.plan(view({"one": alone}, hosts=2))
    assert f"and {PAIR[0]} has " in str(raised.value) and PAIR[1] not in str(raised.value)


def test_memory_is_not_refused_for_what_another_host_said_in_an_earlier_run() -> None:
    """Its machine may be another one by now: all hosts are looked at in one task, and each is judged by itself."""

    def texts(*, certain: bool) -> str:
        now = view({"one": BARE | {"memory_gib": 40}}, hosts=2)
        small = {name: {**facts, "memory_bytes": 2 * 1024**3} for name, facts in now.peers.items()}
        try:
            return " ".join(vllm.plan(replace(now, peers=small, certain=certain)).refusals)
        except SettingsError as error:
            return str(error)

    assert f"and {PAIR[1]} has 2.0 GiB" in texts(certain=True)
    assert texts(certain=False) == ""


@pytest.mark.parametrize("value", [1e-9, 120])
def test_a_share_that_is_refused_is_told_as_it_was_said(value: float) -> None:
    texts = " ".join(vllm.plan(view({"one": BARE | {"memory_gib": value}})).refusals)
    assert f"one: memory_gib {value:g} is " in texts and "vllm_gpu_memory_utilization" not in texts.split(". ")[0]


@pytest.mark.parametrize(("name", "shown"), [(1, "1"), (True, "true"), (None, "null"), (1.5, "1.5")])
def test_a_name_that_is_no_text_is_refused(name: Any, shown: str) -> None:
    text = refused({name: EMBED, "chat": BARE})
    assert text.startswith(f"vllm_services.{shown}: the name is no text. Put it in quotes")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"hosts": [["x"]]}, "vllm_services.one.hosts holds an item that is no text"),
        ({"hosts": [None]}, "vllm_services.one.hosts holds an item that is no text"),
        ({"hosts": [1]}, "vllm_services.one.hosts names 1, and the inventory has no such host or group"),
        ({"extra_args": [{"a": 1}]}, "vllm_services.one.extra_args holds an item that is no text"),
        ({5: "x"}, "vllm_services.one has 5, which is no variable"),
        ({"vllm_model": "a/b"}, "vllm_services.one has vllm_model, which is no variable"),
        ({"vllm_model": "a/b"}, "Write model."),
    ],
)
def test_an_odd_value_or_key_is_refused(more: dict[Any, Any], says: str) -> None:
    assert says in refused({"one": EMBED | more})


def test_the_short_form_s_name_of_the_model_is_told_once() -> None:
    assert "is missing" not in refused({"one": {"vllm_model": "a/b"}})


ODD = [
    [{"name": "a", "api_key": SECRET}],
    SECRET,
    {"a": SECRET},
    {"a": [{"api_key": SECRET}]},
    {"a": BARE | {"api_key": [SECRET]}},
    {"a": BARE | {"extra_args": SECRET}},
    {"a": BARE | {"environment": [SECRET]}},
    {"a": BARE | {"port": {"api_key": SECRET}}},
    {"a": HEAR | {"args": f"--api-key {SECRET}"}},
]
HELD = [
    {"a": BARE | {"api_key": SECRET}},
    {"a": BARE | {"vllm_api_key": SECRET}},
    {"a": BARE | {"API_KEY": SECRET}},
    {"a": BARE | {"environment": {"X_TOKEN": SECRET}}},
    {"a": BARE | {"extra_args": ["--api-key", SECRET]}},
    {"a": HEAR | {"args": ["--api-key", SECRET]}},
]


@pytest.mark.parametrize("said", ODD)
def test_no_error_shows_a_secret(said: Any) -> None:
    text = refused(said)
    assert SECRET not in text and text.startswith("vllm_services")


@pytest.mark.parametrize("said", [*ODD, *HELD])
def test_no_explanation_shows_a_secret(said: Any) -> None:
    option = catalog.declared_variables().roles["vllm"]["vllm_services"]
    assert SECRET not in str(explain._value("vllm_services", option, {"vllm_services": said}))


def test_what_is_no_secret_is_explained() -> None:
    option = catalog.declared_variables().roles["vllm"]["vllm_services"]
    shown = explain._value("vllm_services", option, {"vllm_services": {"a": EMBED | {"hosts": ["spark-a"]}}})
    assert shown == {"a": EMBED | {"hosts": ["spark-a"]}}


def test_a_plan_that_is_refused_keeps_no_environment() -> None:
    made = vllm.plan(view({"a": BARE | {"environment": {"X_TOKEN": SECRET}}}))
    assert made.refusals and SECRET not in str(made)


def test_the_list_form_is_answered_with_the_mapping() -> None:
    assert "for example {chat: {model: openai/gpt-oss-20b, port: 8001}}" in refused([{"name": "a"}])


@pytest.mark.parametrize(
    "theirs",
    [
        *({"a": "x"}, {"a": None}, {1: BARE}, [], "x", {"a": BARE, "b": 5}),
        *({"a": BARE | {"hosts": 5}}, {"a": BARE | {"hosts": [[1]]}}),
        *({"a": BARE | {"memory_gib": "x"}}, {"a": BARE | {"memory_gib": math.nan}}),
    ],
)
def test_an_odd_entry_of_another_host_is_told_with_that_host(theirs: Any) -> None:
    seen = view({"a": BARE | {"memory_gib": 8}}, hosts=2)
    peer = {**seen.given["spark-b"], "vllm_services": theirs}
    both = View(seen.host, seen.own_facts, seen.variables, PAIR, seen.peers, {"spark-b": peer})
    with pytest.raises(SettingsError, match=r"\Aspark-b: vllm_services"):
        vllm.plan(both)


@pytest.mark.parametrize("theirs", [{"a": "x"}, {"a": BARE | {"hosts": [[1]]}}, {None: BARE, "b": BARE}, 5])
def test_a_gateway_leaves_out_a_host_whose_entries_are_odd(theirs: Any) -> None:
    assert gateway_services.of(View("b", {}, {"vllm_services": theirs})) == ()


@pytest.mark.parametrize("key", ["api_key", "host", "huggingface_token", "extra_args", "speculative"])
def test_what_a_container_is_never_told_is_refused(key: str) -> None:
    value = {"extra_args": ["x"], "speculative": {"method": "mtp"}}.get(key, SECRET)
    text = refused({"hear": HEAR | {key: value}})
    assert f"vllm_services.hear is of kind container and has {key}, which only vLLM is told" in text
    assert SECRET not in text


def test_an_entry_takes_nothing_that_belongs_to_the_host_s_own_model() -> None:
    of_the_model = {
        "vllm_extra_args": ["--seed", "7"], "vllm_max_model_len": 4096, "vllm_memory_gate_gib": 100,
        "vllm_model_exclude": ["original/"], "vllm_gpu_memory_utilization": 0.5,
    }  # fmt: skip
    found = made({"embed": EMBED}, vllm_model="openai/gpt-oss-20b", **of_the_model)
    short, embed = found["vllm"], found["embed"]
    assert {"--seed", "--max-model-len"} <= {*short.argv} and not {"--seed", "--max-model-len"} & {*embed.argv}
    assert (short.program["memory_gib"], embed.program["memory_gib"]) == (100, 8)
    assert embed.files.exclude == ("original/", "metal/")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"memory_gate_gib": -5}, "vllm_memory_gate_gib is -5"),
        ({"ready_timeout": -1}, "vllm_ready_timeout is -1"),
        ({"ready_timeout": 0}, "vllm_ready_timeout is 0"),
        ({"ready_timeout": 86401}, "vllm_ready_timeout is 86401. Say at most 86400 seconds, which is 24 hours."),
        ({"port": 22}, "vllm_port is 22, where this host is logged in to"),
    ],
)
@pytest.mark.parametrize("entry", [EMBED, HEAR], ids=["vllm", "container"])
def test_figures_that_no_host_has_are_refused(entry: dict[str, Any], more: dict[str, Any], says: str) -> None:
    assert any(says in text for text in vllm.plan(view({"one": entry | more})).refusals)


def test_a_variable_with_keys_of_several_types_is_read() -> None:
    plan = vllm.plan(View("spark-a", view({}).own_facts, {"vllm_image": IMAGE, "vllm_accept": {1: "x", "a": "y"}}))
    assert plan.services


@pytest.mark.parametrize("path", ["/", "/health", "/v1/health/", "/a.b/_c-1", "/.well-known/x"])
def test_a_path_of_health(path: str) -> None:
    assert vllm.plan(view({"one": HEAR | {"health": path}})).refusals == ()


@pytest.mark.parametrize(
    "path",
    [
        "//x",
        "//",
        "/x//y",
        "/x//",
        "/a/../b",
        "/..",
        "/./a",
        "/a\nb",
        "/a\n",
        "/\x07",
        "/a b",
        "/a?b",
        "x",
        "",
        "/a" * 9 + "!",
    ],
)
def test_a_path_of_health_that_a_server_may_read_otherwise_is_refused(path: str) -> None:
    with pytest.raises(SettingsError, match=r"vllm_services\.one\.health is ") as said:
        vllm.plan(view({"one": HEAR | {"health": path}}))
    assert not any(character in str(said.value) for character in "\n\x07")


@pytest.mark.parametrize(
    "args",
    [
        ["--privileged"],
        ["--cap-add=ALL"],
        ["--cap-add", "ALL"],
        ["--pid=host"],
        ["--security-opt", "seccomp=unconfined"],
    ],
)
def test_options_of_docker_do_not_reach_it_by_args(args: list[str]) -> None:
    (text,) = vllm.plan(view({"one": HEAR | {"args": ["--port", "8002", *args]}})).refusals
    assert f"args hold {args[0]}, which is for `docker run`" in text
    for word in ["--pid=/run/x.pid", "--device=cuda", "--network", "-v"]:
        assert vllm.plan(view({"one": HEAR | {"args": [word]}})).refusals == ()


@pytest.mark.parametrize("entry", [EMBED, HEAR], ids=["vllm", "container"])
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"security_options": ["--privileged"], "allow_security_options": True}, "Write seccomp=... or apparmor=..."),
        ({"security_options": ["seccomp=unconfined"]}, "or set vllm_allow_security_options to true"),
        ({"mounts": ["/var/run/docker.sock:/s"], "allow_mounts": True}, "belongs to the host's system"),
        ({"mounts": ["/run/docker.sock:/s"], "allow_mounts": True}, "belongs to the host's system"),
        ({"mounts": ["/:/host"], "allow_mounts": True}, "vllm_mounts holds '/:/host'"),
        ({"mounts": ["/srv/voices:/voices"]}, "or set vllm_allow_mounts to true"),
    ],
)
def test_a_service_gets_the_host_no_more_than_the_short_form_does(
    entry: dict[str, Any], more: dict[str, Any], says: str
) -> None:
    (text,) = vllm.plan(view({"one": entry | more})).refusals
    assert says in text


SHOWN = [
    ("vllm_extra_args", ["--seed", "5", "--tool-call-parser=hermes"], ["--seed", "5", "--tool-call-parser=hermes"]),
    ("vllm_extra_args", ["--api-key", SECRET, "--seed", "5"], ["--api-key", "(hidden)", "--seed", "5"]),
    ("vllm_extra_args", ["--hf_token=" + SECRET], ["--hf_token=(hidden)"]),
    ("vllm_extra_args", ["--api-key", "--seed"], ["--api-key", "--seed"]),
    ("vllm_extra_args", ["--proxy", f"http://me:{SECRET}@host"], ["--proxy", "http://(hidden)@host"]),
    ("vllm_extra_args", ['{"a": "b", "api_key": "' + SECRET + '"}'], ['{"a": "b", "api_key": "(hidden)"}']),
    (
        "vllm_extra_args",
        ["--header", f"Authorization: Bearer {SECRET}"],
        ["--header", "Authorization: Bearer (hidden)"],
    ),
    ("vllm_extra_args", ["--ssl-key-file", "/srv/key.pem"], ["--ssl-key-file", "/srv/key.pem"]),
    ("vllm_environment", {"A": 1, "B": "x"}, {"A": 1, "B": "x"}),
    ("vllm_environment", {"MY_TOKEN": SECRET, "X": "y"}, {"MY_TOKEN": "(hidden)", "X": "y"}),
    ("vllm_environment", {"MY_SECRET": "/srv/file"}, {"MY_SECRET": "/srv/file"}),
    ("vllm_environment", {"HTTPS_PROXY": f"http://me:{SECRET}@host"}, {"HTTPS_PROXY": "http://(hidden)@host"}),
]


@pytest.mark.parametrize(("name", "given", "shown"), SHOWN)
def test_the_short_form_is_explained_without_its_secrets(name: str, given: Any, shown: Any) -> None:
    option = catalog.declared_variables().roles["vllm"][name]
    assert explain._value(name, option, {name: given}) == shown
    assert explain._value(name, option, {}) == option["default"]
