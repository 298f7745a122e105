"""Stacks as every tool writes them, brought into one form that is the same on every machine.

A normalised file is the path below ``site-packages``, or one of ``<stdlib>/...``, ``<generated>``
(code that Inductor or FX wrote), ``<agent>``, ``<frozen>`` and ``<user>``. Which frames are noise
stands in ``data/frames.json``, not here.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterable, Sequence
from typing import Any

from reprokit.core.records.dumps import Fault, Frame, Link, Raised, ThreadStack

_GENERATED = re.compile(
    r".*/torchinductor_[^/]*/.*|.*/[a-z2-7]{2}/c[a-z2-7]{40,}(\.main)?\.(py|cpp)|<eval_with_key>.*|<lambda_?\w*>"
)
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/(.+)")
_TORCH_TREE = re.compile(
    r".*/(torch/(?:_\w+|fx|nn|utils|distributed|autograd|cuda|func|export|optim|library|functional)[/.].*)"
)
_NORMAL = re.compile(r"<generated>|<stdlib>/.*|<agent>|<user>|(?:torch|triton)/.*")
"""What is normalised already stays as it is."""
_STDLIB = re.compile(r".*/lib(?:64)?/python3\.\d+t?/(.+)")
_AGENT = re.compile(r".*/(?:_reprokit|reprokit/(?:agent|core))/.*")


def normalise_file(file: str) -> str:
    """Give the machine-independent form of a source path."""
    if file.startswith("<frozen"):
        return "<frozen>"
    if _NORMAL.fullmatch(file):
        return file
    if _GENERATED.fullmatch(file):
        return "<generated>"
    if _AGENT.fullmatch(file):
        return "<agent>"
    for pattern, prefix in ((_PACKAGES, ""), (_TORCH_TREE, ""), (_STDLIB, "<stdlib>/")):
        if found := pattern.fullmatch(file):
            return prefix + found.group(1)
    return "<user>"


def names_generated(text: str) -> bool:
    """True where a message names a source file that Inductor wrote."""
    return re.search(r"/[a-z2-7]{2}/c[a-z2-7]{40,}(?:\.main)?\.(?:py|cpp)", text) is not None


def normalise_frames(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Normalise the files of ``frames``; lines are kept for people, never for identity."""
    return tuple(Frame(normalise_file(f.file), f.function, f.line) for f in frames)


_ENTERS = re.compile(
    r"<generated>|torch/_inductor/output_code\.py|torch/_functorch/_aot_autograd/runtime_wrappers\.py"
)


def enters_compiled(frame: Frame) -> bool:
    """The code that Inductor wrote, or what calls it: further in is the kernel, further out is
    everybody's.
    """
    return _ENTERS.fullmatch(frame.file) is not None


class FrameRules:
    """The rules of ``data/frames.json``."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._noise = [_rule(r) for r in data["noise"]]
        self._sentinels = [_rule(r) for r in data["sentinels"]]
        self._compiled = [_rule(r) for r in data["compiled"]]
        self._relays = [re.compile(r["type"]) for r in data["relays"]]

    def significant(self, frames: Sequence[Frame], most: int) -> tuple[list[Frame], list[str]]:
        """The innermost ``most`` frames that name a bug, and why the others were passed over.

        ``frames`` are normalised, innermost first. The walk stops at a sentinel: what called the
        compiler, or the code that it made, is the user's business. User code inside that door (a
        custom pass, backend or operator) is part of the bug.
        """
        kept: list[Frame] = []
        why: list[str] = []
        for frame in frames:
            if sentinel := _first(self._sentinels, frame):
                why.append(f"stopped at {show_frame(frame)}: {sentinel}")
                break
            if noise := _first(self._noise, frame):
                why.append(f"skipped {show_frame(frame)}: {noise}")
            elif not (kept and show_frame(kept[-1]) == show_frame(frame)):
                kept.append(frame)
                if len(kept) == most:
                    break
        return kept, why

    def is_sentinel(self, frame: Frame) -> bool:
        """True where what called the compiler, or the code that it made, begins; ``frame`` is
        normalised.
        """
        return bool(_first(self._sentinels, frame))

    def root(self, chain: Sequence[Link]) -> Link:
        """The innermost exception that says something of its own."""
        return next((link for link in reversed(chain) if not self.is_relay(link)), chain[-1])

    def is_relay(self, link: Link) -> bool:
        """True for an exception that only says that another one happened, in a child or below."""
        return any(r.fullmatch(link.type) for r in self._relays)

    def is_compiled(self, frames: Iterable[Frame]) -> bool:
        """True where the compiler or code that it made is on the stack."""
        return any(_first(self._compiled, f) for f in frames)


def _rule(row: dict[str, str]) -> tuple[re.Pattern[str], re.Pattern[str], str]:
    return re.compile(row.get("file", ".*")), re.compile(row.get("function", ".*")), row["why"]


def _first(rules: list[tuple[re.Pattern[str], re.Pattern[str], str]], frame: Frame) -> str:
    function = frame.function.rsplit(".", 1)[-1]
    for file, name, why in rules:
        if file.fullmatch(frame.file) and name.fullmatch(function):
            return why
    return ""


def show_frame(frame: Frame) -> str:
    """``torch/_inductor/loop_body.py:get_read_expr``, without the line, which moves between
    versions.
    """
    return f"{frame.file}:{frame.function.rsplit('.', 1)[-1]}"


RULES = FrameRules(json.loads(pkgutil.get_data(__package__, "frames.json") or b"{}"))


def root_cause(raised: Raised) -> Link:
    """The exception of a chain that names the bug."""
    return RULES.root(raised.chain)


_FH_FRAME = re.compile(r'\s+File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')
_FH_THREAD = re.compile(
    r"(?P<current>Current thread|Thread) (?P<id>0x[0-9a-f]+)(?: \[(?P<name>.*)\])? \(most recent"
    r" call first\):.*"
)


def _whole(frame: Frame) -> Frame:
    """Two threads that die at once write into each other's lines: of a torn one the file can be
    known still.
    """
    file, suffix, rest = frame.file.partition(".py")
    if not suffix or not rest or rest in ("c", "x", "i"):
        return frame
    return Frame(file + suffix, "<torn>", frame.line)


def parse_faulthandler(text: str, pid: int) -> list[ThreadStack]:
    """Read a dump by :mod:`faulthandler`: threads in its order, frames innermost first.

    The main thread is the one whose outermost frame is the program's ``<module>``, else the last
    one, which is where CPython lists it.
    """
    threads: list[tuple[str, bool, list[Frame]]] = []
    for line in text.splitlines():
        if found := _FH_THREAD.fullmatch(line.strip()):
            threads.append(
                (found["name"] or found["id"], found["current"].startswith("Current"), [])
            )
        elif threads and (found := _FH_FRAME.fullmatch(line)):
            number = int(found["line"]) if found["line"].isdigit() else 0
            threads[-1][2].append(_whole(Frame(found["file"], found["function"], number)))
    mains = [
        i
        for i, (_, _, f) in enumerate(threads)
        if f and f[-1].function in ("<module>", "_run_module_as_main")
    ]
    main = mains[-1] if mains else len(threads) - 1
    return [
        ThreadStack(pid, name, tuple(frames), is_main=i == main, owns_gil=current)
        for i, (name, current, frames) in enumerate(threads)
    ]


_FATAL = re.compile(r"^Fatal Python error: (.*)$", re.MULTILINE)
_AGAIN = "terminate called recursively\n"
_TYPE = re.compile(r"terminate called after throwing an instance of '(?P<type>[^'\n]+)'")
# Two threads may abort at once; their lines interleave.
_TERMINATE = re.compile(
    r"terminate called after throwing an instance of"
    r" '(?P<type>[^'\n]+)'\s*\n(?:.*\n){0,3}?\s*what\(\):\s*(?P<what>.*)$",
    re.MULTILINE,
)


def parse_fatal(text: str, pid: int) -> Fault | None:
    """Find the last fatal error that faulthandler wrote into ``text``: its name and the failing
    thread.
    """
    found = list(_FATAL.finditer(text))
    if not found:
        return None
    threads = parse_faulthandler(text[found[-1].start() :], pid)
    current = next((t for t in threads if t.owns_gil), threads[-1] if threads else None)
    return Fault(pid, found[-1].group(1).strip(), current.frames if current else ())


def parse_terminate(text: str) -> str:
    """What the C++ runtime said before ``abort``: ``std::runtime_error: message``,
    ``std::terminate`` alone, or nothing.
    """
    # What a second thread says may stand between any two words of the first, and its abort may come
    # before the message,
    # or before the type: what is then left of it is no chance.
    alone = text.replace(_AGAIN, "")
    if alone == text:
        found = list(_TERMINATE.finditer(alone))
        return ": ".join(found[-1].groupdict().values()) if found else ""
    types = list(_TYPE.finditer(alone))
    return types[-1]["type"] if types else "std::terminate"


def parse_py_spy(text: str, pid: int) -> list[ThreadStack]:
    """Read ``py-spy dump --json``; raises ValueError for anything else."""
    data = json.loads(text)
    if not isinstance(data, list):
        raise ValueError("py-spy wrote no list of threads")
    try:
        return _py_spy_threads(data, pid)
    except (TypeError, AttributeError, KeyError) as problem:
        raise ValueError(f"py-spy wrote no threads: {problem!r}") from problem


def _py_spy_threads(data: list[Any], pid: int) -> list[ThreadStack]:
    return [
        ThreadStack(
            pid,
            str(t.get("thread_name") or t.get("os_thread_id") or t.get("thread_id")),
            tuple(
                Frame(f.get("filename") or "", f.get("name") or "", f.get("line") or 0)
                for f in t.get("frames", [])
            ),
            is_main=t.get("os_thread_id") == pid or t.get("thread_name") == "MainThread",
            owns_gil=bool(t.get("owns_gil")),
            tid=int(t.get("os_thread_id") or 0),
        )
        for t in data
    ]


def stable_part(stacks: Sequence[Sequence[Frame]]) -> tuple[Frame, ...]:
    """The frames, innermost first, that all stacks share from the outermost on: what did not
    move.
    """
    if not stacks:
        return ()
    shared: list[Frame] = []
    for level in zip(*(reversed(s) for s in stacks), strict=False):
        if len({show_frame(f) for f in level}) > 1:
            break
        shared.append(level[0])
    return tuple(reversed(shared))


_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
_TB_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)')
_TB_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")


def parse_traceback(text: str) -> Link | None:
    """The last traceback in a text: for exceptions that no hook of ours has heard."""
    found = list(_TRACEBACK.finditer(text))
    if not found:
        return None
    frames: list[Frame] = []
    for line in text[found[-1].end() :].splitlines():
        if row := _TB_FRAME.fullmatch(line):
            frames.append(Frame(row["file"], row["function"], int(row["line"])))
        elif frames and (error := _TB_ERROR.match(line)):
            return Link(error["type"], error["message"] or "", tuple(reversed(frames)))
    return None
