"""Image and model come to a host while somebody on it, or on the giver, wants something else to come."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import sockets
from ansible_collections.gb10.fleet.plugins.module_utils.serving import (
    host_files,
    host_tools,
    image_identity,
    listening,
    model_folder,
    model_listing,
    rsync,
    transfer_errors,
)

from tests.support.attacker import NOBODY, TRIES, attacking, exchange, needs_root, public_folder, tally
from tests.support.model_daemon import (
    COMMIT,
    CONTENT,
    MODEL,
    TINY,
    Daemon,
    Docker,
    blob,
    filled,
    host,
    image,
    needs_rsync,
    quiet,
    run_folder,
    take,
)

__all__ = ["run_folder"]  # the fixture
FOLDER = f"huggingface/hub/models--{MODEL.replace('/', '--')}"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with public_folder() as folder:
        yield folder


class Rsync(Docker):
    """A client that enters its target by name, as rsync does, and writes what it is asked for."""

    def __call__(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if argv[0] != "rsync":
            return super().__call__(argv, **options)
        data = {file.hash: CONTENT[file.path] for file in TINY.files}
        with contextlib.suppress(OSError):
            target = os.open(argv[-1], os.O_PATH)
            for name in options["input"].split():
                with contextlib.suppress(OSError):
                    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, dir_fd=target)
                    os.write(file, data[name])
                    os.close(file)
            os.close(target)
        return subprocess.CompletedProcess(list(argv), 0, "", "")


@needs_root
@pytest.mark.parametrize("uid", [0, NOBODY], ids=["a container", "the owner of the cache"])
def test_a_folder_of_the_cache_that_becomes_a_link_leads_nobody_out(open_folder: Path, uid: int) -> None:
    """The container is root with power over files, and the cache is all of the host that it sees."""
    own, cron = host(open_folder, "b", Rsync({})), open_folder / "cron.d"
    peer, won = rsync.Peer("192.0.2.1", 1, open_folder / "password"), 0
    folder = own.cache / FOLDER
    folder.mkdir(parents=True)
    cron.mkdir()
    (folder / "waiting").symlink_to(cron)
    for path in (own.cache, *own.cache.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
    with attacking(lambda: exchange(folder / "blobs", folder / "waiting"), uid):
        for _ in range(TRIES):
            with contextlib.suppress(transfer_errors.FilesError, OSError):
                own.take_model(TINY, peer)
            won += any(cron.iterdir())
            for left in (*cron.iterdir(), *(folder.glob("*/" + "[0-9a-f]" * 40 + "*"))):
                with contextlib.suppress(OSError):
                    left.unlink()
    tally("a container or an owner exchanges folders of the cache", TRIES, won)
    assert won == 0


@pytest.mark.parametrize("part", ["huggingface", "huggingface/hub", FOLDER, f"{FOLDER}/blobs", f"{FOLDER}/snapshots"])
def test_no_link_in_the_cache_is_followed(tmp_path: Path, part: str) -> None:
    own = host(tmp_path, "b", Rsync({}))
    (tmp_path / "elsewhere").mkdir()
    (own.cache / part).parent.mkdir(parents=True, exist_ok=True)
    (own.cache / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(transfer_errors.FilesError, match="foreign_link"):
        own.take_model(TINY, rsync.Peer("192.0.2.1", 1, tmp_path / "password"))
    assert list((tmp_path / "elsewhere").iterdir()) == [] and not own.marker.exists()


def test_files_arrive_where_only_root_gets_in(tmp_path: Path) -> None:
    seen: list[tuple[int, bool]] = []

    class Watching(Rsync):
        def __call__(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
            if argv[0] == "rsync":
                seen.append((own.stage.stat().st_mode & 0o777, argv[-1].startswith(str(own.cache))))
            return super().__call__(argv, **options)

    own = host(tmp_path, "b", Watching({}))
    own.take_model(TINY, rsync.Peer("192.0.2.1", 1, tmp_path / "password"))
    assert seen == [(0o700, False)] and own.read()["model"] is not None
    for file in TINY.files:
        status = (own.folder / "blobs" / file.hash).stat()
        assert status.st_mode & 0o777 == 0o644 and status.st_nlink == 1


def test_the_hubs_tool_sees_no_cache_and_has_no_power(tmp_path: Path) -> None:
    docker = Docker({"i@sha256:1": image()})
    own = host(tmp_path, "a", docker)
    own.download("")
    for argv in [argv for argv in docker.ran if argv[:2] == ["docker", "run"]]:
        assert argv[argv.index("--volume") + 1] == f"{own.stage}:/root/.cache"
        assert "--cap-drop ALL" in " ".join(argv) and "--cap-add" not in argv


def test_a_cache_on_a_disk_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path.stat()
    other = os.stat_result([*real[:2], real.st_dev + 1, *real[3:]])
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o777)
    disk.chmod(0o777)
    monkeypatch.setattr(Path, "stat", lambda self, **_: other if disk in (self, *self.parents) else real)
    with pytest.raises(transfer_errors.FilesError, match=r"foreign_folder: .*disk, the top of the disk"):
        model_folder.on_the_disk_of(disk / "cache", tmp_path / "state")
    disk.chmod(0o755)
    if os.geteuid() == 0:
        assert model_folder.on_the_disk_of(disk / "cache", tmp_path / "state") == disk / ".gb10-files"


# --- the giver


def test_what_is_offered_is_the_models_and_nothing_beside_it(tmp_path: Path) -> None:
    """The owner of the cache puts a link where a blob was, and the daemon runs as root."""
    own = filled(host(tmp_path, "a", Docker({})))
    (tmp_path / "shadow").write_text("root:x")
    name = own.folder / "blobs" / TINY.files[1].hash
    name.unlink()
    name.symlink_to(tmp_path / "shadow")
    with pytest.raises(transfer_errors.FilesError, match="foreign_link"):
        own.offer(["model"], [{"at": "192.0.2.1", "to": "192.0.2.2"}], 29502, "sesame", 60)
    assert not any(argv[0] == "systemd-run" for argv in own.run.ran)  # type: ignore[attr-defined]


STRANGER = """
import socket, sys
taken = socket.create_server(("127.0.0.1", 0))
print(taken.getsockname()[1], flush=True)
taken.accept()
"""


@pytest.fixture
def stranger() -> Iterator[int]:
    """A shell user who has taken the port first."""
    user: dict[str, int] = {"user": NOBODY} if os.geteuid() == 0 else {}
    with subprocess.Popen(["/usr/bin/python3", "-c", STRANGER], stdout=subprocess.PIPE, text=True, **user) as child:  # type: ignore[call-overload]
        yield int(child.stdout.readline())
        child.kill()


def test_a_port_that_a_stranger_took_is_no_offer(
    tmp_path: Path, stranger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd-run says that all is well: it has started a daemon, which then found the port taken."""
    monkeypatch.setattr(host_files, "LISTENS_WITHIN_S", 0.5)
    own = filled(host(tmp_path, "a", Docker({})))
    own.listens = listening.listens
    with pytest.raises(transfer_errors.FilesError, match=f"port_taken: our rsync does not hold TCP port {stranger}"):
        own.offer(["model"], [{"at": "127.0.0.1", "to": "127.0.0.2"}], stranger, "sesame", 60)
    assert not (own.stage / "offered").exists()


@needs_rsync
def test_the_archive_of_a_stranger_is_not_loaded(tmp_path: Path) -> None:
    """He has the port, asks for no password, and gives an image that starts something of his."""
    giver = filled(host(tmp_path, "a", Docker({"gb10-fleet/vllm:1": image()})))
    made = giver.save()
    (tmp_path / "theirs").mkdir()
    theirs = tmp_path / "theirs" / giver.archive(image_identity.fingerprint(image())).name
    theirs.write_text(json.dumps({"gb10-fleet/vllm:1": image(Healthcheck={"Test": ["CMD", "/theirs"]})}))
    daemon = Daemon(tmp_path / "daemon", {"image": str(tmp_path / "theirs")})
    docker = Docker({})
    own = host(tmp_path, "b", docker)
    try:
        with pytest.raises(transfer_errors.FilesError, match=r"archive_differs|peer_cut"):
            own.take({**giver.read(), "archive": made}, ["image"], "127.0.0.1", daemon.port, "sesame")
    finally:
        daemon.stop()
    assert docker.images == {} and not any(argv[:2] == ["docker", "load"] for argv in docker.ran)
    assert list(own.archives.iterdir()) == []


@needs_rsync
def test_the_same_archive_is_loaded(tmp_path: Path) -> None:
    giver = filled(host(tmp_path, "a", Docker({"gb10-fleet/vllm:1": image()})))
    giver.save()
    daemon = Daemon(tmp_path / "daemon", {"image": str(giver.archives)})
    own = host(tmp_path, "b", Docker({}), tell=quiet)
    try:
        take(own, giver, daemon, "image")
    finally:
        daemon.stop()
    assert own.read()["image"] == giver.read()["image"]


# --- more than was announced


def test_a_hub_that_sends_without_an_end_is_hung_up_on(tmp_path: Path) -> None:
    """Until the disk was full."""
    docker = Docker({})
    own = host(tmp_path, "a", docker)
    blobs = own.stage / own.folder.relative_to(own.cache) / "blobs"
    asked: list[list[str]] = []

    def run(argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.append(list(argv))
        if list(argv[:2]) != ["docker", "run"]:
            return docker(argv, **options)
        blobs.mkdir(parents=True, exist_ok=True)
        came = blobs / "x.incomplete"
        script = f"import time; open({str(came)!r}, 'wb').write(bytes({host_tools.MORE + (2 << 20)})); time.sleep(60)"
        return host_tools.command([sys.executable, "-c", script], **options)

    own.run = run
    with pytest.raises(
        transfer_errors.FilesError, match=r"too_large: of model, more came from the hub than the 0\.0 GB"
    ):
        own.hub(tmp_path / "env", step="get", size=1000)
    assert asked[-1][:2] == ["docker", "rm"] and not (own.stage / "huggingface").exists()


def test_a_peer_whose_blob_grows_on_its_way_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program stands for rsync, which reads a blob to its end, however long it has become."""
    monkeypatch.setattr(host_tools, "MORE", 1 << 20)
    model = model_listing.Model(MODEL, "main", COMMIT, (blob("a", b"one"), blob("b", b"two")))
    own = host(tmp_path, "b", Docker({}))
    blobs = own.stage / own.folder.relative_to(own.cache) / "blobs"

    def run(_argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        script = f"import time; open({str(blobs / model.files[1].hash)!r}, 'wb').write(bytes(2 << 20)); time.sleep(5)"
        return host_tools.command([sys.executable, "-c", script], **options)

    own.run = run
    with pytest.raises(transfer_errors.FilesError, match=r"too_large: of model, more came from 127\.0\.0\.1"):
        own.take({"model": model.as_dict()}, ["model"], "127.0.0.1", 1, "sesame")
    assert not list(blobs.iterdir())


# --- whose socket it is


@pytest.mark.parametrize(("address", "asked"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")])
def test_the_process_behind_a_connection_is_known(address: str, asked: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=address == "::") as server:
        port = server.getsockname()[1]
        assert listening.listens(os.getpid(), address, port) and not listening.listens(1, address, port)
        with socket.create_connection((asked, port)) as client:
            here, there = (sockets.end(*name[:2]) for name in (client.getsockname(), client.getpeername()))
            assert sockets.other_end(here, there) is None, "nobody has accepted it"
            with server.accept()[0] as accepted:
                mark = (os.fstat(accepted.fileno()).st_ino, os.getuid())
                assert sockets.other_end(here, there) == mark
                assert mark in sockets.sockets_of([os.getpid()]) and mark not in sockets.sockets_of([1])


def test_kin_share_the_whole_path_of_their_group(tmp_path: Path) -> None:
    """A user may make a group of the same name below his own."""
    for process, group in ((5, "/system.slice/docker-1.scope"), (6, "/system.slice/docker-1.scope"), (8, "/")):
        (tmp_path / str(process)).mkdir()
        (tmp_path / str(process) / "cgroup").write_text(f"0::{group}\n")
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text("0::/user.slice/user@1000.service/docker-1.scope\n")
    assert sorted(sockets.kin(5, tmp_path)) == [5, 6]
    assert (sockets.kin(8, tmp_path), sockets.kin(9, tmp_path)) == ([8], [9])  # everybody's group, and none


def test_a_blob_that_grows_while_it_is_proven_comes_to_an_end(tmp_path: Path) -> None:
    """Of holes, so it costs its owner nothing: root would read for centuries."""
    content = b"x" * 100
    name, most = hashlib.sha256(content).hexdigest(), 2**16
    (tmp_path / name).write_bytes(content)
    read = list[int]()

    def grown(length: int) -> None:
        read.append(length)
        if sum(read) < most:
            os.truncate(tmp_path / name, sum(read) + 100)

    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert model_folder.is_proven(folder, name, len(content), grown)
    finally:
        os.close(folder)
    tally("a blob that grows while root reads it", 1, int(sum(read) > len(content)))
    assert sum(read) == len(content)
