"""Programs of two to five operators whose shapes fit, from the operators and the sample inputs in
``torch.testing._internal`` of the torch at hand.

Each step is run as it is chosen, so that the program runs without torch.compile. Operators whose
result is not defined, or is random, are left out: a difference of theirs is no failure.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import re
import warnings
from typing import Any

import torch

from ...core.shared.source import tensors

MAX_SAMPLES = 24
MAX_TRIES = 12
MAX_ELEMENTS = 4096
SEED = 0
DTYPES = {
    torch.float32: 12,
    torch.float64: 2,
    torch.int64: 3,
    torch.int32: 1,
    torch.uint8: 1,
    torch.bool: 1,
    torch.bfloat16: 1,
    torch.float16: 1,
    torch.complex64: 1,
}
"""The weights of the types of the first tensor."""
UNDEFINED = re.compile(
    # uninitialised memory, memory that overlaps, and sizes of storages
    r"empty|new_empty|resize|as_strided|set_|unsafe|"
    # random numbers
    r"rand|normal|bernoulli|multinomial|dropout|uniform|exponential|geometric|cauchy|rrelu|"
    r"fractional_max_pool|gumbel|poisson|scaled_dot_product|multi_head|"
    # shifts beyond the width, and conversions of floats to unsigned integers
    r"shift|^byte$|^bool$|"
    # results that are correct with any sign or order
    r"svd|eig|qr$|geqrf|ormqr|lowrank|linalg_lu|lu_|"
    # files, sparse tensors, other front ends, and types for which there is no code
    r"sparse|jiterator|masked\.|_refs|ops\.|torch_ops|__|stft|hash|to_|item|cdist|nonzero_static"
)
VIEWS = (
    "{v}.t()",
    "{v}.transpose(0, {last})",
    "{v}.transpose(-1, -2)",
    "{v}.unsqueeze({d})",
    "{v}.squeeze()",
    "{v}[..., ::2]",
    "{v}[1:]",
    "{v}[:-1]",
    "{v}[None]",
    "{v}[..., 0]",
    "{v}[..., -1:]",
    "{v}.flip({d})",
    "{v}.reshape(-1)",
    "{v}.view(-1)",
    "{v}.flatten()",
    "{v}.contiguous()",
    "{v}.select({d}, 0)",
    "{v}.narrow({d}, 0, 1)",
    "{v}.diagonal()",
    "{v}.unfold({d}, 1, 1)",
    "{v}.chunk(2, {d})[0]",
    "{v}.chunk(2, {d})[-1]",
    "{v}.split(1, {d})[-1]",
    "{v}.expand(2, *{v}.shape)",
    "{v}.movedim(0, -1)",
    "{v}.clone()",
    "{v}.detach()",
    "{v}.repeat_interleave(2, {d})",
    "{v}[{v} > 0]",
    "{v}.to(torch.float64)",
    "{v}.to(torch.int32)",
    "{v}.half()",
    "{v}.float()",
    "{v}.roll(1, {d})",
    "torch.cat([{v}, {w}], {d})",
    "torch.stack([{v}, {w}])",
    "torch.where({v} > 0, {v}, {w})",
)
CHANGES = (
    "{v}.add_(1)",
    "{v}.mul_(2)",
    "{v}.add_({w})",
    "{v}.mul_({w})",
    "{v}.sub_({w}, alpha=2)",
    "{v}.copy_({w})",
    "{v}.zero_()",
    "{v}.fill_(3)",
    "{v}.neg_()",
    "{v}.clamp_(min=0)",
    "{v}.t_()",
    "{v}.squeeze_()",
    "{v}.unsqueeze_({d})",
    "{v}.transpose_(0, {last})",
    "{v}[0] = 1",
    "{v}[..., 0] = {v}[..., -1]",
    "{v}[1:] = {v}[:-1].clone()",
    "{v}[:-1] += {v}[1:]",
    "{v}[..., ::2] *= 2",
    "{v}[{v} > 0] = 0",
    "{v}.select({d}, 0).add_({w})",
    "{v}.view(-1)[0] = 5",
    "{v}.masked_fill_({v} > 0, 2)",
    "{v}.index_fill_({d}, torch.tensor([0]), 1)",
    "{v}.index_add_(0, torch.tensor([0, 0]), {v}[:1].expand(2, *{v}.shape[1:]).clone())",
    "{v}.scatter_(0, torch.zeros_like({v}, dtype=torch.int64), {w})",
    "{v}.cumsum_({d})",
    "{v}.flatten().add_(1)",
    "torch.add({v}, {w}, out={v})",
    "torch.mul({w}, 2, out={v})",
)


@functools.cache
def operators() -> tuple[Any, ...]:
    """Return the operators of ``op_db`` that have a public name and a defined result."""
    from torch.testing._internal.common_methods_invocations import op_db

    found = {op.name: op for op in reversed(op_db) if not UNDEFINED.search(op.name)}
    return tuple(op for name, op in sorted(found.items()) if _call_of(name))


def _call_of(name: str) -> str:
    """Return how a program calls an operator; empty if it has no public name."""
    for prefix in ("torch", "torch.Tensor"):
        place: Any = torch if prefix == "torch" else torch.Tensor
        for part in name.split("."):
            place = getattr(place, part, None)
        if callable(place):
            return f"{prefix}.{name}"
    return ""


@functools.lru_cache(maxsize=64)
def _samples(number: int, dtype: torch.dtype) -> list[Any]:
    """Return the first sample inputs of an operator that are small and have a tensor."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    try:
        found = operators()[number].sample_inputs("cpu", dtype, requires_grad=False)
        rows = list(itertools.islice(found, MAX_SAMPLES))
    except Exception:  # it has no samples of this type
        return []
    return [
        row
        for row in rows
        if isinstance(row.input, torch.Tensor) and row.input.numel() <= MAX_ELEMENTS
    ]


class Refused(Exception):
    """A value has no text, or a step does not run."""


class Chain:
    """A program in the making, and the values of its variables."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.arguments: dict[str, str] = {}
        self.lines: list[str] = []
        self.values: dict[str, Any] = {}
        self.is_train = draw.random() < 0.25

    def pick_value(self, dtype: torch.dtype | None = None) -> str:
        """Return the name of a variable, mostly a late one; empty if none has that type."""
        names = [n for n, v in self.values.items() if dtype is None or v.dtype is dtype]
        if not names:
            return ""
        return names[-1] if self.draw.random() < 0.6 else self.draw.choice(names)

    def add_argument(self, tensor: torch.Tensor) -> str:
        """Add an argument of the program that is like a tensor."""
        return self.add_text(tensor_text(tensor, self.draw))

    def add_text(self, text: str) -> str:
        """Add an argument of the program with the text of its value."""
        name = f"x{len(self.arguments)}"
        value = self._run(text)
        if self.is_train and value.is_floating_point():
            text = f"({text}).requires_grad_()"
            value.requires_grad_()
        self.values[name] = value
        self.arguments[name] = text
        return name

    def _run(self, text: str) -> Any:
        torch.manual_seed(SEED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                # the text is made of the tables above
                return eval(text, {"torch": torch, **self.values})  # noqa: S307
            except Exception as problem:
                raise Refused from problem

    def add_step(self, expression: str) -> None:
        """Add a line that binds the result of an expression to a new variable."""
        out = self._run(expression)
        if isinstance(out, (tuple, list)):
            index = self.draw.randrange(len(out)) if out else 0
            expression, out = f"{expression}[{index}]", out[index] if out else None
        if not isinstance(out, torch.Tensor) or out.numel() > MAX_ELEMENTS or out.is_sparse:
            raise Refused
        name = f"y{len(self.lines)}"
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

    def add_operator(self) -> None:
        """Add a call of a random operator with one of its samples."""
        draw, ops = self.draw, operators()
        number = draw.randrange(len(ops))
        name = self.pick_value()
        dtype = self.values[name].dtype if name else draw.choices([*DTYPES], [*DTYPES.values()])[0]
        rows = _samples(number, dtype)
        if name and rows:
            fits = [r for r in rows if r.input.shape == self.values[name].shape]
            rows = fits if fits and draw.random() < 0.8 else rows
        if not rows:
            raise Refused
        row = draw.choice(rows)
        before = len(self.arguments), dict(self.values)
        try:
            words = [name or self.add_argument(row.input)]
            words += [self._word(value) for value in row.args]
            words += [f"{key}={self._word(value)}" for key, value in row.kwargs.items()]
            call = _call_of(ops[number].name)
            if draw.random() < 0.15 and ops[number].inplace_variant is not None:
                self.add_change(f"{words[0]}.{ops[number].name}_({', '.join(words[1:])})")
            elif draw.random() < 0.1 and ops[number].supports_out:
                out = self._run(f"{call}({', '.join(words)})")
                if not isinstance(out, torch.Tensor):
                    raise Refused
                target = self.pick_value(out.dtype)
                if not target or self.values[target].shape != out.shape:
                    raise Refused
                self.add_change(f"{call}({', '.join([*words, f'out={target}'])})")
            else:
                self.add_step(f"{call}({', '.join(words)})")
        except Refused:
            count, self.values = before
            self.arguments = dict(itertools.islice(self.arguments.items(), count))
            raise

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
            use_one = like and value.dtype != torch.int64 and self.draw.random() < 0.5
            return self.draw.choice(like) if use_one else self.add_argument(value)
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

    def add_from(self, table: tuple[str, ...], is_change: bool) -> None:
        """Add a line of a table, with variables in it."""
        name = self.pick_value()
        value = self.values[name]
        if is_change and 0 in value.stride() and value.numel():
            raise Refused  # several elements are the same memory
        same = [n for n, v in self.values.items() if v.shape == value.shape]
        dim = self.draw.randrange(max(value.dim(), 1))
        text = self.draw.choice(table).format(
            v=name, w=self.draw.choice(same), d=dim, last=max(value.dim() - 1, 0)
        )
        if is_change:
            self.add_change(text)
        else:
            self.add_step(text)


def tensor_text(tensor: torch.Tensor, draw: random.Random) -> str:
    """Return an expression for a tensor of this type, shape and layout with values in its range."""
    if (
        tensor.layout is not torch.strided
        or tensor.is_quantized
        or type(tensor) is not torch.Tensor
    ):
        raise Refused
    dtype, values = tensor.dtype, tensor.detach().resolve_conj().resolve_neg()
    shape, stride = list(tensor.shape), list(tensor.stride())
    if 0 not in shape and 0 in stride:
        stride = tensors.contiguous_strides(shape)
    facts = {
        "shape": shape,
        "stride": stride,
        "dtype": str(dtype),
        "device": "cpu",
        "requires_grad": False,
    }
    is_plain = stride == tensors.contiguous_strides(shape)
    if is_plain and 0 < tensor.numel() <= 6 and not dtype.is_floating_point:
        return f"torch.tensor({values.tolist()!r}, dtype={dtype})"
    if not tensor.numel() or dtype.is_complex:
        return tensors.tensor_text(facts)
    if dtype.is_floating_point:
        low, high = (float(one) for one in torch.aminmax(values.double()))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise Refused
        if low < 0 < high:
            return tensors.tensor_text(facts)
        scale = max(round(high - low, 3), 0.001)

        def drawn(size: str, where: str) -> str:
            return f"(torch.rand({size}) * {scale} + {round(low, 3)}).to({dtype})"

        return tensors.tensor_text(facts, drawn)
    low, high = int(values.min()), int(values.max())

    def counted(size: str, where: str) -> str:
        return f"torch.randint({low}, {high + 1}, {size}, dtype={dtype})"

    return tensors.tensor_text(facts, counted)


def write_program(draw: random.Random) -> str:
    """Return a program of two to five operators, views and changes."""
    chain = write_chain(draw)
    return program_text(chain, '{"dynamic": True}' if draw.random() < 0.35 else "{}")


def write_chain(draw: random.Random) -> Chain:
    """Return a chain of two to five steps."""
    chain = Chain(draw)
    wanted = draw.randint(2, 5)
    for _ in range(wanted * MAX_TRIES):
        if len(chain.lines) >= wanted:
            break
        kind = draw.choices(("operator", "view", "change"), (5, 2, 2))[0] if chain.lines else ""
        try:
            if kind in ("operator", ""):
                chain.add_operator()
            else:
                chain.add_from(VIEWS if kind == "view" else CHANGES, kind == "change")
        except Refused:
            continue
    return chain


def program_text(chain: Chain, options: str) -> str:
    names = [n for n in chain.values if n.startswith("y")]
    last = names[-1:]
    kept = [n for n in names[:-1] if chain.draw.random() < 0.5] + last
    shown = ", ".join(kept) if kept else "x0"
    rows = [
        '"""A chain of operators."""',
        "",
        "import torch",
        "",
        "",
        f"def function({', '.join(chain.arguments)}):",
        *(f"    {line}" for line in chain.lines or ["pass"]),
        f"    return {shown}",
        "",
        "",
        "def make():",
        f"    torch.manual_seed({SEED})",
        "    args = (",
        *(f"        {text}," for text in chain.arguments.values()),
        "    )",
        f'    return {{"model": function, "calls": [(args, {{}})], "compile": {options},'
        f' "train": {chain.is_train}}}',
        "",
    ]
    return "\n".join(rows)
