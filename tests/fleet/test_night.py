"""Planned work pages nobody, what stays down afterwards does; and each page of docs/runbooks is followed as it stands.

A page is followed by its own words: each command is typed, on the host as its user and on the controller with
`-i inventory/mine`. Where a fault can be had here it is had, and a real Prometheus tells of it and of its end.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.night import CONTEXT, ENVIRONMENT, MODEL, OWN_RULES, UNIT, WAIT_S, Night
from tests.support import runbooks

pytestmark = [pytest.mark.lab, pytest.mark.long]

SCENARIO = "/run/gb10-lab/gpu-scenario"
SLOW_EXPORTER = "/etc/systemd/system/prometheus-node-exporter.service.d/99-slow.conf"


@pytest.fixture(scope="module", name="night")
def fixture_night(cleared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    hosts = Night(cleared, tmp_path_factory.mktemp("night"))
    try:
        hosts.begin()
        done = hosts.typed("gb10 site -i inventory/mine")
        assert done.returncode == 0, done.stdout + done.stderr
        hosts.wait(hosts.serves, lambda: hosts.typed("gb10 ps -i inventory/mine").stdout)
        hosts.ask_all()
        hosts.wait(lambda: len(hosts.ask("gb10_service_up == 1")) == 2, lambda: hosts.ask("up"))
        yield hosts
    finally:
        hosts.end()


def quiet(night: Night, in_its_time: bool = False) -> None:
    night.wait(night.serves, lambda: night.typed("gb10 ps -i inventory/mine").stdout)
    night.time_passes()
    night.wait(lambda: not told(night, in_its_time), night.firing)


def told(night: Night, in_its_time: bool = False) -> set[tuple[str, str]]:
    """What fires; here the collector reads at once, unless its own time is meant."""
    if not in_its_time:
        night.collect()
    return night.firing()


def typed(night: Night, *lines: str) -> None:
    for line in lines:
        done = night.typed(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def serves_again(night: Night) -> None:
    night.wait(lambda: night.serves() and len(night.ask("up == 1")) == 2, night.firing)


def stays_down(night: Night) -> None:
    """What planned work has left is over, and a service that is down then is told of."""
    night.time_passes()
    night.fleet.shell(night.second, f"systemctl stop {UNIT}")
    page = Page("Gb10ServiceDown")
    fires(night, page)
    follow(night, page)
    quiet(night)


def test_planned_reboot_pages_nobody_and_what_stays_down_afterwards_does(night: Night) -> None:
    """The host is silent for longer than a boot takes: node_exporter comes late."""
    quiet(night)
    host, began = night.second, time.monotonic()
    slow = f"printf '[Service]\\nExecStartPre=/bin/sleep 30\\nTimeoutStartSec=120\\n' >{SLOW_EXPORTER}"
    night.fleet.shell(host, f"{slow}; systemctl daemon-reload")
    try:
        typed(
            night,
            f"gb10 stop vllm --limit {host} -i inventory/mine --yes",
            f"gb10 start vllm --limit {host} -i inventory/mine --prove --yes",
            f"""ansible-playbook gb10.fleet.reboot -i inventory/mine --limit {host} -e '{{"reboot_allow": true}}'""",
        )
        serves_again(night)
        spent = f"{time.monotonic() - began:.0f}s"
        assert night.ask(f'min_over_time(up{{instance="{host}"}}[{spent}]) == 0'), (
            "it was never silent: this proves nothing"
        )
        assert night.firing(of=spent) == set()
    finally:
        night.fleet.shell(host, f"rm {SLOW_EXPORTER}; systemctl daemon-reload")
    stays_down(night)


def test_planned_swap_and_rollout_page_nobody_and_what_stays_down_afterwards_does(night: Night) -> None:
    """Both stop the service; the rollout brings a setting that changes nothing but its container."""
    quiet(night)
    host, began = night.second, time.monotonic()
    typed(
        night,
        f"gb10 swap vllm small --limit {host} -i inventory/mine --yes",
        f"gb10 swap small vllm --limit {host} -i inventory/mine --yes",
    )
    serves_again(night)
    before = night.life(host)
    night.change(vllm_environment={**ENVIRONMENT, "NIGHT": "1"})
    typed(night, f"gb10 rollout site -i inventory/mine --limit {host}")
    serves_again(night)
    assert night.life(host) != before, "nothing was changed: this proves nothing"
    spent = f"{time.monotonic() - began:.0f}s"
    assert night.ask(f'min_over_time(gb10_service_up{{instance="{host}",service="vllm"}}[{spent}]) == 0')
    assert night.firing(of=spent) == set()
    stays_down(night)


class Page(NamedTuple):
    """`cause`: as root, on `of`; `hand`: what no command of the page does, before its first line with `before`.

    `both`: it happens on both hosts, and the first one tells. `not_here`: commands for another case, or that no
    stand-in knows. `passes`: what time does. `booted`: the cause ends the boot, and this is done in the next one.
    `within_s`: it fires in so long, while the collector reads in its own time.
    """

    alert: str
    cause: str = ""
    hand: str = ""
    before: str = "$^"
    both: bool = False
    not_here: str = ""
    passes: str = ""
    booted: str = ""
    within_s: float = 0


SMI = "/run/gb10-lab/smi"


def smi(row: str) -> str:
    """nvidia-smi reads so under load."""
    made = f"""sed 's/"loaded": .*/"loaded": ({row}),/' /usr/bin/nvidia-smi >{SMI}; chmod 755 {SMI}"""
    return f"{made}; mount --bind {SMI} /usr/bin/nvidia-smi; echo loaded >{SCENARIO}"


def proc(name: str, made: str) -> str:
    """A file of /proc reads as what `made` prints."""
    file = f"/run/gb10-lab/{name.replace('/', '-')}"
    return f"{{ {made}; }} >{file}; mount --bind {file} /proc/{name}"


def sysfs(files: dict[str, str]) -> str:
    """Files below /sys/class beside those of the kernel."""
    made = [f"install -D /dev/stdin {CLASS}/{name} <<'END'\n{text}\nEND\n" for name, text in files.items()]
    return f"{''.join(made)}mount -t overlay -o ro,lowerdir={CLASS}:/sys/class gb10-lab /sys/class"


def kernel_says(line: str) -> str:
    """journald reads it from /dev/kmsg, which a container has not: here that is a pipe, until the next boot."""
    holds = "setsid sleep infinity 3<>/dev/kmsg >/dev/null 2>&1 </dev/null &"  # who opens a pipe waits for its reader
    made = f"test -p /dev/kmsg || {{ mkfifo /dev/kmsg; {holds} systemctl restart systemd-journald; }}"
    return f'{made}; echo "3,$(date +%s%N),1000000,-;{line}" | timeout 10 tee /dev/kmsg'


def asked(prompt: str, clients: int = 1, tokens: int = 16, again: bool = True) -> str:
    """So many clients ask for so many tokens, or one of them once."""
    body = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True})
    url, json_is_sent = "http://127.0.0.1:8000/v1/completions", "-H Content-Type:application/json"
    curl = f"curl -s -o /dev/null {url} {json_is_sent} -d @/run/gb10-lab/ask"
    asks = f"while sleep 0.2; do {curl}; done" if again else curl
    start = f"systemd-run --quiet --collect --unit=lab-client-$each sh -c '{asks}'"
    return f"echo '{body}' >/run/gb10-lab/ask; for each in $(seq {clients}); do {start}; done"


CLASS = "/run/gb10-lab/class"
RAIL = "infiniband/rocep1s0f0"
RAIL_FILES = {
    f"{RAIL}/device/current_link_width": "4",
    f"{RAIL}/device/max_link_width": "16",
    f"{RAIL}/device/current_link_speed": "32.0 GT/s PCIe",
    f"{RAIL}/device/max_link_speed": "32.0 GT/s PCIe",
    f"{RAIL}/device/net/enp1s0f0np0/mtu": "9000",
    f"{RAIL}/ports/1/state": "4: ACTIVE",
    f"{RAIL}/ports/1/rate": "200 Gb/sec (4X HDR)",
    f"{RAIL}/ports/1/counters/symbol_error": "7",
}
AFRESH = "rm -f /run/gb10-metrics/samples.json"  # of the last ten minutes
SEEN = "systemctl start gb10-metrics-now; sleep 7"  # by the collector, and by Prometheus
# Whatever a page has put over files of the host; a boot ends it as well.
CALM = f"""
! mountpoint -q /usr/bin/nvidia-smi || umount /usr/bin/nvidia-smi
! mountpoint -q /sys/class || umount -l /sys/class
systemctl stop 'lab-client-*' 2>/dev/null || true
for each in pressure/memory meminfo buddyinfo uptime; do umount /proc/$each 2>/dev/null || true; done
rm -rf {CLASS} /run/gb10-lab/gpu-clocks; echo idle >{SCENARIO}
"""
WAITS = proc(
    "pressure/memory", "for each in some full; do echo $each avg10=20.00 avg60=20.00 avg300=20.00 total=1; done"
)
CACHED = "sed 's/^Cached:.*/Cached: 12000000 kB/' /proc/meminfo"
NVME = """cat >/usr/local/sbin/nvme <<'END'
#!/bin/sh
case "$*" in
*json*) echo '{"critical_warning": 0, "avail_spare": 100, "spare_thresh": 10, "percent_used": 95, "media_errors": 0}' ;;
*) echo 'percentage_used : 95%' ;;
esac
END
chmod 755 /usr/local/sbin/nvme
"""
DEAF = """cat >/usr/local/sbin/journalctl <<'END'
#!/bin/sh
case "$*" in *--grep=*) echo 'no answer' >&2; exit 1 ;; esac
exec /usr/bin/journalctl "$@"
END
chmod 755 /usr/local/sbin/journalctl
"""
FREEZE = "kill -STOP $(docker top gb10-vllm -eo pid | tail -n +2)"
HANG = asked("GB10_SIM hang", again=False)
LOAD = asked("x", clients=3, tokens=CONTEXT - 1)
FORGOTTEN = "journalctl --quiet --rotate; sleep 2; journalctl --quiet --vacuum-time=1s"
# The collector's root is a small file system that is full, with the host's own folders in it.
SMALL = "/run/gb10-lab/small"
SMALL_ROOT = "/etc/systemd/system/gb10-metrics-history.service.d/99-small.conf"
FULL = f"""mkdir -p {SMALL} {SMALL_ROOT.rpartition("/")[0]}; mount -t tmpfs -o size=64k tmpfs {SMALL}
for each in bin sbin lib lib64; do test ! -L /$each || ln -s usr/$each {SMALL}/$each; done
for each in usr etc var tmp dev proc sys run/systemd run/log run/host/.os-release-stage; do mkdir -p {SMALL}/$each; done
head -c 1M /dev/zero >{SMALL}/large 2>/dev/null || true
cat >{SMALL_ROOT} <<'END'
[Service]
RootDirectory={SMALL}
MountAPIVFS=yes
BindPaths=/usr /etc /var /run/systemd /run/log
END
systemctl daemon-reload
"""
FILES = "/var/cache/gb10-vllm/huggingface/hub/models--openai--gpt-oss-120b"
PAGES = [
    Page("Gb10ServiceSilent", FREEZE),
    Page(
        "Gb10CollectorStopped",
        "systemctl stop gb10-metrics-now.timer gb10-metrics-history.timer",
        within_s=WAIT_S,
    ),
    Page(
        "Gb10CollectorAbsent",
        "systemctl disable --now gb10-metrics-now.timer gb10-metrics-history.timer; rm /var/lib/gb10-metrics/*/gb10_*",
        within_s=WAIT_S,
    ),
    Page("Gb10GatewayDown", "systemctl stop gb10-gateway"),
    Page("Gb10HostSilent", "systemctl stop prometheus-node-exporter"),
    Page("Gb10GpuNotAnswering", f"echo hung >{SCENARIO}", not_here="poweroff"),
    Page("Gb10PowerFault", f"echo throttled >{SCENARIO}", not_here="gb10 power"),
    Page(
        "Gb10GpuClockLow",
        f"echo loaded >{SCENARIO}; nvidia-smi -lgc 0,800",
        not_here="nvidia-smi -q",
        passes=AFRESH,
    ),
    Page(
        "Gb10ServiceFailing",
        f"mv {FILES} {FILES}.away; systemctl restart --no-block {UNIT}",
        hand=f"mv {FILES}.away {FILES}",
        before="reset-failed",
    ),
    Page("Gb10WatchdogRestarted", HANG, passes="rm /var/lib/gb10-watchdog/vllm.json"),
    Page(
        "Gb10EngineHung",
        f"systemctl stop gb10-watchdog.timer; {HANG}",
        passes="systemctl start gb10-watchdog.timer",
        within_s=330,
    ),
    Page("Gb10RouterNoReplica", f"systemctl stop {UNIT}", both=True),
    Page(
        "Gb10GpuHot", smi('"2418", "86.20", "96", "P0", "92", 0x0'), hand=CALM, before="gb10 why", not_here="fwupdmgr"
    ),
    Page("Gb10GpuThrottled", smi('"2000", "70.00", "96", "P0", "80", 0x40')),
    Page(
        "Gb10SocHot",
        sysfs({"thermal/thermal_zone0/type": "acpitz", "thermal/thermal_zone0/temp": "101000"}),
        hand=CALM,
        before="gb10 why",
    ),
    Page("Gb10MemoryPressure", WAITS, hand=CALM, before="gb10 why"),
    Page(
        "Gb10PageCachePressure",
        f"{WAITS}; {proc('meminfo', CACHED)}",
        hand=CALM,
        before="drop-caches",
    ),
    Page(
        "Gb10RailDown",
        f"{sysfs(RAIL_FILES)}; {SEEN}; echo '1: DOWN' >{CLASS}/{RAIL}/ports/1/state",
        hand=f"echo '4: ACTIVE' >{CLASS}/{RAIL}/ports/1/state",
        before="gb10 validate",
    ),
    Page("Gb10RailSlowLink", sysfs({**RAIL_FILES, f"{RAIL}/ports/1/rate": "100 Gb/sec (2X HDR)"})),
    Page(
        "Gb10RailErrors",
        f"{AFRESH}; {sysfs(RAIL_FILES)}; {SEEN}; echo 900 >{CLASS}/{RAIL}/ports/1/counters/symbol_error",
    ),
    Page("Gb10RailDegraded", sysfs({**RAIL_FILES, f"{RAIL}/device/current_link_width": "2"})),
    Page(
        "Gb10DiskWorn",
        NVME + sysfs({"nvme/nvme0/model": "made up"}),
        passes="rm /usr/local/sbin/nvme",
    ),
    Page(
        "Gb10Kho",
        proc("meminfo", "grep -v Cma /proc/meminfo; echo 'CmaTotal: 0 kB'; echo 'CmaFree: 9750000 kB'"),
    ),
    Page("Gb10MemoryNotReturned", proc("meminfo", "sed 's/^MemTotal:.*/MemTotal: 126877696 kB/' /proc/meminfo")),
    Page("Gb10MemoryFragmented", proc("buddyinfo", f"echo Node 0, zone Normal {100 * 2**18}{13 * ' 0'}")),
    Page(
        "Gb10UncleanBoot",
        "setsid sh -c 'sleep 1; systemctl reboot --force --force' >/dev/null 2>&1 &",
        booted=proc("uptime", "echo 30.00 1.00"),
    ),
    Page(
        "Gb10Xid",
        kernel_says(
            "NVRM: Xid (PCI:000f:01:00): 109, pid=1, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT"
        ),
        passes=FORGOTTEN,
    ),
    Page(
        "Gb10XidError",
        kernel_says(
            "NVRM: Xid (PCI:000f:01:00): 119, pid=1, name=python3, Timeout after 6s of waiting for RPC response"
        ),
        passes=FORGOTTEN,
    ),
    Page(
        "Gb10LogWarning",
        kernel_says("Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:1kB"),
        passes=FORGOTTEN,
    ),
    Page(
        "Gb10LogUnknown",
        DEAF,
        hand="rm /usr/local/sbin/journalctl",
        before="metrics-history",
        passes="rm -f /usr/local/sbin/journalctl",
    ),
    Page(
        "Gb10LogError",
        kernel_says("EXT4-fs (nvme0n1p2): Remounting filesystem read-only"),
        passes=FORGOTTEN,
    ),
    Page("Gb10CacheFull", LOAD),
    Page("Gb10SloSlow", LOAD, hand=CALM, before="gb10 start"),
    Page("Gb10SloErrors", asked("GB10_SIM error"), hand=CALM, before="restart"),
    Page(
        "Gb10DiskFull",
        FULL,
        hand=f"rm {SMALL}/large",
        before="df -h",
        passes=f"rm {SMALL_ROOT}; systemctl daemon-reload; umount {SMALL}",
    ),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.alert)
def test_a_page_is_followed_and_the_service_is_on_at_its_end(night: Night, page: Page) -> None:
    quiet(night)
    for host in night.fleet.hosts if page.both else [night.second]:
        raised(night, page, host)
    try:
        fires(night, page)
        follow(night, page)
    finally:
        night.fleet.shell(night.second, f"{CALM}{page.passes}")
    quiet(night, page.within_s > 0)


def raised(night: Night, page: Page, host: str) -> None:
    before = night.boot(host)
    night.fleet.shell(host, page.cause)
    if page.booted:
        night.wait(lambda: night.boot(host) not in ("", before), lambda: "it does not boot")
        night.fleet.shell(host, page.booted)


def fires(night: Night, page: Page) -> None:
    fault = (night.first if page.both else night.second, page.alert)

    night.wait(lambda: fault in told(night, page.within_s > 0), night.firing, page.within_s or WAIT_S)


def test_a_certificate_that_ends_is_followed(night: Night) -> None:
    quiet(night)
    night.certify(night.second, days=5)
    page = Page("Gb10Certificate")
    fires(night, page)
    for line in lines_of(night, page):
        if "reload" in line:
            night.certify(night.second)
        type_line(night, page, line)
    quiet(night)


def test_the_errors_of_a_gateway_are_followed(night: Night) -> None:
    """Clients ask all the time, at the gateway that has a router; first nobody serves, then all do."""
    quiet(night)
    with night.clients():
        for host in night.fleet.hosts:
            night.fleet.shell(host, FREEZE)
        page = Page("Gb10GatewayErrors", both=True)
        fires(night, page)
        for line in lines_of(night, page):
            if "rejoin" in line:  # "once it serves"
                for host in night.fleet.hosts:
                    night.fleet.shell(host, f"systemctl restart {UNIT}")
                night.wait(night.ready, lambda: night.typed("gb10 ps -i inventory/mine").stdout)
            type_line(night, page, line)
        quiet(night)


def test_a_rule_that_fails_is_followed(night: Night) -> None:
    """A host has metrics that are not ours, which a rule of the owner's cannot take, in both Prometheus."""
    quiet(night)
    config, own = "/etc/prometheus/gb10.yml", "/var/lib/gb10-metrics/node-exporter/own.prom"
    added = f"cp {config} {config}.kept; sed -i 's#^rule_files: \\[#&/etc/prometheus/own.yml, #' {config}"
    night.fleet.shell(
        night.first, f'echo "{OWN_RULES}" >/etc/prometheus/own.yml; {added}; systemctl restart prometheus'
    )
    night.fleet.shell(night.second, f"""printf 'night_figure{{a="%s"}} 1\n' 1 2 >{own}""")
    page, fault = Page("Gb10RuleFailed", both=True), ("prometheus", "Gb10RuleFailed")
    night.wait(lambda: fault in night.firing(), night.firing)
    for line in lines_of(night, page):
        if "rules" in line:
            shown(night, page, line, "duplicate series")
        type_line(night, page._replace(both="node-exporter" not in line), line)
        if "node-exporter" in line:
            night.wait(lambda: fault not in night.firing(), night.firing)
            night.fleet.shell(night.second, f"rm {own}; systemctl start prometheus-node-exporter")
            night.fleet.shell(night.first, f"mv {config}.kept {config}; rm /etc/prometheus/own.yml")
    quiet(night)


STRANGER = "/var/lib/gb10-metrics/node-exporter/own.prom"
# Each answer has other labels; not so many that Prometheus refuses the whole answer.
INVENTS = f"""systemd-run --quiet --collect --unit=lab-client-series sh -c '
while sleep 4; do seq -f "s{{n=\\"$(date +%s)-%.0f\\"}} 1" 6000 >{STRANGER}.new; mv {STRANGER}.new {STRANGER}; done'
"""


def test_series_without_end_are_followed(night: Night) -> None:
    """They are a stranger's. The alert ends with its window, which is a minute here."""
    quiet(night)
    page = Page("Gb10SeriesWithoutEnd", INVENTS)
    raised(night, page, night.second)
    fires(night, page)
    for line in lines_of(night, page):  # the other ones are for the host of Prometheus
        type_line(night, page._replace(both="node-exporter" not in line), line)
    night.fleet.shell(night.second, f"{CALM}rm {STRANGER}; systemctl start prometheus-node-exporter")
    quiet(night)


def test_a_prometheus_that_is_dead_is_followed(night: Night) -> None:
    """It is the role's own, on the first host; nobody here hears of it, as the page has it."""
    night.fleet.shell(night.first, "systemctl stop prometheus prometheus-alertmanager")
    page = Page("Gb10Heartbeat", both=True)
    follow(night, page)
    shown(night, page, next(line for line in lines_of(night, page) if "api/v1/alerts" in line), "Gb10Heartbeat")


def shown(night: Night, page: Page, line: str, words: str) -> None:
    """A command shows the words after a while."""
    night.wait(lambda: words in said(night, page, line)[1], lambda: said(night, page, line)[1])


# A command that shows a fault may say so by its status: a unit is down or not there, the doctor finds an error, nobody
# answers in time.
SHOWS = (("grep ", 1), (" status ", 3), (" status ", 4), ("gb10 doctor", 4), ("curl ", 28), ("curl ", 7))


def follow(night: Night, page: Page) -> None:
    """Type what the page says, in its order."""
    for line in lines_of(night, page):
        if page.hand and re.search(page.before, line):
            night.fleet.shell(night.second, page.hand)
        type_line(night, page, line)


def lines_of(night: Night, page: Page) -> list[str]:
    places = {
        **{
            "HOST": night.second,
            "CLUSTER": night.second,
            "SERVICE": "vllm",
            "NAME": "vllm",
            "UNIT": "gb10-vllm",
            "MODEL": MODEL,
        },
        **{"PORT": "8000", "ADDRESS": night.fleet.address(night.second), "RUN": "1"},
    }
    if page.alert == "Gb10GatewayDown":
        places["UNIT"] = "gb10-gateway"
    found = runbooks.commands(page.alert, places)
    return [line for line in found if not re.search(page.not_here or "$^", line) and not OTHER_END.match(line)]


# The other end of a page: it is to stand still, or the rollout before was the reason.
OTHER_END = re.compile(r"gb10 (stop|rollback) ")


def type_line(night: Night, page: Page, line: str) -> None:
    status, text = said(night, page, line)
    fine = {0, *(also for words, also in SHOWS if words in line)}
    assert status in fine, f"{line}\n{text}"
    print(f"{page.alert}: {line}: {(text.strip().splitlines() or ['-'])[-1][:100]}")


def said(night: Night, page: Page, line: str) -> tuple[int, str]:
    """`gb10 start` asks a person, who says yes; here nobody has a terminal."""
    if line == "sudo poweroff":
        night.fleet.lab("power-off", night.second)
        night.fleet.lab("power-on", night.second)
        night.wait(lambda: night.on_host(night.second, "true").returncode == 0, lambda: "it does not boot")
        return 0, "off, and on again"
    if line.startswith("ssh "):
        _, host, line = line.split(" ", 2)
        done = night.on_host(host, line)
    elif line.startswith(("gb10 ", "ansible-playbook ")) or "https://" in line or ":9100" in line:
        done = night.typed(f"{line} --yes" if line.startswith("gb10 start ") else line)
    else:
        done = night.on_host(night.first if page.both else night.second, line)
    return done.returncode, done.stdout + done.stderr
