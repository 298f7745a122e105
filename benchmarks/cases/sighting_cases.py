"""Which known bugs ``collect_sightings`` captures, with which settings, and how each shows itself.

Runs that were tried and have no line in benchmarks/data/sightings.jsonl:

- gelu_inf: eager mode is wrong, and the verdict is ok.
- early_exit in a host without ``--fail-on graph-break``: the graphs around the break are compiled, and the
  verdict is ok. early_exit_fullgraph asks for whole graphs, and fails for a different reason: a guard
  on a value that is not known.
- pool_grad at sizes 161 and 221 with torch 2.13, where_chain with torch 2.9: they compile within 40
  seconds.
- kernel_hangs with torch 2.9: the injected C++ needs usleep, which the header of that version does
  not declare.
- jacfwd_trace, acosh_large and hessian_trace with torch 2.14 and 2.15, shift_clone and copy_then_mutate
  with torch 2.15: the bugs are fixed.
- jacfwd_dynamic with torch 2.14 and 2.15: Dynamo breaks the graph, which is a different failure.
- local_class with torch 2.9: that version traces no class statement at all, which is a different gap.

Some lines need an explanation:

- jacfwd_dynamic is jacfwd_trace alone with ``--dynamic``: it fails in Dynamo, with an assertion about
  inference mode. In a host it gets to the kernel, and fails as pytorch#190856.
- oob_abort: two threads abort at the same time, and their messages mix. The message of the first one
  may be complete, or reduced to the type, or empty.
- kv_cache and counter are the same mistake (an integer attribute) in two programs that are fixed
  separately, so they have two labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

DYNAMIC, STATIC = ("--dynamic",), ("--no-dynamic",)
AUTOTUNE, TRAIN = ("--mode", "max-autotune-no-cudagraphs"), ("--train",)
ALL_HOSTS = ("mlp", "block", "conv")
EXCEPTION, CRASH, WRONG = ("exception",), ("crash",), ("wrong-result",)
COMPARED = ("--compare", "--ablate")
QUICK = ("--no-compare", "--timeout", "40")


@dataclass(frozen=True)
class Case:
    """A bug, how it shows itself, and the settings that it is captured with."""

    label: str
    """The bug: a public issue, or the cause."""
    kinds: tuple[str, ...]
    """Kinds of verdicts that the bug causes."""
    sizes: tuple[int, int]
    pattern: str = ""
    """A regular expression that the message must match, which only the cause makes."""
    bug: str = ""
    """``BUG`` of ``cases/inject``."""
    options: tuple[str, ...] = ("--no-compare",)
    variations: tuple[tuple[str, ...], ...] = (DYNAMIC, AUTOTUNE)
    """Further options, each tried once: the first one without a host, the others in one."""
    hosts: tuple[str, ...] = ("mlp", "block")
    factory: str = ""
    """Name of the factory, where it is not that of the case."""


CASES: dict[str, Case] = {
    "keyerror_buf": Case("196570", EXCEPTION, (8, 12), r"'buf\d+'", hosts=ALL_HOSTS),
    "jacfwd_half": Case("194706", EXCEPTION, (3, 4), r"error:"),
    "relu_cpp": Case(
        "inductor-testing-relu-compile", EXCEPTION, (8, 20), r"compile error!|compile_error"
    ),
    "relu_backend": Case(
        "dynamo-testing-relu-backend",
        EXCEPTION,
        (8, 20),
        "ReluCompileError",
        variations=(DYNAMIC, TRAIN),
    ),
    "lowering_raises": Case(
        "injected-lowering-raise",
        EXCEPTION,
        (8, 20),
        "injected lowering bug",
        "raise",
        hosts=ALL_HOSTS,
    ),
    "own_pass": Case("made-custom-pass", EXCEPTION, (8, 20), r"nodes has \d+ exp2"),
    "own_backend": Case(
        "made-custom-backend", EXCEPTION, (8, 20), r"no kernel for", variations=(DYNAMIC, TRAIN)
    ),
    "no_fake": Case(
        "made-no-fake-kernel",
        ("exception", "graph-break"),
        (8, 20),
        r"fake",
        variations=(DYNAMIC,),
        hosts=ALL_HOSTS,
    ),
    "fake_raises": Case(
        "made-fake-raises",
        ("exception", "graph-break"),
        (8, 20),
        "picky takes one dim",
        variations=(DYNAMIC,),
        hosts=ALL_HOSTS,
    ),
    "constraint": Case(
        "made-constraint-violation", EXCEPTION, (8, 20), r"[Cc]onstraint", variations=(AUTOTUNE,)
    ),
    "jacfwd_trace": Case(
        "190856", CRASH, (3, 4), "Segmentation", hosts=ALL_HOSTS, variations=(AUTOTUNE,)
    ),
    "jacfwd_dynamic": Case(
        "jacfwd-dynamic-fw-primal",
        EXCEPTION,
        (3, 4),
        "_fw_primal",
        options=("--no-compare", "--dynamic"),
        variations=(),
        factory="jacfwd_trace",
    ),
    "oob_abort": Case(
        "oob-abort", CRASH, (100_000, 250_000), "out of bounds|std::runtime_error|std::terminate"
    ),
    "relu_throws": Case("inductor-testing-relu-throw", EXCEPTION, (8, 20), "unhandled error"),
    "lowering_segv": Case("injected-lowering-segv", CRASH, (8, 20), "Segmentation", "segv"),
    "kernel_abort": Case("injected-kernel-abort", CRASH, (8, 20), "Aborted", "kernel-abort"),
    "kernel_segv": Case("made-kernel-segv", CRASH, (8, 20), "Segmentation"),
    "acosh_large": Case("183768", WRONG, (20, 37), options=COMPARED, variations=(), hosts=("mlp",)),
    "hessian_trace": Case("190855", WRONG, (3, 4), options=COMPARED, variations=(), hosts=("mlp",)),
    "shift_clone": Case("197829", WRONG, (6, 9), options=COMPARED, variations=(), hosts=("mlp",)),
    "dtype_view": Case("198101", WRONG, (4, 7), options=COMPARED, variations=(), hosts=("mlp",)),
    "copy_then_mutate": Case(
        "198131", WRONG, (3, 5), options=COMPARED, variations=(), hosts=("mlp",)
    ),
    "relu_wrong": Case(
        "inductor-testing-relu-accuracy",
        WRONG,
        (8, 20),
        options=COMPARED,
        variations=(),
        hosts=("mlp",),
    ),
    "log1p_wrong": Case(
        "inductor-testing-log1p-accuracy",
        WRONG,
        (8, 20),
        options=COMPARED,
        variations=(),
        hosts=("mlp",),
    ),
    "local_class": Case(
        "197896",
        ("graph-break",),
        (3, 5),
        "__build_class__",
        options=("--no-compare", "--fail-on", "graph-break"),
        variations=(DYNAMIC, ("--fullgraph",)),
    ),
    "early_exit": Case(
        "item-early-exit",
        ("graph-break",),
        (4, 7),
        "Tensor.item",
        options=("--no-compare", "--fail-on", "graph-break"),
        variations=(DYNAMIC,),
    ),
    "early_exit_fullgraph": Case(
        "item-early-exit-fullgraph",
        EXCEPTION,
        (4, 7),
        "data-dependent expression",
        options=("--no-compare", "--fullgraph"),
        variations=(),
        factory="early_exit",
    ),
    "processor_identity": Case(
        "163329", ("recompile-limit", "recompile-storm"), (4, 7), "processor", variations=(DYNAMIC,)
    ),
    "counter": Case(
        "int-attribute",
        ("recompile-limit", "recompile-storm"),
        (3, 5),
        r"\bn\b",
        variations=(STATIC,),
    ),
    "kv_cache": Case(
        "kv-cache-index",
        ("recompile-limit", "recompile-storm"),
        (16, 24),
        "_current_idx",
        variations=(STATIC,),
    ),
    "lock_pass": Case("made-lock-pass", ("hang",), (16, 24), variations=(DYNAMIC,), hosts=("mlp",)),
    "lowering_hangs": Case(
        "injected-lowering-hang",
        ("hang",),
        (8, 20),
        bug="hang",
        variations=(DYNAMIC,),
        hosts=("mlp",),
    ),
    "kernel_hangs": Case(
        "injected-kernel-hang",
        ("hang",),
        (8, 20),
        bug="kernel-hang",
        variations=(DYNAMIC,),
        hosts=("mlp",),
    ),
    "where_chain": Case(
        "192498", ("hang", "slow-compile"), (16, 19), options=QUICK, hosts=("mlp",), variations=()
    ),
    "square_chain": Case(
        "192498", ("hang", "slow-compile"), (16, 19), options=QUICK, hosts=("mlp",), variations=()
    ),
    "pool_grad": Case(
        "181653", ("hang", "slow-compile"), (161, 221), options=QUICK, hosts=("mlp",), variations=()
    ),
}


@dataclass(frozen=True)
class Variant:
    """The settings of one run of a case."""

    size: int
    host: str
    options: tuple[str, ...] = ()


def variants_of(case: Case, is_few: bool) -> Iterator[Variant]:
    """Yield the runs of a case: without a host, in hosts, and with further options, at two sizes.
    With ``is_few``, yield only one run without a host, at the larger size.
    """
    small, large = case.sizes
    if is_few:
        yield Variant(large, "alone")
        return
    yield Variant(small, "alone")
    for number, host in enumerate(case.hosts):
        yield Variant(case.sizes[(number + 1) % 2], host)
    for number, options in enumerate(case.variations):
        host = case.hosts[0] if number else "alone"
        yield Variant(case.sizes[(number + 1) % 2], host, options)
