"""The published JSON Schema, and errors in JSON.

Every other test that calls a command with ``--json`` checks the output against the schema too: see
``tests/support/json_documents.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from reprokit.cli.documents import json_schema
from reprokit.cli.main import cli
from reprokit.cli.shared.config_file import BadConfiguration
from reprokit.cli.shared.consent import NoConsent
from reprokit.core.experiments.ablation import AblationStep, ProgramAblation
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.shared.errors import BadInput
from reprokit.core.shared.result_comparison import Comparison, Difference
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs.proof import Proof
from reprokit.host.pipeline.capture_result import CaptureResult
from tests.support.environments import ROOT, clean_environ
from tests.support.json_documents import assert_documented, parse_documents
from tests.support.processes import restore_signals
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import reprokit, reprokit_command

from .test_minimize import SMALL

PUBLISHED = ROOT / "docs" / "reference" / "reprokit.schema.json"


def test_every_command_has_a_schema() -> None:
    """``schema`` prints a schema itself, so it has none."""
    context, names = click.Context(cli), set()
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        inside = command.commands if isinstance(command, click.Group) else {}
        names |= {f"{name} {part}" for part in inside} or {name}
    assert names - {"schema"} == set(json_schema.DOCUMENTS)


@pytest.mark.parametrize("command", json_schema.DOCUMENTS)
def test_a_schema_is_a_valid_schema_of_the_draft_that_it_names(command: str) -> None:
    """It has a version in its identifier, describes each document, and allows the error."""
    schema = json_schema.schema_of_command(command)
    assert schema["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"].startswith(f"urn:reprokit:schema:{json_schema.VERSION}:")
    assert schema["anyOf"][-1] == {"$ref": "#/$defs/ErrorDocument"}
    for row in schema["anyOf"]:
        part = schema["$defs"][row["$ref"].rpartition("/")[2]]
        assert part["description"] and part["required"]


def test_the_published_schema_is_that_of_the_code() -> None:
    """To update it: reprokit schema > docs/reference/reprokit.schema.json"""
    assert reprokit("schema").out == PUBLISHED.read_text()
    assert json.loads(reprokit("schema", "nightly", "run").out) == json_schema.schema_of_command(
        "nightly run"
    )
    unknown = reprokit("schema", "nightly")
    assert unknown.status == 2 and "the commands are ablate, attach" in unknown.err


def test_the_schema_refuses_another_document() -> None:
    """A key of a wrong type and a missing key are errors."""
    models = reprokit("models", "--json").json
    validator = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))
    assert validator.is_valid(models)
    assert not validator.is_valid({**models, "models": "none"})
    with pytest.raises(AssertionError):
        assert_documented(["models", "--json"], json.dumps({"schema": 1}))
    with pytest.raises(AssertionError):
        assert_documented(["models", "--json"], json.dumps({**models, "unknown": 1}))


def test_each_record_of_a_capture_is_in_the_schema(tmp_path: Path) -> None:
    """A new field of a record is a new key of the output, so it must be in the schema."""
    result = CaptureResult(
        Verdict("wrong-result", "inductor", "values", "The results differ."),
        Signature("80e0acb1f040", "wrong-result", 8),
        Observation(comparison=Comparison((Difference(0, "output[0]", "values", "compiled"),))),
        tmp_path,
        minimized=MinimizeResult("x = 1", proof=Proof("same", "title", "80e0acb1f040")),
        ablation=ProgramAblation((AblationStep("eager", "backends", "passes", "ok", ""),)),
        missing=[Missing("TORCH_TRACE", "disabled")],
    )
    assert_documented(["capture", "--json"], json.dumps(result.to_json()))


ERRORS = {
    ("captrue", "--json"): "usage",
    ("capture", "--json", "--no-such-option"): "usage",
    ("capture", "--json", "--stall", "never"): "usage",
    ("capture", "--json"): "bad-input",
    ("capture", "--json", "llama41b"): "bad-input",
    ("scale", "--json", "llama-tiny"): "bad-input",
    ("replay", "none.tar.gz", "--json"): "bad-input",
    ("ablate", "none.tar.gz", "--json"): "bad-input",
    ("nightly", "run", "none.toml", "--json"): "bad-input",
    ("nightly", "report", "--json"): "bad-input",
    ("--config", "none.toml", "models", "--json"): "configuration",
}


@pytest.mark.parametrize("words", ERRORS, ids=" ".join)
def test_an_error_is_an_object_with_a_code(words: tuple[str, ...], tmp_path: Path) -> None:
    """stdout has the object, stderr the same line, and the exit code is 2."""
    done = reprokit(*words, cwd=tmp_path)
    error = done.json["error"]
    assert (done.status, error["code"], done.json["schema"]) == (2, ERRORS[words], 1)
    assert done.err == f"reprokit: {error['message']}\n"


@pytest.mark.parametrize("place", ["variable", "file"])
def test_json_from_elsewhere_makes_errors_json_too(place: str, tmp_path: Path) -> None:
    """Also for a command line that cannot be read."""
    if place == "file":
        (tmp_path / "reprokit.toml").write_text("json = true\n")
    environ = clean_environ(**({"REPROKIT_JSON": "1"} if place == "variable" else {}))
    done = reprokit("replay", "--no-such-option", cwd=tmp_path, env=environ)
    assert done.json["error"]["code"] == "usage"


def test_json_behind_two_dashes_is_of_the_program() -> None:
    """``--json`` of a command that is captured does not change the errors of reprokit."""
    done = reprokit("capture", "--no-such-option", "--", "tool", "--json")
    assert (done.status, done.out) == (2, "")


def pack_with_repro(write: Any, recorded: Recorder) -> str:
    """Return the pack of a failure with a proved repro."""
    target = f"{write('erf.py', SMALL)}:make"
    done = recorded(target, "--budget", "60", name="a-proved-repro", REPROKIT_MINIMIZE="1")
    assert done.json["repro"], done.out
    return str(done.json["pack"])


def test_check_without_a_program_is_skipped_with_the_reason(
    write: Any, recorded: Recorder, tmp_path: Path
) -> None:
    """The exit code is that for git, and stdout has an answer and the error."""
    pack = pack_with_repro(write, recorded)
    words = ("--same-as", pack, "--exit-zero-if", "bug", "--json")
    done = reprokit("check", tmp_path / "none.py", *words)
    assert (done.status, done.json["answer"]) == (125, "unresolved")
    assert "none.py" in done.json["error"]["message"]


def test_a_pack_without_consent_has_its_own_code(write: Any, recorded: Recorder) -> None:
    """A program can tell that ``--yes`` is missing."""
    done = reprokit("replay", pack_with_repro(write, recorded), "--json")
    assert (done.status, done.json["error"]["code"]) == (2, "consent")


def test_an_interrupted_command_leaves_one_object(tmp_path: Path) -> None:
    """A command that has no result yet prints the error ``interrupted``."""
    pipe, written = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    with written.open("w") as file:
        child = subprocess.Popen(
            reprokit_command("nightly", "import", str(pipe), "--json"),
            cwd=tmp_path,
            env=clean_environ(),
            stdout=file,
            stderr=subprocess.DEVNULL,
            preexec_fn=restore_signals,
        )
        with pipe.open("w"):  # this waits until the command reads
            child.send_signal(signal.SIGINT)
            assert child.wait(60) == 130
    (document,) = parse_documents(written.read_text(), has_lines=False)
    assert document["error"]["code"] == "interrupted"


def test_a_document_is_one_even_if_the_target_prints(tmp_path: Path) -> None:
    """The output of a captured program goes to stderr, and stdout is the document."""
    program = "import sys; print('{}'); print('{}', file=sys.stderr); sys.exit(3)"
    words = ("--json", "--output-dir", tmp_path, "--", sys.executable, "-c", program)
    done = reprokit("capture", *words)
    assert done.json["run_dir"] and done.err.count("{}") == 2


def test_every_code_of_an_error_is_documented() -> None:
    """The table of docs/reference/json.md has the codes that the schema names."""
    text = (ROOT / "docs" / "reference" / "json.md").read_text()
    properties = json_schema.schema_of_command("show")["$defs"]["ErrorKeys"]["properties"]
    codes = {*properties["code"]["description"].replace(" or ", ", ").split(", ")}
    assert codes == {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert codes >= {"usage", BadInput.code, BadConfiguration.code, NoConsent.code}
