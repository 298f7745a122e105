"""Measure how many harmless lines of logs redaction changes.

python -m benchmarks run harmless_lines

The lines are those of benchmarks/data/harmless_lines.txt. They hold nothing private, except that a
user, a host or a secret of the environment may be an English word that a line has too. The progress
shows each line that changes. The last two rows are the same lines as one text, and versions of
packages that read like addresses, in JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ...harness import DATA, show_progress
from ...measurement import Measurement
from ...redaction_environments import redactor_in
from ...results import Column, Row

LINES = DATA / "harmless_lines.txt"
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "no English word": {},
    "USER=alpha, LOGNAME=will": {"USER": "alpha", "LOGNAME": "will"},
    "HOSTNAME=head, MASTER_ADDR=worker": {"HOSTNAME": "head", "MASTER_ADDR": "worker"},
    "API_KEY=linear, APP_SECRET=forward": {"API_KEY": "linear", "APP_SECRET": "forward"},
    "USER=adam, HOSTNAME=fake, DB_PASSWORD=softmax": {
        "USER": "adam",
        "HOSTNAME": "fake",
        "DB_PASSWORD": "softmax",
    },
}
VERSIONS = {
    "nvidia-cublas": "12.8.4.1",
    "nvidia-cudnn-cu12": "9.10.2.21",
    "nvidia-cufft-cu12": "11.3.3.83",
    "nvidia-curand-cu12": "10.3.9.90",
    "nvidia-cusolver-cu12": "11.7.3.90",
    "nvidia-cusparse-cu12": "12.5.8.93",
    "tensorrt": "10.13.3.9",
}
"""Packages whose versions read like addresses, as environment.json has them."""
COLUMNS = (
    Column("texts", "texts"),
    Column("number", "number"),
    Column("changed", "changed"),
)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each environment, one for the lines as one text, and one for the versions."""
    lines = LINES.read_text().splitlines()
    for name, variables in ENVIRONMENTS.items():
        redactor = redactor_in({"USER": "sam", "HOSTNAME": "box17", **variables})
        changed = {line: new for line in lines if (new := redactor.redact_text(line)) != line}
        for line, new in changed.items():
            show_progress(f"{name}:\n- {line.strip()}\n+ {new.strip()}")
        yield {"texts": f"lines, {name}", "number": len(lines), "changed": len(changed)}
    redactor = redactor_in({"USER": "sam", "HOSTNAME": "box17"})
    new_lines = redactor.redact_text("\n".join(lines)).split("\n")
    yield {
        "texts": "lines, as one text",
        "number": len(lines),
        "changed": sum(new != line for new, line in zip(new_lines, lines, strict=True)),
    }
    packages = redactor.redact_value({"packages": VERSIONS})["packages"]
    yield {
        "texts": "versions of packages",
        "number": len(VERSIONS),
        "changed": sum(packages[name] != version for name, version in VERSIONS.items()),
    }


MEASUREMENT = Measurement(COLUMNS, measure_rows)
