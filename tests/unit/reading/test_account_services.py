"""Where accounts come from beside the host's own files."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.account_services import read_account_services
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

from tests.support.rooted import place


@pytest.mark.parametrize(
    ("switch", "set_up", "runs", "found"),
    [
        (None, False, False, []),
        ("passwd: files systemd\ngroup: files ldap\n", False, False, []),
        ("passwd:         files systemd sss\n", False, False, []),
        ("passwd:         files systemd sss\n", True, False, ["sssd"]),
        ("passwd: files # ldap\n", False, True, ["sssd"]),
        ("# passwd: ldap\npasswd: files ldap winbind\n", False, False, ["ldap", "winbind"]),
    ],
)
def test_a_service_of_accounts(tmp_path: Path, switch: str | None, set_up: bool, runs: bool, found: list[str]) -> None:
    for path in ("/etc/sssd", "/run/systemd/units"):
        place(tmp_path, path).mkdir(parents=True)
    if switch:
        place(tmp_path, "/etc/nsswitch.conf").write_text(switch)
    if set_up:
        place(tmp_path, "/etc/sssd/sssd.conf").write_text("[sssd]\n")
    if runs:
        place(tmp_path, "/run/systemd/units/invocation:sssd.service").symlink_to("0123")
    assert read_account_services(HostReader(System(tmp_path))) == found
