"""A change of the network that nobody confirms does not stay, whoever dies meanwhile."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine import guard
from ansible_collections.gb10.fleet.plugins.module_utils.engine.remote import answer
from ansible_collections.gb10.fleet.plugins.module_utils.system import lock
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System

from tests.support.network_manager import P0, P0_TWIN, UUID_TWIN, FakeNetworkManager, rail

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fake_host import FakeHost

ID = "f00d" * 4
LABEL, PEER = f"nm_profile:gb10-{P0}", "192.0.2.2"
MANAGEMENT = "/etc/NetworkManager/system-connections/management.nmconnection"


@pytest.fixture
def manager(host: FakeHost) -> FakeNetworkManager:
    host.file(MANAGEMENT, "[connection]\nid=management\n", mode=0o600)
    return FakeNetworkManager(host)


def ask(host: FakeHost, **changes: Any) -> dict[str, Any]:
    request = {
        "verb": "converge",
        "check": False,
        "documents": [{"role": "fabric", "resources": [rail(peers=[PEER])]}],
        "consents": {"fabric_allow_activation": True},
        "project": "0.2.0",
        "run": "somebody",
        **changes,
    }
    return answer(request, System(host.root, host.run, host.clock, privileged=True))


def pings(host: FakeHost, *, large: bool = True, small: bool = True) -> None:
    def reply(argv: list[str], stdin: str | None) -> Completed:
        return Completed(tuple(argv), 0 if (large if argv[argv.index("-s") + 1] == "8972" else small) else 1)

    host.on("ping", reply)


def entry(host: FakeHost) -> dict[str, Any]:
    manifest = json.loads(host.path("/var/lib/gb10-fleet/manifest.json").read_text())
    return {**manifest["resources"][LABEL], "unfinished": manifest["unfinished"]}


def changed(host: FakeHost) -> dict[str, Any]:
    """The answer to a first call, which waits for the word of a second one."""
    pings(host)
    said = ask(host, guard=ID)
    assert said["error"] is None, said["error"]
    return said


def test_a_change_waits_armed_twice_until_it_is_confirmed(host: FakeHost, manager: FakeNetworkManager) -> None:
    said = changed(host)
    assert said["guard"]["seconds"] == guard.CONFIRM_S + guard.NET_S + guard.ROLLBACK_S
    assert manager.checkpoints and manager.ended == []
    adjusted = [line.split()[5:] for line in host.commands("busctl call") if "Adjust" in line]
    assert adjusted == [["CheckpointAdjustRollbackTimeout", "ou", "/checkpoint/1", "90"]]
    timers = host.commands("systemd-run")
    assert [line.split("--on-active=")[1].split()[0] for line in timers] == ["80s", "120s"]
    names = [line.split("--unit=")[1].split()[0] for line in timers]
    assert names[0] != names[1], "the second one is armed before the first one ends"
    stopped = [line.split()[-1] for line in host.commands("systemctl stop")]
    assert stopped == ["gb10-guard-*.timer", f"{names[0]}.timer"]
    assert entry(host)["left"] is None and entry(host)["unfinished"], "nothing of it is unchanged yet"

    host.calls.clear()
    said = ask(host, confirm=said["guard"]["id"])
    assert (said["error"], said["guard"], said["changes"]) == (None, None, [])
    assert manager.ended == ["CheckpointDestroy"]
    (longer,) = host.commands("systemd-run")
    assert "--on-active=120s" in longer, "it does not fire while it is looked at"
    assert host.commands("systemctl stop") == [f"systemctl stop {names[1]}.timer", "systemctl stop gb10-guard-*.timer"]
    assert not host.path(guard.FOLDER).exists()
    assert entry(host)["left"] and entry(host)["unfinished"] is None
    assert ask(host, guard=ID)["guard"] is None, "nothing to do leaves nothing armed"


def test_the_second_net_is_there_before_the_first_change(host: FakeHost, manager: FakeNetworkManager) -> None:
    changed(host)
    lines = host.commands()
    order = [
        next(i for i, line in enumerate(lines) if word in line) for word in ("systemd-run", "Create", "nmcli conn")
    ]
    assert order == sorted(order)
    assert host.path(guard.SAVED + MANAGEMENT).read_text() == "[connection]\nid=management\n"
    assert host.path(guard.LIVE).read_text() == f"{P0} ours - 1500\n"
    assert host.path(guard.FOLDER).stat().st_mode & 0o777 == 0o700


def test_without_the_second_net_nothing_is_changed(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any]
) -> None:
    host.on("systemd-run", fail("Failed to start transient timer unit"))
    said = ask(host, guard=ID)
    assert "Failed to start transient timer unit" in said["error"]["message"]
    assert manager.profiles == {}


def back(manager: FakeNetworkManager) -> None:
    """What a rollback of NetworkManager does."""
    manager.profiles.clear()
    manager.link(P0)


@pytest.mark.parametrize(
    ("large", "small", "words"),
    [(False, True, "the MTU is smaller at the other end"), (False, False, "check that the peer is up")],
)
def test_a_peer_that_does_not_answer_takes_it_back(
    host: FakeHost, manager: FakeNetworkManager, large: bool, small: bool, words: str
) -> None:
    waiting = changed(host)["guard"]["id"]
    pings(host, large=large, small=small)
    said = ask(host, confirm=waiting)
    message = said["error"]["message"]
    assert f"{LABEL}: {PEER} does not answer over {P0}" in message and words in message
    assert "the network is back to how it was before: 1 files of profiles are the same byte for byte" in message
    assert manager.ended == ["CheckpointRollback"]
    assert host.clock.time <= 50, "long before it would have fired by itself"
    assert entry(host)["left"] is None, "the next run does it again"


def test_a_gid_that_is_not_of_the_plan_takes_it_back(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]
    table = "/sys/class/infiniband/rocep1s0f0/ports/1"
    for slot, gid in ((1, "c000:0201"), (3, "a9fe:0708")):  # 192.0.2.1 and 169.254.7.8
        host.file(f"{table}/gid_attrs/ndevs/{slot}", f"{P0}\n")
        host.file(f"{table}/gids/{slot}", f"0000:0000:0000:0000:0000:ffff:{gid}\n")
    message = ask(host, confirm=waiting)["error"]["message"]
    assert "holds the IPv4 addresses 169.254.7.8, 192.0.2.1, and should hold 192.0.2.1" in message
    back(manager)
    host.path(f"{table}/gid_attrs/ndevs/3").unlink()
    assert ask(host, confirm=changed(host)["guard"]["id"])["error"] is None


def test_what_is_no_longer_as_declared_is_taken_back(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]
    manager.link(P0, "192.0.2.1/30", mtu=1500)
    message = ask(host, confirm=waiting)["error"]["message"]
    assert "live MTU 1500 -> 9000" in message and "back to how it was" in message


def test_networkmanager_that_rolled_back_first_is_said_and_proven(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]
    manager.checkpoints.clear()
    back(manager)
    message = ask(host, confirm=waiting)["error"]["message"]
    assert "no such profile" in message and "1 files of profiles are the same byte for byte" in message
    assert manager.ended == []


def test_what_went_back_while_it_was_looked_at_is_neither_kept_nor_done_again(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    waiting = changed(host)["guard"]["id"]

    def late(argv: list[str], stdin: str | None) -> str:
        if manager.checkpoints:
            manager.checkpoints.clear()
            host.clock.time += guard.CONFIRM_S + 1
            back(manager)
        return ""

    host.on("ping", late)
    host.calls.clear()
    message = ask(host, confirm=waiting)["error"]["message"]
    assert "the time to confirm it was over" in message and "the network is back" in message
    assert not host.commands("nmcli connection add") and manager.profiles == {}
    assert host.commands("busctl call")[0].endswith(
        f"CheckpointAdjustRollbackTimeout ou /checkpoint/1 {guard.CONFIRM_S}"
    )


def test_a_late_word_has_as_much_time_as_an_early_one(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]
    host.clock.time += guard.CONFIRM_S - 1
    host.on("ping", lambda argv, stdin: host.clock.sleep(10) or "")
    assert ask(host, confirm=waiting)["error"] is None


def test_a_script_that_has_begun_is_not_overruled(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]
    manager.checkpoints.clear()
    host.path(guard.ARMED).rename(host.path(guard.FIRING))
    back(manager)
    host.calls.clear()
    message = ask(host, confirm=waiting)["error"]["message"]
    assert "the time to confirm it was over; the network is back" in message
    assert not host.commands("ping") and host.commands("/bin/sh")


def test_a_script_that_begins_at_the_last_moment_wins(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]

    def stopped(argv: list[str], stdin: str | None) -> str:
        if "*" in argv[2] and host.path(guard.ARMED).exists():
            host.path(guard.ARMED).rename(host.path(guard.FIRING))
            back(manager)
        return ""

    host.on("systemctl stop gb10-guard-", stopped)
    assert "the time to confirm it was over" in ask(host, confirm=waiting)["error"]["message"]


def test_the_word_for_a_change_makes_none_of_its_own(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]
    real = manager.busctl

    def gone(argv: list[str], stdin: str | None) -> str:
        said = real(argv, stdin)
        if argv[5] == "CheckpointDestroy":
            back(manager)
        return said

    host.on("busctl call", gone)
    assert "no longer as it was just confirmed" in ask(host, confirm=waiting)["error"]["message"]
    assert manager.profiles == {} and entry(host)["left"] is not None
    host.on("busctl call", real)
    assert ask(host, guard=ID)["changes"], "another run does it again"


def test_a_kill_after_the_word_takes_nothing_back(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]
    host.path(guard.ARMED).rename(host.path(guard.RELEASED))
    manager.checkpoints.clear()
    host.calls.clear()
    assert ask(host, documents=OTHER)["error"] is None
    assert not host.commands("/bin/sh") and manager.profiles
    assert waiting and not host.path(guard.FOLDER).exists()


def test_a_file_that_did_not_come_back_is_named(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]
    manager.checkpoints.clear()
    back(manager)
    host.file(MANAGEMENT, "[connection]\nid=other\n")
    message = ask(host, confirm=waiting)["error"]["message"]
    assert f"was to go back to how it was, but differs in {MANAGEMENT}" in message


def test_a_restarted_networkmanager_forgets_and_what_holds_is_kept(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]
    manager.checkpoints.clear()
    assert ask(host, confirm=waiting)["error"] is None
    assert host.commands("systemctl stop")


def test_a_word_for_another_change_is_refused(host: FakeHost, manager: FakeNetworkManager) -> None:
    changed(host)
    said = ask(host, confirm="0" * 16)
    assert "no change of the network waits here for this confirmation" in said["error"]["message"]
    assert manager.checkpoints and said["guard"] is None, "it still waits for its own"


def test_the_word_waits_for_a_first_call_that_is_still_at_work(host: FakeHost, manager: FakeNetworkManager) -> None:
    """Its connection was cut off; it goes on, and ends before what it has armed can fire."""
    waiting = changed(host)["guard"]["id"]
    descriptor = os.open(host.path(lock.LOCK), os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    said = ask(host, confirm=waiting)
    assert said["error"]["kind"] == "busy" and host.clock.time >= guard.CONFIRM_S + guard.NET_S
    host.clock.time = 0

    def end() -> None:
        if host.clock.time > 60:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    host.clock.at_sleep = end
    assert ask(host, confirm=waiting)["error"] is None
    os.close(descriptor)


def test_the_next_run_waits_for_what_a_dead_controller_left_armed(host: FakeHost, manager: FakeNetworkManager) -> None:
    changed(host)

    def roll_back() -> None:
        manager.checkpoints.clear()
        back(manager)

    host.clock.at_sleep = roll_back
    said = ask(host)
    assert [change["action"] for change in said["changes"]] == ["create"]
    assert not host.path(guard.FOLDER).exists()


@pytest.mark.parametrize("other", [{"check": True}, {"verb": "drift"}, {"guard": "beef" * 4}], ids=str)
def test_the_next_run_leaves_the_lock_to_the_word_that_it_waits_for(
    host: FakeHost, manager: FakeNetworkManager, other: dict[str, Any]
) -> None:
    """Two terminals: a mere look of the second one held the lock, and the first one's change went back."""
    waiting, confirmed = changed(host)["guard"]["id"], []

    def confirm() -> None:
        host.clock.at_sleep = lambda: None
        confirmed.append(ask(host, confirm=waiting)["error"])

    host.clock.at_sleep = confirm
    documents = [{"role": "fabric", "resources": [rail(peers=[PEER], mtu=4000)]}]
    said = ask(host, documents=documents, **other)
    assert (said["error"], confirmed, manager.ended[:1]) == (None, [None], ["CheckpointDestroy"])


def test_a_kill_while_the_time_is_prolonged_leaves_nobody_waiting_too_short(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    real, ends = manager.busctl, []

    def killed(argv: list[str], stdin: str | None) -> str:
        said = real(argv, stdin)
        if "Adjust" in argv[5]:
            ends.append(host.clock.time + int(argv[8]))
            raise KeyboardInterrupt
        return said

    host.on("busctl call", killed)
    with pytest.raises(KeyboardInterrupt):
        changed(host)
    host.on("busctl call", real)

    def roll_back() -> None:
        if host.clock.time >= ends[0]:
            manager.checkpoints.clear()
            back(manager)

    host.clock.at_sleep = roll_back
    said = ask(host, documents=[{"role": "other", "resources": [{"file": "/etc/x", "content": "x"}]}])
    assert said["error"] is None, said["error"]


OTHER = [{"role": "other", "resources": [{"file": "/etc/x", "content": "x"}]}]


def test_what_a_dead_controller_left_goes_back_though_networkmanager_was_restarted(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    """It has forgotten its checkpoint, and the timer is about to fire: whoever disarms it has to do its work."""
    changed(host)
    manager.checkpoints.clear()

    def script(argv: list[str], stdin: str | None) -> str:
        back(manager)
        return manager.restore(argv, stdin)

    host.on("/bin/sh /run/gb10-fleet/guard/restore", script)
    host.calls.clear()
    said = ask(host, documents=OTHER)
    assert said["error"] is None
    assert manager.profiles == {}, "an unproven change was kept"
    lines = host.commands()
    assert lines.index("/bin/sh /run/gb10-fleet/guard/restore") < lines.index("systemctl stop gb10-guard-*.timer")
    assert not host.path(guard.FOLDER).exists()
    changed(host)
    manager.checkpoints.clear()
    said = ask(host, guard="0" * 16)
    assert [change["action"] for change in said["changes"]] == ["create"], "what was read before is void"


def test_what_cannot_be_taken_back_keeps_its_net_and_stops_the_run(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any]
) -> None:
    changed(host)
    manager.checkpoints.clear()
    host.on("/bin/sh /run/gb10-fleet/guard/restore", fail("no"))
    host.calls.clear()
    assert ask(host, documents=OTHER)["error"]
    assert not host.path("/etc/x").exists() and not host.commands("systemctl stop")
    assert host.path(guard.MARK).exists()


def test_what_has_fired_long_ago_is_only_cleared_away(host: FakeHost, manager: FakeNetworkManager) -> None:
    """Whoever has changed the network since means it."""
    changed(host)
    manager.checkpoints.clear()
    host.file(guard.FIRED, "")
    host.clock.time += 1000
    host.file(MANAGEMENT, "[connection]\nid=newer\n")
    host.calls.clear()
    assert ask(host, documents=OTHER)["error"] is None
    assert not host.commands("/bin/sh") and not host.path(guard.FOLDER).exists()


def test_an_arming_that_fails_leaves_nothing_armed(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any]
) -> None:
    real = manager.busctl
    refuse = fail("Device '/x' is already included in checkpoint")
    host.on("busctl call", lambda argv, stdin: refuse if argv[5] == "CheckpointCreate" else real(argv, stdin))
    said = ask(host, guard=ID)
    assert "already included" in said["error"]["message"] and said["guard"] is None
    lines = host.commands("system")
    assert lines[-1] == "systemctl stop gb10-guard-*.timer" and lines[-2].startswith("systemd-run")
    assert not host.path(guard.FOLDER).exists() and manager.profiles == {}


def test_a_timer_that_a_kill_left_without_a_mark_is_stopped(host: FakeHost, manager: FakeNetworkManager) -> None:
    def killed(argv: list[str], stdin: str | None) -> str:
        raise KeyboardInterrupt

    host.on("systemd-run", killed)
    with pytest.raises(KeyboardInterrupt):
        changed(host)
    host.on("systemd-run", "")
    host.calls.clear()
    assert ask(host, documents=[])["error"] is None
    assert host.commands("systemctl stop") == ["systemctl stop gb10-guard-*.timer"]
    assert not host.path(guard.FOLDER).exists()


def restarted(host: FakeHost, manager: FakeNetworkManager) -> None:
    """With /run everything is gone that was armed; the profile is on the disk, and comes up by itself."""
    shutil.rmtree(host.path("/run"))
    host.path("/run").mkdir()
    manager.checkpoints.clear()
    host.clock.time = 0


def test_after_a_restart_an_unconfirmed_change_counts_only_when_it_is_proven(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    waiting = changed(host)["guard"]["id"]
    restarted(host, manager)
    assert "waits here for this confirmation" in ask(host, confirm=waiting)["error"]["message"]
    assert entry(host)["left"] is None

    pings(host, large=False, small=False)
    assert ask(host, check=True)["recorded"] is False, "a run is due"
    more = [rail(peers=[PEER]), {"file": "/etc/x", "content": "x"}]
    for resources, changes in ((more, 1), (more, 0)):
        said = ask(host, guard=ID, documents=[{"role": "fabric", "resources": resources}])
        message = said["error"]["message"]
        assert f"{PEER} does not answer over {P0}" in message and "could not confirm it" in message
        assert (len(said["changes"]), said["guard"]) == (changes, None)
        assert entry(host)["left"] is None and entry(host)["unfinished"]

    pings(host)
    host.calls.clear()
    said = ask(host, guard=ID)
    assert (said["error"], said["changes"], said["guard"]) == (None, [], None)
    assert host.commands("ping") and entry(host)["left"] and entry(host)["unfinished"] is None
    host.calls.clear()
    assert ask(host, guard=ID)["error"] is None and not host.commands("ping"), "once is enough"


def test_what_a_restart_left_unproven_can_be_taken_back(host: FakeHost, manager: FakeNetworkManager) -> None:
    """Its peer may be gone for good, and then no run of the role proves it."""
    changed(host)
    restarted(host, manager)
    manager.link(P0, "192.0.2.1/30", mtu=1400)
    undo = {"verb": "undo", "documents": [], "known_roles": ["fabric"]}
    assert "did not come to its end" in ask(host, **undo)["error"]["message"], "somebody else has changed it"
    manager.link(P0, "192.0.2.1/30", mtu=9000)
    assert ask(host, **undo)["error"] is None
    assert manager.profiles == {} and not host.path("/var/lib/gb10-fleet/manifest.json").exists()


def test_what_a_restart_left_unproven_is_confirmed_with_the_next_change(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    changed(host)
    restarted(host, manager)
    twin = rail(P0_TWIN, UUID_TWIN, "192.0.2.5/30", peers=["192.0.2.6"])
    documents = [{"role": "fabric", "resources": [rail(peers=[PEER]), twin]}]
    host.calls.clear()
    said = ask(host, guard=ID, documents=documents)
    assert said["guard"] and not host.commands("ping") and entry(host)["left"] is None
    said = ask(host, confirm=ID, documents=documents)
    assert said["error"] is None and entry(host)["left"] and entry(host)["unfinished"] is None
    assert {line.split()[-1] for line in host.commands("ping")} == {PEER, "192.0.2.6"}


def test_a_kill_beside_a_rail_leaves_it_proven(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any]
) -> None:
    ask(host, confirm=changed(host)["guard"]["id"])
    pings(host, large=False, small=False)

    def killed(argv: list[str], stdin: str | None) -> str:
        raise KeyboardInterrupt

    host.on("check", killed)
    file = {"file": "/etc/x", "content": "x", "validate": ["check", "%s"]}
    documents = [{"role": "fabric", "resources": [rail(peers=[PEER]), file]}]
    with pytest.raises(KeyboardInterrupt):
        ask(host, guard=ID, documents=documents)
    host.on("check", "")
    assert ask(host, guard=ID, documents=documents)["error"] is None, "nobody has touched the rail"


def test_a_later_step_that_fails_takes_the_rails_back(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any]
) -> None:
    host.file("/etc/gb10-fleet", "in the way")
    resources = [rail(), {"file": "/etc/after", "content": "x", "validate": ["check", "%s"]}]
    host.on("check", fail("no"))
    said = ask(host, guard=ID, documents=[{"role": "fabric", "resources": resources}])
    assert "back to how it was" in said["error"]["message"]
    assert (manager.ended, said["guard"]) == (["CheckpointRollback"], None)


# --------------------------------------------------------------------------------------------------- the timer's script

NMCLI = """#!/bin/sh
echo "nmcli $*" >>"$LOG"
case "$*" in
    *"device status"*)
        for file in "$HERE"/uuid-*; do [ ! -e "$file" ] || echo "${file##*uuid-}:connected:$(cat "$file")"; done
        echo "docker0:connected (externally):d";;
    *"connection up"*) [ ! -e "$HERE/broken" ] || exit 4
        echo "$6" >"$HERE/uuid-$8"; echo 1500 >"$HERE/sys/class/net/$8/mtu"
        cp "$HERE/profile-$6" "$HERE/ip-$8" 2>/dev/null;;
    *disconnect*) rm "$HERE/uuid-$3"; : >"$HERE/ip-$3";;
esac
"""
IP = """#!/bin/sh
case "$*" in
    *show*) while read -r line; do echo "2: $6    inet $line"; done <"$HERE/ip-$6"; exit;;
    "link set"*) echo "$6" >"$HERE/sys/class/net/$4/mtu";;
    "address replace"*) echo "$3 scope global $5" >>"$HERE/ip-$5";;
esac
echo "ip $*" >>"$LOG"
"""


class Net:
    """A host below a folder, on which the timer fires."""

    def __init__(self, root: Path, before: str = "") -> None:
        """`before`: an address that somebody has set on the rail by hand."""
        self.root = root
        self.before = before
        for name, text in (("nmcli", NMCLI), ("ip", IP), ("sleep", "#!/bin/sh\n")):
            self.write(f"bin/{name}", text).chmod(0o755)
        for device in ("enP7s7", "ppp0", P0, "docker0"):
            self.write(f"sys/class/net/{device}/mtu", "1500\n")
            self.write(f"sys/class/net/{device}/carrier", "1\n")
        self.write("uuid-enP7s7", "m-1\n")
        self.write("uuid-ppp0", "p-1\n")
        self.write("profile-m-1", "198.51.100.7/24 brd x scope global enP7s7\n")
        self.write("ip-enP7s7", "198.51.100.7/24 brd x scope global enP7s7\n")
        self.write("ip-ppp0", "10.64.64.1 peer 10.64.64.64/32 scope global ppp0\n")
        self.write(f"ip-{P0}", f"{before} scope global {P0}\n" if before else "")
        self.write("etc/NetworkManager/system-connections/management", "good")
        self.write("etc/netplan/90-NM-m-1.yaml", "good")
        self.write("run/NetworkManager/system-connections/docker0", "made up")
        host = System(root, self.run, privileged=True)
        host.private_directory("/run/gb10-fleet")
        guard._save(host, [P0])

    def run(self, argv: Any, stdin: str | None, timeout: float) -> Completed:
        if argv[0] == "nmcli":
            active = "enP7s7:connected:m-1\nppp0:connected:p-1\n"
            return Completed((), 0, f"{active}{P0}:disconnected:\ndocker0:connected (externally):d\n")
        own, _, bits = self.before.partition("/")
        links = [
            {"ifname": "enP7s7", "addr_info": [{"local": "198.51.100.7", "prefixlen": 24}]},
            {"ifname": "ppp0", "addr_info": [{"local": "10.64.64.1", "address": "10.64.64.64", "prefixlen": 32}]},
            {"ifname": "docker0", "addr_info": [{"local": "172.17.0.1", "prefixlen": 16}]},
            {
                "ifname": P0,
                "addr_info": [
                    {"local": "fe80::1", "prefixlen": 64},
                    *([{"local": own, "prefixlen": int(bits)}] if own else []),
                ],
            },
        ]
        return Completed((), 0, json.dumps(links))

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def fire(self, *, fails: bool = False) -> list[str]:
        """What the script did, but for its questions."""
        log = self.write("log", "")
        env = {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "HERE": str(self.root), "LOG": str(log)}
        script = self.root / guard.RESTORE.lstrip("/")
        done = subprocess.run(["/bin/sh", script, self.root], env=env, capture_output=True, text=True, check=False)
        assert (done.stderr, done.returncode) == ("", int(fails))
        return [line for line in log.read_text().splitlines() if "device status" not in line]

    @property
    def fired(self) -> str | None:
        """What it found different in the end."""
        file = self.root / guard.FIRED.lstrip("/")
        return file.read_text().strip() if file.exists() else None


def test_a_timer_that_finds_everything_in_order_does_nothing(tmp_path: Path) -> None:
    net = Net(tmp_path)
    assert net.fire() == []
    assert net.fired == ""


def test_the_timer_brings_files_and_management_back(tmp_path: Path) -> None:
    net = Net(tmp_path)
    folder = tmp_path / "etc/NetworkManager/system-connections"
    (folder / "management").write_text("bad")
    (folder / f"gb10-{P0} x").write_text("new")
    (tmp_path / "etc/netplan/90-NM-m-1.yaml").unlink()
    (tmp_path / "uuid-enP7s7").write_text("m-2\n")
    net.write(f"uuid-{P0}", "our-own\n")
    net.write(f"sys/class/net/{P0}/mtu", "9000\n")
    net.write("run/NetworkManager/system-connections/docker1", "made up since")
    assert (tmp_path / guard.LIVE.lstrip("/")).read_text().splitlines() == [
        "enP7s7 theirs m-1 1500 198.51.100.7/24",
        "ppp0 theirs p-1 1500 10.64.64.1/32",
        f"{P0} ours - 1500",
    ]
    assert net.fire() == [
        "nmcli connection reload",
        "nmcli --wait 20 connection up uuid m-1 ifname enP7s7",
        f"nmcli device disconnect {P0}",
        f"ip link set dev {P0} mtu 1500",
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["management"]
    assert (folder / "management").read_text() == "good"
    assert (tmp_path / "etc/netplan/90-NM-m-1.yaml").read_text() == "good"
    for name in ("docker0", "docker1"):
        assert (tmp_path / "run/NetworkManager/system-connections" / name).exists(), "NetworkManager's own"
    assert guard.differences(System(tmp_path, net.run, privileged=True)) == []


def test_a_full_disk_leaves_no_half_of_a_profile(tmp_path: Path) -> None:
    """netplan refuses all of its files for one that is cut."""
    net = Net(tmp_path)
    file = tmp_path / "etc/netplan/90-NM-m-1.yaml"
    file.write_text("another")
    full = net.write("bin/cp", '#!/bin/sh\nhead -c 2 "$3" >"$4"; exit 1\n')
    full.chmod(0o755)
    assert net.fire(fails=True) == [] and net.fired is None, "so the next run tries it again"
    assert [(each.name, each.read_text()) for each in file.parent.iterdir()] == [(file.name, "another")]
    full.unlink()
    assert net.fire() == ["nmcli connection reload"]
    assert net.fired == "" and file.read_text() == "good"


def test_a_name_that_the_shell_would_expand_is_a_name(tmp_path: Path) -> None:
    """A login at the desktop may make an interface called `*`."""
    net = Net(tmp_path)
    for name, text in (("mtu", "1500\n"), ("carrier", "1\n")):
        net.write(f"sys/class/net/*/{name}", text)
    net.write("ip-*", "")
    net.write("profile-s-1", "203.0.113.1/24 scope global *\n")
    with (tmp_path / guard.LIVE.lstrip("/")).open("a") as live:
        live.write("* theirs s-1 1500 203.0.113.1/24\n")
    assert net.fire() == ["nmcli --wait 20 connection up uuid s-1 ifname *"]
    assert net.fired == ""


def test_a_script_that_comes_after_the_word_does_nothing(tmp_path: Path) -> None:
    net = Net(tmp_path)
    (tmp_path / "etc/NetworkManager/system-connections/management").write_text("bad")
    armed = tmp_path / guard.ARMED.lstrip("/")
    armed.rename(armed.with_name("released"))
    assert net.fire() == [] and net.fired is None
    armed.with_name("released").rename(armed)
    assert net.fire() == ["nmcli connection reload"]
    assert armed.with_name("firing").exists()
    assert net.fire() == [], "it may run again"


def test_a_management_profile_in_another_hand_is_seen_by_its_address(tmp_path: Path) -> None:
    net = Net(tmp_path)
    (tmp_path / "ip-enP7s7").write_text("203.0.113.9/24 brd x scope global enP7s7\n")
    assert net.fire() == ["nmcli --wait 20 connection up uuid m-1 ifname enP7s7"]


def test_what_others_did_to_management_since_is_no_reason_to_touch_it(tmp_path: Path) -> None:
    """A new address beside it (keepalived), another MTU, and all that a point-to-point link shows."""
    net = Net(tmp_path)
    with (tmp_path / "ip-enP7s7").open("a") as file:
        file.write("198.51.100.200/32 scope global enP7s7\n")
    net.write("sys/class/net/enP7s7/mtu", "1400\n")
    assert net.fire() == []


def test_a_leased_address_may_be_another_one_but_not_none(tmp_path: Path) -> None:
    net = Net(tmp_path)
    net.write(guard.LIVE.lstrip("/"), "enP7s7 theirs m-1 1500 dynamic\n")
    net.write("ip-enP7s7", "198.51.100.9/24 brd x scope global dynamic noprefixroute enP7s7\\    valid_lft 99sec\n")
    assert net.fire() == []
    net.write("ip-enP7s7", "")
    net.write("profile-m-1", "198.51.100.8/24 metric 100 brd x scope global dynamic enP7s7\n")
    assert net.fire() == ["nmcli --wait 20 connection up uuid m-1 ifname enP7s7"]


def test_an_address_that_somebody_had_set_by_hand_comes_back(tmp_path: Path) -> None:
    net = Net(tmp_path, "10.50.0.1/24")
    net.write(f"uuid-{P0}", "our-own\n")
    net.write(f"ip-{P0}", f"192.0.2.1/30 scope global {P0}\n")
    net.write(f"sys/class/net/{P0}/mtu", "9000\n")
    assert net.fire() == [
        f"nmcli device disconnect {P0}",
        f"ip address replace 10.50.0.1/24 dev {P0}",
        f"ip link set dev {P0} mtu 1500",
    ]


def test_what_does_not_come_back_is_tried_again_and_named(tmp_path: Path) -> None:
    net = Net(tmp_path)
    net.write("uuid-enP7s7", "m-2\n")
    net.write("broken", "")
    assert net.fire(fails=True) == ["nmcli --wait 20 connection up uuid m-1 ifname enP7s7"] * 3
    assert net.fired == "enP7s7"
    (tmp_path / "broken").unlink()
    assert len(net.fire()) == 1 and net.fired == ""


def test_what_has_no_cable_or_is_gone_cannot_come_back_now(tmp_path: Path) -> None:
    net = Net(tmp_path)
    (tmp_path / "uuid-enP7s7").unlink()
    net.write("sys/class/net/enP7s7/carrier", "0\n")
    (tmp_path / "uuid-ppp0").unlink()
    for name in ("mtu", "carrier"):
        (tmp_path / "sys/class/net/ppp0" / name).unlink()
    (tmp_path / "sys/class/net/ppp0").rmdir()
    assert net.fire() == []


def test_a_rollback_without_its_proof_is_none(host: FakeHost, manager: FakeNetworkManager) -> None:
    """The files are as before, and an interface is not: the timer stays armed, and the answer says what differs."""
    waiting = changed(host)["guard"]["id"]
    pings(host, large=False, small=False)

    def script(argv: list[str], stdin: str | None) -> Completed:
        host.file(guard.FIRED, " enP7s7\n")
        return Completed((), 1)

    host.on("/bin/sh /run/gb10-fleet/guard/restore", script)
    host.calls.clear()
    said = ask(host, confirm=waiting)
    message = said["error"]["message"]
    assert f"{PEER} does not answer" in message, "what it is all about"
    assert "was to go back to how it was, but differs in enP7s7" in message
    assert said["guard"] and not [line for line in host.commands("systemctl stop") if "*" in line]

    host.path(guard.FIRED).unlink()
    host.on("/bin/sh /run/gb10-fleet/guard/restore", Completed((), 124, "", "sh did not end within 120 s"))
    said = ask(host, confirm=waiting)
    assert "did not get to its end (sh did not end within 120 s)" in said["error"]["message"] and said["guard"]
    assert f"{PEER} does not answer" not in said["error"]["message"], "what has begun to go back is not tried again"


def test_files_of_an_editor_are_nobodys_profiles(host: FakeHost, manager: FakeNetworkManager) -> None:
    waiting = changed(host)["guard"]["id"]
    host.file("/etc/netplan/.01-network-manager-all.yaml.swp", "x")
    host.file("/etc/netplan/01.yaml.bak", "x")
    pings(host, large=False, small=False)
    assert "the network is back" in ask(host, confirm=waiting)["error"]["message"]


def test_a_script_leaves_an_editors_files(tmp_path: Path) -> None:
    net = Net(tmp_path)
    names = ["etc/netplan/.01.yaml.swp", "etc/netplan/01.yaml.bak", "run/NetworkManager/system-connections/netplan-x~"]
    for name in names:
        net.write(name, "x")
    assert net.fire() == [] and all((tmp_path / name).exists() for name in names)


def test_a_file_that_vanishes_while_it_is_read_is_absent(
    host: FakeHost, manager: FakeNetworkManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = changed(host)["guard"]["id"]
    moving = host.file("/run/NetworkManager/system-connections/netplan-m.nmconnection", "x")
    read = Path.read_bytes

    def vanish(path: Path) -> bytes:
        if path == moving:
            path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", vanish)
    pings(host, large=False, small=False)
    assert "the network is back" in ask(host, confirm=waiting)["error"]["message"]


def test_what_is_being_changed_by_others_is_not_taken_for_how_it_was(
    host: FakeHost, manager: FakeNetworkManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = host.file("/etc/netplan/moving.yaml", "x")
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + os.urandom(4) * (path == moving))
    said = ask(host, guard=ID)
    assert "somebody changes the network at this moment (/etc/netplan/moving.yaml)" in said["error"]["message"]
    assert manager.profiles == {} and not host.path(guard.FOLDER).exists()


def test_two_changes_of_one_call_are_one_way_back(host: FakeHost, manager: FakeNetworkManager) -> None:
    """What a role no longer declares goes first, and its profile is part of what the checkpoint holds."""
    manager.link("enp1s0f1np1")
    other = rail("enp1s0f1np1", "6f0c8f5e-8d44-5d0b-9b55-0d9a8b7f0003", "192.0.2.9/30")
    pings(host)
    ask(host, documents=[{"role": "fabric", "resources": [other]}])
    manager.ended.clear()
    host.calls.clear()
    said = ask(host, guard=ID, orphans="remove")
    assert [change["action"] for change in said["changes"]] == ["remove", "create"], said["error"]
    assert len([line for line in host.commands("busctl call") if "CheckpointCreate" in line]) == 1
    assert len(manager.checkpoints) == 1
    assert ask(host, confirm=said["guard"]["id"])["error"] is None
    assert manager.ended == ["CheckpointDestroy"]


def test_where_networkmanager_goes_away_in_the_middle_the_answer_names_what_waits(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    """It can neither be asked nor told to roll back now; a later call finds it again, and takes the change back."""
    pings(host)
    away: list[str] = []

    def until_then(answer: Callable[..., Any]) -> Callable[..., Any]:
        gone = Completed((), 8, "", "NetworkManager is not running.")
        return lambda argv, stdin: gone if away else answer(argv, stdin)

    for prefix in ("nmcli --terse --fields UUID", "busctl get-property", "busctl call"):
        host.on(prefix, until_then(host.answers[prefix]))
    host.on("systemd-run", lambda argv, stdin: away.extend(word for word in argv if word.endswith("-word")) or "")
    said = ask(host, guard=ID)
    assert "NetworkManager is not running" in said["error"]["message"]
    seconds = guard.CONFIRM_S + guard.NET_S + guard.ROLLBACK_S
    assert said["guard"] == {"id": ID, "seconds": seconds, "resources": ["nm_profile:gb10-enp1s0f0np0"]}
    assert said["changes"], "it may stand until then"
    assert host.commands("systemctl stop")[-1].endswith("-change.timer"), "the second net was given up"

    assert ask(host, confirm=ID)["guard"], "still nobody to talk to"
    away.clear()
    manager.profiles.clear()  # it has forgotten its checkpoint, and the timer has put the files back
    manager.checkpoints.clear()
    said = ask(host, confirm=ID)
    assert said["guard"] is None
    assert "the network is back to how it was before" in said["error"]["message"]
