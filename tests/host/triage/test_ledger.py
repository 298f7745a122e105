"""The ledger: what was seen is kept, once; what it means follows."""

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

from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly import night_report, night_report_files
from reprokit.host.nightly.ledger import add_result, bugs, database, exchange, ledger_file
from reprokit.host.nightly.schedule import job_spec

from ...conftest import ROOT
from .nights import failing, healthy, new_ledger, night, result, status


def test_a_bug_from_new_to_fixed_and_back(tmp_path: Path) -> None:
    """New, open, fixed after three nights without it, regressed, open; its history tells each with
    the reason.
    """
    store = new_ledger(tmp_path)
    told = []
    for shows in (True, True, False, False, False, False, True, True):
        night(store, a=result(failing("lost") if shows else healthy()))
        told.append(status(store, "lost"))
    assert told == ["new", "open", "open", "open", "fixed", "fixed", "regressed", "open"]
    history = store.all("SELECT what, why FROM event ORDER BY id")
    assert [row["what"] for row in history] == ["new", "open", "fixed", "regressed", "open"]
    assert "not seen in 3 runs where it would have been" in history[2]["why"]


def test_a_night_without_its_target_says_nothing(tmp_path: Path) -> None:
    """Only runs that could have shown it count: not other targets, not other failures of the same
    one.
    """
    store = new_ledger(tmp_path)
    night(store, a=result(failing("lost")))
    for _ in range(5):
        night(store, b=result(healthy()))
    assert status(store, "lost") == "open"
    for _ in range(5):
        night(store, a=result(failing("other")))
    assert status(store, "lost") == "open"
    for _ in range(3):
        night(store, a=result(healthy()))
    assert (status(store, "lost"), status(store, "other")) == ("fixed", "fixed")


def test_a_bug_that_shows_elsewhere_is_not_fixed(tmp_path: Path) -> None:
    """While b shows it, its absence from a is no reason; nor is one more healthy run of a, when b
    is not run.
    """
    store = new_ledger(tmp_path)
    night(store, a=result(failing("lost")), b=result(failing("lost")))
    for _ in range(4):
        night(store, a=result(healthy()), b=result(failing("lost")))
    night(store, a=result(healthy()))
    assert status(store, "lost") == "flaky"
    for _ in range(3):
        night(store, a=result(healthy()), b=result(healthy()))
    assert status(store, "lost") == "fixed"


def test_a_night_that_was_cut_short_keeps_its_news(tmp_path: Path) -> None:
    """What only a night has seen that never ended is new in the report of the next one, and told
    while it runs, too.
    """
    store = new_ledger(tmp_path)
    night(store, a=result(healthy()))
    number = ledger_file.begin_night(store, "cut", "cut", "main", 2, 1e9)
    add_result.add_result(store, number, 1, result(failing("lost")))
    told = night_report.make_report(store)
    assert [bug["title"] for bug in told["groups"]["new"]] == ["exception: codegen | lost"]
    bugs.close_night(store, number, "incomplete")
    night(store, a=result(failing("lost")))
    assert night_report.make_report(store)["exit_code"] == 1
    number = ledger_file.begin_night(store, "again", "again", "main", 2, 1e9)
    add_result.add_result(store, number, 1, result(failing("second")))
    bugs.close_night(store, number, "incomplete")
    night(store, a=result(healthy()))
    told = night_report.make_report(store)
    assert told["exit_code"] == 1 and "was cut short" in told["groups"]["new"][0]["reason"]
    night(store, a=result(healthy()))
    assert night_report.make_report(store)["exit_code"] == 0


def test_what_was_studied_belongs_to_its_bug(tmp_path: Path) -> None:
    """The repro goes to the failure that was made small, traits and pack of its first attempt stay,
    no repro is no reason to try every night.
    """
    store = new_ledger(tmp_path)
    studied = failing("y", rung="inductor", operator="aten.sin")
    studied["pack"] = "small.tar.gz"
    again = {**failing("y"), "pack": "second.tar.gz"}
    small = {
        "signature": studied["signature"]["id"],
        "text": "REPRO OF Y",
        "lines": 3,
        "pack": "small.tar.gz",
    }
    night(store, a=result(failing("x"), studied, again, minimized=small))
    rows = {r["title"][-1]: r["repro"] for r in store.all("SELECT title, repro FROM bug")}
    assert rows == {"x": "", "y": "REPRO OF Y"}
    traits = json.loads(
        store.all("SELECT traits FROM signature WHERE title LIKE '%y'")[0]["traits"]
    )
    assert (traits["rung"], traits["operator"]) == ("inductor", "aten.sin")
    assert store.all("SELECT pack FROM sighting WHERE k = 2")[0]["pack"] == "small.tar.gz"
    assert studied["signature"]["id"] in job_spec.known_signatures(store) and failing("x")[
        "signature"
    ]["id"] not in job_spec.known_signatures(store)
    nothing = {
        "signature": failing("x")["signature"]["id"],
        "text": "",
        "lines": None,
        "pack": None,
    }
    night(store, a=result(failing("x"), minimized=nothing))
    assert failing("x")["signature"]["id"] in job_spec.known_signatures(store)
    for _ in range(job_spec.TRY_AGAIN_NIGHTS):
        night(store, a=result(failing("x")))
    assert failing("x")["signature"]["id"] not in job_spec.known_signatures(store)


def test_flaky_is_k_of_n(tmp_path: Path) -> None:
    """A bug that shows in one of two runs of a night is flaky, and needs more nights to be called
    fixed.
    """
    store = new_ledger(tmp_path)
    for _ in range(4):
        night(store, a=result(failing("race"), healthy()))
    assert status(store, "race") == "flaky"
    row = store.all("SELECT k, n FROM sighting")[0]
    assert (row["k"], row["n"]) == (1, 2)
    calm = 0
    while status(store, "race") != "fixed":
        night(store, a=result(healthy()))
        calm += 1
    assert calm == 5  # 0.5 ** 5 is 3 %


def test_two_bugs_in_one_model_and_one_bug_in_ten(tmp_path: Path) -> None:
    """Bugs are told apart by signature, not by target; where each happens is counted by target."""
    store = new_ledger(tmp_path)
    cells = {f"m{i}": result(failing("shared")) for i in range(10)}
    cells["m0"] = result(failing("shared"), failing("alone"))
    night(store, **cells)
    rows = {
        r["title"].split("| ")[1]: r["cells"]
        for r in store.all(
            "SELECT title, count(*) AS cells FROM place JOIN signature ON id = signature GROUP"
            " BY id"
        )
    }
    assert rows == {"shared": 10, "alone": 1}
    told = night_report.make_report(store)
    assert {bug["tonight"] for bug in told["groups"]["new"]} == {10, 1}


def test_one_bug_across_three_versions(tmp_path: Path) -> None:
    """The same signature under three versions of torch is one bug that names the three."""
    store = new_ledger(tmp_path)
    runs = {f"v{v}": result({**failing("shared"), "torch": f"2.{v}.0"}) for v in (11, 12, 13)}
    night(store, **runs)
    (bug,) = night_report.make_report(store)["groups"]["new"]
    assert bug["torch"] == ["2.11.0", "2.12.0", "2.13.0"]


def test_the_range_in_which_it_began(tmp_path: Path) -> None:
    """Of a new bug the report says when its cell was healthy last, and with which torch."""
    store = new_ledger(tmp_path)
    night(store, a=result({**healthy(), "torch": "2.12.1"}))
    night(store, a=result(failing("lost")), b=result(failing("always")))
    one, other = sorted(
        night_report.make_report(store)["groups"]["new"], key=lambda bug: bug["title"], reverse=True
    )
    assert one["healthy_before"] == {
        "night": "2026-11-001",
        "torch": "2.12.1",
        "then_torch": "2.13.0",
    }
    assert other["healthy_before"] is None
    text = night_report_files.digest_text(night_report.make_report(store))
    assert "healthy the night of 2026-11-001 with torch 2.12.1" in text


def test_near_matches_are_proposed_and_never_merged(tmp_path: Path) -> None:
    """A new bug like a known one is proposed; a person merges, which makes it an alias, or says no,
    for good.
    """
    store = new_ledger(tmp_path)
    old = failing("KeyError buf", frames=["a.py:f", "b.py:g", "c.py:h"])
    near = failing("KeyError buffer", frames=["z.py:f", "b.py:g", "c.py:h"])
    near["traits"]["message"] = old["traits"]["message"]
    night(store, a=result(old))
    night(
        store,
        a=result(old),
        b=result(near),
        c=result(failing("AssertionError dtype", frames=["q.py:r"])),
    )
    told = night_report.make_report(store)
    assert [p["bugs"] for p in told["proposals"]] == [[1, 2]]
    assert len(told["groups"]["new"]) == 2
    bugs.split_bug(store, 1, "2", "no")
    night(store, a=result(old), b=result(near))
    assert not night_report.make_report(store)["proposals"]
    bugs.merge_bugs(store, 1, [2], "yes, after all")
    night(store, b=result(near))
    told = night_report.make_report(store)
    assert [bug["id"] for bug in told["groups"]["open"]] == [1, 3]
    assert len(told["groups"]["open"][0]["signatures"]) == 2
    assert bugs.find_bug(store, "2") == 1
    with pytest.raises(BadInput, match="same bug already"):
        bugs.merge_bugs(store, 1, [bugs.find_bug(store, "2")], "")
    assert bugs.split_bug(store, 1, near["signature"]["id"], "") == 2
    assert len(night_report.make_report(store)["groups"]["open"]) == 3
    bugs.merge_bugs(store, 1, [2], "by mistake")
    assert bugs.split_bug(store, 1, "2", "") == 2
    assert {r["bug"] for r in store.all("SELECT bug FROM signature")} == {1, 2, 3}
    with pytest.raises(BadInput, match="is bug 1 itself"):
        bugs.split_bug(store, 1, "1", "")
    with pytest.raises(BadInput, match="nothing to split"):
        bugs.split_bug(store, 2, near["signature"]["id"], "")
    with pytest.raises(BadInput, match="knows no bug"):
        bugs.find_bug(store, "77")


def test_a_muted_bug_is_no_news(tmp_path: Path) -> None:
    """It stays in the ledger, and the night's exit code is 0."""
    store = new_ledger(tmp_path)
    night(store, a=result(failing("known")))
    assert night_report.make_report(store)["exit_code"] == 1
    bugs.mute_bug(store, 1, "waiting")
    for shows in (True, False, False, False, True):
        night(store, a=result(failing("known") if shows else healthy()))
        assert night_report.make_report(store)["exit_code"] == 0
        assert status(store, "known") == "muted"
    bugs.mute_bug(store, 1, None)
    assert status(store, "known") == "open"


def test_an_expected_failure_is_no_news_and_its_end_is(tmp_path: Path) -> None:
    """A suite may know of a failure; when it is gone, that is told once."""
    store = new_ledger(tmp_path)
    codes = []
    for told in (failing("known"), failing("known"), healthy(), healthy()):
        night(store, a=result(told, expect=("exception",)))
        codes.append(night_report.make_report(store)["exit_code"])
    assert codes == [0, 0, 1, 0]
    codes = []
    for told in (failing("known"), {**healthy(), "verdict": {"kind": "unknown"}}, healthy()):
        night(store, b=result(told, expect=("exception",)))
        codes.append(night_report.make_report(store)["exit_code"])
    assert codes == [0, 0, 1]


def test_an_alias_in_the_same_cell_counts_once(tmp_path: Path) -> None:
    """Two signatures of one bug that take turns in one cell show in half of its runs, in one cell a
    night.
    """
    store = new_ledger(tmp_path)
    night(store, a=result(failing("x"), failing("y"), healthy()))
    bugs.merge_bugs(store, 1, [2], "")
    for what in ("x", "y", "x", "y"):
        night(store, a=result(failing(what), healthy()))
    (bug,) = night_report.make_report(store)["groups"]["flaky"]
    assert (bug["hits"], bug["runs"], bug["tonight"]) == (6, 11, 1)


def test_a_slower_compile_is_a_bug(tmp_path: Path) -> None:
    """Noise of a tenth is none; half as much again is, with the phase that grew; it stays one until
    it is gone or accepted.
    """
    store = new_ledger(tmp_path)
    for value in (10.0, 10.9, 9.5, 10.2, 9.8, 10.6, 9.4):
        night(store, a=result(healthy(value)))
    assert not store.all("SELECT id FROM bug")
    for place in range(20):  # which phase has grown most is not what it is called by
        night(
            store,
            a=result(healthy(16.0, lowering=9.0 + place % 2, codegen=10.5 if place == 7 else 7.0)),
        )
    (bug,) = night_report.make_report(store)["groups"]["open"]
    assert bug["title"] == "compile-time-regression: a environment=here"
    assert bug["cause"].startswith("16.0 CPU-seconds, usually 10.0 CPU-seconds (median of 7 nights")
    assert bug["hits"] == 20
    bugs.mute_bug(store, bug["id"], "the price of a better kernel")
    for _ in range(8):
        night(store, a=result(healthy(16.1)))
    night(store, a=result(healthy(30.0)))  # 16 is the usual now, and 30 is slower than that
    assert (
        store.all("SELECT count(*) AS n FROM sighting WHERE night = (SELECT max(id) FROM night)")[
            0
        ]["n"]
        == 1
    )


def test_of_several_runs_of_a_night_the_least_counts(tmp_path: Path) -> None:
    """A run that something else on the machine disturbed is run again by the job, and then it is no
    regression.
    """
    store = new_ledger(tmp_path)
    for _ in range(6):
        night(store, a=result(healthy(10.0)))
    night(store, a=result(healthy(25.0), healthy(10.1)))
    assert not store.all("SELECT id FROM bug")


def test_more_memory_is_a_bug_of_its_own(tmp_path: Path) -> None:
    """Memory is tracked beside time."""
    store = new_ledger(tmp_path)
    for _ in range(6):
        night(store, a=result(healthy(10.0, 1e9)))
    night(store, a=result(healthy(10.0, 2e9)))
    (bug,) = night_report.make_report(store)["groups"]["new"]
    assert bug["kind"] == "memory-regression"


def test_a_result_counts_once(tmp_path: Path) -> None:
    """A night that is started again takes in what it finds, and finds it again and again."""
    store = new_ledger(tmp_path)
    number = night(store, a=result(failing("lost")))
    before = [*exchange.export_ledger(store)]
    assert not add_result.add_result(store, number, 1, result(failing("lost")))
    assert [*exchange.export_ledger(store)] == before


def test_the_order_of_nights_is_no_clocks_business(tmp_path: Path) -> None:
    """A clock that was put back by a year changes no status."""
    store = new_ledger(tmp_path)
    for place, told in enumerate([failing("lost"), healthy(), healthy(), healthy()]):
        number = ledger_file.begin_night(
            store, f"uid {place}", f"n{place}", "main", 1, 2e9 - 4e7 * place
        )
        with store.change():
            cell = ledger_file.cell_id(store, "a", "a", {}, [])
        add_result.add_result(store, number, cell, result(told))
        bugs.close_night(store, number, "done")
    assert status(store, "lost") == "fixed"
    assert night_report.make_report(store)["night"]["name"] == "n3"


choices = st.lists(
    st.lists(st.sampled_from([None, "ok", "x", "y", "flaky", "xy"]), min_size=3, max_size=3),
    min_size=1,
    max_size=12,
)


def _told(choice: str) -> dict[str, Any]:
    runs = {
        "ok": [healthy()],
        "x": [failing("x")],
        "y": [failing("y")],
        "flaky": [failing("x"), healthy()],
    }
    return result(*(runs.get(choice) or [failing("x"), failing("y"), healthy()]))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(choices)
def test_sums_follow_from_what_was_seen(
    tmp_path_factory: pytest.TempPathFactory, plan: list[list[str | None]]
) -> None:
    """Whatever the nights were, sums made again equal those that were kept up, and an export taken
    in gives the same.
    """
    store = new_ledger(tmp_path_factory.mktemp("ledger"))
    for row in plan:
        night(
            store, **{f"c{i}": _told(choice) for i, choice in enumerate(row) if choice is not None}
        )

    def sums(of: database.Ledger) -> list[Any]:
        found = [
            [tuple(r) for r in of.all(f"SELECT * FROM {table} ORDER BY 1, 2")]
            for table in database.SUMS
        ]
        # what is not seen since a bug came back is not counted yet
        found[0] = [r for r in found[0] if r[2]]
        return [
            *found,
            [tuple(r) for r in of.all("SELECT id, status, reason, changed FROM bug ORDER BY id")],
        ]

    kept = sums(store)
    with store.change():
        exchange.make_sums(store)
    assert sums(store) == kept
    other = new_ledger(tmp_path_factory.mktemp("other"))
    lines = [json.dumps(row) for row in exchange.export_ledger(store)]
    exchange.import_rows(other, lines)
    assert sums(other) == kept
    assert not exchange.import_rows(other, lines)
    assert [*exchange.export_ledger(other)] == [*exchange.export_ledger(store)]


def test_an_export_shows_no_secret(tmp_path: Path) -> None:
    """Titles, reasons, targets and traits of an export are redacted, also where a ledger holds them
    as they were.
    """
    secret = "ghp_" + "aB3dE5gH7j" * 3 + "Kl9mN0"
    said = f"token={secret} of bob@corp.example.com"
    with new_ledger(tmp_path) as store:
        night(store, a=result(failing(said)), **{f"b {said}": result(failing("x"), problem=said)})
        exported = "\n".join(json.dumps(row) for row in exchange.export_ledger(store))
    assert "codegen" in exported and secret not in exported and "bob@corp" not in exported


def test_import_refuses_what_is_no_export(tmp_path: Path) -> None:
    """A file that does not begin as an export is refused whole; of an export, lines that are none
    are, and said.
    """
    store = new_ledger(tmp_path)
    night(store, a=result(failing("lost")))
    lines = [json.dumps(row) for row in exchange.export_ledger(store)]
    other = new_ledger(tmp_path / "other")
    for broken in (
        ["[]"],
        [lines[1]],
        ["", lines[1]],
        ["{"],
        ['{"type": "ledger", "schema": 2}'],
        ["[" * 100_000],
    ):
        with pytest.raises(BadInput, match=r"line \d+ is no line of an export"):
            exchange.import_rows(other, broken)
        assert not other.all("SELECT id FROM night")
    for number, bad in enumerate(
        ("{", '{"type": "sighting"}', '{"type": "x"}', '{"type": []}', "[" * 100_000, b"\xff")
    ):
        exchange.import_rows(other, [*lines, bad])
        assert (
            len(other.refused) == number + 1
            and f"1 line of the import (line {len(lines) + 1}: " in other.refused[-1]
        )
        assert len(other.refused[-1]) < 600
    assert [*exchange.export_ledger(other)] == [*exchange.export_ledger(store)]


def test_bad_ledgers_are_refused_and_left_alone(tmp_path: Path) -> None:
    """Damaged, foreign and newer files get one line each, and are not touched."""
    place = tmp_path / "ledger.sqlite"
    with new_ledger(tmp_path) as store:
        for i in range(30):
            night(store, **{f"c{j}": result(failing(f"b{i}{j}")) for j in range(5)})
        store.back_up()
    whole = place.read_bytes()

    def refused(data: bytes, words: str) -> None:
        place.write_bytes(data)
        with pytest.raises(BadInput, match=words) as told:
            ledger_file.open_ledger(place, is_checked=True)
        assert "\n" not in str(told.value)
        assert place.read_bytes() == data

    refused(
        b"no database at all" * 100, "cannot be read .* put .*ledger.backup.sqlite in its place"
    )
    refused(whole[: len(whole) // 2], "cannot be read")
    refused(whole[:40_000] + b"\xff" * 8_000 + whole[48_000:], "cannot be read")
    place.write_bytes(b"")
    place.unlink()
    with sqlite3.connect(place) as other:
        other.execute("CREATE TABLE t(x)")
    refused(place.read_bytes(), "no ledger of reprokit")
    place.write_bytes(whole)
    with sqlite3.connect(place) as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    refused(place.read_bytes(), "written by a newer reprokit .schema 99")
    with ledger_file.open_ledger(database.backup_of(place), is_checked=True) as kept:
        assert len(kept.all("SELECT id FROM bug")) == 150


def test_two_writers_wait_for_each_other(tmp_path: Path) -> None:
    """Somebody mutes bugs while a night takes results in: both are there in the end."""
    store = new_ledger(tmp_path)
    night(store, **{f"c{i}": result(failing(f"b{i}")) for i in range(20)})

    def mute_all() -> None:
        with ledger_file.open_ledger(store.path) as other:
            for bug in range(1, 21):
                bugs.mute_bug(other, bug, "known")

    person = threading.Thread(target=mute_all)
    person.start()
    for _ in range(5):
        night(store, **{f"c{i}": result(failing(f"b{i}")) for i in range(20)})
    person.join()
    night(store, **{f"c{i}": result(failing(f"b{i}")) for i in range(20)})
    assert {r["status"] for r in store.all("SELECT status FROM bug")} == {"muted"}
    assert store.all("SELECT count(*) AS n FROM sighting")[0]["n"] == 140


def test_killed_in_the_middle_of_a_change(tmp_path: Path) -> None:
    """SIGKILL while results are taken in leaves whole results only; the rest is taken in
    afterwards.
    """
    code = f"""
import os, signal, threading
from pathlib import Path
from tests.host.triage.nights import *
store = new_ledger(Path({str(tmp_path)!r}))
threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
while True:
    night(store, **{{f"c{{i}}": result(failing(f"b{{i}}"), healthy()) for i in range(50)}})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == -9
    store = ledger_file.open_ledger(tmp_path / "ledger.sqlite", is_checked=True)
    torn = store.all(
        "SELECT 1 FROM run WHERE NOT EXISTS(SELECT 1 FROM sighting s WHERE s.night = run.night AND"
        " s.cell = run.cell)"
    )
    assert not torn
    for table in ("place", "tally", "version"):
        sums = store.all(f"SELECT sum(hits) AS n FROM {table}")[0]["n"]
        assert sums == store.all("SELECT sum(k) AS n FROM sighting")[0]["n"]
