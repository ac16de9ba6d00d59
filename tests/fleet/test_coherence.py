"""Eight ways in which driver, modules and kernel stop to fit, made with real dpkg on copies of a lab host.

The gate, as the program that is on the host, and the doctor must name each of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks import coherence as judgement
from ansible_collections.gb10.fleet.plugins.module_utils.reading import driver_pins as apt
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import findings, table
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import probe as look
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import transport

from lab.image import Image
from lab.shell import STATE
from tests.fleet.fleet import Fleet
from tests.fleet.upgrades import sandbox
from tests.fleet.upgrades.sandbox import ENGINE_CACHE, REQUEST, SPARE, Sandbox
from tests.support.coherence import ABI, SEEDS, seen

pytestmark = pytest.mark.lab

# As on a Spark: GRUB has booted the kernel that runs, and its driver is loaded. The /proc of a copy knows of neither.
BOOTED = f"""
echo {ABI}-nvidia >/opt/osrelease
mount --bind /opt/osrelease /proc/sys/kernel/osrelease
mount -t tmpfs loaded /proc/driver
mkdir /proc/driver/nvidia
echo 'NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release Build' >/proc/driver/nvidia/version
"""


Named = dict[str, str]  # id -> severity


@pytest.fixture(scope="module")
def converged(fleet: Fleet) -> Iterator[Sandbox]:
    image = Image.load(STATE / "hosts" / fleet.hosts[-1] / "image.json")
    with sandbox.fresh(image) as fresh:
        fresh.must("apt-get -qq update")
        said = fresh.converge("driver")
        assert not said["error"] and not said["refused"], said
        fresh.put_files("coherence")
        yield fresh


def judged(host: Sandbox) -> tuple[Named, Named]:
    """The verdicts of the gate and the findings of the doctor."""
    program = host.upper / "opt/look"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_bytes(transport.program({**REQUEST, "check": True}, ENGINE_CACHE))
    gate = host.gate(BOOTED)
    output = host.must(f"{BOOTED}python3 -I -S /opt/look")
    assert gate["coherent"] == judgement.coherent(gate["verdicts"])
    catalogs = {name: catalog.load(name) for name in look.CATALOGS}
    facts = transport.parse(output)["facts"]
    subject = Subject(SPARE.name, facts, {}, {}, catalogs, catalog.declared_variables())
    found = [finding for finding in findings.evaluate_facts(subject) if finding.id in judgement.IDS]
    return {item["id"]: item["severity"] for item in gate["verdicts"]}, {item.id: item.severity for item in found}


def test_a_converged_host_is_coherent(converged: Sandbox) -> None:
    host = converged.over("sound")
    assert judged(host) == ({"coherent": "info"}, {})
    host.drop()


@pytest.mark.parametrize("id_", SEEDS)
def test_gate_and_doctor_name_it(converged: Sandbox, id_: str) -> None:
    host = converged.over(id_.replace("_", "-"))
    host.must(SEEDS[id_])
    gate, doctor = judged(host)
    host.drop()
    print(f"{id_:27} gate: {', '.join(gate):60} doctor: {', '.join(doctor)}")
    assert id_ in gate
    assert doctor == {name: severity for name, severity in gate.items() if name in table.severities()}
    assert not judgement.coherent([{"id": name} for name in gate])


def test_the_gate_also_asks_what_apt_would_install(converged: Sandbox) -> None:
    host = converged.over("candidate")
    host.must(f"rm {apt.OUR_PREFERENCES}" + seen("transitional"))
    assert judged(host) == ({"candidate_not_580": "error"}, {})
    host.drop()
