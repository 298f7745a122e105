"""Run in each interpreter that tests start: make it end quickly, refuse torch to a quick test, and
hide Triton from a test without the marker ``triton``.
"""

import atexit
import gc
import os
import sys

# With torch imported, the last garbage collections take a quarter of their time after a freeze.
atexit.register(gc.freeze)
gc.set_threshold(50_000, 50, 1_000)  # importing torch creates many objects and no garbage


class RefuseTorch:
    """A finder that makes ``import torch`` fail."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("this test needs the marker 'real'", name=name)


if os.environ.get("TESTS_REFUSE_TORCH"):
    sys.meta_path.insert(0, RefuseTorch)
if os.environ.get("TESTS_HIDE_TRITON"):
    sys.modules["triton"] = None  # as if it were not installed, also for find_spec
