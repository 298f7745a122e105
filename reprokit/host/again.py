"""Take up what a capture left, to work on it once more: a run directory of this machine, or a pack from anywhere.

A pack may come from a stranger. Its names were checked, but what stands in its graphs and in its repro is a program:
nothing here runs it, and no interpreter that it names is believed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import devices
from ..core.rank_graphs import GraphRecord
from ..core.records import BadInput, Link, Observation, Raised, Signature, Verdict, to_json
from ..core.redact import Redactor
from ..core.signature import ALGORITHM
from . import archive, files, origins, pack, private, render, rundir
from .minimize import Case, starts_of
from .minimized import Minimized
from .origins import KERNELS
from .proven import CANDIDATE, PROOF, REPRO, Repro, Unproven

ORIGINAL = "original.py"
"""The target as a program of its own, in a pack whose other program was cut out of it."""
_UNPROVEN = re.compile(r"^There is no proven repro: .*$", re.MULTILINE)
_ABOUT = r"^Repro \(.*\):\n\n"
_TABLE = re.compile(r"(?<=\| --- \| --- \|\n)(?:\|.*\n)+")


@dataclass(frozen=True)
class Opened:
    """A pack that was read, and what it says happened."""

    pack: archive.Pack
    verdict: Verdict
    signature: Signature

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
        told = self.pack.json("observation.json").get("growth")
        return told if isinstance(told, dict) else {}

    @property
    def kernel(self) -> str:
        """The file of the Triton kernel that failed alone; empty for other failures."""
        told = str(self.pack.json("observation.json").get("kernel") or "")
        return told if re.fullmatch(r"[\w-]+\.py", told) else ""

    @property
    def gpu(self) -> dict[str, Any] | None:
        """The GPU that was simulated; None where the device was real, or where no GPU is like that."""
        told = self.pack.json("run.json").get("gpu")
        with contextlib.suppress(BadInput):
            return dataclasses.asdict(devices.read(told, "the pack")) if isinstance(told, dict) else None
        return None


def open_pack(path: Path) -> Opened:
    """Read and verify a pack; raises BadInput that says what is wrong with it."""
    found = archive.read(path)
    told, signed = found.json("verdict.json"), found.json("signature.json")
    if not isinstance(told.get("kind"), str) or not isinstance(signed.get("id"), str):
        raise BadInput(f"{path} has no verdict.json and signature.json that can be read")
    if signed.get("algorithm") != ALGORITHM:
        raise BadInput(
            f"{path} was signed with algorithm {signed.get('algorithm')!r} and this reprokit signs with {ALGORITHM}; "
            "capture it again, or use the reprokit that made it"
        )
    work = told.get("work") if isinstance(told.get("work"), dict) else {}
    verdict = Verdict(
        str(told["kind"]), _text(told.get("phase")), _text(told.get("cause")), str(told.get("reason") or ""),
        work={str(k): str(v) for k, v in (work or {}).items()},
        responsible=_text(told.get("responsible")) or "", responsible_place=_text(told.get("responsible_place")) or "",
    )  # fmt: skip
    return Opened(found, verdict, Signature(str(signed["id"]), str(signed.get("title") or ""), ALGORITHM))


def require_program(opened: Opened, word: str) -> None:
    """Refuse a pack that holds no program for ``word``, a command; raises BadInput."""
    if not opened.program.strip():
        is_ok = opened.verdict.kind == "ok"
        why = "nothing failed in that run" if is_ok else "it holds neither repro.py nor candidate.py"
        raise BadInput(f"{opened.pack.path}: {why}, so there is nothing to {word}")


def what_would_run(case: Case) -> str:
    """The programs that a reduction begins with; what it runs are parts of these and smaller inputs."""
    starts = starts_of(case)
    return "\n".join(f"# the {origins.NAMES[start.level]}\n{start.text}" for start in starts)


def case_of_pack(opened: Opened, place: rundir.RunDir, python: str) -> Case:
    """Lay the graphs of a pack out as a run directory, and give what is to be minimized."""
    for name, data in opened.pack.files.items():
        if re.fullmatch(r"graphs/\d{1,9}/[\w.]+", name):
            path = place.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(path, data)
    told = opened.pack.json("observation.json")
    if opened.kernel:
        (place.path / KERNELS).mkdir(exist_ok=True)
        files.write_whole(place.path / KERNELS / opened.kernel, opened.original)
    seen = Observation(
        kernel=opened.kernel,
        seconds=_number(told.get("seconds")), quiet_s=_number(told.get("quiet_s")),
        endless_line=str(told.get("endless_line") or ""), graphs=tuple(_graphs(told.get("graphs"))),
        raised=_raised(told.get("raised")),
        first_rung=opened.verdict.phase or "" if opened.verdict.kind == "wrong-result" else "",
        departs=opened.verdict.work.get("op", ""), departs_in=str(told.get("departs_in") or ""), growth=opened.growth,
        own_backend=str(told.get("own_backend") or ""),
        own_passes=tuple(map(str, told["own_passes"])) if isinstance(told.get("own_passes"), list) else (),
        compile_failures=tuple(r for row in _rows(told.get("compile_failures")) if (r := _raised(row))),
    )  # fmt: skip
    run = opened.pack.json("run.json")
    return Case(
        opened.verdict, opened.signature, seen, place.path, python, opened.original, bool(run.get("train")),
        gpu=opened.gpu,
    )  # fmt: skip


def repack(opened: Opened, found: Minimized, place: rundir.RunDir) -> Path:
    """The same pack with the smaller repro in it and in its issue; gives where it lies, or raises Unproven."""
    program = found.program()
    if not isinstance(program, Repro):
        raise Unproven(program.why)
    draft = pack.Draft()
    gone = ("manifest.json", "README.md", REPRO, CANDIDATE, PROOF)
    draft.files = {n: d for n, d in opened.pack.files.items() if n not in gone}
    redactor = Redactor(private.gather())
    if opened.program:
        draft.files.setdefault(ORIGINAL, opened.program.encode())
    draft.add_repro(program, redactor)
    draft.add_json("minimize.json", redactor.value(about(found)))
    part = render.program(program, render.REPRO_CHARS).strip()
    for name in ("issue.md", "issue/describe.md"):
        if text := draft.files.get(name, b"").decode("utf-8", "replace"):
            draft.add_text(name, _with_program(text, part, opened.repro))
    readme = opened.pack.files.get("README.md", b"").decode("utf-8", "replace")

    def listed(contents: list[tuple[str, str]], trimmed: list[str]) -> str:
        rows = "".join(f"| `{name}` | {words} |\n" for name, words in contents)
        return _TABLE.sub(lambda _: rows, _UNPROVEN.sub("", readme, count=1), count=1)

    data = pack.build(draft, listed)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", opened.pack.path.name)
    return pack.write(data, place.output, name)


def _with_program(text: str, part: str, old: str) -> str:
    """An issue with ``part`` in place of what it said of the ``old`` repro, or of there being none."""
    if not old.strip():
        return _UNPROVEN.sub(lambda _: part, text, count=1)
    return re.sub(_ABOUT + re.escape(render.fence(old, "python")), lambda _: part, text, count=1, flags=re.MULTILINE)


def about(found: Minimized) -> dict[str, Any]:
    """``minimize.json`` of a pack: how the repro was found, and what proves it."""
    row = to_json(found)
    assert isinstance(row, dict)
    return {
        **{k: v for k, v in row.items() if k != "text"},
        "says": found.say() if found.text else "",
        "spent": found.spent(),
    }


def _graphs(rows: Any) -> list[GraphRecord]:
    found = []
    for row in _rows(rows):
        known = {f.name for f in dataclasses.fields(GraphRecord)} - {"calls"}  # a pack is minimized as one rank
        with contextlib.suppress(TypeError, ValueError):
            record = GraphRecord(**{k: v for k, v in row.items() if k in known})
            if isinstance(record.number, int):
                found.append(record)
    return found


def _raised(row: Any) -> Raised | None:
    if not isinstance(row, dict):
        return None
    links = [Link(str(r.get("type")), str(r.get("message"))) for r in _rows(row.get("chain"))]
    return Raised(tuple(links)) if links else None


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
