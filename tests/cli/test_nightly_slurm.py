"""Nights on a real Slurm: a controller and a node on this machine, that lose jobs, preempt them and
go away.
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

from ..conftest import clean_environ, reprokit, reprokit_command, stragglers
from ..slurm import Cluster, cluster, wait_for
from .test_nightly import marked, marks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    with cluster() as own:
        yield own


def run(slurm: Cluster, folder: Path, **variables: str) -> subprocess.Popen[bytes]:
    environ = clean_environ(MARKS=str(folder / "marks"), **slurm.environ, **variables)
    command = reprokit_command("nightly", "run", "suite.toml", "--engine", "slurm", "--json")
    return subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def quick(folder: Path) -> None:
    """From now on the commands end at once."""
    text = (folder / "mark.py").read_text()
    (folder / "mark.py").write_text(text.replace("time.sleep(seconds)", "pass"))


def hurry(slurm: Cluster) -> None:
    """Slurm lets a requeued job wait for two minutes; a test need not."""

    def waiting() -> list[str]:
        return [
            number
            for number in slurm.ask("squeue", "-h", "-t", "PD", "-o", "%i").split()
            if number.isdigit()
        ]

    wait_for(waiting)
    for number in waiting():
        slurm.ask("scontrol", "update", f"JobId={number}", "StartTime=now")


def test_a_night_as_arrays(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets that want the same become one array, one with a GPU another; what no node can run is
    lost, and told.
    """
    place = marked(tmp_path, ("a", 0), ("b", 0))
    with place.open("a") as file:
        file.write('gpus = 1\n[[targets]]\ncommand = ["{python}", "mark.py", "c", "0"]\n')
        file.write('[[targets]]\ncommand = ["{python}", "mark.py", "d", "0"]\ncores = 4000\n')
    asked = suite_file.read_suite(place)
    for name, value in {**slurm.environ, "MARKS": str(tmp_path / "marks")}.items():
        monkeypatch.setenv(name, value)
    with (
        ledger_file.open_ledger(tmp_path / "ledger.sqlite", is_new_ok=True) as store,
        night.hold_night(tmp_path / "out") as out,
    ):
        work = night.begin_jobs(
            asked, asked.cells, {"default": sys.executable}, {}, out, store, print
        )
        with interrupts.deferred():
            engine.run_on_slurm(work, lambda words: None, print, ask_s=0.5, grace_s=3)
        night.end_night(work, is_complete=True)
        told = night_report.make_report(store)
    assert (told["exit_code"], told["healthy"], told["night"]["runs"]) == (3, 3, 4)
    (lost,) = told["lost"]
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


def test_a_submission_that_was_not_noted_is_found(slurm: Cluster, tmp_path: Path) -> None:
    """Killed between sbatch and the note of its ids, the array is found by its name."""
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
    """An urgent job takes the node: Slurm requeues ours, which runs again to its one result, and
    leaves no process.
    """
    mark = uuid.uuid4().hex
    place = marked(tmp_path, ("a", 60))
    place.write_text(place.read_text().replace("retries = 0", "retries = 0\ncores = 2"))
    child = run(slurm, tmp_path, NIGHT_MARK=mark)
    wait_for(lambda: marks(tmp_path))
    quick(tmp_path)
    urgent = slurm.ask("srun", "--partition=urgent", "--exclusive", "true")
    assert "error" not in urgent.lower(), urgent
    hurry(slurm)
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert json.loads(out)["healthy"] == 1
    assert marks(tmp_path) == {"a": 2}
    assert stragglers(mark) == []


def test_a_node_that_fails(slurm: Cluster, tmp_path: Path) -> None:
    """The node dies with all that runs on it; Slurm requeues the job when it is told down, and the
    result comes.
    """
    marked(tmp_path, ("a", 60))
    child = run(slurm, tmp_path)
    wait_for(lambda: marks(tmp_path))
    quick(tmp_path)
    slurm.kill("slurmd")
    slurm.ask("scontrol", "update", "NodeName=localhost", "State=DOWN", "Reason=test")
    slurm.start("slurmd")
    slurm.ask("scontrol", "update", "NodeName=localhost", "State=RESUME")
    hurry(slurm)
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert json.loads(out)["healthy"] == 1
    assert (
        marks(tmp_path)["a"] >= 2
    )  # Slurm may start it once more before it knows that the node is back


@contextlib.contextmanager
def planned(folder: Path, *names: str) -> Iterator[night.Night]:
    """A planned night of these jobs."""
    asked = suite_file.read_suite(marked(folder, *((name, 20) for name in names)))
    with (
        ledger_file.open_ledger(folder / "ledger.sqlite", is_new_ok=True) as store,
        night.hold_night(folder / "out") as place,
    ):
        yield night.begin_jobs(
            asked, asked.cells, {"default": sys.executable}, {}, place, store, print
        )


@pytest.fixture
def shell(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that knows the cluster."""
    for name, value in {**slurm.environ, "MARKS": str(tmp_path / "marks")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def work(shell: None, tmp_path: Path) -> Iterator[night.Night]:
    """A planned night of one job, and a shell that knows the cluster."""
    with planned(tmp_path, "a") as found:
        yield found


def run_until(work: night.Night, is_enough: Callable[[str], bool], **options: float) -> list[str]:
    """Wait for jobs until Ctrl-C; gives what was said."""
    said: list[str] = []

    def show(words: str) -> None:
        if is_enough(words):
            raise KeyboardInterrupt

    with interrupts.deferred(), pytest.raises(KeyboardInterrupt):
        engine.run_on_slurm(work, show, said.append, **{"ask_s": 0.2, "grace_s": 60, **options})
    return said


def noted(work: night.Night) -> list[list[str]]:
    """The ids of each submission."""
    path = work.path / engine.JOURNAL
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row["ids"] for row in rows if "ids" in row]


def test_more_than_an_array_may_have(slurm: Cluster, shell: None, tmp_path: Path) -> None:
    """They go in pieces; what a night has on the cluster is taken back when it is given up, and as
    Ctrl-C tells.
    """

    def is_empty() -> bool:
        return not slurm.ask("squeue", "--noheader")

    with planned(tmp_path, *"abcde") as work:
        assert not engine.holds_jobs(work.path)
        run_until(work, lambda words: "pending" in words)
        assert [*map(len, noted(work))] == [3, 2]
        assert engine.holds_jobs(work.path)
        engine.forget_jobs(work.path)
        assert not engine.holds_jobs(work.path)
        wait_for(is_empty)
        said = run_until(work, lambda words: "pending" in words)
        assert [*map(len, noted(work))] == [3, 2, 0, 0, 3, 2]
        slurm.ask(*said[-1].partition(" or ")[2].split())
        wait_for(is_empty)


def test_taken_without_an_answer(
    slurm: Cluster, work: night.Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission whose answer was lost is found by its name; a line torn by a kill is passed
    over.
    """
    submit = commands.submit_array

    def lose(*words: Any) -> list[str]:
        submit(*words)
        raise commands.SlurmGone("Socket timed out")

    monkeypatch.setattr(commands, "submit_array", lose)
    (work.path / engine.JOURNAL).write_text('{"name": "reprokit-0", "fol')
    said = run_until(work, lambda words: "pending" in words or "running" in words)
    assert slurm.ask("squeue", "--noheader", "--format=%i").split() == [said[-1].split()[-1]]
    engine.forget_jobs(work.path)
    wait_for(lambda: not slurm.ask("squeue", "--noheader"))


def test_a_controller_that_goes_while_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one array is noted and another is not, nothing is submitted before it is known what
    became of both.
    """
    asked: list[list[str]] = []

    def ask(names: list[str]) -> dict[str, tuple[str, str, str]]:
        asked.append(names)
        if len(asked) < 3:
            raise commands.SlurmGone("no answer")
        return {
            "7_0": ("p-0", "RUNNING", ""),
            "7_1": ("p-0", "RUNNING", ""),
            "9": ("p-2", "PENDING", ""),
        }

    monkeypatch.setattr(commands, "ask_jobs", ask)
    monkeypatch.setattr(commands, "submit_array", lambda *words: pytest.fail("submitted twice"))
    with planned(tmp_path, *"abc") as work:
        a, b, c = (one.folder.name for one in work.jobs)
        rows = [
            {"name": "p-0", "folders": [a, b]},
            {"name": "p-0", "ids": ["7_0", "7_1"]},
            {"name": "p-2", "folders": [c]},
        ]
        (work.path / engine.JOURNAL).write_text("".join(json.dumps(row) + "\n" for row in rows))
        said = run_until(work, lambda words: "1 pending, 2 running" in words)
        assert asked == [["p-2"]] * 3 + [["p-0", "p-2"]]
        assert said == [
            "the jobs stay on the cluster: start the night again to go on, or scancel 7 9"
        ]


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where to write what sbatch does, of a cluster with limits that need a database to be real."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "squeue", "scontrol", "srun"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder / "sbatch"


def test_a_limit_on_jobs(sbatch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too much now is submitted in smaller arrays, and later; nothing is lost for it."""
    room = tmp_path / "room"
    sbatch.write_text(f"""#!/bin/sh
if ! grep -q array= "$1" && {{ [ ! -e {tmp_path}/taken ] || [ -e {room} ]; }}; then
    echo "Submitted batch job $(date +%s%N | tee {tmp_path}/taken)"; exit
fi
echo "sbatch: error: AssocMaxSubmitJobLimit" >&2
echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)" >&2
exit 1
""")
    monkeypatch.setattr(engine, "LATER_S", 1.0)
    shown: list[str] = []

    def is_enough(words: str) -> bool:
        shown.append(words)
        if words == "0 of 3 done, 1 pending, 2 unsubmitted" and noted(work)[-2:] == [[], []]:
            room.touch()
        return words == "0 of 3 done, 3 pending"

    monkeypatch.setattr(
        commands,
        "ask_jobs",
        lambda names: {n: ("", "PENDING", "") for array in noted(work) for n in array},
    )
    with planned(tmp_path, *"abc") as work:
        said = run_until(work, is_enough)
        assert shown[0] == "0 of 3 done, 3 unsubmitted"
        assert sum("takes no more jobs for now" in text for text in said) == 1
        assert [len(array) for array in noted(work) if array] == [1, 1, 1]
        assert not any((one.folder / "result.json").exists() for one in work.jobs)


@pytest.mark.parametrize(
    ("said", "kind"),
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
def test_what_sbatch_says(
    sbatch: Path,
    tmp_path: Path,
    said: str,
    kind: type[Exception],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A refusal is for ever, for now, or nobody knows; and none of it comes to the screen."""
    (tmp_path / "said").write_text(said)
    sbatch.write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2\nexit 1\n")
    with planned(tmp_path, "a") as work:
        capfd.readouterr()
        with pytest.raises(kind):
            commands.submit_array(work, "n", (1, 1, 0, 1), [str(work.jobs[0].folder)])
    assert capfd.readouterr().err == ""


def test_cancelled_by_somebody(slurm: Cluster, work: night.Night) -> None:
    """A job that was cancelled is lost, and is not submitted again behind somebody's back."""
    said: list[str] = []

    def cancel(words: str) -> None:
        if "1 running" in words:
            slurm.ask("scancel", "--user=root")

    with interrupts.deferred():
        engine.run_on_slurm(work, cancel, said.append, ask_s=0.5, grace_s=2)
    assert not work.left
    (lost,) = night_report.make_report(work.store)["lost"]
    assert "Slurm ended job" in lost["why"] and "CANCELLED" in lost["why"]
    assert sum("submitted" in text for text in said) == 1


def test_a_cluster_that_is_gone(slurm: Cluster, work: night.Night, tmp_path: Path) -> None:
    """Without its controller the night waits, gives up with one line, and is gone on with when it
    is back.
    """
    said: list[str] = []
    is_dead = False

    def unplug(words: str) -> None:
        nonlocal is_dead
        if "1 running" in words and not is_dead:
            slurm.unplug()
            is_dead = True

    try:
        with interrupts.deferred():
            engine.run_on_slurm(work, unplug, said.append, patience_s=5, ask_s=0.5, grace_s=2)
        assert work.left
        assert "has not answered" in said[-1]
        assert "not run yet" in night_report.make_report(work.store)["lost"][0]["why"]
    finally:
        slurm.start("slurmctld")
    wait_for(lambda: "UP" in slurm.ask("scontrol", "ping"))
    slurm.ask("scancel", "--user=root", "--name=none")
    with interrupts.deferred():
        engine.run_on_slurm(work, lambda words: None, said.append, ask_s=0.5, grace_s=2)
    assert not work.left
    assert marks(tmp_path) == {"a": 1}


def test_there_is_no_slurm(tmp_path: Path) -> None:
    """One line says what is missing."""
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
