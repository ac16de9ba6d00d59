"""Files of a model and its image: what is decided, and a real rsync between two folders on loopback."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.gb10.fleet.plugins.module_utils.serving import (
    file_steps,
    host_files,
    host_tools,
    model_folder,
    model_listing,
    rsync,
    transfer_errors,
)
from ansible_collections.gb10.fleet.plugins.module_utils.serving.image_identity import fingerprint
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import transfer as deciding
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import addressing

from lab.vendor.packages import FILES
from tests.support.attacker import tally
from tests.support.model_daemon import (
    COMMIT,
    CONTENT,
    DEADLINE_S,
    HELD,
    MODEL,
    NOTHING,
    STARTED,
    TINY,
    Daemon,
    Docker,
    Run,
    blob,
    filled,
    host,
    image,
    needs_rsync,
    run_folder,
    take,
)
from tests.support.role_documents import facts

__all__ = ["run_folder"]  # the fixture
NO_HUB = Path(__file__).parents[2] / "fixtures" / "no_hub"


# --- what is decided


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/passwd", "a/../../b", "a//b", ".", "a/.", "", "a/", "a\nb", "a\0b", "a\\b", "a\x7f"],
)
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="leads out of the model"):
        model_listing.parse_model({**TINY.as_dict(), "files": [[path, 1, "0" * 40]]})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"files": [["a", 1, "../../etc/passwd"]]}, "neither a SHA-256"),
        ({"files": [["a", 1, "0" * 41]]}, "neither a SHA-256"),
        ({"files": [["a", -1, "0" * 40]]}, "no size"),
        ({"files": [["a", True, "0" * 40]]}, "no size"),
        ({"files": [["a", 10**400, "0" * 40]]}, "no size"),  # more than a float holds, and so no text for a person
        ({"files": [["a", 1, "0" * 40]] * 2}, "twice"),
        ({"files": [["a"]]}, "no list"),
        ({"commit": "main"}, "no name of a commit"),
        ({"revision": "../main"}, "no name of a revision"),
        ({"model": "../../etc"}, "no name of a model"),
        ({"model": "a/b\n"}, "no name of a model"),
    ],
)
def test_what_a_peer_says_is_not_believed(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        model_listing.parse_model({**TINY.as_dict(), **wrong})
    assert model_listing.parse_model(json.loads(json.dumps(TINY.as_dict()))) == TINY


@pytest.mark.parametrize(
    "said",
    [
        {"commit": "0" * 40}, {"commit": "0" * 40, "files": 5}, {"files": []}, [], "x", None,
        *({"commit": "0" * 40, "files": [each]} for each in (5, {}, {"path": 5, "size": 1, "hash": "0" * 40}, ["a"])),
    ],
)  # fmt: skip
def test_what_the_hub_lists_is_a_list_or_an_error(said: Any) -> None:
    with pytest.raises(ValueError, match=r"no list of a model's files|leads out"):
        model_listing.wanted(said, "acme/x", "main", ["*.md"])


@pytest.mark.parametrize(("status", "verdict"), [(404, "no_such_model"), (410, "hub_unreachable")])
def test_a_hub_that_is_lost_after_its_list_is_no_missing_model(
    status: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library then says that nothing of it is on the disk; the cause stands behind that."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        asked = {"step": "get", "model": MODEL, "revision": "0" * 40, "paths": ["*"]}
        done = subprocess.run(
            [sys.executable, "-c", host_tools.HUB, json.dumps(asked)], capture_output=True, text=True, check=True
        )
        hub.shutdown()
    assert transfer_errors.hub_verdict(json.loads(done.stdout)["error"], MODEL).verdict == verdict


@pytest.mark.parametrize(
    ("kinds", "status", "text", "verdict"),
    [
        (["GatedRepoError", "RepositoryNotFoundError"], 401, "restricted", "unauthorized"),
        (["HfHubHTTPError"], 403, "forbidden", "unauthorized"),
        (["RepositoryNotFoundError"], 404, "not found", "no_such_model"),
        (["RevisionNotFoundError"], None, "not found", "no_such_model"),
        (["ConnectionError", "OSError"], None, "refused", "hub_unreachable"),
        (["HfHubHTTPError", "HTTPError", "OSError"], 429, "Too Many Requests", "rate_limited"),
        (["OSError"], None, "[Errno 28] No space left on device", "disk_full"),
        (["OSError"], None, "[Errno 122] Disk quota exceeded: '/x'", "disk_full"),
        (["RuntimeError"], None, "Data processing error: IO Error: No space left on device (os error 28)", "disk_full"),
        (["OSError"], None, "[Errno 30] Read-only file system: '/x'", "disk_refuses"),
        (["RuntimeError"], None, "Data processing error: IO Error: Input/output error (os error 5)", "disk_refuses"),
        (["PermissionError", "OSError"], None, "[Errno 13] Permission denied: '/x'", "disk_refuses"),
        (["RuntimeError"], None, "Data processing error: IO Error: Permission denied (os error 13)", "disk_refuses"),
        (["ConnectError"], None, "[Errno 13] Permission denied", "hub_unreachable"),  # a route that forbids it
        (["HfHubHTTPError", "OSError"], 507, "Insufficient Storage: No space left on device", "hub_unreachable"),
        (["HFValidationError", "ValueError"], None, "Repo id must be in the form", "no_such_model"),
        (["ModuleNotFoundError", "ImportError"], None, "No module", "no_tool"),
        (["KeyError"], None, "x", "hub_unreachable"),
    ],
)
def test_each_error_of_the_hub_has_its_verdict(kinds: list[str], status: int | None, text: str, verdict: str) -> None:
    error = transfer_errors.hub_verdict({"kinds": kinds, "status": status, "text": text}, MODEL)
    assert error.verdict == verdict and text in str(error)


@pytest.mark.parametrize(
    ("rc", "text", "verdict"),
    [
        (11, "write failed: No space left on device (28)", "disk_full"),
        (11, 'rsync: [receiver] write failed on "/x": Disk quota exceeded (122)', "disk_full"),
        (23, 'rsync: [receiver] mkstemp "/x" failed: No space left on device (28)', "disk_full"),
        (23, 'rsync: [receiver] mkstemp "/x" failed: Read-only file system (30)', "disk_refuses"),
        (11, 'rsync: [receiver] write failed on "/x": Input/output error (5)', "disk_refuses"),
        (23, 'rsync: [sender] read errors mapping "/x" (in m): Input/output error (5)', "disk_refuses"),
        (10, "rsync: [Receiver] failed to connect to 192.0.2.1: Permission denied (13)", "peer_cut"),
        (5, "@ERROR: auth failed on module model", "peer_refused"),
        (5, "@ERROR: access denied to model", "peer_refused"),
        (12, "connection unexpectedly closed", "peer_cut"),
        (30, "timeout in data send/receive", "peer_cut"),
        (127, "rsync: No such file", "no_tool"),
    ],
)
def test_each_end_of_a_transfer_has_its_verdict(rc: int, text: str, verdict: str) -> None:
    error = transfer_errors.rsync_verdict(rc, text, "192.0.2.1")
    assert error.verdict == verdict
    assert ("192.0.2.1" in str(error)) is (verdict.startswith("peer") or "[sender]" in text), "whose disk it is"


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        (errno.ENOSPC, "disk_full"),
        (errno.EDQUOT, "disk_full"),
        (errno.EROFS, "disk_refuses"),
        (errno.EIO, "disk_refuses"),
        (errno.EISDIR, "failed"),
    ],
)
def test_what_the_file_system_refuses_has_its_verdict(number: int, verdict: str) -> None:
    fault = transfer_errors.disk_verdict(OSError(number, os.strerror(number), "/a/file"))
    assert fault.verdict == verdict and "/a/file" in str(fault)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a/file"), "disk_full"),
        (transfer_errors.FilesError("busy", "another run", "wait"), "busy"),
        (ValueError("this is no fingerprint of an image"), "bad_request"),
    ],
)
def test_what_a_module_says_has_a_verdict_whatever_failed(error: Exception, verdict: str) -> None:
    said = transfer_errors.told(error)
    assert said["verdict"] == verdict and said["msg"]


def test_an_image_is_known_by_what_runs_and_not_by_its_id() -> None:
    one = image(Env=["A=1"], Entrypoint=["vllm"])
    assert fingerprint(one) == fingerprint({**one, "Id": "sha256:of another store", "RepoDigests": []})
    assert fingerprint(one) == fingerprint(
        image(Env=["A=1"], Entrypoint=["vllm"], Hostname="x", Image="sha256:0", Tty=False, Volumes=None)
    ), "of Docker's classic store alone"
    assert fingerprint(one) != fingerprint(image(Env=["A=2"], Entrypoint=["vllm"]))
    assert fingerprint(one) != fingerprint(image("sha256:2", Env=["A=1"], Entrypoint=["vllm"]))


@pytest.mark.parametrize(
    "other",
    [
        {"Healthcheck": {"Test": ["CMD", "/x"]}},
        {"Volumes": {"/x": {}}},
        {"Shell": ["/x"]},
        {"OnBuild": ["RUN /x"]},
        {"StopSignal": "SIGKILL"},
        {"ExposedPorts": {"1/tcp": {}}},
        {"SomethingOfTomorrow": "x"},
    ],
)
def test_the_whole_configuration_of_an_image_counts(other: dict[str, Any]) -> None:
    assert fingerprint(image(Env=["A=1"])) != fingerprint(image(Env=["A=1"], **other))


def test_who_gets_what_from_whom() -> None:
    members = ["spark-a", "spark-b", "spark-c"]
    assert deciding.source("spark-b", members, "switch", fetch=True) == "spark-a"
    assert deciding.source("spark-b", members, "none", fetch=True) == "spark-b"
    assert deciding.source("spark-b", members, "switch", fetch=False) == "spark-b"
    giver = {"image": {"fingerprint": "1", "bytes": 5}, "model": TINY.as_dict()}
    nothing: dict[str, Any] = {"image": None, "model": None}
    assert deciding.missing(giver, nothing) == ["image", "model"]
    assert deciding.missing(giver, json.loads(json.dumps(giver))) == []
    assert deciding.missing(giver, {**giver, "model": {**TINY.as_dict(), "commit": "b" * 40}}) == ["model"]
    classic = [
        {**giver, "image": {**giver["image"], "configuration": id_}}  # type: ignore[dict-item]
        for id_ in ("sha256:a", "sha256:b", None)
    ]
    assert deciding.missing(classic[0], classic[1]) == ["image"], "of the same layers, and another one all the same"
    assert deciding.missing(classic[0], classic[2]) == deciding.missing(classic[2], classic[0]) == []
    assert deciding.missing({**giver, "model": None}, nothing) == ["image"], "vLLM gets the model by itself"
    assert deciding.size(giver, ["image", "model"]) == TINY.size + 5


def test_files_go_over_the_first_rail_that_joins_two_hosts() -> None:
    pair = addressing.plan("pair", ["spark-a", "spark-b"], {host: facts() for host in ("spark-a", "spark-b")})
    assert deciding.ways(pair.hosts, "spark-a") == {"spark-b": {"at": "192.168.100.10", "to": "192.168.100.11"}}
    far = {
        host: addressing.HostFabric(control=addressing.Control("eth0", address))
        for host, address in (("a", "192.0.2.1"), ("b", "192.0.2.2"))
    }
    assert deciding.ways(far, "a") == {"b": {"at": "192.0.2.1", "to": "192.0.2.2"}}


def test_progress_is_one_line_with_its_units() -> None:
    before = {"doing": "model from 192.0.2.1", "done": 2e9, "total": 61e9, "at": 10.0}
    now = {**before, "done": 20e9, "at": 20.0}
    assert deciding.progress("spark-b", now, before) == "spark-b: model from 192.0.2.1: 20.0 of 61.0 GB, 1.80 GB/s"
    assert deciding.progress("spark-b", now, None) == "spark-b: model from 192.0.2.1: 20.0 of 61.0 GB"
    assert deciding.progress("spark-b", now, {**before, "doing": "image"}).endswith("61.0 GB")
    assert deciding.progress("spark-b", {**now, "doing": "loading", "total": 0}, before) == "spark-b: loading"


# --- from the hub


def test_a_model_is_downloaded_once_checked_and_marked(tmp_path: Path) -> None:
    docker = Docker({"i@sha256:1": image()})
    own = host(tmp_path, "a", docker)
    assert own.read() == {"image": None, "model": None, "pin": None, "pull": False}
    assert own.download("")
    said = own.read()
    assert said["image"]["bytes"] == 1000 and said["model"]["bytes"] == 3_020_900
    names = {path for path, _, _ in said["model"]["files"]}
    assert not any(name.startswith(("original/", "metal/")) for name in names) and "tokenizer/tokenizer.json" in names
    snapshot = own.folder / "snapshots" / said["model"]["commit"]
    assert {str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file()} == names
    assert (own.folder / "refs/main").read_text() == said["model"]["commit"]
    asked = len(docker.ran)
    assert not own.download("")
    assert not any(argv[:2] == ["docker", "run"] for argv in docker.ran[asked:]), "a second run asks nobody"


def owned(tmp_path: Path, docker: Docker) -> Path:
    """Somebody's own cache with all of the model."""
    theirs = host(tmp_path, "theirs", docker)
    theirs.download("")
    return theirs.cache / "huggingface"


def downloads(docker: Docker) -> list[dict[str, Any]]:
    """What the hub's library was asked to get."""
    asked = [json.loads(argv[-1]) for argv in docker.ran if argv[:2] == ["docker", "run"]]
    return [one for one in asked if one["step"] == "get"]


def test_what_somebody_has_already_is_copied_and_not_downloaded(tmp_path: Path) -> None:
    docker = Docker({"i@sha256:1": image()})
    source = owned(tmp_path, docker)
    before = {path: path.lstat().st_mtime_ns for path in source.rglob("*")}
    docker.ran.clear()
    own = host(tmp_path, "a", docker, source=str(source))
    assert own.download("") and downloads(docker) == []
    assert own.read()["model"] is not None
    assert {path: path.lstat().st_mtime_ns for path in source.rglob("*")} == before


def test_what_is_wrong_missing_or_a_link_there_is_downloaded(tmp_path: Path) -> None:
    docker = Docker({"i@sha256:1": image()})
    source = owned(tmp_path, docker)
    wrong, link, missing = sorted((path for path in source.rglob("blobs/*")), key=lambda path: path.stat().st_size)[:3]
    wrong.write_bytes(bytes(wrong.stat().st_size))
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "elsewhere")
    missing.unlink()
    docker.ran.clear()
    own = host(tmp_path, "a", docker, source=str(source))
    assert own.download("") and len(downloads(docker)[0]["paths"]) == 3
    assert own.read()["model"] is not None and not wrong.read_bytes().strip(b"\0")


def test_a_cache_that_is_not_there_is_no_fault(tmp_path: Path) -> None:
    docker = Docker({"i@sha256:1": image()})
    own = host(tmp_path, "a", docker, source="/nowhere/huggingface")
    assert own.download("") and len(downloads(docker)) == 1


def test_the_token_is_in_a_private_file_for_as_long_as_it_is_needed(tmp_path: Path, run_folder: Path) -> None:
    class Watching(Docker):
        def __call__(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
            if argv[1] == "run":
                assert (run_folder / "token.env").stat().st_mode & 0o777 == 0o600
            assert "hf_sesame" not in " ".join(argv)
            return super().__call__(argv, **options)

    own = host(tmp_path, "a", Watching({"i@sha256:1": image()}), model="acme/gated")
    with pytest.raises(transfer_errors.FilesError, match=r"unauthorized: .*accept the licence of acme/gated"):
        own.download("")
    own.download("hf_sesame")
    assert own.read()["model"] is not None
    assert list(run_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "hub", "verdict"),
    [
        ({"model": "acme/missing"}, {}, "no_such_model"),
        ({"revision": "v9"}, {}, "no_such_model"),
        ({}, {"GB10_SIM_HUB": "down"}, "hub_unreachable"),
        ({}, {"GB10_SIM_HUB": "corrupt"}, "checksum_wrong"),
        ({}, {"PYTHONPATH": str(NO_HUB)}, "no_tool"),
    ],
)
def test_what_does_not_come_has_a_verdict_and_no_marker(
    tmp_path: Path, said: dict[str, str], hub: dict[str, str], verdict: str
) -> None:
    own = host(tmp_path, "a", Docker({"i@sha256:1": image()}, hub), **said)
    with pytest.raises(transfer_errors.FilesError) as failed:
        own.download("")
    assert failed.value.verdict == verdict
    assert own.read()["model"] is None


@pytest.mark.parametrize("said", ["[" * 50_000, "7", "[]", "{", ""])
def test_an_image_that_answers_in_the_name_of_the_hub_is_told_by_name(tmp_path: Path, said: str) -> None:
    own = host(tmp_path, "a", Docker({"i@sha256:1": image()}))
    own.run = lambda argv, **_: subprocess.CompletedProcess(list(argv), 0, f"{said}\n", "")
    with pytest.raises(transfer_errors.FilesError, match="no_tool"):
        own.hub(tmp_path / "env", step="list", revision="main")


def test_a_file_that_came_wrong_is_fetched_once_more(tmp_path: Path) -> None:
    docker = Docker({"i@sha256:1": image()}, {"GB10_SIM_HUB": "corrupt-once"})
    own = host(tmp_path, "a", docker)
    own.download("")
    asked = [json.loads(argv[-1])["paths"] for argv in docker.ran if '"step": "get"' in argv[-1]]
    assert len(asked) == 2 and len(asked[0]) > len(asked[1]), "what came right is not asked for again"
    assert own.read()["model"] is not None and list(own.stage.iterdir()) == []


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = host(tmp_path, "a", Docker({"i@sha256:1": image()}))
    real = os.statvfs(tmp_path)
    full = os.statvfs_result([*real[:4], 1, *real[5:]])
    monkeypatch.setattr("os.statvfs", lambda _: full)
    with pytest.raises(
        transfer_errors.FilesError, match=r"disk_full: acme/tiny, .* takes 0.0 GB and .*; free some space"
    ):
        own.download("")
    assert not own.folder.exists()


def test_a_link_that_a_container_left_leads_nowhere(tmp_path: Path) -> None:
    own = host(tmp_path, "a", Docker({"i@sha256:1": image()}))
    (tmp_path / "elsewhere").mkdir()
    (own.cache / "huggingface").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(transfer_errors.FilesError, match="foreign_link"):
        own.download("")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_marker_whose_files_are_gone_is_none(tmp_path: Path) -> None:
    own = filled(host(tmp_path, "a", Docker({})))
    assert own.read()["model"]["commit"] == COMMIT
    (own.folder / "blobs" / TINY.files[1].hash).unlink()
    assert own.read()["model"] is None


def test_a_marker_of_other_exclusions_is_none(tmp_path: Path) -> None:
    """A wider choice is more files, which an offline server would miss."""
    docker = Docker({"i@sha256:1": image()})
    host(tmp_path, "a", docker).download("")
    wider = host(tmp_path, "a", docker, exclude=[])
    assert wider.read()["model"] is None
    wider.download("")
    assert any(path.startswith("original/") for path, _, _ in wider.read()["model"]["files"])


def test_two_services_of_one_commit_each_have_the_file_that_they_name(tmp_path: Path) -> None:
    docker = Docker({"i@sha256:1": image()})
    one, two = (host(tmp_path, "a", docker, exclude=["*", f"!{name}"]) for name in ("config.json", "*.safetensors"))
    assert one.download("") and two.download("")
    assert not one.download("") and not two.download("")
    for each in one, two:
        assert each.read()["model"]["files"] and each.marker.exists()
    assert {path for path, _, _ in one.read()["model"]["files"]} == {"config.json"}


def asked_for(docker: Docker) -> list[str]:
    """The revisions whose commit the hub was asked for."""
    said = [json.loads(argv[-1]) for argv in docker.ran if argv[:2] == ["docker", "run"]]
    return [each["revision"] for each in said if each["step"] == "list"]


def test_a_model_stays_at_the_commit_that_was_fetched_first(tmp_path: Path) -> None:
    """Until somebody says otherwise: a branch moves, and one host of a cluster alone would move with it."""
    docker = Docker({"i@sha256:1": image()})
    own = host(tmp_path, "a", docker)
    own.download("")
    commit = own.read()["pin"]
    assert commit == own.read()["model"]["commit"] and asked_for(docker) == ["main"]
    (own.folder / "blobs" / own.read()["model"]["files"][0][2]).unlink()
    assert own.read()["model"] is None and own.read()["pin"] == commit
    assert own.download("") and asked_for(docker) == ["main", commit], "a file was lost"
    assert host(tmp_path, "a", docker, exclude=[]).download("") and asked_for(docker)[2:] == [commit]
    assert own.download("") and asked_for(docker)[3:] == [commit]
    assert (own.folder / "refs/main").read_text() == commit
    other = host(tmp_path, "b", docker)
    assert other.download("", pin=commit) and asked_for(docker)[4:] == [commit], "a head that was replaced"
    assert not other.download("", move=True) and asked_for(docker)[5:] == ["main"], "it has not moved"


def test_what_a_killed_run_left_of_secrets_goes_with_the_next(run_folder: Path) -> None:
    run_folder.mkdir()
    for name in ("token.env", ".token.env.new", "password"):
        (run_folder / name).write_text("hf_sesame")
    with file_steps.alone():
        assert [path.name for path in run_folder.iterdir()] == ["lock"]


# --- from host to host


def test_an_offer_is_read_only_for_its_peers_and_ends_by_itself(tmp_path: Path, run_folder: Path) -> None:
    docker = Docker({"gb10-fleet/vllm:1": image()})
    own = filled(host(tmp_path, "a", docker))
    ways = [{"at": "192.168.100.10", "to": "192.168.100.11"}, {"at": "192.168.101.10", "to": "192.168.101.12"}]
    said = own.offer(["image", "model"], ways, 29502, "sesame", 60)
    data = own.archive(fingerprint(image())).read_bytes()
    assert said == {"archive": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}}
    assert {path.name: path.read_bytes() for path in (own.stage / "offered").iterdir()} == {
        file.hash: CONTENT[file.path] for file in TINY.files
    }
    started = [argv for argv in docker.ran if argv[0] == "systemd-run"]
    assert [argv[-2] for argv in started] == ["--address=192.168.100.10", "--address=192.168.101.10"]
    assert all("--property=RuntimeMaxSec=60" in argv and "sesame" not in " ".join(argv) for argv in started)
    assert (run_folder / "secrets").stat().st_mode & 0o777 == 0o600
    config = (run_folder / "rsyncd-0.conf").read_text().splitlines()
    for line in ("read only = yes", "use chroot = yes", "hosts allow = 192.168.100.11", "hosts deny = *", "list = no"):
        assert line in config
    assert [line for line in config if line.startswith("path")] == [
        f"path = {own.archives}", f"path = {own.stage}/offered",
    ]  # fmt: skip
    own.withdraw()
    assert list(run_folder.iterdir()) == [] and list(own.archives.iterdir()) == []
    assert not (own.stage / "offered").exists()
    with pytest.raises(ValueError, match="line break"):
        rsync.daemon_config({"model": "/a\npath = /"}, ["192.0.2.1"], run_folder, run_folder)


@pytest.fixture(name="giver")
def fixture_giver(tmp_path: Path) -> host_files.Files:
    return filled(host(tmp_path, "a", Docker({"gb10-fleet/vllm:1": image()})))


@pytest.fixture(name="daemon")
def fixture_daemon(tmp_path: Path, giver: host_files.Files) -> Iterator[Daemon]:
    giver.save()
    daemon = Daemon(tmp_path / "daemon", {"image": str(giver.archives), "model": f"{giver.folder}/blobs"})
    yield daemon
    daemon.stop()


@needs_rsync
def test_image_and_model_arrive_whole(tmp_path: Path, giver: host_files.Files, daemon: Daemon) -> None:
    own = host(tmp_path, "b", Docker({}))
    assert own.read() == {"image": None, "model": None, "pin": None, "pull": True}
    take(own, giver, daemon)
    assert {**own.read(), "pull": None} == {**giver.read(), "pull": None}
    snapshot = own.folder / "snapshots" / COMMIT
    assert {path: (snapshot / path).read_bytes() for path in CONTENT} == CONTENT
    assert list(own.archives.iterdir()) == []


@needs_rsync
def test_a_wrong_password_or_address_gets_nothing(tmp_path: Path, giver: host_files.Files, daemon: Daemon) -> None:
    own = host(tmp_path, "b", Docker({}))
    with pytest.raises(transfer_errors.FilesError, match="peer_refused"):
        take(own, giver, daemon, password="other")  # noqa: S106
    stranger = Daemon(tmp_path / "stranger", {"model": f"{giver.folder}/blobs"}, allow="192.0.2.1")
    try:
        with pytest.raises(transfer_errors.FilesError, match="peer_refused"):
            take(own, giver, stranger, "model")
    finally:
        stranger.stop()
    assert own.read()["model"] is None


@needs_rsync
def test_nobody_writes_through_an_offer_or_reads_beside_it(
    tmp_path: Path, giver: host_files.Files, daemon: Daemon
) -> None:
    model_folder.write(tmp_path / "password", "sesame\n")
    (tmp_path / "intruder").write_text("x")
    url = f"rsync://{rsync.USER}@127.0.0.1/model/"
    options = [f"--port={daemon.port}", f"--password-file={tmp_path}/password"]
    for words in (
        ["rsync", *options, str(tmp_path / "intruder"), url],
        ["rsync", *options, f"{url}../refs/main", str(tmp_path / "stolen")],
        ["rsync", *options, f"rsync://{rsync.USER}@127.0.0.1/etc/", str(tmp_path / "stolen")],
    ):
        assert host_tools.command(words).returncode != 0, words
    assert not (giver.folder / "blobs/intruder").exists() and not (tmp_path / "stolen").exists()


@needs_rsync
def test_a_transfer_that_was_killed_goes_on_where_it_stopped(
    tmp_path: Path, giver: host_files.Files, daemon: Daemon
) -> None:
    """A blob of 64 MB, slowed down, killed in the middle by the id of its process."""
    data = os.urandom(1 << 20) * 64
    big = blob("big.safetensors", data)
    (giver.folder / "blobs" / big.hash).write_bytes(data)
    model = model_listing.Model(MODEL, "main", COMMIT, (big,))
    own = host(tmp_path, "b", Docker({}))
    arriving = own.stage / model_folder.name_of(MODEL) / "blobs" / big.hash
    arriving.parent.mkdir(parents=True)
    with own.private("password", "sesame\n") as secret:
        peer = rsync.Peer("127.0.0.1", daemon.port, secret)
        argv = rsync.client_argv(peer, "model", arriving.parent)
        child = subprocess.Popen([*argv, "--bwlimit=20m"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert child.stdin
        child.stdin.write(f"{big.hash}\n")
        child.stdin.close()
        end = time.monotonic() + DEADLINE_S
        while not host_tools.bytes_of(arriving) and time.monotonic() < end:
            time.sleep(0.02)
        child.send_signal(signal.SIGTERM)
        child.wait(DEADLINE_S)
        kept = host_tools.bytes_of(arriving)
        assert kept and kept < len(data)
        before = arriving.stat().st_ino
        own.take_model(model, peer)
        assert (own.folder / "blobs" / big.hash).stat().st_ino == before, "went on in the same file"
    assert own.read()["model"]["bytes"] == len(data)


def test_a_peer_that_does_not_listen_yet_is_called_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Docker):
        def __call__(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
            self.ran.append(list(argv))
            refused = len(self.ran) < self.listens_after
            if not refused:
                for file in TINY.files:
                    (own.stage / model_folder.name_of(MODEL) / "blobs" / file.hash).write_bytes(CONTENT[file.path])
            return subprocess.CompletedProcess(list(argv), 10 if refused else 0, "", "Connection refused (111)")

        listens_after = 3

    monkeypatch.setattr("time.sleep", lambda _: None)
    docker = Late({})
    own = host(tmp_path, "b", docker)
    own.take({"model": TINY.as_dict()}, ["model"], "127.0.0.1", 29502, "sesame")
    assert len(docker.ran) == 3 and own.marker.exists()
    never = Late({})
    never.listens_after = 1000
    own = host(tmp_path, "c", never)
    with pytest.raises(transfer_errors.FilesError, match=r"peer_cut: .*refused"):
        own.take({"model": TINY.as_dict()}, ["model"], "127.0.0.1", 29502, "sesame")


@needs_rsync
@pytest.mark.parametrize("damage", ["other bytes", "longer", "a beginning that is wrong", "a link"])
def test_a_blob_that_is_not_what_its_name_says_is_repaired(
    tmp_path: Path, giver: host_files.Files, daemon: Daemon, damage: str
) -> None:
    docker = Docker({})
    own = host(tmp_path, "b", docker)
    (own.folder / "blobs").mkdir(parents=True)
    name, size = TINY.files[1].hash, TINY.files[1].size
    wrong = own.folder / "blobs" / name
    if damage == "a link":
        (tmp_path / "victim").write_text("mine")
        wrong.symlink_to(tmp_path / "victim")
    else:
        wrong.write_bytes(b"?" * {"other bytes": size, "longer": size + 1}.get(damage, size // 2))
    take(own, giver, daemon, "model")
    assert wrong.read_bytes() == CONTENT["a/model.safetensors"]
    transfers = [argv for argv in docker.ran if argv[0] == "rsync"]
    assert len(transfers) == (2 if damage == "other bytes" else 1), "what is seen to be wrong is replaced at once"
    if damage == "a link":
        assert (tmp_path / "victim").read_text() == "mine"


@needs_rsync
def test_a_source_that_is_itself_damaged_is_said(tmp_path: Path, giver: host_files.Files, daemon: Daemon) -> None:
    (giver.folder / "blobs" / TINY.files[1].hash).write_bytes(b"?" * TINY.files[1].size)
    own = host(tmp_path, "b", Docker({}))
    with pytest.raises(
        transfer_errors.FilesError, match=r"checksum_wrong: of acme/tiny, a/model.safetensors \(1 of 3 files\)"
    ):
        take(own, giver, daemon, "model")
    assert own.read()["model"] is None


def test_an_image_whose_digest_only_begins_alike_is_not_taken_for_the_pinned_one(tmp_path: Path) -> None:
    pinned, other = (f"x/y@sha256:{'0' * 12}{digit * 52}" for digit in "12")
    docker = Docker({"gb10-fleet/vllm:1": image() | {"RepoDigests": [other]}})
    own = host(tmp_path, "a", docker, image=pinned)
    with pytest.raises(transfer_errors.FilesError, match="image_differs: an image whose digest begins as that of x/y@"):
        own.read()
    docker.images["gb10-fleet/vllm:1"]["RepoDigests"] = [other, pinned.replace("x/y", "mirror/y")]
    assert own.read()["image"]
    docker.images["gb10-fleet/vllm:1"]["RepoDigests"] = ["x/y@sha256:" + "3" * 64]  # a list of platforms has its own
    assert own.read()["image"]


@needs_rsync
def test_another_image_under_the_name_is_taken_away_again(
    tmp_path: Path, giver: host_files.Files, daemon: Daemon
) -> None:
    docker = Docker({})
    own = host(tmp_path, "b", docker)
    archive = giver.archive(fingerprint(image()))
    archive.write_text(json.dumps({"gb10-fleet/vllm:1": image("sha256:2")}))
    with pytest.raises(transfer_errors.FilesError, match="image_differs"):
        take(own, giver, daemon, "image")
    assert docker.images == {}


@needs_rsync
def test_an_image_that_should_bear_the_pinned_digest_and_does_not_is_taken_away_again(
    tmp_path: Path, giver: host_files.Files, daemon: Daemon
) -> None:
    """In containerd's store an image is called by its digest, so a rank sees for itself."""
    pinned = {"Descriptor": {"digest": "sha256:1"}}
    giver.run.images["gb10-fleet/vllm:1"] |= pinned  # type: ignore[attr-defined]
    assert giver.read()["image"]["pinned"]
    docker = Docker({})
    with pytest.raises(transfer_errors.FilesError, match="image_differs"):
        take(host(tmp_path, "b", docker), giver, daemon, "image")
    assert docker.images == {}
    giver.save()
    take(host(tmp_path, "c", docker), giver, daemon, "image")
    assert docker.images["gb10-fleet/vllm:1"]["Descriptor"] == pinned["Descriptor"]


@needs_rsync
@pytest.mark.parametrize(
    ("theirs", "ours", "comes"),
    [
        ("sha256:a", "sha256:a", True),
        ("sha256:a", "sha256:b", False),  # history, date or another field that the fingerprint leaves out
        ("sha256:a", None, True),  # one of them has containerd's store: the fingerprint counts
        (None, "sha256:b", True),
    ],
)
def test_in_the_classic_store_a_rank_compares_the_id_of_its_image(
    tmp_path: Path, giver: host_files.Files, daemon: Daemon, theirs: str | None, ours: str | None, comes: bool
) -> None:
    """The id is the digest of the configuration. The first host pulled it by the pinned digest, and tells it by the
    controller."""

    def stored(id_: str | None) -> dict[str, Any]:
        classic = {"Id": id_, "GraphDriver": {"Name": "overlay2", "Data": {"UpperDir": "/var/lib/docker/x"}}}
        return {**image(), **(classic if id_ else {"Id": "sha256:index", "GraphDriver": {"Name": "overlayfs"}})}

    name = "gb10-fleet/vllm:1"
    giver.run.images[name] = stored(theirs)  # type: ignore[attr-defined]
    assert giver.read()["image"]["configuration"] == theirs
    giver.archive(fingerprint(image())).write_text(json.dumps({name: stored(ours)}))
    docker = Docker({})
    own = host(tmp_path, "b", docker)
    if comes:
        take(own, giver, daemon, "image")
        assert own.read()["image"]["configuration"] == ours
    else:
        with pytest.raises(transfer_errors.FilesError, match="image_differs"):
            take(own, giver, daemon, "image")
        assert docker.images == {}


@needs_rsync
def test_half_of_another_image_does_not_stay(tmp_path: Path, giver: host_files.Files, daemon: Daemon) -> None:
    own = host(tmp_path, "b", Docker({}))
    own.archives.mkdir(parents=True)
    own.archive("f" * 64).write_bytes(b"half of what was wanted yesterday")
    take(own, giver, daemon, "image")
    assert list(own.archives.iterdir()) == []


def test_one_run_at_a_time() -> None:
    with file_steps.alone(), pytest.raises(transfer_errors.FilesError, match="busy"), file_steps.alone():
        pass
    with file_steps.alone() as progress:
        host_tools.Teller(progress)("x", 1, 2)
        assert json.loads(progress.read_text())["done"] == 1


def test_the_simulated_library_is_what_the_image_gets() -> None:
    spec = importlib.util.spec_from_file_location("huggingface_hub_sim", FILES / "huggingface_hub.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    said = module.HfApi().model_info("acme/x", revision="main", files_metadata=True)
    listed = {"commit": said.sha, "files": []}
    for file in said.siblings:
        listed["files"].append(
            {"path": file.rfilename, "size": file.size, "hash": file.lfs["sha256"] if file.lfs else file.blob_id}
        )
    assert len(model_listing.wanted(listed, "acme/x", "main", ["original/", "metal/*", "*.md"]).files) == 4


# --- the action


WORKING = {"started": True, "finished": False}


def test_only_the_first_host_of_a_cluster_asks_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    for name, pulls in (("spark-a", True), ("spark-b", False)):
        run.answers = [NOTHING]
        said = run(name, "read")
        assert (said["pull"], said["source"], said["changed"]) == (pulls, "spark-a", False)
    run.answers = [NOTHING]
    assert run("spark-b", "download")["changed"] is False
    alone = Run(monkeypatch, vllm_fetch=False)
    alone.answers = [NOTHING]
    assert alone("spark-b", "read")["pull"] is True


def test_a_download_says_how_far_it_is_and_outlives_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, vllm_huggingface_token="hf_sesame")  # noqa: S106
    lost = AnsibleConnectionFailure("reset by peer")
    run.answers = [
        NOTHING,
        STARTED,
        *([WORKING] * 4),
        lost,
        WORKING,
        WORKING,
        {"finished": True, "changed": True, **HELD},
    ]
    said = run("spark-a", "download")
    assert said["changed"] and said["model"]["commit"] == COMMIT and "ansible_job_id" not in said
    assert run.said == [
        "spark-a: model from x: 5.0 of 61.0 GB",
        "spark-a: model from x: 15.0 of 61.0 GB, 1.00 GB/s",
    ]
    assert run.asked[1]["background"] and run.asked[1]["secret"] == "hf_sesame"  # noqa: S105
    assert "hf_sesame" not in json.dumps([asked["request"] for asked in run.asked if "request" in asked])
    assert run.asked[-1]["mode"] == "cleanup"
    run.answers = [NOTHING, STARTED, *([lost] * 50)]
    with pytest.raises(AnsibleConnectionFailure):
        run("spark-a", "download")


WITHIN = {"doing": "model from x", "done": 1, "total": 2, "at": 3}


@pytest.mark.parametrize(
    "progress",
    [
        {"doing": "x" * 2**20}, {"doing": "x\nspark-b: failed"}, {"doing": ["x"]}, {"done": 1e308}, {"done": -1},
        {"total": "2"}, {"at": None},
    ],
)  # fmt: skip
def test_how_far_a_host_is_fills_no_screen(monkeypatch: pytest.MonkeyPatch, progress: dict[str, Any]) -> None:
    """It is asked each ten seconds, for a day perhaps: 16 MiB each time were 135 GB in a log."""
    run = Run(monkeypatch)
    run.progress = [{**WITHIN, **progress}] * 4
    run.answers = [NOTHING, STARTED, *([WORKING] * 4), {"finished": True, "changed": True, **HELD}]
    assert run("spark-a", "download")["changed"]
    tally("a host that is asked how far it is fills the screen", 1, len(run.said))
    assert not run.said


def test_what_is_there_is_not_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.answers = [HELD]
    assert run("spark-a", "download")["changed"] is False
    given = {name: {**HELD, "source": "spark-a"} for name in ("spark-a", "spark-b")}
    for name, step in (("spark-a", "offer"), ("spark-b", "take"), ("spark-a", "withdraw")):
        assert run(name, step, given)["changed"] is False
    assert len(run.asked) == 1, "no other call"


def test_a_peer_takes_what_it_lacks_over_the_fabric(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_folder: Path
) -> None:
    run = Run(monkeypatch)
    given = {"spark-a": {**HELD, "source": "spark-a"}, "spark-b": {**HELD, "model": None, "source": "spark-a"}}
    ask = {"parts": ["model"], "ways": [{"at": "192.168.100.10", "to": "192.168.100.11"}], "port": 29502, "limit_s": 60}
    own = filled(host(tmp_path, "a", Docker({"gb10-fleet/vllm:1": image()})))
    monkeypatch.setattr(file_steps, "Files", lambda *_, **__: own)
    said = file_steps.carry_out("offer", {"files": {}, **ask}, "sesame", print)  # in the words of a host
    run.answers = [STARTED, {"finished": True, **said}]
    assert not run("spark-a", "offer", given).get("failed")
    offer = run.asked[0]["request"]
    assert (offer["parts"], offer["ways"]) == (["model"], [{"at": "192.168.100.10", "to": "192.168.100.11"}])
    run.asked, run.answers = [], [STARTED, {"finished": True, "changed": True}]
    assert run("spark-b", "take", given)["changed"]
    take = run.asked[0]["request"]
    assert (take["parts"], take["address"], take["port"]) == (["model"], "192.168.100.10", 29502)
    assert run.asked[0]["secret"] == deciding.password(["spark-a", "spark-b"])
    run.asked = []
    assert run("spark-a", "take", given)["changed"] is False and run.asked == []


def test_the_first_commit_holds_for_a_cluster_until_it_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    others = {"spark-a": NOTHING, "spark-b": {**HELD, "pin": COMMIT}}
    run.answers = [NOTHING, STARTED, {"finished": True, "changed": True, **HELD}]
    run("spark-a", "download", others)
    assert (run.asked[1]["request"]["pin"], run.asked[1]["request"]["move"]) == (COMMIT, False)
    run.answers = [NOTHING]
    said = run("spark-a", "download", others, check=True)
    assert "acme/tiny at main as it was first fetched (aaaaaaaaaaaa) from the hub" in said["msg"]
    run = Run(monkeypatch, vllm_model_move=True)
    run.answers = [HELD, STARTED, {"finished": True, "changed": False, **HELD}]
    run("spark-a", "download")
    assert run.asked[1]["request"]["move"] is True


def test_an_image_is_taken_only_if_its_giver_has_said_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the controller: whoever holds the giver's port cannot say it."""
    run = Run(monkeypatch)
    given = {"spark-a": {**HELD, "source": "spark-a"}, "spark-b": {**NOTHING, "source": "spark-a"}}
    archive = {"bytes": 5, "sha256": "1" * 64}
    run.answers = [STARTED, {"finished": True, "changed": False, "archive": archive}]
    offered = run("spark-a", "offer", given)
    run.asked, run.answers = [], [STARTED, {"finished": True, "changed": True}]
    assert run("spark-b", "take", given, offered=offered)["changed"]
    assert run.asked[0]["request"]["offered"]["archive"] == archive
    run.asked = []
    for silent in ({}, {"changed": False}, {"failed": True, "msg": "port_taken", "archive": archive}):
        said = run("spark-b", "take", given, offered=silent)
        assert said["failed"] and "spark-a could not offer its files" in said["msg"] and run.asked == []


def test_a_password_is_of_one_cluster() -> None:
    one, other = deciding.password(["a", "b"]), deciding.password(["a", "c"])
    assert one != other and one == deciding.password(["a", "b"]) and len(one) == 64


def test_a_failure_names_the_host_and_a_peer_does_not_go_on_without_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.answers = [
        NOTHING,
        STARTED,
        {"finished": True, "failed": True, "msg": "unauthorized: x", "verdict": "unauthorized"},
    ]
    said = run("spark-a", "download")
    assert said["failed"] and said["msg"] == "spark-a: unauthorized: x" and said["verdict"] == "unauthorized"
    said = run("spark-b", "take", {"spark-a": said, "spark-b": {**NOTHING, "source": "spark-a"}})
    assert said["failed"] and "spark-a could not get its files" in said["msg"]


def test_check_mode_says_what_would_come_and_transfers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    given = {}
    for name in ("spark-a", "spark-b"):
        run.answers = [NOTHING]
        given[name] = run(name, "download", check=True)
    assert (
        given["spark-a"]["changed"]
        and "would get gb10-fleet/vllm:111111111111 and acme/tiny" in given["spark-a"]["msg"]
    )
    assert run("spark-a", "offer", given, check=True)["changed"] is False
    said = run("spark-b", "take", given, check=True)
    assert said["changed"] and said["msg"] == "spark-b: would get image and model from spark-a"
    assert not any(asked["background"] for asked in run.asked)
    given["spark-a"] = {**HELD, "source": "spark-a"}
    said = run("spark-b", "take", given, check=True)
    assert "would get image and model (20.0 GB) from spark-a, 192.168.100.10" in said["msg"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"image": "mine"},
        {"image": {"fingerprint": 1, "bytes": 1}},
        {"model": {**TINY.as_dict(), "files": [["../../etc/cron.d/x", 1, "0" * 40]]}},
        {"model": {**TINY.as_dict(), "bytes": "much"}},
        {"draft": 7},
        {"pin": ["x"]},
    ],
)
def test_what_a_host_says_of_its_files_is_judged_before_others_go_by_it(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    run = Run(monkeypatch)
    run.answers = [{**HELD, **wrong}]
    said = run("spark-a", "read")
    assert said["failed"] and said["msg"].startswith("spark-a: answer.") and "model" not in said
