"""Judge programs in one process: each is run by eager, compiled, and compared.

The truth is that of ``agent/results``: a second eager run and a float64 run say whether compiled
code is wrong. What eager does not do either, or does not do twice, is no finding.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import os
import re
import signal
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...core.shared import cuts
from ...core.shared.result_comparison import NUMBERS
from ...core.shared.source import entry_programs
from .. import enter_compiler
from ..record import exceptions
from ..results import compare_results
from ..results.compare_results import DifferenceRow, ResultRows
from ..results.result_recorder import ResultRecorder
from ..run_target import call_model
from ..target import factory
from . import source_table
from .shorten import shorten_program, words_of_program

OK, EAGER_FAILS, EXCEPTION, WRONG = "ok", "eager-fails", "exception", "wrong-result"
NOISE, NAN, SIGNED_ZERO, UNSTEADY, OVERFLOW = "noise", "nan", "signed-zero", "unsteady", "overflow"
"""``unsteady``: eager itself differs in a second run, as with random numbers and uninitialised
memory. ``nan``: one of the two has a NaN where eager and float64 have one or differ.
``signed-zero``: only the sign of a zero differs. ``overflow``: integers beyond their type.
"""
PROGRAM_NAME = "hunted_program"
MAX_MESSAGE = 300


@dataclass(frozen=True)
class Judged:
    """What a program did."""

    kind: str
    detail: str = ""
    """The exception, or the first difference, in one line."""
    group: str = ""
    """Findings with the same group probably have the same cause: the exception with its place in
    torch, or what differs, with the words of the shortened program.
    """


def judge_targets(
    sources: Sequence[str], seed: int, numbers: Sequence[int], path: str, limit_s: int
) -> None:
    """Judge targets of a hunt; target ``number`` is of the source ``number % len(sources)``.

    JSON lines are written to ``path`` for each target: its text before it runs, each stage that
    begins, and what it did. So the last line of a process that has died says what it ran. If a
    source needs a package that the environment lacks, the last line says so, and no target follows.
    The kernel ends the process if a target takes ``limit_s`` seconds; 0 for no limit.
    """
    warnings.simplefilter("ignore")
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in numbers:
        source, began = sources[number % len(sources)], _cpu_s()

        def write(source: str = source, number: int = number, **row: object) -> None:
            row |= {"number": number, "source": source}
            os.write(out, json.dumps(row).encode() + b"\n")

        signal.alarm(limit_s)
        write()
        try:
            text = source_table.write_target(source, seed, number)
        except ImportError as error:
            write(lacks=_one_line(error))
            return
        write(text=text)
        judged = judge_program(text, lambda stage: write(stage=stage))
        write(**dataclasses.asdict(judged), cpu_s=round(_cpu_s() - began, 3))
        if judged.kind == WRONG:
            signal.alarm(limit_s)
            text = shorten_program(text, functools.partial(_is_like, judged))
            group = f"{judged.group} {words_of_program(text)}"
            write(text=text, group=group, cpu_s=round(_cpu_s() - began, 3))
        signal.alarm(0)


def _is_like(judged: Judged, text: str) -> bool:
    """Return whether a program shows the same kind of failure."""
    other = judge_program(text)
    return (judged.kind, judged.group) == (other.kind, other.group)


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def judge_program(text: str, say: Callable[[str], None] = lambda stage: None) -> Judged:
    """Run a program by eager and compiled, and compare; ``say`` gets the name of each stage."""
    torch._dynamo.reset()
    gc.collect()
    say("eager")
    try:
        eager = _run(text, "eager")
    except Exception as error:
        return Judged(EAGER_FAILS, _one_line(error))
    say("compiled")
    try:
        compiled = _run(text, "compiled")
    except Exception as error:
        detail, group = _describe_exception(error)
        return Judged(EXCEPTION, detail, group)
    say("comparison")
    if not compare_results.find_differences(eager, compiled, {}):
        return Judged(OK)
    return _judge_difference(text, eager, compiled)


def _judge_difference(text: str, eager: ResultRows, compiled: ResultRows) -> Judged:
    """Decide with further eager runs whether a difference is a finding."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # it fills uninitialised memory
    try:
        again = _run(text, "again")
    except Exception as error:
        return Judged(UNSTEADY, _one_line(error))
    finally:
        torch.use_deterministic_algorithms(False)
    try:
        wide = _run(text, "float64")
    except Exception:
        wide = {}
    unsteady = {row["name"] for row in compare_results.find_differences(eager, again, {})}
    differences = compare_results.find_differences(eager, compiled, wide)
    if not differences:
        return Judged(NOISE, "within the distance of eager from float64")
    first = differences[0]
    if all(row["name"] in unsteady for row in differences) or _is_random(eager, differences):
        return Judged(UNSTEADY, _difference_text(first))
    wrong = [
        row
        for row in differences
        if row["name"] not in unsteady and row["side"] in ("compiled", "unknown")
    ]
    if not wrong:
        return Judged(NOISE, _difference_text(first))
    kinds = [_class_of(text, row) for row in wrong]
    for kind, row in zip(kinds, wrong, strict=True):
        if kind == WRONG:
            what = "numbers" if row["what"] in NUMBERS else row["what"]
            return Judged(WRONG, _difference_text(row), what)
    return Judged(kinds[0], _difference_text(wrong[0]))


def _class_of(text: str, row: DifferenceRow) -> str:
    """Return ``wrong-result``, or the class of a difference that is no finding."""
    what = row["what"]
    if what == SIGNED_ZERO:
        return SIGNED_ZERO
    if what == "nan" and ("nan" in row["expected"] or "nan" in row.get("reference", "nan")):
        return NAN
    if what in ("integers", "value", "values", "inf") and _overflows(text):
        return OVERFLOW
    return WRONG


def _overflows(text: str) -> bool:
    """Return whether integers of the program leave their type, when eager runs it."""
    from .overflow import watching_integers

    with watching_integers() as seen:
        try:
            _run(text, "eager")
        except Exception:
            return False
    return bool(seen)


def _is_random(eager: ResultRows, differences: Sequence[DifferenceRow]) -> bool:
    rows = [eager.get((row["call"], row["name"])) for row in differences]
    return any(row is not None and row["is_random"] for row in rows)


def _run(text: str, role: str) -> ResultRows:
    """Run a program in a new module, and return what its calls returned and changed."""
    module = types.ModuleType(PROGRAM_NAME)
    sys.modules[PROGRAM_NAME] = module  # Dynamo looks globals up there
    exec(compile(text, f"<{PROGRAM_NAME}>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    torch.manual_seed(0)
    target = factory.call_factory(module.make, PROGRAM_NAME, {})
    recorder = ResultRecorder(role, "")
    is_compiled = role == "compiled"
    inner: Callable[..., Any] = target.model
    if is_compiled:
        entry = target.entry or entry_programs.COMPILE
        inner = enter_compiler.enter_compiler(target.model, entry, target.compile)
    recorded = recorder.record(inner, target.model)
    for args, kwargs in target.calls:
        call_model(recorded, args, kwargs, target.train, lambda loss: loss.backward())
    recorder.note_end()
    return compare_results.index_rows(recorder.rows)


def _describe_exception(error: BaseException) -> tuple[str, str]:
    """Return an exception in one line, and its identity: what was raised where in torch."""
    chain = exceptions.describe_exception(error)
    inner = next((link for link in reversed(chain) if link.frames), chain[-1])
    message = " ".join(inner.message.split())
    errors = [row for link in chain for row in link.message.splitlines() if " error: " in row]
    if errors:  # of a C++ compiler, behind its command
        message = errors[0].partition(" error: ")[2]
    place = ""
    for file, function, _ in inner.frames:
        if "/torch/" in file:
            place = f"{file.rpartition('/torch/')[2]}:{function}"
    plain = re.sub(r"'[^']*'|\d+|0x[0-9a-f]+|/\S+", "#", message)[:80]
    return (
        f"{inner.type}: {cuts.cut_head(message, MAX_MESSAGE)}",
        f"{inner.type} {place} {plain}",
    )


def _one_line(error: BaseException) -> str:
    return cuts.cut_head(f"{type(error).__name__}: {' '.join(str(error).split())}", MAX_MESSAGE)


def _difference_text(row: DifferenceRow) -> str:
    return (
        f"{row['name']}: {row['what']}: eager gives {row['expected']}, compiled code {row['got']},"
        f" float64 {row.get('reference') or 'nothing'}; {row.get('count', 1)} of"
        f" {row.get('total', 1)} differ; wrong side: {row['side']}"
    )[:MAX_MESSAGE]
