# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of the role vllm, and the ports that follow from them; the firewall and the gateway read them too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses, catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import lora
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.draft_wish import Wish
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.lora import Adapter

# What the hosts of a cluster must say alike, since each starts its own rank of one server. These may be shown.
ALIKE = (
    "vllm_model",
    "vllm_model_revision",
    "vllm_model_exclude",
    "vllm_speculative",
    "vllm_lora",
    "vllm_fetch",
    "vllm_transfer_port",
    "vllm_image",
    "vllm_version",
    "vllm_flags",
    "vllm_extra_args",
    "vllm_tensor_parallel_size",
    "vllm_join_port",
    "vllm_master_port",
    "vllm_executor",
    "vllm_ray_port",
    "vllm_max_model_len",
    "vllm_served_model_name",
    "vllm_further_names",
    "vllm_gpu_memory_utilization",
)
# Of those, what is left out where it is empty: came later, and hosts of before keep their secret and their settings.
_SAID_WHERE_SET = ("vllm_lora", "vllm_further_names")


@dataclass(frozen=True)
class VllmSettings(RoleSettings, role="vllm"):
    """The public variables of the role vllm."""

    vllm_services: Mapping[Any, Any]
    vllm_image: str
    vllm_allow_tag: bool
    vllm_registry_username: str
    vllm_registry_password: str
    vllm_version: str
    vllm_accept: Mapping[Any, Any]
    vllm_model: str
    vllm_model_revision: str
    vllm_model_move: bool
    vllm_model_exclude: tuple[str, ...]
    vllm_model_facts: str
    vllm_speculative: Mapping[str, Any]
    vllm_lora: tuple[Mapping[str, Any], ...]
    vllm_fetch: bool
    vllm_transfer_port: int
    vllm_served_model_name: str
    vllm_further_names: tuple[str, ...]
    vllm_host: str
    vllm_port: int
    vllm_api_key: str
    vllm_huggingface_token: str
    vllm_flags: str
    vllm_gpu_memory_utilization: float
    vllm_max_model_len: int
    vllm_tensor_parallel_size: int
    vllm_extra_args: tuple[str, ...]
    vllm_environment: Mapping[Any, Any]
    vllm_mounts: tuple[str, ...]
    vllm_allow_mounts: bool
    vllm_security_options: tuple[str, ...]
    vllm_allow_security_options: bool
    vllm_ulimits: Mapping[Any, Any]
    vllm_cache_directory: str
    vllm_cache_source: str
    vllm_warm_cache_gib: int
    vllm_memory_gate_gib: int
    vllm_master_port: int
    vllm_join_port: int
    vllm_executor: str
    vllm_ray_port: int
    vllm_ray_token: str
    vllm_ready_timeout: int
    vllm_on_demand: bool

    @property
    def served_name(self) -> str:
        """The name that clients ask for."""
        return self.vllm_served_model_name or self.vllm_model

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """Return the LoRA adapters, as far as they are some; what is wrong with one is refused."""
        return tuple(lora.adapter(each) for each in self.vllm_lora if isinstance(each, Mapping))

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names that clients may ask for: its own, further ones, and those of adapters."""
        return tuple(
            dict.fromkeys((self.served_name, *self.vllm_further_names, *(each.name for each in self.adapters)))
        )

    @property
    def drafting(self) -> dict[str, Any]:
        """Return what is said of speculative decoding; the file of facts changes nothing of what is served."""
        return {name: value for name, value in self.vllm_speculative.items() if value and name != "facts"}

    @property
    def speculative(self) -> Wish | None:
        """Return what is asked of speculative decoding; None where nothing is."""
        return Wish(**self.drafting) if self.drafting else None

    @property
    def draft(self) -> Wish | None:
        """The wish where it names a second model, whose files are fetched like those of the model."""
        wish = self.speculative
        same = wish and (wish.model, wish.revision) == (self.vllm_model, self.vllm_model_revision)
        return wish if wish and wish.model and not same else None

    @property
    def warm(self) -> bool:
        """Tell whether a warm cache is wished."""
        return self.vllm_warm_cache_gib > 0

    @property
    def by_ray(self) -> bool:
        return self.vllm_executor == "ray"

    @property
    def exposed(self) -> bool:
        """Tell whether others than the host itself may reach the API."""
        return not addresses.is_loopback(self.vllm_host)

    @property
    def ports(self) -> dict[str, int]:
        """Every TCP port that has a variable, whether it is in use here or not."""
        names = ("vllm_port", "vllm_join_port", "vllm_transfer_port", "vllm_master_port", "vllm_ray_port")
        return {name: getattr(self, name) for name in names}

    def ports_in_use(self, hosts: int) -> dict[str, int]:
        """The TCP ports that are in use in a cluster of so many hosts, each by its variable."""
        idle = {"vllm_master_port" if self.by_ray else "vllm_ray_port"}
        if hosts == 1:
            idle = self.ports.keys() - {"vllm_port"}
        return {name: port for name, port in self.ports.items() if name not in idle}

    def alike(self) -> dict[str, str]:
        """Return what the hosts of a cluster must say alike, as texts.

        A number and the text of it are the same wish.
        """
        said = {name: getattr(self, name) for name in ALIKE}
        return {name: _text(value) for name, value in said.items() if value or name not in _SAID_WHERE_SET}


def ports_of_ray() -> dict[str, int]:
    """The options of `ray start` that name a port of every node; the last two are a range, for its workers."""
    ports: dict[str, int] = catalog.load("units")["ray"]["ports"]["value"]
    return ports


def workers_of_ray() -> range:
    """The ports that Ray's workers take."""
    ports = ports_of_ray()
    return range(ports["min-worker-port"], ports["max-worker-port"] + 1)


def _text(value: Any) -> str:
    return str(list(value) if isinstance(value, tuple) else value)
