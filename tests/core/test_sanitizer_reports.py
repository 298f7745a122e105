"""The reports of the sanitizers name the operator, the buffer and the line of a crash."""

from __future__ import annotations

import dataclasses

import pytest

from reprokit.core.judge import same_failure
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.stacks import sanitizer_reports
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.crash_sites import CrashSite
from reprokit.core.records.dumps import Fault, Frame
from reprokit.core.records.finding import identity_of_title
from reprokit.core.records.observation import Observation

KEY = "c" + "a" * 50
FILE = f"/run/sanitized/generated/ab/{KEY}.main.cpp"
LIBRARY = FILE.replace(".cpp", ".so")
PYTHON = "#9|cfunction_call|Objects/methodobject.c|553|/usr/lib/libpython3.11.so.1.0\n"
BODY = """
extern "C"  void  kernel(const float* in_ptr0,
                       const int64_t* in_ptr1,
                       float* out_ptr0)
{
    auto tmp0 = in_ptr0[static_cast<int64_t>(x0)]; // reprokit: aten.mul.Tensor | /home/me/net.py:7
    TORCH_CHECK((0 <= tmp9) & (tmp9 < 10L), "index out of bounds: 0 <= tmp9 < 10L"); // reprokit: aten.index.Tensor
    auto tmp1 = in_ptr1[static_cast<int64_t>(4L + tmp9)];
    tmp2.store(out_ptr0 + static_cast<int64_t>(x0 + 3L*x1), static_cast<int64_t>(3L)); // reprokit: aten.add.Tensor | /home/me/net.py:9
    auto tmp3 = ([&]{ *(volatile int*)0 = 1; return tmp2; }()); // reprokit: aten.erf.default
}
"""
CPP = f"#include <torch/csrc/inductor/cpp_prefix.h>\n{BODY.strip()}\nPyObject* kernel_py() {{}}"
MODULE = f"""
cpp_fused_mul_0 = async_compile.cpp_pybinding(['const float*'], r'''
{BODY.strip()}
''')
def call(args):
    buf3 = torch.ops.aten._efficientzerotensor.default([3], dtype=torch.float32)
    buf4 = buf3
    assert_size_stride(arg1_1, (5, 2), (2, 1))
    buf5 = empty_strided_cpu((9, 9), (9, 1), torch.float32)
    buf6 = buf5; del buf5  # reuse
    cpp_fused_mul_0(buf4, reinterpret_tensor(arg1_1, (10, ), (1, ), 0), buf6)
"""


def line_of(text: str) -> int:
    return next(n for n, row in enumerate(CPP.splitlines(), 1) if text in row)


def report(head: str, *frames: str, before: str = "") -> str:
    stack = "".join(f"#{n}|{frame}\n" for n, frame in enumerate(frames))
    after = "freed by thread T0 here:\n#0|free|<null>|0|/usr/lib/libasan.so.8\n"
    return f"{before}==7==ERROR: AddressSanitizer: {head}\n{stack}{PYTHON}\n{after}"


def site_of(text: str) -> CrashSite:
    read = sanitizer_reports.read_report(text)
    assert read is not None and read.culprit is not None
    site = sanitizer_reports.find_site(read, CPP, ["import torch", MODULE])
    assert site is not None
    return site


NULL = "SEGV on unknown address 0x0 (pc 0x7)\nThe signal is caused by a READ memory access.\nHint: address points to the zero page."
KERNEL = f"kernel|{FILE}|{{}}|{LIBRARY}"


def test_a_null_pointer_is_named_by_the_operator_that_returned_it() -> None:
    """Each use of the buffer fails, so the operator that uses it first is chance."""
    at = line_of("tmp0 =")
    said = f"{FILE}:{at}:42: runtime error: load of null pointer of type 'const float'\n"
    header = f"_mm512_loadu_ps|/usr/lib/gcc/include/avx512.h|80|{LIBRARY}"
    site = site_of(report(NULL, header, KERNEL.format(at), before=said))
    assert site.identity == "null pointer, aten._efficientzerotensor"
    assert (site.operator, site.line) == ("aten.mul", "/home/me/net.py:7")
    assert (site.buffer, site.made_by, site.index) == ("buf4", "aten._efficientzerotensor", "x0")
    assert site.function == "cpp_fused_mul_0"
    assert site.code == "auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];"
    assert "load of null pointer of type 'const float'" in site.error
    assert site.frames == (f"kernel in generated code:{at}",)


def test_a_load_that_the_compiler_joins_with_its_use_is_found() -> None:
    """The report names the line of the operation, which has no pointer."""
    cpp = CPP.replace("    auto tmp3", "    auto tmp5 = float(tmp0 + tmp4);\n    auto tmp3")
    number = next(n for n, row in enumerate(cpp.splitlines(), 1) if "tmp5 =" in row)
    read = sanitizer_reports.read_report(report(NULL, KERNEL.format(number)))
    assert read is not None
    site = sanitizer_reports.find_site(read, cpp, [MODULE.replace(BODY.strip(), cpp.strip())])
    assert site is not None
    assert site.code == "auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];"
    assert site.operator == "aten.mul"


def test_an_access_out_of_bounds_has_the_buffer_and_its_size() -> None:
    head = (
        "heap-buffer-overflow on address 0x7 at pc 0x1\nWRITE of size 12 at 0x7 thread T0\n"
        "0x7 is located 8 bytes to the right of 324-byte region [0x1,0x2)"
    )
    rows = report(head, KERNEL.format(line_of("tmp2.store")))
    # the region is printed after the stack
    site = site_of(rows)
    assert site.identity == "invalid write, aten.add"
    assert site.index == "x0 + 3L*x1"
    assert (site.buffer, site.memory) == ("buf6", "float32, size (9, 9), stride (9, 1)")
    assert "write of 12 bytes" in site.error and "324 bytes" in site.error


def test_a_checked_index_is_named_with_the_buffer_that_it_indexes() -> None:
    """The C++ runtime and the functions that throw are no part of it."""
    site = site_of(
        report(
            "ABRT on unknown address 0x1",
            "__GI_abort|stdlib/abort.c|79|/usr/lib/libc.so.6",
            "__cxa_throw|<null>|0|/usr/lib/libstdc++.so.6",
            "c10::detail::torchCheckFail(char const*)|<null>|0|/torch/lib/libc10.so",
            f"kernel._omp_fn.0|{FILE}|{line_of('TORCH_CHECK')}|{LIBRARY}",
        )
    )
    assert site.identity == "index out of bounds, aten.index"
    assert site.index == "0 <= tmp9 < 10L"
    assert site.buffer.startswith("reinterpret_tensor(arg1_1")


@pytest.mark.parametrize(
    ("frames", "identity"),
    [
        ([KERNEL.format(line_of("tmp3 ="))], "null pointer, aten.erf"),
        (
            [
                "void at::internal::f<at::native::AVX2::copy_kernel(at::Tensor&)::{lambda()#1}>|<null>|0|/torch/lib/libtorch_cpu.so",
                "at::_ops::sort::call(at::Tensor const&)|<null>|0|/torch/lib/libtorch_cpu.so",
            ],
            "null pointer, aten.sort in torch",
        ),
        (
            [
                "scale_rows|/home/me/scale.cpp|1|/home/me/libscale.so",
                "<null>|<null>|0|/usr/lib/libffi.so.8",
            ],
            "null pointer, scale_rows in libscale.so",
        ),
    ],
)
def test_generated_code_aten_and_a_library_are_three_identities(
    frames: list[str], identity: str
) -> None:
    assert site_of(report(NULL, *frames)).identity == identity


def test_a_text_without_a_report_has_no_site() -> None:
    undefined = f"{FILE}:3:1: runtime error: signed integer overflow\n"
    assert sanitizer_reports.read_report(undefined) is None


FAULT = Fault(1, "Segmentation fault", (Frame("/tmp/torchinductor_me/ab/cm.py", "call", 3),))
SEEN = Observation(exit_status=-11, faults=(FAULT,), has_instrumentation=True, is_watched=True)
SITE = CrashSite("generated code", "invalid read", "SEGV, read", "cpp_fused_0", "aten.erf")


def test_the_site_is_a_part_of_the_signature_and_of_the_verdict() -> None:
    """Without a site, the signature is as before; a candidate without one is the same failure."""
    alone, other = SEEN, dataclasses.replace(SITE, operator="aten.index")
    signed = {}
    for name, site in {"none": None, "erf": SITE, "index": other}.items():
        seen = dataclasses.replace(alone, crash_site=site)
        verdict = judge_run(seen)
        signed[name] = verdict, sign_verdict(verdict, seen)
    none, erf, index = (signed[name][1] for name in ("none", "erf", "index"))
    assert none.title == "crash: kernel-run | SIGSEGV in <generated>:call"
    assert erf.title == f"{none.title} | invalid read, aten.erf"
    assert identity_of_title(erf.title) == erf.parts
    verdict = signed["erf"][0]
    assert "invalid read in the code of aten.erf" in verdict.reason
    assert "AddressSanitizer: SEGV, read, in cpp_fused_0 (generated code)" in verdict.evidence
    assert same_failure.compare_failures(erf, verdict, none) == same_failure.SAME
    assert same_failure.compare_failures(none, verdict, erf) == same_failure.SAME
    assert same_failure.compare_failures(erf, verdict, index) == same_failure.OTHER


def test_memory_that_compiled_code_damaged_is_a_crash_of_compiled_code() -> None:
    """The signal comes later, in code that has nothing to do with it."""
    later = Fault(1, "Aborted", (Frame("/home/me/train.py", "save", 3),))
    seen = dataclasses.replace(SEEN, exit_status=-6, faults=(later,))
    assert judge_run(seen).kind == "error-in-eager"
    found = judge_run(dataclasses.replace(seen, crash_site=SITE))
    assert (found.kind, found.phase) == ("crash", "kernel-run")
    outside = dataclasses.replace(SITE, place="libscale.so")
    assert judge_run(dataclasses.replace(seen, crash_site=outside)).kind == "error-in-eager"
