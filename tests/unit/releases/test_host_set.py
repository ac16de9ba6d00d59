"""What a move to a host set exchanges, by names that few hosts have."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.module_utils.releases.host_set import HostSet, installs, of_branch


def test_the_firmware_of_a_driver_with_an_epoch_has_its_version_alone_in_its_name() -> None:
    packages = {"nvidia-driver-580-open": "580.142-1", "nvidia-firmware-580-580.142": "580.142-1"}
    found = installs(packages, "580", HostSet("1:580.159.03-1", "6.17.0-1022", "6.17.0-1022.22"))
    assert [name for name in found if "firmware" in name] == ["nvidia-firmware-580-580.159.03"]


def test_a_library_of_another_architecture_moves_with_the_driver() -> None:
    packages = {
        "libnvidia-gl-580:armhf": "580.142-1",
        "nvidia-firmware-580-580.142:armhf": "1",
        "libnvidia-gl-590": "1",
    }
    assert of_branch(packages, "580") == {"libnvidia-gl-580:armhf": "580.142-1"}
