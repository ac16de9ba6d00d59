"""`gb10 status --hosts` and `gb10 top`: what a host says when somebody looks, and the row that comes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import counters as metrics
from ansible_collections.gb10.fleet.plugins.module_utils.reading import glance, services
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.programs import modules_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.health import carried, looks, rows
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import transport
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.scan import Reply

from tests.support.attacker import tally
from tests.support.health import GIB, NOW, RULES, gpu, reading, sample
from tests.support.looks import look, served

LOADER = 'import sys;f=sys.stdin.buffer;exec(compile(f.read(int(f.readline()[1:])),"opening.py","exec"))'


def host_run(program: bytes) -> str:
    done = subprocess.run([sys.executable, "-I", "-S", "-c", LOADER], input=program, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize("kept", [True, False])
def test_a_host_needs_nothing_but_the_program_and_every_source_is_used(tmp_path: Path, kept: bool) -> None:
    """A folder that others can write to is no place for programs."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700 if kept else 0o755)
    for _ in range(2):
        said = host_run(carried.Message(folder=str(folder)).program())
        (found,) = [one for line in said.splitlines() if (one := looks.of_line(line))]
        assert found["look"]["reading"]["samples"][0]["memory"]["total_bytes"] > 0
    assert len(list(folder.iterdir())) == int(kept)
    assert bool(list(folder.rglob("*.pyc"))) is kept, "compiled once"
    text = carried.Message(folder=str(folder)).program().partition(b"\n")[2]
    end = text.rindex(b"glance.main(")
    listing = text[:end] + b"print(*[name for name in sys.modules if name.startswith('ansible_coll')])\n"
    names = set(host_run(b"#%d\n%b" % (len(listing), listing)).split())
    assert {f"{carried.PACKAGE}.{name.replace('/', '.')}" for name in modules_of("reading/glance")} <= names


def test_a_look_is_what_the_controller_takes(tmp_path: Path) -> None:
    for name, text in (
        ("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\n"), ("proc/uptime", "5.0 1.0\n"),
        ("etc/gb10-fleet/vllm.json", '{"argv": ["--port", "8000"]}'),
        ("etc/gb10-fleet/vllm-chat.json", '{"argv": ["--port", "8001"]}'),
        ("run/gb10-vllm/status.json", '{"phase": "ready", "since": "then", "failure": null}'),
        ("run/gb10-vllm-chat/status.json", '{"phase": "failed", "failure": {"verdict": "killed"}}'),
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def ask(service: metrics.Service, seconds: float) -> metrics.Counters:
        assert service.name != "chat", "who has the port of a service that has failed may be anybody"
        return {**dict.fromkeys(metrics.METRICS), "running": 2.0, "generated_tokens": 7.0}

    host = HostReader(System(root=tmp_path, runner=lambda argv, stdin, timeout: Completed(tuple(argv), 127)))
    line = glance.LINE + json.dumps(glance.look(host, ask))
    found = (looks.of_line(line) or {})["look"]
    assert found["reading"]["samples"][0]["steady_s"] > 0
    row = rows.row("a", [found], None, RULES)
    assert row.memory_used_gib == 600 / 2**20
    chat, vllm = row.services
    assert (chat.name, chat.phase, chat.verdict, chat.problem) == ("chat", "failed", "killed", None)
    assert (vllm.name, vllm.phase, vllm.running, vllm.tokens_per_s) == ("vllm", "ready", 2.0, None)


def test_rates_are_those_between_two_looks() -> None:
    first, last = look(NOW - 2, served(1000, at_s=NOW - 2)), look(
        NOW, served(1090, counters={"ttft_s_sum": 4.6, "ttft_count": 10.0})
    )  # fmt: skip
    (service,) = rows.row("a", [first, last], None, RULES).services
    assert service.tokens_per_s == 45
    assert service.ttft_s == pytest.approx(0.3)
    (quiet,) = rows.row("a", [first, look(NOW, served(1000))], None, RULES).services
    assert (quiet.tokens_per_s, quiet.ttft_s) == (0, 0.5), "no first token came between: that of the server's life"
    steady = [look(at, served(t, at_s=at, steady_s=s)) for at, t, s in ((NOW, 1000, 5), (NOW + 200, 1090, 7))]
    assert rows.row("a", steady, None, RULES).services[0].tokens_per_s == 45, "the clock was set in between"
    (anew,) = rows.row("a", [first, look(NOW, served(3))], None, RULES).services
    assert anew.tokens_per_s is None, "the server began anew"


def test_a_row_has_what_was_read_and_nothing_else() -> None:
    row = rows.row("a", [look(gpu=gpu(2400, 80, 96))], None, RULES)
    assert (row.clock_mhz, row.power_w, row.utilization_percent, row.temperature_c) == (2400, 80, 96, 40)
    assert (row.memory_total_gib, row.memory_used_gib, row.rails_up, row.rails) == (121, 11, 1, 1)
    assert not row.findings
    unknown = rows.row("a", [look(gpu=None, memory=None, rails=None)], None, RULES)
    assert unknown.as_dict() | {"host": "", "at_s": 0} == {
        **dict.fromkeys(row.as_dict()), "host": "", "at_s": 0, "services": [], "findings": [],
    }  # fmt: skip
    assert rows.row("a", [], None, RULES).silent


@pytest.mark.parametrize(
    ("watts", "running", "hung"), [(20.0, 2, True), (80.0, 2, False), (20.0, 0, False), (None, 2, False)]
)
def test_a_hang_is_seen_where_somebody_looks_long_enough(watts: float | None, running: float, hung: bool) -> None:
    seen = [look(NOW - 190 + 10 * n, served(500, running), gpu=gpu(2400, watts, 96)) for n in range(20)]
    found = {finding.id for finding in rows.row("a", seen, None, RULES).findings}
    assert ("engine_hung" in found) is hung
    assert "engine_hung" not in {finding.id for finding in rows.row("a", seen[:10], None, RULES).findings}


@pytest.mark.parametrize("other", [None, "embed"])
@pytest.mark.parametrize("name", ["vllm", "chat"])
def test_a_hang_names_the_unit_that_exists(name: str, other: str | None) -> None:
    """Also where it is the only service, and where another one came later."""
    seen = [
        look(
            NOW - 190 + 10 * n,
            served(500, 2, name=name),
            *([served(500 + n, name=other)] if other and n > 10 else []),
            gpu=gpu(2400, 20.0, 96),
        )
        for n in range(20)
    ]
    found = rows.row("a", seen, None, RULES).findings
    (hung,) = (finding for finding in found if finding.id == "engine_hung")
    unit = "gb10-vllm" if name == "vllm" else "gb10-vllm-chat"
    assert f"`sudo systemctl restart --no-block {unit}` on the first host of the cluster alone" in hung.way_out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("welcome", None),
        (glance.LINE + "{", "no JSON"),
        (glance.LINE + "[" * 100_000, "no JSON"),
        (glance.LINE + "{}", "look"),
        (glance.LINE + json.dumps(look() | {"services": [{"name": 5}]}), "look.services"),
        (glance.LINE + json.dumps(look() | {"reading": {**reading(), "samples": []}}), "samples is []"),
    ],
)
def test_an_answer_that_is_not_ours_is_none(line: str, said: str | None) -> None:
    found = looks.of_line(line)
    assert found is None if said is None else said in (found or {})["silent"]


@pytest.mark.parametrize("body", ['{"reading": [' + "{}," * 300_000 + "1]}", '{"x": [' + "[]," * 300_000 + "1]}"])
def test_an_answer_of_values_that_are_short_to_write_is_not_parsed(body: str) -> None:
    """16 MiB of them took half a GiB of this machine."""
    said = [looks.of_line(glance.LINE + body), looks.services_of(Reply("a", 0, services.LINE + body, ""))]
    won = sum("no JSON" not in str(one) for one in said)
    tally("a host sends values without end, which are short to write", 2, won)
    assert won == 0
    with pytest.raises(ValueError, match="values"):
        transport.parse(transport.MARKER + body)


@pytest.mark.parametrize("count", [looks.MOST_SERVICES, looks.MOST_SERVICES + 1])
def test_a_host_has_only_so_many_services(count: int) -> None:
    """240 of them, which one line has room for, cost a fifth of a core each second."""
    said = look(NOW, *[served(name=f"s{number}") for number in range(count)])
    found = looks.of_line(glance.LINE + json.dumps(said)) or {}
    if count > looks.MOST_SERVICES:
        tally("a look with more services than a host can have", 1, int("look" in found))
    assert ("look" in found) is (count <= looks.MOST_SERVICES)
    assert found.get("silent", "must be a list of 32 at most").endswith("must be a list of 32 at most")


def test_a_host_cannot_steer_the_terminal() -> None:
    found = looks.of_line(glance.LINE + json.dumps(look(NOW, served(phase="\x1b[2J"))))
    assert "\x1b" not in json.dumps(found, ensure_ascii=False)


def test_replies() -> None:
    line = glance.LINE + json.dumps(look())
    assert len(looks.of_reply(Reply("a", 0, f"hello\n{line}\n{line}\n", ""), 9)["looks"]) == 2
    assert looks.of_reply(Reply("a", None, "", ""), 9)["silent"] == "it gave no answer within 9 s"
    assert looks.of_reply(Reply("a", 255, "", "x\nssh: no route\n"), 9)["silent"] == "ssh: no route"
    assert looks.of_reply(Reply("a", 3, "", ""), 9)["silent"] == "exit status 3"
    assert "no JSON" in looks.of_reply(Reply("a", 0, f"{glance.LINE}(", ""), 9)["silent"]


def test_memory_of_a_row_is_what_nobody_can_have() -> None:
    memory = {**sample()["memory"], "total_bytes": 100 * GIB, "available_bytes": 30 * GIB}
    assert rows.row("a", [look(memory=memory)], None, RULES).memory_used_gib == 70
