"""What the commands do: bring topologies up and down, cut cables, pull plugs.

`.lab/state.json` says what was asked for; whether a host runs is always asked of its process. The networks' names and
addresses are this machine's, so whose lab it is and the lock on it lie in /run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lab import identity, network, process
from lab import image as images
from lab.architecture import ARCHITECTURES
from lab.container import Container, raise_limits, remove_cgroups, restore_limits
from lab.inventory import render, ssh_options
from lab.machine import Machine, set_links
from lab.shell import CHECKOUT, STATE, LabError, boot_id, not_installed, say, step
from lab.topology import GATEWAY, PORTS, SERVER_PORT, Host, Topology, carrier, topology
from lab.vendor import VendorTree

MACHINE = Path("/run/gb10-lab")  # lock, checkout (whose lab is up), inotify.json
INVENTORY = CHECKOUT / "inventory" / "lab"
GPU_SCENARIOS = ("idle", "loaded", "throttled", "hung", "absent")
BOOT_S = 1200  # of a machine: an emulated CPU of another architecture took 300 s on a busy machine
STILL_S = 60  # from the first answer over SSH until all units have started: a healthy boot is through by then
ENDED_BY_TIMEOUT = 124  # the exit status of timeout(1)
Cut = tuple[str, str]


@dataclass
class State:
    boot: str
    up: dict[str, int] = field(default_factory=dict)  # topology -> its number of hosts
    cut: list[Cut] = field(default_factory=list)
    tree: str = ""  # what the server serves
    shown: list[str] = field(default_factory=list)  # paths of this machine that containers see, read-only
    architecture: str = "amd64"  # of all hosts: the server has the packages of one

    @property
    def plans(self) -> list[Topology]:
        return [topology(name, hosts, self.architecture) for name, hosts in self.up.items()]

    def find(self, name: str) -> tuple[Topology, Host]:
        for plan in self.plans:
            for host in plan.hosts:
                if host.name == name:
                    return plan, host
        known = ", ".join(host.name for plan in self.plans for host in plan.hosts) or "none; `up` first"
        raise LabError(f"no host {name!r} in this lab; hosts: {known}")

    def save(self) -> None:
        (STATE / "state.json").write_text(json.dumps(asdict(self), indent=2) + "\n")


@contextlib.contextmanager
def state() -> Iterator[State]:
    """The lab's state, for one command at a time. After this machine's reboot nothing of it is left."""
    STATE.mkdir(exist_ok=True)
    MACHINE.mkdir(exist_ok=True)
    with (MACHINE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # on standard error: what `ssh` prints is the host's answer
            print(
                "lab: another lab command is at work on this machine; waiting for it ...", file=sys.stderr, flush=True
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        _refuse_other_checkout()
        yield _load()


def _refuse_other_checkout() -> None:
    """Its hosts would share names and addresses with ours.

    A lab of which no process lives is over, whatever its checkout's files say: whoever ran it was killed, this machine
    was restarted or copied, or the checkout was deleted and could no longer end it. Only its wires may be left.
    """
    with contextlib.suppress(FileNotFoundError):
        owner = Path((MACHINE / "checkout").read_text())
        if owner == CHECKOUT:
            return
        records = [owner / STATE.name / "server.json", *(owner / STATE.name / "hosts").glob("*/pid.json")]
        if any(process.pid(record) for record in records):
            raise LabError(f"the lab of {owner} is up on this machine; end it there with `python -m lab down`")
        say(f"nothing of the lab of {owner} runs any more; taking its place")
        network.clear()
        (MACHINE / "checkout").unlink()


def _load() -> State:
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        known = State(**json.loads((STATE / "state.json").read_text()))
        if known.boot == boot_id():
            known.cut = [(host, port) for host, port in known.cut]
            return known
        say("this machine was rebooted since; forgetting the hosts of then")
    _end_hosts()
    return State(boot_id())


def up(name: str, hosts: int, shown: Sequence[Path] = (), architecture: str = "amd64") -> None:
    try:
        plan = topology(name, hosts, architecture)
    except ValueError as error:
        raise LabError(str(error)) from error
    _refuse_shown(plan, shown)
    with state() as lab:
        _refuse_second(lab, plan)
        tree = images.vendor_tree(ARCHITECTURES[architecture])
        image = images.build(tree, plan.hosts[0].kind)
        (MACHINE / "checkout").write_text(str(CHECKOUT))
        lab.up[plan.name] = len(plan.hosts)
        lab.architecture = architecture
        lab.shown = [str(path) for path in shown] or lab.shown
        lab.save()
        for host in plan.hosts:
            if not _ready(host).exists():  # new, or left half-made by a run that was stopped
                _forget(host)
        idle = [host for host in plan.hosts if not _running(host)]
        network.prepare(plan, idle)
        _serve(lab, tree)
        _write_known_hosts(lab)
        with step(f"Starting {len(idle)} of {len(plan.hosts)} hosts"):
            _start(lab, plan, idle, image)
        _write_inventory(plan, tree)
    say(f"{plan.name} is up: {', '.join(f'{host.name} {host.address}' for host in plan.hosts[:4])}" + _more(plan))
    say(f"inventory: {(INVENTORY / plan.name / 'hosts.yml').relative_to(CHECKOUT)}; a shell: python -m lab ssh HOST")


def _refuse_shown(plan: Topology, shown: Sequence[Path]) -> None:
    if shown and plan.hosts[0].kind != "container":
        raise LabError(f"--show is for containers, and {plan.name} has machines; leave it out")
    for path in shown:
        if not (path.is_absolute() and path.exists() and ":" not in str(path)):
            raise LabError(f"--show {path}: name a path that is there, from the root, without a colon")


def _more(plan: Topology) -> str:
    return f" and {len(plan.hosts) - 4} more" if len(plan.hosts) > 4 else ""


def _refuse_second(lab: State, plan: Topology) -> None:
    """Machines and a fleet of containers get along; two topologies of one kind would share names and addresses."""
    if lab.up and lab.architecture != plan.architecture:
        raise LabError(
            f"{', '.join(lab.up)} on {lab.architecture} is up already, and hosts have one architecture; `down` ends it"
        )
    for other in lab.plans:
        if other != plan and other.hosts[0].kind == plan.hosts[0].kind:
            raise LabError(f"{other.name} with {len(other.hosts)} hosts is up already; `down` ends it")


def down(name: str = "") -> None:
    """Ends everything, or one topology and leaves the others as they are."""
    with state() as lab:
        if name and lab.up.keys() - {name}:
            _end_one(lab, name)
            return
        _end_hosts()
        process.stop(STATE / "server.json")
        network.clear()
        restore_limits(MACHINE / "inotify.json")
        remove_cgroups()
        for name in lab.up:
            shutil.rmtree(INVENTORY / name, ignore_errors=True)
        State(boot_id()).save()
        (MACHINE / "checkout").unlink(missing_ok=True)
    say("the lab is down")


def _end_one(lab: State, name: str) -> None:
    """The wires stay: the next `up` makes those of its hosts anew."""
    for plan in lab.plans:
        if plan.name == name:
            _each(plan.hosts, _forget)
            lab.cut = [(host, port) for host, port in lab.cut if host not in {it.name for it in plan.hosts}]
    lab.up.pop(name, None)
    lab.save()
    shutil.rmtree(INVENTORY / name, ignore_errors=True)
    say(f"{name} is down; up: {', '.join(lab.up)}")


def status() -> None:
    with state() as lab:
        if not lab.up:
            say("nothing is up; start with `python -m lab up pair`")
        for plan in lab.plans:
            running = {host.name for host in plan.hosts if _running(host)}
            say(f"{plan.name}: {len(running)} of {len(plan.hosts)} hosts run")
            for host in plan.hosts:
                links = "" if host.kind == "container" else "  ".join(_port(lab, plan, host, p, running) for p in PORTS)
                power = "on" if host.name in running else "OFF"
                print(f"  {host.name:10} {host.kind:10} {host.address:14} {power:4} {links}")
        if lab.up:
            serving = "serves" if process.pid(STATE / "server.json") else "does NOT serve (`up` again helps)"
            say(f"http://{GATEWAY}:{SERVER_PORT} {serving}: packages (/apt), images (/v2)")


def _port(lab: State, plan: Topology, host: Host, port: str, running: set[str]) -> str:
    segment = plan.segment_of(host.name, port)
    if segment is None:
        return f"{port}: no cable"
    peers = "a switch" if segment.switch else " ".join(f"{peer}.{at}" for peer, at in segment.ends if peer != host.name)
    link = carrier(plan, host.name, port, running, set(lab.cut))
    cut = " (cut)" if any(end in lab.cut for end in segment.ends if not segment.switch or end[0] == host.name) else ""
    return f"{port}: {peers} {'up' if link else 'DOWN'}{cut}"


def ssh(name: str, words: list[str]) -> None:
    with state() as lab:
        _, host = lab.find(name)
    argv = _ssh(host, *words)
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606  # becoming ssh is the point: the terminal and the exit status are its own


def cut(name: str, port: str) -> None:
    with state() as lab:
        plan, host = lab.find(name)
        if plan.segment_of(host.name, port) is None:
            raise LabError(f"{name} has no cable in {port}; `status` shows what is plugged in")
        lab.cut = sorted({*lab.cut, (name, port)})
        lab.save()
        _set_links(lab, plan)


def mend() -> None:
    with state() as lab:
        lab.cut = []
        lab.save()
        for plan in lab.plans:
            _set_links(lab, plan)


def power_off(name: str) -> None:
    with state() as lab:
        plan, _ = lab.find(name)
        if not process.stop(_folder(name) / "pid.json"):
            say(f"{name} is off already")
        _set_links(lab, plan)


def power_on(name: str) -> None:
    with state() as lab:
        plan, host = lab.find(name)
        if _running(host):
            say(f"{name} is on already")
            return
        with step(f"Booting {name}"):
            _start(lab, plan, [host])


def gpu(name: str, scenario: str) -> None:
    if scenario not in GPU_SCENARIOS:
        raise LabError(f"no GPU scenario {scenario!r}; choose from: {', '.join(GPU_SCENARIOS)}")
    with state() as lab:
        _, host = lab.find(name)
    script = f"install -d /run/gb10-lab && echo {scenario} >/run/gb10-lab/gpu-scenario"
    done = _remote(host, f"sudo sh -c '{script}'")
    if done.returncode:
        raise LabError(f"{name}: {done.stderr.strip() or 'ssh failed'}")


# -- hosts -------------------------------------------------------------------------------------------------------------


def _folder(name: str) -> Path:
    return STATE / "hosts" / name


def _ready(host: Host) -> Path:
    """Exists once a host was up: from then on its disk is worth keeping until `down`."""
    return _folder(host.name) / "ready"


def _end_hosts() -> None:
    """Every host that this checkout ever started and that still runs, whatever the state file says."""
    records = list((STATE / "hosts").glob("*/pid.json"))
    if alive := [record for record in records if process.pid(record)]:
        say(f"stopping {len(alive)} hosts")
    _each(records, process.stop)
    shutil.rmtree(STATE / "hosts", ignore_errors=True)


def _forget(host: Host) -> None:
    process.stop(_folder(host.name) / "pid.json")
    shutil.rmtree(_folder(host.name), ignore_errors=True)


def _running(host: Host) -> bool:
    return process.pid(_folder(host.name) / "pid.json") is not None


def _start(lab: State, plan: Topology, hosts: list[Host], image: images.Image | None = None) -> None:
    """A host without a folder is new and starts fresh, from `image`; one with a folder was off, and keeps its disk."""
    fresh = [host for host in hosts if not _folder(host.name).exists()]
    for host in fresh:
        _folder(host.name).mkdir(parents=True)
        if image is None:
            raise LabError(f"{host.name} was never up; `up {plan.name}` starts it")
        image.save(_folder(host.name) / "image.json")
    if plan.hosts[0].kind == "container":
        _start_containers(hosts, fresh, lab.shown)
    else:
        _start_machines(lab, plan, hosts, fresh)
    for host in fresh:
        _ready(host).touch()


def _start_containers(hosts: list[Host], fresh: list[Host], shown: Sequence[str]) -> None:
    raise_limits(MACHINE / "inotify.json")
    for host in hosts:
        container = Container(host, _folder(host.name))
        if host in fresh:
            container.load(shown)
        else:
            container.power_on()
    _each(hosts, lambda host: wait_booted(host, 120, whole=host in fresh))


def _start_machines(lab: State, plan: Topology, hosts: list[Host], fresh: list[Host]) -> None:
    machines = [Machine(host, _folder(host.name)) for host in hosts]
    if unseen := [machine for machine in machines if machine.host in fresh and not machine.snapshot.exists()]:
        how = unseen[0].accelerator
        with step(f"First boot of {len(unseen)} machines under {how} (about {'1 min' if how == 'kvm' else '2 min'})"):
            _each(unseen, _take_snapshot)
    for machine in machines:
        if machine.host in fresh:
            machine.load()
        else:
            machine.power_on()
    running = {host.name for host in plan.hosts if _running(host)}
    for machine in machines:
        machine.resume(_ports_up(lab, plan, machine.host, running))
    _set_links(lab, plan)  # of those that ran before, too
    _each(hosts, lambda host: wait_booted(host, BOOT_S, whole=host in fresh))
    _each(fresh, _set_clock)


def _take_snapshot(machine: Machine) -> None:
    machine.first_boot()
    wait_booted(machine.host, BOOT_S, whole=True)
    machine.save()


def _ports_up(lab: State, plan: Topology, host: Host, running: set[str]) -> tuple[str, ...]:
    return tuple(port for port in PORTS if carrier(plan, host.name, port, running, set(lab.cut)))


def _set_links(lab: State, plan: Topology) -> None:
    running = {host.name for host in plan.hosts if _running(host)}
    for host in plan.hosts:
        if host.kind == "machine" and host.name in running:
            set_links(host, _folder(host.name), _ports_up(lab, plan, host, running))


def wait_booted(host: Host, patience: float, *, whole: bool) -> None:
    """Until SSH answers and systemd has nothing left to start. A host that failed a unit has booted all the same.

    Not `whole`: so is one that answers whose units start for STILL_S more. They may wait for a host that is off.
    """
    until = time.monotonic() + patience
    done = None
    ask = "systemctl is-system-running --wait"
    while time.monotonic() < until:
        if not _running(host):
            raise LabError(f"{host.name} ended while it booted; its console: {_folder(host.name) / 'console.log'}")
        done = _remote(host, ask if whole else f"timeout {STILL_S} {ask}")
        if done.returncode == ENDED_BY_TIMEOUT:
            say(f"{host.name} answers; still starting: {_units(host, 'list-jobs', 1)}")
            return
        if done.stdout.strip() in ("running", "degraded"):
            if done.stdout.strip() == "degraded":
                say(f"warning: {host.name}: failed units: {_units(host, 'list-units --failed', 0)}")
            return
        time.sleep(0.3)
    why = done.stderr.strip() or done.stdout.strip() if done else ""
    raise LabError(f"{host.name} did not boot in {patience:.0f} s ({why}); console: {_folder(host.name)}/console.log")


def _units(host: Host, question: str, column: int) -> str:
    """The names of units that systemctl lists in this column."""
    lines = _remote(host, f"systemctl {question} --plain --no-legend").stdout.splitlines()
    return ", ".join(words[column] for words in map(str.split, lines) if len(words) > column)


def _set_clock(host: Host) -> None:
    """A machine from a snapshot believes that no time has passed since."""
    done = _remote(host, f"sudo date -u -s @{time.time():.0f}")
    if done.returncode:
        raise LabError(f"{host.name}: cannot set the clock: {done.stderr.strip()}")


def _ssh(host: Host, *words: str) -> list[str]:
    if not shutil.which("ssh"):
        raise not_installed("ssh")
    options = ssh_options(STATE / "known_hosts")
    return ["ssh", *options, "-oConnectTimeout=5", "-i", str(STATE / "id_ed25519"), f"spark@{host.address}", *words]


def _remote(host: Host, line: str) -> subprocess.CompletedProcess[str]:
    argv = [*_ssh(host)[:-1], "-oBatchMode=yes", "-oServerAliveInterval=15", f"spark@{host.address}", line]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _each(items: Iterable[object], action: Callable[..., object]) -> None:
    """Does it for all at once; the first failure is raised when all are through."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        for outcome in [pool.submit(action, item) for item in items]:
            outcome.result()


# -- files for others --------------------------------------------------------------------------------------------------


def _serve(lab: State, vendor: VendorTree) -> None:
    record, log = STATE / "server.json", STATE / "server.log"
    tree = str(vendor.path)
    if process.pid(record) and lab.tree == tree:
        return
    process.stop(record)
    listen = f"{GATEWAY}:{SERVER_PORT}"
    argv = [sys.executable, "-m", "lab.vendor", "serve", "--tree", tree, "--listen", listen]
    process.start(argv, record, log, cwd=CHECKOUT)
    until = time.monotonic() + 10
    while process.pid(record) and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((GATEWAY, SERVER_PORT), 1):
            lab.tree = tree
            lab.save()
            return
        time.sleep(0.05)
    tail = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise LabError(f"the package server does not listen on {listen} (does another checkout's lab run?): {tail}")


def _write_known_hosts(lab: State) -> None:
    hosts = tuple(host for plan in lab.plans for host in plan.hosts)
    _give(STATE / "known_hosts", identity.known_hosts(hosts))
    _give(STATE / "id_ed25519", identity.key(identity.CLIENT_KEY).read_text(), 0o600)


def _write_inventory(plan: Topology, vendor: VendorTree) -> None:
    folder = INVENTORY / plan.name
    folder.mkdir(parents=True, exist_ok=True)
    text = render(plan, vendor.image_ref_path, STATE / "id_ed25519", STATE / "known_hosts")
    _give(folder / "hosts.yml", text)


def _give(path: Path, text: str, mode: int = 0o644) -> None:
    """Writes a file that Ansible reads: it belongs to whose checkout this is, who need not be root."""
    owner = CHECKOUT.stat()
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, owner.st_uid, owner.st_gid)
