"""The ways into the compiler, and the Python text of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

COMPILE, MODULE_COMPILE = "torch.compile", "nn.Module.compile"
EXPORT, AOTINDUCTOR = "export", "aotinductor"
STANDALONE, AOT_COMPILE = "standalone_compile", "aot_compile"
COMPILED_AUTOGRAD = "compiled_autograd"
ENTRIES = (
    COMPILE,
    MODULE_COMPILE,
    EXPORT,
    AOTINDUCTOR,
    STANDALONE,
    AOT_COMPILE,
    COMPILED_AUTOGRAD,
)
"""The values of ``--entry`` and of the key ``entry`` of a factory."""
WITHOUT_DYNAMO = (EXPORT, AOTINDUCTOR)
"""Entries that take no arguments of torch.compile."""
AT_ONCE = (EXPORT, AOTINDUCTOR, AOT_COMPILE)
"""Entries that compile for given arguments, before the call."""
SETTING = "torch._dynamo.config.compiled_autograd"
BACKEND = "standalone"
BACKEND_TEXT = f"""\
def {BACKEND}(graph, inputs):
    return torch._inductor.standalone_compile(graph, inputs, dynamic_shapes="from_graph")
"""
"""The backend of ``standalone_compile``."""


class GivenArguments(NamedTuple):
    """The arguments of a call, as texts."""

    call: str
    """``x, y`` or ``*args, **kwargs``."""
    args: str
    """The positional arguments as a tuple."""
    kwargs: str = ""
    """The keyword arguments as a dict; empty if there are none."""

    @property
    def example(self) -> str:
        """The arguments of ``torch.export.export`` after the model."""
        return f"{self.args}, {self.kwargs}" if self.kwargs else self.args


class EntryText(NamedTuple):
    """The text that enters the compiler."""

    definitions: list[str]
    """Lines at the top level of the program."""
    before: list[str]
    """Lines before the calls."""
    each: list[str]
    """Lines before each call."""
    call: str
    """The call itself."""
    compiled_backward: str = ""
    """The text that compiles and runs the backward of ``loss``; empty if the backward is called
    without the compiler.
    """

    def backward(self, loss: str) -> list[str]:
        """Return the lines that run the backward of an expression."""
        if self.compiled_backward:
            return [f"loss = {loss}", self.compiled_backward]
        return [f"{loss}.backward()"]


def given_names(names: list[str]) -> GivenArguments:
    """Return the arguments of a call of positional names."""
    joined = ", ".join(names)
    return GivenArguments(joined, f"({joined},)" if len(names) == 1 else f"({joined})")


def enter_text(
    entry: str,
    model: str,
    given: GivenArguments,
    words: Mapping[str, str],
    options: str = "",
    is_module: bool = False,
) -> EntryText:
    """Return the text that enters the compiler with the callable ``model``.

    ``words`` are the arguments of torch.compile as texts, without its ``options``, which are the
    text of a dict. ``is_module`` says that ``model`` is a module.
    """
    if entry in WITHOUT_DYNAMO:
        return _export_text(entry, model, given, options, is_module)
    definitions: list[str] = []
    words = {**words, "options": options} if options else dict(words)
    if entry == STANDALONE:
        definitions = BACKEND_TEXT.splitlines()
        words = {"backend": BACKEND, **{k: v for k, v in words.items() if k != "options"}}
    if entry == COMPILED_AUTOGRAD:
        definitions = ["import torch._dynamo", f"{SETTING} = True"]
    joined = ", ".join(f"{name}={text}" for name, text in words.items())
    if entry == MODULE_COMPILE and is_module:
        return EntryText(definitions, [f"{model}.compile({joined})"], [], f"{model}({given.call})")
    if entry == AOT_COMPILE:
        joined = ", ".join(filter(None, [joined, "fullgraph=True"]))
        inputs = f"({given.args}, {given.kwargs or '{}'})"
        forward, first = (".forward", f"{model}, ") if is_module else ("", "")
        compiled = f"torch.compile({model}, {joined}){forward}.aot_compile({inputs})"
        return EntryText(definitions, [], [], f"{compiled}({first}{given.call})")
    compiled = f"torch.compile({', '.join(filter(None, [model, joined]))})"
    backward = ", ".join(filter(None, ["lambda: loss.backward()", joined]))
    compiled_backward = f"torch.compile({backward})()" if entry == COMPILED_AUTOGRAD else ""
    return EntryText(definitions, [], [], f"{compiled}({given.call})", compiled_backward)


def _export_text(
    entry: str, model: str, given: GivenArguments, options: str, is_module: bool
) -> EntryText:
    # torch.export takes only modules
    before = [] if is_module else ["module = torch.nn.Module()", f"module.forward = {model}"]
    name = model if is_module else "module"
    each = [f"exported = torch.export.export({name}, {given.example})"]
    if entry == EXPORT:
        return EntryText([], before, each, f"exported.module()({given.call})")
    configs = f", inductor_configs={options}" if options else ""
    each.append(f"package = torch._inductor.aoti_compile_and_package(exported{configs})")
    return EntryText([], before, each, f"torch._inductor.aoti_load_package(package)({given.call})")
