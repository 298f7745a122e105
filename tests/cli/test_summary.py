"""Who reads only the end of a capture knows what happened, where, whose it is, and what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reprokit.cli.shared import summary
from reprokit.core.records.finding import Verdict
from reprokit.host.report.headline import MAX_COLUMNS, cut_at_word, headline
from tests.support import recordings
from tests.support.environments import RECORDED

WRITTEN = ("repro  ", "report  ", "next  ")
"""The lines that end with a path of a file that reprokit wrote, which is not cut."""
SHOW, ISSUE, MINIMIZE = "reprokit show ", "reprokit issue ", "reprokit minimize "
NO = "no: the catalogue has no failure that is like it"
KNOWN = "pytorch/pytorch#196570: KeyError of a buffer"
SETTING = "torch._inductor.config.max_fusion_size = 1"

FAILURES: dict[str, tuple[str, ...]] = {
    "test_commands/a_compile_failure_that_the_program_wraps-1": (
        "exception in backend: ValueError was raised: no lowering for 17 nodes.",
        "train.py:4",
        "your program: torch called backend, and it raised.",
        SHOW,
    ),
    "test_commands/a_crash_before_torch_is_not_a_compiler_bug-1": (
        "error-in-eager: The target was killed by SIGSEGV outside the compiler",
        "train.py:2",
        SHOW,
    ),
    "test_commands/a_rank_that_hangs_under_torchrun-1": (
        "hang in backend: No progress for 10 s.",
        "sleep: at rank.py:3 in backend",
        "your program: torch called backend, and it did not return.",
        SHOW,
    ),
    "test_commands/an_exception_outside_the_compiler_is_not_a_compiler_bug-1": (
        "error-in-eager: The target fails without torch.compile too.",
        "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'",
        "train.py:5",
        "your program",
        SHOW,
    ),
    "test_commands/two_ranks_under_torchrun-1": (
        "wrong-result: Compiled code gives different results than eager on rank 1.",
        "eager gives 2.0, compiled code 3.0",
        "ranks.py",
        "not known: The program's own backend took part",
        SHOW,
    ),
    "test_documents/the_blocks_show_a_recorded_capture-exception-exception_inductor-py-words0-1": (
        "exception in codegen: KeyError was raised: 'buf1'.",
        "your line  samples/exception_inductor.py:12: mask[torch.arange(8)",
        "torch: The failure is in torch/_inductor/loop_body.py:get_read_expr.",
        KNOWN,
        SETTING,
        "6 lines, fails in 1 of 1 fresh runs",
        ISSUE,
    ),
    "test_documents/the_blocks_show_a_recorded_capture-wrong-wrong_result-py-words1-1": (
        "wrong-result in inductor: Compiled code gives different results than eager.",
        "eager gives 16.0, compiled code 12.0",
        "your line  samples/wrong_result.py:15: x[1:] = x[:-1].clone()",
        "torch: it disappears without the post-grad pass `reinplace_inplaceable_ops`",
        "similar to pytorch/pytorch#197829: rows that are shifted through a clone",
        'backend="aot_eager_decomp_partition"',
        "12 lines, fails in 1 of 1 fresh runs",
        ISSUE,
    ),
    "test_ends/out_of_memory_in_the_compiler_is_named-1": (
        "oom in backend: Memory ran out (MemoryError).",
        "oom.py:3",
        "your program: torch called backend, and it ran out of memory.",
        SHOW,
    ),
    "test_ends/stacks_of_a_hang_in_a_child-1": (
        "hang in backend: No progress for 5 s.",
        "child-stuck: process",
        "does nothing, waiting in clock_nanosleep: sleep 1000",
        "hang.py:6",
        "your program: torch called backend, and it did not return.",
        SHOW,
    ),
    "test_hangs/a_factory_that_hangs_is_run_again_for_more_evidence-1": (
        "hang in fx-passes: No progress for 5 s.",
        "lock-deadlock: waits for a lock at hang.py:17 in WaitsForItself.__call__",
        "the owner has ended or is this thread itself",
        "samples/hang.py:17: with lock, lock:",
        "your program: torch called WaitsForItself.__call__, and it did not return.",
        SHOW,
    ),
    "test_hangs/cause_and_phase_of_more_hangs-cxx_sleep-1": (
        "hang in cpp-build: No progress for 5 s.",
        "child-stuck: process",
        "kinds.py:144 in function",
        "torch: The failure is in torch/_inductor/cpp_builder.py:_run_compile_cmd.",
        NO,
        MINIMIZE,
    ),
    "test_hangs/cause_and_phase_of_more_hangs-deadlock-1": (
        "lock-deadlock: threads wait for each other's locks",
        "thread MainThread holds first and waits for second at kinds.py:266 in hang_deadlock",
        "thread cache-writer holds second and waits for first at kinds.py:260",
        "kinds.py:266: with second:",
        "your program: torch called hang_deadlock, and it did not return.",
        "take these locks in the same order in all threads",
        SHOW,
    ),
    "test_hangs/cause_and_phase_of_more_hangs-memory-1": (
        "memory-runaway: process",
        "kinds.py:244 in hang_memory",
        "your program: torch called hang_memory, and it did not return.",
        SHOW,
    ),
    "test_hangs/cause_and_phase_of_more_hangs-phase-first_run-1": (
        "hang in kernel-run: No progress for 5 s at buf0 = torch.ops.hangs.slow.default(arg0_1).",
        "kinds.py:449: time.sleep(LONG_S)",
        "your program: torch called hang_sleep, and it did not return.",
        SHOW,
    ),
    "test_hangs/cause_and_phase_of_more_hangs-unroll_calls-1": (
        "hang in dynamo-trace: Dynamo continued to trace one loop",
        "kinds.py:532 in calls: x = step(x)",
        "caused by  torch",
        NO,
        MINIMIZE,
    ),
    "test_hangs/cause_and_phase_of_more_hangs-worker_sleep-1": (
        "compile-worker-stuck: worker",
        "waits for compile worker",
        "kinds.py:420",
        "your program: torch called in_worker, and it did not return.",
        SHOW,
    ),
    "test_hangs/several_ranks_in_compiled_code-1": (
        "hang in collective: No progress for 5 s.",
        "is not in a collective: sleep at kinds.py:449",
        "waits in a collective",
        "kinds.py:449: time.sleep(LONG_S)",
        "your program: Rank 1 is in your own code",
        SHOW,
    ),
    "test_json/a-proved-repro": (
        "exception in backend: NotImplementedError was raised: erf is too hard.",
        "erf.py:6",
        "your program: torch called picky, and it raised.",
        "9 lines, fails in 1 of 1 fresh runs",
        SHOW,
    ),
    "test_own_code/a_backend_of_the_program_with_wrong_results-1": (
        "wrong-result in backend: Compiled code gives different results than eager.",
        "train.py:4",
        "your program: A part of it fails with the program's own backend",
        'backend="inductor"',
        "run alone in a fresh process it does not fail in the same way",
        SHOW,
    ),
    "test_own_code/a_custom_operator_with_a_wrong_fake_kernel_is_named-x-1-raise-ValueError-three-d"
    "-d7e9d481-1": (
        "exception in dynamo-trace: TorchRuntimeError was raised: RuntimeError when making fake",
        "function in ",
        "your program: The fake kernel of the custom operator mylib::twist raised an exception.",
        SHOW,
    ),
    "test_samples/sample-cpp_compile_error": (
        "exception in cpp-build: CppCompileError was raised",
        "torch: The failure is in torch/_inductor/cpp_builder.py:_run_compile_cmd.",
        "pytorch/pytorch#194706",
        "compute in float32",
        MINIMIZE,
    ),
    "test_silent/an_integer_of_a_cache_is_the_guard_that_fails-1": (
        "recompile-limit",
        "your program",
        SHOW,
    ),
    "test_simulate/why_no_cuda_graph_is_made-1": (
        "cudagraph-skip in cudagraphs: CUDA graphs are skipped",
        "mutated inputs",
        "cache.py:5",
        "your program: The program writes to an input, which CUDA graphs do not allow.",
        "write to a copy of the input",
        SHOW,
    ),
    "test_silent/graph_breaks_fail_when_they_are_not_wanted-2": (
        "graph-break in dynamo-trace: 1 graph break, and 0 allowed",
        "torch._dynamo.graph_break()",
        "breaks.py:4",
        "your program: The program asks for the graph break.",
        "torch says: Remove the `torch._dynamo.graph_break()` call (not tried)",
        SHOW,
    ),
}
"""The facts of each failure, in the order of the lines."""


@pytest.mark.parametrize("name", FAILURES)
def test_the_end_of_a_capture_says_all_that_a_reader_needs(name: str, tmp_path: Path) -> None:
    """At most ten lines of at most 100 columns have the facts, in this order."""
    output = recordings.print_recording(RECORDED / f"cli/{name}.tar.xz", tmp_path)
    rows = output.split("\n\n", maxsplit=1)[0].splitlines()
    assert len(rows) <= summary.MAX_LINES, output
    assert all(len(row) <= MAX_COLUMNS for row in rows if not row.startswith(WRITTEN)), output
    text, at = re.sub(r"\n {11}", " ", "\n".join(rows)), 0
    for fact in FAILURES[name]:
        assert fact in text[at:], f"{fact!r} is not in its place:\n{output}"
        at = text.index(fact, at)
    for file in tmp_path.glob("*/run-*/pack/issue/claims.json"):
        texts = [row["text"] for row in json.loads(file.read_text())]
        assert not [text for text in texts if f"{tmp_path}/" in text]


@pytest.mark.parametrize(
    ("text", "columns", "cut"),
    [
        ("a short text", 20, "a short text"),
        ("one two, three four five", 18, "one two, three ..."),
        ("one two, three four five", 14, "one two ..."),
        ("x" * 30, 12, "x" * 8 + " ..."),
        ("two\n  lines", 20, "two lines"),
    ],
)
def test_a_line_is_cut_at_a_word(text: str, columns: int, cut: str) -> None:
    """A word that is longer than the line is cut too."""
    assert cut_at_word(text, columns) == cut and len(cut) <= columns


def test_a_long_sentence_has_its_details_apart() -> None:
    """The phase is said once, and the cause of a hang is not in its first line."""
    hang = Verdict(
        "hang", "aot", "sleep", "No progress for 5 s, in phase aot (x), sleep: at a.py:1."
    )
    assert headline(hang) == ("hang in aot: No progress for 5 s.", "at a.py:1.")
    long = Verdict("exception", "aot", None, f"KeyError was raised, in phase aot: {'no key ' * 20}")
    assert headline(long)[0] == "exception in aot: KeyError was raised."
    assert headline(long)[1].startswith("no key no key")
