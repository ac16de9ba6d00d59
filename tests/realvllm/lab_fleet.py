"""Two hosts of the lab with real services: our roles, units, gateways and router, and a real vLLM in Docker's place."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.serving.canary import QUESTIONS

from tests.fleet.fleet import PYTHON, Fleet
from tests.fleet.rollouts import GB10
from tests.realvllm import fleet as real_fleet
from tests.realvllm.fleet import CHAT, EMBED, KINDS
from tests.realvllm.real import BIN
from tests.support.archive import packed
from tests.support.rig import ROOT, Play
from tests.support.router_fleet import FLEET_KEY, KEY, certificates

HERE = Path(__file__).parent
LIBRARIES = "/opt/gb10-real"  # those that the image has and the host has not
SEEN = "/run/gb10-test-loads"
ROLES = ["page_cache", "vllm", "gateway"]
# Two cores for three servers: none of them gets one for itself.
ENVIRONMENT = {
    **{"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
    **{"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
}
ONE = {"max_model_len": 2048, "memory_gib": 3, "environment": ENVIRONMENT}
WORDS = ["--enforce-eager", "--max-num-seqs"]
PROMPTS = [asked.prompt for asked in QUESTIONS]
LENGTHS = [96, *[8] * 7]  # of streams, in turn: a long one is open when its replica is to go
READY_S = 300.0
DOCKER_UNIT = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"


class RealFleet(Fleet):
    """`model_of`: the folder of a model by its kind. `home`: for what is written here."""

    def __init__(self, home: Path, model_of: Callable[[str], Path]) -> None:
        super().__init__(2)
        self.home, self.model_of = home, model_of
        self.mine, self.at_once = home / "real.yml", 16  # requests that a chat works on at once: what a rollout changes

    # -- the hosts

    def up(self) -> None:
        """With what the machine below has: the environment of vLLM, and the Python that this one stands on."""
        base = subprocess.run(
            [BIN / "python", "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True
        )
        assert base.stdout.strip() != "/usr", "GB10_REAL_VLLM stands on this machine's own Python, which no host has"
        shown = [word for path in (BIN.parent, base.stdout.strip()) for word in ("--show", str(path))]
        self._mine = not (self.inventory / "hosts.yml").exists()
        self.lab("up", "fleet", "--hosts", str(self.count), *shown)
        said = yaml.safe_load((self.inventory / "hosts.yml").read_text())["all"]
        self.hosts = tuple(said["children"]["sparks"]["hosts"])
        certificates(self.ca, {host: self.address(host) for host in self.hosts})
        for host in self.hosts:
            self.prepare(host)
        self.write()

    def prepare(self, host: str) -> None:
        """Docker's stand-in, the certificates that an operator puts there, and the models."""
        kinds = [KINDS[model] for model in self.models(host)]
        self.root(host, "tar", "--extract", "--directory=/", program=packed(self.files(host, kinds)))
        self.shell(host, "systemctl daemon-reload; systemctl reset-failed docker.service || true; apt-get -qq update")

    def models(self, host: str) -> list[str]:
        return [CHAT, EMBED] if host == self.head else [CHAT]

    @property
    def head(self) -> str:
        """It has both services, and the router."""
        return self.hosts[0]

    @property
    def ca(self) -> Path:
        return self.home / "fleet.pem"

    @property
    def url(self) -> str:
        return f"https://{self.address(self.head)}:8443/v1"

    def files(self, host: str, kinds: Sequence[str]) -> dict[str, Path | bytes]:
        stand_in = (HERE / "on_host/docker.py").read_text()
        said = {"@PROGRAMS@": str(BIN), "@LIBRARIES@": LIBRARIES}
        for name, value in said.items():
            stand_in = stand_in.replace(name, value)
        client = self.home / "docker"
        client.write_text(stand_in)
        client.chmod(0o755)
        files: dict[str, Path | bytes] = {
            "usr/bin/docker": client,
            "etc/systemd/system/docker.service": DOCKER_UNIT.encode(),
            "etc/gb10-certificate/gateway.pem": self.home / f"{host}.pem",
            "etc/gb10-certificate/gateway.key": self.home / f"{host}.key",
            "etc/gb10-certificate/fleet.pem": self.ca,
            **libraries(*BIN.parent.glob("lib/python3*/site-packages/vllm/*.so")),
        }
        for model, kind in KINDS.items():
            if kind in kinds:
                files |= _in_the_hub(model, self.model_of(kind))
        return files

    # -- what an operator says and does

    def write(self) -> None:
        """The part of the inventory that the lab does not write."""
        shared = {
            "gb10_roles": ROLES,
            **{"vllm_fetch": False, "vllm_version": "0.32.0", "vllm_model": ""},
            "gateway_address": "{{ ansible_host }}",
            "gateway_certificate": "/etc/gb10-certificate/gateway.pem",
            "gateway_certificate_key": "/etc/gb10-certificate/gateway.key",
            "gateway_keys": {"laptop": KEY},
            **{"gateway_fleet_key": FLEET_KEY, "gateway_fleet_ca": "/etc/gb10-certificate/fleet.pem"},
            "gb10_evidence_directory": str(self.home / "evidence"),
        }
        hosts: dict[str, Any] = {host: {"vllm_services": self.services(host)} for host in self.hosts}
        hosts[self.head]["gateway_fleet"] = ["sparks"]
        inventory = {"all": {"vars": shared, "children": {"sparks": {"hosts": hosts}}}}
        self.mine.write_text(json.dumps(inventory, indent=1))

    def services(self, host: str) -> dict[str, Any]:
        embed = {
            **{**ONE, "model": EMBED, "port": 8002, "api_key": "key-of-the-vectors-and-of-nothing-else"},
            **{"extra_args": [*WORDS, "16", "--runner", "pooling", "--convert", "embed"], "hosts": [self.head]},
        }
        return {"chat": self.chat(), "embed": embed}

    def chat(self) -> dict[str, Any]:
        own = {"model": CHAT, "port": 8000, "api_key": "key-of-the-chat-and-of-nothing-else"}
        return {**ONE, **own, "extra_args": [*WORDS, str(self.at_once)]}

    def deploy(self) -> Play:
        """`gb10 site`: as declared, and proven."""
        return self.play("-i", str(self.mine))

    def gb10(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command, for the hosts of both inventories."""
        inventories = ["-i", str(self.inventory), "-i", str(self.mine)]
        environment = self.ansible()[1] | {"PYTHONPATH": f"{ROOT / 'collections'}:{ROOT}"}
        argv = [*GB10, *words, *inventories]
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        print(f"$ gb10 {' '.join(words)}\n{done.stdout[-6000:]}{done.stderr[-3000:]}\nrc={done.returncode}")
        return done

    def rollout(self) -> subprocess.CompletedProcess[str]:
        """Host after host, each proven before the next one begins."""
        sizes = ["--canary", "1", "--growth", "100%", "--soak", "0"]
        return self.gb10("rollout", "site", *sizes, "--state", str(self.home / "state"), "--json")

    # -- what is there

    def all_ready(self) -> None:
        until = time.monotonic() + READY_S
        while {each["state"] for each in self.show()} != {"ready"}:
            assert time.monotonic() < until, self.show()
            time.sleep(0.5)

    def asked(self, **more: Any) -> dict[str, Any]:
        """Of caller.py: the address of the fleet, and what its models were taught."""
        return real_fleet.asked(self.url, self.ca, PROMPTS, **{"lengths": LENGTHS, **more})

    def show(self) -> list[dict[str, Any]]:
        """What the router says."""
        return list(json.loads(self.shell(self.head, "gb10-router show")))

    def state(self, model: str, host: str) -> str:
        place = model.replace("/", "-")
        return next(each["state"] for each in self.show() if (each["model"], each["host"]) == (place, host))

    def started(self, host: str, service: str) -> str:
        """When the container of a service was started, by systemd's clock."""
        unit = f"container-gb10-vllm-{service}.service"
        return self.shell(host, f"systemctl show -p InvocationID -p ActiveState {unit}").strip()

    def watch(self) -> None:
        """What loads at the same moment on the host with two services, from now on."""
        program = (HERE / "on_host/loads.py").read_text()
        run = f"systemd-run --quiet --collect --unit=gb10-test-loads {PYTHON} {SEEN}.py {SEEN} chat embed"
        again = "systemctl stop gb10-test-loads.service 2>/dev/null || true"
        self.shell(self.head, f"cat >{SEEN}.py <<'END'\n{program}\nEND\n{again}\n{run}")

    def loads(self) -> tuple[set[frozenset[str]], set[str]]:
        """Which services were seen to load together, and what any of them waited for."""
        seen = [json.loads(line) for line in self.shell(self.head, f"cat {SEEN}").splitlines()]
        waits = {verdict for _, waiting in seen for verdict in waiting.values()}
        return {frozenset(loading) for loading, _ in seen}, waits


def libraries(*programs: Path) -> dict[str, Path | bytes]:
    """What these take of this machine and no host of the lab has: libnuma, and what was built beside them."""
    found: dict[str, Path | bytes] = {}
    for program in programs:
        done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", done.stdout, re.MULTILINE):
            if name == "libnuma.so.1" or not path.startswith(("/lib", "/usr/lib")):
                found[f"{LIBRARIES[1:]}/{name}"] = Path(path)
    return found


def snapshot(model: str) -> str:
    """The folder of a model's files in the cache of the hub, below the root."""
    home = f"var/cache/gb10-vllm/huggingface/hub/models--{model.replace('/', '--')}"
    return f"{home}/snapshots/{commit(model)}"


def commit(model: str) -> str:
    return hashlib.sha256(model.encode()).hexdigest()[:40]


def _in_the_hub(model: str, folder: Path) -> dict[str, Path | bytes]:
    """The files of a model as the cache of the hub has them."""
    home = snapshot(model)
    return {f"{home.rpartition('/snapshots/')[0]}/refs/main": commit(model).encode(), home: folder}
