"""A search for duplicates uses words that are specific to the failure, and nothing from the title
of a foreign pack acts as a qualifier.
"""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.records.finding import Signature, identity_of_title
from reprokit.core.triage.issue_search import MAX_QUERY_CHARS, search_query


def signature(title: str) -> Signature:
    return Signature("0123456789ab", title, 1, parts=identity_of_title(title))


HEAD = "repo:pytorch/pytorch is:issue "


@pytest.mark.parametrize(
    ("title", "searched"),
    [
        (
            "exception: codegen | KeyError: 'buf#' @ torch/_inductor/loop_body.py:get_read_expr",
            "get_read_expr KeyError",
        ),
        (
            "exception: cpp-build | torch._inductor.exc.CppCompileError: conflicting declaration",
            'CppCompileError "conflicting declaration"',
        ),
        (
            "exception: backend | ValueError: no lowering for # nodes @ <user>:backend",
            'ValueError "no lowering for"',
        ),
        (
            (
                "crash: kernel-run | SIGABRT std::runtime_error: kernel, <path>:#, index out of"
                " bounds: # <= tmp# < #"
            ),
            '"SIGABRT" "index out of bounds"',
        ),
        (
            (
                "crash: backend | SIGSEGV in <user>:f < torch/__init__.py:__call__ <"
                " torch/_dynamo/output_graph.py:compile_fx"
            ),
            'compile_fx "SIGSEGV"',
        ),
        (
            (
                "hang: fx-passes | <user>:forever <"
                " torch/_inductor/fx_passes/post_grad.py:post_grad_passes"
            ),
            "post_grad_passes hang",
        ),
        (
            "wrong-result: inductor | numbers @ reinplace_inplaceable_ops",
            "reinplace_inplaceable_ops incorrect",
        ),
        ("cudagraph-skip: cudagraphs | mutated inputs", '"mutated inputs" cudagraphs'),
        (
            "recompile-limit: guards | <input>._current_idx == #",
            'recompile "recompile limit" guards',
        ),
        (
            'exception: aot | E: "a" repo:evil/x OR author:me @ torch/x.py:f" is:open',
            'f "E" "a repo evil x OR author me"',
        ),
    ],
)
def test_the_words_of_a_search(title: str, searched: str) -> None:
    """The query has the function, the type and the phrase. Placeholders are never searched for, and
    a kind without a type uses its common name.
    """
    assert search_query(signature(title), "pytorch/pytorch") == HEAD + searched


@given(
    title=st.text(max_size=600)
    | st.from_regex(r"(exception|hang|crash): \w+ \| \w+: .{0,300} @ torch/a\.py:\w+")
)
def test_a_title_is_only_words(title: str) -> None:
    """Whatever a pack contains, the query has one repository, excludes nothing, and has a length
    that GitHub accepts.
    """
    text = search_query(signature(title), "pytorch/pytorch")
    assert (
        text.startswith(HEAD.strip()) and len(text) <= MAX_QUERY_CHARS and text.count('"') % 2 == 0
    )
    assert re.fullmatch(r'(?:[\w.]+|"[\w. ]+"| )*', text.removeprefix(HEAD.strip()), re.ASCII)


def test_a_message_that_is_not_in_the_title_is_searched() -> None:
    """The signature leaves the message out, because another run may lose it."""
    title = "crash: kernel-run | SIGABRT C++ exception"
    parts = dataclasses.replace(identity_of_title(title), message="E: index out of bounds: #")
    found = search_query(dataclasses.replace(signature(title), parts=parts), "pytorch/pytorch")
    assert found == HEAD + '"SIGABRT" "index out of bounds"'
