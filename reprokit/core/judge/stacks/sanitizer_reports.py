"""Read the reports of AddressSanitizer and UBSan, and the generated code that they point into."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records import crash_sites
from reprokit.core.records.crash_sites import CrashSite
from reprokit.core.shared import sanitizer_flags

STACK_FORMAT = "#%n|%f|%s|%l|%m"
"""The option ``stack_trace_format`` of both sanitizers: function, file, line and library."""
MAX_FRAMES = 8
_FRAME = re.compile(r"#\d+\|(?P<function>.*)\|(?P<file>.*)\|(?P<line>\d*)\|(?P<library>.*)")
_ERROR = re.compile(r"ERROR: AddressSanitizer: (?:attempting )?(?P<name>[\w-]+)(?: on (?P<on>.*))?")
_ACCESS = re.compile(r"(?P<access>READ|WRITE) (?:of size (?P<bytes>\d+)|memory access)")
_REGION = re.compile(r"is located (?P<where>.*?) (?:of )?(?P<bytes>\d+)-byte region")
_UNDEFINED = re.compile(r"(?P<file>\S+?):(?P<line>\d+):\d+: runtime error: (?P<what>.*)")
_RUNTIME = re.compile(r"(?:lib(?:[alu]san|ubsan|c|stdc\+\+|gcc_s|pthread|gomp)\.so|ld-|\[)")
_RAISES = re.compile(r"(?:__interceptor_|__asan_|__ubsan_|c10::(?:detail::|Error|throw)|std::).*")
_TORCH = re.compile(r"lib(?:torch|c10|shm|caffe2)\w*\.so|_C\b.*\.so")
_PYTHON = re.compile(r"(?:lib)?python\d[\w.]*")
_CALLED = re.compile(r"at::_ops::(?P<name>\w+)::(?:call|redispatch)")
_NATIVE = re.compile(r"at::native::(?:\w+::)*(?P<name>\w+)\(")
_ARGUMENTS = re.compile(r"\(.*|<.*")
_POINTER = re.compile(r"\b(?P<pointer>(?:in_out|in|out)_ptr\d+)\s*(?P<how>\[|\+)\s*")
_CHECKED = re.compile(r'"index out of bounds: (?P<condition>[^"]*)"')
_CAST = re.compile(r"static_cast<int64_t>\(")
_KERNEL = re.compile(
    r"^(?P<name>\w+) = async_compile\.cpp_pybinding\(\[.*?\], r?'''(?P<code>.*?)'''\)",
    re.MULTILINE | re.DOTALL,
)
_SIGNATURE = re.compile(r'extern "C"\s+void\s+\w+\((?P<parameters>[^)]*)\)')
_PARAMETER = re.compile(r"(\w+)\s*(?:,|$)")
_EMPTY = re.compile(
    r"^\s*(?P<name>\w+) = empty_strided\w*\((?P<size>\(.*?\)), (?P<stride>\(.*?\)), torch\.(?P<dtype>\w+)\)",
    re.MULTILINE,
)
_INPUT = re.compile(
    r"^\s*assert_size_stride\((?P<name>\w+), (?P<size>\(.*?\)), (?P<stride>\(.*?\))", re.MULTILINE
)
_FAMILIES = {
    "ABRT": "abort",
    "FPE": "division",
    "ILL": "illegal instruction",
    "attempting": "invalid free",
    "double-free": "invalid free",
    "bad-free": "invalid free",
    "stack-overflow": "stack overflow",
}


@dataclass(frozen=True)
class NativeFrame:
    """One frame of a native stack."""

    function: str
    file: str
    line: int
    library: str
    """The path of the library or program."""

    @property
    def is_generated(self) -> bool:
        """Whether Inductor wrote the source file."""
        return fr.names_generated(self.file)


@dataclass(frozen=True)
class SanitizerReport:
    """The report of the error that ended a process."""

    name: str
    """The name of the error, such as ``heap-buffer-overflow`` or ``SEGV``."""
    access: str
    """``read`` or ``write``; empty if the error is no access."""
    size: int
    """Bytes of the access; 0 if they are not known."""
    is_null: bool
    """The address is near 0."""
    region: str
    """Where the address is, relative to the nearest memory that was allocated; or empty."""
    frames: tuple[NativeFrame, ...]
    """Innermost first."""
    undefined: Mapping[tuple[str, int], str]
    """What UBSan said, by file and line."""

    @property
    def culprit(self) -> NativeFrame | None:
        """The innermost frame outside of the C and C++ runtimes; None without one."""
        return next((f for f in self.frames if f.is_generated or not _is_below(f)), None)

    @property
    def outside_python(self) -> tuple[NativeFrame, ...]:
        """The frames from the culprit to the interpreter of Python, at most MAX_FRAMES."""
        inner = itertools.dropwhile(lambda f: f != self.culprit, self.frames)
        frames = tuple(itertools.takewhile(lambda f: not _is_of_python(f), inner))
        return frames[:MAX_FRAMES] or self.frames[:MAX_FRAMES]


def _is_below(frame: NativeFrame) -> bool:
    """Return whether a frame is one of the C or C++ runtime, or a function of a header that is
    inlined into generated code.
    """
    name = frame.library.rpartition("/")[2]
    is_header = fr.names_generated(frame.library.removesuffix(".so") + ".cpp")
    return bool(is_header or _RUNTIME.match(name) or _RAISES.match(frame.function))


def _is_of_python(frame: NativeFrame) -> bool:
    return _PYTHON.match(frame.library.rpartition("/")[2]) is not None


def read_report(written: str) -> SanitizerReport | None:
    """Return the first error of AddressSanitizer in a text; None if there is none."""
    error = _ERROR.search(written)
    if error is None:
        return None
    text = written[error.start() :]
    frames: list[NativeFrame] = []
    for row in text.splitlines():
        if match := _FRAME.search(row):
            number = int(match["line"] or 0)
            function = match["function"].replace("(anonymous namespace)::", "")
            frames.append(NativeFrame(function, match["file"], number, match["library"]))
        elif frames:
            break  # the stacks after it are those of the allocation and the thread
    access = _ACCESS.search(text)
    region = _REGION.search(text)
    undefined = {(m["file"], int(m["line"])): m["what"] for m in _UNDEFINED.finditer(written)}
    return SanitizerReport(
        error["name"],
        access["access"].lower() if access else "",
        int(access["bytes"] or 0) if access else 0,
        "address points to the zero page" in text,
        f"{region['where']} of {region['bytes']} bytes of memory" if region else "",
        tuple(frames),
        undefined,
    )


def find_site(report: SanitizerReport, cpp: str, modules: Sequence[str]) -> CrashSite | None:
    """Return where the error is; None for a stack that names no place.

    ``cpp`` is the generated C++ file of the innermost frame, and ``modules`` the generated Python.
    """
    frame = report.culprit
    if frame is None:
        return None
    said = report.undefined.get((frame.file, frame.line), "")
    lines = cpp.splitlines() if frame.is_generated else []
    number = _line_of_access(report, lines, frame.line)
    code = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    code, _, origin = code.partition(sanitizer_flags.MARK)
    operator, _, line = origin.partition(" | ")
    family, error = _describe(report, said, code)
    frames = tuple(map(_show, report.outside_python))
    if not frame.is_generated:
        place, function = _place_of(frame), _ARGUMENTS.sub("", frame.function)
        if place == crash_sites.TORCH and (native := _NATIVE.search(frame.function)):
            function = f"at::native::{native['name']}"  # the frames around it are templates
        called = [m["name"] for f in report.frames if (m := _CALLED.match(f.function))]
        operator = f"aten.{called[0]}" if called else ""
        return CrashSite(place, family, error, function or _show(frame), operator, frames=frames)
    kernel = _kernel_of(cpp, modules)
    pointer, index = _access_of(code.strip(), lines[number:])
    buffer = kernel.buffers.get(pointer, pointer) if kernel else pointer
    return CrashSite(
        crash_sites.GENERATED,
        family,
        error,
        kernel.name if kernel else _ARGUMENTS.sub("", frame.function),
        _short(operator),
        line.strip(),
        code.strip(),
        buffer,
        kernel.describe(buffer) if kernel else "",
        kernel.maker_of(buffer) if kernel else "",
        index,
        frames,
    )


def _line_of_access(report: SanitizerReport, lines: Sequence[str], number: int) -> int:
    """Return the line of the memory access.

    The compiler may join a load with the operation that uses its value. Then the report names the
    line of the operation.
    """
    code = lines[number - 1] if 0 < number <= len(lines) else ""
    if report.name != "SEGV" or report.access != "read" or _POINTER.search(code):
        return number
    used = set(re.findall(r"\btmp\d+\b", code.partition("=")[2]))
    loads: list[int] = []
    for place in range(number - 1, 0, -1):
        name = re.match(r"\s*auto (tmp\d+) =", lines[place - 1])
        if name and name[1] in used:
            used.discard(name[1])  # names are used again in other loops
            loads += [place] if _POINTER.search(lines[place - 1]) else []
    return loads[0] if len(loads) == 1 else number


def _describe(report: SanitizerReport, said: str, code: str) -> tuple[str, str]:
    """Return the family of an error, and the error in words."""
    size = f" of {report.size} bytes" if report.size else ""
    access = f", {report.access}{size}" if report.access else ""
    where = f", {report.region}" if report.region else ""
    words = f"{report.name}{access}{where}" + (f" ({said})" if said else "")
    if report.name == "ABRT" and _CHECKED.search(code):
        return "index out of bounds", words
    if family := _FAMILIES.get(report.name):
        return family, words
    if report.is_null or "null pointer" in said:
        return crash_sites.NULL, words
    return f"invalid {report.access or 'access'}", words


def _place_of(frame: NativeFrame) -> str:
    name = frame.library.rpartition("/")[2]
    if _TORCH.match(name):
        return crash_sites.TORCH
    return "Python" if _is_of_python(frame) else name or crash_sites.LIBRARY


def _show(frame: NativeFrame) -> str:
    name = _ARGUMENTS.sub("", frame.function) or "?"
    if frame.is_generated:
        return f"{name} in generated code:{frame.line}"
    return f"{name} in {frame.library.rpartition('/')[2]}"


def _short(operator: str) -> str:
    """Return an operator without its overload."""
    name, dot, _ = operator.strip().rpartition(".")
    return name if dot and name.count(".") else operator.strip()


def _access_of(code: str, following: Sequence[str]) -> tuple[str, str]:
    """Return the pointer and the index expression of a line, or of the access that it checks."""
    if checked := _CHECKED.search(code):
        accesses = (_access_of(line, ()) for line in following)
        # the next access whose index is a value
        pointer = next((p for p, index in accesses if re.search(r"\btmp\d", index)), "")
        return pointer, checked["condition"]
    match = _POINTER.search(code)
    if match is None:
        return "", ""
    index = _CAST.sub("(", _balanced(code[match.end() :])).strip()
    is_whole = index.startswith("(") and _balanced(index[1:]) == index[1:-1]
    return match["pointer"], index[1:-1] if is_whole else index


def _balanced(text: str) -> str:
    """Return the text up to the bracket or comma that ends an expression."""
    depth = 0
    for place, character in enumerate(text):
        if character in ")],;" and depth == 0:
            return text[:place]
        depth += (character in "([") - (character in ")]")
    return text


def _split(arguments: str) -> list[str]:
    """Return the arguments of a call."""
    found: list[str] = []
    while arguments:
        found.append(_balanced(arguments))
        arguments = arguments[len(found[-1]) :].lstrip(", ")
    return found


class _Kernel:
    """A kernel in a generated Python module."""

    def __init__(self, name: str, module: str, parameters: Sequence[str]) -> None:
        self.name, self._module = name, module
        call = re.search(rf"^\s*{name}\((?P<arguments>.*)\)$", module, re.MULTILINE)
        arguments = _split(call["arguments"]) if call else []
        self.buffers = dict(zip(parameters, arguments, strict=False))
        """The argument of each parameter."""

    def describe(self, buffer: str) -> str:
        for name in self._aliases(buffer):
            for pattern in (_EMPTY, _INPUT):
                for match in pattern.finditer(self._module):
                    if match["name"] == name:
                        dtype = match.groupdict().get("dtype")
                        words = f"size {match['size']}, stride {match['stride']}"
                        return f"{dtype}, {words}" if dtype else words
        return ""

    def maker_of(self, buffer: str) -> str:
        for name in self._aliases(buffer):
            made = re.search(rf"^\s*{name} = torch\.ops\.([\w.]+)\(", self._module, re.MULTILINE)
            if made:
                return _short(made[1])
        return ""

    def _aliases(self, buffer: str) -> list[str]:
        names = [buffer]
        while names[-1]:
            other = re.search(
                rf"^\s*{re.escape(names[-1])} = (\w+)(?:\[\d+\])?(?:$|;)",
                self._module,
                re.MULTILINE,
            )
            if other is None or other[1] in names:
                break
            names.append(other[1])
        return names


def _kernel_of(cpp: str, modules: Sequence[str]) -> _Kernel | None:
    """Return the kernel that a C++ file has; None if no module has it."""
    signature = _SIGNATURE.search(cpp)
    for module in modules:
        for match in _KERNEL.finditer(module):
            if signature is not None and match["code"].strip() in cpp:
                parameters = _PARAMETER.findall(signature["parameters"])
                return _Kernel(match["name"], module, parameters)
    return None
