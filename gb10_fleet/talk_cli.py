"""`gb10 ask` and `gb10 logs`: talk to a model from here, and read what its unit says."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import IO, Annotated, Any
from urllib.parse import urlsplit

import typer
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_names import status_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.asking import SERVING
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet import way_in
from gb10_fleet.options import Inventory, Limit, NoLists
from gb10_fleet.playbook import Outcome
from gb10_fleet.services import Row
from gb10_fleet.services_cli import read_services

app = typer.Typer()
READY = "ready"
_CHAT = "/v1/chat/completions"
_LONGEST = 65536  # of an error that is shown, and of a line: a hostile host must not fill our memory
Service = Annotated[
    str,
    typer.Option("--service", "-s", metavar="NAME", help="The service, where several are ready.", show_default=False),
]


class Refused(Exception):
    """There is nothing to talk to; the text says why, and the way out."""


def serving(rows: Sequence[Row], name: str) -> Row:
    """Return the host that has the API of a service that is ready: the one named, or the only one."""
    ready = [row for row in rows if row.said["port"] and row.said["phase"] == READY and name in ("", row.said["name"])]
    names = list(dict.fromkeys(row.said["name"] for row in ready))
    if not ready:
        raise Refused(f"{name or 'no service'} is {'not ' if name else ''}ready: `gb10 ps` says what it waits for")
    if len(names) > 1:
        raise Refused(f"several services are ready ({', '.join(names)}): say --service NAME")
    return ready[0]


def key_of(variables: dict[str, Any], name: str) -> str:
    """Return the key that the server of a service wants to hear; empty where it wants none."""
    own = (variables.get("vllm_services") or {}).get(name) or {}
    return str(own.get("api_key") or variables.get("vllm_api_key") or "")


def pieces(stream: IO[bytes]) -> Iterator[str]:
    """Yield what the model says, as it comes. A line of server-sent events has one piece."""
    for line in bounded(stream):
        if len(line) > _LONGEST:
            raise ValueError(f"a line of its answer has more than {_LONGEST} bytes")
        text = line.decode("utf-8", "replace").strip()
        if not text.startswith("data:") or text == "data: [DONE]":
            continue
        try:
            for choice in json.loads(text[5:]).get("choices", ()):
                yield str((choice.get("delta") or {}).get("content") or "")
        except (AttributeError, TypeError, RecursionError):
            raise ValueError("its answer is none of a chat") from None


def bounded(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream; one that is too long in parts."""
    return iter(lambda: stream.readline(_LONGEST + 1), b"")


def answer(way: way_in.WayIn, row: Row, question: str) -> Iterator[str]:
    """Ask the model, and yield its answer. Refused where the server has none."""
    port = row.said["port"] or 0
    key = key_of(way.variables, row.said["name"])
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    asked = {"model": row.said["model"], "messages": [{"role": "user", "content": question}], "stream": True}
    # Any login may listen at a port that is free; the unit's word says that its container does.
    if not way.there(str(PurePosixPath(status_of(row.said["name"])).with_name(SERVING))):
        raise Refused(f"{row.host}: the unit does not say that its container has port {port}; `gb10 ps` says more")
    try:
        address = urlsplit(row.said["url"] or "").hostname or "127.0.0.1"
        with contextlib.closing(http.client.HTTPConnection(address, port)) as connection:
            connection.sock = way.connect(address, port)
            connection.request("POST", _CHAT, json.dumps(asked), headers)
            said = connection.getresponse()
            if said.status != 200:
                words = said.read(_LONGEST).decode("utf-8", "replace")
                raise Refused(f"{row.host}: the server says {said.status}: {words}")
            yield from pieces(said)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Refused(
            f"{row.host}: no answer at port {port} ({error or type(error).__name__}); `gb10 ps` says more"
        ) from None


@app.command(cls=NoLists)
def ask(
    ctx: typer.Context,
    question: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.", show_default=False)],
    inventory: Inventory,
    service: Service = "",
    limit: Limit = None,
) -> None:
    """Ask the model from here, over SSH, and show its answer as it comes.

    gb10 ask "Why is the sky blue?"

    gb10 ask --service code - < question.txt
    """
    text = sys.stdin.read() if question == "-" else question
    try:
        row = serving(read_services(ctx, inventory, limit), service)
        for piece in answer(way_in.to(row.host, inventory, ctx.obj), row, text):
            print("\n".join(printable(line) for line in piece.split("\n")), end="", flush=True)
        print()
    except (Refused, way_in.NoWay) as error:
        print(printable(str(error)), file=sys.stderr)
        raise typer.Exit(Outcome.failed) from None


@app.command(cls=NoLists)
def logs(
    ctx: typer.Context,
    service: Annotated[str, typer.Argument(help="The service, as `gb10 ps` names it.", show_default=False)],
    inventory: Inventory,
    limit: Limit = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="So many of the last lines first.")] = 50,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on until Ctrl-C.")] = True,
) -> None:
    """Show what the unit of a service says, and follow it.

    gb10 logs vllm

    gb10 logs vllm --limit spark-b --no-follow --lines 500
    """
    rows = [row for row in read_services(ctx, inventory, limit) if row.said["name"] == service]
    if not rows:
        print(printable(f"no service is called {service}: `gb10 ps` lists them"), file=sys.stderr)
        raise typer.Exit(Outcome.refused)
    row = next((row for row in rows if row.said["port"]), rows[0])
    journal = [
        "journalctl",
        "--no-pager",
        f"--unit={row.said['unit']}",
        f"--lines={lines}",
        *(["--follow"] if follow else []),
    ]
    # As root where sudo asks nothing; else what this user may read.
    script = 'if sudo -n true 2>/dev/null; then exec sudo -n "$@"; fi; exec "$@"'
    try:
        way = way_in.to(row.host, inventory, ctx.obj)
    except way_in.NoWay as error:
        print(printable(str(error)), file=sys.stderr)
        raise typer.Exit(Outcome.failed) from None
    argv = way.command("sh", "-c", script, "sh", *journal)
    # What the host writes to standard error must not steer the terminal either.
    quiet, pipe, one = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(argv, stdin=quiet, stdout=pipe, stderr=one) as running:
        try:
            for line in bounded(running.stdout) if running.stdout else ():
                print(printable(line.decode("utf-8", "replace").rstrip("\n")), flush=True)
        except KeyboardInterrupt:
            running.terminate()
    raise typer.Exit(Outcome.done if running.returncode in (0, -15, 130, 255 if follow else 0) else Outcome.failed)
