# SPDX-License-Identifier: GPL-3.0-or-later
"""The container that serves a model: its environment, the words of `docker run`, of the engine and of Ray's start."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import digest
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import settings as vllm_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.services import COMPILED, SHORT, Names
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models as models_known
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.engine import Engine, Start

# Said, because an image may have another home directory than /root.
HUB_HOME = {"HF_HOME": "/root/.cache/huggingface"}
# Where what is compiled lies in a container with a warm cache: of vLLM, Triton, FlashInfer and the driver.
WARM_HOME = {
    "VLLM_CACHE_ROOT": "/root/.cache/vllm",
    "TRITON_CACHE_DIR": "/root/.cache/triton",
    "FLASHINFER_WORKSPACE_BASE": "/root",
    "CUDA_CACHE_PATH": "/root/.cache/nv",
}
# What the fabric says differs from host to host, and no rule looks at its values.
OF_ANY_FABRIC = {"VLLM_HOST_IP": "HOST", "NCCL_SOCKET_IFNAME": "RAIL", "GLOO_SOCKET_IFNAME": "RAIL"}
_TOKEN_OF_RAY = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/gb10-ray.token"}
_RAY_START = "/gb10-ray-start"
_LENGTH = 12  # digits of a digest that tell image and model of a folder
_UNPRIVILEGED = 1024  # the first port that needs no capability
_TRAITS_BY_FLAG = {
    "privileged": {"--privileged"},
    "memory_limit": {"--memory", "-m"},
    "restart_policy": {"--restart"},
    "published_port": {"--publish", "--publish-all", "-p", "-P"},
    "detached": {"--detach", "-d"},
}


def environment(engine: Engine, settings: VllmSettings, of_the_fabric: Mapping[str, str]) -> dict[str, Any]:
    """The container's environment, where the later word counts. `of_the_fabric` is empty on a host by itself."""
    return {
        **engine.environment(settings.vllm_ready_timeout),
        **HUB_HOME,
        **({"HF_HUB_OFFLINE": 1} if settings.vllm_fetch else {}),
        **(WARM_HOME if settings.warm else {}),
        **({"NCCL_DEBUG": "WARN"} if of_the_fabric else {}),  # why it fails, it says only then
        **of_the_fabric,
        **(catalog.load("units")["ray"]["environment"]["value"] if settings.by_ray else {}),
        **settings.vllm_environment,
        **(_TOKEN_OF_RAY if settings.by_ray else {}),
    }


def docker_options(settings: VllmSettings, hosts: int, container: str = Names(SHORT).container) -> list[str]:
    """The options of `docker run` that decide what the container may do.

    With --init, signals reach vLLM, and its dead children are waited for. It is root without root's powers. Only where
    vLLM downloads by itself it keeps those over files, for a cache that belongs to somebody else.
    """
    score = catalog.load("memory")["protection"]["model_oom_score"]["value"]
    return [
        *("--rm", "--init", "--name", container, "--pull", "never"),
        *("--network", "host", "--ipc", "host", "--device", "nvidia.com/gpu=all"),
        *("--security-opt", "no-new-privileges", "--cap-drop", "ALL"),
        *(
            ()
            if settings.vllm_fetch or not settings.vllm_model
            else ("--cap-add", "DAC_OVERRIDE", "--cap-add", "FOWNER")
        ),
        *(("--cap-add", "NET_BIND_SERVICE") if settings.vllm_port < _UNPRIVILEGED else ()),
        # A dump would hold prompts and keys, and as much as the model's memory.
        *("--ulimit", "memlock=-1", "--ulimit", "core=0", "--oom-score-adj", str(score)),
        *(("--device", "/dev/infiniband", "--cap-add", "IPC_LOCK") if hosts > 1 else ()),
        *(word for name, value in settings.vllm_ulimits.items() for word in ("--ulimit", f"{name}={value}")),
        *(word for option in settings.vllm_security_options for word in ("--security-opt", option)),
    ]


def files(settings: VllmSettings, names: Names, *, secrets: bool, gid: bool) -> list[str]:
    """The options of `docker run` that name files of the host."""
    return [
        *(("--env-file", names.gid_file) if gid else ()),
        *(("--env-file", names.secrets) if secrets else ()),
        *_cache(settings, names),
        *(word for mount in settings.vllm_mounts for word in ("--volume", mount)),
        *(("--volume", f"/usr/local/lib/gb10-fleet/gb10-ray-start:{_RAY_START}:ro") if settings.by_ray else ()),
        *(
            ("--volume", f"/etc/gb10-fleet/ray.token:{_TOKEN_OF_RAY['RAY_AUTH_TOKEN_PATH']}:ro")
            if settings.by_ray
            else ()
        ),
    ]


def _cache(settings: VllmSettings, names: Names) -> list[str]:
    """Fetched models are there to be read: what a container changed in them, the next one would serve."""
    if not settings.vllm_fetch:
        return ["--volume", f"{settings.vllm_cache_directory}:/root/.cache"]
    folder = compiled(settings, names)
    return [*(("--volume", f"{folder}:/root/.cache") if folder else ()), "--volume", models(settings)]


def compiled(settings: VllmSettings, names: Names) -> str:
    """The folder of the host that the container compiles to; empty where it has none.

    Another image or model of this service has another one, by what the inventory says of them: a tag or a branch that
    moves stays the same.
    """
    if settings.warm or not settings.vllm_fetch:
        return ""
    image, draft = settings.vllm_image.partition("@sha256:")[2] or settings.vllm_image, settings.draft
    of_draft = [draft.model, draft.revision] if draft else []
    made_of = [image, settings.vllm_model, settings.vllm_model_revision, *of_draft]
    return f"{names.compiled}/{digest(made_of)[:_LENGTH]}"


def models(settings: VllmSettings) -> str:
    """Return what is fetched, as Docker mounts it: to be read alone."""
    return f"{settings.vllm_cache_directory}/huggingface/hub:/root/.cache/huggingface/hub:ro"


def written_to(settings: VllmSettings) -> str:
    """The folder of the host that the container fills; with a warm cache it writes to its own layer."""
    if settings.warm:
        return "/var/lib/docker"
    return COMPILED if settings.vllm_fetch else settings.vllm_cache_directory


def words(
    engine: Engine,
    settings: VllmSettings,
    hosts: int,
    rank: int,
    head: str,
    own: Mapping[str, Any] | None = None,
    memory_gib: float = 0.0,
) -> list[str]:
    """The words after the engine's program. `head` is the address of the cluster's first host, `own` of its entry."""
    tensor, pipeline = parallel(settings, hosts)
    start = Start(
        model=settings.vllm_model,
        revision=settings.vllm_model_revision,
        served_name=settings.served_name,
        further_names=settings.vllm_further_names,
        share=settings.vllm_gpu_memory_utilization,
        memory_gib=memory_gib,
        context=settings.vllm_max_model_len,
        address=settings.vllm_host,
        port=settings.vllm_port,
        further=settings.vllm_extra_args,
        key=bool(settings.vllm_api_key),
        hosts=hosts,
        rank=rank,
        tensor=tensor,
        pipeline=pipeline,
        executor=settings.vllm_executor,
        head=head,
        meeting_port=settings.vllm_master_port,
        draft=settings.speculative,
        adapters=settings.adapters,
        own=own or {},
    )
    return [str(word) for word in engine.words(start)]


def started(settings: VllmSettings, program: str) -> list[str]:
    """What of `docker run` starts a program of the image.

    NGC's own entrypoint does it in NGC's images: on a driver older than their CUDA it chooses libraries that fit it.
    """
    image, own = image_name(settings.vllm_image), models_known.entrypoint(settings.vllm_image)
    return ["--entrypoint", own, image, program] if own else ["--entrypoint", program, image]


def serve_words(settings: VllmSettings, hosts: int, rank: int, head: str) -> list[str]:
    """The words after `vllm serve MODEL`, by which rules, measurements and warm caches go."""
    _serve, _model, *flags = words(vllm.ENGINE, settings, hosts, rank, head)
    return flags


def parallel(settings: VllmSettings, hosts: int) -> tuple[int, int]:
    """On how many hosts each layer lies, and how many stages of such hosts there are."""
    tensor = settings.vllm_tensor_parallel_size or hosts
    return tensor, int(hosts / tensor)


def ray_words(settings: VllmSettings, own: str, hosts: Sequence[str]) -> list[str]:
    """The words of gb10-ray-start, which each container runs; on the head `-- vllm serve ...` follows them."""
    options = {**catalog.load("units")["ray"]["options"]["value"], **vllm_settings.ports_of_ray()}
    return [
        *(_RAY_START, "--own", own, "--hosts", ",".join(hosts)),
        *("--port", str(settings.vllm_ray_port), "--timeout", str(settings.vllm_ready_timeout)),
        *(f"--{name}={value}" for name, value in options.items()),
    ]


def image_name(image: str) -> str:
    """The name that every host gives the image: one that came from another host has no digest to be called by."""
    __, at, digest = image.partition("@sha256:")
    if at:
        return f"gb10-fleet/vllm:{digest[:12]}"
    return f"gb10-fleet/vllm:tag-{re.sub('[^A-Za-z0-9_.-]', '-', image)[-120:]}"


def traits(options: Sequence[str], ray: Sequence[str]) -> frozenset[str]:
    """Return what the rules of serving ask about a container, in their words, of its `docker run` and of its Ray."""
    said = {word.partition("=")[0] for word in options}
    found = {trait for trait, flags in _TRAITS_BY_FLAG.items() if said & flags}
    if "/dev/infiniband" not in options:
        found.add("no_infiniband")
    if not {"IPC_LOCK", "memlock=-1"} <= set(options):
        found.add("no_memlock")
    if ray and not any(word.startswith("--object-store-memory=") for word in ray):
        found.add("ray_object_store_default")
    return frozenset(found)
