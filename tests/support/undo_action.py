"""A run of the actions undo and wish, with hosts that answer from memory."""

from __future__ import annotations

import ast
import base64
import json
import zlib
from pathlib import Path
from typing import Any

from tests.support.plays import put_ssh, run_playbook

# Stands in for ssh: keeps each program in a file of its own, and answers as the host that its destination names.
SSH = """#!/bin/bash
for word in "$@"; do case $word in kind-*) kind=${word#kind-};; esac; done
cat >"${0%/*}/program-$(date +%s%N)-$kind"
change='{"role": "fabric", "resource": "nm_profile:a", "action": "remove", "detail": ""}'
rest='"facts": null, "wishes": [], "ends": [], "stale": [], "pending": [], "orphans": [], "known": true'
rest+=', "recorded": true, "guard": null, "subprocesses": 0'
say() { echo "GB10-ANSWER:{\\"changes\\": [$1], \\"diff\\": [], \\"error\\": $2, $rest}"; }
gone() { say "{\\"role\\": \\"$1\\", \\"resource\\": \\"$2\\", \\"action\\": \\"remove\\"}" null; }
case $kind in
  applied) say "$change" null;;
  docked) gone docker package:docker-ce;;
  guarded) gone firewall unit:gb10-firewall.service;;
  untouched) say "" null;;
  away) echo "ssh: connect to host 192.0.2.9 port 22: No route to host" >&2; exit 255;;
  changed) say "" '{"kind": "host", "message": "file:/etc/a: changed since: mode 0600, left as 0644"}';;
esac
"""


class Run:
    """ansible-playbook in a directory of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        put_ssh(tmp_path, SSH)

    def play(self, play: str, *args: str, kinds: tuple[str, ...] = ("applied",), **variables: Any) -> tuple[int, str]:
        hosts = {f"spark-{kind}": {"ansible_host": f"kind-{kind}"} for kind in kinds}
        # The playbook wants to become root, and this ssh answers nobody who waits for sudo.
        return run_playbook(self.tmp_path, hosts, play, *args, **{"ansible_become": False, **variables})

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What the engine was asked, in the order of the calls."""
        calls = [file.read_text().splitlines()[-1] for file in sorted(self.tmp_path.glob("program-*"))]
        arguments = [ast.literal_eval(call.removeprefix("start(*").removesuffix(")")) for call in calls]
        return [json.loads(zlib.decompress(base64.b64decode(request))) for _, _, request, _, _ in arguments]
