"""Change packs and run directories as a stranger might, read them with each command, and require
one clear line.

Run as ``python -m tests.hostile packs|runs PLACE FIRST COUNT``: one process reads many; it prints
what broke, and ends with 1.
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

MARK = "the place of a raw text"
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
"""What a JSON writer does not write."""
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


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in a JSON value."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(data: bytes, chance: random.Random) -> bytes:
    """A JSON text with one value in it changed or gone; or another text."""
    if chance.random() < 0.1:
        return chance.choice(WHOLE)
    value = json.loads(data)
    paths = [p for p in places(value) if p]
    if not paths:
        return chance.choice(WHOLE)
    *parents, last = chance.choice(paths)
    holder = value
    for key in parents:
        holder = holder[key]
    if isinstance(holder, dict) and chance.random() < 0.2:
        del holder[last]
    else:
        holder[last] = chance.choice((*HOSTILE, *[MARK] * len(RAW)))
    return json.dumps(value).replace(f'"{MARK}"', chance.choice(RAW)).encode()


def packed(files: dict[str, bytes]) -> bytes:
    """A pack whose manifest agrees with it."""
    rows = {n: {"size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()}
    manifest = json.dumps({"schema": 1, "made_by": "a stranger", "files": rows}).encode()
    return tar_format.build_tar([("manifest.json", manifest), *files.items()])


def call(*words: str) -> tuple[int, str, str]:
    """Call reprokit in this process; gives its exit code and what it printed."""
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


def check(words: tuple[str, ...], allowed: tuple[int, ...] = (0, 1, 2)) -> None:
    """Call reprokit, and require an answer, or one clear line, after a line about what a ledger
    held.
    """
    status, out, err = call(*words)
    assert status in allowed, (status, err)
    assert "Traceback" not in err and "defect of reprokit" not in err, err
    assert not (CONTROL - {"\n", "\t"}) & set(out + err), "a control character"
    if status == 2:
        *before, said = err.splitlines()
        assert said.startswith("reprokit: ") and len(err) < 1_200, err
        assert not before or (len(before) == 1 and before[0].startswith("reprokit: refused ")), err


def read_pack(base: Path, number: int, folder: Path) -> None:
    """Change one JSON file of a pack, and read it with each command."""
    chance = random.Random(number)
    files = {n: d for n, d in reader.read_pack(base).files.items() if n != "manifest.json"}
    name = chance.choice([n for n in sorted(files) if n.endswith(".json")])
    files[name] = changed(files[name], chance)
    pack = folder / "p.tar.gz"
    pack.write_bytes(packed(files))
    for words in (
        ("show",),
        ("show", "--json"),
        ("issue",),
        ("issue", "--json"),
        ("show", "--file", name),
    ):
        check((words[0], str(pack), *words[1:]))
    for words in (
        ("replay",),
        ("minimize",),
        ("ablate",),
        ("workarounds",),
        ("bisect", "--good", "2.9.0", "--bad", "2.10.0"),
    ):
        check((words[0], str(pack), "--python", "/no/such/python", *words[1:]))
    _prepare(pack, folder)


def _prepare(pack: Path, folder: Path) -> None:
    """What the commands that run programs do before they ask whether they may."""
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.minimize import minimization
    from reprokit.host.pack import reopen
    from reprokit.host.run import run_directory

    with contextlib.suppress(BadInput):
        opened = reopen.open_pack(pack)
        run = run_directory.create_run(folder / "out", f"minimize-{opened.verdict.kind}")
        case = reopen.case_of_pack(opened, run, sys.executable)
        reopen.what_would_run(case)
        minimization.limits_of(case).eased()
        run.release()


def read_run(base: Path, number: int, folder: Path) -> None:
    """Change one JSON file of a run directory, or make a folder of a file, and pack it again."""
    chance = random.Random(number)
    run = folder / "run-001"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(base, run, ignore=shutil.ignore_patterns("warm", "pack"))
    found = sorted(
        p
        for p in run.rglob("*")
        if p.suffix in (".json", ".jsonl", ".private", ".csv") and p.is_file()
    )
    path = chance.choice(found)
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
        place = chance.randrange(len(rows))
        rows[place] = changed(rows[place], chance)
        path.write_bytes(b"\n".join(rows) + b"\n")
    else:
        path.write_bytes(changed(path.read_bytes(), chance))
    told = {
        "ended": 1.0,
        "is_interrupted": True,
    }  # so that nobody asks the interpreter about itself
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        (run / "run.json").write_text(
            json.dumps({**json.loads((run / "run.json").read_text()), **told})
        )
    check(("pack", str(run), "--json"), (0, 1, 2, 3, 130))
    check(("show", str(run)), (0, 1, 2))


def main(what: str, place: str, first: str, count: str) -> int:
    """Read ``count`` changed packs or run directories."""
    read: Callable[[Path, int, Path], None] = {"packs": read_pack, "runs": read_run}[what]
    for number in range(int(first), int(first) + int(count)):
        with tempfile.TemporaryDirectory() as folder:
            try:
                read(Path(place), number, Path(folder))
            except BaseException:
                traceback.print_exc()
                print(f"broken by number {number}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
