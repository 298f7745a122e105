"""Sightings of known bugs: each captured at several sizes, in several models, modes and versions of
torch, one JSON line each.

python benchmarks/sightings.py [--case NAME ...] [--python PATH] [--few] [--output FILE] [--keep
FOLDER] [--rejected FILE]

A case is a factory of benchmarks/bugs.py. What a sighting shows is checked by the verdict's kind
and by words of the message that its cause makes, never by the signature; what shows something else
gets no label, and goes to --rejected. What is already in the file is not run again.
benchmarks/grouping.py measures how well signatures group the lines.

A line: label, target, settings, torch, kind, message (exact, of the innermost exception; for what
raises none, what the run itself would print), top3 (the innermost frames, normalised), and the
evidence that a signature is made of (benchmarks/evidence.py).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import evidence

from reprokit.core.judge.stacks import evidence as evidence_
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.recent_dumps import only_recent
from reprokit.core.judge.verdict import judge
from reprokit.core.records.dumps import Frame, Raised
from reprokit.core.records.observation import Observation
from reprokit.host.pipeline.pipeline import JUDGE, reopened
from reprokit.host.pipeline.state import Callbacks, StudyTools
from reprokit.host.pipeline.step_runner import follow_steps
from reprokit.host.run import run_directory

USUAL = ("capture", "--json", "--no-minimize", "--no-escalate", "--no-trace", "--stall", "20")
MESSAGE_CHARS = 2_000
DYNAMIC, STATIC = ("--dynamic",), ("--no-dynamic",)
AUTOTUNE, TRAIN = ("--mode", "max-autotune-no-cudagraphs"), ("--train",)


@dataclass(frozen=True)
class Case:
    """A bug, how it shows, and with what it is varied."""

    label: str
    kinds: tuple[str, ...]
    sizes: tuple[int, int]
    says: str = ""
    """A regular expression that the message must have; what it looks for is made by the cause."""
    bug: str = ""
    """``BUG`` of benchmarks/inject."""
    words: tuple[str, ...] = ("--no-compare",)
    more: tuple[tuple[str, ...], ...] = (DYNAMIC, AUTOTUNE)
    """Further settings, each tried alone and in a host."""
    hosts: tuple[str, ...] = ("mlp", "block")
    factory: str = ""
    """Where it is not the case's name."""


ALL = ("mlp", "block", "conv")
EXCEPTION, CRASH, WRONG = ("exception",), ("crash",), ("wrong-result",)
COMPARED = ("--compare", "--ablate")
QUICK = ("--no-compare", "--timeout", "40")

# What was tried and has no line, and why:
# - gelu of infinities (benchmarks/silent_cases.py): eager is the wrong side, the verdict is ok.
# - early_exit in a host without --graph-breaks 0: the graphs around the break are compiled, and the
# verdict is ok. Whole graphs
# are asked for in early_exit_fullgraph, which fails of something else: a guard on a value that is
# not known.
# - pool_grad (pytorch#181653) with torch 2.13 at sizes 161 and 221, where_chain with torch 2.9:
# compiled within 40 seconds.
# - kernel_hangs with torch 2.9: the C++ that is put in wants usleep, which that one's header does
# not declare.
# - jacfwd_trace alone with --dynamic fails in Dynamo, of an assertion about inference mode: that is
# jacfwd_dynamic. In a host it
#   gets as far as the kernel and dies of pytorch#190856 there.
# - local_class with torch 2.9: that one traces no class statement at all, which is another gap than
# that of the issue.
# - oob_abort: two threads abort at once, and their words mix; of what the first says all, the type
# or nothing may be left.
# - relu_throws was expected to abort: the wrapper of the kernel turns what is thrown into
# RuntimeError.
# - kv_cache and counter are one mistake (an integer attribute) in two programs, which are mended
# one by one: two labels.
CASES = {
    "keyerror_buf": Case("196570", EXCEPTION, (8, 12), r"'buf\d+'", hosts=ALL),
    "jacfwd_half": Case("194706", EXCEPTION, (3, 4), r"error:"),
    "relu_cpp": Case(
        "inductor-testing-relu-compile", EXCEPTION, (8, 20), r"compile error!|compile_error"
    ),
    "relu_backend": Case(
        "dynamo-testing-relu-backend", EXCEPTION, (8, 20), "ReluCompileError", more=(DYNAMIC, TRAIN)
    ),
    "lowering_raises": Case(
        "injected-lowering-raise", EXCEPTION, (8, 20), "injected lowering bug", "raise", hosts=ALL
    ),
    "own_pass": Case("made-custom-pass", EXCEPTION, (8, 20), r"nodes has \d+ exp2"),
    "own_backend": Case(
        "made-custom-backend", EXCEPTION, (8, 20), r"no kernel for", more=(DYNAMIC, TRAIN)
    ),
    "no_fake": Case(
        "made-no-fake-kernel",
        ("exception", "graph-break"),
        (8, 20),
        r"fake",
        more=(DYNAMIC,),
        hosts=ALL,
    ),
    "fake_raises": Case(
        "made-fake-raises",
        ("exception", "graph-break"),
        (8, 20),
        "picky takes one dim",
        more=(DYNAMIC,),
        hosts=ALL,
    ),
    "constraint": Case(
        "made-constraint-violation", EXCEPTION, (8, 20), r"[Cc]onstraint", more=(AUTOTUNE,)
    ),
    "jacfwd_trace": Case("190856", CRASH, (3, 4), "Segmentation", hosts=ALL, more=(AUTOTUNE,)),
    "jacfwd_dynamic": Case(
        "jacfwd-dynamic-fw-primal",
        EXCEPTION,
        (3, 4),
        "_fw_primal",
        words=("--no-compare", "--dynamic"),
        more=(),
        factory="jacfwd_trace",
    ),
    "oob_abort": Case(
        "oob-abort", CRASH, (100_000, 250_000), "out of bounds|std::runtime_error|std::terminate"
    ),
    "relu_throws": Case("inductor-testing-relu-throw", EXCEPTION, (8, 20), "unhandled error"),
    "lowering_segv": Case("injected-lowering-segv", CRASH, (8, 20), "Segmentation", "segv"),
    "kernel_abort": Case("injected-kernel-abort", CRASH, (8, 20), "Aborted", "kernel-abort"),
    "kernel_segv": Case("made-kernel-segv", CRASH, (8, 20), "Segmentation"),
    "acosh_large": Case("183768", WRONG, (20, 37), words=COMPARED, more=(), hosts=("mlp",)),
    "hessian_trace": Case("190855", WRONG, (3, 4), words=COMPARED, more=(), hosts=("mlp",)),
    "shift_clone": Case("197829", WRONG, (6, 9), words=COMPARED, more=(), hosts=("mlp",)),
    "dtype_view": Case("198101", WRONG, (4, 7), words=COMPARED, more=(), hosts=("mlp",)),
    "copy_then_mutate": Case("198131", WRONG, (3, 5), words=COMPARED, more=(), hosts=("mlp",)),
    "relu_wrong": Case(
        "inductor-testing-relu-accuracy", WRONG, (8, 20), words=COMPARED, more=(), hosts=("mlp",)
    ),
    "log1p_wrong": Case(
        "inductor-testing-log1p-accuracy", WRONG, (8, 20), words=COMPARED, more=(), hosts=("mlp",)
    ),
    "local_class": Case(
        "197896",
        ("graph-break",),
        (3, 5),
        "__build_class__",
        words=("--no-compare", "--graph-breaks", "0"),
        more=(DYNAMIC, ("--fullgraph",)),
    ),
    "early_exit": Case(
        "item-early-exit",
        ("graph-break",),
        (4, 7),
        "Tensor.item",
        words=("--no-compare", "--graph-breaks", "0"),
        more=(DYNAMIC,),
    ),
    "early_exit_fullgraph": Case(
        "item-early-exit-fullgraph",
        EXCEPTION,
        (4, 7),
        "data-dependent expression",
        words=("--no-compare", "--fullgraph"),
        more=(),
        factory="early_exit",
    ),
    "processor_identity": Case(
        "163329", ("recompile-limit", "recompile-storm"), (4, 7), "processor", more=(DYNAMIC,)
    ),
    "counter": Case(
        "int-attribute", ("recompile-limit", "recompile-storm"), (3, 5), r"\bn\b", more=(STATIC,)
    ),
    "kv_cache": Case(
        "kv-cache-index",
        ("recompile-limit", "recompile-storm"),
        (16, 24),
        "_current_idx",
        more=(STATIC,),
    ),
    "lock_pass": Case("made-lock-pass", ("hang",), (16, 24), more=(DYNAMIC,), hosts=("mlp",)),
    "lowering_hangs": Case(
        "injected-lowering-hang", ("hang",), (8, 20), bug="hang", more=(DYNAMIC,), hosts=("mlp",)
    ),
    "kernel_hangs": Case(
        "injected-kernel-hang",
        ("hang",),
        (8, 20),
        bug="kernel-hang",
        more=(DYNAMIC,),
        hosts=("mlp",),
    ),
    "where_chain": Case(
        "192498", ("hang", "slow-compile"), (16, 19), words=QUICK, hosts=("mlp",), more=()
    ),
    "square_chain": Case(
        "192498", ("hang", "slow-compile"), (16, 19), words=QUICK, hosts=("mlp",), more=()
    ),
    "pool_grad": Case(
        "181653", ("hang", "slow-compile"), (161, 221), words=QUICK, hosts=("mlp",), more=()
    ),
}


@dataclass(frozen=True)
class Variant:
    """How a case is run once."""

    size: int
    host: str
    words: tuple[str, ...] = ()


def variants(case: Case, is_few: bool) -> list[Variant]:
    """Alone, in hosts, and in other modes, at two sizes; where few are wanted, alone at the other
    size.
    """
    small, large = case.sizes
    if is_few:
        return [Variant(large, "alone")]
    found = [Variant(small, "alone")]
    found += [Variant(case.sizes[(n + 1) % 2], host) for n, host in enumerate(case.hosts)]
    for n, words in enumerate(case.more):
        found.append(Variant(case.sizes[(n + 1) % 2], case.hosts[0] if n else "alone", words))
    return found


def capture(name: str, case: Case, variant: Variant, python: str, folder: Path) -> Path | None:
    """Run one capture; gives its run directory."""
    command = [
        sys.executable,
        "-m",
        "reprokit",
        *USUAL,
        f"{HERE / 'bugs.py'}:{case.factory or name}",
        "--python",
        python,
    ]
    command += [
        "--set",
        f"size={variant.size}",
        "--set",
        f"host={variant.host}",
        "--output-dir",
        str(folder),
    ]
    command += [
        *([] if "--timeout" in case.words else ["--timeout", "90"]),
        *case.words,
        *variant.words,
    ]
    command += [] if "--ablate" in case.words else ["--no-ablate"]
    environ = {k: v for k, v in os.environ.items() if k != "BUG"}
    path = [str(HERE.parent), *([str(HERE / "inject")] if case.bug else [])]
    environ |= {"PYTHONPATH": os.pathsep.join(path), **({"BUG": case.bug} if case.bug else {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    try:
        return Path(json.loads(done.stdout)["run_dir"])
    except (ValueError, KeyError):
        print(f"{name} {variant}: {done.stderr.strip()[-500:]}", file=sys.stderr)
        return None


def seen_in(run_path: Path) -> Observation:
    """The observation of a run, with stacks and chains as records."""
    place = run_directory.reopen_run(run_path)
    try:
        state = reopened(place, Callbacks(lambda text: None), StudyTools())
        return follow_steps(state, JUDGE).seen
    finally:
        place.release()


def innermost(raised: Raised | None) -> tuple[str, tuple[Frame, ...]]:
    """Message (type, where it is empty) of the innermost exception that says something of its own,
    and the frames nearest to it.
    """
    if raised is None:
        return "", ()
    root = fr.root_cause(raised)
    inward = raised.chain[: raised.chain.index(root) + 1]
    return root.message or root.type, next(
        (link.frames for link in reversed(inward) if link.frames), ()
    )


def exact(kind: str, seen: Observation) -> tuple[str, tuple[Frame, ...]]:
    """The exact message and the frames of a failure, without any rule of ours but what a file is
    called.
    """
    if kind == "crash":
        fault = evidence_.fatal_fault(seen)
        said = fr.parse_terminate(seen.stderr_tail)
        headline = (fault.headline if fault else "") or next((f.headline for f in seen.faults), "")
        return said or headline, fr.normalise_frames(fault.frames) if fault else ()
    if kind in ("hang", "slow-compile"):
        return "", fr.stable_part(evidence_.main_stacks(only_recent(seen)))
    if kind == "wrong-result" and seen.comparison:
        return str(seen.comparison.wrong[0]), ()
    if kind in ("recompile-limit", "recompile-storm") and seen.recompiled:
        return seen.recompiled[0].changes, ()
    message, frames = innermost(evidence_.blamed_exception(seen))
    if kind == "graph-break" and not message:
        message = f"{seen.breaks[0].reason}: {seen.breaks[0].detail}" if seen.breaks else ""
    return message, fr.normalise_frames(frames)


def scrub(text: str) -> str:
    """Without the paths of one machine; names of files stay."""
    text = re.sub(r"/[^\s'\",;:()]*/site-packages/", "<site-packages>/", text)
    text = re.sub(r"/[^\s'\",;:()]*/(include/python3)", r"<python>/\1", text)
    return re.sub(
        r"(?:(?<=-[LI])|(?<![\w.>/]))/(?:tmp|var|home|root|work|Users)/(?:[^\s'\",;:()]*/)?",
        "<folder>/",
        text,
    )


def scrubbed(value: Any) -> Any:
    """Every text of a JSON value scrubbed."""
    if isinstance(value, dict):
        return {key: scrubbed(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrubbed(one) for one in value]
    return scrub(value) if isinstance(value, str) else value


def sighting(
    name: str, case: Case, variant: Variant, version: str, run_path: Path
) -> dict[str, Any]:
    """The line of one run."""
    seen = seen_in(run_path)
    verdict = judge(seen)
    message, frames = exact(verdict.kind, seen)
    settings: dict[str, Any] = {"size": variant.size, "host": variant.host}
    settings["options"] = [w for w in (*case.words, *variant.words) if w != "--no-compare"]
    return {
        "label": case.label,
        "target": f"benchmarks/bugs.py:{case.factory or name}",
        "settings": settings,
        "torch": version,
        "kind": verdict.kind,
        "message": scrub(message[: 2 * MESSAGE_CHARS])[:MESSAGE_CHARS],
        "top3": [fr.show_frame(f) for f in frames[:3]],
        "reason": scrub(verdict.reason)[:400],
        "evidence": scrubbed(evidence.keep(verdict, seen)),
    }


def is_shown(case: Case, row: dict[str, Any]) -> bool:
    """The run shows what the case's cause makes."""
    return (
        row["kind"] in case.kinds
        and re.search(case.says, f"{row['message']}\n{row['reason']}") is not None
    )


def key(row: dict[str, Any]) -> str:
    """What makes two runs the same experiment."""
    return json.dumps([row["target"], row["settings"], row["torch"]], sort_keys=True)


def lines(path: Path | None) -> list[dict[str, Any]]:
    """The lines that a file has; none where there is none."""
    return (
        [json.loads(line) for line in path.read_text().splitlines()]
        if path and path.exists()
        else []
    )


def append(path: Path | None, row: dict[str, Any]) -> None:
    """One more line."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as out:
            out.write(json.dumps(row, sort_keys=True) + "\n")


def collect(names: Iterable[str], asked: argparse.Namespace) -> None:
    """Run what has no line yet, and write its line."""
    version = subprocess.run(
        [asked.python, "-c", "import torch; print(torch.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    done = {key(row) for path in (asked.output, asked.rejected) for row in lines(path)}
    for name in names:
        case = CASES[name]
        for variant in variants(case, asked.few):
            settings = {"size": variant.size, "host": variant.host}
            settings["options"] = [w for w in (*case.words, *variant.words) if w != "--no-compare"]
            if (
                key(
                    {
                        "target": f"benchmarks/bugs.py:{case.factory or name}",
                        "settings": settings,
                        "torch": version,
                    }
                )
                in done
            ):
                continue
            with tempfile.TemporaryDirectory() as folder:
                run_path = capture(name, case, variant, asked.python, Path(folder))
                if run_path is None:
                    continue
                row = sighting(name, case, variant, version, run_path)
                if asked.keep:
                    place = (
                        asked.keep
                        / f"{name}-{variant.host}-{variant.size}-{''.join(variant.words)}-{version}"
                    )
                    shutil.copytree(
                        run_path,
                        place,
                        dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("pack", "*.sock"),
                    )
            shows = is_shown(case, row)
            append(asked.output if shows else asked.rejected, row)
            print(
                f"{'' if shows else 'REJECTED '}{name} {settings} {version}:"
                f" {evidence.sign(row['evidence']).title}",
                flush=True,
            )


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--case", action="append", choices=sorted(CASES), help="only these; default: all"
    )
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter of the target, with its torch"
    )
    parser.add_argument("--few", action="store_true", help="one variant of each case")
    parser.add_argument("--output", type=Path, default=HERE / "data" / "sightings.jsonl")
    parser.add_argument(
        "--rejected", type=Path, help="where lines go that do not show what their case should"
    )
    parser.add_argument("--keep", type=Path, help="keep the run directories here")
    asked = parser.parse_args()
    collect(asked.case or CASES, asked)


if __name__ == "__main__":
    main()
