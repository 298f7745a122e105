"""The settings of the compiler that an issue lists are those that are not torch's defaults."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch

from tests.support.environments import clean_environ
from tests.support.reprokit_calls import CallResult, reprokit

MODULES = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
VALUES = """
import importlib, json, re, sys, warnings
warnings.simplefilter("ignore")

def values():
    found = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for key, entry in module._config.items():
            if entry.alias is not None:
                continue  # it has the value of a different option
            try:
                value = getattr(module, key)
            except Exception:  # some deprecated options cannot be read
                continue
            text = repr(sorted(value) if isinstance(value, (set, frozenset)) else value)
            found[f"{name}.{key}"] = re.sub(" at 0x[0-9a-f]+", "", text)
    return found
""".replace("MODULES", repr(MODULES))
PRINTS = f"{VALUES}\njson.dump(values(), sys.stdout)\n"
FAILS = (
    VALUES
    + """
import torch

for name in values():  # an option that is set to its default is not changed
    module, key = re.match(r"(torch\\.\\w+\\.config)\\.(.+)", name).groups()
    setattr(sys.modules[module], key, getattr(sys.modules[module], key))
if "change" in sys.argv:
    torch._inductor.config.max_fusion_size = 7
    torch._dynamo.config.recompile_limit = 9
json.dump(values(), open("values.json", "w"))

def backend(graph, inputs):
    raise RuntimeError("the planted failure")

torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
"""
)
SWITCHES = frozenset({"TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"})
"""Variables with which nothing is compiled."""


def names_that_torch_reads() -> set[str]:
    """Return the environment variables that set a compiler setting, ``CI`` among them."""
    names: set[str] = set()
    for module in MODULES:
        file = Path(torch.__file__).parent / f"{module.removeprefix('torch.').replace('.', '/')}.py"
        names |= set(re.findall(r'"([A-Z][A-Z0-9_]+)"', file.read_text()))
    return names


def variables_of_torch() -> dict[str, str]:
    """Return each environment variable that sets a compiler setting, with a value that it takes."""
    names = {name for name in names_that_torch_reads() if len(name) > 3}
    values = dict.fromkeys(sorted(names - SWITCHES - set(os.environ)), "1")
    return {**values, "TORCHINDUCTOR_WORKER_START": "fork"}


def values_in_a_plain_process(folder: Path) -> dict[str, str]:
    """Return all settings in a process without the variables of a compiler and without reprokit."""
    environ = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    out = subprocess.run(
        [sys.executable, "-c", PRINTS], cwd=folder, env=environ, capture_output=True, check=True
    ).stdout
    values: dict[str, str] = json.loads(out)
    return values


def capture(folder: Path, environ: dict[str, str], *words: str) -> CallResult:
    script = folder / "settings.py"
    script.write_text(FAILS)
    return reprokit(
        *("capture", "--json", "--no-minimize", "--no-ablate", "--output-dir"),
        *(folder / "out", "--", sys.executable, script, *words),
        cwd=folder,
        env=environ,
    )


@pytest.mark.real
def test_settings_of_variables_and_of_the_program_are_listed(tmp_path: Path) -> None:
    """Each environment variable that sets an option, two options that the program changes, and
    nothing else. The expected values are those that the program itself sees.
    """
    variables = variables_of_torch()
    assert len(variables) > 100
    done = capture(tmp_path, {**clean_environ(), **variables}, "change")
    assert done.kind == "exception", done.err
    usual = values_in_a_plain_process(tmp_path)
    actual = json.loads((tmp_path / "values.json").read_text())
    expected = {name for name, value in actual.items() if usual.get(name) != value}
    # their defaults contain the working directory of the process, so any folder may be the default
    expected -= {"torch._inductor.config.xpu.cutlass_dir", "torch._dynamo.config.debug_dir_root"}
    assert len(expected) > 100
    with tarfile.open(done.json["pack"]) as pack:
        file = pack.extractfile("environment.json")
        assert file is not None
        changed = json.load(file)["changed_in_target"]
    listed = {f"{module}.{key}" for module, rows in changed.items() for key in rows}
    assert listed == expected


@pytest.mark.real
def test_settings_that_are_set_to_their_defaults_are_not_listed(tmp_path: Path) -> None:
    """The program sets each option to the value that it has."""
    read = names_that_torch_reads()
    environ = {key: value for key, value in clean_environ().items() if key not in read}
    done = capture(tmp_path, environ)
    issue = Path(done.json["issue"]).read_text()
    assert "the planted failure" in issue
    assert "not torch's default" not in issue
