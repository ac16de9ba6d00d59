# SPDX-License-Identifier: GPL-3.0-or-later
"""The main process of gb10-vllm.service, and of gb10-vllm-NAME.service with NAME: one life of a served model, on this
host alone or as one rank of a cluster.

It checks the host, meets the other hosts of the cluster, runs the container in the foreground and follows its log.
When any of that fails, it leaves with a named verdict, and systemd starts the next life. After too many
faults of this host itself the unit stays down; what comes from outside costs no start. While hosts or rails are awaited
the unit is `activating`, which no start limit counts.

The role `vllm` installs this folder on the host as a program. So it imports the standard library only, itself by
relative imports, and nothing of the rest of the project.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import Failure

from .config import parse_config
from .life import Life
from .status import Notify, Status, say

BY_HAND = (
    "gb10-vllm: systemd alone starts this program: started by hand, it would end the container that serves. "
    "`systemctl status 'gb10-vllm*'` shows the units; `sudo systemctl start --no-block gb10-vllm` starts one"
)
CONFIG = "/etc/gb10-fleet/{stem}.json"
STATUS = "/run/gb10-{stem}/status.json"


def main(words: Sequence[str] = ()) -> int:
    """`words`: the name of the service, where it has one. 2: somebody started it by hand, and nothing was touched."""
    address = os.environ.pop("NOTIFY_SOCKET", "")  # nobody below us speaks for the unit
    if not address:
        sys.stderr.write(f"{BY_HAND}\n")
        return 2
    stem = "-".join(("vllm", *words[:1]))
    settings, state = Path(CONFIG.format(stem=stem)), Path(STATUS.format(stem=stem))
    notify = Notify(address)
    try:
        text = settings.read_text(encoding="utf-8")
        config = parse_config(text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        failure = Failure("bad_settings", f"{settings}: {type(error).__name__}: {error}")
        status = Status(state, notify, "", unit=f"gb10-{stem}")
        status.fail(failure, [])
        say(f"{failure}; {status.way_out(failure.verdict)}")
        return 1
    life = Life(config, Status(state, notify, config.digest, unit=f"gb10-{stem}"), notify)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, life.stop)
    signal.signal(signal.SIGUSR1, life.announce)
    return life.run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
