"""`gb10 share`: let other machines of the network use the model, each with a key of its own, over TLS.

It makes what the role gateway wants: a certificate of a small authority, and keys. They are in the inventory, in files
that only their owner reads; `gb10 site` brings them to the hosts.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import unadvised
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, output, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.addresses import in_url, is_address
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import counted
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway.refusals import NAME

from gb10_fleet.ending import by_name, show, to_paste, unread
from gb10_fleet.inventory_lines import refuse_templates
from gb10_fleet.options import Inventory, Json, NoLists, Yes
from gb10_fleet.playbook import Order, Outcome, Report, run
from gb10_fleet.rollout import locks
from gb10_fleet.rollout.journal import place
from gb10_fleet.services import ASKS, answers_of, owners, reach_of, rows
from gb10_fleet.up.people import Person, Progress, Stop, stopped

if TYPE_CHECKING:  # where it is needed it is imported: no other command needs certificates
    from gb10_fleet.authority import Authority

app = typer.Typer()

FILE = "share.yml"  # a further source of the inventory: in it no word of a host is a template
_CERTIFICATE = "gateway_certificate_text"
_PORT = 8443  # of the role
_GOOD = [http.client.UNAUTHORIZED, http.client.OK]  # without a key, and with it
_NO_MODEL = (http.client.BAD_GATEWAY, http.client.SERVICE_UNAVAILABLE)
_TRIES_S = 20  # seconds, a try after each; NGINX reads its keys anew within one
_ANSWER_S = 5  # of one answer, from its first byte to its last
_NOTHING, _AGAIN = "Nothing was changed", "Run the same again, or gb10 site"
_OUTWARD = ("192.0.2.1", 9)  # nothing is sent there: the system only says by which address it would go


@app.command(cls=NoLists)
def share(
    ctx: typer.Context,
    inventory: Inventory,
    name: Annotated[
        str | None,
        typer.Argument(help="The client, in a word, as in laptop. It gets a key of its own.", show_default=False),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Say who has a key.")] = False,
    revoke: Annotated[
        str | None, typer.Option("--revoke", metavar="NAME", help="Take the key of a client back.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let a machine of your network use the model: TLS, a key for each client. Without it only the Spark itself can."""
    if sum((name is not None, listed, revoke is not None)) != 1:
        raise typer.BadParameter("say gb10 share NAME, gb10 share --list or gb10 share --revoke NAME")
    person = Person(yes, as_json)
    try:
        task = _Share(_folder(inventory), Order("", inventory, words=ctx.obj), person)
        if listed:
            said = task.listed()
        else:
            if name is not None:
                locks.refuse(place(inventory))  # beside a rollout nothing is set up; a key is taken back at any time
            with locks.held(place(inventory) / locks.SHARED):  # what one has read, another must not change meanwhile
                said = task.shared(name) if name is not None else task.revoked(str(revoke))
    except locks.Busy as busy:
        stopped(Stop(f"{busy}. {_NOTHING}", Outcome.refused), as_json)
    except Stop as stop:
        stopped(stop, as_json)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}; this user must be able to write there. Then run the same again"
        stopped(Stop(text, Outcome.failed), as_json)
    if as_json:
        print(json.dumps({"outcome": Outcome.done.name, **said}, indent=2))


@dataclass(frozen=True)
class Kept:
    """What the inventory has of it, beside its hosts.yml. Ansible reads no file that ends in .txt."""

    folder: Path

    @property
    def trusted(self) -> Path:
        """The file that clients trust."""
        return self.folder / "share-authority.txt"

    def read(self) -> dict[str, Any]:
        """Return `hosts` with addresses and certificates, and `vars` of all with the keys; empty: nobody has a key."""
        from gb10_fleet import authority

        file = self.folder / FILE
        try:
            found = yaml.safe_load(file.read_text(encoding="utf-8"))["all"]
            hosts = {str(host): dict(own) for host, own in found["hosts"].items()}
            keys = dict(found["vars"]["gateway_keys"])
            if wrong := schema.problem(keys, dict[str, str], "gateway_keys"):
                raise ValueError(wrong)
            for own in hosts.values():
                authority.end(own[_CERTIFICATE])
            if not hosts or not keys:
                raise ValueError("no host or no key is in it")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
            raise Stop(
                f"{file} cannot be read ({unread(error)}); correct it, or move it away", Outcome.failed
            ) from None
        return {"hosts": hosts, "vars": {**found["vars"], "gateway_keys": keys}}

    def write(self, said: Mapping[str, Any]) -> None:
        """Replace it, whole or not at all; with nothing in it there is no file, and no gateway."""
        file = self.folder / FILE
        if not said:
            return file.unlink(missing_ok=True)
        refuse_templates(said)
        text = yaml.safe_dump({"all": dict(said)}, sort_keys=False, width=120)
        text = f"---\n# Written by `gb10 share`. It holds keys: nobody else may read it.\n{text}"
        output.write(file, text, secret=True)

    def authority(self) -> Authority:
        """Return the one that is there, or a new one."""
        from gb10_fleet import authority

        key = self.folder / "share-authority-key.txt"
        if key.exists() and self.trusted.exists():
            try:
                known = authority.Authority(self.trusted.read_text("ascii"), key.read_text("ascii"))
                if not authority.serves(authority.signed(known, [], 1, datetime.now(UTC)), known, []):
                    raise ValueError("the two do not belong together")
            except (ValueError, TypeError) as error:
                text = (
                    f"{key} or {self.trusted} is damaged ({error}). Fix: bring both back from a copy; or move both away"
                )
                raise Stop(f"{text}, and each client has to trust a new file", Outcome.failed) from None
            return known
        made = authority.found("gb10-fleet share", _days("authority_days"), datetime.now(UTC))
        output.write(key, made.key, secret=True)
        self.trusted.write_text(made.certificate, encoding="ascii")
        return made


def _keys(said: Mapping[str, Any]) -> dict[str, str]:
    return dict(said.get("vars", {}).get("gateway_keys") or {})


@dataclass
class _Share:
    folder: Path
    order: Order
    person: Person

    @property
    def kept(self) -> Kept:
        return Kept(self.folder)

    def listed(self) -> dict[str, Any]:
        """Say who has a key, without the keys."""
        from gb10_fleet import authority

        said = self.kept.read()
        names = sorted(_keys(said))
        if not names:
            self.person.say("Nobody: the model answers on the Spark itself only. `gb10 share NAME` lets a client in.")
            return {"clients": []}
        ends = min(authority.end(own[_CERTIFICATE]) for own in said["hosts"].values())
        self.person.say(*names, f"The certificate ends on {ends:%Y-%m-%d}; `gb10 share NAME` renews it in time.")
        return {"clients": names, "certificate_ends": ends.isoformat()}

    def revoked(self, name: str) -> dict[str, Any]:
        before = self.kept.read()
        keys = _keys(before)
        if keys.pop(name, None) is None:
            known = f"these have one: {', '.join(sorted(keys))}" if keys else "nobody has one"
            rest = "A host that did not hear of it when it was taken back forgets it with gb10 site"
            raise Stop(f"{name} has no key; {known}. {rest}", Outcome.refused)
        after = {**before, "vars": {**before["vars"], "gateway_keys": keys}} if keys else {}
        out = f"{name} has no key here any more"
        if self._bring(after, before, f"{out}; gb10 site takes it off the rest of the hosts"):
            again = "and the other one may put it back on hosts. Fix: when that has ended, gb10 site"
            raise Stop(f"{out}, but another gb10 was at work: it had read the key before, {again}", Outcome.failed)
        minutes = catalog.load("gateway")["silence"]["value"] // 60
        rest = f"What it has begun ends within {minutes} minutes; {counted(len(keys), 'client')} left."
        if not keys:
            rest = "Nobody is left, and port 8443 is closed again."
        self.person.say(f"{name} is out: its key opens nothing new. {rest}")
        return {"revoked": name, "clients": sorted(keys)}

    def shared(self, name: str) -> dict[str, Any]:
        if not NAME.match(name):
            raise Stop(f"{name}: a client's name has letters, digits and _ . - only", Outcome.refused)
        before = self.kept.read()
        addresses = self._addresses(ours=bool(before))
        if not before:
            self._look()
            self._ask(name, addresses)
        made = self.kept.authority()
        keys = _keys(before)
        keys.setdefault(name, secrets.token_hex(32))
        known = {host: own.get(_CERTIFICATE, "") for host, own in before.get("hosts", {}).items()}
        after = {
            # A certificate for each: root on one host must not pass for the gateway of another.
            "hosts": {
                host: {"gateway_address": address, _CERTIFICATE: _certificate(known.get(host, ""), made, [address])}
                for host, address in addresses.items()
            },
            "vars": {"gateway_keys": keys},
        }
        self._bring(after, before)
        urls = [f"https://{in_url(address)}:{_PORT}/v1" for address in addresses.values()]
        lines = _how(name, urls, keys[name], self.kept.trusted, self._tried(addresses, keys[name]))
        self.person.show(*(to_paste(self.order, line) for line in lines))
        return {"client": name, "addresses": urls, "key": keys[name], "trust": str(self.kept.trusted)}

    def _addresses(self, *, ours: bool) -> dict[str, str]:
        """Return by host where clients reach it: each that serves, or is the first of its cluster."""
        order = Order("gb10.fleet.services", self.order.inventories, words=self.order.words, asks=ASKS)
        outcome, report = run(order, quiet=True, watch=Progress(self.person))
        found = rows(answers_of(report), reach_of(report))
        lost = [host for host in report.hosts if host in report.messages]
        if lost or report.cut or (not found and outcome is not Outcome.done):
            self._refuse(order, outcome or (Outcome.unreachable if report.silent else Outcome.failed), report)
        if not found:
            raise Stop("no service is on these hosts. Fix: gb10 up puts one there", Outcome.refused)
        reach = reach_of(report)
        theirs = owners(reach)  # a host may claim what is none of its own, and clients would be told its address
        heads = dict.fromkeys(
            row.host for row in found if row.rank == 0 and (not theirs or row.host in theirs.get(row.said["name"], ()))
        )
        if own := [host for host in heads if reach.get(host, {}).get("gateway") and not ours]:
            raise Stop(
                f"{', '.join(own)}: your inventory has a gateway already. Put the client's key into gateway_keys "
                "(docs/router.md), then run gb10 site",
                Outcome.refused,
            )
        return {host: _address(host, reach.get(host, {}).get("login", host)) for host in heads}

    def _look(self) -> None:
        """Refuse what gb10 site would refuse, before anybody is asked."""
        order = Order("gb10.fleet.doctor", self.order.inventories, words=self.order.words)
        outcome, report = run(order, quiet=True, watch=Progress(self.person))
        if outcome is not Outcome.done:
            self._refuse(order, outcome, report, "Run the same again")

    def _ask(self, name: str, addresses: Mapping[str, str]) -> None:
        for host, address in addresses.items():
            self.person.say(
                f"{host}: https://{in_url(address)}:{_PORT}/v1 for everybody in its network who has a key. This brings "
                f"the package nginx, where it is not there, and opens port {_PORT} in the firewall."
            )
        self.person.consent(f"Open it, and give {name} a key?")

    def _bring(self, after: Mapping[str, Any], before: Mapping[str, Any], then: str = _AGAIN) -> bool:
        """Have the hosts know it. What was refused has changed nothing, so the inventory is as before.

        Tells whether somebody else was at work who may have read the inventory before: he brings what it said then.
        """
        self.kept.write(after)
        state = place(self.order.inventories)
        beside = locks.others(state / locks.SHARED) or locks.owner(state) is not None
        words = ("--skip-tags", "validate")
        order = Order("gb10.fleet.site", self.order.inventories, words=(*self.order.words, *words))
        self.person.say("Setting it up on the hosts; this takes a minute or two.")
        outcome, report = run(order, quiet=True, watch=Progress(self.person))
        if outcome is Outcome.refused:
            self.kept.write(before)
        if outcome is not Outcome.done:
            self._refuse(order, outcome, report, then)
        return beside

    def _refuse(self, order: Order, outcome: Outcome, report: Report, then: str = _AGAIN) -> NoReturn:
        if not self.person.quiet:
            for one in report.blocking:
                self.person.say(f"{one['host']}: {one['fact']}", f"    Fix: {by_name(order, one['way_out'])}")
            show(order, report)
        raise Stop(f"{order.playbook}: {outcome.name}. {_NOTHING if outcome is Outcome.refused else then}", outcome)

    def _tried(self, addresses: Mapping[str, str], key: str) -> str:
        """Ask as that client would; return what went wrong, or nothing."""
        for host, address in addresses.items():
            try:
                without, status = _answered(address, key, self.kept.trusted)
            except (OSError, http.client.HTTPException) as error:
                return f"{host} does not answer from here: {unadvised(str(error))}"
            if without == http.client.UNAUTHORIZED and status in _NO_MODEL:
                why = "`gb10 ps -i INVENTORY` says why"
                return f"the gateway of {host} answers, and its model does not ({status}); {why}"
            if [without, status] != _GOOD:
                return f"{host} does not answer as it should: {without} without a key, {status} with it"
        return ""


def _certificate(known: str, made: Authority, addresses: Sequence[str]) -> str:
    """Return the one that is there while it is for these addresses and half of its time is left; else a new one."""
    from gb10_fleet import authority

    days, now = _days("certificate_days"), datetime.now(UTC)
    if known and authority.serves(known, made, addresses) and authority.end(known) - now > timedelta(days=days / 2):
        return known
    return authority.signed(made, addresses, days, now)


def _how(name: str, urls: Sequence[str], key: str, trusted: Path, fault: str) -> Iterator[str]:
    yield ""
    yield from (f"{name} may use {url}, with this key:" for url in urls[:1])
    yield f"    {key}"
    yield from (f"The same key opens {url}." for url in urls[1:])
    yield f"Copy {trusted} to it, for example as gb10.pem. By this file it knows that your Spark answers."
    yield "  curl (names the models; the key above goes in place of KEY)"
    yield f"    curl --cacert gb10.pem -H 'Authorization: Bearer KEY' {urls[0]}/models"
    yield "  Python, with OpenAI's client"
    yield f"    export SSL_CERT_FILE=gb10.pem OPENAI_BASE_URL={urls[0]} OPENAI_API_KEY=KEY"
    yield "  Open WebUI (Admin Panel, Settings, Connections, OpenAI API; start it with SSL_CERT_FILE as above)"
    yield f"    {urls[0]}  key: KEY"
    yield "  Take the key back"
    yield f"    gb10 share --revoke {name} -i INVENTORY"
    yield f"Tried from here: {fault or 'it answers, and refuses who has no key'}"


def _answered(address: str, key: str, trusted: Path) -> list[int]:
    """Return what it answers without a key and with it, as soon as that is good; else what it was at last."""
    context = ssl.create_default_context(cafile=str(trusted))
    until = time.monotonic() + _TRIES_S
    while True:
        late = time.monotonic() >= until
        try:
            found = [_status(address, context, headers) for headers in ({}, {"Authorization": f"Bearer {key}"})]
        except (OSError, http.client.HTTPException):
            if late:
                raise
        else:
            if late or found == _GOOD:
                return found
        time.sleep(1)


def _status(address: str, context: ssl.SSLContext, headers: Mapping[str, str]) -> int:
    """Return what it answers. Who drips an answer is hung up on: the timeout alone begins anew with each byte."""
    connection = http.client.HTTPSConnection(address, _PORT, timeout=_ANSWER_S, context=context)
    connection.connect()
    end = threading.Timer(_ANSWER_S, _hang_up, (connection.sock,))
    end.start()
    try:
        connection.request("GET", "/v1/models", headers=dict(headers))
        return connection.getresponse().status
    finally:
        end.cancel()
        connection.close()


def _hang_up(door: socket.socket) -> None:
    """Of the plain socket below TLS, so that whoever reads there sees its end."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(door, socket.SHUT_RDWR)


def _address(host: str, login: str) -> str:
    """Return the address of a host for its network, from how ssh reaches it; empty: it is this machine."""
    name = login.rpartition("@")[2]
    try:
        if not name:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
                asked.connect(_OUTWARD)
                return str(asked.getsockname()[0])
        found = name if is_address(name) else str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except OSError as error:
        fix = "set ansible_host" if name else "give this machine a default route: by that it knows its own address"
        raise Stop(f"{host}: no address of it is known ({error}). Fix: {fix}", Outcome.refused) from None
    if ipaddress.ip_address(found).is_loopback:
        raise Stop(f"{host}: {name} is {found}, which no other machine reaches. Fix: set ansible_host", Outcome.refused)
    return found


def _folder(inventories: Sequence[str]) -> Path:
    """Return the folder of the inventory, which gets one more file."""
    if len(inventories) != 1 or not Path(inventories[0]).is_dir():
        raise Stop(
            "gb10 share writes a file into the folder of the inventory: name that folder with -i", Outcome.refused
        )
    return Path(inventories[0])


def _days(name: str) -> float:
    return float(catalog.load("gateway")[name]["value"])
