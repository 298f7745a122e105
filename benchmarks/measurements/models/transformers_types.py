"""Measure how many model types of transformers build and run from their configuration alone.

python -m benchmarks run transformers_types [--types llama bert] [--limit 100] [--every 3]
                                            [--budget 900]

Needs torch and transformers in the running interpreter. A forked child builds each type with two
layers, where its configuration counts layers: with real weights up to 0.6 GB, with fake ones in
bfloat16 above. The child runs one forward pass in eager mode. The progress has a line for each
type, and the table counts the results.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import re
import select
import signal
import time
from collections.abc import Iterator, Sequence

from reprokit.core.records.process_state import describe_exit
from reprokit.core.shared.errors import BadTarget

from ...harness import BadInput, require_package, show_progress
from ...measurement import Measurement, positive_int, positive_seconds
from ...results import Column, Row

MAX_REAL_WEIGHTS_BYTES = 0.6e9
DEADLINE_S = 60.0
MAX_REPORT_BYTES = 60_000
_OTHER_PACKAGE = ("requires the", "No module named", "not found in your environment")
COLUMNS = (Column("result", "result"), Column("types", "types"))


@dataclasses.dataclass
class TypeReport:
    """What became of one type."""

    type: str
    result: str = "runs"
    why: str = ""
    weights: str = ""
    model_class: str = ""


def build_type(name: str) -> TypeReport:
    """Plan, build and run one type; called in a child."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from reprokit.agent.target.hf import build_model, configuration

    library = configuration.load_transformers()
    report = TypeReport(name)
    try:
        try:
            plan = build_model.plan_model(library, "", name, {"layers": 2})
        except BadTarget as bad:
            if "--layers cannot" not in str(bad) and "cannot be built" not in str(bad):
                raise
            # the configuration counts no layers, or wants a fixed number of them
            plan = build_model.plan_model(library, "", name, {})
        needed = build_model.needed_bytes(plan, False)
        is_real = needed is not None and needed <= MAX_REAL_WEIGHTS_BYTES
        report.weights = "real" if is_real else "fake"
        with torch.no_grad():
            if is_real:
                target = build_model.build_model(plan)
            else:
                with FakeTensorMode():  # fake experts take no type but bfloat16
                    plan = dataclasses.replace(plan, dtype="bfloat16")
                    target = build_model.build_model(plan)
                    try:
                        target.model(**target.calls[0][1])
                    except Exception as problem:
                        report.result = "built, but fake tensors cannot run a forward pass"
                        report.why = type(problem).__name__
        report.model_class = type(target.model).__name__
    except BadTarget as bad:
        report.result, report.why = classify_refusal(str(bad)), str(bad)
    except Exception as problem:
        report.result, report.why = "error", f"{type(problem).__name__}: {problem}"[:300]
    return report


def classify_refusal(message: str) -> str:
    """Return the row of the table for the message that a user would read."""
    if any(words in message for words in _OTHER_PACKAGE):
        return "needs another package"
    if "has no model for the type" in message:
        return "no model for the type"
    if "configuration of" in message and "cannot be made" in message:
        return "the configuration has no defaults"
    return "cannot be built" if " cannot be built: " in message else "inputs cannot be made"


def build_in_child(name: str) -> TypeReport:
    """Build one type in a fork, so that a crash, a hang and its memory end with the child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        text = json.dumps(dataclasses.asdict(build_type(name)))
        os.write(writer, text.encode()[:MAX_REPORT_BYTES])
        os._exit(0)
    os.close(writer)
    deadline, received = time.monotonic() + DEADLINE_S, b""
    while time.monotonic() < deadline:
        if select.select([reader], [], [], 1.0)[0]:
            piece = os.read(reader, 65_536)
            if not piece:
                break
            received += piece
    os.close(reader)
    is_late = time.monotonic() >= deadline
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    try:
        return TypeReport(**json.loads(received))
    except ValueError:
        if is_late:
            return TypeReport(name, "took too long")
        return TypeReport(name, "crash", describe_exit(os.waitstatus_to_exitcode(status)))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of types and the budget."""
    parser.add_argument("--types", nargs="+", metavar="TYPE", help="default: all types")
    parser.add_argument("--limit", type=positive_int, help="at most this many types")
    parser.add_argument(
        "--every", type=positive_int, default=1, metavar="N", help="each N-th type of the list"
    )
    parser.add_argument(
        "--budget", type=positive_seconds, default=900.0, metavar="SECONDS", help="default: 900"
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each result, the most frequent one first."""
    require_package("torch")
    require_package("transformers")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    import torch._dynamo

    from reprokit.agent.target.hf import build_model, configuration

    torch.set_num_threads(1)
    known = build_model.model_types_of(configuration.load_transformers())
    if unknown := [name for name in options.types or () if name not in known]:
        raise BadInput(f"transformers has no model type {unknown[0]!r}")
    names = (options.types or known[:: options.every])[: options.limit]
    began, counts = time.monotonic(), collections.Counter[str]()
    for number, name in enumerate(names, 1):
        if time.monotonic() - began > options.budget:
            show_progress(f"the budget ended after {number - 1} of {len(names)} types")
            break
        report = build_in_child(name)
        counts[report.result] += 1
        why = re.sub(r"^.*?tried: ", "", report.why)[:220]
        show_progress(
            f"{number:4}/{len(names)} {name:<32} {report.result}: {report.model_class or why}"
        )
    for result, count in counts.most_common():
        yield {"result": result, "types": count}


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how many types were tried."""
    return [f"{sum(int(row['types'] or 0) for row in rows)} types were tried."]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
