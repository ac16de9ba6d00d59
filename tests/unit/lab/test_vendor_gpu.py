"""The simulated nvidia-smi and nvidia-ctk, run as programs."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lab.vendor.packages import FILES, File, carried, nvidia_smi

Done = subprocess.CompletedProcess[str]


@pytest.fixture(name="host")
def fixture_host(tmp_path: Path) -> Path:
    (tmp_path / "loaded-driver").write_text("580.142\n")
    return tmp_path


def program(host: Path, file: File, *words: str, timeout: float = 10) -> Done:
    path = host / Path(file.path).name
    path.write_bytes(file.content)
    environ = {**os.environ, "GB10_LAB_RUN": str(host)}
    return subprocess.run(
        [sys.executable, path, *words], env=environ, capture_output=True, text=True, check=False, timeout=timeout
    )


def smi(host: Path, *words: str, driver: str = "580.142") -> Done:
    return program(host, nvidia_smi(driver), *words)


def ctk(host: Path, *words: str) -> Done:
    return program(host, carried("nvidia-ctk", "/usr/bin/nvidia-ctk", TOOLKIT_VERSION="1.19.0"), *words)


QUERY = "--query-gpu=name,memory.total,compute_cap,utilization.gpu,power.draw,clocks.sm,driver_version"


def test_fields_of_a_gb10(host: Path) -> None:
    lines = smi(host, QUERY, "--format=csv").stdout.splitlines()
    assert lines == [
        "name, memory.total [MiB], compute_cap, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz], "
        "driver_version",
        "NVIDIA GB10, [N/A], 12.1, 0 %, 4.50 W, 208 MHz, 580.142",
    ]
    assert smi(host, QUERY, "--format=csv,noheader,nounits").stdout == (
        "NVIDIA GB10, [N/A], 12.1, 0, 4.50, 208, 580.142\n"
    )


def test_throttled_gives_no_reason(host: Path) -> None:
    (host / "gpu-scenario").write_text("throttled\n")
    query = "--query-gpu=clocks.sm,power.draw,utilization.gpu,clocks_event_reasons.active"
    assert smi(host, query, "--format=csv,noheader,nounits").stdout == "507, 12.00, 96, 0x0000000000000000\n"


def test_a_loop_says_what_is_now_and_its_header_once(host: Path) -> None:
    file = nvidia_smi("580.142")
    (path := host / "nvidia-smi").write_bytes(file.content)
    argv = [sys.executable, path, "--query-gpu=clocks.sm", "--format=csv,nounits", "--loop-ms=20"]
    environ = {**os.environ, "GB10_LAB_RUN": str(host)}
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) as loop:
        assert loop.stdout is not None
        assert [loop.stdout.readline() for _ in range(3)] == ["clocks.current.sm [MHz]\n", "208\n", "208\n"]
        (changed := host / "changed").write_text("throttled\n")
        changed.rename(host / "gpu-scenario")
        while (line := loop.stdout.readline()) != "507\n":
            assert line == "208\n"
        (changed := host / "changed").write_text("absent\n")
        changed.rename(host / "gpu-scenario")
        assert loop.wait(20) == 6


def test_compute_apps(host: Path) -> None:
    query = ("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader")
    assert smi(host, *query).stdout == ""
    (host / "gpu-scenario").write_text("loaded\n")
    assert smi(host, *query).stdout == "4242, VLLM::EngineCore, 98304 MiB\n"


@pytest.mark.parametrize("scenario", ["idle", "loaded", "throttled"])
def test_table_lines_are_of_one_width(host: Path, scenario: str) -> None:
    (host / "gpu-scenario").write_text(scenario)
    lines = smi(host).stdout.splitlines()[1:]
    assert {len(line) for line in lines if line} == {91}


def test_unknown_field(host: Path) -> None:
    done = smi(host, "--query-gpu=name,colour", "--format=csv")
    assert (done.returncode, done.stdout) == (2, 'Field "colour" is not a valid field to query.\n\n')


def test_absent(host: Path) -> None:
    (host / "gpu-scenario").write_text("absent\n")
    done = smi(host, "-L")
    assert (done.returncode, done.stdout) == (6, "No devices were found\n")


def test_hung_does_not_return(host: Path) -> None:
    (host / "gpu-scenario").write_text("hung\n")
    with pytest.raises(subprocess.TimeoutExpired):
        program(host, nvidia_smi("580.142"), "-L", timeout=0.5)


def test_no_driver_and_another_driver(host: Path) -> None:
    assert smi(host, driver="590.44.01").returncode == 18
    (host / "loaded-driver").unlink()
    assert smi(host).returncode == 9


def test_runtime_configure_keeps_foreign_keys_but_replaces_features(host: Path) -> None:
    daemon = host / "daemon.json"
    daemon.write_text(json.dumps({"log-driver": "local", "features": {"containerd-snapshotter": True}}))
    words = ("runtime", "configure", "--runtime=docker", f"--config={daemon}", "--cdi.enabled")
    assert ctk(host, *words).returncode == 0
    assert json.loads(daemon.read_text()) == {
        "features": {"cdi": True},
        "log-driver": "local",
        "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
    }


def test_cdi_specification_is_generated_and_listed(host: Path) -> None:
    assert ctk(host, "cdi", "generate", f"--output={host}/cdi/nvidia.yaml").returncode == 0
    spec = yaml.safe_load((host / "cdi/nvidia.yaml").read_text())
    assert (spec["cdiVersion"], spec["kind"]) == ("0.6.0", "nvidia.com/gpu")
    assert [device["name"] for device in spec["devices"]] == ["0", "all"]
    assert any(entry.startswith("NVIDIA_VISIBLE_DEVICES=") for entry in spec["containerEdits"]["env"])
    listed = ctk(host, "cdi", "list", f"--spec-dir={host}/cdi").stdout.split()
    assert listed == ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]


def test_cdi_specification_names_the_driver_it_was_made_for(host: Path) -> None:
    (host / "loaded-driver").write_text("580.178.04\n")
    mounts = yaml.safe_load(ctk(host, "cdi", "generate").stdout)["containerEdits"]["mounts"]
    assert f"/usr/lib/{platform.machine()}-linux-gnu/libcuda.so.580.178.04" in [
        mount["containerPath"] for mount in mounts
    ]


def test_no_cdi_specification_without_a_driver(host: Path) -> None:
    (host / "loaded-driver").unlink()
    assert ctk(host, "cdi", "generate", f"--output={host}/nvidia.yaml").returncode == 1
    assert not (host / "nvidia.yaml").exists()


def test_version(host: Path) -> None:
    assert ctk(host, "--version").stdout == "NVIDIA Container Toolkit CLI version 1.19.0\n"


def test_clocks_are_locked_and_freed_and_nothing_reads_the_lock_back(host: Path) -> None:
    (host / "gpu-scenario").write_text("loaded")
    query = ("--query-gpu=clocks.sm,clocks.max.sm", "--format=csv,noheader,nounits")
    assert smi(host, *query).stdout == "2418, 3003\n"
    done = smi(host, "-lgc", "300,2100")
    assert done.stdout == 'GPU clocks set to "(gpuClkMin 300, gpuClkMax 2100)" for GPU 0000000F:01:00.0\nAll done.\n'
    assert (done.returncode, smi(host, *query).stdout) == (0, "2100, 3003\n")
    assert smi(host, "--lock-gpu-clocks=1500").returncode == 0
    assert smi(host, *query).stdout == "1500, 3003\n"
    assert smi(host, "-lgc", "2100,300").returncode == 2 and smi(host, "-lgc", "many").returncode == 2
    assert smi(host, "-rgc").stdout == "All done.\n"
    assert smi(host, *query).stdout == "2418, 3003\n"


@pytest.mark.skipif(shutil.which("grub-editenv") is None, reason="needs grub-editenv, of grub-common")
@pytest.mark.parametrize(
    ("entries", "default", "boots"),
    [
        ({"next_entry": "6.17.0-1014-nvidia", "saved_entry": "6.17.0-1032-nvidia"}, "saved", "6.17.0-1014-nvidia"),
        ({"saved_entry": "6.17.0-1014-nvidia"}, "saved", "6.17.0-1014-nvidia"),
        ({"saved_entry": "6.17.0-1014-nvidia"}, "0", "6.17.0-1032-nvidia"),
        ({}, "saved", "6.17.0-1032-nvidia"),
    ],
)
def test_a_boot_by_the_simulated_grub_takes_its_entry_once(
    tmp_path: Path, entries: dict[str, str], default: str, boots: str
) -> None:
    """Paths below a temporary root; what changes a kernel is a stub."""
    environment = tmp_path / "boot/grub/grubenv"
    programs = tmp_path / "programs"
    for folder in (environment.parent, tmp_path / "etc/gb10-lab", tmp_path / "run", programs):
        folder.mkdir(parents=True)
    (tmp_path / "etc/gb10-lab/boots-by-grub").touch()
    for kernel in ("6.17.0-1014-nvidia", "6.17.0-1032-nvidia"):
        module = tmp_path / f"lib/modules/{kernel}/kernel/nvidia-580-open/nvidia.ko"
        module.parent.mkdir(parents=True)
        module.write_text(kernel)
    text = '   set default="${saved_entry}"\n' if default == "saved" else f'   set default="{default}"\n'
    (environment.parent / "grub.cfg").write_text(text)
    subprocess.run(["grub-editenv", str(environment), "create"], check=True)
    for name, kernel in entries.items():
        entry = f"{name}=gnulinux-advanced-9b10>gnulinux-{kernel}-advanced-9b10"
        subprocess.run(["grub-editenv", str(environment), "set", entry], check=True)
    for name in ("mount", "mountpoint", "umount", "depmod", "modinfo"):
        (programs / name).write_text("#!/bin/sh\n[ ${0##*/} != mount ] || [ $1 = --bind ]\n")
        (programs / name).chmod(0o755)
    script = (FILES / "lab-gpu").read_text()
    for path in ("/boot/grub", "/etc/gb10-lab", "/lib/modules", "/run/gb10-lab"):
        script = script.replace(path, f"{tmp_path}{path}")
    words = {"env": {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}, "check": True, "capture_output": True}
    subprocess.run(["sh", "-c", script, "lab-gpu", "boot"], **words)
    assert (tmp_path / "run/gb10-lab/osrelease").read_text().strip() == boots
    left = subprocess.run(["grub-editenv", str(environment), "list"], check=True, capture_output=True, text=True).stdout
    assert "next_entry" not in left
