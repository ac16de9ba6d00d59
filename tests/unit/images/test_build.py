"""A build on its host: the unit, its progress, its faults, and its tags. Commands are answered by a table."""

from __future__ import annotations

import io
import json
import subprocess
import threading
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.images import (
    build,
    build_steps,
    ingredients,
    inside,
    progress,
    trial,
)
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.serving.server_probe import Reply
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed

from tests.support.archive import packed, sha256
from tests.support.attacker import tally
from tests.support.checkouts import checkout, git

TAG = "0123456789ab"
PLAN: dict[str, Any] = {
    "base": "sha256:base",
    "platform": "linux/arm64",
    "inputs": TAG + "f" * 52,
    "dockerfile": "ARG BASE\nFROM ${BASE}\n",
    "files": {},
}
LABELS = {"Config": {"Labels": {"gb10-fleet.image.verdict": "accepted", "org.other": "x"}}}


class Host:
    """Docker and systemd, as far as a build asks them."""

    def __init__(self, images: dict[str, Any] | None = None, *, active: bool = False) -> None:
        self.images, self.active = images or {}, active
        self.asked: list[list[str]] = []

    def __call__(self, argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        words = list(argv)
        self.asked.append(words)
        code, out, err = 0, "", ""
        if words[:3] == ["docker", "image", "inspect"]:
            told = self.images.get(words[-1])
            code, out, err = (0, json.dumps([told]), "") if told else (1, "", f"Error: No such image: {words[-1]}")
        elif words[0] == "systemctl":
            out = "active" if self.active else "inactive"
        return subprocess.CompletedProcess(words, code, out, err)

    def said(self, *start: str) -> list[list[str]]:
        return [each for each in self.asked if each[: len(start)] == list(start)]


def a_build(host: Host, path: Path) -> build.Build:
    return build.Build("gb10-fleet/built", TAG, host, state=path / "images")


def test_a_build_begins_in_a_unit_that_outlives_its_caller(tmp_path: Path) -> None:
    host = Host()
    a_build(host, tmp_path).start(PLAN)
    (started,) = host.said("systemd-run")
    assert f"--unit=gb10-image-build-{TAG}.service" in started and started[-2] == "/bin/sh"
    script = (tmp_path / "images" / TAG / "run.sh").read_text()
    assert f"--tag gb10-fleet/built:candidate-{TAG} " in script
    assert "--platform linux/arm64" in script
    assert host.said("docker", "tag") == [["docker", "tag", "sha256:base", f"gb10-fleet/build-base:{TAG}"]]
    assert (tmp_path / "images" / TAG / "Dockerfile").read_text() == PLAN["dockerfile"]


def test_one_that_runs_is_left_alone(tmp_path: Path) -> None:
    host = Host(active=True)
    a_build(host, tmp_path).start(PLAN)
    assert not host.said("systemd-run")


@pytest.mark.parametrize(
    ("images", "state"),
    [
        ({f"gb10-fleet/built:{TAG}": LABELS}, "accepted"),
        ({f"gb10-fleet/built:refused-{TAG}": LABELS}, "refused"),
        ({f"gb10-fleet/built:candidate-{TAG}": LABELS}, "built"),
        ({}, "none"),
    ],
)
def test_tags_say_where_a_build_is(tmp_path: Path, images: dict[str, Any], state: str) -> None:
    said = a_build(Host(images), tmp_path).read()
    assert said["state"] == state
    assert said.get("labels", {"verdict": "accepted"}) == {"verdict": "accepted"}


def test_a_docker_that_does_not_answer_is_no_missing_image(tmp_path: Path) -> None:
    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(list(argv), 1, "", "Cannot connect to the Docker daemon")

    with pytest.raises(ImageError, match="no_docker"):
        build.Build("gb10-fleet/built", TAG, run, state=tmp_path).read()


@pytest.mark.parametrize(
    ("log", "ended", "verdict"),
    [
        ("#9 ERROR: failed to copy: write /x: no space left on device", True, "disk_full"),
        ("#9 12.1 c++: fatal error: Killed signal terminated program cc1plus", True, "killed"),
        ("#9 12.1 csrc/x.cu(3): error: no operator", True, "build_failed"),
        ("#9 12.1 [3/9] Building", False, "ended"),
    ],
)
def test_a_build_that_failed_says_why(tmp_path: Path, log: str, ended: bool, verdict: str) -> None:
    made = a_build(Host(), tmp_path)
    made.start(PLAN)
    (made.folder / "log").write_text(log + "\n")
    if ended:
        (made.folder / "rc").write_text("1\n")
    said = made.read()
    assert (said["state"], said["verdict"]) == ("failed", verdict)


def test_a_digest_that_is_none_names_no_folder() -> None:
    with pytest.raises(ImageError):
        build.Build("gb10-fleet/built", "../../etc/x", Host())


@pytest.mark.parametrize(("accepted", "name"), [(True, TAG), (False, f"refused-{TAG}")])
def test_the_verdict_decides_over_the_tag(tmp_path: Path, accepted: bool, name: str) -> None:
    host = Host()
    made = a_build(host, tmp_path)
    made.start(PLAN)
    assert made.settle({"gb10-fleet.image.verdict": "x y"}, "linux/arm64", accepted=accepted).endswith(f":{name}")
    (labelled,) = host.said("docker", "buildx")
    assert "gb10-fleet.image.verdict=x y" in labelled
    assert ["docker", "image", "rm", f"gb10-fleet/built:candidate-{TAG}"] in host.asked
    assert not made.folder.exists()


LOG = """\
#5 [internal] load build definition from Dockerfile
#6 [builder 2/4] RUN set -eu; link
#6 DONE 0.3s
#7 [builder 4/4] RUN set -eu; cp; python3 setup.py
#7 3.210 -- Build files have been written
#7 9.9 [12/345] Building CUDA object CMakeFiles/_C.dir/csrc/a.cu.o
#7 10.4 [13/345] Building CUDA object CMakeFiles/_C.dir/csrc/b.cu.o""".splitlines()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "begins"),
        (LOG[:3], "builder 2/4"),
        (LOG, "builder 4/4, 13 of 345 files compiled"),
        ([*LOG, "#8 [stage-1 2/3] COPY --from=builder"], "stage-1 2/3"),
        (["#8 [2/3] COPY base/ /"], "image 2/3"),
    ],
)
def test_progress_is_told_by_stage_and_file(lines: list[str], says: str) -> None:
    assert progress.doing(lines) == says


def test_a_step_says_better_what_is_wrong_than_buildkit_does() -> None:
    step = "#7 [builder 2/4] RUN cannot be an error here"
    over = '#7 ERROR: process "/bin/sh -c long words" did not complete successfully: exit code: 1'
    assert progress.fault([step, "#7 1.2 x.c:3: error: no", over]).text == "x.c:3: error: no"
    assert progress.fault([step, over]).text == "exit code: 1"
    assert progress.fault([]).text == "no word"


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        # NVIDIA/cudf issue 8018; mistral-inference issue 99, of a shell; what gcc, ld, LLVM and cargo say.
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "killed"),
        ("Killed", "killed"),
        ("c++: internal compiler error: Killed (program cc1plus)", "killed"),
        ("collect2: fatal error: ld terminated with signal 9 [Killed]", "killed"),
        ("virtual memory exhausted: Cannot allocate memory", "killed"),
        ("cc1plus: out of memory allocating 812 bytes after a total of 9 bytes", "killed"),
        ("LLVM ERROR: out of memory", "killed"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "killed"),
        ("error: could not compile `x` (signal: 9, SIGKILL: kill)", "killed"),
        ("cp: error writing '/x': Disk quota exceeded", "disk_full"),
        # None of it.
        ("nvcc error   : 'ptxas' died due to signal 11 (Invalid memory reference)", "build_failed"),
        ("fatal: unable to access 'https://192.0.2.9/x/': Could not resolve host: x", "build_failed"),
        ("error: signal: 90 is no signal", "build_failed"),
        ("error: Killed_by.cpp: no such file", "build_failed"),
    ],
)
def test_a_step_that_the_kernel_ended_says_so_in_many_words(said: str, verdict: str) -> None:
    over = '#7 ERROR: process "/bin/sh -c x" did not complete successfully: exit code: 1'
    fault = progress.fault([f"#7 1.2 {said}", over])
    assert (fault.verdict, fault.text) == (verdict, said)


@pytest.mark.parametrize(
    "passing",
    [
        *("-- Looking for pthread_create in pthreads - not found", "checking for libx... not found"),
        *("x.cpp:12:3: warning: the call may have failed", "copying torch/errors/__init__.py -> build/lib"),
        *("[12/812] Building CXX object error_handler.cpp.o", "adding 'torch/error.py'"),
    ],
)
def test_what_a_build_says_in_passing_is_not_why_it_failed(passing: str) -> None:
    for said in ("y.cu(12): error: no x", "CMake Error at CMakeLists.txt:88 (message):", "ModuleNotFoundError: No x"):
        assert progress.fault([f"#7 1.2 {passing}", f"#7 1.3 {said}"]).text == said
    assert progress.fault([f"#7 1.2 {passing}"]).text == "no word"


def a_wheel(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flash_x/__init__.py", "")
        archive.writestr("flash_x-1.0.data/scripts/tool", "")
        archive.writestr(
            "flash_x-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: Flash_X\nVersion: 1.0\n\nName: no"
        )
        archive.writestr("flash_x-1.0.dist-info/entry_points.txt", "[console_scripts]\nFlash = flash_x:main\n")
    return path


def test_a_wheel_is_known_by_its_own_words(tmp_path: Path) -> None:
    path = a_wheel(tmp_path / "flash_x-1.0-py3-none-any.whl")
    told = ingredients.wheel({"path": str(path), "sha256": sha256(path)})
    assert (told.package, told.version, told.tops) == ("flash-x", "1.0", ["flash_x"])
    assert told.scripts == ["Flash", "tool"]


@pytest.mark.parametrize(
    ("given", "verdict"),
    [({"path": "/nowhere.whl", "sha256": "0" * 64}, "no_wheel"), ({"sha256": "0" * 64}, "checksum_wrong")],
)
def test_a_wheel_with_another_checksum_is_not_taken(tmp_path: Path, given: dict[str, str], verdict: str) -> None:
    path = a_wheel(tmp_path / "x.whl")
    with pytest.raises(ImageError) as caught:
        ingredients.wheel({"path": str(path), **given})
    assert caught.value.name == verdict


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("--- a/vllm/x.py\n+++ b/vllm/x.py\t2026-01-01\n", ["vllm/x.py"]),
        ("+++ /etc/passwd\n", None),
        ("+++ b/torch/\n", None),
        ("+++ b/../../etc/passwd\n", None),
        ("no patch\n", None),
    ],
)
def test_a_patch_stays_below_the_packages(tmp_path: Path, text: str, files: list[str] | None) -> None:
    path = tmp_path / "x.patch"
    path.write_text(text)
    given = {"path": str(path), "sha256": sha256(path)}
    if files is None:
        with pytest.raises(ImageError, match="bad_patch"):
            ingredients.patch(given)
    else:
        assert ingredients.patch(given).files == files


@pytest.mark.parametrize(
    ("prefix", "form", "version"), [("vllm-0.33.0/", "tar.gz", "0.33.0"), ("vllm/", "tar", ""), ("x-1/", "tar.gz", "")]
)
def test_a_source_says_its_commit_and_its_release(tmp_path: Path, prefix: str, form: str, version: str) -> None:
    path = tmp_path / f"source.{form}"
    checkout(tmp_path / "checkout")
    git(tmp_path / "checkout", "archive", f"--prefix={prefix}", "-o", str(path), "HEAD")
    told = ingredients.source({"path": str(path), "sha256": sha256(path)})
    assert (len(told.commit), told.version, told.name) == (40, version, path.name)


def test_an_archive_of_a_release_has_no_commit(tmp_path: Path) -> None:
    path = tmp_path / "vllm-0.33.0.tar"
    path.write_bytes(packed({"vllm-0.33.0/setup.py": b"1"}))
    told = ingredients.source({"path": str(path), "sha256": sha256(path)})
    assert (told.commit, told.version) == ("", "0.33.0")


@pytest.mark.parametrize("content", [b"", b"no archive", packed({"setup.py": b"1"}), packed({"vllm/x.py": b"1"})])
def test_what_is_no_archive_of_a_source_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "source.tar"
    path.write_bytes(content)
    with pytest.raises(ImageError, match="bad_source"):
        ingredients.source({"path": str(path), "sha256": sha256(path)})


def test_what_is_built_from_is_a_copy_that_was_proven_again(tmp_path: Path) -> None:
    path = tmp_path / "source.tar"
    path.write_bytes(packed({"vllm-0.33.0/setup.py": b"1"}))
    told = ingredients.source({"path": str(path), "sha256": sha256(path)})
    made = a_build(Host(), tmp_path)
    made.start({**PLAN, "files": {"source": [asdict(told)], "wheels": []}})
    copy = made.folder / "source" / path.name
    assert copy.read_bytes() == path.read_bytes()
    assert f"--build-context source={copy.parent} " in (made.folder / "run.sh").read_text()
    path.write_bytes(packed({"vllm-0.33.0/setup.py": b"2"}))
    with pytest.raises(ImageError, match=r"checksum_wrong: .* has changed meanwhile"):
        made.start({**PLAN, "files": {"source": [asdict(told)]}})


def test_who_holds_the_gpu_is_known_by_the_container() -> None:
    told = [
        {"Name": "/gb10-vllm", "HostConfig": {}},
        {"Name": "/other", "HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}},
        {"Name": "/web", "HostConfig": {"Devices": []}},
    ]

    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        out = "a\nb\nc\n" if argv[1] == "ps" else json.dumps(told)
        return subprocess.CompletedProcess(list(argv), 0, out, "")

    assert ingredients.serving(run) == ["gb10-vllm", "other"]


def test_what_python_says_is_found_behind_what_imports_print() -> None:
    said = {"versions": {}, "imports": {}, "operators": [], "libraries": {}}

    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if argv[1] == "rm":
            return subprocess.CompletedProcess(list(argv), 1, "", "no such container")
        assert "--network" in argv and "--gpus" not in argv and json.loads(argv[-1]) == {"modules": [], "files": []}
        return subprocess.CompletedProcess(list(argv), 0, f"INFO: hello\n{inside.MARK}{json.dumps(said)}\n", "")

    assert inside.ask("lab/vllm:1", {"modules": [], "files": []}, run) == said


def test_the_script_reads_this_python(tmp_path: Path) -> None:
    done = subprocess.run(
        ["python3", "-c", inside.SCRIPT, json.dumps({"modules": ["json", "no_such_thing"], "files": ["/bin/sh"]})],
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout.removeprefix(inside.MARK))
    assert said["imports"]["json"] is None and "ModuleNotFoundError" in said["imports"]["no_such_thing"]
    assert said["libraries"] == {"/bin/sh": []}


GIVEN: dict[str, Any] = {
    **{"model": "/srv/model", "port": 8009, "options": ["--device", "x"], "arguments": ["--seed", "1"]},
    **{"ready_s": 5, "rounds": 2, "tokens": 100},
}


class Server:
    """Answers rightly, and as fast as `seconds` say, round by round."""

    def __init__(self, seconds: Sequence[float], answer: str = "42") -> None:
        self.now, self.seconds, self.answer = 0.0, list(seconds), answer

    def clock(self) -> float:
        return self.now

    def __call__(self, path: str, body: Any, timeout_s: float) -> Reply:
        if path == "/v1/models":
            return Reply(200, json.dumps({"data": [{"id": trial.MODEL}]}))
        if path == "/v1/completions":
            self.now += self.seconds.pop(0)
            return Reply(200, json.dumps({"usage": {"completion_tokens": 100}}))
        text = self.answer if "17+25" in str(body) else ", ".join(map(str, range(1, 101)))
        told = {"choices": [{"message": {"content": text}}], "usage": {"completion_tokens": 300}}
        return Reply(200, json.dumps(told) if path != "/health" else "")


def served(server: Server, host: Host) -> dict[str, Any]:
    return trial.serve("lab/vllm:1", GIVEN, host, server, server.clock, lambda _: None)


def test_the_first_round_warms_up_and_the_best_of_the_others_counts() -> None:
    host = Host()
    said = served(Server([50.0, 4.0, 2.0]), host)
    assert (said["verdict"], said["speeds"], said["tokens_per_s"]) == ("serving", [25.0, 50.0], 50.0)
    assert host.asked[0] == host.asked[-1] == ["docker", "rm", "--force", "--volumes", trial.CONTAINER]


def test_garbage_is_not_measured() -> None:
    said = served(Server([], "41"), Host())
    assert (said["verdict"], said["tokens_per_s"]) == ("garbage", None)


def test_no_image_is_accepted_by_what_another_login_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server answers all rightly, at the port of the trial; the container runs beside it."""
    talker = Server([1.0] * 9)

    class Login(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            reply = talker(self.path, body, 1.0)
            self.send_response(reply.status or 500)
            self.end_headers()
            self.wfile.write(reply.body.encode())

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(trial, "run_command", lambda argv, *_: Completed(tuple(argv), 0, "1\n"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Login) as login:
        threading.Thread(target=login.serve_forever, args=(0.02,), daemon=True).start()
        given = {**GIVEN, "port": login.server_address[1]}
        said = trial.serve("lab/vllm:1", given, Host(), sleep=lambda _: None)
        login.shutdown()
    tally("a login at the port of an image's trial: images accepted", 1, int(said["verdict"] == "serving"))
    assert said["verdict"] == "foreign_listener"


def test_a_model_is_served_on_loopback_by_the_image_s_own_vllm() -> None:
    words = trial.argv("lab/vllm:1", GIVEN)
    assert words[-6:] == ["--host", "127.0.0.1", "--port", "8009", "--seed", "1"]
    assert "/srv/model:/gb10-trial-model:ro" in words and words[words.index("--entrypoint") + 1] == "vllm"


def test_of_a_container_that_ended_the_log_is_told() -> None:
    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        out = json.dumps({"Status": "exited", "ExitCode": 1}) if argv[1] == "inspect" else "ValueError: no\n"
        return subprocess.CompletedProcess(list(argv), 0, out, "")

    def refused(*_: Any) -> Reply:
        return Reply(None, problem="refused")

    said = trial.serve("lab/vllm:1", {**GIVEN, "ready_s": 60}, run, refused, io.BytesIO().tell, lambda _: None)  # type: ignore[arg-type]
    assert said["verdict"] == "start_failed" and "ValueError: no" in said["text"]


def test_a_step_waits_for_one_that_a_killed_controller_has_left(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with build_steps.alone(tmp_path / "images"):
            order.append("second")

    with build_steps.alone(tmp_path / "images"):
        other = threading.Thread(target=second)
        other.start()
        other.join(0.2)
        order.append("first")
    other.join()
    assert order == ["first", "second"]
