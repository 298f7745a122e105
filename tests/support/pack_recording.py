"""Call reprokit with the answers that the interpreter of a recording gave about its environment.

Run as ``python -m tests.support.pack_recording pack --json RUN_DIR``.
"""

from __future__ import annotations

from reprokit.cli import main as command_line
from reprokit.host.environment import machine_facts
from tests.support.environments import RECORDED

COMPILER = {"g++": "g++ (Debian 12.2.0-14) 12.2.0"}
"""That of the machine of the recordings, which has no GPU."""

if __name__ == "__main__":
    inventory = (RECORDED / "inventory.json").read_text()
    machine_facts.cached_answer = lambda *_: inventory
    machine_facts.MACHINE_PROBES |= {"compiler": lambda: COMPILER, "gpus": lambda: {"gpus": []}}
    command_line.main()
