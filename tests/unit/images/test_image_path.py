"""From a base to a served image on two hosts, and back: built, injected, compared, accepted, carried, rolled back.

Docker is a stand-in, and what runs inside of images is made up. Layers, verdicts, archives, rsync and plans are real.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.action import image_build
from ansible_collections.gb10.fleet.plugins.module_utils.images import build, build_steps, docker, ingredients
from ansible_collections.gb10.fleet.plugins.module_utils.serving import host_files, host_tools
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import transfer, vllm_image
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm

from tests.support import images
from tests.support.archive import packed, sha256
from tests.support.image_trials import BASE_SERVED, BUILDER, INSIDE, NATIVE, SERVED, STOCK
from tests.support.model_daemon import Daemon, needs_rsync, quiet
from tests.support.proofs import facts

BASE = f"lab/vllm@sha256:{'1' * 64}"
CUDA = {"usr/local/cuda/version.json": json.dumps({"cuda": {"version": "13.0.2"}})}


class Docker:
    """Docker on one host: images by name, each a list of layers and a configuration."""

    def __init__(self) -> None:
        self.images: dict[str, tuple[list[bytes], dict[str, Any]]] = {}
        self.compiled: dict[str, images.Content] = dict(NATIVE)

    def told(self, layers: list[bytes], config: dict[str, Any]) -> dict[str, Any]:
        names = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        mark = hashlib.sha256(json.dumps([names, config], sort_keys=True).encode()).hexdigest()
        return {
            **{"Id": f"sha256:{mark}", "Size": sum(map(len, layers)), "RootFS": {"Layers": names}},
            **{"Config": config["config"], "Os": "linux", "Architecture": "arm64"},
            "GraphDriver": {"Name": "of the test", "Data": {"some": "folder"}},
        }

    def found(self, name: str) -> tuple[list[bytes], dict[str, Any]] | None:
        by_id = {self.told(*image)["Id"]: image for image in self.images.values()}
        return self.images.get(name) or by_id.get(name)

    def __call__(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        rc, out, err = 0, "", ""
        match list(argv):
            case ["docker", "image", "inspect", *_, name]:
                image = self.found(name)
                rc, out, err = (0, json.dumps([self.told(*image)]), "") if image else (1, "", "No such image")
            case ["docker", "tag", name, other]:
                self.images[other] = self.found(name) or self.images[name]
            case ["docker", "image", "rm", name]:
                self.images.pop(name, None)
            case ["docker", "save", "--output", path, name]:
                layers, config = self.images[name]
                text = {"name": name, "layers": [layer.hex() for layer in layers], "config": config}
                Path(path).write_text(json.dumps(text))
            case ["docker", "buildx", "build", *words]:
                self.build(words)
            case ["systemd-run", *_, script]:
                folder = Path(script).parent
                (line,) = (line for line in Path(script).read_text().splitlines() if line.startswith("docker "))
                self.build(shlex.split(line.partition(" >log")[0])[3:])
                (folder / "rc").write_text("0\n")
            case ["systemctl", *_]:
                out = "inactive\n"
            case _:
                return host_tools.command(argv, **options)
        return subprocess.CompletedProcess(list(argv), rc, out, err)

    def load(self, path: Path, name: str) -> None:
        read = json.loads(path.read_text())
        self.images[name] = ([bytes.fromhex(each) for each in read["layers"]], read["config"])

    def build(self, words: list[str]) -> None:
        """What BuildKit makes of a Dockerfile of ours: the base's layers, and one with the files that it copies."""
        text = Path(words[words.index("--file") + 1]).read_text()
        pairs = list(itertools.pairwise(words))
        labels = dict(value.split("=", 1) for word, value in pairs if word == "--label")
        base = next((value.removeprefix("BASE=") for word, value in pairs if word == "--build-arg"), "")
        of_labels = text.removeprefix("FROM ").strip() if not base else ""
        layers, config = self.found(base or of_labels) or self.images[base]
        both = {**config["config"], "Labels": {**(config["config"].get("Labels") or {}), **labels}}
        if base:
            assert "FROM ${BASE}" in text
            layers = [*layers, images.layer(self.compiled)]
        self.images[words[words.index("--tag") + 1]] = (layers, {**config, "config": both})

    @contextlib.contextmanager
    def saved(self, name: str) -> Iterator[Any]:
        image = self.found(name)
        assert image is not None
        yield io.BytesIO(images.docker_archive(*image))


class Builder:
    """The module on the builder: its own code on this Docker. What Python and vLLM in an image say is given."""

    def __init__(self, own: Docker, state: Path) -> None:
        self.docker, self.state = own, state

    def __call__(self, name: str, arguments: Any, *, background: bool = False) -> dict[str, Any]:
        return {"found": self.found(arguments["step"], arguments["request"])}

    def found(self, step: str, request: Any) -> dict[str, Any]:
        if step == "look":
            read = docker.read(request["base"], self.docker, self.docker.saved)
            source = [asdict(ingredients.source(each)) for each in request["source"]]
            return {"facts": read, "builder": BUILDER, "source": source, "wheels": [], "patches": []}
        made = build.Build(request["name"], request["tag"], self.docker, state=self.state)
        if step == "read":
            return made.read()
        if step == "start":
            made.start(request)
            return {}
        if step == "examine":
            base_facts, _, below = docker.examined(request["base"], self.docker, self.docker.saved)
            found_facts, found, told = docker.examined(made.candidate, self.docker, self.docker.saved)
            differs = build_steps.difference(below, told, found)
            both = {"facts": found_facts, "base_facts": base_facts, "inside": INSIDE, "base_inside": INSIDE}
            return {"difference": differs, **both}
        if step == "serve":
            return {"served": SERVED, "base_served": BASE_SERVED}
        image = made.settle(request["labels"], request["platform"], accepted=request["accepted"])
        return {"image": image, "digests": []}


@pytest.fixture(name="first")
def fixture_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    monkeypatch.setattr(image_build, "POLL_S", (0.0,), raising=False)
    monkeypatch.setattr(host_files, "RUN", tmp_path / "run")
    monkeypatch.setattr(host_files, "DOCKER", tmp_path)
    own = Docker()
    own.images[BASE] = ([images.layer({**STOCK, **CUDA})], dict(images.CONFIG))
    return own


def built(own: Docker, tmp_path: Path) -> dict[str, Any]:
    action = object.__new__(image_build.ActionModule)
    action._name, action._vars, action._folder = "spark-a", {}, tmp_path / "evidence"
    source = tmp_path / "vllm-0.33.0.tar"
    source.write_bytes(packed({"vllm-0.33.0/setup.py": b""}))
    given = {"path": str(source), "sha256": sha256(source)}
    said = {"vllm_image_base": BASE, "vllm_image_model": "/srv/model", "vllm_image_source": given}
    action._plan = vllm_image.plan(View("spark-a", {}, said))
    action._task = SimpleNamespace(check_mode=False, async_val=0)
    action._module = Builder(own, tmp_path / "images")  # type: ignore[method-assign,assignment]
    return action._made()


def files(own: Docker, tmp_path: Path, host: str, image: str) -> host_files.Files:
    """What `model_files` does with the image of this service on a host."""
    said = dict(vars(service(image).files)) | {"cache": str(tmp_path / host / "cache"), "fetch": False, "draft": None}
    made = host_files.Files(said, quiet, own, state=tmp_path / host / "state")
    made.load = own.load
    return made


def service(image: str) -> Any:
    said = {"vllm_image": image, "vllm_allow_tag": True, "vllm_model": "openai/gpt-oss-120b", "vllm_version": "0.33.0"}
    (one,) = vllm.plan(View("spark-a", facts(), said)).services
    assert one.refusals == ()
    return one


def carry(giver: host_files.Files, taker: host_files.Files, tmp_path: Path) -> None:
    """Over rsync, with what the giver told the controller."""
    archive = giver.save()
    daemon = Daemon(tmp_path / "daemon", {"image": str(giver.archives)})
    try:
        taker.take({**giver.read(), "archive": archive}, ["image"], "127.0.0.1", daemon.port, "sesame")
    finally:
        daemon.stop()


@needs_rsync
def test_an_image_is_built_accepted_carried_served_and_rolled_back(first: Docker, tmp_path: Path) -> None:
    second, said = Docker(), built(first, tmp_path)
    new = said["image"]
    assert (said["verdict"], new.split(":")[0]) == ("accepted", "gb10-fleet/built"), said
    layers, config = first.images[new]
    assert layers[0] == first.images[BASE][0][0] and len(layers) == 2
    assert config["config"]["Labels"]["gb10-fleet.image.verdict"] == "accepted"
    assert built(first, tmp_path)["lines"] == [f"{new} was built of this already"]

    first_has: dict[str, Any] = {}
    for image in (BASE, new):  # the one that serves, and then the new one
        giver, taker = files(first, tmp_path, "a", image), files(second, tmp_path, "b", image)
        giver.download("")
        assert transfer.missing(giver.read(), taker.read()) == ["image"]
        carry(giver, taker, tmp_path)
        assert transfer.missing(giver.read(), taker.read()) == []
        first_has[image] = giver.read()["image"]
        assert taker.read()["image"] == first_has[image] and service(image).image_name in service(image).argv
    assert first_has[BASE]["fingerprint"] != first_has[new]["fingerprint"]

    switched, back = service(new), service(BASE)
    assert switched.program["image"] != back.program["image"] and switched.config in switched.restart_on
    for own, host in ((first, "a"), (second, "b")):  # rolled back: both still have the old one, and nothing is pulled
        there = files(own, tmp_path, host, BASE).read()
        assert there["image"] == first_has[BASE] and there["pull"] is False


def test_an_image_that_was_refused_gets_no_name_that_serves(first: Docker, tmp_path: Path) -> None:
    first.compiled |= {f"{images.SITE}/vllm/config.py": "x = 1"}
    said = built(first, tmp_path)
    assert said["verdict"] == "files" and said["image"].startswith("gb10-fleet/built:refused-")
    (one,) = vllm.plan(View("spark-a", facts(), {"vllm_image": said["image"], "vllm_allow_tag": True})).services
    assert any("was built and not accepted" in text for text in one.refusals)
