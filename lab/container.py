"""Containers: systemd-nspawn over the machines' root image, with a systemd, NetworkManager and SSH of their own.

They share this machine's kernel, so they have no RDMA, no rails and no kernel settings to themselves.
"""

from __future__ import annotations

import contextlib
import json
import resource
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab import identity, process
from lab.image import Image, overlay
from lab.network import container_namespace
from lab.topology import Host

# Each systemd takes some dozens; the defaults do for a handful of containers.
INOTIFY = {"max_user_instances": 8192, "max_user_watches": 524288}
KNOBS = Path("/proc/sys/fs/inotify")
MOUNTS = Path("/proc/mounts")
CGROUP = "gb10-lab"  # below the root of each hierarchy; one child for each container
# nspawn ends with 133 where the container wants to boot again. The shell that starts it anew is what is recorded, so it
# passes a request to halt on, and nspawn does not outlive it. A signal interrupts `wait`, which is then repeated.
AGAIN = """status=133
trap 'kill -TERM "$nspawn"' TERM
while [ "$status" -eq 133 ]; do
	setpriv --pdeathsig KILL {nspawn} &
	nspawn=$!
	wait "$nspawn"
	status=$?
	while kill -0 "$nspawn" 2>/dev/null; do
		wait "$nspawn"
		status=$?
	done
done"""


# HAProxy refuses to start where it may not have the files for its connections, and some machines that are containers
# themselves let nobody raise that limit. There a router has fewer connections.
ROUTER = "etc/systemd/system/gb10-router.service.d/50-gb10-lab.conf"
FILES, CONNECTIONS = 40_000, 4_000
FEWER = f"""[Service]
ExecStart=
ExecStart=/usr/sbin/haproxy -Ws -n {CONNECTIONS} -f /etc/gb10-fleet/router.cfg -S /run/gb10-router/master.sock,mode,600
"""


def raise_limits(record: Path) -> None:
    """Raises this machine's inotify limits where they are too low; `record` keeps what they were."""
    low = {name: int((KNOBS / name).read_text()) for name in INOTIFY}
    low = {name: value for name, value in low.items() if value < INOTIFY[name]}
    if low:
        record.write_text(json.dumps({**low, **_recorded(record)}))
    for name in low:
        (KNOBS / name).write_text(str(INOTIFY[name]))


def restore_limits(record: Path) -> None:
    """Puts back what `raise_limits` raised, unless somebody has changed it since."""
    for name, value in _recorded(record).items():
        if int((KNOBS / name).read_text()) == INOTIFY[name]:
            (KNOBS / name).write_text(str(value))
    record.unlink(missing_ok=True)


def _recorded(record: Path) -> dict[str, int]:
    return dict(json.loads(record.read_text())) if record.exists() else {}


def hierarchies() -> Iterator[Path]:
    """The cgroup trees that a systemd works with: cgroup2, and on an older machine also the one named systemd."""
    for line in MOUNTS.read_text().splitlines():
        _, mount, kind, options = line.split()[:4]
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            yield Path(mount)


def cgroups(name: str) -> list[Path]:
    """The container's own cgroups, made. In a shared one each systemd would take the others' processes for its own."""
    groups = [mount / CGROUP / name for mount in hierarchies()]
    for group in groups:
        group.mkdir(parents=True, exist_ok=True)
    return groups


def remove_cgroups() -> None:
    """What ended containers left; a cgroup with a process in it stays."""
    for mount in hierarchies():
        for folder in sorted((mount / CGROUP).rglob("**/"), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()


class Container:
    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.folder, self.image = host, folder, Image.load(folder / "image.json")
        self.record, self.shown = folder / "pid.json", folder / "shown.json"

    def load(self, shown: Sequence[str] = ()) -> None:
        """`shown`: paths of this machine that the container sees at the same place, to be read alone."""
        identity.write(self.folder / "layer", self.host)
        self.shown.write_text(json.dumps(list(shown)))
        if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < FILES:
            fewer = self.folder / "layer" / ROUTER
            fewer.parent.mkdir(parents=True)
            fewer.write_text(FEWER)
        self.power_on()

    def power_on(self) -> None:
        options = [
            *("--quiet", "--register=no", "--keep-unit", "--boot", f"--machine={self.host.name}", "--link-journal=no"),
            *("--resolv-conf=off", "--timezone=off"),
            # nspawn gives these of itself to a namespace that it made, but not to one that it was handed
            f"--network-namespace-path=/run/netns/{container_namespace(self.host)}",
            "--capability=CAP_NET_ADMIN,CAP_IPC_LOCK",
            "--system-call-filter=@keyring bpf",  # of containers in it, which Docker starts
            *(f"--bind-ro={path}" for path in json.loads(self.shown.read_text())),
        ]
        environment = "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network"
        join = " && ".join(f"echo $$ >{shlex.quote(str(group))}/cgroup.procs" for group in cgroups(self.host.name))
        nspawn = f'env {environment} systemd-nspawn --directory="$root" {shlex.join(options)}'
        command = f"{{ {join}\n{AGAIN.format(nspawn=nspawn)}\n}}"
        argv = overlay(self.image.layers, self.folder / "layer", command)
        process.start(argv, self.record, self.folder / "console.log")

    def power_off(self) -> None:
        """nspawn passes a SIGTERM on to the container's systemd as a request to halt."""
        process.stop(self.record)
