"""Measure whether healthy programs end with the same result when they are attached to.

python -m benchmarks run attached_compiles [--programs 30] [--first 0]
    [--no-graphs]

Each program compiles a random model for some seconds and prints numbers of its output and its
gradients. It runs once alone, and once with five attachments while it compiles: three plain ones,
one with --native, and one with --graphs, whose reduction is ended at once.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...harness import quiet_environ, show_progress
from ...measurement import Measurement, positive_int
from ...results import Column, Row

COLUMNS = (
    Column("programs", "programs"),
    Column("attached", "attachments"),
    Column("advancing", "of them: advances or is idle"),
    Column("same", "same output and exit status"),
    Column("graphs", "attachments that recorded graphs"),
)
PROGRAM = """
import random, sys, torch

chance = random.Random(int(sys.argv[1]))
torch.manual_seed(0)
torch.set_num_threads(1)
functions = [torch.relu, torch.sin, torch.tanh, torch.sigmoid, torch.cos]


def make_model():
    layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(chance.randint(10, 20)))
    steps = [(layer, chance.choice(functions), chance.randint(1, 5)) for layer in layers]

    def model(x):
        for layer, function, shift in steps:
            x = function(layer(x)).roll(shift, 1) + x.cumsum(0) / 100
        return x

    return model


print("ready", flush=True)
x = torch.randn(16, 32, requires_grad=True)
for _ in range(6):
    y = torch.compile(make_model(), dynamic=False)(x)
    y.sum().backward()
    print(y.double().sum().item(), x.grad.double().sum().item(), flush=True)
    torch._dynamo.reset()
"""
WAYS: tuple[tuple[str, ...], ...] = ((), (), ("--native",), ("--graphs", "--yes"), ())


@dataclass
class AttachedProgram:
    """One program, attached to."""

    is_same: bool
    attachments: int
    advancing: int
    with_graphs: int


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of programs, and the attachments without graphs."""
    parser.add_argument(
        "--programs", type=positive_int, default=30, metavar="N", help="default: 30"
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="N", help="default: 0; the first program"
    )
    parser.add_argument("--no-graphs", action="store_true", help="without --graphs")


@contextlib.contextmanager
def running_program(seed: int) -> Iterator[subprocess.Popen[str]]:
    """Start a program with an empty compiler cache, and wait until it begins to compile."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(seed)],
            env=quiet_environ(TORCHINDUCTOR_CACHE_DIR=cache),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def attach_to_program(seed: int, has_graphs: bool) -> AttachedProgram:
    """Run a program alone, and then with attachments."""
    with running_program(seed) as process:
        alone = process.communicate()[0], process.returncode
    done: list[str] = []
    with running_program(seed) as process, tempfile.TemporaryDirectory() as folder:
        for number, words in enumerate(WAYS if has_graphs else WAYS[:3] * 2):
            if process.poll() is not None:
                break
            command = [sys.executable, "-m", "reprokit", "attach", str(process.pid)]
            command += ["--stall", "1", "--budget", "0.1", *words]
            command += ["--output-dir", str(Path(folder, str(number)))]
            told = subprocess.run(
                command,
                env=quiet_environ(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            done.append(told.stdout)
        attached = process.communicate()[0], process.returncode
    return AttachedProgram(
        attached == alone and alone[1] == 0,
        len(done),
        sum("advances" in text or "is idle" in text or "still compiling" in text for text in done),
        sum("graphs that it compiles" in text for text in done),
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for all programs."""
    seen = []
    for seed in range(options.first, options.first + options.programs):
        one = attach_to_program(seed, not options.no_graphs)
        seen.append(one)
        show_progress(
            f"program {seed}: {one.attachments} attachments, {one.advancing} of them advancing,"
            f" {one.with_graphs} with graphs, {'same' if one.is_same else 'DIFFERENT'} result"
        )
    yield {
        "programs": len(seen),
        "attached": sum(one.attachments for one in seen),
        "advancing": sum(one.advancing for one in seen),
        "same": sum(one.is_same for one in seen),
        "graphs": sum(one.with_graphs for one in seen),
    }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
