"""The command `gb10`: exit statuses, what it hands to ansible-runner, and that nothing of a run stays on disk."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import is_trusted_as_template
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from rich.console import Console
from typer.testing import CliRunner

from gb10_fleet import cli, ending, evidence_table, passwords, playbook, stopping
from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.rollout import locks
from gb10_fleet.up import people
from tests.support.attacker import tally
from tests.support.proofs import documents
from tests.support.variables import told

CLI = CliRunner()
PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
Event = dict[str, Any]


def event(
    kind: str, action: str = "ansible.builtin.debug", step: str | None = None, task: str = "Apply", **result: Any
) -> Event:
    data = {"resolved_action": action, "play": "Play", "step": step, "task": task, "host": "spark-a", "res": result}
    return {"event": kind, "event_data": data}


def stats(**counts: dict[str, int]) -> Event:
    return {"event": "playbook_on_stats", "event_data": counts}


def finding(identity: str, severity: str = "error", accepted: str | None = None) -> dict[str, Any]:
    return {
        "id": identity, "severity": severity, "host": "spark-a", "fact": "how it is", "way_out": "what to do",
        "accepted": accepted,
    }  # fmt: skip


class Stub:
    """Stands for ansible_runner.run: remembers its call, sends events, ends with a status."""

    def __init__(self, rc: int | None, *events: Event, status: str | None = None) -> None:
        self.rc, self.events, self.status = rc, events, status
        self.call: dict[str, Any] = {}

    def __call__(self, **call: Any) -> SimpleNamespace:
        self.call = call
        private = Path(call["private_data_dir"])
        assert private.stat().st_mode & 0o777 == 0o700
        variables = private / "variables.yml"
        assert variables.stat().st_mode & 0o777 == 0o600
        self.variables = told(variables)
        (private / "env").mkdir()
        (private / "env/envvars").write_text("what ansible-runner leaves behind")
        self.stored = [call["event_handler"](item) for item in self.events]
        return SimpleNamespace(rc=self.rc, status=self.status)


Use = Callable[..., Stub]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    def install(rc: int | None, *events: Event, status: str | None = None) -> Stub:
        stub = Stub(rc, *events, status=status)
        monkeypatch.setattr(
            cli,
            "run",
            lambda order, **how: playbook.run(order, **how, runner=stub),
        )
        return stub

    return install


REFUSED = event("runner_on_failed", "gb10.fleet.doctor", playbook.DOCTOR, findings=[finding("no_carrier")])
NO_CONTACT = event("runner_on_unreachable", "gb10.fleet.doctor", playbook.DOCTOR, findings=[finding("unreachable")])
LATE_REFUSAL = event("runner_on_failed", "gb10.fleet.host_state", playbook.REFUSE)


def scan(*drifted: str, silent: tuple[str, ...] = (), limit: str | None = None) -> Event:
    """The result of gb10.fleet.drift, as the playbook has it."""
    hosts = {name: {"state": "drift", "changes": dict[str, Any](), "silence": None} for name in drifted}
    result: dict[str, Any] = {
        "schema_version": 1,
        "created": "2026-11-21T01:02:03Z",
        "seconds": 1.5,
        "clean": 1,
        "drifted": [*drifted],
        "silent": [*silent],
        "converge": [*drifted],
        "hosts": hosts,
    }
    return event("runner_on_ok", "gb10.fleet.drift", limit=limit, msg="a table", **result)


@pytest.mark.parametrize(
    ("rc", "events", "outcome"),
    [
        (0, [stats(ok={"spark-a": 3})], Outcome.done),
        (2, [event("runner_on_failed"), stats(failures={"spark-a": 1})], Outcome.failed),
        (4, [stats(dark={"spark-a": 1})], Outcome.unreachable),
        (2, [REFUSED], Outcome.refused),
        (2, [NO_CONTACT], Outcome.unreachable),
        (2, [event("runner_on_ok", "gb10.fleet.doctor", findings=[finding("os")]), REFUSED], Outcome.refused),
        (
            2,
            [event("runner_on_ok", "gb10.fleet.doctor", playbook.DOCTOR, findings=[]), LATE_REFUSAL],
            Outcome.refused,
        ),
        (0, [scan(), stats(ok={"spark-a": 2})], Outcome.done),
        (2, [scan("spark-a"), stats(failures={"spark-a": 1})], Outcome.drift),
        (2, [scan("spark-a", silent=("spark-b",)), stats(failures={"spark-a": 1})], Outcome.unreachable),
        (2, [scan(silent=("spark-b",)), stats(failures={"spark-a": 1})], Outcome.unreachable),
        (2, [event("runner_on_failed", "gb10.fleet.drift", msg="concurrency: expected 1")], Outcome.failed),
        (0, [stats()], Outcome.failed),  # an inventory without a host for us must not look like success
        (4, [], Outcome.failed),  # Ansible could not even start: a syntax error, say
    ],
)
def test_exit_status_says_how_it_ended(use: Use, rc: int, events: list[Event], outcome: Outcome) -> None:
    use(rc, *events)
    assert CLI.invoke(cli.app, ["site", "-i", "inventory"]).exit_code == outcome


def tasks_of(file: Path) -> list[dict[str, Any]]:
    """With those of the files that it imports."""
    found: list[dict[str, Any]] = []
    for task in yaml.safe_load(file.read_text()):
        imported = task.get("ansible.builtin.import_tasks")
        found += tasks_of(file.with_name(imported)) if imported else [task]
    return found


def test_refusals_go_by_the_steps_of_plays_and_tasks() -> None:
    plays = {file.stem: yaml.safe_load(file.read_text())[0] for file in PLAYBOOKS.glob("*.yml")}
    steps = {name: play.get("vars", {}).get(playbook.STEP) for name, play in plays.items()}
    assert {name: step for name, step in steps.items() if step} == {
        "doctor": playbook.DOCTOR,
        "fetch": playbook.FETCH,
        "planned": playbook.PLANNED,
        "drain": playbook.DRAIN,
        "withdraw": playbook.DRAIN,
        "serve": playbook.SERVE,
        "rejoin": playbook.SERVE,
    }
    roles = {name: tasks_of(PLAYBOOKS.parent / f"roles/{name}/tasks/main.yml") for name in ("reboot", "benchmark")}
    tasks = {name: play["tasks"] for name, play in plays.items() if "tasks" in play} | roles
    refusing = Counter(
        name
        for name, found in tasks.items()
        for task in found
        if task.get("vars", {}).get(playbook.STEP) == playbook.REFUSE
    )
    assert refusing == {"converge": 3, "undo": 2, "wish": 2, "services": 1, "fetch": 1, "reboot": 3, "benchmark": 2,
                        "retire": 2, "power_refuse": 3}  # fmt: skip
    for name in refusing:
        for task in tasks[name]:
            refuses = task.get("vars", {}).get(playbook.STEP) == playbook.REFUSE
            assert refuses == ("refuse" in task["name"].lower()), task["name"]


def test_plays_and_results_of_others_are_nothing_of_ours() -> None:
    """A result that looks like findings, or a task with a name like ours, changes no verdict."""
    report = Report()
    report.take(event("runner_on_failed", "acme.net.scan", findings=["CVE-2026-1"]))
    report.take(event("runner_on_failed", "acme.net.push", task="Refuse old firmware", msg="too old"))
    assert not report.refused and report.through is None and report.seen == {"spark-a"}
    assert report.outcome(2) is Outcome.failed and report.troubles["spark-a"].kind == "failed"


def test_what_a_host_says_at_length_is_cut() -> None:
    report = Report()
    report.take(event("runner_on_failed", msg="x" * 5_000_000))
    assert len(report.troubles["spark-a"].text) < 5000 and "(5000000 characters)" in report.troubles["spark-a"].text
    assert len(report.messages["spark-a"][0]) < 5000


@pytest.mark.parametrize("rc", [None, -9])
def test_a_killed_ansible_is_a_failure_that_says_so(use: Use, rc: int | None) -> None:
    use(rc, stats(ok={"spark-a": 1}))
    result = CLI.invoke(cli.app, ["site", "-i", "inventory"])
    assert result.exit_code == Outcome.failed and "ansible-playbook was killed" in result.stderr


def test_an_accepted_finding_is_no_refusal() -> None:
    report = Report()
    report.take(event("runner_on_ok", "gb10.fleet.doctor", findings=[finding("host_key", accepted="new board")]))
    assert report.outcome(2) is Outcome.failed


def test_options_reach_ansible(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    stub = use(0)
    CLI.invoke(cli.app, ["site", "-i", "mine", "--limit", "pair1:!spark-b", "--check", "--diff"])
    assert stub.call["playbook"] == "gb10.fleet.site"
    assert stub.call["cmdline"] == "--check --diff"
    assert stub.call["limit"] == "pair1:!spark-b"
    assert stub.call["inventory"] == [str(tmp_path / "mine")]
    assert stub.call["project_dir"] == str(tmp_path)


@pytest.mark.parametrize("command", ["doctor", "site", "validate", "benchmark", "drift"])
def test_each_command_runs_the_playbook_of_its_name(use: Use, command: str) -> None:
    stub = use(0, stats(ok={"spark-a": 1}))
    assert CLI.invoke(cli.app, [command, "-i", "spark-a,"]).exit_code == 0
    assert stub.call["playbook"] == f"gb10.fleet.{command}"
    assert stub.call["inventory"] == ["spark-a,"]


@pytest.mark.parametrize("words", [["site"], ["site", "--drifted"], ["undo", "--all", "--yes"]])
def test_nothing_is_changed_beside_a_rollout(use: Use, tmp_path: Path, words: list[str]) -> None:
    """The lock of a host is free between two steps of a rollout: `gb10 site` started the model that it had stopped."""
    (tmp_path / "hosts.yml").touch()
    stub = use(0, stats(ok={"spark-a": 1}))
    command = [*words, "-i", str(tmp_path / "hosts.yml")]
    with locks.held(tmp_path / ".gb10") as say:
        say("run-1")
        result = CLI.invoke(cli.app, command)
        assert (result.exit_code, stub.call) == (Outcome.refused, {}), result.output
        assert "another gb10 is at work on this fleet: run run-1" in result.stderr
        said = json.loads(CLI.invoke(cli.app, [*command, "--json"]).stdout)
        assert said["outcome"] == "refused" and "Nothing was changed" in said["errors"][0] and not stub.call
        unasked = CLI.invoke(cli.app, [word for word in command if word != "--yes"])
        assert "another gb10 is at work" in unasked.stderr, "before anybody is asked"
        assert CLI.invoke(cli.app, [*command, "--check"]).exit_code == 0 and stub.call
    assert CLI.invoke(cli.app, command).exit_code == 0


def test_a_list_of_many_hosts_is_an_inventory(use: Use) -> None:
    """It is longer than the name of a file may be."""
    many = ",".join(f"spark-{number}" for number in range(100))
    stub = use(0, stats(ok={"spark-1": 1}))
    assert CLI.invoke(cli.app, ["site", "-i", many]).exit_code == 0 and stub.call["inventory"] == [many]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["fabric", "docker"], "fabric,docker"), (["--all", "--yes"], "all"), (["--all", "--check"], "all")],
)
def test_undo_says_what_to_take_back(use: Use, words: list[str], said: str) -> None:
    stub = use(0, stats(ok={"spark-a": 1}))
    assert CLI.invoke(cli.app, ["undo", "-i", "spark-a,", *words]).exit_code == 0
    assert stub.call["playbook"] == "gb10.fleet.undo"
    options = shlex.split(stub.call["cmdline"])
    assert options[options.index("--extra-vars") + 1] == f"@{stub.call['private_data_dir']}/variables.yml"
    assert stub.variables == {"gb10_undo": said}
    assert ("--check" in options) is ("--check" in words)


def test_undo_of_everything_asks_first(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    change = {"role": "docker", "resource": "file:/x"}
    stub = use(0, event("runner_on_ok", "gb10.fleet.undo", changes=[change], remains=[]), stats(ok={"spark-a": 1}))
    words = ["undo", "--all", "-i", "spark-a,"]
    alone = CLI.invoke(cli.app, [*words, "--json"])
    assert alone.exit_code == Outcome.refused and "say --yes" in json.loads(alone.stdout)["error"]
    assert CLI.invoke(cli.app, words).exit_code == Outcome.refused and not stub.call, "nobody is there"
    asked: list[str] = []
    for said, outcome in (("n", Outcome.refused), ("y", Outcome.done)):
        monkeypatch.setattr(people.Person, "ask", lambda _, question, __, said=said: asked.append(question) or said)
        assert CLI.invoke(cli.app, words).exit_code == outcome
        assert bool(stub.call) is (said == "y")
    assert "everything on every host of spark-a," in asked[0] and "Docker restarts" in asked[0]
    ended = CLI.invoke(cli.app, [*words, "--limit", "pair1"]).output
    assert "everything on pair1?" in asked[-1] and ended.endswith("as before.\n")


def test_undo_says_in_plain_words_what_it_put_back_and_what_stays(use: Use) -> None:
    """Not as Ansible's lines, which the engine's answers follow for minutes."""
    stays = "Docker's bridge docker0"

    def undone(host: str, step: str | None, kind: str = "runner_on_ok", **more: Any) -> Event:
        change = {"role": "docker", "resource": "file:/x", "action": "remove", "detail": "was not there"}
        said = event(kind, "gb10.fleet.undo", step, changes=[change], remains=[stays], **more)
        return {**said, "event_data": {**said["event_data"], "host": host}}

    hosts = ("spark-a", "spark-b")
    looks, does = [undone(host, playbook.REFUSE) for host in hosts], [undone(host, None) for host in hosts]
    counts = stats(ok=dict.fromkeys(hosts, 1))
    stub = use(0, *looks, *does, counts)
    words = ["undo", "docker", "-i", "inventory"]
    result = CLI.invoke(cli.app, words)
    assert (result.exit_code, stub.call["quiet"]) == (0, True)
    both = "spark-a, spark-b"
    assert result.output.splitlines() == [
        f"{both}  docker  file:/x  remove: was not there", f"{both}  stays: {stays}", "Taken back.",
    ]  # fmt: skip
    for more in (["--check"], ["--diff"], ["--", "-v"]):
        assert CLI.invoke(cli.app, [*words, *more]).output == "" and not stub.call["quiet"], "Ansible has said it"
    use(2, *looks, does[0], undone("spark-b", None, "runner_on_failed", msg="no space"), counts)
    assert "spark-b: no space" in CLI.invoke(cli.app, words).output
    use(2, *looks, undone("spark-b", playbook.REFUSE, "runner_on_failed", msg="no role"), counts)
    assert CLI.invoke(cli.app, words).stdout == "spark-b: no role\n", "nothing was put back, so nothing stays"
    for remains, end in (([], "."), ([stays], ", but for what `stays` names above.")):
        change = {"role": "docker", "resource": "file:/x"}
        use(0, event("runner_on_ok", "gb10.fleet.undo", changes=[change], remains=remains), counts)
        said = CLI.invoke(cli.app, ["undo", "--all", "--yes", "-i", "inventory"]).output
        assert said.endswith(f"Taken back: these hosts are as before{end}\n")
    use(0, stats(ok={"spark-a": 1}))
    assert CLI.invoke(cli.app, words).output == "There was nothing to take back.\n"


def test_the_play_of_undo_has_the_tasks_that_are_said() -> None:
    (play,) = yaml.safe_load((PLAYBOOKS / "undo.yml").read_text())
    assert {task["name"].partition(",")[0] for task in play["tasks"]} >= cli._UNDO_STEPS.keys()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        # To undo everything has to be said, and a role called all is not it.
        ("undo -i inventory", "--all"),
        ("undo -i inventory fabric --all", "--all"),
        ("undo all -i inventory", "say --all"),
        # Words that ask, or that Ansible does not know.
        ("site -i spark-a, -- -K", "--ask-become-pass asks"),
        ("site -i spark-a, -- -bK", "--ask-become-pass asks"),
        ("site -i spark-a, -- --ask-vault-pass", "--ask-vault-pass asks"),
        ("site -i spark-a, -- --nonsense", "unrecognized arguments: --nonsense"),
        ("site -i spark-a, -- other.yml", "and no playbook"),
        ("site -i inventory -i invntory/mine", "invntory/mine is not there"),
        ("site", "--inventory"),
        # No password is asked for before.
        ("top -kK -i spark-a, --once", "No such option: --once"),
        ("bundle -K -J -i spark-a,", "Missing argument 'hosts'"),
    ],
)
def test_a_line_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, use: Use, line: str, said: str
) -> None:
    stub = use(0)
    monkeypatch.setattr("getpass.getpass", lambda question: pytest.fail(f"asked: {question}"))
    result = CLI.invoke(cli.app, line.split())
    assert result.exit_code == 2 and said in result.output
    assert not stub.call


@pytest.mark.parametrize(
    ("options", "said", "sudo"),
    [
        (["-kK"], {"Password for SSH and sudo: ": "of ssh"}, "of ssh"),
        (["-JkK"], {"Password for SSH and sudo: ": "of ssh"}, "of ssh"),
        (["-k", "-K"], {"Password for SSH: ": "of ssh", "Password for sudo (Enter: the same): ": ""}, "of ssh"),
        (["-K", "-k"], {"Password for SSH: ": "of ssh", "Password for sudo (Enter: the same): ": "other"}, "other"),
    ],
)
def test_passwords_are_asked_for_once_and_read_from_pipes(
    monkeypatch: pytest.MonkeyPatch, options: list[str], said: dict[str, str], sudo: str
) -> None:
    """One question where one password opens both, as in `gb10 up`."""
    said = {**said, "Password for the vault: ": ""}
    monkeypatch.setattr("getpass.getpass", said.pop)
    monkeypatch.setattr(passwords, "typed", {})
    read = []

    def runner(**call: Any) -> SimpleNamespace:
        options = shlex.split(call["cmdline"] or "")
        if call["playbook"] == "gb10.fleet.site":  # the other ends before it reads them
            files = {option: Path(file) for option, file in zip(options[::2], options[1::2], strict=True)}
            assert all(file.stat().st_mode & 0o777 == 0o600 for file in files.values())
            read.append({option: file.read_text() for option, file in files.items()})
        assert "of ssh" not in repr(call)
        return SimpleNamespace(rc=0)

    monkeypatch.setattr(cli, "run", lambda order, **how: playbook.run(order, **how, runner=runner))
    result = CLI.invoke(cli.app, ["site", *options, "-i", "spark-a,", "--ask-vault-pass"])
    both = {"--connection-password-file": "of ssh\n", "--become-password-file": f"{sudo}\n"}
    assert read == [both] and not said, result.output
    CLI.invoke(cli.app, ["drift", "-i", "spark-a,"])


class Runs:
    """Stands for ansible_runner.run over several runs: what each is to send, by playbook."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **stubs: Stub) -> None:
        self.stubs = stubs
        self.ran: list[str] = []
        monkeypatch.setattr(
            cli,
            "run",
            lambda order, **how: playbook.run(order, **how, runner=self),
        )

    def __call__(self, **call: Any) -> SimpleNamespace:
        name = call["playbook"].rpartition(".")[2]
        self.ran.append(name)
        return self.stubs[name](**call)


@pytest.mark.parametrize(
    ("silent", "rc", "outcome"),
    [((), 0, Outcome.done), (("spark-b",), 0, Outcome.unreachable), (("spark-b",), 2, Outcome.failed)],
)
def test_site_of_drifted_hosts_only(
    monkeypatch: pytest.MonkeyPatch, silent: tuple[str, ...], rc: int, outcome: Outcome
) -> None:
    found = scan("spark-a", silent=silent, limit="/srv/evidence/drift/drifted.txt")
    site = Stub(rc, stats(ok={"spark-a": 3}))
    runs = Runs(monkeypatch, drift=Stub(2, found, stats(failures={"spark-a": 1})), site=site)
    result = CLI.invoke(cli.app, ["site", "-i", "inventory", "--limit", "pair1", "--drifted", "--check", "--json"])
    assert result.exit_code == outcome
    assert runs.ran == ["drift", "site"]
    assert runs.stubs["drift"].call["limit"] == "pair1"
    assert runs.stubs["drift"].call["cmdline"] is None, "a scan in check mode would leave no list"
    assert site.call["limit"] == "@/srv/evidence/drift/drifted.txt"
    assert site.call["cmdline"] == "--check"
    answer = json.loads(result.stdout)
    assert (answer["playbook"], answer["drift"]["silent"]) == ("gb10.fleet.site", [*silent])


@pytest.mark.parametrize(
    ("rc", "events", "outcome"),
    [
        (0, [scan(), stats(ok={"spark-a": 2})], Outcome.done),
        (2, [scan("spark-a", silent=("spark-b",))], Outcome.unreachable),  # of one cluster
        (2, [], Outcome.failed),
    ],
)
def test_site_does_not_run_where_no_host_is_to_be_converged(
    monkeypatch: pytest.MonkeyPatch, rc: int, events: list[Event], outcome: Outcome
) -> None:
    runs = Runs(monkeypatch, drift=Stub(rc, *events))
    result = CLI.invoke(cli.app, ["site", "-i", "inventory", "--drifted"])
    assert result.exit_code == outcome
    assert runs.ran == ["drift"]
    assert ("no host to converge" in result.output) is bool(events)


def test_json_of_a_scan_has_every_host(use: Use) -> None:
    use(2, scan("spark-a"), stats(failures={"spark-a": 1}))
    result = CLI.invoke(cli.app, ["drift", "-i", "inventory", "--json"])
    assert result.exit_code == Outcome.drift
    answer = json.loads(result.stdout)
    assert answer["outcome"] == "drift"
    assert answer["drift"]["hosts"]["spark-a"]["state"] == "drift"
    schema = PLAYBOOKS.parent / "plugins/plugin_utils/reports/schemas/drift.schema.json"
    assert sorted(answer["drift"]) == sorted(json.loads(schema.read_text())["required"])


def test_help_explains_every_exit_status() -> None:
    text = " ".join(CLI.invoke(cli.app, ["--help"]).stdout.split())
    assert all(f"{outcome.value} " in text for outcome in Outcome)


def test_nothing_of_a_run_stays(use: Use) -> None:
    stub = use(0, event("runner_on_ok", answer="a secret"))
    CLI.invoke(cli.app, ["site", "-i", "inventory"])
    assert not Path(stub.call["private_data_dir"]).exists()
    assert stub.stored == [False], "events are not stored"
    assert stub.call["settings"]["suppress_output_file"] is True


def test_json_is_one_object_and_nothing_else(use: Use) -> None:
    proof = event("runner_on_ok", "gb10.fleet.evidence", directory="evidence/20261121T010203Z")
    stub = use(2, REFUSED, proof, stats(ok={"spark-a": 2}, changed={"spark-a": 1}, failures={"spark-a": 1}))
    answer = json.loads(CLI.invoke(cli.app, ["validate", "-i", "inventory", "--json"]).stdout)
    assert stub.call["quiet"] is True
    assert answer["outcome"] == "refused"
    assert answer["hosts"] == {"spark-a": {"ok": 2, "changed": 1, "unreachable": 0, "failed": 1}}
    assert [item["id"] for item in answer["findings"]] == ["no_carrier"]
    assert answer["evidence"] == "evidence/20261121T010203Z"


def test_the_real_runner_runs_a_real_playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run without a stub: the arguments are ansible-runner's own, and its events are read rightly."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "say.yml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.fail: {msg: sorry}\n"
    )
    (tmp_path / "hosts").write_text("spark-a ansible_connection=local\n")
    (tmp_path / "more").write_text("spark-b ansible_connection=local\n")
    order = Order("say.yml", ["hosts", "more"], check=True, words=["--limit", "spark-b"])
    outcome, report = playbook.run(order, quiet=True)
    assert outcome is Outcome.failed
    assert report.hosts == {"spark-b": {"ok": 0, "changed": 0, "unreachable": 0, "failed": 1}}
    assert report.messages == {"spark-b": ["sorry"]} and report.errors == []
    (tmp_path / "say.yml").write_text("- hosts: sparks\n  tasks: []\n")
    assert playbook.run(replace(order, words=()), quiet=True)[1].errors == [playbook.NO_HOST]
    _, report = playbook.run(replace(order, playbook="none.yml"), quiet=True)
    assert "none.yml could not be found" in report.errors[0]


def test_json_says_why_and_what_changed(use: Use) -> None:
    change = {"role": "docker", "resource": "package:docker-ce", "action": "create", "detail": ""}
    waits = {"role": "fabric", "resource": "nm_profile:a", "action": "create", "consent": "fabric_allow_activation"}
    orphan = {"role": "fabric", "resource": "file:/etc/old"}
    look = {"unchanged": False, "changes": [change], "pending": [waits], "orphans": [orphan]}
    state: dict[str, Any] = {"changes": [change], "pending": [waits], "orphans": []}
    use(
        2,
        event("runner_on_ok", "gb10.fleet.doctor", playbook.DOCTOR, ansible_facts={"gb10_probe": look}),
        event("runner_on_ok", "gb10.fleet.host_state", playbook.REFUSE, changes=[change]),
        event("runner_on_failed", "gb10.fleet.host_state", **state, msg="apt said no"),
        event("runner_on_unreachable", msg="no route"),
        stats(failures={"spark-a": 1}),
    )
    answer = json.loads(CLI.invoke(cli.app, ["site", "-i", "inventory", "--json"]).stdout)
    assert answer["messages"] == {"spark-a": ["apt said no", "the host did not answer over SSH: no route"]}
    assert answer["changes"] == {"spark-a": [change]}
    assert answer["pending"] == {"spark-a": [waits]} and answer["orphans"] == {"spark-a": [orphan]}


@pytest.mark.parametrize(("said", "kind"), [(REFUSED, "failed"), (NO_CONTACT, "unreachable")])
def test_a_host_of_which_the_doctor_says_that_it_gives_no_answer_is_unreachable(said: Event, kind: str) -> None:
    """The task fails, since it is the doctor that asked; a rollout is to count the host as what it is."""
    report = playbook.Report()
    report.take(said)
    assert report.troubles["spark-a"].kind == kind


def test_a_host_that_only_the_look_has_seen_is_reported(use: Use) -> None:
    waits = {
        "role": "docker",
        "resource": "unit:docker.service",
        "action": "restart",
        "consent": "docker_allow_restart",
    }
    looks = {
        name: {"unchanged": True, "changes": [], "pending": [waits], "orphans": []} for name in ("spark-b", "spark-c")
    }
    use(
        0,
        event("runner_on_ok", "gb10.fleet.probe", probes=looks, unchanged=list(looks), findings=[finding("swap")]),
        stats(ok={"spark-a": 3}),
    )
    answer = json.loads(CLI.invoke(cli.app, ["site", "-i", "inventory", "--json"]).stdout)
    assert {name: counts["ok"] for name, counts in answer["hosts"].items()} == {
        "spark-a": 3,
        "spark-b": 1,
        "spark-c": 1,
    }
    assert answer["pending"] == {"spark-b": [waits], "spark-c": [waits]}
    assert [found["id"] for found in answer["findings"]] == ["swap"]


def test_a_refused_undo_has_changed_nothing(use: Use) -> None:
    away = {"msg": "spark-a: unreachable: it is off\n    Fix: ansible spark-a -i INVENTORY must work"}
    use(
        2,
        event("runner_on_ok", "gb10.fleet.undo", playbook.REFUSE, changes=[{"role": "fabric"}]),
        event("runner_on_unreachable", "gb10.fleet.undo", playbook.REFUSE, **away),
        stats(failures={"spark-a": 1}),
    )
    result = CLI.invoke(cli.app, ["undo", "fabric", "-i", "inventory", "--json"])
    assert result.exit_code == Outcome.unreachable
    answer = json.loads(result.stdout)
    assert answer["changes"] == {} and answer["messages"]["spark-a"] == [away["msg"].replace("INVENTORY", "inventory")]
    assert answer["findings"] == [
        {
            "id": "unreachable", "severity": "error", "host": "spark-a", "fact": "it is off", "accepted": None,
            "way_out": "ansible spark-a -i inventory must work",
        }
    ]  # fmt: skip


def test_json_has_the_errors_of_ansible_itself(use: Use) -> None:
    lines = [
        {"event": "verbose", "stdout": text} for text in ("Using a file", "[ERROR]: YAML parsing failed", " in x ")
    ]
    use(4, *lines)
    answer = json.loads(CLI.invoke(cli.app, ["site", "-i", "inventory", "--json"]).stdout)
    assert answer["errors"] == ["[ERROR]: YAML parsing failed", "in x"]


def test_no_host_says_where_to_look(use: Use) -> None:
    use(0, stats())
    result = CLI.invoke(cli.app, ["site", "-i", "inventory"])
    assert result.exit_code == Outcome.failed
    assert "no group `sparks`" in result.stderr and "docs/inventory.md" in result.stderr


def test_site_ends_with_what_failed_where_in_plain_words(use: Use) -> None:
    other = event("runner_on_failed", "a.module", msg="apt is held by a person")
    other["event_data"]["host"] = "spark-b"
    use(2, REFUSED, other, stats(failures={"spark-a": 1, "spark-b": 1}))
    assert CLI.invoke(cli.app, ["site", "-i", "inventory"]).stdout.splitlines() == [
        "spark-a: error: no_carrier: how it is",
        "    Fix: what to do",
        "2 hosts: 1 error, 0 warnings, 0 accepted",
        "spark-b: apt is held by a person",
    ]
    assert json.loads(CLI.invoke(cli.app, ["site", "-i", "inventory", "--json"]).stdout)["outcome"] == "refused"


PROBED = event("runner_on_ok", "gb10.fleet.probe", probes={}, unchanged=["spark-a"], findings=[])


@pytest.mark.parametrize(
    ("rc", "status", "outcome", "why"),
    [
        (254, "canceled", Outcome.interrupted, ""),
        (254, "timeout", Outcome.failed, playbook.TIMED_OUT),
        (-9, "failed", Outcome.failed, playbook.KILLED),
    ],
)
@pytest.mark.parametrize(
    "words", [["site"], ["doctor"], ["undo", "--all", "--yes"], ["drift"], ["site", "--drifted"]], ids=" ".join
)
@pytest.mark.parametrize(
    "events", [[], [PROBED], [scan("spark-a", limit="x"), REFUSED]], ids=["nothing", "some", "all"]
)
def test_a_run_cut_short_is_judged_by_how_it_ended_and_not_by_what_is_missing(
    use: Use, rc: int, status: str, outcome: Outcome, why: str, words: list[str], events: list[Event]
) -> None:
    use(rc, *events, status=status)
    result = CLI.invoke(cli.app, [*words, "-i", "inventory"])
    playbook_name = "gb10.fleet.drift" if "--drifted" in words else f"gb10.fleet.{words[0]}"
    why = why or (
        stopping.READ_ONLY if words[0] in ("doctor", "drift") or "--drifted" in words else stopping.INTERRUPTED
    )
    assert result.exit_code == outcome
    assert result.stderr == f"{playbook_name}: {outcome.name}; {why}\n"
    assert "0 errors" not in result.stdout and "no group" not in result.output
    answer = json.loads(CLI.invoke(cli.app, [*words, "-i", "inventory", "--json"]).stdout)
    assert (answer["outcome"], answer["errors"]) == (outcome.name, [why])


def test_half_of_an_answer_is_not_shown_as_the_whole(use: Use) -> None:
    said = event("runner_on_ok", "gb10.fleet.explain", uncertain=[], roles={})
    use(254, said, status="canceled")
    result = CLI.invoke(cli.app, ["explain", "-i", "inventory", "spark-a"])
    assert (result.exit_code, result.stdout) == (Outcome.interrupted, "")


def test_a_plan_is_lines_of_a_terminal_and_hosts_come_in_order(use: Use) -> None:
    decided = {"settings": [], "plan": {"mine": "x" * 2000}, "refusals": [], "wishes": {}, "resources": []}
    decided["plan"]["findings"] = []  # type: ignore[index]
    said = event("runner_on_ok", "gb10.fleet.explain", uncertain=[], roles={"fabric": decided})
    other = {**said, "event_data": {**said["event_data"], "host": "spark-0"}}
    use(0, said, other, stats(ok={"spark-a": 1, "spark-0": 1}))
    lines = CLI.invoke(cli.app, ["explain", "-i", "inventory", "pair1"]).stdout.splitlines()
    assert [line for line in lines if "fabric" in line] == ["spark-0: fabric", "spark-a: fabric"]
    assert max(map(len, lines)) < 400 and any("(2000 characters; --json has all of it)" in line for line in lines)


def test_who_said_nothing_at_all_is_no_inventory_without_hosts(use: Use) -> None:
    use(127)
    result = CLI.invoke(cli.app, ["site", "-i", "inventory"])
    assert result.exit_code == Outcome.failed
    assert "ansible-playbook ended with status 127 and said nothing" in result.stderr


def test_a_missing_group_is_one_error_without_the_playbook(use: Use) -> None:
    said = "the group sparks matches no host; the inventory has the groups gpus: -e gb10_hosts=GROUP takes another one"
    lines = [
        f"[ERROR]: Error processing keyword 'hosts': The lookup plugin 'gb10.fleet.target' failed: {said}",
        "Origin: /x/doctor.yml:4:10",
        "^ column 10",
    ]
    use(4, *({"event": "verbose", "stdout": line} for line in lines))
    result = CLI.invoke(cli.app, ["doctor", "-i", "inventory"])
    assert (result.exit_code, result.stdout) == (Outcome.failed, "")
    assert result.stderr == f"gb10.fleet.doctor: failed; {said}\n"
    answer = json.loads(CLI.invoke(cli.app, ["doctor", "-i", "inventory", "--json"]).stdout)
    assert answer["errors"] == [said]


def test_a_refusal_that_has_its_way_out_in_it_gets_no_second_one(use: Use) -> None:
    refused = {**finding("docker_refused"), "fact": "docker is old. Set docker_version", "way_out": ""}
    use(2, event("runner_on_failed", "gb10.fleet.doctor", playbook.DOCTOR, findings=[refused]), stats(failures=1))
    result = CLI.invoke(cli.app, ["doctor", "-i", "inventory"])
    assert "spark-a: error: docker_refused: docker is old. Set docker_version" in result.stdout.splitlines()
    assert "way out" not in result.output and "\n    \n" not in result.output


def test_what_hosts_have_in_common_is_said_once_and_a_plan_is_no_warning(use: Use) -> None:
    """`fabric_plan` is of the severity info: each host of a new pair has one."""
    hosts = ["spark-a", "spark-b", "spark-c", "spark-d"]
    answered = [hosts[number] for number in (1, 3, 0, 2)]
    warned = [{**finding("security_floor", "warn"), "host": host} for host in answered]
    planned = [{**finding("fabric_plan", "info"), "host": host, "fact": f"rails of {host}"} for host in hosts[:2]]
    use(0, event("runner_on_ok", "gb10.fleet.doctor", findings=[*warned, *planned]), stats(ok=dict.fromkeys(hosts, 1)))
    result = CLI.invoke(cli.app, ["doctor", "-i", "inventory"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "spark-a, spark-b, spark-c and 1 more: warn: security_floor: how it is",
        "    Fix: what to do",
        "spark-a: info: fabric_plan: rails of spark-a",
        "    Fix: what to do",
        "spark-b: info: fabric_plan: rails of spark-b",
        "    Fix: what to do",
        "4 hosts: 0 errors, 4 warnings, 0 accepted",
    ]


def test_an_error_stands_above_all_warnings(use: Use) -> None:
    said = [finding("security_floor", "warn"), finding("gpu_absent"), finding("os", "warn")]
    use(2, event("runner_on_ok", "gb10.fleet.doctor", findings=said), stats(ok={"spark-a": 1}))
    lines = CLI.invoke(cli.app, ["doctor", "-i", "inventory"]).stdout.splitlines()
    assert [line.split(": ")[2] for line in lines if line.startswith("spark-a: ")] == [
        "gpu_absent",
        "security_floor",
        "os",
    ]


def test_a_doctor_without_a_host_says_nothing_of_hosts(use: Use) -> None:
    use(0, stats())
    assert CLI.invoke(cli.app, ["doctor", "-i", "inventory"]).stdout == ""


def test_more_inventories_and_what_is_for_ansible(use: Use) -> None:
    stub = use(0, stats(ok={"spark-a": 1}))
    words = ["undo", "fabric", "-i", "a,", "-i", "b,", "-l", "a", "--check", "--", "--vault-password-file", "a file"]
    result = CLI.invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert (stub.call["inventory"], stub.call["limit"]) == (["a,", "b,"], "a")
    options = shlex.split(stub.call["cmdline"])
    assert options[0] == "--check" and options[-2:] == ["--vault-password-file", "a file"]
    assert stub.variables == {"gb10_undo": "fabric"}
    assert CLI.invoke(cli.app, ["site", "-i", "a,", "fabric"]).exit_code == 2, "only after --"


@pytest.mark.parametrize(
    ("command", "events", "lines"),
    [
        ("drift", [scan("spark-a")], ["a table"]),
        (
            "doctor",
            [REFUSED],
            [
                "spark-a: error: no_carrier: how it is",
                "    Fix: what to do",
                "1 host: 1 error, 0 warnings, 0 accepted",
            ],
        ),
    ],
)
def test_what_only_looks_shows_its_result_once(use: Use, command: str, events: list[Event], lines: list[str]) -> None:
    told = event("runner_on_failed", msg="a table") if command == "drift" else event("runner_on_ok")
    stub = use(2, *events, told, stats(failures={"spark-a": 1}))
    result = CLI.invoke(cli.app, [command, "-i", "inventory"])
    assert stub.call["quiet"] is True
    assert result.stdout.splitlines() == lines


def test_what_only_looks_shows_why_it_could_not(use: Use) -> None:
    use(2, event("runner_on_failed", msg="no\x1b[2J"), stats(failures={"spark-a": 1}))
    result = CLI.invoke(cli.app, ["drift", "-i", "inventory"])
    assert result.stdout == "spark-a: no\\x1b[2J\n"


@pytest.mark.parametrize("text", ['{"hosts": {}}', "[1]", '"x"', "{", "\xff\xfe"])
def test_foreign_files_are_no_evidence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "drift.json"
    file.write_bytes(text.encode("latin-1"))
    result = CLI.invoke(cli.app, ["evidence", str(file)])
    assert result.exit_code == 2 and "drift.json is no" in result.output.replace("\n", " ")


def test_version_and_help() -> None:
    assert CLI.invoke(cli.app, ["-h"]).stdout == CLI.invoke(cli.app, ["--help"]).stdout
    assert CLI.invoke(cli.app, ["--version"]).stdout.startswith("gb10-fleet 0.")
    text = CLI.invoke(cli.app, ["--help"]).stdout
    assert all(word in text for word in ("doctor", "site", "validate", "drift", "undo", "evidence"))


def proof() -> dict[str, Any]:
    """The part of an evidence document that the command reads."""
    ends = {"server": {"host": "spark-a", "port": "p0"}, "client": {"host": "spark-b", "port": "p0"}}
    half = {"verdict": "half_width", "text": "98.0 Gb/s", "way_out": "look at [the] other rail"}
    reasons = [
        {"where": "spark-a p0 to spark-b p0", "what": "half_width", **{key: half[key] for key in ("text", "way_out")}},
        {"where": "spark-b", "what": "disk_full", "text": "no [space]\tleft", "way_out": "free it"},
    ]
    cable = {
        "host": "spark-a",
        "port": "p0",
        "verdict": "as_planned",
        "found": [],
        "text": "leads there",
        "way_out": "",
    }
    cluster = {
        "name": "pair1", "topology": "pair", "hosts": ["spark-a", "spark-b"], "verdict": "unhealthy",
        "reasons": reasons,
        "pairings": [{**ends, "link": "l", "least_gbps": 175.0, "severity": "error", **half}],
        "cabling": [cable],
        "serving": {"verdict": "serving", "text": "answered in 1.2 s", "way_out": ""},
    }  # fmt: skip
    hosts = {
        name: {"cluster": "pair1", "facts": {}, "gids": None, "serving": None, "findings": [found]}
        for name, found in (("spark-a", finding("os", accepted="a lab")), ("spark-b", finding("os", "warn")))
    }
    return {
        "created": "2026-11-21T01:02:03Z", "verdict": "unhealthy", "reasons": reasons, "since": None,
        "clusters": [cluster], "hosts": hosts,
    }  # fmt: skip


@pytest.mark.parametrize("hosts", [["spark-a"], ["spark-a", "spark-b"]])
def test_the_end_of_a_run_says_all_of_one_service_and_the_places_of_several(tmp_path: Path, hosts: list[str]) -> None:
    clusters = []
    for host in hosts:
        api = {"host": host, "url": "http://127.0.0.1:8000", "gateway": None, "login": f"you@{host}"}
        clusters.append({"name": host, "services": [{"verdict": "serving", "served_models": ["m"], "api": api}]})
    (tmp_path / "evidence.json").write_text(json.dumps({"clusters": clusters}))
    lines = [*ending.how_to_use(Order("", ["inventory"]), tmp_path)]
    assert any("gb10 logs" in line for line in lines) is (len(hosts) == 1)
    assert all(any(f"you@{host}" in line for line in lines) for host in hosts)
    assert len(hosts) == 1 or lines[-1].endswith("gb10 ps --use -i inventory")


@pytest.mark.parametrize("by", ["folder", "file"])
def test_evidence_is_aligned_in_a_pipe(tmp_path: Path, by: str) -> None:
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps(proof()))
    result = CLI.invoke(cli.app, ["evidence", str(tmp_path if by == "folder" else file)])
    lines = result.stdout.splitlines()
    assert [re.split("  +", line) for line in lines] == [
        ["pair1", "2 hosts, pair", "unhealthy"],
        [
            "pair1",
            "spark-a p0 to spark-b p0",
            "half_width",
            "98.0 Gb/s; look at [the] other rail; at least 175 Gb/s wanted",
        ],
        ["pair1", "spark-a p0", "as_planned", "leads there"],
        ["pair1", "model", "serving", "answered in 1.2 s"],
        ["pair1", "spark-a: os", "accepted", "a lab"],
        ["pair1", "spark-a", "warn", "os: how it is; what to do"],
        ["pair1", "spark-b", "disk_full", "no [space]\\tleft; free it"],
    ]
    assert len({line.index(word) for line, word in zip(lines, ("unhealthy", "half_width"), strict=False)}) == 1


def test_an_evidence_of_a_stranger_steers_no_terminal() -> None:
    steering = "\x1b[2J\x1b]0;mine\x07[link=https://x.example]ready[/link]"
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    evidence_table.show({**proof(), "verdict": steering, "created": steering}, console, Path("a[link=x]b.html"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    wins = ("\x1b[2J" in shown) + ("\x1b]" in shown)
    tally("a file of a stranger steers the terminal", 2, wins)
    assert not wins and r"\x1b[2J" in shown, ascii(shown)


def test_an_evidence_with_a_number_of_400_digits_is_none(tmp_path: Path) -> None:
    (document := proof())["clusters"][0]["pairings"][0]["least_gbps"] = 10**400
    (tmp_path / "evidence.json").write_text(json.dumps(document))
    result = CLI.invoke(cli.app, ["evidence", str(tmp_path)])
    assert result.exit_code == 2 and "is no evidence" in " ".join(result.output.split())


def test_evidence_is_a_table_on_a_terminal() -> None:
    console = Console(force_terminal=True, width=120, record=True, file=io.StringIO())
    evidence_table.show(proof(), console, Path("index.html"))
    text = console.export_text()
    assert "half_width" in text and "look at [the] other rail" in text and "as_planned" in text
    assert "spark-b: disk_full: no [space] left\n    Fix: free it\n" in text and "{" not in text


@pytest.mark.parametrize("name", documents())
def test_every_kind_of_evidence_can_be_shown(name: str) -> None:
    """Of the documents that the proof itself would write, not of one made up here."""
    document = documents()[name]
    shown = list(evidence_table.rows(document))
    judged = sum(
        1 + len(cluster["pairings"]) + len(cluster["cabling"]) + bool(cluster["serving"])
        for cluster in document["clusters"]
    )
    assert len(shown) >= judged
    assert len(list(evidence_table.reasons(document))) == len(document["reasons"])
    assert all(row.verdict for row in shown)


def test_no_evidence_yet_says_how_to_get_some(tmp_path: Path) -> None:
    result = CLI.invoke(cli.app, ["evidence", str(tmp_path)])
    assert result.exit_code == 2
    assert "gb10 validate" in result.output


def order_of(check: bool = False, diff: bool = False) -> str:
    return Order("p", ["i"], None, check, diff).cmdline(Path("variables.yml"))


def test_no_option_no_word() -> None:
    assert order_of() == ""
    assert order_of(check=True) == "--check"
    assert order_of(diff=True) == "--diff"


def test_where_no_evidence_is_the_place_that_the_docs_name_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was that of `gb10 up` alone, which a fleet with an inventory of its own never has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "evidence/latest is not there" in " ".join(CLI.invoke(cli.app, ["evidence"]).output.split())
    assert "gb10-fleet/evidence" not in CLI.invoke(cli.app, ["evidence"]).output


def test_the_evidence_shows_what_the_page_shows() -> None:
    document = documents()["pair-virtual"] | {"since": {"created": "2026-11-20T00:00:00Z", "changes": ["kernel moved"]}}
    shown = [*evidence_table.rows(document), *evidence_table.remarks(document)]
    said = {(row.what, row.verdict): row.detail for row in shown}
    assert said["API", "api"] == "https://192.0.2.11:8443/v1" and said["spark-a", "free"].startswith(
        "55.0 GiB of memory; / "
    )
    assert said["spark-a p0 to spark-b p0", "healthy"].endswith("at least 175 Gb/s wanted")
    assert said["spark-a, spark-b", "virtual"].startswith("no real Sparks")
    assert said["spark-a, spark-b", "warn"].startswith("security_floor: NVIDIA Container Toolkit")
    assert said["since 2026-11-20T00:00:00Z", "changed"] == "kernel moved"


def _silent(host: str, cluster: str = "") -> Report:
    said = "Task failed: Failed to connect to the host via ssh: connect to host 192.0.2.11 port 22: timed out"
    report = Report(stats={"dark": {host: 1}})
    data = {"host": host, "cluster": cluster, "res": {"msg": said}}
    report.take({"event": "runner_on_unreachable", "event_data": data})
    return report


def test_a_silent_host_is_told_of_as_by_the_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    """Also by commands that run no doctor: why, explain, release."""
    report = _silent("spark-a", "left")
    report.messages["spark-b"], report.stats["ok"] = ["no such file"], {"spark-b": 1}
    ending.show(Order("gb10.fleet.why", ["inventory/my fleet"]), report)
    other, first, way_out = capsys.readouterr().out.splitlines()
    words = "the host did not answer over SSH: connect to host 192.0.2.11 port 22: timed out"
    assert first == f"spark-a: unreachable: {words}"
    assert "ansible spark-a -i 'inventory/my fleet' -m raw -a true must work" in way_out
    assert "--limit '!left'" in way_out
    assert other == "spark-b: no such file"


def test_where_nobody_answers_no_limit_is_proposed_that_leaves_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    ending.show(Order("gb10.fleet.why", ["mine"]), _silent("spark-a"))
    said = capsys.readouterr().out
    assert "ansible spark-a -i mine -m raw -a true must work" in said and "--limit" not in said


def test_the_doctor_names_the_inventory_and_one_limit_for_several(capsys: pytest.CaptureFixture[str]) -> None:
    found = [from_failure(name, "timed out", cluster=f"of-{name}").as_dict() for name in ("a", "b")]
    stats = {"dark": {"a": 1, "b": 1}, "ok": {"c": 1}}
    ending.show(Order("gb10.fleet.doctor", ["mine"]), Report(stats=stats, findings=found))
    said = capsys.readouterr().out
    assert "ansible b -i mine -m raw" in said and said.count("--limit") == 1 and "--limit '!of-a,!of-b'" in said


def test_a_document_names_the_inventory_as_the_lines_do() -> None:
    order = Order("gb10.fleet.why", ["a b", "c,"])
    said = {"hosts": [{"way_out": "gb10 why x -i INVENTORY", "days": 3, "none": None}]}
    assert ending.named(order, said) == {"hosts": [{"way_out": "gb10 why x -i 'a b' -i c,", "days": 3, "none": None}]}


def test_words_of_a_host_are_not_each_a_look_at_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that said 100,000 words held up `gb10 ps --json` for 40 s: each took a look at ansible.cfg."""
    looks: list[int] = []
    monkeypatch.setattr(ending.home, "default", lambda: looks.append(1) or [])
    ending.named(Order("gb10.fleet.why", ["a"]), {"hosts": ["word"] * 1000})
    tally("the words of a host hold up a command for all hosts", 1, int(len(looks) > 1))
    assert not looks


def test_no_word_that_a_command_hands_over_is_a_template() -> None:
    """A host says how its service is called and why a rollout failed. As a template that would run on this machine."""
    evil = "{{ lookup('pipe', 'touch here') }}"
    taken: list[Any] = []

    def runner(**call: Any) -> SimpleNamespace:
        file = Path(call["private_data_dir"], "variables.yml")
        taken.append(DataLoader().load_from_file(str(file), cache="none", trusted_as_template=True))
        return SimpleNamespace(rc=0, status=None)

    order = Order("p", ["i"], variables={"text": evil, "event": {"text": evil, "hosts": [evil], evil: "1", "n": "12"}})
    playbook.run(order, runner=runner)
    texts = [taken[0]["text"], taken[0]["event"]["text"], taken[0]["event"]["hosts"][0], *taken[0]["event"]]
    trusted = [text for text in texts if is_trusted_as_template(text)]
    tally("a word of a host becomes a template on the controller", len(texts), len(trusted))
    assert taken == [dict(order.variables)] and not trusted


def test_whoever_watches_a_run_hears_each_second() -> None:
    """A task that downloads for minutes has no event in between."""
    heard: list[Any] = []

    def runner(**call: Any) -> SimpleNamespace:
        assert not call["cancel_callback"]()
        return SimpleNamespace(rc=0, status=None)

    playbook.run(Order("p", ["i"]), runner=runner, watch=heard.append)
    assert heard == [playbook.SECOND]


def test_who_waits_at_a_terminal_for_an_answer_is_told_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("gb10_fleet.beat.time.monotonic", lambda: now[0])

    def runner(**call: Any) -> SimpleNamespace:
        for _ in range(25):
            now[0] += 1
            call["cancel_callback"]()
        return SimpleNamespace(rc=0, status=None)

    told = []
    for terminal, quiet in ((True, True), (False, True), (True, False)):
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal)
        playbook.run(Order("p", ["i"]), runner=runner, quiet=quiet)
        told.append(capsys.readouterr().err.splitlines())
    assert told == [["waiting for the hosts, for 11 s", "waiting for the hosts, for 22 s"], [], []]
