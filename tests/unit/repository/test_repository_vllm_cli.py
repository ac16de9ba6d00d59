"""The tool that reads a release of vLLM without running it, and the page that is written from the catalog of rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import vllm_cli as reader

from scripts import rules_page, vllm_cli

ROOT = Path(__file__).parents[3]

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
class Nested: ...
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
    return vllm_cli.Reader(vllm_cli.Source(release)).read("1.2.3")


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--max-model-len", {"kind": "size"}),
        ("--share", {"kind": "float", "default": 0.9}),
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


def test_aliases_negations_and_variables(release: Path) -> None:
    content = read(release)
    assert content["aliases"] == {"--other-share": "--share", "-q": "--quantization", "-r": "--rank", "-s": "--share"}
    assert content["negations"] == ["--no-"]
    assert content["environment"] == {"VLLM_COLOUR": ["blue", "red"], "VLLM_PORT": None, "VLLM_SHADE": None}
    path = release / "vllm/utils/argparse_utils.py"
    path.write_text("class EnableDisableAction: ...\n", encoding="utf-8")
    assert read(release)["negations"] == ["--no-", "--disable-"]


def test_a_release_of_another_shape_is_told(release: Path) -> None:
    (release / "vllm/envs.py").write_text("environment_variables = table()\n", encoding="utf-8")
    with pytest.raises(vllm_cli.Unknown, match="expected Dict, found Call"):
        read(release)


def test_what_is_written_is_json_with_a_line_for_each_flag(release: Path) -> None:
    content = read(release)
    text = vllm_cli.written(content)
    assert json.loads(text) == content
    assert len([line for line in text.splitlines() if line.startswith('    "--') and "kind" in line]) == len(
        content["flags"]
    )


@pytest.mark.parametrize("version", [str(each) for each in reader.versions()])
def test_the_files_of_the_catalog_are_as_the_tool_writes_them(version: str) -> None:
    text = (ROOT / f"catalog/vllm_cli/{version}.json").read_text(encoding="utf-8")
    assert vllm_cli.written(json.loads(text)) == text


def test_the_page_of_rules_is_current() -> None:
    """Else: python -m scripts.rules_page"""
    assert rules_page.PAGE.read_text(encoding="utf-8") == rules_page.page()
