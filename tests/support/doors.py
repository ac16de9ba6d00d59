"""Stand-ins for ssh, sudo and su that want a password each, as far as Ansible sees them: runs without a lab.

Each writes to a file who came through: a test that never met the door would prove nothing.
"""

from __future__ import annotations

from pathlib import Path

OF_SSH, OF_SUDO, OF_ROOT = "of-ssh-41c9", "of-sudo-41c9", "of-root-41c9"
# Put before what an ssh of the tests does. As OpenSSH: with BatchMode nobody is asked, else the program that
# SSH_ASKPASS names is.
SSH_DOOR = f"""for word in "$@"; do case $word in BatchMode=yes) batch=1;; esac; done
door=$(dirname "$(realpath "$0")")
denied() {{ echo "nvidia@192.0.2.9: Permission denied (publickey,password)." >&2; exit 255; }}
[ -z "$batch" ] && [ -n "$SSH_ASKPASS" ] || denied
[ "$("$SSH_ASKPASS" "nvidia's password: ")" = {OF_SSH} ] || denied
echo "$@" >>"$door/argv"; echo ssh >>"$door/opened"
"""
_SUDO = f"""door=$(dirname "$(realpath "$0")")
while [ $# -gt 0 ]; do case $1 in -p) prompt=$2; shift 2;; -u) shift 2; break;; *) shift;; esac; done
printf '%s' "$prompt" >&2; IFS= read -r word
[ "$word" = {OF_SUDO} ] || {{ printf 'Sorry, try again.\\n%s' "$prompt" >&2; read -r _; exit 1; }}
echo sudo >>"$door/opened"; exec "$@"
"""
_SU = f"""door=$(dirname "$(realpath "$0")"); while [ "$1" != -c ]; do shift; done
printf 'Password: ' >&2; IFS= read -r word
[ "$word" = {OF_ROOT} ] || {{ echo 'su: Authentication failure' >&2; exit 1; }}
echo su >>"$door/opened"; exec /bin/sh -c "$2"
"""


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


def put_ways_to_root(folder: Path) -> None:
    """sudo and su into a folder that is first in PATH."""
    put(folder, "sudo", _SUDO)
    put(folder, "su", _SU)


def opened(folder: Path) -> set[str]:
    """The doors that somebody came through."""
    file = folder / "opened"
    return set(file.read_text().split()) if file.exists() else set()
