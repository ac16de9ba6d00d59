"""Images and their trials, for the tests of builds."""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images import archive, build_steps
from ansible_collections.gb10.fleet.plugins.module_utils.images import facts as image_facts
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.acceptance import Trial

from tests.support import images
from tests.support.fatbins import entry, extension

VLLM = f"{images.SITE}/vllm"
C, MOE = (f"{VLLM}/{name}_stable_libtorch.abi3.so" for name in ("_C", "_moe_C"))
STOCK = images.vllm(kernels=extension(entry(90)))
# As many as the released wheel has.
NATIVE: dict[str, images.Content] = {
    C: extension(*[entry(120)] * 85),
    MOE: extension(*[entry(120)] * 27),
}
INSIDE: dict[str, Any] = {
    "versions": {"vllm": "0.33.0", "torch": "2.11.0"},
    "imports": {"vllm": None, "vllm._C_stable_libtorch": None, "vllm._moe_C_stable_libtorch": None},
    "operators": ["_C::rms_norm(Tensor! out) -> ()", "_moe_C::topk(Tensor a) -> Tensor"],
    "libraries": {f"/{C}": ["libcuda.so.1"], f"/{MOE}": []},
}
SERVED = {"verdict": "serving", "text": "answered 2 test questions correctly", "tokens_per_s": 48.6}
BASE_SERVED = {**SERVED, "tokens_per_s": 13.3}


def looked(layers: list[bytes], config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Facts, what Docker would say of it, and the layers."""
    image = archive.of_stream(io.BytesIO(images.docker_archive(layers, config)))
    read = {**image_facts.of("lab/vllm", "archive", image.config, image.layers), "id": "1", "names": [], "digests": []}
    names = [str(hash(layer)) for layer in layers]
    return read, {"RootFS": {"Layers": names}, "Config": config["config"]}, image.layers


BASE_LAYER = images.layer(STOCK)
BASE_FACTS, BASE_TOLD, _ = looked([BASE_LAYER], images.CONFIG)


def trial(
    top: Mapping[str, images.Content] | None = None,
    *,
    config: Mapping[str, Any] = images.CONFIG,
    inside: Mapping[str, Any] | None = None,
    served: Mapping[str, Any] | None = SERVED,
    below: bytes = BASE_LAYER,
) -> Trial:
    read, told, found = looked([below, images.layer(NATIVE if top is None else top)], config)
    return Trial(
        build_steps.difference(BASE_TOLD, told, found),
        read,
        BASE_FACTS,
        {**copy.deepcopy(INSIDE), **(inside or {})},
        INSIDE,
        served,
        BASE_SERVED,
    )


BUILDER = {
    **{"memory_bytes": 120 << 30, "available_bytes": 100 << 30, "cores": 20, "free_bytes": 500 << 30},
    **{"buildx": "0.31.1", "serving": []},
}
ARCHIVE = {"path": "/srv/vllm-0.33.0.tar.gz", "sha256": "c" * 64}
SOURCE = {**ARCHIVE, "commit": "f" * 40, "version": "0.33.0"}
