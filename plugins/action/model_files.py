# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what a host has to do for its image and model, has it done in the background, and says how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.file_step import OFFER_LIMIT_S, FileStepAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import transfer as model_files
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service as vllm_service

MODULE = "gb10.fleet.model_files"


class ActionModule(FileStepAction):
    """One step of one host."""

    module = MODULE
    kept = (  # of what a step says
        *("changed", "failed", "msg", "verdict", "pull", "image", "model", "pin", "draft", "draft_pin", "loras"),
        *("archive", "unreachable", "module_stderr"),
    )

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        service = self._begin(task_vars, options)
        self._files, members = asdict(vllm_service.files_of(service.said)), service.view.members
        self._offered = documents.plain(options["offered"])
        self._move = service.said.vllm_model_move
        self._password = model_files.password(members)
        self._source = model_files.source(self._name, members, self._fabric.topology, fetch=self._files["fetch"])
        self._token = service.said.vllm_huggingface_token
        said: dict[str, Any] = getattr(self, f"_{options['step']}")()
        return {"changed": False, "source": self._source, "name": self._files["name"], **said}

    # -- steps

    def _read(self) -> dict[str, Any]:
        said = self._short("read")
        return {**said, "pull": said.get("pull") and self._source == self._name}

    def _download(self) -> dict[str, Any]:
        said = self._read()
        if self._source != self._name or said.get("failed"):
            return said
        coming = [self._files["name"]] if said["image"] is None else []
        pins: dict[str, Any] = {name: self._pin(said, name) for name in ("pin", "draft_pin")}
        move = self._move and self._files["fetch"]
        coming += self._from_the_hub("model", self._files, said, pins["pin"], move)
        if draft := self._files["draft"]:
            coming += self._from_the_hub("draft", draft, said, pins["draft_pin"], move)
        pins["lora_pins"] = []
        for number, named in enumerate(self._files["loras"]):
            pins["lora_pins"].append(self._pin(said, "loras", number))
            held = {"lora": said["loras"][number]["model"]}
            coming += self._from_the_hub("lora", named, held, pins["lora_pins"][-1], move)
        if not coming:
            return said
        if self._task.check_mode:
            return {**said, "changed": True, "msg": f"{self._name}: would get {' and '.join(coming)}"}
        return self._long("download", {**pins, "move": move}, self._token)

    def _from_the_hub(
        self, part: str, named: Mapping[str, Any], said: Mapping[str, Any], pin: str, move: bool
    ) -> list[str]:
        """What this host will get from there of one model, in words."""
        if move:
            return [f"what {named['revision']} of {named['model']} is now on the hub"]
        if not self._files["fetch"] or said.get(part) is not None:
            return []
        at = f"{named['revision']}{f' as it was first fetched ({pin[:12]})' if pin else ''}"
        return [f"{named['model']} at {at} from the hub"]

    def _pin(self, said: Mapping[str, Any], name: str, number: int | None = None) -> str:
        """The commit that this cluster fetched first, by this host's word or else by that of another one.

        `number`: that of an adapter, where `name` is the list of them.
        """
        of_all = [said, *(each for host, each in self._given.items() if host != self._name)]
        found = (each.get(name) if number is None else _of_adapter(each.get(name) or (), number) for each in of_all)
        return next((str(pin) for pin in found if pin), "")

    def _offer(self) -> dict[str, Any]:
        takers = self._takers()
        if self._task.check_mode or self._source != self._name or not takers:
            return {}
        ways = model_files.ways(self._fabric.hosts, self._name)
        request = {
            "parts": sorted({part for parts in takers.values() for part in parts}),
            "ways": [ways[taker] for taker in takers],
            "port": self._files["port"],
            "limit_s": OFFER_LIMIT_S,
        }
        return self._long("offer", request, self._password)

    def _take(self) -> dict[str, Any]:
        offered = self._given.get(self._source) or {}
        if self._source != self._name and offered.get("image") is None and not self._task.check_mode:
            return {"failed": True, "msg": f"{self._name}: {self._source} could not get its files; see what it says"}
        parts = self._takers().get(self._name)
        if not parts:
            return self._predicted() if self._task.check_mode else {}
        way = model_files.ways(self._fabric.hosts, self._source)[self._name]
        text = (
            f"{' and '.join(parts)} ({model_files.size(offered, parts) / 1e9:.1f} GB) from {self._source}, {way['at']}"
        )
        if self._task.check_mode:
            return {"changed": True, "msg": f"{self._name}: would get {text}"}
        if self._offered.get("failed") or ("image" in parts and not self._offered.get("archive")):
            return {"failed": True, "msg": f"{self._name}: {self._source} could not offer its files; see what it says"}
        request = {
            "parts": parts,
            "offered": {**offered, "archive": self._offered.get("archive")},
            "address": way["at"],
            "port": self._files["port"],
        }
        return {"msg": f"{self._name}: got {text}", **self._long("take", request, self._password)}

    def _predicted(self) -> dict[str, Any]:
        """What a host will take that its source is yet to get."""
        own = model_files.parts(self._given.get(self._name) or {})
        coming = [part for part, held in own.items() if held is None]
        if self._source == self._name or not coming:
            return {}
        return {"changed": True, "msg": f"{self._name}: would get {' and '.join(coming)} from {self._source}"}

    def _withdraw(self) -> dict[str, Any]:
        if self._task.check_mode or self._source != self._name or not self._takers():
            return {}
        return self._short("withdraw")

    def _takers(self) -> dict[str, list[str]]:
        """Who lacks what of that which this host's source has."""
        giver = self._given.get(self._source) or {}
        if giver.get("image") is None:  # in check mode, for example
            return {}
        lacking = {
            name: model_files.missing(giver, said)
            for name, said in self._given.items()
            if name != self._source and said.get("source") == self._source
        }
        return {name: parts for name, parts in lacking.items() if parts}

    # -- calls

    def _arguments(self, step: str, request: Mapping[str, Any], secret: str | None) -> dict[str, Any]:
        return {"step": step, "request": {"files": self._files, **request}, "secret": secret}


host.preload()


def _of_adapter(adapters: Sequence[Mapping[str, Any]], number: int) -> Any:
    return adapters[number].get("pin") if len(adapters) > number else None
