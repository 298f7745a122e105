"""Run a program of a hunt in a role, and return what its calls returned and changed.

A program with a factory ``make`` is called as a target is. A script runs with a ``torch.compile``
that records each call.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...core.shared.hunted_programs import is_script
from ...core.shared.result_comparison import COMPILED_ROLES
from ...core.shared.source import entry_programs
from .. import enter_compiler
from ..results import compare_results
from ..results.compare_results import ResultRows
from ..results.result_recorder import ResultRecorder
from ..run_target import call_model
from ..target import factory

PROGRAM_NAME = "hunted_program"


class ProgramRaised(Exception):
    """A program raised its cause; ``rows`` are the results of the calls before."""

    def __init__(self, rows: ResultRows) -> None:
        super().__init__("the program raised an exception")
        self.rows = rows


def run_program(text: str, role: str) -> ResultRows:
    """Run a program in a new module, and return the results of its calls.

    Raises ProgramRaised.
    """
    module = types.ModuleType(PROGRAM_NAME)
    sys.modules[PROGRAM_NAME] = module  # Dynamo looks globals up there
    recorder = ResultRecorder(role, "")
    try:
        torch.manual_seed(0)
        code = compile(text, f"<{PROGRAM_NAME}>", "exec", dont_inherit=True)
        if is_script(text):
            with _settings_kept(), _recording_entries(recorder):
                exec(code, module.__dict__)  # noqa: S102
        else:
            exec(code, module.__dict__)  # noqa: S102
            torch.manual_seed(0)
            _call_target(module, recorder)
        recorder.note_end()
    except Exception as error:
        raise ProgramRaised(compare_results.index_rows(recorder.rows)) from error
    return compare_results.index_rows(recorder.rows)


def _call_target(module: Any, recorder: ResultRecorder) -> None:
    target = factory.call_factory(module.make, PROGRAM_NAME, {})
    is_compiled = recorder.role in COMPILED_ROLES
    inner: Callable[..., Any] = target.model
    if isinstance(target.model, torch.nn.Module):
        target.model.train(target.train)
    if is_compiled:
        entry = target.entry or entry_programs.COMPILE
        inner = enter_compiler.enter_compiler(target.model, entry, target.compile)
    recorded = recorder.record(inner, target.model)
    for args, kwargs in target.calls:
        call_model(recorded, args, kwargs, target.train, lambda loss: loss.backward())


@contextlib.contextmanager
def _recording_entries(recorder: ResultRecorder) -> Iterator[None]:
    """Let ``torch.compile`` record; only a compiled role compiles."""
    real = torch.compile
    torch.compile = recorder.compile
    disabled = {} if recorder.role in COMPILED_ROLES else {"disable": True}
    try:
        with torch._dynamo.config.patch(disabled):
            yield
    finally:
        torch.compile = real


@contextlib.contextmanager
def _settings_kept() -> Iterator[None]:
    """Take back what a script sets for the whole process."""
    import torch._functorch.config
    import torch._inductor.config

    configs: list[Any] = [
        torch._dynamo.config,
        torch._inductor.config,
        torch._functorch.config,
    ]
    kept = [config.shallow_copy_dict() for config in configs]
    dtype, has_gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(has_gradients)
        for config, before in zip(configs, kept, strict=True):
            for name, value in config.shallow_copy_dict().items():
                if value is not before[name]:
                    setattr(config, name, before[name])
