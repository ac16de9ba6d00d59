"""Two hosts that serve alone, a router in front of both, and a Prometheus that asks them: for what happens at night.

Real: systemd, Docker's engine, the playbooks and `gb10` as they are typed, NGINX, HAProxy, node_exporter, Prometheus
with our rules. Made up: GPU and model (the lab's stand-ins), and what a boot is to a container: a program of ours gives
it a name of its own. No alert waits for a second look here, so each dip would be told.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring import rules

from tests.fleet.fleet import Fleet
from tests.fleet.two import INGREDIENTS, Two
from tests.support.ports import free_port
from tests.support.prometheus import asked
from tests.support.rig import ROOT

ROLES = ["docker", "container_toolkit", "page_cache", "vllm", "gateway", "monitoring", "watchdog"]
UNIT = "gb10-vllm.service"
MODEL, OTHER = "openai/gpt-oss-120b", "openai/gpt-oss-20b"
CONTEXT = 32768
# A request that asks for all of it takes five seconds, and another one waits so long.
ENVIRONMENT = {"GB10_SIM": f"tokens-per-s=6000,kv-tokens={CONTEXT}"}
KEY = "k" * 32
HERE_S = "198.18.7.1"  # this machine, to the hosts of the lab
ASKS_S, WAIT_S = 5, 150.0
CERTIFICATES = "/etc/gb10-certificate"
# A rule as an owner may have one: it fails as soon as a host has two figures. A rule of ours no host can make fail.
OWN_RULES = "groups: [{name: own, rules: [{record: 'own:doubled', expr: night_figure + on (instance) night_figure}]}]"
# At each boot, before anything asks for its name. Docker's store lies on the container's own file system.
BOOT = f"""
install -d {CERTIFICATES} /usr/local/sbin
cat >/usr/local/sbin/gb10-lab-boot <<'END'
#!/bin/sh
cat /proc/sys/kernel/random/uuid >/run/gb10-lab-boot-id
mount --bind /run/gb10-lab-boot-id /proc/sys/kernel/random/boot_id
for each in /sys/fs/cgroup/*/; do mount -o remount,bind,rw "$each" 2>/dev/null; done
exit 0
END
chmod 755 /usr/local/sbin/gb10-lab-boot
cat >/etc/systemd/system/gb10-lab-boot.service <<'END'
[Unit]
DefaultDependencies=no
Before=systemd-journald.service sysinit.target docker.service
[Service]
StandardOutput=null
StandardError=null
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/gb10-lab-boot
[Install]
WantedBy=sysinit.target
END
systemctl daemon-reload; systemctl enable --quiet gb10-lab-boot; systemctl start gb10-lab-boot
"""
NO_BOOT = """
systemctl disable --quiet gb10-lab-boot || true
umount -l /proc/sys/kernel/random/boot_id 2>/dev/null || true
rm -f /etc/systemd/system/gb10-lab-boot.service /usr/local/sbin/gb10-lab-boot /run/gb10-lab-boot-id
systemctl daemon-reload; rm -rf /etc/gb10-certificate
"""


class Night(Two):
    """The first host has the router and a Prometheus of its own; on the second one things go wrong."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        super().__init__(fleet, folder)
        self.inventory = folder / "inventory/mine"
        self.port = free_port()
        self.prometheus: subprocess.Popen[bytes] | None = None

    # -- begin and end

    def begin(self) -> None:
        script = (INGREDIENTS / "begin.sh").read_text()
        without_store = "\n".join(line for line in script.splitlines() if "/var/lib/docker" not in line)
        self._openssl("req -x509 -newkey rsa:2048 -nodes -subj /CN=night -days 90 -keyout ca.key -out fleet.pem")
        for host in self.fleet.hosts:
            self.fleet.shell(host, without_store + BOOT)
            self.certify(host)
        self._write_inventory()
        self.bring_collection()

    def end(self) -> None:
        if self.prometheus:
            self.prometheus.kill()
            self.prometheus.wait()
        for host in self.fleet.hosts:
            said = self.fleet.engine(host, "undo")
            self.fleet.shell(host, (INGREDIENTS / "end.sh").read_text() + NO_BOOT)
            assert said["error"] is None, f"{host}: undo: {said['error']}"

    def certify(self, host: str, days: int = 90) -> None:
        """Give the gateway of a host a certificate that ends in so many days; nothing is told of it."""
        names = f"-subj /CN={host} -addext subjectAltName=DNS:{host} -addext basicConstraints=CA:false"
        self._openssl(f"req -newkey rsa:2048 -nodes {names} -keyout gateway.key -out gateway.csr")
        self._openssl(
            "x509 -req -in gateway.csr -copy_extensions copy -CA fleet.pem -CAkey ca.key -CAcreateserial"
            f" -days {days} -out gateway.pem"
        )
        for name in ("gateway.key", "gateway.pem", "fleet.pem"):
            text = (self.folder / name).read_text()
            self.fleet.shell(host, f"cat >{CERTIFICATES}/{name} <<'END'\n{text}END")

    def _openssl(self, words: str) -> None:
        subprocess.run(["openssl", *words.split()], cwd=self.folder, check=True, capture_output=True)

    def _write_inventory(self) -> None:
        known = yaml.safe_load((self.fleet.inventory / "hosts.yml").read_text())
        hosts = known["all"]["children"]["sparks"]["hosts"]
        known["all"]["children"] = {"sparks": {"hosts": {host: hosts[host] for host in self.fleet.hosts}}}
        address = self.fleet.address(self.first)
        known["all"]["vars"] |= {
            "gb10_roles": ROLES,
            "fabric_topology": "none",
            "gb10_evidence_directory": str(self.folder / "evidence"),
            "docker_daemon_options": known["all"]["vars"]["docker_daemon_options"] | {"storage-driver": "vfs"},
            "vllm_environment": ENVIRONMENT,
            "vllm_max_model_len": CONTEXT,
            "gateway_address": "{{ ansible_host }}",
            "gateway_certificate": f"{CERTIFICATES}/gateway.pem",
            "gateway_certificate_key": f"{CERTIFICATES}/gateway.key",
            "gateway_keys": {"laptop": KEY},
            "gateway_fleet_key": "f" * 32,
            "monitoring_enabled": True,
            "monitoring_address": "{{ ansible_host }}",
            "monitoring_clients": [HERE_S, address],
            "monitoring_slo": {"ttft_p95_s": 2, "error_share": 0.01},
        }
        hosts[self.first] |= {
            "gateway_fleet": ["sparks"],
            "gateway_fleet_ca": f"{CERTIFICATES}/fleet.pem",
            "monitoring_server": True,
            "monitoring_targets": {self.second: self.fleet.address(self.second)},
        }
        hosts[self.second] |= {
            "vllm_gpu_memory_utilization": 0.1,
            "gb10_layouts": {"day": ["vllm"], "night": ["small"]},
            "vllm_services": {"small": {"model": OTHER, "span": "host", "port": 8001, "memory_gib": 2}},
            "watchdog_allow_restart": True,
            "watchdog_after_s": 60,
        }
        self.inventory.mkdir(parents=True)
        (self.inventory / "hosts.yml").write_text(yaml.safe_dump(known))

    def change(self, **variables: Any) -> None:
        """As an operator edits the inventory: other lines of the second host."""
        file = self.inventory / "hosts.yml"
        known = yaml.safe_load(file.read_text())
        known["all"]["children"]["sparks"]["hosts"][self.second] |= variables
        file.write_text(yaml.safe_dump(known))

    def ask_all(self) -> None:
        """Start the Prometheus that judges."""
        spans = {"gateway_s": 60, "slo_long_s": 60, "slo_short_s": 30}
        made = rules.render({**rules.figures(interval_s=ASKS_S), **spans}, "https://example.com")
        for group in made["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
        (self.folder / "rules.yml").write_text(yaml.safe_dump(made))
        (self.folder / "own.yml").write_text(OWN_RULES)
        targets = [
            {"targets": [f"{self.fleet.address(host)}:9100"], "labels": {"instance": host}} for host in self.fleet.hosts
        ]
        itself = {"static_configs": [{"targets": [f"127.0.0.1:{self.port}"], "labels": {"instance": "prometheus"}}]}
        config = {
            "global": {"scrape_interval": f"{ASKS_S}s", "scrape_timeout": f"{ASKS_S}s"},
            "rule_files": ["rules.yml", "own.yml"],
            "scrape_configs": [{"job_name": "gb10", "static_configs": targets}, {"job_name": "prometheus", **itself}],
        }
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        options = [f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data"]
        with (self.folder / "prometheus.log").open("wb") as log:
            argv = ["prometheus", *options, f"--web.listen-address=127.0.0.1:{self.port}"]
            self.prometheus = subprocess.Popen(argv, stdout=log, stderr=log)

    # -- what is typed

    def typed(self, line: str, timeout: int = 600) -> subprocess.CompletedProcess[str]:
        """On the machine from which the fleet is run, in the folder that has inventory/mine."""
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.fleet.sockets),
            "ANSIBLE_NOCOLOR": "1",
        }
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=self.folder, env=environment, capture_output=True, text=True,
            timeout=timeout, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def on_host(self, host: str, line: str) -> subprocess.CompletedProcess[str]:
        """As the user of the host, who may sudo: no root, and no terminal."""
        argv = self.fleet._ssh(host, "bash", "-o", "pipefail", "-c", line)
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL)

    # -- what is seen

    def ask(self, expression: str) -> list[dict[str, Any]]:
        return asked(self.port, expression)

    def firing(self, of: str = "") -> set[tuple[str, str]]:
        """Host and alert. `of`: a span, for all that fired within it."""
        span = f"[{of}]" if of else ""
        found = self.ask(f'ALERTS{{alertstate="firing",alertname!="Gb10Heartbeat"}}{span}')
        return {(each["metric"]["instance"], each["metric"]["alertname"]) for each in found}

    def wait(self, true: Callable[[], Any], what: Callable[[], Any], wait_s: float = WAIT_S) -> None:
        end = time.monotonic() + wait_s
        while True:
            try:
                if true():
                    return
            except OSError:  # it is not up yet
                pass
            assert time.monotonic() < end, what()
            time.sleep(0.5)

    def collect(self) -> None:
        for host in self.fleet.hosts:
            units = "gb10-metrics-now gb10-metrics-history"  # asked again and again, they would be refused
            self.fleet.shell(host, f"systemctl reset-failed {units} 2>/dev/null || true; systemctl start {units}")

    def time_passes(self) -> None:
        """What is left of planned work for what it has caused is over on all hosts."""
        for host in self.fleet.hosts:
            self.fleet.shell(host, "rm -f /var/lib/gb10-metrics/planned/*")
        self.collect()

    def life(self, host: str) -> str:
        """Another one is another start of the model's container."""
        return self.fleet.shell(host, f"systemctl show -p InvocationID --value {UNIT}")

    def boot(self, host: str) -> str:
        """The name of the boot that runs; empty while none answers."""
        return self.on_host(host, "cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def ready(self) -> bool:
        """Whether each host says that it serves the model of both."""
        return all(
            '"phase": "ready"' in self.fleet.shell(host, "cat /run/gb10-vllm/status.json || true")
            for host in self.fleet.hosts
        )

    def serves(self) -> bool:
        """Whether each host does, and the router sends requests to both."""
        shown = json.loads(self.fleet.shell(self.first, "gb10-router show || echo '[]'"))
        return self.ready() and [one["state"] for one in shown if "120b" in one["model"]] == ["ready", "ready"]

    @contextlib.contextmanager
    def clients(self) -> Iterator[None]:
        """Somebody asks the gateway of the first host, again and again."""
        body = json.dumps({"model": MODEL, "prompt": "x", "max_tokens": 1})
        words = ["-ks", "-m", "5", "-o", "/dev/null", "-H", f"Authorization: Bearer {KEY}"]
        url = f"https://{self.fleet.address(self.first)}:8443/v1/completions"
        over = threading.Event()

        def ask() -> None:
            while not over.wait(0.5):
                subprocess.run(["curl", *words, "-H", "Content-Type: application/json", "-d", body, url], check=False)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()
