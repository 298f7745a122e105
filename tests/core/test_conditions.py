"""The search for the conditions of a failure, and what a repro sets and checks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reprokit.core.experiments import condition_lines, failure_conditions, known_conditions, rates
from reprokit.core.experiments.failure_conditions import Condition, Conditions
from reprokit.core.experiments.known_conditions import Machine
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records import process_state
from reprokit.core.records.observation import Observation
from reprokit.core.reduce import repeated

MACHINE = Machine("AVX512", 4, 4)


def _search(needs: list[set[str]], broken: str = "") -> tuple[failure_conditions.Conditions, int]:
    """Search for the conditions of a failure that needs all of one of the sets; with ``broken``
    changed, the program fails in a different way.
    """
    all_of_them = known_conditions.conditions_of(MACHINE, "import torch\n")
    asked = 0

    def answer(changed: tuple[Condition, ...]) -> str:
        nonlocal asked
        asked += 1
        names = {condition.name for condition in changed}
        if broken in names:
            return "other"
        return "same" if any(not names & needed for needed in needs) else "passes"

    return failure_conditions.find_conditions(all_of_them, answer), asked


def test_a_failure_that_needs_nothing_costs_one_run() -> None:
    found, asked = _search([set()])
    assert asked == 1
    assert (found.needed, found.together, found.unknown) == ((), (), ())
    assert len(found.irrelevant) == len(known_conditions.conditions_of(MACHINE, "import torch\n"))
    assert found.sentence.startswith("Does not depend on: vector instructions, OpenMP threads,")


def test_the_smallest_set_is_found() -> None:
    found, _ = _search([{"vector instructions", "fast math"}])
    assert found.needed == (("vector instructions", "AVX-512"), ("fast math", "off"))
    assert found.sentence.startswith("Needs: vector instructions: AVX-512, fast math: off. Does")


def test_values_of_inputs_are_asked_first() -> None:
    """All at once, all but the likely ones, and each of those alone."""
    found, asked = _search([{"default dtype"}])
    assert found.needed == (("default dtype", "float32"),) and asked <= 4


def test_vector_instructions_are_asked_next() -> None:
    found, asked = _search([{"vector instructions"}])
    assert found.needed[0][0] == "vector instructions" and asked <= 4


def test_either_of_two_conditions_is_kept_apart() -> None:
    """Each may change alone, because the other one is enough."""
    found, _ = _search([{"fast math"}, {"default dtype"}])
    assert not found.needed
    assert {name for name, _ in found.together} == {"fast math", "default dtype"}
    assert not {"fast math", "default dtype"}.intersection(found.irrelevant)
    assert "Needs at least one of: default dtype: float32, fast math: off." in found.sentence


def test_a_change_with_a_different_failure_is_not_called_needed() -> None:
    found, _ = _search([set()], broken="default dtype")
    assert (found.needed, found.unknown) == ((), ("default dtype",))
    assert "Not known: default dtype." in found.sentence
    # a public text says what was found, not what was not
    assert "Not known" not in found.does_not_need[0].text
    assert not Conditions(unknown=("default dtype",)).does_not_need


def test_what_a_program_sets_is_no_condition() -> None:
    """Lines before do not matter, so nothing could be said about it."""
    text = (
        "torch.manual_seed(0)\ntorch.set_num_threads(3)\n"
        "torch._inductor.config.force_disable_caches = True\ntorch.compile(f, dynamic=True)\n"
    )
    names = {c.name for c in known_conditions.conditions_of(MACHINE, text)}
    gone = {"random seed", "OpenMP threads", "compiler caches", "dynamic shapes"}
    assert not names & gone and "fast math" in names
    reads = "assert torch._inductor.config.cpp.simdlen == 0\n"
    assert "vector instructions" in {c.name for c in known_conditions.conditions_of(MACHINE, reads)}
    assert "visible CPUs" not in {c.name for c in known_conditions.conditions_of(Machine(), "")}


@pytest.mark.parametrize("name", ["vector instructions", known_conditions.OF_ATEN])
def test_a_repro_checks_the_instructions_of_the_machine(name: str) -> None:
    """Whether AVX-512 is needed, or any vector instruction, is asked with the smaller change."""
    all_of_them = (
        *known_conditions.conditions_of(MACHINE, ""),
        *known_conditions.conditions_of_environment(MACHINE),
    )
    found = failure_conditions.Conditions(needed=((name, "AVX-512"),))
    for answer, needs in (("passes", "AVX-512"), ("same", "vector instructions")):
        lines = condition_lines.program_lines(all_of_them, found, lambda changed, a=answer: a)  # type: ignore[misc]
        assert f"{process_state.UNMET_WORDS}{needs}" in lines[1]


def test_threads_are_set_by_the_repro() -> None:
    found = failure_conditions.Conditions(needed=(("OpenMP threads", "4 threads"),))
    lines = condition_lines.program_lines(
        known_conditions.conditions_of(MACHINE, ""), found, lambda c: "same"
    )
    assert lines == ["torch.set_num_threads(4)"]


def test_any_other_failure_with_little_memory_means_that_memory_is_needed() -> None:
    """With too little memory, a program fails in its own way."""
    found, _ = _search([set()], broken="free memory")
    assert found.needed == (("free memory", "more than 4 GiB"),) and not found.unknown
    lines = condition_lines.program_lines(
        known_conditions.conditions_of(MACHINE, ""), found, lambda c: "same"
    )
    assert lines[0].endswith(" < 4 * 2**20:") and "more than 4 GiB of free memory" in lines[1]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=60)


def test_a_repro_starts_itself_again_with_a_hash_seed_that_fails() -> None:
    def answer(changed: tuple[Condition, ...]) -> str:
        return "same" if condition_lines.variables_of(changed) == {"PYTHONHASHSEED": "3"} else "x"

    lines = condition_lines.program_lines(
        known_conditions.conditions_of_environment(MACHINE),
        failure_conditions.Conditions(needed=(("hash seed", "random"),)),
        answer,
    )
    program = "\n".join([*lines, "print(os.environ['PYTHONHASHSEED'], sys.argv[1:])"])
    done = subprocess.run(
        [sys.executable, "-c", program, "word"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("3 ['word']\n", "")


@pytest.mark.parametrize(
    ("line", "is_asked"),
    [
        ('if os.environ.get("PYTHONHASHSEED") != "1": pass', True),
        ('if os.environ["PYTHONHASHSEED"] == "1": pass', True),
        ('os.environ["PYTHONHASHSEED"] = "1"', False),
        ("os.environ.setdefault('PYTHONHASHSEED', '1')", False),
        ("os.environ.update(PYTHONHASHSEED='1')", False),
        ("os.environ.update({'PYTHONHASHSEED': '1'})", False),
        ("# os.environ['PYTHONHASHSEED'] = '1'", True),
    ],
)
def test_a_variable_that_a_program_only_reads_is_a_condition(line: str, is_asked: bool) -> None:
    conditions = known_conditions.conditions_of_environment(MACHINE, line)
    assert ("hash seed" in {condition.name for condition in conditions}) == is_asked


def test_other_allocators_and_warm_caches_are_asked_by_the_command() -> None:
    machine = Machine(allocators=("libjemalloc.so.2",))
    usual = {c.name for c in known_conditions.conditions_of_environment(machine)}
    thorough = known_conditions.conditions_asked_alone(machine)
    more = {c.name: c for c in thorough if c.name not in usual}
    assert set(more) == {"compiler cache", "allocator (libjemalloc.so.2)"}
    assert condition_lines.variables_of([more["allocator (libjemalloc.so.2)"]]) == {
        "LD_PRELOAD": "libjemalloc.so.2"
    }


def test_a_program_moves_to_a_different_device() -> None:
    """Strings and methods that name the device change, but neither modules nor longer texts."""
    text = (
        "import torch\nimport torch.backends.cpu\n"
        "x = torch.ones(2, device='cpu').cpu()\ny = 'cpu time'\n"
    )
    moved = condition_lines.on_device(text, "cuda")
    assert moved == (
        'import torch\nimport torch.backends.cpu\ntorch.set_default_device("cuda")\n'
        "x = torch.ones(2, device=\"cuda\").cuda()\ny = 'cpu time'\n"
    )
    back = condition_lines.on_device("x = y.to('cuda:1', z).cuda()\n", "cpu")
    assert back == 'x = y.to("cpu", z).cpu()\n'
    with pytest.raises(ValueError, match="not a program"):
        condition_lines.on_device("x = (", "cpu")


def test_lines_come_after_the_imports() -> None:
    text = '"""Doc."""\nimport torch\nfrom torch import nn\n\n\ndef f():\n    pass\n'
    rows = condition_lines.with_lines(text, ["torch._inductor.config.cpp.simdlen = 0"]).splitlines()
    assert rows[2:5] == [
        "from torch import nn",
        "import torch._inductor.config",
        "torch._inductor.config.cpp.simdlen = 0",
    ]
    assert condition_lines.with_lines(text, []) == text
    late = "import os\nos.environ['A'] = '1'\nfrom torch import nn\nx = 1\n"
    assert condition_lines.with_lines(late, ["y = 2"]).splitlines()[2:5] == [
        "from torch import nn",
        "import torch",
        "y = 2",
    ]
    with pytest.raises(ValueError, match="not a program"):
        condition_lines.with_lines("def (", ["x = 1"])


def test_a_check_ends_the_program_with_its_own_status() -> None:
    lines = condition_lines.check_lines("1 + 1 == 2", "AVX-512")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == process_state.UNMET_STATUS
    assert process_state.unmet_need(done.returncode, done.stderr) == "AVX-512"
    assert process_state.unmet_need(1, done.stderr) == ""
    assert process_state.unmet_need(process_state.UNMET_STATUS, "something else\n") == ""


def test_a_capture_of_such_a_program_says_what_the_machine_lacks() -> None:
    seen = Observation(
        exit_status=process_state.UNMET_STATUS,
        is_command=True,
        stderr_tail=f"{process_state.UNMET_WORDS}AVX-512\n",
    )
    verdict = judge_run(seen)
    assert verdict.kind == "unknown"
    assert verdict.reason == "This machine cannot show the failure: it needs AVX-512."


def test_a_result_survives_json() -> None:
    found, _ = _search([{"fast math"}])
    assert failure_conditions.read_conditions(found.to_json()) == found
    with pytest.raises(ValueError):
        failure_conditions.read_conditions({"needed": 3})


def test_an_interval_contains_the_rate_and_becomes_smaller() -> None:
    """The values are those of Wilson's interval for 5 of 8 and 50 of 80."""
    low, high = rates.interval_of_rate(5, 8)
    assert (round(low, 2), round(high, 2)) == (0.31, 0.86)
    low, high = rates.interval_of_rate(50, 80)
    assert (round(low, 2), round(high, 2)) == (0.52, 0.72)
    assert rates.interval_of_rate(0, 0) == (0.0, 1.0)
    assert rates.interval_of_rate(8, 8)[1] == 1.0


def test_a_program_repeats_its_call_or_its_compile() -> None:
    text = (
        "import torch\n\n\ndef f(x):\n    return x + 1\n\n\nx = torch.ones(2)\n"
        "y = torch.compile(f)(x)\nassert y.sum() > 0\n"
    )
    (how, called), (also, compiled) = repeated.repeated_programs(text)
    assert (how, also) == ("it is called 20 times", "it is compiled and called 20 times")
    assert called.endswith(
        "for _ in range(20):\n    y = torch.compile(f)(x)\n    assert y.sum() > 0\n"
    )
    assert "for _ in range(20):\n    torch._dynamo.reset()\n    y = " in compiled
    assert "force_disable_caches = True" in compiled and "force_disable" not in called
    assert not [*repeated.repeated_programs("import torch\nprint(1)\n")]
    deep = "x = y.to('cpu')\nassert torch.compile(f)(x), 'differs'\n"
    assert len([*repeated.repeated_programs(deep)]) == 2
    assert not [*repeated.repeated_programs('torch.compile(f)(x)\ny = """a\nb"""\n')]
