"""Graph passes that make the compiled graphs of our models comparable between releases."""
import logging

import torch
import torch._inductor.config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

log = logging.getLogger(__name__)
aten = torch.ops.aten
COMMUTATIVE = {aten.add.Tensor, aten.mul.Tensor, aten.maximum.default, aten.minimum.default}


def positions(graph):
    return {node: i for i, node in enumerate(graph.nodes)}


class SortOperands(CustomGraphPass):
    """The operand that is computed first comes first."""

    def __call__(self, graph):
        order, swapped, changed = positions(graph), 0, True
        while changed:
            changed = False
            for node in graph.nodes:
                if node.target not in COMMUTATIVE:
                    continue
                a, b = node.args[:2]
                if not (isinstance(a, torch.fx.Node) and isinstance(b, torch.fx.Node)):
                    continue
                if order[a] >= order[b]:
                    node.args = (b, a, *node.args[2:])
                    swapped, changed = swapped + 1, True
        log.info("%d operands swapped", swapped)

    def uuid(self):
        return get_hash_for_files((__file__,))


class DropDeadCode(CustomGraphPass):
    def __call__(self, graph):
        graph.eliminate_dead_code()

    def uuid(self):
        return get_hash_for_files((__file__,))


def install(names):
    known = {"sort_operands": (SortOperands, "post_grad_custom_pre_pass"), "dce": (DropDeadCode, "post_grad_custom_post_pass")}
    for name in names:
        kind, slot = known[name]
        setattr(inductor_config, slot, kind())
