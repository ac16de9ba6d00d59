"""What --tags and --skip-tags choose, as pure logic and through the play that asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.tags import (
    PARTS,
    chosen_roles,
    known_tags,
    mistyped_tags,
)

ROOT = Path(__file__).parents[2]
MOST = ["driver", "docker", "page_cache", "fabric", "vllm"]


def test_the_parts_are_all_roles_in_the_order_of_work() -> None:
    assert tuple(chain.from_iterable(PARTS.values())) == catalog.ROLES
    assert chosen_roles(None, ["all"], []) == list(catalog.ROLES)


@pytest.mark.parametrize(
    ("own", "run_tags", "skip_tags", "roles"),
    [
        (MOST, ["docker"], [], ["docker"]),
        (MOST, ["fabric", "serving"], [], ["fabric", "vllm"]),
        (MOST, ["host"], ["docker"], ["driver", "page_cache"]),
        (MOST, ["all"], ["host"], ["fabric", "vllm"]),
        (["docker", "fabric"], ["all"], ["host", "validate"], ["fabric"]),
        (MOST, ["validate"], [], []),
        (["fabric", "driver"], ["all"], [], ["driver", "fabric"]),
        ([], ["all"], [], []),
    ],
)
def test_tags_choose_among_the_roles_of_a_host(
    own: list[str], run_tags: list[str], skip_tags: list[str], roles: list[str]
) -> None:
    assert chosen_roles(own, run_tags, skip_tags) == roles
    of_parts = [chosen_roles(own, run_tags, skip_tags, part) for part in PARTS]
    assert list(chain.from_iterable(of_parts)) == roles


def test_a_mistyped_part_is_not_taken_for_all_of_them() -> None:
    with pytest.raises(KeyError, match="sevring"):
        chosen_roles(None, ["all"], [], "sevring")


def test_a_tag_that_nobody_has_is_named() -> None:
    assert mistyped_tags(["fabrik", "host"], ["vllm", "validat"]) == ["fabrik", "validat"]
    assert mistyped_tags(known_tags(), []) == mistyped_tags(["all"], ["molecule-notest", "notest"]) == []
    every = {"tagged", "untagged", "always", "all", "doctor", "validate", "host", "fabric", "serving", *catalog.ROLES}
    assert set(known_tags()) == every


def test_the_play_refuses_such_a_tag_before_it_reaches_a_host(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("sparks: {hosts: {spark-a: {ansible_host: 192.0.2.1}}}\n")
    done = subprocess.run(
        [
            Path(sys.executable).with_name("ansible-playbook"),
            "-i",
            inventory,
            "playbooks/converge.yml",
            "--tags",
            "fabrik",
        ],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert (
        "no tag is called fabrik: there are doctor, host, fabric, serving, validate, and of the roles kernel_"
        in done.stdout
    )
    assert "UNREACHABLE" not in done.stdout


def test_nothing_of_the_play_comes_before_that() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/converge.yml").read_text())
    leave, refuse = play["tasks"][:2]
    assert leave["ansible.builtin.meta"] == "end_play" and leave["when"].endswith(" and not __converge_mistyped")
    assert refuse["name"].startswith("Refuse") and "__converge_mistyped" in refuse["ansible.builtin.assert"]["that"]
