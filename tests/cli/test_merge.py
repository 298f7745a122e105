"""``reprokit merge`` names the odd rank from packs and from dumps of the flight recorder."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import desync_cases
from reprokit.host.merge import flight_records, merge_ranks, safe_pickle
from tests.support.environments import ROOT, clean_environ
from tests.support.reprokit_calls import reprokit

from ..hangs.kinds import EXPECTED
from .test_attach import attach_to_ranks


def entry(number: int, name: str = "all_reduce", **fields: Any) -> dict[str, Any]:
    return {
        "collective_seq_id": number,
        "profiling_name": f"gloo:{name}",
        "process_group": ("0", "default_pg"),
        "input_sizes": [[4]],
        "output_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "retired": True,
        "is_p2p": False,
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        "frames": [
            {"filename": "/env/torch/distributed/c10d.py", "line": 1, "name": "all_reduce"},
            {"filename": "/home/me/train.py", "line": 30, "name": "step"},
        ],
        **fields,
    }


def dump(*entries: dict[str, Any], size: int = 2) -> dict[str, Any]:
    ranks = str(list(range(size)))
    return {"version": "2.10", "pg_config": {"": {"ranks": ranks}}, "entries": list(entries)}


def write_dumps(folder: Path, *dumps: dict[str, Any], as_json: bool = False) -> None:
    for rank, document in enumerate(dumps):
        if as_json:
            (folder / f"rank{rank}.json").write_text(json.dumps(document))
        else:
            (folder / f"comm_lib_trace_rank_{rank}").write_bytes(pickle.dumps(document, 2))


@pytest.mark.parametrize("as_json", [False, True])
def test_a_rank_that_did_not_come_is_named(as_json: bool, tmp_path: Path) -> None:
    """The text has the user's line, and the exit code is 1; pickles and JSON say the same."""
    waiting = entry(2, retired=False)
    write_dumps(tmp_path, dump(entry(1), waiting), dump(entry(1)), as_json=as_json)
    done = reprokit("merge", tmp_path)
    first, odd, other = done.out.splitlines()
    assert done.status == 1
    assert first.startswith(
        "rank 1 did not call all_reduce #2; its last call was all_reduce #1 at train.py:30 in step;"
        " 1 rank waits in all_reduce #2 at train.py:30 in step since "
    )
    assert odd.startswith("odd        1: all_reduce #1") and odd.endswith("done")
    assert other.startswith("ranks      0: all_reduce #2") and other.endswith("not done")
    document = reprokit("merge", "--json", tmp_path).json
    assert (document["odd"], document["kind"], document["ranks"]) == ([1], "missing", [0, 1])
    assert document["since"] == pytest.approx(1_700_000_000)


def test_a_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    write_dumps(tmp_path, *(dump(entry(1), entry(2, retired=False), size=3) for _ in range(2)))
    done = reprokit("merge", tmp_path)
    assert (
        done.status == 1
        and "rank 2 did not call all_reduce #2, and no call of it in this group is recorded"
        in done.out
    )
    assert "no data    2" in done.out


def test_one_dump_of_two_ranks_decides_nothing(tmp_path: Path) -> None:
    """The recorder of gloo writes a call that failed as one that is done."""
    write_dumps(tmp_path, dump(entry(1)))
    done = reprokit("merge", tmp_path)
    assert done.status == 3 and "rank 1 left no data, so nobody can tell" in done.out


TORCHRUN = """\
E1129 22:56:36.120000 123 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1)
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-29_22:56:37
  host      : node7
  rank      : 2 (local_rank: 0)
  exitcode  : -6 (pid: 122)  (SIGABRT)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 122
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_22:56:36
  host      : node7
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 123)
  error_file: /tmp/torchelastic/attempt_0/1/error.json
  traceback : Traceback (most recent call last):
    File "/home/me/train.py", line 30, in step
      return table[key]
  KeyError: 'step 14'

============================================================
"""
"""What torchrun prints, as ``ChildFailedError`` of torch 2.13 formats it."""


def test_the_output_of_torchrun_names_the_rank_that_ended(tmp_path: Path) -> None:
    """Of two ranks of which one has no dump, the one that ended first is the odd one."""
    write_dumps(tmp_path, dump(entry(1)))
    (tmp_path / "slurm-17.out").write_text("epoch 1\n" + TORCHRUN)
    done = reprokit("merge", tmp_path)
    assert done.status == 1, done.err
    assert done.out.startswith(
        "rank 1 ended with exit code 1 (KeyError: 'step 14') at 2026-11-29 22:56:36 on node7,"
        " before all other ranks that ended; the last call of rank 0 is all_reduce #1 at"
        " train.py:30 in step\n"
    ), done.out


def test_the_output_of_torchrun_says_why_a_rank_did_not_come(tmp_path: Path) -> None:
    """A rank that others wait for is named with its end. A rank that left a dump is not named by
    its end alone: a watchdog may have ended it.
    """
    write_dumps(tmp_path, *(dump(entry(1), entry(2, retired=False), size=3) for _ in range(1)))
    shutil.copy(tmp_path / "comm_lib_trace_rank_0", tmp_path / "comm_lib_trace_rank_2")
    (tmp_path / "node7.log").write_text(TORCHRUN)
    done = reprokit("merge", tmp_path)
    assert done.status == 1 and done.out.startswith(
        "rank 1 did not call all_reduce #2: rank 1 ended with exit code 1"
    ), done.out
    (tmp_path / "comm_lib_trace_rank_1").write_bytes(pickle.dumps(dump(entry(1)), 2))
    for rank in (0, 2):
        (tmp_path / f"comm_lib_trace_rank_{rank}").write_bytes(pickle.dumps(dump(entry(1)), 2))
    assert reprokit("merge", tmp_path).status == 0


def test_ranks_that_agree(tmp_path: Path) -> None:
    write_dumps(tmp_path, dump(entry(1)), dump(entry(1)))
    done = reprokit("merge", tmp_path)
    assert done.status == 0 and "no rank waits in a collective" in done.out


def test_two_ranks_that_disagree_without_a_history(tmp_path: Path) -> None:
    write_dumps(
        tmp_path,
        dump(entry(1, retired=False)),
        dump(entry(1, "barrier", retired=False)),
    )
    done = reprokit("merge", tmp_path)
    assert done.status == 3 and "none is the odd one" in done.out and "odd   " not in done.out


class Evil:
    """Unpickling it would create a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/reprokit-unpickled",)


def test_a_dump_from_a_stranger_runs_nothing(tmp_path: Path) -> None:
    """A pickle with code is refused, and named; the others are read. No character of a dump reaches
    the terminal as it is.
    """
    mark = Path("/tmp/reprokit-unpickled")
    mark.unlink(missing_ok=True)
    bad = entry(2, "all\x1b[31m", process_group=("\x1b]0;x\x07", "y"))
    place = [{"filename": "/x/\x1b[2J.py", "line": 3, "name": "f\nrank 0 is fine"}]
    write_dumps(
        tmp_path, dump(entry(1), bad, entry(3, retired=False, frames=place)), dump(entry(1))
    )
    (tmp_path / "rank_2").write_bytes(pickle.dumps({"entries": [Evil()]}))
    (tmp_path / "rank_3").write_bytes(b"\x80\x02]q\x00(h\x00h\x00e.")
    laughs: list[Any] = [1, 2]
    for _ in range(60):
        laughs = [laughs, laughs]
    (tmp_path / "rank_4").write_bytes(
        pickle.dumps(dump(entry(1, input_sizes=laughs, frames=laughs), size=2))
    )
    (tmp_path / "rank_5").write_text('{"entries": ' + "[" * 100_000)
    done = reprokit("merge", tmp_path)
    assert not mark.exists()
    assert done.status == 3, done.out + done.err
    assert "\x1b" not in done.out and "\nrank 0 is fine" not in done.out
    skipped = [line for line in done.out.splitlines() if line.startswith("skipped")]
    assert len(skipped) == 3 and "does not build plain data" in skipped[0], skipped


def nested(count: int) -> bytes:
    """Return a pickle of a dictionary whose key is a tuple in a tuple, and so on."""
    return b"\x80\x02})" + b"\x85" * count + b"K\x01s."


DOUBLED = b"\x80\x02})" + b"".join(
    b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(60)
)


@pytest.mark.parametrize("data", [nested(1_000_000), DOUBLED + b"K\x01s."], ids=["deep", "doubled"])
def test_a_key_that_takes_all_time_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_bytes(data)
    done = reprokit("merge", tmp_path)
    assert done.status == 2 and "a damaged pickle" in done.err, done.err


def test_large_texts_and_numbers_of_a_stranger(tmp_path: Path) -> None:
    """A name that is no text, and many groups with one large text, are left out."""
    deep: Any = ()
    for _ in range(60):
        deep = (deep, deep)
    ranks = str(list(range(120_000)))
    document = dump(entry(1), entry(2, profiling_name=deep), entry(10**15))
    document["pg_config"] = {str(n): {"name": str(n), "ranks": ranks} for n in range(300)}
    write_dumps(tmp_path, document, dump(entry(1)))
    assert reprokit("merge", tmp_path).status == 3  # most of the 120,000 ranks have no data


@pytest.mark.parametrize("protocol", range(2, 6))
def test_plain_pickles_are_read(protocol: int) -> None:
    """The protocols of Python 3 and that of torch give the same values as unpickling."""
    value = {
        "a": [
            1,
            -5,
            1 << 40,
            300,
            70_000,
            2.5,
            None,
            True,
            False,
            "\u00fc" * 300,
            ("x", ("y",), 1, 2),
        ],
        "b": {"c": [], "d": {}, "e": ()},
        "same": ["twice"] * 2,
    }
    data = pickle.dumps(value, protocol)
    assert safe_pickle.read_plain_pickle(data) == value
    for cut in range(0, len(data), 7):
        with pytest.raises(ValueError):
            safe_pickle.read_plain_pickle(data[:cut])


@pytest.mark.real
def test_a_real_dump_of_gloo_is_read(tmp_path: Path) -> None:
    """Four real ranks, of which one is slow: the place is the user's line."""
    subprocess.run(
        [sys.executable, "-m", "benchmarks.cases.desync_cases", "slow", "4", str(tmp_path), "6"],
        cwd=ROOT,
        env=clean_environ(),
        check=True,
        timeout=300,
    )
    odd = desync_cases.odd_rank("slow", 4)
    record = flight_records.read_flight_record(tmp_path / "rank_0", 0)
    theirs = pickle.loads((tmp_path / "rank_0").read_bytes())["entries"]
    assert [c.number for c in record.calls] == [e["collective_seq_id"] for e in theirs]
    assert record.members == {"0": (0, 1, 2, 3)}
    assert "desync_cases.py" in record.calls[0].place
    done = reprokit("merge", tmp_path)
    assert done.status == 1 and done.out.startswith(f"rank {odd} did not call all_gather"), done.out


@pytest.mark.real
def test_the_end_of_one_of_two_real_ranks_is_named(tmp_path: Path) -> None:
    """The living rank has its last call as done; what torch writes of the other one decides."""
    subprocess.run(
        [sys.executable, "-m", "benchmarks.cases.desync_cases", "death", "2", str(tmp_path), "5"],
        cwd=ROOT,
        env=clean_environ(),
        check=True,
        timeout=300,
    )
    odd = desync_cases.odd_rank("death", 2)
    done = reprokit("merge", tmp_path)
    assert done.status == 1 and done.out.startswith(f"rank {odd} was killed by SIGKILL"), done.out


@pytest.mark.real
def test_the_packs_of_two_nodes_are_merged(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """attach on each node writes the positions of its ranks; here both are on one machine."""
    done = attach_to_ranks(tmp_path_factory)
    assert done.json["verdict"]["cause"] in EXPECTED["gloo_eager"][0]
    pack = Path(done.json["pack"])
    (tmp_path / "nodes").mkdir()
    shutil.copy(pack, tmp_path / "nodes" / "node1.tar.gz")
    merged = reprokit("merge", tmp_path / "nodes", "--json")
    assert merged.status == 1, merged.out
    assert merged.json["odd"] == [1] and "1 rank waits in all_reduce" in merged.json["reason"]
    assert "not in a collective" in merged.json["reason"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "Missing argument 'DIR...'"),
        (("nowhere",), "there is no folder nowhere"),
        (
            ("empty",),
            "there is no pack of a rank, no dump of a flight recorder and no summary of torchrun"
            " below empty",
        ),
        (("wrong",), "it has no entries of a flight recorder"),
    ],
)
def test_bad_input_gets_one_line(words: tuple[str, ...], part: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "rank_0").write_text("{}")
    done = reprokit("merge", *words, cwd=tmp_path)
    assert done.status == 2 and part in done.err and done.err.count("\n") == 1, done.err


def test_positions_decide_without_dumps() -> None:
    """A rank that is not in a collective is the odd one; ranks without data are named."""
    from reprokit.core.ranks.rank_records import RankState

    waits = {r: RankState(r, operation="all_reduce", summary=f"rank {r} waits") for r in (0, 1)}
    busy = RankState(2, "lowering", summary="rank 2 is not in a collective: it compiles")
    merged = merge_ranks.merge_ranks({}, {**waits, 2: busy})
    assert merged.odd == (2,) and merged.reason.endswith("2 ranks wait in all_reduce")
    away = {r: RankState(r, operation="all_reduce", summary="", world_size=3) for r in (0, 1)}
    merged = merge_ranks.merge_ranks({}, away)
    assert merged.odd == (2,) and merged.without_data == (2,)


@pytest.mark.real("it captures on two nodes")
def test_the_packs_of_two_nodes_show_which_graph_differs(tmp_path: Path) -> None:
    """Each node captures its own ranks; rank 1 compiles one more addition in its second graph."""
    program = tmp_path / "rank.py"
    program.write_text(
        "import os, torch\n"
        "import torch.distributed as dist\n"
        "rank = int(os.environ['RANK'])\n"
        f"place = {f'file://{tmp_path}/store'!r}\n"
        "dist.init_process_group('gloo', init_method=place, rank=rank, world_size=2)\n"
        "torch.compile(lambda x: x.sin(), backend='eager')(torch.ones(3))\n"
        "torch.compile(lambda x: x.cos() + rank if rank else x.cos(), backend='eager')(torch.ones(3))\n"
        "dist.barrier()\n"
        "raise RuntimeError('the job ends')\n"
    )

    def capture(rank: int) -> str:
        done = reprokit(
            "capture", "--no-minimize", "--no-compare", "--json",
            "--output-dir", tmp_path / f"node{rank}", "--", sys.executable, program,
            env=clean_environ(RANK=str(rank), WORLD_SIZE="2"),
        )  # fmt: skip
        return f"{done.kind} {done.out}{done.err}"

    with ThreadPoolExecutor(2) as pool:
        for answer in pool.map(capture, (0, 1)):
            assert answer.startswith("error-in-eager"), answer
    merged = reprokit("merge", "--json", tmp_path / "node0", tmp_path / "node1").json
    assert merged["ranks"] == [0, 1]
    assert merged["graphs_differ"] == (
        "rank 1 compiled a different graph 1/0 than rank 0: 4 nodes, not 3"
    )
    text = reprokit("merge", tmp_path / "node0", tmp_path / "node1").out
    assert "graphs     rank 1 compiled a different graph 1/0" in text


DEBUG_STACKS = """
=== Rank 0: http://node1:47205/handler/dump_traceback? ===
Current thread 0x00007f333effd6c0 (most recent call first):
  <no Python frame>

Thread 0x00007f336c492b80 (most recent call first):
  File "/env/site-packages/torch/distributed/distributed_c10d.py", line 4287 in all_gather
  File "/env/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/home/me/train.py", line 11 in <module>

=== Rank 1: http://node2:43535/handler/dump_traceback? ===
Current thread 0x00007f649cff96c0 (most recent call first):
  <no Python frame>

Thread 0x00007f64c6031b80 (most recent call first):
  File "/home/me/train.py", line 10 in load
  File "/home/me/train.py", line 30 in <module>
"""


def test_the_stacks_of_the_debug_server_of_torch_are_read(tmp_path: Path) -> None:
    """The newest file of a folder counts, and a file without ranks is named."""
    old = DEBUG_STACKS.replace("line 10 in load", "line 9 in load").replace("Rank 1", "Rank 2")
    (tmp_path / "stacks_20261125_220858.txt").write_text(DEBUG_STACKS)
    (tmp_path / "stacks_20261125_220850.txt").write_text(old)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "stacks_20261125_220859.txt").write_text("the server has ended\n")
    done = reprokit("merge", "--json", tmp_path)
    assert done.status == 1 and done.json["odd"] == [1], done.out + done.err
    assert done.json["reason"] == (
        "rank 1 is not in a collective: it is at train.py:10 in load; 1 rank waits in all_gather"
    )
    (skipped,) = done.json["skipped"]
    assert skipped.endswith("stacks_20261125_220859.txt: no rank wrote its stacks into it")
