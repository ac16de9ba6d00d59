# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m lab.vendor build --cache DIR` and `python -m lab.vendor serve --tree DIR --listen ADDRESS:PORT`."""

from __future__ import annotations

import argparse
from pathlib import Path

from lab.vendor import build, describe
from lab.vendor.server import make_server


def endpoint(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT")
    return address, int(port)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.vendor")
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="build the tree, or find it in the cache, and describe it as JSON")
    builder.add_argument("--cache", type=Path, required=True)
    server = commands.add_parser("serve", help="serve a tree over HTTP in the foreground")
    server.add_argument("--tree", type=Path, required=True)
    server.add_argument("--listen", type=endpoint, required=True, metavar="ADDRESS:PORT")
    args = parser.parse_args()
    if args.command == "build":
        print(describe(build(args.cache, "amd64")))
        return
    if not (args.tree / "apt").is_dir():
        parser.error(f"--tree {args.tree}: no vendor tree there; `python -m lab.vendor build` makes one")
    try:
        make_server(args.tree, *args.listen).serve_forever()
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
