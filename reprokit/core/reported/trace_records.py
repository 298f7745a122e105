"""Read what torch records of its compiles: ``TORCH_TRACE``, and the ``raw.jsonl`` of tlparse.

A record is a line with a JSON object, and its payload: in a trace the lines behind it that begin
with a tab, in ``raw.jsonl`` a file. The names are those of ``torch/_logging/structured.py`` and of
``CompilationMetrics`` of ``torch/_dynamo/utils.py``, from torch 2.4 on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.judge.stacks.location import plural
from reprokit.core.records import bounded_json

MAX_LINE_CHARS = 4 << 20
MAX_PAYLOAD_CHARS, MAX_KEPT_CHARS = 8 << 20, 128 << 20
"""Limits of one payload, and of all together."""
MAX_RECORDS = 2_000_000
MAX_COMPILES = 20_000
MAX_BREAKS = 1_000
EXPORT = "export"
"""The name of the graphs that are of no frame."""
_PREFIX = re.compile(r"[VIWEC]\d{4} \S+ \d+ [^\]]{1,300}\] ?")
_WANTED = frozenset(
    "torch_version dynamo_output_graph fx_graph_runnable dynamo_error dynamo_graph_break_reason"
    " recompile_reasons dynamo_cpp_guards_str inductor_output_code exported_program reprokit_call"
    " reprokit_error reprokit_difference make_fx_fail_partial".split()
)
"""Records whose payload is read."""
_OF_NO_FRAME = ("dynamo_output_graph", "fx_graph_runnable", "exported_program")
_OF_EXPORT = re.compile(r"torch/_dynamo/functional_export\.py|torch/export/")
"""The files of ``torch.export`` in the user's stack."""
_TRACED = re.compile(r"^ {4}\w+[^=\n]* = ", re.MULTILINE)
_TRACED_AT = re.compile(r"^ {4}# File: (.{1,400}?:\d{1,9}) in ", re.MULTILINE)
"""An operator and its line in the graph that an unfinished trace has."""
_TIME = "_cumulative_compile_time_us"
_METRICS = ("compilation_metrics", "bwd_compilation_metrics")
_VERSION = re.compile(r'"pytorch_version": *"([\w.+]{1,80})"')
_VERSION_OF_PROGRAM = re.compile(r"^# torch version: ([\w.+]{1,80})$", re.MULTILINE)
"""Torch 2.9 writes its version nowhere else."""
_BREAK_AT = re.compile(r"Graph break in user code at ([^\n]{1,400}):(\d{1,9})")
_BREAK_WHY = re.compile(r"Graph Break Reason: ([^\n]{1,600})(?:\n\n([^\n]{1,300}))?")
_BY_BACKEND = re.compile(r"backend='?([^\n']{1,200})'? raised:\n")
_NAMED = re.compile(r"([A-Za-z_][\w.]{0,120}): (.*)", re.DOTALL)
_RAISED = re.compile(
    r"([A-Za-z_][\w.]{0,120}(?:Error|Exception|Failed|Exit|Interrupt|Unsupported)): (.*)", re.DOTALL
)
_GOT = re.compile(
    r"""\bgot ([A-Za-z_]\w{0,80}(?:Error|Exception))\((['"])(.{0,2000}?)\2[,)]""", re.DOTALL
)
"""The error of an operator with fake tensors, as Dynamo quotes it."""
_NOT_RAISED = frozenset(
    {"Unsupported", "SkipFrame", "SkipCodeRecursiveException", "ArgsMismatchError"}
)
"""Errors of Dynamo after which it runs the frame without compiling it."""
_DEFAULTS = {
    "allow_rnn": False,
    "assume_static_by_default": True,
    "automatic_dynamic_shapes": True,
    "capture_dynamic_output_shape_ops": False,
    "capture_scalar_outputs": False,
    "enable_trace_contextlib": True,
    "force_parameter_static_shapes": True,
    "force_unspec_int_unbacked_size_like_on_torchrec_kjt": False,
    "inline_inbuilt_nn_modules": True,
}
"""Settings of Dynamo that change a graph, with the defaults of torch 2.9 to 2.15."""
_LIMIT = ("FailOnRecompileLimitHit", "RecompileLimitExceeded", "CacheSizeLimitExceeded")


@dataclass(frozen=True)
class RecordedBreak:
    """One graph break."""

    place: str
    """``FILE:LINE``; empty if the record does not have it."""
    reason: str


@dataclass
class CompileRecord:
    """One compile of one frame."""

    cid: str
    """``FRAME/COMPILE``, as torch writes it."""
    function: str = ""
    place: str = ""
    """``FILE:LINE`` of the function."""
    error: str = ""
    """The type of the exception that ended it; empty for none."""
    message: str = ""
    traceback: str = ""
    users_place: str = ""
    """``FILE:LINE`` of the user that the exception names."""
    seconds: float | None = None
    times: dict[str, float] = field(default_factory=dict)
    """Part of the compiler -> seconds: ``dynamo``, ``aot_autograd``, ``inductor`` and others."""
    graphs: list[str] = field(default_factory=list)
    """The graphs of Dynamo, as Python text, of the last attempt."""
    exported: list[str] = field(default_factory=list)
    """Programs of ``torch.export``, as torch prints them."""
    runnables: list[str] = field(default_factory=list)
    """The graphs of Inductor, as programs."""
    call: str = ""
    """The call that was compiled, as a program. ``agent/failures`` of reprokit writes it if the
    compile failed and the program saw it.
    """
    why_no_call: str = ""
    tensors: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Source (``L['x']``) -> what torch describes of the tensor."""
    breaks: list[RecordedBreak] = field(default_factory=list)
    recompiled_because: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    """What must hold so that the compiled code is used, as torch prints it."""
    kernels: list[str] = field(default_factory=list)
    """The code that Inductor generated."""
    settings: list[str] = field(default_factory=list)
    """Settings of Dynamo that change its graphs and are not the default, as lines of a program."""
    trains: bool = False
    """AOTAutograd made a graph for backward too."""
    infers: bool = False
    """AOTAutograd made a graph for forward alone, as under ``torch.no_grad``."""
    has_ended: bool = False
    attempt: int = 0

    def texts(self, part: str) -> list[str]:
        """Return the texts of a part of it: ``graphs``, ``guards``, ``recompiles``, ``breaks`` or
        ``kernels``.
        """
        if part == "recompiles":
            return [f"not {guard}" for guard in self.recompiled_because]
        if part == "breaks":
            return [f"{one.place}: {one.reason}" for one in self.breaks]
        return {
            "graphs": self.graphs + self.exported,
            "guards": self.guards,
            "kernels": self.kernels,
        }[part]

    @property
    def is_failure(self) -> bool:
        """Whether an exception ended it that the program saw, or the recompile limit."""
        is_seen = bool(self.call or self.why_no_call) or self.reached_limit or self.is_export
        return bool(self.error) and (is_seen or self.error not in _NOT_RAISED)

    @property
    def is_export(self) -> bool:
        """Whether ``torch.export`` started a compile that failed, which needs a whole graph."""
        return _OF_EXPORT.search(self.message) is not None

    @property
    def reached_limit(self) -> bool:
        """Whether it was not compiled because the function was compiled too often."""
        return self.error in _LIMIT or self.message.startswith("Dynamo recompile limit exceeded")


@dataclass
class RecordedError:
    """An error that a compiled call raised; only records of reprokit have it."""

    error: str
    message: str
    traceback: str


@dataclass(frozen=True)
class RecordedDifference:
    """A result that differs from eager; only records of reprokit have it."""

    function: str
    call: int
    """The number of the call, from 1."""
    name: str
    """``output``, ``argument[0]``, ``buffer 0 running_mean`` and others."""
    expected: str
    got: str
    count: int
    """How many of ``total`` elements differ; 0 if it is no tensor."""
    total: int


@dataclass
class RunRecord:
    """What one process recorded."""

    rank: int | None = None
    torch: str = ""
    compiles: dict[str, CompileRecord] = field(default_factory=dict)
    records: int = 0
    problems: list[str] = field(default_factory=list)
    """What could not be read, in words."""
    cache_misses: int = 0
    error: RecordedError | None = None
    difference: RecordedDifference | None = None
    call: str = ""
    """The call that raised ``error`` or has the ``difference``, as a program."""
    why_no_call: str = ""
    traced_to: str = ""
    """The user's line at which tracing outside of a frame failed, as ``torch.export`` does."""
    traced_count: int = 0
    """The number of operators that were traced before; 0 if no such tracing failed."""

    def of_frame(self, row: CompileRecord) -> list[CompileRecord]:
        """Return the compiles of the function of ``row``, in the order of the record."""
        frame = row.cid.partition("/")[0]
        return [one for one in self.compiles.values() if one.cid.partition("/")[0] == frame]

    @property
    def failed(self) -> CompileRecord | None:
        """The compile that ended the run: one that failed, or else one that did not end."""
        rows = list(self.compiles.values())
        errors = [row for row in rows if row.is_failure]
        open_ones = [row for row in rows if not row.has_ended and not row.error]
        return next(iter([*reversed(errors), *reversed(open_ones)]), None)


def is_trace(text: str) -> bool:
    """Return whether a text begins like a trace, or like ``raw.jsonl``."""
    for line in text.splitlines()[:50]:
        if (found := _PREFIX.match(line)) and line[found.end() : found.end() + 1] == "{":
            return True
    return text.startswith('{"') and any(f'"{name}"' in text[:20_000] for name in _MARKS)


_MARKS = ("frame_compile_id", "dynamo_start", "chromium_event", "compilation_metrics")


def read_trace(lines: Iterable[str], read_payload: Callable[[str], str] | None = None) -> RunRecord:
    """Return what a trace says. Lines that are damaged or cut short are skipped, and counted.

    ``read_payload`` returns the text of a payload file of ``raw.jsonl``.
    """
    run = RunRecord()
    skipped = kept = 0
    tensors: dict[tuple[str, str], dict[str, Any]] = {}
    for record, payload in _records(lines):
        run.records += 1
        if run.records > MAX_RECORDS:
            run.problems.append(f"only the first {MAX_RECORDS} records were read")
            break
        if record is None:
            skipped += 1
            continue
        file = record.get("payload_filename")
        if not payload and isinstance(file, str) and read_payload and _wanted_name(record):
            payload = read_payload(file)
        kept += len(payload)
        if kept > MAX_KEPT_CHARS:
            run.problems.append(f"only the first {MAX_KEPT_CHARS >> 20} MB of graphs were read")
            break
        _take(run, record, payload, tensors)
    if skipped:
        verb = "is" if skipped == 1 else "are"
        run.problems.append(f"{plural(skipped, 'line')} {verb} damaged or cut short")
    return run


def _records(lines: Iterable[str]) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """Yield each record with its payload, if that is wanted; None for a damaged line."""
    record: dict[str, Any] | None = None
    is_wanted, size, payload = False, 0, list[str]()
    is_first = True
    for row in lines:
        line = row[:-2] + "\n" if row.endswith("\r\n") else row  # it went through Windows
        if line.startswith("\t"):
            if is_wanted and size < MAX_PAYLOAD_CHARS:
                payload.append(line[1:])
                size += len(line)
            continue
        found = _PREFIX.match(line)
        text = line[found.end() :] if found else line
        if not text.startswith("{"):
            if found:
                yield None, ""
            continue
        if not is_first:
            yield record, "".join(payload)
        is_first = False
        record, payload, size = _parse(text), [], 0
        is_wanted = record is not None and bool(_wanted_name(record))
    if not is_first:
        yield record, "".join(payload)


def _parse(text: str) -> dict[str, Any] | None:
    if len(text) > MAX_LINE_CHARS:
        return None
    try:
        document = bounded_json.parse_json(text, MAX_LINE_CHARS)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _wanted_name(record: dict[str, Any]) -> str:
    artifact = record.get("artifact")
    name = artifact.get("name") if isinstance(artifact, dict) else None
    if name in _WANTED:
        return str(name)
    return next((name for name in _WANTED if name in record), "")


def _take(
    run: RunRecord,
    record: dict[str, Any],
    payload: str,
    tensors: dict[tuple[str, str], dict[str, Any]],
) -> None:
    """Add one record to what is known."""
    if run.rank is None and isinstance(record.get("rank"), int):
        run.rank = record["rank"]
    name = _wanted_name(record)
    if name == "torch_version":
        found = _VERSION.search(payload)
        run.torch = found[1] if found else run.torch
        return
    if name == "reprokit_error":
        run.error = _error_of(payload)
        return
    if name == "reprokit_difference":
        run.difference = _difference_of(payload)
        return
    if name == "make_fx_fail_partial" and not isinstance(record.get("frame_id"), int):
        run.traced_count = len(_TRACED.findall(payload))
        run.traced_to = next(iter(_TRACED_AT.findall(payload)[-1:]), "")
        return
    if name == "reprokit_call" and not isinstance(record.get("frame_id"), int):
        run.call, run.why_no_call = _call_of(payload)
        return
    artifact = record.get("artifact")
    if isinstance(artifact, dict) and str(artifact.get("name", "")).endswith("cache_miss"):
        run.cache_misses += 1
    metrics = next((m for key in _METRICS if isinstance(m := record.get(key), dict)), None)
    row = _row_of(run, record, name)
    if row is None and metrics is not None and metrics.get("fail_type"):
        # the metrics of torch.export name no frame
        row = next((one for one in run.compiles.values() if not one.has_ended), None)
    if row is None:
        return
    if name in _TAKE_TEXT:
        _TAKE_TEXT[name](row, payload)
        if name == "fx_graph_runnable" and not run.torch:
            found = _VERSION_OF_PROGRAM.search(payload)
            run.torch = found[1] if found else ""
    elif metrics is not None:
        _take_metrics(row, metrics)
    else:
        _take_facts(row, record, tensors)


def _take_facts(
    row: CompileRecord, record: dict[str, Any], tensors: dict[tuple[str, str], dict[str, Any]]
) -> None:
    """Add what a record without a text says."""
    attempt = record.get("attempt")
    if "dynamo_start" in record and isinstance(attempt, int) and attempt > row.attempt:
        row.attempt = attempt
        row.graphs.clear()
    row.trains |= "aot_joint_graph" in record or "aot_backward_graph" in record
    row.infers |= "aot_inference_graph" in record
    if isinstance(facts := record.get("describe_tensor"), dict):
        tensors[_key_of(facts)] = facts
    elif isinstance(source := record.get("describe_source"), dict):
        key = _key_of(source)
        if key in tensors and isinstance(source.get("source"), str):
            row.tensors[source["source"]] = tensors[key]


def _take_call(row: CompileRecord, payload: str) -> None:
    row.call, row.why_no_call = _call_of(payload)


def _take_error(row: CompileRecord, payload: str) -> None:
    row.traceback = payload


def _take_break(row: CompileRecord, payload: str) -> None:
    if len(row.breaks) < MAX_BREAKS:
        row.breaks.append(_break_of(payload))


def _take_reasons(row: CompileRecord, payload: str) -> None:
    row.recompiled_because = _reasons(payload)


_TAKE_TEXT: dict[str, Callable[[CompileRecord, str], None]] = {
    "dynamo_output_graph": lambda row, payload: row.graphs.append(payload),
    "exported_program": lambda row, payload: row.exported.append(payload),
    "fx_graph_runnable": lambda row, payload: row.runnables.append(payload),
    "dynamo_cpp_guards_str": lambda row, payload: row.guards.append(payload),
    "inductor_output_code": lambda row, payload: row.kernels.append(payload),
    "reprokit_call": _take_call,
    "dynamo_error": _take_error,
    "dynamo_graph_break_reason": _take_break,
    "recompile_reasons": _take_reasons,
}
"""Name of a record -> what its text adds to a compile."""


def _key_of(facts: dict[str, Any]) -> tuple[str, str]:
    return str(facts.get("describer_id")), str(facts.get("id"))


def _row_of(run: RunRecord, record: dict[str, Any], name: str) -> CompileRecord | None:
    """Return the compile of a record. Graphs of ``torch.export`` are of no frame."""
    frame, number = record.get("frame_id"), record.get("frame_compile_id")
    is_of_frame = isinstance(frame, int) and isinstance(number, int)
    if not is_of_frame and name not in _OF_NO_FRAME:
        return None
    cid = f"{frame}/{number}" if is_of_frame else EXPORT
    if cid not in run.compiles:
        if len(run.compiles) >= MAX_COMPILES:
            return None
        run.compiles[cid] = CompileRecord(cid, has_ended=not is_of_frame)
    return run.compiles[cid]


def _take_metrics(row: CompileRecord, metrics: dict[str, Any]) -> None:
    row.has_ended = True
    row.function = str(metrics.get("co_name") or row.function)
    if metrics.get("co_filename"):
        row.place = f"{metrics['co_filename']}:{metrics.get('co_firstlineno')}"
    if isinstance(seconds := metrics.get("entire_frame_compile_time_s"), (int, float)):
        row.seconds = float(seconds)
    for name, value in metrics.items():
        part = name.removesuffix(_TIME)
        if part != name and isinstance(value, int) and value > 0:
            row.times[part[:40]] = row.times.get(part[:40], 0.0) + value / 1e6
    row.settings = _settings_of(metrics.get("dynamo_config"))
    if metrics.get("fail_type"):
        row.error = str(metrics["fail_type"]).rpartition(".")[2]
        row.message = str(metrics.get("fail_reason") or "")
        if metrics.get("fail_user_frame_filename"):
            line = metrics.get("fail_user_frame_lineno")
            row.users_place = f"{metrics['fail_user_frame_filename']}:{line}"


def _settings_of(text: Any) -> list[str]:
    try:
        found = bounded_json.parse_json(text) if isinstance(text, str) else None
    except ValueError:
        return []
    values = found if isinstance(found, dict) else {}
    return [
        f"torch._dynamo.config.{name} = {values[name]}"
        for name, usual in _DEFAULTS.items()
        if isinstance(values.get(name), bool) and values[name] is not usual
    ]


def _call_of(text: str) -> tuple[str, str]:
    """Return a call as a program, or else why there is none, which is a comment."""
    return ("", text.strip("# \n")) if text.startswith("#") else (text, "")


def _error_of(text: str) -> RecordedError | None:
    try:
        found = bounded_json.parse_json(text)
    except ValueError:
        return None
    facts = found if isinstance(found, dict) else {}
    return RecordedError(*(str(facts.get(name, "")) for name in ("type", "message", "traceback")))


def _difference_of(text: str) -> RecordedDifference | None:
    try:
        found = bounded_json.parse_json(text)
    except ValueError:
        return None
    facts = found if isinstance(found, dict) else {}

    def number(name: str) -> int:
        value = facts.get(name)
        return value if isinstance(value, int) else 0

    function, name, expected, got = (
        str(facts.get(key, ""))[:200] for key in ("function", "name", "expected", "got")
    )
    return RecordedDifference(
        function, number("call"), name, expected, got, number("count"), number("total")
    )


def _break_of(text: str) -> RecordedBreak:
    at, why = _BREAK_AT.search(text), _BREAK_WHY.search(text)
    reason = (why[2] or why[1]) if why else next(iter(text.strip().splitlines()), "")[:300]
    return RecordedBreak(f"{at[1]}:{at[2]}" if at else "", reason.strip())


def _reasons(text: str) -> list[str]:
    """Return why a function was compiled again: the first line of each guard that failed."""
    try:
        rows = bounded_json.parse_json(text, MAX_PAYLOAD_CHARS)
    except ValueError:
        rows = [text]
    rows = rows if isinstance(rows, list) else [text]
    return [str(row).split("\n", 1)[0][:400].strip() for row in rows[:64]]


def raised_by(row: CompileRecord) -> tuple[str, str]:
    """Return the type and the message of the innermost exception of a compile."""
    text = _BY_BACKEND.sub("", row.message)
    if text != row.message and (found := _NAMED.match(text)):
        return found[1].rpartition(".")[2], found[2]
    if found := _GOT.search(text):
        return found[1], found[3]
    if found := _RAISED.match(text):
        return found[1].rpartition(".")[2], found[2]
    return row.error, row.message


def backend_of(row: CompileRecord) -> str:
    """Return the backend that raised, if the error names it."""
    found = _BY_BACKEND.match(row.message)
    return found[1] if found else ""
