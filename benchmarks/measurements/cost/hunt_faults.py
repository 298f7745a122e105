"""Measure what programs of a hunt leave behind that hang, crash, take memory, write files and fork.

python -m benchmarks run hunt_faults [--targets 2000] [--minutes 300] [--timeout 20]

One of 40 programs has each of these faults, which ``benchmarks/cases/hunt_faults`` plants into
Dynamo. The search runs in a child process, without captures.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...cases.hunt_faults.sitecustomize import FAULTS, MARK, fault_of
from ...harness import CASES, ROOT, MeasurementFailed, quiet_environ, run_child
from ...measurement import Measurement, positive_int
from ...results import Column, Row

COLUMNS = (
    Column("what", "measure"),
    Column("value", "value"),
    Column("of", "of"),
)
LIMIT_S = 20000.0
PLANTED = {"hang": "hang", "crash": "crash", "memory": "exception", "": "ok"}
"""The outcome of a program with a fault; ``ok`` for files and processes, which harm nobody."""
SEARCH = """
import json, os, sys, time
from pathlib import Path
import psutil
from reprokit.host.hunt import hunt_runner, outcomes, target_search
from reprokit.host.probe.client import ProbeServer

folder, count, limit_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
end = time.monotonic() + 60 * float(sys.argv[5])
samples = []

def sample(words):
    me = psutil.Process()
    servers = [one for one in me.children() if "forkserver" in " ".join(one.cmdline())]
    rss = sum(one.memory_info().rss for one in servers)
    samples.append([me.memory_info().rss, rss, len(found.outcomes)])
    print(words, file=sys.stderr, flush=True)

plan = outcomes.HuntPlan(("python",), 0, sys.executable)
with (
    outcomes.open_hunt(folder / "hunt", plan, limit_s) as found,
    ProbeServer(found.path / "server", sys.executable, "build", imports=hunt_runner.IMPORTS) as server,
):
    target_search.search_targets(found, server, end, count, sample)
    starts = server.starts
left = []
for process in psutil.process_iter():
    try:
        if process.pid != os.getpid() and process.environ().get("HUNT_FAULTS") == sys.argv[4]:
            left.append(process.name())
    except (psutil.Error, OSError):
        pass
print(json.dumps({"samples": samples, "left": left, "starts": starts}))
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of programs and their limit."""
    parser.add_argument("--targets", type=positive_int, default=2000, help="programs")
    parser.add_argument("--minutes", type=positive_int, default=300, help="end after this time")
    parser.add_argument("--timeout", type=positive_int, default=20, help="seconds of a program")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the outcomes of the faulty programs, and what they have left."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        home, temporary, place = base / "home", base / "tmp", base / "place"
        for folder in (home, temporary, place):
            folder.mkdir()
        environ = quiet_environ(HOME=str(home), TMPDIR=str(temporary), HUNT_FAULTS=base.name)
        environ["PYTHONPATH"] = f"{CASES / 'hunt_faults'}:{ROOT}"
        words = [str(place), str(options.targets), str(options.timeout), base.name]
        words.append(str(options.minutes))
        done = run_child(
            [sys.executable, "-W", "ignore", "-c", SEARCH, *words],
            environ=environ,
            limit_s=LIMIT_S,
        )
        if done.status != 0:
            raise MeasurementFailed(f"the search ended with {done.status}: {done.last_error}")
        answer = json.loads(done.out.splitlines()[-1])
        yield from _outcome_rows(place / "hunt")
        kept = [path for path in (home / ".cache").rglob("*") if path.is_file()]
        marked = [*base.rglob(f"{MARK}*"), *Path("/var/tmp").glob(f"{MARK}*")]
        others = [
            path
            for path in base.rglob("*")
            if path.is_file() and not {place / "hunt", home / ".cache"} & {*path.parents}
        ]
        yield {"what": "processes left", "value": len(answer["left"])}
        yield {"what": "files of the programs", "value": len(marked)}
        yield {"what": "other files outside the folder of the hunt", "value": len(others)}
        yield {"what": "files in the cache of reprokit", "value": len(kept)}
        yield {"what": "starts of the server", "value": answer["starts"]}
        yield from _memory_rows(answer["samples"])


def _outcome_rows(hunt: Path) -> Iterator[Row]:
    """Yield how many programs with each fault have the outcome that it leads to."""
    lines = (hunt / "outcomes.jsonl").read_text().splitlines()
    texts = (hunt / "texts.jsonl").read_text().splitlines()
    right, of = collections.Counter[str](), collections.Counter[str]()
    for line, text in zip(lines, texts, strict=True):
        outcome, fault = json.loads(line)["kind"], _fault_of(json.loads(text)["text"])
        of[fault] += 1
        right[fault] += outcome == PLANTED[fault] if fault in PLANTED else outcome != "lost"
    yield {"what": "programs", "value": len(lines)}
    for fault in FAULTS:
        expected = PLANTED.get(fault, "not lost")
        yield {"what": f"fault: {fault}, {expected}", "value": right[fault], "of": of[fault]}
    yield {"what": "no fault, ok", "value": right[""], "of": of[""]}


def _fault_of(text: str) -> str:
    """Return the fault of a program, from the code of its function."""
    parts = compile(text, "program", "exec").co_consts
    codes = [one for one in parts if isinstance(one, types.CodeType) and one.co_name == "function"]
    return fault_of(codes[0]) if codes else ""


def _memory_rows(samples: list[Any]) -> Iterator[Row]:
    """Yield the growth of the memory between the second batch of targets and the last one."""
    (host, server, first), (last_host, last_server, last) = (
        samples[min(1, len(samples) - 1)],
        samples[-1],
    )
    between = f"from program {first} to {last}, MB"
    yield {"what": f"memory of the host {between}", "value": round((last_host - host) / 1e6, 1)}
    yield {
        "what": f"memory of the server {between}",
        "value": round((last_server - server) / 1e6, 1),
    }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
