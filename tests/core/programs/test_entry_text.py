"""A heuristic decides which scripts may be run repeatedly. It is for scripts without hostile
intent, and refuses in doubt.
"""

from __future__ import annotations

import ast

import pytest

from reprokit.core.reduce import safe_to_rerun

TOUCHES = [
    "import torch.distributed as dist; dist.init_process_group('gloo')",
    "from torch.distributed import init_process_group",
    "import torch.multiprocessing as mp; mp.spawn(f)",
    "from torch.utils.tensorboard import SummaryWriter; SummaryWriter('/data/runs')",
    "from torch.utils.cpp_extension import load_inline",
    "from torch.hub import load_state_dict_from_url",
    "import torch.hub as h; h.load(1)",
    "from torch.utils import model_zoo",
    "import logging\nlogging.basicConfig(filename='/x.log', filemode='w')",
    "import logging.handlers\nlogging.handlers.RotatingFileHandler('/x')",
    "import logging.config",
    "import io; io.open('/x','w')",
    "import argparse; argparse.FileType('w')",
    "import timeit; timeit.timeit('open()')",
    "import os as o; o.remove('/x')",
    "import os; os.path.os.remove('x')",
    "import torch; torch.os.remove('/x')",
    "f = open; f('x')",
    "map(open, [])",
    "import torch; getattr(torch,'save')(1)",
    "prof.export_chrome_trace('x')",
    "import torch; torch.profiler.tensorboard_trace_handler('/log')",
    "import torch; torch.cuda.memory._dump_snapshot('x')",
    "import torch; torch.from_file('x', shared=True)",
    "gm.to_folder('x')",
    "import torch; torch._inductor.aoti_compile_and_package(1, package_path='x')",
    "m._save_for_lite_interpreter('x')",
    "import shutil",
    "from pathlib import Path; Path('x').replace('y')",
    "from pathlib import Path; Path('x').write_text('y')",
    "import numpy as np; np.save('x', 1)",
    "import sys; sys.modules['os'].remove('x')",
    "from os import remove",
    "from subprocess import run",
    "import torch; torch.save(1,'x')",
    "import torch; torch.distributed.init_process_group()",
    "with open('x') as f: pass",
]
COMPUTES = [
    "import numpy as np; np.zeros(3)",
    "import sys; sys.stdout.write('x')",
    "import os; os.getcwd(); os.environ['A']='1'",
    "import torch; torch.distributed.is_available()",
    "import torch; torch.export.export(m, ())",
    "from torch import compile; compile(f)",
    (
        "import logging; logging.basicConfig(level=logging.INFO);"
        " logging.getLogger(__name__).info('x')"
    ),
    "from pathlib import Path; p=Path(__file__).parent",
    "import torch.nn.functional as F; from torch import nn, optim",
    "x = 'a'.replace('b','c')",
    "l.remove(x); h.remove()",
    "import torch; torch.compile(f)",
    "for n, m in net.named_modules(): pass\nnet.modules()",
    "from torch.nn.attention import sdpa_kernel",
    "import torch._inductor.config as config",
    "import torch._dynamo.config; torch._dynamo.config.verbose=True",
    "from dataclasses import dataclass, field",
    "import torch; torch.set_num_threads(2)",
    "m = model.to('cpu'); d = m.state_dict(); m.load_state_dict(d)",
]


@pytest.mark.parametrize("text", TOUCHES)
def test_a_script_with_side_effects_is_not_rerun(text: str) -> None:
    """Files, processes, networks and foreign modules: changed copies of it are not run without
    consent.
    """
    assert safe_to_rerun.why_not_again(ast.parse(text))


@pytest.mark.parametrize("text", COMPUTES)
def test_a_script_that_only_computes_may_be_rerun(text: str) -> None:
    """Reading the command line, the clock and the environment, and printing, have no side
    effects.
    """
    assert safe_to_rerun.why_not_again(ast.parse(text)) == ""


def test_the_reason_is_reported() -> None:
    """The reason has a few words and no strings of the script."""
    assert (
        safe_to_rerun.why_not_again(ast.parse("import transformers")) == "it imports transformers"
    )
    assert (
        safe_to_rerun.why_not_again(ast.parse("torch.save(model, '/secret/x.pt')"))
        == "it uses torch.save"
    )


def test_a_script_carries_its_command_line() -> None:
    """The arguments are set in the program, after the statements that must come first."""
    text = safe_to_rerun.with_arguments(
        "from __future__ import annotations\nimport torch\n", ["--lr", "1"]
    )
    first = [
        "from __future__ import annotations",
        "import sys",
        "sys.argv = ['repro.py', '--lr', '1']",
    ]
    assert text.splitlines()[:3] == first
    assert safe_to_rerun.with_arguments("import torch\n", []) == "import torch\n"
