# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The types of a reading of a host's health. `NotRequired` is looked up on the controller: a host may have 3.9."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired


class Clock(TypedDict):
    epoch_s: float | None
    source: str | None
    synchronized: bool | None


class MemoryBlocks(TypedDict):
    free_bytes: int
    large_bytes: int | None


class Gpu(TypedDict):
    state: str
    name: str | None
    driver: str | None
    pstate: str | None
    temperature_c: float | None
    tlimit_c: float | None
    power_w: float | None
    clock_mhz: float | None
    clock_max_mhz: float | None
    utilization_percent: float | None
    reasons: list[str] | None


class Serving(TypedDict):
    running: float
    waiting: float | None
    generated_tokens: float
    prompt_tokens: float | None
    step_s_sum: NotRequired[float | None]
    step_count: NotRequired[float | None]


class Memory(TypedDict):
    total_bytes: int
    free_bytes: int | None
    available_bytes: int | None
    buffers_bytes: int | None
    cached_bytes: int | None
    anonymous_bytes: int | None
    shared_bytes: int | None
    slab_bytes: int | None
    stack_bytes: int | None
    tables_bytes: int | None
    percpu_bytes: int | None
    huge_bytes: int | None
    cma_total_bytes: int | None
    cma_free_bytes: int | None


class Averages(TypedDict):
    avg10: float
    avg60: float
    avg300: float


class Pressure(TypedDict):
    some: NotRequired[Averages]
    full: NotRequired[Averages]


class Pressures(TypedDict):
    cpu: Pressure | None
    memory: Pressure | None
    io: Pressure | None


class Pcie(TypedDict):
    width: float | None
    width_max: float | None
    gigatransfers: float | None
    gigatransfers_max: float | None


class Rail(TypedDict):
    hca: str
    port: str
    netdev: str | None
    state: str | None
    carrier: bool | None
    rate_gbps: float | None
    pcie: Pcie
    counters: dict[str, int]


class Sample(TypedDict):
    at_s: float
    steady_s: NotRequired[float]  # by a clock that nobody sets
    gpu: Gpu | None
    serving: Serving | None
    servings: NotRequired[dict[str, Serving | None]]  # of several services, by name
    memory: Memory | None
    blocks: MemoryBlocks | None
    pressure: Pressures
    rails: list[Rail] | None


class Process(TypedDict):
    pid: int
    memory_mib: int | None


class Zone(TypedDict):
    zone: str
    type: str | None
    temperature_c: float | None
    critical_c: float | None


class Sensor(TypedDict):
    chip: str
    label: str
    unit: str
    value: float


class Disk(TypedDict):
    disk: str
    model: str | None
    used_percent: int
    spare_percent: int | None
    spare_least_percent: int | None
    critical_warning: int | None
    media_errors: int | None
    unsafe_shutdowns: int | None
    power_cycles: int | None


class Service(TypedDict):
    phase: str
    since: str | None
    failures: int
    verdict: str | None
    text: str | None
    at: str | None


class Line(TypedDict):
    at_s: float
    text: str


class Boot(TypedDict):
    boot: str
    first_s: float
    last_s: float
    clean: bool | None
    last_lines: list[Line]


class Event(TypedDict):
    at_s: float
    last_s: float
    count: int
    boot: str
    kind: str
    key: str
    text: str
    service: NotRequired[str]


class Package(TypedDict):
    name: str
    action: str
    before: str | None
    after: str | None


class Change(TypedDict):
    at_s: float
    command: str
    packages: list[Package]
    others: int


class StoppedUnit(TypedDict):
    unit: str
    role: str
    state: str
    file_state: str
    wish: str | None


class Certificate(TypedDict):
    file: str
    ends_s: float


class Told(TypedDict):
    products: NotRequired[int]
    seconds: NotRequired[float]
    teraflops: NotRequired[float]


class Load(TypedDict):
    state: str
    reason: str | None
    image: str | None
    told: Told


class Reading(TypedDict):
    schema_version: int
    at_s: float
    uptime_s: float | None
    boot: str | None
    kernel: str | None
    kho_off: bool | None
    firmware: str | None
    clock: Clock
    samples: list[Sample]
    processes: list[Process] | None
    zones: list[Zone] | None
    hwmon: list[Sensor] | None
    disks: list[Disk] | None
    oom_kills: int | None
    service: Service | None
    services: NotRequired[dict[str, Service | None]]  # of several, by name
    boots: list[Boot] | None
    events: list[Event] | None
    apt: list[Change] | None
    unknown: dict[str, str]
    stopped: NotRequired[list[StoppedUnit] | None]
    certificates: NotRequired[list[Certificate] | None]
    recorded: NotRequired[list[Line]]
    load: NotRequired[Load]
    clock_lock_mhz: NotRequired[float | None]  # the highest clock that our own role allows; null where it holds none
