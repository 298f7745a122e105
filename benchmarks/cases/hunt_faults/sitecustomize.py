"""Gives Dynamo a fault for some programs of a hunt, chosen by the code of their function.

A program hangs, crashes, takes all memory that it may have, writes files, or leaves processes.
"""

import importlib.abc
import importlib.machinery
import os
import subprocess
import sys
import time
import types
import zlib
from typing import Any

NAME = "torch._dynamo.output_graph"
FAULTS = ("hang", "crash", "memory", "files", "processes")
EVERY = 40
"""The number of programs of which one has each fault."""
MARK = "planted-by-hunt-faults"


def fault_of(function: types.CodeType) -> str:
    """Return the fault of a program with this function; empty for most of them."""
    number = zlib.crc32(function.co_code) % EVERY
    return FAULTS[number] if number < len(FAULTS) else ""


def fail(fault: str) -> None:
    """Do what a faulty program does."""
    if fault == "hang":
        time.sleep(10**6)
    elif fault == "crash":
        os.abort()
    elif fault == "memory":
        held = []
        while True:
            held.append(bytearray(1 << 30))  # zeros take no memory until they are written
    elif fault == "files":
        folders = (
            os.path.expanduser("~"),
            os.environ.get("TMPDIR", "/tmp"),
            os.getcwd(),
            "/var/tmp",
        )
        for folder in (*folders, os.path.dirname(os.getcwd())):
            try:
                with open(os.path.join(folder, f"{MARK}-{os.getpid()}"), "w") as file:
                    file.write("x" * 1000)
            except OSError:
                continue
    elif fault == "processes":
        subprocess.Popen(["sleep", "100000"], start_new_session=True)
        if not os.fork():
            os.setsid()
            if not os.fork():
                time.sleep(10**6)
            os._exit(0)


def plant(output_graph: Any) -> None:
    """Let Dynamo fail for the programs that have a fault."""
    real = output_graph.OutputGraph.call_user_compiler

    def call_user_compiler(self: Any, graph: Any, *inputs: Any) -> Any:
        program = vars(sys.modules.get("hunted_program", sys))
        if "function" in program:
            fail(fault_of(program["function"].__code__))
        return real(self, graph, *inputs)

    output_graph.OutputGraph.call_user_compiler = call_user_compiler


class Finder(importlib.abc.MetaPathFinder):
    """Runs ``plant`` when the module of Dynamo is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of the module, with a loader that also plants."""
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            plant(module)

        spec.loader.exec_module = exec_module
        return spec


if "HUNT_FAULTS" in os.environ:
    sys.meta_path.insert(0, Finder())
