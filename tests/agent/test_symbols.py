"""The hooks of the agent fit the functions of the installed torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.environments import ROOT, clean_environ

INSTALL = """
import importlib, inspect, pkgutil, sys
import torch, torch._dynamo, torch._inductor.compile_fx
from reprokit.agent import torch_hooks
from reprokit.agent.record import journal
from reprokit.agent.torch_hooks import symbols

journal.RUN_DIR = sys.argv[1]
count = 0
for found in pkgutil.iter_modules(torch_hooks.__path__):
    module = importlib.import_module(f"{torch_hooks.__name__}.{found.name}")
    for name, hook in list(vars(module).items()):
        if inspect.isfunction(hook) and hook.__module__ == module.__name__ and name[0] != "_":
            if module is not symbols and "wrap_symbol(" in inspect.getsource(hook):
                hook()
                count += 1
print(count)
"""


def test_each_hook_has_the_parameters_of_its_function(tmp_path: Path) -> None:
    """A hook whose parameters differ raises UnsupportedSymbol when it is installed."""
    (tmp_path / "logs").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", INSTALL, tmp_path],
        env=clean_environ(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 15
