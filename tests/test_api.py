"""The library: programs that go on, whatever the compiler does, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, SITE, clean_environ

pytestmark = pytest.mark.slow

NETS = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, is_broken=False):
        super().__init__()
        self.linear, self.is_broken = nn.Linear(8, 8), is_broken

    def forward(self, x):
        if self.is_broken:  # pytorch#196570
            mask = torch.full((8, 8), 10000.0)
            mask[torch.arange(8),] = 0
            x = x + torch.softmax(mask, dim=1)
        return torch.relu(self.linear(x)) + x


class Net(nn.Module):
    def __init__(self, layers=3, is_broken=False):
        super().__init__()
        self.layers = nn.ModuleList([Block(is_broken) for _ in range(layers)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""

HEAD = """
import json, warnings
import torch
from torch._dynamo import OptimizedModule
from torch._dynamo.utils import counters
from reprokit import api as library

def tried(make, *args, **options):
    with warnings.catch_warnings(record=True) as heard, torch.no_grad():
        warnings.simplefilter("always")
        made = make(*args, **options)
    return made, [str(w.message) for w in heard if "reprokit" in str(w.message)]

torch.manual_seed(0)
x = torch.randn(8, 8)
"""


def told_by(body: str, folder: Path) -> dict[str, Any]:
    (folder / "nets.py").write_text(NETS)
    script = folder / "program.py"
    script.write_text(f"{HEAD}{body}\nprint(json.dumps(told))\n")
    environ = clean_environ(
        PYTHONPATH=f"{SITE}:{ROOT}", TORCHINDUCTOR_CACHE_DIR=str(folder / "cache")
    )
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_compile_that_went_well_in_the_child_is_found_in_the_cache(tmp_path: Path) -> None:
    """No warning, no pack, the same results, and nothing is compiled twice."""
    told = told_by(
        """
import nets
net = nets.Net().eval()
made, said = tried(library.safe_compile, net, (x,), timeout_s=200)
with torch.no_grad():
    is_close = torch.allclose(made(x), net(x), atol=1e-5)
told = {"is_compiled": isinstance(made, OptimizedModule), "said": said, "is_close": is_close,
        "hits": counters["inductor"]["fxgraph_cache_hit"], "count": library.count_parameters(net)}
""",
        tmp_path,
    )
    assert told == {"is_compiled": True, "said": [], "is_close": True, "hits": 1, "count": 3 * 72}
    assert not (tmp_path / "reprokit-out").exists()


def test_a_compile_that_fails_leaves_an_eager_model_one_line_and_a_pack(tmp_path: Path) -> None:
    """Also one that takes too long, and a model that no other process can make."""
    told = told_by(
        """
import nets
broken = nets.Net(1, True).eval()
made, said = tried(library.safe_compile, broken, (x,), timeout_s=200, output_dir="failed")
late, late_said = tried(library.safe_compile, nets.Net().eval(), (x,), timeout_s=1, output_dir="late")

class Own(torch.nn.Module):
    def forward(self, x):
        return x + 1

own, own_said = tried(library.safe_compile, Own(), (x,), timeout_s=200, output_dir="own")
told = {"is_same": made is broken, "said": said, "late": late_said, "own": own_said, "is_eager": not isinstance(own, OptimizedModule)}
""",
        tmp_path,
    )
    assert told["is_same"] and told["is_eager"]
    for name, words in (("said", "KeyError"), ("late", "1 s"), ("own", "cannot be rehearsed")):
        assert len(told[name]) == 1 and words in told[name][0] and "\n" not in told[name][0], told
    assert [p.suffixes[-2:] for p in (tmp_path / "failed").glob("reprokit-*")] == [[".tar", ".gz"]]
    assert not (tmp_path / "own").exists()


def test_layers_that_fail_stay_eager_and_those_that_do_not_are_compiled(tmp_path: Path) -> None:
    """Layer by layer, in place; and by measured growth, which is one by one where the whole would
    take too long.
    """
    told = told_by(
        """
import nets
options = {"backend": "aot_eager"}
good, good_said = tried(library.partial_compile, nets.Net().eval(), (x,), timeout_s=200, **options)
bad, bad_said = tried(library.partial_compile, nets.Net(2, True).eval(), (x,), timeout_s=200, output_dir="failed")
whole, _ = tried(library.smart_compile, nets.Net(6).eval(), (x,), timeout_s=200, **options)
compiled = lambda net: [isinstance(layer, OptimizedModule) for layer in net.layers]
told = {"good": compiled(good), "good_said": good_said, "bad": compiled(bad), "bad_said": bad_said,
        "whole": isinstance(whole, OptimizedModule)}
""",
        tmp_path,
    )
    assert told["good"] == [True] * 3 and told["good_said"] == []
    assert told["bad"] == [False] * 2 and "2 layers that run eager" in told["bad_said"][0]
    assert told["whole"]


def test_a_model_in_training_mode_whose_output_needs_no_gradient(tmp_path: Path) -> None:
    """A frozen one is compiled, without a backward pass; where Inductor fails on one, its error is
    the reason.
    """
    told = told_by(
        """
import nets
frozen = nets.Net(1).train().requires_grad_(False)
with torch.enable_grad():
    made = library.rehearse(frozen, (x,), timeout_s=200, output_dir="frozen")
    broken = library.rehearse(nets.Net(1, True).train().requires_grad_(False), (x,), timeout_s=200, output_dir="broken")
    trained = library.rehearse(nets.Net(1).train(), (x,), timeout_s=200, output_dir="trained")
told = {"frozen": [made.is_fine, made.why], "broken": [broken.is_fine, broken.why], "trained": [trained.is_fine, trained.why]}
""",
        tmp_path,
    )
    assert told["frozen"] == [True, ""] and told["trained"] == [True, ""]
    assert (
        not told["broken"][0]
        and told["broken"][1].startswith("exception: ")
        and "KeyError" in told["broken"][1]
    )
