# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders a role's document, `roles/<role>/desired.yml`, for one host.

The file is data first: it is read as YAML, and only then are the strings in it evaluated, each on its own. So no value,
wherever it comes from, can become a resource or a template. A string that is one `{{ expression }}` gives the value of
the expression, a string with `{{` in it gives text, any other string is itself.

Everything that is the same for all hosts (YAML, expressions, templates, catalogs) is read and compiled once, by
`preload`. Names are looked up when an expression needs them: what is not used costs nothing, and cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from types import CodeType
from typing import Any

from ansible.plugins.filter import core as core_filters
from ansible.plugins.filter import mathstuff
from ansible.plugins.test import core as core_tests
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import kept
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import addresses, debian_version, fabric, plan, settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.plan import PlanError
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.view import View
from jinja2 import Environment, StrictUndefined, Template, TemplateError, Undefined, nodes

SECTIONS = ("vars", "refuse", "findings", "resources")
STANDARD_NAMES = (
    *(
        "plan",
        "spark",
        "catalog",
        "cluster",
        "fabric",
        "inventory_hostname",
        "source",
        "variables_of",
        "item",
    ),
)
FILE_CONTENTS = ("content", "merge_json", "default_json")
CONTROL_KEYS = ("loop", "when")
SHOWN_OF_AN_ERROR = 300  # characters


class RenderError(Exception):
    """A document that is wrong in itself or does not fit its host; the text names role, place and host."""


@dataclass(frozen=True)
class Rendered:
    """One role's document for one host.

    A role with refusals has no resources, nor has one with `unknown`: members of the cluster whose facts the document
    needs, and which nobody has or nobody is certain of. `findings` stop nothing; the doctor says them.
    """

    role: str
    resources: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    unknown: tuple[str, ...] = ()
    findings: list[dict[str, Any]] = field(default_factory=list)


class Fabric:
    """The fabric plan of the host's cluster: `plan`, and the host's own part of it, `mine`."""

    def __init__(self, view: View) -> None:
        self.plan = view.plan(fabric.plan)
        self.mine = self.plan.mine
        self.fixed_gid_index = self.plan.fixed_gid_index


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


# -- what is known, by name --------------------------------------------------------------------------------------------


class _Variables(Mapping[str, Any]):
    """The public variables of one role as one host has them: converted, defaults filled in."""

    def __init__(self, role: Role, given: Mapping[str, Any]) -> None:
        self._role = role
        self._given = given

    @cached_property
    def _values(self) -> dict[str, Any]:
        if self._role.name not in catalog.declared_variables().roles:  # a test's own
            return {
                **self._role.defaults,
                **{name: self._given[name] for name in self._given if name in self._role.defaults},
            }
        return settings.converted(self._role.name, self._given)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._role.defaults)

    def __len__(self) -> int:
        return len(self._role.defaults)

    def __contains__(self, name: object) -> bool:
        return name in self._role.defaults


class _Said(Mapping[str, Mapping[str, Any]]):
    """What each member of the cluster says in the public variables of one role."""

    def __init__(self, role: Role, context: View) -> None:
        self._role = role
        self._context = context

    def __getitem__(self, member: str) -> Mapping[str, Any]:
        if member not in self._context.members:
            raise KeyError(member)
        own = member == self._context.host
        return _Variables(self._role, self._context.variables if own else self._context.given.get(member, {}))

    def __iter__(self) -> Iterator[str]:
        return iter(self._context.members)

    def __len__(self) -> int:
        return len(self._context.members)


class _Cluster:
    """The hosts that serve together with this one."""

    def __init__(self, role: Role, context: View) -> None:
        self.members = context.members
        self.rank = context.members.index(context.host)
        self.size = len(context.members)
        self.facts = context.cluster_facts
        self.said = _Said(role, context)


class _Catalogs:
    """`catalog.NAME` is the content of catalog/NAME.yml."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        return catalog.load(name)


@cache
def module_source(name: str) -> str:
    """The text of plugins/module_utils/programs/NAME.py, for one that is also a program on the host."""
    return (catalog.collection_root() / "plugins" / "module_utils" / "programs" / f"{name}.py").read_text(
        encoding="utf-8"
    )


@cache
def _owner(variable: str) -> str | None:
    """The role that declares a variable."""
    return next((role for role, options in catalog.declared_variables().roles.items() if variable in options), None)


class _Scope:
    """The names of one role on one host. Each is looked up when it is first needed."""

    def __init__(self, role: Role, context: View) -> None:
        self.role = role
        self.context = context
        self._variables = _Variables(role, context.variables)
        self._known: dict[str, Any] = {}

    def evaluate(self, code: _Code, item: Mapping[str, Any] | None = None) -> Any:
        try:
            return code.run({**self._names(code.names), **(item or {})})
        except (RenderError, PlanError, SettingsError):
            raise
        except Exception as error:  # a filter may raise anything
            said = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN_OF_AN_ERROR]
            raise RenderError(f"role {self.role.name}, {code.where}, on {self.context.host}: {said}") from error

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
        context = self.context
        if name in self.role.vars:
            self._known[name] = self.value(self.role.vars[name])
        elif name in self._variables:
            self._known[name] = self._variables[name]
        elif (owner := _owner(name)) is not None:  # a variable of another role, as any role of Ansible's sees it
            self._known[name] = settings.converted(owner, context.variables)[name]
        elif name == "plan":
            self._known[name] = plan.of(self.role.name, context)
        elif name == "spark":
            self._known[name] = context.cluster_facts[context.host]
        elif name == "catalog":
            self._known[name] = _Catalogs()
        elif name == "cluster":
            self._known[name] = _Cluster(self.role, context)
        elif name == "fabric":
            self._known[name] = Fabric(context)
        elif name == "inventory_hostname":
            self._known[name] = context.host
        elif name == "source":
            self._known[name] = module_source
        elif name == "variables_of":
            self._known[name] = lambda role: _Variables(load(role), context.variables)


# -- reading and compiling ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Code:
    """A compiled string. `where` is its place in the file, `names` are those it uses."""

    where: str
    names: frozenset[str]
    run: Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class _Resource:
    """An entry of `resources`: attributes with `loop` and `when`, or (`attributes` is code) an expression."""

    where: str
    attributes: Any
    loop: Any = None
    when: _Code | None = None
    template: _Code | None = None


@dataclass(frozen=True)
class _Refusal:
    """An entry of `refuse`, with `loop` once for each item.

    A joint one depends on the facts of the other members, through the plan of the fabric.
    """

    because: Any
    joint: bool
    when: _Code | None = None
    loop: Any = None


@dataclass(frozen=True)
class Role:
    """A role's document, compiled, with the defaults of its public variables."""

    name: str
    defaults: dict[str, Any]
    vars: dict[str, Any]
    refuse: list[_Refusal]
    findings: Any
    resources: list[_Resource]


def _environment() -> Environment:
    """Jinja as Ansible sets it up for templates, without Ansible's own layer: that costs 30 ms a template."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 - no HTML
    # What core overrides of Jinja's own (default, map, defined, ...) knows undefined values of Ansible's layer only.
    for module in (core_filters, mathstuff):
        environment.filters = {**module.FilterModule().filters(), **environment.filters}
    environment.tests = {**core_tests.TestModule().tests(), **environment.tests}  # type: ignore[no-untyped-call]
    environment.tests["dpkg_newer_than"] = debian_version.newer_than
    environment.tests["ports"] = addresses.is_ports
    environment.tests["within"] = addresses.is_within
    environment.tests["network"] = addresses.is_network
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
    kept.catalogs("catalogs", frozenset(path.stem for path in root.glob("catalog/*.yml")) - catalog.OF_SERVING)
    states = sorted(root.glob("roles/*/desired.yml"))
    templates = sorted(root.glob("roles/*/templates/*"))

    def compiled() -> dict[str, _Compiled]:
        for path in states:
            load(path.parent.name)
        return _COMPILED

    _COMPILED.update(kept.computed("documents", [Path(__file__), *states, *templates], compiled))
    compiled()


@cache
def load(name: str, root: Path | None = None) -> Role:
    """The document of a role; RenderError says what is wrong with it."""
    folder = (root or catalog.collection_root()) / "roles" / name
    if not (folder / "desired.yml").is_file():
        raise RenderError(f"{name} is no role with a document: there is no roles/{name}/desired.yml")
    try:
        return _role(name, folder)
    except (TemplateError, catalog.CatalogError, OSError) as error:
        raise RenderError(f"role {name}: {error}") from error


def _role(name: str, folder: Path) -> Role:
    content = catalog.read(folder / "desired.yml")
    unknown = sorted(set(content) - set(SECTIONS), key=str)
    if unknown:
        raise RenderError(f"role {name}, desired.yml: {unknown[0]} is none of {', '.join(SECTIONS)}")
    defaults = catalog.read(folder / "defaults" / "main.yml") if (folder / "defaults" / "main.yml").is_file() else {}
    for variable, value in defaults.items():
        if _has_template(value):
            raise RenderError(
                f"role {name}, defaults/main.yml: {variable} is a template; its place is vars of desired.yml"
            )
    variables = _vars(name, content.get("vars") or {}, set(defaults))
    return Role(
        name,
        defaults,
        variables,
        _refusals(name, content.get("refuse") or [], variables),
        _compile(content.get("findings") or [], "findings"),
        [_resource(folder, index, raw) for index, raw in enumerate(content.get("resources") or [])],
    )


def _vars(role: str, raw: Mapping[str, Any], taken: set[str]) -> dict[str, Any]:
    compiled: dict[str, Any] = {}
    for name, value in raw.items():
        if name in taken or name in STANDARD_NAMES:
            raise RenderError(f"role {role}, vars.{name}: the name has a meaning already")
        compiled[name] = _compile(value, f"vars.{name}")
        early = sorted(_names_in(compiled[name]) & set(raw) - set(compiled) | _names_in(compiled[name]) & {name})
        if early:
            raise RenderError(f"role {role}, vars.{name}: {early[0]} is not defined above it")
    return compiled


def _refusals(role: str, raw: Any, variables: Mapping[str, Any]) -> list[_Refusal]:
    refusals = []
    for index, entry in enumerate(raw):
        keys = set(entry) if isinstance(entry, dict) else set()
        if "because" not in keys or not {"because"} < keys <= {"because", *CONTROL_KEYS}:
            raise RenderError(f"role {role}, refuse[{index}]: expected the keys when or loop, and because")
        where = f"refuse[{index}]"
        when = _expression(str(entry["when"]), f"{where}.when") if "when" in entry else None
        loop = _compile(entry["loop"], f"{where}.loop") if "loop" in entry else None
        joint = "fabric" in _all_names([when, loop], variables)
        refusals.append(_Refusal(_compile(entry["because"], f"{where}.because"), joint, when, loop))
    return refusals


def _all_names(node: Any, variables: Mapping[str, Any]) -> set[str]:
    """The names in a node, and those in the `vars` it uses."""
    names = _names_in(node)
    return names.union(*(_all_names(variables[name], variables) for name in names & set(variables)))


def _resource(folder: Path, index: int, raw: Any) -> _Resource:
    where = f"resources[{index}]"
    if isinstance(raw, str):
        return _Resource(where, _compile(raw, where))
    if not isinstance(raw, dict):
        raise RenderError(
            f"role {folder.name}, {where}: expected a mapping, or an expression that gives one or a list of them"
        )
    rest = {key: value for key, value in raw.items() if key not in (*CONTROL_KEYS, "template")}
    template = None
    if "template" in raw:
        if "file" not in raw or any(key in raw for key in FILE_CONTENTS):
            raise RenderError(f"role {folder.name}, {where}.template: is for a file without {', '.join(FILE_CONTENTS)}")
        template = _code((folder / "templates" / raw["template"]).read_text(encoding="utf-8"), f"{where}.template")
    return _Resource(
        where,
        {key: _compile(value, f"{where}.{key}") for key, value in rest.items()},
        loop=_compile(raw["loop"], f"{where}.loop") if "loop" in raw else None,
        when=_expression(str(raw["when"]), f"{where}.when") if "when" in raw else None,
        template=template,
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


def _expression(source: str, where: str) -> _Code:
    """Of a `when`, which stands without braces."""
    return _code("{{ (" + source + "\n) }}", where)


def _code(source: str, where: str) -> _Code:
    if source not in _COMPILED:
        _COMPILED[source] = _translated(source)
    single, names, code = _COMPILED[source]
    template = Template.from_code(_JINJA, code, _JINJA.make_globals(None))
    if not single:
        return _Code(where, names, template.render)

    def run(given: dict[str, Any]) -> Any:
        context = template.new_context(given)
        for _ in template.root_render_func(context):
            pass
        return plain(context.vars["result"])

    return _Code(where, names, run)


def _translated(source: str) -> _Compiled:
    """An expression becomes an assignment, for its value. Jinja's compile_expression would hide what is undefined."""
    tree = _JINJA.parse(source)
    names = _used_names(tree)
    match tree.body:
        case [nodes.Output(nodes=[expression])] if (source[:2], source[-2:]) == ("{{", "}}"):
            result = nodes.Assign(nodes.Name("result", "store"), expression, lineno=1)
            return True, names, _JINJA.compile(nodes.Template([result], lineno=1))
    return False, names, _JINJA.compile(tree)


def _used_names(tree: nodes.Node) -> frozenset[str]:
    """With those of loops in it; which does no harm, as long as they are none of ours."""
    return frozenset(node.name for node in tree.find_all(nodes.Name))


def _names_in(node: Any) -> set[str]:
    if isinstance(node, _Code):
        return set(node.names)
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return {name for part in parts for name in _names_in(part)}


def _has_template(value: Any) -> bool:
    return bool(_names_in(_compile(value, "")))


# -- rendering ---------------------------------------------------------------------------------------------------------


def render(role: str, view: View) -> Rendered:
    """The document of a role for one host, or what speaks against it. RenderError where it cannot be told."""
    try:
        return _render(role, view)
    except SettingsError as error:
        return Rendered(role, refusals=[str(error)])


def _render(role: str, view: View) -> Rendered:
    scope = _Scope(load(role), view)
    refusals, joint, findings = list[str](), list[str](), list[Any]()
    try:
        made = plan.of(role, view)
        refusals, joint, findings = list(made.refusals), list(made.joint_refusals), list(made.findings)
    except PlanError as error:
        joint = [str(error)]
    for refusal in scope.role.refuse:
        try:
            texts = [str(scope.value(refusal.because, item)).strip() for item in _chosen(scope, refusal)]
        except PlanError as error:
            texts = [str(error)]
        (joint if refusal.joint else refusals).extend(texts)
    findings += scope.value(scope.role.findings)
    unknown = view.unknown if joint else ()
    refusals = list(dict.fromkeys([*refusals, *([] if unknown else joint)]))
    if refusals or unknown:
        return Rendered(role, refusals=refusals, unknown=unknown, findings=findings)
    try:
        resources = [resource for entry in scope.role.resources for resource in _resources(scope, entry)]
    except PlanError as error:
        refusals = [] if view.unknown else [str(error)]
        return Rendered(role, refusals=refusals, unknown=view.unknown, findings=findings)
    return Rendered(role, resources, findings=findings)


def _chosen(scope: _Scope, entry: _Refusal | _Resource) -> Iterator[dict[str, Any] | None]:
    """What an entry stands for: itself, or each item of its loop, where its condition holds."""
    items = [None] if entry.loop is None else [{"item": item} for item in scope.value(entry.loop)]
    for item in items:
        if entry.when is None or scope.evaluate(entry.when, item):
            yield item


def variable(role: str, name: str, context: View) -> Any:
    """What one of the `vars` of a role's document is for one host, for an action that needs the same."""
    scope = _Scope(load(role), context)
    return scope.value(scope.role.vars[name])


def _resources(scope: _Scope, entry: _Resource) -> Iterator[dict[str, Any]]:
    if isinstance(entry.attributes, dict):
        for item in _chosen(scope, entry):
            resource = scope.value(entry.attributes, item)
            if entry.template is not None:
                resource["content"] = str(scope.evaluate(entry.template, item))
            yield resource
        return
    value = scope.value(entry.attributes)
    for resource in value if isinstance(value, list) else [value]:
        if not isinstance(resource, dict):
            where = f"role {scope.role.name}, {entry.where}, on {scope.context.host}"
            raise RenderError(f"{where}: expected a mapping or a list of mappings")
        yield resource
