"""How to use what serves now."""

from __future__ import annotations

from collections.abc import Sequence

from gb10_fleet.up.screen import PORT
from gb10_fleet.up.written import Fleet


def lines(fleet: Fleet) -> Sequence[str]:
    """For the person who ran `gb10 up`, on the machine where they did."""
    head = fleet.hosts[0]
    login = f"{fleet.user}@{head.place}" if fleet.user else str(head.place)
    tunnel = [] if head.place is None else [f"  ssh -N -L {PORT}:127.0.0.1:{PORT} {login}     # leave it open, then:"]
    asked = f'{{"model": "{fleet.model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return [
        f"{fleet.model} serves on {head.name}. How to use it:",
        *tunnel,
        f"  curl http://127.0.0.1:{PORT}/v1/chat/completions -H 'Content-Type: application/json' -d '{asked}'",
        "  gb10 ps (what runs), gb10 stop vllm (stop it), gb10 undo --all (put everything back)",
    ]
