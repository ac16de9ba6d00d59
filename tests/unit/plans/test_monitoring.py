"""Whom the role monitoring lets ask, what it refuses, and what travels to a host."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import shown
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.programs import modules_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import firewall, monitoring
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.monitoring import MonitoringPlan

from tests.support.attacker import tally
from tests.support.proofs import facts

UTILS = Path(__file__).parents[3] / "plugins/module_utils"
ON: dict[str, Any] = {"monitoring_enabled": True}
BEYOND = {**ON, "monitoring_address": "192.0.2.11", "monitoring_clients": ["192.0.2.7", "2001:db8::/64"]}
RULES = "/etc/gb10-fleet/firewall.nft"
PROMETHEUS = "/etc/prometheus/gb10.yml"


def made(**variables: Any) -> MonitoringPlan:
    return monitoring.plan(View("spark-a", facts(), variables))


def test_nothing_is_the_default() -> None:
    assert render("monitoring", View("spark-a", facts())).resources == []
    assert made(monitoring_address="nonsense").refusals == ()


def test_the_collector_asks_for_the_room_that_the_inventory_asks_for() -> None:
    plans = made(monitoring_enabled=True), made(monitoring_enabled=True, gb10_minimum_free_gib={"/": 5, "srv": "much"})
    needed, own = (json.loads(plan.settings)["rules"]["limits"]["minimum_free_gib"] for plan in plans)
    assert own == {**needed, "/": 5} != needed


def test_a_plan_that_is_not_watched_reads_no_fact() -> None:
    view = View("spark-a", facts(), ON)
    monitoring.plan(view)
    assert view.touched == set()


@pytest.mark.parametrize(
    ("variables", "listens"),
    [
        ({}, "127.0.0.1:9100"),
        ({"monitoring_address": "::1", "monitoring_port": 9101}, "[::1]:9101"),
        (BEYOND, "192.0.2.11:9100"),
    ],
)
def test_where_it_listens(variables: dict[str, Any], listens: str) -> None:
    assert made(**{**ON, **variables}).listen == listens


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"monitoring_address": "spark-a"}, "no IP address"),
        ({"monitoring_address": "fe80::1%enP7s7"}, "no IP address"),  # %e means something to systemd
        ({"monitoring_address": "::1%0\nType=oneshot"}, "no IP address"),
        ({"monitoring_address": "::1%a --web.config.file=x"}, "no IP address"),
        ({"monitoring_address": "192.0.2.11"}, "monitoring_clients names nobody"),
        ({"monitoring_address": "0.0.0.0"}, "monitoring_clients names nobody"),  # noqa: S104
        ({"monitoring_port": 70000}, "monitoring_port is '70000'"),
        ({**BEYOND, "monitoring_clients": ["192.0.2.7/24"]}, "monitoring_clients holds 192.0.2.7/24"),
        ({"monitoring_targets": {"spark-b": "192.0.2.12"}}, "monitoring_targets is for the host of Prometheus"),
        ({"monitoring_grafana": True}, "monitoring_grafana is for the host of Prometheus"),
        ({"monitoring_server": True, "monitoring_targets": {"a": 'x"]'}}, "monitoring_targets holds a: x"),
        ({"monitoring_server": True, "monitoring_targets": {'a"': "192.0.2.1"}}, 'monitoring_targets holds a"'),
        ({"monitoring_heartbeat": "https://x.example"}, "monitoring_heartbeat is for the host of Prometheus"),
        ({"monitoring_server": True, "monitoring_heartbeat": "x.example"}, "monitoring_heartbeat is no address"),
        ({"monitoring_alerting": {"route": {}}}, "monitoring_alerting is for the host of Prometheus"),
    ],
)
def test_what_is_refused(variables: dict[str, Any], says: str) -> None:
    (refusal,) = made(**{**ON, **variables}).refusals
    assert says in refusal


@pytest.mark.parametrize(
    "address",
    [
        *(
            None,
            ["192.0.2.1"],
            "",
            "..",
            "-x",
            "a..b",
            "a-",
            "x" * 64,
            "999.1.1.1",
            "192.0.2",
            "10.1",
            "192.0.2.1:99999",
        ),
        *("192.0.2.1:0", "b:", "[::::]:1", "[192.0.2.1]:1", "[]", "192.0.2.1\n"),
    ],
)
def test_a_target_that_is_no_address_is_refused(address: Any) -> None:
    plan = made(**ON, monitoring_server=True, monitoring_targets={"b": address})
    assert "monitoring_targets holds b" in plan.refusals[0]
    assert [target.host for target in plan.targets] == ["spark-a"]


@pytest.mark.parametrize(
    "address", ["b", "b.example.com.", "3com.example", "b:65535", "192.0.2.1:1", "[2001:db8::1]", "[::1]:9100"]
)
def test_a_target_that_is_an_address_is_asked(address: str) -> None:
    plan = made(**ON, monitoring_server=True, monitoring_targets={"b": address})
    assert plan.refusals == () and plan.targets[1].address.startswith(address)


def test_a_target_of_ipv6_is_told_of_its_brackets() -> None:
    (refusal,) = made(**ON, monitoring_server=True, monitoring_targets={"b": "2001:db8::1"}).refusals
    assert "'[2001:db8::1]'" in refusal and "in brackets" in refusal


def test_alertmanager_proves_its_configuration_before_it_is_written() -> None:
    """amtool comes with the package, so that is there before the file is."""
    entries = render("monitoring", View("spark-a", facts(), {**ON, "monitoring_server": True})).resources
    (at,) = (
        index for index, entry in enumerate(entries) if entry.get("file") == "/etc/prometheus/gb10-alertmanager.yml"
    )
    assert entries[at]["validate"] == ["amtool", "check-config", "%s"]
    assert any(entry.get("package") == "prometheus-alertmanager" for entry in entries[:at])


def test_grafana_is_told_of_prometheus_and_of_the_dashboard() -> None:
    view = View("spark-a", facts(), {**ON, "monitoring_server": True, "monitoring_grafana": True})
    entries = {next(iter(entry.values())): entry for entry in render("monitoring", view).resources}
    told = {path: json.loads(entries[path]["content"]) for path in entries if path.startswith("/etc/grafana/")}
    (source,) = told["/etc/grafana/provisioning/datasources/gb10.yaml"]["datasources"]
    (provider,) = told["/etc/grafana/provisioning/dashboards/gb10.yaml"]["providers"]
    assert source["url"] == "http://127.0.0.1:9090"
    folder = provider["options"]["path"]
    assert json.loads(entries[f"{folder}/gb10.json"]["content"])["panels"]
    assert set(told) < set(entries["grafana-server.service"]["restart_on"])


def server(**variables: Any) -> dict[str, str]:
    """The files of Prometheus and Alertmanager by their names."""
    view = View("spark-a", facts(), {**ON, "monitoring_server": True, **variables})
    found = {str(entry.get("file")): entry.get("content") for entry in render("monitoring", view).resources}
    return {path.rpartition("/")[2]: str(text) for path, text in found.items() if path.startswith("/etc/prometheus/")}


def test_a_host_that_says_too_much_keeps_back_its_own_alerts_alone() -> None:
    """All alerts were one message by default: with a megabyte of one host in it, a chat refused those of all hosts."""
    receivers = [{"name": "us"}]
    written = json.loads(server()["gb10-alertmanager.yml"])
    assert written["route"]["group_by"] == ["instance"]
    said = server(monitoring_alerting={"route": {"receiver": "us"}, "receivers": receivers})
    assert json.loads(said["gb10-alertmanager.yml"])["route"]["group_by"] == ["instance"]
    own = {"route": {"receiver": "us", "group_by": ["alertname"]}, "receivers": receivers}
    assert json.loads(server(monitoring_alerting=own)["gb10-alertmanager.yml"])["route"]["group_by"] == ["alertname"]


def test_a_host_cannot_have_prometheus_take_the_memory_of_the_models() -> None:
    """It serves beside them, and keeps hours of what it is told. What it counts of an answer no host says itself."""
    job = yaml.safe_load(server()["gb10.yml"])["scrape_configs"][0]
    assert job["sample_limit"] <= 10_000
    first = job["metric_relabel_configs"][0]
    assert (first["source_labels"], first["action"]) == (["__name__"], "drop")
    said = [name for name in ("up", "scrape_series_added", "scrape_x", "upper") if re.fullmatch(first["regex"], name)]
    assert said == ["up", "scrape_series_added", "scrape_x"]
    many = {f"spark-{number}": f"192.0.2.{number}:9101" for number in range(200)}
    bounds = {}
    for count, targets in ((1, {}), (201, many)):
        view = View("spark-a", facts(), {**ON, "monitoring_server": True, "monitoring_targets": targets})
        drop_ins = [
            entry for entry in render("monitoring", view).resources if "50-gb10-monitoring" in str(entry.get("file"))
        ]
        found = [re.search(r"^MemoryMax=(\d+)M$", str(each["content"]), re.M) for each in drop_ins[1:]]
        assert len(found) == 2 and all(found)
        bounds[count] = {int(each[1]) for each in found if each}
    ((small,), (large,)) = bounds.values()
    assert 2048 <= small <= 4200 < large <= 16384


def test_names_of_hosts_and_clusters_mean_themselves_to_prometheus() -> None:
    """A dot of a host's name stood for any character, and $1 in a cluster's for nothing."""
    targets = {"spark.b": "192.0.2.12:9101", "spark-b": "192.0.2.13:9101"}
    view = View(
        "spark-a", facts(), {**ON, "monitoring_server": True, "monitoring_targets": targets}, ["spark-a"],
        inventory={"spark-a": {}, "spark.b": {"gb10_cluster": "one$1"}, "spark-b": {"gb10_cluster": "two"}},
    )  # fmt: skip
    (text,) = (entry["content"] for entry in render("monitoring", view).resources if entry.get("file") == PROMETHEUS)
    found = {
        host: [
            rule["replacement"].replace("$$", "$")
            for rule in yaml.safe_load(text)["scrape_configs"][0]["metric_relabel_configs"]
            if re.fullmatch(rule["regex"], f"gb10_planned_until_seconds;{host}")
        ]
        for host in targets
    }
    tally(
        "a name of the inventory that means something else in a file",
        2,
        found != {"spark.b": ["one$1"], "spark-b": ["two"]},
    )
    assert found == {"spark.b": ["one$1"], "spark-b": ["two"]}
    assert "one$$1" in text


@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed (package prometheus-alertmanager)")
@pytest.mark.parametrize(
    ("alerting", "status"),
    [
        ({}, 0),
        ({"route": {"receiver": "us"}, "receivers": [{"name": "us"}]}, 0),
        ({"route": "nobody"}, 1),
        ({"route": {"receiver": "us"}, "receivers": []}, 1),
        ({"route": {"receiver": "us"}, "receivers": [{"name": "us"}], "global": {"resolve_timeout": "1m"}}, 0),
        ({"route": {"receiver": "us"}, "receivers": [{"name": "us"}], "global": "none"}, 1),
    ],
)
def test_amtool_tells_a_configuration_from_none(tmp_path: Path, alerting: dict[str, Any], status: int) -> None:
    view = View("spark-a", facts(), {**ON, "monitoring_server": True, "monitoring_alerting": alerting})
    (entry,) = (
        entry for entry in render("monitoring", view).resources if str(entry.get("file")).endswith("alertmanager.yml")
    )
    (tmp_path / "written").write_text(entry["content"])
    argv = [word.replace("%s", str(tmp_path / "written")) for word in entry["validate"]]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == status


def test_who_hears_of_alerts_sends_this_host_nowhere() -> None:
    """The service outside answered the heartbeat with a redirect to loopback, where an engine takes `POST /sleep`."""
    hook = {"name": "us", "webhook_configs": [{"url": "https://chat.example.com/hook"}]}
    said = {"route": {"receiver": "us"}, "receivers": [hook], "global": {"http_config": {"proxy_url": "http://p"}}}
    own = json.loads(server(monitoring_alerting=said)["gb10-alertmanager.yml"])["global"]["http_config"]
    written = [json.loads(server()["gb10-alertmanager.yml"])["global"]["http_config"], own]
    follows = [each for each in written if each.get("follow_redirects", True)]
    tally("who hears of alerts: a redirect to loopback", len(written), len(follows))
    assert not follows and own["proxy_url"] == "http://p"
    chosen = {**said, "global": {"http_config": {"follow_redirects": True}}}
    assert json.loads(server(monitoring_alerting=chosen)["gb10-alertmanager.yml"])["global"] == chosen["global"]


@pytest.mark.parametrize("url", ["", "https://sesame.example.com/beat"])
def test_the_heartbeat_goes_outside_or_to_nobody_and_never_to_people(url: str) -> None:
    theirs = {"receiver": "us", "routes": [{"receiver": "us", "matchers": ['severity="critical"']}]}
    said = {"route": theirs, "receivers": [{"name": "us"}]}
    own = {**ON, "monitoring_server": True, "monitoring_alerting": said, "monitoring_heartbeat": url}
    view = View("spark-a", facts(), own)
    (entry,) = (
        entry for entry in render("monitoring", view).resources if str(entry.get("file")).endswith("alertmanager.yml")
    )
    written = json.loads(entry["content"])
    first, *others = written["route"]["routes"]
    assert (first["receiver"], first["matchers"]) == ("gb10-heartbeat", ['alertname="Gb10Heartbeat"'])
    assert others == theirs["routes"] and written["route"]["receiver"] == "us" and entry["secret"]
    (heard,) = (each["webhook_configs"] for each in written["receivers"] if each["name"] == "gb10-heartbeat")
    assert [each["url"] for each in heard] == [url] * bool(url)
    assert "sesame" not in str(shown(monitoring.plan(view)))


def test_the_server_asks_its_own_host_and_those_named() -> None:
    plan = made(**ON, monitoring_server=True, monitoring_targets={"b": "192.0.2.12", "c": "[2001:db8::3]:9"})
    assert [(target.host, target.address) for target in plan.targets] == [
        ("spark-a", "127.0.0.1:9100"), ("b", "192.0.2.12:9100"), ("c", "[2001:db8::3]:9"),
    ]  # fmt: skip
    assert all("127.0.0.1" in server.command for server in plan.servers)


def test_no_host_says_of_which_cluster_it_is() -> None:
    """Planned work of a cluster keeps the alerts of all its hosts waiting: a host could name the cluster of others."""
    own = {**ON, "monitoring_server": True, "monitoring_targets": {"spark-b": "192.0.2.12", "else": "192.0.2.99"}}
    view = View("spark-a", facts(), own, inventory={"spark-a": own, "spark-b": {**BEYOND, "gb10_cluster": "pair"}})
    (entry,) = (each for each in render("monitoring", view).resources if str(each.get("file")).endswith("gb10.yml"))
    job, _itself = yaml.safe_load(entry["content"])["scrape_configs"]
    relabelled = [rule for rule in job["metric_relabel_configs"] if "replacement" in rule]
    told = {rule["regex"]: rule["replacement"] for rule in relabelled}
    assert told == {
        f"gb10_planned_until_seconds;{host}": cluster
        for host, cluster in (("spark-a", "spark-a"), ("spark-b", "pair"), ("else", "else"))
    }
    assert all(rule["target_label"] == "cluster" for rule in relabelled)


@pytest.mark.parametrize(
    ("theirs", "address", "says"),
    [
        (ON, "192.0.2.12", "names spark-b, which listens on loopback only"),
        ({}, "192.0.2.12", "names spark-b, which is not watched"),
        (BEYOND, "192.0.2.12", ""),
        (ON, "127.0.0.1:9100", ""),  # the end of a tunnel
        (ON, "192.0.2.12:9200", ""),  # an exporter of somebody else's
    ],
)
def test_a_host_of_the_inventory_that_is_asked_has_to_answer(theirs: Any, address: str, says: str) -> None:
    own = {**ON, "monitoring_server": True, "monitoring_targets": {"spark-b": address, "elsewhere": "192.0.2.99"}}
    view = View("spark-a", facts(), own, inventory={"spark-a": own, "spark-b": theirs})
    assert [says in refusal for refusal in monitoring.plan(view).refusals] == [True] * bool(says)


def test_no_plan_shows_the_receivers_of_alerts() -> None:
    secret = {"route": {"receiver": "us"}, "receivers": [{"name": "us", "webhook": "https://sesame.example.com"}]}
    view = View("spark-a", facts(), {**ON, "monitoring_server": True, "monitoring_alerting": secret})
    assert "sesame" not in str(shown(monitoring.plan(view)))
    written = [entry for entry in render("monitoring", view).resources if "sesame" in str(entry)]
    assert [(entry["file"], entry["secret"], entry["mode"]) for entry in written] == [
        ("/etc/prometheus/gb10-alertmanager.yml", True, "0640")
    ]


def test_the_collector_travels_with_all_that_it_imports() -> None:
    modules = set(modules_of("programs/metrics/main"))
    assert "reading/gpu" in modules and "programs/metrics/services" in modules
    for module in modules:
        for node in ast.walk(ast.parse((UTILS / f"{module}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and (node.level or "module_utils" in str(node.module)):
                base = Path(module).parents[node.level - 1] if node.level else Path()
                place = base / str(node.module or "").rpartition("module_utils")[2].strip(".").replace(".", "/")
                named = {str(place), *(str(place / alias.name) for alias in node.names)}
                there = {name for name in named if (UTILS / f"{name}.py").is_file()}
                assert there and there <= modules, (module, named)


def test_the_firewall_takes_nothing_as_a_client_that_is_no_network() -> None:
    """The role may run alone, and what it wrote into its rules nobody had looked at."""
    clients = ["192.0.2.7 accept; tcp dport 22 drop #"]
    said = {**BEYOND, "fabric_topology": "none", "monitoring_clients": clients}
    (refusal,) = firewall.plan(View("spark-a", facts(), said)).refusals
    tally("a text of the inventory that becomes rules", 1, "monitoring_clients holds" not in refusal)
    assert "monitoring_clients holds 192.0.2.7 accept" in refusal


@pytest.mark.parametrize(
    ("variables", "exporter", "watchers"),
    [
        ({}, None, ()),
        (ON, None, ()),
        (BEYOND, 9100, ("192.0.2.7", "2001:db8::/64")),
        # It listens on as an orphan, over boots, too.
        ({**BEYOND, "monitoring_enabled": False}, 9100, ("192.0.2.7", "2001:db8::/64")),
    ],
)
def test_the_firewall_closes_its_port_to_strangers(variables: Any, exporter: int | None, watchers: Any) -> None:
    view = View("spark-a", facts(), {"fabric_topology": "none", **variables})
    plan = firewall.plan(view)
    assert (plan.exporter, plan.watchers) == (exporter, watchers)
    assert ("9100" in plan.guarded) == bool(exporter)
    (rules,) = [entry["content"] for entry in render("firewall", view).resources if entry.get("file") == RULES]
    opened = [line.strip() for line in rules.splitlines() if line.strip().endswith('"Prometheus"')]
    assert len(opened) == len(watchers)
    closing = rules.find("tcp dport 9100 counter name refused drop")
    assert (closing > 0) == bool(exporter)
    assert all(rules.index(line) < closing for line in opened)
