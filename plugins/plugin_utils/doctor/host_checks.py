# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor says of a machine: its system, driver, GPU, clock, memory, and what somebody has stopped on it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks import coherence as judgement
from ansible_collections.gb10.fleet.plugins.module_utils.reading import apt_sources
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import GIB, mount_of, short_of, silent_gpu
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.table import severities
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import limits
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.stop_requests import is_asleep, said_of

_DAY_S = 86400
MENDED_BY_A_MOVE = frozenset(
    {
        "userland_newer", "module_newer", "module_not_loaded", "mixed_userland",
        "next_kernel_without_module", "next_kernel_other_module", "next_kernel_incomplete",
    }
)  # fmt: skip


def _values(catalog: Mapping[str, Any], key: str) -> list[str]:
    return [str(entry["value"]) for entry in catalog[key]]


def check_root(subject: Subject) -> Iterator[Finding]:
    if not subject.facts["root"]:
        yield subject.say("no_sudo", "the facts were read without root", "set become: true for this host")


def check_identity(subject: Subject) -> Iterator[Finding]:
    product, release = subject.facts["product"], subject.facts["os"]
    products, platforms = subject.catalog["products"], subject.catalog["platforms"]
    known = (
        product["dmi_name"] in _values(products, "dmi_name"),
        product["dmi_family"] in _values(products, "dmi_family"),
        (product["dgx_release"] or {}).get("DGX_NAME") in _values(products, "dgx_name"),
    )
    if not any(known):
        says = " ".join(filter(None, (product["dmi_vendor"], product["dmi_name"])))
        named = f"the machine says it is {says}" if says else "DMI names no product"
        yield subject.say(
            "not_a_spark",
            f"{named}, and /etc/dgx-release does not name a DGX Spark",
            "take the host out of the inventory; if it is a GB10 board, add its product name to catalog/products.yml",
        )
    supported = _values(platforms, "operating_system")
    if f"{release['id']} {release['version_id']}" not in supported:
        yield subject.say(
            "os",
            f"the system is {release['pretty'] or 'unknown'}, supported is {', '.join(supported)}",
            "install DGX OS 7 (Ubuntu 24.04)",
        )
    architectures = _values(platforms, "architecture")
    if subject.facts["architecture"] not in architectures:
        yield subject.say(
            "architecture",
            f"the machine is {subject.facts['architecture']}, a GB10 is {', '.join(architectures)}",
            "take the host out of the inventory",
        )


def check_names(subject: Subject) -> Iterator[Finding]:
    """Other names of this run that lead to this very machine, or to a copy of its disk.

    The machine id alone does not tell: a copied disk has it too, and factories have shipped equal SSH host keys. A boot
    id is random: it is equal in two answers of one run only where one kernel gave both.
    """
    own = subject.facts
    equal = [
        (name, facts["boot_id"] == own["boot_id"])
        for name, facts in subject.heard.items()
        if name != subject.host and own["machine_digest"] and facts["machine_digest"] == own["machine_digest"]
    ]
    same, copies = ([name for name, is_same in equal if is_same is wanted] for wanted in (True, False))
    if same:
        address = own["ssh"]["local_address"] or "one address"
        yield subject.say(
            "same_machine",
            f"{', '.join(same)} is the same machine under another name (machine id and boot id agree; this name led to"
            f" {address})",
            "correct ansible_host of the wrong name (`ansible-inventory --host NAME` shows it), or remove that name",
        )
    if copies:
        yield subject.say(
            "machine_id_copied",
            f"{', '.join(copies)} is another machine with the same machine id: one disk was copied from the other",
            "on the copy: `rm /etc/machine-id; systemd-machine-id-setup`, new SSH host keys, reboot; DHCP and"
            " collectors of logs take the two for one",
        )


def check_disks(subject: Subject) -> Iterator[Finding]:
    minimum = limits.minimum_free_gib(subject.setting("gb10_minimum_free_gib"))
    disks = {disk["mount"]: disk for disk in subject.facts["disks"]}
    for path, gib in minimum.items():
        disk = disks.get(mount_of(path, set(disks)))
        if disk and (fact := short_of(path, disk, gib)):
            yield subject.say(
                "disk_full",
                fact,
                "free space: docker image prune, apt-get clean, old models;"
                f" du -xh --max-depth=2 {shlex.quote(disk['mount'])} finds it",
            )


def check_driver(subject: Subject) -> Iterator[Finding]:
    branch, userland = subject.catalog["host_sets"]["driver_branch"]["value"], subject.facts["driver"]["userland"]
    if userland and userland.partition(".")[0] != branch:
        yield subject.say(
            "driver_branch",
            f"the driver's userland is {userland}, supported is branch {branch}",
            f"install the {branch} set that DGX OS offers (nvidia-driver-{branch}-open); gb10.fleet moves drivers"
            f" within {branch} only",
        )


def check_kernel(subject: Subject) -> Iterator[Finding]:
    running = subject.facts["kernel"]
    for entry in subject.catalog["host_sets"]["suspected_kernels"]:
        if re.match(rf"{re.escape(entry['value'])}(-|$)", running):
            yield subject.say(
                "suspected_kernel",
                f"kernel {running} is suspected: {entry['meaning']} ({entry['source']}, {entry['date']})",
                "nothing to do, unless you see the same; then move to another set (docs/driver.md)",
            )


def _moves(subject: Subject) -> bool:
    """Whether this very run brings driver and kernel to a named set: what that puts right is no reason to stop it."""
    return subject.setting("driver_allow_move") is True and subject.setting("driver_host_set") != "installed"


def check_coherence(subject: Subject) -> Iterator[Finding]:
    """The verdicts of the gate."""
    moves = _moves(subject)
    for verdict in judgement.judge(subject.facts):
        severity = "warn" if moves and verdict["id"] in MENDED_BY_A_MOVE else verdict["severity"]
        if verdict["id"] in severities():  # not those of the check on the host, which asks apt
            yield subject.say(verdict["id"], verdict["fact"], verdict["way_out"], severity)


def check_gpu(subject: Subject) -> Iterator[Finding]:
    gpu = subject.facts["gpu"]
    if not gpu["present"]:
        # So it is in the middle of a move, after `dpkg -i`, and in the fallback kernel: where a move is the way out.
        severity = "warn" if _moves(subject) else None
        id_, fact = silent_gpu(gpu.get("state", "absent"), gpu["query_error"])
        yield subject.say(id_, fact, _way_out_without_a_gpu(subject), severity)


def _way_out_without_a_gpu(subject: Subject) -> str:
    known = {verdict["id"] for verdict in judgement.judge(subject.facts)}
    if "no_driver" in known:
        return "install the driver, as no_driver says"
    state = subject.facts["gpu"].get("state")
    if state == "no_program":
        branch, userland = subject.catalog["host_sets"]["driver_branch"]["value"], subject.facts["driver"]["userland"]
        return (
            f"install the driver's utilities, nvidia-utils-{branch}, in the userland's version {userland}"
            f" (`apt-cache policy nvidia-utils-{shlex.quote(branch)}`); where the package is installed, with"
            " --reinstall"
        )
    if "next_kernel_without_module" in known and not subject.facts["driver"]["module_on_disk"]:
        return "do what next_kernel_without_module says: the kernel that runs has no module of the driver"
    if "pending_reboot" in known:
        return "reboot (playbook gb10.fleet.reboot): what runs is not what is installed, see pending_reboot"
    if "module_rejected" in known:
        return "do what module_rejected says: the kernel does not load the driver's module"
    if state == "silent":
        return (
            "ask once more, for a busy host may be slow; then read `journalctl -k | grep -i nvrm`: only a reboot ends "
            "a driver that hangs (playbook gb10.fleet.reboot). Where it comes back:"
            " power off, unplug the brick for 60 s, start again"
        )
    return (
        "check that this kernel has its nvidia module (modinfo nvidia) and dmesg for NVRM; if the module is there,"
        " power off, unplug the brick for 60 s, start again"
    )


def check_apt(subject: Subject) -> Iterator[Finding]:
    apt = subject.facts["apt"]
    conflicts = subject.facts["apt_sources"]["conflicts"]
    if conflicts:
        yield subject.say("apt_sources_conflict", apt_sources.told(conflicts), apt_sources.WAY_OUT)
    if apt["lock_held_by"] is not None:
        yield subject.say(
            "apt_lock",
            f"process {apt['lock_held_by']} holds the package lock",
            "wait for it (often unattended-upgrades); package tasks wait a while by themselves",
        )
    if apt["dpkg_interrupted"]:
        yield subject.say("dpkg_interrupted", "dpkg was interrupted earlier", "run: dpkg --configure -a")


def check_kernel_parameters(subject: Subject) -> Iterator[Finding]:
    """What DGX OS sets and we leave alone."""
    for name, entry in subject.catalog["kernel_parameters"]["verified"].items():
        live = subject.facts["sysctls"].get(name)
        if live is not None and live < entry["value"]:
            yield subject.say(
                "kernel_parameter",
                f"{name} is {live}, DGX OS has {entry['value']}: {entry['reason']}",
                f"find who lowers it (grep -r {name} /etc/sysctl.d /usr/lib/sysctl.d), or set kernel_parameters_extra",
            )


def check_oom_daemons(subject: Subject) -> Iterator[Finding]:
    for entry in subject.catalog["memory"]["oom_daemons"]:
        if entry["value"] in subject.facts["oom_daemons"] and not subject.setting("memory_protection_allow_stop"):
            yield subject.say(
                "oom_daemon",
                f"{entry['value']} runs beside the kernel's OOM killer. {entry['reason']}",
                "set memory_protection_allow_stop to true, and the role memory_protection stops and disables it",
            )


def check_clock(subject: Subject) -> Iterator[Finding]:
    """The host's clock beside the controller's. The host may have read it at any moment of the call."""
    now = subject.facts["clock"]["epoch_s"]
    if subject.call is None or now is None:
        return
    began, ended = subject.call
    offset = now - ended if now > ended else min(0.0, now - began)
    if abs(offset) > subject.catalog["platforms"]["clock"]["tolerance"]["value"]:
        side, seconds = "ahead of" if offset > 0 else "behind", abs(offset)
        distance = f"{seconds / _DAY_S:.0f} days" if seconds >= 2 * _DAY_S else f"{seconds:.0f} s"
        yield subject.say(
            "clock_differs",
            f"this host's clock is {distance} {side} the controller's",
            "compare both with a clock that you trust (`timedatectl`, on this host and here), and let NTP set the wrong"
            " one (`sudo timedatectl set-ntp true`); certificates, tokens and evidence depend on it",
        )


def check_time_source(subject: Subject) -> Iterator[Finding]:
    clock = subject.facts["clock"]
    source = clock["source"]
    if source is None:
        yield subject.say(
            "clock_free",
            "nothing sets this host's clock: no time daemon runs",
            "`timedatectl set-ntp true`. Where it says that NTP is not supported, start the daemon that is installed"
            " (`systemctl enable --now ntpsec`), or install chrony. Without the internet, name a server of your own"
            " network",
        )
    elif clock["synchronized"] is False:
        yield subject.say(
            "clock_free",
            f"{source} runs, and has not reached a time server since the boot",
            f"`journalctl -u {shlex.quote(source)}` says why; UDP port 123 must be open, or name a server of your own"
            " network (NTP= in /etc/systemd/timesyncd.conf)",
        )


def check_blocks(subject: Subject) -> Iterator[Finding]:
    """Only where enough is free for a start: beside a model or a full page cache blocks are small anyway."""
    found = subject.facts.get("memory_blocks")
    limits = {name: entry["value"] for name, entry in subject.catalog["memory"]["fragmentation"].items()}
    if not found or found["large_bytes"] is None or found["free_bytes"] < limits["judged_from"] * GIB:
        return
    large = found["large_bytes"] / GIB
    if large < limits["large_least"]:
        yield subject.say(
            "memory_fragmented",
            f"{found['free_bytes'] / GIB:.1f} GiB of memory are free, only {large:.1f} GiB of it in blocks of 32 MiB"
            f" or more; below {limits['large_least']} models were 4 to 5 % slower, or did not start",
            "reboot this host before you start the model; dropping caches or compacting brings no block back",
        )


def check_wishes(subject: Subject) -> Iterator[Finding]:
    found = subject.facts.get("wishes") or []
    wishes = [wish for wish in found if not is_asleep(wish)]
    if sleepers := [wish["unit"] for wish in found if is_asleep(wish)]:
        way_out = "nothing to repair: a request through the gateway starts it; `gb10 start SERVICE` does so now"
        yield subject.say("asleep", f"{', '.join(sleepers)}: asleep, starts when asked", way_out)
    if wishes:
        fact = "; ".join(f"{wish['unit']}: {said_of(wish)}" for wish in wishes)
        way_out = "nothing to repair: runs leave it stopped; `gb10 start SERVICE` ends it"
        yield subject.say("stopped_by_wish", fact, way_out)


CHECKS = (
    check_root,
    check_identity,
    check_disks,
    check_driver,
    check_kernel,
    check_coherence,
    check_gpu,
    check_apt,
    check_kernel_parameters,
    check_oom_daemons,
    check_names,
)
OF_NOW = (check_clock, check_time_source, check_blocks)  # what another moment may show otherwise
