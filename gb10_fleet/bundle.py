"""What `gb10 bundle` packs: readings, versions, decisions and logs, without what tells whose hosts these are."""

from __future__ import annotations

import getpass
import io
import json
import platform
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import counted, created
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.disguise import Disguise

from gb10_fleet import __version__, why
from gb10_fleet.home import document_here

READ, NAMES, EXPLAINED = "gb10.fleet.spark_facts", "names", "explained"
LOGS = {"units": "the last 400 lines of our units", "kernel": "the last 200 lines of the kernel that warn"}
ASKS = {READ: "health", NAMES: "msg", EXPLAINED: "roles", **dict.fromkeys(LOGS, "stdout")}
CONTENTS = "CONTENTS.txt"
LONGEST_S = 300
MOST = 4 * 1024 * 1024  # bytes of one file; the end of a longer one is left out
MOST_OF_ALL = 64 * 1024 * 1024
_DAYS = 14.0


class Part(NamedTuple):
    """One file: of which host, its name, what it is, and its text before anything is replaced."""

    host: str
    name: str
    what: str
    content: Any

    @property
    def path(self) -> str:
        return f"{self.host}/{self.name}" if self.host else self.name


def names_of(answers: Mapping[str, Mapping[str, Any]], asked: Sequence[str], more: Sequence[str]) -> Disguise:
    """The disguise of these hosts. `more`: names of this machine: its user, its folders."""
    said: dict[str, list[str]] = {}
    for result in answers[NAMES].values():
        said = json.loads(result["msg"])
    facts = [result.get("ansible_facts", {}).get("gb10_spark", {}) for result in answers[READ].values()]
    hosts = dict.fromkeys([*asked, *said.get("host", ()), *(str(each.get("hostname") or "") for each in facts)])
    # What reaches a host may be a name; an address is known by its form.
    reach = [name for name in said.get("reach", ()) if name and not name[0].isdigit() and ":" not in name]
    return Disguise(
        {
            "inventory": [name for name in more if len(name) > 1],
            "host": [*hosts, *reach],
            "domain": [_domain(name) for name in (*hosts, *reach)],
            "cluster": said.get("cluster", ()),
            "client": said.get("client", ()),
            "user": [name for name in said.get("user", ()) if name != "root"],
        }
    )


def _domain(host: str) -> str:
    """Return what stands behind the name of a host; nothing behind an address, or where it is one word."""
    domain = host.partition(".")[2]
    return domain if "." in domain and domain.rpartition(".")[2].isalpha() else ""


def of_this_machine(inventories: Sequence[str]) -> list[str]:
    """Names that stand in the origins of settings: the folders of this machine, and who works here."""
    return [*(str(Path(name).resolve()) for name in inventories if "," not in name), str(Path.cwd()), getpass.getuser()]


def parts(answers: Mapping[str, Mapping[str, Any]], evidence: Path) -> Iterator[Part]:
    """Yield all files, host by host; the proof comes last."""
    lost: dict[str, list[str]] = {}
    found = why.answers({READ: answers[READ], "kept": {}}, _DAYS, lost)
    for host, texts in lost.items():
        yield Part(host, "why.txt", "why there are no findings", "\n".join(texts))
    for answer in found:
        said = answers[READ][answer.host]
        yield Part(answer.host, "why.txt", "findings, causes and what happened", "\n".join(why.lines(answer)))
        yield Part(answer.host, "why.json", "the same for programs, with what could not be read", answer.as_dict())
        yield Part(answer.host, "facts.json", "versions, disks, rails, packages", said["ansible_facts"]["gb10_spark"])
        for name in ("health", "services", "coherence"):
            yield Part(answer.host, f"{name}.json", f"the reading, section {name}", said.get(name))
        if explained := answers[EXPLAINED].get(answer.host):
            yield Part(answer.host, "explained.json", "settings, plans and resources", explained["roles"])
        for name, what in LOGS.items():
            if log := answers[name].get(answer.host):
                # A host may say anything in its place, also without an end; what follows works on all of it.
                yield Part(answer.host, f"{name}.log", what, _text(log["stdout"]))
    if proof := document_here(evidence):
        yield Part("", "evidence.json", "the last proof", proof)


def holes(
    answers: Mapping[str, Mapping[str, Any]], asked: Sequence[str], messages: Mapping[str, Sequence[str]], cut: bool
) -> Iterator[str]:
    """Yield what is not in it, and why: a bundle with holes is no clean one."""
    for host in dict.fromkeys([*asked, *messages]):
        if host not in answers[READ]:
            yield f"{host}: nothing: {'; '.join(messages.get(host, ())) or 'it gave no answer'}"
            continue
        for path, reason in answers[READ][host]["health"]["unknown"].items():
            yield f"{host}: {path}: {reason}"
        for name in (EXPLAINED, *LOGS):
            result = answers[name].get(host)
            if result is None or result.get("rc"):
                yield f"{host}: {name}: {(result or {}).get('stderr') or 'it was not read'}"
    if cut:
        yield f"the run did not come to its end within {LONGEST_S} s"


def _text(said: Any) -> str:
    return said[: MOST + 1] if isinstance(said, str) else "no text"


def _raw(text: str) -> bytes:
    """JSON of a host may have half of a pair of UTF-16, which no file takes."""
    return text.encode(errors="backslashreplace")


def pack(disguise: Disguise, found: Iterable[Part], missing: Iterable[str], out: Path) -> list[str]:
    """Write the bundle, for its owner alone to read; return the list of what is in it."""
    files: list[tuple[str, str, bytes]] = []
    lacks, size = list(missing), 0
    for part in found:
        content = disguise.value(part.content)
        text = content if isinstance(content, str) else json.dumps(content, indent=1, ensure_ascii=False)
        raw = _raw(text)
        if len(raw) > MOST or size + min(len(raw), MOST) > MOST_OF_ALL:
            lacks.append(f"{part.path}: the end, beyond {MOST} bytes" if len(raw) > MOST else f"{part.path}: no room")
            raw = raw[:MOST] if size + MOST <= MOST_OF_ALL else b""
        size += len(raw)
        files.append((disguise.text(part.path), part.what, raw))
    listed = [f"{len(raw):>9}  {name}: {what}" for name, what, raw in files]
    text = "\n".join([*_head(), "", *listed, "", "Not in it:", *(disguise.text(line) for line in lacks or ["nothing"])])
    made = [(CONTENTS, _raw(text)), *((name, raw) for name, _, raw in files)]
    with created(out, 0o600) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, raw in made:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(raw), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(raw))
    return text.splitlines()


def said(out: Path, listed: Sequence[str], disguise: Disguise) -> Iterator[str]:
    """Yield what the owner reads: the list, who is who, and how to look into it before it goes anywhere."""
    yield from listed
    yield ""
    hosts = {what: word for (kind, what), word in disguise.known.items() if kind == "host"}
    yield "Only here, and not in it: " + ", ".join(f"{word} is {what}" for what, word in hosts.items())
    kinds: dict[str, int] = {}
    for kind, _ in disguise.known:
        kinds[kind] = kinds.get(kind, 0) + 1
    yield "Replaced: " + ", ".join(counted(number, kind) for kind, number in kinds.items())
    yield f"Read it before you give it to anybody: tar -xOzf {out} | less"


def _head() -> list[str]:
    return [
        f"gb10 bundle of {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
        f"gb10-fleet {__version__}, ansible-core {metadata.version('ansible-core')},"
        f" Python {platform.python_version()}, {sys.platform}",
        "Names, addresses, serials, keys and prompts are replaced; the same word is the same thing in all files.",
    ]
