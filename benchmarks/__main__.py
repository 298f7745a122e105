"""The command line: ``python -m benchmarks``.

list                      list the measurements (the default)
run NAME [options]        run one, and print its table; --write writes its result as JSON
tables [--check]          write the tables of the documentation from the results, or compare them
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from .harness import BadInput
from .markdown_tables import current_texts, heading_lines, row_line
from .measurement import OneLineParser, load_measurement, measurement_modules
from .results import RESULTS, Row, write_result


def list_measurements() -> None:
    """Print the name and the first docstring line of each measurement, without importing it."""
    modules = measurement_modules()
    width = max(map(len, modules))
    for name, module in sorted(modules.items()):
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or ""
        print(f"{name:<{width}}  {docstring.splitlines()[0]}")


def run_named(name: str, words: Sequence[str]) -> int:
    """Run one measurement with its options; return 1 where its result is not complete."""
    measurement, docstring = load_measurement(name)
    parser = OneLineParser(
        prog=f"python -m benchmarks run {name}",
        description=docstring,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    measurement.add_options(parser)
    default = RESULTS / f"{name}.json"
    parser.add_argument(
        "--write",
        nargs="?",
        type=Path,
        const=default,
        metavar="FILE",
        help=f"write the result as JSON; default: benchmarks/results/{name}.json",
    )
    options = parser.parse_args(words)
    if options.write and options.write.is_dir():
        raise BadInput(f"--write: {str(options.write)!r} is a folder")

    def print_row(row: Row) -> None:
        print(row_line(measurement.columns, row), flush=True)

    print("\n".join(heading_lines(measurement.columns)), flush=True)
    command = f"python -m benchmarks run {shlex.join([name, *words])}"
    result = measurement.run_measurement(name, command, options, print_row)
    for note in result.notes:
        print(f"\n{note}")
    if options.write:
        write_result(result, options.write)
        print(f"\nwritten: {options.write}")
    return 0 if result.is_complete else 1


def update_tables(is_check: bool) -> int:
    """Write the tables of the documentation; with ``--check`` only compare them, and return 1
    where one differs.
    """
    texts, problems = current_texts()
    if is_check:
        for problem in problems:
            print(problem, file=sys.stderr)
        return 1 if problems else 0
    for document, text in texts.items():
        document.write_text(text)
    missing = [problem for problem in problems if not problem.endswith("differs from its result")]
    for problem in missing:
        print(problem, file=sys.stderr)
    return 1 if missing else 0


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code: 2 for bad input."""
    parser = OneLineParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("list", help="list the measurements")
    run = commands.add_parser("run", help="run one measurement")
    run.add_argument("name", help="the name that 'list' prints")
    run.add_argument("options", nargs=argparse.REMAINDER, help="see 'run NAME --help'")
    tables = commands.add_parser("tables", help="write the tables of the documentation")
    tables.add_argument("--check", action="store_true", help="only compare; exit 1 on a difference")
    arguments = parser.parse_args(words)
    try:
        if arguments.command == "run":
            return run_named(arguments.name, arguments.options)
        if arguments.command == "tables":
            return update_tables(arguments.check)
    except BadInput as bad:
        parser.error(str(bad))
    list_measurements()
    return 0


if __name__ == "__main__":
    sys.exit(main())
