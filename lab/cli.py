"""`python -m lab ...`: words in, lifecycle called, errors told in one line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lab import image, lifecycle, vendor
from lab.architecture import ARCHITECTURES, Architecture
from lab.shell import LabError, missing_packages, require_packages, require_root, run, say, step
from lab.topology import PORTS

TOPOLOGIES = ("single", "pair", "ring3", "switch", "fleet")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m lab", description="Virtual DGX Sparks on this machine (needs root).")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text)

    def add_for(name: str, text: str) -> argparse.ArgumentParser:
        command = add(name, text)
        command.add_argument("--arch", choices=ARCHITECTURES, default="amd64", help="of the machines; default: amd64")
        return command

    up = add_for("up", "start hosts: one, a pair, a three-node ring, N on a switch, or a fleet of N containers")
    up.add_argument("topology", choices=TOPOLOGIES)
    up.add_argument("--hosts", type=int, default=0, metavar="N", help="how many, for switch and fleet")
    up.add_argument(
        "--show",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="a path that containers see, too: read-only",
    )
    down = add("down", "end everything, or one topology; the next `up` gives fresh hosts")
    down.add_argument("topology", choices=TOPOLOGIES, nargs="?")
    add("status", "hosts, power, cables")
    ssh = add("ssh", "a shell on a host, or one command there")
    ssh.add_argument("host")
    ssh.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    cut = add("cut", "cut the cable in a port; both ends lose their link")
    cut.add_argument("host")
    cut.add_argument("port", choices=PORTS)
    add("mend", "mend every cut cable")
    for name, text in (
        ("power-off", "pull a machine's plug, or halt a container"),
        ("power-on", "boot a host that is off"),
    ):
        add(name, text).add_argument("host")
    gpu = add("gpu", "choose how a host's simulated GPU behaves")
    gpu.add_argument("host")
    gpu.add_argument("scenario", choices=lifecycle.GPU_SCENARIOS)
    add_for("image", "build the root image of machines without starting anything")
    add_for("deps", "install the Debian packages that the lab needs")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    os.umask(0o022)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    try:
        if args.command == "deps":
            deps(ARCHITECTURES[args.arch])
        else:
            require_root()
            dispatch(args)
    except (LabError, vendor.VendorError) as error:
        print(f"lab: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; `down` ends what runs", file=sys.stderr)
        return 130
    return 0


def dispatch(args: argparse.Namespace) -> None:
    actions: dict[str, Callable[[], None]] = {
        "up": lambda: up(args),
        "down": lambda: lifecycle.down(args.topology or ""),
        "status": status,
        "ssh": lambda: lifecycle.ssh(args.host, args.words),
        "cut": lambda: lifecycle.cut(args.host, args.port),
        "mend": lifecycle.mend,
        "power-off": lambda: lifecycle.power_off(args.host),
        "power-on": lambda: lifecycle.power_on(args.host),
        "gpu": lambda: lifecycle.gpu(args.host, args.scenario),
        "image": lambda: build(ARCHITECTURES[args.arch]),
    }
    actions[args.command]()


def up(args: argparse.Namespace) -> None:
    require_packages(ARCHITECTURES[args.arch])
    lifecycle.up(args.topology, args.hosts, args.show, args.arch)


def build(architecture: Architecture) -> None:
    require_packages(architecture)
    say(f"image {image.build(image.vendor_tree(architecture), 'machine').digest}")


def status() -> None:
    # It changes nothing, so it may end as a filter does when its reader leaves: `status | head`.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    lifecycle.status()


def deps(architecture: Architecture) -> None:
    missing = missing_packages(architecture)
    if not missing:
        say("all Debian packages that the lab needs are installed")
        return
    install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        raise LabError(f"only root can install packages; run: sudo {' '.join(install)}")
    with step(f"Installing {' '.join(missing)} (about 1 min)"):
        run(["apt-get", "update"])
        run(install)
