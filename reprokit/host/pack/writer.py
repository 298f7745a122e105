"""Write the pack: redacted copies of the files of a run, a manifest, and a reproducible tarball."""

from __future__ import annotations

import gzip
import hashlib
import json
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit import __version__
from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.observation import Missing
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import SCHEMA, to_json
from reprokit.host.minimize.proofs.proven import Repro, Unproven
from reprokit.host.pack import issue_text, placeholder_counts, tar_format
from reprokit.host.system import deletion, files, host_log

MAX_PACK_BYTES = 25_000_000
"""The limit of GitHub for attachments is 25 MB."""
MAX_UNPACKED_BYTES = 160 << 20
MAX_FILES = 15_000
"""Lower than the limit of :mod:`reader`, because files are added to a pack later."""
MAX_TRIMMED = 500
"""Cut files that are listed by name."""
MAX_LOG_BYTES = 8 << 20
MAX_TRACE_BYTES = 96 << 20

EVIDENCE = (
    ("logs", (".txt", ".log", ".mlir"), MAX_LOG_BYTES),
    ("stacks", (".txt", ".json"), MAX_LOG_BYTES),
    ("graphs", (".py", ".json"), MAX_LOG_BYTES),
    ("kernels", (".py",), MAX_LOG_BYTES),
    ("journal", (".jsonl",), MAX_LOG_BYTES),
    ("trace", (".log", ".gz"), MAX_TRACE_BYTES),
    ("eager/logs", (".txt",), MAX_LOG_BYTES),
    ("eager/stacks", (".txt", ".json"), MAX_LOG_BYTES),
    ("eager/journal", (".jsonl",), MAX_LOG_BYTES),
    ("escalate", (".txt", ".log", ".mlir"), MAX_LOG_BYTES),
)
"""Folders of a run directory whose files are packed, with the suffixes and the maximum size of a
file.
"""

FILE_DESCRIPTIONS = (
    (run_names.ISSUE_FILE, "the whole issue, with the headings of PyTorch's form"),
    (
        "issue/",
        "the title, one file for each field of the form, the short URL, and claims.json: each"
        " statement of the issue with its evidence and how to check it",
    ),
    (
        run_names.REPORT_FILE,
        "cause, timeline and stacks, with figures; opens in any browser, without a network",
    ),
    (run_names.REPORT_DATA_FILE, "the data of the report; reprokit show prints it"),
    (
        run_names.COMPILES_FILE,
        "each compile: its graph with your lines, guards, recompiles, graph breaks, generated code",
    ),
    (
        run_names.SPEEDSCOPE_FILE,
        "the sampled stacks, for https://www.speedscope.app, which works without a network too",
    ),
    (
        run_names.TRACE_EVENTS_FILE,
        "phases, processes, memory and CPU load over time, for https://ui.perfetto.dev",
    ),
    (run_names.EVIDENCE_FILE, "the data of the kernel about each process at the end"),
    (run_names.REPRO_FILE, "the smallest program that ran alone and failed in the same way"),
    (
        run_names.PROOF_FILE,
        "the results of repro.py in fresh processes, and the digest of the text that they ran",
    ),
    (run_names.ORIGINAL_FILE, "the program that repro.py is a part of"),
    (
        run_names.CANDIDATE_FILE,
        "a program that may show the failure; nothing has proved it, and the issue says why",
    ),
    (
        run_names.MINIMIZE_FILE,
        "how the smallest program was found, and its results in fresh processes",
    ),
    (run_names.COMMAND_FILE, "the command line that was captured"),
    (run_names.VERDICT_FILE, "kind, phase, cause, reason, evidence"),
    (run_names.SIGNATURE_FILE, "the identity of the failure and how it was found"),
    (run_names.OBSERVATION_FILE, "the data that the rules judged"),
    (run_names.RANKS_FILE, "where each rank was, for reprokit merge"),
    (
        run_names.GROWTH_FILE,
        "the cost of the compile at each size, by phase and pass, and the law of its growth",
    ),
    (run_names.RUN_FILE, "the request and the outcome of the run"),
    (run_names.ENVIRONMENT_FILE, "machine, packages, allow-listed variables, configuration"),
    (run_names.COLLECT_ENV_FILE, "PyTorch's own collect_env"),
    (run_names.KERNELS_FILE, "the result of each Triton kernel that was compiled alone"),
    (run_names.SIMULATED_FILE, "the differences between the GPU and its simulation"),
    (run_names.GPU_FILE, "the GPU that was simulated, for --gpu"),
    ("logs/", "stdout, stderr, TORCH_LOGS, one file per process; MLIR reproducers of Triton"),
    ("stacks/", "stack dumps, one file per dump, tool and process"),
    (
        "graphs/",
        (
            "each graph as a script, with the metadata of its inputs, recorded before its"
            " compilation; the generated code"
        ),
    ),
    ("kernels/", "each Triton kernel that was generated for a simulated GPU, as a program"),
    ("trace/", "TORCH_TRACE, gzipped; tlparse reads it"),
    (run_names.RECORD_FILE, "what the records of torch show, and the programs made from them"),
    ("journal/", "reprokit's record of the run: events, one JSON object per line"),
    ("eager/", "the same files of the run without torch.compile"),
    ("escalate/", "logs and stacks of shorter runs for questions that the first run left open"),
    (run_names.SAMPLES_FILE, "memory, CPU time and state of each process, once a second"),
)


@dataclass
class PackDraft:
    """The files of a pack that is being written: redacted bytes by name."""

    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    trimmed: list[str] = field(default_factory=list)
    hidden: dict[str, Any] = field(default_factory=dict)
    """The counts of :mod:`placeholder_counts` for the files of the tarball."""

    def add_repro(self, repro: Repro, redactor: Redactor) -> None:
        """Add a proved program and its proof. No other method adds a file of this name."""
        self._add(run_names.REPRO_FILE, repro.text)
        self.add_json(run_names.PROOF_FILE, redactor.redact_value(to_json(repro.proof)))

    def add_text(self, name: str, text: str) -> None:
        """Add a redacted text. Raises Unproven for a repro, which :meth:`add_repro` adds."""
        if name == run_names.REPRO_FILE:
            raise Unproven(f"{run_names.REPRO_FILE} must be a proved program")
        self._add(name, text)

    def _add(self, name: str, text: str) -> None:
        self.files[name] = text.encode("utf-8", "replace")

    def add_json(self, name: str, value: Any) -> None:
        """Add redacted JSON."""
        self.add_text(
            name,
            json.dumps(value, indent=1, sort_keys=True, default=repr, ensure_ascii=False) + "\n",
        )


def gather_files(run_path: Path, redactor: Redactor) -> PackDraft:
    """Read, cut and redact the files of a run; a file that cannot be read is listed in
    ``missing``.
    """
    draft = PackDraft()
    for folder, suffixes, max_bytes in EVIDENCE:
        if (run_path / folder).is_symlink():
            draft.missing.append(Missing(folder, "it is a symbolic link, which is not followed"))
            continue
        for path in sorted((run_path / folder).rglob("*")):
            name = redactor.redact_file_name(path.relative_to(run_path).as_posix())
            if files.has_symlink(path) or path.suffix not in suffixes or "/." in f"/{name}":
                continue
            name = name.removesuffix(".gz")  # it is packed again after its redaction
            try:
                if not path.is_file() or path.stat().st_size == 0:
                    continue
                text = read_middle_cut(path, max_bytes, draft, name)
            except OSError as problem:
                draft.missing.append(Missing(name, problem.strerror or str(problem)))
                continue
            redact = {
                ".json": redactor.redact_json,
                ".jsonl": redactor.redact_json_lines,
                ".py": redactor.redact_python,
            }.get(path.suffix, redactor.redact_text)
            draft.files[tar_format.canonical_name(name)] = redact(text).encode("utf-8", "replace")
    if samples := files.read_text(run_path / run_names.SAMPLES_FILE):
        draft.add_text(run_names.SAMPLES_FILE, redactor.redact_text(samples))
    for name in (run_names.EVIDENCE_FILE, run_names.KERNELS_FILE, run_names.SIMULATED_FILE):
        if text := files.read_text(run_path / name):
            draft.add_text(name, redactor.redact_json(text))
    return draft


Readme = Callable[[list[tuple[str, str]], list[str], str], str]
"""Renders the README of a pack from its contents, the trimmed files and the counts of hidden
text.
"""


def build_tarball(draft: PackDraft, readme: Readme, max_bytes: int = MAX_PACK_BYTES) -> bytes:
    """Return the tarball, trimmed in a fixed order until it has at most ``max_bytes``, and no more
    than this process may write (``RLIMIT_FSIZE``).

    The order: chromium events of the traces, whole traces, the page of the compiles, the copies of
    the timeline and of the stacks for other viewers, samples, journals and logs to 200 kB each, all
    graphs but the last ten, all graphs, kernels, all stacks but the last round, and then
    whole folders. A program may write any number of files there, and no command reads a pack with
    too many files.
    """
    may_write, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    is_limited = may_write != resource.RLIM_INFINITY and may_write < max_bytes
    max_bytes = may_write if is_limited else max_bytes
    _compress_traces(draft)
    draft.files = {tar_format.canonical_name(name): data for name, data in draft.files.items()}
    steps: list[Callable[[PackDraft], str]] = [
        _drop_chromium,
        _drop("trace/"),
        _drop(run_names.COMPILES_FILE),
        _drop(run_names.TRACE_EVENTS_FILE),
        _drop(run_names.SPEEDSCOPE_FILE),
        _drop(run_names.SAMPLES_FILE),
        _shorten("journal/"),
        _shorten("logs/"),
        _keep_last_graphs,
        _drop("graphs/"),
        _drop("kernels/"),
        _keep_last_stacks,
        *(_drop(folder) for folder in ("eager/", "escalate/", "journal/", "logs/", "stacks/")),
    ]
    if len(draft.trimmed) > MAX_TRIMMED:
        draft.trimmed[MAX_TRIMMED:] = [
            f"{len(draft.trimmed) - MAX_TRIMMED} more files, each cut in the middle"
        ]
    while True:
        data = _tar(draft, readme) if _can_be_read(draft) or not steps else b""
        if (data and len(data) <= max_bytes) or not steps:
            return data
        trimmed = steps.pop(0)(draft)
        if trimmed:
            why = f", because a file has at most {may_write} bytes here (ulimit -f)" * is_limited
            draft.trimmed.append(f"{trimmed}{why}")


def _can_be_read(draft: PackDraft) -> bool:
    """Return whether the pack is within the limits of :mod:`reader`."""
    return (
        sum(map(len, draft.files.values())) <= MAX_UNPACKED_BYTES and len(draft.files) <= MAX_FILES
    )


def _tar(draft: PackDraft, readme: Readme) -> bytes:
    draft.hidden = placeholder_counts.count_placeholders(draft.files)
    contents = [
        (name, about)
        for name, about in FILE_DESCRIPTIONS
        if any(f == name or (name.endswith("/") and f.startswith(name)) for f in draft.files)
    ]
    packed = {
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
            for n, d in sorted(packed.items())
        },
    }
    packed[run_names.MANIFEST_FILE] = (
        json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    ).encode()
    names = sorted(
        packed,
        key=lambda n: (n not in (run_names.MANIFEST_FILE, "README.md", run_names.ISSUE_FILE), n),
    )
    return tar_format.build_tar((name, packed[name]) for name in names)


def write_tarball(data: bytes, output: Path, name: str) -> Path:
    """Write the tarball completely or not at all."""
    return files.write_atomically(output / name, data)


def read_middle_cut(path: Path, max_bytes: int, draft: PackDraft, name: str) -> str:
    """Read a text file, which may be packed; cut the middle of one longer than ``max_bytes``."""
    with files.open_unpacked_file(path) as file:
        head, tail, gone = files.read_ends(file, max_bytes)
    if not gone:
        return (head + tail).decode("utf-8", "replace")
    size = len(head) + gone + len(tail)
    draft.trimmed.append(f"{name}: {gone} bytes cut from its middle")
    # cut at line ends, because a part of a secret would not be recognized
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
            text = tar_format.inflate_gzip(draft.files[name], 2 * MAX_TRACE_BYTES)
        except ValueError as problem:  # a damaged file of a stranger's pack that is written again
            host_log.log_ignored(problem)
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
        return f"{prefix.rstrip('/')}: {plural(len(names), 'file')}, {size} bytes" if names else ""

    return drop


def _shorten(prefix: str, most: int = 200_000) -> Callable[[PackDraft], str]:
    def shorten(draft: PackDraft) -> str:
        long = [n for n in draft.files if n.startswith(prefix) and len(draft.files[n]) > most]
        for name in long:
            draft.files[name] = issue_text.cut_text(
                draft.files[name].decode("utf-8", "replace"), most
            ).encode()
        return (
            f"{prefix.rstrip('/')}: {plural(len(long), 'file')} cut in the middle to {most} bytes"
            if long
            else ""
        )

    return shorten


def _keep_last_graphs(draft: PackDraft) -> str:
    numbers = sorted({n.split("/")[1] for n in draft.files if n.startswith("graphs/")})
    old = set(numbers[:-10])
    for name in [n for n in draft.files if n.startswith("graphs/") and n.split("/")[1] in old]:
        del draft.files[name]
    return f"graphs: all but the last ten, {len(old)} dropped" if old else ""


def _keep_last_stacks(draft: PackDraft) -> str:
    rounds = sorted({n.split("/")[1].split("-")[0] for n in draft.files if n.startswith("stacks/")})
    last = rounds[-1] if rounds else ""
    old = [
        n for n in draft.files if n.startswith("stacks/") and n.split("/")[1].split("-")[0] != last
    ]
    for name in old:
        del draft.files[name]
    return f"stacks: all but the last round, {len(old)} dropped" if old else ""


def write_pack_folder(draft: PackDraft, folder: Path) -> None:
    """Write the redacted files into ``folder`` too, so that a user can read them before they leave
    the machine. Old files in it are deleted first.
    """
    deletion.delete_path(folder, inside=folder.parent)
    for name, data in draft.files.items():
        path = folder / name
        with host_log.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_atomically(path, data)
