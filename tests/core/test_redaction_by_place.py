"""Private text that its place shows, in lines that a reviewer wrote without reading the rules."""

from __future__ import annotations

import pytest

from reprokit.core.redaction.redactor import Redactor

AWS = "68ed4a0f" * 8
PRIVATE = [
    ("python t.py --password \\\n    wrapPass23 --lr 3", "wrapPass23"),
    ("sshpass -p 'two words here' scp a b", "words here"),
    ("docker login -u acme -p 'my pass word' r.io", "my pass word"),
    ('storage="postgresql://opt:p@ss/w0rd-x@h/opt" is unreachable', "w0rd-x"),
    ('parser.add_argument("--password", default="argDefault9")', "argDefault9"),
    ("@click.option('--hf-token', type=str, default='argDefault9')", "argDefault9"),
    ("kind: Secret\ndata:\n  db: dG93ZXJvZnBvd2VyLTk=", "dG93ZXJvZnBvd2VyLTk"),
    ("X_TOKEN=hf_abcdEFGHijklMNOPqrstUVWXyz12345678-tailtail99", "tailtail99"),
    ("USER=mkowalska", "mkowalska"),
    ("GIT_AUTHOR_NAME=Maria Kowalska", "Kowalska"),
    ("COMPUTERNAME=DESKTOP-7GH2K1A", "DESKTOP"),
    ("(base) [hschmidt@pegasus-gpu042 proj]$ torchrun x.py", "hschmidt"),
    ("(base) [hschmidt@pegasus-gpu042 proj]$ torchrun x.py", "pegasus"),
    ("/tmp/torchinductor_mkowalska/ab/cabc.py", "mkowalska"),
    ("/scratch/jvandermeer/x", "jvandermeer"),
    ("/lustre/fsw/portfolios/coreai/users/jvandermeer/x", "jvandermeer"),
    ("-rw-r--r-- 1 hschmidt users 1024 Jun 11 10:00 train.py", "hschmidt"),
    ("uid=1003(hschmidt) gid=1003(users)", "hschmidt"),
    ("default login tnakamura password x", "tnakamura"),
    ("http://grafana.acme.lan/api", "acme"),
    ("resolve nas01.home.arpa: timeout", "nas01"),
    ("HWaddr A4-BB-6D-1F-02-9C", "6D-1F"),
    ("SLURM_JOB_ACCOUNT=llm-stealthproj", "stealthproj"),
    (f"X-Amz-Signature: {AWS}", AWS),
    ("box = Fernet('mFn16McuLp4AJ4C__lDDe5A6DDdNKL0HhuCZ6GF8zpY=')", "LDDe5A6DDdNKL0"),
    ("jwt.encode(claims, 'ZxbK~VSbhXxvybK9zvVX', algorithm='HS256')", "VSbhXxvybK9zvVX"),
    ('jwt.decode(token, key="KFju*ti48yTmWu9cr6Jq")', "ti48yTmWu9cr6Jq"),
    ("hmac.new(b'piId*mBrf3u2nebAjmwb', message, 'sha256')", "mBrf3u2nebAjmwb"),
    ("hashlib.pbkdf2_hmac('sha256', b'sJtw!24ZUDWyFFtj', b'salt', 9)", "24ZUDWyFFtj"),
    ("ldap.simple_bind_s('cn=admin,dc=x', '2Atr!0VvxpfV6p')", "0VvxpfV6p"),
    ("fs.azure.account.key.acme.dfs.core.windows.net=b6zKk8NkeM8coMh9OEPu", "NkeM8coMh9"),
    (f"authorized_keys: ssh-rsa AAAAB3NzaC1yc2E{'x9' * 60} x", "x9x9"),
]
HARMLESS = [
    "hmac.new(key, message, 'sha256').hexdigest()",
    "jwt.decode(token, key, algorithms=['HS256'])",
    "/tmp/torchinductor_root/ab/cabc.py",
    "USER=root",
    "/scratch/data/imagenet",
    "/fsx/models/llama",
    "store key: default_pg/0//cuda//0/ncclUniqueId",
    "{'pass': 'reinplace', 'time_s': 0.01}",
    "parser.add_argument('--image-token', default='<image>')",
    "uuid 123e4567-e89b-12d3-a456-426614174000",
    "module.config.internal",
    "kind: Pod\ndata:\n  epochs: 3",
]


@pytest.mark.parametrize(("line", "secret"), PRIVATE)
def test_private_text_is_hidden(line: str, secret: str) -> None:
    assert secret not in Redactor().redact_text(line)


@pytest.mark.parametrize("line", HARMLESS)
def test_the_same_words_elsewhere_stay(line: str) -> None:
    assert Redactor().redact_text(line) == line
