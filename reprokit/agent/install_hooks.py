"""Install the hooks on Dynamo and Inductor after the program has imported them.

A hook that this torch does not support is journaled, and the other hooks are still installed.
"""

from __future__ import annotations

from ..core.shared.contract import events
from .record import journal
from .torch_hooks import cudagraph_hooks, phases_and_graphs, recompile_hooks, symbols, torch_logs


def watch_dynamo() -> None:
    """Install the hooks that need only ``torch._dynamo``, which has just been imported."""
    import torch

    if symbols.parse_version(torch.__version__) < symbols.OLDEST_TORCH:
        journal.write_event(
            events.AgentProblem(
                hook="watch_dynamo",
                problem=(
                    f"torch {torch.__version__} is older than 2.9: phases and graphs are not"
                    " recorded"
                ),
            )
        )
        return
    journal.write_event(
        events.Torch(
            version=torch.__version__,
            file=torch.__file__,
            cuda=torch.version.cuda,
            hip=getattr(torch.version, "hip", None),
        )
    )
    hooks = (
        phases_and_graphs.exclude_agent,
        phases_and_graphs.hook_phases,
        phases_and_graphs.hook_lines,
        phases_and_graphs.hook_graphs,
        phases_and_graphs.hook_failures,
        *recompile_hooks.HOOKS,
        *symbols.DYNAMO_HOOKS,
        torch_logs.send_to_file,
    )
    for hook in hooks:
        symbols.attempt_hook(hook)


def watch_inductor() -> None:
    """Install the hooks that need ``torch._inductor.compile_fx``."""
    hooks = (
        phases_and_graphs.hook_aten_graphs,
        phases_and_graphs.hook_exported_graphs,
        phases_and_graphs.hook_nodes,
        phases_and_graphs.hook_calls,
        *symbols.INDUCTOR_HOOKS,
        cudagraph_hooks.watch_cudagraph_skips,
        torch_logs.listen_to_logs,
    )
    for hook in hooks:
        symbols.attempt_hook(hook)
