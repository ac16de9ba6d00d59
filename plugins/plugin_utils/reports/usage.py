# SPDX-License-Identifier: GPL-3.0-or-later
"""How to use a model that serves: one text for the terminal and for the page of evidence. Pure."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import reserved
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.addresses import in_url
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service_entries
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import judge

QUESTION = "Why is the sky blue?"
_LOCALHOST = "127.0.0.1"
_SSH_PORT = 22
_KEY = "YOUR-KEY"
_PYTHON = "Python"


@dataclass(frozen=True)
class Usage:
    """A service that answers: where it is, and what it is called there.

    `url`: its address on its own host, without /v1. `shared`: that of the gateway, where there is one. `login`: how ssh
    reaches the host, as in nvidia@192.0.2.11; empty where the host is this machine. `limit`: what a command has to name
    to mean this service alone, where another host or cluster has one of that name.
    """

    service: str
    host: str
    model: str
    url: str
    shared: str = ""
    login: str = ""
    ssh_port: int = _SSH_PORT
    needs_key: bool = False  # also on the host itself
    tools: bool = False  # whether its model may call some
    limit: str = ""

    @property
    def tunnel(self) -> str:
        """Return the command that brings the service to the reader's own machine, at the same port.

        It ends where another login of that machine has the port, and would get requests and key.
        """
        place = urlsplit(self.url)
        host = f"[{place.hostname}]" if ":" in (place.hostname or "") else place.hostname
        port = [] if self.ssh_port == _SSH_PORT else ["-p", str(self.ssh_port)]
        way = f"{_LOCALHOST}:{place.port}:{host}:{place.port}"
        return shlex.join(["ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-L", way, *port, self.login])

    @property
    def local(self) -> str:
        """Return the address of the API for the person who reads: on the host, or at the end of the tunnel."""
        return f"http://{_LOCALHOST}:{urlsplit(self.url).port}/v1" if self.login else f"{self.url}/v1"


class Step(NamedTuple):
    """One thing to do, with the lines to copy. `note` is for the reader alone."""

    title: str
    lines: tuple[str, ...]
    note: str = ""


def reach(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return by its variables how a reader gets to a host and its gateway, its services, and who is in its cluster."""
    remote = variables.get("ansible_connection", "ssh") != "local"
    user = variables.get("ansible_user")
    address = str(variables.get("ansible_host") or variables.get("inventory_hostname") or "")
    gateway = str(variables.get("gateway_address") or "")
    scheme = "http" if variables.get("gateway_plain_http") is True else "https"
    return {
        "login": (f"{user}@{address}" if user else address) if remote else "",
        "ssh_port": int(variables.get("ansible_port") or _SSH_PORT),
        "needs_key": bool(variables.get("vllm_api_key")),
        "gateway": f"{scheme}://{in_url(gateway)}:{variables.get('gateway_port', 8443)}" if gateway else None,
        "reserved": variables.get(reserved.VARIABLE) or None,
        "cluster": str(variables.get("gb10_cluster") or variables.get("inventory_hostname") or ""),
        "members": [*variables.get("groups", {}).get(variables.get("gb10_cluster"), ())],
        "services": [*service_entries.here(variables, str(variables.get("inventory_hostname")))]
        + ([service_entries.SHORT] if variables.get("vllm_model") else []),
    }


def of_evidence(served: Mapping[str, Any]) -> Usage | None:
    """Return the usage of a service as the evidence has it; None of one that did not answer, or of older evidence."""
    api = served.get("api")
    if not api or served["verdict"] != "serving" or not served["served_models"]:
        return None
    return Usage(
        service=str(served.get("service", "vllm")),
        host=api["host"],
        model=served["served_models"][0],
        url=api["url"],
        shared=api["gateway"] or "",
        login=api.get("login") or "",
        ssh_port=int(api.get("ssh_port") or _SSH_PORT),
        needs_key=bool(api.get("needs_key")),
        tools=bool(api.get("tools")),
    )


def of_document(evidence: Mapping[str, Any]) -> list[Usage]:
    """Return the usage of each service that the evidence found serving."""
    return told_apart(
        (cluster.get("name", ""), use)
        for cluster in evidence["clusters"]
        for each in judge.services_of(cluster)
        if (use := of_evidence(each))
    )


def told_apart(uses: Iterable[tuple[str, Usage]]) -> list[Usage]:
    """Give each its limit. `uses`: with the cluster of each; of two in one cluster each is that of its host."""
    known = [*uses]
    of_name = Counter(use.service for __, use in known)
    here = Counter((cluster, use.service) for cluster, use in known)
    return [
        replace(use, limit=use.host if here[cluster, use.service] > 1 else cluster) if of_name[use.service] > 1 else use
        for cluster, use in known
    ]


def steps(use: Usage) -> list[Step]:
    """Return all that a new user needs, in order. `-i INVENTORY` stands for the inventory of the command."""
    question = shlex.quote(QUESTION)
    secret = _KEY if use.needs_key else "none"
    this = f"{use.service} --limit {shlex.quote(use.limit)}" if use.limit else use.service
    return [
        *_addresses(use),
        Step("Ask it from here", (f"gb10 ask {question} {this} -i INVENTORY",)),
        Step("curl", (_curl(use, QUESTION),)),
        *_calling(use),
        Step(_PYTHON, tuple(_python(use, secret)), "pip install openai"),
        Step("Open WebUI", (f"{use.local}  key: {secret}",), "Admin Panel, Settings, Connections, OpenAI API"),
        *_sharing(use),
        Step("Follow its log", (f"gb10 logs {this} -i INVENTORY",)),
        Step(
            "Stop it",
            (f"gb10 stop {this} -i INVENTORY",),
            f"gb10 start {this} -i INVENTORY starts it again",
        ),
        Step(
            "Undo everything",
            ("gb10 undo --all -i INVENTORY",),
            "each host is as before; what restarts needs your consent, by its name",
        ),
    ]


def _addresses(use: Usage) -> Iterator[Step]:
    if use.login:
        yield Step("Address on your own machine", (use.tunnel, use.local), "leave the tunnel open while you use it")
    yield Step(f"Address on {use.host}", (f"{use.url}/v1",))
    if use.shared:
        yield Step("Address in your network", (f"{use.shared}/v1",), "with a key; gb10 share --list says who has one")


def _sharing(use: Usage) -> Iterator[Step]:
    if not use.shared:
        yield Step("Let another machine use it", ("gb10 share laptop -i INVENTORY",), "TLS, and a key of its own")


def _curl(use: Usage, question: str, **more: Any) -> str:
    key = ' -H "Authorization: Bearer $KEY"' if use.needs_key else ""
    body = json.dumps({"model": use.model, "messages": [{"role": "user", "content": question}], **more})
    return f"curl {use.local}/chat/completions{key} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def _calling(use: Usage) -> Iterator[Step]:
    if use.tools:
        city = {"type": "object", "properties": {"city": {"type": "string"}}}
        tool = {"type": "function", "function": {"name": "weather", "parameters": city}}
        line = _curl(use, "How is the weather in Paris?", tools=[tool])
        yield Step("curl, with a tool", (line,), "it answers with a call, in tool_calls; your program does the rest")


def _python(use: Usage, secret: str) -> Iterator[str]:
    yield f"from openai import OpenAI; client = OpenAI(base_url={use.local!r}, api_key={secret!r})"
    yield f"question = [{{'role': 'user', 'content': {QUESTION!r}}}]"
    yield f"print(client.chat.completions.create(model={use.model!r}, messages=question).choices[0].message.content)"


def whole(uses: Sequence[Usage]) -> Iterator[str]:
    """Yield the lines for the end of a run: of each service everything."""
    for use in uses:
        yield f"How to use {use.model} (service {use.service} on {use.host}):"
        for step in steps(use):
            yield f"  {step.title}" + (f" ({step.note})" if step.note else "")
            margin = "" if step.title == _PYTHON else "    "  # an interpreter takes none
            yield from (f"{margin}{line}" for line in step.lines)


def short(uses: Sequence[Usage]) -> Iterator[str]:
    """Yield the lines below a table of services: of each the addresses."""
    for use in uses:
        yield f"{use.service} on {use.host}: ask for {use.model} at"
        for step in _addresses(use):
            yield f"    {step.title.removeprefix('Address ')}: {', then '.join(step.lines)}"
    if uses:
        yield f"ask one from here: gb10 ask {shlex.quote(QUESTION)} {uses[0].service} -i INVENTORY"
        yield "curl, Python, Open WebUI: gb10 ps --use -i INVENTORY"
