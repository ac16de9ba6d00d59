# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against serving as an inventory says it, each with the way out; what the rules of serving say apart."""

from __future__ import annotations

import datetime
import re
import shlex
from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses, catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import docker_words, host_folders, waits
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import container as vllm_container
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import secrets as vllm_secrets
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import settings as vllm_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import warm as vllm_warm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import widening as vllm_widening
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import draft_wish, lora, speculation, vllm_cli
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.engine import AUTO, Engine

# Where the library would look elsewhere for the files, or not at all.
_MOVES_THE_FILES = {"HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"}
_MODEL = re.compile(r"[\w/][\w./@:-]*\Z")
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?\Z")
_METHOD = re.compile(r"[a-z][a-z0-9_]*\Z")
_FURTHER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*\Z")
_REVISION = re.compile(r"(\w[\w.-]*)?\Z")
_IMAGE_BY_DIGEST = re.compile(r"\w[\w./:-]*@sha256:[0-9a-f]{64}\Z")
_IMAGE_BY_TAG = re.compile(r"\w[\w./:-]*\Z")
_NOT_ACCEPTED = re.compile(r":(candidate|refused)-[0-9a-f]{12}(@|\Z)")  # tags of the role vllm_image
_SHORT_FLAG = re.compile(r"-(tp|pp|[nr][0-9]*)\Z")  # vLLM takes short forms of some: -n is --nnodes, -r --node-rank
_HEADER = re.compile(r"[!-~]*\Z")
_TOKEN = re.compile(r"[!-~]{32,}\Z")
_LINE_BREAK = re.compile(r"[\n\r\0]")
_SHOWN = 61  # characters of a name that is too long
_ONE_VALUE = (str, int, float, datetime.date)  # as YAML has them; true and false are an int to Python
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def refusals(view: View, settings: VllmSettings, memory_gib: float | None = None) -> Iterator[str]:
    """All of them, in the order of the role's variables. `memory_gib`: as an entry says it instead of a share."""
    for check in (
        _model,
        _speculative,
        _lora,
        _image,
        _cluster,
        _ray,
        _context,
        _listening,
        _bounds,
        _words,
        _name,
        _secrets,
        _registry,
        _directory,
        _source,
        _environment,
        vllm_warm.refusals,
        vllm_widening.refusals,
    ):
        yield from check(view, settings)
    yield from _share(settings, memory_gib)
    if wrong := vllm_cli.wrong_version(settings.vllm_version):
        yield f"vllm_version is {wrong}."


def of_an_engine(view: View, settings: VllmSettings, memory_gib: float | None, engine: Engine) -> Iterator[str]:
    """Of another engine than vLLM: what holds for any, and the flags that are the role's own."""
    of_any = (_model, _speculative, _image, _cluster, _listening, _bounds, _name, _secrets, _registry, _directory)
    for check in (*of_any, _source, _environment):
        yield from check(view, settings)
    yield from vllm_widening.refusals(view, settings)
    yield from _share(settings, memory_gib)
    if set(engine.key_without) & set(settings.vllm_api_key):
        yield f"its key holds {' or '.join(engine.key_without)}, and {engine.title} reads several in it. Make another."
    flags = [word.partition("=")[0] for word in settings.vllm_extra_args]
    if twice := [flag for flag in flags if _is_own(flag, engine)]:
        yield (
            f"extra_args hold {', '.join(twice)}, which the role sets itself, or which no command line of ours has. "
            "Leave it out."
        )
    if secrets := [flag for flag in flags if vllm_secrets.is_flag(flag) and flag not in twice]:
        yield f"extra_args hold {', '.join(secrets)}, and everyone on the host can read them. Leave it out."
    if any(_LINE_BREAK.search(str(word)) for word in (*settings.vllm_extra_args, *settings.vllm_environment.values())):
        yield "extra_args or environment hold a line break. Each is one line."


def of_a_container(view: View, settings: VllmSettings, memory_gib: float | None) -> Iterator[str]:
    """Of a container that is not vLLM's: what holds for any."""
    for check in (_image, _listening, _bounds, _name, _secrets, _registry, _environment, vllm_widening.refusals):
        yield from check(view, settings)
    yield from _share(settings, memory_gib)
    if flags := [word.partition("=")[0] for word in settings.vllm_extra_args if vllm_secrets.is_flag(word)]:
        yield (
            f"args hold {', '.join(flags)}, and everyone on the host can read them. Put the secret into a file that "
            "only root reads: mounts gives it to the container, and a flag or a variable may name its path."
        )
    if docker := docker_words.meant_for_docker(settings.vllm_extra_args):
        yield (
            f"args hold {', '.join(docker)}, which is for `docker run`, and args go to the server inside. Leave it "
            "out; mounts, security_options and ulimits say what the container may."
        )
    if any(_LINE_BREAK.search(str(word)) for word in (*settings.vllm_extra_args, *settings.vllm_environment.values())):
        yield "args or environment hold a line break. Each is one line."
    if any(vllm_secrets.PASSWORD_IN_URL.search(word) for word in settings.vllm_extra_args):
        yield "a URL in args holds a password, and everyone on the host can read it. Name a server that asks for none."


def _model(_view: View, settings: VllmSettings) -> Iterator[str]:
    named = _MODEL.match(settings.vllm_model)
    if not named:
        yield (
            f"vllm_model is '{settings.vllm_model}'. Name the Hugging Face id of the model to serve in the inventory, "
            "for example openai/gpt-oss-120b."
        )
    if settings.vllm_fetch and named and not _HUB_ID.match(settings.vllm_model):
        yield (
            f"vllm_model {settings.vllm_model} is no id of the hub (owner/name), so its files cannot be fetched. "
            "Correct it, or set vllm_fetch to false: then its server gets it by itself."
        )
    if not _REVISION.match(settings.vllm_model_revision):
        yield (
            f"vllm_model_revision is '{settings.vllm_model_revision}'. Name a branch, tag or commit of the model, in "
            "letters, digits, '.', '_' and '-'; empty is main."
        )
    moved = [str(name) for name in settings.vllm_environment if name in _MOVES_THE_FILES]
    if settings.vllm_fetch and moved:
        yield (
            f"vllm_environment sets {', '.join(moved)}, and the model's files are fetched to vllm_cache_directory. Set "
            "that one instead, or vllm_fetch to false."
        )


def _lora(_view: View, settings: VllmSettings) -> Iterator[str]:
    flags = [
        word for word in settings.vllm_extra_args if word.replace("_", "-").startswith(("--lora-mod", "--enable-lora"))
    ]
    if settings.adapters and flags:
        yield f"vllm_lora is set, and vllm_extra_args holds {', '.join(flags)}. Name all adapters in vllm_lora."
    for each in settings.adapters:
        if not _HUB_ID.match(each.model):
            yield f"vllm_lora: {each.name} is of {each.model!a}, which is no id of the hub (owner/name). Correct it."
        if each.revision and not lora.COMMIT.match(each.revision):
            yield (
                f"vllm_lora: {each.name} has the revision {each.revision!a}. Name a commit, 40 hexadecimal digits, or "
                "leave it out for main: vLLM takes no other branch or tag of an adapter."
            )
        if each.revision and not settings.vllm_fetch:
            yield (
                f"vllm_lora: {each.name} has a revision, and vllm_fetch is false. vLLM itself takes main alone: leave "
                "one of the two out."
            )
    further = [*settings.vllm_further_names, *(each.name for each in settings.adapters)]
    most = int(catalog.load("software")["longest_served_name"]["value"])
    for name in (each for each in further if len(each) > most or not _FURTHER_NAME.match(each)):
        yield (
            f"a further name or an adapter is called {name[:_SHOWN]!a}. Name it in letters, digits and ._:/@+-, in "
            f"{most} characters at most."
        )
    if twice := sorted({name for name in further if [settings.served_name, *further].count(name) > 1}):
        yield f"{', '.join(twice)}: two names of one server are alike. Give each adapter and each name its own."


def _speculative(_view: View, settings: VllmSettings) -> Iterator[str]:
    wish = settings.speculative
    flags = [word.partition("=")[0] for word in settings.vllm_extra_args if draft_wish.is_flag(word)]
    if wish is None:
        return
    if flags:
        yield (
            f"vllm_speculative is set, and vllm_extra_args holds {', '.join(flags)}. The server would take one of the "
            "two: leave the flag out, and give its other fields as vllm_speculative.further."
        )
    if not wish.method:
        yield (
            "vllm_speculative has no method. Name it, for example mtp (layers of the model itself), eagle3 or dflash "
            "(a second model), or ngram (no weights)."
        )
    elif not _METHOD.match(wish.method):
        yield f"vllm_speculative.method is {wish.method}. Write one name, for example mtp."
    if many := speculation.too_many(wish.tokens):
        yield f"vllm_speculative.tokens is {wish.tokens}. {many.capitalize()}; 2 to 8 are usual."
    if wish.tokens < 1 and speculation.needs_tokens(wish.method):
        yield f"vllm_speculative.tokens is {wish.tokens}. Say how many tokens are drafted for each step: 1 or more."
    if wish.model and not _MODEL.match(wish.model):
        yield f"vllm_speculative.model is '{wish.model}'. Name the Hugging Face id of the draft model, or its path."
    elif wish.model and settings.vllm_fetch and not _HUB_ID.match(wish.model):
        yield (
            f"vllm_speculative.model {wish.model} is no id of the hub (owner/name), so its files cannot be fetched. "
            "Correct it, or set vllm_fetch to false: then its server gets it by itself."
        )
    if wish.revision and not wish.model:
        yield (
            f"vllm_speculative.revision is '{wish.revision}' and there is no vllm_speculative.model. Layers of the "
            "model itself are of vllm_model_revision: leave it out."
        )
    if not _REVISION.match(wish.revision):
        yield (
            f"vllm_speculative.revision is '{wish.revision}'. Name a branch, tag or commit of the draft model, in "
            "letters, digits, '.', '_' and '-'; empty is main."
        )
    if twice := [name for name in wish.further if name in draft_wish.NAMED]:
        yield f"vllm_speculative.further holds {', '.join(twice)}, which vllm_speculative has a field for. Use that."


def _image(_view: View, settings: VllmSettings) -> Iterator[str]:
    image = settings.vllm_image
    if _NOT_ACCEPTED.search(image):
        yield f"vllm_image {image} was built and not accepted (its evidence says why). Name one that was."
    if "@" in image:
        if not _IMAGE_BY_DIGEST.match(image):
            yield f"vllm_image {image} has an incomplete digest: after @sha256: come 64 hexadecimal digits."
    elif not (settings.vllm_allow_tag and _IMAGE_BY_TAG.match(image)):
        yield (
            f"vllm_image {image} names no digest, so two hosts or two days may run different software. Give"
            f" name@sha256:... (`docker buildx imagetools inspect {shlex.quote(image)}` prints it), or set"
            " vllm_allow_tag to true."
        )


def _cluster(view: View, settings: VllmSettings) -> Iterator[str]:
    of_all = [view.settings(VllmSettings, member) for member in view.members]
    differing = [name for name in vllm_settings.ALIKE if len({each.alike().get(name) for each in of_all}) > 1]
    if len({each.vllm_ray_token for each in of_all}) > 1:
        differing.append("vllm_ray_token")
    if differing:
        yield (
            f"the hosts of its cluster ({', '.join(view.members)}) do not agree on {', '.join(differing)}. They serve "
            "one model together: set it once, on the group."
        )
    tensor, pipeline = vllm_container.parallel(settings, view.size)
    if tensor < 0 or tensor * pipeline != view.size:
        yield (
            f"vllm_tensor_parallel_size {settings.vllm_tensor_parallel_size} does not divide the {view.size} hosts of "
            "its cluster. 0 takes all of them."
        )


def _ray(view: View, settings: VllmSettings) -> Iterator[str]:
    if not settings.by_ray:
        return
    if view.size == 1:
        yield (
            "vllm_executor is ray and it is a cluster of one. Ray joins hosts: leave vllm_executor out, or set "
            "gb10_cluster."
        )
    if not _TOKEN.match(settings.vllm_ray_token):
        yield (
            "vllm_executor is ray, and whoever reaches Ray without a token runs code on its hosts: set vllm_ray_token, "
            "alike on all hosts of the cluster, to 32 or more characters of printable ASCII without blanks "
            "(`openssl rand -hex 32` makes one for your vault)."
        )
    ports, own = settings.ports_in_use(view.size), vllm_settings.ports_of_ray().values()
    taken = [str(port) for port in ports.values() if port in own or port in vllm_settings.workers_of_ray()]
    if taken:
        yield (
            f"{', '.join(taken)}, of {', '.join(ports)}, is one of Ray's own: {', '.join(map(str, own))}, the last two "
            "a range. Choose another."
        )


def _context(_view: View, settings: VllmSettings) -> Iterator[str]:
    if settings.vllm_max_model_len < AUTO:
        yield (
            f"vllm_max_model_len is {settings.vllm_max_model_len}. Name a number of tokens, 0 for the model's own, or "
            "-1 for what fits."
        )


def _share(settings: VllmSettings, memory_gib: float | None) -> Iterator[str]:
    limits = catalog.load("software")["vllm_gpu_memory_utilization"]
    if 0 < settings.vllm_gpu_memory_utilization <= limits["highest"]:
        return
    share = f"vllm_gpu_memory_utilization {settings.vllm_gpu_memory_utilization}"
    if memory_gib is not None:
        share = f"memory_gib {memory_gib:g} is {settings.vllm_gpu_memory_utilization} of the host's memory, which"
    yield f"{share} is not above 0 and at most {limits['highest']}. {limits['note']}".strip()


def _bounds(view: View, settings: VllmSettings) -> Iterator[str]:
    """Figures that no host has, and the port that everybody logs in by."""
    if settings.vllm_memory_gate_gib < 0:
        yield f"vllm_memory_gate_gib is {settings.vllm_memory_gate_gib}. Say how many GiB; 0 is what the service takes."
    if settings.vllm_memory_gate_gib > (most := int(catalog.load("software")["highest_memory_gate"]["value"])):
        yield f"vllm_memory_gate_gib is {settings.vllm_memory_gate_gib}. Say at most {most} GiB: no GB10 has more."
    if settings.vllm_ready_timeout < 1:
        yield f"vllm_ready_timeout is {settings.vllm_ready_timeout}. Say how many seconds a start may take: 1 or more."
    yield from waits.too_long(vllm_ready_timeout=settings.vllm_ready_timeout)
    if settings.vllm_port in (view.facts.get("ssh_ports") or ()):
        yield f"vllm_port is {settings.vllm_port}, where this host is logged in to (SSH). Choose another, such as 8000."


def _listening(view: View, settings: VllmSettings) -> Iterator[str]:
    if not (addresses.is_address(settings.vllm_host) or addresses.is_host(settings.vllm_host)):
        yield f"vllm_host is {settings.vllm_host!a}. Name an IP address of this host, or keep 127.0.0.1."
    if settings.exposed and not settings.vllm_api_key:
        yield (
            f"vllm_host {settings.vllm_host} is reachable from outside and vllm_api_key is empty. Keep 127.0.0.1 and "
            "let the role gateway be the reverse proxy in front (gateway_address), or set vllm_api_key as well (vLLM "
            "below 0.22.0 lets requests past it: CVE-2026-48746)."
        )
    ports = settings.ports_in_use(view.size)
    if len(set(ports.values())) < len(ports) or not all(map(addresses.is_ports, ports.values())):
        yield (
            f"{', '.join(ports)}: {', '.join(map(str, ports.values()))}. Each needs a port of its own, from 1 to 65535."
        )


def _words(_view: View, settings: VllmSettings) -> Iterator[str]:
    flags = [word.split("=")[0].replace("_", "-") for word in settings.vllm_extra_args]  # vLLM takes _ for - in a flag
    twice = [flag for flag in flags if _is_own(flag)] + [flag for flag in flags if _SHORT_FLAG.match(flag)]
    if twice:
        yield (f"vllm_extra_args holds {', '.join(twice)}, which the role sets itself: it has a variable for each.")
    words = [
        *settings.vllm_extra_args,
        settings.vllm_served_model_name,
        settings.vllm_host,
        *settings.vllm_environment.values(),
    ]
    if any(_LINE_BREAK.search(str(word)) for word in words):
        yield "a variable of vLLM holds a line break. Arguments and environment are one line each."


def _name(_view: View, settings: VllmSettings) -> Iterator[str]:
    name, most = settings.vllm_served_model_name, int(catalog.load("software")["longest_served_name"]["value"])
    if len(name) > most:
        yield (
            f"vllm_served_model_name is '{ascii(name)[1 : _SHOWN + 1]}...', of {len(name)} characters. Give it at most "
            f"{most}."
        )
    elif name.startswith("-"):
        yield f"vllm_served_model_name is {name!a}, and a server would read it as a flag. Begin with another character."
    elif "\\" in name or not name.isprintable():
        yield (
            f"vllm_served_model_name is {name!a}, with a line break, a backslash or a character that cannot be "
            "printed. The unit shows it: use other characters."
        )


def _is_own(flag: str, engine: Engine = vllm.ENGINE) -> bool:
    """argparse takes a flag by its beginning too, so that one would be said twice unnoticed. `_` is as good as `-`."""
    begins = flag.startswith("--") and len(flag) > len("--")
    said, own = flag.replace("_", "-"), {each.replace("_", "-") for each in engine.own_flags}
    return said in own or (begins and any(each.startswith(said) for each in own))


def _secrets(_view: View, settings: VllmSettings) -> Iterator[str]:
    if not (_HEADER.match(settings.vllm_api_key) and _HEADER.match(settings.vllm_huggingface_token)):
        yield (
            "vllm_api_key or vllm_huggingface_token holds a blank, a line break or a letter beyond ASCII. Both travel "
            "in an HTTP header: use printable ASCII characters without blanks (`openssl rand -hex 32` makes such a "
            "key)."
        )


def _registry(_view: View, settings: VllmSettings) -> Iterator[str]:
    """Both or none, and what an HTTP header of Basic authentication can carry."""
    account, password = settings.vllm_registry_username, settings.vllm_registry_password
    if bool(account) != bool(password):
        given, missing = ("username", "password") if account else ("password", "username")
        yield f"vllm_registry_{given} is set and vllm_registry_{missing} is not. Set both, or none of them."
    if ":" in account or _LINE_BREAK.search(account + password):
        yield "vllm_registry_username holds a colon, or one of the two holds a line break. No registry takes that."


def _directory(_view: View, settings: VllmSettings) -> Iterator[str]:
    """It may be no folder of the system, of a person or of the role: the container gets all of it."""
    path = settings.vllm_cache_directory
    if not host_folders.is_path(path) or host_folders.belongs_to_host(path):
        yield (
            f"vllm_cache_directory is '{path}'. Name a directory of its own, with an absolute path without colon, '..' "
            "and slash at the end, for example /var/cache/gb10-vllm; no home, and none of the system or of a role."
        )


def _source(_view: View, settings: VllmSettings) -> Iterator[str]:
    path = settings.vllm_cache_source
    if path and not host_folders.is_path(path):
        yield (
            f"vllm_cache_source is '{path}'. Name the folder of a cache on the host, with an absolute path without "
            "colon, '..' and slash at the end, for example /home/you/.cache/huggingface."
        )


def _environment(_view: View, settings: VllmSettings) -> Iterator[str]:
    wrong = [str(name) for name, value in settings.vllm_environment.items() if not isinstance(value, _ONE_VALUE)]
    if wrong:
        yield f"vllm_environment has no text and no number for {', '.join(wrong)}. Write each value as one text."
    given = {str(name): str(value) for name, value in settings.vllm_environment.items()}
    if any(not _VARIABLE.match(name) or vllm_secrets.is_variable(name, given[name]) for name in given):
        yield (
            f"vllm_environment holds {', '.join(given)}. Names are letters, digits and _; everyone on the host can "
            "read it, so secrets go into vllm_api_key and vllm_huggingface_token. Others go into a file that only root "
            "reads: vllm_mounts gives it to the container, and a variable may name its path, as "
            "AWS_SHARED_CREDENTIALS_FILE does."
        )
    with_password = [  # a proxy's, for example
        f"{name} of vllm_environment"
        for name, value in settings.vllm_environment.items()
        if vllm_secrets.PASSWORD_IN_URL.search(str(value))
    ]
    if any(vllm_secrets.PASSWORD_IN_URL.search(word) for word in settings.vllm_extra_args):
        with_password.append("vllm_extra_args")
    if with_password:
        yield (
            f"A URL in {' and in '.join(with_password)} holds a password, and everyone on the host can read it. Name a "
            "server on the fleet's own network that asks for none."
        )
