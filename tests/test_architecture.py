"""The structure of the code: packages, the direction of imports, the files that are copied to the
target, and the modules that print.
"""

from __future__ import annotations

import ast
import collections
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.agent.torch_hooks import symbols
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import to_json
from reprokit.core.shared.simulation import GPUS
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import parse_command, parse_target
from reprokit.host.run import launch
from reprokit.host.run.launch import agent_files
from tests.support.environments import ROOT

PACKAGE = ROOT / "reprokit"
STDLIB = set(sys.stdlib_module_names)
MAX_COPIED_FILES = 81
"""Files that are copied next to the target, without compiled files."""


def imports(path: Path) -> list[tuple[int, str]]:
    """Return every import of a file as (level of relativeness, module)."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules += [(0, a.name) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append((node.level, node.module or ""))
    return modules


def files(package: str) -> list[Path]:
    return sorted((PACKAGE / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def packages() -> list[Path]:
    return sorted(
        p.parent
        for package in ("core", "agent", "host")
        for p in (PACKAGE / package).rglob("__init__.py")
    )


def test_imports_between_packages_go_in_one_direction() -> None:
    """The contracts of import-linter in pyproject.toml hold."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


@pytest.mark.parametrize("package", packages(), ids=name_of)
def test_a_package_says_what_it_is_for(package: Path) -> None:
    """A package has a docstring that says what it does and what it must not import."""
    doc = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    assert "import" in doc and len(re.findall(r"[.?](?:\s|$)", doc)) >= 2, (
        f"{package.name} does not say what it must not import"
    )


def test_module_names_are_unique() -> None:
    """A name in a traceback or a search means one module."""
    count = collections.Counter(p.stem for p in files(".") if not p.stem.startswith("__"))
    assert not [name for name, times in count.items() if times > 1]


@pytest.mark.parametrize("path", files("core"), ids=name_of)
def test_core_is_standard_library_without_io_or_clock(path: Path) -> None:
    """core imports only itself and pure modules of the standard library."""
    impure = {
        "os",
        "io",
        "pathlib",
        "time",
        "datetime",
        "subprocess",
        "socket",
        "shutil",
        "threading",
        "tempfile",
    }
    for level, module in imports(path):
        is_own = level > 0 or module.startswith("reprokit.core")
        assert is_own or module.split(".")[0] in STDLIB - impure, f"{path.name} imports {module}"


@pytest.mark.parametrize(
    "path",
    [p for p in agent_files(PACKAGE, frozenset(launch.PARTS)) if p.suffix == ".py"],
    ids=name_of,
)
def test_copied_files_need_only_torch_and_the_standard_library(path: Path) -> None:
    """The copy has a different name and lacks the rest of reprokit, so its own imports are
    relative.
    """
    for level, module in imports(path):
        top = module.split(".")[0]
        is_own = path.name == "sitecustomize.py" and module.startswith("_reprokit.")
        assert level or is_own or top in STDLIB | {"torch", "triton"}, (
            f"{path.name} imports {module}"
        )


NETWORK = {
    "http",
    "ftplib",
    "smtplib",
    "poplib",
    "imaplib",
    "telnetlib",
    "xmlrpc",
    "socketserver",
    "ssl",
    "asyncio",
}
SOCKETS = {
    "private_names.py": "the name of this host",
    "guardian_client.py": "a pair of sockets between two of our processes",
    "isolation.py": "starts the loopback device of a network that has nothing else",
    "open_requests.py": "asks the kernel which connections exist (netlink)",
}
"""Modules that may import ``socket``, with the reason."""


@pytest.mark.parametrize("path", files("."), ids=name_of)
def test_nothing_opens_a_connection(path: Path) -> None:
    """No module imports a network client; few modules import socket, and none connects."""
    for _, module in imports(path):
        assert module.split(".")[0] not in NETWORK and module != "urllib.request", (
            f"{path.name} imports {module}"
        )
        assert module != "socket" or path.name in SOCKETS, f"{path.name} imports {module}"
    called = {n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)}
    assert path.name not in SOCKETS or not called & {
        "connect",
        "create_connection",
        "sendto",
        "getaddrinfo",
    }


@pytest.mark.parametrize("path", [*files("core"), *files("host")], ids=name_of)
def test_only_cli_prints_or_exits(path: Path) -> None:
    """Only the package cli writes to the user."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {
                "print",
                "sys.exit",
                "input",
            }, f"{path.name}:{node.lineno} calls {called}"


def test_the_whole_host_runs_without_torch() -> None:
    """Importing every module of host and cli does not import torch."""
    modules = [
        ".".join(p.relative_to(ROOT).with_suffix("").parts)
        for r in ("host", "cli", "core")
        for p in files(r)
        if p.name not in ("guardian.py", "nvml.py")
    ]
    code = f"import sys; [__import__(m) for m in {modules!r}]; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_few_modules_are_copied_to_the_target() -> None:
    """Only the agent and the modules that it shares with the host are copied for each run."""
    target = {"command": parse_command((sys.executable, "x.py"))}
    for words in ("llama-tiny", "hf:bert", f"{ROOT}/samples/healthy.py:make"):
        target[words] = parse_target(words)
    for words, parsed in target.items():
        for gpu in (None, to_json(GPUS["h100"])):
            for variables in ({}, {run_names.RESULTS_VARIABLE: "eager"}):
                request = Request(parsed, gpu=gpu, variables=variables)
                if gpu is not None and variables:
                    continue  # nothing runs, so nothing is compared
                all_files = agent_files(PACKAGE, launch.agent_parts_of_request(request))
                copied = [p for p in all_files if p.suffix != ".pyc"]
                assert len(copied) <= MAX_COPIED_FILES, (words, len(copied))


def test_the_architecture_document_names_every_package() -> None:
    """docs/architecture.md has a row for each package."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    for package in packages():
        name = name_of(package)
        assert "/" not in name or f"`{name}`" in text, name


def test_the_names_of_a_run_directory_are_in_one_module() -> None:
    """No other module has the name of an environment variable of a run, except two files that run
    before or without the package.
    """
    ours = {name: value for name, value in vars(run_names).items() if name.endswith("_VARIABLE")}
    for path in files("."):
        if path.name in ("run_names.py", "sitecustomize.py", "guardian.py"):
            continue
        texts = {
            n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)
        }
        assert not texts & set(ours.values()), f"{path.name} names {texts & set(ours.values())}"
    text = (PACKAGE / "agent" / "sitecustomize.py").read_text()
    assert run_names.RUN_DIR_VARIABLE in text and run_names.AGENT_PROBLEMS_FILE in text
    assert run_names.RUN_ID_VARIABLE in (PACKAGE / "host" / "system" / "guardian.py").read_text()


EXPECTED = {
    "KeyboardInterrupt",
    "BlockingIOError",
    "Empty",
    "FileExistsError",
    "FileNotFoundError",
    "NotADirectoryError",
    "BudgetExhausted",
    "subprocess.TimeoutExpired",
    "click.exceptions.Abort",
    "InvalidVersion",
}
"""Exceptions that are answers, not problems."""
WITHOUT_LOG = {
    "host/system/guardian.py",  # copied to the target's side, with nothing of reprokit
    "host/watch/nvml.py",  # a process of its own
    "host/system/host_log.py",
    "cli/shared/out.py",  # the terminal may be gone
}


@pytest.mark.parametrize("path", [*files("host"), *files("cli")], ids=name_of)
def test_the_host_logs_what_it_ignores(path: Path) -> None:
    """No exception is ignored without a line in reprokit.log."""
    if name_of(path) in WITHOUT_LOG:
        return
    text = path.read_text()
    assert "contextlib.suppress" not in text, "use host_log.suppress"
    for handler in ast.walk(ast.parse(text)):
        if not isinstance(handler, ast.ExceptHandler) or handler.type is None:
            continue
        is_tuple = isinstance(handler.type, ast.Tuple)
        kinds = handler.type.elts if is_tuple else [handler.type]  # type: ignore[attr-defined]
        inside = [node for statement in handler.body for node in ast.walk(statement)]
        is_raised = any(isinstance(node, ast.Raise) for node in inside)
        is_used = handler.name in {node.id for node in inside if isinstance(node, ast.Name)}
        is_expected = {ast.unparse(kind) for kind in kinds} <= EXPECTED
        assert is_raised or is_used or is_expected, f"line {handler.lineno} ignores an exception"


PUBLIC = {
    "torch.compile",
    "triton.compile",
    "config.compile_threads",
    "torch._dynamo.config.disable",
    "torch._dynamo.config.compiled_autograd",
    "torch._dynamo.config.enable_aot_compile",
    "torch.export.export",
    "torch.autograd.backward",
}
"""Functions and settings that are not private symbols."""


@pytest.mark.parametrize("path", files("agent"), ids=name_of)
def test_private_symbols_of_torch_are_in_the_table(path: Path) -> None:
    """Only torch_hooks and simulate replace private symbols of torch and Triton, and each is a row
    of symbols.py.
    """
    rows = {symbol.name.rpartition(":")[2].rpartition(".")[2] for symbol in symbols.SYMBOLS}
    tree = ast.parse(path.read_text())
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).split(".")[0] in ("torch", "triton")
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        else:
            continue
        for target in targets:
            owner = target
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            name = ast.unparse(target)
            if owner is target or not isinstance(owner, ast.Name) or owner.id not in imported:
                continue
            if name not in PUBLIC:
                assert path.parent.name in ("torch_hooks", "simulate"), f"{name} is replaced here"
                assert name.rpartition(".")[2] in rows, f"{name} is not in symbols.py"


def test_public_names_are_unique() -> None:
    """No two public classes have the same name. The networks of the zoo are texts of repros."""
    names = collections.Counter(
        node.name
        for path in files(".")
        if path.parent.name != "models"
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


WITHOUT_QUOTES = {"target", "command", "word", "a", "b", "count", "new", "json.dumps(python)"}
"""Expressions after the name of a program that need no quotes: numbers, fixed words, safe names."""
_PROGRAM = re.compile(r"(?:^|[\s(`'\":])(?:reprokit|python|cd|tar|pip) (?:[\w./=-]+ )*$")


@pytest.mark.parametrize("path", [*files("host"), *files("cli")], ids=name_of)
def test_each_printed_command_is_quoted(path: Path) -> None:
    """A path in a command line that a user copies may have a space or a quote."""
    for node in ast.walk(ast.parse(path.read_text())):
        before = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(part, ast.FormattedValue):
                value = ast.unparse(part.value)
                is_safe = value.startswith("shlex.") or value in WITHOUT_QUOTES or value.isupper()
                is_safe |= value.startswith(("__version__", "ALGORITHM", "MIN_PIP"))
                assert is_safe or not _PROGRAM.search(before), f"line {part.lineno}: {value}"
            before += str(part.value) if isinstance(part, ast.Constant) else "{}"
