"""Open a pack to work on its failure again, and write a pack with a smaller repro.

A pack may come from a stranger. Its names are checked, but its graphs and its repro are programs.
This module does not run them, and does not use the interpreter that the pack names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.judge.signature import ALGORITHM
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import to_json
from reprokit.core.shared.errors import BadInput
from reprokit.host.minimize.cases import MinimizeCase, starting_points_of_case
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs.proven import Repro, Unproven
from reprokit.host.minimize.starts import starting_points
from reprokit.host.pack import issue_text, reader, typed_reader, writer
from reprokit.host.report import markdown
from reprokit.host.run import run_directory
from reprokit.host.system import files, private_names

EVIDENCE = (
    "logs/",
    "trace/",
    "journal/",
    "stacks/",
    "eager/",
    "escalate/",
    run_names.SAMPLES_FILE,
    "report.",
    run_names.COMPILES_FILE,
    run_names.SPEEDSCOPE_FILE,
    run_names.TRACE_EVENTS_FILE,
)
"""Files that no command uses. They are only hashed, and read again to write a further pack."""
MAX_TEXT_BYTES = 8 << 20
MAX_NUMBER = 1e9
"""CPU seconds, lines and runs of a pack that are not smaller are not believed."""
_UNPROVEN = re.compile(r"^There is no proven repro: .*$", re.MULTILINE)
_ABOUT = r"^Repro \(.*\):\n\n"
_TABLE = re.compile(r"(?<=\| --- \| --- \|\n)(?:\|.*\n)+")
_HIDDEN = re.compile(r"Hidden: [^\n;]*(?:; [^\n;`]*)?; ")


@dataclass(frozen=True)
class OpenedPack:
    """A pack and its records."""

    pack: reader.PackFiles
    verdict: Verdict
    signature: Signature
    seen: Observation
    """The fields that a reduction needs; other fields have their defaults."""
    is_training: bool = False
    compile: dict[str, Any] = field(default_factory=dict)
    """Arguments of torch.compile."""
    gpu: dict[str, Any] | None = None
    """The simulated GPU; None if the device is real, or if the description matches no known GPU."""

    @property
    def repro(self) -> str:
        """The program that the pack calls proved; empty if there is none."""
        return self._text(run_names.REPRO_FILE)

    @property
    def program(self) -> str:
        """The repro, or otherwise the candidate; empty if there is none."""
        return self.repro if self.repro.strip() else self._text(run_names.CANDIDATE_FILE)

    @property
    def original(self) -> str:
        """The target as a program, or otherwise the repro or candidate."""
        return self._text(run_names.ORIGINAL_FILE) or self.program

    @property
    def reduction_cpu_s(self) -> float:
        """CPU seconds of the reduction; 0 if they are not known."""
        return self._of_reduction("cpu_s", 0.0)

    @property
    def failure_rate(self) -> float:
        """The share of runs in which the failure shows; 1 if it is not known."""
        return min(max(self._of_reduction("rate", 1.0), 0.0), 1.0)

    @property
    def is_reduced(self) -> bool:
        """Whether the repro is a reduced program, not the program of the run itself."""
        return self._of_reduction("lines", 0) > 0

    @property
    def proof(self) -> str:
        """In how many fresh runs the repro fails: ``2 of 2``; empty if that is not known."""
        hits, runs = (self._number(run_names.PROOF_FILE, name, 0) for name in ("hits", "runs"))
        return f"{hits:.0f} of {runs:.0f}" if runs else ""

    def _of_reduction(self, name: str, otherwise: float) -> float:
        return self._number(run_names.MINIMIZE_FILE, name, otherwise)

    def _number(self, file: str, name: str, otherwise: float) -> float:
        value = self.pack.read_json(file).get(name) if file in self.pack.files else None
        if isinstance(value, (int, float)) and abs(value) < MAX_NUMBER:  # NaN is not
            return float(value)
        return otherwise

    def _text(self, name: str) -> str:
        return self.pack.files.get(name, b"").decode("utf-8", "replace")

    @property
    def growth(self) -> dict[str, Any]:
        """The cost of a superlinear compile at each size; empty for other failures."""
        return self.seen.growth

    @property
    def kernel(self) -> str:
        """The file of the Triton kernel that failed alone; empty for other failures."""
        return self.seen.kernel


_OF_RECORDS = "has records of torch and no program; run reprokit capture on the program"


def open_pack_of_run(path: Path) -> OpenedPack:
    """Read and verify the pack of a captured run.

    Raises BadInput for that of records, which has neither a program nor what an issue needs.
    """
    opened = open_pack(path)
    if run_names.RECORD_FILE in opened.pack.files:
        raise BadInput(f"{path} {_OF_RECORDS}")
    return opened


def open_pack(path: Path) -> OpenedPack:
    """Read and verify a pack. Raises BadInput with the reason."""
    found = reader.read_pack(path, lambda name: not name.startswith(EVIDENCE))
    if run_names.VERDICT_FILE not in found.files or run_names.SIGNATURE_FILE not in found.files:
        if run_names.RECORD_FILE in found.files:
            raise BadInput(f"{path} {_OF_RECORDS}")
        raise BadInput(f"{path} has no verdict.json or no signature.json")
    algorithm = found.read_json(run_names.SIGNATURE_FILE).get("algorithm")
    if algorithm != ALGORITHM:
        raise BadInput(
            f"{path} was signed with algorithm {algorithm!r:.50} and this reprokit signs with"
            f" {ALGORITHM}; capture it again, or use the reprokit that made it"
        )
    for name in (
        run_names.REPRO_FILE,
        run_names.CANDIDATE_FILE,
        run_names.ORIGINAL_FILE,
        "README.md",
        *(n for n in found.files if n.startswith("issue")),
    ):
        if found.sizes.get(name, 0) > MAX_TEXT_BYTES:
            raise BadInput(
                f"{path} has a {name} of {found.sizes[name]} bytes; the limit is {MAX_TEXT_BYTES}"
            )
    verdict, signature = typed_reader.read_verdict(found), typed_reader.read_signature(found)
    run = found.read_json(run_names.RUN_FILE)
    return OpenedPack(
        found,
        verdict,
        signature,
        typed_reader.read_observation(found, verdict),
        run.get("train") is True,
        typed_reader.read_arguments(run.get("compile")),
        typed_reader.read_gpu_file(run.get("gpu")),
    )


def require_program(opened: OpenedPack, word: str) -> None:
    """Raise BadInput if the pack has no program for the command ``word``."""
    if not opened.program.strip():
        is_ok = opened.verdict.kind == "ok"
        why = "nothing failed in that run" if is_ok else "it has neither repro.py nor candidate.py"
        raise BadInput(f"{opened.pack.path}: {why}, so there is nothing to {word}")


def programs_to_run(case: MinimizeCase) -> str:
    """Return the programs that a reduction starts with. It runs parts of them, and smaller
    inputs.
    """
    starts = starting_points_of_case(case)
    return "\n".join(
        f"# the {starting_points.LEVEL_NAMES[start.level]}\n{start.text}" for start in starts
    )


def case_of_pack(opened: OpenedPack, run: run_directory.RunDir, python: str) -> MinimizeCase:
    """Write the graphs of a pack into a run directory, and return the case to minimize."""
    for name, data in opened.pack.files.items():
        if re.fullmatch(r"graphs/\d{1,9}/[\w.]+", name):
            path = run.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_atomically(path, data)
    if opened.kernel:
        (run.path / run_names.KERNELS_FOLDER).mkdir(exist_ok=True)
        files.write_atomically(run.path / run_names.KERNELS_FOLDER / opened.kernel, opened.original)
    return MinimizeCase(
        opened.verdict,
        opened.signature,
        opened.seen,
        run.path,
        python,
        opened.original,
        opened.is_training,
        gpu=opened.gpu,
    )


def write_smaller_pack(
    opened: OpenedPack, result: MinimizeResult, run: run_directory.RunDir
) -> Path:
    """Write the same pack with a smaller repro in it and in its issue, and return its path.

    Raises Unproven if the program of ``result`` was not proved.
    """
    program = result.program()
    if not isinstance(program, Repro):
        raise Unproven(program.why)
    draft = writer.PackDraft()
    whole = reader.read_pack(opened.pack.path)
    if whole.manifest != opened.pack.manifest:
        raise BadInput(f"{opened.pack.path} was changed since it was opened")
    replaced = (
        run_names.MANIFEST_FILE,
        "README.md",
        run_names.REPRO_FILE,
        run_names.CANDIDATE_FILE,
        run_names.PROOF_FILE,
    )
    draft.files = {n: d for n, d in whole.files.items() if n not in replaced}
    redactor = private_names.get_redactor()
    if opened.program:
        draft.files.setdefault(run_names.ORIGINAL_FILE, opened.program.encode())
    draft.add_repro(program, redactor)
    draft.add_json(run_names.MINIMIZE_FILE, redactor.redact_value(minimize_document(result)))
    part = issue_text.program_section(program, issue_text.MAX_REPRO_CHARS).strip()
    for name in (run_names.ISSUE_FILE, run_names.DESCRIBE_FILE):
        if text := draft.files.get(name, b"").decode("utf-8", "replace"):
            draft.add_text(name, _with_program(text, part, opened.repro))
    readme = opened.pack.files.get("README.md", b"").decode("utf-8", "replace")

    def updated_readme(contents: list[tuple[str, str]], trimmed: list[str], hidden: str) -> str:
        rows = "".join(f"| `{name}` | {words} |\n" for name, words in contents)
        text = _HIDDEN.sub(lambda _: f"Hidden: {hidden}; ", readme, count=1)
        return _TABLE.sub(lambda _: rows, _UNPROVEN.sub("", text, count=1), count=1)

    data = writer.build_tarball(draft, updated_readme)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", opened.pack.path.name)
    return writer.write_tarball(data, run.output, name)


def _with_program(text: str, part: str, old: str) -> str:
    """Return an issue with ``part`` in place of the ``old`` repro, or of the sentence that there is
    no repro.
    """
    if not old.strip():
        return _UNPROVEN.sub(lambda _: part, text, count=1)
    return re.sub(
        _ABOUT + re.escape(markdown.code_block(old, "python")),
        lambda _: part,
        text,
        count=1,
        flags=re.MULTILINE,
    )


def minimize_document(result: MinimizeResult) -> dict[str, Any]:
    """Return ``minimize.json`` of a pack: how the repro was found, and its proof."""
    row = to_json(result)
    assert isinstance(row, dict)
    return {
        **{k: v for k, v in row.items() if k != "text"},
        "conditions": result.conditions.to_json() if result.conditions else None,
        "says": result.describe() if result.text else "",
        "spent": result.describe_time(),
    }
