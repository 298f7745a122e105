"""A program that is run again changes nothing outside: programs that try, run isolated."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.host.probe import isolated_runs

PROGRAMS = {
    "write": "open('kept.txt', 'w').write('x')",
    "append": "open('kept.txt', 'a').write('x')",
    "new file": "open('new.txt', 'w').write('x')",
    "write in place": "f = open('kept.txt', 'r+b'); f.write(b'x'); f.flush(); os.fsync(f.fileno())",
    "write by path": "Path(FOLDER, 'kept.txt').write_text('x')",
    "memory map": "import mmap\nf = open('kept.txt', 'r+b')\nm = mmap.mmap(f.fileno(), 0)\nm[0:1] = b'x'\nm.flush()",
    "truncate": "os.truncate('kept.txt', 0)",
    "delete": "os.remove('kept.txt')",
    "delete a folder": "import shutil; shutil.rmtree(FOLDER + '/below')",
    "delete all": "import shutil\nfor name in os.listdir('.'): shutil.rmtree(name, ignore_errors=True)\nfor name in os.listdir('.'): os.remove(name)",
    "rename": "os.rename('kept.txt', 'other.txt')",
    "rename a folder": "os.rename('below', 'above')",
    "replace": "open('t', 'w').write('x'); os.replace('t', 'kept.txt')",
    "hard link": "os.link('kept.txt', 'linked.txt')",
    "symbolic link": "os.symlink('kept.txt', 'linked.txt')",
    "write through a link": "os.symlink(FOLDER + '/kept.txt', '/tmp/through'); open('/tmp/through', 'w').write('x')",
    "new folder": "os.makedirs('a/b/c')",
    "mode": "os.chmod('kept.txt', 0o000)",
    "times": "os.utime('kept.txt', (0, 0))",
    "attributes": "os.setxattr('kept.txt', 'user.x', b'x')",
    "special file": "os.mkfifo('pipe')",
    "temporary folder": "import tempfile; open(TEMPORARY + '/isolation-test', 'w').write('x')",
    "home folder": "open(os.path.expanduser('~/.isolation-test'), 'w').write('x')",
    "variable folder": "open('/var/tmp/isolation-test', 'w').write('x')",
    "shared memory": "open('/dev/shm/isolation-test', 'w').write('x')",
    "shared memory segment": "from multiprocessing import shared_memory; shared_memory.SharedMemory('isolation-test', True, 16)",
    "system folder": "open('/usr/isolation-test', 'w').write('x')",
    "kernel setting": "open('/proc/sys/kernel/core_pattern', 'w').write('/tmp/x')",
    "database": "import sqlite3\nd = sqlite3.connect('data.db')\nd.execute('create table t (x)')\nd.commit()",
    "working directory elsewhere": "os.chdir('/'); open(FOLDER + '/kept.txt', 'w').write('x')",
    "connect": "import socket; socket.create_connection(('127.0.0.1', PORT), 2)",
    "connect by IPv6": "import socket; socket.create_connection(('::1', PORT), 2)",
    "abstract socket": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0isolation-test')",
    "shell": "os.system('echo x > kept.txt; rm -rf below')",
    "child process": "import subprocess; subprocess.run(['sh', '-c', 'echo x > kept.txt'])",
    "fork": "pid = os.fork()\nif pid == 0: open('kept.txt', 'w').write('x')\nelse: os.waitpid(pid, 0)",
    "daemon": "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(0.2)\n        open('kept.txt', 'w').write('x')\n        open(FOLDER + '/daemon.txt', 'w').write('x')\n    os._exit(0)\ntime.sleep(0.5)",
    "thread": "import threading\nt = threading.Thread(target=lambda: open('kept.txt', 'w').write('x'))\nt.start(); t.join()",
    "at exit": "import atexit; atexit.register(lambda: open(FOLDER + '/kept.txt', 'w').write('x'))",
    "mount": "os.system('mount -o remount,rw / ; umount -l ' + FOLDER); open(FOLDER + '/kept.txt', 'w').write('x')",
    "root of a parent": "os.system(f'nsenter -t {os.getppid()} -m sh -c \"echo x > {FOLDER}/kept.txt\"')",
    "descriptor": "open('/proc/self/fd/0', 'w').write('x')",
    "handle": (
        "import ctypes, struct\nc = ctypes.CDLL(None); mount = ctypes.c_int()\n"
        "handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128))\n"
        "path = os.fsencode(FOLDER + '/kept.txt')\n"
        "c.name_to_handle_at(-100, path, handle, ctypes.byref(mount), 0)\n"
        "os.write(c.open_by_handle_at(os.open('/', 0), handle, os.O_RDWR), b'x')\n"
    ),
    "through proc": "open(f'/proc/{os.getppid()}/root{FOLDER}/kept.txt', 'w').write('x')",
}  # fmt: skip
"""What a program does; it begins with the imports and names of ``START``."""
START = "import os, time\nfrom pathlib import Path\nFOLDER, TEMPORARY, PORT = {!r}, {!r}, {}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of a user, whose name has a space, a quote, a colon and an umlaut."""
    folder = tmp_path / "it's my, prö:ject"
    (folder / "below").mkdir(parents=True)
    (folder / "kept.txt").write_text("the text of the user")
    (folder / "below" / "data.txt").write_text("data")
    return folder


def state_of(folder: Path) -> list[tuple[str, int, int, bytes]]:
    """Return the files of a folder with their modes, times and contents."""
    return [
        (
            str(path.relative_to(folder)),
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    ]


def outside() -> list[bool]:
    """Return whether each file exists that a program may leave outside its folder."""
    places = ("/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "/usr")
    return [Path(place, name).exists() for place in places for name in ("isolation-test", ".isolation-test", "through")]  # fmt: skip


def run_isolated(text: str, cwd: Path, own: Path) -> subprocess.CompletedProcess[str]:
    """Run a program isolated, in a working directory."""
    words = [sys.executable, "-I", "-c", text]
    command = isolated_runs.isolated_command(words, Isolation(cwd=str(cwd)), own)
    file = cwd / "kept.txt"
    with (file if file.exists() else Path(os.devnull)).open() as stdin:
        return subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=60)


def test_programs_change_nothing_outside(project: Path, tmp_path: Path) -> None:
    """Programs that write, delete, rename, connect, fork or daemonise leave the machine as it is.

    What fails with an error there, and what works and vanishes, does not matter.
    """
    own = tmp_path / "own"
    own.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as named:
        named.bind("\0isolation-test")
        named.listen()
        server.settimeout(0.01)
        named.settimeout(0.01)
        start = START.format(str(project), "/tmp", server.getsockname()[1])
        before = state_of(project), outside()
        changed = []
        for name, text in PROGRAMS.items():
            run_isolated(start + text, project, own)
            if (state_of(project), outside()) != before:
                changed.append(name)
                before = state_of(project), outside()
        for one in (server, named):
            with pytest.raises(TimeoutError):
                one.accept()
    assert not changed
    assert len(PROGRAMS) >= 40


def test_a_program_sees_its_own_changes(project: Path, tmp_path: Path) -> None:
    """It reads the user's files, writes beside them, and finds what it wrote; only its run's folder
    keeps anything.
    """
    own = tmp_path / "own"
    own.mkdir()
    text = (
        "import os, json, socket\n"
        "read = open('kept.txt').read(), open('below/data.txt').read()\n"
        "open('kept.txt', 'w').write('new'); os.remove('below/data.txt'); os.mkdir('out')\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname(), 2)\n"
        f"open({str(own / 'result')!r}, 'w').write('kept')\n"
        "print(json.dumps([read, open('kept.txt').read(), os.listdir('below'),"
        " os.path.isdir('out'), os.getcwd()]))\n"
    )
    before = state_of(project)
    done = run_isolated(text, project, own)
    assert done.returncode == 0, done.stderr
    read = ["the text of the user", "data"]
    assert json.loads(done.stdout) == [read, "new", [], True, str(project)]
    assert state_of(project) == before
    assert (own / "result").read_text() == "kept"


def test_a_program_writes_beside_the_folder_of_its_run(project: Path) -> None:
    """The folder of the run may be below the working directory, as by default."""
    own = project / "reprokit-runs" / "run-001"
    own.mkdir(parents=True)
    before = state_of(project)
    text = f"open('new.txt', 'w').write('x'); open({str(own / 'kept')!r}, 'w').write('x')"
    done = run_isolated(text, project, own)
    assert done.returncode == 0, done.stderr
    assert (own / "kept").read_text() == "x" and not (project / "new.txt").exists()
    (own / "kept").unlink()
    assert [row[0] for row in state_of(project)] == [row[0] for row in before]


def test_a_file_system_below_a_folder_stays_visible(project: Path, tmp_path: Path) -> None:
    """An overlay would hide it; the program reads it, and does not write there."""
    own = tmp_path / "own"
    own.mkdir()
    text = "print(open('below/mounted.txt').read()); open('below/mounted.txt', 'w')"
    words = [sys.executable, "-I", "-c", text]
    command = isolated_runs.isolated_command(words, Isolation(cwd=str(project)), own)
    mount = 'mount -t tmpfs none "$1"; echo data > "$1/mounted.txt"; shift; exec "$@"'
    start = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    done = subprocess.run(
        [*start, str(project / "below"), *command], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "data\n\n", done.stderr
    assert "Read-only file system" in done.stderr or "Permission denied" in done.stderr


def test_the_user_of_a_program_stays_the_same(tmp_path: Path) -> None:
    """Its user, group, limits of files and variables are those of the caller."""
    text = "import os, resource; print(os.getuid(), os.getgid(), resource.getrlimit(resource.RLIMIT_NOFILE), os.environ['PATH'])"  # fmt: skip
    plain = subprocess.run(
        [sys.executable, "-I", "-c", text], capture_output=True, text=True, check=True
    )
    assert run_isolated(text, tmp_path, tmp_path).stdout == plain.stdout


def test_a_program_alone_has_no_home_folder_of_the_user(tmp_path: Path) -> None:
    """Its HOME is its own folder, in a proof and in the watched run that it is compared with."""
    spec = isolated_runs.alone(Isolation(cwd="/", path="/x.py"), tmp_path)
    text = "import os; print(os.path.expanduser('~'), os.getcwd(), sep='\\n')"
    command = isolated_runs.isolated_command([sys.executable, "-I", "-c", text], spec, tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(tmp_path)] * 2


def test_memory_for_writes_is_limited(project: Path, tmp_path: Path) -> None:
    """A program that fills the disk gets an error, and the disk stays as it is."""
    own = tmp_path / "own"
    own.mkdir()
    text = "import os; os.posix_fallocate(os.open('large', os.O_CREAT | os.O_RDWR), 0, 3 << 30)"
    before = state_of(project)
    done = run_isolated(text, project, own)
    assert "No space left on device" in done.stderr or "File too large" in done.stderr
    assert state_of(project) == before


FORBIDDEN = (
    "echo 0 > /proc/sys/user/max_user_namespaces"
    ' && exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
)
"""A script that runs its arguments where no namespace can be made, as in a container."""


def without_namespaces(words: list[str]) -> list[str]:
    return ["unshare", "--user", "--map-root-user", "sh", "-c", FORBIDDEN, "sh", *words]


JAILED = ["unshare", "--user", "--map-root-user", "setpriv", "--bounding-set=-all", "--inh-caps=-all"]  # fmt: skip


def test_root_of_a_jail_is_isolated(project: Path, tmp_path: Path) -> None:
    """Root without capabilities can make namespaces, and would be nobody in them."""
    own = tmp_path / "own"
    own.mkdir()
    text = f"import os; open({str(own / 'kept')!r}, 'w').write(str(os.getuid())); open('kept.txt', 'w')"
    words = [sys.executable, "-I", "-c", text]
    command = isolated_runs.isolated_command(words, Isolation(cwd=str(project)), own)
    done = subprocess.run([*JAILED, *command], capture_output=True, text=True, timeout=60)
    assert "Permission denied: 'kept.txt'" in done.stderr
    assert (own / "kept").read_text() == "0"


def test_a_container_denies_what_it_cannot_hide(project: Path, tmp_path: Path) -> None:
    """Where no namespaces can be made, writing and connecting outside is an error."""
    own = tmp_path / "own"
    own.mkdir()
    not_denied = {"mode", "times", "attributes"}  # Landlock has no rights for them
    before, changed = (state_of(project), outside()), []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.01)
        start = START.format(str(project), "/tmp", server.getsockname()[1])
        for name in sorted(PROGRAMS.keys() - not_denied):
            words = [sys.executable, "-I", "-c", start + PROGRAMS[name]]
            command = isolated_runs.isolated_command(words, Isolation(cwd=str(project)), own)
            subprocess.run(without_namespaces(command), capture_output=True, timeout=60)
            changed += [name] if (state_of(project), outside()) != before else []
        with pytest.raises(TimeoutError):
            server.accept()
    assert not changed
    text = (
        "import tempfile; tempfile.TemporaryFile().write(b'x'); open('/dev/null', 'w').write('x')\n"
        f"open({str(own / 'kept')!r}, 'w').write('x'); print(open('kept.txt').read())"
    )
    words = [sys.executable, "-I", "-c", text]
    command = isolated_runs.isolated_command(words, Isolation(cwd=str(project)), own)
    done = subprocess.run(without_namespaces(command), capture_output=True, text=True, timeout=60)
    assert done.stdout == "the text of the user\n", done.stderr
    assert (own / "kept").exists()


@pytest.mark.parametrize("way", ["namespaces", "Landlock"])
def test_a_program_signals_only_its_own_processes(way: str, tmp_path: Path) -> None:
    """It ends its own child, and not a process of the same user."""
    if [int(part) for part in re.findall(r"\d+", os.uname().release)[:2]] < [6, 12]:
        pytest.skip("signals are scoped from Linux 6.12 on")
    other = subprocess.Popen(["sleep", "60"])
    text = (
        "import os, signal, subprocess\nchild = subprocess.Popen(['sleep', '60'])\n"
        "child.kill(); print(child.wait())\n"
        f"try: os.kill({other.pid}, signal.SIGKILL)\nexcept PermissionError: print('denied')\n"
    )
    words = [sys.executable, "-I", "-c", text]
    command = isolated_runs.isolated_command(words, Isolation(cwd=str(tmp_path)), tmp_path)
    command = without_namespaces(command) if way == "Landlock" else command
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout == "-9\ndenied\n", done.stderr
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_machine_that_cannot_isolate_says_why(tmp_path: Path) -> None:
    """Without namespaces and Landlock no program starts, and the reason is one line."""
    started = tmp_path / "started"
    command = isolated_runs.isolated_command(
        ["touch", str(started)], Isolation(cwd=str(tmp_path)), tmp_path
    )
    spec = command[command.index(isolated_runs.MODULE) + 1]
    no_landlock = (
        "import sys; from reprokit.agent.serve import isolation\n"
        "isolation.SYS_LANDLOCK_CREATE = 9999; sys.exit(isolation.main())\n"
    )
    words = [sys.executable, "-c", no_landlock, spec, "touch", str(started)]
    done = subprocess.run(without_namespaces(words), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and not started.exists()
    assert re.fullmatch("user namespaces: .*; Landlock: Function not implemented\n", done.stderr)


def test_this_machine_can_isolate() -> None:
    """The tests of isolated programs would prove nothing otherwise."""
    assert isolated_runs.why_not_isolated() == ""


def test_a_program_that_the_user_agreed_to_is_not_isolated(tmp_path: Path) -> None:
    """It runs where an isolated one would run, and with the same HOME."""
    isolation = Isolation(cwd=str(tmp_path), path="/my/train.py", is_open=True)
    alone = isolated_runs.alone(isolation, tmp_path)
    assert isolated_runs.isolated_command(["true"], alone, tmp_path) == ["true"]
    assert isolated_runs.variables_of(alone) == {"HOME": str(tmp_path)}
    assert isolated_runs.variables_of(isolation) == {}
    closed = isolated_runs.alone(Isolation(cwd="/"), tmp_path)
    assert isolated_runs.variables_of(closed) == isolated_runs.variables_of(None) == {}
    program = (
        "import os\nfrom reprokit.agent.serve import isolation\n"
        "from reprokit.core.shared.contract.probe_messages import Isolation\n"
        f"isolation.enter_isolation(Isolation(cwd={str(tmp_path)!r}, home='/h', is_open=True))\n"
        "open('written', 'w').close()\nprint(os.getcwd(), os.environ['HOME'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{tmp_path} /h\n" and (tmp_path / "written").exists()
