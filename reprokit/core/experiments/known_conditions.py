"""The conditions that can be changed for a program: what each one changes, sets and checks."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from reprokit.core.experiments.failure_conditions import Change, Condition


@dataclass(frozen=True)
class Machine:
    """What the conditions need to know of the machine on which the failure occurred."""

    capability: str = "DEFAULT"
    """``torch.backends.cpu.get_cpu_capability()``: DEFAULT, AVX2, AVX512 and others."""
    threads: int = 1
    """OpenMP threads of torch."""
    cpus: int = 1
    """CPUs on which a process may run."""
    cpp_compilers: tuple[str, ...] = ()
    """Other C++ compilers than the default one."""
    allocators: tuple[str, ...] = ()
    """Libraries with a different ``malloc``."""

    @property
    def instructions(self) -> str:
        """The vector instructions as their makers write them."""
        return self.capability.replace("AVX512", "AVX-512")


_NO_VECTORS = Change("none", ("torch._inductor.config.cpp.simdlen = 0",))
_AVX2 = Change("AVX2", ("torch._inductor.config.cpp.simdlen = 256",))
DYNAMIC_SHAPES = "dynamic shapes"
INSTRUCTIONS = "vector instructions"
OF_ATEN = "vector instructions of ATen and Inductor"
LITTLE_MEMORY_GIB = 4
_IS_LITTLE = (
    'int(open("/proc/meminfo").read().split("MemAvailable:")[1].split()[0])'
    f" < {LITTLE_MEMORY_GIB} * 2**20"
)


def _hash_seed(seed: int) -> Change:
    """Return the change to a hash seed; a program must start itself again for it."""
    lines = (
        "import os, sys",
        f'if os.environ.get("PYTHONHASHSEED") != "{seed}":',
        f'    os.environ["PYTHONHASHSEED"] = "{seed}"',
        "    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])",
    )
    return Change(str(seed), variables={"PYTHONHASHSEED": str(seed)}, fixed_by=lines)


_OF_ENVIRONMENT = (
    Condition(
        "hash seed",
        "random",
        (_hash_seed(1),),
        fixed=tuple(map(_hash_seed, (0, 2, 3, 4, 5))),
    ),
    Condition(
        "compile workers",
        "several processes",
        (Change("none", variables={"TORCHINDUCTOR_COMPILE_THREADS": "1"}),),
    ),
    Condition(
        "contents of new memory",
        "as the allocator leaves it",
        (Change("filled", variables={"MALLOC_PERTURB_": "165"}),),
    ),
)
CHANGED_VARIABLES = {
    **{k: v for c in _OF_ENVIRONMENT for k, v in c.changes[0].variables.items()},
    "ATEN_CPU_CAPABILITY": "default",
}
"""The variables with which one run of a proof runs: a failure that it shows needs none of the
conditions of :func:`conditions_of_environment`.
"""
_CAPABILITY = "torch.backends.cpu.get_cpu_capability()"


def conditions_of(machine: Machine, text: str) -> tuple[Condition, ...]:
    """Return the conditions that can be changed for a program on a machine."""
    found = []
    if machine.capability != "DEFAULT":
        is_wide = machine.capability.startswith("AVX512")
        found.append(
            Condition(
                INSTRUCTIONS,
                machine.instructions,
                (_NO_VECTORS, *([_AVX2] * is_wide)),
                checks=_checks(machine),
            )
        )
    many, one = f"{machine.threads} threads", "1 thread"
    other = 1 if machine.threads > 1 else 2
    found.append(
        Condition(
            "OpenMP threads",
            many if machine.threads > 1 else one,
            tuple(
                Change(f"{n} thread{'s' * (n > 1)}", (f"torch.set_num_threads({n})",))
                for n in (other, 2 * machine.cpus + 1)
            ),
            sets=(f"torch.set_num_threads({machine.threads})",),
        )
    )
    if machine.cpus > 1:
        found.append(
            Condition(
                "visible CPUs",
                f"{machine.cpus} CPUs",
                (
                    Change(
                        "1 CPU",
                        (
                            "import os",
                            "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
                        ),
                    ),
                ),
                checks={"len(__import__('os').sched_getaffinity(0)) < 2": "two CPUs"},
            )
        )
    limit = f"{LITTLE_MEMORY_GIB} * 2**30"
    hard = "resource.getrlimit(resource.RLIMIT_DATA)[1]"
    found.append(
        Condition(
            "free memory",
            f"more than {LITTLE_MEMORY_GIB} GiB",
            (
                Change(
                    f"{LITTLE_MEMORY_GIB} GiB",
                    (
                        "import resource",
                        f"resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {hard}))",
                    ),
                ),
            ),
            is_resource=True,
            checks={_IS_LITTLE: f"more than {LITTLE_MEMORY_GIB} GiB of free memory"},
        )
    )
    found.append(
        Condition("random seed", "the default seed", (Change("seed 1", ("torch.manual_seed(1)",)),))
    )
    found += [
        _setting("default dtype", "float32", "float64", "torch.set_default_dtype(torch.float64)"),
        _setting("denormal numbers", "kept", "flushed to zero", "torch.set_flush_denormal(True)"),
        _setting(
            "fast math",
            "off",
            "on",
            "torch._inductor.config.cpp.enable_unsafe_math_opt_flag = True",
        ),
        _setting(
            "compiler caches",
            "on",
            "off",
            "torch._inductor.config.force_disable_caches = True",
            "torch._inductor.config.force_disable_caches = False",
        ),
        _setting(
            DYNAMIC_SHAPES,
            "static first",
            "dynamic from the start",
            "torch._dynamo.config.assume_static_by_default = False",
        ),
    ]
    found += [
        _setting(
            f"C++ compiler ({path})", "g++", path, f"torch._inductor.config.cpp.cxx = ({path!r},)"
        )
        for path in machine.cpp_compilers
    ]
    return tuple(c for c in found if not _is_set_by(text, c))


def _is_set_by(text: str, condition: Condition) -> bool:
    """Return whether the program sets the condition itself, so that lines before do not matter."""
    if condition.name == DYNAMIC_SHAPES and "dynamic=" in text:
        return True
    line = condition.changes[0].lines[-1]
    name, _, _ = line.partition("(")
    if name != line:
        return f"{name}(" in text
    return re.search(rf"{re.escape(line.partition(' =')[0])}\s*=(?!=)", text) is not None


def conditions_of_environment(machine: Machine, text: str = "") -> tuple[Condition, ...]:
    """Return the conditions that only a fresh process can change, and that the program ``text``
    does not set itself.
    """
    found = [*_OF_ENVIRONMENT]
    if machine.capability != "DEFAULT":
        levels = ("default", *(["avx2"] * machine.capability.startswith("AVX512")))
        changes = tuple(
            Change({"default": "none"}.get(level, level), variables={"ATEN_CPU_CAPABILITY": level})
            for level in levels
        )
        found.append(Condition(OF_ATEN, machine.instructions, changes, checks=_checks(machine)))
    return tuple(c for c in found if not any(_sets(text, v) for v in c.changes[0].variables))


def _sets(text: str, variable: str) -> bool:
    """Return whether a program sets an environment variable; it may also only read it."""
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError):
        return variable in text
    return any(variable in _names_set_by(node) for node in nodes)


def _names_set_by(node: ast.AST) -> list[object]:
    """Return the names that an assignment, a call or a dictionary gives a value."""
    keys: list[ast.expr | None] = []
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        keys = [node.slice]
    elif isinstance(node, ast.Dict):
        keys = [*node.keys]
    elif isinstance(node, ast.keyword):
        return [node.arg]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        keys = [*node.args[:1]] if node.func.attr in ("setdefault", "putenv") else []
    return [key.value for key in keys if isinstance(key, ast.Constant)]


def conditions_asked_alone(machine: Machine) -> tuple[Condition, ...]:
    """Return conditions that take two runs each, or that change what others change."""
    warm = Change("filled by a run before", is_warm=True)
    allocators = (
        Condition(
            f"allocator ({library})",
            "malloc of the C library",
            (Change(library, variables={"LD_PRELOAD": library}),),
        )
        for library in machine.allocators
    )
    return (Condition("compiler cache", "empty", (warm,)), *allocators)


def _checks(machine: Machine) -> dict[str, str]:
    return {
        f'not {_CAPABILITY}.startswith("{machine.capability[:6]}")': machine.instructions,
        f'{_CAPABILITY} == "DEFAULT"': "vector instructions",
    }


def _setting(name: str, value: str, changed: str, line: str, sets: str = "") -> Condition:
    return Condition(name, value, (Change(changed, (line,)),), (sets,) if sets else ())
