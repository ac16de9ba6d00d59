"""The inventory of `gb10 up`: an ordinary one, written whole, read back, and never written over once edited by hand."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output

from gb10_fleet.discover.host_keys import Keys, known_hosts_lines
from gb10_fleet.discover.places import SSH_PORT, Place
from gb10_fleet.home import KNOWN_HOSTS
from gb10_fleet.inventory_lines import refuse_templates
from gb10_fleet.up.cables import Cluster

FILE = "hosts.yml"
PYTHON = "/usr/bin/python3"
_HEAD = """\
# Written by `gb10 up`: an ordinary inventory of Ansible. `gb10` finds it without -i; ansible-playbook takes it with -i.
# Edit it, and it is yours: `gb10 up` then runs it as it is, and does not write over it.
# text: """
_DIGEST = re.compile(r"^# text: ([0-9a-f]{64})\n", re.MULTILINE)


class Edited(Exception):
    """The inventory is somebody's own by now; the text says what to do."""


@dataclass(frozen=True)
class Host:
    """A Spark, and how it is reached; `place` None: it is this machine."""

    name: str
    place: Place | None
    source: str = ""  # a cache of models that the model is copied from
    consents: Sequence[str] = ()

    @property
    def variables(self) -> dict[str, Any]:
        source = {"vllm_cache_source": self.source} if self.source else {}
        return {**self._connection, **source, **dict.fromkeys(self.consents, True)}

    @property
    def _connection(self) -> dict[str, Any]:
        if self.place is None:
            return {"ansible_connection": "local", "ansible_python_interpreter": PYTHON}
        port = {"ansible_port": self.place.port} if self.place.port != SSH_PORT else {}
        return {"ansible_host": self.place.address, **port}


@dataclass(frozen=True)
class Fleet:
    """All that the inventory says."""

    hosts: Sequence[Host]
    clusters: Sequence[Cluster] = ()
    user: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)  # of all hosts: where evidence goes
    serving: Sequence[Mapping[str, Any]] = ()  # of each cluster

    @property
    def model(self) -> str:
        return next((str(one["vllm_model"]) for one in self.serving if "vllm_model" in one), "")

    def allowing(self, consents: Mapping[str, Sequence[str]]) -> Fleet:
        """With each consent at the hosts that it names, and at no other one."""
        given = {host.name: [name for name, hosts in consents.items() if host.name in hosts] for host in self.hosts}
        return replace(self, hosts=[replace(host, consents=given[host.name]) for host in self.hosts])

    def text(self) -> str:
        """The inventory, with the digest of its own text."""
        refuse_templates(asdict(self))
        body = yaml.safe_dump({"all": {"children": {"sparks": self._sparks()}}}, sort_keys=False, width=120)
        return f"{_HEAD}{_digest(body)}\n---\n{body}"

    def _sparks(self) -> dict[str, Any]:
        known = {host.name: host.variables for host in self.hosts}
        serving = [*self.serving, *({} for _ in self.clusters[len(self.serving) :])]
        alone: dict[str, Any] = {}
        groups: dict[str, Any] = {}
        for cluster, own in zip(self.clusters, serving, strict=True):
            if cluster.topology == "none":
                alone |= {name: {**known[name], "fabric_topology": "none", **own} for name in cluster.hosts}
                continue
            name = f"{cluster.topology}{sum(each.startswith(cluster.topology) for each in groups) + 1}"
            ports = {} if cluster.topology == "ring" else {"fabric_ports": list(cluster.ports)}
            said = {"gb10_cluster": name, "fabric_topology": cluster.topology, **ports, **_network(cluster), **own}
            groups[name] = {"hosts": {each: known[each] for each in cluster.hosts}, "vars": said}
        user = {"ansible_user": self.user} if self.user else {}
        keys = {"ansible_ssh_common_args": f"""-o UserKnownHostsFile="\\"{{{{ inventory_dir }}}}/{KNOWN_HOSTS}\\"\""""}
        found: dict[str, Any] = {"hosts": alone} if alone else {}
        found |= {"children": groups} if groups else {}
        return {**found, "vars": {**user, **keys, **self.variables}}


def _network(cluster: Cluster) -> dict[str, str]:
    """A ring has two subnets for each host; the default network has four (docs/inventory.md)."""
    if cluster.topology != "ring":
        return {}
    bits = (len(cluster.hosts) * 2 - 1).bit_length()
    return {"fabric_network": f"192.168.{96 if bits <= 5 else 0}.0/{24 - bits}"}


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def write(fleet: Fleet, folder: Path, keys: Mapping[Place, Keys]) -> Path:
    """Host keys first, for the inventory names their file; each whole or not at all. An inventory is a program."""
    for each in (folder.parent, folder):  # of a parent that it makes, mkdir takes no mode
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    output.write(folder / KNOWN_HOSTS, "".join(known_hosts_lines(keys)))
    output.write(folder / FILE, fleet.text())
    return folder / FILE


def refuse_edited(folder: Path) -> None:
    """Refuse to write over an inventory that somebody has edited."""
    file = folder / FILE
    if not file.exists():
        return
    text = file.read_text(encoding="utf-8", errors="replace")
    head, _, body = text.partition("---\n")
    known = _DIGEST.search(head)
    if known is None or known[1] != _digest(body):
        raise Edited(
            f"{file} was edited, so gb10 up does not write over it. Change it there (docs/inventory.md) and run "
            "`gb10 up` without arguments; or move its folder away, and gb10 up begins anew"
        )


def read(folder: Path) -> Fleet | None:
    """The hosts and the model of the inventory that is there; None where there is none."""
    file = folder / FILE
    try:
        return _fleet(yaml.safe_load(file.read_text(encoding="utf-8"))["all"]["children"]["sparks"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise Edited(f"{file} cannot be read as an inventory ({error}); correct it, or move it away") from None


def _fleet(sparks: Mapping[str, Any]) -> Fleet:
    groups = (sparks.get("children") or {}).values()
    hosts = {**(sparks.get("hosts") or {}), **{name: own for group in groups for name, own in group["hosts"].items()}}
    shared = sparks.get("vars") or {}
    serving = [group.get("vars") or {} for group in groups] + [
        own or {} for own in (sparks.get("hosts") or {}).values()
    ]
    return Fleet(
        [Host(name, _place(name, own or {})) for name, own in hosts.items()], (), shared.get("ansible_user"), shared,
        [{**shared, **one} for one in serving],
    )  # fmt: skip


def _place(name: str, own: Mapping[str, Any]) -> Place | None:
    if own.get("ansible_connection") == "local":
        return None
    return Place(str(own.get("ansible_host", name)), int(own.get("ansible_port", SSH_PORT)))
