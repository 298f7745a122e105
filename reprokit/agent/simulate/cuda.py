"""Replace the functions from which Dynamo, AOT, Inductor and Triton learn about GPUs.

No CUDA function is called. A symbol that this torch or Triton lacks is not replaced, and its name
is returned. The replacements remain for the rest of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...core.shared.simulation import Gpu
from ..record import compile_settings
from ..torch_hooks.symbols import wrap_function
from . import attention, refuse_driver


class SymbolReplacer:
    """Replace symbols of torch or Triton, and collect the names of those that are missing."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.replaced: list[str] = []
        """Names such as ``torch.cuda.is_available``."""

    def replace_symbol(self, owner: Any, name: str, value: Any, is_new: bool = False) -> None:
        """Replace ``owner.name``; with ``is_new`` it may be missing, as in a torch without CUDA."""
        if not is_new and not hasattr(owner, name):
            self.missing.append(f"{owner_name(owner)}.{name}")
            return
        if isinstance(value, FunctionType):  # the code of a graph has the names of functions
            value.__module__, value.__name__, value.__qualname__ = owner_name(owner), name, name
        setattr(owner, name, value)
        self.replaced.append(f"{owner_name(owner)}.{name}")

    def wrap_symbol(
        self, owner: Any, name: str, make_hook: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        """Replace the function ``owner.name`` by ``make_hook(function)``."""
        if hasattr(owner, name):
            wrap_function(owner, name, make_hook)
            self.replaced.append(f"{owner_name(owner)}.{name}")
        else:
            self.missing.append(f"{owner_name(owner)}.{name}")


def owner_name(owner: Any) -> str:
    """Return the name of a module or class."""
    return str(getattr(owner, "__name__", type(owner).__name__))


def install_gpu(gpu: Gpu, count: int = 1) -> list[str]:
    """Simulate ``count`` GPUs, and return the names of the symbols that torch or Triton lacks."""
    replacer = SymbolReplacer()
    # first, because Dynamo keeps the functions of torch.cuda when it is imported
    _replace_cuda(replacer, gpu, count)
    _replace_fake_tensors(replacer)
    _replace_inductor(replacer)
    _replace_autotuning(replacer)
    _replace_triton(replacer, gpu)
    attention.replace_attention(gpu.capability)
    if not replacer.missing:
        refuse_driver.refuse_entry_points(frozenset(replacer.replaced))
    return replacer.missing


class SimulatedProperties(SimpleNamespace):
    """The result of ``torch.cuda.get_device_properties``."""


def _replace_cuda(replacer: SymbolReplacer, gpu: Gpu, count: int) -> None:
    properties = SimulatedProperties(
        name=gpu.name,
        major=gpu.major,
        minor=gpu.minor,
        multi_processor_count=gpu.multi_processor_count,
        regs_per_multiprocessor=gpu.regs_per_multiprocessor,
        warp_size=gpu.warp_size,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=gpu.max_threads_per_multi_processor,
        total_memory=gpu.total_memory,
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=gpu.shared_memory_per_block_optin,
        shared_memory_per_multiprocessor=gpu.shared_memory_per_block_optin + 1024,
        L2_cache_size=gpu.L2_cache_size,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
        uuid="simulated",
        pci_bus_id=0,
    )
    functions: dict[str, Callable[..., Any]] = {
        "device_count": lambda: count,
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: properties,
        "synchronize": lambda device=None: None,
        "set_device": lambda device: None,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "is_current_stream_capturing": lambda: False,
        "reset_peak_memory_stats": lambda device=None: None,
        "_lazy_init": lambda: None,
        "get_rng_state": lambda device="cuda": torch.zeros(16, dtype=torch.uint8),
        "mem_get_info": lambda device=None: (gpu.total_memory, gpu.total_memory),
    }
    for name, function in functions.items():
        replacer.replace_symbol(torch.cuda, name, function)
    replacer.replace_symbol(torch.cuda.graphs, "is_current_stream_capturing", lambda: False)
    entry_points: dict[str, Callable[..., Any]] = {
        "_cuda_getDeviceCount": lambda: count,
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_getCurrentRawStream": lambda index: 0,
    }
    for name, function in entry_points.items():
        replacer.replace_symbol(torch._C, name, function, is_new=True)


def _replace_fake_tensors(replacer: SymbolReplacer) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    # a new fake tensor mode reads whether it may initialize the device
    replacer.replace_symbol(FakeTensorMode, "avoid_device_init", property(lambda self: True))


class _OnCpu(TorchDispatchMode):
    """Run operators that create tensors on the CPU instead of on the simulated GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {k: _cpu_device(v) for k, v in (kwargs or {}).items()}
        return func(*map(_cpu_device, args), **kwargs)


def _cpu_device(value: Any) -> Any:
    is_device = isinstance(value, torch.device) and value.type == "cuda"
    return torch.device("cpu") if is_device else value


def _replace_inductor(replacer: SymbolReplacer) -> None:
    from torch._inductor.constant_folding import ConstantFolder
    from torch._inductor.fx_passes import joint_graph
    from torch._inductor.runtime import triton_helpers

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def run_on_cpu(*args: Any, **kwargs: Any) -> Any:
            with _OnCpu():  # type: ignore[no-untyped-call]
                return real(*args, **kwargs)

        return run_on_cpu

    # constant folding executes operators of one element on the device of the graph
    replacer.wrap_symbol(ConstantFolder, "run", make_hook)
    if folder := getattr(joint_graph, "UniformValueConstantFolder", None):
        replacer.wrap_symbol(folder, "_add_peephole_patterns", make_hook)
    replacer.replace_symbol(triton_helpers, "set_driver_to_gpu", lambda: None)


def _replace_autotuning(replacer: SymbolReplacer) -> None:
    """Make max-autotune select the first Triton template, because nothing can be timed."""
    import torch._inductor.config as config
    from torch._inductor.select_algorithm import AlgorithmSelectorCache, ExternKernelCaller

    def benchmark(self: Any, choices: Any, *args: Any, **kwargs: Any) -> dict[Any, float]:
        return {
            choice: number + 1000.0 * isinstance(choice, ExternKernelCaller)
            for number, choice in enumerate(choices, 1)
        }

    replacer.replace_symbol(AlgorithmSelectorCache, "benchmark", benchmark)
    replacer.replace_symbol(
        AlgorithmSelectorCache,
        "make_precompile_fn",
        lambda *args, **kwargs: lambda *args, **kwargs: {},
    )
    compile_settings.OWN_KEYS.update(("benchmark_epilogue_fusion", "benchmark_fusion"))
    for name in ("benchmark_epilogue_fusion", "benchmark_fusion"):
        replacer.replace_symbol(config, name, False)


def _replace_triton(replacer: SymbolReplacer, gpu: Gpu) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class SimulatedUtils:
        def get_device_properties(self, device: int) -> dict[str, int]:
            return {
                "max_shared_mem": gpu.shared_memory_per_block_optin,
                "multiprocessor_count": gpu.multi_processor_count,
                "warpSize": gpu.warp_size,
                "max_num_regs": gpu.regs_per_multiprocessor,
                "sm_clock_rate": 1_980_000,
                "mem_clock_rate": 2_619_000,
                "mem_bus_width": 5_120,
            }

        def load_binary(self, *_: Any) -> tuple[int, int, int, int, int]:
            return 0, 0, 0, 0, 1024  # module, function, registers, spills, threads

    class SimulatedLauncher:
        """Launch nothing."""

        def __init__(self, *_: Any) -> None:
            pass

        def __call__(self, *_: Any, **__: Any) -> None:
            return None

    class SimulatedDriver:
        """Answer the calls that Triton makes to its CUDA driver."""

        utils = SimulatedUtils()
        launcher_cls = SimulatedLauncher

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", gpu.capability, gpu.warp_size)

        def get_current_device(self) -> int:
            return 0

        def set_current_device(self, device: int) -> None:
            return None

        def get_current_stream(self, device: int = 0) -> int:
            return 0

        def get_active_torch_device(self) -> Any:
            return torch.device("cuda", 0)

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_benchmarker(self) -> Any:
            return lambda call, quantiles=(), **_: [0.0 for _ in quantiles]

    replacer.replace_symbol(driver, "_active", SimulatedDriver())
