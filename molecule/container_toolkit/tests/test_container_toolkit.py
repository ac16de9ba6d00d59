"""The four packages, at one version."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]
NAMES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container1",
    "libnvidia-container-tools",
)


def test_the_four_packages_have_one_version(host: Host) -> None:
    assert all(host.package(name).is_installed for name in NAMES)
    assert len({host.package(name).version for name in NAMES}) == 1


def test_the_gpu_has_a_description_for_containers(host: Host) -> None:
    assert "nvidia.com/gpu" in host.file("/var/run/cdi/nvidia.yaml").content_string
