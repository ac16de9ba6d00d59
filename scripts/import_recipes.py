"""`python -m scripts.import_recipes FOLDER COMMIT`: the vendor's recipes for Sparks as entries for catalog/recipes.yml.

FOLDER is a checkout of NVIDIA/local-ai-inference-recipes, COMMIT what it is at. A recipe.yaml and the performance.yaml
beside it become one entry; shell scripts in them are read as text and never run. What is not understood is an error
with the field's name, for a flag that is dropped in silence is another configuration.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = "NVIDIA/local-ai-inference-recipes"
FORMATS = (3, 4)
# The role says these itself, or they differ from fleet to fleet.
_OF_THE_ROLE = {"--host", "--port", "--node-rank", "--master-addr", "--master-port", "--headless"}
_OF_THE_FABRIC = {
    *("MN_IF_NAME", "UCX_NET_DEVICES", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_DISABLE", "GLOO_SOCKET_IFNAME"),
    *("OMPI_MCA_btl_tcp_if_include", "TP_SOCKET_IFNAME", "NCCL_IGNORE_CPU_AFFINITY"),
    *("HEAD_IP", "MASTER_PORT", "NODE_RANK", "HF_TOKEN"),
}
# Of `docker run`: what the role has too, with the number of values.
_DOCKER = {"--rm": 0, "-it": 0, "--gpus": 1, "--ipc": 1, "--network": 1, "--shm-size": 1, "--entrypoint": 1}
_CACHE = "/root/.cache/"
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")


class RecipeError(ValueError):
    """A document that is not as described; the text begins with its name and the field."""


def entry(recipe: str, performance: str | None, path: str, commit: str) -> dict[str, Any]:
    """The entry of one recipe. Pure: the two documents as texts, and where they are."""
    read = _document(recipe, "recipe.yaml")
    _described(read)
    hosts = _count(read, "topology.node_count")
    served = _served(_text(read, "serve.command"), "serve.command", hosts)
    _alike(read, served, hosts)
    container = _container(_text(read, "runtime.setup_command"), _text(read, "runtime.image"))
    if served["model"] != _text(read, "checkpoint.target_label"):
        raise RecipeError(f"recipe.yaml: serve.command serves {served['model']}, and not checkpoint.target_label")
    measured = _measured(performance, recipe) if performance is not None else {}
    notes = read.get("notes")
    return {
        "id": f"{path.split('/')[2]}-{hosts}",
        "path": path,
        "commit": commit,
        "status": _text(read, "status"),
        "model": served["model"],
        **{name: measured[name] for name in ("revision",) if name in measured},
        "precision": _text(read, "precision.label"),
        "hosts": hosts,
        "image": _text(read, "runtime.image"),
        **{name: measured[name] for name in ("digest", "version") if name in measured},
        **{name: served[name] for name in ("utilization", "max_model_len") if name in served},
        "arguments": served["arguments"],
        **({"draft": served["draft"]} if served["draft"] else {}),
        **({"environment": both} if (both := {**container.pop("environment"), **served["environment"]}) else {}),
        **({"left_out": left} if (left := container.pop("left_out")) else {}),
        "container": container,
        **{name: measured[name] for name in ("measured", "recipe_sha256") if name in measured},
        **({"notes": str(notes).strip()} if notes else {}),
        "source": f"{REPOSITORY}, recipe.yaml" + (" and performance.yaml" if measured else "; not measured"),
        **({"date": measured["measured"]["date"]} if measured else {}),  # else the day of reading, by who imports
        "confidence": "vendor" if measured else "assumed",
    }


def _document(text: str, name: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"{name}: not YAML: {error}") from None
    if not isinstance(found, dict):
        raise RecipeError(f"{name}: expected a mapping at the top")
    return {**found, "": name}


def _value(document: Mapping[str, Any], path: str) -> Any:
    node: Any = document
    for key in path.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    if node is None:
        raise RecipeError(f"{document['']}: {path} is missing")
    return node


def _text(document: Mapping[str, Any], path: str) -> str:
    found = _value(document, path)
    if not isinstance(found, str) or not found.strip():
        raise RecipeError(f"{document['']}: {path} is {found!r}, and no text")
    return found


def _count(document: Mapping[str, Any], path: str) -> int:
    found = _value(document, path)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise RecipeError(f"{document['']}: {path} is {found!r}, and no number above 0")
    return found


def _number(document: Mapping[str, Any], path: str) -> float:
    found = _value(document, path)
    if not isinstance(found, int | float) or isinstance(found, bool) or found <= 0:
        raise RecipeError(f"{document['']}: {path} is {found!r}, and no number above 0")
    return found


def _described(read: Mapping[str, Any]) -> None:
    """Whether it is a recipe that this reads: of vLLM, on Sparks, in a format that it knows."""
    if read.get("schema_version") not in FORMATS:
        known = " and ".join(map(str, FORMATS))
        raise RecipeError(f"recipe.yaml: schema_version is {read.get('schema_version')!r}; this reads {known}")
    if _text(read, "backend") != "vllm":
        raise RecipeError(f"recipe.yaml: backend is {read['backend']}, and this reads vllm")
    if not _text(read, "hardware").startswith("dgx-spark"):
        raise RecipeError(f"recipe.yaml: hardware is {read['hardware']}, and no dgx-spark")
    if _count(read, "topology.gpu_count") != _count(read, "topology.node_count"):
        raise RecipeError("recipe.yaml: topology.gpu_count is not topology.node_count, and a Spark has one GPU")


def _commands(script: str, field: str) -> Iterator[list[str]]:
    """The commands of a script, each as words; comments and line continuations as a shell has them."""
    for line in re.sub(r"\\\n", " ", script).splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise RecipeError(f"recipe.yaml: {field}: {error}: {line.strip()[:60]}") from None
        if words:
            yield words


def _assignments(words: list[str]) -> dict[str, str]:
    """Those before a command, which are taken off."""
    found = {}
    while words and (match := _ASSIGNED.fullmatch(words[0])):
        found[match[1]] = match[2]
        words.pop(0)
    return found


def _served(script: str, field: str, hosts: int) -> dict[str, Any]:
    """What one node serves, of its shell script."""
    environment: dict[str, str] = {}
    serving: list[list[str]] = []
    for words in _commands(script, field):
        if words[0] == "export":
            words.pop(0)
        environment |= _assignments(words)
        if words[:2] == ["vllm", "serve"]:
            serving.append(words[2:])
        elif words:
            raise RecipeError(f"recipe.yaml: {field}: {words[0]} is no `vllm serve` and no variable")
    if len(serving) != 1 or not serving[0] or serving[0][0].startswith("-"):
        raise RecipeError(f"recipe.yaml: {field}: expected one `vllm serve MODEL`")
    flags = _flags(serving[0][1:], field)
    found = _of_variables(flags, field, hosts)
    return {
        "model": serving[0][0],
        **found,
        "draft": _draft(flags, field),
        "arguments": flags,
        "environment": {name: value for name, value in environment.items() if name not in _OF_THE_FABRIC},
    }


def _flags(words: Sequence[str], field: str) -> dict[str, str | None]:
    """Flags with their values, as vLLM's help writes them."""
    found: dict[str, str | None] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            head, dot, rest = flag.partition(".")
            name = head.replace("_", "-") + dot + rest
            if name in found:
                raise RecipeError(f"recipe.yaml: {field}: {name} is said twice")
            found[name] = value if equals else None
            name = "" if equals else name
        elif name and not word.startswith("-"):
            found[name], name = word, ""
        else:
            raise RecipeError(f"recipe.yaml: {field}: {word!r} belongs to no flag")
    return found


def _of_variables(flags: dict[str, str | None], field: str, hosts: int) -> dict[str, Any]:
    """What the role has a variable for, taken out of the flags."""
    for name, wanted in (("--tensor-parallel-size", hosts), ("--nnodes", hosts), ("--pipeline-parallel-size", 1)):
        if flags.pop(name, str(wanted)) != str(wanted):
            raise RecipeError(f"recipe.yaml: {field}: {name} is not {wanted}, which the entry cannot say")
    for name in _OF_THE_ROLE:
        flags.pop(name, None)
    found: dict[str, Any] = {}
    share = flags.pop("--gpu-memory-utilization", None)
    try:
        found["utilization"] = float(share or "")
    except ValueError:
        raise RecipeError(f"recipe.yaml: {field}: --gpu-memory-utilization is {share!r}, and no number") from None
    if "--max-model-len" in flags:
        length = flags.pop("--max-model-len") or ""
        if length != "auto" and not length.isdigit():
            raise RecipeError(f"recipe.yaml: {field}: --max-model-len is {length!r}, and no number or auto")
        found["max_model_len"] = length if length == "auto" else int(length)
    return found


def _draft(flags: dict[str, str | None], field: str) -> dict[str, Any]:
    """--speculative-config, as JSON or field by field, taken out of the flags."""
    prefix = "--speculative-config"
    try:
        found = json.loads(flags.pop(prefix, None) or "{}")
    except ValueError as error:
        raise RecipeError(f"recipe.yaml: {field}: {prefix} is no JSON: {error}") from None
    for name in [name for name in flags if name.startswith(f"{prefix}.")]:
        value = flags.pop(name) or ""
        found[name.removeprefix(f"{prefix}.")] = int(value) if value.isdigit() else value
    return dict(found)


def _alike(read: Mapping[str, Any], served: Mapping[str, Any], hosts: int) -> None:
    """The other nodes serve what the first serves; the entry has one command for all."""
    for number, each in enumerate(read["serve"].get("additional_commands") or []):
        field = f"serve.additional_commands[{number}].command"
        if _served(str((each or {}).get("command") or ""), field, hosts) != served:
            raise RecipeError(f"recipe.yaml: {field} serves something else than serve.command")


def _container(script: str, image: str) -> dict[str, Any]:
    """What `docker run` gives the container beside what the role gives it."""
    field = "runtime.setup_command"
    exported: dict[str, str] = {}
    runs: list[list[str]] = []
    for words in _commands(script, field):
        if words[0] == "export":
            exported |= _assignments(words[1:])
        elif words[:2] == ["docker", "run"]:
            runs.append(words[2:])
        elif words[0] != "mkdir":
            raise RecipeError(f"recipe.yaml: {field}: {words[0]} is not understood")
    if len(runs) != 1:
        raise RecipeError(f"recipe.yaml: {field}: expected one `docker run`")
    found: dict[str, Any] = {"environment": {}, "left_out": {}}
    named = _options(runs[0], found)
    named = _VARIABLE.sub(lambda match: exported.get(match[1], match[0]), named)
    if named != image:
        found["left_out"]["setup_command"] = f"its docker run names {named}, and runtime.image {image}"
    return found


def _options(words: list[str], found: dict[str, Any]) -> str:
    """Sorts the options of `docker run` into what was found, and returns the image."""
    field = "runtime.setup_command"
    while words and words[0].startswith("-"):
        option, equals, value = words.pop(0).partition("=")
        if _DOCKER.get(option) == 0:
            continue
        if option == "--privileged":
            found["privileged"] = True
            continue
        if not equals:
            if not words:
                raise RecipeError(f"recipe.yaml: {field}: {option} has no value")
            value = words.pop(0)
        if option in ("-e", "--env"):
            name, _, said = value.partition("=")
            found["environment"] |= {} if name in _OF_THE_FABRIC else {name: said}
        elif option in ("-v", "--volume"):
            inside = value.split(":")[1] if ":" in value else ""
            found.setdefault("folders", [])
            found["folders"] += [] if f"{inside}/".startswith(_CACHE) else [inside]
        elif option == "--ulimit":
            name, _, limit = value.partition("=")
            found.setdefault("ulimits", {}).update({} if name == "memlock" else {name: limit})
        elif option == "--security-opt":
            found.setdefault("security_options", []).append(value)
        elif option not in _DOCKER:
            raise RecipeError(f"recipe.yaml: {field}: {option} of docker run is not understood")
    for name in [name for name in ("folders", "ulimits") if not found.get(name, True)]:
        del found[name]
    if not words:
        raise RecipeError(f"recipe.yaml: {field}: docker run names no image")
    return words[0]


def _measured(performance: str, recipe: str) -> dict[str, Any]:
    """What performance.yaml says of this text of the recipe."""
    read = _document(performance, "performance.yaml")
    if read.get("schema_version") != 1:
        raise RecipeError(f"performance.yaml: schema_version is {read.get('schema_version')!r}; this reads 1")
    checksum = _text(read, "recipe_sha256")
    if checksum != hashlib.sha256(recipe.encode()).hexdigest():
        raise RecipeError(
            "performance.yaml: recipe_sha256 is not that of this recipe.yaml: it measured another text of it"
        )
    profiles = read.get("profiles")
    alone = [each for each in profiles if each.get("workload", {}).get("concurrency") == 1] if profiles else []
    if not alone:
        raise RecipeError("performance.yaml: profiles has none with a workload.concurrency of 1")
    profile = {**alone[0], "": "performance.yaml: profiles"}
    means = "tokens_per_second_mean"
    return {
        "revision": _text(read, "software.model_revision"),
        "digest": _text(read, "software.runtime_revision"),
        "version": _text(read, "software.backend_version"),
        "recipe_sha256": checksum,
        "measured": {
            "date": str(_value(read, "measured_at")),
            "driver": _text(read, "system.driver_version"),
            "harness": f"{_text(read, 'harness.name')} {_value(read, 'harness.version')}",
            "dataset": _text(profile, "workload.dataset"),
            "profile": _text(profile, "workload.profile"),
            "system": _text(read, "system.os_version"),
            "cuda": _text(read, "system.cuda_version"),
            "concurrency": 1,
            "requests": _count(profile, "workload.requests"),
            "warm_up": _count(profile, "workload.warmup_requests"),
            "input_tokens": [_count(profile, f"workload.input_tokens_{end}") for end in ("min", "max")],
            "output_tokens": _count(profile, "workload.output_tokens"),
            "context": _count(profile, "workload.context_tokens"),
            "decode": _number(profile, f"results.decode_{means}"),
            "prefill": _number(profile, f"results.prefill_{means}"),
            "latency_s": round(_number(profile, "results.e2e_latency_ms_mean") / 1000, 2),
        },
    }


def entries(root: Path, commit: str) -> Iterator[dict[str, Any]]:
    """Of all recipes for vLLM on Sparks in a checkout."""
    for file in sorted(root.glob("models/*/*/dgx-spark*/linux/vllm/**/recipe.yaml")):
        beside = file.with_name("performance.yaml")
        performance = beside.read_text(encoding="utf-8") if beside.exists() else None
        path = str(file.parent.relative_to(root))
        try:
            yield entry(file.read_text(encoding="utf-8"), performance, path, commit)
        except RecipeError as error:
            raise RecipeError(f"{path}: {error}") from None


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print("Which checkout, at which commit? python -m scripts.import_recipes FOLDER COMMIT", file=sys.stderr)
        return 2
    try:
        found = list(entries(Path(arguments[0]), arguments[1]))
    except RecipeError as error:
        print(error, file=sys.stderr)
        return 1
    print(yaml.safe_dump({"recipes": found}, sort_keys=False, allow_unicode=True, width=130), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
