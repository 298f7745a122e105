"""Make the picture of report.html for the README: ``python -m tests.support.report_image``.

It captures a sample with the installed torch, and takes the top of its report with Chromium. With
the path of a report as its argument, it takes that report instead.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.browser import Browser
from tests.support.environments import ROOT

IMAGE = ROOT / "docs" / "images" / "report.png"
TARGET = "samples/exception_inductor.py:make"
WIDTH, MAX_HEIGHT = 1000, 1600
MAX_BYTES = 250_000


def capture_sample(folder: Path) -> Path:
    """Capture the sample, and return its report."""
    words = ("capture", "--json", TARGET, "--output-dir", str(folder))
    command = [sys.executable, "-m", "reprokit", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    return Path(json.loads(done.stdout)["report"])


def take_image(report: Path, image: Path) -> None:
    """Write the top of a report as a PNG: all before its timeline."""
    with Browser("chromium").open_tab() as tab:
        tab.open_page(report, WIDTH)
        top = tab.evaluate("document.getElementById('timeline').getBoundingClientRect().top")
        data = tab.screenshot(image, min(round(top) - 16, MAX_HEIGHT))
    assert len(data) <= MAX_BYTES, f"{image} has {len(data)} bytes; make MAX_HEIGHT smaller"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else capture_sample(Path(folder))
        take_image(chosen.resolve(), IMAGE)
