"""A torch that is newer than any known one, and has moved or changed functions that reprokit hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.environments import ROOT
from tests.support.renamed_torch import VERSION, make_renamed_torch
from tests.support.reprokit_calls import reprokit

pytestmark = pytest.mark.real

NOT_RECORDED = {
    "the start of a phase",
    "Dynamo's graphs",
    "ATen graphs",
    "why it recompiles",
    "limits of recompilation",
    "where a graph breaks",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of the newer torch."""
    return make_renamed_torch(tmp_path_factory.mktemp("newer") / "environment")


@pytest.mark.long
def test_a_failure_keeps_its_signature_and_the_lacking_hooks_are_named(
    python: str, tmp_path: Path
) -> None:
    """The other hooks work. Each one that does not is named with the function that torch lacks."""
    sample = f"{ROOT / 'samples' / 'exception_inductor.py'}:make"
    words = ("--no-minimize", "--no-ablate", "--output-dir", tmp_path, "--json")
    done = reprokit("capture", sample, "--python", python, *words)
    assert (done.status, done.kind) == (1, "exception"), done.err
    title = "exception: codegen | KeyError: 'buf#' @ torch/_inductor/loop_body.py:get_read_expr"
    assert done.json["signature"]["title"] == title
    assert done.json["versions"]["torch"] == VERSION
    lacking = {row["what"]: row["why"] for row in done.json["missing"]}
    assert lacking.keys() >= NOT_RECORDED, lacking
    assert lacking["Dynamo's graphs"] == (
        f"torch {VERSION} has no torch._dynamo.output_graph:OutputGraph._call_user_compiler"
    )
    changed = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.starts_line"
    assert lacking["which user line is traced"] == (
        f"torch {VERSION} has different parameters for {changed}"
    )


def test_a_healthy_program_is_not_said_to_compile_nothing(python: str, tmp_path: Path) -> None:
    """Without the hook for graphs it is not known whether anything was compiled."""
    sample = f"{ROOT / 'samples' / 'healthy.py'}:make"
    done = reprokit("capture", sample, "--python", python, "--output-dir", tmp_path)
    assert done.status == 0 and "ok: The target finished." in done.out, (done.out, done.err)
    assert "is not known" in done.out, done.out


@pytest.mark.triton
def test_the_simulated_gpu_is_refused_in_one_line(python: str, tmp_path: Path) -> None:
    """The line names the function that torch lacks, and the versions that have it."""
    words = ("--gpu", "h100", "--output-dir", tmp_path)
    done = reprokit("capture", "--model", "llama-tiny", "--python", python, *words)
    assert done.status == 2 and "Traceback" not in done.err
    line = done.err.strip().splitlines()[-1]
    assert "load_by_key_path" in line and "--gpu needs torch 2.12 to 2.15" in line
