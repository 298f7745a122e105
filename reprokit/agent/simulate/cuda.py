"""Make Dynamo, AOT, Inductor and Triton believe that GPUs are there. No CUDA function is called.

Each replacement looks first whether what it replaces is there; what is not is told, by name. The
process is given over to the simulation: nothing is put back.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

from ...core.shared.simulation import Gpu
from ..record import compile_settings
from ..torch_hooks.hooking import wrap_function
from . import attention, refuse_driver


class SymbolReplacer:
    """Puts our own in the place of something of torch or Triton, and notes what is not there to be
    replaced.
    """

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.done: list[str] = []
        """What was replaced, as ``torch.cuda.is_available``."""

    def put(self, owner: Any, name: str, value: Any, is_new: bool = False) -> None:
        """Replace ``owner.name``; ``is_new`` where builds without CUDA do not have it."""
        if not is_new and not hasattr(owner, name):
            self.missing.append(f"{owner_name(owner)}.{name}")
            return
        if isinstance(value, FunctionType):  # a graph names the functions that it calls
            value.__module__, value.__name__, value.__qualname__ = owner_name(owner), name, name
        setattr(owner, name, value)
        self.done.append(f"{owner_name(owner)}.{name}")

    def around(
        self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        """Replace a function by one that calls it."""
        if hasattr(owner, name):
            wrap_function(owner, name, make)
            self.done.append(f"{owner_name(owner)}.{name}")
        else:
            self.missing.append(f"{owner_name(owner)}.{name}")


def owner_name(owner: Any) -> str:
    """The name of a module or class."""
    return str(getattr(owner, "__name__", type(owner).__name__))


def install_gpu(torch: Any, gpu: Gpu, count: int = 1) -> list[str]:
    """Let ``count`` GPUs be there; gives the names of what this torch or Triton does not have.

    ``torch.cuda`` comes first: Dynamo keeps the functions that it finds there when it is imported.
    """
    put = SymbolReplacer()
    _cuda(torch, put, gpu, count)
    _fake_tensors(put)
    _inductor(torch, put)
    _autotuning(put)
    _triton(torch, put, gpu)
    attention.replace_attention(torch, gpu.capability)
    if not put.missing:
        refuse_driver.refuse_entry_points(torch, frozenset(put.done))
    return put.missing


class SimulatedProperties(SimpleNamespace):
    """What ``torch.cuda.get_device_properties`` gives."""


def _cuda(torch: Any, put: SymbolReplacer, gpu: Gpu, count: int) -> None:
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
    answers: dict[str, Callable[..., Any]] = {
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
    for name, answer in answers.items():
        put.put(torch.cuda, name, answer)
    put.put(torch.cuda.graphs, "is_current_stream_capturing", lambda: False)
    put.put(torch._C, "_cuda_getDeviceCount", lambda: count, is_new=True)
    put.put(torch._C, "_cuda_cudaCachingAllocator_is_enabled", lambda: True, is_new=True)
    put.put(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, is_new=True)


def _fake_tensors(put: SymbolReplacer) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    # a fake tensor mode asks when it is made whether it may touch the device
    put.put(FakeTensorMode, "avoid_device_init", property(lambda self: True))


def _inductor(torch: Any, put: SymbolReplacer) -> None:
    from torch._inductor.constant_folding import ConstantFolder
    from torch._inductor.fx_passes import joint_graph
    from torch._inductor.runtime import triton_helpers
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnCpu(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            def moved(value: Any) -> Any:
                is_device = isinstance(value, torch.device) and value.type == "cuda"
                return torch.device("cpu") if is_device else value

            return func(*map(moved, args), **{k: moved(v) for k, v in (kwargs or {}).items()})

    def under(real: Callable[..., Any]) -> Callable[..., Any]:
        def on_cpu(*args: Any, **kwargs: Any) -> Any:
            with OnCpu():
                return real(*args, **kwargs)

        return on_cpu

    # constant folding executes operators of one element where the graph is
    put.around(ConstantFolder, "run", under)
    if folder := getattr(joint_graph, "UniformValueConstantFolder", None):
        put.around(folder, "_add_peephole_patterns", under)
    put.put(triton_helpers, "set_driver_to_gpu", lambda: None)


def _autotuning(put: SymbolReplacer) -> None:
    """Nothing can be timed: of what max-autotune may choose from, the first Triton template is the
    fastest.
    """
    import torch._inductor.config as config
    from torch._inductor.select_algorithm import AlgorithmSelectorCache, ExternKernelCaller

    def benchmark(self: Any, choices: Any, *args: Any, **kwargs: Any) -> dict[Any, float]:
        return {
            c: place + 1000.0 * isinstance(c, ExternKernelCaller)
            for place, c in enumerate(choices, 1)
        }

    put.put(AlgorithmSelectorCache, "benchmark", benchmark)
    put.put(
        AlgorithmSelectorCache,
        "make_precompile_fn",
        lambda *args, **kwargs: lambda *args, **kwargs: {},
    )
    compile_settings.OURS.update(("benchmark_epilogue_fusion", "benchmark_fusion"))
    for name in ("benchmark_epilogue_fusion", "benchmark_fusion"):
        put.put(config, name, False)


def _triton(torch: Any, put: SymbolReplacer, gpu: Gpu) -> None:
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

    class SimulatedDriver:
        """Triton asks it what its CUDA driver would answer."""

        utils = SimulatedUtils()
        launcher_cls = None

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

    put.put(driver, "_active", SimulatedDriver())
