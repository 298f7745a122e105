"""Run a program in a process of its own, as a capture would, and compare its signature with the one
that is wanted.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from reprokit.core.records.finding import Signature
from reprokit.core.shared import without_compile
from reprokit.core.shared.contract import run_names
from reprokit.host.probe.candidate import (
    RESULTS,
    CandidateResult,
    ProbeLimits,
    ask_roles,
    ask_sizes,
    in_role,
    judge_candidate,
    overrides_for,
    request_for,
)
from reprokit.host.request.target import Target
from reprokit.host.run import launch, run_directory, supervise
from reprokit.host.system import compiler_cache, deletion, files

LEAST_STALL_S = 15.0
"""A fresh process imports torch and asks the C++ compiler first, in silence."""


def run_cold(
    text: str,
    python: str,
    folder: Path,
    wanted: Signature,
    limits: ProbeLimits,
    is_eager: bool = False,
    file: Path | None = None,
) -> CandidateResult:
    """Run it below ``folder``, which is emptied first and kept; raises KeyboardInterrupt when
    interrupted.

    ``file`` is run where it lies, instead of a copy of ``text``.
    """
    deletion.delete(folder, inside=folder.parent)

    def one(role: str) -> CandidateResult:
        place = folder if role in ("", "compiled") else folder / role
        return _one(
            text, python, place, wanted, limits, is_eager, file, _variables(role, folder, limits)
        )

    if limits.sizes and not is_eager:

        def sized(program: str, size: int) -> CandidateResult:
            return _one(
                program,
                python,
                folder / f"size-{size}",
                wanted,
                limits,
                False,
                None,
                _variables("", folder, limits),
            )

        return ask_sizes(sized, text, wanted, limits)
    if is_eager or not limits.compares:
        return one("")
    try:
        return ask_roles(one, wanted)
    finally:
        deletion.delete(folder / RESULTS, inside=folder)


def _variables(role: str, folder: Path, limits: ProbeLimits) -> dict[str, str]:
    return (
        {
            **in_role(role, folder),
            run_names.OVERRIDES_VARIABLE: json.dumps(overrides_for(role, limits)),
        }
        if role
        else {}
    )


def _one(
    text: str,
    python: str,
    folder: Path,
    wanted: Signature,
    limits: ProbeLimits,
    is_eager: bool,
    file: Path | None,
    variables: dict[str, str],
) -> CandidateResult:
    run_directory.make_folders(folder)
    place = None if file else folder  # what stands alone reads nothing that lies about
    file = file or files.write_whole(folder / run_names.REPRO_FILE, text)
    request = request_for(file, python, limits)
    own = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / run_names.CACHE_FOLDER),
        "TRITON_CACHE_DIR": str(folder / run_names.CACHE_FOLDER / "triton"),
    }
    own |= {**launch.simulation_variables(limits.gpu), **variables}
    request = dataclasses.replace(
        request, stall_s=max(request.stall_s, LEAST_STALL_S), cwd=place, variables=own
    )
    if is_eager:
        command = Target("command", command=(python, "-c", without_compile.PRELUDE, str(file)))
        request = dataclasses.replace(
            request, target=command, variables={**own, **without_compile.VARIABLES}
        )
    try:
        compiler_cache.copy_cache(
            compiler_cache.kept_cache(python), folder / run_names.CACHE_FOLDER
        )
        outcome = supervise.run_target_once(request, folder)
    finally:
        deletion.delete(folder / run_names.CACHE_FOLDER, inside=folder)
    if outcome.is_interrupted:
        raise KeyboardInterrupt
    return judge_candidate(request, outcome, folder, wanted, bool(limits.sizes))
