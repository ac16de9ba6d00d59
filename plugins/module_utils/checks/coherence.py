# SPDX-License-Identifier: GPL-3.0-or-later
"""Named verdicts on driver, kernel modules and the kernel that boots next. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.driver import VERSION, flavour
from ansible_collections.gb10.fleet.plugins.module_utils.reading.driver_pins import OUR_PREFERENCES
from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import BRANCH, has_the_drivers_version

IDS = {  # with their severity
    "coherent": "info",
    **dict.fromkeys(
        ("userland_newer", "module_newer", "next_kernel_without_module", "next_kernel_other_module",
         "next_kernel_incomplete", "proprietary_flavour", "module_not_loaded", "module_rejected", "mixed_userland",
         "candidate_not_580", "no_driver"),
        "error",
    ),
    **dict.fromkeys(
        ("hold_lost", "invalid_pin", "candidates_unknown", "pending_reboot", "fallback_kernel_without_module"), "warn"
    ),
}  # fmt: skip
# A host may stay like this: a move of the driver leaves the former kernel, GRUB's fallback, without its modules.
_DKMS = f"nvidia-dkms-{BRANCH}-open"  # builds the modules on the host
HARMLESS = ("coherent", "fallback_kernel_without_module")


class Verdict(TypedDict):
    id: str
    severity: str
    fact: str
    way_out: str


def judge(facts: Mapping[str, Any], more: Sequence[Verdict] = ()) -> list[Verdict]:
    """Named verdicts on a host, worst first; `coherent` alone where there is nothing to say.

    `facts`: kernel, packages and driver of the Spark's facts. `more`: what is known besides, see `judge_candidates`.
    """
    driver = facts["driver"]
    if not driver["userland"]:
        return [_error("no_driver", "no NVIDIA driver is installed", f"install the {BRANCH} set that DGX OS offers")]
    then = against_the_next_boot(facts)
    now = list(_now(facts, mends=not then))  # where GRUB does not tell, that holds for every kernel
    if now and driver["next_kernel"] == facts["kernel"]:  # the same kernel boots again: it is the same fault
        then = [verdict for verdict in then if verdict["id"] != "next_kernel_other_module"]
    found = [*now, *then, *_fallbacks(facts), *more]
    if driver["unheld"]:
        fact = f"no longer on hold: {_listing(driver['unheld'])} (dpkg -i and --allow-change-held-packages clear holds)"
        found.append(_warn("hold_lost", fact, "run site.yml: the role driver holds the set again"))
    for pin in driver["pins"]:
        fact = f"apt cannot read {pin['problem']} in {pin['file']}, and ignores what it pins"
        found.append(
            _warn("invalid_pin", fact, "write it as a POSIX extended regular expression, which has no look-ahead")
        )
    found.sort(key=lambda verdict: verdict["severity"])  # error before warn
    return found or [_verdict("coherent", "info", f"driver {driver['userland']}, its modules and kernels agree", "")]


def coherent(verdicts: Sequence[Verdict]) -> bool:
    return all(verdict["id"] in HARMLESS for verdict in verdicts)


def against_the_next_boot(facts: Mapping[str, Any]) -> list[Verdict]:
    """Return why the next boot would fail, or have no GPU. Where GRUB does not tell, any kernel may be the next."""
    driver, running = facts["driver"], facts["kernel"]
    if not driver["userland"]:
        return judge(facts)
    kernels = {kernel["release"]: kernel for kernel in driver["kernels"]}
    here = {"release": running, "module": driver["module_on_disk"], "flavour": flavour(driver["license"])}
    if driver["next_kernel"]:
        release = driver["next_kernel"]
        gone = {"release": release, "module": None, "flavour": None}  # GRUB's menu may be older than what is installed
        candidates = [kernels.get(release) or (here if release == running else gone)]
    else:
        candidates = list(kernels.values()) or [here]
    found = []
    for kernel in candidates:
        release, module = kernel["release"], kernel["module"]
        boots = f"GRUB boots {release} next" if driver["next_kernel"] else f"{release} may boot next"
        package = f"linux-modules-nvidia-{BRANCH}-open-{release}"
        if module is None:
            found.append(_without_module(release, boots, package, facts))
        elif module != driver["userland"]:
            fact = f"{boots}, whose module is {module}; the userland is {driver['userland']}: no GPU after that"
            way_out = f"install {package} of {driver['userland']}, or move the set as a whole; do not reboot before"
            found.append(_error("next_kernel_other_module", fact, way_out))
        if kernel["flavour"] == "proprietary":
            fact = f"the nvidia module of kernel {release} is the proprietary one, which does not start a GB10"
            way_out = f"install {package} and nvidia-driver-{BRANCH}-open in its place"
            found.append(_error("proprietary_flavour", fact, way_out))
    if driver["next_missing"]:
        fact = f"GRUB boots an entry next that loads {_listing(driver['next_missing'])}, which is missing or empty"
        release = driver["next_kernel"] or running
        # The build of nvidia-dkms is what has failed, and `dpkg --configure -a` would run it again.
        finish = f"{_instead_of_dkms(release)}, then " if _DKMS in facts["packages"] else ""
        mend = f"{finish}dpkg --configure -a, update-initramfs -c -k {driver['next_kernel'] or 'all'}, update-grub"
        way_out = f"make room in /boot if it is full, then {mend}; do not reboot before"
        found.append(_error("next_kernel_incomplete", fact, way_out))
    return [*found, *_mixed(facts["packages"])]


def _without_module(release: str, boots: str, package: str, facts: Mapping[str, Any]) -> Verdict:
    """Judge a kernel that has no module of NVIDIA's: before its boot, and after it."""
    driver = facts["driver"]
    install = _instead_of_dkms(release) if _DKMS in facts["packages"] else f"install {package}"
    if release != facts["kernel"] or driver["module_loaded"]:
        fact = f"{boots}, which has no nvidia module: no GPU after that"
        way_out = f"{install}, or remove that kernel; do not reboot before"
        return _error("next_kernel_without_module", fact, way_out)
    sound = [kernel["release"] for kernel in driver["kernels"] if kernel["module"] == driver["userland"]]
    former = f"; or boot {sound[-1]} from GRUB's menu, and remove {release} there" if sound else ""
    fact = f"kernel {release} runs, and has no nvidia module: no GPU now"
    return _error("next_kernel_without_module", fact, f"{install}, then `modprobe nvidia`{former}")


def _instead_of_dkms(release: str) -> str:
    """Return what takes the modules that Ubuntu has signed in place of a build on the host, in one step of apt."""
    return f"`apt-get install linux-modules-nvidia-{BRANCH}-open-{shlex.quote(release)} {_DKMS}-`"


def _now(facts: Mapping[str, Any], mends: bool) -> Iterator[Verdict]:
    """The running kernel: its module on the disk and in memory, and the userland. `mends`: whether a reboot helps."""
    driver, running = facts["driver"], facts["kernel"]
    userland, due = driver["userland"], driver["next_kernel"]
    modules = {"module on disk": driver["module_on_disk"], "module loaded": driver["module_loaded"]}
    other = next((version for version in modules.values() if version and version != userland), None)
    parts = ", ".join(f"{name} {version}" for name, version in modules.items() if version)
    kernels = {kernel["release"]: kernel for kernel in driver["kernels"]}
    if other and mends:
        fact = f"a reboot{f' into {due}' if due else ''} is missing: userland {userland}, {parts}"
        yield _warn(
            "pending_reboot", fact, "reboot (playbook gb10.fleet.reboot): the GPU is not to be relied on until then"
        )
    elif other:
        newer = numbers(userland) > numbers(other)
        fact = (
            f"the {'userland' if newer else 'kernel module'} is ahead: userland {userland}, {parts} (kernel {running})"
        )
        way_out = (
            f"bring both to one version (linux-modules-nvidia-{BRANCH}-open-{running}, and the userland), then reboot"
        )
        yield _error("userland_newer" if newer else "module_newer", fact, way_out)
    # A kernel that is not in GRUB's menu was not booted by GRUB, and its menu tells nothing about it.
    elif mends and due not in (None, running) and kernels.get(running, {}).get("listed"):
        fact = f"kernel {running} runs, and GRUB boots {due} next"
        yield _warn("pending_reboot", fact, "reboot when it suits (playbook gb10.fleet.reboot)")
    if driver["module_on_disk"] and not driver["module_loaded"] and driver["rejected"]:
        yield _rejected(driver["rejected"], running)
    elif driver["module_on_disk"] == userland and not driver["module_loaded"]:
        fact = f"kernel {running} has the nvidia module {userland}, and it is not loaded: no GPU now"
        yield _error("module_not_loaded", fact, "modprobe nvidia; if that fails, dmesg | grep -i nvrm says why")
    if flavour(driver["license"]) == "proprietary" and due not in (None, running):
        fact = f"the nvidia module of the running kernel {running} is the proprietary one, which does not start a GB10"
        yield _error("proprietary_flavour", fact, "install the -open flavour of the driver")


def _rejected(said: str, running: str) -> Verdict:
    fact = f"Secure Boot is on, and kernel {running} has rejected a module for its signature ({said}): no GPU now"
    way_out = (
        "enrol the key that signed the nvidia module: `mokutil --import /var/lib/shim-signed/mok/MOK.der`, reboot, and"
        " confirm at the machine's own screen (no SSH there); or install the module that Ubuntu has signed,"
        f" linux-modules-nvidia-{BRANCH}-open-{running}; or switch Secure Boot off in the firmware's setup"
    )
    return _error("module_rejected", fact, way_out)


def _fallbacks(facts: Mapping[str, Any]) -> Iterator[Verdict]:
    driver = facts["driver"]
    known = (driver["next_kernel"], facts["kernel"])
    found = [
        f"{kernel['release']} ({'module ' + kernel['module'] if kernel['module'] else 'no nvidia module'})"
        for kernel in (driver["kernels"] if driver["next_kernel"] else ())
        if kernel["listed"] and kernel["release"] not in known and kernel["module"] != driver["userland"]
    ]
    if found:
        fact = f"GRUB's menu also offers {_listing(found)}: no GPU if somebody chooses one of these"
        way_out = (
            "for rescue only. The role driver holds none of them: `apt-get autoremove` takes those that apt no longer"
            " needs, `apt-get remove linux-image-RELEASE` any other"
        )
        yield _warn("fallback_kernel_without_module", fact, way_out)


def _mixed(packages: Mapping[str, str]) -> Iterator[Verdict]:
    versions: dict[str, list[str]] = {}
    for name, text in packages.items():
        found = VERSION.search(text) if has_the_drivers_version(name) else None
        if found:
            versions.setdefault(found[1], []).append(name)
    if len(versions) > 1:
        common = max(versions, key=lambda version: len(versions[version]))
        others = [f"{name} {version}" for version, names in versions.items() if version != common for name in names]
        fact = f"the driver's packages are of several versions: {_listing(others)}, the others {common}"
        yield _error(
            "mixed_userland", fact, f"bring all of them to one version of branch {BRANCH}; do not reboot before"
        )


def judge_candidates(candidates: Mapping[str, str] | None, files: Sequence[str]) -> list[Verdict]:
    """What apt would install next; None: it does not say. `files`: the preferences that it reads, in this order."""
    if candidates is None:
        fact = "apt does not say what it would install next: apt-cache gives no answer"
        return [
            _warn("candidates_unknown", fact, "`apt-cache policy` says why; repair that, nothing guards the branch now")
        ]
    leaving = [f"{name} {version}" for name, version in candidates.items() if _branch(version) != BRANCH]
    if not leaving:
        return []
    way_out = "run site.yml: the role driver writes the pins that prevent it"
    if OUR_PREFERENCES in files:
        before = " or ".join(files[: files.index(OUR_PREFERENCES)])
        way_out = "`apt-cache policy` names the pin that lets them in; site.yml writes the role driver's anew"
        if before:
            way_out = f"a stanza that apt reads before {OUR_PREFERENCES} lets them in: remove it from {before}"
    return [_error("candidate_not_580", f"apt would leave branch {BRANCH}: {_listing(leaving)}", way_out)]


def _branch(version: str) -> str:
    """`580` of `1:580.142-0ubuntu0.24.04.1`."""
    return re.split(r"\D", version.rpartition(":")[2], maxsplit=1)[0]


def numbers(version: str) -> tuple[int, ...]:
    # A host may say anything, and Python converts no more than 4300 digits.
    return tuple(int(number) for number in re.findall("[0-9]{1,18}", version))


def _listing(names: Sequence[str]) -> str:
    shown = 6
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(sorted(names)[:shown]) + more


def _verdict(id_: str, severity: str, fact: str, way_out: str) -> Verdict:
    return {"id": id_, "severity": severity, "fact": fact, "way_out": way_out}


def _error(id_: str, fact: str, way_out: str) -> Verdict:
    return _verdict(id_, "error", fact, way_out)


def _warn(id_: str, fact: str, way_out: str) -> Verdict:
    return _verdict(id_, "warn", fact, way_out)
