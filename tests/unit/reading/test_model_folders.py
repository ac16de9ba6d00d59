"""What lies in the folder of a model on a host: read by descriptor, and no link out of it is followed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import model_folders
from ansible_collections.gb10.fleet.plugins.module_utils.system import folders
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output

from tests.support.attacker import tally

COMMIT, CONFIG, SHARD = "a" * 40, "b" * 40, "c" * 64
REPOSITORY = "/cache/huggingface/hub/models--acme--new"
MAIN = f"{REPOSITORY}/refs/main"


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    """A cache as the hub's library leaves it."""
    top = tmp_path / REPOSITORY.lstrip("/")
    for name, text in ((f"blobs/{CONFIG}", '{"x": 1}'), (f"blobs/{SHARD}", "1234567"), ("refs/main", COMMIT)):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    snapshot = top / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(f"../../blobs/{CONFIG}")
    (snapshot / "model-1.safetensors").symlink_to(f"../../blobs/{SHARD}")
    (snapshot / "modules.json").write_text("[]")
    return tmp_path


def said(root: Path, path: str = MAIN) -> object:
    return model_folders.read_models(HostReader(system=System(root)), [path])[path]


def test_a_snapshot_by_its_reference_and_by_its_commit(root: Path) -> None:
    whole = {
        "names": ["config.json", "modules.json"],
        "texts": {"config.json": '{"x": 1}'},
        "weights_bytes": 7,
    }
    assert said(root) == whole
    assert said(root, f"{REPOSITORY}/snapshots/{COMMIT}") == whole


def test_a_plain_folder(tmp_path: Path) -> None:
    (tmp_path / "models/x").mkdir(parents=True)
    (tmp_path / "models/x/config.json").write_text("{}")
    (tmp_path / "models/x/a.safetensors").write_text("12")
    found = said(tmp_path, "/models/x")
    assert found == {"names": ["config.json"], "texts": {"config.json": "{}"}, "weights_bytes": 2}


@pytest.mark.parametrize(
    "text",
    ['{\n\t"x": "\u00fc\\u001b"\r\n}\n', '{"x":\n', "\x1b]0;x\x07", "[" * 100_000],
    ids=["json", "half", "none", "deep"],
)
def test_what_is_said_of_it_arrives_as_it_was_said(root: Path, text: str) -> None:
    """Else the digest that the controller expects is never that of the host, and no call would change anything."""
    top = root / REPOSITORY.lstrip("/")
    (top / "blobs" / CONFIG).write_text(text)
    (top / "snapshots" / COMMIT / "a\x1b.json").write_text("{}")
    found = said(root)
    assert isinstance(found, dict) and found["names"] == ["config.json", "modules.json"]
    assert output.cleaned(found) == found
    if text.endswith("}\n"):
        assert json.loads(found["texts"]["config.json"]) == json.loads(text)
    else:
        with pytest.raises((ValueError, RecursionError)):
            json.loads(found["texts"]["config.json"])


def test_a_model_that_is_not_there_is_null(root: Path) -> None:
    assert said(root, "/models/none") is None
    assert said(root, f"{REPOSITORY}/refs/v1") is None
    (root / REPOSITORY.lstrip("/") / "refs/main").write_text("../../../etc")
    assert said(root) is None, "no commit"


def test_a_shard_that_is_missing_makes_no_sum(root: Path) -> None:
    (root / REPOSITORY.lstrip("/") / "blobs" / SHARD).unlink()
    found = said(root)
    assert isinstance(found, dict) and found["weights_bytes"] is None


def test_a_text_that_is_too_large_is_left_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folders, "MOST_BYTES", 41)
    (root / REPOSITORY.lstrip("/") / "blobs" / CONFIG).write_text('{"x": "' + 40 * "y" + '"}')
    found = said(root)
    assert isinstance(found, dict) and found["texts"] == {}


@pytest.mark.parametrize(
    "target", ["/secret.json", "../../../secret.json", "../../blobs/../../../../../../secret.json"]
)
def test_no_link_out_of_the_model_is_followed(root: Path, target: str) -> None:
    (root / "secret.json").write_text('{"password": "x"}')
    config = root / REPOSITORY.lstrip("/") / "snapshots" / COMMIT / "config.json"
    config.unlink()
    config.symlink_to(target)
    found = said(root)
    assert isinstance(found, dict) and found["texts"] == {}


def test_a_folder_that_is_a_link_and_a_blob_that_is_one(root: Path) -> None:
    top = root / REPOSITORY.lstrip("/")
    (root / "secret.json").write_text('{"password": "x"}')
    (top / "blobs" / CONFIG).unlink()
    (top / "blobs" / CONFIG).symlink_to("/secret.json")
    found = said(root)
    assert isinstance(found, dict) and found["texts"] == {}
    (top / "blobs").rename(top / "others")
    (top / "blobs").symlink_to("others")
    found = said(root)
    assert isinstance(found, dict) and found["texts"] == {} and found["weights_bytes"] is None


def test_a_pipe_for_a_file_does_not_hold_up_the_host(root: Path) -> None:
    config = root / REPOSITORY.lstrip("/") / "snapshots" / COMMIT / "config.json"
    config.unlink()
    os.mkfifo(config)
    found = said(root)
    assert isinstance(found, dict) and found["texts"] == {}


def test_a_folder_with_names_without_an_end_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may fill it: ten million names are a gigabyte in root's process."""
    seen = list[str]()

    class Entry(NamedTuple):
        name: str

    def entry(number: int) -> Entry:
        seen.append(str(number))
        return Entry(seen[-1])

    def endless(_folder: int) -> contextlib.AbstractContextManager[Iterator[Entry]]:
        return contextlib.nullcontext(map(entry, range(10**6)))

    (tmp_path / "config.json").write_text("{}")
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", endless)
        patched.setattr(os, "listdir", lambda _: ["x"] * 10**6)
        said(tmp_path, "/config.json")
        found = folders.first_names(".", 10)
    tally("a folder with names without an end", 1, int(len(seen) > 2 * folders.MOST_NAMES))
    assert len(found) == 10 and len(seen) <= 2 * folders.MOST_NAMES
