"""Find the current phase of the compiler, from the innermost frame with a phase or from the open
events.

Frames are more precise than events (passes and C++ builds have no events), so callers try
:func:`phase_of_frames` first. The tables are for torch 2.9 to 2.13. A file that is not in them gets
the phase of its folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from reprokit.core.records.dumps import Frame

CALLER = "caller"
"""In place of a phase: the function is called in several phases, so the caller decides."""

# (phase, file, function): the first match decides; file and function are regular expressions for
# the normalised frame
_BY_FRAME: tuple[tuple[str, str, str], ...] = (
    (
        "collective",
        r"torch/distributed/(?!elastic/|launcher/|run\.py).*|torch/_C/_distributed.*",
        r".*",
    ),
    ("collective", r".*", r"wait_tensor"),
    ("guards", r"torch/_dynamo/guards\.py|torch/_dynamo/.*guard.*\.py", r".*"),
    (
        "dynamo-trace",
        r"torch/_dynamo/(symbolic_convert|bytecode_.*|side_effects|codegen)\.py",
        r".*",
    ),
    ("dynamo-trace", r"torch/_dynamo/variables/.*|torch/_dynamo/polyfills/.*", r".*"),
    (
        "partition",
        r"torch/_functorch/partitioners\.py|torch/_functorch/_activation_checkpointing/.*",
        r".*",
    ),
    # the wrappers that AOTAutograd writes as text, and those of classes, call compiled code
    ("kernel-run", r"torch/_functorch/_aot_autograd/(subclass_)?codegen\.py:codegen\(.*", r".*"),
    (
        "kernel-run",
        r"torch/_functorch/_aot_autograd/runtime_wrappers\.py",
        r".*runtime_wrapper|__call__|__torch_dispatch__|forward|backward|run.*|<torn>",
    ),
    (
        "aot",
        r"torch/_functorch/_aot_autograd/runtime_wrappers\.py",
        r"(pre|post)_compile|get_or_compile|_prepare_lazy_backward_context|build|_?codegen_.*",
    ),
    (CALLER, r"torch/_functorch/_aot_autograd/(runtime_wrappers|utils)\.py", r".*"),
    (
        "aot",
        # not the function transforms (vmap, grad ...), which eager code uses too
        r"torch/_functorch/(?!(apis|eager_transforms|vmap|autograd_function|pyfunctorch|functional_call|deprecated|predispatch|utils)\.py).*",
        r".*",
    ),
    # the call of a package that AOTInductor compiled
    ("kernel-run", r"torch/export/pt2_archive/_package\.py", r"__call__"),
    (CALLER, r"torch/_export/\w*utils\.py|torch/export/(dynamic_shapes|_unlift)\.py", r".*"),
    ("export", r"torch/(export|_export)/.*", r".*"),
    (
        "fx-passes",
        r"torch/_inductor/(fx_passes/.*|pattern_matcher\.py|constant_folding\.py|freezing\.py)",
        r".*",
    ),
    ("fx-passes", r"torch/_inductor/compile_fx\.py", r"_recursive_.*_passes"),
    ("cpp-build", r"torch/_inductor/(cpp_builder|cpu_vec_isa)\.py", r".*"),
    (
        "cpp-build",
        r"torch/_inductor/codecache\.py",
        r"_?(compile_file|load_async|load_fn|_worker_compile_cpp|cpp_compile.*|_precompile_header)",
    ),
    (
        "ttir",
        r"triton/compiler/(code_generator|compiler)\.py|triton/language/.*|triton/backends/.*",
        r"make_ttir|make_ir|ast_to_ttir|visit.*",
    ),
    ("ttgir", r"triton/backends/.*", r"make_ttgir"),
    ("llir", r"triton/backends/.*", r"make_llir"),
    ("ptx", r"triton/backends/.*", r"make_ptx"),
    ("ptxas", r"triton/backends/.*", r"make_cubin"),
    (
        "triton-compile",
        r"torch/_inductor/runtime/(triton_heuristics|compile_tasks)\.py|triton/(compiler|backends)/.*",
        r".*",
    ),
    ("kernel-run", r"triton/.*|torch/_inductor/(cudagraph_trees|output_code)\.py", r".*"),
    ("worker-wait", r"torch/_inductor/(async_compile|compile_worker/.*)(\.py)?", r".*"),
    ("codegen", r"torch/_inductor/codegen/.*", r".*"),
    ("codegen", r"torch/_inductor/scheduler\.py", r"_?codegen.*"),
    ("scheduler", r"torch/_inductor/(scheduler|memory|comms|dependencies)\.py", r".*"),
    ("codegen", r"torch/_inductor/graph\.py", r"_?codegen.*|_?compile_to_module|compile_to_fn"),
    (
        "lowering",
        r"torch/_inductor/(graph|lowering|ir|decomposition)\.py|torch/_inductor/kernel/.*",
        r".*",
    ),
    ("codegen", r"torch/_inductor/codecache\.py", r".*"),
    ("lowering", r"torch/_inductor/compile_fx\.py", r".*codegen_and_compile"),
    ("kernel-run", r"<generated>", r"call|forward|<module>|partition_\d+"),
    ("backend", r"torch/_inductor/compile_fx\.py|torch/_dynamo/(repro|backends)/.*", r".*"),
    ("backend", r"torch/_dynamo/output_graph\.py", r"_?call_user_compiler"),
    ("dynamo-trace", r"torch/_dynamo/(output_graph|convert_frame)\.py", r".*"),
    ("cache-load", r"torch/compiler/_cache\.py", r".*"),
    ("build", r"<agent>", r"build_target"),
    ("import", r"<frozen>", r"(?!_run_code$|_run_module_as_main$).*"),  # those of python -m
)

# event name -> phase: the innermost open event that matches decides
_BY_EVENT: tuple[tuple[str, str], ...] = (
    (r"build_guards|.*[gG]uard.*", "guards"),
    (
        r"bytecode_tracing|dynamo|entire_frame_compile|_compile\.compile_inner|compile_attempt_\d+",
        "dynamo-trace",
    ),
    (r"min_cut.*|.*partition.*", "partition"),
    (
        r".*_passes(\..*)?|.*_pass(\..*)?|joint_graph.*|additional_fake_tensor_prop|pass\..*",
        "fx-passes",
    ),
    (r"aot_.*|create_aot_dispatcher_function|AOTAutograd.*", "aot"),
    (r"GraphLowering\.run", "lowering"),
    (
        r"Scheduler\.codegen|GraphLowering\.(codegen|compile_to_.*)|PythonWrapperCodegen\..*|code_gen|.*\.codegen",
        "codegen",
    ),
    (r"Scheduler\..*", "scheduler"),
    (r"compile_file|CppCodeCache.*|AotCodeCompiler.*|.*cpp.*build.*", "cpp-build"),
    (r"async_compile\.(wait|precompile)|.*worker.*", "worker-wait"),
    (r"triton.*|CachingAutotuner.*", "triton-compile"),
    (r"PyCodeCache.*", "codegen"),
    (r"fx_codegen_and_compile|inductor_compile|compile_fx.*", "lowering"),
    (r"backend_compile|OutputGraph\.call_user_compiler", "backend"),
    (r"stage:import", "import"),
    (r"stage:build", "build"),
    (r"stage:eager-\d+", "eager"),
    (r"stage:call-\d+", "run"),
    (r"stage:(load|save)", "cache-load"),
)

TRITON_STAGES = ("ttir", "ttgir", "llir", "ptx", "ptxas")
"""The stages in which Triton compiles a kernel, in this order. Before and between them the phase is
``triton-compile``.
"""

OUTSIDE_COMPILER = "outside of the compiler"
"""Where a program is that runs its own code, compiled functions or not."""
PHASE_WORDS = {
    "import": "importing torch",
    "build": "building the model",
    "eager": "calling the model without torch.compile",
    "run": "calling the model",
    "dynamo-trace": "tracing with Dynamo",
    "guards": "building guards",
    "export": "exporting the model",
    "backend": "calling the backend",
    "aot": "tracing with AOTAutograd",
    "partition": "splitting forward and backward",
    "fx-passes": "running FX passes",
    "lowering": "lowering to Inductor's IR",
    "scheduler": "scheduling kernels",
    "codegen": "generating code",
    "cpp-build": "compiling C++",
    "triton-compile": "compiling a Triton kernel",
    "ttir": "compiling a Triton kernel to Triton IR",
    "ttgir": "compiling a Triton kernel to Triton GPU IR",
    "llir": "compiling a Triton kernel to LLVM IR",
    "ptx": "compiling a Triton kernel to PTX",
    "ptxas": "assembling a Triton kernel with ptxas",
    "worker-wait": "waiting for a compile worker",
    "cache-load": "loading or saving the artifacts of a cache",
    "kernel-run": "running compiled code",
    "collective": "in a collective operation",
}
"""What a process does in each phase, for people."""

COMPILE_PHASES = frozenset(
    {"dynamo-trace", "guards", "partition", "aot", "fx-passes", "cpp-build", "triton-compile"}
    | {"export", "worker-wait", "codegen", "scheduler", "lowering", "backend", "cache-load"}
    | set(TRITON_STAGES)
)
"""Phases of the compiler, in contrast to those of the target and of compiled code."""

WAITS_FOR_CHILD = frozenset({"cpp-build", "worker-wait", "triton-compile", "ptxas"})
"""Phases in which a different process may do the work."""

FINE_HEARTBEAT = {"dynamo-trace": "line", "lowering": "node"}
"""Phases that journal each user line or each graph node, with the unit of these records."""

COARSE = re.compile(
    r"torch/_dynamo/(output_graph|convert_frame|backends/.*|repro/.*)(\.py)?|torch/_inductor/compile_fx\.py|torch/_functorch/.*"
)
"""Files whose functions call whole phases. An open event of a ``FINE`` phase is more precise."""

FINE = frozenset(
    {
        "guards",
        "partition",
        "fx-passes",
        "lowering",
        "scheduler",
        "codegen",
        "cpp-build",
        "worker-wait",
        "triton-compile",
    }
)

_FRAMES = [(p, re.compile(f), re.compile(n)) for p, f, n in _BY_FRAME]
_EVENTS = [(re.compile(e), p) for e, p in _BY_EVENT]


def phase_of_frames(frames: Iterable[Frame]) -> tuple[str, Frame] | None:
    """Return the phase of the innermost normalised frame with a phase, and that frame."""
    importing: tuple[str, Frame] | None = None
    for frame in frames:
        phase = _phase_of_frame(frame)
        if phase == "import":
            # the compiler imports modules too, so its frames further out decide
            importing = importing or (phase, frame)
        elif phase not in ("", CALLER):
            return phase, frame
    return importing


def _phase_of_frame(frame: Frame) -> str:
    function = frame.function.rsplit(".", 1)[-1]
    return next(
        (
            phase
            for phase, file, name in _FRAMES
            if file.fullmatch(frame.file) and name.fullmatch(function)
        ),
        "",
    )


def phase_of_events(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the phase of the innermost open event with a phase, and that event; ``names`` is
    outermost first.
    """
    for name in reversed(names):
        for pattern, phase in _EVENTS:
            if pattern.fullmatch(name):
                return phase, name
    return None


def is_compiling(names: Sequence[str]) -> bool:
    """Return whether the innermost of these open events with a phase is in the compiler."""
    phase = phase_of_events(names)
    return phase is not None and phase[0] in COMPILE_PHASES
