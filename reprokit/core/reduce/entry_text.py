"""Decide which scripts may be run many times in changed copies: those without side effects."""

from __future__ import annotations

import ast
import re
import sys

from reprokit.core.shared.contract import run_names

COMPILERS = frozenset({"torch", "triton"})
HARMLESS = frozenset(
    "__future__ abc argparse array base64 bisect calendar cmath collections contextlib copy"
    " dataclasses datetime decimal enum fractions functools gc hashlib heapq inspect io itertools"
    " json logging math numbers numpy operator os pathlib platform pprint queue random re"
    " statistics string struct sys textwrap threading time traceback types typing typing_extensions"
    " uuid warnings weakref".split()
)
"""Modules that only compute, except for the names below."""
_PARTS = frozenset(
    "distributed multiprocessing hub cpp_extension tensorboard model_zoo onnx package elastic"
    " rpc".split()
)
"""Parts of a dotted module that write, download or start processes."""
_OF_OS = frozenset(
    {"environ", "getenv", "getcwd", "path", "sep", "linesep", "getpid", "cpu_count", "name"}
)
_NAMES = frozenset({"open", "exec", "eval", "__import__", "__builtins__", "input", "breakpoint"})
_ATTRIBUTES = re.compile(
    r"_?save\w*|export_\w+|open|write\w*|mkdir|makedirs|unlink|rmdir|rmtree|rename|touch|symlink_to|hardlink_to|download\w*"
    r"|load_url|load_state_dict_from_url|to_folder|from_file|to_?file|memmap|FileType|\w*FileHandler|\w*trace_handler"
    r"|_dump_snapshot|_record_memory_history|aoti\w*|system|popen|fork|spawn|os|hub|cpp_extension|tensorboard"
    r"|multiprocessing|distributed|model_zoo|onnx|__(?:globals|builtins|subclasses|import)__"
)


def foreign_imports(tree: ast.Module) -> list[str]:
    """Return the names of imported modules that are not part of Python or torch."""
    return sorted(_imports(tree) - set(sys.stdlib_module_names) - COMPILERS)


def why_not_again(tree: ast.Module) -> str:
    """Return why changed copies of a script must not be run without consent; empty if they may.

    The rule is conservative: a training script may write checkpoints, and a candidate with a
    different path in it must not.
    """
    imports = _imports(tree)
    if others := sorted(imports - HARMLESS - COMPILERS):
        return f"it imports {', '.join(others[:6])}"
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules |= {
                a.asname or a.name.split(".")[0] for a in node.names if isinstance(node, ast.Import)
            }
            if why := _of_import(node):
                return why
    checked = {  # a check such as torch.distributed.is_available() is harmless
        id(n.value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and re.fullmatch(r"is_\w+", n.attr)
    }
    imported = {
        n.asname or n.name for i in ast.walk(tree) if isinstance(i, ast.ImportFrom) for n in i.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _NAMES - imported:
            return f"it uses {node.id}"
        if isinstance(node, ast.Attribute) and id(node) not in checked:
            owner = (
                ast.unparse(node.value) if isinstance(node.value, (ast.Name, ast.Attribute)) else ""
            )
            is_output = node.attr == "write" and owner in ("sys.stdout", "sys.stderr")
            is_odd = (owner == "os" and node.attr not in _OF_OS) or (
                owner == "sys" and node.attr == "modules"
            )
            # it may be the method of a path or of a text
            is_odd |= node.attr == "replace" and "pathlib" in imports
            if is_odd or (_ATTRIBUTES.fullmatch(node.attr) and not is_output):
                return f"it uses {owner}.{node.attr}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            first = node.args[0] if node.args else None
            if called == "getattr" and isinstance(first, ast.Name) and first.id in modules:
                return f"it calls getattr({first.id}, ...)"
            if called.endswith("basicConfig") and any(
                k.arg != "level" and k.arg != "format" for k in node.keywords
            ):
                return "it sets up logging"
    return ""


def _of_import(node: ast.Import | ast.ImportFrom) -> str:
    wholes = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    names = [a.name for a in node.names] if isinstance(node, ast.ImportFrom) else []
    parts = {part for whole in wholes for part in whole.split(".")[1:]} | set(names)
    is_renamed = any(a.name in ("os", "sys") and a.asname for a in node.names)
    is_of_os = isinstance(node, ast.ImportFrom) and node.module in ("os", "sys")
    is_bad = (
        any(w.startswith("logging.") for w in wholes)
        or parts & (_PARTS | {"*"})
        or any(_ATTRIBUTES.fullmatch(n) for n in names)
    )
    return f"it has {ast.unparse(node)}" if is_bad or is_renamed or is_of_os else ""


def with_arguments(text: str, arguments: list[str]) -> str:
    """Return the script with first lines that set its command line."""
    if not arguments:
        return text
    tree = ast.parse(text)
    head = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    body = [n for n in tree.body if n not in head]
    argv = ast.parse(f"import sys\nsys.argv = {[run_names.REPRO_FILE, *arguments]!r}").body
    tree.body = [*head, *argv, *body]
    return ast.unparse(tree) + "\n"


def _imports(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("(a relative import)" if node.level else (node.module or "").split(".")[0])
    return names
