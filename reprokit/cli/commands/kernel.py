"""``reprokit kernel``: compile Triton kernels for several architectures, and try remedies."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprokit.cli.shared import option_types, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.core.judge.stacks.location import plural

if TYPE_CHECKING:
    from reprokit.host.experiments.kernel_matrix import Matrix


_NAMED = re.compile(r"\.(?:py|ndjson|ndjson\.gz|ttir|ttgir|mlir):[^:/]+$")
"""The file of a kernel that is named too."""


@shared.command(
    epilog=(
        "Exit codes: 0 every kernel compiled for every architecture, 1 one did not, 2 wrong usage,"
        " 3 unknown, 130 interrupted."
    )
)
@click.argument("file", metavar="FILE[:KERNEL]")
@shared.option(
    "--arch",
    "archs",
    default="80,90,100,120",
    show_default=True,
    metavar="NAMES",
    help="GPU architectures. sm_90 and sm_90a name one variant; of 90, Triton selects the variant.",
)
@shared.option(
    "--ptxas",
    "tools",
    type=option_types.PLACE,
    multiple=True,
    metavar="PATH",
    help=(
        "Also compile with this ptxas, in addition to the one of Triton's package; may be repeated."
    ),
)
@shared.option(
    "--timeout",
    type=option_types.SECONDS,
    default="2m",
    show_default=True,
    help="Deadline of one compile.",
)
@shared.option(
    "--python",
    type=option_types.PLACE,
    help=f"Interpreter with Triton; default: {shared.DEFAULT_PYTHON}.",
)
@shared.JSON
@click.pass_context
def kernel(
    ctx: click.Context,
    file: str,
    archs: str,
    tools: tuple[str, ...],
    timeout: float,
    python: str | None,
    as_json: bool,
) -> None:
    """Compile a Triton kernel for several architectures, without a GPU.

    FILE is a program that compiles one kernel (such as those that reprokit capture --gpu writes to
    <run>/kernels, and the repros of kernels), a module that Inductor generated, what Triton dumped
    (.ttir, .ttgir, the file of TRITON_REPRODUCER_PATH, a trace of tritonparse), or a program that
    launches its own kernels. Such a program runs once on a simulated GPU, where nothing is
    launched. Each kernel is compiled once for each architecture and ptxas.

    \b
    Examples:
      reprokit kernel reprokit-out/.../kernels/triton_poi_fused_add_0.py --arch 80,90,100,sm_100,120
      reprokit kernel attention.py:forward_kernel --arch 90,100
      reprokit kernel ~/.triton/dump/HASH/add_kernel.ttir --arch 90
      reprokit kernel output_code.py:triton_poi_fused_add_0 --arch sm_101a --ptxas cuda/bin/ptxas
    """
    from reprokit.core.experiments import nvidia_architectures
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.experiments import kernel_matrix
    from reprokit.host.probe.client import ServerLost
    from reprokit.host.system import interrupts

    path, _, name = file.rpartition(":") if _NAMED.search(file) else (file, "", "")
    wanted = nvidia_architectures.read_architecture(archs)
    versions = dict(map(kernel_matrix.find_ptxas, tools))
    checked = shared.interpreter_option(python)
    with tempfile.TemporaryDirectory(prefix="reprokit-kernel-") as folder, interrupts.deferred():
        texts = kernel_matrix.read_kernels(Path(path), name, checked, Path(folder) / "read")
        with terminal.LiveStatus(is_quiet=as_json) as live:
            live.show_message(
                f"compiling {plural(len(texts), 'kernel')} for"
                f" {plural(len(wanted), 'architecture')} with"
                f" {plural(1 + len(versions), 'version')} of ptxas"
            )
            try:
                matrix = kernel_matrix.fill_matrix(
                    texts, wanted, ["", *versions], checked, Path(folder), timeout, live.show_status
                )
            except KeyboardInterrupt:
                ctx.exit(130)
            except ServerLost as problem:
                raise BadInput(
                    f"{checked} cannot compile kernels: {problem}; install Triton there, or"
                    " name a different interpreter with --python"
                ) from problem
    if as_json:
        out.RESULTS.print_json(to_json(matrix, versions))
    else:
        print_matrix(matrix, versions)
    answers = {cell.answer for cell in matrix.cells}
    ctx.exit(0 if answers == {"compiled"} else 3 if answers <= {"compiled", "unknown"} else 1)


def to_json(matrix: Matrix, versions: dict[str, str]) -> dict[str, object]:
    """Return the object that ``--json`` prints; later versions only add keys."""
    cells = [
        {
            "kernel": c.kernel,
            "arch": c.arch.name,
            "ptxas": c.ptxas or None,
            "answer": c.answer,
            "stage": c.phase or None,
            "said": c.message or None,
            "title": c.title or None,
            "seconds": c.seconds,
        }
        for c in matrix.cells
    ]
    remedies = [
        {
            "arch": arch,
            "ptxas": tool or None,
            "remedy": r.words,
            "works": r.works,
            "said": r.message or None,
        }
        for (arch, tool), rows in matrix.remedies.items()
        for r in rows
    ]
    return {"schema": 1, "cells": cells, "remedies": remedies, "versions": versions}


def print_matrix(matrix: Matrix, versions: dict[str, str]) -> None:
    """Print the matrix with a column for each ptxas, then the errors and the remedies."""
    tools = list(dict.fromkeys(c.ptxas for c in matrix.cells))
    rows: list[tuple[out.Part, ...]] = []
    by_place = {(c.kernel, c.arch, c.ptxas): c for c in matrix.cells}
    for kernel, arch in dict.fromkeys((c.kernel, c.arch) for c in matrix.cells):
        row_cells = [by_place[kernel, arch, t] for t in tools]
        cells = [
            (f"{c.seconds:.1f} s", "green") if c.is_fine else (str(c.phase or c.answer), "red")
            for c in row_cells
        ]
        rows.append((kernel, arch.name, *cells))
    titles = (f"ptxas {versions[t]}" if t else "Triton's ptxas" for t in tools)
    out.RESULTS.print_table(("kernel", "for", *titles), rows)
    for (arch_name, tool), remedies in matrix.remedies.items():
        failing = [
            c for c in matrix.cells if (c.arch.name, c.ptxas, c.is_fine) == (arch_name, tool, False)
        ]
        count = f" ({len(failing)} kernels)" if len(failing) > 1 else ""
        with_tool = f" with {tool}" if tool else ""
        out.RESULTS.print_line(
            f"{arch_name}{with_tool}{count}: {failing[0].answer}: {failing[0].message}"
        )
        for remedy in remedies:
            verdict = "works" if remedy.works else f"does not help: {remedy.message}"
            out.RESULTS.print_line(f"    {remedy.words}: {verdict}")
