"""Read messages of exceptions and compilers, and remove what depends on the model, the machine or
the run.
"""

from __future__ import annotations

import re

MAX_MESSAGE_CHARS = 160
_BOILERPLATE = (
    r"\s*Set TORCHDYNAMO_VERBOSE=1.*",
    r"\s*You can suppress this exception.*",
    r"\s*To suppress .*",
    r"\s*from user code:.*",
    r"\s*For more details about this graph break.*",
    r"\s*For even more developer context.*",
)
_CUT = re.compile("|".join(f"(?:{b})" for b in _BOILERPLATE), re.DOTALL)
_COMPILER_ERROR = re.compile(r"(?:^|\s)(?:fatal )?error:\s*(?P<text>.+?)$", re.MULTILINE)
_PTXAS_ERROR = re.compile(
    r"^ptxas\S*(?: \S+, line \d+;)?\s+(?:fatal|error)\s*:\s*(?P<text>.+)$", re.MULTILINE
)
_TRITON_ERROR = re.compile(r"^at \d+:\d+:\n(?:.*\n)*?\s*\^\s*\n(?P<text>.+)$", re.MULTILINE)
"""Triton prints the source of the kernel before the message."""
_KEEP = r"(?:bfloat16|float\d+(?:_e\dm\d\w*)?|u?int\d+(?:_t)?|complex\d+|sm_\d+[af]?|compute_\d+[af]?|std\d+|fp\d+\w*|[iuf]\d{1,2}(?=\W)|c10d?|cu\d\d|dim\d?d|conv[123]d|pool[123]d|log1p|log2|log10|exp2|atan2|index_put2|SIG\w+)"
_HIDDEN = r"<(?:token|key|credentials|user|host|home|email|ip|mac|cut)(?:-\d+)?>"
_BLANK: tuple[tuple[str, str], ...] = (
    # the number of a secret depends on the other secrets of the run
    (r"<(token|key|credentials|user|host|email|ip|mac|cut)-\d+>", r"<\1>"),
    (r"\b[LG]\[['\"]\w+['\"]\](?:\[[^\]]*\]|\.\w+\(\)|\.\w+)*", "<input>"),
    (r"0x[0-9a-fA-F]+", "<addr>"),
    (rf"(?:(?:/|~/|<home>/)(?:[\w.+@~-]|{_HIDDEN})+)+/?[\w.+@~-]*", "<path>"),
    (r"\b[cf]?[a-z2-7]{45,}\b|\b[0-9a-f]{16,}\b", "<hash>"),
    (r"\b[Ll]_\w+", "<input>"),
    (r"torch\.Size\(\[[^\]]*\]\)", "<shape>"),
    (r"[\[(]\s*-?[su]?\d+(?:\s*,\s*-?[su]?\d+)*\s*,?\s*[\])]", "<shape>"),
    (r"\b(?:line|pid|process|thread) \d+", "<where>"),
    # FX numbers repeated names of nodes: erf_4 in a model is erf in its smallest program
    (r"\b(?!sm_|compute_|cuda_)([A-Za-z]\w*?[A-Za-z])_\d+\b", r"\1"),
)
_BLANKS = [(re.compile(pattern), text) for pattern, text in _BLANK]
_SET = re.compile(r"\{[^{}:]+,[^{}:]+\}")
"""A set: its elements are in no order. A dict has colons."""
_NUMBER = re.compile(rf"(?P<keep>\b{_KEEP}\b)|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:UL|L|u|l)?")


_KERNEL_ERROR = re.compile(
    r"(?:CUDA error|HIP error|Triton Error \[\w+\]): (?P<what>an illegal memory access was encountered"
    r"|an illegal instruction was encountered|misaligned address|unspecified launch failure"
    r"|device-side assert triggered|invalid program counter|hardware stack error"
    r"|operation not supported on global/shared address space"
    r"|the launch timed out and was terminated)"
)
"""Errors of a kernel that ran. Any later call into the driver reports them."""


def error_of_gpu_kernel(message: str) -> str:
    """Return what a kernel did on a GPU, such as ``misaligned address``; empty for other messages.

    The driver reports it at a later call, so the stack of the exception says nothing of the kernel.
    """
    found = _KERNEL_ERROR.search(message)
    return found["what"] if found else ""


def telling_line(message: str) -> str:
    """Return the line of a message that describes the error: the first ``error:`` of a compiler, or
    else the first line.
    """
    text = _CUT.sub("", message)
    if error := _PTXAS_ERROR.search(text) or _TRITON_ERROR.search(text):
        return error["text"].strip()
    if error := _COMPILER_ERROR.search(text):
        text = error["text"]
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def normalise_message(message: str) -> str:
    """Return a message without the parts that depend on the model, the machine or the run.

    Compiler output (up to 96 kB, the command first) becomes its first ``error:`` line.
    """
    text = telling_line(message)
    for pattern, blank in _BLANKS:
        text = pattern.sub(blank, text)
    text = _NUMBER.sub(lambda m: m["keep"] or "#", text)
    text = _SET.sub(lambda m: f"{{{', '.join(sorted(re.split(', *', m[0][1:-1])))}}}", text)
    text = re.sub(r"[‘’`]", "'", text)
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 3] + "..."
