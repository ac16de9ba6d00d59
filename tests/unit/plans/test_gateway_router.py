"""Which models a gateway offers, who serves each, and what speaks against a fleet."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.filter import serving
from ansible_collections.gb10.fleet.plugins.module_utils.programs import router
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import planner as gateway
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import router as gateway_router
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import services as gateway_services

from tests.support.attacker import tally

FLEET: dict[str, Any] = {
    "gateway_keys": {"laptop": "a" * 40},
    "gateway_certificate": "/etc/c/gateway.pem",
    "gateway_certificate_key": "/etc/c/gateway.key",
    "gateway_fleet_key": "f" * 40,
    "gateway_fleet_ca": "/etc/c/ca.pem",
}
BIG, SMALL = "Qwen/Qwen3-8B", "bge-m3"
EMBED = {"embed": {"model": SMALL, "port": 8001, "memory_gib": 8}}
EACH = {"embed": {"model": SMALL, "port": 8001, "span": "host"}}
THERE = {"embed": {"model": SMALL, "port": 8001, "hosts": ["b"]}}
LOCAL = f"unix@{gateway_router.ENTRANCE}"


def host(number: int, model: str = "", **more: Any) -> dict[str, Any]:
    return {**FLEET, "gateway_address": f"192.0.2.{number}", "vllm_model": model, **more}


def view(head: str = "a", groups: dict[str, list[str]] | None = None, **hosts: dict[str, Any]) -> View:
    bare = {"packages": {}, "installed_by_us": [], "memory_bytes": 128 << 30}
    members = [name for name in hosts if hosts[name].get("gb10_cluster") == hosts[head].get("gb10_cluster", "-")]
    groups = {"all": [*hosts], "sparks": [*hosts], "pair": members} | (groups or {})
    return View(head, bare, hosts[head], members, groups=groups, inventory=hosts)


def offered(seen: View) -> dict[str, list[tuple[str, str, str]]]:
    found = gateway.plan(seen)
    assert not found.refusals
    return {each.name: [(it.host, it.address, it.name) for it in each.replicas] for each in found.models}


def test_the_authority_is_asked_for_where_a_router_verifies_another_host_and_nowhere_else() -> None:
    """docs/router.md puts it on the Spark whose address clients have; one with two services of its own was refused."""
    own = {"vllm_services": EMBED}
    hosts = {"a": host(1, BIG, gateway_fleet=["sparks"], **own), "b": host(2, BIG, **own)}
    asks = {name: FLEET["gateway_fleet_ca"] in gateway.plan(view(name, **hosts)).certificates for name in hosts}
    assert gateway.plan(view("b", **hosts)).routes and asks == {"a": True, "b": False}


TABLE: dict[str, tuple[dict[str, dict[str, Any]], dict[str, list[tuple[str, str, str]]]]] = {
    "one service of its own needs no router": ({"a": host(1, BIG)}, {}),
    "two hosts with one model": (
        {"a": host(1, BIG, gateway_fleet=["sparks"]), "b": host(2, BIG)},
        {BIG: [("a", LOCAL, ""), ("b", "192.0.2.2:8443", "b")]},
    ),
    "another model on another host": (
        {
            "a": host(1, BIG, gateway_fleet=["b"]),
            "b": host(2, SMALL, gateway_port=9443, gateway_certificate_name="spark.lan"),
        },
        {BIG: [("a", LOCAL, "")], SMALL: [("b", "192.0.2.2:9443", "spark.lan")]},
    ),
    "a router without a model of its own": (
        {"a": host(1, gateway_fleet=["sparks"]), "b": host(2, SMALL)},
        {SMALL: [("b", "192.0.2.2:8443", "b")]},
    ),
    "a host that is no server is left out": (
        {
            "a": host(1, BIG, gateway_fleet=["sparks"]),
            "b": {"vllm_model": ""},
            "c": host(3, BIG, gb10_roles=[]),
        },
        {BIG: [("a", LOCAL, "")]},
    ),
    "a cluster is one replica, on its first host": (
        {
            "a": host(1, BIG, gateway_fleet=["sparks"]),
            "b": host(2, BIG, gb10_cluster="pair"),
            "c": host(3, BIG, gb10_cluster="pair"),
        },
        {BIG: [("a", LOCAL, ""), ("b", "192.0.2.2:8443", "b")]},
    ),
    "without TLS there is no name to verify": (
        {
            "a": host(1, BIG, gateway_fleet=["b"]),
            "b": host(2, BIG, gateway_plain_http=True, gateway_certificate="", gateway_certificate_key=""),
        },
        {BIG: [("a", LOCAL, ""), ("b", "192.0.2.2:8443", "")]},
    ),
    "by the name that is served": (
        {"a": host(1, BIG, gateway_fleet=["b"]), "b": host(2, "org/other", vllm_served_model_name=BIG)},
        {BIG: [("a", LOCAL, ""), ("b", "192.0.2.2:8443", "b")]},
    ),
    "several services of a host": (
        {"a": host(1, BIG, vllm_services=EMBED)},
        {BIG: [("a", LOCAL, "")], SMALL: [("a", LOCAL, "")]},
    ),
    "several services of several hosts": (
        {"a": host(1, vllm_services=EMBED, gateway_fleet=["b"]), "b": host(2, BIG, vllm_services=EMBED)},
        {BIG: [("b", "192.0.2.2:8443", "b")], SMALL: [("a", LOCAL, ""), ("b", "192.0.2.2:8443", "b")]},
    ),
    "a service of a cluster, and one of each of its hosts": (
        {
            "a": host(1, gateway_fleet=["pair"]),
            "b": host(2, BIG, gb10_cluster="pair", vllm_services=EACH),
            "c": host(3, BIG, gb10_cluster="pair", vllm_services=EACH),
        },
        {
            BIG: [("b", "192.0.2.2:8443", "b")],
            SMALL: [("b", "192.0.2.2:8443", "b"), ("c", "192.0.2.3:8443", "c")],
        },
    ),
    "a service on hosts of its own choice": (
        {
            "a": host(1, BIG, gateway_fleet=["sparks"], vllm_services=THERE),
            "b": host(2, BIG, vllm_services=THERE),
        },
        {BIG: [("a", LOCAL, ""), ("b", "192.0.2.2:8443", "b")], SMALL: [("b", "192.0.2.2:8443", "b")]},
    ),
    "an address of IPv6": (
        {"a": host(1, BIG, gateway_fleet=["b"]), "b": host(2, BIG, gateway_address="2001:db8::2")},
        {BIG: [("a", LOCAL, ""), ("b", "[2001:db8::2]:8443", "b")]},
    ),
}


@pytest.mark.parametrize(("hosts", "models"), TABLE.values(), ids=TABLE)
def test_who_serves_what(hosts: dict[str, Any], models: dict[str, Any]) -> None:
    cluster = {"pair": [name for name in hosts if hosts[name].get("gb10_cluster") == "pair"]}
    assert offered(view(groups=cluster, **hosts)) == models


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no such host": ({"gateway_fleet": ["x"]}, {}, "gateway_fleet names x: no host or group of the inventory"),
    "no key": ({"gateway_fleet_key": ""}, {}, "gateway_fleet_key is empty"),
    "another key": ({}, {"gateway_fleet_key": "g" * 40}, "gateway_fleet_key of b is another one"),
    "no authority": ({"gateway_fleet_ca": ""}, {}, "gateway_fleet_ca is empty"),
    "no gateway there": ({}, {"gateway_address": ""}, "gateway_fleet names b, which has no gateway"),
    "no model anywhere": ({"vllm_model": ""}, {"vllm_model": ""}, "no host of it has a vllm_model"),
    "alike": ({}, {"vllm_model": "qwen-qwen3-8b"}, f"cannot tell {BIG} and qwen-qwen3-8b apart"),
    "a quote": ({}, {"vllm_served_model_name": "a'b"}, 'cannot offer "a\'b"'),
    "two that are called alike": (
        {"vllm_services": {"two": {"model": BIG, "port": 8001}}},
        {},
        f"a has two services that are called {BIG}",
    ),
    "a service beyond loopback": (
        {"vllm_services": {"two": {"model": SMALL, "host": "192.0.2.1"}}},
        {},
        "vllm_host is 192.0.2.1",
    ),
    "a service's port": (
        {"gateway_port": 8001, "vllm_services": {"two": {"model": SMALL, "port": 8001}}},
        {},
        "gateway_port 8001 is no",
    ),
    "a service's key": (
        {"vllm_services": {"two": {"model": SMALL, "api_key": "a b"}}},
        {},
        "vllm_api_key has other characters",
    ),
    "a short key": ({"gateway_fleet_key": "f"}, {"gateway_fleet_key": "f"}, "the key of gateway_fleet_key is shorter"),
    "a client's key": ({"gateway_fleet_key": "a" * 40}, {"gateway_fleet_key": "a" * 40}, "the same key twice"),
    "a file that is none": ({"gateway_fleet_ca": "ca.pem"}, {}, "gateway_fleet_ca 'ca.pem' is no absolute path"),
    "a name that is none": ({"gateway_certificate_name": "a b"}, {}, "gateway_certificate_name 'a b' is no name"),
}


@pytest.mark.parametrize(("mine", "theirs", "says"), REFUSED.values(), ids=REFUSED)
def test_refusals(mine: dict[str, Any], theirs: dict[str, Any], says: str) -> None:
    seen = view(a={**host(1, BIG, gateway_fleet=["b"]), **mine}, b={**host(2, BIG), **theirs})
    said = " ".join(gateway.plan(seen).refusals)
    assert says in said
    assert "f" * 40 not in said and "a" * 40 not in said


def test_services_with_a_mistake_are_no_missing_model() -> None:
    """The role vllm says what is wrong with them."""
    wrong = {"vllm_model": "", "vllm_services": {"two": {"memory_gib": "much"}}}
    seen = view(a={**host(1, "", gateway_fleet=["b"]), **wrong}, b=host(2, ""))
    assert "has a vllm_model" not in " ".join(gateway.plan(seen).refusals)


def test_the_routers_of_a_host() -> None:
    few, all_of_them = {"gateway_fleet": ["c"]}, {"gateway_fleet": ["sparks"]}
    seen = view(a=host(1, **all_of_them), b=host(2, BIG), c=host(3, SMALL), d=host(4, SMALL, **few))
    views = [seen.of(name) for name in "abcd"]
    assert gateway_router.routers_of(["b"], views) == ["a"]
    assert gateway_router.routers_of(["c"], views) == ["a", "d"]
    assert gateway_router.routers_of(["a"], views) == []


def test_what_a_gateway_opens_to_routers() -> None:
    """Its own services, and only where there is a key for them."""
    assert gateway.plan(view(a=host(1, BIG))).opens
    assert not gateway.plan(view(a=host(1, BIG, gateway_fleet_key=""))).opens
    assert not gateway.plan(view(a=host(1))).opens
    assert gateway_services.Service("a", "vllm", "Org/Some_Model.v2", "").place == "org-some-model-v2"


def test_the_program_waits_as_long_as_the_catalog_says() -> None:
    assert catalog.load("gateway")["drain"]["value"] == router.WAIT_S


@pytest.mark.parametrize("model", [BIG, SMALL, "Org/Some_Model.v2", "a+b:c@d"])
def test_program_and_plan_call_a_model_alike(model: str) -> None:
    assert router.place(model) == gateway_services.Service("a", "x", model, "").place


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        ({"gateway_certificate_name": "a\nbind :1"}, "b: gateway_certificate_name 'a\nbind :1' is no name"),
        ({"gateway_address": "192.0.2.2 x"}, "b: gateway_address '192.0.2.2 x' is no IP address"),
        ({"gateway_address": "999.0.2.2"}, "b: gateway_address '999.0.2.2' is no IP address"),
        ({"gateway_port": 0}, "b: gateway_port 0 is no TCP port"),
        ({"gateway_port": 70000}, "b: gateway_port 70000 is no TCP port"),
        ({"gateway_port": "soon"}, "b: gateway_port is the text 'soon'"),
    ],
)
def test_what_another_host_says_is_judged_with_its_name(theirs: dict[str, Any], says: str) -> None:
    seen = view(a=host(1, BIG, gateway_fleet=["b"]), b={**host(2, SMALL), **theirs})
    assert says in " ".join(gateway.plan(seen).refusals)


def content(seen: View, name: str) -> str:
    rendered = render("gateway", seen)
    assert not rendered.refusals
    (text,) = (each["content"] for each in rendered.resources if each.get("file", "").endswith(name))
    return str(text)


@pytest.mark.parametrize("model", ["gateway-knows-no-such-model", "no-such-model", "no_such_model"])
def test_no_model_is_called_like_the_answer_for_unknown_ones(model: str) -> None:
    lines = content(view(a=host(1, BIG, gateway_fleet=["b"]), b=host(2, model)), "router.cfg").splitlines()
    backends = [line for line in lines if line.startswith("backend ")]
    assert len({*backends}) == len(backends) == 3


def test_the_keys_of_services_on_other_hosts_do_not_come_to_this_one() -> None:
    there = {"x": {"model": "m", "port": 8005, "hosts": ["b"], "api_key": 'S"; } # odd'}}
    here = {"y": {"model": SMALL, "port": 8006, "api_key": "s" * 40}}
    text = content(view(a=host(1, BIG, vllm_services=there | here)), "gateway-keys.conf")
    assert "odd" not in text and f"Bearer {'s' * 40}" in text and '"for y"' in text


OTHER = {
    "kind": "container", "image": "x/y@sha256:" + "0" * 64, "port": 8006, "served_model_name": "whisper",
    "memory_gib": 2, "health": "/v1/health",
}  # fmt: skip


def test_another_container_than_vllms_is_offered_and_asked_at_its_own_path() -> None:
    seen = view(a=host(1, BIG, vllm_services={"hear": OTHER | {"on_demand": True}}))
    assert {model: [host for host, *_more in replicas] for model, replicas in offered(seen).items()} == {
        BIG: ["a"], "whisper": ["a"]}  # fmt: skip
    assert [each.name for each in gateway.plan(seen).sleepers] == ["hear"]
    lines = [line.strip() for line in content(seen, "gb10-fleet/gateway.conf").splitlines()]
    entrance = lines[lines.index("location = /replica/whisper/health {") :]
    assert entrance[entrance.index("# Read to its end, and then to @health-vllm-hear.") + 1] == "set $path /v1/health;"
    assert "set $path /v1/chat/completions;" in entrance
    alone = content(view(a=host(1, vllm_services={"hear": OTHER})), "gb10-fleet/gateway.conf")
    assert "proxy_pass http://127.0.0.1:8006/v1/health;" in alone


def test_another_program_than_an_engine_learns_no_key_of_the_host() -> None:
    """Neither from the gateway nor from us, who ask by the same rule: who has that key asks vLLM in its place."""
    text = content(view(a=host(1, BIG, vllm_api_key="s" * 40, vllm_services={"hear": OTHER})), "gateway-keys.conf")
    told = '"for hear" "";' not in text, serving.key({"hear": OTHER}, "hear", "s" * 40) != ""
    tally("the key of vLLM to another program", 2, sum(told))
    assert told == (False, False) and f'default "Bearer {"s" * 40}";' in text
    assert serving.key({"y": {"model": SMALL}}, "y", "s") == serving.key({}, "vllm", "s") == "s"


def test_a_replica_that_sleeps_has_a_second_server_which_is_asked_when_no_other_is_ready() -> None:
    sleeper = {"embed": {"model": SMALL, "port": 8001, "on_demand": True}}
    fleet = {
        "a": host(1, BIG, gateway_fleet=["sparks"]),
        "b": host(2, vllm_services=sleeper, gateway_certificate_name="b.lan"),
    }
    made = {each["file"]: each for each in render("gateway", view(**fleet)).resources if "file" in each}
    lines = [line.strip() for line in made["/etc/gb10-fleet/router.cfg"]["content"].splitlines()]
    servers = [line.split()[1:3] for line in lines if line.startswith("server ")]
    assert servers == [["a", LOCAL], ["b", "192.0.2.2:8443"], ["b:asleep", "192.0.2.2:8443"]]
    asleep = next(line for line in lines if line.startswith("server b:asleep"))
    assert asleep.endswith(" no-check backup") and "verifyhost b.lan" in asleep
    assert any("srv_is_up(bge-m3/b)" in line for line in lines), "what is asleep is no reason to call the gateway well"


def test_a_router_shows_what_is_asleep_and_takes_both_of_its_servers_out() -> None:
    said: list[str] = []

    class Made(router.Router):
        def _ask(self, command: str) -> str:
            said.append(command)
            if command == "show proc":
                return "100     worker   1\n"
            rows = ("bge-m3,b,DOWN,0,7", "bge-m3,b:asleep,no check,1,2", "big,b,UP,2,9")
            return "" if "set server" in command else "# pxname,svname,status,scur,stot\n" + "\n".join(rows) + "\n"

    one = Made(Path("/run/x"))
    assert [(each["model"], each["state"], each["in_flight"], each["on_demand"]) for each in one.replicas()] == [
        ("bge-m3", "asleep", 1, True),
        ("big", "ready", 2, False),
    ]
    one.set(one.replicas(), "drain")
    assert [command.split()[3] for command in said if "set server" in command] == [
        "bge-m3/b",
        "bge-m3/b:asleep",
        "big/b",
    ]


def test_a_router_that_drips_has_one_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "_DEADLINE_S", 0.3)
    with socket.socket(socket.AF_UNIX) as master:
        master.bind(str(tmp_path / "master.sock"))
        master.listen()

        def drip() -> None:
            connection, _ = master.accept()
            with connection, contextlib.suppress(OSError):
                for _ in range(100):
                    connection.sendall(b"x")
                    time.sleep(0.05)

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        with pytest.raises(router.NotUpError, match="timed out"):
            router.Router(tmp_path).replicas()
        assert time.monotonic() - began < 2
        thread.join()


SQL = {"name": "sql", "model": "acme/sql-lora"}


def test_adapters_and_further_names_lead_to_the_services_that_all_have_them() -> None:
    talk = {"name": "talk", "model": "acme/talk-lora"}
    one = host(1, BIG, gateway_fleet=["sparks"], vllm_lora=[SQL, talk], vllm_further_names=["best"])
    seen = view(a=one, b=host(2, BIG, vllm_lora=[SQL]))
    (model,) = gateway.plan(seen).models
    assert (model.names, len(model.replicas)) == ((BIG, "sql"), 2), "a request for talk may not reach b"
    (alone,) = gateway.plan(view(a=host(1, BIG, gateway_fleet=["a"], vllm_lora=[SQL], vllm_further_names=["x"]))).models
    assert alone.names == (BIG, "x", "sql")
    assert gateway.plan(view(a=host(1, BIG, vllm_lora=[SQL]))).models == (), "one service of its own needs no router"


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"vllm_further_names": [BIG]}, f"{BIG} and {SMALL} are both called {BIG}"),
        ({"vllm_lora": [SQL]}, f"{BIG} and {SMALL} are both called sql"),
        ({"vllm_further_names": ['a"b']}, f"the gateway cannot offer '{SMALL}'"),
    ],
)
def test_a_name_that_two_models_have_or_that_nothing_may_hold_is_refused(other: dict[str, Any], text: str) -> None:
    seen = view(a=host(1, BIG, gateway_fleet=["b"], vllm_lora=[SQL]), b=host(2, SMALL, **other))
    assert any(each.startswith(text) for each in gateway.plan(seen).refusals), gateway.plan(seen).refusals
