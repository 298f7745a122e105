"""Triton kernels that Inductor generated, each as a program that needs only Triton.

Inductor writes a kernel as the text of a module with its own decorators, which choose block sizes
and hold the arguments of ``triton.compile``. A program has no such decorators: it contains the
helpers of torch that the kernel calls, and ends with a call of ``triton.compile``.
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
"""The imports of every program."""
_KNOWN = {
    "_log2": "from triton.language.standard import _log2",
    "libdevice": "from triton.language.extra import libdevice",
    "pymath": "import math as pymath",
}
"""Names that torch's helpers use besides each other, ``tl`` and ``triton`` -> their imports."""


@dataclass(frozen=True)
class TritonCall:
    """The arguments with which one configuration of a kernel is compiled; all plain values."""

    signature: Mapping[str, str]
    constexprs: Mapping[Any, Any]
    attrs: Mapping[Any, Any]
    target: tuple[str, int, int]
    """Backend, capability and warp size: the arguments of ``GPUTarget``."""
    options: Mapping[str, Any]


def find_kernels(module: str) -> dict[str, str]:
    """Return the text of each kernel in a module that Inductor generated, by name."""
    kernels = {}
    for node in ast.walk(ast.parse(module)):
        if not (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "async_compile.triton"
            and len(node.args) > 1
        ):
            continue
        name, text = (a.value if isinstance(a, ast.Constant) else None for a in node.args[:2])
        if isinstance(name, str) and isinstance(text, str):
            kernels[name] = text
    return kernels


def kernel_identity(name: str, text: str) -> str:
    """Return an id that is equal for kernels that differ only in their name."""
    plain = text.replace(name, "kernel")
    return hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()[:16]


def generated_program(name: str, text: str, helpers: str, call: TritonCall) -> str:
    """Return the kernel as a program; ``helpers`` is the text of
    ``torch._inductor.runtime.triton_helpers``.
    """
    tree = ast.parse(text)
    body = [n for n in tree.body if not _is_from_torch(n)]
    for node in body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [
                d for d in node.decorator_list if "triton_heuristics" not in ast.unparse(d)
            ]
    reader = _HelperReader()
    body = [reader.visit(n) for n in body if not isinstance(n, (ast.Import, ast.ImportFrom))]
    definitions, imports = _needed_helpers(helpers, reader)
    rows = [*_IMPORTS, *imports]
    for node in (*definitions, *body):
        rows += ["", *ast.unparse(ast.fix_missing_locations(node)).splitlines()]
    return "\n".join([*rows, "", *_compile_lines(name, call)]) + "\n"


def launched_program(name: str, definitions: Sequence[str], call: TritonCall) -> str:
    """Return a kernel of the user as a program; ``definitions`` are the texts of the kernel and of
    all that it uses.
    """
    heads = [d for d in definitions if d.startswith(("import ", "from "))]
    rows = [*_IMPORTS, *(h for h in heads if h not in _IMPORTS)]
    rows += [row for d in definitions if d not in heads for row in ("", *d.rstrip().splitlines())]
    return "\n".join([*rows, "", *_compile_lines(name, call)]) + "\n"


def _compile_lines(name: str, call: TritonCall) -> list[str]:
    target = ", ".join(map(repr, call.target))
    return [
        (
            f"source = triton.compiler.ASTSource(fn={name}, signature={dict(call.signature)!r}, "
            f"constexprs={dict(call.constexprs)!r}, attrs={dict(call.attrs)!r})"
        ),
        f"triton.compile(source, target=GPUTarget({target}), options={dict(call.options)!r})",
    ]


def _is_from_torch(node: ast.stmt) -> bool:
    text = ast.unparse(node)
    is_import = isinstance(node, (ast.Import, ast.ImportFrom)) and "torch" in text
    return is_import or (isinstance(node, ast.Expr) and text.startswith(f"{HELPERS}."))


class _HelperReader(ast.NodeTransformer):
    """Replaces ``triton_helpers.NAME`` with ``NAME``, and collects all names that are read."""

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


def _needed_helpers(helpers: str, reader: _HelperReader) -> tuple[list[ast.stmt], list[str]]:
    """Return the definitions of all helpers that are read, directly or by another helper, and their
    imports.
    """
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
        own = _HelperReader()
        own.visit(defined[name])
        reader.wanted |= own.wanted
        waiting += sorted(own.wanted)
    imports = [line for name, line in _KNOWN.items() if name in reader.wanted]
    # a helper that is built by torch's own decorator is imported
    foreign = sorted(n for n in kept if "triton_builtin" in ast.unparse(defined[n]))
    imports += (
        [f"from torch._inductor.runtime.{HELPERS} import {', '.join(foreign)}"] if foreign else []
    )
    return [n for n in tree.body if any(defined.get(k) is n for k in kept - set(foreign))], imports


def program_variant(text: str, capability: int, arch: str = "", ptxas: str = "") -> str:
    """Return the program for a different capability, and, if they are not empty, with a different
    name of the architecture and a different ptxas.
    """
    new = re.sub(r"(GPUTarget\(['\"]cuda['\"], )\d+", rf"\g<1>{capability}", text)
    head = []
    if ptxas:
        # newer versions of Triton read the second for sm_100 and later
        names = (
            "TRITON_PTXAS_PATH",
            "TRITON_PTXAS_BLACKWELL_PATH",
        )
        head += ["import os", *(f"os.environ[{name!r}] = {ptxas!r}" for name in names)]
    if arch:
        backend = "triton.backends.nvidia.compiler"
        head += [
            f"import {backend}",
            f"{backend}.sm_arch_from_capability = lambda capability: {arch!r}",
        ]
    return "\n".join([*head, new])


def is_kernel_program(text: str) -> bool:
    """Return whether a text is a program that compiles a kernel."""
    return "GPUTarget(" in text and "triton.compile(" in text
