"""A command is ablated with the switches that its serving stack documents."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import clean_environ
from tests.support.reprokit_calls import reprokit

VLLM = f"""#!{sys.executable}
'''A stand-in for the command line of vLLM: it parses its switches, and compiles a small model.'''
import argparse, os, sys

parser = argparse.ArgumentParser()
parser.add_argument("command")
parser.add_argument("model")
parser.add_argument("--enforce-eager", action="store_true")
parser.add_argument("--port", type=int)
for option in ("mode", "cudagraph_mode", "backend", "ir_enable_torch_wrap"):
    parser.add_argument(f"-cc.{{option}}", dest=option)
options = parser.parse_args()
assert options.command == "serve" and options.port == 8000, options

import torch

def is_hard(gm, inputs):
    if any("erf" in str(node.target) for node in gm.graph.nodes):
        raise RuntimeError("erf is too hard")
    return gm.forward

def model(x):
    return torch.erf(x) + 1

backend = "eager" if options.backend == "eager" else is_hard
if not options.enforce_eager and options.mode != "0":
    model = torch.compile(model, backend=backend)
print(model(torch.randn(4)))
"""

SCRIPT = """
import os, sys
import torch, transformers

config = transformers.LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
)
model = transformers.LlamaForCausalLM(config)

def no_kernels(gm, inputs):
    if os.environ.get("USE_HUB_KERNELS") != "0":
        raise RuntimeError("this kernel is too hard")
    return gm.forward

torch.compile(model, backend=no_kernels)(input_ids=torch.ones(1, 4, dtype=torch.long))
"""


@pytest.mark.long
def test_the_switches_of_vllm_are_tried(tmp_path: Path) -> None:
    """Switches that leave out the compile or its backend pass, and the others fail in the same way;
    the pack has the steps.
    """
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(VLLM)
    program.chmod(0o755)
    done = reprokit(
        "ablate", "--json", "--output-dir", tmp_path / "out", "--", program, "serve", "opt", "--port",
        "8000", env=clean_environ(),
    )  # fmt: skip
    answers = {step["name"]: step["answer"] for step in done.json["ablation"]["steps"]}
    assert done.status == 1, done.out + done.err
    passing = {name for name, answer in answers.items() if answer == "passes"}
    assert {"--enforce-eager", "-cc.mode=0", "-cc.backend=eager", "no torch.compile"} <= passing
    for name in ("-cc.mode=1", "-cc.cudagraph_mode=NONE", "VLLM_USE_AOT_COMPILE=0"):
        assert answers[name] == "same", answers
    assert answers["the program's own backend"] == "same"
    ablation = done.json["ablation"]
    assert "--enforce-eager" in ablation["cures"] and "--enforce-eager" in ablation["sentence"]
    assert not (Path(done.json["run_dir"]) / "ablation").exists() or not any(
        (Path(done.json["run_dir"]) / "ablation").iterdir()
    )


@pytest.mark.long
def test_the_switches_of_transformers_are_tried(tmp_path: Path, write: Any) -> None:
    """A script that imports the real transformers is run without the kernels of the hub."""
    script = write("serve.py", SCRIPT)
    done = reprokit(
        "ablate", "--json", "--output-dir", tmp_path / "out", "--", sys.executable, script,
        env=clean_environ(HF_HUB_OFFLINE="1"),
    )  # fmt: skip
    answers = {step["name"]: step["answer"] for step in done.json["ablation"]["steps"]}
    assert answers["USE_HUB_KERNELS=0"] == "passes", (answers, done.err)
    assert answers["the program's own backend"] == "same"
    assert answers['backend="inductor"'] == "passes"


def test_one_target_is_needed(tmp_path: Path) -> None:
    """Without a target, or with two, nothing runs."""
    assert reprokit("ablate").status == 2
    done = reprokit("ablate", "llama-tiny", "--", sys.executable, "-c", "pass")
    assert done.status == 2 and "more than one target" in done.err
