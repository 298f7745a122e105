"""The kinds of verdicts: one row each, with all that depends on a kind alone.

A new kind is a row here, a question in ``core/judge`` that gives it, and, if its identity is more
than its cause, a rule in ``core/judge/signature.py``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of verdicts."""

    name: str
    exit_code: int = 1
    """Of ``reprokit capture``."""
    colour: str = "red"
    """Of the line with the verdict, on a terminal."""
    is_failure: bool = True
    not_filed: str = ""
    """Why no issue is filed, whoever is responsible; empty where one may be."""
    is_minimizable: bool = False
    """A program can show its signature by itself."""
    is_confirmed_in_eager: bool = False
    """A run without torch.compile confirms or refutes it."""
    is_silent: bool = False
    """It ends no program: a plain run shows it only when the program checks for it itself."""
    is_asserted: bool = False
    """Torch has no error for it, so a repro must have an assertion."""
    shows_before_end: bool = False
    """It shows before a compile has ended, so that a probe may stop behind its phase."""
    is_slow: bool = False
    """It is about time: which of these kinds a run gets depends on its deadline."""
    expected: str = ""
    """What happens without the bug, for the comment in a repro."""
    is_passed_in_eager: bool = True
    """What is expected is what happens without torch.compile."""
    search_words: str = ""
    """What people call it in issues, where it has no exception to be called by."""


KINDS = {
    kind.name: kind
    for kind in (
        Kind(name="ok", exit_code=0, colour="green", is_failure=False, not_filed="nothing failed"),
        Kind(
            name="exception",
            is_minimizable=True,
            is_confirmed_in_eager=True,
            shows_before_end=True,
            expected="no error",
        ),
        Kind(
            name="crash",
            is_minimizable=True,
            is_confirmed_in_eager=True,
            shows_before_end=True,
            expected="no crash",
        ),
        Kind(
            name="hang",
            is_minimizable=True,
            is_confirmed_in_eager=True,
            shows_before_end=True,
            is_slow=True,
            expected="that it returns",
            search_words="hang",
        ),
        Kind(
            name="oom",
            is_minimizable=True,
            is_confirmed_in_eager=True,
            expected="that the memory suffices",
        ),
        Kind(
            name="wrong-result",
            is_minimizable=True,
            is_silent=True,
            is_asserted=True,
            expected="the same results",
            search_words="incorrect",
        ),
        Kind(
            name="recompile-limit",
            is_minimizable=True,
            is_silent=True,
            expected="a few compiles",
            search_words="recompile",
        ),
        Kind(
            name="recompile-storm",
            is_minimizable=True,
            is_silent=True,
            expected="a few compiles",
            search_words="recompile",
        ),
        Kind(
            name="graph-break",
            is_minimizable=True,
            is_silent=True,
            expected="one graph",
            search_words="graph break",
        ),
        Kind(
            name="cudagraph-skip",
            is_minimizable=True,
            is_silent=True,
            expected="CUDA graphs, as they are asked for",
            is_passed_in_eager=False,
            search_words="cudagraphs",
        ),
        Kind(name="rank-mismatch", search_words="collective"),
        Kind(
            name="slow-compile",
            is_minimizable=True,
            is_confirmed_in_eager=True,
            shows_before_end=True,
            is_slow=True,
            expected="a compile of seconds",
            is_passed_in_eager=False,
            search_words="compile time",
        ),
        Kind(
            name="superlinear-compile",
            is_minimizable=True,
            is_silent=True,
            is_asserted=True,
            shows_before_end=True,
            is_slow=True,
            expected="a compile that grows as the program does",
            is_passed_in_eager=False,
            search_words="compile time",
        ),
        Kind(
            name="error-in-eager",
            colour="yellow",
            is_confirmed_in_eager=True,
            not_filed="nothing shows that the compiler is at fault",
        ),
        Kind(
            name="unknown",
            exit_code=3,
            colour="yellow",
            is_failure=False,
            not_filed="no failure of the compiler could be shown",
        ),
    )
}
"""By name, in the order of the documentation."""


def kind_named(name: str) -> Kind:
    """The row of a kind; a name from a later version is a failure like any other."""
    return KINDS.get(name) or Kind(name=name)
