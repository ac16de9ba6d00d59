"""`make docs`: the manual as static HTML in site/, from the Markdown files and from what ansible-doc knows."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from scripts.check import source_files
from scripts.gates import BIN, ROOT

SITE = ROOT / "site"
MANUAL = {"README.md", "CONTRIBUTING.md", "docs", "roles", "lab", "benchmarks", "examples"}

MARKDOWN = MarkdownIt("commonmark").enable("table")

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - gb10-fleet</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.55 system-ui, sans-serif }}
body {{ display: flex; flex-wrap: wrap; gap: 2rem; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }}
nav {{ flex: 0 0 13rem }} nav a {{ display: block }} main {{ flex: 1 1 30rem; min-width: 0 }}
table {{ border-collapse: collapse; display: block; overflow-x: auto }}
td, th {{ border: 1px solid #8886; padding: .3rem .6rem; text-align: left; vertical-align: top }}
pre {{ background: #8881; padding: .8rem; overflow-x: auto }} code {{ background: #8881; padding: 0 .2rem }}
pre code {{ background: none; padding: 0 }}
</style>
<nav>{navigation}</nav><main>{content}</main></html>
"""


def markup(value: Any) -> str:
    """Ansible's own markup (V(x), O(x), C(x), ...) as HTML; lists are paragraphs."""
    if isinstance(value, list):
        return " ".join(markup(item) for item in value)
    return re.sub(r"\b[VOCMEPBI]\(([^)]*)\)", r"<code>\1</code>", html.escape(str(value)))


def options(found: dict[str, Any]) -> str:
    """Arguments (or results, which have no default) as a table; nested ones as a table in it."""
    rows = []
    for name, option in found.items():
        default = "required" if option.get("required") else json.dumps(option.get("default"))
        choices = option.get("choices")
        kind = option.get("type", "str") + (f": {', '.join(map(str, choices))}" if choices else "")
        text = markup(option.get("description", ""))
        cells = (f"<code>{html.escape(name)}</code>", html.escape(kind), f"<code>{html.escape(default)}</code>", text)
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        if option.get("options"):
            rows.append(f"<tr><td></td><td colspan=3>{options(option['options'])}</td></tr>")
    return f"<table><tr><th>name<th>type<th>default<th>meaning</tr>{''.join(rows)}</table>" if rows else "<p>None.</p>"


def plugin_page(name: str, doc: dict[str, Any]) -> str:
    about = doc.get("doc") or {}
    parts = [f"<h1>{html.escape(name)}</h1><p>{markup(about.get('short_description', ''))}</p>"]
    parts += [f"<p>{markup(line)}</p>" for line in about.get("description", [])]
    parts += ["<h2>Arguments</h2>", options(about.get("options") or {})]
    if doc.get("examples"):
        parts.append(f"<h2>Examples</h2><pre>{html.escape(doc['examples'].strip())}</pre>")
    if doc.get("return"):
        parts += ["<h2>Result</h2>", options(doc["return"])]
    return "".join(parts)


def ansible_doc(kind: str) -> dict[str, Any]:
    """`{name: documentation}` of every module, filter or role of the collection."""
    names = _ask(kind, "--list", "gb10.fleet")
    return _ask(kind, *names) if names else {}


def _ask(kind: str, *words: str) -> dict[str, Any]:
    argv = [str(BIN / "ansible-doc"), "--type", kind, "--json", *words]
    answer: dict[str, Any] = json.loads(subprocess.check_output(argv, cwd=ROOT))
    return answer


def manual() -> dict[str, tuple[str, str]]:
    """`{file name: (title, HTML)}` of the Markdown files, in the order of the navigation."""
    found = {}
    for path in sorted(source_files(), key=lambda path: path.name != "README.md" or path.parent != Path()):
        if path.suffix == ".md" and path.parts[0] in MANUAL:
            name = "index.html" if str(path) == "README.md" else f"{'-'.join(path.with_suffix('').parts)}.html"
            body = MARKDOWN.render((ROOT / path).read_text(encoding="utf-8"))
            found[name] = (str(path.with_suffix("")), _links(_anchors(body), path))
    return found


def pages() -> dict[str, tuple[str, str]]:
    """`{file name: (title, HTML)}`, in the order of the navigation."""
    found = manual()
    for kind in ("module", "filter"):
        for name, doc in ansible_doc(kind).items():
            found[f"{kind}-{name}.html"] = (f"{kind} {name}", plugin_page(name, doc))
    for name, doc in ansible_doc("role").items():
        for entry, point in doc["entry_points"].items():
            content = f"<h1>{name}: {entry}</h1><p>{markup(point.get('short_description', ''))}</p>"
            found[f"role-{name}-{entry}.html"] = (f"role {name} {entry}", content + options(point.get("options") or {}))
    return found


def _anchors(body: str) -> str:
    """Headings get the ids that a forge gives them, so that links into a page work here, too."""

    def heading(match: re.Match[str]) -> str:
        words = re.sub(r"[^\w\- ]", "", html.unescape(re.sub(r"<[^>]*>", "", match[2])).lower())
        return f'<h{match[1]} id="{words.replace(" ", "-")}">{match[2]}</h{match[1]}>'

    return re.sub(r"<h([1-6])>(.*?)</h\1>", heading, body)


def _links(body: str, source: Path) -> str:
    """Links between Markdown files become links between pages; those to other files are text, for they are not here."""

    def link(match: re.Match[str]) -> str:
        target, place, words = match[1], match[2] or "", match[3]
        if not target.endswith(".md"):
            return words
        parts = (ROOT / source.parent / target).resolve().relative_to(ROOT).with_suffix("").parts
        name = "index" if parts == ("README",) else "-".join(parts)
        return f'<a href="{name}.html{place}">{words}</a>'

    return re.sub(r'<a href="([^":#]+)(#[^"]*)?">(.*?)</a>', link, body, flags=re.DOTALL)


def main() -> int:
    found = pages()
    shutil.rmtree(SITE, ignore_errors=True)
    SITE.mkdir()
    navigation = "".join(f'<a href="{file}">{html.escape(title)}</a>' for file, (title, _) in found.items())
    for file, (title, content) in found.items():
        page = PAGE.format(title=html.escape(title), navigation=navigation, content=content)
        (SITE / file).write_text(page, encoding="utf-8")
    print(f"{len(found)} pages: file://{SITE / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
