"""Network namespaces with segments between them, for tests that send real packets. Takes root."""

from __future__ import annotations

import subprocess
import sys

LISTENER = """
import os, socket, sys
uid, backlog, *ports = sys.argv[1:]
os.setuid(int(uid))
socks = []
for port in ports:
    for family, any_ in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind((any_, int(port))); s.listen(int(backlog)); socks.append(s)
print("up", flush=True)
sys.stdin.read()
"""
CALLER = """
import select, socket, sys
source, target, *ports = sys.argv[1:]
calls = {}
for port in ports:
    s = socket.socket(socket.AF_INET6 if ":" in target else socket.AF_INET); s.setblocking(False)
    try:
        if source != "-": s.bind((source, 0))
        s.connect((target, int(port)))
    except BlockingIOError: pass
    except OSError: continue
    calls[s] = port
while calls and (answered := select.select([], calls, [], 0.4)[1]):
    for s in answered:
        port = calls.pop(s)
        if not s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR): print(port)
"""


class Net:
    """Network namespaces by name, and the segments between them."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.children: list[subprocess.Popen[str]] = []
        self.names: list[str] = []

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def add(self, name: str) -> None:
        self.ip("netns", "add", self.prefix + name)
        self.names.append(name)
        self.ip("-n", self.prefix + name, "link", "set", "lo", "up")

    def bridge(self, name: str, ends: dict[str, tuple[str, list[str]]]) -> None:
        """A segment with these ends: namespace -> (interface, addresses)."""
        hub = self.prefix + "hub"
        self.ip("-n", hub, "link", "add", name, "type", "bridge")
        self.ip("-n", hub, "link", "set", name, "up")
        for number, (space, (interface, own)) in enumerate(ends.items()):
            port = f"{name}{number}"
            self.ip(
                "-n", hub, "link", "add", port, "type", "veth", "peer", "name", interface, "netns", self.prefix + space
            )
            self.ip("-n", hub, "link", "set", port, "master", name, "up")
            for address in own:
                extra = ["nodad"] if ":" in address else []
                self.ip("-n", self.prefix + space, "address", "add", address, "dev", interface, *extra)
            self.ip("-n", self.prefix + space, "link", "set", interface, "up")

    def inside(self, space: str, *argv: str) -> list[str]:
        return ["ip", "netns", "exec", self.prefix + space, *argv]

    def run(self, space: str, *argv: str, stdin: str | None = None) -> str:
        command = self.inside(space, *argv)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def start(self, space: str, program: str, *arguments: str) -> subprocess.Popen[str]:
        """A Python program that has said its first word."""
        argv = self.inside(space, sys.executable, "-c", program, *arguments)
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        return child

    def listen(self, space: str, *ports: int, uid: int = 0, backlog: int = 64) -> None:
        self.start(space, LISTENER, str(uid), str(backlog), *map(str, ports))

    def reached(self, space: str, target: str, *ports: int, source: str = "-", uid: int = 0) -> set[int]:
        caller = f"import os, socket; os.setuid({uid})\n{CALLER}"
        said = self.run(space, sys.executable, "-c", caller, source, target, *map(str, ports))
        return {int(line) for line in said.split()}

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.communicate()
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", self.prefix + name], check=False, capture_output=True)
