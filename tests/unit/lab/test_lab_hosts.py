"""What the lab hands to QEMU, to the hosts and to Ansible, and what names the cache's entries."""

from __future__ import annotations

import contextlib
import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.reading.memory import ACCOUNTS, LINES, hidden, parse_meminfo

from lab import identity, image, inventory, machine, vendor
from lab.architecture import AMD64, ARM64
from lab.topology import topology
from tests.fleet.owner import SPARK_MEMINFO

IMAGE = image.Image("d1gest", (Path("/cache/spark-1"), Path("/cache/debian-1")), AMD64)
PAIR = topology("pair")


def words(accelerator: str = "tcg") -> list[str]:
    return machine.command(PAIR.hosts[0], accelerator, IMAGE)


def test_qemu_gets_five_interfaces_with_the_hosts_macs_and_jumbo_frames_on_the_rails() -> None:
    devices = [word for word in words() if word.startswith("virtio-net-pci")]
    assert [device.split("mac=")[1][:17] for device in devices] == [nic.mac for nic in PAIR.hosts[0].nics]
    assert ["host_mtu=9000" in device for device in devices] == [False, True, True, True, True]


def test_qemu_starts_paused_says_spark_and_boots_the_images_kernel() -> None:
    line = " ".join(words())
    assert " -S " in line
    assert "manufacturer=NVIDIA,product=NVIDIA_DGX_Spark" in line
    assert "-kernel /cache/debian-1/vmlinuz -initrd /cache/debian-1/initrd.img" in line


def test_what_x86_64_machines_are_started_with_stays_as_it_is() -> None:
    """Snapshots are named by it: a new word costs everybody a first boot."""
    line = " ".join(words())
    assert line.startswith("qemu-system-x86_64 -name spark-a -nodefaults -no-user-config -display none -S -accel tcg,")
    assert " -cpu max " in line and "console=ttyS0" in line and "-bios" not in line and "-machine" not in line


def test_an_arm64_machine_is_started_by_uefi_which_hands_smbios_to_its_kernel() -> None:
    line = " ".join(machine.command(PAIR.hosts[0], "tcg", replace(IMAGE, architecture=ARM64)))
    assert line.startswith("qemu-system-aarch64 ") and "-machine virt,gic-version=3 -bios /usr/share/" in line
    assert "manufacturer=NVIDIA,product=NVIDIA_DGX_Spark" in line and "console=ttyAMA0" in line
    assert machine.accelerator(replace(IMAGE, architecture=replace(ARM64, kernel="no-such-cpu"))) == "tcg"


def test_the_same_devices_whatever_the_topology_so_that_a_snapshot_serves_all() -> None:
    assert machine.command(topology("ring3").hosts[0], "tcg", IMAGE) == words()


def test_kvm_and_tcg_differ() -> None:
    assert "kvm" in words("kvm")
    assert "kvm" not in words("tcg")


def test_an_image_survives_being_saved(tmp_path: Path) -> None:
    IMAGE.save(tmp_path / "image.json")
    assert image.Image.load(tmp_path / "image.json") == IMAGE


def test_a_digest_follows_words_names_contents_and_the_executable_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "HERE", tmp_path)
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    seen = [image.digest(["w"], [one, two])]
    assert image.digest(["w"], [two, one]) == seen[0]
    seen += [image.digest(["x"], [one, two]), image.digest(["w"], [one]), image.digest(["w", ""], [one, two])]
    one.chmod(0o755)
    seen.append(image.digest(["w"], [one, two]))
    one.write_text("changed")
    seen.append(image.digest(["w"], [one, two]))
    one.rename(tmp_path / "renamed")
    seen.append(image.digest(["w"], [tmp_path / "renamed", two]))
    assert len(set(seen)) == len(seen)


def test_paths_with_blanks_survive_the_shell_of_an_overlay(tmp_path: Path) -> None:
    script = image.overlay([Path("/a b"), Path("/c")], tmp_path / "up per", "true")[-1]
    assert f"-o 'lowerdir=/a b:/c,upperdir={tmp_path}/up per,workdir={tmp_path}/up per.work' \"$root\"" in script


def test_a_host_is_told_apart_by_name_machine_id_address_and_keys() -> None:
    first, second = (identity.files(host, "ssh-ed25519 AAAA lab", "secret", "public") for host in PAIR.hosts)
    assert first.keys() - second.keys() == set()
    for name in ("etc/hostname", "etc/machine-id", "etc/NetworkManager/system-connections/enP7s7.nmconnection"):
        assert first[name] != second[name]
    assert len(first["etc/machine-id"].content) == 33


def test_secrets_of_a_host_are_its_own() -> None:
    files = identity.files(PAIR.hosts[0], "ssh-ed25519 AAAA lab", "secret", "public")
    assert files[identity.HOST_KEY].mode == 0o600
    keys = files["home/spark/.ssh/authorized_keys"]
    assert (keys.mode, keys.owner) == (0o600, identity.USER_ID)
    assert files["etc/NetworkManager/system-connections/enP7s7.nmconnection"].mode == 0o600


def test_interfaces_are_named_by_mac_and_start_at_1500_bytes() -> None:
    link = identity.files(PAIR.hosts[0], "", "", "")["etc/systemd/network/10-enP2p1s0f0np0.link"].content
    assert "MACAddress=02:67:62:10:0b:02\n" in link
    assert "Name=enP2p1s0f0np0\nMTUBytes=1500\n" in link


def test_the_inventory_of_a_pair_is_one_cluster_with_checked_host_keys() -> None:
    written = inventory.inventory(PAIR, "gb10-lab/vllm-sim@sha256:1", Path("/k"), Path("/known"), 'image: "{image}"')
    assert written["all"]["vars"]["image"] == "198.18.7.1:8180/gb10-lab/vllm-sim@sha256:1"
    assert "-oStrictHostKeyChecking=yes" in written["all"]["vars"]["ansible_ssh_common_args"]
    cluster = written["all"]["children"]["sparks"]["children"]["pair1"]
    assert cluster["hosts"]["spark-b"] == {"ansible_host": "198.18.7.12"}
    assert (cluster["vars"]["gb10_cluster"], cluster["vars"]["fabric_topology"]) == ("pair1", "pair")


@pytest.mark.parametrize(("architecture", "accepted"), [("amd64", True), ("arm64", False)])
def test_an_arm64_machine_has_a_sparks_architecture_so_nothing_is_accepted_there(
    architecture: str, accepted: bool
) -> None:
    plan = topology("pair", architecture=architecture)
    variables = yaml.safe_load(inventory.render(plan, "i", Path("/k"), Path("/known")))["all"]["vars"]
    assert ("architecture" in variables["gb10_accept"]) == accepted
    assert "os" in variables["gb10_accept"]


def test_a_single_machine_has_no_fabric() -> None:
    written = inventory.inventory(topology("single"), "i", Path("/k"), Path("/known"), "")
    assert written["all"]["children"]["sparks"] == {
        "hosts": {"spark-a": {"ansible_host": "198.18.7.11"}},
        "vars": {"fabric_topology": "none"},
    }


def test_containers_of_a_fleet_are_clusters_of_one() -> None:
    written = inventory.inventory(topology("fleet", 2), "i", Path("/k"), Path("/known"), "")
    assert written["all"]["children"]["sparks"] == {
        "hosts": {"spark-01": {"ansible_host": "198.18.7.101"}, "spark-02": {"ansible_host": "198.18.7.102"}},
        "vars": {"fabric_topology": "none"},
    }


def test_the_labs_overrides_render_to_yaml_without_placeholders() -> None:
    text = inventory.render(PAIR, "gb10-lab/vllm-sim@sha256:1", Path("/k"), Path("/known"))
    variables = yaml.safe_load(text)["all"]["vars"]
    assert variables["vllm_image"] == "198.18.7.1:8180/gb10-lab/vllm-sim@sha256:1"
    assert all(len(reason.split()) > 3 for reason in variables["gb10_accept"].values())
    assert "{" not in text


def test_a_machine_has_a_layer_more_than_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker and the toolkit are delivered with a machine, over the layers that a container has as well."""
    monkeypatch.setattr(image, "CACHE", tmp_path)
    monkeypatch.setattr(image, "_debian", lambda target, *_: target.mkdir())
    installed: dict[str, list[str]] = {}

    def run_over(layers: object, target: Path, tree: object, script: Path, packages: list[str], **_: object) -> None:
        installed[f"{target.name.partition('-')[0]} {script.name}"] = packages
        target.mkdir()

    monkeypatch.setattr(image, "_run_over", run_over)
    tree = vendor.VendorTree(tmp_path, "tree", ["driver"], ["docker-ce"], "image", "amd64")
    container, machines = image.build(tree, "container"), image.build(tree, "machine")
    assert [path.name.partition("-")[0] for path in machines.layers] == ["delivered", "spark", "debian"]
    assert machines.layers[1:] == container.layers and machines.digest != container.digest
    assert installed == {"spark customize.sh": ["driver"], "delivered install.sh": ["docker-ce"]}


class TestProgramsOfAnotherCpu:
    """While an image is built this machine's kernel has qemu-user run them, and afterwards it is as before."""

    FOREIGN = replace(ARM64, kernel="no-such-cpu")

    @pytest.fixture(autouse=True)
    def kernel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(image, "BINFMT", tmp_path)
        monkeypatch.setattr(image, "BINFMT_RULES", tmp_path)
        (tmp_path / "register").touch()
        (tmp_path / "qemu-no-such-cpu.conf").write_text(":rule")
        return tmp_path

    def test_they_are_made_known_and_forgotten(self, kernel: Path) -> None:
        with pytest.raises(OSError, match="far enough"), image.programs_of(self.FOREIGN):
            assert (kernel / "register").read_text() == ":rule"
            raise OSError("far enough")
        assert (kernel / "qemu-no-such-cpu").read_text() == "-1"

    def test_what_is_known_already_stays(self, kernel: Path) -> None:
        (kernel / "qemu-no-such-cpu").write_text("enabled")
        with image.programs_of(self.FOREIGN):
            pass
        assert (kernel / "qemu-no-such-cpu").read_text() == "enabled"

    def test_this_machines_own_need_nothing(self, kernel: Path) -> None:
        with image.programs_of(replace(ARM64, kernel=platform.machine())):
            pass
        assert (kernel / "register").read_text() == ""


def test_an_arm64_image_has_its_kernel_and_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(image, "CACHE", tmp_path)
    monkeypatch.setattr(image, "run", lambda argv, **_: asked.extend(map(str, argv)) or argv[-1].mkdir(exist_ok=True))
    monkeypatch.setattr(image, "_run_over", lambda layers, target, *_, **__: target.mkdir())
    monkeypatch.setattr(image, "programs_of", lambda _: contextlib.nullcontext())
    (tmp_path / "arm64").mkdir()
    built = image.build(vendor.VendorTree(tmp_path, "tree", [], [], "image", "arm64"), "machine")
    assert {layer.parent for layer in built.layers} == {tmp_path / "arm64"}
    assert "--architectures=arm64" in asked and any("linux-image-arm64," in word for word in asked)
    assert built.architecture == ARM64


def test_a_host_with_the_memory_of_a_spark_can_say_what_is_in_use() -> None:
    """`gb10 stop` could not, as the lines that were changed contradicted the others."""
    kib = {
        **dict.fromkeys((LINES[name] for name in ACCOUNTS), 50_000),
        "MemTotal": 2_000_000,
        "MemAvailable": 1_500_000,
    }
    text = "".join(f"{name}: {count} kB\n" for name, count in kib.items())
    script = f"sed {SPARK_MEMINFO}"
    said = subprocess.run(["sh", "-c", script], input=text, capture_output=True, text=True, check=True).stdout
    found, _ = parse_meminfo(said)
    lost = hidden(found)
    assert found["total_bytes"] == 127535808 * 1024 and lost is not None and lost < 3 * 2**30
