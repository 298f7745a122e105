"""The common shape of all measurements, and the options that several of them take."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import pkgutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from . import measurements
from .harness import BadInput, MeasurementFailed
from .results import Column, Result, Row, current_environment, today


def _no_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing."""


def _no_summary(rows: Sequence[Row]) -> list[str]:
    """Return no line."""
    return []


@dataclass(frozen=True)
class Measurement:
    """What a measurement prints, takes and does."""

    columns: tuple[Column, ...]
    measure_rows: Callable[[argparse.Namespace], Iterator[Row]]
    """Yield each row as soon as it is measured."""
    add_options: Callable[[argparse.ArgumentParser], None] = _no_options
    summarise_rows: Callable[[Sequence[Row]], list[str]] = _no_summary
    """Return sentences about all rows; they become notes of the result."""

    def run_measurement(
        self,
        name: str,
        command: str,
        options: argparse.Namespace,
        on_row: Callable[[Row], None],
    ) -> Result:
        """Measure all rows, and return them as a result. ``on_row`` gets each row at once. After
        Ctrl+C, or a case that cannot be measured, the result has the rows until then and a note.
        """
        rows: list[Row] = []
        notes: list[str] = []
        try:
            for row in self.measure_rows(options):
                rows.append(row)
                on_row(row)
        except KeyboardInterrupt:
            notes.append(f"The run was interrupted after {len(rows)} rows.")
        except MeasurementFailed as failed:
            notes.append(f"The run failed after {len(rows)} rows: {str(failed).rstrip('.')}.")
        is_complete = not notes
        notes += self.summarise_rows(rows) if rows else []
        return Result(
            name,
            command,
            self.columns,
            rows,
            current_environment(),
            today(),
            tuple(notes),
            is_complete,
        )


def measurement_modules() -> dict[str, str]:
    """Return the name of each measurement with the full name of its module."""
    prefix = f"{measurements.__name__}."
    modules = pkgutil.walk_packages(measurements.__path__, prefix)
    return {m.name.rpartition(".")[2]: m.name for m in modules if not m.ispkg}


def load_measurement(name: str) -> tuple[Measurement, str]:
    """Return a measurement and the docstring of its module; raise BadInput for an unknown name."""
    modules = measurement_modules()
    if name not in modules:
        hint = _suggest(name, modules) or "."
        raise BadInput(f"there is no measurement {name!r}{hint} 'python -m benchmarks' lists them")
    module = importlib.import_module(modules[name])
    return module.MEASUREMENT, module.__doc__ or ""


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a bad argument in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Print one line, and exit with status 2."""
        self.exit(2, f"benchmarks: {message}\n")


def positive_int(text: str) -> int:
    """Parse an integer above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer above 0")
    return int(text)


def positive_seconds(text: str) -> float:
    """Parse a number of seconds above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def existing_file(text: str) -> Path:
    """Parse the path of a file that exists."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file")
    return Path(text)


def add_budget_option(parser: argparse.ArgumentParser, default: int = 300) -> None:
    """Add ``--budget SECONDS``, the time of each reduction."""
    parser.add_argument(
        "--budget",
        type=positive_seconds,
        default=float(default),
        metavar="SECONDS",
        help=f"wall-clock seconds of each reduction; default: {default}",
    )


def add_only_option(parser: argparse.ArgumentParser, names: Collection[str], noun: str) -> None:
    """Add ``--only NAME ...``, which limits a measurement to some of its cases."""

    def case_name(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"there is no {noun} {text!r}{_suggest(text, names)}")
        return text

    parser.add_argument(
        "--only",
        nargs="+",
        type=case_name,
        metavar="NAME",
        default=list(names),
        help=f"measure only each {noun} named here: {', '.join(names).replace('%', '%%')}",
    )


def add_keep_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--keep FOLDER``, which keeps the run directories."""
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep the run directories in this folder, which must not exist",
    )


@contextlib.contextmanager
def kept_folder(options: argparse.Namespace) -> Iterator[Path]:
    """Yield the folder of ``--keep``, or a temporary one; raises BadInput if it exists."""
    if options.keep and options.keep.exists():
        raise BadInput(f"--keep: {str(options.keep)!r} exists")
    if options.keep:
        options.keep.mkdir(parents=True)
        yield options.keep
        return
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        yield Path(name)


def add_beside_option(parser: argparse.ArgumentParser, does: str) -> None:
    """Add ``--beside FOLDER``, an older reprokit that is measured too."""
    parser.add_argument(
        "--beside",
        type=_source_tree,
        metavar="FOLDER",
        help=f"the source tree of an older reprokit, which {does} too",
    )


def _source_tree(text: str) -> Path:
    if not (Path(text) / "reprokit" / "__main__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a source tree of reprokit")
    return Path(text).resolve()


def _suggest(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
