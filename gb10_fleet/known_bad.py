"""The fleet's own list of releases that are known to be bad: a file beside the journal, with a signature.

ssh-keygen verifies it: the controller has it wherever Ansible reaches a host, operators have SSH keys already, and a
verification needs two files and no keyring.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import facts_schema

NAMESPACE = "gb10-known-bad"  # what the signature is for: one of a commit or of a mail is none of this file
FILE = "known_bad.yml"
_DEADLINE_S = 30


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
    if not file.exists():
        return dict(known)
    return {**known, "known_bad": [*known["known_bad"], *_entries(file, trusted or signers())]}


def _entries(file: Path, trusted: Path) -> list[dict[str, Any]]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise NotTrusted(f"{file} cannot be read: {error.strerror}") from None
    _verify(file, content, trusted)
    try:
        found = yaml.load(content, Loader=yaml.BaseLoader)  # noqa: S506 - it makes texts, and a date stays one
    except yaml.YAMLError as error:
        raise NotTrusted(f"{file} is no YAML: {' '.join(str(error).split())}") from None
    if (problem := facts_schema.differs(found, File, "the file")) is not None:
        raise NotTrusted(f"{file}: {problem}; docs/releases.md shows an entry")
    entries: list[dict[str, Any]] = found["known_bad"]
    return entries


def _verify(file: Path, content: bytes, trusted: Path) -> None:
    """What was read is what is verified: nobody exchanges the file in between."""
    signature = Path(f"{file}.sig")
    way_out = f"sign it: ssh-keygen -Y sign -f KEY -n {NAMESPACE} {file}"
    if not signature.is_file():
        raise NotTrusted(f"{file} has no signature; {way_out}")
    if not trusted.is_file():
        raise NotTrusted(
            f"{trusted} is not there: it names the keys that may sign {file.name}; docs/releases.md says how"
        )
    try:
        signed = signature.read_bytes()
    except OSError as error:
        raise NotTrusted(f"{signature} cannot be read: {error.strerror}") from None
    with tempfile.TemporaryDirectory(prefix="gb10-") as private:
        copy = Path(private, "signature")
        copy.write_bytes(signed)
        who = _keygen(["find-principals", "-f", str(trusted), "-s", str(copy)], b"")
        names = (who.stdout.decode(errors="replace").splitlines() or [""]) if who.returncode == 0 else [""]
        words = ["verify", "-f", str(trusted), "-I", names[0], "-n", NAMESPACE, "-s", str(copy)]
        if names[0] and _keygen(words, content).returncode == 0:
            return
    why = "it was changed after it was signed" if names[0] else f"{trusted} does not name its signer"
    raise NotTrusted(f"the signature of {file} is not good: {why}; {way_out}")


def _keygen(words: Sequence[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", *words], input=stdin, capture_output=True, timeout=_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotTrusted(f"ssh-keygen cannot verify the signature: {error}") from None


def unknown(accepted: Iterable[str], known: Iterable[Mapping[str, Any]]) -> str | None:
    """Which of these ids is none of a known trouble, with those that there are."""
    ids = [row["id"] for row in known]
    wrong = next((id_ for id_ in accepted if id_ not in ids), None)
    return wrong and f"--accept {wrong}: no such trouble is known: {', '.join(ids) or 'none'}"


def of_rollout(folder: Path, accept: Sequence[str]) -> dict[str, Any]:
    """The fleet's own list, and what is accepted of all lists, as a rollout takes them."""
    words = [word.partition("=") for word in accept]
    if bad := [name for name, _, reason in words if not name or not reason.strip()]:
        raise NotTrusted(f"--accept {bad[0]}: write ID=REASON")
    own = added({"known_bad": []}, folder)["known_bad"]
    return {"known_bad": own, "accept": {name: reason for name, _, reason in words}}
