"""What makes a host this host and no other: name, machine-id, SSH keys, and interface names by MAC.

The keys live in the cache, next to the snapshots of hosts that have them on their disks. They open lab hosts only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.shell import CACHE, run
from lab.topology import MANAGEMENT, Host, Nic

USER, USER_ID = "spark", 1000
KEYS = CACHE / "keys"
CLIENT_KEY = KEYS / "id_ed25519"
HOST_KEY = "etc/ssh/ssh_host_ed25519_key"


@dataclass(frozen=True)
class File:
    content: str
    mode: int = 0o644
    owner: int = 0


def key(path: Path) -> Path:
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"gb10-lab {path.name}", "-f", path])
    return path


def host_key(host: Host) -> Path:
    return key(KEYS / host.name)


def public(path: Path) -> str:
    return path.with_name(path.name + ".pub").read_text()


def known_hosts(hosts: tuple[Host, ...]) -> str:
    lines = (f"{host.address} {' '.join(public(host_key(host)).split()[:2])}\n" for host in hosts)
    return "".join(lines)


def files(host: Host, authorized: str, private: str, public_key: str) -> dict[str, File]:
    """Path below / -> file, for one host. Pure."""
    links = {f"etc/systemd/network/10-{nic.name}.link": File(_link(nic)) for nic in host.nics}
    return {
        "etc/hostname": File(f"{host.name}\n"),
        "etc/hosts": File(f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n::1 localhost\n"),
        "etc/machine-id": File(hashlib.md5(host.name.encode(), usedforsecurity=False).hexdigest() + "\n", 0o444),
        HOST_KEY: File(private, 0o600),
        f"{HOST_KEY}.pub": File(public_key),
        f"home/{USER}/.ssh/authorized_keys": File(authorized, 0o600, USER_ID),
        f"etc/NetworkManager/system-connections/{MANAGEMENT}.nmconnection": File(_management(host), 0o600),
        **links,
    }


def _link(nic: Nic) -> str:
    """Names the interface by its MAC. The rails can do jumbo frames but start at 1500 bytes, as a ConnectX does."""
    return f"[Match]\nMACAddress={nic.mac}\n\n[Link]\nName={nic.name}\nMTUBytes=1500\n"


def _management(host: Host) -> str:
    return f"""[connection]
id={MANAGEMENT}
type=ethernet
interface-name={MANAGEMENT}

[ipv4]
method=manual
addresses={host.address}/24
never-default=true

[ipv6]
method=disabled
"""


def write(upper: Path, host: Host) -> None:
    """Lays the host's files into the upper layer of its overlay."""
    secret = host_key(host)
    shutil.rmtree(upper, ignore_errors=True)
    for name, file in files(host, public(key(CLIENT_KEY)), secret.read_text(), public(secret)).items():
        path = upper / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content)
        path.chmod(file.mode)
        os.chown(path, file.owner, file.owner)
    for folder in (upper / "home" / USER, upper / "home" / USER / ".ssh"):
        folder.chmod(0o700)
        os.chown(folder, USER_ID, USER_ID)
