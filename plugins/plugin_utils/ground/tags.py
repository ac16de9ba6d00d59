# SPDX-License-Identifier: GPL-3.0-or-later
"""What `--tags` and `--skip-tags` choose among the roles of a host. Pure.

Not in the play's own Jinja: each worker would compile that anew, a third of what a changed host cost the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.catalog import ROLES

# The name of a part stands for its roles, the name of a role for itself.
PARTS = {
    "host": ROLES[: ROLES.index("fabric")],
    "fabric": ("fabric",),
    "serving": ROLES[ROLES.index("fabric") + 1 :],
}
_OTHERS = ("all", "tagged", "untagged", "always", "doctor", "validate")
_MOLECULES = "notest"  # it always skips tags of its own, which end like this


def chosen_roles(
    own: Sequence[str] | None, run_tags: Iterable[str], skip_tags: Iterable[str], part: str | None = None
) -> list[str]:
    """The roles that a run takes of a host's `own` (None: every role), of one part or of all, in the order of work."""
    taken = set(ROLES) if "all" in run_tags else _named(run_tags)
    taken -= _named(skip_tags)
    return [role for role in (PARTS[part] if part else ROLES) if role in taken and (own is None or role in own)]


def mistyped_tags(run_tags: Iterable[str], skip_tags: Iterable[str]) -> list[str]:
    """The tags that nobody has, sorted: Ansible takes one for a choice of nothing, and the run would be green."""
    given = {str(tag) for tag in (*run_tags, *skip_tags)}
    return sorted(tag for tag in given.difference(known_tags()) if not tag.endswith(_MOLECULES))


def known_tags() -> list[str]:
    """All there are, in the order of work."""
    return list(dict.fromkeys([*PARTS, *ROLES, *_OTHERS]))


def _named(tags: Iterable[str]) -> set[str]:
    return {role for tag in tags for role in PARTS.get(str(tag), (str(tag),))}
