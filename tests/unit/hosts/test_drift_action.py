"""The action drift in real ansible-playbook runs, over an ssh that plays every kind of host."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.system.consent import give

from tests.support.attacker import tally
from tests.support.plays import put_ssh, recap, run_playbook

# Stands in for ssh: notes its arguments and a digest of its input, then is the host that its destination names.
SSH = """#!/bin/bash
for word in "$@"; do case $word in kind-*) kind=${word#kind-};; esac; done
here=${0%/*}
printf '%s\\0' "$@" >"$here/argv-$kind"
env >"$here/environment-$kind"
command=${!#}
if [[ $command == *password:* ]]; then
  prompt=$(grep -o '\\[.* via ansible, key=[a-z]*\\] password:' <<<"$command")
  printf '%s' "$prompt" >&2
  read -r typed
  [[ $typed == "of $kind" ]] || { echo "Sorry, try again." >&2; exit 1; }
  grep -o 'BECOME-SUCCESS-[a-z]*' <<<"$command"
fi
read -r size
digest=$(head -c "${size:1}" | sha256sum)
echo "$kind $digest" >>"$here/input"
differs='{"role": "driver", "resource": "hold:driver-set", "action": "update", "detail": "to hold: libcuda"}'
waits='{"role": "fabric", "resource": "nm_profile:a", "action": "create", "detail": "mtu 1500 -> 9000"'
waits+=', "consent": "fabric_allow_activation"}'
rest='"recorded": true, "orphans": [], "error": null, "stale": [], "diff": [], "wishes": [], "ends": [], "guard": null'
rest+=', "subprocesses": 0, "facts": null'
say() { echo; echo "GB10-ANSWER:{\\"known\\": $1, \\"changes\\": [$2], \\"pending\\": [$3], $rest}"; }
case $kind in
  clean*) echo "welcome"; say true;;
  drift*) say true "$differs";;
  waits) say true "" "$waits";;
  new) say false;;
  curious) say true "" "${waits/fabric_allow_activation/secret}, ${waits/fabric_allow_activation/site_allow_all}";;
  away) echo "ssh: connect to host kind-away port 22: No route to host" >&2; exit 255;;
  key) echo "Host key verification failed." >&2; exit 255;;
  nosudo) echo "sudo: a password is required" >&2; exit 1;;
  garbled) echo "GB10-ANSWER:{";;
  typed) rest="${rest%null}{\\"rails\\": 5}"; say true;;
  hangs) sleep 77;;
esac
"""


class Run:
    """ansible-playbook in a directory of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        put_ssh(tmp_path, SSH)

    def play(self, kinds: dict[str, dict[str, Any]], play: str, *args: str, **variables: Any) -> tuple[int, str]:
        hosts = {f"spark-{kind}": {"ansible_host": f"kind-{kind}", **own} for kind, own in kinds.items()}
        return run_playbook(self.tmp_path, hosts, play, *args, **variables)

    def argv(self, kind: str) -> list[str]:
        """What ssh was called with for this host, without its name."""
        return (self.tmp_path / f"argv-{kind}").read_text().split("\0")[:-1]

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.tmp_path / "evidence/drift/drift.json").read_text())
        return found

    def list(self, name: str) -> list[str] | None:
        file = self.tmp_path / "evidence/drift" / f"{name}.txt"
        return file.read_text().splitlines() if file.exists() else None


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


PLAYBOOK = "- ansible.builtin.import_playbook: gb10.fleet.drift\n"


def task(arguments: dict[str, Any] | None = None, become: bool = False) -> str:
    """A play with the action alone."""
    tasks = [{"gb10.fleet.drift": arguments or {}}]
    return yaml.safe_dump([{"hosts": "sparks", "gather_facts": False, "become": become, "tasks": tasks}])


ASKS = f"the repair needs your consent: {give('fabric_allow_activation')}"


def kinds(*names: str, **own: Any) -> dict[str, dict[str, Any]]:
    return {name: dict(own) for name in names}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (None, f"create: mtu 1500 -> 9000; {ASKS}"),
        (True, "create: mtu 1500 -> 9000"),
        ("{{ 1 == 1 }}", "create: mtu 1500 -> 9000"),
        ("maybe", f"create: mtu 1500 -> 9000; {ASKS}"),
    ],
)
def test_the_value_that_differs_is_named_and_a_consent_that_is_set_is_not_asked_for(
    run: Run, word: Any, said: str
) -> None:
    run.play(kinds("waits", **({} if word is None else {"fabric_allow_activation": word})), task({"report_only": True}))
    ((row,),) = run.document["hosts"]["spark-waits"]["changes"].values()
    assert f"{row['action']}: {row['detail']}" == said
    assert (row["consent"] is None) is ("needs" not in said)


def test_every_kind_of_host_is_told_apart(run: Run) -> None:
    silent = {
        "away": "unreachable", "key": "host_key", "nosudo": "no_sudo", "garbled": "garbled", "hangs": "timeout",
        "typed": "garbled",
    }  # fmt: skip
    rc, output = run.play(kinds("clean", "drift", "waits", "new", *silent), task({"timeout_s": 2}))
    assert rc == 2, output
    states = {"clean": "clean", "drift": "drift", "waits": "drift", "new": "no_manifest"}
    found = {name: host["state"] for name, host in run.document["hosts"].items()}
    assert found == {f"spark-{kind}": states.get(kind, "silent") for kind in [*states, *silent]}
    for kind, reason in silent.items():
        assert run.document["hosts"][f"spark-{kind}"]["silence"]["reason"] == reason
    assert run.document["hosts"]["spark-typed"]["silence"]["text"] == "facts.rails is 5, and must be a list"
    assert run.list("drifted") == ["spark-drift", "spark-waits", "spark-new"]
    assert run.list("silent") == [f"spark-{kind}" for kind in silent]
    inputs = {line.split()[1] for line in (run.tmp_path / "input").read_text().splitlines()}
    assert len(inputs) == 1, "every host gets the same bytes"


def test_the_playbook_shows_a_table_and_no_more(run: Run) -> None:
    rc, output = run.play(kinds("clean", "drift"), PLAYBOOK)
    assert rc == 2
    assert "2 hosts: 1 clean, 1 drifted, 0 silent" in output
    assert "hold:driver-set  update: to hold: libcuda" in output
    assert "silence" not in output, "of a failed task Ansible shows all of the result"


def test_a_drifted_scan_is_told_and_a_hook_that_fails_changes_nothing(run: Run) -> None:
    tell = run.tmp_path / "tell"
    tell.write_text('#!/bin/sh\ncat >"$1"\nexit 9\n')
    tell.chmod(0o755)
    hook = [str(tell), str(run.tmp_path / "heard")]
    run.play(kinds("clean"), PLAYBOOK, gb10_notify=hook)
    assert not (run.tmp_path / "heard").exists()
    alone, _ = run.play(kinds("clean", "drift", "away"), PLAYBOOK)
    rc, output = run.play(kinds("clean", "drift", "away"), PLAYBOOK, gb10_notify=hook)
    told = json.loads((run.tmp_path / "heard").read_text())
    assert (told["event"], told["hosts"]) == ("drift", ["spark-drift", "spark-away"])
    assert "hold:driver-set" in told["text"] and told["see"] == str(run.tmp_path / "evidence/drift/drift.json")
    assert rc == alone != 0 and "1 drifted" in output and "ended with status 9" in output


def test_a_job_of_awx_keeps_who_drifted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_SHOW_CUSTOM_STATS", "1")
    _, output = run.play(kinds("clean", "drift", "away"), PLAYBOOK)
    kept = output.partition("CUSTOM STATS")[2]
    assert "spark-drift" in kept and "spark-away" in kept and "spark-clean" not in kept, output


def test_a_tag_does_not_make_it_a_green_nothing(run: Run) -> None:
    rc, output = run.play(kinds("drift"), PLAYBOOK, "--tags", "fabric")
    assert rc == 2 and "1 drifted" in output


def test_the_playbook_passes_a_clean_fleet(run: Run) -> None:
    run.play(kinds("drift"), PLAYBOOK)
    assert run.list("drifted")
    rc, output = run.play(kinds("clean", "clean2"), PLAYBOOK, "-v", "-e", "gb10_recap=changed")
    assert rc == 0, output
    assert "drifted.txt is not written" in output
    assert run.list("drifted") is None
    assert output.count("spark-clean") and "spark-clean2 " not in output, "one task for all hosts"


def test_every_host_stands_in_the_recap_and_none_is_blamed_for_another(run: Run) -> None:
    fleet = ("clean", "drift", "new", "away", "key", "hangs", "nosudo", "garbled")
    play = [
        {**yaml.safe_load(task({"timeout_s": 2, "report_only": True}))[0]},
    ]
    play[0]["tasks"][0] |= {"register": "scan", "run_once": True}
    play[0]["tasks"].append({"gb10.fleet.drifted": {"record": "{{ scan.hosts[inventory_hostname] }}"}})
    rc, output = run.play(kinds(*fleet), yaml.safe_dump(play))
    assert rc == 4, output
    states = {"clean": "ok", "away": "unreachable", "key": "unreachable", "hangs": "unreachable"}
    assert recap(output) == {f"spark-{kind}": states.get(kind, "failed") for kind in fleet}
    rc, output = run.play(kinds("clean", "drift", "away"), PLAYBOOK)
    assert rc == 4 and recap(output) == {"spark-away": "unreachable", "spark-clean": "ok", "spark-drift": "failed"}
    rc, output = run.play(kinds("clean", "clean2"), PLAYBOOK)
    assert rc == 0 and recap(output) == {"spark-clean": "ok", "spark-clean2": "ok"}


def test_clean_hosts_can_be_left_out_of_the_recap(run: Run) -> None:
    rc, output = run.play(kinds("drift", "clean", "clean2"), PLAYBOOK, "-e", "gb10_recap=changed")
    assert rc == 2 and recap(output) == {"spark-drift": "failed"}, output


def test_the_scan_is_no_place_for_a_record_of_somebody_else(run: Run) -> None:
    play = [{"hosts": "sparks", "gather_facts": False, "tasks": [{"gb10.fleet.drifted": {"record": 5}}]}]
    rc, output = run.play(kinds("clean"), yaml.safe_dump(play))
    assert rc == 2 and "record: expected what gb10.fleet.drift says of this host" in output


def test_the_folder_is_that_of_the_evidence(run: Run) -> None:
    run.play(kinds("clean"), PLAYBOOK, gb10_evidence_directory="proofs")
    assert (run.tmp_path / "proofs/drift/drift.json").exists()


def test_clusters_stay_whole(run: Run) -> None:
    pair, other = {"gb10_cluster": "{{ 'p' ~ 1 }}"}, {"gb10_cluster": "p2"}
    hosts: dict[str, dict[str, Any]] = {"drift1": pair, "clean1": pair, "drift2": other, "away": other, "clean": {}}
    run.play(hosts, task())
    assert run.list("drifted") == ["spark-drift1", "spark-clean1"]


def test_a_report_does_not_fail_and_check_mode_writes_nothing(run: Run) -> None:
    rc, output = run.play(kinds("drift", "away"), task({"report_only": True}), "--check")
    assert rc == 0, output
    assert not (run.tmp_path / "evidence").exists()
    rc, output = run.play(kinds("drift", "away"), task({"report_only": True}))
    assert rc == 0 and run.list("drifted") == ["spark-drift"]


@pytest.mark.parametrize("become", [False, True])
def test_a_host_is_reached_as_by_any_task(run: Run, become: bool) -> None:
    own = {
        "ansible_user": "{{ 'la' ~ 'b' }}", "ansible_port": 2222,
        "ansible_ssh_private_key_file": "{{ inventory_dir }}/key",
        "ansible_ssh_common_args": "-o ProxyJump=jump -o 'UserKnownHostsFile=/a b'", "ansible_ssh_timeout": 7,
    }  # fmt: skip
    cfg = ["--ssh-extra-args", "-o Ciphers=x"]
    run.play(kinds("clean", **own), task(become=become), *cfg)
    scanned = run.argv("clean")
    run.play(kinds("clean", **own), task().replace("gb10.fleet.drift", "ansible.builtin.ping"), *cfg)
    assert run.argv("clean")[:-1] == scanned[:-1]
    assert {"Port=2222", 'User="lab"', f'IdentityFile="{run.tmp_path}/key"', "ProxyJump=jump"} < set(scanned)
    assert "StrictHostKeyChecking=no" not in scanned
    assert f"{sys.executable} -I -S -" in scanned[-1]
    assert scanned[-1].startswith("/bin/sh -c 'export LC_ALL=C; sudo -H -S -n ") is become


def test_a_host_that_cannot_be_asked_is_silent_and_the_others_are_asked(run: Run) -> None:
    hosts: dict[str, dict[str, Any]] = {
        "c": {"ansible_connection": "winrm"}, "d": {"ansible_port": "{{ nobody_defined_this }}"}, "clean": {},
    }  # fmt: skip
    rc, _ = run.play(hosts, task())
    assert rc == 2
    said = {name: host["silence"]["text"] for name, host in run.document["hosts"].items() if host["silence"]}
    words = {"c": "winrm", "d": "nobody_defined_this"}
    assert said.keys() == {f"spark-{kind}" for kind in words}
    for kind, word in words.items():
        assert word in said[f"spark-{kind}"]
    assert run.document["clean"] == 1


SUDO: dict[str, Any] = {"ansible_become": True}


def test_passwords_are_typed_where_a_host_needs_one(run: Run) -> None:
    """One of a host's own comes before the one of the run, and that one is for all others: the first host's is not."""
    (run.tmp_path / "become").write_text("of clean2\n")
    hosts: dict[str, dict[str, Any]] = {
        "clean1": {**SUDO, "ansible_become_password": "{{ 'of ' ~ 'clean1' }}"}, "clean2": SUDO,
        "nosudo": {**SUDO, "ansible_become_password": "not-his"},
        "clean3": {"ansible_password": "of-ssh"}, "clean4": {},
    }  # fmt: skip
    rc, output = run.play(hosts, task(), "-vvv", "--become-password-file", "become")
    assert rc == 2, output
    states = {name: host["state"] for name, host in run.document["hosts"].items()}
    silent = run.document["hosts"]["spark-nosudo"]["silence"]
    assert states == {f"spark-{kind}": "silent" if kind == "nosudo" else "clean" for kind in hosts}, silent
    assert silent["reason"] == "no_sudo" and "ncorrect sudo password" in silent["text"]
    assert "PasswordAuthentication=no" not in run.argv("clean3"), "ssh may ask for one"
    assert "PasswordAuthentication=no" in run.argv("clean4"), "another host's password is nobody else's"
    told = [output, *(path.read_text() for path in run.tmp_path.glob("argv-*"))]
    told += [path.read_text() for path in run.tmp_path.glob("environment-*")]
    assert not [word for word in ("of clean", "of-ssh", "not-his") if any(word in text for text in told)]


def test_a_host_that_hangs_behind_its_password_is_not_waited_for(run: Run) -> None:
    own = {**SUDO, "ansible_become_password": "of {{ ansible_host[5:] }}"}
    rc, _ = run.play(kinds("hangs", "clean", **own), task({"timeout_s": 3}))
    assert rc == 2
    assert run.document["hosts"]["spark-hangs"]["silence"]["reason"] == "timeout"
    assert run.document["clean"] == 1


def test_a_command_of_this_machine_gets_its_program_behind_a_password(run: Run) -> None:
    """Ansible's connection local would give it a terminal instead, from which no program comes."""
    sudo = run.tmp_path / "sudo"
    sudo.write_text("""#!/bin/bash
while [ "$1" != -p ]; do shift; done
printf '%s' "$2" >&2; read -r typed; [ "$typed" = secret ] || exit 1
shift 4; exec "$@"
""")
    sudo.chmod(0o755)
    own = {**SUDO, "ansible_connection": "local", "ansible_become_exe": str(sudo), "ansible_become_password": "secret"}
    run.play({"local": {**own, "ansible_become_user": "nobody"}}, task())
    host = run.document["hosts"]["spark-local"]
    assert host["state"] != "silent" or host["silence"]["reason"] == "error", host
    assert "status" not in ((host["silence"] or {}).get("text") or "")


@pytest.mark.parametrize(
    ("typed", "said", "in_english"),
    [
        ({}, "sudo: Ein Passwort ist notwendig", "sudo: a password is required"),
        (
            {"ansible_become_password": "x"},
            "sudo: 1 Fehlversuch bei der Passwort-Eingabe",
            "sudo: 1 incorrect password attempt",
        ),
    ],
)
def test_sudo_is_asked_in_english(
    run: Run, monkeypatch: pytest.MonkeyPatch, typed: dict[str, str], said: str, in_english: str
) -> None:
    """With the words of a real sudo on a host of the language German, or behind an SSH that brings a laptop's."""
    sudo = run.tmp_path / "sudo"
    sudo.write_text(f"""#!/bin/bash
for word; do
    [ "$before" != -p ] || {{ printf %s "$word" >&2; read -r typed; }}
    before=$word
done
[ "$LC_ALL" = C ] && echo '{in_english}' >&2 || echo '{said}' >&2
exit 1
""")
    sudo.chmod(0o755)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")  # one that is there in place of German
    own = {**SUDO, "ansible_connection": "local", "ansible_become_exe": str(sudo), "ansible_become_user": "nobody"}
    run.play({"local": {**own, **typed}}, task({"timeout_s": 20}))
    silence = run.document["hosts"]["spark-local"]["silence"]
    assert silence["reason"] == "no_sudo" and in_english in silence["text"]


def test_every_host_of_the_play_is_scanned_whatever_happened_before(run: Run) -> None:
    plays = yaml.safe_load(task())
    plays[0]["tasks"].insert(0, {"ansible.builtin.fail": {}, "when": "inventory_hostname == 'spark-clean2'"})
    run.play(kinds("clean", "clean2", "drift"), yaml.safe_dump(plays))
    assert list(run.document["hosts"]) == ["spark-clean", "spark-clean2", "spark-drift"]
    run.play(kinds("clean", "clean2", "drift"), task(), "--limit", "!spark-clean2")
    assert list(run.document["hosts"]) == ["spark-clean", "spark-drift"]


def test_this_machine_can_be_scanned_too(run: Run) -> None:
    """With the real program, through /bin/sh; what it answers depends on who runs this test."""
    run.play({"local": {"ansible_connection": "local"}}, task())
    host = run.document["hosts"]["spark-local"]
    assert host["state"] != "silent" or host["silence"]["reason"] == "error", host
    assert "status" not in ((host["silence"] or {}).get("text") or "")


@pytest.mark.parametrize("argument", ["concurrency", "timeout_s"])
def test_no_scan_without_time_or_hands(run: Run, argument: str) -> None:
    rc, output = run.play(kinds("clean"), task({argument: 0}))
    assert rc == 2 and f"{argument}: expected 1 or more, found 0" in output
    assert not (run.tmp_path / "input").exists()


def test_the_documentation_says_where_passwords_come_from() -> None:
    text = (Path(__file__).parents[3] / "plugins/modules/drift.py").read_text()
    assert "--become-password-file" in text and "not supported" not in text


def test_a_host_has_no_variable_looked_up_by_its_name(run: Run) -> None:
    """It says which consent it waits for: a variable that asks a password store, 10,000 times, held up the scan."""
    looked_up = run.tmp_path / "looked-up"
    secret = f"{{{{ lookup('ansible.builtin.pipe', 'echo x >>{looked_up}; echo true') }}}}"
    _, output = run.play({"curious": {"secret": secret, "site_allow_all": secret}}, PLAYBOOK)
    tally("a host has variables of its inventory looked up", 2, int(looked_up.exists()))
    assert not looked_up.exists() and run.document["drifted"] == ["spark-curious"], output
    assert "site_allow_all" not in output and "needs your consent" not in output
    assert "secret: true" not in output, "nor is a person asked to give it"
