"""What `gb10 explain` prints: of each role the settings with their origin, the plan, and the resources. In words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Of a plan these are shown as what they are.
_TOLD = ("refusals", "joint_refusals", "findings")
_INDENT = "    "
LONGEST = 300  # characters of a value


def explained(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what a program reads of them, by host."""
    return {host: {key: result[key] for key in ("uncertain", "roles")} for host, result in results.items()}


def lines(explained: Mapping[str, Mapping[str, Any]], *, defaults: bool) -> Iterator[str]:
    """The lines for these hosts. Settings that nobody set are counted; with `defaults` they are shown."""
    for host, result in explained.items():
        for role, decided in result["roles"].items():
            yield f"{host}: {role}"
            yield from _settings(decided["settings"], defaults)
            yield from _plan(decided["plan"])
            yield from _added(decided["plan"])
            for text in decided["refusals"]:
                yield f"  refused: {text}"
            for unit, wish in decided["wishes"].items():
                yield f"  stop request: {unit}: {wish}"
            yield f"  resources: {len(decided['resources'])}"
            for resource in decided["resources"]:
                (kind, name), *rest = resource.items()
                more = ", ".join(f"{key} {in_words(value)}" for key, value in rest)
                yield f"{_INDENT}{kind} {name}" + (f" ({more})" if more else "")
        if result["uncertain"]:
            names = ", ".join(result["uncertain"])
            yield f"{host}: facts of {names} are missing or of an earlier run; the doctor reads new ones"


def _short(text: str) -> str:
    """What still is a line on a terminal."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text)} characters; --json has all of it)"


def in_words(value: Any) -> str:
    """Return a value as a person writes it; `--json` has it as programs do."""
    if value is None or value in ("", [], {}, ()):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {in_words(each)}" for key, each in value.items())
    return ", ".join(map(in_words, value)) if isinstance(value, list | tuple) else str(value)


def _settings(settings: list[Mapping[str, Any]], defaults: bool) -> Iterator[str]:
    shown = [each for each in settings if defaults or each["origin"] != "default"]
    rest = len(settings) - len(shown)
    yield f"  settings: {len(shown)} set" + (f", {rest} at their default (--defaults shows them)" if rest else "")
    width = max((len(each["name"]) for each in shown), default=0)
    for each in shown:
        yield f"{_INDENT}{each['name']:<{width}}  {in_words(each['value'])}  ({each['origin']})"


def _added(plan: Mapping[str, Any] | None) -> Iterator[str]:
    """Of each service what nobody set, with its reason."""
    for service in (plan or {}).get("services", ()):
        if not service.get("added"):
            continue
        yield f"  {service['name']}: nobody set these, the plan of the model did (vllm_flags: none leaves them out)"
        width = max(len(each["text"]) for each in service["added"])
        for each in service["added"]:
            yield f"{_INDENT}{each['text']:<{width}}  {each['because']}"


def _plan(plan: Mapping[str, Any] | None) -> Iterator[str]:
    if plan is None:
        yield "  plan: none can be made"
        return
    values = {key: value for key, value in plan.items() if key not in _TOLD}
    yield "  plan:" if values else "  plan: nothing to decide"
    width = max(map(len, values), default=0)
    for key, value in values.items():
        yield f"{_INDENT}{key:<{width}}  {_short(in_words(value))}"
    for finding in plan["findings"]:
        yield f"  {finding['severity']}: {finding['id']}: {finding['fact']}"
