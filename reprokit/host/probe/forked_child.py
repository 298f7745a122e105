"""Run a candidate in a forked child of a probe server, and compare its failure."""

from __future__ import annotations

from reprokit.core.records.finding import Signature
from reprokit.core.shared.contract import run_names
from reprokit.host.probe.candidate import (
    UNCOMPILED_ROLES,
    CandidateResult,
    ProbeLimits,
    candidate_request,
    judge_candidate,
    judge_results,
    role_overrides,
)
from reprokit.host.probe.client import ProbeServer
from reprokit.host.run.run_directory import RESULTS_FOLDER
from reprokit.host.system import deletion


def run_in_forked_child(
    server: ProbeServer, text: str, wanted: Signature, limits: ProbeLimits, python: str
) -> CandidateResult:
    """Run a program once; for wrong results, once in each role.

    Raises ServerLost if the server has ended.
    """

    def run(role: str) -> CandidateResult:
        outcome, folder = server.run_program(
            text, limits, role in UNCOMPILED_ROLES, role, role_overrides(role, limits)
        )
        try:
            return judge_candidate(
                candidate_request(folder / run_names.REPRO_FILE, python, limits),
                outcome,
                folder,
                wanted,
                limits,
            )
        finally:
            deletion.delete_path(folder, inside=server.folder)

    if not limits.compares:
        return run("")
    deletion.delete_path(server.folder / RESULTS_FOLDER, inside=server.folder)
    try:
        return judge_results(run, wanted)
    finally:
        deletion.delete_path(server.folder / RESULTS_FOLDER, inside=server.folder)
