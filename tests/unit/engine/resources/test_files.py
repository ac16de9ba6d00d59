from __future__ import annotations

import base64
import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import ApplyError
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources import files
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import DocumentError
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import TEMPORARY_PREFIX, Completed, HostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fake_host import FakeHost

ROOT = Path(__file__).parents[4]
CONF = [{"file": "/etc/demo/a.conf", "content": "wanted\n", "mode": "0640"}]


def mode_of(host: FakeHost, path: str) -> int:
    return host.path(path).stat().st_mode & 0o7777


def leftovers(host: FakeHost) -> list[str]:
    return [path.name for path in host.root.rglob(f"{TEMPORARY_PREFIX}*")]


def test_a_file_is_created_with_its_directory_and_then_left_alone(host: FakeHost) -> None:
    outcome = host.both(CONF)

    (change,) = outcome.changes
    assert (change["resource"], change["action"]) == ("file:/etc/demo/a.conf", "create")
    assert change["detail"] == "root:root 0640"
    assert host.path("/etc/demo/a.conf").read_text() == "wanted\n"
    assert mode_of(host, "/etc/demo/a.conf") == 0o640
    assert leftovers(host) == []
    assert host.converge(CONF).changes == []


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_restored_and_reported(host: FakeHost, part: float) -> None:
    text = "0123456789" * 10
    resources = [{"file": "/etc/a", "content": text}]
    host.file("/etc/a", text[: int(len(text) * part)])

    outcome = host.both(resources)

    assert [change["detail"] for change in outcome.changes] == ["content"]
    assert host.path("/etc/a").read_text() == text


def test_a_wrong_mode_alone_is_named_and_repaired(host: FakeHost) -> None:
    host.file("/etc/demo/a.conf", "wanted\n", mode=0o600)

    outcome = host.both(CONF)

    assert outcome.changes[0]["detail"] == "mode 0600 -> 0640"
    assert mode_of(host, "/etc/demo/a.conf") == 0o640


def test_the_diff_shows_both_sides(host: FakeHost) -> None:
    host.file("/etc/demo/a.conf", "old\n", mode=0o640)
    (entry,) = host.converge(CONF, check_mode=True).diff
    assert (entry["before"], entry["after"]) == ("old\n", "wanted\n")


@pytest.mark.parametrize("wish", [{"content": "x"}, {"merge_json": {"a": 1}}, {"state": "directory"}])
def test_a_link_in_the_way_is_refused_with_its_target_before_anything_is_changed(
    host: FakeHost, wish: dict[str, Any]
) -> None:
    host.file("/srv/target", '{"foreign": 1}')
    host.path("/etc/demo").mkdir()
    link = host.path("/etc/demo/a.conf")
    link.symlink_to("../../srv/target")

    with pytest.raises(HostError, match=r"found a link to '\.\./\.\./srv/target'; name its target instead") as caught:
        host.converge([{"file": "/etc/first", "content": ""}, {"file": "/etc/demo/a.conf", **wish}])

    assert not isinstance(caught.value, ApplyError)
    assert not host.path("/etc/first").exists()
    assert link.is_symlink()


def test_absent_removes_a_link_and_not_its_target(host: FakeHost) -> None:
    target = host.file("/srv/target", "x")
    host.path("/etc/a").symlink_to(target)
    host.both([{"file": "/etc/a", "state": "absent"}])
    assert not host.path("/etc/a").is_symlink()
    assert target.exists()


def test_a_pipe_in_place_of_a_file_is_refused(host: FakeHost) -> None:
    os.mkfifo(host.path("/etc/a"))
    with pytest.raises(HostError, match="expected a file, found a device, pipe or socket; move it away"):
        host.converge([{"file": "/etc/a", "content": ""}])


def test_refused_content_leaves_the_old_file_and_no_temporary(host: FakeHost, fail: Callable[..., Any]) -> None:
    host.file("/etc/sudoers.d/x", "old\n")
    seen: list[str] = []

    def visudo(argv: list[str], stdin: str | None) -> Any:
        seen.append(argv[-1])
        return fail("syntax error in line 1")

    host.on("visudo", visudo)
    with pytest.raises(ApplyError, match="refuses the new content: syntax error in line 1"):
        host.converge([{"file": "/etc/sudoers.d/x", "content": "bad\n", "validate": ["visudo", "-cf", "%s"]}])

    assert os.path.dirname(seen[0]) == str(host.path("/etc/sudoers.d"))  # noqa: PTH120
    assert host.path("/etc/sudoers.d/x").read_text() == "old\n"
    assert leftovers(host) == []


def test_a_temporary_of_a_killed_run_is_no_obstacle(host: FakeHost) -> None:
    host.file(f"/etc/demo/{TEMPORARY_PREFIX}a.conf", "half")
    host.both(CONF)
    assert leftovers(host) == []


def test_what_was_done_before_a_failure_is_told(host: FakeHost) -> None:
    host.file("/etc/blocked", "a file where a directory is needed")
    with pytest.raises(ApplyError) as caught:
        host.converge([*CONF, {"file": "/etc/blocked/b", "content": ""}])
    assert [change["resource"] for change in caught.value.changes] == ["file:/etc/demo/a.conf"]
    assert "/etc/blocked" in str(caught.value)


def test_absent_removes_and_never_more_than_an_empty_directory(host: FakeHost) -> None:
    host.file("/etc/old.conf", "x")
    host.path("/etc/empty").mkdir()
    host.file("/etc/full/x", "x")

    outcome = host.both([{"file": "/etc/old.conf", "state": "absent"}, {"file": "/etc/empty", "state": "absent"}])

    assert [change["action"] for change in outcome.changes] == ["remove", "remove"]
    assert not host.path("/etc/old.conf").exists()
    assert not host.path("/etc/empty").exists()
    with pytest.raises(HostError, match="file:/etc/full: is a directory with something in it"):
        host.converge([{"file": "/etc/full", "state": "absent"}])


def test_directories(host: FakeHost) -> None:
    resources = [{"file": "/var/lib/demo", "state": "directory", "mode": "0750"}]
    assert host.both(resources).changes[0]["action"] == "mkdir"
    assert mode_of(host, "/var/lib/demo") == 0o750
    host.path("/var/lib/demo").chmod(0o700)
    assert host.both(resources).changes[0]["detail"] == "mode 0700 -> 0750"
    with pytest.raises(HostError, match="expected a file, found a directory"):
        host.converge([{"file": "/var/lib/demo", "content": ""}])


def test_a_directory_of_somebody_else_keeps_the_access_that_nobody_states(host: FakeHost) -> None:
    home = host.path("/home/alice")
    home.mkdir(parents=True)
    home.chmod(0o700)
    # Whoever runs the tests is alice here, so the default of root would show as a change of owner.
    uid, gid = os.getuid(), os.getgid()
    host.file("/etc/passwd", f"alice:x:{uid}:{gid}::/home/alice:/bin/sh\nroot:x:{uid + 1}:{gid + 1}::/root:/bin/sh\n")
    host.file("/etc/group", f"alice:x:{gid}:\nroot:x:{gid + 1}:\n")

    assert host.converge([{"file": "/home/alice", "state": "directory"}]).changes == []
    (change,) = host.both([{"file": "/home/alice", "state": "directory", "mode": "0711"}]).changes
    assert (change["resource"], change["detail"]) == ("file:/home/alice", "mode 0700 -> 0711")
    assert mode_of(host, "/home/alice") == 0o711
    assert home.stat().st_uid == os.getuid()


HIDDEN = "hunter2"


@pytest.mark.parametrize("before", [None, "old-hunter1\n"])
@pytest.mark.parametrize("wish", [{"content": f"{HIDDEN}\n"}, {"state": "absent"}])
def test_a_secret_shows_that_it_changed_and_nothing_else(
    host: FakeHost, before: str | None, wish: dict[str, Any]
) -> None:
    if before is not None:
        host.file("/etc/key", before)
    resources = [{"file": "/etc/key", "secret": True, **wish}]
    check = host.converge(resources, check_mode=True)
    shown = json.dumps([check.diff, check.changes, host.converge(resources).diff])
    for entry in check.diff:
        assert entry["before"] != entry["after"]
        assert {entry["before"], entry["after"]} <= {"", "(secret)\n", "(secret, changed)\n"}
    assert host.converge(resources).changes == []
    if "state" not in wish:
        assert mode_of(host, "/etc/key") == 0o600
    assert "hunter" not in shown


def test_a_validator_that_quotes_the_secret_is_not_quoted(host: FakeHost, fail: Callable[..., Any]) -> None:
    host.on("checker", fail(f"syntax error near {HIDDEN}"))
    with pytest.raises(ApplyError, match="`checker` refuses the new content") as caught:
        host.converge([{"file": "/etc/key", "secret": True, "content": HIDDEN, "validate": ["checker", "%s"]}])
    assert HIDDEN not in str(caught.value)


def test_merging_lists_is_a_union_with_ours_first(host: FakeHost) -> None:
    resources = [{"file": "/etc/d.json", "merge_json": {"a": ["ours", "both"], "b": {"c": [{"x": 1}, 1]}, "d": [1]}}]
    host.file("/etc/d.json", '{"a": ["theirs", "both"], "b": {"c": [true, {"x": 1}]}, "d": "no list"}')

    host.both(resources)

    text = host.path("/etc/d.json").read_text()
    assert json.loads(text) == {"a": ["ours", "both", "theirs"], "b": {"c": [{"x": 1}, 1, True]}, "d": [1]}
    assert "true" in text
    assert host.converge(resources).changes == []


def test_merging_tells_true_from_one(host: FakeHost) -> None:
    host.file("/etc/d.json", '{"a": 1}')
    host.both([{"file": "/etc/d.json", "merge_json": {"a": True}}])
    assert json.loads(host.path("/etc/d.json").read_text())["a"] is True


def test_defaults_are_set_only_where_the_file_has_no_such_key(host: FakeHost) -> None:
    default = {"log-driver": "local", "log-opts": {"max-size": "10m"}, "debug": True}
    resources = [{"file": "/etc/d.json", "default_json": default, "merge_json": {"debug": False}}]
    host.file("/etc/d.json", '{"log-opts": {}, "log-driver": null}')

    host.both(resources)

    assert json.loads(host.path("/etc/d.json").read_text()) == {"log-opts": {}, "log-driver": None, "debug": False}
    assert host.converge(resources).changes == []
    host.both([{"file": "/etc/new.json", "default_json": default}])
    assert json.loads(host.path("/etc/new.json").read_text()) == default


def test_a_default_is_left_out_beside_keys_that_it_does_not_go_with(host: FakeHost) -> None:
    resources = [{"file": "/etc/d.json", "default_json": {"log-driver": "local"}, "default_unless": ["x", "log-opts"]}]
    host.file("/etc/d.json", '{"log-opts": {"max-file": "3"}}')
    assert host.both(resources).changes == []
    assert host.both([{**resources[0], "merge_json": {"x": 1}}]).changes != []
    assert "log-driver" not in json.loads(host.path("/etc/d.json").read_text())
    host.file("/etc/d.json", "{}")
    host.both(resources)
    assert json.loads(host.path("/etc/d.json").read_text()) == {"log-driver": "local"}


def test_a_json_file_of_somebody_else_keeps_the_access_that_nobody_states(host: FakeHost) -> None:
    resource = {"file": "/etc/d.json", "merge_json": {"a": 1}}
    host.file("/etc/d.json", '{"proxies": {"https-proxy": "http://u:hunter2@p"}}', mode=0o600)
    host.both([resource])
    assert mode_of(host, "/etc/d.json") == 0o600
    assert host.both([{**resource, "mode": "0640"}]).changes[0]["detail"] == "mode 0600 -> 0640"
    host.both([{**resource, "file": "/etc/new.json"}])
    assert mode_of(host, "/etc/new.json") == 0o644


def test_the_diff_of_a_json_file_shows_our_keys_only(host: FakeHost) -> None:
    former = {"proxies": {"p": "hunter2"}, "a": {"b": 1, "c": "hunter2"}, "list": ["hunter2", "ours"], "d": "mine"}
    host.file("/etc/d.json", json.dumps(former))
    merged = {"a": {"b": 2}, "list": ["ours"], "new": True}
    (entry,) = host.converge([{"file": "/etc/d.json", "merge_json": merged, "default_json": {"d": "ours"}}]).diff
    assert "hunter2" not in str(entry)
    assert json.loads(entry["before"]) == {"d": "mine", "a": {"b": 1}, "list": ["(not ours)", "ours"]}
    assert json.loads(entry["after"]) == {"d": "mine", "a": {"b": 2}, "list": ["ours", "(not ours)"], "new": True}


def test_merging_keeps_foreign_keys_and_the_layout_of_what_is_right_already(host: FakeHost) -> None:
    resources = [{"file": "/etc/d.json", "merge_json": {"log": {"driver": "local"}}}]
    host.file("/etc/d.json", '{"runtimes": {"nvidia": {}}, "log": {"size": 1}}')

    host.both(resources)

    merged = json.loads(host.path("/etc/d.json").read_text())
    assert merged == {"runtimes": {"nvidia": {}}, "log": {"size": 1, "driver": "local"}}
    own_layout = '{ "log":{"driver":"local"} }'
    host.file("/etc/d.json", own_layout)
    assert host.converge(resources).changes == []
    assert host.path("/etc/d.json").read_text() == own_layout


@pytest.mark.parametrize("content", ["{", "[1]", '"x"', "\udcff".encode("utf-8", "surrogateescape").decode("latin-1")])
def test_a_file_that_is_no_json_object_is_refused_by_name(host: FakeHost, content: str) -> None:
    host.file("/etc/d.json", content)
    with pytest.raises(HostError, match=r"^file:/etc/d\.json: is"):
        host.converge([{"file": "/etc/d.json", "merge_json": {"a": 1}}])
    assert host.path("/etc/d.json").read_text() == content


def test_an_unknown_owner_is_named(host: FakeHost) -> None:
    with pytest.raises(ApplyError, match="there is no 'nobody-here' in /etc/passwd"):
        host.converge([{"file": "/etc/a", "content": "", "owner": "nobody-here"}])
    assert leftovers(host) == []


EXPECTED = {"file": "/var/run/cdi/nvidia.yaml", "state": "expected", "otherwise": "no container gets the GPU"}


def test_an_expected_file_that_nothing_brings_is_refused_with_what_it_means(host: FakeHost) -> None:
    with pytest.raises(
        HostError, match=r"file:/var/run/cdi/nvidia\.yaml: is missing; no container gets the GPU"
    ) as caught:
        host.converge([EXPECTED, {"file": "/etc/later", "content": ""}])
    assert not isinstance(caught.value, ApplyError)
    assert not host.path("/etc/later").exists()
    host.file("/var/run/cdi/nvidia.yaml", "x")
    assert host.converge([EXPECTED]).changes == []


def test_an_expected_file_may_come_with_what_is_done_before_it(host: FakeHost) -> None:
    resources = [{"file": "/etc/first", "content": ""}, EXPECTED]
    assert [change["resource"] for change in host.converge(resources, check_mode=True).changes] == ["file:/etc/first"]
    with pytest.raises(ApplyError, match="is missing; no container gets the GPU") as caught:
        host.converge(resources)
    assert [change["resource"] for change in caught.value.changes] == ["file:/etc/first"]
    host.path("/etc/first").unlink()
    host.file("/var/run/cdi/nvidia.yaml", "x")
    assert len(host.both(resources).changes) == 1


def test_an_expected_file_that_nobody_brings_is_missed_before_anything_is_done(host: FakeHost) -> None:
    with pytest.raises(HostError, match="is missing; no container gets the GPU"):
        host.converge([{"file": "/etc/first", "content": ""}, {**EXPECTED, "beforehand": True}])
    assert not host.path("/etc/first").exists()


WRITTEN = {**EXPECTED, "written_by": "nvidia-cdi-refresh.service", "contains": "/libcuda.so.580.142"}
SPECIFICATION = "hostPath: /usr/lib/aarch64-linux-gnu/libcuda.so.580.{}\n"


@pytest.mark.parametrize(
    ("there", "detail"),
    [
        (None, "is missing; nvidia-cdi-refresh.service writes it"),
        ("126.09", "is out of date: /libcuda.so.580.142 is not in it; nvidia-cdi-refresh.service writes it"),
    ],
)
def test_who_writes_an_expected_file_is_started_where_it_is_missing_or_out_of_date(
    host: FakeHost, there: str | None, detail: str
) -> None:
    def write(argv: list[str], stdin: str | None) -> str:
        host.file(EXPECTED["file"], SPECIFICATION.format("142"))
        return ""

    if there:
        host.file(EXPECTED["file"], SPECIFICATION.format(there))
    host.on("systemctl reset-failed nvidia-cdi-refresh.service", "")
    host.on("systemctl restart nvidia-cdi-refresh.service", write)
    (change,) = host.both([WRITTEN]).changes
    assert (change["action"], change["detail"]) == ("refresh", detail)
    assert host.converge([WRITTEN]).changes == []
    assert [line.split()[1] for line in host.commands("systemctl")] == ["reset-failed", "restart"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "does not hold, it still needs refresh (is missing; nvidia-cdi-refresh.service writes it); no container"),
        (Completed((), 1, stderr="Job failed."), "systemctl restart nvidia-cdi-refresh.service failed: Job failed."),
    ],
)
def test_a_writer_that_does_not_write_is_told_with_what_it_means(host: FakeHost, answer: Any, said: str) -> None:
    host.on("systemctl reset-failed", Completed((), 1, stderr="Unit is not loaded."))
    host.on("systemctl restart", answer)
    with pytest.raises(ApplyError) as caught:
        host.converge([WRITTEN])
    assert said in str(caught.value)
    assert "no container gets the GPU" in str(caught.value)


def test_a_writer_that_an_earlier_step_has_started_is_not_started_again(host: FakeHost) -> None:
    host.on("checker", lambda argv, stdin: str(host.file(EXPECTED["file"], SPECIFICATION.format("142"))))
    host.converge([{"file": "/etc/first", "content": "", "validate": ["checker", "%s"]}, WRITTEN])
    assert host.commands("systemctl") == []


def test_a_keyring_holds_the_key_that_was_meant_and_no_other(host: FakeHost) -> None:
    key = (ROOT / "roles/docker/templates/docker.asc").read_text()
    mine = {"file": "/etc/apt/keyrings/docker.asc", "content": key}
    right = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"
    assert len(host.both([{**mine, "fingerprint": right}]).changes) == 1
    with pytest.raises(
        DocumentError, match=rf"^resources\[0\].fingerprint: expected the key A+ and no other, found {right}"
    ):
        host.converge([{**mine, "fingerprint": "A" * 40}])
    for content in (key * 2, "", "no key"):
        with pytest.raises(DocumentError, match=r"^resources\[0\].content: is not one armoured"):
            host.converge([{**mine, "content": content, "fingerprint": right}])
    blocks = [path.read_text().split("\n\n")[1].rpartition("\n=")[0] for path in ROOT.glob("roles/*/templates/*.asc")]
    both = base64.b64encode(b"".join(map(base64.b64decode, blocks))).decode()
    joined = f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{both}\n-----END PGP PUBLIC KEY BLOCK-----\n"
    with pytest.raises(DocumentError, match=r"and no other, found [0-9A-F]{40}, [0-9A-F]{40}"):
        host.converge([{**mine, "content": joined, "fingerprint": right}])
    with pytest.raises(DocumentError, match="40 hexadecimal digits"):
        host.converge([{**mine, "fingerprint": right.lower()}])


def test_a_directory_goes_with_what_it_holds_of_ours(host: FakeHost) -> None:
    host.file("/etc/a/b/c", "x")
    absent = [{"file": path, "state": "absent"} for path in ("/etc/a/b/c", "/etc/a/b", "/etc/a")]
    assert [change["action"] for change in host.both(absent).changes] == ["remove"] * 3
    assert not host.path("/etc/a").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("file", "/etc/{{ x }}"),
        ("file", "/etc/{% x %}"),
        ("file", "/etc/a\u202eb"),
        ("validate", ["--root=/", "%s"]),
        ("validate", ["x", "{{ y }}", "%s"]),
        ("merge_json", {"a": "\udcff"}),
        ("merge_json", {"a": {"b\0": 1}}),
        ("merge_json", {"a": ["x" * 2_000_000]}),
        ("merge_json", {"a": json.loads("[" * 100 + "]" * 100)}),
        ("merge_json", {"a": 10**5000}),
        ("secret", True),
    ],
)
def test_hostile_values_are_refused_by_field_and_not_quoted_at_length(host: FakeHost, field: str, value: Any) -> None:
    resource: dict[str, Any] = {"file": "/etc/a", "merge_json": {"a": 1}, field: value}
    with pytest.raises(DocumentError) as caught:
        host.converge([resource])
    assert str(caught.value).startswith(f"resources[0].{field}")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


@pytest.mark.parametrize(("number", "helped"), [(errno.ENOSPC, True), (errno.EROFS, False)])
def test_a_disk_that_is_full_in_the_middle_is_named_with_the_way_out(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, number: int, helped: bool
) -> None:
    resources = [{"file": "/etc/one", "content": "1"}, {"file": "/etc/two", "content": "2"}]
    write = files._apply

    def full(system: Any, resource: Any, action: str) -> None:
        if resource.name == "/etc/two":
            raise OSError(number, os.strerror(number))
        write(system, resource, action)

    with monkeypatch.context() as patched:
        patched.setattr(files, "_apply", full)
        with pytest.raises(ApplyError, match="file:/etc/two: ") as caught:
            host.converge(resources)
    assert ("free space (`df -h` and `df -i` say where), then run the same again" in str(caught.value)) is helped
    assert [change["resource"] for change in caught.value.changes] == ["file:/etc/one"], "what was applied stays"
    assert [change["resource"] for change in host.converge(resources).changes] == ["file:/etc/two"]
