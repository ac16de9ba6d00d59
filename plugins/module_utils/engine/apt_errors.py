# SPDX-License-Identifier: GPL-3.0-or-later
"""What went wrong when apt or dpkg failed: a name, and the way out, in front of apt's own words.

apt puts its own errors on stderr, and the packages that block an installation on stdout. dpkg gets a terminal from it,
so all words of dpkg and of packages' scripts come on stdout as well (without a terminal, on stderr).

The words are those of apt 2.6 to 3.0 and dpkg 1.21 and 1.22 in the C locale. Most were seen in a test with the fault.
The others are from a report, or from the source of apt, dpkg and DKMS.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import STATUS, parse_status
from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import moves_on_purpose
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System

_MAX_WORDS = 600  # characters of apt's own text in a message
_ERRORS = ("E:", "Error:", "dpkg: error")
# apt says the same of a hold and of packages that can never stand beside each other; the holds tell which it is.
_BLOCKED = (
    r"(?m)^(?:E|Error): (Unable to (?:correct problems|satisfy dependencies)|Error, pkgProblemResolver|Broken packages|"
    r"Held packages were changed|Unmet dependencies)"
)
# ` cuda : Depends: driver (>= 2) but 1 is to be installed`; further lines of one package leave its name out.
_UNMET = r"(?m)^ +(?:(\S+) : +)?(?:Pre)?(?:Depends|Recommends|Conflicts|Breaks): (\S+).*$"
# apt 3 numbers its reasons, on stderr: `2. driver:arm64=1 Depends gl (= 1)`.
_UNMET_3 = r"(?m)^ +\d+\. ([^\s:=]+)\S* (?:Pre)?(?:Depends|Conflicts|Breaks) ([^\s:=]+).*$"
_IS_HELD = ("is on hold", "are on hold")
_UNMET_WAY_OUT = "`apt-cache policy` shows which source and pin offer these versions; ask for ones that fit together"
_HALF_WAY_OUT = (
    "`apt-get --simulate --fix-broken install` shows what would repair it, and the same without --simulate does"
)
# dpkg names the package and, on the next line, the reason; apt's own last line has neither.
_DPKG_SAYS = r"(?m)^dpkg: error processing (?:archive|package) (?:\S*/)?(\S+) \(--\w+\):\n[ \t]*(.+)$"
# Of a script that failed dpkg knows the status alone. What the script said stands before; these only pass it on.
_SCRIPT_FAILED = r"script (subprocess )?(returned error exit status|was killed)"
_PASSED_ON = (
    r"\s|dpkg\b|run-parts:|update-initramfs:|invoke-rc\.d:|Errors were encountered|Consult |needrestart|Setting up |"
    r"Unpacking |Preparing to unpack "
)
_DKMS_SAYS = r"(?:module build on kernel:|headers for kernel) (\S+)(?:.*\nConsult (\S+))?"
_BY_DPKG = "Sub-process /usr/bin/dpkg"  # so apt ends where dpkg did
_CHANGED = r"(?m)^The following held packages will be changed:\n((?: .*\n?)+)"


class Fault(NamedTuple):
    name: str
    pattern: str  # compiled when it is first asked: a host where nothing fails has no use for them
    way_out: str

    def is_in(self, line: str) -> bool:
        return re.search(self.pattern, line, re.IGNORECASE) is not None


LOCKED = Fault(
    "apt_locked",
    r"^((E|Error): )?(Could not get lock|Unable to (acquire the dpkg frontend lock|lock (directory|the administration))"
    r"(?!.*are you root))"
    r"|^dpkg: error: .*\b(is|was) locked|^debconf: DbDriver .* is locked by another process",
    "wait for that process or end it (often unattended-upgrades or a first-boot update), then run again",
)
# Of one line, the first that matches tells.
FAULTS = (
    LOCKED,
    Fault(
        "apt_sources_conflict",
        r"Conflicting values set for option Signed-By",
        "keep one of the definitions of that source under /etc/apt/sources.list.d, then run again",
    ),
    Fault(
        "apt_sources_unreadable",
        r"The list of sources could not be read|^((E|Error): )?(Malformed|Unparsable|Invalid value set for option|"
        r"Type '\S+' is not known on|Line \d+ too long in|Index file type )|Missing Signed-By in the",
        "correct or remove the file that apt names, then run again",
    ),
    Fault(
        "dpkg_interrupted",
        r"dpkg was interrupted, you must manually run|triggers looping, abandoned",
        "run again: an interrupted dpkg is repaired first",
    ),
    Fault(
        "dpkg_killed",
        r"Sub-process \S*dpkg (exited unexpectedly|was killed|received)",
        "somebody or the kernel (out of memory?) ended dpkg in the middle: run again, and it is repaired first",
    ),
    Fault(
        "disk_full",
        r"No space left on device|don't have enough free space|More space needed .*than available|"
        r"cannot write compressed block|Disk quota exceeded",
        "free space (`df -h / /boot`; apt-get clean, old kernels, docker image prune), then run again",
    ),
    Fault(
        "disk_refuses",
        r"Read-only file system|Input/output error|Structure needs cleaning|"
        r"\.dpkg-\w+': (Operation not permitted|Permission denied)|"
        r"^ (unable to|error|cannot) (?!execute)([^':]|'[^']*')*: (Operation not permitted|Permission denied)|"
        r"error setting (ownership|permissions) of",
        "the disk does not take the file, most often after an error of its own (`journalctl -k | grep -i -e ext4 -e"
        " nvme`); or somebody has locked the file that is named (`lsattr`)",
    ),
    Fault(
        "dpkg_database_damaged",
        r"(files list file|status database|parsing file '/var/lib/dpkg/\S+'|info file '/var/lib/dpkg/).*"
        r"(missing final newline|is corrupt|empty file name|error|damaged)|(flAbsPath on|MergeList) /var/lib/dpkg/|"
        r"unable to access the dpkg database directory|corrupt info database format|"
        r"Malformed \d\w\w word in the Status|"
        r"^dpkg: error: parsing file '/var/lib/dpkg/",
        "a file below /var/lib/dpkg is cut, as a full disk or a power cut leaves it: take /var/backups/dpkg.status.0"
        " for the status, and `apt-get install --reinstall` the package that is named",
    ),
    Fault(
        "apt_states_damaged",
        r"Unable to parse package file /var/lib/apt/extended_states",
        "the file is cut in which apt keeps what it installed for others: put /var/backups/apt.extended_states.0 in its"
        " place, then run again",
    ),
    Fault(
        "file_in_use",
        r"^ (unable to|error|cannot) .*: (Text file busy|Device or resource busy)",
        "a program runs from that file, or a container has mounted something over it (`findmnt`, `fuser -v FILE`): end"
        " it, then run again",
    ),
    Fault(
        "package_path_blocked",
        r"^ (unable to|error|cannot) .*: (Too many levels of symbolic links|(Not|Is) a directory|File exists)",
        "something else stands where the package has its file: `namei -l FILE` shows it; move it away, then run again",
    ),
    Fault(
        "dpkg_asks",
        r"end of file on stdin at conffile prompt",
        "somebody has changed a configuration file that the package brings: `dpkg --configure -a` by hand asks which of"
        " the two to keep",
    ),
    Fault(
        "dpkg_may_not_execute",
        r"unable to execute [\w -]*script .*: Permission denied",
        "the disk below /var/lib/dpkg is mounted noexec, so no script of a package can run: before it"
        " `mount -o remount,exec /var`, and back afterwards",
    ),
    Fault(
        "apt_hook_failed",
        r"Problem executing scripts |error executing hook|Failure running script ",
        "a command failed that somebody lets apt or dpkg run besides (below /etc/apt/apt.conf.d or"
        " /etc/dpkg/dpkg.cfg.d): apt names it; mend it or take it out, then run again",
    ),
    Fault(
        "package_half_there",
        r"needs to be reinstalled, but I can't find an archive for it|very bad inconsistent state",
        "a package was cut off while it was unpacked, and its source is gone: put the source back, or take it out with"
        " `dpkg --remove --force-remove-reinstreq PACKAGE`",
    ),
    Fault(
        "not_root",
        r"are you root\?|requires superuser privilege|lock file \S+ - open \(13: |"
        r"^dpkg: error: (?!processing).*: Permission denied|^E: List directory \S+ is missing\. - Acquire \(13: ",
        "only root may do that: set `become`",
    ),
    Fault(
        "apt_folder_refuses",
        r"irectory \S+ (is )?missing\b|create temporary file \S+ for passing|Unable to mkstemp|"
        r"Could ?n[o']t (open|create|write|access|read) (?!lock).*\((13: Permission denied|"
        r"1: Operation not permitted)\)",
        "a folder of apt's is not its own any more: `ls -ld` of it and of what is above it; those below"
        " /var/lib/apt/lists and /var/cache/apt/archives are root's, partial is _apt's, and /tmp is of mode 1777",
    ),
    Fault(
        "module_rejected",
        r"could not insert 'nvidia\w*': (Key was rejected|Required key not available|Operation not permitted)",
        "Secure Boot is on, and nobody it knows has signed the module: `apt-get install"
        " linux-modules-nvidia-580-open-KERNEL` brings one that Ubuntu has signed; `gb10 doctor` says more",
    ),
    Fault(
        "package_other_processor",
        r"package architecture \(\S+\) does not match system|Exec format error",
        "the package is for another processor, and a Spark is arm64: take the one for arm64 or all",
    ),
    Fault(
        "package_too_new",
        r"uses unknown compression for member",
        "the package is made for a later release than this host has: take the one for this release"
        " (`cat /etc/os-release`)",
    ),
    Fault(
        "apt_lists_damaged",
        r"package cache file is corrupted|Problem with MergeList|could not be parsed or opened|rename failed, No such|"
        r"section with no Package: header|Unable to parse package file",
        "a list of apt's is cut: remove the files below /var/lib/apt/lists, then `apt-get update`",
    ),
    Fault(
        "apt_settings_wrong",
        r"Syntax error /etc/apt|is invalid for APT::Default-Release|preferences file /etc/apt|"
        r"Did not understand pin type|Opening configuration file /etc/apt",
        "correct the file under /etc/apt that is named, then run again",
    ),
    Fault(
        "no_memory",
        r"Cannot allocate memory|MMap ran out of room|virtual memory exhausted|fork failed",
        "the host had no memory for it: stop a model (`gb10 stop`), then run again",
    ),
    Fault(
        "apt_helper_died",
        r"Method \S+ (has died unexpectedly|did not start correctly)|"
        r"Sub-process \S*(https?|gpgv|sqv|store|rred|copy) (received|exited)",
        "a program of apt's ended in the middle, most often for want of memory: `journalctl -k`, then run again",
    ),
    Fault(
        "apt_package_unknown",
        r"^((E|Error): )?(Unable to locate package|(Version|Release) '\S+' for '\S+' was not found|"
        r"Couldn't find (any )?package|Can ?n[o']t (select|find) .*(package|version)|Unable to find a source package|"
        r"Reinstallation of )|Internal Error, No file name for|"
        r"has no installation candidate|Unsupported file \S+ given on commandline",
        "no source of this host has it: `apt-cache policy NAME` shows what they have; the source may be missing, its"
        " list old (`apt-get update`), or the version gone from it",
    ),
    Fault(
        "apt_method_missing",
        r"method (driver )?\S+ (could not be found|is unsupported|is explicitly disabled)",
        "a source is fetched in a way that this apt does not have: install the package that apt names, or correct the"
        " source under /etc/apt/sources.list.d",
    ),
    Fault(
        "dpkg_program_missing",
        r"\d+ expected programs? not found",
        "dpkg misses programs that it works with: root's PATH must have /usr/sbin and /sbin; else their package is"
        " damaged (`dpkg -S` of a healthy host names it)",
    ),
    Fault(
        "package_files_clash",
        r"trying to overwrite (directory |shared )?'[^']*'",
        "two packages have the same file, so only one of them can be installed: remove the one that you do not need",
    ),
    Fault(
        "module_build_failed",
        r"Bad return status for module build on kernel|failed to install during autoinstall|"
        r"dkms (autoinstall|kernel_\w+) .*failed for|Aborting build of module|Problems with depmod|"
        r"_install failed, aborting install",
        "the log LOG says why; where Ubuntu has signed modules for this kernel, take them in place of the"
        " build, in one step: `apt-get install linux-modules-nvidia-580-open-KERNEL nvidia-dkms-580-open-`",
    ),
    Fault(
        "module_source_missing",
        r"Could not (locate dkms\.conf|find module source directory)|Bad conf file|"
        r"does not appear to have module source|"
        r"Missing the module source directory|^(Error! )?\S+/\S+ is broken!",
        "DKMS has a module whose source is gone: `dkms status` names it; `apt-get install --reinstall` its package, or"
        " remove its folder below /var/lib/dkms",
    ),
    Fault(
        "kernel_headers_missing",
        r"kernel headers for kernel \S+ cannot be found",
        "the module cannot be built without them: `apt-get install linux-headers-KERNEL`; where Ubuntu has signed"
        " modules for this kernel, linux-modules-nvidia-580-open-KERNEL needs no build",
    ),
    Fault(
        "apt_source_changed",
        r"changed its '\w+' value from '.*' to '",
        "the vendor has renamed the source: where its new name is right, `apt-get update"
        " --allow-releaseinfo-change` once",
    ),
    Fault(
        "apt_would_downgrade",
        r"Packages were downgraded and -y was used",
        "a source or a pin of this host wants older packages: `apt-cache policy` shows which; nothing was changed",
    ),
    Fault(
        "apt_would_remove",
        r"Packages need to be removed but remove is disabled|Essential packages were removed and -y was used",
        "somebody has changed packages since apt was asked what it would do: run again, and you are told what would go",
    ),
    Fault(
        "apt_certificate_untrusted",
        r"Certificate verification failed|certificate is NOT trusted|SSL certificate problem|No system certificates",
        "a proxy that reads TLS is in between, or this host's clock is wrong: put the proxy's certificate into"
        " /usr/local/share/ca-certificates, `update-ca-certificates`, then run again; do not switch the check off",
    ),
    Fault(
        "apt_proxy_login",
        r"\b407 +Proxy Authentication|407 authenticationrequired",
        "the proxy wants a login: put it into a file of mode 0600 under /etc/apt/apt.conf.d, or ask for a way without",
    ),
    Fault(
        "apt_forbidden",
        r"(Failed to fetch \S+ +|Err:\d+ .* )4(?!04|07|08|10|29)\d\d\b",
        "the mirror or a proxy does not let this host have it: allow its address there, or use another mirror",
    ),
    Fault(
        "apt_key_unknown",
        r"NO_PUBKEY|Missing key [0-9A-F]{16}",
        "the source is signed by a key that its Signed-By file does not hold: compare the fingerprint with the one that"
        " the vendor publishes, and put the right key there; do not switch the check off",
    ),
    Fault(
        "apt_signature_wrong",
        r"BADSIG|only weak security|signatures? (were|was) invalid|invalid signature|data and signature failed|"
        r"Clearsigned file isn't valid|unexpected data after|"
        r"OpenPGP signature verification failed|No good signature|verify signature \(is|Unknown error executing|"
        r"No Hash entry in Release|Insufficient information available to perform this download|"
        r"Signed file isn't valid|no signature|sqv returned an error|Policy rejected|EXPKEYSIG|REVKEYSIG",
        "the signature of the source is damaged, expired or not its vendor's: it may be a proxy in between; look at the"
        " source from another network, and do not switch the check off",
    ),
    Fault(
        "apt_release_expired",
        r"Release file for .* is (expired|not valid yet)",
        "the mirror has stopped updating (or serves an old state on purpose), or this host's clock is wrong: check"
        " `timedatectl`, then use another mirror",
    ),
    Fault(
        "apt_redirected",
        r"Redirection (loop encountered|from \S+ to \S+ is forbidden)|Failed to fetch \S+ +3\d\d\b",
        "something in between answers in place of the mirror, most often a login page of the network: open any page"
        " from the host once, or name the proxy (`apt-config dump Acquire::http::Proxy`), then run again",
    ),
    Fault(
        "apt_file_damaged",
        r"Writing more data than expected|Maximum file size exceeded|single header line over|Unknown date format|"
        r"not a (Debian format|valid DEB) archive|corrupted filesystem tarfile|Invalid archive|archive corrupted|"
        r"Hash mismatch for|Size mismatch|unexpected end of file|decompressing archive member|<decompress>|"
        r"Hash Sum mismatch|File has unexpected size|Mirror sync in progress|"
        r"Connection (closed|was) prematurely|Undetermined Error|Error reading from server|Bad header|"
        r"HTTP server sent an invalid",
        "what arrived is not what the source's signed index says: a mirror half-way through an update, or a proxy;"
        " nothing of it was installed. Wait some minutes, then run again",
    ),
    Fault(
        "apt_name_unresolved",
        r"Could not resolve|(wicked happened|System error) resolving|"
        r"Temporary failure resolving|Name or service not known",
        "check DNS on the host (`resolvectl query NAME`), then run again",
    ),
    Fault(
        "apt_mirror_unreachable",
        r"Could not connect|Cannot initiate the connection|Connection (timed out|refused|failed|reset)|"
        r"Network is unreachable|No route to host|Unable to connect|Could not handshake|TLS (connection|handshake)|"
        r"SSL (connection|handshake)|GnuTLS|from proxy( after CONNECT|: HTTP)",
        "check the host's network and proxy (`apt-config dump Acquire::http::Proxy`), then run again",
    ),
    Fault(
        "apt_mirror_down",
        r"Failed to fetch \S+ +(408|429|5\d\d)\b",
        "the mirror answers, and refuses: nothing was changed. Run again later, or use another mirror",
    ),
    Fault(
        "apt_not_on_mirror",
        r"Failed to fetch \S+ +(4(04|10)\b|File not found - )|Unable to find expected entry|"
        r"(does not have|no longer has|does no longer have) a Release file",
        "the source has no such suite or file any more: correct its definition under /etc/apt/sources.list.d",
    ),
)

_BY_NAME = {fault.name: fault for fault in FAULTS}
# What follows from something else: it is the fault only where nothing else is named.
FOLLOWING = (
    # apt says so of any source that did not come.
    _BY_NAME["apt_key_unknown"]._replace(
        pattern=r"is not signed|no longer signed|unauthenticated packages|not be authenticated"
    ),
    Fault(
        "initrd_failed",
        r"mkinitramfs failure|update-initramfs: failed for|mkinitramfs: failed",
        "without its initrd the kernel does not start, so do not reboot yet: mend what it says (`df -h /boot`), then"
        " `dpkg --configure -a`",
    ),
    Fault(
        "package_script_failed",
        _SCRIPT_FAILED,
        "the package's own script failed: mend what it says, then `dpkg --configure -a`; `journalctl -b` has what its"
        " service said",
    ),
    _BY_NAME["dpkg_database_damaged"]._replace(pattern=r"dpkg: unrecoverable fatal error"),
    Fault(
        "dpkg_dependencies",
        r"dependency problems? (prevent|- )|conflicting packages - |pre-dependency problem:?$|"
        r"cannot be configured because|"
        r"Could not (perform immediate configuration on|configure) '|cannot satisfy pre-dependenc",
        _HALF_WAY_OUT,
    ),
)
# Where nobody knows the reason: at least where to look.
NAMELESS = (
    Fault(
        "apt_fetch_failed",
        r"^(E|Error): Failed to fetch \S",
        "`curl -sI URL` on the host shows what answers there: the mirror, a proxy or a login page; then run again",
    ),
    Fault(
        "package_not_unpacked",
        r"^dpkg: error processing archive ",
        "dpkg says why it did not take the package: mend that, then `apt-get --fix-broken install`",
    ),
)


_AS_A_SET = "the driver and its kernel move only as a set: set driver_host_set and driver_allow_move, then run again"
_UNHOLD = "`apt-mark unhold NAMES` if it may change, then run again"
_SOME_LOG = "make.log below /var/lib/dkms"  # where DKMS names none


def ways_out() -> list[str]:
    """All that may stand behind `Fix:`, with a KERNEL, a LOG or NAMES of packages in it."""
    of_faults = [fault.way_out for fault in (*FAULTS, *FOLLOWING, *NAMELESS)]
    without_log = [way_out.replace("LOG", _SOME_LOG) for way_out in of_faults if "LOG" in way_out]
    return [*of_faults, *without_log, _AS_A_SET, _UNHOLD, _HALF_WAY_OUT, _UNMET_WAY_OUT]


def find(text: str) -> Fault | None:
    """The fault that a command's words tell of: the one that it names first, for others may follow from it.

    Errors are asked before warnings: a source that did not answer comes early in the text and may have nothing to do
    with what made the command fail.
    """
    lines = sorted(text.splitlines(), key=lambda line: not line.startswith(_ERRORS))
    found = (
        fault for faults in (FAULTS, FOLLOWING, NAMELESS) for line in lines for fault in faults if fault.is_in(line)
    )
    return next(found, None)


def is_locked(done: Completed) -> bool:
    """Return whether a command gave up because of a lock; that it has waited for one is no failure."""
    return done.rc != 0 and find(done.stderr) is LOCKED


def explained(done: Completed, system: System) -> str:
    """The name of what went wrong, the way out and what the command said; only the latter if nobody knows it."""
    told = f"{done.stdout}\n{done.stderr}" if _BY_DPKG in done.stderr else done.stderr
    fault = find(told)
    said = (_of_package(told, fault) or done.words)[:_MAX_WORDS].rstrip(".")
    if fault is None and re.search(_BLOCKED, done.stderr):
        holds = parse_status(system.text(STATUS) or "").holds
        return _blocked(done.stdout, done.stderr, {name.partition(":")[0] for name in holds}) or said
    if fault is None:
        return said
    holder = _holder(told, system) if fault is LOCKED else ""
    built = re.search(_DKMS_SAYS, told)
    kernel, log = built.groups() if built else ("KERNEL", None)
    way_out = fault.way_out.replace("KERNEL", kernel).replace("LOG", log or _SOME_LOG)
    return f"{fault.name}: {said}{holder}. Fix: {way_out}"


def _of_package(told: str, fault: Fault | None) -> str:
    """The first package that dpkg could not handle, with dpkg's reason; and what its script said before, where nothing
    is known of that.
    """
    package = re.search(_DPKG_SAYS, told)
    if package is None:
        return ""
    said = f"{package[1]}: {package[2].strip()}"
    before = [line for line in told[: package.start()].splitlines() if line and not re.match(_PASSED_ON, line)]
    return f"{said} ({before[-1]})" if before and fault in FOLLOWING else said


def _blocked(stdout: str, stderr: str, holds: Collection[str]) -> str:
    """The packages that block, by name: those on hold among the named, else the dependencies that cannot be met."""
    changed = re.search(_CHANGED, stdout)
    unmet = [*re.finditer(_UNMET, stdout), *re.finditer(_UNMET_3, stderr)]
    told = "; ".join(" ".join(line[0].split()) for line in unmet)
    named = {name.partition(":")[0] for line in unmet for name in line.groups() if name}
    held = sorted(changed[1].split() if changed else named.intersection(holds))
    if held:
        reason = f"; apt says: {told[:_MAX_WORDS]}" if told else ""
        holding = f"{', '.join(held)} {_IS_HELD[len(held) > 1]}"
        return f"apt_hold_blocks: {holding}{reason}. Fix: {_unhold_way_out(held)}"
    if not told:
        return ""
    way_out = _HALF_WAY_OUT if "--fix-broken" in stderr else _UNMET_WAY_OUT
    return f"apt_dependencies_unmet: {told[:_MAX_WORDS]}. Fix: {way_out}"


def _unhold_way_out(held: Sequence[str]) -> str:
    return _AS_A_SET if any(map(moves_on_purpose, held)) else _UNHOLD.replace("NAMES", " ".join(held))


def _holder(said: str, system: System) -> str:
    """The command line of the process that holds the lock; apt itself tells no more than its short name."""
    match = re.search(r"(?:process|pid) (\d+)", said)
    if match is None:
        return ""
    words = (system.text(f"/proc/{match[1]}/cmdline") or "").replace("\0", " ").strip()
    return f" (process {match[1]}: {words[:120]})" if words else ""
