# SPDX-License-Identifier: GPL-3.0-or-later
"""Why image or files did not come: a verdict, what was seen, and the way out. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

TOOLS_SAY = 400  # characters of what a failed command said
# As Python, rsync and the hub's Xet say them. Beside the last one a path must stand: a route may forbid a connection.
_FULL = re.compile(r"no space left|quota exceeded", re.IGNORECASE)
_REFUSES = re.compile(
    r"read-only file system|input/output error|stale file handle|structure needs cleaning|"
    r"permission denied(: ['\"]?/| \((os error )?13\))",
    re.IGNORECASE,
)
_OF_FILES = (3, 11, 23)  # exit codes of rsync(1)
_NO_COMMAND = 127


def last_words(said: str, lines: int = 3) -> str:
    """Return why a command failed, by the end of what it said."""
    return " / ".join(said.strip().splitlines()[-lines:])[:TOOLS_SAY]


class FilesError(Exception):
    """Image or files did not come; a verdict, what was seen, and the way out."""

    def __init__(self, verdict: str, text: str, way_out: str) -> None:
        super().__init__(f"{verdict}: {text}; {way_out}")
        self.verdict = verdict


def _disk(text: str, said: str, whose: str = "this host") -> FilesError | None:
    """What a disk refused, by the words of strerror(3)."""
    if _FULL.search(text):
        return FilesError("disk_full", said, "free some space, or set vllm_cache_directory to another disk")
    if _REFUSES.search(text):
        way_out = (
            f"see `findmnt` and `journalctl -k` of {whose}: a disk of its own, which root may write to, must be there"
        )
        return FilesError("disk_refuses", said, way_out)
    return None


def hub_verdict(error: Mapping[str, Any], model: str) -> FilesError:
    """What an error of the hub's library comes down to."""
    kinds, status, text = set(error["kinds"]), error["status"], " ".join(str(error["text"]).split())[:TOOLS_SAY]
    if {"ImportError", "ModuleNotFoundError"} & kinds:
        way_out = "take an image that has it, or set vllm_fetch to false"
        return FilesError("no_tool", f"the image has no huggingface_hub ({text})", way_out)
    if status == 429:
        way_out = (
            "an account has a limit of its own: set vllm_huggingface_token to its token; or wait some minutes, and run"
            " again: it goes on where it stopped"
        )
        return FilesError("rate_limited", f"the hub counts what this address asks for ({text})", way_out)
    # Before the others: to the library a gated model is also one that is not found.
    if "GatedRepoError" in kinds or status in (401, 403):
        way_out = (
            f"accept the licence of {model} on the hub with your account, and set vllm_huggingface_token to its token"
        )
        return FilesError("unauthorized", f"the hub does not give out {model} ({text})", way_out)
    unknown = {"RepositoryNotFoundError", "RevisionNotFoundError", "EntryNotFoundError", "HFValidationError"}
    if unknown & kinds or status == 404:
        way_out = (
            "correct vllm_model or vllm_model_revision (of a draft model vllm_speculative); a private one needs "
            "vllm_huggingface_token"
        )
        return FilesError("no_such_model", f"the hub has no such model or revision ({text})", way_out)
    if status is None and (ours := _disk(text, text)):
        return ours
    way_out = (
        "give the host a way to it (HF_ENDPOINT, HTTPS_PROXY in vllm_environment) and run again: it goes on where it"
        " stopped; or put the files there yourself and set vllm_fetch to false"
    )
    return FilesError("hub_unreachable", f"{model} cannot be had from the hub ({text})", way_out)


def disk_verdict(error: OSError) -> FilesError:
    """What the file system refused here."""
    text = f"{error.filename or 'a file'}: {error.strerror}"
    way_out = "mend what it says, and run again: it goes on where it stopped"
    return _disk(error.strerror or "", text) or FilesError("failed", text, way_out)


def rsync_verdict(rc: int, text: str, peer: str) -> FilesError:
    """What a transfer that failed comes down to; exit codes of rsync(1)."""
    said = last_words(text)
    if rc == _NO_COMMAND:
        return FilesError("no_tool", f"rsync does not run here ({said})", "install rsync (the role fabric does it)")
    whose = f"{peer}, which sends" if "[sender]" in text else "this host"
    if rc in _OF_FILES and (ours := _disk(text, said, whose)):
        return ours
    # To an address that it does not know, a daemon that lists nothing says that there is no such module.
    if any(words in text for words in ("auth failed", "access denied", "Unknown module")):
        way_out = "another run may have begun in between: run again"
        return FilesError("peer_refused", f"{peer} does not let this host in ({said})", way_out)
    way_out = "see that the host is up and the fabric well, then run again: it goes on where it stopped"
    return FilesError("peer_cut", f"the transfer from {peer} broke off (rsync {rc}: {said})", way_out)


def told(error: Exception) -> dict[str, str]:
    """What a module says where its step failed."""
    fault = disk_verdict(error) if isinstance(error, OSError) else error
    return {"msg": str(fault), "verdict": getattr(fault, "verdict", "bad_request")}
