"""One thing at a time goes wrong on a host that is right: check mode and drift name it, and a run repairs it.

Nothing else is named, and nothing else is changed. The table goes through the engine's own program, as the action
plugins send it; a handful goes through the playbooks.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from tests.fleet.fleet import MANIFEST, Fleet, named
from tests.support.kinds import EXAMPLES
from tests.support.rig import ROOT, differences

pytestmark = pytest.mark.lab

GATE = "/usr/local/sbin/gb10-memory-gate"
PINS = "/etc/apt/preferences.d/10-gb10-nvidia"
TOOLKIT = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools")
LIBRARY = "libnvidia-container1"
SYSCTLS = "/etc/sysctl.d/90-gb10-kernel_parameters.conf"


class Drift(NamedTuple):
    name: str
    cause: str
    role: str
    resources: tuple[str, ...]
    tidy: str = "true"  # what a cause leaves behind that is nobody's resource


def file(name: str, cause: str, role: str, path: str, *more: str) -> Drift:
    return Drift(name, cause, role, (f"file:{path}", *more))


def extra(name: str, cause: str, *resources: str, tidy: str = "true") -> Drift:
    return Drift(name, cause, "extra", resources, tidy)


PROFILE = "nm_profile:gb10-gb10x0"
CDI_PATH, CDI_SERVICE = "unit:nvidia-cdi-refresh.path", "unit:nvidia-cdi-refresh.service"

DRIFTS = [
    # files
    file("content edited", f"echo '# hello' >>{GATE}", "page_cache", GATE),
    *(
        file(
            f"truncated at {percent} percent",
            f"truncate -s $(($(stat -c %s {GATE}) * {percent} / 100)) {GATE}",
            "page_cache",
            GATE,
        )
        for percent in (0, 50, 99)
    ),
    file("replaced by bytes", f"head -c 4096 /dev/zero >{GATE}", "page_cache", GATE),
    file("mode", f"chmod 0777 {GATE}", "page_cache", GATE),
    file("owner", f"chown spark {GATE}", "page_cache", GATE),
    file("group", f"chgrp spark {GATE}", "page_cache", GATE),
    file("set-id bit", f"chmod u+s {GATE}", "page_cache", GATE),
    file("removed", f"rm {GATE}", "page_cache", GATE),
    file("limits edited", "echo >/etc/security/limits.d/90-gb10-memlock.conf", "kernel_parameters",
         "/etc/security/limits.d/90-gb10-memlock.conf"),
    # apt
    file("pin edited", f"sed -i 's/^Pin: version 580.*/Pin: version 590*/' {PINS}", "driver", PINS),
    file("pin removed", f"rm {PINS}", "driver", PINS),
    file("apt.conf edited", "echo >/etc/apt/apt.conf.d/52gb10-driver", "driver", "/etc/apt/apt.conf.d/52gb10-driver"),
    Drift("hold of a set removed", "apt-mark -q unhold nvidia-driver-580-open", "driver", ("hold:driver-set",)),
    Drift("all holds removed", "apt-mark showhold | grep -v ethtool | xargs apt-mark -q unhold", "driver",
          ("hold:driver-set",)),
    Drift("package newer", f"apt-get -qqy install {LIBRARY}=1.20.0-1", "container_toolkit", (f"package:{LIBRARY}",)),
    Drift(
        "packages downgraded",
        f"apt-get -qqy --allow-downgrades install {' '.join(f'{name}=1.19.0-1' for name in (*TOOLKIT, LIBRARY))}",
        "container_toolkit",
        tuple(f"package:{name}" for name in (*TOOLKIT, LIBRARY)),
    ),
    # units
    Drift("unit masked", "systemctl -q mask nvidia-cdi-refresh.path", "container_toolkit", (CDI_PATH,)),
    Drift("unit stopped", "systemctl stop nvidia-cdi-refresh.path", "container_toolkit", (CDI_PATH,)),
    Drift("unit disabled", "systemctl -q disable nvidia-cdi-refresh.service", "container_toolkit", (CDI_SERVICE,)),
    # kernel
    Drift("sysctl live", "sysctl -qw net.ipv4.conf.all.arp_ignore=0", "kernel_parameters",
          ("sysctl:net.ipv4.conf.all.arp_ignore",)),
    file("sysctl on disk", f"sed -i s/arp_announce.*/arp_announce=0/ {SYSCTLS}", "kernel_parameters", SYSCTLS),
    file("sysctl file removed", f"rm {SYSCTLS}", "kernel_parameters", SYSCTLS),
    # every kind of the extra document
    *(
        extra(name, drift["cause"], *drift["resources"], tidy=drift.get("tidy", "true"))
        for found in EXAMPLES.values()
        for name, drift in found["drifts"].items()
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def host(converged: Fleet) -> str:
    return converged.hosts[0]


@pytest.fixture(scope="module")
def documents(converged: Fleet, host: str) -> list[dict[str, object]]:
    return converged.documents(host)


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len(DRIFTS) >= 30
    assert len({drift.name for drift in DRIFTS}) == len(DRIFTS)


def test_a_converged_host_has_nothing_to_do(converged: Fleet, host: str, documents: list[dict[str, object]]) -> None:
    said = converged.converge(host, documents, check=True)
    assert said["error"] is None and said["changes"] == [] and said["pending"] == []
    assert converged.engine(host, "drift")["changes"] == []


@pytest.mark.parametrize("drift", DRIFTS, ids=lambda drift: drift.name)
def test_one_drift_is_named_and_repaired_alone(
    converged: Fleet, host: str, documents: list[dict[str, object]], drift: Drift
) -> None:
    expected = {(drift.role, resource) for resource in drift.resources}
    converged.shell(host, f"exec 2>&1; {drift.cause}")
    foretold = converged.converge(host, documents, check=True)
    assert foretold["error"] is None, foretold["error"]
    found = converged.engine(host, "drift")
    done = converged.converge(host, documents)
    converged.shell(host, drift.tidy)
    after = converged.converge(host, documents, check=True)

    assert named(foretold["changes"]) == expected, "check mode"
    differs = named(row for row in foretold["changes"] if row["action"] != "restart")  # a restart follows from others
    # What others have put beside a file of ours is drift that no run repairs.
    repairable = [row for row in found["changes"] + found["pending"] if row["action"] != "overridden"]
    assert found["error"] is None and named(repairable) == differs, f"drift: {found}"
    assert done["error"] is None, done["error"]
    assert done["changes"] == foretold["changes"], "what was changed is what was foretold"
    assert after["error"] is None and after["changes"] == []


# NetworkManager waits 6 s before it takes the address from a link without carrier: its own change, not that of a run.
NOTICED = "for _ in $(seq 300); do ip -o address show dev gb10y0 | grep -q inet || break; sleep 0.1; done"
REFUSED = [
    ("a file became a directory", f"rm {GATE} && mkdir {GATE}", f"file:{GATE}", f"rmdir {GATE}"),
    ("a file became a link", f"ln -sf /bin/true {GATE}", f"file:{GATE}", f"rm {GATE}"),
    ("a file became a pipe", f"rm {GATE} && mkfifo {GATE}", f"file:{GATE}", f"rm {GATE}"),
    ("a directory became a file", "mv /etc/gb10-extra /etc/away && touch /etc/gb10-extra", "file:/etc/gb10-extra",
     "rm /etc/gb10-extra && mv /etc/away /etc/gb10-extra"),
    ("JSON that is none", "echo '{' >/etc/gb10-extra/daemon.json", "file:/etc/gb10-extra/daemon.json",
     "rm /etc/gb10-extra/daemon.json"),
    ("an interface is gone", f"ip link set gb10x0 down && ip link set gb10x0 name gb10y0; {NOTICED}", PROFILE,
     "ip link set gb10y0 name gb10x0 && ip link set gb10x0 up"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cause", "label", "repair"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cannot_be_repaired_without_a_person_is_refused_by_name(
    converged: Fleet, host: str, documents: list[dict[str, object]], name: str, cause: str, label: str, repair: str
) -> None:
    converged.shell(host, cause)
    before = converged.snapshot(host)
    found = converged.engine(host, "drift")
    refused = converged.converge(host, documents)
    after = converged.snapshot(host)
    converged.shell(host, repair)

    assert label in [row["resource"] for row in found["changes"]], "drift"
    assert refused["error"] is not None and refused["error"]["kind"] == "host"
    assert label in refused["error"]["message"]
    assert refused["changes"] == [] and differences(before, after) == [], "a refused run must touch nothing"
    assert converged.converge(host, documents)["error"] is None
    assert converged.converge(host, documents, check=True)["changes"] == []


def test_a_clean_run_writes_nothing(converged: Fleet, host: str, documents: list[dict[str, object]]) -> None:
    ask = f"find /etc /usr/local /var/lib/gb10-fleet -newer /run/mark; stat -c %i {MANIFEST}"
    inode = converged.shell(host, f"touch /run/mark; {ask}")
    assert converged.converge(host, documents)["changes"] == []
    assert converged.shell(host, ask) == inode


THROUGH_PLAYBOOKS = [drift for drift in DRIFTS if drift.name in ("content edited", "unit masked", "MTU live")]


@pytest.mark.parametrize("drift", THROUGH_PLAYBOOKS, ids=lambda drift: drift.name)
def test_the_playbooks_say_the_same(converged: Fleet, host: str, drift: Drift) -> None:
    expected = {(drift.role, resource) for resource in drift.resources}
    converged.shell(host, drift.cause)

    scan = converged.site(playbook="playbooks/drift.yml")
    assert scan.rc != 0, "drift must not look like success"
    report = json.loads((ROOT / "evidence/drift/drift.json").read_text())
    assert report["drifted"] == [host]
    rows = report["hosts"][host]["changes"]
    assert {(role, row["resource"]) for role in rows for row in rows[role]} == expected
    assert all(resource in scan.output for resource in drift.resources)

    check = converged.site("--check", "--diff")
    assert check.rc == 0
    assert [name for name, row in check.recap.items() if row["changed"]] == [host]
    repaired = converged.site("--limit", f"@{ROOT / 'evidence/drift/drifted.txt'}")
    assert repaired.rc == 0 and repaired.recap[host]["changed"] == 1
    assert list(repaired.recap) == [host], "only the drifted host is touched"
    assert converged.site(playbook="playbooks/drift.yml").rc == 0
