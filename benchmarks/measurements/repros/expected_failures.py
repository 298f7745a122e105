"""Judge the operators that PyTorch's own tests expect to fail, and compare with a bare loop.

python -m benchmarks run expected_failures [--python PY] [--samples 2] [--only OPERATOR ...]

The list is that of test_torchinductor_opinfo.py for a CPU. Its test turns Inductor's fallbacks off,
which users do not, and compares random numbers. So an operator on the list may work for a user.
Three answers are beside each other: whether a bare loop fails with the setting of that test, whether
it fails with the defaults, and what ``reprokit hunt`` says of the same program with the defaults.
The hunt is right if it reports a failure where the bare loop fails, and nothing where it does not.
A difference of random numbers is documented, and no failure.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...harness import DATA, ROOT, MeasurementFailed, quiet_environ, run_child
from ...measurement import Measurement, positive_int
from ...results import Column, Row

COLUMNS = (
    Column("operator", "operator"),
    Column("types", "types"),
    Column("programs", "programs"),
    Column("strict", "bare loop fails, setting of the test"),
    Column("bare", "bare loop fails, defaults"),
    Column("hunt", "the hunt says"),
    Column("right", "right"),
)
LIST = DATA / "inductor_expected_failures.json"
FINDINGS = ("exception", "wrong-result", "crash", "hang")
LIMIT_S = 600.0
PROGRAM = """
import torch
from torch.testing._internal.common_methods_invocations import op_db


def make():
    (op,) = [op for op in op_db if (op.name, op.variant_test_name) == ({name!r}, {variant!r})]
    torch.manual_seed(0)
    dtype = torch.{dtype}
    train = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=train))
    sample = samples[{number} % len(samples)]
    torch.manual_seed(0)
    return {{
        "model": lambda *args, **kwargs: op.get_op()(*args, **kwargs),
        "calls": [((sample.input, *sample.args), sample.kwargs)],
        "train": train,
    }}
"""
CHILD = '''
import json, os, sys, traceback, warnings
import torch

warnings.simplefilter("ignore")
torch._inductor.config.compile_threads = 1
texts = json.loads(open(sys.argv[1]).read())


def bare(text, **settings):
    """Return whether compiled code fails or differs, and eager does not fail."""
    made = {}
    exec(text, made)
    results = []
    for compiles in (False, True):
        torch._dynamo.reset()
        case = made["make"]()
        torch.manual_seed(0)
        model = torch.compile(case["model"]) if compiles else case["model"]
        ((args, kwargs),) = case["calls"]
        try:
            with torch._inductor.config.patch(settings):
                out = model(*args, **kwargs)
                tensors = [t for t in torch.utils._pytree.tree_leaves((args, kwargs))
                           if torch.is_tensor(t) and t.requires_grad]
                grads = []
                if case["train"] and tensors and out.requires_grad:
                    torch.manual_seed(1)
                    grads = torch.autograd.grad(out, tensors, torch.randn_like(out))
        except Exception as error:
            if not compiles:
                return "eager fails"
            return type(error).__name__
        results.append((out.to_dense() if out.is_sparse else out, grads))
    try:
        torch.testing.assert_close(results[1], results[0], equal_nan=True)
    except AssertionError:
        return "differs"
    return ""


for number, text in enumerate(texts):
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            from reprokit.agent.hunt.judge_programs import judge_program

            judged = judge_program(text)
            row = [bare(text, implicit_fallbacks=False), bare(text), judged.kind, judged.detail]
        except BaseException:
            row = ["lost", "lost", "lost", traceback.format_exc()[-300:]]
        os.write(write, json.dumps(row).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(pid, 0)
    print(text or json.dumps(["crash", "crash", "crash", ""]), flush=True)
'''


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the interpreter, the number of samples and the choice of operators."""
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--samples", type=positive_int, default=2, help="samples of each type")
    parser.add_argument("--only", nargs="+", default=[], metavar="OPERATOR", help="run only these")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each operator."""
    for name, variant, dtypes in json.loads(LIST.read_text())["operators"]:
        shown = f"{name}.{variant}" if variant else name
        if options.only and shown not in options.only:
            continue
        texts = [
            PROGRAM.format(name=name, variant=variant, dtype=dtype, number=number)
            for dtype in dtypes
            for number in range(options.samples)
        ]
        judged = _judge(texts, options.python)
        yield {
            "operator": shown,
            "types": ", ".join(dtypes),
            "programs": len(judged),
            "strict": sum(_fails(strict) for strict, _, _, _ in judged),
            "bare": sum(_fails(bare) for _, bare, _, _ in judged),
            "hunt": _counted([kind for _, _, kind, _ in judged]),
            "right": sum(_is_right(bare, kind) for _, bare, kind, _ in judged),
        }


def _judge(texts: Sequence[str], python: str) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder) / "programs.json"
        programs.write_text(json.dumps(texts))
        environ = quiet_environ(
            TORCHINDUCTOR_CACHE_DIR=str(Path(folder) / "cache"), PYTHONPATH=str(ROOT)
        )
        command = [python, "-W", "ignore", "-c", CHILD, str(programs)]
        done = run_child(command, environ=environ, limit_s=LIMIT_S)
    rows: list[list[str]] = [json.loads(line) for line in done.out.splitlines() if line[:1] == "["]
    if len(rows) != len(texts):
        raise MeasurementFailed(f"{len(rows)} of {len(texts)} programs were judged")
    return rows


def _fails(answer: str) -> bool:
    return answer not in ("", "eager fails")


def _is_right(bare: str, kind: str) -> bool:
    """Return whether a hunt says what the bare loop shows."""
    if bare == "eager fails":
        return kind == "eager-fails"
    if bare == "differs":  # of random numbers, if the hunt says so
        return kind in ("wrong-result", "unsteady")
    return (kind in FINDINGS) == bool(bare)


def _counted(kinds: Sequence[str]) -> str:
    counts: Any = collections.Counter(kinds)
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
