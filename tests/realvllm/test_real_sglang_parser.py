"""SGLang's own parser reads the command lines of examples/recipes, where GB10_SGLANG_PYTHON names its Python."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.support.community_recipes import OF_SGLANG, RECIPES, plans

PYTHON = os.environ.get("GB10_SGLANG_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="GB10_SGLANG_PYTHON names none: SGLang's own parser NOT asked")
ASK = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
for line in json.load(sys.stdin):
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    parser.parse_args(line)
"""


@pytest.mark.parametrize("name", OF_SGLANG)
def test_it_accepts_what_each_rank_is_started_with(name: str) -> None:
    fork = set(RECIPES[name].get("fork", ()))
    ranks = [plan.services[0].argv for plan in plans(name)]
    lines = [rank[rank.index("sglang.launch_server") + 1 :] for rank in ranks]
    ours = [[word for word in line if word.partition("=")[0] not in fork] for line in lines]
    done = subprocess.run(
        [PYTHON, "-c", ASK], input=json.dumps(ours), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-500:]
