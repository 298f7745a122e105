"""Run a target, or answer a request of the host about an interpreter.

``start_module.py _reprokit.agent`` with ``run SPEC.json``, ``env``, ``configs``, ``hooks``,
``gpus``, ``simulates``, ``models REQUEST``, ``kernels FILE`` or ``launches FILE``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback

from ..core.shared.contract import events
from ..core.shared.contract.run_spec import RunSpec
from ..core.shared.contract.serialize import from_json


def main(argv: list[str]) -> int:
    """Return the exit status: 0 finished, 1 the target raised, 2 the target cannot be used."""
    if argv[0] == "env":
        from . import inventory

        print(json.dumps(inventory.collect_inventory(), default=repr))
        return 0
    if argv[0] == "configs":
        from .record import compile_settings

        print(json.dumps(compile_settings.torch_default_texts()))
        return 0
    if argv[0] == "models":
        from .target.hf import model_types

        print(json.dumps(model_types.answer_models(json.loads(argv[1])), default=repr))
        return 0
    if argv[0] == "hooks":
        from .torch_hooks import symbols

        print(json.dumps(symbols.check_symbols()))
        return 0
    if argv[0] == "gpus":
        print(json.dumps(describe_gpus()))
        return 0
    if argv[0] == "simulates":
        import torch  # noqa: F401 - the import hook then sets up the simulation

        from . import simulate

        print(json.dumps(simulate.problem))
        return 0
    if argv[0] in ("kernels", "launches"):
        return write_kernels(argv[1], argv[0] == "launches")
    with open(argv[1]) as file:
        return run_factory(from_json(RunSpec, json.load(file)))


def describe_gpus() -> list[dict[str, int | str]]:
    """Return the properties of each GPU that torch sees: the fields of ``core.shared``'s Gpu."""
    import dataclasses

    import torch

    from ..core.shared.simulation import Gpu

    names = [f.name for f in dataclasses.fields(Gpu)]
    devices = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    return [{n: getattr(gpu, n) for n in names if hasattr(gpu, n)} for gpu in devices]


def write_kernels(path: str, runs_it: bool) -> int:
    """Write the kernels of a module of Inductor, or those that a program launches, as programs.

    It prints their files by name, and returns the exit status.
    """
    import torch  # noqa: F401 - the import hook then sets up the simulation

    from . import simulate
    from .record import generated_kernels
    from .simulate import kernel_launches
    from .torch_hooks import codegen_only

    if simulate.problem:
        print(simulate.problem, file=sys.stderr)
        return 2
    with contextlib.redirect_stdout(sys.stderr):  # stdout is only for the answer
        files = (
            kernel_launches.record_launches(path)
            if runs_it
            else generated_kernels.write_all(path, codegen_only.load)
        )
    print(json.dumps(files))
    return 0


def run_factory(spec: RunSpec) -> int:
    """Run a factory target, and return its exit status."""
    from ..core.shared.errors import BadTarget, NoSuchTarget
    from . import run_target
    from .record import exceptions, journal

    if spec.kind == "module" and not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.getcwd())  # as python -m does
    try:
        run_target.run_spec(spec)
    except BadTarget as bad:
        journal.write_event(
            events.TargetRefused(message=str(bad), has_run=not isinstance(bad, NoSuchTarget))
        )
        if bad.__cause__ is not None:
            traceback.print_exception(bad.__cause__)
        return 2
    except Exception as error:
        journal.write_event(
            events.ExceptionRaised(where="call", chain=exceptions.describe_exception(error))
        )
        traceback.print_exc()
        return 1
    journal.write_event(events.Finished())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
