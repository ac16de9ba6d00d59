"""The collector: what it writes of a host, of a host without anything, and of garbage."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import judge
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics import exposition, gateway, main
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics import findings as of_collector
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics.families import FAMILIES
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics.of_vllm import MOST_CHARACTERS, few
from ansible_collections.gb10.fleet.plugins.module_utils.reading import counters
from ansible_collections.gb10.fleet.plugins.module_utils.system import asking
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import Wish
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.programs import modules_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring import rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import monitoring

from tests.support.attacker import NOBODY, needs_root, public_folder, tally
from tests.support.monitored import FAULTS, RAIL, Spark, samples
from tests.support.monitored import settings as monitored_settings
from tests.support.signs import EXAMPLES

ROOT = Path(__file__).parents[3]
UTILS = ROOT / "plugins/module_utils"
ALERTS = {entry["value"]: entry for entry in rules.alerts()}
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@pytest.fixture(name="spark")
def fixture_spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path, "spark-a")


def test_a_healthy_host_in_numbers(spark: Spark) -> None:
    found = samples(spark.text(1e6))
    for series, value in {
        'gb10_gpu_state{state="ok"}': 1,
        "gb10_gpu_clock_hertz": 2418e6,
        "gb10_gpu_power_watts": 86.2,
        "gb10_gpu_utilization_ratio": 0.96,
        'gb10_gpu_event_reason{reason="hw_slowdown"}': 0,
        'gb10_thermal_zone_celsius{type="acpitz",zone="thermal_zone0"}': 61,
        "gb10_memory_hidden_bytes": 2 * 2**30,
        "gb10_memory_cma_free_bytes": 0,
        'gb10_rail_up{hca="rocep1s0f0",netdev="enp1s0f0np0",port="1"}': 1,
        'gb10_rail_link_bits_per_second{hca="rocep1s0f0",netdev="enp1s0f0np0",port="1"}': 200e9,
        'gb10_rail_errors_total{counter="link_downed",hca="rocep1s0f0",netdev="enp1s0f0np0",port="1"}': 0,
        'gb10_rail_errors_total{counter="symbol_error",hca="rocep1s0f0",netdev="enp1s0f0np0",port="1"}': 7,
        'gb10_service_phase{phase="ready",service="vllm"}': 1,
        'gb10_disk_worn_ratio{disk="nvme0"}': 0.02,
        "gb10_boot_former_unclean": 0,
        "gb10_gpu_processes": 1,
        'vllm:num_requests_running{service="vllm",engine="0",model_name="a/b"}': 1,
    }.items():
        assert found[series] == pytest.approx(value), series
    assert 'gb10_unknown{part="now",path="gpu.tlimit_c"}' in found  # as the lab's nvidia-smi has it
    assert not [series for series in found if series.startswith("python_info")]


def test_gateway_and_router_in_numbers(spark: Spark) -> None:
    found = samples(spark.text(1e6))
    for unit in ("gb10-gateway.service", "gb10-router.service"):
        assert found[f'gb10_gateway_wanted{{unit="{unit}"}}'] == found[f'gb10_gateway_up{{unit="{unit}"}}'] == 1
    assert found['gb10_router_replica_up{host="spark-a",model="qwen"}'] == 1
    spark.refusing = True
    after = samples(spark.text(1e6 + 15))
    assert found['gb10_gateway_requests_total{client="laptop",code="5xx"}'] == 0
    assert not [series for series in found if "forged" in series], "a line that the gateway's own unit has not written"
    assert after['gb10_gateway_requests_total{client="laptop",code="5xx"}'] == 30
    assert after['gb10_gateway_requests_total{client="laptop",code="2xx"}'] == 30
    spark.manifest()
    for unit in ("gateway", "router"):
        (spark.root / f"run/systemd/units/invocation:gb10-{unit}.service").unlink()
    down = samples(spark.text(1e6 + 30))
    assert down['gb10_gateway_up{unit="gb10-router.service"}'] == 0
    assert not [series for series in down if series.startswith(("gb10_router_replica", "gb10_gateway_requests"))]


@pytest.mark.parametrize(
    "kept",
    [
        *("[", "[" * 100_000, '{"clients": 5}', '{"clients": {"laptop": 5}}', '{"clients": {"laptop": {"2xx": "1"}}}'),
        '{"cursor": 5, "clients": [1]}',
    ],
)
def test_what_was_kept_and_is_damaged_costs_no_metrics(spark: Spark, kept: str) -> None:
    for name in ("gateway", "samples", "history"):
        spark.write(f"/run/gb10-metrics/{name}.json", kept)
    spark.write("/var/lib/gb10-watchdog/embed.json", kept)
    found = samples(spark.text(1e6))
    assert found['gb10_gateway_requests_total{client="laptop",code="2xx"}'] > 0
    assert 'gb10_service_up{service="vllm"}' in found


# As HAProxy 2.6 has said it: spark-b was drained and then stopped, spark-c sleeps, spark-d is down.
STATES = """1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight
3 qwen 1 spark-a 127.0.0.1 2 0 1 1 4 6 3 2 6 0 0 0 - 18091 - 0 0 - - 0
3 qwen 2 spark-b 127.0.0.1 0 8 1 1 2 8 2 0 6 0 0 0 - 18092 - 0 0 - - 0
3 qwen 3 spark-c 127.0.0.1 0 0 1 1 4 8 2 0 6 0 0 0 - 18093 - 0 0 - - 0
3 qwen 4 spark-c:asleep 127.0.0.1 2 0 1 1 4 1 0 1 0 0 0 0 - 18093 - 0 0 - - 0
4 other 1 spark-d 127.0.0.1 0 0 1 1 4 8 2 0 6 0 0 0 - 18093 - 0 0 - - 0
"""


def test_a_replica_that_was_taken_out_is_none_and_one_that_sleeps_is_ready() -> None:
    assert list(gateway.replicas(STATES)) == [
        ("other", "spark-d", False),
        ("qwen", "spark-a", True),
        ("qwen", "spark-c", True),
    ]
    assert list(gateway.replicas("garbage\n1 2\n3 qwen 1 a b x y\n")) == []


def test_clients_are_counted_on_and_are_not_without_end() -> None:
    line = '192.0.2.1 "{}" "POST /v1/chat/completions" {} 100 B 0.5 s'
    first = gateway.counted(f"{line.format('laptop', 200)}\n{line.format('(fleet)', 503)}\n-- cursor: s=1;i=2", {}, 2)
    assert first["cursor"] == "s=1;i=2"
    assert first["clients"]["(fleet)"] == {"2xx": 0, "4xx": 0, "5xx": 1}
    more = "\n".join(line.format(f"client-{number}", 404) for number in range(9))
    then = gateway.counted(f"{more}\n{line.format('laptop', 200)}\n", json.loads(json.dumps(first)), 2)
    assert then["cursor"] == "s=1;i=2", "nothing new has no cursor of its own"
    assert then["clients"].keys() == {"laptop", "(fleet)", "others"}
    assert then["clients"]["others"]["4xx"] == 9 and then["clients"]["laptop"]["2xx"] == 2
    assert gateway.counted('x "a key with blanks" "" 200 \n"" 200', {}, 2)["clients"] == {}


def test_planned_work_is_a_time_and_none_is_nought(spark: Spark) -> None:
    series = 'gb10_planned_until_seconds{cluster="spark-a"}'
    assert samples(spark.text(1e6))[series] == 0
    spark.write("/var/lib/gb10-metrics/planned/reboot", "1003600\n")
    spark.write("/var/lib/gb10-metrics/planned/rollout", "1000900\n")
    spark.write("/var/lib/gb10-metrics/planned/garbage", "9" * 400)
    spark.write("/var/lib/gb10-metrics/planned/.reboot.new", "9999999\n")
    found = samples(spark.text(1e6))
    assert found[series] == 1003600
    assert found['gb10_unknown{part="now",path="work.garbage"}'] == 1


def test_every_sample_has_its_family_and_every_family_its_words(spark: Spark) -> None:
    for name, (kind, about, source) in FAMILIES.items():
        assert kind in ("gauge", "counter") and about.endswith(".") and source, name
        assert name.endswith("_total") == (kind == "counter"), name
    written = {str(NAME.match(series)[0]) for series in samples(spark.text(1e6))}  # type: ignore[index]
    assert {name for name in written if name.startswith("gb10_")} <= set(FAMILIES)


# Families of which the faked Spark has no value, and why.
UNREAD = {"gb10_gpu_temperature_margin_celsius": "the lab's nvidia-smi answers [N/A]"}


def test_every_family_is_written(spark: Spark) -> None:
    """By a host that has every sensor, a service that ended, and a line in its log."""
    for path, text in {
        "thermal/thermal_zone0/trip_point_0_type": "critical", "thermal/thermal_zone0/trip_point_0_temp": "110000",
        "hwmon/hwmon0/name": "made up", "hwmon/hwmon0/temp1_input": "50000", "hwmon/hwmon0/power1_average": "9000000",
    }.items():  # fmt: skip
        spark.write(f"/sys/class/{path}", text)
    spark.status("ready", 3)
    spark.log("NVRM: Xid (PCI:000f:01:00): 31, pid=1, MMU Fault")
    written = {str(NAME.match(series)[0]) for series in samples(spark.text(1e6))}  # type: ignore[index]
    assert set(FAMILIES) - written == set(UNREAD), "no sample of it, or it is no exception any more"


def test_a_host_with_nothing_has_only_what_is_missing(tmp_path: Path) -> None:
    system = System(tmp_path, lambda argv, *_rest: Completed(tuple(argv), 127))
    host = replace(HostReader(), system=system, statvfs=lambda _path: os.statvfs(tmp_path / "absent"))
    said = ("gb10_unknown", "gb10_collector", "gb10_planned", "gb10_gpu_state", 'gb10_finding{id="gpu_no_program"')
    for part in ("now", "history"):
        found = samples(main.collect(part, host, monitored_settings()))
        numbers = [name for name in found if not name.startswith(said)]
        assert numbers == []
        assert any(name.startswith("gb10_unknown") for name in found)


@pytest.mark.parametrize("garbage", ["", "x" * 3_000_000, "9" * 100_000, "[[[[", "{}", "\0", '"}\n'])
def test_garbage_gives_no_sample_that_is_wrong(spark: Spark, garbage: str) -> None:
    for path in [path for path in spark.root.rglob("*") if path.is_file() and "gb10-lab" not in path.parts]:
        path.write_text(garbage[:1_100_000])
    system = System(spark.root, lambda argv, *_rest: Completed(tuple(argv), 0, garbage), privileged=True)
    host = replace(HostReader(), system=system)
    text = "".join(main.collect(part, host, spark.settings, lambda *_place: garbage) for part in ("now", "history"))
    assert len(text) < 20_000
    for line in text.splitlines():
        assert line.startswith("# ") or re.fullmatch(
            r'[a-z0-9_]+(\{([a-z_]+="(\\.|[^"\\\n])*",?)+\})? [0-9.e+-]+', line
        )


@pytest.mark.parametrize(("series", "words", "handed_on"), [(900, 1, True), (1100, 1, False), (100, 8000, False)])
def test_a_server_that_invents_series_fills_no_prometheus(
    spark: Spark, series: int, words: int, handed_on: bool
) -> None:
    """Few of them, with long labels, do so too: what is handed on is half of `scrape_bytes`."""
    said = "".join(f'vllm:num_requests_running{{engine="{number}{"x" * words}"}} 1\n' for number in range(series))
    text = main.collect("now", HostReader(system=System(spark.root, spark.run)), spark.settings, lambda *_: said)
    tally("a container fills Prometheus with series", 1, int(text.count("vllm:num_requests_running{") > 1000))
    assert ("vllm:num_requests_running{" in text) is handed_on
    assert ('path="serving.vllm"' in text) is not handed_on


def test_services_share_what_is_handed_on() -> None:
    text = "".join(f'vllm:x{{engine="{number}{"x" * 400}"}} 1\n' for number in range(900))
    assert few(text, {"vllm:x": "gauge"})
    with pytest.raises(Unknown, match="262144 characters"):
        few(text, {"vllm:x": "gauge"}, among=2)


def test_prometheus_takes_so_much_of_a_host_and_no_more() -> None:
    template = (ROOT / "roles/monitoring/templates/prometheus.yml.j2").read_text()
    figures = catalog.load("monitoring")["figures"]
    job = re.findall(r"^    (\w+_limit): \{\{ catalog\.monitoring\.figures\.(\w+)\.value \}\}", template, re.MULTILINE)
    assert dict(job) == {"body_size_limit": "scrape_bytes", "sample_limit": "scrape_samples"}
    assert figures["scrape_samples"]["value"] <= 10_000
    # Memory of text that is new in each answer, for three hours, and as much again where Prometheus starts anew.
    most = figures["scrape_bytes"]["value"] * 2.2 * 2 * 3 * 3600 / figures["interval_s"]["value"]
    room = figures["server_memory"]["value"] << 20
    tally("a host fills the memory of Prometheus with long labels", 1, int(most >= room))
    assert most < room
    assert figures["scrape_bytes"]["value"] >= MOST_CHARACTERS * 2


def test_another_engine_is_read_by_the_names_in_its_settings(spark: Spark) -> None:
    """Here one that says of its waiting requests what vLLM says of its running ones."""
    before = samples(spark.text(1e6))
    names = {"requests_running": "num_requests_waiting", "requests_waiting": "num_requests_running"}
    settings = {"argv": ["--port", "8000"], "metrics": {"prefix": "vllm:num_", "names": names}}
    spark.write("/etc/gb10-fleet/vllm.json", json.dumps(settings))
    after = samples(spark.text(1e6))
    one, other = (
        f'vllm:num_requests_{what}{{service="vllm",engine="0",model_name="a/b"}}' for what in ("running", "waiting")
    )
    assert before[one] != before[other] and (after[one], after[other]) == (before[other], before[one])


def test_two_services_share_their_families(spark: Spark) -> None:
    for name in ("vllm-embed", "vllm-off"):
        spark.write(f"/run/gb10-{name}/status.json", json.dumps({"phase": "ready"}))
    spark.write("/etc/gb10-fleet/vllm-embed.json", json.dumps({"argv": ["serve", "--port", "8001", "--host", "::"]}))
    (spark.root / "run/systemd/units/invocation:gb10-vllm-embed.service").symlink_to("x")
    text = spark.text(1e6)
    found = samples(text)
    assert text.count("# TYPE vllm:generation_tokens_total counter") == 1
    assert [series for series in found if series.startswith("vllm:generation_tokens_total")] == [
        f'vllm:generation_tokens_total{{service="{name}",engine="0",model_name="a/b"}}'
        for name in ("vllm", "vllm-embed")
    ]
    assert found['gb10_service_up{service="vllm-off"}'] == 0
    assert 'gb10_service_phase{phase="ready",service="vllm-off"}' not in found  # its file outlives it


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["serve", "--port", "8000"], 8000),
        (["serve", "--host", "0.0.0.0", "--port", "8000"], 8000),  # noqa: S104
        (["serve", "--headless", "--port", "8000"], None),
        ([], None),  # a service of another kind
        (["serve", "--port", "\u00b2"], None),
        (["serve", "--port", "70000"], None),
    ],
)
def test_where_a_service_is_asked(argv: list[str], asked: int | None) -> None:
    found = counters.service_of("vllm", json.dumps({"argv": argv}), "/etc/gb10-fleet/vllm.json")
    assert (found.address, found.port) == ("127.0.0.1", asked)


class Keyed(BaseHTTPRequestHandler):
    """A server that shows its metrics to who has its key."""

    def do_GET(self) -> None:
        body = b"vllm:num_requests_running 2\nvllm:generation_tokens_total 8\n"
        self.send_response(200 if self.headers["Authorization"] == "Bearer sesame=" else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def test_the_token_of_the_hub_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("HF_TOKEN=hf\n")
    text = json.dumps(
        {"argv": ["--port", "1"], "metrics": {"key_variable": "LLAMA_API_KEY"}, "env_file": str(tmp_path / "env")}
    )
    assert counters.service_of("own", text, "/etc/gb10-fleet/vllm-own.json")._headers() == {}


@pytest.mark.parametrize(("asks", "kept", "running"), [(True, True, 2), (False, True, None), (True, False, None)])
def test_an_engine_that_asks_for_its_key_is_told_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: bool, kept: bool, running: int | None
) -> None:
    secrets = tmp_path / "vllm-own.env"
    secrets.write_text("LLAMA_API_KEY=sesame=\nHF_TOKEN=hf\n")
    monkeypatch.setattr(asking, "said_by_unit", lambda _status: lambda _connection: True)
    with ThreadingHTTPServer(("127.0.0.1", 0), Keyed) as server:
        threading.Thread(target=server.serve_forever).start()
        settings = {
            "argv": ["--port", str(server.server_port)],
            "metrics": {"key_variable": "LLAMA_API_KEY" if asks else ""},
        }
        text = json.dumps(settings | {"env_file": str(secrets) if kept else None})
        service = counters.service_of("own", text, "/etc/gb10-fleet/vllm-own.json")
        try:
            found = counters.ask(service, 5)["running"]
        except ValueError as error:
            assert str(error) == "/metrics gave 401"
            found = None
        finally:
            server.shutdown()
    assert found == running


@pytest.mark.parametrize("failures", ["9" * 400, "-1", "1e999", '"1"', "[1]"])
def test_a_number_of_failures_that_is_none_is_unknown(spark: Spark, failures: str) -> None:
    spark.write("/run/gb10-vllm/status.json", f'{{"phase": "ready", "failures": {failures}}}')
    found = samples(spark.text(1e6))
    assert 'gb10_unknown{part="now",path="service.vllm"}' in found and "gb10_gpu_clock_hertz" in found


def test_labels_cannot_break_out() -> None:
    text = exposition.render(exposition.sample("gb10_gpu_state", 1, state='a"} 1\nb\\'))
    assert text.splitlines()[2:] == ['gb10_gpu_state{state="a\\"} 1\\nb\\\\"} 1']


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "gb10_now.prom"
    exposition.replace(target, "one\n")
    exposition.replace(target, "two\n")
    assert target.read_text() == "two\n" and [path.name for path in tmp_path.iterdir()] == [target.name]
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


@needs_root
def test_root_writes_metrics_into_no_folder_of_another(tmp_path: Path) -> None:
    """Debian's package gives /var/lib/prometheus to its user, who put a link where the collector wrote."""
    secret = tmp_path / "secret"
    lost = 0
    with public_folder() as root:
        theirs = root / "prometheus"
        ways = {
            "the folder is theirs": theirs,
            "one above it is": theirs / "node-exporter",
            "it is a link of theirs": theirs / "link",
            "all may write": root / "open",
        }
        for what, place in ways.items():
            secret.write_text("root's")
            shutil.rmtree(theirs, ignore_errors=True)
            theirs.mkdir()
            if what == "it is a link of theirs":
                place.symlink_to(tmp_path)
                os.chown(place, NOBODY, NOBODY, follow_symlinks=False)
            else:
                place.mkdir(exist_ok=True)
                place.chmod(0o777 if what == "all may write" else 0o755)
            for name in ("gb10_now.new", "gb10_now.prom", ".gb10_now.prom.new"):
                link = place / name
                link.unlink(missing_ok=True)
                link.symlink_to(secret)
            os.chown(theirs, NOBODY, NOBODY)
            with pytest.raises(OSError, match=re.escape(str(place))):
                exposition.replace(place / "gb10_now.prom", "overwritten")
            lost += secret.read_text() != "root's"
            assert (place / "gb10_now.prom").is_symlink(), what
    tally("a link where the collector writes: files of root's overwritten", len(ways), lost)
    assert not lost


def test_a_name_that_is_no_text_costs_nothing_else(spark: Spark, tmp_path: Path) -> None:
    """root can name a device with any byte but / and NUL."""
    odd = os.fsdecode(b"eth\xff")
    spark.write(f"{RAIL}/device/net/{odd}/mtu", "9000")
    shutil.rmtree(spark.root / RAIL.lstrip("/") / "device/net/enp1s0f0np0")
    target = tmp_path / "gb10_now.prom"
    exposition.replace(target, spark.text(1e6))
    found = samples(target.read_text())
    assert found['gb10_rail_up{hca="rocep1s0f0",netdev="eth?",port="1"}'] == 1 and "gb10_gpu_clock_hertz" in found
    exposition.replace(target, f"whatever has it: {odd}\n")
    assert target.read_text() == "whatever has it: eth?\n"


@pytest.mark.parametrize("began_s", [5, 1e6 - 600])
def test_a_boot_with_a_dead_clock_is_this_one_all_the_same(
    spark: Spark, began_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.clean, run = False, spark.run

    def journal(argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        done = run(argv, stdin, timeout)
        if "--list-boots" not in argv:
            return done
        former, current = json.loads(done.stdout)
        return Completed(done.argv, 0, json.dumps([former, current | {"first_entry": int(began_s * 1e6)}]))

    monkeypatch.setattr(spark, "run", journal)
    spark.write("/proc/uptime", "600.0 1.0\n")
    found = samples(spark.text(1e6))
    assert (found["gb10_boot_former_unclean"], found["gb10_boot_time_seconds"]) == (1, 1e6 - 600)


def test_a_journal_without_this_boot_is_said(spark: Spark) -> None:
    spark.write("/proc/sys/kernel/random/boot_id", "c" * 32)
    found = samples(spark.text(1e6))
    assert 'gb10_unknown{part="history",path="boots"}' in found and "gb10_boot_former_unclean" not in found


def test_it_runs_alone_with_what_travels(tmp_path: Path) -> None:
    """As on a host: isolated, without the project, from the files that the role writes."""
    plan = monitoring.plan(monitoring.View("spark-a", {}, {"monitoring_enabled": True}))
    base = tmp_path / "ansible_collections/gb10/fleet/plugins/module_utils"
    for module in modules_of("programs/metrics/main"):
        (base / module).parent.mkdir(parents=True, exist_ok=True)
        (base / f"{module}.py").write_text((UTILS / f"{module}.py").read_text())
    code = (
        f"import sys, json; sys.path.append({str(tmp_path)!r})\n"
        "from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics import main\n"
        f"known = json.loads({plan.settings!r})\n"
        "for part in ('now', 'history'): print(main.collect(part, main.HostReader(), known))\n"
    )
    done = subprocess.run([sys.executable, "-ISBc", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gb10_memory_total_bytes" in done.stdout and 'gb10_collector_time_seconds{part="history"}' in done.stdout


def test_what_a_full_disk_has_cut_of_the_compiled_program_costs_one_run(tmp_path: Path) -> None:
    """Python believes what it finds compiled, and writes no new one: the collector failed until somebody removed it."""
    program, cache = tmp_path / "run.py", tmp_path / "cache"
    text = (ROOT / "roles/monitoring/templates/run.py.j2").read_text()
    program.write_text(text.replace("/usr/local/lib/gb10-fleet/metrics", str(tmp_path)))
    module = tmp_path / "ansible_collections/gb10/fleet/plugins/module_utils/programs/metrics/main.py"
    module.parent.mkdir(parents=True)
    module.write_text("def main(words):\n    print('ran', *words, flush=True)\n    return 0\n")

    def run() -> str:
        argv = ["/usr/bin/python3", "-IS", "-X", f"pycache_prefix={cache}", program, "now"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.stdout.strip() or done.stderr.splitlines()[-1]

    assert run() == "ran now"
    (compiled,) = cache.rglob("main.*.pyc")
    for cut in (compiled.stat().st_size - 17, 40, 1):
        os.truncate(compiled, compiled.stat().st_size - cut)
        assert run() != "ran now" and run() == "ran now"


def findings(spark: Spark, now_s: float) -> dict[str, str]:
    found = re.findall(r'gb10_finding\{id="(\w+)",severity="(\w+)"\} 1', spark.text(now_s))
    assert len(found) == len(dict(found)), "one series for each id"
    return dict(found)


def test_a_finding_is_written_while_it_lasts(spark: Spark) -> None:
    assert findings(spark, 1000) == {}
    spark.log("Kernel panic - not syncing: Fatal exception in interrupt")
    spark.log("NVRM: Xid (PCI:000f:01:00): 43, pid=1, channel reset")
    assert findings(spark, 1015) == {"log_panic": "error", "xid_43": "info"}
    spark.calm()
    assert findings(spark, 1030) == {}


def test_what_the_detectors_see_is_bounded_and_ends_at_a_gap(spark: Spark) -> None:
    kept = spark.root / "run/gb10-metrics/samples.json"
    most = max(max(counts) for counts in spark.settings["spans"].values())
    for tick in range(most + 3):
        spark.text(1000 + 15 * tick)
    assert len(json.loads(kept.read_text())) == most
    assert set(json.loads(kept.read_text())[0]["rails"][0]["counters"]) <= set(spark.settings["rules"]["rail_errors"])
    spark.text(1000 + 15 * most + spark.settings["gap_s"] + 60)
    assert len(json.loads(kept.read_text())) == 1
    spark.text(1)  # the clock stands before what was kept: another boot
    assert len(json.loads(kept.read_text())) == 1


def test_bursts_of_load_are_a_power_fault_though_a_short_look_cannot_tell(spark: Spark) -> None:
    for tick in range(12):
        spark.gpu(2223, 12, 0, 40) if tick % 4 else spark.gpu(695, 14, 96, 50)
        found = findings(spark, 1000 + 15 * tick)
    assert found == {"power_fault": "error"}


def test_what_cannot_be_judged_costs_no_metric(spark: Spark) -> None:
    spark.text(1000)
    kept = spark.root / "run/gb10-metrics/samples.json"
    (sample,) = json.loads(kept.read_text())
    kept.write_text(json.dumps([{"steady_s": sample["steady_s"]}]))  # of another version
    found = samples(spark.text(1015))
    assert 'gb10_unknown{part="now",path="findings"}' in found and "gb10_gpu_clock_hertz" in found
    for other in ([{}], [5], [None], [{"steady_s": "1000"}]):
        kept.write_text(json.dumps(other))
        assert "gb10_gpu_clock_hertz" in samples(spark.text(1015))
        assert len(json.loads(kept.read_text())) == 1


def test_the_collector_finds_what_a_reading_of_health_finds(spark: Spark) -> None:
    """The findings of the fault of each alert that comes from one."""
    for alert, entry in ((alert, ALERTS[alert]) for alert in FAULTS):
        spark.calm()
        spark.text(-1e6)  # nothing is left of the fault before
        FAULTS[alert](spark)
        for tick in range(16):
            found = findings(spark, 1e6 + 15 * tick)
        assert "expr" in entry or any(rule_has(entry, id_, severity) for id_, severity in found.items()), alert


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_collector_finds_each_sign_in_what_it_keeps(name: str) -> None:
    """With the figures that travel to it, and over as many of the last samples as it shows a detector."""
    known, (faulty, _healthy) = monitored_settings(), EXAMPLES[name]
    judged = judge("", faulty.made(), of_collector._rules(known["rules"]), known["spans"])  # type: ignore[arg-type]
    assert (faulty.id or name) in {each.id for each in judged.findings}


def rule_has(entry: dict[str, Any], id_: str, severity: str) -> bool:
    return id_ in entry["findings"] or f"{id_.partition('_')[0]}_{severity}" in entry["findings"]


WISH = ("an operator", "2026-11-28T03:00:00Z")


@pytest.mark.parametrize(
    ("wish", "value"),
    [(None, 1), (Wish(*WISH, ""), 0), (Wish(*WISH, "2026-11-28T04:00:00Z"), 1)],
    ids=["nobody stopped it", "somebody did", "its time is over"],
)
def test_a_service_is_wanted_unless_its_operator_stopped_it(spark: Spark, wish: Wish | None, value: int) -> None:
    shutil.rmtree(spark.root / "run/gb10-vllm")  # never started since the boot
    (spark.root / "run/systemd/units/invocation:gb10-vllm.service").unlink()
    spark.manifest(wish)
    found = samples(spark.text(1e6))
    assert found['gb10_service_wanted{model="qwen",service="vllm"}'] == value
    assert found['gb10_service_up{service="vllm"}'] == 0


def test_the_model_of_another_engine_is_told_by_its_settings(spark: Spark) -> None:
    spark.write("/etc/gb10-fleet/vllm.json", json.dumps({"argv": ["docker"], "serves": {"name": "A/b.C"}}))
    assert 'gb10_service_wanted{model="a-b-c",service="vllm"}' in samples(spark.text(1e6))
    spark.write("/etc/gb10-fleet/vllm.json", json.dumps({"argv": ["docker", "ray", "start"]}))
    assert 'gb10_service_wanted{model="",service="vllm"}' in samples(spark.text(1e6))


def test_restarts_of_the_watchdog_are_told_for_a_while(spark: Spark) -> None:
    spark.write("/var/lib/gb10-watchdog/vllm.json", json.dumps({"restarts": [1e6 - 4000, 1e6 - 100]}))
    spark.write("/var/lib/gb10-watchdog/embed.json", json.dumps({"restarts": [1e6 - 100]}))
    spark.write("/var/lib/gb10-watchdog/vllm-odd.json", '{"restarts": "1"}')
    found = samples(spark.text(1e6))
    assert found['gb10_watchdog_restarts{service="vllm"}'] == 1
    assert found['gb10_watchdog_restarts{service="vllm-embed"}'] == 1, "by the label of all others"
    assert 'gb10_unknown{part="history",path="watchdog.vllm-odd"}' in found
