"""Near matches are proposed for traits that two failures share, but not for traits that all
failures share.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.triage.likeness import Traits, compare_traits, frame_overlap

FRAMES = (
    "torch/_inductor/loop_body.py:get_read_expr",
    "torch/_inductor/codegen/cpp.py:load",
    "torch/_inductor/scheduler.py:codegen",
)
KEY_ERROR = Traits("exception", "codegen", "KeyError", "KeyError: 'buf#'", FRAMES, "inductor")


def test_the_same_bug_elsewhere_is_proposed() -> None:
    """A version of torch moved the innermost frame to a different function, and the remaining
    traits match.
    """
    moved = Traits(
        "exception",
        "codegen",
        "KeyError",
        "KeyError: 'buf#'",
        ("torch/_inductor/loop_body.py:read_expr", *FRAMES[1:]),
        "inductor",
    )
    likeness = compare_traits(KEY_ERROR, moved)
    assert likeness.is_proposed
    assert any("frames in common" in text for text in likeness.shared)


def test_a_different_bug_of_the_same_phase_is_not_proposed() -> None:
    """The phase, the kind and the failing backend are the same for half of all bugs."""
    different = Traits(
        "exception",
        "codegen",
        "AssertionError",
        "AssertionError: unexpected dtype",
        ("torch/_inductor/codegen/cpp_utils.py:cexpr",),
        "inductor",
    )
    assert not compare_traits(KEY_ERROR, different).is_proposed


def test_a_different_kind_is_never_the_same() -> None:
    """An exception is not a hang, but a hang and a slow compile may be the same bug."""
    assert (
        compare_traits(KEY_ERROR, Traits("crash", "codegen", "", KEY_ERROR.message, FRAMES)).score
        == 0
    )
    assert compare_traits(
        Traits("hang", "lowering", frames=FRAMES), Traits("slow-compile", "lowering", frames=FRAMES)
    ).is_proposed


def test_kernels_of_common_operators_are_proposed() -> None:
    """A kernel with more of the model around the same operators is like the other, and one of
    different operators is not.
    """
    small = Traits("wrong-result", kernel="triton_poi_fused_sin_mul_0")
    large = Traits("wrong-result", kernel="triton_per_fused_add_mul_sin_sum_3")
    likeness = compare_traits(small, large)
    assert likeness.is_proposed
    assert likeness.shared == (
        "kernels with common operators: triton_poi_fused_sin_mul_0 and"
        " triton_per_fused_add_mul_sin_sum_3",
    )
    other = Traits("wrong-result", kernel="triton_poi_fused_cos_div_0")
    assert compare_traits(small, other).score == 0


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
def test_likeness_is_symmetric(a: Traits, b: Traits) -> None:
    """The score is symmetric, and a bug is most similar to itself."""
    assert compare_traits(a, b).score == compare_traits(b, a).score
    assert 0 <= compare_traits(a, b).score <= 1
    if a.frames or a.message:
        assert compare_traits(a, a).score == 1
    assert frame_overlap(a.frames, b.frames) == frame_overlap(b.frames, a.frames)
