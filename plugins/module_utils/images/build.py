# SPDX-License-Identifier: GPL-3.0-or-later
"""A build on the host: BuildKit in a unit of its own, which outlives the session that started it.

Tags say what an image is: `candidate-` was built and is not judged, `refused-` was judged, and the digest of its inputs
alone serves. BuildKit tags when it is done, so what ends in the middle has no tag at all.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images import docker, ingredients, progress
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_tools import Command, command
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import private_folder, write
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import last_words

STATE = Path("/var/cache/gb10-images")
BASE = "gb10-fleet/build-base"  # a name without a digest: BuildKit then asks no registry
LABELS = "gb10-fleet.image."
CANDIDATE, REFUSED = "candidate-", "refused-"
_LOG_TAIL = 256 << 10
_TAG = re.compile(r"[0-9a-f]{12}\Z")


class Build:
    """One build, known by the digest of its inputs. `run` starts commands, `state` is a folder of tests' own."""

    def __init__(self, name: str, tag: str, run: Command = command, *, state: Path = STATE) -> None:
        if not _TAG.match(tag):
            raise ImageError("failed", f"{tag!r} is no digest of inputs", "run again")
        self.name, self.tag, self.run, self.state = name, tag, run, state
        self.folder = state / tag
        self.accepted, self.refused, self.candidate = (f"{name}:{each}{tag}" for each in ("", REFUSED, CANDIDATE))
        self.unit = f"gb10-image-build-{tag}.service"

    # -- where it is

    def read(self) -> dict[str, Any]:
        """`state`: accepted, refused, built (not judged), running, failed or none."""
        for state, name in (("accepted", self.accepted), ("refused", self.refused), ("built", self.candidate)):
            told = self._labels(name)
            if told is not None:
                return {"state": state, "image": name, "labels": told}
        if self._runs():
            return {"state": "running", "doing": progress.doing(self._log())}
        if (self.folder / "rc").exists():
            fault = progress.fault(self._log())
            return {"state": "failed", "verdict": fault.verdict, "text": fault.text, "way_out": fault.way_out}
        if (self.folder / "run.sh").exists():
            text = f"{self.unit} was ended before the build was done"
            return {"state": "failed", "verdict": "ended", "text": text, "way_out": "run again; it goes on from there"}
        return {"state": "none"}

    def _labels(self, name: str) -> dict[str, str] | None:
        """Of ours; None where there is no such image."""
        try:
            told = docker.inspect(name, self.run)
        except ImageError as error:
            if error.name == "no_such_image":
                return None
            raise
        labels = (told.get("Config") or {}).get("Labels") or {}
        return {key[len(LABELS) :]: str(value) for key, value in labels.items() if key.startswith(LABELS)}

    def _runs(self) -> bool:
        shown = self.run(["systemctl", "is-active", self.unit]).stdout.strip()
        return shown in ("active", "activating", "reloading")

    def _log(self) -> list[str]:
        try:
            with (self.folder / "log").open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LOG_TAIL))
                return file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return []

    # -- the build

    def start(self, plan: Mapping[str, Any]) -> None:
        """Write down what is built from what, and begin. One that runs is left alone."""
        if self._runs():
            return
        private_folder(self.state)
        shutil.rmtree(self.folder, ignore_errors=True)
        private_folder(self.folder)
        context = private_folder(self.folder / "context")
        write(self.folder / "Dockerfile", plan["dockerfile"])
        contexts = {kind: self._bring(kind, files) for kind, files in plan["files"].items() if files}
        base = f"{BASE}:{self.tag}"
        self.ask(["docker", "tag", plan["base"], base])
        words = [
            *("docker", "buildx", "build", "--builder", "default", "--progress", "plain", "--load"),
            *("--provenance=false", "--sbom=false", "--file", str(self.folder / "Dockerfile")),
            *("--platform", plan["platform"], "--build-arg", f"BASE={base}", "--tag", self.candidate),
            *("--label", f"{LABELS}inputs={plan['inputs']}"),
            *(word for kind, path in sorted(contexts.items()) for word in ("--build-context", f"{kind}={path}")),
            str(context),
        ]
        # A script, so that systemd reads no word of it as its own.
        go = f"cd {shlex.quote(str(self.folder))} || exit"
        script = f"{go}\n{shlex.join(words)} >log 2>&1\necho $? >rc.new && mv rc.new rc\n"
        write(self.folder / "run.sh", script)
        self.ask([
            *("systemd-run", "--collect", "--quiet", f"--unit={self.unit}", "--setenv=HOME=/root"),
            *("--description=gb10-fleet builds an image", "/bin/sh", str(self.folder / "run.sh")),
        ])  # fmt: skip

    def _bring(self, kind: str, given: Sequence[Mapping[str, Any]]) -> Path:
        """Copies whose checksum is proven once more: whoever owns the originals could change them meanwhile."""
        folder = private_folder(self.folder / kind)
        for each in given:
            with (folder / Path(each["path"]).name).open("wb") as copy:
                found = ingredients.copied(each["path"], copy)
            if found != each["sha256"]:
                raise ImageError("checksum_wrong", f"{each['path']} has changed meanwhile", "run again")
        return folder

    # -- after it was judged

    def settle(self, labels: Mapping[str, str], platform: str, *, accepted: bool) -> str:
        """Give the candidate its verdict and the tag that follows from it; gives that name."""
        name = self.accepted if accepted else self.refused
        words = [word for key, value in sorted(labels.items()) for word in ("--label", f"{key}={value}")]
        context = private_folder(self.folder / "context")
        write(self.folder / "Dockerfile.labels", f"FROM {self.candidate}\n")
        self.ask([
            *("docker", "buildx", "build", "--builder", "default", "--quiet", "--load", "--provenance=false"),
            *("--sbom=false", "--platform", platform, "--file", str(self.folder / "Dockerfile.labels")),
            *("--tag", name, *words, str(context)),
        ])  # fmt: skip
        self.ask(["docker", "image", "rm", self.candidate])
        self.run(["docker", "image", "rm", f"{BASE}:{self.tag}"])  # a name only; the base stays under its own
        shutil.rmtree(self.folder, ignore_errors=True)
        return name

    def names(self, name: str) -> list[str]:
        """By digest, where this Docker's store has one for an image that was built here."""
        return [str(each) for each in docker.inspect(name, self.run).get("RepoDigests") or []]

    def ask(self, argv: Sequence[str]) -> str:
        done = self.run(argv)
        if done.returncode == 0:
            return done.stdout
        text = last_words(done.stderr or done.stdout)
        fault = progress.fault([text])
        verdict = fault.verdict if fault.verdict != "build_failed" else "failed"
        raise ImageError(verdict, f"`{' '.join(argv[:3])}`: {text}", fault.way_out)
