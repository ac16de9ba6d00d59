# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM itself says of a model, in the image that will serve it: programs/ask_engine.py in a container.

The container has no network and no power, and gets the models to read. It sees the GPU, or vLLM would not know for
what it is to answer, and takes no memory of it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.programs import ask_engine
from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_answers import (
    FOLDER,
    MOST,
    KeptAnswer,
    answer_in,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.model_folders import place_of
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_tools import Command, command
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import name_of, private_folder, write
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError, last_words
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

KEPT = Path(FOLDER)
INSIDE = "/gb10-models"
# A model is the hub's word: one of a thousand million layers must not take the memory of what serves beside it.
BOUNDS = ("--memory=16g", "--memory-swap=16g", "--oom-score-adj=1000", "--pids-limit=4096", "--ulimit=core=0")
_OPTIONS = (
    *("--rm", "--interactive", "--pull=never", "--network=none", "--device=nvidia.com/gpu=all"),
    *("--read-only", "--tmpfs=/tmp", "--env=HOME=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges"),
    *BOUNDS,
)
_LATE = (124, 137)  # as timeout says it, of what heeds it and of what does not


class Question:
    """`images`: names, of which the first that is there counts; `model`: an id of the hub, or a folder."""

    def __init__(
        self,
        images: Sequence[str],
        model: str,
        revision: str,
        cache: str,
        flags: Mapping[str, Any],
        run: Command = command,
        kept: Path = KEPT,
    ) -> None:
        self.images, self.model, self.revision, self.cache = images, model, revision or "main", Path(cache)
        self.flags, self.run, self.kept = dict(flags), run, kept

    def answer(self, limit_s: int) -> dict[str, Any]:
        """What vLLM says, or has said before of the same image, files and flags; its silence is kept, too."""
        image, identity = self._image()
        mounted, folder = self._folder()
        what = [identity, str(mounted), folder, self.flags, inspect.getsource(ask_engine)]
        key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
        file = self.kept / f"{key}.json"
        known = _kept(file)
        silent_s = known["said"].get("silent") if known else 0
        if known is None or (isinstance(silent_s, int) and silent_s < limit_s):  # it has more time now
            text = json.dumps({"question": self._question, "said": self._asked(image, mounted, folder, limit_s)})
            known = answer_in(text)
            if known is None:
                way_out = "see what the model's own code or the image prints in place of vLLM's answer"
                raise FilesError("no_answer", f"vLLM of {image} gave an answer of another form than ours", way_out)
            private_folder(self.kept)
            self._forget()
            write(file, text)
        if "silent" in known["said"]:
            raise _silence(image, known["said"], file)
        return known["said"]

    @property
    def _question(self) -> dict[str, Any]:
        return {"images": [*self.images], "model": self.model, "revision": self.revision, "flags": self.flags}

    def _forget(self) -> None:
        """Remove what was said to the same question of other files or of another image, and the oldest of the rest."""
        files = sorted(self.kept.glob("*.json"), key=lambda each: each.stat().st_mtime)
        same = [each for each in files if (kept := _kept(each)) is None or kept["question"] == self._question]
        rest = [each for each in files if each not in same]
        for old in (*same, *rest[: max(0, len(rest) + 1 - MOST)]):
            old.unlink()

    def _image(self) -> tuple[str, str]:
        for name in self.images:
            done = self.run(["docker", "image", "inspect", "--format", "{{.Id}}", "--", name])
            if done.returncode == 0:
                return name, done.stdout.strip()
        way_out = "run site.yml, which pulls it, or `docker pull` it"
        raise FilesError("image_missing", f"this host has no image {' or '.join(self.images)}", way_out)

    def _folder(self) -> tuple[Path, str]:
        """What the container gets, and where in it the model is: its folder, or its commit in the hub's cache."""
        here = self.model.startswith("/")
        top = Path(self.model) if here else self.cache / name_of(self.model)
        place = place_of(str(top), None if here else self.revision)
        if place is not None:
            return top, place
        way_out = "run site.yml, which fetches it; its weights are not needed"
        raise FilesError("no_such_model", f"{self.model} is not on this host ({self.revision})", way_out)

    def _asked(self, image: str, mounted: Path, folder: str, limit_s: int) -> dict[str, Any]:
        name = f"gb10-engine-{secrets.token_hex(4)}"
        asked = json.dumps({"model": os.path.join(INSIDE, folder), "flags": self.flags})  # noqa: PTH118
        words = ["-k", "5", str(limit_s), "python3", "-", asked]
        argv = ["docker", "run", f"--name={name}", *_OPTIONS, f"--volume={mounted}:{INSIDE}:ro", "--entrypoint=timeout"]
        done = self.run([*argv, image, *words], input=inspect.getsource(ask_engine))
        lines = [line for line in done.stdout.splitlines() if line.startswith(ask_engine.MARK)]
        said = document(lines[-1][len(ask_engine.MARK) :]) if lines else {}
        # Code of the model may run in there. Of its silence we alone speak.
        if said and "silent" not in said:
            return {**said, "model": self.model, "image": image}
        if done.returncode in _LATE:
            return {"silent": limit_s, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        way_out = "see `docker info`, and whether the image has vLLM"
        raise FilesError("no_answer", f"vLLM of {image} said nothing ({last_words(done.stderr)})", way_out)


def _kept(file: Path) -> KeptAnswer | None:
    try:
        return answer_in(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _silence(image: str, said: Mapping[str, Any], file: Path) -> FilesError:
    """That nobody asks again is said, and how somebody can."""
    text = f"vLLM of {image} did not answer within {said['silent']} s ({said['at']}), and is not asked again"
    return FilesError("no_answer", text, f"the start itself will show it; to ask again, remove {file}")
