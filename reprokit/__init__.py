"""Turn a failing, hanging or silently wrong ``torch.compile`` run into a reproduction pack."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import takes 13 ms, which each Python process with REPROKIT_WATCH would pay
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

__version__ = "0.2.0"


def watch(on_failure: str = "", folder: str = "reprokit-out", values: bool = False) -> None:
    """Prepare this process, so that ``reprokit attach`` can say more about it if it hangs.

    Other processes of the same user may then read its stacks, it writes them itself on a signal,
    and its last compile phases are in memory. Call it once, at the start of the program. It has no
    effect under ``reprokit capture``, and on systems other than Linux.

    With ``on_failure="record"``, what torch traces of the last compiles is kept in memory, at most
    32 MiB. It is written to a file below ``folder``, of at most 50 MiB, when a compile raises, when
    a function reaches the recompile limit, when a compiled call raises and nothing catches the
    error, and on the signal ``SIGRTMAX - 7``. The same error at the same place is written once. The
    program goes on as it would. ``reprokit capture FILE`` makes a proved repro of the file.

    The file has the graphs with the lines of the program, and the sizes and types of their inputs.
    It also has the call that failed as a program: the source of the function and of what it uses,
    and its plain arguments, which may be secret. Only the user may read the file. With ``values``
    it also has the values of tensors of at most 64 elements, except parameters.

    Raises:
        ValueError: ``on_failure`` is something else.
    """
    import importlib

    if on_failure not in ("", "record"):
        raise ValueError(f'on_failure is {on_failure!r}, and may be "record" or ""')
    prepare = importlib.import_module("reprokit.agent.prepare")
    prepare.prepare_process(on_failure, folder, values)


def record(folder: str = "reprokit-out", values: bool = False) -> "AbstractContextManager[str]":
    """Write what torch traces of each compile inside a ``with`` block to a file below ``folder``.

    The block gets the path of the file. ``reprokit capture FILE`` says what failed in it, and makes
    a proved repro. A function that torch has compiled before the block is not in the file.
    ``values`` has the meaning that it has for :func:`watch`.
    """
    import importlib

    module = importlib.import_module("reprokit.agent.failures.failure_records")
    recorded: AbstractContextManager[str] = module.record_compiles(folder, values)
    return recorded


def save(
    function: "Callable[..., Any]",
    args: "Sequence[Any]" = (),
    kwargs: "Mapping[str, Any] | None" = None,
    folder: str = "reprokit-out",
    values: bool = False,
) -> str:
    """Write ``torch.compile(function)(*args, **kwargs)`` as a program of its own, and return the
    path of its file. It is below ``folder``, or among the temporary files if that cannot be
    written.

    The program has the source of the function or module and of what it uses, and imports installed
    packages. A module or object is made from its class and its attributes; the function, properties
    and constructors of the user are not called. Tensors are random, with the same shapes, strides,
    dtypes and devices: floats from a normal distribution, integers 0 or 1. With ``values``, tensors
    of at most 64 elements have their values, except parameters. Options of ``torch.compile`` are
    not in the program, and views do not share their memory. A warning names attributes that cannot
    be written. ``reprokit capture -- python FILE`` goes on from there.

    Raises:
        ValueError: something that the call needs cannot be written as Python text.
    """
    import importlib

    module = importlib.import_module("reprokit.agent.failures.failure_records")
    path: str = module.save_call(function, args, kwargs or {}, folder, values)
    return path


def canary(
    compiled: "Any", every: int = 1000, folder: str = "reprokit-out", values: bool = False
) -> "Any":
    """Compare the first and then one in ``every`` calls of a compiled module or function with
    eager.

    A module is returned itself, and a function as a different one; use what is returned. The
    program gets the results of the compiled call. The eager call and one in float64, which decides
    what is rounding, run in forked processes, so they change nothing of the program. The first
    difference is written to a file below ``folder``, with the call as a program; a line on stderr
    names it. ``reprokit capture FILE`` makes a proved repro of it. Nothing is compared afterwards.
    ``values`` has the meaning that it has for :func:`watch`.

    A call that draws random numbers is not compared. Nothing is compared in a program that uses a
    GPU or several ranks, of a module in shared memory, and on systems other than Linux. A line on
    stderr says so, once.

    Raises:
        ValueError: ``compiled`` is not compiled, or ``every`` is no positive integer.
    """
    import importlib

    module = importlib.import_module("reprokit.agent.failures.canary")
    return module.add_canary(compiled, every, folder, values)


def load_ipython_extension(shell: "Any") -> None:
    """Add the cell magic ``%%reprokit``; IPython calls this for ``%load_ext reprokit``."""
    import importlib

    # by name: every module imports this package, and so must not depend on the magic
    importlib.import_module("reprokit.integrations.cell_magic").register_magic(shell)
