"""Record the results of each call of a compiled callable, so that runs can be compared.

A run has one role. ``compiled`` and ``repeated`` are the unchanged program. In ``eager`` and
``again``, ``torch.compile`` returns its argument. ``float64`` is eager with every float widened.
Each run writes ``ROLE.pt``, which has plain tensors and texts.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.shared import cuts, without_compile
from ...core.shared.contract import events, run_names
from ...core.shared.result_comparison import COMPILED_ROLES, SEED
from ..record import journal, process_start
from . import followed_calls

if TYPE_CHECKING:
    import torch

    from .compare_results import ResultRow

ROLE = os.environ.get(run_names.RESULTS_VARIABLE, "")
FOLDER = os.environ.get(run_names.RESULTS_DIR_VARIABLE, "")
MAX_BYTES = 1 << 30
"""Limit of the tensors that one run keeps. Other tensors are not compared, and the comparison
reports how many.
"""
MAX_CALLS = 200
"""Later calls are not compared, and the comparison reports how many."""
MAX_STATE_ELEMENTS = 1 << 24
"""Limit of the elements of buffers after calls, and of gradients after backward passes. If the last
ones are not recorded, those at the end of the program are compared.
"""
_recorder: ResultRecorder | None = None

T = TypeVar("T")


def install_recorder(role: str = ROLE, folder: str = FOLDER) -> None:
    """Replace ``torch.compile`` by a recorder; nothing happens without a role."""
    global _recorder
    if not role:
        return
    import torch

    # inputs that a program draws without a seed must be the same in every role
    torch.manual_seed(SEED)
    rank_folders = (f"rank-{rank}" for rank in process_start.rank_if_several())
    _recorder = ResultRecorder(role, os.path.join(folder, *rank_folders))
    if role in COMPILED_ROLES:
        followed_calls.ExportFollower(_recorder.record).replace_export()
    else:
        recorder = _recorder
        without_compile.replace_entries(torch, lambda model, _: recorder.record(model, model))
    torch.compile = _recorder.compile
    followed_calls.follow_backward(_recorder.note_backward)
    if role == "eager":
        from . import operator_contracts

        operator_contracts.check_calls()
    if role == "again":
        from . import conversions

        conversions.note_conversions()
        # this fills uninitialized memory, so that the results of a program that reads it differ
        torch.use_deterministic_algorithms(True, warn_only=True)
    atexit.register(finish_recording)


def discard_results() -> None:
    """Stop the recording: fake tensors have no values to compare."""
    global _recorder
    if _recorder is not None:
        import torch

        torch.compile, _recorder = _recorder.real, None


def finish_recording() -> None:
    """Write the results of this run, and compare them with those of the other roles.

    It runs at the end of the program. Only the first call has an effect.
    """
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is None or not recorder.calls:
        return  # a launcher, whose child has the results
    try:
        recorder.write_file()
        from . import compare_results

        compare_results.journal_differences(recorder.folder)
    except Exception as problem:  # the program must end as it does without the recorder
        journal.write_event(
            events.AgentProblem(hook="results", problem=cuts.cut_head(repr(problem), 500))
        )


class ResultRecorder:
    """Record the results of one run."""

    def __init__(self, role: str, folder: str) -> None:
        import torch

        self.role, self.folder = role, folder
        self.rows: list[ResultRow] = []
        self.left_bytes = self.left_held_bytes = MAX_BYTES
        self.calls = self.skipped_calls = self.skipped_tensors = 0
        self.real: Callable[..., Any] = torch.compile
        self.raised: dict[int, str] = {}
        """Number of a call that raised -> the type of its exception."""
        self._left_state_elements = MAX_STATE_ELEMENTS
        self._are_gradients_noted = self._are_buffers_noted = False
        """Whether those after the last backward pass or the last call are recorded."""
        self._modules: dict[int, tuple[str, torch.nn.Module]] = {}
        self._leaves: dict[int, tuple[str, torch.Tensor]] = {}
        self._used: set[int] = set()
        """The leaves of the calls before the next backward pass, or before the last one."""
        self._is_used_up = False
        self._is_inside = self._has_journaled_problem = False

    def compile(self, model: Any = None, **options: Any) -> Any:
        """Replace ``torch.compile``: record each call; only the role ``compiled`` compiles."""
        import torch

        if model is None:
            return lambda function: self.compile(function, **options)
        is_compiled = self.role in COMPILED_ROLES
        recorded: Any
        if isinstance(model, torch.nn.Module):
            wrapper = (
                self.real(model, **options) if is_compiled else self.real(model, backend="eager")
            )
            inner = wrapper.forward if is_compiled and wrapper is not model else model.__call__
            if wrapper is model:  # its parts were compiled in place
                inner = model.forward
            # every role returns an object of the class that the program expects
            recorded = wrapper.__dict__["forward"] = self.record(inner, model)
            recorded.aot_compile = self._aot_compiler(inner, model, is_bound=True)
            return wrapper
        inner = self.real(model, **options) if is_compiled else model
        recorded = functools.update_wrapper(self.record(inner, model), model)
        recorded.aot_compile = self._aot_compiler(inner, model)
        return recorded

    def record(self, inner: Callable[..., Any], model: Any) -> Any:
        """Return a callable that calls ``inner`` and records the call; ``model`` is what the user
        compiled.
        """

        def recorded(*args: Any, **kwargs: Any) -> Any:
            return self._call(inner, model, *args, **kwargs)

        return recorded

    def _aot_compiler(self, inner: Any, model: Any, is_bound: bool = False) -> Callable[[Any], Any]:
        """Return the method ``aot_compile`` of a compiled callable: what it returns is recorded.

        What the method of a module's forward returns takes the module first.
        """

        def aot_compile(inputs: Any) -> Any:
            compiled = inner.aot_compile(inputs) if self.role in COMPILED_ROLES else inner
            if not is_bound:
                return self.record(compiled, model)

            def recorded(module: Any, *args: Any, **kwargs: Any) -> Any:
                first = (module,) if self.role in COMPILED_ROLES else ()
                return self._call(functools.partial(compiled, *first), model, *args, **kwargs)

            return recorded

        return aot_compile

    def _call(self, inner: Callable[..., Any], model: Any, /, *args: Any, **kwargs: Any) -> Any:
        import torch

        if torch.compiler.is_compiling() or self._is_inside:
            # a callable that is compiled inside a compiled callable is a part of it
            return inner(*args, **kwargs)
        self._is_inside = True
        try:
            number, self.calls = self.calls, self.calls + 1
            torch.manual_seed(SEED + number)
            is_kept = number < MAX_CALLS
            arguments = self._try_step(lambda: named_arguments(args, kwargs)) if is_kept else None
            if arguments is not None:
                leaves = arguments
                self._try_step(lambda: self._keep_for_gradients(leaves, model))
            before = torch.get_rng_state()
            if self.role == "float64":
                from . import float64

                out, args, kwargs = float64.call_in_float64(inner, args, kwargs)
                if is_kept:
                    arguments = self._try_step(lambda: named_arguments(args, kwargs))
            else:
                out = inner(*args, **kwargs)
            is_random = not torch.equal(before, torch.get_rng_state())
            if arguments is None:
                self.skipped_calls += 1
            else:
                named = arguments
                self._try_step(lambda: self.note_call(number, out, named, is_random))
            self._are_buffers_noted = is_kept and self._note_state(number, self._buffers)
            return out
        except Exception as problem:
            self.raised[number] = type(problem).__name__
            raise
        finally:
            self._is_inside = False

    def _try_step(self, step: Callable[[], T]) -> T | None:
        """Run a step of the recording. A failure is journaled once, and the program goes on."""
        try:
            return step()
        except Exception as problem:
            if not self._has_journaled_problem:
                self._has_journaled_problem = True
                journal.write_event(
                    events.AgentProblem(hook="results", problem=cuts.cut_head(repr(problem), 500))
                )
            return None

    def _keep_for_gradients(self, arguments: list[tuple[str, Any]], model: Any) -> None:
        """Keep the leaves and the modules whose gradients and buffers are results."""
        import torch

        if self._is_used_up:
            self._used, self._is_used_up = set(), False
        for name, leaf in arguments:
            if not (isinstance(leaf, torch.Tensor) and leaf.is_leaf and leaf.requires_grad):
                continue
            self._used.add(id(leaf))
            if id(leaf) not in self._leaves:
                size = leaf.numel() * leaf.element_size()
                # a kept leaf is in memory until the program ends
                if size > self.left_held_bytes:
                    self.skipped_tensors += 1
                else:
                    self.left_held_bytes -= size
                    self._leaves[id(leaf)] = name, leaf
        for name, module in followed_calls.modules_of(model):
            if id(module) not in self._modules:
                titles = {title for title, _ in self._modules.values()}
                free = (f"{name}{number or ''}" for number in range(len(titles) + 1))
                title = next(one for one in free if one not in titles)
                self._modules[id(module)] = title, module

    def note_backward(self) -> None:
        """Record the gradients after a backward pass, as results of the last call."""
        if self._is_inside or not 0 < self.calls <= MAX_CALLS:
            self._are_gradients_noted = False
            return
        self._is_used_up = True
        self._are_gradients_noted = self._note_state(
            self.calls - 1, lambda: self._gradients(self._used)
        )

    def _gradients(self, used: Collection[int]) -> list[tuple[str, torch.Tensor]]:
        """Return the gradients of the used leaves and of the modules, with their titles."""
        found = []
        for number, (key, (name, leaf)) in enumerate(self._leaves.items()):
            if key in used and leaf.grad is not None:
                title = f"gradient of {name} #{number}" if number else f"gradient of {name}"
                found.append((title, leaf.grad))
        for name, module in self._modules.values():
            for place, parameter in module.named_parameters():
                if parameter.grad is not None:
                    found.append((f"gradient of {name}.{_plain_name(place)}", parameter.grad))
        return found

    def _buffers(self) -> list[tuple[str, torch.Tensor]]:
        """Return the buffers of the modules, with their titles."""
        return [
            (f"buffer {name}.{_plain_name(key)}", buffer)
            for name, module in self._modules.values()
            for key, buffer in module.named_buffers()
        ]

    def _note_state(self, call: int, collect: Callable[[], list[tuple[str, torch.Tensor]]]) -> bool:
        """Record tensors of the program's state, and return whether that was possible: they are
        within the limit.
        """

        def note() -> bool:
            tensors = collect()
            if call >= 0:
                self._left_state_elements -= sum(tensor.numel() for _, tensor in tensors)
                if self._left_state_elements < 0:
                    return False
            for title, tensor in tensors:
                self._add_row(call, title, tensor, "", False)
            return True

        return bool(self._try_step(note))

    def note_call(
        self, number: int, out: Any, arguments: list[tuple[str, Any]], is_random: bool
    ) -> None:
        """Record the result of a call, and its named arguments after the call."""
        owners = {_data_pointer(leaf): name for name, leaf in reversed(arguments)}
        owners.pop(0, None)
        for path, leaf in _named_leaves(out):
            alias = owners.get(_data_pointer(leaf), "")
            self._add_row(number, f"output{path}", leaf, alias, is_random)
        for name, leaf in arguments:
            self._add_row(number, name, leaf, "", is_random)

    def _add_row(self, call: int, name: str, leaf: Any, alias: str, is_random: bool) -> None:
        import torch

        row: ResultRow = {
            "call": call,
            "name": name,
            "alias": alias,
            "is_random": is_random,
            "tensor": None,
        }
        if not isinstance(leaf, torch.Tensor):
            is_plain = leaf is None or isinstance(leaf, (bool, int, float, complex))
            row["value"] = repr(leaf)[:100] if is_plain else f"a {type(leaf).__name__}"
            if isinstance(leaf, str):  # its characters are the user's data
                digest = hashlib.sha256(leaf.encode("utf-8", "replace")).hexdigest()[:12]
                row["value"] = f"a text of {len(leaf)} characters, {digest}"
        else:
            row["dtype"], row["shape"] = str(leaf.dtype), list(leaf.shape)
            row["device"] = leaf.device.type
            with contextlib.suppress(Exception), torch.no_grad():
                plain = leaf.detach()
                row["stride"] = list(plain.stride())
                if plain.layout is not torch.strided or plain.is_quantized or plain.is_nested:
                    plain = plain.to_dense()
                size = plain.numel() * plain.element_size()
                if size > self.left_bytes or type(plain) is not torch.Tensor:
                    self.skipped_tensors += 1
                else:
                    self.left_bytes -= size
                    row["tensor"] = (
                        plain.resolve_conj()
                        .resolve_neg()
                        .cpu()
                        .clone(memory_format=torch.contiguous_format)
                    )
        self.rows.append(row)

    def note_end(self) -> None:
        """Add the gradients and buffers at the end of the program."""
        if not self._are_gradients_noted:
            self._note_state(-1, lambda: self._gradients(self._leaves))
        if not self._are_buffers_noted:
            self._note_state(-1, self._buffers)

    def write_file(self) -> None:
        """Add the gradients and buffers at the end of the program, and write the file of the role.

        The file appears under its name only when it is complete.
        """
        import torch

        self.note_end()
        path = os.path.join(self.folder, f"{self.role}.pt")
        os.makedirs(self.folder, exist_ok=True)
        skipped = {"calls": self.skipped_calls, "tensors": self.skipped_tensors}
        has_raised = hasattr(sys, "last_value")  # the interpreter sets it
        content = {"rows": self.rows, "skipped": skipped, "raised": self.raised}
        torch.save({**content, "has_raised": has_raised}, f"{path}.part")
        os.replace(f"{path}.part", path)


def named_arguments(args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    return [
        (f"argument{path}", leaf) for path, leaf in (*_named_leaves(args), *_named_leaves(kwargs))
    ]


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    import torch

    pytree = torch.utils._pytree
    try:
        leaves, _ = pytree.tree_flatten_with_path(tree)
    except ValueError:  # a class of the program that is registered without paths
        return [(f"[{index}]", leaf) for index, leaf in enumerate(pytree.tree_leaves(tree))]
    return [(pytree.keystr(path), leaf) for path, leaf in leaves]


def _plain_name(key: str) -> str:
    """Return the name of a parameter without the prefix of a separately compiled part."""
    return key.replace("_orig_mod.", "")


def _data_pointer(leaf: Any) -> int:
    """Return the address of a tensor's memory; 0 for a leaf that has none."""
    with contextlib.suppress(Exception):
        return int(leaf.untyped_storage().data_ptr())
    return 0
