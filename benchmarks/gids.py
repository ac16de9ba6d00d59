"""`python -m benchmarks.gids`: show_gids beside the classic way to read GID tables, on the same tree.

Both get a Spark with four RDMA devices of 256 slots each, as plain files: once with the six GIDs that a rail has, once
with every slot used. An empty slot has no attributes, which reads like the kernel's EINVAL. Needs no root and no lab.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.fabric import gid_report, gids

LIMIT_MS = 30  # for reading and describing, with the GIDs of a rail
LEAST_RATIO = 50
SLOTS = 256
RUNS = 9  # of ours; the classic way takes seconds, so it runs CLASSIC_RUNS times
CLASSIC_RUNS = 3
NETDEVS = {
    "rocep1s0f0": "enp1s0f0np0",
    "rocep1s0f1": "enp1s0f1np1",
    "roceP2p1s0f0": "enP2p1s0f0np0",
    "roceP2p1s0f1": "enP2p1s0f1np1",
}
# How such tables are read in a shell: `cat` for each slot, and for a used one type and netdev through pipes as well.
CLASSIC = r"""
root=$1/class/infiniband
for device in $(ls $root); do
    for port in $(ls $root/$device/ports); do
        for slot in $(ls $root/$device/ports/$port/gids); do
            gid=$(cat $root/$device/ports/$port/gids/$slot)
            case $gid in 0000:0000:0000:0000:0000:0000:0000:0000) continue ;; esac
            netdev=$(cat $root/$device/ports/$port/gid_attrs/ndevs/$slot 2>/dev/null)
            version=$(cat $root/$device/ports/$port/gid_attrs/types/$slot 2>/dev/null | grep -o 'v[12]$')
            echo "$device $port $slot $gid $version $netdev"
        done
    done
done
"""


def build(root: Path, used: int, slots: int = SLOTS) -> None:
    """Write the tree of a Spark whose tables have ``used`` GIDs each: the default one twice, then IPv4 addresses."""
    for number, (device, netdev) in enumerate(NETDEVS.items()):
        port = root / "class/infiniband" / device / "ports/1"
        for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
            (port / folder).mkdir(parents=True)
        (root / "class/net" / netdev).mkdir(parents=True)
        for name, text in (
            ("mtu", "9000"),
            ("phys_port_name", f"p{number % 2}"),
            ("address", f"4c:bb:47:00:00:0{number}"),
        ):
            (root / "class/net" / netdev / name).write_text(f"{text}\n", encoding="ascii")
        for name, text in (("link_layer", "Ethernet"), ("state", "4: ACTIVE"), ("rate", "200 Gb/sec (4X HDR)")):
            (port / name).write_text(f"{text}\n", encoding="ascii")
        for slot in range(slots):
            address = f"c0a8:{number:02x}{slot // 2:02x}"
            gid = f"fe80:0000:0000:0000:4ebb:47ff:fe00:000{number}" if slot < 2 else f"{'0000:' * 5}ffff:{address}"
            (port / "gids" / str(slot)).write_text(f"{gid if slot < used else gids.ZERO_GID}\n", encoding="ascii")
            if slot < used:
                kind = "RoCE v2" if slot % 2 else "IB/RoCE v1"
                (port / "gid_attrs/types" / str(slot)).write_text(f"{kind}\n", encoding="ascii")
                (port / "gid_attrs/ndevs" / str(slot)).write_text(f"{netdev}\n", encoding="ascii")


def ours(root: Path) -> int:
    """What the module does: read, decide, and make its answer. Returns the number of GIDs."""
    gids.forget()  # a module starts with nothing
    result = gid_report.describe(gids.read_hcas(gids.Sysfs(str(root))), "192.168.0.0/16")
    json.dumps(result)
    return len(result["gids"])


def classic(root: Path) -> int:
    return len(classic_lines(root))


def classic_lines(root: Path) -> list[str]:
    """'rocep1s0f0 1 3 0000:... v2 enp1s0f0np0' for each GID."""
    command = ["bash", "-c", CLASSIC, "show_gids", str(root)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()


def median_ms(way: Callable[[Path], int], root: Path, runs: int, expected: int) -> float:
    """The median of the runs, in milliseconds; each must have found every GID."""
    times = []
    for _run in range(runs):
        started = time.perf_counter()
        found = way(root)
        times.append((time.perf_counter() - started) * 1000)
        if found != expected:
            raise ValueError(f"{way.__name__} found {found} GIDs of {expected}")
    return statistics.median(times)


def main(argv: Sequence[str] = ()) -> int:
    if argv:
        print(__doc__)
        return 2
    good = True
    for used, title in ((6, "the GIDs of a rail"), (SLOTS, "every slot used")):
        with tempfile.TemporaryDirectory(prefix="gb10-gids-") as folder:
            build(Path(folder), used)
            expected = used * len(NETDEVS)
            here = median_ms(ours, Path(folder), RUNS, expected)
            there = median_ms(classic, Path(folder), CLASSIC_RUNS, expected)
        figures = f"show_gids {here:.1f} ms, shell {there:.0f} ms, ratio {there / here:.0f}"
        passed = there / here >= LEAST_RATIO and (used == SLOTS or here < LIMIT_MS)
        bar = f">= {LEAST_RATIO} x" if used == SLOTS else f"< {LIMIT_MS} ms, >= {LEAST_RATIO} x"
        print(f"4 HCAs x {SLOTS} slots, {title}: {figures}  {'PASS' if passed else 'MISS'} ({bar})")
        good = good and passed
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
