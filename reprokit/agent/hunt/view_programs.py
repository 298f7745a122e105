"""Programs of views and of changes in place, also of shapes, with gradients or without.

AOTAutograd removes all of them, and makes the aliases of the results again. Most programs are
compiled by ``aot_eager``, which costs a tenth of Inductor.
"""

from __future__ import annotations

import torch

from .chain_steps import CHANGES, VIEWS
from .drawing import Drawing
from .operator_chains import Chain
from .operator_samples import Refused

STEPS = (4, 8)
MAX_TRIES = 40
SHAPES = ((4,), (4, 4), (2, 3), (3, 2), (2, 3, 4), (1, 4), (4, 1), (3, 1, 2), (0, 3), ())
MORE_VIEWS = (
    "{v}.unbind({d})[-1]",
    "{v}.tensor_split(2, {d})[0]",
    "{v}.split(2, {d})[0]",
    "{v}.permute(*reversed(range({v}.dim())))",
    "{v}.unflatten({d}, (-1, 1))",
    "{v}.squeeze({d})",
    "{v}.view_as({v})",
    "{v}.expand_as({w})",
    "{v}.broadcast_to(2, *{v}.shape)",
    "{v}.to({v}.dtype)",
    "{v}.ravel()",
    "{v}.real",
    "{v}.view(torch.int32)",
    "{v}.positive()",
    "torch.view_as_real(torch.complex({v}, {v}))",
    "torch.atleast_2d({v})",
    "torch.atleast_3d({v})",
    "torch.broadcast_tensors({v}, {w})",
    "torch.ops.aten.alias({v})",
    "torch.nn.functional.dropout({v}, training=False)",
)
VALUES = (
    "{v} + {w}",
    "{v} * 2",
    "{v}.sin()",
    "{v}.sum({d})",
    "{v}.clone()",
    "{v} * {v}",
    "torch.cat([{v}, {w}], {d})",
    "{v}.flip({d})",
    "torch.zeros_like({v})",
    "torch.tensor([1.0, 2.0])",
)
MORE_CHANGES = (
    "{v}.t_()",
    "{v}.transpose_(0, {last})",
    "{v}.swapaxes_(0, {last})",
    "{v}.squeeze_()",
    "{v}.squeeze_({d})",
    "{v}.unsqueeze_({d})",
    "{v}.unsqueeze_(-1)",
    "{v}.detach_()",
    "{v}.requires_grad_()",
    "{v}.set_({w})",
    "{v}.set_({w}.clone())",
    "{v}.copy_({v}.flip({d}))",
    "{v}.T.add_(1)",
    "{v}.detach().mul_(2)",
    "{v}.sin_()",
    "{v}.index_put_((torch.tensor([0]),), torch.tensor(3.0))",
    "{v}.unbind({d})[0].add_(1)",
    "{v}.split(1, {d})[-1].mul_(3)",
    "{v}.diagonal().fill_(7)",
    "torch._foreach_add_([{v}, {w}], 1)",
    "torch._foreach_mul_([{v}], 2)",
    "with torch.no_grad(): {v}.mul_(2)",
    "with torch.no_grad(): {v}.copy_({w})",
    "with torch.no_grad(): {v}[..., 0] = 1",
)
TABLES = (VIEWS, MORE_VIEWS, VALUES, CHANGES, MORE_CHANGES)
WEIGHTS = (3, 4, 3, 4, 5)


def write_program(draw: Drawing) -> str:
    """Return a program of four to eight views, values and changes."""
    chain = Chain(draw)
    chain.is_train = draw.is_chosen(0.5)
    for _ in range(draw.random.randint(1, 2)):
        shape = draw.random.choice(SHAPES)
        chain.add_text(f"torch.arange(1.0, {torch.Size(shape).numel() + 1}).reshape({shape})")
    wanted = draw.random.randint(*STEPS)
    for _ in range(wanted * MAX_TRIES):
        if len(chain.lines) >= wanted:
            break
        table = draw.random.choices(TABLES, WEIGHTS)[0]
        kind = "change" if table in (CHANGES, MORE_CHANGES) else "view"
        try:
            chain.add_row(kind, table, chain.pick_value())
        except Refused:
            continue
    backend = "inductor" if draw.is_chosen(0.1) else "aot_eager"
    dynamic = ', "dynamic": True' if draw.is_chosen(0.2) else ""
    return chain.program(f'{{"backend": "{backend}"{dynamic}}}').text()
