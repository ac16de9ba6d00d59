"""Serving on machines: one host and two, natively and with Ray, under kills, power cuts and cut cables; and its ports.

Runs on the pair of test_pair.py, after it (files run in the order of their names) or alone. Every loss is followed from
outside: while a cluster is not whole, none of its units may be `active`, and it must be whole again within `BACK_S`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.lab_pair import Pair
from tests.support.rig import Play

pytestmark = [pytest.mark.lab, pytest.mark.long]

UNIT = "gb10-vllm.service"
FORGET = f"sudo systemctl stop {UNIT}; sudo systemctl reset-failed {UNIT}; sudo rm -f /run/gb10-vllm/status.json"
# What a cluster needs to come back on emulated machines: to notice (12 s), to stop (30 s), systemd's pause (60 s), to
# boot (80 s) and to load.
BACK_S = 420
# For how long the hosts may disagree: silence (12 s) and `docker stop` (30 s) on a machine that is slow.
DISAGREE_S = 75
TOKEN = "0123456789abcdef" * 3  # of this lab, and of nothing else
KEY = "the-key-of-the-pair-tests-0123456789"
ASK = "systemctl show gb10-vllm -p ActiveState -p InvocationID --value; sudo cat /run/gb10-vllm/status.json 2>/dev/null"


def serve(pair: Pair, playbook: str = "site.yml", **variables: Any) -> Play:
    return pair.play("-e", json.dumps(variables), playbook=playbook)


def state(pair: Pair, host: str) -> tuple[str, str, dict[str, Any]]:
    """ActiveState, the life of the unit, and what it says of itself. A host that does not answer is `off`."""
    said = pair.lab("ssh", host, ASK, check=False, timeout=60)
    if not said.endswith("rc=0") and "active" not in said:
        return "off", "", {}
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("rc=")]
    words = {line for line in lines if not line.startswith("{")}
    active = next(
        (word for word in words if word in ("active", "activating", "deactivating", "failed", "inactive")), "off"
    )
    life = next((word for word in words if len(word) == 32), "")
    return active, life, json.loads(next((line for line in lines if line.startswith("{")), "{}"))


class Lives:
    """The units of a cluster, followed from outside."""

    def __init__(self, pair: Pair, hosts: tuple[str, ...] = ()) -> None:
        self.pair, self.hosts = pair, hosts or pair.hosts
        for host in self.hosts:
            pair.ssh(host, f"sudo systemctl reset-failed {UNIT}")  # the starts of other tests count no more
        self.before = self.look()
        assert {active for active, _, _ in self.before.values()} == {"active"}, self.before

    def look(self) -> dict[str, tuple[str, str, dict[str, Any]]]:
        return {host: state(self.pair, host) for host in self.hosts}

    def until(self, what: str, condition: Any, limit_s: int) -> dict[str, tuple[str, str, dict[str, Any]]]:
        deadline = time.monotonic() + limit_s
        while not condition(now := self.look()):
            assert time.monotonic() < deadline, f"{what}: not within {limit_s} s; at last {now}"
            time.sleep(2)
        return now

    def down(self) -> dict[str, tuple[str, str, dict[str, Any]]]:
        """None of the former lives is active any more: no half of a cluster stays up."""
        return self.until(
            "no former life is active",
            lambda now: all(
                active != "active" or life != self.before[host][1] for host, (active, life, _) in now.items()
            ),
            DISAGREE_S,
        )

    def back(self) -> None:
        """All are up, each in a new life, ready, and the model answers sense."""
        self.until(
            "all are back and ready",
            lambda now: all(
                active == "active" and life != self.before[host][1] and said.get("phase") == "ready"
                for host, (active, life, said) in now.items()
            ),
            BACK_S,
        )


def strike(pair: Pair, harm: str) -> str:
    """`kill HOST`, or a command of the lab; returns what it struck."""
    word, _, rest = harm.partition(" ")
    if word == "kill":
        pair.ssh(rest, "sudo docker kill gb10-vllm")
    else:
        pair.lab(word, *rest.split())
    return rest


def survives(pair: Pair, harm: str, cure: str = "") -> None:
    """The ways in which a cluster of two is lost, and that it comes back as one."""
    lives = Lives(pair)
    strike(pair, harm)
    lives.down()
    if cure:
        waiting = lives.until(
            "who is left waits for the others, and is not active",
            lambda now: {active for active, _, _ in now.values()} <= {"activating", "off"},
            BACK_S,
        )
        assert "activating" in {active for active, _, _ in waiting.values()}
        pair.lab(*cure.split())
    lives.back()
    assert pair.play(playbook="playbooks/validate.yml").rc == 0
    assert pair.evidence()["verdict"] == "healthy"


HARMS = [
    pytest.param("kill spark-a", "", id="head killed"),
    pytest.param("kill spark-b", "", id="worker killed"),
    pytest.param("power-off spark-b", "power-on spark-b", id="worker without power"),
    pytest.param("power-off spark-a", "power-on spark-a", id="head without power"),
    pytest.param("cut spark-b p0", "mend", id="cable cut"),
]


def open_ports(address: str) -> set[int]:
    """Every TCP port of a host that takes a connection, seen from outside."""

    async def knock(port: int, gate: asyncio.Semaphore) -> int:
        async with gate:
            try:
                _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), 3)
            except (OSError, TimeoutError):
                return 0
            writer.close()
            return port

    async def knock_at_all() -> set[int]:
        gate = asyncio.Semaphore(900)
        return set(await asyncio.gather(*(knock(port, gate) for port in range(1, 65536)))) - {0}

    return asyncio.run(knock_at_all())


def asked(url: str, key: str = "", body: Any = None, method: str = "") -> int:
    """The status of an answer of the gateway; its certificate is its own."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method or None)  # noqa: S310 - https, ours
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


class TestTwoHosts:
    """vLLM's own way to span hosts."""

    def test_it_is_served_and_proven(self, pair: Pair) -> None:
        assert serve(pair).rc == 0
        assert pair.evidence()["verdict"] == "healthy"

    @pytest.mark.parametrize(("harm", "cure"), HARMS)
    def test_it_goes_down_as_one_and_comes_back_as_one(self, pair: Pair, harm: str, cure: str) -> None:
        survives(pair, harm, cure)

    def test_it_goes_down_cleanly(self, pair: Pair) -> None:
        lives = Lives(pair)
        pair.ssh("spark-b", f"sudo systemctl stop {UNIT}")
        lives.until("the head waits", lambda now: now["spark-a"][0] == "activating", BACK_S)
        pair.ssh("spark-a", f"sudo systemctl stop {UNIT}")
        for host in pair.hosts:
            assert pair.ssh(host, "sudo docker ps --quiet").strip() == ""
            assert pair.ssh(host, f"systemctl show {UNIT} -p Result --value").strip() == "success"
        for host in pair.hosts:
            pair.ssh(host, f"sudo systemctl start --no-block {UNIT}")
        lives.back()


class TestPorts:
    """What somebody outside finds, and what the gateway lets through."""

    def test_from_outside_ssh_alone_is_open(self, pair: Pair) -> None:
        assert {host: open_ports(pair.address(host)) for host in pair.hosts} == {host: {22} for host in pair.hosts}

    def test_the_gateway_is_the_one_port_more(self, pair: Pair) -> None:
        certificate = "/etc/ssl/gb10-test.pem", "/etc/ssl/private/gb10-test.key"
        address = pair.address("spark-a")
        pair.ssh(
            "spark-a",
            f"sudo openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={address}"
            f" -out {certificate[0]} -keyout {certificate[1]} 2>/dev/null",
        )
        run = serve(
            pair, "playbooks/converge.yml", gateway_address=address, gateway_keys={"tests": KEY},
            gateway_certificate=certificate[0], gateway_certificate_key=certificate[1],
        )  # fmt: skip
        assert run.rc == 0
        assert {host: open_ports(pair.address(host)) for host in pair.hosts} == {"spark-a": {22, 8443}, "spark-b": {22}}
        url = f"https://{address}:8443"
        question = {"model": "openai/gpt-oss-120b", "messages": [{"role": "user", "content": "What is 17+25?"}]}
        assert asked(f"{url}/v1/chat/completions", KEY, question) == 200
        assert asked(f"{url}/v1/models", KEY) == 200
        for key in ("", KEY[:-1], KEY + "x", KEY.upper()):
            assert asked(f"{url}/v1/models", key) == 401
            assert asked(f"{url}/v1/chat/completions", key, question) == 401
        closed = (
            "/",
            "/metrics",
            "/version",
            "/load",
            "/tokenize",
            "/pause",
            "/invocations",
            "/v1/../metrics",
            "/V1/models",
        )
        assert {path: asked(url + path, KEY) for path in closed} == dict.fromkeys(closed, 404)
        assert KEY not in pair.ssh("spark-a", "sudo journalctl -u gb10-gateway -o cat; ps -eo args")

    def test_without_an_address_it_is_gone(self, pair: Pair) -> None:
        assert serve(pair, "playbooks/converge.yml").rc == 0
        assert open_ports(pair.address("spark-a")) == {22}


class TestRay:
    def test_it_is_served_and_proven(self, pair: Pair) -> None:
        without = serve(pair, vllm_executor="ray", vllm_ray_token=TOKEN)
        assert without.rc != 0 and "ray_missing" in without.output
        accepted = pair.variables["vllm_accept"] | {"ray_missing": "the simulated image brings a Ray of its own"}
        run = serve(pair, vllm_executor="ray", vllm_ray_token=TOKEN, vllm_accept=accepted)
        assert run.rc == 0
        assert TOKEN not in run.output
        assert pair.evidence()["verdict"] == "healthy"
        for host in pair.hosts:
            shown = pair.ssh(host, "sudo docker inspect gb10-vllm; ps -eo args; sudo journalctl -u gb10-vllm -o cat")
            assert TOKEN not in shown and "ray" in shown

    @pytest.mark.parametrize(("harm", "cure"), HARMS)
    def test_it_goes_down_as_one_and_comes_back_as_one(self, pair: Pair, harm: str, cure: str) -> None:
        survives(pair, harm, cure)

    def test_no_port_more_is_open(self, pair: Pair) -> None:
        assert {host: open_ports(pair.address(host)) for host in pair.hosts} == {host: {22} for host in pair.hosts}


class Alone(Pair):
    """The first host of the pair by itself: a cluster of one, without a fabric."""

    hosts = ("spark-a",)

    def __init__(self, pair: Pair, folder: Path) -> None:
        super().__init__()
        self.inventory = folder
        known = yaml.safe_load((pair.inventory / "hosts.yml").read_text())
        (cluster,) = known["all"]["children"]["sparks"]["children"].values()
        one = {"spark-a": cluster["hosts"]["spark-a"]}
        known["all"]["children"] = {"sparks": {"hosts": one, "vars": {"fabric_topology": "none"}}}
        (folder / "hosts.yml").write_text(yaml.safe_dump(known))


@pytest.fixture(scope="class")
def alone(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    pair.ssh("spark-b", f"sudo systemctl disable --now {UNIT} 2>/dev/null || true")
    yield Alone(pair, tmp_path_factory.mktemp("alone"))
    pair.ssh("spark-b", f"sudo systemctl enable {UNIT} 2>/dev/null || true")


class TestOneHost:
    """A profile for one host, its losses, and a name for each way in which it does not serve."""

    def test_it_is_served_and_proven(self, alone: Alone) -> None:
        assert serve(alone).rc == 0
        assert alone.evidence()["verdict"] == "healthy"

    @pytest.mark.parametrize("harm", ["kill spark-a", "power-off spark-a"])
    def test_it_comes_back(self, alone: Alone, harm: str) -> None:
        lives = Lives(alone)
        host = strike(alone, harm)
        if harm.startswith("power-off"):
            alone.lab("power-on", host)
        lives.back()

    @pytest.mark.parametrize(
        ("verdict", "variables"),
        [
            ("garbage", {"vllm_environment": {"GB10_SIM": "garbage"}}),
            ("wrong_model", {"vllm_environment": {"GB10_SIM": "wrong-model"}}),
            ("loading", {"vllm_environment": {"GB10_SIM": "slow-load=900"}, "vllm_ready_timeout": 30}),
            ("memory_short", {"vllm_memory_gate_gib": 64}),
            ("refused_flag", {"vllm_extra_args": ["--ubatch-size", "2"]}),
            ("start_failed", {"vllm_environment": {"GB10_SIM": "no-such-scenario"}}),
        ],
    )
    def test_each_trouble_has_its_name(self, alone: Alone, verdict: str, variables: dict[str, Any]) -> None:
        alone.ssh("spark-a", f"sudo systemctl reset-failed {UNIT} 2>/dev/null || true")
        run = serve(alone, **{"vllm_ready_timeout": 240, **variables})
        assert run.rc != 0
        said = alone.evidence()["hosts"]["spark-a"]["serving"]
        assert (said["ok"], said["verdict"]) == (False, verdict), said

    def test_the_wrong_key_has_its_name(self, alone: Alone) -> None:
        alone.ssh("spark-a", f"sudo systemctl reset-failed {UNIT} 2>/dev/null || true")
        assert serve(alone, vllm_api_key=KEY).rc == 0
        assert serve(alone, "playbooks/validate.yml", vllm_api_key=KEY[::-1]).rc != 0
        assert alone.evidence()["hosts"]["spark-a"]["serving"]["verdict"] == "unauthorized"

    def test_a_full_disk_has_its_name(self, alone: Alone) -> None:
        assert serve(alone).rc == 0
        fill = "sudo fallocate -l $(($(df --output=avail -B1 / | tail -1) - 300000000)) /filler"
        alone.ssh("spark-a", f"{fill}; {FORGET}; sudo systemctl start --no-block {UNIT}")
        try:
            assert self.why(alone) == "disk_full"
        finally:
            alone.ssh("spark-a", "sudo rm /filler")

    def test_a_missing_image_has_its_name_and_the_next_run_brings_it(self, alone: Alone) -> None:
        remove = "sudo docker image rm --force $(sudo docker image ls --quiet gb10-fleet/vllm)"
        alone.ssh("spark-a", f"{FORGET}; {remove}; sudo systemctl start --no-block {UNIT}")
        assert self.why(alone) == "image_missing"
        # It keeps its pause: something that pulled the next start forward would use up all three in half a minute.
        alone.until("spark-a", f"systemctl show {UNIT} -p SubState --value | grep -x auto-restart", 30)
        assert alone.ssh("spark-a", f"systemctl show {UNIT} -p NRestarts --value").strip() == "0"
        assert serve(alone).rc == 0

    def test_an_unreachable_registry_has_its_name(self, alone: Alone) -> None:
        nowhere = f"198.18.7.1:9/vllm@sha256:{'0' * 64}"
        run = serve(alone, "playbooks/converge.yml", vllm_image=nowhere)
        assert run.rc != 0 and "registry_unreachable" in run.output

    def test_an_unknown_image_has_its_name(self, alone: Alone) -> None:
        unknown = f"{alone.image.partition('@')[0]}@sha256:{'0' * 64}"
        run = serve(alone, "playbooks/converge.yml", vllm_image=unknown)
        assert run.rc != 0 and "image_missing" in run.output

    def why(self, alone: Alone) -> str:
        """The verdict that the unit gives, once it has failed."""
        deadline = time.monotonic() + 180
        while True:
            failure = state(alone, "spark-a")[2].get("failure") or {}
            if failure or time.monotonic() > deadline:
                return str(failure.get("verdict"))
            time.sleep(2)
