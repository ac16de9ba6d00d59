"""Who has an account, and what no inventory may say."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import accounts
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.accounts import AccountsPlan, Group, User

KEY, OTHER = "ssh-ed25519 AAAAC3Nzone", "ssh-ed25519 AAAAC3Nzother"
ALICE: dict[str, Any] = {"name": "alice", "uid": 5001}


def made(*users: dict[str, Any], facts: dict[str, Any] | None = None, **more: Any) -> AccountsPlan:
    given = {"accounts_users": list(users), **more}
    return accounts.plan(View("spark-a", {"account_services": [], **(facts or {})}, given))


def test_nothing_is_declared_and_nothing_done() -> None:
    view = View("spark-a", {"account_services": ["sssd"]}, {})
    assert accounts.plan(view) == AccountsPlan()
    assert view.expect == {}, "no fact that could cost a host another call"


def test_an_account_with_all_that_it_may_have() -> None:
    alice = {**ALICE, "groups": ["research"], "keys": [f"{KEY} alice@laptop"], "revoked_keys": [OTHER], "sudo": True}
    bob = {"name": "bob", "state": "absent", "keys": [KEY]}
    plan = made(alice, bob, accounts_groups=[{"name": "research", "gid": 5000}], accounts_allow_sudo=True)
    assert plan == AccountsPlan(
        manages=True,
        groups=(Group("alice", 5001), Group("research", 5000)),
        users=(User("alice", 5001, ("research",), None),),
        keys=(f"alice {KEY}",),
        revoked=(f"alice {OTHER}", f"bob {KEY}"),
        sudoers=("alice",),
        leaving=("bob",),
    )


def test_an_own_group_may_have_another_number() -> None:
    assert made({**ALICE, "gid": 5100}).groups == (Group("alice", 5100),)


@pytest.mark.parametrize("service", ["sssd", "ldap"])
def test_where_a_directory_has_the_accounts_the_role_keeps_away(service: str) -> None:
    plan = made({**ALICE, "keys": [KEY]}, facts={"account_services": [service]})
    assert (plan.manages, plan.users, plan.keys, plan.refusals) == (False, (), (), ())
    assert [(each["id"], each["severity"]) for each in plan.findings] == [("account_services", "warn")]
    assert service in plan.findings[0]["fact"]


@pytest.mark.parametrize(
    ("users", "more", "said"),
    [
        ([{**ALICE, "name": "root"}], {}, "accounts_users holds 'root'"),
        ([{**ALICE, "name": "-f"}], {}, "accounts_users holds '-f'"),
        ([{"name": "alice"}], {}, "accounts_users[alice] has no uid"),
        ([{**ALICE, "uid": 999}], {}, "accounts_users[alice].uid is 999"),
        ([{**ALICE, "gid": 60000}], {}, "accounts_users[alice].gid is 60000"),
        ([ALICE, {**ALICE, "uid": 5002}], {}, "accounts_users[alice] is there twice"),
        ([ALICE, {"name": "bob", "uid": 5001, "gid": 5002}], {}, "alice and bob have the same uid 5001"),
        ([ALICE], {"accounts_groups": [{"name": "research", "gid": 5001}]}, "alice and research have the same gid"),
        ([{**ALICE, "keys": ['command="x" ssh-ed25519 AAAA']}], {}, "accounts_users[alice].keys holds 'command="),
        ([{**ALICE, "keys": [f"{KEY} a"], "revoked_keys": [f"{KEY} b"]}], {}, "in keys and in revoked_keys"),
        ([{**ALICE, "shell": "bash"}], {}, "accounts_users[alice].shell is 'bash'"),
        ([{**ALICE, "groups": ["a,b"]}], {}, "accounts_users[alice].groups holds 'a,b'"),
        ([{**ALICE, "sudo": True}], {}, "accounts_users[alice] has sudo"),
        ([{**ALICE, "groups": ["docker"]}], {}, "accounts_users[alice] is in docker"),
    ],
)
def test_what_cannot_be_meant_is_refused(users: list[dict[str, Any]], more: dict[str, Any], said: str) -> None:
    plan = made(*users, **more)
    assert len(plan.refusals) == 1 and said in plan.refusals[0], plan.refusals
    assert not plan.manages


def test_a_number_is_the_same_on_all_hosts_of_the_inventory() -> None:
    theirs = {"accounts_users": [{**ALICE, "uid": 5009}]}
    mine = {"accounts_users": [ALICE]}
    view = View("spark-a", {"account_services": []}, mine, inventory={"spark-a": mine, "spark-b": theirs})
    assert list(accounts.plan(view).refusals) == [
        f"alice has {word} 5001 here, and 5009 on spark-b. Give it one everywhere." for word in ("uid", "gid")
    ]
