"""What is left of the files of layers, and tar archives as streams: Python's tarfile is the measure."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.images import budget, layers, tar
from ansible_collections.gb10.fleet.plugins.module_utils.images.budget import of_image
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.images.streams import unpacked
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.fatbins import entry, extension
from tests.support.images import Files, layer

_CODE = extension(entry(120))
_SO = "opt/vllm/_C.abi3.so"


def of_archive(body: bytes) -> layers.Layer:
    return layers.of_archive(io.BytesIO(body), of_image())


def _shown(*files: Files) -> set[str]:
    return set(layers.shown([of_archive(layer(each)) for each in files]))


@pytest.mark.parametrize(
    ("above", "stays"),
    [
        ({"opt/other": "x"}, True),
        ({"opt/vllm/": None}, True),
        ({"opt/.wh.vllm": ""}, False),
        ({"opt/vllm/.wh._C.abi3.so": ""}, False),
        ({"opt/vllm/.wh._C.abi": ""}, True),
        ({"opt/vllm/.wh..wh..opq": ""}, False),
        ({".wh..wh..opq": ""}, False),
        ({"opt/.wh..wh.plnk": ""}, True),
        ({"opt": ("link", "/srv")}, False),
        ({_SO: "no code any more"}, False),
        ({"./opt/vllm/../vllm/.wh._C.abi3.so": ""}, False),
    ],
)
def test_a_layer_hides_what_is_below(above: Files, stays: bool) -> None:
    assert (_SO in _shown({_SO: _CODE}, above)) is stays
    assert _SO in _shown(above, {_SO: _CODE})


def test_a_file_of_an_emptied_folder_shows_if_the_layer_has_it_itself() -> None:
    assert _shown({_SO: _CODE, "opt/vllm/old.so": _CODE}, {"opt/vllm/.wh..wh..opq": "", _SO: _CODE}) == {_SO}


def test_a_hard_link_is_the_file() -> None:
    files: Files = {"root/.cache/uv/a.so": _CODE, _SO: ("hard link", "root/.cache/uv/a.so")}
    assert _shown(files, {"root/.wh..cache": ""}) == {_SO}


def test_a_code_file_that_is_spoiled_says_so() -> None:
    found = of_archive(layer({_SO: _CODE[:-1]}))
    assert found.seen[_SO].error.startswith("truncated")


def test_a_big_file_of_a_stream_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers.places, "SMALL", 10)
    seen = of_archive(layer({_SO: _CODE})).seen[_SO]
    assert seen.code and seen.code.cubins == {"sm_120": 1}


def test_folders_of_overlay2_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / _SO
    file.parent.mkdir(parents=True)
    file.write_bytes(_CODE)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "nccl.conf").write_text("NCCL_DEBUG=WARN\n")
    (tmp_path / "link.so").symlink_to("/etc/shadow")
    os.mkfifo(tmp_path / "pipe.so")
    found = layers.of_folder(tmp_path, of_image())
    assert set(found.seen) == {_SO, "etc/nccl.conf"}
    assert found.seen[_SO] == of_archive(layer({_SO: _CODE})).seen[_SO]
    assert {"link.so", "pipe.so"} < found.taken


@pytest.mark.skipif(os.geteuid() != 0, reason="whiteouts of overlay2 are device files")
def test_whiteouts_of_overlay2(tmp_path: Path) -> None:
    os.mknod(tmp_path / "gone", 0o020000, 0)
    (tmp_path / "emptied").mkdir()
    try:
        os.setxattr(tmp_path / "emptied", "trusted.overlay.opaque", b"y")
    except OSError:
        pytest.skip("no attributes of overlay2 here")
    found = layers.of_folder(tmp_path, of_image())
    assert (found.gone, found.emptied, found.taken) == ({"gone"}, {"emptied"}, set())


# -- streams


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, lambda body: gzip.compress(body[:700]) + gzip.compress(body[700:])]
)
def test_a_packed_layer_is_unpacked(pack: type[bytes]) -> None:
    body = layer({_SO: _CODE, "etc/nccl.conf": os.urandom(1_200_000)})
    assert set(of_archive(pack(body)).seen) == {_SO, "etc/nccl.conf"}


def test_half_of_what_gzip_packed_is_an_error() -> None:
    body = gzip.compress(layer({_SO: _CODE}))
    with pytest.raises(ImageError, match=r"^bad_layer: gzip does not unpack it"):
        of_archive(body[:-20])


@pytest.mark.skipif(shutil.which("zstd") is None, reason="needs the command zstd")
@pytest.mark.parametrize("spoiled", [False, True])
def test_zstd(spoiled: bool) -> None:
    body = layer({_SO: _CODE, "big.so": os.urandom(1_200_000)})
    packed = subprocess.run(["zstd", "-qc"], input=body, stdout=subprocess.PIPE, check=True).stdout
    if not spoiled:
        assert set(of_archive(packed).seen) == {_SO}
        return
    with pytest.raises(ImageError, match=r"^bad_layer"):
        of_archive(packed[:-2000])


def test_zstd_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ImageError, match=r"^no_tool.*install zstd"):
        of_archive(b"\x28\xb5\x2f\xfd rest")


_NAMES = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=300)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(_NAMES, st.binary(max_size=1500)), max_size=6),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
)
def test_members_are_those_of_tarfile(files: list[tuple[str, bytes]], form: int) -> None:
    body = layer(dict(files), format=form)
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        wanted = [(tar.plain(each.name), each.size) for each in archive]
    found = [(each.path, each.size) for each in tar.members(io.BytesIO(body), of_image())]
    assert found == wanted
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        bodies = [archive.extractfile(each).read() for each in archive]  # type: ignore[union-attr]
    assert [each.body.read(2000) for each in tar.members(io.BytesIO(body), of_image())] == bodies


_WHOLE = layer({"a" * 200: b"x" * 600, _SO: _CODE, "link": ("link", "a")}, format=tarfile.PAX_FORMAT)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, len(_WHOLE) - 1), st.binary(min_size=1, max_size=20)), max_size=4), st.booleans()
)
def test_a_spoiled_archive_is_read_or_named(spots: list[tuple[int, bytes]], packed: bool) -> None:
    body = bytearray(gzip.compress(_WHOLE, mtime=0) if packed else _WHOLE)
    for at, spot in spots:
        body[at % len(body) : at % len(body) + len(spot)] = spot
    try:
        of_archive(bytes(body))
    except ImageError as error:
        assert error.name in ("bad_layer", "no_tool")


@settings(max_examples=60)
@given(st.integers(1, len(_WHOLE.rstrip(b"\0"))))
@example(512)
@example(len(_WHOLE.rstrip(b"\0")) // 512 * 512)  # between two members
def test_half_an_archive_is_an_error(length: int) -> None:
    with pytest.raises(ImageError, match=r"^bad_layer: the archive ends"):
        of_archive(_WHOLE[:length])


def test_a_header_of_a_gigabyte_is_refused() -> None:
    member = tarfile.TarInfo("pax")
    member.type, member.size = b"x", 1 << 30
    with pytest.raises(ImageError, match=r"^bad_layer.*1073741824 bytes"):
        of_archive(member.tobuf())


def test_a_bomb_is_unpacked_in_pieces() -> None:
    """Zeros that pack well: no read gives more than it was asked for."""
    bomb = gzip.compress(bytes(8 << 20))
    with unpacked(io.BytesIO(bomb), of_image()) as stream:
        assert {len(stream.read(1 << 20)) for _ in range(8)} == {1 << 20}
        assert stream.read(1) == b""


@pytest.mark.parametrize(
    ("what", "least", "files"),
    [
        ("nodes", 3, {f"opt/{number}": "" for number in range(4)}),
        ("characters", 100, {f"opt/{'x' * 60}{number}": "" for number in range(2)}),
        ("characters", 200, {f"opt/{number}.dist-info/METADATA": "x" * 50 for number in range(3)}),
        ("nodes", 10, {_SO: extension(*[entry(120)] * 20)}),
    ],
)
def test_an_archive_of_nothing_but_names_ends(
    monkeypatch: pytest.MonkeyPatch, what: str, least: int, files: Files
) -> None:
    archive = layer(files)
    assert len(of_archive(archive).taken) == len(files)
    monkeypatch.setitem(budget.MOST, what, least)
    with pytest.raises(ImageError, match=f"^too_much: .* {what}"):
        of_archive(archive)


def test_a_name_that_linux_does_not_open_is_refused() -> None:
    with pytest.raises(ImageError, match=r"^bad_layer: .* name of 5000 characters"):
        of_archive(layer({"x" * 5000: ""}))


def test_a_library_that_would_fill_the_disk_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers.places, "SMALL", 10)
    monkeypatch.setattr(layers.places, "MOST_CODE", 100)
    monkeypatch.setattr(layers.places, "_WORK", "/nowhere")
    seen = of_archive(layer({_SO: _CODE})).seen[_SO]
    assert seen.error.startswith("too_many: ") and seen.code is None
