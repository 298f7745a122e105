"""Run a candidate in a fresh process, as a capture does, and compare its failure."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from reprokit.core.records.finding import Signature
from reprokit.core.reduce import measured_program
from reprokit.core.shared import without_compile
from reprokit.core.shared.contract import run_names
from reprokit.host.probe import isolated_runs
from reprokit.host.probe.candidate import (
    CandidateResult,
    ProbeLimits,
    candidate_request,
    judge_candidate,
    judge_growth,
    judge_results,
    role_overrides,
    role_variables,
)
from reprokit.host.request.target import Target
from reprokit.host.run import launch, run_directory, supervise
from reprokit.host.run.run_directory import RESULTS_FOLDER
from reprokit.host.system import compiler_cache, deletion, files

MIN_STALL_S = 15.0
"""A fresh process first imports torch and runs the C++ compiler, without progress."""


def eager_program(text: str) -> str:
    """Return the program of ``python -c PROGRAM FILE``, which runs a file with this text without
    the compiler.
    """
    # a program may import the functions of AOTInductor by their names
    module = "torch._inductor" if "aoti_" in text else "torch"
    source = inspect.getsource(without_compile)
    return f"{source}\n\nimport {module}\nrun_without_compiler(torch)\n"


def run_in_fresh_process(
    text: str,
    python: str,
    folder: Path,
    wanted: Signature,
    limits: ProbeLimits,
    is_eager: bool = False,
    file: Path | None = None,
    variables: Mapping[str, str] | None = None,
    command: Sequence[str] = (),
) -> CandidateResult:
    """Run a program in the run directory ``folder``, whose old content is deleted first.

    With ``file``, run this file in place instead of a copy of ``text``. The process gets the
    environment variables ``variables``. ``command`` has the words before the file; ``python`` if it
    is empty. Raises KeyboardInterrupt.
    """
    deletion.delete_path(folder, inside=folder.parent)

    def run_role(role: str) -> CandidateResult:
        run_path = folder if role in ("", "compiled") else folder / role
        more = {**(variables or {}), **_variables(role, folder, limits)}
        words = command or (python,)
        return _run(text, python, run_path, wanted, limits, is_eager, file, more, words)

    if limits.sizes and not is_eager:

        def run_size(program: str, size: int) -> CandidateResult:
            return _run(
                program,
                python,
                folder / f"size-{size}",
                wanted,
                limits,
                False,
                None,
                {**(variables or {}), **_variables("", folder, limits)},
                command or (python,),
            )

        return judge_growth(run_size, text, wanted, limits)
    if is_eager or not limits.compares:
        return run_role("")
    try:
        return judge_results(run_role, wanted)
    finally:
        deletion.delete_path(folder / RESULTS_FOLDER, inside=folder)


def _variables(role: str, folder: Path, limits: ProbeLimits) -> dict[str, str]:
    return (
        {
            **role_variables(role, folder),
            run_names.OVERRIDES_VARIABLE: json.dumps(role_overrides(role, limits)),
        }
        if role
        else {}
    )


def _run(
    text: str,
    python: str,
    folder: Path,
    wanted: Signature,
    limits: ProbeLimits,
    is_eager: bool,
    file: Path | None,
    variables: dict[str, str],
    words: Sequence[str],
) -> CandidateResult:
    run_directory.make_folders(folder)
    cwd = None if file else folder  # a file that is run in place needs no other files
    if limits.measures and not is_eager:
        text = measured_program.with_once(text, limits.measures) or text
        variables = {**variables, run_names.MEASURES_VARIABLE: limits.measures}
    file = file or files.write_atomically(folder / run_names.REPRO_FILE, text)
    request = candidate_request(file, python, limits)
    cache = compiler_cache.plain_path(folder / run_names.CACHE_FOLDER)
    own = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    if (
        limits.stage
    ):  # the cache of the writer is empty, and the checks of the C++ compiler are slow
        own |= {"TORCHINDUCTOR_VEC_ISA_OK": "1", run_names.CACHES_VARIABLE: "1"}
    own |= {**launch.simulation_variables(limits.gpu), **variables}
    request = dataclasses.replace(
        request, stall_s=max(request.stall_s, MIN_STALL_S), cwd=cwd, variables=own
    )
    if is_eager:
        words = (python, "-c", eager_program(text))
        request = dataclasses.replace(request, variables={**own, **without_compile.VARIABLES})
    isolation = isolated_runs.alone(limits.isolation, folder)
    given = {**request.variables, **isolated_runs.variables_of(isolation)}
    request = dataclasses.replace(request, variables=given)
    own_folders = [folder]
    if results := variables.get(run_names.RESULTS_DIR_VARIABLE):  # all roles share them
        own_folders.append(Path(results))
        own_folders[1].mkdir(exist_ok=True)
    words = isolated_runs.isolated_command((*words, str(file)), isolation, *own_folders)
    target = Target("command", command=tuple(words))
    request = dataclasses.replace(request, target=target)
    try:
        compiler_cache.copy_cache(
            compiler_cache.kept_cache_folder(python), folder / run_names.CACHE_FOLDER
        )
        outcome = supervise.run_target_once(request, folder)
    finally:
        deletion.delete_path(folder / run_names.CACHE_FOLDER, inside=folder)
    if outcome.is_interrupted:
        raise KeyboardInterrupt
    return judge_candidate(request, outcome, folder, wanted, limits)
