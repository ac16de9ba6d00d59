"""The lab's processes are ended by their record, and nobody else's ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import cli, container, lifecycle, network, process, shell
from lab.architecture import AMD64
from lab.image import Image
from lab.shell import CHECKOUT, LabError
from lab.topology import topology

UNIT = CHECKOUT / "roles/gateway/templates/gb10-router.service.j2"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "pid.json"


def test_a_recorded_process_is_found_and_ended(record: Path, tmp_path: Path) -> None:
    number = process.start(["sleep", "60"], record, tmp_path / "log")
    assert process.pid(record) == number
    assert process.stop(record)
    assert process.pid(record) is None
    assert not record.exists()


def test_a_process_that_ignores_the_request_is_killed(record: Path, tmp_path: Path) -> None:
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    process.start([sys.executable, "-c", script], record, tmp_path / "log")
    while not (tmp_path / "log").read_bytes():
        pass
    assert process.stop(record, patience=0.1)
    assert process.pid(record) is None


@pytest.mark.parametrize("change", [{"ticks": 1}, {"boot": "another boot"}])
def test_a_pid_that_now_belongs_to_somebody_else_is_left_alone(
    record: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    number = process.start(["sleep", "60"], record, tmp_path / "log")
    record.write_text(json.dumps({**json.loads(record.read_text()), **change}))
    assert process.pid(record) is None
    assert not process.stop(record)
    os.kill(number, 0)  # still there
    os.kill(number, signal.SIGKILL)


def test_nothing_to_stop_is_no_error(record: Path) -> None:
    assert not process.stop(record)
    record.write_text("half a rec")
    assert not process.stop(record)


@pytest.fixture
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lifecycle, "STATE", tmp_path)
    monkeypatch.setattr(lifecycle, "MACHINE", tmp_path / "run")
    monkeypatch.setattr(container, "MOUNTS", Path(os.devnull))  # a lab that is up keeps its cgroups
    return tmp_path


def test_state_is_kept_between_commands(state_folder: Path) -> None:
    with lifecycle.state() as lab:
        lab.up["pair"] = 2
        lab.cut = [("spark-a", "p0")]
        lab.save()
    with lifecycle.state() as lab:
        assert lab.find("spark-b")[1].address == "198.18.7.12"
        assert lab.cut == [("spark-a", "p0")]


def test_after_a_reboot_of_this_machine_nothing_is_up(state_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lifecycle.state() as lab:
        lab.up["pair"] = 2
        lab.save()
    (state_folder / "hosts" / "spark-a").mkdir(parents=True)
    monkeypatch.setattr(lifecycle, "boot_id", lambda: "next boot")
    with lifecycle.state() as lab:
        assert lab.up == {}
    assert not (state_folder / "hosts").exists()


def test_hosts_of_a_lost_state_file_do_not_run_on(state_folder: Path, tmp_path: Path) -> None:
    host = state_folder / "hosts" / "spark-a"
    host.mkdir(parents=True)
    number = process.start(["sleep", "60"], host / "pid.json", tmp_path / "log")
    (state_folder / "state.json").write_text("{half")
    with lifecycle.state() as lab:
        assert lab.up == {}
    assert process._ticks(number) is None


def test_an_unknown_host_is_refused_with_the_known_ones(state_folder: Path) -> None:
    with lifecycle.state() as lab:
        lab.up["pair"] = 2
        with pytest.raises(LabError, match="hosts: spark-a, spark-b"):
            lab.find("spark-z")


def test_a_second_topology_of_machines_is_refused_but_a_fleet_is_not() -> None:
    lab = lifecycle.State("boot", up={"pair": 2})
    with pytest.raises(LabError, match="pair with 2 hosts is up already"):
        lifecycle._refuse_second(lab, topology("ring3"))
    lifecycle._refuse_second(lab, topology("pair"))
    lifecycle._refuse_second(lab, topology("fleet", 3))


def test_hosts_of_another_architecture_are_refused_for_the_server_has_the_packages_of_one() -> None:
    lab = lifecycle.State("boot", up={"pair": 2}, architecture="arm64")
    for other in (topology("pair"), topology("fleet", 3)):
        with pytest.raises(LabError, match=r"pair on arm64 is up already.*`down` ends it"):
            lifecycle._refuse_second(lab, other)
    lifecycle._refuse_second(lab, topology("pair", architecture="arm64"))


def test_the_architecture_is_kept_between_commands(state_folder: Path) -> None:
    with lifecycle.state() as lab:
        lab.up, lab.architecture = {"pair": 2}, "arm64"
        lab.save()
    with lifecycle.state() as lab:
        assert lab.find("spark-a")[0] == topology("pair", architecture="arm64")


@pytest.mark.parametrize(("words", "ended"), [(["down"], ""), (["down", "fleet"], "fleet")])
def test_down_ends_everything_or_what_is_named(words: list[str], ended: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(lifecycle, "down", asked.append)
    cli.dispatch(cli.parser().parse_args(words))
    assert asked == [ended]


def test_one_topology_ends_and_the_others_stay(
    state_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "clear", lambda: pytest.fail("the wires of the others were cut"))
    monkeypatch.setattr(lifecycle, "INVENTORY", tmp_path / "inventory")
    with lifecycle.state() as lab:
        lab.up, lab.cut = {"pair": 2, "fleet": 1}, [("spark-a", "p0")]
        lab.save()
    for host in ("spark-a", "spark-01"):
        (state_folder / "hosts" / host).mkdir(parents=True)
        process.start(["sleep", "60"], state_folder / "hosts" / host / "pid.json", tmp_path / "log")
    for name in ("pair", "fleet"):
        (tmp_path / "inventory" / name).mkdir(parents=True)
    lifecycle.down("fleet")
    assert process.pid(state_folder / "hosts/spark-a/pid.json") is not None
    assert not (state_folder / "hosts/spark-01").exists()
    assert [path.name for path in (tmp_path / "inventory").iterdir()] == ["pair"]
    with lifecycle.state() as lab:
        assert (lab.up, lab.cut) == ({"pair": 2}, [("spark-a", "p0")])
    process.stop(state_folder / "hosts/spark-a/pid.json")


def test_the_lock_is_the_machines_so_that_two_checkouts_wait_for_each_other(
    state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lifecycle.state():
        other = state_folder / "other"
        monkeypatch.setattr(lifecycle, "STATE", other)
        with (lifecycle.MACHINE / "lock").open("w") as lock, pytest.raises(BlockingIOError):
            lifecycle.fcntl.flock(lock, lifecycle.fcntl.LOCK_EX | lifecycle.fcntl.LOCK_NB)


def _record_of_this_process(record: Path) -> None:
    record.parent.mkdir(parents=True)
    known = {"pid": os.getpid(), "ticks": process._ticks(os.getpid()), "boot": process.boot_id()}
    record.write_text(json.dumps(known))


@pytest.mark.parametrize("record", ["server.json", "hosts/spark-a/pid.json"])
def test_the_lab_of_another_checkout_is_named_and_left_alone(
    state_folder: Path, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    monkeypatch.setattr(network, "clear", lambda: pytest.fail("somebody's wires were cut"))
    other = state_folder / "other"
    _record_of_this_process(other / lifecycle.STATE.name / record)
    lifecycle.MACHINE.mkdir()
    (lifecycle.MACHINE / "checkout").write_text(str(other))
    for command in (lifecycle.status, lifecycle.down, lambda: lifecycle.cut("spark-a", "p0")):
        with pytest.raises(LabError, match=f"the lab of {other} is up on this machine"):
            command()


def test_a_lab_of_which_nothing_runs_any_more_gives_way(
    state_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cleared: list[bool] = []
    monkeypatch.setattr(network, "clear", lambda: cleared.append(True))
    other = state_folder / "other"
    record = other / lifecycle.STATE.name / "hosts" / "spark-a" / "pid.json"
    _record_of_this_process(record)
    record.write_text(json.dumps(json.loads(record.read_text()) | {"ticks": 1}))  # a PID that is somebody else's now
    lifecycle.MACHINE.mkdir()
    (lifecycle.MACHINE / "checkout").write_text(str(other))
    lifecycle.status()
    assert cleared == [True]
    assert f"nothing of the lab of {other} runs any more" in capsys.readouterr().out
    assert not (lifecycle.MACHINE / "checkout").exists()


def test_up_says_whose_lab_it_is_before_it_makes_anything(state_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(*_: object) -> None:
        assert (lifecycle.MACHINE / "checkout").read_text() == str(lifecycle.CHECKOUT)
        raise LabError("far enough")

    monkeypatch.setattr(lifecycle.images, "vendor_tree", lambda _: None)
    monkeypatch.setattr(lifecycle.images, "build", lambda *_: None)
    monkeypatch.setattr(network, "prepare", prepare)
    with pytest.raises(LabError, match="far enough"):
        lifecycle.up("pair", 0)


def test_down_gives_the_machine_free_for_other_checkouts(state_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "clear", lambda: None)
    lifecycle.MACHINE.mkdir()
    (lifecycle.MACHINE / "checkout").write_text(str(lifecycle.CHECKOUT))
    lifecycle.down()
    assert not (lifecycle.MACHINE / "checkout").exists()


@pytest.fixture
def knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(container, "KNOBS", tmp_path)
    (tmp_path / "max_user_instances").write_text("128\n")
    (tmp_path / "max_user_watches").write_text("1000000\n")
    return tmp_path


def test_down_restores_the_inotify_limits_that_it_raised_and_no_others(
    knobs: Path, state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "clear", lambda: None)
    lifecycle.MACHINE.mkdir()
    for _ in range(2):  # a second fleet must not take the raised value for this machine's own
        container.raise_limits(lifecycle.MACHINE / "inotify.json")
    assert (knobs / "max_user_instances").read_text() == "8192"
    lifecycle.down()
    assert [int((knobs / name).read_text()) for name in container.INOTIFY] == [128, 1000000]
    assert not (lifecycle.MACHINE / "inotify.json").exists()


def test_a_limit_that_somebody_changed_since_is_left_alone(knobs: Path, tmp_path: Path) -> None:
    container.raise_limits(tmp_path / "record")
    (knobs / "max_user_instances").write_text("9000")
    container.restore_limits(tmp_path / "record")
    assert (knobs / "max_user_instances").read_text() == "9000"


@pytest.mark.parametrize(
    ("mounts", "trees"),
    [
        ("cgroup2 {} cgroup2 rw 0 0\n", ["unified"]),
        ("cgroup {} cgroup rw,cpu 0 0\ncgroup {} cgroup rw,name=systemd 0 0\ncgroup2 {} cgroup2 rw 0 0\n",
         ["systemd", "unified"]),
    ],
)  # fmt: skip
def test_each_container_has_cgroups_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: str, trees: list[str]
) -> None:
    lines = mounts.splitlines()
    names = ["cpu", *trees][-len(lines) :]
    table = "".join(f"{line.format(tmp_path / name)}\n" for line, name in zip(lines, names, strict=True))
    (tmp_path / "mounts").write_text(table)
    monkeypatch.setattr(container, "MOUNTS", tmp_path / "mounts")
    groups = container.cgroups("spark-01") + container.cgroups("spark-02")
    assert {str(group.relative_to(tmp_path)) for group in groups} == {
        f"{tree}/{container.CGROUP}/{host}" for tree in trees for host in ("spark-01", "spark-02")
    }
    (groups[0] / "payload/system.slice").mkdir(parents=True)
    (groups[-1] / "busy").touch()  # stands for a cgroup that the kernel does not remove
    container.remove_cgroups()
    assert not groups[0].exists() and groups[-1].exists()


def a_container(
    folder: Path, monkeypatch: pytest.MonkeyPatch, files: int = 2**20
) -> tuple[container.Container, list[str]]:
    """A new one on a machine that grants a process so many files, and the words that would start it."""
    words: list[str] = []
    monkeypatch.setattr(container, "MOUNTS", Path(os.devnull))
    monkeypatch.setattr(container.identity, "write", lambda upper, host: upper.mkdir())
    monkeypatch.setattr(container.process, "start", lambda argv, record, log: words.extend(argv))
    monkeypatch.setattr(container.resource, "getrlimit", lambda what: (1024, files))
    Image("digest", (folder / "spark", folder / "debian"), AMD64).save(folder / "image.json")
    return container.Container(topology("fleet", 1).hosts[0], folder), words


def test_a_container_sees_what_it_is_shown_also_after_it_was_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, words = a_container(tmp_path, monkeypatch)
    made.load(["/opt/a", "/opt/b c"])
    assert "--bind-ro=/opt/a '--bind-ro=/opt/b c'" in words[-1]
    words.clear()
    made.power_on()
    assert "--bind-ro=/opt/a '--bind-ro=/opt/b c'" in words[-1]


@pytest.mark.parametrize(("files", "fewer"), [(20_000, True), (container.FILES, False)])
def test_a_router_has_fewer_connections_where_a_process_may_have_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, fewer: bool
) -> None:
    made, _ = a_container(tmp_path, monkeypatch, files)
    made.load()
    written = tmp_path / "layer" / container.ROUTER
    assert written.exists() == fewer
    if fewer:  # else as the role has it
        (ours,) = (line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart="))
        assert written.read_text().splitlines()[-1].replace(f" -n {container.CONNECTIONS}", "") == ours


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [("pair", "/opt", "has machines"), ("fleet", "opt", "from the root"), ("fleet", "/no/such/path", "that is there")],
)
def test_what_cannot_be_shown_is_refused(name: str, path: str, said: str) -> None:
    with pytest.raises(LabError, match=said):
        lifecycle.up(name, 1, [Path(path)])


@pytest.fixture(autouse=True)
def fixture_sigpipe() -> Iterator[None]:
    """`status` takes the system's own way with SIGPIPE, which would end this process in a later test."""
    before = signal.getsignal(signal.SIGPIPE)
    yield
    signal.signal(signal.SIGPIPE, before)


def test_status_ends_quietly_when_its_reader_leaves() -> None:
    script = (
        "from lab import cli, lifecycle; cli.require_root = lambda: None;"
        "lifecycle.status = lambda: print('x' * 10**6, flush=True); cli.main(['status'])"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, cwd=lifecycle.CHECKOUT, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli.main(["status"]) == 1
    assert "needs root" in capsys.readouterr().err


class TestWithoutQemu:
    """Somebody removed the lab's packages while its machines run: what needs none of them goes on working."""

    @pytest.fixture(autouse=True)
    def removed(self, state_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shell, "TOOLS", {"no-such-tool": "qemu-utils"})
        monkeypatch.setattr(shell.os, "geteuid", lambda: 0)
        monkeypatch.setattr(network, "clear", lambda: None)

    def test_status_answers(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["status"]) == 0
        assert "nothing is up" in capsys.readouterr().out

    def test_down_ends_the_hosts(self, state_folder: Path, tmp_path: Path) -> None:
        host = state_folder / "hosts" / "spark-a"
        host.mkdir(parents=True)
        number = process.start(["sleep", "60"], host / "pid.json", tmp_path / "log")
        assert cli.main(["down"]) == 0
        assert process._ticks(number) is None

    def test_ssh_becomes_ssh(self, monkeypatch: pytest.MonkeyPatch) -> None:
        became: list[str] = []
        monkeypatch.setattr(lifecycle.os, "execvp", lambda program, argv: became.extend(argv))
        with lifecycle.state() as lab:
            lab.up["pair"] = 2
            lab.save()
        assert cli.main(["ssh", "spark-a", "true"]) == 0
        assert became[0] == "ssh" and became[-2:] == ["spark@198.18.7.11", "true"]

    def test_without_ssh_it_is_ssh_that_is_named(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(lifecycle.shutil, "which", lambda _: None)
        with lifecycle.state() as lab:
            lab.up["pair"] = 2
            lab.save()
        assert cli.main(["ssh", "spark-a", "true"]) == 1
        assert "ssh is not installed; `python3 -m lab deps`" in capsys.readouterr().err

    @pytest.mark.parametrize("words", [["up", "pair"], ["image"]])
    def test_what_builds_or_boots_says_which_package_is_missing(
        self, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(words) == 1
        said = capsys.readouterr().err
        assert "missing Debian packages: " in said and "qemu-utils" in said


def test_a_program_that_is_not_there_is_named_with_the_way_to_it() -> None:
    with pytest.raises(LabError, match="no-such-program is not installed; `python3 -m lab deps`"):
        shell.run(["no-such-program"])


class TestHostThatWaits:
    """Its unit waits for another host, which is off."""

    host = topology("pair", 2, "amd64").hosts[1]

    @pytest.fixture(autouse=True)
    def _waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def remote(_host: object, line: str) -> subprocess.CompletedProcess[str]:
            if line.startswith("timeout "):
                return subprocess.CompletedProcess([], 124, "", "")
            jobs = "233 gb10-vllm.service start running\n1   multi-user.target start waiting\n"
            return subprocess.CompletedProcess([], 0, jobs if "list-jobs" in line else "starting\n", "")

        monkeypatch.setattr(lifecycle, "_remote", remote)
        monkeypatch.setattr(lifecycle, "_running", lambda _host: True)

    def test_it_is_on_and_what_it_still_starts_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        lifecycle.wait_booted(self.host, 1, whole=False)
        assert "spark-b answers; still starting: gb10-vllm.service, multi-user.target" in capsys.readouterr().out

    def test_a_host_that_is_new_has_booted_when_all_has_started(self) -> None:
        with pytest.raises(LabError, match="spark-b did not boot in 1 s"):
            lifecycle.wait_booted(self.host, 1, whole=True)
