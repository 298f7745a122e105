"""Install the hooks on Dynamo and Inductor, once the program has imported them.

Each hook is tried alone; one that does not fit this torch is journalled as missing and the others stay.
"""

from __future__ import annotations

from . import cudagraphs, instrument, journal, logs, overrides, recompiles, simulate
from .hooks import attempt
from .simulate import cudagraph_inputs


def watch_dynamo() -> None:
    """Install the hooks that need only ``torch._dynamo``, which has just been imported."""
    import torch

    if instrument.version(torch.__version__) < instrument.OLDEST_TORCH:
        journal.write(
            "agent_problem",
            hook="watch_dynamo",
            problem=f"torch {torch.__version__} is older than 2.9: phases and graphs are not recorded",
        )
        return
    journal.write(
        "torch",
        version=torch.__version__,
        file=torch.__file__,
        cuda=torch.version.cuda,
        hip=getattr(torch.version, "hip", None),
    )
    instrument.BEFORE_COMPILE[:] = [overrides.before_compile]
    hooks = (
        instrument.keep_out, instrument.phases, instrument.lines, instrument.graphs, instrument.failures,
        *recompiles.HOOKS, _dynamo_settings, logs.send_to_file,
    )  # fmt: skip
    for hook in hooks:
        attempt(hook)


def watch_inductor() -> None:
    """Install the hooks that need ``torch._inductor.compile_fx``."""
    hooks = [
        instrument.aten_graphs, instrument.nodes, instrument.calls, _inductor_settings, cudagraphs.watch, logs.listen,
    ]  # fmt: skip
    if simulate.ASKED is not None:
        hooks.append(cudagraph_inputs.watch)
    for hook in hooks:
        attempt(hook)


def _dynamo_settings() -> None:
    overrides.configure("torch._dynamo")
    overrides.configure("torch._functorch")


def _inductor_settings() -> None:
    overrides.configure("torch._inductor")
