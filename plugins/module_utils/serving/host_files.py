# SPDX-License-Identifier: GPL-3.0-or-later
"""The image and the files of a model, on the host: they come once from outside, and then from host to host.

The image's own Hugging Face library lists and downloads a model. A file of it is a blob, named by its checksum, and a
link that gives it its path. Between hosts only blobs travel, so no name that a peer says becomes a path; the links are
made here. They arrive where only root gets in, and are moved to the cache when they have the checksum that is their
name; then the marker is written. An image is loaded if its archive is the one that the giver has told the controller,
and nothing else that is in it.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.serving import listening
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_tools import (
    HUB,
    TELL_S,
    Command,
    bytes_of,
    command,
    counted,
)
from ansible_collections.gb10.fleet.plugins.module_utils.serving.image_identity import (
    configuration,
    fingerprint,
    its_own,
)
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import (
    CHUNK,
    Tell,
    borrow,
    closed,
    lacking,
    lend,
    link,
    marker_of,
    name_of,
    need_room,
    on_the_disk_of,
    opened,
    private_folder,
    settle,
    size_in,
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
    FilesError,
    hub_verdict,
    last_words,
    rsync_verdict,
)

STATE = Path("/var/cache/gb10-files")  # markers, and an image on its way; no container sees it
RUN = Path("/run/gb10-fleet/files")  # progress, lock, and what a daemon is told
DOCKER = Path("/var/lib/docker")
CONTAINER = "gb10-files"  # of the download
UNIT = "gb10-files"
TRIES = 2  # a wrong blob is removed and fetched once more
POLL_S = 0.2
CALLS = 10  # of a client whose peer does not listen yet
NOBODY_LISTENS = 10  # exit code of rsync
LISTENS_WITHIN_S = 10.0  # a daemon that was started
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Files:
    """Image and model of one host. `run` starts commands; the folders are the real ones, except in tests."""

    def __init__(self, said: Mapping[str, Any], tell: Tell, run: Command | None = None, *, state: Path = STATE) -> None:
        self.image: str = said["image"]
        self.name: str = said["name"]
        self.model: str = said["model"]
        self.revision: str = said["revision"]
        self.exclude: list[str] = said["exclude"]
        self.cache = Path(said["cache"])
        self.source: str = said.get("source", "")  # somebody's own cache of the hub, which is read alone
        self.fetch: bool = said["fetch"]
        self.environment: Mapping[str, str] = said["environment"]
        self.folder = self.cache / name_of(self.model)
        self.state = state
        self.tell = tell
        self.run = run or command
        self.listens = listening.listens
        self.load: Callable[[Path, str], None] | None = None  # gives Docker the image of an archive, under a name
        self.part = "model"
        self.beside: dict[str, str] = {}  # folders that are offered besides, by the names of their modules
        self.draft: Files | None = None
        if said.get("draft"):  # the second model of speculative decoding: fetched, proven and carried like the first
            self.draft = Files({**said, **said["draft"], "draft": None}, tell, run, state=state)
            self.draft.part = "draft"
        self.loras: list[Files] = []  # adapters, each like a model of its own
        for number, each in enumerate(said.get("loras", ())):
            self.loras.append(
                Files({**said, **each, "exclude": [], "draft": None, "loras": []}, tell, run, state=state)
            )
            self.loras[-1].part = f"lora-{number}"

    @property
    def marker(self) -> Path:
        return self.state / marker_of(self.model, self.revision, self.exclude)

    @property
    def stage(self) -> Path:
        """Where the files of models arrive."""
        return on_the_disk_of(self.cache, self.state)

    @contextlib.contextmanager
    def blobs(self, *, make: bool = False) -> Iterator[int]:
        """Those of the model in the cache."""
        with opened(self.cache, f"{name_of(self.model)}/blobs", make=make) as descriptor:
            yield descriptor

    @contextlib.contextmanager
    def arriving(self) -> Iterator[int]:
        """Where blobs of the model arrive. What other models left half goes, and all of it when this one is whole."""
        private_folder(self.stage)
        for other in (self.stage / name_of("")).parent.glob("models--*"):
            if other.name != self.folder.name:
                shutil.rmtree(other)
        with opened(self.stage, f"{name_of(self.model)}/blobs", make=True) as descriptor:
            yield descriptor
        shutil.rmtree(self.stage / "huggingface")

    # -- what is there

    def inspect(self, name: str) -> dict[str, Any] | None:
        done = self.run(["docker", "image", "inspect", name])
        return json.loads(done.stdout)[0] if done.returncode == 0 else None

    def read(self) -> dict[str, Any]:
        """What this host has. `pull`: neither under our name nor under its own."""
        image = its_own(self.inspect(self.name), self.image)
        said: dict[str, Any] = {
            "image": None,
            **self.held(),
            "pull": image is None and self.inspect(self.image) is None,
        }
        if image is not None:
            said["image"] = {
                "fingerprint": fingerprint(image),
                "bytes": image["Size"],
                "pinned": self.is_pinned(image),
                "configuration": configuration(image),
            }
        if self.draft:
            said["draft"], said["draft_pin"] = self.draft.held().values()
        if self.loras:
            said["loras"] = [each.held() for each in self.loras]
        return said

    def held(self) -> dict[str, Any]:
        """The model, where it is whole, and the commit that it was when it was fetched first."""
        said: dict[str, Any] = {"model": None, "pin": None}
        with contextlib.suppress(OSError, ValueError, FilesError):
            marked = json.loads(self.marker.read_text(encoding="utf-8"))
            model = parse_model(marked)
            said["pin"] = model.commit
            with self.blobs() as blobs:
                whole = marked.get("exclude") == self.exclude and not lacking(blobs, model)
            whole = whole and not closed(self.cache, self.model)
            said["model"] = model.as_dict() if whole else None
        return said

    # -- from outside

    def is_pinned(self, image: Mapping[str, Any]) -> bool:
        """Return whether the image's own name is the digest of the inventory; only containerd's store names it so."""
        __, __, digest = self.image.partition("@")
        return bool(digest) and digest in (image.get("Id"), (image.get("Descriptor") or {}).get("digest"))

    def proves(self, image: Mapping[str, Any], offered: Mapping[str, Any]) -> bool:
        """Return whether this host sees that its image is the one that the first host has pulled by the digest."""
        told, own = offered.get("configuration"), configuration(image)
        return (told == own or not told or not own) and (self.is_pinned(image) or not offered.get("pinned"))

    def download(self, token: str, pin: str | None = None, move: bool = False) -> bool:
        """Name the image that is there, and get the model from the hub. Whether anything changed."""
        changed = self.inspect(self.name) is None
        if changed:
            self.ask(["docker", "tag", self.image, self.name])
        return self.fetch_model(token, pin, move) or changed

    def fetch_model(self, token: str, pin: str | None, move: bool) -> bool:
        """A branch is asked for its commit once. `pin` is what it was then; with `move` it is asked again."""
        there = self.held()
        if not self.fetch or (there["model"] is not None and not move):
            return False
        known = {**self.environment, **({"HF_TOKEN": token} if token else {})}
        with self.private("token.env", "".join(f"{name}={value}\n" for name, value in known.items())) as env:
            asked = self.revision if move else there["pin"] or pin or self.revision
            model = wanted(self.hub(env, step="list", revision=asked), self.model, self.revision, self.exclude)
            if there["model"] == model.as_dict():
                return False
            self.get(env, model)
        return True

    def get(self, env: Path, model: Model) -> None:
        self.room_for(model)
        with self.blobs(make=True) as blobs, self.arriving() as arriving:
            missing = list(lacking(blobs, model))
            if self.source and borrow(self.source, model, missing, arriving, self.tell):
                missing = settle(arriving, blobs, model, self.tell)
                if not missing:
                    return self.complete(model)
            for __ in range(TRIES):
                paths = [glob.escape(file.path) for file in model.files if file.hash in missing]
                if paths:
                    self.hub(env, step="get", revision=model.commit, paths=paths, size=model.size)
                missing = settle(arriving, blobs, model, self.tell)
                if not missing:
                    return self.complete(model)
        raise self.checksum_wrong(model, missing, "the hub")

    def room_for(self, model: Model) -> None:
        """Before the first byte, and before any folder is made."""
        missing = model.blobs
        with contextlib.suppress(FileNotFoundError), self.blobs() as blobs:
            missing = lacking(blobs, model)
        with contextlib.suppress(FileNotFoundError), opened(self.stage, f"{name_of(self.model)}/blobs") as arriving:
            missing = {name: max(0, size - (size_in(arriving, name) or 0)) for name, size in missing.items()}
        way_out = "free some space, or set vllm_cache_directory to another disk"
        need_room(self.cache, sum(missing.values()), f"{self.model}, as far as it is missing,", way_out)

    def hub(self, env: Path, *, size: int = 0, **asked: Any) -> dict[str, Any]:
        """One question to the hub's library in the image; `size`: of what it downloads meanwhile."""
        self.run(["docker", "rm", "--force", "--volumes", CONTAINER])  # of a run that was killed
        argv = [
            *("docker", "run", "--rm", "--name", CONTAINER, "--pull", "never", "--network", "host"),
            # An image may name a user, and a login of the host with that number reads the environment, with the token.
            *("--user", "0:0", "--security-opt", "no-new-privileges", "--cap-drop", "ALL"),
            *("--env-file", str(env), "--volume", f"{self.stage}:/root/.cache", "--entrypoint", "python3", self.name),
            *("-c", HUB, json.dumps({"model": self.model, **asked})),
        ]
        try:
            done = self.run(argv, watch=counted(self.tell, self.part, "the hub", self.arrived, size))
        except FilesError:
            self.run(["docker", "rm", "--force", "--volumes", CONTAINER])
            shutil.rmtree(self.stage / "huggingface", ignore_errors=True)
            raise
        try:
            said: Any = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            text = last_words(done.stderr)
            raise FilesError("no_tool", f"the image did not run its Python ({text})", "see `docker info`")
        if "error" in said:
            raise hub_verdict(said["error"], self.model)
        return said

    def arrived(self) -> int:
        """Bytes on the disk, of half a file too."""
        blobs = self.stage / name_of(self.model) / "blobs"
        with contextlib.suppress(OSError):
            return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in os.scandir(blobs))
        return 0

    def checksum_wrong(self, model: Model, wrong: Sequence[str], source: str) -> FilesError:
        named = [blob.path for blob in model.files if blob.hash in wrong]
        some = f"{', '.join(named[:3])} ({len(named)} of {len(model.files)} files)"
        text = f"of {self.model}, {some} came wrong from {source} {TRIES} times"
        return FilesError(
            "checksum_wrong", text, "see that disk and memory are sound (`journalctl -k`), then run again"
        )

    def complete(self, model: Model) -> None:
        link(self.cache, model)
        shut = closed(self.cache, self.model)
        if shut:
            way_out = f"`chmod go+rx {shut}`, then run again"
            raise FilesError(
                "unreadable", f"{shut} is closed to the service's container, which has no power over files", way_out
            )
        private_folder(self.state)
        write(self.marker, json.dumps({**model.as_dict(), "exclude": self.exclude}))

    # -- to others

    def offer(
        self, parts: Sequence[str], ways: Sequence[Mapping[str, str]], port: int, password: str, limit_s: int
    ) -> dict[str, Any]:
        """Open what peers lack to them alone, for `limit_s` at most. `ways`: `at` our address, `to` the peer's.

        Of an image returns `archive`, what its archive is: that reaches the peers through the controller.
        """
        self.withdraw()
        modules, said = dict(self.beside), {}
        if "image" in parts:
            modules["image"] = str(self.archives)
            said["archive"] = self.save()
        if "model" in parts:
            modules["model"] = str(self.shown())
        if "draft" in parts and self.draft:
            modules["draft"] = str(self.draft.shown())
        modules |= {each.part: str(each.shown()) for each in self.loras if each.part in parts}
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
            self.prove(f"{UNIT}-{number}.service", address, port)
        return said

    def prove(self, unit: str, address: str, port: int) -> None:
        """The daemon itself must hold the port: systemd calls it started before that, and any user can be first."""
        end = time.monotonic() + LISTENS_WITHIN_S
        while time.monotonic() < end:
            shown = self.ask(["systemctl", "show", "--property=MainPID", "--value", unit]).strip()
            if shown.isdigit() and shown != "0" and self.listens(int(shown), address, port):
                return
            time.sleep(POLL_S)
        self.withdraw()
        way_out = f"`ss -ltnp 'sport = :{port}'` names who does; end that, or set another vllm_transfer_port"
        raise FilesError("port_taken", f"our rsync does not hold TCP port {port} at {address}", way_out)

    def shown(self) -> Path:
        """The model's blobs where root alone gets in: whoever owns the cache could lead the daemon elsewhere."""
        name = "offered" if self.part == "model" else f"offered-{self.part}"
        path = private_folder(private_folder(self.stage) / name)
        model = parse_model(json.loads(self.marker.read_text(encoding="utf-8")))
        with opened(self.stage, name) as offered, self.blobs() as blobs:
            lend(blobs, model.blobs, offered)
        return path

    def withdraw(self) -> None:
        """Nothing is open and nothing is left; also of a run that was killed."""
        self.run(["systemctl", "stop", f"{UNIT}-*.service"])
        for path in (*RUN.glob("rsyncd-*"), RUN / "secrets", *self.archives.glob("*.tar")):
            path.unlink(missing_ok=True)
        for shown in ("offered", "offered-draft", *(f"offered-{each.part}" for each in self.loras)):
            shutil.rmtree(self.stage / shown, ignore_errors=True)

    @property
    def archives(self) -> Path:
        return self.state / "images"

    def archive(self, mark: str) -> Path:
        return self.archives / f"{mark[:12]}.tar"

    def save(self) -> dict[str, Any]:
        """Write the image's archive, and say what it is."""
        image = self.inspect(self.name)
        if image is None:
            raise FilesError("no_image", f"{self.name} is gone", "run again")
        size = image["Size"]
        private_folder(private_folder(self.state) / self.archives.name)
        need_room(self.state, size, f"a copy of {self.image}", "free some space there; it is removed afterwards")
        path = self.archive(fingerprint(image))
        argv = ["docker", "save", "--output", str(path), self.name]
        self.ask(argv, watch=lambda: self.tell("saving the image", bytes_of(path), size))
        return {"bytes": bytes_of(path), "sha256": self.sum_of(path)}

    def sum_of(self, path: Path) -> str:
        total, done, size = hashlib.sha256(), 0, bytes_of(path)
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                total.update(chunk)
                done += len(chunk)
                self.tell("checking the image", done, size)
        return total.hexdigest()

    # -- from a peer

    def take(self, given: Mapping[str, Any], parts: Sequence[str], address: str, port: int, password: str) -> None:
        with self.private("password", f"{password}\n") as secret:
            peer = Peer(address, port, secret)
            if "image" in parts:
                self.take_image(given["image"], given["archive"], peer)
            if "model" in parts:
                self.take_model(parse_model(given["model"]), peer)
            if "draft" in parts and self.draft:
                self.draft.take_model(parse_model(given["draft"]), peer)
            for number, each in enumerate(self.loras):
                if each.part in parts:
                    each.take_model(parse_model(given["loras"][number]["model"]), peer)

    def take_image(self, offered: Mapping[str, Any], archive: Mapping[str, Any], peer: Peer) -> None:
        """`archive`: what it is, as the giver said to the controller, and not on the wire."""
        mark, size = str(offered["fingerprint"]), int(archive["bytes"])
        if not _SHA256.match(mark) or not _SHA256.match(str(archive["sha256"])):
            raise ValueError("this is no fingerprint of an image")
        private_folder(private_folder(self.state) / self.archives.name)
        path = self.archive(mark)
        for other in self.archives.glob("*.tar"):  # half of an image that nobody wants any more
            if other != path:
                other.unlink()
        way_out = "free some space there"
        # As a copy and unpacked; where both are on one disk, both at once.
        one_disk = DOCKER.exists() and self.state.stat().st_dev == DOCKER.stat().st_dev
        need_room(self.state, size * (1 + one_disk) - bytes_of(path), self.image, way_out)
        need_room(DOCKER, size, f"{self.image}, unpacked,", way_out)
        self.tell(f"image from {peer.address}", 0, size)
        for __ in range(TRIES):
            self.copy(peer, "image", [path.name], self.archives, lambda: bytes_of(path), size)
            if self.sum_of(path) == archive["sha256"]:
                break
            path.unlink()
        else:
            text = f"the archive of {self.image} that came from {peer.address} is not the one that its host has made"
            way_out = f"see there who holds TCP port {peer.port} (`ss -ltnp`), then run again"
            raise FilesError("archive_differs", text, way_out)
        self.tell("loading the image", 0, 0)
        if self.load:
            self.load(path, self.name)
        path.unlink()
        image = self.inspect(self.name)
        if image is None or fingerprint(image) != mark or not self.proves(image, offered):
            self.run(["docker", "image", "rm", self.name])
            text = f"{self.name} is not what {peer.address} has"
            raise FilesError("image_differs", text, "see that both hosts run the same Docker, then run again")

    def take_model(self, model: Model, peer: Peer) -> None:
        self.room_for(model)
        with self.blobs(make=True) as blobs, self.arriving() as arriving:
            missing = list(lacking(blobs, model))
            target = self.stage / name_of(self.model) / "blobs"
            for __ in range(TRIES):
                for name in missing:  # what is longer, or no file, rsync would leave as it is
                    if (size_in(arriving, name) or 0) > model.blobs[name]:
                        (target / name).unlink()
                self.copy(peer, self.part, sorted(missing), target, self.arrived, model.size)
                missing = settle(arriving, blobs, model, self.tell)
                if not missing:
                    return self.complete(model)
        raise self.checksum_wrong(model, missing, peer.address)

    def copy(
        self, peer: Peer, module: str, names: Sequence[str], target: Path, arrived: Callable[[], int], size: int
    ) -> None:
        if not names:
            return
        for __ in range(CALLS):
            watch, lines = counted(self.tell, module, peer.address, arrived, size), "\n".join([*names, ""])
            try:
                done = self.run(client_argv(peer, module, target), input=lines, watch=watch)
            except FilesError:
                for name in names:
                    (target / name).unlink(missing_ok=True)
                raise
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
        text = last_words(done.stderr or done.stdout)
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
