#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of the readers of module_utils: what a host is and how it is, by sections."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: spark_facts
short_description: Read what a GB10 host is, and how it is
version_added: "0.1.0"
description:
  - Reads an NVIDIA DGX Spark (GB10) in one call; O(sections) says what of it.
  - Changes nothing. Every external command is optional and has a deadline.
  - What cannot be read is V(none), never a guess and never 0.
options:
  sections:
    description:
      - What to read. Each section adds its own keys to the answer.
      - V(facts) are identity, disks, rails, GPU, driver, packages and Docker. They are set as C(gb10_spark).
      - V(health) has GPU, memory, rails, sensors and disks as they are now, and what the journal and apt's history tell
        of boots, faults and changes.
      - V(release) has the vendor's recipes, the firmware that SMBIOS, fwupd and the ConnectX-7 name, and the packages
        of the recipes. It needs root.
      - V(coherence) compares the driver's userland, the loaded module, and the module of every kernel that GRUB may
        boot next; it also asks for the open flavour, for the holds of the role C(driver), and for pins and candidates
        of apt. An incoherent host is a result, not an error. It needs root.
      - V(services) has the units of the role C(vllm), their settings, what they say of themselves, and which of them
        stand still because the operator said so (M(gb10.fleet.wish)).
      - V(recorded) has the last seconds that this host has kept of another one (role C(flight_recorder)).
    type: list
    elements: str
    choices: [facts, health, release, coherence, services, recorded]
    default: [facts]
  paths:
    description:
      - Of V(facts). Paths whose file systems shall be among C(disks), besides C(/), C(/boot) and C(/var/lib/docker).
    type: list
    elements: str
    default: []
  samples:
    description:
      - Of V(health). How often to read what changes by the second. Several are needed to see a load, or a counter that
        rises.
    type: int
    default: 1
  every_s:
    description: Of V(health). Seconds from one sample to the next.
    type: float
    default: 1.0
  load:
    description:
      - Of V(health). Consent to a load of our own while the samples are taken, so that a power supply that holds the
        GPU back shows. Matrix products by torch, in a container without a network, of an image that is on the host. The
        container is removed.
      - It never runs beside a service that has requests or does not say, and ends where one gets some.
    type: dict
    suboptions:
      image:
        description: The image. By default that of a service of this host.
        type: str
      seconds:
        description: How long it works.
        type: float
        required: true
      size:
        description: Rows and columns of the matrices.
        type: int
        required: true
      free_gib:
        description: Memory that must be available before it starts.
        type: float
        required: true
      start_s:
        description: How long Docker and torch may take to start.
        type: float
        required: true
      idle_percent:
        description: A GPU that works more than this is not loaded further.
        type: float
        required: true
  cluster:
    description: Of V(release). The host's cluster, which is returned as it is.
    type: str
    default: ""
  plan:
    description:
      - Of V(release). Ask apt what it would do on the way to a release, and return that too. Everything is simulated
        with the lists that the host has.
      - C(to), the name of a release, or V(newest) of the host's own recipes; C(branch) of the driver; C(releases), the
        host set of each release by name; C(sets), the host sets by name.
      - C(gb10 release plan) fills it from its catalog.
    type: dict
  stopped:
    description: Of V(services). One that was just stopped. With it RV(returned) says whether its memory came back.
    type: str
  available_bytes:
    description: Of V(services). RV(memory) had this as C(available) before the stop.
    type: int
  limit_gib:
    description:
      - Of V(services). Memory in use by nobody from which on it counts as not returned; C(hidden_gib) of
        catalog/health.yml.
    type: float
    default: 8
  within_s:
    description: Of V(services). For how many seconds to wait for it.
    type: float
    default: 0
  of:
    description: Of V(recorded), and required for it. Name of the other host in the inventory.
    type: str
  boots:
    description: Of V(recorded). Boots of the other host, as its RV(health) has them.
    type: list
    elements: dict
    default: []
  shown_s:
    description: Of V(recorded). How many seconds before each end; as C(catalog/flight_recorder.yml) says if not given.
    type: float
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.reads
attributes:
  action:
    description: The controller adds which run has read the facts, and judges the types of each section on arrival.
    support: full
  facts:
    description: The section V(facts) sets C(gb10_spark) and C(gb10_run).
    support: full
notes:
  - Without root, the SSH session, package locks, journal, kernel log and some hardware fields may be V(none).
"""

EXAMPLES = r"""
- name: Read what the host is
  gb10.fleet.spark_facts:
  become: true

- name: Show the rails
  ansible.builtin.debug:
    msg: "{{ ansible_facts['gb10_spark']['rails'] | map(attribute='netdev') }}"

- name: Read how it is, five times, and what its services do
  gb10.fleet.spark_facts:
    sections: [health, services]
    samples: 5
  become: true
  register: read

- name: Show the GPU
  ansible.builtin.debug:
    var: read.health.samples[-1].gpu

- name: Judge the driver
  gb10.fleet.spark_facts:
    sections: [coherence]
  become: true
  register: gate

- name: Go on only where the next boot has a GPU
  ansible.builtin.assert:
    that: gate.against_a_boot | length == 0
    fail_msg: "{{ gate.against_a_boot | map(attribute='fact') | join('; ') }}"

- name: Read what spark-b has kept of spark-a
  gb10.fleet.spark_facts:
    sections: [recorded]
    of: spark-a
    boots: "{{ read.health.boots }}"
  become: true
  delegate_to: spark-b
  register: kept
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to the host.
  returned: with the section V(facts)
  type: dict
  contains:
    gb10_run:
      description: The run that said so, for P(gb10.fleet.this_run#test); a fact cache may keep facts for later ones.
      type: str
      returned: always
    gb10_spark:
      description: All facts; docs/architecture/facts.md lists the keys.
      type: dict
      returned: always
      sample:
        hostname: spark-a
        kernel: 6.17.0-1014-nvidia
        architecture: aarch64
        rails:
          - netdev: enp1s0f0np0
            hca: rocep1s0f0
            port: p0
            twin_index: 0
            carrier: true
health:
  description: The reading; docs/health.md lists the keys. C(unknown) has the reason of each value that is null.
  returned: with the section V(health)
  type: dict
  sample:
    schema_version: 1
    uptime_s: 86400.5
    samples:
      - at_s: 1795420800.5
        gpu: {state: ok, temperature_c: 41, power_w: 4.7, clock_mhz: 208, utilization_percent: 0, reasons: [gpu_idle]}
    unknown:
      gpu.tlimit_c: "nvidia-smi says [N/A]"
release:
  description:
    - C(recipes), each with C(file), C(sha256) and C(content); C(broken_recipes), files that are none; C(packages) and
      C(held), of the names that the recipes have; C(pinned_by_us), whether the pins of the role C(driver) are there;
      C(board_vendor); C(firmware), null where SMBIOS cannot be read; C(fwupd), null where it does not answer;
      C(connectx); C(kernel); C(driver), the loaded module; C(command_line); C(disks);
      C(reboot_required).
  returned: with the section V(release)
  type: dict
  sample:
    recipes: []
    packages: {nvidia-driver-580-open: 580.142-0ubuntu0.24.04.1}
    firmware: [{component: EC Firmware, version: 3.3.2}]
    connectx: [{device: mlx5_0, version: 28.45.4028}]
    kernel: 6.17.0-1014-nvidia
before:
  description: The same before the last M(gb10.fleet.release_update), without recipes; null where there was none.
  returned: with the section V(release)
  type: dict
cluster:
  description: The cluster, as given.
  returned: with the section V(release)
  type: str
  sample: pair1
rehearsal:
  description:
    - C(release) and C(set), what was asked; C(set_move) and C(rest), each with C(installs), C(removes), C(error),
      C(download_bytes) and C(disk_bytes) as apt simulates them; C(offers_back), whether a source still has the
      driver that is installed; C(lists_age_s).
  returned: when O(plan) is given
  type: dict
  sample:
    release: OTA2607
    set: ubuntu24.04-580.159.03-6.17.0-1022
    rest: {installs: {docker-ce: "5:29.6.2"}, removes: [], error: "", download_bytes: 91, disk_bytes: 4096}
coherent:
  description: Whether nothing is wrong. A further kernel of GRUB's menu without the driver's module is not.
  returned: with the section V(coherence)
  type: bool
verdicts:
  description:
    - Named verdicts, worst first, each with C(id), C(severity) (V(error), V(warn), V(info)), C(fact) and C(way_out).
    - The ids are C(coherent), C(userland_newer), C(module_newer), C(next_kernel_without_module),
      C(next_kernel_other_module), C(next_kernel_incomplete), C(proprietary_flavour), C(module_not_loaded),
      C(module_rejected), C(hold_lost), C(invalid_pin), C(mixed_userland), C(candidate_not_580),
      C(candidates_unknown), C(pending_reboot), C(no_driver) and C(fallback_kernel_without_module).
  returned: with the section V(coherence)
  type: list
  elements: dict
  sample:
    - id: next_kernel_without_module
      severity: error
      fact: "GRUB boots 7.0.0-1025-nvidia next, which has no nvidia module: no GPU after that"
      way_out: install linux-modules-nvidia-580-open-7.0.0-1025-nvidia, or remove that kernel; do not reboot before
against_a_boot:
  description: Those of the verdicts because of which the next boot would fail or have no GPU.
  returned: with the section V(coherence)
  type: list
  elements: dict
  sample: []
kernel:
  description: The running kernel.
  returned: with the section V(coherence)
  type: str
  sample: 6.17.0-1014-nvidia
packages:
  description: The versions of the packages of driver and kernels, which the verdicts follow from.
  returned: with the section V(coherence)
  type: dict
  sample: {nvidia-driver-580-open: 580.159.03-0ubuntu0.24.04.1}
driver:
  description: What the verdicts follow from, as C(driver) of the section V(facts).
  returned: with the section V(coherence)
  type: dict
stdout_lines:
  description: The verdicts for people.
  returned: with the section V(coherence)
  type: list
  elements: str
services:
  description: Each service by name, with unit, state, phase, model, port, memory and wish.
  returned: with the section V(services)
  type: list
  elements: dict
  sample:
    - name: chat
      unit: gb10-vllm-chat.service
      container: gb10-vllm-chat
      status_file: /run/gb10-vllm-chat/status.json
      state: active
      enabled: true
      since: 1795420800
      phase: ready
      load_s: 312.4
      members: []
      rank: 0
      memory_gib: 40
      model: openai/gpt-oss-20b
      served_name: gpt-oss-20b
      port: 8000
      url: http://127.0.0.1:8000
      wish: null
memory:
  description: In bytes. C(hidden) has no account of the kernel, as what a driver holds for the GPU. Null where unknown.
  returned: with the section V(services)
  type: dict
  sample: {total: 128000000000, available: 90000000000, hidden: 400000000}
returned:
  description:
    - Verdict, text and way out. The verdict is V(memory_returned), V(memory_not_returned) or V(memory_unknown).
  returned: with O(stopped)
  type: dict
recorded:
  description: A line for each sample and each line of the kernel, from the oldest on.
  returned: with the section V(recorded)
  type: list
  elements: dict
  sample: [{"at_s": 1795420800.5, "text": "2418 MHz, 86 W, 68 °C, 96 % busy, 23.1 GiB available"}]
"""

import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError

LOAD = {
    "image": {"type": "str"},
    "seconds": {"type": "float", "required": True},
    "size": {"type": "int", "required": True},
    "free_gib": {"type": "float", "required": True},
    "start_s": {"type": "float", "required": True},
    "idle_percent": {"type": "float", "required": True},
}
# A section imports its readers only when it is asked for: all of them take twice the time.
Asked = dict[str, Any]


def _facts(host: HostReader, asked: Asked) -> Asked:
    from ansible_collections.gb10.fleet.plugins.module_utils.reading import spark_facts

    return {"ansible_facts": {"gb10_spark": spark_facts.collect(host, asked["paths"])}}


def _health(host: HostReader, asked: Asked) -> Asked:
    from ansible_collections.gb10.fleet.plugins.module_utils.programs.load_run import Load, Wish
    from ansible_collections.gb10.fleet.plugins.module_utils.reading import health

    for name in ("samples", "every_s"):
        if not asked[name] > 0:
            raise HostError(f"{name} is {asked[name]}; it must be above 0")
    loaded = Load(host, Wish(**asked["load"])) if asked["load"] else None
    return {"health": health.collect(host, asked["samples"], asked["every_s"], loaded=loaded)}


def _release(host: HostReader, asked: Asked) -> Asked:
    from ansible_collections.gb10.fleet.plugins.module_utils.releases.read import read_release
    from ansible_collections.gb10.fleet.plugins.module_utils.releases.rehearse import rehearse
    from ansible_collections.gb10.fleet.plugins.module_utils.releases.update import kept

    if not host.system.privileged:
        raise HostError("the firmware inventory of SMBIOS is for root to read: set become: true")
    found = read_release(host)
    more = {"rehearsal": rehearse(host, found["recipes"], asked["plan"])} if asked["plan"] else {}
    return {"release": found, "before": kept(host.system), "cluster": asked["cluster"], **more}


def _coherence(host: HostReader, asked: Asked) -> Asked:
    from ansible_collections.gb10.fleet.plugins.module_utils.programs.coherence.main import read_gate

    if not host.system.privileged:
        raise HostError("GRUB's menu and the manifest are for root to read: set become: true")
    try:
        said = read_gate()
    except OSError as error:
        raise HostError(f"{error}: packages need a Debian or Ubuntu host") from None
    return {"stdout_lines": [f"{verdict['id']}: {verdict['fact']}" for verdict in said["verdicts"]], **said}


def _services(host: HostReader, asked: Asked) -> Asked:
    from ansible_collections.gb10.fleet.plugins.module_utils.reading import services

    found = services.read(host.system)
    limits = asked["available_bytes"], asked["limit_gib"], asked["within_s"]
    more = {"returned": services.returned_of(host.system, found, asked["stopped"], *limits)} if asked["stopped"] else {}
    return {"services": found, "memory": services.memory(host.system), **more}


def _recorded(host: HostReader, asked: Asked) -> Asked:
    from ansible_collections.gb10.fleet.plugins.module_utils.programs.recorder import ring
    from ansible_collections.gb10.fleet.plugins.module_utils.reading import last_words

    name = asked["of"] or ""
    if not re.match(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z", name):
        raise HostError(f"of is {name!r}; it must be the name of a host")
    lines = list(ring.lines(Path(ring.STATE), name))
    return {"recorded": last_words.last_seconds(lines, last_words.ends(asked["boots"]), asked["shown_s"])}


SECTIONS = {
    "facts": _facts,
    "health": _health,
    "release": _release,
    "coherence": _coherence,
    "services": _services,
    "recorded": _recorded,
}


def main() -> None:
    """Read what is asked for, return."""
    spec = {
        "sections": {"type": "list", "elements": "str", "choices": list(SECTIONS), "default": ["facts"]},
        "paths": {"type": "list", "elements": "str", "default": []},
        "samples": {"type": "int", "default": 1},
        "every_s": {"type": "float", "default": 1.0},
        "load": {"type": "dict", "options": LOAD},
        "cluster": {"type": "str", "default": ""},
        "plan": {"type": "dict"},
        "stopped": {"type": "str"},
        "available_bytes": {"type": "int"},
        "limit_gib": {"type": "float", "default": 8},
        "within_s": {"type": "float", "default": 0},
        "of": {"type": "str"},
        "boots": {"type": "list", "elements": "dict", "default": []},
        "shown_s": {"type": "float"},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    asked = {**module.params, "load": None if module.check_mode else module.params["load"]}
    host, found = HostReader(), {}
    try:
        for section in asked["sections"]:
            found.update(SECTIONS[section](host, asked))
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
