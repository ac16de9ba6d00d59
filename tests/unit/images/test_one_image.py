"""What of a peer's archive reaches Docker: one image, under our name."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.images import one_image
from ansible_collections.gb10.fleet.plugins.module_utils.images.budget import MOST
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.images.layer_sizes import unpacked_bytes
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError

from tests.support.attacker import tally
from tests.support.images import Content, docker_archive, layer, old_archive

NAME, OTHER = "gb10-fleet/vllm:0123456789ab", "portainer/agent:latest"
BODY = layer({"usr/bin/vllm": "#!/bin/sh\n"})
HEX = "0" * 64
INDEX: dict[str, Any] = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": f"sha256:{HEX}", "size": 5}
EVIL = {"Config": "c", "RepoTags": [OTHER], "Layers": []}


def loaded(tmp_path: Path, archive: bytes) -> dict[str, bytes]:
    """What a Docker that keeps its input has got."""
    (tmp_path / "archive").write_bytes(archive)
    kept = "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, open(sys.argv[1], 'wb'))"
    one_image.load(tmp_path / "archive", NAME, (sys.executable, "-c", kept, str(tmp_path / "kept")))
    with tarfile.open(tmp_path / "kept") as came:
        files = {each.name: came.extractfile(each) for each in came.getmembers() if each.isfile()}
        links = {each.name: each.linkname.encode() for each in came.getmembers() if each.issym()}
        return {**links, **{name: body.read() for name, body in files.items() if body}}


def packed(**files: Any) -> bytes:
    """With `_` for the dot in a name; what is no text is JSON."""
    said: dict[str, Content] = {
        name.replace("_", "."): body if isinstance(body, (str, bytes)) else json.dumps(body)
        for name, body in files.items()
    }
    return layer({**said, f"blobs/sha256/{HEX}": BODY})


def test_the_image_comes_whole_and_has_our_name(tmp_path: Path) -> None:
    for archive in (docker_archive([BODY]), old_archive([BODY]), docker_archive([BODY], last=False)):
        came = loaded(tmp_path, archive)
        (said,) = json.loads(came["manifest.json"])
        assert said["RepoTags"] == [NAME] and [came[path] for path in said["Layers"]] == [BODY]
        assert json.loads(came[said["Config"]])["os"] == "linux" and "repositories" not in came


def test_a_layer_that_is_there_twice_comes_as_a_link(tmp_path: Path) -> None:
    one, two = (f"{digit * 64}/layer.tar" for digit in "12")
    manifest = [{"Config": "c", "RepoTags": None, "Layers": [one, two]}]
    came = loaded(
        tmp_path, layer({one: BODY, two: ("link", f"../{one}"), "manifest.json": json.dumps(manifest), "c": "{}"})
    )
    assert came[two] == f"../{one}".encode() and came[one] == BODY


def test_in_the_oci_layout_it_has_our_name_as_well(tmp_path: Path) -> None:
    theirs = {**INDEX, "annotations": {"io.containerd.image.name": f"docker.io/{OTHER}"}, "Annotations": {"x": "y"}}
    came = loaded(tmp_path, packed(**{"index_json": {"manifests": [theirs]}, "oci-layout": "{}"}))
    (said,) = json.loads(came["index.json"])["manifests"]
    assert said == {
        **INDEX,
        "annotations": {
            "io.containerd.image.name": f"docker.io/{NAME}",
            "org.opencontainers.image.ref.name": NAME.partition(":")[2],
        },
    }


ONE = {"Config": "c", "RepoTags": [NAME], "Layers": []}
ATTACKS = {
    "a second image": packed(manifest_json=[ONE, EVIL]),
    "a second name": packed(manifest_json=[{**ONE, "RepoTags": [NAME, OTHER]}]),
    "a key in another case": packed(manifest_json=[{**ONE, "repotags": [OTHER]}]),
    "the list of old": packed(manifest_json=[ONE], repositories={"portainer/agent": {"latest": HEX}}),
    "the list of old alone": packed(repositories={"portainer/agent": {"latest": HEX}}),
    "a second image in the layout": packed(index_json={"manifests": [INDEX, INDEX]}),
    "its name in the layout": packed(index_json={"manifests": [{**INDEX, "annotations": {"ref": OTHER}}]}),
    "a list behind the list": layer({"manifest.json": json.dumps([ONE])})[:-10240]
    + layer({"./x/../manifest.json": json.dumps([EVIL])}),
    "a list that is a link": layer({"evil": json.dumps([EVIL]), "manifest.json": ("link", "evil")}),
    "a list that is a hard link": layer({"evil": "[]", "manifest.json": ("hard link", "evil")}),
    "a folder that is a link to the top": layer({
        "x": ("link", "."), "manifest.json": json.dumps([ONE]), "x/manifest.json": json.dumps([EVIL])
    }),
    "a link as a layer": layer({f"{HEX}/layer.tar": ("link", "../../../etc"), "manifest.json": json.dumps([ONE])}),
    "no list": packed(),
    "no tar": b"\x1f\x8b",
}  # fmt: skip


def test_no_other_name_reaches_docker(tmp_path: Path) -> None:
    won = []
    for what, archive in ATTACKS.items():
        try:
            came = loaded(tmp_path, archive)
        except FilesError as error:
            assert error.verdict == "image_differs"
            continue
        lists = b"".join(body for name, body in came.items() if name in ("manifest.json", "index.json"))
        if OTHER.encode() in lists or {"repositories"} & came.keys():
            won.append(what)
    tally("an archive of a peer names another image", len(ATTACKS), len(won))
    assert won == []


def test_of_an_archive_that_is_refused_docker_sees_no_end(tmp_path: Path) -> None:
    """Else it would take what came before the fault."""
    whole = tmp_path / "whole"
    (tmp_path / "archive").write_bytes(packed(manifest_json=[ONE, EVIL]))
    ends = "import sys; sys.stdin.buffer.read(); open(sys.argv[1], 'w')"
    with pytest.raises(FilesError, match="image_differs"):
        one_image.load(tmp_path / "archive", NAME, (sys.executable, "-c", ends, str(whole)))
    assert not whole.exists()


def bomb(*, packed_with: str = "gz", times: int = 1) -> bytes:
    """A layer of 40 MiB in some KiB."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode=f"w:{packed_with}") as made:
        zeros = tarfile.TarInfo("zeros")
        zeros.size = 40 << 20
        made.addfile(zeros, io.BytesIO(bytes(zeros.size)))
    return docker_archive([raw.getvalue()] * times)


def sparse() -> bytes:
    """A file of 1 TiB that says so in 20 bytes."""
    hole = tarfile.TarInfo("hole")
    hole.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 40)}
    return docker_archive([hole.tobuf(tarfile.PAX_FORMAT) + bytes(1024)])


def hidden(first: bytes) -> bytes:
    """A file of 40 MiB behind what a reader may take for its size, or for a member that has none."""
    zeros = tarfile.TarInfo("zeros")
    zeros.size = 40 << 20
    return docker_archive([first + zeros.tobuf(tarfile.USTAR_FORMAT) + bytes(zeros.size + 1024)])


def extended(**records: str) -> bytes:
    """A header of pax that extends the next one."""
    made = tarfile.TarInfo("x")
    made.pax_headers = records
    return made.tobuf(tarfile.PAX_FORMAT)[: -tarfile.BLOCKSIZE]


def pax_for_all() -> bytes:
    return tarfile.TarInfo.create_pax_global_header({"comment": "x"})


def other(name: str, kind: bytes) -> bytes:
    """A header that is no file's for Python, with a size: Go reads a body there, and we would read headers."""
    made = tarfile.TarInfo(name)
    made.type, made.size = kind, 41 << 20
    return made.tobuf(tarfile.USTAR_FORMAT)


def lists(number: int) -> bytes:
    """Documents with a list of layers each, of many short names."""
    document = json.dumps({"Layers": ["ab"] * 200_000}, separators=(",", ":"))
    return layer({f"{at}.json": document for at in range(number)} | {"manifest.json": json.dumps([ONE])})


def test_what_an_archive_unpacks_to_is_counted_before_docker_gets_it(tmp_path: Path) -> None:
    """A peer that filled the disk: `need_room` believed the length of what had come."""
    path, won = tmp_path / "archive", []
    tries = (
        *(("packed", bomb(), 40), ("three times", bomb(times=3), 120), ("sparse", sparse(), 1 << 20)),
        # Go takes the last of two headers of pax, and drops one before a header that is for all.
        ("a size, and another header", hidden(extended(size="0") + extended(comment="x")), 40),
        ("a size before what is for all", hidden(extended(size="0") + pax_for_all()), 40),
        *((f"a body of {name!r}", hidden(other(name, kind)), 1 << 20) for name, kind in (("x", b"S"), ("x/", b"\0"))),
        ("lists that take sixteen times their text", lists(20), 1 << 20),
        ("empty files", docker_archive([layer({f"{at:x}": "" for at in range(3000)})]), 40),
    )
    for what, archive, least in tries:
        path.write_bytes(archive)
        with contextlib.suppress(ImageError):
            if unpacked_bytes(path) < least << 20:
                won.append(what)
    tally("an archive of a peer takes more of the disk than it says", len(tries), len(won))
    assert won == []
    path.write_bytes(docker_archive([BODY]))
    assert 4096 <= unpacked_bytes(path) <= 32768


def test_an_image_that_does_not_fit_does_not_reach_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "archive").write_bytes(bomb())
    monkeypatch.setattr(one_image, "unpacked_bytes", lambda _path: 1 << 60)
    with pytest.raises(FilesError, match="disk_full"):
        one_image.load(tmp_path / "archive", NAME, ("touch", str(tmp_path / "began")))
    assert not (tmp_path / "began").exists()


@pytest.mark.parametrize("archive", [docker_archive([BODY, BODY]), old_archive([BODY])], ids=["new", "old"])
def test_more_than_an_image_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: bytes) -> None:
    (tmp_path / "archive").write_bytes(archive)
    monkeypatch.setitem(MOST, "bytes", 4095)
    with pytest.raises(FilesError, match="image_differs"):
        one_image.load(tmp_path / "archive", NAME, ("true",))


def test_what_docker_says_is_told(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(docker_archive([BODY]))
    with pytest.raises(FilesError, match=r"failed: .*no space left"):
        one_image.load(tmp_path / "archive", NAME, ("sh", "-c", "echo no space left >&2; exit 1"))


def test_a_name_that_is_long_and_a_file_of_no_length(tmp_path: Path) -> None:
    name = f"blobs/{'x' * 300}"
    came = loaded(tmp_path, layer({name: "", "manifest.json": json.dumps([ONE])}))
    assert came[name] == b"" and io.BytesIO(came["manifest.json"]).read(1) == b"["
