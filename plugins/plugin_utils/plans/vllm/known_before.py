# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a service before it is planned: what its starts took, and what vLLM said of its model. Pure.

The host itself is looked at first, then those beside it in the service, then siblings that each serve the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import container as vllm_container
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.services import VLLM, Service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import engine, measured, models, serving_rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import vllm


def about(view: View, settings: VllmSettings) -> dict[str, Any]:
    """Return what a start is whose figures are kept, in the words in which a plan asks for them."""
    version = settings.vllm_version or getattr(models.image(settings.vllm_image), "version", None)
    words = vllm_container.serve_words(settings, view.size, view.rank, "HEAD")
    return measured.about(
        settings.vllm_image, settings.vllm_model, settings.vllm_model_revision, version, words, view.size
    )


def _hosts(service: Service) -> dict[str, Mapping[str, Any]]:
    """Return the facts of the hosts that may have served the same."""
    known = {**service.whole.cluster_facts, **service.view.cluster_facts}
    hosts = dict.fromkeys((service.view.host, *service.view.members, *service.siblings))
    return {host: known[host] for host in hosts if host in known}


def starts(service: Service) -> measured.Starts:
    """Return what the hosts have measured, the nearest first."""
    return {host: facts.get("measured") or {} for host, facts in _hosts(service).items()}


def held(service: Service) -> tuple[float, str]:
    """(GiB, host): what a host gave for a start of exactly this; 0 where nobody knows, as of another engine."""
    if service.kind != VLLM or service.engine is not vllm.ENGINE:
        return 0.0, ""
    return measured.held(starts(service), about(service.view, service.planned.settings))


def said(service: Service) -> engine.Asked | None:
    """Return what vLLM has answered to what it would be asked of this service."""
    asks = question(service)
    answers = (
        {**each, "host": host} for host, facts in _hosts(service).items() for each in facts.get("engine_answers") or ()
    )
    return engine.kept(answers, {**asks, "image": asks["images"][0]})


def question(service: Service) -> dict[str, Any]:
    """Return the arguments of gb10.fleet.engine_answer."""
    view, settings = service.view, service.planned.settings
    version = serving_rules.version_in(settings.vllm_image, settings.vllm_version)
    words = vllm_container.serve_words(settings, view.size, view.rank, "HEAD")
    return {
        "images": list(dict.fromkeys((vllm_container.image_name(settings.vllm_image), settings.vllm_image))),
        "model": settings.vllm_model,
        "revision": settings.vllm_model_revision or "main",
        "cache": settings.vllm_cache_directory,
        "flags": engine.flags_of(version, words),
    }
