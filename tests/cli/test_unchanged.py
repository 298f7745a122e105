"""A watched program prints, logs, warns and fails in the same way as without reprokit."""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import clean_environ
from tests.support.reprokit_calls import reprokit

pytestmark = pytest.mark.real("it runs a program twice, with all that torch prints")

LISTENER = """
import logging, sys, threading, traceback, warnings

ROWS = []


class Keep(logging.Handler):
    def __init__(self, name):
        super().__init__(logging.DEBUG)
        self.place = name

    def emit(self, record):
        frame, depth = sys._getframe(1), 0  # as handlers do that look for the caller
        while frame and frame.f_code.co_filename == logging.__file__:
            frame, depth = frame.f_back, depth + 1
        where = frame.f_code.co_filename.rpartition("/")[2]
        ROWS.append(f"{self.place} {record.name} {record.levelname} {where} {depth} {record.getMessage()}")


class CountingFactory:
    def __init__(self):
        self.made, self.usual = 0, logging.getLogRecordFactory()

    def __call__(self, *args, **more):
        self.made += 1
        return self.usual(*args, **more)


FACTORY = CountingFactory()
logging.setLogRecordFactory(FACTORY)
logging.getLogger().addHandler(Keep("root"))
logging.getLogger("torch").addHandler(Keep("torch"))
EARLY = logging.getLogger("torch._inductor.heuristics.registry")
"""


TELL = """

def tell(stage):
    late = logging.getLogger(f"torch._inductor.late.{stage}")
    for logger in (EARLY, late):
        logger.info("registered " * 40)
        logger.warning("slow on %s", stage)
    print("==", stage, "records made", FACTORY.made)
    for row in ROWS:
        print("record", row)
    ROWS.clear()
    every = [logging.getLogger(), *(l for _, l in sorted(logging.Logger.manager.loggerDict.items()) if isinstance(l, logging.Logger))]
    for log in every:
        handlers = [] if log.name == "torch.__trace" else log.handlers  # TORCH_TRACE has its handler there
        enabled = [log.isEnabledFor(level) for level in (10, 20, 30)]
        print(log.name, log.level, log.getEffectiveLevel(), enabled, log.propagate, log.disabled, log.filters, handlers)
    import torch
    from torch._dynamo.utils import counters

    state = torch._logging._internal.log_state
    print(state.log_qname_to_level, sorted(state.artifact_names))
    print(sorted(counters["frames"].items()), sorted(counters["stats"].items()))
    print([t.name for t in threading.enumerate()], warnings.showwarning is warnings._showwarning_orig)
"""

PROGRAM = (
    LISTENER
    + TELL
    + """
import torch


@torch.compile
def broken(x):
    y = x.sin()
    print("a break")
    warnings.warn("from a compiled function")
    return y + x.shape[0]


@torch.compile
def late(x):
    return torch.ops.mine.late(x) + 1


torch.library.define("mine::late", "(Tensor x) -> Tensor")
torch.library.impl("mine::late", "cpu")(lambda x: 1 // 0)
torch.library.register_fake("mine::late")(lambda x: x.clone())


def call(function, size):
    try:
        function(torch.ones(size))
    except Exception:
        traceback.print_exc()


call(broken, 3)
call(broken, 4)
tell("compiled")
call(late, 3)
call(torch.compile(lambda x: x + 1, backend=lambda graph, inputs: 1 // 0), 3)
torch._logging.set_logs(inductor=logging.INFO, graph_breaks=True, recompiles=True)
call(torch.compile(lambda x: (x.cos(), print("break"), x.tan())), 5)
tell("with logs")
with warnings.catch_warnings(record=True) as recorded:
    warnings.simplefilter("always")
    call(broken, 6)
print([(str(w.message), w.filename, w.lineno, type(w)) for w in recorded])
open(__file__)  # a ResourceWarning, which names its source
warnings.showwarning = lambda *args, **more: traceback.print_stack()
call(broken, 7)
thread = threading.Thread(target=call, args=(1, 2, 3))
thread.start()
thread.join()
raise ValueError("the end")
"""
)

TESTS = (
    LISTENER
    + """
import pytest
import torch


@torch.compile
def warns(x):
    warnings.warn("from a compiled function")
    return x.sin() + x.shape[0]


def test_it(caplog):
    with pytest.warns(UserWarning, match="compiled"):
        warns(torch.ones(3))
    warns(torch.ones(4))
    logging.getLogger("torch._inductor.heuristics.registry").info("registered")
    print(len(caplog.records), caplog.text)


def test_with_a_level(caplog):
    with caplog.at_level(logging.INFO, logger="torch._dynamo"):
        torch.compile(lambda x: x.tan() + 1)(torch.ones(3))
    print(len(caplog.records), caplog.record_tuples, ROWS, FACTORY.made)
"""
)


def normal(text: str, cache: str) -> list[str]:
    """Return the lines of ``text`` without parts that differ between any two runs: times, ids,
    addresses, the cache folder.
    """
    text = text.replace(cache, "CACHE")
    text = re.sub(r"(?m)\b([VIWEC])\d{4} \d\d:\d\d:\d\d\.\d+ \d+ ", r"\1 ", text)
    text = re.sub(r"0x[0-9a-f]{6,}|\b\d{12,}\b", "ADDRESS", text)
    # ten of about a hundred names, in any order
    text = re.sub(r'(?m)^( - leaked \w+) ".*"$', r"\1", text)
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", text)
    text = re.sub(r"=====+", "=====", text)  # pytest fills a line whose times are longer or shorter
    return re.sub(r"\b\d+\.\d{2,}s?\b", "SECONDS", text).splitlines()


def alone(
    command: list[str], folder: Path, environ: dict[str, str]
) -> tuple[int, list[str], list[str]]:
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    cache = environ["TORCHINDUCTOR_CACHE_DIR"]
    return done.returncode, normal(done.stdout, cache), normal(done.stderr, cache)


def watched(
    command: list[str], folder: Path, environ: dict[str, str], out: Path
) -> tuple[int, list[str], list[str]]:
    done = reprokit("capture", "--output-dir", out, "--", *command, cwd=folder, env=environ)
    assert done.status in (0, 1), done.err
    logs, cache = out / "run-001" / "logs", environ["TORCHINDUCTOR_CACHE_DIR"]
    printed = (logs / "stdout.txt").read_text()
    assert done.out.startswith(printed)
    ours = "".join(p.read_text() for p in logs.glob("torch-*.log"))
    assert "torch/_inductor" in ours  # the data that the program does not see is recorded
    return done.status, normal(printed, cache), normal((logs / "stderr.txt").read_text(), cache)


@pytest.mark.parametrize(
    ("text", "words", "variables"),
    [
        (PROGRAM, (), {}),
        pytest.param(
            PROGRAM,
            ("-W", "error::UserWarning", "-X", "dev"),
            {"TORCH_LOGS": "inductor,recompiles,+torch._dynamo.guards"},
            marks=pytest.mark.long,
        ),
        pytest.param(
            TESTS,
            ("-m", "pytest", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", "--color=no"),
            {},
            marks=pytest.mark.long,
        ),
        pytest.param(
            TESTS,
            ("-m", "pytest", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", "--color=no"),
            {"TORCH_LOGS": "dynamo,inductor,recompiles,graph_breaks"},
            marks=pytest.mark.long,
        ),
    ],
    ids=["script", "script-with-torch-logs", "pytest", "pytest-with-torch-logs"],
)
def test_the_program_sees_nothing_of_reprokit(
    text: str, words: tuple[str, ...], variables: dict[str, str], tmp_path: Path
) -> None:
    """Both streams are equal byte for byte, and contain each record, level, handler, warning and
    traceback.
    """
    (tmp_path / "test_program.py").write_text(text)
    command = [sys.executable, *words, "test_program.py"]

    def environ() -> dict[str, str]:
        fixed = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        return clean_environ(**variables, **fixed)

    first = alone(command, tmp_path, environ())
    ours = watched(command, tmp_path, environ(), tmp_path / "out")
    assert len("\n".join(first[1])) > 500
    if changed := difference(first, ours):
        by_itself = difference(first, alone(command, tmp_path, environ()))
        pytest.fail(f"{changed}; two runs without reprokit differ in {by_itself}")


def difference(
    one: tuple[int, list[str], list[str]], other: tuple[int, list[str], list[str]]
) -> list[str]:
    """Return the lines that only one of the two runs printed, and both exit statuses if they
    differ.
    """
    lines = [] if one[0] == other[0] else [f"exit status {one[0]} and {other[0]}"]
    for mine, theirs in zip(one[1:], other[1:], strict=True):
        lines += difflib.unified_diff(mine, theirs, lineterm="", n=0)
    return [line[:300] for line in lines]
