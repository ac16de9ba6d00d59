"""Documents of roles, rendered with settings of a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View


def rails() -> list[dict[str, Any]]:
    names = [("enp1s0f0np0", "rocep1s0f0"), ("enP2p1s0f0np0", "roceP2p1s0f0")]
    return [
        {"netdev": netdev, "hca": hca, "hca_port": 1, "port": "p0", "twin_index": index}
        for index, (netdev, hca) in enumerate(names)
    ]


def facts(**other: Any) -> dict[str, Any]:
    packages = {
        "nvidia-driver-580-open": "580.142-0ubuntu0.24.04.1",
        "linux-modules-nvidia-580-open-nvidia-hwe-24.04": "6.17.0-1014.14+1000",
    }
    return {
        "kernel": "6.17.0-1014-nvidia",
        "memory_bytes": 130662436864,
        "packages": packages,
        "holds": [],
        "docker": {"present": False, "version": None, "running": False, "cgroup_driver": None, "ends": []},
        "cdi": ["/var/run/cdi/nvidia.yaml"],
        "cdi_driver": "580.142",
        "driver": {"userland": "580.142", "module_loaded": "580.142", "kernels": []},
        "apt_preferences": [],
        "apt_sources": {"entries": [], "conflicts": [], "offered": ["docker-ce", "nvidia-container-toolkit"]},
        "rails": rails(),
        "ssh": {"interface": "enP7s7"},
        "ssh_ports": [22],
        "default_route_interfaces": ["enP7s7"],
        "interfaces": [{"name": "enP7s7", "addresses": ["192.0.2.11/24"]}],
    } | other


def rendered(role: str, host: str = "spark-a", spark: Mapping[str, Any] | None = None, **variables: Any) -> Rendered:
    """The document of a role on a Spark by itself."""
    return render(role, View(host, spark or facts(), variables))


def declared(document: Rendered, kind: str, name: str) -> dict[str, Any]:
    """The one resource of this kind and name."""
    assert not document.refusals
    (found,) = (resource for resource in document.resources if resource.get(kind) == name)
    return found


def content(document: Rendered, path: str) -> str:
    text: str = declared(document, "file", path)["content"]
    return text
