"""A hunt with a bug that the tests put into the compiler of every process."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reprokit.agent.hunt import mutants, shorten, source_table
from reprokit.agent.hunt.drawing import Drawing
from reprokit.core.shared.hunted_programs import is_script, no_steering, note_program
from reprokit.host.hunt import capture_findings, outcomes, source_places, target_search
from reprokit.host.hunt.capture_findings import CapturedFinding
from reprokit.host.hunt.outcomes import HuntFolder, HuntPlan
from reprokit.host.nightly.schedule import job_spec
from reprokit.host.nightly.suite.cells import SuiteCell
from reprokit.host.probe.client import ProbeServer
from reprokit.host.system import files
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
    return clean_environ(PYTHONPATH=f"{site}:{ROOT}", REPROKIT_COMPARE="0", **variables)


def hunt(folder: Path, *words: str) -> CallResult:
    """Hunt in ``folder`` with the planted bug."""
    row = ("--source", "python", "--output-dir", str(folder), "--json", *words)
    return reprokit("hunt", *row, env=planted_environ(folder.parent), cwd=folder.parent)


def seed_with(words: dict[int, str], others: tuple[str, ...] = ()) -> int:
    """Return the first seed whose targets have these words, and whose other targets do not."""
    for seed in itertools.count():
        texts = (source_table.write_target("python", seed, n).text for n in range(max(words) + 2))
        if all(
            words[n] in text if n in words else not any(word in text for word in others)
            for n, text in enumerate(texts)
        ):
            return seed
    raise AssertionError


@pytest.mark.real("it captures, reduces and proves a finding")
def test_a_planted_bug_is_found_reduced_and_proved_once(tmp_path: Path) -> None:
    """The second call in the same folder has nothing to do, and prints the same. It is confirmed
    although the environment turns comparisons off.
    """
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
    texts = [source_table.write_target("python", 5, number).text for number in range(30)]
    assert source_table.write_target("python", 5, 17).text == texts[17]
    assert len(set(texts)) == 30
    assert source_table.write_target("python", 6, 17).text != texts[17]
    for text in texts:
        compile(text, "target", "exec")
        assert "\ndef make():" in text


def test_what_ran_rarely_steers_the_next_programs() -> None:
    """A choice whose programs ran something rare is taken more often than one that was tried as
    often without that, and the same state gives the same program.
    """
    steering = no_steering()
    for number in range(30):
        note_program(steering, ["view:a"], [f"lowering {number}"])
        note_program(steering, ["view:b"], ["lowering add"])
    drawing = Drawing("0", steering)
    taken = [drawing.choose("view", ("a", "b")) for _ in range(200)]
    assert taken.count("a") > 5 * taken.count("b")
    texts = [source_table.write_target("python", 5, 1, state).text for state in (steering, None)]
    assert texts[0] == texts[1]
    (block, *_), state = source_table.write_target("python", 5, 1).chosen, no_steering()
    for _ in range(300):
        note_program(state, [block], [])
    changed = [source_table.write_target("python", 5, 1, state).text for _ in range(2)]
    assert changed[0] == changed[1] != texts[0]


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_a_mutant_names_its_program_and_is_reproduced_by_its_number(tmp_path: Path) -> None:
    """Each mutant is a program, and each kind of change is made."""
    parent = """import torch

def f(x):
    y = x + 1
    z = y * 2
    return z

torch.compile(f)(torch.randn(3, 4))
"""
    (tmp_path / "parent.py").write_text(parent)
    source = f"mutate={tmp_path}"
    targets = [source_table.write_target(source, 1, number) for number in range(60)]
    assert source_table.write_target(source, 1, 7) == targets[7]
    assert len({target.text for target in targets}) > 50
    for target in targets:
        compile(target.text, "mutant", "exec")
        assert mutants.parent_of(source, target.text) == parent
    made = {name for target in targets for name in target.chosen}
    assert {f"change:{name}" for name in mutants.CHANGES} <= made


def test_one_fault_through_different_definitions_has_one_group() -> None:
    """The words of a shortened program are its constructs and what it uses, without its names."""
    one, two = (
        f"""
class {name}:
    def __init__(self):
        self.{field} = 1
    def __eq__(self, other):
        return self.{field} == other.{field}
def function(x):
    {name.lower()} = {{{name}(): 1}}
    return x + len({name.lower()})
"""
        for name, field in (("Key", "v"), ("Point", "width"))
    )
    words = shorten.words_of_program(one)
    assert words == shorten.words_of_program(two)
    assert "__eq__" in words
    assert words != shorten.words_of_program(one.replace("__eq__", "__hash__"))


def test_a_shorter_program_loses_the_heads_of_blocks() -> None:
    """A statement inside a block stays without the block, if the failure needs only it."""
    text = """
def function(x):
    with torch.no_grad():
        for turn in range(3):
            x = x.wrong()
    y = 2
    return x
"""
    short = shorten.shorten_program(text, lambda one: "wrong" in one, math.inf)
    assert short.split() == "def function(x): x = x.wrong() return x".split()


def test_known_failures_and_a_program_of_the_user_are_changed(tmp_path: Path) -> None:
    """The folder of the hunt keeps the programs, and a factory is named make."""
    (places,) = source_places.prepare_places(tmp_path, ["mutate"])
    folder = Path(places.partition("=")[2])
    assert folder.parent == tmp_path
    assert len([*folder.iterdir()]) > 30
    own = tmp_path / "own.py"
    own.write_text("def build():\n    return torch.sin, ()\n")
    (source,) = source_places.read_sources(f"mutate={own}:build")
    (tmp_path / "second").mkdir()
    (places,) = source_places.prepare_places(tmp_path / "second", [source])
    text = (Path(places.partition("=")[2]) / "own.py").read_text()
    assert text.endswith("\nmake = build\n")
    assert not is_script(text)


def test_a_capture_compares_results_whatever_the_environment_says() -> None:
    """A script is captured as a command, and a program with a factory as a target."""
    settings = {"environment": "default", "compare": True}
    for command, target in (
        ((), ["--model", "p.py:make"]),
        (("{python}", "p.py"), ["--", "py", "p.py"]),
    ):
        cell = SuiteCell("p.py:make", command, settings)
        words, ending = job_spec.capture_words(cell, "py")
        assert "--compare" in words
        assert ending == target


def test_findings_that_a_proved_repro_explains_are_captured_last(tmp_path: Path) -> None:
    """The repro of the first finding needs one of its operators, and that is in the second one. A
    different kind of difference is no member.
    """
    groups = ("numbers add flip roll", "numbers add cat", "numbers cat", "dtype add cat")
    with outcomes.open_hunt(tmp_path, HuntPlan(("views",), 0, sys.executable), 9.0) as found:
        for number, group in enumerate(groups):
            one = outcomes.Outcome(number, "views", "wrong-result", "", group, 0.1)
            found.add_outcome(one, {"text": "import torch"})
        pack = tmp_path / "pack"
        pack.mkdir()
        (pack / "repro.py").write_text("y = torch.add(x, x)\n")
        words = capture_findings._words_left(groups[0], pack)
        assert words == ("numbers", "add")
        (pack / "repro.py").write_text("y = torch.sub(x, x)\n")
        assert capture_findings._words_left(groups[0], pack) == ()
        row = CapturedFinding(0, kind="wrong-result", lines=4, words=words)
        files.append_json(tmp_path / capture_findings.CAPTURED_FILE, dataclasses.asdict(row))
        assert capture_findings.captured_findings(found) == {0: row}
        pending = capture_findings.pending_findings(found)
        assert [one.number for one in pending] == [2, 3, 1]


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
    for words, why in (
        ("mutate=absent.py", "there is no file absent.py"),
        ("python=3", "only mutate=FILE.py[:FACTORY] and models=TYPE[+TYPE] have a place"),
    ):
        refused = reprokit("hunt", "--source", words, "--output-dir", tmp_path)
        assert refused.status == 2
        assert why in " ".join(refused.err.split())
