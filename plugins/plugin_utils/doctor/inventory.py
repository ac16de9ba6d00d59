# SPDX-License-Identifier: GPL-3.0-or-later
"""What the variables and groups of a host say before its facts are read."""

from __future__ import annotations

import difflib
import ipaddress
import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import RAILS_OF_A_PORT
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import names
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.acceptance import check_acceptances
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.fabric_checks import check_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import FLEET_VARIABLES, Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import clusters, limits, notify, reserved, settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.catalog import Declared
from ansible_collections.gb10.fleet.plugins.plugin_utils.power import setting as power_plug

# Units, rules of the firewall and Prometheus have a host's name as it is, and nft takes no more as a comment.
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,119}\Z")
_SHOWN = 60  # characters of a name that is none


def check_inventory(subject: Subject) -> Iterator[Finding]:
    for check in (_host_names, _variables, check_settings, _cluster, _shared_network, _models):
        yield from check(subject)


def _host_names(subject: Subject) -> Iterator[Finding]:
    """Of the host and of its cluster; each is said once."""
    for name in dict.fromkeys((subject.host, *subject.members)):
        if not _HOST.match(name):
            fact = f"the inventory calls a host {name[:_SHOWN]!a}"
            way_out = "name it in letters, digits and . _ : -, 120 at most; ansible_host says where it is"
            yield subject.say("bad_variable", fact, way_out)


def _variables(subject: Subject) -> Iterator[Finding]:
    declared, given = subject.declared, subject.variables
    yield from _names(subject)
    for role, options in {"": declared.collection, **declared.roles}.items():
        where = f"roles/{role}/README.md" if role else "docs/inventory.md"
        for message in settings.mistakes(options, {name: given[name] for name in options if name in given}):
            yield subject.say("bad_variable", message, f"correct it in the inventory; {where} says what is allowed")
    yield from check_acceptances(subject)
    yield from _minimums(subject)
    yield from _read(subject, notify.VARIABLE, lambda value: value is None or notify.hook(value))
    yield from _read(subject, reserved.VARIABLE, lambda value: reserved.now_for(value, datetime.now(UTC)))
    yield from _read(subject, power_plug.VARIABLE, power_plug.parse)


def _names(subject: Subject) -> Iterator[Finding]:
    """Mistyped names, all in one finding. Under a common word, what is no near miss belongs to somebody else."""
    declared = subject.declared
    unknown = sorted(name for name in subject.variables if name.startswith(declared.prefixes))
    unknown = [name for name in unknown if name not in declared.variables]
    nearest = {name: names.nearest(name, declared.variables) for name in unknown}
    wrong = [name for name in unknown if nearest[name] or name.startswith(declared.own_prefixes)]
    if wrong:
        advice = [f"did you mean {nearest[name]}?" if nearest[name] else _similar(name, declared) for name in wrong]
        if len(wrong) == 1:
            said, way_out = f"variable {wrong[0]}", f"remove or rename it: {advice[0]}"
        else:
            pairs = [f"{name} ({text})" for name, text in zip(wrong, advice, strict=True)]
            said, way_out = f"variables {', '.join(wrong)}", f"remove or rename them: {', '.join(pairs)}"
        yield subject.say("unknown_variable", f"no role declares the {said}", way_out)
    if others := [name for name in unknown if name not in wrong]:
        fact = f"{', '.join(others)}: no variable of ours, taken for another role's"
        way_out = "nothing to do, unless one is a mistyped name of ours"
        yield subject.say("foreign_variables", fact, way_out)


def _similar(name: str, declared: Declared) -> str:
    """What to say of a name that is nearly no other: of its own role's, the one that looks most like it."""
    role = max((prefix for prefix in declared.prefixes if name.startswith(prefix)), key=len)
    near = difflib.get_close_matches(name, [other for other in declared.variables if other.startswith(role)], n=1)
    return f"did you mean {near[0]}?" if near else "the roles' README files list all variables"


def _minimums(subject: Subject) -> Iterator[Finding]:
    own = subject.setting("gb10_minimum_free_gib")
    for path, gib in own.items() if isinstance(own, Mapping) else ():
        if not limits.is_minimum(path, gib):
            fact = f"gb10_minimum_free_gib holds {path!r}: {gib!r}, which is no absolute path with a positive number"
            yield subject.say("bad_variable", fact, 'write a path and its GiB, for example {"/srv/models": 200}')


def _read(subject: Subject, name: str, read: Callable[[Any], object]) -> Iterator[Finding]:
    """What the reader of a variable refuses, a fact and a way out in one text."""
    try:
        read(subject.setting(name))
    except (notify.HookError, reserved.WrongReservation, power_plug.WrongPlug) as error:
        fact, __, way_out = str(error).partition("; ")
        yield subject.say("bad_variable", fact, way_out)


def _cluster(subject: Subject) -> Iterator[Finding]:
    name, topology, members = subject.setting("gb10_cluster"), subject.topology, subject.members
    if isinstance(name, (list, tuple, Mapping)):
        return  # a bad_variable already
    if "gb10_cluster" in subject.variables and not name:
        way_out = "name the group that this host is in, or remove the variable: the host is a cluster of one then"
        yield subject.say("bad_variable", "gb10_cluster is empty", way_out)
        return
    if not name:
        if topology != "none":
            yield subject.say(
                "cluster_members",
                f"fabric_topology is {topology}, but gb10_cluster is not set, so there is nobody to be cabled to",
                "set gb10_cluster to the name of the group of hosts that serve together, or fabric_topology to none",
            )
        return
    if subject.host not in members:
        yield subject.say("cluster_members", *clusters.not_its_group(str(name), subject.groups))
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
        yield subject.say(
            "cluster_members",
            f"the topology {topology} needs {needed}, and the group {name} has {count}: {', '.join(members)}",
            "correct the group, or choose the topology that is cabled: none, pair, ring or switch",
        )
    absent = [member for member in members if subject.run is not None and member not in subject.run]
    if fits and absent:
        yield subject.say(
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
    of_all = [own, *(_subnets({**defaults, **other}) for other in subject.fleet.values())]
    for other in subject.fleet.values():
        cluster = other.get("gb10_cluster")
        if cluster in (None, name) or cluster in seen or other.get("fabric_topology") != "switch":
            continue
        shared = own & _subnets({**defaults, **other})
        if shared:
            seen.add(cluster)
            yield subject.say(
                "bad_variable",
                f"fabric_network gives {', '.join(sorted(shared))} to {name} and to {cluster}, "
                "which are both on a switch and may meet there",
                f"give one of the two clusters a fabric_network of its own{_unused(own, set().union(*of_all))}",
            )


def _unused(own: set[str], taken: set[str]) -> str:
    """A network as large as a cluster takes, near its own, that no cluster of the fleet has; empty where none is left.

    What the hosts themselves are in is not known yet; the plan of the fabric compares it.
    """
    first = min(map(ipaddress.IPv4Network, own))
    near = first.supernet(new_prefix=min(16, first.prefixlen)).subnets(new_prefix=25 - len(own).bit_length())
    used = [ipaddress.IPv4Network(each) for each in taken]
    free = (each for each in near if each > first and not any(each.overlaps(other) for other in used))
    return next((f", for example {each}" for each in free), "")


def _subnets(variables: Mapping[str, Any]) -> set[str]:
    """What the plan will take: the first /24s of the network, one for each rail of a port."""
    try:
        network = ipaddress.IPv4Network(variables["fabric_network"])
        found = network.subnets(new_prefix=24)
        return {str(subnet) for subnet in itertools.islice(found, RAILS_OF_A_PORT * len(variables["fabric_ports"]))}
    except (ValueError, TypeError):
        return set()  # the plan names what is wrong with it


def _models(subject: Subject) -> Iterator[Finding]:
    """Said once, by the first host of a cluster. A warning where a known id is near, else information."""
    roles = subject.setting("gb10_roles")
    if (roles is not None and "vllm" not in roles) or subject.host in subject.members[1:]:
        return
    yield from _model("vllm_model", subject.setting("vllm_model"), subject.setting("vllm_model_facts"), subject)
    said = subject.setting("vllm_services")
    for service, entry in said.items() if isinstance(said, Mapping) else ():
        if isinstance(entry, Mapping):  # else the plan says what is wrong with it
            where = f"vllm_services.{service}.model"
            yield from _model(where, entry.get("model"), entry.get("model_facts"), subject, file=entry.get("gguf"))


def _model(where: str, name: Any, facts: Any, subject: Subject, file: Any = None) -> Iterator[Finding]:
    """`file`: of the model, in GGUF. The catalog has none of these, so that a near name is that of another model."""
    if not (name and isinstance(name, str)):
        return
    # Imported where a host serves: the catalog of models takes a while to read.
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models

    if models.find(name) or models.in_recipes(name) or facts:
        return  # of facts the rules of the role speak
    near = [] if file else models.nearest(name)
    question = (
        f"`gb10 plan {shlex.quote(f'{name}/{file}')}` reads the file"
        if file
        else "`gb10 plan --all` lists those that it has"
    )
    advice = f"did you mean {' or '.join(near)}? If" if near else f"{question}; if"
    yield subject.say(
        "unknown_model",
        f"{where} {name} is not in the catalog, so nobody has checked that it exists and fits",
        f"{advice} {name} is right, gb10_accept keeps it, with your reason",
        None if near else "info",
    )
