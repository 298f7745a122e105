"""Recognise a command that compiles one kernel with Triton alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from reprokit.core.judge.stacks.phases import TRITON_STAGES
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import Process
from reprokit.core.shared.source import triton_programs as programs
from reprokit.host.experiments.kernel_checks import write_reproducer
from reprokit.host.minimize.starts import program_source
from reprokit.host.request.run_request import Request
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import files


def may_be_own_kernel(request: Request, seen: Observation, verdict: Verdict) -> bool:
    """Return True for a command that failed in a stage of Triton, without torch."""
    is_stage = request.target.kind == "command" and verdict.phase in TRITON_STAGES
    return is_stage and not seen.has_instrumentation and not seen.kernel


def isolate_own_kernel(
    request: Request, seen: Observation, journals: Journals, run_path: Path
) -> Observation:
    """Return ``seen`` with the kernel of a command that compiles it with Triton alone.

    Return ``seen`` unchanged for any other command.
    """
    text = program_source.own_source(request, journals).text
    if not programs.is_kernel_program(text):
        return seen
    name = f"{Path(request.target.command[-1]).stem[:80]}.py"
    (run_path / run_names.KERNELS_FOLDER).mkdir(exist_ok=True)
    files.write_atomically(run_path / run_names.KERNELS_FOLDER / name, text)
    write_reproducer(
        run_path, text, journals.last_event_of_type(Process).executable or request.python
    )
    return dataclasses.replace(seen, kernel=name, kernels=1)
