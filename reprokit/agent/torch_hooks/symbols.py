"""The private functions of torch and Triton that the agent hooks or replaces.

To support a new torch, edit the rows of ``SYMBOLS``. ``reprokit env --hooks`` shows which of them
an interpreter has.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from ...core.shared.contract import events
from ..record import journal


@dataclass(frozen=True)
class Symbol:
    """A private function or variable of torch or Triton."""

    name: str
    """``module:attribute``, such as ``torch._dynamo.convert_frame:_compile``."""
    purpose: str
    since: str = "2.9"
    """The first supported version of torch that has it."""
    until: str = ""
    """The first version that lacks it; empty if the newest version has it."""

    def is_expected(self, version: tuple[int, int]) -> bool:
        """Whether the table says that this version of torch has it."""
        return parse_version(self.since) <= version and (
            not self.until or version < parse_version(self.until)
        )

    def import_owner(self) -> Any:
        """Import the module, and return the module or class that has the attribute.

        Raises ImportError or AttributeError if this torch lacks it.
        """
        module, _, path = self.name.partition(":")
        owner: Any = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        getattr(owner, name)
        return owner


OLDEST_TORCH = (2, 9)
"""The oldest version that can be captured."""
OLDEST_WITH_FAKE_TENSORS = (2, 12)
"""Torch 2.10 and 2.11 have the setting ``wrap_inductor_compiled_regions``, but cannot run such a
region on fake tensors.
"""


def parse_version(version: str) -> tuple[int, int]:
    """Return ``2.13.0+cpu`` as ``(2, 13)``."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


_DYNAMO, _INDUCTOR = "torch._dynamo", "torch._inductor"
_TRANSLATOR = f"{_DYNAMO}.symbolic_convert:InstructionTranslatorBase"
_SKIPS = "why a CUDA graph is skipped"
_CACHES = "which compiled graphs come from a cache"
_CHECKS = "trial runs in which the C++ compiler only checks the code"
_CODEGEN = "compile to the end of code generation on fake tensors"
_KERNELS = "the kernels that a program launches, without a launch"
_SIMULATED = "the simulation of a GPU"
_OPERATORS = "definitions of the user's own operators"
_STEERING = "which lowerings and handlers a program of a hunt runs"
_SANITIZED = "the operators of a kernel that is built with sanitizers"
HOOKED = (
    Symbol("torch.library:Library.impl", _OPERATORS),
    Symbol(f"{_DYNAMO}.utils:ChromiumEventLogger.log_event_start", "the start of a phase"),
    Symbol(f"{_DYNAMO}.utils:ChromiumEventLogger.log_event_end", "the end of a phase"),
    Symbol(f"{_TRANSLATOR}.starts_line", "which user line is traced"),
    Symbol(f"{_DYNAMO}.output_graph:OutputGraph._call_user_compiler", events.DYNAMO_GRAPHS),
    Symbol(f"{_DYNAMO}.convert_frame:_compile", "exceptions that leave the compiler"),
    Symbol(f"{_DYNAMO}.convert_frame:get_and_maybe_log_recompilation_reasons", "why it recompiles"),
    Symbol(f"{_DYNAMO}.convert_frame:exceeds_recompile_limit", "limits of recompilation"),
    Symbol(f"{_TRANSLATOR}.log_graph_break", "where a graph breaks", since="2.10"),
    Symbol(f"{_DYNAMO}.symbolic_convert:log_graph_break", "where a graph breaks", until="2.10"),
    Symbol(f"{_INDUCTOR}.compile_fx:_compile_fx_inner", "ATen graphs"),
    Symbol(f"{_INDUCTOR}.compile_fx:compile_fx_aot", "exported graphs that AOTInductor compiles"),
    Symbol(f"{_INDUCTOR}.graph:GraphLowering.run_node", "which node is lowered"),
    Symbol(f"{_INDUCTOR}.output_code:CompiledFxGraph.__call__", "calls of compiled graphs"),
    Symbol(f"{_INDUCTOR}.output_code:CompiledFxGraph.__init__", "the buffers of compiled graphs"),
    Symbol(f"{_INDUCTOR}.cudagraph_utils:log_cudagraph_skip_and_bump_counter", _SKIPS),
    Symbol(f"{_INDUCTOR}.output_code:log_cudagraph_skip_and_bump_counter", _SKIPS),
    Symbol(f"{_INDUCTOR}.compile_fx:log_cudagraph_skip_and_bump_counter", _SKIPS),
    Symbol(f"{_INDUCTOR}.codecache:FxGraphCache.load_with_key", _CACHES),
    Symbol(f"{_INDUCTOR}.codecache:FxGraphCache._write_to_local_cache", _CACHES),
    Symbol(f"{_DYNAMO}.package:DynamoCache.load", _CACHES),
    *(
        Symbol(f"torch._functorch._aot_autograd.autograd_cache:{name}", _CACHES)
        for name in ("autograd_cache_key", "AOTAutogradCache.try_load", "AOTAutogradCache.save")
    ),
    Symbol("torch._logging._internal:LogState.is_artifact_enabled", "TORCH_LOGS to a file"),
    Symbol("torch._logging._internal:LOG_TRACE_HANDLER", "TORCH_TRACE beside the program's own"),
    Symbol("torch._logging.structured:from_traceback", "no frames of reprokit in TORCH_TRACE"),
)
"""Symbols that the agent hooks in each run."""
REPLACED = (
    Symbol(f"{_INDUCTOR}.codecache:PyCodeCache.load_by_key_path", _CODEGEN),
    Symbol(f"{_INDUCTOR}.codecache:AotCodeCompiler.compile", "trial runs that stop after a phase"),
    Symbol(f"{_INDUCTOR}.codecache:_worker_compile_cpp", _CHECKS),
    Symbol(f"{_INDUCTOR}.codecache:CppCodeCache._load_library", _CHECKS),
    Symbol(f"{_INDUCTOR}.cpp_builder:run_compile_cmd", _CHECKS),
    Symbol(f"{_INDUCTOR}.cpu_vec_isa:VecISA.check_build", _CODEGEN),
    Symbol(f"{_INDUCTOR}.config:wrap_inductor_compiled_regions", _CODEGEN, since="2.10"),
    Symbol("torch.nn:Module._apply", _CODEGEN),
    Symbol(f"{_INDUCTOR}.graph:GraphLowering.call_function", _STEERING),
    Symbol(f"{_TRANSLATOR}.call_function", _STEERING),
    Symbol(f"{_INDUCTOR}.compiler_bisector:CompilerBisector.disable_subsystem", "ablation"),
    Symbol(f"{_INDUCTOR}.lowering:make_fallback", "ablation"),
    Symbol(f"{_DYNAMO}.guards:profile_guard_manager", "the time of guards"),
    Symbol(f"{_INDUCTOR}.codegen.cpp:CppScheduling.define_kernel", "the lines of a C++ kernel"),
    Symbol(f"{_INDUCTOR}.graph:GraphLowering.run", "trial runs that stop after a phase"),
    Symbol(f"{_INDUCTOR}.graph:GraphLowering.codegen", "trial runs that build nothing"),
    Symbol(f"{_INDUCTOR}.scheduler:Scheduler.codegen", "trial runs that stop after a phase"),
    Symbol(f"{_INDUCTOR}.ir:Loops.__post_init__", _SANITIZED),
    Symbol(f"{_INDUCTOR}.loop_body:LightTracer.create_proxy", _SANITIZED),
    Symbol(f"{_INDUCTOR}.utils:IndentedBuffer.writeline", _SANITIZED),
    Symbol("torch._subclasses.fake_tensor:FakeTensorMode.avoid_device_init", _SIMULATED),
    Symbol(f"{_INDUCTOR}.constant_folding:ConstantFolder.run", _SIMULATED),
    Symbol(f"{_INDUCTOR}.runtime.triton_helpers:set_driver_to_gpu", _SIMULATED),
    Symbol(
        f"{_INDUCTOR}.select_algorithm:AlgorithmSelectorCache.benchmark", _SIMULATED, since="2.10"
    ),
    Symbol(f"{_INDUCTOR}.select_algorithm:AlgorithmSelectorCache.make_precompile_fn", _SIMULATED),
    Symbol(f"{_INDUCTOR}.output_code:CompiledFxGraph.post_compile", _SIMULATED),
    *(
        Symbol(f"torch.cuda:{name}", _SIMULATED)
        for name in (
            "device_count current_device get_device_properties synchronize set_device"
            " _exchange_device _maybe_exchange_device is_current_stream_capturing"
            " reset_peak_memory_stats _lazy_init get_rng_state mem_get_info"
        ).split()
    ),
    Symbol("torch.cuda.graphs:is_current_stream_capturing", _SIMULATED),
    Symbol("torch._subclasses.fake_tensor:FakeTensor.data_ptr", _KERNELS),
    Symbol("triton.runtime.jit:JITFunction._do_compile", _KERNELS),
    Symbol("triton.runtime.autotuner:Autotuner.do_bench", _KERNELS),
)
"""Symbols that the agent replaces in some runs."""
READ = (
    Symbol("torch._library.custom_ops:OPDEFS", _OPERATORS),
    Symbol("torch._library.simple_registry:singleton", _OPERATORS),
    Symbol("torch._library.triton:triton_ops_to_kernels", _OPERATORS),
    Symbol("torch._higher_order_ops.triton_kernel_wrap:kernel_side_table", _OPERATORS),
)
"""Symbols that the agent only reads."""
SYMBOLS = (*HOOKED, *REPLACED, *READ)
_BY_NAME = {symbol.name: symbol for symbol in SYMBOLS}

DYNAMO_HOOKS: list[Callable[[], None]] = []
"""Functions that add hooks when ``torch._dynamo`` has been imported; overrides add theirs here."""
INDUCTOR_HOOKS: list[Callable[[], None]] = []
"""Functions that add hooks when ``torch._inductor.compile_fx`` has been imported."""


class SymbolReport(TypedDict):
    """Whether the torch of this interpreter has a symbol."""

    symbol: str
    purpose: str
    since: str
    until: str
    expected: bool
    """Whether the table says that this torch has it."""
    problem: str
    """Why torch lacks it; empty if it has it."""


class UnsupportedSymbol(Exception):
    """This torch lacks a symbol of the table, or has it with different parameters.

    A newer torch does that, which has moved or changed it.
    """

    def __init__(self, symbol: Symbol, problem: str) -> None:
        super().__init__(problem)
        self.symbol, self.problem = symbol, problem


def attempt_hook(hook: Callable[[], None]) -> None:
    """Install one hook. A hook that this torch does not support is journaled as a problem."""
    try:
        hook()
    except UnsupportedSymbol as unsupported:
        version = sys.modules["torch"].__version__
        journal.write_event(
            events.AgentProblem(
                records=unsupported.symbol.purpose,
                problem=f"torch {version} has {unsupported.problem}",
            )
        )
    except Exception as problem:
        journal.write_event(events.AgentProblem(hook=hook.__name__, problem=repr(problem)))


def has_symbol(name: str) -> bool:
    """Whether this torch has a symbol of the table."""
    return not _problem(_BY_NAME[name])


def wrap_symbol(name: str, make_hook: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the function of a symbol of the table by ``make_hook(function)``.

    Raises UnsupportedSymbol if this torch lacks it, or calls it with different parameters.
    """
    symbol = _BY_NAME[name]
    try:
        owner = symbol.import_owner()
    except (ImportError, AttributeError) as problem:
        raise UnsupportedSymbol(symbol, f"no {name}") from problem

    def make_checked(real: Callable[..., Any]) -> Callable[..., Any]:
        hook = make_hook(real)
        if not _accepts_calls(hook, real):
            raise UnsupportedSymbol(symbol, f"different parameters for {name}")
        return hook

    wrap_function(owner, name.rpartition(":")[2].rpartition(".")[2], make_checked)


def _accepts_calls(hook: Callable[..., Any], real: Callable[..., Any]) -> bool:
    """Whether the parameters that a hook names are the first ones of the function, and the hook
    takes all others too.
    """
    named, takes_more = _parameters(hook)
    there, _ = _parameters(real)
    return named == there[: len(named)] and (takes_more or named == there)


def _parameters(function: Callable[..., Any]) -> tuple[list[str], bool]:
    """Return the names of the parameters, and whether the function takes any further ones."""
    kinds = {p.name: p.kind for p in inspect.signature(function).parameters.values()}
    several = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return [name for name, kind in kinds.items() if kind not in several], several <= {
        *kinds.values()
    }


def wrap_function(
    owner: Any, name: str, make_hook: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Replace ``owner.name`` by ``make_hook(owner.name)``."""
    real = getattr(owner, name)
    setattr(owner, name, functools.wraps(real)(make_hook(real)))


def compile_id() -> str | None:
    """Return Dynamo's id of the current compile, such as ``0/1``."""
    guards = sys.modules.get("torch._guards")
    if guards is None:
        return None
    current = guards.CompileContext.current_compile_id()
    return str(current) if current is not None else None


def check_symbols() -> list[SymbolReport]:
    """Check each row of the table against the torch of this interpreter."""
    import torch

    version = parse_version(torch.__version__)
    has_triton = importlib.util.find_spec("triton") is not None  # many CPU builds run without it
    return [
        {
            "symbol": symbol.name,
            "purpose": symbol.purpose,
            "since": symbol.since,
            "until": symbol.until,
            "expected": symbol.is_expected(version)
            and (has_triton or not symbol.name.startswith("triton.")),
            "problem": _problem(symbol),
        }
        for symbol in SYMBOLS
    ]


def _problem(symbol: Symbol) -> str:
    """Return why this torch lacks a symbol; empty if it has it."""
    try:
        symbol.import_owner()
    except (ImportError, AttributeError) as problem:
        return str(problem)
    return ""
