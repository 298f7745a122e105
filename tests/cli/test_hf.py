"""hf: targets: models of transformers from their configuration, in a child, without weights and
without a network.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import ROOT, clean_environ
from tests.support.reprokit_calls import reprokit

from .test_capture_models import events, graphs

HAS_IT = importlib.util.find_spec("transformers") is not None
needs_it = pytest.mark.skipif(not HAS_IT, reason=f"{sys.executable} has no transformers")
TINY = (
    "--layers",
    "1",
    "--set",
    "hidden_size=16",
    "--set",
    "intermediate_size=32",
    "--set",
    "vocab_size=100",
    "--set",
    "num_attention_heads=2",
)
EAGER = ("--backend", "eager")


def with_no_network(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which opening a connection raises an error."""
    (tmp_path / "site").mkdir(exist_ok=True)
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import socket\ndef no(*a, **k): raise AssertionError('the network was used')\n"
        "socket.getaddrinfo = socket.create_connection = socket.socket.connect = no\n"
    )
    return clean_environ(PYTHONPATH=f"{tmp_path / 'site'}:{ROOT}")


@pytest.mark.real("it imports transformers, and runs the program of the pack")
@needs_it
def test_a_model_type_is_built_from_its_defaults_and_compiled(tmp_path: Path) -> None:
    """Class and inputs are chosen, sizes are those that were set, and the network is not used."""
    done = reprokit(
        "capture",
        "hf:llama",
        *TINY,
        "--batch-size",
        "3",
        "--sequence-length",
        "5",
        "--dtype",
        "bfloat16",
        "--set",
        "num_key_value_heads=1",
        "--backend",
        "aot_eager",
        "--train",
        "--output-dir",
        tmp_path / "o",
        "--json",
        env=with_no_network(tmp_path),
    )
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
    (made,) = events(done, "hf")
    assert (made["kind"], made["inputs"]) == ("LlamaForCausalLM", {"input_ids": [3, 5]})
    assert [g["level"] for g in graphs(done)] == ["dynamo"], "one forward pass, and no break in it"
    names = [i for g in graphs(done)[:1] for i in json.loads(inputs_of(done.run_dir, g))["inputs"]]
    parameters = [i for i in names if i["kind"] == "tensor" and i["is_parameter"]]
    assert {i["dtype"] for i in parameters} == {"torch.bfloat16"}
    assert [100, 16] in [i["shape"] for i in parameters], "vocabulary x hidden size"
    command = (done.run_dir / "pack" / "command.txt").read_text()
    assert (
        "--layers 1" in command
        and "--set hidden_size=16" in command
        and "--model hf:llama" in command
    )
    # the program in the pack builds the same model without reprokit
    script = done.run_dir / "pack" / "original.py"
    ran = subprocess.run(
        [sys.executable, script], env=clean_environ(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def inputs_of(run_dir: Path, graph: dict[str, object]) -> str:
    return (run_dir / "graphs" / f"{graph['n']:04d}" / "inputs.json").read_text()


@needs_it
@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "more", "kind", "inputs"),
    [
        pytest.param(
            "vit",
            ("--set", "image_size=32", "--set", "patch_size=8"),
            "ViTForImageClassification",
            {"pixel_values": [2, 3, 32, 32]},
            marks=pytest.mark.long,
        ),
        (
            "whisper",
            ("--set", "d_model=24", "--set", "max_source_positions=20"),
            "WhisperForConditionalGeneration",
            {"input_features": [2, 80, 40], "decoder_input_ids": [2, 32]},
        ),
    ],
)
def test_images_and_sound(
    name: str, more: tuple[str, ...], kind: str, inputs: dict[str, list[int]], tmp_path: Path
) -> None:
    """Each kind of model gets the class and the inputs that a person would choose."""
    done = reprokit(
        "capture", f"hf:{name}", "--layers", "1", *more, *EAGER, "--output-dir", tmp_path, "--json"
    )
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
    (made,) = events(done, "hf")
    assert (made["kind"], made["inputs"]) == (kind, inputs)


@needs_it
@pytest.mark.real
def test_a_configuration_file_and_weights_that_do_not_fit(tmp_path: Path) -> None:
    """A local config.json is taken as it is; what would not fit in memory is compiled on fake
    weights.
    """
    configuration = {
        "model_type": "mistral",
        "hidden_size": 65536,
        "intermediate_size": 262144,
        "num_hidden_layers": 40,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(configuration))
    done = reprokit(
        "capture",
        f"hf:{tmp_path}",
        "--layers",
        "3",
        "--backend",
        "aot_eager",
        "--output-dir",
        tmp_path / "o",
        "--json",
    )
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
    (weights,) = events(done, "weights")
    assert weights["kind"] == "fake" and "do not fit" in str(weights["why"])
    (target,) = events(done, "target")
    assert int(str(target["parameters"])) > 150e9
    assert done.json["peak_rss_bytes"] < 4 << 30


@pytest.mark.real
@needs_it
def test_models_lists_the_types_and_the_arguments(tmp_path: Path) -> None:
    """All types; of one type the class, its size, and which fields the options set."""
    env = with_no_network(tmp_path)
    models = reprokit("models", "hf:", "--json", env=env).json
    assert {"llama", "bert", "vit"} <= set(models["types"]) and len(models["types"]) > 200
    model_type = reprokit("models", "hf:gpt2", "--json", env=env).json
    assert (model_type["class"], model_type["layers"], model_type["knobs"]["n_embd"]) == (
        "GPT2LMHeadModel",
        ["n_layer"],
        768,
    )
    assert 120e6 < model_type["parameters"] < 130e6 and model_type["inputs"] == {
        "input_ids": [2, 32]
    }
    text = reprokit("models", "hf:gpt2", env=env).out
    assert "--layers" in text and "sets n_layer" in text and "--set n_embd" in text


LINES = {
    ("hf:lama",): "did you mean llama",
    ("hf:llama", "--set", "hiden_size=3"): "did you mean hidden_size",
    ("hf:llama", "--set", "hidden_size=big"): "has 4096 there, which is an integer",
    ("hf:llama", "--set", "architectures=NoSuchModel"): "has no class 'NoSuchModel'",
    ("hf:no_type.json",): 'it has no "model_type"',
}
REAL_LINES = {("hf:lama",), ("hf:llama", "--set", "hiden_size=3")}


@needs_it
@pytest.mark.real
@pytest.mark.parametrize(
    "words",
    [
        words if words in REAL_LINES else pytest.param(words, marks=pytest.mark.long)
        for words in LINES
    ],
    ids=" ".join,
)
def test_one_clear_line(words: tuple[str, ...], tmp_path: Path) -> None:
    """Unknown types and fields, wrong values and files that are not a configuration give a one-line
    error and exit code 2.
    """
    (tmp_path / "no_type.json").write_text("{}")
    done = reprokit("capture", *words, cwd=tmp_path)
    assert done.status == 2, done.out + done.err
    assert LINES[words] in done.err.strip().splitlines()[-1], done.err


def test_an_interpreter_without_transformers(tmp_path: Path) -> None:
    """transformers is imported only in the target's interpreter, and a missing one gives a one-line
    error.
    """
    hide = tmp_path / "site" / "transformers"
    hide.mkdir(parents=True)
    (hide / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'transformers'\", name='transformers')"
    )
    env = clean_environ(PYTHONPATH=f"{tmp_path / 'site'}:{ROOT}")
    for words in (
        ("capture", "hf:llama", "--output-dir", tmp_path / "o"),
        ("models", "hf:"),
        ("models", "hf:llama"),
    ):
        done = reprokit(*words, env=env)
        assert done.status == 2, done.err
        last = done.err.strip().splitlines()[-1]
        assert "has no transformers" in last and "--python" in last, done.err


@needs_it
@pytest.mark.long
def test_a_failure_is_reduced_from_the_model(tmp_path: Path) -> None:
    """A bug in the lowering of one operator is minimized from the recorded graph to a program
    without transformers.
    """
    env = clean_environ(
        BUG="raise", PYTHONPATH=f"{ROOT}:{ROOT / 'benchmarks' / 'cases' / 'inject'}"
    )
    done = reprokit(
        "capture",
        "hf:bert",
        *TINY,
        "--minimize",
        "--budget",
        "90",
        "--output-dir",
        tmp_path,
        "--json",
        env=env,
    )
    assert (done.status, done.kind) == (1, "exception"), done.out + done.err
    text = Path(done.json["repro"]).read_text()
    assert "gelu" in text and "transformers" not in text, text
    assert done.json["minimized"]["lines"] < 10
