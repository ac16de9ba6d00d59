"""What catalog/health.yml knows of signs, in docs/health.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import Rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, limits

from scripts.gates import ROOT
from scripts.pages.markdown import table

PAGE = ROOT / "docs" / "health.md"
WIDTH = 150
_SEVERITIES = {"error": "Error", "warn": "Warning", "info": "Information"}
_WORDS = {
    "many": "{least} lines or more in one boot",
    "shutdown": "a shutdown in good order within {shutdown_s} s",
    "asleep": "no word of a wake before a boot ended without a shutdown",
    "away": "a file server that does not answer meanwhile, or within {away_s} s of it",
    "back": "a server that answers again, a boot since, or, where the mount gives up, {many_s} seconds without a line",
}

TEMPERATURES = (
    "| what | usual under load | from where on it is a finding |",
    "|---|---|---|",
    "| the GPU: column `GPU` of `gb10 top` | {gpu_usual_c[0]} to {gpu_usual_c[1]} °C; up to {gpu_warm_c} °C were seen"
    " on healthy hosts, nothing is said | above {gpu_warm_c} °C [gpu_warm](#gpu_warm), information; from {gpu_hot_c}"
    " °C on, or {tlimit_c} °C below its limit, [gpu_hot](#gpu_hot), a warning with an alert |",
    "| a zone of the chip, which `gb10 why` judges | {zones} | {zone_margin_c} °C below where the kernel switches the"
    " machine off, [soc_hot](#soc_hot) |",
)
RATES = (
    "Evidence has a base rate: a line that sound machines print at every boot is no fault, whatever it says. Where a",
    "line lacks what it needs beside it, or there is evidence against it, it is information, and no cause rests on it.",
    "",
)


def parts() -> dict[str, list[str]]:
    """The lines of each part of the page that is written here, by its name."""
    rules = limits.rules()
    known = {**rules.limits, "zones": rules.signs["soc_hot"]["healthy"]["seen"]}
    return {
        "temperatures": [line.format_map(known) for line in TEMPERATURES],
        "findings": [*_findings(rules)],
        "base rates": [*RATES, *table(_HEAD, _signs(rules)), *table(_XIDS, _xids(rules))],
    }


def _findings(rules: Rules) -> Iterator[str]:
    for name, sign in rules.signs.items():
        filled = {**rules.limits, "unit": "gb10-vllm", "mount": "/"}
        meaning = sign["meaning"].format_map(filled)
        stop = "" if meaning.endswith(".") else "."
        begin = meaning if meaning.startswith("nvidia") else f"{meaning[0].upper()}{meaning[1:]}"
        yield f"### {name}"
        for told in (f"{_severity(name, sign)}. {begin}{stop}", f"Fix: {sign['way_out'].format_map(filled)}."):
            yield from textwrap.wrap(told, WIDTH, break_long_words=False, break_on_hyphens=False)
        yield ""


def _severity(name: str, sign: Mapping[str, Any]) -> str:
    word = _SEVERITIES[sign["severity"]]
    if name == "log_xid":
        return "Error, warning or information, by the number (`xid_119`, for example)"
    return f"{word}, where it has what it needs beside it" if {"needs", "needs_one"} & set(sign) else word


_HEAD = ("sign", "what it needs beside it", "evidence against it", "on healthy machines", "source of the fault")
_XIDS = ("Xid", "severity", "meaning")


def _signs(rules: Rules) -> Iterator[tuple[str, ...]]:
    for name, sign in rules.signs.items():
        healthy = sign["healthy"]
        needs = [*sign.get("needs", ()), *([" or ".join(_word(rules, sign, word) for word in some)] if
                 (some := sign.get("needs_one")) else [])]  # fmt: skip
        cells = (
            f"[{name}](#{name})",
            sign.get("beside") or " and ".join(_word(rules, sign, word) for word in needs) or "-",
            sign.get("unless") or " or ".join(_word(rules, sign, word) for word in sign.get("against", ())) or "-",
            f"{healthy['seen']} ({healthy['source']}, {healthy['date']})",
            f"{sign['source']} ({sign['confidence'].replace('_', ' ')}, {sign['date']})",
        )
        yield tuple(cell.format_map(rules.limits) for cell in cells)


def _word(rules: Rules, sign: Mapping[str, Any], word: str) -> str:
    if word in _WORDS:
        return _WORDS[word].format_map({**rules.limits, "least": rules.limits.get(sign.get("least", ""), "")})
    return f"`{word}`" if word in rules.signs else word


def _xids(rules: Rules) -> Iterator[tuple[str, ...]]:
    for number, xid in rules.xids.items():
        asked = [f'"{wish}": {advice}' for wish, advice in xid.get("actions", {}).items()]
        yield number, xid["severity"], "; ".join([xid["meaning"], *asked])
    yield "any other", catalog.load("health")["signs"][-1]["severity"], "see NVIDIA's list"
