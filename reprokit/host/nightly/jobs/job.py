"""One cell of a night in a process of its own: capture it, again where it fails, make what is new
small, leave a result.

``python -m reprokit.host.nightly.jobs.job FOLDER`` reads ``spec.json`` there and writes
``result.json``. Key insight: each step leaves a whole file before the next begins, and a step whose
file is there is not done again, so that a job that was killed, preempted or started twice ends as
if it had run once.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from reprokit.host.minimize.oracle import lines_of
from reprokit.host.nightly.jobs import schema
from reprokit.host.nightly.jobs.job_result import HEALTHY, NO_BUG, RESULT, SCHEMA, SPEC, read_result
from reprokit.host.system import compiler_cache, deletion, files

UNLOCATED = "wrong-result"
"""The kind whose signature a plain capture does not know yet."""
NO_ANSWERS = 2
"""So often a capture may leave no answer before the cell counts as lost."""
SLACK_S = 900.0
"""What a capture may take beyond its deadlines before it is itself taken for hung: collecting,
comparing, asking again.
"""


def run_job(folder: str) -> bool:
    """Run the job of a folder to its result; False where another process is at it.

    Also what a cluster calls: a node that failed, or a preemption, starts it again.
    """
    place = Path(folder)
    spec = json.loads(files.read_text(place / SPEC))
    with contextlib.suppress(schema.FailsSchema):  # the collector of results keeps and reports it
        if read_result(place, spec["key"]):
            return True
    with _hold(place) as lock:
        if lock is None:
            return False
        began, clock = time.time(), time.monotonic()
        cache = place / "cache"
        refused: list[str] = []
        try:
            attempts = _attempts(place, spec, cache, refused)
            found = _make_small(place, spec, attempts, cache, refused)
        finally:
            deletion.delete(cache, inside=place)
        answers = [a for a in attempts if a["verdict"]["kind"]]
        result = {
            "schema": SCHEMA,
            "key": spec["key"],
            "expect": spec["expect"],
            "folder": str(place),
            "host": platform.node(),
            "started": began,
            "seconds": round(time.monotonic() - clock, 3),
            "attempts": answers or attempts,
            "minimized": found,
            "problem": (
                "" if answers else (attempts[-1]["problem"] if attempts else "nothing was run")
            ),
            "refused": refused[:100],
        }
        _leave(place / RESULT, result)
        return True


Shape = TypeVar("Shape", bound=msgspec.Struct)


def _kept(path: Path, shape: type[Shape], refused: list[str]) -> dict[str, Any]:
    """The earlier answer of a step; empty if there is none, or if it is refused, which is then
    renamed.
    """
    try:
        told = schema.read_as(path, shape)
    except schema.FailsSchema as why:
        aside = path.with_name(path.name + ".refused")
        refused.append(f"{path.name}: {why}")
        deletion.delete(aside, inside=path.parent)
        os.rename(path, aside)
        return {}
    return schema.plain_value(told) if told else {}


def _accepted(
    told: dict[str, Any], shape: type[Shape], refused: list[str], what: str
) -> dict[str, Any]:
    """The answer of a step, converted by the schema; empty if it does not agree with the schema."""
    try:
        return schema.plain_value(schema.convert_as(told, shape))
    except schema.FailsSchema as why:
        refused.append(f"{what}: {why}")
        return {}


def _leave(path: Path, value: dict[str, Any]) -> None:
    """Write a file of reprokit; a folder that a target put in its place is deleted."""
    if path.is_dir() and not path.is_symlink():
        deletion.delete(path, inside=path.parent)
    files.write_json(path, value)


def _attempts(
    place: Path, spec: dict[str, Any], cache: Path, refused: list[str]
) -> list[dict[str, Any]]:
    """Capture it once, and again where that tells more."""
    found: list[dict[str, Any]] = []
    while _wants_another(found, spec):
        number = len(found) + 1
        kept = place / f"attempt-{number}.json"
        told = _kept(kept, schema.JobAttempt, refused)
        if not told:
            text, said, status = _reprokit(
                [*spec["words"], "--output-dir", str(place), *spec["target"]],
                spec,
                cache,
                place / f"attempt-{number}.log",
            )
            told = _accepted(
                _attempt(text, said, status),
                schema.JobAttempt,
                refused,
                f"answer {number} of its capture",
            )
            told = told or schema.plain_value(_nothing(refused[-1]))
            if not told["is_interrupted"]:
                _leave(kept, told)
        found.append(told)
        if told["is_interrupted"]:
            raise KeyboardInterrupt
    return found


def _nothing(why: str) -> schema.JobAttempt:
    return schema.JobAttempt(schema.JobVerdict(), schema.JobSignature(), {}, {}, problem=why)


def _wants_another(found: list[dict[str, Any]], spec: dict[str, Any]) -> bool:
    """Whether one more capture would say something: how reliably it fails, or whether it is really
    slower.
    """
    answers = [a for a in found if a["verdict"]["kind"]]
    if not answers:
        # a target that is refused is refused again
        return len(found) < NO_ANSWERS and not (found and found[-1]["is_refused"])
    if len(found) - len(answers) >= NO_ANSWERS or len(answers) > spec["retries"]:
        return False
    failed = [a for a in answers if a["verdict"]["kind"] not in NO_BUG]
    if failed:
        return any(a["signature"]["id"] not in spec["settled"] for a in failed)
    return answers[-1]["verdict"]["kind"] == HEALTHY and _is_slow(answers, spec)


def _is_slow(answers: list[dict[str, Any]], spec: dict[str, Any]) -> bool:
    return any(
        min(float(a[what] or 0.0) for a in answers) > limit
        for what, limit in spec["limits"].items()
    )


def _make_small(
    place: Path,
    spec: dict[str, Any],
    attempts: list[dict[str, Any]],
    cache: Path,
    refused: list[str],
) -> dict[str, Any] | None:
    """Look for a small program of a failure that has none in the ledger, and for the identity of a
    wrong result.

    Where a wrong result begins is asked for only then, and until it is known all of them have one
    signature.
    """
    fresh = next(
        (
            a
            for a in attempts
            if a["run_dir"]
            and a["verdict"]["kind"] not in NO_BUG
            and (a["signature"]["id"] not in spec["known"] or a["verdict"]["kind"] == UNLOCATED)
        ),
        None,
    )
    if fresh is None or not spec["budget_s"]:
        return None
    kept = place / "minimized.json"
    found = _kept(kept, schema.JobRepro, refused)
    if not found:
        words = ["minimize", fresh["run_dir"], "--budget", f"{spec['budget_s']:g}", "--json"]
        text, said, status = _reprokit(words, spec, cache, place / "minimize.log")
        if status == 130:
            raise KeyboardInterrupt
        name = fresh["signature"]["id"]
        small = {"signature": name, **_small(files.parse_object(text), said)}
        found = _accepted(small, schema.JobRepro, refused, "answer of its minimization")
        found = found or schema.plain_value(schema.JobRepro(signature=name))
        _leave(kept, found)
    located = found.get("located") or {}
    if fresh["verdict"]["kind"] == UNLOCATED and located.get("id"):
        found["signature"], before = located["id"], fresh["signature"]["id"]
        for attempt in attempts:
            if attempt["signature"].get("id") == before:
                attempt["signature"] = located
    for attempt in attempts:  # the pack with the repro stands in place of the one without
        if found.get("pack") and attempt["signature"].get("id") == fresh["signature"]["id"]:
            attempt["pack"] = found["pack"]
            attempt["traits"] = {
                **attempt["traits"],
                **{k: v for k, v in found["traits"].items() if v},
            }
            break
    return found


def _small(told: dict[str, Any], said: str) -> dict[str, Any]:
    found = told.get("minimized") or {}
    text = files.read_text(Path(str(told["repro"])), 1 << 20) if told.get("repro") else ""
    return {
        "lines": lines_of(text) if text else None,
        "text": text,
        "pack": told.get("pack"),
        "says": found.get("says"),
        "traits": {
            k: v
            for k, v in (told.get("traits") or {}).items()
            if k in ("rung", "operator", "phase")
        },
        "located": told.get("signature"),
        "problem": "" if told else said[:4_000],
    }


def _attempt(text: str, said: str, status: int) -> dict[str, Any]:
    """What is kept of one capture."""
    told = files.parse_object(text)
    verdict = {k: (told.get("verdict") or {}).get(k) for k in ("kind", "phase", "cause", "reason")}
    missing = [
        m.get("why")
        for m in told.get("missing") or ()
        if isinstance(m, dict) and m.get("what") == "run"
    ]
    problem = (
        ""
        if verdict["kind"]
        else str(missing[0] if missing else f"the capture left no answer (status {status}): {said}")
    )
    compile_told = told.get("compile") or {}
    return {
        "verdict": verdict,
        "signature": told.get("signature") or {},
        "traits": told.get("traits") or {},
        "seconds": told.get("seconds"),
        "compile_s": compile_told.get("cpu_s"),
        "phases": compile_told.get("phases") or {},
        "peak_rss_bytes": told.get("peak_rss_bytes"),
        "run_dir": told.get("run_dir"),
        "pack": told.get("pack"),
        "torch": (told.get("versions") or {}).get("torch"),
        "triton": (told.get("versions") or {}).get("triton"),
        "problem": problem[:4_000],
        "is_refused": status == 2 and bool(missing),
        "is_interrupted": status == 130 or verdict["cause"] == "interrupted",
    }


def _reprokit(
    words: list[str], spec: dict[str, Any], cache: Path, log: Path
) -> tuple[str, str, int]:
    """Call reprokit; gives its answer, its last line of words, and its status. It dies with this
    process.
    """
    environ = {**os.environ, **spec["environment"]}
    if spec["warms"]:
        environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
        kept = compiler_cache.kept_cache(spec["python"])
        with contextlib.suppress(OSError):
            compiler_cache.copy_cache(kept, cache)
    answer = log.with_suffix(".out")
    for written in (answer, log):  # an earlier target may have left a pipe or a link there
        deletion.delete(written, inside=log.parent)
    with open(answer, "wb") as out, open(log, "wb") as err:
        child = subprocess.Popen(
            [sys.executable, "-m", "reprokit", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=spec["cwd"],
            env=environ,
            preexec_fn=_die_with_parent,
        )
        try:
            status = child.wait(spec["limit_s"])
        except subprocess.TimeoutExpired:
            end(child)
            status = -int(signal.SIGKILL)
        except BaseException:
            end(child)
            raise
    if spec["warms"] and status in (0, 1):
        with contextlib.suppress(OSError):
            compiler_cache.keep_cache(cache, kept)
    lines = files.read_tail(log, 2_000).strip().splitlines()
    text = files.read_text(answer)
    deletion.delete(answer, inside=log.parent)
    return text, lines[-1].removeprefix("reprokit: ") if lines else "it said nothing", status


def end(child: subprocess.Popen[bytes]) -> None:
    """End a process of ours: what it started dies with it, and guardians end the targets with all
    that left them.
    """
    child.kill()
    child.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def _hold(place: Path) -> Iterator[IO[str] | None]:
    """Hold the job; gives None where somebody else does. File systems without locks have only the
    result to go by.
    """
    file: IO[str] = open(place / ".job.lock", "a+")  # noqa: SIM115 - given out
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        yield None
        return
    except OSError:
        pass
    try:
        yield file
    finally:
        file.close()


def main() -> None:
    """Run the job of the folder that the command line names; end when whoever started it ends."""
    _die_with_parent()
    if len(sys.argv) > 2 and os.getppid() != int(sys.argv[2]):  # it ended before this could be said
        return
    with contextlib.suppress(KeyboardInterrupt):
        run_job(sys.argv[1])


if __name__ == "__main__":
    main()
