"""Undo brings a host back to where it was, refuses where somebody else was at work, and takes orphans away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fleet.fleet import EXTRA, Fleet, named
from tests.support.rig import differences

pytestmark = pytest.mark.lab

GATE = "/usr/local/sbin/gb10-memory-gate"


@pytest.fixture(scope="module")
def before(fleet: Fleet) -> dict[str, dict[str, str]]:
    """Every host as it was before anything of ours."""
    for host in fleet.hosts:
        fleet.clear(host)
    return {host: fleet.snapshot(host) for host in fleet.hosts}


@pytest.fixture
def site(fleet: Fleet, before: dict[str, dict[str, str]]) -> Iterator[Fleet]:
    assert fleet.site().rc == 0
    yield fleet
    for host in fleet.hosts:
        fleet.clear(host)


def test_of_all_roles_leads_back_and_says_so_first(site: Fleet, before: dict[str, dict[str, str]]) -> None:
    """Through the playbook, on both hosts; check mode changes nothing."""
    standing = {host: site.snapshot(host) for host in site.hosts}
    check = site.site("-e", "gb10_undo=all", "--check", "--diff", playbook="playbooks/undo.yml")
    assert check.rc == 0 and check.changed == len(site.hosts)
    assert {host: site.snapshot(host) for host in site.hosts} == standing
    assert site.site("-e", "gb10_undo=all", playbook="playbooks/undo.yml").rc == 0
    for host in site.hosts:
        assert differences(before[host], site.snapshot(host)) == []
        assert site.manifest(host) is None


def test_role_by_role_leads_back(site: Fleet, before: dict[str, dict[str, str]]) -> None:
    """Each role takes away what is its own, in any order; what two roles declare goes with the second."""
    host = site.hosts[0]
    manifest = site.manifest(host)
    assert manifest is not None
    roles = sorted({role for entry in manifest["resources"].values() for role in entry["roles"]})
    assert len(roles) > 4
    for role in roles:
        said = site.engine(host, "undo", roles=[role])
        assert said["error"] is None, f"{role}: {said['error']}"
        assert {row["role"] for row in said["changes"]} <= {role}
        left = site.manifest(host) or {"resources": {}}
        assert not [label for label, entry in left["resources"].items() if role in entry["roles"]]
        assert site.engine(host, "drift")["changes"] == [], f"{role}: what the others declare must stand"
    assert differences(before[host], site.snapshot(host)) == []


FOREIGN = [
    (f"echo '# mine' >>{GATE}", f"file:{GATE}"),
    ("echo TOKEN=mine >/etc/gb10-extra/token", "file:/etc/gb10-extra/token"),
    ("apt-mark -q unhold nvidia-driver-580-open", "hold:driver-set"),
    ("apt-get -qqy --allow-downgrades install libnvidia-container1=1.20.0-1", "package:libnvidia-container1"),
    ("sysctl -qw net.ipv4.conf.all.arp_ignore=8", "sysctl:net.ipv4.conf.all.arp_ignore"),
    (
        "systemctl disable -q gb10-extra",
        "unit:gb10-extra.service",
    ),  # one that stands still may have crashed: no refusal
    ("nmcli connection modify gb10-gb10x0 802-3-ethernet.mtu 1300", "nm_profile:gb10-gb10x0"),
]


@pytest.mark.parametrize(("change", "label"), FOREIGN, ids=[row[1] for row in FOREIGN])
def test_is_refused_where_somebody_has_changed_something_since(converged: Fleet, change: str, label: str) -> None:
    host = converged.hosts[0]
    converged.shell(host, f"exec 2>&1; {change}")
    standing = converged.snapshot(host)
    for check in (True, False):
        said = converged.engine(host, "undo", check=check)
        assert said["error"] is not None and said["error"]["kind"] == "host"
        assert label in said["error"]["message"]
        assert said["changes"] == []
    assert differences(standing, converged.snapshot(host)) == [], "a refused undo must touch nothing"
    assert converged.converge(host, converged.documents(host))["error"] is None


def test_an_orphan_is_shown_and_goes_on_request(converged: Fleet) -> None:
    """A role that no longer declares a resource; what the other roles declare is none of its business."""
    host = converged.hosts[0]
    without = [row for row in EXTRA if row.get("file") != "/etc/gb10-extra/daemon.json"]
    document = [{"role": "extra", "resources": without}]
    orphan = ("extra", "file:/etc/gb10-extra/daemon.json")

    said = converged.converge(host, document)
    assert said["error"] is None and named(said["orphans"]) == {orphan} and said["changes"] == []
    assert converged.shell(host, "cat /etc/gb10-extra/daemon.json"), "nothing goes without a request"

    check = converged.converge(host, document, orphans="remove", check=True)
    assert named(check["changes"]) == {orphan}
    removed = converged.converge(host, document, orphans="remove")
    assert removed["error"] is None and removed["changes"] == check["changes"]
    assert converged.shell(host, "ls /etc/gb10-extra").split() == ["token", "tool.conf"]
    assert converged.converge(host, document)["orphans"] == []
    assert converged.converge(host, [{"role": "extra", "resources": EXTRA}])["error"] is None


def test_a_missing_consent_refuses_before_anything_changes(converged: Fleet) -> None:
    host = converged.hosts[0]
    standing = converged.snapshot(host)
    said = converged.engine(host, "undo", roles=["extra"], consents={"fabric_allow_activation": False})
    assert said["error"] is not None and "fabric_allow_activation" in said["error"]["message"]
    assert differences(standing, converged.snapshot(host)) == []
