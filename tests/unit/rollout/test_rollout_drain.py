"""What a rollout does with a model around its work: fetch.yml, drain.yml and serve.yml, where systemctl is made up."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.attacker import tally
from tests.support.plays import Plays
from tests.support.rig import ROOT

# Keeps a unit's state in a file of the host, and notes what changed it. A host with a file `door` has a service that
# starts when asked, whose socket waits.
SYSTEMCTL = """#!/bin/bash
cd "$GB10_TEST_HOST"
read -r active enabled < unit
case "$*" in
  *list-units*) echo "gb10-vllm.service loaded $active x vLLM"
    [ ! -e door ] || echo "$(<door) loaded active listening Waits";;
  *sockets.target*) echo "dbus.socket docker.socket" $([ ! -e door ] || cat door);;
  *show*gb10-wake@*) printf 'LoadState=loaded\\nActiveState=%s\\n' $([ -e closed ] && echo inactive || echo active);;
  *stop*gb10-wake@*) echo close >>done; touch closed;;
  *start*gb10-wake@*) echo open >>done; rm closed;;
  *list-unit-files*) echo "gb10-vllm.service $enabled enabled";;
  *is-active*) echo "$active"; [ "$active" = active ] || exit 3;;
  *is-enabled*) echo "$enabled"; [ "$enabled" = enabled ] || exit 1;;
  *show*) printf 'LoadState=loaded\\nActiveState=%s\\nSubState=x\\nUnitFileState=%s\\n' "$active" "$enabled";;
  reset-failed*) echo reset-failed >>done;;
  kill*SIGUSR1*) echo announce >>done;;
  *stop*) echo stop >>done; echo "inactive $enabled" >unit;;
  *start*) echo start >>done; echo "active $enabled" >unit;;
esac
"""
UNITS = {
    "serving": "active enabled", "loading": "activating enabled", "stopped": "inactive enabled",
    "masked": "inactive masked", "other": "active enabled", "mate": "inactive enabled", "once": "inactive enabled",
}  # fmt: skip


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plays:
    made = Plays(tmp_path)
    for host, unit in UNITS.items():
        made.host(host)
        (tmp_path / "hosts" / host / "unit").write_text(f"{unit}\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL)
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return made


def test_a_model_that_runs_is_stopped_and_started_where_it_is_enabled_and_its_cluster_is_there(plays: Plays) -> None:
    """All but `other` have the role vllm; of the cluster of `mate`, `once` answers once, so the model stays stopped."""
    hosts = {host: {"ansible_host": f"kind-{host}", "gb10_roles": ["vllm"]} for host in UNITS}
    hosts["other"]["gb10_roles"] = ["docker"]
    hosts["mate"]["gb10_cluster"] = hosts["once"]["gb10_cluster"] = "pair"
    (plays.tmp_path / "pair.yml").write_text("pair: {hosts: {mate: {}, once: {}}}\n")
    play = [{"ansible.builtin.import_playbook": f"gb10.fleet.{name}"} for name in ("drain", "serve")]
    _, output = plays.play(hosts, play, "-i", "pair.yml", ansible_become=False)
    assert "once                       : ok=1" in output, output
    notes = {host: plays.tmp_path / "hosts" / host / "done" for host in UNITS}
    assert {host: file.read_text().split() for host, file in notes.items() if file.exists()} == {
        "serving": ["announce", "stop", "reset-failed", "reset-failed", "start"],
        "loading": ["announce", "stop", "reset-failed", "reset-failed", "start"],
        "stopped": ["reset-failed", "start"],
    }  # fmt: skip


def test_no_request_starts_a_service_while_its_host_changes(plays: Plays) -> None:
    """The socket of one that sleeps is closed before anything stops, and opened before the others start."""
    (plays.tmp_path / "hosts/serving/door").write_text("gb10-wake@vllm-embed.socket\n")
    play = [{"ansible.builtin.import_playbook": f"gb10.fleet.{name}"} for name in ("drain", "serve")]
    rc, output = plays.play({"serving": {"ansible_host": "kind-serving"}}, play, ansible_become=False)
    assert rc == 0, output
    done = (plays.tmp_path / "hosts/serving/done").read_text().split()
    assert done == ["close", "announce", "stop", "reset-failed", "open", "reset-failed", "start"], output


@pytest.mark.parametrize(
    ("name", "refused"), [("vllm", False), ("embed", False), ("embde", True)], ids=["short", "entry", "mistyped"]
)
def test_a_fetch_for_a_service_that_nobody_declares_is_refused_before_a_host_is_asked(
    plays: Plays, name: str, refused: bool
) -> None:
    hosts = {host: {"ansible_host": f"kind-{host}", "gb10_roles": ["docker"]} for host in ("stopped", "other")}
    hosts["other"] |= {"vllm_model": "m", "vllm_services": {"embed": {"model": "e"}}}
    play = [{"ansible.builtin.import_playbook": "gb10.fleet.fetch"}]
    words = ["-e", json.dumps({"gb10_ahead": True, "gb10_ahead_of": name})]
    rc, output = plays.play(hosts, play, *words, ansible_become=False)
    assert bool(rc) is refused, output
    assert ("no service is called embde on these hosts; the inventory has vllm, embed" in output) is refused, output


FLEET = {
    "gateway_keys": {"laptop": "a" * 40}, "gateway_plain_http": True, "gateway_fleet_key": "f" * 40, "vllm_model": "m",
}  # fmt: skip


def _behind_routers() -> dict[str, dict[str, Any]]:
    """`serving`, which three other hosts offer."""
    hosts: dict[str, dict[str, Any]] = {
        name: {"ansible_host": f"kind-{name}", "gateway_address": f"192.0.2.{number}", **FLEET}
        for number, name in enumerate(("serving", "away", "masked", "other"), 1)
    }
    for name in ("away", "masked", "other"):
        hosts[name]["gateway_fleet"] = ["serving"]
    return hosts


def test_the_routers_of_the_fleet_let_go_of_a_replica_first_and_take_it_back_last(plays: Plays) -> None:
    """`other` has the router; `masked` has none, and `stopped` is in a fleet of nobody."""
    hosts = {name: {"ansible_host": f"kind-{name}", **FLEET} for name in ("serving", "other", "masked", "stopped")}
    for number, host in enumerate(hosts.values(), 1):
        host["gateway_address"] = f"192.0.2.{number}"
    hosts["other"]["gateway_fleet"] = ["serving", "masked"]
    program = plays.tmp_path / "bin/gb10-router"
    program.write_text('#!/bin/sh\ncd "$GB10_TEST_HOST"; echo "router $*" | tr " " - >>done\n')
    program.chmod(0o755)
    play = [{"ansible.builtin.import_playbook": f"gb10.fleet.{it}"} for it in ("withdraw", "drain", "serve", "rejoin")]
    _, output = plays.play(hosts, play, "--limit", "serving,stopped", ansible_become=False)
    notes = {host: plays.tmp_path / "hosts" / host / "done" for host in hosts}
    # All hosts of a wave are told to every router that offers one of them; which it does not know, it leaves alone.
    asked = ["router-drain-serving", "router-drain-stopped"]
    back = ["router-ready-serving", "router-ready-stopped"]
    said = {host: file.read_text() for host, file in notes.items() if file.exists()}
    within = [int(seconds) for seconds in re.findall(r"--wait-(\d+)", said["other"])]
    assert len(within) == 2 and all(60 <= seconds <= 600 for seconds in within), "one time for all of them"
    assert {host: sorted(re.sub(r"(--wait)-\d+", r"\1", text).split()) for host, text in said.items()} == {
        "other": sorted([*asked, *(f"{each}---wait" for each in asked), *back]),
        "serving": sorted(["announce", "stop", "reset-failed", "reset-failed", "start"]),
        "stopped": ["reset-failed", "start"],
    }, output  # fmt: skip


def test_a_router_that_does_not_take_a_host_back_is_named_and_the_others_are_asked(plays: Plays) -> None:
    """`away` cannot be reached, `masked` answers with an error of its own, and `other` has no such router yet."""
    hosts = _behind_routers()
    program = plays.tmp_path / "bin/gb10-router"
    program.write_text(
        '#!/bin/sh\ncd "$GB10_TEST_HOST"; echo asked >>done\ncase $PWD in *masked) exit 1;; esac; exit 2\n'
    )
    program.chmod(0o755)
    play = [{"ansible.builtin.import_playbook": "gb10.fleet.rejoin"}]
    rc, output = plays.play(hosts, play, "--limit", "serving", ansible_become=False)
    assert rc == 2, output
    assert "serving gets no requests from the router of away, masked, which did not take it back" in output
    assert [(plays.tmp_path / "hosts" / name / "done").read_text() for name in ("masked", "other")] == ["asked\n"] * 2


@pytest.mark.parametrize("bad", ["away", "masked", "stalls"])
def test_a_router_that_does_not_let_go_ends_a_wave_by_its_own_name_and_nothing_is_stopped(
    plays: Plays, bad: str
) -> None:
    """`away` cannot be reached: the host of the wave was `unreachable` then, and nobody named the router."""
    hosts = {name: host for name, host in _behind_routers().items() if name in ("serving", "other", bad)}
    if bad == "stalls":
        hosts[bad] = {**hosts["other"], "ansible_host": "kind-loading", "gateway_address": "192.0.2.9"}
    program = plays.tmp_path / "bin/gb10-router"
    program.write_text(
        '#!/bin/sh\ncd "$GB10_TEST_HOST"; echo "$*" >>done; case $PWD in *masked) exit 1;; *loading) sleep 60;; esac\n'
    )
    program.chmod(0o755)
    (withdraw,) = yaml.safe_load((ROOT / "playbooks/withdraw.yml").read_text())
    withdraw["tasks"][1]["timeout"] = 3
    play = [withdraw, {"ansible.builtin.import_playbook": "gb10.fleet.drain"}]
    rc, output = plays.play(hosts, play, "--limit", "serving", ansible_become=False)
    said = " ".join(output.split())
    wrong = f"serving: the router of {bad} did not let go of it, so it was not stopped" not in said
    tally("a router that does not let go, and another host is blamed", 1, int(wrong or "unreachable=1" in said))
    assert rc == 2 and not wrong and "unreachable=0" in said, output
    assert not (plays.tmp_path / "hosts/serving/done").exists()
    assert (plays.tmp_path / "hosts/other/done").read_text() == "drain serving\nready serving\n"


def test_a_router_that_lets_go_of_half_a_cluster_ends_no_model(plays: Plays) -> None:
    program = plays.tmp_path / "bin/gb10-router"
    program.write_text('#!/bin/sh\ncase "$*" in "drain serving"*) exit 1;; esac\n')
    program.chmod(0o755)
    hosts = {name: host for name, host in _behind_routers().items() if name in ("serving", "other")}
    hosts["loading"] = {**hosts["serving"], "ansible_host": "kind-loading", "gateway_address": "192.0.2.9"}
    inventory = {name: {**host, "gb10_cluster": "pair"} if name != "other" else host for name, host in hosts.items()}
    (withdraw,) = yaml.safe_load((ROOT / "playbooks/withdraw.yml").read_text())
    (plays.tmp_path / "pair.yml").write_text("pair: {hosts: {serving: {}, loading: {}}}\n")
    play = [withdraw, {"ansible.builtin.import_playbook": "gb10.fleet.drain"}]
    limit = ("-i", "pair.yml", "--limit", "serving,loading")
    rc, output = plays.play(inventory, play, *limit, ansible_become=False)
    stopped = [name for name in ("serving", "loading") if (plays.tmp_path / "hosts" / name / "done").exists()]
    tally("a router that lets go of half a cluster, and the model ends", 1, int(bool(stopped)))
    said = [f"{name}: the router of other did not let go of pair" in output for name in ("serving", "loading")]
    assert rc == 2 and not stopped and all(said), output


@pytest.mark.parametrize(("state", "fault"), [("stopped", "let go of it"), ("started", "take it back")])
def test_a_router_that_does_not_obey_keeps_no_service_from_its_stop_or_start(
    plays: Plays, state: str, fault: str
) -> None:
    """`masked` answers with an error, and `away` cannot be reached: both ended there for all, and swap went back."""
    hosts = _behind_routers()
    program = plays.tmp_path / "bin/gb10-router"
    program.write_text('#!/bin/sh\ncd "$GB10_TEST_HOST"; echo "$*" >>done\ncase $PWD in *masked) exit 1;; esac\n')
    program.chmod(0o755)
    (play,) = yaml.safe_load((ROOT / "playbooks/wish.yml").read_text())
    works = {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} came to the end"}}
    play["tasks"] = [*(task for task in play["tasks"] if "router" in str(task)), works]
    before = {"services": [{"name": "vllm", "served_name": "m"}]}
    asked = json.dumps({"gb10_wish": {"service": "vllm", "state": state}, "__wish_before": before})
    rc, output = plays.play(hosts, [play], "--limit", "serving", "-e", asked, ansible_become=False)
    tally("a host of a router that ends a stop or a start of others", 1, int(rc != 0))
    assert rc == 0 and "serving came to the end" in output, output
    assert f"serving: the router of away, masked did not {fault}" in " ".join(output.split()), output
    done = {name: (plays.tmp_path / "hosts" / name / "done").read_text().splitlines() for name in ("masked", "other")}
    said = "drain serving --model m" if state == "stopped" else "ready serving --model m"
    assert done["masked"] == [said] and done["other"][0] == said
    if state == "stopped":
        (waited,) = done["other"][1:]
        assert waited.startswith(f"{said} --wait ") and 0 < int(waited.split()[-1]) <= 600


@pytest.mark.parametrize("play", ["withdraw", "rejoin"])
def test_a_router_that_says_much_fills_no_memory(plays: Plays, play: str) -> None:
    """Each host asks it by itself, and Ansible keeps each answer, as text and as lines: 1.7 GB for 12 hosts."""
    program = plays.tmp_path / "bin/gb10-router"
    program.write_text("#!/bin/sh\nseq 100000; seq 1000 >&2; exit 2\n")
    program.chmod(0o755)
    said = {"withdraw": "__withdraw_asked.results + __withdraw_waited.results", "rejoin": "__rejoin_asked.results"}
    told = {"ansible.builtin.debug": {"msg": f"kept {{{{ ({said[play]}) | map('to_json') | map('length') | max }}}}"}}
    (asks,) = yaml.safe_load((ROOT / f"playbooks/{play}.yml").read_text())
    asks["tasks"].append(told)
    hosts = {name: host for name, host in _behind_routers().items() if name in ("serving", "other")}
    _, output = plays.play(hosts, [asks], "--limit", "serving", ansible_become=False)
    (kept,) = re.findall(r"kept (\d+)", output)
    tally("a router that answers each host with megabytes", 1, int(int(kept) > 20_000))
    assert int(kept) < 20_000


def test_of_all_that_each_host_asks_a_router_only_the_status_is_kept() -> None:
    asked = [
        task
        for file in (ROOT / "playbooks").glob("*.yml")
        for play in yaml.safe_load(file.read_text())
        for task in play.get("tasks", [])
        if "gb10-router" in str(task.get("ansible.builtin.command"))
    ]
    assert len(asked) == 7 and all(task["vars"]["__gb10_brief"] is True for task in asked)


# Has the images in the file of that name. Notes what changed it.
DOCKER = """#!/bin/bash
cd "$GB10_TEST_HOST"
case "$*" in
  "image inspect"*) grep -qsx "${*: -1}" images || exit 1
    echo '[{"RootFS": {"Layers": []}, "Size": 1, "Architecture": "arm64"}]';;
  pull*) echo "connection refused" >&2; exit 1;;
  tag*) echo tag >>done; echo "${*: -1}" >>images;;
  *) echo "$*" >>done;;
esac
"""
FETCHED = ["tag", "announce", "stop", "reset-failed"]


@pytest.mark.parametrize(
    ("unit", "there", "does"),
    [
        ("active enabled", True, FETCHED),  # down for its load, and not for a download
        ("inactive enabled", True, []),  # nothing waits: converge.yml fetches, when Docker is there
        ("active enabled", False, []),  # and what cannot be fetched takes nothing down
    ],
)
def test_image_and_model_are_fetched_before_the_drain(plays: Plays, unit: str, there: bool, does: list[str]) -> None:
    (plays.tmp_path / "bin/docker").write_text(DOCKER)
    (plays.tmp_path / "bin/docker").chmod(0o755)
    host = plays.tmp_path / "hosts/serving"
    (host / "unit").write_text(f"{unit}\n")
    (host / "images").write_text(f"i@sha256:{'0' * 64}\n" if there else "")
    play = [{"ansible.builtin.import_playbook": f"gb10.fleet.{name}"} for name in ("fetch", "drain")]
    hosts = {"serving": {"ansible_host": "kind-serving", "gb10_roles": ["vllm"]}}
    rc, output = plays.play(hosts, play, ansible_become=False, vllm_fetch=False)
    assert (rc == 0) is there, output
    done = host / "done"
    assert (done.read_text().split() if done.exists() else []) == does, output
