"""Build and load a CUDA device guard and CUDA hooks that do nothing, for fake CUDA tensors.

A torch without CUDA has neither, and those of a torch with CUDA call the driver. Torch looks up
``CUDAHooks`` once, when it is imported, so the library is loaded before. Without the hooks, a
backward pass ends the process.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ..torch_hooks.symbols import OLDEST_WITH_FAKE_TENSORS, parse_version

MAX_BUILD_S = 240.0
"""The build takes about two seconds on an idle machine."""


class CannotSimulate(Exception):
    """This torch or this machine cannot simulate a GPU; the message is one line for the user."""


def load_guard(cache: Path) -> None:
    """Load the guard for the torch that will be imported; build it if ``cache`` has none.

    Raises CannotSimulate, or OSError if the cache cannot be written.
    """
    if "torch._C" in sys.modules:
        raise CannotSimulate(
            "torch was imported before reprokit could prepare the simulation of a GPU"
        )
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return  # the import of torch reports the problem
    torch_folder = Path(spec.origin).parent
    check_version((torch_folder / "version.py").read_text())
    guard = _build_guard(torch_folder, cache)
    cuda_library = torch_folder / "lib" / "libtorch_cuda.so"
    if cuda_library.exists():
        ctypes.CDLL(str(cuda_library))  # torch uses the hooks that are registered last
    library = ctypes.CDLL(str(guard), mode=ctypes.RTLD_GLOBAL)
    if not library.reprokit_is_in_place():
        raise CannotSimulate("this torch does not use the CUDA hooks of the simulation")


def check_version(text: str) -> None:
    """Raise CannotSimulate for a torch that lacks what a simulation needs.

    ``text`` is that of ``torch/version.py``. A version that has no number is tried.
    """
    found = re.search(r"__version__ = '((\d+\.\d+)[^']*)'", text)
    if found and parse_version(found[2]) < OLDEST_WITH_FAKE_TENSORS:
        raise CannotSimulate(
            f"torch {found[1]} cannot run compiled regions on fake tensors, which --gpu needs; use"
            " torch 2.12 or newer"
        )


def _build_guard(torch_folder: Path, cache: Path) -> Path:
    source = Path(__file__).with_name("guard.cpp")
    version = torch_folder / "version.py"
    key = hashlib.sha256(
        source.read_bytes() + version.read_bytes() + str(torch_folder).encode()
    ).hexdigest()[:16]
    library = cache / f"guard-{key}.so"
    if library.exists():
        return library
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is None:
        raise CannotSimulate(
            f"--gpu builds a small library for torch, and there is no {compiler} here; install a"
            " C++ compiler, or name one in CXX"
        )
    cache.mkdir(parents=True, exist_ok=True)
    draft = cache / f".{library.name}.{os.getpid()}"
    command = [
        compiler,
        "-std=c++20",
        "-O0",
        "-w",
        "-shared",
        "-fPIC",
        f"-I{torch_folder / 'include'}",
        str(source),
        f"-L{torch_folder / 'lib'}",
        "-lc10",
        "-ltorch_cpu",
        f"-Wl,-rpath,{torch_folder / 'lib'}",
        "-o",
        str(draft),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MAX_BUILD_S, check=False
        )
    except subprocess.TimeoutExpired as problem:
        raise CannotSimulate(
            f"{compiler} took longer than {MAX_BUILD_S:.0f} s for the library that --gpu needs"
        ) from problem
    if done.returncode:
        error = next(
            (row for row in done.stderr.splitlines() if "error" in row), done.stderr.strip()[-200:]
        )
        raise CannotSimulate(
            f"the library that --gpu needs could not be built for this torch: {error.strip()[:300]}"
        )
    os.replace(draft, library)
    return library
