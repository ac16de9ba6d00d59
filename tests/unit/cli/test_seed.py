"""`gb10 seed`: what the inventory says becomes the files of a first start; secrets stay where they are."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from pycdlib.pycdlib import PyCdlib
from typer.testing import CliRunner
from yamllint import linter
from yamllint.config import YamlLintConfig

from gb10_fleet import cli
from gb10_fleet.seed import documents, settings, store
from tests.support.attacker import tally

CLI = CliRunner()
PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJt8 me@laptop"
NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
KEY = store.make_key()
SAID: Mapping[str, Any] = {
    "user": "nvidia", "address": "192.0.2.11", "port": "", "keys": [PUBLIC], "password_hash": "", "mac": "",
    "serial": "", "network": {}, "system": {},
}  # fmt: skip


def host(name: str = "spark-a", **more: Any) -> settings.Host:
    return settings.host(name, {**SAID, **more}, [], "enP7s7")


def user_data(one: settings.Host) -> dict[str, Any]:
    text = documents.files(one, KEY, documents.NOCLOUD)["user-data"]
    assert text.startswith("#cloud-config\n")  # cloud-init takes it for something else otherwise
    found: dict[str, Any] = yaml.safe_load(text)
    return found


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("Spark_A", {}, "Spark_A: its name is 'Spark_A'"),
        ("spark-a", {"user": ""}, "spark-a: ansible_user is ''"),
        ("spark-a", {"user": "root"}, "ansible_user is root"),
        ("spark-a", {"keys": []}, "gb10_seed_keys is empty"),
        ("spark-a", {"keys": [KEY.private]}, "gb10_seed_keys is no public key;"),
        ("spark-a", {"password_hash": "secret"}, "gb10_seed_password_hash is no hash;"),
        ("spark-a", {"mac": "48b02d000001"}, "gb10_seed_mac is '48b02d000001'"),
        ("spark-a", {"mac": 37325164986}, "gb10_seed_mac is a number to YAML, 37325164986; write it in quotes"),
        ("spark-a", {"serial": 1234}, "gb10_seed_serial is a number to YAML, 1234; write it in quotes"),
        ("spark-a", {"network": {"prefix": 24, "dns": "192.0.2.53"}}, "gb10_seed_network.dns is no list"),
        ("spark-a", {"serial": "a b"}, "gb10_seed_serial is 'a b'"),
        ("spark-a", {"network": {"prefxi": 24}}, "gb10_seed_network has no key prefxi; did you mean prefix?"),
        ("spark-a", {"network": {"gateway": "192.0.2.1"}}, "has gateway and no prefix"),
        ("spark-a", {"network": {"prefix": 24}, "address": "spark-a.example"}, "ansible_host spark-a.example"),
        ("spark-a", {"network": {"prefix": 24, "gateway": "198.51.100.1"}}, "outside of 192.0.2.0/24"),
        ("spark-a", {"system": {"proxy": "proxy:3128"}}, "gb10_seed_system.proxy is 'proxy:3128'"),
        ("spark-a", {"system": {"telemetry": "never"}}, "telemetry is 'never'; write keep or off"),
        ("spark-a", {"system": {"packages": ["jq; reboot"]}}, "gb10_seed_system.packages is 'jq; reboot'"),
        ("spark-a", {"system": {"ntp": "time.example"}}, "gb10_seed_system.ntp is no list"),
        ("spark-a", {"system": {"packages": ["openssh-server-"]}}, "packages is 'openssh-server-'"),  # apt removes it
        ("spark-a", {"system": {"no_proxy": "localhost\nLD_PRELOAD=/tmp/x.so"}}, "gb10_seed_system.no_proxy is"),
        ("spark-a", {"system": {"no_proxy": ["localhost"]}}, "gb10_seed_system.no_proxy is"),
        ("spark-a", {"keys": [f"{PUBLIC}\x0bssh-ed25519 BBBB"]}, "gb10_seed_keys is no public key;"),
        ("spark-a", {"keys": [f"{PUBLIC}\u2028ssh-ed25519 BBBB"]}, "gb10_seed_keys is no public key;"),
    ],
)
def test_a_wrong_setting_is_named_with_host_and_field(name: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(settings.WrongSetting) as error:
        host(name, **more)
    assert said in str(error.value)
    assert "secret" not in str(error.value) and "PRIVATE" not in str(error.value)


@pytest.mark.parametrize(
    ("more", "shared", "said"),
    [
        ({}, False, "both have the address 192.0.2.11 port 22"),
        ({"address": "192.0.2.12"}, True, "spark-a, spark-b: neither gb10_seed_mac nor gb10_seed_serial"),
        ({"address": "192.0.2.12", "serial": "7"}, True, "spark-a: neither"),
    ],
)
def test_two_hosts_must_be_told_apart(more: dict[str, Any], shared: bool, said: str) -> None:
    with pytest.raises(settings.WrongSetting) as error:
        settings.refuse_twice([host(), host("spark-b", **more)], shared)
    assert said in str(error.value)


# -- documents ---------------------------------------------------------------------------------------------------------


def test_the_user_has_a_key_and_a_password_that_nobody_knows() -> None:
    first, second = user_data(host()), user_data(host())
    user = first["users"][0]
    assert (user["name"], user["ssh_authorized_keys"], user["lock_passwd"]) == ("nvidia", [PUBLIC], False)
    assert user["passwd"] != second["users"][0]["passwd"] and user["passwd"].startswith("$6$")
    assert user["sudo"] == ["ALL=(ALL:ALL) NOPASSWD:ALL"]
    assert first["ssh_pwauth"] is False and first["ssh_deletekeys"] is True
    assert first["ssh_keys"]["ed25519_private"] == KEY.private


def test_who_sets_a_password_is_asked_for_it_by_sudo() -> None:
    user = user_data(host(**{"password_hash": "$6$salt$hash"}))["users"][0]
    assert (user["passwd"], user["sudo"]) == ("$6$salt$hash", ["ALL=(ALL:ALL) ALL"])


@pytest.mark.parametrize(
    ("more", "ports"),
    [
        ({}, {"enP7s7": {"dhcp4": True}}),
        (
            {"mac": "48:B0:2D:00:00:01"},
            {"management": {"match": {"macaddress": "48:b0:2d:00:00:01"}, "dhcp4": True}},
        ),
        (
            {"network": {"prefix": 24, "gateway": "192.0.2.1", "dns": ["192.0.2.53"]}},
            {"enP7s7": {
                "dhcp4": False, "addresses": ["192.0.2.11/24"],
                "routes": [{"to": "default", "via": "192.0.2.1"}], "nameservers": {"addresses": ["192.0.2.53"]},
            }},
        ),
    ],
)  # fmt: skip
def test_the_management_network(more: dict[str, Any], ports: dict[str, Any]) -> None:
    text = documents.files(host(**more), KEY, documents.NOCLOUD)["network-config"]
    assert yaml.safe_load(text) == {"version": 2, "ethernets": ports}


def test_what_the_owner_says_of_the_system() -> None:
    said = {
        "timezone": "Europe/Berlin", "ntp": ["time.example.com"], "proxy": "http://proxy.example.com:3128",
        "apt_mirror": "http://mirror.example.com/ubuntu", "lvfs_mirror": "http://mirror.example.com/lvfs",
        "packages": ["jq"], "telemetry": False,
    }  # fmt: skip
    one = host(system=said)
    found = user_data(one)
    assert found["timezone"] == "Europe/Berlin" and found["ntp"]["servers"] == ["time.example.com"]
    assert found["apt"]["http_proxy"] == said["proxy"] and found["apt"]["primary"][0]["uri"] == said["apt_mirror"]
    assert found["runcmd"] == [["systemctl", "mask", "--now", "nvidia-dgx-telemetry.service"]]
    assert "HTTPS_PROXY=http://proxy.example.com:3128\n" in found["write_files"][0]["content"]
    oem = documents.files(one, KEY, documents.OEMDATA)
    assert oem["apt-repo.url"] == "http://mirror.example.com/ubuntu\n" and oem["apt-packages.txt"] == "jq\n"
    assert oem["lvfs-mirror.url"] == "http://mirror.example.com/lvfs\n"
    assert not {"apt", "ntp", "runcmd", "write_files", "packages"} & user_data(host()).keys()


def test_the_installer_gets_the_same_host_inside_of_its_own_file() -> None:
    files = documents.files(host(), KEY, documents.AUTOINSTALL)
    found = yaml.safe_load(files["user-data"])["autoinstall"]
    assert (
        found["user-data"]["hostname"] == "spark-a" and found["user-data"]["ssh_keys"]["ed25519_private"] == KEY.private
    )
    assert found["network"]["ethernets"] and "storage" not in found  # the disk is the installer's to choose


@pytest.mark.parametrize("way", documents.WAYS)
def test_the_files_are_yaml_as_a_person_would_write_it(way: str) -> None:
    """But for the lines of keys, and the first line of cloud-init, which is no comment."""
    rules = YamlLintConfig(
        "{extends: default, rules: {line-length: disable, comments: {require-starting-space: false}}}"
    )
    files = documents.files(host(system={"packages": ["jq"], "proxy": "http://proxy.example.com:3128"}), KEY, way)
    texts = {name: text for name, text in files.items() if "." not in name}
    assert {name: [*linter.run(text, rules)] for name, text in texts.items()} == {name: [] for name in texts}


def test_a_new_seed_is_a_new_instance() -> None:
    """cloud-init does nothing anew for an instance that it knows."""
    other = documents.files(host(), store.make_key(), documents.NOCLOUD)["meta-data"]
    ours = documents.files(host(), KEY, documents.NOCLOUD)["meta-data"]
    assert yaml.safe_load(ours)["instance-id"] != yaml.safe_load(other)["instance-id"]


def test_one_stick_for_many_has_no_secret_in_what_all_of_them_read() -> None:
    hosts = [host(mac="48:b0:2d:00:00:01", serial="7"), host("spark-b", serial="8", address="192.0.2.12")]
    files = documents.shared([(one, documents.files(one, KEY, documents.NOCLOUD)) for one in hosts])
    assert "PRIVATE KEY" not in files["user-data"] and yaml.safe_load(files["user-data"])["users"] == []
    assert {name.split("/")[1] for name in files if "/" in name} == {"mac-48b02d000001_serial-7", "serial-8"}


PICK = """
mount() { :; }; umount() { :; }; sync() { :; }; systemctl() { :; }; sleep() { exit 0; }
blkid() { echo /dev/stick; }; mktemp() { echo "$1/stick"; }
"""


@pytest.mark.parametrize(
    ("mac", "serial", "taken"),
    [
        ("48:b0:2d:00:00:01", "7", "spark-a"),
        ("48:b0:2d:00:00:01", "9", None),  # the board of one host in the case of another
        ("48:b0:2d:00:00:02", "8", "spark-b"),
        ("48:b0:2d:00:00:03", "", "spark-c"),
        ("48:b0:2d:00:00:09", "", None),
    ],
)
def test_a_machine_takes_its_own_folder_and_no_other(tmp_path: Path, mac: str, serial: str, taken: str | None) -> None:
    """The script itself, with the paths of the machine below a folder of the test."""
    hosts = [
        host(mac="48:b0:2d:00:00:01", serial="7"),
        host("spark-b", serial="8", address="192.0.2.12"),
        host("spark-c", mac="48:b0:2d:00:00:03", address="192.0.2.13"),
    ]
    files = documents.shared([(one, documents.files(one, KEY, documents.NOCLOUD)) for one in hosts])
    machine = {f"run/stick/{name}": text for name, text in files.items()}
    machine |= {"sys/class/dmi/id/product_serial": serial, "sys/class/net/enP7s7/address": f"{mac}\n"}
    machine |= {"dev/console": "", "etc/cloud/cloud.cfg.d/05_logging.cfg": "", "var/lib/cloud/seed/README": ""}
    for name, text in machine.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    script = yaml.safe_load(files["user-data"])["bootcmd"][0][2]
    for path in ("/var/lib/cloud", "/run/gb10-seed-XXXXXX", "/sys/class", "/dev/console", "/etc/cloud"):
        own = f"{tmp_path}/run/stick" if path.endswith("XXXXXX") else f"{tmp_path}{path}"
        script = script.replace(path, own)
    script = script.replace("$(mktemp -d ", "$(echo ")
    done = subprocess.run(["sh", "-c", PICK + script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seed = tmp_path / "var/lib/cloud/seed/nocloud/user-data"
    assert (yaml.safe_load(seed.read_text())["hostname"] if seed.exists() else None) == taken
    assert (tmp_path / "etc/cloud/cloud.cfg.d/99-gb10-seed.cfg").exists() == (taken is not None)


# -- files -------------------------------------------------------------------------------------------------------------


def written(folder: Path) -> list[Path]:
    one = host()
    seeds = [store.seed(one, KEY, "nocloud", one.name, NOW)]
    with store.alone(folder):
        return store.write(folder, {one.name: documents.files(one, KEY, "nocloud")}, seeds, "CIDATA")


def test_nobody_else_reads_a_seed_and_the_list_has_no_secret(tmp_path: Path) -> None:
    written(tmp_path / "seeds")
    for path in (tmp_path / "seeds").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert "PRIVATE" not in (tmp_path / "seeds/seeds.json").read_text()
    assert store.read(tmp_path / "seeds")["spark-a"].public_key == KEY.public


def test_the_image_is_a_volume_of_the_name_that_cloud_init_looks_for(tmp_path: Path) -> None:
    (picture,) = written(tmp_path / "seeds")
    iso = PyCdlib()
    iso.open(str(picture))
    content = io.BytesIO()
    iso.get_file_from_iso_fp(content, rr_path="/user-data")
    assert iso.pvd.volume_identifier.strip() == b"CIDATA"
    assert content.getvalue() == (tmp_path / "seeds/spark-a/user-data").read_bytes()
    iso.close()


def test_a_folder_below_a_folder_is_in_the_image() -> None:
    iso = PyCdlib()
    iso.open_fp(io.BytesIO(store.image({"user-data": "a", "hosts/serial-7/user-data": "b"}, "CIDATA")))
    content = io.BytesIO()
    iso.get_file_from_iso_fp(content, rr_path="/hosts/serial-7/user-data")
    assert content.getvalue() == b"b"
    iso.close()


def test_secrets_go_into_no_repository(tmp_path: Path) -> None:
    (tmp_path / "project/.git").mkdir(parents=True)
    with pytest.raises(store.NoFolder, match="is in the git repository"):
        store.refuse(tmp_path / "project/seeds", ["spark-a"], force=True)


def test_a_second_seed_of_a_host_is_no_accident(tmp_path: Path) -> None:
    written(tmp_path)
    store.refuse(tmp_path, ["spark-b"], force=False)
    with pytest.raises(store.NoFolder, match="has seeds of spark-a; new ones have new host keys"):
        store.refuse(tmp_path, ["spark-a"], force=False)
    store.refuse(tmp_path, ["spark-a"], force=True)


def test_what_a_killed_run_left_is_known_and_can_be_shredded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "image", full)
    with pytest.raises(OSError, match="No space left"):
        written(tmp_path)
    assert (tmp_path / "spark-a/user-data").exists()
    assert store.shred(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["seeds.json"]


def test_a_disk_that_is_full_leaves_the_list_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it nothing of the secrets is found any more."""

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    written(tmp_path)
    monkeypatch.setattr(output, "created", full)
    with pytest.raises(OSError, match="No space left"):
        written(tmp_path)
    monkeypatch.undo()
    assert [*store.read(tmp_path)] == ["spark-a"] and store.shred(tmp_path) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["seeds.json"]


def test_after_shredding_only_the_list_is_there(tmp_path: Path) -> None:
    written(tmp_path)
    result = CLI.invoke(cli.app, ["seed", "--out", str(tmp_path), "--shred", "--json"])
    assert json.loads(result.stdout) == {"outcome": "done", "removed": 4}
    assert [path.name for path in tmp_path.rglob("*")] == ["seeds.json"]


PAIR = (
    {"mac": "48:b0:2d:00:00:01", "password_hash": "$6$salt$hash"},
    {"mac": "48:b0:2d:00:00:02", "address": "192.0.2.12", "password_hash": "$6$salt$hash"},
)


def sticks(folder: Path, *, one_stick: bool) -> None:
    """Seeds of two hosts, on one stick or on two."""
    hosts = [host(name, **more) for name, more in zip(("spark-a", "spark-b"), PAIR, strict=True)]
    own = {one.name: documents.files(one, store.make_key(), "nocloud") for one in hosts}
    seeds = [store.seed(one, KEY, "nocloud", store.ALL if one_stick else one.name, NOW) for one in hosts]
    made = {store.ALL: documents.shared([(one, own[one.name]) for one in hosts])} if one_stick else own
    store.write(folder, made, seeds, "CIDATA")


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("more", [[], ["later"]])
def test_sticks_of_another_kind_leave_no_secret(tmp_path: Path, first: bool, more: list[str]) -> None:
    """The list had only the last sticks, so those of an earlier way kept their keys, and the hash of the password."""
    sticks(tmp_path, one_stick=first)
    if more:  # by a version that left them
        earlier = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    sticks(tmp_path, one_stick=not first)
    if more:
        for path, content in earlier.items():
            if path.name != "seeds.json":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        store.shred(tmp_path)
    left = [path for path in tmp_path.rglob("*") if path.is_file() and b"$6$salt" in path.read_bytes()]
    known = {one.stick for one in store.read(tmp_path).values()}
    old = [path for path in left if more or not any(part.removesuffix(".iso") in known for part in path.parts)]
    tally("a secret that shredding leaves", 1, len(old))
    assert old == []


def test_a_stick_for_all_keeps_the_seeds_that_it_has(tmp_path: Path) -> None:
    """It was made anew for the hosts of this run alone, and the list named the others still."""
    sticks(tmp_path, one_stick=True)
    with pytest.raises(store.NoFolder, match="all-hosts has the seed of spark-a"):
        store.refuse(tmp_path, ["spark-b"], force=True, one_stick=True)
    store.refuse(tmp_path, ["spark-a", "spark-b"], force=True, one_stick=True)


def test_one_command_at_a_time_makes_seeds_in_a_folder(tmp_path: Path) -> None:
    """Two wrote one list: the last one won, and the seeds of the other were in none."""
    here, busy = tmp_path / "seeds", pytest.raises(store.NoFolder, match="another gb10 is at work")
    with store.alone(here), busy, store.alone(here):
        pass
    written(tmp_path / "seeds")
    with store.alone(tmp_path / "seeds"):
        result = CLI.invoke(cli.app, ["seed", "--out", str(tmp_path / "seeds"), "--shred"])
    assert result.exit_code == 2 and "another gb10 is at work" in result.output
    assert (tmp_path / "seeds/spark-a/user-data").exists()


def test_a_folder_of_somebody_else_is_none_for_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could put other files there, and a Spark would take them as root."""
    (tmp_path / "theirs").mkdir()
    monkeypatch.setattr(store.os, "geteuid", lambda: 4711)
    with pytest.raises(store.NoFolder, match="belongs to another user"):
        store.refuse(tmp_path / "theirs", ["spark-a"], force=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="to give a folder away takes root")
@pytest.mark.parametrize("whose", ["own", "above", "of a link", "everybody's"])
def test_who_has_a_folder_on_the_way_exchanges_no_seed_and_no_file(tmp_path: Path, whose: str) -> None:
    """Shredding looked at a name and then opened it: in a folder of his he put a link there in between."""
    theirs = tmp_path / "theirs"
    seeds = theirs / "seeds"
    written(tmp_path / "ours" if whose == "of a link" else seeds)
    if whose == "of a link":
        theirs.mkdir()
        seeds.symlink_to(tmp_path / "ours")
    if whose == "everybody's":
        theirs.chmod(0o777)
    else:
        os.chown(seeds if whose == "own" else theirs, 4242, 4242)
    with pytest.raises(store.NoFolder, match="belongs to another user"):
        store.refuse(seeds, ["spark-a"], force=True)
    result = CLI.invoke(cli.app, ["seed", "--out", str(seeds), "--shred"])
    won = result.exit_code == 0 or not (seeds / "spark-a/user-data").exists()
    tally("a folder of seeds that somebody else can exchange", 1, int(won))
    assert not won
    theirs.chmod(0o1777)  # as /tmp is: nobody moves what is of others there
    os.chown(theirs, 0, 0)
    os.chown(seeds, 0, 0)
    assert CLI.invoke(cli.app, ["seed", "--out", str(seeds), "--shred"]).exit_code == 0


@pytest.mark.parametrize("trap", ["path", "above", "link", "link of the image", "name"])
def test_a_folder_that_was_handed_over_leads_to_no_file_of_ours(tmp_path: Path, trap: str) -> None:
    """Overwritten and removed was whatever its list named."""
    seeds, ours = tmp_path / "seeds", tmp_path / "ours"
    written(seeds)
    ours.mkdir()
    (ours / "thesis").write_text("of ours")
    listed = json.loads((seeds / "seeds.json").read_text())
    (one,) = listed["seeds"]
    if trap in ("path", "above"):
        one["stick"] = str(ours) if trap == "path" else "../ours"
    elif trap == "name":
        one["name"] = one["stick"] = "../ours"
        one["address"] = "192.0.2.11"
    else:
        place = seeds / ("spark-a" if trap == "link" else "spark-a.iso")
        store._clear(seeds, "spark-a")
        place.symlink_to(ours if trap == "link" else ours / "thesis")
    (seeds / "seeds.json").write_text(json.dumps(listed))
    CLI.invoke(cli.app, ["seed", "--out", str(seeds), "--shred"])
    whole = (ours / "thesis").exists() and (ours / "thesis").read_text() == "of ours"
    tally("a folder of seeds whose list or links lead elsewhere", 1, not whole)
    assert whole


@pytest.mark.parametrize(
    "words", [["seed", "--out", "sticks"], ["retire", "spark-a"], ["replace", "spark-a", "192.0.2.1"]]
)
def test_an_inventory_without_a_spark_is_one_object_for_a_program(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("---\nall: {children: {others: {hosts: {a: }}}}\n")
    result = CLI.invoke(cli.app, [*words, "-i", str(tmp_path / "hosts.yml"), "--json"])
    assert result.exit_code == 2 and "the group sparks matches no host" in json.loads(result.stdout)["error"]


def test_a_variable_that_nobody_has_set_is_named_and_no_secret(tmp_path: Path) -> None:
    """With Ansible, which hides all of the task: its settings have secrets."""
    plug = {"kind": "netio", "address": "192.0.2.5", "user": "{{ vault_user }}", "secret": "s3cret-of-a-plug"}
    content = {"all": {"children": {"sparks": {"hosts": {"spark-a": {"gb10_power_plug": plug}}}}}}
    (tmp_path / "hosts.yml").write_text(json.dumps(content))
    result = CLI.invoke(cli.app, ["power", "state", "-i", str(tmp_path / "hosts.yml")])
    said = " ".join(result.output.split())
    assert result.exit_code == 2 and "'vault_user' is undefined. Fix: set it in the inventory" in said
    assert "s3cret" not in result.output and "hidden" not in result.output


def test_a_folder_that_takes_no_file_has_a_way_out(tmp_path: Path) -> None:
    host = {"ansible_user": "nvidia", "gb10_seed_keys": [PUBLIC]}
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"children": {"sparks": {"hosts": {"spark-a": host}}}}}))
    result = CLI.invoke(cli.app, ["seed", "--out", "/proc/x", "-i", str(tmp_path / "hosts.yml")])
    assert result.exit_code == 2 and "Fix: name a folder with --out" in " ".join(result.output.split())


def test_from_an_inventory_to_sticks(tmp_path: Path) -> None:
    """With Ansible: what a group says holds for its hosts, and no secret is shown."""
    content = {
        "all": {"children": {"sparks": {
            "hosts": {"spark-a": {"ansible_host": "192.0.2.11"}, "spark-b": {"gb10_seed_mac": "48:b0:2d:00:00:02"}},
            "vars": {"ansible_user": "nvidia", "gb10_seed_keys": [PUBLIC], "gb10_seed_password_hash": "$6$salt$hash"},
        }}}
    }  # fmt: skip
    (tmp_path / "hosts.yml").write_text(json.dumps(content))
    words = ["seed", "--out", str(tmp_path / "seeds"), "-i", str(tmp_path / "hosts.yml")]
    result = CLI.invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert "2 sticks" in result.stdout and "PRIVATE" not in result.output and "$6$" not in result.output
    seeds = store.read(tmp_path / "seeds")
    assert (seeds["spark-a"].address, seeds["spark-b"].address) == ("192.0.2.11", None)
    assert "$6$salt$hash" in (tmp_path / "seeds/spark-a/user-data").read_text()
    again = CLI.invoke(cli.app, words)
    assert again.exit_code == 2
