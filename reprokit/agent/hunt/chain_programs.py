"""The text of a program of a chain, and the features that are added to it: transforms, contexts,
further outputs, and calls with other sizes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..run_target import call_model
from . import chain_steps
from .drawing import Drawing
from .operator_samples import SEED, Refused, resize, tensor_text

MAX_JACOBIAN = 64
"""The most elements of the arguments of a jacobian."""
MAX_TRIES = 3
"""How many forms of a feature are tried."""
TRIED_NAME = "tried_program"


@dataclass(frozen=True)
class Argument:
    """An argument of the program."""

    tensor: torch.Tensor
    layout: str = ""
    is_leaf: bool = False
    """Whether it requires a gradient."""
    expression: str = ""
    """Its text, such as a view of another argument; empty if it is made of the tensor."""

    def text(self, sizes: Mapping[int, int] | None = None) -> str:
        """Return the expression that makes it; ``sizes`` replaces sizes of dimensions.

        Raises Refused if a tensor of this type has no such layout.
        """
        if self.expression:
            return self.expression
        tensor = self.tensor
        if sizes:
            tensor = resize(tensor, [sizes.get(size, size) for size in tensor.shape])
        text = _laid_out(tensor, self.layout) if self.layout else tensor_text(tensor)
        return f"{text}.requires_grad_()" if self.is_leaf else text


def _laid_out(tensor: torch.Tensor, layout: str) -> str:
    """Return the expression of a tensor of the same shape that lies differently in memory."""
    shape = list(tensor.shape)
    if not shape or not tensor.numel():
        raise Refused
    if layout == "transposed":
        if len(shape) < 2:
            raise Refused
        return f"{tensor_text(tensor.transpose(-1, -2).contiguous())}.transpose(-1, -2)"
    if layout == "channels last":
        if len(shape) != 4:
            raise Refused
        plain = tensor_text(tensor.contiguous())
        return f"{plain}.contiguous(memory_format=torch.channels_last)"
    size, tail = {
        "stepped": ([*shape[:-1], 2 * shape[-1]], "[..., ::2]"),
        "offset": ([shape[0] + 1, *shape[1:]], "[1:]"),
        "narrowed": ([*shape[:-1], shape[-1] + 2], f"[..., 1:{shape[-1] + 1}]"),
        "expanded": ([1, *shape[1:]], f".expand({', '.join(map(str, shape))})"),
    }[layout]
    return tensor_text(resize(tensor, size)) + tail


@dataclass(frozen=True)
class ChainProgram:
    """A program with the function that is compiled, and its calls."""

    lines: Sequence[str]
    arguments: Mapping[str, Argument]
    shown: Sequence[str]
    """What the chain returns, as expressions."""
    values: Mapping[str, Any] = field(repr=False)
    """The values of the variables, when eager ran the chain."""
    is_train: bool = False
    transform: str = ""
    """The expression that the function returns; empty if it is the chain itself."""
    context: tuple[int, int, str] | None = None
    """A context of some lines: the first line, the one behind the last, and the expression."""
    sizes: Sequence[Mapping[int, int]] = ({},)
    """The sizes that each call replaces."""
    options: str = "{}"
    """The arguments of torch.compile."""

    def text(self) -> str:
        """Return the text of the program."""
        names = ", ".join(self.arguments)
        rows = [f"    {line}" for line in self.lines]
        if self.context is not None:
            start, end, expression = self.context
            inside = [f"    {row}" for row in rows[start:end]]
            rows[start:end] = [f"    with {expression}:", *inside]
        function = "chain" if self.transform else "function"
        outer = [
            f"def function({names}):",
            f"    return {self.transform}",
            "",
            "",
        ]
        comma = "," * (len(self.arguments) == 1)
        call = f"(({names}{comma}), {{}})"
        made = [self._argument_rows(sizes) for sizes in self.sizes]
        rows_of_calls, calls = made[0], f"[{call}]"
        if len(made) > 1:
            append = f"    calls.append({call})"
            rows_of_calls, calls = ["    calls = []"], "calls"
            rows_of_calls += [row for rows_of_call in made for row in (*rows_of_call, append)]
        return "\n".join(
            [
                '"""A chain of operators."""',
                "",
                "import torch",
                "",
                "",
                f"def {function}({names}):",
                *rows,
                f"    return {', '.join(self.shown)}",
                "",
                "",
                *(outer if self.transform else []),
                "def make():",
                f"    torch.manual_seed({SEED})",
                *rows_of_calls,
                f'    return {{"model": function, "calls": {calls}, "compile": {self.options},'
                f' "train": {self.is_train}}}',
                "",
            ]
        )

    def _argument_rows(self, sizes: Mapping[int, int]) -> list[str]:
        return [f"    {name} = {one.text(sizes)}" for name, one in self.arguments.items()]


def with_features(program: ChainProgram, draw: Drawing) -> ChainProgram:
    """Return the program with some features, each of which eager can run."""
    for share, add in FEATURES:
        if draw.is_chosen(share):
            program = _with_feature(program, draw, add)
    is_dynamic = draw.is_chosen(0.5 if len(program.sizes) > 1 else 0.3)
    return dataclasses.replace(program, options='{"dynamic": True}') if is_dynamic else program


def _with_feature(
    program: ChainProgram, draw: Drawing, add: Callable[[ChainProgram, Drawing], ChainProgram]
) -> ChainProgram:
    """Return the program with a feature; without it if eager cannot run it in any try."""
    before = dict(draw.chosen)
    for _ in range(MAX_TRIES):
        with contextlib.suppress(Refused):
            changed = add(program, draw)
            if _runs(changed):
                return changed
        draw.chosen = dict(before)
    return program


def _with_transform(program: ChainProgram, draw: Drawing) -> ChainProgram:
    """Apply a transform of ``torch.func``, a checkpoint or a second call to the chain."""
    names = [*program.arguments]
    floats = [n for n, one in program.arguments.items() if one.tensor.is_floating_point()]
    form = draw.choose("transform", chain_steps.TRANSFORMS)
    size = sum(program.arguments[n].tensor.numel() for n in floats)
    if ("{floats}" in form and not floats) or ("jac" in form and size > MAX_JACOBIAN):
        raise Refused
    if program.is_train and "checkpoint" not in form and "autograd" not in form:
        program = _without_gradients(program)
    elif "autograd" in form and not program.is_train:
        raise Refused
    shown = program.shown
    if chain_steps.OF_NUMBER in form:
        last = shown[-1]
        is_complex = getattr(program.values.get(last), "is_complex", bool)()
        shown = [f"{last}.abs().sum()" if is_complex else f"{last}.sum()"]
    joined = ", ".join(floats)
    one = "({v} * 2)" if draw.is_chosen(0.5) else "{v}.flip(0)"
    stacks = [f"torch.stack([{n}, {one.format(v=n)}])" for n in floats]
    of = "chain" if floats == names else f"(lambda {joined}: chain({', '.join(names)}))"
    transform = form.format(
        of=of,
        names=", ".join(names),
        floats=joined,
        ones=", ".join(f"torch.ones_like({n})" for n in floats),
        stacked=", ".join(stacks),
        stacked_twice=", ".join(f"torch.stack([{one}] * 3)" for one in stacks),
    )
    return dataclasses.replace(program, transform=transform, shown=shown)


def _without_gradients(program: ChainProgram) -> ChainProgram:
    arguments = {
        name: dataclasses.replace(one, is_leaf=False) for name, one in program.arguments.items()
    }
    return dataclasses.replace(program, arguments=arguments, is_train=False)


def _with_context(program: ChainProgram, draw: Drawing) -> ChainProgram:
    """Put some lines in a context such as autocast."""
    start = draw.random.randrange(len(program.lines))
    end = draw.random.randint(start + 1, len(program.lines))
    expression = draw.choose("context", chain_steps.CONTEXTS)
    return dataclasses.replace(program, context=(start, end, expression))


def _with_outputs(program: ChainProgram, draw: Drawing) -> ChainProgram:
    """Return more: an argument, an output twice, or a view of one of them."""
    if program.transform:
        raise Refused
    shown = [*program.shown]
    for _ in range(draw.random.randint(1, 2)):
        name = draw.random.choice([*shown, *program.arguments])
        form = draw.choose("output", ["{v}", *chain_steps.ALIASES])
        last = max(program.values[name].dim() - 1, 0) if name in program.values else 0
        shown.append(form.format(v=name, w=name, d=0, last=last))
    return dataclasses.replace(program, shown=shown)


def _with_sizes(program: ChainProgram, draw: Drawing) -> ChainProgram:
    """Call the function again, with another size of all dimensions of one size."""
    found = sorted({n for one in program.arguments.values() for n in one.tensor.shape})
    sizes: list[Mapping[int, int]] = [{}]
    for _ in range(draw.random.randint(1, 3)):
        if not found or draw.is_chosen(0.15):
            sizes.append({})
            continue
        size = draw.random.choice(found)
        other = draw.random.choice([size + 1, 2 * size + 1, max(size - 1, 0), 1, 0, 17])
        sizes.append({size: other})
    if draw.is_chosen(0.2):
        sizes.reverse()
    return dataclasses.replace(program, sizes=sizes)


FEATURES = (
    (0.35, _with_transform),
    (0.3, _with_context),
    (0.35, _with_outputs),
    (0.35, _with_sizes),
)
"""How many of the programs have a feature, if eager can run it."""


def _runs(program: ChainProgram) -> bool:
    """Return whether eager can run the program."""
    module = sys.modules[TRIED_NAME] = types.ModuleType(TRIED_NAME)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(program.text(), module.__dict__)  # noqa: S102
            made = module.make()
            for args, kwargs in made["calls"]:
                call_model(module.function, args, kwargs, made["train"], torch.Tensor.backward)
        except Exception:
            return False
    return True
