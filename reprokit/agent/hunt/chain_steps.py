"""The steps of chains: views, changes in place, layouts of arguments, contexts and transforms.

``{v}`` and ``{w}`` are variables of one shape, ``{d}`` is a dimension and ``{last}`` the last one.
"""

from __future__ import annotations

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
ALIASES = (
    "{v}.view(-1)",
    "{v}[...]",
    "{v}[1:]",
    "{v}[..., ::2]",
    "{v}.t()",
    "{v}.transpose(0, {last})",
    "{v}.unsqueeze({d})",
    "{v}.diagonal()",
    "{v}.select({d}, -1)",
    "{v}.expand(2, *{v}.shape)",
    "{v}.view_as({v})",
    "{v}.detach()",
    "{v}.unbind({d})[0]",
    "{v}.real",
    "{v}.view(torch.uint8)",
)
"""Views whose base is changed afterwards."""
LAYOUTS = (
    "transposed",
    "stepped",
    "offset",
    "narrowed",
    "expanded",
    "channels last",
)
"""The layouts of an argument in memory."""
SHARED = ("{v}", "{v}.detach()", "{v}.detach()[1:]", "{v}.detach().view(-1)", "{v}.detach().t()")
"""Arguments that share the memory of another argument."""
CONTEXTS = (
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.inference_mode()",
    "torch.set_grad_enabled(False)",
    'torch.autocast("cpu", dtype=torch.bfloat16)',
    'torch.autocast("cpu", dtype=torch.float16)',
    'torch.autocast("cpu", enabled=False)',
)
TRANSFORMS = (
    "torch.func.grad({of})({floats})",
    "torch.func.grad_and_value({of})({floats})",
    "torch.func.grad(lambda {floats}: torch.func.grad({of})({floats}).sum())({floats})",
    "torch.func.jvp({of}, ({floats},), ({ones},))",
    "(lambda out, pull: pull(out))(*torch.func.vjp({of}, {floats}))",
    "torch.func.jacrev({of})({floats})",
    "torch.func.jacfwd({of})({floats})",
    "torch.func.vmap({of})({stacked})",
    "torch.func.vmap({of}, out_dims=-1)({stacked})",
    "torch.func.vmap(torch.func.grad({of}))({stacked})",
    "torch.func.vmap(torch.func.vmap({of}))({stacked_twice})",
    "torch.func.jvp(lambda {floats}: torch.func.grad({of})({floats}), ({floats},), ({ones},))",
    "torch.func.functionalize(chain)({names})",
    "torch.utils.checkpoint.checkpoint(chain, {names}, use_reentrant=False)",
    "torch.autograd.grad(chain({names}).sum(), [{floats}], allow_unused=True)",
    "(chain({names}), chain({names}))",
)
"""What the compiled function does with the chain. ``{of}`` is the chain as a function of its
floating-point arguments, ``{floats}``. Of these ``{stacked}`` has a batch of each.
"""
OF_NUMBER = "grad"
"""A word of the transforms whose chain returns one number."""
