"""models, env and show, for people and for machines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from reprokit.core.shared.zoo import ZOO

from ..conftest import clean_environ, reprokit


def test_models_lists_the_zoo() -> None:
    """Every model with its parameters."""
    done = reprokit("models")
    assert done.status == 0
    for name in ZOO:
        assert name in done.out
    assert "41.6 B" in done.out
    found = reprokit("models", "--json").json
    assert {m["name"]: m["parameters"] for m in found["models"]} == {
        n: m.parameters for n, m in ZOO.items()
    }


@pytest.mark.slow
def test_env_tells_what_a_pack_would_say() -> None:
    """The facts, the text of collect_env, and why something is missing; secrets and names
    redacted.
    """
    env = clean_environ(
        HF_TOKEN="hf_" + "a" * 34,
        TORCHINDUCTOR_CACHE_DIR="/home/janedoe/cache",
        CUDA_VISIBLE_DEVICES="0",
    )
    done = reprokit("env", "--json", env=env)
    assert done.status == 0
    found = done.json
    facts = found["environment"]
    assert facts["torch"]["version"].startswith("2.")
    assert facts["python"]["version"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert "torch" in facts["packages"]
    assert facts["cpu"]["logical"] >= 1 and facts["memory"]["total_bytes"] > 0
    assert "g++" in facts["compiler"]
    wanted = {k: v for k, v in facts["variables"].items() if k.startswith(("CUDA", "TORCH"))}
    assert wanted == {"CUDA_VISIBLE_DEVICES": "0", "TORCHINDUCTOR_CACHE_DIR": "<home>/cache"}
    assert "symm_mem" in json.dumps(facts["symmetric_memory"])
    assert "PyTorch version" in found["collect_env"]
    assert "janedoe" not in done.out and "aaaaaaaa" not in done.out
    for row in found["missing"]:
        assert row["what"].startswith("environment: ") and row["why"]


def test_env_with_an_interpreter_that_lacks_torch(tmp_path: Path) -> None:
    """What cannot be asked is told with its reason, not an error."""
    import subprocess

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    done = reprokit("env", "--json", "--python", tmp_path / "bare" / "bin" / "python")
    assert done.status == 0
    whats = {m["what"] for m in done.json["missing"]}
    assert {"environment: torch", "environment: collect_env"} <= whats


def test_show_prints_and_verifies(tmp_path: Path) -> None:
    """The title, the reason, every file; one file on request; control characters never reach the
    terminal.
    """
    program = r"print('\x1b[31mred'); raise SystemExit(3)"
    made = reprokit(
        "capture", "--json", "--output-dir", tmp_path, "--", sys.executable, "-c", program
    ).json
    done = reprokit("show", made["pack"])
    assert done.status == 0
    assert made["signature"]["id"] in done.out and "manifest.json" in done.out
    issue = reprokit("show", made["pack"], "--file", "issue.md")
    assert issue.out == Path(made["issue"]).read_text()
    log = reprokit("show", made["pack"], "--file", "logs/stdout.txt")
    assert "\x1b" not in log.out and "red" in log.out
    found = reprokit("show", made["pack"], "--json").json
    assert found["verified"] is True and found["files"]["issue.md"] > 0
    wrong = reprokit("show", made["pack"], "--file", "nothing")
    assert wrong.status == 2 and "holds no 'nothing'" in wrong.err
