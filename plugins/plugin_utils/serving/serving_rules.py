# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules of serving say about a vLLM that would start: of a plan, of a recipe, and of the role on a host.

It is said before anything is touched. What the rules rest on are catalogs of their own, which only hosts that serve
read; equal commands are judged once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import (
    engine,
    fabric_names,
    measured,
    memory_fit,
    models,
    named,
    rules,
    speculation,
    tasks,
    vllm_cli,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import known, on_host
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Checkpoint, Flags, Model
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.vllm_cli import Fired

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

# vLLM finds the context that fits by itself, or is told a longer one than the model was made for.
_ANY_LENGTH = ("auto", "-1")
_STRETCHED = ("--hf-overrides", "VLLM_ALLOW_LONG_MAX_MODEL_LEN")
Values = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Command:
    """What would be started, with all that a verdict depends on."""

    model: str
    image: str
    version: str | None  # of vLLM in it; None: what the catalog knows of the image
    args: tuple[str, ...]  # words of `vllm serve MODEL`
    environment: tuple[tuple[str, str], ...]
    hosts: int = 1
    driver: str | None = None
    facts: ModelFacts | None = None
    draft: ModelFacts | None = None  # of the second model that drafts
    api_key: bool = False
    gateway: bool = False  # in front of it
    memory: str = ""  # why the model does not fit
    container: frozenset[str] = frozenset()  # words of catalog/rules.yml
    fabric: tuple[tuple[str, str], ...] = ()  # what speaks against names of the fabric
    engine: str = ""  # why vLLM itself does not take the model


@dataclass(frozen=True)
class Refusal:
    """A rule that refuses, by its id, with fact and way out."""

    id: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """What refuses, and what only warns or was accepted."""

    refusals: tuple[Refusal, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()


def judge(
    view: View,
    *,
    model: str,
    image: str,
    version: str,
    args: Sequence[str],
    environment: Mapping[Any, Any],
    api_key: str,
    accepted: Mapping[Any, Any],
    container: frozenset[str],
    revision: str = "",
    facts: str = "",
    draft_facts: str = "",
    cache: str = "",
    by_hand: Mapping[Any, Any] | None = None,
    starts: measured.Starts | None = None,
    asked: engine.Asked | None = None,
) -> Verdict:
    """The verdict for one host of a cluster.

    `args` are the words of `vllm serve MODEL` on this host. `version` is vLLM's in an image that the catalog does not
    know. Of `accepted`, {rule: reason}, a reason is a text. `container`: words of catalog/rules.yml. `facts` and
    `draft_facts` are files of facts on this machine; FactsError where one cannot be read. `cache`: of models, on the
    host. `by_hand`: of the environment, what an inventory says. `starts`: what hosts have measured, the nearest first;
    `asked`: what vLLM itself has said.
    """
    words = tuple(args)
    given = {str(name): str(value) for name, value in environment.items()}
    reasons = {str(name): reason if isinstance(reason, str) else "" for name, reason in accepted.items()}
    driver = view.facts["driver"]
    values = {**_values(version_in(image, version), words), **{name: (value,) for name, value in given.items()}}
    flags, found = _last(values), known.here(model, revision, facts)
    if found is None and models.find(model) is None:
        found = _on_host(view, model, revision, cache)
    found, draft = tasks.by_flags(found, flags), _draft(flags, draft_facts)
    about = measured.about(image, model, revision, version_in(image, version), words, view.size)
    took = measured.find(starts or {}, about)
    command = Command(
        model=model,
        image=image,
        version=version,
        args=words,
        environment=tuple(sorted(given.items())),
        hosts=view.size,
        driver=driver["userland"] or driver["module_loaded"],
        facts=found,
        draft=draft,
        api_key=bool(api_key),
        gateway=bool(view.variables.get("gateway_address")),
        memory=_too_small_here(view, model, values, found, draft, took, asked),
        container=container,
        fabric=tuple(fabric_names.objections(by_hand or {}, view.facts, view.host).items()) if view.size > 1 else (),
        engine=engine.refusal(asked.said, model) if asked else "",
    )
    return verdict(fired(command, tuple(sorted(reasons.items()))))


def verdict(objections: Sequence[Fired]) -> Verdict:
    """What becomes of objections, of any engine."""
    return Verdict(
        tuple(Refusal(each.id, _refusal(each)) for each in objections if each.refuses),
        tuple(_finding(each) for each in objections if each.accepted or each.severity == "warn"),
    )


@cache
def fired(command: Command, accepted: tuple[tuple[str, str], ...] = ()) -> tuple[Fired, ...]:
    """Every rule that says something of this command; `accepted` are pairs of a rule and a reason."""
    return tuple(rules.judge(profile(command), dict(accepted)))


def profile(command: Command) -> rules.Profile:
    """What the rules are asked about."""
    image, version = models.image(command.image), version_in(command.image, command.version)
    entry = models.of_facts(command.facts) if command.facts else models.find(command.model)
    checkpoint, said = _checkpoint(entry, command.model), named.read(command.model)
    flags = _last(_values(version, command.args))
    objections = speculation.objections({**flags, **dict(command.environment)}, version, entry, command.draft)
    return rules.Profile(
        model=command.model,
        traits=entry.traits if entry else said.traits,
        quantization=checkpoint.quantization if checkpoint else None if entry else said.quantization,
        by_name=entry is None,
        image=command.image,
        version=version,
        contains=image.contains if image else frozenset(),
        lacks=image.lacks if image else frozenset(),
        cuda=image.cuda if image else None,
        args=command.args,
        environment=dict(command.environment),
        hosts=command.hosts,
        executor=flags.get("--distributed-executor-backend") or "mp",
        driver=command.driver,
        api_key=command.api_key,
        gateway=command.gateway,
        memory=command.memory,
        uneven=_uneven(entry, flags),
        context_parts=_context_parts(entry, flags),
        speculation=tuple(objections.items()),
        measured=entry.measured if entry else True,
        task=entry.task if entry else models.CHAT,
        architecture=entry.architecture if entry else "",  # of an unknown model the doctor says that it is unknown
        container=command.container,
        encoder_missing=command.facts.encoder_missing if command.facts else False,
        doubts=command.facts.doubts if command.facts else (),
        fabric=command.fabric,
        engine=command.engine,
    )


def _uneven(entry: Model | None, flags: Flags) -> str:
    """What of a layer does not divide by the hosts that are to share it."""
    tensor = flags.get("--tensor-parallel-size") or ""
    if entry is None or not tensor.isdecimal() or int(tensor) < 1:
        return ""
    # Whole experts lie on each host then; of a dense layer beside them nothing is known to be odd.
    whole = "--enable-expert-parallel" in flags
    geometry = replace(entry.geometry, widths=()) if whole else entry.geometry
    return memory_fit.uneven(geometry, int(tensor))


def _context_parts(entry: Model | None, flags: Flags) -> str:
    names = ("--tensor-parallel-size", "--decode-context-parallel-size")
    hosts, parts = (int(said) if (said := flags.get(name) or "").isdecimal() else 0 for name in names)
    return memory_fit.context_parts(entry.geometry, hosts, parts) if entry and hosts >= parts > 1 else ""


def version_in(image: str, version: str | None) -> str | None:
    """Return the version of vLLM in an image: as it was said, or as the catalog knows it."""
    found = models.image(image)
    return version or (found.version if found else None)


def _on_host(view: View, model: str, revision: str, cache: str) -> ModelFacts | None:
    """What the files on the host say, where it was asked for them."""
    path = on_host.path(model, revision, cache)
    return on_host.facts((view.facts.get("model_folders") or {}).get(path), model, revision, view.host)


def _draft(flags: Flags, file: str) -> ModelFacts | None:
    """The facts of the second model that drafts, if there is one."""
    name = speculation.draft_model(flags)
    return known.here(name, str(speculation.said(flags).get("revision") or ""), file) if name else None


def _last(values: Values) -> Flags:
    """Of two equal flags the last one holds."""
    return {flag: (said or [""])[-1] for flag, said in values.items()}


def _too_small_here(
    view: View,
    model: str,
    values: Values,
    facts: ModelFacts | None,
    draft: ModelFacts | None,
    known: memory_fit.Measured | None,
    asked: engine.Asked | None,
) -> str:
    """Why the memory of the smallest host is not enough. Of the others only what they said in this run counts."""
    counted = [view.host] if view.unknown else view.members
    memories = {member: memory(view.cluster_facts[member]) for member in counted}
    smallest = min(memories, key=lambda member: memories[member])
    found = too_small(model, values, memories[smallest], view.size, facts, draft, known, asked)
    return f"on {smallest}, the smallest host of its cluster, {found}" if found and len(counted) > 1 else found


def memory(facts: Mapping[str, Any]) -> int:
    """MemTotal, in which carveouts are missing already, without what is pinned in huge pages."""
    return max(1, int(facts["memory_bytes"] - (facts.get("memory_pinned_bytes") or 0)))


def too_small(
    model: str,
    values: Values,
    memory_bytes: float,
    hosts: int,
    facts: ModelFacts | None = None,
    draft: ModelFacts | None = None,
    known: memory_fit.Measured | None = None,
    asked: engine.Asked | None = None,
) -> str:
    """Why a model cannot be served like this, and what would fit; else empty. Of an unknown one its name is read.

    `values` are those of flags and variables, by name. What is `known` by a start goes before what vLLM was `asked`.
    """
    entry = models.of_facts(facts, _length(values, 0)) if facts else models.find(model)
    checkpoint = _checkpoint(entry, model)
    share = _share(values)
    if entry is None:
        return named.too_small(model, memory_bytes, hosts, share, "--quantization" in values)
    if checkpoint is None or not share:
        return ""
    if checkpoint.quantization == "bf16" and "--quantization" in values:  # of another size in memory
        return ""
    entry, known = engine.counted_with(entry, known, asked, hosts)
    length = _length(values, entry.geometry.context)
    if length > entry.geometry.context and any(name in values for name in _STRETCHED):
        return ""
    dtype = (values.get("--kv-cache-dtype") or ["auto"])[-1]
    load = replace(speculation.load(_last(values), entry, draft), measured=known)
    found = memory_fit.fit(entry, checkpoint, memory_bytes, hosts, length, 1, dtype, share, load)
    if found.fits:
        return ""
    if load.pinned_gib:
        return f"{found.reason} (leave --kv-cache-memory-bytes out, or name one that fits)"
    best = memory_fit.fit(entry, checkpoint, memory_bytes, hosts, length, 1, dtype, load=load)
    ways = [f"vllm_max_model_len {found.longest_context} fits"] if found.longest_context else []
    if best.fits:
        ways.append(f"vllm_gpu_memory_utilization {best.utilization:.2f} is enough for {length} tokens")
    elif not ways and best.longest_context:
        share_of_best = memory_fit.highest_utilization(best.total)
        ways.append(f"with vllm_gpu_memory_utilization {share_of_best:.2f}, {best.longest_context} tokens fit")
    elif not ways:
        takes = memory_fit.hosts_needed(entry, checkpoint, memory_bytes)
        ways.append(f"it takes {takes} hosts of this memory" if takes else "no number of such hosts is enough")
    return f"{found.reason} ({'; '.join(ways)})"


def _checkpoint(entry: Model | None, name: str) -> Checkpoint | None:
    """Facts have an id of their own: the model may be served from another path than where they were read."""
    if entry is None:
        return None
    return entry.checkpoints[0] if entry.facts else entry.checkpoint(name)


def _share(values: Values) -> float:
    try:
        return float(values["--gpu-memory-utilization"][-1])
    except (KeyError, IndexError, ValueError):
        return 0.0  # the rules say what is wrong with it


def _length(values: Values, context: int) -> int:
    """Tokens of one request, all of which must fit, or vLLM does not start."""
    text = (values.get("--max-model-len") or [str(context)])[-1]
    if text.lower() in _ANY_LENGTH:
        return min(context, int(catalog.load("models")["fit"]["shortest_context"]["value"]))
    try:
        return vllm_cli.size(text)
    except ValueError:
        return context


@cache
def _values(version: str | None, args: tuple[str, ...]) -> Values:
    return vllm_cli.words(version, args).values


def _finding(fired: Fired) -> Mapping[str, Any]:
    return {
        "id": fired.id,
        "severity": fired.severity,
        "fact": fired.text,
        "way_out": f"{fired.way_out}; or {_acceptance(fired)}",
        "accepted": fired.accepted,
    }


def _refusal(fired: Fired) -> str:
    if fired.id in rules.OF_ACCEPTANCE:
        return f"vllm_accept: {fired.text}: {fired.way_out}."
    sources = "; ".join(fired.sources)
    return f"rule {fired.id}: {fired.text}. Fix: {fired.way_out}; or {_acceptance(fired)}. Sources: {sources}."


def _acceptance(fired: Fired) -> str:
    return f"if it does not hold here, vllm_accept: {{{fired.id}: WHY}}"
