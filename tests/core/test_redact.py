"""Redaction removes every secret and changes nothing that is needed for a diagnosis."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.redaction.redactor import ALLOWED_VARIABLES, Redactor
from reprokit.core.redaction.rules import secret_names
from reprokit.core.redaction.rules.machine_names import PrivateNames
from tests.support.examples import examples

LETTERS = string.ascii_letters + string.digits
PRIVATE = PrivateNames(
    users=("mkowalski", "max"),
    hosts=("gpu-node-17", "vm"),
    homes=("/root", "/data/people/mkowalski"),
    secrets=("S3cr3tValueOfAVariable",),
)


def token(prefix: str, size: int, alphabet: str = LETTERS) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=size, max_size=size).map(lambda t: prefix + t)


SECRETS = st.one_of(
    token("ghp_", 36),
    token("gho_", 36),
    token("github_pat_", 40),
    token("hf_", 34),
    token("AKIA", 16, string.ascii_uppercase + string.digits),
    token("sk-", 48),
    token("sk-ant-api03-", 60),
    token("sk-proj-", 48),
    token("glpat-", 20),
    token("xoxb-", 24, string.digits + "-").filter(lambda t: not t.endswith("-")),
    token("AIza", 35),
    token("npm_", 36),
    token("nvapi-", 40),
    st.just("S3cr3tValueOfAVariable"),
)
# Text that can surround a token: its neighbours must not be letters, which would change the word.
AROUND = (
    st.text(string.printable, max_size=60).map(lambda t: t + " ")
    | st.just("")
    | st.sampled_from(["key: ", "'", '"', "(", "\n", "=", "token="])
)


@settings(max_examples=examples(400))
@given(AROUND, SECRETS, st.text(string.printable, max_size=60).map(lambda t: " " + t))
def test_a_known_token_never_survives(before: str, secret: str, after: str) -> None:
    """Whatever surrounds a token, the token is removed."""
    assert secret not in Redactor(PRIVATE).redact_text(before + secret + after)


@settings(max_examples=examples(400))
@given(st.text(max_size=400))
def test_redacting_twice_changes_nothing(text: str) -> None:
    """Placeholders are not taken for secrets, so texts can be redacted more than once."""
    once = Redactor(PRIVATE).redact_text(text)
    assert Redactor(PRIVATE).redact_text(once) == once


@settings(max_examples=examples(200))
@given(SECRETS, SECRETS)
def test_the_same_secret_has_the_same_placeholder(secret: str, second_secret: str) -> None:
    """Placeholders are equal for equal secrets and different for different ones, so a reader can
    follow them through a pack.
    """
    redactor = Redactor(PRIVATE)
    first, again, different = (
        redactor.redact_text(f"a {secret} b"),
        redactor.redact_text(f"a {secret} b"),
        redactor.redact_text(f"a {second_secret} b"),
    )
    assert first == again
    assert (first == different) == (secret == second_secret)


NAME = st.sampled_from(
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "MY_PASSWORD",
        "DB_PASSWD",
        "SIGNING_KEY",
        "X_SECRET",
    ]
)
VALUE = st.text(LETTERS + "+/._-", min_size=12, max_size=40).filter(
    lambda v: any(c.isdigit() for c in v) and any(c.isalpha() for c in v)
)


@settings(max_examples=examples(300))
@given(
    NAME,
    VALUE,
    st.sampled_from(
        ["{n}={v}", "export {n}={v}", "{n}='{v}'", '"{n}": "{v}"', "{n}: {v}", "-e {n}={v} run"]
    ),
)
def test_an_assignment_to_a_secret_name_is_hidden(name: str, value: str, form: str) -> None:
    """In KEY=value, shell exports, YAML and JSON the name stays and the value is hidden."""
    text = Redactor().redact_text(form.format(n=name, v=value))
    assert value not in text
    assert name in text


@settings(max_examples=examples(200))
@given(st.dictionaries(NAME, VALUE, min_size=1), st.integers(0, 4))
def test_json_stays_json(values: dict[str, str], indent: int) -> None:
    """A redacted JSON document still parses and has the same keys."""
    text = Redactor(PRIVATE).redact_text(
        json.dumps(
            {"env": values, "path": "/home/bob/x", "log": "line\nmail bob@example.com"},
            indent=indent,
        )
    )
    assert set(json.loads(text)["env"]) == set(values)


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("/home/alice/project/train.py", "alice"),
        ("/Users/alice/project/train.py", "alice"),
        ('File "/data/people/mkowalski/x.py", line 3', "people"),
        ("ssh mkowalski@gpu-node-17 nvidia-smi", "mkowalski"),
        ("ssh mkowalski@gpu-node-17 nvidia-smi", "gpu-node-17"),
        ("MKOWALSKI ran it", "MKOWALSKI"),
        ("/scratch/mkowalski/run", "mkowalski"),
        ("/scratch/max/run", "max"),
        ("DB_PASSWORD=12345678", "12345678"),
        ('password: "correct horse battery"', "horse"),
        ('{"log": "HF_TOKEN=\\"abcd1234efgh\\""}', "abcd1234efgh"),
        ('{"log": "{\\"MY_KEY\\": \\"abcd1234efgh\\"}"}', "abcd1234efgh"),
        ("DB_PASSWORD=abc;def&ghi", "ghi"),
        ('"argv": ["x.py", "--api-key", "Zx81abcd9"]', "Zx81abcd9"),
        ('"argv": "[\\"--token\\",\\"Zx81abcd9\\"]"', "Zx81abcd9"),
        ("['--hub-token', 'Zx81abcd9']", "Zx81abcd9"),
        ("Linux vm 6.18.44 #1 SMP", " vm "),
        ("connect to 10.12.3.4:29500", "10.12.3.4"),
        ("MASTER_ADDR=192.168.1.7", "192.168.1.7"),
        ("peer 8.8.4.4 refused", "8.8.4.4"),
        ("peer [fe80::1ff:fe23:4567:890a] refused", "fe80::1ff"),
        ("peer 2001:db8:85a3:0:0:8a2e:370:7334 refused", "8a2e"),
        ("ether 52:54:00:12:34:56 up", "52:54:00"),
        ("write to jane.doe+x@sub.example.co.uk please", "jane"),
        ("https://user:pa55word@git.example.com/x.git", "pa55word"),
        ("postgresql://svc:hunter2@db/x", "hunter2"),
        ("https://ghtoken123@github.com/o/r", "ghtoken123"),
        ("Authorization: Bearer abcdef0123456789abcdef", "abcdef0123456789abcdef"),
        ("password: hunter2hunter", "hunter2hunter"),
        (
            "wandb login --relogin 0123456789abcdef0123456789abcdef01234567",
            "0123456789abcdef0123456789abcdef01234567",
        ),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
        ("run --api-key Zx81abcd9 --steps 10", "Zx81abcd9"),
        (
            (
                "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNza\nQyNTUxOQ==\n-----END OPENSSH"
                " PRIVATE KEY-----"
            ),
            "b3BlbnNza",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nMIIEpAIBAAKCAQEA\n",
            "MIIEpAIBAAKCAQEA",
        ),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.abc123", "eyJzdWIiOiIxMjM0NTYifQ"),
        ("node compute-0-7.cluster.internal is down", "compute-0-7"),
        (r'{"log": "line1\nhf_abcdefghijklmnopqrstuvwxyz12345678"}', "hf_abc"),
        (r'{"log": "x\nmkowalski: hi\ngpu-node-17:123 up\n10.1.2.3:29500"}', "10.1.2.3"),
        (r'{"log": "x\nmkowalski: hi"}', "mkowalski"),
        (r'{"log": "x\n/home/alice/y"}', "alice"),
        (r'{"log": "x\tKEY=abcdefgh1234"}', "abcdefgh1234"),
        (r'{"password": "abcd\"efgh1234"}', "efgh1234"),
        ('os.environ["HF_TOKEN"] = "abcdefgh12345678"', "abcdefgh12345678"),
        ("os.getenv('HF_TOKEN', 'abcdefgh12345678')", "abcdefgh12345678"),
        ('token: str = "abcdefgh12345678"', "abcdefgh12345678"),
        ("HF_TOKEN=b'abcdefgh12345678'", "abcdefgh12345678"),
        ('HF_TOKEN = """abcdefgh12345678"""', "abcdefgh12345678"),
        ("run --hf_token abcdefgh12345678", "abcdefgh12345678"),
        ("run --wandb-key abcdefgh12345678 --auth hunter2hunter", "hunter2hunter"),
        ("curl -u bob:hunter2hunter https://x", "hunter2hunter"),
        ("docker login -u bob -p hunter2hunter", "hunter2hunter"),
        ("Cookie: sessionid=abcdefgh12345678; csrftoken=zzzz99998888", "zzzz99998888"),
        ("Authorization: token abcdefgh12345678", "abcdefgh12345678"),
        (
            "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq==",
            "Eby8vdM02",
        ),
        ("https://x.blob/y?sv=2020&sig=abcDEF123%2Bzz%3D", "abcDEF123"),
        ("Server=db;User=sa;Pwd=hunter2hunter;", "hunter2hunter"),
        ("secret_key=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY", "wJalrXUtn"),
        ("machine github.com login bob password hunter2hunter", "hunter2hunter"),
        ("wandb.login(key='0123456789abcdef0123456789abcdef01234567')", "0123456789abcdef"),
        ("ENV HF_TOKEN abcdefgh12345678", "abcdefgh12345678"),
        ("- name: HF_TOKEN\n  value: abcdefgh12345678", "abcdefgh12345678"),
        (
            (
                "[rank0]: -----BEGIN PRIVATE KEY-----\n[rank0]: MIIEvQ\n[rank0]: -----END PRIVATE"
                " KEY-----"
            ),
            "MIIEvQ",
        ),
        ("g++ -I/home/alice/include -o x", "alice"),
        ("/mnt/home/alice/x and /gpfs/users/alice/y", "alice"),
        (r"C:\Users\alice\x", "alice"),
        ("/tmp/torchinductor_mkowalski/xx/cxx.py", "mkowalski"),
        ("/tmp/mkowalski.log job_mkowalski_1", "mkowalski"),
        ("gpu-node-17-ib0 trace-gpu-node-17.log", "gpu-node-17"),
        ("gpu-node-18:12345:12400 [0] NCCL INFO Bootstrap", "gpu-node-18"),
        ("failed to connect to [gpu-node-18.cluster.example.com]:29500", "gpu-node-18"),
        ("export MASTER_ADDR=node01", "node01"),
        ("SLURM_NODELIST=gpu-node-[17-20]", "17-20"),
        ("torch 10.0.3.7 libfabric: 10.0.3.7", "10.0.3.7"),
        ("NCCL INFO eth0:fe80::f816:3eff:fe12:3456%eth0<0>", "f816"),
        ("HWaddr:52:54:00:12:34:56", "52:54"),
        (
            "https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/abcdefghijklmnop",
            "abcdefghijklmnop",
        ),
        ("Al <alice@acme.online>, bob@corp.systems", "alice"),
        ("cache_/home/alice/x", "alice"),
        ("mailto=-alice@acme.example.com", "alice"),
        ("rsync -av x -alice@gpu-node-17:/y", "alice"),
        ("pass=hunter2hunter", "hunter2hunter"),
        ("pass = 'correct-horse-battery'", "horse"),
        ("db_pass = 'remove_noop_ops'", "remove_noop_ops"),
        ('"pass": "Tr0ub4dor"', "Tr0ub4dor"),
        ("train.cluster.internal model.server.corp", "server"),
        ("connect to graph.config.corp:8080", "config"),
        ("oneMKL on 10.2.3.5", "10.2.3.5"),
        ("hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH", "aBcDeFgHiJ"),
    ],
)
def test_private_data_is_hidden(text: str, gone: str) -> None:
    """People, machines, addresses and credentials are hidden in the forms in which logs show
    them.
    """
    assert gone not in Redactor(PRIVATE).redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        (
            'File "/usr/lib/python3.11/site-packages/torch/_inductor/lowering.py", line 12, in'
            " call_function"
        ),
        "torch/_dynamo/symbolic_convert.py:1234 in step",
        "triton_poi_fused_add_mul_relu_0.run(arg0_1, arg1_1, buf0, 4096, stream=stream0)",
        "cpp_fused__softmax_add_index_put_0 = async_compile.cpp_pybinding(['const float*'], '''",
        "KeyError: 'buf38'",
        "git version 8b4a4ba39c1a1b8b7d5c7f1c9f6e3b4e5a6d7c8f",
        "chrf36zexf6tocxzwaw5axb575c4z7tnyhhpqg2jpqix6fn5rwcg.main.cpp:50",
        "nvidia-cublas-cu12==12.8.4.1",
        "[pip3] nvidia-cudnn-cu12 9.10.2.21",
        '"nvidia-nccl-cu13": "2.29.7.1"',
        "cuDNN version: 9.1.0.70",
        "libcudart.so.12.4.127.1",
        "torch==2.13.0+cpu triton==3.7.1",
        "q@k.transpose(-1, -2) + x@w.T",
        "attn = q @ k.mT",
        "@torch.compile(mode='max-autotune')",
        "at::native::add c10d::allreduce_ std::vector<int64_t> a[::2]",
        "12:34:56.789 I1121 compile",
        (
            "num_key_value_heads=8, key=lambda x: x, cache_key=abcd, KeyError, DispatchKey.CPU,"
            " max_tokens=512"
        ),
        "token = tokenizer.encode(text); pad_token_id=0; eos_token=None",
        "torch.max(x), max(1, 2), x.max(-1)",
        "127.0.0.1:29500 0.0.0.0 localhost",
        "sm_90a compute_100a 0x7f3c2a1b4c00",
        "TORCH_LOGS=+dynamo TORCHINDUCTOR_MAX_AUTOTUNE=1 CUDA_VISIBLE_DEVICES=0,1",
        "torch.threading.local() obj.internal self.x1.internal attr0.internal = 3",
        (
            "LD_LIBRARY_PATH=/usr/local/cuda/lib64 TRITON_PTXAS_PATH=/opt/ptxas"
            " CACHE_DUMP_FILE_PATH=/x/y"
        ),
        "PRE_GRAD_PATTERNS['x'] = POSITIONAL_OR_KEYWORD:\n    raise X",
        "torch._inductor.config.post_grad_custom_post_pass = mypass",
        'cls_token: "f32[1, 1, 768][768, 768, 1]cuda:0" = L_self_cls_token',
        "token = sample; size mismatch for cls_token: copying",
        "a basic implementation of bearer authentication failed",
        "nvidia-cublas-cu12 (12.8.4.1), opencv-python 4.10.0.84",
        "CUDA_VISIBLE_DEVICES=0:1:2:3:4:5:6:7 a[1:2:3:4:5:6:7:8]",
        "(q@k.mT), out = x@w.to",
        "NVIDIA A100 80GB, model hf_BigBirdPegasusForCausalLM",
        '"cache_key": "fxgraph1234abcd", CACHE_KEY=short',
        "in pass=group_batch_fusion_1, pass=PostGradBatchLinearFusion",
        "pass = 'remove_noop_ops' --pass reinplace_inplaceable_ops",
        '"pass": "b2b_gemm"',
        "glibc 2.31.0.1, oneMKL 10.2.3.5, gcc-11.4.0.1",
        "ops@aten.mm, y@prims.to",
        "triton.compiler.internal(x), model.config.corp, nn.Module.model.lan",
        "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 hf_T5ForConditionalGenerationLarge",
    ],
)
def test_data_for_the_diagnosis_stays(text: str) -> None:
    """Torch paths, kernel names, hashes, versions and code stay unchanged."""
    assert Redactor(PRIVATE).redact_text(text) == text


def test_a_user_named_like_a_package_hides_only_the_home() -> None:
    """The paths of torch stay when a user is called torch."""
    redactor = Redactor(PrivateNames(users=("torch",), homes=("/home/torch",)))
    assert (
        redactor.redact_text("/home/torch/x.py: torch/_dynamo/utils.py")
        == "<home>/x.py: torch/_dynamo/utils.py"
    )


def test_a_name_that_the_run_recorded_is_hidden_only_by_its_place() -> None:
    """The name of a kernel, a pass or a version may look like a token, an address or a host."""
    names = ["kX9fQ2zLw7Rb4TnV", "10.20.30.40", "graph-pass.internal"]
    text = " ".join(names)
    hidden = Redactor(PRIVATE).redact_text(text)
    assert not any(name in hidden for name in names)
    redactor = Redactor(PRIVATE)
    redactor.know_names(names)
    assert redactor.redact_text(text) == text
    assert names[0] not in redactor.redact_text(f"DB_PASSWORD={names[0]}")
    redactor.know_names(["/home/alice", "alice"])
    assert "alice" not in redactor.redact_text("/home/alice/x")


def test_only_listed_variables_are_recorded() -> None:
    """The environment is limited by an allow-list, and a secret name overrides the list."""
    for name in (
        "TORCH_LOGS",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_PTXAS_PATH",
        "CUDA_VISIBLE_DEVICES",
        "NCCL_DEBUG",
        "OMP_NUM_THREADS",
        "HIP_PATH",
    ):
        assert ALLOWED_VARIABLES.fullmatch(name)
    for name in (
        "HOME",
        "USER",
        "SSH_CONNECTION",
        "HF_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "PATH",
        "MYTORCH_X",
    ):
        assert not ALLOWED_VARIABLES.fullmatch(name)
    for name in (
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "TORCH_HUB_TOKEN",
        "GITHUB_PAT",
        "DB_PASSWORD",
    ):
        assert secret_names.is_secret(name)


@pytest.mark.parametrize(
    "unit",
    ["a.", "-0.1234", "A_", "a@", "1:", "a://", "--a-", "x=", '\\"', "/home/", "::", "secret"],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """Twice the text takes about twice the time: no rule scans a long run of characters
    repeatedly.
    """
    import time

    def cpu_s(size: int) -> float:
        text = "token password key " + unit * (size // len(unit))
        redactor, began = Redactor(PRIVATE), time.process_time()
        redactor.redact_text(text)
        return time.process_time() - began

    cpu_s(1_000)
    # quadratic growth over a factor of 16 would be 256; the minimum excludes the clock's resolution
    assert cpu_s(160_000) < 60 * max(cpu_s(10_000), 0.01)


def test_names_that_json_would_escape() -> None:
    """A name outside ASCII is hidden in JSON texts too, escaped or not."""
    redactor = Redactor(PRIVATE)
    assert "rg" not in redactor.redact_text('{"path": "/home/j\\u00f6rg/x"}')
    assert "jörg" not in redactor.redact_text("/home/jörg/x")


def test_structure_reveals_secrets_that_text_does_not() -> None:
    """The value of a secret key and the word after a secret option are hidden in records and JSON
    documents.
    """
    redactor = Redactor(PRIVATE)
    value = {
        "HF_TOKEN": "plainwords",
        "argv": ["x", "--api-key", "words"],
        "max_tokens": "512",
        "cache": "kept",
    }
    assert redactor.redact_value(value) == {
        "HF_TOKEN": "<token-1>",
        "argv": ["x", "--api-key", "<token-2>"],
        "max_tokens": "512",
        "cache": "kept",
    }
    line = json.dumps(
        {"log": "Enter password: ", "x": 'pa"ss at /home/bob/x\nbob@corp.example.com wrote'}
    )
    assert (
        json.loads(redactor.redact_json_lines(line + "\n{cut")[: -len("\n{cut")])["x"]
        == 'pa"ss at <home>/x\n<email-1> wrote'
    )
    work = '{"pass": "torch/_inductor/fx_passes/post_grad.py:post_grad_passes"}'
    assert redactor.redact_json(work) == work.replace("{", "{\n ").replace("}", "\n}")
    assert json.loads(redactor.redact_json('{"a": [1, "/home/bob"]}')) == {"a": [1, "<home>"]}
    assert "bob" not in redactor.redact_json('{"a": "/home/bob')
