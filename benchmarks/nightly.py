"""Nights measured: throughput beside a bare loop, cores, a thousand nodes on paper, and a ledger of
a million sightings.

python benchmarks/nightly.py [loop] [cores] [nodes] [ledger] [--runs 6] [--most 1000000]

Everything is compared within one run of this program; the grouping of sightings is measured by
benchmarks/grouping.py.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reprokit.host.nightly import night_report, night_report_files
from reprokit.host.nightly.ledger import add_result, bugs, ledger_file

ROOT = Path(__file__).resolve().parents[1]
SECONDS = (14.8, 9.1, 8.6, 38.0, 23.5, 61.0, 220.0, 12.0, 31.0, 47.0, 90.0, 600.0)
"""Recorded run times of cells, in seconds: healthy small models to llama40b over eight ranks, and a
hang at its deadline.
"""


def suite_of(folder: Path, runs: int) -> Path:
    """A suite of ``runs`` cells that compile something small, none of which fails."""
    text = (
        f'[suite]\nname = "bench"\nretries = 0\n[environments.here]\npython = "{sys.executable}"\n'
    )
    for number in range(runs):
        shutil.copy(ROOT / "samples" / "healthy.py", folder / f"healthy{number}.py")
        text += f'[[targets]]\ntarget = "healthy{number}.py:make"\n'
    (folder / "suite.toml").write_text(text)
    return folder / "suite.toml"


def spent() -> float:
    """Processor seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def night(folder: Path, cores: int) -> tuple[float, float]:
    """Wall and processor seconds of one night; its state begins anew."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    began, before = time.monotonic(), spent()
    words = ["nightly", "run", "suite.toml", "--output-dir", "out", "--cores", str(cores), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "reprokit", *words],
        cwd=folder,
        capture_output=True,
        check=False,
        env=ENVIRON,
    )
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began, spent() - before


def loop(folder: Path, runs: int) -> tuple[float, float]:
    """The same captures, one after the other, with the same warm answers of the C++ compiler."""
    from reprokit.host.system import compiler_cache

    shutil.rmtree(folder / "loop", ignore_errors=True)
    began, before = time.monotonic(), spent()
    for number in range(runs):
        cache = folder / "loop" / f"cache{number}"
        cache.mkdir(parents=True)
        compiler_cache.copy_cache(compiler_cache.kept_cache(sys.executable), cache)
        target = f"healthy{number}.py:make"
        words = [
            "capture",
            "--json",
            "--no-minimize",
            "--no-ablate",
            "--output-dir",
            f"loop/{number}",
            "--python",
            sys.executable,
            "--model",
            target,
        ]
        environ = {**ENVIRON, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        subprocess.run(
            [sys.executable, "-m", "reprokit", *words],
            cwd=folder,
            capture_output=True,
            check=True,
            env=environ,
        )
        shutil.rmtree(cache)
    return time.monotonic() - began, spent() - before


ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}


def throughput(runs: int, is_cores: bool) -> None:
    """One night on one core beside a bare loop, in turns; then on two cores."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite_of(folder, runs)
        loop(folder, 1)  # what is asked once: the compiler's answers, the packages
        rows = []
        for turn in range(2):
            order = (("loop", lambda: loop(folder, runs)), ("night", lambda: night(folder, 1)))
            for what, measure in order if turn % 2 == 0 else order[::-1]:
                wall, cpu = measure()
                rows.append((what, wall, cpu))
                print(f"{what:<6} {runs} runs  {wall:7.1f} s  {cpu:7.1f} CPU-seconds")
        of = {
            w: [statistics.median(r[i] for r in rows if r[0] == w) for i in (1, 2)]
            for w in ("loop", "night")
        }
        ratios = [of["night"][i] / of["loop"][i] for i in (0, 1)]
        print(f"night over loop: {ratios[0]:.3f} of the time, {ratios[1]:.3f} of the processor")
        if is_cores:
            one, two = night(folder, 1)[0], night(folder, 2)[0]
            print(f"one core {one:.1f} s, two cores {two:.1f} s: {one / two:.2f} times as fast")


def on_paper(nodes: int = 1000, jobs: int = 20_000) -> None:
    """A thousand nodes on paper: recorded run times, the order that a night starts in, and what
    taking results in costs.
    """
    chance = random.Random(1)
    took = [chance.choice(SECONDS) * chance.uniform(0.8, 1.25) for _ in range(jobs)]
    expected = [t * chance.uniform(0.7, 1.4) for t in took]  # what it took the last time
    for name, order in (
        ("longest first", sorted(range(jobs), key=lambda i: -expected[i])),
        ("as they stand", range(jobs)),
    ):
        free = [0.0] * nodes
        for place in order:
            heapq.heappush(free, heapq.heappop(free) + took[place])
        least = max(sum(took) / nodes, max(took))
        print(
            f"{nodes} nodes, {jobs} runs, {name}: {max(free) / 60:.1f} min, at best"
            f" {least / 60:.1f} ({max(free) / least:.3f})"
        )
    with tempfile.TemporaryDirectory() as folder:
        with ledger_file.open_ledger(Path(folder) / "l.sqlite", is_new_ok=True) as store:
            number = ledger_file.begin_night(store, "n", "n", "s", 2000, 0.0)
            began = time.monotonic()
            for place in range(2000):
                with store.change():
                    cell = ledger_file.cell_id(store, f"c{place}", f"c{place}", {}, [])
                add_result.add_result(store, number, cell, made(place % 5, 0))
            rate = 2000 / (time.monotonic() - began)
        need = nodes / statistics.mean(took)
        print(
            f"results come at {need:.0f} a second; one ledger takes {rate:.0f} a second"
            f" ({rate / need:.0f} times as many)"
        )


def made(which: int, night: int) -> dict[str, Any]:
    """A result: healthy where ``which`` is 0, else one of many bugs."""
    if not which:
        phases = {"codegen": 4.0, "lowering": 2.0}
        attempt = {
            "verdict": {"kind": "ok"},
            "signature": {},
            "compile_s": 10.0 + night % 3 / 10,
            "peak_rss_bytes": 1e9,
            "phases": phases,
        }
    else:
        frames = [f"torch/_inductor/{which % 37}.py:f{which}", "torch/_inductor/graph.py:run"]
        title = f"exception: codegen | Error{which % 97}: bug {which} @ {frames[0]}"
        signature = {"id": f"{which:012x}", "title": title, "algorithm": 6}
        traits = {
            "kind": "exception",
            "phase": "codegen",
            "message": f"Error{which % 97}: bug {which}",
            "frames": frames,
        }
        attempt = {
            "verdict": {"kind": "exception"},
            "signature": signature,
            "traits": traits,
            "pack": f"packs/{which}.tar.gz",
        }
    return {
        "expect": ["ok"],
        "attempts": [{"torch": f"2.{11 + night % 3}.0", "seconds": 10.0, **attempt}],
        "seconds": 12.0,
    }


def at_scale(most: int) -> None:
    """Ledgers of ten thousand to a million sightings: what an insert costs, what a night's end and
    a report take.
    """
    print(
        f"{'sightings':>10} {'nights':>6} {'bugs':>6} {'a result':>10} {'a night ends':>13}"
        f" {'report':>8} {'as files':>9} {'size':>9}"
    )
    for sightings in (n for n in (10_000, 100_000, 1_000_000) if n <= most):
        with tempfile.TemporaryDirectory() as folder:
            row = _one_ledger(Path(folder), sightings)
        print(
            "{:>10} {:>6} {:>6} {:>7.0f} µs {:>11.2f} s {:>6.2f} s {:>7.2f} s {:>6.0f} MB".format(
                *row
            ),
            flush=True,
        )


def _one_ledger(folder: Path, sightings: int) -> tuple[Any, ...]:
    cells = {10_000: 200, 100_000: 600, 1_000_000: 4_000}[sightings]
    chance, nights, number, at = random.Random(1), 0, 0, 0
    known = max(sightings // 2000, 20)
    spent_s = ends_s = 0.0
    with ledger_file.open_ledger(folder / "ledger.sqlite", is_new_ok=True) as store:
        with store.change():
            ids = [
                ledger_file.cell_id(
                    store, f"cell {i}", f"model{i % (cells // 4)}", {"mode": str(i % 4)}, []
                )
                for i in range(cells)
            ]
        while at < sightings:
            nights += 1
            number = ledger_file.begin_night(
                store, f"{nights}", f"night {nights:05d}", "main", cells, 1.7e9 + 86400 * nights
            )
            began = time.monotonic()
            for cell in ids:
                bug = 1 + (cell * 7 + nights // 40) % known if chance.random() < 0.8 else 0
                at += bool(bug)
                add_result.add_result(store, number, cell, made(bug, nights))
            spent_s += time.monotonic() - began
            began = time.monotonic()
            bugs.close_night(store, number, "done")
            ends_s = time.monotonic() - began
        began = time.monotonic()
        told = night_report.make_report(store, None, folder)
        report_s = time.monotonic() - began
        began = time.monotonic()
        night_report_files.write_report(told, folder)
        files_s = time.monotonic() - began
        many = store.all("SELECT count(*) AS n FROM bug")[0]["n"]
        real = store.all("SELECT count(*) AS n FROM sighting")[0]["n"]
    size = (folder / "ledger.sqlite").stat().st_size
    return (
        real,
        nights,
        many,
        1e6 * spent_s / (nights * cells),
        ends_s,
        report_s,
        files_s,
        size / 1e6,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="*", default=[], help="loop, cores, nodes, ledger; all where none is named"
    )
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--most", type=int, default=1_000_000)
    asked = parser.parse_args()
    wants = asked.what or ["loop", "cores", "nodes", "ledger"]
    if "loop" in wants or "cores" in wants:
        throughput(asked.runs, "cores" in wants)
    if "nodes" in wants:
        on_paper()
    if "ledger" in wants:
        at_scale(asked.most)


if __name__ == "__main__":
    main()
