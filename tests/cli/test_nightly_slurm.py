"""Nightly runs on a real Slurm: a controller and a node on this machine that lose jobs, preempt
them and disappear.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.nightly import night_report
from reprokit.host.nightly.engines import slurm_commands as commands
from reprokit.host.nightly.engines import slurm_engine as engine
from reprokit.host.nightly.ledger import ledger_file
from reprokit.host.nightly.schedule import night
from reprokit.host.nightly.suite import suite_file
from reprokit.host.system import interrupts
from tests.support.environments import clean_environ
from tests.support.processes import survivors_after_wait
from tests.support.reprokit_calls import reprokit, reprokit_command
from tests.support.slurm import Cluster, cluster, wait_for

from .test_nightly import marked, marks

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def slurm(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    with cluster(pytestconfig) as started:
        yield started


def run(slurm: Cluster, folder: Path, **variables: str) -> subprocess.Popen[bytes]:
    environ = clean_environ(MARKS=str(folder / "marks"), **slurm.environ, **variables)
    command = reprokit_command("nightly", "run", "suite.toml", "--engine", "slurm", "--json")
    return subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def quick(folder: Path) -> None:
    """Let the commands end at once from now on."""
    text = (folder / "mark.py").read_text()
    (folder / "mark.py").write_text(text.replace("time.sleep(seconds)", "pass"))


def hurry(slurm: Cluster) -> None:
    """Remove the delay of two minutes that Slurm has for a requeued job."""

    def waiting() -> list[str]:
        return [
            number
            for number in slurm.command("squeue", "-h", "-t", "PD", "-o", "%i").split()
            if number.isdigit()
        ]

    wait_for(waiting)
    for number in waiting():
        slurm.command("scontrol", "update", f"JobId={number}", "StartTime=now")


def test_a_nightly_run_as_arrays(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Targets with the same requirements become one array, one with a GPU a second array; a job
    that no node can run is lost and reported.
    """
    path = marked(tmp_path, ("a", 0), ("b", 0))
    with path.open("a") as file:
        file.write('gpus = 1\n[[targets]]\ncommand = ["{python}", "mark.py", "c", "0"]\n')
        file.write('[[targets]]\ncommand = ["{python}", "mark.py", "d", "0"]\ncores = 4000\n')
    suite = suite_file.read_suite(path)
    for name, value in {**slurm.environ, "MARKS": str(tmp_path / "marks")}.items():
        monkeypatch.setenv(name, value)
    with (
        ledger_file.open_ledger(tmp_path / "ledger.sqlite", is_new_ok=True) as store,
        night.lock_output(tmp_path / "out") as out,
    ):
        work = night.begin_jobs(
            suite, suite.cells, {"default": sys.executable}, {}, out, store, print
        )
        with interrupts.deferred():
            engine.run_on_slurm(work, lambda words: None, print, ask_s=0.5, grace_s=3)
        night.end_night(work, is_complete=True)
        report = night_report.make_report(store)
    assert (report["exit_code"], report["healthy"], report["night"]["runs"]) == (3, 3, 4)
    (lost,) = report["lost"]
    assert "PartitionConfig" in lost["why"]
    assert marks(tmp_path) == {"a": 1, "b": 1, "c": 1}
    rows = [
        json.loads(line)
        for line in next(tmp_path.glob("out/nights/*/slurm.jsonl")).read_text().splitlines()
    ]
    assert sorted(len(r["ids"]) for r in rows if "ids" in r) == [1, 1, 2]
    assert any("_" in number for r in rows for number in r.get("ids", ()))


def test_a_killed_runner_finds_its_jobs(slurm: Cluster, tmp_path: Path) -> None:
    """SIGKILL of the runner leaves the jobs on the cluster; the next start submits nothing
    twice.
    """
    marked(tmp_path, ("a", 6), ("b", 6))
    child = run(slurm, tmp_path)
    wait_for(lambda: marks(tmp_path))
    child.send_signal(signal.SIGKILL)
    child.communicate()
    again = run(slurm, tmp_path)
    out, err = again.communicate(timeout=200)
    assert again.returncode == 0, err
    assert json.loads(out)["healthy"] == 2
    assert marks(tmp_path) == {"a": 1, "b": 1}
    assert b"submitted" not in err


@pytest.mark.long
def test_a_submission_that_was_not_noted_is_found(slurm: Cluster, tmp_path: Path) -> None:
    """If the runner is killed between sbatch and the record of its ids, the array is found by its
    name.
    """
    marked(tmp_path, ("a", 4), ("b", 4))
    child = run(slurm, tmp_path)
    wait_for(lambda: marks(tmp_path))
    child.kill()
    child.communicate()
    notes = next(tmp_path.glob("reprokit-nightly/nights/*/slurm.jsonl"))
    notes.write_text(notes.read_text().splitlines()[0] + "\n")
    again = run(slurm, tmp_path)
    _, err = again.communicate(timeout=200)
    assert again.returncode == 0, err
    assert marks(tmp_path) == {"a": 1, "b": 1}
    assert b"submitted" not in err


def test_preempted_and_requeued(slurm: Cluster, tmp_path: Path) -> None:
    """An urgent job takes the node: Slurm requeues the job of the suite, which runs again to its
    one result, and leaves no process.
    """
    mark = uuid.uuid4().hex
    path = marked(tmp_path, ("a", 60))
    path.write_text(path.read_text().replace("retries = 0", "retries = 0\ncores = 2"))
    child = run(slurm, tmp_path, NIGHT_MARK=mark)
    wait_for(lambda: marks(tmp_path))
    quick(tmp_path)
    urgent = slurm.command("srun", "--partition=urgent", "--exclusive", "true")
    assert "error" not in urgent.lower(), urgent
    hurry(slurm)
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert json.loads(out)["healthy"] == 1
    assert marks(tmp_path) == {"a": 2}
    assert survivors_after_wait(mark) == []


@pytest.mark.long
def test_a_node_that_fails(slurm: Cluster, tmp_path: Path) -> None:
    """The node fails with all its processes; Slurm requeues the job when the node is reported down,
    and the result arrives.
    """
    marked(tmp_path, ("a", 60))
    child = run(slurm, tmp_path)
    wait_for(lambda: marks(tmp_path))
    quick(tmp_path)
    slurm.kill("slurmd")
    slurm.command("scontrol", "update", "NodeName=localhost", "State=DOWN", "Reason=test")
    slurm.start("slurmd")
    slurm.command("scontrol", "update", "NodeName=localhost", "State=RESUME")
    hurry(slurm)
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert json.loads(out)["healthy"] == 1
    # Slurm may start the job once more before it knows that the node is back
    assert marks(tmp_path)["a"] >= 2


@contextlib.contextmanager
def planned(folder: Path, *names: str) -> Iterator[night.Night]:
    """Return a planned nightly run of these jobs."""
    suite = suite_file.read_suite(marked(folder, *((name, 20) for name in names)))
    with (
        ledger_file.open_ledger(folder / "ledger.sqlite", is_new_ok=True) as store,
        night.lock_output(folder / "out") as output,
    ):
        yield night.begin_jobs(
            suite, suite.cells, {"default": sys.executable}, {}, output, store, print
        )


@pytest.fixture
def shell(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a client of the cluster's commands."""
    for name, value in {**slurm.environ, "MARKS": str(tmp_path / "marks")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def work(shell: None, tmp_path: Path) -> Iterator[night.Night]:
    """Return a planned nightly run of one job, and a client of the cluster's commands."""
    with planned(tmp_path, "a") as found:
        yield found


def run_until(work: night.Night, is_enough: Callable[[str], bool], **options: float) -> list[str]:
    """Wait for jobs until Ctrl-C; return the reported lines."""
    lines: list[str] = []

    def show(words: str) -> None:
        if is_enough(words):
            raise KeyboardInterrupt

    with interrupts.deferred(), pytest.raises(KeyboardInterrupt):
        engine.run_on_slurm(work, show, lines.append, **{"ask_s": 0.2, "grace_s": 60, **options})
    return lines


def noted(work: night.Night) -> list[list[str]]:
    """Return the ids of each submission."""
    path = work.path / engine.JOURNAL_FILE
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row["ids"] for row in rows if "ids" in row]


def test_more_jobs_than_an_array_can_have(slurm: Cluster, shell: None, tmp_path: Path) -> None:
    """Jobs are submitted in several arrays; giving a nightly run up cancels its jobs on the
    cluster, as the line after Ctrl-C says.
    """

    def is_empty() -> bool:
        return not slurm.command("squeue", "--noheader")

    with planned(tmp_path, *"abcde") as work:
        assert not engine.holds_jobs(work.path)
        run_until(work, lambda words: "pending" in words)
        assert [*map(len, noted(work))] == [3, 2]
        assert engine.holds_jobs(work.path)
        engine.forget_jobs(work.path)
        assert not engine.holds_jobs(work.path)
        wait_for(is_empty)
        lines = run_until(work, lambda words: "pending" in words)
        assert [*map(len, noted(work))] == [3, 2, 0, 0, 3, 2]
        slurm.command(*lines[-1].partition(" or ")[2].split())
        wait_for(is_empty)


def test_a_submission_without_an_answer(
    slurm: Cluster, work: night.Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission whose answer was lost is found by its name, and a line that was truncated by a
    kill is skipped.
    """
    submit = commands.submit_array

    def lose(*words: Any) -> list[str]:
        submit(*words)
        raise commands.SlurmGone("Socket timed out")

    monkeypatch.setattr(commands, "submit_array", lose)
    (work.path / engine.JOURNAL_FILE).write_text('{"name": "reprokit-0", "fol')
    lines = run_until(work, lambda words: "pending" in words or "running" in words)
    assert slurm.command("squeue", "--noheader", "--format=%i").split() == [lines[-1].split()[-1]]
    engine.forget_jobs(work.path)
    wait_for(lambda: not slurm.command("squeue", "--noheader"))


def test_a_controller_that_fails_during_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one array is recorded and a second is not, nothing is submitted until it is known what
    became of both.
    """
    queries: list[list[str]] = []

    def ask(names: list[str]) -> dict[str, tuple[str, str, str]]:
        queries.append(names)
        if len(queries) < 3:
            raise commands.SlurmGone("no answer")
        return {
            "7_0": ("p-0", "RUNNING", ""),
            "7_1": ("p-0", "RUNNING", ""),
            "9": ("p-2", "PENDING", ""),
        }

    monkeypatch.setattr(commands, "query_jobs", ask)
    monkeypatch.setattr(commands, "submit_array", lambda *words: pytest.fail("submitted twice"))
    with planned(tmp_path, *"abc") as work:
        a, b, c = (one.folder.name for one in work.jobs)
        rows = [
            {"name": "p-0", "folders": [a, b]},
            {"name": "p-0", "ids": ["7_0", "7_1"]},
            {"name": "p-2", "folders": [c]},
        ]
        (work.path / engine.JOURNAL_FILE).write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
        lines = run_until(work, lambda words: "1 pending, 2 running" in words)
        assert queries == [["p-2"]] * 3 + [["p-0", "p-2"]]
        assert lines == [
            "the jobs stay on the cluster: start the nightly run again to resume it, or scancel 7 9"
        ]


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a script that replaces sbatch, for limits that a real cluster has only
    with a database.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "squeue", "scontrol", "srun"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder / "sbatch"


def test_a_limit_on_jobs(sbatch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that exceed a limit are submitted in smaller arrays, and later; none is lost."""
    room = tmp_path / "room"
    sbatch.write_text(f"""#!/bin/sh
if ! grep -q array= "$1" && {{ [ ! -e "{tmp_path}/taken" ] || [ -e "{room}" ]; }}; then
    echo "Submitted batch job $(date +%s%N | tee "{tmp_path}/taken")"; exit
fi
echo "sbatch: error: AssocMaxSubmitJobLimit" >&2
echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)" >&2
exit 1
""")
    monkeypatch.setattr(engine, "RESUBMIT_DELAY_S", 1.0)
    shown: list[str] = []

    def is_enough(words: str) -> bool:
        shown.append(words)
        if words == "0 of 3 done, 1 pending, 2 unsubmitted" and noted(work)[-2:] == [[], []]:
            room.touch()
        return words == "0 of 3 done, 3 pending"

    monkeypatch.setattr(
        commands,
        "query_jobs",
        lambda names: {n: ("", "PENDING", "") for array in noted(work) for n in array},
    )
    with planned(tmp_path, *"abc") as work:
        lines = run_until(work, is_enough)
        assert shown[0] == "0 of 3 done, 3 unsubmitted"
        assert sum("accepts no more jobs now" in text for text in lines) == 1
        assert [len(array) for array in noted(work) if array] == [1, 1, 1]
        assert not any((one.folder / "result.json").exists() for one in work.jobs)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            "sbatch: error: Batch job submission failed: Resource temporarily unavailable",
            commands.SlurmBusy,
        ),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", commands.SlurmBusy),
        ("sbatch: error: MaxSubmitJobsPerAccount", commands.SlurmBusy),
        (
            (
                "sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: Job violates"
                " accounting/QOS policy"
            ),
            commands.SlurmRefused,
        ),
        ("sbatch: error: invalid partition specified: nowhere", commands.SlurmRefused),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            commands.SlurmGone,
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller",
            commands.SlurmGone,
        ),
        ("", commands.SlurmGone),
    ],
)
def test_the_errors_of_sbatch(
    sbatch: Path,
    tmp_path: Path,
    message: str,
    kind: type[Exception],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A refusal is permanent, temporary or unknown; sbatch's own output is not printed."""
    (tmp_path / "said").write_text(message)
    sbatch.write_text(f'#!/bin/sh\ncat "{tmp_path}/said" >&2\nexit 1\n')
    with planned(tmp_path, "a") as work:
        capfd.readouterr()
        with pytest.raises(kind):
            commands.submit_array(work, "n", (1, 1, 0, 1), [str(work.jobs[0].folder)])
    assert capfd.readouterr().err == ""


def test_a_cancelled_job(slurm: Cluster, work: night.Night) -> None:
    """A job that was cancelled by hand is lost, and is not submitted again."""
    lines: list[str] = []

    def cancel(words: str) -> None:
        if "1 running" in words:
            slurm.command("scancel", "--user=root")

    with interrupts.deferred():
        engine.run_on_slurm(work, cancel, lines.append, ask_s=0.5, grace_s=2)
    assert not work.left
    (lost,) = night_report.make_report(work.store)["lost"]
    assert "Slurm ended job" in lost["why"] and "CANCELLED" in lost["why"]
    assert sum("submitted" in text for text in lines) == 1


def test_an_unreachable_cluster(slurm: Cluster, work: night.Night, tmp_path: Path) -> None:
    """Without its controller the nightly run waits and then stops with one line, and continues when
    the controller is back.
    """
    lines: list[str] = []
    is_dead = False

    def unplug(words: str) -> None:
        nonlocal is_dead
        if "1 running" in words and not is_dead:
            slurm.stop_controller()
            is_dead = True

    try:
        with interrupts.deferred():
            engine.run_on_slurm(work, unplug, lines.append, patience_s=5, ask_s=0.5, grace_s=2)
        assert work.left
        assert "has not answered" in lines[-1]
        assert "not run yet" in night_report.make_report(work.store)["lost"][0]["why"]
    finally:
        slurm.start("slurmctld")
    wait_for(lambda: "UP" in slurm.command("scontrol", "ping"))
    slurm.command("scancel", "--user=root", "--name=none")
    with interrupts.deferred():
        engine.run_on_slurm(work, lambda words: None, lines.append, ask_s=0.5, grace_s=2)
    assert not work.left
    assert marks(tmp_path) == {"a": 1}


def test_there_is_no_slurm(tmp_path: Path) -> None:
    """Without Slurm, a one-line error says what is missing."""
    marked(tmp_path, ("a", 0))
    done = reprokit(
        "nightly",
        "run",
        "suite.toml",
        "--engine",
        "slurm",
        cwd=tmp_path,
        env=clean_environ(PATH="/nowhere"),
    )
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "sbatch, which is not on PATH" in done.err
