# SPDX-License-Identifier: GPL-3.0-or-later
"""Says a plan to a person: the verdict first, then the rest, in 80 columns."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import columns, counted, host_count
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import tasks, ways_out
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import sources

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.vllm_cli import Fired

WIDTH = 80
_LABEL = 15  # columns
_DIGEST = 19  # characters of a digest that tell it from others: sha256: and twelve
NEXT = "gb10 site, once the lines below are in the inventory (--into writes them)"
_TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser")


def lines(plan: Plan, explain: bool) -> list[str]:
    """All of it. A plan that is refused has nothing to paste."""
    task = [each for line in tasks.lines(plan.model) for each in wrapped(line, " " * _LABEL)]
    version = f"vLLM {plan.version}" if plan.version else "version of vLLM unknown"
    found = [*wrapped(verdict(plan), "  "), *task, *labelled("image", f"{short(plan.image)} ({version})")]
    found += _served(plan) if plan.checkpoint else _rejected(plan)
    found += [line for label, text in plan.comparison.labelled for line in labelled(label, text)]
    found += fired(plan.fired)
    found += [each for line in plan.explained() for each in wrapped(line, f"{_indent(line)}  ")] if explain else []
    if plan.refused:
        return found
    below = "; where it has vllm_services, the entry goes below them" if plan.given.service else ""
    return [*found, f"  for the inventory{below}", *pasted(plan.inventory_lines)]


def verdict(plan: Plan) -> str:
    """One sentence: whether it fits, how fast it is, what it can, what it takes, and what comes next."""
    said = [f"{plan.model.id} on {host_count(plan.hosts)}: {_fits(plan)}"]
    if plan.checkpoint and not plan.refused:
        said += [plan.expectation] if tasks.chats(plan.model) else []
        said += [f"tools: {tools(plan.arguments)}"] if tasks.chats(plan.model) else []
        weights, image = plan.checkpoint.weight_gib, catalog.load("software")["vllm_image_disk"]["value"]
        way = "on each host at this path" if sources.is_path(plan.checkpoint.id) else "to download"
        said += [f"{weights:.0f} GiB {way}, {weights + image:.0f} GiB of disk"] if weights else []
    return "; ".join([*said, f"next: {_next(plan)}"])


def tools(arguments: Iterable[str]) -> str:
    """Return whether a server with these flags takes tools."""
    return "yes" if set(_TOOLS) <= set(arguments) else "no"


def _fits(plan: Plan) -> str:
    if plan.checkpoint is None:
        return "does not fit" if plan.does_not_fit else "nothing that can be served"
    errors = [rule.id for rule in plan.fired if rule.refuses]
    warnings = sum(rule.severity == "warn" and not rule.accepted for rule in plan.fired)
    if errors:
        return f"refused ({', '.join(errors)})"
    sized = plan.fit is not None and plan.fit.need.get("weights", 0) > 0
    return ("fits" if sized else "its size is not known") + (
        f", with {counted(warnings, 'warning')}" if warnings else ""
    )


def _next(plan: Plan) -> str:
    if plan.checkpoint is None:
        other = "a smaller model or format" if plan.does_not_fit else "another image or model"
        return next(iter(ways_out.of(plan)), f"{other}: gb10 plan --all")
    way = next((rule.way_out for rule in plan.fired if rule.refuses), "")
    return way or NEXT


def short(image: str) -> str:
    """A reference without most of its digest, which the lines for the inventory have."""
    name, at, digest = image.partition("@")
    return f"{name}{at}{digest[:_DIGEST]}"


def _rejected(plan: Plan) -> list[str]:
    found = ["  no checkpoint of it can be served like this:"]
    found += [line for name, reason in plan.rejected for line in wrapped(f"    {name}: {reason}", "      ")]
    return found + [line for text in ways_out.of(plan) for line in wrapped(f"  Fix: {text}", "    ")]


def _served(plan: Plan) -> list[str]:
    one, fit = plan.checkpoint, plan.fit
    if one is None or fit is None:
        return []
    parts = (
        f"{name.replace('_', ' ')} {size:.1f} ({fit.sure[name]})" for name, size in fit.need.items() if size >= 0.05
    )
    context = f"{fit.max_model_len} tokens for each of {fit.concurrency} requests; up to {fit.longest_context} fit"
    share = f"{fit.utilization:.2f}" if round(fit.utilization, 2) == fit.utilization else f"{fit.utilization:.3f}"
    found = [
        *labelled("checkpoint", f"{one.id} ({one.quantization}, {one.weight_gib:.4g} GiB)"),
        *labelled("memory", f"{fit.needed:.1f} of {fit.total:.1f} GiB on each host: {', '.join(parts)}"),
        *labelled("utilization", share),  # that of a service is counted in thousandths
        *labelled("context", f"{context}. {fit.reason}" if fit.reason else context),
    ]
    if not plan.refused:
        found += command(["vllm", "serve", one.id, *plan.args])
        found += [
            line for name, value in plan.environment.items() for line in labelled("environment", f"{name}={value}")
        ]
    found += labelled("expected", plan.speed)
    return found + (labelled("published", plan.published) if plan.published else [])


def command(words: Sequence[str]) -> list[str]:
    """Words that a shell can take, each flag with its value."""
    rows = [""]
    for pair in _pairs(words):
        if rows[-1] and _LABEL + len(rows[-1]) + len(pair) + 3 > WIDTH:
            rows.append("")
        rows[-1] += f" {pair}" if rows[-1] else pair
    rows = [f"{row} \\" for row in rows[:-1]] + rows[-1:]
    return [f"{label:<{_LABEL}}{row}" for label, row in zip(["  serve", *[""] * len(rows)], rows, strict=False)]


def _pairs(words: Sequence[str]) -> Iterator[str]:
    taken: list[str] = []
    for word in words:
        if word.startswith("-"):  # what precedes the first flag stays together
            yield shlex.join(taken)
            taken = []
        taken.append(word)
    yield shlex.join(taken)


def fired(rules: Iterable[Fired]) -> list[str]:
    """What the rules say."""
    return [each for rule in rules for line in rule.lines() for each in wrapped(line, f"{_indent(line)}  ")]


def pasted(yaml: Sequence[str]) -> list[str]:
    """Lines of YAML: in brackets and quotes the end of a line is a blank."""
    return [row for line in yaml for row in (wrapped(line, f"{_indent(line)}  ") if _is_cut(line) else [line])]


def _is_cut(line: str) -> bool:
    """A comment is not cut, nor are blanks that count."""
    inner = line.strip()
    return inner.endswith(("]", "}")) and not inner.startswith("#") and "  " not in inner


# --- 80 columns


def labelled(label: str, text: str) -> list[str]:
    return wrapped(f"{'  ' + label:<{_LABEL}}{text}", " " * _LABEL)


def wrapped(line: str, indent: str) -> list[str]:
    """A line in as many as it takes; what has no blank is not cut."""
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    ) or [line]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def overview(pairs: Iterable[tuple[Plan, Plan]]) -> list[str]:
    """Each model in a line of 80 characters: what is to be downloaded, and how fast it is on one Spark and on two."""
    rows = [("MODEL", "GIB", "ONE SPARK", "TWO")]
    for one, two in pairs:
        known = one.checkpoint or two.checkpoint
        rows.append((one.model.id, f"{known.weight_gib:.0f}" if known else "-", _speed(one), _speed(two)))
    return [
        *columns(rows),
        "GIB: to download. Speed: tokens a second of one request; with ~ it is computed,",
        "not measured. -: does not fit.",
        "gb10 plan MODEL says more of one. Any other model of the hub can be named, too.",
    ]


def _speed(plan: Plan) -> str:
    if plan.checkpoint is None:
        return "-"
    if not plan.measured and not plan.predicted:
        return "fits"
    return f"{'' if plan.measured else '~'}{plan.expectation}".removesuffix(" tok/s")
