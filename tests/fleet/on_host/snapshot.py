"""The state of a host, for comparison: prints one JSON object of text by name. Runs as root on the host, stdlib only.

What is left out, and why:
- /etc/ld.so.cache and the backups that dpkg and passwd leave beside their files (`passwd-`, ...): caches and copies.
- Empty folders *.wants and *.requires below /etc/systemd: `systemctl disable` leaves them, and they mean nothing.
- /etc/.pwd.lock: a lock.
- Times of files, PIDs, invocation IDs, and the UUIDs that NetworkManager makes up: they change by themselves.
- /var, except for the names in /var/lib/gb10-fleet: caches, logs and dpkg's own database, which is here as versions.
- Accounts are here as files of /etc. What Debian's policy leaves behind of a purged package (its system account) would
  be a difference; none of the packages that the roles bring makes one.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
from pathlib import Path

FOLDERS = ("/etc", "/usr/local")
SYSCTLS = ("net/ipv4/conf/all/arp_ignore", "net/ipv4/conf/all/arp_announce", "net/ipv4/ip_local_port_range")
LEFT_OUT = {"/etc/ld.so.cache", "/etc/.pwd.lock"}


def main() -> None:
    state: dict[str, str] = {}
    for folder in FOLDERS:
        for where, folders, files in os.walk(folder):
            for name in folders + files:
                path = Path(where, name)
                if str(path) not in LEFT_OUT and not name.endswith("-") and not _leftover(path):
                    state[f"file {path}"] = describe(path)
    for path in Path("/var/lib/gb10-fleet").glob("*"):
        state[f"own {path.name}"] = "exists"
    for line in ask("dpkg-query", "-W", "-f", "${Package}:${Architecture}|${Version}|${Status}\\n"):
        name, _, rest = line.partition("|")
        state[f"package {name}"] = rest
    for line in ask("systemctl", "list-unit-files", "--plain", "--no-legend"):
        name, word, *_ = line.split()
        if word not in ("transient", "generated"):
            state[f"unit {name}"] = word
    for line in ask("systemctl", "list-units", "--plain", "--no-legend", "--state=active", "gb10-*", "nvidia-*"):
        state[f"active {line.split()[0]}"] = "active"
    for name in SYSCTLS:
        state[f"sysctl {name}"] = " ".join(Path("/proc/sys", name).read_text().split())
    for line in ask("nmcli", "-t", "-f", "NAME,DEVICE,AUTOCONNECT,FILENAME", "connection", "show"):
        state[f"profile {line.partition(':')[0]}"] = line
    for link in json.loads("".join(ask("ip", "-j", "-4", "address", "show"))):
        addresses = sorted(f"{info['local']}/{info['prefixlen']}" for info in link.get("addr_info", []) if info)
        state[f"link {link['ifname']}"] = f"mtu {link['mtu']} {' '.join(addresses)}"
    print(json.dumps(state))


def describe(path: Path) -> str:
    status = path.lstat()
    access = f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}"
    if stat.S_ISLNK(status.st_mode):
        return f"{access} -> {path.readlink()}"
    if stat.S_ISREG(status.st_mode):
        return f"{access} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return access


def _leftover(path: Path) -> bool:
    wanted_by = str(path).startswith("/etc/systemd/") and path.suffix in (".wants", ".requires")
    return wanted_by and path.is_dir() and not any(path.iterdir())


def ask(*argv: str) -> list[str]:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    main()
