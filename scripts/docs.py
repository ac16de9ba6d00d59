"""`make docs`: the manual as a site in site/, with search, from the Markdown files and from what ansible-doc knows.

Sphinx builds it: MyST reads the Markdown, antsibull-docs writes the pages of modules, filters and roles. A page that no
part of the navigation has, and a link that leads nowhere, are errors. It needs no network.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx
from sphinx_antsibull_ext.assets import get_color_scheme_content

from scripts.check import source_files
from scripts.gates import BIN, ROOT, WORK
from scripts.links import on_the_forge, relink

SITE = ROOT / "site"
FOLDERS = {"benchmarks", "docs", "examples", "lab", "roles"}  # Markdown outside them belongs to whoever reads the code
FRONT = "README.md"  # becomes index, the first page
PICTURES = {".cast", ".png", ".svg"}
# Labels of Ansible's own manual that antsibull-docs refers to.
ANSIBLE = "https://docs.ansible.com/ansible/latest"
LABELS = {
    "action_plugins": f"{ANSIBLE}/plugins/action.html",
    "common_return_values": f"{ANSIBLE}/reference_appendices/common_return_values.html",
}

# The parts of the navigation: tasks first, reference behind. A pattern's pages come in the order of their names, and a
# page belongs to the first pattern that fits it.
PARTS: dict[str, tuple[str, ...]] = {
    "Start": (
        "docs/index.md", "docs/up.md", "docs/quickstart.md", "docs/own-project.md", "docs/seed.md", "docs/retire.md",
        "docs/accounts.md", "docs/discover.md",
        "docs/inventory.md", "docs/consent.md", "docs/glossary.md",
    ),
    "Run": (
        "docs/doctor.md", "docs/health.md", "docs/monitoring.md", "docs/troubleshooting.md",
        "docs/evidence.md", "docs/drift.md", "docs/services.md", "docs/rollout.md", "docs/power.md",
        "docs/notify.md", "docs/switch.md",
        "docs/driver.md", "docs/releases.md", "docs/scale.md", "docs/security.md",
        "docs/security-places.md", "examples/README.md", "examples/*/README.md",
    ),
    "Serve": (
        "docs/models.md", "docs/engines.md", "docs/images.md", "docs/registries.md", "docs/router.md",
        "docs/benchmark.md",
    ),
    "Roles": ("roles/*/README.md",),
    "Reference": ("docs/rules.md", "docs/json.md", "docs/runbooks/*.md", "reference/index.rst"),
    "How it is built": (
        "docs/architecture.md", "docs/architecture/*.md", "docs/decisions/README.md", "docs/decisions/*.md",
        "docs/lab.md", "lab/README.md", "lab/vendor/README.md", "benchmarks/README.md",
    ),
    "Take part": ("CONTRIBUTING.md", "docs/development/*.md", "docs/releasing.md", "docs/certification.md",
                  "SUPPORT.md", "SECURITY.md",
                  "CODE_OF_CONDUCT.md"),
}  # fmt: skip
CELL, TEXT = re.compile(r"<(t[dh]|h1)\b.*?</\1>", re.DOTALL), re.compile(r"(?<=>)[^<>]+(?=<)")
LONG, PART = re.compile(r"[^\s&;]{15,}"), re.compile(r"[/|:_.,=@-]+(?=.)|[0-9A-Za-z]{24}(?=.)")
CONTENTS = re.compile(r"^\.\. contents::\n(?: +:.*\n)+", re.MULTILINE)

TERMINAL = """
## In the terminal

A rollout over a pair, on virtual Sparks. More of it: [docs/rollout.md](docs/rollout.md).

```{asciinema} docs/rollout-pair.cast
:preload: 1
:poster: npt:0:11
```
"""


def pages() -> list[Path]:
    """The Markdown of the top level and of FOLDERS."""
    listed = (path for path in source_files() if path.suffix == ".md" and not path.parts[0].startswith("."))
    return [path for path in listed if len(path.parts) == 1 or path.parts[0] in FOLDERS]


def navigation(found: list[str]) -> dict[str, list[str]]:
    """`{part: [page]}`. A page that is in no part is refused: nobody would find it."""
    left = [page for page in found if page != FRONT]
    parts: dict[str, list[str]] = {}
    for part, patterns in PARTS.items():
        for pattern in patterns:
            chosen = sorted(page for page in left if fnmatch(page, pattern) and page.count("/") == pattern.count("/"))
            parts.setdefault(part, []).extend(chosen)
            left = [page for page in left if page not in chosen]
    if left:
        raise SystemExit(f"In no part of the navigation (PARTS in scripts/docs.py): {', '.join(left)}")
    return parts


def links(text: str, source: Path, known: set[Path], repository: str) -> str:
    """Links to what is no page of the site lead to the repository; pictures and recordings come along."""

    def address(path: Path) -> str | None:
        if str(path) == FRONT:
            return f"{'../' * (len(source.parts) - 1)}index.md"
        return None if path in known or path.suffix in PICTURES else on_the_forge(path, repository, "main")

    return relink(text, source, address)


def lay_out(source: Path, repository: str) -> None:
    """The sources of the site: the Markdown files at their places, and the pages of the reference."""
    shutil.rmtree(source, ignore_errors=True)
    found = pages()
    for path in found:
        text = links((ROOT / path).read_text(encoding="utf-8"), path, set(found), repository)
        target = source / ("index.md" if str(path) == FRONT else path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for path in source_files():
        if path.parts[0] in FOLDERS and path.suffix in PICTURES:
            (source / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, source / path)
    reference(source / "reference")
    with (source / "index.md").open("a", encoding="utf-8") as file:
        file.write(TERMINAL)
        for part, chosen in navigation([*map(str, found), "reference/index.rst"]).items():
            names = "\n".join(str(Path(page).with_suffix("")) for page in chosen)
            file.write(f"\n```{{toctree}}\n:hidden:\n:caption: {part}\n\n{names}\n```\n")


def reference(target: Path) -> None:
    """A page for each module, filter, test and role, from their own documentation."""
    target.mkdir(mode=0o755)
    argv = [str(BIN / "antsibull-docs"), "collection", "--use-current", "--squash-hierarchy", "--fail-on-error"]
    env = {"ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"), "PATH": f"{BIN}:/usr/bin:/bin"}
    subprocess.run([*argv, "--dest-dir", str(target), "gb10.fleet"], cwd=ROOT, env=env, check=True)
    (target / "environment_variables.rst").unlink()  # the collection has none
    for page in target.glob("*.rst"):
        # The theme shows each page's contents beside it, and calls a second table of contents an error.
        text = CONTENTS.sub("", page.read_text(encoding="utf-8"))
        for label, address in LABELS.items():
            text = re.sub(rf":ref:`([^<`]+) <{label}>`", rf"`\1 <{address}>`__", text)
        page.write_text(text, encoding="utf-8")


def breakable(page: str) -> str:
    """Let long words of tables and titles go on in the next line behind a part of theirs, and not where they like."""

    def words(text: re.Match[str]) -> str:
        return LONG.sub(lambda word: PART.sub(r"\g<0><wbr>", word[0]), text[0])

    return CELL.sub(lambda cell: TEXT.sub(words, cell[0]), page)


def dark() -> str:
    """The dark colours of the reference, for whoever chose them on the site, and for whose system is dark."""
    colours = get_color_scheme_content("default-dark").decode()
    chosen, left = (colours.replace(":root", f'body[data-theme="{theme}"]') for theme in ("dark", "auto"))
    return f"{chosen}\n@media (prefers-color-scheme: dark) {{ {left} }}\n"


def settings(galaxy: dict[str, Any]) -> dict[str, Any]:
    return {
        "project": "gb10-fleet",
        "author": galaxy["authors"][0],
        "copyright": galaxy["authors"][0],
        "version": galaxy["version"],
        "release": galaxy["version"],
        "extensions": ["myst_parser", "sphinx_antsibull_ext", "sphinx_copybutton", "sphinxcontrib.asciinema"],
        "source_suffix": {".md": "markdown", ".rst": "restructuredtext"},
        "copybutton_prompt_text": "$ ",  # what is copied runs as it is, and answers of a command stay behind
        "html_theme": "furo",
        "html_static_path": [str(file) for file in (*ROOT.glob("scripts/site.*"), WORK / "site/dark.css")],
        "html_css_files": ["site.css", "dark.css"],
        "html_js_files": [("site.js", {"defer": "defer"})],
        "html_title": f"gb10-fleet {galaxy['version']}",
        "html_show_sourcelink": False,
        "html_copy_source": False,
        "myst_heading_anchors": 4,
        "pygments_style": "friendly",
        "highlight_language": "text",
    }


def build(target: Path) -> int:
    """Return how many pages the site has."""
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
    source, doctrees = WORK / "site/source", WORK / "site/doctrees"
    lay_out(source, galaxy["repository"])
    (WORK / "site/dark.css").write_text(dark(), encoding="utf-8")
    for leftover in (target, doctrees):
        shutil.rmtree(leftover, ignore_errors=True)
    app = Sphinx(
        source, None, target, doctrees, "html", confoverrides=settings(galaxy),
        status=None, warning=sys.stderr, warningiserror=True, parallel=2,
    )  # fmt: skip
    app.build(force_all=True)
    if app.statuscode:
        raise SystemExit("The site has warnings, and each of them is an error: see above.")
    for page in target.rglob("*.html"):
        page.write_text(breakable(page.read_text(encoding="utf-8")), encoding="utf-8")
    return len(app.env.found_docs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.docs", description=__doc__)
    parser.add_argument("--into", type=Path, default=SITE, help="folder that is replaced (default: site)")
    target = parser.parse_args().into.resolve()
    print(f"{build(target)} pages: file://{target / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
