"""Which version a host gets of Docker and of the container toolkit, and who brings the source; one rule for both."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.container_toolkit import TOOLKIT
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.docker import DOCKER
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vendor_packages import VendorPackages

BOTH = pytest.mark.parametrize("vendor", [DOCKER, TOOLKIT], ids=lambda vendor: vendor.role)
UBUNTU, DGX = "http://ports.example/", "https://repo.download.nvidia.com/baseos/ubuntu/noble/arm64/"
OWN = {
    "docker": "https://download.docker.com/linux/ubuntu",
    "container_toolkit": "https://nvidia.github.io/libnvidia-container/stable/deb/arm64",
}
MINE = "/etc/apt/sources.list.d/mine.list"


def host(vendor: VendorPackages, *sources: tuple[str, str], version: str | None = None, lists: bool = False) -> View:
    """A host with these sources ("ours" is the role's own file); `lists`: whether apt's lists name the package."""
    entries = [{"file": vendor.file if file == "ours" else file, "uri": uri} for file, uri in sources]
    offered = [vendor.package] if lists else []
    packages = {vendor.package: version} if version else {}
    return View("a", {"packages": packages, "apt_sources": {"entries": entries, "conflicts": [], "offered": offered}})


@BOTH
@pytest.mark.parametrize(
    ("sources", "given", "brought"),
    [
        ([], {}, True),
        ([(MINE, UBUNTU)], {}, True),
        ([(MINE, UBUNTU)], {"lists": True}, False),
        ([(MINE, UBUNTU)], {"version": "5:99"}, False),
        ([(MINE, DGX)], {}, False),  # a known source whose lists were never fetched
        ([(MINE, "own")], {}, False),
        ([("ours", "own")], {"version": "5:99", "lists": True}, True),  # once brought, it stays
        ([(MINE, DGX), ("ours", "own")], {}, True),
    ],
)
def test_a_source_is_brought_where_no_other_one_offers_the_package(
    vendor: VendorPackages, sources: list[tuple[str, str]], given: dict[str, Any], brought: bool
) -> None:
    named = [(file, OWN[vendor.role] if uri == "own" else uri) for file, uri in sources]
    view = host(vendor, *named, **given)
    assert vendor.source(view, "auto").brought is brought
    assert vendor.source(view, "host").brought is False
    always = vendor.source(view, vendor.vendor)
    assert always.brought is True
    assert bool(always.refusals) is ((MINE, "own") in sources)


@BOTH
def test_a_second_definition_of_the_repository_is_refused_by_its_file(vendor: VendorPackages) -> None:
    view = host(vendor, (MINE, OWN[vendor.role]), (MINE, OWN[vendor.role]), ("ours", OWN[vendor.role]))
    (text,) = vendor.source(view, vendor.vendor).refusals
    assert f"{vendor.role}_source is {vendor.vendor}, and {MINE} defines {vendor.whose} repository" in text
    assert vendor.source(view, "auto").refusals == ()


@BOTH
@pytest.mark.parametrize(
    ("installed", "asked", "version"),
    [
        (None, "1.2-1", "1.2-1"),
        ("1.1-1", "1.2-1", "1.2-1"),
        ("1.2-1", "1.2-1", "1.2-1"),
        ("1.3-1", "1.2-1", "1.3-1"),
        ("1.2~rc.1-1", "1.2-1", "1.2-1"),
        ("5:1.1-1", "1.2-1", "5:1.1-1"),
        ("1.2.0-1", "1.2-1", "1.2.0-1"),
    ],
)
def test_a_newer_version_stays(vendor: VendorPackages, installed: str | None, asked: str, version: str) -> None:
    assert vendor.version(host(vendor, version=installed), asked) == version


@BOTH
@pytest.mark.parametrize("installed", [None, "1.2-1"])
def test_what_is_no_version_is_refused_by_the_variable(vendor: VendorPackages, installed: str | None) -> None:
    with pytest.raises(SettingsError, match=f"^{vendor.role}_version: 'latest' is no version"):
        vendor.version(host(vendor, version=installed), "latest")
