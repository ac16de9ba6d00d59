# SPDX-License-Identifier: GPL-3.0-or-later
"""What is built of an image, from its own facts, a recipe and the builder: nothing, a plan, or why not. Pure.

The facts are those of `gb10.fleet.image_info`. What the plan holds is all that the host does: it decides nothing.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from glob import escape
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images.ingredients import Builder, Source
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import digest
from ansible_collections.gb10.fleet.plugins.plugin_utils.images import dockerfile, judgement, recipes
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.recipes import KERNELS, OVERLAY, Wish
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models, vllm_cli

GIB = 1 << 30
NOTHING, BUILD, REFUSED = "nothing", "build", "refused"
_OF_COMMIT = re.compile(r"\+g([0-9a-f]{7,40})(?=[.]|$)")
_PLAIN = re.compile(r"[A-Za-z0-9_./:+~!@-]*\Z")
_DIGITS = 12  # digits of the digest that are in a tag


@dataclass(frozen=True)
class BuildPlan:
    """`verdict`: nothing (`reason` says why), build, or refused. `inputs`: the digest of all that goes into the image;
    two builds of one digest are one image, whoever builds with how many jobs. A builder without room has it, too: the
    image may be there already."""

    verdict: str
    reason: str
    refusals: tuple[str, ...] = ()
    recipe: str = ""
    inputs: str = ""
    jobs: int = 0
    dockerfile: str = ""
    expected: Mapping[str, int] = field(default_factory=dict)  # cubins of the family by extension
    exact: bool = False  # they were counted in the release that is built
    may_differ: tuple[str, ...] = ()  # files, and folders that end in a slash
    packages: Mapping[str, str] = field(default_factory=dict)  # versions that an overlay changes

    @property
    def expected_files(self) -> tuple[str, ...]:
        """What the build must bring."""
        return self.may_differ if self.expected else ()

    @property
    def tag(self) -> str:
        return self.inputs[:_DIGITS]


def plan(facts: Mapping[str, Any], wish: Wish, builder: Builder) -> BuildPlan:
    """For a base with these facts."""
    judged = judgement.judge(facts)
    if wish.recipe == KERNELS and judged.gap == () and not wish.force:
        return BuildPlan(NOTHING, judged.build)
    if wish.recipe == OVERLAY and not wish.wheels and not wish.patches:
        return BuildPlan(NOTHING, "an overlay of no wheel and no patch: nothing to build")
    entry = recipes.of_version(facts["versions"]["vllm"]) if wish.recipe == KERNELS else None
    odd = tuple(_of_words(facts))
    refusals = odd or (*_of_base(facts, wish, judged), *_of_recipe(facts, wish, entry))
    if refusals:
        return BuildPlan(REFUSED, f"{wish.base} is not built from", refusals)
    made = _kernels(facts, wish, wish.source, builder, entry) if entry and wish.source else _overlay(facts, wish)
    without_room = tuple(_of_builder(builder, wish))
    return replace(made, verdict=REFUSED, refusals=without_room) if without_room else made


# -- what speaks against it


def _of_words(facts: Mapping[str, Any]) -> Iterator[str]:
    """What of the base's own words goes into the Dockerfile; a base is somebody else's."""
    versions = {f"version of {name}": facts["versions"][name] or "" for name in ("vllm", "cuda")}
    files = [each["path"] for each in facts["extensions"] if each["owner"] == "vllm"]
    words = {"user": facts["user"] or "", **versions}
    for name, word in (*words.items(), *(("path", path) for path in (*facts["vllm_folders"], *files))):
        if not _PLAIN.match(word):
            yield f"the base's {name} is {word[:100]!a}, and no name that a build can take; take another base"


def _of_base(facts: Mapping[str, Any], wish: Wish, judged: judgement.Judgement) -> Iterator[str]:
    version = facts["versions"]["vllm"]
    if version is None:
        yield "the base has no vLLM; name an image that has"
    if facts["on_build"]:
        yield (
            f"the base has steps of its own for every build on it (ONBUILD: {facts['on_build'][0][:100]!a}), with a "
            "network and the caches of other builds; take another base"
        )
    if len(facts["vllm_folders"]) > 1:
        yield f"the base has vLLM more than once ({', '.join(facts['vllm_folders'])}); nobody knows which one starts"
    yield from (f"the base: {each.fact}; {each.way_out}" for each in judged.findings if each.severity == "error")
    yield from recipes.dead_ends(wish, _architectures(wish, version), facts["versions"])
    if recipes.trust(wish.base) == recipes.EXPERIMENTAL and not wish.experimental:
        yield f"{wish.base} is an experimental fork; set vllm_image_experimental to true, or take another base"


def _of_recipe(facts: Mapping[str, Any], wish: Wish, entry: Mapping[str, Any] | None) -> Iterator[str]:
    if wish.recipe == OVERLAY:
        return
    versions = facts["versions"]
    version = versions["vllm"]
    if version and entry is None:
        lowest = recipes.load()["kernels"][0]["versions"]
        yield f"no build is known for vLLM {version}; take a base with a version in {lowest} or later"
    floor, cuda = recipes.load()["toolchain"]["cuda"], versions["cuda"]
    if cuda is None:
        yield "the base has no CUDA toolkit, so nothing compiles in it; take a base with /usr/local/cuda"
    elif not models.within(cuda, f">={floor['value']}"):
        yield f"the base's CUDA is {cuda}, below {floor['value']}: {floor['meaning']} Take a base with a later one"
    if wish.wheels or wish.patches:
        yield "the recipe kernels takes no wheels and no patches; build an overlay on its result"
    if version:
        yield from _of_source(wish.source, version)


def _of_source(source: Source | None, version: str) -> Iterator[str]:
    """The source must be that of the base, to the commit: another one has other operators."""
    if source is None:
        yield f"vllm_image_source is empty; put an archive of vLLM's source at {version} on the builder, and name it"
        return
    commit = _OF_COMMIT.search(version)
    if commit and not source.commit.startswith(commit.group(1)):
        at = source.commit[:12] or "no commit"
        yield (
            f"{source.name} is of {at}, and the base's vLLM is {version}; give what "
            f"`git archive --prefix=vllm/ {shlex.quote(commit.group(1))}` writes"
        )
    if not commit and source.version != version:
        told = f"vLLM {source.version}" if source.version else "of no release"
        yield (
            f"{source.name} is {told}, and the base's vLLM is {version}; give what "
            f"`git archive --prefix={shlex.quote(f'vllm-{version}/')} {shlex.quote(f'v{version}')}` writes"
        )


def _of_builder(builder: Builder, wish: Wish) -> Iterator[str]:
    if builder.buildx is None:
        yield "the builder has no BuildKit (`docker buildx version`); install docker-buildx-plugin there"
    fixed = int(recipes.load()["costs"]["disk"][wish.recipe]["value"]) * GIB
    need = fixed + 2 * sum(each.bytes for each in wish.wheels)
    if builder.free_bytes < need:
        yield (
            f"the build takes {need / GIB:.0f} GiB of disk, and Docker's has {builder.free_bytes / GIB:.0f} left; "
            "free some space (`docker system df` says who has it)"
        )
    if wish.recipe == KERNELS and _jobs(builder, wish) < 1:
        costs = recipes.load()["costs"]
        need_gib = costs["memory_per_job"]["value"] + costs["kept_free"]["value"]
        who = f"{', '.join(builder.serving)} runs, and " if builder.serving else ""
        way_out = (
            "stop it for the build, or name another vllm_image_builder" if who else "name another vllm_image_builder"
        )
        yield (
            f"{who}{_rest(builder) / GIB:.0f} GiB of memory are left on the builder; one job takes {need_gib} GiB with"
            f" what the system keeps; {way_out}"
        )


# -- what is built


def _jobs(builder: Builder, wish: Wish) -> int:
    """How many compilers at a time: by all memory, or beside a service by what is left. A wish for more counts only
    where nothing serves: there it costs nobody but the builder."""
    costs = recipes.load()["costs"]
    usable = _rest(builder) - costs["kept_free"]["value"] * GIB
    most = max(0, min(builder.cores, int(usable // (costs["memory_per_job"]["value"] * GIB))))
    return (min(wish.jobs, most) if builder.serving else wish.jobs) if wish.jobs else most


def _rest(builder: Builder) -> int:
    """Without a service the page cache goes when compilers want memory, so all of it counts."""
    return builder.available_bytes if builder.serving else builder.memory_bytes


def _architectures(wish: Wish, version: str | None) -> str:
    entry = recipes.of_version(version)
    return wish.architectures or (str(entry["value"]) if entry else "")


def _kernels(
    facts: Mapping[str, Any], wish: Wish, source: Source, builder: Builder, entry: Mapping[str, Any]
) -> BuildPlan:
    version = facts["versions"]["vllm"]
    tools = recipes.load()["toolchain"]
    names = {"site": posixpath.dirname(facts["vllm_folders"][0]), "cuda": facts["versions"]["cuda"].split(".")[0]}
    environment = {key: value.format(**names) for key, value in tools["environment"]["value"].items()}
    # What setup.py would ask git for; of what it builds only the extensions are taken.
    environment["SETUPTOOLS_SCM_PRETEND_VERSION"] = version
    link = (tools["link"]["value"], tools["link"]["target"].format(**names))
    architectures = _architectures(wish, version)
    files = _files(facts, entry)

    def text(jobs: int, cache: str) -> str:
        return dockerfile.of_kernels(
            architectures, jobs, environment, link, tools["tools"]["value"], source.name, files, cache
        )

    # The text without the number of jobs: that changes no image.
    inputs = digest([facts["id"], source.sha256, text(0, "")])
    jobs = _jobs(builder, wish)
    return BuildPlan(
        BUILD,
        f"{entry['id']}: {', '.join(sorted(files))} for {architectures} from {source.name}, {jobs} at a time",
        recipe=entry["id"],
        inputs=inputs,
        jobs=jobs,
        dockerfile=text(jobs, f"gb10-{inputs[:_DIGITS]}"),
        expected=dict(entry["cubins"]),
        exact=vllm_cli.release(version) == vllm_cli.release(entry["counted_in"]) and architectures == entry["value"],
        may_differ=tuple(sorted(files.values())),
    )


def _files(facts: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, str]:
    """The file of each extension in the base; the name that upstream gives it, where the base has none of it."""
    there = {each["name"]: each["path"] for each in facts["extensions"] if each["owner"] == "vllm"}
    folder = facts["vllm_folders"][0]
    return {name: there.get(name, f"{folder}/{name}.abi3.so") for name in entry["cubins"]}


def _overlay(facts: Mapping[str, Any], wish: Wish) -> BuildPlan:
    site = posixpath.dirname(facts["vllm_folders"][0])
    wheels, patches = list(wish.wheels), list(wish.patches)
    text = dockerfile.of_overlay(site, wheels, patches, facts["user"])
    sums = [*(each.sha256 for each in wheels), *(each.sha256 for each in patches)]
    named = [*(each.name for each in wheels), *(each.name for each in patches)]
    return BuildPlan(
        BUILD,
        f"{OVERLAY}: {', '.join(named)} over {wish.base}",
        recipe=OVERLAY,
        inputs=digest([facts["id"], sums, text]),
        dockerfile=text,
        may_differ=tuple(sorted(_of_overlay(site, wish))),
        packages={each.package: each.version for each in wheels},
    )


def _of_overlay(site: str, wish: Wish) -> Iterator[str]:
    """What wheels and patches may write: their packages, of any version, and their scripts. Only ours is a pattern."""
    for wheel in wish.wheels:
        yield from (f"{site}/{top}" if top.endswith((".py", ".so")) else f"{site}/{escape(top)}/" for top in wheel.tops)
        yield f"{site}/{escape(wheel.package.replace('-', '_'))}-*.dist-info/"
        yield from (f"{_bin(site)}/{script}" for script in wheel.scripts)
    yield from (f"{site}/{file}" for patch in wish.patches for file in patch.files)


def _bin(site: str) -> str:
    """Where pip puts scripts for packages of this folder."""
    prefix = site.partition("/lib/python")[0]
    return "/usr/local/bin" if prefix == "/usr" else f"{prefix}/bin"
