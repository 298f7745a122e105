"""Ask the agent in another interpreter, and remember its answers for some minutes."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import platformdirs

from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.host.run import launch
from reprokit.host.system import compiler_cache, files
from reprokit.host.system.child_question import NoAnswer, ask_child

QUESTION_S = 60.0
"""Deadline of each question that starts a child; collect_env alone took 6.8 s on a loaded
machine.
"""
LASTS_S = 600.0
"""So long a capture believes what an earlier one was told; two imports of torch are most of what
asking costs.
"""
MATTERING = (
    "PATH",
    "PYTHON",
    "LD_",
    "CUDA",
    "NVIDIA",
    "HIP",
    "ROC",
    "TORCH",
    "PYTORCH",
    "TRITON",
    "INDUCTOR",
    "OMP",
    "MKL",
    "HOME",
    "VIRTUAL_ENV",
    "CONDA",
)
"""Beginnings of the names of variables that an answer may depend on."""
NOT_MATTERING = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"})


def remembered_answer(name: str, python: str, ask: Callable[[], str], age_s: float) -> str:
    """What ``ask`` gives, or gave no longer than ``age_s`` ago in the same surroundings."""
    asked = sorted(
        key for key in os.environ if key.startswith(MATTERING) and key not in NOT_MATTERING
    )
    # with little memory, torch gives no answer
    memory = f"ulimit -v {resource.getrlimit(resource.RLIMIT_AS)}"
    state = compiler_cache.interpreter_state(
        python, more=[memory, *(f"{key}={os.environ[key]}" for key in asked)]
    )
    path = Path(platformdirs.user_cache_dir("reprokit")) / "environment" / f"{state}-{name}.txt"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if 0 <= time.time() - path.stat().st_mtime < age_s:
            return path.read_text(encoding="utf-8")
    text = ask()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_whole(path, text)
    return text


NEEDS = {
    "models": frozenset({launch.FACTORY, launch.TRANSFORMERS}),
    "gpus": frozenset({launch.SIMULATION}),
}
"""First word of a question -> the parts of the agent that answer it."""


def ask_agent(
    python: str,
    words: list[str],
    timeout_s: float,
    folder: Path | None = None,
    more: dict[str, str] | None = None,
) -> Any:
    """The JSON value that the agent answers ``words`` with, in the interpreter ``python``."""
    parts = launch.parts_in(more or {}) | NEEDS.get(words[0], frozenset())
    with launch.agent_folder(folder, parts) as agent:
        environ = {**(more or {}), "PYTHONPATH": launch.python_path(agent)}
        text = ask_child([python, "-m", "_reprokit.agent", *words], timeout_s, environ, (agent,))
    try:
        return json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError) as problem:
        raise NoAnswer(
            f"{python} gave no answer to {words[0]}; it printed {text[-300:]!r}"
        ) from problem


def check_simulation(python: str, gpu: Mapping[str, Any]) -> None:
    """Raise BadInput where the torch of ``python`` cannot be simulated on; where it gives no
    answer, the run says why.
    """

    def ask() -> str:
        with tempfile.TemporaryDirectory(prefix="reprokit-") as folder:
            os.mkdir(os.path.join(folder, run_names.JOURNAL_FOLDER))
            more = {**launch.simulation_variables(gpu), run_names.RUN_DIR_VARIABLE: folder}
            if why := ask_agent(python, ["simulates"], QUESTION_S, more=more):
                raise BadInput(str(why))
        return "{}"

    with contextlib.suppress(NoAnswer):
        remembered_answer("simulates", python, ask, LASTS_S)
