"""The JSON documents of the commands that capture a target."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import msgspec

from reprokit.cli.documents.error_documents import ErrorDocument
from reprokit.cli.documents.known_documents import KnownKeys
from reprokit.cli.documents.study_documents import (
    AblationKeys,
    CpuSeconds,
    JsonObject,
    MinimizedKeys,
    MissingRow,
    PathText,
    SchemaVersion,
    SignatureKeys,
    VerdictKeys,
)
from reprokit.core.records.call_growth import CallGrowth
from reprokit.core.records.memory_use import MemoryComparison
from reprokit.core.records.speed import Speed
from reprokit.core.shared.result_comparison import Comparison
from reprokit.core.triage.likeness import Traits


class CompileCosts(TypedDict):
    """The costs of the compile."""

    cpu_s: CpuSeconds
    phases: Annotated[
        dict[str, float], msgspec.Meta(description="CPU seconds by phase, the largest first")
    ]


class DecisionKeys(TypedDict):
    """A new issue, a comment on the issue of the known failure, or nothing to file."""

    action: Literal["new issue", "comment", "nothing"]
    why: Annotated[str, msgspec.Meta(description="why nothing is filed, or what is known")]
    issue: Annotated[str, msgspec.Meta(description="OWNER/REPOSITORY#NUMBER of the known failure")]
    url: Annotated[str, msgspec.Meta(description="the page to open")]
    avoids: Annotated[str, msgspec.Meta(description="what avoids the known failure")]
    similar: Annotated[
        list[str], msgspec.Meta(description="the issues of known failures that are only similar")
    ]


class CaptureDocument(SchemaVersion):
    """What ``reprokit capture --json`` and ``reprokit pack --json`` print."""

    verdict: VerdictKeys
    signature: SignatureKeys
    run_dir: PathText
    pack: PathText | None
    issue: PathText | None
    repro: Annotated[str | None, msgspec.Meta(description="a program that fresh processes proved")]
    candidate: Annotated[str | None, msgspec.Meta(description="a program without a proof")]
    unproven: Annotated[str | None, msgspec.Meta(description="why there is no proved program")]
    report: PathText | None
    minimized: MinimizedKeys | None
    comparison: Comparison | None
    call_growth: Annotated[
        CallGrowth | None, msgspec.Meta(description="what grew over the calls of --calls")
    ]
    memory: Annotated[
        MemoryComparison | None, msgspec.Meta(description="the peaks of --compare-memory")
    ]
    speed: Annotated[Speed | None, msgspec.Meta(description="the times of --compare-speed")]
    ablation: AblationKeys | None
    traits: Traits
    known: list[KnownKeys]
    decision: Annotated[
        DecisionKeys, msgspec.Meta(description="what to do with the failure: one action")
    ]
    advice: Annotated[
        str | None,
        msgspec.Meta(description="what to change in the program; reprokit did not try it"),
    ]
    compile: CompileCosts
    versions: Annotated[dict[str, str], msgspec.Meta(description="torch and triton of the target")]
    redacted: Annotated[JsonObject, msgspec.Meta(description="counts of placeholders in the pack")]
    missing: list[MissingRow]
    seconds: float
    total_s: float
    peak_rss_bytes: int


class ProcessKeys(TypedDict):
    """The process that ``reprokit attach`` read."""

    pid: int
    argv: list[str]
    cwd: PathText | None
    python: PathText | None
    capture: Annotated[str, msgspec.Meta(description="the command that captures it from its start")]
    first_answer_s: Annotated[float, msgspec.Meta(description="seconds to the first answer")]
    has_ended: Annotated[bool, msgspec.Meta(description="--then end ended the process")]


class AttachDocument(CaptureDocument):
    """What ``reprokit attach --json`` prints."""

    process: ProcessKeys


class LockUpKeys(TypedDict):
    """A lock-up of a service."""

    time: Annotated[float, msgspec.Meta(description="seconds since the epoch")]
    still_s: Annotated[float, msgspec.Meta(description="nothing had moved for at least this long")]
    phase: str
    cause: str
    reason: str
    signature: str
    title: str
    is_new: bool
    pack: Annotated[str, msgspec.Meta(description="its path; empty if it was not kept")]


class WatchDocument(SchemaVersion):
    """What ``reprokit watch --json`` prints at its end."""

    pid: int
    lock_ups: list[LockUpKeys]
    seconds: float
    cpu_s: CpuSeconds
    exit_status: Annotated[int | None, msgspec.Meta(description="of a command; null for a PID")]
    is_interrupted: bool
    output: PathText


class RankGroupKeys(TypedDict):
    """Ranks that do the same."""

    ranks: list[int]
    doing: str
    is_odd: bool


class MergedRanksDocument(SchemaVersion):
    """What ``reprokit merge --json`` prints."""

    reason: str
    odd: list[int]
    kind: str
    groups: list[RankGroupKeys]
    ranks: Annotated[list[int], msgspec.Meta(description="the ranks with any data")]
    without_data: list[int]
    since: Annotated[float | None, msgspec.Meta(description="seconds since the epoch")]
    skipped: Annotated[list[str], msgspec.Meta(description="files that could not be read")]
    is_sure: bool
    graphs_differ: Annotated[
        str, msgspec.Meta(description="which rank compiled a different graph; empty if none did")
    ]


class GrowthLaw(TypedDict):
    """How a cost grows, and the prediction with its interval."""

    law: str
    words: str
    is_superlinear: bool
    can_tell: bool
    predicted: float
    low: float
    high: float


class GrowthOfMemory(GrowthLaw):
    """How the peak memory grows."""

    grew: int


class GrowthOfPhase(GrowthLaw):
    """How the CPU time of a phase grows, with its seconds at each size."""

    phase: str
    costs: list[float]


class GrowthWorst(TypedDict, total=False):
    """The phase that grows fastest."""

    phase: str
    law: str
    words: str
    frame: str
    event: str


class GrowthKeys(TypedDict):
    """The measurements, the laws and the predictions."""

    schema: Literal[1]
    knob: str
    at: int
    is_superlinear: bool
    worst: GrowthWorst | None
    total: GrowthLaw | None
    memory: GrowthOfMemory | None
    sizes: Annotated[list[JsonObject], msgspec.Meta(description="the measurements")]
    phases: list[GrowthOfPhase]
    passes: Annotated[list[JsonObject], msgspec.Meta(description="as phases, for each pass")]
    table: list[str]
    left_out: list[str]
    says: str


class ScaleDocument(CaptureDocument):
    """What ``reprokit scale --json`` prints."""

    growth: GrowthKeys


class NoVerdict(TypedDict):
    """The keys of a verdict, all null."""

    kind: None
    phase: None
    cause: None
    reason: None
    detail: None
    also: None
    path: None
    work: None
    simulated: None
    stage: None
    responsible: None
    responsible_because: None
    responsible_place: None


class NoSignature(TypedDict):
    """The keys of a signature, all null."""

    id: None
    title: None
    algorithm: None


class RefusedCaptureDocument(ErrorDocument):
    """What ``reprokit capture --json`` prints for a target or a value that cannot be used.

    The keys beside ``error`` are those of versions before 0.3.
    """

    verdict: NoVerdict
    signature: NoSignature
    run_dir: None
    pack: None
    issue: None
    repro: None
    report: None
    minimized: None
    seconds: None
    peak_rss_bytes: None
    missing: list[MissingRow]


class RefusedScaleDocument(RefusedCaptureDocument):
    """What ``reprokit scale --json`` prints for a target or a value that cannot be used."""

    growth: None


def refuse_capture(code: str, why: str) -> dict[str, Any]:
    """Return the document of a capture that is refused."""
    nothing = dict.fromkeys(RefusedCaptureDocument.__annotations__)
    return {
        **nothing,
        "schema": 1,
        "error": {"code": code, "message": why},
        "verdict": dict.fromkeys(NoVerdict.__annotations__),
        "signature": dict.fromkeys(NoSignature.__annotations__),
        "missing": [{"what": "run", "why": why}],
    }
