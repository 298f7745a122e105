"""The page and the JUnit file of a nightly run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from reprokit.host.nightly import night_report, night_report_files
from reprokit.host.nightly.ledger import bugs
from reprokit.host.nightly.ledger.database import Ledger
from tests.host.test_report import (
    EVIL,
    check_page_is_accessible,
    check_page_is_safe,
)
from tests.support.browser import DESKTOP_WIDTH, PHONE_WIDTH, Browser
from tests.support.nightly_results import (
    add_night,
    attempt,
    cell_result,
    failing,
    healthy,
    new_ledger,
)
from tests.support.reprokit_calls import reprokit


def job(folder: Path, night: int, name: str, reports: int) -> str:
    """Make the folder of a job with a number of reports, and return its path."""
    jobs = folder / "nights" / f"2026-11-{night:03d}" / "jobs" / name
    for number in range(1, reports + 1):
        pack = jobs / f"run-{number:03d}" / "pack"
        pack.mkdir(parents=True)
        (pack / "report.html").write_text("a report")
    return str(jobs)


@pytest.fixture
def nights(tmp_path: Path) -> Ledger:
    """A ledger of three nightly runs: cells that fail, are healthy, are expected to fail, are lost
    or are new; the last run of ``late`` has two reports.
    """
    store = new_ledger(tmp_path)
    for night in (1, 2, 3):
        cells = {
            "good": cell_result(healthy(), folder=job(tmp_path, night, "good", 1)),
            "known": cell_result(failing("old", kind="wrong-result"), expect=("wrong-result",)),
            "lost": cell_result(healthy() if night < 3 else attempt("", ""), problem="node failed"),
            "quiet": cell_result(failing("muted", kind="hang")),
            "cured": cell_result(failing("was") if night < 3 else healthy(), expect=("exception",)),
        }
        if night == 3:
            bad = failing("KeyError 'buf1'"), failing("KeyError 'buf1'")
            cells["late"] = cell_result(*bad, folder=job(tmp_path, night, "late", 2))
        if night == 2:
            bugs.mute_bug(store, bugs.find_bug(store, "2"), "waiting for 2.14")
        add_night(store, **cells)
    return store


def test_every_run_is_in_the_table_and_links_to_its_reports(nights: Ledger, tmp_path: Path) -> None:
    """The table has a row for each cell and a column for each nightly run. A letter says the
    verdict, and links to the reports that exist; each run has a permalink.
    """
    report = night_report.make_report(nights, None, tmp_path)
    rows = {row["target"]: row for row in report["heat_map"]["rows"]}
    kinds = {name: [s and s["kind"] for s in row["states"]] for name, row in rows.items()}
    assert kinds == {
        "cured": ["exception", "exception", "ok"],
        "good": ["ok", "ok", "ok"],
        "known": ["wrong-result"] * 3,
        "late": [None, None, "exception"],
        "lost": ["ok", "ok", "lost"],
        "quiet": ["hang"] * 3,
    }
    assert [*rows][:4] == ["known", "late", "lost", "quiet"]
    reports = [f"nights/2026-11-003/jobs/late/run-00{number}/pack/report.html" for number in (1, 2)]
    state = rows["late"]["states"][-1]
    assert state is not None and state["reports"] == reports
    page = check_page_is_safe(night_report_files.page_text(report), "nightly")
    check_page_is_accessible(page)
    links = [(attrs["href"], text) for attrs, text in page.all("a")]
    assert (reports[0], "E") in links and (reports[1], "2") in links
    files = [href for href, _ in links if not href.startswith("#")]
    assert len(files) == 5 and all((tmp_path / file).is_file() for file in files)
    cell = rows["late"]["cell"]
    assert (f"#run-{cell}-3", "#") in links and (f"#cell-{cell}", "#") in links
    marks = {mark for _, mark in night_report_files.MARKS.values()}
    assert len(marks) == len(night_report_files.MARKS)
    legend = " ".join(text for attrs, text in page.all("li"))
    assert "Eexception" in legend and "Wwrong-result" in legend and "–lost" in legend


def test_a_report_outside_of_the_output_folder_is_not_linked(tmp_path: Path) -> None:
    """Neither the path in a result nor a link in the folder of a job leads out of the output
    folder.
    """
    store = new_ledger(tmp_path)
    outside = tmp_path / "outside"
    (outside / "pack").mkdir(parents=True)
    (outside / "pack" / "report.html").write_text("private")
    jobs = tmp_path / "out" / "nights" / "2026-11-001" / "jobs"
    for name in ("a", "b"):
        (jobs / name).mkdir(parents=True)
    (jobs / "a" / "run-001").symlink_to(outside)
    add_night(
        store,
        a=cell_result(failing("x"), folder=str(jobs / "a")),
        b=cell_result(failing("x"), folder=str(outside)),
        c=cell_result(failing("x"), folder=f"{jobs}/../../../../outside"),
    )
    report = night_report.make_report(store, None, tmp_path / "out")
    assert [s and s["reports"] for r in report["heat_map"]["rows"] for s in r["states"]] == [[]] * 3


def test_the_page_of_a_hostile_ledger_has_no_markup_of_it(tmp_path: Path) -> None:
    """Targets, titles, versions and problems of results are text, wherever the page shows them."""
    store = new_ledger(tmp_path)
    bad = {**failing(EVIL), "torch": EVIL[:90]}
    add_night(
        store,
        **{EVIL: cell_result(bad, problem=EVIL), "k": cell_result(attempt(EVIL, EVIL))},
    )
    page = check_page_is_safe(
        night_report_files.page_text(night_report.make_report(store)), "nightly"
    )
    assert "alert(1)" in page.all("body")[0][1]


def test_a_nightly_run_becomes_junit_xml(nights: Ledger, tmp_path: Path) -> None:
    """Each cell is a test case: unexpected failures fail with verdict and signature, lost cells are
    errors, muted bugs are skipped, expected failures pass, and a cell that should fail and does
    not is a failure.
    """
    nights.close()
    done = reprokit("nightly", "report", "--output-dir", tmp_path, "--junit", tmp_path / "n.xml")
    assert done.status == 3 and (tmp_path / "report.html").exists()
    root = ET.parse(tmp_path / "n.xml").getroot()
    (suite,) = root
    totals = {"tests": "6", "failures": "2", "errors": "1", "skipped": "1", "time": "12.000"}
    assert root.tag == "testsuites" and suite.attrib["name"] == "main"
    assert totals.items() <= root.attrib.items() and totals.items() <= suite.attrib.items()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    cases = {case.attrib["name"]: case for case in suite}
    assert sorted(cases) == ["cured", "good", "known", "late", "lost", "quiet"]
    assert all(case.attrib["classname"] == "main" for case in suite)
    assert [name for name, case in cases.items() if len(case)] == ["cured", "late", "lost", "quiet"]
    (failure,) = cases["late"]
    assert (failure.tag, failure.attrib["type"]) == ("failure", "exception")
    assert failure.attrib["message"] == "exception: codegen | KeyError 'buf1'"
    assert failure.text is not None and re.search(r"signature [0-9a-f]{12}, bug \d", failure.text)
    assert "in 2 of 2 runs" in failure.text
    assert [(row.tag, row.attrib["message"]) for row in (*cases["lost"], *cases["quiet"])] == [
        ("error", "node failed"),
        ("skipped", "muted: bug 2: waiting for 2.14"),
    ]
    assert cases["cured"][0].attrib["message"] == "healthy, though the suite expects a failure"


def test_junit_xml_is_valid_for_any_text(tmp_path: Path) -> None:
    """Characters that XML does not allow are replaced, and private text is hidden."""
    store = new_ledger(tmp_path)
    secret = "ghp_" + "a1B2" * 9
    add_night(store, **{"a\x01\ufffe<&": cell_result(failing(f"\x00\x1b[31m {secret} ]]>"))})
    store.close()
    words = ("nightly", "report", "--output-dir", tmp_path, "--json", "--junit", tmp_path / "n.xml")
    done = reprokit(*words)
    assert done.status == 1 and json.loads(done.out)["exit_code"] == 1
    text = (tmp_path / "n.xml").read_text()
    (case,) = ET.fromstring(text.encode()).iter("testcase")
    assert "<&" in case.attrib["name"] and secret not in text and secret not in done.out
    refused = reprokit(*words[:-1], tmp_path / "missing" / "n.xml")
    assert refused.status == 2 and refused.err.count("\n") == 1 and "n.xml" in refused.err
    assert refused.json["error"]["code"] == "bad-input"


def test_a_browser_shows_the_nightly_page(nights: Ledger, tmp_path: Path, browser: Browser) -> None:
    """In headless Chromium, the page fits a desktop and a phone, is dark where the user prefers
    that, loads nothing, filters its bugs, and opens the bug and the run of a permalink.
    """
    report = night_report.make_report(nights, None, tmp_path)
    night_report_files.write_report(report, tmp_path)
    page = tmp_path / "report.html"
    cell = next(r["cell"] for r in report["heat_map"]["rows"] if r["target"] == "late")
    with browser.open_tab() as tab:
        for width, dark in ((PHONE_WIDTH, False), (DESKTOP_WIDTH, True), (DESKTOP_WIDTH, False)):
            tab.open_page(page, width, dark)
            content, window = tab.page_width()
            assert content <= window == width and tab.problems == []
            assert len(tab.screenshot(tmp_path / f"{width}-{dark}.png")) > 20_000
        found = "document.getElementById('found').textContent"
        assert tab.evaluate(found) == "4 bugs"
        for words, count in (("keyerror late", "1 of 4 bugs"), ("no such word", "0 of 4 bugs")):
            tab.type_text("#words", words)
            tab.wait_for(found, count)
        tab.evaluate(f"location.hash = '#run-{cell}-3'")
        target = "document.querySelector(':target').textContent"
        assert tab.evaluate(target).startswith("E")
        tab.evaluate("location.hash = '#bug-2'")
        tab.wait_for("document.getElementById('bug-2').open", True)
        assert tab.problems == []
