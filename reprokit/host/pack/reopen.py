"""Take up what a capture left, to work on it once more: a run directory of this machine, or a pack
from anywhere.

A pack may come from a stranger. Its names were checked, but what stands in its graphs and in its
repro is a program: nothing here runs it, and no interpreter that it names is believed.
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
from reprokit.host.minimize import starting_points
from reprokit.host.minimize.minimization import MinimizeCase, starts_of
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proven import CANDIDATE, PROOF, REPRO, Repro, Unproven
from reprokit.host.pack import issue_text, reader, typed_reader, writer
from reprokit.host.report import markdown
from reprokit.host.run import run_directory
from reprokit.host.system import files, private_names

ORIGINAL = run_names.ORIGINAL_FILE
"""The target as a program of its own, in a pack whose other program was cut out of it."""
EVIDENCE = (
    "logs/",
    "trace/",
    "journal/",
    "stacks/",
    "eager/",
    "escalate/",
    run_names.SAMPLES_FILE,
    "report.",
)
"""Files that no command uses. They are hashed, and read again when the pack is written again."""
MOST_TEXT_BYTES = 8 << 20
_UNPROVEN = re.compile(r"^There is no proven repro: .*$", re.MULTILINE)
_ABOUT = r"^Repro \(.*\):\n\n"
_TABLE = re.compile(r"(?<=\| --- \| --- \|\n)(?:\|.*\n)+")
_HIDDEN = re.compile(r"Hidden: [^\n;]*(?:; [^\n;`]*)?; ")


@dataclass(frozen=True)
class OpenedPack:
    """A pack that was read, and what it says happened."""

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
        """The program that it says was proved; empty when there is none."""
        return self._text(REPRO)

    @property
    def program(self) -> str:
        """The repro, or else the candidate: what there is to run; empty when there is none."""
        return self.repro if self.repro.strip() else self._text(CANDIDATE)

    @property
    def original(self) -> str:
        """The target as a program of its own, or else the program."""
        return self._text(ORIGINAL) or self.program

    def _text(self, name: str) -> str:
        return self.pack.files.get(name, b"").decode("utf-8", "replace")

    @property
    def growth(self) -> dict[str, Any]:
        """What a superlinear compile cost at each size; empty for other failures."""
        return self.seen.growth

    @property
    def kernel(self) -> str:
        """The file of the Triton kernel that failed alone; empty for other failures."""
        return self.seen.kernel


def open_pack(path: Path) -> OpenedPack:
    """Read and verify a pack; raises BadInput that says what is wrong with it."""
    found = reader.read_pack(path, lambda name: not name.startswith(EVIDENCE))
    if run_names.VERDICT_FILE not in found.files or run_names.SIGNATURE_FILE not in found.files:
        raise BadInput(f"{path} has no verdict.json and signature.json that can be read")
    algorithm = found.json(run_names.SIGNATURE_FILE).get("algorithm")
    if algorithm != ALGORITHM:
        raise BadInput(
            f"{path} was signed with algorithm {algorithm!r:.50} and this reprokit signs with"
            f" {ALGORITHM}; capture it again, or use the reprokit that made it"
        )
    for name in (
        REPRO,
        CANDIDATE,
        ORIGINAL,
        "README.md",
        *(n for n in found.files if n.startswith("issue")),
    ):
        if found.sizes.get(name, 0) > MOST_TEXT_BYTES:
            raise BadInput(
                f"{path} has a {name} of {found.sizes[name]} bytes; it may have {MOST_TEXT_BYTES}"
            )
    verdict, signature = typed_reader.read_verdict(found), typed_reader.read_signature(found)
    run = found.json(run_names.RUN_FILE)
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
    """Refuse a pack that holds no program for ``word``, a command; raises BadInput."""
    if not opened.program.strip():
        is_ok = opened.verdict.kind == "ok"
        why = (
            "nothing failed in that run" if is_ok else "it holds neither repro.py nor candidate.py"
        )
        raise BadInput(f"{opened.pack.path}: {why}, so there is nothing to {word}")


def what_would_run(case: MinimizeCase) -> str:
    """The programs that a reduction begins with; what it runs are parts of these and smaller
    inputs.
    """
    starts = starts_of(case)
    return "\n".join(
        f"# the {starting_points.NAMES[start.level]}\n{start.text}" for start in starts
    )


def case_of_pack(opened: OpenedPack, place: run_directory.RunDir, python: str) -> MinimizeCase:
    """Lay the graphs of a pack out as a run directory, and give what is to be minimized."""
    for name, data in opened.pack.files.items():
        if re.fullmatch(r"graphs/\d{1,9}/[\w.]+", name):
            path = place.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(path, data)
    if opened.kernel:
        (place.path / run_names.KERNELS_FOLDER).mkdir(exist_ok=True)
        files.write_whole(place.path / run_names.KERNELS_FOLDER / opened.kernel, opened.original)
    return MinimizeCase(
        opened.verdict,
        opened.signature,
        opened.seen,
        place.path,
        python,
        opened.original,
        opened.is_training,
        gpu=opened.gpu,
    )


def repack(opened: OpenedPack, found: MinimizeResult, place: run_directory.RunDir) -> Path:
    """The same pack with the smaller repro in it and in its issue; gives where it lies, or raises
    Unproven.
    """
    program = found.program()
    if not isinstance(program, Repro):
        raise Unproven(program.why)
    draft = writer.PackDraft()
    whole = reader.read_pack(opened.pack.path)
    if whole.manifest != opened.pack.manifest:
        raise BadInput(f"{opened.pack.path} was changed since it was opened")
    gone = (run_names.MANIFEST_FILE, "README.md", REPRO, CANDIDATE, PROOF)
    draft.files = {n: d for n, d in whole.files.items() if n not in gone}
    redactor = private_names.redactor()
    if opened.program:
        draft.files.setdefault(ORIGINAL, opened.program.encode())
    draft.add_repro(program, redactor)
    draft.add_json(run_names.MINIMIZE_FILE, redactor.value(about_minimized(found)))
    part = issue_text.program_section(program, issue_text.REPRO_CHARS).strip()
    for name in (run_names.ISSUE_FILE, "issue/describe.md"):
        if text := draft.files.get(name, b"").decode("utf-8", "replace"):
            draft.add_text(name, _with_program(text, part, opened.repro))
    readme = opened.pack.files.get("README.md", b"").decode("utf-8", "replace")

    def listed(contents: list[tuple[str, str]], trimmed: list[str], hidden: str) -> str:
        rows = "".join(f"| `{name}` | {words} |\n" for name, words in contents)
        told = _HIDDEN.sub(lambda _: f"Hidden: {hidden}; ", readme, count=1)
        return _TABLE.sub(lambda _: rows, _UNPROVEN.sub("", told, count=1), count=1)

    data = writer.build_tarball(draft, listed)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", opened.pack.path.name)
    return writer.write_tarball(data, place.output, name)


def _with_program(text: str, part: str, old: str) -> str:
    """An issue with ``part`` in place of what it said of the ``old`` repro, or of there being
    none.
    """
    if not old.strip():
        return _UNPROVEN.sub(lambda _: part, text, count=1)
    return re.sub(
        _ABOUT + re.escape(markdown.fence(old, "python")),
        lambda _: part,
        text,
        count=1,
        flags=re.MULTILINE,
    )


def about_minimized(found: MinimizeResult) -> dict[str, Any]:
    """``minimize.json`` of a pack: how the repro was found, and what proves it."""
    row = to_json(found)
    assert isinstance(row, dict)
    return {
        **{k: v for k, v in row.items() if k != "text"},
        "says": found.say() if found.text else "",
        "spent": found.spent(),
    }
