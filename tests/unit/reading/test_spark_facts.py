"""Facts out of a made-up root and made-up command outputs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import meanings as readings
from ansible_collections.gb10.fleet.plugins.module_utils.reading import network
from ansible_collections.gb10.fleet.plugins.module_utils.reading import rails as rail_facts
from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import read_database
from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import collect
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System

from lab.vendor.kernel_module import stand_in

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests/fixtures/facts"
OUTPUTS = {"ip": FIXTURES / "ip-batch.txt", "nvidia-smi": FIXTURES / "nvidia-smi.idle.txt"}

Run = Callable[[Sequence[str], str | None, float], Completed]


def absent(argv: Sequence[str], _stdin: str | None, _timeout: float) -> Completed:
    return Completed(tuple(argv), 127, stderr=f"{argv[0]}: No such file or directory")


def commands(**replaced: Completed) -> Run:
    def run(argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        if argv[0] in replaced:
            return replaced[argv[0]]
        if argv[0] in OUTPUTS:
            return Completed(tuple(argv), 0, OUTPUTS[argv[0]].read_text())
        return absent(argv, stdin, timeout)

    return run


def answering(host: HostReader, run: Run) -> HostReader:
    return replace(host, system=System(host.system.root, run))


def write(root: Path, path: str, text: str) -> None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def add_interface(root: Path, name: str, pci: str | None, **files: str) -> None:
    """A netdev; below a PCI function, or (virtio) one step further down, or without a device."""
    base = f"/sys/class/net/{name}"
    for file, text in {"address": "02:00:00:00:00:01", "mtu": "1500", "operstate": "up", **files}.items():
        write(root, f"{base}/{file}", f"{text}\n")
    if pci:
        device = root / f"sys/devices/pci{pci[:7]}/{pci}"
        (root / "sys/bus/pci/drivers/mlx5_core").mkdir(parents=True, exist_ok=True)
        device.mkdir(parents=True)
        (device / "driver").symlink_to(root / "sys/bus/pci/drivers/mlx5_core")
        (root / base.lstrip("/") / "device").symlink_to(device)


def add_hca(root: Path, hca: str, netdev: str | None = None, parent: str | None = None) -> None:
    base = f"/sys/class/infiniband/{hca}"
    write(root, f"{base}/ports/1/state", "4: ACTIVE\n")
    (root / base.lstrip("/") / "ports/1/gid_attrs/ndevs").mkdir(parents=True)
    if netdev:
        write(root, f"{base}/ports/1/gid_attrs/ndevs/0", f"{netdev}.100\n")
        write(root, f"{base}/ports/1/gid_attrs/ndevs/1", f"{netdev}\n")
    if parent:
        write(root, f"{base}/parent", f"{parent}\n")


@pytest.fixture
def spark(tmp_path: Path) -> HostReader:
    """A DGX Spark with one cable in port p0, reached over SSH and sudo."""
    write(tmp_path, "/proc/sys/kernel/hostname", "spark-a\n")
    write(tmp_path, "/proc/sys/kernel/osrelease", "6.17.0-1014-nvidia\n")
    write(tmp_path, "/proc/sys/kernel/random/boot_id", "5b0a0a44-6a51-4b21-9a3c-2f60c3d0a001\n")
    write(tmp_path, "/proc/meminfo", "MemTotal:       127600776 kB\nMemFree: 1 kB\n")
    write(tmp_path, "/proc/self/mounts", "/dev/nvme0n1p2 / ext4 rw 0 0\n/dev/nvme0n1p1 /boot vfat rw 0 0\n")
    write(tmp_path, "/proc/driver/nvidia/version", (FIXTURES / "nvidia-version.txt").read_text())
    write(tmp_path, "/var/lib/dpkg/status", (FIXTURES / "dpkg-status.txt").read_text())
    write(tmp_path, "/lib/modules/6.17.0-1014-nvidia/modules.dep", "kernel/x/drm.ko:\nkernel/x/nvidia.ko: k/drm.ko\n")
    module = tmp_path / "lib/modules/6.17.0-1014-nvidia/kernel/x/nvidia.ko"
    module.parent.mkdir(parents=True)
    module.write_bytes(stand_in("580.178.04"))
    write(tmp_path, "/etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.4 LTS"\n')
    write(tmp_path, "/etc/dgx-release", (FIXTURES / "dgx-release.txt").read_text())
    write(tmp_path, "/sys/class/dmi/id/sys_vendor", "NVIDIA\n")
    write(tmp_path, "/sys/class/dmi/id/product_name", "NVIDIA_DGX_Spark\n")
    write(tmp_path, "/sys/class/net/bonding_masters", "\n")
    add_interface(tmp_path, "lo", None)
    add_interface(tmp_path, "enP7s7", "0007:01:00.0", carrier="1", speed="10000")
    add_interface(tmp_path, "enP2p1s0f0np0", "0002:01:00.0", carrier="1", speed="200000", phys_port_name="p0")
    add_interface(
        tmp_path,
        "enp1s0f0np0",
        "0000:01:00.0",
        carrier="1",
        speed="200000",
        phys_port_name="p0",
        phys_switch_id="1070fd",
        mtu="9000",
    )
    add_interface(tmp_path, "enp1s0f1np1", "0000:01:00.1", speed="-1")  # down, so no carrier; no phys_port_name
    add_hca(tmp_path, "roceP2p1s0f0", "enP2p1s0f0np0")
    add_hca(tmp_path, "rocep1s0f0", "enp1s0f0np0")
    add_hca(tmp_path, "rocep1s0f1", parent="enp1s0f1np1")
    session = "SSH_CONNECTION=::ffff:192.0.2.1 50000 ::ffff:192.0.2.11 22"
    ancestors = (("self", 30, ""), (30, 20, "SUDO_USER=u\0"), (20, 10, f"A=b\0{session}\0"), (10, 1, ""))
    for process, parent, environ in ancestors:
        write(tmp_path, f"/proc/{process}/status", f"Name:\tsh (x) y\nPPid:\t{parent}\n")
        write(tmp_path, f"/proc/{process}/environ", environ)

    def statvfs(path: str) -> Any:
        return SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bavail=250 if path.endswith("boot") else 500)

    return HostReader(
        System(tmp_path, commands(), privileged=True), statvfs, machine="aarch64", time_of_day=lambda: 1795401000.1239
    )


def test_a_spark(spark: HostReader) -> None:
    facts = collect(spark)
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["hostname"], facts["kernel"], facts["architecture"]) == ("spark-a", "6.17.0-1014-nvidia", "aarch64")
    assert facts["memory_bytes"] == 127600776 * 1024
    assert facts["os"] == {"id": "ubuntu", "version_id": "24.04", "pretty": "Ubuntu 24.04.4 LTS"}
    assert facts["root"] is True
    assert facts["default_route_interfaces"] == ["enP7s7", "wlP9s9"]
    assert facts["ssh"] == {
        "interface": "enP7s7", "way_back": "enP7s7", "local_address": "192.0.2.11", "peer_address": "192.0.2.1",
    }  # fmt: skip
    assert [item["name"] for item in facts["interfaces"]] == ["enP2p1s0f0np0", "enP7s7", "enp1s0f0np0", "enp1s0f1np1"]
    assert facts["gpu"] == {
        "present": True, "state": "ok", "name": "NVIDIA GB10", "driver": "580.178.04",
        "temperature_c": 41.0, "power_w": 4.71, "query_error": None,
    }  # fmt: skip
    assert facts["driver"] == {
        "userland": "580.178.04", "module_on_disk": "580.178.04",
        "module_loaded": "580.178.04", "license": "Dual MIT/GPL",
        "kernels": [
            {
                "release": "6.17.0-1014-nvidia", "module": "580.178.04", "license": "Dual MIT/GPL", "flavour": "open",
                "listed": False,
            },
        ],
        "next_kernel": None, "next_missing": [], "pins": [], "unheld": None,
        "secure_boot": None, "rejected": None,
    }  # fmt: skip
    assert sorted(facts["packages"]) == [
        "docker-ce", "libnvidia-compute-580", "linux-image-6.17.0-1014-nvidia", "nvidia-driver-580-open",
    ]  # fmt: skip
    assert facts["holds"] == ["docker-ce", "nvidia-driver-580-open"]
    assert facts["apt"] == {"lock_held_by": None, "dpkg_interrupted": False}
    assert facts["docker"] == {
        "present": True,
        "version": "29.2.1",
        "running": False,
        "cgroup_driver": None,
        "ends": [],
    }
    assert facts["cdi"] == []


def test_an_update_adds_to_dgx_release_and_the_last_one_counts_without_the_serial_number(spark: HostReader) -> None:
    release = collect(spark)["product"]["dgx_release"]
    assert release["DGX_OTA_VERSION"] == "7.5.0"
    assert "MADEUP0123456" not in str(release)


def test_rails_are_sorted_and_twins_numbered_by_pci_domain(spark: HostReader) -> None:
    rails = collect(spark)["rails"]
    assert [(rail["port"], rail["twin_index"], rail["netdev"], rail["hca"]) for rail in rails] == [
        ("p0", 0, "enp1s0f0np0", "rocep1s0f0"),
        ("p0", 1, "enP2p1s0f0np0", "roceP2p1s0f0"),
        ("p1", 0, "enp1s0f1np1", "rocep1s0f1"),  # port from the name, netdev from `parent`
    ]
    assert rails[0] == {
        "netdev": "enp1s0f0np0", "hca": "rocep1s0f0", "hca_port": 1, "port": "p0", "twin_index": 0, "carrier": True,
        "mtu": 9000, "driver": "mlx5_core", "pci": "0000:01:00.0", "addresses": ["192.168.100.10/24"],
        "phys_switch_id": "1070fd", "state": "ACTIVE", "master": None,
    }  # fmt: skip
    assert rails[2]["carrier"] is None


@pytest.mark.parametrize("soft", ["aaa0", "rxe0"])
def test_soft_roce_beside_an_hca_of_the_same_netdev_is_no_rail(spark: HostReader, soft: str) -> None:
    write(spark.system.root, "/sys/class/infiniband/rocep1s0f0/device/vendor", "0x15b3\n")
    add_hca(spark.system.root, soft, "enp1s0f0np0")
    add_hca(spark.system.root, "rxe1", "enP7s7")
    hcas = [rail["hca"] for rail in collect(spark)["rails"]]
    assert hcas == ["rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "rxe1"], "of a netdev without an HCA it is one"


def test_the_bridge_of_a_rail_is_named(spark: HostReader) -> None:
    spark.path("/sys/class/net/enp1s0f0np0/master").symlink_to("../br0")
    assert [rail["master"] for rail in collect(spark)["rails"]] == ["br0", None, None]


def test_without_pci_domains_the_names_number_the_twins() -> None:
    rails = [{"netdev": name, "port": "p0", "pci": None} for name in ("enP2p1s0f0np0", "enp1s0f0np0")]
    numbered = rail_facts.number_twins(rails)
    assert [rail["netdev"] for rail in numbered] == ["enp1s0f0np0", "enP2p1s0f0np0"]
    assert [rail["twin_index"] for rail in numbered] == [0, 1]


def test_an_hca_without_a_netdev_here_is_no_rail(spark: HostReader) -> None:
    add_hca(spark.system.root, "roceP2p1s0f1")
    assert len(collect(spark)["rails"]) == 3


@pytest.mark.parametrize(
    ("output", "state", "error"),
    [
        (
            Completed((), 124, stderr="nvidia-smi did not end within 10 s"),
            "silent",
            "nvidia-smi did not end within 10 s",
        ),
        (Completed((), 6, "No devices were found\n"), "absent", "No devices were found"),
        (Completed((), 127, stderr="nvidia-smi: No such file"), "no_program", "nvidia-smi: No such file"),
        (Completed((), 0, ""), "unreadable", "nvidia-smi listed no GPU"),
        (Completed((), 0, "NVIDIA GB10, 580.142, [N/A], [Not Supported]\n"), "ok", None),
    ],
)
def test_gpu_scenarios(spark: HostReader, output: Completed, state: str, error: str | None) -> None:
    gpu = collect(answering(spark, commands(**{"nvidia-smi": output})))["gpu"]
    assert (gpu["present"], gpu["state"], gpu["query_error"]) == (state == "ok", state, error)
    assert gpu["temperature_c"] is None and gpu["power_w"] is None


def test_a_driver_of_the_run_installer_is_seen(spark: HostReader) -> None:
    write(spark.system.root, "/usr/lib/aarch64-linux-gnu/libcuda.so.590.48.01", "")
    (spark.system.root / "var/lib/dpkg/status").unlink()
    assert collect(spark)["driver"]["userland"] == "590.48.01"


def test_a_compressed_module_is_for_modinfo_to_read(spark: HostReader) -> None:
    write(spark.system.root, "/lib/modules/6.17.0-1014-nvidia/modules.dep", "kernel/x/nvidia.ko.zst: k/drm.ko.zst\n")
    path = "/lib/modules/6.17.0-1014-nvidia/kernel/"
    said = Completed((), 0, re.sub(f"{path}.*", f"{path}x/nvidia.ko.zst", (FIXTURES / "modinfo.txt").read_text()))
    driver = collect(answering(spark, commands(modinfo=said)))["driver"]
    assert (driver["module_on_disk"], driver["license"]) == ("580.178.04", "Dual MIT/GPL")


@pytest.mark.parametrize("size", [0, 4, 63, 64, 100, 150])
def test_a_damaged_module_is_no_module(spark: HostReader, size: int) -> None:
    module = spark.system.root / "lib/modules/6.17.0-1014-nvidia/kernel/x/nvidia.ko"
    module.write_bytes(stand_in("580.178.04")[:size])
    assert collect(spark)["driver"]["module_on_disk"] is None


@pytest.fixture
def docker(spark: HostReader) -> Callable[[bytes], None]:
    """A running Docker that gives this answer to one question."""
    write(spark.system.root, "/run/docker.pid", "77")
    write(spark.system.root, "/proc/77/stat", "")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(spark.system.root / "run/docker.sock"))
    server.listen()

    def answer(said: bytes) -> None:
        connection, _ = server.accept()
        with server, connection:
            assert connection.recv(1000).startswith(b"GET /info HTTP/1.0\r\n")
            connection.sendall(said)

    return lambda said: threading.Thread(target=answer, args=(said,), daemon=True).start()


@pytest.mark.parametrize(
    ("said", "version", "driver"),
    [
        (b'HTTP/1.0 200 OK\r\n\r\n{"ServerVersion": "29.3.0", "CgroupDriver": "cgroupfs"}', "29.3.0", "cgroupfs"),
        (b"HTTP/1.0 500 Oops\r\n\r\n{}", "29.2.1", None),
        (b"garbage", "29.2.1", None),
        (b"HTTP/1.0 200 OK\r\n\r\n[1]", "29.2.1", None),
    ],
)
def test_a_running_docker_is_asked(
    spark: HostReader, docker: Callable[[bytes], None], said: bytes, version: str, driver: str | None
) -> None:
    docker(said)
    expected = {"present": True, "version": version, "running": True, "cgroup_driver": driver, "ends": []}
    assert collect(spark)["docker"] == expected


def test_a_docker_that_does_not_listen_runs_all_the_same(spark: HostReader) -> None:
    write(spark.system.root, "/run/docker.pid", "77")
    write(spark.system.root, "/proc/77/stat", "")
    assert collect(spark)["docker"]["running"] is True


def test_a_daemon_that_kills_by_memory_is_named_while_it_runs(spark: HostReader) -> None:
    assert collect(spark)["oom_daemons"] == []
    units = spark.path("/run/systemd/units")
    units.mkdir(parents=True)
    for name in ("earlyoom", "ssh"):
        (units / f"invocation:{name}.service").symlink_to("0123456789abcdef0123456789abcdef")
    assert collect(spark)["oom_daemons"] == ["earlyoom"]


def test_how_far_the_model_is_counts_while_its_unit_is_up(spark: HostReader) -> None:
    write(spark.system.root, "/run/gb10-vllm/status.json", '{"phase": "weights"}')
    assert collect(spark)["model_phase"] is None, "the last life's word"
    units = spark.path("/run/systemd/units")
    units.mkdir(parents=True)
    (units / "invocation:gb10-vllm.service").symlink_to("0123456789abcdef0123456789abcdef")
    assert collect(spark)["model_phase"] == "weights"
    for text in ("half", "[]", '{"phase": 7}', '{"phase": "\\u001b[2J"}', "{" * 10000):
        write(spark.system.root, "/run/gb10-vllm/status.json", text)
        assert collect(spark)["model_phase"] is None, text


def test_of_several_services_the_one_counts_that_is_not_ready(spark: HostReader) -> None:
    units = spark.path("/run/systemd/units")
    units.mkdir(parents=True)
    for name, phase in (("gb10-vllm", "ready"), ("gb10-vllm-chat", "weights"), ("gb10-vllm-gone", "graphs")):
        write(spark.system.root, f"/run/{name}/status.json", json.dumps({"phase": phase}))
    for name in ("gb10-vllm", "gb10-vllm-chat"):
        (units / f"invocation:{name}.service").symlink_to("0123456789abcdef0123456789abcdef")
    assert collect(spark)["model_phase"] == "weights"
    (units / "invocation:gb10-vllm-chat.service").unlink()
    assert collect(spark)["model_phase"] == "ready"


def test_each_service_of_a_cluster_has_a_secret_of_its_own(spark: HostReader) -> None:
    assert collect(spark)["join_keys"] == {}
    text = "0" * 64 + " " + "5" * 64 + "\n"
    write(spark.system.root, "/etc/gb10-fleet/join-chat.key", text)
    write(spark.system.root, "/etc/gb10-fleet/join-code.key", "half")
    said = {"for": "0" * 64, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    assert collect(spark)["join_keys"] == {"chat": said, "code": None}


def test_of_the_secret_of_a_cluster_only_its_digest_is_told(spark: HostReader) -> None:
    assert collect(spark)["join_key"] is None
    text = "0" * 64 + " " + "5" * 64 + "\n"
    write(spark.system.root, "/etc/gb10-fleet/join.key", text)
    said = collect(spark)["join_key"]
    assert said == {"for": "0" * 64, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    assert "5" * 64 not in json.dumps(collect(spark))
    write(spark.system.root, "/etc/gb10-fleet/join.key", "half")
    assert collect(spark)["join_key"] is None


def test_what_dgx_os_sets_is_read(spark: HostReader) -> None:
    setting = spark.path("/proc/sys/vm/max_map_count")
    setting.unlink(missing_ok=True)
    assert collect(spark)["sysctls"] == {"vm.max_map_count": None}
    setting.parent.mkdir(parents=True, exist_ok=True)
    setting.write_text("1048576\n")
    assert collect(spark)["sysctls"] == {"vm.max_map_count": 1048576}


def test_the_driver_of_the_cdi_specification_is_that_of_the_libraries_it_mounts(spark: HostReader) -> None:
    assert collect(spark)["cdi_driver"] is None
    library = "/usr/lib/aarch64-linux-gnu/libcuda.so.580.142"
    write(
        spark.system.root, "/var/run/cdi/nvidia.yaml", f"mounts:\n- containerPath: {library}\n  hostPath: {library}\n"
    )
    assert collect(spark)["cdi_driver"] == "580.142"


def test_apt_sources_and_what_they_offer_of_what_is_missing(spark: HostReader) -> None:
    root = spark.system.root
    assert collect(spark)["apt_sources"] == {"entries": [], "conflicts": [], "offered": []}
    lists = "/var/lib/apt/lists/x.example_dists_noble_main_binary-arm64_Packages"
    write(root, lists, "Package: docker-ce\n\nPackage: nvidia-container-toolkit\nVersion: 1\n")
    for name in "ab":
        line = f"deb [signed-by=/{name}.asc] https://user:password@x.example/ noble main\n"
        write(root, f"/etc/apt/sources.list.d/{name}.list", line)
    facts = collect(spark)["apt_sources"]
    assert facts["offered"] == ["nvidia-container-toolkit"], "docker-ce is installed: nobody needs to search for it"
    assert facts["entries"][0] == {
        "file": "/etc/apt/sources.list.d/a.list", "uri": "https://x.example/", "suite": "noble", "components": ["main"],
        "signed_by": "/a.asc",
    }  # fmt: skip
    assert len(facts["conflicts"]) == 1
    assert "password" not in str(facts)


def test_packages_that_we_brought_are_told_from_those_that_were_there(spark: HostReader) -> None:
    there = collect(spark)["packages"]
    ours, former = list(there)[:2]
    assert collect(spark)["installed_by_us"] == []
    before = {
        f"package:{ours}": {"version": None},
        f"package:{former}": {"version": "1"},
        "package:gone": {"version": None},
    }
    entries = {
        label: manifest.Entry({"r": manifest.Owner("1", "t")}, {}, record, {}, (), (), (), place, orphan=False)
        for place, (label, record) in enumerate(before.items())
    }
    write(spark.system.root, manifest.MANIFEST, manifest.serialise(manifest.Manifest(entries)))
    spark.system.forget()
    assert collect(spark)["installed_by_us"] == [ours]
    write(spark.system.root, manifest.MANIFEST, "{")
    spark.system.forget()
    assert collect(spark)["installed_by_us"] == []


def test_a_machine_id_is_told_apart_and_not_told(spark: HostReader) -> None:
    """machine-id(5): the id itself must not leave the host; facts go into evidence, and evidence gets shared."""
    assert collect(spark)["machine_digest"] is None
    seen = set()
    for text in ("0123456789abcdef0123456789abcdef\n", "ffffffffffffffffffffffffffffffff\n", "uninitialized\n", ""):
        write(spark.system.root, "/etc/machine-id", text)
        facts = collect(spark)
        assert not text.strip() or text.strip() not in json.dumps(facts)
        seen.add(facts["machine_digest"])
    assert len(seen) == 3 and None in seen
    assert all(re.fullmatch("[0-9a-f]{16}", digest) for digest in seen - {None})


TIMESYNCD = {"/run/systemd/units/invocation:systemd-timesyncd.service": "0f"}
SYNCHRONIZED = {"/run/systemd/timesync/synchronized": ""}  # systemd-timesyncd(8): touched at each synchronization


@pytest.mark.parametrize(
    ("files", "source", "synchronized"),
    [
        ({}, None, None),
        (TIMESYNCD, "systemd-timesyncd", False),
        ({**TIMESYNCD, **SYNCHRONIZED}, "systemd-timesyncd", True),
        ({"/run/systemd/units/invocation:chrony.service": "0f"}, "chrony", None),
        # systemd-timesyncd.service says ConditionVirtualization=!container: a container has no clock of its own.
        ({"/run/systemd/container": "systemd-nspawn"}, "the machine below", None),
    ],
)
def test_the_clock_and_what_sets_it(
    spark: HostReader, files: dict[str, str], source: str | None, synchronized: bool | None
) -> None:
    for path, text in files.items():
        if "invocation" in path:
            (spark.system.root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (spark.system.root / path.lstrip("/")).symlink_to(text)
        else:
            write(spark.system.root, path, text)
    assert collect(spark)["clock"] == {"epoch_s": 1795401000.12, "source": source, "synchronized": synchronized}


def test_cdi_specifications_by_path(spark: HostReader) -> None:
    for path in ("/etc/cdi/nvidia.yaml", "/etc/cdi/other.yaml", "/var/run/cdi/nvidia.yaml"):
        write(spark.system.root, path, "")
    assert collect(spark)["cdi"] == ["/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"]


def test_disks_are_named_by_mount_and_listed_once(spark: HostReader) -> None:
    disks = collect(spark)["disks"]
    assert disks == [
        {"mount": "/", "size_bytes": 4096000, "free_bytes": 2048000},
        {"mount": "/boot", "size_bytes": 4096000, "free_bytes": 1024000},
    ]
    mounts = {"/", "/var", "/var/lib/docker2"}
    assert readings.mount_of("/var/lib/docker", mounts) == "/var"


def test_disks_of_the_paths_asked_for(spark: HostReader) -> None:
    write(spark.system.root, "/proc/self/mounts", "/dev/a / ext4 rw 0 0\n/dev/b /srv ext4 rw 0 0\n")
    assert [disk["mount"] for disk in collect(spark, ["/srv/models", "/opt"])["disks"]] == ["/", "/srv"]
    write(spark.system.root, "/proc/self/mounts", "/dev/a / ext4 rw 0 0\n/dev/b /srv/my\\040disk ext4 rw 0 0\n")
    (spark.system.root / "srv/my disk").mkdir(parents=True)
    assert [disk["mount"] for disk in collect(spark, ["/srv/my disk/hub"])["disks"]] == ["/", "/srv/my disk"]


def answer(links: Any, *others: Any) -> Completed:
    """What `ip -j -batch -` says: one line for each question."""
    return Completed((), 0, "".join(f"{json.dumps(item)}\n" for item in (links, *(others or ([],)))))


LINKS, ROUTES, WAY = [json.loads(line) for line in OUTPUTS["ip"].read_text().splitlines() if line]


def test_routes_without_the_default_ones(spark: HostReader) -> None:
    assert collect(spark)["routes"] == [
        {"interface": None, "cidr": "10.99.0.0/16"},
        {"interface": "enP7s7", "cidr": "192.0.2.0/24"},
        {"interface": "enP7s7", "cidr": "203.0.113.9/32"},
    ]


def test_both_lifelines_of_a_session(spark: HostReader) -> None:
    facts = collect(answering(spark, commands(ip=answer(LINKS, ROUTES, [{"dev": "enp1s0f1np1"}]))))
    assert (facts["ssh"]["interface"], facts["ssh"]["way_back"]) == ("enP7s7", "enp1s0f1np1")
    assert readings.lifelines(facts)["enp1s0f1np1"] == ["this very SSH session"]


def test_a_name_with_a_control_character_costs_no_other_fact(spark: HostReader) -> None:
    """iproute2 writes it as it is, which is no JSON: the host had no address, route or session, and nobody said so."""
    odd = [*LINKS, {"ifname": "a?b", "addr_info": [{"local": "10.9.8.7", "prefixlen": 24}]}]
    said = answer(odd, ROUTES)
    whole = collect(answering(spark, commands(ip=said)))
    assert whole["routes"] and whole["ssh"]["interface"] == "enP7s7"
    assert collect(answering(spark, commands(ip=replace(said, stdout=said.stdout.replace("?", "\x1b"))))) == whole


def test_one_question_for_each_part(spark: HostReader) -> None:
    asked: list[str | None] = []

    def run(argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        asked.extend([stdin] if argv[0] == "ip" else [])
        return commands()(argv, stdin, timeout)

    collect(answering(spark, run))
    assert asked == ["address show\nroute show table all\nroute get 192.0.2.1 from 192.0.2.11\n"]


def test_without_a_way_to_the_peer_the_rest_is_known(spark: HostReader) -> None:
    said = answer(LINKS, ROUTES)
    facts = collect(answering(spark, commands(ip=replace(said, rc=2, stderr="RTNETLINK answers: unreachable"))))
    assert (facts["ssh"]["interface"], facts["ssh"]["way_back"]) == ("enP7s7", None)


def test_what_comes_and_goes_with_containers_changes_no_fact(spark: HostReader) -> None:
    root = spark.system.root

    def facts(*more: tuple[str, str]) -> dict[str, Any]:
        links = [{"ifname": name, "addr_info": [{"local": ip, "prefixlen": 16}]} for name, ip in more]
        return collect(answering(spark, commands(ip=answer([*LINKS, *links]))))

    add_interface(root, "docker0", None, carrier="0", operstate="down", bridge="")
    before = facts(("docker0", "172.17.0.1"))
    add_interface(root, "veth12ab", None, carrier="1")
    write(root, "/sys/class/net/docker0/lower_veth12ab", "")
    write(root, "/sys/class/net/docker0/carrier", "1\n")
    write(root, "/sys/class/net/docker0/operstate", "up\n")
    after = facts(("docker0", "172.17.0.1"), ("veth12ab", "fe80::1"))

    assert before == after
    assert "docker0" in {item["name"] for item in after["interfaces"]}
    assert facts(("docker0", "172.17.0.1"), ("veth12ab", "10.9.8.7")) != before  # a subnet to collide with


def test_a_temporary_address_is_no_fact(spark: HostReader) -> None:
    entries = [
        {"local": "2001:db8::1", "prefixlen": 64},
        {"local": "2001:db8::2", "prefixlen": 64, "temporary": True},
        {"local": "192.0.2.11", "prefixlen": 24},
    ]
    said = answer([{"ifname": "enP7s7", "addr_info": entries}, {}])
    interfaces = {item["name"]: item for item in collect(answering(spark, commands(ip=said)))["interfaces"]}
    assert interfaces["enP7s7"]["addresses"] == ["2001:db8::1/64", "192.0.2.11/24"]


def test_what_an_interface_stands_on(spark: HostReader) -> None:
    for above, below in (("br0", "bond0.7"), ("bond0.7", "bond0"), ("bond0", "enp1s0f0np0"), ("bond0", "br0")):
        add_interface(spark.system.root, above, None, **{f"lower_{below}": ""})
    facts = collect(spark)
    lower = {item["name"]: item["lower"] for item in facts["interfaces"]}
    assert lower["br0"] == ["bond0", "bond0.7", "enp1s0f0np0"] and lower["enp1s0f0np0"] == []
    facts["default_route_interfaces"] = ["br0", "enP7s7"]
    found = readings.lifelines(facts)
    assert found["enp1s0f0np0"] == ["the default route (below br0)"]
    assert found["enP7s7"] == ["this very SSH session", "the default route"]


def test_interrupted_dpkg(spark: HostReader) -> None:
    write(spark.system.root, "/var/lib/dpkg/updates/0001", "")
    assert collect(spark)["apt"]["dpkg_interrupted"] is True
    (spark.system.root / "var/lib/dpkg/updates/0001").unlink()
    spark.system.forget()
    write(spark.system.root, "/var/lib/dpkg/status", "Package: bash\nStatus: install ok half-configured\nVersion: 5\n")
    assert collect(spark)["apt"]["dpkg_interrupted"] is True


@pytest.mark.parametrize("lock", ["/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock"])
def test_a_held_lock_names_its_holder_and_half_done_work_is_normal(spark: HostReader, lock: str) -> None:
    write(spark.system.root, "/var/lib/dpkg/updates/0001", "")
    write(spark.system.root, lock, "")
    status = (spark.system.root / lock.lstrip("/")).stat()
    device, other = (f"{os.major(number):02x}:{os.minor(number):02x}" for number in (status.st_dev, status.st_dev + 1))
    others = (
        f"1: POSIX  ADVISORY  WRITE 75 {other}:{status.st_ino} 0 EOF\n"  # the same number on another file system
        f"2: FLOCK  ADVISORY  WRITE 76 {device}:{status.st_ino} 0 EOF\n"
        f"3: OFDLCK ADVISORY  WRITE -1 {device}:{status.st_ino} 0 EOF\n"
        f"3: -> POSIX  ADVISORY  WRITE 78 {device}:{status.st_ino} 0 EOF\n"
    )
    write(spark.system.root, "/proc/locks", others)
    assert collect(spark)["apt"] == {"lock_held_by": None, "dpkg_interrupted": True}
    held = f"4: POSIX  ADVISORY  WRITE 77 {device}:{status.st_ino} 0 EOF\n"
    write(spark.system.root, "/proc/locks", others + held)
    assert collect(spark)["apt"] == {"lock_held_by": 77, "dpkg_interrupted": False}


def test_an_empty_machine_raises_nothing_and_guesses_nothing(tmp_path: Path) -> None:
    def statvfs(_path: str) -> Any:
        raise OSError

    facts = collect(
        HostReader(System(tmp_path, absent, privileged=False), statvfs, machine="x86_64", time_of_day=lambda: 0.0)
    )
    assert facts["root"] is False
    assert facts["memory_bytes"] is None and facts["kernel"] is None
    assert facts["rails"] == facts["interfaces"] == facts["disks"] == facts["holds"] == []
    assert facts["ssh"] == {"interface": None, "way_back": None, "local_address": None, "peer_address": None}
    driver = facts["driver"]
    assert driver.pop("kernels") == driver.pop("pins") == driver.pop("next_missing") == []
    assert set(driver.values()) == {None}


@pytest.mark.parametrize(
    "garbage",
    [
        "[1, 2]",
        "{",
        "[]\n[1]",
        "[]\n[]\n[]\n[]",
        "[]\n[]\n{}",
        '[{"ifname": 1}]',
        "\0\xff",
        '[{"ifname": "a", "addr_info": [1]}]',
    ],
)
def test_garbage_of_commands_raises_nothing(spark: HostReader, garbage: str) -> None:
    write(spark.system.root, "/var/lib/dpkg/status", garbage)
    facts = collect(answering(spark, lambda _argv, _stdin, _timeout: Completed((), 0, garbage)))
    assert facts["gpu"]["present"] is False and facts["packages"] == {}


def test_a_plain_ssh_session_is_in_the_own_environment(spark: HostReader) -> None:
    session = "SSH_CONNECTION=fe80::1%enP7s7 5 fe80::4ebb:47ff:fe00:1%enP7s7 22\0"
    write(spark.system.root, "/proc/self/environ", session)
    assert collect(spark)["ssh"]["interface"] == "enP7s7"


def test_a_session_from_a_place_that_is_no_address_holds_up_nobody(spark: HostReader) -> None:
    """64,000 characters took 73 s, and twice as many take four times as long."""
    write(spark.system.root, "/proc/self/environ", f"SSH_CONNECTION={'.' * 40_000}x 5 192.0.2.11 22\0")
    began_s = time.process_time()
    collect(spark)
    assert time.process_time() - began_s < 0.5


@pytest.mark.parametrize(
    ("file", "text", "ports"),
    [
        ("/etc/ssh/sshd_config", "#Port 23\nPort 50022\nport=50023 \nPermitRootLogin no\n", [22, 50022, 50023]),
        (
            "/etc/ssh/sshd_config.d/a.conf",
            "ListenAddress 192.0.2.11:5022\nListenAddress [::1]:5023\n",
            [22, 5022, 5023],
        ),
        ("/etc/ssh/sshd_config.d/a.conf", "ListenAddress 2001:db8::8000\nListenAddress 192.0.2.11\n", [22]),
        ("/etc/ssh/sshd_config.d/a.txt", "Port 50022\n", [22]),
        ("/etc/ssh/sshd_config", 'Port 50022 # by me\nPort "50023"\n#Port 50024\n', [22, 50022, 50023]),
        (
            "/etc/ssh/sshd_config",
            'ListenAddress "0.0.0.0:50022"\nListenAddress [::]:22 rdomain x\n',
            [22, 50022],
        ),
        ("/etc/systemd/system/ssh.socket.d/a.conf", "[Socket]\nListenStream=\nListenStream=50022\n", [22, 50022]),
        ("/run/systemd/generator/ssh.socket.d/a.conf", "[Socket]\nListenStream=[::]:50022\n", [22, 50022]),
    ],
)
def test_where_sshd_listens(spark: HostReader, file: str, text: str, ports: list[int]) -> None:
    write(spark.system.root, file, text)
    assert collect(spark)["ssh_ports"] == ports


@pytest.mark.parametrize("pattern", ["/srv/ssh/*.conf", '"/srv/ssh/a.conf"', "/etc/none.conf /srv/ssh/a*"])
def test_what_sshd_includes_counts(spark: HostReader, pattern: str) -> None:
    write(spark.system.root, "/etc/ssh/sshd_config", f"Include {pattern}\n")
    write(spark.system.root, "/srv/ssh/a.conf", "Port 50022\nInclude /srv/ssh/a.conf mine\n")
    write(spark.system.root, "/srv/ssh/b.txt", "Port 50023\n")
    write(spark.system.root, "/etc/ssh/mine", "Port 50024\n")
    assert collect(spark)["ssh_ports"] == [22, 50022, 50024]


def test_the_port_of_this_very_session_counts(spark: HostReader) -> None:
    write(spark.system.root, "/proc/self/environ", "SSH_CONNECTION=192.0.2.1 5 192.0.2.11 50022\0")
    assert collect(spark)["ssh_ports"] == [50022]


def test_two_commands_at_most_and_none_twice_with_the_engine(spark: HostReader) -> None:
    asked: list[str] = []

    def run(argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        asked.append(argv[0])
        assert timeout <= 10
        return commands()(argv, stdin, timeout)

    host = answering(spark, run)
    host.system.once(network.read_network)
    collect(host)
    assert asked == ["ip", "nvidia-smi"]
    assert host.system.once(read_database).installed


def test_it_runs_on_this_machine() -> None:
    assert collect(HostReader())["architecture"] == os.uname().machine
