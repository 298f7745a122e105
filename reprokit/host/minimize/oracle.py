"""Ask whether a program still shows the failure: eager first, then compiled, in forked children,
each answer kept.

Answers are kept by the program's canonical text, in a file, so that nothing is asked twice and a
reduction that was ended goes on where it was: it asks the same questions again and hears the
answers at once.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO

from reprokit.core.judge import same_failure as core
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.reduce import readable
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.host.probe.candidate import (
    PLAIN,
    RESULTS,
    CandidateResult,
    ProbeLimits,
    ask_roles,
    ask_sizes,
    judge_candidate,
    overrides_for,
    request_for,
)
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.probe.fresh_process import run_cold
from reprokit.host.system import deletion, files
from reprokit.host.system.progress import OperationStatus

SLOW_EAGER_S = 1.0
"""A program whose eager run takes longer is asked in eager only when it shows the failure
compiled.
"""
MOST_RESTARTS = 5


class BudgetExhausted(Exception):
    """The budget is used up."""


class Oracle:
    """Answers for one failure; use as a context manager."""

    def __init__(
        self,
        folder: Path,
        server: ProbeServer,
        wanted: Signature,
        limits: ProbeLimits,
        python: str,
        show: Callable[[OperationStatus], None] | None = None,
    ) -> None:
        """``folder`` keeps the answers; ``limits`` hold for each compiled run."""
        self.wanted, self.limits, self.python = wanted, limits, python
        self.status = OperationStatus()
        self.ends = float("inf")
        """Monotonic time at which the budget ends."""
        self.rate = 1.0
        """How often the failure shows in a program that has it."""
        self.is_cold = False
        """Ask in fresh processes only: the warm ones answer differently here."""
        self.last: CandidateResult | None = None
        """The last run that decided an answer."""
        self.has_failed_eager = False
        self.on_same: Callable[[str], None] = lambda text: None
        self._folder, self._server, self._show = folder, server, show
        self._is_eager_slow = False
        self._answers: dict[str, str] = {}
        self._file: IO[str] | None = None
        self._restarts = 0
        self._unknown: set[str] = set()
        self.word = ""
        """A text without it is not asked about: it cannot show the failure, or costs more and says
        less.
        """
        self._carried: dict[str, str] = {}
        self._open()

    def close(self) -> None:
        """Close the file of answers."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def begin(self, text: str, carried: Collection[str] = (), word: str = "") -> None:
        """Start with another program: names that it does not know, its parts need not know either.

        A text without ``word`` cannot show the failure, such as one of a custom backend without
        ``backend=``.

        ``carried`` are sources of custom passes and backends. They stand as they are, or not at
        all: a smaller backend that always raises would show the same failure, and say nothing.
        """
        self._unknown, self.word = unknown_names(ast.parse(text)), word
        self._carried = {
            name: dumped for source in carried for name, dumped in definitions(source).items()
        }

    def holds(self, text: str) -> bool:
        """The program shows the same failure; raises Spent when the budget has ended."""
        return self.ask(text) == core.SAME

    def ask(self, text: str) -> str:
        """One of ``core.judge.same_failure.ANSWERS``."""
        self.status.asked += 1
        tree = parse_program(text)
        if (
            tree is None
            or "compile" not in text
            or self.word not in text
            or unknown_names(tree) - self._unknown
        ):
            return core.OTHER  # it does not parse, compiles nothing, or ends in a NameError
        if self._carried:
            stand = definitions(text)
            if any(self._carried.get(name, dumped) != dumped for name, dumped in stand.items()):
                return core.OTHER
        if not (key := self._key(tree)):
            return core.OTHER
        known = self._answers.get(key)
        if known is None:
            if time.monotonic() > self.ends:
                raise BudgetExhausted
            known = self._asked(text)
            if known != core.UNRESOLVED:  # who got no answer may ask again
                self._answers[key] = known
            self._note(key, known, text)
        if known == core.SAME:
            self.on_same(text)
        return known

    def forget(self, text: str = "") -> None:
        """Ask anew, all or this one, because how it is asked has changed."""
        if text and (tree := parse_program(text)):
            self._answers.pop(self._key(tree), None)
            return
        self._answers.clear()
        self._write({"forget": True})

    def _key(self, tree: ast.Module) -> str:
        """Who asks what: answers of another interpreter, or about another failure, are no answers
        here.
        """
        with contextlib.suppress(RecursionError, ValueError):
            plain = f"{ast.unparse(tree)} {self.wanted.id} {self.python}"
            if self.limits.alone:
                plain += json.dumps(self.limits.alone, sort_keys=True)
            return hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()[:24]
        return ""

    @property
    def said(self) -> str:
        """What the last run that was not the same did instead."""
        return (
            f"{self.last.answer}: {self.last.signature.title}" if self.last else "nothing was run"
        )

    def once(self, text: str, is_eager: bool = False) -> CandidateResult:
        """Run the program one time, warm or cold as it is set, and judge it."""
        if self.is_cold:
            return self.cold(text, is_eager)
        if self.limits.sizes and not is_eager:
            return ask_sizes(
                lambda program, size: self._warm(program, False), text, self.wanted, self.limits
            )
        if is_eager or not self.limits.compares:
            return self._warm(text, is_eager)
        results = self._server.folder / RESULTS
        deletion.delete(results, inside=self._server.folder)
        try:
            return ask_roles(lambda role: self._warm(text, role in PLAIN, role), self.wanted)
        finally:
            deletion.delete(results, inside=self._server.folder)

    def _asked(self, text: str) -> str:
        self.status.probes += 1
        if self._show:
            self._show(self.status)
        self.has_failed_eager = False
        has_eager = (
            not self.limits.compares and not self.limits.is_kernel
        )  # a comparison has an eager run of its own
        if has_eager and not self._is_eager_slow and (eager := self._in_eager(text)) != core.PASSES:
            return eager
        answer = core.UNRESOLVED
        for _ in range(core.repeats_for(self.rate)):
            judged = self.once(text)
            self.last = judged
            answer = judged.answer
            self.has_failed_eager = judged.has_failed_eager
            if answer not in (core.PASSES, core.UNRESOLVED):
                break
            if time.monotonic() > self.ends:
                raise BudgetExhausted
        if (
            answer == core.SAME
            and self._is_eager_slow
            and has_eager
            and (eager := self._in_eager(text)) != core.PASSES
        ):
            return eager
        return answer

    def _in_eager(self, text: str) -> str:
        """``passes``, ``other`` where the program fails without torch.compile too, or
        ``unresolved``.
        """
        judged = self.once(text, is_eager=True)
        self._is_eager_slow |= judged.cpu_s > SLOW_EAGER_S
        if judged.verdict.kind == "ok":
            return core.PASSES
        self.last = judged
        self.has_failed_eager = judged.verdict.kind != "unknown"
        return core.OTHER if self.has_failed_eager else core.UNRESOLVED

    def _warm(self, text: str, is_eager: bool, role: str = "") -> CandidateResult:
        left_s = max(self.ends - time.monotonic(), 0.1)
        limits = dataclasses.replace(self.limits, deadline_s=min(self.limits.deadline_s, left_s))
        try:
            outcome, folder = self._server.run(
                text, limits, is_eager, role, overrides_for(role, limits)
            )
        except ServerLost as problem:
            self._restarts += 1
            if self._restarts > MOST_RESTARTS:
                raise BadInput(f"{problem}; it was started {self._restarts} times") from problem
            gone = Verdict("unknown", None, "server", str(problem))
            return CandidateResult(
                core.UNRESOLVED, gone, Signature("", str(problem), self.wanted.algorithm)
            )
        try:
            if outcome.is_timed_out and limits.deadline_s < self.limits.deadline_s:
                raise BudgetExhausted  # the budget ended it, which says nothing of the program
            request = request_for(folder / run_names.REPRO_FILE, self.python, self.limits)
            return judge_candidate(request, outcome, folder, self.wanted, bool(self.limits.sizes))
        finally:
            deletion.delete(folder, inside=self._server.folder)

    def cold(self, text: str, is_eager: bool = False) -> CandidateResult:
        """Run the program in a process of its own."""
        folder = self._folder / "cold"
        try:
            return run_cold(text, self.python, folder, self.wanted, self.limits, is_eager)
        finally:
            deletion.delete(folder, inside=self._folder)

    def _open(self) -> None:
        """Read the answers of an earlier reduction, and go on writing behind them."""
        path = self._folder / "probes.jsonl"
        for line in files.read_text(path).splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # the last line may be cut
                row = json.loads(line)
                if row.get("forget"):
                    self._answers.clear()
                elif row["answer"] in core.ANSWERS and row["answer"] != core.UNRESOLVED:
                    self._answers[str(row["key"])] = row["answer"]
        with contextlib.suppress(OSError):
            self._file = path.open("a", encoding="utf-8")

    def _note(self, key: str, answer: str, text: str) -> None:
        last = self.last
        row: dict[str, object] = {
            "key": key,
            "answer": answer,
            "lines": lines_of(text),
            "trying": self.status.trying,
        }
        if last is not None and answer == core.OTHER:
            row["title"] = last.signature.title[:200]
        self._write(row)

    def _write(self, row: dict[str, object]) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk costs the memory, not the reduction
                self._file.write(json.dumps(row) + "\n")
                self._file.flush()


def parse_program(text: str) -> ast.Module | None:
    """The program's tree, without layout and comments; None for what is no program, such as a break
    outside a loop.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            compile(tree, run_names.REPRO_FILE, "exec")
        return tree
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def definitions(text: str) -> dict[str, str]:
    """Top-level functions and classes by name, without their layout."""
    with contextlib.suppress(SyntaxError, ValueError):
        kinds = (ast.FunctionDef, ast.ClassDef)
        return {
            n.name: ast.dump(n)
            for n in ast.parse(readable.flatten_calls(text)).body
            if isinstance(n, kinds)
        }
    return {}


def unknown_names(tree: ast.Module) -> set[str]:
    """Names that are read and given nowhere in the program: each is a NameError where it is
    reached.
    """
    given = set(dir(builtins)) | {"__file__", "__name__", "__builtins__", "__class__"}
    read: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else given).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            given.add(node.name)
        elif isinstance(node, ast.arg):
            given.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if any(a.name == "*" for a in node.names):
                return set()
            given |= {a.asname or a.name.split(".")[0] for a in node.names}
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            given.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            given.add(node.rest)
    return read - given


def lines_of(text: str) -> int:
    """Lines that are neither empty nor comments."""
    return sum(1 for row in text.splitlines() if row.strip() and not row.lstrip().startswith("#"))
