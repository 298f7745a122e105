"""Run a repro again and judge whether the failure came back.

``reprokit replay`` and ``reprokit bisect`` use it, also with other interpreters.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.experiments import condition_lines, places
from reprokit.core.experiments.places import Place
from reprokit.core.judge import same_failure
from reprokit.core.judge.finished import NOTHING_COMPILED
from reprokit.core.judge.stacks import phases
from reprokit.core.records.caches import cache_stages
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.reduce import readable, sized_program
from reprokit.core.shared.errors import BadInput
from reprokit.host.environment import simulated_gpu
from reprokit.host.minimize import locate
from reprokit.host.probe.candidate import CandidateResult, probe_limits_for
from reprokit.host.probe.client import ProbeServer
from reprokit.host.probe.fresh_process import run_in_fresh_process
from reprokit.host.system import interrupts
from reprokit.host.system.child_commands import run_for_output

HERE_PLACE = places.Place(places.HERE)


@dataclass(frozen=True)
class ReplayResult:
    """The results of the runs of a repro."""

    runs: tuple[CandidateResult, ...]
    is_interrupted: bool = False

    @property
    def hits(self) -> int:
        """Number of runs that showed the same failure."""
        return sum(run.answer == same_failure.SAME for run in self.runs)

    @property
    def unmet(self) -> str:
        """What this machine lacks to show the failure; empty if a run did not name it."""
        return next((run.unmet for run in self.runs if run.unmet), "")

    @property
    def answer(self) -> str:
        """The first of ``same``, ``unresolved``, ``other`` and ``passes`` that a run answered."""
        answers = [run.answer for run in self.runs]
        for answer in (same_failure.SAME, same_failure.UNRESOLVED, same_failure.OTHER):
            if answer in answers:
                return answer
        return same_failure.PASSES if answers else same_failure.UNRESOLVED


def _about_the_compiler(judged: CandidateResult) -> CandidateResult:
    """Return ``judged`` as unresolved where the compiler did not run.

    A program that fails before its first compile shows nothing about a failure of the compiler.
    """
    verdict = judged.verdict
    is_silent = verdict.kind == "error-in-eager" or NOTHING_COMPILED in verdict.evidence
    is_silent |= (
        verdict.phase is None and verdict.kind != "ok" and judged.answer != same_failure.SAME
    )
    return dataclasses.replace(judged, answer=same_failure.UNRESOLVED) if is_silent else judged


def replay_repro(
    text: str,
    python: str,
    wanted: Signature,
    times: int,
    folder: Path,
    limit_s: float,
    show: Callable[[int, CandidateResult], None] = lambda number, judged: None,
    until: str = "",
    file: Path | None = None,
    growth: Mapping[str, Any] | None = None,
    gpu: Mapping[str, Any] | None = None,
    confirms: bool = True,
    place: Place = HERE_PLACE,
) -> ReplayResult:
    """Run ``text`` in ``times`` fresh processes below ``folder``, or until one answers ``until``.

    A run ends after ``limit_s`` without progress. ``growth`` and the simulated ``gpu`` are those of
    the pack, where it has them. With ``confirms``, wrong results are the same failure only where
    they begin in the same part of the compiler as those of the pack. In a ``place``, only the
    failure itself is compared.
    """
    if place.gpu:
        gpu = None if place.gpu == places.NO_GPU else simulated_gpu.parse_gpu_option(place.gpu)
        text = condition_lines.on_device(text, "cpu" if gpu is None else "cuda")
    limits = probe_limits_for(
        wanted.title.partition(":")[0],
        limit_s,
        growth,
        wants_stacks=True,
        gpu=gpu,
        stage=cache_stages.WARM if same_failure.needs_cache(wanted) else "",
    ).relaxed()
    if limits.sizes and not sized_program.at_size(text, limits.knob, max(limits.sizes)):
        text = sized_program.with_size(readable.flatten_calls(text), limits.knob) or text
    runs: list[CandidateResult] = []
    try:
        seed = condition_lines.hash_seed_of(text)
        with (
            interrupts.allowed(),
            ProbeServer(folder / "server", python, "build", gpu, seed) as server,
        ):
            confirm = locate.LocationCheck(server, text, wanted, limits, python)
            for number in range(times):
                path = folder / f"replay-{number + 1:03d}"
                judged = run_in_fresh_process(
                    text,
                    python,
                    path,
                    wanted,
                    limits,
                    file=file,
                    variables=place.variables,
                    command=place_command(place, python, folder),
                )
                is_usual = confirms and file is None and place.name == places.HERE
                judged = confirm(judged) if is_usual else judged
                runs.append(_about_the_compiler(judged))
                show(number + 1, runs[-1])
                if runs[-1].answer == until:
                    break
    except KeyboardInterrupt:
        return ReplayResult(tuple(runs), is_interrupted=True)
    return ReplayResult(tuple(runs))


def check_place(text: str) -> Place:
    """Return the place of ``--in``; raises BadInput if it is no place, or not on this machine."""
    place = places.parse_place(text)
    if place.gpu not in ("", places.NO_GPU):
        simulated_gpu.parse_gpu_option(place.gpu)
    if place.root:
        place = dataclasses.replace(place, root=str(Path(place.root).resolve()))
    for tool in place.tools():
        if shutil.which(tool) is None:
            raise BadInput(f"--in {text} needs the program {tool}, which is not installed")
    if place.root and not Path(place.root).is_dir():
        raise BadInput(f"--in {text}: {place.root} is not a folder")
    if place.tools():
        done = subprocess.run(
            [*places.NAMESPACES, "true"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise BadInput(
                f"--in {text} needs user namespaces, which this machine forbids:"
                f" {done.stderr.strip()}"
            )
    return place


def check_device(place: Place, text: str, verdict: Verdict) -> None:
    """Raise BadInput for a device on which the program cannot show the failure.

    A simulated GPU runs no kernels. Only a program that can be read moves to a different device.
    """
    if place.gpu:
        try:
            condition_lines.on_device(text, "cpu")
        except ValueError as problem:
            raise BadInput(f"--in {place.name}: the repro is {problem}") from problem
    if place.gpu in ("", places.NO_GPU):
        return
    if kind_named(verdict.kind).compares_results or verdict.phase not in phases.COMPILE_PHASES:
        raise BadInput(
            f"--in {place.name}: a simulated GPU runs no kernels, so it cannot show the failure"
            f" ({verdict.kind}); it shows failures of the compiler"
        )


def place_command(place: Place, python: str, folder: Path) -> tuple[str, ...]:
    """Return the words before the file of a repro that runs in a place."""
    if not place.root:
        return place.command(python)
    prefixes = run_for_output(
        [python, "-I", "-c", "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')"], 60
    )
    shared = (str(folder), *dict.fromkeys(prefixes.splitlines()))
    return place.command(python, f"{folder}-root", shared)
