"""The switches of serving stacks are added to the commands that run these stacks."""

from __future__ import annotations

import pytest

from reprokit.core.experiments import serving_switches

TRAINER = "from transformers import Trainer\n"


@pytest.mark.parametrize(
    ("command", "script", "stack"),
    [
        ("vllm serve facebook/opt-125m", "", "vllm"),
        ("/opt/venv/bin/vllm serve m --port 80", "", "vllm"),
        ("env A=1 python -m vllm.entrypoints.openai.api_server --model m", "", "vllm"),
        ("python -m sglang.launch_server --model m", "", "sglang"),
        ("sglang serve --model-path m", "", "sglang"),
        ("transformers serve", "", "transformers"),
        ("python train.py", TRAINER, "transformers"),
        ("python offline.py", "import vllm, transformers\n", "vllm"),
        ("python train.py vllm", "import torch\n", ""),
        ("python broken.py", "def (", ""),
        ("ls vllm", "", ""),
    ],
)
def test_a_stack_is_recognised_by_its_command_or_imports(
    command: str, script: str, stack: str
) -> None:
    """The program, the module after -m, or an import of the script names the stack."""
    assert serving_switches.recognise_stack(command.split(), script) == stack


def test_vllm_has_the_switches_of_its_guide() -> None:
    """Each switch of the guide is a step; a script that imports vLLM takes only the variables."""
    names = [s.variant.name for s in serving_switches.switches_of(["vllm", "serve", "m"])]
    assert names == [
        "--enforce-eager",
        "-cc.mode=0",
        "-cc.mode=1",
        "-cc.cudagraph_mode=NONE",
        "-cc.backend=eager",
        "-cc.ir_enable_torch_wrap=False",
        "VLLM_DISABLE_COMPILE_CACHE=1",
        "VLLM_USE_AOT_COMPILE=0",
    ]
    offline = serving_switches.switches_of(["python", "offline.py"], "from vllm import LLM\n")
    assert [s.variant.name for s in offline] == names[-2:]


def added(command: str, name: str, script: str = "") -> str:
    words = command.split()
    (switch,) = (s for s in serving_switches.switches_of(words, script) if s.variant.name == name)
    return " ".join(serving_switches.with_switch(words, switch))


def test_a_switch_replaces_the_users_own_and_goes_to_the_end() -> None:
    """A value of the same option is replaced, also in its older form; words after -- stay last."""
    assert added("vllm serve m", "--enforce-eager") == "vllm serve m --enforce-eager"
    command = "vllm serve m -O.mode=3 -cc.mode=3 --port 80"
    assert added(command, "-cc.mode=0") == "vllm serve m --port 80 -cc.mode=0"
    assert added("vllm serve m -- a", "-cc.mode=1") == "vllm serve m -cc.mode=1 -- a"
    command = "sglang serve --enable-torch-compile --model-path m"
    name = "without --enable-torch-compile"
    assert added(command, name) == "sglang serve --model-path m"
    command = "python train.py --torch_compile_backend inductor --steps 3"
    assert added(command, "--torch_compile_backend eager", TRAINER) == (
        "python train.py --steps 3 --torch_compile_backend eager"
    )
    assert added("transformers serve --compile", "without --compile") == "transformers serve"
    command = "transformers serve --attn-implementation=sdpa"
    assert added(command, "--attn-implementation eager") == (
        "transformers serve --attn-implementation eager"
    )
    assert not [s for s in serving_switches.switches_of(["python", "train.py"], TRAINER) if s.words]
