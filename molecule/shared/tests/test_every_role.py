"""What holds for every role. Like all tests here it runs against real Sparks as well:

MOLECULE_SCENARIO_NAME=driver pytest molecule/driver/tests molecule/shared/tests --hosts='ansible://sparks?sudo=true' \
    --ansible-inventory=inventory/mine
"""

from __future__ import annotations

import json
import os
from pathlib import PurePosixPath

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


def test_the_manifest_is_roots_own_and_knows_the_role(host: Host) -> None:
    assert host.file("/var/lib/gb10-fleet").mode == 0o700
    manifest = host.file("/var/lib/gb10-fleet/manifest.json")
    assert manifest.user == "root" and manifest.mode == 0o600
    content = json.loads(manifest.content_string)
    roles = {role for entry in content["resources"].values() for role in entry["roles"]}
    assert os.environ["MOLECULE_SCENARIO_NAME"] in roles
    assert content["unfinished"] is None, "the last run was cut short"


def test_every_unit_of_ours_is_sound(host: Host) -> None:
    units = host.check_output("find /etc/systemd/system -maxdepth 1 -type f -name 'gb10-*'").split()
    for unit in units:
        instance = unit.replace("@.", "@ssh.")
        assert host.run("cd /tmp && ln -sf %s . && systemd-analyze verify %s", unit, instance).rc == 0, unit


def test_root_writes_only_where_nobody_else_can_put_anything(host: Host) -> None:
    """With the real packages: one may give its folder to a user of its own, as Debian's gives /var/lib/prometheus."""
    resources = json.loads(host.file("/var/lib/gb10-fleet/manifest.json").content_string)["resources"]
    files = [label.partition(":")[2] for label in resources if label.startswith("file:")]
    units = host.run("grep -hoP '^ReadWritePaths=\\K.*' /etc/systemd/system/gb10-*.service").stdout.split()
    above = {"/"}  # a role may have no file
    above |= {str(each) for path in (*files, *(f"{unit}/x" for unit in units)) for each in PurePosixPath(path).parents}
    seen = host.run(f"stat -L -c '%a %U %n' {' '.join(sorted(above))} 2>/dev/null").stdout.splitlines()
    foreign = [
        line for line in seen if line.split()[1] != "root" or int(line.split()[0], 8) & 0o1022 in (2, 0o20, 0o22)
    ]
    assert seen and foreign == []
