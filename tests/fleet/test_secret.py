"""A sentinel in a resource marked secret turns up in its own file and nowhere else, also when something goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import EXTRA, HERE, Fleet
from tests.support.rig import ROOT, Play

pytestmark = pytest.mark.lab

SENTINEL = "sentinel-0b5f2c9e-of-the-fleet-tests"
HandOver = Callable[[dict[str, object]], tuple[str, str]]
OTHER = "sentinel-77c1d0aa-not-the-declared-one"
PLACE = "/etc/gb10-extra/token"
# Watches every process of a host while a play runs: its arguments, and its environment, which children inherit.
WATCH = """
while test ! -e /run/gb10-test-stop; do
	grep -slaE 'sentinel-(0b5f2c9e|77c1d0aa)' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null || true
done
rm /run/gb10-test-stop
"""
# Everywhere on the host where something could have been left; the token itself is the one hit that must be.
SEARCH = f"""
grep -rslaE 'sentinel-(0b5f2c9e|77c1d0aa)' /etc /var/lib /var/log /var/cache /run /tmp /var/tmp /root /home /usr/local \
	2>/dev/null | grep -vx {PLACE} || true
journalctl -q -a --no-pager | grep -aE 'sentinel-(0b5f2c9e|77c1d0aa)' || true
"""


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The controller's caches and temporary files in folders of their own, searched at the end."""
    places = {"XDG_CACHE_HOME": "cache", "TMPDIR": "tmp", "ANSIBLE_LOCAL_TEMP": "local", "ANSIBLE_LOG_PATH": "log/log"}
    for name in ("cache", "tmp", "local", "log"):
        (tmp_path / name).mkdir()
    yield {key: str(tmp_path / name) for key, name in places.items()}
    assert found_below(tmp_path) == [], "on the controller"


def found_below(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(word.encode() in path.read_bytes() for word in (SENTINEL, OTHER))]


def clean(output: str) -> bool:
    return SENTINEL not in output and OTHER not in output


def play(fleet: Fleet, environment: dict[str, str], *args: str, playbook: str | None = None) -> Play:
    """A run with everything turned on that could tell, watched from inside the host."""
    host = fleet.hosts[0]
    watcher = fleet.start(host, "sh", "-eu", program=WATCH.encode())
    run = fleet.site("-vvv", "--diff", *args, playbook=playbook, environment=environment, show=False)
    fleet.shell(host, "touch /run/gb10-test-stop")
    seen, _ = watcher.communicate(timeout=60)
    assert seen.decode() == "", "in a process list"
    assert clean(run.output), "on the screen"
    return run


@pytest.fixture
def hand_over(tmp_path_factory: pytest.TempPathFactory) -> HandOver:
    """The arguments that give loud.yml its resource: by a file, as an operator would."""

    def write(resource: dict[str, object]) -> tuple[str, str]:
        file = tmp_path_factory.mktemp("variables") / "loud.json"
        file.write_text(json.dumps({"loud_resources": [resource]}))
        return "-e", f"@{file}"

    return write


def test_the_words_are_those_of_the_document() -> None:
    assert [row["content"] for row in EXTRA if row.get("file") == PLACE] == [f"TOKEN={SENTINEL}\n"]


@pytest.mark.parametrize("cause", [f"rm {PLACE}", f"echo TOKEN={OTHER} >{PLACE}", f"chmod 0644 {PLACE}", "true"])
def test_a_run_tells_nobody(converged: Fleet, apart: dict[str, str], cause: str) -> None:
    """Created, exchanged for another secret, with other rights, and unchanged; in check mode first."""
    host = converged.hosts[0]
    converged.shell(host, cause)
    for args in (("--check",), ()):
        run = play(converged, apart, *args)
        assert run.rc == 0
        assert (run.recap[host]["changed"] > 0) == (cause != "true")
    assert converged.shell(host, f"cat {PLACE}; stat -c %a {PLACE}") == f"TOKEN={SENTINEL}\n600\n"
    assert converged.shell(host, SEARCH) == ""


def test_a_validator_that_quotes_it_is_not_quoted(converged: Fleet, apart: dict[str, str], hand_over: HandOver) -> None:
    host = converged.hosts[0]
    resource = {
        "file": PLACE,
        "content": f"TOKEN={OTHER}\n",
        "secret": True,
        "validate": ["sh", "-c", "cat %s >&2; false"],
    }
    run = play(converged, apart, *hand_over(resource), playbook="tests/fleet/loud.yml")
    assert run.rc != 0
    assert f"file:{PLACE}" in run.output, "the refusal names the resource"
    assert converged.shell(host, f"cat {PLACE}") == f"TOKEN={SENTINEL}\n", "the old file stands"
    assert converged.shell(host, SEARCH) == ""
    assert converged.site(show=False).rc == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "0999"},
        {"content": f"{OTHER}\0"},
        {"moed": OTHER},
        {"merge_json": {"key": OTHER}},
        {"validate": OTHER},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_error_in_the_document_does_not_quote_it(
    converged: Fleet, apart: dict[str, str], hand_over: HandOver, wrong: dict[str, object]
) -> None:
    resource = {"file": PLACE, "content": f"TOKEN={OTHER}\n", "secret": True, **wrong}
    run = play(converged, apart, *hand_over(resource), playbook="tests/fleet/loud.yml")
    assert run.rc != 0
    assert "resources[0]." in run.output, "the refusal names the field"


def test_gb10_leaves_nothing_of_it_behind(converged: Fleet, apart: dict[str, str]) -> None:
    """ansible-runner keeps artifacts; `gb10` must not. The secret comes as a variable of the inventory."""
    host = converged.hosts[0]
    converged.shell(host, f"rm {PLACE}")
    known = set(Path(tempfile.gettempdir()).iterdir())
    argv = [str(Path(sys.executable).parent / "gb10"), "drift", "-i", str(converged.inventory)]
    done = subprocess.run(argv, cwd=ROOT, env={**os.environ, **apart}, capture_output=True, text=True, check=False)
    assert done.returncode == 5, f"{done.stdout}{done.stderr}"
    assert f"file:{PLACE}" in done.stdout
    assert clean(done.stdout + done.stderr)
    for path in set(Path(tempfile.gettempdir()).iterdir()) - known:
        assert not path.is_dir() or found_below(path) == []
    assert found_below(ROOT / "evidence") == []
    assert converged.site(show=False).rc == 0


def test_the_inventory_of_these_tests_holds_none(fleet: Fleet) -> None:
    """Else a hit on the screen could come from there."""
    assert found_below(fleet.inventory) == []
    assert [path.name for path in found_below(HERE)] != []
