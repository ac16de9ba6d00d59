"""`python -m benchmarks.router`: what a request and a stream cost through the router, beside a direct call.

All ways ask the same server on loopback, in turn, round by round, so whatever disturbs the machine disturbs all. Real
NGINX and HAProxy, as the role gateway writes them; needs no root and no lab. The two candidates stand alone, too:
HAProxy that reads the model's name, and NGINX with a path for each model.
"""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support import router_fleet
from tests.support.ports import free_port
from tests.support.router_fleet import KEY, Fleet, Spark

MODEL, OTHER = "Qwen/Qwen3-8B", "bge-m3"
GAP_S = 0.01  # between two tokens: 100 tokens/s, more than a GB10 makes of any model of the catalog for one client
REQUESTS, STREAMS, TOKENS = 300, 12, 100
MOST_MS, LEAST_RATIO = 5.0, 0.98
HAPROXY = """
defaults
    mode http
    timeout connect 3s
    timeout client 60s
    timeout server 60s
    option http-no-delay
    http-reuse never
global
    nbthread 2
    tune.bufsize 1114112
frontend f
    bind 127.0.0.1:{port}
    http-request wait-for-body time 10s at-least 1048576
    http-request set-var(txn.model) 'req.body,json_query("$.model")'
    use_backend b if {{ var(txn.model) -m str '{model}' }}
backend b
    server s 127.0.0.1:{upstream}
"""
NGINX = """
error_log stderr crit;
pid {folder}/pid;
daemon off;
events {{}}
http {{
    access_log off;
    proxy_buffering off;
    proxy_http_version 1.1;
    client_body_temp_path {folder}/body;
    server {{
        listen 127.0.0.1:{port};
        location = /chat/v1/chat/completions {{ proxy_pass http://127.0.0.1:{upstream}/v1/chat/completions; }}
    }}
}}
"""
Way = Callable[[], tuple[http.client.HTTPConnection, str, str]]  # a new connection, a path, a model


def ask(kept: tuple[http.client.HTTPConnection, str, str]) -> float:
    """Milliseconds of one small request on a connection that is kept, as clients do."""
    connection, path, model = kept
    began = time.perf_counter()
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 400}], "model": model})
    connection.request("POST", path, body, {"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status}")
    return (time.perf_counter() - began) * 1000


def stream(way: Way) -> float:
    """Tokens per second of one stream, from its first to its last token."""
    connection, path, model = way()
    body = json.dumps({"messages": [], "model": model, "stream": True, "endless": True})
    connection.request("POST", path, body, {"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    answer.readline()
    began = time.perf_counter()
    for _ in range(2 * TOKENS):  # a token is a line and an empty one
        answer.readline()
    took = time.perf_counter() - began
    connection.close()
    return TOKENS / took


@contextmanager
def plain(fleet: Fleet) -> Iterator[dict[str, Way]]:
    """HAProxy and NGINX alone, without TLS and keys."""
    folder, upstream = fleet.folder, fleet.head.port
    ports = {"haproxy": free_port(), "nginx": free_port()}
    (folder / "plain.cfg").write_text(HAPROXY.format(port=ports["haproxy"], upstream=upstream, model=MODEL))
    (folder / "plain.conf").write_text(NGINX.format(port=ports["nginx"], upstream=upstream, folder=folder))
    started = [
        subprocess.Popen([str(router_fleet.HAPROXY), "-db", "-q", "-f", str(folder / "plain.cfg")]),
        subprocess.Popen([str(router_fleet.NGINX), "-e", "stderr", "-c", str(folder / "plain.conf")]),
    ]
    try:
        for port, process in zip(ports.values(), started, strict=True):
            router_fleet.await_port("127.0.0.1", port, process)
        yield {
            "HAProxy alone": lambda: (loopback(ports["haproxy"]), "/v1/chat/completions", MODEL),
            "NGINX by path alone": lambda: (loopback(ports["nginx"]), "/chat/v1/chat/completions", MODEL),
        }
    finally:
        for process in started:
            process.terminate()
            process.wait()


def loopback(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


def measured(ways: dict[str, Way], requests: int, streams: int, fleet: Fleet) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {name: {"ms": [], "tokens_per_s": [], "cpu_ms": []} for name in ways}
    kept = {name: way() for name, way in ways.items()}
    for connection in kept.values():  # each once, uncounted: TLS
        ask(connection)
    for _ in range(requests):
        for name, connection in kept.items():
            before = used_ms(fleet)
            found[name]["ms"].append(ask(connection))
            found[name]["cpu_ms"].append(used_ms(fleet) - before)
    for _ in range(streams):
        for name, way in ways.items():
            found[name]["tokens_per_s"].append(stream(way))
    return found


def used_ms(fleet: Fleet) -> float:
    """What all gateways and the router have used of the processors; other programs do not change it."""
    left, total = [process.pid for process in fleet.processes], 0
    while left:
        pid = left.pop()
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
            left += map(int, (task / "children").read_text().split())
    return total / 1e6


def table(found: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    """Beside the direct call: extra milliseconds at the median and at p99, tokens/s as a share, and work."""
    direct = found["direct"]
    yield f"{'way':24} {'p50 ms':>8} {'extra':>7} {'p99 ms':>8} {'extra':>7} {'tokens/s':>9} {'share':>7} {'CPU ms':>7}"
    for name, way in found.items():
        p50, p99 = statistics.median(way["ms"]), quantile(way["ms"])
        rate = statistics.median(way["tokens_per_s"])
        share = rate / statistics.median(direct["tokens_per_s"])
        yield (
            f"{name:24} {p50:8.2f} {p50 - statistics.median(direct['ms']):7.2f} {p99:8.2f} "
            f"{p99 - quantile(direct['ms']):7.2f} {rate:9.2f} {share:7.4f} "
            f"{statistics.mean(way['cpu_ms']):7.2f}"
        )


def quantile(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def verdicts(found: dict[str, dict[str, list[float]]]) -> Iterator[tuple[bool, str]]:
    """At the median: what it adds to a direct call and to the gateway with its TLS, and what it leaves of a stream."""
    for name in ("router, own host", "router, another host"):
        for base, words in (("direct", "a direct call"), ("gateway, no router", "the gateway alone")):
            extra = statistics.median(found[name]["ms"]) - statistics.median(found[base]["ms"])
            yield extra <= MOST_MS, f"{name}: {extra:.2f} ms more than {words}, at most {MOST_MS:g}"
        direct = statistics.median(found["direct"]["tokens_per_s"])
        share = statistics.median(found[name]["tokens_per_s"]) / direct
        yield share >= LEAST_RATIO, f"{name}: {share:.4f} of a direct stream's tokens/s, at least {LEAST_RATIO:g}"


def main() -> int:
    if router_fleet.MISSING:
        raise SystemExit(router_fleet.WHY)
    models = {"spark-a": [MODEL], "spark-b": [OTHER], "spark-c": [MODEL]}
    with router_fleet.running(models, GAP_S, ["spark-c"]) as fleet, plain(fleet) as alone:
        trusted = ssl.create_default_context(cafile=str(fleet.ca))

        def through(model: str, head: Spark) -> Way:
            return lambda: (
                http.client.HTTPSConnection(head.address, head.gateway_port, context=trusted, timeout=60),
                "/v1/chat/completions",
                model,
            )

        ways: dict[str, Way] = {
            "direct": lambda: (loopback(fleet.head.port), "/v1/chat/completions", MODEL),
            **alone,
            "gateway, no router": through(MODEL, fleet.spark("spark-c")),
            "router, own host": through(MODEL, fleet.head),
            "router, another host": through(OTHER, fleet.head),
        }
        found = measured(ways, REQUESTS, STREAMS, fleet)
    print("\n".join(table(found)))
    judged = list(verdicts(found))
    for good, text in judged:
        print(f"{'PASS' if good else 'MISS'}: {text}")
    results = Path(__file__).parent / "results"
    file = results / f"router-{time.strftime('%Y-%m-%d')}.json"
    versions = {name: version(name) for name in ("nginx", "haproxy")}
    rounded = {
        way: {what: [round(each, 3) for each in row] for what, row in rows.items()} for way, rows in found.items()
    }
    file.write_text(json.dumps({"versions": versions, "ways": rounded}) + "\n")
    return 0 if all(good for good, _ in judged) else 1


def version(name: str) -> str:
    path = shutil.which(name, path="/usr/sbin:/usr/bin") or name
    done = subprocess.run([path, "-v"], capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
