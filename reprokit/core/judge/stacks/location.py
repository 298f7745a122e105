"""Locate a run: its phase and position, from stacks, exceptions and the journal, with the
evidence.
"""

from __future__ import annotations

import itertools
import re

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import phases
from reprokit.core.judge.stacks.evidence import (
    is_same_exception,
    main_stacks,
    stacks_by_tool,
)
from reprokit.core.judge.stacks.messages import error_of_gpu_kernel, telling_line
from reprokit.core.judge.stacks.recent_dumps import only_recent, stacks_of
from reprokit.core.records.dumps import Frame, Link, Raised
from reprokit.core.records.observation import Observation

_CALLED = re.compile(
    r"(?P<name>(?:cpp_fused|triton_(?:poi|red|per|tem|for)|extern_kernels\.|torch\.ops\.|aten\.)"
    r"[\w.]*)(?=\(|$)"
)


def phase_at_work(seen: Observation) -> tuple[str | None, tuple[str, ...]]:
    """Return the current phase and its evidence, from the stacks or else from the journal."""
    stacks = main_stacks(seen)
    by_event = phases.phase_of_events(seen.open_events)
    by_frame = phases.phase_of_frames(stacks[-1]) if stacks else None
    is_finer = by_event is not None and by_event[0] in phases.FINE
    if by_frame and not (is_finer and phases.COARSE.fullmatch(by_frame[1].file)):
        return by_frame[0], (f"phase {by_frame[0]} from frame {fr.show_frame(by_frame[1])}",)
    if by_event:
        return by_event[0], (f"phase {by_event[0]} from open event {by_event[1]}",)
    if stacks:
        return "eager", ("no frame of the compiler on the main thread's stack",)
    return None, ()


def phase_of_open_events(seen: Observation) -> str | None:
    """Return the phase of the events that did not end."""
    by_event = phases.phase_of_events(seen.open_events)
    return by_event[0] if by_event else None


def phase_of_exception(raised: Raised, seen: Observation) -> str | None:
    """Return the phase in which an exception was raised, from its innermost frame with a phase."""
    if error_of_gpu_kernel(fr.root_cause(raised).message):
        return "eager" if phase_of_open_events(seen) == "eager" else "kernel-run"
    for link in reversed(raised.chain):
        by_frame = phases.phase_of_frames(fr.normalise_frames(link.frames))
        if by_frame:
            return by_frame[0]
    for other in seen.compile_failures:
        if other is not raised and is_same_exception(raised, other):
            return phase_of_exception(other, Observation())
    # Dynamo removes its frames from the exceptions that reach the user; their types show the phase
    if any(link.type.startswith("torch._dynamo.exc.") for link in raised.chain):
        return "dynamo-trace"
    return phase_of_open_events(seen)


def exception_evidence(raised: Raised) -> tuple[str, ...]:
    """Return the evidence that a reader needs to check a verdict on an exception."""
    chain = " > ".join(link.type for link in raised.chain)
    frames: tuple[Frame, ...] = next(
        (link.frames for link in reversed(raised.chain) if link.frames), ()
    )
    by_frame = phases.phase_of_frames(fr.normalise_frames(frames))
    rows = [f"exception chain: {chain}", f"message: {first_line(fr.root_cause(raised))[:300]}"]
    if by_frame:
        rows.append(f"phase {by_frame[0]} from frame {fr.show_frame(by_frame[1])}")
    return tuple(rows)


def has_moved(seen: Observation, phase: str | None) -> bool:
    """Return whether the stack of the working thread changed between two dumps of one tool.

    Inside the compiler only compiler frames count, because a custom pass, or a library below the
    compiler, may be in an endless loop. Outside of it, a different line counts.
    """
    for stacks in stacks_by_tool(seen).values():
        if phase in phases.COMPILE_PHASES:
            views: list[list[object]] = [
                [
                    fr.show_frame(f)
                    for f in stack
                    if f.file.startswith(("torch/_", "torch/fx/", "triton/"))
                ]
                for stack in stacks
            ]
        else:
            views = [list(stack) for stack in stacks]
        if any(a != b for a, b in itertools.pairwise(views)):
            return True
    return False


def motion_evidence(seen: Observation) -> tuple[str, ...]:
    """Describe what moved between the dumps and what did not."""
    rows: list[str] = []
    if seen.quiet_s is not None:
        last = f"; the last progress was: {seen.last_progress}" if seen.last_progress else ""
        rows.append(
            f"no progress for {seen.quiet_s:.1f} s (limit {seen.quiet_limit_s:.0f} s){last}"
        )
    # all since the last progress: a loop may be in one place in a few dumps by chance
    stacks = main_stacks(only_recent(seen, len(seen.dumps)))
    if len(stacks) < 2:
        return tuple(rows)
    stable = fr.stable_part(stacks)
    inner = sorted(
        {fr.show_frame(s[len(s) - len(stable) - 1]) for s in stacks if len(s) > len(stable)}
    )
    if not inner:
        rows.append(
            f"over {len(stacks)} dumps nothing moved: {plural(len(stable), 'frame')} stayed the same"
        )
    else:
        under = f"under {fr.show_frame(stable[0])}, " if stable else ""
        rows.append(
            f"over {len(stacks)} dumps {plural(len(stable), 'frame')} stayed the same; {under}these frames"
            f" moved: {', '.join(inner[:5])}"
        )
    lines = {s[0].line for s in stacks}
    if not inner and len(lines) > 1:
        rows.append(f"the innermost frame was on lines {', '.join(map(str, sorted(lines)))}")
    return tuple(rows)


def how_far(seen: Observation) -> str:
    """Describe what was done before the end; empty if nothing is known.

    Lines and nodes are journaled each half second, so their numbers are those of the last record.
    """
    done = sum(g.is_done for g in seen.graphs if g.is_entered)
    parts = [
        f"{plural(done, 'graph')} compiled",
        f"{sum(not g.is_done for g in seen.graphs)} not finished",
    ]
    parts = parts if seen.graphs else []
    units = (("line", "traced"), ("node", "lowered"))
    parts += [
        f"at least {plural(seen.steps[unit], unit)} {how}"
        for unit, how in units
        if seen.steps.get(unit)
    ]
    return f"so far {', '.join(parts)}" if parts else ""


def work_details(seen: Observation, phase: str | None) -> dict[str, str]:
    """Return the current work of the compiler: pass, user line, node, graph, kernel, direction;
    only what is known.
    """
    stack = next(iter(main_stacks(seen)[-1:]), ())
    details: dict[str, str] = {}
    if phase == "fx-passes":
        named = [n.rsplit(".", 1)[-1] for n in seen.open_events if n.startswith("pass.")]
        inner = next((f for f in stack if "/fx_passes/" in f.file), None)
        if named:
            details["pass"] = named[-1]
        elif inner:
            details["pass"] = fr.show_frame(inner)
    line = (seen.position if phase == "dynamo-trace" else "") or seen.last_line
    if phase in phases.COMPILE_PHASES and line:
        details["line"] = line
    if phase == "lowering" and seen.position:
        details["node"] = seen.position
    open_graphs = [g for g in seen.graphs if not g.is_done]
    if open_graphs and phase in phases.COMPILE_PHASES:
        graph = open_graphs[-1]
        level = {"aten": "ATen", "export": "exported"}.get(graph.level, "Dynamo")
        turned = "backward " if graph.is_backward else ""
        details["graph"] = (
            f"{turned}{level} graph {graph.number} with {plural(graph.nodes, 'node')}, compile id"
            f" {graph.cid or 'unknown'}"
        )
    is_backward = any("backward" in n or "bw_compiler" in n for n in seen.open_events) or any(
        re.fullmatch(r".*\b(_?backward\w*|bw_compiler\w*)", f.function)
        for f in stack
        if f.file.startswith(("torch/_functorch/", "torch/_inductor/compile_fx", "torch/autograd/"))
    )
    if phase in phases.COMPILE_PHASES or phase == "kernel-run":
        details["direction"] = "backward" if is_backward else "forward"
    if kernel := _kernel(seen):
        details["kernel"] = kernel
    return details


def _kernel(seen: Observation) -> str:
    """Return the line of generated code that runs, or the file that a child compiles."""
    lines = seen.evidence.generated_lines or {}
    pid = seen.main_pid or 0
    raw = next(iter(stacks_of(seen, pid, seen.working_tid or pid)[-1:]), ())
    for frame in raw:
        if text := lines.get(f"{frame.file}:{frame.line}"):
            return text
    for process in reversed(seen.evidence.processes):
        if process.pid != seen.main_pid and (
            file := re.search(r"\S+\.(?:cpp|cu|ptx|ttir|ttgir)\b", process.command)
        ):
            return file.group().rsplit("/", 1)[-1]
    return ""


def called_kernel(line: str) -> str:
    """Return the kernel or the operator that a line of generated code calls, or that is the whole
    text; empty if there is none.
    """
    called = _CALLED.search(line)
    return called["name"] if called else ""


def first_line(link: Link) -> str:
    """Return the most informative line of an exception's message."""
    return (telling_line(link.message) or link.type)[:300]


def doing_in_words(
    phase: str | None, seen: Observation, at_work: dict[str, str] | None = None
) -> str:
    """Return the end of a verdict's sentence, such as ``in phase lowering at node add_3``."""
    work = at_work or {}
    if "pass" in work:
        at = f" ({work['pass']})"
    elif "kernel" in work and phase in ("kernel-run", "cpp-build", "triton-compile"):
        at = f" at {work['kernel'][:120]}"
    else:
        at = f" at {seen.position}" if seen.position and phase in phases.FINE_HEARTBEAT else ""
    if phase == "eager":
        return phases.OUTSIDE_COMPILER
    direction = " (backward)" if work.get("direction") == "backward" else ""
    return f"in phase {phase}{direction}{at}" if phase else f"in an unknown phase{at}"


def plural(count: int, noun: str) -> str:
    """Return ``1 graph``, or ``2 graphs``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def as_sentence(text: str) -> str:
    """Return ``text`` with a capital first letter and a punctuation mark at the end.

    A first word that is code does not change. An empty message after a colon is left out.
    """
    text = text.rstrip(" :") if text.endswith(": ") else text
    first = text.partition(" ")[0]
    text = text if re.search(r"[=_(.]", first) else text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."
