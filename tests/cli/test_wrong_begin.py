"""The location of a wrong result is its identity: for a factory, a command and the repro."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import ROOT, clean_environ
from tests.support.judge_again import assert_judged_alike
from tests.support.reprokit_calls import reprokit

BACKEND = """
import torch

def lies(gm, inputs):
    return lambda *args: [out + 1 for out in gm.forward(*args)]

def make():
    return {"model": torch.sin, "calls": [((torch.ones(3),), {})], "compile": {"backend": lies}}

if __name__ == "__main__":
    torch.compile(torch.sin, backend=lies)(torch.ones(3))
"""
PASS = """
import torch
import torch._inductor.config

def cosine(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default

torch._inductor.config.post_grad_custom_post_pass = cosine

def make():
    return torch.sin, (torch.ones(3),)

if __name__ == "__main__":
    torch.compile(torch.sin)(torch.ones(3))
"""
INDUCTOR = (ROOT / "samples" / "wrong_result.py").read_text()
BEGINS = {
    "backend": (BACKEND, "backend | numbers"),
    "pass": (PASS, "fx-passes | numbers @ post_grad_custom_post_pass"),
    "inductor": (INDUCTOR, "inductor | numbers @ reinplace_inplaceable_ops"),
}
TWO = """
import torch

def fn(x, z):
    y = z.view(torch.int32) * 2
    y.sub_(-4)
    z[:, 2:5] = 2
    x[1:] = x[:-1].clone()
    return x, y.view(torch.int64)

if __name__ == "__main__":
    torch.compile(fn)(torch.arange(24.0).reshape(6, 4), torch.arange(-12, 12, dtype=torch.int64).reshape(4, 6))
"""
"""Two wrong results of Inductor on torch 2.13 (pytorch#198101 and pytorch#197829) in one graph."""


@pytest.mark.real
@pytest.mark.parametrize("name", BEGINS)
@pytest.mark.long
def test_a_factory_and_a_command_have_one_signature(
    name: str, write: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A wrong backend, a wrong pass of the program and a wrong pass of Inductor are three bugs, for
    a factory and for a command.
    """
    text, title = BEGINS[name]
    file = write("wrong.py", text)
    environ = clean_environ(REPROKIT_COMPARE="1", REPROKIT_ABLATE="1")
    words = ("capture", "--json", "--output-dir")
    factory = (
        request.getfixturevalue("wrong_result")
        if name == "inductor"
        else reprokit(*words, tmp_path / "factory", f"{file}:make", env=environ)
    )
    command = reprokit(*words, tmp_path / "command", "--", sys.executable, file, env=environ)
    assert factory.json["signature"]["title"] == f"wrong-result: {title}", factory.out + factory.err
    assert command.json["signature"] == factory.json["signature"], command.out + command.err
    assert_judged_alike(command)


@pytest.mark.long
def test_of_two_wrong_operators_the_repro_has_the_one_in_the_signature(
    write: Any, tmp_path: Path
) -> None:
    """The signature, the repro and the result of replay are one failure."""
    environ = clean_environ(REPROKIT_COMPARE="1", REPROKIT_MINIMIZE="1", REPROKIT_ABLATE="1")
    words = (
        "--budget",
        "60",
        "--output-dir",
        tmp_path / "out",
        "--",
        sys.executable,
        write("two.py", TWO),
    )
    done = reprokit("capture", "--json", *words, env=environ)
    signature, minimized = done.json["signature"], done.json["minimized"]
    wanted, unsigned = "clone()", "view("
    assert signature["title"] == "wrong-result: inductor | numbers @ reinplace_inplaceable_ops", (
        done.out + done.err
    )
    assert (
        minimized["proof"]["answer"] == "same"
        and minimized["proof"]["signature"] == signature["id"]
    ), minimized
    repro = Path(done.json["repro"]).read_text()
    assert wanted in repro and unsigned not in repro, repro
    again = reprokit("replay", done.json["pack"], "--yes", "--json")
    assert (again.status, again.json["answer"]) == (0, "same"), again.out + again.err
    assert [row["title"] for row in again.json["places"][0]["details"]] == [
        signature["title"]
    ] * len(again.json["places"][0]["details"])
