"""Run a program that was killed in compiled code again, with its C++ built with sanitizers.

AddressSanitizer names the line of the first error, and the agent notes in each line of the
generated C++ which operator it comes from. The libraries are those of the user's GCC.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from reprokit.core.judge.stacks import sanitizer_reports
from reprokit.core.records import stalls
from reprokit.core.records.crash_sites import CrashSite
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import describe_exit
from reprokit.core.shared import sanitizer_flags
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.host.experiments import native_libraries
from reprokit.host.probe.candidate import ProbeLimits, probe_limits_for
from reprokit.host.probe.fresh_process import run_in_fresh_process
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory, supervise
from reprokit.host.system import compiler_cache, deletion, files
from reprokit.host.system.child_commands import CommandFailed, run_for_output

START_S, SLOWER = 60.0, 4.0
"""The deadline of the run: seconds, and times the time of the run that failed."""
MAX_FIRST_S = 600.0
"""A program that ran longer before its crash is not run again."""
ASK_S = 20.0
MAX_REPORT_BYTES = 1 << 20
MAX_SOURCE_BYTES = 4 << 20
MAX_MODULES = 200
FOLDER, CODE_FOLDER = "sanitizers", "generated"
REPORT_FILE = "report"
"""Both sanitizers write to this file, with the process id as its suffix. All of them together are
the file with the suffix ``.txt``.
"""
ASAN_OPTIONS = (
    # only errors that end the program, and none of which code without the sanitizer is a cause
    "detect_leaks=0:detect_odr_violation=0:detect_container_overflow=0:alloc_dealloc_mismatch=0"
    ":new_delete_type_mismatch=0:allocator_may_return_null=1"
    # 2: the handlers of the program, such as that of faulthandler, do not replace these
    ":handle_segv=2:handle_sigbus=2:handle_abort=2:handle_sigfpe=2:handle_sigill=2"
    ":use_sigaltstack=0"  # that stack is too small to read the symbols of torch
)
SIGNALS = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL")


class NoSanitizers(Exception):
    """The machine has no sanitizers for the compiler; the message says what is missing."""


def may_be_compiled_code(verdict: Verdict, seen: Observation) -> bool:
    """Return whether a signal killed the program in compiled code, or after compiled code may have
    damaged its memory.
    """
    if verdict.cause not in SIGNALS or seen.eager == "fails":
        return False
    is_after = verdict.kind == "error-in-eager" and any(graph.is_done for graph in seen.graphs)
    return is_after or (verdict.kind == "crash" and verdict.phase in ("kernel-run", None))


def run_target(
    request: Request, seen: Observation, run_path: Path, show: supervise.Show | None
) -> CrashSite | str:
    """Run the target again, and return the error of the sanitizers, or why there is none."""
    folder = run_path / run_names.FOLLOW_UP_FOLDER / FOLDER

    def run(variables: dict[str, str]) -> Observation:
        run_directory.make_folders(folder)
        limits = _limits(seen, None)
        again = dataclasses.replace(
            request,
            variables={**request.variables, **variables},
            has_trace=False,
            on_stall=stalls.END,
            stall_s=limits.deadline_s,
            deadline_s=limits.wall_s,
        )
        outcome = supervise.run_target_once(again, folder, show)
        if outcome.is_interrupted:
            raise KeyboardInterrupt
        journals = observation_reader.read_journals(folder)
        return observation_reader.read_observation(again, outcome, folder, journals)

    return _read_site(folder, run)


def run_program(
    program: str,
    isolation: Isolation | None,
    python: str,
    wanted: Signature,
    seen: Observation,
    run_path: Path,
) -> CrashSite | str:
    """Run an isolated copy of a program, and return what :func:`run_target` does."""
    folder = run_path / run_names.FOLLOW_UP_FOLDER / FOLDER

    def run(variables: dict[str, str]) -> Observation:
        result = run_in_fresh_process(
            program, python, folder, wanted, _limits(seen, isolation), variables=variables
        )
        return result.seen

    return _read_site(folder, run)


def _limits(seen: Observation, isolation: Isolation | None) -> ProbeLimits:
    return probe_limits_for("crash", START_S + SLOWER * seen.seconds, isolation=isolation)


def _read_site(folder: Path, run: Callable[[dict[str, str]], Observation]) -> CrashSite | str:
    try:
        libraries = find_libraries(os.environ.get("CXX") or "g++")
    except NoSanitizers as problem:
        return str(problem)
    plain = compiler_cache.plain_path(folder)
    code = plain / CODE_FOLDER
    preloaded = [*libraries, *filter(None, [os.environ.get("LD_PRELOAD")])]
    options = f"log_path='{plain / REPORT_FILE}'"
    options += f":stack_trace_format='{sanitizer_reports.STACK_FORMAT}'"
    variables = {
        "LD_PRELOAD": ":".join(preloaded),
        "ASAN_OPTIONS": f"{ASAN_OPTIONS}:{options}",
        "UBSAN_OPTIONS": options,
        "TORCHINDUCTOR_CACHE_DIR": str(code),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",  # its checks run without the sanitizers
        run_names.OVERRIDES_VARIABLE: json.dumps({"sanitizers": True}),
    }
    folder.parent.mkdir(exist_ok=True)
    try:
        ended = run(variables)
        written = _reports_in(folder)
        files.write_atomically(folder / f"{REPORT_FILE}.txt", written)
        report = sanitizer_reports.read_report(written)
        if report is None:
            return _why_no_report(ended)
        culprit = report.culprit
        is_ours = culprit is not None and culprit.is_generated
        cpp = files.read_text(Path(culprit.file), MAX_SOURCE_BYTES) if culprit and is_ours else ""
        modules = [
            files.read_text(path, MAX_SOURCE_BYTES)
            for path in sorted(code.rglob("*.py"))[:MAX_MODULES]
        ]
        site = sanitizer_reports.find_site(report, cpp, modules)
    finally:
        deletion.delete_path(folder / CODE_FOLDER, inside=folder)
    if site is None:
        return "the report of AddressSanitizer has no frame of a program"
    return dataclasses.replace(site, libraries=native_libraries.libraries_of(report))


def _reports_in(folder: Path) -> str:
    """Return what the sanitizers wrote, of all processes; UBSan may use stderr."""
    paths = [folder / run_names.LOGS_FOLDER / run_names.STDERR_FILE]
    paths += sorted(folder.glob(f"{REPORT_FILE}.[0-9]*"))
    return "\n".join(files.read_text(path, MAX_REPORT_BYTES) for path in paths if path.is_file())


def _why_no_report(ended: Observation) -> str:
    if ended.exit_status == 0:
        return "built with AddressSanitizer and UBSan, it passes"
    if ended.is_timed_out or ended.is_stalled:
        return f"built with AddressSanitizer and UBSan, it did not end in {ended.seconds:.0f} s"
    how = describe_exit(ended.exit_status)
    return f"built with AddressSanitizer and UBSan, it ended without a report: {how}"


def find_libraries(compiler: str) -> list[str]:
    """Return the paths of the libraries of the sanitizers of a compiler.

    Raises:
        NoSanitizers: there are none, or the compiler is not GCC.
    """
    if sys.platform != "linux":
        raise NoSanitizers("the sanitizers of GCC are used on Linux only")
    try:
        version = run_for_output([compiler, "--version"], ASK_S)
        if "Free Software Foundation" not in version:
            raise NoSanitizers(f"{compiler} is not GCC, whose sanitizers are used")
        found = [
            run_for_output([compiler, f"-print-file-name={name}"], ASK_S).strip()
            for name in sanitizer_flags.LIBRARIES
        ]
    except CommandFailed as problem:
        raise NoSanitizers(f"{compiler} does not run: {problem}") from problem
    for name, path in zip(sanitizer_flags.LIBRARIES, found, strict=True):
        if not os.path.isfile(path):
            raise NoSanitizers(f"{compiler} has no {name}: install it for this version of GCC")
    return [os.path.realpath(path) for path in found]
