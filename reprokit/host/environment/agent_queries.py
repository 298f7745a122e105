"""Query the agent in the target's interpreter, and cache its answers for some minutes."""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import platformdirs

from reprokit import __version__
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.host.run import launch
from reprokit.host.system import compiler_cache, files, host_log
from reprokit.host.system.child_commands import CommandFailed, agent_command, run_for_output

QUERY_TIMEOUT_S = 90.0
"""Timeout of a query that starts a child. On a loaded machine the import of torch takes 20 s, and
the agent gives collect_env 30 s.
"""
CACHE_LIFETIME_S = 600.0
"""Lifetime of a cached answer. Without the cache, each capture would import torch twice more."""
DEFAULTS_LIFETIME_S = 30 * 86_400.0
"""Lifetime of the cached defaults of an installed torch."""
RELEVANT_PREFIXES = (
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
"""Prefixes of the environment variables that an answer may depend on."""
IRRELEVANT_VARIABLES = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"})


def cached_answer(
    name: str, python: str, query: Callable[[], str], max_age_s: float, of_variables: bool = True
) -> str:
    """Return the result of ``query``, or a cached result that is at most ``max_age_s`` old and from
    the same interpreter and, unless it does not depend on them, the same environment variables.
    """
    variables = sorted(
        key
        for key in os.environ
        if of_variables and key.startswith(RELEVANT_PREFIXES) and key not in IRRELEVANT_VARIABLES
    )
    # with little memory, torch cannot be imported
    memory = f"ulimit -v {resource.getrlimit(resource.RLIMIT_AS)}"
    state = compiler_cache.interpreter_digest(
        python, more=[memory, *(f"{key}={os.environ[key]}" for key in variables)]
    )
    path = Path(platformdirs.user_cache_dir("reprokit")) / "environment" / f"{state}-{name}.txt"
    with host_log.suppress(OSError, UnicodeDecodeError):
        if 0 <= time.time() - path.stat().st_mtime < max_age_s:
            return path.read_text(encoding="utf-8")
    text = query()
    with host_log.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_atomically(path, text)
    return text


PARTS_OF_QUERY = {
    "models": frozenset({launch.FACTORY, launch.TRANSFORMERS}),
    "gpus": frozenset({launch.SIMULATION}),
}
"""The parts of the agent that a query needs, by the first word of its command."""


def query_agent(
    python: str,
    words: list[str],
    timeout_s: float,
    folder: Path | None = None,
    variables: dict[str, str] | None = None,
) -> Any:
    """Run the agent command ``words`` in the interpreter ``python``, and return its JSON value.

    ``folder`` receives the copy of the agent. Raises CommandFailed.
    """
    variables = variables or {}
    parts = launch.agent_parts_of_environment(variables)
    parts |= PARTS_OF_QUERY.get(words[0], frozenset())
    with launch.copied_agent(folder, parts) as agent:
        environ = {**variables, "PYTHONPATH": launch.agent_python_path(agent)}
        text = run_for_output(
            agent_command(python, agent, "_reprokit.agent", *words),
            timeout_s,
            environ,
            (agent,),
        )
    try:
        return json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError) as problem:
        raise CommandFailed(
            f"{python} printed no JSON for {words[0]}, but {text[-300:]!r}"
        ) from problem


def query_torch_defaults(python: str) -> dict[str, dict[str, str]]:
    """Return the defaults of torch's compiler settings, as module -> setting -> value.

    A fresh process without the user's variables answers. Raises CommandFailed.
    """
    text = cached_answer(
        f"defaults-{__version__}",
        python,
        lambda: json.dumps(query_agent(python, ["configs"], QUERY_TIMEOUT_S)),
        DEFAULTS_LIFETIME_S,
        of_variables=False,
    )
    defaults: dict[str, dict[str, str]] = json.loads(text)
    return defaults


def check_simulation(python: str, gpu: Mapping[str, Any]) -> None:
    """Raise BadInput if the torch of ``python`` does not support the simulation.

    If the query fails, raise nothing: the run itself then reports the reason.
    """

    def query() -> str:
        with tempfile.TemporaryDirectory(prefix="reprokit-") as folder:
            os.mkdir(os.path.join(folder, run_names.JOURNAL_FOLDER))
            variables = {**launch.simulation_variables(gpu), run_names.RUN_DIR_VARIABLE: folder}
            if reason := query_agent(python, ["simulates"], QUERY_TIMEOUT_S, variables=variables):
                raise BadInput(str(reason))
        return "{}"

    with host_log.suppress(CommandFailed):
        cached_answer("simulates", python, query, CACHE_LIFETIME_S)


def query_hooked_symbols(python: str) -> list[dict[str, Any]]:
    """Return the private symbols of torch that the agent hooks or replaces, and whether ``python``
    has them. Raises BadInput if the query fails.
    """
    try:
        symbols: list[dict[str, Any]] = query_agent(python, ["hooks"], QUERY_TIMEOUT_S)
    except CommandFailed as problem:
        raise BadInput(f"cannot query the torch of {python}: {problem}") from problem
    return symbols
