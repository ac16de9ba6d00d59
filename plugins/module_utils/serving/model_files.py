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
import fnmatch
import hashlib
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

STATE = Path("/var/cache/gb10-files")  # markers, and an image on its way; no container sees it
RUN = Path("/run/gb10-fleet/files")  # progress, lock, and what a daemon is told
DOCKER = Path("/var/lib/docker")
CONTAINER = "gb10-files"  # of the download
UNIT = "gb10-files"
USER = "gb10"  # of rsync; no account
TRIES = 2  # a wrong blob is removed and fetched once more
CHUNK = 1 << 22
TELL_S = 1.0
CALLS = 10  # of a client whose peer does not listen yet
NOBODY_LISTENS = 10  # exit code of rsync
SEATS = 4  # of each peer: the connection of a client that was killed is held until its time is out
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_MODEL = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?\Z", re.ASCII)
_REVISION = re.compile(r"\w[\w.-]*\Z", re.ASCII)
_PART = re.compile(r"[^\0-\x1f\x7f/\\]+\Z")
_TOOLS_SAY = 400  # characters of what a failed command said
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

Tell = Callable[[str, int, int], None]  # what is being done, bytes so far, bytes in all (0: not known)
Command = Callable[..., "subprocess.CompletedProcess[str]"]


class FilesError(Exception):
    """Image or files did not come; a verdict, what was seen, and the way out."""

    def __init__(self, verdict: str, text: str, way_out: str) -> None:
        super().__init__(f"{verdict}: {text}; {way_out}")
        self.verdict = verdict


class Blob(NamedTuple):
    """A file of a model. `hash` is its SHA-256, of a small one the SHA-1 that git gives it; `size` in bytes."""

    path: str
    size: int
    hash: str


class Peer(NamedTuple):
    """Who offers files. `password` is a file."""

    address: str
    port: int
    password: Path


class Model(NamedTuple):
    """What a model consists of, at one commit."""

    model: str
    revision: str
    commit: str
    files: tuple[Blob, ...]

    @property
    def blobs(self) -> dict[str, int]:
        """Sizes by checksum: two files of a model may be one blob."""
        return {blob.hash: blob.size for blob in self.files}

    @property
    def size(self) -> int:
        return sum(self.blobs.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "revision": self.revision,
            "commit": self.commit,
            "bytes": self.size,
            "files": [list(blob) for blob in self.files],
        }


# -- pure --------------------------------------------------------------------------------------------------------------


def parse_model(raw: Any) -> Model:
    """What the hub, a marker or a peer says, or ValueError with what is wrong in it."""
    try:
        model = Model(raw["model"], raw["revision"], raw["commit"], tuple(Blob(*file) for file in raw["files"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no list of a model's files: {error!r}") from error
    for name, pattern in (("model", _MODEL), ("revision", _REVISION), ("commit", _COMMIT)):
        value = getattr(model, name)
        if not isinstance(value, str) or not pattern.match(value):
            raise ValueError(f"{name} {value!a} is no name of a {name}")
    for blob in model.files:
        if not isinstance(blob.path, str) or not safe_path(blob.path):
            raise ValueError(f"the path {blob.path!a} leads out of the model, or is none")
        if not isinstance(blob.hash, str) or not _HASH.match(blob.hash):
            raise ValueError(f"{blob.path}: {blob.hash!a} is neither a SHA-256 nor a SHA-1")
        if type(blob.size) is not int or blob.size < 0:
            raise ValueError(f"{blob.path}: {blob.size!a} is no size in bytes")
    if len({blob.path for blob in model.files}) != len(model.files):
        raise ValueError("a path is in it twice")
    return model


def safe_path(path: str) -> bool:
    """Whether a path stays below its folder and is plain text."""
    return all(_PART.match(part) and part not in (".", "..") for part in path.split("/"))


def wanted(said: Mapping[str, Any], model: str, revision: str, exclude: Sequence[str]) -> Model:
    """What the hub lists, without what is excluded. Patterns as the hub's own tool takes them."""
    patterns = [f"{pattern}*" if pattern.endswith("/") else pattern for pattern in exclude]
    files = [
        [file["path"], file["size"], file["hash"]]
        for file in said["files"]
        if not any(fnmatch.fnmatchcase(file["path"], pattern) for pattern in patterns)
    ]
    return parse_model({"model": model, "revision": revision, "commit": said["commit"], "files": files})


def hub_verdict(error: Mapping[str, Any], model: str) -> FilesError:
    """What an error of the hub's library comes down to."""
    kinds, status, text = set(error["kinds"]), error["status"], " ".join(str(error["text"]).split())[:_TOOLS_SAY]
    if {"ImportError", "ModuleNotFoundError"} & kinds:
        way_out = "take an image with vLLM, or set vllm_fetch to false"
        return FilesError("no_tool", f"the image has no huggingface_hub ({text})", way_out)
    # Before the others: to the library a gated model is also one that is not found.
    if "GatedRepoError" in kinds or status in (401, 403):
        way_out = (
            f"accept the licence of {model} on the hub with your account, and set vllm_huggingface_token to its token"
        )
        return FilesError("unauthorized", f"the hub does not give out {model} ({text})", way_out)
    if {"RepositoryNotFoundError", "RevisionNotFoundError", "EntryNotFoundError"} & kinds or status == 404:
        way_out = "correct vllm_model or vllm_model_revision; a private one needs vllm_huggingface_token"
        return FilesError("no_such_model", f"the hub has no such model or revision ({text})", way_out)
    if "OSError" in kinds and "No space left" in text:
        return FilesError("disk_full", text, "free some space, or set vllm_cache_directory to another disk")
    way_out = (
        "give the host a way to it (HF_ENDPOINT, HTTPS_PROXY in vllm_environment) and run again: it goes on where it"
        " stopped; or put the files there yourself and set vllm_fetch to false"
    )
    return FilesError("hub_unreachable", f"{model} cannot be had from the hub ({text})", way_out)


def disk_verdict(error: OSError) -> FilesError:
    """What the file system refused here."""
    text = f"{error.filename or 'a file'}: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FilesError("disk_full", text, "free some space, or set vllm_cache_directory to another disk")
    return FilesError("failed", text, "mend what it says, and run again: it goes on where it stopped")


def rsync_verdict(rc: int, text: str, peer: str) -> FilesError:
    """What a transfer that failed comes down to; exit codes of rsync(1)."""
    said = " / ".join(text.strip().splitlines()[-3:])[:_TOOLS_SAY]
    if rc == 11 and "No space left" in text:
        return FilesError("disk_full", said, "free some space, or set vllm_cache_directory to another disk")
    # To an address that it does not know, a daemon that lists nothing says that there is no such module.
    if any(words in text for words in ("auth failed", "access denied", "Unknown module")):
        way_out = "another run may have begun in between: run again"
        return FilesError("peer_refused", f"{peer} does not let this host in ({said})", way_out)
    way_out = "see that the host is up and the fabric well, then run again: it goes on where it stopped"
    return FilesError("peer_cut", f"the transfer from {peer} broke off (rsync {rc}: {said})", way_out)


def fingerprint(image: Mapping[str, Any]) -> str:
    """What an image is, whatever store it lies in: a classic one gives it another id than one of containerd's."""
    config = image.get("Config") or {}
    part = {key: config.get(key) or None for key in ("Env", "Entrypoint", "Cmd", "WorkingDir", "User", "Labels")}
    what = {"layers": image["RootFS"]["Layers"], "architecture": image.get("Architecture"), **part}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def daemon_config(modules: Mapping[str, str], allow: Sequence[str], secrets: Path, lock: Path) -> str:
    """What a peer may read, and who is one. rsync takes the rest of a line as it is, so no value may hold a break."""
    lines = [
        *("use chroot = yes", "uid = root", "gid = root", "read only = yes", "list = no", "numeric ids = yes"),
        *(f"hosts allow = {' '.join(allow)}", "hosts deny = *", f"auth users = {USER}", f"secrets file = {secrets}"),
        *("strict modes = yes", f"max connections = {SEATS * len(allow)}", f"lock file = {lock}", "timeout = 120"),
        "reverse lookup = no",
    ]
    for name, path in modules.items():
        lines += [f"[{name}]", f"path = {path}"]
    if any("\n" in line for line in lines):
        raise ValueError("a line break in a path or address")
    return "\n".join(lines) + "\n"


def daemon_argv(config: Path, address: str, port: int) -> list[str]:
    return ["rsync", "--daemon", "--no-detach", f"--config={config}", f"--address={address}", f"--port={port}"]


def client_argv(peer: Peer, module: str, target: Path) -> list[str]:
    """--append-verify goes on where a transfer stopped, and rejects what was there before if it was something else."""
    return [
        *("rsync", "--append-verify", "--partial", "--chmod=F0644", "--timeout=120", "--contimeout=20"),
        *("--files-from=-", f"--port={peer.port}", f"--password-file={peer.password}"),
        *(f"rsync://{USER}@{peer.address}/{module}/", f"{target}/"),
    ]


# -- the files of a model ----------------------------------------------------------------------------------------------


def folder_of(cache: str, model: str) -> Path:
    """Where Hugging Face's library keeps a model, with /root/.cache being our cache."""
    return Path(cache) / "huggingface" / "hub" / f"models--{model.replace('/', '--')}"


def make_plain(path: Path, below: Path) -> None:
    """Make a folder. A link on the way is refused: a container can write there, and would lead root elsewhere."""
    below.mkdir(parents=True, exist_ok=True)
    step = below
    for part in path.relative_to(below).parts:
        step = step / part
        with contextlib.suppress(FileExistsError):
            step.mkdir(mode=0o755)
        if not stat.S_ISDIR(step.lstat().st_mode):
            raise FilesError("foreign_link", f"{step} is no folder", "remove it, then run again")


def size_of(blob: Path) -> int | None:
    """None where there is no plain file of that name."""
    with contextlib.suppress(OSError):
        status = blob.lstat()
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def lacking(folder: Path, model: Model) -> dict[str, int]:
    """The blobs that are not there in their full size: a quick look, no proof."""
    return {name: size for name, size in model.blobs.items() if size_of(folder / "blobs" / name) != size}


def checksum(path: Path, name: str, count: Callable[[int], None]) -> str:
    """As the hub names blobs: SHA-256, or for small ones the SHA-1 of git."""
    total = hashlib.sha256() if len(name) == 64 else hashlib.sha1()  # noqa: S324 - git's, no protection
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        if len(name) != 64:
            total.update(b"blob %d\0" % os.fstat(descriptor).st_size)
        while chunk := file.read(CHUNK):
            total.update(chunk)
            count(len(chunk))
    return total.hexdigest()


def remove_wrong(folder: Path, model: Model, tell: Tell) -> list[str]:
    """The blobs that are missing or not what their names say; the latter are removed."""
    wrong, done = [], 0

    def count(length: int) -> None:
        nonlocal done
        done += length
        tell("checking the model", done, model.size)

    for name, size in model.blobs.items():
        blob = folder / "blobs" / name
        if size_of(blob) == size and checksum(blob, name, count) == name:
            continue
        with contextlib.suppress(FileNotFoundError):
            blob.unlink()
        wrong.append(name)
    return wrong


def link(folder: Path, cache: Path, model: Model) -> None:
    """The paths of the model's files, and the name of its revision, as the library looks them up without a network."""
    for blob in model.files:
        place = folder / "snapshots" / model.commit / blob.path
        target = "../" * (blob.path.count("/") + 2) + f"blobs/{blob.hash}"
        make_plain(place.parent, cache)
        if not place.is_symlink() or os.readlink(place) != target:  # noqa: PTH115 - as it is written
            with contextlib.suppress(FileNotFoundError):
                place.unlink()
            place.symlink_to(target)
    if model.revision != model.commit:
        make_plain(folder / "refs", cache)
        write(folder / "refs" / model.revision, model.commit, 0o644)


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Whole or not at all, and private from the first moment on."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)


def need_room(path: Path, needed: int, what: str, way_out: str) -> None:
    """Refuse before the first byte. What is kept free of a disk is the doctor's: `disk_full`."""
    while not path.exists():
        path = path.parent
    status = os.statvfs(path)
    free = status.f_bavail * status.f_frsize
    if needed > free:
        text = f"{what} takes {gigabytes(needed)} and {path} has {gigabytes(free)} left"
        raise FilesError("disk_full", text, way_out)


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


# -- one host's part ---------------------------------------------------------------------------------------------------


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

    def look(self) -> dict[str, Any]:
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
        look = self.look()
        changed = look["image"] is None
        if changed:
            self.ask(["docker", "tag", self.image, self.name])
        if not self.fetch or look["model"] is not None:
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
            text = " / ".join(done.stderr.strip().splitlines()[-3:])[:_TOOLS_SAY]
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
        text = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])[:_TOOLS_SAY]
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
    """Says in a file how far it is; whoever waits reads that."""

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
        return {"changed": changed, **files.look()}
    if step == "offer":
        files.offer(request["parts"], request["ways"], request["port"], secret, request["limit_s"])
    elif step == "take":
        files.take(request["offered"], request["parts"], request["address"], request["port"], secret)
    else:
        files.withdraw()
    return {"changed": step == "take"}
