# SPDX-License-Identifier: GPL-3.0-or-later
"""Temperatures and powers of sysfs, and the wear of NVMe disks."""

from __future__ import annotations

import json
import re
from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Part, Unknown, checked, quoted

THERMAL, HWMON, NVME = "/sys/class/thermal", "/sys/class/hwmon", "/sys/class/nvme"
DEADLINE_S = 10.0
_LARGEST = 10**12  # of a reading in millionths
_MOST = 64  # of zones, chips or sensors; no board has as many
_POSSIBLE_C = (-60, 250)
# sysfs counts in thousandths of a degree and millionths of a watt.
_UNITS = {"temp": ("temperature_c", 1000), "power": ("power_w", 1_000_000)}
_WEAR = {
    "used_percent": ("percent_used", "percentage_used"),
    "spare_percent": ("avail_spare", "available_spare"),
    "spare_least_percent": ("spare_thresh", "available_spare_threshold"),
    "critical_warning": ("critical_warning", "critical_warning"),
    "media_errors": ("media_errors", "media_errors"),
    "unsafe_shutdowns": ("unsafe_shutdowns", "unsafe_shutdowns"),
    "power_cycles": ("power_cycles", "power_cycles"),
}
_TOOLS = (("nvme", "smart-log", "--output-format=json"), ("smartctl", "--json", "--attributes"))


class Zone(TypedDict):
    zone: str
    type: str | None
    temperature_c: float | None
    critical_c: float | None


class Sensor(TypedDict):
    chip: str
    label: str
    unit: str
    value: float


class Disk(TypedDict):
    disk: str
    model: str | None
    used_percent: int
    spare_percent: int | None
    spare_least_percent: int | None
    critical_warning: int | None
    media_errors: int | None
    unsafe_shutdowns: int | None
    power_cycles: int | None


def read_zones(host: HostReader) -> list[Zone]:
    """Thermal zones with the temperature at which the kernel switches off."""
    zones: list[Zone] = []
    for name in [name for name in host.names(THERMAL) if re.match(r"thermal_zone\d+\Z", name)][:_MOST]:
        base = f"{THERMAL}/{name}"
        trips = [file for file in host.names(base) if re.match(r"trip_point_\d+_type\Z", file)]
        critical = next((file for file in trips if host.read(f"{base}/{file}") == "critical"), None)
        zones.append(
            {
                "zone": name,
                "type": quoted(host.read(f"{base}/type") or "") or None,
                "temperature_c": _celsius(host.number(f"{base}/temp")),
                "critical_c": _celsius(host.number(f"{base}/{critical[:-4]}temp")) if critical else None,
            }
        )
    if not zones:
        raise Unknown(f"there are no zones in {THERMAL}")
    return zones


def _celsius(thousandths: int | None) -> float | None:
    least, most = _POSSIBLE_C
    return thousandths / 1000 if thousandths is not None and least * 1000 <= thousandths <= most * 1000 else None


def read_hwmon(host: HostReader) -> list[Sensor]:
    """Temperatures and powers of all chips by their names: the numbers of hwmonN change from boot to boot."""
    sensors: list[Sensor] = []
    for folder in host.names(HWMON)[:_MOST]:
        chip = quoted(host.read(f"{HWMON}/{folder}/name") or "")
        for file in host.names(f"{HWMON}/{folder}")[: 4 * _MOST]:
            found = re.match(r"((temp|power)\d{1,3})_(?:input|average)\Z", file)
            value = host.number(f"{HWMON}/{folder}/{file}") if chip and found else None
            if found and value is not None and abs(value) < _LARGEST:
                unit, parts = _UNITS[found[2]]
                label = quoted(host.read(f"{HWMON}/{folder}/{found[1]}_label") or "") or found[1]
                sensors.append({"chip": chip, "label": label, "unit": unit, "value": value / parts})
    if not sensors:
        raise Unknown(f"there are no sensors in {HWMON}")
    return sensors


def read_disks(host: HostReader, unknown: dict[str, str]) -> list[dict[str, Any]]:
    """What each NVMe disk says of its wear; a disk that says nothing has its reason in `unknown`."""
    names = [name for name in host.names(NVME) if re.match(r"nvme\d+\Z", name)][:_MOST]
    if not names:
        raise Unknown(f"there are no disks in {NVME}")
    disks = []
    for name in names:
        try:
            values, reasons = _disk(host, name)
        except Unknown as reason:
            unknown[f"disks.{name}"] = str(reason)
            continue
        unknown.update({f"disks.{name}.{key}": reason for key, reason in reasons.items()})
        disks.append({"disk": name, "model": quoted(host.read(f"{NVME}/{name}/model") or "") or None, **values})
    return disks


def _disk(host: HostReader, name: str) -> Part:
    for program, *words in _TOOLS:
        done = host.system.run([program, *words, f"/dev/{name}"], timeout=DEADLINE_S)
        if done.rc != 127:
            return parse_wear(done.stdout, program)
    raise Unknown("neither nvme nor smartctl is installed")


def parse_wear(text: str, program: str) -> Part:
    """The health log of an NVMe disk, as nvme-cli or smartmontools print it."""
    try:
        said = json.loads(checked(text, program))
        log = said.get("nvme_smart_health_information_log", said)
        values = {name: _count(next((log[key] for key in keys if key in log), None)) for name, keys in _WEAR.items()}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise (
            error if isinstance(error, Unknown) else Unknown(f"{program} gave no log: {quoted(text[:200])}")
        ) from None
    if values["used_percent"] is None:
        raise Unknown(f"{program} does not tell the wear: {quoted(text[:200])}")
    return values, {name: f"{program} does not say" for name, value in values.items() if value is None}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else None
