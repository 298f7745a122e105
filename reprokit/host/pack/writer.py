"""Make the pack: redacted copies of what the run left, a manifest, and a tarball of the same bytes
every time.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit import __version__
from reprokit.core.records.observation import Missing
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import SCHEMA, to_json
from reprokit.host.minimize.proven import PROOF, REPRO, Repro, Unproven
from reprokit.host.pack import issue_text, placeholder_counts, tar_format
from reprokit.host.system import deletion, files

MOST_BYTES = 25_000_000
"""GitHub takes attachments of up to 25 MB."""
MOST_UNPACKED = 160 << 20
MOST_FILES = 15_000
"""Fewer than :mod:`archive` reads, because files are added to a pack later."""
MOST_TRIMMED = 500
"""Files whose cuts are listed one by one."""
LOG_BYTES = 8 << 20
TRACE_BYTES = 96 << 20

EVIDENCE = (
    ("logs", (".txt", ".log", ".mlir"), LOG_BYTES),
    ("stacks", (".txt", ".json"), LOG_BYTES),
    ("graphs", (".py", ".json"), LOG_BYTES),
    ("kernels", (".py",), LOG_BYTES),
    ("journal", (".jsonl",), LOG_BYTES),
    ("trace", (".log",), TRACE_BYTES),
    ("eager/logs", (".txt",), LOG_BYTES),
    ("eager/stacks", (".txt", ".json"), LOG_BYTES),
    ("eager/journal", (".jsonl",), LOG_BYTES),
    ("escalate", (".txt", ".log", ".mlir"), LOG_BYTES),
)
"""Folders of a run directory whose files enter a pack: with which endings, and cut to how many
bytes each.
"""

ABOUT = (
    (run_names.ISSUE_FILE, "the whole issue, with the headings of PyTorch's form"),
    ("issue/", "one file for each field of the form, and the short URL"),
    (
        run_names.REPORT_FILE,
        "why, when and where, in pictures; opens in any browser, without a network",
    ),
    (run_names.REPORT_DATA_FILE, "the same as data; reprokit show prints it"),
    (run_names.EVIDENCE_FILE, "what the kernel said of each process at the end"),
    (run_names.REPRO_FILE, "the smallest program that was run alone and failed in the same way"),
    (
        run_names.PROOF_FILE,
        "what fresh processes said of repro.py, and the digest of the text that they ran",
    ),
    (run_names.ORIGINAL_FILE, "the program that it was cut from"),
    (
        run_names.CANDIDATE_FILE,
        "a program that may show the failure; nothing has proved it, and the issue says why",
    ),
    (
        run_names.MINIMIZE_FILE,
        "how the smallest program was found, and what fresh processes said of it",
    ),
    (run_names.COMMAND_FILE, "the command line that was captured"),
    (run_names.VERDICT_FILE, "kind, phase, cause, reason, evidence"),
    (run_names.SIGNATURE_FILE, "the identity of the failure and how it was found"),
    (run_names.OBSERVATION_FILE, "all that the rules judged"),
    (
        run_names.GROWTH_FILE,
        "what the compile cost at each size, by phase and pass, and by which law it grows",
    ),
    (run_names.RUN_FILE, "what was asked and how it ended"),
    (run_names.ENVIRONMENT_FILE, "machine, packages, allow-listed variables, configuration"),
    (run_names.COLLECT_ENV_FILE, "PyTorch's own collect_env"),
    (run_names.KERNELS_FILE, "what became of each Triton kernel that was compiled alone"),
    (run_names.SIMULATED_FILE, "where a simulation of the GPU disagrees with it"),
    (run_names.GPU_FILE, "the GPU that was simulated, for --gpu"),
    ("logs/", "stdout, stderr, TORCH_LOGS, one file a process; MLIR reproducers of Triton"),
    ("stacks/", "stack dumps, one file a dump, tool and process"),
    (
        "graphs/",
        (
            "each graph as a script, with its inputs' metadata, recorded before it was compiled;"
            " what it was compiled to"
        ),
    ),
    ("kernels/", "each Triton kernel that was generated for a simulated GPU, as a program"),
    ("trace/", "TORCH_TRACE, gzipped; tlparse reads it"),
    ("journal/", "what the agent saw, one JSON object a line"),
    ("eager/", "the same of the run without torch.compile"),
    ("escalate/", "logs and stacks of the shorter runs that asked what the first left open"),
    (run_names.SAMPLES_FILE, "memory, processor time and state of each process, once a second"),
)


@dataclass
class PackDraft:
    """Files of a pack to be: name to redacted bytes."""

    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    trimmed: list[str] = field(default_factory=list)
    hidden: dict[str, Any] = field(default_factory=dict)
    """The counts of :mod:`redacted` for the files of the tarball."""

    def add_repro(self, repro: Repro, redactor: Redactor) -> None:
        """Add the program that was proved, and its proof; nothing else adds a file of that name."""
        self._add(REPRO, repro.text)
        self.add_json(PROOF, redactor.value(to_json(repro.proof)))

    def add_text(self, name: str, text: str) -> None:
        """Add a text that is redacted already; a program is a repro only by :meth:`add_repro`."""
        if name == REPRO:
            raise Unproven(f"{REPRO} takes a proved program")
        self._add(name, text)

    def _add(self, name: str, text: str) -> None:
        self.files[name] = text.encode("utf-8", "replace")

    def add_json(self, name: str, value: Any) -> None:
        """Add JSON that is redacted already."""
        self.add_text(
            name,
            json.dumps(value, indent=1, sort_keys=True, default=repr, ensure_ascii=False) + "\n",
        )


def gather_files(run_path: Path, redactor: Redactor) -> PackDraft:
    """Read, cut and redact what the run left; a file that cannot be read becomes a line in
    ``missing``.
    """
    draft = PackDraft()
    for folder, suffixes, most in EVIDENCE:
        if (run_path / folder).is_symlink():
            draft.missing.append(Missing(folder, "it is a symbolic link, which is not followed"))
            continue
        for path in sorted((run_path / folder).rglob("*")):
            name = redactor.file_name(path.relative_to(run_path).as_posix())
            if files.is_linked(path) or path.suffix not in suffixes or "/." in f"/{name}":
                continue
            try:
                if not path.is_file() or path.stat().st_size == 0:
                    continue
                text = _read_middle_cut(path, most, draft, name)
            except OSError as problem:
                draft.missing.append(Missing(name, problem.strerror or str(problem)))
                continue
            redact = {
                ".json": redactor.json,
                ".jsonl": redactor.json_lines,
                ".py": redactor.python,
            }.get(path.suffix, redactor.text)
            draft.files[tar_format.canonical_header(name)] = redact(text).encode("utf-8", "replace")
    if samples := files.read_text(run_path / run_names.SAMPLES_FILE):
        draft.add_text(run_names.SAMPLES_FILE, redactor.text(samples))
    for name in (run_names.EVIDENCE_FILE, run_names.KERNELS_FILE, run_names.SIMULATED_FILE):
        if told := files.read_text(run_path / name):
            draft.add_text(name, redactor.json(told))
    return draft


Readme = Callable[[list[tuple[str, str]], list[str], str], str]
"""Makes the README of a pack from its contents, the trimmed files and the counts of hidden text."""


def build_tarball(draft: PackDraft, readme: Readme, most_bytes: int = MOST_BYTES) -> bytes:
    """Give the tarball, trimmed in a stated order until it is at most ``most_bytes`` long.

    The order: chromium events of the traces, whole traces, samples, journals and logs to 200 kB
    each, graphs but the last ten, all graphs, kernels, stacks but the last round, and then whole
    folders: a program may write any number of files there, and no command reads a pack with too
    many.
    """
    _compress_traces(draft)
    draft.files = {tar_format.canonical_header(name): data for name, data in draft.files.items()}
    steps: list[Callable[[PackDraft], str]] = [
        _drop_chromium,
        _drop("trace/"),
        _drop(run_names.SAMPLES_FILE),
        _shorten("journal/"),
        _shorten("logs/"),
        _keep_last_graphs,
        _drop("graphs/"),
        _drop("kernels/"),
        _keep_last_stacks,
        *(_drop(folder) for folder in ("eager/", "escalate/", "journal/", "logs/", "stacks/")),
    ]
    if len(draft.trimmed) > MOST_TRIMMED:
        draft.trimmed[MOST_TRIMMED:] = [
            f"{len(draft.trimmed) - MOST_TRIMMED} more files, each cut from its middle"
        ]
    while True:
        data = _tar(draft, readme) if _can_be_read(draft) or not steps else b""
        if (data and len(data) <= most_bytes) or not steps:
            return data
        said = steps.pop(0)(draft)
        if said:
            draft.trimmed.append(said)


def _can_be_read(draft: PackDraft) -> bool:
    """Whether the pack is within the limits of :mod:`archive`."""
    return sum(map(len, draft.files.values())) <= MOST_UNPACKED and len(draft.files) <= MOST_FILES


def _tar(draft: PackDraft, readme: Readme) -> bytes:
    draft.hidden = placeholder_counts.count_placeholders(draft.files)
    contents = [
        (name, about)
        for name, about in ABOUT
        if any(f == name or (name.endswith("/") and f.startswith(name)) for f in draft.files)
    ]
    everything = {
        **draft.files,
        "README.md": (
            readme(
                contents, draft.trimmed, placeholder_counts.counts_sentence(draft.hidden)
            ).encode()
        ),
    }
    manifest = {
        "schema": SCHEMA,
        "made_by": f"reprokit {__version__}",
        "trimmed": draft.trimmed,
        "redacted": draft.hidden,
        "files": {
            n: {"size": len(d), "sha256": hashlib.sha256(d).hexdigest()}
            for n, d in sorted(everything.items())
        },
    }
    everything[run_names.MANIFEST_FILE] = (
        json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    ).encode()
    names = sorted(
        everything,
        key=lambda n: (n not in (run_names.MANIFEST_FILE, "README.md", run_names.ISSUE_FILE), n),
    )
    return tar_format.build_tar((name, everything[name]) for name in names)


def write_tarball(data: bytes, output: Path, name: str) -> Path:
    """Write the tarball whole or not at all."""
    return files.write_whole(output / name, data)


def _read_middle_cut(path: Path, most: int, draft: PackDraft, name: str) -> str:
    size = path.stat().st_size
    if size <= most:
        return files.read_text(path, most)
    with files.open_plain(path) as file:
        head = file.read(most // 2)
        file.seek(size - most // 2)
        tail = file.read()
    draft.trimmed.append(f"{name}: {size - most} bytes cut from its middle")
    # cut at line ends: half a line must not hide half a secret
    head = head[: head.rfind(b"\n") + 1]
    tail = tail[tail.find(b"\n") + 1 :]
    mark = cuts.cut_mark(size - len(head) - len(tail), "bytes")
    return f"{head.decode('utf-8', 'replace')}{mark}\n{tail.decode('utf-8', 'replace')}"


def _compress_traces(draft: PackDraft) -> None:
    for name in [n for n in draft.files if n.startswith("trace/") and not n.endswith(".gz")]:
        draft.files[name + ".gz"] = gzip.compress(draft.files.pop(name), compresslevel=6, mtime=0)


def _drop_chromium(draft: PackDraft) -> str:
    gone = 0
    for name in [n for n in draft.files if n.startswith("trace/")]:
        kept, is_skipping = [], False
        try:
            text = tar_format.gunzip(draft.files[name], 2 * TRACE_BYTES)
        except ValueError:  # in a stranger's pack that is written again
            continue
        for line in text.splitlines(keepends=True):
            if not line.startswith(b"\t"):
                is_skipping = b'"chromium_event"' in line
                gone += is_skipping
            if not is_skipping:
                kept.append(line)
        draft.files[name] = gzip.compress(b"".join(kept), compresslevel=6, mtime=0)
    return f"trace: {gone} chromium events" if gone else ""


def _drop(prefix: str) -> Callable[[PackDraft], str]:
    def drop(draft: PackDraft) -> str:
        names = [n for n in draft.files if n.startswith(prefix)]
        size = sum(len(draft.files.pop(n)) for n in names)
        return f"{prefix.rstrip('/')}: {len(names)} files, {size} bytes" if names else ""

    return drop


def _shorten(prefix: str, most: int = 200_000) -> Callable[[PackDraft], str]:
    def shorten(draft: PackDraft) -> str:
        long = [n for n in draft.files if n.startswith(prefix) and len(draft.files[n]) > most]
        for name in long:
            draft.files[name] = issue_text.cut_text(
                draft.files[name].decode("utf-8", "replace"), most
            ).encode()
        return (
            f"{prefix.rstrip('/')}: {len(long)} files cut in the middle to {most} bytes"
            if long
            else ""
        )

    return shorten


def _keep_last_graphs(draft: PackDraft) -> str:
    numbers = sorted({n.split("/")[1] for n in draft.files if n.startswith("graphs/")})
    old = set(numbers[:-10])
    for name in [n for n in draft.files if n.startswith("graphs/") and n.split("/")[1] in old]:
        del draft.files[name]
    return f"graphs: all but the last ten, {len(old)} gone" if old else ""


def _keep_last_stacks(draft: PackDraft) -> str:
    rounds = sorted({n.split("/")[1].split("-")[0] for n in draft.files if n.startswith("stacks/")})
    last = rounds[-1] if rounds else ""
    old = [
        n for n in draft.files if n.startswith("stacks/") and n.split("/")[1].split("-")[0] != last
    ]
    for name in old:
        del draft.files[name]
    return f"stacks: all but the last round, {len(old)} gone" if old else ""


def unpack_beside(draft: PackDraft, folder: Path) -> None:
    """Leave the redacted files on disk too, so that a person can read what leaves before it leaves;
    no file of an older pack.
    """
    deletion.delete(folder, inside=folder.parent)
    for name, data in draft.files.items():
        path = folder / name
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(path, data)
