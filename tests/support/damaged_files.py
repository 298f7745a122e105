"""Damage packs and run directories, read them with each command, and require one clear line.

Run as ``python -m tests.support.damaged_files packs|runs FOLDER FIRST COUNT``: one process reads
many. If a command fails otherwise, the process prints the failure and exits with 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reprokit.cli import main as command_line
from reprokit.host.pack import reader, tar_format

RAW_MARK = "replaced by a raw text"
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**70,
    -(2**70),
    "",
    "x",
    "\ud800",
    "../../../x",
    "/etc/passwd",
    "a\x1b[31mb\u202e\n\n# c",
    "x" * 100_000,
    [],
    {},
    [[]],
    [{}],
    [None],
    ["x"],
    {"x": 1},
    {"": []},
    {"\ud800": "\ud800"},
    [1, 2],
    ["a", 1, None],
    "nan",
)
RAW = (
    "1e999",
    "-Infinity",
    "NaN",
    "9" * 301,
    "9" * 5000,
    "9" * 290,
    "1e308",
    "[" * 50 + "]" * 50,
    "[" * 900 + "]" * 900,
    "[" * 100_000 + "]" * 100_000,
    '{"":' * 300 + "1" + "}" * 300,
    "[" + "[]," * 30_000 + "[]]",
    "[" + "{}," * 300_000 + "1]",
    "[1",
    '"\\ud800"',
    '"\\ud83d\\ude00"',
    "01",
    "'x'",
)
"""Texts that no JSON writer writes."""
WHOLE = (
    b"",
    b"null",
    b"[]",
    b"3",
    b"{",
    b"\xff\xfe\x00",
    b'"x"',
    b"[" * 200_000,
    b"{}",
    b"\0" * 100,
)
CONTROL = {
    chr(n)
    for n in (
        *range(32),
        *range(127, 160),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        0x200B,
        0xFEFF,
    )
}


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a JSON value."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths_in(value[key], (*path, key))


def change_json(data: bytes, chance: random.Random) -> bytes:
    """Return a JSON text with one value changed or removed, or a text that is not JSON."""
    if chance.random() < 0.1:
        return chance.choice(WHOLE)
    value = json.loads(data)
    paths = [p for p in paths_in(value) if p]
    if not paths:
        return chance.choice(WHOLE)
    *parents, last = chance.choice(paths)
    holder = value
    for key in parents:
        holder = holder[key]
    if isinstance(holder, dict) and chance.random() < 0.2:
        del holder[last]
    else:
        holder[last] = chance.choice((*HOSTILE, *[RAW_MARK] * len(RAW)))
    return json.dumps(value).replace(f'"{RAW_MARK}"', chance.choice(RAW)).encode()


def build_pack(files: dict[str, bytes]) -> bytes:
    """Return a pack whose manifest matches its files."""
    rows = {n: {"size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()}
    manifest = json.dumps({"schema": 1, "made_by": "a stranger", "files": rows}).encode()
    return tar_format.build_tar([("manifest.json", manifest), *files.items()])


def call_reprokit(*words: str) -> tuple[int, str, str]:
    """Call reprokit in this process. Return its exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["reprokit", *words]
    status: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command_line.main()
    except SystemExit as left:
        status = left.code
    finally:
        sys.argv = before
    return int(status or 0), out.getvalue(), err.getvalue()


def check_call(words: tuple[str, ...], allowed: tuple[int, ...] = (0, 1, 2)) -> None:
    """Call reprokit, and require an answer or one clear line. A line about refused rows of a ledger
    may be before it.
    """
    status, out, err = call_reprokit(*words)
    assert status in allowed, (status, err)
    assert "Traceback" not in err and "defect of reprokit" not in err, err
    assert not (CONTROL - {"\n", "\t"}) & set(out + err), "a control character"
    if status == 2:
        *before, message = err.splitlines()
        assert message.startswith("reprokit: ") and len(err) < 1_200, err
        assert not before or (len(before) == 1 and before[0].startswith("reprokit: refused ")), err


def damage_pack(base: Path, number: int, folder: Path) -> None:
    """Change one JSON file of a pack, and read the pack with each command."""
    chance = random.Random(number)
    files = {n: d for n, d in reader.read_pack(base).files.items() if n != "manifest.json"}
    name = chance.choice([n for n in sorted(files) if n.endswith(".json")])
    files[name] = change_json(files[name], chance)
    pack = folder / "p.tar.gz"
    pack.write_bytes(build_pack(files))
    for words in (
        ("show",),
        ("show", "--json"),
        ("issue",),
        ("issue", "--json"),
        ("show", "--file", name),
    ):
        check_call((words[0], str(pack), *words[1:]))
    for words in (
        ("replay",),
        ("minimize",),
        ("ablate",),
        ("workarounds",),
        ("bisect", "--good", "2.9.0", "--bad", "2.10.0"),
    ):
        check_call((words[0], str(pack), "--python", "/no/such/python", *words[1:]))
    _prepare_minimization(pack, folder)


def _prepare_minimization(pack: Path, folder: Path) -> None:
    """Do what a command that runs programs does before it asks for permission."""
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.minimize import cases
    from reprokit.host.pack import reopen
    from reprokit.host.run import run_directory

    with contextlib.suppress(BadInput):
        opened = reopen.open_pack(pack)
        run = run_directory.create_run_directory(folder / "out", f"minimize-{opened.verdict.kind}")
        case = reopen.case_of_pack(opened, run, sys.executable)
        reopen.programs_to_run(case)
        cases.probe_limits_of(case).relaxed()
        run.release_lock()


def damage_run(base: Path, number: int, folder: Path) -> None:
    """Change one JSON file of a run directory, or replace a file by a folder, and pack it again."""
    chance = random.Random(number)
    run = folder / "run-001"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(base, run, ignore=shutil.ignore_patterns("warm", "pack"))
    paths = sorted(
        p
        for p in run.rglob("*")
        if p.suffix in (".json", ".jsonl", ".private", ".csv") and p.is_file()
    )
    path = chance.choice(paths)
    how = chance.random()
    if how < 0.1:
        path.unlink()
        path.mkdir()
    elif how < 0.15 and path.parent != run:
        shutil.rmtree(path.parent)
        path.parent.write_text("no folder")
    elif path.suffix == ".csv":
        path.write_bytes(chance.choice(WHOLE))
    elif path.suffix == ".jsonl":
        rows = path.read_bytes().splitlines()
        index = chance.randrange(len(rows))
        rows[index] = change_json(rows[index], chance)
        path.write_bytes(b"\n".join(rows) + b"\n")
    else:
        path.write_bytes(change_json(path.read_bytes(), chance))
    # For a finished run, reprokit does not query the interpreter.
    fields = {
        "ended": 1.0,
        "is_interrupted": True,
    }
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        (run / "run.json").write_text(
            json.dumps({**json.loads((run / "run.json").read_text()), **fields})
        )
    check_call(("pack", str(run), "--json"), (0, 1, 2, 3, 130))
    check_call(("show", str(run)), (0, 1, 2))


def main(what: str, base: str, first: str, count: str) -> int:
    """Read ``count`` damaged packs or run directories."""
    read: Callable[[Path, int, Path], None] = {"packs": damage_pack, "runs": damage_run}[what]
    for number in range(int(first), int(first) + int(count)):
        with tempfile.TemporaryDirectory() as folder:
            try:
                read(Path(base), number, Path(folder))
            except BaseException:
                traceback.print_exc()
                print(f"failed with number {number}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
