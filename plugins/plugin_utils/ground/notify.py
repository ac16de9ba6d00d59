# SPDX-License-Identifier: GPL-3.0-or-later
"""The hook for people: a command or a URL of the user hears of a failed proof, a stopped rollout and a drifted scan.

All three arrive here. A hook that fails or hangs becomes a warning, and no verdict changes for it. What it is given
holds names, verdicts and texts, and no variable of the inventory. The hook itself may be a secret (a webhook's URL
is one), so no message quotes more of it than its program or its host.
"""

from __future__ import annotations

import base64
import contextlib
import html
import json
import os
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable, some

VARIABLE = "gb10_notify"
PROOF, ROLLOUT, DRIFT, TEST = "proof", "rollout", "drift", "test"
TIMEOUT_S = 20.0
TEXT_LIMIT = 4000  # characters; what a chat takes in one message
NAMES_LIMIT = 50
EXPECTED = "write a command as a list, [/usr/local/bin/tell-us, --loud], or a URL, https://chat.example.com/hook"
TRY = "ansible-playbook gb10.fleet.notify -i INVENTORY sends a test"


class HookError(ValueError):
    """A value of gb10_notify that is neither a command nor a URL."""


@dataclass(frozen=True)
class Hook:
    """Where an event goes: the words of a command, or a URL."""

    command: tuple[str, ...] = ()
    url: str = ""

    @property
    def name(self) -> str:
        """Return what may be said of it."""
        return self.command[0] if self.command else str(urllib.parse.urlsplit(self.url).hostname)


def hook(value: Any) -> Hook:
    if isinstance(value, list) and value and all(isinstance(word, str) and word for word in value):
        return Hook(command=tuple(map(_plain, value)))
    if isinstance(value, str):
        with contextlib.suppress(ValueError):  # of an address that is none
            parts = urllib.parse.urlsplit(value)
            if parts.scheme in ("http", "https") and parts.hostname:
                return Hook(url=_plain(value))
    raise HookError(f"{VARIABLE} is neither a command nor a URL; {EXPECTED}")


def _plain(text: str) -> str:
    return "".join(text)  # without the tags that Ansible puts on a text


def event(
    kind: str, verdict: str, text: str, hosts: Sequence[str], see: str | None = None, bad: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what a hook is told. `see`: the file on this machine that has all of it.

    `bad`: who it is about, by the inventory. They come first: what one of them says may fill all of the text.
    """
    controller = socket.gethostname()
    about = f": {some(bad, NAMES_LIMIT)}" if bad else ""
    told = f"gb10-fleet on {controller}: {kind} {verdict}{about}\n{printable(text, keep=chr(10))}"
    return {
        "source": "gb10-fleet",
        "event": kind,
        "verdict": verdict,
        "controller": controller,
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hosts": list(hosts),
        "see": see,
        "text": told if len(told) <= TEXT_LIMIT else f"{told[:TEXT_LIMIT]} ...",
    }


def send(value: Any, told: dict[str, Any], timeout_s: float = TIMEOUT_S) -> str | None:
    """Hand the event over, within the time. Returns what went wrong."""
    try:
        target = hook(value)
    except HookError as error:
        return str(error)
    if target.command:
        fault = _run(target, json.dumps(told).encode(), timeout_s)
    else:
        fault = _post(target, json.dumps({**told, "text": for_chat(told["text"])}).encode(), timeout_s)
    return f"{VARIABLE}: {target.name} {fault}, so nobody may have been told; {TRY}" if fault else None


def for_chat(text: str) -> str:
    """As a chat shows it, and makes nothing of it: a host may have written that it is well, with a link, or call all.

    Slack reads <...>, with these three characters escaped (docs.slack.dev, formatting message text). In Mattermost a
    name behind @ is called, and Markdown links; behind a character of no width neither is one.
    """
    return html.escape(text, quote=False).replace("@", "@\u200b").replace("]", "]\u200b")


def _run(target: Hook, body: bytes, timeout_s: float) -> str | None:
    # What it prints may hold a secret, and a pipe could be held open by what it leaves behind.
    # /dev/null takes it also where a disk is full, which may be the very thing to tell.
    try:
        process = subprocess.Popen(
            target.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"could not be started: {getattr(error, 'strerror', None) or error}"
    try:
        process.communicate(body, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"did not end within {timeout_s:g} s and was killed"
    return f"ended with status {process.returncode}" if process.returncode else None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is sent elsewhere would arrive as a GET without its body."""

    def redirect_request(self, *__: Any) -> None:
        return None


def _post(target: Hook, body: bytes, timeout_s: float) -> str | None:
    url, headers = _without_account(target.url)
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"} | headers, method="POST")  # noqa: S310

    def post() -> str | None:
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout_s):
                return None
        except urllib.error.HTTPError as error:
            return f"answered with the HTTP status {error.code}"
        except (OSError, ValueError, OverflowError, HTTPException) as error:  # all may quote the URL
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            return f"could not be reached: {getattr(reason, 'strerror', None) or type(reason).__name__}"

    return _within(timeout_s, post)


def _without_account(url: str) -> tuple[str, dict[str, str]]:
    """Account and password of a URL go into a header: urllib asks the name server for a host of that whole name."""
    parts = urllib.parse.urlsplit(url)
    account, at, place = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    word = base64.b64encode(urllib.parse.unquote_to_bytes(account)).decode()
    return parts._replace(netloc=place).geturl(), {"Authorization": f"Basic {word}"}


def _within(timeout_s: float, do: Callable[[], str | None]) -> str | None:
    """A server that sends a byte now and then outlasts every timeout of a socket. The thread ends with the process."""
    said: list[str | None] = []
    thread = threading.Thread(target=lambda: said.append(do()), daemon=True)
    thread.start()
    thread.join(timeout_s)
    return said[0] if said else f"did not answer within {timeout_s:g} s"
