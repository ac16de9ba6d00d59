"""An image judged from its facts: kernels, floors, dead ends, and what the catalog says otherwise."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.images import judgement, kernels

# Counted in the released wheels for aarch64.
WHEELS: dict[str, dict[str, dict[str, int]]] = {
    "0.17.0": {"_C": {"sm_90": 39, "sm_120": 36, "sm_120a": 16}, "_moe_C": {"sm_90": 7, "sm_120": 12}},
    "0.33.0": {
        "_C_stable_libtorch": {"sm_120": 50, "sm_120f": 35},
        "_moe_C_stable_libtorch": {"sm_120": 8, "sm_120f": 19},
        "_qutlass_C": {"sm_100f": 6},
    },
}


def extension(name: str, cubins: dict[str, int], owner: str = "vllm", **more: Any) -> dict[str, Any]:
    path = f"/usr/local/lib/python3.12/dist-packages/{owner}/{name}.abi3.so"
    fixed = {"name": name, "path": path, "owner": owner, "bytes": 1, "compressed": 0}
    return {**fixed, "cubins": cubins, "ptx": {}, "error": None, **more}


def facts(version: str | None = "0.33.0", **more: Any) -> dict[str, Any]:
    wheel = WHEELS.get(version or "", {})
    versions = dict.fromkeys(("torch", "transformers", "ray", "flashinfer", "triton", "nccl", "python"))
    read: dict[str, Any] = {
        "reference": "lab/own:1", "names": [], "digests": [], "os": "linux", "architecture": "arm64",
        "versions": {**versions, "vllm": version, "cuda": "13.0.2", "torch_cuda": "13.0"},
        "packages": {"transformers": "5.2.0", "fastsafetensors": "0.1"},
        "vllm_folders": ["/opt/vllm"], "vllm_requires": ["transformers<6,>=4.56"],
        "nccl": {"libraries": [], "conf": {}},
        "extensions": [extension(name, cubins) for name, cubins in wheel.items()], "caches": [],
    }  # fmt: skip
    return {**copy.deepcopy(read), **more}


def ids(read: dict[str, Any]) -> set[str]:
    return {each.id for each in judgement.judge(read).findings}


@pytest.mark.parametrize(
    ("name", "loads", "compiles"),
    [
        ("120", True, True),
        ("120f", True, True),
        ("120a", False, False),
        ("121", True, True),
        ("121a", True, True),
        ("121f", True, True),
        ("122", False, False),
        ("80", False, True),
        ("90a", False, False),
        ("100f", False, False),
        ("110", False, True),
        ("130", False, False),
    ],
)
def test_what_a_gb10_loads_and_compiles(name: str, loads: bool, compiles: bool) -> None:
    assert kernels.loads(f"sm_{name}") is loads
    assert kernels.compiles(f"compute_{name}") is compiles


def test_the_catalog_says_the_same_of_the_chip() -> None:
    for feature in catalog.load("sm")["features"]:
        if feature["value"].startswith("cubin_"):
            assert kernels.loads(feature["value"].removeprefix("cubin_")) == (feature["status"] == "present")


@pytest.mark.parametrize("version", sorted(WHEELS))
def test_a_released_wheel_has_no_gap(version: str) -> None:
    judged = judgement.judge(facts(version))
    assert judged.gap == () and judged.build.startswith("no gap: nothing to build")
    assert "sm120_cubins" in judged.image.contains and not judged.refused


def test_locked_kernels_are_told_from_those_that_load() -> None:
    first = judgement.judge(facts("0.17.0")).kernels[0]
    assert (first.native, first.locked) == ({"sm_120": 36}, {"sm_120a": 16})
    assert first.text == "36 sm_120; locked to another chip: 16 sm_120a"


@pytest.mark.parametrize(
    "cubins", [{"sm_120a": 52}, {"sm_90": 1}, {}, None], ids=["locked", "other chips", "no code", "not there"]
)
def test_a_gap_is_named(cubins: dict[str, int] | None) -> None:
    read = facts("0.17.0")
    read["extensions"][1:] = [] if cubins is None else [extension("_moe_C", cubins)]
    judged = judgement.judge(read)
    assert judged.gap == ("_moe_C",) and judged.build.startswith("a gap:") and "_moe_C" in judged.build
    assert "no_kernels" in ids(read) and "sm120_cubins" in judged.image.lacks


def test_of_two_environments_the_poor_one_counts() -> None:
    read = facts("0.17.0", vllm_folders=["/a/vllm", "/b/vllm"])
    read["extensions"].append(extension("_C", {"sm_90": 1}))
    assert judgement.judge(read).gap == ("_C",)
    assert "several" in ids(read)


@pytest.mark.parametrize("version", ["0.11.0", "0.1.dev20482+g83cb", "no version"])
def test_of_a_version_that_nobody_counted_no_gap_is_claimed(version: str) -> None:
    read = facts(version, extensions=[extension("_C", {"sm_90": 1})])
    judged = judgement.judge(read)
    assert judged.gap is None and judged.build.startswith("not known")
    assert "sm120_cubins" not in judged.image.contains | judged.image.lacks
    assert [each.name for each in judged.kernels] == ["_C"]


def test_a_nightly_is_the_release_that_it_leads_to() -> None:
    assert judgement.wanted("0.17.0rc1.dev102+ge68de8adc") == ("_C", "_moe_C")
    assert judgement.wanted("0.24.0") == judgement.wanted("0.33.1.dev1") != judgement.wanted("0.23.9")


def test_what_cannot_be_read_is_not_judged() -> None:
    read = facts("0.17.0")
    read["extensions"][0] = extension("_C", {}, error="truncated: it ends at 5")
    judged = judgement.judge(read)
    assert judged.gap is None and ids(read) >= {"unread"}
    assert judged.kernels[0].state == "unread"


def test_an_image_without_vllm() -> None:
    judged = judgement.judge(facts(None))
    assert judged.gap is None and judged.build == "no vLLM in it: nothing to build"


@pytest.mark.parametrize(
    ("change", "identity"),
    [
        ({"architecture": "amd64"}, "platform"),
        ({"versions": {"vllm": "0.30.9"}}, "security_floor"),
        ({"versions": {"ray": "2.53.0"}}, "security_floor"),
        ({"versions": {"cuda": "12.8.1"}}, "cuda_floor"),
        ({"versions": {"torch_cuda": "12.8"}}, "cuda_floor"),
        ({"versions": {"torch_cuda": "12.9"}}, "cuda_drift"),
        ({"packages": {"transformers": "6.0.0"}}, "drift"),
        ({"packages": {"transformers": "4.55.4"}}, "drift"),
        ({"nccl": {"libraries": [], "conf": {"/etc/nccl.conf": ["NCCL_IB_TC=106"]}}}, "nccl_conf"),
        ({"environment": {"NCCL_IB_GID_INDEX": "3"}}, "nccl_environment"),
        ({"extensions": [*facts()["extensions"][1:], extension("_C_stable_libtorch", {"sm_120": 1, "sm_120a": 3})]},
         "locked_kernels"),
    ],
)  # fmt: skip
def test_what_speaks_against_an_image(change: dict[str, Any], identity: str) -> None:
    read = facts()
    assert ids(read) == set()
    for key, value in change.items():
        read[key] = {**read.get(key, {}), **value} if isinstance(value, dict) else value
    assert identity in ids(read)
    assert judgement.judge(read).refused is (identity == "platform")
    assert all(each.way_out and each.fact for each in judgement.judge(read).findings)


SM90 = {"sm_90": 7}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([{"sm_120a": 40}], True),
        ([SM90, {**SM90, "sm_120a": 40}], True),
        ([{"sm_120a": 40}, {"sm_120": 1}], False),
        ([SM90], False),
        ([], False),
    ],
)
def test_a_package_whose_kernels_are_all_locked_is_named(files: list[dict[str, int]], found: bool) -> None:
    """Whoever's it is: SGLang keeps a file for each chip, all of one name."""
    read = facts(None)
    read["extensions"] = [extension("common_ops", cubins, "sgl_kernel") for cubins in files]
    said = [each.fact for each in judgement.judge(read).findings if each.id == "locked_kernels"]
    assert bool(said) is found and all(text.startswith("common_ops of sgl_kernel") for text in said)
    for more in ({"ptx": {"compute_80": 1}}, {"error": "truncated"}):
        read["extensions"] = [extension("common_ops", {"sm_120a": 4}, "sgl_kernel", **more)]
        assert "locked_kernels" not in ids(read)


def test_of_one_gap_there_is_one_finding_and_of_a_cache_none() -> None:
    read = facts("0.17.0")
    read["extensions"] = [extension("_C", {"sm_120a": 52}), extension("_moe_C", {"sm_120": 12})]
    read["extensions"] += [extension("norm", {"sm_120a": 1}, "Triton")]
    read["caches"] = [{"name": "Triton", "folder": "/root/.triton/cache", "files": 1, "bytes": 1, "cubins": {}}]
    assert ids(read) & {"no_kernels", "locked_kernels"} == {"no_kernels"}


@pytest.mark.parametrize(
    "requires",
    [
        [],
        ["transformers==" + "9" * 5000],
        ["torch==2.11.0"],
        ["transformers"],
        ["transformers>=9; extra == 'x'"],
        ["transformers >= "],
        ["Transformers>=5"],
    ],
)
def test_without_a_plain_wish_of_vllms_there_is_no_drift(requires: list[str]) -> None:
    assert "drift" not in ids(facts(vllm_requires=requires))


def test_a_version_that_is_none_is_not_compared() -> None:
    read = facts(packages={"transformers": "main"})
    read["versions"]["vllm"] = "unknown"
    assert ids(read) == set()


def test_a_candidate_counts_as_its_release() -> None:
    floors = catalog.load("security_floors")["floors"]
    floor = next(each["value"] for each in floors if each["component"] == "vLLM")
    assert "security_floor" not in ids(facts(f"{floor}rc1"))


@pytest.mark.parametrize(("version", "says"), [("0.19.0", "CVE-2026-115911"), ("0.17.1", "PYSEC-2026-4349")])
def test_a_floor_names_a_fault_that_the_version_has(version: str, says: str) -> None:
    found = [each.fact for each in judgement.judge(facts(version)).findings if each.id == "security_floor"]
    assert len([fact for fact in found if fact.startswith("vLLM")]) == 1 and says in found[0]


def test_a_stranger_is_known_from_itself() -> None:
    image = judgement.judge(facts(names=["lab/x:1"], digests=["lab/x@sha256:0a"])).image
    assert (image.version, image.name, image.digest) == ("0.33.0", "lab/x:1", "sha256:0a")
    assert image.contains == {"fastsafetensors", "sm120_cubins"} and image.lacks == {"ray", "instanttensor"}
    assert image.cuda == "13.0.2"


def test_where_the_catalog_says_otherwise_the_image_holds() -> None:
    read = facts("0.33.0", reference="sha256:1", names=["nvcr.io/nvidia/vllm:26.03-py3"])
    found = [each for each in judgement.judge(read).findings if each.id == "catalog_differs"]
    assert [each.fact for each in found] == [
        "the catalog says of it (NGC vLLM 26.03): vLLM 0.17.1, with ray, without fastsafetensors; "
        "its files say otherwise"
    ]
    assert judgement.judge(read).image.version == "0.33.0"
    assert "catalog_differs" not in ids(facts("0.33.0", reference="vllm/vllm-openai:v0.33.0"))


def test_the_judgement_goes_into_json() -> None:
    told = json.loads(json.dumps(judgement.judge(facts("0.17.0")).as_dict()))
    assert told["kernels"][0]["state"] == "native" and told["image"]["contains"] == ["fastsafetensors", "sm120_cubins"]
    assert told["refused"] is False and told["gap"] == []
