"""An environment whose torch reports a version that does not exist yet, has other names for functions
that reprokit hooks, and calls one of them with a further argument.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

VERSION = "2.99.0"
RENAMED = (
    "log_event_start",
    "exceeds_recompile_limit",
    "_call_user_compiler",
    "_compile_fx_inner",
    "get_and_maybe_log_recompilation_reasons",
    "log_graph_break",
    "load_by_key_path",
    "log_cudagraph_skip_and_bump_counter",
)
"""Names that the sources of Dynamo and Inductor get a new suffix for, definitions and uses."""
_RENAMES = """
import importlib.machinery
import re
import sys

WORD = re.compile(rb"\\b({names})\\b")
CALL, DEFINITION = b"self.starts_line(inst", b"def starts_line(self, lineno"


class RenamingLoader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        data = self.get_data(self.path)
        if fullname == "torch.version":
            data += b"\\n__version__ = '{version}'\\n"
        data = data.replace(CALL, b"self.starts_line(inst, inst")
        data = data.replace(DEFINITION, b"def starts_line(self, inst, lineno")
        return self.source_to_code(WORD.sub(rb"\\1_moved", data), self.path)


class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if not name.startswith(("torch._dynamo", "torch._inductor", "torch.version")):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = RenamingLoader(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path.insert(0, Finder)
"""


def make_renamed_torch(folder: Path) -> str:
    """Create the environment in ``folder``, and return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    text = _RENAMES.format(names="|".join(RENAMED), version=VERSION)
    (site / "renames_for_test.py").write_text(text)
    found = importlib.util.find_spec("torch")
    assert found and found.origin
    packages = Path(found.origin).parents[1]
    (site / "torch.pth").write_text(f"{packages}\nimport renames_for_test\n")
    return str(folder / "bin" / "python")
