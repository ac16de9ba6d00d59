"""What doctor says: one healthy host, and one change of it for every finding."""

from __future__ import annotations

import html
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import judge as judge_health
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import SILENT_GPU
from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import collect
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding, from_failure, together
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.findings import (
    evaluate_facts,
    evaluate_variables,
    refusal,
    refused,
    state_refused,
    warnings,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.host_checks import GIB, MENDED_BY_A_MOVE
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.table import never_accepted, severities
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.probe import told_once
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_page, judge

from tests.support import health
from tests.support.attacker import tally
from tests.support.proofs import NOW, facts, proof, thresholds
from tests.support.subjects import CATALOG, MODEL, PAIR, subject

CUDA = "developer.download.nvidia.com/compute/cuda/repos"


def evaluate(judged: Subject) -> list[Finding]:
    """All that doctor says of a host that it could read."""
    return [*evaluate_variables(judged), *evaluate_facts(judged)]


def rails(**changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**rail, **changes.get(rail["netdev"], {})} for rail in facts()["rails"]]


def silent(state: str, said: str) -> dict[str, Any]:
    return {"present": False, "state": state, "query_error": said}


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, [str(finding) for finding in found]
    return found[0]


def test_a_healthy_host_has_nothing_to_say() -> None:
    assert evaluate(subject()) == []


def test_a_clear_text_is_the_value_that_it_says() -> None:
    judged = subject({**PAIR, "fabric_mtu": "9000", "share": "0.5", "fast": "yes"})
    assert evaluate(judged) == []
    assert [judged.setting(name) for name in ("fabric_mtu", "share", "fast")] == [9000, 0.5, True]
    finding = only(evaluate(subject({**PAIR, "fabric_mtu": "100"})))
    assert finding.id == "bad_variable" and "fabric_mtu 100" in finding.fact


def test_the_pin_that_we_asked_for_is_no_pin_to_name() -> None:
    sources = {"entries": [{"file": "/c.list", "uri": f"https://{CUDA}/ubuntu2404/sbsa"}]}
    pin = {"file": "/p", "package": "nvidia-container-toolkit", "pin": f'origin "{CUDA.partition("/")[0]}"'}
    assert evaluate(subject(apt_sources=sources, apt_preferences=[{**pin, "priority": -1}])) == []
    said = evaluate(subject(apt_sources=sources, apt_preferences=[{**pin, "priority": 1001}]))
    assert [finding.id for finding in said] == ["toolkit_of_cuda", "apt_pin"]


STRANGE = ("spark a", 'spark"a', "spark%i", "a\nExecStartPre=/bin/false", "a\u2028b", "-a", "a;b", "a" * 128)


def names_refused(host: str, member: str) -> list[Finding]:
    judged = replace(subject(), host=host, groups={"pair1": [host, member]})
    return [each for each in evaluate_variables(judged) if "the inventory calls" in each.fact]


@pytest.mark.parametrize("name", STRANGE)
def test_a_name_of_a_host_that_a_file_would_read_otherwise_is_refused(name: str) -> None:
    """Units, rules of the firewall and Prometheus have it as it is; so have those of its peers."""
    for own, member in ((name, "spark-b"), ("spark-a", name)):
        found = names_refused(own, member)
        tally("a name of the inventory that means something else in a file", 1, not found)
        assert only(found).id == "bad_variable" and len(only(found).fact) < 200


def test_usual_names_of_hosts_are_taken() -> None:
    for name in ("spark-a", "10.0.0.1", "spark_1.example.com", "2001:db8::1", "A"):
        assert names_refused(name, "spark-b") == []


@pytest.mark.parametrize("hook", [["/usr/local/bin/tell-us", "--loud"], "https://hooks.example.com/gb10/x"])
def test_a_hook_is_a_command_or_a_url(hook: object) -> None:
    assert evaluate(subject({**PAIR, "gb10_notify": hook})) == []


@pytest.mark.parametrize("hook", [{"url": "s3cret"}, [], ["/bin/tell", 7], "tell-us s3cret", 5])
def test_what_is_no_hook_is_refused_and_not_shown(hook: object) -> None:
    finding = only(evaluate(subject({**PAIR, "gb10_notify": hook})))
    assert finding.id == "bad_variable" and "gb10_notify is neither a command nor a URL" in finding.fact
    assert "s3cret" not in str(finding)


def test_a_reservation_that_says_no_day_is_named() -> None:
    assert evaluate(subject({**PAIR, "gb10_reserved": "ada until 2026-12-24"})) == []
    finding = only(evaluate(subject({**PAIR, "gb10_reserved": "ada"})))
    assert (finding.id, finding.fact) == ("bad_variable", "gb10_reserved is 'ada'")
    assert "write WHO until DAY" in finding.way_out


def test_a_wrong_plug_is_named_without_its_secret() -> None:
    plug = {"kind": "netio", "address": "192.0.2.50", "outlet": 1, "user": "gb10", "secret": "s3cret"}
    assert evaluate(subject({**PAIR, "gb10_power_plug": plug})) == []
    finding = only(evaluate(subject({**PAIR, "gb10_power_plug": {**plug, "outlet": "one"}})))
    assert (finding.id, finding.fact) == ("bad_variable", "gb10_power_plug.outlet is 'one'")
    assert "s3cret" not in str(finding)


BEGAN, ENDED = 1795401000.0, 1795401002.5  # of a call, by the controller's clock


def asked(epoch_s: float) -> Subject:
    """A host that said this time in a call between BEGAN and ENDED."""
    return replace(subject(clock={"epoch_s": epoch_s}), call=(BEGAN, ENDED))


def beside(name: str, **differs: Any) -> Subject:
    """A host in a run with another one that gave the same facts."""
    one = subject(machine_digest="0123456789abcdef", ssh={"local_address": "192.0.2.11"})
    return replace(one, heard={"spark-a": one.facts, name: {**one.facts, **differs}})


P0 = ("enp1s0f0np0", "enP2p1s0f0np0")
KERNEL = facts()["driver"]["kernels"][0]


def linked(mbps: int | None, **variables: Any) -> Subject:
    """spark-a of a pair whose p0 links at that rate; the other end was asked too."""
    there = [
        {**item, "speed_mbps": mbps if item["name"] in P0 else item["speed_mbps"]} for item in facts()["interfaces"]
    ]
    one = subject({**PAIR, **variables}, interfaces=there)
    return replace(one, heard={"spark-b": {"rails": one.facts["rails"], "interfaces": there, "machine_digest": None}})


@pytest.mark.parametrize(
    ("judged", "id_", "severity", "words"),
    [
        (subject(root=False), "no_sudo", "error", ["without root", "become"]),
        (
            subject(product={"dmi_vendor": "Dell", "dmi_name": "OptiPlex", "dmi_family": None, "dgx_release": None}),
            "not_a_spark", "error", ["OptiPlex", "products.yml"],
        ),
        (subject(os={"id": "debian", "version_id": "13", "pretty": "Debian 13"}), "os", "error", ["Debian 13"]),
        (subject(architecture="x86_64"), "architecture", "error", ["x86_64", "aarch64"]),
        (subject(rails=[]), "no_rdma", "error", ["RDMA", "not on the PCIe bus until a cable is in"]),
        (subject(rails=facts()["rails"][2:]), "no_rail", "error", ["p0", "enp1s0f1np1 (p1)"]),
        (subject(rails=facts()["rails"][1:]), "no_rail", "error", ["only one", "twin enp1s0f0np0 is not there"]),
        (
            subject(rails=[facts()["rails"][0], *facts()["rails"][2:]]),
            "no_rail", "error", ["has only one of its 2 rails, enp1s0f0np0", "its twin enP2p1s0f0np0 is not there"],
        ),
        (
            subject(rails=rails(**{name: {"carrier": False} for name in P0})),
            "no_carrier", "error",
            [*P0, "port p1 has a link: move the cable to p0 on this host, or, if it is in p1 on each host", "; else "],
        ),
        (
            subject(rails=[{**rail, "carrier": False} for rail in facts()["rails"]]),
            "no_carrier", "error", ["check the cable between spark-a p0 and spark-b p0"],
        ),
        (subject(rails=rails(enp1s0f0np0={"carrier": None})), "no_carrier", "warn", ["enp1s0f0np0", "down"]),
        (subject({**PAIR, "fabric_asn": 65000}), "foreign_variables", "info", ["fabric_asn", "another role's"]),
        (linked(100000), "slow_link", "warn", ["p0 links below 200 Gb/s", "enp1s0f0np0 at 100 Gb/s", "spark-b p0"]),
        (subject(ssh={"interface": "enp1s0f0np0"}), "rail_is_management", "error", ["SSH session", "p0"]),
        (subject(default_route_interfaces=[P0[1]]), "rail_is_management", "error", ["default route", P0[1]]),
        (
            subject(disks=[{"mount": "/", "size_bytes": 100 * GIB, "free_bytes": 10 * GIB}]),
            "disk_full", "error", ["/var/lib/docker", "10.0 GiB", "20 GiB"],
        ),
        (subject({**PAIR, "fabric_mut": 9000}), "unknown_variable", "error", ["fabric_mut", "fabric_mtu?"]),
        (subject({**PAIR, "driver_name": 1}), "foreign_variables", "info", ["driver_name", "another role's"]),
        (subject({**PAIR, "fabric_topology": "star"}), "bad_variable", "error", ["fabric_topology", "star"]),
        (subject({**PAIR, "fabric_mtu": "big"}), "bad_variable", "error", ["fabric_mtu", "roles/fabric/README.md"]),
        (subject({**PAIR, "fabric_mtu": "9k"}), "bad_variable", "error", ["the text '9k'", "a whole number"]),
        (subject({**PAIR, "fabric_mtu": True}), "bad_variable", "error", ["True", "a whole number"]),
        (subject({**PAIR, "fabric_ports": "p0"}), "bad_variable", "error", ["'p0'", "a list"]),
        (subject({**PAIR, "share": "half"}), "bad_variable", "error", ["share is the text 'half'", "a number"]),
        (subject({**PAIR, "fast": "maybe"}), "bad_variable", "error", ["fast is the text 'maybe'", "true or false"]),
        (subject({**PAIR, "fabric_ports": []}), "bad_variable", "error", ["fabric_ports", "each cabled port once"]),
        (subject({**PAIR, "fabric_mtu": 100}), "bad_variable", "error", ["fabric_mtu 100", "between 1500 and 9216"]),
        (
            subject({**PAIR, "fabric_network": "192.168.100.0/21"}),
            "bad_variable", "error", ["did you mean 192.168.96.0/21?"],
        ),
        (subject({**PAIR, "fabric_network": "224.0.0.0/22"}), "bad_variable", "error", ["fabric_network", "multicast"]),
        (
            subject({**PAIR, "fabric_thresholds": {"port_min_gpbs": 5}}),
            "bad_variable", "error", ["no threshold port_min_gpbs, did you mean port_min_gbps?"],
        ),
        (subject({**PAIR, "fabric_thresholds": {"port_min_gbps": "5"}}), "bad_variable", "error", ["positive number"]),
        (
            subject({**PAIR, "fabric_test": {"duraton_s": 5}}),
            "bad_variable", "error", ["fabric_test names duraton_s", "did you mean duration_s?"],
        ),
        (subject({**PAIR, "fabric_test": {"qps": "4"}}), "bad_variable", "error", ["fabric_test.qps is '4'"]),
        (subject({**PAIR, "fabric_test": {"qps": True}}), "bad_variable", "error", ["fabric_test.qps is True"]),
        (
            subject({**PAIR, "fabric_test": {"duration_s": 120}}),
            "bad_variable", "error", ["fabric_test.duration_s is 120", "from 2 to 119"],
        ),
        (
            subject({**PAIR, "fabric_rails": {"p0": "enp1s0f0np0"}}),
            "bad_variable", "error", ["fabric_rails.p0 is 'enp1s0f0np0'", "a list of 2 interfaces"],
        ),
        (subject({**PAIR, "fabric_rails": {"p0": [P0[0]]}}), "bad_variable", "error", ["a list of 2 interfaces"]),
        (subject({**PAIR, "fabric_rails": {"p0": [1, 2]}}), "bad_variable", "error", ["a list of 2 interfaces"]),
        (subject({**PAIR, "fabric_rails": {"P0": list(P0)}}), "bad_variable", "error", ["the port 'P0'", "p0 and p1"]),
        (subject({**PAIR, "gb10_minimum_free_gib": {"/x": "1"}}), "bad_variable", "error", ["/x", "'1'"]),
        (subject({**PAIR, "gb10_minimum_free_gib": {"x": 1}}), "bad_variable", "error", ["'x'", "absolute"]),
        (subject({**PAIR, "gb10_minimum_free_gib": {"/x": 0}}), "bad_variable", "error", ["positive"]),
        (
            subject({**PAIR, "vllm_model": "openai/gpt-os-120b"}),
            "unknown_model",
            "warn",
            ["vllm_model openai/gpt-os-120b is not in the catalog", "did you mean openai/gpt-oss-120b"],
        ),
        (subject({"vllm_model": MODEL, "gb10_cluster": ""}), "bad_variable", "error", ["gb10_cluster is empty"]),
        (subject({**PAIR, "gb10_accept": {"no_rail": "x"}}), "bad_variable", "error", ["cannot be accepted"]),
        (
            subject({**PAIR, "gb10_accept": {"rail_is_management": "x"}}),
            "bad_variable", "error", ["cannot be accepted"],
        ),
        (subject({**PAIR, "gb10_accept": {"oss": "x"}}), "bad_variable", "error", ["oss", "os?"]),
        (subject({**PAIR, "gb10_accept": {"os": "  "}}), "bad_variable", "error", ["gb10_accept.os", "reason"]),
        (subject({**PAIR, "gb10_accept": {"no_sudo": "x"}}), "bad_variable", "error", ["cannot be accepted"]),
        (subject({**PAIR, "gb10_accept": {"vllm_refused": "x"}}), "bad_variable", "error", ["cannot be accepted"]),
        (subject({**PAIR, "gb10_accept": {"dokcer_refused": "x"}}), "bad_variable", "error", ["which is no finding"]),
        (subject({**PAIR, "gb10_roles": ["dokcer"]}), "bad_variable", "error", ["dokcer", "gb10_roles"]),
        (subject({**PAIR, "gb10_orphans": "drop"}), "bad_variable", "error", ["drop", "gb10_orphans"]),
        (subject({**PAIR, "gb10_accept": "all"}), "bad_variable", "error", ["gb10_accept"]),
        (subject({**PAIR, "gb10_cluster": "pair2"}), "cluster_members", "error", ["no group", "mean pair1?"]),
        (subject(groups={"pair1": ["spark-b"]}), "cluster_members", "error", ["does not hold this host"]),
        (subject(groups={"pair1": [*"abc", "spark-a"]}), "cluster_members", "error", ["exactly 2", "has 4"]),
        (subject({**PAIR, "fabric_topology": "ring"}), "cluster_members", "error", ["3 or more", "has 2"]),
        (subject({"fabric_topology": "pair", "vllm_model": MODEL}), "cluster_members", "error", ["gb10_cluster"]),
        (
            subject({"gb10_cluster": "pair1", "vllm_model": MODEL}),
            "cluster_members", "error", ["none needs 1 host", "spark-b"],
        ),
        (
            subject(
                driver={**dict.fromkeys(("userland", "module_on_disk", "module_loaded"), "590.48.01"), "kernels": []}
            ),
            "driver_branch", "error", ["590.48.01", "580", "moves drivers within 580 only"],
        ),
        (
            subject(driver={"userland": None, "module_on_disk": None, "module_loaded": None}),
            "no_driver", "error", ["no NVIDIA driver"],
        ),
        (
            subject(driver={"license": "NVIDIA", "next_kernel": None, "kernels": []}),
            "proprietary_flavour", "error", ["proprietary", "-open"],
        ),
        (subject(driver={"module_loaded": "580.95.05"}), "pending_reboot", "warn", ["loaded 580.95.05", "reboot"]),
        (
            subject(driver={"module_loaded": "580.95.05", "next_kernel": None}),
            "pending_reboot", "warn", ["loaded 580.95.05", "a reboot is missing", "gb10.fleet.reboot"],
        ),
        (
            subject(
                driver={"module_on_disk": "580.95.05", "kernels": [{**KERNEL, "module": "580.95.05"}]}
            ),
            "userland_newer", "error", ["580.95.05"],
        ),
        (
            subject(driver={"next_kernel": "7.0.0-1"}),
            "next_kernel_without_module", "error", ["7.0.0-1", "do not reboot"],
        ),
        (
            subject({**PAIR, "driver_allow_move": True, "driver_host_set": "later"}, driver={"next_kernel": "7.0.0-1"}),
            "next_kernel_without_module", "warn", ["7.0.0-1"],
        ),
        (
            subject(driver={"module_on_disk": "580.200.01", "kernels": [{**KERNEL, "module": "580.200.01"}]}),
            "module_newer", "error", ["580.200.01", "580.178.04"],
        ),
        (
            subject(driver={"kernels": [{**KERNEL, "release": "7.0-1", "module": "590.1"}], "next_kernel": "7.0-1"}),
            "next_kernel_other_module", "error", ["7.0-1", "590.1"],
        ),
        (
            subject(driver={"kernels": [KERNEL, {**KERNEL, "release": "6.17.0-1008-nvidia", "module": None}]}),
            "fallback_kernel_without_module", "warn", ["6.17.0-1008-nvidia"],
        ),
        (
            subject(packages={"libnvidia-compute-580": "580.178.04-0", "nvidia-kernel-common-580": "580.142-0"}),
            "mixed_userland", "error", ["nvidia-kernel-common-580 580.142"],
        ),
        (subject(driver={"module_loaded": None}), "module_not_loaded", "error", ["580.178.04", "modprobe nvidia"]),
        (
            subject(driver={"module_loaded": None, "secure_boot": True, "rejected": "Loading of x is rejected"}),
            "module_rejected", "error", ["Secure Boot is on", "Loading of x is rejected", "mokutil", "screen"],
        ),
        (
            subject(driver={"next_missing": ["/boot/initrd.img-1"]}),
            "next_kernel_incomplete", "error", ["/boot/initrd.img-1", "do not reboot"],
        ),
        (
            subject(vendor_updates=["nvidia-spark-run-apt-upgrade-once"], driver={"unheld": []}),
            "upgrade_at_boot", "warn", ["holds of the role driver keep driver and kernel", "still reboots"],
        ),
        (
            subject(vendor_updates=["nvidia-spark-run-apt-upgrade-once"], driver={"unheld": None}),
            "upgrade_at_boot", "warn", ["driver and kernel move with the rest", "systemctl disable"],
        ),
        (
            subject(
                wishes=[
                    {"unit": "gb10-vllm.service", "who": "a@b", "since": "", "until": "x", "shown": "07:00 CET"},
                    {"unit": "gb10-vllm-embed.service", "who": "a@b", "since": "", "until": "", "shown": ""},
                ]
            ),
            "stopped_by_wish", "info",
            ["gb10-vllm.service: stopped by a@b until 07:00 CET; gb10-vllm-embed.service: stopped by", "gb10 start"],
        ),
        (
            subject(wishes=[{"unit": "gb10-vllm.service", "who": "on_demand", "since": "", "until": "", "shown": ""}]),
            "asleep", "info", ["gb10-vllm.service: asleep, starts when asked", "a request through the gateway"],
        ),
        (
            subject(vendor_updates=["dgx-dashboard-admin"], driver={"unheld": []}),
            "dashboard_update", "info", ["goes on offering an update", "flashes firmware"],
        ),
        (
            subject(vendor_updates=["dgx-dashboard-admin"], driver={"unheld": None}),
            "dashboard_update", "info", ["upgrades driver, kernel and firmware"],
        ),
        (
            subject(packages={"landscape-client": "24.02"}),
            "landscape", "info", ["landscape-client 24.02", "upgrade profiles"],
        ),
        (
            subject(apt_sources={"entries": [{"file": "/c.list", "uri": f"https://{CUDA}/ubuntu2404/sbsa"}]}),
            "toolkit_of_cuda", "info", ["/c.list is CUDA's repository", "Pin: origin developer.download.nvidia.com"],
        ),
        (
            subject(apt_preferences=[{"file": "/p", "package": "docker-ce", "pin": "version 5:27*", "priority": 1001}]),
            "apt_pin", "info", ["/p gives docker-ce to version 5:27*", "docker_version"],
        ),
        (subject(driver={"unheld": ["nvidia-utils-580"]}), "hold_lost", "warn", ["nvidia-utils-580", "dpkg -i"]),
        (subject(driver={"pins": [{"file": "/x", "problem": "/(/: bad"}]}), "invalid_pin", "warn", ["/x", "/(/: bad"]),
        (
            subject(gpu=silent("absent", "No devices were found")),
            "gpu_absent", "error", ["No devices were found", "modinfo", "unplug"],
        ),
        (
            subject(gpu=silent("silent", "nvidia-smi did not end within 10 s")),
            "gpu_silent", "error", ["nvidia-smi hangs: ", "only a reboot ends a driver that hangs", "unplug"],
        ),
        (
            subject(
                {**PAIR, "driver_allow_move": True, "driver_host_set": "installed"},
                gpu=silent("absent", "none"),
            ),
            "gpu_absent", "error", ["none"],
        ),
        # In the middle of a move, after `dpkg -i`, and in a kernel without modules: the move must be able to begin.
        (
            subject(
                {**PAIR, "driver_allow_move": True, "driver_host_set": "later"},
                gpu=silent("mismatch", "Driver/library version mismatch"),
            ),
            "gpu_mismatch", "warn", ["version mismatch"],
        ),
        (subject(gpu=silent("no_driver", "couldn't communicate")), "gpu_no_driver", "error", ["couldn't", "modinfo"]),
        (subject(gpu=silent("no_program", "no such file")), "gpu_no_program", "error", ["nvidia-utils-"]),
        (subject(gpu=silent("unreadable", "ended with 3")), "gpu_unreadable", "error", ["ended with 3"]),
        (subject(gpu=silent("of tomorrow", "new words")), "gpu_unreadable", "error", ["new words"]),
        (beside("spark-b"), "same_machine", "error", ["spark-b", "192.0.2.11", "ansible_host"]),
        (beside("spark-b", boot_id="other"), "machine_id_copied", "warn", ["spark-b", "systemd-machine-id-setup"]),
        (asked(BEGAN - 95), "clock_differs", "warn", ["95 s behind", "timedatectl"]),
        (
            subject(clock={"source": None, "synchronized": None}),
            "clock_free", "warn", ["nothing sets this host's clock", "timedatectl set-ntp true"],
        ),
        (
            subject(clock={"synchronized": False}),
            "clock_free", "warn", ["systemd-timesyncd runs, and has not reached", "journalctl -u systemd-timesyncd"],
        ),
        (subject(apt={"lock_held_by": 4711}), "apt_lock", "warn", ["4711"]),
        (subject(apt={"dpkg_interrupted": True}), "dpkg_interrupted", "warn", ["dpkg --configure -a"]),
        (
            subject(apt_sources={"conflicts": [{
                "uri": "https://x.example", "suite": "noble",
                "files": ["/a.list", "/b.list"], "signed_by": ["/a", "none"],
            }]}),
            "apt_sources_conflict", "error", ["/a.list (Signed-By: /a) and /b.list (Signed-By: none)", "Enabled: no"],
        ),
        (
            subject(packages={"nvidia-container-toolkit": "1.19.0-1"}),
            "security_floor", "warn", ["1.19.0", "1.19.1", "CVE-2026-24260"],
        ),
        (
            subject(kernel="6.17.0-1031-nvidia"),
            "suspected_kernel", "info", ["6.17.0-1031-nvidia", "one owner's bisect", "move to another set"],
        ),
        (
            subject(sysctls={"vm.max_map_count": 65530}),
            "kernel_parameter", "warn", ["vm.max_map_count is 65530", "1048576", "kernel_parameters_extra"],
        ),
        (
            subject(oom_daemons=["systemd-oomd"]),
            "oom_daemon", "warn", ["systemd-oomd runs", "the operator's session", "memory_protection_allow_stop"],
        ),
    ],
)  # fmt: skip
def test_one_fault_gives_one_finding(judged: Subject, id_: str, severity: str, words: list[str]) -> None:
    finding = only(evaluate(judged))
    assert (finding.id, finding.severity, finding.host) == (id_, severity, "spark-a")
    for word in words:
        assert word in f"{finding.fact} {finding.way_out}"


def way_out_of_a_silent_gpu(state: str, said: str, **driver: Any) -> str:
    judged = subject(driver=driver, gpu=silent(state, said))
    return only([finding for finding in evaluate(judged) if finding.id == f"gpu_{state}"]).way_out


def test_a_gpu_that_does_not_answer_has_one_name_in_the_doctor_and_in_why() -> None:
    for state in SILENT_GPU:
        found = only(evaluate(subject(gpu=silent(state, "its words"))))
        sample = health.sample(gpu=health.silent(state))
        record = health.reading([sample], unknown={"gpu.state": "its words"})
        (told,) = judge_health("spark-a", record, health.RULES).findings  # type: ignore[arg-type]
        assert (found.id, found.fact) == (told.id, told.fact)


def test_a_gpu_that_waits_for_a_reboot_is_not_unplugged() -> None:
    said = "Failed to initialize NVML: Driver/library version mismatch"
    told = way_out_of_a_silent_gpu("mismatch", said, module_loaded="580.95.05", next_kernel=None)
    assert told.startswith("reboot (playbook gb10.fleet.reboot)")


def test_a_gpu_whose_module_is_rejected_waits_for_the_key() -> None:
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    told = way_out_of_a_silent_gpu(
        "no_driver", said, module_loaded=None, secure_boot=True, rejected="Loading of x is rejected"
    )
    assert told == "do what module_rejected says: the kernel does not load the driver's module"


NO_NVIDIA_SMI = "nvidia-smi: No such file or directory"  # of `run_command`, for a program that is not there


def test_a_driver_without_nvidia_smi_lacks_its_utilities() -> None:
    told = way_out_of_a_silent_gpu("no_program", NO_NVIDIA_SMI)
    branch = CATALOG["host_sets"]["driver_branch"]["value"]
    assert told.startswith(
        f"install the driver's utilities, nvidia-utils-{branch}, in the userland's version 580.178.04"
    )
    assert "unplug" not in told and "dmesg" not in told
    # A reboot that is due brings no program.
    assert "nvidia-utils-" in way_out_of_a_silent_gpu("no_program", NO_NVIDIA_SMI, module_loaded="580.95.05")
    # Without a driver there is nothing to match: `no_driver` says what to install.
    none = way_out_of_a_silent_gpu("no_program", NO_NVIDIA_SMI, userland=None, module_on_disk=None, module_loaded=None)
    assert none == "install the driver, as no_driver says"


def test_a_port_that_links_at_100_gigabits_is_known_before_it_is_measured() -> None:
    # Some switches negotiate 100000 until the port is set to 200G: NVIDIA's multi-sparks README.
    found = only(evaluate(linked(100000)))
    assert (found.id, found.severity) == ("slow_link", "warn")
    assert found.fact == (
        "port p0 links below 200 Gb/s: enp1s0f0np0 at 100 Gb/s, enP2p1s0f0np0 at 100 Gb/s;"
        " at the other end spark-b p0: enp1s0f0np0 at 100 Gb/s, enP2p1s0f0np0 at 100 Gb/s"
    )
    assert "ethtool" in found.way_out and "200 Gb/s by hand" in found.way_out
    alone = only(evaluate(replace(linked(100000), heard={})))
    assert "other end" not in alone.fact


@pytest.mark.parametrize(
    "judged", [linked(200000), linked(None), linked(100000, fabric_thresholds={"link_gbps": 100, "port_min_gbps": 87})]
)
def test_a_port_at_its_rate_or_one_that_is_meant_to_be_slow_is_no_finding(judged: Subject) -> None:
    assert evaluate(judged) == []


def test_machines_with_ids_of_their_own_are_two() -> None:
    assert evaluate(beside("spark-b", machine_digest="fedcba9876543210")) == []
    # As containers on one kernel: the boot is the same, and the machines are not.
    unknown = subject(machine_digest=None)
    assert evaluate(replace(unknown, heard={"spark-b": unknown.facts})) == []


def test_all_names_of_one_machine_are_one_finding() -> None:
    judged = beside("spark-b")
    judged = replace(judged, heard={**judged.heard, "spark-c": judged.facts})
    assert "spark-b, spark-c" in only(evaluate(judged)).fact


TOLERANCE = CATALOG["platforms"]["clock"]["tolerance"]["value"]


@pytest.mark.parametrize(
    ("epoch_s", "said"),
    [
        (BEGAN, None),
        (ENDED + TOLERANCE, None),  # a call takes its time, and the host may have answered at any moment of it
        (BEGAN - TOLERANCE, None),
        (ENDED + TOLERANCE + 1, f"{TOLERANCE + 1} s ahead of"),
        (BEGAN - TOLERANCE - 1, f"{TOLERANCE + 1} s behind"),
        (BEGAN - 324 * 86400, "324 days behind"),
    ],
)
def test_a_clock_that_differs_is_said_with_its_distance(epoch_s: float, said: str | None) -> None:
    found = evaluate(asked(epoch_s))
    assert [finding.id for finding in found] == (["clock_differs"] if said else [])
    assert all(said in finding.fact for finding in found if said)


IMAGE = "nvcr.io/nvidia/vllm:26.04-py3"
RAY_INSIDE = {"value": "example/vllm:1", "contains": {"vLLM": "0.19.0", "Ray": "2.49.2"}}
OLD = {
    "libnvidia-compute-580": "580.142-0ubuntu0.24.04.1",
    "nvidia-container-toolkit": "1.19.0-1",
    "docker-ce": "5:29.2.1-1~ubuntu.24.04~noble",
}


def floors(image: str, packages: Mapping[str, str], **variables: Any) -> list[Finding]:
    """What doctor says of versions; also of an image with a Ray inside, which the catalog knows none of."""
    known = CATALOG["security_floors"]
    judged = subject({**PAIR, "vllm_image": image, **variables})
    judged = replace(
        judged,
        facts={**judged.facts, "packages": packages},
        catalog={**CATALOG, "security_floors": {**known, "images": [*known["images"], RAY_INSIDE]}},
    )
    return [finding for finding in evaluate(judged) if finding.id == "security_floor"]


def test_five_components_below_their_floor_are_five_findings_with_advisory_and_date() -> None:
    found = floors("example/vllm:1", OLD)
    entries = CATALOG["security_floors"]["floors"]
    assert len(entries) == len(found) == 5
    for finding, entry in zip(found, entries, strict=True):
        assert finding.fact.startswith(f"{entry['component']} is ")
        for word in (str(entry["value"]), entry["advisory"], entry["date"]):
            assert word in finding.fact


def test_several_of_them_are_one_line_with_a_command() -> None:
    found = floors("example/vllm:1", OLD)
    (line,) = warnings(found)
    assert "5 components have published vulnerabilities: NVIDIA driver 580, NVIDIA Container Toolkit, Docker" in line
    assert line.endswith("`gb10 doctor -i INVENTORY` says what to set")
    assert warnings(found[:1]) == [f"spark-a: security_floor: {found[0].fact}"]
    assert warnings([replace(each, accepted="ticket 7") for each in found]) == []


def test_a_default_below_its_floor_says_why() -> None:
    known = CATALOG["software"]
    pins = {f"{role}_version": known[role]["value"] for role in ("docker", "container_toolkit")}
    said = [each.fact for each in floors(known["vllm_image"]["value"], {}, **pins)]
    for name in ("docker", "container_toolkit", "vllm_image"):
        assert any(f"(our default: {known[name]['below_floor']})" in fact for fact in said), said


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("0.31.0", "CVE-2026-115911"),
        ("0.19.0", "CVE-2026-115911"),
        ("0.17.1", "PYSEC-2026-4349"),
        ("0.15.0", "CVE-2026-48746"),
        ("0.2.7", None),
    ],
)
def test_a_floor_names_a_fault_that_the_version_has(version: str, says: str | None) -> None:
    found = floors(f"vllm/vllm-openai:v{version}", {})
    said = [finding.fact for finding in found if finding.fact.startswith("vLLM")]
    assert len(said) == (says is not None) and all(str(says) in fact for fact in said)


def test_the_evidence_lists_them_in_json_and_on_the_page() -> None:
    found = floors("example/vllm:1", OLD)
    hosts = proof("none")
    hosts["spark-a"]["findings"] = [finding.as_dict() for finding in found]
    document = judge.build(hosts, {}, thresholds(), NOW)
    kept, page = json.dumps(document), html.unescape(evidence_page.render(document))
    for finding in found:
        assert finding.fact in kept and finding.fact in page
    assert document["verdict"] == "healthy", "known and visible, and no reason to stop serving"


@pytest.mark.parametrize("image", ["vllm/vllm-openai:v0.32.0", "registry/x@sha256:" + "0" * 64, "x:26.04-py3"])
def test_what_is_at_its_floor_or_unknown_is_no_finding(image: str) -> None:
    assert floors(image, facts()["packages"]) == []


def test_an_image_is_judged_by_its_whole_name_and_only_where_it_is_served() -> None:
    assert "vLLM is 0.19.0 in nvcr.io" in only(floors(IMAGE, facts()["packages"])).fact
    assert "vLLM is 0.21.0 in" in only(floors("vllm/vllm-openai:v0.21.0", facts()["packages"])).fact
    assert floors(IMAGE, facts()["packages"], gb10_roles=["driver"]) == []


def test_an_image_by_tag_and_digest_is_judged_by_its_tag_and_the_default_is_one() -> None:
    default = CATALOG["software"]["vllm_image"]["value"]
    assert "@sha256:" in default and "vLLM is 0.28.0 in" in only(floors(default, facts()["packages"])).fact
    newest = only(floors("nvcr.io/nvidia/vllm:26.10-py3", facts()["packages"]))
    assert "vLLM is 0.31.0" in newest.fact and "is still below" in newest.fact


@pytest.mark.parametrize(
    ("packages", "version", "says"),
    [
        (
            {},
            "5:29.2.1-1~ubuntu.24.04~noble",
            ["is not installed, and docker_version asks for 29.2.1 (our default: the DGX release"],
        ),
        (OLD, "5:29.2.0-1~x", ["is 29.2.1", "docker_version asks for 29.2.0 (set in the inventory): set it to 29.5.1"]),
        (OLD, "5:29.5.1-1~x", ["is 29.2.1", "move docker-ce to 29.5.1"]),
        ({"docker-ce": "5:29.9.0-1~x"}, "5:29.2.1-1~x", []),
        ({}, "5:29.5.1-1~x", []),
    ],
)
def test_a_pin_below_a_floor_is_possible_visible_and_dated(
    packages: Mapping[str, str], version: str, says: list[str]
) -> None:
    judged = subject({**PAIR, "docker_version": version, "gb10_roles": ["docker"]})
    judged = replace(judged, facts={**judged.facts, "packages": packages})
    found = [f for f in evaluate_facts(judged) if f.fact.startswith("Docker Engine")]
    assert len(found) == bool(says)
    for word in says:
        assert word in f"{found[0].fact} {found[0].way_out}"


def test_the_way_out_of_an_old_driver_is_its_page() -> None:
    old = subject(packages={"libnvidia-compute-580": "580.142-0ubuntu0.24.04.1"})
    (found,) = (f for f in evaluate_facts(old) if f.fact.startswith("NVIDIA driver 580"))
    assert found.way_out.endswith("; docs/driver.md says how")


def test_who_may_be_stopped_is_not_named() -> None:
    assert evaluate_facts(subject({**PAIR, "memory_protection_allow_stop": True}, oom_daemons=["earlyoom"])) == []


_EXAMPLE = yaml.safe_load((Path(__file__).parents[3] / "inventory/example/many/hosts.yml").read_text())
_EXAMPLE = _EXAMPLE["all"]["children"]["sparks"]["children"]["pair1"]["vars"]["vllm_services"]


def test_a_model_of_ones_own_is_information_and_can_be_accepted() -> None:
    own = {**PAIR, "vllm_model": "acme/zyx-9"}
    found = only(evaluate(subject(own)))
    assert (found.id, found.severity) == ("unknown_model", "info") and "did you mean" not in found.way_out
    assert only(evaluate(subject({**own, "gb10_accept": {"unknown_model": "ours"}}))).accepted == "ours"


def test_a_file_in_gguf_is_not_taken_for_a_model_of_the_catalog_with_a_name_like_it() -> None:
    entry = {"engine": "llama_cpp", "model": "ggml-org/gpt-oss-20b-GGUF", "gguf": "gpt-oss-20b-mxfp4.gguf"}
    (found,) = (one for one in evaluate(subject({"vllm_services": {"small": entry}})) if one.id == "unknown_model")
    assert found.severity == "info" and found.way_out.startswith("`gb10 plan ggml-org/gpt-oss-20b-GGUF/gpt-oss-20b-")


@pytest.mark.parametrize(
    "variables",
    [
        {**PAIR, "vllm_model": "openai/gpt-os-120b", "gb10_roles": ["docker"]},
        {"vllm_model": ""},
        {"vllm_model": MODEL.upper()},
        {**PAIR, "vllm_model": "acme/zyx-9", "vllm_model_facts": "/facts.json"},
        {**PAIR, "vllm_model": "", "vllm_services": _EXAMPLE},
    ],
)
def test_a_host_that_serves_nothing_or_a_known_model_has_no_unknown_one(variables: dict[str, Any]) -> None:
    assert "unknown_model" not in {found.id for found in evaluate(subject(variables))}


def test_a_misspelt_model_is_said_by_the_first_host_of_a_cluster_alone() -> None:
    first = subject({**PAIR, "vllm_model": "openai/gpt-os-120b"})
    assert only(evaluate(first)).host == "spark-a"
    assert evaluate(replace(first, host="spark-b")) == []


# A file as a host with the fault has it, and as a sound one has it.
FROM_FILES: list[tuple[str, str, str, str, str, list[str]]] = [
    (
        "/proc/buddyinfo", f"Node 0, zone Normal {110 * 2**18}{' 0' * 13}\n", f"Node 0, zone Normal{' 0' * 13} 900\n",
        "memory_fragmented", "warn", ["110.0 GiB", "only 0.0 GiB", "reboot"],
    ),
    ("/proc/sys/vm/max_map_count", "65530", "1048576", "kernel_parameter", "warn", ["65530"]),
]  # fmt: skip


def read(root: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """The facts of a host that has these files and no program."""
    for path, text in files.items():
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / path.lstrip("/")).write_text(text)
    system = System(root, lambda argv, *_: Completed(tuple(argv), 127))
    return dict(
        collect(HostReader(system, lambda _path: os.statvfs_result((1,) * 10), time_of_day=lambda: NOW.timestamp()))
    )


@pytest.mark.parametrize(("path", "faulty", "sound", "id_", "severity", "words"), FROM_FILES)
def test_a_fault_is_read_and_found(
    path: str, faulty: str, sound: str, id_: str, severity: str, words: list[str], tmp_path: Path
) -> None:
    """And of a host without the file nothing is said."""
    hosts = [read(tmp_path / str(number), files) for number, files in enumerate(({path: faulty}, {path: sound}, {}))]
    about = {key for key, value in hosts[0].items() if hosts[2][key] != value}
    fault, healthy, unknown = (evaluate(subject(**{key: of[key] for key in about})) for of in hosts)
    assert about and (only(fault).id, only(fault).severity, healthy, unknown) == (id_, severity, [], [])
    assert [word for word in words if word not in str(only(fault))] == []


def test_the_healthy_host_has_every_fact_that_no_file_of_a_finding_brings(tmp_path: Path) -> None:
    """A fact that it lacks would keep silent the finding that is built on it."""
    with_files, without = read(tmp_path / "1", {row[0]: row[1] for row in FROM_FILES}), read(tmp_path / "2", {})
    lacks = {key for key, value in without.items() if with_files[key] == value} - facts().keys()
    assert not lacks, f"{sorted(lacks)}: neither FROM_FILES here nor tests/fixtures/facts/spark.json has it"


def test_every_id_of_the_contract_can_be_found() -> None:
    parameters = [
        *test_one_fault_gives_one_finding.pytestmark[0].args[1],  # type: ignore[attr-defined]
        *((row[0], *row[3:]) for row in FROM_FILES),
    ]
    # What only a run sees, and what a role's plan finds: kho_on in plans/test_kernel_parameters.py.
    # other_docker in plans/test_docker.py, host_firewall in plans/test_firewall.py, account_services in
    # plans/test_accounts.py
    elsewhere = {"unreachable", "host_key", "permission", "unreadable", "state_refused", "fabric_plan", "kho_on"}
    elsewhere |= {"other_docker", "host_firewall", "account_services"}
    elsewhere.add("containers_end")  # of the engine's plan: engine/test_foreign_containers.py
    tried, ids = {row[1] for row in parameters}, set(severities()) - elsewhere
    assert tried == ids, (
        f"neither FROM_FILES nor test_one_fault_gives_one_finding has a row of {sorted(ids - tried)}, and"
        f" catalog/findings.yml has no {sorted(tried - ids)}"
    )
    other = [row[1:3] for row in parameters if row[2] not in severities()[row[1]] and row[1] not in MENDED_BY_A_MOVE]
    assert other == [], "another severity than in the table"


def test_a_gpu_that_a_reboot_brings_back_needs_no_power_pull() -> None:
    gone = silent("mismatch", "Driver/library version mismatch")
    pending, absent = evaluate(subject(gpu=gone, driver={"module_loaded": "580.95.05"}))
    assert (pending.id, absent.id) == ("pending_reboot", "gpu_mismatch")
    assert "gb10.fleet.reboot" in absent.way_out and "unplug" not in absent.way_out


def test_without_a_fabric_rails_do_not_matter() -> None:
    alone = {"vllm_model": MODEL}
    assert evaluate(subject(alone, rails=[])) == []


def test_a_cable_that_crosses_the_ports_is_moved_on_one_host_alone() -> None:
    """spark-a's link is on p1, and spark-b's on p0, where it belongs: fabric_ports would make the other host fail."""
    crossed = subject(rails=rails(enp1s0f0np0={"carrier": False}, enP2p1s0f0np0={"carrier": False}))
    other = {"rails": rails(enp1s0f1np1={"carrier": False}, enP2p1s0f1np1={"carrier": False})}
    there = replace(crossed, heard={"spark-b": {**facts(), **other}})
    ways = [found.way_out for found in evaluate(there) if found.id == "no_carrier"]
    assert ways and all("fabric_ports" not in way for way in ways), ways


def test_a_ring_needs_both_ports_and_names_the_neighbour() -> None:
    ring = {**PAIR, "gb10_cluster": "ring1", "fabric_topology": "ring"}
    dark = {"enp1s0f1np1": {"carrier": False}}
    assert "between spark-a p1 and spark-b p0" in only(evaluate(subject(ring, rails=rails(**dark)))).way_out
    dark = {"enp1s0f0np0": {"carrier": False}}
    assert "between spark-a p0 and spark-c p1" in only(evaluate(subject(ring, rails=rails(**dark)))).way_out


def test_a_port_that_a_ring_lacks_is_a_cable_and_no_matter_of_fabric_ports() -> None:
    ring = {**PAIR, "gb10_cluster": "ring1", "fabric_topology": "ring"}
    way_out = only(evaluate(subject(ring, rails=facts()["rails"][:2]))).way_out
    assert "between spark-a p1 and spark-b p0" in way_out
    assert "another fabric_topology" in way_out and "fabric_ports" not in way_out


def test_what_the_variables_of_the_fabric_may_hold() -> None:
    sound = {
        "fabric_rails": {"p0": list(P0)},
        "fabric_test": {"qps": 1, "message_bytes": 65536, "duration_s": 4, "qp_timeout": 20},
        "fabric_thresholds": {"port_min_gbps": 0.01, "rail_min_gbps": 1},
    }
    assert evaluate(subject({**PAIR, **sound})) == []
    ring = {**PAIR, "gb10_cluster": "ring1", "fabric_topology": "ring", "fabric_ports": []}
    assert evaluate(subject(ring)) == [], "a ring uses both ports, whatever fabric_ports says"


def test_partner_boards_are_sparks() -> None:
    board = {"dmi_vendor": "Dell Inc.", "dmi_name": "Dell Pro Max with GB10 FCM1253", "dmi_family": None}
    assert evaluate(subject(product={**board, "dgx_release": None})) == []
    unknown = {"dmi_vendor": "New", "dmi_name": "Board", "dmi_family": "", "dgx_release": {"DGX_NAME": "DGX Spark"}}
    assert evaluate(subject(product=unknown)) == []


def test_minimum_free_disk_can_be_set() -> None:
    small = [{"mount": "/", "size_bytes": 8 * GIB, "free_bytes": 2 * GIB}]
    variables = {**PAIR, "gb10_minimum_free_gib": {"/": 1, "/var/lib/docker": 1}}
    assert evaluate(subject(variables, disks=small)) == []
    assert {finding.id for finding in evaluate(subject(disks=small))} == {"disk_full"}


def test_an_accepted_error_stays_with_its_reason_and_does_not_block() -> None:
    judged = subject({**PAIR, "gb10_accept": {"architecture": "virtual Spark"}}, architecture="x86_64")
    finding = only(evaluate(judged))
    assert (finding.severity, finding.accepted, finding.blocks) == ("error", "virtual Spark", False)
    assert refusal([finding]) is None


def test_what_cannot_be_accepted_still_blocks() -> None:
    found = evaluate(subject({**PAIR, "gb10_accept": {"no_sudo": "never mind"}}, root=False))
    assert [(finding.id, finding.blocks) for finding in found] == [("bad_variable", True), ("no_sudo", True)]


def test_a_refusal_names_host_fact_and_way_out() -> None:
    text = refusal(evaluate(subject(architecture="x86_64", root=False)))
    assert text is not None
    assert text.count("spark-a: ") == 2
    assert "spark-a: architecture: the machine is x86_64" in text
    assert "Fix: take the host out of the inventory" in text


@pytest.mark.parametrize("word", ["no ", "python", "interpreter", "no such file", "no such file python "])
def test_what_a_host_writes_without_an_end_costs_no_time(word: str) -> None:
    """64 KiB of it took 4 s: each beginning was followed to the end."""
    text = word * (65536 // len(word)) + " port 22: Connection refused"
    began = time.process_time()
    finding = from_failure("spark-a", text)
    assert time.process_time() - began < 0.5
    assert finding.fact.endswith("Connection refused")


def test_a_host_that_answers_nonsense_is_not_called_unreachable() -> None:
    finding = from_failure("spark-a", "MODULE FAILURE: SyntaxError", answered=True)
    assert finding.id == "unreadable" and "SyntaxError" in finding.fact


# As OpenSSH 9.2 says it of a key that it does not take: of a host's, and at last of a jump host's.
FAILED = "Host key verification failed.\r\n"
UNKNOWN = f"No ED25519 host key is known for {{}} and you have requested strict checking.\r\n{FAILED}"
KEYS = (
    UNKNOWN,
    "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\n@@@\r\n"
    f"Host key for {{}} has changed and you have requested strict checking.\r\n{FAILED}",
    f"ED25519 host key for {{}} was revoked and you have requested strict checking.\r\n{FAILED}",
    f"{UNKNOWN}kex_exchange_identification: Connection closed by remote host\r\n"
    "Connection closed by UNKNOWN port 65535\r\n",
)


def as_shown(text: str) -> tuple[str, ...]:
    """As it comes to the finding, on the ways of the plays, of a scan and of a look."""
    return text, printable(text.strip(), keep="\n\t"), printable(" ".join(text.split()))


@pytest.mark.parametrize("said", KEYS)
def test_the_name_of_a_key_is_a_word_that_no_shell_changes(said: str) -> None:
    """The way out is to be pasted."""
    for shown in as_shown(f"Failed to connect to the host via ssh: {said}"):
        for evil in ("x;reboot", "x`reboot`", "$(reboot)", "x|sh", "x${IFS}y", "-fx"):
            assert evil not in from_failure("spark-a", shown.format(evil)).way_out
        for name in ("192.0.2.11", "[spark-a.lan]:2222", "fe80::1%enP7s7", "::1"):
            finding = from_failure("spark-a", shown.format(name))
            pasted = "-p 2222 spark-a.lan" if "2222" in name else name
            assert finding.id == "host_key" and f"(`ssh-keyscan {pasted}`);" in finding.way_out


@pytest.mark.parametrize("said", KEYS)
def test_a_banner_is_no_host_key(said: str) -> None:
    """By it a host said that its key had changed, and named the one to fetch in its place."""
    said = said.format("192.0.2.66")
    of_ansible = "Using a SSH password instead of a key is not possible because Host Key checking is enabled. "
    found = [from_failure("spark-a", said, answered=True).id]  # ssh ends with 255 there
    for end in (
        "root@192.0.2.11: Permission denied (publickey).\r\n",
        "Connection closed by 192.0.2.11 port 22\r\n",
        "Received disconnect from 192.0.2.11 port 22:2: Too many authentication failures\r\n",
    ):
        for banner in (said, f"{of_ansible}Please add it to manage this host.\n"):
            found += [from_failure("spark-a", shown).id for shown in as_shown(f"{banner}{end}")]
    tally("a banner of sshd makes a host key of its own", len(found), found.count("host_key"))
    assert {*found} == {"permission", "unreachable", "unreadable"}


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("Failed to connect to the host via ssh: Host key verification failed.", "host_key"),
        (
            "Using a SSH password instead of a key is not possible because Host Key checking is enabled. Please add"
            " this host's fingerprint to your known_hosts file to manage this host.",
            "host_key",
        ),
        ("Missing sudo password", "no_sudo"),
        ("Incorrect sudo password", "no_sudo"),
        ("sudo: a password is required\n", "no_sudo"),
        ("guest is not in the sudoers file.  This incident will be reported.", "no_sudo"),
        ("Sorry, user guest may not run sudo on spark-a.", "no_sudo"),
        ("/bin/sh: 1: sudo: not found", "no_sudo"),
        ("Password: \nsu: Authentication failure", "no_sudo"),
        ("su: must be run from a terminal", "no_sudo"),
        ("doas: Operation not permitted", "no_sudo"),
        ("doas: a tty is required", "no_sudo"),
        ("/bin/sh: 1: /opt/bin/become: not found", "no_sudo"),
        ("bash: line 1: /opt/bin/become: Permission denied (exit status 126)", "no_sudo"),
        ("Timeout (12s) waiting for privilege escalation prompt:", "no_sudo"),
        ("The module interpreter '/usr/bin/python3' was not found.", "unreadable"),
        ("/bin/sh: 1: /usr/bin/python3: not found", "unreadable"),
        ("ssh: connect to host 192.0.2.11 port 22: Connection timed out", "unreachable"),
        ("", "unreachable"),
    ],
)
def test_a_host_that_does_not_let_us_in(text: str, id_: str) -> None:
    finding = from_failure("spark-a", text)
    assert finding.id == id_ and finding.id in never_accepted() and finding.blocks
    assert finding.way_out
    if "python" in text:
        assert "Python" in finding.fact


def test_a_password_that_is_wrong_is_not_a_missing_one() -> None:
    assert from_failure("a", "Incorrect sudo password").way_out.startswith(
        "the password that this run has is wrong: type it anew (-K; where it is not that of SSH, -k -K)"
    )
    barred = from_failure("a", "you is not in the sudoers file.").way_out
    assert barred.startswith("set ansible_user to one who may use sudo"), "no password helps"
    missing = from_failure("a", "Missing sudo password").way_out
    assert missing.startswith("add -K (--ask-become-pass)") and "/etc/sudoers.d" in missing


def test_a_host_that_takes_a_password_says_how_to_give_it() -> None:
    way_out = from_failure("a", "Permission denied (publickey,password).").way_out
    assert "add -kK and type the password of SSH and sudo (-k -K: two of them)" in way_out, "both at once"
    assert "add -k" not in from_failure("a", "Permission denied (publickey).").way_out


def test_variables_are_judged_even_when_the_host_is_away() -> None:
    judged = replace(subject({**PAIR, "fabric_mut": 1}), facts={})
    assert only(evaluate_variables(judged)).id == "unknown_variable"


def test_a_number_may_be_whole() -> None:
    assert evaluate(subject({**PAIR, "share": 1, "fast": True, "fabric_mtu": 1500, "fabric_ports": ["p0"]})) == []


def test_the_whole_cluster_takes_part() -> None:
    assert evaluate(replace(subject(), run=["spark-a", "spark-b", "other"])) == []
    finding = only(evaluate(replace(subject(), run=["spark-a"])))
    assert finding.id == "cluster_members" and "spark-b is not part of this run" in finding.fact
    assert "pair1" in finding.way_out


SWITCH = {"gb10_cluster": "pair1", "fabric_topology": "switch"}


@pytest.mark.parametrize(
    ("own", "other", "shared"),
    [
        ({}, {}, True),
        ({}, {"fabric_network": "192.168.101.0/24"}, True),
        ({}, {"fabric_network": "192.168.102.0/23"}, False),
        ({"fabric_ports": ["p0", "p1"]}, {"fabric_network": "192.168.102.0/23"}, True),
        ({}, {"fabric_network": "10.0.0.0/22"}, False),
        ({}, {"fabric_network": "nonsense"}, False),
        ({}, {"fabric_topology": "ring"}, False),
        ({}, {"gb10_cluster": "pair1"}, False),
    ],
)
def test_clusters_that_may_share_a_switch(own: dict[str, Any], other: dict[str, Any], shared: bool) -> None:
    judged = subject({**PAIR, **SWITCH, **own})
    fleet = {"spark-a": {**SWITCH, **own}, **{name: {**SWITCH, "gb10_cluster": "two", **other} for name in "xy"}}
    found = [f for f in evaluate(replace(judged, fleet=fleet)) if "fabric_network" in f.fact]
    assert len(found) == shared
    for finding in found:
        assert finding.id == "bad_variable" and "to pair1 and to two" in finding.fact


def test_a_vlan_or_bridge_makes_its_rail_a_lifeline() -> None:
    interfaces = [{"name": "br0", "lower": [P0[0], f"{P0[0]}.7"], "addresses": []}]
    judged = subject(interfaces=interfaces, default_route_interfaces=["br0"])
    finding = only(evaluate(judged))
    assert finding.id == "rail_is_management" and "(below br0)" in finding.fact


def test_every_path_is_judged_on_its_own_mount() -> None:
    disks = [
        {"mount": mount, "size_bytes": 900 * GIB, "free_bytes": free * GIB} for mount, free in (("/", 800), ("/srv", 5))
    ]
    variables = {**PAIR, "gb10_minimum_free_gib": {"/srv/models": 200}}
    finding = only(evaluate(subject(variables, disks=disks)))
    assert finding.fact == "/srv/models (file system /srv) has 5.0 GiB free, needed are 200 GiB"


def test_nobody_leaves_one_member_of_a_cluster_out() -> None:
    assert "whole cluster" in from_failure("spark-a", "timed out").way_out
    assert "--limit '!pair1'" in from_failure("spark-a", "timed out", cluster="pair1").way_out


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_advice_about_a_silent_host_knows_its_circumstances(size: int) -> None:
    """Of a pair the other one can serve alone. A --limit that leaves nobody is no way out."""
    alone, beside = (from_failure("spark-a", "timed out", False, "pair1", size, others) for others in (False, True))
    assert ("One Spark of a pair is dead" in alone.way_out) is (size == 2)
    assert "--limit" not in alone.way_out and beside.way_out == f"{alone.way_out}{WITHOUT}"


WITHOUT = "; to go on without it, leave its whole cluster out (--limit '!pair1')"


@pytest.mark.parametrize("said", ["lab@192.0.2.9: Permission denied (publickey).", "Too many authentication failures"])
def test_a_host_that_does_not_let_us_in_has_power(said: str) -> None:
    found = from_failure("spark-a", f"Failed to connect to the host via ssh: {said}", cluster="pair1", size=2)
    assert (found.id, found.fact) == ("permission", f"the host does not let us in: {said}")
    assert found.way_out.startswith("check ansible_user and its key") and "power" not in found.way_out
    assert found == from_failure("spark-a", said, cluster="pair1", size=2)
    assert from_failure("a", "sh: /opt/x: Permission denied", answered=True).id == "unreadable"


@pytest.mark.parametrize(
    ("said", "full"),
    [
        ("mkdir: cannot create directory '/home/a/.ansible/tmp/x': No space left on device", True),
        ("mkdir: cannot create directory '/root/.ansible': Read-only file system", True),
        ("Could not create directory '/home/a/.ssh' (No space left on device).", False),  # ssh here
        ("[Errno 28] No space left on device: '/root/.ansible/tmp/x'", False),
    ],
)
def test_a_host_whose_disk_is_full_is_not_dead(said: str, full: bool) -> None:
    found = from_failure("spark-a", said, cluster="pair1", size=2)
    assert ("free room there" in found.way_out) is full and ("if it is dead" in found.way_out) is not full


@pytest.mark.parametrize(
    "said",
    [
        "kex_exchange_identification: read: Connection reset by peer\r Connection reset by 192.0.2.9 port 22",
        "kex_exchange_identification: Connection closed by remote host",
    ],
)
def test_a_host_that_turns_us_away_after_failed_logins_has_power(said: str) -> None:
    """So does an OpenSSH of 9.8 or later for a while: the second command must not send to the power switch."""
    found = from_failure("spark-a", f"Failed to connect to the host via ssh: {said}", cluster="pair1", size=2)
    assert found.id == "permission" and "before a login" in found.fact
    assert "PerSourcePenalties" in found.way_out and "power" not in found.way_out and WITHOUT in found.way_out


def test_several_silent_hosts_get_one_limit() -> None:
    hosts = {"spark-a": "pair1", "spark-b": "pair1", "spark-c": "spark-c"}
    ways = [from_failure(host, "timed out", cluster=cluster).way_out for host, cluster in hosts.items()]
    short, without = together([*ways, "another"])
    assert without == "to go on without them, leave their whole clusters out (--limit '!pair1,!spark-c')"
    assert short[3] == "another"
    assert [long.startswith(f"{way}; to go on") for way, long in zip(short[:3], ways, strict=True)] == [True] * 3
    assert together([ways[0], "another"]) == ([ways[0], "another"], "")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("timed out", "ansible spark-a -i INVENTORY -m raw -a true must work"),
        ("sudo: a password is required", "ansible spark-a -i INVENTORY --become -K -m raw -a true"),
        ("Host key verification failed.", "ssh-keyscan ADDRESS"),
    ],
)
def test_a_way_out_has_the_names_that_are_known(text: str, command: str) -> None:
    assert command in from_failure("spark-a", text).way_out


def test_what_a_document_refuses_blocks_and_names_the_role() -> None:
    for finding, id_ in (
        (refused("spark-a", "docker", "docker-ce 1 is installed"), "docker_refused"),
        (state_refused("spark-a", "file:/x: a link is in the way"), "state_refused"),
    ):
        assert finding.id == id_ and finding.blocks
        assert str(finding).startswith(f"spark-a: {id_}: {finding.fact}")
    for text in ("spark-a has no rail", "spark-a: has no rail"):  # a plan of a cluster names its host itself
        assert refused("spark-a", "fabric", text).fact == "has no rail"
    assert refused("spark-a", "fabric", "spark-ab has no rail").fact == "spark-ab has no rail"
    assert "state_refused" in never_accepted()


def test_what_several_roles_refuse_is_told_once_by_the_role_of_the_variable() -> None:
    made = [
        Rendered("firewall", refusals=["vllm_services.a is wrong", "firewall_x is wrong"]),
        Rendered("vllm", refusals=["vllm_services.a is wrong"]),
        Rendered("gateway", refusals=["one of two is wrong", "firewall_x is wrong"]),
        Rendered("watchdog", refusals=["one of two is wrong"]),
    ]
    assert list(told_once(made)) == [
        ("vllm", "vllm_services.a is wrong"),
        ("firewall", "firewall_x is wrong"),
        ("gateway", "one of two is wrong"),
    ]


@pytest.mark.parametrize(
    ("text", "fact", "way_out"),
    [
        ("a: x is '9'. Name a port, from 1 to 65535.", "x is '9'", "name a port, from 1 to 65535"),
        ("rule r: no kernel. Fix: another image. Sources: log.", "rule r: no kernel", "another image. Sources: log"),
        ("x 5.1 is not above 0.", "x 5.1 is not above 0", "correct what it names, then run again"),
        ("the key is short. `openssl rand` makes one.", "the key is short", "`openssl rand` makes one"),
        ("rule r: no a; did you mean b?: it ends. Fix: c.", "rule r: no a; did you mean b?: it ends", "c"),
    ],
)
def test_a_refusal_of_a_role_has_fact_and_way_out_apart(text: str, fact: str, way_out: str) -> None:
    finding = refused("a", "vllm", text)
    assert (finding.fact, finding.way_out) == (fact, way_out) and finding.blocks


def test_a_way_over_another_program_has_its_own_way_out() -> None:
    """Power and network of the host are not what failed; and Tailscale takes no key, whatever ansible_user has."""
    ends = "{}\r\nConnection closed by UNKNOWN port 65535\r\n"
    for said in ("/bin/bash: line 1: exec: cloudflared: not found", "websocket: bad handshake"):
        finding = from_failure("spark-a", ends.format(said))
        assert finding.id == "unreachable" and "ProxyCommand" in finding.way_out and "power" not in finding.way_out
    finding = from_failure("spark-a", ends.format("tailscale: tailnet policy does not permit you to SSH to this node"))
    assert finding.id == "permission" and "tailnet" in finding.way_out and "its key" not in finding.way_out
    finding = from_failure("spark-a", "Connection closed by 192.0.2.9 port 22")
    assert finding.id == "unreachable" and "power" in finding.way_out
    assert from_failure("spark-a", ends.format("bash: line 1: tailscale: command not found")).id == "unreachable"
