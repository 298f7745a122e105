"""Compare compiled results with eager's: each side in a process of its own, since either may crash
or change its inputs.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from reprokit.core.records.observation import Missing, Observation
from reprokit.core.shared import cuts
from reprokit.host.probe.candidate import RESULTS, SAME_RANDOM, in_role
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory, supervise
from reprokit.host.system import deletion


def run_watched(request: Request, run_path: Path) -> Request:
    """The request whose results are written down for a comparison."""
    if not request.compares:
        return request
    return dataclasses.replace(
        request, variables={**request.variables, **in_role("compiled", run_path)}
    )


def compare_with_eager(
    request: Request,
    seen: Observation,
    run_path: Path,
    missing: list[Missing],
    show: supervise.Show | None,
) -> Observation:
    """Run eager, and what else it takes to know which side is wrong; gives ``seen`` with the
    comparison.
    """
    place = run_path / RESULTS
    try:
        if not any(place.rglob("compiled.pt")):
            missing.append(
                Missing(
                    "comparison with eager", "the run left no results, such as one on fake tensors"
                )
            )
            return seen
        ask = _Asker(request, run_path, show)
        eager = ask("eager")
        if eager.comparison is None:
            why = eager.stderr_tail.strip().splitlines()[-1:] or [
                f"exit status {eager.exit_status}"
            ]
            missing.append(
                Missing(
                    "comparison with eager",
                    f"the run without torch.compile failed: {cuts.cut_head(why[0], 300)}",
                )
            )
            return seen
        found = eager.comparison
        if found.suspects and found.is_random:
            found = ask("compiled", REPROKIT_OVERRIDES=json.dumps(SAME_RANDOM)).comparison or found
        for role in ("again", "float64"):
            if found.suspects:
                found = ask(role).comparison or found
        return dataclasses.replace(seen, comparison=found)
    finally:
        forget_results(run_path)


def forget_results(run_path: Path) -> None:
    """Delete what the runs gave."""
    deletion.delete(run_path / RESULTS, inside=run_path)


class _Asker:
    """Runs the target once in a role, below its run directory."""

    def __init__(self, request: Request, run_path: Path, show: supervise.Show | None) -> None:
        self._request, self._run_path, self._show = request, run_path, show
        self._count = 0

    def __call__(self, role: str, **extra: str) -> Observation:
        self._count += 1
        folder = self._run_path / "compare" / f"{self._count}-{role}"
        run_directory.make_folders(folder)
        changed = {**self._request.variables, **in_role(role, self._run_path), **extra}
        is_compiled = role == "compiled"
        request = dataclasses.replace(
            self._request, compile_it=is_compiled, has_trace=False, variables=changed
        )
        outcome = supervise.run_target_once(request, folder, self._show)
        if outcome.is_interrupted:
            raise KeyboardInterrupt
        return observation_reader.read_observation_of(
            request, outcome, folder, observation_reader.read_journals(folder)
        )
