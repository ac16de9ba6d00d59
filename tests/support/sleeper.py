"""Takes systemd's place for a service that is asleep: the socket, and what its first request starts."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.programs import wake

_POLL_S = 0.05
# Gives the socket to a program as systemd does: as the first file descriptor behind the standard ones.
_AS_SYSTEMD = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])"


class Sleeper:
    """`starts` is what the unit wants: called with each activation, as systemd starts what is not up yet."""

    def __init__(self, path: Path, stem: str, run: Path, starts: Callable[[], None], load_s: float = 300) -> None:
        self.path, self.stem, self.run, self.starts, self.load_s = path, stem, run, starts, load_s
        self.activations = 0
        self._end = threading.Event()
        self._responder: subprocess.Popen[bytes] | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o666)
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._end.is_set():
            running = self._responder is not None and self._responder.poll() is None
            if not running and select.select([self._listener], [], [], _POLL_S)[0]:
                self.activations += 1
                self.starts()
                self._responder = subprocess.Popen(
                    [sys.executable, "-c", _AS_SYSTEMD, str(self._listener.fileno()), sys.executable, "-I",
                     str(wake.__file__), self.stem, "--load", str(self.load_s), "--least", "5", "--run", str(self.run)],
                    pass_fds=[self._listener.fileno()],
                    env={"PATH": os.environ["PATH"]},
                )  # fmt: skip
            self._end.wait(_POLL_S)

    def stop(self) -> None:
        """As RemoveOnStop= and PartOf= do."""
        self._end.set()
        self._thread.join()
        self.path.unlink()
        if self._responder is not None:
            self._responder.kill()
            self._responder.wait()
        self._listener.close()
