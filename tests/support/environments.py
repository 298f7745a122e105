"""The environment and the Inductor cache of the processes that tests start."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import filelock

from reprokit.host.system import compiler_cache

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "recorded"
"""The run directories of recorded captures, see tests/support/recordings.py."""
SITE = ROOT / "tests" / "site"
"""A folder on PYTHONPATH whose sitecustomize makes interpreters end quickly."""

_torch = importlib.util.find_spec("torch")
assert _torch is not None and _torch.origin is not None
TORCH_FOLDER = Path(_torch.origin).parent
"""The folder of the installed torch; finding it imports nothing."""

_FIRST_COMPILE = "import torch; torch.compile(lambda x: x.sin() + 1)(torch.ones(4))"


def add_site_to_path() -> None:
    """Put ``SITE`` on the PYTHONPATH of this process and its children."""
    rest = filter(None, [os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE), *rest])


@functools.cache
def _caches() -> Path:
    """Return a folder that is deleted after the tests. Its subfolder ``warm`` holds the answers of
    the C++ compiler that Inductor needs before it compiles anything.
    """
    folder = Path(tempfile.mkdtemp(prefix="reprokit-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    kept = compiler_cache.kept_cache_folder(sys.executable)
    with filelock.FileLock(Path(tempfile.gettempdir()) / "reprokit-tests.lock"):
        if not kept.exists():
            environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "first")}
            subprocess.run([sys.executable, "-c", _FIRST_COMPILE], env=environ, check=True)
            compiler_cache.keep_cache(folder / "first", kept)
    compiler_cache.copy_cache(kept, folder / "warm")
    return folder


def warm_cache() -> Path:
    """Return a new Inductor cache folder for one call. It holds the answers of the C++ compiler,
    which take ten seconds to compute, and no graph.
    """
    folder = Path(tempfile.mkdtemp(dir=_caches()))
    compiler_cache.link_cache(_caches() / "warm", folder)
    return folder


def with_small_torch(folder: Path) -> str:
    """Write an empty module ``torch``, and return its folder for PYTHONPATH.

    A program that imports it is one with torch for reprokit, but starts at once.
    """
    module = folder / "small" / "torch" / "__init__.py"
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text('__version__ = "2.13.0"\n')
    return str(module.parent.parent)


def clean_environ(**variables: str) -> dict[str, str]:
    """Return the environment without what would change a capture, plus ``variables``."""
    dropped = ("TORCH", "REPROKIT", "INDUCTOR")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    # The tests of these steps turn them on.
    steps = {
        "REPROKIT_MINIMIZE": "0",
        "REPROKIT_ABLATE": "0",
        "REPROKIT_COMPARE": "0",
        "REPROKIT_PROOFS": "1",
    }
    cheap = {
        "OMP_NUM_THREADS": "1",  # idle OpenMP threads spin on the CPUs that other tests need
        # Without this, Inductor starts a process for each cache to load a program with vectors.
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
    }
    if "TESTS_REFUSE_TORCH" not in os.environ:
        cheap["TORCHINDUCTOR_CACHE_DIR"] = str(warm_cache())
    return {**kept, **steps, **cheap, **variables}
