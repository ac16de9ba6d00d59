"""What a program says is read in the C locale: a host, or a laptop behind SSH, may have another language."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.check import source_files

ROOT = Path(__file__).resolve().parents[3]
# Whose children need no locale: what they say is not read, or their programs have no other language.
FREE = {
    "gb10_fleet/ask_cli.py": "it is shown",
    "gb10_fleet/discover/host_keys.py": "ssh-keyscan has no other language",
    "gb10_fleet/known_bad.py": "ssh-keygen has none",
    "gb10_fleet/layout_timer.py": "it is shown",
    "gb10_fleet/up/search.py": "ssh-keygen has none",
    "gb10_fleet/way.py": "a tunnel: bytes",
    "plugins/module_utils/images/docker.py": "an archive",
    "plugins/module_utils/images/streams.py": "an archive",
    "plugins/module_utils/programs/load_run.py": "docker, and our own program",
    "plugins/module_utils/programs/ray_start.py": "our own program",
    "plugins/module_utils/programs/recorder/send.py": "nvidia-smi, and journalctl with times in seconds",
    "plugins/module_utils/programs/vllm_unit/life.py": "the log of the engine, which has none",
    "plugins/plugin_utils/hosts/scan.py": "ssh has none; sudo behind it is asked in the C locale",
    "plugins/plugin_utils/hosts/stream.py": "the same",
}


def test_children_are_heard_in_the_c_locale() -> None:
    heard = dict[str, int]()
    for path in source_files():
        if path.parts[0] in ("plugins", "gb10_fleet") and path.suffix == ".py":
            for call in ast.walk(ast.parse((ROOT / path).read_text())):
                if isinstance(call, ast.Call) and ast.unparse(call.func) in ("subprocess.Popen", "subprocess.run"):
                    words = {word.arg: ast.unparse(word.value) for word in call.keywords}
                    said = {"stdout", "stderr"} & {name for name, word in words.items() if "DEVNULL" not in word}
                    if (said or "capture_output" in words) and "LC_ALL" not in words.get("env", ""):
                        heard[str(path)] = call.lineno
    assert heard.keys() == FREE.keys(), heard
