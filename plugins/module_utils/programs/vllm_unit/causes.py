# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors in vLLM's log: what each of its processes raises, without the code that a traceback shows."""

from __future__ import annotations

import re
from typing import NamedTuple

KEPT_ERRORS = 20  # the first ones raised, and as many logged: what follows is a consequence
LONGEST_ERROR = 2000
MOST_PROCESSES = 100  # that show a traceback at once; a container can invent them without an end
BARE_ERROR = 40  # a message this short says too little without the function that raised it
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BEGINNING = re.compile(
    r"(?P<process>(?:\([^()]*\bpid=\d+\b[^()]*\) ?|\[rank\d+\]: ?)*)"
    r"(?:(?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?"
)
# What carries a log puts before each line: a quotation, compose, kubectl, the time of Docker or Kubernetes, journald.
_CARRIED = re.compile(
    r"(?:> ?)?(?:[\w.-]{1,64} {1,64}\| )?(?:\[pod/[^\] ]{1,200}\] )?"
    r"(?:\d{4}-\d\d-\d\dT[\d:.,]{8,18}(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )?"
    r"(?:[\w.-]{1,64} [\w.@-]{1,64}\[\d{1,7}\]: )?"
    r"(?:\[\d{1,7}\] )?"  # llama.cpp, of each of its servers
)
# Its beginning ends a line; within one somebody quotes it.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):(?: \[repeated \d+x across cluster\])?\s*$")
# What Python puts before the lines of a group of exceptions, deeper for each that is in one; its own line says nothing.
_GROUP = re.compile(r"\s*\+ Exception Group Traceback ")
_OF_GROUP = re.compile(r" *(?:\+-\+-+ [\d.]+ -+|[+|] ?)")
_NO_END = re.compile(r"(?:[\w.]{1,40}\.)?(?:Base)?ExceptionGroup: ")
_FRAME = re.compile(r'\s+File "(?P<path>[^"]{0,300}/)?(?P<file>[^"/]+)", line \d+, in (?P<function>\S+)')
_FOLDERS = re.compile(r"(?<=-packages/).*|(?:[^/]+/){0,2}$")  # of a package from its own one on, else the last two
KEPT_FRAMES = 60  # the last ones of a traceback
LONGEST_NAME = 80  # of a file with its folder, and of a function
# pydantic says on the next lines what is wrong; argparse passes on what it says, and llama.cpp why CUDA failed.
_UNFINISHED = re.compile(r"\d+ validation errors? for \w+$|\.cuh?:\d+: CUDA error$|panicked at \S+:\d+:\d+:$")
_FINISHED = "For further information"
# What is raised with a message whose first line is empty; Rust says on the next line why it panicked.
_WORDLESS = re.compile(r"[\w.]{3,80}: ?$|thread '[^']{0,80}'.{0,20} panicked at ")
_CAUSED = re.compile(r"Caused by:$")  # anyhow (Rust), before the indented lines of what is below an error
# What Python puts before the traceback of a thread, a task, a destructor or a log line: its program goes on without.
_BESIDE = re.compile(
    r"Exception in thread |Exception ignored (?:in|on|while)\b|(?:Task|Future) exception was never retrieved"
    r"|--- Logging error ---"
)
_BETWEEN = re.compile(r"future: <|During handling of the above exception|The above exception was the direct cause")
_LEVELS = ("ERROR", "CRITICAL", "FATAL")
# uvicorn's own way of writing; what NGC's entrypoint says of an older driver, before it takes the libraries for that;
# vLLM of a FlashAttention that it then leaves out
_HARMLESS = re.compile(
    r"(?:DEBUG|INFO|WARNING):\s|ERROR: This container was built for NVIDIA Driver Release|Cannot use FA version \d"
)
# NCCL warns of what ends it, and kernels print what they are not made for.
_TROUBLE = re.compile(
    r"error|exception|fatal|failed|failure|killed|refused|NCCL WARN|only supports? sm|denied|read-only file|SIGSEGV|"
    r"segmentation fault|SIGBUS|marked dead|is dead|died|exit code:? -\d|watchdog timeout \(|crashed|has invalid|"
    # a heap that is no longer whole, as glibc says it, and what a solver of versions finds
    r"double free|\Acorrupted |\A(?:free|[mc]alloc|realloc|malloc_consolidate|munmap_chunk)\(\): |"
    r"(?:overflow|smashing) detected|unsatisfiable|version mismatch|panicked at |unsupported system",
    re.IGNORECASE,
)
# Said of trouble, and as often of what a program does well without.
_PERHAPS = re.compile(r"could(?:n't| not)|cannot|can't|unable to|illegal|invalid", re.IGNORECASE)
# How programs mark an error, and what is below one: c10, TensorRT-LLM, llama.cpp, Ray, Python's loggers, Go's loggers.
_MARKED = re.compile(
    r"\[E\d* [^\]]{0,60}\.cpp:\d+\]|\[(?:E|ERROR|F|FATAL)\] |\A[\d.]{8,20} [EF] |\A\[[\d:, -]{19,25} [EFC] \d|"
    r"\d (?:ERROR|CRITICAL|FATAL)\b|level=(?:error|fatal)\b"
)
_SLIGHT = re.compile(
    r"\[W\d{3,4} [\d:.]{6,20} |\[(?:W|I|WARNING|INFO)\] |\A[\d.]{8,20} [WID] |\d (?:WARNING|WARN|INFO)\b|"
    r"level=(?:warning|info)\b|[Ww]arning: "
)
# How a program goes on after trouble: that has not ended it.
_GOES_ON = re.compile(
    r"\b(?:retry(?:ing)?(?! count)|trying again|fall(?:s|ing)? ?back|fallback|skip(?:s|ped|ping)?|"
    r"ignor(?:e|ed|es|ing)|non-fatal|continuing)\b",
    re.IGNORECASE,
)
_REPORTS = re.compile(r"\bras/\w+\.cc:\d+ NCCL WARN ")  # NCCL serves its own state to others, and goes on without that
ENDS, PERHAPS, SLIGHT = range(3)  # what an error weighs; of each, those that weigh more are heard first


class Error(NamedTuple):
    """`raised`: it is the end of a traceback, whose frames are `way`, each as folders/file:function and a blank."""

    text: str
    raised: bool
    way: str = ""
    weight: int = ENDS


class Errors:
    """The first errors of a log, each as one line.

    vLLM's processes write into the same log, each with a beginning of its own, and each both logs and prints. So a
    traceback is followed by process and stream.
    """

    def __init__(self) -> None:
        self.found: list[Error] = []
        self.frames: dict[str, list[tuple[str, str]]] = {}  # of each process that shows a traceback
        self.grouped: set[str] = set()  # processes that show a group of exceptions
        self.unfinished: dict[str, int] = {}  # where in `found` the error is whose next lines say more
        self.chained: set[str] = set()  # processes whose next lines, while they are indented, say more
        self.beside: dict[str, bool] = {}  # processes whose next traceback ends nothing; False: it has come

    def feed(self, line: str) -> Error | None:
        """The error that this line says, if it does."""
        line = COLOUR.sub("", line).rstrip("\r")
        line = line[_CARRIED.match(line).end() :]  # type: ignore[union-attr]  # it fits nothing, too
        beginning = _BEGINNING.match(line)
        process, level = (beginning["process"], beginning["level"]) if beginning else ("", None)
        process = f"{process}{'logs' if level else 'prints'}"
        text = line[beginning.end() :] if beginning else line
        if (level and level not in _LEVELS) or _HARMLESS.match(text):
            return None  # also in the middle of a traceback, by another thread
        text = self._of_group(process, text)
        if _TRACEBACK.search(text):
            if len(self.frames) >= MOST_PROCESSES:
                del self.frames[next(iter(self.frames))]
            self.frames[process] = []
            return None
        if process in self.frames:
            return self._in_traceback(process, text)
        if self._is_beside(process, text) or self._belongs(process, text):
            return None
        weight = ENDS if level else _weight(text)
        return None if weight is None else self._keep(process, Error(text.strip()[:LONGEST_ERROR], False, "", weight))

    def _of_group(self, process: str, text: str) -> str:
        """As it would be of an exception alone."""
        if _GROUP.match(text) and len(self.grouped) < MOST_PROCESSES:
            self.grouped.add(process)
        before = _OF_GROUP.match(text) if process in self.grouped else None
        if before:
            return text[before.end() :]
        self.grouped.discard(process)
        return text

    def _in_traceback(self, process: str, text: str) -> Error | None:
        """Code is indented, and what was raised is not."""
        frame = _FRAME.match(text)
        if frame:
            place = f"{_FOLDERS.search(frame['path'] or '')[0]}{frame['file']}"  # type: ignore[index]
            kept = self.frames[process][1 - KEPT_FRAMES :]
            self.frames[process] = [*kept, (place[-LONGEST_NAME:], frame["function"][:LONGEST_NAME])]
        if text[:1].isspace() or not text:
            return None
        frames = self.frames.pop(process)
        if _NO_END.match(text):
            return None
        bare = frames and len(text) < BARE_ERROR and not _WORDLESS.match(text)
        where = f" ({frames[-1][0].rpartition('/')[2]}, {frames[-1][1]})" if bare else ""
        way = "".join(f"{file}:{function} " for file, function in frames)
        weight = PERHAPS if self.beside.get(process) else ENDS
        self.beside.update(dict.fromkeys({process} & self.beside.keys(), False))
        return self._keep(process, Error(f"{text}{where}"[:LONGEST_ERROR], weight == ENDS, way, weight))

    def _is_beside(self, process: str, text: str) -> bool:
        """A traceback follows at once, or behind lines that name its task or that join it to another one."""
        begins = _BESIDE.match(text) and len(self.beside) < MOST_PROCESSES
        if begins or (process in self.beside and _BETWEEN.match(text)):
            self.beside[process] = True
        elif text.strip():
            self.beside.pop(process, None)
        return process in self.beside

    def _belongs(self, process: str, text: str) -> bool:
        """Whether it says more of an error before it."""
        if self.found and _CAUSED.match(text):
            self.chained.add(process)
            self.unfinished[process] = len(self.found) - 1
            return True
        if process in self.chained and not text[:1].isspace():
            self.chained.discard(process)
            self.unfinished.pop(process, None)
        if process not in self.unfinished:
            return False
        self._go_on(process, text)
        return True

    def _go_on(self, process: str, text: str) -> None:
        place = self.unfinished[process]
        error = self.found[place]
        if text.strip().startswith(_FINISHED) or len(error.text) + len(text) > LONGEST_ERROR:
            del self.unfinished[process]
        elif not _WORDLESS.match(error.text):
            self.found[place] = error._replace(text=f"{error.text}: {text.strip()}")
        elif text.strip():  # the message has begun; the rest of it is as a rule a list
            self.found[place] = error._replace(text=f"{error.text.rstrip()} {text.strip()}")
            del self.unfinished[process]

    def _keep(self, process: str, error: Error) -> Error:
        alike = sum((other.raised, other.weight) == (error.raised, error.weight) for other in self.found)
        if alike < KEPT_ERRORS and error.text and all(error[:2] != other[:2] for other in self.found):
            if _UNFINISHED.search(error.text) or (error.raised and _WORDLESS.match(error.text)):
                self.unfinished[process] = len(self.found)
            self.found.append(error)
        return error


def _weight(text: str) -> int | None:
    """Of a line without a level; none if it tells of no trouble. NCCL warns of what ends it."""
    trouble = _TROUBLE.search(text) or _MARKED.search(text[:120])
    if "NCCL WARN" in text:
        return None if _REPORTS.search(text) else ENDS
    if _SLIGHT.search(text[:120]):
        return SLIGHT if trouble else None
    if _GOES_ON.search(text):
        return None
    return ENDS if trouble else PERHAPS if _PERHAPS.search(text) else None
