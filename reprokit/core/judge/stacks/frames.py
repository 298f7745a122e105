"""Read the stacks of every tool into one form that is the same on every machine.

A normalised file is the path below ``site-packages``, or one of ``<stdlib>/...``, ``<generated>``
(code that Inductor or FX wrote), ``<agent>``, ``<frozen>`` and ``<user>``. ``frames.json`` lists
the frames that are noise.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reprokit.core.records.dumps import Fault, Frame, Link, Raised, ThreadStack

_GENERATED = re.compile(
    r".*/torchinductor_[^/]*/.*|.*/[a-z2-7]{2}/c[a-z2-7]{40,}(\.main)?\.(py|cpp)|<eval_with_key>.*|<lambda_?\w*>"
)
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/(.+)")
_TORCH_TREE = re.compile(
    r".*/(torch/(?:_\w+|fx|nn|utils|distributed|autograd|cuda|xpu|accelerator|func|export|optim|library|functional)[/.].*)"
)
USER = "<user>"
_MODULE = re.compile(r"(?:.*/)?(?P<name>[A-Za-z_]\w*?)(?:/__init__)?\.py")
"""The file of a module that has a name of its own, and not the cell of a notebook."""
_QUALIFIED = re.compile(rf"({USER}:)(?:[\w<>]+\.)+(?=[\w<])")
_OF_MODULE = re.compile(rf"({USER}:)\w+\.(?=[\w<])")
_NORMAL = re.compile(r"<generated>|<stdlib>/.*|<agent>|<user>|(?:torch|triton)/.*")
"""Files that are already normalised."""
_STDLIB = re.compile(r".*/lib(?:64)?/python3\.\d+t?/(.+)")
_AGENT = re.compile(r".*/(?:_reprokit|reprokit/(?:agent|core|integrations))/.*")


def normalise_file(file: str) -> str:
    """Return the machine-independent form of a source path."""
    if file.startswith("<frozen"):
        return "<frozen>"
    if _NORMAL.fullmatch(file):
        return file
    if _GENERATED.fullmatch(file):
        return "<generated>"
    if _AGENT.fullmatch(file):
        return "<agent>"
    for pattern, prefix in ((_PACKAGES, ""), (_TORCH_TREE, ""), (_STDLIB, "<stdlib>/")):
        if match := pattern.fullmatch(file):
            return prefix + match.group(1)
    return USER


def names_generated(text: str) -> bool:
    """Return whether a message names a source file that Inductor wrote."""
    return re.search(r"/[a-z2-7]{2}/c[a-z2-7]{40,}(?:\.main)?\.(?:py|cpp)", text) is not None


def normalise_frames(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Normalise the files of ``frames``. Lines are kept for people, but are never part of an
    identity.

    The function of the user's code gets the name of its module: ``passes.Fuse.__call__``.
    """
    return tuple(_normalised(frame) for frame in frames)


def _normalised(frame: Frame) -> Frame:
    file = normalise_file(frame.file)
    if file != USER or frame.file == USER:
        return Frame(file, frame.function, frame.line)
    module = _MODULE.fullmatch(frame.file)
    name = f"{module['name']}.{frame.function}" if module else frame.function
    return Frame(file, name, frame.line)


def without_owners(text: str) -> str:
    """Return a text with the user's functions without their modules and classes.

    A reduced program is one file, and may have no classes.
    """
    return _QUALIFIED.sub(r"\1", text)


def without_modules(text: str) -> str:
    """Return a text with the user's functions without their modules: a program that was copied
    from an issue has a different file name.
    """
    return _OF_MODULE.sub(r"\1", text)


_ENTERS = re.compile(
    r"<generated>|torch/_inductor/output_code\.py|torch/_functorch/_aot_autograd/runtime_wrappers\.py"
)


def enters_compiled(frame: Frame) -> bool:
    """Return whether a frame is code that Inductor wrote, or calls it. Frames further in belong to
    the kernel.
    """
    return _ENTERS.fullmatch(frame.file) is not None


class FrameRules:
    """The rules of ``frames.json``."""

    def __init__(self, data: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
        self._noise = [_rule(r) for r in data["noise"]]
        self._sentinels = [_rule(r) for r in data["sentinels"]]
        self._compiled = [_rule(r) for r in data["compiled"]]
        self._relays = [re.compile(r["type"]) for r in data["relays"]]

    def significant_frames(
        self, frames: Sequence[Frame], max_frames: int
    ) -> tuple[list[Frame], list[str]]:
        """Return the innermost ``max_frames`` frames that identify a bug, and why the others were
        skipped.

        ``frames`` are normalised, innermost first. The search stops at a sentinel, the entry into
        the compiler or into compiled code: its callers are not part of the bug. User code that the
        compiler calls (a custom pass, backend or operator) is part of it.
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
                if len(kept) == max_frames:
                    break
        return kept, why

    def is_sentinel(self, frame: Frame) -> bool:
        """Return whether a normalised frame is the entry into the compiler or into compiled
        code.
        """
        return bool(_first(self._sentinels, frame))

    def root_exception(self, chain: Sequence[Link]) -> Link:
        """Return the innermost exception that is not a relay."""
        return next((link for link in reversed(chain) if not self.is_relay(link)), chain[-1])

    def is_relay(self, link: Link) -> bool:
        """Return whether an exception only reports a different one, such as that of a child."""
        return any(r.fullmatch(link.type) for r in self._relays)

    def is_compiled(self, frames: Iterable[Frame]) -> bool:
        """Return whether the compiler or compiled code is on the stack."""
        return any(_first(self._compiled, f) for f in frames)


def _rule(row: Mapping[str, str]) -> tuple[re.Pattern[str], re.Pattern[str], str]:
    return re.compile(row.get("file", ".*")), re.compile(row.get("function", ".*")), row["why"]


def _first(rules: list[tuple[re.Pattern[str], re.Pattern[str], str]], frame: Frame) -> str:
    function = frame.function.rsplit(".", 1)[-1]
    for file, name, why in rules:
        if file.fullmatch(frame.file) and name.fullmatch(function):
            return why
    return ""


def show_frame(frame: Frame) -> str:
    """Return a frame as ``torch/_inductor/loop_body.py:get_read_expr``, without the line, which
    changes between versions, and with the class only for the user's code.

    faulthandler does not report classes. The host finds those of the user's code in its source.
    """
    name = frame.function if frame.file == USER else frame.function.rsplit(".", 1)[-1]
    return f"{frame.file}:{name}"


RULES = FrameRules(json.loads(pkgutil.get_data(__package__, "frames.json") or b"{}"))


def root_cause(raised: Raised) -> Link:
    """Return the exception of a chain that identifies the bug."""
    return RULES.root_exception(raised.chain)


_FH_FRAME = re.compile(r'\s+File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')
_FH_THREAD = re.compile(
    r"(?P<current>Current thread|Thread) (?P<id>0x[0-9a-f]+)(?: \[(?P<name>.*)\])? \(most recent"
    r" call first\):.*"
)


MAX_PATH_CHARS = 4096


def _whole(frame: Frame) -> Frame:
    """Return the frame with a valid file. If two threads crash at once, their lines mix, and only
    the file of such a frame is known.
    """
    path = frame.file[:MAX_PATH_CHARS]
    folder, slash, name = path.rpartition("/")  # a folder may be named .pyenv
    stem, suffix, rest = name.partition(".py")
    if not stem or not suffix or rest in ("", "c", "x", "i"):
        return Frame(path, frame.function, frame.line)
    return Frame(folder + slash + stem + suffix, "<torn>", frame.line)


def parse_faulthandler(text: str, pid: int) -> list[ThreadStack]:
    """Read a dump by :mod:`faulthandler`: threads in its order, frames innermost first.

    The main thread is the one whose outermost frame is the program's ``<module>``, or else the last
    one, because CPython lists it last.
    """
    threads: list[tuple[str, bool, list[Frame]]] = []
    for line in text.splitlines():
        if row := _FH_THREAD.fullmatch(line.strip()):
            threads.append((row["name"] or row["id"], row["current"].startswith("Current"), []))
        elif threads and (row := _FH_FRAME.fullmatch(line)):
            number = int(row["line"]) if row["line"].isdigit() else 0
            threads[-1][2].append(_whole(Frame(row["file"], row["function"], number)))
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
# two threads may abort at once, so their lines may alternate
_TERMINATE = re.compile(
    r"terminate called after throwing an instance of"
    r" '(?P<type>[^'\n]+)'\s*\n(?:.*\n){0,3}?\s*what\(\):\s*(?P<what>.*)$",
    re.MULTILINE,
)


_HEAP_ERROR = re.compile(
    r"^(?:(?:free|malloc|realloc|calloc|munmap_chunk|mremap_chunk|malloc_consolidate|sysmalloc"
    r"|malloc_check_get_size|tcache_thread_shutdown)\(?\)?: (?!.*cannot open shared object).+"
    r"|double free or corruption \(.+\)|corrupted size vs\. prev_size.*|corrupted double-linked list.*"
    r"|invalid fastbin entry \(free\)|break adjusted to free malloc space"
    r"|Fatal glibc error: malloc.*|\S+: malloc\.c:\d+: .*[Aa]ssertion .+ failed\.)$",
    re.MULTILINE,
)
"""The messages of glibc's ``malloc_printerr``, and of the assertions in its ``malloc``."""


def parse_fatal(text: str, pid: int) -> Fault | None:
    """Return the last fatal error that faulthandler wrote into ``text``: its name and the stack of
    the failing thread.
    """
    headers = list(_FATAL.finditer(text))
    if not headers:
        return None
    threads = parse_faulthandler(text[headers[-1].start() :], pid)
    current = next((t for t in threads if t.owns_gil), threads[-1] if threads else None)
    return Fault(pid, headers[-1].group(1).strip(), current.frames if current else ())


def parse_terminate(text: str) -> str:
    """Return the error that the C++ runtime reported before ``abort``: ``std::runtime_error:
    message``, only a type or ``std::terminate``, or nothing.
    """
    # The output of a second thread may be anywhere inside that of the first, and its abort may come
    # before the message or the type. Then only the type, if it is there, is reliable.
    alone = text.replace(_AGAIN, "")
    if alone == text:
        errors = list(_TERMINATE.finditer(alone))
        return ": ".join(errors[-1].groupdict().values()) if errors else ""
    types = list(_TYPE.finditer(alone))
    return types[-1]["type"] if types else "std::terminate"


def parse_heap_error(text: str) -> str:
    """Return what glibc reported of a damaged heap before ``abort``; empty if it did not.

    The call that finds the damage is chance: any later ``malloc`` or ``free`` can.
    """
    errors = list(_HEAP_ERROR.finditer(text))
    return errors[-1].group() if errors else ""


def parse_py_spy(text: str, pid: int) -> list[ThreadStack]:
    """Read the output of ``py-spy dump --json``; raises ValueError for anything else."""
    data = json.loads(text)
    if not isinstance(data, list):
        raise ValueError("the output of py-spy is not a list of threads")
    try:
        return _py_spy_threads(data, pid)
    except (TypeError, AttributeError, KeyError) as problem:
        raise ValueError(f"the output of py-spy has no threads: {problem!r}") from problem


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
    """Return the outer frames that all stacks share, innermost first: those that did not move."""
    if not stacks:
        return ()
    shared: list[Frame] = []
    for level in zip(*(reversed(s) for s in stacks), strict=False):
        if len({show_frame(f) for f in level}) > 1:
            break
        shared.append(level[0])
    return tuple(reversed(shared))


_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
_RANK = re.compile(r"(?m)^\[(?:rank|default)\d+\]: ?")
_TB_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)')
_TB_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")


def without_ranks(text: str) -> str:
    """Return a text without what torch.distributed writes before each line of a traceback, and
    torchrun before each line, such as ``[rank0]:``.
    """
    return _RANK.sub("", text)


def parse_traceback(text: str) -> Link | None:
    """Return the last traceback in a text, for exceptions that no hook of the agent saw.

    Its message is the first line, and the next one if the first only announces it with a colon.
    """
    text = without_ranks(text)
    headers = list(_TRACEBACK.finditer(text))
    if not headers:
        return None
    frames: list[Frame] = []
    lines = text[headers[-1].end() :].splitlines()
    for number, line in enumerate(lines, 1):
        if row := _TB_FRAME.fullmatch(line):
            frames.append(Frame(row["file"], row["function"], int(row["line"])))
        elif frames and (error := _TB_ERROR.match(line)):
            message = error["message"] or ""
            if message.endswith(":") and lines[number:]:
                message = f"{message}\n{lines[number]}"
            return Link(error["type"], message, tuple(reversed(frames)))
    return None
