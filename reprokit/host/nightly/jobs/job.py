"""Run one cell of a nightly run in its own process, and write its result.

``python -m reprokit.host.nightly.jobs.job FOLDER`` reads ``spec.json`` in the folder and writes
``result.json``. It captures the cell, captures a failure again, and minimizes a new failure.

Key insight: each step writes a complete file before the next step begins, and a step whose file is
there is not done again. So a job that was killed, preempted or started twice has the same result as
a job that ran once.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from reprokit.host.minimize.candidate_text import count_code_lines
from reprokit.host.nightly.jobs import job_schema
from reprokit.host.nightly.jobs.job_result import (
    HEALTHY,
    NO_BUG,
    RESULT_FILE,
    SCHEMA,
    SPEC_FILE,
    read_result,
)
from reprokit.host.nightly.jobs.job_schema import JobAttempt, JobRepro, JobSpec
from reprokit.host.system import compiler_cache, deletion, files, host_log
from reprokit.host.system.child_commands import own_command

UNLOCATED = "wrong-result"
"""The kind whose signature a plain capture does not know yet."""
MAX_LOST_CAPTURES = 2
"""How many captures may end without an answer before the cell counts as lost."""
SLACK_S = 900.0
"""The time that a capture may take beyond its deadlines, to collect, compare and follow up."""


def run_job(folder: str) -> bool:
    """Run the job of a folder to its result; return False where another process runs it.

    A cluster calls it too, and calls it again after a node failed or the job was preempted.
    """
    path = Path(folder)
    spec = job_schema.read_struct(path / SPEC_FILE, JobSpec)
    if spec is None:
        raise job_schema.FailsSchema(f"{path} has no {SPEC_FILE}")
    with host_log.suppress(job_schema.FailsSchema):  # the collector of results keeps and reports it
        if read_result(path, spec.key) is not None:
            return True
    with _locked(path) as lock:
        if lock is None:
            return False
        began, clock = time.time(), time.monotonic()
        cache = path / "cache"
        refused: list[str] = []
        try:
            attempts = _capture_all(path, spec, cache, refused)
            repro = _minimize(path, spec, attempts, cache, refused)
        finally:
            deletion.delete_path(cache, inside=path)
        answers = [a for a in attempts if a.verdict.kind]
        result = {
            "schema": SCHEMA,
            "key": spec.key,
            "expect": spec.expect,
            "folder": str(path),
            "host": platform.node(),
            "started": began,
            "seconds": round(time.monotonic() - clock, 3),
            "attempts": [job_schema.struct_to_json(a) for a in answers or attempts],
            "minimized": None if repro is None else job_schema.struct_to_json(repro),
            "problem": (
                "" if answers else (attempts[-1].problem if attempts else "nothing was run")
            ),
            "refused": refused[:100],
        }
        _write(path / RESULT_FILE, result)
        return True


Shape = TypeVar("Shape", bound=msgspec.Struct)


def _read_kept(path: Path, shape: type[Shape], refused: list[str]) -> Shape | None:
    """Return the earlier answer of a step; None if there is none.

    An answer that does not agree with the schema is renamed, and counts as none.
    """
    try:
        return job_schema.read_struct(path, shape)
    except job_schema.FailsSchema as why:
        aside = path.with_name(path.name + ".refused")
        refused.append(f"{path.name}: {why}")
        deletion.delete_path(aside, inside=path.parent)
        os.rename(path, aside)
        return None


def _accepted(
    fields: Mapping[str, object], shape: type[Shape], refused: list[str], what: str
) -> Shape | None:
    """Return the answer of a step, converted by the schema; None if it does not agree with it."""
    try:
        return job_schema.convert_to_struct(fields, shape)
    except job_schema.FailsSchema as why:
        refused.append(f"{what}: {why}")
        return None


def _write(path: Path, value: Mapping[str, object]) -> None:
    """Write a file of reprokit; a folder that a target put in its place is deleted."""
    if path.is_dir() and not path.is_symlink():
        deletion.delete_path(path, inside=path.parent)
    files.write_json(path, value)


def _capture_all(path: Path, spec: JobSpec, cache: Path, refused: list[str]) -> list[JobAttempt]:
    """Capture the cell once, and again where a further capture tells more."""
    attempts: list[JobAttempt] = []
    while _wants_another(attempts, spec):
        number = len(attempts) + 1
        kept = path / f"attempt-{number}.json"
        attempt = _read_kept(kept, JobAttempt, refused)
        if attempt is None:
            output, last_line, status = _call_reprokit(
                [*spec.words, "--output-dir", str(path), *spec.target],
                spec,
                cache,
                path / f"attempt-{number}.log",
            )
            attempt = _accepted(
                _attempt_fields(output, last_line, status),
                JobAttempt,
                refused,
                f"answer {number} of its capture",
            )
            attempt = attempt or _empty_attempt(refused[-1])
            if not attempt.is_interrupted:
                _write(kept, job_schema.struct_to_json(attempt))
        attempts.append(attempt)
        if attempt.is_interrupted:
            raise KeyboardInterrupt
    return attempts


def _empty_attempt(why: str) -> JobAttempt:
    return JobAttempt(job_schema.JobVerdict(), job_schema.JobSignature(), {}, {}, problem=why)


def _wants_another(attempts: list[JobAttempt], spec: JobSpec) -> bool:
    """Return whether a further capture would show how reliably the cell fails or is slower."""
    answers = [a for a in attempts if a.verdict.kind]
    if not answers:
        # a target that is refused is refused again
        return len(attempts) < MAX_LOST_CAPTURES and not (attempts and attempts[-1].is_refused)
    if len(attempts) - len(answers) >= MAX_LOST_CAPTURES or len(answers) > spec.retries:
        return False
    failed = [a for a in answers if a.verdict.kind not in NO_BUG]
    if failed:
        return any(a.signature.id not in spec.settled for a in failed)
    return answers[-1].verdict.kind == HEALTHY and _is_slow(answers, spec)


def _is_slow(answers: list[JobAttempt], spec: JobSpec) -> bool:
    return any(
        min(float(getattr(a, what, None) or 0.0) for a in answers) > limit
        for what, limit in spec.limits.items()
    )


def _minimize(
    path: Path, spec: JobSpec, attempts: list[JobAttempt], cache: Path, refused: list[str]
) -> JobRepro | None:
    """Minimize a failure that has no repro in the ledger, and locate a wrong result.

    Until a wrong result is located, its signature is the same as that of all others.
    """
    fresh = next(
        (
            a
            for a in attempts
            if a.run_dir
            and a.verdict.kind not in NO_BUG
            and (a.signature.id not in spec.known or a.verdict.kind == UNLOCATED)
        ),
        None,
    )
    if fresh is None or fresh.run_dir is None or not spec.budget_s:
        return None
    kept = path / "minimized.json"
    repro = _read_kept(kept, JobRepro, refused)
    if repro is None:
        words = ["minimize", fresh.run_dir, "--budget", f"{spec.budget_s:g}", "--json"]
        output, last_line, status = _call_reprokit(words, spec, cache, path / "minimize.log")
        if status == 130:
            raise KeyboardInterrupt
        name = fresh.signature.id
        fields = {"signature": name, **_repro_fields(files.parse_json_object(output), last_line)}
        repro = _accepted(fields, JobRepro, refused, "answer of its minimization")
        repro = repro or JobRepro(signature=name)
        _write(kept, job_schema.struct_to_json(repro))
    located = repro.located
    if fresh.verdict.kind == UNLOCATED and located is not None and located.id:
        repro.signature, before = located.id, fresh.signature.id
        for attempt in attempts:
            if attempt.signature.id == before:
                attempt.signature = located
    for attempt in attempts:  # the pack with the repro replaces the pack without
        if repro.pack and attempt.signature.id == fresh.signature.id:
            attempt.pack = repro.pack
            attempt.traits = {**attempt.traits, **{k: v for k, v in repro.traits.items() if v}}
            break
    return repro


def _without_nulls(value: object) -> dict[str, object]:
    """Return the fields of a JSON object that have a value; the keys of no signature are null."""
    fields = value.items() if isinstance(value, dict) else ()
    return {str(key): item for key, item in fields if item is not None}


def _repro_fields(answer: dict[str, Any], last_line: str) -> dict[str, object]:
    """Return the fields of a JobRepro from the JSON of ``reprokit minimize``."""
    minimized = answer.get("minimized") or {}
    text = files.read_text(Path(str(answer["repro"])), 1 << 20) if answer.get("repro") else ""
    return {
        "lines": count_code_lines(text) if text else None,
        "text": text,
        "pack": answer.get("pack"),
        "says": minimized.get("says"),
        "traits": {
            k: v
            for k, v in (answer.get("traits") or {}).items()
            if k in ("part", "operator", "phase")
        },
        "located": _without_nulls(answer.get("signature")),
        "problem": "" if answer else last_line[:4_000],
    }


def _attempt_fields(output: str, last_line: str, status: int) -> dict[str, object]:
    """Return the fields of a JobAttempt from the JSON and the status of ``reprokit capture``."""
    answer = files.parse_json_object(output)
    verdict = {
        k: (answer.get("verdict") or {}).get(k) for k in ("kind", "phase", "cause", "reason")
    }
    missing = [
        m.get("why")
        for m in answer.get("missing") or ()
        if isinstance(m, dict) and m.get("what") == "run"
    ]
    problem = (
        ""
        if verdict["kind"]
        else str(
            missing[0] if missing else f"the capture left no answer (status {status}): {last_line}"
        )
    )
    compile_costs = answer.get("compile") or {}
    return {
        "verdict": verdict,
        "signature": _without_nulls(answer.get("signature")),
        "traits": answer.get("traits") or {},
        "seconds": answer.get("seconds"),
        "compile_s": compile_costs.get("cpu_s"),
        "phases": compile_costs.get("phases") or {},
        "peak_rss_bytes": answer.get("peak_rss_bytes"),
        "run_dir": answer.get("run_dir"),
        "pack": answer.get("pack"),
        "torch": (answer.get("versions") or {}).get("torch"),
        "triton": (answer.get("versions") or {}).get("triton"),
        "problem": problem[:4_000],
        "is_refused": status == 2 and bool(missing),
        "is_interrupted": status == 130 or verdict["cause"] == "interrupted",
    }


def _call_reprokit(words: list[str], spec: JobSpec, cache: Path, log: Path) -> tuple[str, str, int]:
    """Run a reprokit command; return its stdout, the last line of its stderr, and its status.

    The command is killed when this process ends. The options in files and variables of the user are
    not for it: a suite says all that its jobs do.
    """
    environ = {**os.environ, **spec.environment}
    if spec.warms:
        environ["TORCHINDUCTOR_CACHE_DIR"] = str(compiler_cache.plain_path(cache))
        kept = compiler_cache.kept_cache_folder(spec.python)
        with host_log.suppress(OSError):
            compiler_cache.copy_cache(kept, cache)
    stdout = log.with_suffix(".out")
    for written in (stdout, log):  # an earlier target may have left a pipe or a link there
        deletion.delete_path(written, inside=log.parent)
    with open(stdout, "wb") as out, open(log, "wb") as err:
        child = subprocess.Popen(
            own_command("reprokit", "--isolated", *words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=spec.cwd,
            env=environ,
            preexec_fn=_die_with_parent,
        )
        try:
            status = child.wait(spec.limit_s)
        except subprocess.TimeoutExpired:
            kill_child(child)
            status = -int(signal.SIGKILL)
        except BaseException:
            kill_child(child)
            raise
    if spec.warms and status in (0, 1):
        with host_log.suppress(OSError):
            compiler_cache.keep_cache(cache, kept)
    lines = files.read_tail(log, 2_000).strip().splitlines()
    text = files.read_text(stdout)
    deletion.delete_path(stdout, inside=log.parent)
    return text, lines[-1].removeprefix("reprokit: ") if lines else "it wrote nothing", status


def kill_child(child: subprocess.Popen[bytes]) -> None:
    """Kill a child process; its own children die with it, and guardians end the targets."""
    child.kill()
    child.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[str] | None]:
    """Lock the job; yield None where another process has the lock.

    On file systems without locks, only the result shows that a job was run.
    """
    file: IO[str] = open(path / ".job.lock", "a+")  # noqa: SIM115 - the caller uses it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        yield None
        return
    except OSError as problem:
        host_log.log_ignored(problem)
    try:
        yield file
    finally:
        file.close()


def main() -> None:
    """Run the job of the folder in the arguments; end when the parent process ends."""
    _die_with_parent()
    if len(sys.argv) > 2 and os.getppid() != int(sys.argv[2]):  # the parent has ended already
        return
    with host_log.suppress(KeyboardInterrupt):
        run_job(sys.argv[1])


if __name__ == "__main__":
    main()
