"""Builds roles/monitoring/files/gb10-dashboard.json with Grafana's own SDK."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeVar

from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring import rules
from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models

from scripts.pages.monitoring import FILES

FILE = FILES / "gb10-dashboard.json"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
HERE = 'instance=~"$instance"'
_Panel = TypeVar("_Panel", stat.Panel, timeseries.Panel)
WIDTH, HEIGHT = 8, 7  # three panels in a row of Grafana's 24 columns


@dataclass(frozen=True)
class Chart:
    """A panel: `queries` are expressions with their legend; `limit`: from here on it is red."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    about: str = ""
    limit: float | None = None


def rows() -> dict[str, tuple[Chart, ...]]:
    """What is on the dashboard, from what asks for a deed to what explains it."""
    known = rules.figures()
    host = "{{instance}}"
    both = f"{host} {{{{service}}}}"
    return {
        "Model": (
            Chart("Tokens per second", "short", ((f"gb10:tokens_per_second{{{HERE}}}", both),)),
            Chart(
                "Time to first token, p95",
                "s",
                ((f"gb10:time_to_first_token_p95_seconds{{{HERE}}}", both),),
            ),
            Chart(
                "Time between tokens, p95",
                "s",
                ((f"gb10:inter_token_latency_p95_seconds{{{HERE}}}", both),),
            ),
            Chart(
                "Requests",
                "short",
                (
                    (f"sum by (instance, service) (vllm:num_requests_running{{{HERE}}})", f"{both} running"),
                    (f"sum by (instance, service) (vllm:num_requests_waiting{{{HERE}}})", f"{both} waiting"),
                ),
            ),
            Chart(
                "KV cache",
                "percentunit",
                ((f"max by (instance, service) (vllm:kv_cache_usage_perc{{{HERE}}})", both),),
                limit=known["cache_full"],
            ),
            Chart("Whole request, p95", "s", ((f"gb10:end_to_end_p95_seconds{{{HERE}}}", both),)),
            Chart("Time in the queue, p95", "s", ((f"gb10:queue_time_p95_seconds{{{HERE}}}", both),)),
            Chart(
                "Requests that ended, by outcome",
                "reqps",
                ((f"gb10:requests_per_second{{{HERE}}}", f"{both} {{{{finished_reason}}}}"),),
                "error is a failure of the server, abort one of the client.",
            ),
            Chart(
                "Requests of a gateway that failed, by client",
                "reqps",
                (
                    (
                        f'sum by (instance, client) (rate(gb10_gateway_requests_total{{{HERE}, code="5xx"}}[15m]))',
                        f"{host} {{{{client}}}}",
                    ),
                ),
                "Answers of 5xx; a client is the name of its key.",
            ),
            Chart(
                "Prompt tokens from the cache",
                "percentunit",
                ((f"gb10:prefix_hit_ratio{{{HERE}}}", both),),
            ),
            Chart(
                "Preemptions per second",
                "short",
                ((f"gb10:preemptions_per_second{{{HERE}}}", both),),
                "Requests that had to give their place in the KV cache back.",
            ),
            Chart(
                "Drafted tokens that were taken",
                "percentunit",
                (
                    (
                        f"rate(vllm:spec_decode_num_accepted_tokens_total{{{HERE}}}[5m])"
                        f" / rate(vllm:spec_decode_num_draft_tokens_total{{{HERE}}}[5m])",
                        both,
                    ),
                ),
                "Only with speculative decoding.",
            ),
        ),
        "GPU": (
            Chart(
                "SM clock",
                "hertz",
                ((f"gb10_gpu_clock_hertz{{{HERE}}}", host),),
                f"Under load a healthy GB10 runs above {known['clock_min_mhz']} MHz. 208 MHz is idle.",
            ),
            Chart("Power of the GPU", "watt", ((f"gb10_gpu_power_watts{{{HERE}}}", host),)),
            Chart(
                "Temperature of the GPU", "celsius", ((f"gb10_gpu_temperature_celsius{{{HERE}}}", host),),
                "60 to 75 °C are usual under load.", known["gpu_hot_c"],
            ),
            Chart("Utilization", "percentunit", ((f"gb10_gpu_utilization_ratio{{{HERE}}}", host),)),
            Chart(
                "Reasons that the driver gives", "short",
                ((f"gb10_gpu_event_reason{{{HERE}}} == 1", f"{host} {{{{reason}}}}"),),
                "gpu_idle and sw_power_cap are healthy.",
            ),
            Chart(
                "Thermal zones", "celsius", ((f"max by (instance) (gb10_thermal_zone_celsius{{{HERE}}})", host),),
                "The hottest one. Up to 96 °C are healthy under load.",
                known["zone_critical_c"] - known["zone_margin_c"],
            ),
        ),
        "Memory": (
            Chart("Memory in use", "percentunit", ((f"gb10:memory_used_ratio{{{HERE}}}", host),)),
            Chart(
                "In no account of the kernel", "bytes", ((f"gb10_memory_hidden_bytes{{{HERE}}}", host),),
                "The GPU's share, or what was not given back.",
            ),
            Chart(
                "Tasks that wait for memory", "percentunit",
                ((f'gb10_pressure_ratio{{{HERE}, resource="memory", tasks="some", window_seconds="300"}}', host),),
                limit=known["pressure_percent"] / 100,
            ),
            Chart("Page cache", "bytes", ((f"gb10_memory_cached_bytes{{{HERE}}}", host),)),
            Chart(
                "Free memory in large blocks", "bytes", ((f"gb10_memory_blocks_large_bytes{{{HERE}}}", host),),
                "Blocks of 32 MiB or more. Read it while nothing computes.",
            ),
            Chart(
                "CmaFree above CmaTotal", "bytes",
                ((f"gb10_memory_cma_free_bytes{{{HERE}}} - gb10_memory_cma_total_bytes{{{HERE}}}", host),),
                "Above 0, kexec handover keeps memory.", 1,
            ),
        ),
        "Rails, disks, collector": (
            Chart(
                "Rails: link", "bps",
                ((f"gb10_rail_link_bits_per_second{{{HERE}}}", f"{host} {{{{hca}}}}"),),
            ),
            Chart(
                "Rails: errors per second", "short",
                ((f"sum by (instance, hca) (rate(gb10_rail_errors_total{{{HERE}}}[5m]))", f"{host} {{{{hca}}}}"),),
            ),
            Chart("Rails: PCIe lanes", "short", ((f"gb10_rail_pcie_lanes{{{HERE}}}", f"{host} {{{{hca}}}}"),)),
            Chart(
                "Wear of disks", "percentunit", ((f"gb10_disk_worn_ratio{{{HERE}}}", f"{host} {{{{disk}}}}"),),
                limit=known["wear_percent"] / 100,
            ),
            Chart(
                "Boots without a shutdown", "short", ((f'gb10_boots{{{HERE}, end="unclean"}}', host),),
                f"In the last {known['recent_days']} days.",
            ),
            Chart(
                "CPU of the collector, a run", "s",
                ((f"gb10_collector_cpu_seconds{{{HERE}}}", f"{host} {{{{part}}}}"),),
            ),
        ),
    }  # fmt: skip


def overview() -> tuple[Chart, ...]:
    return (
        Chart("Alerts", "short", (('count(ALERTS{alertstate="firing"}) or vector(0)', "firing"),), limit=1),
        Chart("Hosts that answer", "short", ((f'sum(up{{job="gb10", {HERE}}})', "up"),)),
        Chart("Services ready", "short", ((f'count(gb10_service_phase{{{HERE}, phase="ready"}})', "ready"),)),
    )


def build() -> str:
    made = (
        dashboard.Dashboard("GB10 fleet")
        .uid("gb10-fleet")
        .tags(["gb10", "vllm"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Source").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("instance")
            .label("Host")
            .query("label_values(gb10_gpu_state, instance)")
            .datasource(SOURCE)
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
    )
    for chart in overview():
        made = made.with_panel(_filled(_figure(), chart, height=4))
    for title, charts in rows().items():
        made = made.with_row(dashboard.Row(title))
        for chart in charts:
            made = made.with_panel(_filled(_lines(), chart, HEIGHT))
    return json.dumps(json.loads(JSONEncoder(sort_keys=True, indent=2).encode(made.build())), indent=1) + "\n"


def _figure() -> stat.Panel:
    return stat.Panel().graph_mode(shapes.BigValueGraphMode.AREA).color_mode(shapes.BigValueColorMode.VALUE)


def _lines() -> timeseries.Panel:
    return timeseries.Panel().line_width(1).fill_opacity(5).legend(
        common.VizLegendOptions().display_mode(shapes.LegendDisplayMode.LIST).placement(shapes.LegendPlacement.BOTTOM)
        .show_legend(True)
    )  # fmt: skip


def _filled(panel: _Panel, chart: Chart, height: int) -> _Panel:
    panel.title(chart.title).description(chart.about).unit(chart.unit).datasource(SOURCE).span(WIDTH).height(height)
    for name, (expression, legend) in zip("AB", chart.queries, strict=False):
        panel.with_target(prometheus.Dataquery().ref_id(name).expr(expression).legend_format(legend))
    if chart.limit is not None:
        steps = [models.Threshold(value=None, color="green"), models.Threshold(value=chart.limit, color="red")]
        panel.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    return panel


def main() -> None:
    FILE.write_text(build(), encoding="utf-8")


if __name__ == "__main__":
    main()
