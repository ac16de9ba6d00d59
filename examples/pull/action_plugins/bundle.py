"""Renders the documents of a host from what it said last time, and signs them as a program that the host can run."""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host, transport

NAMESPACE = "gb10-fleet-pull"


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        own, args = host.Host(self, task_vars or {}), self._task.args
        facts = own.last_facts
        if facts is None:
            raise AnsibleActionFail(f"{own.name}: nobody knows its facts; run gb10 doctor first")
        context, rendered = own.render(own.roles, facts, looking=True)
        if refusals := [f"{one.role}: {text}" for one in rendered for text in (*one.refusals, *one.unknown)]:
            raise AnsibleActionFail(f"{own.name}: {'; '.join(refusals)}")
        sent = host.documents_of(rendered)
        for document in sent:
            for resource in document["resources"]:
                if resource.get("secret"):
                    raise AnsibleActionFail(
                        f"{own.name}: {document['role']} has a secret, and a bundle is everybody's to read;"
                        " put the secret there by push, and leave the role out of gb10_roles here"
                    )
                if "nm_profile" in resource:
                    raise AnsibleActionFail(
                        f"{own.name}: {document['role']} changes the network, which takes a controller that sees the"
                        " host come back; leave the role out of gb10_roles here"
                    )
        message = transport.Message(own.request(sent, check=False, expect=context.expect))
        blobs = dict(message.blobs)
        name = transport.preload()[0]
        engine = blobs[name].encode()
        # The engine is the same for all hosts and most of a bundle: a file of its own, which the bundle names.
        digest = hashlib.sha256(engine).hexdigest()
        program = message.program({**blobs, name: f"engine:{digest}"})
        now = int(time.time())
        header = f"# {NAMESPACE} host={own.name} serial={now} until={now + int(args['days']) * 86400} engine={digest}\n"
        content = header.encode() + program
        key = str(Path(args["key"]).expanduser())
        # From memory: whoever serves the folder may write there, and would have his own file signed.
        done = subprocess.run(
            ["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE],
            input=content,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise AnsibleActionFail(f"{own.name}: {key} does not sign: {done.stderr.decode(errors='replace').strip()}")
        folder = Path(args["directory"]).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        if not (kept := folder / f"engine-{digest}").exists():
            output.write(kept, engine.decode())
        # The signature first: who comes between the two fetches a pair that does not match, and comes again.
        output.write(folder / f"{own.name}.sig", done.stdout.decode())
        output.write(bundle := folder / own.name, content.decode())
        result.update(changed=True, msg=f"{bundle}: {len(sent)} documents, serial {now}")
        return result
