"""Compare one call in many of a compiled module or function with eager, while the program runs.

The program gets the results of its compiled call. The eager call works on copies of the arguments
and of the state of modules, draws from the same random numbers, which are put back, and may write
to no other tensor. What stands in the way of that turns the canary off, with one line on stderr.
"""

from __future__ import annotations

import contextlib
import copy
import dis
import functools
import json
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..results import compare_results, float64, followed_calls, result_recorder
from ..torch_hooks import trace_file
from . import call_programs, failure_records

T = TypeVar("T")
DIFFERENCE = "reprokit_difference"
"""The record of what differs."""
_CONTAINERS = (list, dict, set, deque)
_STATELESS = (
    *(type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType),
    *(functools.partial, torch.Tensor),
)
_PARTS = ("_parameters", "_buffers", "_modules")
_TENSORS = ("_parameters", "_buffers")
MAX_REACHED = 50_000
"""Limit of the objects whose state is put back."""
_pytree = torch.utils._pytree


class _TurnedOff(Exception):
    """Why calls cannot be compared."""


def add_canary(compiled: Any, every: int, folder: str, has_values: bool) -> Any:
    """Return ``compiled``, or a function in its place, with the comparison.

    Raises ValueError if it is not compiled, or ``every`` is below 1.
    """
    if every < 1:
        raise ValueError(f"every is {every!r}, and must be 1 or more")
    if isinstance(compiled, torch.nn.Module):
        original = getattr(compiled, "_orig_mod", None)
        if original is not None:
            check = Canary(original, compiled.forward, every, folder, has_values)
            check.backend = _backend_of(compiled)
            compiled.__dict__["forward"] = check.call
            return compiled
        if (call := getattr(compiled, "_compiled_call_impl", None)) is not None:
            check = Canary(compiled, call, every, folder, has_values)
            compiled._compiled_call_impl = check.call
            return compiled
    function = getattr(compiled, "_torchdynamo_orig_callable", None)
    if function is None:
        raise ValueError(f"{compiled!r:.200} is not compiled; give it what torch.compile returns")
    check = Canary(function, compiled, every, folder, has_values)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        return check.call(*args, **kwargs)

    return checked


class Canary:
    """The comparison of the calls of one compiled module or function."""

    def __init__(
        self,
        original: Any,
        compiled: Callable[..., Any],
        every: int,
        folder: str,
        has_values: bool,
    ) -> None:
        """``compiled`` is called for the program, and ``original`` is what was compiled."""
        self._original, self._compiled = original, compiled
        self._every, self._folder, self._has_values = every, folder, has_values
        self._count = 0
        self._is_off = False
        self.backend: Any = None
        self.compared = 0
        """How many calls were compared."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function, and compare the call if it is its turn."""
        if torch.compiler.is_compiling() or self._is_off:
            return self._compiled(*args, **kwargs)
        self._count += 1
        if (self._count - 1) % self._every:
            return self._compiled(*args, **kwargs)
        before = self._attempt(lambda: _Before(self._original, args, kwargs))
        out = self._compiled(*args, **kwargs)
        if before is not None:
            taken = before
            self._attempt(lambda: self._compare(taken, args, kwargs, out))
        return out

    def _attempt(self, step: Callable[[], T]) -> T | None:
        """Run a step of the comparison; a problem turns the canary off, and the program goes on."""
        try:
            return step()
        except Exception as problem:
            why = str(problem) if isinstance(problem, _TurnedOff) else f"{problem!r:.300}"
            self._turn_off(why)
            return None

    def _turn_off(self, why: str) -> None:
        self._is_off = True
        with contextlib.suppress(Exception):
            sys.stderr.write(f"reprokit: the canary of {self._name} is off: {why}\n")

    @property
    def _name(self) -> str:
        return str(getattr(self._original, "__name__", type(self._original).__name__))

    def _compare(self, before: _Before, args: Any, kwargs: Any, out: Any) -> None:
        compiled = _rows_of(out, args, kwargs, before.buffers())
        eager = before.run_eager(self._original)
        self.compared += 1
        found = _important(compare_results.find_differences(eager, compiled, {}))
        if found and (wide := self._in_float64(before)) is not None:
            found = _important(compare_results.find_differences(eager, compiled, wide))
        elif found:  # integers may depend on rounding
            found = [row for row in found if row["what"] != "integers"]
        if found:
            self._write(before, found[0])

    def _in_float64(self, before: _Before) -> compare_results.ResultRows | None:
        """Return the rows of a call in float64; None if a copy cannot make one."""
        original = self._original
        if not isinstance(original, torch.nn.Module):
            return None  # what a function reads would be changed too
        with contextlib.suppress(Exception), before.restored(), torch.no_grad():
            wide = copy.deepcopy(original)
            args, kwargs = _copied_arguments(before.args), _copied_arguments(before.kwargs)
            with _random_state(before.random):
                out, args, kwargs = float64.call_in_float64(wide, args, kwargs)
            return _rows_of(out, args, kwargs, [])
        return None

    def _write(self, before: _Before, row: compare_results.DifferenceRow) -> None:
        """Write the call and what differs, and end the comparison."""
        call = call_programs.CallToSave(self._original, before.args, before.kwargs)
        with before.restored():
            text = failure_records.text_or_reason(
                lambda: call_programs.program_of_call(call, (), self.backend, self._has_values)
            )
        facts = {**row, "call": self._count, "function": self._name}
        path = failure_records.new_file(self._folder)
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(trace_file.version_line())
            file.write(trace_file.record_line(DIFFERENCE, json.dumps(facts)))
            file.write(trace_file.record_line(failure_records.CALL, text))
        what = f"{row['name']} of {self._name} differs from eager in call {self._count}; the call"
        failure_records.announce(path, what)
        self._is_off = True


class _Before:
    """What a call had before it: copies of its arguments, and the state of what it can reach."""

    def __init__(self, original: Any, args: Any, kwargs: Any) -> None:
        """Raises _TurnedOff if an eager call beside the compiled one would not be safe."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            raise _TurnedOff("the process is one of several ranks")
        leaves = _pytree.tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if _is_tensor(leaf)]
        if len({_storage_of(leaf) for leaf in tensors}) < len(tensors):
            raise _TurnedOff("two of its arguments share memory")
        self.args, self.kwargs = _copied_arguments(args), _copied_arguments(kwargs)
        self.random = _random_states()
        owners = [module for _, module in followed_calls.modules_of(original)]
        inner = [one for owner in owners for one in owner.modules()]
        functions = [original, *(getattr(type(one), "forward", None) for one in inner)]
        self._reached = list(_reachable([*owners, *leaves, *_values_read(functions)]))
        # the compiled call may change tensors of modules in place
        self._state = [_with_copies(value, _state_of(value), []) for value in self._reached]

    def _present_state(self) -> list[Any]:
        return [_state_of(value) for value in self._reached]

    def buffers(self) -> list[tuple[str, Any]]:
        """Return the buffers that the modules have now."""
        modules = (one for one in self._reached if isinstance(one, torch.nn.Module))
        return [
            (f"buffer {number} {key}", value)
            for number, module in enumerate(modules)
            for key, value in module._buffers.items()
        ]

    @contextlib.contextmanager
    def restored(self) -> Iterator[list[Any]]:
        """Give what the call can reach its earlier state, with copies of tensors, and put the
        present one back. The context gets the copies.
        """
        now = self._present_state()
        copies: list[Any] = []
        try:
            for value, state in zip(self._reached, self._state, strict=True):
                _set_state(value, _with_copies(value, state, copies))
            yield copies
        finally:
            for value, state in zip(self._reached, now, strict=True):
                _set_state(value, state)

    def run_eager(self, original: Any) -> compare_results.ResultRows:
        """Return the rows of the call without the compiler.

        Raises _TurnedOff if it draws random numbers, or writes to other tensors than its own.
        """
        args, kwargs = _copied_arguments(self.args), _copied_arguments(self.kwargs)
        is_drawn = not _are_equal(self.random, _random_states())
        with self.restored() as copies, torch.no_grad(), _random_state(self.random):
            own = _OwnTensorsOnly([*copies, *_pytree.tree_leaves((args, kwargs))])
            with torch.compiler.set_stance("force_eager"), own:
                out = original(*args, **kwargs)
            if is_drawn or not _are_equal(self.random, _random_states()):
                raise _TurnedOff("it draws random numbers, which differ in compiled code")
            return _rows_of(out, args, kwargs, self.buffers())


def _values_read(functions: Sequence[Any]) -> Iterator[Any]:
    """Yield the values of the global and outer variables that functions read, and that functions
    read which they name.

    Raises _TurnedOff if one of them sets such a variable, because that cannot be put back.
    """
    waiting, seen = deque(functions), set[int]()
    while waiting:
        function = getattr(waiting[0], "__func__", waiting[0])
        waiting.popleft()
        is_torchs = str(getattr(function, "__module__", "")).partition(".")[0] == "torch"
        if not isinstance(function, types.FunctionType) or is_torchs or id(function) in seen:
            continue
        seen.add(id(function))
        values = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
        for code in _codes_of(function.__code__):
            for row in dis.get_instructions(code):
                is_outer = row.argval in function.__code__.co_freevars
                if row.opname == "STORE_GLOBAL" or (row.opname == "STORE_DEREF" and is_outer):
                    raise _TurnedOff(f"it sets the variable {row.argval}")
            names = (name for name in code.co_names if name in function.__globals__)
            values += [function.__globals__[name] for name in names]
        waiting += values
        yield from values


def _codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _codes_of(value)


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # the variable has no value yet
        return False


def _reachable(roots: Sequence[Any]) -> Iterator[Any]:
    """Yield the modules, objects and containers that can be reached by attributes and elements.

    Raises _TurnedOff if they are too many.
    """
    waiting, seen = deque(roots), set[int]()
    while waiting:
        value = waiting.popleft()
        if id(value) in seen or not _has_state(value):
            continue
        if len(seen) >= MAX_REACHED:
            raise _TurnedOff(f"it can reach more than {MAX_REACHED} objects")
        seen.add(id(value))
        yield value
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, _CONTAINERS):
            waiting += value
        else:
            waiting += (one for key, one in vars(value).items() if key not in _TENSORS)
            if isinstance(value, torch.nn.Module):
                waiting += value._modules.values()


def _has_state(value: Any) -> bool:
    if isinstance(value, (torch.nn.Module, *_CONTAINERS)):
        return True
    if isinstance(value, _STATELESS) or type(value).__module__.partition(".")[0] == "torch":
        return False
    return isinstance(getattr(value, "__dict__", None), dict)


def _state_of(value: Any) -> Any:
    """Return a shallow copy of the state. That of a module has its buffers too."""
    if isinstance(value, _CONTAINERS):
        return copy.copy(value)
    state = {key: one for key, one in vars(value).items() if key not in _PARTS}
    if isinstance(value, torch.nn.Module):
        return state, dict(value._buffers)
    return state, {}


def _set_state(value: Any, state: Any) -> None:
    if isinstance(value, list):
        value[:] = state
    elif isinstance(value, deque):
        value.clear()
        value.extend(state)
    elif isinstance(value, (dict, set)):
        value.clear()
        value.update(state)
    else:
        attributes, buffers = state
        for key in [key for key in vars(value) if key not in attributes and key not in _PARTS]:
            del value.__dict__[key]
        value.__dict__.update(attributes)
        if isinstance(value, torch.nn.Module):
            value._buffers.clear()
            value._buffers.update(buffers)


def _with_copies(value: Any, state: Any, copies: list[Any]) -> Any:
    """Return a state with copies of the tensors of a module, which are added to ``copies``."""
    if not isinstance(value, torch.nn.Module):
        return state
    made = tuple({key: _copied(one) for key, one in part.items()} for part in state)
    copies += [one for part in made for one in part.values() if _is_tensor(one)]
    return made


class _OwnTensorsOnly(TorchDispatchMode):
    """Refuses operators that write to a tensor which is neither given nor made inside of it."""

    def __init__(self, own: Sequence[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._own = {_storage_of(leaf) for leaf in own if _is_tensor(leaf)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        if schema.is_mutable:
            given = {**dict(zip((a.name for a in schema.arguments), args, strict=False)), **kwargs}
            for argument in schema.arguments:
                is_written = argument.alias_info is not None and argument.alias_info.is_write
                for leaf in _pytree.tree_leaves(given.get(argument.name)) if is_written else ():
                    if _is_tensor(leaf) and _storage_of(leaf) not in self._own:
                        raise _TurnedOff("it writes to a tensor that is no argument and no buffer")
        others = {
            _storage_of(leaf) for leaf in _pytree.tree_leaves((args, kwargs)) if _is_tensor(leaf)
        } - self._own
        out = func(*args, **kwargs)
        made = {_storage_of(leaf) for leaf in _pytree.tree_leaves(out) if _is_tensor(leaf)}
        self._own |= made - others
        return out


def _rows_of(
    out: Any, args: Any, kwargs: Any, more: list[tuple[str, Any]]
) -> compare_results.ResultRows:
    recorder = result_recorder.ResultRecorder("", "")
    arguments = result_recorder.named_arguments(args, kwargs)
    recorder.note_call(0, out, [*arguments, *more], is_random=False)
    return {(row["call"], row["name"]): row for row in recorder.rows}


def _important(
    rows: Sequence[compare_results.DifferenceRow],
) -> list[compare_results.DifferenceRow]:
    """Return the differences that are no noise, and in which eager is not the side that is wrong.

    Strides and memory that is shared are allowed to differ.
    """
    return [
        row
        for row in rows
        if row["side"] in ("compiled", "unknown") and row["what"] not in ("stride", "aliasing")
    ]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _storage_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _copied(value: Any) -> Any:
    if not _is_tensor(value):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _copied_arguments(tree: T) -> T:
    copies: T = _pytree.tree_map(_copied, tree)
    return copies


def _random_states() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


def _are_equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@contextlib.contextmanager
def _random_state(states: Sequence[torch.Tensor]) -> Iterator[None]:
    """Draw from these states of the generators, and put the present ones back."""
    now = _random_states()
    try:
        _set_random_states(states)
        yield
    finally:
        _set_random_states(now)


def _set_random_states(states: Sequence[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])


def _backend_of(compiled: Any) -> Any:
    """Return the backend of a compiled module, inside of what Dynamo puts around it."""
    found = getattr(getattr(compiled, "dynamo_ctx", None), "callback", None)
    for _ in range(8):
        inner = getattr(found, "_torchdynamo_orig_backend", None)
        if inner is None:
            break
        found = inner
    return found
