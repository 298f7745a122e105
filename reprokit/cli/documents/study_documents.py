"""The JSON documents of the commands that study a failure, as they are printed."""

from __future__ import annotations

from typing import TypedDict


class SignatureKeys(TypedDict):
    """The signature of the failure."""

    id: str
    title: str


class MissingRow(TypedDict):
    """Something that was not done, and why."""

    what: str
    why: str


class StepRow(TypedDict):
    """The result of one ablation step."""

    name: str
    answer: str
    title: str
    cpu_s: float


class AblationKeys(TypedDict):
    """The results of all ablation steps."""

    steps: list[StepRow]
    sentence: str


class AblateDocument(TypedDict, total=False):
    """What ``reprokit ablate --json`` prints."""

    schema: int
    verdict: dict[str, object]
    signature: SignatureKeys
    ablation: AblationKeys | None
    run_dir: str
    pack: str | None
    missing: list[MissingRow]


class MinimizedKeys(TypedDict, total=False):
    """The result of a minimization."""

    lines: int
    says: str
    notes: list[str]
    probes: int
    cpu_s: float
    spent: str


class MinimizeDocument(TypedDict, total=False):
    """What ``reprokit minimize --json`` prints."""

    schema: int
    signature: SignatureKeys
    run_dir: str
    pack: str | None
    repro: str | None
    candidate: str | None
    unproven: str | None
    minimized: MinimizedKeys | None
    ablation: AblationKeys | None
    traits: dict[str, object]
    missing: list[MissingRow]


class GainKeys(TypedDict):
    """The speed of compiled calls against eager calls, with the limits of its interval."""

    ratio: float
    low: float
    high: float
    advice: str


class RemedyRow(TypedDict):
    """The result of one remedy."""

    name: str
    answer: str
    compile_cpu_s: float
    gain: GainKeys | None
    code: str
    why: str


class WorkaroundsDocument(TypedDict, total=False):
    """What ``reprokit workarounds --json`` prints."""

    schema: int
    verdict: dict[str, object]
    signature: SignatureKeys
    run_dir: str
    pack: str | None
    tried: list[RemedyRow]
    needs_gpu: list[str]
    gain: GainKeys | None
    compile_s: float | None
    advice: str
    is_known: bool
    parameters: int
    guess: str
