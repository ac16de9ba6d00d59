"""The gate: every verdict, how GRUB's next kernel is told, and what hostile files do to it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks import coherence as judgement
from ansible_collections.gb10.fleet.plugins.module_utils.checks.coherence import against_the_next_boot, judge
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.programs.coherence import main as program
from ansible_collections.gb10.fleet.plugins.module_utils.reading import dpkg, grub
from ansible_collections.gb10.fleet.plugins.module_utils.reading import driver as installed
from ansible_collections.gb10.fleet.plugins.module_utils.reading import driver_pins as apt
from ansible_collections.gb10.fleet.plugins.module_utils.system import driver_packages
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from lab.vendor.kernel_module import stand_in

ROOT = Path(__file__).parents[3]
OLD, NEW = "580.142", "580.178.04"
RUNNING, OTHER = "6.17.0-1014-nvidia", "6.17.0-1032-nvidia"
UUID = "9b10f1ee-0000-4b10-8121-00000000b007"


def kernel(release: str = RUNNING, module: str | None = OLD, **other: Any) -> dict[str, Any]:
    license_ = "Dual MIT/GPL" if module else None
    flavour = "open" if module else None
    return {"release": release, "module": module, "license": license_, "flavour": flavour, "listed": True} | other


def spark(**driver: Any) -> dict[str, Any]:
    """The facts of a Spark where all is well, apart from what is said of its driver."""
    packages = {f"{name}-580": f"{OLD}-0ubuntu0.24.04.1" for name in ("libnvidia-compute", "nvidia-kernel-common")}
    return {
        "kernel": RUNNING,
        "packages": {**packages, "nvidia-firmware-580-580.126.09": "580.126.09-0ubuntu1"} | driver.pop("packages", {}),
        "driver": {
            "userland": OLD,
            "module_on_disk": OLD,
            "module_loaded": OLD,
            "license": "Dual MIT/GPL",
            "kernels": [kernel()],
            "next_kernel": RUNNING,
            "next_missing": [],
            "pins": [],
            "unheld": [],
            "secure_boot": False,
            "rejected": None,
        }
        | driver,
    }


# kernel/module/signing.c of Linux 6.17: `Loading of %s is rejected`, with one of three reasons.
REJECTED = "Loading of module with unavailable key is rejected"
PROPRIETARY = {"license": "NVIDIA", "flavour": "proprietary"}
CASES = {
    "all is well": (spark(), ["coherent"]),
    "nothing is loaded": (spark(module_loaded=None), ["module_not_loaded"]),
    "nothing is loaded of another version": (
        spark(module_loaded=None, module_on_disk=NEW, kernels=[kernel(module=NEW)]), ["module_newer"],
    ),
    "neither loaded nor there, in the fallback kernel": (
        spark(
            module_loaded=None, module_on_disk=None, next_kernel=OTHER, kernels=[kernel(module=None), kernel(OTHER)]
        ),
        ["pending_reboot"],
    ),
    "Secure Boot takes the module, and nothing is loaded": (
        spark(module_loaded=None, secure_boot=True), ["module_not_loaded"],
    ),
    "Secure Boot rejects the module": (
        spark(module_loaded=None, secure_boot=True, rejected=REJECTED), ["module_rejected"],
    ),
    "something else was rejected, and the driver runs": (spark(secure_boot=True, rejected=REJECTED), ["coherent"]),
    "never held": (spark(unheld=None), ["coherent"]),
    "no GRUB, all is well": (spark(next_kernel=None), ["coherent"]),
    "no driver": (spark(userland=None, module_on_disk=None), ["no_driver"]),
    # apt upgraded the set and nobody rebooted; /boot/grub/grub.cfg is not readable, or its default is no literal.
    "all of the disk is new, GRUB does not tell": (
        spark(module_loaded=NEW, next_kernel=None, kernels=[kernel(), kernel(OTHER)]), ["pending_reboot"],
    ),
    "userland ahead": (spark(userland=NEW), ["userland_newer"]),
    "userland ahead, module loaded only": (
        spark(userland=NEW, module_on_disk=None, kernels=[kernel(module=None)]),
        ["userland_newer", "next_kernel_without_module"],
    ),
    "module ahead": (spark(module_on_disk=NEW, kernels=[kernel(module=NEW)]), ["module_newer"]),
    "next kernel without module": (
        spark(next_kernel=OTHER, kernels=[kernel(), kernel(OTHER, None)]), ["next_kernel_without_module"],
    ),
    "next kernel with another driver's module": (
        spark(next_kernel=OTHER, kernels=[kernel(), kernel(OTHER, "590.48.01")]), ["next_kernel_other_module"],
    ),
    "the next kernel has no initrd": (spark(next_missing=["/boot/initrd.img-1"]), ["next_kernel_incomplete"]),
    "GRUB's menu is older than what is installed": (spark(next_kernel=OTHER), ["next_kernel_without_module"]),
    "GRUB does not tell, and one kernel has no module": (
        spark(next_kernel=None, kernels=[kernel(), kernel(OTHER, None)]), ["next_kernel_without_module"],
    ),
    "the running kernel is proprietary": (
        spark(license="NVIDIA", kernels=[kernel(**PROPRIETARY)]), ["proprietary_flavour"],
    ),
    "the next kernel is proprietary": (
        spark(next_kernel=OTHER, kernels=[kernel(), kernel(OTHER, **PROPRIETARY)]), ["proprietary_flavour"],
    ),
    "a hold is lost": (spark(unheld=["libnvidia-gl-580"]), ["hold_lost"]),
    "a pin is void": (spark(pins=[{"file": "/etc/apt/preferences", "problem": "/a(?!b)/: bad"}]), ["invalid_pin"]),
    "kernel-common moved alone": (
        spark(packages={"libnvidia-gl-580": f"{OLD}-0ubuntu1", "nvidia-kernel-common-580": f"{NEW}-0ubuntu1"}),
        ["mixed_userland"],
    ),
    "a reboot does not mend a half-moved userland": (
        spark(
            userland=NEW, module_on_disk=NEW, kernels=[kernel(module=NEW)],
            packages={"libnvidia-gl-580": f"{NEW}-0ubuntu1"},
        ),
        ["mixed_userland", "userland_newer"],
    ),
    "moved, not rebooted": (
        spark(userland=NEW, module_on_disk=NEW, kernels=[kernel(module=NEW)]), ["pending_reboot"],
    ),
    "the set moved to a new kernel": (
        spark(userland=NEW, module_on_disk=None, next_kernel=OTHER, kernels=[kernel(module=None), kernel(OTHER, NEW)]),
        ["pending_reboot"],
    ),
    "another kernel is next": (spark(next_kernel=OTHER, kernels=[kernel(), kernel(OTHER)]), ["pending_reboot"]),
    "GRUB did not boot this kernel": (
        spark(next_kernel=OTHER, kernels=[kernel(listed=False), kernel(OTHER)]), ["coherent"],
    ),
    "a fallback without module": (
        spark(kernels=[kernel(), kernel("6.17.0-1008-nvidia", None)]), ["fallback_kernel_without_module"],
    ),
    "a fallback with another driver's module": (
        spark(kernels=[kernel(), kernel("6.17.0-1008-nvidia", "580.95.05")]), ["fallback_kernel_without_module"],
    ),
    "several old kernels are one finding": (
        spark(kernels=[
            kernel(), kernel("6.17.0-1008-nvidia", None), kernel("6.14.0-1013-nvidia", None),
            kernel("6.11.0-1-nvidia", "580.9"),
        ]),
        ["fallback_kernel_without_module"],
    ),
    "an old image that GRUB does not offer": (
        spark(kernels=[kernel(), kernel("6.17.0-1008-nvidia", None, listed=False)]), ["coherent"],
    ),
}  # fmt: skip


def test_a_kernel_without_module_that_runs_already_is_told_what_to_do_now() -> None:
    """As after a phased update that brought a kernel alone: before the reboot, and after it."""
    kernels = [kernel(OTHER), kernel(module=None)]
    before = judgement.judge(spark(next_kernel=OTHER, kernels=[kernel(), kernel(OTHER, None)]))
    after = judgement.judge(spark(module_loaded=None, module_on_disk=None, kernels=kernels))
    assert "do not reboot before" in before[0]["way_out"] and OTHER in before[0]["way_out"]
    assert after[0]["id"] == "next_kernel_without_module" and "runs, and has no nvidia module" in after[0]["fact"]
    assert "do not reboot" not in after[0]["way_out"] and f"boot {OTHER} from GRUB's menu" in after[0]["way_out"]


def test_a_build_that_failed_is_not_run_again() -> None:
    """NVIDIA forum 383450: a DKMS build under Secure Boot fails, and `dpkg --configure -a` repeats it."""
    built = {"nvidia-dkms-580-open": f"{OLD}-0ubuntu1"}
    facts = spark(next_kernel=OTHER, kernels=[kernel(), kernel(OTHER, None)], packages=built, next_missing=["/boot/x"])
    ways = [verdict["way_out"] for verdict in judgement.judge(facts)]
    one_step = f"`apt-get install linux-modules-nvidia-580-open-{OTHER} nvidia-dkms-580-open-`"
    assert len(ways) == 2 and all(one_step in way for way in ways), ways


@pytest.mark.parametrize(("facts", "ids"), CASES.values(), ids=CASES.keys())
def test_verdicts(facts: dict[str, Any], ids: list[str]) -> None:
    verdicts = judge(facts)
    assert sorted(verdict["id"] for verdict in verdicts) == sorted(ids)
    assert judgement.coherent(verdicts) == (set(ids) <= set(judgement.HARMLESS))
    for verdict in verdicts:
        assert verdict["severity"] == judgement.IDS[verdict["id"]]
        assert verdict["fact"]
        assert verdict["way_out"] or verdict["id"] == "coherent"


def test_a_reboot_helps_where_every_kernel_has_the_userland_s_module() -> None:
    verdict = judge(spark(module_loaded="580.95.05", next_kernel=None))[0]
    assert verdict["fact"] == f"a reboot is missing: userland {OLD}, module on disk {OLD}, module loaded 580.95.05"
    assert "gb10.fleet.reboot" in verdict["way_out"]


def test_a_rejected_module_is_for_a_key_and_not_for_modprobe() -> None:
    verdict = judge(spark(module_loaded=None, secure_boot=True, rejected=REJECTED))[0]
    assert "Secure Boot is on" in verdict["fact"] and REJECTED in verdict["fact"]
    for word in ("mokutil --import", "at the machine's own screen", "Secure Boot off", f"nvidia-580-open-{RUNNING}"):
        assert word in verdict["way_out"]
    assert "modprobe" not in verdict["way_out"] and "dmesg" not in verdict["way_out"]


def test_every_verdict_has_a_case() -> None:
    asked_of_apt = {"candidate_not_580", "candidates_unknown"}
    assert {id_ for _facts, ids in CASES.values() for id_ in ids} == set(judgement.IDS) - asked_of_apt


def test_what_speaks_against_a_boot() -> None:
    def ids(**driver: Any) -> list[str]:
        return [verdict["id"] for verdict in against_the_next_boot(spark(**driver))]

    assert ids() == ids(unheld=["x"]) == ids(userland=NEW, module_on_disk=NEW, kernels=[kernel(module=NEW)]) == []
    assert ids(userland=None) == ["no_driver"]
    assert ids(userland=NEW) == ["next_kernel_other_module"], "the same kernel again is no way out"
    assert ids(next_kernel=OTHER) == ["next_kernel_without_module"]
    assert ids(packages={"libnvidia-gl-580": f"{NEW}-0ubuntu1"}) == ["mixed_userland"]
    assert ids(next_missing=["/initrd.img-1"]) == ["next_kernel_incomplete"]
    assert ids(module_loaded=None) == [], "a reboot may load it"


@pytest.mark.parametrize(
    ("candidates", "named"),
    [
        ({"libnvidia-gl-580": f"{NEW}-0ubuntu1", "nvidia-driver-pinning-580": "580-1"}, []),
        ({"libnvidia-gl-580": "590.48.01-1"}, ["libnvidia-gl-580 590.48.01-1"]),
        ({"nvidia-open": "1:610.43.02-1"}, ["nvidia-open 1:610.43.02-1"]),
    ],
)
def test_candidates_stay_on_the_branch(candidates: dict[str, str], named: list[str]) -> None:
    verdicts = judgement.judge_candidates(candidates, [])
    assert [verdict["id"] for verdict in verdicts] == ["candidate_not_580"] * bool(named)
    assert all(name in verdicts[0]["fact"] for name in named)


def test_a_candidate_that_our_pins_do_not_keep_away_has_another_way_out() -> None:
    leaving = {"nvidia-open": "1:610.43.02-1"}
    files = [
        "/etc/apt/preferences",
        "/etc/apt/preferences.d/00-x",
        apt.OUR_PREFERENCES,
        "/etc/apt/preferences.d/z",
    ]
    (without,) = judgement.judge_candidates(leaving, [files[0], files[3]])
    (beside,) = judgement.judge_candidates(leaving, files)
    (alone,) = judgement.judge_candidates(leaving, files[2:])
    assert "run site.yml" in without["way_out"]
    assert "remove it from /etc/apt/preferences or /etc/apt/preferences.d/00-x" in beside["way_out"]
    assert "apt-cache policy" in alone["way_out"]


def test_without_an_answer_of_apt_a_host_is_not_coherent() -> None:
    verdicts = judge(spark(), judgement.judge_candidates(None, []))
    assert [(verdict["id"], verdict["severity"]) for verdict in verdicts] == [("candidates_unknown", "warn")]
    assert not judgement.coherent(verdicts)


def test_the_branch_is_the_catalog_s() -> None:
    assert catalog.load("host_sets")["driver_branch"]["value"] == driver_packages.BRANCH


# -- GRUB --------------------------------------------------------------------------------------------------------------


def entry(indent: str, title: str, identifier: str, release: str, boot: str = "/boot") -> str:
    return (
        f"{indent}menuentry '{title}' --class ubuntu --class os $menuentry_id_option '{identifier}' {{\n"
        f"{indent}\trecordfail\n{indent}\tgfxmode $linux_gfx_mode\n{indent}\tinsmod gzio\n"
        f"{indent}\tif [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi\n"
        f"{indent}\tsearch --no-floppy --fs-uuid --set=root {UUID}\n"
        f"{indent}\tlinux\t{boot}/vmlinuz-{release} root=UUID={UUID} ro  quiet splash $vt_handoff\n"
        f"{indent}\tinitrd\t{boot}/initrd.img-{release}\n{indent}}}\n"
    )


def grub_cfg(default: str = "0", boot: str = "/boot") -> str:
    """As grub-mkconfig 2.12 of Ubuntu 24.04 writes it: newest first, all once more below a submenu, firmware last."""
    advanced = "".join(
        entry("\t", f"Ubuntu, with Linux {release}", f"gnulinux-{release}-advanced-{UUID}", release, boot)
        + entry(
            "\t", f"Ubuntu, with Linux {release} (recovery mode)", f"gnulinux-{release}-recovery-{UUID}", release, boot
        )
        for release in (OTHER, RUNNING)
    )
    return f"""#
# DO NOT EDIT THIS FILE
### BEGIN /etc/grub.d/00_header ###
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="{default}"
fi
function savedefault {{
  if [ -z "${{boot_once}}" ]; then
    saved_entry="${{chosen}}"
    save_env saved_entry
  fi
}}
function load_video {{
  if [ x$feature_all_video_module = xy ]; then
    insmod all_video
  fi
}}
### END /etc/grub.d/00_header ###
### BEGIN /etc/grub.d/10_linux ###
{entry("", "Ubuntu", f"gnulinux-simple-{UUID}", OTHER, boot)}\
submenu 'Advanced options for Ubuntu' $menuentry_id_option 'gnulinux-advanced-{UUID}' {{
{advanced}}}
### END /etc/grub.d/10_linux ###
### BEGIN /etc/grub.d/30_uefi-firmware ###
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {{
\tfwsetup
}}
menuentry "Somebody's \\"own\\" > kernel" --id own {{
\tlinux /vmlinuz root=/dev/sda1
}}
### END /etc/grub.d/30_uefi-firmware ###
"""


def grubenv(**variables: str) -> str:
    lines = "".join(f"{name}={value}\n" for name, value in variables.items())
    return ("# GRUB Environment Block\n" + lines).ljust(1024, "#")


ADVANCED = f"gnulinux-advanced-{UUID}"
SAVED = "${saved_entry}"


@pytest.mark.parametrize(
    ("default", "environment", "chosen"),
    [
        ("0", {}, OTHER),
        ("Ubuntu", {}, OTHER),
        ("1", {}, OTHER),  # a submenu alone: its first entry
        ("1>2", {}, RUNNING),
        ("1>3", {}, RUNNING),
        (f"{ADVANCED}>gnulinux-{RUNNING}-advanced-{UUID}", {}, RUNNING),
        (f"Advanced options for Ubuntu>Ubuntu, with Linux {RUNNING}", {}, RUNNING),
        (f"1>gnulinux-{RUNNING}-advanced-{UUID}", {}, RUNNING),
        # Not found, out of range or below something that is no submenu: the first entry.
        (f"gnulinux-{RUNNING}-advanced-{UUID}", {}, OTHER),
        ("7", {}, OTHER),
        ("1>9", {}, OTHER),
        ("9" * 5000, {}, OTHER),
        ("0>3", {}, OTHER),
        ("", {}, OTHER),
        (SAVED, {}, OTHER),
        (SAVED, {"saved_entry": "1>2"}, RUNNING),
        (SAVED, {"saved_entry": "1>2", "prev_saved_entry": "0"}, OTHER),
        ("0", {"saved_entry": "1>2"}, OTHER),
        ("0", {"next_entry": "1>2"}, RUNNING),
        (SAVED, {"saved_entry": "0", "next_entry": f"{ADVANCED}>gnulinux-{RUNNING}-advanced-{UUID}"}, RUNNING),
        ("uefi-firmware", {}, None),
        ("own", {}, "5.0-own"),
        (SAVED, {"saved_entry": 'Somebody\'s "own" >> kernel'}, "5.0-own"),
    ],
)
@pytest.mark.parametrize("boot", ["/boot", "", "(hd0,gpt2)/boot"])
def test_the_next_kernel_is_grubs(
    tmp_path: Path, boot: str, default: str, environment: dict[str, str], chosen: str | None
) -> None:
    write(tmp_path, "/boot/grub/grub.cfg", grub_cfg(default, boot))
    write(tmp_path, "/boot/grub/grubenv", grubenv(**environment))
    (tmp_path / "boot/vmlinuz").symlink_to("vmlinuz-5.0-own")
    said = grub.read_grub(tmp_path)
    assert (said.listed, said.next_kernel) == ({RUNNING, OTHER, "5.0-own"}, chosen)


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda text: text.partition("\n")[2],
        lambda text: f"\n{text}",
        lambda text: text.replace("Environment Block", "environment"),
        lambda text: text.replace("\n", "\r\n"),
    ],
    ids=["none", "late", "other", "carriage returns"],
)
def test_an_environment_without_its_head_says_nothing_to_grub(tmp_path: Path, spoilt: Callable[[str], str]) -> None:
    write(tmp_path, "/boot/grub/grub.cfg", grub_cfg(SAVED))
    write(tmp_path, "/boot/grub/grubenv", spoilt(grubenv(saved_entry="1>2", next_entry="1>2")))
    assert grub.read_grub(tmp_path).next_kernel == OTHER, "the first entry"


def test_without_grub_nothing_is_known(tmp_path: Path) -> None:
    assert vars(grub.read_grub(tmp_path)) == {"listed": set(), "next_kernel": None, "missing": []}


@pytest.mark.parametrize(
    ("default", "more", "own", "known"),
    [
        ("0", "", "", True),
        ("0", "", "# menuentry, default\nset timeout=3\n", True),
        ("0", "", "  menuentry 'own' {\n", False),
        ("0", "", "set default=own\n", False),
        ("${chosen}", "", "", False),
        ("${saved_entry}>1", "", "", False),
        ("0", "set default=0\n", "", True),
        ("0", "set default=1\n", "", False),
        ("0", "default=1\n", "", False),
        ("0", "if [ -s x ]; then set default=1; fi\n", "", False),
        ("0", "set timeout=1\n", "", True),
    ],
)
def test_where_grub_may_boot_something_else_it_does_not_tell(
    tmp_path: Path, default: str, more: str, own: str, known: bool
) -> None:
    write(tmp_path, "/boot/grub/grub.cfg", grub_cfg(default) + more)
    write(tmp_path, "/boot/grub/custom.cfg", own)
    said = grub.read_grub(tmp_path)
    assert (said.next_kernel, said.listed) == (OTHER if known else None, {RUNNING, OTHER})


@pytest.mark.parametrize("boot", ["/boot", "", "(hd0,gpt2)/boot"])
def test_kernel_and_initrd_of_the_next_entry_must_be_there(tmp_path: Path, boot: str) -> None:
    write(tmp_path, "/boot/grub/grub.cfg", grub_cfg(boot=boot))
    paths = [f"{boot}/vmlinuz-{OTHER}", f"{boot}/initrd.img-{OTHER}"]
    assert grub.read_grub(tmp_path).missing == paths
    write(tmp_path, f"/boot/vmlinuz-{OTHER}", "kernel")
    write(tmp_path, f"/boot/initrd.img-{OTHER}", "")
    assert grub.read_grub(tmp_path).missing == paths[1:]
    write(tmp_path, f"/boot/initrd.img-{OTHER}", "initrd")
    assert grub.read_grub(tmp_path).missing == []


def test_only_what_the_next_entry_names_is_asked_for(tmp_path: Path) -> None:
    text = "menuentry 'a' {\nlinux /vmlinuz-1-own\n}\nmenuentry 'b' {\nlinux /vmlinuz-2\ninitrd /a.img /$b\n}\n"
    write(tmp_path, "/boot/grub/grub.cfg", text)
    write(tmp_path, "/vmlinuz-1-own", "kernel")
    assert grub.read_grub(tmp_path).missing == []
    write(tmp_path, "/boot/grub/grubenv", grubenv(next_entry="b"))
    assert grub.read_grub(tmp_path).missing == ["/vmlinuz-2", "/a.img"]


@pytest.mark.parametrize(
    "text",
    [
        "menuentry {\nmenuentry\nsubmenu 'x\n}\n}\n}\nlinux\nset\nset default\n",
        "submenu a {\n" * 5000,
        "menuentry 'a' {\n linux ''\n}\n",
        "'" * 10000,
        '"\\' * 10000,
        "menuentry 'a' {\nlinux /vmlinuz-\0../../x\n}\n",
        "{\n}\n" * 1000,
    ],
)
def test_a_damaged_menu_is_read_as_far_as_it_goes(tmp_path: Path, text: str) -> None:
    write(tmp_path, "/boot/grub/grub.cfg", text)
    write(tmp_path, "/boot/grub/grubenv", grubenv(next_entry=">" * 2000))
    assert grub.read_grub(tmp_path).next_kernel is None or "vmlinuz-" in text


# -- what else is read -------------------------------------------------------------------------------------------------


def write(root: Path, path: str, content: str | bytes) -> Path:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return target


def silent(argv: Sequence[str]) -> str:
    raise AssertionError(f"no command is needed: {argv}")


def install(root: Path, release: str, version: str, license_: str = "Dual MIT/GPL", suffix: str = "") -> None:
    module = f"kernel/nvidia-580-open/nvidia.ko{suffix}"
    lines = f"kernel/nvidia-580-open/nvidia-drm.ko{suffix}: {module} kernel/drm.ko\n{module}: kernel/drm.ko\n"
    write(root, f"/lib/modules/{release}/modules.dep", lines)
    write(root, f"/lib/modules/{release}/{module}", stand_in(version, license_))
    write(root, f"/boot/vmlinuz-{release}", b"kernel")


def test_the_kernels_of_a_host(tmp_path: Path) -> None:
    write(tmp_path, "/proc/sys/kernel/osrelease", f"{RUNNING}\n")
    install(tmp_path, RUNNING, OLD)
    install(tmp_path, OTHER, NEW, "NVIDIA")
    write(tmp_path, "/lib/modules/6.8.0-60-generic/modules.dep", "")  # left behind by a removed kernel
    write(tmp_path, "/lib/modules/6.17.0-1020-nvidia/modules.dep", "kernel/x/nvidia-drm.ko: kernel/x/nvidia.ko\n")
    write(tmp_path, "/boot/grub/grub.cfg", grub_cfg())
    said = installed.read_driver(tmp_path, {"linux-image-6.17.0-1020-nvidia": "6.17.0-1020.20"}, (), silent)
    assert said["kernels"] == [
        kernel(),
        {"release": "6.17.0-1020-nvidia", "module": None, "license": None, "flavour": None, "listed": False},
        {"release": OTHER, "module": NEW, "license": "NVIDIA", "flavour": "proprietary", "listed": True},
    ]
    assert (said["module_on_disk"], said["next_kernel"], said["userland"]) == (OLD, OTHER, None)
    assert (said["pins"], said["unheld"]) == ([], None)


SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
LOG = f"""[    1.083721] secureboot: Secure boot enabled
[    7.113105] {REJECTED}
[    9.300000] nvme nvme0: 20/0/0 default/read/poll queues
"""


@pytest.mark.parametrize(
    ("variable", "log", "said"),
    [
        (b"\6\0\0\0\1", LOG, (True, REJECTED)),
        (b"\6\0\0\0\1", f"[    7.113105][  T812] {REJECTED}\n", (True, REJECTED)),
        (b"\6\0\0\0\1", "[    1.083721] secureboot: Secure boot enabled\n", (True, None)),
        # A login's control group of that name, below user@1000.service; our advice was to switch Secure Boot off.
        (b"\6\0\0\0\1", f"[   90.000001] oom-kill:oom_memcg=/user.slice/{REJECTED},task=x,uid=1000\n", (True, None)),
        (b"\6\0\0\0\0", None, (False, None)),
        (b"\6\0", None, (None, None)),
        (None, None, (None, None)),
    ],
)
def test_secure_boot_and_what_it_rejected(
    tmp_path: Path, variable: bytes | None, log: str | None, said: tuple[bool | None, str | None]
) -> None:
    write(tmp_path, "/proc/sys/kernel/osrelease", f"{RUNNING}\n")
    install(tmp_path, RUNNING, OLD)
    if variable is not None:
        write(tmp_path, SECURE_BOOT, variable)

    def dmesg(argv: Sequence[str]) -> str:
        assert argv == ["dmesg"] and log is not None
        return log

    found = installed.read_driver(tmp_path, {}, (), dmesg)
    assert (found["secure_boot"], found["rejected"]) == said


@pytest.mark.parametrize(
    ("journal", "rejected"), [(f"{REJECTED}\n", REJECTED), ("Linux version 6\n", None), ("", None)]
)
def test_a_unit_that_may_not_read_the_kernels_buffer_asks_the_journal(
    tmp_path: Path, journal: str, rejected: str | None
) -> None:
    """As gb10-driver-coherence.service and gb10-vllm.service, which have ProtectKernelLogs=yes."""
    write(tmp_path, "/proc/sys/kernel/osrelease", f"{RUNNING}\n")
    install(tmp_path, RUNNING, OLD)
    write(tmp_path, SECURE_BOOT, b"\6\0\0\0\1")
    asked: list[str] = []

    def run(argv: Sequence[str]) -> str:
        asked.append(" ".join(argv))
        return journal if argv[0] == "journalctl" else ""

    assert installed.read_driver(tmp_path, {}, (), run)["rejected"] == rejected
    assert asked == ["dmesg", "journalctl --dmesg --boot --no-pager --quiet --output=cat"]


def test_a_loaded_driver_needs_no_kernel_log(tmp_path: Path) -> None:
    write(tmp_path, "/proc/sys/kernel/osrelease", f"{RUNNING}\n")
    write(tmp_path, "/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {OLD}\n")
    write(tmp_path, SECURE_BOOT, b"\6\0\0\0\1")
    install(tmp_path, RUNNING, OLD)
    found = installed.read_driver(tmp_path, {}, (), silent)
    assert (found["secure_boot"], found["rejected"]) == (True, None)


def test_compressed_modules_are_asked_about_at_once(tmp_path: Path) -> None:
    install(tmp_path, RUNNING, OLD, suffix=".zst")
    install(tmp_path, OTHER, OLD, suffix=".zst")
    asked: list[Sequence[str]] = []

    def modinfo(argv: Sequence[str]) -> str:
        asked.append(argv)
        fields = "license: Dual MIT/GPL\nversion: {}\nalias: x\nlicense: other\n"
        return "".join(f"filename: {path}\n{fields.format(OLD if RUNNING in path else NEW)}" for path in argv[1:])

    said = installed.read_driver(tmp_path, {}, (), modinfo)
    assert said["kernels"] == [kernel(listed=False), kernel(OTHER, NEW, listed=False)]
    assert len(asked) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 58, b"no module", stand_in(OLD)[:70],
        b"\x7fELF\x02\x01" + b"\0" * 34 + b"\xff" * 8 + b"\0" * 16,
    ],
)  # fmt: skip
def test_a_module_that_is_none_has_no_version(tmp_path: Path, content: bytes) -> None:
    install(tmp_path, RUNNING, OLD)
    write(tmp_path, f"/lib/modules/{RUNNING}/kernel/nvidia-580-open/nvidia.ko", content)
    (said,) = installed.read_driver(tmp_path, {}, (), silent)["kernels"]
    assert said["module"] is None


@pytest.mark.parametrize(
    ("stanzas", "void"),
    [
        ("Package: /^nvidia-.*-580$/ /^lib(a|b){1,3}[.]so\\.1$/\nPin: version 580.142*\nPin-Priority: 990\n", 0),
        ("Package: nvidia-* *\nPin: release a=noble\nPin-Priority: 1\n", 0),
        ("Package: /^nvidia-(?!container)/\nPin: version *\nPin-Priority: -1\n", 1),
        ("Explanation: x\npackage: good /a)b/\n /[/\n /a{2,1}/\nPin: version /(/\n", 3),
        ("# Package: /(/\nExplanation: /(/\n", 0),
        ("Package: /(/:any src:/(/ src:/(/:any\nPin: version *\n", 3),
    ],
)
def test_what_apt_cannot_read_is_named(tmp_path: Path, stanzas: str, void: int) -> None:
    write(tmp_path, "/etc/apt/preferences.d/10-x", stanzas)
    write(tmp_path, "/etc/apt/preferences.d/x.bak", "Package: /(/\n")  # apt passes it by
    found = apt.read_pins(tmp_path)
    assert [item["file"] for item in found] == ["/etc/apt/preferences.d/10-x"] * void
    assert all(re.match(r"/.*/: \w", item["problem"]) for item in found)


def test_what_python_is_asked_means_the_same_to_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*"^$()|.?*a-", ")?", "\\.", ".*", "[0-9]", "[0-9]{3}", "nvidia-", "580", "{2}"]
    names = ["nvidia-580", "a", "libnvidia-x", "a580-", "nvidia-a-580-b", "", "A5"]
    chance = random.Random(7)  # noqa: S311 - no secret
    expressions = {"".join(chance.choices(words, k=chance.randint(1, 8))) for _ in range(20_000)}
    alike = {expression: apt.posix(expression, names) for expression in filter(_alike, expressions)}
    assert len(alike) > 500
    monkeypatch.setattr(apt, "_read_alike", lambda expression: False)
    assert alike == {expression: apt.posix(expression, names) for expression in alike}


def _alike(expression: str) -> bool:
    return apt._read_alike(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "a**",
        "[[:digit:]]",
        r"a\wb",
        r"a\.*b",
        "(?i)a",
        "(a",
        "()",
        "a{2,1}",
        "(.*)(.*)(.*)(.*)",
        "(.|.)" * 11,
        "(" * 600 + "a" + ")" * 600,
    ],
)
def test_what_python_could_read_otherwise_or_ponder_is_left_to_the_c_library(expression: str) -> None:
    assert not _alike(expression)


def test_a_host_with_our_pins_alone_does_not_load_ctypes() -> None:
    """3 of 80 ms of CPU of every look."""
    assert all(map(_alike, (*driver_packages.PARTS, r"^linux-(image|headers)-6\.17\.0-1014-nvidia$")))


def held(match: Sequence[str] = (), **other: Any) -> dict[str, Any]:
    hold = {"hold": "driver-set", "match": list(match), "except": ["container"]}
    return {"roles": {"driver": {}}, "declared": hold, "orphan": False} | other


@pytest.mark.parametrize(
    ("resources", "lost"),
    [
        ([held(["^nvidia-"])], ["nvidia-utils-580"]),
        ([held(["^nvidia-"], orphan=True)], None),
        ([held(["^nvidia-"], roles={"docker": {}})], None),
        ([held(declared={"hold": "nvidia-utils-580"})], ["nvidia-utils-580"]),
        ([held(declared={"hold": "x", "state": "free", "match": ["."]})], None),
        ([held(declared={"hold": "x", "match": ["^nvidia-"], "free": ["-utils-", "toolkit"]})], []),
        ([held(["("])], None),
        ([], None),
        ("text", None),
    ],
)
def test_holds_are_lost_that_the_manifest_knows(tmp_path: Path, resources: Any, lost: list[str] | None) -> None:
    packages = dict.fromkeys(("nvidia-utils-580", "nvidia-driver-580-open", "nvidia-container-toolkit"), "1")
    listed = {str(index): item for index, item in enumerate(resources)} if isinstance(resources, list) else resources
    write(tmp_path, installed.MANIFEST, json.dumps({"format": 1, "resources": listed}))
    assert installed.read_unheld(tmp_path, packages, ["nvidia-driver-580-open"]) == lost


def test_a_large_manifest_is_read_as_well(tmp_path: Path) -> None:
    resources = {"x": held(declared={"file": "x" * 3 * 2**20}), "hold": held(["^nvidia-"])}
    write(tmp_path, installed.MANIFEST, json.dumps({"format": 1, "resources": resources}))
    assert installed.read_unheld(tmp_path, {"nvidia-utils-580": "1"}, []) == ["nvidia-utils-580"]


STATUS = """Package: dpkg
Status: install ok installed
Version: 1.22

Package: libnvidia-compute-580
Status: hold ok installed
Version: 580.142-0ubuntu0.24.04.1
Description: x
 Package: not-one

Package: nvidia-open
Status: deinstall ok config-files
Version: 590.1-1
"""
POLICY = """libnvidia-compute-580:
  Installed: 580.142-0ubuntu0.24.04.1
  Candidate: 590.48.01-0ubuntu1
  Version table:
     590.48.01-0ubuntu1 500
nvidia-driver-590:
  Installed: (none)
  Candidate: (none)
"""


@pytest.mark.parametrize("state", [*dpkg._PRESENT, "half-installed", "config-files", "not-installed"])
def test_a_package_is_there_where_the_engine_says_so(tmp_path: Path, state: str) -> None:
    """The program travels alone, so its list is its own. A package that waits for another's triggers works."""
    write(tmp_path, "/var/lib/dpkg/status", STATUS.replace("hold ok installed", f"hold ok {state}"))
    packages, holds = program.read_packages(tmp_path)
    assert ("libnvidia-compute-580" in packages) is (state in dpkg._PRESENT)
    assert ("libnvidia-compute-580" in holds) is (state in dpkg._PRESENT)


def test_the_gate_asks_apt_for_what_is_pinned(tmp_path: Path) -> None:
    write(tmp_path, "/proc/sys/kernel/osrelease", f"{RUNNING}\n")
    write(tmp_path, "/var/lib/dpkg/status", STATUS)
    write(tmp_path, apt.OUR_PREFERENCES, "")
    write(tmp_path, "/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {OLD}\n")
    install(tmp_path, RUNNING, OLD)
    asked = []

    def ask(argv: Sequence[str]) -> str:
        asked.append(list(argv))
        return "bash\nnvidia-driver-590\nnvidia-container-toolkit\n" if argv[1] == "pkgnames" else POLICY

    said = program.gate(tmp_path, ask)
    assert asked[1] == ["apt-cache", "policy", "libnvidia-compute-580", "nvidia-driver-590"]
    assert [verdict["id"] for verdict in said["verdicts"]] == ["candidate_not_580"]
    assert (said["coherent"], said["against_a_boot"]) == (False, [])


@pytest.mark.parametrize(
    ("names", "policy"),
    [("", POLICY), ("nvidia-driver-590\n", ""), ("nvidia-driver-590\n", POLICY[POLICY.index("nvidia-driver-590") :])],
)
def test_an_apt_that_does_not_answer_is_no_good_sign(tmp_path: Path, names: str, policy: str) -> None:
    write(tmp_path, apt.OUR_PREFERENCES, "")
    packages = {"libnvidia-compute-580": f"{OLD}-0ubuntu0.24.04.1"}

    def ask(argv: Sequence[str]) -> str:
        return names if argv[1] == "pkgnames" else policy

    assert apt.read_candidates(tmp_path, packages, ask) is None
    assert apt.read_candidates(tmp_path, {"bash": "1"}, lambda argv: "bash" * (argv[1] == "pkgnames")) == {}


def test_the_timer_runs_the_gate() -> None:
    document = documents.render("coherence", View("spark-a", {}))
    service, timer, unit = document.resources[-3:]
    assert (unit["unit"], unit["state"]) == ("gb10-driver-coherence.timer", "started")
    assert "ExecStart=/usr/local/sbin/gb10-driver-coherence\n" in service["content"]
    assert "Persistent=true\n" in timer["content"]
    parse_documents([("coherence", document.resources)], {})


def test_a_version_of_more_digits_than_python_converts_is_no_defect() -> None:
    assert judgement.numbers("580." + "9" * 5000)[0] == 580
