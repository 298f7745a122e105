"""A failure that depends on the values of its inputs has a repro with as little of them as possible.

The scripts open a file, so that their own sources cannot be the start of a reduction.
"""

from __future__ import annotations

import re
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import clean_environ
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit

PICKY = """
import torch

def picky(gm, inputs):
    tensors = [i for i in inputs if isinstance(i, torch.Tensor)]
    if any({condition} for t in tensors):
        raise RuntimeError("these values are too hard")
    return gm.forward

def f(x, i, private):
    y = torch.relu(x).sin() + 1
    return y.cos().sum() + private.sum(), (i * 2).flip(0)

torch.manual_seed(1)
x, i = torch.randn(16, 8), torch.randint(500, 3000, (200,))
private = torch.tensor([81.5, 72.25, 1.5, 2.5])
{change}
import os; os.utime(__file__, (4e9, 4e9))
torch.compile(f, backend=picky)(x, i, private)
"""
UNSIGNED = """
import torch

def f(x, y):
    z = torch.relu(y) + 1
    return z.sin(), {call}, z.cos().sum()

import os; os.utime(__file__, (4e9, 4e9))
torch.manual_seed(3)
x = torch.randint(100, 250, (4, 67), dtype=torch.uint8)
torch.compile(f)(x, torch.randn(8, 8))
"""


def capture(tmp_path: Path, script: Path, *words: str) -> CallResult:
    place = ("--output-dir", tmp_path / "out")
    env = clean_environ(REPROKIT_MINIMIZE="1")
    return reprokit("capture", "--json", *place, *words_of(script, *words), env=env)


def words_of(script: Path, *words: str) -> list[str]:
    return ["--no-ablate", *words, "--", sys.executable, str(script)]


def repro_of(done: CallResult) -> str:
    assert done.json["repro"], (done.json["missing"], done.json["minimized"])
    return Path(done.json["repro"]).read_text()


DESCRIPTORS = {
    "NaN": (
        "t.is_floating_point() and t.isnan()[..., 0].any()",
        "x[3, 0] = x[5, 2] = torch.nan",
        r"\] = torch\.nan",
        r"input `x` \(float32, shape \[16, 8\]\): NaN at position \[3, 0\]\.",
    ),
    "minus zero": (
        "t.is_floating_point() and ((t == 0) & torch.signbit(t)).any()",
        "x[2, 2] = -0.0",
        r"\] = -0\.0",
        r"input `x` \(float32, shape \[16, 8\]\): minus zero at position \[2, 2\]\.",
    ),
    "large integers": (
        "t.dtype == torch.int64 and (t > 2**53).any()",
        "i = i + 2**60",
        r"torch\.(randint|full)\(",
        rf"input `i` \(int64, shape \[200\]\): integers from {2**60} to {2**61 - 1}\.",
    ),
}


def check_descriptor(done: CallResult, name: str) -> None:
    """Check that the repro has the one property, that the texts name it, and that no other value
    is in the pack.
    """
    _, _, line, sentence = DESCRIPTORS[name]
    text, minimized = repro_of(done), done.json["minimized"]
    assert re.search(line, text) and minimized["proof"]["answer"] == "same", text
    assert "manual_seed" not in text and "torch.tensor" not in text, text
    assert len(minimized["depends_on"]) == 1
    assert re.search(sentence, minimized["depends_on"][0]), minimized["depends_on"]
    issue = Path(done.json["issue"]).read_text().replace("`", "")  # Markdown encloses positions
    assert minimized["depends_on"][0].replace("`", "") in issue
    assert list(done.run_dir.glob("graphs/*/values.private"))
    with tarfile.open(done.json["pack"]) as pack:
        assert not [name for name in pack.getnames() if "private" in name]


@pytest.mark.real("it reduces a graph and its values")
def test_a_descriptor_is_tried_first(write: Any, tmp_path: Path) -> None:
    """The repro draws its inputs with the one property that the failure needs; JSON and issue name
    the property, and no other value is in the pack.
    """
    condition, change, _, _ = DESCRIPTORS["NaN"]
    script = write("script.py", PICKY.format(condition=condition, change=change))
    check_descriptor(capture(tmp_path, script, "--no-compare"), "NaN")


@pytest.mark.parametrize("name", ["minus zero", "large integers"])
def test_each_descriptor_is_named(write: Any, recorded: Recorder, name: str) -> None:
    """The repro, the JSON and the issue have the property that the failure needs."""
    condition, change, _, _ = DESCRIPTORS[name]
    script = write("script.py", PICKY.format(condition=condition, change=change))
    done = recorded(*words_of(script, "--no-compare"), REPROKIT_MINIMIZE="1")
    check_descriptor(done, name)


@pytest.mark.long
def test_values_are_reduced_to_those_that_matter(write: Any, tmp_path: Path) -> None:
    """Of 200 integers, the repro has the two that the failure needs; other inputs are drawn."""
    condition = "t.dtype == torch.int64 and (t == 7).any() and (t == 1000).any()"
    script = write("script.py", PICKY.format(condition=condition, change="i[17], i[120] = 7, 1000"))
    done = capture(tmp_path, script, "--no-compare")
    text, minimized = repro_of(done), done.json["minimized"]
    assert re.search(r"\b7\b", text) and re.search(r"\b1000\b", text), text
    assert len(re.findall(r"\d+", text.split("def repro")[1])) <= 12, text
    assert "81.5" not in text and "72.25" not in text
    assert "positions [17] and [120]" in minimized["depends_on"][0]
    assert minimized["proof"]["hits"] == minimized["proof"]["runs"]


@pytest.mark.long
def test_a_seed_is_kept_if_the_failure_depends_on_the_draw(write: Any, tmp_path: Path) -> None:
    """Half of all draws show this failure, so the repro has a seed, and the result names it."""
    condition = "t.is_floating_point() and t.flatten().argmin() > t.numel() // 2"
    script = write("script.py", PICKY.format(condition=condition, change="x[15, 7] = -9"))
    done = capture(tmp_path, script, "--no-compare")
    text, minimized = repro_of(done), done.json["minimized"]
    (seed,) = re.findall(r"torch\.manual_seed\((\d)\)", text)
    assert f"it fails with seed {seed}" in minimized["depends_on"][-1], minimized["depends_on"]
    assert minimized["proof"]["answer"] == "same"


@pytest.mark.parametrize(
    ("call", "where"),
    [
        # torch 2.13 starts the reduction of uint8 with True, so the result is 0 or 1
        ("x.amin()", "numbers @ amin"),
        # eager keeps uint8, compiled code gives bool
        ("x.any()", "dtype @ any"),
    ],
)
@pytest.mark.long
def test_a_wrong_result_of_unsigned_integers_is_proved(
    write: Any, tmp_path: Path, call: str, where: str
) -> None:
    """Wrong numbers and wrong dtypes of uint8 have a repro with that operator and that dtype."""
    done = capture(tmp_path, write("script.py", UNSIGNED.format(call=call)), "--compare")
    assert done.kind == "wrong-result", done.json["verdict"]
    assert where in done.json["signature"]["title"]
    text, minimized = repro_of(done), done.json["minimized"]
    assert call[1:] in text and "relu" not in text and "dtype=torch.uint8" in text, text
    assert minimized["proof"]["answer"] == "same"
