"""Run a target from inside: ``python -m _reprokit.agent run SPEC.json``, ``... env``, ``... gpus``,
``... simulates``, ``... models SPEC``, ``... kernels FILE`` and ``... launches FILE``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from typing import Any

from ..core.shared.contract import events
from ..core.shared.contract.run_spec import RunSpec
from ..core.shared.contract.serialize import from_json


def main(argv: list[str]) -> int:
    """Give the exit status: 0 finished, 1 the target raised, 2 the target cannot be used."""
    if argv[0] == "env":
        from .record import inventory

        print(json.dumps(inventory.collect_inventory(), default=repr))
        return 0
    if argv[0] == "models":
        from .target.hf import model_types

        print(json.dumps(model_types.answer_models(json.loads(argv[1])), default=repr))
        return 0
    if argv[0] == "gpus":
        print(json.dumps(inventory_gpus()))
        return 0
    if argv[0] == "simulates":
        import torch  # noqa: F401 - which is simulated for from then on

        from . import simulate

        print(json.dumps(simulate.problem))
        return 0
    if argv[0] in ("kernels", "launches"):
        return write_kernels(argv[1], argv[0] == "launches")
    with open(argv[1]) as file:
        return run_factory(from_json(RunSpec, json.load(file)))


def inventory_gpus() -> list[dict[str, Any]]:
    """The properties of each GPU that torch sees, by the names that ``core.shared.simulation.Gpu``
    has.
    """
    import dataclasses

    import torch

    from ..core.shared.simulation import Gpu

    names = [f.name for f in dataclasses.fields(Gpu)]
    seen = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    return [{n: getattr(one, n) for n in names if hasattr(one, n)} for one in seen]


def write_kernels(path: str, runs_it: bool) -> int:
    """Turn the kernels of a module that Inductor generated into programs, or those that a program
    launches when it is run; prints their files by name.
    """
    import torch  # noqa: F401 - which is simulated for from then on

    from . import simulate
    from .record import generated_kernels, kernel_launches
    from .torch_hooks import codegen_only

    if simulate.problem:
        print(simulate.problem, file=sys.stderr)
        return 2
    with contextlib.redirect_stdout(sys.stderr):  # what the program prints is no answer
        found = (
            kernel_launches.record_launches(path)
            if runs_it
            else generated_kernels.write_all(path, codegen_only.load)
        )
    print(json.dumps(found))
    return 0


def run_factory(spec: RunSpec) -> int:
    """Run a factory target; gives its exit status."""
    from ..core.shared.errors import BadTarget, NoSuchTarget
    from . import run_target
    from .record import exceptions, journal

    if spec.kind != "module" and sys.path and os.path.abspath(sys.path[0]) == os.getcwd():
        del sys.path[
            0
        ]  # -m put the working directory there; a folder torch/ in it must not shadow torch
    try:
        run_target.run_spec(spec)
    except BadTarget as bad:
        journal.write(
            events.TargetRefused(message=str(bad), has_run=not isinstance(bad, NoSuchTarget))
        )
        if bad.__cause__ is not None:
            traceback.print_exception(bad.__cause__)
        return 2
    except Exception as error:
        journal.write(
            events.ExceptionRaised(where="call", chain=exceptions.describe_exception(error))
        )
        traceback.print_exc()
        return 1
    journal.write(events.Finished())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
