"""Write the command line that repeats a capture."""

from __future__ import annotations

import shlex
from typing import Any

from reprokit.core.shared import simulation, target_options
from reprokit.host.request.run_request import DEADLINE_S, Request


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
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is False:
            words.append("--no-" + flag[2:])
        elif value is not None:
            words += [flag, str(value)]
    if request.entry:
        words += ["--entry", request.entry]
    if request.train:
        words.append("--train")
    if request.device:
        words += ["--device", request.device]
    if request.gpu is not None:
        words += ["--gpu", simulation.gpu_label(request.gpu)]
    if request.beside is not None:
        words.append("--compare-simulated")
    if request.tensor_parallel:
        words += ["--tensor-parallel-gpus", str(request.tensor_parallel)]
    if request.weights != "auto":
        words += ["--weights", request.weights]
    default_s = None if request.target.kind == "command" else DEADLINE_S
    if request.deadline_s is not None and request.deadline_s != default_s:
        words += ["--timeout", f"{request.deadline_s:g}"]
    if request.stall_s != Request.stall_s:
        words += ["--stall", f"{request.stall_s:g}"]
    if request.on_stall:
        words += ["--on-stall", request.on_stall]
    if request.grace_s != Request.grace_s:
        words += ["--grace", f"{request.grace_s:g}"]
    if request.line_repeats != Request.line_repeats:
        words += ["--line-repeats", str(request.line_repeats)]
    if request.escalate is not None:
        words.append("--escalate" if request.escalate else "--no-escalate")
    if request.fail_on:
        limit = {"graph-break": request.most_breaks}
        words.append("--fail-on")
        words.append(",".join(f"{n}:{limit[n]}" if limit.get(n) else n for n in request.fail_on))
    if request.checks_caches:
        words.append("--caches")
    for name, setting in request.cache_change.items():
        words += ["--cache-change", f"{name}={setting}"]
    if request.cache_python:
        words += ["--cache-python", request.cache_python]
    if request.runs_unisolated:
        words.append("--without-isolation")
    if not request.minimizes:
        words.append("--no-minimize")
    elif request.budget_s != Request.budget_s:
        words += ["--budget", f"{request.budget_s:g}"]
    if request.minimizes and request.proofs != Request.proofs:
        words += ["--proofs", str(request.proofs)]
    if request.cores:
        words += ["--cores", str(request.cores)]
    if request.logs:
        words += ["--logs", ",".join(request.logs)]
    if not request.has_trace:
        words.append("--no-trace")
    target = request.target
    return (
        shlex.join(words) + " " + target.words
        if target.kind == "command"
        else shlex.join([*words, "--model", target.words])
    )
