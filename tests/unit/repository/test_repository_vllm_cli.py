"""The tool that reads a release of vLLM without running it, and the page that is written from the catalog of rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import vllm_cli

# A release in small: the same shapes as vLLM's, and code at the top that must never run.
PACKAGE = {
    "vllm/envs.py": """
raise SystemExit("ran")
environment_variables = {
    "CUDA_HOME": lambda: 1,
    "VLLM_PORT": lambda: 1,
    "VLLM_COLOUR": env_with_choices("VLLM_COLOUR", "red", ["red", "blue"]),
    "VLLM_SHADE": env_with_choices("VLLM_SHADE", "red", lambda: shades()),
}
""",
    "vllm/config/__init__.py": "from .model import ModelConfig\n",
    "vllm/config/model.py": """
raise SystemExit("ran")
from typing import TYPE_CHECKING, Literal
from vllm.registry import Kernel, Level
if TYPE_CHECKING:
    from vllm.registry import Formats
else:
    Formats = str
Size = Literal["small", "large"]
@config
class Nested:
    role: Size | None = None
    mode: Size = "small"
    amount: int = Field(default=1, ge=1)
    wide: Size | str = "small"
    made: int = field(init=False)
    @field_validator("mode", mode="before")
    def lower(cls, value): ...
class Plain:
    anything: int = 1
class ModelConfig:
    max_model_len: int | None = None
    share: float = Field(default=0.9, gt=0)
    size: Size = "small"
    dtype: Size | str = "auto"
    quantization: Formats | str | None = None
    load_format: Formats | str = "b"
    backend: Kernel | None = None
    level: Level = Level.O1
    eager: bool = False
    token: bool | str | None = None
    names: list[str] | None = None
    nested: Nested = field(default_factory=Nested)
    plain: Plain | None = None
    traces: list[Size] | None = None
    moe: Size = "small"
    @classmethod
    def check(cls, value):
        return None if value == 'auto' else value
""",
    "vllm/registry.py": """
from enum import Enum, IntEnum
from typing import Literal
Formats = Literal["b", "a"]
class Kernel(Enum):
    TRITON = "x"
    FLASH = "y"
class Level(IntEnum):
    O1 = 1
""",
    "vllm/engine/arg_utils.py": """
from vllm.config import ModelConfig
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        kw = get_kwargs(ModelConfig)
        moe_kw = kw["moe"]
        moe_kw["type"] = lambda s: s.lower().replace("-", "_")
        kw["traces"]["choices"] += ["both"]
        group = parser.add_argument_group(title="x")
        group.add_argument("--max-model-len", **kw["max_model_len"])
        group.add_argument("--share", "-s", "--other-share", dest="share", **kw["share"])
        group.add_argument("--size", **{**kw["size"], "default": None})
        group.add_argument("--dtype", **kw["dtype"])
        group.add_argument("--quantization", "-q", **kw["quantization"])
        group.add_argument("--load-format", **kw["load_format"])
        group.add_argument("--backend", **kw["backend"])
        group.add_argument("--level", **kw["level"])
        group.add_argument("--eager", **kw["eager"])
        group.add_argument("--token", **kw["token"])
        group.add_argument("--names", **kw["names"])
        group.add_argument("--nested", **kw["nested"])
        group.add_argument("--plain", **kw["plain"])
        group.add_argument("--traces", **kw["traces"])
        group.add_argument("--moe", **moe_kw)
        group.add_argument("--rank", "-r", type=int, default=3)
        group.add_argument("--port-of-call", choices=["x", "y"], nargs="?")
class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--log", action=argparse.BooleanOptionalAction, default=False)
""",
    "vllm/entrypoints/openai/cli_args.py": """
class Base:
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    origins: list[str] = field(default_factory=lambda: ["*"])
    def change(frontend_kwargs):
        frontend_kwargs["origins"]["type"] = json.loads
        del frontend_kwargs["origins"]["nargs"]
        frontend_kwargs["middle"]["action"] = "append"
class FrontendArgs(Base):
    host: str | None = None
    middle: list[str] = field(default_factory=lambda: [])
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--headless", action="store_true", default=False)
""",
    "vllm/entrypoints/cli/serve.py": 'serve_parser.add_argument("--grpc", action="store_true")\n',
    "vllm/utils/argparse_utils.py": "class FlexibleArgumentParser: ...\n",
    "vllm/tool_parsers/__init__.py": '_TOOL_PARSERS_TO_REGISTER = {"hermes": ("m", "C"), "glm": ("m", "C")}\n',
    "vllm/reasoning/__init__.py": '_REASONING_PARSERS_TO_REGISTER = {"qwen3": ("m", "C")}\n',
}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def read(release: Path) -> dict[str, Any]:
    return vllm_cli.Reader(vllm_cli.Source(release)).read()


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--max-model-len", {"kind": "size"}),
        ("--share", {"kind": "float", "above": 0, "default": 0.9}),
        ("--size", {"kind": "text", "choices": ["large", "small"], "default": "small"}),
        ("--dtype", {"kind": "text", "choices": ["large", "small"], "open": True, "default": "auto"}),
        ("--quantization", {"kind": "text", "choices": ["None", "a", "b"]}),
        ("--load-format", {"kind": "text", "choices": ["a", "b"], "default": "b"}),
        ("--backend", {"kind": "text", "choices": ["FLASH", "None", "TRITON", "auto"], "fold": True}),
        ("--level", {"kind": "int"}),
        ("--eager", {"kind": "switch"}),
        ("--token", {"kind": "optional"}),
        ("--names", {"kind": "list"}),
        ("--nested", {"kind": "json"}),
        ("--plain", {"kind": "json"}),
        ("--traces", {"kind": "list", "open": True}),
        ("--moe", {"kind": "text", "choices": ["large", "small"], "default": "small", "fold": True}),
        ("--rank", {"kind": "int", "default": 3}),
        ("--port-of-call", {"kind": "optional", "choices": ["x", "y"]}),
        ("--log", {"kind": "switch"}),
        ("--host", {"kind": "text"}),
        ("--origins", {"kind": "json", "default": ["*"]}),
        ("--middle", {"kind": "text"}),
        ("--tool-call-parser", {"kind": "text", "choices": ["glm", "hermes"], "unless": "--tool-parser-plugin"}),
        ("--headless", {"kind": "store"}),
        ("--grpc", {"kind": "store"}),
    ],
)
def test_a_flag_is_read(release: Path, flag: str, expected: dict[str, Any]) -> None:
    assert read(release)["flags"][flag] == expected


def test_the_keys_of_a_configuration_are_read_where_it_takes_no_others(release: Path) -> None:
    assert read(release)["fields"] == {
        "--nested.role": {"choices": ["None", "large", "small"]},
        "--nested.mode": {"choices": ["large", "small"], "fold": True},
        "--nested.amount": {"least": 1},
        "--nested.wide": {},
    }


def test_aliases_negations_and_variables(release: Path) -> None:
    content = read(release)
    leads = {name: entry["of"] for name, entry in content["aliases"].items()}
    assert leads == {"--other-share": "--share", "-q": "--quantization", "-r": "--rank", "-s": "--share"}
    assert list(content["negations"]) == ["--no-"]
    assert content["environment"] == {"VLLM_COLOUR": {"choices": ["blue", "red"]}, "VLLM_PORT": {}, "VLLM_SHADE": {}}
    path = release / "vllm/utils/argparse_utils.py"
    path.write_text("class EnableDisableAction: ...\n", encoding="utf-8")
    assert list(read(release)["negations"]) == ["--no-", "--disable-"]


def test_a_release_of_another_shape_is_told(release: Path) -> None:
    (release / "vllm/envs.py").write_text("environment_variables = table()\n", encoding="utf-8")
    with pytest.raises(vllm_cli.Unknown, match="expected Dict, found Call"):
        read(release)


def flag(**fields: Any) -> vllm_cli.Tables:
    """A release with one flag, or with none."""
    return {"negations": {}, "aliases": {}, "flags": {"--x": fields} if fields else {}, "fields": {}, "environment": {}}


INT: dict[str, Any] = {"kind": "int"}


@pytest.mark.parametrize(
    ("releases", "changes"),
    [
        ([flag(**INT), flag(**INT)], [INT, ...]),
        ([flag(), flag(**INT)], [..., INT]),
        ([flag(**INT), flag()], [INT, None]),
        ([flag(**INT), flag(), flag(**INT)], [INT, None, INT]),
        ([flag(**INT, default=1), flag(**INT, default=2)], [{**INT, "default": 1}, {"default": 2}]),
        ([flag(**INT, open=True), flag(**INT)], [{**INT, "open": True}, {"open": None}]),
        (
            [flag(choices=["a", "b"]), flag(choices=["b", "c"])],
            [{"choices": ["a", "b"]}, {"more": ["c"], "fewer": ["a"]}],
        ),
        ([flag(choices=["a"]), flag(**INT)], [{"choices": ["a"]}, {**INT, "choices": None}]),
        ([flag(**INT), flag(**INT, choices=["a"])], [INT, {"choices": ["a"]}]),
    ],
)
def test_of_a_flag_is_kept_what_changed(releases: list[vllm_cli.Tables], changes: list[Any]) -> None:
    """And each release is read again as it was written, also where a younger one was there before it."""
    names = ("0.9.0", "0.10.0", "0.11.0")[: len(releases)]
    known = dict(reversed([*zip(names, releases, strict=True)]))
    content = vllm_cli.joined(known)
    assert content["flags"]["--x"] == {name: each for name, each in zip(names, changes, strict=True) if each is not ...}
    assert vllm_cli.kept(json.loads(vllm_cli.written(content))) == known


def test_a_release_more_changes_only_the_lines_of_what_it_changed(release: Path) -> None:
    old = read(release)
    new = {
        **old,
        "flags": {**old["flags"], "--share": {"kind": "float", "above": 0, "default": 0.92}, "--new": {"kind": "int"}},
    }
    before, after = (
        vllm_cli.written(vllm_cli.joined(known)).splitlines()
        for known in ({"1.2.3": old}, {"1.2.3": old, "1.3.0": new})
    )
    changed = {line.split(":")[0].strip() for line in after if line not in before}
    assert changed == {'"versions"', '"--share"', '"--new"'}


def test_the_file_of_the_catalog_is_as_the_tool_writes_it() -> None:
    text = vllm_cli.CATALOG.read_text(encoding="utf-8")
    assert vllm_cli.written(vllm_cli.joined(vllm_cli.kept(json.loads(text)))) == text


def test_a_release_is_written_into_the_file_and_the_others_stay(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_cli, "CATALOG", tmp_path / "vllm_cli.json")
    monkeypatch.setattr(vllm_cli, "download", lambda version, work: release)
    assert (vllm_cli.main([]), vllm_cli.main(["1.10.0"]), vllm_cli.main(["1.9.0"])) == (2, 0, 0)
    found = vllm_cli.kept(json.loads(vllm_cli.CATALOG.read_text(encoding="utf-8")))
    assert found == {"1.9.0": read(release), "1.10.0": read(release)} and list(found) == ["1.9.0", "1.10.0"]
