"""How to use a model: the same record gives the text of the terminal and of the page."""

from __future__ import annotations

import ast
import json
import shlex
from dataclasses import replace

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import usage

USE = usage.Usage("chat", "spark-a", "org/it's", "http://127.0.0.1:8000", login="nvidia@192.0.2.11")


def text(use: usage.Usage) -> str:
    return "\n".join(usage.whole([use]))


def lines_of(use: usage.Usage, title: str) -> tuple[str, ...]:
    return next(step.lines for step in usage.steps(use) if step.title.startswith(title))


def test_a_laptop_gets_a_tunnel_and_its_own_address() -> None:
    """Where another login of the laptop has the port, ssh ends: by default it takes that of [::1], and stays."""
    tunnel = "ssh -N -o ExitOnForwardFailure=yes -L 127.0.0.1:8000:127.0.0.1:8000 nvidia@192.0.2.11"
    assert lines_of(USE, "Address on your own")[0] == tunnel
    far = replace(USE, ssh_port=2222, url="http://[::1]:8001")
    assert lines_of(far, "Address on your own") == (
        "ssh -N -o ExitOnForwardFailure=yes -L '127.0.0.1:8001:[::1]:8001' -p 2222 nvidia@192.0.2.11",
        "http://127.0.0.1:8001/v1",
    )


def test_on_the_host_itself_there_is_no_tunnel() -> None:
    here = replace(USE, login="")
    assert "ssh" not in text(here) and "http://127.0.0.1:8000/v1/chat/completions" in text(here)


def test_what_is_to_be_copied_is_sound() -> None:
    """A name with an apostrophe stays one word of the shell, and one text of Python."""
    command = shlex.split(lines_of(USE, "curl")[0])
    assert json.loads(command[command.index("-d") + 1])["model"] == USE.model
    program = lines_of(USE, "Python")
    ast.parse("\n".join(program))
    assert len(program) == 3 and "-i INVENTORY" in lines_of(USE, "Stop")[0]


def test_a_model_that_calls_tools_is_shown_with_one() -> None:
    assert "tool" not in text(USE)
    (line,) = lines_of(replace(USE, tools=True, needs_key=True), "curl, with a tool")
    command = shlex.split(line)
    body = json.loads(command[command.index("-d") + 1])
    assert body["model"] == USE.model and "Authorization: Bearer $KEY" in command
    assert [tool["function"]["name"] for tool in body["tools"]] == ["weather"] and len(line) < 400


def test_a_key_is_asked_for_and_never_shown() -> None:
    assert "Authorization" not in text(USE)
    assert 'Authorization: Bearer $KEY"' in text(replace(USE, needs_key=True))


def test_the_shared_address_is_there_where_a_gateway_is() -> None:
    assert "in your network" not in text(USE) and "gb10 share laptop" in text(USE)
    shared = text(replace(USE, shared="https://192.0.2.11:8443"))
    assert "https://192.0.2.11:8443/v1" in shared and "gb10 share laptop" not in shared


def test_a_command_means_the_service_that_it_stands_below_and_no_other_of_its_name() -> None:
    """`gb10 stop chat`, copied from below one host, stopped it on all of them."""
    pair, embed = replace(USE, host="spark-b"), replace(USE, service="embed")
    alone = usage.told_apart([("spark-a", USE), ("spark-a", embed)])
    assert alone == [USE, embed] and "--limit" not in text(alone[0])
    apart = usage.told_apart([("spark-a", USE), ("two", pair), ("three", embed), ("three", replace(embed, host="c"))])
    assert [use.limit for use in apart] == ["spark-a", "two", "spark-a", "c"]
    for title in ("Ask it", "Follow", "Stop it"):
        assert lines_of(apart[1], title)[0].endswith(" chat --limit two -i INVENTORY")
    assert "gb10 start chat --limit two -i INVENTORY" in text(apart[1])


def test_the_short_text_has_addresses_and_the_way_to_the_rest() -> None:
    short = list(usage.short([USE]))
    assert short[0] == "chat on spark-a: ask for org/it's at" and short[-1].endswith("gb10 ps --use -i INVENTORY")
    assert not list(usage.short([])) and not list(usage.whole([]))


@pytest.mark.parametrize(
    ("variables", "login", "gateway"),
    [
        ({"ansible_host": "192.0.2.11", "ansible_user": "me"}, "me@192.0.2.11", None),
        ({"inventory_hostname": "spark-a"}, "spark-a", None),
        ({"inventory_hostname": "spark-a", "ansible_connection": "local"}, "", None),
        ({"ansible_host": "a", "gateway_address": "2001:db8::1"}, "a", "https://[2001:db8::1]:8443"),
        (
            {"ansible_host": "a", "gateway_address": "192.0.2.1", "gateway_plain_http": True, "gateway_port": 80},
            "a",
            "http://192.0.2.1:80",
        ),
    ],
)
def test_the_inventory_says_how_a_host_is_reached(variables: dict[str, object], login: str, gateway: str) -> None:
    found = usage.reach(variables)
    assert (found["login"], found["gateway"]) == (login, gateway)
    cluster = {"gb10_cluster": "pair", "groups": {"pair": ["a", "b"]}}
    assert (found["members"], usage.reach({**variables, **cluster})["members"]) == ([], ["a", "b"])


def test_only_a_service_that_answers_has_a_usage() -> None:
    api = {"host": "spark-a", "url": "http://127.0.0.1:8000", "gateway": None}
    served = {"verdict": "serving", "served_models": ["m"], "service": "chat", "api": api}
    assert usage.of_evidence(served) == usage.Usage("chat", "spark-a", "m", api["url"] or "")
    assert usage.of_evidence({**served, "verdict": "no_answer"}) is None
    assert usage.of_evidence({**served, "api": None}) is None
