"""Make programs of the intermediate representation that Triton dumped of its kernels.

Read are the files of ``TRITON_KERNEL_DUMP`` and of the cache (``.ttir``, ``.ttgir``), the
reproducer of MLIR that ``TRITON_REPRODUCER_PATH`` names, and the traces of tritonparse, in which
each line is one event.
"""

from __future__ import annotations

import re
from typing import Any

from reprokit.core.records import bounded_json

MAX_KERNELS = 200
MAX_IR_CHARS = 4 << 20
STAGES = ("ttir", "ttgir")
"""Stages from which Triton compiles a kernel to the end, the first one first."""
_NAME = re.compile(r"\btt\.func (?:public )?@([\w.]{1,200})")
_OPTION = re.compile(r'"?ttg\.(num-warps|num-ctas)"? = (\d{1,4})')
_TARGET = re.compile(r'"?ttg\.target"? = "(cuda):(\d{2,4})"')
_RESOURCES = re.compile(r"\{-#.*?#-\}", re.DOTALL)
_PROGRAM = """\
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget

IR = {text}
path = Path(tempfile.mkdtemp(), "{name}.{stage}")
path.write_text(IR)
triton.compile(str(path), target=GPUTarget("cuda", {capability}, 32), options={options})
"""


def is_dump(text: str) -> bool:
    """Return whether a text is one of these files."""
    return _NAME.search(text) is not None or any(True for _ in _events(text, 1))


def programs_of_dump(text: str, name: str) -> dict[str, str]:
    """Return a program that compiles each kernel, by its name; ``name`` is for one without."""
    if _NAME.search(text) and not text.lstrip().startswith('{"'):
        return {_name_of(text, name): program_of_ir(text, _name_of(text, name))}
    found: dict[str, str] = {}
    for payload in _events(text, MAX_KERNELS):
        metadata = payload.get("metadata")
        content = payload.get("file_content")
        options, is_cuda = _options(metadata if isinstance(metadata, dict) else {})
        texts = content if isinstance(content, dict) else {}
        for stage in STAGES if is_cuda else STAGES[:1]:  # TTGIR is of one vendor
            held = next((one for key, one in texts.items() if key.endswith(f".{stage}")), None)
            if isinstance(held, str) and 0 < len(held) <= MAX_IR_CHARS:
                kernel = _free_name(_name_of(held, name), found)
                found[kernel] = program_of_ir(held, kernel, stage, options)
                break
    return found


def program_of_ir(
    text: str, name: str, stage: str = "", options: dict[str, Any] | None = None
) -> str:
    """Return the program that compiles the representation of one kernel.

    ``stage`` is found in the text if it is not given. ``options`` are those of the compile.
    """
    text = _RESOURCES.sub("", text)  # a reproducer has its pipeline of passes there
    stage = stage or ("ttgir" if "ttg." in text else "ttir")
    found = {key.replace("-", "_"): int(value) for key, value in _OPTION.findall(text)}
    target = _TARGET.search(text)
    return _PROGRAM.format(
        text=_quoted(text),
        name=re.sub(r"\W", "_", name)[:80],
        stage=stage,
        capability=(options or {}).get("arch") or (target[2] if target else 80),
        options={**found, **{k: v for k, v in (options or {}).items() if k != "arch"}},
    )


def _quoted(text: str) -> str:
    """Return a text as a literal over several lines, if it can be one."""
    is_plain = "'''" not in text and "\\" not in text and not text.endswith("'")
    return f"'''\\\n{text}'''" if is_plain else repr(text)


def _name_of(text: str, name: str) -> str:
    found = _NAME.search(text)
    return found[1] if found else name


def _free_name(name: str, taken: dict[str, str]) -> str:
    number = 1
    chosen = name
    while chosen in taken:
        number += 1
        chosen = f"{name}_{number}"
    return chosen


def _events(text: str, count: int) -> list[dict[str, Any]]:
    """Return the payloads of the first compiles of a trace of tritonparse."""
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        if '"compilation"' not in line[:400] and '"compilation"' not in line[-400:]:
            continue
        try:
            event = bounded_json.parse_json(line, MAX_IR_CHARS * 4)
        except ValueError:
            continue
        is_compile = isinstance(event, dict) and event.get("event_type") == "compilation"
        if is_compile and isinstance(payload := event.get("payload"), dict):
            found.append(payload)
            if len(found) == count:
                break
    return found


def _options(metadata: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the options of a compile, and whether it was for an NVIDIA GPU."""
    found = {
        name: value
        for name in ("num_warps", "num_stages", "num_ctas")
        if isinstance(value := metadata.get(name), int) and 0 < value < 1024
    }
    target = metadata.get("target")
    target = target if isinstance(target, dict) else {}
    is_cuda = target.get("backend", "cuda") == "cuda"
    arch = target.get("arch")
    if is_cuda and isinstance(arch, int) and 0 < arch < 10_000:
        found["arch"] = arch
    return found, is_cuda
