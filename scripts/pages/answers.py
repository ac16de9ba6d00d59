"""docs/json.md and gb10_fleet/answers.schema.json, from the types in gb10_fleet/answers.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gb10_fleet import answers
from scripts.gates import ROOT
from scripts.pages.markdown import table

PAGE, FILE = ROOT / "docs" / "json.md", answers.FILE

INTRODUCTION = """\
# What `--json` prints

<!-- Written by `python -m scripts.pages` from gb10_fleet/answers.py. Change that. -->

With `--json` a command prints one object and nothing else; `gb10 top` prints one on each line. Its schema is
`gb10_fleet/answers.schema.json`, with a definition for each command. Each answer in our tests is held to it:

```console
$ pip install jsonschema
$ gb10 doctor -i inventory/mine --json > doctor.json
```

```python
import json, jsonschema
from gb10_fleet import answers

jsonschema.validate(json.load(open("doctor.json")), {**answers.schema(), "$ref": "#/$defs/doctor"})
```

A key without "?" is always there. Text is for people and may change; ids, outcomes and severities are for programs.
The object of a run of waves (`Run`) is that of `gb10_fleet/report/report.schema.json`, and `drift` that of
`plugins/plugin_utils/reports/schemas/drift.schema.json`. What a key means: [drift.md](drift.md#json).
"""


def schema_file() -> str:
    return json.dumps(answers.schema(), indent=1) + "\n"


def page() -> str:
    """Return the page: which objects a command prints, then the keys of each."""
    defined = answers.schema()["$defs"]
    lines = [INTRODUCTION, "## Commands", ""]
    rows = ((f"`{name}`", ", ".join(map(_words, defined[name]["anyOf"]))) for name in sorted(answers.COMMANDS))
    lines += table(("command", "prints"), rows)
    for name in sorted(defined.keys() - {*answers.COMMANDS}):
        lines += [f"## {name}", "", defined[name]["description"], "", *_keys(defined[name])]
    return "\n".join(lines).rstrip() + "\n"


def _keys(kind: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in kind:
        yield from (_words(kind), "")
        return
    rows = (
        (f"`{key}`{'' if key in kind['required'] else '?'}", _words(part)) for key, part in kind["properties"].items()
    )
    yield from table(("key", "holds"), rows)


def _words(part: Mapping[str, Any]) -> str:
    """Return a part of the schema in words."""
    match part:
        case {"$ref": ref}:
            name = ref.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"anyOf": parts}:
            return " or ".join(map(_words, parts))
        case {"type": "array", "items": items}:
            return f"list of {_words(items)}"
        case {"type": "object", "additionalProperties": values}:
            return f"by name: {_words(values)}"
        case {"type": [*kinds]}:
            return " or ".join(kinds)
        case {"type": kind}:
            return str(kind)
    return "anything"
