"""Runs that ended because the disk was full or the memory ran out. By itself, neither is a fault of
the compiler.
"""

from __future__ import annotations

from reprokit.core.judge import exit_signal
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import location
from reprokit.core.judge.stacks.location import as_sentence
from reprokit.core.records.dumps import Raised
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation

_OOM_TYPES = {
    "MemoryError",
    "OutOfMemoryError",
    "torch.OutOfMemoryError",
    "torch.cuda.OutOfMemoryError",
}
_OOM_WORDS = (
    "CUDA out of memory",
    "DefaultCPUAllocator: can't allocate memory",
    "HIP out of memory",
    "std::bad_alloc",
    "Cannot allocate memory",
)


def disk_full(seen: Observation) -> Verdict | None:
    """Return the verdict on a run that failed because of a full disk or a file size limit."""
    for raised in _raised(seen):
        root = fr.root_cause(raised)
        if any(
            words in root.message
            for words in ("[Errno 28]", "[Errno 27]", "[Errno 122]", "No space left on device")
        ):
            text = (
                f"the disk is full or a file reached its size limit: {location.first_line(root)};"
                " free some space and run it again"
            )
            return Verdict(
                "unknown",
                location.phase_of_exception(raised, seen),
                "disk-full",
                as_sentence(text),
                location.exception_evidence(raised),
            )
    return None


def out_of_memory(seen: Observation) -> Verdict | None:
    """Return the verdict on a run that ran out of memory, or that the kernel killed for it."""
    for raised in _raised(seen):
        for link in raised.chain:
            short = link.type.rsplit(".", 1)[-1]
            if (
                link.type in _OOM_TYPES
                or short in _OOM_TYPES
                or any(w in link.message for w in _OOM_WORDS)
            ):
                phase = location.phase_of_exception(raised, seen)
                words = link.message.strip().splitlines()[0][:200] if link.message.strip() else ""
                text = (
                    f"memory ran out ({short}{': ' + words if words else ''}),"
                    f" {location.doing_in_words(phase, seen)}"
                )
                return Verdict(
                    "oom", phase, short, as_sentence(text), location.exception_evidence(raised)
                )
    if seen.oom_evidence and exit_signal.signal_of(seen) in ("SIGKILL", None):
        phase, evidence = location.phase_at_work(seen)
        return Verdict(
            "oom",
            phase,
            "killer",
            as_sentence(
                "the kernel's out-of-memory killer killed the target,"
                f" {location.doing_in_words(phase, seen)}"
            ),
            (seen.oom_evidence, *evidence),
        )
    return None


def _raised(seen: Observation) -> tuple[Raised, ...]:
    return (
        (seen.raised,) if seen.raised else (seen.compile_failures if seen.exit_status != 0 else ())
    )
