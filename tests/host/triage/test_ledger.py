"""The ledger keeps each sighting once, and everything else follows from the sightings."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprokit.core.records.finding import Signature
from reprokit.core.shared.errors import BadInput
from reprokit.core.triage import known_failures
from reprokit.host.catalogue import catalogue_files
from reprokit.host.nightly import night_junit, night_report, night_report_files
from reprokit.host.nightly.ledger import bugs, database, exchange, known_bugs, ledger_file
from reprokit.host.nightly.schedule import job_spec
from tests.support.environments import ROOT
from tests.support.examples import examples
from tests.support.nightly_results import (
    add_cell_result,
    add_night,
    bug_status,
    cell_result,
    failing,
    healthy,
    new_ledger,
)
from tests.support.nightly_results import (
    attempt as attempt_of,
)


def test_a_bug_from_new_to_fixed_and_back(tmp_path: Path) -> None:
    """A bug is new, open, fixed after three runs without it, regressed, and open; its history has
    the reason for each change.
    """
    store = new_ledger(tmp_path)
    statuses = []
    for shows in (True, True, False, False, False, False, True, True):
        add_night(store, a=cell_result(failing("lost") if shows else healthy()))
        statuses.append(bug_status(store, "lost"))
    assert statuses == ["new", "open", "open", "open", "fixed", "fixed", "regressed", "open"]
    history = store.fetch_all("SELECT what, why FROM event ORDER BY id")
    assert [row["what"] for row in history] == ["new", "open", "fixed", "regressed", "open"]
    assert "not seen in 3 runs that could have shown it" in history[2]["why"]


def test_a_run_without_its_target_is_not_evidence(tmp_path: Path) -> None:
    """Only runs that could have shown the bug count, not runs of other targets or other failures of
    the same target.
    """
    store = new_ledger(tmp_path)
    add_night(store, a=cell_result(failing("lost")))
    for _ in range(5):
        add_night(store, b=cell_result(healthy()))
    assert bug_status(store, "lost") == "open"
    for _ in range(5):
        add_night(store, a=cell_result(failing("other")))
    assert bug_status(store, "lost") == "open"
    for _ in range(3):
        add_night(store, a=cell_result(healthy()))
    assert (bug_status(store, "lost"), bug_status(store, "other")) == ("fixed", "fixed")


def test_a_bug_that_shows_in_a_different_cell_is_not_fixed(tmp_path: Path) -> None:
    """While b shows the bug, its absence from a is not a reason to call it fixed; nor is a further
    healthy run of a when b is not run.
    """
    store = new_ledger(tmp_path)
    add_night(store, a=cell_result(failing("lost")), b=cell_result(failing("lost")))
    for _ in range(4):
        add_night(store, a=cell_result(healthy()), b=cell_result(failing("lost")))
    add_night(store, a=cell_result(healthy()))
    assert bug_status(store, "lost") == "flaky"
    for _ in range(3):
        add_night(store, a=cell_result(healthy()), b=cell_result(healthy()))
    assert bug_status(store, "lost") == "fixed"


def test_new_bugs_of_an_interrupted_nightly_run_are_reported(tmp_path: Path) -> None:
    """A failure that only an interrupted nightly run has seen is new in the report of the next one,
    and is also reported during the run.
    """
    store = new_ledger(tmp_path)
    add_night(store, a=cell_result(healthy()))
    number = ledger_file.begin_night(store, "cut", "cut", "main", 2, 1e9)
    add_cell_result(store, number, 1, cell_result(failing("lost")))
    report = night_report.make_report(store)
    assert [bug["title"] for bug in report["groups"]["new"]] == ["exception: codegen | lost"]
    bugs.close_night(store, number, "incomplete")
    add_night(store, a=cell_result(failing("lost")))
    assert night_report.make_report(store)["exit_code"] == 1
    number = ledger_file.begin_night(store, "again", "again", "main", 2, 1e9)
    add_cell_result(store, number, 1, cell_result(failing("second")))
    bugs.close_night(store, number, "incomplete")
    add_night(store, a=cell_result(healthy()))
    report = night_report.make_report(store)
    assert (
        report["exit_code"] == 1
        and "seen in an interrupted nightly run" in report["groups"]["new"][0]["reason"]
    )
    add_night(store, a=cell_result(healthy()))
    assert night_report.make_report(store)["exit_code"] == 0


def test_a_repro_belongs_to_the_minimized_bug(tmp_path: Path) -> None:
    """The repro belongs to the failure that was minimized, traits and pack of its first attempt
    stay, and a minimization without result is not repeated in every nightly run.
    """
    store = new_ledger(tmp_path)
    studied = failing("y", part="inductor", operator="aten.sin")
    studied["pack"] = "small.tar.gz"
    again = {**failing("y"), "pack": "second.tar.gz"}
    small = {
        "signature": studied["signature"]["id"],
        "text": "REPRO OF Y",
        "lines": 3,
        "pack": "small.tar.gz",
    }
    add_night(store, a=cell_result(failing("x"), studied, again, minimized=small))
    rows = {r["title"][-1]: r["repro"] for r in store.fetch_all("SELECT title, repro FROM bug")}
    assert rows == {"x": "", "y": "REPRO OF Y"}
    traits = json.loads(
        store.fetch_all("SELECT traits FROM signature WHERE title LIKE '%y'")[0]["traits"]
    )
    assert (traits["part"], traits["operator"]) == ("inductor", "aten.sin")
    assert store.fetch_all("SELECT pack FROM sighting WHERE k = 2")[0]["pack"] == "small.tar.gz"
    assert studied["signature"]["id"] in job_spec.known_signatures(store) and failing("x")[
        "signature"
    ]["id"] not in job_spec.known_signatures(store)
    nothing = {
        "signature": failing("x")["signature"]["id"],
        "text": "",
        "lines": None,
        "pack": None,
    }
    add_night(store, a=cell_result(failing("x"), minimized=nothing))
    assert failing("x")["signature"]["id"] in job_spec.known_signatures(store)
    for _ in range(job_spec.RETRY_AFTER_NIGHTS):
        add_night(store, a=cell_result(failing("x")))
    assert failing("x")["signature"]["id"] not in job_spec.known_signatures(store)


def test_flaky_is_k_of_n(tmp_path: Path) -> None:
    """A bug that shows in one of two runs is flaky, and needs more runs without it to be called
    fixed.
    """
    store = new_ledger(tmp_path)
    for _ in range(4):
        add_night(store, a=cell_result(failing("race"), healthy()))
    assert bug_status(store, "race") == "flaky"
    row = store.fetch_all("SELECT k, n FROM sighting")[0]
    assert (row["k"], row["n"]) == (1, 2)
    calm = 0
    while bug_status(store, "race") != "fixed":
        add_night(store, a=cell_result(healthy()))
        calm += 1
    assert calm == 5  # 0.5 ** 5 is 3 %


def test_two_bugs_in_one_model_and_one_bug_in_ten(tmp_path: Path) -> None:
    """Bugs are distinguished by signature, not by target, and their occurrences are counted by
    target.
    """
    store = new_ledger(tmp_path)
    cells = {f"m{i}": cell_result(failing("shared")) for i in range(10)}
    cells["m0"] = cell_result(failing("shared"), failing("alone"))
    add_night(store, **cells)
    rows = {
        r["title"].split("| ")[1]: r["cells"]
        for r in store.fetch_all(
            "SELECT title, count(*) AS cells FROM place JOIN signature ON id = signature GROUP"
            " BY id"
        )
    }
    assert rows == {"shared": 10, "alone": 1}
    report = night_report.make_report(store)
    assert {bug["tonight"] for bug in report["groups"]["new"]} == {10, 1}


def test_one_bug_across_three_versions(tmp_path: Path) -> None:
    """The same signature with three versions of torch is one bug with three versions."""
    store = new_ledger(tmp_path)
    runs = {f"v{v}": cell_result({**failing("shared"), "torch": f"2.{v}.0"}) for v in (11, 12, 13)}
    add_night(store, **runs)
    (bug,) = night_report.make_report(store)["groups"]["new"]
    assert bug["torch"] == ["2.11.0", "2.12.0", "2.13.0"]


def test_the_range_in_which_it_began(tmp_path: Path) -> None:
    """For a new bug, the report has the last healthy run of its cell and the torch version of that
    run.
    """
    store = new_ledger(tmp_path)
    add_night(store, a=cell_result({**healthy(), "torch": "2.12.1"}))
    add_night(store, a=cell_result(failing("lost")), b=cell_result(failing("always")))
    first_bug, second_bug = sorted(
        night_report.make_report(store)["groups"]["new"], key=lambda bug: bug["title"], reverse=True
    )
    assert first_bug["healthy_before"] == {
        "night": "2026-11-001",
        "torch": "2.12.1",
        "then_torch": "2.13.0",
    }
    assert second_bug["healthy_before"] is None
    text = night_report_files.digest_text(night_report.make_report(store))
    assert "healthy in 2026-11-001 with torch 2.12.1" in text


def test_near_matches_are_proposed_and_never_merged(tmp_path: Path) -> None:
    """A new bug that is similar to a known one is proposed. A person merges them, which makes the
    new one an alias, or declines permanently.
    """
    store = new_ledger(tmp_path)
    old = failing("KeyError buf", frames=["a.py:f", "b.py:g", "c.py:h"])
    near = failing("KeyError buffer", frames=["z.py:f", "b.py:g", "c.py:h"])
    near["traits"]["message"] = old["traits"]["message"]
    add_night(store, a=cell_result(old))
    add_night(
        store,
        a=cell_result(old),
        b=cell_result(near),
        c=cell_result(failing("AssertionError dtype", frames=["q.py:r"])),
    )
    report = night_report.make_report(store)
    assert [p["bugs"] for p in report["proposals"]] == [[1, 2]]
    assert len(report["groups"]["new"]) == 2
    bugs.split_bug(store, 1, "2", "no")
    add_night(store, a=cell_result(old), b=cell_result(near))
    assert not night_report.make_report(store)["proposals"]
    bugs.merge_bugs(store, 1, [2], "yes, after all")
    add_night(store, b=cell_result(near))
    report = night_report.make_report(store)
    assert [bug["id"] for bug in report["groups"]["open"]] == [1, 3]
    assert len(report["groups"]["open"][0]["signatures"]) == 2
    assert bugs.find_bug(store, "2") == 1
    with pytest.raises(BadInput, match="same bug already"):
        bugs.merge_bugs(store, 1, [bugs.find_bug(store, "2")], "")
    assert bugs.split_bug(store, 1, near["signature"]["id"], "") == 2
    assert len(night_report.make_report(store)["groups"]["open"]) == 3
    bugs.merge_bugs(store, 1, [2], "by mistake")
    assert bugs.split_bug(store, 1, "2", "") == 2
    assert {r["bug"] for r in store.fetch_all("SELECT bug FROM signature")} == {1, 2, 3}
    with pytest.raises(BadInput, match="is bug 1 itself"):
        bugs.split_bug(store, 1, "1", "")
    with pytest.raises(BadInput, match="nothing to split"):
        bugs.split_bug(store, 2, near["signature"]["id"], "")
    with pytest.raises(BadInput, match="has no bug"):
        bugs.find_bug(store, "77")


def test_a_muted_bug_is_not_reported_as_new(tmp_path: Path) -> None:
    """A muted bug stays in the ledger, and the exit code of the nightly run is 0."""
    store = new_ledger(tmp_path)
    add_night(store, a=cell_result(failing("known")))
    assert night_report.make_report(store)["exit_code"] == 1
    bugs.mute_bug(store, 1, "waiting")
    for shows in (True, False, False, False, True):
        add_night(store, a=cell_result(failing("known") if shows else healthy()))
        assert night_report.make_report(store)["exit_code"] == 0
        assert bug_status(store, "known") == "muted"
    bugs.mute_bug(store, 1, None)
    assert bug_status(store, "known") == "open"


def test_an_expected_failure_is_reported_only_when_it_disappears(tmp_path: Path) -> None:
    """A suite can declare an expected failure; its disappearance is reported once."""
    store = new_ledger(tmp_path)
    codes = []
    for attempt in (failing("known"), failing("known"), healthy(), healthy()):
        add_night(store, a=cell_result(attempt, expect=("exception",)))
        codes.append(night_report.make_report(store)["exit_code"])
    assert codes == [0, 0, 1, 0]
    codes = []
    for attempt in (failing("known"), {**healthy(), "verdict": {"kind": "unknown"}}, healthy()):
        add_night(store, b=cell_result(attempt, expect=("exception",)))
        codes.append(night_report.make_report(store)["exit_code"])
    assert codes == [0, 0, 1]


def test_an_alias_in_the_same_cell_counts_once(tmp_path: Path) -> None:
    """Two signatures of one bug that alternate in one cell show in half of its runs, in one cell
    for each nightly run.
    """
    store = new_ledger(tmp_path)
    add_night(store, a=cell_result(failing("x"), failing("y"), healthy()))
    bugs.merge_bugs(store, 1, [2], "")
    for what in ("x", "y", "x", "y"):
        add_night(store, a=cell_result(failing(what), healthy()))
    (bug,) = night_report.make_report(store)["groups"]["flaky"]
    assert (bug["hits"], bug["runs"], bug["tonight"]) == (6, 11, 1)


def test_a_slower_compile_is_a_bug(tmp_path: Path) -> None:
    """A tenth more is noise; half as much again is a bug with the phase that grew, until it is gone
    or accepted.
    """
    store = new_ledger(tmp_path)
    for value in (10.0, 10.9, 9.5, 10.2, 9.8, 10.6, 9.4):
        add_night(store, a=cell_result(healthy(value)))
    assert not store.fetch_all("SELECT id FROM bug")
    for number in range(20):  # the phase that has grown most is not part of the title
        add_night(
            store,
            a=cell_result(
                healthy(16.0, lowering=9.0 + number % 2, codegen=10.5 if number == 7 else 7.0)
            ),
        )
    (bug,) = night_report.make_report(store)["groups"]["open"]
    assert bug["title"] == "compile-time-regression: a environment=here"
    assert bug["cause"].startswith("16.0 CPU-seconds, usually 10.0 CPU-seconds (median of 7 nights")
    assert bug["hits"] == 20
    bugs.mute_bug(store, bug["id"], "the price of a better kernel")
    for _ in range(8):
        add_night(store, a=cell_result(healthy(16.1)))
    add_night(store, a=cell_result(healthy(30.0)))  # 16 is the usual cost now, and 30 is slower
    assert (
        store.fetch_all(
            "SELECT count(*) AS n FROM sighting WHERE night = (SELECT max(id) FROM night)"
        )[0]["n"]
        == 1
    )


def test_the_lowest_cost_of_several_runs_counts(tmp_path: Path) -> None:
    """A run that other load disturbed is repeated by the job and is then not a regression."""
    store = new_ledger(tmp_path)
    for _ in range(6):
        add_night(store, a=cell_result(healthy(10.0)))
    add_night(store, a=cell_result(healthy(25.0), healthy(10.1)))
    assert not store.fetch_all("SELECT id FROM bug")


def test_more_memory_is_a_separate_bug(tmp_path: Path) -> None:
    """Memory is tracked beside time."""
    store = new_ledger(tmp_path)
    for _ in range(6):
        add_night(store, a=cell_result(healthy(10.0, 1e9)))
    add_night(store, a=cell_result(healthy(10.0, 2e9)))
    (bug,) = night_report.make_report(store)["groups"]["new"]
    assert bug["kind"] == "memory-regression"


def test_a_result_counts_once(tmp_path: Path) -> None:
    """A nightly run that is started again imports its results, and imports them again without
    effect.
    """
    store = new_ledger(tmp_path)
    number = add_night(store, a=cell_result(failing("lost")))
    before = [*exchange.export_ledger(store)]
    assert not add_cell_result(store, number, 1, cell_result(failing("lost")))
    assert [*exchange.export_ledger(store)] == before


def test_the_order_of_nightly_runs_does_not_depend_on_the_clock(tmp_path: Path) -> None:
    """A clock that is set back by a year does not change a status."""
    store = new_ledger(tmp_path)
    for index, attempt in enumerate([failing("lost"), healthy(), healthy(), healthy()]):
        number = ledger_file.begin_night(
            store, f"uid {index}", f"n{index}", "main", 1, 2e9 - 4e7 * index
        )
        with store.transaction():
            cell = ledger_file.cell_id(store, "a", "a", {}, [])
        add_cell_result(store, number, cell, cell_result(attempt))
        bugs.close_night(store, number, "done")
    assert bug_status(store, "lost") == "fixed"
    assert night_report.make_report(store)["night"]["name"] == "n3"


choices = st.lists(
    st.lists(st.sampled_from([None, "ok", "x", "y", "flaky", "xy"]), min_size=3, max_size=3),
    min_size=1,
    max_size=12,
)


def _result_of(choice: str) -> dict[str, Any]:
    runs = {
        "ok": [healthy()],
        "x": [failing("x")],
        "y": [failing("y")],
        "flaky": [failing("x"), healthy()],
    }
    return cell_result(*(runs.get(choice) or [failing("x"), failing("y"), healthy()]))


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choices)
def test_sums_follow_from_the_sightings(
    tmp_path_factory: pytest.TempPathFactory, plan: list[list[str | None]]
) -> None:
    """For any history, recomputed sums equal the incrementally updated ones, and an imported export
    gives the same sums.
    """
    store = new_ledger(tmp_path_factory.mktemp("ledger"))
    for row in plan:
        add_night(
            store,
            **{f"c{i}": _result_of(choice) for i, choice in enumerate(row) if choice is not None},
        )

    def sums(ledger: database.Ledger) -> list[Any]:
        tables = [
            [tuple(r) for r in ledger.fetch_all(f"SELECT * FROM {table} ORDER BY 1, 2")]
            for table in database.SUM_TABLES
        ]
        # runs without a bug that has come back are not counted yet
        tables[0] = [r for r in tables[0] if r[2]]
        return [
            *tables,
            [
                tuple(r)
                for r in ledger.fetch_all("SELECT id, status, reason, changed FROM bug ORDER BY id")
            ],
        ]

    kept = sums(store)
    with store.transaction():
        exchange.recompute_sums(store)
    assert sums(store) == kept
    imported = new_ledger(tmp_path_factory.mktemp("other"))
    lines = [json.dumps(row) for row in exchange.export_ledger(store)]
    exchange.import_rows(imported, lines)
    assert sums(imported) == kept
    assert not exchange.import_rows(imported, lines)
    assert [*exchange.export_ledger(imported)] == [*exchange.export_ledger(store)]


def test_an_export_shows_no_secret(tmp_path: Path) -> None:
    """Titles, reasons, targets and traits of an export are redacted, even if the ledger has the
    original text.
    """
    secret = "ghp_" + "aB3dE5gH7j" * 3 + "Kl9mN0"
    words = f"token={secret} of bob@corp.example.com"
    with new_ledger(tmp_path) as store:
        add_night(
            store,
            a=cell_result(failing(words)),
            **{f"b {words}": cell_result(failing("x"), problem=words)},
        )
        exported = "\n".join(json.dumps(row) for row in exchange.export_ledger(store))
    assert "codegen" in exported and secret not in exported and "bob@corp" not in exported


def test_import_refuses_a_file_that_is_not_an_export(tmp_path: Path) -> None:
    """A file that does not begin as an export is refused entirely; in an export, invalid lines are
    refused and reported.
    """
    store = new_ledger(tmp_path)
    add_night(store, a=cell_result(failing("lost")))
    lines = [json.dumps(row) for row in exchange.export_ledger(store)]
    imported = new_ledger(tmp_path / "other")
    for broken in (
        ["[]"],
        [lines[1]],
        ["", lines[1]],
        ["{"],
        ['{"type": "ledger", "schema": 2}'],
        ["[" * 100_000],
    ):
        with pytest.raises(BadInput, match=r"line \d+ is not a line of an export"):
            exchange.import_rows(imported, broken)
        assert not imported.fetch_all("SELECT id FROM night")
    for number, bad in enumerate(
        ("{", '{"type": "sighting"}', '{"type": "x"}', '{"type": []}', "[" * 100_000, b"\xff")
    ):
        exchange.import_rows(imported, [*lines, bad])
        assert (
            len(imported.refused) == number + 1
            and f"1 line of the import (line {len(lines) + 1}: " in imported.refused[-1]
        )
        assert len(imported.refused[-1]) < 600
    assert [*exchange.export_ledger(imported)] == [*exchange.export_ledger(store)]


def test_bad_ledgers_are_refused_and_not_changed(tmp_path: Path) -> None:
    """Damaged, foreign and newer files are refused with a one-line error each and are not
    changed.
    """
    path = tmp_path / "ledger.sqlite"
    with new_ledger(tmp_path) as store:
        for i in range(30):
            add_night(store, **{f"c{j}": cell_result(failing(f"b{i}{j}")) for j in range(5)})
        store.back_up()
    whole = path.read_bytes()

    def refused(data: bytes, words: str) -> None:
        path.write_bytes(data)
        with pytest.raises(BadInput, match=words) as refusal:
            ledger_file.open_ledger(path, is_checked=True)
        assert "\n" not in str(refusal.value)
        assert path.read_bytes() == data

    refused(b"no database at all" * 100, "cannot be read .* copy .*ledger.backup.sqlite to ")
    refused(whole[: len(whole) // 2], "cannot be read")
    refused(whole[:40_000] + b"\xff" * 8_000 + whole[48_000:], "cannot be read")
    path.write_bytes(b"")
    path.unlink()
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE t(x)")
    refused(path.read_bytes(), "not a ledger of reprokit")
    path.write_bytes(whole)
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    refused(path.read_bytes(), "written by a newer reprokit .schema 99")
    with ledger_file.open_ledger(database.backup_path(path), is_checked=True) as kept:
        assert len(kept.fetch_all("SELECT id FROM bug")) == 150


def test_two_writers_wait_for_each_other(tmp_path: Path) -> None:
    """One process mutes bugs while a nightly run adds results: in the end the ledger has both."""
    store = new_ledger(tmp_path)
    add_night(store, **{f"c{i}": cell_result(failing(f"b{i}")) for i in range(20)})

    def mute_all() -> None:
        with ledger_file.open_ledger(store.path) as ledger:
            for bug in range(1, 21):
                bugs.mute_bug(ledger, bug, "known")

    person = threading.Thread(target=mute_all)
    person.start()
    for _ in range(5):
        add_night(store, **{f"c{i}": cell_result(failing(f"b{i}")) for i in range(20)})
    person.join()
    add_night(store, **{f"c{i}": cell_result(failing(f"b{i}")) for i in range(20)})
    assert {r["status"] for r in store.fetch_all("SELECT status FROM bug")} == {"muted"}
    assert store.fetch_all("SELECT count(*) AS n FROM sighting")[0]["n"] == 140


def test_killed_in_the_middle_of_a_change(tmp_path: Path) -> None:
    """SIGKILL while results are added leaves only whole results, and the remaining results are
    added later.
    """
    code = f"""
import os, signal, threading
from pathlib import Path
from tests.support.nightly_results import *
store = new_ledger(Path({str(tmp_path)!r}))
threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
while True:
    add_night(store, **{{f"c{{i}}": cell_result(failing(f"b{{i}}"), healthy()) for i in range(50)}})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == -9
    store = ledger_file.open_ledger(tmp_path / "ledger.sqlite", is_checked=True)
    torn = store.fetch_all(
        "SELECT 1 FROM run WHERE NOT EXISTS(SELECT 1 FROM sighting s WHERE s.night = run.night AND"
        " s.cell = run.cell)"
    )
    assert not torn
    for table in ("place", "tally", "version"):
        sums = store.fetch_all(f"SELECT sum(hits) AS n FROM {table}")[0]["n"]
        assert sums == store.fetch_all("SELECT sum(k) AS n FROM sighting")[0]["n"]


def test_a_ledger_becomes_a_catalogue(tmp_path: Path) -> None:
    """Each bug is an entry with its signatures and versions. The reason of a decision names the
    issue, and without one the entry has the number of the bug. A failure with the signature of the
    bug then matches the entry. Its program stays a program without its secret.
    """
    store = new_ledger(tmp_path)
    other = failing("other", kernel="cpp_fused_add_0")
    small = {
        "signature": other["signature"]["id"],
        "text": "password = 'h0rse-staple-9'\nassert password\n",
        "lines": 2,
        "pack": None,
    }
    add_night(store, a=cell_result(failing("lost")), b=cell_result(other, minimized=small))
    bugs.mute_bug(store, 1, "see https://github.com/pytorch/pytorch/issues/196570")
    written = catalogue_files.write_catalogue(known_bugs.known_bugs(store), tmp_path / "team")
    assert written == ["pytorch/pytorch#196570", "ledger#2"]
    entries = catalogue_files.read_catalogue(tmp_path / "team")
    assert [entry.url for entry in entries] == [
        "",
        "https://github.com/pytorch/pytorch/issues/196570",
    ]
    run = entries[0].failing[0]
    assert run.kernel == "cpp_fused_add_0"
    program = entries[0].program
    assert "h0rse" not in program and "assert password" in program
    compile(program, "program", "exec")
    signature = Signature(run.signature, run.title, run.algorithm)
    traits = known_failures.traits_of_title(run.title, run.frames)
    matches = known_failures.find_known_failures(signature, traits, entries)
    assert (matches[0].entry.issue, run.torch) == ("ledger#2", "2.13.0")
    assert known_failures.search_known_failures("ledger#2", entries)[0].entry.issue == "ledger#2"


def test_a_failure_without_the_compiler_is_no_bug(tmp_path: Path) -> None:
    """The report, the digest and the JUnit file name the target with the reason."""
    store = new_ledger(tmp_path)
    why = "It fails without torch.compile: ValueError: no data"
    eager = attempt_of("error-in-eager", "error-in-eager: eager | ValueError: no data")
    eager["verdict"]["reason"] = why
    add_night(store, broken=cell_result(eager), fine=cell_result(healthy()))
    report = night_report.make_report(store)
    assert not any(report["groups"].values())
    assert [(row["target"], row["why"]) for row in report["in_eager"]] == [("broken", why)]
    assert report["exit_code"] == 0
    assert report["sentence"] == "1 without torch.compile too; 1 of 2 healthy"
    digest = night_report_files.digest_text(report)
    assert "Fails without torch.compile too" in digest and "no data" in digest
    assert "it fails without torch.compile too" in night_junit.junit_text(store)
