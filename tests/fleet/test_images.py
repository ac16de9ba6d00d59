"""An image is built and proven on one host, served by two, and taken back; by our playbooks alone.

Real: Docker's engine, BuildKit, the compiler, systemd and its units, NetworkManager, rsync, and the wire between the
two. Made up: what a GPU would do (the lab's simulated vLLM), kernels in the extensions, and the rails' RDMA devices.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.two import INGREDIENTS, Two
from tests.support import build_tools
from tests.support.archive import packed

pytestmark = [pytest.mark.lab, pytest.mark.long]

THERE = "/srv/gb10-images"  # on the builder
BASE = "lab/vllm:base"  # no registry has it
SOURCE_NAME = "vllm-0.19.0.tar"
SOURCE = packed({"vllm-0.19.0/setup.py": INGREDIENTS / "setup.py"})
BRING_BASE = f"""
sim=$(docker pull --quiet @IMAGE@)
docker tag "$sim" lab/vllm-sim
docker buildx build --quiet --builder default --load --provenance=false --build-arg SIMULATED=lab/vllm-sim \
    --tag {BASE} {THERE}/base
docker image rm lab/vllm-sim "$sim" >/dev/null
"""


class Builders(Two):
    """The first one builds an image."""

    def __init__(self, fleet: Fleet, tools: Path, folder: Path) -> None:
        super().__init__(fleet, folder)
        self.tools = tools

    def bring(self) -> None:
        """What a build starts from, to where Docker and the disk of the builder have it."""
        files: dict[str, Path | bytes] = {
            "usr/libexec/docker": self.tools / "docker-buildx/usr/libexec/docker",
            f"{THERE[1:]}/base/tcc": self.tools / "tcc",
            f"{THERE[1:]}/base/Dockerfile": INGREDIENTS / "Dockerfile",
            f"{THERE[1:]}/base/setup.py": INGREDIENTS / "setup.py",
            f"{THERE[1:]}/{SOURCE_NAME}": SOURCE,
            f"{THERE[1:]}/model/config.json": b"{}",
        }
        self.fleet.root(self.first, "tar", "-xC", "/", program=packed(files))
        self.fleet.shell(self.first, BRING_BASE.replace("@IMAGE@", self.simulated))

    def build(self) -> dict[str, Any]:
        """The evidence of an image that was built on the first host."""
        self.play(
            *("build_image", "--limit", self.first),
            vllm_image_base=BASE,
            vllm_image_source={"path": f"{THERE}/{SOURCE_NAME}", "sha256": hashlib.sha256(SOURCE).hexdigest()},
            vllm_image_model=f"{THERE}/model",
            vllm_image_jobs=1,  # this machine has not the memory of a Spark
        )
        (file,) = (self.folder / "evidence/images").glob("*.json")
        told: dict[str, Any] = json.loads(file.read_text())
        return told

    def serve(self, image: str) -> str:
        """Both hosts serve it, and the proof of it is green; what the run said."""
        said: dict[str, Any] = {"vllm_image": image, "vllm_allow_tag": True}
        run = self.play("converge", "-v", **said)
        self.play("validate", roles=["vllm"], **said)
        return " ".join(run.output.split())

    def image(self, host: str, name: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.fleet.shell(host, f"docker image inspect {name}"))[0]
        return told


@pytest.fixture(scope="module")
def two(cleared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builders]:
    hosts = Builders(cleared, build_tools.tools(), tmp_path_factory.mktemp("images"))
    hosts.begin()
    yield hosts
    hosts.end()


def test_an_image_is_built_proven_carried_served_and_taken_back(two: Builders) -> None:
    two.play("doctor")
    two.play("converge", "--skip-tags", "serving")
    two.bring()

    told = two.build()
    new = told["image"]
    assert (told["verdict"], told["accepted"]) == ("accepted", True), told
    checks = {each["id"]: each for each in told["checks"]}
    assert all(each["good"] for each in checks.values()) and {"files", "architecture", "sense", "speed"} <= set(checks)
    assert checks["architecture"]["figures"]["cubins"] == {"_C": 48, "_C_stable_libtorch": 3, "_moe_C": 13}
    both = {name: two.image(two.first, name) for name in (BASE, new)}
    layers = {name: image["RootFS"]["Layers"] for name, image in both.items()}
    assert layers[new][: len(layers[BASE])] == layers[BASE] and len(layers[new]) == len(layers[BASE]) + 3
    assert two.fleet.shell(two.second, "docker image ls --quiet") == ""

    lives = []
    for image in (BASE, new):  # no registry has either
        said = two.serve(image)
        assert f"{two.second}: got image" in said and f"from {two.first}, 192.168.100.10" in said
        lives.append(two.served())
        assert {id_ for id_, _ in lives[-1].values()} == {both[image]["Id"]}
    assert f"{two.second}: got " not in two.serve(BASE)
    lives.append(two.served())
    assert {id_ for id_, _ in lives[-1].values()} == {both[BASE]["Id"]}
    for host in two.fleet.hosts:
        assert len({life[host][1] for life in lives}) == 3, "each switch is another life of the unit"
        # By its id: on the host that got it over the fabric it has a name of its own.
        assert two.image(host, both[new]["Id"]), "the new image stays, to go forth again"
