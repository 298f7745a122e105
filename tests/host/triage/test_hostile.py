"""Results, ledgers and imports that a target or a stranger has changed: reported, never believed,
and nothing ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly import night_report, night_report_files
from reprokit.host.nightly.engines import slurm_engine
from reprokit.host.nightly.jobs import quarantine, schema
from reprokit.host.nightly.ledger import (
    add_result,
    bugs,
    database,
    exchange,
    ledger_file,
    prune,
    rows,
)
from reprokit.host.nightly.schedule import night as nights_of
from reprokit.host.nightly.suite import suite_file

from ... import hostile
from .nights import failing, healthy, new_ledger, night, result

SUITE = '[suite]\nname = "main"\n[keep]\nnights = 1\nhealthy_nights = 1\n' + "".join(
    f'[[targets]]\ncommand = ["{{python}}", "{name}.py"]\n' for name in "abc"
)
JSON_VALUES = (
    "[" * 5_000 + "]" * 5_000,
    '{"a":' * 2_000 + "1" + "}" * 2_000,
    '{"a": 1, "a": [[[[]]]]}',
    "null",
    "3",
    "{",
    '["\\ud800"]',
)
VALUES: tuple[Any, ...] = (
    -1,
    2**62,
    -(2**62),
    0.5,
    float("inf"),
    -1e308,
    "",
    "x",
    "../../../x",
    "/etc",
    "..",
    "a\x1b[31m\u202e\n# b",
    b"\xff\xfe\0",
    b"x" * 200,
    "x" * 100_000,
    None,
    *JSON_VALUES,
)


def _put(path: Path, chance: random.Random, whole: dict[str, Any]) -> None:
    """Leave something else than a result where a result is expected."""
    how = chance.random()
    if how < 0.1:
        path.mkdir()
        (path / "x").write_text("x")
    elif how < 0.15:
        os.mkfifo(path)
    elif how < 0.2:
        path.symlink_to(chance.choice(("result.json", "/etc/passwd", "/dev/zero")))
    elif how < 0.25:
        path.write_text(json.dumps(whole)[:-1] + ', "schema": 1}')  # the same key twice
    else:
        path.write_bytes(hostile.changed(json.dumps(whole).encode(), chance))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_a_lying_result_ends_no_night(seed: int) -> None:
    """Whatever one job leaves: the others count, what is refused is reported and kept aside, and
    the next night runs.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "suite.toml").write_text(SUITE)
        asked = suite_file.read_suite(Path(folder) / "suite.toml")
        said: list[str] = []
        with nights_of.hold_night(Path(folder) / "out") as output, new_ledger(output) as store:
            for number in range(2):
                work = nights_of.begin_jobs(
                    asked, asked.cells, {"default": "python"}, {}, output, store, said.append
                )
                assert len(work.left) == 3 and not work.is_resumed
                for job, one in zip(
                    work.jobs, (failing("lost"), healthy(), failing("other")), strict=True
                ):
                    whole = {**result(one), "key": job.key, "minimized": None}
                    place = job.folder / "result.json"
                    if job is work.jobs[1] and not number:
                        _put(place, chance, whole)
                    else:
                        place.write_text(json.dumps(whole))
                nights_of.collect_results(work)
                is_refused = len(work.left) == 1
                for left in work.left:
                    nights_of.give_up(work, left, "no result")
                nights_of.collect_results(work)
                assert not work.left
                nights_of.end_night(work, is_complete=True)
                told = night_report.make_report(store, None, output)
                night_report_files.write_report(told, output)
                json.dumps(told, allow_nan=False).encode()
                assert {b["title"] for g in told["groups"].values() for b in g} >= {
                    "exception: codegen | lost",
                    "exception: codegen | other",
                }
                if not number:
                    assert told["refused"]["count"] == len(said) == int(is_refused)
                    assert not is_refused or (
                        "refused result.json of" in said[0] and len(said[0]) < 600
                    )
                    assert len([*(output / quarantine.FOLDER).glob("*")]) == int(is_refused)
        with ledger_file.open_ledger(output / "ledger.sqlite", is_checked=True) as store:
            assert not store.refused


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_a_lying_plan_ends_no_night(seed: int) -> None:
    """Of a night that was cut short, the plan, its number, a spec and a folder are changed: the
    next start goes on or begins anew.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "suite.toml").write_text(SUITE)
        asked = suite_file.read_suite(Path(folder) / "suite.toml")
        said: list[str] = []

        def begin() -> nights_of.Night:
            return nights_of.begin_jobs(
                asked, asked.cells, {"default": "python"}, {}, output, store, said.append
            )

        with nights_of.hold_night(Path(folder) / "out") as output, new_ledger(output) as store:
            work = begin()
            one = work.jobs[0].folder
            (one / "result.json").write_text(
                json.dumps({**result(failing("lost")), "key": work.jobs[0].key})
            )
            plan, sequence, spec = (
                work.path / "plan.json",
                work.path / "sequence",
                work.jobs[1].folder / "spec.json",
            )
            what = chance.randrange(4)
            if what == 0:
                plan.write_bytes(hostile.changed(plan.read_bytes(), chance))
            elif what == 1:
                sequence.write_text(chance.choice(("9" * 5_000, "-1", "\u0664", "", "x")))
            elif what == 2:
                spec.write_bytes(hostile.changed(spec.read_bytes(), chance))
            else:
                shutil.rmtree(work.jobs[1].folder)
            for _ in range(2):
                os.makedirs(os.fsencode(output / "nights") + b"/\xff copy", exist_ok=True)
                work = begin()
                nights_of.collect_results(work)
                for left in work.left:
                    with contextlib.suppress(OSError):
                        nights_of.refresh_plan(work, left)
                    nights_of.give_up(work, left, "no result")
                nights_of.collect_results(work)
                assert not work.left
                nights_of.end_night(work, is_complete=True)
                night_report_files.write_report(
                    night_report.make_report(store, None, output), output
                )
                assert (one / "result.json").exists(), "what was run is kept"
            assert all(len(words) < 800 for words in said)
            nights = store.all("SELECT name, planned FROM night")
            assert len(nights) >= 2 and nights[-1]["planned"] == 3
        with ledger_file.open_ledger(output / "ledger.sqlite", is_checked=True) as store:
            assert not store.refused


def test_a_damaged_journal_of_a_cluster_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Lines that are none, deep ones and ids of other types are passed over; the others tell what
    was submitted.
    """
    good = ['{"name": "a", "folders": ["0001-x"]}', '{"name": "a", "ids": ["7"]}']
    bad = [
        "[" * 100_000,
        '{"name": "a", "ids": [7]}',
        '{"name": 3, "folders": []}',
        '{"name": "b", "folders": ["../x"]}',
        "{",
    ]
    (tmp_path / slurm_engine.JOURNAL).write_text("\n".join([*bad, good[0], *bad, good[1], *bad]))
    assert slurm_engine.holds_jobs(tmp_path) and slurm_engine._noted(tmp_path)["a"].ids == ["7"]
    assert list(slurm_engine._noted(tmp_path)) == ["a"]


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": 2**70},
        {"seconds": -1},
        {"problem": 3},
        {"attempts": [healthy()] * 101},
        {"attempts": [{**healthy(), "phases": {"x": -1}}]},
        {"expect": "ok"},
        {"minimized": {"text": 3}},
        {"attempts": [{**healthy(), "compile_s": True}]},
        {"attempts": [{**healthy(), "traits": {"frames": [[[]]]}}]},
        {"problem": "x" * 30_000},
        {"attempts": [{**healthy(), "signature": {"id": "../x", "title": "", "algorithm": 1}}]},
    ],
    ids=str,
)
def test_what_a_result_may_not_say(change: dict[str, Any]) -> None:
    """Numbers, lengths, types and names beyond the schema are refused with one short line."""
    whole = {**result(failing("lost"), healthy()), "key": "k"}
    assert schema.convert_as(whole, schema.JobResult).key == "k"
    with pytest.raises(schema.FailsSchema) as told:
        schema.convert_as(schema.parse_as(json.dumps({**whole, **change})), schema.JobResult)
    assert "\n" not in str(told.value) and len(str(told.value)) <= schema.MOST_SAID


def test_the_quarantine_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is older than a hundred files, or beyond the size, is deleted; a link in place of the
    folder is not followed.
    """
    monkeypatch.setattr(quarantine, "MOST_FILES", 5)
    monkeypatch.setattr(quarantine, "MOST_BYTES", 10_000)
    (tmp_path / "elsewhere").mkdir()
    output = tmp_path / "out"
    output.mkdir()
    (output / quarantine.FOLDER).symlink_to(tmp_path / "elsewhere")
    for number in range(12):
        (output / "result.json").write_text(str(number))
        quarantine.quarantine_file(output / "result.json", output)
        assert not (output / "result.json").exists()
    kept = sorted((output / quarantine.FOLDER).iterdir())
    assert [p.read_text() for p in kept] == ["7", "8", "9", "10", "11"]
    assert not [*(tmp_path / "elsewhere").iterdir()]
    (output / "large").write_bytes(b"x" * 20_000)
    quarantine.quarantine_file(output / "large", output)
    assert not (output / "large").exists() and not [*(output / quarantine.FOLDER).iterdir()]


def _filled(folder: Path) -> Path:
    """A ledger of several nights with every table in use."""
    with new_ledger(folder) as store:
        for number in range(4):
            night(
                store,
                a=result(failing("lost")),
                b=result(failing(f"b{number}")),
                c=result(healthy()),
            )
        bugs.merge_bugs(store, 2, [3], "same")
        bugs.mute_bug(store, 4, "known")
        bugs.refuse_proposal(store, 1, 2)
    return folder / "ledger.sqlite"


WHOLE: dict[str, bytes] = {}


def _base() -> bytes:
    if not WHOLE:
        with tempfile.TemporaryDirectory() as folder:
            place = _filled(Path(folder))
            with sqlite3.connect(place) as database:
                database.execute("PRAGMA journal_mode = DELETE")
            database.close()
            WHOLE["ledger"] = place.read_bytes()
            with ledger_file.open_ledger(place) as store:
                WHOLE["export"] = "\n".join(
                    json.dumps(row) for row in exchange.export_ledger(store)
                ).encode()
    return WHOLE["ledger"]


def _damage(place: Path, chance: random.Random) -> None:
    """Change values, tables, code or bytes of a ledger."""
    how = chance.random()
    if how < 0.15:
        data = bytearray(place.read_bytes())
        for _ in range(chance.choice((1, 20, 500))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        place.write_bytes(data[: chance.choice((len(data), len(data) // 2, 4096))])
        return
    with sqlite3.connect(place) as database:
        database.text_factory = lambda data: data.decode("utf-8", "replace")
        table = chance.choice([*rows.TABLES])
        if how < 0.2:
            database.execute(f"DROP TABLE {table}")
        elif how < 0.25:
            database.execute(f"ALTER TABLE {table} RENAME TO old")
            database.execute(f"CREATE VIEW {table} AS SELECT * FROM old")
        elif how < 0.3:
            database.execute(
                f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM night; END"
            )
        elif how < 0.35:
            database.execute("UPDATE bug SET merged = CASE id WHEN 1 THEN 2 ELSE 1 END")
        else:
            for _ in range(chance.choice((1, 1, 4))):
                column = chance.choice(
                    [r[1] for r in database.execute(f"PRAGMA table_info({table})")]
                )
                value = chance.choice(VALUES)
                mark = (
                    "CAST(? AS TEXT)" if isinstance(value, bytes) and chance.random() < 0.5 else "?"
                )
                count = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                some = f"SELECT * FROM {table} LIMIT 1 OFFSET {chance.randrange(max(count, 1))}"
                keys = [r[1] for r in database.execute(f"PRAGMA table_info({table})") if r[5]]
                row = database.execute(some).fetchone()
                names = [r[1] for r in database.execute(f"PRAGMA table_info({table})")]
                where = " AND ".join(f"{key} IS ?" for key in keys)
                picked = [row[names.index(key)] for key in keys] if row else [None] * len(keys)
                with contextlib.suppress(sqlite3.IntegrityError, OverflowError):
                    database.execute(
                        f"UPDATE {table} SET {column} = {mark} WHERE {where}", (value, *picked)
                    )
    database.close()


def _use(store: database.Ledger, output: Path) -> None:
    """Everything that a night and a person do with a ledger."""
    told = night_report.make_report(store, None, output)
    night_report_files.write_report(told, output)
    json.dumps(told, allow_nan=False).encode()
    rest = [*exchange.export_ledger(store)]
    with new_ledger(output / "copy") as copy:
        exchange.import_rows(copy, [json.dumps(row) for row in rest])
        night_report.make_report(copy)
    for name in ("1", "2", "3", "4"):
        with contextlib.suppress(BadInput):
            bugs.find_bug(store, name)
    number = ledger_file.begin_night(store, "the next", "the-next", "main", 1, 2e9)
    with store.change():
        cell = ledger_file.cell_id(store, "a new cell", "a", {"environment": "here"}, [])
    add_result.add_result(store, number, cell, result(failing("lost"), healthy(), failing("fresh")))
    bugs.close_night(store, number, "done")
    assert night_report.make_report(store)["night"]["runs"] == 1


def _safely(place: Path, use: Callable[[database.Ledger], None]) -> bool:
    """Open and use a ledger; False where it was refused in one line."""
    try:
        with ledger_file.open_ledger(place, is_checked=True) as store:
            assert all("\n" not in why and len(why) < 600 for why in store.refused)
            use(store)
    except BadInput as problem:
        assert "\n" not in str(problem) and len(str(problem)) < 1_200
        return False
    return True


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_a_hostile_ledger_breaks_no_report(seed: int) -> None:
    """It is refused in one line, or what is wrong leaves it and all the rest is used; the next
    opening finds nothing.
    """
    chance = random.Random(seed)
    base = _base()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "ledger.sqlite"
        place.write_bytes(base)
        _damage(place, chance)
        if _safely(place, lambda store: _use(store, Path(folder))):
            with ledger_file.open_ledger(place) as store:
                assert not store.refused


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_commands_answer_on_a_hostile_ledger(seed: int) -> None:
    """Each command gives an answer or one line, and prints no mark of the ledger that acts on a
    terminal.
    """
    base = _base()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "ledger.sqlite"
        (Path(folder) / "suite.toml").write_text(SUITE)
        for words in (
            ("report",),
            ("report", "--json"),
            ("prune", f"{folder}/suite.toml"),
            ("mute", "1"),
            ("merge", "1", "2"),
            ("split", "2", "3"),
        ):
            place.write_bytes(base)
            _damage(place, random.Random(seed))
            status, out, err = hostile.call("nightly", *words, "--output-dir", folder)
            assert (
                status in (0, 1, 2, 3)
                and "Traceback" not in err
                and "defect of reprokit" not in err
            ), err
            assert not (hostile.CONTROL - {"\n", "\t"}) & set(out + err)
            said = [line for line in err.splitlines() if not line.startswith("reprokit: refused ")]
            assert len(err.splitlines()) - len(said) <= 1 and len(said) == (status == 2), err


def test_one_bad_row_leaves_the_others(tmp_path: Path) -> None:
    """A run of one night with an impossible number goes to the quarantine, and every other row
    stays; also read-only.
    """
    place = _filled(tmp_path)
    with sqlite3.connect(place) as database:
        database.execute("UPDATE run SET seconds = 1e300 WHERE night = 2 AND cell = 1")
        database.execute("UPDATE signature SET traits = ? WHERE title LIKE '%b3'", ("[" * 5_000,))
        counts = {
            t: database.execute(f"SELECT count(*) FROM {t}").fetchone()[0]
            for t in ("run", "night", "signature")
        }
    database.close()
    with ledger_file.open_ledger(place) as store:
        assert [why.partition(",")[0] for why in store.refused] == [
            "1 row of signature in the ledger",
            "1 row of run in the ledger",
            "1 row of sighting in the ledger",
            "1 row of place in the ledger",
            "1 row of tally in the ledger",
            "1 row of version in the ledger",
        ]
        left = {table: store.all(f"SELECT count(*) AS n FROM {table}")[0]["n"] for table in counts}
        assert left == {
            "run": counts["run"] - 1,
            "night": counts["night"],
            "signature": counts["signature"] - 1,
        }
        assert night_report.make_report(store)["refused"]["count"] == 6
    kept = [*(tmp_path / quarantine.FOLDER).glob("*-run.jsonl")]
    assert len(kept) == 1 and "1e+300" in kept[0].read_text()
    with ledger_file.open_ledger(place) as store:
        assert not store.refused and not night_report.make_report(store)["refused"]["count"]


def test_a_ledger_that_cannot_be_written_is_read_from_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process holds it, bad rows are left out of the report and stay in the file;
    nothing is written to the copy.
    """
    monkeypatch.setattr(ledger_file, "BUSY_S", 0.1)
    place = _filled(tmp_path)
    with sqlite3.connect(place) as database:
        database.execute("UPDATE run SET kind = x'ff', seconds = -1 WHERE night = 4 AND cell = 1")
    database.close()
    writer = sqlite3.connect(place, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with ledger_file.open_ledger(place) as store:
        told = night_report.make_report(store)
        assert (told["night"]["runs"], told["refused"]["count"]) == (2, 1)
        with pytest.raises(sqlite3.OperationalError):
            bugs.mute_bug(store, 1, "why")
    writer.execute("ROLLBACK")
    assert writer.execute("SELECT count(*) FROM run WHERE seconds < 0").fetchone()[0] == 1
    writer.close()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_a_hostile_import_costs_its_own_lines(seed: int) -> None:
    """Lines that were changed are refused or bounded; nights that they do not name come in as they
    were.
    """
    chance = random.Random(seed)
    _base()
    lines = WHOLE["export"].split(b"\n")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        at = chance.randrange(1, len(lines))
        kind = json.loads(lines[at])["type"]
        changed = [
            *lines[:at],
            hostile.changed(lines[at], chance).replace(b"\n", b" "),
            *lines[at + 1 :],
        ]
        with new_ledger(output) as store:
            exchange.import_rows(store, changed)
            assert not store.refused or len(store.refused) == 1
            night_count = store.all("SELECT count(*) AS n FROM night")[0]["n"]
            assert night_count == 4 if kind != "night" else night_count >= 3
            if kind in ("event", "proposal", "restart"):
                assert store.all("SELECT count(*) AS n FROM sighting")[0]["n"] == 8
            exchange.import_rows(store, lines)  # the whole one repairs what was refused
            _use(store, output)
        with ledger_file.open_ledger(output / "ledger.sqlite", is_checked=True) as store:
            assert not store.refused


def _outside(folder: Path) -> tuple[Path, set[str]]:
    """A folder beside the output folder that looks like a night, and what it has."""
    job = folder / "outside" / "jobs" / "0001-a"
    (job / "run-001").mkdir(parents=True)
    for name in ("spec.json", "run-001/x", "reprokit-x.tar.gz"):
        (job / name).write_text("{}")
    return job, {str(p) for p in (folder / "outside").rglob("*")}


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(
        (
            "ABSOLUTE",
            "../../outside",
            "../nights/../../outside",
            "link",
            "..",
            ".",
            "",
            "a/../../../outside",
            "x\0y",
        )
    ),
    st.sampled_from(("0001-a", "/x/0001-a", "..", "../0001-a", "/", "0001-a/..")),
    st.booleans(),
)
def test_prune_deletes_nothing_outside(name: str, job: str, is_import: bool) -> None:
    """Names of nights and folders of a ledger, or of an import, that lead elsewhere delete nothing
    there.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _, before = _outside(folder)
        (folder / "suite.toml").write_text(SUITE)
        asked = suite_file.read_suite(folder / "suite.toml")
        name = name.replace("ABSOLUTE", str(folder / "outside"))
        output = folder / "out"
        (output / "nights").mkdir(parents=True)
        (output / "nights" / "link").symlink_to(folder / "outside")
        with new_ledger(folder / "other") as other:
            for _ in range(3):
                night(other, a=result(healthy(), folder=job))
            if not is_import:
                with other.change():
                    other.do("UPDATE night SET name = ?", name)
            lines = [json.dumps(row) for row in exchange.export_ledger(other)]
        if is_import:
            changed = [
                json.dumps({**r, "name": name} if r["type"] == "night" else r)
                for r in map(json.loads, lines)
            ]
            with new_ledger(output) as store:
                exchange.import_rows(store, changed)
        source = output / "ledger.sqlite" if is_import else folder / "other" / "ledger.sqlite"
        with ledger_file.open_ledger(source) as store:
            prune.prune_output(store, asked, output.resolve())
        assert {str(p) for p in (folder / "outside").rglob("*")} == before
