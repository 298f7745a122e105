"""Run the repro of a pack in the places of ``--in``, for ``replay`` and ``conditions``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import terminal

if TYPE_CHECKING:
    from reprokit.cli.documents.study_documents import ReplayedPlace
    from reprokit.core.experiments.places import Place
    from reprokit.host.minimize.rerun_repro import ReplayResult
    from reprokit.host.pack import reopen

PLACES = shared.option(
    "--in",
    "places",
    multiple=True,
    metavar="PLACE",
    help=(
        "Where to run it, joined by +: here, isolated (no network), cores=1, cpu=none,"
        " cpu=avx2, memory=8G, gpu=h100 (simulated), gpu=none, root=FOLDER, python=PATH. Can be"
        " repeated."
    ),
)


@dataclass(frozen=True)
class ReplayedIn:
    """The runs of a repro in one place."""

    place: Place
    result: ReplayResult

    def to_json(self) -> ReplayedPlace:
        """Return the JSON object of the place."""
        return {
            "place": self.place.name,
            "python": self.place.python,
            "answer": self.result.answer,
            "hits": self.result.hits,
            "runs": len(self.result.runs),
            "unmet": self.result.unmet,
            "details": [
                {
                    "answer": run.answer,
                    "title": run.signature.title,
                    "seconds": run.seconds,
                    "cpu_s": run.cpu_s,
                }
                for run in self.result.runs
            ],
        }


def check_places(words: Sequence[str]) -> list[Place]:
    """Return the places of ``--in``; raises BadInput for a wrong one."""
    from reprokit.host.minimize import rerun_repro

    return [rerun_repro.check_place(word) for word in words]


def with_interpreters(
    places: Sequence[Place], python: str | None, opened: reopen.OpenedPack
) -> list[Place]:
    """Return places, each with its interpreter.

    Raises BadInput for a device that cannot show the failure of the pack, or for no interpreter.
    """
    from reprokit.host.minimize import rerun_repro

    if not places:
        return []
    for place in places:
        rerun_repro.check_device(place, opened.program, opened.verdict)
    usual = shared.interpreter_option(python)
    return [
        dataclasses.replace(
            place, python=shared.interpreter_option(place.python) if place.python else usual
        )
        for place in places
    ]


def replay_in_places(
    opened: reopen.OpenedPack,
    places: Sequence[Place],
    times: int,
    folder: Path,
    stall: float,
    live: terminal.LiveStatus,
) -> list[ReplayedIn]:
    """Run the repro of a pack ``times`` times in each place; an interrupted place is the last."""
    from reprokit.host.minimize import rerun_repro
    from reprokit.host.system import interrupts

    replayed: list[ReplayedIn] = []
    for index, place in enumerate(places):
        where = f" in {place.name}" if place.name != rerun_repro.HERE_PLACE.name else ""

        def show(number: int, judged: Any, where: str = where) -> None:
            live.show_message(
                f"run {number} of {times}{where}: {judged.answer} ({judged.signature.title}),"
                f" {judged.seconds:.1f} s"
            )

        with interrupts.deferred():
            result = rerun_repro.replay_repro(
                opened.program,
                place.python,
                opened.signature,
                times,
                folder / str(index),
                stall,
                show,
                growth=opened.growth,
                gpu=opened.gpu,
                place=place,
            )
        replayed.append(ReplayedIn(place, result))
        if result.is_interrupted:
            break
    return replayed
