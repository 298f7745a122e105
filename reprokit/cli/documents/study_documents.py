"""The JSON documents of the commands that run a failure or study it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import msgspec

from reprokit.core.records.finding import Signature
from reprokit.core.triage.likeness import Traits
from reprokit.host.minimize.proofs.proof import Proof

Answer = Annotated[
    str, msgspec.Meta(description="same, other, passes or unresolved, against the failure")
]
PathText = Annotated[str, msgspec.Meta(description="the path of a file or folder")]
CpuSeconds = Annotated[float, msgspec.Meta(description="seconds of CPU time of all processes")]


class SchemaVersion(TypedDict):
    """The version of the schema, which is increased when a key changes its meaning."""

    schema: Literal[1]


class SignatureKeys(TypedDict):
    """The signature of the failure, with the version of the rules that made it."""

    id: str
    title: str
    algorithm: int


def signature_keys(signature: Signature) -> SignatureKeys:
    """Return the keys of a signature for a document."""
    return {
        "id": signature.id,
        "title": signature.title,
        "algorithm": signature.algorithm,
    }


class MissingRow(TypedDict):
    """Something that was not done, and why."""

    what: str
    why: str


class VerdictKeys(TypedDict):
    """What happened."""

    kind: Annotated[str, msgspec.Meta(description="ok, exception, crash, hang, wrong-result, ...")]
    phase: str | None
    cause: str | None
    reason: Annotated[str, msgspec.Meta(description="one sentence")]
    detail: str
    also: list[str]
    path: Annotated[list[str], msgspec.Meta(description="which process waits for which")]
    work: Annotated[dict[str, str], msgspec.Meta(description="the current work of the compiler")]
    simulated: list[str]
    stage: Annotated[str, msgspec.Meta(description="the stage of --caches that fails, or empty")]
    responsible: str
    responsible_because: list[str]
    responsible_place: str


class StepRow(TypedDict):
    """The result of one ablation step."""

    name: str
    group: str
    answer: Answer
    verdict: str
    title: str
    seconds: float
    cpu_s: CpuSeconds
    overrides: Annotated[dict[str, Any], msgspec.Meta(description="what the step changed")]


class AblationKeys(TypedDict):
    """The results of all ablation steps."""

    sentence: str
    first: Annotated[str | None, msgspec.Meta(description="the first backend that fails")]
    label: str
    blamed: str
    own: str
    subject: Annotated[
        Literal["program", "part"],
        msgspec.Meta(description="the user's whole program, or a recorded or reduced part of it"),
    ]
    responsible: str
    cures: list[str]
    steps: list[StepRow]


class AblateBase(SchemaVersion):
    """The keys that are always there."""

    signature: SignatureKeys
    ablation: AblationKeys | None
    run_dir: PathText


class AblateDocument(AblateBase, total=False):
    """What ``reprokit ablate --json`` prints; the other keys are those of a target."""

    verdict: VerdictKeys
    pack: PathText | None
    missing: list[MissingRow]


class ConditionsRun(TypedDict):
    """One run with changed conditions."""

    changed: list[str]
    answer: Answer


class ConditionsKeys(TypedDict):
    """The conditions of a failure."""

    sentence: str
    needed: list[list[str]]
    together: list[list[str]]
    irrelevant: list[str]
    unknown: list[str]
    tried: list[ConditionsRun]
    lines: list[str]


class MinimizedKeys(TypedDict):
    """The result of a minimization."""

    level: str
    began_lines: int
    lines: int
    began_nodes: int
    probes: int
    asked: int
    cpu_s: CpuSeconds
    seconds: float
    budget_s: float
    first_s: float | None
    proof_s: float
    rate: float
    is_complete: bool
    notes: list[str]
    depends_on: list[str]
    conditions: ConditionsKeys | None
    proof: Proof | None
    unproved: str
    says: str
    spent: str


class MinimizeBase(SchemaVersion):
    """The keys that are always there."""

    signature: SignatureKeys
    run_dir: PathText
    pack: PathText | None
    repro: PathText | None
    candidate: PathText | None
    unproven: str | None
    minimized: MinimizedKeys | None


class MinimizeDocument(MinimizeBase, total=False):
    """What ``reprokit minimize --json`` prints; the other keys are not those of a pack."""

    ablation: AblationKeys | None
    traits: Traits
    missing: list[MissingRow]


class GainKeys(TypedDict):
    """The speed of compiled calls against eager calls, with the limits of its interval."""

    ratio: float
    low: float
    high: float


class MeasuredGain(GainKeys):
    """The speed of a remedy."""

    eager_s: float
    compiled_s: float


class AdvisedGain(GainKeys):
    """The speed of a target that does not fail."""

    advice: Annotated[str, msgspec.Meta(description="compile, eager or unsure")]


class RemedyRow(TypedDict):
    """The result of one remedy."""

    name: str
    code: str
    answer: str
    why: str
    compile_cpu_s: CpuSeconds
    gain: MeasuredGain | None
    results: str
    says: str
    advice: str


class WorkaroundsBase(SchemaVersion):
    """The keys that are always there."""

    signature: SignatureKeys
    run_dir: PathText
    tried: list[RemedyRow]
    advice: str
    is_known: bool


class WorkaroundsDocument(WorkaroundsBase, total=False):
    """What ``reprokit workarounds --json`` prints; the other keys are known only at times."""

    verdict: VerdictKeys
    pack: PathText | None
    needs_gpu: list[str]
    gain: AdvisedGain | None
    compile_s: float | None
    parameters: int
    guess: str


class ReplayedRun(TypedDict):
    """One run of a repro."""

    answer: Answer
    title: str
    seconds: float
    cpu_s: CpuSeconds


class ReplayedPlace(TypedDict):
    """The runs of a repro in one place."""

    place: str
    python: PathText
    answer: Answer
    hits: int
    runs: int
    unmet: str
    details: list[ReplayedRun]


class ReplayDocument(SchemaVersion):
    """What ``reprokit replay --json`` prints."""

    signature: SignatureKeys
    answer: Annotated[Answer, msgspec.Meta(description="the worst of all places")]
    hits: int
    runs: int
    unmet: str
    python: Annotated[PathText, msgspec.Meta(description="that of the first place")]
    details: list[ReplayedRun]
    places: list[ReplayedPlace]


class ConditionsDocument(SchemaVersion):
    """What ``reprokit conditions --json`` prints."""

    signature: SignatureKeys
    run_dir: PathText
    occurs: bool
    unmet: str
    cpu_s: CpuSeconds
    conditions: ConditionsKeys | None
    places: list[ReplayedPlace]


class CheckBase(SchemaVersion):
    """The keys that are always there."""

    answer: Answer
    runs: int
    unmet: str
    titles: list[str]


class CheckError(TypedDict):
    """Why the program could not run."""

    code: str
    message: str


class CheckDocument(CheckBase, total=False):
    """What ``reprokit check --json`` prints."""

    error: CheckError


class KernelCell(TypedDict):
    """One compile."""

    kernel: str
    arch: str
    ptxas: PathText | None
    answer: str
    stage: str | None
    said: str | None
    title: str | None
    seconds: float


class KernelRemedyRow(TypedDict):
    """A remedy for an architecture with a failure."""

    arch: str
    ptxas: PathText | None
    remedy: str
    works: bool
    said: str | None


class KernelDocument(SchemaVersion):
    """What ``reprokit kernel --json`` prints."""

    cells: list[KernelCell]
    remedies: list[KernelRemedyRow]
    versions: Annotated[dict[str, str], msgspec.Meta(description="version of each --ptxas")]


class BisectStepKeys(TypedDict):
    """The answer of one version."""

    version: str
    answer: Annotated[str, msgspec.Meta(description="good, bad or skip")]
    title: str
    python: PathText
    how: str
    seconds: float
    is_known: bool


class GitBisectDocument(SchemaVersion, BisectStepKeys):
    """What ``reprokit bisect --git --json`` prints."""


class BisectRange(TypedDict):
    """The versions between which the failure started or was fixed."""

    good: str
    bad: str


class BisectDocument(SchemaVersion):
    """What ``reprokit bisect --json`` prints."""

    good: str
    bad: str
    versions: list[str]
    status: Annotated[str, msgspec.Meta(description="found, wrong ends or cannot tell")]
    range: BisectRange | None
    skipped: list[str]
    is_fix: bool
    is_interrupted: bool
    says: str
    describe: PathText | None
    steps: list[BisectStepKeys]


JsonObject = dict[str, Any]
"""An object whose keys are not part of the schema."""
