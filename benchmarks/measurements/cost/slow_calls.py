"""Measure whether compiled calls that are slower than eager are found, and no others.

python -m benchmarks run slow_calls [--only TARGET ...] [--plain]

The slow targets are planted causes and programs of public issues, the healthy ones models of the
zoo, of transformers and plain functions. Each is measured as ``capture --compare-speed`` measures
it, in children of one server. Set OMP_NUM_THREADS=1 on a busy machine. Where the answer is not the
expected one, and with ``--plain`` for each function, a plain program without reprokit measures the
ratio with ``torch.utils.benchmark`` and one thread: it says whether the answer is right.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from reprokit.core.experiments import speedup
from reprokit.core.judge.slow_calls import find_blame
from reprokit.core.records import recompiles
from reprokit.core.records.speed import SLOWER
from reprokit.core.shared.contract.events import CallParts, CallsTimed, GraphBreakFound
from reprokit.host.experiments import compare_speed
from reprokit.host.probe.candidate import ProbeLimits
from reprokit.host.probe.client import ProbeServer
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import parse_target
from reprokit.host.run import observation_reader

from ...harness import CASES, MeasurementFailed, quiet_environ, run_child, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("target", "target"),
    Column("expected", "expected cause"),
    Column("plain", "plain ratio", 2),
    Column("answer", "answer"),
    Column("ratio", "ratio", 2),
    Column("low", "from", 2),
    Column("high", "to", 2),
    Column("cause", "named cause"),
    Column("is_right", "right"),
)
SLOW = {
    "slow.py:many_numbers": "guards",
    "slow.py:many_globals": "guards",
    "slow.py:breaks_in_loop": "graph breaks",
    "slow.py:one_small_add": "overhead of a call",
    "slow.py:small_chain": "overhead of a call",
    "slow.py:long_division": "div",
    "slow.py:index_add": "index_add",
    "slow.py:transposed_copy": "copies",
    "slow.py:max_pool": "max_pool2d",
    "public.py:mish": "mul",
    "public.py:log": "log",
    "public.py:logit": "logit",
    "public.py:small_min_sum": "overhead of a call",
    "public.py:cumprod_backward": "overhead of a call",
    "public.py:layers_with_numbers": "guards",
}
"""Slow targets with a word of the cause that is expected."""
HEALTHY = (
    *(
        f"healthy.py:{name}"
        for name in "mlp matmul pointwise_chain layer_norm attention convolution softmax_chain gated"
        " lstm_cell encoder train_mlp reduction".split()
    ),
    "llama-tiny",
    "convnet",
    "hf:bert",
    "hf:gpt2",
    "hf:llama",
    "hf:vit",
    "hf:t5",
    "hf:mistral",
)
LIMIT_S = 400.0
MIN_SLOWER = 1.05
"""The smallest slowdown that counts."""
_PLAIN = """
import importlib.util, json, sys
import torch
from torch.utils.benchmark import Timer
torch.set_num_threads(1)
spec = importlib.util.spec_from_file_location("cases", sys.argv[1])
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)
made = getattr(cases, sys.argv[2])()
model, args = made if isinstance(made, tuple) else (made["model"], made["calls"][0][0])
train = not isinstance(made, tuple)
if hasattr(model, "train"):
    model.train(train)
compiled = torch.compile(model)
def call(function):
    if train:
        function(*args).float().pow(2).mean().backward()
    else:
        with torch.no_grad():
            function(*args)
times = {}
for _ in range(3):
    for name, function in (("eager", model), ("compiled", compiled)):
        call(function), call(function)
        timer = Timer("call(function)", globals={"call": call, "function": function})
        times.setdefault(name, []).append(min(timer.blocked_autorange(min_run_time=0.3).times))
print(json.dumps(min(times["compiled"]) / min(times["eager"])))
"""


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each target."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ProbeServer(Path(folder) / "server", sys.executable, "aot") as server,
    ):
        for target, expected in [*SLOW.items(), *((name, "") for name in HEALTHY)]:
            if target not in options.only:
                continue
            show_progress(target)
            yield _measure_target(server, target, expected, options)


def _measure_target(
    server: ProbeServer, target: str, expected: str, options: argparse.Namespace
) -> Row:
    spelled = str(CASES / "slow_calls" / target) if ".py:" in target else target
    request = Request(
        parse_target(spelled),
        knobs={"layers": 2} if target.startswith("hf:") else {},
        measure_s=compare_speed.MEASURE_S,
        measures_parts=True,
    )
    timings: list[CallsTimed] = []
    speed = None
    journals = observation_reader.Journals({}, 0, {})
    while len(timings) < compare_speed.MAX_PROCESSES:
        outcome, run = server.run_target(request, ProbeLimits(LIMIT_S))
        journals = observation_reader.read_journals(run)
        timed = journals.events_of_type(CallsTimed)
        if not timed:
            raise MeasurementFailed(f"{target} ended with {outcome.exit_status}")
        timings.append(timed[-1])
        speed = speedup.compare_speed(timings, journals.last_event_of_type(CallParts))
        if speed is None or speed.answer != SLOWER:
            break
    if speed is None:
        raise MeasurementFailed(f"{target} was not timed")
    is_unexpected = bool(expected) != (speed.answer == SLOWER)
    is_needed = ".py:" in target and (is_unexpected or options.plain)
    plain = _plain_ratio(target) if is_needed else None
    breaks = recompiles.graph_breaks(journals.events_of_type(GraphBreakFound))
    cause = find_blame(speed, breaks).cause if speed.answer == SLOWER else ""
    if expected:
        is_slow = plain is None or plain > MIN_SLOWER
        is_right = (speed.answer == SLOWER and expected in cause) if is_slow else not cause
    else:
        is_right = speed.answer != SLOWER or (plain is not None and plain > MIN_SLOWER)
    return {
        "target": target,
        "expected": expected,
        "plain": plain,
        "answer": speed.answer,
        "ratio": speed.ratio.value,
        "low": speed.ratio.low,
        "high": speed.ratio.high,
        "cause": cause,
        "is_right": is_right,
    }


def _plain_ratio(target: str) -> float | None:
    file, _, name = target.partition(":")
    done = run_child(
        [sys.executable, "-c", _PLAIN, str(CASES / "slow_calls" / file), name],
        limit_s=LIMIT_S,
        environ=quiet_environ(),
    )
    try:
        return float(json.loads(done.out.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        return None


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how many slow targets were found, and how many healthy ones had an alarm."""
    slow = [row for row in rows if row["expected"] and float(row["plain"] or 9) > MIN_SLOWER]
    healthy = [row for row in rows if not row["expected"]]
    found = sum(row["answer"] == SLOWER for row in slow)
    named = sum(bool(row["is_right"]) for row in slow)
    alarms = sum(not row["is_right"] for row in healthy)
    return [
        f"Of {len(slow)} targets that are slower, {found} were found, {named} with the right cause.",
        f"{alarms} of {len(healthy)} healthy targets had a false alarm.",
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--only`` and ``--plain``."""
    add_only_option(parser, [*SLOW, *HEALTHY], "target")
    parser.add_argument(
        "--plain", action="store_true", help="measure each function without reprokit too"
    )


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
