"""Messages of apt 2.8 and 3.1, dpkg 1.22 and 1.23, DKMS and dracut from their sources, filled in: what each is."""

from __future__ import annotations

import pytest

from tests.support.unseen import told

_DPKG = "E: Sub-process /usr/bin/dpkg returned an error code (1)\n--- stdout\n"
_FAILED = (
    "installed x package post-installation script subprocess returned error exit status 1",  # 1.22
    "installed x package post-installation maintainer script subprocess failed with exit status 1",  # 1.23
)
FORMS = {
    "apt": "E: {}",
    "deb": "E: Failed to fetch http://192.0.2.9/x.deb  {}\nE: Unable to fetch some archives",
    "index": "W: Failed to fetch http://192.0.2.9/InRelease  {}\nE: Some index files failed to download.",
    "signature": "W: GPG error: http://x InRelease: {}\nE: The repository 'http://x InRelease' is not signed.",
    "dpkg": "dpkg: error: {}",
    "fatal": f"{_DPKG}dpkg: unrecoverable fatal error, aborting:\n {{}}",
    "archive": f"{_DPKG}dpkg: error processing archive /x.deb (--unpack):\n {{}}",
    "dpkg-deb": f"{_DPKG}dpkg-deb: error: {{}}\ndpkg: error processing archive /x.deb (--unpack):\n dpkg-deb failed",
    "package": f"{_DPKG}dpkg: error processing package x (--configure):\n {{}}",
    "script": f"{_DPKG}{{}}\ndpkg: error processing package x (--configure):\n {_FAILED[0]}",
    "script 1.23": f"{_DPKG}{{}}\ndpkg: error processing package x (--configure):\n {_FAILED[1]}",
    "unmet": "E: {}\n--- stdout\n a : Depends: b (= 2) but 1 is to be installed",
    "beside": "{}\nE: Words that nobody has read",
}
NAMED = {
    "apt_locked": {
        "apt": ["Unable to lock the download directory"],
        "dpkg": ["triggers database lock was locked by another process"],
    },
    "apt_sources_conflict": {"apt": ["Conflicting values set for option Trusted regarding source http://x/ y"]},
    "apt_sources_unreadable": {
        "apt": [
            "Both 'Include' and 'Exclude' specified in /etc/apt/sources.list.d/x.sources",
            "Unable to parse package file /etc/apt/sources.list.d/x.sources (1)",
            "Opening /etc/apt/sources.list.d/x.list - ifstream::ifstream (13: Permission denied)",
            "Snapshots not supported for http://x/ noble",
        ],
        "deb": ["Invalid URI, local URIS must not start with //"],
    },
    "apt_settings_wrong": {
        "apt": [
            "/etc/apt/preferences.d/x: Value 40000 is outside the range of valid pin priorities (-32768 to 32767)",
            "No priority (or zero) specified for pin",
            "Invalid record in the preferences file /var/lib/synaptic/preferences, no Package header",
            "Unable to parse package file /etc/apt/preferences.d/x (1)",
            "ProxyAutoDetect command '/usr/bin/x' failed!",
            "Dynamic MMap ran out of room. Please increase the size of APT::Cache-Limit. Current value: 8.",
        ],
        "index": [
            "Unsupported proxy configured: htp://proxy:3128",
            "TLS support has been disabled: Acquire::AllowTLS is false.",
            "Could not load client certificate (/etc/apt/x.pem, SslCert option): Error while reading file.",
        ],
        "dpkg": [
            "configuration error: /etc/dpkg/dpkg.cfg.d/x:1: unknown option 'x'",
            "invalid syntax in configuration file: /etc/dpkg/dpkg.cfg.d/x:1: unknown option 'x'",
        ],
    },
    "apt_folder_refuses": {
        "apt": [
            "Could not open lock file /var/cache/apt/archives/lock - open (2: No such file or directory)\n"
            "E: Unable to lock directory /var/cache/apt/archives/",
            "Unable to read /var/cache/apt/archives/ - open (2: No such file or directory)",
            "Problem renaming the file /var/cache/apt/x.1 to /var/cache/apt/x - rename (13: Permission denied)",
            "mkdtemp of /tmp/x failed in preparation of calling dpkg unpack - DPkg::Go (13: Permission denied)",
            "Failed to open StateFile /var/lib/apt/extended_states",
        ],
    },
    "apt_user_missing": {
        "apt": ["No user _apt, can not drop rights", "setgroups 65534 failed - setgroups (22: Invalid argument)"],
        "index": ["Could not switch group"],
    },
    "apt_hook_failed": {
        "apt": [
            "Could not read response to hello message from hook x: Success",
            "Failure running hook x",
            "Could not read message separator line after handshake from x: Connection reset by peer",
        ],
        "dpkg": ["cannot execute hook 'x', exit code 1"],
    },
    "apt_helper_died": {"apt": ["Method https General failure: x"]},
    "apt_lists_damaged": {
        "apt": [
            "Empty package cache",
            "The package cache was built for different architectures: arm64 vs arm64,armhf",
            "Unable to parse Release file /var/lib/apt/lists/x_InRelease",
            "Could not open file /var/lib/apt/lists/x_Packages - open (2: No such file or directory)",
            "IO Error saving source cache",
        ],
    },
    "dpkg_database_damaged": {
        "apt": [
            "Malformed Status line",
            "Malformed 2nd word in the Status line",
            "Encountered a section with no Package: header\nE: Problem with MergeList /var/lib/dpkg/status",
            "Unable to parse package file /var/lib/dpkg/status (1)",
        ],
        "dpkg": [
            "statoverride file is missing final newline",
            "conflicting diversions involving 'x' or 'y'",
            "invalid package name 'x' in triggers deferred file 'y'",
            "updates directory contains files with different length names (both 4 and 5)",
            "info database format (2) is bogus or too new; try getting a newer dpkg",
            "fgets gave an empty string from '/var/lib/dpkg/diversions'",
            "cannot access the dpkg database directory /var/lib/dpkg: No such file or directory",
        ],
        "fatal": ["cannot read line from file '/var/lib/dpkg/diversions': unexpected end of file"],
    },
    "not_root": {
        "dpkg": [
            "required read/write access to the dpkg database directory /var/lib/dpkg",
            "no permissions to lock the dpkg database directory /var/lib/dpkg",
            "cannot access the dpkg database directory /var/lib/dpkg: Permission denied",
        ],
    },
    "disk_refuses": {
        "archive": [
            "unable to create '/x.dpkg-new' (while processing './x'): Stale file handle",
            "cannot copy extracted data for './x' to '/x.dpkg-new': cannot write (Transport endpoint is not connected)",
            "unable to stat './x' (which was about to be installed): Bad message",
        ],
        "fatal": ["cannot sync updated status of 'x': Stale file handle"],
    },
    "process_limit": {
        "apt": ["Could not open file /var/lib/dpkg/status - open (24: Too many open files)"],
        "dpkg": ["cannot create child process: Resource temporarily unavailable"],
    },
    "no_memory": {"dpkg": ["failed to allocate memory"]},
    "efi_variables_full": {
        "script": [
            "grub-install: warning: Cannot set EFI variable Boot0000.\n"
            "grub-install: error: failed to register the EFI boot entry: No space left on device.",
            "Could not prepare Boot variable: No space left on device",
        ],
    },
    "package_path_blocked": {"archive": ["unable to install new version of './usr/x': Directory not empty"]},
    "dpkg_asks": {"package": ["end of file on <standard input> at conffile prompt"]},
    "dpkg_may_not_execute": {
        "archive": ["cannot execute new x package pre-installation maintainer script (/x/preinst): Permission denied"],
    },
    "dpkg_killed": {"archive": ["dpkg-deb --control subprocess was killed by signal (Killed)"]},
    "dpkg_program_missing": {
        "fatal": ["Could not exec dpkg!"],
        "dpkg": ["PATH is not set"],
        "apt": ["Unable to determine a suitable packaging system type"],
    },
    "dpkg_dependencies": {
        "archive": ["installing x would break existing software"],
        "apt": [
            "Couldn't configure x, probably a dependency cycle.",
            "Internal error, packages left unconfigured. x",
            "This installation run will require temporarily removing the essential package x due to a loop.",
        ],
    },
    "apt_dependencies_unmet": {
        "unmet": [
            "Unable to correct dependencies",
            "Internal error, problem resolver broke stuff",
            "Failed to process build dependencies",
            "Unable to correct problems, you have held broken packages.\n"
            "W: Failed to fetch http://x  Could not resolve 'x'",
        ],
    },
    "apt_would_remove": {
        "apt": ["Removing essential system-critical packages is not permitted. This might break the system."],
        "package": ["this is a protected package; it should not be removed"],
    },
    "apt_package_unknown": {
        "apt": [
            "Couldn't find task 'x'",
            "Can't select candidate version from package x as it has no candidate",
            "Can't find a source to download version '1' of 'x:arm64'",
            "No packages found",
        ],
    },
    "package_half_there": {
        "apt": [
            "The package x is not ok and I don't know how to fix it!",
            "I wasn't able to locate a file for the x package. This might mean you need to manually fix this package.",
        ],
        "package": ["package x is not ready for configuration\n cannot configure (current status 'half-installed')"],
    },
    "package_too_new": {
        "dpkg-deb": [
            "archive is format version 3.0; get a newer dpkg-deb",
            "archive '/x.deb' has unsupported format version: 3.0",
        ],
        "deb": ["Extraction of file x requires unknown compressor zst"],
    },
    "apt_file_damaged": {
        "apt": ["Could not read meta data from /tmp/x.deb"],
        "dpkg-deb": [
            "archive '/x.deb' is truncated or corrupt, expected more data than available (812 > 80)",
            "file '/x.deb' is corrupt - bad archive header magic",
            "archive has no newlines in header",
        ],
        "deb": [
            "This HTTP server has broken range support",
            "Empty files can't be valid archives",
            "416  Requested Range Not Satisfiable [IP: 192.0.2.1 80]",
            "No sections in Release file x",
        ],
    },
    "apt_mirror_unreachable": {
        "index": [
            "Could not create a socket for x (f=10 t=1 p=6) - socket (97: Address family not supported by protocol)",
            "Reading from proxy failed - read (115: Operation now in progress)",
            "SOCKS proxy socks5h://x reported connection to y (z), but timed out",
            "OpenSSL error: x",
            "SSL connection failed: error:0A000126:SSL routines::unexpected eof while reading / Success",
        ],
    },
    "apt_certificate_untrusted": {
        "index": [
            "SSL connection failed: error:0A000086:SSL routines::certificate verify failed / Success",
            "Could not handshake: Error in the certificate verification.",
        ],
    },
    "apt_proxy_login": {"index": ["407  authenticationrequired [IP: 192.0.2.1 8080]"]},
    "apt_redirected": {"index": ["511  Network Authentication Required [IP: 192.0.2.1 443]"]},
    "apt_mirror_down": {"deb": ["421  Misdirected Request", "425  Too Early"]},
    "apt_not_on_mirror": {"deb": ["Unable to find hash sum for 'x' in Release file"]},
    "apt_signature_wrong": {
        "signature": [
            "Detached signature file 'x' is in unsupported binary format",
            "Clearsigned file 'x' does not start with a signed message block.",
        ],
    },
    "module_build_failed": {
        "script 1.23": ["Error! Missing module 'nvidia' in /var/lib/dkms/nvidia/580/6.17/aarch64/module"]
    },
    "initrd_failed": {"script": ["dracut[F]: Creation of /boot/initrd.img-7.0.0-1019-nvidia.tmp failed."]},
    "package_script_failed": {
        "archive": ["new x package pre-installation maintainer script subprocess failed with exit status 1"],
        "script 1.23": ["Setting up x (1) ...", "Failed to restart x.service: Unit x.service is masked."],
        # What a sound run, or a script that reaches no daemon, says as well.
        "script": [
            "Failed to connect to bus: Connection refused",
            "Failed to get properties: Transport endpoint is not connected",
            "Failed to allocate directory watch: Too many open files",
            "Setting up libgnutls30:arm64 (3.8) ...\nSetting up libio-socket-ssl-perl (1) ...",
            "Err:5 http://x noble/main arm64 libnvidia-compute-470 arm64 470.256-0ubuntu1\n  404  Not Found",
            "dpkg: warning: cannot delete old directory '/usr/share/x': Directory not empty",
            "W: Possible missing firmware /lib/firmware/x.bin for module mt7925e",
            "needrestart is being skipped since dpkg has failed",
        ],
    },
    "package_not_configured": {
        "package": ["cannot stat new distributed conffile '/etc/x.dpkg-new': No such file or directory"]
    },
    "": {
        "beside": [
            "N: Missing Signed-By in the sources.list(5) entry for 'http://x'",
            "Notice: Repository 'http://x noble InRelease' changed its 'Version' value from '24.04.3' to '24.04.4'",
            "Audit: http://x/InRelease: Sub-process /usr/bin/sqv returned an error code (1), error message is:\n"
            "     because: Policy rejected non-revocation signature",
            "W: Target Packages is configured multiple times in /etc/apt/sources.list:1 and /etc/apt/sources.list:2",
            "W: Unable to read /etc/apt/preferences.d/ - DirectoryExists (2: No such file or directory)",
            "W: Problem unlinking the file /var/cache/apt/pkgcache.bin - Clear (2: No such file or directory)",
            "W: http://x/InRelease: Policy will reject signature within a year, see --audit for details",
            "dpkg: warning: parsing file '/var/lib/dpkg/status' near line 12 package 'libgpg-error0:arm64':\n"
            " missing 'Maintainer' field",
        ],
    },
}
ROWS = [
    (FORMS[form].format(message), name)
    for name, forms in NAMED.items()
    for form, messages in forms.items()
    for message in messages
]


@pytest.mark.parametrize(("said", "name"), ROWS, ids=[f"{name}-{said[-60:]}" for said, name in ROWS])
def test_each_message_has_its_name(said: str, name: str) -> None:
    assert told("apt", said) == name
