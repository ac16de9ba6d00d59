"""Links of every Markdown file lead to a file that exists, and to a heading that exists in it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from scripts.check import source_files

ROOT = Path(__file__).resolve().parents[3]
PAGES = [path for path in source_files() if path.suffix == ".md" and not (ROOT / path).is_symlink()]


def prose(path: Path) -> str:
    """The file without its examples: a link in a code block is no link."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """The places in a page, as a forge names them after its headings."""
    headings = re.findall(r"^#{1,6} +(.+?) *$", prose(path), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def broken(path: Path) -> list[str]:
    found = []
    for target, place in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", re.sub(r"`[^`]*`", "", prose(path))):
        page = (ROOT / path.parent / target).resolve() if target else ROOT / path
        missing = place and page.suffix == ".md" and page.exists() and place not in anchors(page.relative_to(ROOT))
        if not page.exists() or missing:
            found.append(f"{path}: {target}{'#' if place else ''}{place}")
    return found


def test_every_link_leads_to_a_file_and_to_a_heading_in_it() -> None:
    assert len(PAGES) > 30
    assert not [link for page in PAGES for link in broken(page)]


def test_every_document_is_in_the_index() -> None:
    index = prose(Path("docs/index.md"))
    pages = [path.name for path in PAGES if path.parent == Path("docs") and path.name != "index.md"]
    assert not [page for page in pages if f"]({page}" not in index]


def test_consent_lists_every_variable_that_a_specification_calls_consent() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", prose(Path("docs/consent.md")), re.MULTILINE))
    specified = {}
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            for name, option in (entry.get("options") or {}).items():
                if "".join(option["description"]).startswith("Consent"):
                    assert "default" in option, f"{name}: a consent has a default, which is not to consent"
                    specified[name] = str(option["default"]).lower()
    of_no_role = {"gb10_orphans": "show", "gb10_layouts_by_timer": "false", "gb10_switch_allow_apply": "false"}
    assert listed == {**specified, **of_no_role}
