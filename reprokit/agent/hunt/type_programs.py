"""Programs of many short expressions over tensors of different types and sizes.

Inductor makes one C++ function of all of them, so a program costs about as much as one expression,
and vectorized code meets mixtures of types that a chain of samples seldom has.

Compiled code may round differently. So an operator whose result jumps, such as a comparison or a
cast to an integer, gets only values that eager and compiled code have in common to the last bit:
arguments, integers, and what is selected or computed from them without rounding.
"""

from __future__ import annotations

import torch

from .drawing import Drawing
from .operator_chains import Chain
from .operator_samples import Refused

STEPS = (8, 14)
ARGUMENTS = (3, 5)
MAX_TRIES = 40
SHAPES = (
    ((64,), (64,), (1,), ()),
    ((70,), (70,), (1,), ()),
    ((3, 70), (3, 70), (70,), (3, 1)),
    ((2, 5, 9), (2, 5, 9), (5, 1), (9,)),
    ((17, 33), (17, 33), (33,), (17, 1)),
    ((4, 64), (4, 64), (1, 64), ()),
    ((3, 1), (1, 40), (3, 40)),
    ((0,), (0,), (1,)),
)
"""Shapes of arguments that broadcast to the first one."""
FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8",)
TYPES = (*FLOATS, "float32", *SIGNED, *UNSIGNED, *UNSIGNED, "bool", "bool")
SELECTIONS = (
    "torch.abs({a})",
    "-{a}",
    "torch.relu({a})",
    "torch.nn.functional.hardtanh({a})",
    "torch.nn.functional.relu6({a})",
    "torch.nn.functional.threshold({a}, 1, 2)",
    "torch.nan_to_num({a})",
    "{a}.clamp(0, 2)",
    "{a}.clamp(min=0.5)",
    "{a}.clamp(max=1)",
    "{a}.to({float})",
    "torch.full_like({a}, 2)",
    "torch.ones_like({a}, dtype={any})",
    "torch.maximum({a}, {b})",
    "torch.minimum({a}, {b})",
    "torch.fmax({a}, {b})",
    "torch.fmin({a}, {b})",
    "torch.copysign({a}, {b})",
    "torch.clamp({a}, min={b})",
    "torch.clamp({a}, {b}, {b} + 1)",
    "torch.clamp({a}, {b}, {c})",
    "torch.where({a}.to(torch.bool), {b}, {c})",
    "torch.where({a} > 0, {b}, {c})",
    "torch.where({a} > {b}, {a}, 0)",
    "torch.where({a} > {b}, 1.5, {b})",
    "{a}.masked_fill({b} > 0, 1)",
    *(
        f"torch.{name}({{a}}{rest})"
        for name in ("amax", "amin")
        for rest in ("", ", dim={d}", ", dim={d}, keepdim=True")
    ),
    "torch.aminmax({a})",
    "torch.max({a}, dim={d})",
    "torch.min({a}, dim={d})",
    "torch.cummax({a}, dim={d})",
    "torch.median({a}, dim={d})[0]",
    "torch.sort({a}, dim={d}, stable=True)",
    "torch.topk({a}, 1, dim={d})[0]",
    "torch.flip({a}, [{d}])",
    "torch.roll({a}, 1, {d})",
    "torch.cat([{a}, {b}], dim={d})",
    "torch.stack([{a}, {b}])",
    "torch.gather({a}, {d}, torch.zeros_like({a}, dtype=torch.int64))",
    "{a}[{a} > 0]",
    "{a}[..., ::2]",
    "torch.tril({a})",
    "torch.nn.functional.pad({a}, (1, 2))",
    "torch.nn.functional.pad({a}, (1, 2), value=1.5)",
    "{a}.repeat(2, *[1] * ({a}.dim() - 1))",
    "torch.repeat_interleave({a}, 2)",
)
"""Values of the operands, chosen by their order or place: exact for exact operands."""
STEPS_OF_VALUES = (
    *(f"torch.{name}({{a}}, {{b}})" for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(f"torch.logical_{name}({{a}}, {{b}})" for name in ("and", "or", "xor")),
    *(f"torch.bitwise_{name}({{a}}, {{b}})" for name in ("and", "or", "xor")),
    "torch.logical_not({a})",
    "torch.bitwise_not({a})",
    "torch.sign({a})",
    "torch.sgn({a})",
    "torch.signbit({a})",
    "torch.round({a})",
    "torch.floor({a})",
    "torch.ceil({a})",
    "torch.trunc({a})",
    "torch.frac({a})",
    "torch.frexp({a})",
    "torch.isnan({a})",
    "torch.isfinite({a})",
    "torch.isposinf({a})",
    "{a} // 2",
    "{a} % 3",
    "2 > {a}",
    "{a} == 1",
    "{a} & 1",
    "{a} | 2",
    "{a} ^ 1",
    "{a}.float().nan_to_num(1).clamp(-9, 9).to({signed})",
    "{a}.float().nan_to_num(1).abs().clamp(0, 9).to({unsigned})",
    "{a}.to(torch.bool)",
    "{a}.view({same})",
    "torch.bucketize({a}, torch.tensor([0, 1, 2]))",
    "torch.floor_divide({a}, {b}.abs() + 1)",
    "torch.remainder({a}, {b}.abs() + 1)",
    "torch.fmod({a}, {b}.abs() + 1)",
    "torch.div({a}, {b}.abs() + 1, rounding_mode='trunc')",
    "torch.div({a}, {b}.abs() + 1, rounding_mode='floor')",
    "torch.nextafter({a}, {b})",
    "torch.heaviside({a}, {b})",
    "torch.gcd({a}, {b})",
    "torch.isclose({a}, {b})",
    *(
        f"torch.{name}({{a}}{rest})"
        for name in ("any", "all", "argmax", "argmin")
        for rest in ("", ", dim={d}", ", dim={d}, keepdim=True")
    ),
    "torch.count_nonzero({a}, dim={d})",
    "torch.argsort({a}, dim={d}, stable=True)",
    "torch.unique({a})",
    "torch.nonzero({a})",
    "torch.searchsorted({a}.flatten().sort()[0], {b})",
    "torch.bincount({a}.flatten().clamp(0, 9))",
)
"""Results that jump: for exact operands only, and exact."""
ROUNDED = (
    "torch.square({a})",
    "torch.sqrt(torch.abs({a}))",
    "torch.rsqrt(torch.abs({a}) + 1)",
    "torch.reciprocal({a} * {a} + 1)",
    "torch.exp({a}.clamp(0, 5))",
    "torch.expm1({a}.clamp(0, 5))",
    "torch.log1p(torch.abs({a}))",
    "torch.sin({a})",
    "torch.tanh({a})",
    "torch.sigmoid({a})",
    "torch.erf({a})",
    "torch.lgamma(torch.abs({a}) + 1)",
    "torch.special.i0({a}.clamp(0, 5))",
    "torch.nn.functional.silu({a})",
    "torch.nn.functional.gelu({a})",
    "torch.nn.functional.hardswish({a})",
    "torch.nn.functional.leaky_relu({a})",
    "torch.nn.functional.elu({a})",
    "torch.nn.functional.softplus({a})",
    "torch.nn.functional.hardsigmoid({a})",
    "torch.nn.functional.logsigmoid({a})",
    "torch.deg2rad({a})",
    "torch.logit({a}, 0.1)",
    "{a} + 1",
    "{a} * 2",
    "{a} * 0.5",
    "{a} / 3",
    "{a} ** 2",
    "{a} ** 3",
    "{a}.abs() ** 0.5",
    "2 ** {a}.clamp(0, 5)",
    "3 - {a}",
    "1.5 - {a}",
    *(
        f"torch.{name}({{a}}, {{b}})"
        for name in ("add", "sub", "mul", "rsub", "hypot", "logaddexp")
    ),
    "torch.true_divide({a}, {b}.abs() + 1)",
    "torch.atan2({a}, {b}.abs() + 1)",
    "torch.xlogy({a}, {b}.abs() + 1)",
    "torch.pow({a}.abs().clamp(0, 4), {b}.abs().clamp(0, 3))",
    "torch.ldexp({a}, {b}.clamp(0, 3))",
    "torch.add({a}, {b}, alpha=2)",
    "torch.sub({a}, {b}, alpha=3)",
    "torch.nn.functional.prelu({a}, {b}.flatten()[:1])",
    "torch.addcmul({a}, {b}, {c})",
    "torch.addcmul({a}, {b}, {c}, value=2)",
    "torch.addcdiv({a}, {b}, {c}.abs() + 1)",
    "torch.lerp({a}, {b}, {c})",
    *(
        f"torch.{name}({{a}}{rest})"
        for name in ("sum", "prod", "mean")
        for rest in ("", ", dim={d}", ", dim={d}, keepdim=True")
    ),
    "torch.sum({a}, dtype={any})",
    "torch.sum({a}, dim={d}, dtype={any})",
    "torch.mean({a}, dim={d}, dtype=torch.float64)",
    "torch.var({a}, dim={d})",
    "torch.std({a})",
    "torch.var_mean({a}, dim={d})",
    "torch.cumsum({a}, dim={d})",
    "torch.cumsum({a}, dim={d}, dtype={any})",
    "torch.cumprod({a}.clamp(0, 1), dim={d})",
    "torch.logcumsumexp({a}, dim={d})",
    "torch.logsumexp({a}, dim={d})",
    "torch.softmax({a}, dim={d})",
    "torch.softmax({a}, dim={d}, dtype=torch.float32)",
    "torch.log_softmax({a}, dim={d})",
    "torch.linalg.vector_norm({a})",
    "torch.linalg.vector_norm({a}, 1, dim={d})",
    "torch.linalg.vector_norm({a}, float('inf'))",
    "torch.diff({a}, dim={d})",
    "torch.trapezoid({a}, dim={d})",
    "torch.dot({a}.flatten(), {b}.flatten())",
    "torch.outer({a}.flatten()[:5], {b}.flatten()[:5])",
    "{a}.T @ {b}",
    "{a}[..., 1:] + {a}[..., :-1]",
)
"""Floats that may be rounded differently, and integers."""
CHANGES = (
    "{a}.add_(1)",
    "{a}.mul_(2)",
    "{a}.add_({b})",
    "{a}.mul_({b})",
    "{a}.copy_({b})",
    "{a}.clamp_(min=0)",
    "{a}.masked_fill_({b} > 0, 1)",
    "{a}.logical_not_()",
    "{a}.bitwise_and_({b})",
    "{a} += {b}",
    "{a} |= {b}",
    "{a} //= {b}.abs() + 1",
    "{a}[..., 0] = {b}.flatten()[:1]",
    "{a}[{b} > 0] = 1",
)
TABLES = (SELECTIONS, STEPS_OF_VALUES, ROUNDED, CHANGES)
WEIGHTS = (5, 7, 6, 1)


def write_program(draw: Drawing) -> str:
    """Return a program of eight to fourteen expressions and changes in place."""
    chain = Chain(draw)
    chain.is_train = draw.is_chosen(0.1)
    shapes = draw.random.choice(SHAPES)
    for number in range(draw.random.randint(*ARGUMENTS)):
        shape = shapes[0] if not number else draw.random.choice(shapes)
        chain.add_text(_argument(shape, draw.random.choice(TYPES), draw))
    exact, wanted = {*chain.values}, draw.random.randint(*STEPS)
    for _ in range(wanted * MAX_TRIES):
        if len(chain.lines) >= wanted:
            break
        (table,) = draw.random.choices(TABLES, WEIGHTS)
        try:
            _add_line(chain, table, exact)
        except Refused:
            continue
    return chain.program('{"dynamic": True}' if draw.is_chosen(0.25) else "{}").text()


def _argument(shape: tuple[int, ...], name: str, draw: Drawing) -> str:
    """Return an expression for a tensor with small values, which no cast leaves."""
    dtype = f"torch.{name}"
    if name == "bool":
        return f"torch.rand({shape}) > 0.5"
    if name in FLOATS:
        kind = draw.random.choice(("torch.randn({s}, dtype={t})", "torch.rand({s}, dtype={t}) * 4"))
        return kind.format(s=shape, t=dtype)
    low = 0 if name in UNSIGNED else -6
    return f"torch.randint({low}, 7, {shape}, dtype={dtype})"


def _add_line(chain: Chain, table: tuple[str, ...], exact: set[str]) -> None:
    """Add a line of a table with variables in it, and its variable to the exact ones."""
    draw = chain.draw.random
    needs_exact = table is STEPS_OF_VALUES or table is CHANGES
    names = [name for name in chain.values if name in exact or not needs_exact]
    # later variables are more frequent, and every one is possible
    a, b, c = (names[-1 - min(int(draw.expovariate(0.25)), len(names) - 1)] for _ in range(3))
    value = chain.values[a]
    same = [
        t
        for t in (*SIGNED, *UNSIGNED)
        if getattr(torch, t).itemsize == value.element_size() and not value.is_floating_point()
    ]
    form = chain.draw.choose("expression", table)
    text = form.format(
        a=a,
        b=b,
        c=c,
        d=draw.randrange(max(value.dim(), 1)),
        signed=f"torch.{draw.choice(SIGNED)}",
        unsigned=f"torch.{draw.choice(UNSIGNED)}",
        float=f"torch.{draw.choice(FLOATS)}",
        any=f"torch.{draw.choice(FLOATS + SIGNED)}",
        same=f"torch.{draw.choice(same or FLOATS)}",
    )
    if not same and "{same}" in form:
        raise Refused  # the last bits of a float
    if "> " in form and not {a, b} <= exact:
        raise Refused
    if table is CHANGES:
        chain.add_change(text)
        if value.is_floating_point():
            exact.discard(a)
        return
    chain.add_step(text)
    name, out = [*chain.values.items()][-1]
    rounds = table is ROUNDED and (out.is_floating_point() or out.is_complex())
    if {a, b, c} <= exact and not rounds:
        exact.add(name)
