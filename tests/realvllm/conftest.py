"""Without `GB10_REAL_VLLM` nothing here runs but what asks other engines, which has names of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.realvllm import as_gguf
from tests.realvllm.real import BIN, LONGEST_S, MISSING, Real, make_model, there_is_a_vllm, train

OWN_NAMES = ("test_real_beside.py", "test_real_llama_cpp.py", "test_real_sglang_parser.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if there_is_a_vllm():
        return
    for item in items:
        if Path(__file__).parent in item.path.parents and item.path.name not in OWN_NAMES:
            item.add_marker(pytest.mark.skip(reason=MISSING))


QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


@pytest.fixture(name="quiet", scope="session")
def fixture_quiet() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**QUIET, "PATH": f"{BIN}:{os.environ['PATH']}"}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(name="real")
def fixture_real(tmp_path: Path, quiet: None) -> Iterator[Callable[..., Real]]:
    lives: list[Real] = []

    def new(*words: str, **more: Any) -> Real:
        lives.append(Real(tmp_path / str(len(lives)), *words, **more))
        return lives[-1]

    yield new
    for one in lives:
        if one.thread.is_alive():
            one.life.stop()
            one.thread.join(LONGEST_S)


@pytest.fixture(name="taught", scope="session")
def fixture_taught(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a model that passes the proof of its kind; each is trained once."""
    made: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind) / "model"
            make_model(folder)
            train(folder, kind)
            made[kind] = folder
        return made[kind]

    return of


@pytest.fixture(name="gguf", scope="session")
def fixture_gguf(taught: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in GGUF: a taught one where there is a vLLM, whose torch teaches."""
    folder = tmp_path_factory.mktemp("gguf")
    if not there_is_a_vllm():
        make_model(folder / "model")
    as_gguf.write(taught("answers") if there_is_a_vllm() else folder / "model", folder / "m.gguf")
    return folder / "m.gguf"


@pytest.fixture(name="trained", scope="session")
def fixture_trained(taught: Callable[[str], Path]) -> Path:
    return taught("answers")
