"""A service comes, changes and goes beside another one, whose process stays. Only Docker and containers are made up."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import removes_orphans, render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from tests.fleet.fleet import HERE, Fleet, named
from tests.support.proofs import facts

pytestmark = pytest.mark.lab

GB10 = str(Path(sys.executable).parent / "gb10")
# Keeps a container in the unit's own folder of /run, for the unit may write nowhere else. Its server is any one.
DOCKER = """#!/bin/bash
name=${*: -1}; [[ $* =~ --name\\ ([^ ]+) ]] && name=${BASH_REMATCH[1]}
case $1 in
  container) cat "/run/$name/runs" || exit 1;;
  stop | rm) rm -f "/run/$name/runs";;
  run)
    [[ $* =~ --port\\ ([0-9]+) ]]
    python3 -m http.server --bind 127.0.0.1 "${BASH_REMATCH[1]}" >/dev/null 2>&1 &
    echo $$ >"/run/$name/runs"; echo "INFO:     Application startup complete."
    while [ -e "/run/$name/runs" ]; do sleep 0.1; done; kill %1; exit 137;;
esac
"""
STAND_INS = f"""
cat >/usr/bin/docker <<'END'
{DOCKER}
END
for name in gb10-memory-gate gb10-drop-caches; do printf '#!/bin/sh\\n' >/usr/local/sbin/$name; done
chmod 755 /usr/bin/docker /usr/local/sbin/gb10-memory-gate /usr/local/sbin/gb10-drop-caches
printf '[Service]\\nType=oneshot\\nRemainAfterExit=yes\\nExecStart=/bin/true\\n' >/etc/systemd/system/docker.service
systemctl daemon-reload
"""
AWAY = """
systemctl stop docker.service
rm -f /usr/bin/docker /etc/systemd/system/docker.service
rm -f /usr/local/sbin/gb10-memory-gate /usr/local/sbin/gb10-drop-caches
systemctl daemon-reload
"""
CHAT = {"model": "openai/gpt-oss-120b", "memory_gib": 80, "max_model_len": 8192}
EMBED = {"model": "Qwen/Qwen3-Embedding-0.6B", "port": 8001, "memory_gib": 8}
SAID = {
    "vllm_image": "registry.example/vllm@sha256:" + "0" * 64,
    "gateway_address": "192.0.2.11",  # that a service may sleep; the role vllm makes none
}
SOCKET, ENTRANCE = "gb10-wake@vllm-embed.socket", "/run/gb10-wake/vllm-embed.sock"
# Asks as the gateway does: as its user, at the socket.
ASK = f"""runuser -u www-data -- python3 - <<'END'
import socket
with socket.socket(socket.AF_UNIX) as one:
    one.settimeout(30)
    one.connect("{ENTRANCE}")
    one.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    print(b"".join(iter(lambda: one.recv(65536), b"")).decode())
END
"""
GATE = "/usr/local/sbin/gb10-memory-gate"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def host(cleared: Fleet) -> Iterator[tuple[Fleet, str]]:
    name = cleared.hosts[0]
    cleared.shell(name, STAND_INS)
    yield cleared, name
    cleared.engine(name, "undo")
    cleared.shell(name, AWAY)
    cleared.clear(name)


def apply(fleet: Fleet, name: str, services: dict[str, Any]) -> set[tuple[str, str]]:
    rendered = render("vllm", View(name, facts(), {**SAID, "vllm_services": services}))
    assert not rendered.refusals
    document = {"role": "vllm", "resources": rendered.resources}
    said = fleet.converge(name, [document], removes=["vllm"])
    assert said["error"] is None, said["error"]
    return named(said["changes"])


def served(fleet: Fleet, name: str, service: str) -> str:
    """When its unit was started, once it serves and the gateway may know."""
    unit, until = f"gb10-vllm-{service}", time.monotonic() + WAIT_S
    ask = (
        f'grep -s \'"phase": "ready"\' /run/{unit}/status.json || true; systemctl is-active {unit} || true;'
        f" ls /run/{unit}/serving || true"
    )
    while not (said := fleet.shell(name, ask)).endswith(f"\nactive\n/run/{unit}/serving\n"):
        assert time.monotonic() < until, f"{said}{fleet.shell(name, f'systemctl status {unit} || true')}"
        time.sleep(0.5)
    return fleet.shell(name, f"systemctl show -p InvocationID -p ExecMainStartTimestampMonotonic {unit}")


def test_a_service_comes_changes_and_goes_and_its_neighbour_stays(host: tuple[Fleet, str]) -> None:
    fleet, name = host
    apply(fleet, name, {"chat": CHAT})
    chat = served(fleet, name, "chat")

    assert ("vllm", "unit:gb10-vllm-embed.service") in apply(fleet, name, {"chat": CHAT, "embed": EMBED})
    embed = served(fleet, name, "embed")
    assert served(fleet, name, "chat") == chat
    assert apply(fleet, name, {"chat": CHAT, "embed": EMBED}) == set()

    changed = apply(fleet, name, {"chat": CHAT, "embed": EMBED | {"port": 8002}})
    assert not [resource for _, resource in changed if "embed" not in resource]
    assert served(fleet, name, "embed") != embed and served(fleet, name, "chat") == chat

    gone = apply(fleet, name, {"chat": CHAT})
    assert ("vllm", "unit:gb10-vllm-embed.service") in gone
    left = (
        "ls /etc/gb10-fleet /etc/systemd/system /run/gb10-vllm-embed/runs 2>&1 | grep embed | grep -v 'No such' || true"
    )
    assert fleet.shell(name, left) == ""
    assert served(fleet, name, "chat") == chat
    assert apply(fleet, name, {"chat": CHAT}) == set()

    unit = "gb10-vllm-chat.service"
    fleet.shell(name, f"systemctl kill --signal=KILL --kill-who=main {unit}")
    until = time.monotonic() + WAIT_S
    while not (
        said := fleet.shell(name, f"systemctl show -p SubState --value {unit}; ls /run/gb10-vllm-chat")
    ).startswith("auto-restart\n"):
        assert time.monotonic() < until, said
    assert "serving" not in said, "the gateway would send requests to whoever takes the port now"


def test_a_restart_of_docker_or_by_hand_costs_a_service_none_of_its_starts(host: tuple[Fleet, str]) -> None:
    """More often than systemd grants in an hour to a unit that fails by itself."""
    fleet, name = host
    apply(fleet, name, {"chat": CHAT})
    served(fleet, name, "chat")
    for unit in ("docker.service", "gb10-vllm-chat.service") * 3:
        fleet.shell(name, f"systemctl restart {unit}")
        served(fleet, name, "chat")


def test_the_firewall_forgets_a_service_that_goes(host: tuple[Fleet, str]) -> None:
    """Its drop-in, and the folder that was made for it."""
    fleet, name = host

    def guard(services: dict[str, Any]) -> str:
        rendered = render("firewall", View(name, facts(), {**SAID, "vllm_services": services}))
        assert not rendered.refusals
        removes = [role for role in ("firewall",) if removes_orphans(role)]
        document = {"role": "firewall", "resources": rendered.resources}
        said = fleet.converge(name, [document], removes=removes)
        assert said["error"] is None, said["error"]
        return fleet.shell(name, "ls -d /etc/systemd/system/gb10-vllm-*.service.d")

    assert "gb10-vllm-embed.service.d" in guard({"chat": CHAT, "embed": EMBED})
    assert guard({"chat": CHAT}).split() == ["/etc/systemd/system/gb10-vllm-chat.service.d"]


def stands(fleet: Fleet, name: str, unit: str) -> str:
    return fleet.shell(name, f"systemctl is-active {unit} || true").strip()


def test_the_first_request_starts_a_service_by_systemd_and_no_request_one_that_was_stopped(
    host: tuple[Fleet, str],
) -> None:
    """A real systemd, and nobody with a privilege: www-data may ask at a socket, and nobody else."""
    fleet, name = host
    sleeper, unit = {"chat": CHAT, "embed": EMBED | {"on_demand": True}}, "gb10-vllm-embed.service"
    apply(fleet, name, sleeper)
    chat = served(fleet, name, "chat")
    assert (stands(fleet, name, unit), stands(fleet, name, SOCKET)) == ("inactive", "active")
    said = fleet.engine(name, "drift")
    assert said["changes"] == [] and [(each["unit"], each["who"]) for each in said["wishes"]] == [(unit, "on_demand")]
    refused = ASK.replace("www-data", "nobody").replace("<<'END'", "2>&1 <<'END' || true")
    assert "PermissionError" in fleet.shell(name, refused)

    # A start that its gate refuses is said, and leaves the neighbour alone. As after a boot, no load of it is known.
    fleet.shell(name, f"rm -f /run/gb10-vllm-embed/status.json; printf '#!/bin/sh\\nexit 1\\n' >{GATE}")
    answer = fleet.shell(name, ASK)
    assert answer.startswith("HTTP/1.1 503 ")
    assert 250 < int(answer.partition("Retry-After: ")[2].split()[0]) <= 300, "what is left of the time that is assumed"
    until = time.monotonic() + WAIT_S
    while "its last start failed (memory_short)" not in fleet.shell(name, ASK):
        assert time.monotonic() < until, fleet.shell(name, f"systemctl status {unit} || true")
    fleet.shell(name, f"printf '#!/bin/sh\\n' >{GATE}; systemctl stop {unit}; systemctl reset-failed {unit} || true")

    # As clients do: again and again. A responder that is still there has asked systemd already.
    until = time.monotonic() + WAIT_S
    while stands(fleet, name, unit) == "inactive":
        assert time.monotonic() < until and fleet.shell(name, ASK).startswith("HTTP/1.1 503 ")
    embed = served(fleet, name, "embed")
    assert apply(fleet, name, sleeper) == set() and served(fleet, name, "embed") == embed

    wish = {"unit": unit, "state": "stopped", "until": ""}
    assert fleet.engine(name, "wish", wish=wish)["error"] is None
    assert (stands(fleet, name, unit), stands(fleet, name, SOCKET)) == ("inactive", "inactive")
    assert "serving" not in fleet.shell(name, "ls /run/gb10-vllm-embed")
    assert fleet.shell(name, f"test -e {ENTRANCE} || echo gone").strip() == "gone", (
        "the gateway says that it is stopped"
    )
    fleet.shell(name, "systemctl daemon-reexec; systemctl start multi-user.target sockets.target")  # as a boot does
    assert (stands(fleet, name, unit), stands(fleet, name, SOCKET)) == ("inactive", "inactive")

    assert fleet.engine(name, "wish", wish=wish | {"state": "started"})["error"] is None
    assert served(fleet, name, "embed") != embed and stands(fleet, name, SOCKET) == "active"
    assert served(fleet, name, "chat") == chat

    apply(fleet, name, {"chat": CHAT})
    left = (
        "ls /etc/systemd/system /usr/local/sbin /run/gb10-wake 2>&1 | grep -e wake -e embed | grep -v 'No such' || true"
    )
    assert fleet.shell(name, left).strip() in ("", "/run/gb10-wake:")
    assert stands(fleet, name, SOCKET) == "inactive" and served(fleet, name, "chat") == chat


def test_another_model_and_a_container_that_is_killed_are_told_and_leave_the_neighbour_alone(
    host: tuple[Fleet, str],
) -> None:
    fleet, name = host
    apply(fleet, name, {"chat": CHAT, "embed": EMBED})
    chat, embed = served(fleet, name, "chat"), served(fleet, name, "embed")
    other = {"chat": CHAT | {"model": "openai/gpt-oss-20b"}, "embed": EMBED}
    assert ("vllm", "unit:gb10-vllm-chat.service") in apply(fleet, name, other)
    chat, former = served(fleet, name, "chat"), chat
    assert chat != former and served(fleet, name, "embed") == embed

    fleet.shell(name, "rm /run/gb10-vllm-chat/runs")  # as `docker kill` has it: the container ends with 137
    said = {
        "ps": r"chat +\S+ +failed ",
        "why": r"possible: the unit of a service failed\n +because: gb10-vllm-chat: killed: ",
        "top": "chat: failed, killed; embed: ready",
    }
    # All at once: after a minute systemd starts the container again, and on a busy machine each takes half of that.
    asked = {}
    for command in said:
        limit = [name] if command == "why" else ["--limit", name]
        argv = [GB10, command, *limit, "-i", str(fleet.inventory), "--", "-e", f"@{HERE}/vars.yml"]
        asked[command] = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for command, process in asked.items():
        out, err = process.communicate(timeout=300)
        found = re.search(said[command], out)
        assert process.returncode == 0 and found, out + err
        print(f"a container is killed: {command}: {found[0]}")
    assert served(fleet, name, "chat") != chat and served(fleet, name, "embed") == embed
    assert apply(fleet, name, other) == set(), "systemd has mended it, and no run needs to"
