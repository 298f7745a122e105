"""Nothing that a target says is markup in an issue, a README or a digest: it is text, or code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import jinja2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from reprokit.core.records.compiler_warnings import CompilerWarning
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Answer, Missing, Observation
from reprokit.host.minimize import proven
from reprokit.host.nightly import night_report, night_report_files
from reprokit.host.pack import issue_text
from reprokit.host.report import markdown

from .test_render import HEADINGS, facts, repro
from .triage.nights import failing, new_ledger, result
from .triage.nights import night as one_night

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
        "24eb87c32c8324eb87c32c8324eb87c32c83abcd",
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


def rendered(text: str) -> list[Token]:
    """The parts of a Markdown text, flat, as a parser of CommonMark with GitHub's extensions sees
    them.
    """
    parser = MarkdownIt("gfm-like", {"html": True})
    assert parser.linkify is not None
    parser.linkify.set(
        {"fuzzy_link": False}
    )  # GitHub makes no link of a file name that ends in .py
    return [t for block in parser.parse(text) for t in (block, *(block.children or ()))]


def check(text: str, links: tuple[str, ...] = (), comments: int = 0) -> list[str]:
    """Fail where ``text`` has more than our own elements; gives its headings."""
    tokens = rendered(text)
    html = [t.content.strip() for t in tokens if t.type.startswith("html")]
    assert len(html) == comments and all(
        h.startswith("<!-- human summary") and h.count("<!--") == 1 for h in html
    )
    assert not [t for t in tokens if t.type == "image"]
    assert [t.attrs["href"] for t in tokens if t.type == "link_open"] == list(links)
    for token in tokens:
        if token.type == "text":
            assert not LIVE.search(token.content), token.content
    assert not [t for t in tokens if t.type in ("s_open", "em_open")]
    found = [tokens[n + 1].content for n, t in enumerate(tokens) if t.type == "heading_open"]
    return found


@settings(max_examples=2000, deadline=None)
@given(NASTY)
def test_a_value_in_a_template_is_text_or_code(text: str) -> None:
    """Alone, at the begin of a line, after another line, in a list and in a table."""
    for template in (
        "{{ x }}",
        "a\n{{ x }}",
        "- {{ x }}\n- y",
        "**{{ 'a' }}** {{ x }}, {{ x }}; ({{ x }})",
    ):
        env = markdown.environment(jinja2.DictLoader({"t": template}))
        tokens = rendered(markdown.fill(env, "t", x=text))
        assert check(markdown.fill(env, "t", x=text)) == []
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
    env = markdown.environment(
        jinja2.DictLoader(
            {"t": "| a | b |\n| --- | --- |\n| {{ x | cell }} | {{ x | code | cell }} |"}
        )
    )
    cells = [t for t in rendered(markdown.fill(env, "t", x=text)) if t.type == "td_open"]
    assert len(cells) == 2
    check(markdown.fill(env, "t", x=text))


def test_plain_words_stay_plain() -> None:
    """The usual sentences of a verdict need no code, and an identifier is code as a person would
    write it.
    """
    plain = (
        "KeyError was raised, in phase codegen: 'buf1'. 10.8 s, 699 MB (98 %) a_b in"
        " torch/_inductor/loop_body.py:12 - x"
    )
    assert markdown.inline(plain) == plain
    assert (
        markdown.inline("it is for `module: x`; (`a_`)@b") == "it is for `module: x`; (`a_` `)@b`"
    )
    assert markdown.inline("in <listcomp>, of __init__.") == "in `<listcomp>`, of `__init__`."
    assert markdown.inline(
        "TypeError: <class 'x'> is no 'Tensor'"
    ) == "TypeError: `<class` `'x'>` is no 'Tensor'".replace("` `", " ")


@settings(max_examples=40, deadline=None)
@given(NASTY, NASTY)
def test_an_issue_has_only_our_own_elements(text: str, other: str) -> None:
    """Every text of the facts is hostile: no link, no image, no HTML but our comment, and the
    headings of the form.
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
    steps = [
        {"name": text, "answer": "same", "seconds": 1.0},
        {"name": other, "answer": text, "seconds": 2.0},
    ]
    hostile = facts(
        verdict=verdict,
        seen=seen,
        signature=Signature(other, text, 1),
        command=text,
        collect_env=text,
        configs={text: {other: text}},
        variables={text: other},
        missing=(Missing(text, other), Missing("collect_env", text)),
        ablation={"sentence": f"It fails {text}", "steps": steps},
        program=repro(f"# {text}"),
    )
    for one in (
        hostile,
        dataclasses.replace(hostile, program=proven.Candidate(text, other, text), collect_env=""),
    ):
        issue = issue_text.make_issue(one)
        assert check(issue.joined, comments=1) == [h.removeprefix("### ") for h in HEADINGS]
        assert (
            check(issue.describe, comments=1)
            == check(issue.error_logs)
            == check(issue.versions)
            == []
        )
        readme = issue_text.pack_readme(
            one, [("repro.py", "the program")], [text], "nothing was hidden"
        )
        assert len(check(readme)) == 1
        assert not re.search(r"@\w|#\w|(?i:\bgh-\d)|://\w", markdown.title(text))


@settings(max_examples=40, deadline=None)
@given(text=NASTY)
@example(text="//evil.example/x")
def test_a_digest_has_only_our_own_elements(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Titles, reasons, versions, targets and repros of a ledger are text or code; a link goes to a
    file below the digest.
    """
    store = new_ledger(tmp_path_factory.mktemp("ledger"))
    told = {**failing("x"), "torch": "2.13"}
    one_night(store, a=result(told))
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
    told = {
        **report,
        "suite": text,
        "sentence": f"It fails {text}",
        "torch": [text],
        "groups": {**report["groups"], "new": [bug, bug]},
    }
    told |= {
        "surprises": [row],
        "unknown": [row],
        "lost": [row],
        "proposals": [{"bugs": [1, 2], "score": 0.5, "shared": [text]}],
    }
    digest = night_report_files.digest_text(told)
    links = [t.attrs["href"] for t in rendered(digest) if t.type == "link_open"]
    assert len(links) == 2 and all(re.fullmatch(r"(?!/)[\w%./~-]+", str(link)) for link in links)
    assert [h.split(" (")[0] for h in check(digest, tuple(map(str, links)))[1:]] == [
        "New",
        "Not as expected",
        "Could not be judged",
        "Lost",
        "Perhaps one bug",
    ]


def test_a_template_cannot_forget() -> None:
    """A value that no filter touched is escaped; and no template marks anything as safe."""
    env = markdown.environment(jinja2.DictLoader({"t": "{{ x }}{{ y | upper }}"}))
    assert markdown.fill(env, "t", x="@team", y="<b>") == "`@team``<B>`"
    folder = Path(__file__).resolve().parents[2] / "templates"
    assert not [
        p
        for p in folder.rglob("*.md.j2")
        if "safe" in p.read_text() or "autoescape" in p.read_text()
    ]
