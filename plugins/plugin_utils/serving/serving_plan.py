# SPDX-License-Identifier: GPL-3.0-or-later
"""How to serve a model on these hosts: checkpoint, image, flags, memory, speed, and every rule that fires."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import (
    engine,
    inventory_text,
    measured,
    memory_fit,
    models,
    plan_lines,
    plan_text,
    quantization,
    speculation,
    speed,
    tasks,
    vllm_cli,
    ways_out,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import choice
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.choice import Comparison
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Checkpoint, Expected, Flags, Image, Model

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_rules import Command
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.vllm_cli import Fired

Judge = Callable[["Command", tuple[tuple[str, str], ...]], Sequence["Fired"]]
EXECUTORS = ("mp", "ray")
# What the role says on each host, with values of its own that no rule looks at.
OF_EACH_HOST = {
    "VLLM_ENGINE_READY_TIMEOUT_S": "1800",
    "VLLM_HOST_IP": "192.0.2.1",
    **dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), "enp1s0f0np0"),
    "RAY_AUTH_MODE": "token",
}


class PlanError(ValueError):
    """A question that cannot be answered as it was put; the text names the field, the fact and the way out."""


@dataclass(frozen=True)
class Given:
    """What the question named beside the model, for the inventory to name it again."""

    revision: str = ""
    facts: str = ""  # file of facts
    draft: str = ""  # the same of a second model
    service: str = ""  # the entry of vllm_services that it is to be; empty: the short form
    service_gib: float = 0.0  # what that may take of each host; 0: what the plan takes


@dataclass(frozen=True)
class Plan:
    """One way to serve a model, or why there is none."""

    model: Model
    checkpoint: Checkpoint | None
    image: str
    known_image: Image | None
    version: str | None  # of vLLM in the image
    hosts: int
    fit: memory_fit.Fit | None
    arguments: Flags = field(default_factory=dict)  # of `vllm serve MODEL`, alike on all hosts
    environment: Mapping[str, str] = field(default_factory=dict)
    expected: Expected | None = None
    bound: speed.Bound = field(default_factory=speed.Bound)
    path: Sequence[str] = ()  # how the checkpoint was chosen
    reasons: Sequence[str] = ()  # why the flags
    because: Mapping[str, str] = field(default_factory=dict)  # why each flag and each variable of the environment
    rejected: Sequence[tuple[str, str]] = ()
    fired: Sequence[Fired] = ()
    hosts_needed: int | None = None  # where nothing fits: on how many hosts like the smallest something does
    asked: Sequence[str] = ()  # the options that leave less to choose from
    less: Sequence[str] = ()  # where nothing fits: what would, of each option that was asked
    given: Given = field(default_factory=Given)
    memory_gib: int = 0  # of the smallest host

    @property
    def args(self) -> tuple[str, ...]:
        """The words of the command line, without `vllm serve MODEL` and what differs from host to host."""
        return tuple(
            word for flag, value in self.arguments.items() for word in ((flag,) if value is None else (flag, value))
        )

    @property
    def utilization(self) -> float:
        return self.fit.utilization if self.fit else 0.0

    @property
    def max_model_len(self) -> int:
        return self.fit.max_model_len if self.fit else 0

    @property
    def refused(self) -> bool:
        """Nothing of the model can be served like this, or a rule forbids it and nobody has accepted that."""
        return self.checkpoint is None or any(rule.refuses for rule in self.fired)

    @property
    def variables(self) -> dict[str, Any]:
        """What says the same to the role vllm in an inventory."""
        if not self.given.service:
            return plan_lines.variables(self)
        entry = {name.removeprefix("vllm_"): value for name, value in plan_lines.entry(self).items()}
        return {"vllm_services": {self.given.service: entry}}

    def as_dict(self) -> dict[str, Any]:
        """For JSON and for Ansible."""
        return {
            "model": self.model.id,
            "task": tasks.as_dict(self.model),
            "checkpoint": self.checkpoint.id if self.checkpoint else None,
            "quantization": self.checkpoint.quantization if self.checkpoint else None,
            "image": self.image,
            "version": self.version,
            "hosts": self.hosts,
            "args": list(self.args),
            "environment": dict(self.environment),
            "utilization": self.utilization,
            "max_model_len": self.max_model_len,
            "fit": asdict(self.fit) if self.fit else None,
            "expected": asdict(self.expected) if self.expected else None,
            "predicted": asdict(self.predicted) if self.predicted else None,
            "verdict": plan_text.verdict(self),
            "bandwidth_limit": round(self.bound.plain, 1),
            "bandwidth_limit_with_drafts": round(self.bound.plain * self.bound.accepted, 1),
            "path": list(self.path),
            "reasons": list(self.reasons),
            "hosts_needed": self.hosts_needed,
            "rejected": [{"checkpoint": name, "reason": reason} for name, reason in self.rejected],
            "fired": [asdict(rule) for rule in self.fired],
            "refused": self.refused,
            **self.comparison.as_dict(),
            "variables": self.variables,
        }

    def lines(self, explain: bool = False) -> list[str]:
        """For a person to read."""
        return plan_text.lines(self, explain)

    @property
    def does_not_fit(self) -> bool:
        """Return whether it is the memory that speaks against all checkpoints, or the context that was asked for."""
        return bool(self.less) or quantization.is_servable(self.model, self.version)

    @property
    def inventory_lines(self) -> list[str]:
        """YAML that can be pasted into the variables of the hosts. A consent is for the reader to give."""
        if self.given.service:
            return inventory_text.entry(self.given.service, plan_lines.entry(self))
        return inventory_text.lines(self.variables)

    @property
    def predicted(self) -> speed.Predicted | None:
        """Of one request, by the memory's bandwidth; with draft tokens where it is known how many are accepted."""
        return speed.predicted(self.bound)

    @property
    def measured(self) -> Expected | None:
        """What is published of the same checkpoint, version and draft tokens; of another version it proves nothing."""
        found = self.expected
        if found is None or found.at_most or not found.version or found.version != self.version:
            return None
        return found if found.drafting_alike(self.bound.method, self.bound.drafts) else None

    @property
    def expectation(self) -> str:
        """Return how fast, in a few words."""
        found = self.measured or self.predicted
        return found.text if found else "speed not known"

    @property
    def speed(self) -> str:
        """Return how fast one request is, and how that is known."""
        if not tasks.chats(self.model):
            return tasks.speed(self.model)
        if self.measured:
            return f"{self.measured.text} ({self.measured.conditions}; {self.measured.source})"
        if self.predicted is None:
            return f"not measured; {self.bound.text}"
        return f"{self.predicted.text} for one request, not measured: {self.bound.why}"

    @property
    def published(self) -> str:
        """What somebody measured with something else: no pass mark for this plan."""
        found = self.expected
        if found is None or found == self.measured:
            return ""
        apart = "with draft tokens, " if found.drafts and not self.bound.drafts else ""
        return f"{found.text} ({apart}{found.conditions}; {found.source})"

    @property
    def comparison(self) -> Comparison:
        """Return which engines can serve it, where that is more than vLLM."""
        return choice.compare(self)

    def explained(self) -> list[str]:
        found = ["  how the checkpoint was chosen", *(f"    {step}" for step in self.path)]
        if self.reasons:
            found += ["  why these flags", *(f"    {reason}" for reason in self.reasons)]
        for rule in self.fired:
            verified = "" if rule.verified else "; not verified for this version"
            found.append(f"  {rule.id}: {'; '.join(rule.sources)}{verified}")
        for claim in self.model.claims:
            word = "followed" if claim["followed"] else "not followed"
            found.append(f"  claim, {word}: {claim['claim']} ({claim['source']})")
            found.append(f"    against it: {claim['against']}")
        if self.known_image:
            known = self.known_image
            found.append(f"  image: {known.name}; {known.source} ({known.confidence})")
            for word, parts in (("has", known.contains), ("lacks", known.lacks)):
                found += [f"    {word} {', '.join(sorted(parts))}"] if parts else []
        return found


def plan(
    model_name: str,
    memories_bytes: Sequence[float],
    image: str = "",
    version: str = "",
    max_model_len: int = 0,
    concurrency: int = 0,
    only: str = "",
    settings: Flags | None = None,
    accepted: Mapping[str, str] | None = None,
    executor: str = "mp",
    driver: str | None = None,
    judge: Judge | None = None,
    facts: ModelFacts | None = None,
    draft: ModelFacts | None = None,
    given: Given | None = None,
    starts: measured.Starts | None = None,
    asked: engine.Asked | None = None,
) -> Plan:
    """Return how to serve a model on hosts with this memory (MemTotal of each, in bytes).

    `facts` are those of the model's own files, and `draft` those of a second model that proposes tokens for it.
    `model_name` is the id of a model, or of one of its checkpoints, which then is the only one; `only` names a format
    or a checkpoint. `version` is vLLM's in an image that the catalog does not know. `settings` are flags of `vllm
    serve` that take the place of what the plan would say; `accepted` reasons by the id of a rule.
    `starts` are those that hosts have measured, `asked` is what vLLM itself says, where no host has measured.
    """
    flags = {canonical(flag): value for flag, value in (settings or {}).items()}
    facts = tasks.by_flags(facts, flags)
    length = _tokens(flags, "--max-model-len") or max_model_len
    model = models.of_facts(facts, length) if facts else _known(model_name)
    _check(memories_bytes, executor, version)
    # In whole GiB: an update of the kernel moves MemTotal by some MiB, and must not change what is served.
    smallest = float(min(memories_bytes) // memory_fit.GIB * memory_fit.GIB)
    load = tasks.load(model, speculation.load(flags, model, draft), length)
    reference = image or catalog.load("software")["vllm_image"]["value"]
    known = models.image(reference)
    used = version or (known.version if known else None)
    hosts = len(memories_bytes)
    kv_dtype = tasks.kv_dtype(model, flags)
    only = only or ("" if facts or model_name.lower() == model.id.lower() else model_name)
    requests = int(_number(flags, "--max-num-seqs") or concurrency)
    wanted = ways_out.Wanted(only, length, requests, kv_dtype, _number(flags, "--gpu-memory-utilization"), load)
    choice = wanted.choice(model, smallest, hosts, used)
    options = [
        *(["--only"] if only else []),
        *(["--max-model-len"] if max_model_len else []),
        *(["--concurrency"] if concurrency else []),
        *(f"--set {flag.lstrip('-')}" for flag in flags),
    ]
    found = Plan(model, None, reference, known, used, hosts, None, path=choice.path, rejected=choice.rejected)
    found = replace(found, asked=options, given=given or Given(), memory_gib=int(smallest // memory_fit.GIB))
    if choice.checkpoint is None or choice.fit is None:
        found = replace(found, less=wanted.less(found, smallest))
        return _without_checkpoint(found, smallest, only)
    needed = {**_arguments(choice.fit, kv_dtype, load.batched), **_cluster(model, hosts, executor, flags)}
    served = _served(found, choice.checkpoint, choice.fit, kv_dtype, needed, flags)
    served = _learned(served, wanted, smallest, starts or {}, flags, asked)
    return _judged(served, accepted or {}, driver, judge, draft)


def _without_checkpoint(found: Plan, smallest: float, only: str) -> Plan:
    """On how many hosts something would fit; an error where nothing has that name."""
    model = found.model
    if not found.rejected:
        offered = ", ".join(f"{item.id} ({item.quantization})" for item in model.checkpoints)
        raise PlanError(f"{model.id} has no checkpoint {only!r}; it has {offered}")
    return replace(found, hosts_needed=quantization.hosts_needed(model, smallest, found.version, only))


def _check(memories_bytes: Sequence[float], executor: str, version: str) -> None:
    if not memories_bytes or min(memories_bytes) < memory_fit.GIB:
        raise PlanError("memories: name the memory of each host, in bytes and at least 1 GiB")
    if executor not in EXECUTORS:
        raise PlanError(f"executor {executor!r} is none of {', '.join(EXECUTORS)}")
    if wrong := vllm_cli.wrong_version(version):
        raise PlanError(f"the image's version is {wrong}")


def _served(
    found: Plan, checkpoint: Checkpoint, fit: memory_fit.Fit, kv_dtype: str, computed: Flags, flags: Flags
) -> Plan:
    """The plan with its checkpoint, and what that wants said to vLLM beside what was computed."""
    model, hosts = found.model, found.hosts
    needs = quantization.needs(model, checkpoint, found.version, kv_dtype)
    of_task, why = tasks.flags(model, found.version)
    environment = dict(needs.environment)
    if computed.get("--distributed-executor-backend") == "ray":
        environment |= catalog.load("units")["ray"]["environment"]["value"]
    chats, tensor = tasks.chats(model), int(_number(computed, "--tensor-parallel-size"))
    words = ", ".join(f"{flag} {value}" for flag, value in of_task.items())
    return replace(
        found,
        checkpoint=checkpoint,
        fit=fit,
        arguments={**computed, **needs.arguments, **of_task, **flags},
        environment=environment,
        expected=speed.expected(model, checkpoint, hosts, found.version) if chats else None,
        bound=speed.bound(model, checkpoint, hosts, speculation.said(flags), tensor) if chats else speed.Bound(),
        reasons=(*needs.reasons, *((f"{words}: {why}",) if of_task else ())),
        because={**_because(fit, model, hosts), **needs.because, **dict.fromkeys(of_task, why)},
    )


def _learned(
    served: Plan,
    wanted: ways_out.Wanted,
    smallest: float,
    starts: measured.Starts,
    flags: Flags,
    asked: engine.Asked | None,
) -> Plan:
    """The same counted with what a host has measured of it, else with what vLLM says; it may not fit any more."""
    checkpoint = served.checkpoint
    if checkpoint is None:
        return served
    revision = served.given.revision
    about = measured.about(served.image, checkpoint.id, revision, served.version, served.args, served.hosts)
    start = measured.find(starts, about)
    model, start = engine.counted_with(served.model, start, asked, served.hosts)
    served = replace(served, model=model)
    if start is None:
        return served
    wanted = replace(wanted, only=checkpoint.id, load=replace(wanted.load, measured=start))
    again = wanted.choice(served.model, smallest, served.hosts, served.version)
    if again.checkpoint is None or again.fit is None:
        less = wanted.less(served, smallest)
        return replace(served, checkpoint=None, fit=None, rejected=again.rejected, less=less)
    counted = _arguments(again.fit, wanted.kv_dtype, wanted.load.batched)
    return replace(served, fit=again.fit, arguments={**served.arguments, **counted, **flags})


def canonical(flag: str) -> str:
    """A flag as vLLM's help has it: `max_model_len` is `--max-model-len`. Short forms stay."""
    return flag if flag.startswith("-") and not flag.startswith("--") else "--" + flag.lstrip("-").replace("_", "-")


def usual_memory_gib() -> float:
    """MemTotal of a Spark."""
    memory: float = catalog.load("models")["fit"]["memory"]["value"]
    return memory


def pairs(memory_bytes: float = 0.0, image: str = "", version: str = "") -> Iterator[tuple[Plan, Plan]]:
    """Yield the plans of every model on one host and on two, without the rules, which are for one plan."""
    memory = memory_bytes or usual_memory_gib() * memory_fit.GIB
    for model in models.models():
        one, two = (plan(model.id, [memory] * hosts, image, version, judge=lambda *__: []) for hosts in (1, 2))
        yield one, two


def _known(name: str) -> Model:
    if model := models.find(name):
        return model
    near = models.nearest(name)
    hint = f"; near it: {', '.join(near)}" if near else ""
    raise PlanError(
        f"{name} is not in catalog/models.yml{hint}. `gb10 plan --all` lists what is; of any other model the facts are "
        "needed: a folder with its files, or --facts FILE"
    )


def _tokens(flags: Flags, flag: str) -> int:
    """As vLLM reads it, 32k and 8_192 too; `auto` is as many as fit."""
    text = flags.get(flag)
    if text is None or text.lower() in ("auto", "-1"):
        return 0
    try:
        value = vllm_cli.size(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise PlanError(f"{flag} is {text!r}; give a number above 0 like 32768 or 32k, or auto")
    return value


def _number(flags: Flags, flag: str) -> float:
    text = flags.get(flag)
    if text is None:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value <= 0:
        raise PlanError(f"{flag} is {text!r}; give a number above 0")
    return value


def _arguments(fit: memory_fit.Fit, kv_dtype: str, batched: int) -> dict[str, str | None]:
    return {
        "--max-model-len": str(fit.max_model_len),
        "--max-num-seqs": str(fit.concurrency),
        "--max-num-batched-tokens": str(batched or catalog.load("models")["fit"]["batched_tokens"]["value"]),
        "--gpu-memory-utilization": f"{fit.utilization:.2f}",
        **({} if kv_dtype == "auto" else {"--kv-cache-dtype": kv_dtype}),
    }


def _because(fit: memory_fit.Fit, model: Model, hosts: int) -> dict[str, str]:
    """Return why what was computed is as it is."""
    data, uneven = catalog.load("models")["fit"], memory_fit.uneven(model.geometry, hosts)
    return {
        "--max-model-len": fit.reason or f"what each of {fit.concurrency} requests at once has room for",
        "--max-num-seqs": data["concurrency"]["source"],
        "--max-num-batched-tokens": data["batched_tokens"]["source"],
        "--gpu-memory-utilization": f"the model takes {fit.needed:.1f} of {fit.total:.0f} GiB on each host",
        "--kv-cache-dtype": data["kv_cache_dtype"]["source"],
        "--tensor-parallel-size": f"{uneven}, so hosts share the layers" if uneven else "hosts share each layer",
    }


def _cluster(model: Model, hosts: int, executor: str, flags: Flags) -> dict[str, str | None]:
    if hosts == 1:
        return {}
    tensor, pipeline = memory_fit.parallel(model.geometry, hosts, int(_number(flags, "--tensor-parallel-size")))
    return {
        "--tensor-parallel-size": str(tensor),
        **({"--pipeline-parallel-size": str(pipeline)} if pipeline > 1 else {}),
        "--distributed-executor-backend": executor,
        **({"--nnodes": str(hosts)} if executor == "mp" else {}),
    }


def _judged(
    found: Plan, accepted: Mapping[str, str], driver: str | None, judge: Judge | None, draft: ModelFacts | None
) -> Plan:
    if found.checkpoint is None:  # there is nothing that could start
        return found
    # Only where something is judged: the rules are a catalog of their own to read.
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import rules, serving_rules

    command = serving_rules.Command(
        model=found.checkpoint.id,
        image=found.image,
        version=found.version,
        args=found.args,
        environment=tuple({**OF_EACH_HOST, **found.environment}.items()),
        hosts=found.hosts,
        driver=driver,
        facts=found.model.facts,
        draft=draft,
    )
    said = (judge or serving_rules.fired)(command, tuple(accepted.items()))
    fired = [ways_out.not_circular(found, one) for one in said]
    # What the role refuses whatever is accepted, is refused here too.
    return replace(found, fired=tuple(replace(one, accepted=None) if one.id in rules.FIRM else one for one in fired))
