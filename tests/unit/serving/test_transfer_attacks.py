"""Image and model come to a host while somebody on it, or on the giver, wants something else to come."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import socket
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import sockets
from ansible_collections.gb10.fleet.plugins.module_utils.serving import (
    host_files,
    image_archive,
    image_identity,
    listening,
    model_folder,
    rsync,
    transfer_errors,
)

from tests.support.attacker import NOBODY, TRIES, attacking, exchange, needs_root, public_folder, tally
from tests.support.model_daemon import (
    CONTENT,
    MODEL,
    TINY,
    Daemon,
    Docker,
    archive,
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
    theirs.write_bytes(archive({"gb10-fleet/vllm:1": image(Healthcheck={"Test": ["CMD", "/theirs"]})}))
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


# --- what the giver itself has put into the archive

OURS, OTHER = "gb10-fleet/vllm:1", "owner/monitor:1"
WON = "an archive of a peer's image that names another one"


def named(*names: str) -> str:
    return json.dumps([{"Config": "c", "RepoTags": [name], "Layers": []} for name in names])


def header(kind: bytes, name: str, content: bytes = b"", target: str = "") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, len(content), target
    return member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


EVIL = named(OURS, OTHER).encode()
FOREIGN = {
    "two images": header(b"0", "manifest.json", EVIL),
    "repositories": header(b"0", "manifest.json", named(OURS).encode())
    + header(b"0", "repositories", b'{"owner/monitor": {"1": "c"}}'),
    "index": header(
        b"0",
        "index.json",
        b'{"manifests": [{"annotations": {"io.containerd.image.name": "docker.io/owner/monitor:1"}}]}',
    ),
    "ref": header(
        b"0",
        "index.json",
        b'{"manifests": [{"annotations": {"org.opencontainers.image.ref.name": "owner/monitor:1"}}]}',
    ),
    "a key in another case": header(b"0", "manifest.json", EVIL.replace(b"RepoTags", "RepoTag\u017f".encode())),
    "a key twice": header(
        b"0", "manifest.json", b'[{"RepoTags": ["owner/monitor:1"], "RepoTags": ["gb10-fleet/vllm:1"]}]'
    ),
    "a file twice": header(b"0", "manifest.json", named(OURS).encode()) + header(b"0", "manifest.json", EVIL),
    "a dot before it": header(b"0", "./manifest.json", EVIL),
    "through a link to its folder": header(b"2", "d", target=".") + header(b"0", "d/manifest.json", EVIL),
    "as a link": header(b"0", "m", EVIL) + header(b"2", "manifest.json", target="m"),
    "as a hard link": header(b"0", "m", EVIL) + header(b"1", "manifest.json", target="m"),
    "by an extended header": header(b"x", "x", b"22 path=manifest.json\n") + header(b"0", "m", EVIL),
    "hidden by an extended header": header(b"x", "x", b"10 path=m\n") + header(b"0", "manifest.json", EVIL),
    "hidden by a header for all": header(b"g", "g", b"10 path=m\n") + header(b"0", "manifest.json", EVIL),
    "by a long name": header(b"L", "././@LongLink", b"manifest.json\0") + header(b"0", "m", EVIL),
    "within what only some skip": header(b"S", "s", header(b"0", "m", bytes(512)))
    + header(b"0", "manifest.json", EVIL),
    "within a folder": header(b"5", "d", header(b"0", "m")) + header(b"0", "manifest.json", EVIL),
    "packed": gzip.compress(header(b"0", "manifest.json", EVIL)),
    "no UTF-8": header(b"0", "manifest.json", b'[{"RepoTags": ["\xff"]}]'),
    "deep": header(b"0", "manifest.json", b"[" * 100_000),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_an_archive_that_names_another_image_is_not_loaded(tmp_path: Path, what: str) -> None:
    """`docker load` would have the name of the owner's own image lead to the peer's."""
    path = tmp_path / "image.tar"
    path.write_bytes(FOREIGN[what] + bytes(1024))
    with contextlib.ExitStack() as stack:
        refused = stack.enter_context(pytest.raises(transfer_errors.FilesError, match="image_differs"))
        image_archive.need_only(path, OURS)
    tally(WON, 1, 0 if refused.value else 1)
    assert not path.exists()


@pytest.mark.parametrize("words", [("index.json", "docker.io/gb10-fleet/vllm:1"), ("manifest.json", OURS)])
def test_an_archive_of_one_image_is_loaded(tmp_path: Path, words: tuple[str, str]) -> None:
    """As Docker 20.10, 25 and containerd's store write it; a layer of more than 8 GiB says its size beside it."""
    name, said = words
    index = {
        "manifests": [{"annotations": {"io.containerd.image.name": said, "org.opencontainers.image.ref.name": "1"}}]
    }
    path = tmp_path / "image.tar"
    path.write_bytes(
        header(b"5", "blobs/")
        + header(b"x", "x", b"10 size=3\n")
        + header(b"0", "blobs/layer", b"abc")
        + header(b"2", "blobs/same", target="layer")
        + header(b"0", name, (json.dumps(index) if name == "index.json" else named(said)).encode())
        + header(b"0", "repositories", b'{"gb10-fleet/vllm": {"1": "c"}}')
        + bytes(1024)
    )
    image_archive.need_only(path, OURS)
    assert path.exists()


@needs_rsync
def test_an_archive_with_more_than_its_image_moves_no_name(tmp_path: Path) -> None:
    giver = filled(host(tmp_path, "a", Docker({OURS: image()})))
    said = giver.save()
    (more,) = giver.archives.glob("*.tar")
    more.write_bytes(archive({OURS: image(), OTHER: image("sha256:9")}))
    said = {"bytes": more.stat().st_size, "sha256": hashlib.sha256(more.read_bytes()).hexdigest()}
    daemon, docker = Daemon(tmp_path / "daemon", {"image": str(giver.archives)}), Docker({OTHER: image()})
    own = host(tmp_path, "b", docker)
    try:
        with pytest.raises(transfer_errors.FilesError, match=r"image_differs.*owner/monitor:1"):
            own.take({**giver.read(), "archive": said}, ["image"], "127.0.0.1", daemon.port, "sesame")
    finally:
        daemon.stop()
    assert docker.images == {OTHER: image()} and list(own.archives.iterdir()) == []


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
