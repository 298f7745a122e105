"""Run the target again on a simulation of the GPU of this machine, and compare the two runs."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from reprokit.core.experiments import simulated_vs_real
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.stacks.location import plural
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory, supervise
from reprokit.host.system import files, host_log

FOLDER = "simulated"
_HEAD = re.compile(r"^[VDIWEF]\d{4} ")
MAX_TRACE_BYTES = 64 << 20


def compare_with_simulation(
    request: Request,
    seen: Observation,
    verdict: Verdict,
    run_path: Path,
    show: supervise.Show | None,
) -> Observation:
    """Return ``seen`` with the disagreements of a simulation of the same GPU.

    Write them to ``simulated.json`` too.

    Raises:
        KeyboardInterrupt: the user interrupted the run.
    """
    folder = run_path / FOLDER
    run_directory.make_folders(folder)
    gpu = request.beside
    simulated_request = dataclasses.replace(
        request, gpu=gpu, beside=None, device=None, weights="auto", kernels="none", compares=False
    )
    outcome = supervise.run_target_once(simulated_request, folder, show)
    if outcome.is_interrupted:
        raise KeyboardInterrupt
    simulated = observation_reader.read_observation(
        simulated_request, outcome, folder, observation_reader.read_journals(folder)
    )
    simulated_verdict = judge_run(simulated)
    sides = (
        simulated_vs_real.summarise_run(
            verdict, sign_verdict(verdict, seen), seen, generated_kernels_of(run_path)
        ),
        simulated_vs_real.summarise_run(
            simulated_verdict,
            sign_verdict(simulated_verdict, simulated),
            simulated,
            generated_kernels_of(folder),
        ),
    )
    rows = simulated_vs_real.list_disagreements(*sides)
    comparison = {
        "gpu": gpu,
        "disagreements": list(rows),
        "device": sides[0].title,
        "simulation": sides[1].title,
        "kernels": [len(side.kernels) for side in sides],
        "graphs": [len(side.graphs) for side in sides],
        "alike": simulated_vs_real.count_alike(*sides),
    }
    files.write_json(run_path / run_names.SIMULATED_FILE, comparison)
    real = sides[0]
    count = f"{plural(len(real.graphs), 'graph')}, {plural(len(real.kernels), 'Triton kernel')}"
    return dataclasses.replace(
        seen, beside=rows or (f"a simulation of this GPU agrees: {count}, the same result",)
    )


def generated_kernels_of(run_path: Path) -> list[str]:
    """Return the modules that Inductor generated, from the logs of TORCH_TRACE."""
    modules = []
    for path in sorted((run_path / run_names.TRACE_FOLDER).glob("*.log*")):
        with files.open_unpacked_file(path) as file:
            text = files.read_at_most(file, MAX_TRACE_BYTES).decode("utf-8", "replace")
        rows: list[str] | None = None
        for line in [*text.splitlines(), "V0000 "]:
            if rows is not None and not _HEAD.match(line):
                rows.append(line.removeprefix("\t"))
                continue
            if rows is not None:
                modules.append("\n".join(rows))
            rows = [] if _is_output(line) else None
    return modules


def _is_output(line: str) -> bool:
    start = line.find("{")
    if '"inductor_output_code"' not in line or start < 0:
        return False
    try:
        return "inductor_output_code" in json.loads(line[start:])
    except ValueError as problem:
        host_log.log_ignored(problem)
        return False
