"""A set of packages moves with the operator's consent, although it is on hold, and also after it was interrupted."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError

from tests.unit.engine.resources.test_packages import FakeApt

if TYPE_CHECKING:
    from tests.unit.engine.resources.conftest import FakeHost

HOLD = {"hold": "driver-set", "match": ["^(lib)?nvidia-", "^linux-"]}
MOVE: list[dict[str, Any]] = [
    {"package": "nvidia-driver", "version": "580.178", "consent": "driver_allow_move"},
    {"package": "nvidia-utils", "version": "580.178", "consent": "driver_allow_move"},
    {"package": "linux-nvidia", "version": "6.17.0-1032.*", "consent": "driver_allow_move"},
    {"package": "linux-modules-1014", "state": "absent", "consent": "driver_allow_move"},
    HOLD,
]


class RealApt(FakeApt):
    """Takes the hold of what it exchanges, as apt with --allow-change-held-packages does, and understands `1.2*`."""

    def install(self, argv: list[str], stdin: str | None) -> Any:
        if "--simulate" not in argv and "--download-only" not in argv:
            words = [word for word in argv[2:] if not word.startswith("-")]
            held = [word for word in words if self.want.get(word.rstrip("-").partition("=")[0]) == "hold"]
            assert not held or "--allow-change-held-packages" in argv
            for word in words:
                self.want.pop(word.rstrip("-").partition("=")[0], None)
            argv = [self.resolved(word) for word in argv]
        return super().install(argv, stdin)

    def resolved(self, word: str) -> str:
        name, _, wanted = word.partition("=")
        if not wanted.endswith("*"):
            return word
        return f"{name}={next(version for version in self.offers[name] if fnmatch(version, wanted))}"


@pytest.fixture
def apt(host: FakeHost) -> RealApt:
    offers = {
        "nvidia-driver": ["580.178", "580.142"],
        "nvidia-utils": ["580.178", "580.142"],
        "linux-nvidia": ["7.0.0-1025.25", "6.17.0-1032.32+1000", "6.17.0-1014.14"],
    }
    apt = RealApt(host, offers, nvidia_driver="580.142", nvidia_utils="580.142", linux_nvidia="6.17.0-1014.14")
    apt.packages["linux-modules-1014"] = "6.17.0-1014.14"
    apt.want = dict.fromkeys(apt.packages, "hold")
    apt.write()
    return apt


def transactions(host: FakeHost) -> list[list[str]]:
    return [
        call
        for call in host.calls
        if call[:2] == ["apt-get", "install"] and not {"--simulate", "--download-only"} & set(call)
    ]


def test_what_these_documents_hold_moves_with_consent_and_is_on_hold_again(host: FakeHost, apt: RealApt) -> None:
    outcome = host.both(MOVE, driver_allow_move=True)
    assert [change["action"] for change in outcome.changes] == ["exchange", "exchange", "exchange", "remove"]
    assert apt.packages == {
        "nvidia-driver": "580.178",
        "nvidia-utils": "580.178",
        "linux-nvidia": "6.17.0-1032.32+1000",
    }
    assert apt.want == dict.fromkeys(apt.packages, "hold")
    (real,) = transactions(host)
    assert real[-4:] == [
        "nvidia-driver=580.178",
        "nvidia-utils=580.178",
        "linux-nvidia=6.17.0-1032.*",
        "linux-modules-1014-",
    ]
    assert host.converge(MOVE, driver_allow_move=True).changes == []


def test_without_consent_nothing_moves_and_the_consent_is_named(host: FakeHost, apt: RealApt) -> None:
    outcome = host.both(MOVE)
    assert {item["consent"] for item in outcome.pending} == {"driver_allow_move"}
    assert len(outcome.pending) == len(MOVE) - 1
    assert outcome.changes == []
    assert transactions(host) == []


def test_a_hold_that_is_not_of_these_documents_is_respected(host: FakeHost, apt: RealApt) -> None:
    with pytest.raises(HostError, match=r"package:nvidia-driver: 580\.142 is on hold"):
        host.converge(MOVE[:-1], driver_allow_move=True)
    assert transactions(host) == []


def test_without_a_consent_to_ask_for_every_hold_is_respected(host: FakeHost, apt: RealApt) -> None:
    with pytest.raises(HostError, match="is on hold"):
        host.converge([{"package": "nvidia-driver", "version": "580.178"}, HOLD])
    assert transactions(host) == []


def test_another_held_package_does_not_come_along(host: FakeHost, apt: RealApt) -> None:
    apt.packages["libnvidia-gl"] = "580.142"
    apt.want["libnvidia-gl"] = "hold"
    apt.along = {"libnvidia-gl": "580.178"}
    apt.write()
    with pytest.raises(HostError, match="apt would also exchange libnvidia-gl, which is on hold"):
        host.converge(MOVE, driver_allow_move=True)
    assert transactions(host) == []


def test_a_failed_move_leaves_the_holds(host: FakeHost, apt: RealApt, fail: Any) -> None:
    def broken(argv: list[str], stdin: str | None) -> Any:
        done = RealApt.install(apt, argv, stdin)
        return fail("E: Sub-process /usr/bin/dpkg returned an error code") if transactions(host) else done

    host.on("apt-get install", broken)
    with pytest.raises(HostError, match="apt-get install failed"):
        host.converge(MOVE, driver_allow_move=True)
    assert set(apt.want) == set(apt.packages) and set(apt.want.values()) == {"hold"}


@pytest.mark.parametrize(
    ("version", "installed", "fits"),
    [
        ("6.17.0-1032.*", "6.17.0-1032.32", True),
        ("6.17.0-1032.32*", "6.17.0-1032.32+1000", True),
        ("6.17.0-1032.*", "6.17.0-10320.1", False),
        ("6.17.0-1032", "6.17.0-1032.32", False),
    ],
)
def test_a_version_with_an_asterisk_is_a_beginning(host: FakeHost, version: str, installed: str, fits: bool) -> None:
    RealApt(host, {"linux-nvidia": [installed]}, linux_nvidia=installed)
    resource = {"package": "linux-nvidia", "version": version}
    if fits:
        assert host.converge([resource]).changes == []
        return
    with pytest.raises(HostError, match="no apt source offers"):
        host.converge([resource])


def interrupt(apt: RealApt) -> None:
    """dpkg was killed behind the first package, and apt alone would go on with the rest."""
    apt.packages["nvidia-driver"] = "580.178"
    apt.state["nvidia-driver"] = "unpacked"
    apt.want.pop("nvidia-driver")
    apt.repair = "Inst nvidia-utils [580.142] (580.178 repo [arm64])\nRemv linux-modules-1014 [6.17.0-1014.14]"
    apt.write()


def test_an_interrupted_move_is_completed_by_its_own_transaction(host: FakeHost, apt: RealApt) -> None:
    interrupt(apt)
    outcome = host.converge(MOVE, driver_allow_move=True)
    assert [change["action"] for change in outcome.changes] == ["repair", "exchange", "exchange", "remove", "hold"]
    assert host.commands("apt-get install --fix-broken") == []
    assert apt.packages == {
        "nvidia-driver": "580.178",
        "nvidia-utils": "580.178",
        "linux-nvidia": "6.17.0-1032.32+1000",
    }
    assert apt.want == dict.fromkeys(apt.packages, "hold")


def test_without_consent_an_interrupted_move_is_not_gone_on_with(host: FakeHost, apt: RealApt) -> None:
    interrupt(apt)
    with pytest.raises(HostError, match="to repair it apt would remove linux-modules-1014, install nvidia-utils"):
        host.converge(MOVE)


def test_a_move_that_has_come_to_its_end_leaves_the_repair_to_apt(host: FakeHost, apt: RealApt) -> None:
    """What is broken then is something else."""
    host.converge(MOVE, driver_allow_move=True)
    apt.packages["nvidia-open"] = "580.178"
    apt.state["nvidia-open"] = "half-configured"
    apt.repair = "Inst nvidia-open [580.178] (590 repo [arm64])"
    apt.write()
    with pytest.raises(HostError, match="to repair it apt would install nvidia-open"):
        host.converge(MOVE, driver_allow_move=True)


def test_a_repair_may_bring_what_is_no_part_of_the_driver(host: FakeHost, apt: RealApt) -> None:
    """As after an update of the vendor's that was cut off."""
    apt.packages["nvidia-system-core"] = "25.10-1"
    apt.state["nvidia-system-core"] = "unpacked"
    apt.repair = (
        "Inst nvidia-system-core [25.10-1] (26.04-1 repo [all])\nInst nvidia-spark-ota-check (1.0.16-1 repo [all])"
    )
    apt.write()
    outcome = host.converge([HOLD])
    assert [change["action"] for change in outcome.changes] == ["repair", "hold"]
    assert len(host.commands("apt-get install --fix-broken")) == 1
