"""Programs that use the library continue, whatever the compiler does. Each runs in its own
process.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_processes

pytestmark = pytest.mark.real("a program tries several compiles, each in a child process")

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


def run_program(body: str, folder: Path) -> dict[str, Any]:
    (folder / "nets.py").write_text(NETS)
    program = f"{HEAD}{body}\nprint(json.dumps(result))\n"
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    done = warm_processes.run_torch_program(program, cwd=folder, timeout_s=900, **cache)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.long
def test_a_compile_that_succeeded_in_the_child_uses_the_cache(tmp_path: Path) -> None:
    """There is no warning and no pack, the results are the same, and nothing is compiled twice."""
    result = run_program(
        """
import nets
net = nets.Net().eval()
made, messages = tried(library.safe_compile, net, (x,), timeout_s=200)
with torch.no_grad():
    is_close = torch.allclose(made(x), net(x), atol=1e-5)
result = {"is_compiled": isinstance(made, OptimizedModule), "messages": messages, "is_close": is_close,
        "hits": counters["inductor"]["fxgraph_cache_hit"], "count": library.count_parameters(net)}
""",
        tmp_path,
    )
    assert result == {
        "is_compiled": True,
        "messages": [],
        "is_close": True,
        "hits": 1,
        "count": 3 * 72,
    }
    assert not (tmp_path / "reprokit-out").exists()


def test_a_failed_compile_gives_an_eager_model_a_warning_and_a_pack(tmp_path: Path) -> None:
    """The same holds for a compile that takes too long and for a model that cannot be rebuilt in a
    different process.
    """
    result = run_program(
        """
import nets
broken = nets.Net(1, True).eval()
made, messages = tried(library.safe_compile, broken, (x,), timeout_s=200, output_dir="failed")
late, late_messages = tried(library.safe_compile, nets.Net().eval(), (x,), timeout_s=1, output_dir="late")

class Own(torch.nn.Module):
    def forward(self, x):
        return x + 1

own, own_messages = tried(library.safe_compile, Own(), (x,), timeout_s=200, output_dir="own")
result = {"is_same": made is broken, "messages": messages, "late": late_messages, "own": own_messages, "is_eager": not isinstance(own, OptimizedModule)}
""",
        tmp_path,
    )
    assert result["is_same"] and result["is_eager"]
    for name, words in (("messages", "KeyError"), ("late", "1 s"), ("own", "cannot be tried")):
        assert (
            len(result[name]) == 1 and words in result[name][0] and "\n" not in result[name][0]
        ), result
    assert [p.suffixes[-2:] for p in (tmp_path / "failed").glob("reprokit-*")] == [[".tar", ".gz"]]
    assert not (tmp_path / "own").exists()


def test_failing_layers_stay_eager_and_the_others_are_compiled(tmp_path: Path) -> None:
    """partial_compile compiles layer by layer, in place; smart_compile does the same if measured
    growth shows that the whole model would take too long.
    """
    result = run_program(
        """
import nets
options = {"backend": "aot_eager"}
good, good_messages = tried(library.partial_compile, nets.Net().eval(), (x,), timeout_s=200, **options)
bad, bad_messages = tried(library.partial_compile, nets.Net(2, True).eval(), (x,), timeout_s=200, output_dir="failed")
whole, _ = tried(library.smart_compile, nets.Net(6).eval(), (x,), timeout_s=200, **options)
compiled = lambda net: [isinstance(layer, OptimizedModule) for layer in net.layers]
result = {"good": compiled(good), "good_messages": good_messages, "bad": compiled(bad), "bad_messages": bad_messages,
        "whole": isinstance(whole, OptimizedModule)}
""",
        tmp_path,
    )
    assert result["good"] == [True] * 3 and result["good_messages"] == []
    assert result["bad"] == [False] * 2 and "2 layers that run eager" in result["bad_messages"][0]
    assert result["whole"]


@pytest.mark.long
def test_a_model_in_training_mode_whose_output_needs_no_gradient(tmp_path: Path) -> None:
    """A frozen model is compiled without a backward pass, and if Inductor fails, its error is the
    reason.
    """
    result = run_program(
        """
import nets
frozen = nets.Net(1).train().requires_grad_(False)
with torch.enable_grad():
    made = library.try_compile(frozen, (x,), timeout_s=200, output_dir="frozen")
    broken = library.try_compile(nets.Net(1, True).train().requires_grad_(False), (x,), timeout_s=200, output_dir="broken")
    trained = library.try_compile(nets.Net(1).train(), (x,), timeout_s=200, output_dir="trained")
result = {"frozen": [made.is_fine, made.why], "broken": [broken.is_fine, broken.why], "trained": [trained.is_fine, trained.why]}
""",
        tmp_path,
    )
    assert result["frozen"] == [True, ""] and result["trained"] == [True, ""]
    assert (
        not result["broken"][0]
        and result["broken"][1].startswith("exception: ")
        and "KeyError" in result["broken"][1]
    )
