"""Write the command line that repeats a capture."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from reprokit.core.shared import simulation, target_options
from reprokit.host.request.run_request import DEADLINE_S, Request


def _seconds(value: float | None, *defaults: float | None) -> str:
    return "" if value is None or value in defaults else f"{value:g}"


def _deadline(request: Request) -> str:
    default_s = None if request.target.kind == "command" else DEADLINE_S
    return _seconds(request.deadline_s, default_s)


def _fail_on(request: Request) -> str:
    limit = {"graph-break": request.most_breaks}
    return ",".join(f"{n}:{limit[n]}" if limit.get(n) else n for n in request.fail_on)


_OPTIONS: tuple[tuple[str, Callable[[Request], object]], ...] = (
    ("--entry", lambda r: r.entry),
    ("--train", lambda r: r.train),
    ("--device", lambda r: r.device),
    ("--gpu", lambda r: simulation.gpu_label(r.gpu) if r.gpu is not None else ""),
    ("--compare-simulated", lambda r: r.beside is not None),
    ("--tensor-parallel-gpus", lambda r: r.tensor_parallel),
    ("--weights", lambda r: r.weights if r.weights != "auto" else ""),
    ("--timeout", _deadline),
    ("--stall", lambda r: _seconds(r.stall_s, Request.stall_s)),
    ("--on-stall", lambda r: r.on_stall),
    ("--grace", lambda r: _seconds(r.grace_s, Request.grace_s)),
    ("--line-repeats", lambda r: r.line_repeats if r.line_repeats != Request.line_repeats else 0),
    ("--escalate", lambda r: r.escalate is True),
    ("--no-escalate", lambda r: r.escalate is False),
    ("--fail-on", _fail_on),
    ("--calls", lambda r: r.calls),
    ("--compare", lambda r: r.compares and r.target.kind == "command"),
    ("--no-compare", lambda r: not r.compares and r.target.kind != "command"),
    ("--compare-speed", lambda r: r.compares_speed),
    ("--compare-memory", lambda r: r.compares_memory),
    ("--caches", lambda r: r.checks_caches),
    ("--cache-change", lambda r: [f"{name}={value}" for name, value in r.cache_change.items()]),
    ("--cache-python", lambda r: r.cache_python),
    ("--without-isolation", lambda r: r.runs_unisolated),
    ("--no-minimize", lambda r: not r.minimizes),
    ("--budget", lambda r: _seconds(r.budget_s, Request.budget_s) if r.minimizes else ""),
    ("--proofs", lambda r: r.proofs if r.minimizes and r.proofs != Request.proofs else 0),
    ("--cores", lambda r: r.cores),
    ("--logs", lambda r: ",".join(r.logs)),
    ("--trace-limit", lambda r: _megabytes(r.trace_bytes)),
    ("--no-trace", lambda r: not r.has_trace),
)
"""Each option of ``reprokit capture`` with its value: a flag is True or False, and an option that
is not on the command line has an empty value or 0.
"""


def _megabytes(size: int) -> str:
    return f"{size / 1e6:g}MB" if size != Request.trace_bytes else ""


def _words(name: str, value: object) -> list[str]:
    """Return an option as words; a list repeats it."""
    if value is True:
        return [name]
    values = value if isinstance(value, list) else [value] if value else []
    return [word for item in values for word in (name, str(item))]


def capture_command(request: Request, growth: dict[str, Any] | None = None) -> str:
    """Return the command that repeats this capture, or that attached to a process.

    With ``growth``, it is the ``reprokit scale`` command that repeats all runs of the measurement.
    """
    if request.attached_pid:
        words = ["reprokit", "attach", str(request.attached_pid), "--stall", f"{request.stall_s:g}"]
        return shlex.join([*words, *(["--graphs"] if request.minimizes else [])])
    words = ["reprokit", "capture"]
    knobs = dict(request.knobs)
    if growth:
        words = ["reprokit", "scale", "--at", str(growth["at"])]
        sizes = ",".join(str(row["size"]) for row in growth["sizes"])
        words += ["--set", f"{growth['knob']}={sizes}"]
        words += [
            w
            for k, v in knobs.items()
            if k not in (growth["knob"], "dtype")
            for w in ("--set", f"{k}={v}")
        ]
        knobs = {k: v for k, v in knobs.items() if k == "dtype"}
    for name, value in knobs.items():
        words += target_options.option_words(name, value) if value is not None else []
    for name, value in request.compile.items():
        flag = name.replace("_", "-")
        words += _words(f"--no-{flag}", True) if value is False else _words(f"--{flag}", value)
    for name, value_of in _OPTIONS:
        if growth and name == "--no-compare":
            continue  # no run of a measurement compares
        words += _words(name, value_of(request))
    target = request.target
    return (
        shlex.join(words) + " " + target.words
        if target.kind == "command"
        else shlex.join([*words, "--model", target.words])
    )
