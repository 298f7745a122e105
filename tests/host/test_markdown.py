"""No text of a target is markup in an issue, a README or a digest: it is plain text or code."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path

import jinja2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from reprokit.core.experiments.ablation import BACKENDS, EAGER, AblationStep, ProgramAblation
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Answer, Missing, Observation
from reprokit.core.records.remarks.compiler_warnings import CompilerWarning
from reprokit.host.minimize.proofs import proven
from reprokit.host.nightly import night_report, night_report_files
from reprokit.host.pack import issue_text
from reprokit.host.report import markdown
from tests.support.examples import examples
from tests.support.nightly_results import add_night, cell_result, failing, new_ledger

from .test_render import HEADINGS, facts, repro

LIVE = re.compile(
    r"@\w|#\d|\bgh-\d|(?<![0-9a-z])[0-9a-f]{7,40}(?![0-9a-z])|://|\bwww\.|:[a-z0-9_+-]+:|\$\S|<\w|\bGHSA-",
    re.IGNORECASE,
)
"""What GitHub makes of text that is not code."""
MARKUP = st.sampled_from(
    [
        "@team",
        "@org/team",
        "closes #1",
        "#1",
        "org/repo#12",
        "GH-1",
        "deadbeef1",
        "70c2278d7dd870c2278d7dd870c2278d7dd8abcd",
        "![i](http://evil.example/x.png)",
        "[a](javascript:alert(1))",
        "[a]: http://evil.example",
        "<!--",
        "-->",
        "<b>",
        "<class 'x'>",
        "<img src=x onerror=y>",
        "http://evil.example",
        "www.evil.example",
        "mailto:a@b.example",
        "a@b.example",
        "```",
        "~~~",
        "````",
        "`",
        "``",
        "|",
        "| a | b |",
        "| --- | --- |",
        "===",
        "---",
        "***",
        "# h",
        "> q",
        ">q",
        "#h",
        "- l",
        "-l",
        "~~~x",
        "+x",
        "=",
        "1.x",
        "1. l",
        "1)",
        "+",
        "*e*",
        "__e__",
        "_e_",
        "~~s~~",
        "~",
        "~/x",
        "$x$",
        ":smile:",
        "&lt;",
        "&#64;team",
        "\\",
        "\\@team",
        "[ ]",
        "[^1]",
        "\n",
        "\n\n",
        "\r",
        "\t",
        "    code",
        " ",
        "\x1b[31m",
        "\u202e",
        "\u200b",
        "\ud800",
        "\0",
        "'buf0'",
        "x",
        "(",
        ")",
        "**",
    ]
)
NASTY = st.lists(MARKUP | st.text(max_size=6), max_size=10).map("".join) | st.lists(
    MARKUP, max_size=8
).map(" ".join)


@functools.cache
def parser() -> MarkdownIt:
    """Return a CommonMark parser with GitHub's extensions."""
    github = MarkdownIt("gfm-like", {"html": True})
    assert github.linkify is not None
    # GitHub makes no link of a file name that ends in .py
    github.linkify.set({"fuzzy_link": False})
    return github


@functools.lru_cache(1)
def rendered(text: str) -> list[Token]:
    """Return the tokens of a Markdown text, flat."""
    return [t for block in parser().parse(text) for t in (block, *(block.children or ()))]


COLLAPSED = {
    f"<details><summary>{words}</summary>"
    for words in (
        "How it was found",
        "Output of the captured run",
        "Output of torch.utils.collect_env",
    )
} | {"</details>"}
"""The HTML of the templates of an issue."""


def check_elements(text: str, links: tuple[str, ...] = (), comments: int = 0) -> list[str]:
    """Return the headings of ``text``; fail if it has other elements than the template."""
    tokens = rendered(text)
    html = [t.content.strip() for t in tokens if t.type.startswith("html")]
    html = [h for h in html if h not in COLLAPSED]
    assert len(html) == comments and all(
        h.startswith("<!-- human summary") and h.count("<!--") == 1 for h in html
    )
    assert not [t for t in tokens if t.type == "image"]
    assert [t.attrs["href"] for t in tokens if t.type == "link_open"] == list(links)
    for token in tokens:
        if token.type == "text":
            assert not LIVE.search(token.content), token.content
    assert not [t for t in tokens if t.type in ("s_open", "em_open")]
    headings_of_text = [
        tokens[n + 1].content for n, t in enumerate(tokens) if t.type == "heading_open"
    ]
    return headings_of_text


@functools.cache
def environment(template: str) -> jinja2.Environment:
    """Return an environment whose template ``t`` is ``template``."""
    return markdown.template_environment(jinja2.DictLoader({"t": template}))


@settings(max_examples=examples(2000))
@given(NASTY)
def test_a_value_in_a_template_is_text_or_code(text: str) -> None:
    """The value is alone, at the beginning of a line, after a line, in a list and in a table."""
    for template in (
        "{{ x }}",
        "a\n{{ x }}",
        "- {{ x }}\n- y",
        "**{{ 'a' }}** {{ x }}, {{ x }}; ({{ x }})",
    ):
        page = markdown.render_template(environment(template), "t", x=text)
        tokens = rendered(page)
        assert check_elements(page) == []
        assert {t.type for t in tokens} <= {
            "paragraph_open",
            "paragraph_close",
            "inline",
            "text",
            "code_inline",
            "softbreak",
            "bullet_list_open",
            "bullet_list_close",
            "list_item_open",
            "list_item_close",
            "strong_open",
            "strong_close",
        }
    table = "| a | b |\n| --- | --- |\n| {{ x | cell }} | {{ x | code | cell }} |"
    page = markdown.render_template(environment(table), "t", x=text)
    assert len([t for t in rendered(page) if t.type == "td_open"]) == 2
    check_elements(page)


def test_plain_words_stay_plain() -> None:
    """The usual sentences of a verdict need no code, and an identifier becomes code as in
    hand-written Markdown.
    """
    plain = (
        "KeyError was raised, in phase codegen: 'buf1'. 10.8 s, 699 MB (98 %) a_b in"
        " torch/_inductor/loop_body.py:12 - x"
    )
    assert markdown.escape_line(plain) == plain
    assert (
        markdown.escape_line("it is for `module: x`; (`a_`)@b")
        == "it is for `module: x`; (`a_` `)@b`"
    )
    assert markdown.escape_line("in <listcomp>, of __init__.") == "in `<listcomp>`, of `__init__`."
    assert markdown.escape_line(
        "TypeError: <class 'x'> is no 'Tensor'"
    ) == "TypeError: `<class` `'x'>` is no 'Tensor'".replace("` `", " ")


@settings(max_examples=examples(40))
@given(NASTY, NASTY)
def test_an_issue_has_only_the_elements_of_its_template(text: str, other: str) -> None:
    """Every text of the facts is hostile: the issue has no link, no image, no HTML except the
    comment of the template, and the headings of the form.
    """
    verdict = Verdict(
        other,
        text,
        text,
        text,
        (text, other),
        also=(text,),
        path=(text,),
        work={text: other},
        responsible="user",
        responsible_because=(text,),
        responsible_place=text,
        simulated=(text, other),
    )
    seen = Observation(
        exit_status=1,
        raised=Raised((Link(text, other),)),
        stderr_tail=text,
        answers=(Answer(text, other), Answer(other, text)),
        eager="passes",
        eager_detail=text,
        growth={"table": [text, other]},
        remarks=(CompilerWarning(text, other),),
    )
    steps = tuple(
        AblationStep(v.name, "backends", "passes" if v is EAGER else "same", text, other)
        for v in BACKENDS
    )
    hostile = facts(
        verdict=verdict,
        seen=seen,
        signature=Signature(other, text, 1),
        command=text,
        collect_env=text,
        configs={text: {other: text}},
        variables={text: other},
        missing=(Missing(text, other), Missing("collect_env", text)),
        ablation=ProgramAblation(steps, text),
        program=repro(f"# {text}"),
    )
    for hostile_facts in (
        hostile,
        dataclasses.replace(hostile, program=proven.Candidate(text, other, text), collect_env=""),
    ):
        issue = issue_text.make_issue(hostile_facts)
        assert check_elements(issue.joined, comments=1) == [
            h.removeprefix("### ") for h in HEADINGS
        ]
        assert (
            check_elements(issue.describe, comments=1)
            == check_elements(issue.error_logs)
            == check_elements(issue.versions)
            == []
        )
        readme = issue_text.render_pack_readme(
            hostile_facts, [("repro.py", "the program")], [text], "nothing was hidden"
        )
        assert len(check_elements(readme)) == 1
        assert not re.search(r"@\w|#\w|(?i:\bgh-\d)|://\w", markdown.issue_title(text))


@settings(max_examples=examples(40))
@given(text=NASTY)
@example(text="//evil.example/x")
def test_a_digest_has_only_the_elements_of_its_template(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Titles, reasons, versions, targets and repros of a ledger are text or code, and a link leads
    to a file below the digest.
    """
    store = new_ledger(tmp_path_factory.mktemp("ledger"))
    attempt = {**failing("x"), "torch": "2.13"}
    add_night(store, a=cell_result(attempt))
    report = night_report.make_report(store)
    bug = {
        **report["groups"]["new"][0],
        "title": text,
        "reason": text,
        "cause": text,
        "torch": [text],
    }
    bug |= {"repro": text, "repro_lines": 3, "pack": f"{text}/x.tar.gz"}
    row = {"target": text, "settings": text, "why": text}
    attempt = {
        **report,
        "suite": text,
        "sentence": f"It fails {text}",
        "torch": [text],
        "groups": {**report["groups"], "new": [bug, bug]},
    }
    attempt |= {
        "surprises": [row],
        "in_eager": [row],
        "unknown": [row],
        "lost": [row],
        "proposals": [{"bugs": [1, 2], "score": 0.5, "shared": [text]}],
    }
    digest = night_report_files.digest_text(attempt)
    links = [t.attrs["href"] for t in rendered(digest) if t.type == "link_open"]
    assert len(links) == 2 and all(re.fullmatch(r"(?!/)[\w%./~-]+", str(link)) for link in links)
    assert [h.split(" (")[0] for h in check_elements(digest, tuple(map(str, links)))[1:]] == [
        "New",
        "Not as expected",
        "Fails without torch.compile too",
        "Could not be judged",
        "Lost",
        "Possible duplicates",
    ]


def test_a_template_escapes_every_value() -> None:
    """A value without a filter is escaped, and no template marks a value as safe."""
    env = markdown.template_environment(jinja2.DictLoader({"t": "{{ x }}{{ y | upper }}"}))
    assert markdown.render_template(env, "t", x="@team", y="<b>") == "`@team``<B>`"
    folder = Path(__file__).resolve().parents[2] / "templates"
    assert not [
        p
        for p in folder.rglob("*.md.j2")
        if "safe" in p.read_text() or "autoescape" in p.read_text()
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("at index [0, 1, 7]: eager gives 1", "at index `[0, 1, 7]`: eager gives 1"),
        (
            "<built-in function getitem> is no overload",
            "`<built-in function getitem>` is no overload",
        ),
        ("a[0] and b", "`a[0]` and b"),
        ("an open [ and some words", "an open `[` and some words"),
    ],
)
def test_words_in_brackets_are_one_code_span(text: str, line: str) -> None:
    """Each word would be code of its own, and the words between would not."""
    assert markdown.escape_line(text) == line
