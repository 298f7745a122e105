"""The ablation of a command: run the whole command again for each step.

A step changes the arguments of every ``torch.compile`` in it, or uses a switch that its serving
stack documents. Only ``reprokit ablate`` runs a command more than once for this.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

from reprokit.core.experiments import serving_switches
from reprokit.core.experiments.ablation import EAGER, AblationStep, CompileVariant, ProgramAblation
from reprokit.core.experiments.ablation import own_variants as own_steps
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature
from reprokit.core.records.observation import Observation
from reprokit.core.shared import without_compile
from reprokit.core.shared.contract import run_names
from reprokit.host.experiments.run_ablation import IN_CAPTURE, Show
from reprokit.host.probe.candidate import judge_candidate
from reprokit.host.request.run_request import Request
from reprokit.host.run import run_directory, supervise
from reprokit.host.system import deletion, files
from reprokit.host.system.progress import OperationStatus

FOLDER = "ablation"
ABLATING = "running the command in other ways"
SLOWER, MORE_S = 3.0, 60.0
"""A step may take this many times as long as the run that failed, and this many seconds more."""


def ablate_command(
    request: Request, wanted: Signature, seen: Observation, run_path: Path, show: Show
) -> ProgramAblation:
    """Run every step of a command in its own process, and judge each run.

    A step that does not end in time, as a healthy server does not, has no answer.
    """
    limit_s = SLOWER * seen.seconds + MORE_S
    deadline_s = min(request.deadline_s or limit_s, limit_s)
    plain = dataclasses.replace(request, deadline_s=deadline_s, has_trace=False, compares=False)
    changes = list(_changes(plain, seen))
    status = OperationStatus(ABLATING, total=len(changes))
    steps = []
    for number, (variant, changed) in enumerate(changes, 1):
        status.trying, status.done = variant.name, number
        show(status)
        folder = run_path / FOLDER / str(number)
        run_directory.make_folders(folder)
        outcome = supervise.run_target_once(changed, folder)
        if outcome.is_interrupted:
            raise KeyboardInterrupt
        judged = judge_candidate(changed, outcome, folder, wanted)
        answer, title = judged.answer, judged.signature.title
        if outcome.is_timed_out and answer != same_failure.SAME:
            answer, title = same_failure.UNRESOLVED, f"it did not end within {deadline_s:.0f} s"
        steps.append(
            AblationStep(
                variant.name,
                variant.group,
                answer,
                judged.verdict.kind,
                title,
                round(judged.seconds, 2),
                round(judged.cpu_s, 2),
                variant.overrides,
            )
        )
        deletion.delete_path(folder, inside=run_path)
    return ProgramAblation(tuple(steps))


def _changes(request: Request, seen: Observation) -> Iterator[tuple[CompileVariant, Request]]:
    """Yield each ablation step with the request that runs it."""
    command = request.target.command
    for switch in serving_switches.switches_of(command, _script(command)):
        words = serving_switches.with_switch(command, switch)
        target = dataclasses.replace(request.target, command=words)
        variables = {**request.variables, **switch.variables}
        yield switch.variant, dataclasses.replace(request, target=target, variables=variables)
    for variant in (*own_steps(seen), *IN_CAPTURE):
        overrides = {run_names.OVERRIDES_VARIABLE: json.dumps(dict(variant.overrides))}
        changed = without_compile.VARIABLES if variant is EAGER else overrides
        yield variant, dataclasses.replace(request, variables={**request.variables, **changed})


def _script(command: tuple[str, ...]) -> str:
    name = serving_switches.script_of(command)
    return files.read_text(Path(name)) if name else ""
