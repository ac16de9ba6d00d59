"""What is built of an image: nothing where there is no gap, a plan, or why not."""

from __future__ import annotations

import gzip
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.images import facts as image_facts
from ansible_collections.gb10.fleet.plugins.module_utils.images import progress
from ansible_collections.gb10.fleet.plugins.module_utils.images.ingredients import Builder, Patch, Source, Wheel
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.images import build_plan, dockerfile, judgement, recipes
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.build_plan import BUILD, NOTHING, REFUSED, BuildPlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.recipes import Wish

from scripts.gates import ROOT
from tests.support.archive import packed

GIB = 1 << 30
SITE = "/usr/local/lib/python3.12/dist-packages"
NIGHTLY = "0.17.0rc1.dev102+ge68de8adc"
COMMIT = "e68de8adc0301babb3bb3fcd2ddccaf98e7695c8"
BUILDER = Builder(memory_bytes=119 * GIB, available_bytes=20 * GIB, cores=20, free_bytes=500 * GIB, buildx="0.31.1")
KERNELS = Wish("kernels", "vllm/vllm-openai:cu130-nightly", source=Source("vllm.tar.gz", "c" * 64, COMMIT))
WHEEL = Wheel(
    "flashinfer_python-0.7.2-py3-none-any.whl", "a" * 64, 5 << 20, "flashinfer-python", "0.7.2", ("flashinfer",)
)
PATCH = Patch("fix.patch", "b" * 64, ("vllm/config.py",), "--- a/vllm/config.py\n+++ b/vllm/config.py\n+x = 1\n")
OVERLAY = Wish("overlay", "vllm/vllm-openai:v0.33.0", wheels=(WHEEL,), patches=(PATCH,))
LOCKED = replace(
    PATCH, text='-cuda_archs_loose_intersection(FP4_ARCHS "12.0f"\n+  set(FP4_ARCHS "12.0a" "${CUDA_ARCHS}")\n'
)


def extension(name: str, **cubins: int) -> dict[str, Any]:
    path = f"{SITE}/vllm/{name}.abi3.so"
    return {
        **{"path": path, "name": name, "owner": "vllm", "bytes": 1, "cubins": cubins},
        **{"ptx": {}, "compressed": 0, "error": None},
    }


def facts(version: str | None = NIGHTLY, *, native: bool = False, **changes: Any) -> dict[str, Any]:
    """Of an image whose extensions have no kernels that a GB10 loads."""
    cubins = {"sm_120": 3} if native else {"sm_90": 3}
    versions = {"vllm": version, "torch": "2.10.0", "cuda": "13.0.2", "torch_cuda": "13.0", "ray": None}
    return {
        "reference": "base",
        "id": "sha256:" + "1" * 64,
        "architecture": "arm64",
        "os": "linux",
        "user": "",
        "on_build": [],
        "names": [],
        "digests": [],
        "versions": {**versions, **changes.pop("versions", {})},
        "packages": {},
        "vllm_folders": [f"{SITE}/vllm"] if version else [],
        "vllm_requires": [],
        "nccl": {"libraries": [], "conf": {}},
        "extensions": [extension(name, **cubins) for name in judgement.wanted(version)],
        "caches": [],
        **changes,
    }


def planned(wish: Wish = KERNELS, builder: Builder = BUILDER, **changes: Any) -> BuildPlan:
    return build_plan.plan(facts(**changes), wish, builder)


def test_without_a_gap_there_is_nothing_to_build() -> None:
    made = planned(native=True)
    assert made.verdict == NOTHING and made.reason.startswith("no gap: nothing to build")
    assert planned(replace(KERNELS, force=True), native=True).verdict == BUILD


@pytest.mark.parametrize("wish", [KERNELS, replace(OVERLAY, wheels=())])
def test_a_base_with_steps_for_every_build_on_it_is_refused(wish: Wish) -> None:
    """BuildKit runs them in our build: with a network, and with the cache of another base's build."""
    told = {"config": {"OnBuild": ["RUN --mount=type=cache,id=gb10-001122334455,target=/b cp evil.o /b"]}}
    version = NIGHTLY if wish is KERNELS else "0.33.0"
    made = planned(wish, version=version, on_build=image_facts.of("base", "archive", told, [])["on_build"])
    assert made.verdict == REFUSED and "steps of its own for every build on it" in made.refusals[0]


def test_an_overlay_of_nothing_is_nothing() -> None:
    assert planned(replace(OVERLAY, wheels=(), patches=()), version="0.33.0").verdict == NOTHING


def test_a_gap_is_built_from_the_commit_of_the_base() -> None:
    made = planned()
    assert (made.verdict, made.refusals, made.recipe) == (BUILD, (), "kernels-0.17")
    assert made.may_differ == (f"{SITE}/vllm/_C.abi3.so", f"{SITE}/vllm/_moe_C.abi3.so")
    assert made.expected == {"_C": 52, "_moe_C": 12} and made.exact


@pytest.mark.parametrize(
    ("version", "files"),
    [
        ("0.18.1", ["_C", "_moe_C"]),
        ("0.19.0", ["_C", "_C_stable_libtorch", "_moe_C"]),
        ("0.23.1", ["_C", "_C_stable_libtorch", "_moe_C"]),
        ("0.24.0", ["_C_stable_libtorch", "_moe_C_stable_libtorch"]),
    ],
)
def test_which_files_go_in_depends_on_the_version(version: str, files: list[str]) -> None:
    made = planned(replace(KERNELS, source=Source("vllm.tar.gz", "c" * 64, version=version)), version=version)
    assert [path.rpartition("/")[2] for path in made.may_differ] == [f"{name}.abi3.so" for name in files]


def test_recipes_and_the_rules_of_the_x_ray_name_the_same_extensions() -> None:
    for entry in recipes.load()["kernels"]:
        assert tuple(entry["cubins"]) == judgement.wanted(entry["counted_in"])


@pytest.mark.parametrize(
    ("wish", "changes", "says"),
    [
        (replace(KERNELS, source=None), {}, "vllm_image_source is empty"),
        (
            replace(KERNELS, source=Source("x.tar", "0", "f" * 40)),
            {},
            "`git archive --prefix=vllm/ e68de8adc` writes",
        ),
        (replace(KERNELS, source=Source("x.tar", "0")), {}, "x.tar is of no commit"),
        (KERNELS, {"version": "0.33.0"}, "`git archive --prefix=vllm-0.33.0/ v0.33.0` writes"),
        (
            replace(KERNELS, source=Source("x.tar", "0", version="0.32.0")),
            {"version": "0.33.0"},
            "is vLLM 0.32.0",
        ),
        (replace(KERNELS, architectures="12.1"), {}, "arch_12_1_traps: 12.1"),
        (replace(KERNELS, architectures="12.0;12.1a"), {"version": "0.19.0"}, "arch_12_1_of_0_19: 12.1a"),
        (replace(KERNELS, base="nvcr.io/nvidia/vllm:26.10-py3"), {}, "vendor_fork"),
        (replace(KERNELS, base="hellohal2064/vllm:1"), {}, "hellohal2064"),
        (replace(KERNELS, base="mitkox/vllm-dflash-ddtree:1"), {}, "vllm_image_experimental"),
        (replace(KERNELS, patches=(LOCKED,)), {}, "locked_patch: fix.patch: It does not leave out"),
        (replace(KERNELS, patches=(PATCH,)), {}, "takes no wheels and no patches"),
        (KERNELS, {"version": "0.16.0"}, "no build is known for vLLM 0.16.0"),
        (KERNELS, {"version": None}, "the base has no vLLM"),
        (KERNELS, {"versions": {"cuda": None}}, "no CUDA toolkit"),
        (KERNELS, {"versions": {"cuda": "12.9.1"}}, "12.9.1, below 13.0"),
        (KERNELS, {"architecture": "amd64"}, "linux/amd64"),
        (KERNELS, {"vllm_folders": ["/a/vllm", "/b/vllm"]}, "more than once"),
        (replace(OVERLAY, patches=(LOCKED,)), {"version": "0.33.0"}, "locked_patch"),
        (
            replace(OVERLAY, wheels=(replace(WHEEL, path="transformers-5.2.0-py3-none-any.whl"),)),
            {"version": "0.33.0"},
            "full_rebuild",
        ),
        (
            replace(OVERLAY, wheels=(replace(WHEEL, path="vllm-0.33.0+cu129-cp38-abi3-linux_aarch64.whl"),)),
            {"version": "0.33.0"},
            "wrong_cuda",
        ),
    ],
)
def test_what_leads_nowhere_is_refused_with_its_reason(wish: Wish, changes: dict[str, Any], says: str) -> None:
    made = planned(wish, **changes)
    assert made.verdict == REFUSED
    assert [text for text in made.refusals if says in text], made.refusals
    assert made.dockerfile == ""


def test_a_wheel_for_the_cuda_of_the_base_is_taken() -> None:
    wheel = replace(WHEEL, path="vllm-0.33.0+cu130-cp38-abi3-linux_aarch64.whl")
    assert planned(replace(OVERLAY, wheels=(wheel,)), version="0.33.0").verdict == BUILD


def test_every_dead_end_can_be_met() -> None:
    """One that no wish meets would be a word without use."""
    met = set()
    for mark in test_what_leads_nowhere_is_refused_with_its_reason.pytestmark:  # type: ignore[attr-defined]
        for wish, changes, _ in mark.args[1]:
            met |= {text.partition(":")[0] for text in planned(wish, **changes).refusals}
    assert {entry["value"] for entry in catalog.load("image_recipes")["dead_ends"]} <= met


@pytest.mark.parametrize(
    ("builder", "jobs"),
    [
        (BUILDER, 4),
        (replace(BUILDER, cores=2), 2),
        (replace(BUILDER, serving=("gb10-vllm",), available_bytes=40 * GIB), 1),
    ],
)
def test_jobs_follow_from_the_memory_that_is_left(builder: Builder, jobs: int) -> None:
    made = planned(builder=builder)
    assert made.jobs == jobs and f'MAX_JOBS="{jobs}"' in made.dockerfile


@pytest.mark.parametrize(
    ("builder", "says"),
    [
        (replace(BUILDER, serving=("gb10-vllm",)), "gb10-vllm runs, and 20 GiB of memory are left on the builder"),
        (replace(BUILDER, memory_bytes=16 * GIB), "16 GiB of memory are left"),
        (replace(BUILDER, free_bytes=39 * GIB), "takes 40 GiB of disk, and Docker's has 39 left"),
        (replace(BUILDER, buildx=None), "docker-buildx-plugin"),
    ],
)
def test_a_builder_without_room_is_refused(builder: Builder, says: str) -> None:
    made = planned(builder=builder)
    assert made.verdict == REFUSED and says in " ".join(made.refusals)


def test_the_same_inputs_are_the_same_image_whoever_builds() -> None:
    first = planned()
    assert first.inputs == planned(builder=replace(BUILDER, cores=2)).inputs
    assert first.inputs != planned(replace(KERNELS, source=Source("vllm.tar.gz", "d" * 64, COMMIT))).inputs
    assert first.inputs != planned(id="sha256:" + "2" * 64).inputs
    assert len(first.tag) == 12


DOCKERFILE = f"""\
ARG BASE
FROM ${{BASE}} AS builder
USER root
SHELL ["/bin/sh", "-c"]
ENV VLLM_TARGET_DEVICE="cuda"
ENV CUDA_HOME="/usr/local/cuda"
ENV CMAKE_CUDA_COMPILER="/usr/local/cuda/bin/nvcc"
ENV CPATH="{SITE}/nvidia/cu13/include"
ENV LIBRARY_PATH="{SITE}/nvidia/cu13/lib"
ENV SETUPTOOLS_SCM_PRETEND_VERSION="{NIGHTLY}"
RUN --network=none set -eu; if [ ! -e /usr/local/cuda/lib64/libnvrtc.so ] && \
[ -e {SITE}/nvidia/cu13/lib/libnvrtc.so.13 ]; then \
mkdir -p $(dirname /usr/local/cuda/lib64/libnvrtc.so); \
ln -s {SITE}/nvidia/cu13/lib/libnvrtc.so.13 /usr/local/cuda/lib64/libnvrtc.so; fi
RUN set -eu; printf '%s\\n' PINS >/gb10-tools.txt; PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet \
--no-cache-dir --no-deps --only-binary=:all: --require-hashes --requirement /gb10-tools.txt
ENV TORCH_CUDA_ARCH_LIST="12.0" MAX_JOBS="4"
RUN --mount=type=cache,id=gb10-TAG,target=/gb10-build,sharing=locked --mount=type=bind,from=source,target=/gb10-source \
set -eu; python3 -m tarfile -e /gb10-source/vllm.tar.gz /gb10-unpacked; \
cp -a --update /gb10-unpacked/*/. /gb10-build/; cd /gb10-build; rm -rf dist; \
python3 setup.py --quiet bdist_wheel; python3 -m zipfile -e dist/*.whl /gb10-wheel; mkdir /gb10-out; \
for name in _C _moe_C; do cp /gb10-wheel/vllm/$name.*.so /gb10-out/$name.so; done; chmod 755 /gb10-out/*
FROM ${{BASE}}
COPY --from=builder ["/gb10-out/_C.so", "{SITE}/vllm/_C.abi3.so"]
COPY --from=builder ["/gb10-out/_moe_C.so", "{SITE}/vllm/_moe_C.abi3.so"]
"""


def test_the_dockerfile_of_kernels_compiles_aside_and_copies_named_files() -> None:
    made = planned()
    tools = catalog.load("image_recipes")["toolchain"]["tools"]["value"]
    pins = shlex.join(" ".join([pin, *(f"--hash=sha256:{each}" for each in sums)]) for pin, sums in tools.items())
    assert made.dockerfile == DOCKERFILE.replace("TAG", made.tag).replace("PINS", pins)


SETUP = """\
import pathlib, zipfile
pathlib.Path("dist").mkdir()
with zipfile.ZipFile("dist/vllm-0.17.0.whl", "w") as archive:
    for name in @MADE@:
        archive.writestr(name, name)
"""


def compiled(folder: Path, made: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """The step that compiles, by a shell of this machine; `made` is in the wheel."""
    (line,) = (line for line in planned().dockerfile.splitlines() if "setup.py" in line)
    words = line.partition(" set -eu; ")[2].replace("/gb10-", f"{folder}/gb10-")
    for name in ("gb10-source", "gb10-build"):
        (folder / name).mkdir(exist_ok=True)
    source = packed({"vllm/setup.py": SETUP.replace("@MADE@", repr(made)).encode(), "vllm/csrc/x.cu": b"1"})
    (folder / "gb10-source" / "vllm.tar.gz").write_bytes(gzip.compress(source))
    shutil.rmtree(folder / "gb10-out", ignore_errors=True)
    return subprocess.run(["sh", "-euc", words], capture_output=True, text=True, check=False, cwd=folder)


def test_of_what_was_compiled_the_named_extensions_are_taken(tmp_path: Path) -> None:
    both = ["vllm/_C.abi3.so", "vllm/_moe_C.abi3.so"]
    done = compiled(tmp_path, [*both, "vllm/_C_stable.abi3.so", "vllm/deep/_C.abi3.so"])
    assert done.returncode == 0, done.stderr
    out = {path.name: (path.read_text(), path.stat().st_mode & 0o777) for path in (tmp_path / "gb10-out").iterdir()}
    assert out == {"_C.so": (both[0], 0o755), "_moe_C.so": (both[1], 0o755)}
    again = compiled(tmp_path, both)  # of a build that was ended: what was made is made anew only where it must be
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("made", [["vllm/_C.abi3.so"], ["vllm/_C.abi3.so", "vllm/_moe_C.a.so", "vllm/_moe_C.b.so"]])
def test_an_extension_that_is_missing_or_there_twice_fails_the_build(tmp_path: Path, made: list[str]) -> None:
    done = compiled(tmp_path, made)
    assert done.returncode != 0
    assert "_moe_C" in progress.fault([f"#7 1.2 {line}" for line in done.stderr.splitlines()]).text


def test_of_an_index_only_the_very_files_of_the_catalog_are_taken() -> None:
    """Whoever has the index, or stands before it, compiles nothing of his own into an image."""
    tools = catalog.load("image_recipes")["toolchain"]["tools"]["value"]
    assert {pin.partition("==")[0] for pin in tools} == {
        *("cmake", "ninja", "packaging", "setuptools", "setuptools-scm", "wheel"),
    }
    fetching = [line for line in planned().dockerfile.splitlines() if "pip install" in line]
    assert all("--require-hashes" in line and "--no-deps" in line for line in fetching)
    assert all(line.count("--hash=sha256:") == sum(map(len, tools.values())) for line in fetching)


def test_the_dockerfile_of_an_overlay_fetches_nothing_and_keeps_the_user() -> None:
    made = planned(OVERLAY, version="0.33.0", user="1000")
    assert made.dockerfile == (
        "ARG BASE\nFROM ${BASE}\nUSER root\n"
        "RUN --network=none --mount=type=bind,from=wheels,target=/gb10-wheels set -eu; PIP_BREAK_SYSTEM_PACKAGES=1 "
        "python3 -m pip install --no-deps --no-index --no-cache-dir --no-compile --force-reinstall "
        "/gb10-wheels/flashinfer_python-0.7.2-py3-none-any.whl\n"
        "RUN --network=none --mount=type=bind,from=patches,target=/gb10-patches set -eu; "
        f"patch --directory={SITE} --strip=1 --forward --batch --no-backup-if-mismatch "
        "--input=/gb10-patches/fix.patch\n"
        "USER 1000\n"
    )
    assert made.may_differ == (
        f"{SITE}/flashinfer/",
        f"{SITE}/flashinfer_python-*.dist-info/",
        f"{SITE}/vllm/config.py",
    )
    assert made.packages == {"flashinfer-python": "0.7.2"}


def test_an_overlay_gives_no_user_to_a_base_that_has_none() -> None:
    assert "USER" not in planned(OVERLAY, version="0.33.0", user="").dockerfile


@pytest.mark.parametrize("word", ["root\nFROM evil", "a\rb", "a b", "${BASE}", "a\\", "x'y", "\u2028"])
def test_an_odd_word_of_the_base_is_refused(word: str) -> None:
    for wish in (KERNELS, OVERLAY):
        for changes in (
            {"user": word},
            {"vllm_folders": [f"/{word}/vllm"]},
            {"versions": {"cuda": f"13.{word}"}},
            {"extensions": [{**extension("_C", sm_90=3), "path": f"/{word}/_C.so"}]},
        ):
            made = planned(wish, **changes)  # type: ignore[arg-type]
            assert made.verdict == REFUSED and made.dockerfile == "", changes
            assert any("no name that a build can take" in text for text in made.refusals), made.refusals


def test_no_line_break_reaches_the_dockerfile() -> None:
    for site, wheel, user in ((f"{SITE}\nRUN x", "a", ""), (SITE, "a\nRUN x", ""), (SITE, "a", "0\rRUN x")):
        with pytest.raises(ValueError, match="line break"):
            dockerfile.of_overlay(site, [replace(WHEEL, path=wheel)], [PATCH], user)
    with pytest.raises(ValueError, match="line break"):
        dockerfile.of_kernels("12.1a", 4, {}, ("/a", "/b\nRUN x"), {"cmake==1": ["0"]}, "s", {}, "c")


# What hadolint says of a Dockerfile that a person would write, and why it does not hold here.
ACCEPTED = (
    "DL3002",  # the stage that compiles is thrown away; the image keeps its base's user
    "DL3003",  # one RUN is one layer, and a WORKDIR would stay in the image
    "DL3066",  # the base's own user, by the name that it has there
    "SC2046",  # a path of ours without a blank; quoted, every image would be built anew
)
WRITTEN = {
    "kernels": planned().dockerfile,
    "overlay": dockerfile.of_overlay(SITE, [WHEEL], [PATCH], "vllm"),
    "the lab's": (ROOT / "tests/fleet/images/Dockerfile").read_text(encoding="utf-8"),
}


def hadolint(text: str) -> str:
    argv = [
        str(Path(sys.executable).parent / "hadolint"),
        "--no-color",
        "-",
        *(f"--ignore={rule}" for rule in ACCEPTED),
    ]
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("name", WRITTEN)
def test_a_dockerfile_pleases_a_linter_that_others_keep(name: str) -> None:
    assert hadolint(WRITTEN[name]) == ""


def test_the_linter_is_at_work() -> None:
    assert "DL3007" in hadolint("FROM debian:latest\n")
