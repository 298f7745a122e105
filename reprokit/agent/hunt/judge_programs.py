"""Judge programs in one process: each is run by eager, compiled, and compared.

The truth is that of ``agent/results``: a second eager run and a float64 run say whether compiled
code is wrong. What eager does not do either, or does not do twice, is no finding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import json
import math
import os
import re
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ...core.shared import cuts
from ...core.shared.hunted_programs import Steering
from ...core.shared.result_comparison import NUMBERS
from ..record import exceptions
from ..results import compare_results
from ..results.compare_results import DifferenceRow, ResultRows
from . import handlers, mutants, option_pairs, source_table
from .run_programs import ProgramRaised, run_program
from .shorten import shorten_program, words_of_program

OK, EAGER_FAILS, EXCEPTION, WRONG = "ok", "eager-fails", "exception", "wrong-result"
NOISE, NAN, SIGNED_ZERO, UNSTEADY, OVERFLOW = "noise", "nan", "signed-zero", "unsteady", "overflow"
OWN_CHECK, AS_PARENT, REFUSED = "own-check", "as-parent", "refused"
"""``unsteady``: eager itself differs in a second run, as with random numbers and uninitialised
memory. ``nan``: one of the two has a NaN where eager and float64 have one or differ.
``signed-zero``: only the sign of a zero differs. ``overflow``: integers beyond their type.
``own-check``: the program's own assertion fails, and no result differs. ``as-parent``: a changed
program fails as the program that it was made of. ``refused``: torch says that it does not support
this.
"""
MAX_MESSAGE = 300
MAX_SHORTEN_S = 30.0
"""The time to shorten a program that runs alone."""
_REFUSALS = re.compile(
    r"does not yet handle|banned as the behavior|not yet (supported|implemented)|not supported yet"
    r"|NotImplementedError|is(n't| not) supported"
)
"""What torch says about programs that it refuses on purpose."""
_OF_FAKE_TENSORS = re.compile(
    r"failed to run FX node with fake tensors: (?P<call>.*?)\(\*.*?: got (?P<problem>.*)"
)
"""What Dynamo says about an operator that fails on fake tensors."""


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
    sources: Sequence[str],
    seed: int,
    numbers: Sequence[int],
    path: str,
    limit_s: int,
    steering: Mapping[str, Steering],
) -> None:
    """Judge targets of a hunt; target ``number`` is of the source ``number % len(sources)``.

    JSON lines are written to ``path`` for each target: its text before it runs, each stage that
    begins, and what it did. So the last line of a process that has died says what it ran. If a
    source needs a package that the environment lacks, the last line says so, and no target follows.
    The kernel ends the process if a target takes ``limit_s`` seconds; 0 for no limit. ``steering``
    has what the programs of each source have run.
    """
    warnings.simplefilter("ignore")
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    seen = handlers.watch_handlers()
    for number in numbers:
        source, began = sources[number % len(sources)], _cpu_s()

        def write(source: str = source, number: int = number, **row: object) -> None:
            row |= {"number": number, "source": source.partition("=")[0]}
            os.write(out, json.dumps(row).encode() + b"\n")

        signal.alarm(limit_s)
        write()
        state = steering.get(source.partition("=")[0])
        try:
            text, chosen = source_table.write_target(source, seed, number, state)
        except ImportError as error:
            write(lacks=str(error))
            return
        write(text=text, chosen=chosen)
        seen.clear()
        judged = judge_program(text, lambda stage: write(stage=stage))
        ran = sorted(seen)
        parent = mutants.parent_of(source, text)
        if parent and judged.kind in (EXCEPTION, WRONG):
            signal.alarm(limit_s)
            judged = _beside_parent(judged, judge_program(parent))
        row = dataclasses.asdict(judged) | {"group": _group_of(judged, text)}
        write(**row, ran=ran, cpu_s=round(_cpu_s() - began, 3))
        if judged.kind in (EXCEPTION, WRONG):
            signal.alarm(limit_s)
            is_same = functools.partial(_is_like, judged)
            text = option_pairs.reduce_options(text, is_same)
            if judged.kind == WRONG:
                text = shorten_program(text, is_same, limit_s / 2 if limit_s else MAX_SHORTEN_S)
            write(text=text, group=_group_of(judged, text), cpu_s=round(_cpu_s() - began, 3))
        signal.alarm(0)


def _group_of(judged: Judged, text: str) -> str:
    """Return the identity of a finding within a hunt: also the options and the words of its
    program.
    """
    options = [f"option {name}" for name in option_pairs.options_of(text)]
    words = [words_of_program(text)] if judged.kind == WRONG else []
    return " ".join(filter(None, [judged.group, *options, *words]))


def _beside_parent(judged: Judged, parent: Judged) -> Judged:
    """Return the outcome of a changed program: it is no finding if its parent fails alike."""
    if (judged.kind, judged.group) != (parent.kind, parent.group):
        return judged
    return dataclasses.replace(judged, kind=AS_PARENT)


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
        eager = run_program(text, "eager")
    except ProgramRaised as raised:
        return Judged(EAGER_FAILS, _one_line(raised))
    say("compiled")
    has_raised = False
    try:
        compiled = run_program(text, "compiled")
    except ProgramRaised as raised:
        cause = raised.__cause__ or raised
        if not _is_own_check(cause):
            detail, group = _describe_exception(cause)
            return Judged(REFUSED if _REFUSALS.search(detail) else EXCEPTION, detail, group)
        compiled, has_raised = raised.rows, True
    say("comparison")
    if not compare_results.find_differences(eager, compiled, {}, has_compiled_raised=has_raised):
        return Judged(OWN_CHECK if has_raised else OK)
    return _judge_difference(text, eager, compiled, has_raised)


def _is_own_check(error: BaseException) -> bool:
    """Return whether an assertion of the program failed, and none of torch."""
    frames = exceptions.describe_exception(error)[-1].frames
    files = [file for file, _, _ in frames if "/torch/testing/" not in file]
    return isinstance(error, AssertionError) and bool(files) and "/torch/" not in files[0]


def _judge_difference(
    text: str, eager: ResultRows, compiled: ResultRows, has_raised: bool
) -> Judged:
    """Decide with further eager runs whether a difference is a finding."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # it fills uninitialised memory
    try:
        again = run_program(text, "again")
    except ProgramRaised as raised:
        return Judged(UNSTEADY, _one_line(raised))
    finally:
        torch.use_deterministic_algorithms(False)
    try:
        wide = run_program(text, "float64")
    except ProgramRaised as raised:
        wide = raised.rows if has_raised else {}
    unsteady = {row["name"] for row in compare_results.find_differences(eager, again, {})}
    differences = compare_results.find_differences(
        eager, compiled, wide, has_compiled_raised=has_raised
    )
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
    if _is_rounding(text, eager, wrong):
        return Judged(NOISE, f"eager with other roundings: {_difference_text(wrong[0])}")
    kinds = [_class_of(text, row) for row in wrong]
    for kind, row in zip(kinds, wrong, strict=True):
        if kind == WRONG:
            what = "numbers" if row["what"] in NUMBERS else row["what"]
            return Judged(WRONG, _difference_text(row), what)
    return Judged(kinds[0], _difference_text(wrong[0]))


def _is_rounding(text: str, eager: ResultRows, wrong: Sequence[DifferenceRow]) -> bool:
    """Return whether eager differs as much as compiled code where it rounds otherwise."""
    from .rounding import rounding_otherwise

    moved: dict[tuple[int, str], list[DifferenceRow]] = {}
    for sign in (1, -1):
        with contextlib.suppress(ProgramRaised), rounding_otherwise(sign):
            for row in compare_results.find_differences(eager, run_program(text, "eager"), {}):
                moved.setdefault((row["call"], row["name"]), []).append(row)
    return all(
        any(_is_as_large(other, row) for other in moved.get((row["call"], row["name"]), ()))
        for row in wrong
    )


def _is_as_large(other: DifferenceRow, row: DifferenceRow) -> bool:
    """Return whether a difference is at least a quarter of another one of the same leaf."""
    if other["what"] not in NUMBERS or row["what"] not in NUMBERS:
        return other["what"] == row["what"]
    sizes = (float(one.get("max_abs", 0.0)) for one in (other, row))
    (size, most), counts = sizes, (other.get("count", 1), row.get("count", 1))
    return (size >= most / 4 or not math.isfinite(most)) and counts[0] >= counts[1] / 4


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
            run_program(text, "eager")
        except ProgramRaised:
            return False
    return bool(seen)


def _is_random(eager: ResultRows, differences: Sequence[DifferenceRow]) -> bool:
    rows = [eager.get((row["call"], row["name"])) for row in differences]
    return any(row is not None and row["is_random"] for row in rows)


def _describe_exception(error: BaseException) -> tuple[str, str]:
    """Return an exception in one line, and its identity: what was raised where in torch."""
    chain = exceptions.describe_exception(error)
    inner = next((link for link in reversed(chain) if link.frames), chain[-1])
    message = " ".join(inner.message.split())
    errors = [row for link in chain for row in link.message.splitlines() if " error: " in row]
    if errors:  # of a C++ compiler, behind its command
        message = errors[0].partition(" error: ")[2]
    if fake := _OF_FAKE_TENSORS.search(message):
        message = f"{fake['call']}: {fake['problem']}"
    places = [
        f"{file.rpartition('/torch/')[2]}:{function}"
        for file, function, _ in inner.frames  # the innermost first
        if "/torch/" in file
    ]
    place = places[0] if places else ""
    named = message.partition(" args[")[0]  # of a lowering: its operator
    plain = re.sub(r"'[^']*'|0x[0-9a-f]+|\d+|/\S+", "#", named)[:80]
    return (
        f"{inner.type}: {cuts.cut_head(message, MAX_MESSAGE)}",
        f"{inner.type} {place} {plain}",
    )


def _one_line(raised: ProgramRaised) -> str:
    error = raised.__cause__ or raised
    return cuts.cut_head(f"{type(error).__name__}: {' '.join(str(error).split())}", MAX_MESSAGE)


def _difference_text(row: DifferenceRow) -> str:
    return (
        f"{row['name']}: {row['what']}: eager gives {row['expected']}, compiled code {row['got']},"
        f" float64 {row.get('reference') or 'nothing'}; {row.get('count', 1)} of"
        f" {row.get('total', 1)} differ; wrong side: {row['side']}"
    )[:MAX_MESSAGE]
