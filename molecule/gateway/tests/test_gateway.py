"""The gateway's unit, asked over TLS from outside; its allow-list is in tests/unit/documents/test_gateway.py."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]

KEY = "a-key-of-the-lab-and-of-nothing-else"
CERTIFICATE = "/etc/gb10-certificate/gateway.pem"
PORT = 8443
WWW = "/run/gb10-test-upstream"
SERVICE = "/run/gb10-vllm"


def address(host: Host) -> str:
    found: str = host.ansible.get_variables()["ansible_host"]
    return found


def ask(host: Host, path: str, key: str = KEY, method: str = "GET") -> tuple[int, str]:
    context = ssl.create_default_context(cadata=host.file(CERTIFICATE).content_string)
    context.check_hostname = False
    connection = http.client.HTTPSConnection(address(host), PORT, timeout=30, context=context)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def model(host: Host) -> Iterator[None]:
    """Something that answers where vLLM would, with a file for each path."""
    host.check_output(
        f"mkdir -p {WWW}/v1 && echo well > {WWW}/health && echo models > {WWW}/v1/models && echo no > {WWW}/load"
    )
    host.check_output(
        "systemd-run --collect --unit=gb10-test-upstream --property=WorkingDirectory=%s"
        " python3 -m http.server 8000 --bind 127.0.0.1",
        WWW,
    )
    host.check_output("timeout 60 sh -c 'until ss -Hltn sport = 8000 | grep -q .; do sleep 0.1; done'")
    host.check_output("mkdir -p %s && touch %s/serving", SERVICE, SERVICE)  # as its unit says that it serves
    yield
    host.check_output("systemctl stop gb10-test-upstream && rm -r %s %s", WWW, SERVICE)


def test_it_runs_and_starts_at_boot(host: Host) -> None:
    assert host.service("gb10-gateway").is_running and host.service("gb10-gateway").is_enabled


def test_keys_are_roots_own(host: Host) -> None:
    keys = host.file("/etc/gb10-fleet/gateway-keys.conf")
    assert keys.user == "root" and keys.mode == 0o600
    assert KEY not in host.file("/etc/gb10-fleet/gateway.conf").content_string


def test_workers_have_no_privileges(host: Host) -> None:
    master = host.check_output("systemctl show -p MainPID --value gb10-gateway")
    assert host.check_output("ps -o user= -p %s", master) == "root"
    assert set(host.check_output("ps -o user= --ppid %s", master).split()) == {"www-data"}


def test_from_outside_there_are_ssh_and_the_gateway(host: Host) -> None:
    found = []
    for port in range(1, 65536):
        with socket.socket() as probe:
            probe.settimeout(5)
            if probe.connect_ex((address(host), port)) == 0:
                found.append(port)
    assert found == [22, PORT]


def test_the_web_server_of_the_package_never_starts(host: Host) -> None:
    """Not by hand, not at boot, and not when the package is upgraded."""
    host.check_output("systemctl start nginx.service")
    host.check_output(
        "DPKG_MAINTSCRIPT_PACKAGE=nginx DPKG_MAINTSCRIPT_NAME=postinst /var/lib/dpkg/info/nginx.postinst configure 1.0"
    )
    assert host.check_output("systemctl show -p ActiveState --value nginx.service") == "inactive"
    assert not host.socket("tcp://0.0.0.0:80").is_listening
    assert host.service("gb10-gateway").is_running


@pytest.mark.usefixtures("model")
def test_a_key_is_asked_for_and_paths_are_counted(host: Host) -> None:
    assert ask(host, "/v1/models") == (200, "models\n")
    assert ask(host, "/health", key="") == (200, "well\n")
    assert ask(host, "/v1/models", key="")[0] == 401
    assert ask(host, "/v1/models", key="wrong")[0] == 401
    assert ask(host, "/load")[0] == 404
    assert ask(host, "/v1/../load")[0] == 404
    assert ask(host, "/v1/models", method="POST")[0] == 405


def test_without_the_model_it_says_so(host: Host) -> None:
    status, said = ask(host, "/v1/models")
    assert status == 502 and json.loads(said)["error"]["message"] == "the model is not running"
    assert ask(host, "/health", key="")[0] == 503


def test_the_journal_names_the_client_and_no_key(host: Host) -> None:
    ask(host, f"/v1/models?key={KEY}")
    host.check_output("journalctl --sync")
    said = host.check_output("journalctl -u gb10-gateway -o cat --no-pager")
    assert '"laptop" "GET /v1/models" 502' in said
    assert KEY not in host.check_output("journalctl --no-pager -b -t gb10_gateway -t nginx")
    assert KEY not in host.check_output("systemctl show gb10-gateway; ps -eo args")


def test_a_reload_with_a_certificate_that_is_gone_leaves_it_running(host: Host) -> None:
    host.check_output("mv %s %s.gone", CERTIFICATE, CERTIFICATE)
    try:
        assert host.run("systemctl reload gb10-gateway").rc != 0
    finally:
        host.check_output("mv %s.gone %s", CERTIFICATE, CERTIFICATE)
    assert ask(host, "/v1/models", key="")[0] == 401
    before = host.check_output("systemctl show -p MainPID --value gb10-gateway")
    host.check_output("systemctl reload gb10-gateway")
    assert ask(host, "/v1/models", key="")[0] == 401
    assert host.check_output("systemctl show -p MainPID --value gb10-gateway") == before
