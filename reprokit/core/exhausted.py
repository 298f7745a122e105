"""Runs that ended because the disk or the memory was used up; neither is a fault of the compiler by itself."""

from __future__ import annotations

from . import frames as fr
from . import signals, where
from .records import Observation, Raised, Verdict
from .where import sentence

_OOM_TYPES = {"MemoryError", "OutOfMemoryError", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError"}
_OOM_WORDS = (
    "CUDA out of memory",
    "DefaultCPUAllocator: can't allocate memory",
    "HIP out of memory",
    "std::bad_alloc",
    "Cannot allocate memory",
)


def disk_full(seen: Observation) -> Verdict | None:
    """A full disk makes any compiler fail; it is neither the target's fault nor the compiler's."""
    for raised in _raised(seen):
        root = fr.root(raised)
        if any(
            words in root.message for words in ("[Errno 28]", "[Errno 27]", "[Errno 122]", "No space left on device")
        ):
            text = f"the disk is full or a file reached its size limit: {where.first_line(root)}; free some space and run again"
            return Verdict(
                "unknown",
                where.of_exception(raised, seen),
                "disk-full",
                sentence(text),
                where.exception_evidence(raised),
            )
    return None


def out_of_memory(seen: Observation) -> Verdict | None:
    for raised in _raised(seen):
        for link in raised.chain:
            short = link.type.rsplit(".", 1)[-1]
            if link.type in _OOM_TYPES or short in _OOM_TYPES or any(w in link.message for w in _OOM_WORDS):
                phase = where.of_exception(raised, seen)
                said = link.message.strip().splitlines()[0][:200] if link.message.strip() else ""
                text = f"memory ran out ({short}{': ' + said if said else ''}), {where.doing(phase, seen)}"
                return Verdict("oom", phase, short, sentence(text), where.exception_evidence(raised))
    if seen.oom_evidence and signals.of(seen) in ("SIGKILL", None):
        phase, evidence = where.at_work(seen)
        return Verdict(
            "oom",
            phase,
            "killer",
            sentence(f"the kernel's out-of-memory killer ended the target, {where.doing(phase, seen)}"),
            (seen.oom_evidence, *evidence),
        )
    return None


def _raised(seen: Observation) -> tuple[Raised, ...]:
    return (seen.raised,) if seen.raised else (seen.compile_failures if seen.exit_status != 0 else ())
