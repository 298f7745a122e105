"""Types of the values of options and arguments, with their completion in a shell."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    Duration = click.ParamType[float]
    Size = click.ParamType[int]
    Word = click.ParamType[str]
    Limits = click.ParamType[dict[str, int]]
else:  # it is not generic before click 8.5
    Duration = Size = Word = Limits = click.ParamType


_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9}
LEAST_SIZE = 100_000


class DurationType(Duration):
    """Seconds above 0, as a number or as a duration such as ``10m``."""

    name = "duration"

    def __init__(self, is_zero_fine: bool = False) -> None:
        self.is_zero_fine = is_zero_fine

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        from reprokit.host.request import durations
        from reprokit.host.system import host_log

        seconds = float("nan")
        with host_log.suppress(ValueError):
            seconds = durations.parse_duration(str(value))
        if not (0 < seconds < float("inf") or (self.is_zero_fine and seconds == 0)):
            least = "not below 0" if self.is_zero_fine else "above 0"
            self.fail(
                f"{value!r} is not a number of seconds {least}, nor a duration such as"
                f" {durations.EXAMPLES}",
                param,
                ctx,
            )
        return seconds


class SizeType(Size):
    """Bytes, as a number with a unit such as ``500MB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?(kB|MB|GB)", str(value), re.IGNORECASE)
        size = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
        if size < LEAST_SIZE and not isinstance(value, int):
            self.fail(f"{value!r} is not a size of at least 100 kB, such as 500MB", param, ctx)
        return value if isinstance(value, int) else size


class WholeNumber(click.IntRange):
    """A whole number within limits, with a message in words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        from reprokit.host.system import host_log

        least, most, number = self.min, self.max, None
        with host_log.suppress(ValueError):
            number = int(value)
        is_allowed = number is not None and (
            (least is None or number >= least) and (most is None or number <= most)
        )
        if not is_allowed:
            limits = f"from {least:g} to {most:g}" if most is not None else f"of at least {least:g}"
            self.fail(f"{value!r} is not a whole number {limits}", param, ctx)
        assert number is not None
        return number


class FailOnType(Limits):
    """What is a failure although PyTorch regards it as working: words, and how many are fine."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, int]:
        """Return the words, each with the number that is fine."""
        from reprokit.core.records.verdict_kinds import FAIL_ON

        if isinstance(value, dict):  # a default
            return value
        limits: dict[str, int] = {}
        for text in filter(None, (word.strip() for word in str(value).split(","))):
            name, colon, number = text.partition(":")
            if name not in FAIL_ON:
                self.fail(f"{name!r} is none of {', '.join(FAIL_ON)}", param, ctx)
            if colon and not (name == "graph-break" and number.isdecimal()):
                self.fail(
                    f"{text!r}: only graph-break takes a number, such as graph-break:3", param, ctx
                )
            limits[name] = int(number or 0)
        return limits


class PlaceType(Word):
    """The path of a file, or another word, such as an interpreter on PATH or the name of a GPU."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word unchanged."""
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Complete the names of files."""
        from reprokit.cli.shared import completion

        return completion.complete_files(incomplete)


class GpuType(PlaceType):
    """The name of a GPU, or a file that describes one."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Complete the names of the GPUs that can be simulated, and of files."""
        from reprokit.cli.shared import completion

        return completion.complete_gpus(incomplete)


class TargetType(PlaceType):
    """A target, or a pack where the command takes one."""

    def __init__(self, takes_packs: bool = False) -> None:
        self.takes_packs = takes_packs

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Complete the models of the zoo, program files, and perhaps packs."""
        from reprokit.cli.shared import completion

        return completion.complete_targets(incomplete, self.takes_packs)


class PackPath(click.Path):
    """The path of a pack, or of the run directory that it is from."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Complete packs, also those in reprokit-out, and folders."""
        from reprokit.cli.shared import completion

        return completion.complete_packs(incomplete)


class RunPath(click.Path):
    """The path of a run directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Complete run directories, also those in reprokit-out, and folders."""
        from reprokit.cli.shared import completion

        return completion.complete_runs(incomplete)


SECONDS = DurationType()
PLACE = PlaceType()


def path_beside(text: str, folder: Path, is_path: bool) -> str:
    """Return a path of a file relative to its folder; other words are not changed.

    Without ``is_path``, only a word with a slash is a path.
    """
    if text.startswith("~"):
        return str(Path(text).expanduser())
    is_local = is_path or ("/" in text and "://" not in text)
    return os.path.join(folder, text) if is_local else text
