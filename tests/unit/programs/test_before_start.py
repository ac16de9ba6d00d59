"""What each start of the unit looks at again: the image behind a name, and the folders that the container gets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import before_start
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.link import Link
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import Failure

from tests.unit.programs.test_vllm_unit import Host, free_port

IMAGE: dict[str, Any] = {
    "Id": "sha256:1",
    "Os": "linux",
    "Architecture": "arm64",
    "RootFS": {"Layers": ["sha256:a", "sha256:b"]},
    "Config": {"Env": ["PATH=/bin"], "Entrypoint": ["vllm"], "Hostname": ""},
}


def digest(**changes: Any) -> str:
    return before_start.image_digest(json.dumps({**IMAGE, **changes}))


def test_the_digest_is_of_what_the_image_is() -> None:
    assert digest() == digest(Id="sha256:of another store") == digest(Size=7)
    assert digest() == digest(Config={**IMAGE["Config"], "Hostname": "of a container"})
    assert digest() == before_start.image_digest("WARNING: a warning\n" + json.dumps(IMAGE))
    others = [
        digest(RootFS={"Layers": ["sha256:a", "sha256:c"]}),
        digest(Config={**IMAGE["Config"], "Entrypoint": ["sh"]}),
        digest(Config={**IMAGE["Config"], "Healthcheck": {"Test": ["x"]}}),
        digest(Architecture="amd64"),
    ]
    assert len({digest(), *others}) == 5


@pytest.mark.parametrize("text", ["", "stand-in", "{", "{}", "[]", '{"Config": [], "RootFS": 1}'])
def test_what_is_no_image_has_no_digest(text: str) -> None:
    assert before_start.image_digest(text) == ""


def test_ranks_with_different_images_do_not_start(tmp_path: Path) -> None:
    """The second host's image was exchanged after the role had compared them."""
    port = free_port()
    hosts = []
    for rank, change in enumerate(({}, {"RootFS": {"Layers": ["sha256:other"]}})):
        host = Host(tmp_path / str(rank), rank, 2, port)
        text = json.dumps({**IMAGE, **change})
        host.docker.write_text(host.docker.read_text().replace("image) ", f"image) echo '{text}'; ", 1))
        hosts.append(host)
    try:
        for host in hosts:
            host.start()
        hosts[0].waits_for("peers_differ", "image")
        assert sum(host.runs() for host in hosts) == 0
    finally:
        for host in hosts:
            if host.life:
                host.life.stop()


def test_what_is_compared_is_said_before_the_link_starts() -> None:
    assert "compares" in vars(Link)


# -- folders


def argv(*folders: str) -> list[str]:
    return ["docker", "run", *(word for folder in folders for word in ("--volume", f"{folder}:/inside:ro")), "image"]


def test_plain_folders_and_those_that_are_not_there_pass(tmp_path: Path) -> None:
    (tmp_path / "data/me/models").mkdir(parents=True)
    before_start.check_mounts(argv("/data/me/models", "/data/me/later", "/nowhere/at/all"), tmp_path)
    before_start.check_mounts(["docker", "run", "--volume", "named:/inside"], tmp_path)


@pytest.mark.parametrize("link", ["data/me/models", "data/me"])
def test_a_link_of_somebody_else_stops_the_start(tmp_path: Path, link: str) -> None:
    (tmp_path / "etc/secrets/models").mkdir(parents=True)
    (tmp_path / "data/me").mkdir(parents=True)
    place = tmp_path / link
    if place.is_dir():
        place.rmdir()
    place.symlink_to(tmp_path / "etc/secrets")
    (tmp_path / "data").chmod(0o777)
    (tmp_path / "data/me").is_symlink() or (tmp_path / "data/me").chmod(0o777)
    with pytest.raises(Failure, match=f"mount_moved: /{link} on the way to /data/me/models is a link"):
        before_start.check_mounts(argv("/srv/other", "/data/me/models"), tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="a link of root's takes root")
def test_a_link_that_root_made_where_nobody_else_writes_passes(tmp_path: Path) -> None:
    (tmp_path / "data/models").mkdir(parents=True)
    (tmp_path / "models").symlink_to(tmp_path / "data/models")
    tmp_path.chmod(0o755)
    before_start.check_mounts(argv("/models"), tmp_path)
    os.lchown(tmp_path / "models", 1000, 1000)
    with pytest.raises(Failure, match="mount_moved: /models"):
        before_start.check_mounts(argv("/models"), tmp_path)


def test_the_unit_looks_before_each_start(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.raw["join"] = None
    folder = tmp_path / "data/me/models"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o777)
    host.raw["argv"] = [str(host.docker), "run", "--volume", "/data/me/models:/models", "image", "serve"]
    folder.rmdir()
    folder.symlink_to("/etc")
    host.start()
    assert host.verdict() == "mount_moved" and host.runs() == 0
