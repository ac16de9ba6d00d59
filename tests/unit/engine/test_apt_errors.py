"""Faults of apt and dpkg by name, from words that they really said."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine import apt_errors
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 77 (apt)", "apt_locked"),
        ("E: Unable to lock directory /var/lib/apt/lists/", "apt_locked"),
        ("dpkg: error: dpkg frontend lock was locked by another process with pid 77", "apt_locked"),
        ("E: Conflicting values set for option Signed-By regarding source http://x/ y: a != b\n"
         "E: The list of sources could not be read.", "apt_sources_conflict"),
        ("E: Malformed entry 1 in list file /etc/apt/sources.list.d/1.list (Component)", "apt_sources_unreadable"),
        ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.",
         "dpkg_interrupted"),
        ("E: Sub-process /usr/bin/dpkg exited unexpectedly", "dpkg_killed"),
        ("E: Packages need to be removed but remove is disabled.", "apt_would_remove"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "disk_full"),
        ("dpkg: error processing archive x: cannot copy: No space left on device", "disk_full"),
        ("W: GPG error: http://x y InRelease: The following signatures couldn't be verified because the public key is"
         " not available: NO_PUBKEY DDCAE044F796ECB0", "apt_key_unknown"),
        ("W: OpenPGP signature verification failed: http://x y InRelease: Sub-process /usr/bin/sqv returned an error"
         " code (1), error message is: Missing key B7525C0330B596BB72D193225AF04C2BA0B20566, which is needed to verify"
         " signature.", "apt_key_unknown"),
        ("E: The repository 'http://x foreign InRelease' is not signed.", "apt_key_unknown"),
        ("W: GPG error: http://x y InRelease: The following signatures were invalid: BADSIG 0123456789ABCDEF x",
         "apt_signature_wrong"),
        ("E: Release file for http://x/dists/y/InRelease is expired (invalid since 324d 8h)", "apt_release_expired"),
        ("E: Failed to fetch http://x/p_2.0_all.deb  Hash Sum mismatch", "apt_file_damaged"),
        ("E: Failed to fetch http://x/p_2.0_all.deb  File has unexpected size (10 != 20). Mirror sync in progress?",
         "apt_file_damaged"),
        ("E: Failed to fetch http://x/p_2.0_all.deb  Undetermined Error [IP: 198.18.7.1 35855]", "apt_file_damaged"),
        ("W: Failed to fetch http://nowhere.invalid/x  Could not resolve 'nowhere.invalid'", "apt_name_unresolved"),
        ("W: Failed to fetch http://198.18.7.1:9/apt  Unable to connect to 198.18.7.1:9:", "apt_mirror_unreachable"),
        ("E: Failed to fetch http://x/p.deb  503  Service Unavailable [IP: 198.18.7.1 35855]", "apt_mirror_down"),
        ("E: Failed to fetch http://x/p.deb  429  Too Many Requests", "apt_mirror_down"),
        ("E: The repository 'http://x gone Release' does not have a Release file.", "apt_not_on_mirror"),
        ("E: Failed to fetch http://x/p.deb  404  Not Found [IP: 198.18.7.1 35855]", "apt_not_on_mirror"),
        ("E: The repository 'http://x noble Release' no longer has a Release file.", "apt_not_on_mirror"),
        ("W: https://x/InRelease: No system certificates available. Try installing ca-certificates.\n"
         "W: Failed to fetch https://x/InRelease  Certificate verification failed: The certificate is NOT trusted. The"
         " certificate issuer is unknown.", "apt_certificate_untrusted"),
        ("E: Failed to fetch https://x/p.deb  Invalid response from proxy: HTTP/1.1 407 Proxy Authentication Required",
         "apt_proxy_login"),
        ("E: Failed to fetch http://x/p.deb  403  Forbidden [IP: 198.18.7.1 3128]", "apt_forbidden"),
        # As apt and dpkg word it; not all seen on a host.
        ("Error: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 77 (apt)", "apt_locked"),
        ("E: Could not open lock file /var/lib/dpkg/lock-frontend - open (30: Read-only file system)\n"
         "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?", "disk_refuses"),
        ("E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\n"
         "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?", "not_root"),
        ("E: Repository 'https://x noble InRelease' changed its 'Label' value from 'DGX' to 'Base OS'",
         "apt_source_changed"),
        ("E: The package x needs to be reinstalled, but I can't find an archive for it.", "package_half_there"),
        ("dpkg: error processing package initramfs-tools (--configure):\n triggers looping, abandoned",
         "dpkg_interrupted"),
        ("dpkg: unrecoverable fatal error, aborting:\n files list file for package 'x' is missing final newline",
         "dpkg_database_damaged"),
        ("dpkg: error processing package docker-ce (--configure):\n end of file on stdin at conffile prompt",
         "dpkg_asks"),
        ("W: OpenPGP signature verification failed: https://x default InRelease: Sub-process /usr/bin/sqv: Policy"
         " rejected signing key: SHA1 is not considered secure", "apt_signature_wrong"),
    ],
)  # fmt: skip
def test_a_fault_has_a_name(said: str, name: str) -> None:
    fault = apt_errors.find(said)
    assert fault is not None
    assert fault.name == name


# NVIDIA forum 383450 and pytorch/serve issue 713: what dpkg and DKMS printed.
CLASH = """dpkg: error processing archive /tmp/apt-dpkg-install-HqrtGf/68-nvidia-cuda-dev_9.1.85_arm64.deb (--unpack):
 trying to overwrite '/usr/include/nvml.h', which is also in package datacenter-gpu-manager 1:1.7.2
Errors were encountered while processing:
 /tmp/apt-dpkg-install-HqrtGf/68-nvidia-cuda-dev_9.1.85_arm64.deb
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
DKMS = """Error! Bad return status for module build on kernel: 7.0.0-1019-nvidia (aarch64)
Consult /var/lib/dkms/nvidia/580.178.04/build/make.log for more information.
dpkg: error processing package nvidia-dkms-580-open (--configure):
 installed nvidia-dkms-580-open package post-installation script subprocess returned error exit status 10
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""


HEADERS = """Error! Your kernel headers for kernel 6.17.0-1014-nvidia cannot be found at /lib/modules.
dpkg: error processing package nvidia-dkms-580-open (--configure):
 installed nvidia-dkms-580-open package post-installation script subprocess returned error exit status 1
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (HEADERS, "kernel_headers_missing: nvidia-dkms-580-open: installed nvidia-dkms-580-open package"
         " post-installation script subprocess returned error exit status 1. Fix: the module cannot be built without"
         " them: `apt-get install linux-headers-6.17.0-1014-nvidia`"),
        (CLASH, "package_files_clash: 68-nvidia-cuda-dev_9.1.85_arm64.deb: trying to overwrite '/usr/include/nvml.h',"
         " which is also in package datacenter-gpu-manager 1:1.7.2. Fix: two packages"),
        (DKMS, "module_build_failed: nvidia-dkms-580-open: installed nvidia-dkms-580-open package post-installation"
         " script subprocess returned error exit status 10. Fix: the log"
         " /var/lib/dkms/nvidia/580.178.04/build/make.log says why; where Ubuntu has signed modules for this kernel,"
         " take them in place of the build, in one step: `apt-get install"
         " linux-modules-nvidia-580-open-7.0.0-1019-nvidia nvidia-dkms-580-open-`"),
        (DKMS.partition("\ndpkg")[2].join(("dpkg", "")),
         "package_script_failed: nvidia-dkms-580-open: installed nvidia-dkms-580-open package post-installation"),
    ],
)  # fmt: skip
def test_of_a_package_that_failed_the_reason_is_kept(said: str, told: str, tmp_path: Path) -> None:
    """apt 2.6.2 gives dpkg a terminal of its own, and then all its words are on stdout: tried."""
    assert by_dpkg(tmp_path, "", said).startswith(told)
    assert by_dpkg(tmp_path, f"Setting up x (1) ...\n{said}").startswith(told)


def by_dpkg(folder: Path, stdout: str, stderr: str = "E: Sub-process /usr/bin/dpkg returned an error code (1)") -> str:
    """Return what is said of an apt that ended where dpkg did."""
    done = Completed((), 100, stdout=stdout, stderr=stderr)
    return apt_errors.explained(done, System(folder, privileged=True))


def test_of_a_script_that_says_nothing_no_progress_of_dpkg_is_quoted(tmp_path: Path) -> None:
    stdout = (
        "Unpacking x (1) ...\nSetting up x (1) ...\ndpkg: error processing package x (--configure):\n"
        " installed x package post-installation script subprocess returned error exit status 10\n"
    )
    said = by_dpkg(tmp_path, stdout)
    assert said.startswith(
        "package_script_failed: x: installed x package post-installation script subprocess returned error exit status"
        " 10. Fix: "
    )


# aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop issue 18, and how apt 3 says the same.
HALF = " nvidia-dkms-580 : Depends: nvidia-kernel-common-580 (>= 580.95) but 580.82-0ubuntu1 is to be installed\n"
APT_3 = """E: Unable to satisfy dependencies. Reached two conflicting assignments:
   1. nvidia-driver-580-open:arm64=580.95 is selected for install
   2. nvidia-driver-580-open:arm64=580.95 Depends libnvidia-gl-580 (= 580.95)
      but none of the choices are installable:
"""


@pytest.mark.parametrize(
    ("stderr", "stdout", "says", "fix"),
    [
        ("E: Unmet dependencies. Try 'apt --fix-broken install' with no packages (or specify a solution).", HALF,
         "nvidia-dkms-580 : Depends: nvidia-kernel-common-580", "--fix-broken install` shows what would"),
        (APT_3, "", "2. nvidia-driver-580-open:arm64=580.95 Depends libnvidia-gl-580", "`apt-cache policy`"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_named(stderr: str, stdout: str, says: str, fix: str, tmp_path: Path) -> None:
    done = Completed((), 100, stdout=stdout, stderr=stderr)
    said = apt_errors.explained(done, System(tmp_path, privileged=True))
    assert said.startswith(f"apt_dependencies_unmet: {says}") and fix in said


def test_who_may_not_lock_does_not_wait_for_the_lock() -> None:
    assert not apt_errors.is_locked(
        Completed((), 100, stderr="E: Unable to acquire the dpkg frontend lock (/x), are you root?")
    )


def test_the_first_fault_counts_for_others_may_follow_from_it() -> None:
    text = "W: Failed to fetch http://x  Unable to connect to x:9:\nW: Failed to fetch http://y  Could not resolve 'y'"
    fault = apt_errors.find(text)
    assert fault is not None and fault.name == "apt_mirror_unreachable"


@pytest.mark.parametrize(
    "error", ["E: You don't have enough free space in /x.", "dpkg: error: x: No space left on device"]
)
def test_an_error_counts_before_a_warning(error: str) -> None:
    fault = apt_errors.find(f"W: Failed to fetch http://x  Could not resolve 'x'\n{error}\nE: Sub-process returned 1")
    assert fault is not None and fault.name == "disk_full"
    fault = apt_errors.find(
        "W: Failed to fetch http://x  Could not resolve 'x'\nE: Some index files failed to download."
    )
    assert fault is not None and fault.name == "apt_name_unresolved"


@pytest.mark.parametrize("said", ["", "E: Something new", "Get:1 http://x y/main 580 Packages [503 kB]"])
def test_what_nobody_knows_has_none(said: str, tmp_path: Path) -> None:
    assert apt_errors.find(said) is None
    done = Completed((), 100, stderr=said)
    assert apt_errors.explained(done, System(tmp_path, privileged=True)) == done.words


def test_the_holder_of_a_lock_is_named_with_its_command(tmp_path: Path) -> None:
    (tmp_path / "proc/77").mkdir(parents=True)
    (tmp_path / "proc/77/cmdline").write_bytes(b"/usr/bin/python3\0/usr/bin/unattended-upgrade\0")
    said = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 77 (unattended-upgr)"
    told = apt_errors.explained(Completed((), 100, stderr=said), System(tmp_path, privileged=True))
    assert told.startswith(f"apt_locked: {said} (process 77: /usr/bin/python3 /usr/bin/unattended-upgrade). Fix: ")


def test_that_apt_has_waited_for_a_lock_is_no_failure_because_of_it() -> None:
    waited = "Waiting for cache lock: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt)\n"
    assert not apt_errors.is_locked(Completed((), 100, stderr=f"{waited}E: Sub-process /usr/bin/dpkg exited"))
    assert not apt_errors.is_locked(Completed((), 0, stderr="E: Could not get lock x"))
    assert apt_errors.is_locked(Completed((), 100, stderr=f"{waited}E: Could not get lock x"))


def test_what_apt_says_is_bounded(tmp_path: Path) -> None:
    done = Completed((), 100, stderr="E: " + "503  Service Unavailable " * 1000)
    assert len(apt_errors.explained(done, System(tmp_path, privileged=True))) < 1000


# What apt 2.6.2 printed over a made-up status file and source with these packages; `-y --simulate`, then `-y`.
UNMET = """Some packages could not be installed. This may mean that you have
requested an impossible situation or if you are using the unstable
distribution that some required packages have not yet been created
or been moved out of Incoming.
The following information may help to resolve the situation:

The following packages have unmet dependencies:
"""
NEWER = " cuda-13-1 : Depends: nvidia-driver-580-open (>= 580.173) but 580.142-0ubuntu1 is to be installed\n"
OLDER = (
    " nvidia-driver-580-open : Depends: libnvidia-compute-580 (= 580.142-0ubuntu1) but 580.173.02-0ubuntu1 is to be"
    " installed\n"
)
CONFLICT = " breaker : Conflicts: libnvidia-compute-580 but 580.142-0ubuntu1 is to be installed\n"
CHANGED = """The following held packages will be changed:
  libnvidia-compute-580 nvidia-driver-580-open
The following packages will be upgraded:
  libnvidia-compute-580 nvidia-driver-580-open
"""
BROKEN = "E: Unable to correct problems, you have held broken packages.\n"
BREAKS = "E: Error, pkgProblemResolver::Resolve generated breaks, this may be caused by held packages.\n"
NOT_ALLOWED = "E: Held packages were changed and -y was used without --allow-change-held-packages.\n"


def told_with_holds(root: Path, stdout: str, stderr: str, *holds: str) -> str:
    (root / "var/lib/dpkg").mkdir(parents=True)
    blocks = [f"Package: {name}\nStatus: hold ok installed\nVersion: 1\n" for name in holds]
    blocks.append("Package: breaker\nStatus: install ok installed\nVersion: 1\n")
    (root / "var/lib/dpkg/status").write_text("\n".join(blocks))
    return apt_errors.explained(Completed((), 100, stdout, stderr), System(root, privileged=True))


@pytest.mark.parametrize(
    ("stdout", "stderr", "named"),
    [
        (UNMET + NEWER, BROKEN, "nvidia-driver-580-open is on hold; apt says: cuda-13-1 : Depends: nvidia-driver"),
        (UNMET + OLDER, BREAKS, "libnvidia-compute-580, nvidia-driver-580-open are on hold; apt says: nvidia-driver"),
        (UNMET + CONFLICT, BROKEN, "libnvidia-compute-580 is on hold; apt says: breaker : Conflicts: libnvidia-comp"),
        (CHANGED, NOT_ALLOWED, "libnvidia-compute-580, nvidia-driver-580-open are on hold. Fix: "),
    ],
)
def test_a_hold_that_blocks_is_named(stdout: str, stderr: str, named: str, tmp_path: Path) -> None:
    told = told_with_holds(tmp_path, stdout, stderr, "libnvidia-compute-580", "nvidia-driver-580-open", "unrelated")
    assert told.startswith(f"apt_hold_blocks: {named}")
    assert "driver_allow_move" in told and "apt-mark unhold" not in told
    assert "unrelated" not in told and "pkgProblemResolver" not in told and len(told) < 1000


def test_a_hold_of_somebody_else_is_theirs_to_lift(tmp_path: Path) -> None:
    said = UNMET + " perftest : Depends: libibverbs1 (>= 50) but 39 is to be installed\n"
    told = told_with_holds(tmp_path, said, BROKEN, "libibverbs1")
    assert told.startswith("apt_hold_blocks: libibverbs1 is on hold; apt says: perftest : Depends: libibverbs1 (>= 50)")
    assert told.endswith("Fix: `apt-mark unhold libibverbs1` if it may change, then run again")


def test_dependencies_that_no_hold_blocks_are_named_as_apt_names_them(tmp_path: Path) -> None:
    told = told_with_holds(tmp_path, UNMET + OLDER, BREAKS)
    assert told.startswith("apt_dependencies_unmet: nvidia-driver-580-open : Depends: libnvidia-compute-580 (= 580.142")
    assert "hold" not in told and "apt-cache policy" in told


@pytest.mark.parametrize("reason", ["2: No such file or directory", "20: Not a directory"])
def test_a_lock_that_cannot_be_made_is_not_waited_for(reason: str) -> None:
    said = f"E: Could not open lock file /var/x/lock - open ({reason})\nE: Unable to lock directory /var/x/"
    assert not apt_errors.is_locked(Completed((), 100, stderr=said))


def test_of_a_diversion_that_fails_the_reason_is_kept(tmp_path: Path) -> None:
    stdout = (
        "dpkg-divert: error: mismatch on package\ndpkg: error processing archive /x.deb (--unpack):\n"
        " new x package pre-installation script subprocess returned error exit status 2\n"
    )
    said = by_dpkg(tmp_path, stdout)
    assert "(dpkg-divert: error: mismatch on package). Fix: " in said
