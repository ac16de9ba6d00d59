"""The launcher inside the container, with the lab's simulated Ray and vLLM: a cluster of processes on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs import ray_start

from lab.vendor import oci
from lab.vendor.packages import FILES
from tests.support.ports import free_port
from tests.support.vendor import DEADLINE_SECONDS, GPU, health, wait_for, wait_for_health

LAUNCHER = Path(ray_start.__file__)
HEAD, WORKER = "127.0.0.2", "127.0.0.3"
TOKEN = "0123456789abcdef" * 2


class Container:
    """A process with a home of its own, as in an image that has what the lab puts into it."""

    def __init__(self, home: Path, words: Sequence[str], token: str, ray: bool) -> None:
        for path, program in {"bin/ray": "ray", "site/ray/__init__.py": "ray", "bin/vllm": "vllm"}.items():
            if ray or program != "ray":
                (home / path).parent.mkdir(parents=True, exist_ok=True)
                # Not the lab's own interpreter line: here the tests' Python runs it.
                text = (FILES / program).read_text().partition("\n")[2]
                (home / path).write_text(f"#!{sys.executable}\n{text}")
                (home / path).chmod(0o755)
        if ray:
            (home / f"site/ray-{oci.RAY}.dist-info").mkdir()
            (home / f"site/ray-{oci.RAY}.dist-info/METADATA").write_text(f"Name: ray\nVersion: {oci.RAY}\n")
        (home / "token").write_text(token + "\n")
        environ = {
            **os.environ, **GPU, "GB10_SIM": "slow-load=0.1", "PYTHONPATH": str(home / "site"), "RAY_TMPDIR": str(home),
            "PATH": f"{home / 'bin'}:/usr/bin:/bin",
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(home / "token"),
        }  # fmt: skip
        self.environ = environ
        self._log = home / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, LAUNCHER, *words], env=environ, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def power_off(self) -> None:
        """Everything in it dies at once, as a container's processes do."""
        os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> int:
        return self.process.wait(DEADLINE_SECONDS)

    def ended(self) -> bool:
        """Nobody is left of it."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False


class Cluster:
    """Two hosts that serve one model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ray, self.port = free_port(), free_port()
        self.containers: list[Container] = []

    def start(
        self,
        own: str,
        token: str = TOKEN,
        ray: bool = True,
        timeout: float = DEADLINE_SECONDS,
        words: str = "-tp 2",
        command: Sequence[str] = (),
    ) -> Container:
        serve = ["vllm", "serve", "m", "--distributed-executor-backend", "ray", *words.split()]
        serve += ["--host", HEAD, "--port", str(self.port)]
        whole = [
            *("--hosts", f"{HEAD},{WORKER}", "--own", own, "--port", str(self.ray), "--timeout", str(timeout)),
            *("--num-gpus=1", f"--node-manager-port={self.ray + 1}", "--max-worker-port=10101"),
            *(["--", *(command or serve)] if own == HEAD else []),
        ]
        home = self.folder / str(len(self.containers))
        home.mkdir()
        self.containers.append(Container(home, whole, token, ray))
        return self.containers[-1]

    def both(self) -> tuple[Container, Container]:
        """The head is late; both serve."""
        worker = self.start(WORKER)
        head = self.start(HEAD)
        wait_for(lambda: health(self.port, HEAD) == 200, "the cluster does not answer")
        return head, worker


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    for container in cluster.containers:
        if not container.ended():
            container.power_off()
        container.process.wait()


# ----------------------------------------------------------------------------------------------------- decisions


def test_what_is_not_the_launchers_is_rays_and_vllms() -> None:
    words = "--hosts 10.0.0.1,10.0.0.2 --own 10.0.0.1 --port 6379 --timeout 60 --num-gpus=1 -- vllm serve m --port 8000"
    head = ray_start.parse(words.split())
    assert (head.port, head.timeout, head.ray) == (6379, 60.0, ["--num-gpus=1"])
    assert head.command == ["vllm", "serve", "m", "--port", "8000"]
    start = ray_start.start_words(head)
    assert start[:3] == ["ray", "start", "--head"] and "--node-ip-address=10.0.0.1" in start
    assert {"--port=6379", "--include-dashboard=false", "--block", "--disable-usage-stats", "--num-gpus=1"} <= set(
        start
    )

    node = ray_start.start_words(ray_start.parse(words.replace("--own 10.0.0.1", "--own 10.0.0.2").split()[:9]))
    assert "--address=10.0.0.1:6379" in node and "--block" in node
    assert not [word for word in node if word.startswith(("--head", "--port", "--include-dashboard"))], (
        "of the head only"
    )


@pytest.mark.parametrize("words", ["--own 10.0.0.3", "--own 10.0.0.1", "--own 10.0.0.2 -- vllm serve m"])
def test_a_wrong_question_is_not_answered(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        ray_start.parse(f"--hosts 10.0.0.1,10.0.0.2 --port 1 --timeout 1 {words}".split())
    assert error.value.code == 2 and "--hosts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "knows"),
    [("2.9.3", False), ("2.51.2", False), ("2.52.0", True), ("3.0.0.dev0", True), ("unknown", True)],
)
def test_which_ray_asks_for_the_token(version: str, knows: bool) -> None:
    assert ray_start.knows_token(version) == knows


# ----------------------------------------------------------------------------------------------------- processes


def test_hosts_join_and_a_stop_takes_all_down(cluster: Cluster) -> None:
    head, worker = cluster.both()
    assert "all 2 hosts are nodes of Ray" in head.log
    status = [sys.executable, str(FILES / "ray"), "status"]
    told = subprocess.run(status, env=head.environ, capture_output=True, text=True, check=True).stdout
    assert f"node_{HEAD}" in told and f"node_{WORKER}" in told.partition("Failed")[0]
    arguments = "".join(Path("/proc", one, "cmdline").read_text() for one in children(head.process.pid))
    assert "\0--block\0" in arguments and TOKEN not in arguments

    head.process.terminate()
    assert head.end() == 0, "vLLM's own status"
    wait_for(head.ended, "something of the head is left")
    assert worker.end() == 1
    assert f"{HEAD} is Ray's head, see there too" in worker.log


def children(pid: int) -> list[str]:
    return [one for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]


def test_vllms_own_status_is_the_containers(cluster: Cluster) -> None:
    cluster.start(WORKER)
    assert cluster.start(HEAD, words="-tp 2 --tool-call-parser nope --enable-auto-tool-choice").end() == 1
    assert "invalid tool call parser" in cluster.containers[1].log


def test_a_lost_node_ends_the_head(cluster: Cluster) -> None:
    """Also where vLLM has not noticed: up to 0.19 it does not before the next request."""
    worker, head = cluster.start(WORKER), cluster.start(HEAD, command=["sleep", "3600"])
    wait_for(lambda: "all 2 hosts are nodes of Ray" in head.log, "the hosts do not join")
    vllm = [sys.executable, str(FILES / "vllm"), "serve", "m", "-tp", "2", "--distributed-executor-backend", "ray"]
    environ = {**head.environ, "RAY_ADDRESS": f"{HEAD}:{cluster.ray}"}
    noticing = subprocess.Popen([*vllm, "--port", str(cluster.port)], env=environ, stdout=subprocess.DEVNULL)
    try:
        wait_for_health(cluster.port, 200)
        worker.power_off()
        assert head.end() == 1
        assert f"{WORKER} is no longer a living node of Ray" in head.log
        wait_for(head.ended, "something of the head is left")
        assert noticing.wait(DEADLINE_SECONDS) == 0, "as vLLM leaves when its engine has died"
    finally:
        noticing.kill()
        noticing.wait()


def test_a_lost_head_ends_its_node(cluster: Cluster) -> None:
    head, worker = cluster.both()
    head.power_off()
    assert worker.end() == 1
    assert "`ray start` has ended on 127.0.0.3" in worker.log
    wait_for(worker.ended, "something of the node is left")


def test_a_ray_that_dies_under_vllm_takes_it_along(cluster: Cluster) -> None:
    head, _ = cluster.both()
    os.kill(int((cluster.folder / "1/ray/pids").read_text()), signal.SIGKILL)
    assert head.end() in (1, 128 + signal.SIGKILL), "the one of the watch, where it was faster"
    assert f"has ended on {HEAD} with status" in head.log
    wait_for(head.ended, "something of the head is left")


def test_another_token_is_no_way_in(cluster: Cluster) -> None:
    head = cluster.start(HEAD)
    worker = cluster.start(WORKER, token="f" * 32)
    assert worker.end() == 1 and "Invalid or missing authentication token" in worker.log
    assert f"a request from {WORKER} had not the cluster's token" in head.log and "vLLM API server" not in head.log
    head.process.terminate()
    assert head.end() == 0


def test_the_head_names_who_has_not_come(cluster: Cluster) -> None:
    head = cluster.start(HEAD, timeout=3)
    assert head.end() == 1
    assert f"{WORKER} is no node of Ray at {HEAD}:{cluster.ray}; `journalctl" in head.log


def test_a_node_waits_for_the_head_no_longer_than_told(cluster: Cluster) -> None:
    node = cluster.start(WORKER, timeout=0.5)
    assert node.end() == 1
    assert f"Ray's head {HEAD}:{cluster.ray} did not answer for 0.5 s" in node.log
    waiting = cluster.start(WORKER)
    wait_for(lambda: "SIGTERM" in caught(waiting.process.pid), "the launcher has not begun")
    waiting.process.terminate()
    assert waiting.end() == 0


def caught(pid: int) -> list[str]:
    """The signals that a process has handlers for."""
    (mask,) = (line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "SigCgt" in line)
    return [one.name for one in signal.Signals if int(mask, 16) >> (one - 1) & 1]


@pytest.mark.parametrize("own", [HEAD, WORKER])
def test_an_image_without_ray_says_so_at_once(cluster: Cluster, own: str) -> None:
    container = cluster.start(own, ray=False)
    assert container.end() == 3
    assert container.log == "gb10-ray-start: this image has no Ray: use vllm_executor: mp or an image with Ray\n"


def test_vllm_waits_for_a_gpu_of_each_rank(cluster: Cluster) -> None:
    cluster.start(WORKER)
    head = cluster.start(HEAD, words="-tp 3")
    wait_for(lambda: "Waiting for a placement group: 2 of 3 GPUs" in head.log, "vLLM does not wait")
    assert health(cluster.port, HEAD) == 0
    head.process.terminate()
    assert head.end() == 0


def test_the_image_has_the_command_the_module_and_its_version() -> None:
    version = subprocess.run([sys.executable, FILES / "ray", "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"ray, version {oci.RAY}\n"
