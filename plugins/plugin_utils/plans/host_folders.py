# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders of a host that no container gets: those of its system, of its people's secrets, and of the roles."""

from __future__ import annotations

import re

_PATH = re.compile(r"(/[^/:\n\r\0]+)+\Z")  # Docker splits --volume at colons
_DOTS = re.compile(r"/[.][.]?(/|\Z)")
_AT_THE_TOP = (
    *("bin", "boot", "cdrom", "dev", "etc", "lib", "lib32", "lib64", "libx32", "lost[+]found", "nix", "proc", "root"),
    *("run", "sbin", "snap", "sys", "tmp", "usr", "(bin|lib|sbin)[.]usr-is-merged"),
)
_IN_VAR = ("backups", "crash", "lock", "log", "mail", "metrics", "run", "snap", "spool")
# What packages of Ubuntu, of its vendors and of usual servers keep there; a folder with another name is somebody's own.
_IN_VAR_LIB = (
    *(
        "AccountsService",
        "NetworkManager",
        "PackageKit",
        "alertmanager",
        "alsa",
        "apache2",
        "app-info",
        "apport",
        "apt",
    ),
    *("aspell", "avahi[^/]*", "bluetooth", "boltd", "buildkit", "ca-certificates[^/]*", "ceph", "chrony", "cloud"),
    *("cni", "colord", "command-not-found", "containerd", "containers", "cups", "dbus", "dhcp[^/]*"),
    *("dictionaries-common", "dkms", "docker[^/]*", "dpkg", "emacsen-common", "etcd", "fail2ban", "flatpak", "fprint"),
    *("fwupd", "gb10-[^/]*", "gdm3?", "geoclue", "git", "ghostscript", "grafana", "grub", "haproxy", "hp", "incus"),
    *("initramfs-tools", "insserv", "iptables", "ispell", "k0s", "k3s", "kubelet", "landscape", "libvirt", "libuuid"),
    *("lightdm", "locales", "logrotate", "loki", "lxc", "lxcfs", "lxd", "machines", "man-db", "microk8s", "misc"),
    *("mlocate", "modules", "mysql", "nfs", "nginx", "nvidia[^/]*", "nut", "openvpn", "os-prober", "pam", "plocate"),
    *("plymouth", "podman", "polkit-1", "portables", "postfix", "postgresql", "power-profiles-daemon", "private"),
    *("prometheus", "python", "rancher", "redis", "rkhunter", "rpm", "rsyslog", "rtkit", "samba", "saned", "selinux"),
    *("sgml-base", "shells[.]state", "shim-signed", "snapd", "snmp", "sshd?", "sss", "strongswan", "sudo", "swcatalog"),
    *("swtpm[^/]*", "systemd", "tailscale", "tftpboot", "tpm[^/]*", "ubiquity", "ubuntu-[^/]*", "ucf", "udisks2"),
    *("unattended-upgrades", "unbound", "update-manager", "update-notifier", "upower", "urandom", "usb_modeswitch"),
    *("usbutils", "usbmuxd", "vim", "whoopsie", "wireguard", "wpa_supplicant", "xfonts", "xkb", "xml-core", "zfs"),
)
_IN_VAR_CACHE = (
    *("PackageKit", "apparmor", "app-info", "apt", "cracklib", "cups", "debconf", "dictionaries-common", "fontconfig"),
    *("fwupd", "gdm", "ldconfig", "locate", "man", "motd-news", "nginx", "pollinate", "private", "samba", "snapd"),
    *("swcatalog", "ubuntu-[^/]*", "gb10-(compiled|engine|files|images|lab|metrics|warm)"),
)
# Who writes there is root on the host, or reads its secrets. A folder below /home or /var may be somebody's own; what
# cron, apt, snap and logs have below /var is not, and what is hidden in a home are its keys and what runs at a login.
_OF_THE_HOST = re.compile(
    rf"/({'|'.join(_AT_THE_TOP)})(/.*)?\Z"
    rf"|/var/({'|'.join(_IN_VAR)})(/.*)?\Z"
    rf"|/var/lib/({'|'.join(_IN_VAR_LIB)})(/.*)?\Z"
    rf"|/var/cache/({'|'.join(_IN_VAR_CACHE)})(/.*)?\Z"
    r"|/opt/(cni|containerd|mellanox|nvidia)(/.*)?\Z"
    r"|/home/[^/]+/[.](?!cache(/|\Z))"
    r"|/(home(/[^/]+)?|var(/(cache|lib|local|opt|tmp))?)\Z"
)
_OF_MANY = re.compile(r"/(mnt|media|opt|srv|home/[^/]+/[.]cache)\Z")


def is_path(path: str) -> bool:
    """Absolute, in one way of writing, and as Docker takes it."""
    return bool(_PATH.match(path)) and not _DOTS.search(path)


def belongs_to_host(path: str) -> bool:
    """Tell whether a path that `is_path` is the system's, hidden in a home, or of the roles."""
    return bool(_OF_THE_HOST.match(path))


def may_be_mounted(path: str) -> bool:
    """Tell whether a container may have it as an operator says it. Models may lie in a whole disk; that holds more."""
    return is_path(path) and not belongs_to_host(path) and not _OF_MANY.match(path)


def overlap(one: str, other: str) -> bool:
    """Tell whether one folder is in the other, or the same."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
