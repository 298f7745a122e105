"""A script carries the command line that it was run with."""

from __future__ import annotations

from reprokit.core.reduce.project import entry_text


def test_a_script_carries_its_command_line() -> None:
    """The arguments are set in the program, after the statements that must come first."""
    text = entry_text.with_arguments(
        "from __future__ import annotations\nimport torch\n", ["--lr", "1"]
    )
    first = [
        "from __future__ import annotations",
        "import sys",
        "sys.argv = ['repro.py', '--lr', '1']",
    ]
    assert text.splitlines()[:3] == first
    assert entry_text.with_arguments("import torch\n", []) == "import torch\n"
