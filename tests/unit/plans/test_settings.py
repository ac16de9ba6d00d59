"""Settings of a role: converted by Ansible's validator, or refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings, SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.planner import FabricSettings


@dataclass(frozen=True)
class Some(RoleSettings, role="vllm"):
    vllm_port: int
    vllm_allow_tag: bool
    vllm_gpu_memory_utilization: float
    vllm_model_exclude: tuple[str, ...]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"vllm_port": "9000"}, {"vllm_port": 9000}),
        ({"vllm_allow_tag": "true"}, {"vllm_allow_tag": True}),
        ({"vllm_allow_tag": "no"}, {"vllm_allow_tag": False}),
        ({"vllm_gpu_memory_utilization": "0.8"}, {"vllm_gpu_memory_utilization": 0.8}),
        ({"vllm_model_exclude": ["a", 5]}, {"vllm_model_exclude": ("a", "5")}),
    ],
)
def test_what_is_clear_is_converted_as_a_survey_gives_it(given: dict[str, Any], expected: dict[str, Any]) -> None:
    read = settings.read(Some, {"vllm_model": "a/b", **given})
    assert {name: getattr(read, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"vllm_port": "soon"}, "vllm_port is the text 'soon', and must be a whole number"),
        ({"vllm_port": True}, "vllm_port is True, and must be a whole number"),
        ({"vllm_port": 80.5}, "vllm_port is 80.5, and must be a whole number"),
        ({"vllm_allow_tag": "maybe"}, "vllm_allow_tag is the text 'maybe', and must be true or false"),
        ({"vllm_model_exclude": "a,b"}, "vllm_model_exclude is the text 'a,b', and must be a list"),
        ({"vllm_environment": '{"A": "b"}'}, 'vllm_environment is the text \'{"A": "b"}\', and must be a mapping'),
        ({"vllm_executor": "slurm"}, "value of vllm_executor must be one of: mp, ray, got: slurm"),
        (
            {"vllm_port": "x", "vllm_fetch": "often"},
            "vllm_fetch is the text 'often', and must be true or false; vllm_port is",
        ),
    ],
)
def test_what_is_not_clear_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError) as error:
        settings.read(Some, given)
    assert str(error.value).startswith(says)


@pytest.mark.parametrize(
    ("role", "given", "says"),
    [
        ("accounts", {"accounts_users": [{"name": "al", "uid": "x"}]}, "accounts_users[al].uid is the text 'x'"),
        ("accounts", {"accounts_users": [{"uid": 5001, "name": "al"}, 3]}, "accounts_users[2] is 3, and must be a"),
        ("accounts", {"accounts_groups": [{"name": "al", "gid": [5]}]}, "accounts_groups[al].gid is [5], and must be"),
        ("vllm", {"vllm_lora": ["sql"]}, "vllm_lora[1] is the text 'sql', and must be a mapping"),
        ("vllm", {"vllm_lora": [{"name": "sql"}]}, "missing required arguments: model found in vllm_lora[sql]"),
        ("vllm", {"vllm_speculative": {"tokens": "x"}}, "vllm_speculative.tokens is the text 'x', and must be a whole"),
    ],
)
def test_what_is_wrong_inside_is_named_by_its_place(role: str, given: dict[str, Any], says: str) -> None:
    found = settings.mistakes(catalog.declared_variables().roles[role], given)
    assert len(found) == 1 and found[0].startswith(says)


def test_a_secret_of_a_wrong_type_is_not_shown() -> None:
    with pytest.raises(SettingsError) as error:
        settings.read(Some, {"vllm_api_key": {"key": "sesame"}})
    assert "sesame" not in str(error.value) and "vllm_api_key" in str(error.value)


def test_defaults_fill_in_what_nobody_set() -> None:
    assert settings.read(FabricSettings, {}).fabric_mtu == 9000


def test_hosts_do_not_share_what_they_were_given() -> None:
    one, other = (settings.read(FabricSettings, {"fabric_test": {"qps": 8}}) for _ in range(2))
    assert one == other and one.fabric_test is not other.fabric_test


def test_a_value_with_a_mistake_stays_as_it_is_for_the_finding() -> None:
    option = catalog.declared_variables().variables["vllm_port"]
    assert settings.value("vllm_port", option, "8001") == 8001
    assert settings.value("vllm_port", option, "soon") == "soon"
