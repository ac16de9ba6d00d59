"""Changes a switch port by port, with the hosts' proof in between; what they cannot prove goes back."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet.playbook import Order, Outcome, run
from gb10_fleet.switch.planning import Change

LINK_S, POLL_S = 60.0, 2.0  # a port with a new speed needs half a minute
LOST_S = 60.0  # on the way back, for answers that a switch does not give; then it is asked no more
Faults = frozenset[tuple[str, str]]  # where, and what
Prove = Callable[[], Faults]
Say = Callable[[str], None]


class NotProven(Exception):
    """The hosts do not prove the fabric; the text says what is wrong."""


class Ports(Protocol):
    """What this needs of a switch."""

    def set(self, name: str, values: Mapping[str, str]) -> None: ...
    def running(self, name: str) -> bool: ...


@dataclass
class Applied:
    """What came of it. `stuck`: commands that a person must give, for the switch did not take them back."""

    ports: list[str] = field(default_factory=list)
    reason: str = ""
    returned: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)


def apply(ports: Ports, plan: Sequence[Change], prove: Prove, say: Say) -> Applied:
    """Change one port after the other. After each no fault may be new; after the last one none may be left."""
    applied, touched = Applied(), list[Change]()
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        faults = prove()
        say(f"before: {_told(faults)}")
        for change in plan:
            touched.append(change)  # before it is set: half of a change goes back as well
            ports.set(change.port, change.new)
            _await_link(ports, change.port)
            now = prove()
            say(f"{change.port}: {_told(now)}")
            if worse := now - faults:
                raise NotProven(f"after {change.port}: {_told(worse)}")
            applied.ports.append(change.port)
            faults = now
        if faults:
            raise NotProven(f"after the last port: {_told(faults)}")
    except BaseException as error:  # Ctrl-C, too: a switch in between two settings is nobody's wish
        applied.reason = printable(str(error))[:1000] or type(error).__name__
        applied.ports.clear()
        _return(ports, touched, applied, say)
        if not isinstance(error, Exception):
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return applied


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _return(ports: Ports, touched: Iterable[Change], applied: Applied, say: Say) -> None:
    lost_s = 0.0
    for change in reversed(list(touched)):
        began = time.monotonic()
        try:
            if lost_s > LOST_S:
                raise NotProven("the switch gives no answer")
            ports.set(change.port, change.old)
            applied.returned.append(change.port)
            say(f"{change.port}: as it was before")
        except Exception as error:
            lost_s += time.monotonic() - began
            applied.stuck.append(change.back)
            say(f"{change.port} could not be set back: {printable(str(error))[:200]}; on the switch: {change.back}")


def _await_link(ports: Ports, name: str) -> None:
    end = time.monotonic() + LINK_S
    while not ports.running(name):
        if time.monotonic() > end:
            raise NotProven(f"{name} has no link {LINK_S:.0f} s after its change")
        time.sleep(POLL_S)


def _told(faults: Faults) -> str:
    named = [f"{where}: {what}" for where, what in sorted(faults)]
    return "; ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "") or "the fabric is proven"


def proof(order: Order, folder: Path) -> Prove:
    """The proof of the role fabric, by the playbook `validate`: cables, pings of the full MTU, bandwidth."""
    variables = {"gb10_roles": ["fabric"], "gb10_evidence_directory": str(folder)}
    mine = Order("gb10.fleet.validate", order.inventories, order.limit, variables=variables, words=order.words)

    def prove() -> Faults:
        outcome, report = run(mine, quiet=True)
        if outcome is Outcome.interrupted or report.cut:
            raise KeyboardInterrupt
        if report.evidence is None:
            said = [text for texts in report.messages.values() for text in texts]
            raise NotProven(f"the proof did not come to its end: {'; '.join([*report.errors, *said])[:500]}")
        document = json.loads(Path(report.evidence, "evidence.json").read_text(encoding="utf-8"))
        return faults(document)

    return prove


def faults(evidence: Mapping[str, Any]) -> Faults:
    """What of the fabric is not proven; what the doctor says of a host for other reasons is not counted."""
    others = {
        (host, finding["id"])
        for host, part in evidence["hosts"].items()
        for finding in part["findings"]
        if finding["severity"] == "error"
    }
    said = [reason for cluster in evidence["clusters"] for reason in cluster["reasons"]]
    return frozenset((reason["where"], reason["what"]) for reason in said) - others
