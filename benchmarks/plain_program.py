"""Run a program of a capture without reprokit: a factory, or a script, with changes.

python plain_program.py SPEC    where SPEC is JSON: file or module, factory, train, options, changes

python plain_program.py --serve    runs each SPEC of its input in a fork, after one import of torch

It imports nothing of reprokit. It prints what reprokit states about a run, by torch's own means, in
the last line of its output: the exceptions, and whether compiled results differ from those of eager.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import json
import math
import os
import re
import runpy
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch

MARK = "plain-program: "
COMPILE: Any = torch.compile
spec_is_training = False
found: dict[str, Any] = {"differences": [], "calls": 0}


def apply_changes(changes: dict[str, Any]) -> None:
    """Change settings and the arguments of torch.compile, and run lines of code."""
    exec(changes.get("lines", ""), {"torch": torch})
    if changes.get("without_application"):
        leave_out(*changes["without_application"])
    if changes.get("without_passes"):
        leave_out_own_passes()
    for name, value in changes.get("configs", {}).items():
        place, _, key = name.rpartition(".")
        words = place.split(".")
        module: Any = importlib.import_module(".".join(words[: words.index("config") + 1]))
        for word in words[words.index("config") + 1 :]:
            module = getattr(module, word)
        setattr(module, key, value)


def leave_out(what: str, name: str) -> None:
    """Leave out a pass, a lowering or a decomposition, and note whether it would have run."""
    if what.endswith("pass"):
        from torch.fx.passes.graph_transform_observer import GraphTransformObserver as Observer

        for method in ("apply_graph_pass", "apply_gm_pass"):
            setattr(Observer, method, unless_named(getattr(Observer, method), name))
        return
    table: Any = importlib.import_module(f"torch._inductor.{what}").__dict__
    operator = re.sub(r"_\d+$", "", name.rpartition(".")[2])
    for key in [
        k for k in table[f"{what}s"] if getattr(k, "_overloadname", "") and k._opname == operator
    ]:
        found["left_out"] = True
        del table[f"{what}s"][key]
        if what == "lowering":
            table["make_fallback"](key, warn=False, override_decomp=True)


def unless_named(method: Any, name: str) -> Any:
    """Return a method of torch's observer of passes that does not run the pass ``name``."""

    def apply(self: Any, function: Any) -> Any:
        if self.passname == name:
            found["left_out"] = True
            return None
        return method(self, function)

    return apply


def leave_out_own_passes() -> None:
    """Compile without the passes that a program sets in the configuration of Inductor."""
    compile_fx: Any = importlib.import_module("torch._inductor.compile_fx")
    config: Any = importlib.import_module("torch._inductor.config")
    original = compile_fx.compile_fx
    stages = ("pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass", "post_grad_custom_post_pass")  # fmt: skip

    def compile_without(*words: Any, **options: Any) -> Any:
        found["left_out"] = any(getattr(config, stage) is not None for stage in stages)
        with config.patch(dict.fromkeys(stages)):
            return original(*words, **options)

    compile_fx.compile_fx = compile_without


def tensors_of(value: object) -> list[torch.Tensor]:
    """Return the tensors of a result, in their order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [one for item in value.values() for one in tensors_of(item)]
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in tensors_of(item)]
    return []


def difference(eager: object, compiled: object) -> str:
    """Return how two results differ; empty if they do not."""
    for number, (one, two) in enumerate(zip(tensors_of(eager), tensors_of(compiled), strict=False)):
        if one.dtype != two.dtype:
            return f"output {number}: dtype {one.dtype} and {two.dtype}"
        if one.shape != two.shape:
            return f"output {number}: shape {tuple(one.shape)} and {tuple(two.shape)}"
        try:
            torch.testing.assert_close(two, one, equal_nan=True)
        except AssertionError as problem:
            wrong = (~torch.isclose(one, two, rtol=1e-3, atol=1e-4, equal_nan=True)).nonzero()
            place = tuple(wrong[0].tolist()) if len(wrong) else ()
            values = [one[place].item(), two[place].item()] if place or one.dim() == 0 else []
            return f"output {number}: {values} {str(problem).splitlines()[0]}"
    return ""


def run_both(function: Any, compiled: Any, words: Any, options: Any) -> Any:
    """Call a function in eager and compiled, with equal inputs, and note how the results differ."""
    found["calls"] += 1
    raised = ""
    try:
        inputs = copy.deepcopy((words, options))
        eager_function = copy.deepcopy(function)
        state = torch.get_rng_state()
        with torch.compiler.set_stance("force_eager"):
            try:
                eager = eager_function(*inputs[0], **inputs[1])
            except Exception as problem:
                raised = type(problem).__name__
                raise
            grads = gradients(eager, eager_function, inputs) if spec_is_training else []
        torch.set_rng_state(state)
    except Exception:
        result = compiled(*words, **options)
        if raised:
            found["differences"].append(f"eager raises {raised}, compiled code does not")
        return result
    result = compiled(*words, **options)
    with torch.no_grad():
        if differs := difference((eager, inputs), (result, (words, options))):
            found["differences"].append(differs)
    if spec_is_training:
        compiled_grads = gradients(result, function, (words, options))
        if differs := difference(grads, compiled_grads):
            found["differences"].append(f"gradient of {differs}")
    return result


def gradients(outputs: object, called: Any, given: Any) -> list[torch.Tensor]:
    """Return the gradients of inputs and parameters; the graph stays for the program."""
    losses = [t.float().sum() for t in tensors_of(outputs) if t.requires_grad]
    leaves = [t for t in tensors_of(given) if t.requires_grad]
    leaves += [*called.parameters()] if isinstance(called, torch.nn.Module) else []
    if not losses or not leaves:
        return []
    total = torch.stack(losses).sum()
    grads = torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
    return [g if g is not None else torch.zeros(()) for g in grads]


class Compiled:
    """A compiled function, whose results are compared with those of eager."""

    def __init__(self, function: Any, compiled: Any) -> None:
        self.function, self.compiled = function, compiled

    def __call__(self, *words: Any, **options: Any) -> Any:
        return run_both(self.function, self.compiled, words, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiled, name)


def run_factory(spec: dict[str, Any], changes: dict[str, Any]) -> None:
    """Build the target as the documentation of factories says, compile it, and call it."""
    if spec["file"].endswith(".py"):
        sys.path.insert(0, spec["file"].rpartition("/")[0])
        module_spec = importlib.util.spec_from_file_location("target_of_claims", spec["file"])
        assert module_spec is not None and module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        sys.modules["target_of_claims"] = module
        module_spec.loader.exec_module(module)
    else:
        module = importlib.import_module(spec["file"])
    made = getattr(module, spec["factory"])()
    made = made if isinstance(made, dict) else {"model": made[0], "calls": [_call_of(made)]}
    options = {**made.get("compile", {}), **spec.get("options", {}), **changes.get("compile", {})}
    model = made["model"]
    global spec_is_training
    is_training = made.get("train", False) or spec.get("train", False)
    spec_is_training = bool(is_training and spec.get("compares"))
    compiled = model if changes.get("without_compile") else COMPILE(model, **options)
    for words, named in made.get("calls", [((), {})]):
        result = run_both(model, compiled, words, named)
        losses = [t for t in tensors_of(result) if t.requires_grad]
        if is_training and losses:
            torch.stack([loss.float().sum() for loss in losses]).sum().backward()


def with_changed_lines(
    spec: dict[str, Any], replaces: dict[str, str], folder: str
) -> dict[str, Any]:
    """Return the specification of a copy of the program in which whole lines are replaced."""
    file = Path(spec["file"])
    rows = [replaces.get(row, row) for row in file.read_text().splitlines()]
    copy = Path(folder) / file.name
    copy.write_text("\n".join([*rows, ""]))
    sys.path.insert(0, str(file.parent))
    return {**spec, "file": str(copy)}


def _call_of(made: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    words = made[1] if isinstance(made[1], (list, tuple)) else (made[1],)
    return words, made[2] if len(made) == 3 else {}


def run_script(spec: dict[str, Any], changes: dict[str, Any]) -> None:
    """Run a script as a program, with other arguments of torch.compile."""
    changed = changes.get("compile", {})

    def compile_changed(model: Any = None, **options: Any) -> Any:
        options = {**options, **changed}
        if "backend" in changed and changed["backend"] != "inductor":
            options.pop("mode", None)
            options.pop("options", None)
        if model is None:
            return lambda function: compile_changed(function, **options)
        compiled = model if changes.get("without_compile") else COMPILE(model, **options)
        is_function = not isinstance(model, torch.nn.Module)
        return Compiled(model, compiled) if spec.get("compares") and is_function else compiled

    if changed or spec.get("compares"):
        torch.compile = compile_changed
    sys.argv = [spec["file"], *spec.get("words", [])]
    if spec.get("module"):
        sys.path.insert(0, os.getcwd())
        runpy.run_module(spec["module"], run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(spec["file"]).rpartition("/")[0])
    runpy.run_path(spec["file"], run_name="__main__")


def main() -> None:
    """Run the program, and print what was found."""
    del sys.path[0]  # the folder of this file
    if sys.argv[1] == "--serve":
        for line in sys.stdin:
            print(json.dumps(run_fork(json.loads(line))), flush=True)
    else:
        run_program(json.loads(sys.argv[1]))


def run_fork(asked: dict[str, Any]) -> dict[str, Any]:
    """Run a program in a fork: its own group, folder, output and log. Return how it ended."""
    pid = os.fork()
    if not pid:
        os.setsid()
        os.chdir(asked["folder"])
        os.environ.update(asked["variables"])
        null, out = os.open(os.devnull, os.O_RDONLY), os.open(asked["out"], os.O_WRONLY)
        for number, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(number, target)
        torch._logging._internal.LOG_TRACE_HANDLER = None  # it has the folder of this process
        torch._logging._internal._init_logs()
        status = 1
        try:
            run_program(asked["spec"])
            status = 0
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else int(left.code is not None)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    end = time.monotonic() + asked["limit_s"]
    done, status, usage = os.wait4(pid, os.WNOHANG)
    while not done and time.monotonic() < end:
        time.sleep(0.05)
        done, status, usage = os.wait4(pid, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not done:
        os.wait4(pid, 0)
        return {"status": None, "cpu_s": 0.0, "peak_bytes": 0}
    cpu_s = usage.ru_utime + usage.ru_stime
    ended = os.waitstatus_to_exitcode(status)
    return {"status": ended, "cpu_s": cpu_s, "peak_bytes": usage.ru_maxrss * 1024}


def run_program(spec: dict[str, Any]) -> None:
    """Run one program."""
    changes = spec.get("changes", {})
    apply_changes(changes)
    failure: BaseException | None = None
    run = run_factory if spec.get("factory") else run_script
    try:
        with tempfile.TemporaryDirectory() as folder:
            if replaces := changes.get("replaces"):
                spec = with_changed_lines(spec, replaces, folder)
            run(spec, changes)
    except SystemExit as left:
        failure = left if left.code not in (0, None) else None
    except BaseException as problem:
        failure = problem
        traceback.print_exc()
        chain: list[str] = []
        link: BaseException | None = problem
        while link is not None:
            chain.append(f"{type(link).__module__}.{type(link).__qualname__}")
            link = link.__cause__ or link.__context__
        found["chain"] = chain
    counters: Any = torch._dynamo.utils.counters
    found["breaks"] = sum(counters.get("graph_break", {}).values())
    found["graphs"] = counters.get("stats", {}).get("unique_graphs", 0)
    text = json.dumps(found, default=lambda value: None if math.isnan(value) else str(value))
    print(f"\n{MARK}{text}", flush=True)
    if failure is not None:
        sys.exit(failure.code if isinstance(failure, SystemExit) else 1)


if __name__ == "__main__":
    main()
