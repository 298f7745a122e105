"""What torch writes about its compiles is read, and its graphs become programs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.reported import graph_programs, recorded_verdict, repro_programs, trace_records
from tests.support.environments import clean_environ

GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, s77: "Sym(s77)", L_x_: "f32[s77, 8][8, 1]cpu", L_w_: "f32[8, 4][1, 8]cpu"):
        l_x_ = L_x_
        # File: /home/me/model.py:10 in model, code: h = x @ w
        h: "f32[s77, 4][4, 1]cpu" = l_x_ @ L_w_;  l_x_ = None
        a: "i64[4][1]cpu" = torch.arange(4, device = device(type='cpu'))
        wrap_body_0 = self.wrap_body_0
        return (h + a, wrap_body_0(h))

    class wrap_body_0(torch.nn.Module):
        def forward(self, h: "f32[s77, 4][4, 1]cpu"):
            return h.sin()
"""
RUNNABLE = """\
import torch
from torch import tensor, device
import torch._inductor.config
torch._inductor.config.max_autotune = True
torch._inductor.config.trace.enabled = True
torch._functorch.config.functionalize_rng_ops = False
class Repro(torch.nn.Module):
    def forward(self, arg0_1, arg1_1):
        iota = torch.ops.prims.iota.default(8, start = 0, step = 1, dtype = torch.int64, device = device(type='cpu'), requires_grad = False)
        return (arg0_1 + iota,)
def load_args(reader):
    buf0 = reader.storage(None, 128)
    reader.tensor(buf0, (4, 8), (1, 4), is_leaf=True)  # arg0_1
    reader.symint(5)  # arg1_1
load_args._version = 0
mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
    with torch.no_grad():
        run_repro(mod, load_args, accuracy=False, command='run', save_dir=None, tracing_mode='real', check_str=None)
"""


def line(record: dict[str, Any], payload: str = "") -> str:
    head = "V1129 23:15:36.879000 28383 torch/_dynamo/utils.py:1] "
    rows = "".join(f"\t{row}\n" for row in payload.splitlines())
    return f"{head}{json.dumps(record)}\n{rows}"


def of(number: int = 0, **fields: Any) -> dict[str, Any]:
    return {**fields, "frame_id": 0, "frame_compile_id": number, "attempt": 0}


def tensor_of(number: int, source: str, size: list[int], stride: list[int]) -> str:
    facts = {"id": number, "dtype": "torch.float32", "device": "device(type='cpu')"}
    facts |= {"size": size, "stride": stride, "is_leaf": True, "describer_id": 0}
    return line(of(describe_tensor=facts)) + line(
        of(describe_source={"describer_id": 0, "id": number, "source": source})
    )


FAILED = of(
    compilation_metrics={
        "co_name": "model",
        "co_filename": "/home/me/model.py",
        "co_firstlineno": 9,
        "fail_type": "InductorError",
        "fail_reason": "KeyError: 'buf1'",
        "entire_frame_compile_time_s": 2.5,
    }
)
TRACE = (
    line({"artifact": {"name": "torch_version"}}, '{"pytorch_version": "2.13.0"}')
    + line(of(dynamo_start={}))
    + tensor_of(0, "L['x']", [5, 8], [8, 1])
    + tensor_of(1, "L['w']", [8, 4], [1, 8])
    + line(of(dynamo_output_graph={}), GRAPH)
    + line(of(artifact={"name": "fx_graph_runnable"}), RUNNABLE)
    + line(FAILED)
)


def read(text: str) -> trace_records.RunRecord:
    assert trace_records.is_trace(text)
    return trace_records.read_trace(text.splitlines(keepends=True))


def test_the_failing_compile_of_a_trace_is_named() -> None:
    """The verdict has the innermost exception, the function and the slowest compile."""
    verdict = recorded_verdict.judge_records([read(TRACE)])
    assert verdict.kind == "exception" and verdict.is_failure
    assert verdict.reason == "compile 0/0 of model raised KeyError: 'buf1'"
    assert dict(verdict.rows)["slowest"] == "compile 0/0 of model, 2.5 s"
    assert (verdict.reported.error, verdict.reported.torch) == ("KeyError", "2.13.0")


def test_a_trace_from_windows_is_read() -> None:
    """It has the same compiles, graphs and errors."""
    assert read(TRACE.replace("\n", "\r\n")) == read(TRACE)


def test_the_graph_of_dynamo_becomes_a_program() -> None:
    """Sizes that are symbols have their values, strides are kept, submodules are made, settings are
    set, and no comment names the user's files.
    """
    failed = read(TRACE).failed
    assert failed is not None
    first, second = graph_programs.programs_of_compile(failed)
    ast.parse(first.text)
    assert "/home/me" not in first.text and "device(" not in first.text
    assert "self.wrap_body_0 = GraphModule_wrap_body_0()" in first.text
    assert "\nclass GraphModule_wrap_body_0(" in first.text  # one inside would hide the module
    assert "    5,\n    torch.randn(5, 8),\n" in first.text
    assert "torch.randn(32).as_strided((8, 4), (1, 8))" in first.text
    assert "torch._inductor.config.max_autotune = True" in first.text
    assert "torch.compile(GraphModule(), dynamic=True)(*inputs)" in first.text
    assert "trace.enabled" not in first.text and "functionalize" not in first.text
    assert "run_repro" not in second.text and "iota = torch.arange(8)" in second.text


@pytest.mark.parametrize(
    ("record", "part"),
    [("aot_joint_graph", ".backward()"), ("aot_inference_graph", "with torch.no_grad():\n")],
)
def test_a_program_has_gradients_as_the_recorded_one(record: str, part: str) -> None:
    text = TRACE.replace('"is_leaf": true', '"is_leaf": true, "requires_grad": true')
    failed = read(text.replace(line(FAILED), line(of(**{record: {}})) + line(FAILED))).failed
    assert failed is not None
    program = graph_programs.programs_of_compile(failed)[0].text
    assert part in program and "torch.randn(5, 8, requires_grad=True)" in program
    failed = read(text).failed  # it failed before either
    assert failed is not None
    program = graph_programs.programs_of_compile(failed)[0].text
    assert "backward()" not in program and "no_grad" not in program


def test_a_program_of_the_minifier_becomes_one_that_calls_torch_compile() -> None:
    text = RUNNABLE.replace("after_aot", "after_dynamo").replace(
        "tracing_mode='real', check_str=None", "autocast=False, backend='aot_eager'"
    )
    program = repro_programs.program_of_repro(text.replace("accuracy=False", "accuracy=True"))
    assert program.checks_accuracy
    assert "torch.compile(Repro(), backend='aot_eager', dynamic=True)(*inputs)" in program.text
    assert "no_grad" not in program.text
    for wrong in ("generator(5)", "tensor(buf0, x)", "tensor(buf0, (4, 8), (x,))", "symint('a')"):
        with pytest.raises(repro_programs.NotConverted):
            repro_programs.program_of_repro(text.replace("symint(5)", wrong))
    with pytest.raises(repro_programs.NotConverted, match="its size s0 has no value"):
        repro_programs.program_of_repro(text.replace("symint(5)", "symint(s0)"))
    with pytest.raises(repro_programs.NotConverted, match="its backend is a function"):
        repro_programs.program_of_repro(text.replace("backend='aot_eager'", "backend=None"))
    inner = text.replace("mod = Repro()", "mod = <lambda>()")  # as torch prints a graph in a graph
    with pytest.raises(repro_programs.NotConverted, match=r"line 16: mod = <lambda>\(\)"):
        repro_programs.program_of_repro(inner)
    with pytest.raises(repro_programs.NotConverted, match="it has 2 load_args"):
        repro_programs.program_of_repro(f"{text}\ndef load_args(reader):\n    pass\n")


def test_inputs_that_share_memory_share_it_in_the_program() -> None:
    """Offsets are kept, sizes may be products of symbols that the file sets, and variables of the
    environment that change a compile are set; names of folders are not.
    """
    rows = [
        "reader.symint(2, expr='s77')",
        "reader.tensor(buf0, (s0, s77*s0), is_leaf=True)",
        "reader.tensor(buf0, (2,), storage_offset=6, is_leaf=True)",
        "buf9 = reader.storage(None, 8)",
        "reader.tensor(buf9, (2,), storage_offset=3, is_leaf=True)",
        "load_args._version = 0",
    ]
    text = RUNNABLE.replace("reader.symint(5)", "\n    ".join(rows))
    lines = [
        "import os",
        "os.environ['TORCHINDUCTOR_MAX_AUTOTUNE'] = '1'",
        "os.environ['TORCHINDUCTOR_CACHE_DIR'] = '/home/me/cache'",
        "os.environ['TORCH_LOGS'] = '+dynamo'",
        "s0 = 4",
        "# torch version: 2.10.0+cu128",
    ]
    program = repro_programs.program_of_repro("\n".join([*lines, text]))
    ast.parse(program.text)
    assert program.torch == "2.10.0+cu128"
    assert program.text.startswith(
        "import os\n\nos.environ['TORCHINDUCTOR_MAX_AUTOTUNE'] = '1'\n\nimport torch\n"
    )
    assert "CACHE_DIR" not in program.text and "TORCH_LOGS" not in program.text
    assert "buf0.as_strided((4, 8), (8, 1), 0),\n" in program.text
    assert "buf0.as_strided((2,), (1,), 6),\n" in program.text
    assert "buf9 = torch.randn(5)\n" in program.text


COLLECTIVE = """
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, 4][4, 1]cpu"):
        l_x_ = L_x_
        ar: "f32[4, 4]" = torch.ops._c10d_functional.all_reduce.default(l_x_, "avg", "0")
        ag: "f32[12, 4]" = torch.ops._c10d_functional.all_gather_into_tensor.default(ar, 3, "0")
        done: "f32[12, 4]" = torch.ops._c10d_functional.wait_tensor.default(ag);  ag = None
        return (done,)
"""


def test_a_graph_with_collectives_is_that_of_one_rank() -> None:
    """The group of all ranks is a fake one. A group of some ranks is not known from the graph."""
    made = graph_programs.program_of_dynamo_graph(COLLECTIVE, {})
    assert made is not None
    assert 'dist.init_process_group("fake", rank=0, world_size=3' in made.text
    text = COLLECTIVE.replace('3, "0"', '3, "7"')
    made = graph_programs.program_of_dynamo_graph(text, {})
    assert made is not None and "init_process_group" not in made.text


@pytest.mark.real
def test_the_program_of_one_rank_runs(tmp_path: Path) -> None:
    made = graph_programs.program_of_dynamo_graph(COLLECTIVE, {}, backend="aot_eager")
    assert made is not None
    (tmp_path / "rank.py").write_text(made.text)
    command = [sys.executable, tmp_path / "rank.py"]
    done = subprocess.run(command, env=clean_environ(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_graph_of_a_backend_of_the_user_is_no_program() -> None:
    """With Inductor it would show nothing about that backend."""
    failed = read(TRACE).failed
    assert failed is not None
    failed.message = "backend='mine' raised:\nKeyError: 'buf1'"
    failed.runnables.clear()
    assert graph_programs.programs_of_compile(failed) == []


def test_a_graph_whose_attribute_has_no_text_is_no_program() -> None:
    failed = read(TRACE).failed
    assert failed is not None
    graph = GRAPH.replace("self.wrap_body_0\n", "self.weight\n")
    assert graph != GRAPH
    assert graph_programs.program_of_dynamo_graph(graph, failed.tensors) is None


EXPORTED = """\
ExportedProgram:
    class GraphModule(torch.nn.Module):
        def forward(self, x: "i64[]", y: "f32[s0, 2]"):
             # File: /home/me/export.py:274 in forward, code: z = torch.cat([y, y])
            cat: "f32[2*s0, 2]" = torch.ops.aten.cat.default([y, y]);  y = None
            return (cat,)

Graph signature: ExportGraphSignature(input_specs=[])
Range constraints: {u0: VR[-int_oo, 15], s0: VR[3, 5]}
"""


def test_an_exported_program_of_a_trace_becomes_a_program() -> None:
    """A size that is a symbol gets a value in its range, because torch prints no value."""
    text = line({"exported_program": {}}, EXPORTED)
    run = trace_records.read_trace(text.splitlines(keepends=True))
    verdict = recorded_verdict.judge_records([run])
    assert (verdict.kind, verdict.reason) == ("ok", "1 exported program and no compile")
    (program,) = graph_programs.programs_of_compiles(list(run.compiles.values()))
    assert program.made_from == "the exported program"
    assert "torch.randn((5, 2), dtype=torch.float32)" in program.text


@pytest.mark.parametrize("cut", [10, 200, 900, 2000])
def test_a_trace_that_is_cut_short_is_read(cut: int) -> None:
    """A compile without its end is no claim about why it did not end."""
    text = TRACE[: TRACE.index(line(FAILED))]
    run = trace_records.read_trace(text[: len(text) - cut].splitlines(keepends=True))
    verdict = recorded_verdict.judge_records([run])
    assert verdict.kind == "unknown"
    assert "hung, crashed or was killed in it, or still runs" in verdict.reason


def test_recompiles_and_graph_breaks_have_their_reasons() -> None:
    refused = FAILED["compilation_metrics"] | {"fail_type": "FailOnRecompileLimitHit"}
    why = json.dumps(["0/0: self.n == 0  # self.n += 1\nUser stack trace:\n  x"])
    text = line(of(compilation_metrics={"co_name": "f"})) + line(
        of(1, artifact={"name": "recompile_reasons"}), why
    )
    verdict = recorded_verdict.judge_records(
        [read(text + line(of(1, compilation_metrics=refused)))]
    )
    assert verdict.kind == "recompile-limit" and "after 1 compile" in verdict.reason
    assert "not 0/0: self.n == 0 # self.n += 1" in dict(verdict.rows)["recompiles"]
    warned = refused | {
        "fail_type": "Unsupported",
        "fail_reason": "Dynamo recompile limit exceeded",
    }
    run = read(text + line(of(1, compilation_metrics=warned)))  # torch 2.12, without fullgraph=True
    assert recorded_verdict.judge_records([run]).kind == "recompile-limit"
    broken = (
        "Graph break in user code at m.py:7\nGraph Break Reason: Encountered\n\nCall to print\n"
    )
    text = line(of(artifact={"name": "dynamo_graph_break_reason"}), broken)
    verdict = recorded_verdict.judge_records([read(text + line(of(compilation_metrics={})))])
    assert (verdict.kind, verdict.is_failure) == ("graph-break", False)
    assert dict(verdict.rows)["break"] == "m.py:7: Call to print"


PARTIAL = """


def forward(self, arg0_1: "f32[3][1]cpu"):
    # File: /home/me/model.py:5 in forward, code: if x.sum() > 0:
    sum_1: "f32[][]cpu" = torch.ops.aten.sum.default(arg0_1);  arg0_1 = None
    gt: "b8[][]cpu" = torch.ops.aten.gt.Scalar(sum_1, 0);  sum_1 = None

"""


def test_a_failed_export_is_no_compile_that_is_missing() -> None:
    """The trace has what was traced before the exception, or an error whose record has no frame."""
    text = line({"artifact": {"name": "make_fx_fail_partial"}}, PARTIAL)
    verdict = recorded_verdict.judge_records([read(text)])
    assert (verdict.kind, verdict.reason) == (
        "unknown",
        "the trace of torch.export or make_fx failed at /home/me/model.py:5, after 2 operators",
    )
    assert "does not record" in verdict.missing[0]
    reason = 'Data-dependent branching\n  File "/x/torch/_dynamo/functional_export.py", line 2'
    failed = {"fail_type": "torch._dynamo.exc.Unsupported", "fail_reason": reason}
    begun = line(of(describe_source={"describer_id": 0, "id": 0, "source": "L['x']"}))
    verdict = recorded_verdict.judge_records([read(begun + line({"compilation_metrics": failed}))])
    assert (verdict.kind, verdict.is_failure) == ("graph-break", True)
    assert verdict.reason == "compile 0/0 for torch.export: Data-dependent branching"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (
            '{"function": "f", "call": 7, "name": "output", "expected": "1.0", "got": "3.0",'
            ' "count": 2, "total": 16}',
            "output of f differs from eager in 2 of 16 elements, in call 7: 3.0 instead of 1.0",
        ),
        ('{"call": "7", "count": [], "name": {}}', "differs from eager, in call 0"),
        ("[1]", "differs from eager"),
    ],
)
def test_a_difference_from_eager_is_a_wrong_result(payload: str, words: str) -> None:
    """Also a damaged one, because nothing else in the file is a failure."""
    text = line({"artifact": {"name": "reprokit_difference"}}, payload)
    run = trace_records.read_trace(text.splitlines(keepends=True))
    verdict = recorded_verdict.judge_records([run])
    assert verdict.kind == "wrong-result" and verdict.is_failure and words in verdict.reason


def test_ranks_with_different_graphs_are_named() -> None:
    runs = [read(TRACE) for _ in range(3)]
    for rank, run in enumerate(runs):
        run.rank = rank
        run.compiles["0/0"].graphs = [GRAPH.replace("cpu", f"cuda:{rank}")]
    assert "ranks" not in dict(recorded_verdict.judge_records(runs).rows)
    runs[1].compiles["0/0"].graphs = ["class GraphModule: pass"]
    verdict = recorded_verdict.judge_records(runs)
    assert dict(verdict.rows)["ranks"] == "rank 1 has a different graph of compile 0/0"


@pytest.mark.parametrize(
    "graph",
    [
        GRAPH.replace('"f32[8, 4][1, 8]cpu"', '"__import__(1)"').replace("L_w_", "L_v_"),
        GRAPH.replace("(torch.nn.Module):\n    def forward", ":\n    def backward", 1),
        "x" * 100,
        "class A: pass\nclass B: pass",
    ],
)
def test_a_graph_that_is_not_understood_is_no_program(graph: str) -> None:
    failed = read(TRACE.replace("".join(f"\t{row}\n" for row in GRAPH.splitlines()), "")).failed
    assert failed is not None
    assert graph_programs.program_of_dynamo_graph(graph, failed.tensors) is None


def test_records_of_a_stranger_cost_little() -> None:
    """Deep JSON, numbers without end and lines without a record are skipped."""
    deep = "V1129 23:15:36.879000 1 a.py:1] " + '{"a":' * 100_000
    rows = [TRACE, deep, "\n", "{" * 1000, "\n", line(of(number=10**30, dynamo_start={}))]
    rows.append(line(of(describe_tensor={"id": [1], "describer_id": {}})))
    run = trace_records.read_trace("".join(rows).splitlines(keepends=True))
    assert run.failed is not None and run.problems
