"""The cubin reader on ELF files that are made here, and on what is no such file."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.images import budget, cubins
from ansible_collections.gb10.fleet.plugins.module_utils.images.budget import of_image
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import fatbins
from tests.support.fatbins import CUBIN, LTO, PTX, A, F, elf, entry, extension, fat_binary, section

_NAMES = {"not_elf", "foreign_elf", "truncated", "bad_elf", "bad_fatbin", "too_many"}
_WHOLE = elf([
    (".nv_fatbin", section(
        fat_binary(entry(80), entry(80, PTX, compressed=True), entry(120), entry(120, suffix=A)),
        fat_binary(entry(120, suffix=F, compressed=True), entry(100, LTO)),
    )),
    ("__nv_relfatbin", section(fat_binary(entry(90, suffix=A)))),
    (".nvFatBinSegment", bytes(48)),
])  # fmt: skip


def of_bytes(content: bytes) -> cubins.Code:
    return cubins.of(io.BytesIO(content), of_image())


def _error(content: bytes) -> str:
    with pytest.raises(cubins.CubinError) as caught:
        of_bytes(content)
    return caught.value.name


def test_kinds_architectures_and_suffixes_are_counted() -> None:
    code = of_bytes(_WHOLE)
    assert code.cubins == {"sm_80": 1, "sm_120": 1, "sm_120a": 1, "sm_120f": 1, "sm_90a": 1}
    assert code.ptx == {"compute_80": 1}
    assert (code.compressed, code.entries) == (2, 7)


def test_a_file_without_gpu_code_is_no_error() -> None:
    assert not of_bytes(elf([(".text", b"\xc3")]))


@pytest.mark.parametrize(
    ("abi", "flags", "name"),
    [
        (7, 0x570557, "sm_87"),
        (7, 0x5A0D5A, "sm_90a"),
        (8, 0x6007802, "sm_120"),
        (8, 0x600780A, "sm_120a"),
        (8, 0x6005A04, "sm_90a"),
    ],
)
def test_a_cubin_by_itself_says_its_architecture(abi: int, flags: int, name: str) -> None:
    assert of_bytes(elf(machine=190, flags=flags, abi=abi)).cubins == {name: 1}


def test_more_sections_than_the_header_can_count() -> None:
    content = bytearray(_WHOLE)
    table = struct.unpack_from("<Q", content, 40)[0]
    count, names = struct.unpack_from("<HH", content, 60)
    struct.pack_into("<HH", content, 60, 0, 0xFFFF)
    struct.pack_into("<Q", content, table + 32, count)
    struct.pack_into("<I", content, table + 40, names)
    assert of_bytes(bytes(content)) == of_bytes(_WHOLE)


def _of_header(offset: int, layout: str, value: int) -> bytes:
    content = bytearray(_WHOLE)
    struct.pack_into(layout, content, offset, value)
    return bytes(content)


def _hostile() -> Iterator[tuple[str, str, bytes]]:
    one = fat_binary(entry(120))
    yield "no ELF", "not_elf", b"#!/bin/sh\n"
    yield "nothing", "not_elf", b""
    yield "half a header", "truncated", _WHOLE[:40]
    yield "32 bits", "foreign_elf", _of_header(4, "<B", 1)
    yield "big endian", "foreign_elf", _of_header(5, "<B", 2)
    yield "no section headers", "bad_elf", _of_header(40, "<Q", 0)
    yield "section headers behind the end", "truncated", _of_header(40, "<Q", 1 << 62)
    yield "section headers of another size", "bad_elf", _of_header(58, "<H", 40)
    yield "names in no section", "bad_elf", _of_header(62, "<H", 200)
    yield "no fat binary", "bad_fatbin", elf([(".nv_fatbin", b"\1" * 64)])
    yield "half a fat binary", "bad_fatbin", elf([(".nv_fatbin", one[:-8])])
    yield "a header only", "bad_fatbin", elf([(".nv_fatbin", one[:9])])
    yield "an entry that ends behind", "bad_fatbin", elf([(".nv_fatbin", fat_binary(entry(120)[:-8]))])
    yield "an entry too small for its header", "bad_fatbin", elf([(".nv_fatbin", fat_binary(bytes(32)))])
    yield "a header of no bytes", "bad_fatbin", elf([(".nv_fatbin", fat_binary(bytes(128)))])
    yield "a size that goes back", "bad_fatbin", elf([
        (".nv_fatbin", fat_binary(struct.pack("<HHIQ", CUBIN, 1, 64, 2**64 - 128) + bytes(112)))
    ])  # fmt: skip
    yield "no architecture", "bad_fatbin", extension(entry(2**31))
    yield "endless zeros", "bad_fatbin", elf([(".nv_fatbin", one + bytes(cubins.MOST_PADDING * 2) + one)])


@pytest.mark.parametrize(("name", "content"), [pytest.param(*rest, id=title) for title, *rest in _hostile()])
def test_what_is_wrong_has_a_name(name: str, content: bytes) -> None:
    assert _error(content) == name


def test_a_file_of_nothing_but_entries_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(budget.MOST, "nodes", 50)
    for content in (extension(*[entry(120)] * 60), elf([(".nv_fatbin", section(*[fat_binary()] * 60, align=16))])):
        with pytest.raises(ImageError, match="too_much"):
            of_bytes(content)


def test_a_section_beside_the_names_is_passed_over() -> None:
    content = bytearray(fatbins.elf([(".nv_fatbin", section(fat_binary(entry(120))))]))
    table = struct.unpack_from("<Q", content, 40)[0]
    struct.pack_into("<I", content, table + 64, 2**31)  # its name is nowhere
    assert not of_bytes(bytes(content))


def test_a_file_that_shrinks_meanwhile_is_truncated() -> None:
    class Shrinking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(size) if self.tell() < 300 else b""

    with pytest.raises(cubins.CubinError, match=r"^truncated: it has become shorter"):
        cubins.of(Shrinking(_WHOLE), of_image())


class Counted:
    def __init__(self, file: io.FileIO) -> None:
        self.file, self.seek, self.tell, self.read_bytes = file, file.seek, file.tell, 0

    def read(self, size: int) -> bytes:
        self.read_bytes += size
        return self.file.read(size)


def test_only_headers_of_a_big_file_are_read(tmp_path: Path) -> None:
    """500 MB of 100 cubins: what is read, and so time and memory, does not grow with the payloads."""
    payload = 5_000_000
    one = bytearray(fat_binary(entry(120, payload=b"", compressed=True)))
    struct.pack_into("<Q", one, 8, 64 + payload)
    struct.pack_into("<Q", one, 16 + 8, payload)
    small = elf([(".nv_fatbin", b"")])
    file, size = tmp_path / "big.so", 100 * (len(one) + payload)
    with file.open("wb") as out:  # sparse: the payloads are holes
        for number in range(100):
            out.seek(4096 + number * (len(one) + payload))
            out.write(one)
        headers = bytearray(small[struct.unpack_from("<Q", small, 40)[0] :])
        struct.pack_into("<QQ", headers, 64 + 24, 4096, size)
        out.seek(0)
        head = bytearray(small[: -len(headers)])
        struct.pack_into("<Q", head, 40, 4096 + size)
        out.write(head)
        out.seek(4096 + size)
        out.write(headers)
    with file.open("rb", buffering=0) as opened:
        counted = Counted(opened)
        assert cubins.of(counted, of_image()).cubins == {"sm_120": 100}  # type: ignore[arg-type]
    assert file.stat().st_size > 500_000_000
    assert counted.read_bytes < 200_000


@settings(max_examples=100)
@given(st.integers(0, len(_WHOLE) - 1))
def test_half_a_file_is_an_error_with_a_name(length: int) -> None:
    assert _error(_WHOLE[:length]) in _NAMES


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, len(_WHOLE) - 8), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6))
def test_a_spoiled_file_is_read_or_named(spots: list[tuple[int, bytes]]) -> None:
    content = bytearray(_WHOLE)
    for at, spot in spots:
        content[at : at + len(spot)] = spot
    try:
        of_bytes(bytes(content))
    except cubins.CubinError as error:
        assert error.name in _NAMES


@settings(max_examples=100)
@given(st.binary(max_size=400))
def test_any_bytes_as_fat_binaries_are_read_or_named(content: bytes) -> None:
    for body in (content, fat_binary(content)):
        try:
            of_bytes(elf([(".nv_fatbin", body)]))
        except cubins.CubinError as error:
            assert error.name in _NAMES
