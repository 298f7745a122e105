"""Results, ledgers and imports that a target or a third party has changed are reported and not
trusted, and the nightly run continues.
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
from reprokit.host.nightly.jobs import job_schema, quarantine
from reprokit.host.nightly.ledger import (
    bugs,
    database,
    exchange,
    ledger_file,
    prune,
    rows,
)
from reprokit.host.nightly.schedule import night as nights_of
from reprokit.host.nightly.suite import suite_file
from tests.support import damaged_files
from tests.support.examples import examples
from tests.support.nightly_results import (
    add_cell_result,
    add_night,
    cell_result,
    failing,
    healthy,
    new_ledger,
)

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
    """Replace an expected result by something else."""
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
        path.write_bytes(damaged_files.change_json(json.dumps(whole).encode(), chance))


@settings(max_examples=examples(12))
@given(st.integers(0, 2**32))
def test_a_forged_result_does_not_end_a_nightly_run(seed: int) -> None:
    """Whatever one job leaves, the other jobs count, a refused result is reported and moved to the
    quarantine, and the next nightly run starts.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "suite.toml").write_text(SUITE)
        suite = suite_file.read_suite(Path(folder) / "suite.toml")
        messages: list[str] = []
        with nights_of.lock_output(Path(folder) / "out") as output, new_ledger(output) as store:
            for number in range(2):
                work = nights_of.begin_jobs(
                    suite, suite.cells, {"default": "python"}, {}, output, store, messages.append
                )
                assert len(work.left) == 3 and not work.is_resumed
                for job, attempt in zip(
                    work.jobs, (failing("lost"), healthy(), failing("other")), strict=True
                ):
                    whole = {**cell_result(attempt), "key": job.key, "minimized": None}
                    path = job.folder / "result.json"
                    if job is work.jobs[1] and not number:
                        _put(path, chance, whole)
                    else:
                        path.write_text(json.dumps(whole))
                nights_of.collect_results(work)
                is_refused = len(work.left) == 1
                for left in work.left:
                    nights_of.record_lost_job(work, left, "no result")
                nights_of.collect_results(work)
                assert not work.left
                nights_of.end_night(work, is_complete=True)
                report = night_report.make_report(store, None, output)
                night_report_files.write_report(report, output)
                json.dumps(report, allow_nan=False).encode()
                assert {b["title"] for g in report["groups"].values() for b in g} >= {
                    "exception: codegen | lost",
                    "exception: codegen | other",
                }
                if not number:
                    assert report["refused"]["count"] == len(messages) == int(is_refused)
                    assert not is_refused or (
                        "refused result.json of" in messages[0] and len(messages[0]) < 600
                    )
                    assert len([*(output / quarantine.FOLDER).glob("*")]) == int(is_refused)
        with ledger_file.open_ledger(output / "ledger.sqlite", is_checked=True) as store:
            assert not store.refused


@settings(max_examples=examples(12))
@given(st.integers(0, 2**32))
def test_a_forged_plan_does_not_end_a_nightly_run(seed: int) -> None:
    """After an interrupted nightly run, the plan, its number, a spec or a folder is changed: the
    next start continues it or starts a new one.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "suite.toml").write_text(SUITE)
        suite = suite_file.read_suite(Path(folder) / "suite.toml")
        messages: list[str] = []

        def begin() -> nights_of.Night:
            return nights_of.begin_jobs(
                suite, suite.cells, {"default": "python"}, {}, output, store, messages.append
            )

        with nights_of.lock_output(Path(folder) / "out") as output, new_ledger(output) as store:
            work = begin()
            folder_of_first = work.jobs[0].folder
            (folder_of_first / "result.json").write_text(
                json.dumps({**cell_result(failing("lost")), "key": work.jobs[0].key})
            )
            plan, sequence, spec = (
                work.path / "plan.json",
                work.path / "sequence",
                work.jobs[1].folder / "spec.json",
            )
            what = chance.randrange(4)
            if what == 0:
                plan.write_bytes(damaged_files.change_json(plan.read_bytes(), chance))
            elif what == 1:
                sequence.write_text(chance.choice(("9" * 5_000, "-1", "\u0664", "", "x")))
            elif what == 2:
                spec.write_bytes(damaged_files.change_json(spec.read_bytes(), chance))
            else:
                shutil.rmtree(work.jobs[1].folder)
            for _ in range(2):
                os.makedirs(os.fsencode(output / "nights") + b"/\xff copy", exist_ok=True)
                work = begin()
                nights_of.collect_results(work)
                for left in work.left:
                    with contextlib.suppress(OSError):
                        nights_of.refresh_job_spec(work, left)
                    nights_of.record_lost_job(work, left, "no result")
                nights_of.collect_results(work)
                assert not work.left
                nights_of.end_night(work, is_complete=True)
                night_report_files.write_report(
                    night_report.make_report(store, None, output), output
                )
                assert (folder_of_first / "result.json").exists(), "what was run is kept"
            assert all(len(words) < 800 for words in messages)
            night_rows = store.fetch_all("SELECT name, planned FROM night")
            assert len(night_rows) >= 2 and night_rows[-1]["planned"] == 3
        with ledger_file.open_ledger(output / "ledger.sqlite", is_checked=True) as store:
            assert not store.refused


def test_the_valid_lines_of_a_damaged_cluster_journal_are_used(tmp_path: Path) -> None:
    """Invalid lines, deeply nested lines and ids of wrong types are skipped; the other lines give
    the submitted jobs.
    """
    good = ['{"name": "a", "folders": ["0001-x"]}', '{"name": "a", "ids": ["7"]}']
    bad = [
        "[" * 100_000,
        '{"name": "a", "ids": [7]}',
        '{"name": 3, "folders": []}',
        '{"name": "b", "folders": ["../x"]}',
        "{",
    ]
    (tmp_path / slurm_engine.JOURNAL_FILE).write_text(
        "\n".join([*bad, good[0], *bad, good[1], *bad])
    )
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
def test_a_result_outside_the_schema_is_refused(change: dict[str, Any]) -> None:
    """Numbers, lengths, types and names outside the schema are refused with one short line."""
    whole = {**cell_result(failing("lost"), healthy()), "key": "k"}
    assert job_schema.convert_to_struct(whole, job_schema.JobResult).key == "k"
    with pytest.raises(job_schema.FailsSchema) as refusal:
        job_schema.convert_to_struct(
            job_schema.parse_strict_json(json.dumps({**whole, **change})), job_schema.JobResult
        )
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) <= job_schema.MAX_REASON_CHARS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"seconds": NaN}', "NaN is not a number in JSON"),
        ('{"seconds": -Infinity}', "-Infinity is not a number in JSON"),
        ("[" * 300 + "]" * 300, "it is nested more than 200 levels deep"),
    ],
)
def test_a_text_outside_json_is_refused(text: str, why: str) -> None:
    """A number that JSON does not have, and values that are nested too deeply, are refused with the
    reason.
    """
    with pytest.raises(job_schema.FailsSchema) as refusal:
        job_schema.parse_strict_json(text)
    assert str(refusal.value) == why


def test_the_quarantine_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files beyond the hundred newest, or beyond the size, are deleted, and a link in the position
    of the folder is not followed.
    """
    monkeypatch.setattr(quarantine, "MAX_FILES", 5)
    monkeypatch.setattr(quarantine, "MAX_BYTES", 10_000)
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


def test_a_folder_in_the_quarantine_has_the_size_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quarantine keeps a small folder, and deletes a folder whose files are too large."""
    monkeypatch.setattr(quarantine, "MAX_BYTES", 10_000)
    for size in (100, 20_000):
        (tmp_path / "result.json" / "inside").mkdir(parents=True)
        (tmp_path / "result.json" / "inside" / "x").write_bytes(b"x" * size)
        name = quarantine.quarantine_file(tmp_path / "result.json", tmp_path)
        assert not (tmp_path / "result.json").exists()
        assert (tmp_path / name / "inside" / "x").exists() == (size == 100)


@pytest.mark.parametrize("text", ["{}", "[", '{"uid": 3}'])
def test_a_refused_plan_is_moved_to_the_quarantine(tmp_path: Path, text: str) -> None:
    """After an interrupted nightly run without a valid plan, the next start names the refused file,
    keeps the results, and starts a new nightly run.
    """
    (tmp_path / "suite.toml").write_text(SUITE)
    suite = suite_file.read_suite(tmp_path / "suite.toml")
    messages: list[str] = []
    with nights_of.lock_output(tmp_path / "out") as output, new_ledger(output) as store:

        def begin() -> nights_of.Night:
            return nights_of.begin_jobs(
                suite, suite.cells, {"default": "python"}, {}, output, store, messages.append
            )

        first = begin()
        (first.jobs[0].folder / "attempt-1.json").write_text("{}")
        (first.path / "plan.json").write_text(text)
        again = begin()
        (refusal,) = messages
        assert refusal.startswith(f"refused plan.json of nightly run {first.path.name}: ")
        kept = output / refusal.rpartition("; see ")[2]
        assert kept.parent == output / quarantine.FOLDER and kept.read_text() == text
        assert not again.is_resumed and again.path != first.path and len(again.left) == 3
        assert (first.jobs[0].folder / "attempt-1.json").exists()


def test_a_nightly_run_that_began_nothing_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without a plan in which nothing ran is replaced by the next nightly run of the day,
    and a folder in which a job ran stays.
    """
    monkeypatch.setattr(nights_of.time, "strftime", lambda *args: "2026-11-28")
    first = nights_of._new_folder(tmp_path)
    (first / "draft").touch()
    assert nights_of._new_folder(tmp_path) == first and not (first / "draft").exists()
    (first / "jobs" / "0001-x" / "attempt-1").mkdir(parents=True)
    assert nights_of._new_folder(tmp_path) == first.with_name("2026-11-28-2")
    assert (first / "jobs" / "0001-x" / "attempt-1").exists()


def _filled(folder: Path) -> Path:
    """Write a ledger of several nightly runs with rows in every table."""
    with new_ledger(folder) as store:
        for number in range(4):
            add_night(
                store,
                a=cell_result(failing("lost")),
                b=cell_result(failing(f"b{number}")),
                c=cell_result(healthy()),
            )
        bugs.merge_bugs(store, 2, [3], "same")
        bugs.mute_bug(store, 4, "known")
        bugs.refuse_proposal(store, 1, 2)
    return folder / "ledger.sqlite"


WHOLE: dict[str, bytes] = {}


def _base() -> bytes:
    if not WHOLE:
        with tempfile.TemporaryDirectory() as folder:
            path = _filled(Path(folder))
            with sqlite3.connect(path) as database:
                database.execute("PRAGMA journal_mode = DELETE")
            database.close()
            WHOLE["ledger"] = path.read_bytes()
            with ledger_file.open_ledger(path) as store:
                WHOLE["export"] = "\n".join(
                    json.dumps(row) for row in exchange.export_ledger(store)
                ).encode()
    return WHOLE["ledger"]


def _damage(path: Path, chance: random.Random) -> None:
    """Change values, tables, code or bytes of a ledger."""
    how = chance.random()
    if how < 0.15:
        data = bytearray(path.read_bytes())
        for _ in range(chance.choice((1, 20, 500))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice((len(data), len(data) // 2, 4096))])
        return
    with sqlite3.connect(path) as database:
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
    """Do everything that a nightly run and a person do with a ledger."""
    report = night_report.make_report(store, None, output)
    night_report_files.write_report(report, output)
    json.dumps(report, allow_nan=False).encode()
    rest = [*exchange.export_ledger(store)]
    with new_ledger(output / "copy") as copy:
        exchange.import_rows(copy, [json.dumps(row) for row in rest])
        night_report.make_report(copy)
    for name in ("1", "2", "3", "4"):
        with contextlib.suppress(BadInput):
            bugs.find_bug(store, name)
    number = ledger_file.begin_night(store, "the next", "the-next", "main", 1, 2e9)
    with store.transaction():
        cell = ledger_file.cell_id(store, "a new cell", "a", {"environment": "here"}, [])
    add_cell_result(store, number, cell, cell_result(failing("lost"), healthy(), failing("fresh")))
    bugs.close_night(store, number, "done")
    assert night_report.make_report(store)["night"]["runs"] == 1


def _safely(path: Path, use: Callable[[database.Ledger], None]) -> bool:
    """Open and use a ledger; return False if it was refused with a one-line error."""
    try:
        with ledger_file.open_ledger(path, is_checked=True) as store:
            assert all("\n" not in why and len(why) < 600 for why in store.refused)
            use(store)
    except BadInput as problem:
        assert "\n" not in str(problem) and len(str(problem)) < 1_200
        return False
    return True


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32))
def test_a_hostile_ledger_does_not_break_a_report(seed: int) -> None:
    """The ledger is refused with one line, or its invalid rows are removed and all other rows are
    used; the next opening reports nothing.
    """
    chance = random.Random(seed)
    base = _base()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        path.write_bytes(base)
        _damage(path, chance)
        if _safely(path, lambda store: _use(store, Path(folder))):
            with ledger_file.open_ledger(path) as store:
                assert not store.refused


@settings(max_examples=examples(10))
@given(st.integers(0, 2**32))
def test_commands_end_cleanly_with_a_hostile_ledger(seed: int) -> None:
    """Each command prints its result or a one-line error, and no control character of the ledger
    reaches the terminal.
    """
    base = _base()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        (Path(folder) / "suite.toml").write_text(SUITE)
        for words in (
            ("report",),
            ("report", "--json"),
            ("prune", f"{folder}/suite.toml"),
            ("mute", "1"),
            ("merge", "1", "2"),
            ("split", "2", "3"),
        ):
            path.write_bytes(base)
            _damage(path, random.Random(seed))
            status, out, err = damaged_files.call_reprokit(
                "nightly", *words, "--output-dir", folder
            )
            assert (
                status in (0, 1, 2, 3)
                and "Traceback" not in err
                and "defect of reprokit" not in err
            ), err
            assert not (damaged_files.CONTROL - {"\n", "\t"}) & set(out + err)
            errors = [
                line for line in err.splitlines() if not line.startswith("reprokit: refused ")
            ]
            assert len(err.splitlines()) - len(errors) <= 1 and len(errors) == (status == 2), err


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("CREATE VIEW v AS SELECT * FROM bug", "it has a view, 'v'"),
        (
            "CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM night; END",
            "it has a trigger, 't'",
        ),
        ("DROP INDEX tally_by_night", "its tally_by_night is missing or differs from that of"),
        ("ALTER TABLE tally ADD COLUMN x", "its tally is missing or differs from that of reprokit"),
    ],
)
def test_a_ledger_with_foreign_tables_is_refused(tmp_path: Path, change: str, why: str) -> None:
    """A ledger with code or tables that reprokit does not make is refused with one line, and its
    rows stay.
    """
    path = tmp_path / "ledger.sqlite"
    with new_ledger(tmp_path) as store:
        add_night(store, a=cell_result(failing("lost")))
    with sqlite3.connect(path) as changed:
        changed.execute(change)
    changed.close()
    with pytest.raises(BadInput) as refusal:
        ledger_file.open_ledger(path)
    assert str(refusal.value).startswith(f"the ledger {path} was not made by reprokit ({why}")
    assert str(refusal.value).endswith("; name a different --ledger; nothing was changed")
    with sqlite3.connect(path) as left:
        assert left.execute("SELECT count(*) FROM night").fetchone()[0] == 1
    left.close()


def test_a_bug_without_a_valid_signature_is_not_imported(tmp_path: Path) -> None:
    """The import leaves out a bug whose only signature is refused, with its events and
    proposals.
    """
    with new_ledger(tmp_path) as store:
        add_night(store, a=cell_result(failing("lost")), b=cell_result(failing("kept")))
        bugs.refuse_proposal(store, 1, 2)
        rows_of_all = [*exchange.export_ledger(store)]
    assert any(row["type"] == "proposal" for row in rows_of_all)
    lost = next(r for r in rows_of_all if r["type"] == "signature" and "lost" in r["title"])
    lines = [json.dumps({**row, "algorithm": "x"} if row == lost else row) for row in rows_of_all]
    with new_ledger(tmp_path / "other") as store:
        added = exchange.import_rows(store, lines)
        assert (added["bug"], added["signature"]) == (1, 1)
        titles = store.fetch_all(
            "SELECT signature.title FROM bug LEFT JOIN signature ON signature.bug = bug.id"
        )
        assert [row["title"] for row in titles] == ["exception: codegen | kept"]
        assert not store.fetch_all("SELECT id FROM event WHERE bug NOT IN (SELECT id FROM bug)")
        assert not store.fetch_all("SELECT a FROM proposal")
        assert len(store.refused) == 1


def test_one_bad_row_does_not_affect_the_others(tmp_path: Path) -> None:
    """A run with an impossible number moves to the quarantine, and every other row stays."""
    path = _filled(tmp_path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE run SET seconds = 1e300 WHERE night = 2 AND cell = 1")
        database.execute("UPDATE signature SET traits = ? WHERE title LIKE '%b3'", ("[" * 5_000,))
        counts = {
            t: database.execute(f"SELECT count(*) FROM {t}").fetchone()[0]
            for t in ("run", "night", "signature")
        }
    database.close()
    with ledger_file.open_ledger(path) as store:
        assert [why.partition(",")[0] for why in store.refused] == [
            "1 row of signature in the ledger",
            "1 row of run in the ledger",
            "1 row of sighting in the ledger",
            "1 row of place in the ledger",
            "1 row of tally in the ledger",
            "1 row of version in the ledger",
        ]
        left = {
            table: store.fetch_all(f"SELECT count(*) AS n FROM {table}")[0]["n"] for table in counts
        }
        assert left == {
            "run": counts["run"] - 1,
            "night": counts["night"],
            "signature": counts["signature"] - 1,
        }
        assert night_report.make_report(store)["refused"]["count"] == 6
    kept = [*(tmp_path / quarantine.FOLDER).glob("*-run.jsonl")]
    assert len(kept) == 1 and "1e+300" in kept[0].read_text()
    with ledger_file.open_ledger(path) as store:
        assert not store.refused and not night_report.make_report(store)["refused"]["count"]


def test_a_ledger_that_cannot_be_written_is_read_from_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a different process holds the ledger, bad rows are left out of the report and stay in
    the file, and nothing is written to the copy.
    """
    monkeypatch.setattr(ledger_file, "BUSY_TIMEOUT_S", 0.1)
    path = _filled(tmp_path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE run SET kind = x'ff', seconds = -1 WHERE night = 4 AND cell = 1")
    database.close()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with ledger_file.open_ledger(path) as store:
        report = night_report.make_report(store)
        assert (report["night"]["runs"], report["refused"]["count"]) == (2, 1)
        with pytest.raises(sqlite3.OperationalError):
            bugs.mute_bug(store, 1, "why")
    writer.execute("ROLLBACK")
    assert writer.execute("SELECT count(*) FROM run WHERE seconds < 0").fetchone()[0] == 1
    writer.close()


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32))
def test_a_hostile_import_loses_only_the_changed_lines(seed: int) -> None:
    """Changed lines are refused or limited, and nightly runs that they do not name are imported
    unchanged.
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
            damaged_files.change_json(lines[at], chance).replace(b"\n", b" "),
            *lines[at + 1 :],
        ]
        with new_ledger(output) as store:
            exchange.import_rows(store, changed)
            assert not store.refused or len(store.refused) == 1
            night_count = store.fetch_all("SELECT count(*) AS n FROM night")[0]["n"]
            assert night_count == 4 if kind != "night" else night_count >= 3
            if kind in ("event", "proposal", "restart"):
                assert store.fetch_all("SELECT count(*) AS n FROM sighting")[0]["n"] == 8
            exchange.import_rows(store, lines)  # the whole export repairs the refused lines
            _use(store, output)
        with ledger_file.open_ledger(output / "ledger.sqlite", is_checked=True) as store:
            assert not store.refused


def _outside(folder: Path) -> tuple[Path, set[str]]:
    """Create a folder beside the output folder that looks like a nightly run; return its job folder
    and all of its files.
    """
    job = folder / "outside" / "jobs" / "0001-a"
    (job / "run-001").mkdir(parents=True)
    for name in ("spec.json", "run-001/x", "reprokit-x.tar.gz"):
        (job / name).write_text("{}")
    return job, {str(p) for p in (folder / "outside").rglob("*")}


@settings(max_examples=examples(25))
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
    """Names of nightly runs and folders in a ledger or an import that lead outside the output
    folder delete nothing there.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _, before = _outside(folder)
        (folder / "suite.toml").write_text(SUITE)
        suite = suite_file.read_suite(folder / "suite.toml")
        name = name.replace("ABSOLUTE", str(folder / "outside"))
        output = folder / "out"
        (output / "nights").mkdir(parents=True)
        (output / "nights" / "link").symlink_to(folder / "outside")
        with new_ledger(folder / "other") as foreign:
            for _ in range(3):
                add_night(foreign, a=cell_result(healthy(), folder=job))
            if not is_import:
                with foreign.transaction():
                    foreign.execute("UPDATE night SET name = ?", name)
            lines = [json.dumps(row) for row in exchange.export_ledger(foreign)]
        if is_import:
            changed = [
                json.dumps({**r, "name": name} if r["type"] == "night" else r)
                for r in map(json.loads, lines)
            ]
            with new_ledger(output) as store:
                exchange.import_rows(store, changed)
        source = output / "ledger.sqlite" if is_import else folder / "other" / "ledger.sqlite"
        with ledger_file.open_ledger(source) as store:
            prune.prune_output(store, suite, output.resolve())
        assert {str(p) for p in (folder / "outside").rglob("*")} == before
