"""Remedies are selected by the kind of component that the bisection found."""

import ast
import dataclasses

import pytest

from reprokit.core.experiments.remedies import remedy_table
from reprokit.core.experiments.remedies.advice import advise
from reprokit.core.experiments.remedies.program_changes import changes_for
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.recompiles import GraphBreak, RecompiledFunction
from reprokit.core.records.remarks.cudagraph_skips import CudagraphSkip

WRONG = Verdict("wrong-result", "inductor", "values", "it differs")


def names(among: str, **compile: object) -> list[str]:
    seen = Observation(failing_part="inductor", departs="relu", departs_in=among)
    return [r.name for r in remedy_table.remedies_for(WRONG, seen, compile) if "relu" in r.name]


@pytest.mark.parametrize(
    ("among", "offered"),
    [
        ("lowerings", ["without the lowering of relu", "graph break at relu"]),
        ("post_grad_passes", ["without the pass relu"]),
        ("decomposition", []),
        ("", []),
    ],
)
def test_the_component_that_causes_the_failure_is_left_out_by_name(
    among: str, offered: list[str]
) -> None:
    """A lowering is not a pass, and only at an operator can a graph break."""
    assert names(among) == offered


def recompiled(*guards: str) -> Observation:
    worst = RecompiledFunction("forward", "train.py", 3, len(guards), guards)
    return Observation(recompiled=(worst,))


@pytest.mark.parametrize(
    ("guard", "advice"),
    [
        ("tensor 'x' size mismatch at index 1. expected 3, actual 4", "mark_dynamic(x, 1)"),
        ("tensor 'x' stride mismatch at index 0. expected 3, actual 4", "same layout"),
        ("tensor 'x' dtype mismatch. expected Float, actual Half", "give x the same dtype"),
        ("len(xs) == 8", "length of xs"),
        ("___check_obj_id(g, 94), type=<class 'function'>", "create g once"),
        ("___check_type_id(self, 94), type=<class 'Net'>", "more than the number of objects"),
        ("GLOBAL_STATE changed: grad_mode ", "the same grad_mode"),
        ("self.training == False", "once for training and once for evaluation"),
        ("G['n'] == 7", "torch.tensor(n)"),
        ("mode == 'mean'", "one function for each value of mode"),
        ("self.lr == 0.1", "self.lr = torch.tensor(...)"),
        ("something new", ""),
    ],
)
def test_a_guard_says_what_to_change(guard: str, advice: str) -> None:
    """The advice names the value of the guard. An unknown guard has none."""
    limit = Verdict("recompile-limit", "guards", "recompile_limit", "it")
    given = advise(limit, recompiled(guard))
    assert advice in given and bool(advice) is bool(given)


FUNDAMENTAL = (
    "This graph break is fundamental - it is unlikely that Dynamo will ever be able to trace"
    " through your code. Consider finding a workaround."
)
BREAK = Verdict("graph-break", "dynamo-trace", "it breaks", "a graph breaks")


def test_the_hints_of_dynamo_are_advice_and_settings() -> None:
    """A hint that names no change is none, and a setting in a hint is tried."""
    hints = (FUNDAMENTAL, "Use `torch.cond`.", "Set `torch._dynamo.config.allow_rnn = True` to go.")
    seen = Observation(breaks=(GraphBreak("it breaks", hints=hints),))
    assert advise(BREAK, seen) == "torch says: Use `torch.cond`"
    (setting,) = remedy_table.remedies_in_capture(BREAK, seen, "", "")
    assert setting.overrides == {"configs": {"torch._dynamo.config.allow_rnn": True}}
    assert advise(BREAK, Observation(breaks=(GraphBreak("it breaks", hints=(FUNDAMENTAL,)),))) == ""


SKIP = Verdict("cudagraph-skip", "cudagraphs", "mutated inputs", "skipped")


def test_a_skipped_cuda_graph_has_advice_and_a_setting() -> None:
    """Both depend on Inductor's reason."""
    mutated = Observation(skips=(CudagraphSkip("mutated inputs (1 instances)"),))
    assert "mark_static_address" in advise(SKIP, mutated)
    assert "GPU" in advise(SKIP, Observation(skips=(CudagraphSkip("cpu device (x)"),)))
    (setting,) = remedy_table.remedies_in_capture(SKIP, mutated, "", "")
    assert "cudagraph_support_input_mutation" in setting.name


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("cache[0][1:] = x * 2", "cache"),
        ("cache += x.add_(1)", "cache; x"),
        ("self.cache.copy_(x)", ""),
        ("y = x * 2", ""),
        ("if x.sum() > 0:", ""),
        ("with lock, lock:", ""),
    ],
)
def test_what_a_line_writes_is_marked_static(line: str, names: str) -> None:
    """A tensor with a name of its own, whatever the line is."""
    calls = "; ".join(f"torch._dynamo.mark_static_address({n})" for n in names.split("; ") if n)
    variants = remedy_table.remedies_in_capture(SKIP, Observation(), "", line)
    assert [v.name for v in variants[:-1]] == ([f"{calls} before the call"] if names else [])


ATTRIBUTE = """import torch
class Net(torch.nn.Module):
    def __init__(self):
        self.ä, self.steps = "ü", 0; self.limit: int = 3; self.limit = 4
    def start(self, n):
        self.steps = (
            n)
    def forward(self, x):
        self.steps = self.steps + 1
        return x * self.steps * self.limit
"""


def changed_lines(verdict: Verdict, seen: Observation, program: str, line: str = "") -> list[str]:
    variants = changes_for(verdict, seen, program, line)
    for variant in variants:
        ast.parse(variant.program)
    known = program.splitlines()
    return [line for v in variants for line in v.program.splitlines() if line not in known]


GLOBALS = """import torch
rate, steps = 0.5, 0
limit = 3
def f(x):
    limit = 4
    return x * rate + steps
def count():
    global steps
    steps = steps + 1
    limit = 5
for limit in range(9):
    rate: float = 0.5 / (limit + 1)
    limit = limit
"""


def test_several_values_that_change_are_changed_together() -> None:
    """Each global variable and attribute becomes a tensor, and each size is marked."""
    verdict = Verdict("recompile-limit", "guards", "recompile_limit", "it")
    seen = recompiled(*(f"G['limit'] == {n}" for n in range(4)))
    row = dataclasses.replace(seen.recompiled[0], also=("G['rate'] == 0.5", "G['rate'] == 0.25"))
    assert changed_lines(verdict, Observation(recompiled=(row,)), GLOBALS) == [
        "limit = torch.tensor(3)",
        "    rate: float = torch.tensor(0.5 / (limit + 1))",
    ]
    sizes = recompiled(*(f"tensor 'x' size mismatch at index 0. expected {n}" for n in range(4)))
    also = tuple(f"self.limit == {n}" for n in range(4))
    both = Observation(recompiled=(dataclasses.replace(sizes.recompiled[0], also=also),))
    (variant,) = changes_for(verdict, both, ATTRIBUTE, "")
    assert "and torch._dynamo.mark_dynamic(x, 0) before each call" in variant.name
    assert variant.overrides["dynamic_sizes"] == {"x": [0]} and "tensor(3)" in variant.program
    assert "mark_dynamic(x, 0)" in advise(verdict, both)
    assert "self.limit = torch.tensor(...)" in advise(verdict, both)


def test_the_number_of_an_attribute_becomes_a_tensor() -> None:
    """Wherever the program sets it, and not where it is computed from itself."""
    limit = Verdict("recompile-limit", "guards", "recompile_limit", "it")
    seen = recompiled("self.limit == 3", "self.limit == 4")
    assert changed_lines(limit, seen, ATTRIBUTE) == [
        '        self.ä, self.steps = "ü", 0; self.limit: int = torch.tensor(3);'
        " self.limit = torch.tensor(4)"
    ]
    assert (
        changed_lines(limit, recompiled("self.steps == 3"), ATTRIBUTE)
        == [
            "        self.steps = (",
            "            torch.tensor(n))",
        ][1:]
    )
    assert changed_lines(limit, recompiled("self.other == 3"), ATTRIBUTE) == []
    assert changes_for(limit, recompiled("self.steps == 3"), "not (python", "") == []


BREAKING = """import torch
def f(x):
    peak = x.max().item()
    print("it", x)
    return x / peak + int(
        x[0])
optimizer.step()
"""


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("peak = x.max().item()", ["    peak = x.max()"]),
        ("return x / peak + int(", ["    return x / peak + x[0]"]),
        ('print("it", x)', ["    pass"]),
        ("import torch", []),
        ("optimizer.step()", []),
    ],
)
def test_a_line_that_breaks_the_graph_is_changed(line: str, changed: list[str]) -> None:
    """A number stays a tensor, and a statement without a value goes."""
    assert changed_lines(BREAK, Observation(), BREAKING, line) == changed


def test_print_may_run_after_the_graph() -> None:
    """The setting that Dynamo's hint names is in a line of the program."""
    hint = "try adding it to `torch._dynamo.config.reorderable_logging_functions`"
    seen = Observation(breaks=(GraphBreak("it breaks", hints=(hint,)),))
    later = "torch._dynamo.config.reorderable_logging_functions.add(print)"
    assert later in changed_lines(BREAK, seen, BREAKING, 'print("it", x)')


def test_sizes_that_change_are_marked() -> None:
    """Each named tensor has its dimensions; attributes are not marked."""
    seen = recompiled(
        "tensor 'x' size mismatch at index 0. expected 3, actual 4",
        "tensor 'x' size mismatch at index 1. expected 3, actual 4",
        "tensor 'self.cache' size mismatch at index 0. expected 3, actual 4",
    )
    limit = Verdict("recompile-limit", "guards", "recompile_limit", "it")
    names = [variant.name for variant in remedy_table.remedies_in_capture(limit, seen, "", "")]
    assert names[:2] == ["torch._dynamo.mark_dynamic(x, [0, 1]) before each call", "dynamic=None"]


def test_no_graph_break_with_fullgraph() -> None:
    """With fullgraph=True a graph break is an error."""
    assert names("lowerings", fullgraph=True) == ["without the lowering of relu"]
