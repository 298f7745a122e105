"""Start the agent in each Python of the target.

It first runs the ``sitecustomize`` that it hides. The host copies this file to the top of the
agent's folder. A program without torch must not become slower, fail or get imports because of it.
"""


def _run_hidden() -> None:
    import importlib.machinery
    import importlib.util
    import os
    import sys

    # this module is run twice if another tool also runs a hidden sitecustomize
    if getattr(sys, "_reprokit_was_here", False):
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
        except Exception as _problem:  # the target must run as it does without the agent
            try:
                with open(
                    _os.path.join(_os.environ["REPROKIT_RUN_DIR"], "agent-problems.txt"), "a"
                ) as _f:
                    _f.write(f"pid {_os.getpid()}: {_problem!r}\n")
            except OSError:
                pass
