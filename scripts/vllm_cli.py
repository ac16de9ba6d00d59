"""`python -m scripts.vllm_cli VERSION...`: what `vllm serve` of a release accepts, as catalog/vllm_cli.json.

Read from the released source, of which nothing is imported or run: the parser's calls of add_argument, the fields of
the configuration classes behind them, and the table of environment variables. What that does not tell is left open.
The file has one line for each name, and in it what changed from which release on. Releases that it has stay in it.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.vllm_cli import TABLES, Tables, tables
from packaging.version import Version

from scripts.gates import ROOT

CATALOG = ROOT / "catalog" / "vllm_cli.json"
ENGINE = "vllm.engine.arg_utils"
# Where the server's own flags have lived, the newest first.
FRONT_ENDS = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
# Flags whose text vLLM compares with a registry after parsing; a plugin named by the second flag may add to it.
REGISTRIES = {
    "--tool-call-parser": ("vllm.tool_parsers", "_TOOL_PARSERS_TO_REGISTER", "--tool-parser-plugin"),
    "--reasoning-parser": ("vllm.reasoning", "_REASONING_PARSERS_TO_REGISTER", "--reasoning-parser-plugin"),
}
# Text as far as argparse goes, but any other name than those of the type hint ends the start.
CHECKED_LATER = {"--quantization", "--load-format"}
# JSON that a configuration is made of later, beside those whose type hint says it.
MADE_LATER = {"--speculative-config": ("vllm.config", "SpeculativeConfig")}
# What pydantic holds a number to, as the catalog calls it.
BOUNDS = {"ge": "least", "gt": "above", "le": "most", "lt": "below"}
# Numbers with a suffix, like 32k: human_readable_int.
SIZES = {
    *("max_model_len", "max_num_batched_tokens", "max_num_scheduled_tokens", "max_num_queued_tokens"),
    *("kv_cache_memory_bytes", "safetensors_prefetch_block_size"),
}


Node = TypeVar("Node", bound=ast.AST)


class Unknown(Exception):
    """Not to be told without running the code."""


def expect(node: ast.AST | Imported, kind: type[Node]) -> Node:
    """The node, where it is of the kind that this reader was written for; a new release may have changed that."""
    if not isinstance(node, kind):
        raise Unknown(f"expected {kind.__name__}, found {type(node).__name__}")
    return node


@dataclass(frozen=True)
class Imported:
    module: str
    name: str


@dataclass(frozen=True)
class Module:
    name: str
    names: dict[str, ast.AST | Imported]
    tree: ast.Module


@dataclass
class Hint:
    """What a type annotation says: the builtin types in it, and the values of its Literal or Enum."""

    types: set[str] = field(default_factory=set)
    choices: list[Any] = field(default_factory=list)

    def __or__(self, other: Hint) -> Hint:
        return Hint(
            self.types | other.types, self.choices + [item for item in other.choices if item not in self.choices]
        )


class Source:
    """The Python files of a package, by dotted name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.module = cache(self._module)

    def _module(self, name: str) -> Module | None:
        path = self.root.joinpath(*name.split("."))
        file = next((found for found in (path.with_suffix(".py"), path / "__init__.py") if found.exists()), None)
        if file is None:
            return None
        tree = ast.parse(file.read_text(encoding="utf-8"))
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        names: dict[str, ast.AST | Imported] = {}
        for statement in _top_level(tree.body):
            for bound, what in _bindings(statement, package):
                names.setdefault(bound, what)  # the branch of TYPE_CHECKING comes first, and says more
        return Module(name, names, tree)

    def need(self, name: str) -> Module:
        module = self.module(name)
        if module is None:
            raise Unknown(f"no module {name}")
        return module

    def find(self, module: Module, name: str) -> tuple[Module, ast.AST]:
        """Where a name is defined, through imports and re-exports."""
        for _ in range(10):
            what = module.names.get(name)
            if what is None:
                raise Unknown(f"{module.name} has no {name}")
            if not isinstance(what, Imported):
                return module, what
            module, name = self.need(what.module), what.name
        raise Unknown(f"{name} is imported in circles")

    def fields(self, module: Module, owner: ast.ClassDef) -> dict[str, tuple[Module, ast.AnnAssign]]:
        """The annotated fields of a class, those of its bases first."""
        found: dict[str, tuple[Module, ast.AnnAssign]] = {}
        for base in owner.bases:
            if isinstance(base, ast.Name):
                try:
                    where, parent = self.find(module, base.id)
                except Unknown:
                    continue
                if isinstance(parent, ast.ClassDef):
                    found.update(self.fields(where, parent))
        for item in owner.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                found[item.target.id] = (module, item)
        return found

    def value(self, module: Module, node: ast.AST | None) -> Any:
        """The value of an expression that is as good as a constant."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [self.value(module, item) for item in node.elts]
        if isinstance(node, ast.Dict) and None not in node.keys:
            pairs = zip(node.keys, node.values, strict=True)
            return {self.value(module, key): self.value(module, item) for key, item in pairs}
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.value(module, node.operand)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self.value(module, node.left) * self.value(module, node.right)
        if isinstance(node, ast.Name):
            where, what = self.find(module, node.id)
            return self.value(where, what)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            where, owner = self.find(module, node.value.id)
            if isinstance(owner, ast.ClassDef):
                inner, item = self.fields(where, owner)[node.attr]
                return self.value(inner, item.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("field", "Field"):
                return self._field(module, node)
            if node.func.id == "get_args":
                return self.hint(module, node.args[0]).choices
        raise Unknown("not a constant")

    def _field(self, module: Module, call: ast.Call) -> Any:
        words = {word.arg: word.value for word in call.keywords}
        if call.args or "default" in words:
            return self.value(module, call.args[0] if call.args else words["default"])
        factory = words.get("default_factory")
        if isinstance(factory, ast.Lambda):
            return self.value(module, factory.body)
        if isinstance(factory, ast.Name) and factory.id in ("list", "dict", "set"):
            return {} if factory.id == "dict" else []
        raise Unknown("made by a factory")

    def hint(self, module: Module, node: ast.AST) -> Hint:
        """What an annotation allows; a class of theirs is "config", what is not understood is "other"."""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                return self.hint(module, ast.parse(node.value, mode="eval").body)
            return Hint({"None"} if node.value is None else {"other"})
        if isinstance(node, ast.BinOp):
            return self.hint(module, node.left) | self.hint(module, node.right)
        if isinstance(node, ast.Subscript):
            return self._subscript(module, node)
        if isinstance(node, ast.Name):
            if node.id in ("int", "float", "str", "bool", "list", "dict", "tuple", "set"):
                return Hint({node.id})
            try:
                where, what = self.find(module, node.id)
            except Unknown:
                return Hint({"other"})
            if isinstance(what, ast.ClassDef):
                return self._class(where, what)
            return self.hint(where, what)
        return Hint({"other"})

    def owner(self, module: Module, node: ast.AST) -> tuple[Module, ast.AST | None]:
        """The class of theirs that an annotation names, if it names one."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval")
        for inner in ast.walk(node):
            with contextlib.suppress(Unknown):
                if isinstance(inner, ast.Name) and isinstance((found := self.find(module, inner.id))[1], ast.ClassDef):
                    return found
        return module, None

    def _subscript(self, module: Module, node: ast.Subscript) -> Hint:
        outer = node.value.id if isinstance(node.value, ast.Name) else ""
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if outer == "Literal":
            choices: list[Any] = []
            for item in inner:
                choices += [item.value] if isinstance(item, ast.Constant) else self.hint(module, item).choices
            return Hint({"Literal"}, choices)
        if outer in ("Union", "Optional"):
            found = Hint({"None"} if outer == "Optional" else set())
            for item in inner:
                found |= self.hint(module, item)
            return found
        if outer in ("list", "dict", "tuple", "set", "type"):
            return Hint({outer})
        return self.hint(module, inner[0])  # Annotated, SkipValidation, ...

    def _class(self, module: Module, owner: ast.ClassDef) -> Hint:
        bases = {ast.unparse(base).rpartition(".")[2] for base in owner.bases}
        if "IntEnum" in bases:
            return Hint({"int"})
        if any("Enum" in base for base in bases):
            members = [item.targets[0] for item in owner.body if isinstance(item, ast.Assign)]
            names = [member.id for member in members if isinstance(member, ast.Name) and not member.id.startswith("_")]
            return Hint({"Enum"}, names)
        return Hint({"config"})


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _top_level(statement.body)
            yield from _top_level(statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from _top_level(statement.body)
        else:
            yield statement


def _bindings(statement: ast.stmt, package: str) -> Iterator[tuple[str, ast.AST | Imported]]:
    if isinstance(statement, ast.ImportFrom):
        parents = package.split(".")
        start = ".".join(parents[: len(parents) + 1 - statement.level]) if statement.level else ""
        module = ".".join(part for part in (start, statement.module or "") if part)
        for item in statement.names:
            yield item.asname or item.name, Imported(module, item.name)
    elif isinstance(statement, ast.ClassDef | ast.FunctionDef):
        yield statement.name, statement
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        yield statement.targets[0].id, statement.value
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        yield statement.target.id, statement.value


class Reader:
    """The flags and variables of one release."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.flags: dict[str, dict[str, Any]] = {}
        self.fields: dict[str, dict[str, Any]] = {}
        self.aliases: dict[str, str] = {}

    def read(self) -> Tables:
        front = next(module for module in map(self.source.module, FRONT_ENDS) if module)
        self.server(front)
        self.calls(front, _function(front.tree, "make_arg_parser"))
        serve = self.source.need("vllm.entrypoints.cli.serve")
        self.calls(serve, serve.tree)
        engine = self.source.need(ENGINE)
        for owner in ("EngineArgs", "AsyncEngineArgs"):
            self.calls(engine, _function(expect(engine.names[owner], ast.ClassDef), "add_cli_args"))
        self.registries()
        pairs = "EnableDisableAction" in self.source.need("vllm.utils.argparse_utils").names
        return {
            "negations": {name: {} for name in (["--no-", "--disable-"] if pairs else ["--no-"])},
            "aliases": {name: {"of": flag} for name, flag in self.aliases.items()},
            "flags": self.flags,
            "fields": self.fields,
            "environment": self.environment(),
        }

    def server(self, module: Module) -> None:
        """The flags made from the fields of FrontendArgs, and what is changed about them afterwards."""
        owner = expect(module.names["FrontendArgs"], ast.ClassDef)
        for name, (where, item) in self.source.fields(module, owner).items():
            self.flags["--" + name.replace("_", "-")] = self.described(where, item)
        for key, what, value in _changes(module.tree):
            flag = self.flags.get("--" + key.replace("_", "-"))
            if flag is None:
                continue
            if what == "type" and value is not None and ast.unparse(value) == "json.loads":
                flag["kind"] = "json"
            elif flag["kind"] == "list" and (what == "nargs" or (what == "action" and _text(value) == "append")):
                flag["kind"] = "text"  # an action of its own, as of --lora-modules, takes several words

    def described(self, module: Module, item: ast.AnnAssign) -> dict[str, Any]:
        """A field as a flag, by the rules of vLLM's get_kwargs."""
        hint = self.source.hint(module, item.annotation)
        flag: dict[str, Any] = {"kind": _kind(hint, expect(item.target, ast.Name).id)}
        if hint.choices and flag["kind"] == "text":
            choices = [str(choice) for choice in hint.choices]
            flag["choices"] = sorted({*choices, *(["None"] if "None" in hint.types else [])})
            if "str" in hint.types:
                flag["open"] = True
            if "Enum" in hint.types:
                flag["fold"] = True
        if isinstance(item.value, ast.Call):
            for word in item.value.keywords:
                if word.arg in BOUNDS and isinstance(word.value, ast.Constant):
                    flag[BOUNDS[word.arg]] = word.value.value
        try:
            default = self.source.value(module, item.value)
        except (Unknown, KeyError):
            return flag
        if default not in (None, False, [], {}, ""):
            flag["default"] = default
        return flag

    def calls(self, module: Module, body: ast.AST) -> None:
        """Every add_argument in it."""
        classes: dict[str, str] = {}
        single: dict[str, tuple[str, str]] = {}
        for node in ast.walk(body):
            if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
                continue
            whole = node.value
            key = _text(whole.slice) if isinstance(whole, ast.Subscript) else None
            value = whole.value if isinstance(whole, ast.Subscript) else whole
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "get_kwargs":
                owner = ast.unparse(value.args[0])
                if key:
                    single[node.targets[0].id] = (owner, key)
                else:
                    classes[node.targets[0].id] = owner
            elif isinstance(value, ast.Name) and value.id in classes and key:
                single[node.targets[0].id] = (classes[value.id], key)
        folded = {
            name for name, what, value in _changes(body) if what == "type" and value and "lower()" in ast.unparse(value)
        }
        widened = {name for name, what, value in _changes(body) if what == "choices"}
        for node in ast.walk(body):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                self.call(module, node, classes, single, folded, widened)

    def call(
        self, module: Module, node: ast.Call, classes: dict[str, str], single: dict[str, tuple[str, str]],
        folded: set[str], widened: set[str],
    ) -> None:  # fmt: skip
        names = [word for word in map(_text, node.args) if word and word.startswith("-")]
        long = next((word for word in names if word.startswith("--")), None)
        if long is None:
            return  # the positional model
        flag: dict[str, Any] = {"kind": "text"}
        for word in node.keywords:
            spread = [word.value] if word.arg is None else []
            if spread and isinstance(word.value, ast.Dict):
                spread = [value for key, value in zip(word.value.keys, word.value.values, strict=True) if key is None]
            for part in spread:
                owner, key = _of(part, classes, single)
                where, found = self.source.find(module, owner)
                home, item = self.source.fields(where, expect(found, ast.ClassDef))[key]
                flag = self.described(home, item)
                if flag.get("fold") and "'auto'" in ast.unparse(found):
                    flag["choices"] = sorted([*flag["choices"], "auto"])
                if key in widened:
                    flag["open"] = True
                if isinstance(part, ast.Name) and part.id in folded:
                    flag["fold"] = True
                self.configuration(long, *self.source.owner(home, item.annotation))
            if word.arg:
                self.keyword(module, flag, word.arg, word.value)
        if long in MADE_LATER:
            package, name = MADE_LATER[long]
            self.configuration(long, *self.source.find(self.source.need(package), name))
        self.flags[long] = flag
        self.aliases.update({name: long for name in names if name != long})

    def configuration(self, flag: str, module: Module, owner: ast.AST | None) -> None:
        """The keys of the JSON that a configuration is made of, all others of which vLLM refuses."""
        if not isinstance(owner, ast.ClassDef) or "config" not in map(_called, owner.decorator_list):
            return
        checked = {name for node in owner.body if isinstance(node, ast.FunctionDef) for name in _before(node)}
        for name, (where, item) in self.source.fields(module, owner).items():
            if "ClassVar" in ast.unparse(item.annotation) or _made_by_itself(item.value):
                continue
            found = self.described(where, item)
            kept = {key: found[key] for key in ("choices", "fold", *BOUNDS.values()) if key in found}
            if "open" in found or (flag, name) == ("--speculative-config", "method"):  # catalog/speculation.yml
                kept.pop("choices", None)
            elif "choices" in kept and name in checked:
                kept["fold"] = True
            self.fields[f"{flag}.{name}"] = kept

    def keyword(self, module: Module, flag: dict[str, Any], name: str, node: ast.expr) -> None:
        text = ast.unparse(node)
        if name == "action" and "store_true" in text:
            flag["kind"] = "store"
        elif name == "action" and "BooleanOptional" in text:
            flag["kind"] = "switch"
        elif name == "type" and text in ("int", "float"):
            flag["kind"] = text
        elif name == "nargs":
            flag["kind"] = "optional" if _text(node) == "?" else "list"
        elif name in ("choices", "default"):
            try:
                value = self.source.value(module, node)
            except (Unknown, KeyError):
                return
            if name == "choices":
                flag["choices"] = sorted(map(str, value))
            elif value not in (None, False):
                flag["default"] = value

    def registries(self) -> None:
        for name in CHECKED_LATER:
            self.flags[name].pop("open", None)
        for name, (package, table, plugin) in REGISTRIES.items():
            found = expect(self.source.need(package).names[table], ast.Dict)
            parsers = sorted(text for text in map(_text, found.keys) if text)
            self.flags[name] |= {"kind": "text", "choices": parsers, "unless": plugin}

    def environment(self) -> dict[str, dict[str, Any]]:
        """The VLLM_ variables of `vllm.envs`, with their values where these are listed."""
        module = self.source.need("vllm.envs")
        table = expect(module.names["environment_variables"], ast.Dict)
        found: dict[str, dict[str, Any]] = {}
        for key, value in zip(table.keys, table.values, strict=True):
            name = _text(key)
            if name and name.startswith("VLLM_"):
                found[name] = self.listed(module, value)
        return found

    def listed(self, module: Module, node: ast.expr) -> dict[str, Any]:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "env_with_choices":
            with contextlib.suppress(Unknown):
                return {"choices": sorted(map(str, self.source.value(module, node.args[2])))}
        return {}


def _kind(hint: Hint, name: str) -> str:
    """In the order in which get_kwargs asks."""
    types = hint.types
    if "config" in types:
        return "json"
    if "bool" in types:
        return "optional" if "str" in types else "switch"
    if hint.choices:
        return "text"
    if types & {"tuple", "list", "set"}:
        return "list"
    if "int" in types:
        return "size" if name in SIZES else "int"
    if "float" in types:
        return "float"
    if "dict" in types and not types & {"str", "other"}:
        return "json"
    return "text"


def _called(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _before(function: ast.FunctionDef) -> Iterator[str]:
    """The fields that it looks at before pydantic does."""
    for node in function.decorator_list:
        if isinstance(node, ast.Call) and _called(node) == "field_validator" and "'before'" in ast.unparse(node):
            yield from (text for text in map(_text, node.args) if text)


def _made_by_itself(node: ast.expr | None) -> bool:
    """Return whether a field is set by its class alone."""
    return isinstance(node, ast.Call) and any(
        word.arg == "init" and ast.unparse(word.value) == "False" for word in node.keywords
    )


def _function(tree: ast.AST, name: str) -> ast.FunctionDef:
    return next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)


def _text(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _of(node: ast.expr, classes: dict[str, str], single: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """The configuration class and field behind `model_kwargs["seed"]`, or behind a name for it."""
    if isinstance(node, ast.Name):
        return single[node.id]
    part = expect(node, ast.Subscript)
    return classes[expect(part.value, ast.Name).id], str(_text(part.slice))


def _changes(body: ast.AST) -> Iterator[tuple[str, str, ast.expr | None]]:
    """`kwargs["field"]["type"] = ...`, `+=` and `del` alike: (field or name of the variable, what, value)."""
    for node in ast.walk(body):
        targets: list[ast.expr] = []
        value = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AugAssign):
            targets, value = [node.target], node.value
        elif isinstance(node, ast.Delete):
            targets = node.targets
        for target in targets:
            what = _text(target.slice) if isinstance(target, ast.Subscript) else None
            if isinstance(target, ast.Subscript) and what:
                inner = target.value
                name = _text(inner.slice) if isinstance(inner, ast.Subscript) else ast.unparse(inner)
                yield str(name), what, value


def download(version: str, work: Path) -> Path:
    """The unpacked source distribution, fetched by pip.

    pip has unpacked it before it asks the package for metadata, which would mean to build it. A build requirement that
    nothing meets stops pip there: no code of the package runs, and what it unpacked stays.
    """
    never = work / "never.txt"
    never.write_text("setuptools<0\n", encoding="utf-8")
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-clean", "--no-deps", "--no-binary", "vllm"]
    argv += ["--build-constraint", str(never), "--dest", str(work / "dist"), f"vllm=={version}"]
    done = subprocess.run(argv, env={**os.environ, "TMPDIR": str(work)}, capture_output=True, text=True, check=False)
    found = list(work.glob("pip-*/vllm_*/vllm/envs.py"))
    if len(found) != 1:
        raise SystemExit(f"pip did not unpack vllm {version}:\n{done.stderr}")
    return found[0].parents[1]


def joined(known: dict[str, Tables]) -> dict[str, Any]:
    """{release: its tables} as the content of the catalog: of each name what changed, by the release that did it."""
    releases = sorted(known, key=Version)
    content: dict[str, Any] = {
        "source": "source distributions of vllm, read by scripts/vllm_cli.py",
        "versions": releases,
    }
    for table in TABLES:
        names = sorted({name for each in known.values() for name in each[table]})
        content[table] = {
            name: _changes_of([known[each][table].get(name) for each in releases], releases) for name in names
        }
    return content


def _changes_of(states: list[dict[str, Any] | None], releases: list[str]) -> dict[str, dict[str, Any] | None]:
    """{release: change} of one name."""
    found: dict[str, dict[str, Any] | None] = {}
    before: dict[str, Any] | None = None
    for release, state in zip(releases, states, strict=True):
        if state != before:
            found[release] = None if state is None else _change(before or {}, state)
        before = state
    return found


def _change(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The fields that differ, null for one that went; of choices only those that came and went."""
    change: dict[str, Any] = {key: after.get(key) for key in [*after, *before] if after.get(key) != before.get(key)}
    if before.get("choices") and change.get("choices"):
        old, new = set(before["choices"]), set(change.pop("choices"))
        change |= {key: sorted(part) for key, part in (("more", new - old), ("fewer", old - new)) if part}
    return change


def kept(content: dict[str, Any]) -> dict[str, Tables]:
    """{release: its tables} of a catalog."""
    return {release: tables(content, release) for release in content["versions"]}


def written(content: dict[str, Any]) -> str:
    """JSON with one line for each name, so that the diff of a release can be read."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict):
            inner = ",\n".join(f"    {json.dumps(name)}: {json.dumps(item)}" for name, item in value.items())
            lines.append(f"  {json.dumps(key)}: {{\n{inner}\n  }}")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(versions: list[str]) -> int:
    if not versions:
        print("Which releases? For example: python -m scripts.vllm_cli 0.19.0", file=sys.stderr)
        return 2
    known = kept(json.loads(CATALOG.read_text(encoding="utf-8"))) if CATALOG.exists() else {}
    for version in versions:
        with tempfile.TemporaryDirectory() as work:
            known[version] = Reader(Source(download(version, Path(work)))).read()
        print(f"{version}: {len(known[version]['flags'])} flags, {len(known[version]['environment'])} variables")
    CATALOG.write_text(written(joined(known)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
