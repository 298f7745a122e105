"""Write the training loop of Lightning in the program: a model, its steps and their gradients.

A program that calls ``Trainer.fit`` needs the library for its loop alone. The loop that is written
instead has only what the failure needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from reprokit.core.reduce.ast_edits import (
    Test,
    copy_tree,
    keep_proposals,
    last_name,
    replace_node,
    walk_places,
)
from reprokit.core.reduce.project import entry_text

LIBRARY = re.compile(r"^\s*(?:import|from) (?:pytorch_)?lightning\b", re.MULTILINE)
BASES = {"LightningModule": "torch.nn.Module", "LightningDataModule": ""}
LOGS = frozenset({"log", "log_dict", "save_hyperparameters"})
_STEP = """
{model}.train()
{loader}
for batch_index, batch in enumerate(batches):
    loss = {model}.training_step(batch, batch_index)
"""
_ENDS = (
    "",
    "    loss.backward()\n",
    "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n",
)
"""What comes after each step: the first with which the program fails alike stays."""


def write_training_loop(text: str, test: Test) -> str:
    """Replace ``trainer.fit(model, data)`` by a loop, if the program uses Lightning."""
    return keep_proposals(text, _with_loop, test) if LIBRARY.search(text) else text


def _with_loop(tree: ast.Module) -> Iterator[ast.Module]:
    for path, node in walk_places(tree):
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or last_name(call.func) != "fit":
            continue
        given = {k.arg: ast.unparse(k.value) for k in call.keywords}
        words = [ast.unparse(a) for a in call.args]
        model = given.get("model") or (words[0] if words else "")
        data = given.get("train_dataloaders") or (words[1] if len(words) > 1 else "")
        module = given.get("datamodule", "")
        if not model or not (data or module):
            continue
        first = ""
        if not model.isidentifier():
            first, model = f"model = {model}\n", "model"
        source = module or data
        whole = "data.setup('fit')\nbatches = data.train_dataloader()"
        whole = whole if source == "data" else f"data = {source}\n{whole}"
        loaders = [whole] if module else [f"batches = {data}", whole]
        for loader in loaders:
            for number, end in enumerate(_ENDS):
                start = f"optimizer = {model}.configure_optimizers()\n" if number == 2 else ""
                loop = first + start + _STEP.format(model=model, loader=loader) + end
                changed = copy_tree(tree)
                replace_node(changed, path, ast.parse(loop).body)
                yield _without_library(changed)


def _without_library(tree: ast.Module) -> ast.Module:
    """Return a program whose models and data are not those of the library."""
    changed = _Plain().visit(tree)
    assert isinstance(changed, ast.Module)
    head = entry_text.head_of(changed)
    imports = ast.parse("import argparse, torch").body
    changed.body = [*head, *imports, *(n for n in changed.body if n not in head)]
    return changed


class _Plain(ast.NodeTransformer):
    """Replaces the base classes, and leaves out what is logged."""

    def __init__(self) -> None:
        self._parameters: list[str] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        bases: list[ast.expr] = []
        for base in node.bases:
            text = BASES.get(last_name(base))
            if text is None:
                bases.append(base)
            elif text:
                bases.append(ast.parse(text, mode="eval").body)
        node.bases = bases
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name == "__init__":
            self._parameters = [a.arg for a in (*node.args.args[1:], *node.args.kwonlyargs)]
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if not (isinstance(call, ast.Call) and last_name(call.func) in LOGS):
            return node
        if last_name(call.func) == "save_hyperparameters":
            words = ", ".join(f"{name}={name}" for name in self._parameters)
            return ast.parse(f"self.hparams = argparse.Namespace({words})").body[0]
        return ast.Pass()
