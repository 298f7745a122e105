"""Programs of two to five operators whose shapes fit, with views, changes in place, contexts and
transforms.

Each step is run as it is chosen, and each feature of the program is run by eager before it is
added. So the program runs without torch.compile.
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import torch

from . import chain_steps
from .chain_programs import Argument, ChainProgram, with_features
from .drawing import Drawing
from .operator_samples import (
    DTYPES,
    MAX_ELEMENTS,
    SEED,
    Refused,
    call_of,
    operators,
    samples_of,
)

MAX_TRIES = 12
STEPS = {"operator": 5, "view": 2, "change": 2, "alias": 1}
"""The kinds of steps with their weights."""


class Chain:
    """The steps of a program in the making, and the values of its variables."""

    def __init__(self, draw: Drawing) -> None:
        self.draw = draw
        self.arguments: dict[str, Argument] = {}
        self.lines: list[str] = []
        self.values: dict[str, Any] = {}
        self.is_train = draw.is_chosen(0.35)

    def pick_value(self, dtype: torch.dtype | None = None) -> str:
        """Return the name of a variable, mostly a late one; empty if none has that type."""
        names = [n for n, v in self.values.items() if dtype is None or v.dtype is dtype]
        if not names:
            return ""
        return names[-1] if self.draw.is_chosen(0.6) else self.draw.random.choice(names)

    def add_argument(self, tensor: torch.Tensor) -> str:
        """Add an argument of the program that is like a tensor."""
        name = f"x{len(self.arguments)}"
        layout = ""
        if self.draw.is_chosen(0.25):
            layout = self.draw.choose("layout", chain_steps.LAYOUTS)
        argument = Argument(tensor, layout, self.is_train and tensor.is_floating_point())
        self.values[name] = self._run(argument.text())
        self.arguments[name] = argument
        return name

    def add_text(self, text: str) -> str:
        """Add an argument of the program with the text of its value."""
        name = f"x{len(self.arguments)}"
        value = self._run(text)
        if self.is_train and value.is_floating_point():
            text = f"({text}).requires_grad_()"
            value.requires_grad_()
        self.values[name] = value
        self.arguments[name] = Argument(value, expression=text)
        return name

    def add_shared_argument(self) -> None:
        """Add an argument that shares the memory of another one."""
        base = self.draw.random.choice([*self.arguments])
        text = self.draw.choose("shared", chain_steps.SHARED).format(v=base)
        name = f"x{len(self.arguments)}"
        self.values[name] = self._run(text)
        self.arguments[name] = Argument(self.values[name], expression=text)

    def _run(self, text: str) -> Any:
        torch.manual_seed(SEED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                # the text is made of the tables of this package
                return eval(text, {"torch": torch, **self.values})  # noqa: S307
            except Exception as problem:
                raise Refused from problem

    def add_step(self, expression: str) -> None:
        """Add a line that binds the result of an expression to a new variable."""
        out = self._run(expression)
        if isinstance(out, (tuple, list)):
            index = self.draw.random.randrange(len(out)) if out else 0
            expression, out = f"{expression}[{index}]", out[index] if out else None
        if not isinstance(out, torch.Tensor) or out.numel() > MAX_ELEMENTS or out.is_sparse:
            raise Refused
        name = f"y{sum(n.startswith('y') for n in self.values)}"
        self.values[name] = out
        self.lines.append(f"{name} = {expression}")

    def add_change(self, statement: str) -> None:
        """Add a line that changes a variable in place."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(statement, {"torch": torch, **self.values})  # noqa: S102
            except Exception as problem:
                raise Refused from problem
        self.lines.append(statement)

    def attempt_step(self, kind: str) -> None:
        """Add a step of a kind; nothing changes if it is refused."""
        before = len(self.arguments), dict(self.values), len(self.lines), dict(self.draw.chosen)
        try:
            if kind == "operator":
                self._add_operator()
            elif kind == "view":
                self.add_row("view", chain_steps.VIEWS, self.pick_value())
            elif kind == "change":
                self.add_row("change", chain_steps.CHANGES, self.pick_value())
            else:
                base = self.pick_value()
                self.add_row("alias", chain_steps.ALIASES, base)
                self.add_row("change", chain_steps.CHANGES, base)
        except Refused:
            count, self.values, lines, self.draw.chosen = before
            self.arguments = dict(itertools.islice(self.arguments.items(), count))
            del self.lines[lines:]

    def _add_operator(self) -> None:
        """Add a call of an operator with one of its samples."""
        draw, ops = self.draw, operators()
        key = draw.choose("operator", [*ops])
        name = self.pick_value()
        if name:
            dtype = self.values[name].dtype
        else:
            (dtype,) = draw.random.choices([*DTYPES], [*DTYPES.values()])
        rows = samples_of(key, dtype)
        if name and rows:
            fits = [r for r in rows if r.input.shape == self.values[name].shape]
            rows = fits if fits and draw.is_chosen(0.8) else rows
        if not rows:
            raise Refused
        row, op = draw.random.choice(rows), ops[key]
        words = [name or self.add_argument(row.input)]
        words += [self._word(value) for value in row.args]
        words += [f"{option}={self._word(value)}" for option, value in row.kwargs.items()]
        call = call_of(key)
        if draw.is_chosen(0.15) and op.inplace_variant is not None:
            self.add_change(f"{words[0]}.{op.name}_({', '.join(words[1:])})")
        elif draw.is_chosen(0.1) and op.supports_out:
            out = self._run(f"{call}({', '.join(words)})")
            target = self.pick_value(out.dtype) if isinstance(out, torch.Tensor) else ""
            if not target or self.values[target].shape != out.shape:
                raise Refused
            self.add_change(f"{call}({', '.join([*words, f'out={target}'])})")
        else:
            self.add_step(f"{call}({', '.join(words)})")

    def _word(self, value: object) -> str:
        """Return the text of an argument of a sample; a tensor becomes a variable."""
        if isinstance(value, torch.Tensor):
            if value.numel() > MAX_ELEMENTS:
                raise Refused
            like = [
                n
                for n, v in self.values.items()
                if v.shape == value.shape and v.dtype is value.dtype
            ]
            use_one = like and value.dtype != torch.int64 and self.draw.is_chosen(0.5)
            return self.draw.random.choice(like) if use_one else self.add_argument(value)
        if isinstance(value, (tuple, list)):
            inner = [self._word(one) for one in value]
            if isinstance(value, list):
                return f"[{', '.join(inner)}]"
            return f"({', '.join(inner)}{',' * (len(inner) == 1)})"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        plain = (bool, int, float, str, torch.dtype, torch.memory_format, complex)
        if value is None or isinstance(value, plain):
            return repr(value)
        if isinstance(value, slice):
            return f"slice({value.start}, {value.stop}, {value.step})"
        raise Refused

    def add_row(self, kind: str, table: tuple[str, ...], name: str) -> None:
        """Add a row of a table with a variable in it; the kind ``change`` changes it in place."""
        value = self.values[name]
        if kind == "change" and 0 in value.stride() and value.numel():
            raise Refused  # several elements are the same memory
        same = [n for n, v in self.values.items() if v.shape == value.shape]
        dim = self.draw.random.randrange(max(value.dim(), 1))
        text = self.draw.choose(kind, table).format(
            v=name, w=self.draw.random.choice(same), d=dim, last=max(value.dim() - 1, 0)
        )
        if kind == "change":
            self.add_change(text)
        else:
            self.add_step(text)

    def program(self, options: str = "{}") -> ChainProgram:
        """Return the program, which returns some of its variables."""
        return ChainProgram(
            self.lines or ["pass"],
            self.arguments,
            self._shown(),
            self.values,
            self.is_train,
            options=options,
        )

    def _shown(self) -> list[str]:
        """Return some variables, and the last one."""
        names = [n for n in self.values if n.startswith("y")]
        return [n for n in names[:-1] if self.draw.is_chosen(0.5)] + names[-1:] or ["x0"]


def write_program(draw: Drawing) -> str:
    """Return a program of two to five steps, with features that eager can run."""
    return with_features(write_chain(draw), draw).text()


def write_chain(draw: Drawing) -> ChainProgram:
    """Return a chain of two to five steps without further features."""
    chain = Chain(draw)
    wanted = draw.random.randint(2, 5)
    for _ in range(wanted * MAX_TRIES):
        if len(chain.lines) >= wanted:
            break
        (kind,) = draw.random.choices([*STEPS], [*STEPS.values()])
        chain.attempt_step(kind if chain.lines else "operator")
        if chain.arguments and len(chain.lines) == 1 and draw.is_chosen(0.1):
            try:
                chain.add_shared_argument()
            except Refused:
                continue
    return chain.program()
