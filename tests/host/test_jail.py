"""The jail of a stranger's program: what it can see, change and reach."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.host.scrub import jail
from tests.support.system_packages import require_programs

LOOK = """
WATCHED = ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
           "/sys/devices/system/cpu", "/usr", "/etc/passwd"]
import json, os, socket, sys
def outcome(work):
    try:
        return str(work() is not None)
    except OSError as problem:
        return type(problem).__name__
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
open("written", "w").close()
print(json.dumps({
    "here": os.getcwd(),
    "etc": sorted(os.listdir("/etc")),
    "home": sorted(os.listdir(os.path.expanduser("~"))),
    "variables": sorted(os.environ),
    "file": os.path.exists(sys.argv[1]),
    "network": outcome(lambda: socket.create_connection(("192.0.2.1", 80), 2)),
    "loopback": outcome(lambda: socket.create_connection(server.getsockname(), 2)),
    "system": outcome(lambda: open("/usr/written", "w")),
    "python": outcome(lambda: open(sys.prefix + "/written", "w")),
    "mount": os.system("mount -t tmpfs tmpfs /usr 2>/dev/null") != 0,
    "writable": [name for name in WATCHED if os.access(name, os.W_OK)],
    "processes": [name for name in os.listdir("/proc") if name.isdecimal()],
}))
"""


@pytest.mark.bubblewrap
@pytest.mark.parametrize("kind", [jail.BUBBLEWRAP, jail.NAMESPACES])
def test_a_jail_hides_the_user_and_the_network(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """The program sees the system and its own folder; it reaches only itself, and can change only
    its folder.
    """
    if kind == jail.BUBBLEWRAP:
        require_programs(pytestconfig, "bubblewrap", ("bwrap",), ("bubblewrap",))
    folder = tmp_path / "inside"
    folder.mkdir()
    secret = tmp_path / "secret"
    secret.touch()
    monkeypatch.setenv("TOKEN", "secret")
    command = jail.Jail(kind).command(
        [sys.executable, "-c", LOOK, str(secret)], folder, variables={"TORCH_X": "1"}
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and kind == jail.NAMESPACES and "Operation not permitted" in done.stderr:
        pytest.skip("this machine forbids user namespaces")
    seen = json.loads(done.stdout)
    assert seen["here"] == str(folder) and (folder / "written").exists()
    assert "shadow" not in seen["etc"] and "ld.so.cache" in seen["etc"]
    assert not seen["file"] and "TOKEN" not in seen["variables"] and "TORCH_X" in seen["variables"]
    assert "inside" not in seen["home"]
    assert (seen["network"], seen["loopback"]) == ("OSError", "True")
    assert seen["system"] == seen["python"] == "OSError"
    assert seen["writable"] == [] and {path.name for path in folder.iterdir()} == {"written"}
    assert seen["mount"] and len(seen["processes"]) <= 4


def test_a_machine_without_a_jail_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bubblewrap and without namespaces, there is none, and the reason names both."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = jail.find_jail(tmp_path)
    assert not found.kind
    assert "bwrap is not installed" in found.why_not
    assert "unshare is not installed" in found.why_not
