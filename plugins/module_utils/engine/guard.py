# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back from a change of the network: NetworkManager's checkpoint, and a systemd timer as the second net.

The checkpoint covers every interface, management too, and NetworkManager rolls back by itself when it ends. It forgets
its checkpoints when it is restarted, so before the first change the profiles' files are copied into /run, and a timer
of systemd puts them back a little later. Both fire unless the change is confirmed: by the same call where the request
says nothing about it, else by another call, which the controller makes over a new connection.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

CONFIRM_S = 90  # from the end of a change until NetworkManager rolls back
NET_S = 30  # the timer fires that much later, so that it finds nothing to do where NetworkManager did its part
ROLLBACK_S = 10  # what NetworkManager may take for it

FOLDER = "/run/gb10-fleet/guard"
MARK = f"{FOLDER}/guard.json"
SAVED = f"{FOLDER}/saved"
LIVE = f"{FOLDER}/live"
RESTORE = f"{FOLDER}/restore"
# One file under one of three names, so that only one of them can be: the way back is open, has begun, is given up.
ARMED, FIRING, RELEASED = f"{FOLDER}/armed", f"{FOLDER}/firing", f"{FOLDER}/released"
FIRED = f"{FOLDER}/fired"
UNIT = "gb10-guard"
# Where profiles lie, and how their names begin and end. What NetworkManager made up by itself is in /run as well, and
# comes and goes: Docker's bridge, for example. What begins with a dot is an editor's.
KEPT = (
    ("/etc/NetworkManager/system-connections", "", ""),
    ("/run/NetworkManager/system-connections", "netplan-", ".nmconnection"),
    ("/etc/netplan", "", ".yaml"),
)

# DELETE_NEW_CONNECTIONS: a rollback also removes the profiles that the run has created.
_CHECKPOINT_FLAGS = 0x02
_NM = "org.freedesktop.NetworkManager"
_NM_PATH = "/org/freedesktop/NetworkManager"

# Runs from the timer, when nobody else is left, and proves every rollback: it acts on what differs, then looks again.
# What changed has to be as it was; of another interface, which has a life of its own, no more is asked than that its
# profile is active and its addresses are there. What is gone or has no carrier waits for its cable. $1 is for tests.
_SCRIPT = r"""# Written by gb10-fleet: the network as it was before a change that nobody has confirmed.
root=${1:-}
guard=$root@FOLDER@
mv "$guard/armed" "$guard/firing" 2>/dev/null || [ -e "$guard/firing" ] || exit 0
rm -f "$guard/fired"
changed= failed=
keep() {
    for file in "$root$1"/$2; do
        [ -f "$file" ] && [ ! -e "$guard/saved$1/${file##*/}" ] && rm -f -- "$file" && changed=yes
    done
    for file in "$guard/saved$1"/*; do
        [ -f "$file" ] || continue
        cmp -s -- "$file" "$root$1/${file##*/}" && continue
        # Beside it first: of half a file netplan refuses all others, too.
        new=$root$1/.gb10-new
        if mkdir -p -- "$root$1" && cp -p -- "$file" "$new" && mv -f -- "$new" "$root$1/${file##*/}"; then
            changed=yes
        else
            rm -f -- "$new"
            failed=yes
        fi
    done
}
active() {
    nmcli --terse --fields DEVICE,STATE,CON-UUID device status </dev/null | while IFS=: read -r name state uuid; do
        [ "$name:$state" != "$1:connected" ] || echo "$uuid"
    done
}
addresses() {
    ip -4 -o address show dev "$1" | while read -r _ _ _ cidr word peer rest; do
        [ "$word" != peer ] || cidr=$cidr/${peer#*/}
        case " $rest " in *" dynamic "*) cidr=dynamic ;; esac
        printf '%s ' "$cidr"
    done
}
has() {
    case " $1 " in *" $2 "*) ;; *) return 1 ;; esac
}
differs() {
    device=$1 whose=$2 before=$3 mtu=$4
    shift 4
    link=$root/sys/class/net/$device
    [ -e "$link" ] || return 1
    [ "$whose" != ours ] || [ "$(cat "$link/mtu")" = "$mtu" ] || return 0
    uuid=$(active "$device")
    [ -n "$uuid" ] || [ "$before" = - ] || [ "$(cat "$link/carrier" 2>/dev/null)" = 1 ] || return 1
    [ "${uuid:--}" = "$before" ] || return 0
    found=$(addresses "$device")
    for cidr; do has "$found" "$cidr" || return 0; done
    [ "$whose" = ours ] || return 1
    for cidr in $found; do has "$*" "$cidr" || return 0; done
    return 1
}
bring() {
    device=$1 whose=$2 before=$3 mtu=$4
    shift 4
    if [ "$before" != - ]; then
        nmcli --wait 20 connection up uuid "$before" ifname "$device" </dev/null
    else
        [ -z "$(active "$device")" ] || nmcli device disconnect "$device" </dev/null
        for cidr in $(addresses "$device"); do
            has "$*" "$cidr" || ip address del "$cidr" dev "$device"
        done
        for cidr; do
            [ "$cidr" = dynamic ] || ip address replace "$cidr" dev "$device"
        done
    fi
    [ "$whose" != ours ] || [ "$(cat "$root/sys/class/net/$device/mtu")" = "$mtu" ] ||
        ip link set dev "$device" mtu "$mtu"
}
@KEEPS@
[ -z "$changed" ] || nmcli connection reload
set -f # an interface may be called *
for pause in 1 3 6 0; do
    left=
    while read -r line; do
        differs $line || continue
        left="$left ${line%% *}"
        [ "$pause" = 0 ] || bring $line
    done <"$guard/live"
    [ -n "$left" ] || break
    sleep "$pause"
done
[ -n "$failed" ] || echo "$left" >"$guard/fired"
[ -z "$left$failed" ]
"""
_SCRIPT = _SCRIPT.replace("@FOLDER@", FOLDER).replace(
    "@KEEPS@", "\n".join(f"keep {folder} '{prefix}*{suffix}'" for folder, prefix, suffix in KEPT)
)


@dataclass(frozen=True)
class Guard:
    """An armed way back. `until`: when NetworkManager rolls back, on this boot's clock; `timer`: the second net."""

    id: str
    checkpoint: str
    until: float
    timer: str


def call(system: System, method: str, signature: str, *arguments: str) -> str:
    """A method of NetworkManager's manager object; the last word of its answer, for example an object path."""
    answer = system.ask(["busctl", "call", _NM, _NM_PATH, _NM, method, signature, *arguments])
    return answer.split()[-1].strip('"') if answer.split() else ""


def open_checkpoints(system: System) -> list[str]:
    answer = system.ask(["busctl", "get-property", _NM, _NM_PATH, _NM, "Checkpoints"])
    return [word.strip('"') for word in answer.split()[2:]]


def standing(system: System) -> Guard | None:
    """What was armed last on this boot and not ended in order."""
    try:
        mark = json.loads(system.text(MARK) or "")
        return Guard(str(mark["id"]), str(mark["checkpoint"]), float(mark["until"]), str(mark["timer"]))
    except (ValueError, TypeError, KeyError):
        return None


def waits(system: System) -> bool:
    """Tell whether the change of another call may be confirmed yet: its time is not over, and nobody has ended it."""
    guard = standing(system)
    return guard is not None and system.clock.now() < guard.until and bool(open_checkpoints(system))


@contextlib.contextmanager
def guarded(system: System, interfaces: Sequence[str], seconds: int) -> Iterator[None]:
    """Either all of it happens, or the network goes back to how it was, also if we are killed.

    `interfaces` are those that change; `seconds` is what the change may take.
    """
    if not interfaces:
        yield
        return
    if system.confirms:
        raise HostError(
            "the network is no longer as it was just confirmed, and nobody confirms another change: run again"
        )
    if system.guard is None:  # else an earlier step of this call has armed it, and what was before that is what counts
        _arm(system, interfaces, seconds)
    else:
        _wait(system, seconds)
    try:
        yield
    except BaseException as first:
        try:
            roll_back(system)
        except (HostError, OSError) as second:
            if not isinstance(first, HostError):
                raise first from second
            later = f"asking for the rollback failed ({second}); NetworkManager does it by itself within {seconds} s"
            raise HostError(f"{first}; {later}") from first
        raise
    if system.confirmed_as:
        _wait(system, CONFIRM_S)
        return
    try:
        _release(system)
    except HostError as error:
        raise HostError(f"NetworkManager has rolled back already: it took longer than {seconds} s ({error})") from None


def _arm(system: System, interfaces: Sequence[str], seconds: int) -> None:
    """The second net first: it must hold before there is anything to take back."""
    identity = system.confirmed_as or os.urandom(8).hex()
    _disarm(system)
    try:
        _save(system, interfaces)
        timer = _start_timer(system, identity, "change", seconds + NET_S)
        guard = Guard(identity, "", system.clock.now() + seconds, timer)
        _mark(system, guard)
        # No interface stands for all of them: what our change does to another one must be taken back as well.
        checkpoint = call(system, "CheckpointCreate", "aouu", "0", str(seconds), str(_CHECKPOINT_FLAGS))
        _mark(system, replace(guard, checkpoint=checkpoint))
    except (HostError, OSError):
        with contextlib.suppress(HostError):  # then it fires, and finds that nothing was changed
            _disarm(system)
        raise
    system.guard = identity


def _wait(system: System, seconds: int) -> None:
    """Both fire that much later: the change is made and waits to be confirmed, or another one is to be made."""
    guard = _in_time(system)
    until = system.clock.now() + seconds
    # Said before it is so: whoever comes after a kill waits while the checkpoint is open, and must not give up before.
    _mark(system, replace(guard, until=max(guard.until, until)))
    if guard.checkpoint:
        call(system, "CheckpointAdjustRollbackTimeout", "ou", guard.checkpoint, str(seconds))
    timer = _start_timer(system, guard.id, "word", seconds + NET_S)
    _stop_timer(system, guard.timer)
    _mark(system, replace(guard, until=until, timer=timer))


def _in_time(system: System) -> Guard:
    """What is armed, without its checkpoint where NetworkManager was restarted; HostError if it has fired."""
    guard = standing(system)
    if guard is None:
        raise HostError(f"{MARK} is gone")
    if guard.checkpoint not in open_checkpoints(system):
        guard = replace(guard, checkpoint="")
        if system.clock.now() >= guard.until:
            raise HostError("the time to confirm it was over, and NetworkManager has rolled back")
    if not system.path(ARMED).exists():
        raise HostError("the time to confirm it was over")
    return guard


def confirm(system: System, identity: str, holds: Callable[[], None]) -> None:
    """Keep the change of an earlier call if `holds` does not raise, else take it back at once, and prove it."""
    guard = standing(system)
    if guard is None or guard.id != identity:
        raise HostError(
            "no change of the network waits here for this confirmation: the call that was to make it never began, or"
            " since then the host was restarted or another run came first; nothing unconfirmed was recorded as done, so"
            " run again"
        )
    system.guard = identity  # nobody has to be waited for: it is for this call to decide
    try:
        _wait(system, CONFIRM_S)  # so that it does not fire while we look
        holds()
        _release(system)
    except HostError as error:
        raise HostError(f"{error}; {gone_back(system)}") from None
    system.confirms = True


def gone_back(system: System) -> str:
    """What became of the network after an error: `roll_back`, whose own error hides none. It may fire by itself yet."""
    try:
        return roll_back(system)
    except (HostError, OSError) as error:
        return str(error)


def roll_back(system: System) -> str:
    """Back to how it was, and what proves it. HostError if that cannot be had now."""
    guard = standing(system)
    if guard is None:
        system.guard = None
        return "nothing was to be taken back"
    _decide(system, FIRING)  # from here on nothing is kept any more
    if guard.checkpoint and guard.checkpoint in open_checkpoints(system):
        call(system, "CheckpointRollback", "o", guard.checkpoint)
    # Finds nothing to do where NetworkManager did all of it; it has not if it was restarted meanwhile.
    done = system.run(["/bin/sh", RESTORE], timeout=120)
    live = system.text(FIRED)
    different = [*differences(system), *(live or "").split()]
    if different or live is None:
        what = f"differs in {', '.join(different)}" if different else f"{RESTORE} did not get to its end ({done.words})"
        raise HostError(f"the network was to go back to how it was, but {what}")
    _stop_timer(system)  # until here it is the second net for this as well
    count = len(_files(system, SAVED))
    _forget(system)
    system.guard = None
    system.forget()  # what was read before is of another network
    return f"the network is back to how it was before: {count} files of profiles are the same byte for byte"


def take_over(system: System, wait: Callable[[System], None]) -> None:
    """What an earlier call has left armed is brought to its end: nobody has confirmed it, so it does not stay."""
    if not system.path(FOLDER).exists():  # not the mark: the timer is armed before there is one
        return
    if standing(system) is not None:
        wait(system)  # for NetworkManager, which goes back by itself; if it was restarted, it has forgotten that
        # Else it was confirmed, or is long over, and others have worked on it since.
        if not system.path(RELEASED).exists() and (left_s(system) > 0 or system.text(FIRED) is None):
            roll_back(system)
    _disarm(system)


def differences(system: System) -> list[str]:
    """The profiles' files that are not, byte for byte, those of before the change."""
    before, now = _files(system, SAVED), _files(system, "")
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def left_s(system: System) -> int:
    """Seconds until everything that may have to fire has fired."""
    guard = standing(system)
    return 0 if guard is None else max(0, int(guard.until - system.clock.now()) + NET_S + ROLLBACK_S)


def _release(system: System) -> None:
    guard = _in_time(system)
    if guard.checkpoint:  # else NetworkManager was restarted: what stands was just seen to be what is wanted
        call(system, "CheckpointDestroy", "o", guard.checkpoint)
    _stop_timer(system)
    if not _decide(system, RELEASED):
        raise HostError("the time to confirm it was over")
    _forget(system)
    system.guard = None


def _decide(system: System, name: str) -> bool:
    """Return whether that is the case now. The script decides the same way, so one that has just begun is seen."""
    with contextlib.suppress(FileNotFoundError):
        system.path(ARMED).rename(system.path(name))
    return system.path(name).exists()


def _mark(system: System, guard: Guard) -> None:
    system.write(MARK, json.dumps(vars(guard)).encode(), mode=0o600)


def _disarm(system: System) -> None:
    _stop_timer(system)
    _forget(system)


def _forget(system: System) -> None:
    """Remove the folder; by hand, because shutil takes longer to import than all the rest of a look."""
    for path, folders, files in os.walk(system.path(FOLDER), topdown=False):
        for name in files:
            os.unlink(f"{path}/{name}")  # noqa: PTH108 - os.walk gives no Path
        for name in folders:
            os.rmdir(f"{path}/{name}")  # noqa: PTH106
    with contextlib.suppress(FileNotFoundError):
        system.path(FOLDER).rmdir()


def _start_timer(system: System, identity: str, what: str, seconds: int) -> str:
    """Of a name that never was: systemd may still hold on to one that has just ended."""
    name = f"{UNIT}-{identity}-{os.urandom(2).hex()}-{what}"
    when = [f"--on-active={seconds}s", "--timer-property=AccuracySec=1s"]
    system.ask(["systemd-run", "--quiet", "--collect", f"--unit={name}", *when, "/bin/sh", RESTORE])
    return name


def _stop_timer(system: System, name: str = f"{UNIT}-*") -> None:
    system.ask(["systemctl", "stop", f"{name}.timer"])  # a pattern that nothing matches is no failure


def _save(system: System, interfaces: Sequence[str]) -> None:
    for folder in ("/run/gb10-fleet", FOLDER):
        system.private_directory(folder)
    for folder, *_names in KEPT:
        system.path(SAVED + folder).mkdir(parents=True)
    for name, content in _files(system, "").items():
        saved = system.path(SAVED + name)
        saved.touch(mode=0o600)
        saved.write_bytes(content)
        with contextlib.suppress(FileNotFoundError):
            saved.chmod(system.path(name).stat().st_mode & 0o777)
    if different := differences(system):
        raise HostError(f"somebody changes the network at this moment ({', '.join(different)}); run again")
    system.path(LIVE).write_text("".join(f"{line}\n" for line in _live(system, interfaces)), encoding="utf-8")
    system.path(RESTORE).write_text(_SCRIPT, encoding="utf-8")
    system.path(ARMED).touch()


def _live(system: System, interfaces: Sequence[str]) -> Iterator[str]:
    """`device whose uuid mtu addresses` of what changes (`ours`) and of all that a profile is active on.

    `-` stands for no profile, `dynamic` for an address on lease: another one will do.
    """
    said = system.ask(["nmcli", "--terse", "--fields", "DEVICE,STATE,CON-UUID", "device", "status"])
    active = {}
    for line in said.splitlines():
        device, state, uuid = [*line.split(":"), "", ""][:3]
        if state == "connected" and uuid:  # not "connected (externally)"
            active[device] = uuid
    links: list[Any] = json.loads(system.ask(["ip", "-j", "address", "show"]), strict=False)
    for link in links:
        name = link.get("ifname", "")
        mtu = (system.text(f"/sys/class/net/{name}/mtu") or "").strip()
        if mtu and name in {*active, *interfaces}:
            own = [item for item in link.get("addr_info", []) if ":" not in item.get("local", ":")]
            cidrs = ["dynamic" if item.get("dynamic") else f"{item['local']}/{item['prefixlen']}" for item in own]
            yield " ".join([name, "ours" if name in interfaces else "theirs", active.get(name, "-"), mtu, *cidrs])


def _files(system: System, below: str) -> dict[str, bytes]:
    """`{path: content}` of the profiles' files, of the host itself or of a copy of it."""
    files = {}
    for folder, prefix, suffix in KEPT:
        for name in system.names(below + folder):
            path = system.path(f"{below}{folder}/{name}")
            if name.startswith(prefix) and name.endswith(suffix) and not name.startswith(".") and path.is_file():
                with contextlib.suppress(FileNotFoundError):  # NetworkManager writes a file anew under another name
                    files[f"{folder}/{name}"] = path.read_bytes()
    return files
