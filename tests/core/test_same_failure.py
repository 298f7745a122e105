"""The failure of a candidate is compared with the failure that is searched for."""

import pytest

from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature, Verdict, identity_of_title


def signature(title: str) -> Signature:
    return Signature(title, title, 4, parts=identity_of_title(title))


def test_a_failure_with_a_message_is_not_one_without() -> None:
    """A KeyError without a message is not the same as a KeyError with one."""
    short, long = (
        signature("exception: codegen | KeyError"),
        signature("exception: codegen | KeyError: 'buf'"),
    )
    assert (
        same_failure.compare_failures(
            long, Verdict("exception", "codegen", "KeyError", "It was raised."), short
        )
        == same_failure.OTHER
    )


WRONG = Verdict("wrong-result", None, "inf", "It differs.")


@pytest.mark.parametrize(
    ("wanted", "found", "answer"),
    [
        ("inductor | numbers @ acosh", "no phase | numbers", same_failure.SAME),
        ("inductor | numbers @ acosh", "inductor | numbers @ acosh", same_failure.SAME),
        ("inductor | numbers @ acosh", "inductor | numbers @ clone", same_failure.OTHER),
        ("inductor | numbers @ acosh", "aot | numbers", same_failure.OTHER),
        ("inductor | numbers", "no phase | dtype", same_failure.OTHER),
        ("inductor | numbers", "no phase | numbers of the backward", same_failure.OTHER),
    ],
)
def test_a_candidate_without_a_phase_can_match(wanted: str, found: str, answer: str) -> None:
    """Facts that are known of both must agree: the family, the part of the compiler, the
    operator.
    """
    assert (
        same_failure.compare_failures(
            signature(f"wrong-result: {wanted}"), WRONG, signature(f"wrong-result: {found}")
        )
        == answer
    )


@pytest.mark.parametrize(
    ("wanted", "found", "is_alike"),
    [
        ("inductor | numbers @ acosh", "inductor | numbers @ acosh", True),
        ("inductor | numbers @ acosh", "inductor | numbers @ clone", False),
        ("inductor | numbers @ acosh", "inductor | numbers", False),
        ("inductor | numbers @ acosh", "no phase | numbers", False),
        ("inductor | numbers", "inductor | numbers @ clone", True),
        ("inductor | numbers", "aot | numbers", False),
        ("backend | numbers", "inductor | numbers", False),
        ("inductor | numbers", "inductor | dtype", False),
    ],
)
def test_a_proof_compares_where_wrong_results_begin(
    wanted: str, found: str, is_alike: bool
) -> None:
    """The phase and the operator must equal those of the signature; an unknown one is not
    compared.
    """
    wanted_signature, found_signature = (
        signature(f"wrong-result: {wanted}"),
        signature(f"wrong-result: {found}"),
    )
    assert same_failure.begins_alike(wanted_signature, found_signature) is is_alike
    assert same_failure.is_located(wanted_signature) and same_failure.is_located(
        found_signature
    ) is ("no phase" not in found)


SLOW = Verdict("slow-compile", "codegen", "python-loop", "It goes on.")


@pytest.mark.parametrize(
    ("wanted", "found", "answer"),
    [
        ("slow-compile: scheduler", "slow-compile: lowering", same_failure.SAME),
        ("slow-compile: scheduler", "hang: codegen | a < b", same_failure.SAME),
        ("slow-compile: scheduler", "slow-compile: cpp-build", same_failure.OTHER),
        ("slow-compile: scheduler", "hang: dynamo-trace | a", same_failure.OTHER),
        ("hang: codegen | a", "slow-compile: codegen", same_failure.OTHER),
        (
            "superlinear-compile: codegen | exponential @ f",
            "superlinear-compile: lowering | power",
            same_failure.SAME,
        ),
        (
            "superlinear-compile: codegen | exponential @ f",
            "superlinear-compile: aot | power",
            same_failure.OTHER,
        ),
        ("superlinear-compile: codegen | power", "slow-compile: codegen", same_failure.OTHER),
    ],
)
def test_a_slow_compile_is_identified_by_the_part_of_the_compiler(
    wanted: str, found: str, answer: str
) -> None:
    """The phase at a deadline and the law of a few sizes depend on chance."""
    assert same_failure.compare_failures(signature(wanted), SLOW, signature(found)) == answer
