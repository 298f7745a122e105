"""Where a process was killed, as a second run with the sanitizers of the C++ compiler shows it."""

from __future__ import annotations

from dataclasses import dataclass

GENERATED = "generated code"
TORCH = "torch"
LIBRARY = "a library"
NULL = "null pointer"


@dataclass(frozen=True)
class NativeLibrary:
    """A shared library with a frame of the native stack."""

    name: str
    build_id: str
    """Hexadecimal digits of its GNU build id; empty if it has none."""


@dataclass(frozen=True)
class CrashSite:
    """The first error that the sanitizers reported."""

    place: str
    """The code that had the error: one of ``GENERATED``, ``TORCH`` and ``LIBRARY``."""
    family: str
    """The error, without what depends on sizes and addresses: ``invalid read``."""
    error: str
    """The error as the sanitizer names it, such as ``heap-buffer-overflow, write of 8 bytes``."""
    function: str
    """The kernel, or the innermost native function."""
    operator: str = ""
    """The operator whose code had the error; empty if it is not known."""
    line: str = ""
    """``FILE:LINE`` of the program that called the operator; empty if it is not known."""
    code: str = ""
    """The line of generated C++; empty for other code."""
    buffer: str = ""
    """The name of the buffer in the generated Python; empty if the line has none."""
    memory: str = ""
    """What the generated Python says about the buffer: its size, strides and dtype."""
    made_by: str = ""
    """The operator that returned the buffer, where generated code called one; empty otherwise."""
    index: str = ""
    """The index expression, or the condition of an index that was checked."""
    frames: tuple[str, ...] = ()
    """The innermost native frames, ``FUNCTION in LIBRARY`` or ``FUNCTION``."""
    libraries: tuple[NativeLibrary, ...] = ()

    @property
    def summary(self) -> str:
        """What happened, as a clause."""
        whose = f" in the code of {self.operator}" if self.operator else f" in {self.function}"
        buffer = f", buffer {self.buffer}" if self.buffer else ""
        made = f" of {self.made_by}" if self.buffer and self.made_by else ""
        return f"{self.family}{whose}{buffer}{made}"

    @property
    def evidence(self) -> tuple[str, ...]:
        """What the run with sanitizers shows, one row each."""
        rows = [f"AddressSanitizer: {self.error}, in {self.function} ({self.place})"]
        if self.code:
            rows.append(f"generated C++: {self.code}")
        if self.buffer:
            says = f": {self.memory}" if self.memory else ""
            made = f", returned by {self.made_by}" if self.made_by else ""
            index = f", index {self.index}" if self.index else ""
            rows.append(f"buffer {self.buffer}{says}{made}{index}")
        elif self.index:
            rows.append(f"index {self.index}")
        if self.operator:
            at = f", called at {self.line}" if self.line else ""
            rows.append(f"operator {self.operator}{at}")
        rows.append(f"native stack: {' < '.join(self.frames)}")
        rows += [
            f"library {library.name}: build id {library.build_id}"
            for library in self.libraries
            if library.build_id
        ]
        return tuple(rows)

    @property
    def identity(self) -> str:
        """What the same bug has in any model and at any size.

        Each use of a buffer that is a null pointer fails, so the operator that returned it counts.
        """
        named = (self.made_by if self.family == NULL else "") or self.operator or self.function
        inside = "" if self.place == GENERATED else f" in {self.place}"
        return f"{self.family}, {named}{inside}"
