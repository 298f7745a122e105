"""Enter someone else's Python through the environment: run the sitecustomize this one hides, then
wait for torch.

Copied to the top of the private folder. Nothing here may break, slow down or import into a program
that has no torch.
"""


def _run_hidden() -> None:
    import importlib.machinery
    import importlib.util
    import os
    import sys

    if getattr(
        sys, "_reprokit_was_here", False
    ):  # a second one of ours, or of a tool that chains as we do
        return
    sys._reprokit_was_here = True  # type: ignore[attr-defined]
    others = [p for p in sys.path if not os.path.isdir(os.path.join(p or ".", "_reprokit"))]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    ours = sys.modules.get("sitecustomize")
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        raise


try:
    _run_hidden()
finally:
    import os as _os

    if _os.environ.get("REPROKIT_RUN_DIR"):
        try:
            from _reprokit.agent import import_hook as _import_hook

            _import_hook.wait_for_torch()
        except Exception as _problem:  # the target must run as if we were not there
            try:
                with open(
                    _os.path.join(_os.environ["REPROKIT_RUN_DIR"], "agent-problems.txt"), "a"
                ) as _f:
                    _f.write(f"pid {_os.getpid()}: {_problem!r}\n")
            except OSError:
                pass
