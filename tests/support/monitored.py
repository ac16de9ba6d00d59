"""Faked Sparks whose real collector writes real metrics, and one fault for each alert of catalog/monitoring.yml."""

from __future__ import annotations

import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics import gateway, main, planned
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, System
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring import rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import monitoring

from lab.vendor.packages import nvidia_smi

DRIVER = "580.142"
FORMER, BOOT = "a" * 32, "b" * 32
RAIL = "/sys/class/infiniband/rocep1s0f0"
GIB_KB, GIB = 2**20, 2**30
MEMINFO = {
    "MemTotal": 121, "MemFree": 100, "MemAvailable": 110, "Buffers": 1, "Cached": 8, "AnonPages": 6, "Shmem": 0,
    "Slab": 4, "KernelStack": 0, "PageTables": 0, "Percpu": 0, "Hugetlb": 0, "CmaTotal": 0, "CmaFree": 0,
}  # fmt: skip
UNITS = ("gb10-vllm", "gb10-gateway", "gb10-router")
SLO = {"ttft_p95_s": 0.5, "error_share": 0.01}
BUCKETS = ("0.1", "1.0", "+Inf")


@cache
def _program() -> CodeType:
    return compile(nvidia_smi(DRIVER).content, "nvidia-smi", "exec")


def settings() -> dict[str, Any]:
    """What the role writes for the collector."""
    found: dict[str, Any] = json.loads(monitoring.plan(View("spark-a", {}, {})).settings)
    return found


class SetClock(Clock):
    """A clock that stands where it is set."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def now(self) -> float:
        return self.now_s


class Spark:
    """A healthy host under load that serves; a fault changes it, `calm` takes the fault back."""

    def __init__(self, root: Path, name: str, known: dict[str, Any] | None = None) -> None:
        self.root, self.name, self.now_s = root, name, 0.0
        self.tokens, self.symbol_errors = 0, 7
        self.smi: dict[str, Any] = {"__name__": "smi"}
        exec(_program(), self.smi)  # noqa: S102 - the lab's own
        self.smi["RUN"] = root / "run/gb10-lab"
        self.settings = {**(rules.collector(known, name) if known else settings()), "slo": SLO}
        self.late = self.errors = 0
        (root / "run/gb10-metrics").mkdir(parents=True, exist_ok=True)
        self.calm()

    def calm(self) -> None:
        self.slow = self.failing = False
        self.silent = self.frozen = self.serves_nothing = self.unwritten = self.untold = False
        self.free, self.certificate_days = 40, 60
        self.replica, self.refusing = "2 0", False
        self.write("/etc/gb10-fleet/gateway.conf", "ssl_certificate /etc/gb10-fleet/cert.pem;")
        self.write("/var/lib/gb10-watchdog/vllm.json", json.dumps({"restarts": [-1e6]}))
        self.manifest()
        self.running, self.waiting, self.cache, self.rate = 1, 0, 0.4, 30
        self.events: list[str] = []
        self.clean, self.worn, self.computing, self.rail_errors = True, 2, True, 0
        self.gpu(2418, 86.2, 96, 68)
        self.write("/run/gb10-lab/loaded-driver", DRIVER)
        self.memory()
        self.pressure(0)
        self.write("/proc/buddyinfo", f"Node 0, zone Normal{' 0' * 13} 3000\n")
        self.write("/proc/vmstat", "oom_kill 0\n")
        self.write("/proc/uptime", "300.0 1.0\n")
        self.write("/proc/sys/kernel/random/boot_id", BOOT)
        self.zone(61)
        self.write("/var/log/journal/x/system.journal", "")
        self.write("/sys/class/nvme/nvme0/model", "made up\n")
        for file, text in {
            "device/current_link_width": "4", "device/max_link_width": "16",
            "device/current_link_speed": "32.0 GT/s PCIe", "device/max_link_speed": "32.0 GT/s PCIe",
            "device/net/enp1s0f0np0/mtu": "9000", "ports/1/state": "4: ACTIVE", "ports/1/rate": "200 Gb/sec (4X HDR)",
        }.items():  # fmt: skip
            self.write(f"{RAIL}/{file}", text)
        self.status("ready")
        argv = ["vllm", "serve", "--host", "127.0.0.1", "--port", "8000", "--served-model-name", "Qwen"]
        self.write("/etc/gb10-fleet/vllm.json", json.dumps({"argv": argv}))
        for name in UNITS:
            unit = self.root / f"run/systemd/units/invocation:{name}.service"
            if not unit.is_symlink():
                unit.parent.mkdir(parents=True, exist_ok=True)
                unit.symlink_to("x")
        shutil.rmtree(self.root / planned.WORK.lstrip("/"), ignore_errors=True)

    def write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def gpu(self, clock: int, power: float, busy: int, heat: int, reasons: int = 0) -> None:
        self.smi["SCENARIOS"]["test"] = (str(clock), str(power), str(busy), "P0", str(heat), reasons)
        self.scenario("test")

    def scenario(self, name: str) -> None:
        self.write("/run/gb10-lab/gpu-scenario", name)

    def memory(self, **gib: float) -> None:
        rows = {**MEMINFO, **gib}
        self.write("/proc/meminfo", "".join(f"{name}: {int(value * GIB_KB)} kB\n" for name, value in rows.items()))

    def pressure(self, percent: float) -> None:
        for kind in ("cpu", "memory", "io"):
            some = percent if kind == "memory" else 0
            line = f"avg10={some:.2f} avg60={some:.2f} avg300={some:.2f} total=1\n"
            self.write(f"/proc/pressure/{kind}", f"some {line}full {line}")

    def zone(self, heat: float) -> None:
        self.write("/sys/class/thermal/thermal_zone0/type", "acpitz")
        self.write("/sys/class/thermal/thermal_zone0/temp", str(int(heat * 1000)))

    def manifest(self, wish: manifests.Wish | None = None) -> None:
        """The engine keeps the service running; `wish`: somebody stopped it."""
        label = "unit:gb10-vllm.service"
        declared = {"unit": "gb10-vllm.service", "enabled": True, "state": "started"}
        entry = manifests.Entry({}, declared, {}, None, (), (), (), 0, orphan=False)
        rail = entry._replace(declared={"nm_profile": "gb10-p0", "interface": "enp1s0f0np0"}, order=1)
        others = {
            f"unit:{name}.service": entry._replace(declared={"unit": f"{name}.service", "state": "started"}, order=2)
            for name in UNITS[1:]
        }
        known = manifests.Manifest(
            {label: entry, **others, "nm_profile:gb10-p0": rail}, None, {label: wish} if wish else {}
        )
        self.write(manifests.MANIFEST, manifests.serialise(known))

    def status(self, phase: str, failures: int = 0) -> None:
        failure = {"verdict": "engine_died", "text": "said"} if failures else None
        said = {"phase": phase, "failures": failures, "failure": failure}
        self.write("/run/gb10-vllm/status.json", json.dumps(said))

    def log(self, line: str) -> None:
        self.events.append(line)

    def run(self, argv: Sequence[str], _stdin: str | None, _timeout: float) -> Completed:
        if argv[0] == "nvidia-smi":
            return self._nvidia_smi(argv)
        if argv[0] == "nvme":
            log = {"critical_warning": 0, "avail_spare": 100, "percent_used": self.worn}
            return Completed(tuple(argv), 0, json.dumps({**log, "media_errors": 0, "unsafe_shutdowns": 3}))
        if argv[0] == "openssl":
            ends = time.gmtime(self.now_s + self.certificate_days * 86400)
            return Completed(tuple(argv), 0, time.strftime("notAfter=%b %d %H:%M:%S %Y GMT\n", ends))
        if self.untold and any(word.startswith("--grep=") for word in argv):
            return Completed(tuple(argv), 124, stderr="journalctl did not end within 20 s")
        if argv[0] == "journalctl":
            return Completed(tuple(argv), 0, self._journal(argv))
        return Completed(tuple(argv), 127)

    def _nvidia_smi(self, argv: Sequence[str]) -> Completed:
        scenario = (self.root / "run/gb10-lab/gpu-scenario").read_text()
        if scenario == "hung":
            return Completed(tuple(argv), 124)
        if "compute-apps" in argv[1]:
            return Completed(tuple(argv), 0, "4242, 98304\n" if self.computing else "")
        # Not by sys.stdout: a thread that another test has left may put that back at any moment.
        self.smi["print"] = partial(print, file=(said := io.StringIO()))
        status = self.smi["main"](list(argv[1:]))
        return Completed(tuple(argv), status, said.getvalue())

    def _journal(self, argv: Sequence[str]) -> str:
        now = int(self.now_s * 1e6)
        booted = max(now - 300_000_000, now // 2)
        if "--list-boots" in argv:
            former = {"boot_id": FORMER, "first_entry": booted // 2, "last_entry": booted - 1}
            return json.dumps([former, {"boot_id": BOOT, "first_entry": booted, "last_entry": now}])
        if any(word.startswith("MESSAGE_ID=") for word in argv):
            end = {"__REALTIME_TIMESTAMP": str(booted - 1), "_BOOT_ID": FORMER, "MESSAGE": "Journal stopped"}
            return json.dumps(end) if self.clean else ""
        if "--identifier=gb10_gateway" in argv:
            lines = [f'192.0.2.1 "laptop" "POST /v1/x" {503 if self.refusing else 200} 9 B 0.1 s'] * 30
            if "_SYSTEMD_UNIT=gb10-gateway.service" not in argv:  # any login may write lines of that name
                lines.append('192.0.2.1 "forged" "POST /v1/x" 503 9 B 0.1 s')
            return "\n".join([*lines, f"-- cursor: s={now}"])
        if "_TRANSPORT=kernel" not in argv:
            return ""
        lines = ({"__REALTIME_TIMESTAMP": str(now), "_BOOT_ID": BOOT, "MESSAGE": line} for line in self.events)
        return "\n".join(map(json.dumps, lines))

    def served(self, _service: object, _owner: object) -> str:
        """What vLLM's /metrics says."""
        if self.serves_nothing:
            raise ConnectionRefusedError(111, "Connection refused")
        label = '{engine="0",model_name="a/b"}'
        lines = ["# HELP vllm:num_requests_running Number of requests"]
        for name, kind, value in (
            ("num_requests_running", "gauge", self.running), ("num_requests_waiting", "gauge", self.waiting),
            ("kv_cache_usage_perc", "gauge", self.cache), ("generation_tokens_total", "counter", self.tokens),
            ("prompt_tokens_total", "counter", 3 * self.tokens), ("num_preemptions_total", "counter", 0),
            ("prefix_cache_queries_total", "counter", self.tokens),
            ("prefix_cache_hits_total", "counter", self.tokens // 2),
            ("spec_decode_num_draft_tokens_total", "counter", self.tokens),
            ("spec_decode_num_accepted_tokens_total", "counter", self.tokens // 3),
        ):  # fmt: skip
            lines += [f"# TYPE vllm:{name} {kind}", f"vllm:{name}{label} {value}"]
        lines.append("# TYPE vllm:request_success_total counter")
        for reason, count in (("stop", self.tokens - self.errors), ("error", self.errors)):
            lines.append(f'vllm:request_success_total{{engine="0",finished_reason="{reason}"}} {count}')
        for name in (
            "time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
            "request_queue_time_seconds",
        ):  # fmt: skip
            lines.append(f"# TYPE vllm:{name} histogram")
            quick = self.tokens - (self.late if name.startswith("time_to") else 0)
            counts = zip(BUCKETS, (quick, quick, self.tokens), strict=True)
            lines += [f'vllm:{name}_bucket{{engine="0",le="{edge}"}} {count}' for edge, count in counts]
            lines += [f"vllm:{name}_sum{label} {self.tokens}", f"vllm:{name}_count{label} {self.tokens}"]
        return "\n".join([*lines, "# TYPE python_info gauge", 'python_info{version="3.12"} 1', ""])

    def text(self, now_s: float) -> str:
        """One run of each part."""
        if not self.frozen:
            self.now_s = now_s
            self.tokens += self.rate
            self.late += self.rate if self.slow else 0
            self.errors += self.rate if self.failing else 0
            self.symbol_errors += self.rail_errors
            self.write(f"{RAIL}/ports/1/counters/symbol_error", str(self.symbol_errors))
            self.written = self._collected()
        return "" if self.unwritten else "".join(self.written.values())

    def _space(self, _path: str) -> Any:
        return SimpleNamespace(f_blocks=100, f_bavail=self.free, f_frsize=9 * GIB)

    def _collected(self) -> dict[str, str]:
        """As the files of a host: by part."""
        system = System(self.root, self.run, privileged=True, clock=SetClock(self.now_s))
        host = replace(HostReader(), system=system, time_of_day=lambda: self.now_s, statvfs=self._space)
        said = f"1\n3 qwen 1 {self.name} 192.0.2.1 {self.replica} 1 1\n"
        with patch.object(gateway, "ask_router", lambda _host: said):
            return {part: main.collect(part, host, self.settings, self.served) for part in ("history", "now")}


SERIES = re.compile(r"^([a-zA-Z_:][\w:]*(?:\{.*\})?) (\S+)$", re.MULTILINE)


def samples(text: str) -> dict[str, float]:
    return {series: float(value) for series, value in SERIES.findall(text)}


def _memory_of_nobody(spark: Spark) -> None:
    spark.computing = False
    spark.gpu(208, 4.5, 0, 40)
    spark.memory(MemFree=60, MemAvailable=68)


def _fragmented(spark: Spark) -> None:
    spark.computing = False
    spark.gpu(208, 4.5, 0, 40)
    spark.write("/proc/buddyinfo", f"Node 0, zone Normal {100 * 2**18}{' 0' * 13}\n")


def _hung(spark: Spark) -> None:
    spark.rate = 0
    spark.gpu(2418, 20, 96, 60)


def _queue(spark: Spark) -> None:
    spark.cache, spark.waiting = 0.98, 4


def _attribute(**values: Any) -> Callable[[Spark], None]:
    def fault(spark: Spark) -> None:
        for name, value in values.items():
            setattr(spark, name, value)

    return fault


def _log(line: str) -> Callable[[Spark], None]:
    return lambda spark: spark.log(line)


def _page_cache(spark: Spark) -> None:
    spark.pressure(20)
    spark.memory(MemFree=28, Cached=80)


def _short(spark: Spark) -> None:
    spark.pressure(20)
    spark.memory(MemFree=6, MemAvailable=13, AnonPages=100)


def _gone(spark: Spark) -> None:
    """The adapter has left the PCIe bus."""
    shutil.rmtree(spark.root / RAIL.lstrip("/"))


def _never_started(spark: Spark) -> None:
    shutil.rmtree(spark.root / "run/gb10-vllm")
    _down(spark)


def _down(spark: Spark, unit: str = "gb10-vllm") -> None:
    (spark.root / f"run/systemd/units/invocation:{unit}.service").unlink()


def _restarted(spark: Spark) -> None:
    spark.write("/var/lib/gb10-watchdog/vllm.json", json.dumps({"restarts": [-1e6, spark.now_s]}))


def _stopped(spark: Spark) -> None:
    spark.manifest(manifests.Wish("an operator", "2026-11-28T03:00:00Z", ""))
    _down(spark)


# One fault for each alert: it fires this one and no other.
FAULTS: dict[str, Callable[[Spark], None]] = {
    "Gb10HostSilent": _attribute(silent=True),
    "Gb10CollectorStopped": _attribute(frozen=True),
    "Gb10CollectorAbsent": _attribute(unwritten=True),
    "Gb10GpuNotAnswering": lambda spark: spark.scenario("absent"),
    "Gb10PowerFault": lambda spark: spark.scenario("throttled"),
    "Gb10GpuClockLow": lambda spark: spark.gpu(900, 45, 96, 60),
    "Gb10GpuThrottled": lambda spark: spark.gpu(2000, 70, 96, 80, 0x40),
    "Gb10GpuHot": lambda spark: spark.gpu(2418, 86, 96, 92),
    "Gb10SocHot": lambda spark: spark.zone(101),
    "Gb10EngineHung": _hung,
    "Gb10MemoryNotReturned": _memory_of_nobody,
    "Gb10MemoryFragmented": _fragmented,
    "Gb10MemoryPressure": _short,
    "Gb10PageCachePressure": _page_cache,
    "Gb10Kho": lambda spark: spark.memory(CmaFree=9.3),
    "Gb10RailDown": lambda spark: spark.write(f"{RAIL}/ports/1/state", "1: DOWN"),
    "Gb10RailDegraded": lambda spark: spark.write(f"{RAIL}/device/current_link_width", "2"),
    "Gb10RailSlowLink": lambda spark: spark.write(f"{RAIL}/ports/1/rate", "100 Gb/sec (2X HDR)"),
    "Gb10RailErrors": _attribute(rail_errors=1),
    "Gb10DiskWorn": _attribute(worn=95),
    "Gb10UncleanBoot": _attribute(clean=False),
    "Gb10XidError": _log("NVRM: Xid (PCI:000f:01:00): 119, pid=1, Timeout after 6s of waiting for RPC response"),
    "Gb10Xid": _log("NVRM: Xid (PCI:000f:01:00): 109, pid=1, CTX SWITCH TIMEOUT"),
    "Gb10LogError": _log("Kernel panic - not syncing: Fatal exception in interrupt"),
    "Gb10LogUnknown": _attribute(untold=True),
    "Gb10LogWarning": _log("Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:1kB"),
    "Gb10DiskFull": _attribute(free=1),
    "Gb10Certificate": _attribute(certificate_days=5),
    "Gb10WatchdogRestarted": _restarted,
    "Gb10ServiceDown": _down,
    "Gb10ServiceFailing": lambda spark: spark.status("ready", 3),
    "Gb10ServiceSilent": _attribute(serves_nothing=True),
    "Gb10SloSlow": _attribute(slow=True),
    "Gb10SloErrors": _attribute(failing=True),
    "Gb10CacheFull": _queue,
    "Gb10GatewayDown": lambda spark: _down(spark, "gb10-gateway"),
    "Gb10GatewayErrors": _attribute(refusing=True),
    "Gb10RouterNoReplica": _attribute(replica="0 0"),
}


# Faults that are complete: the series that told of them is gone as well.
COMPLETE: dict[str, tuple[str, Callable[[Spark], None]]] = {
    "the adapter left the bus": ("Gb10RailDown", _gone),
    "never started since the boot": ("Gb10ServiceDown", _never_started),
}


def healthy() -> Iterator[tuple[str, Callable[[Spark], None]]]:
    """States of a sound host: none may raise an alert."""
    yield "load", lambda spark: None
    yield (
        "idle",
        lambda spark: (spark.gpu(208, 4.5, 0, 38, 1), _attribute(running=0, rate=0, computing=False)(spark))[0],
    )
    yield "prefill", lambda spark: (spark.gpu(2418, 88, 96, 74), _attribute(rate=0)(spark))[0]
    yield "stopped", _stopped
    yield "taken_out_of_the_router", _attribute(replica="0 8")
    yield "rests_and_no_router_was_told", lambda spark: (_stopped(spark), _attribute(replica="0 0")(spark))[0]
    yield "warm", lambda spark: spark.gpu(2418, 88, 96, 84)
    yield "capped", lambda spark: spark.gpu(1300, 85, 96, 70, 0x4)
    yield "old_nvidia_smi", lambda spark: None
    yield "xid_of_a_program", _log("NVRM: Xid (PCI:000f:01:00): 43, pid=1, channel reset")
    yield "slot_of_27_w", _log("mlx5_core 0000:01:00.0: Detected insufficient power on the PCIe slot (27W).")
    yield "start_of_a_model", _log("NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x51)")
