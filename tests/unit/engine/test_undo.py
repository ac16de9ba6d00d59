"""Converge, kill, undo: wherever a run dies, the next one ends as if nothing had happened, and the way back is open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.units import LOADED
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, HostError, System

from tests.support.undone import DOCUMENTS, Apt, Killed, World, documents_of

MOTD = {"file": "/etc/motd", "content": "ours\n"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "host")


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[World]:
    return (World(tmp_path / str(number)) for number in range(10_000))


def places(result: dict[str, Any]) -> list[str]:
    return [change["resource"] for change in result["changes"]]


# --------------------------------------------------------------------------------------------------- undisturbed runs


def test_undo_leads_back_to_where_the_host_was(world: World) -> None:
    before = world.digest()
    made = world.done("converge")
    assert world.apt.packages.keys() == {"bash", "docker-ce", "perftest", "containerd", "runc"}
    assert world.digest() != before

    foretold = world.done("undo", check=True)
    undone = world.done("undo")

    assert world.digest() == before
    # A directory that only the purge of a package empties goes as well, and nobody can foretell it.
    emptied = [change for change in undone["changes"] if change["resource"] == "file:/etc/docker"]
    assert [*foretold["changes"], *emptied] == undone["changes"]
    assert not world.host.path(manifests.STATE_DIRECTORY).exists()
    assert {"package:containerd", "package:runc"} <= set(places(undone))
    assert len(undone["changes"]) >= len(made["changes"]) > 10
    assert world.done("undo")["changes"] == []


def test_a_second_run_changes_nothing_and_writes_nothing(world: World) -> None:
    world.done("converge")
    written = world.host.path(manifests.MANIFEST).stat().st_mtime_ns
    said = world.done("converge")
    assert said["changes"] == []
    assert said["recorded"] is True
    assert world.host.path(manifests.MANIFEST).stat().st_mtime_ns == written
    # packages and holds come out of dpkg's file
    assert said["subprocesses"] == 1


def test_a_host_that_was_right_all_along_still_wants_a_manifest(world: World) -> None:
    documents = [{"role": "docker", "resources": [{"file": "/etc/apt/sources.list", "content": ""}]}]
    look = world.done("converge", documents=documents, check=True)
    assert (look["changes"], look["recorded"]) == ([], False)
    assert world.done("drift")["known"] is False
    said = world.done("converge", documents=documents)
    assert (said["changes"], said["recorded"]) == ([], True)
    assert world.done("converge", documents=documents, check=True)["recorded"] is True
    assert world.done("drift")["known"] is True


def test_a_rollback_takes_back_what_came_with_its_rollout_alone(world: World) -> None:
    """A host was set up by `site`, and a rollout changed one file of a role: its rollback took the whole role away."""
    first, second = "me@here 1 2026-12-01T00:00:00Z", "me@here 2 2026-12-01T00:00:00Z rollout R2 attempt 3"
    world.done("converge", documents=documents_of(MOTD), run=first)
    world.done("converge", documents=documents_of({**MOTD, "content": "new\n"}), run=second)
    stands = world.digest()
    said = world.ask("undo", roles=["docker"], of="R2", run=second)["error"]["message"]
    assert said.startswith(
        "docker: the manifest does not say that R2 brought it, and knows only what stood before us. "
    )
    assert world.digest() == stands
    world.done("converge", documents=[{"role": "fabric", "resources": [{"file": "/etc/x", "content": ""}]}], run=second)
    assert "docker, fabric" not in world.ask("undo", roles=["docker", "fabric"], of="R2")["error"]["message"]
    assert places(world.done("undo", roles=["fabric"], of="R2")) == ["file:/etc/x"]
    assert world.digest() == stands
    again = world.done("undo", roles=["fabric"], known_roles=["fabric"], of="R2")
    assert again["changes"] == [], "a second time there is nothing left"


def test_one_role_goes_and_what_it_shares_stays(world: World) -> None:
    world.done("converge")
    undone = world.done("undo", roles=["docker"])
    assert "docker-ce" not in world.apt.packages
    assert "containerd" not in world.apt.packages
    assert "perftest" in world.apt.packages
    assert world.host.path("/etc/gb10-fleet").is_dir()
    assert "file:/etc/gb10-fleet" not in places(undone)
    assert {change["role"] for change in undone["changes"]} == {"docker"}
    left = world.manifest()["resources"]
    assert left["file:/etc/gb10-fleet"]["roles"].keys() == {"serving"}
    assert world.done("converge", documents=DOCUMENTS[1:])["changes"] == []
    world.done("undo", roles=["serving"])
    assert not world.host.path("/etc/gb10-fleet").exists()


def test_undo_stops_a_unit_first_and_starts_it_when_all_is_back(world: World) -> None:
    world.systemd.add("old.service", active="active", file="enabled")
    world.host.file("/etc/old.conf", "old\n")
    mine = [
        {"file": "/etc/old.conf", "content": "new\n"},
        {"unit": "old.service", "restart_on": ["/etc/old.conf"], "consent": "docker_allow_restart"},
        {"file": "/etc/new.conf", "content": "x"},
    ]
    world.done("converge", documents=[{"role": "docker", "resources": mine}])
    undone = world.done("undo")
    assert places(undone) == ["file:/etc/new.conf", "file:/etc/old.conf", "unit:old.service"]
    assert world.host.commands("systemctl restart") == ["systemctl restart old.service"] * 2


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("meddle", "words"),
    [
        (lambda world: world.host.file("/etc/motd", "somebody's\n"), "file:/etc/motd (content)"),
        (lambda world: world.host.path("/etc/motd").chmod(0o666), "file:/etc/motd (mode 0644 -> 0666)"),
        (lambda world: world.host.file("/proc/sys/net/ipv4/conf/all/arp_ignore", "2\n"), "value 1 -> 2"),
        (lambda world: world.host.file("/etc/docker/daemon.json", "{}"), "file:/etc/docker/daemon.json (content)"),
        (lambda world: world.systemd.units["serving.service"].update(UnitFileState="disabled"), "unit:serving.service"),
        (lambda world: world.apt.select([], "docker-ce install"), "hold:docker-ce (docker-ce True -> False)"),
    ],
)
def test_what_somebody_changed_is_not_taken_away(world: World, meddle: Callable[[World], Any], words: str) -> None:
    world.done("converge")
    meddle(world)
    before, manifest = world.digest(), world.manifest()
    for check in (True, False):
        said = world.ask("undo", check=check)
        assert said["error"]["kind"] == "host"
        assert words in said["error"]["message"]
        assert "Nothing was undone" in said["error"]["message"]
    assert (world.digest(), world.manifest()) == (before, manifest)


@pytest.mark.parametrize("folder", ["sources.list.d/x.sources", "preferences.d/x"])
def test_what_apt_refuses_is_said_before_anything_is_undone(world: World, folder: str) -> None:
    """Its sources and pins go after the packages, so they change nothing about its answer."""
    source = {"file": f"/etc/apt/{folder}", "content": "x\n"}
    world.done("converge", documents=documents_of(source, {"package": "docker-ce", "version": "29.1"}, MOTD))
    world.apt.removed = ["mpi"]
    before = world.digest()
    for check in (True, False):
        said = world.ask("undo", check=check)
        assert (said["error"]["kind"], said["changes"]) == ("host", [])
        assert "apt would also remove mpi" in said["error"]["message"]
    assert world.digest() == before


def test_a_former_version_that_apt_no_longer_knows_is_said_before_anything_is_undone(world: World) -> None:
    world.apt.packages["perftest"] = "23.0"
    world.apt.write()
    world.done("converge", documents=documents_of({"package": "perftest", "version": "24.01"}, MOTD))
    before = world.digest()
    for check in (True, False):
        said = world.ask("undo", check=check)
        assert (said["error"]["kind"], said["changes"]) == ("host", [])
        assert "23.0 stood here before, and no apt source offers it" in said["error"]["message"]
    assert world.digest() == before
    assert world.host.commands("apt-get update") == []
    world.apt.packages["perftest"] = "23.0"
    world.apt.write()
    assert places(world.done("undo")) == ["file:/etc/motd"]


def test_the_content_of_what_was_changed_is_not_shown(world: World) -> None:
    world.done("converge")
    world.host.file("/etc/motd", "hunter2\n")
    assert "hunter2" not in world.ask("undo")["error"]["message"]


DAEMON = "/etc/docker/daemon.json"


def daemon(world: World) -> Any:
    return json.loads(world.host.path(DAEMON).read_text())


def test_keys_of_somebody_survive_in_a_file_that_is_ours_in_part(world: World) -> None:
    """Whenever they came, and also if a key of theirs became one of ours later."""
    world.host.file(DAEMON, '{"data-root": "/a"}')
    world.done("converge", documents=documents_of({"file": DAEMON, "merge_json": {"features": {"cdi": True}}}))
    world.host.file(DAEMON, '{"data-root": "/big", "debug": false, "features": {"cdi": true, "x": 1}}')
    merged = {"features": {"cdi": True}, "debug": True, "hosts": ["fd://"]}
    world.done("converge", documents=documents_of({"file": DAEMON, "merge_json": merged}))
    world.host.file(DAEMON, json.dumps({**daemon(world), "hosts": ["fd://", "tcp://"], "mine": 1}))
    world.done("converge", documents=documents_of({"file": DAEMON, "merge_json": {"hosts": ["fd://"]}}))
    world.done("undo")
    theirs = {"data-root": "/big", "debug": False, "features": {"x": 1}, "hosts": ["tcp://"], "mine": 1}
    assert daemon(world) == theirs


def test_the_way_back_of_a_json_file_shows_our_keys_only_and_keeps_who_may_read_it(world: World) -> None:
    world.host.file(DAEMON, '{"proxies": "hunter2", "a": {"x": "hunter2"}}', 0o600)
    world.done("converge", documents=documents_of({"file": DAEMON, "merge_json": {"a": {"b": 1}, "c": [1]}}))
    diff = world.done("undo")["diff"]
    assert "hunter2" not in str(diff)
    assert [json.loads(entry["before"]) for entry in diff if DAEMON in entry.get("before_header", "")] == [
        {"a": {"b": 1}, "c": [1]}
    ]
    assert world.host.path(DAEMON).stat().st_mode & 0o777 == 0o600


def test_what_somebody_wrote_between_a_kill_and_its_repeat_is_theirs(worlds: Iterator[World]) -> None:
    def documents(motd: str) -> list[dict[str, Any]]:
        return documents_of({"file": DAEMON, "merge_json": {"a": {"b": 1}}}, {"file": "/etc/motd", "content": motd})

    tried = 0
    for life, world in zip(range(1, 40), worlds, strict=False):
        world.done("converge", documents=documents("1"))
        try:
            world.ask("converge", life, documents=documents("2"))
        except Killed:
            world.host.file(DAEMON, '{"mine": 1, "a": {"b": 1}}')
            world.done("converge", documents=documents("2"))
            world.done("undo")
            assert daemon(world) == {"mine": 1}
            tried += 1
    assert tried > 3


def test_a_file_that_was_ours_in_part_goes_with_our_keys_or_is_as_before_to_the_byte(worlds: Iterator[World]) -> None:
    resource = {"file": DAEMON, "merge_json": {"a": {"b": [1, 2]}}, "default_json": {"c": 3}}
    for former in (None, "", '{"a":   {}}', '{"a": {"b": [3, 2]}, "c": 4}\n', '{"a": 5}'):
        world = next(worlds)
        if former is not None:
            world.host.file(DAEMON, former)
        before = world.digest()
        world.done("converge", documents=documents_of(resource))
        assert world.digest() != before
        world.done("undo")
        assert world.digest() == before


def test_what_waited_for_consent_is_somebodys_until_our_first_step(world: World) -> None:
    world.apt.offers["docker-ce"] = ["30.0", "29.1", "28.0"]
    world.apt.packages["docker-ce"] = "28.0"
    world.apt.write()
    documents = documents_of({"package": "docker-ce", "version": "30.0", "consent": "docker_allow_restart"})
    assert world.done("converge", documents=documents, consents={})["pending"] != []
    world.apt.packages["docker-ce"] = "29.1"
    world.apt.write()
    world.done("converge", documents=documents)
    world.done("undo")
    assert world.apt.packages["docker-ce"] == "29.1"


def test_what_stands_as_before_us_is_undone_already(world: World) -> None:
    before = world.digest()
    world.done("converge")
    world.host.file("/etc/motd", "theirs\n", 0o600)
    world.host.file("/proc/modules", "")
    assert not {"file:/etc/motd", "kernel_module:rdma_cm"} & set(places(world.done("undo")))
    assert world.digest() == before


def test_a_former_secret_that_was_put_back_by_hand_no_longer_stops_an_undo(world: World) -> None:
    world.host.file("/etc/key", "theirs", 0o640)
    world.done("converge", documents=documents_of({"file": "/etc/key", "content": "ours", "secret": True}))
    world.host.file("/etc/key", "theirs", 0o640)
    assert world.done("undo")["changes"] == []
    assert world.host.path("/etc/key").read_text() == "theirs"


def test_a_package_of_any_version_may_be_upgraded_by_somebody(world: World) -> None:
    """What was there before us stays as it is now, and what came with us goes in any version."""
    world.apt.packages["old"] = "1"
    world.apt.write()
    world.done("converge", documents=documents_of({"package": "old"}, {"package": "perftest"}))
    world.apt.packages.update({"old": "1.1", "perftest": "24.10"})
    world.apt.write()
    assert places(world.done("undo")) == ["package:perftest"]
    assert world.apt.packages["old"] == "1.1"


def test_a_hold_does_not_outlive_its_package(world: World) -> None:
    world.apt.packages.update({"linux-image-6.8": "1", "linux-image-6.9": "1"})
    world.apt.write()
    world.done("converge", documents=documents_of({"hold": "kernel", "match": ["^linux-image-"]}))
    del world.apt.packages["linux-image-6.8"]
    world.apt.packages["linux-image-6.10"] = "1"
    world.apt.write()
    assert places(world.done("undo")) == ["hold:kernel"]
    assert "linux-image-6.9" not in world.held()


@pytest.mark.parametrize("state", [("failed", ""), ("inactive", ""), ("activating", "auto-restart-queued")])
def test_a_unit_that_crashed_was_changed_by_nobody(world: World, state: tuple[str, str]) -> None:
    world.done("converge")
    world.systemd.units["serving.service"].update(ActiveState=state[0], SubState=state[1])
    world.done("undo")
    assert world.systemd.units["serving.service"]["UnitFileState"] == "disabled"
    assert not world.host.path("/etc/systemd/system/serving.service").exists()


def test_drift_that_waits_for_a_consent_says_what_differs(world: World) -> None:
    world.done("converge")
    world.apt.packages["docker-ce"] = "28.0"
    world.apt.write()
    (pending,) = world.done("drift")["pending"]
    assert (pending["resource"], pending["detail"]) == ("package:docker-ce", "28.0 -> 29.1")


def test_undo_needs_the_consent_that_the_change_needed(world: World) -> None:
    world.done("converge")
    before = world.digest()
    said = world.ask("undo", consents={})
    text = said["error"]["message"]
    assert "needs your consent (docker_allow_restart, to remove package:docker-ce" in text
    assert "set docker_allow_restart: true and serving_allow_restart: true in the inventory, or for one run" in text
    assert "(with gb10: -- -e docker_allow_restart=true -e serving_allow_restart=true)" in text
    assert world.digest() == before


def test_a_missing_consent_is_named_and_no_package_to_remove_by_hand(world: World) -> None:
    """apt would take docker-ce along with a package that needs no consent; whoever removes it ends the model."""
    world.done("converge")
    world.apt.removed = ["docker-ce"]
    before = world.digest()
    for check in (True, False):
        text = world.ask("undo", consents={}, check=check)["error"]["message"]
        assert "set docker_allow_restart: true" in text
        assert "remove those yourself" not in text
    assert world.digest() == before


def test_the_stamp_of_a_timer_goes_with_the_timer(world: World) -> None:
    """systemd writes it for Persistent=true, and nothing removes it with the unit file."""
    unit = "/etc/systemd/system/mine.timer"
    timer = {"unit": "mine.timer", "enabled": True, "state": "started"}
    world.done("converge", documents=documents_of({"file": unit, "content": "[Timer]\n"}, timer))
    stamp = world.host.file("/var/lib/systemd/timers/stamp-mine.timer", "")
    other = world.host.file("/var/lib/systemd/timers/stamp-apt-daily.timer", "")
    assert "file:/var/lib/systemd/timers/stamp-mine.timer" in places(world.done("undo"))
    assert (stamp.exists(), other.exists()) == (False, True)


def test_a_timer_that_stood_there_before_keeps_its_stamp(world: World) -> None:
    world.systemd.add("theirs.timer")
    stamp = world.host.file("/var/lib/systemd/timers/stamp-theirs.timer", "")
    world.done("converge", documents=documents_of({"unit": "theirs.timer", "enabled": True}))
    world.done("undo")
    assert stamp.exists()


def test_a_secret_that_stood_there_before_cannot_come_back(world: World) -> None:
    world.host.file("/etc/key", "theirs")
    mine = [{"file": "/etc/key", "content": "ours", "secret": True}]
    world.done("converge", documents=[{"role": "docker", "resources": mine}])
    text = world.host.path(manifests.MANIFEST).read_text()
    assert "ours" not in text
    assert "theirs" not in text
    assert "cannot be brought back" in world.ask("undo")["error"]["message"]
    assert world.host.path("/etc/key").read_text() == "ours"


def test_an_undo_goes_on_where_a_person_has_put_the_former_secret_back(world: World) -> None:
    key = world.host.file("/etc/key", "theirs")
    mode = key.stat().st_mode
    mine = [{"file": "/etc/key", "content": "ours", "secret": True}, {"file": "/etc/issue", "content": "ours"}]
    world.done("converge", documents=[{"role": "docker", "resources": mine}])
    assert "put it back by hand" in world.ask("undo")["error"]["message"]
    key.write_text("theirs")
    key.chmod(mode)
    assert places(world.done("undo")) == ["file:/etc/issue"]
    assert key.read_text() == "theirs"
    assert not world.host.path(manifests.MANIFEST).exists()


def test_a_directory_that_somebody_uses_stays(world: World) -> None:
    world.done("converge")
    world.host.file("/etc/gb10-fleet/theirs", "x")
    world.done("undo")
    assert world.host.path("/etc/gb10-fleet/theirs").exists()
    assert not world.host.path("/etc/gb10-fleet/deep").exists()


def test_a_directory_that_was_there_before_is_there_after(world: World) -> None:
    """Also if somebody removed it in between, and a run had to make it for a file."""
    folder = world.host.path("/etc/d")
    folder.mkdir()
    mine = [{"file": "/etc/d", "state": "directory"}, {"file": "/etc/d/f", "content": "x"}]
    world.done("converge", documents=[{"role": "docker", "resources": mine}])
    (folder / "f").unlink()
    folder.rmdir()
    world.done("converge", documents=[{"role": "docker", "resources": mine}])
    world.done("undo")
    assert list(folder.iterdir()) == []


def test_a_failed_run_can_be_undone(world: World) -> None:
    """Its resources are as we left them, also those that are half done."""
    before = world.digest()
    world.host.on("modprobe", Completed((), 1, stderr="no such module"))
    said = world.ask("converge")
    assert said["error"]["kind"] == "apply"
    assert "file:/etc/motd" in places(said)
    world.done("undo")
    assert world.digest() == before


def test_a_manifest_that_cannot_be_closed_is_a_failure_with_the_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = manifests.save, 0

    def full(system: System, manifest: manifests.Manifest) -> None:
        nonlocal saved
        saved += 1
        if saved == 2:
            raise HostError("manifest.json cannot be written: No space left on device")
        save(system, manifest)

    monkeypatch.setattr(manifests, "save", full)
    said = world.ask("converge")
    assert said["error"]["kind"] == "apply"
    assert len(said["changes"]) > 10
    assert world.done("converge")["changes"] == []
    assert world.manifest()["unfinished"] is None


# ---------------------------------------------------------------------------------------------------------- orphans


def test_an_orphan_is_shown_and_removed_on_request(world: World) -> None:
    world.done("converge")
    fewer = [
        DOCUMENTS[0],
        {**DOCUMENTS[1], "resources": [r for r in DOCUMENTS[1]["resources"] if r.get("file") != "/etc/motd"]},
    ]
    for check in (True, False, False):
        said = world.done("converge", documents=fewer, check=check)
        assert said["orphans"] == [{"role": "serving", "resource": "file:/etc/motd"}]
        assert said["changes"] == []
    assert world.done("drift")["changes"] == []
    foretold = world.done("converge", documents=fewer, check=True, orphans="remove")
    said = world.done("converge", documents=fewer, orphans="remove")
    assert places(foretold) == places(said) == ["file:/etc/motd"]
    assert said["orphans"] == []
    assert world.host.path("/etc/motd").read_text() == "theirs\n"
    assert "file:/etc/motd" not in world.manifest()["resources"]
    assert world.done("converge", documents=fewer)["orphans"] == []


def test_the_example_of_the_docs(world: World) -> None:
    """docs/architecture/documents-and-engine.md, Undo: another content, then another file, then back."""

    def wanted(name: str, content: str) -> list[dict[str, Any]]:
        return documents_of({"file": f"/etc/{name}", "content": content})

    def kept(name: str) -> Any:
        return world.manifest()["resources"][f"file:/etc/{name}"]["before"]

    world.host.file("/etc/a", "old")
    world.done("converge", documents=wanted("a", "one"))
    met = kept("a")
    assert places(world.done("converge", documents=wanted("a", "two"))) == ["file:/etc/a"]
    assert kept("a") == met and world.host.path("/etc/a").read_text() == "two"
    said = world.done("converge", documents=wanted("b", "new"))
    assert [each["resource"] for each in said["orphans"]] == ["file:/etc/a"]
    assert world.host.path("/etc/a").read_text() == "two"
    world.done("undo")
    assert world.host.path("/etc/a").read_text() == "old" and not world.host.path("/etc/b").exists()
    assert not world.host.path("/var/lib/gb10-fleet/manifest.json").exists()


def test_a_role_may_leave_no_orphans_whatever_is_asked(world: World) -> None:
    world.done("converge")
    fewer = [{**each, "resources": each["resources"][:-1]} for each in DOCUMENTS]
    left = {each["role"] for each in world.done("converge", documents=fewer, check=True)["orphans"]}
    assert len(left) == 2
    said = world.done("converge", documents=fewer, removes=["serving"])
    assert {each["role"] for each in said["changes"]} == {"serving"}
    assert {each["role"] for each in said["orphans"]} == left - {"serving"}
    assert world.done("converge", documents=fewer, removes=["serving"])["changes"] == []


def test_no_orphan_goes_for_documents_that_cannot_be_had(world: World) -> None:
    world.done("converge")
    world.host.path("/etc/issue").mkdir()
    documents = [{"role": "serving", "resources": [{"file": "/etc/issue", "content": "x"}]}]
    before = world.digest()
    said = world.ask("converge", documents=documents, orphans="remove")
    assert (said["error"]["kind"], said["changes"]) == ("host", [])
    assert world.digest() == before


def test_a_role_that_was_not_sent_is_not_judged(world: World) -> None:
    world.done("converge")
    said = world.done("converge", documents=DOCUMENTS[:1])
    assert (said["changes"], said["orphans"], said["recorded"]) == ([], [], True)
    assert len(world.manifest()["resources"]) > 14


def test_an_orphan_that_comes_back_is_none(world: World) -> None:
    world.done("converge")
    world.done("converge", documents=[{"role": "docker", "resources": []}])
    assert world.manifest()["resources"]["package:docker-ce"]["orphan"] is True
    world.done("converge")
    assert world.manifest()["resources"]["package:docker-ce"]["orphan"] is False


# ------------------------------------------------------------------------------------------------------------ drift


@pytest.mark.parametrize(
    ("meddle", "found"),
    [
        (lambda world: world.host.path("/etc/motd").write_text("x"), "file:/etc/motd"),
        (lambda world: world.host.path("/etc/gb10-fleet/deep/er/serving.env").write_text("x"), "serving.env"),
        (lambda world: world.host.path("/etc/gb10-fleet/deep/er/serving.env").write_text(""), "serving.env"),
        (lambda world: world.host.path("/etc/docker/daemon.json").write_text("{}"), "file:/etc/docker/daemon.json"),
        (lambda world: world.host.path("/etc/sysctl.d/90-gb10-serving.conf").unlink(), "90-gb10-serving.conf"),
        (lambda world: world.host.file("/proc/sys/net/ipv4/conf/all/arp_ignore", "2\n"), "sysctl:"),
        (lambda world: world.host.file("/proc/modules", ""), "kernel_module:rdma_cm"),
        (lambda world: world.apt.select([], "docker-ce install"), "hold:docker-ce"),
        (lambda world: world.systemd.act(["systemctl", "stop", "serving.service"], None), "unit:serving.service"),
        (lambda world: world.systemd.act(["systemctl", "disable", "serving.service"], None), "unit:serving.service"),
    ],
)
def test_one_drift_is_one_item_and_one_repair(world: World, meddle: Callable[[World], Any], found: str) -> None:
    world.done("converge")
    before = world.digest()
    assert world.done("drift")["changes"] == []
    meddle(world)
    said = world.done("drift")
    assert said["known"] is True
    (item,) = said["changes"]
    assert found in item["resource"]
    assert item["role"] in ("docker", "serving")
    foretold = world.done("converge", check=True)
    repaired = world.done("converge")
    assert repaired["changes"] == foretold["changes"]
    assert item["resource"] in places(repaired)
    assert {place for place in places(repaired) if not place.startswith("unit:")} <= {item["resource"]}
    assert world.digest() == before
    assert world.done("drift")["changes"] == []


def test_a_refusal_does_not_hide_the_other_differences(world: World) -> None:
    """A package of another version that somebody holds is nothing that a run would mend; it is drift all the same."""
    mine = [{**DOCUMENTS[0], "resources": [r for r in DOCUMENTS[0]["resources"] if "hold" not in r]}, *DOCUMENTS[1:]]
    world.done("converge", documents=mine)
    world.apt.packages["docker-ce"] = "28.0"
    world.apt.want["docker-ce"] = "hold"
    del world.apt.packages["perftest"]
    world.apt.write()
    found = {item["resource"]: item["action"] for item in world.done("drift")["changes"]}
    pending = {item["resource"] for item in world.done("drift")["pending"]}
    assert found == {"package:docker-ce": "refuse", "package:perftest": "install"}
    assert pending == set()


def test_what_waits_for_consent_since_the_last_run_is_no_drift(world: World) -> None:
    world.apt.packages["docker-ce"] = "28.0"
    world.apt.write()
    world.systemd.add("docker.service", active="active", file="enabled")
    mine = [{**DOCUMENTS[0], "resources": [r for r in DOCUMENTS[0]["resources"] if "hold" not in r]}]
    said = world.done("converge", documents=mine, consents={})
    assert {item["action"] for item in said["pending"]} == {"exchange", "restart"}
    quiet = world.done("drift")
    assert (quiet["changes"], quiet["pending"]) == ([], [])
    world.apt.packages["docker-ce"] = "27.0"
    world.apt.write()
    said = world.done("drift")
    assert said["changes"] == []
    assert [(item["resource"], item["consent"]) for item in said["pending"]] == [
        ("package:docker-ce", "docker_allow_restart")
    ]


# ------------------------------------------------------------------------------------------------------------ kills


def killed_everywhere(worlds: Iterator[World], verb: str, prepared: Callable[[World], Any]) -> Iterator[World]:
    """One host for each moment at which the run can die, and at last the one that lives through it."""
    for life, world in enumerate(worlds, 1):
        prepared(world)
        try:
            world.ask(verb, life)
        except Killed:
            yield world
        else:
            assert life > 20
            return


def test_wherever_a_run_is_killed_the_next_one_ends_as_undisturbed(worlds: Iterator[World]) -> None:
    model = next(worlds)
    start = model.digest()
    model.done("converge")
    for world in killed_everywhere(worlds, "converge", lambda world: None):
        for path in ("/etc/motd", "/etc/gb10-fleet/deep/er/serving.env", "/etc/docker/daemon.json"):
            target = world.host.path(path)
            assert not target.exists() or target.read_text() in ("theirs\n", model.host.path(path).read_text())
        world.done("converge")
        assert world.digest() == model.digest(), world.spent
        assert world.manifest() == model.manifest(), world.spent
        assert world.leftovers() == [], world.spent
        world.done("undo")
        assert world.digest() == start, world.spent


def test_a_role_that_nobody_knows_is_refused_with_the_names_there_are(world: World) -> None:
    world.done("converge")
    before = world.digest()
    said = world.ask("undo", roles=["servng", "docker"], known_roles=["docker", "fabric"])["error"]
    assert said["kind"] == "host" and "no role is called servng: there are docker, fabric, serving" in said["message"]
    assert world.digest() == before
    assert world.done("undo", roles=["fabric"], known_roles=["fabric"])["changes"] == []
    assert world.done("undo", roles=["serving"])["changes"], "a document of one's own has only the manifest"


def test_a_part_of_a_role_is_no_role_and_its_name_leads_to_the_role(world: World) -> None:
    file = "/etc/systemd/system/gb10-vllm-embed.service"
    unit = {"unit": "gb10-vllm-embed.service", "enabled": True}
    resources = [{"file": file, "content": "[Service]\nExecStart=/bin/x\n"}, unit]
    world.done("converge", documents=[{"role": "vllm", "resources": resources}])
    before = world.digest()
    said = world.ask("undo", roles=["embed"], known_roles=["docker", "vllm"])["error"]
    assert "no role is called embed" in said["message"], said
    assert "unit:gb10-vllm-embed.service is a part of vllm, which goes back as a whole" in said["message"]
    assert "for this part alone take it out of the inventory and run site" in said["message"]
    assert world.digest() == before


def test_a_killed_run_has_to_end_before_an_undo(worlds: Iterator[World]) -> None:
    refused = 0
    for world in killed_everywhere(worlds, "converge", lambda world: None):
        before = world.digest()
        said = world.ask("undo")
        if said["error"] is not None:
            assert "did not come to its end" in said["error"]["message"]
            assert world.digest() == before
            refused += 1
    assert refused > 10


def test_wherever_an_undo_is_killed_it_can_be_ended_or_reversed(worlds: Iterator[World]) -> None:
    model = next(worlds)
    start = model.digest()
    model.done("converge")
    there, manifest = model.digest(), model.manifest()
    for number, world in enumerate(killed_everywhere(worlds, "undo", lambda world: world.done("converge"))):
        if number % 2:
            world.done("undo")
        else:
            if world.host.path(manifests.MANIFEST).exists():
                world.done("converge")
                assert world.digest() == there
                assert world.manifest() == manifest
            world.done("undo")
        assert world.digest() == start, world.spent
        assert not world.host.path(manifests.MANIFEST).exists()


def test_a_killed_run_of_one_role_is_not_forgotten_by_another(worlds: Iterator[World]) -> None:
    for number, world in enumerate(worlds):
        with pytest.raises(Killed):
            world.ask("converge", life=10 + number, documents=DOCUMENTS[:1])
        if number == 8:
            break
        world.done("converge", documents=DOCUMENTS[1:])
        said = world.done("converge", documents=DOCUMENTS[1:])
        assert (said["changes"], said["recorded"]) == ([], True)
        world.done("converge", documents=DOCUMENTS[:1])
        assert world.manifest()["unfinished"] is None
        assert world.manifest()["resources"]["package:docker-ce"]["brought"] == ["containerd", "runc"]


def test_a_package_stays_as_long_as_another_one_of_ours_came_with_it(world: World) -> None:
    world.apt.NEEDS = {**Apt.NEEDS, "perftest": "runc"}
    world.done("converge")
    world.done("undo", roles=["docker"])
    assert world.apt.packages.keys() == {"bash", "perftest", "runc"}
    world.done("undo", roles=["serving"])
    assert world.apt.packages.keys() == {"bash"}


def test_a_package_that_somebody_has_asked_for_since_stays_with_what_it_needs(world: World) -> None:
    world.done("converge")
    world.apt.manual = {"containerd"}
    world.apt.write()
    world.done("undo")
    assert world.apt.packages.keys() == {"bash", "containerd", "runc"}


@pytest.mark.parametrize(("needs", "stays"), [("runc (>= 1)", {"runc"}), ("runc | bash", set())])
def test_a_package_that_one_of_somebody_needs_stays(world: World, needs: str, stays: set[str]) -> None:
    world.done("converge")
    world.apt.NEEDS = {**Apt.NEEDS, "mpi": needs}
    world.apt.packages["mpi"] = "1"
    world.apt.write()
    world.done("undo")
    assert world.apt.packages.keys() == {"bash", "mpi", *stays}


def test_the_configuration_of_a_package_removed_long_ago_outlives_an_undo(world: World) -> None:
    world.apt.residual = ("perftest",)
    world.apt.write()
    world.host.on("dpkg --purge", "")
    packages = [{"package": "perftest"}, {"package": "docker-ce", "version": "29.1"}]
    world.done("converge", documents=documents_of(*packages))
    assert world.manifest()["resources"]["package:perftest"]["before"] == {"version": None, "residual": True}
    world.done("undo")
    removal = world.host.commands("apt-get install -y")[-1]
    assert "perftest-" in removal
    assert "--purge" not in removal
    assert world.host.commands("dpkg --purge") == ["dpkg --purge docker-ce containerd runc"]


def test_what_a_step_did_to_another_resource_was_done_by_us(world: World) -> None:
    """A package may take a folder into its hands, or rewrite a file that is as we want it."""
    mine = [{"file": "/etc/docker", "state": "directory"}, {"kernel_module": "rdma_cm"}]
    world.host.path("/etc/docker").mkdir()
    world.done("converge", documents=[{"role": "docker", "resources": mine}])

    def modprobe(argv: list[str], stdin: str | None) -> str:
        world.host.path("/etc/docker").chmod(0o711)
        return world.modprobe(argv, stdin)

    world.host.file("/proc/modules", "")
    world.host.on("modprobe", modprobe)
    assert places(world.done("converge", documents=[{"role": "docker", "resources": mine}])) == [
        "kernel_module:rdma_cm"
    ]
    world.done("undo")
    assert world.host.path("/etc/docker").stat().st_mode & 0o777 == 0o755


def test_a_restart_that_follows_from_a_drift_is_none_itself(world: World) -> None:
    units = [{key: value for key, value in raw.items() if key != "consent"} for raw in DOCUMENTS[1]["resources"]]
    documents = [{"role": "serving", "resources": units}]
    world.done("converge", documents=documents)
    world.host.file("/etc/gb10-fleet/deep/er/serving.env", "x", 0o600)
    world.host.path(LOADED).unlink()  # nobody knows what the unit has read
    assert places(world.done("drift")) == ["file:/etc/gb10-fleet/deep/er/serving.env"]
    assert places(world.done("converge", documents=documents, check=True))[-1] == "unit:serving.service"
