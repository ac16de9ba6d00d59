# SPDX-License-Identifier: GPL-3.0-or-later
"""What our modules answer, each by its name: every value is checked on arrival, for others are judged beside it."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, NotRequired, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.values import (
    Address,
    Between,
    Counted,
    Matching,
    Parsed,
)

# A port of the fabric goes into the inventory of `gb10 up`.
_Port = Annotated[str, Matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}\Z"), "the name of a port")]
_Host = Annotated[str, Matching(re.compile(r"\S{1,253}\Z"), "the name of a host")]  # what moves a cable names it
_End = Annotated[str, Matching(re.compile(r"(server|client)\Z"), "server or client")]
_Network = Annotated[str, Parsed(ipaddress.IPv4Network, "a network")]
_IPv4 = Annotated[str, Parsed(ipaddress.IPv4Address, "an IPv4 address")]

_Figure = Annotated[float, Between(0, 2**63)]  # what was counted or timed
_Count = Annotated[int, Between(0, 2**63)]


class Fault(TypedDict):
    name: str
    text: str
    way_out: str


# -- the fabric


class Heard(TypedDict):
    netdev: str
    port: _Port
    host: _Host
    there_netdev: str
    there_port: _Port


class Neighbours(TypedDict):
    heard: list[Heard]
    mute: list[str]


class Gid(TypedDict):
    device: str
    port: int
    index: int
    gid: str
    address: str
    ipv4: _IPv4 | None
    roce_version: int | None
    netdev: str | None
    scope: str


class HcaPort(TypedDict):
    device: str
    port: int
    netdev: str | None
    port_name: str | None
    rail: str | None
    twin: str | None
    state: str | None
    rate_gbps: float | None
    mtu: int | None
    ib_mtu: int | None
    speed_mbps: int | None
    pcie_speed: str | None
    pcie_max_speed: str | None
    pcie_width: int | None
    pcie_max_width: int | None
    fw_ver: str | None
    addresses: list[Address]
    subnets: list[_Network]


class Twins(TypedDict):
    port: str
    devices: list[str]
    netdevs: list[str | None]


class Choice(TypedDict):
    index: int | None
    address: str | None


class Choices(TypedDict):
    default: Choice
    in_range: Choice | None


class RailGid(TypedDict):
    netdev: str
    address: str
    device: str | None
    port: int | None
    index: int | None
    nccl_index: int | None
    agrees: bool


class Place(TypedDict):
    device: str
    port: int
    index: int


class Remark(TypedDict):
    name: str
    where: str
    text: str
    way_out: str


class Gids(TypedDict):
    present: bool
    ports: list[HcaPort]
    gids: list[Gid]
    twins: list[Twins]
    selected: dict[str, Choices]
    rails: list[RailGid]
    by_address: dict[str, dict[str, Place]]
    remarks: list[Remark]
    stdout_lines: list[str]


class Ping(TypedDict):
    name: str
    interface: str
    source: str
    peer: str
    size_bytes: int
    count: int
    ok: bool
    sent: int
    received: int
    rtt_ms: float | None
    fault: Fault | None


class Survey(TypedDict):
    gids: Gids
    heard: list[Heard] | None
    pings: list[Ping]


class Figures(TypedDict):
    gbps: float
    gbytes_per_s: float
    message_bytes: int
    iterations: int
    qps: int | None
    mtu: int | None
    gid_index: int | None
    device: str | None
    link_type: str | None
    local_address: str | None
    remote_address: str | None


class Measured(TypedDict):
    name: str
    end: _End
    device: str
    address: str
    peer: str
    state: str
    perftest: str | None
    command: list[str]
    attempts: int
    listening_after_s: float | None
    output: str
    counters: dict[str, Annotated[list[int], Counted(2)]]  # both readings
    latency_us: float | None
    figures: Figures | None
    fault: Fault | None


class Bandwidth(TypedDict):
    version: str | None
    tests: list[Measured]


# -- serving


class Asked(TypedDict):
    name: str
    question: str
    answer: str
    seconds: float
    completion_tokens: int | None
    tokens_per_s: float | None
    fault: str | None
    note: str | None
    verdict: str | None


class UnitRemark(TypedDict):
    verdict: str
    text: str
    way_out: str


class Warm(TypedDict):
    key: str
    cold_s: float | None


class Proof(TypedDict):
    ok: bool
    verdict: str
    text: str
    way_out: str
    ready_after_s: float | None
    served_models: list[str]
    answers: list[Asked]
    tokens_per_s: float | None
    phase: str | None
    phases: dict[str, float]
    warm: Warm | None
    remark: UnitRemark | None


class Result(TypedDict):
    """Of vLLM's own client what somebody reads; it writes more."""

    duration: NotRequired[_Figure | None]
    completed: NotRequired[_Count | None]
    failed: NotRequired[_Count | None]
    num_prompts: NotRequired[_Count | None]
    total_input_tokens: NotRequired[_Count | None]
    total_output_tokens: NotRequired[_Count | None]
    output_throughput: NotRequired[_Figure | None]
    total_token_throughput: NotRequired[_Figure | None]
    request_throughput: NotRequired[_Figure | None]
    max_concurrency: NotRequired[_Count | None]
    mean_ttft_ms: NotRequired[_Figure | None]
    median_ttft_ms: NotRequired[_Figure | None]
    p99_ttft_ms: NotRequired[_Figure | None]
    mean_tpot_ms: NotRequired[_Figure | None]
    median_tpot_ms: NotRequired[_Figure | None]
    p99_tpot_ms: NotRequired[_Figure | None]
    spec_decode_acceptance_rate: NotRequired[_Figure | None]
    spec_decode_acceptance_length: NotRequired[_Figure | None]


class PrefixCache(TypedDict):
    queries: _Figure
    hits: _Figure


class Drafts(TypedDict):
    drafts: _Figure
    draft_tokens: _Figure
    accepted_tokens: _Figure


class Given(TypedDict):
    result: NotRequired[Result]
    error: NotRequired[str]
    version: str | None
    prefix_cache: PrefixCache | None
    drafts: Drafts | None
    others: _Count


class Gpu(TypedDict):
    clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    utilization_percent: float | None
    event_reasons: int | None
    driver: str


class Load(TypedDict):
    load: Given | None
    readings: list[Gpu | None]


# -- images and releases


class Library(TypedDict):
    path: str
    version: str


class Nccl(TypedDict):
    libraries: list[Library]
    conf: dict[str, list[str]]


class Extension(TypedDict):
    path: str
    name: str
    owner: str
    bytes: int
    cubins: dict[str, int]
    ptx: dict[str, int]
    compressed: int
    error: str | None


class Cache(TypedDict):
    name: str
    folder: str
    files: int
    bytes: int
    cubins: dict[str, int]


class Image(TypedDict):
    reference: str
    id: str
    names: list[str]
    digests: list[str]
    source: str
    layers: int
    bytes: int
    architecture: str | None
    os: str | None
    created: str | None
    entrypoint: list[str]
    command: list[str]
    environment: dict[str, str]
    user: str
    working_directory: str
    on_build: list[str]
    versions: dict[str, str | None]
    packages: dict[str, str]
    vllm_folders: list[str]
    vllm_requires: list[str]
    nccl: Nccl
    extensions: list[Extension]
    caches: list[Cache]


class Held(TypedDict):
    """An image on a host."""

    fingerprint: str
    bytes: float
    pinned: NotRequired[bool | None]
    configuration: NotRequired[str | None]


class Files(TypedDict):
    """A model on a host; its files are judged by model_listing.py."""

    commit: str
    bytes: int


class Archive(TypedDict):
    sha256: str
    bytes: int


class HeldModel(TypedDict):
    model: Files | None
    pin: str | None


class ModelFiles(TypedDict):
    """Of each step a part."""

    pull: NotRequired[bool]
    image: NotRequired[Held | None]
    model: NotRequired[Files | None]
    draft: NotRequired[Files | None]
    pin: NotRequired[str | None]
    draft_pin: NotRequired[str | None]
    loras: NotRequired[list[HeldModel]]
    archive: NotRequired[Archive | None]


class KeptCache(TypedDict):
    sha256: str
    size: int
    cold_s: float | None
    at: NotRequired[str]


class WarmCache(TypedDict):
    """Of each step a part."""

    key: NotRequired[str]
    why: NotRequired[str | None]
    cache: NotRequired[KeptCache | None]


class Update(TypedDict):
    installs: list[str]
    staged: bool
    boots: NotRequired[str | None]


class Trial(TypedDict):
    """After the trial was armed what was armed, else what there is."""

    state: NotRequired[str]
    kernel: str | None
    back: str | None
    outcome: NotRequired[str | None]
    running: NotRequired[str]
    back_has_gpu: NotRequired[bool]
    watchdog: NotRequired[str]
    deadline_s: NotRequired[int]
    default: NotRequired[str | None]


class TrialBoot(TypedDict):
    trial: Trial


BY_MODULE: dict[str, Any] = {
    "ib_write_bw": Bandwidth,
    "image_info": Image,
    "model_files": ModelFiles,
    "rail_neighbours": Neighbours,
    "rail_survey": Survey,
    "release_update": Update,
    "serving_load": Load,
    "serving_probe": Proof,
    "show_gids": Gids,
    "trial_boot": TrialBoot,
    "warm_cache": WarmCache,
}
