"""Pulls through what a company has: a registry with accounts, a mirror of Docker Hub, a proxy. Each is a real program.

The registry is Debian's docker-registry, a pull-through cache of the lab's own; the proxy is tinyproxy. Both run on the
controller, at the lab's address. The machines have no way to Docker Hub: what they have of it is from the mirror.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab_pair import Pair
from tests.support.rig import Play

pytestmark = [pytest.mark.lab, pytest.mark.long]

HERE = "198.18.7.1"  # the controller, as the machines see it
PRIVATE, MIRROR, PROXY = 8181, 8182, 8128
ACCOUNT, PASSWORD = "robot", "night shift"
# As `htpasswd -nbB -C 4` writes the two.
ACCOUNTS = "robot:$2y$04$lQ9b9AIyfRk9E25MMhsKieVVIavLwuDNxRJ2BoKgs7HvPJ2f6EkKu\n"
PROXY_SETTINGS = """Port {port}
Listen {here}
Allow {here}/24
LogFile "{log}"
LogLevel Connect
Timeout 60
"""


class House:
    """The company's programs, each with its log in `folder`."""

    def __init__(self, folder: Path, registry: str) -> None:
        self.folder, self.registry = folder, registry
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        (self.folder / "accounts").write_text(ACCOUNTS)
        self._registry("private", PRIVATE, auth={"htpasswd": {"realm": "lab", "path": str(self.folder / "accounts")}})
        self._registry("mirror", MIRROR)
        settings = self.folder / "proxy.conf"
        settings.write_text(PROXY_SETTINGS.format(port=PROXY, here=HERE, log=self.folder / "proxy.log"))
        self._run("tinyproxy", "-d", "-c", str(settings), name="proxy.out")
        for port in (PRIVATE, MIRROR, PROXY):
            self._answers(port)

    def stop(self) -> None:
        for child in self.children:
            child.terminate()
            child.wait(30)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def _registry(self, name: str, port: int, **more: Any) -> None:
        settings = {
            "version": 0.1, "log": {"accesslog": {"disabled": False}}, "http": {"addr": f"{HERE}:{port}"},
            "storage": {"filesystem": {"rootdirectory": str(self.folder / name)}},
            "proxy": {"remoteurl": f"http://{self.registry}"}, **more,
        }  # fmt: skip
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(settings))  # JSON is YAML
        self._run("docker-registry", "serve", str(path), name=f"{name}.log")

    def _run(self, *argv: str, name: str) -> None:
        with (self.folder / name).open("wb") as log:
            self.children.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _answers(self, port: int) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://{HERE}:{port}/v2/", timeout=10).close()
            except urllib.error.HTTPError:
                return  # an answer as well: it wants an account, or it is a proxy
            except OSError:
                assert time.monotonic() < deadline, f"nothing answers at port {port}: see {self.folder}"
                time.sleep(0.2)
            else:
                return


@pytest.fixture(scope="module")
def house(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    missing = [name for name in ("docker-registry", "tinyproxy") if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)} here (Debian has a package of that name): pulls were NOT tested")
    found = House(tmp_path_factory.mktemp("house"), pair.registry)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def provisioned(pair: Pair, house: House) -> Pair:
    """With Docker, and a fabric over which the second host gets what the first has pulled."""
    docker(pair, "registry-mirrors", [f"http://{HERE}:{MIRROR}"], roles=["kernel_parameters", "fabric", "docker"])
    return pair


def docker(pair: Pair, key: str, value: Any, roles: list[str] | None = None) -> None:
    options = {"insecure-registries": [pair.registry, f"{HERE}:{PRIVATE}", f"{HERE}:{MIRROR}"], key: value}
    said = {"gb10_roles": roles or ["docker"], "docker_daemon_options": options, "docker_allow_restart": True}
    assert pair.play("-e", json.dumps(said), playbook="playbooks/converge.yml").rc == 0


def fetch(pair: Pair, image: str, **variables: Any) -> Play:
    """`gb10 fetch`: image and model, for a service that does not run yet."""
    said = {"gb10_roles": ["vllm"], "gb10_ahead": True, "vllm_image": image, **variables}
    return pair.play("-e", json.dumps(said), playbook="playbooks/fetch.yml")


def gone(pair: Pair) -> None:
    """No image is left, so that the next one comes from somewhere."""
    for host in pair.hosts:
        pair.ssh(host, "sudo systemctl stop gb10-vllm.service || true")
        pair.ssh(host, "sudo docker ps --quiet | xargs -r sudo docker rm --force")
        pair.ssh(host, "sudo docker images --quiet | xargs -r sudo docker rmi --force")


def there(pair: Pair, image: str) -> None:
    """Under its name where it was pulled. The second host got it over the fabric, where a digest is no name."""
    first, second = pair.hosts
    identity = pair.ssh(first, f"sudo docker image inspect --format '{{{{.Id}}}}' {image}").strip()
    assert identity in pair.ssh(second, "sudo docker images --quiet --no-trunc").split()


def test_a_registry_with_accounts(provisioned: Pair, house: House) -> None:
    pair = provisioned
    image = pair.image.replace(pair.registry, f"{HERE}:{PRIVATE}")
    gone(pair)
    wrong = fetch(pair, image, vllm_registry_username=ACCOUNT, vllm_registry_password="day shift")  # noqa: S106
    assert wrong.rc != 0 and "vllm_registry_username" in wrong.tasks, wrong.tasks[-3000:]
    assert fetch(pair, image, vllm_registry_username=ACCOUNT, vllm_registry_password=PASSWORD).rc == 0
    there(pair, image)
    assert f"auth.user.name={ACCOUNT}" in house.log("private")
    for host in pair.hosts:
        # Brackets: sudo writes this command into the journal, which is searched, too.
        kept = "sudo grep -rlsa 'night [s]hift\\|cm9ib3Q6bmlnaHQgc2hpZn[Q]' /etc /root /run /tmp /var/log || true"
        assert pair.ssh(host, kept) == "", "credentials stay after the pull"


def test_a_mirror_of_docker_hub(provisioned: Pair, house: House) -> None:
    pair = provisioned
    image = pair.image.removeprefix(f"{pair.registry}/")  # a name without a registry is one of Docker Hub
    gone(pair)
    assert fetch(pair, image).rc == 0
    there(pair, image)
    assert f"GET /v2/{image.replace('@', '/manifests/')}" in house.log("mirror")


def test_a_proxy(provisioned: Pair, house: House) -> None:
    pair = provisioned
    docker(pair, "proxies", {"http-proxy": f"http://{HERE}:{PROXY}", "no-proxy": "localhost,127.0.0.0/8"})
    gone(pair)
    assert pair.registry not in house.log("proxy")
    assert fetch(pair, pair.image).rc == 0
    there(pair, pair.image)
    assert f"GET http://{pair.registry}/v2/" in house.log("proxy")


def test_the_hosts_are_left_as_they_were(provisioned: Pair) -> None:
    consents = {"fabric_allow_activation": True, "docker_allow_restart": True}
    said = ("-e", "gb10_undo=all", "-e", json.dumps(consents))
    assert provisioned.play(*said, playbook="playbooks/undo.yml").rc == 0
