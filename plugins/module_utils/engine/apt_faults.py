# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of apt and dpkg: by which words each is known, and the way out.

apt and dpkg have a closed list of messages: those of apt 2.6 to 3.1 and of dpkg 1.21 to 1.23 were gone through, in
their sources and in the C locale. What the words of the system say of a file (errno) decides before what was tried
with it. dpkg 1.23, of Ubuntu 26.04, says `cannot` and `failed with` where 1.22 says `unable to` and `returned error`.
Most were seen in a test with the fault; the others are from a report, or from the source of apt, dpkg and DKMS.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HALF_WAY_OUT = (
    "`apt-get --simulate --fix-broken install` shows what would repair it, and the same without --simulate does"
)
_SCRIPT_FAILED = r"script (subprocess )?(returned error|failed with|was killed)"


class Fault(NamedTuple):
    name: str
    pattern: str  # compiled when it is first asked: a host where nothing fails has no use for them
    way_out: str

    def is_in(self, line: str) -> bool:
        return re.search(self.pattern, line, re.IGNORECASE) is not None


LOCKED = Fault(
    "apt_locked",
    r"^((E|Error): )?(Could not get lock|Unable to (acquire the dpkg frontend lock|lock (directory|the administration|"
    r"the download))(?!.*are you root))|^dpkg: error: .*\b(is|was) locked|"
    r"^debconf: DbDriver .* is locked by another process",
    "wait for that process or end it (often unattended-upgrades or a first-boot update), then run again",
)
# Of one line, the first that matches tells.
FAULTS = (
    LOCKED,
    Fault(
        "apt_sources_conflict",
        r"Conflicting values set for option ",
        "keep one of the definitions of that source under /etc/apt/sources.list.d, then run again",
    ),
    Fault(
        "apt_sources_unreadable",
        r"The list of sources could not be read|^((E|Error): )?(Malformed (?!.*status line)|Unparsable|"
        r"Invalid value set for option|Type '\S+' is not known on|Line \d+ too long in|Index file type |"
        r"Both 'Include' and|Cannot identify snapshot|Snapshots not supported)|"
        r"local URIS must not start|determine mirror list|(package file|Opening|read) /etc/apt/sources\.list",
        "correct or remove the file that apt names, then run again",
    ),
    Fault(
        "dpkg_interrupted",
        r"dpkg was interrupted, you must manually run|triggers looping, abandoned",
        "run again: an interrupted dpkg is repaired first",
    ),
    Fault(
        "dpkg_killed",
        r"Sub-process \S*dpkg (exited unexpectedly|was killed|received)|"
        r"subprocess was (interrupted|killed by signal \((Killed|Terminated)\))",
        "somebody or the kernel (out of memory?) ended dpkg in the middle: run again, and it is repaired first",
    ),
    Fault(
        "efi_variables_full",
        r"(EFI variable|EFI boot entry|Boot variable|efivarfs).*: No space left",
        "the firmware's own store is full, and no disk: `ls /sys/firmware/efi/efivars/dump-*` are what old crashes left"
        " there; keep a copy, remove them, then run again",
    ),
    Fault(
        "disk_full",
        r"No space left on device|don't have enough free space|More space needed .*than available|"
        r"cannot write compressed block|Disk quota exceeded",
        "free space (`df -h / /boot`; apt-get clean, old kernels, docker image prune), then run again",
    ),
    Fault(
        "disk_refuses",
        r"Read-only file system|Input/output error|Structure needs cleaning|Stale file handle|"
        r"^( |E:|dpkg: error: ).*(Bad message|Transport endpoint is not connected)|"
        r"\.dpkg-\w+': (Operation not permitted|Permission denied)|"
        r"^ (unable to|error|cannot) (?!execute)([^':]|'[^']*')*: (Operation not permitted|Permission denied)|"
        r"error setting (ownership|permissions) of",
        "the disk does not take the file, most often after an error of its own (`journalctl -k | grep -i -e ext4 -e"
        " nvme`); or somebody has locked the file that is named (`lsattr`)",
    ),
    Fault(
        "dpkg_database_damaged",
        r"(files list file|status database|file '/var/lib/dpkg/(?!tmp\.ci)).*"
        r"(missing final newline|is corrupt|empty file name|error|damaged|unexpected end of file)|"
        r"(flAbsPath on|MergeList|package file) /var/lib/dpkg/|open file /var/lib/dpkg/.*\(2: |"
        r"access the dpkg database directory \S+: No such|corrupt info database format|"
        r"Malformed .*status line|"
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
        r"^ (unable to|error|cannot) .*: (Too many levels of symbolic links|(Not|Is) a directory|File exists|"
        r"Directory not empty)",
        "something else stands where the package has its file: `namei -l FILE` shows it; move it away, then run again",
    ),
    Fault(
        "dpkg_asks",
        r"end of file on .* at conffile prompt",
        "somebody has changed a configuration file that the package brings: `dpkg --configure -a` by hand asks which of"
        " the two to keep",
    ),
    Fault(
        "dpkg_may_not_execute",
        r"(unable to|cannot) execute [\w -]*script .*: Permission denied",
        "the disk below /var/lib/dpkg is mounted noexec, so no script of a package can run: before it"
        " `mount -o remount,exec /var`, and back afterwards",
    ),
    Fault(
        "apt_hook_failed",
        r"Problem executing scripts |(error executing|cannot execute) hook|Failure running (script|hook) |"
        r"(message from|handshake from|Hook \S+ reported)",
        "a command failed that somebody lets apt or dpkg run besides (below /etc/apt/apt.conf.d or"
        " /etc/dpkg/dpkg.cfg.d): apt names it; mend it or take it out, then run again",
    ),
    Fault(
        "package_half_there",
        r"needs to be reinstalled, but I can't find an archive for it|very bad inconsistent state|"
        r"is not ok and I don't know how|locate a file for the|current status 'half-installed'",
        "a package was cut off while it was unpacked, and its source is gone: put the source back, or take it out with"
        " `dpkg --remove --force-remove-reinstreq PACKAGE`",
    ),
    Fault(
        "not_root",
        r"are you root\?|requires superuser privilege|required (read/)?write access|"
        r"no permissions to lock|lock file \S+ - open \(13: |"
        r"^dpkg: error: (?!processing).*: Permission denied|^E: List directory \S+ is missing\. - Acquire \(13: ",
        "only root may do that: set `become`",
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
        r"uses unknown compression for member|get a newer dpkg|unsupported format version|requires unknown compressor",
        "the package is made for a later release than this host has: take the one for this release"
        " (`cat /etc/os-release`)",
    ),
    Fault(
        "apt_settings_wrong",
        r"^(E|Error): Syntax error /|in the preferences file|is invalid for APT::Default-Release|"
        r"^(E|Error): (.*(file|read) )?/etc/apt/|"
        r"Did not understand pin type|for pin$|ProxyAutoDetect|Unsupported proxy|AllowTLS is false|\w+ option\)|"
        r"MMap ran out of room|size of the MMap|^dpkg: error: .*configuration (file|error): ",
        "correct the file under /etc/apt or /etc/dpkg that is named (`apt-config dump` shows what holds), then run"
        " again",
    ),
    Fault(
        "apt_lists_damaged",
        r"package cache (file is|was built for)|Empty package cache|Cache is out of sync|saving source cache|"
        r"Problem with MergeList|rename failed, (No such|Not a)|"
        r"Unable to parse (package|Release) file|opening /var/lib/apt/lists|"
        r"/var/lib/apt/lists/[^/ ]+_\S* .*\(2: ",
        "a list of apt's is cut: remove the files below /var/lib/apt/lists, then `apt-get update`",
    ),
    Fault(
        "apt_user_missing",
        r"No user _apt|Could not switch (effective |saved )?(user|group)|\bset(e[ug]id|res[ug]id|groups)\b.* \(\d+: ",
        "apt fetches as its user _apt, and cannot: `getent passwd _apt`; where it is gone,"
        " `adduser --system --no-create-home --home /nonexistent --force-badname _apt`; a container without the"
        " rights of root lets nobody change the user",
    ),
    Fault(
        "apt_folder_refuses",
        r"irectory \S+ (is )?missing\b|create temporary file \S+ for passing|Unable to mkstemp|"
        r"Could not open lock file|StateFile \S+$|Could ?n[o']t (open|create|write|access|read) .*\((1|13): |"
        r"^(E|Error): .* (/var/(lib|cache|log)/apt|/tmp)/.*\((1|2|13|20): ",
        "a folder of apt's is not its own any more: `ls -ld` of it and of what is above it; those below"
        " /var/lib/apt/lists and /var/cache/apt/archives are root's, partial is _apt's, and /tmp is of mode 1777",
    ),
    Fault(
        "no_memory",
        r"Cannot allocate memory|virtual memory exhausted|failed to allocate memory",
        "the host had no memory for it: stop a model (`gb10 stop`), then run again",
    ),
    Fault(
        "process_limit",
        r"(?<!directory watch: )Too many open files|fork failed|"
        r"(fork|child process)\b.*Resource temporarily unavailable",
        "too many files or processes are open: `ulimit -a`, `sysctl fs.file-nr`, `systemctl status` of what holds so"
        " many; end it, then run again",
    ),
    Fault(
        "apt_helper_died",
        r"Method \S+ (has died unexpectedly|did not start correctly|General failure)|"
        r"Sub-process \S*(https?|gpgv|sqv|store|rred|copy) (received|exited)",
        "a program of apt's ended in the middle, most often for want of memory: `journalctl -k`, then run again",
    ),
    Fault(
        "apt_package_unknown",
        r"^((E|Error): )?(Unable to locate package|(Version|Release) '\S+' for '\S+' was not found|"
        r"Couldn't find (any |task|package)|Ca(n not|nnot|n't) (select|find) .*(package|version)|No packages found|"
        r"Unable to (find a source package|get build-dependency)|You must put some 'deb-src'|"
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
        r"\d+ expected programs? not found|Could not exec dpkg|PATH is not set|"
        r"reading the (CPU|Tuple) table|suitable packaging system",
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
        r"_install failed, aborting install|^Error! Missing module ",
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
        r"Packages need to be removed but remove is disabled|Essential packages were removed and -y was used|"
        r"Removing essential system-critical|(essential|protected) package; it should not be removed",
        "somebody has changed packages since apt was asked what it would do: run again, and you are told what would go",
    ),
    Fault(
        "apt_certificate_untrusted",
        r"certificate verif|certificate (is NOT trusted|subject name)|SSL certificate problem|"
        r"No system certificates",
        "a proxy that reads TLS is in between, or this host's clock is wrong: put the proxy's certificate into"
        " /usr/local/share/ca-certificates, `update-ca-certificates`, then run again; do not switch the check off",
    ),
    Fault(
        "apt_proxy_login",
        r"\b407 +(Proxy )?Authentication|reported authorization failure",
        "the proxy wants a login: put it into a file of mode 0600 under /etc/apt/apt.conf.d, or ask for a way without",
    ),
    Fault(
        "apt_forbidden",
        r"Failed to fetch \S+ +4(?!0[478]|1[06]|2[159])\d\d\b",
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
        r"clearsigned file|Detached signature file|Signature in file|unexpected data after|"
        r"OpenPGP signature verification failed|No good signature|verify signature \(is|Unknown error executing|"
        r"No Hash entry in Release|Insufficient information available to perform this download|"
        r"Signed file isn't valid|no signature|sqv returned an error|^\S.*Policy rejected|EXPKEYSIG|REVKEYSIG",
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
        r"Redirection (loop encountered|from \S+ to \S+ is forbidden)|Failed to fetch \S+ +(3\d\d|511)\b",
        "something in between answers in place of the mirror, most often a login page of the network: open any page"
        " from the host once, or name the proxy (`apt-config dump Acquire::http::Proxy`), then run again",
    ),
    Fault(
        "apt_file_damaged",
        r"Could not read meta data|broken range support|Empty files can't|Invalid file format|No sections in Release|"
        r"entry in Release file|has no Size information|Server tried to trick|Failed to fetch \S+ +416\b|"
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
        # As apt says it: a script that cannot reach its own bus or daemon says the same.
        r"^(E|W|Error|Warning|Err:\d+\b).*(Could not (connect|create a socket|handshake|wait for server)|"
        r"Cannot initiate the connection|Connection (timed out|refused|failed|reset)|Network is unreachable|"
        r"No route to host|Unable to connect|(TLS|SSL) (connection|handshake)|GnuTLS|OpenSSL|in the pull function|"
        r"(from|to) proxy|SOCKS proxy|SRV records)",
        "check the host's network and proxy (`apt-config dump Acquire::http::Proxy`), then run again",
    ),
    Fault(
        "apt_mirror_down",
        r"Failed to fetch \S+ +(408|42[159]|5(?!11)\d\d)\b",
        "the mirror answers, and refuses: nothing was changed. Run again later, or use another mirror",
    ),
    Fault(
        "apt_not_on_mirror",
        r"Failed to fetch \S+ +(4(04|10)\b|File not found - )|Unable to find (expected entry|hash sum)|"
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
        r"mkinitramfs failure|update-initramfs: failed for|mkinitramfs: failed|dracut\[F\]: ",
        "without its initrd the kernel does not start, so do not reboot yet: mend what it says (`df -h /boot`), then"
        " `dpkg --configure -a`",
    ),
    Fault(
        "package_script_failed",
        _SCRIPT_FAILED,
        "the package's own script failed: mend what it says, then `dpkg --configure -a`; `journalctl -b` has what its"
        " service said",
    ),
    _BY_NAME["dpkg_database_damaged"]._replace(
        pattern=r"dpkg: unrecoverable fatal error|^dpkg: error: .*(statoverride|diversion|trigger|files list|"
        r"control file|updates directory|info database|'/var/lib/dpkg/)"
    ),
    _BY_NAME["apt_lists_damaged"]._replace(pattern=r"could not be parsed or opened|section with no Package: header"),
    _BY_NAME["apt_file_damaged"]._replace(pattern=r"^dpkg-deb( \(\w+\))?: error: (?!paste)"),
    Fault(
        "dpkg_dependencies",
        r"dependency problems? (prevent|- )|conflicting packages - |pre-dependency problem:?$|"
        r"cannot be configured because|installing \S+ would break|is not ready for configuration|"
        r"probably a dependency cycle|packages left unconfigured|require temporarily removing|"
        r"Could not (perform immediate configuration on|configure) '|cannot satisfy pre-dependenc",
        HALF_WAY_OUT,
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
    Fault(
        "package_not_configured",
        r"^dpkg: error processing package ",
        "dpkg says why it is not done with the package: mend that, then `dpkg --configure -a`",
    ),
)
