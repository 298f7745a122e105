"""What an entry of a catalogue says, and which entries a failure matches."""

from __future__ import annotations

import dataclasses

import pytest

from reprokit.core.judge.stacks import location
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.triage import known_failures, likeness
from reprokit.core.triage.decision import decide
from reprokit.core.triage.known_failures import KnownFailure, ProvedRun
from reprokit.host.catalogue import catalogue_files

WRONG = [entry for entry in catalogue_files.own_catalogue() if entry.kind == "wrong-result"]
TITLE = "exception: codegen | KeyError: 'buf#' @ torch/_inductor/loop_body.py:get_read_expr"
FRAMES = ("torch/_inductor/loop_body.py:LoopBody.get_read_expr", "torch/_inductor/codegen/cpp.py:f")


def _run(torch: str, answer: str = "fails") -> ProvedRun:
    if answer != "fails":
        return ProvedRun(torch, answer)
    return ProvedRun(
        torch, answer, algorithm=6, signature="aaaaaaaaaaaa", title=TITLE, frames=FRAMES
    )


def _entry(number: int = 196570, *runs: ProvedRun) -> KnownFailure:
    title = "KeyError of a buffer when loops are fused"
    return KnownFailure(
        f"pytorch/pytorch#{number}", title, "exception", "inductor", runs=runs or (_run("2.13.0"),)
    )


def test_the_versions_follow_from_the_runs() -> None:
    entry = _entry(
        1234, _run("2.14.1"), _run("2.9.1", "passes"), _run("2.15.0", "passes"), _run("2.10.0")
    )
    assert (entry.last_good, entry.first_bad, entry.fixed_in) == ("2.9.1", "2.10.0", "2.15.0")
    assert entry.versions == "fails since 2.10.0, fixed in 2.15.0"
    always = _entry(1234, _run("2.9.1"), _run("2.15.0"))
    assert (always.first_bad, always.last_good, always.fixed_in) == ("2.9.1", "", "")
    assert always.versions == "fails with 2.9.1 to 2.15.0"
    gap = _entry(1234, _run("2.9.1"), _run("2.11.0", "passes"), _run("2.15.0"))
    assert gap.versions == "fails with 2.9.1, also with 2.15.0"
    never = _entry(1234, _run("2.13.0", "passes"))
    assert (never.versions, never.fixed_in) == ("", "")


def test_the_same_signature_hides_what_is_only_similar() -> None:
    other = dataclasses.replace(_run("2.13.0"), signature="bbbbbbbbbbbb")
    entries = [_entry(1111, other), _entry(2222)]
    traits = known_failures.traits_of_title(TITLE, FRAMES)
    (match,) = known_failures.find_known_failures(
        Signature("aaaaaaaaaaaa", TITLE, 6), traits, entries
    )
    assert (match.entry.issue, match.how, match.score) == ("pytorch/pytorch#2222", "same", 1.0)
    assert match.sentence == (
        "known: pytorch/pytorch#2222 (fails with 2.13.0; inductor): KeyError of a buffer when loops"
        " are fused."
    )


def test_a_signature_of_two_entries_is_only_likely() -> None:
    traits = known_failures.traits_of_title(TITLE, FRAMES)
    signature = Signature("aaaaaaaaaaaa", TITLE, 6)
    matches = known_failures.find_known_failures(signature, traits, [_entry(1111), _entry(2222)])
    assert [match.how for match in matches] == ["likely", "likely"]


def test_a_crash_in_generated_code_is_never_called_known() -> None:
    """Many bugs have this signature."""
    title = "crash: kernel-run | SIGSEGV in <generated>:call"
    run = dataclasses.replace(_run("2.13.0"), title=title, frames=("<generated>:call",))
    (match,) = known_failures.find_known_failures(
        Signature("aaaaaaaaaaaa", title, 6),
        known_failures.traits_of_title(title),
        [_entry(1000, run)],
    )
    assert match.how == "similar"
    assert known_failures.is_vague("crash: lowering | SIGSEGV")
    assert not known_failures.is_vague("crash: lowering | SIGABRT in torch/_inductor/a.py:f")


def test_a_signature_of_different_rules_is_not_the_same() -> None:
    traits = known_failures.traits_of_title(TITLE, FRAMES)
    signature = Signature("aaaaaaaaaaaa", TITLE, 7)
    (match,) = known_failures.find_known_failures(signature, traits, [_entry()])
    assert match.how == "likely" and match.score < 1.0
    assert any("frames in common" in shared for shared in match.shared)


def test_a_different_phase_is_named_as_a_difference() -> None:
    traits = known_failures.traits_of_title(TITLE.replace("codegen", "lowering"), FRAMES[:1])
    (match,) = known_failures.find_known_failures(Signature("c", "t", 6), traits, [_entry()])
    assert match.how == "similar" and match.differs == ("phase: lowering here, codegen there",)


def test_nothing_in_common_is_no_match() -> None:
    traits = known_failures.traits_of_title("exception: codegen | ValueError: no such thing @ x")
    assert not known_failures.find_known_failures(Signature("c", "t", 6), traits, [_entry()])
    passing = _entry(1234, _run("2.13.0", "passes"))
    traits = known_failures.traits_of_title(TITLE, FRAMES)
    signature = Signature("aaaaaaaaaaaa", TITLE, 6)
    assert not known_failures.find_known_failures(signature, traits, [passing])


@pytest.mark.parametrize(
    "text",
    [
        "196570",
        "#196570",
        "pytorch#196570",
        "pytorch/pytorch#196570",
        "aaaaaaaaaaaa",
        "KeyError buf loop fused",
    ],
)
def test_an_entry_is_found_by_number_signature_and_words(text: str) -> None:
    entries = [_entry(), _entry(123456, _run("2.9.1", "passes"))]
    matches = known_failures.search_known_failures(text, entries)
    assert matches[0].entry.issue == "pytorch/pytorch#196570"


def test_unrelated_words_find_nothing() -> None:
    assert not known_failures.search_known_failures("segmentation fault in sparse", [_entry()])
    assert not known_failures.search_known_failures("", [_entry()])
    assert not known_failures.search_known_failures("999999", [_entry()])


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"issue": "pytorch/pytorch#1234"}, "missing"),
        ({"issue": "1234", "title": "t", "kind": "k", "component": "c"}, "is not OWNER/"),
        ({"issue": "a/b#1234", "title": "", "kind": "k", "component": "c"}, "no title"),
        ({"issue": "a/b#1234", "title": 3, "kind": "k", "component": "c"}, "not of type str"),
        ([], "not of type KnownFailure"),
    ],
)
def test_a_damaged_entry_is_refused(document: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        known_failures.read_known_failure(document)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("cpp_fused_erf_0(arg0_1, buf0)", "cpp_fused_erf_0"),
        ("buf1 = extern_kernels.addmm(a, b)", "extern_kernels.addmm"),
        ("buf2 = torch.ops.aten.sort.stable(x)", "torch.ops.aten.sort.stable"),
        ("del arg0_1", ""),
    ],
)
def test_a_line_of_generated_code_names_what_it_calls(line: str, name: str) -> None:
    assert location.called_kernel(line) == name


def test_crashes_in_different_kernels_are_not_alike() -> None:
    """All crashes in compiled code have one stack. The operators in the names of the kernels tell
    them apart; a larger model fuses more operators into the same kernel.
    """
    title = "crash: kernel-run | SIGSEGV in <generated>:call"
    run = ProvedRun(
        "2.13.0", "fails", algorithm=6, signature="c" * 12, title=title, kernel="cpp_fused_erf_0"
    )
    entries = [_entry(1, run)]
    signature = Signature("c" * 12, title, 6)

    def matches(kernel: str) -> list[str]:
        traits = dataclasses.replace(known_failures.traits_of_title(title), kernel=kernel)
        found = known_failures.find_known_failures(signature, traits, entries)
        return [match.how for match in found]

    assert matches("cpp_fused_diagonal_expand_mean_2") == []
    assert matches("cpp_fused_addmm_erf_relu_1") == matches("") == ["similar"]
    assert likeness.kernel_overlap("torch.ops.aten.sort.stable", "torch.ops.aten.sort") == 1.0
    assert (
        likeness.kernel_overlap("triton_poi_fused_erf_0.run", "triton_per_fused_sum_1.run") == 0.0
    )
    assert likeness.kernel_overlap("cpp_fused_conv2d_0", "cpp_fused_conv2d_relu_3") == 1.0
    assert matches("cpp_fused_0") == ["similar"]  # it names no operator, so nobody knows
    assert likeness.kernel_overlap("cpp_fused_erf_0", "cpp_fused_addmm_erf_relu_1") == 1.0
    # both models add and reshape around the operators of the bug
    first = likeness.Traits("crash", kernel="cpp_fused_add_erf_native_layer_norm_view_3")
    second = likeness.Traits("crash", kernel="cpp_fused_add_diagonal_expand_mean_mul_view_2")
    assert likeness.is_of_other_kernel(first, second)


@pytest.mark.parametrize(
    ("operator", "subsystem", "how"),
    [
        ("reinplace_inplaceable_ops", "post_grad_passes", "family"),
        ("mul", "lowerings", "family"),
        ("acosh", "lowerings", "same"),
    ],
)
def test_wrong_results_of_a_pass_or_of_a_common_operator_are_a_family(
    operator: str, subsystem: str, how: str
) -> None:
    """Their signature says where a result is wrong first, and not why."""
    title = f"wrong-result: inductor | numbers @ {operator}"
    run = dataclasses.replace(_run("2.13.0"), title=title, frames=())
    entry = dataclasses.replace(_entry(1, run), kind="wrong-result", workaround="use t.sum()")
    traits = likeness.Traits(
        "wrong-result", "inductor", operator=operator, subsystem=subsystem, responsible="torch"
    )
    (match,) = known_failures.find_known_failures(
        Signature("aaaaaaaaaaaa", title, 6), traits, [entry]
    )
    assert match.how == how
    assert ("To avoid it" in match.sentence) == (how == "same")
    decision = decide(
        Verdict("wrong-result", "inductor", "values", "", responsible="torch"), [match]
    )
    assert decision.action == ("comment" if how == "same" else "new issue")


@pytest.mark.parametrize("entry", [e for e in WRONG if e.first_operator], ids=lambda e: e.issue)
def test_no_other_wrong_result_of_the_catalogue_is_preferred(entry: KnownFailure) -> None:
    """Each entry is compared with the failure of each other one that has an operator: it is the
    best match, and others with its signature are at most of its family.
    """
    for run in entry.failing:
        seen = dataclasses.replace(
            known_failures.traits_of_title(run.title), users_operator=entry.first_operator
        )
        signature = Signature(run.signature, run.title, run.algorithm)
        best, *others = known_failures.find_known_failures(signature, seen, WRONG)
        assert best.entry is entry
        assert all(match.score < best.score for match in others)
        assert not others or best.how in known_failures.MAYBE


def test_wrong_results_of_one_pass_without_an_operator_are_one_family() -> None:
    """Nothing tells them apart, so none of them is preferred."""
    title = "wrong-result: inductor | numbers @ reinplace_inplaceable_ops"
    run = next(run for entry in WRONG for run in entry.failing if run.title == title)
    signature = Signature(run.signature, title, run.algorithm)
    matches = known_failures.find_known_failures(signature, run.traits(), WRONG)
    assert [match.entry.issue[-6:] for match in matches] == ["190855", "197829"]
    assert {(match.how, match.score) for match in matches} == {("family", 0.8)}


def test_what_is_the_users_own_is_only_in_the_catalogues_of_the_user() -> None:
    traits = dataclasses.replace(known_failures.traits_of_title(TITLE, FRAMES), responsible="user")
    signature = Signature("aaaaaaaaaaaa", TITLE, 6)
    of_team = dataclasses.replace(_entry(2), origin="/home/bob/catalogue")
    found = known_failures.find_known_failures(signature, traits, [_entry(1), of_team])
    assert [match.entry.issue for match in found] == ["pytorch/pytorch#2"]
