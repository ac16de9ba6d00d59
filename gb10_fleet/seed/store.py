"""The folder of seeds: what is secret in it, what is known of it, and its end.

Only seeds.json is no secret: `gb10 enrol` knows the hosts by it. The private host keys are in the files of the seeds
and nowhere else.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import bytes_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output, schema

from gb10_fleet.ending import unread
from gb10_fleet.seed.documents import HostKey
from gb10_fleet.seed.settings import NAME, USER, Host

MANIFEST = "seeds.json"
_PLACE = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:%_-]*\Z")
ALL = "all-hosts"  # one stick for many: no host is called so, see refuse()


class NoFolder(Exception):
    """The folder cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class Seed:
    """What is known of a seed without its secrets."""

    name: str
    user: str
    public_key: str
    way: str
    stick: str  # the folder that goes onto the stick
    made: str
    address: str | None = None  # None: DHCP gives one
    port: int = 22
    mac: str | None = None
    serial: str | None = None

    @property
    def blob(self) -> str:
        return self.public_key.split()[1]


class _Manifest(TypedDict):
    seeds: list[Seed]


def make_key() -> HostKey:
    """A new Ed25519 key, in memory alone."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    new = ed25519.Ed25519PrivateKey.generate()
    private = new.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = new.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return HostKey(private.decode(), public.decode())


def seed(host: Host, key: HostKey, way: str, stick: str, now: datetime) -> Seed:
    made = now.isoformat(timespec="seconds")
    return Seed(host.name, host.user, key.public, way, stick, made, host.address, host.port, host.mac, host.serial)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make the folder, and be the only one at work there: of two lists of seeds the last one would stay."""
    _refuse_foreign(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_foreign(folder)  # somebody else may have made it just now
    folder.chmod(0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise NoFolder(f"another gb10 is at work in {folder}; wait until it has ended") from None
    finally:
        os.close(descriptor)


def refuse(folder: Path, names: Sequence[str], *, force: bool, one_stick: bool = False) -> None:
    """Refuse a place where secrets would be published, exchanged or lost."""
    resolved = folder.resolve()
    for above in (resolved, *resolved.parents):
        if (above / ".git").exists():
            raise NoFolder(
                f"{folder} is in the git repository {above}, and seeds hold private keys; name a folder outside, "
                "as in --out ~/seeds"
            )
    if not folder.exists():
        return
    if not folder.is_dir() or (not (folder / MANIFEST).exists() and any(folder.iterdir())):
        raise NoFolder(f"{folder} is there and is no folder of seeds; name another one, or an empty one")
    _refuse_foreign(folder)
    known = _known(folder)
    if one_stick and (kept := sorted(name for name, one in known.items() if one.stick == ALL and name not in names)):
        raise NoFolder(
            f"{folder / ALL} has the seed of {', '.join(kept)}, too, and a new one would not. Name all of its hosts "
            "with --force, or another folder"
        )
    there = sorted(set(names) & known.keys())
    if there and not force:
        raise NoFolder(
            f"{folder} has seeds of {', '.join(there)}; new ones have new host keys, and sticks that are written "
            "already would be worth nothing. Name the other hosts alone, or say --force and write the sticks again"
        )


def _refuse_foreign(folder: Path) -> None:
    """Whoever has a folder on the way can exchange what is below it: a stick, or what is to be overwritten."""
    own, real = os.geteuid(), folder.resolve()
    for at in (*folder.absolute().parents, *real.parents, real):
        if not at.exists():
            continue
        status = at.stat()
        theirs = status.st_uid != own and (status.st_uid != 0 or at == real)
        if theirs or status.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            raise NoFolder(
                f"{at} belongs to another user, or anybody may write there, and could exchange what goes onto a "
                "stick; name another folder"
            )


def read(folder: Path) -> dict[str, Seed]:
    """The seeds that were made there, by host."""
    try:
        said = json.loads(bytes_of(folder / MANIFEST))
        if wrong := schema.problem(said, _Manifest, "seeds"):
            raise ValueError(wrong)
        found = {one["name"]: Seed(**one) for one in said["seeds"]}
        if wrong := next(filter(None, map(_wrong, found.values())), None):
            raise ValueError(wrong)
        return found
    except FileNotFoundError:
        raise NoFolder(f"{folder} has no {MANIFEST}; gb10 seed --out {folder} makes it") from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        text = f"{folder / MANIFEST} cannot be read: {unread(error)}"
        raise NoFolder(f"{text}. Fix: name another folder, or make the seeds anew there") from None


def _known(folder: Path) -> dict[str, Seed]:
    return read(folder) if (folder / MANIFEST).exists() else {}


def _wrong(one: Seed) -> str | None:
    """What speaks against a seed. Whoever hands over a folder may have written it.

    Its words become some of ssh's command line, and `shred` ends all that lies in the folder of a stick.
    """
    if not _PLACE.match(one.address or one.name):
        return f"{one.address or one.name} is no address"
    if not NAME.match(one.name) or one.stick not in (one.name, ALL):
        return f"{one.stick!r} is no stick of {one.name!r}"
    if not USER.match(one.user):
        return f"{one.user!r} is no user"
    if not 0 < one.port < 2**16:
        return f"{one.port} is no port"
    return None if len(one.public_key.split()) == 2 else f"{one.name} has no public key"


def write(
    folder: Path, sticks: Mapping[str, Mapping[str, str]], seeds: Sequence[Seed], label: str | None
) -> list[Path]:
    """Write the list of seeds, then the sticks, each a folder and, with a label, an image. Returns the images.

    The list comes first: what a killed run or a full disk leaves, `shred` finds by it. The folder is there: `alone`.
    """
    known = _known(folder) | {one.name: one for one in seeds}
    listed = json.dumps({"seeds": [asdict(one) for one in known.values()]}, indent=2)
    output.write(folder / MANIFEST, f"{listed}\n", secret=True)
    for stick in _sticks(known) - {one.stick for one in known.values()}:  # a host's stick of another kind
        _clear(folder, stick)
    images = []
    for stick, files in sticks.items():
        _clear(folder, stick)
        for name, text in files.items():
            path = folder / stick / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _private(path, text.encode())
        if label:
            images.append(folder / f"{stick}.iso")
            _private(images[-1], image(files, label))
    return images


def _private(path: Path, content: bytes) -> None:
    """Write a file that nobody else can read, not even for a moment."""
    path.unlink(missing_ok=True)
    with output.created(path, 0o600) as file:
        file.write(content)


def image(files: Mapping[str, str], label: str) -> bytes:
    """An ISO 9660 image with Rock Ridge and Joliet: Linux reads the names as they are."""
    from pycdlib.pycdlib import PyCdlib

    iso = PyCdlib()
    iso.new(interchange_level=3, vol_ident=label, rock_ridge="1.09", joliet=3)
    short: dict[str, str] = {"": ""}
    for number, name in enumerate(sorted(_folders(files))):
        above, _, own = name.rpartition("/")
        short[name] = f"{short[above]}/D{number:05}"
        iso.add_directory(short[name], rr_name=own, joliet_path=f"/{name}")
    for number, (name, text) in enumerate(files.items()):
        above, _, own = name.rpartition("/")
        content = text.encode()
        path = f"{short[above]}/F{number:05}.;1"
        iso.add_fp(io.BytesIO(content), len(content), path, rr_name=own, joliet_path=f"/{name}")
    out = io.BytesIO()
    iso.write_fp(out)
    iso.close()
    return out.getvalue()


def _folders(files: Mapping[str, str]) -> set[str]:
    return {"/".join(parts[:end]) for parts in (name.split("/") for name in files) for end in range(1, len(parts))}


def _sticks(known: Mapping[str, Seed]) -> set[str]:
    """All that these hosts may ever have had there."""
    return {*known, ALL}


def _clear(folder: Path, stick: str) -> None:
    for path in _secrets(folder, [stick]):
        _overwrite(path)
    _remove(folder / stick)


def _secrets(folder: Path, sticks: Sequence[str]) -> Iterator[Path]:
    """Never what a link leads to: it may be anybody's."""
    for stick in sticks:
        own, picture = folder / stick, folder / f"{stick}.iso"
        inside = [] if own.is_symlink() else sorted(own.rglob("*"))
        yield from (path for path in (*inside, picture) if path.is_file() and not path.is_symlink())


def _remove(own: Path) -> None:
    if own.is_symlink():
        own.unlink()
    else:
        shutil.rmtree(own, ignore_errors=True)


def shred(folder: Path) -> int:
    """Overwrite and remove all secrets; seeds.json stays, for `gb10 enrol`. Returns how many files there were."""
    sticks = sorted(_sticks(read(folder)))
    found = list(_secrets(folder, sticks))
    for path in found:
        _overwrite(path)
    for stick in sticks:
        _remove(folder / stick)
    return len(found)


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(os.urandom(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()


def as_dict(one: Seed) -> dict[str, Any]:
    return asdict(one)
