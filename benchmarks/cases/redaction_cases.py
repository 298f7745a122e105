"""Programs that fail in torch.compile and whose code looks private.

Each failure depends on the text that looks private: a repro in which that text is changed passes, or
fails in a different way. Programs of ``_traced`` fail while Dynamo traces them, so their repro is cut
out of their source. Programs of ``_backend`` fail in their own backend, which the repro contains, so
their repro is cut out of a graph.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PrivateLookingProgram:
    """One program, and the variables of the environment that it runs in."""

    looks_private: str
    """The text that looks private, and why."""
    script: str
    environ: dict[str, str] = field(default_factory=dict)


BREAK = "getattr(torch._dynamo, {{True: 'graph_break'}}[{}])()"
"""An expression that breaks the graph where a condition holds. A reducer cannot remove the condition,
because the program passes without it.
"""


def _traced(
    looks_private: str, condition: str, top: str = "", before: str = "", **environ: str
) -> PrivateLookingProgram:
    """Return a program whose graph breaks where ``condition`` holds, and which forbids that."""
    script = (
        "import torch\n"
        + textwrap.dedent(top)
        + "def step(x):\n"
        + textwrap.indent(textwrap.dedent(before), "    ")
    )
    script += f"    {BREAK.format(condition)}\n    return x + 1\n"
    return PrivateLookingProgram(
        looks_private,
        script + "torch.compile(step, backend='eager', fullgraph=True)(torch.randn(4, 8))\n",
        environ,
    )


def _backend(
    looks_private: str, condition: str, top: str = "", body: str = "torch.relu(x)", **environ: str
) -> PrivateLookingProgram:
    """Return a program with its own backend, which raises where ``condition`` holds. The condition may
    use ``targets``, the targets of the nodes of the graph.
    """
    script = "import torch\n" + textwrap.dedent(top) + "def picky(gm, inputs):\n"
    script += f"    targets = [n.target for n in gm.graph.nodes]\n    if {condition}:\n"
    script += "        raise RuntimeError('not supported')\n    return gm.forward\n"
    script += (
        f"def step(x):\n    return {body}\ntorch.compile(step, backend=picky)(torch.randn(4, 8))\n"
    )
    return PrivateLookingProgram(looks_private, script, environ)


_OUTER_LOOP = """
def masked(x):
    mask = torch.full((8, 8), -10000.0)
    mask[torch.arange(8).unsqueeze(0), torch.arange(8).unsqueeze(1)] = 0
    return torch.softmax(x + mask, dim=-1)
torch.compile(masked)(torch.randn(8, 8))
"""
_PASS = """
import torch._inductor.config
def token_pass(graph):
    if any(n.target is torch.ops.aten.erf.default for n in graph.nodes):
        raise RuntimeError("no pass for this")
torch._inductor.config.post_grad_custom_post_pass = token_pass
torch.compile(lambda x: torch.erf(x))(torch.randn(4))
"""
_WILL = """
def will(gm, inputs):
    if any(n.target is torch.relu for n in gm.graph.nodes):
        raise RuntimeError("not supported")
    return gm.forward
torch.compile(lambda x: torch.relu(x), backend=will)(torch.randn(4))
"""
_RAISES = """
def picky(gm, inputs):
    raise NotImplementedError("no kernel")
torch.compile(lambda x: torch.relu(x), backend=picky)(torch.randn(4))
"""
_PASSWORD = """
class Password(torch.nn.Module):
    def forward(self, x):
        getattr(torch._dynamo, {True: "graph_break"}[type(self).__name__ == "Password"])()
        return x
torch.compile(Password(), backend="eager", fullgraph=True)(torch.randn(4))
"""
_GETATTR = """
class Net(torch.nn.Module):
    api_key = ("conv", 3)
    def forward(self, x):
        getattr(torch._dynamo, {"conv": "graph_break"}[getattr(self, "api_key")[0]])()
        return x
torch.compile(Net(), backend="eager", fullgraph=True)(torch.randn(4))
"""
_DOCSTRING = '''
def picky(gm, inputs):
    """Refuse what the maintainers cannot lower; ask kernel.team@lists.example.org, token=conv2d_3x3_relu6."""
    if "maintainers" in picky.__doc__:
        raise RuntimeError("not supported")
    return gm.forward
torch.compile(lambda x: torch.relu(x), backend=picky)(torch.randn(4))
'''
_BASE64 = (
    "import base64, struct\nDATA ="
    " 'AACAPwAAAEAAAEBAAACAQAAAoEAAAMBAAADgQAAAAEEAABBBAAAgQQAAMEEAAEBB'\n"
)
_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

PROGRAMS: dict[str, PrivateLookingProgram] = {
    # names of the program that are also a user, a host or a secret
    "user-alpha": _backend(
        "USER=alpha and the keyword alpha=2",
        "any(2 in n.kwargs.values() for n in gm.graph.nodes)",
        body="torch.add(x, x, alpha=2)",
        USER="alpha",
    ),
    "user-will": PrivateLookingProgram(
        "USER=will and a backend named will", "import torch" + _WILL, {"USER": "will"}
    ),
    "user-adam": _backend(
        "USER=adam and torch.optim.adam",
        "callable(adam.Adam)",
        "from torch.optim import adam\n",
        USER="adam",
    ),
    "user-nodes": _backend(
        "LOGNAME=nodes and graph.nodes", "torch.relu in targets", LOGNAME="nodes"
    ),
    "user-mean": _traced("USER=mean and x.mean", "x.mean(0).dim() == 1", USER="mean"),
    "host-head": _backend(
        "HOSTNAME=head and net.head",
        "Net().head == 7",
        "class Net:\n    head = 7\n",
        HOSTNAME="head",
    ),
    "host-fake": _backend(
        "HOSTNAME=fake and fake_tensor",
        "callable(fake_tensor.FakeTensor)",
        "from torch._subclasses import fake_tensor\n",
        HOSTNAME="fake",
    ),
    "host-worker": _backend(
        "HOSTNAME=worker and worker=3",
        "part(worker=3) == 4",
        "def part(worker):\n    return worker + 1\n",
        HOSTNAME="worker",
    ),
    "host-eager": _traced("HOSTNAME=eager and backend='eager'", "x.dim() == 2", HOSTNAME="eager"),
    "host-mask": PrivateLookingProgram(
        "HOSTNAME=mask, in a failure of Inductor",
        "import torch" + _OUTER_LOOP,
        {"HOSTNAME": "mask"},
    ),
    "secret-linear": _backend(
        "API_KEY=linear and F.linear",
        "torch.nn.functional.linear in targets",
        body="torch.nn.functional.linear(x, x)",
        API_KEY="linear",
    ),
    "secret-forward": _backend(
        "API_KEY=forward and gm.forward", "torch.relu in targets and gm.forward", API_KEY="forward"
    ),
    "secret-softmax": PrivateLookingProgram(
        "APP_SECRET=softmax, in a failure of Inductor",
        "import torch" + _OUTER_LOOP,
        {"APP_SECRET": "softmax"},
    ),
    "secret-exception": PrivateLookingProgram(
        "DB_PASSWORD=NotImplementedError, which is raised",
        "import torch" + _RAISES,
        {"DB_PASSWORD": "NotImplementedError"},
    ),
    "secret-sigmoid": _backend(
        "SECRET_TOKEN=sigmoid and getattr(torch, 'sigmoid')",
        "getattr(torch, 'sigmoid') in targets",
        body="torch.sigmoid(x)",
        SECRET_TOKEN="sigmoid",
    ),
    # code that reads like an address or a token
    "matmul": _backend(
        "x@layer.weight",
        "score(torch.ones(2, 8)).shape == (2, 3)",
        "class layer:\n    weight = torch.ones(8, 3)\ndef score(x):\n    return x@layer.weight\n",
    ),
    "matmul-dotted": _traced(
        "batch.state@encoder.weight",
        "repr((batch.state@encoder.weight).shape[1] + 4) == '7'",
        "from types import SimpleNamespace\nbatch, encoder = SimpleNamespace(state=torch.ones(2,"
        " 8)), SimpleNamespace(weight=torch.ones(8, 3))\n",
    ),
    "prefix-name": _backend(
        "a function whose name begins like a token",
        "hf_AttentionHeadProjectionWeightsForAllLayers() == 3",
        "def hf_AttentionHeadProjectionWeightsForAllLayers():\n    return 3\n",
    ),
    # names that sound like secrets
    "key-constant": _backend(
        "KEY = 'conv2d_3x3'", "KEY.startswith('conv2d')", "KEY = 'conv2d_3x3'\n"
    ),
    "password-item": _backend(
        "password = features['secret']",
        "password_of({'secret': [6, 2]}) == [6, 2]",
        "def password_of(features):\n    password = features['secret']\n    return password\n",
    ),
    "dict-keys": _backend(
        "the keys 'password' and 'token'",
        "batch['password'](-2) + batch['token'] == 4098",
        "batch = {'password': abs, 'token': 4096}\n",
    ),
    "attribute-token_emb": _backend(
        "self.token_emb = make_token(key=8)",
        "Net().token_emb == 8",
        "def make_token(key):\n    return key\nclass Net:\n    def __init__(self):\n       "
        " self.token_emb = make_token(key=8)\n",
    ),
    "attribute-secret": _backend(
        "self.secret, self.auth = parts",
        "len(Net(['query', 'value_proj8']).secret) == 5",
        "class Net:\n    def __init__(self, parts):\n        self.secret, self.auth = parts\n",
    ),
    "class-password": PrivateLookingProgram("class Password", "import torch" + _PASSWORD),
    "getattr-api_key": PrivateLookingProgram("getattr(self, 'api_key')", "import torch" + _GETATTR),
    "keyword-token": _backend(
        "pick(token=names[1])",
        "pick(token=names[1]) == 'stage4'",
        "names = ['stem', 'stage4_block2']\ndef pick(token):\n    return token.split('_')[0]\n",
    ),
    "fstring-token": _backend(
        "f'token={name}'",
        "label('conv3x3')[6:] == 'conv3x3'",
        "def label(name):\n    return f'token={name}'\n",
    ),
    "pass-settings": PrivateLookingProgram(
        "post_grad_custom_post_pass = token_pass", "import torch" + _PASS
    ),
    "config-lines": _backend(
        "lines of a configuration in a string",
        "options()['token'] == '4096'",
        "TEXT = 'layers: 2\\ntoken: 4096\\nkey: bfloat16\\n'\ndef options():\n    return"
        " dict(row.split(': ') for row in TEXT.splitlines())\n",
    ),
    "flags": _backend(
        "'--token-dim 4096 --key-dim 3200'",
        "FLAGS.split()[3] == '3200'",
        "FLAGS = '--token-dim 4096 --key-dim 3200'\n",
    ),
    "environ-token": _backend(
        "os.environ.get('HF_TOKEN', '')", "os.environ.get('HF_TOKEN', '') == ''", "import os\n"
    ),
    "docstring": PrivateLookingProgram("a docstring with an address", "import torch" + _DOCSTRING),
    # values that look like something else
    "version": _backend(
        "{'nvidia-cublas': '12.8.4.1'}",
        "PINS['nvidia-cublas'].split('.')[0] == '12'",
        "PINS = {'nvidia-cublas': '12.8.4.1'}\n",
    ),
    "dotted-numbers": _backend(
        "KERNEL = '3.3.1.1'", "KERNEL.split('.')[1] == '3'", "KERNEL = '3.3.1.1'\n"
    ),
    "digest": _backend("a hash", "DIGEST[:8] == '9f86d081'", f"DIGEST = '{_HASH}'\n"),
    "base64": _backend(
        "numbers in base64", "struct.unpack('<12f', base64.b64decode(DATA))[0] == 1.0", _BASE64
    ),
    "card-number": _backend(
        "SEED = 4111111111111111", "SEED % 10 == 1", "SEED = 4111111111111111\n"
    ),
    "stages": _backend(
        "'00:01:02:03:04:05'", "STAGES.split(':')[1] == '01'", "STAGES = '00:01:02:03:04:05'\n"
    ),
    "user-at-host": _traced("'user@host', which is split", "'user@host'.split('@')[1] == 'host'"),
    "home-path": _backend(
        "a path below the home folder",
        "os.path.basename(urllib.parse.urlsplit(PATH).path) == 'tiny.pt'",
        "import os, urllib.parse\nPATH = 'file:///home/sam/models/tiny.pt'\n",
        USER="sam",
    ),
    # private text whose form matters
    "address-key": _backend(
        "an address is the key of a dictionary, and is parsed",
        "ipaddress.ip_address(next(iter(RANKS))).version == 4 and RANKS['10.20.30.40'] == 2",
        "import ipaddress\nRANKS = {'10.20.30.40': 2}\n",
    ),
    "address-form": _backend(
        "an address is compared with a pattern",
        "re.fullmatch(r'(\\d+\\.){3}\\d+', ADDRESS)",
        "import re\nADDRESS = '10.20.30.40'\n",
    ),
    "version-parsed": _traced(
        "a version reads like an address, and is parsed",
        "tuple(int(part) for part in RELEASE.split('.')) > (2, 0)",
        "RELEASE = '10.2.3.40'\n",
    ),
    "mail-parts": _traced(
        "an e-mail address is split",
        "len(MAIL.partition('@')[2].split('.')) == 2",
        "MAIL = 'sam@acme.com'\n",
    ),
    "token-length": _backend(
        "the length and the letters of a token",
        "len(SIGNED) == 37 and SIGNED[3:].isalpha() and SIGNED.startswith('hf_')",
        "SIGNED = 'hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH'\n",
    ),
    "password-digits": _backend(
        "a password of digits",
        "int(LOGIN['password']) % 2 in (0, 1)",
        "LOGIN = {'password': '83911472'}\n",
    ),
    "home-parts": _traced(
        "the parts of a home folder",
        "PATH.split('/')[1] == 'home' and len(PATH.split('/')) == 4",
        "PATH = '/home/sam/data'\n",
        USER="sam",
    ),
}
