"""The checks of claims, by the names that ``issue/claims.json`` of a pack has for them."""

from __future__ import annotations

import ast
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .claim_runs import HANGS, DraftedIssue, PlainRun
from .printed_claims import ways_of

COMPARED = ("wrong-result", "nondeterministic")
"""The kinds that do not end a program: compiled results are compared with those of eager."""
UNMET_STATUS, UNMET_WORDS = 77, "cannot show the failure"
"""How a repro ends on a machine that does not have what the failure needs."""
TRUE, FALSE, UNCHECKED = "true", "false", "unchecked"
NO_COMPILE = {"TORCHDYNAMO_DISABLE": "1", "TORCH_COMPILE_DISABLE": "1"}
SHOWN_IN_LOG = {
    "recompile-limit": "torch._dynamo hit config.",
    "graph-break": "Graph break",
    "cudagraph-skip": "skipping cudagraphs",
}
"""Of kinds that do not end a program: the words of torch's log that show them."""
CONDITIONS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "vector instructions": ({"configs": {"torch._inductor.config.cpp.simdlen": 0}}, {}),
    "OpenMP threads": ({}, {"OMP_NUM_THREADS": "2"}),
    "visible CPUs": (
        {"lines": "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"},
        {},
    ),
    "random seed": ({"lines": "torch.manual_seed(12345)"}, {}),
    "default dtype": ({"lines": "torch.set_default_dtype(torch.float64)"}, {}),
    "denormal numbers": ({"lines": "torch.set_flush_denormal(True)"}, {}),
    "fast math": ({"configs": {"torch._inductor.config.cpp.enable_unsafe_math_opt_flag": True}}, {}),
    "compiler caches": ({}, {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}),
    "dynamic shapes": ({"compile": {"dynamic": True}}, {}),
    "hash seed": ({}, {"PYTHONHASHSEED": "1"}),
    "compile workers": ({}, {"TORCHINDUCTOR_COMPILE_THREADS": "1"}),
    "contents of new memory": ({}, {"MALLOC_PERTURB_": "165"}),
    "vector instructions of ATen and Inductor": ({}, {"ATEN_CPU_CAPABILITY": "default"}),
    "free memory": (
        {"lines": "import resource; resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))"},
        {},
    ),
}  # fmt: skip
"""What the repro runs with to check that it does not depend on a condition: changes and variables."""


Check = Mapping[str, Any]
Checker = Callable[[DraftedIssue, Mapping[str, Any], Check], str]


def as_answer(is_true: bool | None) -> str:
    return UNCHECKED if is_true is None else TRUE if is_true else FALSE


def is_failure(drafted: DraftedIssue, done: PlainRun | None, is_repro: bool = False) -> bool | None:
    """Return whether a run failed as the verdict says, by its end and its output."""
    if done is None:
        return None
    if done.status == UNMET_STATUS and UNMET_WORDS in done.text:
        return False
    verdict = drafted.verdict
    kind, cause = verdict["kind"], verdict["cause"] or ""
    if kind in HANGS:
        return done.status is None
    if kind == "crash":
        return done.status is not None and done.status < 0
    # a program that went on after the failure ended with status 0 then, too
    has_gone_on = drafted.request.get("exit_status") == 0
    if kind in SHOWN_IN_LOG and not is_repro and done.status == 0:
        return has_gone_on and SHOWN_IN_LOG[kind] in done.text
    # a program that went on may end with any status in a run without the failure
    if kind in (*COMPARED, "ok") and (done.status == 0 or (has_gone_on and not is_repro)):
        if is_repro:
            return False  # a repro asserts its results
        if not done.found.get("calls"):
            return None  # a child process compiled it
        return bool(done.found.get("differences"))
    if kind == "unknown" and cause == "exit":
        return not done.found  # it ended the process before its end
    if kind == "unknown":
        return None
    if done.status == 0 and kind == "exception":
        if not has_gone_on:
            return False
        # the program caught it, and torch's trace has the failed compile
        rows = [row for row in done.text.splitlines() if '"fail_type": "' in row]
        return any(cause in row for row in rows)
    return done.status not in (0, None)


CHANGES = (
    "compile",
    "configs",
    "without_compile",
    "without_passes",
    "without_application",
    "lines",
    "replaces",
)
"""The changes of a check that :mod:`plain_program` makes."""


def check_fails(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    is_repro = claim["about"] == "the program of the pack"
    if check.get("with") and not check.get("replaces"):
        # what the way changes comes from the documentation of torch where the name says it
        known = next(iter(ways_of(check["with"], ())), None)
        check = {**check, **(known or {}), "how": check["how"]}
        if known is None and not set(check) & set(CHANGES):
            return UNCHECKED
    changes = {k: check[k] for k in CHANGES if k in check}
    changes.update({"compile": {"backend": check["backend"]}} if check.get("backend") else {})
    variables: Mapping[str, str] = {}
    if check.get("with") == "no torch.compile":
        changes = {"without_compile": True}
    elif check.get("of") == "issue" and check.get("torch"):  # the program of the issue itself
        is_real = drafted.request["target"]["command"][-1:] != ["cell.py"]
        return as_answer(_fails_with(drafted, False, {}, {}) if is_real else None)
    elif (
        check.get("entry")
        or check.get("dynamic_sizes")
        or check.get("static_inputs")
        or check.get("moves")
        or (check.get("replaces") and not drafted.has_lines(check["replaces"]))
        or (check.get("of") == "issue" and not check.get("lines"))
    ):
        return UNCHECKED
    if check.get("of") == "issue" and not is_code(str(check.get("lines"))):
        return UNCHECKED  # words
    if name := check.get("condition"):
        if name not in CONDITIONS:
            return UNCHECKED
        if check["how"] == "fails" and _fails_with_all(drafted, claim, is_repro):
            return TRUE
        changes, variables = CONDITIONS[name]
    return as_answer(_fails_with(drafted, is_repro, changes, variables))


def is_code(text: str) -> bool:
    try:
        return "torch." in text and bool(ast.parse(text))
    except SyntaxError:
        return False


def _fails_with(
    drafted: DraftedIssue, is_repro: bool, changes: Mapping[str, Any], variables: Mapping[str, str]
) -> bool | None:
    """Return whether a program fails with these changes; None if no run can tell."""
    compares = drafted.verdict["kind"] in (*COMPARED, "ok") and not is_repro
    if changes.get("without_compile"):
        variables = {**variables, **NO_COMPILE}
    done = drafted.run(is_repro, changes, variables, compares)
    needed = changes.get("without_passes") or changes.get("without_application")
    if needed and done is not None and not done.found.get("left_out"):
        return None  # the run did not reach what it leaves out
    return is_failure(drafted, done, is_repro)


def _fails_with_all(drafted: DraftedIssue, claim: Mapping[str, Any], is_repro: bool) -> bool:
    """Return whether a program fails with all conditions of a statement changed at once."""
    names = [row.get("condition", "") for row in claim["checks"] if row["how"] == "fails"]
    chosen = [CONDITIONS[name] for name in names if name in CONDITIONS]
    changes: dict[str, Any] = {"lines": "\n".join(str(c.get("lines", "")) for c, _ in chosen)}
    for key in ("configs", "compile"):
        changes[key] = {k: v for change, _ in chosen for k, v in change.get(key, {}).items()}
    variables = {k: v for _, more in chosen for k, v in more.items()}
    return len(chosen) > 1 and _fails_with(drafted, is_repro, changes, variables) is True


def check_passes(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    answer = check_fails(drafted, claim, check)
    return {TRUE: FALSE, FALSE: TRUE}.get(answer, UNCHECKED)


FILES_OF_MODULE = {
    "dynamo": "torch/_dynamo/",
    "aot": "torch/_functorch/",
    "inductor": "torch/_inductor/",
    "export": "torch/_?export/",
}
"""Module in a title -> what the traceback of an exception in it has."""


def check_failure(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    compares = check["kind"] in COMPARED
    done = drafted.run(compares=compares)
    is_same = is_failure(drafted, done)
    cause = check["cause"] or ""
    if is_same and done is not None and cause.startswith("SIG"):
        is_same = done.status == -getattr(signal, cause, 0)
    elif is_same and done is not None and check["kind"] in ("exception", "error-in-eager"):
        is_same = cause in done.text
        module = FILES_OF_MODULE.get(claim["text"].partition("]")[0].removeprefix("["))
        if is_same and module and "Traceback (most recent call last)" in done.printed:
            is_same = re.search(module, done.printed) is not None
    return as_answer(is_same)


def fixed_words(text: str) -> list[str]:
    """Return the words of a text that do not depend on a run: no numbers, no hidden parts."""
    text = re.sub(r"<[\w-]+>|'[^']*/[^']*'|/\S+", " \0 ", text)
    text = re.sub(r"0x[0-9a-f]+|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", " \0 ", text.replace("...", "\0"))
    return [piece.strip() for piece in text.split("\0") if re.search(r"\w{3}", piece)]


def check_output(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    done = drafted.run()
    if done is None:
        return UNCHECKED
    if check.get("status") is not None:
        return as_answer(done.status == int(check["status"]))
    if check.get("signal"):
        return as_answer(done.status == -getattr(signal, check["signal"], 0))
    if check.get("is_empty"):
        return as_answer("Traceback (most recent call last)" not in done.printed)
    output = re.sub(r"\s+", " ", done.text.replace("\\n", " ").replace('\\"', '"'))
    if check.get("names"):
        names = [name.rpartition(".")[2] for name in check["names"].split(" > ")]
        return as_answer(all(name in output for name in names))
    return as_answer(
        all(" ".join(piece.split()) in output for piece in fixed_words(check["words"]))
    )


def check_stack(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    done = drafted.run()
    if done is None:
        return UNCHECKED
    if check.get("frame"):
        # the file of code that torch generates has a colon
        file, _, function = check["frame"].rpartition(":")
        name = function.rpartition(".")[2]
        text = "\n".join([done.text, *done.stacks])
        if name not in text:
            # the innermost frame of a loop is a different one in each dump
            is_loop = len(set(done.stacks)) > 1 and f"{file.rpartition('/')[0]}/" in text
            return as_answer(is_loop)
        return as_answer(file.startswith("<") or file in text or Path(file).name in text)
    if not done.stacks:
        return UNCHECKED if done.status is not None else FALSE
    if check.get("direction"):
        is_backward = bool(re.search(r"backward", done.stacks[-1]))
        return as_answer(is_backward == (check["direction"] == "backward"))
    if check.get("no_compiler") is not None:
        main = main_threads(done.stacks[-1])
        compiler = r"torch/_(dynamo|inductor|functorch)/"
        return as_answer(not re.search(compiler, main) if main else None)
    if check.get("quiet_s"):
        return TRUE  # it still runs
    first, second = (
        re.findall(r"^ {4}(\S+)", main_threads(stack) or stack, re.M) for stack in done.stacks
    )
    if check.get("moved"):
        names = re.findall(r"[\w<>]+$", check["moved"].replace(", ", "\n"), re.M)
        return as_answer(first != second or any(name in first for name in names))
    return as_answer(first == second)


def main_threads(dump: str) -> str:
    """Return the main threads of a dump of py-spy, one of each process."""
    return "".join(re.findall(r'^Thread .*"MainThread"\n((?: +.*\n?)*)', dump, re.M))


def check_count(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    compares = drafted.verdict["kind"] in COMPARED
    done = drafted.run(compares=compares)
    if done is None or drafted.verdict["stage"] or "export" in check:
        return UNCHECKED
    if graph := check.get("graph"):
        match = re.match(r"(Dynamo|ATen) graph .*with (\d+) nodes", graph)
        nodes = done.graphs[match[1].lower()] if match else []
        return as_answer(int(match[2]) in nodes if match else None)
    if (
        done.status == 0
        and done.found
        and check.get("breaks", done.found["breaks"]) != done.found["breaks"]
    ):
        return FALSE
    if check.get("recompiles") not in (None, done.text.count("] Recompiling function ")):
        return FALSE
    told = {level: tuple(check.get(level, (0, 0))) for level in ("dynamo", "aten")}
    # torch traces ATen graphs before the joint passes, which may add nodes, and backward graphs that
    # are not compiled
    count, nodes = told["aten"]
    dynamo, traced = done.graphs["dynamo"], done.graphs["aten"]
    if (len(dynamo), sum(dynamo)) != told["dynamo"] or count > len(traced):
        return FALSE
    return as_answer(True if nodes <= sum(traced) else None)
