"""A hunt with a bug that the tests put into the compiler of every process."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reprokit.agent.hunt import source_table
from reprokit.host.hunt import outcomes, target_search
from reprokit.host.hunt.outcomes import HuntFolder, HuntPlan
from reprokit.host.probe.client import ProbeServer
from tests.support.environments import ROOT, clean_environ
from tests.support.reprokit_calls import CallResult, reprokit

PLANTED = """
import importlib.abc
import importlib.machinery
import operator
import os
import sys
import time

NAME = "torch._dynamo.output_graph"


def plant(output_graph):
    real = output_graph.OutputGraph.call_user_compiler

    def call_user_compiler(self, graph, *inputs):
        program = vars(sys.modules.get("hunted_program", sys))
        for word, fail in (("fib_", hang), ("Slots_", os.abort)):
            if "HUNT_FAILS" in os.environ and any(name.startswith(word) for name in program):
                fail()
        for node in graph.graph.nodes:
            if node.target is operator.mul:
                node.target = operator.add
        graph.recompile()
        return real(self, graph, *inputs)

    output_graph.OutputGraph.call_user_compiler = call_user_compiler


def hang():
    time.sleep(10**6)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            plant(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
"""


def planted_environ(folder: Path, **variables: str) -> dict[str, str]:
    """Return an environment with a Dynamo that records ``a + b`` for ``a * b``."""
    site = folder / "planted"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(PLANTED)
    return clean_environ(PYTHONPATH=f"{site}:{ROOT}", REPROKIT_COMPARE="1", **variables)


def hunt(folder: Path, *words: str) -> CallResult:
    """Hunt in ``folder`` with the planted bug."""
    row = ("--source", "python", "--output-dir", str(folder), "--json", *words)
    return reprokit("hunt", *row, env=planted_environ(folder.parent), cwd=folder.parent)


def seed_with(words: dict[int, str], others: tuple[str, ...] = ()) -> int:
    """Return the first seed whose targets have these words, and whose other targets do not."""
    for seed in itertools.count():
        texts = (source_table.write_target("python", seed, n) for n in range(max(words) + 2))
        if all(
            words[n] in text if n in words else not any(word in text for word in others)
            for n, text in enumerate(texts)
        ):
            return seed
    raise AssertionError


@pytest.mark.real("it captures, reduces and proves a finding")
def test_a_planted_bug_is_found_reduced_and_proved_once(tmp_path: Path) -> None:
    """The second call in the same folder has nothing to do, and prints the same."""
    folder = tmp_path / "hunt"
    words = ("--seed", str(seed_with({0: "out = out * "})), "--targets", "1")
    found = hunt(folder, *words)
    assert found.status == 1, found.err
    (family,) = found.json["families"]
    assert (family["kind"], family["is_known"]) == ("wrong-result", False)
    (member,) = family["members"]
    assert member["repro_lines"] <= 15
    assert Path(member["pack"]).exists()
    kept = {name: (folder / name).read_bytes() for name in ("outcomes.jsonl", "captured.jsonl")}
    again = hunt(folder, *words)
    assert again.json == found.json
    assert kept == {name: (folder / name).read_bytes() for name in kept}


@pytest.mark.real
def test_a_hang_and_a_crash_end_neither_the_hunt_nor_the_targets_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each runs again alone, and the others have their own outcomes."""
    for name, value in planted_environ(tmp_path, HUNT_FAILS="1").items():
        monkeypatch.setenv(name, value)
    seed = seed_with({1: "fib_", 2: "Slots_"}, ("fib_", "Slots_", " * ", "yield", "_hash_"))
    plan = HuntPlan(("python",), seed, sys.executable)
    folder = tmp_path / "server"
    with (
        outcomes.open_hunt(tmp_path / "hunt", plan, 12.0) as found,
        ProbeServer(folder, sys.executable, "build") as server,
    ):
        target_search.search_targets(found, server, math.inf, 4, lambda words: None)
    assert [one.kind for one in found.outcomes] == ["ok", "hang", "crash", "ok"]
    assert "SIGABRT" in found.outcomes[2].detail
    assert [found.program_of(one).exists() for one in found.outcomes] == [False, True, True, False]
    assert [*folder.glob("probe-*")] == []


@pytest.mark.real
def test_programs_of_the_sources_with_tensors_run_in_eager(tmp_path: Path) -> None:
    """No generator fails, and no program of it."""
    plan = HuntPlan(("types", "views", "opinfo", "config"), 3, sys.executable)
    with (
        outcomes.open_hunt(tmp_path / "hunt", plan, 90.0) as found,
        ProbeServer(tmp_path / "server", sys.executable, "build") as server,
    ):
        target_search.search_targets(found, server, math.inf, 8, lambda words: None)
    assert len(found.outcomes) == 8
    assert not {"lost", "eager-fails", "hang", "crash"} & {one.kind for one in found.outcomes}


@pytest.mark.real
def test_a_source_that_lacks_a_package_is_refused_and_a_signal_ends_the_search(
    tmp_path: Path,
) -> None:
    """The samples of operators need expecttest. What has run before a signal is kept."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "expecttest.py").write_text("raise ModuleNotFoundError(\"No module named 'x'\")")
    environ = clean_environ(PYTHONPATH=f"{site}:{ROOT}")
    row = ("--output-dir", str(tmp_path / "hunt"))
    refused = reprokit("hunt", "--source", "opinfo", *row, env=environ, cwd=tmp_path)
    assert refused.status == 2
    assert "--source opinfo needs a package that" in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    folder = tmp_path / "other"
    row = ("--source", "python", "--output-dir", str(folder))
    with subprocess.Popen(
        [sys.executable, "-m", "reprokit", "hunt", *row], env=environ, cwd=tmp_path
    ) as child:
        while not (folder / "outcomes.jsonl").exists():
            assert child.poll() is None
            time.sleep(0.1)
        child.terminate()
        assert child.wait(60) == 130
    assert HuntFolder(folder, HuntPlan(("python",), 0, sys.executable), 90.0).next_number


def test_a_seed_reproduces_each_target_whatever_runs_before() -> None:
    """Targets of a source differ, and each is a program with a factory."""
    texts = list(itertools.islice(source_table.targets("python", 5), 30))
    assert source_table.write_target("python", 5, 17) == texts[17]
    assert len(set(texts)) == 30
    assert source_table.write_target("python", 6, 17) != texts[17]
    for text in texts:
        compile(text, "target", "exec")
        assert "\ndef make():" in text


def test_a_hunt_goes_on_after_the_last_complete_line(tmp_path: Path) -> None:
    """A line that was cut off by a kill does not count, and a gap ends the list."""
    row = {"source": "python", "kind": "ok", "detail": "", "group": "", "cpu_s": 0.1}
    lines = [json.dumps({"number": number, **row}) for number in (0, 1, 3)]
    (tmp_path / "outcomes.jsonl").write_text("\n".join(lines) + '\n{"number": 4, "so')
    assert HuntFolder(tmp_path, HuntPlan(("python",), 0, "python"), 90.0).next_number == 2


def test_another_hunt_in_the_folder_and_an_unknown_source_are_refused(tmp_path: Path) -> None:
    """One line says what to change."""
    (tmp_path / "hunt.json").write_text(
        json.dumps({"schema": 1, "sources": ["python"], "seed": 3, "python": "python"})
    )
    other = reprokit("hunt", "--seed", "4", "--output-dir", tmp_path)
    assert other.status == 2
    assert "has a hunt with --source python --seed 3" in other.err
    unknown = reprokit("hunt", "--source", "opinfo,operators", "--output-dir", tmp_path)
    assert unknown.status == 2
    assert "--source operators: there is no such source" in unknown.err
