# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the builder what there is, decides here what to build and what it is worth, and has it done there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.gb10.fleet.plugins.module_utils.images import ingredients
from ansible_collections.gb10.fleet.plugins.module_utils.images.build import REFUSED
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.long_step import LongStepAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.images import acceptance, build_plan, evidence, recipes
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.build_plan import BuildPlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import vllm_image

MODULE = "gb10.fleet.image_build"
LIMIT_S = 4 * 3600  # of one step that waits: an image of 40 GB is read twice, or a model loads twice


class _Failed(Exception):
    """A step failed; what the host said of it."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        super().__init__()
        self.said = said


class ActionModule(LongStepAction):
    """From a base to an image that may serve, or to the reason why not."""

    own = ("step", "request")

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {"changed": False, "image": "", "digests": [], "json": "", "lines": []}
        own = host.Host(self, task_vars)
        self._name, self._vars, self._folder = own.name, task_vars, Path.cwd() / options["path"]
        try:
            self._plan = own.view({}).plan(vllm_image.plan)
        except SettingsError as error:
            raise AnsibleActionFail(f"{own.name}: {error}") from None
        if self._plan.refusals:
            return {**result, "failed": True, "msg": "\n".join(f"{own.name}: {text}" for text in self._plan.refusals)}
        try:
            result.update(self._made())
        except _Failed as failed:
            result.update({**failed.said, "changed": result["changed"]})
        return result

    def _made(self) -> dict[str, Any]:
        look = documents.plain(self._plan.look)
        said = self._long("look", look, f"looks into {look['base']}")
        made = build_plan.plan(said["facts"], self._wish(said), ingredients.Builder(**said["builder"]))
        if made.verdict == build_plan.NOTHING:
            return {"verdict": made.verdict, "lines": [made.reason]}
        about = {"name": self._plan.name, "tag": made.tag}
        before = self._short("read", about) if made.inputs else {"state": "none"}
        if before["state"] in ("accepted", "refused"):
            return self._known(before, about)
        if made.verdict == build_plan.REFUSED and before["state"] not in ("built", "running"):
            raise _Failed({"failed": True, "msg": "\n".join(f"{self._name}: {text}" for text in made.refusals)})
        if self._task.check_mode:
            lines = [f"would build {self._plan.name}:{made.tag} from {look['base']}", made.reason]
            return {"verdict": "would_build", "changed": True, "lines": lines}
        if before["state"] != "built":
            self._built(said, made, about)
        return self._judged(said, made, about)

    def _wish(self, said: Mapping[str, Any]) -> recipes.Wish:
        return recipes.Wish(
            **self._plan.wish,
            source=next((ingredients.Source(**each) for each in said["source"]), None),
            wheels=[ingredients.Wheel(**each) for each in said["wheels"]],
            patches=[ingredients.Patch(**each) for each in said["patches"]],
        )

    def _known(self, before: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
        """Of the same inputs there is an image already."""
        image, labels = _image(about, accepted=before["state"] == "accepted"), before["labels"]
        if before["state"] == "accepted":
            return {"verdict": "accepted", "image": image, "lines": [f"{image} was built of this already"]}
        text = f"{image} was built of this, and refused on {labels.get('judged', 'an unknown day')}"
        way_out = (
            f"`docker image rm {shlex.quote(image)}` has it built and judged anew; the evidence of that day says more"
        )
        return {"verdict": labels.get("verdict", "refused"), "image": image, "lines": [f"{text}; {way_out}"]}

    def _built(self, said: Mapping[str, Any], made: BuildPlan, about: Mapping[str, Any]) -> None:
        """Begin, or go on with a build that runs, and wait for its end."""
        request = {
            **about,
            "base": said["facts"]["id"],
            "platform": self._plan.platform,
            "inputs": made.inputs,
            "dockerfile": made.dockerfile,
            "files": {kind: said[kind] for kind in ("source", "wheels", "patches")},
        }
        self._tell(f"{self._name}: {made.reason}")
        self._short("start", request)
        now = self._until(
            lambda: self._short("read", about),
            lambda now: now["state"] != "running",
            lambda now: f"{self._name}: {now['doing']}",
        )
        if now["state"] != "built":
            text = f"{self._name}: {now['verdict']}: {now['text']}; {now['way_out']}"
            raise _Failed({"failed": True, "verdict": now["verdict"], "msg": text})

    def _judged(self, said: Mapping[str, Any], made: BuildPlan, about: Mapping[str, Any]) -> dict[str, Any]:
        base, files = said["facts"]["id"], list(made.expected_files)
        asked = {**about, "base": base, "modules": [f"vllm.{name}" for name in made.expected], "files": files}
        trial = acceptance.Trial(**self._long("examine", asked, "compares the image with its base"))
        verdict = acceptance.quick(made, trial)
        if verdict.accepted:
            request = {**about, "base": base, "trial": documents.plain(self._plan.trial)}
            served = self._long("serve", request, "serves the small model from both images")
            verdict = acceptance.judge(made, acceptance.Trial(**{**vars(trial), **served}))
        at = datetime.now(UTC).isoformat(timespec="seconds")
        labels = acceptance.labels(made, self._plan.wish["base"], verdict, at)
        done = self._short(
            "settle", {**about, "platform": self._plan.platform, "labels": labels, "accepted": verdict.accepted}
        )
        image = _image(about, accepted=verdict.accepted)
        own = re.compile(rf"{re.escape(about['name'])}@sha256:[0-9a-f]{{64}}")
        digests = [each for each in done["digests"] if own.fullmatch(each)]
        told = evidence.document(made, self._name, self._plan.wish["base"], verdict, image, at)
        lines = [f"{image}: {verdict.id}", *verdict.lines]
        if verdict.accepted:
            lines += evidence.serve_lines(image, digests, trial.facts["versions"]["vllm"])
        return {
            "changed": True,
            "verdict": verdict.id,
            "image": image,
            "digests": digests,
            "json": str(evidence.write(told, self._folder)),
            "lines": lines,
        }

    # -- calls

    def _short(self, step: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return self._answer(self._module(MODULE, {"step": step, "request": request}))

    def _long(self, step: str, request: Mapping[str, Any], doing: str) -> dict[str, Any]:
        if self._task.check_mode:
            return self._short(step, request)
        arguments = {"step": step, "request": request}
        return self._answer(self._in_background(MODULE, arguments, LIMIT_S, lambda: f"{self._name}: {doing}"))

    def _answer(self, said: Mapping[str, Any]) -> dict[str, Any]:
        if said.get("failed") or said.get("unreachable"):
            raise _Failed({**said, "msg": f"{self._name}: {said.get('msg', 'failed without a word')}"})
        found: dict[str, Any] = said["found"]
        return found


def _image(about: Mapping[str, Any], *, accepted: bool) -> str:
    """As the builder calls it. A person pastes the name, so the builder is not asked for it."""
    return f"{about['name']}:{'' if accepted else REFUSED}{about['tag']}"


host.preload()
