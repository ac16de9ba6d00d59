"""What a host offers to somebody who wants more than he was given: prints one JSON object, a list of texts by kind.

Runs as root on the host, stdlib only. The kinds are those of catalog/baseline.yml. What is left out, and why:
- Folders that only root can enter, and what is below them: nobody else gets there.
- UDP on a port that the kernel chose: a question, not a service.
- Kernel parameters that count or change by themselves, and those of one interface, which come and go with it.
- Links: their targets count.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

PSEUDO = {"/proc", "/sys", "/dev"}
UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system")
STARTERS = "service,socket,timer,path"
SHOWN_OF_A_PARAMETER = 200  # characters
MOVING = re.compile(
    r"kernel\.(random\..*|ns_last_pid|pty\.nr|perf_event_max_sample_rate|perf_cpu_time_max_percent|tainted"
    r"|sched_domain\..*|hostname|domainname)"
    r"|fs\.(dentry-state|inode-nr|inode-state|file-nr|aio-nr|quota\..*|binfmt_misc\..*|inotify\..*)"
    r"|vm\.(drop_caches|compact_memory|stat_refresh)"
    r"|net\.netfilter\.nf_conntrack_count|net\.ipv4\.tcp_fastopen_key"
    r"|net\.ipv[46]\.(conf|neigh)\.(?!all\.|default\.).*|net\.mpls\..*"
)


def main() -> None:
    state = {
        "listening": listening(),
        **files(),
        "sudoers": lines(Path("/etc/sudoers"), *folder("/etc/sudoers.d")),
        "units": units(),
        "unit_changes": unit_changes(),
        "kernel_parameters": kernel_parameters(),
        "cron": cron(),
        "nftables": nftables(),
    }
    print(json.dumps({kind: sorted(set(found)) for kind, found in state.items()}))


def listening() -> Iterator[str]:
    """TCP sockets that listen, UDP sockets with no peer."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    programs = dict(_sockets())
    for table, wanted in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            address, _, number = fields[1].partition(":")
            port = int(number, 16)
            if fields[3] == wanted and not (wanted == "07" and port >= low):
                yield f"{table[:3]} {_address(address)}:{port} {programs.get(fields[9], '-')}"


def _address(text: str) -> str:
    """As the kernel prints it: words of four bytes in the order of this machine."""
    raw = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def _sockets() -> Iterator[tuple[str, str]]:
    """The program behind each socket, by the socket's inode."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
            for descriptor in (process / "fd").iterdir():
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1], name
        except OSError:  # it has ended
            continue


def files() -> dict[str, list[str]]:
    """Programs with the rights of their owner or group, and what everybody may write to."""
    setuid, writable = [], []
    for where, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if f"{where}{name}" not in PSEUDO]
        for name in [*folders, *names]:
            path = Path(where, name)
            try:
                status = path.lstat()
            except OSError:  # it is gone
                continue
            mode = status.st_mode
            shown = f"{path} {stat.S_IMODE(mode):04o} {status.st_uid}:{status.st_gid}"
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                setuid.append(shown)
            sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
            if mode & stat.S_IWOTH and not stat.S_ISLNK(mode) and not sticky:
                writable.append(shown)
            if stat.S_ISDIR(mode) and _only_root_enters(status):
                folders.remove(name)
    return {"setuid": setuid, "world_writable": writable}


def _only_root_enters(status: os.stat_result) -> bool:
    others = stat.S_IXOTH if status.st_gid == 0 else stat.S_IXOTH | stat.S_IXGRP
    return status.st_uid == 0 and not status.st_mode & others


def folder(name: str) -> list[Path]:
    path = Path(name)
    return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else []


def lines(*paths: Path) -> Iterator[str]:
    """What is no comment. In sudoers a # can begin more than a comment."""
    for path in paths:
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            text = " ".join(line.split())
            if text and not re.match(r"#(?!include)", text):
                yield f"{path}: {text}"


def units() -> Iterator[str]:
    """Services that run as root, and what starts services, with the state of their files."""
    states: dict[str, str] = {}
    for line in ask("systemctl", "list-unit-files", "--plain", "--no-legend", f"--type={STARTERS}"):
        name, state, *_ = line.split()
        if state not in ("alias", "transient", "generated", "masked", "masked-runtime"):
            states[name] = state
    services = [name for name in states if name.endswith(".service")]
    users = _users([name.replace("@.", "@x.") for name in services])
    for name, state in states.items():
        if users.get(name.replace("@.", "@x."), "root") in ("", "root", "0"):
            yield f"{name} {state}"


def _users(services: list[str]) -> dict[str, str]:
    """The account of each; a dynamic one is nobody's."""
    users: dict[str, str] = {}
    said = "\n".join(ask("systemctl", "show", "-p", "Id,User,DynamicUser", "--", *services))
    for block in said.split("\n\n"):
        row = dict(line.split("=", 1) for line in block.splitlines())
        users[row["Id"]] = "dynamic" if row.get("DynamicUser") == "yes" else row.get("User", "")
    return users


def unit_changes() -> Iterator[str]:
    for place in UNIT_FOLDERS:
        for file in Path(place).glob("*.d/*.conf"):
            yield f"{file.parent.name}/{file.name}"


def kernel_parameters() -> Iterator[str]:
    for where, _, names in os.walk("/proc/sys"):
        for name in names:
            path = Path(where, name)
            dotted = ".".join(path.parts[3:])  # behind /proc/sys
            if MOVING.fullmatch(dotted) or not path.lstat().st_mode & stat.S_IRUSR:
                continue
            try:
                text = " ".join(path.read_text(errors="replace").split())
            except OSError:  # it has no value yet
                continue
            yield f"{dotted} = {text[:SHOWN_OF_A_PARAMETER]}"


def cron() -> Iterator[str]:
    yield from lines(Path("/etc/crontab"), Path("/etc/anacrontab"), *folder("/etc/cron.d"))
    yield from lines(*folder("/var/spool/cron/crontabs"))
    for period in ("hourly", "daily", "weekly", "monthly", "yearly"):
        yield from map(str, folder(f"/etc/cron.{period}"))


def nftables() -> Iterator[str]:
    """Chains: family, table, name, and the hook of those that have one."""
    try:
        said = json.loads("".join(ask("nft", "-j", "list", "chains")))
    except FileNotFoundError:
        return
    for entry in said["nftables"]:
        chain = entry.get("chain")
        if chain:
            words = [chain[key] for key in ("family", "table", "name", "hook") if key in chain]
            yield " ".join(words)


def ask(*argv: str) -> list[str]:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    main()
