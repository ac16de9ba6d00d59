# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders a role's document, `roles/<role>/desired.yml`, for one host.

The file is data first: it is read as YAML, and only then are the strings in it evaluated, each on its own. So no value,
wherever it comes from, can become a resource or a template. A string that is one `{{ expression }}` gives the value of
the expression, a string with `{{` in it gives text, any other string is itself.

An expression sees the role's `plan` (plans/<role>.py), the public variables of the roles, `catalog`, `item` of a loop,
`inventory_hostname`, `source(NAME)`, the text of a program, `secret_of_run(PURPOSE)`, and `key_of(SECRET, PURPOSE)`, a
key made of another. It decides nothing: that is the planner's.

Everything that is the same for all hosts (YAML, expressions, catalogs) is read and compiled once, by `preload`. A
template is compiled when a host first needs it. Names are looked up when an expression needs them: what is not used
costs nothing, and cannot fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from ansible.plugins.filter import core as core_filters
from ansible.plugins.filter import mathstuff
from ansible.plugins.test import core as core_tests
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, plan, programs, run, settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import PlanError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from jinja2 import Environment, StrictUndefined, Template, TemplateError, Undefined, nodes

FILE_CONTENTS = ("content", "merge_json", "default_json")
CONTROL_KEYS = ("loop", "when")
BLOCK_KEYS = {"when", "block"}
SHOWN_OF_AN_ERROR = 300  # characters


class RenderError(Exception):
    """A document that is wrong in itself or does not fit its host; the text names role, place and host."""


@dataclass(frozen=True)
class Rendered:
    """One role's document for one host.

    A role with refusals has no resources, nor has one with `unknown`: members of the cluster whose facts its plan
    needs, and that are missing or uncertain. `findings` stop nothing; the doctor shows them.
    """

    role: str
    resources: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    unknown: tuple[str, ...] = ()
    findings: list[Mapping[str, Any]] = field(default_factory=list)


def plain(value: Any) -> Any:
    """The value in Python's own types: tags and lazy containers of Ansible's are left behind, generators run."""
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, (bool, int, float)):
        return (bool if isinstance(value, bool) else int if isinstance(value, int) else float)(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return [plain(item) for item in value]
    if is_dataclass(value):
        return plan.shown(value)
    raise TypeError(f"a value of the type {type(value).__name__} cannot go into a document")


# -- names -------------------------------------------------------------------------------------------------------------


class _Catalogs:
    """`catalog.NAME` is the content of catalog/NAME.yml."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        return catalog.load(name)


@cache
def _owner(variable: str) -> str | None:
    """The role that declares a variable."""
    return next((role for role, options in catalog.declared_variables().roles.items() if variable in options), None)


class _Scope:
    """The names of one role on one host. Each is looked up when it is first needed."""

    def __init__(self, role: Role, view: View) -> None:
        self.role = role
        self.view = view
        self._known: dict[str, Any] = {}

    def evaluate(self, code: _Code | Source, item: Mapping[str, Any] | None = None) -> Any:
        try:
            if isinstance(code, Source):
                code = compiled(code)
            return code.run({**self._names(code.names), **(item or {})})
        except (RenderError, PlanError, SettingsError):
            raise
        except Exception as error:  # a filter may raise anything
            text = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN_OF_AN_ERROR]
            raise RenderError(f"role {self.role.name}, {code.where}, on {self.view.host}: {text}") from error

    def value(self, node: Any, item: Mapping[str, Any] | None = None) -> Any:
        """A part of the document with all its expressions evaluated."""
        if isinstance(node, _Code):
            return self.evaluate(node, item)
        if isinstance(node, dict):
            return {key: self.value(part, item) for key, part in node.items()}
        if isinstance(node, list):
            return [self.value(part, item) for part in node]
        return node

    def _names(self, wanted: Iterable[str]) -> dict[str, Any]:
        for name in wanted:
            if name not in self._known:
                self._look_up(name)
        return {name: self._known[name] for name in wanted if name in self._known}

    def _look_up(self, name: str) -> None:
        """Unknown names stay away: Jinja has some of its own, and refuses the others."""
        if name == "plan":
            self._known[name] = plan.of(self.role.name, self.view)
        elif name == "catalog":
            self._known[name] = _Catalogs()
        elif name == "inventory_hostname":
            self._known[name] = self.view.host
        elif name == "source":
            self._known[name] = programs.source
        elif name == "modules_of":
            self._known[name] = programs.modules_of
        elif name == "installed":
            self._known[name] = programs.installed
        elif name == "secret_of_run":
            self._known[name] = run.secret
        elif name == "key_of":
            self._known[name] = run.key_of
        elif (owner := _owner(name)) is not None:  # also of another role, as any role of Ansible's sees it
            self._known[name] = settings.converted(owner, self.view.variables)[name]


# -- reading and compiling ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Code:
    """A compiled string. `where` is its place in the file, `names` are those it uses."""

    where: str
    names: frozenset[str]
    run: Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Source:
    """A template and its place in the file."""

    text: str
    where: str


@dataclass(frozen=True)
class _Resource:
    """An entry of `resources`: attributes with `loop` and `when`. `blocks` are the conditions of those it stands in."""

    attributes: Mapping[str, Any]
    loop: Any = None
    when: _Code | None = None
    template: Source | None = None
    blocks: tuple[_Code, ...] = ()


@dataclass(frozen=True)
class Role:
    """A role's document, compiled."""

    name: str
    resources: list[_Resource]
    removes_orphans: bool = False


def _environment() -> Environment:
    """Jinja as Ansible sets it up for templates, without Ansible's own layer: that costs 30 ms a template."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 - no HTML
    # What core overrides of Jinja's own (default, map, defined, ...) knows undefined values of Ansible's layer only.
    for module in (core_filters, mathstuff):
        environment.filters = {**module.FilterModule().filters(), **environment.filters}
    environment.tests = {**core_tests.TestModule().tests(), **environment.tests}
    return environment


_JINJA = _environment()
# By source: whether it is a single expression, the names in it, and what Jinja made of it.
_Compiled = tuple[bool, frozenset[str], CodeType]
_COMPILED: dict[str, _Compiled] = {}


def preload() -> None:
    """Read and compile everything that is the same for all hosts.

    Called when an action plugin of ours is imported: Ansible's strategies do that before they fork, so each worker
    inherits it.
    """
    root = catalog.collection_root()
    for path in root.glob("catalog/*.yml"):
        if path.stem not in catalog.OF_SERVING:
            catalog.load(path.stem)
    for path in sorted(root.glob("roles/*/desired.yml")):
        load(path.parent.name)


@cache
def load(name: str, root: Path | None = None) -> Role:
    """The document of a role; RenderError says what is wrong with it."""
    folder = (root or catalog.collection_root()) / "roles" / name
    if not (folder / "desired.yml").is_file():
        raise RenderError(f"{name} is no role with a document: there is no roles/{name}/desired.yml")
    try:
        content = catalog.read(folder / "desired.yml")
        if not {"resources"} <= set(content) <= {"resources", "orphans"} or not isinstance(content["resources"], list):
            raise RenderError(
                f"role {name}, desired.yml: expected the key resources with a list, and no other but orphans"
            )
        if content.get("orphans", "remove") != "remove":
            raise RenderError(f"role {name}, desired.yml: orphans is remove, or is left out")
        return Role(name, list(_entries(folder, "resources", content["resources"])), "orphans" in content)
    except (TemplateError, catalog.CatalogError, OSError) as error:
        raise RenderError(f"role {name}: {error}") from error


def removes_orphans(name: str) -> bool:
    """Tell whether what the role declares no longer goes with the next run, without a word from the operator.

    A role of somebody's own, with resources in its tasks, has no document here and keeps what is left over.
    """
    ours = catalog.collection_root() / "roles" / name / "desired.yml"
    return ours.is_file() and load(name).removes_orphans


def _entries(folder: Path, where: str, listed: list[Any], blocks: tuple[_Code, ...] = ()) -> Iterator[_Resource]:
    """The entries of a list. Those of a block stand in its place, with its condition."""
    for index, raw in enumerate(listed):
        place = f"{where}[{index}]"
        if not isinstance(raw, dict):
            raise RenderError(f"role {folder.name}, {place}: expected a mapping")
        if "block" not in raw:
            yield _resource(folder, place, raw, blocks)
        elif set(raw) != BLOCK_KEYS:
            key = next((key for key in raw if key not in BLOCK_KEYS), "when")
            raise RenderError(f"role {folder.name}, {place}.{key}: a block has the keys when and block, and no other")
        elif not isinstance(raw["block"], list):
            raise RenderError(f"role {folder.name}, {place}.block: expected a list")
        else:
            condition = _expression(folder.name, raw["when"], f"{place}.when")
            yield from _entries(folder, f"{place}.block", raw["block"], (*blocks, condition))


def _resource(folder: Path, where: str, raw: dict[str, Any], blocks: tuple[_Code, ...]) -> _Resource:
    rest = {key: value for key, value in raw.items() if key not in (*CONTROL_KEYS, "template")}
    template = None
    if "template" in raw:
        if "file" not in raw or any(key in raw for key in FILE_CONTENTS):
            raise RenderError(f"role {folder.name}, {where}.template: is for a file without {', '.join(FILE_CONTENTS)}")
        template = Source((folder / "templates" / raw["template"]).read_text(encoding="utf-8"), f"{where}.template")
    return _Resource(
        {key: _compile(value, f"{where}.{key}") for key, value in rest.items()},
        loop=_compile(raw["loop"], f"{where}.loop") if "loop" in raw else None,
        when=_expression(folder.name, raw["when"], f"{where}.when") if "when" in raw else None,
        template=template,
        blocks=blocks,
    )


def _compile(value: Any, where: str) -> Any:
    """The value with code in place of every string that is to be evaluated."""
    if isinstance(value, dict):
        return {key: _compile(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_compile(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, str) or "{{" not in value:
        return value
    return _code(value, where)


def _expression(role: str, source: Any, where: str) -> _Code:
    """Of a `when`, which stands without braces. A list would be true, whatever it lists, and nothing would be false."""
    if not isinstance(source, str) or not source.strip():
        raise RenderError(f"role {role}, {where}: expected an expression")
    return _code("{{ (" + source + "\n) }}", where)


@cache
def compiled(source: Source) -> _Code:
    """A template as code. Most hosts need few of them, and Jinja takes up to 30 ms for one."""
    return _code(source.text, source.where)


def _code(source: str, where: str) -> _Code:
    if source not in _COMPILED:
        _COMPILED[source] = _translated(source)
    single, names, code = _COMPILED[source]
    template = Template.from_code(_JINJA, code, _JINJA.make_globals(None))
    if not single:
        return _Code(where, names, template.render)

    def run(given: dict[str, Any]) -> Any:
        context = template.new_context(given)
        for __ in template.root_render_func(context):
            pass
        return plain(context.vars["result"])

    return _Code(where, names, run)


def _translated(source: str) -> _Compiled:
    """An expression becomes an assignment, for its value. Jinja's compile_expression would hide what is undefined."""
    tree = _JINJA.parse(source)
    # With those of loops in it; which does no harm, as long as they are none of ours.
    names = frozenset(node.name for node in tree.find_all(nodes.Name))
    match tree.body:
        case [nodes.Output(nodes=[expression])] if (source[:2], source[-2:]) == ("{{", "}}"):
            result = nodes.Assign(nodes.Name("result", "store"), expression, lineno=1)
            return True, names, _JINJA.compile(nodes.Template([result], lineno=1))
    return False, names, _JINJA.compile(tree)


# -- rendering ---------------------------------------------------------------------------------------------------------


def render(role: str, view: View) -> Rendered:
    """The document of a role for one host, or what speaks against it. RenderError where it cannot be told."""
    scope = _Scope(load(role), view)
    try:
        made = plan.of(role, view)
    except SettingsError as error:
        return Rendered(role, refusals=[str(error)])
    except PlanError as error:
        made = plan.RolePlan(joint_refusals=(str(error),))
    unknown = view.unknown if made.joint_refusals else ()
    refusals = list(dict.fromkeys([*made.refusals, *(() if unknown else made.joint_refusals)]))
    if refusals or unknown:
        return Rendered(role, refusals=refusals, unknown=unknown, findings=list(made.findings))
    try:
        resources = [resource for entry in scope.role.resources for resource in _resources(scope, entry)]
    except SettingsError as error:  # of a role without a plan
        return Rendered(role, refusals=[str(error)])
    return Rendered(role, resources, findings=list(made.findings))


def _resources(scope: _Scope, entry: _Resource) -> Iterator[dict[str, Any]]:
    """Yield what an entry stands for.

    Itself, or each item of its loop, where its condition and those of its blocks hold.
    """
    if not all(scope.evaluate(condition) for condition in entry.blocks):
        return
    items = [None] if entry.loop is None else [{"item": item} for item in scope.value(entry.loop)]
    for item in items:
        if entry.when is not None and not scope.evaluate(entry.when, item):
            continue
        resource = {key: scope.value(part, item) for key, part in entry.attributes.items()}
        if entry.template is not None:
            resource["content"] = str(scope.evaluate(entry.template, item))
        if isinstance(resource.get("content"), str) and (says := _managed(scope.view)):
            resource["content"] = _WRITTEN_BY.sub(lambda line: f"{line[0]} {says}", resource["content"], count=1)
        yield resource


# The first line of our files, whatever makes a comment of it.
_WRITTEN_BY = re.compile(r"\bWritten by gb10-fleet, role .*")


def _managed(view: View) -> str:
    """What the owner says of managed files in `ansible_managed`: one line, without what would end it."""
    said = view.variables.get("ansible_managed")
    return printable(" ".join(said.split())).rstrip("\\") if isinstance(said, str) else ""
