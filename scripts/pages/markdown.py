"""Fill what is generated into a page of Markdown: parts between two comments, and figures between two comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

BY = "by `python -m scripts.pages`"
_FIGURE = re.compile(r"<!-- ([\w-]+) -->[^<\n]*<!-- / -->")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


def part(text: str, name: str, lines: Iterable[str]) -> str:
    """Return the page with these lines between `<!-- NAME, by ... -->` and `<!-- /NAME -->`."""
    begin, end = f"<!-- {name}, {BY} -->", f"<!-- /{name} -->"
    before, found, rest = text.partition(begin)
    _old, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"no {begin} with {end} behind it")
    body = "\n".join(lines).strip()
    return f"{before}{begin}\n{body}\n{end}{after}"


def figures(text: str, known: Mapping[str, object]) -> str:
    """Return the page with each `<!-- NAME -->...<!-- / -->` filled with the figure of that name."""

    def filled(found: re.Match[str]) -> str:
        if text[found.start() - 1] == "\n":
            raise ValueError(f"{found[1]} begins a line, so Markdown takes the line for HTML")
        value = known[found[1]]
        words = " to ".join(map(str, value)) if isinstance(value, list) else value
        return f"<!-- {found[1]} -->{words}<!-- / -->"

    return _FIGURE.sub(filled, text)
