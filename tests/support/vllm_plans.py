"""Settings and plans of the role vllm."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings

from tests.support.proofs import facts
from tests.support.services import only_service

HOME = "/home/u"  # of somebody on the host
OF_THE_HOST = [
    "/etc/cron.d", "/etc/systemd/system", "/etc/ssh", "/usr/bin", "/root/.ssh", f"{HOME}/.ssh", "/boot/efi", "/lib32",
    "/libx32", "/lib.usr-is-merged", "/lib/systemd", "/run/x", "/proc/1", "/tmp/x", "/nix/store", "/var/lock/x",
    "/var/lib/docker", "/var/lib/docker/volumes/x", "/var/lib/gb10-fleet", "/var/lib/gb10-fleet/undo",
    "/var/lib/gb10-recorder", "/var/lib/shim-signed", "/var/lib/private", "/var/lib/pam", "/var/lib/initramfs-tools",
    "/var/lib/libvirt", "/var/lib/lxd", "/var/lib/grafana", "/var/lib/prometheus/metrics2", "/var/lib/kubelet/x",
    "/var/lib/rancher/k3s", "/var/lib/nginx", "/var/lib/nfs", "/var/lib/ubuntu-advantage", "/var/lib/postgresql/16",
    "/var/cache/gb10-files", "/var/cache/gb10-warm", "/var/cache/gb10-warm/making", "/var/cache/gb10-compiled",
    "/var/cache/gb10-images", "/var/cache/gb10-metrics", "/var/cache/man", "/var/cache/ldconfig", "/var/spool/cron",
    "/var/opt", "/var/local", f"{HOME}/.config/systemd/user", f"{HOME}/.bashrc.d",
]  # fmt: skip
OF_ITS_OWN = [
    "/srv/models", "/data", "/data/models", "/mnt/models/llm", "/opt/models", "/var/lib/models", "/var/lib/vllm",
    "/var/cache/gb10-triton", "/var/tmp/x", f"{HOME}/models", f"{HOME}/.cache/huggingface", "/usrlocal", "/models",
]  # fmt: skip

IMAGE = "registry.example/vllm@sha256:" + "0" * 64

SAID: dict[str, Any] = {"vllm_image": IMAGE, "vllm_model": "openai/gpt-oss-120b"}

PAIR = ("spark-a", "spark-b")


def alone(**variables: Any) -> ServicePlan:
    return only_service(View("spark-a", facts(), SAID | variables))


def paired(host: str = "spark-a", peers: bool = True, **variables: Any) -> ServicePlan:
    said = SAID | {"fabric_topology": "pair"} | variables
    (other,) = set(PAIR) - {host}
    return only_service(View(host, facts(host), said, PAIR, {other: facts(other)} if peers else {}, {other: said}))


def settings(**variables: Any) -> VllmSettings:
    return View("spark-a", {}, SAID | variables).settings(VllmSettings)
