"""How a command ends: what it shows of a run, its JSON, its exit status."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import typer
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import BY_TYPING, from_failure, together
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import counted, host_count, printable, some

from gb10_fleet import home, passwords
from gb10_fleet.playbook import Order, Outcome, Report, ours

_KEYS = "into known_hosts"  # of `from_failure`
_ANSIBLE = re.compile(r"\b(ansible \S+) -i INVENTORY")
# A task of Ansible's own way that did not become root: it says no more.
_NO_ROOT = re.compile(r"(Task failed: )?((Missing|Incorrect) \w+ password)")
# What a program reads of a scan: all of drift.json.
_DRIFT = ("schema_version", "created", "seconds", "clean", "drifted", "silent", "converge", "hosts")


def answer(
    order: Order, outcome: Outcome, report: Report, document: Mapping[str, Any], lines: Iterable[str], as_json: bool
) -> NoReturn:
    """End a command that answers a question: with the document or with lines, and with what Ansible had to say."""
    if report.cut:  # half of an answer would be read as the whole
        end(order, outcome, report, as_json)
    if as_json and document:
        print(json.dumps(named(order, document), indent=2))
        raise typer.Exit(outcome)
    if not as_json:
        for line in lines:
            print(printable(by_name(order, line)))
        show(order, report)
    end(order, outcome, report, as_json)


def show(order: Order, report: Report) -> None:
    """Show what a scan or the doctor found; of a host without it, why."""
    for line in str(report.drift.get("msg", "")).splitlines():  # what a host says must not steer the terminal
        print(printable(by_name(order, line)))
    show_failures(order, report, refused=order.playbook == "gb10.fleet.doctor")
    show_errors(report)


def show_failures(order: Order, report: Report, *, refused: bool) -> None:
    """Show for each host what failed, where the doctor `refused` in its words, with the way out."""
    judged = {finding["host"] for finding in report.findings}
    for line in (*(_findings(report) if refused else ()), *told(report, judged)):
        print(printable(by_name(order, line)))


def show_errors(report: Report) -> None:
    """Show what Ansible itself said, but for what `end` says."""
    for line in report.errors:
        if line not in ours(report):
            print(line, file=sys.stderr)


def by_name(order: Order, line: str) -> str:
    """With what this command has in place of our words for it: its file of host keys, its inventory, and the options
    for the passwords that were typed for it. The inventory that is found alone needs none."""
    if _KEYS in line and (keys := home.host_keys(order.inventories)):
        line = line.replace(_KEYS, f"into {shlex.quote(str(keys))}")
    if "-i INVENTORY" not in line:  # of a host there may be millions, and the next look reads a file
        return line
    if passwords.CONNECTION in passwords.typed:
        line = line.replace(BY_TYPING, "; or the password that was typed is not that of the host")
    typed = passwords.options()
    here = " ".join(f"-i {shlex.quote(name)}" for name in order.inventories) + typed
    line = _ANSIBLE.sub(lambda command: f"{command[1]} {here}", line)  # it finds none by itself
    if list(order.inventories) == home.default():
        return line.replace(" -i INVENTORY", typed)
    return line.replace("-i INVENTORY", here)


def how_to_use(order: Order, folder: Path) -> Iterator[str]:
    """Yield how to use what serves, by the evidence in that folder; nothing without it: the run has said why."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import usage

    try:
        document = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    uses = usage.of_document(document)
    for line in usage.short(uses) if len(uses) > 1 else usage.whole(uses):
        yield to_paste(order, line)


def to_paste(order: Order, line: str) -> str:
    """The same, and a tunnel that takes these host keys."""
    if "ssh -N " in line and (keys := home.host_keys(order.inventories)):
        line = line.replace("ssh -N ", f"ssh -o {shlex.quote(home.known_hosts_option(keys))} -N ")
    return printable(by_name(order, line))


def named(order: Order, document: Any) -> Any:
    """The same in each text of a document for programs: whoever shows it needs no word of ours in its place."""
    if isinstance(document, str):
        return by_name(order, document)
    if isinstance(document, Mapping):
        return {key: named(order, value) for key, value in document.items()}
    return [named(order, value) for value in document] if isinstance(document, list | tuple) else document


def told(report: Report, but: Container[str] = ()) -> Iterator[str]:
    """Yield what failed, by host. For one that gave no answer the doctor's words and way out, and not those of ssh."""
    lines: list[tuple[str, str]] = []
    # Those without an answer last and by name: they come in the order in which their attempts ended.
    answered = [host for host in report.messages if host not in report.silent]
    for host in [*answered, *sorted(report.messages.keys() & report.silent.keys())]:
        for text in report.messages[host] if host not in but else ():
            no_root = from_failure(host, text) if _NO_ROOT.fullmatch(text) else None
            finding = no_root or report.silent.get(host)
            if finding and (no_root or text == finding.fact):
                lines.append((f"{host}: {finding.id}: {finding.fact}", finding.way_out))
            else:
                lines += [(f"{host}: {line.removeprefix(f'{host}: ')}", "") for line in text.splitlines()]
    ways, without = together([way for _, way in lines], _nobody_answers(report))
    for (line, _), way in zip(lines, ways, strict=True):
        yield line
        if way:
            yield f"    Fix: {way}"
    if without:
        yield without


def silent(order: Order, report: Report) -> list[dict[str, Any]]:
    """Hosts that gave no answer, for programs: findings as the doctor's, with the way out that people are told."""
    found = [report.silent[host].as_dict() for host in sorted(report.silent)]
    for finding in found:
        (way,), _ = together([finding["way_out"]], _nobody_answers(report))
        finding["way_out"] = by_name(order, way)
    return found


def _nobody_answers(report: Report) -> bool:
    return bool(report.hosts) and all(counts["unreachable"] for counts in report.hosts.values())


def _findings(report: Report) -> Iterator[str]:
    counts = dict.fromkeys(("error", "warn", "accepted"), 0)
    hosts_of: dict[tuple[str, str], list[str]] = {}  # what several hosts have in common is said once
    ways, without = together([finding["way_out"] for finding in report.findings], _nobody_answers(report))
    for finding, way in zip(report.findings, ways, strict=True):
        word = "accepted" if finding["accepted"] else finding["severity"]
        counts[word] = counts.get(word, 0) + 1
        advice = f"because: {finding['accepted']}" if word == "accepted" else f"Fix: {way}" if way else ""
        hosts_of.setdefault((f"{word}: {finding['id']}: {finding['fact']}", advice), []).append(finding["host"])
    for (said, advice), names in sorted(hosts_of.items(), key=lambda each: not each[0][0].startswith("error")):
        yield f"{some(sorted(names))}: {said}"
        if advice:
            yield f"    {advice}"
    if without:
        yield without
    if report.hosts and not report.cut and (report.findings or not report.messages):
        found = (
            counted(counts["error"], "error"),
            counted(counts["warn"], "warning"),
            f"{counts['accepted']} accepted",
        )
        yield f"{host_count(len(report.hosts))}: {', '.join(found)}"


def end(
    order: Order, outcome: Outcome, report: Report, as_json: bool, drift: Mapping[str, Any] | None = None
) -> NoReturn:
    """Say how it ended, and end. `drift` is the result of a scan that came before."""
    if as_json:
        document: dict[str, Any] = {
            "playbook": order.playbook,
            "outcome": outcome.name,
            "hosts": report.hosts,
            "findings": report.findings,
            "messages": report.messages,
            "errors": report.errors,
            "evidence": report.evidence,
        }
        if order.playbook in ("gb10.fleet.site", "gb10.fleet.undo"):
            document |= {"changes": report.changes, "pending": report.pending, "orphans": report.orphans}
        if drift := drift or report.drift:
            document["drift"] = {key: drift[key] for key in _DRIFT}
        print(json.dumps(named(order, document), indent=2))
    elif outcome is not Outcome.done:
        print("; ".join([f"{order.playbook}: {outcome.name}", *ours(report)[:1]]), file=sys.stderr)
    raise typer.Exit(outcome)


def unread(error: Exception) -> str:
    """Why a file of ours cannot be read. What Python says of values of another kind helps nobody."""
    if isinstance(error, OSError):
        return str(error.strerror)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    ours = type(error) is ValueError or isinstance(error, json.JSONDecodeError)
    return str(error) if ours else "it does not have the form that gb10 writes"


def wrong_question(text: str, as_json: bool) -> NoReturn:
    if as_json:  # a program gets one object, whatever happens
        print(json.dumps({"error": text}, indent=2))
        raise typer.Exit(2) from None
    raise typer.BadParameter(text) from None
