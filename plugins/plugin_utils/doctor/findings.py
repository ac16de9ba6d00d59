# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor says about a host: a pure function of facts, variables and catalog.

A finding names the host, the fact and the way out. An error stops the run before the first change, unless the operator
accepted its id with a written reason (`gb10_accept`).
"""

from __future__ import annotations

import difflib
import ipaddress
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils import arguments
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import verdicts
from ansible_collections.gb10.fleet.plugins.module_utils.facts import apt_sources
from ansible_collections.gb10.fleet.plugins.module_utils.facts.readings import (
    RAILS_OF_A_PORT,
    lifelines,
    mount_of,
    upstream_version,
)
from ansible_collections.gb10.fleet.plugins.module_utils.programs.coherence import judgement
from ansible_collections.gb10.fleet.plugins.plugin_utils.catalog import Declared
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import addressing, settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.plan import PlanError

GIB = 2**30
# Verdicts that are no findings: that all is well, and what only the gate on the host asks (`apt-cache policy`).
GATE_ONLY = ("coherent", "candidate_not_580", "candidates_unknown")
IDS = (
    "unreachable", "host_key", "unreadable", "no_sudo", "not_a_spark", "os", "architecture", "no_rdma", "no_rail",
    "no_carrier", "rail_is_management", "disk_full", "unknown_variable", "bad_variable", "cluster_members",
    "driver_branch", *(id_ for id_ in judgement.IDS if id_ not in GATE_ONLY), "gpu_absent",
    "apt_lock", "dpkg_interrupted", "security_floor",
    "apt_sources_conflict", "kernel_parameter", "oom_daemon", "state_refused",
    "fabric_plan",
)  # fmt: skip
REFUSED = "_refused"  # after the name of a role: what the role's document refuses
# No written reason makes a host reachable, a value readable or a rail exist.
NEVER_ACCEPTED = frozenset(
    {
        "unreachable", "host_key", "unreadable", "no_sudo", "bad_variable", "state_refused",
        # The roles refuse these too.
        "no_driver", "driver_branch", "no_rdma", "no_rail", "rail_is_management", "cluster_members",
    }
)  # fmt: skip
MENDED_BY_A_MOVE = frozenset(
    {
        "userland_newer", "module_newer", "module_not_loaded", "mixed_userland",
        "next_kernel_without_module", "next_kernel_other_module", "next_kernel_incomplete",
    }
)  # fmt: skip
PORTS_OF_A_RING = PORTS = ("p0", "p1")
SEE_FABRIC = "correct it in the inventory; roles/fabric/README.md says what is allowed"
# What of other hosts' variables a host is judged by, see Subject.fleet.
FLEET_VARIABLES = ("gb10_cluster", "fabric_topology", "fabric_ports", "fabric_network")
Names = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Subject:
    """All that is known when one host is judged. `variables` are evaluated; `groups` are the inventory's."""

    host: str
    facts: Mapping[str, Any]
    variables: Mapping[str, Any]
    groups: Names
    catalog: Mapping[str, Mapping[str, Any]]  # the files that the action doctor names, by name
    declared: Declared
    run: Sequence[str] | None = None  # the hosts of this run; None: all of the inventory
    fleet: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # FLEET_VARIABLES of all hosts

    def setting(self, name: str) -> Any:
        """A variable as the role will see it."""
        option = self.declared.variables.get(name, {})
        return settings.value(name, option, self.variables[name]) if name in self.variables else option.get("default")

    @property
    def topology(self) -> str:
        return str(self.setting("fabric_topology") or "none")

    @property
    def members(self) -> Sequence[str]:
        return self.groups.get(str(self.setting("gb10_cluster")), ())

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports that the topology needs cables in."""
        if self.topology == "none":
            return ()
        ports = self.setting("fabric_ports")
        if self.topology == "ring":
            return PORTS_OF_A_RING
        return tuple(ports) if isinstance(ports, (list, tuple)) else ()  # _variables says so

    def error(self, id_: str, fact: str, way_out: str) -> Finding:
        return Finding(id_, "error", self.host, fact, way_out)

    def warn(self, id_: str, fact: str, way_out: str) -> Finding:
        return Finding(id_, "warn", self.host, fact, way_out)


def evaluate_variables(subject: Subject) -> list[Finding]:
    """What can be said without the facts of the host."""
    return _accept(subject, list(_inventory(subject)))


def evaluate_facts(subject: Subject) -> list[Finding]:
    """What there is to say about a host whose facts could be read."""
    checks = (
        *(_root, _identity, _fabric, _disks, _driver, _coherence, _gpu, _apt),
        *(_security_floors, _kernel_parameters, _oom_daemons),
    )
    return _accept(subject, [finding for check in checks for finding in check(subject)])


def refused(host: str, role: str, text: str) -> Finding:
    """What a role's document refuses; the text names fact and way out, and no written reason changes it."""
    way_out = f"do what it says; roles/{role}/README.md lists the variables of the role"
    return Finding(f"{role}{REFUSED}", "error", host, text, way_out)


def of_document(host: str, said: Mapping[str, Any]) -> Finding:
    """What a role's document has to say of the host, and what stops nothing."""
    return Finding(said["id"], said["severity"], host, said["fact"], said["way_out"], said["accepted"])


def state_refused(host: str, text: str) -> Finding:
    """What the engine says that would keep it from bringing the host to its state."""
    return Finding("state_refused", "error", host, text, "repair what it names, then run again")


def _accept(subject: Subject, findings: list[Finding]) -> list[Finding]:
    reasons = subject.setting("gb10_accept")
    if not isinstance(reasons, Mapping):
        return findings  # _variables says so
    return [
        replace(finding, accepted=str(reasons[finding.id]).strip())
        if finding.id not in NEVER_ACCEPTED and str(reasons.get(finding.id) or "").strip()
        else finding
        for finding in findings
    ]


def refusal(findings: Sequence[Finding]) -> str | None:
    """Why the run stops, for a person to read; None when nothing blocks."""
    lines = [str(finding) for finding in findings if finding.blocks]
    return "\n".join(["doctor refuses to go on:", *lines]) if lines else None


# -- checks ------------------------------------------------------------------------------------------------------------


def _values(catalog: Mapping[str, Any], key: str) -> list[str]:
    return [str(entry["value"]) for entry in catalog[key]]


def _root(subject: Subject) -> Iterator[Finding]:
    if not subject.facts["root"]:
        yield subject.error("no_sudo", "the facts were read without root", "set become: true for this host")


def _identity(subject: Subject) -> Iterator[Finding]:
    product, release = subject.facts["product"], subject.facts["os"]
    products, platforms = subject.catalog["products"], subject.catalog["platforms"]
    known = (
        product["dmi_name"] in _values(products, "dmi_name"),
        product["dmi_family"] in _values(products, "dmi_family"),
        (product["dgx_release"] or {}).get("DGX_NAME") in _values(products, "dgx_name"),
    )
    if not any(known):
        says = " ".join(filter(None, (product["dmi_vendor"], product["dmi_name"]))) or "nothing in DMI"
        yield subject.error(
            "not_a_spark",
            f"the machine says it is {says}, and /etc/dgx-release does not name a DGX Spark",
            "take the host out of the inventory; if it is a GB10 board, add its product name to catalog/products.yml",
        )
    supported = _values(platforms, "operating_system")
    if f"{release['id']} {release['version_id']}" not in supported:
        yield subject.error(
            "os",
            f"the system is {release['pretty'] or 'unknown'}, supported is {', '.join(supported)}",
            "install DGX OS 7 (Ubuntu 24.04)",
        )
    architectures = _values(platforms, "architecture")
    if subject.facts["architecture"] not in architectures:
        yield subject.error(
            "architecture",
            f"the machine is {subject.facts['architecture']}, a GB10 is {', '.join(architectures)}",
            "take the host out of the inventory",
        )


def _inventory(subject: Subject) -> Iterator[Finding]:
    for check in (_variables, _fabric_settings, _cluster, _shared_network):
        yield from check(subject)


def _variables(subject: Subject) -> Iterator[Finding]:
    declared, given = subject.declared, subject.variables
    known = declared.variables
    for name in sorted(given):
        if name.startswith(declared.prefixes) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]}?" if near else "the roles' README files list all variables"
            fact = f"no role declares the variable {name}"
            yield subject.error("unknown_variable", fact, f"remove or rename it: {advice}")
    for role, options in {"": declared.collection, **declared.roles}.items():
        where = f"roles/{role}/README.md" if role else "docs/inventory.md"
        for message in settings.mistakes(options, {name: given[name] for name in options if name in given}):
            yield subject.error("bad_variable", message, f"correct it in the inventory; {where} says what is allowed")
    yield from _acceptances(subject)
    yield from _minimums(subject)


def _acceptances(subject: Subject) -> Iterator[Finding]:
    reasons = subject.setting("gb10_accept")
    for id_, reason in reasons.items() if isinstance(reasons, Mapping) else ():
        refusals = {f"{role}{REFUSED}" for role in subject.declared.roles}
        if id_ not in refusals.union(IDS):
            near = difflib.get_close_matches(str(id_), IDS, n=1)
            others = f"the ids are {', '.join(IDS)}; rules of serving go into vllm_accept"
            way_out = f"did you mean {near[0]}?" if near else others
            yield subject.error("bad_variable", f"gb10_accept names {id_}, which is no finding", way_out)
        elif id_ in refusals.union(NEVER_ACCEPTED):
            fact = f"gb10_accept names {id_}, which cannot be accepted"
            yield subject.error("bad_variable", fact, "repair the cause and remove the entry")
        elif not isinstance(reason, str) or not reason.strip():
            yield subject.error("bad_variable", f"gb10_accept.{id_} gives no reason", "write down why it is acceptable")


def _minimums(subject: Subject) -> Iterator[Finding]:
    own = subject.setting("gb10_minimum_free_gib")
    for path, gib in own.items() if isinstance(own, Mapping) else ():
        if not _is_minimum(path, gib):
            fact = f"gb10_minimum_free_gib holds {path!r}: {gib!r}, which is no absolute path with a positive number"
            yield subject.error("bad_variable", fact, 'write a path and its GiB, for example {"/srv/models": 200}')


def _is_minimum(path: Any, gib: Any) -> bool:
    is_number = isinstance(gib, (int, float)) and not isinstance(gib, bool) and math.isfinite(gib)
    return isinstance(path, str) and path.startswith("/") and is_number and gib > 0


def own_minimums(value: Any) -> dict[str, float]:
    """The sound entries of gb10_minimum_free_gib; _minimums names the others."""
    entries = value.items() if isinstance(value, Mapping) else ()
    return {path: gib for path, gib in entries if _is_minimum(path, gib)}


def _fabric_settings(subject: Subject) -> Iterator[Finding]:
    """What is inside the variables of the fabric: else the plan or the proof would trip over it, much later."""
    network, mtu, ports = (subject.setting(f"fabric_{name}") for name in ("network", "mtu", "ports"))
    checks: list[Callable[[], object]] = []
    if isinstance(network, str):
        checks.append(lambda: addressing.check_network(network))
    if _is_number(mtu):
        checks.append(lambda: addressing.check_mtu(mtu))
    if subject.topology in ("pair", "switch") and isinstance(ports, (list, tuple)):
        checks.append(lambda: addressing.check_ports(ports))
    thresholds = _mapping(subject, "fabric_thresholds")
    if thresholds:
        checks.append(lambda: verdicts.thresholds_from(subject.catalog["thresholds"], thresholds))
    for check in checks:
        try:
            check()
        except (PlanError, verdicts.ThresholdError) as error:
            yield subject.error("bad_variable", str(error), SEE_FABRIC)
    yield from _test_settings(subject)
    yield from _declared_rails(subject)


def _test_settings(subject: Subject) -> Iterator[Finding]:
    ranges = {name: (least, most) for name, least, most in arguments.MEASURING}
    # An end has to meet the other one first, and the module ends all of it at its deadline.
    ranges["duration_s"] = (ranges["duration_s"][0], arguments.DEADLINE_S - arguments.PAIRING_TIMEOUT_S - 1)
    for name, value in _mapping(subject, "fabric_test").items():
        if name not in ranges:
            near = difflib.get_close_matches(str(name), ranges, n=1)
            way_out = f"did you mean {near[0]}?" if near else f"there are {', '.join(ranges)}"
            yield subject.error("bad_variable", f"fabric_test names {name}, which is no option of the test", way_out)
            continue
        least, most = ranges[name]
        if not _is_number(value) or not least <= value <= most:
            fact = f"fabric_test.{name} is {value!r}, which is no whole number from {least} to {most}"
            yield subject.error("bad_variable", fact, SEE_FABRIC)


def _declared_rails(subject: Subject) -> Iterator[Finding]:
    example = "write {p0: [enp1s0f0np0, enP2p1s0f0np0]}, with the interfaces of this host"
    for port, netdevs in _mapping(subject, "fabric_rails").items():
        if port not in PORTS:
            fact = f"fabric_rails names the port {port!r}, and a Spark has {' and '.join(PORTS)}"
            yield subject.error("bad_variable", fact, example)
        elif not _are_twins(netdevs):
            fact = f"fabric_rails.{port} is {netdevs!r}, and must be a list of {RAILS_OF_A_PORT} interfaces, the twins"
            yield subject.error("bad_variable", fact, example)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_twins(netdevs: Any) -> bool:
    is_list = isinstance(netdevs, (list, tuple)) and all(isinstance(netdev, str) for netdev in netdevs)
    return is_list and len(netdevs) == len(set(netdevs)) == RAILS_OF_A_PORT


def _mapping(subject: Subject, name: str) -> Mapping[Any, Any]:
    """A variable that is a mapping; of another type _variables says so."""
    value = subject.setting(name)
    return value if isinstance(value, Mapping) else {}


def _cluster(subject: Subject) -> Iterator[Finding]:
    name, topology, members = subject.setting("gb10_cluster"), subject.topology, subject.members
    if "gb10_cluster" in subject.variables and not name:
        way_out = "name the group that this host is in, or remove the variable: the host is a cluster of one then"
        yield subject.error("bad_variable", "gb10_cluster is empty", way_out)
        return
    if not name:
        if topology != "none":
            yield subject.error(
                "cluster_members",
                f"fabric_topology is {topology}, but gb10_cluster is not set, so there is nobody to be cabled to",
                "set gb10_cluster to the name of the group of hosts that serve together, or fabric_topology to none",
            )
        return
    if subject.host not in members:
        fact = "which does not hold this host" if name in subject.groups else "which is no group of the inventory"
        yield subject.error("cluster_members", f"gb10_cluster is {name}, {fact}", "name the group that this host is in")
        return
    count = len(members)
    wrong = {
        "none": (count == 1, "1 host (a model is spread over a fabric only)"),
        "pair": (count == 2, "exactly 2 hosts"),
        "ring": (count >= 3, "3 or more hosts"),
        "switch": (count >= 2, "2 or more hosts"),
    }
    fits, needed = wrong.get(topology, (True, ""))  # any other topology is a bad_variable already
    if not fits:
        yield subject.error(
            "cluster_members",
            f"the topology {topology} needs {needed}, and the group {name} has {count}: {', '.join(members)}",
            "correct the group, or choose the topology that is cabled: none, pair, ring or switch",
        )
    absent = [member for member in members if subject.run is not None and member not in subject.run]
    if fits and absent:
        yield subject.error(
            "cluster_members",
            f"of the cluster {name}, {', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not part of this run",
            f"run the whole cluster: --limit {name}, or no --limit",
        )


def _shared_network(subject: Subject) -> Iterator[Finding]:
    """Clusters on switches may share one; each would give the same addresses to its hosts."""
    name = subject.setting("gb10_cluster")
    if subject.topology != "switch" or subject.host not in subject.members[:1]:
        return  # said once, by the first host of the cluster
    own = _subnets({variable: subject.setting(variable) for variable in FLEET_VARIABLES})
    defaults = {variable: subject.declared.variables.get(variable, {}).get("default") for variable in FLEET_VARIABLES}
    seen = set()
    for other in subject.fleet.values():
        cluster = other.get("gb10_cluster")
        if cluster in (None, name) or cluster in seen or other.get("fabric_topology") != "switch":
            continue
        shared = own & _subnets({**defaults, **other})
        if shared:
            seen.add(cluster)
            yield subject.error(
                "bad_variable",
                f"fabric_network gives {', '.join(sorted(shared))} to {name} and to {cluster}, "
                "which are both on a switch and may meet there",
                "give each of the two clusters a fabric_network of its own",
            )


def _subnets(variables: Mapping[str, Any]) -> set[str]:
    """What the plan will take: the first /24s of the network, one for each rail of a port."""
    try:
        network = ipaddress.IPv4Network(variables["fabric_network"])
        found = network.subnets(new_prefix=24)
        return {str(subnet) for subnet in itertools.islice(found, RAILS_OF_A_PORT * len(variables["fabric_ports"]))}
    except (ValueError, TypeError):
        return set()  # the plan names what is wrong with it


def _fabric(subject: Subject) -> Iterator[Finding]:
    if not subject.ports:
        return
    rails, ports = subject.facts["rails"], " and ".join(subject.ports)
    if not rails:
        yield subject.error(
            "no_rdma",
            f"there is no RDMA device with a netdev, and the topology {subject.topology} needs rails on {ports}",
            "put the cable in on both ends (the ConnectX-7 is not on the PCIe bus until a cable is in) and wait 20 s;"
            " if it stays away, power off, unplug the brick for 60 s, start with the cable in",
        )
        return
    # The plan refuses what contradicts the machine.
    declared = {port: own for port, own in _mapping(subject, "fabric_rails").items() if _are_twins(own)}
    for port in subject.ports:
        own = [rail for rail in rails if rail["port"] == port or rail["netdev"] in declared.get(port, ())]
        if not own:
            there = ", ".join(f"{rail['netdev']} ({rail['port'] or 'no port'})" for rail in rails)
            yield subject.error(
                "no_rail",
                f"no RDMA device belongs to port {port}, which the topology {subject.topology} needs; there is {there}",
                f"put the cable {_cable(subject, port)} into that port, or "
                + ("choose another fabric_topology" if subject.topology == "ring" else "correct fabric_ports")
                + " (p0 is the QSFP port beside the RJ45 socket)",
            )
        elif len(own) < RAILS_OF_A_PORT:
            here = own[0]["netdev"]
            yield subject.error(
                "no_rail",
                f"port {port} has only one of its {RAILS_OF_A_PORT} rails, {here}; {_twin(here)} is not there, "
                "so the port would carry half of what it can",
                "both PCIe functions of a port must be on the bus (lspci): power off, unplug the brick for 60 s, start "
                "with the cable in",
            )
        yield from _carrier(subject, port, own)
        yield from _management(subject, port, own)


def _twin(netdev: str) -> str:
    """The other rail of a port. Of the two PCIe functions of a GB10's port the second is in domain 2."""
    name = re.fullmatch(r"en(P2)?(p\w+)", netdev)
    return f"its twin {'en' if name[1] else 'enP2'}{name[2]}" if name else "its twin"


def _carrier(subject: Subject, port: str, rails: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    dark = [rail["netdev"] for rail in rails if rail["carrier"] is False]
    down = [rail["netdev"] for rail in rails if rail["carrier"] is None]
    if dark:
        way_out = f"check the cable {_cable(subject, port)}: seated on both ends, the other end powered on"
        lit = [rail["port"] for rail in subject.facts["rails"] if rail["port"] and rail["carrier"]]
        spare = next((name for name in lit if name not in subject.ports), None)
        if spare:
            move = f"move the cable to {port}, or set fabric_ports: [{spare}]"
            way_out = f"port {spare} has a link: {move}; else {way_out}"
        yield subject.error("no_carrier", f"no carrier on port {port} ({', '.join(dark)})", way_out)
    if down:
        yield subject.warn(
            "no_carrier",
            f"carrier unknown on port {port} ({', '.join(down)}): the interface is administratively down",
            f"ip link set {down[0]} up shows whether the cable {_cable(subject, port)} is in",
        )


def _cable(subject: Subject, port: str) -> str:
    """Which cable hangs on this port, by the topology; hosts of a ring are joined p1 to p0 in inventory order."""
    members = list(subject.members)
    if subject.host in members and subject.topology == "pair" and len(members) == 2:
        return f"between {subject.host} {port} and {members[1 - members.index(subject.host)]} {port}"
    if subject.host in members and subject.topology == "ring":
        step, other_port = (1, "p0") if port == "p1" else (-1, "p1")
        other = members[(members.index(subject.host) + step) % len(members)]
        return f"between {subject.host} {port} and {other} {other_port}"
    return f"between {subject.host} {port} and the switch"


def _management(subject: Subject, port: str, rails: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    carriers = lifelines(subject.facts)
    for rail in rails:
        roles = carriers.get(rail["netdev"])
        if roles:
            yield subject.error(
                "rail_is_management",
                f"{rail['netdev']} of port {port} carries {' and '.join(roles)}; as a rail it would cut us off",
                "manage the host over the RJ45 socket or Wi-Fi (ansible_host, and the default route there)",
            )


def _disks(subject: Subject) -> Iterator[Finding]:
    minimum = {entry["path"]: entry["value"] for entry in subject.catalog["platforms"]["minimum_free_disk"]}
    minimum.update(own_minimums(subject.setting("gb10_minimum_free_gib")))
    disks = {disk["mount"]: disk for disk in subject.facts["disks"]}
    for path, gib in minimum.items():
        disk = disks.get(mount_of(path, set(disks)))
        if disk and disk["free_bytes"] < gib * GIB:
            free, mount = disk["free_bytes"] / GIB, disk["mount"]
            yield subject.error(
                "disk_full",
                f"{path} (file system {mount}) has {free:.1f} GiB free, needed are {gib} GiB",
                f"free space: docker image prune, apt-get clean, old models; du -xh --max-depth=2 {mount} finds it",
            )


def _driver(subject: Subject) -> Iterator[Finding]:
    branch, userland = subject.catalog["host_sets"]["driver_branch"]["value"], subject.facts["driver"]["userland"]
    if userland and userland.partition(".")[0] != branch:
        yield subject.error(
            "driver_branch",
            f"the driver's userland is {userland}, supported is branch {branch}",
            f"install the {branch} set that DGX OS offers (nvidia-driver-{branch}-open); gb10.fleet moves drivers"
            f" within {branch} only",
        )


def _moves(subject: Subject) -> bool:
    """Whether this very run brings driver and kernel to a named set: what that puts right is no reason to stop it."""
    return subject.setting("driver_allow_move") is True and subject.setting("driver_host_set") != "installed"


def _coherence(subject: Subject) -> Iterator[Finding]:
    """The verdicts of the gate."""
    moves = _moves(subject)
    for verdict in judgement.judge(subject.facts):
        severity = "warn" if moves and verdict["id"] in MENDED_BY_A_MOVE else verdict["severity"]
        if verdict["id"] not in GATE_ONLY:
            yield Finding(verdict["id"], severity, subject.host, verdict["fact"], verdict["way_out"])


def _gpu(subject: Subject) -> Iterator[Finding]:
    gpu = subject.facts["gpu"]
    if not gpu["present"]:
        way_out = (
            "check that this kernel has its nvidia module (modinfo nvidia) and dmesg for NVRM; if the module is there,"
            " power off, unplug the brick for 60 s, start again"
        )
        if any(verdict["id"] == "pending_reboot" for verdict in judgement.judge(subject.facts)):
            way_out = "reboot (playbook gb10.fleet.reboot): what runs is not what is installed, see pending_reboot"
        # So it is in the middle of a move, after `dpkg -i`, and in the fallback kernel: where a move is the way out.
        told = subject.warn if _moves(subject) else subject.error
        yield told("gpu_absent", f"no GPU answers: {gpu['query_error']}", way_out)


def _apt(subject: Subject) -> Iterator[Finding]:
    apt = subject.facts["apt"]
    conflicts = subject.facts["apt_sources"]["conflicts"]
    if conflicts:
        yield subject.error("apt_sources_conflict", apt_sources.told(conflicts), apt_sources.WAY_OUT)
    if apt["lock_held_by"] is not None:
        yield subject.warn(
            "apt_lock",
            f"process {apt['lock_held_by']} holds the package lock",
            "wait for it (often unattended-upgrades); package tasks wait a while by themselves",
        )
    if apt["dpkg_interrupted"]:
        yield subject.warn("dpkg_interrupted", "dpkg was interrupted earlier", "run: dpkg --configure -a")


def _security_floors(subject: Subject) -> Iterator[Finding]:
    """Each component below its floor, once: as it is installed, as a variable would install it, or as in the image."""
    floors = subject.catalog["security_floors"]
    contents = _image_contents(subject, floors["images"])
    for entry in floors["floors"]:
        found = _below_floor(subject, entry, contents)
        if found:
            state, way_out = found
            fact = f"{entry['component']} {state}, below {entry['value']} ({entry['advisory']}, {entry['date']})"
            yield subject.warn("security_floor", fact, way_out)


def _below_floor(subject: Subject, entry: Mapping[str, Any], contents: Mapping[str, str]) -> tuple[str, str] | None:
    """State and way out of a component that is below its floor."""
    floor, pin = str(entry["value"]), _pin_below(subject, entry)
    better = f"{floor} or later as soon as the host's archive offers it"
    package = next((name for name in entry["packages"] if name in subject.facts["packages"]), None)
    if package:
        installed = upstream_version(subject.facts["packages"][package])
        guide = f"; {entry['guide']} says how" if "guide" in entry else ""
        way_out = f"{pin}: set it to {better}" if pin else f"move {package} to {better}{guide}"
        return (f"is {installed}", way_out) if _is_below(installed, floor) else None
    if pin:
        return f"is not installed, and {pin}", f"set {entry['pin']} to {better}"
    inside = contents.get(entry["component"])
    if inside and _is_below(inside, floor):
        image = subject.setting("vllm_image")
        return f"is {inside} in {image}", f"set vllm_image to one with {floor} or later; keep vllm_host on loopback"
    return None


def _pin_below(subject: Subject, entry: Mapping[str, Any]) -> str | None:
    """A variable that asks for less than the floor, and since when: `docker_version asks for 29.2.1 (...)`."""
    role = entry.get("role", "")
    pin = str(subject.setting(entry["pin"]) or "") if role in (subject.setting("gb10_roles") or ()) else ""
    if not pin or not _is_below(upstream_version(pin), str(entry["value"])):
        return None
    reference = subject.catalog["software"].get(role, {})
    since = f"reference of {reference['date']}" if pin == reference.get("value") else "set in the inventory"
    return f"{entry['pin']} asks for {upstream_version(pin)} ({since})"


def _image_contents(subject: Subject, images: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """Versions by component in the image that the host serves with, where the catalog knows the image."""
    image = str(subject.setting("vllm_image") or "") if "vllm" in (subject.setting("gb10_roles") or ()) else ""
    for entry in images:
        match = re.fullmatch(entry["value"], image)
        if match:
            return {**entry.get("contains", {}), **match.groupdict()}
    return {}


def _is_below(version: str, floor: str) -> bool:
    return _numbers(version) < _numbers(floor)


def _kernel_parameters(subject: Subject) -> Iterator[Finding]:
    """What DGX OS sets and we leave alone."""
    for name, entry in subject.catalog["kernel_parameters"]["verified"].items():
        live = subject.facts["sysctls"].get(name)
        if live is not None and live < entry["value"]:
            yield subject.warn(
                "kernel_parameter",
                f"{name} is {live}, DGX OS has {entry['value']}: {entry['reason']}",
                f"find who lowers it (grep -r {name} /etc/sysctl.d /usr/lib/sysctl.d), or set kernel_parameters_extra",
            )


def _oom_daemons(subject: Subject) -> Iterator[Finding]:
    for entry in subject.catalog["memory"]["oom_daemons"]:
        if entry["value"] in subject.facts["oom_daemons"] and not subject.setting("memory_protection_allow_stop"):
            yield subject.warn(
                "oom_daemon",
                f"{entry['value']} runs beside the kernel's OOM killer. {entry['reason']}",
                "set memory_protection_allow_stop to true, and the role memory_protection stops and disables it",
            )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
