"""One dummy for each extension point of reprokit, as the edits that add it to the source."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.environments import ROOT


@dataclass(frozen=True)
class Extension:
    """One dummy."""

    adds: str
    """What it adds, as docs/architecture.md calls it."""
    edits: Mapping[str, tuple[tuple[str, str], ...]]
    """File below ``reprokit/`` -> pairs of an anchor and a text. The text is inserted after the
    only match of the anchor, a regular expression; a new file has an empty anchor.
    """


VERDICT_KIND = Extension(
    "a kind of verdict",
    {
        "core/records/verdict_kinds.py": (
            (
                r"KINDS = \{\n.*\n    for kind in \(\n",
                '        Kind(name="dummy-kind", exit_code=7, not_filed="it is a dummy"),\n',
            ),
        ),
        "core/judge/verdict.py": (
            (
                r"    questions = \(\n",
                """        lambda seen: (
            Verdict("dummy-kind", None, "dummy", "The program printed DUMMY-KIND.")
            if "DUMMY-KIND" in seen.stderr_tail
            else None
        ),
""",
            ),
        ),
    },
)
HANG_CAUSE = Extension(
    "a cause of a hang",
    {
        "core/judge/hangs/hang_causes.json": (
            (
                r'  "rules": \[\n',
                '    {"cause": "dummy-wait", "when": {"frame":'
                ' {"file": ".*", "function": "wait_for_dummy", "within": 4}}},\n',
            ),
            (r'  "explain": \{\n', '    "dummy-wait": "The program waits for a dummy.",\n'),
        )
    },
)
ABLATION_STEP = Extension(
    "an ablation step",
    {
        "core/experiments/ablation.py": (
            (
                r'    _switch\("dynamic=True", [^\n]*\n',
                '    _switch("dummy switch", _inductor__config__max_fusion_size=2),\n',
            ),
        )
    },
)
REDUCTION_PASS = Extension(
    "a reduction pass",
    {
        "core/reduce/passes/dummy_pass.py": (
            (
                "",
                '''"""Replace sin by cos."""


def cos_for_sin(text, holds):
    changed = text.replace("sin", "cos")
    return changed if changed != text and holds(changed) else text
''',
            ),
        ),
        "core/reduce/pass_table.py": (
            (
                r"from reprokit\.core\.reduce import ast_edits, readable\n",
                "from reprokit.core.reduce.passes import dummy_pass\n",
            ),
            (r"\nPASSES: [^\n]*\n", '    ("dummies", dummy_pass.cos_for_sin),\n'),
        ),
    },
)
ENGINE = Extension(
    "an execution engine",
    {
        "host/nightly/engines/dummy_engine.py": (
            (
                "",
                '''"""Run jobs on this machine, and say so."""

from reprokit.host.nightly.engines import local_engine


def run_on_dummy(work, cores, show, say):
    say("the dummy engine runs the jobs")
    local_engine.run_on_machine(work, local_engine.this_machine(cores), show, say)
''',
            ),
        ),
        "host/nightly/engines/engine_table.py": (
            (
                r"from reprokit\.host\.nightly\.engines import local_engine, slurm_engine\n",
                "from reprokit.host.nightly.engines import dummy_engine\n",
            ),
            (
                r"    for engine in \(\n",
                '        Engine("dummy", dummy_engine.run_on_dummy),\n',
            ),
        ),
        "cli/commands/nightly.py": ((r'"--engine",\n    type=click\.Choice\(\[', '"dummy", '),),
    },
)
ISSUE_FORM = Extension(
    "an issue form",
    {
        "core/judge/responsible/parties.py": (
            (r"\nPARTIES = \(", '"dummylib", '),
            (r"\nUPSTREAM = \{", '"dummylib": "dummy/dummylib", '),
        ),
        "core/judge/responsible/responsibility.py": (
            (
                r"    questions = \(\n",
                """        lambda verdict, seen: (
            Responsible("dummylib", ("dummylib raised it.",))
            if "DUMMYLIB" in verdict.reason
            else None
        ),
""",
            ),
        ),
        "host/pack/issue_forms.py": (
            (
                r"\nFORMS = \{\n",
                """    UPSTREAM["dummylib"]: IssueForm(
        "dummy", "dummy.yml", "issue.md.j2", {"Everything": ("issue/describe.md",)}
    ),
""",
            ),
        ),
    },
)
GPU_VENDOR = Extension(
    "a vendor of GPUs",
    {
        "host/watch/dummy_gpus.py": (
            (
                "",
                '''"""A vendor whose only GPU is always half busy."""

import json
import sys
import time

if "watch" in sys.argv:
    while True:
        use = {"index": 0, "busy_share": 0.5, "memory_bytes": 1}
        print(json.dumps([use]), flush=True)
        time.sleep(1)
print(json.dumps({"gpus": [{"name": "Dummy 1"}]}))
''',
            ),
        ),
        "host/watch/gpu_vendors.py": (
            (
                r"\nGPU_VENDORS: [^\n]*\n",
                '    GpuVendor("Dummy", "/dev/null", "reprokit.host.watch.dummy_gpus"),\n',
            ),
        ),
    },
)
CAPTURE_OPTION = Extension(
    "an option of `capture`",
    {
        "cli/commands/capture.py": (
            (
                r'@shared\.option\("--layers"[^\n]*\n',
                '@shared.option("--dummy", default="", help="A dummy.")\n',
            ),
            (r"    watching: [^\n]*\n", '        "dummy": options["dummy"],\n'),
        ),
        "host/request/run_request.py": (
            (r"    has_trace: bool = True\n", '    dummy: str = ""\n'),
        ),
        "host/request/command_line.py": (
            (
                r'    \("--no-trace", [^\n]*\n',
                '    ("--dummy", lambda r: r.dummy),\n',
            ),
        ),
    },
)
ENVIRONMENT_PROBE = Extension(
    "an environment probe",
    {
        "host/environment/machine_facts.py": (
            (r"\nMACHINE_PROBES: [^\n]*\n", '    "dummy": lambda: {"answer": 42},\n'),
        )
    },
)
REDACTION_RULE = Extension(
    "a redaction rule",
    {
        "core/redaction/rules/token_formats.py": (
            (
                r"\nFORMATS: [^\n]*\n",
                '    TokenFormat("Dummy token", ("dum_",), r"dum_[a-z]{12}"),\n',
            ),
        )
    },
)
ZOO_MODEL = Extension(
    "a model of the zoo",
    {
        "agent/models/dummy.py": (
            (
                "",
                '''"""A linear layer."""

import torch
from torch import nn


def make(width, batch_size):
    """Return the model and its arguments."""
    return nn.Linear(width, width), (torch.randn(batch_size, width),)
''',
            ),
        ),
        "core/shared/zoo.py": (
            (
                r"\nNETWORKS = \{\n",
                '    "dummy": Network(lambda k: k["width"] * (k["width"] + 1)),\n',
            ),
            (
                r"ZOO: [^\n]*\n    model\.name: model\n    for model in \(\n",
                """        _model(
            "dummy-net", "a linear layer", "dummy", width=8, batch_size=2, dtype="float32"
        ),
""",
            ),
        ),
    },
)
EXTENSIONS = (
    VERDICT_KIND,
    HANG_CAUSE,
    ABLATION_STEP,
    REDUCTION_PASS,
    ENGINE,
    ISSUE_FORM,
    GPU_VENDOR,
    CAPTURE_OPTION,
    ENVIRONMENT_PROBE,
    REDACTION_RULE,
    ZOO_MODEL,
)


def copy_with_dummies(folder: Path) -> None:
    """Copy reprokit to ``folder``, and add all dummies to the copy."""
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "reprokit", folder / "reprokit", ignore=without)
    shutil.copytree(ROOT / "templates", folder / "templates")
    for extension in EXTENSIONS:
        for file, insertions in extension.edits.items():
            path = folder / "reprokit" / file
            for anchor, text in insertions:
                if not anchor:
                    assert not path.exists(), f"{file} exists"
                    path.write_text(text)
                    continue
                before = path.read_text()
                found = list(re.finditer(anchor, before))
                assert len(found) == 1, (
                    f"{extension.adds}: {anchor} is {len(found)} times in {file}"
                )
                end = found[0].end()
                path.write_text(before[:end] + text + before[end:])
