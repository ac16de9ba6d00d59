# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image and the files of a model, on the host: they come once from outside, and then from host to host.

The image's own Hugging Face library lists and downloads a model. A file of it is a blob, named by its checksum, and a
link that gives it its path. Between hosts only blobs travel, so no name that a peer says becomes a path; the links are
made here. The marker is written when every blob has the checksum that is its name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import (
    Tell,
    folder_of,
    lacking,
    link,
    make_plain,
    need_room,
    remove_wrong,
    size_of,
    write,
)
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_listing import Model, parse_model, wanted
from ansible_collections.gb10.fleet.plugins.module_utils.serving.rsync import (
    USER,
    Peer,
    client_argv,
    daemon_argv,
    daemon_config,
)
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import (
    TOOLS_SAY,
    FilesError,
    hub_verdict,
    rsync_verdict,
)

STATE = Path("/var/cache/gb10-files")  # markers, and an image on its way; no container sees it
RUN = Path("/run/gb10-fleet/files")  # progress, lock, and what a daemon is told
DOCKER = Path("/var/lib/docker")
CONTAINER = "gb10-files"  # of the download
UNIT = "gb10-files"
TRIES = 2  # a wrong blob is removed and fetched once more
TELL_S = 1.0
CALLS = 10  # of a client whose peer does not listen yet
NOBODY_LISTENS = 10  # exit code of rsync
# Runs in the image. What it is asked is on the command line, the token in its environment, its answer one line of JSON.
HUB = r"""
import json, sys
asked = json.loads(sys.argv[1])
said = {}
try:
    from huggingface_hub import HfApi, snapshot_download
    if asked["step"] == "list":
        info = HfApi().model_info(asked["model"], revision=asked["revision"], files_metadata=True)
        said = {"commit": info.sha, "files": []}
        for file in info.siblings:
            lfs = file.lfs and (file.lfs["sha256"] if isinstance(file.lfs, dict) else file.lfs.sha256)
            said["files"].append({"path": file.rfilename, "size": file.size, "hash": lfs or file.blob_id})
    else:
        snapshot_download(asked["model"], revision=asked["revision"], ignore_patterns=asked["exclude"] or None)
except Exception as error:
    response = getattr(error, "response", None)
    said = {"error": {"kinds": [kind.__name__ for kind in type(error).__mro__], "text": str(error),
                      "status": getattr(response, "status_code", None)}}
print(json.dumps(said))
"""
Command = Callable[..., "subprocess.CompletedProcess[str]"]


def fingerprint(image: Mapping[str, Any]) -> str:
    """What an image is, whatever store it lies in: a classic one gives it another id than one of containerd's."""
    config = image.get("Config") or {}
    part = {key: config.get(key) or None for key in ("Env", "Entrypoint", "Cmd", "WorkingDir", "User", "Labels")}
    what = {"layers": image["RootFS"]["Layers"], "architecture": image.get("Architecture"), **part}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


class Files:
    """Image and model of one host. `run` starts commands; the folders are the real ones, except in tests."""

    def __init__(self, said: Mapping[str, Any], tell: Tell, run: Command | None = None, *, state: Path = STATE) -> None:
        self.image: str = said["image"]
        self.name: str = said["name"]
        self.model: str = said["model"]
        self.revision: str = said["revision"]
        self.exclude: list[str] = said["exclude"]
        self.cache = Path(said["cache"])
        self.fetch: bool = said["fetch"]
        self.environment: Mapping[str, str] = said["environment"]
        self.folder = folder_of(said["cache"], self.model)
        self.state = state
        self.tell = tell
        self.run = run or command

    @property
    def marker(self) -> Path:
        return self.state / f"{self.folder.name}@{self.revision}.json"

    # -- what is there

    def inspect(self, name: str) -> dict[str, Any] | None:
        done = self.run(["docker", "image", "inspect", name])
        return json.loads(done.stdout)[0] if done.returncode == 0 else None

    def read(self) -> dict[str, Any]:
        """What this host has. `pull`: neither under our name nor under its own."""
        image = self.inspect(self.name)
        said: dict[str, Any] = {
            "image": None,
            "model": None,
            "pull": image is None and self.inspect(self.image) is None,
        }
        if image is not None:
            said["image"] = {"fingerprint": fingerprint(image), "bytes": image["Size"]}
        with contextlib.suppress(OSError, ValueError):
            marked = json.loads(self.marker.read_text(encoding="utf-8"))
            model = parse_model(marked)
            whole = marked.get("exclude") == self.exclude and not lacking(self.folder, model)
            said["model"] = model.as_dict() if whole else None
        return said

    # -- from outside

    def download(self, token: str) -> bool:
        """Name the image that is there, and get the model from the hub. Whether anything changed."""
        there = self.read()
        changed = there["image"] is None
        if changed:
            self.ask(["docker", "tag", self.image, self.name])
        if not self.fetch or there["model"] is not None:
            return changed
        known = {**self.environment, **({"HF_TOKEN": token} if token else {})}
        with self.private("token.env", "".join(f"{name}={value}\n" for name, value in known.items())) as env:
            self.get(env)
        return True

    def get(self, env: Path) -> None:
        model = wanted(self.hub(env, step="list", revision=self.revision), self.model, self.revision, self.exclude)
        missing = lacking(self.folder, model)
        way_out = "free some space, or set vllm_cache_directory to another disk"
        need_room(self.cache, sum(missing.values()), f"{self.model}, as far as it is missing,", way_out)
        make_plain(self.folder / "blobs", self.cache)
        wrong: list[str] = []
        for _ in range(TRIES):
            self.hub(env, step="get", revision=model.commit, exclude=self.exclude, size=model.size)
            wrong = remove_wrong(self.folder, model, self.tell)
            if not wrong:
                return self.complete(model)
        raise self.checksum_wrong(model, wrong, "the hub")

    def hub(self, env: Path, *, size: int = 0, **asked: Any) -> dict[str, Any]:
        """One question to the hub's library in the image; `size`: of what it downloads meanwhile."""
        self.run(["docker", "rm", "--force", CONTAINER])  # of a run that was killed
        argv = [
            *("docker", "run", "--rm", "--name", CONTAINER, "--pull", "never", "--network", "host"),
            *("--env-file", str(env), "--volume", f"{self.cache}:/root/.cache", "--entrypoint", "python3", self.name),
            *("-c", HUB, json.dumps({"model": self.model, **asked})),
        ]
        done = self.run(argv, watch=lambda: self.tell("model from the hub", min(self.arrived(), size), size))
        try:
            said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            text = " / ".join(done.stderr.strip().splitlines()[-3:])[:TOOLS_SAY]
            raise FilesError("no_tool", f"the image did not run its Python ({text})", "see `docker info`") from None
        if "error" in said:
            raise hub_verdict(said["error"], self.model)
        return said

    def arrived(self) -> int:
        """Bytes on the disk, of half a file too."""
        with contextlib.suppress(OSError):
            return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in os.scandir(self.folder / "blobs"))
        return 0

    def checksum_wrong(self, model: Model, wrong: Sequence[str], source: str) -> FilesError:
        named = [blob.path for blob in model.files if blob.hash in wrong]
        some = f"{', '.join(named[:3])} ({len(named)} of {len(model.files)} files)"
        text = f"of {self.model}, {some} came wrong from {source} {TRIES} times"
        return FilesError(
            "checksum_wrong", text, "see that disk and memory are sound (`journalctl -k`), then run again"
        )

    def complete(self, model: Model) -> None:
        link(self.folder, self.cache, model)
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(self.marker, json.dumps({**model.as_dict(), "exclude": self.exclude}))

    # -- to others

    def offer(
        self, parts: Sequence[str], ways: Sequence[Mapping[str, str]], port: int, password: str, limit_s: int
    ) -> None:
        """Open what peers lack to them alone, for `limit_s` at most. `ways`: `at` our address, `to` the peer's."""
        self.withdraw()
        modules = {}
        if "image" in parts:
            modules["image"] = str(self.state)
            self.save()
        if "model" in parts:
            modules["model"] = str(self.folder / "blobs")
        RUN.mkdir(parents=True, exist_ok=True)
        write(RUN / "secrets", f"{USER}:{password}\n")
        for number, address in enumerate(sorted({way["at"] for way in ways})):
            allow = sorted(way["to"] for way in ways if way["at"] == address)
            config = RUN / f"rsyncd-{number}.conf"
            write(config, daemon_config(modules, allow, RUN / "secrets", RUN / f"rsyncd-{number}.lock"))
            limits = ("ProtectSystem=strict", f"ReadWritePaths={RUN}", "NoNewPrivileges=yes", "PrivateTmp=yes")
            self.ask([
                *("systemd-run", "--collect", "--quiet", f"--unit={UNIT}-{number}"),
                *(f"--property={text}" for text in (*limits, f"RuntimeMaxSec={limit_s}")),
                *daemon_argv(config, address, port),
            ])  # fmt: skip

    def withdraw(self) -> None:
        """Nothing is open and nothing is left; also of a run that was killed."""
        self.run(["systemctl", "stop", f"{UNIT}-*.service"])
        for path in (*RUN.glob("rsyncd-*"), RUN / "secrets", *self.state.glob("*.tar")):
            path.unlink(missing_ok=True)

    def archive(self, mark: str) -> Path:
        return self.state / f"{mark[:12]}.tar"

    def save(self) -> None:
        image = self.inspect(self.name)
        if image is None:
            raise FilesError("no_image", f"{self.name} is gone", "run again")
        size = image["Size"]
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        need_room(self.state, size, f"a copy of {self.image}", "free some space there; it is removed afterwards")
        path = self.archive(fingerprint(image))
        argv = ["docker", "save", "--output", str(path), self.name]
        self.ask(argv, watch=lambda: self.tell("saving the image", size_of(path) or 0, size))

    # -- from a peer

    def take(self, given: Mapping[str, Any], parts: Sequence[str], address: str, port: int, password: str) -> None:
        with self.private("password", f"{password}\n") as secret:
            peer = Peer(address, port, secret)
            if "image" in parts:
                self.take_image(given["image"], peer)
            if "model" in parts:
                self.take_model(parse_model(given["model"]), peer)

    def take_image(self, offered: Mapping[str, Any], peer: Peer) -> None:
        mark, size = str(offered["fingerprint"]), int(offered["bytes"])
        if not re.match(r"[0-9a-f]{64}\Z", mark):
            raise ValueError("this is no fingerprint of an image")
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.archive(mark)
        for other in self.state.glob("*.tar"):  # half of an image that nobody wants any more
            if other != path:
                other.unlink()
        way_out = "free some space there"
        # As a copy and unpacked; where both are on one disk, both at once.
        one_disk = DOCKER.exists() and self.state.stat().st_dev == DOCKER.stat().st_dev
        need_room(self.state, size * (1 + one_disk) - (size_of(path) or 0), self.image, way_out)
        need_room(DOCKER, size, f"{self.image}, unpacked,", way_out)
        self.tell(f"image from {peer.address}", 0, size)
        self.copy(peer, "image", [path.name], self.state, lambda: min(size_of(path) or 0, size), size)
        self.tell("loading the image", 0, 0)
        self.ask(["docker", "load", "--quiet", "--input", str(path)])
        path.unlink()
        image = self.inspect(self.name)
        if image is None or fingerprint(image) != mark:
            self.run(["docker", "image", "rm", self.name])
            text = f"{self.name} is not what {peer.address} has"
            raise FilesError("image_differs", text, "see that both hosts run the same Docker, then run again")

    def take_model(self, model: Model, peer: Peer) -> None:
        blobs = self.folder / "blobs"
        make_plain(blobs, self.cache)
        missing = lacking(self.folder, model)
        way_out = "free some space, or set vllm_cache_directory to another disk"
        there = sum(size_of(blobs / name) or 0 for name in missing)
        need_room(self.cache, sum(missing.values()) - there, f"{self.model}, as far as it is missing,", way_out)
        wrong: list[str] = []
        for _ in range(TRIES):
            for name, size in missing.items():  # what is longer, or no file, rsync would leave as it is
                found = size_of(blobs / name)
                if found is None or found > size:
                    with contextlib.suppress(FileNotFoundError):
                        (blobs / name).unlink()
            self.copy(peer, "model", sorted(missing), blobs, lambda: min(self.arrived(), model.size), model.size)
            wrong = remove_wrong(self.folder, model, self.tell)
            if not wrong:
                return self.complete(model)
            missing = {name: model.blobs[name] for name in wrong}
        raise self.checksum_wrong(model, wrong, peer.address)

    def copy(
        self, peer: Peer, module: str, names: Sequence[str], target: Path, arrived: Callable[[], int], size: int
    ) -> None:
        if not names:
            return
        for _ in range(CALLS):
            done = self.run(
                client_argv(peer, module, target),
                input="".join(f"{name}\n" for name in names),
                watch=lambda: self.tell(f"{module} from {peer.address}", arrived(), size),
            )
            if done.returncode != NOBODY_LISTENS:
                break
            time.sleep(TELL_S)
        if done.returncode != 0:
            raise rsync_verdict(done.returncode, done.stderr, peer.address)

    # -- tools

    def ask(self, argv: Sequence[str], watch: Callable[[], None] | None = None) -> str:
        done = self.run(argv, watch=watch)
        if done.returncode == 0:
            return done.stdout
        text = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])[:TOOLS_SAY]
        if os.strerror(errno.ENOSPC).lower() in text.lower():
            raise FilesError("disk_full", text, "free some space there, then run again")
        raise FilesError("failed", f"`{' '.join(argv[:3])}`: {text}", "mend what it says, then run again")

    @contextlib.contextmanager
    def private(self, name: str, text: str) -> Iterator[Path]:
        """A file that root alone reads, for as long as it is needed."""
        RUN.mkdir(parents=True, exist_ok=True)
        path = RUN / name
        try:
            write(path, text)
            yield path
        finally:
            path.unlink(missing_ok=True)


def command(
    argv: Sequence[str],
    *,
    input: str | None = None,  # noqa: A002
    watch: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and look at what it does every second."""
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        return subprocess.CompletedProcess(list(argv), 127, "", f"{argv[0]}: {error.strerror}")
    while True:
        try:
            out, err = child.communicate(input, timeout=TELL_S)
            return subprocess.CompletedProcess(list(argv), child.returncode, out, err)
        except subprocess.TimeoutExpired:
            input = None  # noqa: A001 - communicate goes on with what it has
            if watch is not None:
                watch()


class Teller:
    """Writes to a file how far it is, for the task that waits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = ("", 0.0)

    def __call__(self, doing: str, done: int, total: int) -> None:
        now = time.monotonic()
        if doing == self._last[0] and now - self._last[1] < TELL_S:
            return
        self._last = (doing, now)
        write(self._path, json.dumps({"doing": doing, "done": done, "total": total, "at": now}))


@contextlib.contextmanager
def alone() -> Iterator[Path]:
    """One run at a time on a host; gives the file where it says how far it is."""
    RUN.mkdir(mode=0o700, parents=True, exist_ok=True)
    progress = RUN / "progress.json"
    with (RUN / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = "another run is still fetching files on this host"
            way_out = f"wait for it (`cat {progress}` says how far it is), then run again"
            raise FilesError("busy", text, way_out) from None
        for former in (progress, *RUN.glob("*token.env*"), *RUN.glob("*password*")):  # of a run that was killed
            former.unlink(missing_ok=True)
        try:
            yield progress
        finally:
            progress.unlink(missing_ok=True)


def carry_out(step: str, request: Mapping[str, Any], secret: str, tell: Tell) -> dict[str, Any]:
    """One step that changes something; `secret` is the token of the hub or the password between hosts."""
    os.umask(0o022)  # the daemon and the model's server read what is written here
    files = Files(request["files"], tell)
    if step == "download":
        changed = files.download(secret)
        return {"changed": changed, **files.read()}
    if step == "offer":
        files.offer(request["parts"], request["ways"], request["port"], secret, request["limit_s"])
    elif step == "take":
        files.take(request["offered"], request["parts"], request["address"], request["port"], secret)
    else:
        files.withdraw()
    return {"changed": step == "take"}
