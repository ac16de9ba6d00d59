"""Small images: layers, archives of `docker save` before and since Docker 25, and folders in the OCI layout."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.fatbins import PTX, A, F, entry, extension

SITE = "usr/local/lib/python3.12/dist-packages"
# Of a layer: text or bytes are a file, None a folder, ("link" | "hard link", target) a link.
Content = str | bytes | None | tuple[str, str]
Files = Mapping[str, Content]


def layer(files: Files, **options: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            if content is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(content, tuple):
                member.type, member.linkname = {"link": b"2", "hard link": b"1"}[content[0]], content[1]
            body = content.encode() if isinstance(content, str) else content if isinstance(content, bytes) else b""
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return out.getvalue()


def package(name: str, version: str, requires: Sequence[str] = (), site: str = SITE) -> dict[str, Content]:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    return {
        f"{site}/{name.replace('-', '_')}-{version}.dist-info/METADATA": "\n".join([*lines, "", "Name: of the text"])
    }


def vllm(version: str = "0.33.0", kernels: bytes | None = None) -> dict[str, Content]:
    """The packages of an image with vLLM."""
    both = kernels or extension(entry(90), entry(120), entry(120, suffix=F), entry(80, PTX))
    return {
        **package("vllm", version, ["transformers<6,>=4.56.0", "torch==2.11.0", "ray; extra == 'ray'"]),
        **package("torch", "2.11.0"),
        **package("transformers", "5.2.0"),
        **package("flashinfer-python", "0.7.1"),
        **package("nvidia-nccl-cu13", "2.28.9"),
        f"{SITE}/torch/version.py": "__version__ = '2.11.0'\ncuda: Optional[str] = '13.0'\nhip = None\n",
        f"{SITE}/vllm/_C_stable_libtorch.abi3.so": both,
        f"{SITE}/vllm/_moe_C_stable_libtorch.abi3.so": both,
        f"{SITE}/vllm/spinloop.abi3.so": extension(),
        f"{SITE}/flashinfer_jit_cache/jit_cache/norm/norm.so": extension(entry(121, suffix=A)),
    }


CONFIG: dict[str, Any] = {
    "architecture": "arm64",
    "os": "linux",
    "created": "2026-11-01T00:00:00Z",
    "config": {"Entrypoint": ["vllm", "serve"], "Env": ["PATH=/usr/bin", "HF_TOKEN=hf_abc"], "User": "1000"},
}


def docker_archive(layers: Sequence[bytes], config: Mapping[str, Any] = CONFIG, *, last: bool = True) -> bytes:
    """As Docker writes it since 25: blobs, and the manifest behind them, or before them."""
    blobs = {_path(body): body for body in [*layers, json.dumps(config).encode()]}
    manifest = [{
        "Config": _path(json.dumps(config).encode()),
        "RepoTags": ["lab/vllm:1"],
        "Layers": [_path(body) for body in layers],
    }]  # fmt: skip
    names = {"manifest.json": json.dumps(manifest), "oci-layout": '{"imageLayoutVersion": "1.0.0"}'}
    return layer({**blobs, **names} if last else {**names, **blobs})


def old_archive(layers: Sequence[bytes], config: Mapping[str, Any] = CONFIG) -> bytes:
    """As Docker wrote it before 25; of two equal layers the second is a link."""
    files: dict[str, Content] = {"config.json": json.dumps(config)}
    for number, body in enumerate(layers):
        first = layers.index(body)
        files[f"{number}/VERSION"] = "1.0"
        files[f"{number}/layer.tar"] = body if first == number else ("link", f"../{first}/layer.tar")
    paths = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": None, "Layers": paths}]
    return layer({**files, "manifest.json": json.dumps(manifest), "repositories": "{}"})


def oci_folder(root: Path, layers: Sequence[bytes], config: Mapping[str, Any] = CONFIG) -> Path:
    """With an attestation before the image, and the image in an index of its own, as BuildKit does."""
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(body: bytes) -> str:
        name = hashlib.sha256(body).hexdigest()
        (blobs / name).write_bytes(body)
        return f"sha256:{name}"

    def put_json(value: Any) -> str:
        return put(json.dumps(value).encode())

    manifest = put_json({
        "config": {"digest": put_json(config)},
        "layers": [{"digest": put(gzip.compress(body))} for body in layers],
    })  # fmt: skip
    other = put_json({"config": {"digest": put_json({})}, "layers": []})
    entries = [
        {"digest": other, "platform": {"os": "unknown", "architecture": "unknown"}},
        {"digest": other, "platform": {"os": "linux", "architecture": "amd64"}},
        {"digest": manifest, "platform": {"os": "linux", "architecture": "arm64"}},
    ]
    index = {"manifests": [{"digest": put_json({"manifests": entries})}]}
    (root / "index.json").write_text(json.dumps(index))
    return root


def _path(body: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(body).hexdigest()}"
