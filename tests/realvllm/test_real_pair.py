"""A cluster of two on a real vLLM: two units meet on the loopback, share each layer over gloo, and answer as one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe as serving
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in

from tests.realvllm.real import Real, is_ours
from tests.support.ports import free_port

ADDRESSES = ("127.0.0.11", "127.0.0.12")


def pair(real: Callable[..., Real], folder: Path, model: Path) -> list[Real]:
    """Both ranks, as the role starts them; the fabric is the loopback."""
    key = folder / "join.key"
    key.write_text(64 * "0" + " " + 64 * "5")
    join, master = free_port(), free_port()
    members = [{"name": f"spark-{'ab'[rank]}", "address": address} for rank, address in enumerate(ADDRESSES)]
    ranks = []
    for rank, address in enumerate(ADDRESSES):
        words = ["--max-model-len", "2048", "--tensor-parallel-size", "2", "--distributed-executor-backend", "mp"]
        words += ["--nnodes", "2", "--node-rank", str(rank), "--master-addr", ADDRESSES[0]]
        words += ["--master-port", str(master), *(["--headless"] if rank else [])]
        environment = (f"VLLM_HOST_IP={address}", "GLOO_SOCKET_IFNAME=lo", "VLLM_CPU_OMP_THREADS_BIND=nobind")
        said: dict[str, Any] = {"rank": rank, "members": members, "port": join, "key": str(key), "settings": {"a": "b"}}
        ranks.append(real(*words, model=model, environment=environment, join=said))
    return ranks


def test_two_units_serve_as_one_and_end_as_one(real: Callable[..., Real], trained: Path, tmp_path: Path) -> None:
    head, other = pair(real, tmp_path, trained)
    for one in (head, other):
        one.start()
    for one in (head, other):
        one.reaches("ready")
    ask = serving.http_client(f"http://127.0.0.1:{head.port}", None, is_ours)
    proof = serving.probe(ask, "tiny", timeout_s=60, answer_timeout_s=300)
    assert proof.verdict == "serving", proof
    os.killpg(other.pid, signal.SIGKILL)  # the worker of the second host
    assert head.end() == 1 and other.end() == 1
    verdicts = {one: document_in(one.path)["failure"]["verdict"] for one in (head, other)}
    assert verdicts[other] in ("killed", "peer_lost") and verdicts[head] in ("peer_lost", "engine_died"), verdicts
