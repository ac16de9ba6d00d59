"""The fleet's own list of releases that are known to be bad: a file beside the journal, with a signature.

ssh-keygen verifies it: the controller has it wherever Ansible reaches a host, operators have SSH keys already, and a
verification needs two files and no keyring.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import bytes_of, document_in
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable, write
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import boards
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.rehearsal import DOWNGRADE

from gb10_fleet import release_plan

NAMESPACE = "gb10-known-bad"  # what the signature is for: one of a commit or of a mail is none of this file
FILE = "known_bad.yml"
_DEADLINE_S = 30
_REMEMBERED = 1000  # lists of a fleet


class Entry(TypedDict):
    id: str
    release: str
    boards: list[str]
    symptom: str
    source: str
    date: str
    confidence: str


class File(TypedDict):
    known_bad: list[Entry]


class NotTrusted(Exception):
    """The file cannot be used; the text says why, and the way out."""


def signers() -> Path:
    """Whom the operator trusts. It lies apart from the file, which may come with a checkout."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder, "gb10", "allowed_signers")


def added(known: Mapping[str, Any], folder: Path, trusted: Path | None = None) -> dict[str, Any]:
    """catalog/releases.yml with the entries of the fleet's own file, if there is one."""
    file = folder / FILE
    trusted = trusted or signers()
    if not os.path.lexists(file):  # of a link that leads nowhere the read says so; a list is never off in silence
        if os.path.lexists(f"{file}.sig"):
            raise NotTrusted(f"{file} is gone, and its signature is there: bring it back, or remove {file}.sig")
        if trusted.exists():
            way = f"remove {trusted} where nobody signs one"
            print(printable(f"{file} is not there, so only the catalog's list counts; {way}"), file=sys.stderr)
        return dict(known)
    return {**known, "known_bad": [*known["known_bad"], *_entries(file, trusted)]}


def _entries(file: Path, trusted: Path) -> list[dict[str, Any]]:
    try:
        content = bytes_of(file)
    except OSError as error:
        raise NotTrusted(f"{file} cannot be read: {error.strerror}") from None
    _verify(file, content, trusted)
    _refuse_older(file, content, Path(f"{trusted}.seen"))
    try:
        found = yaml.load(content, Loader=_Loader)  # noqa: S506 - it makes texts, and a date stays one
    except (yaml.YAMLError, ValueError) as error:
        raise NotTrusted(f"{file} is no YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise NotTrusted(f"{file} is no YAML that can be read: it is nested too deeply") from None
    if (problem := schema.problem(found, File, "the file")) is not None:
        raise NotTrusted(f"{file}: {problem}; docs/releases.md shows an entry")
    entries: list[dict[str, Any]] = found["known_bad"]
    for entry in entries:
        if problem := _never_fits(entry):
            raise NotTrusted(f"{file}: {entry['id']}: {problem}")
    return [{**entry, "release": release_plan.asked(entry["release"])["to"]} for entry in entries]


class _Loader(yaml.BaseLoader):
    """Of two keys of one name YAML keeps the last, and half of a list would be off in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice} is there twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _never_fits(entry: Mapping[str, Any]) -> str:
    """Return why an entry would hold no host, although somebody took the trouble to sign it; empty where it may."""
    if entry["release"] == release_plan.NEWEST:
        return f"name the release: {release_plan.NEWEST} is another one next month"
    if problem := release_plan.unknown(entry["release"]):
        return problem
    wrong = [board for board in entry["boards"] if not boards.known(board)]
    return f"no board is known as {wrong[0]!r}: docs/releases.md has the makers; [] is all boards" if wrong else ""


def _verify(file: Path, content: bytes, trusted: Path) -> None:
    """Verify what was read: nobody exchanges the file in between."""
    signature = Path(f"{file}.sig")
    way_out = f"sign it: ssh-keygen -Y sign -f KEY -n {NAMESPACE} {file}"
    if not signature.is_file():
        raise NotTrusted(f"{file} has no signature; {way_out}")
    if not trusted.is_file():
        raise NotTrusted(
            f"{trusted} is not there: it names the keys that may sign {file.name}; docs/releases.md says how"
        )
    try:
        signed = bytes_of(signature)
    except OSError as error:
        raise NotTrusted(f"{signature} cannot be read: {error.strerror}") from None
    with tempfile.TemporaryDirectory(prefix="gb10-") as private:
        copy = Path(private, "signature")
        copy.write_bytes(signed)
        if any(_verifies(lines, copy, content) for lines in _signers(trusted, Path(private))):
            return
        # The same question without the signer: whether file and signature belong together.
        whole = _keygen(["check-novalidate", "-n", NAMESPACE, "-s", str(copy)], content).returncode == 0
    if whole:
        why = f"{trusted} does not name its signer for {NAMESPACE}, or not for today"
    else:
        why = f"it was changed after it was signed, or signed for something else than {NAMESPACE}"
    raise NotTrusted(f"the signature of {file} is not good: {why}; {way_out}")


def _refuse_older(file: Path, content: bytes, memory: Path) -> None:
    """A signature has no time: each list that was ever signed could be put back, and what came later be off in silence.

    `memory` lies where the list of signers does: by file the digests of its lists that were seen, the newest last.
    """
    seen = document_in(memory)
    mine, digest = seen.get(str(file)), hashlib.sha256(content).hexdigest()
    mine = mine if isinstance(mine, list) else []
    if digest in mine[:-1]:
        raise NotTrusted(
            f"{file} is an older list, which a newer one has replaced here: bring back the newest, or, where it is "
            "meant, sign it with another text (a comment will do)"
        )
    if digest not in mine:
        with contextlib.suppress(OSError):  # whose configuration cannot be written remembers none
            text = json.dumps({**seen, str(file): [*mine, digest][-_REMEMBERED:]}, indent=1)
            write(memory, f"{text}\n", secret=True)


def _signers(trusted: Path, private: Path) -> Iterator[Path]:
    """The list as a whole, then each line of it alone: ssh-keygen names only the first line that has the key, and that
    one may allow it for other things than this."""
    yield trusted
    try:
        lines = trusted.read_bytes().split(b"\n")  # as ssh-keygen: any other end of line is part of a comment
    except OSError as error:
        raise NotTrusted(f"{trusted} cannot be read: {error.strerror}") from None
    alone = private / "signer"
    for line in lines:
        alone.write_bytes(line + b"\n")
        yield alone


def _verifies(lines: Path, signature: Path, content: bytes) -> bool:
    who = _keygen(["find-principals", "-f", str(lines), "-s", str(signature)], b"")
    names = who.stdout.decode(errors="replace").splitlines() if who.returncode == 0 else []
    words = ["-n", NAMESPACE, "-s", str(signature)]
    return any(_keygen(["verify", "-f", str(lines), "-I", name, *words], content).returncode == 0 for name in names)


def _keygen(words: Sequence[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", *words], input=stdin, capture_output=True, timeout=_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotTrusted(f"ssh-keygen cannot verify the signature: {error}") from None


def unknown(accepted: Iterable[str], known: Iterable[Mapping[str, Any]]) -> str | None:
    """Return which of these ids is none of a known trouble, with those that there are."""
    ids = [*(row["id"] for row in known), DOWNGRADE]
    wrong = next((id_ for id_ in accepted if id_ not in ids), None)
    return wrong and f"--accept {wrong}: no such trouble is known: {', '.join(ids) or 'none'}"


def of_rollout(folder: Path, accept: Sequence[str]) -> dict[str, Any]:
    """The fleet's own list, and what is accepted of all lists, as a rollout takes them."""
    words = [word.partition("=") for word in accept]
    if bad := [name for name, _, reason in words if not name or not reason.strip()]:
        raise NotTrusted(f"--accept {bad[0]}: write ID=REASON")
    entries = added({"known_bad": []}, folder)["known_bad"]
    return {"known_bad": entries, "accept": {name: reason for name, _, reason in words}}
