"""Triton kernels that Inductor generated, each as a program that needs nothing but Triton.

Inductor writes a kernel as the text of a module with decorators of its own, which choose block
sizes and carry what ``triton.compile`` is called with. Here the decorators go, the helpers of torch
that it calls stand beside it, and what they chose is a call at its end.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HELPERS = "triton_helpers"
_IMPORTS = (
    "import triton",
    "import triton.language as tl",
    "from triton.backends.compiler import GPUTarget",
)
"""Of every program."""
_KNOWN = {
    "_log2": "from triton.language.standard import _log2",
    "libdevice": "from triton.language.extra import libdevice",
    "pymath": "import math as pymath",
}
"""What torch's helpers read beside each other, ``tl`` and ``triton``."""


@dataclass(frozen=True)
class TritonCall:
    """What one configuration of a kernel is compiled with; all plain values."""

    signature: Mapping[str, str]
    constexprs: Mapping[Any, Any]
    attrs: Mapping[Any, Any]
    target: tuple[str, int, int]
    """Backend, capability and warp size, as ``GPUTarget`` has them."""
    options: Mapping[str, Any]


def find_kernels(module: str) -> dict[str, str]:
    """The kernels in a module that Inductor generated: name -> text."""
    found = {}
    for node in ast.walk(ast.parse(module)):
        if not (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "async_compile.triton"
            and len(node.args) > 1
        ):
            continue
        name, text = (a.value if isinstance(a, ast.Constant) else None for a in node.args[:2])
        if isinstance(name, str) and isinstance(text, str):
            found[name] = text
    return found


def kernel_identity(name: str, text: str) -> str:
    """Equal for kernels that differ in no more than their name and their number."""
    plain = text.replace(name, "kernel")
    return hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()[:16]


def generated_program(name: str, text: str, helpers: str, call: TritonCall) -> str:
    """The kernel as a program; ``helpers`` is the text of
    ``torch._inductor.runtime.triton_helpers``.
    """
    tree = ast.parse(text)
    body = [n for n in tree.body if not _is_torchs(n)]
    for node in body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [
                d for d in node.decorator_list if "triton_heuristics" not in ast.unparse(d)
            ]
    reader = _Inlined()
    body = [reader.visit(n) for n in body if not isinstance(n, (ast.Import, ast.ImportFrom))]
    given, imports = _needed(helpers, reader)
    rows = [*_IMPORTS, *imports]
    for node in (*given, *body):
        rows += ["", *ast.unparse(ast.fix_missing_locations(node)).splitlines()]
    return "\n".join([*rows, "", *_asked(name, call)]) + "\n"


def launched_program(name: str, definitions: Sequence[str], call: TritonCall) -> str:
    """A kernel of the user's own as a program; ``definitions`` are what it reads and itself, each
    the text of its lines.
    """
    heads = [d for d in definitions if d.startswith(("import ", "from "))]
    rows = [*_IMPORTS, *(h for h in heads if h not in _IMPORTS)]
    rows += [row for d in definitions if d not in heads for row in ("", *d.rstrip().splitlines())]
    return "\n".join([*rows, "", *_asked(name, call)]) + "\n"


def _asked(name: str, call: TritonCall) -> list[str]:
    target = ", ".join(map(repr, call.target))
    return [
        (
            f"source = triton.compiler.ASTSource(fn={name}, signature={dict(call.signature)!r}, "
            f"constexprs={dict(call.constexprs)!r}, attrs={dict(call.attrs)!r})"
        ),
        f"triton.compile(source, target=GPUTarget({target}), options={dict(call.options)!r})",
    ]


def _is_torchs(node: ast.stmt) -> bool:
    said = ast.unparse(node)
    is_import = isinstance(node, (ast.Import, ast.ImportFrom)) and "torch" in said
    return is_import or (isinstance(node, ast.Expr) and said.startswith(f"{HELPERS}."))


class _Inlined(ast.NodeTransformer):
    """Reads helpers of torch by their bare names, and notes which."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == HELPERS:
            self.wanted.add(node.attr)
            return ast.copy_location(ast.Name(node.attr, ast.Load()), node)
        if isinstance(node.value, ast.Name) and node.value.id in ("tl_math", "math"):
            node.value = ast.Attribute(ast.Name("tl", ast.Load()), "math", ast.Load())
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load):
            self.wanted.add(node.id)
        return node


def _needed(helpers: str, reader: _Inlined) -> tuple[list[ast.stmt], list[str]]:
    """The helpers that are read, those before that they read themselves, and the imports of all."""
    defined: dict[str, ast.stmt] = {}
    tree = ast.parse(helpers)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            defined[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                defined[target.id] = node
    kept: set[str] = set()
    waiting = sorted(reader.wanted)
    while waiting:
        name = waiting.pop()
        if name in kept or name not in defined:
            continue
        kept.add(name)
        own = _Inlined()
        own.visit(defined[name])
        reader.wanted |= own.wanted
        waiting += sorted(own.wanted)
    imports = [line for name, line in _KNOWN.items() if name in reader.wanted]
    # what is built with machinery of torch's own stays there
    foreign = sorted(n for n in kept if "triton_builtin" in ast.unparse(defined[n]))
    imports += (
        [f"from torch._inductor.runtime.{HELPERS} import {', '.join(foreign)}"] if foreign else []
    )
    return [n for n in tree.body if any(defined.get(k) is n for k in kept - set(foreign))], imports


def program_variant(text: str, capability: int, arch: str = "", ptxas: str = "") -> str:
    """The program for another capability, with the architecture named otherwise than Triton does,
    with another ptxas.
    """
    new = re.sub(r"(GPUTarget\(['\"]cuda['\"], )\d+", rf"\g<1>{capability}", text)
    head = []
    if ptxas:
        names = (
            "TRITON_PTXAS_PATH",
            "TRITON_PTXAS_BLACKWELL_PATH",
        )  # the second from sm_100 on, in newer ones
        head += ["import os", *(f"os.environ[{name!r}] = {ptxas!r}" for name in names)]
    if arch:
        backend = "triton.backends.nvidia.compiler"
        head += [
            f"import {backend}",
            f"{backend}.sm_arch_from_capability = lambda capability: {arch!r}",
        ]
    return "\n".join([*head, new])


def is_program(text: str) -> bool:
    """It compiles a kernel by itself."""
    return "GPUTarget(" in text and "triton.compile(" in text
