"""Who owns what a build or the X-ray reads runs nothing as root, and makes nobody wait."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import subprocess
import tarfile
import time
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.images import (
    archive,
    budget,
    cubins,
    docker,
    facts,
    ingredients,
    inside,
    progress,
    tar,
    trial,
)
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget

from tests.support.archive import packed, sha256
from tests.support.attacker import tally
from tests.support.checkouts import checkout, git, traps
from tests.support.fatbins import entry, extension
from tests.support.images import Files, docker_archive, layer, oci_folder


def test_a_checkout_is_no_source_and_its_configuration_runs_nothing(tmp_path: Path) -> None:
    ran, folder = tmp_path / "ran", checkout(tmp_path / "checkout")
    traps(folder, f"echo >>{ran}")
    git(folder, "status")
    assert ran.exists(), "this git does not look at core.fsmonitor, so nothing is proven"
    ran.unlink()
    for path in (folder, folder / ".git"):
        with pytest.raises(ImageError, match="no_source"):
            ingredients.source({"path": str(path), "sha256": "0" * 64})
    tally("a program in the configuration of somebody's checkout, run by root", 2, int(ran.exists()))
    assert not ran.exists()


def test_what_was_proven_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner exchanges it once it has been read: the rest of the words are of the proven one."""
    path = tmp_path / "vllm-0.33.0.tar"
    path.write_bytes(packed({"vllm-0.33.0/setup.py": b""}))
    given, copied = {"path": str(path), "sha256": sha256(path)}, ingredients.copied

    def exchanged(name: str, into: IO[bytes]) -> str:
        found = copied(name, into)
        path.write_bytes(packed({"vllm-9.9/setup.py": b""}))
        return found

    monkeypatch.setattr(ingredients, "copied", exchanged)
    told = ingredients.source(given)
    tally("a file that changes after it was proven", 1, int(told.version != "0.33.0"))
    assert told.version == "0.33.0"


def test_a_pipe_is_no_ingredient(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.whl")
    for read in (ingredients.source, ingredients.wheel, ingredients.patch):
        with pytest.raises(ImageError, match=f"no_{read.__name__}"):
            read({"path": str(tmp_path / "x.whl"), "sha256": "0" * 64})


def test_a_file_that_grows_while_it_is_copied_comes_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    path.write_bytes(b"x")

    class Growing(io.BytesIO):
        """Its owner writes a part for each part that root copies; in the end he gives up, for this test's sake."""

        def write(self, part: Any) -> int:
            if path.stat().st_size < 100:
                with path.open("ab") as file:
                    file.write(b"x")
            return super().write(part)

    kept = Growing()
    ingredients.copied(str(path), kept)
    tally("a file that grows while root copies it", 1, int(len(kept.getvalue()) > 1))
    assert kept.getvalue() == b"x"


def test_a_file_of_holes_fills_no_disk(tmp_path: Path) -> None:
    with (tmp_path / "x.whl").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ImageError, match="_wheel"):
        ingredients.wheel({"path": str(tmp_path / "x.whl"), "sha256": "0" * 64})


def test_an_ingredient_that_unpacks_without_end_costs_little(tmp_path: Path) -> None:
    """Text of a wheel, a header of a source, and a source of many files: little on the disk, gigabytes in memory."""
    wheel, header, many = tmp_path / "x.whl", tmp_path / "header.tgz", tmp_path / "many.tgz"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x-1.dist-info/METADATA", f"Name: x\nVersion: 1\n\n{'a' * (32 << 20)}")
    with tarfile.open(header, "w:gz", pax_headers={"comment": "a" * (32 << 20)}) as archive:
        archive.addfile(tarfile.TarInfo("vllm-1/setup.py"))
    one = tarfile.TarInfo("vllm-1/x").tobuf()
    many.write_bytes(gzip.compress(one * 300_000, 1))
    tracemalloc.start()
    for path, read in ((wheel, ingredients.wheel), (header, ingredients.source), (many, ingredients.source)):
        given = {"path": str(path), "sha256": sha256(path)}
        tracemalloc.reset_peak()
        with pytest.raises(ImageError, match=f"bad_{read.__name__}"):
            read(given)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20, path
    tracemalloc.stop()


def of_wheel(path: Path, files: Mapping[str, str]) -> tuple[ingredients.Wheel | None, int]:
    """What root reads of it, None of one that is refused; and the bytes of memory that it takes meanwhile."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    given, told = {"path": str(path), "sha256": sha256(path)}, None
    tracemalloc.start()
    with contextlib.suppress(ImageError):
        told = ingredients.wheel(given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return told, peak


def test_a_wheel_costs_as_much_as_its_list_of_files(tmp_path: Path) -> None:
    """Python's library makes a name of each folder above each file: 400 KB took three gigabytes."""
    deep = {f"{number}/{'a/' * 4000}x": "" for number in range(20)}
    told, peak = of_wheel(tmp_path / "x.whl", {"x-1.dist-info/METADATA": "Name: x\nVersion: 1\n", **deep})
    other, more = of_wheel(
        tmp_path / "y.whl", {"x-1.dist-info/METADATA": "", "x-1.dist-info/PKG-INFO": "x" * (32 << 20)}
    )
    tally("a wheel that takes memory", 2, int(peak > 20 << 20) + int(more > 20 << 20))
    assert told is not None and told.package == "x" and len(told.tops) == 20
    assert other is None and max(peak, more) < 20 << 20, (peak, more)


# -- what costs too much: of each part there is little

PARTS: dict[str, tuple[str, Callable[[int], Files]]] = {
    "files": ("nodes", lambda number: {f"{number}/{file}": "" for file in range(200)}),
    "kernels": ("nodes", lambda number: {f"{number}.so": extension(*[entry(120)] * 100)}),
    "names": ("characters", lambda number: {f"{number}/{file}{'x' * 200}": "" for file in range(60)}),
    "texts": ("characters", lambda number: {f"{number}.dist-info/METADATA": "x" * 9000}),
    "what is packed": ("bytes", lambda number: {f"{number}": "x" * 100_000}),
}


def of_docker(folder: Path, parts: Sequence[Files]) -> None:
    """In overlay2's store, where nothing is packed."""
    for number, files in enumerate(parts):
        for path, content in files.items():
            file = folder / str(number) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else str(content).encode())
    upper, *lower = [str(folder / str(number)) for number in reversed(range(len(parts)))]
    driver = {"Name": "overlay2", "Data": {"UpperDir": upper, "LowerDir": ":".join(lower)}}
    told = json.dumps([{"Id": "sha256:0", "GraphDriver": driver}])
    docker.read("lab/vllm:1", lambda argv, **_: subprocess.CompletedProcess(list(argv), 0, told, ""))


def of_archive(folder: Path, parts: Sequence[Files]) -> None:
    archive.of_stream(io.BytesIO(docker_archive([gzip.compress(layer(files)) for files in parts])))


def of_folder(folder: Path, parts: Sequence[Files]) -> None:
    archive.of_path(oci_folder(folder, [layer(files) for files in parts]))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("read", [of_archive, of_folder, of_docker])
def test_what_is_little_in_each_layer_is_too_much_in_all_of_them(
    read: Callable[[Path, Sequence[Files]], None], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what, files = PARTS[part]
    if part == "what is packed" and read is of_docker:
        what = "nodes"
    spent = Counter[str]()
    with monkeypatch.context() as watched:
        watched.setattr(Budget, "spend", lambda self, name, amount: spent.update({name: amount}))
        read(tmp_path / "one", [files(0)])
    monkeypatch.setitem(budget.MOST, what, 2 * spent[what])
    read(tmp_path / "again", [files(0)])
    with pytest.raises(ImageError, match=f"^too_much: the image: all its parts together have more than .* {what}"):
        read(tmp_path / "all", [files(number) for number in range(5)])
    tally("an image of many small parts", 1, 0)


def test_a_manifest_that_names_one_layer_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    one = layer({f"opt/{number}": "" for number in range(50)})
    monkeypatch.setitem(budget.MOST, "nodes", 1000)
    archive.of_stream(io.BytesIO(docker_archive([one] * 3)))
    with pytest.raises(ImageError, match=r"^too_much"):
        archive.of_stream(io.BytesIO(docker_archive([one] * 30)))


@pytest.mark.parametrize("config", ["[" * 5000 + "]" * 5000, json.dumps({"a": [[]] * 5000}), json.dumps([0] * 10_000)])
def test_a_document_of_many_values_is_not_parsed(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(budget.MOST, "nodes", 1000)
    manifest = json.dumps([{"Config": "c.json", "Layers": []}])
    with pytest.raises(ImageError, match=r"^too_much"):
        archive.of_stream(io.BytesIO(layer({"manifest.json": manifest, "c.json": config})))


def header(text: bytes) -> bytes:
    """One of pax, which extends the header of the next file."""
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, len(text)
    return head.tobuf(tarfile.USTAR_FORMAT) + text + b"\0" * (-len(text) % tarfile.BLOCKSIZE)


@pytest.mark.parametrize("text", [b"5 a=\n" * 20_000, b"5 a=\n"], ids=["long", "short"])
def test_headers_of_no_file_are_spent_of_the_same_budget(text: bytes) -> None:
    """64 GiB of them, which pack to 64 MB, would take 11 hours to read."""
    spent = Budget({**budget.MOST, "nodes": 300}, lambda said: ImageError("too_much", said))
    won = 0
    try:
        [*tar.members(io.BytesIO(header(text) * 10), spent)]
        won = 1
    except ImageError as error:
        assert error.name in ("too_much", "bad_layer") and "without its mark" not in str(error)
    finally:
        tally("headers of an archive without a file", 1, won)
    with_names = io.BytesIO((header(b"13 path=abcd\n") + tarfile.TarInfo("y").tobuf()) * 9 + b"\0" * 1024)
    assert [one.path for one in tar.members(with_names, budget.of_image())] == ["abcd"] * 9


def test_one_place_in_many_sections_is_spent_each_time() -> None:
    """6 MB of sections that all are the same zeros took more than a minute, and pack to some KB."""
    sections, zeros = 400, 60_000
    names = b"\0.nv_fatbin\0"
    start = cubins._ELF.size
    table = [cubins._SECTION.pack(0, 3, 0, 0, start, len(names), 0, 0, 0, 0)]
    table += [cubins._SECTION.pack(1, 1, 0, 0, start + len(names), zeros, 0, 0, 0, 0)] * (sections - 1)
    at = start + len(names) + zeros
    head = cubins._ELF.pack(b"\x7fELF", 2, 1, 0, 62, 0, 0, 0, at, 0, 0, 0, 0, cubins._SECTION.size, sections, 0)
    file = io.BytesIO(head + names + b"\0" * zeros + b"".join(table))
    spent = Budget({**budget.MOST, "nodes": 10 * sections}, lambda said: ImageError("too_much", said))
    won = 0
    try:
        won = int(not cubins.of(file, spent))
    except ImageError as error:
        assert error.name == "too_much"
    tally("an ELF file of sections that are one", 1, won)
    assert not won


def test_a_line_of_a_build_is_read_once() -> None:
    """What a build says is of whoever wrote its source."""
    begun = time.process_time()
    assert progress.fault(["#1 error: " + "[" * 30_000]).verdict == "build_failed"
    taken = time.process_time() - begun  # it took 13 s, and of 250,000 characters a quarter of an hour
    tally("a line in the log of a build that holds up its reader", 1, int(taken > 3))
    assert taken < 3


FORGED = '{"versions": {}, "imports": {}, "operators": [[]], "libraries": {"x": 1}}'


@pytest.mark.parametrize(
    "said", ["{", "[" * 50_000, "7", '{"versions": 7}', FORGED], ids=["half", "deep", "number", "types", "inner"]
)
def test_an_image_that_answers_in_the_name_of_the_script_is_told_by_name(said: str) -> None:
    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(list(argv), 0, f"{inside.MARK}{said}\n", "")

    with pytest.raises(ImageError, match="did not run"):
        inside.ask("image", {"modules": [], "files": []}, run)


def test_an_image_that_is_looked_into_or_on_trial_ends_before_what_serves() -> None:
    """The model that serves is the first that the kernel ends: nothing beside it may take the memory with less."""
    ran: list[str] = []

    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        ran.extend(argv)
        said = json.dumps({"versions": {}, "imports": {}, "operators": [], "libraries": {}})
        return subprocess.CompletedProcess(list(argv), 0, f"{inside.MARK}{said}\n", "")

    inside.ask("image", {"modules": [], "files": []}, run)
    assert {"--memory=16g", "--oom-score-adj=1000", "--pids-limit=4096"} <= set(ran[: ran.index("image")])
    words = trial.argv("image", {"options": [], "model": "/m", "port": 1, "arguments": []})
    assert words[words.index("--oom-score-adj") + 1] == "1000"


def test_an_image_that_never_answers_is_ended() -> None:
    """It held the lock of builds for ever: no other build of that host was examined, served or settled."""
    now, removed = [0.0], list[str]()

    def run(argv: Sequence[str], watch: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
        if argv[1] == "rm":
            removed.append(argv[-1])
        else:
            assert argv[argv.index("--name") + 1] == inside.CONTAINER
            removed.clear()  # what an earlier run has left behind
            while watch is not None and not removed and now[0] < 10 * inside.LONGEST_S:
                now[0] += 1
                watch()
        return subprocess.CompletedProcess(list(argv), 137, "", "")

    with pytest.raises(ImageError, match="did not end within 900 s"):
        inside.ask("image", {"modules": [], "files": []}, run, lambda: now[0])
    won = int(removed != [inside.CONTAINER] or now[0] > inside.LONGEST_S + 1)
    tally("an image on trial that never answers holds up all builds", 1, won)
    assert not won


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {}, [], 5])
def test_what_is_no_text_in_a_configuration_is_no_fact(value: Any) -> None:
    """`gb10 image inspect --json` printed a NaN, which is no JSON."""
    found = facts.of("x", "archive", dict.fromkeys(("architecture", "os", "created", "config"), value), [])
    lost = any(found[name] is not None for name in ("architecture", "os", "created"))
    tally("an image makes an answer of ours no JSON", 1, int(lost))
    assert not lost and json.dumps(found, allow_nan=False)
