"""Which warm cache a start may have: that of its own key, whole, and never another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import warm
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import parse_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.life import Life
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.status import Notify, Status

from tests.support.unit_log import settings

MADE = warm.Made("image", ("commit", "draft"), "driver", "flags")
ARGV = ["docker", "run", "--name", "gb10-vllm", "--entrypoint", "vllm", "image", "serve", "a/b", "--port", "8000"]
SHELF = "/var/cache/gb10-warm/vllm"
WISH = {"shelf": SHELF, "flags": "flags", "markers": ["/var/cache/gb10-files/models--a--b@main.json"]}


@pytest.mark.parametrize(
    "other",
    [
        MADE._replace(image="other"),
        MADE._replace(models=("other", "draft")),
        MADE._replace(models=("commit", "other")),
        MADE._replace(models=("commit",)),
        MADE._replace(driver="other"),
        MADE._replace(flags="other"),
    ],
)
def test_each_part_makes_another_key(other: warm.Made) -> None:
    assert warm.key(MADE) == warm.key(warm.Made(*MADE)) != warm.key(other)


@pytest.mark.parametrize("name", warm.Made._fields)
def test_what_is_not_known_has_no_key(name: str) -> None:
    empty: Any = ("",) if name == "models" else ""
    with pytest.raises(ValueError, match="not known"):
        warm.key(MADE._replace(**{name: empty}))


def test_a_container_unpacks_what_it_can_only_read() -> None:
    words = warm.words(ARGV, "/var/cache/x.tar")
    at = words.index("--entrypoint")
    assert words[:at] == ["docker", "run", "--name", "gb10-vllm", "--volume", "/var/cache/x.tar:/gb10-warm.tar:ro"]
    assert words[at + 1 : at + 4] == ["/bin/sh", "image", "-c"]
    assert words[at + 5 :] == ["vllm", "serve", "a/b", "--port", "8000"]
    with pytest.raises(ValueError, match="no vllm"):
        warm.words(["docker", "run", "image"], "x")


def test_an_image_keeps_the_entrypoint_that_starts_its_programs() -> None:
    own = [*ARGV[:5], "/opt/nvidia/nvidia_entrypoint.sh", "image", "vllm", *ARGV[7:]]
    words = warm.words(own, "/var/cache/x.tar")
    at = words.index("--entrypoint")
    assert words[at + 1 : at + 5] == ["/opt/nvidia/nvidia_entrypoint.sh", "image", "/bin/sh", "-c"]
    assert words[at + 6 :] == ["vllm", "serve", "a/b", "--port", "8000"]
    with pytest.raises(ValueError, match="no vllm"):
        warm.words([*own[:7], "python3", *own[8:]], "x")


class Host:
    """A unit with a warm cache, below a root of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  580.142\nGCC\n")
        self.write(WISH["markers"][0], json.dumps({"commit": "c" * 40}))
        self.shelve(b"compiled")

    def write(self, path: Any, text: str) -> None:
        target = self.root / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    @property
    def archive(self) -> Path:
        made = warm.now(warm.Wish(SHELF, "flags", tuple(WISH["markers"])), "image", self.root)
        return warm.archive(self.root / SHELF.lstrip("/"), warm.key(made))

    def shelve(self, content: bytes) -> None:
        path = self.archive
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        told = {"sha256": warm.sum_of(path), "bytes": len(content), "cold_s": 92.5, "at": "2026-11-23T15:00:00Z"}
        self.write(warm.sums(Path(SHELF), path.stem), json.dumps(told))

    def start(self, flags: str = "flags", image: str = "image") -> tuple[list[str], dict[str, Any] | None]:
        """The words of the next start, and what its status says of the cache."""
        config = parse_config(json.dumps(settings() | {"argv": ARGV, "warm": WISH | {"flags": flags}}))
        notify = Notify("")
        life = Life(config, Status(self.root / "status.json", notify, ""), notify, self.root)
        life.image = image
        return list(life._argv()), life.status.warm


def test_a_start_gets_the_cache_of_what_runs(tmp_path: Path) -> None:
    host = Host(tmp_path)
    words, said = host.start()
    assert words == warm.words(ARGV, str(host.archive))
    assert said == {"key": host.archive.stem, "cold_s": 92.5}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  580.178\n"),
        (WISH["markers"][0], json.dumps({"commit": "d" * 40})),
        ("proc/driver/nvidia/version", ""),
        (WISH["markers"][0], "no json"),
    ],
)
def test_another_driver_or_commit_starts_cold(tmp_path: Path, path: Any, text: str) -> None:
    host = Host(tmp_path)
    host.write(path, text)
    words, said = host.start()
    assert words == ARGV and said is not None and said["cold_s"] is None


@pytest.mark.parametrize(("flags", "image"), [("other", "image"), ("flags", "other"), ("flags", "")])
def test_other_flags_or_another_image_start_cold(tmp_path: Path, flags: str, image: str) -> None:
    words, said = Host(tmp_path).start(flags, image)
    assert words == ARGV and said is not None and said["cold_s"] is None


def test_an_archive_that_has_changed_is_not_run(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.archive.write_bytes(b"poisoned")
    assert host.start()[0] == ARGV


def test_a_sum_beside_the_archive_says_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.archive.write_bytes(b"poisoned")
    told = {"sha256": warm.sum_of(host.archive), "bytes": 8, "cold_s": 92.5, "at": "2026-11-23T15:00:00Z"}
    host.archive.with_suffix(".json").write_text(json.dumps(told))
    assert host.start()[0] == ARGV


def test_without_the_wish_nothing_is_looked_for(tmp_path: Path) -> None:
    config = parse_config(json.dumps(settings() | {"argv": ARGV}))
    notify = Notify("")
    life = Life(config, Status(tmp_path / "status.json", notify, ""), notify, tmp_path)
    assert (list(life._argv()), life.status.warm) == (ARGV, None)
