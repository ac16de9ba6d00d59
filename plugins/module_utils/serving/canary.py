# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions whose answers prove that a model talks sense. Constants and pure checks.

A server can be healthy and emit garbage (wrong quantization kernels on SM121 do that silently), so health checks do not
suffice. Sampling is off (temperature 0); each answer can be checked without judging style.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable

# Broken kernels often fail only after some tokens, so one answer must be at least this long.
LONG_ANSWER_TOKENS = 64
COUNT_TO = 100
REPEATED_WORDS = 4
MOST_REPEATS = 3


@dataclass(frozen=True)
class Question:
    """``check`` says what is wrong with an answer, or None; ``max_tokens`` leaves room for reasoning before it."""

    name: str
    prompt: str
    max_tokens: int
    least_tokens: int
    check: Callable[[str], str | None]


def _check_sum(answer: str) -> str | None:
    numbers = re.findall(r"\d+", answer)
    return None if numbers and numbers[-1] == "42" else "the answer is not 42"


def _check_count(answer: str) -> str | None:
    numbers = [int(number) for number in re.findall(r"\d{1,9}", answer)[:2000]]
    wanted = list(range(1, COUNT_TO + 1))
    starts = (start for start, number in enumerate(numbers) if number == 1)
    if any(numbers[start : start + COUNT_TO] == wanted for start in starts):
        return None
    return f"the answer does not count from 1 to {COUNT_TO}"


def looks_broken(answer: str) -> str | None:
    """What is wrong with a text whatever was asked: nothing there, undecodable bytes, or the same words in a loop."""
    if not answer.strip():
        return "the answer is empty"
    if "\ufffd" in answer:
        return "the answer has undecodable characters (U+FFFD)"
    words = answer.split()[:2000]
    seen: dict[tuple[str, ...], int] = {}
    for start in range(len(words) - REPEATED_WORDS + 1):
        group = tuple(words[start : start + REPEATED_WORDS])
        seen[group] = seen.get(group, 0) + 1
        if seen[group] > MOST_REPEATS:
            return f"the answer repeats {' '.join(group)[:80]!r}"
    return None


QUESTIONS = (
    Question("arithmetic", "What is 17+25? Answer with the number only.", 512, 1, _check_sum),
    Question(
        "counting",
        f"Count from 1 to {COUNT_TO} in digits, separated by commas. Write nothing else.",
        1024,
        LONG_ANSWER_TOKENS,
        _check_count,
    ),
)
