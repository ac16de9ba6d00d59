# SPDX-License-Identifier: GPL-3.0-or-later
"""One program to each of many hosts at once, from one process.

Ansible forks a worker for each host of a task, which costs more than what it then does. Here one worker starts the ssh
processes itself. `Routes` has Ansible's own plugins build each command line, so that a host is reached as in any
playbook; `ask` runs them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol

from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.playbook.play_context import PlayContext
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import become_loader, connection_loader
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import bounds

ANSWER_LIMIT, ERRORS_LIMIT = bounds.ANSWER_LIMIT, bounds.ERRORS_LIMIT
LOOK_S = 0.1
SHOWN_OF_ERRORS = 200  # characters, where it was too long
SSH_FAILED = 255  # the exit status with which ssh speaks of itself
REFUSED = 1  # where a password was wrong, or missing
NOT_FOUND = 127  # the one with which a shell says that there is no such command


class NeedsPassword(AnsibleError):
    """Somebody would have to type a password, for SSH or to become root.

    `Routes.way` takes a `Typist` then, and `Routes.talk` has it typed into a connection that stays open.
    """


class Message(Protocol):
    """What is sent to a host: `program` first, then the `reply` to a line that it says, if there is one."""

    def program(self) -> bytes: ...

    def reply(self, line: str) -> bytes | None: ...


@dataclass(frozen=True)
class Secrets:
    """What is typed on the way to a program on a host.

    `asks` knows the question of sudo in what the host says, and `let_in` is said when there is root.
    """

    ssh: str = field(default="", repr=False)
    sudo: str = field(default="", repr=False)
    asks: Callable[[bytes], bool] = bool
    let_in: bytes = b""


@dataclass(frozen=True)
class Target:
    """How to ask one host: a command on this machine, which runs on the host what it reads on standard input.

    `reply`: what to write, once, when the host says a certain line. Without it, standard input ends behind the program.
    """

    host: str
    command: tuple[str, ...]
    program: bytes
    retries: int = 0  # after a connection that failed
    reply: Callable[[str], bytes | None] | None = None
    secrets: Secrets = Secrets()

    def ask(self, timeout_s: float) -> Reply:
        """Ask the host, and again where the connection broke: a jump host, say, drops some of many at once."""
        reply = Reply(self.host, None, "", "")
        deadline = time.monotonic() + timeout_s
        for attempt in range(self.retries + 1):
            pause_s = max(0, attempt - 1)  # the first time at once
            if time.monotonic() + pause_s >= deadline:
                break
            time.sleep(pause_s)
            reply = _attempt(self, deadline)
            # Where nobody answered at all, asking again costs as long again.
            if reply.status != SSH_FAILED or "timed out" in reply.stderr:
                break
        return reply


class Way(Protocol):
    """How to ask one host: a `Target`, or a `Typist`."""

    @property
    def host(self) -> str: ...

    def ask(self, timeout_s: float) -> Reply: ...


@dataclass(frozen=True)
class Reply:
    """What came back. `status` is the command's exit status, None if its time was up.

    `began`, `ended`: the time of day here when the connection that answered did.
    """

    host: str
    status: int | None
    stdout: str
    stderr: str
    began: float = field(default=0, compare=False)
    ended: float = field(default=0, compare=False)


@dataclass(frozen=True)
class Typist:
    """A host that needs a password: Ansible's own connection types it, and has no other time limit than ours."""

    host: str
    connection: Any  # a connection plugin, with its become plugin
    remote: str
    message: Message

    def ask(self, timeout_s: float) -> Reply:
        replies: list[Reply] = []
        thread = threading.Thread(target=lambda: replies.append(self._ask()), daemon=True)
        thread.start()
        thread.join(timeout_s)
        if thread.is_alive():
            _kill_children(thread)
        return replies[0] if replies else Reply(self.host, None, "", "")

    def _ask(self) -> Reply:
        try:
            reply = self._call(self.message.program())
            more = next(filter(None, map(self.message.reply, reply.stdout.splitlines())), None)
            return self._call(more) if more else reply
        except AnsibleConnectionFailure as error:
            return Reply(self.host, SSH_FAILED, "", printable(str(error), "\n\t"))
        except AnsibleError as error:  # a wrong password, for example
            return Reply(self.host, REFUSED, "", printable(str(error), "\n\t"))

    def _call(self, program: bytes) -> Reply:
        """Ansible's plugins close standard input behind what they send, so what the host lacks takes a second call."""
        become, command = self.connection.become, self.remote
        if become:
            command = _as_root(become, command, self.connection._shell)
        bounds.count_pipes_of(type(self.connection))
        with piped(self.connection):
            status, stdout, stderr = self.connection.exec_command(command, in_data=program, sudoable=True)
        errors = _shown(stderr, len(stderr)) + _cut(stdout)
        return Reply(self.host, status, stdout.decode(errors="replace"), errors)


def _as_root(become: Any, command: str, shell: Any) -> str:
    """Return the command as root. A refusal is known by its words, so sudo must not say it in the host's language."""
    return shlex.join(("/bin/sh", "-c", f"export LC_ALL=C; {become.build_become_command(command, shell)}"))


@contextlib.contextmanager
def piped(connection: Any) -> Iterator[None]:
    """The connection local gives a command that needs a password a terminal, into which it sends no program."""
    try:
        before = connection.get_option("pipelining")
        connection.set_option("pipelining", True)
    except (AttributeError, KeyError):  # another plugin, without that option
        yield
        return
    try:
        yield
    finally:
        connection.set_option("pipelining", before)


def _kill_children(thread: threading.Thread) -> None:
    """What this thread has started; where the system does not tell, it ends with the worker's pipes."""
    with contextlib.suppress(OSError):
        for number in Path(f"/proc/self/task/{thread.native_id}/children").read_text().split():
            os.kill(int(number), signal.SIGKILL)


# -- the ways ----------------------------------------------------------------------------------------------------------


class Routes:
    """The way to each host, from its variables and the task's keywords, as Ansible's task executor would take it."""

    def __init__(self, action: ActionBase) -> None:
        # The action's own context holds what belongs to the first host, a password for example; that of Ansible's
        # worker holds what was typed for the whole run.
        self._context = PlayContext()
        self._run = getattr(multiprocessing.current_process(), "_play_context", None)
        self._templar = action._templar
        self._shell = action._connection._shell
        self._keys = action._task.dump_attrs()
        self._keys["connection"] = action._task.play.connection  # in ansible-core 2.21 the task's is the first host's
        self._keys["timeout"] = self._context.timeout  # to connect; the task's own keyword limits its whole run
        del self._keys["retries"]  # the task's, where the plugin means those of a connection

    def target(self, host: str, variables: dict[str, Any], remote: str, message: Message) -> Target:
        """The command that runs `remote` on the host; NeedsPassword where it would need somebody to type one."""
        connection = self._connection(variables)
        if connection.transport == "ssh" and connection.get_option("password"):
            raise NeedsPassword("a password of SSH is set for this host")
        become = self._become(connection, variables)
        if become and become.get_option("become_pass"):
            raise NeedsPassword(f"a password of {become.name} is set for this host")
        return self._target(host, connection, become, remote, message)

    def talk(self, host: str, variables: dict[str, Any], remote: str, message: Message) -> Target:
        """The same, with what is to be typed: for a connection that stays open."""
        connection, ssh = self._connection(variables), ""
        if connection.transport == "ssh":
            ssh = connection.get_option("password") or ""
            connection.set_option("password", None)  # or Ansible would have its own helper type it
        become = self._become(connection, variables)
        target = self._target(host, connection, become, remote, message)  # makes up how sudo asks
        if not become:
            return replace(target, secrets=Secrets(ssh))
        sudo = become.get_option("become_pass") or ""
        return replace(target, secrets=Secrets(ssh, sudo, become.check_password_prompt, become.success.encode()))

    def _target(self, host: str, connection: Any, become: Any, remote: str, message: Message) -> Target:
        command = _as_root(become, remote, self._shell) if become else remote
        program, reply = message.program(), message.reply
        if connection.transport == "local":
            return Target(host, ("/bin/sh", "-c", command), program, reply=reply)
        connection.host = connection.get_option("host")
        argv = connection._build_command(connection.get_option("ssh_executable"), "ssh", connection.host, command)
        retries = int(connection.get_option("reconnection_retries"))
        return Target(host, tuple(os.fsdecode(word) for word in argv), program, retries, reply)

    def copies_key(self, variables: dict[str, Any]) -> str:
        """Return the command that puts this user's key on the host; of this machine none."""
        connection = self._connection(variables)
        if connection.transport != "ssh":
            return ""
        user, port = connection.get_option("remote_user"), connection.get_option("port")
        place = f"{user}@{connection.get_option('host')}" if user else str(connection.get_option("host"))
        return shlex.join(["ssh-copy-id", *(["-p", str(port)] if port else []), place])

    def way(self, host: str, variables: dict[str, Any], remote: str, message: Message) -> Way:
        """A target, or where somebody has to type a password, Ansible's own connection, which does."""
        try:
            return self.target(host, variables, remote, message)
        except NeedsPassword:
            connection = self._connection(variables)
            connection.set_become_plugin(self._become(connection, variables))
            return Typist(host, connection, remote, message)

    def _connection(self, variables: dict[str, Any]) -> Any:
        """Ansible's connection plugin with the options of this host."""
        name = self.value(variables, "ansible_connection", self._keys["connection"])
        connection = connection_loader.get(name, self._context, new_stdin=None, shell=self._shell)
        if connection is None or connection.transport not in ("ssh", "local"):
            raise AnsibleError(f"the scan goes over ssh (or local), and this host's ansible_connection is {name}")
        templar = self._templar.copy_with_new_env(available_variables=variables)
        options = connection._resolve_option_variables(variables, templar)
        connection.set_options(task_keys={**self._keys, **self._typed("password")}, var_options=options)
        return connection

    def value(self, variables: dict[str, Any], name: str, default: Any = None) -> Any:
        """One variable of a host; most are no templates, and then this costs nothing."""
        value = variables.get(name, default)
        if value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and "{" not in value):
            return value
        return self._templar.copy_with_new_env(available_variables=variables).template(value)  # from a vault, perhaps

    def interpreter(self, variables: dict[str, Any]) -> str:
        """The Python of one host, from its variables or ansible.cfg; empty where these leave it to a discovery."""
        given = constants.config.get_config_value("INTERPRETER_PYTHON", variables=variables)
        path = str(self.value({"given": given, **variables}, "given"))
        return "" if path.startswith("auto") else path

    def _become(self, connection: Any, variables: dict[str, Any]) -> Any:
        """The become plugin of this host; None where it has none or needs none."""
        if not boolean(self.value(variables, "ansible_become", self._keys["become"]) or False):
            return None
        method = self.value(variables, "ansible_become_method", self._keys["become_method"])
        become = become_loader.get(method)
        if become is None:
            raise AnsibleError(f"the become plugin {method} was not found")
        names = constants.config.get_plugin_vars("become", become._load_name)
        options = {name: self.value(variables, name) for name in names if name in variables}
        become.set_options(task_keys={**self._keys, **self._typed("become_pass")}, var_options=options)
        try:
            user = connection.get_option("remote_user")
        except KeyError:  # a local connection
            user = connection.default_user
        if become.get_option("become_user") == user and not constants.BECOME_ALLOW_SAME_USER:  # type: ignore[attr-defined]
            return None
        return become

    def _typed(self, name: str) -> dict[str, str]:
        """What was typed for this run (-k, -K) as the keyword of a plugin; a host's own variable comes before it."""
        secret = getattr(self._run, name, None)
        return {name: secret} if secret else {}


# -- the scan ----------------------------------------------------------------------------------------------------------


def ask(
    targets: Iterable[Way],
    *,
    concurrency: int,
    timeout_s: float,
    progress: Callable[[int, int], None],
    period_s: float = 10,
) -> list[Reply]:
    """Give every target its program, at most `concurrency` at a time; one reply for each, in the same order.

    No host takes longer than `timeout_s`, all its connections together. `progress` hears every `period_s` how many of
    how many are done.
    """
    with ThreadPoolExecutor(concurrency) as threads:
        replies = [threads.submit(target.ask, timeout_s) for target in targets]
        waiting: set[Future[Reply]] = set(replies)
        while waiting:
            __, waiting = wait(waiting, timeout=period_s)
            if waiting:
                progress(len(replies) - len(waiting), len(replies))
        return [reply.result() for reply in replies]


class _Errors:
    """Standard error of a process: its end, where ssh says why it failed, and how long it was.

    ssh leaves its control master behind, which may hold this pipe open for a minute: so nobody waits for its end.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self.number, self.length, self.end = pipe.fileno(), 0, b""
        os.set_blocking(self.number, False)

    def read(self) -> bool:
        """Take what is there now; whether there was anything."""
        try:
            chunk = os.read(self.number, 2**16)
        except BlockingIOError:
            return False
        self.length += len(chunk)
        self.end = (self.end + chunk)[-(2**16) :]
        return bool(chunk)

    def read_all(self) -> None:
        while self.length <= ERRORS_LIMIT and self.read():
            pass

    def text(self) -> str:
        self.read_all()
        return _shown(self.end, self.length)


def _shown(end: bytes, length: int) -> str:
    """The end of a standard error of this length."""
    said = end.decode(errors="replace")
    if length <= ERRORS_LIMIT:
        return said
    return f"{said[-SHOWN_OF_ERRORS:]} ... {effort.too_much('standard error', ERRORS_LIMIT)}\n"


def _cut(answer: bytes) -> str:
    """What to say of an answer that was too long."""
    return f"\n{effort.too_much('standard output', ANSWER_LIMIT)}\n" if len(answer) > ANSWER_LIMIT else ""


def _attempt(target: Target, deadline: float) -> Reply:
    began = time.time()
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(target.command, stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as error:
        return Reply(target.host, NOT_FOUND, "", f"{target.command[0]}: {error.strerror}")
    if process.stderr is None:
        return Reply(target.host, None, "", "")
    with process.stderr:
        errors = _Errors(process.stderr)
        try:
            answer = _exchange(process, target, deadline, errors)
            status = _end(process, deadline, errors)
        finally:
            process.kill()  # of one that has ended this does nothing
            process.wait()
        said = errors.text() + _cut(answer)
    return Reply(target.host, status, answer.decode(errors="replace"), said, began, time.time())


def _end(process: subprocess.Popen[bytes], deadline: float, errors: _Errors) -> int | None:
    """Its exit status, None if its time was up. Standard error is read on: nobody ends who cannot write."""
    while errors.length <= ERRORS_LIMIT:
        try:
            return process.wait(max(0, min(LOOK_S, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                return None
            errors.read_all()
    process.kill()
    return process.wait()


def _exchange(process: subprocess.Popen[bytes], target: Target, deadline: float, errors: _Errors) -> bytes:
    """Write while reading what comes, until the end, the deadline or a little over the limit.

    A program may hold secrets, so it goes through a pipe and never into a file.
    """
    answer = bytearray()
    if process.stdin is None or process.stdout is None:
        return b""
    with process.stdin as stdin, process.stdout as stdout:
        feed, mouth = stdin.fileno(), stdout.fileno()
        os.set_blocking(feed, False)
        poll = select.poll()
        poll.register(feed, select.POLLOUT)
        poll.register(mouth, select.POLLIN)
        poll.register(errors.number, select.POLLIN)
        rest, reply = memoryview(target.program), target.reply
        while len(answer) <= ANSWER_LIMIT and errors.length <= ERRORS_LIMIT:
            left_s = deadline - time.monotonic()
            ready = [pipe for pipe, __ in poll.poll(left_s * 1000)] if left_s > 0 else []
            if not ready:
                break
            if feed in ready:
                rest = rest[_write(feed, rest) :]
                if not rest:
                    poll.unregister(feed)
                    if reply is None:
                        stdin.close()
            if errors.number in ready and not errors.read():
                poll.unregister(errors.number)
            if mouth in ready:
                chunk = os.read(mouth, 2**16)
                if not chunk:
                    break
                answer += chunk
                if reply and (more := _replied(reply, answer, len(chunk))):
                    rest, reply = memoryview(bytes(rest) + more), None  # once: a sick host may ask for ever
                    poll.register(feed, select.POLLOUT)
        if len(answer) > ANSWER_LIMIT or errors.length > ERRORS_LIMIT:
            process.kill()
    return bytes(answer)


def _replied(reply: Callable[[str], bytes | None], answer: bytearray, new: int) -> bytes | None:
    """What to write to a host after the lines that became whole with the last `new` bytes of its answer."""
    begin, end = answer.rfind(b"\n", 0, len(answer) - new) + 1, answer.rfind(b"\n") + 1
    lines = answer[begin:end].decode(errors="replace").splitlines()
    return next(filter(None, map(reply, lines)), None)


def _write(pipe: int, data: memoryview) -> int:
    """Return how much was written; all of it, where nobody reads any longer."""
    try:
        return os.write(pipe, data)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)
