"""`gb10 share`: what it writes, who can read it, and a server with it that answers only a client with its key."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from typer.testing import CliRunner

from gb10_fleet import authority, cli, share_cli
from gb10_fleet.playbook import Order, Outcome, Report, run
from gb10_fleet.rollout import locks
from gb10_fleet.up.people import Stop
from tests.support.attacker import tally
from tests.support.ports import free_port

CLI = CliRunner()
HOSTS = "all: {children: {sparks: {hosts: {a: {ansible_host: 192.0.2.11}}}}}"
NOW = datetime(2026, 11, 28, tzinfo=UTC)


class Gateway(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        keys = getattr(self.server, "keys")  # noqa: B009
        behind = getattr(self.server, "behind")  # noqa: B009
        status = behind if self.headers["Authorization"] in [f"Bearer {key}" for key in keys] else 401
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class Fleet:
    """One host that serves, whose gateway is a real server with the certificate and the keys of the inventory."""

    def __init__(self, folder: Path, **reach: Any) -> None:
        self.folder, self.port, self.server = folder, free_port(), None
        self.file = folder / share_cli.FILE
        self.orders: list[Order] = []
        self.outcome = self.doctor = Outcome.done
        self.behind = 200  # what the model's server says
        self.reach = {"login": "you@192.0.2.11", "gateway": None, **reach}

    def run(self, order: Order, quiet: bool = False, watch: Any = None) -> tuple[Outcome, Report]:
        self.orders.append(order)
        report = Report(asks=order.asks)
        if order.playbook == "gb10.fleet.site":
            if self.outcome is Outcome.done:
                self.converge()
            return self.outcome, report
        if order.playbook == "gb10.fleet.doctor":
            return self.doctor, report
        service = {"name": "vllm", "state": "active", "phase": "ready", "members": [], "rank": 0}
        hosts = {"a": {"services": [service], "error": None, "silent": None}}
        data = {"resolved_action": "gb10.fleet.glance", "host": "a", "res": {"hosts": hosts}}
        report.take({"event": "runner_on_ok", "event_data": data})
        report.answers["layouts"]["a"] = {"msg": json.dumps({"reach": {"a": self.reach}})}
        return Outcome.done, report

    def converge(self) -> None:
        self.close()
        if not self.file.exists():
            return
        known = variables(self)
        pem = self.folder / "of-the-host.pem"
        pem.write_text(known["gateway_certificate_text"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        pem.unlink()
        server = ThreadingHTTPServer(("127.0.0.1", self.port), Gateway)
        setattr(server, "keys", list(known["gateway_keys"].values()))  # noqa: B010
        setattr(server, "behind", self.behind)  # noqa: B010
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.server = server

    def close(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    made = Fleet(tmp_path)
    monkeypatch.setattr(share_cli, "run", made.run)
    monkeypatch.setattr(share_cli, "_address", lambda host, login: "127.0.0.1")
    monkeypatch.setattr(share_cli, "_PORT", made.port)
    yield made
    made.close()


def variables(fleet: Fleet) -> dict[str, Any]:
    said = yaml.safe_load(fleet.file.read_text())["all"]
    return {**said["vars"], **said["hosts"]["a"]}


def call(fleet: Fleet, *words: str) -> Any:
    return CLI.invoke(cli.app, ["share", *words, "-i", str(fleet.folder)])


def test_a_client_gets_a_key_and_a_file_to_trust_and_is_taken_back(fleet: Fleet) -> None:
    result = call(fleet, "laptop", "--yes")
    assert result.exit_code == 0, result.output
    known = variables(fleet)
    key = known["gateway_keys"]["laptop"]
    assert (
        f"    {key}\n" in result.stdout and "Tried from here: it answers, and refuses who has no key" in result.stdout
    )
    assert f"https://127.0.0.1:{fleet.port}/v1" in result.stdout
    hosts = yaml.safe_load(fleet.file.read_text())["all"]["hosts"]
    assert hosts.keys() == {"a"} and hosts["a"]["gateway_address"] == "127.0.0.1"
    assert not any(key in str(order) for order in fleet.orders), "a key in a command line"

    assert json.loads(call(fleet, "phone", "--json").stdout)["client"] == "phone"
    again = variables(fleet)
    assert again["gateway_keys"]["laptop"] == key and len(again["gateway_keys"]) == 2
    assert again["gateway_certificate_text"] == known["gateway_certificate_text"], "a client would have to trust anew"
    listed = call(fleet, "--list")
    assert listed.stdout.startswith("laptop\nphone\n") and key not in listed.stdout

    assert call(fleet, "--revoke", "laptop").exit_code == 0
    assert list(variables(fleet)["gateway_keys"]) == ["phone"]
    assert call(fleet, "--revoke", "laptop").exit_code == Outcome.refused
    assert call(fleet, "--revoke", "phone").exit_code == 0
    assert not fleet.file.exists() and call(fleet, "--list").stdout.startswith("Nobody: ")


def test_a_key_that_is_taken_back_meanwhile_does_not_return(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who lets a client in asks the hosts first; what the file said before that was written over what it says then."""
    call(fleet, "laptop", "--yes")
    meanwhile: list[Any] = []

    def run(order: Order, quiet: bool = False, watch: Any = None) -> tuple[Outcome, Report]:
        if order.playbook == "gb10.fleet.services" and not meanwhile:
            meanwhile.append(None)
            meanwhile[0] = call(fleet, "--revoke", "laptop")
        return fleet.run(order, quiet)

    monkeypatch.setattr(share_cli, "run", run)
    assert call(fleet, "phone").exit_code == 0
    won = meanwhile[0].exit_code == 0 and "laptop" in variables(fleet)["gateway_keys"]
    tally("a key that was taken back returns", 1, int(won))
    assert not won
    assert meanwhile[0].exit_code == Outcome.refused and "another gb10 is at work" in meanwhile[0].stderr
    assert call(fleet, "--revoke", "laptop").exit_code == 0 and list(variables(fleet)["gateway_keys"]) == ["phone"]


@pytest.mark.parametrize("work", ["site", "rollout"])
def test_what_began_before_a_key_was_taken_back_may_bring_it_again(fleet: Fleet, work: str) -> None:
    """Ansible reads the inventory once, may fetch for an hour, and then writes the keys that it has read."""
    for name in ("laptop", "phone"):
        assert call(fleet, name, "--yes").exit_code == 0
    state = fleet.folder / ".gb10"
    with locks.beside(state / locks.SHARED) if work == "site" else locks.held(state):
        result = call(fleet, "--revoke", "laptop")
        again = call(fleet, "tablet")
    silent = result.exit_code == 0
    tally("a key that was taken back returns", 1, int(silent))
    assert not silent and "it had read the key before" in result.stderr
    assert "when that has ended, gb10 site" in result.stderr and "laptop" not in variables(fleet)["gateway_keys"]
    assert fleet.orders[-1].playbook == "gb10.fleet.site", "it is taken off the hosts all the same"
    assert (again.exit_code == Outcome.refused) is (work == "rollout"), again.output
    assert call(fleet, "--revoke", "phone").exit_code == 0


def test_a_run_that_brings_the_keys_is_known_while_it_lasts(tmp_path: Path) -> None:
    state, seen = tmp_path / ".gb10/share", []

    def runner(**_: Any) -> SimpleNamespace:
        seen.append(locks.others(state) if state.is_dir() else None)
        return SimpleNamespace(rc=0, status="successful")

    run(Order("gb10.fleet.site", [str(tmp_path)]), quiet=True, runner=runner)
    assert seen == [None] and not state.parent.exists(), "nobody has shared anything, so nobody asks"
    state.mkdir(parents=True)
    for order in (
        Order("gb10.fleet.site", [str(tmp_path)]),
        Order("gb10.fleet.converge", [str(tmp_path / "hosts.yml")]),
        Order("gb10.fleet.site", [str(tmp_path)], check=True),
        Order("gb10.fleet.glance", [str(tmp_path)]),
    ):
        run(order, quiet=True, runner=runner)
    assert seen[1:] == [True, True, False, False] and not locks.others(state)


def test_a_key_that_not_all_hosts_forgot_is_no_longer_known_here(fleet: Fleet) -> None:
    """So the same command again would be refused."""
    call(fleet, "laptop", "--yes")
    call(fleet, "phone")
    fleet.outcome = Outcome.unreachable
    result = call(fleet, "--revoke", "laptop")
    assert result.exit_code == Outcome.unreachable and list(variables(fleet)["gateway_keys"]) == ["phone"]
    assert "same again" not in result.stderr and "gb10 site takes it off the rest of the hosts" in result.stderr


def test_a_key_of_another_authority_is_named(fleet: Fleet) -> None:
    """Half of a copy that was brought back: what it signs no client would take."""
    call(fleet, "laptop", "--yes")
    key = fleet.folder / "share-authority-key.txt"
    key.write_text(authority.found("x", 30, NOW).key)
    result = call(fleet, "phone")
    assert (
        result.exit_code == Outcome.failed
        and f"{key} or" in result.stderr
        and "do not belong together" in result.stderr
    )


def test_a_gateway_whose_model_stands_still_is_no_gateway_that_cannot_be_reached(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_cli, "_TRIES_S", 0)
    fleet.behind = 502
    said = call(fleet, "laptop", "--yes").stdout
    assert "Tried from here: the gateway of a answers, and its model does not (502); `gb10 ps -i" in said, said
    fleet.behind = 418
    assert "a does not answer as it should: 401 without a key, 418 with it" in call(fleet, "laptop", "--yes").stdout
    fleet.close()
    monkeypatch.setattr(fleet, "converge", lambda: None)
    assert "a does not answer from here: " in call(fleet, "laptop", "--yes").stdout


def test_only_its_owner_reads_the_secrets_and_ansible_reads_the_variables(fleet: Fleet) -> None:
    os.umask(0o022)
    call(fleet, "laptop", "--yes")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in fleet.folder.glob("share*")}
    assert modes == {"share.yml": 0o600, "share-authority-key.txt": 0o600, "share-authority.txt": 0o644}
    assert {stat.S_IMODE((fleet.folder / name).stat().st_mode) for name in (".gb10", ".gb10/share")} == {0o700}
    argv = [str(Path(sys.executable).with_name("ansible-inventory")), "-i", str(fleet.folder), "--host", "a"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout)["gateway_keys"] == variables(fleet)["gateway_keys"]
    assert not shown.stderr, "a file of the folder is no inventory"


def test_what_was_refused_leaves_the_inventory_as_it_was(fleet: Fleet) -> None:
    fleet.outcome = Outcome.refused
    result = call(fleet, "laptop", "--yes")
    assert result.exit_code == Outcome.refused and "Nothing was changed" in result.stderr
    assert not fleet.file.exists()


def test_a_failed_run_is_gone_on_with(fleet: Fleet) -> None:
    fleet.outcome = Outcome.failed
    assert call(fleet, "laptop", "--yes").exit_code == Outcome.failed
    key = variables(fleet)["gateway_keys"]["laptop"]
    fleet.outcome = Outcome.done
    assert json.loads(call(fleet, "laptop", "--json").stdout)["key"] == key


def test_what_the_doctor_refuses_is_refused_before_the_question(fleet: Fleet) -> None:
    """A consent before it would be for nothing. For a further client nobody is asked, and that of site will do."""
    fleet.doctor = Outcome.refused
    result = call(fleet, "laptop")
    assert result.exit_code == Outcome.refused and "gb10.fleet.doctor: refused. Nothing was changed" in result.stderr
    assert "in its network who has a key" not in result.output and not fleet.file.exists()
    fleet.doctor = Outcome.done
    assert call(fleet, "laptop", "--yes").exit_code == Outcome.done
    count = len(fleet.orders)
    assert call(fleet, "phone").exit_code == Outcome.done
    assert [order.playbook for order in fleet.orders[count:]] == ["gb10.fleet.services", "gb10.fleet.site"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("laptop",), "Nobody is there to ask: say --yes"),
        (("a b", "--yes"), "a client's name has letters"),
        (("--revoke", "laptop"), "laptop has no key; nobody has one"),
        (("--revoke", ""), " has no key; nobody has one"),
        (("", "--yes"), "a client's name has letters"),
    ],
)
def test_refusals(fleet: Fleet, words: tuple[str, ...], says: str) -> None:
    result = call(fleet, *words)
    assert result.exit_code == Outcome.refused and says in result.stderr, result.output
    assert not fleet.file.exists() and "gb10.fleet.site" not in [order.playbook for order in fleet.orders]


@pytest.mark.parametrize(
    "text",
    ["", "all: {hosts: {}, vars: {gateway_keys: {laptop: x}}}", "all: {hosts: {a: {}}, vars: {gateway_keys: [laptop]}}",
     "all: {hosts: [a], vars: {}}", "all: {hosts: {a: {gateway_certificate_text: x}}, vars: {gateway_keys: {l: x}}}"],
)  # fmt: skip
@pytest.mark.parametrize("words", [("--list",), ("--revoke", "laptop"), ("laptop", "--yes")])
def test_a_damaged_file_is_named(fleet: Fleet, text: str, words: tuple[str, ...]) -> None:
    fleet.file.write_text(text)
    result = call(fleet, *words)
    assert result.exit_code == Outcome.failed and "share.yml cannot be read" in result.stderr, result.output
    assert "correct it, or move it away" in result.stderr and fleet.file.read_text() == text
    assert "object" not in result.stderr, "words of Python help nobody"


@pytest.mark.parametrize("keys", [{1: "x", "laptop": "y"}, {"laptop": 5}, {"laptop": None}, {"laptop": ["x"]}])
def test_a_key_that_is_no_text_is_named(fleet: Fleet, keys: dict[Any, Any]) -> None:
    call(fleet, "laptop", "--yes")
    said = yaml.safe_load(fleet.file.read_text())
    said["all"]["vars"]["gateway_keys"] = keys
    fleet.file.write_text(yaml.safe_dump(said))
    lost = [
        words
        for words in (("--list",), ("phone", "--yes"))
        if "share.yml cannot be read" not in call(fleet, *words).stderr
    ]
    tally("a list of clients changed by hand", 2, len(lost))
    assert not lost


def test_a_damaged_authority_and_a_folder_that_cannot_be_written_are_named(fleet: Fleet) -> None:
    call(fleet, "laptop", "--yes")
    key = fleet.folder / "share-authority-key.txt"
    key.write_text("damaged")
    result = call(fleet, "phone")
    assert result.exit_code == Outcome.failed and f"{key} or" in result.stderr and "is damaged" in result.stderr
    key.unlink()
    key.mkdir()
    (fleet.folder / "share-authority.txt").unlink()
    result = call(fleet, "phone")
    assert result.exit_code == Outcome.failed and "this user must be able to write there" in result.stderr


def test_a_gateway_of_the_inventory_is_left_to_it(fleet: Fleet) -> None:
    fleet.reach["gateway"] = "https://192.0.2.11:8443"
    assert "your inventory has a gateway already" in call(fleet, "laptop", "--yes").stderr


def test_an_inventory_that_is_a_file_gets_no_second_one(fleet: Fleet) -> None:
    result = CLI.invoke(cli.app, ["share", "laptop", "--yes", "-i", str(fleet.folder / "hosts.yml")])
    assert result.exit_code == Outcome.refused and "name that folder with -i" in result.stderr


def test_one_question_at_a_time(fleet: Fleet) -> None:
    assert call(fleet).exit_code == 2 and call(fleet, "laptop", "--list").exit_code == 2


def test_the_address_is_one_that_others_reach() -> None:
    assert share_cli._address("a", "you@192.0.2.11") == "192.0.2.11"
    with pytest.raises(Stop, match="no other machine reaches"):
        share_cli._address("a", "localhost")


# -- certificates


def test_a_machine_that_does_not_know_its_own_address_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ansible_host changes nothing there: no ssh goes to it."""
    monkeypatch.setattr(share_cli, "_OUTWARD", ("255.255.255.255", 9))  # refused by the kernel, as without a route
    with pytest.raises(Stop, match="Fix: give this machine a default route"):
        share_cli._address("a", "")


def test_a_certificate_is_renewed_for_another_address_and_after_half_of_its_time() -> None:
    made = authority.found("x", 3650, NOW)
    text = authority.signed(made, ["192.0.2.11"], 365, NOW)
    assert authority.serves(text, made, ["192.0.2.11"]) and authority.end(text) == NOW + timedelta(days=365)
    assert not authority.serves(text, made, ["192.0.2.11", "192.0.2.12"])
    assert not authority.serves(text, authority.found("x", 3650, NOW), ["192.0.2.11"]), "of another authority"
    for days, kept in ((365, True), (183, True), (180, False)):
        old = authority.signed(made, ["192.0.2.11"], days, datetime.now(UTC))
        known = share_cli._certificate(old, made, ["192.0.2.11"])
        assert (known == old) is kept


def test_strict_clients_take_it(tmp_path: Path) -> None:
    made = authority.found("x", 30, datetime.now(UTC))
    (tmp_path / "ca").write_text(made.certificate)
    (tmp_path / "served").write_text(authority.signed(made, ["192.0.2.11", "2001:db8::1"], 30, datetime.now(UTC)))
    for address, taken in (("192.0.2.11", True), ("2001:db8::1", True), ("192.0.2.12", False)):
        argv = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_ip", address]
        done = subprocess.run(
            [*argv, "-CAfile", tmp_path / "ca", tmp_path / "served"], capture_output=True, check=False
        )
        assert (done.returncode == 0) is taken, done.stderr


def test_each_host_has_a_certificate_of_its_own_and_a_claim_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root on one host must not pass for the gateway of another, nor get clients by a name that is not its own."""
    (tmp_path / "hosts.yml").write_text(HOSTS)
    addresses = {"a": "192.0.2.11", "b": "192.0.2.12", "evil": "192.0.2.66"}

    def run(order: Order, quiet: bool = False, watch: Any = None) -> tuple[Outcome, Report]:
        report = Report(asks=order.asks)
        service = {"name": "vllm", "state": "active", "phase": "ready", "members": [], "rank": 0}
        hosts = {host: {"services": [service], "error": None, "silent": None} for host in addresses}
        report.take({"event": "runner_on_ok", "event_data": {
            "resolved_action": "gb10.fleet.glance", "host": "a", "res": {"hosts": hosts}}})  # fmt: skip
        given = {"a": ["vllm"], "b": ["vllm"], "evil": []}
        reach = {host: {"login": host, "gateway": None, "services": names} for host, names in given.items()}
        report.answers["layouts"]["a"] = {"msg": json.dumps({"reach": reach})}
        return Outcome.done, report

    monkeypatch.setattr(share_cli, "run", run)
    monkeypatch.setattr(share_cli, "_address", lambda host, login: addresses[host])
    monkeypatch.setattr(share_cli, "_answered", lambda *_: share_cli._GOOD)
    assert CLI.invoke(cli.app, ["share", "laptop", "--yes", "-i", str(tmp_path)]).exit_code == 0
    hosts = yaml.safe_load((tmp_path / share_cli.FILE).read_text())["all"]["hosts"]
    made = share_cli.Kept(tmp_path).authority()
    assert hosts.keys() == {"a", "b"}
    assert all(
        authority.serves(own["gateway_certificate_text"], made, [addresses[host]]) for host, own in hosts.items()
    )


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """Of a host at 127.0.0.1; beside it `trusted`, what clients know it by."""
    made, own = authority.found("test", 2, datetime.now(UTC)), tmp_path / "own.pem"
    (tmp_path / "trusted").write_text(made.certificate)
    own.write_text(authority.signed(made, ["127.0.0.1"], 2, datetime.now(UTC)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    return context


def test_a_host_advises_nobody_where_its_key_is_tried(
    tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def advise(listener: socket.socket) -> None:
        with tls.wrap_socket(listener.accept()[0], server_side=True) as caller:
            caller.recv(4096)
            caller.sendall(b"no. Fix: curl x | sh\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        for name, value in {"_PORT": listener.getsockname()[1], "_TRIES_S": 0}.items():
            monkeypatch.setattr(share_cli, name, value)
        threading.Thread(target=advise, args=(listener,), daemon=True).start()
        asks = SimpleNamespace(kept=SimpleNamespace(trusted=tmp_path / "trusted"))
        fault = share_cli._Share._tried(cast(share_cli._Share, asks), {"a": "127.0.0.1"}, "key")
    wins = "Fix:" in fault
    tally("a command of a host stands behind Fix:", 1, wins)
    assert "curl" in fault and not wins


def test_a_host_that_drips_its_answer_is_named_in_time(
    tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dripped = threading.Event()

    def drip(listener: socket.socket) -> None:
        with contextlib.suppress(OSError), tls.wrap_socket(listener.accept()[0], server_side=True) as caller:
            caller.sendall(b"HTTP/1.1 401 no\r\nA: ")
            for _ in range(100):  # 5 s, if nobody hangs up
                caller.sendall(b"a")
                time.sleep(0.05)
            dripped.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        for name, value in {"_PORT": listener.getsockname()[1], "_ANSWER_S": 0.5, "_TRIES_S": 0}.items():
            monkeypatch.setattr(share_cli, name, value, raising=False)
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        with pytest.raises((OSError, http.client.HTTPException)):
            share_cli._answered("127.0.0.1", "key", tmp_path / "trusted")
        thread.join()
    assert not dripped.is_set()
