"""Fake CUDA tensors need a CUDA device guard and CUDA hooks: build some that do nothing and load
them.

A torch without CUDA has none; those of a torch with CUDA call the driver. ``CUDAHooks`` are looked
up once, when torch is imported, so this comes before; without them backward ends the process.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

BUILD_S = 240.0
"""Two seconds on a quiet machine."""


class CannotSimulate(Exception):
    """This torch, or this machine, lacks something that simulation needs; the message is one line
    for the user.
    """


def load_guard(cache: Path) -> None:
    """Build the guard for the torch that will be imported, where ``cache`` has none, and load
    it.
    """
    if "torch._C" in sys.modules:
        raise CannotSimulate(
            "torch was imported before reprokit could prepare the simulation of a GPU"
        )
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return  # who imports it says so
    folder = Path(spec.origin).parent
    guard = _built(folder, cache)
    with_cuda = folder / "lib" / "libtorch_cuda.so"
    if with_cuda.exists():
        ctypes.CDLL(str(with_cuda))  # what is registered last is used
    library = ctypes.CDLL(str(guard), mode=ctypes.RTLD_GLOBAL)
    if not library.reprokit_is_in_place():
        raise CannotSimulate("the CUDA hooks of the simulation were not taken up by this torch")


def _built(torch: Path, cache: Path) -> Path:
    source = Path(__file__).with_name("guard.cpp")
    version = torch / "version.py"
    key = hashlib.sha256(
        source.read_bytes() + version.read_bytes() + str(torch).encode()
    ).hexdigest()[:16]
    wanted = cache / f"guard-{key}.so"
    if wanted.exists():
        return wanted
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is None:
        raise CannotSimulate(
            f"--gpu builds a small library for torch, and there is no {compiler} here; install a"
            " C++ compiler, or name one in CXX"
        )
    cache.mkdir(parents=True, exist_ok=True)
    draft = cache / f".{wanted.name}.{os.getpid()}"
    words = [
        compiler,
        "-std=c++20",
        "-O0",
        "-w",
        "-shared",
        "-fPIC",
        f"-I{torch / 'include'}",
        str(source),
        f"-L{torch / 'lib'}",
        "-lc10",
        "-ltorch_cpu",
        f"-Wl,-rpath,{torch / 'lib'}",
        "-o",
        str(draft),
    ]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=BUILD_S, check=False)
    except subprocess.TimeoutExpired as problem:
        raise CannotSimulate(
            f"{compiler} took longer than {BUILD_S:.0f} s for the library that --gpu needs"
        ) from problem
    if done.returncode:
        said = next(
            (row for row in done.stderr.splitlines() if "error" in row), done.stderr.strip()[-200:]
        )
        raise CannotSimulate(
            f"the library that --gpu needs could not be built for this torch: {said.strip()[:300]}"
        )
    os.replace(draft, wanted)
    return wanted
