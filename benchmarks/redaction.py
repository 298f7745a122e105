"""What redaction destroys: repros of programs whose code looks private, and harmless lines of logs.

python benchmarks/redaction.py [--only NAME ...] [--jobs 2] [--json FILE] [--keep FOLDER] python
benchmarks/redaction.py --lines prints only the part that needs no capture.

Each program of benchmarks/redaction_cases.py is captured and minimized in the environment that it
names. ``repro.py`` is then taken out of the tarball, and the program under the heading "Repro" out
of issue.md. Each is run with Python alone, in an empty folder and a plain environment. It fails the
same way when the last exception of its traceback has the type and the message that the program's
own has, where numbers and what the redactor replaces do not count. Where a pack has no repro the
table says how the smallest program fails. Python files of packs that do not compile are counted
too.

Each line of benchmarks/data/harmless_lines.txt is redacted in several environments. None of the
lines holds anything private, except that a user, a host or a secret may be an English word that the
line has too.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from redaction_cases import TRAPS, Trap

from reprokit.core.redaction.redactor import Redactor
from reprokit.host.system import private_names

LINES = ROOT / "benchmarks" / "data" / "harmless_lines.txt"
OPTIONS = ["--json", "--minimize", "--no-ablate", "--proofs", "1", "--budget", "30"]
CAPTURE_S, REPRO_S = 180.0, 60.0
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "none": {},
    "user": {"USER": "alpha", "LOGNAME": "will"},
    "host": {"HOSTNAME": "head", "MASTER_ADDR": "worker"},
    "secret": {"API_KEY": "linear", "APP_SECRET": "forward"},
    "all": {"USER": "adam", "HOSTNAME": "fake", "DB_PASSWORD": "softmax"},
}
VERSIONS = {
    "nvidia-cublas": "12.8.4.1",
    "nvidia-cudnn-cu12": "9.10.2.21",
    "nvidia-cufft-cu12": "11.3.3.83",
    "nvidia-curand-cu12": "10.3.9.90",
    "nvidia-cusolver-cu12": "11.7.3.90",
    "nvidia-cusparse-cu12": "12.5.8.93",
    "tensorrt": "10.13.3.9",
}
"""Packages whose versions read like addresses, as environment.json has them."""
_LAST = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Failed|Unsupported|Interrupt|Exit))(?::"
    r" (?P<said>.*))?$"
)


def plain(place: Path, **more: str) -> dict[str, str]:
    """The environment of a machine on which nothing else is set."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir()) / "redaction-cache"),
        **more,
    }


def redactor(environ: dict[str, str]) -> Redactor:
    """The redactor of a process in this environment."""
    with mock.patch.dict(os.environ, environ, clear=True):
        return Redactor(private_names.gather_names())


def failure(text: str) -> tuple[str, str]:
    """Type and message of the last exception that a traceback names, with its cause; empty where
    there is none.
    """
    rows = text.splitlines()
    for number in range(len(rows) - 1, -1, -1):
        if found := _LAST.match(rows[number]):
            if number and _LAST.match(rows[number - 1]):
                continue  # the message of an exception that names its cause
            cause = [row for row in rows[number + 1 : number + 2] if _LAST.match(row)]
            return found["type"], "\n".join([found["said"] or "", *cause])
    return "", ""


def blank(said: str, hide: Redactor) -> str:
    """A message without numbers, and without what the redactor replaces."""
    return re.sub(r"\d+", "#", re.sub(r"<[a-z]+(?:-\d+)?>", "<>", hide.text(said)))


def fails(text: str) -> tuple[str, str]:
    """How a program fails that is run with Python alone in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="alone-") as folder:
        (Path(folder) / "repro.py").write_text(text)
        words = [sys.executable, "repro.py"]
        try:
            done = subprocess.run(
                words,
                cwd=folder,
                env=plain(Path(folder)),
                capture_output=True,
                text=True,
                timeout=REPRO_S,
            )
        except subprocess.TimeoutExpired:
            return "", "it does not end"
    return failure(done.stderr) if done.returncode else ("", "it passes")


def compiles(text: str) -> bool:
    """Whether a text is a program of Python."""
    try:
        compile(text, "program", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def inline(issue: str) -> str:
    """The program under the heading "Repro" of an issue."""
    found = re.search(
        r"^Repro \(.*?\):\n\n(?P<fence>`{3,})python\n(?P<text>.*?)^(?P=fence)$",
        issue,
        re.DOTALL | re.MULTILINE,
    )
    return found["text"] if found else ""


def judge(name: str, trap: Trap, place: Path) -> dict[str, Any]:
    """Capture one program, and say what the repros of its pack do."""
    began = time.monotonic()
    place.mkdir()
    (place / "program.py").write_text(trap.script)
    environ = plain(place, PWD=str(place), **{"USER": "sam", "HOSTNAME": "box17", **trap.environ})
    words = [
        sys.executable,
        "-m",
        "reprokit",
        "capture",
        *OPTIONS,
        "--output-dir",
        str(place / "out"),
    ]
    row: dict[str, Any] = {
        "name": name,
        "what": trap.what,
        "is_same": False,
        "repro": "",
        "why": "",
    }
    try:
        done = subprocess.run(
            [*words, "--", sys.executable, "program.py"],
            cwd=place,
            env={**environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=CAPTURE_S,
        )
        told = json.loads(done.stdout[done.stdout.index("{\n") :])
    except (subprocess.TimeoutExpired, ValueError) as problem:
        return {**row, "why": f"no capture: {problem}"}
    run_dir = Path(told["run_dir"])
    stderr, best = run_dir / "logs" / "stderr.txt", run_dir / "minimize" / "best.py"
    hide = redactor(environ)

    def against(text: str) -> str:
        """Why a program does not fail as the captured one did; empty where it does."""
        if not text:
            return "no repro"
        kind, said = fails(text)
        same_type, same_said = kind == wanted[0], blank(said, hide) == blank(wanted[1], hide)
        return "" if same_type and same_said else f"{kind or 'nothing raised'}: {said[:120]}"

    wanted = failure(stderr.read_text())
    with tarfile.open(told["pack"]) as pack:
        files = {
            m.name: pack.extractfile(m)
            for m in pack.getmembers()
            if m.name.endswith((".py", ".md"))
        }
        texts = {n: file.read().decode(errors="replace") for n, file in files.items() if file}
    row["repro"], row["seconds"] = texts.get("repro.py", ""), round(time.monotonic() - began, 1)
    row["wanted"] = f"{wanted[0]}: {wanted[1]}"
    if not wanted[0]:
        return {**row, "why": "the program itself does not fail"}
    shown = inline(texts.get("issue.md", ""))
    row["why"] = against(row["repro"])
    if not row["why"] and shown.strip() != row["repro"].strip():
        row["why"] = (why := against(shown)) and f"in issue.md: {why}"
    row["is_same"] = not row["why"]
    if row["why"]:
        row["unproven"] = told.get("unproven")
        row["left"] = best.read_text() if best.exists() else ""
        if not row["repro"]:
            row["why"] += (
                "; the smallest program:"
                f" {against(row['left']) if row['left'] else 'there is none'}"
            )
    row["broken"] = [n for n in texts if n.endswith(".py") and not compiles(texts[n])]
    return row


def harmless() -> int:
    """Print which of the harmless lines change, and in which environments; their number."""
    lines = LINES.read_text().splitlines()
    changed: dict[str, dict[str, str]] = {}
    for name, environ in ENVIRONMENTS.items():
        hide = redactor(
            {
                "PATH": os.environ["PATH"],
                "HOME": "/home/sam",
                "USER": "sam",
                "HOSTNAME": "box17",
                **environ,
            }
        )
        for line in lines:
            if (now := hide.text(line)) != line:
                changed.setdefault(line, {})[name] = now
    for name in ENVIRONMENTS:
        print(
            f"{name}: {sum(name in told for told in changed.values())} of {len(lines)} lines change"
        )
    for line, told in changed.items():
        print(f"\n- {line.strip()}")
        for now in dict.fromkeys(told.values()):
            print(f"+ {now.strip()}   [{' '.join(n for n, other in told.items() if other == now)}]")
    print(f"\n{len(changed)} of {len(lines)} harmless lines change in any environment")
    hide = redactor(
        {"PATH": os.environ["PATH"], "HOME": "/home/sam", "USER": "sam", "HOSTNAME": "box17"}
    )
    whole = hide.text("\n".join(lines)).split("\n")
    print(f"as one text: {sum(now != line for now, line in zip(whole, lines, strict=True))}")
    kept = hide.value({"packages": VERSIONS})["packages"]
    print(
        f"as versions of packages in JSON: {sum(kept[n] != v for n, v in VERSIONS.items())} of"
        f" {len(VERSIONS)} change"
    )
    return len(changed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=sorted(TRAPS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--keep", type=Path, help="keep the run directories in this folder, which must not exist"
    )
    parser.add_argument("--lines", action="store_true", help="only the harmless lines")
    args = parser.parse_args()
    if args.lines:
        harmless()
        return
    names = args.only or list(TRAPS)
    rows: list[dict[str, Any]] = []
    print(
        "| program | what looks private | same | s | why not |\n| --- | --- | --- | --- | --- |",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="redaction-") as folder:
        place = args.keep or Path(folder)
        place.mkdir(exist_ok=not args.keep)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            # mock.patch.dict is of the whole process, but the children get environments of their
            # own
            for row in pool.map(lambda name: judge(name, TRAPS[name], place / name), names):
                rows.append(row)
                cells = [
                    row["name"],
                    row["what"],
                    "yes" if row["is_same"] else "no",
                    row.get("seconds", ""),
                    row["why"],
                ]
                print(
                    "| " + " | ".join(str(c).replace("\n", " ") for c in cells) + " |", flush=True
                )
                if args.json:
                    args.json.write_text(json.dumps(rows, indent=1))
    print(f"\n{sum(row['is_same'] for row in rows)} of {len(rows)} repros fail in the same way")
    broken = [f"{row['name']}/{file}" for row in rows for file in row.get("broken", ())]
    print(f"{len(broken)} Python files of packs do not compile: {', '.join(broken)}\n")
    if not args.only:
        harmless()


if __name__ == "__main__":
    main()
