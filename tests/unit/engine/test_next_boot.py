"""What others put beside our files is drift, though nothing of ours differs: it decides at the next boot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.drift import drift

from tests.support.fake_host import FakeHost
from tests.support.systemd import FakeSystemd

ARP, DOTTED = "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.eth0/1.rp_filter"
UNIT = "/etc/systemd/system/one.service"
APT = 'Unattended-Upgrade::Package-Blacklist {\n  "docker-ce";\n};\nDPkg::Lock::Timeout "600";\n'
RESOURCES: list[dict[str, Any]] = [
    {"sysctl": ARP, "value": "1"},
    {"sysctl": DOTTED, "value": "2"},
    {"file": "/etc/security/limits.d/90-ours.conf", "content": "* - memlock unlimited\nroot - memlock unlimited\n"},
    {"file": "/etc/default/grub.d/90-ours.cfg", "content": 'GRUB_CMDLINE="$GRUB_CMDLINE kho=off"\n'},
    {"file": "/etc/apt/apt.conf.d/52ours", "content": APT},
    {"file": UNIT, "content": "[Service]\nExecStart=/bin/true\n"},
    {"file": "/etc/systemd/system/wake@.socket", "content": "[Socket]\n"},
    {"file": f"{UNIT}.d/50-ours.conf", "content": "[Service]\n"},
    {"unit": "one.service", "state": "started"},
]
FILE = "/etc/security/limits.d/90-ours.conf"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path)
    made.file("/proc/sys/net/ipv4/conf/all/arp_ignore", "1\n")
    made.file("/proc/sys/net/ipv4/conf/eth0.1/rp_filter", "2\n")
    FakeSystemd(made)
    made.converge(RESOURCES)
    return made


def drifted(host: FakeHost) -> list[tuple[str, str, str]]:
    outcome = drift(host.system)
    assert outcome is not None
    return [(change["resource"], change["action"], change["detail"]) for change in outcome.changes]


def test_nothing_beside_ours_is_no_drift(host: FakeHost) -> None:
    assert drifted(host) == []


@pytest.mark.parametrize(
    ("path", "text", "resource", "says"),
    [
        ("/etc/sysctl.d/99-mine.conf", f"{ARP} = 0\n", f"sysctl:{ARP}", "sets 0 at the next boot, instead of 1"),
        ("/usr/lib/sysctl.d/99-z.conf", f"-{ARP.replace('.', '/')}=0\n", f"sysctl:{ARP}", "sets 0 at the next boot"),
        ("/etc/sysctl.d/99-mine.conf", "net/ipv4/conf/eth0.1/rp_filter=0\n", f"sysctl:{DOTTED}", "instead of 2"),
        ("/etc/security/limits.d/99-mine.conf", "* soft memlock 64\n", f"file:{FILE}", "gives * memlock 64"),
        ("/etc/default/grub.d/99-mine.cfg", 'GRUB_CMDLINE="quiet"\n', "file:/etc/default/grub.d/90-ours.cfg", "anew"),
        ("/etc/default/grub.d/99-mine.cfg", "GRUB_CMDLINE='$GRUB_CMDLINE'\n", "file:/etc/default/grub.d/90-ours.cfg",
         "anew"),
        ("/etc/apt/apt.conf.d/99mine", "#clear Unattended-Upgrade::Package-Blacklist;\n",
         "file:/etc/apt/apt.conf.d/52ours", "clears Unattended-Upgrade::Package-Blacklist"),
        ("/etc/apt/apt.conf.d/99mine", 'dpkg::lock::timeout "0";\n', "file:/etc/apt/apt.conf.d/52ours", 'to "0"'),
        (f"{UNIT}.d/override.conf", "[Service]\nUser=nobody\n", f"file:{UNIT}", "`rm` it"),
        ("/etc/systemd/system.control/one.service.d/50-CPUQuota.conf", "[Service]\n", f"file:{UNIT}", "50-CPUQuota"),
    ],
)  # fmt: skip
def test_what_wins_at_the_next_boot_is_drift(host: FakeHost, path: str, text: str, resource: str, says: str) -> None:
    host.file(path, text)
    ((found, detail),) = [(label, detail) for label, action, detail in drifted(host) if action == "overridden"]
    assert found == resource
    assert detail.startswith(path) and says in detail and "take it out there" in detail


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/sysctl.d/10-mine.conf", f"{ARP} = 0\n"),  # before ours
        ("/etc/sysctl.d/99-mine.conf", f"{ARP} = 1\n# {ARP} = 0\nnet.ipv4.conf.*.arp_ignore = 0\n"),
        ("/etc/sysctl.d/99-mine.conf.off", f"{ARP} = 0\n"),
        ("/etc/security/limits.d/10-mine.conf", "* - memlock 64\n"),
        ("/etc/security/limits.d/99-mine.conf", "# * - memlock 64\n* - nofile 64\n* hard memlock unlimited\n"),
        ("/etc/default/grub.d/99-mine.cfg", 'GRUB_CMDLINE="${GRUB_CMDLINE} quiet"\nGRUB_TIMEOUT=1\n'),
        ("/etc/apt/apt.conf.d/99mine", 'Unattended-Upgrade::Package-Blacklist { "mine"; };\nAPT::Periodic::X "1";\n'),
        ("/etc/systemd/system/docker.service.d/override.conf", "[Service]\n"),
        # Of these names no reader takes a file.
        ("/etc/sysctl.d/.99-mine.conf", f"{ARP} = 0\n"),
        ("/etc/default/grub.d/99-mine.cfg.bak", 'GRUB_CMDLINE="quiet"\n'),
        ("/etc/apt/apt.conf.d/99mine.dpkg-old", 'DPkg::Lock::Timeout "0";\n'),
        ("/etc/apt/apt.conf.d/99mine~", 'DPkg::Lock::Timeout "0";\n'),
        (f"{UNIT}.d/.override.conf.swp", "[Service]\n"),
        (f"{UNIT}.d/.override.conf", "[Service]\n"),
    ],
)
def test_what_changes_nothing_of_ours_is_none(host: FakeHost, path: str, text: str) -> None:
    host.file(path, text)
    assert "overridden" not in {action for _, action, _ in drifted(host)}


def test_a_file_of_our_own_that_differs_is_no_file_of_others(host: FakeHost) -> None:
    (ours,) = (host.root / "etc/sysctl.d").glob("90-gb10-*.conf")
    ours.write_text(f"{ARP} = 0\n")
    assert {action for _, action, _ in drifted(host)} == {"update"}
