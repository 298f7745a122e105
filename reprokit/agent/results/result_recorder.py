"""What every call of a compiled callable gave, written down so that two runs of one program can be
compared.

A run has one role: ``compiled`` is the program as it is; in ``eager`` and ``again`` each
``torch.compile`` gives back what it was given; ``float64`` is eager with every float widened. Each
writes ``ROLE.pt``, plain tensors and words.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
from collections.abc import Callable
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events, run_names
from ...core.shared.result_comparison import SEED
from ..record import journal, process_start

ROLE = os.environ.get(run_names.RESULTS_VARIABLE, "")
FOLDER = os.environ.get(run_names.RESULTS_DIR_VARIABLE, "")
MOST_BYTES = 1 << 30
"""Of tensors that one run keeps; what does not fit is not compared, and the comparison says so."""
MOST_CALLS = 200
"""Later calls are not compared, and the comparison says so."""
_recorder: ResultRecorder | None = None


def install_recorder(role: str = ROLE, folder: str = FOLDER) -> None:
    """Put a recorder around ``torch.compile``; nothing happens without a role."""
    global _recorder
    if not role:
        return
    import torch

    torch.manual_seed(
        SEED
    )  # inputs that a program makes without a seed must be the same ones in every role
    _recorder = ResultRecorder(
        torch, role, os.path.join(folder, *(f"rank-{rank}" for rank in process_start.ranks()))
    )
    torch.compile = _recorder.compile
    if role == "again":
        # memory that nobody wrote to is filled, so that a program which reads it gives itself away
        torch.use_deterministic_algorithms(True, warn_only=True)
    atexit.register(finish_recording)


def discard_results() -> None:
    """Record nothing: on fake tensors there are no results."""
    global _recorder
    if _recorder is not None:
        import torch

        torch.compile, _recorder = _recorder.real, None


def finish_recording() -> None:
    """Write what was recorded, and compare it with what the other roles left; once, at the end of
    the program.
    """
    global _recorder
    done, _recorder = _recorder, None
    if done is None or not done.calls:
        return  # a launcher, whose child has the results
    try:
        done.write()
        from . import compare_results

        compare_results.journal_what_differs(done.folder)
    except Exception as problem:  # the program's own end must not change
        journal.write(
            events.AgentProblem(hook="results", problem=cuts.cut_head(repr(problem), 500))
        )


class ResultRecorder:
    """Records one run."""

    def __init__(self, torch: Any, role: str, folder: str) -> None:
        self.role, self.folder = role, folder
        self.rows: list[dict[str, Any]] = []
        self.left_bytes = self.left_held_bytes = MOST_BYTES
        self.calls = self.skipped_calls = self.skipped_tensors = 0
        self._torch, self.real = torch, torch.compile
        self._modules: dict[int, tuple[str, Any]] = {}
        self._leaves: dict[int, tuple[str, Any]] = {}
        self._is_inside = self._has_told = False

    def compile(self, model: Any = None, **options: Any) -> Any:
        """Stand for ``torch.compile``: compile, or in a role without it do not, and record each
        call.
        """
        if model is None:
            return lambda function: self.compile(function, **options)
        is_compiled = self.role == "compiled"
        if isinstance(model, self._torch.nn.Module):
            made = self.real(model, **options) if is_compiled else self.real(model, backend="eager")
            inner = made.forward if is_compiled and made is not model else model.__call__
            if made is model:  # its parts were compiled in place
                inner = model.forward
            # the object that the program would get, in every role, but for what it does when it is
            # called
            made.__dict__["forward"] = functools.partial(self._call, inner, model)
            return made
        inner = self.real(model, **options) if is_compiled else model

        @functools.wraps(model)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            return self._call(inner, model, *args, **kwargs)

        return recorded

    def _call(self, inner: Callable[..., Any], model: Any, /, *args: Any, **kwargs: Any) -> Any:
        torch = self._torch
        if torch.compiler.is_compiling() or self._is_inside:
            return inner(
                *args, **kwargs
            )  # what is compiled inside of a compiled callable is a part of it
        self._is_inside = True
        try:
            number, self.calls = self.calls, self.calls + 1
            torch.manual_seed(SEED + number)
            is_kept = number < MOST_CALLS
            given: Any = self._safely(lambda: self._given(args, kwargs)) if is_kept else None
            if given is not None:
                self._safely(lambda: self._remember(given, model))
            before = torch.get_rng_state()
            if self.role == "float64":
                from . import float64

                out, args, kwargs = float64.call_in_float64(torch, inner, args, kwargs)
                given = self._safely(lambda: self._given(args, kwargs)) if is_kept else None
            else:
                out = inner(*args, **kwargs)
            is_random = not torch.equal(before, torch.get_rng_state())
            if given is None:
                self.skipped_calls += 1
            else:
                self._safely(lambda: self.note_call(number, out, given, is_random))
            return out
        finally:
            self._is_inside = False

    def _safely(self, step: Callable[[], Any]) -> Any:
        """Do a step of ours; the program must not end of it."""
        try:
            return step()
        except Exception as problem:
            if not self._has_told:
                self._has_told = True
                journal.write(
                    events.AgentProblem(hook="results", problem=cuts.cut_head(repr(problem), 500))
                )
            return None

    def _remember(self, given: list[tuple[str, Any]], model: Any) -> None:
        for name, leaf in given:
            if (
                isinstance(leaf, self._torch.Tensor)
                and leaf.is_leaf
                and leaf.requires_grad
                and id(leaf) not in self._leaves
            ):
                size = leaf.numel() * leaf.element_size()
                if (
                    size > self.left_held_bytes
                ):  # held to the end for its gradient, the program's inputs would pile up
                    self.skipped_tensors += 1
                else:
                    self.left_held_bytes -= size
                    self._leaves[id(leaf)] = name, leaf
        if isinstance(model, self._torch.nn.Module):
            self._modules.setdefault(id(model), (f"model{len(self._modules) or ''}", model))

    def note_call(
        self, number: int, out: Any, given: list[tuple[str, Any]], is_random: bool
    ) -> None:
        """Note what a call gave, and ``given``, its named arguments, as it left them."""
        places = {_storage(leaf): name for name, leaf in reversed(given) if _storage(leaf)}
        for path, leaf in self._flat(out):
            self._note(number, f"output{path}", leaf, places.get(_storage(leaf), ""), is_random)
        for name, leaf in given:
            self._note(number, name, leaf, "", is_random)

    def _given(self, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
        return [
            (f"argument{path}", leaf) for path, leaf in (*self._flat(args), *self._flat(kwargs))
        ]

    def _flat(self, tree: Any) -> list[tuple[str, Any]]:
        pytree = self._torch.utils._pytree
        try:
            leaves, _ = pytree.tree_flatten_with_path(tree)
        except ValueError:  # a class of the program's that names no paths
            return [(f"[{place}]", leaf) for place, leaf in enumerate(pytree.tree_leaves(tree))]
        return [(pytree.keystr(path), leaf) for path, leaf in leaves]

    def _note(self, call: int, name: str, leaf: Any, alias: str, is_random: bool) -> None:
        row: dict[str, Any] = {
            "call": call,
            "name": name,
            "alias": alias,
            "is_random": is_random,
            "tensor": None,
        }
        torch = self._torch
        if not isinstance(leaf, torch.Tensor):
            is_plain = leaf is None or isinstance(leaf, (bool, int, float, complex))
            row["value"] = repr(leaf)[:100] if is_plain else f"a {type(leaf).__name__}"
            if isinstance(leaf, str):  # what stands in it is the user's
                digest = hashlib.sha256(leaf.encode("utf-8", "replace")).hexdigest()[:12]
                row["value"] = f"a text of {len(leaf)} characters, {digest}"
        else:
            row.update(dtype=str(leaf.dtype), shape=list(leaf.shape), device=leaf.device.type)
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

    def write(self) -> None:
        """Add what the end of the program shows (gradients, buffers), and write it all, whole or
        not at all.
        """
        torch = self._torch
        for number, (name, leaf) in enumerate(self._leaves.values()):
            if leaf.grad is not None:
                self._note(
                    -1,
                    f"gradient of {name} #{number}" if number else f"gradient of {name}",
                    leaf.grad,
                    "",
                    False,
                )
        for name, model in self._modules.values():
            for key, parameter in model.named_parameters():
                if parameter.grad is not None:
                    self._note(-1, f"gradient of {name}.{_plain(key)}", parameter.grad, "", False)
            for key, buffer in model.named_buffers():
                self._note(-1, f"buffer {name}.{_plain(key)}", buffer, "", False)
        path = os.path.join(self.folder, f"{self.role}.pt")
        os.makedirs(self.folder, exist_ok=True)
        skipped = {"calls": self.skipped_calls, "tensors": self.skipped_tensors}
        torch.save({"rows": self.rows, "skipped": skipped}, f"{path}.part")
        os.replace(f"{path}.part", path)


def _plain(key: str) -> str:
    """The name of a parameter, also inside a part that was compiled alone."""
    return key.replace("_orig_mod.", "")


def _storage(leaf: Any) -> int:
    """Where a tensor's memory lies; 0 for what has none."""
    with contextlib.suppress(Exception):
        return int(leaf.untyped_storage().data_ptr())
    return 0
