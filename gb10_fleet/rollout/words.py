"""What follows `--` on a command line is for ansible-playbook, and its own parser says what it means.

So `-vC` and `--chec` are --check here as well.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

_PLAYBOOK = "work.yml"


def read(words: Sequence[str]) -> Any:
    """The options, as ansible-playbook's argparse has them; ValueError where it would not take them."""
    from ansible.cli.playbook import PlaybookCLI  # 0.4 s that a command without such words should not pay

    command: Any = PlaybookCLI(["ansible-playbook"])
    command.init_parser()
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            options = command.parser.parse_args([*words, _PLAYBOOK])
    except SystemExit:
        why = said.getvalue().strip().rpartition("\n")[2].partition("error: ")[2] or "they do no work"
        raise ValueError(f"what follows -- is for ansible-playbook: {why}") from None
    if options.args != [_PLAYBOOK]:
        raise ValueError(f"{options.args[0]}: what follows -- are options of ansible-playbook, and no playbook")
    return options


def lists(options: Any) -> bool:
    """Whether ansible-playbook would only read the playbook, and ask no host."""
    return bool(options.syntax or options.listhosts or options.listtasks or options.listtags)
