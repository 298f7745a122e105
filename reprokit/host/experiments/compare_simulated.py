"""Run once more on a simulated GPU like the one that is here, and say where the two runs
disagree.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from reprokit.core.experiments import simulated_vs_real
from reprokit.core.judge.signature import sign
from reprokit.core.judge.verdict import judge
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory, supervise
from reprokit.host.system import files

FILE = run_names.SIMULATED_FILE
FOLDER = "simulated"
_HEAD = re.compile(r"^[VDIWEF]\d{4} ")


def compare_with_simulation(
    request: Request,
    seen: Observation,
    verdict: Verdict,
    run_path: Path,
    show: supervise.Show | None,
) -> Observation:
    """Give ``seen`` with what a simulation of the same GPU said otherwise; it is kept in
    ``simulated.json`` too.
    """
    folder = run_path / FOLDER
    run_directory.make_folders(folder)
    gpu = request.beside
    asked = dataclasses.replace(
        request, gpu=gpu, beside=None, device=None, weights="auto", kernels="none", compares=False
    )
    outcome = supervise.run_target_once(asked, folder, show)
    if outcome.is_interrupted:
        raise KeyboardInterrupt
    other = observation_reader.read_observation_of(
        asked, outcome, folder, observation_reader.read_journals(folder)
    )
    ended = judge(other)
    sides = (
        simulated_vs_real.summarise_run(
            verdict, sign(verdict, seen), seen, generated_kernels_of(run_path)
        ),
        simulated_vs_real.summarise_run(
            ended, sign(ended, other), other, generated_kernels_of(folder)
        ),
    )
    rows = simulated_vs_real.disagreements(*sides)
    told = {
        "gpu": gpu,
        "disagreements": list(rows),
        "device": sides[0].title,
        "simulation": sides[1].title,
        "kernels": [len(side.kernels) for side in sides],
        "graphs": [len(side.graphs) for side in sides],
    }
    files.write_json(run_path / FILE, told)
    count = f"{len(sides[0].graphs)} graphs, {len(sides[0].kernels)} Triton kernels"
    return dataclasses.replace(
        seen, beside=rows or (f"a simulation of this GPU agrees: {count}, the same ending",)
    )


def generated_kernels_of(run_path: Path) -> list[str]:
    """The modules that Inductor generated, as TORCH_TRACE has them."""
    found = []
    for path in sorted((run_path / run_names.TRACE_FOLDER).glob("*.log")):
        rows: list[str] | None = None
        for line in [*files.read_text(path).splitlines(), "V0000 "]:
            if rows is not None and not _HEAD.match(line):
                rows.append(line.removeprefix("\t"))
                continue
            if rows is not None:
                found.append("\n".join(rows))
            rows = [] if _is_output(line) else None
    return found


def _is_output(line: str) -> bool:
    start = line.find("{")
    if '"inductor_output_code"' not in line or start < 0:
        return False
    try:
        return "inductor_output_code" in json.loads(line[start:])
    except ValueError:
        return False
