"""What vLLM itself says of a model: asked in its image, kept, judged, and counted with."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.programs import ask_engine
from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_answers import FOLDER, MOST, read_answers
from ansible_collections.gb10.fleet.plugins.module_utils.serving.engine_answer import INSIDE, Question
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import bounds, last_facts
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import engine, memory_fit, serving_plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import sources
from typer.testing import CliRunner

from gb10_fleet import cli
from gb10_fleet import engine as asking
from gb10_fleet.playbook import Order, Outcome, Report
from tests.support.attacker import tally
from tests.support.plan_and_role import lines, role
from tests.support.proofs import facts
from tests.support.services import only_service
from tests.support.vllm_plans import SAID as PLANNED
from tests.support.vllm_plans import alone, paired

MODEL, COMMIT = "openai/gpt-oss-120b", "c" * 40
# In the form of vLLM 0.32.0's answers; half of the layers keep a window.
SAID: dict[str, Any] = {
    **{"model": MODEL, "version": "0.32.0", "seconds": 18.4, "context": 131072, "task": "generate"},
    "weights": {"bfloat16": 4 * GIB, "uint8": 60 * GIB},
    "layers": [
        {"kind": "FullAttentionSpec", "layers": 18, "token_bytes": 2048.0},
        {"kind": "SlidingWindowSpec", "layers": 18, "token_bytes": 2048.0, "window": 128},
        {"kind": "MambaSpec", "layers": 1, "request_bytes": 4096},
    ],
}


class Docker:
    """A Docker that has these images, and a vLLM that says this."""

    def __init__(self, images: Sequence[str] = ("ours:1",), said: Any = SAID, code: int = 0) -> None:
        self.images, self.said, self.code = images, said, code
        self.runs: list[list[str]] = []

    def __call__(self, argv: Sequence[str], *, input: str | None = None) -> Any:  # noqa: A002
        if argv[1] == "image":
            there = argv[-1] in self.images
            return SimpleNamespace(returncode=0 if there else 1, stdout=f"sha256:{argv[-1]}\n", stderr="")
        assert input and "def answer(" in input
        self.runs.append(list(argv))
        out = f"INFO: hello\n{ask_engine.MARK}{json.dumps(self.said)}\nbye\n" if self.said else "Traceback\n"
        return SimpleNamespace(returncode=self.code, stdout=out, stderr="no vllm here")


def question(root: Path, docker: Docker, model: str = MODEL, revision: str = "", **flags: str) -> Question:
    top = root / "cache/huggingface/hub/models--openai--gpt-oss-120b"
    for name, text in ((f"snapshots/{COMMIT}/config.json", "{}"), ("refs/main", f"{COMMIT}\n")):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return Question(["mine:1", "ours:1"], model, revision, str(root / "cache"), flags, docker, root / "kept")


def test_the_image_is_asked_once_without_network_or_power(tmp_path: Path) -> None:
    docker = Docker()
    first = question(tmp_path, docker).answer(180)
    assert first == {**SAID, "image": "ours:1"} and question(tmp_path, docker, revision=COMMIT).answer(180) == first
    (argv,) = docker.runs
    wanted = {"--network=none", "--pull=never", "--cap-drop=ALL", "--read-only", "--entrypoint=timeout"}
    wanted |= {
        "--memory=16g",
        "--memory-swap=16g",
        "--oom-score-adj=1000",
        "--ulimit=core=0",
    }  # a hostile configuration
    assert wanted <= {*argv} and not {"--privileged", "--network=host"} & {*argv}
    volume = next(word for word in argv if word.startswith("--volume="))
    assert volume.endswith(f"models--openai--gpt-oss-120b:{INSIDE}:ro")
    assert json.loads(argv[-1]) == {"model": f"{INSIDE}/snapshots/{COMMIT}", "flags": {}}
    question(tmp_path, docker, kv_cache_dtype="fp8").answer(180)
    assert len(docker.runs) == 2, "another question"


def test_a_folder_of_the_host_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "models/x").mkdir(parents=True)
    (tmp_path / "models/x/config.json").write_text("{}")
    docker = Docker()
    question(tmp_path, docker, model=str(tmp_path / "models/x")).answer(180)
    assert f"--volume={tmp_path}/models/x:{INSIDE}:ro" in docker.runs[0]


def _link_to_a_file(top: Path, roots: Path) -> None:
    (top / "refs/main").unlink()
    (top / "refs/main").symlink_to(roots / "refs/main")


def _pipe(top: Path, _roots: Path) -> None:
    (top / "refs/main").unlink()
    os.mkfifo(top / "refs/main")


def _without_an_end(top: Path, _roots: Path) -> None:
    os.truncate(top / "refs/main", 2**40)


def _other_folder(top: Path, roots: Path) -> None:
    top.rename(top.with_name("old"))
    top.symlink_to(roots)


def _link_to_a_config(top: Path, roots: Path) -> None:
    config = top / f"snapshots/{COMMIT}/config.json"
    config.unlink()
    config.symlink_to(roots / f"snapshots/{COMMIT}/config.json")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a cache to another user")
@pytest.mark.parametrize("trap", [_link_to_a_file, _pipe, _without_an_end, _other_folder, _link_to_a_config])
def test_the_owner_of_a_cache_leads_root_nowhere(trap: Callable[[Path, Path], None], tmp_path: Path) -> None:
    """A link to a folder of root's would be shown to the container; a pipe or a large file would take root's time."""
    docker = Docker()
    asked = question(tmp_path, docker)
    top = tmp_path / "cache/huggingface/hub/models--openai--gpt-oss-120b"
    shutil.copytree(top, tmp_path / "roots")
    for path in (tmp_path / "cache", *(tmp_path / "cache").rglob("*")):
        os.chown(path, 65534, 65534)
    trap(top, tmp_path / "roots")
    if top.is_symlink():
        os.chown(top, 65534, 65534, follow_symlinks=False)
    with pytest.raises(FilesError, match="is not on this host"):
        asked.answer(180)
    assert not docker.runs


def test_only_so_many_answers_are_kept(tmp_path: Path) -> None:
    for number in range(MOST + 5):
        question(tmp_path, Docker(), dtype=str(number)).answer(180)
        for place, file in enumerate(sorted((tmp_path / "kept").iterdir(), key=lambda each: each.stat().st_mtime_ns)):
            os.utime(file, (place, place))
    assert len(list((tmp_path / "kept").iterdir())) == MOST


@pytest.mark.parametrize(
    ("docker", "model", "verdict", "text"),
    [
        (Docker(images=()), MODEL, "image_missing", "no image mine:1 or ours:1"),
        (Docker(), "a/other", "no_such_model", "a/other is not on this host (main)"),
        (Docker(said=None, code=1), MODEL, "no_answer", "no vllm here"),
        (Docker(said=["x"]), MODEL, "no_answer", "no vllm here"),
        (Docker(said={"silent": 9}), MODEL, "no_answer", "no vllm here"),
        (Docker(said=None, code=124), MODEL, "no_answer", "within 180 s"),
        (Docker(said=None, code=137), MODEL, "no_answer", "within 180 s"),
    ],
)
def test_what_cannot_be_asked_has_its_name(tmp_path: Path, docker: Docker, model: str, verdict: str, text: str) -> None:
    with pytest.raises(FilesError) as raised:
        question(tmp_path, docker, model).answer(180)
    assert raised.value.verdict == verdict and text in str(raised.value)


@pytest.mark.parametrize(
    "more",
    [
        *({"x": json.loads("[" * depth + "]" * depth)} for depth in (4, 50, 300, 450)),
        {"x": [1] * 3000}, {"x": "y" * 70_000}, {"layers": [{"kind": {"a": {"b": 1}}}]},
    ],
    ids=lambda more: str(more)[:20],
)  # fmt: skip
def test_an_answer_that_would_end_each_reading_of_the_host_is_not_kept(more: dict[str, Any], tmp_path: Path) -> None:
    """Code of a model may have printed it. What is deeper than an answer can be was a fact that nobody could read."""
    with contextlib.suppress(FilesError):
        question(tmp_path, Docker(said={**SAID, **more})).answer(180)
    (tmp_path / "kept").mkdir(exist_ok=True)
    shutil.copytree(tmp_path / "kept", tmp_path / FOLDER.lstrip("/"))
    try:
        kept = read_answers(HostReader(System(tmp_path)))
        bounds.fit({"facts": {"engine_answers": kept}})
        won = bool(kept)
    except (RecursionError, effort.TooMuch):
        won = True
    tally("an answer in vLLM's place that ends each reading of the host", 1, int(won))
    assert not won


def test_silence_is_kept_and_only_more_time_asks_again(tmp_path: Path) -> None:
    docker = Docker(said=None, code=124)
    texts = []
    for limit_s in (180, 180, 60):
        with pytest.raises(FilesError) as raised:
            question(tmp_path, docker).answer(limit_s)
        texts.append(str(raised.value))
    assert len(docker.runs) == 1 and len({*texts}) == 1
    (file,) = (tmp_path / "kept").iterdir()
    assert texts[0].endswith(f"and is not asked again; the start itself will show it; to ask again, remove {file}")
    assert read_answers(HostReader(system=System(at(tmp_path)))) == []
    docker.said, docker.code = SAID, 0
    assert question(tmp_path, docker).answer(300)["version"] == "0.32.0" and len(docker.runs) == 2


def at(root: Path) -> Path:
    """A host whose kept answers are those of the tests' questions."""
    (root / "host/var/cache").mkdir(parents=True, exist_ok=True)
    (root / "host" / FOLDER.lstrip("/")).symlink_to(root / "kept")
    return root / "host"


def test_a_host_says_the_newest_answer_to_each_question(tmp_path: Path) -> None:
    question(tmp_path, Docker()).answer(180)
    question(tmp_path, Docker(), kv_cache_dtype="fp8").answer(180)
    top = tmp_path / "cache/huggingface/hub/models--openai--gpt-oss-120b"
    (top / f"snapshots/{'d' * 40}").mkdir()
    (top / f"snapshots/{'d' * 40}/config.json").write_text("{}")
    (top / "refs/main").write_text("d" * 40)
    asked = Question(["mine:1", "ours:1"], MODEL, "", str(tmp_path / "cache"), {}, Docker(), tmp_path / "kept")
    asked.run.said = {**SAID, "refusal": "ValueError:\nno\x1b", "firm": True}  # type: ignore[attr-defined]
    asked.answer(180)
    (tmp_path / "kept/odd.json").write_text('{"question": {}, "said": 1}')
    said = read_answers(HostReader(system=System(at(tmp_path))))
    assert sorted((str(each["question"]["flags"]), each["said"].get("refusal")) for each in said) == [
        ("{'kv_cache_dtype': 'fp8'}", None),
        ("{}", "ValueError:\\nno\\x1b"),
    ]


def test_a_kept_refusal_is_told_before_anything_is_fetched_and_a_kept_answer_is_counted_with() -> None:
    asks = alone(vllm_model=MODEL).asks
    question_ = {name: asks[name] for name in engine.QUESTION}

    def judged(said: Any, **other: Any) -> ServicePlan:
        known = {**facts(), "engine_answers": [{"question": {**question_, **other}, "said": said}]}
        return only_service(View("spark-a", known, PLANNED))

    refused = {**SAID, "refusal": "ValueError: no such quantization", "firm": True}
    (found,) = (each for each in judged(refused).findings if each["id"] == "engine_refused")
    assert "vLLM 0.32.0 does not take openai/gpt-oss-120b: ValueError: no such quantization" in found["fact"]
    assert found["severity"] == "warn" and judged(refused).refusals == ()
    of_another = judged(refused, images=["other:1"])
    assert "engine_refused" not in {each["id"] for each in (*judged(SAID).findings, *of_another.findings)}
    large = {**SAID, "weights": {"bfloat16": 130 * GIB}}
    (text,) = judged(large).refusals
    assert text.startswith("rule memory_fit: ") and "weights 130.0 GiB" in text
    assert judged(large, flags={"dtype": "float16"}).refusals == ()


def test_the_program_says_why_there_is_no_answer() -> None:
    """Python without vLLM, as an image of another engine has it."""
    argv = ["python3", "-I", "-", json.dumps({"model": "/x", "flags": {}})]
    program = Path(ask_engine.__file__).read_text(encoding="utf-8")
    done = subprocess.run(argv, input=program, capture_output=True, text=True, check=True, timeout=60)
    said = json.loads(done.stdout.removeprefix(ask_engine.MARK))
    assert said["unasked"].startswith("ModuleNotFoundError: No module named 'vllm'") and engine.problem(said) is None
    assert not engine.refusal(said, "/x") and not engine.Asked("a", said).counts, "that is no word on the model"
    (told,) = engine.lines(said, "spark-a", planned().model.geometry, 64.5, "auto")
    assert told.startswith("vLLM of an unknown version on spark-a cannot be asked: ModuleNotFoundError")


UNSEEN = "ValueError('failed to be inspected: ' + "
VLLM = """
__version__ = "0.32.0"
class EngineArgs:
    def __init__(self, **said): self.said = said
    def create_engine_config(self):
        import json
        raise {error}json.dumps(self.said))
"""


@pytest.mark.parametrize(
    ("error", "trusts", "firm"),
    [("ValueError", True, True), ("OSError", True, False), ("ValueError", False, True), (UNSEEN, False, False)],
)
def test_only_what_vllm_itself_checks_is_firm(tmp_path: Path, error: str, trusts: bool, firm: bool) -> None:
    """A file that is missing may be there at the start. No code of strangers runs, unless the operator said so."""
    (tmp_path / "vllm/engine").mkdir(parents=True)
    (tmp_path / "vllm/__init__.py").write_text('__version__ = "0.32.0"')
    (tmp_path / "vllm/engine/__init__.py").write_text("")
    (tmp_path / "vllm/engine/arg_utils.py").write_text(VLLM.replace("{error}", error if "(" in error else f"{error}("))
    given = {"load_format": "auto", **({"trust_remote_code": True} if trusts else {})}
    argv = ["python3", "-", json.dumps({"model": "/x", "flags": given})]
    program = Path(ask_engine.__file__).read_text(encoding="utf-8")
    paths = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, input=program, capture_output=True, text=True, check=True, timeout=60, env=paths)
    said = json.loads(done.stdout.removeprefix(ask_engine.MARK))
    assert said["firm"] is firm and engine.problem(said) is None
    built = json.loads(said["refusal"].rpartition(": {")[2].join(("{", "")))
    assert (built["trust_remote_code"], built["load_format"]) == (trusts, "dummy")


def test_a_service_is_asked_about_with_the_words_that_it_serves_with() -> None:
    args = ["--kv-cache-dtype", "fp8", "--hf-overrides", '{"a": 1}', "--trust-remote-code", "--max-num-seqs", "4"]
    asks = alone(vllm_model=MODEL, vllm_extra_args=args).asks
    assert asks["flags"] == {"kv_cache_dtype": "fp8", "hf_overrides": {"a": 1}, "trust_remote_code": True}
    assert (asks["model"], asks["revision"]) == (MODEL, "main") and len(asks["images"]) == 2
    assert paired("spark-a").asks and not paired("spark-b").asks, "the head asks for its cluster"


def test_the_engine_is_asked_after_the_fetch_and_only_a_firm_word_stops_the_start() -> None:
    tasks = yaml.safe_load(Path("roles/vllm/tasks/files_of_service.yml").read_text(encoding="utf-8"))
    asks = [number for number, task in enumerate(tasks) if "gb10.fleet.engine_answer" in task]
    assert asks == [len(tasks) - 2] and ".firm" in tasks[asks[0]]["failed_when"]


def test_what_each_layer_keeps_is_counted_by_its_kind() -> None:
    assert (engine.weights_gib(SAID), engine.token_bytes(SAID)) == (64.0, 18 * 2048)
    assert [engine.Asked("a", said).counts for said in (SAID, {**SAID, "refusal": "no"}, {})] == [True, False, False]


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        {**SAID, "weights": {"x": "y"}},
        {**SAID, "weights": {"x": -1}},
        {**SAID, "context": -1},
        {**SAID, "layers": [{"kind": 1}]},
        {**SAID, "layers": [{"kind": "x", "layers": -1, "token_bytes": 1.0}]},
        {**SAID, "layers": [{"kind": "x", "layers": 1}]},
    ],
)
def test_an_answer_of_another_form_is_none_of_ours(said: Any) -> None:
    assert engine.problem(said) and engine.problem(SAID) is None


def taken(fit: memory_fit.Fit) -> float:
    """By the cache, without the chunk of a prompt that the layers with a window hold for one request."""
    chunk = 18 * 2048 * catalog.load("models")["fit"]["batched_tokens"]["value"]
    return fit.need["kv_cache"] + fit.need["state"] - chunk / GIB


def request_gib(length: int) -> float:
    """Of SAID: layers with the whole context, layers with a window, and a state."""
    return (18 * 2048 * length + 18 * 2048 * min(length, 128) + 4096) / GIB


def planned(**more: Any) -> serving_plan.Plan:
    return serving_plan.plan(MODEL, [121.69 * GIB], **more)


def test_the_plan_counts_with_what_vllm_says_and_a_measured_start_goes_before_it() -> None:
    counted = planned()
    found = planned(asked=engine.Asked("spark-a", SAID)).fit
    assert found and (found.need["weights"], found.sure["weights"]) == (64.0, "said by vLLM on spark-a")
    assert taken(found) == pytest.approx(found.concurrency * request_gib(counted.max_model_len), rel=0.03)
    assert found.sure["kv_cache"] == "said by vLLM on spark-a"
    assert found.sure["activations" if "activations" in found.sure else "overhead"] == "estimate"


def test_a_new_kind_of_model_is_planned_by_the_engine_alone(tmp_path: Path) -> None:
    """Read with care, all of its layers keep the whole context; vLLM knows that few do, at any length."""
    new = {"architectures": ["Nova9ForCausalLM"], "model_type": "nova9", "num_hidden_layers": 37, "vocab_size": 1000}
    new |= {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}
    new |= {"layer_types": ["nova_attention"] * 37, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(new))
    facts = sources.find(str(tmp_path))

    def fit(length: int, **more: Any) -> Any:
        settings = {"kv-cache-dtype": "auto"}
        return serving_plan.plan(
            str(tmp_path), [121.69 * GIB], max_model_len=length, concurrency=2, facts=facts, settings=settings, **more
        ).fit

    for length in (8192, 65536):
        careful, found = fit(length), fit(length, asked=engine.Asked("spark-a", SAID))
        assert found.need["weights"] == 64.0 and taken(found) == pytest.approx(2 * request_gib(length), rel=0.03)
        assert careful.need["kv_cache"] > 3 * taken(found)


def test_a_difference_is_told_and_a_refusal_in_vllms_own_words() -> None:
    geometry = planned().model.geometry
    same = list(engine.lines(SAID, "spark-a", geometry, 64.5, "fp8"))
    assert same[0].startswith(
        "vLLM 0.32.0 on spark-a: weights 64.0 GiB, 36,864 bytes of cache a token, context 131,072"
    )
    told = engine.lines({**SAID, "backends": ["FLASHINFER", "Mxfp4MoEMethod"]}, "spark-a", geometry, 64.5, "fp8")
    assert list(told)[1] == "it would compute with FLASHINFER, Mxfp4MoEMethod"
    far = list(engine.lines(SAID, "spark-a", geometry, 70.0, "auto"))
    assert "it differs from what is counted here: weights (GiB) 64.0, counted 70.0; vLLM's holds" in far
    refused = list(engine.lines({**SAID, "refusal": "ValueError: no"}, "spark-a", geometry, 64.5, "auto"))
    assert refused == ["vLLM 0.32.0 on spark-a does not take it: ValueError: no"]


def test_the_command_asks_the_host_and_counts_with_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[Order] = []

    def run(order: Order, quiet: bool = False) -> tuple[Outcome, Report]:
        orders.append(order)
        report = Report(asks=order.asks)
        if order.limit == "spark-a":
            report.answers["gb10.fleet.engine_answer"]["spark-a"] = {"engine": SAID}
        else:
            report.messages["spark-b"] = ["image_missing: this host has no image x"]
        return Outcome.done, report

    monkeypatch.setattr(asking, "run", run)
    words = ["plan", MODEL, "-i", "a,", "--ask"]
    told = CliRunner().invoke(cli.app, [*words, "spark-a"])
    plain = " ".join(told.output.split())
    assert "vLLM 0.32.0 on spark-a: weights 64.0 GiB" in plain and "weights 64.0 (said by vLLM on spark-a)" in plain
    assert orders[0].variables["gb10_ask_model"].lower() == MODEL and len(orders[0].variables["gb10_ask_images"]) == 2
    document = json.loads(CliRunner().invoke(cli.app, [*words, "spark-a", "--json"]).output)
    assert document["engine"]["version"] == "0.32.0" and document["fit"]["need"]["weights"] == 64.0
    failed = CliRunner().invoke(cli.app, [*words, "spark-b"])
    assert failed.exit_code == 2 and "this host has no image x" in failed.output
    assert CliRunner().invoke(cli.app, ["plan", MODEL, "--ask", "spark-a"]).exit_code == 2, "no inventory"


def test_the_next_plan_counts_with_what_was_said_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    question = {name: value for name, value in role(lines(planned())).asks.items() if name in engine.QUESTION}
    assert question["flags"], "what the role asks is what the plan looks for"

    def said() -> str:
        return " ".join(CliRunner().invoke(cli.app, ["plan", MODEL]).output.split())

    last_facts.keep_answer("spark-b", {**question, "revision": "other"}, SAID)
    last_facts.keep_answer("spark-b", {**question, "images": ["other:1"]}, SAID)
    last_facts.keep_answer("spark-b", question, {"odd": 1})
    assert "said by" not in said()
    last_facts.keep_answer("spark-a", question, SAID)
    assert "weights 64.0 (said by vLLM on spark-a)" in said()
    last_facts.keep_answer("spark-a", question, {**SAID, "refusal": "ValueError: no", "firm": True})
    assert "vLLM 0.32.0 on spark-a does not take it: ValueError: no" in said() and "said by" not in said()


def test_a_machine_remembers_only_so_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(last_facts, "MOST_ANSWERS", 3)
    for number in range(5):
        last_facts.keep_answer("a", {"model": str(number)}, SAID)
    assert len(list(last_facts.answers())) == 3
    last_facts.keep_answer("b", {}, {**SAID, "architectures": ["x"] * last_facts.LARGEST_ANSWER})
    assert {each["host"] for each in last_facts.answers()} == {"a"}, "each later plan would read it"


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--hf-overrides.rope.type", "yarn", "--hf-overrides.rope.factor=4"], {"rope": {"type": "yarn", "factor": 4}}),
        (["--hf-overrides.a", "1", "--hf_overrides.a.b", "[2]"], {"a": {"b": [2]}}),
        (["--hf-overrides", '{"a.b": null}'], {"a.b": None}),
    ],
)
def test_a_field_that_is_named_by_its_path_is_asked_with_its_value(words: list[str], field: object) -> None:
    assert engine.flags_of("0.32.0", words) == {"hf_overrides": field}
