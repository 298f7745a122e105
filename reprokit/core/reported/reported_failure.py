"""Read from the text of an issue which failure it reports, with which torch, and on which machine.

The words are those of PyTorch's bug form and of ``torch.utils.collect_env``.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reprokit.core.judge.stacks.messages import normalise_message
from reprokit.core.records.verdict_kinds import FAILED_CHECK, NONDETERMINISTIC, kind_named
from reprokit.core.reported.issue_programs import CodeBlock

MAX_TITLE_CHARS, MAX_ROW_CHARS = 300, 1_000
"""GitHub refuses longer titles; the rest of a longer row is not read."""
MIN_SAME_TYPE, MIN_OTHER_TYPE = 0.3, 0.6
"""The likeness of two messages from which they are the same error: with the same type, without."""
MIN_QUOTED, QUOTED_SHARE = 5, 0.8
"""The fewest words of a message that a log can quote, and the share of them that it must have."""
_WORD = re.compile(r"[A-Za-z]{3,}")
_ERROR = re.compile(
    r"^[ >]*(?:\S{1,200}: )?(?P<types>(?:[A-Za-z_][\w.]{0,120}(?:Error|Exception|Failed|Failure"
    r"|Unsupported|Exceeded|Violation|NotImplemented|Interrupt)\w{0,40}:[ \t]+)+)"
    r"(?P<message>\S.*)$",
    re.MULTILINE,
)
_RAISED = re.compile(r"^(?P<type>[A-Z]\w+(?:Error|Exception)): (?P<message>\S.*)$", re.MULTILINE)
"""The exception inside the message of a wrapper, in a line of its own."""
_IN_TITLE = re.compile(r"(?P<type>[A-Z]\w+(?:Error|Exception|Unsupported))\b:?(?P<message>.*)")
_WRAPPER = re.compile(
    r"(?:BackendCompilerFailed|InductorError|LoweringException|TorchRuntimeError|InternalTorchDynamoError)$"
)
_KINDS = (
    (
        "crash",
        r"seg(?:mentation )?fault|segfaults?|core dumped|SIG(?:SEGV|ABRT|FPE|ILL|BUS)|abort(?:s|ed)"
        r"\b|illegal instruction|floating point exception|process (?:crash|die)"
        r"|memory corruption|corrupt\w* (?:the )?(?:memory|heap|stack)"
        r"|(?:buffer|heap) overflow|double free",
    ),
    (
        "hang",
        r"\bhangs?\b|\bhanging\b|deadlock|never (?:returns|finishes|ends)|infinite loop"
        r"|gets? stuck|\bstuck\b|freezes",
    ),
    ("recompile-limit", r"recompil\w+|cache_size_limit"),
    ("graph-break", r"graph[ -]breaks?"),
    (
        "wrong-result",
        r"(?:wrong|incorrect|inconsistent|different|mismatch\w*|inaccurate|bad)"
        r" (?:\w+ ){0,3}(?:result|output|value|gradient|number|answer|numeric)\w*"
        r"|mismatch|silent\w*|not (?:all)?close|discrepan\w+|diverge\w*"
        r"|(?:results?|outputs?) (?:\w+ ){0,3}differ"
        r"|miscompil\w+|returns? (?:nan|zeros?|inf)|\baccuracy\b|correctness|inconsisten\w+",
    ),
    ("slow-compile", r"(?:slow|long) compil\w*|compil\w+ (?:\w+ ){0,3}(?:slow|too long|forever)"),
    (
        "exception",
        r"\berrors?\b|\bfail(?:s|ed|ure|ures)?\b|exceptions?\b|\braises?\b|\bthrows?\b"
        r"|\bcrash(?:es|ed)?\b|unsupported|not supported|cannot|unable to",
    ),
)
"""Kind of a failure -> words that reports of it have; the first that is found counts."""
_NO_ERROR = re.compile(
    r"\b(?:skip|ignor|bypass)\w*\b.{0,60}\b(?:check|error|exception|validation)"
    r"|(?:does not|doesn't|fails? to) (?:raise|throw|check|validate)"
    r"|\bno (?:error|exception)\b|\bmissing (?:\w+ ){0,2}(?:check|error)"
    r"|\bsilently (?:accept|succeed|return|pass|ignor|run)\w*",
    re.IGNORECASE,
)
"""Titles of reports that compiled code does not raise an error that eager raises."""
_EAGER_RAISES = re.compile(
    r"\b[Ee]ager(?: mode| execution| PyTorch)?(?: correctly| properly| always)?"
    r" (?:raises|throws) (?:an? |the )?[`'\"]?(?P<type>[A-Z]\w{0,60}(?:Error|Exception))\b"
)
_NOT_CLOSE = re.compile(r"(?:Tensor-likes|Scalars) are not (?:close|equal)|not close|allclose|!=")
_TORCH = re.compile(
    r"PyTorch version:\s*(?P<version>\d+\.\d+[\w.+]*)|\btorch==(?P<pin>\d+\.\d+[\w.+]*)"
)
_FLAKY = re.compile(
    r"intermittent|non-?deterministic|sometimes|flaky|randomly|occasionally|race condition",
    re.IGNORECASE,
)
NOTEBOOK = "a notebook"
_MACHINES = {
    "macOS": r"\bOS: (?:macOS|Mac OS)|\bmps\b|Apple M\d",
    "Windows": r"\bOS: (?:Microsoft )?Windows",
    "aarch64": r"\baarch64\b|\barm64\b|Neoverse|Graviton",
    "ROCm": r"ROCM used to build PyTorch: \d|\bgfx\d{3,}",
    "Intel XPU": r"device\s*=\s*['\"]xpu|\.xpu\(|to\(['\"]xpu",
    NOTEBOOK: r"\bipynb\b|[Cc]olab\b|\b[Jj]upyter\b",  # the last one: a machine says more
}
"""Machine -> words of reports from it."""
_VARIABLE = r"(?P<name>[A-Z][A-Z0-9_]+)=(?P<value>'[^'\n]*'|\"[^\"\n]*\"|(?!['\"])[^\s`;&|]*)"
_SETTINGS = re.compile(
    r"(?:TORCH|INDUCTOR|AOT|PYTORCH|TRITON|OMP_|MKL_|KMP_|ATEN_|CUDA_LAUNCH|CUBLAS|ENABLE_|DISABLE_"
    r"|PYTHONHASHSEED)"
)
"""The variables that change how torch compiles or runs a program."""
_PATHS = re.compile(
    r"TORCH_(?:TRACE|LOGS_OUT|HOME|EXTENSIONS_DIR)|TORCHINDUCTOR_CACHE_DIR|\w*_DIR$"
)
"""Variables with folders of the reporter's machine, and of logs, which reprokit writes itself."""
_UNNAMED_VARIABLE = _VARIABLE.replace("?P<name>", "?:").replace("?P<value>", "?:")
_RUN = re.compile(
    rf"^[ \t]*(?:\$ |> )?(?P<variables>(?:(?:env |export )?{_UNNAMED_VARIABLE}[ \t]+)*)"
    r"(?P<program>python[\d.]*|torchrun|accelerate|mpirun|pytest)\b(?P<words>.*)$",
    re.MULTILINE,
)
_EXPORT = re.compile(rf"^[ \t]*(?:\$ )?(?:export |set )?{_VARIABLE}[ \t]*$", re.MULTILINE)
_INLINE = re.compile(rf"`(?:export )?{_VARIABLE}[^`\n]{{0,200}}`")


@dataclass(frozen=True)
class ReportedFailure:
    """What an issue says about its failure."""

    kind: str = ""
    """A kind of verdict; empty if the text does not say it."""
    error: str = ""
    """The type of the innermost exception, without modules."""
    message: str = ""
    """Its message."""
    torch: str = ""
    """The version of torch of the report."""
    machine: str = ""
    """The kind of machine, if it is not Linux on x86-64 with or without an NVIDIA GPU."""
    is_flaky: bool = False
    """The text says that it does not occur in each run."""
    missing_error: str = ""
    """The type of the error that eager raises and compiled code does not, if that is the report."""
    words: frozenset[str] = frozenset()
    """The words of the logs: the message of a wrapper has that of the inner exception."""


@dataclass(frozen=True)
class ReportedCommand:
    """How the report runs its program."""

    variables: dict[str, str]
    arguments: tuple[str, ...] = ()
    launcher: str = ""
    """``torchrun`` or another program that starts several processes; empty for Python alone."""


def read_failure(
    title: str, prose: str, blocks: Sequence[CodeBlock], program: str = ""
) -> ReportedFailure:
    """Return the failure that a text reports.

    ``program`` is the text of the program, whose own messages are no report.
    """
    title, prose = _cut_rows(title[:MAX_TITLE_CHARS]), _cut_rows(prose)
    logs = [_cut_rows(block.text) for block in blocks if not _is_part(block.text, program)]
    said = "\n".join([title, prose])
    whole = "\n".join([said, *(_cut_rows(block.text) for block in blocks)])
    version = next(iter(_TORCH.finditer(whole)), None)
    machine = next((name for name, words in _MACHINES.items() if re.search(words, whole)), "")
    error, message = _last_error([said, *logs]) or _error_of_title(title)
    kind = _kind_of(title)
    if error and kind in ("", "wrong-result"):  # the words of wrong results are used for anything
        kind = "exception"
    kind = kind or _kind_of("\n".join([prose, *logs]))
    if error == "AssertionError" and _NOT_CLOSE.search(message):
        kind, error, message = "wrong-result", "", ""
    if kind in ("wrong-result", "crash", "hang") and error in ("AssertionError", "TimeoutError"):
        error, message = "", ""
    says_less = not error and _NO_ERROR.search(title)  # an error in the logs is what happened
    missing = _EAGER_RAISES.search(prose) if says_less else None
    if missing is not None:
        kind = "wrong-result"
    return ReportedFailure(
        kind,
        error,
        message,
        (version["version"] or version["pin"]) if version else "",
        machine,
        bool(_FLAKY.search(said)),
        missing["type"] if missing is not None else "",
        frozenset(_WORD.findall("\n".join(logs))),
    )


def _cut_rows(text: str) -> str:
    """Return a text with short rows, so that no pattern needs long for a hostile one."""
    return "\n".join(row[:MAX_ROW_CHARS] for row in text.split("\n"))


def _is_part(text: str, program: str) -> bool:
    rows = [row.strip() for row in text.strip().splitlines() if row.strip()]
    return bool(program) and bool(rows) and all(row in program for row in rows[:5])


def _kind_of(text: str) -> str:
    return next((kind for kind, words in _KINDS if re.search(words, text, re.IGNORECASE)), "")


def _error_of_title(title: str) -> tuple[str, str]:
    """Return the type and message of an exception that a title names; both may be empty."""
    found = _IN_TITLE.search(title)
    return (found["type"], found["message"].strip(" `'\"")) if found else ("", "")


def _last_error(texts: Iterable[str]) -> tuple[str, str] | None:
    """Return the type and message of the last exception that texts show; None without one."""
    error, message = "", ""
    for text in texts:
        for match in _ERROR.finditer(text):
            types = [name.strip().rpartition(".")[2] for name in match["types"].split(":")]
            types = [name for name in types if name]
            error, message = types[-1], match["message"].strip()
            if _WRAPPER.search(error) and (inner := _RAISED.search(text, match.end())):
                error, message = inner["type"], inner["message"].strip()
    return (error, message) if error else None


def is_reported(reported: ReportedFailure, kind: str, what: str) -> bool | None:
    """Return whether a failure is the reported one; None if the text says too little.

    ``kind`` is that of the verdict, ``what`` the message of its signature: ``TYPE: MESSAGE``.
    """
    if not reported.kind:
        return None
    if reported.kind == "exception" and kind in ("crash", "wrong-result") and not reported.error:
        return None  # people say "it fails" of all of them
    if kind == "recompile-limit" and reported.error == "FailOnRecompileLimitHit":
        return True
    if kind == "graph-break" and reported.error == "Unsupported":  # with fullgraph=True
        what = f"{reported.error}: {what}"
    elif not _is_same_kind(reported.kind, kind):
        return False
    elif kind not in _WITH_MESSAGE or (kind == FAILED_CHECK and reported.kind != "exception"):
        return True
    if not reported.error:
        return None
    error, _, message = what.partition(": ")
    theirs = normalise_message(reported.message)
    likeness = difflib.SequenceMatcher(
        None, message.split(), theirs.split(), autojunk=False
    ).ratio()
    if error.rpartition(".")[2] == reported.error:
        return likeness >= MIN_SAME_TYPE or not (message and theirs)
    ours = set(_WORD.findall(message))
    is_quoted = len(ours) >= MIN_QUOTED and len(ours & reported.words) >= QUOTED_SHARE * len(ours)
    return likeness >= MIN_OTHER_TYPE or is_quoted


_WITH_MESSAGE = ("exception", "oom", "error-in-eager", FAILED_CHECK)
_FAMILIES = (
    {"exception", "oom", "error-in-eager", FAILED_CHECK},
    {"wrong-result", NONDETERMINISTIC, FAILED_CHECK},
    {"recompile-limit", "recompile-storm"},
)
"""Kinds that a report does not tell apart."""


def _is_same_kind(reported: str, kind: str) -> bool:
    if reported == kind or all(kind_named(one).is_slow for one in (reported, kind)):
        return True
    return any(reported in family and kind in family for family in _FAMILIES)


def read_command(blocks: Sequence[CodeBlock], prose: str) -> ReportedCommand:
    """Return how a text runs its program: settings of torch, arguments and the launcher."""
    variables: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    launcher = ""
    prose = _cut_rows(prose)
    texts = [_cut_rows(one.text) for one in blocks if one.language not in ("python", "py")]
    for text in texts:
        for match in _RUN.finditer(text):
            variables.update(_settings(re.finditer(_VARIABLE, match["variables"])))
            words = _split(match["words"])
            if match["program"] in ("torchrun", "accelerate", "mpirun"):
                launcher = match["program"]
            elif "torch.distributed.run" in words or "torch.distributed.launch" in words:
                launcher = "torchrun"
            elif scripts := [index for index, word in enumerate(words) if word.endswith(".py")]:
                arguments = tuple(words[scripts[0] + 1 :])
        variables.update(_settings(_EXPORT.finditer(text)))
    variables.update(_settings(_INLINE.finditer(prose)))
    return ReportedCommand(variables, arguments, launcher)


def _settings(matches: Iterable[re.Match[str]]) -> dict[str, str]:
    return {
        match["name"]: match["value"].strip("'\"")
        for match in matches
        if _SETTINGS.match(match["name"]) and not _PATHS.match(match["name"])
    }


def _split(words: str) -> list[str]:
    """Return the words of a command up to the first operator of the shell, such as ``|``."""
    lexer = shlex.shlex(words, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] = []
    try:
        for word in lexer:
            if set(word) & set("|&;<>()"):
                return found[:-1] if found and found[-1] == "2" and word.startswith(">") else found
            found.append(word)
    except ValueError:  # a quotation that does not end
        return found
    return found
