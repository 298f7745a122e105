"""Nightly runs as a user starts them: real captures, killed in the middle, on full disks, twice at
once.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.nightly import night_report_files
from reprokit.host.nightly.ledger import ledger_file
from reprokit.host.nightly.schedule import night as nights_of
from reprokit.host.nightly.suite import suite_file
from reprokit.host.pack import reader
from tests.support.browser import Browser
from tests.support.environments import clean_environ
from tests.support.nightly_results import (
    add_night,
    bug_status,
    cell_result,
    failing,
    healthy,
    new_ledger,
)
from tests.support.processes import survivors_after_wait, wait_until
from tests.support.reprokit_calls import CallResult, reprokit, reprokit_command, shared_call

from .test_minimize import SMALL

MARKED = """
import os, pathlib, sys, time
name, seconds = sys.argv[1], float(sys.argv[2])
with open(pathlib.Path(os.environ["MARKS"]) / name, "a") as file:
    file.write("run\\n")
time.sleep(seconds)
"""


def marked(folder: Path, *jobs: tuple[str, float], head: str = "") -> Path:
    """Write a suite of commands that record when they ran, and sleep."""
    (folder / "mark.py").write_text(MARKED)
    (folder / "marks").mkdir(exist_ok=True)
    rows = [
        f'[[targets]]\ncommand = ["{{python}}", "mark.py", "{name}", "{s}"]\n' for name, s in jobs
    ]
    path = folder / "suite.toml"
    path.write_text(f'{head}\n[suite]\nname = "t"\nretries = 0\n' + "\n".join(rows))
    return path


def marks(folder: Path) -> dict[str, int]:
    return {p.name: p.read_text().count("run") for p in sorted((folder / "marks").iterdir())}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> CallResult:
    """Run a suite with a bug in two cells, a healthy command, and an environment that does not
    exist.
    """

    def make(folder: Path) -> CallResult:
        (folder / "erf.py").write_text(SMALL)
        (folder / "suite.toml").write_text("""
[suite]
name = "small"
retries = 0
budget_s = 90
[environments.here]
python = "python"
[environments.gone]
python = "/nowhere/python"
[[targets]]
target = "erf.py:make"
matrix = { dynamic = [false, "default"], environment = ["here"] }
[[targets]]
command = ["{python}", "-c", "print('healthy')"]
matrix = { environment = ["here", "gone"] }
""")
        # The jobs would be refused if they read this file or this variable.
        (folder / "reprokit.toml").write_text("[capture]\nlayers = 0\n[minimize]\nproofs = 0\n")
        path = f"{Path(reprokit_command()[0]).parent}:{os.environ['PATH']}"
        done = reprokit(
            "nightly",
            "run",
            "suite.toml",
            "--json",
            "--cores",
            "1",
            cwd=folder,
            env=clean_environ(PATH=path, REPROKIT_CAPTURE_BATCH_SIZE="0"),
        )
        return CallResult(done.status, done.out, str(folder))

    return shared_call(tmp_path_factory, "night", make)


reads_the_night = pytest.mark.real(
    "the first of these tests makes the nightly run, with captures, a reduction and a proof"
)


def place_of(night: CallResult) -> Path:
    return Path(night.err)


@reads_the_night
def test_the_options_of_the_user_are_not_for_the_jobs_of_a_nightly_run(night: CallResult) -> None:
    """A capture in the folder of the suite is refused, by its reprokit.toml and by a variable; the
    jobs of the nightly run there were not.
    """
    folder = place_of(night)
    for variables in ({}, {"REPROKIT_CAPTURE_LAYERS": "1", "REPROKIT_CAPTURE_BATCH_SIZE": "0"}):
        done = reprokit("capture", "erf.py:make", cwd=folder, env=clean_environ(**variables))
        assert done.status == 2 and "is not a whole number of at least 1" in done.err
    assert night.json["groups"]["new"][0]["repro_lines"]


@reads_the_night
def test_a_nightly_run_reports_new_bugs(night: CallResult) -> None:
    """One bug in two cells, with a proved repro and a pack; the missing environment makes the
    nightly run fail.
    """
    report = night.json
    assert night.status == 3
    (bug,) = report["groups"]["new"]
    assert bug["title"].startswith(
        "exception: backend | NotImplementedError: erf is too hard @ <user>:erf.picky"
    )
    assert (bug["tonight"], bug["hits"], bug["is_news"]) == (2, 2, True)
    assert bug["decision"] == "nothing to file: the failure is in your own code"
    assert "torch.compile(repro" in bug["repro"] and bug["repro_lines"] < 20, bug["repro"]
    assert (
        reader.read_pack(place_of(night) / "reprokit-nightly" / bug["pack"]).read_json(
            "verdict.json"
        )["kind"]
        == "exception"
    )
    assert report["healthy"] == 1
    (lost,) = report["lost"]
    assert "environment gone: python /nowhere/python: there is no such program" in lost["why"]
    # jobs run one at a time, so the second cell of the same bug already knew the repro
    jobs = sorted((place_of(night) / "reprokit-nightly" / "nights").glob("*/jobs/*erf*"))
    assert [(j / "minimized.json").exists() for j in jobs].count(True) == 1


@reads_the_night
def test_the_report_is_repeated_and_bugs_are_merged_and_muted(night: CallResult) -> None:
    """report, mute, split, merge, export, import and prune, as text and as JSON."""
    where = place_of(night)
    shown = reprokit("nightly", "report", cwd=where)
    assert shown.status == 3
    assert re.search(r"New\n  bug 1  exception: backend \| NotImplementedError", shown.out)
    assert "environment gone" in shown.out and "repro of" in shown.out
    digest = (where / "reprokit-nightly" / "digest.md").read_text()
    assert "### New (1)" in digest and "```python" in digest and "### Lost (1)" not in digest
    assert str(where) not in digest
    muted = reprokit("nightly", "mute", "1", "--why", "known", "--json", cwd=where)
    assert muted.json == {"schema": 1, "bug": 1, "is_muted": True}
    assert (
        "muted"
        in reprokit("nightly", "report", "--json", cwd=where).json["groups"]["muted"][0]["status"]
    )
    assert reprokit("nightly", "mute", "1", "--off", cwd=where).out == "bug 1 is no longer muted\n"
    refused = reprokit("nightly", "split", "1", "2", cwd=where)
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert reprokit("nightly", "merge", "1", "1", cwd=where).status == 2
    exported = reprokit("nightly", "export", cwd=where).out
    assert json.loads(exported.splitlines()[0]) == {"type": "ledger", "schema": 1}
    (where / "ledger.jsonl").write_text(exported)
    team = reprokit("nightly", "export", "--catalogue", "team", "--json", cwd=where)
    assert team.json["issues"][0] == "ledger#1"
    known = reprokit("known", "--catalogue", "team", "--json", "ledger#1", cwd=where).json
    assert known["matches"][0]["origin"] == "team" and known["matches"][0]["url"] == ""
    taken = reprokit(
        "nightly", "import", "ledger.jsonl", "--ledger", "other.sqlite", "--json", cwd=where
    )
    assert taken.json["added"]["sighting"] == 2
    again = reprokit("nightly", "import", "ledger.jsonl", "--ledger", "other.sqlite", cwd=where)
    assert again.out == "imported: nothing new\n"
    assert (
        reprokit("nightly", "prune", "suite.toml", "--dry-run", "--json", cwd=where).json["folders"]
        == 0
    )


@reads_the_night
def test_the_page_in_a_browser(night: CallResult, browser: Browser) -> None:
    """A real Chromium opens the page from a file, without a network: search and filters hide the
    bugs that do not match, and the table of all runs leads to the report of a run.
    """
    where = place_of(night)
    reprokit("nightly", "report", cwd=where)
    found = "document.getElementById('found').textContent"
    with browser.open_tab() as tab:
        tab.open_page(where / "reprokit-nightly" / "report.html")
        assert tab.evaluate(found) == "1 bug"
        for words, count in (("notimplemented erf.py", "1 bug"), ("nonsense", "0 of 1 bug")):
            tab.type_text("#words", words)
            assert tab.evaluate(found) == count
        links = tab.evaluate("[...document.querySelectorAll('.report')].map(a => a.textContent)")
        # a run that imports no torch leaves no report
        assert links == ["E", "E"]
        assert tab.problems == []
        tab.click(".kind-exception .report")
        headline = "document.querySelector('h1') && document.querySelector('h1').textContent"
        assert wait_until(lambda: "NotImplementedError" in (tab.evaluate(headline) or ""), 30)
        assert tab.problems == []


@contextlib.contextmanager
def started(folder: Path, *more: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = clean_environ(MARKS=str(folder / "marks"), **variables)
    command = [*reprokit_command("nightly", "run", "suite.toml"), *more]
    child = subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.real
def test_targets_that_are_no_bugs_are_named_with_the_reason(tmp_path: Path) -> None:
    """A factory that returns 42 is a job without a result. A model that fails in eager is no bug."""
    (tmp_path / "targets.py").write_text(
        "import torch\ndef number():\n    return 42\ndef eager_fails():\n"
        "    return (lambda x: x @ torch.ones(5, 5)), (torch.zeros(3, 3),)\n"
    )
    (tmp_path / "suite.toml").write_text(
        '[suite]\nname = "t"\nretries = 1\nbudget_s = 60\n[[targets]]\ntarget ='
        ' "targets.py:number"\n[[targets]]\ntarget = "targets.py:eager_fails"\n'
    )
    done = reprokit("nightly", "run", tmp_path / "suite.toml", "--json", cwd=tmp_path)
    report = done.json
    assert done.status == 3, done.err
    assert not any(report["groups"].values()) and not report["refused"]["count"]
    (lost,), (eager,) = report["lost"], report["in_eager"]
    assert lost["target"] == "targets.py:number" and "int" in lost["why"], lost
    assert eager["target"] == "targets.py:eager_fails" and "without torch.compile" in eager["why"]


@pytest.mark.real
def test_a_killed_nightly_run_is_continued(tmp_path: Path) -> None:
    """SIGKILL ends all that runs; the next start runs the remaining jobs and no finished one."""
    folder, mark = tmp_path, uuid.uuid4().hex
    marked(folder, ("a", 0), ("b", 0), ("c", 300), ("d", 0))
    with started(folder, "--cores", "1", NIGHT_MARK=mark) as child:
        assert wait_until(lambda: "c" in marks(folder))
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert survivors_after_wait(mark) == []
    assert marks(folder) == {"a": 1, "b": 1, "c": 1}
    (folder / "mark.py").write_text(MARKED.replace("time.sleep(seconds)", ""))
    done = reprokit(
        "nightly",
        "run",
        "suite.toml",
        "--json",
        cwd=folder,
        env=clean_environ(MARKS=str(folder / "marks")),
    )
    assert (done.status, done.json["night"]["runs"]) == (0, 4)
    assert marks(folder) == {"a": 1, "b": 1, "c": 2, "d": 1}  # c was cut short
    assert len([*(folder / "reprokit-nightly" / "nights").iterdir()]) == 1


@pytest.mark.real
def test_an_interrupted_nightly_run_is_continued(tmp_path: Path) -> None:
    """Ctrl-C ends what runs, exits with 130, and leaves a report of the finished jobs."""
    folder, mark = tmp_path, uuid.uuid4().hex
    marked(folder, ("a", 0), ("b", 300))
    with started(folder, "--cores", "1", "--json", NIGHT_MARK=mark) as child:
        assert wait_until(lambda: "b" in marks(folder))
        # SIGTERM is handled like Ctrl-C, which background processes may ignore
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=200)
        assert child.returncode == 130
        assert survivors_after_wait(mark) == []
    report = json.loads(out)
    assert report["is_interrupted"] and report["night"]["runs"] == 1
    assert (folder / "reprokit-nightly" / "report.html").exists()


@pytest.mark.real
def test_two_nightly_runs_at_once(tmp_path: Path) -> None:
    """The second run gets one line and exit code 2; meanwhile a report can read the ledger."""
    marked(tmp_path, ("a", 300))
    with started(tmp_path):
        assert wait_until(lambda: marks(tmp_path))
        second = reprokit("nightly", "run", "suite.toml", cwd=tmp_path)
        assert second.status == 2
        assert re.fullmatch(
            r"reprokit: .+ is in use by process \d+ on \S+; wait for it, or .*\n", second.err
        )
        report = reprokit("nightly", "report", "--json", cwd=tmp_path)
        assert report.json["lost"][0]["why"] == "not run yet"


@pytest.mark.real
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """On a full disk the nightly run stops with one line; when there is space, it continues at the
    same point.
    """
    disk = tmp_path / "small"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a tmpfs here")
    try:
        marked(tmp_path, ("a", 0), ("b", 0))
        environ = clean_environ(MARKS=str(tmp_path / "marks"))
        words = (
            "nightly",
            "run",
            "suite.toml",
            "--output-dir",
            "small/out",
            "--ledger",
            "ledger.sqlite",
            "--json",
        )
        (disk / "ballast").write_bytes(b"x" * (shutil.disk_usage(disk).free - 60_000))
        first = reprokit(*words, cwd=tmp_path, env=environ)
        assert first.status == 3 or (first.status == 2 and "No space left" in first.err), first.err
        assert "Traceback" not in first.err and "defect" not in first.err
        (disk / "ballast").unlink()
        second = reprokit(*words, cwd=tmp_path, env=environ)
        second_report = second.json
        assert second_report["night"]["runs"] == 2, second.out
        assert set(marks(tmp_path)) == {"a", "b"}
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


@pytest.mark.real
def test_a_damaged_ledger_is_rebuilt(tmp_path: Path) -> None:
    """A ledger that cannot be read stops the nightly run with one line; after it is moved away, the
    results in the folders are imported.
    """
    marked(tmp_path, ("a", 0))
    environ = clean_environ(MARKS=str(tmp_path / "marks"))
    assert reprokit("nightly", "run", "suite.toml", cwd=tmp_path, env=environ).status == 0
    path = tmp_path / "reprokit-nightly" / "ledger.sqlite"
    path.write_bytes(b"junk" * 4000)
    refused = reprokit("nightly", "run", "suite.toml", cwd=tmp_path, env=environ)
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "copy" in refused.err and "ledger.backup.sqlite" in refused.err
    assert marks(tmp_path) == {"a": 1}
    for leftover in path.parent.glob("ledger.sqlite*"):
        leftover.unlink()
    again = reprokit("nightly", "run", "suite.toml", "--json", cwd=tmp_path, env=environ)
    assert again.status == 0
    with ledger_file.open_ledger(path) as store:
        assert [r["state"] for r in store.fetch_all("SELECT state FROM night")] == ["done", "done"]
        assert [r["kind"] for r in store.fetch_all("SELECT kind FROM run")] == ["ok", "ok"]
    assert marks(tmp_path) == {"a": 2}


def test_a_history_is_rebuilt_from_folders(tmp_path: Path) -> None:
    """Twelve nightly runs of one day have numbers, not only names: a bug that was fixed and is seen
    again has regressed.
    """
    suite = suite_file.read_suite(marked(tmp_path, ("a", 0)))
    attempts = [failing("lost"), *[healthy()] * 10, failing("lost")]

    def run(
        output: Path, ledger_path: Path, results: list[dict[str, Any]]
    ) -> list[tuple[str, str]]:
        with ledger_file.open_ledger(ledger_path, is_new_ok=True) as store:
            for one in results:
                work = nights_of.begin_jobs(
                    suite, suite.cells, {"default": "python"}, {}, output, store, print
                )
                key = work.jobs[0].folder / "spec.json"
                whole = {
                    **cell_result(one),
                    "key": json.loads(key.read_text())["key"],
                    "minimized": None,
                }
                (work.jobs[0].folder / "result.json").write_text(json.dumps(whole))
                nights_of.collect_results(work)
                nights_of.end_night(work, is_complete=True)
            return [
                tuple(r)
                for r in store.fetch_all(
                    "SELECT status, what FROM bug JOIN event ON bug = bug.id ORDER BY event.id"
                )
            ]

    with nights_of.lock_output(tmp_path / "out") as output:
        first = run(output, tmp_path / "one.sqlite", attempts)
        assert [what for _, what in first] == ["new", "open", "fixed", "regressed"]
        with ledger_file.open_ledger(tmp_path / "two.sqlite", is_new_ok=True) as store:
            nights_of.begin_jobs(
                suite, suite.cells, {"default": "python"}, {}, output, store, print
            )
            again = [
                tuple(r)
                for r in store.fetch_all(
                    "SELECT status, what FROM bug JOIN event ON bug = bug.id ORDER BY event.id"
                )
            ]
    assert again == first
    with nights_of.lock_output(
        tmp_path / "other"
    ) as output:  # a nightly run of the same day in a different folder is a different run
        assert run(output, tmp_path / "one.sqlite", [healthy()])[-1][1] == "open"
    with ledger_file.open_ledger(tmp_path / "one.sqlite") as store:
        assert store.fetch_all("SELECT count(*) AS n FROM night")[0]["n"] == 13


LACKS = """
import sys
print("cannot show the failure: it needs AVX-512", file=sys.stderr)
sys.exit(77)
"""


def test_a_machine_that_cannot_show_a_bug_does_not_fix_it(tmp_path: Path, write: Any) -> None:
    """Runs that say what the machine lacks are unknown, and unknown runs fix nothing."""
    suite = tmp_path / "suite.toml"
    script = write("lacks.py", LACKS)
    suite.write_text(
        f"""[suite]\nname = "lacks"\nretries = 0\n[[targets]]\ncommand = ["{{python}}", "{script}"]"""
    )
    ledger = tmp_path / "ledger.sqlite"
    done = reprokit(
        "nightly", "run", suite, "--ledger", ledger, "--output-dir", tmp_path / "out", "--json"
    )
    (result,) = (json.loads(p.read_text()) for p in (tmp_path / "out").rglob("result.json"))
    (lacking,) = result["attempts"]
    assert lacking["verdict"]["kind"] == "unknown", done.out
    assert "it needs AVX-512" in lacking["verdict"]["reason"]
    with new_ledger(tmp_path / "other") as store:
        add_night(store, t=cell_result(failing("lost")))
        for _ in range(12):
            add_night(store, t=cell_result(lacking))
        assert bug_status(store, "lost") == "open"
        for _ in range(12):
            add_night(store, t=cell_result(healthy()))
        assert bug_status(store, "lost") == "fixed"


GARBAGE = """
import json, os, pathlib, shutil, time
run = pathlib.Path(os.environ["REPROKIT_RUN_DIR"])
for name in ("run.json", "journal/1.jsonl", "result.json", "../result.json", "../attempt-1.json"):
    with open(run / name, "w") as file:
        file.write('{"attempts": [{"verdict": 3}], "key": [' * 3)
(run / "journal" / "2.jsonl").write_bytes(os.urandom(10_000))
shutil.rmtree(run / "stacks", ignore_errors=True)
print("\\x1b[2J" + "garbage" * 10_000)
forged = {"schema": 1, "key": json.loads((run.parent / "spec.json").read_text())["key"], "expect": ["ok"], "problem": "",
          "seconds": 1.0, "minimized": None, "folder": "/", "attempts": [{"verdict": {"kind": "exception"}, "signature":
          {"id": "f" * 12, "title": "exception: forged", "algorithm": 1}, "traits": {}, "phases": {}}]}
(run.parent / "result.json").write_text(json.dumps(forged))
time.sleep(2)
(run.parent / "result.json").write_text('{"schema": 1, "attempts": [{"verdict": 3}]}')
"""


LIAR = """
import json, os, pathlib
mine = pathlib.Path(os.environ["REPROKIT_RUN_DIR"]).parent
for job in sorted(p for p in mine.parent.iterdir() if p != mine and not (p / "job.log").exists()):
    key = json.loads((job / "spec.json").read_text())["key"]
    result = {"schema": 1, "key": key, "expect": ["ok"], "problem": "", "seconds": 2**70, "attempts": []}
    (job / "result.json").write_text(json.dumps(result))
    (job / "attempt-1.json").mkdir()
    os.mkfifo(job / "attempt-1.log")
(mine / "result.json").mkdir()
(mine.parents[3] / "digest.md").mkdir()
"""


@pytest.mark.real
def test_a_target_that_forges_results_of_others(tmp_path: Path) -> None:
    """Results, folders and pipes that a job leaves for later jobs are moved away and reported; all
    jobs run, now and in the next nightly run.
    """
    suite_path = marked(tmp_path, ("a", 0), ("b", 0))
    (tmp_path / "liar.py").write_text(LIAR)
    first, *others = suite_path.read_text().partition("[[targets]]")
    suite_path.write_text(
        f'{first}[[targets]]\ncommand = ["{{python}}", "liar.py"]\n{"".join(others)}'
    )
    words = ("nightly", "run", "suite.toml", "--cores", "1")
    for number in (1, 2):
        done = reprokit(*words, cwd=tmp_path, env=clean_environ(MARKS=str(tmp_path / "marks")))
        assert done.status == 0, done.err
        assert marks(tmp_path) == {"a": number, "b": number}
        report = reprokit("nightly", "report", "--json", cwd=tmp_path).json
        assert (report["night"]["runs"], report["healthy"]) == (3, 3)
        # the next nightly run starts with the longest job, which may be a different one
        if number == 1:
            assert report["refused"]["count"] == done.err.count("refused ") == 4, done.err
            assert "Refused, in quarantine (4)" in done.out
        assert (tmp_path / "reprokit-nightly" / "digest.md").is_file()
        (tmp_path / "reprokit-nightly" / "digest.md").unlink()
    assert len([*(tmp_path / "reprokit-nightly" / "quarantine").glob("*-result.json")]) >= 2


@pytest.mark.real
def test_a_target_that_leaves_garbage(tmp_path: Path) -> None:
    """A file that the target wrote in the position of a result is not a result; the nightly run
    ends, and the other results are unchanged.
    """
    suite_path = marked(tmp_path, ("a", 0))
    (tmp_path / "garbage.py").write_text(GARBAGE)
    with suite_path.open("a") as file:
        file.write('[[targets]]\ncommand = ["{python}", "garbage.py"]\n')
    done = reprokit(
        "nightly",
        "run",
        "suite.toml",
        "--json",
        cwd=tmp_path,
        env=clean_environ(MARKS=str(tmp_path / "marks")),
    )
    assert done.status in (0, 3), done.err
    assert done.json["night"]["runs"] == 2
    assert not done.json["groups"]["new"]
    assert marks(tmp_path) == {"a": 1}


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
open(os.path.join(os.environ["MARKS"], "daemon"), "w").close()
time.sleep(600)
"""


@pytest.mark.real
def test_an_interrupt_leaves_no_daemon(tmp_path: Path) -> None:
    """After Ctrl-C, processes that left the target's session have exited too."""
    mark = uuid.uuid4().hex
    suite_path = marked(tmp_path, ("a", 0))
    (tmp_path / "daemon.py").write_text(DAEMON)
    suite_path.write_text(
        '[suite]\nretries = 0\n[[targets]]\ncommand = ["{python}", "daemon.py"]\n'
    )
    with started(tmp_path, NIGHT_MARK=mark) as child:
        assert wait_until(lambda: "daemon" in marks(tmp_path))
        # SIGTERM is handled like Ctrl-C, which background processes may ignore
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=200)
        assert survivors_after_wait(mark) == []


def test_nothing_is_pruned_of_open_bugs(tmp_path: Path) -> None:
    """Run directories are deleted by the suite's policy; packs only if their bug was fixed long
    ago.
    """
    from reprokit.host.nightly.ledger import prune

    suite = suite_file.read_suite(
        marked(tmp_path, ("a", 0), head="[keep]\nnights = 3\nhealthy_nights = 1\nfixed_nights = 4")
    )
    store = new_ledger(tmp_path)
    packs = []

    def run(number: int, *attempts: dict[str, Any]) -> dict[str, Any]:
        folder = tmp_path / "nights" / f"2026-11-{number + 1:03d}" / "jobs" / "a"
        (folder / "run-001").mkdir(parents=True)
        (folder / "spec.json").write_text("{}")
        packs.append(folder / f"reprokit-{number}.tar.gz")
        packs[-1].write_bytes(b"pack")
        return cell_result(*[{**a, "pack": str(packs[-1])} for a in attempts], folder=str(folder))

    def here() -> tuple[list[int], list[int]]:
        prune.prune_output(store, suite, tmp_path)
        folders = [i for i, p in enumerate(packs) if (p.parent / "run-001").exists()]
        return folders, [i for i, p in enumerate(packs) if p.exists()]

    for number in range(6):
        add_night(store, main=run(number, failing("lost")))
    store.execute("UPDATE night SET suite = 't'")
    assert here() == ([3, 4, 5], [0, 1, 2, 3, 4, 5])
    for number in range(6, 13):
        add_night(store, main=run(number, healthy()))
        store.execute("UPDATE night SET suite = 't'")
        counts = here()
        if number < 11:
            assert set(range(6)) <= set(counts[1])  # fixed after three nightly runs, and four more
    assert counts == ([12], [12])


def test_nothing_in_a_report_is_markup(tmp_path: Path) -> None:
    """Text that a target can choose (its version, its command, its repro) is neither HTML,
    Markdown, a mention nor a link.
    """
    from reprokit.host.nightly import night_report

    store = new_ledger(tmp_path)
    bad = "</pre><script>x</script> ![i](http://evil/x.png) @everyone #1 `a` **b** www.evil.org"
    attempt = {**failing(bad), "torch": f"2.13\n\n# {bad}"}
    small = {
        "signature": attempt["signature"]["id"],
        "text": f"```\n{bad}\n```",
        "lines": 3,
        "pack": None,
    }
    add_night(store, a=cell_result(attempt, minimized=small))
    report = night_report.make_report(store)
    assert "<script>x" not in night_report_files.page_text(report)
    digest = night_report_files.digest_text(report)
    blocks = re.sub(r"(?ms)^ *(`{3,}).*?^ *\1$", "", digest)
    outside = re.sub(r"(?<!`)(`+)(?!`)[^\n]+?(?<!`)\1(?!`)", "", blocks)  # without code
    for word in (
        "@everyone",
        r"(?<!\\)!\[i",
        r"(?<!\\)<script",
        r"(?<!\\)\*\*b\*\*",
        "http://evil",
        r"www\.evil",
        "\n# ",
    ):
        assert not re.search(word, outside), word


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1, targets: there are no targets"),
        (
            "[suite]\nname = 3\n[[targets]]\ntarget = 'llama-tiny'",
            "line 2, suite.name: 3 is not a name",
        ),
        (
            "[suite]\ntimeout_s = -1\n[[targets]]\ntarget = 'llama-tiny'",
            "line 2, suite.timeout_s: -1 is not a number",
        ),
        (
            "[suite]\nstall_s = '5 minutes'\n[[targets]]\ntarget = 'llama-tiny'",
            "line 2, suite.stall_s: '5 minutes' is not .* nor a duration such as",
        ),
        (
            "[suite]\nretries = true\n[[targets]]\ntarget = 'llama-tiny'",
            "line 2, suite.retries: True is not",
        ),
        (
            "[matrix]\nmode = []\n[[targets]]\ntarget = 'llama-tiny'",
            "line 2, matrix.mode: an empty list",
        ),
        (
            "[matrix]\nmodes = ['x']\n[[targets]]\ntarget = 'llama-tiny'",
            "line 2, matrix.modes: .* did you mean mode",
        ),
        ("[matrix]\ngpu = ['h999']\n[[targets]]\ntarget = 'llama-tiny'", "line 2, matrix.gpu: "),
        (
            "[matrix]\ndynamic = ['no']\n[[targets]]\ntarget = 'llama-tiny'",
            "line 2, matrix.dynamic: 'no' is neither",
        ),
        (
            "[matrix]\nenvironment = ['x']\n[[targets]]\ntarget = 'llama-tiny'",
            "line 2, matrix.environment: there is no",
        ),
        (
            "[environments.x]\n\n[[targets]]\ntarget = 'llama-tiny'",
            "line 1, environments.x: give it either python",
        ),
        (
            "[[targets]]\ntarget = 'llama-tiny'\n[[targets]]\ntarget = 'lama-tiny'",
            "line 4, targets.target: there is no model 'lama-tiny'; did you mean llama-tiny",
        ),
        ("[[targets]]\ntarget = 'nowhere.py:make'", "line 2, targets.target: there is no file"),
        ("[[targets]]\ntags = ['x']", "line 1, targets.target: give it either target"),
        (
            "[[targets]]\ntarget = 'llama-tiny'\nexpect = ['hangs']",
            "line 3, targets.expect: 'hangs' is not a verdict; did you mean hang",
        ),
        (
            "[[targets]]\ncommand = ['ls']\nmatrix = { mode = ['x'] }",
            "line 2, targets.command: mode shapes a model",
        ),
        (
            "[[targets]]\ntarget = 'llama-tiny'\n[[targets]]\ntarget = 'llama-tiny'",
            "line 4, targets.target: .*run twice",
        ),
        (
            "[[targets]]\ntarget = 'llama-tiny'\ngpu = 1",
            "line 3, targets.gpu: there is no such key",
        ),
        ("[[targets]\ntarget = 'x'", "is not TOML: .*line 1"),
    ],
)
def test_errors_in_a_suite_name_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    """One line names the file, the line and the key, and says what is wrong and what to do."""
    path = tmp_path / "suite.toml"
    path.write_text(text)
    with pytest.raises(suite_file.BadInput, match=words) as error:
        suite_file.read_suite(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.real
def test_init_writes_a_valid_suite(tmp_path: Path) -> None:
    """The suite that init writes is valid, and init does not overwrite a suite."""
    done = reprokit("nightly", "init", "--json", cwd=tmp_path)
    assert done.json["suite"] == "suite.toml"
    cells = suite_file.read_suite(tmp_path / "suite.toml").cells
    assert {c.target for c in cells} == {"llama-tiny", "hf:bert"}
    again = reprokit("nightly", "init", cwd=tmp_path)
    assert again.status == 2 and "exists already" in again.err
    assert reprokit("nightly", "run", "suite.toml", "--tag", "nope", cwd=tmp_path).status == 2
