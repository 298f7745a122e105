"""The switches with which serving stacks turn off parts of the compiler, as their guides name them.

A stack is recognised by the command line, or by the imports of the script that it runs. vLLM's
switches are those of its guide "How to debug the vLLM-torch.compile integration".
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprokit.core.experiments.ablation import CompileVariant

GROUP = "serving"
"""The group of these ablation steps."""
_SUBCOMMANDS = {
    "vllm": frozenset({"serve", "bench", "chat", "complete", "run-batch"}),
    "sglang": frozenset({"serve", "launch_server"}),
    "transformers": frozenset({"serve", "chat"}),
}


@dataclass(frozen=True)
class Switch:
    """A change of a command line or of its environment."""

    words: tuple[str, ...] = ()
    """Words that are added to the command line."""
    replaces: tuple[str, ...] = ()
    """Options that are removed from it, with their values."""
    variables: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""
    """The switch is only tried if the command line has this word."""

    @property
    def variant(self) -> CompileVariant:
        """The ablation step of the switch."""
        settings = (f"{name}={value}" for name, value in self.variables.items())
        name = " ".join([*settings, *self.words])
        return CompileVariant(name or f"without {' '.join(self.replaces)}", GROUP)


def _vllm(option: str, value: str) -> Switch:
    return Switch((f"-cc.{option}={value}",), (f"-cc.{option}", f"-O.{option}"))


SWITCHES: Mapping[str, tuple[Switch, ...]] = {
    "vllm": (
        Switch(("--enforce-eager",), ("--enforce-eager", "--no-enforce-eager")),
        _vllm("mode", "0"),
        _vllm("mode", "1"),
        _vllm("cudagraph_mode", "NONE"),
        _vllm("backend", "eager"),
        _vllm("ir_enable_torch_wrap", "False"),
        Switch(variables={"VLLM_DISABLE_COMPILE_CACHE": "1"}),
        Switch(variables={"VLLM_USE_AOT_COMPILE": "0"}),
    ),
    "sglang": (
        Switch(("--disable-cuda-graph",), ("--disable-cuda-graph",)),
        Switch(replaces=("--enable-torch-compile",), needs="--enable-torch-compile"),
    ),
    "transformers": (
        Switch(variables={"USE_HUB_KERNELS": "0"}),
        Switch(replaces=("--compile",), needs="--compile"),
        Switch(
            ("--attn-implementation", "eager"),
            ("--attn-implementation",),
            needs="serve",
        ),
        Switch(
            ("--attn_implementation", "eager"),
            ("--attn_implementation",),
            needs="--attn_implementation",
        ),
        *(
            Switch(
                ("--torch_compile_backend", backend),
                ("--torch_compile_backend",),
                needs="--torch_compile_backend",
            )
            for backend in ("eager", "aot_eager")
        ),
    ),
}
"""The switches of each stack."""


def recognise_stack(command: Sequence[str], script: str = "") -> str:
    """Return ``vllm``, ``sglang``, ``transformers`` or an empty text.

    ``script`` is the text of the Python script that the command runs.
    """
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word == "-m" and following.split(".")[0] in SWITCHES:
            return following.split(".")[0]
        name = word.rpartition("/")[2]
        if following in _SUBCOMMANDS.get(name, ()):
            return name
    imported = _imported_packages(script)
    return next((stack for stack in SWITCHES if stack in imported), "")


def script_of(command: Sequence[str]) -> str:
    """Return the first word that names a Python script; empty for none."""
    return next((word for word in command if word.endswith(".py")), "")


def switches_of(command: Sequence[str], script: str = "") -> tuple[Switch, ...]:
    """Return the switches of the stack that a command runs."""
    has_arguments = not script
    return tuple(
        switch
        for switch in SWITCHES.get(recognise_stack(command, script), ())
        if (not switch.needs or any(_names(word, switch.needs) for word in command))
        and (has_arguments or switch.variables or switch.needs)
    )


def with_switch(command: Sequence[str], switch: Switch) -> tuple[str, ...]:
    """Return the command line with a switch: after all other options, but before ``--``."""
    kept: list[str] = []
    has_value = len(switch.words) == 2
    skips = False
    for word in command:
        if skips:
            skips = False
        elif any(_names(word, option) for option in switch.replaces):
            skips = has_value and "=" not in word
        else:
            kept.append(word)
    end = kept.index("--") if "--" in kept else len(kept)
    return (*kept[:end], *switch.words, *kept[end:])


def _names(word: str, option: str) -> bool:
    return word == option or word.startswith(f"{option}=")


def _imported_packages(script: str) -> set[str]:
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names
