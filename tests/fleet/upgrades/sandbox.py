"""Throw-away copies of a lab host's root: an overlay in memory, entered by systemd-nspawn over the lab's network.

A copy costs a tenth of a second, so each cell of the matrix has its own, and no host of the lab is changed by any. apt
and dpkg are real, and work with the lab's repository; no systemd runs.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import transport

from lab import identity
from lab.image import Image, overlay
from lab.topology import topology

# /run is empty in each call, so the compiled engine is kept elsewhere.
ENGINE_CACHE = "/var/cache/gb10-engine"
SPARE = topology("fleet", 2).hosts[0]  # whose name, machine-id and keys a copy has
REQUEST: dict[str, Any] = {
    "verb": "converge",
    "check": False,
    "documents": [],
    "consents": {},
    "expect": {},
    "facts": {"paths": []},
    "project": "test",
    "run": "tests@controller",
    "orphans": "show",
}


class Sandbox:
    """A root of its own over layers that others share. `upper` is what it changed."""

    def __init__(self, upper: Path, below: tuple[Path, ...]) -> None:
        self.upper, self.below = upper, below

    def over(self, name: str) -> Sandbox:
        """A copy; this one must not be changed any more."""
        return Sandbox(self.upper.with_name(name), (self.upper, *self.below))

    def run(self, script: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """A shell script as root, with the standard output and error in one."""
        return self._enter("sh", "-u", stdin=script, timeout=timeout)

    def must(self, script: str) -> str:
        done = self.run(f"set -e\n{script}")
        assert done.returncode == 0, f"{self.upper.name}: {script}\n{done.stdout}"
        return done.stdout

    def engine(self, **request: Any) -> dict[str, Any]:
        """One request to the engine, as the action plugins send it."""
        output = self.python(transport.program({**REQUEST, **request}, ENGINE_CACHE).decode())
        try:
            return transport.parse(output)
        except ValueError:
            raise AssertionError(f"{self.upper.name}: {output}") from None

    def python(self, program: str) -> str:
        """What a program prints on the host's Python."""
        return self._enter(*shlex.split(transport.command("/usr/bin/python3")), stdin=program, timeout=120).stdout

    def converge(self, role: str, **variables: Any) -> dict[str, Any]:
        """What a run of the role does: facts, the document rendered from them, the engine. `refused`: why not."""
        facts = self.engine(check=True)["facts"]
        rendered = documents.render(role, View(SPARE.name, facts, variables))
        if rendered.refusals:
            return {"refused": rendered.refusals, "error": None, "changes": [], "facts": facts}
        consents = {name: value for name, value in variables.items() if "_allow_" in name}
        said = self.engine(documents=[{"role": role, "resources": rendered.resources}], consents=consents)
        return {**said, "refused": []}

    def put_files(self, role: str) -> None:
        """What the role writes, without its units: no systemd runs here."""
        for entry in documents.render(role, View(SPARE.name, {})).resources:
            if "content" in entry:
                path = self.upper / entry["file"].lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(entry["content"])
                path.chmod(int(entry.get("mode", "0644"), 8))

    def gate(self, before: str = "") -> dict[str, Any]:
        """What the program of the role coherence says, of a host that has its files; `before` is run first."""
        output = self.must(f"{before}\n/usr/local/sbin/gb10-driver-coherence || :")
        said: dict[str, Any] = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
        return said

    def drop(self) -> None:
        for suffix in ("", ".work", ".root"):
            shutil.rmtree(self.upper.with_name(self.upper.name + suffix), ignore_errors=True)

    def _enter(self, *words: str, stdin: str, timeout: float) -> subprocess.CompletedProcess[str]:
        inside = [
            *("--quiet", "--register=no", "--keep-unit", "--pipe", "--as-pid2", f"--machine={self.upper.name}"),
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--setenv=DEBIAN_FRONTEND=noninteractive"),
            *words,
        ]
        argv = overlay(self.below, self.upper, f'systemd-nspawn --directory="$root" {shlex.join(inside)}')
        return subprocess.run(
            argv, input=stdin, text=True, timeout=timeout, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )


@contextmanager
def fresh(image: Image) -> Iterator[Sandbox]:
    """A freshly imaged Spark in memory; it and all copies are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="gb10-upgrades-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "gb10-upgrades", folder], check=True)
    try:
        identity.write(folder / "fresh", SPARE)
        yield Sandbox(folder / "fresh", image.layers)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()
