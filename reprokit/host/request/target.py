"""Parse the name of a target: a zoo name, ``hf:TYPE``, ``file.py:factory``, ``pkg.mod:factory`` or
a command.
"""

from __future__ import annotations

import difflib
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.shared.errors import BadInput
from reprokit.core.shared.zoo import ZOO
from reprokit.host.system import host_log, private_names


@dataclass(frozen=True)
class Target:
    """A target: what is run."""

    kind: str
    """``zoo``, ``hf``, ``file``, ``module`` or ``command``."""
    place: str = ""
    """The file or module of a factory, the configuration file of a model type, or the notebook that
    a command runs; otherwise empty.
    """
    name: str = ""
    """The zoo name, the model type of transformers, or the factory."""
    command: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Return a short name that is safe in a file name."""
        words = {
            "zoo": self.name,
            "hf": f"hf-{self.name or Path(self.place).resolve().parent.name}",
            "file": f"{Path(self.place).stem}-{self.name}",
            "module": f"{self.place}-{self.name}",
        }
        text = private_names.get_redactor().redact_file_name(
            (words.get(self.kind) or self._command_name()).replace("/", "-")
        )
        return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:40].rstrip("-.") or "target"

    def _command_name(self) -> str:
        """Return the name of the notebook, the test, or the script that a command runs."""
        if self.place:
            return Path(self.place).stem
        for word in self.command:
            file, colons, test = word.partition("::")
            if file.endswith(".py"):
                return f"{Path(file).stem}-{test}" if colons else Path(file).stem
        return Path(self.command[0]).stem if self.command else ""

    @property
    def words(self) -> str:
        """Return the target as the user writes it on the command line."""
        import shlex

        if self.kind == "command":
            return shlex.quote(self.place) if self.place else "-- " + shlex.join(self.command)
        if self.kind == "hf":
            return f"hf:{self.place or self.name}"
        return self.name if self.kind == "zoo" else f"{self.place}:{self.name}"


def parse_target(words: str) -> Target:
    """Parse a target that is not a command. Raises BadInput with near matches."""
    if words.startswith("hf:"):
        return _parse_hf(words[3:])
    place, colon, name = words.rpartition(":")
    if not colon:
        if words in ZOO:
            return Target("zoo", name=words)
        if words.endswith(".py"):
            raise BadInput(
                f"{words} names a file but no factory; write {words}:FACTORY, or run the program:"
                f" reprokit capture -- python {shlex.quote(words)}"
            )
        near = difflib.get_close_matches(words, ZOO, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise BadInput(
            f"there is no model {words!r}; {hint}reprokit models lists them all, file.py:factory"
            " names your own"
        )
    if not name.isidentifier():
        raise BadInput(
            f"{words!r}: {name!r} is not a Python name; write file.py:FACTORY or"
            " package.module:FACTORY"
        )
    if place.endswith(".py") or "/" in place:
        path = Path(place).expanduser()
        if not path.is_file():
            raise BadInput(f"there is no file {place}{_near_file(path)}")
        return Target("file", str(path.resolve()), name)
    if not all(part.isidentifier() for part in place.split(".")):
        raise BadInput(f"{place!r} is neither a file that ends in .py nor a module name")
    return Target("module", place, name)


def _parse_hf(words: str) -> Target:
    """Parse a model type or the path of a configuration file.

    Only the transformers of the target's interpreter can check a model type.
    """
    if not words:
        raise BadInput(
            "hf: names no model; write hf:llama or hf:PATH/config.json; reprokit models hf: lists"
            " the types"
        )
    if "/" not in words and not words.endswith(".json"):
        if not re.fullmatch(r"[A-Za-z0-9._-]+", words):
            raise BadInput(
                f"hf:{words}: {words!r} is not a model type; reprokit models hf: lists them"
            )
        return Target("hf", name=words)
    path = Path(words).expanduser()
    if path.is_dir():
        path /= "config.json"
    if not path.is_file():
        raise BadInput(
            f"there is no configuration {path}; reprokit does not download models: download the"
            " config.json yourself, or name the model type, such as hf:llama"
        )
    return Target("hf", str(path.resolve()))


def parse_command(words: tuple[str, ...], notebook: str = "") -> Target:
    """Parse a command line, which runs ``notebook`` if that is not empty. Raises BadInput if there
    is nothing to run.
    """
    if not words:
        raise BadInput("there is no command after --; write: reprokit capture -- python train.py")
    if shutil.which(words[0]) is None:
        raise BadInput(f"there is no program {words[0]!r} to run; check the name and PATH")
    return Target("command", notebook, command=words)


def refuse_missing_script(words: tuple[str, ...]) -> None:
    """Raise BadInput if a command that begins with Python names a script that does not exist."""
    if words and (script := _script_of(words)) and not Path(script).exists():
        raise BadInput(f"there is no file {script}{_near_file(Path(script))}")


def _script_of(words: tuple[str, ...]) -> str:
    """Return the script of a command that begins with Python; empty if it has none."""
    if not re.fullmatch(r"(?:python|pypy)[\d.]*", Path(words[0]).name):
        return ""
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        if rest[0] == "-" or re.fullmatch(r"-[a-zA-Z]*[cm]", rest[0]):
            return ""  # a program on stdin, in the command line, or of a module
        has_value = rest[0] in ("-W", "-X", "--check-hash-based-pycs")
        rest = rest[2:] if has_value else rest[1:]
    return rest[0] if rest else ""


def _near_file(path: Path) -> str:
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix == ".py"]
    except OSError as problem:
        host_log.log_ignored(problem)
        return f"; nor a folder {path.parent}"
    near = difflib.get_close_matches(path.name, names, n=2)
    return f"; did you mean {' or '.join(near)}?" if near else "; check the path"
