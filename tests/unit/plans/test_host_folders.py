"""Which folders of a host a container may have: one answer for the models' folder, for mounts and for a trial."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import refusals as vllm_refusals
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import widening as vllm_widening

from tests.support.vllm_plans import HOME, OF_ITS_OWN, OF_THE_HOST, alone, settings

ROOT = Path(__file__).parents[3]


NOBODY = View("spark-a", {}, {})
SAID = settings()


def of_models(path: str) -> list[str]:
    return list(vllm_refusals._directory(NOBODY, dataclasses.replace(SAID, vllm_cache_directory=path)))


def of_mounts(mount: str) -> list[str]:
    said = dataclasses.replace(SAID, vllm_mounts=(mount,), vllm_allow_mounts=True)
    return list(vllm_widening.refusals(NOBODY, said))


@pytest.mark.parametrize("path", OF_THE_HOST)
def test_a_folder_of_the_host_or_of_a_role_is_no_folder_of_models_and_no_mount(path: str) -> None:
    (text,) = of_models(path)
    assert f"vllm_cache_directory is '{path}'" in text and "directory of its own" in text
    for mode in ("", ":ro"):
        (text,) = of_mounts(f"{path}:/x{mode}")
        assert f"vllm_mounts: {path} belongs to the host's system or to the role" in text


@pytest.mark.parametrize("path", OF_ITS_OWN)
def test_a_folder_of_its_own_is_taken(path: str) -> None:
    assert of_models(path) == of_mounts(f"{path}:/x") == []


@pytest.mark.parametrize("path", ["/srv", "/mnt", f"{HOME}/.cache", "/var/cache/gb10-vllm"])
def test_a_whole_disk_may_hold_models_and_is_no_mount(path: str) -> None:
    assert not of_models(path) and of_mounts(f"{path}:/x")


def test_a_whole_plan_says_it_once() -> None:
    for variables in (
        {"vllm_cache_directory": "/etc/cron.d"},
        {"vllm_cache_directory": "/usr/bin", "vllm_fetch": False},
    ):
        (text,) = alone(**variables).refusals
        assert "directory of its own" in text


def test_every_folder_that_a_plugin_names_is_known() -> None:
    files = [
        path for end in ("py", "yml", "j2") for room in ("plugins", "roles") for path in (ROOT / room).rglob(f"*.{end}")
    ]
    text = "".join(path.read_text() for path in files)
    named = set(re.findall(r"/var/(?:cache|lib)/gb10-[a-z]+", text)) - {
        "/var/cache/gb10-vllm",
        "/var/cache/gb10-triton",
    }
    assert len(named) >= 8
    assert [path for path in sorted(named) if not of_models(path)] == []


@pytest.mark.parametrize(
    ("path", "refused"), [("", 0), ("/home/you/.cache/huggingface", 0), ("cache", 1), ("/a/../b", 1)]
)
def test_a_cache_to_copy_from_is_a_path_of_the_host(path: str, refused: int) -> None:
    said = dataclasses.replace(SAID, vllm_cache_source=path)
    assert len(list(vllm_refusals._source(NOBODY, said))) == refused
