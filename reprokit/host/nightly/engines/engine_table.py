"""The table of the engines that run the jobs of a nightly run.

A new engine is a row here, a module in this package, and its name in ``--engine`` of
``reprokit nightly run``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reprokit.host.nightly.engines import local_engine, slurm_engine
from reprokit.host.nightly.schedule.night import Night


@dataclass(frozen=True)
class Engine:
    """One engine."""

    name: str
    run_jobs: Callable[[Night, int | None, Callable[[str], None], Callable[[str], None]], None]
    """Run the remaining jobs, on at most this many cores of this machine. The callbacks get the
    status and messages. Raises KeyboardInterrupt after all running jobs have ended.
    """
    require_available: Callable[[], None] = lambda: None
    """Raises BadInput where the engine cannot work."""
    holds_jobs: Callable[[Path], bool] = lambda folder: False
    """Whether a nightly run has jobs in a queue outside this machine."""
    forget_jobs: Callable[[Path], None] = lambda folder: None
    """Cancel those jobs."""


ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            "local",
            lambda work, cores, show, say: local_engine.run_on_machine(
                work, local_engine.this_machine(cores), show, say
            ),
        ),
        Engine(
            "slurm",
            lambda work, cores, show, say: slurm_engine.run_on_slurm(work, show, say),
            require_available=slurm_engine.check_slurm,
            holds_jobs=slurm_engine.holds_jobs,
            forget_jobs=slurm_engine.forget_jobs,
        ),
    )
}


def forget_all_jobs(folder: Path) -> None:
    """Cancel the jobs that a nightly run has in the queue of any engine."""
    for engine in ENGINES.values():
        engine.forget_jobs(folder)
