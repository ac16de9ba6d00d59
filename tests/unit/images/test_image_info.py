"""An image as archive, as OCI folder and in Docker: the same facts, and errors with a name."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.images import archive, budget, docker, facts
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError

from tests.support.fatbins import entry, extension
from tests.support.fitting import misfit
from tests.support.images import CONFIG, SITE, docker_archive, layer, oci_folder, old_archive, package, vllm

BASE = layer({
    "etc/nccl.conf": "# tuned\nNCCL_IB_TC=106\n\n",
    "usr/local/cuda-12.9/version.json": '{"cuda": {"version": "12.9.1"}}',
    "usr/local/cuda-13.0/version.json": '{"cuda": {"version": "13.0.2"}}',
    "usr/lib/aarch64-linux-gnu/libnccl.so.2.27.3": "no ELF",
    **package("ray", "2.53.0"),
    **package("transformers", "4.57.0", site="usr/lib/python3/dist-packages"),
    "root/.triton/cache/abc/kernel.cubin": extension(entry(121)),
})  # fmt: skip
TOP = layer({f"{SITE}/.wh.ray-2.53.0.dist-info": "", **vllm()})


def _of(body: bytes) -> dict[str, Any]:
    image = archive.of_stream(io.BytesIO(body))
    return facts.of("lab", "archive", image.config, image.layers)


@pytest.fixture(scope="module")
def read() -> dict[str, Any]:
    return _of(docker_archive([BASE, TOP]))


def test_versions_and_configuration(read: dict[str, Any]) -> None:
    assert read["versions"] == {
        "vllm": "0.33.0",
        "torch": "2.11.0",
        "transformers": "5.2.0",  # vLLM's neighbour, not Debian's
        "ray": None,  # the upper layer has removed it
        "flashinfer": "0.7.1",
        "triton": None,
        "cuda": "13.0.2",
        "torch_cuda": "13.0",
        "nccl": "2.28.9",
        "python": "3.12",
    }
    assert read["entrypoint"] == ["vllm", "serve"] and read["user"] == "1000" and read["architecture"] == "arm64"
    assert read["environment"] == {"PATH": "/usr/bin", "HF_TOKEN": facts.HIDDEN}
    assert read["vllm_requires"][0] == "transformers<6,>=4.56.0"
    assert read["nccl"] == {
        "libraries": [{"path": "/usr/lib/aarch64-linux-gnu/libnccl.so.2.27.3", "version": "2.27.3"}],
        "conf": {"/etc/nccl.conf": ["NCCL_IB_TC=106"]},
    }
    assert read["layers"] == 2 and json.loads(json.dumps(read)) == read


def test_extensions_and_caches(read: dict[str, Any]) -> None:
    found = {each["name"]: each for each in read["extensions"]}
    assert set(found) == {"_C_stable_libtorch", "_moe_C_stable_libtorch", "norm", "kernel"}
    assert found["_C_stable_libtorch"] == {
        "path": f"/{SITE}/vllm/_C_stable_libtorch.abi3.so",
        "name": "_C_stable_libtorch",
        "owner": "vllm",
        "bytes": found["_C_stable_libtorch"]["bytes"],
        "cubins": {"sm_120": 1, "sm_120f": 1, "sm_90": 1},
        "ptx": {"compute_80": 1},
        "compressed": 0,
        "error": None,
    }
    assert found["norm"]["owner"] == "FlashInfer AOT"
    caches = {each["name"]: (each["folder"], each["files"], each["cubins"]) for each in read["caches"]}
    assert caches == {
        "FlashInfer AOT": (f"/{SITE}/flashinfer_jit_cache", 1, {"sm_121a": 1}),
        "Triton": ("/root/.triton/cache", 1, {"sm_121": 1}),
    }


def test_every_way_to_keep_an_image_says_the_same(read: dict[str, Any], tmp_path: Path) -> None:
    packed = [gzip.compress(each, mtime=0) for each in (BASE, TOP)]
    for body in (
        docker_archive([BASE, TOP], last=False),
        docker_archive(packed),
        old_archive([BASE, TOP]),
        gzip.compress(docker_archive([BASE, TOP])),
    ):
        assert _of(body) == read
    file = tmp_path / "image.tar"
    file.write_bytes(docker_archive([BASE, TOP]))
    of_file = docker.of_path(file)
    assert of_file["names"] == ["lab/vllm:1"] and of_file["source"] == "archive"
    of_folder = docker.of_path(oci_folder(tmp_path / "oci", [BASE, TOP]))
    assert of_folder["source"] == "OCI folder" and of_folder["digests"][0].startswith("sha256:")
    same = set(read) - {"reference", "source"}
    assert {key: of_file[key] for key in same} == {key: of_folder[key] for key in same} == {k: read[k] for k in same}


def test_a_layer_twice_in_an_old_archive() -> None:
    assert _of(old_archive([TOP, BASE, TOP]))["layers"] == 3


def test_an_image_without_vllm_or_configuration_has_absent_facts() -> None:
    read = _of(docker_archive([layer({"bin/sh": "x"})], {}))
    assert set(read["versions"].values()) == {None}
    assert read["extensions"] == read["caches"] == read["vllm_folders"] == read["entrypoint"] == []


def test_a_password_in_an_address_is_hidden() -> None:
    words = ["PIP_INDEX_URL=https://me:sesame@mirror.test/simple", "A_PASSWORD_FILE=/x", "HF_TOKEN_2=sesame"]
    inside = {"Env": words, "Cmd": ["--proxy", "http://sesame@proxy.test:1"]}
    read = _of(docker_archive([BASE], {"config": inside}))
    assert read["environment"]["PIP_INDEX_URL"] == f"https://{facts.HIDDEN}@mirror.test/simple"
    assert read["command"] == ["--proxy", f"http://{facts.HIDDEN}@proxy.test:1"]
    assert "sesame" not in json.dumps(read)


@pytest.mark.parametrize(
    "inside", ["x", {"Env": 5}, {"Entrypoint": 5}, {"Cmd": "sh"}, {"Entrypoint": [1, None]}, {"User": ["a"]}]
)
def test_a_configuration_of_wrong_types_is_no_defect(inside: Any) -> None:
    read = _of(docker_archive([BASE], {"config": inside}))
    assert all(isinstance(word, str) for word in [*read["entrypoint"], *read["command"], read["user"]])


@pytest.mark.parametrize("version", ["9" * 6000, "13.0." + "9" * 6000])
def test_a_version_of_many_digits_is_no_defect(version: str) -> None:
    files = {
        "usr/local/cuda/version.json": json.dumps({"cuda": {"version": version}}),
        "x.dist-info/METADATA": "Name: x",
    }
    assert _of(docker_archive([layer(files)]))["versions"]["cuda"] is None


def test_of_a_package_in_a_store_or_inside_another_nothing_is_said() -> None:
    files = {
        **package("setuptools", "80.0"),
        **package("packaging", "24.0", site=f"{SITE}/setuptools/_vendor"),
        **package("ray", "2.40.0", site="root/.cache/uv/archive-v0/abc"),
    }
    assert _of(docker_archive([layer(files)]))["packages"] == {"setuptools": "80.0"}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "^no_image"),
        (b"#!/bin/sh\n" * 100, "^bad_layer"),
        (layer({"notes.txt": "x"}), "^no_image"),
        (layer({"manifest.json": "{"}), "^bad_image.*not JSON"),
        (layer({"manifest.json": "[" * 100_000}), "^bad_image.*not JSON"),
        (layer({"manifest.json": "[]"}), "^bad_image.*0 images"),
        (layer({"manifest.json": '[{"RepoTags": ["a:1"]}, {"RepoTags": ["b:1"]}]'}), "^bad_image.*a:1, b:1"),
        (layer({"manifest.json": '[{"Config": "c", "Layers": ["x"]}]'}), "^bad_image.*configuration"),
        (layer({"manifest.json": '[{"Config": "c", "Layers": ["x"]}]', "c": "{}"}), "^bad_image.*layer x"),
        (layer({"manifest.json": '[{"Config": "c", "Layers": ["x"]}]', "c": "{}", "x": "y" * 600}), "^bad_layer"),
        (layer({"index.json": '{"manifests": []}'}), "^no_image"),
        (layer({"index.json": '{"manifests": [{"digest": "../../etc/passwd"}]}'}), "^bad_image.*no digest"),
        (docker_archive([BASE])[:4096], "^bad_layer"),
    ],
)
def test_what_is_no_image_has_a_name(body: bytes, error: str) -> None:
    with pytest.raises(ImageError, match=error):
        archive.of_stream(io.BytesIO(body))


def test_of_an_index_the_platform_is_read_that_is_here(tmp_path: Path) -> None:
    """Docker keeps an index whole, and the layers of one platform."""
    root = oci_folder(tmp_path, [BASE], {**CONFIG, "architecture": "amd64"})
    index = json.loads((root / "index.json").read_text())
    absent = {"digest": "sha256:" + "1" * 64, "platform": {"os": "linux", "architecture": "arm64"}}
    (root / "index.json").write_text(json.dumps({"manifests": [absent, *index["manifests"]]}))
    assert docker.of_path(root)["architecture"] == "amd64"


def test_documents_without_an_end_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(budget.MOST, "characters", 120)
    with pytest.raises(ImageError, match=r"^too_much: .* characters"):
        archive.of_stream(io.BytesIO(layer({f"{number}.json": "[1" + " " * 50 + "]" for number in range(3)})))


def test_a_pipe_in_a_folder_is_no_layer(tmp_path: Path) -> None:
    root = oci_folder(tmp_path, [BASE])
    blob = max((root / "blobs/sha256").iterdir(), key=lambda file: file.stat().st_size)
    blob.unlink()
    os.mkfifo(blob)
    with pytest.raises(ImageError, match=r"^bad_image: the layer"):
        archive.of_path(root)


def test_an_index_that_names_itself_ends(tmp_path: Path) -> None:
    digest = "sha256:" + "0" * 64
    blob = tmp_path / "blobs" / "sha256" / ("0" * 64)
    blob.parent.mkdir(parents=True)
    blob.write_text(json.dumps({"manifests": [{"digest": digest}]}))
    (tmp_path / "index.json").write_text(blob.read_text())
    with pytest.raises(ImageError, match=r"^no_image"):
        archive.of_path(tmp_path)


# -- Docker of the host


def _run(told: Any, status: int = 0, said: str = "") -> docker.Command:
    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert list(argv) == ["docker", "image", "inspect", "--", "lab/vllm:1"]
        return subprocess.CompletedProcess(argv, status, json.dumps([told]), said)

    return run


_TOLD = {"Id": "sha256:abc", "RepoTags": ["lab/vllm:1"], "RepoDigests": ["lab/vllm@sha256:def"]}


def test_containerds_store_is_read_from_a_stream(read: dict[str, Any]) -> None:
    asked = []

    @contextlib.contextmanager
    def save(image: str) -> Iterator[io.BytesIO]:
        asked.append(image)
        yield io.BytesIO(docker_archive([BASE, TOP]))

    found = docker.read("lab/vllm:1", _run(_TOLD), save)
    assert asked == ["sha256:abc"] and found["source"] == "docker save" and misfit("image_info", found) is None
    assert found["versions"] == read["versions"] and found["digests"] == ["lab/vllm@sha256:def"]


def test_overlay2s_folders_are_read_where_they_lie(read: dict[str, Any], tmp_path: Path) -> None:
    for name, body in (("base", BASE), ("top", TOP)):
        (tmp_path / name).mkdir()
        subprocess.run(["tar", "-x", "-C", tmp_path / name], input=body, check=True)
    gone = tmp_path / "top" / SITE / ".wh.ray-2.53.0.dist-info"
    gone.unlink()
    if os.geteuid() == 0:
        os.mknod(gone.with_name("ray-2.53.0.dist-info"), 0o020000, 0)
    told = {
        **_TOLD,
        "Architecture": "arm64",
        "Os": "linux",
        "Created": CONFIG["created"],
        "Config": CONFIG["config"],
        "GraphDriver": {
            "Name": "overlay2",
            "Data": {"UpperDir": str(tmp_path / "top"), "LowerDir": str(tmp_path / "base")},
        },
    }
    found = docker.read("lab/vllm:1", _run(told))
    assert found["source"] == "overlay2" and found["layers"] == 2
    same = ["environment", "extensions", "caches", "nccl", "user", *(["versions"] if os.geteuid() == 0 else [])]
    assert {key: found[key] for key in same} == {key: read[key] for key in same}


@pytest.mark.parametrize(
    ("status", "said", "name"),
    [
        (1, "Error response from daemon: No such image: lab/vllm:1", "no_such_image"),
        (1, "Cannot connect to the Docker daemon", "no_docker"),
        (127, "docker: No such file or directory", "no_docker"),
    ],
)
def test_what_docker_says_has_a_name(status: int, said: str, name: str) -> None:
    with pytest.raises(ImageError) as caught:
        docker.read("lab/vllm:1", _run({}, status, said))
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ('cat "$GB10_TEST_IMAGE"; exit 0', None),
        ('head -c 2000 "$GB10_TEST_IMAGE"; echo disk full >&2; exit 1', "^failed.*disk full"),
        ('cat "$GB10_TEST_IMAGE"; echo broke >&2; exit 1', "^failed.*broke"),
        ('head -c 2000 "$GB10_TEST_IMAGE"; exit 0', "^bad_layer"),
        ("yes | head -c 100000; yes", "^bad_layer"),
    ],
)
def test_docker_save_as_a_process(
    script: str, error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "image.tar"
    image.write_bytes(docker_archive([BASE]))
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\n[ "$*" = "save -- sha256:abc" ] || exit 9\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("GB10_TEST_IMAGE", str(image))
    with pytest.raises(ImageError, match=error) if error else contextlib.nullcontext():
        assert docker.read("lab/vllm:1", _run(_TOLD))["layers"] == 1
