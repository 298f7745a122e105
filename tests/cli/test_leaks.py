"""Secrets that are planted in a real run are in no output: not in the tarball, its name, the issue
or the terminal.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

from reprokit.core.redaction.rules import token_formats
from tests.support import planted_secrets

PROGRAM = """
import json, logging, os, subprocess, sys
secrets = json.loads(os.environ.pop("PLANTED"))
logging.basicConfig(level=logging.INFO)
for number, (name, text) in enumerate(secrets):
    if number % 4 == 0:
        print(f"\\x1b[32mINFO\\x1b[0m {text}")
    elif number % 4 == 1:
        logging.info("%r", {"message": text})
    elif number % 4 == 2:
        subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write(sys.argv[1] + chr(10))", json.dumps({"m": text})])
    else:
        sys.stderr.write(repr(text.encode()) + "\\n")
raise RuntimeError(f"cannot log in with {secrets[0][1]}")
"""


def test_planted_secrets_do_not_leave(tmp_path: Path) -> None:
    """Tokens of every row are in stdout, stderr, logs, children, argv, an exception, the script's
    name and a password.
    """
    chance = random.Random(19)
    rows = [
        (shape.name, *planted_secrets.make_token(shape, chance)) for shape in token_formats.FORMATS
    ]
    argument = planted_secrets.make_password(chance)
    named = "ghp_" + "".join(chance.choice(planted_secrets.LETTERS) for _ in range(36))
    script = tmp_path / f"run_{named}.py"
    script.write_text(PROGRAM)
    out = tmp_path / "out"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "reprokit",
            "capture",
            "--json",
            "--no-trace",
            "--no-minimize",
            "--output-dir",
            str(out),
            "--",
            sys.executable,
            str(script),
            "--db-password",
            argument,
        ],
        env={**os.environ, "PLANTED": json.dumps([(name, text) for name, text, _ in rows])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    result = json.loads(done.stdout)
    pack = Path(result["pack"])
    with tarfile.open(pack) as tar:
        files = {
            m.name: tar.extractfile(m).read().decode("utf-8", "replace")
            for m in tar.getmembers()
            if m.isfile()
        }  # type: ignore[union-attr]
    assert "logs/stderr.txt" in files and "RuntimeError" in files["logs/stderr.txt"]
    leaves = {
        **files,
        "names": "\n".join(files),
        "tarball": pack.name,
        "title": result["signature"]["title"],
        "verdict": result["verdict"]["reason"],
    }
    secrets = [
        *((name, secret) for name, _, secret in rows),
        ("argument", argument),
        ("file name", named),
    ]
    leaked = [
        (name, where)
        for name, secret in secrets
        for where, text in leaves.items()
        if planted_secrets.shows_secret(text, secret)
    ]
    assert not leaked
