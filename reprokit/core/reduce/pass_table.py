"""The reduction passes in the order in which they are applied: a new pass is a module in ``passes``
and a row here.
"""

from __future__ import annotations

from collections.abc import Callable

from reprokit.core.reduce import ast_edits, readable
from reprokit.core.reduce.passes import (
    context_managers,
    dead_code,
    function_arguments,
    inline_classes,
    kernel_arguments,
    literals,
    names,
    objects,
    statements,
    straight_line,
)
from reprokit.core.reduce.project import training_loops

Pass = tuple[str, Callable[[str, ast_edits.Test], str]]
"""A name for the status line, and a function of a program and a test that returns a program."""
PASSES: tuple[Pass, ...] = (
    ("the loop of Lightning", training_loops.write_training_loop),
    ("objects as variables", objects.dissolve_objects),
    ("context managers", context_managers.inline_contexts),
    ("a straight line", straight_line.straighten_program),
    ("names that nothing reads", dead_code.drop_unused),
    ("results of literals", literals.compute_literals),
    ("names and what reads them", names.drop_names),
    ("names that nothing reads", dead_code.drop_unused),
    ("sizes of the model", statements.shrink_knobs),
    ("submodules alone", inline_classes.inline_submodules),
    ("statements", statements.drop_statements),
    ("intermediate steps", statements.bypass_calls),
    ("equal inputs", dead_code.merge_arguments),
    ("blocks", statements.unwrap_blocks),
    ("operands", function_arguments.drop_operands),
    ("expressions", statements.simplify_expressions),
    ("names of libraries", dead_code.drop_libraries),
    ("loops", inline_classes.unroll_loops),
    ("constants", inline_classes.inline_constants),
    ("modules as functions", inline_classes.inline_functions),
    ("names that nothing reads", dead_code.drop_unused),
    ("arguments of a kernel", kernel_arguments.drop_kernel_arguments),
    ("public names", readable.public_names),
    ("functions as lambdas", function_arguments.write_lambdas),
    ("a straight line", straight_line.straighten_program),
)
"""The passes that are repeated until none of them changes the program.

In recorded reductions, expressions that become one of their parts free more lines than arguments
and elements that are left out, for a quarter of the probes.
"""
PART_PASSES: tuple[Pass, ...] = (("arguments and elements", statements.drop_parts),)
"""The passes after those, with the most probes for each line that they save. If they change the
program, ``PASSES`` are applied again.
"""
NUMBER_PASSES: tuple[Pass, ...] = (("numbers", statements.shrink_numbers),)
"""The passes after those. They save no lines, and have the most edits of all."""
LAST_PASSES: tuple[Pass, ...] = (
    ("a straight line", straight_line.straighten_program),
    ("modules as functions", inline_classes.inline_functions),
    ("a straight line", straight_line.straighten_program),
    ("names that nothing reads", dead_code.drop_unused),
    ("names", readable.plain_names),
    ("results of literals", literals.compute_literals),
    ("names that nothing reads", dead_code.drop_unused),
)
"""The last passes. They need few probes, so they also run after a loop that ended early."""
