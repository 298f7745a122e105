"""Measure what ``reprokit.watch()`` costs a program.

python -m benchmarks run prepared_cost [--repeat 8]

The same program runs alternately without, with ``reprokit.watch()``, and with
``on_failure="record"``. It imports torch and its compiler, compiles a model with an empty cache, and
calls it. The last row is a Python program that does nothing, with REPROKIT_WATCH=0, 1 and record.
The table has the smallest CPU times of the runs, because other programs on the machine only add to
them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator

from ...harness import MeasurementFailed, quiet_environ, show_progress
from ...measurement import Measurement, positive_int
from ...results import Column, Row

COLUMNS = (
    Column("part", "part of the program"),
    Column("without", "CPU ms without", 1),
    Column("with", "CPU ms with `reprokit.watch()`", 1),
    Column("ratio", "ratio", 3),
    Column("record", 'with `on_failure="record"`', 1),
    Column("record_ratio", "ratio", 3),
)
HOWS = {"without": "0", "with": "1", "record": "record"}
"""How the program runs, and REPROKIT_WATCH of the program that does nothing."""
PROGRAM = """
import json, sys, time

def cpu_ms(function):
    began = time.process_time()
    function()
    return (time.process_time() - began) * 1e3

def load():
    global torch, model, x, compiled
    if sys.argv[1] != "without":
        import reprokit
        reprokit.watch(on_failure="record" if sys.argv[1] == "record" else "")
    import torch
    import torch._dynamo, torch._inductor.compile_fx
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1
    parts = (torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))
    model = torch.nn.Sequential(*(torch.nn.Sequential(*parts) for _ in range(12)))
    x = torch.randn(4, 64)
    compiled = torch.compile(model)

def call():
    for _ in range(3000):
        compiled(x)

times = {"import torch and its compiler": cpu_ms(load)}
times["first compile"] = cpu_ms(lambda: compiled(x))
torch._dynamo.reset()
times["compile again"] = cpu_ms(lambda: compiled(x))
times["3,000 calls"] = cpu_ms(call)
if sys.argv[1] != "without":
    import reprokit
    compiled = reprokit.canary(compiled, every=1000)
times["3,000 calls, three of them compared by reprokit.canary()"] = cpu_ms(call)
print(json.dumps(times))
"""
EMPTY = "a program without torch, REPROKIT_WATCH=1"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of runs."""
    parser.add_argument(
        "--repeat", type=positive_int, default=8, metavar="N", help="default: 8; runs of each"
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each part of the program."""
    least: dict[str, dict[str, float]] = defaultdict(dict)
    for number in range(options.repeat):
        for how in HOWS:
            for part, ms in _run(how).items():
                least[part][how] = min(ms, least[part].get(how, ms))
        show_progress(f"run {number + 1} of {options.repeat}")
    for part, ms_of in least.items():
        yield {
            "part": part,
            **ms_of,
            "ratio": ms_of["with"] / ms_of["without"],
            "record_ratio": ms_of["record"] / ms_of["without"],
        }


def _run(how: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        environ = {**quiet_environ(), "TORCHINDUCTOR_CACHE_DIR": cache}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, how], env=environ, capture_output=True, check=True
        )
    times: dict[str, float] = json.loads(done.stdout)
    environ["REPROKIT_WATCH"] = HOWS[how]
    times[EMPTY] = min(_cpu_ms_of_nothing(environ) for _ in range(10))
    return times


def _cpu_ms_of_nothing(environ: dict[str, str]) -> float:
    code = (
        "import sys, time\n"
        "print(time.process_time() * 1e3, 'reprokit.agent.prepare' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, check=True
    )
    ms, is_prepared = done.stdout.decode().split()
    if is_prepared != str(environ["REPROKIT_WATCH"] != "0"):
        raise MeasurementFailed("reprokit-watch.pth is not installed in this environment")
    return float(ms)


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
