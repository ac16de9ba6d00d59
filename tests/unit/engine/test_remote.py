"""The door of the engine: what a request must be, and what every answer holds."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine import remote
from ansible_collections.gb10.fleet.plugins.module_utils.engine.remote import answer, fact_digest
from ansible_collections.gb10.fleet.plugins.module_utils.system import lock
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import MANIFEST
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System

from tests.support.attacker import tally
from tests.support.fake_host import FakeHost

MOTD = {"role": "demo", "resources": [{"file": "/etc/motd", "content": "x\n"}]}
REQUEST: dict[str, Any] = {
    "verb": "converge",
    "check": False,
    "documents": [MOTD],
    "consents": {},
    "expect": {},
    "facts": None,
    "project": "0.2.0",
    "run": "me@controller 1 2026-11-21T05:00:00Z",
    "orphans": "show",
    "roles": None,
}
FIELDS = {
    *("facts", "stale", "changes", "pending", "orphans", "diff", "wishes", "ends"),
    *("known", "recorded", "guard", "subprocesses", "error"),
}


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.on("ip -j -batch -", "[]\n[]\n")
    host.on("nvidia-smi", Completed((), 127))
    host.file("/proc/sys/kernel/hostname", "spark-a\n")
    return host


def ask(host: FakeHost, *, root: bool = True, **changes: Any) -> dict[str, Any]:
    given = {key: value for key, value in {**REQUEST, **changes}.items() if value is not ...}
    said = answer(given, System(host.root, host.run, host.clock, privileged=root))
    assert said.keys() == FIELDS
    assert json.loads(json.dumps(said)) == said
    return said


def test_an_answer_says_what_was_changed(host: FakeHost) -> None:
    said = ask(host)
    assert said["changes"] == [
        {"role": "demo", "resource": "file:/etc/motd", "action": "create", "detail": "root:root 0644"}
    ]
    assert said["diff"][0]["after"] == "x\n"
    assert (said["facts"], said["stale"], said["error"], said["subprocesses"]) == (None, [], None, 0)
    assert ask(host)["changes"] == []


def test_facts_come_along_and_are_read_again_after_a_change(host: FakeHost) -> None:
    document = {"role": "demo", "resources": [{"file": "/proc/sys/kernel/hostname", "content": "new\n"}]}
    assert ask(host, documents=[document], facts={"paths": []}, check=True)["facts"]["hostname"] == "spark-a"
    assert ask(host, documents=[document], facts={"paths": ["/srv"]})["facts"]["hostname"] == "new"
    calls = len(host.calls)
    again = ask(host, documents=[document], facts={"paths": []})
    assert again["changes"] == []
    assert again["subprocesses"] == len(host.calls) - calls <= 2


def test_old_facts_stop_everything_and_come_back_new(host: FakeHost) -> None:
    facts = ask(host, documents=[], facts={"paths": []})["facts"]
    before = host.digest()
    wrong = {"hostname": fact_digest("spark-b"), "kernel": fact_digest(facts["kernel"]), "gone": fact_digest(None)}
    said = ask(host, facts={"paths": []}, expect=wrong)
    assert said["stale"] == ["hostname", "gone"]
    assert said["facts"]["hostname"] == "spark-a"
    assert (said["changes"], said["error"]) == ([], None)
    assert host.digest() == before
    right = {key: fact_digest(facts[key]) for key in ("hostname", "kernel", "rails", "packages")}
    assert ask(host, facts={"paths": []}, expect=right)["changes"] != []


def test_who_looked_before_the_lock_works_on_no_other_manifest(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull looked, a push took a lost key back, and the pull opened it again."""

    def pulled(seen: int, *resources: dict[str, Any]) -> dict[str, Any]:
        monkeypatch.setenv("GB10_MANIFEST_NS", str(seen))
        document = {"role": "demo", "resources": [*MOTD["resources"], *resources]}
        return answer({**REQUEST, "documents": [document]}, System(host.root, host.run, host.clock, privileged=True))

    def written() -> int:
        return host.path(MANIFEST).stat().st_mtime_ns

    first = pulled(0)
    assert first["changes"] and first["changed_ns"] == written()
    assert pulled(first["changed_ns"])["changed_ns"] == written(), "its own"
    descriptor = os.open(host.path(lock.LOCK), os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    def push() -> None:
        host.path("/etc/motd").write_text("theirs\n")
        os.utime(host.path(MANIFEST), ns=(1, 1))
        os.close(descriptor)

    host.clock.at_sleep = push  # while the pull waits for it
    late = pulled(first["changed_ns"])
    won = host.path("/etc/motd").read_text() != "theirs\n"
    tally("a pull that looked before a push had the lock", 1, int(won))
    assert late["stale"] == ["manifest"] and "changed_ns" not in late and not late["changes"] and not won
    host.on("modprobe", Completed((), 1, stderr="no such module"))
    failed = pulled(1, {"kernel_module": "rdma_cm"})
    assert failed["error"]["kind"] == "apply" and failed["changed_ns"] == written() != 1, "what fails is taken up again"


def test_without_root_there_are_facts_and_a_refusal(host: FakeHost) -> None:
    before = host.digest()
    said = ask(host, root=False, facts={"paths": []})
    assert said["error"] == {
        "kind": "host",
        "message": "the state of a host is for root to see and to change; set become: true",
    }
    assert said["facts"]["hostname"] == "spark-a"
    assert host.digest() == before
    assert not host.path("/run/gb10-fleet").exists()


def test_drift_and_undo_need_little_of_a_request(host: FakeHost) -> None:
    short: dict[str, Any] = {
        "documents": ...,
        "expect": ...,
        "orphans": ...,
        "roles": ...,
        "facts": ...,
        "consents": ...,
    }
    assert ask(host, verb="drift", check=True, **short)["known"] is False
    ask(host)
    host.path("/etc/motd").write_text("y\n")
    (found,) = ask(host, verb="drift", check=True, **short)["changes"]
    assert found["resource"] == "file:/etc/motd"
    ask(host)
    assert ask(host, verb="undo", **short)["changes"][0]["action"] == "remove"


def test_what_fails_half_way_tells_what_was_done_and_no_facts(host: FakeHost) -> None:
    host.on("modprobe", Completed((), 1, stderr="no such module"))
    document = {"role": "demo", "resources": [*MOTD["resources"], {"kernel_module": "rdma_cm"}]}
    said = ask(host, documents=[document], facts={"paths": []})
    assert said["error"]["kind"] == "apply"
    assert "modprobe: no such module" in said["error"]["message"]
    assert said["changes"][0]["resource"] == "file:/etc/motd"
    assert said["facts"] is None


def test_a_refusal_of_the_host_is_none_of_the_request(host: FakeHost) -> None:
    host.path("/etc/motd").mkdir()
    said = ask(host, facts={"paths": []})
    assert said["error"]["kind"] == "host"
    assert "expected a file, found a directory" in said["error"]["message"]
    assert said["facts"] is not None


def test_a_defect_of_ours_shows_its_place_and_no_contents(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any, **_options: Any) -> None:
        raise RuntimeError("hunter2")

    monkeypatch.setattr(remote, "converge", broken)
    said = ask(host)
    assert said["error"]["kind"] == "host"
    assert "RuntimeError in broken, line" in said["error"]["message"]
    assert said["error"]["message"].endswith(" of test_remote.py")
    assert "hunter2" not in json.dumps(said)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verb": "destroy"}, "verb: expected one of converge, drift, undo, wish, found 'destroy'"),
        ({"verb": ...}, "verb: is missing"),
        ({"check": ...}, "check: is missing"),
        ({"check": "no"}, "check: expected true or false"),
        ({"documents": ...}, "documents: is missing"),
        ({"documents": {}}, "documents: expected a list"),
        ({"documents": [{"role": "demo"}]}, "documents[0]: expected a mapping with role and resources"),
        ({"documents": [{**MOTD, "more": 1}]}, "documents[0]: expected a mapping with role and resources"),
        ({"documents": [{**MOTD, "role": "../x"}]}, "role: expected the name of a role"),
        ({"documents": [{**MOTD, "role": "Demo"}]}, "role: expected the name of a role"),
        ({"documents": [MOTD, MOTD]}, "role: demo has more than one document"),
        ({"documents": [MOTD, {"role": "b", "resources": {}}]}, "b.resources: expected a list"),
        (
            {"documents": [MOTD, {"role": "b", "resources": [{"file": "/etc/motd", "content": ""}]}]},
            "b.resources[0].file",
        ),
        ({"documents": [MOTD, {"role": "b", "resources": [{"package": "-x"}]}]}, "b.resources[0].package"),
        ({"consents": []}, "consents: expected a mapping"),
        ({"consents": {"a": "yes"}}, "consents.a: expected true or false"),
        ({"consents": {"a b": True}}, "consents: 'a b' is no name"),
        ({"expect": {"hostname": "abc"}}, "expect.hostname: expected a SHA-256"),
        ({"expect": {"hostname": "0" * 64}}, "expect: there are digests of facts to compare, but no facts"),
        ({"facts": {}}, "facts: expected null or a mapping with paths"),
        ({"facts": {"paths": ["srv"]}}, "facts.paths[0]: expected an absolute path"),
        ({"facts": {"paths": ["/srv\n"]}}, "facts.paths[0]: expected an absolute path"),
        ({"facts": {"paths": ["/x"] * 101}}, "facts.paths: expected at most 100, found 101"),
        ({"project": "0.2.0; id"}, "project: expected a version"),
        ({"run": "a\nb"}, "run: expected who runs this"),
        ({"run": "x" * 300}, "run: expected who runs this"),
        ({"orphans": "delete"}, "orphans: expected one of show, remove"),
        ({"roles": "docker"}, "roles: expected a list"),
        ({"roles": ["-x"]}, "roles[0]: expected the name of a role"),
        ({"verb": "wish"}, "wish: is missing"),
        ({"verb": "wish", "wish": None}, "wish: belongs to the verb wish"),
        ({"wish": {"unit": "a.service", "state": "stopped", "until": ""}}, "wish: belongs to the verb wish"),
        ({"verb": "wish", "wish": {"unit": "a.service"}}, "wish: expected a mapping with unit, state and until"),
        (
            {"verb": "wish", "wish": {"unit": "a b", "state": "stopped", "until": ""}},
            "wish.unit: expected the full name of a unit",
        ),
        (
            {"verb": "wish", "wish": {"unit": "a.service", "state": "gone", "until": ""}},
            "wish.state: expected one of stopped, started",
        ),
        (
            {"verb": "wish", "wish": {"unit": "a.service", "state": "stopped", "until": "07:00\n"}},
            "wish.until: expected a time",
        ),
        ({"sudo": True}, "sudo: a request has no such field"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(host: FakeHost, changes: dict[str, Any], message: str) -> None:
    before = host.digest()
    said = ask(host, **changes)
    assert said["error"]["kind"] == "request"
    assert message in said["error"]["message"]
    assert host.digest() == before
    assert host.calls == []


@pytest.mark.parametrize("request_", [None, [], "x", 1])
def test_only_an_object_is_a_request(host: FakeHost, request_: Any) -> None:
    assert answer(request_, host.system)["error"] == {"kind": "request", "message": "request: expected a JSON object"}


@pytest.mark.parametrize(
    ("changes", "exclusive"),
    [({}, True), ({"check": True}, False), ({"verb": "drift"}, False), ({"verb": "undo"}, True)],
)
def test_whoever_changes_the_host_is_alone_with_it(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], exclusive: bool
) -> None:
    seen = []

    @contextlib.contextmanager
    def held(_system: System, run: str, *, exclusive: bool, patience: float) -> Iterator[None]:
        seen.append((run, exclusive))
        yield

    monkeypatch.setattr(lock, "held", held)
    ask(host, **changes)
    assert seen == [(REQUEST["run"], exclusive)]
