"""docs/rules.md, from catalog/rules.yml, sm.yml and vllm_cli."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import rules, vllm_cli

from scripts.gates import ROOT
from scripts.pages.markdown import table

PAGE = ROOT / "docs" / "rules.md"

INTRODUCTION = """\
# Rules of serving

<!-- Written by `python -m scripts.pages` from catalog/rules.yml, sm.yml and vllm_cli. Change those. -->

{count} rules, and the command line of the vLLM in the image, judge every setting of vLLM on a GB10.

- An **error** refuses, a **warn** is shown, an **info** is a note. A claim of one source alone, or an unchecked
  claim, is never an error.
- *versions* are vLLM's. A rule without versions holds for all. The evidence was checked for vLLM {verified}. With
  another version a rule still fires, and says that it was not verified for it.
- Where the image's version is not known, or names no release, a rule that depends on it only warns. Rules for releases
  {old}, and for a single release, are not judged then: `version_unknown` names those that are about what is served.
  `--image-version` or `vllm_version` gives the version.
- A build of the main branch may lie between the last release of a rule and the next one. For it an error of that rule
  is a warning, and a warning is a note.
- A rule may be about a part that an image lacks. Where nobody has looked for that part, the rule is a note.
- Of a model whose files nobody here has, the name is read. What rests on that only warns, and says so.

An error is let through by its id, with a reason:

```
gb10 plan MODEL --accept "fastsafetensors_missing=our image brings the package; imported in it on 2026-11-21"
```

The role [vllm](../roles/vllm/README.md) asks the same rules about the inventory, before anything is touched on any
host. It judges:

- the arguments of `vllm serve`, as they will be in the unit;
- the environment and the driver;
- the memory of the smallest host of the cluster (`memory_fit`, for a model of the catalog or with `vllm_model_facts`).

An error is refused. A warning is a finding of the [doctor](doctor.md), and is in the evidence. Only `gb10 plan`
shows notes. To let an error through, give the reason in a variable; it goes into the evidence:

```yaml
vllm_accept:
  fastsafetensors_missing: our image brings the package; imported in it on 2026-11-21
vllm_version: "0.19.0"     # of an image that catalog/images.yml does not know
```

Sources: seeds 000 to 002 are Conselara's notes (May 2026), 003 Lablup's (February 2026), 004 a thread of NVIDIA's
forum (March 2026), each with lines. The others are vLLM's issues, pull requests and released source, and documents
with a date.
"""

COMMAND_LINE = """\
## The command line

`catalog/vllm_cli.json` holds the flags, values and `VLLM_` variables of vLLM {versions}. `python -m scripts.vllm_cli
VERSION` reads them from the released source, and runs none of it. A version between two of them may use what either
one has. Outside their range an objection is only a warning.
"""

CHIP = """\
## The chip

The rules rest on these facts, from `catalog/sm.yml`. A GB10 has compute capability {capability}.
"""


def page() -> str:
    """The whole page."""
    content = catalog.load("rules")
    known = ", ".join(map(str, vllm_cli.versions()))
    verified = " to ".join(part.lstrip("<>=") for part in content["verified"].split(","))
    chip = catalog.load("sm")
    lines = [
        INTRODUCTION.format(
            count=len(rules.rules()), verified=verified, old=content["old"]["value"].replace("<", "before ")
        ),
        *_rules(),
        COMMAND_LINE.format(versions=known),
        *table(
            ("id", "severity", "why"),
            ((f"`{name}`", entry["severity"], entry["reason"]) for name, entry in content["command_line"].items()),
        ),
        CHIP.format(capability=chip["chip"]["compute_capability"]["value"]),
        *table(("feature", "status", "meaning", "source"), map(_feature, chip["features"])),
        *table(("kernel or format", "kind", "status", "meaning", "source"), map(_kernel, chip["kernels"])),
        "## Where sources do not agree\n",
        *_claims(chip),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _rules() -> Iterator[str]:
    for severity in rules.SEVERITIES:
        chosen = [rule for rule in rules.rules() if rule["severity"] == severity]
        yield f"## {severity}: {len(chosen)} rules\n"
        yield from table(("id", "versions", "why", "fix", "sources"), map(_rule, chosen))


def _rule(rule: dict[str, Any]) -> tuple[str, ...]:
    versions = f"`{rule['versions']}`" if "versions" in rule else "all"
    evidence = f"{'; '.join(rule['sources'])} ({rule['confidence'].replace('_', ' ')}, {rule['date']})"
    return f"`{rule['id']}`", versions, rule["reason"], rule["way_out"], evidence


def _feature(entry: dict[str, Any]) -> tuple[str, ...]:
    return entry["value"], entry["status"], entry["meaning"], entry["source"]


def _kernel(entry: dict[str, Any]) -> tuple[str, ...]:
    return f"`{entry['value']}`", entry["kind"], entry["status"], entry["meaning"], entry["source"]


def _claims(chip: dict[str, Any]) -> Iterator[str]:
    entries = [(rule["id"], rule) for rule in rules.rules()]
    entries += [*chip["chip"].items(), *((entry["value"], entry) for entry in chip["features"] + chip["kernels"])]
    for name, entry in entries:
        if entry.get("claims"):
            yield f"- `{name}`"
            yield from (f"  - {claim}" for claim in entry["claims"])
