"""`gb10 seed`: the files with which a Spark sets itself up at its first start, without a keyboard. Asks no host."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import counted, printable

from gb10_fleet.ending import by_name, told
from gb10_fleet.options import Json, NoLists, there
from gb10_fleet.playbook import Order, Outcome, run

if TYPE_CHECKING:
    from gb10_fleet.seed.settings import Host
    from gb10_fleet.seed.store import Seed

app = typer.Typer()


class Way(StrEnum):
    """The ways that NVIDIA documents."""

    nocloud = "nocloud"
    oemdata = "oemdata"
    autoinstall = "autoinstall"


@app.command("seed", cls=NoLists)
def make(
    ctx: typer.Context,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIRECTORY", help="Where the seeds go, outside of any repository.")
    ],
    hosts: Annotated[
        list[str] | None, typer.Argument(metavar="[HOSTS]...", help="Only these hosts.", show_default=False)
    ] = None,
    inventory: Annotated[
        list[str] | None,
        typer.Option("--inventory", "-i", metavar="PATH", help="Inventory file or folder.", show_default=False),
    ] = None,
    way: Annotated[Way, typer.Option("--way", help="Which of NVIDIA's ways the files are for.")] = Way.nocloud,
    one_stick: Annotated[
        bool, typer.Option("--one-stick", help="One stick for all hosts: each knows itself by MAC or serial.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Make seeds anew, with new host keys.")] = False,
    shred: Annotated[bool, typer.Option("--shred", help="Overwrite and remove the secrets of DIRECTORY.")] = False,
    as_json: Json = False,
) -> None:
    """Write what a new Spark sets itself up with at its first start. Asks no host."""
    from gb10_fleet.seed import settings, store

    try:
        if shred:
            _shred(out, bool(hosts or inventory), as_json)
        if one_stick and way is not Way.nocloud:
            raise typer.BadParameter(f"--one-stick goes with --way nocloud; with {way} each host has files of its own")
        order = Order("gb10.fleet.seed", there(inventory or []), ",".join(hosts or []) or None, words=ctx.obj)
        found = _hosts(order)
        settings.refuse_twice(found, one_stick)
        names = [one.name for one in found]
        store.refuse(out, names, force=force, one_stick=one_stick)
        with store.alone(out):
            store.refuse(out, names, force=force, one_stick=one_stick)  # another may have been faster
            seeds, images = _written(found, out, way, one_stick)
    except (settings.WrongSetting, store.NoFolder) as error:
        raise typer.BadParameter(printable(str(error))) from None
    except OSError as error:
        raise typer.BadParameter(
            f"{out}: {error.strerror}. Fix: name a folder with --out that has space and in which this user can write"
        ) from None
    if as_json:
        document = {"outcome": "done", "seeds": [store.as_dict(one) for one in seeds], "images": [*map(str, images)]}
        print(json.dumps(document, indent=2))
    else:
        for line in _lines(seeds, out, way):
            print(by_name(order, line))


def _shred(out: Path, more: bool, as_json: bool) -> NoReturn:
    from gb10_fleet.seed import store

    if more:
        raise typer.BadParameter("--shred takes all secrets of --out DIRECTORY; leave hosts and inventory out")
    store.read(out)  # says what is wrong with the place before anything is made there
    with store.alone(out):
        gone = store.shred(out)
    text = f"{out}: {counted(gone, 'file')} overwritten and removed. What a stick or an SSD keeps of them, it keeps"
    print(json.dumps({"outcome": "done", "removed": gone}, indent=2) if as_json else text)
    raise typer.Exit(Outcome.done)


def _hosts(order: Order) -> list[Host]:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

    from gb10_fleet.seed import settings

    interface = catalog.load("seeds")["management_interface"]["value"]
    keys = own_keys()
    return [settings.host(str(row["name"]), row, keys, interface) for row in rows(order)]


def rows(order: Order) -> list[dict[str, Any]]:
    """What the inventory says of each host, by a file that only this user can read: a vault may be in it."""
    with tempfile.TemporaryDirectory(prefix="gb10-seed-") as folder:
        file = Path(folder, "hosts.json")
        variables = {"gb10_seed_file": str(file)}
        playbook = Order(order.playbook, order.inventories, order.limit, variables=variables, words=order.words)
        outcome, report = run(playbook, quiet=True)
        if not file.exists():
            if outcome is Outcome.interrupted:
                raise typer.Exit(outcome)
            raise typer.BadParameter(printable("; ".join([*told(report), *report.errors]) or "it names no host"))
        columns: Mapping[str, list[Any]] = json.loads(file.read_text(encoding="utf-8"))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def own_keys() -> list[str]:
    """Public keys of this user, for an inventory that names none."""
    return [path.read_text(encoding="utf-8").strip() for path in sorted(Path("~/.ssh").expanduser().glob("id_*.pub"))]


def _written(hosts: Sequence[Host], out: Path, way: str, one_stick: bool) -> tuple[list[Seed], list[Path]]:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

    from gb10_fleet.seed import documents, store

    now = datetime.now(UTC)
    keys = {one.name: store.make_key() for one in hosts}
    seeds = [store.seed(one, keys[one.name], way, store.ALL if one_stick else one.name, now) for one in hosts]
    own = {one.name: documents.files(one, keys[one.name], way) for one in hosts}
    sticks = {store.ALL: documents.shared([(one, own[one.name]) for one in hosts])} if one_stick else own
    label = None if way == documents.OEMDATA else str(catalog.load("seeds")["label"][way])
    return seeds, store.write(out, sticks, seeds, label)


def _lines(seeds: Sequence[Seed], out: Path, way: Way) -> list[str]:
    """What was made, and what a person does with it."""
    from gb10_fleet.discover.host_keys import fingerprint

    found = [f"{one.name}  {one.address or 'DHCP'}  {fingerprint(one.blob)}" for one in seeds]
    sticks = sorted({one.stick for one in seeds})
    what = {
        Way.nocloud: "write DIRECTORY/STICK.iso onto a stick, or hand the folder to NVIDIA's repack scripts",
        Way.oemdata: "copy the files of DIRECTORY/STICK onto a volume labelled OEMDATA",
        Way.autoinstall: "serve DIRECTORY/STICK to the installer, or write DIRECTORY/STICK.iso onto a stick",
    }[way]
    found.append(f"{counted(len(sticks), 'stick')}: {what}: {', '.join(sticks)}".replace("DIRECTORY", str(out)))
    return [*found, f"Put the sticks in, switch the Sparks on, then: gb10 enrol {out} -i INVENTORY"]
