"""The checks of claims by records and files, and the table of all checks of claims."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprokit.host.catalogue import catalogue_files

from .claim_checks import (
    COMPARED,
    FALSE,
    TRUE,
    UNCHECKED,
    Check,
    Checker,
    as_answer,
    check_count,
    check_fails,
    check_failure,
    check_output,
    check_passes,
    check_stack,
    fixed_words,
    is_code,
    is_failure,
)
from .claim_runs import DraftedIssue
from .harness import ROOT


def _check_cost(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    compares = drafted.verdict["kind"] in COMPARED
    done = drafted.run(compares=compares)
    if done is None or not done.peak_bytes:
        return UNCHECKED
    is_peak = done.status is None or check["peak_rss_bytes"] <= 3 * done.peak_bytes
    is_cpu = done.status is None or check["cpu_s"] <= 5 * done.cpu_s + 5
    request = drafted.request
    is_time = abs(request["ended"] - request["started"] - check["seconds"]) < 2
    return as_answer(is_peak and is_cpu and is_time)


def _check_settings(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    code = f"import importlib; print(repr(importlib.import_module({check['module']!r}).{check['key']}))"
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    return as_answer(done.returncode == 0 and done.stdout.strip() != check["value"])


@functools.cache
def _torch_version() -> str:
    code = "import torch; print(torch.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.strip()


def _check_version(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    return as_answer(check["torch"] == _torch_version())


def check_issue(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    if drafted.entry is not None:
        return as_answer(check["issue"] == drafted.entry.issue)
    number = check["issue"].rpartition("#")[2]
    if number in drafted.program_text:
        return TRUE
    entries = (e for e in catalogue_files.own_catalogue() if e.issue == check["issue"])
    workaround = next((e.workaround for e in entries), "")
    if not is_code(workaround):
        return UNCHECKED
    compares = drafted.verdict["kind"] in COMPARED
    done = drafted.run(changes={"lines": workaround}, compares=compares)
    return TRUE if is_failure(drafted, done) is False else UNCHECKED


def check_own_code(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    if "::" in check["place"]:  # an operator, which the program defines
        texts = (path.read_text(errors="replace") for path in drafted.folder.rglob("*.py"))
        namespace, _, name = check["place"].partition("::")
        is_torchs = namespace in ("aten", "prims", "prim", "inductor", "quantized", "torchvision")
        return as_answer(not is_torchs and any(namespace in t and name in t for t in texts))
    match = re.match(r"(?P<file>.+?):(?P<line>\d+)(?: in (?P<function>\S+))?", check["place"])
    if match is None:
        return UNCHECKED
    path = drafted.folder / match["file"]
    if match["file"].startswith("<") or not path.is_file():
        return UNCHECKED
    rows = path.read_text(errors="replace").splitlines()
    is_there = 0 < int(match["line"]) <= len(rows) and "site-packages" not in str(path)
    name = (match["function"] or "").rpartition(".")[2]
    if name and not name.startswith("<"):
        is_there &= any(name in row for row in rows[: int(match["line"])])
    return as_answer(is_there)


def _check_digest(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    text = f"{check['algorithm']}\n{check['title']}"
    return as_answer(f"`{hashlib.sha256(text.encode()).hexdigest()[:12]}`" in claim["text"])


def _check_values(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    done = drafted.run(compares=True)
    return as_answer(None if done is None else is_failure(drafted, done))


def _check_lines(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    """Check the number of lines that are neither empty nor comments."""
    if not check["lines"]:
        return as_answer(drafted.repro is None)
    text = drafted.repro.read_text() if drafted.repro else ""
    rows = [row.strip() for row in text.splitlines()]
    told = re.search(r"(\d+) lines?\b", claim["text"])
    count = len([row for row in rows if row and row[0] != "#"])
    return as_answer(told is not None and count == int(told[1]))


def _check_imports(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    text = drafted.repro.read_text() if drafted.repro else ""
    rows = re.findall(r"^\s*(?:from\s+([\w.]+)\s+import\b|import\s+([\w., ]+))", text, re.MULTILINE)
    words = {
        word.split()[0].split(".")[0] for row in rows for word in ",".join(row).split(",") if word
    }
    others = words - {*sys.stdlib_module_names, "torch", "triton"}
    return as_answer(sorted(others) == check["libraries"])


def _check_logs(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    done = drafted.run()
    if done is None or not check.get("words"):
        return UNCHECKED
    output = "\n".join([done.text, *done.stacks])
    pieces = [piece for word in check["words"] for piece in fixed_words(word)]
    return TRUE if all(piece in output for piece in pieces) else UNCHECKED


def _check_operator(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    done = drafted.run(compares=drafted.verdict["kind"] in COMPARED)
    if done is None or not any(done.graphs.values()):
        return UNCHECKED
    operator = re.sub(r"_\d+$", "", check["operator"].rpartition("%")[2])
    return as_answer(re.search(rf"\b{re.escape(operator)}(_\d+)?\b", done.text) is not None)


def _check_candidate(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    path = drafted.run_dir / "pack" / "candidate.py"
    if not path.exists():
        return FALSE
    if "source" not in check["origin"]:
        return as_answer("def " in path.read_text())
    if not drafted.program_text:
        return UNCHECKED
    own = [row.strip() for row in drafted.program_text.splitlines()]
    rows = {row.strip() for row in path.read_text().splitlines()}
    functions = [row for row in own if row.startswith(("def ", "class "))]
    return as_answer(2 * len([row for row in functions if row in rows]) >= len(functions))


def _check_sanitizers(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    gcc = shutil.which("g++")
    if gcc is None:
        return UNCHECKED
    folder = drafted.cache / "sanitizers"
    folder.mkdir(exist_ok=True)
    wrapper = folder / "g++"
    flags = "-g1 -fno-omit-frame-pointer -fsanitize=address,undefined"
    wrapper.write_text(f'#!/bin/sh\nexec {gcc} {flags} "$@"\n')
    wrapper.chmod(0o755)
    names = ("libasan.so", "libubsan.so")
    found = [
        subprocess.check_output([gcc, f"-print-file-name={name}"], text=True) for name in names
    ]
    options = "detect_leaks=0:handle_segv=2:handle_abort=2:handle_sigfpe=2:detect_odr_violation=0"
    done = drafted.run(
        variables={
            "CXX": str(wrapper),
            "LD_PRELOAD": ":".join(path.strip() for path in found),
            "ASAN_OPTIONS": f"{options}:alloc_dealloc_mismatch=0:new_delete_type_mismatch=0",
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
    )
    if done is None or "ERROR: AddressSanitizer" not in done.text:
        return UNCHECKED if done is None else FALSE
    report = done.text[done.text.index("ERROR: AddressSanitizer") :]
    if check.get("error"):
        return as_answer(f"AddressSanitizer: {check['error']}" in report)
    place = re.search(r"(/\S+\.main\.cpp):(\d+)", report)
    if place is None:
        return FALSE
    line = Path(place[1]).read_text().splitlines()[int(place[2]) - 1]
    return as_answer(line.strip() == check["code"].strip())


def _check_inputs(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    """Check that the repro passes with other values of an input."""
    text = drafted.repro.read_text() if drafted.repro else ""
    call = re.search(r"^( +)return compile\((?:.|\n)*", text, re.MULTILINE)
    names = re.findall(r"^ +(\w+) = ", text[: call.start()] if call else "", re.MULTILINE)
    if call is None or (check["input"] not in names and len(set(names)) != 1):
        return UNCHECKED
    name = check["input"] if check["input"] in names else names[0]
    other = f"torch.rand_like({name}) if {name}.is_floating_point() else torch.ones_like({name})"
    path = drafted.cache / "other_inputs.py"
    row = f"{call[1]}with torch.no_grad():\n{call[1]}    {name}.copy_({other})\n"
    path.write_text(f"{text[: call.start()]}{row}{text[call.start() :]}")
    done = drafted.run_file(path)
    return as_answer(done.status == 0)


def files_named(drafted: DraftedIssue, name: str) -> list[Path]:
    """Return the files with this path, whose first folders may be left out."""
    tail = name.rpartition(".../")[2]
    found = [p for p in drafted.folder.rglob(Path(tail).name) if str(p).endswith(f"/{tail}")]
    others = (ROOT / tail, Path(tail))  # a sample, or a whole path
    return [*found, *(path for path in others if path.is_file())]


def _check_source(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    file, _, line = check["place"].rpartition(":")
    found = files_named(drafted, file)
    for path in found:
        rows = path.read_text(errors="replace").splitlines()
        if not 0 < int(line) <= len(rows):
            continue
        code = " ".join((check["code"] or "").split())
        text = " ".join(rows[int(line) - 1].split())  # as a page shows it
        shown = re.split(r"<[\w-]+>", code.removesuffix("...").strip())
        is_text = re.match(".*".join(map(re.escape, shown)), text) is not None
        name = (check["function"] or "").rpartition(".")[2].strip("<>")
        above = "\n".join(rows[: int(line)])
        is_there = not name or name in ("module", "lambda", "locals") or name in above
        if is_text and is_there and "site-packages" not in str(path):
            return TRUE
    return FALSE if found else UNCHECKED


CHECKS: Mapping[str, Checker] = {
    "fails": check_fails,
    "passes": check_passes,
    "failure": check_failure,
    "output": check_output,
    "stack": check_stack,
    "count": check_count,
    "cost": _check_cost,
    "settings": _check_settings,
    "version": _check_version,
    "issue": check_issue,
    "own code": check_own_code,
    "digest": _check_digest,
    "values": _check_values,
    "lines": _check_lines,
    "inputs": _check_inputs,
    "operator": _check_operator,
    "candidate": _check_candidate,
    "source": _check_source,
    "imports": _check_imports,
    "logs": _check_logs,
    "sanitizers": _check_sanitizers,
}
