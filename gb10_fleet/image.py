"""`gb10 image inspect`: what is in a container image, and what speaks against it on a GB10.

What it runs on is imported when it runs: other commands need none of it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer
from ansible_collections.gb10.fleet.plugins.module_utils.system.folders import planted_above
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet.helping import Listed
from gb10_fleet.options import Json, NoLists, there
from gb10_fleet.playbook import Order, Outcome, run

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.images.judgement import Judgement

app = typer.Typer(cls=Listed, no_args_is_help=True, help="Look into container images, and build one for a GB10.")
Facts = Mapping[str, Any]
_OF_VERSIONS = {
    **{"vllm": "vLLM", "torch": "torch", "torch_cuda": "torch's CUDA", "cuda": "CUDA toolkit", "nccl": "NCCL"},
    **{
        "transformers": "transformers",
        "flashinfer": "FlashInfer",
        "triton": "Triton",
        "ray": "Ray",
        "python": "Python",
    },
}
_MODULE = "gb10.fleet.image_info"
_PATHS = ("/", "./", "../", "~")  # no image of Docker begins so
_ARCHIVES = (".tar", ".tar.gz", ".tgz")


class _Failed(Exception):
    """The facts could not be had; how it ended, and why."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


@app.callback()
def _group() -> None:
    """Look into container images, and build one for a GB10."""


@app.command(cls=NoLists)
def inspect(
    ctx: typer.Context,
    image: Annotated[
        str,
        typer.Argument(metavar="IMAGE", help="An image of Docker, an archive, or an OCI folder.", show_default=False),
    ],
    host: Annotated[
        str | None, typer.Option("--host", help="Look at it in the Docker of this host of the inventory.")
    ] = None,
    inventory: Annotated[
        list[str] | None,
        typer.Option("--inventory", "-i", help="With --host: inventory file or folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what is in an image: versions, kernels for a GB10, caches, and known problems. Runs none of it."""
    if (host is None) != (not inventory):
        raise typer.BadParameter("--host and --inventory go together: name a host and its inventory, or neither")
    try:
        facts = _of_host(image, host, there(inventory or []), ctx.obj) if host else _of_here(image)
    except _Failed as error:
        _fail(error, as_json)
    from ansible_collections.gb10.fleet.plugins.plugin_utils.images import judgement

    judged = judgement.judge(facts)
    if as_json:
        print(json.dumps({"facts": facts, "judgement": judged.as_dict()}, indent=2))
    else:
        print("\n".join(map(printable, lines(facts, judged))))
    raise typer.Exit(Outcome.refused if judged.refused else Outcome.done)


def _fail(error: _Failed, as_json: bool) -> NoReturn:
    if as_json:  # a program gets one object, whatever happens
        print(json.dumps({"error": str(error)}, indent=2))
    else:
        print("\n".join(map(printable, str(error).splitlines())), file=sys.stderr)
    raise typer.Exit(error.outcome)


def _of_here(image: str) -> dict[str, Any]:
    """A file or folder of that name, else an image of this machine's Docker."""
    from ansible_collections.gb10.fleet.plugins.module_utils.images import docker
    from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
    from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice

    is_file, there = image.startswith(_PATHS) or image.endswith(_ARCHIVES), Path(image).exists()
    if is_file and not there:
        raise _Failed(
            Outcome.failed, f"{image} is not there; give the path of an archive or folder, or IMAGE:TAG of an image"
        )
    try:
        mine = there and (is_file or not planted_above(Path(image)))
        found = docker.of_path(Path(image)) if mine else docker.read(image)
        return cast("dict[str, Any]", advice.plain(found))  # as of a host, whose answer comes so
    except ImageError as error:
        text = f"{error.name}: {image}: {error.said}" if mine else str(error)
        raise _Failed(Outcome.failed, text) from None
    except OSError as error:
        raise _Failed(Outcome.failed, f"{error.filename or image}: {error.strerror}") from None


def _of_host(image: str, host: str, inventory: list[str], words: Any) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}

    def watch(event: Mapping[str, Any]) -> None:
        data = event.get("event_data", {})
        if data.get("resolved_action") == _MODULE and "versions" in data.get("res", {}):
            found[data["host"]] = {key: value for key, value in data["res"].items() if not key.startswith("_")}

    order = Order("gb10.fleet.image", inventory, host, variables={"gb10_image": image}, words=words or ())
    outcome, report = run(order, quiet=True, watch=watch)
    if len(found) == 1 and outcome is Outcome.done:
        return next(iter(found.values()))
    said = [*(f"{name}: {text}" for name, texts in report.messages.items() for text in texts), *report.errors]
    if len(found) > 1:
        said.append(f"--host {host} is {len(found)} hosts ({', '.join(sorted(found))}): name one")
    raise _Failed(outcome if outcome is not Outcome.done else Outcome.failed, "\n".join(said) or f"{host} said nothing")


def lines(facts: Facts, judged: Judgement) -> Iterator[str]:
    """The table for a person."""
    platform = f"{facts['os']}/{facts['architecture']}"
    count = f"{facts['layers']} layer{'' if facts['layers'] == 1 else 's'}"
    yield f"{facts['reference']}: {platform}, {_size(facts['bytes'])} in {count}"
    for key, name in _OF_VERSIONS.items():
        yield f"  {name:<13} {facts['versions'][key] or '-'}"
    yield f"  {'user':<13} {facts['user'] or 'root'}"
    yield f"  {'entrypoint':<13} {' '.join([*facts['entrypoint'], *facts['command']]) or '-'}"
    yield from _kernels(facts, judged)
    for cache in facts["caches"]:
        yield f"cache: {cache['name']}: {cache['files']} files, {_size(cache['bytes'])}, {cache['folder']}"
    for finding in judged.findings:
        yield f"{finding.severity}: {finding.id}: {finding.fact}"
        yield f"    Fix: {finding.way_out}"


def _kernels(facts: Facts, judged: Judgement) -> Iterator[str]:
    """Each extension of vLLM, those first that matter; of all others the sum of each owner."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.images import kernels

    yield f"kernels of vLLM: {judged.build}"
    of_vllm = [kernels.of(each) for each in facts["extensions"] if each["owner"] == "vllm"]
    of_vllm.sort(key=lambda each: each not in judged.kernels)
    width = max((len(each.name) for each in of_vllm), default=0)
    for each in of_vllm:
        yield f"  {each.name:<{width}}  {each.text}"
    states: dict[str, Counter[str]] = {}
    for extension in facts["extensions"]:
        if extension["owner"] != "vllm":
            states.setdefault(extension["owner"], Counter())[kernels.of(extension).state] += 1
    words = {
        "native": "native",
        "ptx": "compiled when first used",
        "none": "for other chips only",
        "unread": "not read",
    }
    for owner, counts in sorted(states.items()):
        counted = ", ".join(f"{counts[state]} {word}" for state, word in words.items() if counts[state])
        yield f"kernels of {owner}, by file: {counted}"


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
