# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the facts of a model come from: a file of facts, a folder, the hub's cache, the hub. The I/O is here alone."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system import folders
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import bytes_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import build, document
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError, limit

_ID = re.compile(r"(?!.*(--|\.\.))\w[\w.-]{0,95}/\w[\w.-]{0,95}\Z", re.ASCII)
_NEEDED = "config.json and model.safetensors.index.json"


def find(
    model: str,
    revision: str = "",
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    network: bool = True,
) -> ModelFacts:
    """The facts of a model by its id or path, of the first source that has them.

    `network`: whether the hub is asked.
    """
    if file is not None:
        return document.read(_text(file), str(file))
    environment = os.environ if environment is None else environment
    tried = []
    if is_path(model):
        if not Path(model).is_dir():
            raise FactsError(f"{model} is no folder on this machine. Copy its {_NEEDED} here, or give --facts FILE")
        return build.facts(Folder(Path(model)), model)
    if (cached := _cached(model, revision or "main", environment)) is not None:
        return build.facts(cached, model, cached.root.name)
    tried.append(f"not in the hub's cache ({_cache(environment)})")
    if network:
        try:
            with hub(model, revision, environment) as found:
                return build.facts(found, model, revision)
        except _Unreachable as error:
            tried.append(str(error).rstrip("."))
    raise FactsError(
        f"the files of {model} were not read: {'; '.join(tried)}. Give a folder with its {_NEEDED}, or --facts FILE"
    )


def is_path(model: str) -> bool:
    """A path begins with a slash or a dot; all else is an id of the hub."""
    return model.startswith(("/", "./", "../", "~/"))


class Folder:
    """A folder on this machine. Nothing but plain files inside of `within` is opened."""

    def __init__(self, root: Path, within: Path | None = None) -> None:
        self.root = root.expanduser()
        parents = self.root.absolute().parents  # a snapshot of the hub's cache is links to blobs two levels above
        snapshot = self.root.absolute().parent.name == "snapshots"
        self.within = (within or (parents[1] if snapshot else self.root)).resolve()
        self.source = str(root)

    def names(self) -> frozenset[str]:
        return self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        try:
            found = folders.first_names(str(self.root), folders.MOST_NAMES + 1)
        except OSError as error:
            raise FactsError(f"{self.root} cannot be read: {error.strerror}") from None
        if len(found) > folders.MOST_NAMES:
            raise FactsError(f"{self.root} has more than {folders.MOST_NAMES} files; name the folder of one model")
        return frozenset(found)

    def size(self, name: str) -> int:
        return self._checked(name)[1].st_size

    def part(self, name: str, start: int, length: int) -> bytes:
        path, _status = self._checked(name)
        try:
            with path.open("rb") as file:
                file.seek(start)
                return file.read(length)
        except OSError as error:
            raise FactsError(f"{self.source}/{name} cannot be read: {error.strerror}") from None

    def _checked(self, name: str) -> tuple[Path, os.stat_result]:
        path = self.root / name
        try:
            target = path.resolve(strict=True)
            status = target.stat()
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or "a link that leads to itself"
            raise FactsError(f"{self.source}/{name} cannot be read: {reason}") from None
        if not target.is_relative_to(self.within):
            raise FactsError(
                f"{self.source}/{name} is a link out of the model's folder, to {target}. Put the file there"
            )
        if not stat.S_ISREG(status.st_mode):
            raise FactsError(f"{self.source}/{name} is no plain file")
        return target, status


class _Unreachable(FactsError):
    """The hub did not give an answer."""


@contextlib.contextmanager
def hub(model: str, revision: str, environment: Mapping[str, str]) -> Iterator[Hub]:
    """A repository of the hub. Its library waits for a list without an end, and takes all that comes.

    So all that is read within has one time and one bound of memory. Headers are read in threads, where none can be set.
    """
    try:
        with effort.wait(limit("hub_s")), effort.memory(limit("hub_bytes")):
            yield Hub(model, revision, environment)
    except effort.TooMuch:
        raise _Unreachable(
            f"the hub did not end its answer about {model} within {limit('hub_s')} s and "
            f"{limit('hub_bytes') / 2**20:g} MiB; check the network"
        ) from None


class Hub:
    """A repository of the hub, by the hub's own library: the list of files, and parts of them by range."""

    def __init__(self, model: str, revision: str, environment: Mapping[str, str]) -> None:
        self.source = f"hub:{model}" + (f"@{revision}" if revision else "")
        self.root = f"{model}@{revision}" if revision else model
        if not _ID.match(model):  # the library would refuse it too, with an error of its own
            raise _Unreachable(f"{model!a} is no id of the hub, which is owner/name in letters, digits, '.', '_', '-'")
        if environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
            raise _Unreachable("HF_HUB_OFFLINE is set")
        try:
            from huggingface_hub import HfFileSystem
        except ImportError:
            raise _Unreachable("huggingface_hub is not installed (pip install huggingface_hub)") from None
        endpoint = environment.get("HF_ENDPOINT") or None
        self.files: Any = HfFileSystem(endpoint=endpoint, token=environment.get("HF_TOKEN") or None)
        self.sizes: dict[str, int] = self._asked(self._list)

    def names(self) -> frozenset[str]:
        return frozenset(self.sizes)

    def size(self, name: str) -> int:
        if name not in self.sizes:
            raise FactsError(f"{self.source} has no file {name!a}; see the list of its files at the hub")
        return self.sizes[name]

    def part(self, name: str, start: int, length: int) -> bytes:
        end = min(start + length, self.size(name))
        found: bytes = self._asked(
            lambda: self.files.cat_file(f"{self.root}/{name}", start=start, end=end, cache_type="none")
        )
        return found

    def _list(self) -> dict[str, int]:
        entries = self.files.ls(self.root, detail=True, refresh=True)
        if len(entries) > folders.MOST_NAMES:
            raise FactsError(
                f"{self.source} has more than {folders.MOST_NAMES} files; name the repository of one model"
            )
        sizes: dict[str, int] = {
            entry["name"].rpartition("/")[2]: entry["size"] for entry in entries if entry["type"] == "file"
        }
        if wrong := [name for name, size in sizes.items() if type(size) is not int or not 0 <= size <= limit("number")]:
            raise FactsError(f"{self.source}: {wrong[0][: limit('shown')]!a} has no size, so nothing of it is read")
        return sizes

    def _asked(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except (FactsError, effort.TooMuch, MemoryError):
            raise
        except FileNotFoundError:
            raise _Unreachable(f"the hub has no {self.root}, or asks for a token (HF_TOKEN)") from None
        except Exception as error:  # the library's own errors, those of its HTTP client, and those of the network
            words = str(error).strip().splitlines() or [""]
            raise _Unreachable(
                f"the hub gave no answer about {self.root}: {type(error).__name__} {words[0][: 2 * limit('shown')]}; "
                "check the network"
            ) from None


def _cache(environment: Mapping[str, str]) -> Path:
    if said := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return Path(said).expanduser()
    home = environment.get("HF_HOME") or str(Path(environment.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return Path(home).expanduser() / "hub"


def _cached(model: str, revision: str, environment: Mapping[str, str]) -> Folder | None:
    """The snapshot of this revision, a branch, tag or commit."""
    repository = _cache(environment) / f"models--{model.replace('/', '--')}"
    if "/" in revision or ".." in revision:
        return None
    reference = repository / "refs" / revision
    try:
        commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    except (OSError, ValueError):
        return None
    folder = repository / "snapshots" / commit
    return Folder(folder, repository) if commit.isalnum() and (folder / "config.json").exists() else None


def _text(file: Path) -> bytes:
    try:
        if file.stat().st_size > limit("json_bytes"):
            raise FactsError(f"{file} has more than {limit('json_bytes')} bytes, which is no file of facts")
        return bytes_of(file)
    except OSError as error:
        raise FactsError(f"{file} cannot be read: {error.strerror}") from None
