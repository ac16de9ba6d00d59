"""`python -m scripts.forge`: the files for a public forge, by the tools that know them. They have never run on one."""

from __future__ import annotations

import sys

from scripts.gates import ROOT, Gate, GateFailed, execute

# Every file below .github that is data, by the schema that it has to fit.
SCHEMAS = {
    "workflows/*.yml": "github-workflows",
    "dependabot.yml": "dependabot",
    "ISSUE_TEMPLATE/config.yml": "github-issue-config",
    "ISSUE_TEMPLATE/[!c]*.yml": "github-issue-forms",
}


def forge(gate: Gate) -> None:
    """Schemas come with check-jsonschema, and zizmor runs offline: no network."""
    seen = set()
    for pattern, schema in SCHEMAS.items():
        files = sorted((ROOT / ".github").glob(pattern))
        if not files:
            raise GateFailed(f".github/{pattern}: there is no such file")
        gate.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)
        seen.update(files)
    if unseen := sorted(str(path.relative_to(ROOT)) for path in set((ROOT / ".github").rglob("*.yml")) - seen):
        raise GateFailed(f"no schema looked at {', '.join(unseen)}")
    gate.run("zizmor", "--offline", "--no-progress", "--persona", "pedantic", ".github")
    gate.run("pre-commit", "validate-config", ".pre-commit-config.yaml")


if __name__ == "__main__":
    sys.exit(execute(Gate("files for the forge", forge)).failed)
