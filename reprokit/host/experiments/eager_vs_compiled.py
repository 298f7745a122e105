"""Compare compiled results with those of eager.

Each side runs in its own process, because either may crash or change its inputs.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reprokit.core.judge.stacks import frames
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.records.process_state import describe_exit
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.result_comparison import COMPILED_ROLES, Comparison
from reprokit.host.experiments import follow_up
from reprokit.host.probe.candidate import SAME_RANDOM_NUMBERS, role_variables
from reprokit.host.probe.client import ServerLost
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory, supervise
from reprokit.host.run.run_directory import RESULTS_FOLDER
from reprokit.host.system import compiler_cache, deletion, host_log

RunForked = Callable[[str, Mapping[str, Any]], Observation]
"""Runs the target once in a role, with overrides, in a forked process."""


def request_with_results(request: Request, run_path: Path) -> Request:
    """Return the request, changed so that its run records results for a comparison."""
    if not (request.compares or request.checks_caches):
        return request
    return dataclasses.replace(
        request, variables={**request.variables, **role_variables("compiled", run_path)}
    )


def compare_with_eager(
    request: Request,
    seen: Observation,
    run_path: Path,
    missing: list[Missing],
    show: supervise.Show | None,
    run_forked: RunForked | None = None,
) -> Observation:
    """Run the target in eager, and in more roles where results differ.

    ``run_forked`` runs these other roles in processes that need not import torch; None for a target
    that only fresh processes may run. Return ``seen`` with the comparison, and add to ``missing``
    why there is none. Where the target failed and no result is wrong, also return whether it fails
    in eager.
    """
    try:
        if not any((run_path / RESULTS_FOLDER).rglob("compiled.pt")):
            missing.append(Missing("comparison with eager", "the run left no results"))
            return seen
        run_role = _RoleRunner(request, run_path, show, run_forked)
        eager = run_role("eager")
        seen = dataclasses.replace(
            seen, broken_operator=eager.broken_operator, broken_contract=eager.broken_contract
        )
        if eager.comparison is None:
            if eager.exit_status == 0:
                why = "left no results"
            else:
                said = eager.stderr_tail.strip().splitlines()[-1:]
                why = (
                    f"failed: {cuts.cut_head((said or [describe_exit(eager.exit_status)])[0], 300)}"
                )
            missing.append(Missing("comparison with eager", f"the run without torch.compile {why}"))
            return _with_eager(seen, eager)
        comparison, more = eager.comparison, dict[str, Any]()
        if comparison.suspects and comparison.is_random:
            more = SAME_RANDOM_NUMBERS
            comparison = run_role.compared("compiled", more) or comparison
        for role in ("again", "float64"):
            if comparison.suspects:
                comparison = run_role.compared(role) or comparison
        if comparison.wrong:
            comparison = run_role.compared("repeated", more) or comparison
        seen = dataclasses.replace(
            seen,
            comparison=comparison,
            undefined=run_role.again.undefined,
            undefined_at=run_role.again.undefined_at,
        )
        return seen if comparison.wrong else _with_eager(seen, eager)
    finally:
        if not request.checks_caches:  # the stages are compared with them
            delete_results(run_path)


def _with_eager(seen: Observation, eager: Observation) -> Observation:
    """Return the observation of a run that failed with what the run in eager says about it.

    A run in eager that ends in a different way, or not at all, says nothing.
    """
    if seen.exit_status == 0:
        return seen
    if eager.exit_status == 0:
        return dataclasses.replace(seen, eager="passes", eager_detail="it passes")
    if not raised_alike(seen, eager):
        return seen
    return dataclasses.replace(seen, eager="fails", eager_detail=follow_up.describe_end(eager))


def raised_alike(seen: Observation, other: Observation) -> bool:
    """Return whether two runs ended by exceptions of the same type."""
    if seen.raised is None or other.raised is None:
        return False
    return frames.root_cause(seen.raised).type == frames.root_cause(other.raised).type


def delete_results(run_path: Path) -> None:
    """Delete the recorded results of a run."""
    deletion.delete_path(run_path / RESULTS_FOLDER, inside=run_path)


def eager_folder(run_path: Path) -> Path:
    """Return the run directory of the run in eager."""
    return _role_folder(run_path, 1, "eager")


def _role_folder(run_path: Path, number: int, role: str) -> Path:
    return run_path / "compare" / f"{number}-{role}"


class _RoleRunner:
    """Runs the target once in a role, below its run directory."""

    def __init__(
        self,
        request: Request,
        run_path: Path,
        show: supervise.Show | None,
        run_forked: RunForked | None,
    ) -> None:
        self._request, self._run_path, self._show = request, run_path, show
        self._run_forked = run_forked
        self._count = 0
        self.again = Observation()
        """The second run in eager, if there was one."""

    def compared(self, role: str, overrides: Mapping[str, Any] | None = None) -> Comparison | None:
        """Return the comparison of a run, in a forked process if it leaves one there."""
        seen = Observation()
        if self._run_forked is not None:
            with host_log.suppress(ServerLost):
                seen = self._run_forked(role, overrides or {})
        if seen.comparison is None:
            seen = self(role, overrides)
        self.again = seen if role == "again" else self.again
        return seen.comparison

    def __call__(self, role: str, overrides: Mapping[str, Any] | None = None) -> Observation:
        self._count += 1
        extra = {run_names.OVERRIDES_VARIABLE: json.dumps(overrides)} if overrides else {}
        folder = _role_folder(self._run_path, self._count, role)
        run_directory.make_folders(folder)
        changed = {**self._request.variables, **role_variables(role, self._run_path), **extra}
        if self._request.checks_caches:  # the cache folder of the user is not written
            cache = compiler_cache.plain_path(folder / run_names.CACHE_FOLDER)
            changed["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
        is_compiled = role in COMPILED_ROLES
        request = dataclasses.replace(
            self._request,
            compile_it=is_compiled,
            has_trace=False,
            variables=changed,
            compares_memory=self._request.compares_memory and role == "eager",
        )
        outcome = supervise.run_target_once(request, folder, self._show)
        if outcome.is_interrupted:
            raise KeyboardInterrupt
        return observation_reader.read_observation(
            request, outcome, folder, observation_reader.read_journals(folder)
        )
