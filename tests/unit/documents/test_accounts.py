"""What the role accounts declares of people."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

KEY = "ssh-ed25519 AAAAC3Nzone"
SUDOERS = "/etc/sudoers.d/gb10-accounts"


def resources(**variables: Any) -> list[dict[str, Any]]:
    return [dict(each) for each in render("accounts", View("spark-a", {"account_services": []}, variables)).resources]


def test_an_inventory_that_names_nobody_declares_nothing() -> None:
    assert resources() == []


def test_an_account_from_its_group_to_its_rule_of_sudo() -> None:
    alice = {"name": "alice", "uid": 5001, "keys": [f"{KEY} alice@laptop"], "sudo": True}
    group, account, key, rule = resources(accounts_users=[alice], accounts_allow_sudo=True)
    assert group == {"account_group": "alice", "gid": 5001}
    found = {name: value for name, value in account.items() if value is not None}
    assert found == {"account": "alice", "uid": 5001, "group": "alice"}, "its groups and its shell stay"
    assert key == {"account_key": f"alice {KEY}"}
    assert rule["file"] == SUDOERS and "\nalice ALL=(ALL:ALL) NOPASSWD: ALL\n" in rule["content"]
    assert rule["validate"] == ["visudo", "-cf", "%s"] and rule["mode"] == "0440"


def test_who_leaves_goes_with_key_and_group_and_the_rule_of_sudo_goes_first() -> None:
    bob = {"name": "bob", "state": "absent", "keys": [KEY]}
    assert resources(accounts_users=[bob]) == [
        {"account_key": f"bob {KEY}", "state": "absent"},
        {"file": SUDOERS, "state": "absent"},
        {"account": "bob", "state": "absent"},
        {"account_group": "bob", "state": "absent"},
    ]
