"""The image is well formed, and the server delivers it as a registry does."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.vendor import oci
from lab.vendor.__main__ import endpoint
from lab.vendor.server import Server, make_server


def debian_root(path: Path) -> Path:
    with tarfile.open(path, "w") as archive:
        for name in ("./usr/bin/python3", "./usr/share/doc/python3/README"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"text"))
    return path


@pytest.fixture(name="tree")
def fixture_tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "apt/pool").mkdir(parents=True)
    (tree / "apt/pool/a_1%3a2.deb").write_text("deb")
    (tmp_path / "secret").write_text("secret")
    (tree / "image").write_text(oci.build(tree / "registry", debian_root(tmp_path / "root.tar"), "arm64"))
    return tree


@pytest.fixture(name="server")
def fixture_server(tree: Path) -> Iterator[Server]:
    server = make_server(tree, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(server: Server, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    connection.request(method, path)
    response = connection.getresponse()
    answer = response.status, dict(response.getheaders()), response.read()
    connection.close()
    return answer


def test_layer_is_trimmed_and_has_the_program(tree: Path) -> None:
    manifest = json.loads(
        (tree / "registry" / oci.NAME / "manifests" / (tree / "image").read_text().partition("@")[2]).read_text()
    )
    blobs = tree / "registry" / oci.NAME / "blobs"
    plain = gzip.decompress((blobs / manifest["layers"][0]["digest"]).read_bytes())
    config = json.loads((blobs / manifest["config"]["digest"]).read_text())
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(plain).hexdigest()]
    assert config["config"]["Entrypoint"] == ["vllm", "serve"]
    assert config["architecture"] == "arm64"
    with tarfile.open(fileobj=io.BytesIO(plain)) as layer:
        assert layer.getnames() == [
            "./usr/bin/python3",
            "usr/bin/vllm",
            "usr/lib/python3/dist-packages/huggingface_hub.py",
            "usr/lib/python3/dist-packages/vllm/__init__.py",
            "usr/bin/ray",
            "usr/lib/python3/dist-packages/ray/__init__.py",
            f"usr/lib/python3/dist-packages/ray-{oci.RAY}.dist-info/METADATA",
        ]
        assert layer.getmember("usr/bin/vllm").mode == 0o755


def test_same_input_gives_the_same_image(tmp_path: Path) -> None:
    root = debian_root(tmp_path / "root.tar")
    assert oci.build(tmp_path / "one", root, "amd64") == oci.build(tmp_path / "two", root, "amd64")


def test_there_is_a_new_image_to_move_to(tree: Path) -> None:
    manifests = tree / "registry" / oci.NAME / "manifests"
    old, new = (json.loads((manifests / (manifests / tag).read_text()).read_text()) for tag in (oci.TAG, oci.REBUILT))
    assert old["config"] != new["config"]
    assert old["layers"] == new["layers"], "a host fetches next to nothing"


def test_pull_by_tag_then_by_digest(server: Server) -> None:
    assert ask(server, "/v2/")[0] == 200
    status, head, body = ask(server, f"/v2/{oci.NAME}/manifests/{oci.TAG}", "HEAD")
    assert (status, body) == (200, b"")
    assert head["Content-Type"] == oci.MANIFEST_TYPE
    digest = head["Docker-Content-Digest"]

    _, _, manifest = ask(server, f"/v2/{oci.NAME}/manifests/{digest}")
    assert len(manifest) == int(head["Content-Length"])
    for part in (json.loads(manifest)["config"], *json.loads(manifest)["layers"]):
        status, _, blob = ask(server, f"/v2/{oci.NAME}/blobs/{part['digest']}")
        assert status == 200
        assert (len(blob), "sha256:" + hashlib.sha256(blob).hexdigest()) == (part["size"], part["digest"])


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"/v2/{oci.NAME}/manifests/9.9", "MANIFEST_UNKNOWN"),
        (f"/v2/{oci.NAME}/blobs/sha256:00", "BLOB_UNKNOWN"),
        ("/v2/other/manifests/latest", "MANIFEST_UNKNOWN"),
        ("/v2/_catalog", "NAME_UNKNOWN"),
    ],
)
def test_unknown_references(server: Server, path: str, code: str) -> None:
    status, _, body = ask(server, path)
    assert (status, json.loads(body)["errors"][0]["code"]) == (404, code)


def test_apt_decodes_the_path_once(server: Server) -> None:
    assert ask(server, "/apt/pool/a_1%253a2.deb")[2] == b"deb"


@pytest.mark.parametrize("path", ["/apt/../image", "/apt/../../secret", "/apt/%2e%2e/%2e%2e/secret", "/apt/", "/image"])
def test_nothing_beside_the_two_trees(server: Server, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_writing_is_refused(server: Server) -> None:
    assert ask(server, f"/v2/{oci.NAME}/blobs/uploads/", "POST")[0] == 501


def test_endpoint_wants_address_and_port() -> None:
    assert endpoint("127.0.0.1:80") == ("127.0.0.1", 80)
    with pytest.raises(Exception, match="ADDRESS:PORT"):
        endpoint("8080")
