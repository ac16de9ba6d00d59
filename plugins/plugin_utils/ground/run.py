# SPDX-License-Identifier: GPL-3.0-or-later
"""This run of Ansible: its name, and what its workers need not look at."""

from __future__ import annotations

import gc
import getpass
import hashlib
import hmac
import os
import re
import secrets
import socket
from datetime import UTC, datetime

from ansible_collections.gb10.fleet.plugins.module_utils.system.lock import ATTEMPT

# Set by `gb10 rollout`: the rollout that this run is part of, and which attempt at it: ID/NUMBER.
ROLLOUT = "GB10_ROLLOUT"


def name() -> str:
    """Names this run in the host's lock and manifest, in the letters that the engine takes."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without an account, as in a container
        user = str(os.getuid())
    place = re.sub(r"[^A-Za-z0-9_.@:+\\-]", "_", f"{user}@{socket.gethostname()}")[:100]
    return f"{place} {os.getpid()} {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}{_attempt(os.environ.get(ROLLOUT))}"


def _attempt(rollout: str | None) -> str:
    """As the lock on a host reads it: an earlier attempt may not write after a later one."""
    if rollout is None:
        return ""
    identity, __, number = rollout.rpartition("/")
    words = f" rollout {identity} attempt {number}"
    if not re.fullmatch(ATTEMPT, words):
        raise ValueError(f"{ROLLOUT}={rollout!a}: expected ID/NUMBER, as gb10 sets it; unset it for a run of your own")
    return words


def before_forks() -> None:
    """What each worker would do for itself. Called where Ansible imports an action plugin.

    The first filter makes Ansible import all of its own: 6 of the 30 ms that a worker takes to say `ok` of a host.

    And what Ansible and we hold by now stays to the end: the garbage collector need not visit it again. It would in
    each worker, which copies every page of it: 0.2 of the 2 s that a drift scan of ten hosts took in the lab.
    """
    from ansible.plugins.loader import filter_loader  # here: gb10 imports this file, and not Ansible

    filter_loader.get("ansible.builtin.default")
    gc.freeze()


def secret(*words: str) -> str:
    """A secret of this run for one purpose."""
    return key_of(_SECRET, *words)


def key_of(secret: str | bytes, *words: str) -> str:
    """A key for one purpose: whoever knows it knows neither the secret that it is made of nor a key for another."""
    known = secret if isinstance(secret, bytes) else secret.encode()
    return hmac.new(known, "\0".join(words).encode(), hashlib.sha256).hexdigest()


_SECRET = secrets.token_bytes(32)
# Made where Ansible imports the action plugins, before it forks: the same in all tasks of a run, another in the next.
RUN = name()
