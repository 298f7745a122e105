"""The kinds of verdicts: one row each, with everything that depends only on the kind.

A new kind needs a row here, a function in ``core/judge`` that returns it, and, if its identity is
more than its cause, a rule in ``core/judge/signature.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprokit.core.shared.contract.measured_kinds import MEMORY_GROWTH, PEAK_MEMORY, SLOWER

NONDETERMINISTIC = "nondeterministic"
FAILED_CHECK = "failed-check"
"""A check of the program fails with torch.compile only, and no compared result is wrong."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of verdict."""

    name: str
    exit_code: int = 1
    """The exit code of ``reprokit capture``."""
    fail_on: str = ""
    """The word of ``--fail-on`` for it. PyTorch regards the program as working, so the exit code
    is 0 without that word if the program goes on to its normal end.
    """
    colour: str = "red"
    """The colour of the verdict on a terminal."""
    is_failure: bool = True
    is_of_compiler: bool = True
    """A failure that a nightly run counts as a bug."""
    not_filed: str = ""
    """The reason for filing no issue, whoever is responsible; empty if an issue may be filed."""
    is_minimizable: bool = False
    """A program can have this signature by itself."""
    is_confirmed_in_eager: bool = False
    """A run without torch.compile confirms or refutes it."""
    is_silent: bool = False
    """It does not end the program. A plain run fails only if the program checks for it itself."""
    compares_results: bool = False
    """Its runs are compared with those of eager."""
    is_of_calls: bool = False
    """It takes several calls or graphs, so no recorded graph shows it alone."""
    is_asserted: bool = False
    """Torch has no error for it, so a repro must have an assertion."""
    shows_before_end: bool = False
    """It is visible before a compile ends, so a probe may stop after its phase."""
    is_slow: bool = False
    """It is about time: which of these kinds a run gets depends on its deadline."""
    expected: str = ""
    """What happens without the bug, for the comment in a repro."""
    is_passed_in_eager: bool = True
    """``expected`` is what happens without torch.compile."""
    search_words: str = ""
    """Words that issues use for it, for kinds without an exception to search for."""


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
            compares_results=True,
            expected="the same results",
            search_words="incorrect",
        ),
        Kind(
            name=FAILED_CHECK,
            is_minimizable=True,
            is_of_calls=True,
            expected="that it passes",
            search_words="incorrect",
        ),
        Kind(
            name=NONDETERMINISTIC,
            is_minimizable=True,
            is_silent=True,
            is_asserted=True,
            compares_results=True,
            expected="the same results each time",
            search_words="nondeterministic",
        ),
        Kind(
            name="recompile-limit",
            fail_on="recompile",
            is_minimizable=True,
            is_silent=True,
            is_of_calls=True,
            is_passed_in_eager=False,
            expected="a few compiles",
            search_words="recompile",
        ),
        Kind(
            name="recompile-storm",
            fail_on="recompile",
            is_minimizable=True,
            is_silent=True,
            is_of_calls=True,
            is_passed_in_eager=False,
            expected="a few compiles",
            search_words="recompile",
        ),
        Kind(
            name="graph-break",
            fail_on="graph-break",
            is_minimizable=True,
            is_silent=True,
            is_of_calls=True,
            is_passed_in_eager=False,
            expected="one graph",
            search_words="graph break",
        ),
        Kind(
            name="cudagraph-skip",
            fail_on="cudagraph-skip",
            is_minimizable=True,
            is_silent=True,
            expected="CUDA graphs, as they are asked for",
            is_passed_in_eager=False,
            search_words="cudagraphs",
        ),
        Kind(
            name="cache-miss",
            is_minimizable=True,
            is_silent=True,
            is_asserted=True,
            expected="that the second process finds the entry of the first",
            is_passed_in_eager=False,
            search_words="cache miss",
        ),
        Kind(
            name=MEMORY_GROWTH,
            fail_on=MEMORY_GROWTH,
            is_minimizable=True,
            is_asserted=True,
            is_silent=True,
            is_of_calls=True,
            expected="memory that stays the same",
            search_words="memory leak",
        ),
        Kind(
            name=SLOWER,
            fail_on=SLOWER,
            is_minimizable=True,
            is_asserted=True,
            is_silent=True,
            expected="compiled calls that are not slower",
            search_words="slower than eager",
        ),
        Kind(
            name=PEAK_MEMORY,
            fail_on=PEAK_MEMORY,
            is_minimizable=True,
            is_silent=True,
            is_asserted=True,
            expected="about the memory that eager needs",
            search_words="memory",
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
            is_of_compiler=False,
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
FAIL_ON = tuple(dict.fromkeys(kind.fail_on for kind in KINDS.values() if kind.fail_on))
"""The words of ``--fail-on``."""


def kind_named(name: str) -> Kind:
    """Return the row of a kind; an unknown name, from a later version, is a failure."""
    return KINDS.get(name) or Kind(name=name)
