"""A restart of Docker by our role, beside containers of somebody else: a real engine, and real containers in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import HERE, Fleet
from tests.support.rig import Play

pytestmark = [pytest.mark.lab, pytest.mark.long]

GB10 = str(Path(sys.executable).parent / "gb10")
INGREDIENTS = HERE / "images"
NAMED = "train (foreign:1)"
RUN = "docker run --detach --network none --entrypoint sleep"


class Dockers:
    """One host with Docker from our role, and a container of somebody else."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.host = fleet, fleet.hosts[0]
        self.known: dict[str, Any] = fleet._known["vars"]

    def words(self, consent: bool, options: dict[str, Any]) -> tuple[str, ...]:
        said = {
            "gb10_roles": ["docker"],
            "docker_daemon_options": self.known["docker_daemon_options"] | options,
            "docker_allow_restart": consent,
        }
        return ("-e", json.dumps(said))

    def site(self, consent: bool = True, **options: Any) -> Play:
        words = ("--limit", self.host, *self.words(consent, options))
        return self.fleet.site(*words, playbook="playbooks/converge.yml")

    def doctor(self, consent: bool = True, **options: Any) -> str:
        words = ["-i", str(self.fleet.inventory), "--limit", self.host, "--", "-e", f"@{HERE}/vars.yml"]
        argv = [GB10, "doctor", *words, *self.words(consent, options)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    def shell(self, script: str) -> str:
        return self.fleet.shell(self.host, script)

    def life(self, name: str = "train") -> dict[str, Any]:
        """What Docker says of a container: its id, whether it runs, since when."""
        (said,) = json.loads(self.shell(f"docker inspect {name}"))
        return {"id": said["Id"], **{key: said["State"][key] for key in ("Running", "StartedAt")}}


@pytest.fixture(scope="module")
def dockers(cleared: Fleet) -> Iterator[Dockers]:
    hosts = Dockers(cleared)
    hosts.shell((INGREDIENTS / "begin.sh").read_text())
    assert hosts.site().rc == 0
    hosts.shell(f"""
        sim=$(docker pull --quiet {hosts.known["vllm_image"]})
        docker tag "$sim" foreign:1
        {RUN} --name train foreign:1 infinity
        docker exec train sh -c 'echo mine >/note'
    """)
    yield hosts
    hosts.shell("docker rm --force train >/dev/null; docker image prune --all --force >/dev/null")
    said = cleared.engine(hosts.host, "undo")
    hosts.shell((INGREDIENTS / "end.sh").read_text())
    assert said["error"] is None, said["error"]


def test_it_is_named_before_waits_for_consent_and_starts_again_behind_it(dockers: Dockers) -> None:
    before = dockers.life()
    assert f"containers_end: this run restarts Docker, which ends {NAMED}" in dockers.doctor(debug=True)
    waits = dockers.doctor(consent=False, debug=True)
    assert f"containers_end: to restart Docker, which ends {NAMED}" in waits and "docker_allow_restart" in waits
    assert dockers.site(consent=False, debug=True).rc == 0 and dockers.life() == before

    run = dockers.site(debug=True)
    after = dockers.life()
    assert run.rc == 0 and NAMED in run.output
    assert after["Running"] and after["id"] == before["id"] and after["StartedAt"] > before["StartedAt"]
    assert dockers.shell("docker exec train cat /note") == "mine\n"
    assert dockers.site(debug=True).changed == 0 and dockers.life() == after


def test_one_that_docker_removes_itself_ends_the_run_by_its_name(dockers: Dockers) -> None:
    dockers.shell(f"{RUN} --name notebook --rm foreign:1 infinity")
    run = dockers.site(debug=False)
    assert run.rc != 0
    said = " ".join(run.output.split())
    assert "Docker was restarted, and these containers did not start again: notebook (foreign:1): " in said
    assert dockers.life()["Running"], "the other one was started all the same"
    again = dockers.site(debug=False)
    assert (again.rc, again.changed) == (0, 0)


def test_where_live_restore_is_on_it_does_not_end_and_is_not_named(dockers: Dockers) -> None:
    assert dockers.site(debug=False, **{"live-restore": True}).rc == 0
    before = dockers.life()
    assert "containers_end" not in dockers.doctor(debug=True, **{"live-restore": True})
    assert dockers.site(debug=True, **{"live-restore": True}).changed == 1
    assert dockers.life() == before
