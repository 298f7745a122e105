"""Small Python programs for Dynamo, made of the blocks in ``python_blocks.txt``.

A block has definitions, and lines that change a tensor ``out``, a number ``n``, globals, attributes
and the list ``LOG``. The last call returns what the calls before have changed, and is not compiled.
So a comparison of results compares side effects too. It returns numbers, because the assertion of a
repro compares tensors and numbers.
"""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

from .drawing import Drawing

NESTINGS = (
    ("if n % 2 == {k}:", ""),
    ("for turn in range({k} + 1):", ""),
    ("try:", "finally:\n    LOG.append('done')"),
    ("with torch.no_grad():", ""),
    ("if out.sum() > {k}:", "else:\n    n += 1"),
    ("try:", "except ArithmeticError:\n    n += {k}"),
)
"""What may enclose a block: its head, and what follows."""


class Block(NamedTuple):
    """One feature of the language."""

    definitions: str
    lines: str


@functools.cache
def blocks() -> tuple[Block, ...]:
    """Return the blocks of the table."""
    path = os.path.join(os.path.dirname(__file__), "python_blocks.txt")
    with open(path, encoding="utf-8") as file:
        texts = file.read().split("=====\n")
    pairs = (text.partition("---\n") for text in texts)
    return tuple(Block(head, lines) for head, _, lines in pairs)


@functools.cache
def block_names() -> tuple[str, ...]:
    """Return the first line of each block, which says what it is."""
    return tuple((one.definitions or one.lines).partition("\n")[0] for one in blocks())


def write_program(draw: Drawing) -> str:
    """Return a program of one to four blocks."""
    numbers = draw.random
    definitions: list[str] = []
    body: list[str] = []
    for number in range(numbers.randint(1, 4)):
        block = draw.choose("block", blocks(), block_names())
        facts = {"i": number, "a": numbers.randint(1, 4), "b": numbers.randint(1, 4)}
        definitions.append(block.definitions.format(**facts))
        rows = block.lines.format(**facts).splitlines()
        if draw.is_chosen(0.35):
            nesting = draw.choose("nesting", NESTINGS, [head for head, _ in NESTINGS])
            head, tail = (part.format(k=numbers.randint(0, 2)) for part in nesting)
            rows = [head, *(f"    {row}" for row in rows), *tail.splitlines()]
        if draw.is_chosen(0.25):
            name = f"part_{number}"
            definitions.append(_function_text(name, rows))
            rows = [f"out, n = {name}(out, n)"]
        body += rows
        if draw.is_chosen(0.15):
            body.append("torch._dynamo.graph_break()")
    return PROGRAM.format(
        definitions="\n".join(definitions),
        body="\n".join(f"    {row}" for row in body),
        start=numbers.randint(0, 3),
        dynamic=', "dynamic": True' if draw.is_chosen(0.2) else "",
    )


def _function_text(name: str, rows: list[str]) -> str:
    return "\n".join([f"def {name}(out, n):", *(f"    {row}" for row in rows), "    return out, n"])


PROGRAM = '''\
"""A program of some features of Python."""

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import io
import itertools
import operator
import weakref
import zlib

import torch

LOG = []
STATE = {{"mode": 1}}
BUFFER = io.StringIO()


{definitions}


@torch.compiler.disable
def observe():
    own = [(k, repr(v)) for k, v in sorted(globals().items()) if k[-2:-1] == "_" != k[0]]
    seen = "".join([*LOG, BUFFER.getvalue(), *(v for k, v in own if " at 0x" not in v)])
    return len(LOG), zlib.crc32(seen.encode())


def function(x, look=False):
    if look:
        return observe()
    out, n = x + 1, {start}
{body}
    return out, n


def make():
    x = torch.arange(12.0).reshape(3, 4)
    calls = [((x,), {{}}), ((x - 7,), {{}}), ((x, True), {{}})]
    return {{"model": function, "calls": calls, "compile": {{"backend": "eager"{dynamic}}}}}
'''
