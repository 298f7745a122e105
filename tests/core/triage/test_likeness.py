"""Near matches are proposed for what two failures share, and not for what all failures share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.triage.likeness import Traits, compare_traits, overlap

FRAMES = (
    "torch/_inductor/loop_body.py:get_read_expr",
    "torch/_inductor/codegen/cpp.py:load",
    "torch/_inductor/scheduler.py:codegen",
)
KEY_ERROR = Traits("exception", "codegen", "KeyError", "KeyError: 'buf#'", FRAMES, "inductor")


def test_the_same_bug_elsewhere_is_proposed() -> None:
    """Torch has moved the innermost frame to another function: the rest still says it."""
    moved = Traits(
        "exception",
        "codegen",
        "KeyError",
        "KeyError: 'buf#'",
        ("torch/_inductor/loop_body.py:read_expr", *FRAMES[1:]),
        "inductor",
    )
    found = compare_traits(KEY_ERROR, moved)
    assert found.is_proposed
    assert any("frames in common" in text for text in found.shared)


def test_another_bug_of_the_same_phase_is_not() -> None:
    """One phase, one kind, one rung of the ablation are what half of all bugs share."""
    other = Traits(
        "exception",
        "codegen",
        "AssertionError",
        "AssertionError: unexpected dtype",
        ("torch/_inductor/codegen/cpp_utils.py:cexpr",),
        "inductor",
    )
    assert not compare_traits(KEY_ERROR, other).is_proposed


def test_another_kind_is_never_the_same() -> None:
    """An exception is no hang; a hang and a slow compile may be one."""
    assert (
        compare_traits(KEY_ERROR, Traits("crash", "codegen", "", KEY_ERROR.message, FRAMES)).score
        == 0
    )
    assert compare_traits(
        Traits("hang", "lowering", frames=FRAMES), Traits("slow-compile", "lowering", frames=FRAMES)
    ).is_proposed


names = st.lists(st.sampled_from("abcdefgh"), max_size=6).map(tuple)
traits = st.builds(
    Traits,
    st.sampled_from(["exception", "crash"]),
    st.sampled_from(["", "aot"]),
    st.just(""),
    st.sampled_from(["", "x y z", "x y"]),
    names,
    st.sampled_from(["", "inductor"]),
)


@given(traits, traits)
def test_likeness_is_fair(a: Traits, b: Traits) -> None:
    """It does not matter who is asked first, and nothing is more alike than a thing and itself."""
    assert compare_traits(a, b).score == compare_traits(b, a).score
    assert 0 <= compare_traits(a, b).score <= 1
    if a.frames or a.message:
        assert compare_traits(a, a).score == 1
    assert overlap(a.frames, b.frames) == overlap(b.frames, a.frames)
